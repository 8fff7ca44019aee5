"""PyCUDA's own arrays over memory of ours."""

from __future__ import annotations

import importlib
from typing import Any

from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError


def gpuarray(address: int, array: Any) -> Any:
    """A ``pycuda.gpuarray.GPUArray`` of the memory of an array on a device, which its ``gpudata`` keeps. Raises DeviceError where
    PyCUDA's module of them cannot be imported."""
    try:
        module = importlib.import_module("pycuda.gpuarray")
    except ImportError as error:
        raise DeviceError(f"pycuda.gpuarray cannot be imported ({error}); pip install pycuda brings what it needs") from error

    class Pointer(cuda.PointerHolderBase):  # type: ignore[misc,name-defined,unused-ignore]
        """What PyCUDA takes for memory."""

        def __init__(self) -> None:
            super().__init__()
            self.array = array

        def get_pointer(self) -> int:
            return address

        def __int__(self) -> int:
            return address

        __index__ = __int__

    return module.GPUArray(array.shape, array.dtype, base=array, gpudata=Pointer(), strides=array.strides)
