"""``f.into`` with arrays of a device: results in their memory, which is given up, and errors for what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.cuda.device.device import Device
from tests import cuda_host
from tests.support.cuda.driver_stand_in import device, order

__all__ = ["device", "order"]

X = np.linspace(0.1, 1.0, 50)
slope = pb.jit(pb.value_and_grad(lambda x: np.sum(np.sin(x))))
step = pb.jit(lambda x: x * 2 + np.sum(x))


def test_results_are_in_the_memory(order: None) -> None:
    x, out = pb.device_put(X), pb.device_put(np.zeros(50))
    address = out.address
    value, result = slope.into((None, out), x)
    assert isinstance(value, pb.DeviceArray) and result.address == address
    np.testing.assert_allclose(np.asarray(result), np.cos(X), rtol=1e-13)


def test_nothing_is_allocated(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are made where they belong, from the first call on and by graphs."""
    x, one, two = pb.device_put(X), pb.device_put(X), pb.device_put(X)
    f = pb.jit(lambda x: np.sin(np.cumsum(x)) * np.max(np.cumsum(np.cos(x))))
    addresses, before = {one.address, two.address}, cuda_host.counts()["graph_launches"]
    asked: list[str] = []
    take = device.pool.take
    monkeypatch.setattr(device.pool, "take", lambda size, what: asked.append(what) or take(size, what))
    for _ in range(4):
        one, two = f.into(one, x), f.into(two, x)
    assert {one.address, two.address} == addresses
    assert not any("result" in what for what in asked)
    assert cuda_host.counts()["graph_launches"] > before
    np.testing.assert_allclose(np.asarray(two), np.sin(np.cumsum(X)) * np.max(np.cumsum(np.cos(X))), rtol=1e-13)


def test_arguments_are_read_first(order: None) -> None:
    x, host = pb.device_put(X), X
    address = x.address
    for _ in range(4):
        x, host = step.into(x, x), step(host)
        assert x.address == address
        np.testing.assert_allclose(np.asarray(x), host, rtol=1e-13)
    swap = pb.jit(lambda x, y: (y, x))
    a, b = pb.device_put(np.zeros(3)), pb.device_put(np.ones(3))
    c, d = swap.into((a, b), a, b)
    assert c.tolist() == [1, 1, 1] and d.tolist() == [0, 0, 0]
    e, f = pb.jit(lambda x, y: (y * 2, x + 3)).into((c, d), c, d)
    assert e.tolist() == [0, 0, 0] and f.tolist() == [4, 4, 4]


def test_loops_checks_and_steps_in_python() -> None:
    def f(x: Any) -> Any:
        return pb.fori_loop(0, 3, lambda k, y: y * 2 + k, x)

    out = pb.device_put(np.zeros(50))
    address = out.address
    result = pb.jit(f).into(out, pb.device_put(X))
    assert result.address == address
    np.testing.assert_allclose(np.asarray(result), f(X))
    take = pb.jit(lambda x, k: x[k])
    x, out = pb.device_put(X), pb.device_put(np.float64(7))
    with pytest.raises(IndexError):
        take.into(out, x, 77)
    assert out.device == "cuda:0"
    assert float(take.into(out, x, 3)) == X[3]


def test_numpy_arguments_and_results() -> None:
    out = pb.device_put(np.zeros(50))
    result = pb.jit(lambda x: (x * 2, x + 1), device="cuda").into((out, None), X)
    assert all(isinstance(a, pb.DeviceArray) for a in result)
    np.testing.assert_array_equal(np.asarray(result[0]), X * 2)
    host = np.zeros(50)
    assert step.into(host, pb.device_put(X)) is host
    np.testing.assert_allclose(host, step(X))


GONE: dict[str, Callable[[Any], Any]] = {
    "an operator": lambda x: x + 1, "a copy": np.asarray, "a number": lambda x: float(x[0]), "its device": lambda x: x.device,
    "an argument": lambda x: step(x), "out again": lambda x: step.into(x, pb.device_put(X)), "DLPack": lambda x: x.__dlpack__(),
    "its interface": lambda x: x.__cuda_array_interface__, "a copy there": lambda x: x.copy(), "device_put": pb.device_put,
    "waiting": lambda x: x.block_until_ready(), "an index": lambda x: x[0],
}  # fmt: skip


@pytest.mark.parametrize("name", GONE)
def test_what_was_given_up_is_gone(name: str) -> None:
    out = pb.device_put(np.zeros(50))
    step.into(out, pb.device_put(X))
    with pytest.raises(pb.DeviceError, match=r"memory was given up to f.into\(out, ...\); use the array that the call returned"):
        GONE[name](out)
    assert repr(out) == str(out) == "DeviceArray(given up, shape=(50,), dtype=float64)"


def test_what_cannot_be_given_up() -> None:
    x = pb.device_put(X)
    y = x.reshape(5, 10)
    with pytest.raises(ValueError, match=r"out shares its memory with another array, .*; pass a copy, x.copy\(\)"):
        step.into(x, pb.device_put(X))
    result = step.into(x.copy(), x)
    np.testing.assert_allclose(np.asarray(result), step(X))
    np.testing.assert_array_equal(np.asarray(y).ravel(), X)
    lent = pb.device_put(X)
    assert lent.__cuda_array_interface__["shape"] == (50,)
    with pytest.raises(ValueError, match="out was handed to another library, which would see it change"):
        step.into(lent, x)
    with pytest.raises(ValueError, match=r"out is an array of <f8, f64\[50\]; found <f4\[50\]"):
        step.into(pb.device_put(X.astype("f4")), x)
    with pytest.raises(ValueError, match="an array of out is on cuda:1, and the call runs on cuda:0"):
        step.into(pb.device_put(X, "cuda:1"), x)
    with pytest.raises(ValueError, match="is on cuda:0, and the call runs on cpu: jit the function with device='cuda:0'"):
        step.into(pb.device_put(X), X)
    both = pb.jit(lambda x: (x * 2, x * 3))
    one = pb.device_put(X)
    with pytest.raises(ValueError, match=r"out\[0\] shares memory with out\[1\]"):
        both.into((one, one), x)
    np.testing.assert_array_equal(np.asarray(x), X)


class Tensor:
    """An array of another library's, whose memory may change."""

    def __init__(self, array: pb.DeviceArray, shape: Any, strides: Any = None) -> None:
        self.array = array
        self.interface = {**array.__cuda_array_interface__, "shape": shape, "strides": strides}

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.interface


Tensor.__module__ = "library"


def test_an_array_of_another_library(order: None) -> None:
    """It stays what it was, with new contents."""
    memory, x = pb.device_put(np.zeros(50)), pb.device_put(X)
    tensor = Tensor(memory, (50,))
    for _ in range(2):
        result = step.into(tensor, x)
        assert result.address == memory.address
        np.testing.assert_allclose(np.asarray(memory), step(X), rtol=1e-13)
    step.into(tensor, tensor)
    np.testing.assert_allclose(np.asarray(memory), step(step(X)), rtol=1e-13)
    with pytest.raises(ValueError, match="out is not row-major"):
        pb.jit(lambda x: x.reshape(5, 10)).into(Tensor(memory, (5, 10), (8, 40)), x)
