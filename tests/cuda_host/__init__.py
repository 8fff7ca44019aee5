"""A CUDA device on the host, for tests: a stand-in libcuda.so.1 under the real PyCUDA. README.md explains its use."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tests.cuda_host.kernels import CompileError, image, precompiled
from tests.cuda_host.pieces import COMPILER, Missing, library, site, site_folder

__all__ = [
    "CompileError", "Compiler", "Missing", "activate", "counts", "forgive", "image", "limit", "memory", "order", "unavailable",
]  # fmt: skip
COUNTS = ("launches", "graph_launches", "captured", "bytes", "waiting")


@lru_cache
def activate(devices: int = 2, arch: int = 90, memory: int = 4 << 30) -> Any:
    """PyCUDA's driver over the stand-in, for the rest of this process; must come before anything else imports it.

    ``memory``: bytes of each device. Raises Missing where a piece cannot be built.
    """
    loaded = sys.modules.get("pycuda.driver")
    if loaded is not None:
        raise Missing("pycuda.driver was imported before the stand-in")
    driver = _driver()
    driver.cuda_host_devices(devices, arch, ctypes.c_size_t(memory))
    folder = str(site())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import pycuda.driver as cuda

    cuda.init()
    for count in range(devices):  # primary contexts outlive every test, as where another library holds them
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), count)
    return cuda


@lru_cache
def _driver() -> Any:
    result = ctypes.CDLL(str(library()), ctypes.RTLD_GLOBAL)
    result.cuda_host_count.restype = ctypes.c_ulonglong
    result.cuda_host_error.restype = ctypes.c_char_p
    result.cuda_host_order.argtypes = [ctypes.c_uint64]
    result.cuda_host_memory.argtypes = [ctypes.c_int, ctypes.c_size_t]
    result.cuda_host_limit.argtypes = [ctypes.c_double]
    result.cuda_host_forgive.restype = None
    return result


def unavailable() -> str | None:
    """Why tests over the stand-in must be skipped here; None where they can run, or where PULLBACK_CUDA=host says they must."""
    if os.environ.get("PULLBACK_CUDA") == "host":
        return None
    if shutil.which(COMPILER) is None:
        return f"there is no {COMPILER} to compile CUDA C for the host"
    if not site_folder().exists():
        return "the stand-in for CUDA is not built: python -m tests.cuda_host"
    return None


class Compiler:
    """g++ in place of NVRTC, for ``pullback.runtime.cuda.compile.compile.use``."""

    name = "g++"

    @property
    def stamp(self) -> str:
        return precompiled().parent.name

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        return image(text, int(arch.removeprefix("sm_")))

    @staticmethod
    def record(launch: Any) -> str:
        """Return the text that follows a kernel that is not at the outermost level."""
        return f"CUDA_HOST_KERNEL({launch.name}, {launch.threads})"

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        raise CompileError("the host has no PTX")


def order(seed: int) -> None:
    """The order of blocks, threads and streams from here on: 0 as they come; 1 reversed, and streams as late as may be; any
    other number: a random order."""
    _driver().cuda_host_order(seed)


@contextmanager
def memory(device: int, size: int) -> Iterator[None]:
    """Limit the memory of a device to ``size`` bytes within the context."""
    _driver().cuda_host_memory(device, size)
    try:
        yield
    finally:
        _driver().cuda_host_memory(device, 4 << 30)


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Limit a launch to ``seconds`` of processor time within the context, in place of a minute."""
    _driver().cuda_host_limit(seconds)
    try:
        yield
    finally:
        _driver().cuda_host_limit(60)


def forgive() -> None:
    """Make contexts in which a kernel failed usable again."""
    _driver().cuda_host_forgive()


def counts() -> dict[str, int]:
    """Return the launches and captures so far, the bytes allocated now, and the pending pieces of work."""
    return {name: int(_driver().cuda_host_count(k)) for k, name in enumerate(COUNTS)}
