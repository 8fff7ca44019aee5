"""Arrays of other libraries on a CUDA device, used without a copy and ordered with their streams."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from pullback.runtime.cuda.arrays.device_array import DeviceArray
from pullback.runtime.cuda.arrays.dlpack import CUDA, LEGACY_STREAM, ForeignTensor
from pullback.runtime.cuda.device.device import Device, device
from pullback.runtime.cuda.driver.errors import DeviceError

CONTEXT, DEVICE_ORDINAL = 1, 9
"""Attributes of a pointer: its context, and the index of its device."""


def adopted(x: Any) -> DeviceArray | None:
    """Return an object of another library as an array on its device; None if it is no array.

    An interface that names its stream is preferred, then DLPack, which orders the streams itself; for an array that does not
    name its stream, the whole device is synchronised. Raises DeviceError.
    """
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None and "stream" in interface:
        return _by_interface(x, interface)
    where = getattr(x, "__dlpack_device__", None)
    if where is not None and hasattr(x, "__dlpack__"):
        kind, device_index = where()
        if kind == CUDA:
            return _by_dlpack(x, device_index)
    return None if interface is None else _by_interface(x, interface)


def _by_interface(x: Any, interface: dict[str, Any]) -> DeviceArray:
    address, dtype = interface["data"][0], np.dtype(interface["typestr"])
    if interface.get("mask") is not None:
        raise DeviceError("an array on a device with a mask; pass a plain array")
    stream = interface.get("stream")
    name = f"cuda:{_device_of(address)}" if address else "cuda:0"
    gpu = device(name)
    _check_context(gpu, address)
    if "stream" not in interface:
        with gpu:
            gpu.wait()
    streams = () if stream is None else (int(stream),)
    strides = interface.get("strides")
    return DeviceArray(gpu, address, dtype, tuple(interface["shape"]), x, strides and tuple(strides), streams)


def _device_of(address: int) -> int:
    """Return the index of the device that an address belongs to. Raises DeviceError for one that CUDA does not know."""
    ordinal = ctypes.c_int(-1)
    with device("cuda:0") as first:
        status = first.driver.cuPointerGetAttribute(ctypes.byref(ordinal), DEVICE_ORDINAL, ctypes.c_ulonglong(address))
    if status or ordinal.value < 0:
        raise DeviceError(f"the array says that it is at {address:#x}, which is no memory of a CUDA device (CUDA error {status})")
    return ordinal.value


def _check_context(gpu: Device, address: int) -> None:
    """Raise DeviceError for memory of another context than the primary one, which other libraries share."""
    context = ctypes.c_void_p()
    status = gpu.driver.cuPointerGetAttribute(ctypes.byref(context), CONTEXT, ctypes.c_ulonglong(address)) if address else 1
    if not status and context.value and context.value != gpu.context_handle:
        raise DeviceError(
            f"the array is in a CUDA context of its own on {gpu.name}, as pycuda.autoinit makes one; use the device's primary "
            "context: import pycuda.autoprimaryctx"
        )


def _by_dlpack(x: Any, device_index: int) -> DeviceArray:
    gpu = device(f"cuda:{device_index}")
    with gpu:
        taken = ForeignTensor(x.__dlpack__(stream=gpu.stream.handle), x)
    return DeviceArray(gpu, taken.address, taken.dtype, taken.shape, taken, taken.strides, (_current_stream(x, device_index),))


def tensor(x: Any, dtype: np.dtype[Any], stream: int) -> DeviceArray:
    """Return a PyTorch tensor as an array. Its elements are complete in the order of ``stream``, a handle; after a call, that
    stream waits for the call's work on the tensor."""
    gpu = device(f"cuda:{x.device.index}")
    strides = tuple(step * dtype.itemsize for step in x.stride())
    return DeviceArray(gpu, x.data_ptr(), dtype, tuple(x.shape), x, strides, (stream,))


def _current_stream(x: Any, device_index: int) -> int:
    """Return the stream on which an array's library works: PyTorch's current one; else the default stream, which waits for
    ours."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return int(torch.cuda.current_stream(device_index).cuda_stream)
    return LEGACY_STREAM
