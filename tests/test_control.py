"""Control flow: what branches and loops give beside what plain Python gives, and the errors of those that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from tracing import run

import pullback as pb

XS = np.array([0.5, -1.0, 2.0, 0.25, 3.0])
W = np.array([[1.0, 0.5, -0.25], [0.0, 2.0, 1.0], [0.125, -1.0, 0.5]])
SCALE = 1.5


class Pair(NamedTuple):
    h: Any
    n: Any


@dataclass
class State:
    a: Any
    b: Any


# Plain Python for each function of control flow. Rows are stacked as NumPy stacks them.


def stacked(rows: list[Any]) -> Any:
    return pb.tree.map(lambda *parts: np.stack(parts), *rows)


class Plain:
    def cond(self, pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
        return (true_fun if pred else false_fun)(*operands)

    def switch(self, index: Any, branches: Any, *operands: Any) -> Any:
        return branches[min(max(int(index), 0), len(branches) - 1)](*operands)

    def while_loop(self, cond_fun: Any, body_fun: Any, value: Any) -> Any:
        while cond_fun(value):
            value = body_fun(value)
        return value

    def fori_loop(self, lower: Any, upper: Any, body_fun: Any, value: Any) -> Any:
        for i in range(lower, upper):
            value = body_fun(i, value)
        return value

    def scan(self, f: Any, carry: Any, xs: Any = None, length: Any = None, reverse: bool = False) -> Any:
        size = length if xs is None else len(pb.tree.leaves(xs)[0])
        rows: list[Any] = [None] * size
        for k in reversed(range(size)) if reverse else range(size):
            carry, rows[k] = f(carry, pb.tree.map(lambda a, k=k: a[k], xs))
        return carry, None if rows[0] is None else stacked(rows)

    def map(self, f: Any, xs: Any) -> Any:
        size = len(pb.tree.leaves(xs)[0])
        return stacked([f(pb.tree.map(lambda a, k=k: a[k], xs)) for k in range(size)])

    def associative_scan(self, fn: Any, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
        def row(k: int) -> Any:
            return pb.tree.map(lambda a: np.take(a, [k], axis), elems)

        size = np.shape(pb.tree.leaves(elems)[0])[axis]
        order = list(range(size))[:: -1 if reverse else 1]
        found = [row(order[0])]
        for k in order[1:]:
            found.append(fn(found[-1], row(k)))
        return pb.tree.map(lambda *parts: np.concatenate(parts, axis), *found[:: -1 if reverse else 1])


# Programs of one argument ``c``, the functions of control flow, and further arguments.


def in_place(c: Any, xs: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        a[i] = a[i - 1] + xs[i]
        a *= 0.5
        return a

    return c.fori_loop(1, len(xs), body, np.zeros(len(xs))), xs


def written_copies(c: Any, xs: Any) -> Any:
    def body(i: Any, pair: Any) -> Any:
        a, b = pair
        a += 1.0
        return a, b + a

    return c.fori_loop(0, 3, body, (xs.copy(), xs.copy())), xs


def views_in_a_body(c: Any, w: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        row = a[i]
        row += w[i]
        a[:, 0] *= 2.0
        return a

    return c.fori_loop(0, 3, body, np.ones((3, 3)))


def nested(c: Any, w: Any, xs: Any) -> Any:
    def outer(h: Any, x: Any) -> Any:
        inner = c.fori_loop(0, 3, lambda i, a: np.tanh(w[i] @ a + x) * a, h)
        return inner, np.sum(inner * w[0])

    return c.scan(outer, np.ones(3), xs)


def branches_in_a_loop(c: Any, xs: Any) -> Any:
    def body(total: Any, x: Any) -> Any:
        new = c.cond(x > 0, lambda t: t + np.sqrt(abs(x)), lambda t: t * 0.5, total)
        return new, c.switch(np.int64(2 * x), [lambda: x, lambda: x * x, lambda: SCALE * x])

    return c.scan(body, 0.0, xs)


def collatz(c: Any, n: Any) -> Any:
    def body(s: Any) -> Any:
        n, steps = s
        return c.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1

    return c.while_loop(lambda s: s[0] != 1, body, (n, 0))[1]


def lists_of_numbers(c: Any, x: Any) -> Any:
    return c.fori_loop(0, 4, lambda i, s: [s[0] + x, s[1] + s[0], s[2] + 1], [0.0, 0, 0])


def trees(c: Any, xs: Any) -> Any:
    def body(state: Any, x: Any) -> Any:
        made = {"pair": Pair(state["pair"].h * x["a"], state["pair"].n + 1), "s": State(x["b"], state["s"].a)}
        return made, (made["pair"].h, {"y": made["s"].a})

    init = {"pair": Pair(1.0, 0), "s": State(np.zeros(2), np.zeros(2))}
    return c.scan(body, init, {"a": xs, "b": np.stack([xs, -xs], axis=1)})


def newton(c: Any, a: Any) -> Any:
    return c.while_loop(lambda s: abs(s[0] ** 2 - a) > 1e-12, lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1), (a, 0))


def matrix_powers(c: Any, w: Any) -> Any:
    return c.associative_scan(lambda a, b: b @ a, np.stack([w, w.T, w + 1, w - 1, w]))


def recurrence(c: Any, xs: Any) -> Any:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return c.associative_scan(combine, (np.cos(xs), xs), reverse=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cond, true": (lambda c, x: c.cond(x > 0, lambda x: x + 1, lambda x: x * 0.5, x), (2.0,)),
    "cond, false": (lambda c, x: c.cond(x > 0, lambda x: x + 1, lambda x: x * 0.5, x), (-2.0,)),
    "cond of a number": (lambda c, n, x: c.cond(n, lambda: x, lambda: -x), (np.int32(3), XS)),
    "cond of arrays": (lambda c, xs: c.cond(np.sum(xs) > 0, np.sort, lambda x: x[::-1], xs), (XS,)),
    "cond of trees": (
        lambda c, p, xs: c.cond(
            p, lambda s: {"y": s[0], "z": (1.0, s[1])}, lambda s: {"y": s[1], "z": (2.0, s[0])}, (xs, 2 * xs)
        ),
        (np.bool_(False), XS),
    ),
    "cond, known": (lambda c, x: c.cond(len(x) > 3, lambda: x[3], lambda: x[0]), (XS,)),
    "switch": (lambda c, k, x: c.switch(k, [np.sin, np.cos, np.tanh], x), (np.int64(1), 0.5)),
    "switch below": (lambda c, k, x: c.switch(k, [np.sin, np.cos, np.tanh], x), (np.int8(-5), 0.5)),
    "switch above": (lambda c, k, x: c.switch(k, [np.sin, np.cos, np.tanh], x), (np.int64(7), 0.5)),
    "switch of one": (lambda c, k, x: c.switch(k, [np.sin], x), (np.int64(7), 0.5)),
    "switch, known": (lambda c, x: c.switch(-1, [np.sin, np.cos], x), (XS,)),
    "while": (newton, (2.0,)),
    "while, never": (lambda c, xs: c.while_loop(lambda x: np.all(x > 5), lambda x: x + 1, xs), (XS,)),
    "while, integers": (collatz, (np.int64(27),)),
    "for": (lambda c, xs: c.fori_loop(0, 5, lambda i, t: t + i * xs[i], 0.0), (XS,)),
    "for, from": (lambda c, xs: c.fori_loop(2, 5, lambda i, t: t * xs[i] - i, xs), (XS,)),
    "for, of an argument": (lambda c, n, x: c.fori_loop(0, n, lambda i, t: np.cos(t) + i, x), (6, 0.3)),
    "for, between arguments": (lambda c, a, b: c.fori_loop(a, b, lambda i, t: t + i, np.int64(0)), (np.int32(-3), np.int64(5))),
    "for, none": (lambda c, a, b: c.fori_loop(a, b, lambda i, t: t + i, np.float64(7)), (np.int64(3), np.int64(-2))),
    "for, float32": (lambda c, x: c.fori_loop(0, 3, lambda i, t: t + i, x), (np.float32([1, 2]),)),
    "for, in place": (in_place, (XS,)),
    "for, copies": (written_copies, (XS,)),
    "for, views": (views_in_a_body, (W,)),
    "for, numbers": (lists_of_numbers, (1.5,)),
    "scan": (lambda c, xs: c.scan(lambda t, x: (t + x, t * x), 0.0, xs), (XS,)),
    "scan, reverse": (lambda c, xs: c.scan(lambda t, x: (t + x, t * x), 0.0, xs, reverse=True), (XS,)),
    "scan by length": (lambda c, x: c.scan(lambda t, _: (np.sin(t), t), x, length=4), (0.7,)),
    "scan, no y": (lambda c, w, x: c.scan(lambda h, row: (np.tanh(w @ h + row), None), x, w), (W, W[0])),
    "scan of trees": (trees, (XS,)),
    "scan of columns": (lambda c, w: c.scan(lambda h, col: (h + col, h @ col), np.zeros(3), w.T), (W,)),
    "scan of a slice": (lambda c, xs: c.scan(lambda t, x: (t + x, x), np.int8(0), xs), (np.arange(5, dtype=np.int8)[::2],)),
    "scan, complex": (lambda c, z: c.scan(lambda t, x: (t * x, t), 1.0, z), (np.array([1j, 2 - 1j]),)),
    "scan, float32": (lambda c, xs: c.scan(lambda t, x: (t + x, x), 0.0, xs), (np.float32([1, 2.5]),)),
    "nested loops": (nested, (W, XS)),
    "branches in a loop": (branches_in_a_loop, (XS,)),
    "map": (lambda c, xs: c.map(lambda x: (x * 2, np.array([x, SCALE])), xs), (XS,)),
    "map of a tree": (lambda c, w: c.map(lambda r: np.sort(r["a"]) * r["b"][0], {"a": w, "b": w.T}), (W,)),
    "associative scan": (lambda c, xs: c.associative_scan(np.add, xs), (XS,)),
    "associative scan, one": (lambda c, xs: c.associative_scan(np.multiply, xs), (XS[:1],)),
    "associative scan, axis": (lambda c, w: c.associative_scan(np.maximum, w, axis=-1), (W,)),
    "associative scan, matrices": (matrix_powers, (W,)),
    "associative scan, pairs": (recurrence, (XS,)),
}


def agrees(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Equal trees of equal types and values."""
    assert pb.tree.structure(found) == pb.tree.structure(expected)
    for x, y in zip(map(np.asarray, pb.tree.leaves(found)), map(np.asarray, pb.tree.leaves(expected)), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_plain_python(name: str) -> None:
    program, args = PROGRAMS[name]
    with np.errstate(all="ignore"):
        expected = program(Plain(), *args)
    agrees(run(lambda *a: program(pb, *a), *args), expected, 1e-14 if name.startswith("associative") else 0.0)
