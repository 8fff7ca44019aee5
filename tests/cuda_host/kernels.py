"""CUDA C to bytes that the stand-in loads in place of a cubin: a header, and a library of the host that g++ makes."""

from __future__ import annotations

import hashlib
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path

from tests.cuda_host.pieces import BUILD, COMPILER, HERE, Missing, one_at_a_time

CHECKS = "alignment,bounds,integer-divide-by-zero,shift,null"
FLAGS = (
    "-std=c++17", "-O1", "-g1", "-w", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-strict-aliasing",
    "-ffp-contract=off",  # as -fmad=false
    "-fno-gnu-unique",  # the shared memory of a template is each library's own
    "-fstack-clash-protection",  # a stack that is too long meets the page behind it
    "-ftls-model=global-dynamic",
    f"-fsanitize={CHECKS},thread", "-fno-sanitize-recover=all", "--param=tsan-instrument-func-entry-exit=0",
)  # fmt: skip
MOST_IMAGES = 5000
HEADERS = ("device.h", "device_math.h", "device_tiles.h", "kernel.h")
BOUNDS = r"(?:__launch_bounds__\(\s*(?P<{}>\w+)[^)]*\)\s*)?"
KERNEL = re.compile(rf'extern\s+"C"\s+__global__\s+{BOUNDS.format("first")}void\s+{BOUNDS.format("second")}(?P<name>\w+)\s*\(')
DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:(?:__align__|alignas)\(\w+\)\s+)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")


class CompileError(Exception):
    """The error text of g++ for CUDA C."""


@lru_cache
def precompiled() -> Path:
    """Return the precompiled header, which g++ reads fastest."""
    key = hashlib.sha256(repr((COMPILER, FLAGS, [(HERE / h).read_bytes() for h in HEADERS])).encode()).hexdigest()[:16]
    folder = BUILD / f"device-{key}"
    if not folder.exists():
        with one_at_a_time():
            if not folder.exists():
                for old in BUILD.glob("device-*"):
                    shutil.rmtree(old, ignore_errors=True)
                with tempfile.TemporaryDirectory(dir=BUILD) as name:
                    built = Path(name) / "device"
                    built.mkdir()
                    for header in HEADERS:
                        shutil.copy(HERE / header, built)
                    _run(COMPILER, *FLAGS, "-x", "c++-header", str(built / "device.h"))
                    (built / "images").mkdir()
                    built.rename(folder)
    for old in sorted((folder / "images").iterdir(), key=lambda p: p.lstat().st_mtime)[:-MOST_IMAGES]:
        old.unlink(missing_ok=True) if old.is_file() else shutil.rmtree(old, ignore_errors=True)
    return folder / "device.h"


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Missing(f"CUDA C cannot be compiled for the host: {error}") from error
    if done.returncode:
        raise CompileError(done.stderr[-6000:])


def host_text(source: str, arch: int = 90) -> str:
    """The C++ that is compiled for CUDA C: its lines keep their numbers."""
    body = DYNAMIC.sub(r"\1* \2 = (\1*)cuda_host_dynamic();", source)
    if "CUDA_HOST_KERNEL(" in source:  # it brings the records
        return f'#define __CUDA_ARCH__ {arch}0\n#line 1 "kernels.cu"\n{body}\n'
    result = {m["name"]: m["first"] or m["second"] or "0" for m in KERNEL.finditer(source)}
    records = "\n".join(f"CUDA_HOST_KERNEL({name}, {bound})" for name, bound in result.items())
    return f'#define __CUDA_ARCH__ {arch}0\n#line 1 "kernels.cu"\n{body}\n{records}\n'


def image(source: str, arch: int = 90) -> bytes:
    """Return the image of CUDA C for ``cuModuleLoadData`` of the stand-in. ``arch``: 90 for sm_90. Raises CompileError, Missing.

    Images are kept in the folder of the header that they were compiled with.
    """
    header = precompiled()
    text = host_text(source, arch)
    kept = header.parent / "images" / hashlib.sha256(text.encode()).hexdigest()[:32]
    if kept.exists():
        return kept.read_bytes()
    with tempfile.TemporaryDirectory(dir=kept.parent) as name:
        code, library = Path(name) / "kernels.o", Path(name) / "kernels.so"
        (Path(name) / "kernels.cu").write_text(text)
        _run(COMPILER, *FLAGS, "-include", str(header), "-x", "c++", "-c", "-o", str(code), f"{name}/kernels.cu")
        _run(COMPILER, "-shared", "-o", str(library), str(code))
        machine = library.read_bytes()
        result = struct.pack("<8sIIQII", b"CUDAHOST", 1, arch, len(machine), zlib.crc32(machine), 0) + machine
        library.write_bytes(result)
        library.replace(kept)
    return result
