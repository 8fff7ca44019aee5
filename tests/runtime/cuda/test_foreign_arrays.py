"""Arrays of PyCUDA's and of other libraries, over the stand-in: views both ways, what is held, and contexts of one's own."""

from __future__ import annotations

import functools
import gc
import importlib
import math
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.cuda.device import deferred_release as cuda_deferred_release
from pullback.runtime.cuda.device.device import Device
from tests.support.cuda.driver_stand_in import device, order

__all__ = ["device", "order"]


@pytest.fixture
def gpuarray(device: Device) -> Iterator[Any]:
    """PyCUDA's module of arrays, in its primary context; with what it needs of pytools where that is not installed."""
    try:
        importlib.import_module("pytools")
    except ImportError:
        tools, prefork = types.ModuleType("pytools"), types.ModuleType("pytools.prefork")
        vars(tools).update(memoize=lambda f=None, **_: functools.cache(f) if f else functools.cache, memoize_method=lambda f: f)
        vars(tools).update(product=math.prod)
        vars(prefork).update(call_capture_output=None)
        sys.modules.update({"pytools": tools, "pytools.prefork": prefork})
    module = importlib.import_module("pycuda.gpuarray")
    with device:
        yield module


X = np.arange(12.0).reshape(3, 4)


def test_a_gpuarray_of_an_array(order: None, gpuarray: Any) -> None:
    x = pb.jit(lambda x: x * 2 + 1)(pb.device_put(X))
    view = x.as_gpuarray()
    assert isinstance(view, gpuarray.GPUArray) and (view.shape, view.dtype) == (x.shape, x.dtype)
    assert int(view.gpudata) == x.address
    np.testing.assert_array_equal(view.get(), X * 2 + 1)
    np.testing.assert_array_equal(pb.device_put(X).T.copy().as_gpuarray().get(), X.T)
    held = weakref.ref(x)
    data = view.gpudata
    del x, view
    gc.collect()
    assert held() is not None
    del data
    gc.collect()
    assert held() is None


def test_gpuarrays_are_arguments(order: None, gpuarray: Any) -> None:
    arguments = gpuarray.to_gpu(X)
    result = pb.jit(lambda x, y: (x * y).sum(axis=0))(arguments, X)
    assert isinstance(result, pb.DeviceArray)
    np.testing.assert_allclose(np.asarray(result), (X * X).sum(axis=0))
    assert pb.device_put(arguments).address == int(arguments.gpudata)
    np.testing.assert_allclose(np.asarray(pb.device_put(arguments) + 1), X + 1)
    np.testing.assert_allclose(np.asarray(pb.device_put(arguments[1:, ::2])), X[1:, ::2])
    again = gpuarray.to_gpu(np.zeros(4))
    assert pb.jit(lambda x: x.sum(axis=0)).into(again, arguments).address == int(again.gpudata)
    np.testing.assert_allclose(again.get(), X.sum(axis=0))
    del arguments, again
    gc.collect()


def test_without_pycuda_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", None)
    with pytest.raises(pb.DeviceError, match=r"pycuda\.gpuarray cannot be imported"):
        pb.device_put(X).as_gpuarray()


class Interface:
    """An array of another library's."""

    def __init__(self, address: int) -> None:
        self.address = address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.address, False)
        return {"shape": (12,), "typestr": "<f8", "data": data, "strides": None, "stream": None, "version": 3}


class Packed:
    """An array of another library's, by DLPack, whose memory is used again when it dies."""

    def __init__(self, array: pb.DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.array.__dlpack__(stream=stream)


Interface.__module__ = Packed.__module__ = "library"


def test_a_context_of_ones_own(device: Device) -> None:
    import pycuda.driver as cuda

    context = cuda.Device(0).make_context()
    try:
        memory = cuda.mem_alloc(96)
        with pytest.raises(pb.DeviceError, match=r"in a CUDA context of its own on cuda:0, as pycuda.autoinit .*autoprimaryctx"):
            pb.jit(np.sum)(Interface(int(memory)))
        memory.free()
    finally:
        context.pop()
        context.detach()
    assert float(pb.jit(np.sum)(pb.device_put(X))) == X.sum()


def test_what_came_by_dlpack_is_held_until_it_was_read(order: None, device: Device) -> None:
    x = pb.device_put(X)
    memory = weakref.ref(x)
    result = pb.jit(lambda x: x + 1)(Packed(x))
    del x
    gc.collect()
    assert memory() is not None
    np.testing.assert_array_equal(np.asarray(result), X + 1)
    with device:
        device.stream.synchronize()
        cuda_deferred_release.release_done(device)
    gc.collect()
    assert memory() is None
