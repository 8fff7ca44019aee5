"""PyCUDA's driver, loaded when a CUDA device is first requested. Importing this module loads nothing of CUDA."""

from __future__ import annotations

import importlib
import importlib.util
import re
import threading
from typing import TYPE_CHECKING

from pullback.ir.core.lazy_imports import later
from pullback.runtime.cuda.driver.errors import DeviceError

if TYPE_CHECKING:
    import pycuda.driver as cuda
else:
    # For code that runs after ``count`` has found a device.
    cuda = later("pycuda.driver")

INSTALL = "pip install 'pullback[cuda]'"
FORM = 'a device is "cpu", "cuda" or "cuda:N"'

_lock = threading.Lock()
_found: list[int] = []


def count() -> int:
    """Return the number of CUDA devices, at least one. Raises DeviceError that says what is missing."""
    if _found:
        return _found[0]
    with _lock:
        if not _found:
            _found.append(_count_devices())
    return _found[0]


def _count_devices() -> int:
    if importlib.util.find_spec("pycuda") is None:
        raise DeviceError(f'device="cuda" needs PyCUDA, which is not installed: {INSTALL}; device="cpu" needs nothing')
    try:
        driver = importlib.import_module("pycuda.driver")
    except ImportError as error:
        raise DeviceError(
            f'device="cuda" needs NVIDIA\'s driver: PyCUDA is installed, but does not load ({error}); install the driver of the '
            'card, or use device="cpu"'
        ) from error
    try:
        driver.init()
        devices = int(driver.Device.count())
    except driver.Error as error:
        raise DeviceError(f'device="cuda": the driver finds no CUDA device ({error}); use device="cpu"') from error
    if not devices:
        raise DeviceError('device="cuda": the driver finds no CUDA device; use device="cpu"')
    return devices


def ordinal(name: str) -> int:
    """Return the index of a device called "cuda" or "cuda:N". Raises ValueError for another name."""
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", name)
    if match is None:
        raise ValueError(f"device {name!r}: {FORM}")
    return int(match[1] or 0)


def checked(name: str) -> str:
    """Return the full name of a device, "cpu" or "cuda:N", whether or not it exists. Raises ValueError for an invalid name."""
    if name == "cpu":
        return name
    if not isinstance(name, str):
        raise ValueError(f"device {name!r}: {FORM}")
    return f"cuda:{ordinal(name)}"
