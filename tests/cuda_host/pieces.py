"""The parts of the stand-in, built once under ``build/cuda_host``: CUDA's headers, PyCUDA, and the stand-in libcuda.so.1.

PyCUDA is published as source alone; building it needs cuda.h and a library that defines the driver's names, but no driver.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from tests.support.paths import ROOT

HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "cuda_host"
COMPILER = os.environ.get("CXX", "g++")
PYCUDA = "pycuda==2026.1"
HEADERS = ("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-profiler-api==13.0.*")
SETTINGS = """\
CUDA_ROOT = {root!r}
CUDA_INC_DIR = [{headers!r}]
CUDADRV_LIB_DIR = [{library!r}]
CUDADRV_LIBNAME = ["cuda"]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-w", "-g0", "-O1"]
LDFLAGS = ["-s"]
"""


class Missing(Exception):
    """A piece is not there and could not be built; the message says why."""


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Exclude the other processes that share the folder."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(what: str, *command: str | Path, cwd: Path | None = None) -> str:
    """Return the output of a command. Raises Missing with the end of its output where it fails."""
    try:
        done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Missing(f"{what}: {error}") from error
    if done.returncode:
        raise Missing(f"{what} failed: {' '.join(str(c) for c in command)}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _pip(what: str, *arguments: str | Path, cwd: Path | None = None) -> None:
    run(what, sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, cwd=cwd)


def _fetched(what: str, name: str, folder: Path, *options: str) -> Path:
    """The file of one package, from the index that pip knows."""
    _pip(what, "download", "--quiet", "--no-deps", "--dest", folder, *options, name)
    stem = re.split(r"[=<>]", name)[0].replace("-", "[-_]")
    return next(p for p in folder.iterdir() if re.match(stem, p.name))


def headers() -> Path:
    """The folder of cuda.h and cudaProfiler.h."""
    position = BUILD / "headers"
    if not position.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD) as name:
            built = Path(name) / "headers"
            built.mkdir()
            for package in HEADERS:
                with zipfile.ZipFile(_fetched("fetching CUDA's headers", package, Path(name))) as wheel:
                    for inside in wheel.namelist():
                        if inside.endswith(("/cuda.h", "/cudaProfiler.h")):
                            (built / Path(inside).name).write_bytes(wheel.read(inside))
            if not position.exists():
                built.rename(position)
    return position


def driver_names() -> list[str]:
    """Every function that CUDA's headers declare."""
    text = "".join((headers() / name).read_text(errors="replace") for name in ("cuda.h", "cudaProfiler.h"))
    text = re.sub(r"//.*|/\*.*?\*/", "", text)
    return sorted(set(re.findall(r"\bcu[A-Z]\w*", text)))


@lru_cache
def library() -> Path:
    """Return the path of the stand-in libcuda.so.1, built from the C++ in this folder if it is not there."""
    sources = sorted(HERE.glob("*.cpp"))
    named = [*sources, *HERE.glob("*.h")]
    key = hashlib.sha256(b"\0".join(p.read_bytes() for p in sorted(named)) + COMPILER.encode()).hexdigest()[:16]
    folder = BUILD / f"driver-{key}"
    if not (folder / "libcuda.so.1").exists():
        with one_at_a_time():
            if not (folder / "libcuda.so.1").exists():
                _link(sources, folder)
    return folder / "libcuda.so.1"


def _link(sources: list[Path], folder: Path) -> None:
    flags = ("-std=c++20", "-O2", "-fPIC", "-pthread", f"-I{headers()}", f"-I{HERE}")
    strict = ("-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")
    for old in BUILD.glob("driver-*"):
        shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        built = Path(name)
        rest = built / "rest.cpp"
        rest.write_text("".join(f'extern "C" __attribute__((weak)) int {n}() {{ return 801; }}\n' for n in driver_names()))
        objects = [built / f"{s.stem}.o" for s in (*sources, rest)]
        run("building the stand-in", COMPILER, *flags, "-w", "-c", "-o", objects[-1], rest)
        commands = [[COMPILER, *flags, *strict, "-c", "-o", str(o), str(s)] for o, s in zip(objects, sources)]
        jobs = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
        said = [job.communicate()[0] for job in jobs]
        if any(job.returncode for job in jobs):
            raise Missing("building the stand-in driver failed:\n" + "".join(said)[:6000])
        target = built / "driver" / "libcuda.so.1"
        target.parent.mkdir()
        name_of_library = ("-Wl,-soname,libcuda.so.1", "-Wl,-z,defs")
        run("linking the stand-in", COMPILER, "-shared", "-pthread", *name_of_library, "-o", target, *objects, "-ldl")
        target.parent.rename(folder)


def site_folder() -> Path:
    """Return the folder of PyCUDA for this Python, which may not be built yet."""
    return BUILD / f"site-{sysconfig.get_config_var('SOABI')}"


def site() -> Path:
    """The folder to put on ``sys.path`` for PyCUDA, installed there for this Python."""
    position = site_folder()
    if not position.exists():
        with one_at_a_time():
            if not position.exists():
                _build_pycuda(position)
    return position


def _build_pycuda(position: Path) -> None:
    if shutil.which(COMPILER) is None:
        raise Missing(f"PyCUDA cannot be built: there is no {COMPILER}")
    if importlib.util.find_spec("setuptools") is None:
        raise Missing("PyCUDA cannot be built: there is no setuptools")
    include = headers()
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        built = Path(name)
        sdist = _fetched("fetching PyCUDA", PYCUDA, built, "--no-binary=pycuda", "--no-build-isolation")
        with tarfile.open(sdist) as archive:
            archive.extractall(built, filter="data")
        source = next(p for p in built.iterdir() if p.is_dir())
        stub = built / "stub"
        stub.mkdir()
        (stub / "stub.cpp").write_text("".join(f'extern "C" int {n}() {{ return 100; }}\n' for n in driver_names()))
        flags = ("-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
        run("building a stub", COMPILER, *flags, "-o", stub / "libcuda.so", stub / "stub.cpp")
        (source / "siteconf.py").write_text(SETTINGS.format(root=str(include), headers=str(include), library=str(stub)))
        print("building PyCUDA for the tests of CUDA (about a minute, once)", file=sys.stderr, flush=True)
        install = ("install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile", "--target", built / "site", source)
        _pip("building PyCUDA", *install)
        (built / "site").rename(position)


def compiler_version() -> str:
    return run("looking for the compiler", COMPILER, "-dumpfullversion").strip()
