"""What is compiled belongs to the function: found again by its identity, gone when it is gone, and in bounded memory."""

from __future__ import annotations

import functools
import gc
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs.pipeline import RECENT_TEMPLATES, Template, templates
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.process import counters
from tests.support.api import Array, traces

X = np.linspace(0.1, 1.0, 12).reshape(4, 3)
W = np.array([0.5, -1.0, 2.0])


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def loss(self, w: Array) -> Any:
        return self.scale * np.sum(w * w)

    @classmethod
    def plain(cls, w: Array) -> Any:
        return np.sum(w * w)


class Loss:
    def __call__(self, w: Array) -> Any:
        return np.sum(w * w)


def square(w: Array) -> Any:
    return np.sum(w * w)


def closure(data: Array) -> Callable[[Array], Any]:
    return lambda w: np.sum((data @ w) ** 2)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector: what goes has to go by itself."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


MODEL = Model(2.0)
TRANSFORMS: dict[str, Callable[[], Any]] = {
    "grad": lambda: pb.grad(square),
    "value_and_grad": lambda: pb.value_and_grad(square),
    "jit": lambda: pb.jit(square),
    "argnums": lambda: pb.grad(square, argnums=(0,)),
    "argnames": lambda: pb.grad(square, argnames="w"),
    "jit of grad": lambda: pb.jit(pb.grad(square)),
    "grad of grad": lambda: pb.grad(lambda_of_grad),
    "static": lambda: pb.jit(square, static_argnames=()),
    "method": lambda: pb.grad(MODEL.loss),
    "jit of method's grad": lambda: pb.jit(pb.grad(MODEL.loss)),
    "classmethod": lambda: pb.grad(Model.plain),
    "partial": lambda: pb.grad(PARTIAL),
    "object": lambda: pb.grad(LOSS),
    "ufunc": lambda: pb.jit(np.sin),
    "NumPy's": lambda: pb.grad(np.sum),
}
PARTIAL = functools.partial(Model.loss, MODEL)
LOSS = Loss()


def lambda_of_grad(w: Array) -> Any:
    return np.sum(pb.grad(square)(w))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_written_in_a_loop_is_traced_once(name: str) -> None:
    expected = TRANSFORMS[name]()(W)
    before = traces()
    for _ in range(5):
        np.testing.assert_equal(TRANSFORMS[name]()(W), expected)
    assert traces() == before


def test_nested_transforms_in_a_loop_are_traced_once() -> None:
    def cube(x: float) -> float:
        return x**3

    assert [pb.grad(pb.grad(cube))(2.0) for _ in range(4)] == [12.0] * 4
    before = traces()
    assert pb.jit(pb.grad(pb.grad(cube)))(2.0) == pb.jit(pb.grad(pb.grad(cube)))(2.0) == 12.0
    assert traces() == before + 1


def test_options_make_programs_of_their_own() -> None:
    def product(x: float, y: float) -> float:
        return x * y * y

    assert pb.grad(product)(2.0, 3.0) == 9.0
    assert pb.grad(product, argnums=1)(2.0, 3.0) == 12.0
    assert pb.grad(product, argnums=(0, 1))(2.0, 3.0) == (9.0, 12.0)
    assert pb.value_and_grad(product)(2.0, 3.0) == (18.0, 9.0)


def test_equal_methods_of_other_objects_are_others() -> None:
    assert [pb.grad(Model(k).loss)(W)[0] for k in (1.0, 3.0)] == [1.0, 3.0]


def test_a_wrapper_does_not_take_what_belongs_to_what_it_wraps() -> None:
    def inner(x: float) -> float:
        return x * x

    assert pb.grad(inner)(3.0) == 6.0

    @functools.wraps(inner)
    def outer(x: float) -> float:
        return 10.0 * inner(x)

    assert pb.grad(outer)(3.0) == 60.0
    assert pb.grad(inner)(3.0) == 6.0


def test_attributes_of_a_function_are_the_users() -> None:
    def tagged(x: float) -> float:
        return tagged.scale * x  # type: ignore[attr-defined,no-any-return]

    tagged.scale = 2.0  # type: ignore[attr-defined]
    compiled = pb.jit(tagged)
    assert compiled(3.0) == 6.0
    before = traces()
    pb.grad(tagged)
    assert compiled(3.0) == 6.0 and traces() == before
    assert "__pullback__" not in vars(compiled)
    tagged.scale = 4.0  # type: ignore[attr-defined]
    assert compiled(3.0) == 12.0


def test_a_closure_and_its_array_go_at_once() -> None:
    with uncollected():
        data = X.copy()
        function = closure(data)
        for _ in range(2):
            pb.grad(function)(W)
            pb.jit(pb.value_and_grad(function))(W)
        array_died, function_died = weakref.ref(data), weakref.ref(function)
        del data, function
        assert (array_died(), function_died()) == (None, None)


def test_a_transformed_closure_keeps_its_array() -> None:
    gradient = pb.grad(closure(X.copy()))
    np.testing.assert_allclose(gradient(W), 2 * X.T @ (X @ W))
    gc.collect()
    np.testing.assert_allclose(gradient(W), 2 * X.T @ (X @ W))


class Trained:
    def __init__(self, data: Array) -> None:
        self.data = data
        self.names = {"k": [2.0, data]}

    @pb.grad
    def loss(self, w: Array) -> Any:
        return np.sum((self.data @ w) ** 2) * self.names["k"][0]  # type: ignore[operator]

    def plain(self, w: Array) -> Any:
        return np.sum((self.data @ w) ** 2) if not hasattr(self, "absent") else 0.0


@pb.jit
def applied(function: Callable[[Array], Any], w: Array, n: int = 2) -> Any:
    return sum(function(w) for _ in range(n))


OBJECTS: dict[str, tuple[Callable[[Array], Any], Callable[[Any], Any]]] = {
    "method": (Trained, lambda model: model.loss(W)),
    "transformed method": (Trained, lambda model: pb.jit(pb.value_and_grad(model.plain))(W)),
    "argument": (Trained, lambda model: applied(model.plain, W)),
    "callable": (closure, lambda function: applied(function, W)),
    "static int": (closure, lambda function: applied(function, W, 3)),
    "partial": (lambda data: functools.partial(lambda d, w: d @ w, data), lambda function: applied(function, W)),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_programs_do_not_keep_objects_alive(name: str) -> None:
    make, call = OBJECTS[name]
    expected = call(make(X))
    with uncollected():
        held = make(X + 1.0)
        call(held)
        data = X.copy()
        value = make(data)
        np.testing.assert_equal(call(value), expected)
        before = traces()
        np.testing.assert_equal(call(value), expected)
        assert traces() == before
        died = weakref.ref(data), weakref.ref(value)
        del data, value
        assert [reference() is None for reference in died] == [True, True]
        before = traces()
        call(held)
        assert traces() == before


def test_programs_of_dead_objects_are_gone() -> None:
    for k in range(5):
        applied(closure(X + k), W)
    count = len(applied._entries.by_key)  # type: ignore[attr-defined]
    function = closure(X)
    applied(function, W)
    assert len(applied._entries.by_key) == count + 1  # type: ignore[attr-defined]
    del function
    assert len(applied._entries.by_key) == count  # type: ignore[attr-defined]


def test_an_array_met_by_name_goes_when_it_is_bound_anew() -> None:
    names: dict[str, Any] = {"np": np, "data": X.copy()}
    exec("def loss(w):\n    return np.sum((data @ w) ** 2)\n", names)
    pb.grad(names["loss"])(W)
    died = weakref.ref(names["data"])
    with uncollected():
        names["data"] = 2 * X
        assert died() is None
    np.testing.assert_allclose(pb.grad(names["loss"])(W), 8 * X.T @ (X @ W))


def test_programs_die_with_their_function() -> None:
    engine = default_engine()

    def make(k: int) -> Callable[[Array], Any]:
        names: dict[str, Any] = {"np": np}
        exec(f"def loss(x):\n    return np.sum({' + '.join(['np.sin(x)'] * (k + 1))} * x[{k}])\n", names)
        return names["loss"]  # type: ignore[no-any-return]

    functions = [make(k) for k in range(12)]
    for function in functions:
        pb.jit(function)(np.ones(20))
    held = len(templates), engine.loaded()
    recent = templates.forget()
    assert recent and len(templates) <= held[0]
    kept = len(templates), engine.loaded()
    del function, functions
    gc.collect()
    assert len(templates) <= kept[0] - 12
    assert engine.loaded() <= kept[1] - 12


def test_templates_used_last_are_few() -> None:
    templates.forget()
    gc.collect()
    before = len(templates)
    for k in range(RECENT_TEMPLATES // 8 * 9):
        template = templates.get_or_build(str(k).encode(), lambda: Template(executable=None, passed_through=()))  # type: ignore
    del template
    assert len(templates) == before + RECENT_TEMPLATES
    templates.forget()
    assert len(templates) == before


def test_machine_code_is_unloaded_and_loaded_again() -> None:
    engine = default_engine()
    text = "define i32 @gone() {\n  ret i32 5\n}"
    before = engine.loaded()
    kernel = engine.kernel(text, symbols=["gone"])
    assert engine.kernel(text, symbols=["gone"]) is kernel and engine.loaded() == before + 1
    del kernel
    assert engine.loaded() == before
    start = counters.snapshot()
    for _ in range(300):
        engine.kernel(text, symbols=["gone"])
    assert (counters.snapshot() - start).compiles == 0
    assert engine.loaded() == before


def fresh_lambdas(count: int) -> None:
    for i in range(count):
        assert pb.grad(lambda x: x * x + i)(3.0) == 6.0  # noqa: B023


def fresh_closures(count: int) -> None:
    for i in range(count):
        pb.grad(closure(X + i))(W)


def fresh_partials(count: int) -> None:
    for _ in range(count):
        pb.grad(functools.partial(Model.loss, MODEL))(W)


CELL = """
def cell_loss(w):
    return np.sum((data @ w) ** 2) + np.exp(offset)

value, slope = pb.value_and_grad(cell_loss)(W)
"""


def rerun_cells(count: int) -> None:
    code = compile(CELL, "<ipython-input-3-0123456789ab>", "exec")
    names: dict[str, Any] = {"np": np, "pb": pb, "data": X, "W": W, "offset": 0.0}
    for i in range(count):
        names["offset"] = float(i % 7)
        exec(code, names)
        assert abs(names["value"] - np.sum((X @ W) ** 2) - np.exp(i % 7)) < 1e-9


def fresh_models(count: int) -> None:
    for i in range(count):
        Trained(X + i).loss(W)


def fresh_arguments(count: int) -> None:
    for i in range(count):
        applied(closure(X + i), W)


FRESH = {
    "models": fresh_models,
    "arguments": fresh_arguments,
    "lambdas": fresh_lambdas,
    "closures": fresh_closures,
    "partials": fresh_partials,
    "cells": rerun_cells,
}


def growth(run: Callable[[int], None], count: int) -> tuple[float, float, counters.Counters]:
    """Objects and bytes that each of ``count`` repetitions leaves behind, and what they compiled, after the first few.

    The least of three parts, as Python's own tables (interned strings, weak sets) grow by leaps.
    """
    parts = []
    run(20)
    gc.collect()
    tracemalloc.start(1)
    try:
        run(20)
        start = counters.snapshot()
        for _ in range(3):
            gc.collect()
            objects, size = len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
            run(count // 3)
            gc.collect()
            parts.append((len(gc.get_objects()) - objects, tracemalloc.get_traced_memory()[0] - size))
    finally:
        tracemalloc.stop()
    least_objects, least_size = (min(part[k] for part in parts) / (count // 3) for k in range(2))
    return least_objects, least_size, counters.snapshot() - start


@pytest.mark.parametrize("name", FRESH)
def test_fresh_equal_code_compiles_nothing_and_leaves_nothing(name: str) -> None:
    objects, size, taken = growth(FRESH[name], 90)
    assert (taken.compiles, taken.disk_hits, taken.runs.get("compile", 0)) == (0, 0, 0)
    assert objects < 0.5 and size < 500


@pytest.mark.long
@pytest.mark.parametrize(
    "name, count",
    [("lambdas", 10_000), ("closures", 10_000), ("models", 2_000), ("arguments", 2_000), ("partials", 2_000), ("cells", 1_000)],
)
def test_many_fresh_equal_functions(name: str, count: int) -> None:
    objects, size, taken = growth(FRESH[name], count)
    assert (taken.compiles, taken.runs.get("compile", 0)) == (0, 0)
    assert objects < 0.05 and size < 100
