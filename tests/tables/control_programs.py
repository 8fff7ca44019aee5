"""Programs of branches and loops, each with its arguments; without a compiler they run in plain Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.special

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

    def after(self, x: Any) -> State:
        return State(self.a + x, self.b * 0.5 + self.a)


class Model:
    def __init__(self) -> None:
        self.w = W.copy()

    def step(self, h: Any, x: Any) -> Any:
        return np.tanh(self.w @ h + x), h.sum()


MODEL = Model()


@pb.jit
def counted(i: Any, s: Any) -> Any:
    return s + i


@pb.custom_vjp
def ruled(x: Any) -> Any:
    return np.exp(x)


ruled.defvjp(lambda x: (ruled(x), x), lambda x, ct: (ct * np.exp(x),))


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
        return new, pb.switch(np.int64(2 * x + 0.25), [lambda: x, lambda: x * x, lambda: SCALE * x])

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
        built = {"pair": Pair(state["pair"].h * x["a"], state["pair"].n + 1), "s": State(x["b"], state["s"].a)}
        return built, (built["pair"].h, {"y": built["s"].a})

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


def descent(x: Any) -> Any:
    def loss(w: Any) -> Any:
        return np.sum((w - x) ** 2 * np.cos(ruled(w * 0.1)))

    return pb.fori_loop(0, 4, lambda i, w: w - 0.1 * pb.grad(loss)(w), np.zeros(5))


def transforms_in_a_body(x: Any) -> Any:
    def body(i: Any, w: Any) -> Any:
        rows = pb.vmap(lambda a: np.sin(a) * x[0] + i)(w)
        along = pb.jvp(lambda a: np.sin(a) * x, (rows,), (w,))[1]
        kept = pb.grad(lambda a: np.sum(pb.checkpoint(lambda q: np.sin(q) * x)(a)))(along)
        return pb.stop_gradient(kept) + along

    return pb.fori_loop(0, 3, body, x)


def views_of_outer_arrays(w: Any) -> Any:
    a = w.copy()
    rows = a[1:]
    a[1, 0] = 7.0
    first = pb.fori_loop(0, 3, lambda i, s: s + rows.sum() + a[i].sum(), 0.0)
    a[2, 0] = 3.0
    return first, rows + 0, pb.fori_loop(0, 3, lambda i, s: s + rows.sum(), 0.0), rows


def three_deep(x: Any, w: Any) -> Any:
    def outer(i: Any, s: Any) -> Any:
        def middle(j: Any, t: Any) -> Any:
            def inner(k: Any, u: Any) -> Any:
                return u + x[i] * w[j % 3, k] * s

            return pb.cond(t > 1, lambda: pb.fori_loop(0, 3, inner, t), lambda: t + x[j])

        return pb.fori_loop(0, i + 1, middle, s)

    return pb.fori_loop(0, 4, outer, 0.1)


def buffer_of_a_body(x: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        b = np.zeros(4)
        b[0] = s
        b[i] += x[i]
        b[1:] *= 2
        return b.sum()

    return pb.fori_loop(0, 4, body, 1.0)


def shared_carries(x: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        a, b = s
        a += 1
        b[0] = a[1]
        return a, a

    return pb.fori_loop(0, 3, body, (x, x)), x


def changed_containers(x: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        s["a"] = s["a"] + x
        s["n"] += 1
        return s

    return pb.fori_loop(0, 3, body, {"a": x, "n": 0})


def cell(x: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        s += 1.0
        return s

    return pb.fori_loop(0, 4, body, x), x


def random_walk(seed: Any) -> Any:
    def body(i: Any, state: Any) -> Any:
        key, position = state
        key, drawn = pb.random.split(key)
        return key, position + pb.random.normal(drawn, (2,))

    return pb.fori_loop(0, 5, body, (pb.random.key(seed), np.zeros(2)))


def settled(x: Any) -> Any:
    return pb.while_loop(lambda s: ~s[1], lambda s: (s[0] / 2, np.all(s[0] < 0.3)), (x, False))


def fields(x: Any) -> Any:
    return pb.scan(lambda s, a: (s.after(a), Pair(s.a, s.b)), State(0.0, 1.0), x)


def extremes(x: Any) -> Any:
    def fn(a: Any, b: Any) -> Any:
        return {"m": np.maximum(a["m"], b["m"]), "s": a["s"] + b["s"]}

    return pb.associative_scan(fn, {"m": x[::-1], "s": np.arange(5)})


def solved(w: Any) -> Any:
    return pb.fori_loop(0, 3, lambda i, s: np.linalg.solve(w + np.eye(3) * (i + 2), s), np.ones(3))


def filtered(q: Any, ys: Any) -> Any:
    """A Kalman filter of a position and its velocity."""
    move, look = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])

    def step(state: Any, y: Any) -> Any:
        mean, cov, loss = state
        mean, cov = move @ mean, move @ cov @ move.T + np.exp(q) * np.eye(2)
        var = look @ cov @ look.T + 1.0
        gain, error = cov @ look.T / var, y - look @ mean
        return (mean + gain @ error, cov - gain @ look @ cov, loss + np.log(var[0, 0]) + error[0] ** 2 / var[0, 0]), mean

    return pb.scan(step, (np.zeros(2), np.eye(2), 0.0), ys)


def likelihood(a: Any, b: Any, seen: Any) -> Any:
    """The forward algorithm of a hidden Markov model."""

    def step(p: Any, k: Any) -> Any:
        return scipy.special.logsumexp(p[:, None] + a, axis=0) + b[:, k], None

    return scipy.special.logsumexp(pb.scan(step, b[:, seen[0]], seen[1:])[0])


def edits(a: Any, b: Any) -> Any:
    """The edit distance of two sequences."""

    def row(above: Any, x: Any) -> Any:
        def cell(left: Any, k: Any) -> Any:
            best = np.minimum(np.minimum(left + 1, above[k + 1] + 1), above[k] + (x != b[k]))
            return best, best

        rest = pb.scan(cell, above[0] + 1, np.arange(len(b)))[1]
        return np.concatenate([above[:1] + 1, rest]), None

    return pb.scan(row, np.arange(len(b) + 1), a)[0][-1]


def escape(c: Any) -> Any:
    """How long each point stays near 0 (the Mandelbrot set)."""

    def turns(c: Any) -> Any:
        return pb.while_loop(lambda s: (np.abs(s[0]) < 2) & (s[1] < 50), lambda s: (s[0] ** 2 + c, s[1] + 1), (0j, 0))[1]

    return pb.map(turns, c)


def searched(x: Any) -> Any:
    """Steepest descent whose steps are halved until they go down."""

    def f(x: Any) -> Any:
        return np.sum((x**2 - 2) ** 2)

    def step(state: Any) -> Any:
        x, count = state
        d = -4 * x * (x**2 - 2)
        t = pb.while_loop(lambda t: f(x + t * d) > f(x) - 1e-4 * t * np.sum(d * d), lambda t: t * 0.5, 1.0)
        return x + t * d, count + 1

    return pb.while_loop(lambda s: (f(s[0]) > 1e-10) & (s[1] < 30), step, (x, 0))


def bisected(low: Any, high: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        low, high = s
        middle = (low + high) / 2
        return pb.cond(middle**3 > 2, lambda: (low, middle), lambda: (middle, high))

    return pb.fori_loop(0, 60, body, (low, high))


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
    "a gradient in a body": (descent, (XS,)),
    "transforms in a body": (transforms_in_a_body, (XS,)),
    "views of outer arrays": (views_of_outer_arrays, (W,)),
    "three deep": (three_deep, (XS, W)),
    "a buffer of a body": (buffer_of_a_body, (XS,)),
    "carries that share an array": (shared_carries, (XS,)),
    "containers changed in place": (changed_containers, (XS,)),
    "an array of rank 0": (cell, (np.array(2.0),)),
    "random numbers": (random_walk, (3,)),
    "a bool that ends a loop": (settled, (abs(XS),)),
    "dataclasses": (fields, (XS,)),
    "a method": (lambda x: pb.scan(MODEL.step, np.zeros(3), x), (W,)),
    "a compiled body": (lambda x: pb.fori_loop(0, 3, counted, x), (XS,)),
    "a ufunc": (lambda x: pb.fori_loop(0, 3, np.add, x), (XS,)),
    "a partial": (lambda x: pb.scan(functools.partial(lambda k, c, a: (c * k + a, c), 0.5), 0.0, x), (XS,)),
    "a callback": (lambda x: pb.fori_loop(0, 3, lambda i, s: pb.callback(lambda v: v * 2.0, s, s), x), (XS,)),
    "a size in a body": (lambda n, x: pb.fori_loop(0, n, lambda i, s: s + np.ones(n).sum(), 0.0), (3, XS)),
    "bytes": (lambda x: pb.scan(lambda c, a: (c + a, c), np.uint8(100), x), (np.array([3, 200, 7], np.uint8),)),
    "complex64": (lambda x: pb.scan(lambda c, a: (c * a, c), 1, x), (np.array([1 + 2j, 3 - 1j], np.complex64),)),
    "columns first": (
        lambda x: pb.map(lambda r: r.reshape(2, 2).ravel()[::-1], x),
        (np.asfortranarray(np.arange(8.0).reshape(2, 4)),),
    ),
    "no rows": (lambda z: (pb.scan(lambda c, r: (c + r.sum(), (r, c)), 0.0, z), pb.map(np.sin, z)), (np.zeros((0, 3)),)),
    "no elements": (lambda z: pb.associative_scan(np.add, z), (np.zeros((0, 3)),)),
    "trees of elements": (extremes, (XS,)),
    "types that settle in turn": (lambda x: pb.fori_loop(0, 3, lambda i, s: (s[1], s[0] + x[0], s[2]), (0, 0, 0)), (XS,)),
    "a constant carry": (lambda x: pb.fori_loop(0, 3, lambda i, s: x, np.zeros(5)), (XS,)),
    "sorts": (lambda x: pb.fori_loop(0, 3, lambda i, s: np.sort(s)[::-1] * 1.1 + np.cumsum(s) * 0.1, x), (XS,)),
    "linear systems": (solved, (W,)),
    "a Kalman filter": (filtered, (-1.0, np.cumsum(XS))),
    "a hidden Markov model": (
        likelihood,
        (np.log([[0.9, 0.1], [0.2, 0.8]]), np.log([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]]), np.array([0, 2, 1, 1, 2])),
    ),
    "an edit distance": (edits, (np.array([1, 2, 3, 4, 5]), np.array([1, 3, 4, 6]))),
    "the Mandelbrot set": (escape, (np.array([0.1 + 0.1j, 1 + 1j, -1 + 0j, 0.3 + 0.6j]),)),
    "a line search": (searched, (np.array([1.0, 3.0]),)),
    "a bisection": (bisected, (0.0, 2.0)),
    "branches for the elements of a list": (lambda x: [pb.cond(v > 1, lambda v=v: v, lambda v=v: -v) for v in x], (XS,)),
}

NO_DERIVATIVE = {
    "for, between arguments", "for, none", "for, float32", "while, integers", "scan of a slice", "scan, complex",
    "scan, float32", "switch, known", "transforms in a body", "random numbers", "a bool that ends a loop", "a callback",
    "a size in a body", "bytes", "complex64", "no rows", "no elements", "a constant carry", "an edit distance",
    "the Mandelbrot set", "a line search", "a bisection",
}  # fmt: skip
"""Those without floats to differentiate by, and those whose derivatives are not their differences."""
