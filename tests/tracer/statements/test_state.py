"""Lists, dicts and objects of fixed structure that branches and loops change: values, aliases, gradients, refusals."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback as pb


def rolled(function: Callable[..., Any]) -> Callable[..., Any]:
    return pb.jit(function, loops="roll")


def counted(x: Any) -> Any:
    counts = {"up": 0, "down": 0.0}
    for i in range(1, len(x)):
        if x[i] > x[i - 1]:
            counts["up"] += 1
        else:
            counts["down"] += x[i - 1] - x[i]
    return counts["up"] + counts["down"] * 2


def lists_of_state(x: Any) -> Any:
    state = [0.0, x[0]]
    seen = state
    k = 0
    while k < len(x) and state[0] < 20.0:
        state[0], state[1] = state[1] + 0.5 * x[k], state[0]
        k += 1
    return seen[0] * state[1] + k


class Tank:
    def __init__(self, level: Any) -> None:
        self.level, self.spilled, self.log = level, 0.0, {"high": 0}

    def step(self, inflow: Any) -> Any:
        self.level += inflow
        if self.level > 2.0:
            self.spilled += self.level - 2.0
            self.level = 2.0
            self.log["high"] += 1
        return 0.5 * self.level


def objects(x: Any) -> Any:
    upper, lower = Tank(1.0), Tank(0.5)
    tanks = [upper, lower]
    for value in x:
        lower.step(upper.step(abs(value)))
    return sum(t.spilled * (1 + t.log["high"]) for t in tanks) + upper.level


@dataclass
class Particle:
    position: Any
    velocity: Any

    def move(self, dt: float) -> None:
        self.position = self.position + dt * self.velocity
        if np.sum(self.position) < 0:
            self.velocity = -self.velocity


def particles(x: Any) -> Any:
    some = [Particle(x, -x * x), Particle(2 * x, np.ones(len(x)))]
    time = 0.0
    while time < 1.0:
        for p in some:
            p.move(0.125)
        time += 0.125
    return np.sum(some[0].position * some[1].velocity)


def namespace(x: Any) -> Any:
    s = SimpleNamespace(total=0.0, best=x[0], inner=SimpleNamespace(n=0))
    for value in x:
        s.total += value * value
        if value > s.best:
            s.best = value
            s.inner.n += 1
    return s.total * s.best + s.inner.n


def nested(x: Any) -> Any:
    tree = {"a": [0.0, [x[0], 1.0]], "b": (0, [x[1]])}
    for k in range(3):
        if x[k] > 0:
            tree["a"][1][0] *= x[k]
        else:
            tree["a"][0] -= x[k]
        tree["b"][1][0] += tree["a"][0]
    return tree["a"][1][0] + tree["b"][1][0]


def returned_object(x: Any) -> Any:
    state = {"n": 0, "x": x[0]}

    def update(s: Any, v: Any) -> Any:
        if v > 0:
            s["n"] += 1
            s["x"] += v
            return s
        s["x"] -= 0.5 * v
        return s

    for value in x:
        again = update(state, value)
        again["x"] *= 1.25
    return state["x"] * state["n"]


def arrays_in_lists(x: Any) -> Any:
    rows = [np.zeros(len(x)), x.copy()]
    first = rows[0]
    for k in range(40):
        if x[k % 3] > 0:
            rows[1] = rows[1] * 0.5 + x
        rows[0][k % 3] += rows[1][k % 3]
    return np.sum(first * rows[1])


def long_loop(x: Any) -> Any:
    s = {"v": np.zeros(len(x)), "n": 0}
    for _ in range(3000):
        s["v"] = 0.5 * s["v"] + np.sin(x)
        s["n"] = s["n"] + 1 if s["v"][0] > 0 else 0
    return np.sum(s["v"]) + s["n"]


def left(x: Any) -> Any:
    s = [0.0, 0]
    for value in x:
        s[1] += 1
        if value < 0:
            break
        s[0] += value * value
    else:
        s[0] = -s[0]
    return s[0] + s[1]


def early(x: Any) -> Any:
    s = {"total": 0.0}
    for value in x:
        s["total"] += value
        if s["total"] > 1.6:
            return s["total"] * 3
    return s["total"]


def stored_in_object(x: Any) -> Any:
    box = SimpleNamespace(items=[x[0], x[1]])
    for value in x:
        if value > 0:
            box.items = [box.items[1], value]
        else:
            box.items = [value * 2, box.items[0]]
    return box.items[0] - box.items[1]


def kinds_of_dicts(x: Any) -> Any:
    a: Any = defaultdict(float)
    b = OrderedDict(u=0.0, v=1.0)
    for value in x:
        a["k"] += value
        if value > 0:
            b["u"] = b["u"] + value
            b["v"] = b.get("u", 0.0) * b.get("w", 2.0)
        if "u" in b and "w" not in b:
            a["k"] *= 0.5
    return a["k"] + b["u"] * b["v"] + sum([v * k for k, v in zip((1, 2), b.values())])


PROGRAMS = [
    counted, lists_of_state, objects, particles, namespace, nested, returned_object, arrays_in_lists, long_loop, left, early,
    stored_in_object, kinds_of_dicts,
]  # fmt: skip
RNG = np.random.default_rng(0)
INPUTS = [np.array([0.5, 1.25, -0.75]), np.array([1.5, 0.25, 2.0]), np.array([-0.5, -1.25, -2.0])]


@pytest.mark.parametrize("function", PROGRAMS)
def test_values_and_derivatives(function: Callable[..., Any]) -> None:
    compiled = rolled(function)
    slope = pb.grad(compiled)
    for x in INPUTS:
        given = x.copy()
        np.testing.assert_allclose(compiled(given), function(x.copy()), rtol=1e-12)
        np.testing.assert_array_equal(given, x)
        step = 1e-6 * RNG.standard_normal(3)
        difference = function(x + step) - function(x - step)
        np.testing.assert_allclose(2 * np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-11)
        second = pb.grad(lambda x, w=step: np.sum(slope(x) * w))(x)
        np.testing.assert_allclose(second * 2e-2, 1e4 * (_dot(slope, x, step)), rtol=1e-4, atol=1e-9)


def _dot(slope: Callable[..., Any], x: Any, step: Any) -> Any:
    rows = []
    for k in range(len(x)):
        e = np.zeros(len(x))
        e[k] = 1e-6
        rows.append(np.sum((slope(x + e) - slope(x - e)) * step))
    return np.array(rows)


def aliases_of_both(x: Any) -> Any:
    a, b = [x, 1.0], [2.0, x]
    c = a if x > 0 else b
    a[0] = 5.0
    return c[0]


def alias_in_loop(x: Any) -> Any:
    d = {"a": x}
    best = {"a": 0.0}
    for _ in range(50):
        d["a"] = d["a"] + 1
        if d["a"] > 3:
            best = d
    return best["a"]


def alias_after_loop(x: Any) -> Any:
    d = {"a": x}
    best = {"a": 0.0}
    while x < 3:
        best = d
        x = x + 1
    d["a"] = 7.0
    return best["a"]


def two_names(x: Any) -> Any:
    a = b = [0.0]
    if x > 0:
        a = [x]
        b = a
    a[0] = 3.0
    return b[0]


def swapped(x: Any) -> Any:
    a, b = [x, 0.0], [1.0, x]
    while a[0] < 8:
        a[0] = a[0] + b[0]
        a, b = b, a
    return a[0] + b[1]


def new_key(x: Any) -> Any:
    d = {}
    if x > 0:
        d["a"] = x
    return d.get("a", 0.0)


def bound_append(x: Any) -> Any:
    out: list[Any] = []
    add = out.append
    if x > 0:
        add(1)
    return len(out)


@pytest.mark.parametrize(
    "function", [aliases_of_both, alias_in_loop, alias_after_loop, two_names, swapped, new_key, bound_append]
)
def test_what_would_lose_an_alias_is_right_or_refused(function: Callable[..., Any]) -> None:
    compiled = rolled(function)
    for x in (1.5, -0.5, 4.0):
        try:
            got = compiled(x)
        except pb.TraceError:
            continue
        assert got == function(x)


class Counter:
    def __init__(self) -> None:
        self.calls = 0

    def add(self, x: Any) -> Any:
        if x > 0:
            self.calls += 1
        return x


def test_objects_from_outside_are_changed_once() -> None:
    counter = Counter()
    add = pb.jit(counter.add, guards=True)
    assert [add(x) for x in (1.0, -1.0, 2.0)] == [1.0, -1.0, 2.0]
    assert counter.calls == 2


def test_dicts_from_outside_are_changed_once() -> None:
    state = {"n": 1.0}

    def change(d: Any, x: Any) -> Any:
        if x > 0:
            d["n"] = x
        return d["n"]

    outside = pb.jit(lambda x: change(state, x), guards=True)
    assert [outside(x) for x in (2.0, -1.0)] == [2.0, 2.0]
    assert state == {"n": 2.0}
    assert rolled(change)(state, 3.0) == 3.0
    assert state == {"n": 3.0}


def test_whether_a_list_is_the_other_one() -> None:
    """Values decide it after a branch: the outcome is followed, or the test is refused."""

    def same(x: Any) -> Any:
        a, b = [x], [0.5]
        if x > 0:
            a = b
        return a is b, a, b

    def lengthened(x: Any) -> Any:
        a, b = [x], [0.5]
        for k in range(20):
            if x > k:
                a = b
            else:
                b = [x]
        return a is b, a is not b, len(a)

    for f in (same, lengthened):
        followed = pb.jit(f, guards=True)
        for x in (1.0, -1.0, 7.5):
            assert followed(x) == f(x)
        with pytest.raises(pb.TraceError, match="are one, which values decide"):
            pb.jit(f, guards=False)(1.0)


def test_state_that_is_returned_is_one_object() -> None:
    @rolled
    def both(x: Any) -> Any:
        state = [x, 0.0]
        names = {"first": state, "second": state}
        if x > 1:
            state[1] = x * 2
        names["first"][0] += 1
        return names["second"], state

    assert both(2.0) == ([3.0, 4.0], [3.0, 4.0])
    assert both(0.5) == ([1.5, 0.0], [1.5, 0.0])


def returned_by_the_first_iteration(p: Any, n: Any) -> Any:
    table = {0: p, 1: 0.5}
    for _ in range(n):
        return p, table
    return None


def returned_beside_others(p: Any, n: Any) -> Any:
    table, level = {0: p, "a": [p]}, Tank(p)
    while n > 0:
        n -= 1
        if p > 1.0:
            return p, [table, level.level]
        p += 0.25
    return "none", table


@pytest.mark.parametrize("function", [returned_by_the_first_iteration, returned_beside_others])
def test_containers_in_what_a_loop_may_return_are_containers(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for count in (0, 1, 4):
        assert compiled(0.5, np.int64(count)) == function(0.5, count)
