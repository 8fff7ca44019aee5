"""Two devices, over the stand-in: what is on one of them stays there, whatever is done with it; mixing them is an error."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.cuda.driver_stand_in import device, order

__all__ = ["device", "order"]

X = np.linspace(0.1, 1.0, 30)
W: Any = None


class Foreign:
    """An array of another library's."""

    def __init__(self, array: pb.DeviceArray) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__


Foreign.__module__ = "library"

STAYS: dict[str, Callable[[Any], Any]] = {
    "a gradient": lambda x: pb.grad(lambda x: np.sum(np.cumsum(x) ** 2))(x),
    "a value": lambda x: pb.value_and_grad(lambda x: np.sum(np.sin(x)))(x)[0],
    "a loop": pb.jit(lambda x: pb.fori_loop(0, 3, lambda k, y: np.cumsum(y), x)),
    "a while loop": pb.jit(lambda x: pb.while_loop(lambda y: np.sum(y) < 1e3, lambda y: y * 2, x)),
    "a branch": pb.jit(lambda x: pb.cond(x[0] > 0, lambda x: x * 2, lambda x: x, x)),
    "a scan": lambda x: pb.scan(lambda c, x: (c + x, c), 0.0, x)[1],
    "vmap": lambda x: pb.vmap(lambda x: x * 2)(x),
    "dynamic": pb.jit(lambda x: x * 2, dynamic=True),
    "guards": pb.jit(lambda x: x * 2 if x[0] > 0 else x, guards=True),
    "check": pb.jit(lambda x: x * 2, check=True),
    "donate": pb.jit(lambda x: x * 2, donate=0),
    "a callback": pb.jit(lambda x: pb.callback(lambda y: y * 2, pb.ShapeDtypeStruct((30,), float), x)),
    "from outside": pb.jit(lambda x: x * W),
    "for the second": pb.jit(lambda x: x * 2, device="cuda:1"),
    "a product": lambda x: np.outer(x, x) @ np.ones((30, 100)),
    "an operator": lambda x: 2 / x,
    "a mask": lambda x: x[x > 0.5],
    "zeros like": lambda x: np.zeros(3, like=x),
    "copies": lambda x: copy.deepcopy(x.copy()),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "into": lambda x: pb.jit(lambda x: x * 2).into(x.copy(), x),
    "another library's": lambda x: pb.jit(lambda x: x * 2)(Foreign(x)),
    "another library's, put": lambda x: pb.device_put(Foreign(x), "cuda:1").T,
}


@pytest.mark.parametrize("name", STAYS)
def test_results_are_where_arguments_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = pb.device_put(X, "cuda:1")
    monkeypatch.setitem(globals(), "W", x)
    result = STAYS[name](x)
    assert isinstance(result, pb.DeviceArray) and result.device == "cuda:1"
    if "pickle" not in name and "zeros" not in name:
        monkeypatch.setitem(globals(), "W", X)
        plain = {"into": lambda x: x * 2, "another library's": lambda x: x * 2, "another library's, put": lambda x: x}
        wanted = plain.get(name, STAYS[name])(X) if name != "for the second" else X * 2
        np.testing.assert_allclose(np.asarray(result), wanted)


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "arguments": lambda one, two: pb.jit(lambda x, y: x * y)(one, two),
    "an operator": lambda one, two: one + two,
    "np.stack": lambda one, two: np.stack([one, two]),
    "in place": lambda one, two: one.__iadd__(two),
    "an index": lambda one, two: one[pb.device_put(np.array([1, 2]), "cuda:1")],
    "another library's": lambda one, two: pb.jit(lambda x, y: x * y)(one, Foreign(two)),
    "from outside": lambda one, two: pb.jit(lambda x: x * W)(one),
    "a function for one": lambda one, two: pb.jit(lambda x: x * 2, device="cuda:0")(two),
    "out": lambda one, two: pb.jit(lambda x: x * 2).into(one.copy(), two),
}


@pytest.mark.parametrize("name", MIXED)
def test_two_devices_in_a_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = pb.device_put(X), pb.device_put(X, "cuda:1")
    monkeypatch.setitem(globals(), "W", two)
    with pytest.raises(ValueError, match=r"is on cuda:[01], and .*cuda:[01].*(pass|jit)"):
        MIXED[name](one, two)
    np.testing.assert_array_equal(np.asarray(one + pb.device_put(two, "cuda:0")), X + X)


def test_numpy_arrays_go_to_the_named_device() -> None:
    f = pb.jit(lambda x: x * 2, device="cuda:1")
    assert isinstance(f(X), np.ndarray)
    assert f.explain(X).device == "cuda:1"
    assert pb.device_put({"a": X}, "cuda:1")["a"].device == "cuda:1"


def test_within_another_function_the_outer_one_decides() -> None:
    inner = pb.jit(lambda x: x * 2, device="cuda:1")
    outer = pb.jit(lambda x: inner(x) + 1)
    assert outer(pb.device_put(X)).device == "cuda:0" and isinstance(outer(X), np.ndarray)


def test_threads_work_on_both(order: None) -> None:
    result: list[Any] = []

    def work(name: str) -> None:
        x = pb.device_put(X, name)
        for _ in range(5):
            x = np.sin(x) * 1.01
        result.append((x.device, np.asarray(x)))

    threads = [threading.Thread(target=work, args=(f"cuda:{k % 2}",)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for name, _ in result) == ["cuda:0"] * 2 + ["cuda:1"] * 2
    for _, array in result[1:]:
        np.testing.assert_array_equal(array, result[0][1])


def test_an_address_that_is_nowhere() -> None:
    class Nowhere:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            return {"shape": (3,), "typestr": "<f8", "data": (0x1234, False), "stream": 1, "version": 3}

    Nowhere.__module__ = "library"
    with pytest.raises(pb.DeviceError, match="it is at 0x1234, which is no memory of a CUDA device"):
        pb.jit(np.sum)(Nowhere())
