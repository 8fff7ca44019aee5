"""A compiled function is used as a Python function is: by inspect, typing, functools, copy, doctest, as a method of any kind; on
both call paths."""

import copy
import doctest
import functools
import gc
import inspect
import os
import pickle
import pydoc
import subprocess
import sys
import time
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.fastcall import describe as fastcall_describe


def scaled(x: np.ndarray, y: float = 2.0, *, z: int = 1) -> np.ndarray:
    """A product.

    >>> float(compiled(1.0))
    2.0
    """
    return x * y * z


def tripled(x: np.ndarray) -> Any:
    return x * 3


compiled = pb.jit(scaled)


@pytest.fixture(autouse=True)
def warmed() -> None:
    """The calls that follow are native, where they can be."""
    for _ in range(3):
        compiled(1.0)
        while fastcall_describe.is_underway():
            time.sleep(0.01)


def test_attributes() -> None:
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__code__", "__defaults__", "__kwdefaults__"):
        assert getattr(compiled, name) is getattr(scaled, name)
    assert compiled.__globals__ is scaled.__globals__ and compiled.__wrapped__ is scaled
    assert compiled.__annotations__ == scaled.__annotations__
    compiled.note = 5
    assert compiled.note == 5
    del compiled.note
    assert not hasattr(compiled, "note") and not hasattr(pb.jit(functools.partial(scaled, 1.0)), "__code__")


def test_inspect_and_typing() -> None:
    assert inspect.signature(compiled) == inspect.signature(scaled)
    assert inspect.getfullargspec(compiled) == inspect.getfullargspec(scaled)
    assert inspect.unwrap(compiled) is scaled and inspect.isroutine(compiled)
    assert inspect.getsource(compiled) == inspect.getsource(scaled)
    assert inspect.getdoc(compiled) == inspect.getdoc(scaled) and "A product." in pydoc.render_doc(compiled)
    assert typing.get_type_hints(compiled) == typing.get_type_hints(scaled)
    gradient = pb.grad(scaled)
    assert list(inspect.signature(gradient).parameters) == ["x", "y", "z"] and "return" not in typing.get_type_hints(gradient)


def test_functools() -> None:
    partial = functools.partial(compiled, y=3.0)
    assert partial(1.0) == 3.0 and inspect.signature(partial) == inspect.signature(functools.partial(scaled, y=3.0))
    generic = functools.singledispatch(compiled)
    generic.register(str, lambda s: "text")
    assert generic(2.0) == 4.0 and generic("a") == "text" and generic.__name__ == "scaled"
    other = functools.singledispatch(lambda x: "other")
    other.register(pb.jit(tripled))
    assert same(other(np.ones(2)), [3, 3]) and other(1) == "other"
    assert functools.lru_cache(compiled)(2.0) == 4.0
    wrapped = functools.wraps(compiled)(lambda *args: compiled(*args))
    assert wrapped(1.0) == 2.0 and inspect.signature(wrapped) == inspect.signature(scaled)
    assert list(map(compiled, [1.0, 2.0])) == [2.0, 4.0]


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b))


def test_copies_and_references() -> None:
    assert copy.copy(compiled) is compiled and copy.deepcopy(compiled) is compiled
    assert pickle.loads(pickle.dumps(compiled)) == compiled
    assert weakref.ref(compiled)() is compiled and weakref.proxy(compiled)(1.0) == 2.0
    assert {compiled: 1}[pb.jit(scaled)] == 1


def test_doctests_are_found() -> None:
    (actual,) = doctest.DocTestFinder().find(compiled, "compiled", globs={"compiled": compiled})
    result = doctest.DocTestRunner(verbose=False).run(actual)
    assert (result.failed, result.attempted) == (0, 1)


class Model:
    def __init__(self, k: float) -> None:
        self.k = k

    @pb.jit
    def scale(self, x: Any) -> Any:
        """By k."""
        return x * self.k

    @classmethod
    @pb.jit
    def of_class(cls, x: Any) -> Any:
        return x * 3

    @pb.jit
    @classmethod
    def also_of_class(cls, x: Any) -> Any:
        return x * 3

    @staticmethod
    @pb.jit
    def static(x: Any) -> Any:
        return x * 4

    @property
    @pb.jit
    def read(self) -> Any:
        return np.ones(2) * self.k

    @functools.cached_property
    @pb.jit
    def read_once(self) -> Any:
        return np.ones(2) * self.k

    @pb.jit
    def __call__(self, x: Any) -> Any:
        return x + self.k

    @pb.jit
    def __add__(self, x: Any) -> Any:
        return x - self.k

    partly = functools.partialmethod(scale, x=2.0)

    @pb.value_and_grad
    def loss(self, x: Any) -> Any:
        return np.sum(x**2) * self.k


class Compiled(Model):
    @pb.jit
    def scale(self, x: Any) -> Any:
        return super().scale(x) + 1


class Plain(Model):
    def scale(self, x: Any) -> Any:  # type: ignore[override]
        return super().scale(x) + 1


class Slotted:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 2.0

    @pb.jit
    def scale(self, x: Any) -> Any:
        return x * self.k


class Meta(type):
    @pb.jit
    def double(cls, x: Any) -> Any:
        return x * 2


class Made(metaclass=Meta):
    pass


METHODS: dict[str, tuple[Callable[[Model], Any], Any]] = {
    "method": (lambda m: m.scale(1.0), 2.0),
    "by keyword": (lambda m: m.scale(x=1.0), 2.0),
    "of the class": (lambda m: Model.scale(m, 1.0), 2.0),
    "held": (lambda m: list(map(m.scale, [1.0, 2.0]))[1], 4.0),
    "class method": (lambda m: m.of_class(1.0) + Model.of_class(1.0), 6.0),
    "class method inside": (lambda m: m.also_of_class(1.0) + Model.also_of_class(1.0), 6.0),
    "static method": (lambda m: m.static(1.0) + Model.static(1.0), 8.0),
    "property": (lambda m: m.read, [2.0, 2.0]),
    "cached property": (lambda m: m.read_once, [2.0, 2.0]),
    "call": (lambda m: m(1.0), 3.0),
    "operator": (lambda m: m + 1.0, -1.0),
    "partial method": (lambda m: m.partly(), 4.0),
    "gradient": (lambda m: m.loss(np.ones(2))[1], [4.0, 4.0]),
    "super": (lambda m: Compiled(m.k).scale(1.0) + Plain(m.k).scale(1.0), 6.0),
    "slots": (lambda m: Slotted().scale(1.0), 2.0),
    "metaclass": (lambda m: Made.double(1.0), 2.0),
    "bound by hand": (lambda m: types.MethodType(Model.scale, m)(1.0), 2.0),
    "by get": (lambda m: Model.__dict__["scale"].__get__(m, Model)(1.0), 2.0),
    "weak": (lambda m: weakref.WeakMethod(m.scale)()(1.0), 2.0),
    "into": (lambda m: m.scale.into(np.zeros(2), np.ones(2)), [2.0, 2.0]),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_all_kinds(name: str) -> None:
    call, expected = METHODS[name]
    model = Model(2.0)
    for _ in range(6):
        assert same(call(model), expected)


def test_bound_methods() -> None:
    model = Model(2.0)
    method = model.scale
    assert method == model.scale and hash(method) == hash(model.scale) and method != Model(2.0).scale
    assert method.__self__ is model and method.__func__.__wrapped__ is Model.scale.__wrapped__
    assert (method.__name__, method.__doc__, inspect.getdoc(method)) == ("scale", "By k.", "By k.")
    assert str(inspect.signature(method)) == "(x: Any) -> Any" and inspect.getsource(method) == inspect.getsource(Model.scale)
    assert "scale" in str(method.explain(1.0)) and "explain" in dir(method)
    assert pickle.loads(pickle.dumps(method)).__self__.k == 2.0
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        method()
    method.__func__ = Model(1.0).static
    del method.__self__
    with pytest.raises(AttributeError):
        method(1.0)


def test_methods_hold_nothing_too_long() -> None:
    model = Model(2.0)
    for _ in range(4):
        model.scale(1.0)
    gc.collect()
    before = sys.getrefcount(model), sys.getrefcount(Model.scale), sys.getrefcount(type(model.scale))
    for _ in range(500):
        model.scale(1.0)
        model.scale  # noqa: B018
    after = sys.getrefcount(model), sys.getrefcount(Model.scale), sys.getrefcount(type(model.scale))
    assert all(abs(a - b) <= 2 for a, b in zip(after, before))
    cycle = model.me = model.scale  # type: ignore[attr-defined]
    gone = weakref.ref(model)
    del model, cycle
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("path", ["plain", "native"])
def test_the_other_path(path: str) -> None:
    if os.environ.get("PULLBACK_CALL_PATH"):
        return
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env={**os.environ, "PULLBACK_CALL_PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
