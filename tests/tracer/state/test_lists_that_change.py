"""Lists of numbers from outside whose length, or contents, change from call to call: their elements are arrays that each call
reads, so that a trace serves lists of other lengths."""

from __future__ import annotations

import copy
import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer import trace
from tests.support.api import traces

CALLS = 40
MOST_TRACES = 6
"""Largest number of traces of ``CALLS`` calls: one more wherever a length that doubles does not fit."""


class Model:
    """An object with histories of several kinds."""

    def __init__(self) -> None:
        self.history: list[Any] = [0.5, 0.25]
        self.numbers: list[Any] = [np.float64(0.5)]
        self.counts: list[Any] = [3]
        self.flags: list[Any] = [True]
        self.pairs: list[Any] = [(0, 1.5)]
        self.recent: Any = deque([1.0])
        self.state: list[Any] = [float(k) for k in range(100)]
        self.last: Any = None


def summed(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    return value + sum(m.history)


def averaged(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    return value * np.mean(m.history[-5:])


def smoothed(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    s = m.history[0]
    for h in m.history[1:]:
        s = 0.9 * s + 0.1 * h
    return s * value


def best(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    return min(m.history) * value + max(m.history), len(m.history), sorted(m.history)[0]


def variation(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    return sum(abs(a - b) for a, b in zip(m.history, m.history[1:])) * value


def by_index(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    s = 0.0
    for i in range(1, len(m.history)):
        s += abs(m.history[i] - m.history[i - 1])
    return s * value


def as_array(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    h = np.array(m.history)
    return h.std() * value, h[-1], len(h)


def on_a_plateau(m: Any, value: Any) -> Any:
    if len(m.history) > 5 and value > min(m.history[-5:]):
        value = value * 0.5
    m.history.append(float(value))
    return value


def trimmed(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    if len(m.history) > 20:
        del m.history[:-10]
    return sum(m.history) * value


def cut_in_the_middle(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    if len(m.history) > 12:
        del m.history[2:4]
    return sum(m.history) * value


def assigned_as_a_whole(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    m.history[:] = m.history[-6:]
    return m.history[0] * value, len(m.history)


def rebound(m: Any, value: Any) -> Any:
    m.history = [*m.history, float(value)]
    return sum(m.history) * value


def joined(m: Any, value: Any) -> Any:
    m.history = m.history + [float(value)]
    return sum(m.history * 2) * value


def repeated(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    m.history *= 2
    if len(m.history) > 20:
        del m.history[3:]
    return m.history[-1] * value, len(m.history)


def ordered(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    m.history.sort(reverse=True)
    m.history.insert(1, float(value) / 2)
    m.history.reverse()
    return m.history[1] * value


def popped(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    if len(m.history) > 8:
        m.history.pop(0)
    return m.history[0] * value, 0.25 in m.history


def appended_in_a_loop(m: Any, value: Any) -> Any:
    w = 0
    while value > 1 and w < 6:
        value = value / 2
        w += 1
        m.history.append(float(value))
        if m.history[-2] < 0.3:
            break
    return value * len(m.history)


def of_tuples(m: Any, value: Any) -> Any:
    m.pairs.append((len(m.pairs), float(value)))
    return max(m.pairs, key=lambda pair: pair[1]), sum(b for _, b in m.pairs) * value


def of_numpys_numbers(m: Any, value: Any) -> Any:
    m.numbers.append(value)
    return m.numbers[-1] * np.diff(m.numbers)[-1], m.numbers[0]


def of_ints(m: Any, value: Any) -> Any:
    m.counts.append(int(value * 10) % 7)
    return sum(m.counts) * value, m.counts.count(3)


def of_bools(m: Any, value: Any) -> Any:
    m.flags.append(bool(value > 5))
    return any(m.flags), all(m.flags), sum(m.flags) * value


def in_a_deque(m: Any, value: Any) -> Any:
    m.recent.append(float(value))
    if len(m.recent) > 10:
        m.recent.popleft()
    return sum(m.recent) * value


def a_long_state(m: Any, value: Any) -> Any:
    for i in range(len(m.state)):
        m.state[i] = 0.9 * m.state[i] + float(value)
    return m.state[7] * value


def returned(m: Any, value: Any) -> Any:
    m.history.append(float(value))
    return m.history, [h * 2 for h in m.history]


PROGRAMS = [
    summed, averaged, smoothed, best, variation, by_index, as_array, on_a_plateau, trimmed, cut_in_the_middle,
    assigned_as_a_whole, rebound, joined, repeated, ordered, popped, appended_in_a_loop, of_tuples, of_numpys_numbers, of_ints,
    of_bools, in_a_deque, a_long_state, returned,
]  # fmt: skip


def described(x: Any) -> Any:
    """Return a value by types and contents, numbers to 12 digits."""
    if isinstance(x, list | tuple | deque):
        return type(x).__name__, [*map(described, x)]
    if isinstance(x, float | np.floating):
        return type(x).__name__, float(f"{float(x):.11e}")
    return type(x).__name__, repr(x)


def points() -> list[Any]:
    rng = np.random.default_rng(5)
    return [rng.normal(size=4) for _ in range(CALLS)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_trace_serves_lists_of_other_lengths(program: Callable[..., Any]) -> None:
    mine, plain = Model(), Model()
    compiled = pb.jit(lambda x: program(mine, np.sum(x * x)))
    before, history = traces(), mine.history
    for x in points():
        assert described(compiled(x)) == described(program(plain, np.sum(x * x)))
        assert described([*vars(mine).values()]) == described([*vars(plain).values()])
    assert traces() - before <= MOST_TRACES
    assert (mine.history is history) == (program not in (rebound, joined))


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_of_functions_of_lists_that_change(program: Callable[..., Any]) -> None:
    def loss(m: Any, x: Any) -> Any:
        result = program(m, np.sum(x * x))
        parts = result if isinstance(result, tuple) else (result,)
        return sum(part for part in parts if isinstance(part, float)) + 0.0 * x[0]

    mine, plain, rng = Model(), Model(), np.random.default_rng(3)
    compiled = pb.value_and_grad(lambda x: loss(mine, x))
    before = traces()
    for x in points():
        d, h = rng.normal(size=4), 1e-6
        ahead, behind = (loss(copy.deepcopy(plain), x + s * d) for s in (h, -h))
        value, slope = compiled(x)
        assert math.isclose(value, loss(plain, x), rel_tol=1e-12)
        assert described([*vars(mine).values()]) == described([*vars(plain).values()])
        along = (ahead - behind) / (2 * h)
        assert math.isclose(slope @ d, along, rel_tol=1e-4, abs_tol=1e-4 * max(1.0, abs(value)))
    assert traces() - before <= MOST_TRACES


def test_other_elements_are_read_one_by_one() -> None:
    history: list[Any] = [0.5, 1.5]

    def f(x: Any) -> Any:
        return sum(history) * x

    compiled = pb.jit(f)
    for more in (2.5, 3.0, 4, np.float32(2.0), 1.0, None, 2**70, 5.0, "text"):
        history.append(more)
        if more in (None, "text"):
            with pytest.raises(TypeError):
                compiled(2.0)
            history.pop()
        else:
            result, expected = compiled(2.0), f(2.0)
            assert (type(result), result) == (type(expected), expected)


def test_an_empty_list_and_an_index_out_of_range() -> None:
    history: list[float] = [0.5]

    def f(x: Any) -> Any:
        return history[-1] * x + len(history)

    def g(x: Any) -> Any:
        return max(history) * x

    compiled = pb.jit(f), pb.jit(g)
    for count in (1, 2, 3, 0, 20, 0, 1):
        history[:] = [float(k) for k in range(count)]
        for mine, plain in zip(compiled, (f, g), strict=True):
            if count:
                assert mine(2.0) == plain(2.0)
            else:
                with pytest.raises((IndexError, ValueError)) as raised:
                    mine(2.0)
                with pytest.raises(raised.type) as expected:
                    plain(2.0)
                assert str(raised.value) == str(expected.value)


def test_ints_that_are_extents_stay_static() -> None:
    sizes = [2, 3]

    def f(x: Any) -> Any:
        return [np.zeros(n) + x for n in sizes]

    compiled = pb.jit(f)
    for count in (2, 3, 4, 2):
        sizes[:] = range(1, count + 1)
        assert [part.shape for part in compiled(1.0)] == [(n,) for n in sizes]
    assert not any(type(n) is str for t in trace(f, (1.0,)).function.results for n in t.type.shape)  # type: ignore[union-attr]


def test_a_list_that_is_unpacked_has_its_items_read_one_by_one() -> None:
    items: list[Any] = [1.0, 2.0]

    def f(x: Any) -> Any:
        first, *others = items
        return first * x + len(others)

    compiled = pb.jit(f)
    for count in (2, 3, 4, 7):
        items[:] = [float(k + 1) for k in range(count)]
        assert compiled(2.0) == f(2.0)


def test_a_list_that_a_loop_doubles() -> None:
    items: list[Any] = [0.5, 1.5]

    def f(x: Any, n: Any) -> Any:
        for _ in range(n + 1):
            if x > 0.5:
                items.append(x)
            items[:] = items * 2
        return len(items), sum(items)

    def g(x: Any, n: Any) -> Any:
        nonlocal items
        items *= 2
        for _ in range(n + 1):
            items *= 2
        return len(items), sum(items) * x

    for program in (f, g):
        compiled = pb.jit(program)
        for n in (1, 0, np.int64(1), 2):
            if len(items) > 30:
                items = items[:3]
            before = list(items)
            result, after = compiled(0.75, n), list(items)
            items[:] = before
            assert (result, after) == (program(0.75, n), items)


def test_long_lists_of_constants_are_few_instructions() -> None:
    def f(x: Any, n: int) -> Any:
        out = [0.0] * n
        for i in range(n):
            out[i] = x[i] * 2 + (out[i - 1] if i else 0.0)
        return out

    x = np.arange(2000.0)
    compiled = pb.jit(f, static_argnames="n")
    assert compiled(x, 2000) == f(x, 2000)
    assert len(str(trace(f, (x, 2000), static_argnames="n").function).splitlines()) < 100


class Counted:
    """An object that counts, by names, what branches do, and keeps a history."""

    def __init__(self) -> None:
        self.best, self.kinds, self.named, self.losses = math.inf, Counter[str](), {"first": 0.0}, [9.0]

    def loss(self, w: Any) -> Any:
        loss = np.sum(w * w)
        self.losses.append(float(loss))
        if loss < self.best:
            self.best = float(loss)
            self.kinds["better"] += 1
            self.named["last"] = float(loss)
        else:
            self.kinds["worse"] += 1
        return loss + 0.0 * max(self.losses)


@pytest.mark.parametrize("transform", [lambda f: pb.jit(f, guards=False), pb.value_and_grad])
def test_branches_that_add_keys_of_texts_and_lists_that_change(transform: Callable[..., Any]) -> None:
    mine, plain = Counted(), Counted()
    compiled = transform(mine.loss)
    for k in (3.0, 2.0, 1.0, 4.0, 0.5, 5.0, 5.0, 0.25):
        compiled(np.full(2, k))
        plain.loss(np.full(2, k))
        assert vars(mine) == vars(plain)
        assert [list(mine.kinds), list(mine.named)] == [list(plain.kinds), list(plain.named)]
        assert type(mine.kinds) is Counter
    before = traces()
    for k in range(6):
        compiled(np.full(2, 6.0 - k))
    assert traces() - before <= 1
