"""The CUDA parts present on this machine, and advice on those that are missing. It is meant for diagnostics, not for running
programs.

The driver and the libraries are called through ctypes; no context is created on a device.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from functools import lru_cache
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.runtime.cuda.compile import disassembly, nvcc, nvrtc
from pullback.runtime.cuda.libraries import libraries as cuda_libraries

EXTRA = "pip install 'pullback[cuda]'"
_MAJOR, _MINOR = 75, 76
"""The device attributes that hold the major and the minor number of its compute capability."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A component used for CUDA. ``text``: its version, or why it is missing and what to do. ``is_here``: it can be used."""

    name: str
    is_here: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """A device: its name, its architecture such as "sm_90", its memory in bytes."""

    name: str
    arch: str
    memory: int

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.memory / 2**30:.0f} GiB)"


class _Driver:
    """NVIDIA's driver. The constructor raises OSError, with advice, if there is none or it reports no device."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise OSError(f"none ({error}): install NVIDIA's driver for the card") from None
        try:
            self._call("cuInit", 0)
            self.version = divmod(self._int("cuDriverGetVersion") // 10, 100)
            self.count = self._int("cuDeviceGetCount")
        except AttributeError as error:
            raise OSError(f"libcuda.so.1 is no driver ({error})") from None
        if not self.count:
            raise OSError("it finds no device: is there a card, and may this user open /dev/nvidia*?")

    def _call(self, name: str, *arguments: Any) -> None:
        status = self.library[name](*arguments)
        if status:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(status, ctypes.byref(text))
            reason = text.value.decode() if text.value else f"error {status}"
            raise OSError(f"it does not work ({reason}): is it as old as its kernel module, and CUDA_VISIBLE_DEVICES right?")

    def _int(self, name: str, *arguments: Any) -> int:
        value = ctypes.c_int()
        self._call(name, ctypes.byref(value), *arguments)
        return value.value

    def device(self, index: int) -> DeviceInfo:
        handle, name, size = self._int("cuDeviceGet", index), ctypes.create_string_buffer(256), ctypes.c_size_t()
        self._call("cuDeviceGetName", name, len(name), handle)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(size), handle)
        major, minor = (self._int("cuDeviceGetAttribute", attribute, handle) for attribute in (_MAJOR, _MINOR))
        return DeviceInfo(name=name.value.decode(errors="replace"), arch=f"sm_{major}{minor}", memory=size.value)


@lru_cache(1)
def _driver() -> _Driver | str:
    try:
        return _Driver()
    except OSError as error:
        return str(error)


def architecture() -> str | None:
    """Return the architecture of the first device; None if there is none."""
    driver = _driver()
    return None if isinstance(driver, str) else driver.device(0).arch


def devices() -> list[DeviceInfo]:
    """Return the devices that the driver reports."""
    driver = _driver()
    return [] if isinstance(driver, str) else [driver.device(k) for k in range(driver.count)]


def parts() -> list[Part]:
    """Return all components used for CUDA, required ones first."""
    return [_driver_part(), _pycuda(), *_compilers(), *map(_library, cuda_libraries.WANTED), _disassembler()]


def _driver_part() -> Part:
    driver = _driver()
    if isinstance(driver, str):
        return Part(name="driver", is_here=False, text=driver)
    return Part(name="driver", is_here=True, text=f"CUDA {driver.version[0]}.{driver.version[1]}")


def _pycuda() -> Part:
    try:
        return Part(name="pycuda", is_here=True, text=importlib.metadata.version("pycuda"))
    except importlib.metadata.PackageNotFoundError:
        return Part(name="pycuda", is_here=False, text=f"not installed: {EXTRA}")


def _compilers() -> list[Part]:
    """Return the entries of NVRTC and nvcc; one of them is needed."""
    library, why = nvrtc.find()
    program, without = nvcc.find()
    needed = "not needed: nvcc is used" if program else f"kernels cannot be compiled: {EXTRA}"
    details = [f"{library.name} ({library.path})", *misfits(library)] if library else [f"none ({why}); {needed}"]
    entries = [Part(name="nvrtc", is_here=library is not None and len(details) == 1, text="; ".join(details))]
    needed = "not needed: NVRTC is used" if library else "it comes with NVIDIA's CUDA toolkit"
    text = f"{program.name} ({program.path})" if program else f"none ({without}); {needed}"
    return [*entries, Part(name="nvcc", is_here=program is not None, text=text)]


def misfits(library: nvrtc.Nvrtc) -> list[str]:
    """Return why a compiler's code would not run on the devices of this machine."""
    driver = _driver()
    if isinstance(driver, str):
        return []
    reasons = []
    if library.version[0] > driver.version[0]:
        reasons.append(
            f"its code needs a driver for CUDA {library.version[0]}, and this one is for {driver.version[0]}: "
            f"update the driver, or pip install nvidia-cuda-nvrtc-cu{driver.version[0]} in its place"
        )
    archs = library.architectures()
    reasons += [f"it makes no code for {each}; it knows {', '.join(archs)}" for each in devices() if each.arch not in archs]
    return reasons


def _library(name: str) -> Part:
    library = cuda_libraries.find(name)
    if isinstance(library, str):
        return Part(name=name, is_here=False, text=library)
    return Part(name=name, is_here=True, text=f"{library.version} ({library.path})")


def _disassembler() -> Part:
    tool = disassembly.tool()
    if tool is None:
        return Part(name="sass", is_here=False, text=f"{disassembly.MISSING}; only the stage sass of a dump needs one")
    return Part(name="sass", is_here=True, text=tool[0])
