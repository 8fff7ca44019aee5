"""Transformed functions pickle like Python's functions, or with what they were made from; they copy, bind and compare alike."""

from __future__ import annotations

import abc
import copy
import functools
import gc
import inspect
import pickle
import subprocess
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import pullback as pb
from tests.support.api import Array, traces

W = np.array([0.5, -1.0, 2.0])


def raw(w: Array, scale: float = 2.0) -> Any:
    return scale * np.sum(w * w)


@pb.jit
def decorated(w: Array) -> Any:
    return np.sum(w * w)


@pb.jit
@pb.value_and_grad
def twice(w: Array) -> Any:
    return np.sum(w * w)


gradient = pb.grad(raw)
jitted_gradient = pb.jit(pb.grad(decorated))


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.bound = pb.grad(self.plain)
        self.partial = functools.partial(pb.jit(raw), scale=scale)

    def plain(self, w: Array) -> Any:
        return self.scale * np.sum(w * w)

    @pb.grad
    def slope(self, w: Array) -> Any:
        return self.scale * np.sum(w * w)

    @classmethod
    @pb.jit
    def of_class(cls, w: Array) -> Any:
        return np.sum(w) * 3.0

    @staticmethod
    @pb.grad
    def of_none(w: Array) -> Any:
        return np.sum(w**3)

    class Inner:
        @pb.jit
        def deep(self, w: Array) -> Any:
            return np.sum(w) * 7.0


MODEL = Model(3.0)
BY_NAME: dict[str, Any] = {"decorated": decorated, "twice": twice, "static": Model.of_none, "nested": Model.Inner.deep}
EQUAL: dict[str, Callable[[], Any]] = {
    "gradient": lambda: gradient,
    "made twice": lambda: pb.grad(raw),
    "of decorated": lambda: jitted_gradient,
    "jit of what is jitted": lambda: pb.jit(raw, static_argnames="scale"),
    "wrapped": lambda: pb.grad(decorated.__wrapped__),
    "half of two": lambda: twice.__wrapped__,
    "inside of two": lambda: pb.grad(twice.__wrapped__.__wrapped__, argnums=(0,)),
    "options": lambda: pb.value_and_grad(raw, argnums=(0, 1)),
    "NumPy's": lambda: pb.grad(np.sum),
    "method": lambda: Model.slope,
}
CALLED: dict[str, Callable[[], Any]] = {
    "bound": lambda: MODEL.slope,
    "made of bound": lambda: pb.grad(MODEL.plain),
    "made of bound and decorated": lambda: pb.jit(MODEL.slope),
    "held by its object": lambda: MODEL.bound,
    "classmethod": lambda: Model.of_class,
    "of partial": lambda: pb.grad(functools.partial(raw, scale=5.0)),
    "partial": lambda: functools.partial(pb.jit(raw), scale=4.0),
    "held partial": lambda: MODEL.partial,
}


def of_lambda() -> Any:
    k = 3.0
    return pb.grad(lambda w: k * np.sum(w * w))


def of_closure() -> Any:
    data = np.arange(3.0)

    @pb.jit
    def inner(w: Array) -> Any:
        return inner_helper(w) + np.sum(w)

    def inner_helper(w: Array) -> Any:
        return data @ w

    return inner


def recursive() -> Any:
    @pb.jit
    def power(w: Array, n: int) -> Any:
        return w if n == 0 else w * power(w, n - 1)

    return functools.partial(power, n=2)


BY_VALUE: dict[str, Callable[[], Any]] = {"lambda": of_lambda, "closure": of_closure, "recursive": recursive}
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", BY_NAME)
def test_by_name(name: str, protocol: int) -> None:
    data = pickle.dumps(BY_NAME[name], protocol)
    assert len(data) - len(__name__) < 87  # bytes in addition to the module's name
    assert pickle.loads(data) is BY_NAME[name]


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
@pytest.mark.parametrize("name", EQUAL)
def test_transform_and_function(name: str, dumps: Callable[[Any], bytes]) -> None:
    function = EQUAL[name]()
    result = pickle.loads(dumps(function))
    assert result == function and hash(result) == hash(function)
    assert result.__name__ == function.__name__ and repr(result) == repr(function)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CALLED)
def test_what_holds_one(name: str, protocol: int) -> None:
    function = CALLED[name]()
    result = pickle.loads(pickle.dumps(function, protocol))
    np.testing.assert_equal(result(W), function(W))


@pytest.mark.parametrize("name", BY_VALUE)
def test_cloudpickle_takes_the_function_along(name: str) -> None:
    function = BY_VALUE[name]()
    expected = function(W)
    data = cloudpickle.dumps(function)
    assert b"__pullback__" not in data or len(data) < 5000
    np.testing.assert_equal(pickle.loads(data)(W), expected)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(function)


MAIN = """
import pickle, sys
import cloudpickle, numpy as np, pullback as pb

OFFSET = 1.0

@pb.value_and_grad
def loss(w):
    return np.sum(w * w) + OFFSET

@pb.jit
def both(w, n):
    return loss(w) if n == 0 else both(w, n - 1)

class Model:
    def __init__(self):
        self.k = 2.0
    @pb.jit
    def f(self, w):
        return self.k * np.sum(w)

w = np.ones(3)
print(loss(w)[0], both(w, 1)[0], Model().f(w))
assert pickle.loads(pickle.dumps([loss, both])) == [loss, both]
pickle.dump([pickle.dumps(loss), cloudpickle.dumps([loss, both, Model().f, pb.jit(loss)])], open(sys.argv[1], "wb"))
"""


def test_main_goes_along_with_cloudpickle_and_by_name_with_pickle(tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "out.pickle"
    script.write_text(MAIN)
    done = subprocess.run([sys.executable, str(script), str(out)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("4.0 4.0 6.0\n", "")
    named, valued = pickle.loads(out.read_bytes())
    assert b"__main__" in named and len(named) < 60
    loss, both, method, again = pickle.loads(valued)
    w = np.ones(3)
    assert (loss(w)[0], both(w, 1)[0], method(w), again(w)[0]) == (4.0, 4.0, 6.0, 4.0)


def test_a_module_registered_by_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "users_code.py").write_text(
        "import numpy as np, pullback as pb\n@pb.jit\ndef f(w):\n    return np.sum(w) * factor\nfactor = 5.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    users_code = __import__("users_code")
    assert len(cloudpickle.dumps(users_code.f)) < 100
    cloudpickle.register_pickle_by_value(users_code)
    try:
        data = cloudpickle.dumps(users_code.f)
    finally:
        cloudpickle.unregister_pickle_by_value(users_code)
        del sys.modules["users_code"]
    assert pickle.loads(data)(W) == 7.5


def test_copies_are_the_function() -> None:
    for function in (decorated, gradient, jitted_gradient, of_lambda()):
        assert copy.copy(function) is function and copy.deepcopy(function) is function
        assert copy.deepcopy([function])[0] is function


def test_a_copied_object_has_methods_of_its_own() -> None:
    other = copy.deepcopy(MODEL)
    other.scale = 30.0
    np.testing.assert_array_equal(other.bound(W), 60.0 * W)
    np.testing.assert_array_equal(MODEL.bound(W), 6.0 * W)
    assert other.bound.__self__ is other and copy.copy(MODEL.slope) == MODEL.slope
    assert copy.deepcopy(MODEL.slope).__self__ is not MODEL
    assert other.partial(W) == MODEL.partial(W)
    loaded = pickle.loads(pickle.dumps(MODEL))
    assert loaded.bound.__self__ is loaded
    np.testing.assert_array_equal(loaded.bound(W), 6.0 * W)


def test_a_deep_copy_of_a_partial_holds_copies() -> None:
    data = np.ones(3)
    function = pb.jit(functools.partial(lambda d, w: d @ w, data))
    copied = copy.deepcopy(function)
    data[:] = 2.0
    assert (function(W), copied(W)) == (3.0, 1.5)


def test_equality_and_hash() -> None:
    assert MODEL.slope == MODEL.slope and hash(MODEL.slope) == hash(MODEL.slope)
    assert MODEL.slope != Model(3.0).slope and MODEL.slope != MODEL.bound
    assert pb.grad(MODEL.plain) == MODEL.bound
    assert pb.grad(raw) == pb.grad(raw) != pb.jit(raw)
    assert len({pb.grad(raw), pb.grad(raw), pb.grad(raw, argnums=1), raw}) == 3


def test_equal_functions_among_the_arguments_are_traced_once() -> None:
    @pb.jit
    def step(slope: Any, w: Array) -> Array:
        return w - 0.1 * slope(w)  # type: ignore[no-any-return]

    expected = step(pb.grad(raw), W)
    before = traces()
    for _ in range(3):
        np.testing.assert_array_equal(step(pb.grad(raw), W), expected)
    assert traces() == before


def test_weak_references() -> None:
    def plain(w: Array) -> Any:
        return np.sum(w)

    function = pb.jit(plain)
    died = weakref.ref(function), weakref.ref(MODEL.slope)
    assert function(W) == 1.5 and died[0]() is function
    del function
    gc.collect()
    assert died[0]() is None and died[1]() is None


def test_signatures() -> None:
    assert list(inspect.signature(gradient).parameters) == ["w", "scale"]
    assert list(inspect.signature(MODEL.slope).parameters) == ["w"]
    assert list(inspect.signature(Model.slope).parameters) == ["self", "w"]
    assert list(inspect.signature(functools.partial(pb.jit(raw), W)).parameters) == ["scale"]
    assert list(inspect.signature(pb.jit(functools.partial(raw, W))).parameters) == ["scale"]
    assert list(inspect.signature(pb.grad(MODEL.plain)).parameters) == ["w"]


class Descriptors:
    k = 2.0

    @staticmethod
    @pb.grad
    def static(w: float) -> float:
        return w**3

    @pb.grad
    @staticmethod
    def static_inside(w: float) -> float:
        return w**3

    @classmethod
    @pb.grad
    def of_class(cls, w: float) -> float:
        return cls.k * w**3

    @pb.grad
    @classmethod
    def of_class_inside(cls, w: float) -> float:
        return cls.k * w**3

    @functools.cached_property
    def cached(self) -> Any:
        return pb.grad(lambda w: self.k * w)

    @property
    @pb.jit
    def doubled(self) -> float:
        return self.k * 2.0

    @functools.partialmethod
    @pb.grad
    def fixed(self, w: float) -> float:
        return self.k * w**3


@pytest.mark.parametrize(
    "name, expected", [("static", 12.0), ("static_inside", 12.0), ("of_class", 24.0), ("of_class_inside", 24.0)]
)
def test_static_and_class_methods(name: str, expected: float) -> None:
    assert getattr(Descriptors, name)(2.0) == expected
    assert getattr(Descriptors(), name)(2.0) == expected


def test_a_class_method_bound_by_python_alone() -> None:
    """The method is bound as Python 3.13 binds it."""
    bound = types.MethodType(vars(Descriptors)["of_class"].__func__, Descriptors)
    assert [bound(2.0), bound(2.0)] == [24.0, 24.0]
    assert pb.jit(lambda w: bound(w))(2.0) == 24.0


def test_properties() -> None:
    assert Descriptors().cached(1.0) == 2.0
    assert Descriptors().doubled == 4.0
    assert Descriptors().fixed(2.0) == 24.0


def test_abstract_methods() -> None:
    class Base(abc.ABC):
        @abc.abstractmethod
        @pb.jit
        def outside(self, w: Array) -> Any: ...

        @pb.jit
        @abc.abstractmethod
        def inside(self, w: Array) -> Any: ...

    assert Base.__abstractmethods__ == {"outside", "inside"}

    class Concrete(Base):
        @pb.jit
        def outside(self, w: Array) -> Any:
            return np.sum(w)

        @pb.grad
        def inside(self, w: Array) -> Any:
            return np.sum(w)

    assert Concrete().outside(W) == 1.5 and Concrete().inside(W).tolist() == [1.0, 1.0, 1.0]


def test_single_dispatch() -> None:
    @functools.singledispatch
    def area(x: Any) -> Any:
        raise TypeError

    area.register(np.ndarray)(pb.jit(lambda x: np.sum(x)))
    area.register(float)(pb.grad(lambda x: x * x))
    assert (area(W), area(3.0)) == (1.5, 6.0)
    assert isinstance(types.MethodType(pb.jit(raw), W)(), np.float64)
