"""What a traced function does to what it was given, or draws: refused, at the line that does it."""

import copy
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer import TraceError, trace
from tests.support.tracing import X, refuses

LOG: list[Any] = []


@dataclass
class State:
    w: Any
    n: int = 0


def sets_item(d: Any) -> Any:
    d["w"] = d["w"] * 2  # here
    return d


def sets_number(d: Any) -> Any:
    d["lr"] *= 0.5  # here
    return d["w"] * d["lr"]


def appends_argument(items: Any) -> Any:
    items.append(items[0])  # here
    return items


def pops(d: Any) -> Any:
    return d.pop("w")  # here


def sets_field(state: Any) -> Any:
    state.w = state.w + 1
    state.n = 3  # here
    return state.w


def sets_nested(d: Any) -> Any:
    d["inner"][0] = d["inner"][0] + 1  # here
    return d


@pytest.mark.parametrize(
    "function, argument",
    [
        (sets_item, {"w": X}),
        (sets_number, {"w": X, "lr": 0.5}),
        (appends_argument, [X, X]),
        (pops, {"w": X}),
        (sets_nested, {"inner": [X]}),
    ],
)
def test_containers_of_arguments_are_the_callers(function: Callable[..., Any], argument: Any) -> None:
    """A map refuses what a call does: the caller's containers get what the function leaves in its copies."""
    mine, plain = copy.deepcopy(argument), copy.deepcopy(argument)
    result, expected = pb.jit(function)(mine), function(plain)
    assert (result is mine) == (expected is plain)
    np.testing.assert_equal((result, mine), (expected, plain))
    with pytest.raises(TraceError, match="changes the argument"):
        pb.vmap(function, None, axis_size=3)(argument)


def test_fields_of_arguments_are_the_callers() -> None:
    traced = trace(sets_field, (State(X),))
    assert traced.changes == ("state",)


class Registered:
    def __init__(self, w: Any) -> None:
        self.w = w
        self.n = 0


def test_registered_containers_are_the_callers() -> None:
    pb.tree.register(Registered, lambda r: ([r.w], None), lambda data, children: Registered(children[0]))

    def function(r: Any) -> Any:
        r.w *= 2
        r.n += 1  # here
        return r.w

    refuses(function, Registered(X.copy()), message="changes the argument r")


def test_copies_may_be_changed() -> None:
    def function(d: Any, items: Any) -> Any:
        d = dict(d)
        d["w"] = d["w"] * 2
        items = [*items, d["w"]]
        items.append(1.0)
        built: list[Any] = []
        for item in items:
            built.append(item)
        d["w"] += 1
        return d, built

    d, built = pb.jit(function)({"w": X.copy()}, [X])
    np.testing.assert_array_equal(d["w"], X * 2 + 1)
    assert len(built) == 3


def test_writes_into_arrays_in_containers_are_no_changes_of_them() -> None:
    def step(params: Any) -> Any:
        params["w"] -= 0.5
        params["all"][0] *= 2
        return params

    params = {"w": X.copy(), "all": [X.copy()]}
    pb.jit(step)(params)
    np.testing.assert_array_equal(params["w"], X - 0.5)
    np.testing.assert_array_equal(params["all"][0], X * 2)


def test_an_effect_that_is_caught_is_refused_all_the_same() -> None:
    def function(x: Any) -> Any:
        try:
            state.n = 1
        except Exception:
            return x
        return x + 1

    state = State(0.0)
    with pytest.raises(TraceError, match=r"stores to <State>\.n"):
        pb.vmap(function)(X)


def test_a_debugger_stays_as_it_is() -> None:
    def tracer(*args: Any) -> Any:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(TraceError, match="changes the argument r"):
            trace(lambda r: setattr(r, "w", 1.0), (Registered(X),))
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_draws_elsewhere_do_not_matter() -> None:
    """A helper of the user's may draw while no draw reaches the trace."""
    np.random.seed(0)
    random.seed(0)
    compiled = pb.jit(lambda x, noise: x + noise)
    result = [compiled(X, np.random.normal()) for _ in range(3)]
    assert len({f[0] for f in result}) == 3


def test_a_long_list_of_arguments_is_unchanged() -> None:
    xs = [np.full(3, float(k)) for k in range(300)]
    np.testing.assert_array_equal(pb.jit(lambda xs: sum(xs))(xs), sum(xs))
