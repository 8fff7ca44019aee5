"""CUDA C to code: which compiler, what it says, and the kernel cache; no GPU and no driver is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.compile import cubin, nvcc, nvrtc, toolkit
from pullback.runtime.cuda.compile.compile import OPTIONS, CompileError, NoCompiler
from pullback.runtime.process import counters

TEXT = """\
// A thread for each element.
extern "C" __global__ void k0(double* x, long long n) {
    // model.py:8
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * 2.0 + 1.0;  /* twice */
}
"""
HEAVY = """\
extern "C" __global__ void k_local(double* x, int n, const int* at) {
    double own[64];
    for (int i = 0; i < 64; i++) own[i] = x[i] * 2;
    for (int i = 0; i < n; i++) own[at[i] & 63] += 1;
    double s = 0;
    for (int i = 0; i < 64; i++) s += own[i];
    x[threadIdx.x] = s;
}
extern "C" __global__ void k_shared(float* x) {
    __shared__ float t[1000];
    t[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = t[999 - threadIdx.x];
}
extern "C" __global__ void k_plain(float* x) { x[threadIdx.x] = 1; }
"""


class Fake:
    """Makes code that says of what it was made."""

    def __init__(self, stamp: str = "fake 1.0") -> None:
        self.name, self.stamp = "fake", stamp
        self.made: list[str] = []

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        self.made.append(text)
        return f"{arch} {self.stamp} {text}".encode()

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        return "// ptx\n"


@pytest.fixture
def fake() -> Iterator[Fake]:
    built = Fake()
    before = cuda_compile.use(built)
    yield built
    cuda_compile.use(before)


# the cache


def test_code_is_made_once_and_found_in_memory_and_on_disk(fake: Fake, tmp_path: Path) -> None:
    cache, before = KernelCache(tmp_path), counters.snapshot()
    code = [cuda_compile.cubin(TEXT, "sm_90", ["k0", "k1"], cache) for _ in range(2)]
    code.append(cuda_compile.cubin(TEXT, "sm_90", ["k0", "k1"], KernelCache(tmp_path)))
    assert len(set(code)) == len(fake.made) == 1
    result = counters.snapshot() - before
    assert (result.compiles, result.hits, result.disk_hits) == (2, 2, 2)
    (entry,) = cache.entries()
    assert entry.kind == "cubin" and entry.key == cuda_compile.key_of(TEXT, "sm_90")
    assert entry.meta["symbols"] == ["k0", "k1"] and (entry.meta["cpu"], entry.meta["compiler"]) == ("sm_90", "fake")


def test_a_key_is_of_what_decides_the_code(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [cuda_compile.key_of(TEXT, "sm_90")]
    moved = TEXT.replace("model.py:8", "model.py:9").replace("// A thread", "// One thread")
    assert cuda_compile.key_of(moved, "sm_90") == keys[0]
    keys += [cuda_compile.key_of(TEXT.replace("2.0", "3.0"), "sm_90"), cuda_compile.key_of(TEXT, "sm_80")]
    fake.stamp = "fake 1.1"
    keys.append(cuda_compile.key_of(TEXT, "sm_90"))
    monkeypatch.setattr(cuda_compile, "OPTIONS", ("--fmad=true",))
    keys.append(cuda_compile.key_of(TEXT, "sm_90"))
    monkeypatch.setattr(cuda_compile, "generator_stamp", lambda: "of other sources")
    keys.append(cuda_compile.key_of(TEXT, "sm_90"))
    assert len(set(keys)) == len(keys)


def test_comments_are_no_part_of_a_key() -> None:
    assert cuda_compile.without_comments(TEXT).count("\n") == 4 and "model.py" not in cuda_compile.without_comments(TEXT)
    kept = 'a = "// no comment /* at all */ \\" //"; b = \'"\'; c = 1 / 2;\n'
    assert cuda_compile.without_comments(kept) == kept
    assert cuda_compile.without_comments("a/* b\nc */d\n// e\n\n\n    f // g\n") == "a d\n    f\n"


def test_a_damaged_entry_is_compiled_anew(fake: Fake, tmp_path: Path) -> None:
    code = cuda_compile.cubin(TEXT, "sm_90", ["k0"], KernelCache(tmp_path))
    (path,) = tmp_path.rglob("*.kernel")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert cuda_compile.cubin(TEXT, "sm_90", ["k0"], KernelCache(tmp_path)) == code
    assert len(fake.made) == 2 and KernelCache(tmp_path).verify().good == 1


def test_code_that_a_driver_refuses_is_compiled_anew_once(fake: Fake, tmp_path: Path) -> None:
    cuda_compile.cubin(TEXT, "sm_90", ["k0"], KernelCache(tmp_path))
    loads: list[bytes] = []

    def module_of(code: bytes) -> str:
        loads.append(code)
        if len(loads) == 1:
            raise OSError("no kernel image")
        return "module"

    assert cuda_compile.load(TEXT, "sm_90", ["k0"], module_of, KernelCache(tmp_path)) == "module"
    assert len(fake.made) == len(loads) == 2

    def refuse(code: bytes) -> str:
        raise OSError("no kernel image")

    with pytest.raises(OSError, match="no kernel image"):
        cuda_compile.load(TEXT, "sm_90", ["k0"], refuse, KernelCache(tmp_path))


def test_threads_that_ask_at_once_compile_once(fake: Fake) -> None:
    cache, start = KernelCache(), threading.Barrier(8)

    def ask() -> None:
        start.wait()
        cuda_compile.cubin(TEXT, "sm_90", ["k0"], cache)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.made) == 1


def test_what_does_not_compile_is_not_kept(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, arch: str, options: Sequence[str]) -> bytes:
        raise CompileError(text, "no")

    monkeypatch.setattr(fake, "cubin", refuse)
    with pytest.raises(CompileError):
        cuda_compile.cubin(TEXT, "sm_90", ["k0"], KernelCache())
    assert cuda_compile.where(TEXT, "sm_90") is None


# compilers


def found(which: Any) -> Any:
    library, reason = which.find()
    if library is None:
        pytest.skip(f"needs {which.__name__.rpartition('.')[2]}: {reason}")
    return library


each_compiler = pytest.mark.parametrize("which", [nvrtc, nvcc], ids=["nvrtc", "nvcc"])


@each_compiler
def test_a_compiler_makes_code_for_an_architecture(which: Any) -> None:
    compiler = found(which)
    for arch in ("sm_75", "sm_90"):
        kernels = cubin.resources(compiler.cubin(TEXT, arch, OPTIONS))
        assert list(kernels) == ["k0"] and 0 < kernels["k0"].registers < 64
        text = compiler.ptx(TEXT, arch, OPTIONS)
        assert f".target {arch}" in text and ".entry k0" in text and "fma" not in text and "\0" not in text


@each_compiler
def test_an_error_shows_the_line(which: Any) -> None:
    with pytest.raises(CompileError) as caught:
        found(which).cubin(TEXT.replace("2.0", "two"), "sm_90", OPTIONS)
    text = str(caught.value)
    assert 'identifier "two" is undefined' in text and re.search(r"^-> +5 .*two", text, re.MULTILINE)


@each_compiler
def test_an_architecture_without_code_is_named(which: Any) -> None:
    with pytest.raises(CompileError, match="sm_10"):
        found(which).cubin(TEXT, "sm_10", OPTIONS)


def test_nvrtc_says_which_architectures_it_knows() -> None:
    library = found(nvrtc)
    assert {"sm_75", "sm_80", "sm_90"} <= set(library.architectures())
    with pytest.raises(CompileError, match=r"makes no code for sm_10, but for .*sm_90"):
        library.cubin(TEXT, "sm_10", OPTIONS)


def test_resources_are_those_that_the_compiler_tells() -> None:
    """By a second way: its own remarks."""
    library = found(nvrtc)
    for arch in ("sm_75", "sm_80", "sm_90"):
        code, remarks = library.explained(HEAVY, arch, OPTIONS)
        assert f"sm_{cubin.architecture(code)}" == arch
        kernels = cubin.resources(code)
        assert set(kernels) == {"k_local", "k_shared", "k_plain"}
        assert (kernels["k_shared"].shared, kernels["k_local"].local, kernels["k_plain"].local) == (4000, 512, 0)
        for part in remarks.split("Compiling entry function ")[1:]:
            one = kernels[part.split("'")[1]]
            told = {word: int(n) for n, word in re.findall(r"(\d+) (registers|bytes stack frame|bytes smem)", part)}
            wanted = told["registers"], told["bytes stack frame"], told.get("bytes smem", 0)
            assert (one.registers, one.local, one.shared) == wanted


def test_what_is_no_cubin_has_no_resources() -> None:
    assert cubin.resources(b"") == cubin.resources(b"\x7fELF") == cubin.resources(Path(sys.executable).read_bytes()) == {}


def test_what_a_machine_without_compilers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "libraries", lambda name: iter(["libnvrtc-of-nobody.so"]))
    monkeypatch.setattr(toolkit, "program", lambda name: None)
    before = cuda_compile.use(None)
    try:
        with pytest.raises(NoCompiler, match=r"libnvrtc-of-nobody.*no nvcc.*pip install 'nvidia-cuda-nvrtc"):
            cuda_compile.compiler()
    finally:
        cuda_compile.use(before)


def test_a_library_that_is_no_nvrtc_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkit, "libraries", lambda name: iter(["libm.so.6"]))
    library, problem = nvrtc.find()
    assert library is None and "undefined symbol: nvrtc" in problem


# where tools are


def test_tools_are_found_where_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib64").mkdir()
    tool = tmp_path / "bin" / "nvcc"
    tool.write_text("#!/bin/sh\necho nothing\n")
    tool.chmod(0o755)
    for name in ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so", "libnvrtc-builtins.so.13.0"):
        (tmp_path / "lib64" / name).touch()
    environ = {"CUDA_HOME": str(tmp_path)}
    assert toolkit.program("nvcc", environ) == str(tool)
    result = [path for path in toolkit.libraries("nvrtc", environ) if path.startswith(str(tmp_path))]
    assert [Path(path).name for path in result] == ["libnvrtc.so.13", "libnvrtc.so.12"]
    with pytest.raises(OSError, match="names no version"):
        nvcc.Nvcc(str(tool))


def test_an_import_looks_for_no_compiler() -> None:
    code = "import sys, pullback; print(*(name for name in sys.modules if name.endswith(('.nvrtc', '.nvcc', '.cuda_compile'))))"
    environment = {**os.environ, "PULLBACK_CACHE_DIR": "off"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert not done.stdout.split()
