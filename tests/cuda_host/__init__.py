"""A CUDA device on the host, for tests: a stand-in libcuda.so.1 under the real PyCUDA. README.md tells how."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from .kernels import CompileError, image
from .pieces import Missing, library, site

__all__ = ["CompileError", "Missing", "activate", "counts", "forgive", "image", "is_active", "memory", "order"]
COUNTS = ("launches", "graph_launches", "captured", "bytes", "waiting")
ACTIVE = "CUDA_HOST_ACTIVE"


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
    os.environ[ACTIVE] = "1"
    import pycuda.driver as cuda

    cuda.init()
    return cuda


@lru_cache
def _driver() -> Any:
    found = ctypes.CDLL(str(library()), ctypes.RTLD_GLOBAL)
    found.cuda_host_count.restype = ctypes.c_ulonglong
    found.cuda_host_error.restype = ctypes.c_char_p
    found.cuda_host_order.argtypes = [ctypes.c_uint64]
    found.cuda_host_memory.argtypes = [ctypes.c_int, ctypes.c_size_t]
    found.cuda_host_forgive.restype = None
    return found


def is_active() -> bool:
    """Whether this process's CUDA driver is the stand-in."""
    return bool(activate.cache_info().currsize)


def order(seed: int) -> None:
    """The order of blocks, threads and streams from here on: 0 as they come; 1 reversed, and streams as late as may be; any
    other number: a random order."""
    _driver().cuda_host_order(seed)


@contextmanager
def memory(device: int, size: int) -> Iterator[None]:
    """A device has so many bytes meanwhile."""
    _driver().cuda_host_memory(device, size)
    try:
        yield
    finally:
        _driver().cuda_host_memory(device, 4 << 30)


def forgive() -> None:
    """Contexts in which a kernel failed work again."""
    _driver().cuda_host_forgive()


def counts() -> dict[str, int]:
    """How much was launched and captured so far, the bytes allocated now, and the pieces of work that wait."""
    return {name: int(_driver().cuda_host_count(k)) for k, name in enumerate(COUNTS)}
