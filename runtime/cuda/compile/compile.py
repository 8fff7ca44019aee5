"""Compile CUDA C to cubins through the kernel cache: with NVRTC if its library is installed, else with nvcc.

All kernels of a program are one source, compiled for the exact architecture of the device, so that the driver compiles
nothing. Compiling needs no driver, and nothing is searched for before the first compile. All code comes from one ``Compiler``;
``use`` replaces it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from pullback.runtime.cache.cache import KernelCache, Origin, default_cache, generator_stamp
from pullback.runtime.cache.cache import key as cache_key
from pullback.runtime.compile.validation import CompileError
from pullback.runtime.cuda.compile import nvcc, nvrtc
from pullback.runtime.process import counters
from pullback.runtime.process.fork import hold_over_fork, work
from pullback.runtime.process.locks import KeyedLocks

T = TypeVar("T")

OPTIONS = ("--std=c++17", "--fmad=false", "--split-compile=8")
"""The compiler options. Multiplications and additions are fused only where the program says so. The functions of one source
are compiled by eight threads; the code was the same for any number from two on, that is, on any machine."""
INSTALL = "pip install 'nvidia-cuda-nvrtc>=13,<14', or NVIDIA's CUDA toolkit with nvcc on the PATH"

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)
_BLANK = re.compile(r"[ \t]*\n\s*\n|[ \t]+\n")


class Compiler(Protocol):
    """A compiler of CUDA C. ``name`` is for messages; ``stamp`` is for cache keys, because another compiler generates other
    code."""

    name: str
    stamp: str

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        """Return the cubin of a text for an architecture such as "sm_90". Raises CompileError."""

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        """Return the PTX of a text, for inspection. Raises CompileError."""


class NoCompiler(RuntimeError):
    """Raised if there is no compiler of CUDA C."""


_lock = threading.RLock()
hold_over_fork(_lock)
_used: Compiler | None = None
_making = KeyedLocks()


def compiler() -> Compiler:
    """Return the compiler in use; the first call searches for NVRTC, then for nvcc. Raises NoCompiler."""
    global _used
    with _lock:
        if _used is None:
            _used = installed_compiler()
        return _used


def installed_compiler() -> Compiler:
    """Return the compiler of this machine. Raises NoCompiler."""
    library, no_library = nvrtc.find()
    if library is not None:
        return library
    program, no_program = nvcc.find()
    if program is not None:
        return program
    raise NoCompiler(f"CUDA C cannot be compiled here: no NVRTC ({no_library}), no nvcc ({no_program}); {INSTALL}")


def use(other: Compiler | None) -> Compiler | None:
    """Use another compiler, or the machine's own if None; return the previous one."""
    global _used
    with _lock:
        before, _used = _used, other
        return before


def without_comments(text: str) -> str:
    """Return a text without its comments (such as the user's source lines) and without the lines that become empty. The
    compiled code does not depend on them."""
    kept = _COMMENT.sub(lambda m: m[1] or " ", text)
    return _BLANK.sub("\n", kept).lstrip()


def key_of(text: str, arch: str) -> str:
    """Return the cache key of the code of a text for an architecture. Raises NoCompiler."""
    return _key(compiler(), text, arch)


def where(text: str, arch: str) -> Origin | None:
    """Return where the code of a text is: "memory", "disk", or None if it would be compiled. Raises NoCompiler."""
    return default_cache().where(key_of(text, arch))


def load(
    text: str, arch: str, kernels: Sequence[str], loaded: Callable[[bytes], T], cache: KernelCache | None = None
) -> T:  # fmt: skip
    """Return ``loaded(code)`` for the code of a text, read from memory or disk, or compiled. Of threads that call at the same
    time, one compiles.

    ``kernels``: the names of the requested functions, which are counted, and shown by the cache's listing. If ``loaded``
    raises anything for cached code, the text is compiled anew. Raises NoCompiler, CompileError, and whatever ``loaded`` raises
    for new code.
    """
    maker, cache = compiler(), default_cache() if cache is None else cache
    name = _key(maker, text, arch)
    with work.underway(), _making.hold(name):
        stored = cache.find(name)
        if stored is not None:
            payload, origin = stored
            try:
                result = loaded(payload)
            except Exception:
                cache.discard(name)
            else:
                counters.count("hits" if origin == "memory" else "disk_hits", len(kernels))
                return result
        start = time.perf_counter()
        payload = maker.cubin(text, arch, OPTIONS)
        seconds = round(time.perf_counter() - start, 4)
        result = loaded(payload)
        counters.count("compiles", len(kernels))
        meta = {"symbols": list(kernels), "cpu": arch, "compiler": maker.name, "seconds": seconds}
        cache.put(name, payload, kind="cubin", meta=meta)
        return result


def cubin(text: str, arch: str, kernels: Sequence[str], cache: KernelCache | None = None) -> bytes:
    """Return the code of a text for an architecture, through the cache. Raises NoCompiler, CompileError."""
    return load(text, arch, kernels, bytes, cache)


def _key(maker: Compiler, text: str, arch: str) -> str:
    return cache_key(generator_stamp(), "cuda", maker.stamp, arch, *OPTIONS, without_comments(text))


__all__ = [
    "INSTALL", "OPTIONS", "CompileError", "Compiler", "NoCompiler",
    "compiler", "cubin", "installed_compiler", "key_of", "load", "without_comments", "use", "where",
]  # fmt: skip
