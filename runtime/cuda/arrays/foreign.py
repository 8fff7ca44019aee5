"""Arrays of other libraries that lie on a CUDA device, taken without a copy and in the order of their streams."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from pullback.runtime.cuda.arrays.device_array import DeviceArray
from pullback.runtime.cuda.arrays.dlpack import CUDA, LEGACY_STREAM, Taken
from pullback.runtime.cuda.device.device import Device, device
from pullback.runtime.cuda.driver.errors import DeviceError

CONTEXT, DEVICE_ORDINAL = 1, 9
"""Attributes of a pointer: its context, and the number of its device."""


def adopted(x: Any) -> DeviceArray | None:
    """An object of another library's as an array on its device; None if it does not stand for one.

    An interface that names its stream is taken first, then DLPack, which orders the streams itself; for an array that says
    nothing of its stream the whole device is waited for. Raises DeviceError.
    """
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None and "stream" in interface:
        return _by_interface(x, interface)
    where = getattr(x, "__dlpack_device__", None)
    if where is not None and hasattr(x, "__dlpack__"):
        kind, number = where()
        if kind == CUDA:
            return _by_dlpack(x, number)
    return None if interface is None else _by_interface(x, interface)


def _by_interface(x: Any, interface: dict[str, Any]) -> DeviceArray:
    address, dtype = interface["data"][0], np.dtype(interface["typestr"])
    if interface.get("mask") is not None:
        raise DeviceError("an array on a device with a mask; pass a plain array")
    stream = interface.get("stream")
    name = f"cuda:{_device_of(address)}" if address else "cuda:0"
    place = device(name)
    _check_context(place, address)
    if "stream" not in interface:
        with place:
            place.wait()
    streams = () if stream is None else (int(stream),)
    strides = interface.get("strides")
    return DeviceArray(place, address, dtype, tuple(interface["shape"]), x, strides and tuple(strides), streams)


def _device_of(address: int) -> int:
    """The number of the device on which an address lies. Raises DeviceError for one that CUDA does not know."""
    found = ctypes.c_int(-1)
    with device("cuda:0") as first:
        status = first.driver.cuPointerGetAttribute(ctypes.byref(found), DEVICE_ORDINAL, ctypes.c_ulonglong(address))
    if status or found.value < 0:
        raise DeviceError(f"the array says that it is at {address:#x}, which is no memory of a CUDA device (CUDA error {status})")
    return found.value


def _check_context(place: Device, address: int) -> None:
    """Raises DeviceError for memory of another context than the primary one, which other libraries share."""
    found = ctypes.c_void_p()
    status = place.driver.cuPointerGetAttribute(ctypes.byref(found), CONTEXT, ctypes.c_ulonglong(address)) if address else 1
    if not status and found.value and found.value != place.context_handle:
        raise DeviceError(
            f"the array is in a CUDA context of its own on {place.name}, as pycuda.autoinit makes one; use the device's primary "
            "context: import pycuda.autoprimaryctx"
        )


def _by_dlpack(x: Any, number: int) -> DeviceArray:
    place = device(f"cuda:{number}")
    with place:
        taken = Taken(x.__dlpack__(stream=place.stream.handle), x)
    return DeviceArray(place, taken.address, taken.dtype, taken.shape, taken, taken.strides, (_current_stream(x, number),))


def tensor(x: Any, dtype: np.dtype[Any], stream: int) -> DeviceArray:
    """A tensor of PyTorch's as an array. What it holds is complete in the order of a stream, by its handle, which after a call
    waits for what that did with it."""
    place = device(f"cuda:{x.device.index}")
    strides = tuple(step * dtype.itemsize for step in x.stride())
    return DeviceArray(place, x.data_ptr(), dtype, tuple(x.shape), x, strides, (stream,))


def _current_stream(x: Any, number: int) -> int:
    """The stream on which an array's library works: PyTorch's current one; of others the default one, which waits for ours."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return int(torch.cuda.current_stream(number).cuda_stream)
    return LEGACY_STREAM
