"""CUDA C to what a driver loads, through the kernel cache: NVRTC where its library is, else nvcc.

All kernels of a program are one source, compiled for the exact architecture of the device, so that the driver compiles nothing.
No driver is needed to compile, and nothing is looked for before the first compile. A ``Compiler`` is the one thing that makes
code of a source: ``use`` gives another one.
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
"""Multiplications and additions are joined where the program says so, and nowhere else. Kernels of one source share out so many
threads; the code was the same for any number from two on, that is, on any machine."""
INSTALL = "pip install 'nvidia-cuda-nvrtc>=13,<14', or NVIDIA's CUDA toolkit with nvcc on the PATH"

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)
_BLANK = re.compile(r"[ \t]*\n\s*\n|[ \t]+\n")


class Compiler(Protocol):
    """What makes code of CUDA C. ``name`` is for people, ``stamp`` for keys: others make other code."""

    name: str
    stamp: str

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        """What the driver loads, of a text, for an architecture such as "sm_90". Raises CompileError."""

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        """The assembly for a virtual machine, for people. Raises CompileError."""


class NoCompiler(RuntimeError):
    """There is nothing that compiles CUDA C."""


_lock = threading.RLock()
hold_over_fork(_lock)
_used: Compiler | None = None
_making = KeyedLocks()


def compiler() -> Compiler:
    """The compiler that is used; NVRTC, else nvcc, are looked for at the first call. Raises NoCompiler."""
    global _used
    with _lock:
        if _used is None:
            _used = found()
        return _used


def found() -> Compiler:
    """The compiler of this machine. Raises NoCompiler."""
    library, no_library = nvrtc.find()
    if library is not None:
        return library
    program, no_program = nvcc.find()
    if program is not None:
        return program
    raise NoCompiler(f"CUDA C cannot be compiled here: no NVRTC ({no_library}), no nvcc ({no_program}); {INSTALL}")


def use(other: Compiler | None) -> Compiler | None:
    """Have another compiler used, None for that of the machine; returns the one before."""
    global _used
    with _lock:
        before, _used = _used, other
        return before


def plain(text: str) -> str:
    """A text without comments and the lines that were nothing else, as the user's places are. They decide nothing of its code."""
    kept = _COMMENT.sub(lambda m: m[1] or " ", text)
    return _BLANK.sub("\n", kept).lstrip()


def key_of(text: str, arch: str) -> str:
    """The cache key of the code of a text for an architecture. Raises NoCompiler."""
    return _key(compiler(), text, arch)


def where(text: str, arch: str) -> Origin | None:
    """Where the code of a text is: "memory", "disk", or None if it would be compiled. Raises NoCompiler."""
    return default_cache().where(key_of(text, arch))


def load(
    text: str, arch: str, kernels: Sequence[str], loaded: Callable[[bytes], T], cache: KernelCache | None = None
) -> T:  # fmt: skip
    """What ``loaded`` makes of the code of a text: found in memory, on disk, or compiled. Threads that ask at once compile once.

    ``kernels``: the names of the functions that are asked for, which are counted, and shown by the cache's listing. Code that was
    found and that ``loaded`` refuses, by whatever it raises, is compiled anew. Raises NoCompiler, CompileError, and for new
    code what ``loaded`` does.
    """
    maker, cache = compiler(), default_cache() if cache is None else cache
    name = _key(maker, text, arch)
    with work.underway(), _making.hold(name):
        stored = cache.find(name)
        if stored is not None:
            payload, origin = stored
            try:
                made = loaded(payload)
            except Exception:
                cache.discard(name)
            else:
                counters.count("hits" if origin == "memory" else "disk_hits", len(kernels))
                return made
        start = time.perf_counter()
        payload = maker.cubin(text, arch, OPTIONS)
        seconds = round(time.perf_counter() - start, 4)
        made = loaded(payload)
        counters.count("compiles", len(kernels))
        meta = {"symbols": list(kernels), "cpu": arch, "compiler": maker.name, "seconds": seconds}
        cache.put(name, payload, kind="cubin", meta=meta)
        return made


def cubin(text: str, arch: str, kernels: Sequence[str], cache: KernelCache | None = None) -> bytes:
    """The code of a text for an architecture, through the cache. Raises NoCompiler, CompileError."""
    return load(text, arch, kernels, bytes, cache)


def _key(maker: Compiler, text: str, arch: str) -> str:
    return cache_key(generator_stamp(), "cuda", maker.stamp, arch, *OPTIONS, plain(text))


__all__ = [
    "INSTALL", "OPTIONS", "CompileError", "Compiler", "NoCompiler",
    "compiler", "cubin", "found", "key_of", "load", "plain", "use", "where",
]  # fmt: skip
