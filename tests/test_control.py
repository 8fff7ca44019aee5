"""Control flow: what branches and loops give beside what plain Python gives, and the errors of those that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from tracing import run

import pullback as pb
from pullback.uncompiled import in_python

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


def in_place(xs: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        a[i] = a[i - 1] + xs[i]
        a *= 0.5
        return a

    return pb.fori_loop(1, len(xs), body, np.zeros(len(xs))), xs


def written_copies(xs: Any) -> Any:
    def body(i: Any, pair: Any) -> Any:
        a, b = pair
        a += 1.0
        return a, b + a

    return pb.fori_loop(0, 3, body, (xs.copy(), xs.copy())), xs


def views_in_a_body(w: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        row = a[i]
        row += w[i]
        a[:, 0] *= 2.0
        return a

    return pb.fori_loop(0, 3, body, np.ones((3, 3)))


def nested(w: Any, xs: Any) -> Any:
    def outer(h: Any, x: Any) -> Any:
        inner = pb.fori_loop(0, 3, lambda i, a: np.tanh(w[i] @ a + x) * a, h)
        return inner, np.sum(inner * w[0])

    return pb.scan(outer, np.ones(3), xs)


def branches_in_a_loop(xs: Any) -> Any:
    def body(total: Any, x: Any) -> Any:
        new = pb.cond(x > 0, lambda t: t + np.sqrt(abs(x)), lambda t: t * 0.5, total)
        return new, pb.switch(np.int64(2 * x), [lambda: x, lambda: x * x, lambda: SCALE * x])

    return pb.scan(body, 0.0, xs)


def collatz(n: Any) -> Any:
    def body(s: Any) -> Any:
        n, steps = s
        return pb.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1

    return pb.while_loop(lambda s: s[0] != 1, body, (n, 0))[1]


def lists_of_numbers(x: Any) -> Any:
    return pb.fori_loop(0, 4, lambda i, s: [s[0] + x, s[1] + s[0], s[2] + 1], [0.0, 0, 0])


def trees(xs: Any) -> Any:
    def body(state: Any, x: Any) -> Any:
        made = {"pair": Pair(state["pair"].h * x["a"], state["pair"].n + 1), "s": State(x["b"], state["s"].a)}
        return made, (made["pair"].h, {"y": made["s"].a})

    init = {"pair": Pair(1.0, 0), "s": State(np.zeros(2), np.zeros(2))}
    return pb.scan(body, init, {"a": xs, "b": np.stack([xs, -xs], axis=1)})


def newton(a: Any) -> Any:
    return pb.while_loop(lambda s: abs(s[0] ** 2 - a) > 1e-12, lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1), (a, 0))


def matrix_powers(w: Any) -> Any:
    return pb.associative_scan(lambda a, b: b @ a, np.stack([w, w.T, w + 1, w - 1, w]))


def recurrence(xs: Any) -> Any:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return pb.associative_scan(combine, (np.cos(xs), xs), reverse=True)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cond, true": (lambda x: pb.cond(x > 0, lambda x: x + 1, lambda x: x * 0.5, x), (2.0,)),
    "cond, false": (lambda x: pb.cond(x > 0, lambda x: x + 1, lambda x: x * 0.5, x), (-2.0,)),
    "cond of a number": (lambda n, x: pb.cond(n, lambda: x, lambda: -x), (np.int32(3), XS)),
    "cond of arrays": (lambda xs: pb.cond(np.sum(xs) > 0, np.sort, lambda x: x[::-1], xs), (XS,)),
    "cond of trees": (
        lambda p, xs: pb.cond(p, lambda s: {"y": s[0], "z": (1.0, s[1])}, lambda s: {"y": s[1], "z": (2.0, s[0])}, (xs, 2 * xs)),
        (np.bool_(False), XS),
    ),
    "cond, known": (lambda x: pb.cond(len(x) > 3, lambda: x[3], lambda: x[0]), (XS,)),
    "switch": (lambda k, x: pb.switch(k, [np.sin, np.cos, np.tanh], x), (np.int64(1), 0.5)),
    "switch below": (lambda k, x: pb.switch(k, [np.sin, np.cos, np.tanh], x), (np.int8(-5), 0.5)),
    "switch above": (lambda k, x: pb.switch(k, [np.sin, np.cos, np.tanh], x), (np.int64(7), 0.5)),
    "switch of one": (lambda k, x: pb.switch(k, [np.sin], x), (np.int64(7), 0.5)),
    "switch, known": (lambda x: pb.switch(-1, [np.sin, np.cos], x), (XS,)),
    "while": (newton, (2.0,)),
    "while, never": (lambda xs: pb.while_loop(lambda x: np.all(x > 5), lambda x: x + 1, xs), (XS,)),
    "while, integers": (collatz, (np.int64(27),)),
    "for": (lambda xs: pb.fori_loop(0, 5, lambda i, t: t + i * xs[i], 0.0), (XS,)),
    "for, from": (lambda xs: pb.fori_loop(2, 5, lambda i, t: t * xs[i] - i, xs), (XS,)),
    "for, of an argument": (lambda n, x: pb.fori_loop(0, n, lambda i, t: np.cos(t) + i, x), (6, 0.3)),
    "for, between arguments": (lambda a, b: pb.fori_loop(a, b, lambda i, t: t + i, np.int64(0)), (np.int32(-3), np.int64(5))),
    "for, none": (lambda a, b: pb.fori_loop(a, b, lambda i, t: t + i, np.float64(7)), (np.int64(3), np.int64(-2))),
    "for, float32": (lambda x: pb.fori_loop(0, 3, lambda i, t: t + i, x), (np.float32([1, 2]),)),
    "for, in place": (in_place, (XS,)),
    "for, copies": (written_copies, (XS,)),
    "for, views": (views_in_a_body, (W,)),
    "for, numbers": (lists_of_numbers, (1.5,)),
    "scan": (lambda xs: pb.scan(lambda t, x: (t + x, t * x), 0.0, xs), (XS,)),
    "scan, reverse": (lambda xs: pb.scan(lambda t, x: (t + x, t * x), 0.0, xs, reverse=True), (XS,)),
    "scan by length": (lambda x: pb.scan(lambda t, _: (np.sin(t), t), x, length=4), (0.7,)),
    "scan, no y": (lambda w, x: pb.scan(lambda h, row: (np.tanh(w @ h + row), None), x, w), (W, W[0])),
    "scan of trees": (trees, (XS,)),
    "scan of columns": (lambda w: pb.scan(lambda h, col: (h + col, h @ col), np.zeros(3), w.T), (W,)),
    "scan of a slice": (lambda xs: pb.scan(lambda t, x: (t + x, x), np.int8(0), xs), (np.arange(5, dtype=np.int8)[::2],)),
    "scan, complex": (lambda z: pb.scan(lambda t, x: (t * x, t), 1.0, z), (np.array([1j, 2 - 1j]),)),
    "scan, float32": (lambda xs: pb.scan(lambda t, x: (t + x, x), 0.0, xs), (np.float32([1, 2.5]),)),
    "nested loops": (nested, (W, XS)),
    "branches in a loop": (branches_in_a_loop, (XS,)),
    "map": (lambda xs: pb.map(lambda x: (x * 2, np.array([x, SCALE])), xs), (XS,)),
    "map of a tree": (lambda w: pb.map(lambda r: np.sort(r["a"]) * r["b"][0], {"a": w, "b": w.T}), (W,)),
    "associative scan": (lambda xs: pb.associative_scan(np.add, xs), (XS,)),
    "associative scan, one": (lambda xs: pb.associative_scan(np.multiply, xs), (XS[:1],)),
    "associative scan, axis": (lambda w: pb.associative_scan(np.maximum, w, axis=-1), (W,)),
    "associative scan, matrices": (matrix_powers, (W,)),
    "associative scan, pairs": (recurrence, (XS,)),
}


def plain(program: Callable[..., Any], *args: Any) -> Any:
    """What a program gives whose branches and loops run in plain Python."""
    with in_python(), np.errstate(all="ignore"):
        return program(*args)


def agrees(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Equal trees of equal types and values."""
    assert pb.tree.structure(found) == pb.tree.structure(expected)
    for x, y in zip(map(np.asarray, pb.tree.leaves(found)), map(np.asarray, pb.tree.leaves(expected)), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_plain_python(name: str) -> None:
    program, args = PROGRAMS[name]
    agrees(run(program, *args), plain(program, *args), 1e-14 if name.startswith("associative") else 0.0)


def test_plain_runs_are_loops_of_python() -> None:
    steps, n = 0, 27
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    assert plain(collatz, 27) == steps == 111
    total, running = plain(lambda xs: pb.scan(lambda t, x: (t + x, t + x), 0.0, xs), XS)
    np.testing.assert_array_equal(running, np.cumsum(XS))
    assert total == running[-1]
    products = [W, W.T @ W, (W + 1) @ (W.T @ W), (W - 1) @ ((W + 1) @ (W.T @ W)), W @ ((W - 1) @ ((W + 1) @ (W.T @ W)))]
    np.testing.assert_allclose(plain(matrix_powers, W), np.stack(products), rtol=1e-13)
