"""PyCUDA arrays over memory of a DeviceArray."""

from __future__ import annotations

import importlib
from typing import Any

from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError


def gpuarray(address: int, array: Any) -> Any:
    """Return a ``pycuda.gpuarray.GPUArray`` over the memory of ``array``, which its ``gpudata`` keeps alive. Raises
    DeviceError if ``pycuda.gpuarray`` cannot be imported."""
    try:
        module = importlib.import_module("pycuda.gpuarray")
    except ImportError as error:
        raise DeviceError(f"pycuda.gpuarray cannot be imported ({error}); pip install pycuda brings what it needs") from error

    class Pointer(cuda.PointerHolderBase):  # type: ignore[misc,name-defined,unused-ignore]
        """A pointer object that PyCUDA accepts as memory."""

        def __init__(self) -> None:
            super().__init__()
            self.array = array

        def get_pointer(self) -> int:
            return address

        def __int__(self) -> int:
            return address

        __index__ = __int__

    return module.GPUArray(array.shape, array.dtype, base=array, gpudata=Pointer(), strides=array.strides)
