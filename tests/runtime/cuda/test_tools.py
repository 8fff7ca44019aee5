"""What is shown of CUDA without a GPU: the stages ptx and sass of a dump, the doctor's report, entries of the cache."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from pullback.cli.main import main
from pullback.runtime.cache.cache import default_cache
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.compile import cubin, disassembly, nvrtc, toolkit
from tests.runtime.cuda.test_compile import TEXT, Fake, found
from tests.support.paths import EXAMPLES

WAVE = [f"{EXAMPLES / 'wave.py'}:loss", "f64[10]", "f64[10]", "--device", "cuda"]
CC = shutil.which("cc") or shutil.which("g++")

DRIVER = r"""
#include <stdlib.h>
#include <string.h>
static const char* says(void) { const char* word = getenv("STUB"); return word ? word : ""; }
int cuInit(int flags) { return strcmp(says(), "broken") ? 0 : 803; }
int cuGetErrorString(int status, const char** text) { *text = "system not yet right"; return 0; }
int cuDriverGetVersion(int* found) { *found = strcmp(says(), "older") ? 13000 : 12040; return 0; }
int cuDeviceGetCount(int* found) { *found = strcmp(says(), "empty") ? 1 : 0; return 0; }
int cuDeviceGet(int* found, int number) { *found = number; return 0; }
int cuDeviceGetName(char* name, int size, int device) { strcpy(name, "Stub 3000"); return 0; }
int cuDeviceTotalMem_v2(size_t* found, int device) { *found = 8UL << 30; return 0; }
int cuDeviceGetAttribute(int* found, int which, int device) { *found = which == 75 ? 7 : 0; return 0; }
int cublasGetProperty(int which, int* found) { *found = 13 - which; return 0; }
"""


@pytest.fixture(autouse=True)
def fake() -> Iterator[Fake]:
    built = Fake()
    before = cuda_compile.use(built)
    yield built
    cuda_compile.use(before)


def without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "program", lambda name: None)


# dump


def test_dump_of_ptx_and_sass(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text('#!/bin/sh\necho "assembly of"\ncat "$2"\n')
    tool.chmod(0o755)
    monkeypatch.setattr(toolkit, "program", lambda name: str(tool) if name == "nvdisasm" else None)
    assert main(["dump", *WAVE, "--stage", "ptx"]) == 0
    assert capsys.readouterr().out == "// ptx\n"
    assert main(["dump", *WAVE, "--stage", "sass", "--arch", "sm_80"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("assembly of\nsm_80 fake 1.0") and "__global__" in shown
    assert main(["dump", *WAVE, "--out", str(tmp_path / "out")]) == 0
    names = [path.name for path in sorted((tmp_path / "out").iterdir())]
    assert names[-4:-1] == ["06-cuda.cu", "07-ptx.ptx", "08-sass.sass"]


def test_a_dump_without_tools_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    without_tools(monkeypatch)
    assert main(["dump", *WAVE, "--stage", "sass"]) == 1
    assert "pip install nvidia-cuda-nvdisasm" in capsys.readouterr().err
    assert main(["dump", *WAVE]) == 0
    assert "# stage: sass\n// assembly of a GPU cannot be shown" in capsys.readouterr().out
    monkeypatch.setattr(toolkit, "libraries", lambda name: iter(["libnvrtc-of-nobody.so"]))
    cuda_compile.use(None)
    assert main(["dump", *WAVE, "--stage", "ptx"]) == 1
    assert "pip install 'nvidia-cuda-nvrtc" in capsys.readouterr().err
    assert main(["dump", *WAVE, "--stage", "cuda"]) == 0
    assert "__global__" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--arch", "90"], ["--arch", "sm_90", "--device", "cpu"]])
def test_an_architecture_goes_with_cuda(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", *WAVE, *words]) == 2
    assert "as sm_90, and with --device cuda" in capsys.readouterr().err


def test_stages_compile_when_they_are_asked_for(fake: Fake) -> None:
    stages = pb.jit(lambda x: np.sin(x) * 2, device="cuda").stages(np.ones(3))
    assert list(stages)[-3:] == ["cuda", "ptx", "sass"] and not fake.made
    copied = pickle.loads(pickle.dumps(stages))
    assert copied["ptx"] == "// ptx\n" and stages.problem("ptx") is None
    assert dict(copied) == dict(stages)


def test_real_ptx_and_sass(capsys: pytest.CaptureFixture[str]) -> None:
    cuda_compile.use(found(nvrtc))
    assert main(["dump", *WAVE, "--stage", "ptx", "--arch", "sm_80"]) == 0
    assert ".target sm_80" in capsys.readouterr().out
    if disassembly.tool() is None:
        pytest.skip(disassembly.MISSING)
    assert main(["dump", *WAVE, "--stage", "sass", "--arch", "sm_80"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("// k0") and "registers" in text and "EXIT" in text


# the cache


def test_the_cache_shows_what_kernels_take(capsys: pytest.CaptureFixture[str]) -> None:
    cuda_compile.use(found(nvrtc))
    code = cuda_compile.cubin(TEXT, "sm_80", ["k0"])
    key = cuda_compile.key_of(TEXT, "sm_80")
    assert main(["cache", "show", key[:12]]) == 0
    shown = capsys.readouterr().out
    assert f"k0         {cubin.resources(code)['k0']}" in shown and "NVRTC" in shown
    assert main(["cache", "list"]) == 0
    assert f"{key[:16]}  cubin" in capsys.readouterr().out
    default_cache().discard(key)


# doctor


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver and a library of our own."""
    if CC is None:
        pytest.skip("there is no C compiler to build a driver with")
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.c").write_text(DRIVER)
    subprocess.run([CC, "-x", "c", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "stub.c"], check=True)
    (folder / "lib").mkdir()
    shutil.copy(folder / "libcuda.so.1", folder / "lib" / "libcublas.so.13")
    return folder


def report(stub: Path | None, word: str = "") -> dict[str, str]:
    """The lines of the doctor by their first words."""
    environment = {**os.environ, "STUB": word, "PULLBACK_CACHE_DIR": "off"}
    if stub is not None:
        environment |= {"LD_LIBRARY_PATH": str(stub), "CUDA_HOME": str(stub)}
    done = subprocess.run(
        [sys.executable, "-m", "pullback", "doctor"], env=environment, capture_output=True, text=True, check=True
    )  # fmt: skip
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}


def test_the_doctor_names_devices_and_what_does_not_go_with_them(stub: Path) -> None:
    lines = report(stub)
    assert lines["cuda"] == "Stub 3000 (sm_70, 8 GiB)" and lines["driver"] == "CUDA 13.0"
    assert lines["cublas"] == f"13.12.11 ({stub / 'lib' / 'libcublas.so.13'})"
    if nvrtc.find()[0] is not None:
        assert "it makes no code for Stub 3000 (sm_70, 8 GiB); it knows sm_75" in lines["nvrtc"]
        assert "and this one is for 12: update the driver" in report(stub, "older")["nvrtc"]


def test_the_doctor_says_what_a_driver_lacks(stub: Path) -> None:
    for word, wanted in (("broken", "does not work (system not yet right)"), ("empty", "finds no device")):
        lines = report(stub, word)
        assert lines["cuda"] == "no device can be used" and wanted in lines["driver"]


def test_the_doctor_says_what_to_install() -> None:
    lines = report(None)
    assert {"driver", "nvrtc", "nvcc", "cublas", "cusolver", "sass"} <= set(lines)
    if lines["driver"].startswith("none"):
        assert "install NVIDIA's driver" in lines["driver"]
    if lines["cusolver"].startswith("none"):
        assert "large matrices are factored by the CPU, on copies (pip install nvidia-cusolver" in lines["cusolver"]
