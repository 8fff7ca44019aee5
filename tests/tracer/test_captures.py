"""What a traced function reads from outside: inputs, guards, twins, and what is refused."""

import functools
import math
from typing import Any

import numpy as np
import pytest

from pullback.tracer import Captured, Constant, parameters_of, signature, trace
from tests.support.tracing import X, check, evaluate, refuses, run, same

SCALE = 1.7
COUNT = 3
ONES = np.ones(3).tobytes()
WEIGHTS = np.array([1.0, 2.0, 3.0])
TABLE = {"a": [np.ones(3), 1.25], "n": 2}


def helper(x: Any) -> Any:
    return x * WEIGHTS + SCALE


def test_globals_are_inputs_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return [helper(x) * k for k in range(COUNT)] + [(lambda: x * TABLE["a"][0] * TABLE["a"][1] ** TABLE["n"])()]

    traced = trace(function, (X,))
    captured = sorted(i.describe for i in traced.inputs if isinstance(i, Captured))
    assert captured == ["SCALE", "TABLE['a'][0]", "TABLE['a'][1]", "WEIGHTS"]
    same(evaluate(traced, [X]), function(X))
    monkeypatch.setitem(globals(), "SCALE", 2.25)
    monkeypatch.setitem(globals(), "WEIGHTS", np.array([5.0, 6.0, 7.0]))
    monkeypatch.setitem(TABLE, "a", [X, 0.5])
    same(evaluate(traced, [X]), function(X))
    monkeypatch.setitem(globals(), "WEIGHTS", WEIGHTS.astype("f4"))
    assert traced.arguments([X]) is None


@pytest.mark.parametrize(
    "name, value",
    [("COUNT", 4), ("COUNT", 3.0), ("helper", lambda x: x), ("TABLE", {"a": [X], "n": 2}), ("np", math), ("SCALE", 2)],
)
def test_guards_notice_what_changed(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    traced = trace(lambda x: [helper(x) * k for k in range(COUNT)] + [np.sin(TABLE["a"][0])], (X,))
    assert traced.holds()
    monkeypatch.setitem(globals(), name, value)
    assert not traced.holds() or traced.arguments([X]) is None


def test_a_static_container_is_guarded_by_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(lambda x: x * TABLE["n"], (X,))
    monkeypatch.setitem(TABLE, "n", 3)
    assert not traced.holds()


def test_a_captured_scalar_used_statically_becomes_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        return x + 1 if SCALE * 2 > 3 and int(SCALE) == 1 else x - 1

    traced = trace(function, (X,))
    same(evaluate(traced, [X]), X + 1)
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    assert not traced.holds()
    same(run(function, X), X - 1)


def test_closures() -> None:
    bias, steps = np.array([1.0, 1.0, 0.5]), 2

    def inner(x: Any, depth: int = 0) -> Any:
        return x if depth == steps else inner(x * 2 + bias, depth + 1)

    traced = trace(inner, (X,))
    same(evaluate(traced, [X]), inner(X))
    bias[0] = 7.0
    same(evaluate(traced, [X]), inner(X))
    assert traced.holds()
    steps = 3
    assert not traced.holds()


def test_one_array_by_two_names_is_one_input() -> None:
    a = b = np.ones(3)
    traced = trace(lambda x: x * a + b, (X,))
    assert len(traced.inputs) == 2
    assert traced.holds()
    b = np.zeros(3)
    assert not traced.holds()


def test_twins_make_arrays_of_the_trace() -> None:
    def function(x: Any) -> Any:
        import numpy as local

        out = local.zeros(3)
        out[1] = x[0]
        return out, np.array([x[0], 2.0, x[1]]), np.full(2, x[2]), np.sum([x[0], x[1]]), np.asarray(x)

    check(function, X)


class Model:
    def __init__(self) -> None:
        self.weight = np.ones(3)
        self.power = 1.5
        self.layers = [np.full(3, 2.0)]

    def __call__(self, x: Any) -> Any:
        return self.forward(x) * len(self.layers)

    def forward(self, x: Any) -> Any:
        return np.array([x[0], x[1], 1.0]) * self.weight + self.layers[0] ** self.power

    @property
    def doubled(self) -> Any:
        return self.weight * 2


MODEL = Model()


@pytest.mark.parametrize(
    "function", [MODEL.forward, MODEL, lambda x: MODEL(x) + MODEL.doubled], ids=["method", "object", "global"]
)
def test_objects_are_read_through(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = trace(function, (X,))
    same(evaluate(traced, [X]), function(X))
    monkeypatch.setattr(MODEL, "weight", np.array([3.0, 4.0, 5.0]))
    monkeypatch.setattr(MODEL, "power", 0.75)
    same(evaluate(traced, [X]), function(X))
    monkeypatch.setattr(MODEL, "layers", [X, X])
    assert not traced.holds()


def test_an_object_as_argument_is_known_by_its_class() -> None:
    def function(model: Model, x: Any) -> Any:
        assert isinstance(model, Model)
        return model.forward(x)

    parameters = parameters_of(function)
    assert signature(parameters, (MODEL, X), {}).key == signature(parameters, (MODEL, X), {}).key
    assert signature(parameters, (MODEL, X), {}).key == signature(parameters, (Model(), X), {}).key
    same(run(function, MODEL, X), function(MODEL, X))


def test_arrays_met_by_protocol_are_constants() -> None:
    traced = trace(functools.partial(np.add, np.ones(3)), (X,))
    assert [type(i).__name__ for i in traced.inputs] == ["Argument", "Captured"]
    traced = trace(lambda x: x * np.frombuffer(ONES), (X,))
    constants = [i for i in traced.inputs if isinstance(i, Constant)]
    assert len(constants) == 1
    same(evaluate(traced, [X]), X)


def test_unread_captures_are_no_inputs() -> None:
    unread = np.ones(3)
    assert len(trace(lambda x: x if unread is not None else unread, (X,)).inputs) == 1


def store_global(x: Any) -> Any:
    global STORED
    STORED = x  # here
    return x + STORED


def test_a_trace_stores_nothing() -> None:
    count, items = 0, list[Any]()

    def storing(x: Any) -> Any:
        nonlocal count
        count = count + 1
        items.append(x)
        MODEL.weight = x
        return store_global(x)

    weight = MODEL.weight
    changes = ("items", "count", "<Model>.weight", "STORED")
    assert sorted(trace(storing, (X,)).changes) == sorted(changes)
    assert (count, items, "STORED" in globals()) == (0, [], False)
    assert MODEL.weight is weight


def test_random_draws_are_refused() -> None:
    rng = np.random.default_rng(0)

    def drawing(x: Any) -> Any:
        return x + rng.normal(size=3)  # here

    refuses(drawing, X, message="a random draw")

    def drawing_globally(x: Any) -> Any:
        return x + np.random.rand(3)  # here

    refuses(drawing_globally, X, message="a random draw")


def test_functions_of_libraries_come_out_as_they_are() -> None:
    def function(x: Any) -> Any:
        return x, np.sin, np.sort, np.linalg.qr

    _, sin, sort, qr = run(function, X)
    assert (type(sin), sin, sort, qr) == (np.ufunc, np.sin, np.sort, np.linalg.qr)
