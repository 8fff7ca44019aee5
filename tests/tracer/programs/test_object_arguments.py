"""Tests of what a call knows of the objects among its arguments: which are one, what is fixed, and the path that calls take."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import FrozenInstanceError, dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import traces


class Point:
    def __init__(self, x: Any, **others: Any) -> None:
        self.x = x
        self.__dict__.update(others)

    def twice(self) -> Any:
        return self.x * 2


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


MODEL = Point(5.0)
CACHE: dict[Any, float] = {}


def test_calls_are_native() -> None:
    cases: list[tuple[Any, Any]] = [
        (lambda p: p.x * p.y, lambda k: (Point(1.5 + k, y=2.0),)),
        (lambda p: p.twice() + p.x, lambda k: (Point(1.5 + k),)),
        (lambda p: p.x * 2.0, lambda k: (Slotted(1.5 + k),)),
        (lambda p, q: p.x * q.x, lambda k: (Point(1.5 + k), Point(2.0))),
        (lambda p: p.inner.x * p.inner.inner.x, lambda k: (Point(0.0, inner=Point(1.5 + k, inner=Point(2.0))),)),
        (lambda ps, t: ps[0].x * ps[1].x + t["p"][0].x, lambda k: ([Point(1.5 + k), Point(2.0)], {"p": (Point(3.0),)})),
        (lambda p: np.sum(p.x) + len(p.name), lambda k: (Point(np.arange(3.0) + k, name="n"),)),
    ]
    for function, make in cases:
        compiled = pb.jit(function)
        before = traces()
        for k in range(8):
            assert compiled(*make(k)) == function(*make(k))
        assert compiled.explain(*make(0)).path == "native"
        assert traces() == before + 1
    gradient = pb.grad(lambda p: p.twice() * np.sin(p.y))
    for k in range(8):
        result = gradient(Point(1.5 + k, y=2.0))
        assert vars(result) == {"x": 2 * np.sin(2.0), "y": pytest.approx((3.0 + 2 * k) * np.cos(2.0))}
    assert gradient.explain(Point(1.5, y=2.0)).path == "native"


def test_warm_calls_check_what_they_read() -> None:
    compiled = pb.jit(lambda p: p.twice() * p.inner.x)
    plain: Any = lambda p: p.twice() * p.inner.x  # noqa: E731
    for k in range(8):
        compiled(Point(1.5 + k, inner=Point(2.0)))

    class Other(Point):
        def twice(self) -> Any:
            return self.x * 3

    shadowed = Point(1.5, inner=Point(2.0))
    shadowed.twice = lambda: 7.0  # type: ignore[method-assign]
    for p in (
        Other(1.5, inner=Point(2.0)), Point(1.5, inner=Other(2.0)), Point(1.5, inner=Slotted(2.5)), shadowed,
        Point(2, inner=Point(True)), Point(np.ones(2), inner=Point(2.0)), Point(1.5, inner=Point(2.0)),
    ):  # fmt: skip
        np.testing.assert_array_equal(compiled(p), plain(p))
        assert type(compiled(p)) is type(plain(p))
    with pytest.raises(AttributeError):
        compiled(Point(1.5))
    twice = Point.twice
    try:
        Point.twice = lambda self: self.x * 5  # type: ignore[method-assign]
        assert compiled(Point(1.5, inner=Point(2.0))) == 15.0
    finally:
        Point.twice = twice  # type: ignore[method-assign]
    assert compiled(Point(1.5, inner=Point(2.0))) == 6.0


def test_which_objects_are_one() -> None:
    def changed(p: Any, q: Any) -> Any:
        p.x = p.x + 1.0
        return q.x, p is q, p is MODEL, p == q

    compiled = pb.jit(changed)
    for _ in range(3):
        for make in (
            lambda: (Point(1.0), Point(2.0)), lambda: (Point(1.0),) * 2, lambda: (MODEL, Point(2.0)), lambda: (Point(1.0), MODEL),
            lambda: (MODEL, MODEL),
        ):  # fmt: skip
            results = []
            for function in (changed, compiled):
                MODEL.x = 5.0
                results.append((function(*make()), MODEL.x))
            assert results[0] == results[1]
    MODEL.x = 5.0


def test_arrays_of_objects_that_are_one() -> None:
    def written(p: Any, q: Any) -> Any:
        p.x[0] = 7.0
        return q.x.sum()

    compiled, w = pb.jit(written), np.ones(3)
    assert compiled(Point(np.ones(3)), Point(np.ones(3))) == 3.0
    p = Point(np.ones(3))
    assert compiled(p, p) == 9.0
    assert compiled(Point(w), Point(w)) == 9.0 and w[0] == 7.0
    assert compiled(Point(np.ones(3)), Point(np.ones(3))) == 3.0


def test_objects_as_keys_are_fixed() -> None:
    compiled = pb.jit(lambda p, x: CACHE[p] * x)
    points = [Point(float(k)) for k in range(3)]
    CACHE.update((p, 10.0 + k) for k, p in enumerate(points))
    for _ in range(3):
        assert [compiled(p, 2.0) for p in points] == [20.0, 22.0, 24.0]


def test_large_ints() -> None:
    compiled = pb.jit(lambda p, x: p.x * x)
    for _ in range(3):
        for value in (3, 2**70, -(2**63), 2**63, 5):
            for _ in range(4):
                assert compiled(Point(value), 2.0) == value * 2.0


def test_many_kinds_of_objects_are_known_by_identity() -> None:
    def made(k: int) -> Any:
        return Point(float(k), f=lambda x: x * k)

    compiled = pb.jit(lambda p, x: p.f(x) + p.x)
    points = [made(k) for k in range(80)]
    before = traces()
    for _ in range(3):
        assert [compiled(p, 2.0) for p in points] == [3.0 * k for k in range(80)]
    assert traces() == before + 80
    dead = weakref.ref(points[-1])
    count = len(compiled._entries.by_key)
    points.clear()
    gc.collect()
    assert dead() is None and len(compiled._entries.by_key) < count


def test_programs_keep_no_objects() -> None:
    for kind in (Point, Slotted):
        compiled = pb.jit(lambda p: p.x.twice if hasattr(p, "none") else np.sum(p.x))
        x = np.ones(3)
        dead = weakref.ref(x)
        p = kind(x)
        for _ in range(6):
            assert compiled(p) == 3.0
        del x, p
        gc.collect()
        assert dead() is None
        assert compiled(kind(np.full(3, 2.0))) == 6.0


def test_results_are_the_callers_objects() -> None:
    class Builder:
        def __init__(self) -> None:
            self.total = 0.0

        @pb.jit
        def add(self, x: float) -> Builder:
            self.total += x
            self.last = Point(x)
            return self

    for k in range(3):
        builder = Builder()
        assert builder.add(1.5 + k).add(2.0) is builder
        assert builder.total == 3.5 + k and type(builder.last) is Point and builder.last.x == 2.0

    @pb.jit
    def both(p: Any, x: float) -> Any:
        made = Point(p.x * x)
        p.made = made
        return made, made, [p]

    for k in range(3):
        p = Point(1.0 + k)
        first, second, (third,) = both(p, 2.0)
        assert first is second is p.made and third is p and first.x == 2.0 + 2 * k


def test_what_is_stored_to_several_places() -> None:
    def stored(p: Any, x: float) -> Any:
        made = Point(x * 2, items=[x])
        items = [x, x * 3]
        p.a = items
        p.first = p.second = made
        p.b, p.c = items, x * 4
        made.other = x
        return x * 5, [items]

    compiled = pb.jit(stored)
    for x in (1.5, 2.5):
        plain, ours = Point(0.0), Point(0.0)
        first, second = stored(plain, x), compiled(ours, x)
        assert first == second and second[1][0] is ours.a is ours.b and ours.first is ours.second
        assert vars(ours.first) == vars(plain.first) and ours.a == plain.a and ours.c == plain.c


def test_a_call_that_raises_stores_nothing() -> None:
    @pb.jit
    def step(p: Any, x: float) -> float:
        p.x = p.x + x
        if p.x > 3.0:
            raise ValueError(f"{p.x} is too much")
        p.steps += 1
        return p.x

    p = Point(1.0, steps=0)
    assert step(p, 1.5) == 2.5
    with pytest.raises(ValueError, match=r"4\.0 is too much"):
        step(p, 1.5)
    assert vars(p) == {"x": 2.5, "steps": 1}


def test_threads_have_objects_of_their_own() -> None:
    @pb.jit
    def step(p: Any, x: float) -> float:
        p.x = p.x + x
        p.steps += 1
        return p.x

    points = [Point(float(k), steps=0) for k in range(4)]

    def run(p: Any) -> None:
        for _ in range(100):
            step(p, 1.0)

    workers = [threading.Thread(target=run, args=(p,)) for p in points]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [(p.x, p.steps) for p in points] == [(100.0 + k, 100) for k in range(4)]


def test_calls_inside_of_calls() -> None:
    area = pb.jit(lambda p: p.x * p.x)

    def outside(value: Any) -> Any:
        return np.float64(area(Point(float(value) + 1.0)))

    @pb.jit
    def outer(p: Any, q: Any) -> Any:
        value = pb.callback(outside, np.float64(0.0), p.x)
        q.x = value
        return value * p.y

    for k in range(6):
        p, q = Point(1.0 + k, y=3.0), Point(0.0)
        assert outer(p, q) == (2.0 + k) ** 2 * 3.0 and q.x == (2.0 + k) ** 2


def test_gradients_of_shared_and_of_cyclic_objects() -> None:
    inner = Point(2.0)
    gradient = pb.grad(lambda p: p.a.x ** 2 * p.b.x)(Point(1.0, a=inner, b=inner))
    assert gradient.a.x == gradient.b.x == 12.0 and gradient.x == 0.0
    ring = Point(1.5)
    ring.next = ring
    assert pb.jit(lambda p: p.next.next.x * p.x)(ring) == 2.25
    with pytest.raises(pb.TraceError, match=r"argument p.next is an object that is in itself"):
        pb.grad(lambda p: p.x)(ring)
    with pytest.raises(pb.TraceError, match=r"argument p.n is a Python int: only floats"):
        pb.grad(lambda p: p.x)(Point(1.5, n=2))
    assert vars(pb.grad(lambda p: p.x * 2)(Point(1.5, name="n", f=len, none=None))) == {
        "x": 2.0, "name": "n", "f": len, "none": None
    }  # fmt: skip


def test_gradients_store_once() -> None:
    def loss(p: Any, x: float) -> Any:
        p.calls += 1.0
        p.last = p.x * x
        p.seen.append(p.last)
        return p.last**2 + p.seen[0]

    def appending(p: Any, x: float) -> Any:
        p.seen.append(p.x * x)
        p.table["new"] = x
        return p.seen[-1] * p.seen[0]

    for first in (1.0, 2.0):
        p = Point(2.0, seen=[first], table={"old": 0.5})
        gradient = pb.grad(appending)(p, 3.0)
        assert vars(gradient) == {"x": 3.0 * first, "seen": [6.0], "table": {"old": 0.0}}
        assert vars(p) == {"x": 2.0, "seen": [first, 6.0], "table": {"old": 0.5, "new": 3.0}}
    p = Point(2.0, calls=0.0, seen=[1.0])
    gradient = pb.grad(loss)(p, 3.0)
    assert gradient.x == 36.0 and gradient.calls == 0.0 and gradient.seen == [1.0]
    assert vars(p) == {"x": 2.0, "calls": 1.0, "last": 6.0, "seen": [1.0, 6.0]}
    assert type(p.last) is float


def test_gradients_store_objects_that_the_function_made() -> None:
    def loss(p: Any, x: float) -> Any:
        p.made = made = Point(p.x * x, items=[p.x])
        made.inner = Point(x)
        made.inner.x = made.inner.x + p.x
        return made.x * made.inner.x + made.items[0]

    for x in (1.5, 2.5):
        plain, ours = Point(2.0), Point(2.0)
        loss(plain, x)
        value, gradient = pb.value_and_grad(loss)(ours, x)
        assert np.isclose(gradient.x, x * (x + 2.0) + 2.0 * x + 1) and np.isclose(value, 2.0 * x * (x + 2.0) + 2.0)
        assert vars(ours.made.inner) == vars(plain.made.inner) and ours.made.items == [2.0] and ours.made.x == 2.0 * x


def test_what_a_class_computes_is_differentiated() -> None:
    class Unit:
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return instance.x * 3.0

    class Computed(Point):
        scaled = Unit()

        def __getattr__(self, name: str) -> Any:
            if name == "square":
                return self.x**2
            raise AttributeError(name)

    gradient = pb.grad(lambda p: p.scaled * p.square + sum(vars(p).values()))
    for x in (1.5, 2.5):
        assert np.isclose(gradient(Computed(x)).x, 9 * x**2 + 1)

    def second(p: Any) -> Any:
        return pb.grad(lambda p: p.scaled * p.square)(p).x

    assert np.isclose(pb.grad(second)(Computed(1.5)).x, 27.0)


def made_in_place(p: Any, t: float) -> Any:
    p.inner = Point(p.x, items=[t])
    if p.x > t:
        p.inner.x = t
        p.inner.items.append(p.x)
    return p.inner.x * 2 + len(p.inner.items)


def made_in_loop(p: Any, t: float) -> Any:
    p.inner = made = Point(p.x)
    for k in range(30):
        if p.x * k > t:
            p.inner.x = p.inner.x + t
    return made.x * 2


def change_held(p: Any, t: float) -> Any:
    if p.x > t:
        p.body.position = t
        p.items.append(p.x)
        p.table["k"] = p.x * 2
    else:
        p.items[0] = t
    return p.x * p.items[-1] * p.table["k"] + p.body.position * p.x


@pytest.mark.parametrize("function", [made_in_place, made_in_loop, change_held])
def test_branches_change_what_objects_hold(function: Any) -> None:
    def make(x: float) -> Any:
        return Point(x, body=Body(3.0, 1.0, 0.5), items=[1.0], table={"k": 1.0})  # type: ignore[arg-type]

    compiled, gradient = pb.jit(function), pb.grad(function)
    for x in (0.55, 1.55, 0.55, 2.55):
        plain, ours, third = make(x), make(x), make(x)
        assert np.isclose(compiled(ours, 1.0), function(plain, 1.0))
        slope = (function(make(x + 1e-6), 1.0) - function(make(x - 1e-6), 1.0)) / 2e-6
        assert np.isclose(gradient(third, 1.0).x, slope, rtol=1e-5)
        for p in (ours, third):
            assert (p.items, p.table, p.body) == (plain.items, plain.table, plain.body)
            if hasattr(plain, "inner"):
                inner = {**vars(plain.inner)}
                assert vars(p.inner) == pytest.approx(inner) if "items" not in inner else vars(p.inner) == inner


def test_gradients_of_objects_that_the_function_made() -> None:
    @pb.jit
    def step(x: float, y: float) -> Any:
        p = Point(x, inner=Point(y), name="n", items=[x, 2.0])
        gradient = pb.grad(lambda p: p.twice() * p.inner.x + p.items[0] ** 2)(p)
        return p.x - 0.5 * gradient.x, gradient.inner.x, gradient.items, gradient.name, gradient

    for x in (1.5, 2.5):
        first, second, items, name, gradient = step(x, 3.0)
        assert (first, second, items, name) == (x - 3.0, 2 * x, [2 * x, 0.0], "n")
        assert type(gradient) is Point and gradient.inner.x == 2 * x

    def nested(x: float) -> Any:
        return pb.grad(lambda p: p.x**3 * p.inner.x)(Point(x, inner=Point(x * 2))).x

    assert np.isclose(pb.grad(nested)(1.5), 18 * 1.5**2)


def test_rows_take_objects_whole() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    for k in (1.0, 2.0):
        p = Point(np.arange(3.0) * k)
        np.testing.assert_allclose(pb.vmap(lambda p, x: np.sum(p.x * x), in_axes=(None, 0))(p, rows), rows @ p.x)
        gradients = pb.vmap(pb.grad(lambda p, x: np.sum(p.x * x) ** 2), in_axes=(None, 0))(p, rows)
        np.testing.assert_allclose(gradients.x, 2 * (rows @ p.x)[:, None] * rows)


@dataclass
class Body:
    position: Any
    velocity: Any = 1.0
    hits: int = 0


def advance(b: Any, dt: float) -> Any:
    b.position = b.position + b.velocity * dt
    b.hits += 1
    b.extra = [b.position]
    return b.position


def test_stores_to_dataclasses() -> None:
    def swapped(b: Any, dt: float) -> Any:
        b.position, b.velocity = b.velocity, b.position * dt
        del b.hits
        return b, [b]

    def inside(bodies: Any, dt: float) -> Any:
        for b in bodies:
            b.velocity = b.velocity * dt
        return bodies[0].velocity

    def one(a: Any, b: Any) -> Any:
        a.position = 7.0
        return b.position, a is b

    def loop(b: Any, n: int) -> Any:
        for _ in range(n):
            b.position = b.position + b.velocity * 0.125
            b.velocity = b.velocity - b.position * 0.125
        return b.position

    shared = Body(1.5)
    cases: list[tuple[Any, Any]] = [
        (advance, lambda: (Body(1.5), 0.25)), (advance, lambda: (Body(np.ones(2)), 0.25)), (swapped, lambda: (Body(1.5), 0.25)),
        (inside, lambda: ([Body(1.5), Body(2.5)], 0.25)), (one, lambda: (Body(1.0), Body(2.0))), (one, lambda: (shared, shared)),
        (loop, lambda: (Body(1.5), 3)), (loop, lambda: (Body(1.5), 400)),
    ]  # fmt: skip
    compiled = {function: pb.jit(function) for function, _ in cases}
    for _ in range(2):
        for function, make in cases:
            plain, ours = make(), make()
            expected, result = function(*plain), compiled[function](*ours)
            assert repr(result) == repr(expected)
            bodies = [(x, y) for x, y in zip(plain, ours) if isinstance(x, Body)]
            bodies += list(zip(plain[0], ours[0])) if isinstance(plain[0], list) else []
            for x, y in bodies:
                assert repr(vars(x)) == repr(vars(y))
    b = Body(1.5)
    gradient = pb.grad(lambda b, dt: advance(b, dt) ** 2)(Body(1.5, 2.0, 0.0), 0.25)  # type: ignore[arg-type]
    assert gradient == Body(4.0, 1.0, 0.0)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        pb.jit(lambda b, x: (setattr(b, "hits", 5), 1.0 / x))(b, 0.0)
    assert b == Body(1.5)


def test_attributes_of_made_dataclasses_that_are_no_fields() -> None:
    def made(p: Any, x: float) -> Any:
        p.body = body = Body(x, hits=3)
        body.extra = [x]
        other = Body(x * 2)
        other.extra = x
        return other, Body(x * 3)

    compiled = pb.jit(made)
    for x in (1.5, 2.5):
        plain, ours = Point(0.0), Point(0.0)
        for first, second in zip((*made(plain, x), plain.body), (*compiled(ours, x), ours.body)):
            assert type(second) is Body and vars(second) == vars(first)
    for first, second in zip(made(plain, 1.5), pb.jit(lambda x: made(Point(0.0), x))(1.5)):
        assert vars(second) == vars(first)


def test_frozen_dataclasses_refuse_stores() -> None:
    @dataclass(frozen=True)
    class Frozen:
        x: float

    with pytest.raises((FrozenInstanceError, pb.TraceError)):
        pb.jit(lambda p: setattr(p, "x", 2.0))(Frozen(1.5))


@pb.jit
def counted(x: float) -> float:
    counted.calls += 1
    counted.history.append(x)
    counted.last = x
    return x * counted.calls


@pb.jit
def choosing(x: float) -> float:
    total = 0.0
    while total < x:
        total += 1.0
    return total if x > 0 else -x


def test_attributes_of_compiled_functions() -> None:
    counted.calls, counted.history = 0, []
    before = traces()
    for k in range(1, 6):
        assert counted(1.5 * k) == 1.5 * k * k
        assert (counted.calls, counted.last, len(counted.history)) == (k, 1.5 * k, k)
        assert type(counted.calls) is int and type(counted.last) is float
    assert counted.history == [1.5 * k for k in range(1, 6)]
    assert traces() - before <= 4
    assert pb.jit(lambda x: counted(x) + counted.calls)(2.0) == 12.0 + 6 and counted.calls == 6
    assert pb.grad(counted)(2.0) == 7.0 and counted.calls == 7

    @pb.jit
    def first(x: float) -> float:
        first.value = x
        return x

    assert first(2.0) == 2.0 and first.value == 2.0
    with pytest.raises(pb.TraceError, match=r"return a scalar"):
        pb.grad(lambda x: first(x) * np.ones(2))(3.0)
    assert first.value == 2.0


def test_the_function_in_a_compiled_one_is_followed() -> None:
    compiled = pb.jit(lambda x: choosing.__wrapped__(x) + 1.0)
    for x in (2.5, -1.5, 0.0):
        assert compiled(x) == choosing.__wrapped__(x) + 1.0
    assert pb.grad(lambda x: choosing.__wrapped__(x))(-2.0) == -1.0
    assert not hasattr(choosing.__wrapped__, "_wrapped")


class Recorder:
    def __init__(self) -> None:
        self.history: list[Any] = []

    def average(self, x: float) -> float:
        self.history.append(0.9 * (self.history[-1] if self.history else 0.0) + 0.1 * x)
        return self.history[-1]

    def every_third(self, x: float) -> float:
        self.history.append(x)
        return x * 2 if len(self.history) % 3 == 0 else x * len(self.history)

    def difference(self, x: float) -> float:
        self.history.append(x)
        return x - self.history[0] + (self.history[-2] if len(self.history) > 1 else 0.0)

    def doubled(self, x: float) -> float:
        self.history += [x, x * 2]
        return self.history[-3] if len(self.history) > 2 else -1.0

    def arrays(self, x: float) -> Any:
        self.history.append(np.arange(3.0) * x)
        return self.history[-1] @ self.history[0]

    def several(self, x: float) -> float:
        for _ in range(4):
            self.history.append((self.history[-1] if self.history else 1.0) * x)
        return self.history[-1]


@pytest.mark.parametrize("name", [name for name in vars(Recorder) if not name.startswith("_")])
def test_last_elements_and_lengths_are_inputs(name: str) -> None:
    function = vars(Recorder)[name]
    plain, ours = Recorder(), Recorder()
    compiled, before = pb.jit(function), traces()
    for k in range(12):
        x = 0.5 + 0.25 * k
        expected, result = function(plain, x), compiled(ours, x)
        assert type(result) is type(expected) and result == pytest.approx(expected, rel=1e-14)
        assert len(ours.history) == len(plain.history)
        assert all(type(a) is type(b) and np.allclose(a, b, rtol=1e-14) for a, b in zip(ours.history, plain.history))
    assert traces() - before <= 2


def test_elements_of_other_types_are_traced_anew() -> None:
    compiled = pb.jit(Recorder.average)
    for first in (1, 2.5, True, np.float64(0.5), np.float32(0.5), 2**70, None):
        plain, ours = Recorder(), Recorder()
        for recorder in (plain, ours):
            recorder.history.append(first)
        if first is None:
            with pytest.raises(TypeError):
                compiled(ours, 1.0)
            assert ours.history == [None]
            continue
        expected, result = plain.average(1.0), compiled(ours, 1.0)
        assert type(result) is type(expected) and np.isclose(result, expected) and ours.history[0] is first
