"""Programs with loops and branches, for tests of their derivatives: each takes the functions of control flow and arrays, and
returns a number; and what plays these functions in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from pullback.tracer.transforms import control_flow as control


class Recorded:
    """Plain Python: loops unrolled. While it runs on numbers it takes down every decision; in a trace it ``replay``s them."""

    def __init__(self) -> None:
        self.decisions: list[int] = []
        self.replayed: Any = None

    def replay(self) -> Recorded:
        other = Recorded()
        other.replayed = iter(self.decisions)
        return other

    def decide(self, value: Any) -> int:
        if self.replayed is not None:
            return next(self.replayed)
        self.decisions.append(int(value))
        return int(value)

    def cond(self, pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
        return (true_fun if self.decide(pred) else false_fun)(*operands)

    def switch(self, index: Any, branches: Any, *operands: Any) -> Any:
        return branches[min(max(self.decide(index), 0), len(branches) - 1)](*operands)

    def while_loop(self, cond_fun: Any, body_fun: Any, value: Any, checkpoint: Any = None) -> Any:
        while self.decide(cond_fun(value)):
            value = body_fun(value)
        return value

    def fori_loop(self, lower: Any, upper: Any, body_fun: Any, value: Any, checkpoint: Any = None) -> Any:
        for i in range(*(x if isinstance(x, int) else self.decide(x) for x in (lower, upper))):
            value = body_fun(i, value)
        return value

    def checkpoint(self, function: Any) -> Any:
        return function

    def scan(self, f: Any, carry: Any, xs: Any = None, length: Any = None, reverse: bool = False, checkpoint: Any = None) -> Any:
        size = length if xs is None else len(pb.tree.leaves(xs)[0])
        rows: list[Any] = [None] * size
        for k in reversed(range(size)) if reverse else range(size):
            carry, rows[k] = f(carry, pb.tree.map(lambda a, k=k: a[k], xs))
        return carry, pb.tree.map(lambda *parts: np.stack(parts), *rows) if rows else np.zeros(0)


class Compiled:
    """The functions of control flow themselves."""

    cond = staticmethod(control.cond)
    switch = staticmethod(control.switch)
    while_loop = staticmethod(control.while_loop)
    fori_loop = staticmethod(control.fori_loop)
    scan = staticmethod(control.scan)
    checkpoint = staticmethod(pb.checkpoint)


def recurrence(c: Any, x: Any) -> Any:
    return c.fori_loop(0, 4, lambda i, h: np.sin(h) * x[1] + h * h * 0.3, x[0])


def linear(c: Any, x: Any, w: Any) -> Any:
    h, ys = c.scan(lambda h, r: (h @ w + r, np.tanh(h)), x[0], x)
    return np.sum(h**2) + np.sum(ys * x)


def backwards(c: Any, x: Any, w: Any) -> Any:
    h, ys = c.scan(lambda h, r: (np.tanh(w @ h) * r, h[0] * r), x[0], x, reverse=True)
    return np.sum(h) + np.sum(np.cos(ys))


def joined(c: Any, xs: Any, w: Any) -> Any:
    """A loop whose steps use a row joined with the state, and the row alone, and whose derivative is part of a product."""
    size = w.shape[0]

    def step(h: Any, x: Any) -> Any:
        z = np.tanh(np.concatenate([x, h]) @ np.concatenate([w, w * w]))
        return z[:size] + 0.1 * (w @ x)[::-1], np.concatenate([h, x])[1:size]

    last, rows = c.scan(step, 0.1 * w[0], xs, reverse=True)
    return np.sum(last * last) + np.sum(rows**3)


def several_carries(c: Any, x: Any) -> Any:
    def body(s: Any, r: Any) -> Any:
        k, a, unused, fixed, b = s
        return (k + 2, a * b + r[k % 3], unused + 1.5, fixed, np.exp(-a) * fixed), (a, k)

    (k, a, _, fixed, b), (ys, ks) = c.scan(body, (0, x[0, 0], x[0, 1], x[1, 1], 1.0), x)
    return a * b + np.sum(ys * ks) + k * fixed


def newton(c: Any, x: Any) -> Any:
    return c.while_loop(lambda s: abs(s * s - x[0]) > 0.01, lambda s: (s + x[0] / s) / 2, x[1] ** 8)


def counted_while(c: Any, x: Any) -> Any:
    def body(s: Any) -> Any:
        i, h, a = s
        return i + 1, h * np.cos(a[i % 3]) + x[i % 2], a * 0.9

    i, h, a = c.while_loop(lambda s: (s[0] < 5) & (s[1] < 30.0), body, (0, x[0], x * 1.0))
    return h * np.sum(a) + i


def no_trips(c: Any, x: Any) -> Any:
    h = c.while_loop(lambda s: s < -100.0, lambda s: s * s, x[0])
    return c.fori_loop(0, np.int64(0 * x[1]), lambda i, s: s * x[1], h) * x[2]


def dynamic_count(c: Any, x: Any) -> Any:
    return c.fori_loop(1, np.int64(x[0] * 8), lambda i, s: s * np.sin(x[i % 3]) + i, x[1])


def reads(c: Any, x: Any) -> Any:
    return c.fori_loop(0, 6, lambda i, s: s + x[i % 3] * x[(i * i) % 3] ** 2, 0.0)


def writes(c: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        a[i] = a[i - 1] * x[i] + a[i - 2] ** 2
        return a

    a = c.fori_loop(1, 3, body, x * 1.0)
    return np.sum(np.sin(a) * x)


def writes_once(c: Any, x: Any) -> Any:
    def body(i: Any, s: Any) -> Any:
        a, t = s
        a[i] = t * x[i]
        return a, t + a[i] ** 2

    a, t = c.fori_loop(0, 3, body, (np.zeros(3), x[0]))
    return np.sum(a**2) * t


def nested(c: Any, x: Any, w: Any) -> Any:
    def outer(h: Any, r: Any) -> Any:
        inner = c.fori_loop(0, 3, lambda i, a: np.tanh(w @ a + r) * a[i % 2], h)
        return inner, np.sum(inner * w[0])

    h, ys = c.scan(outer, x[0], x)
    return np.sum(h * h) + ys @ ys


def while_in_scan(c: Any, x: Any) -> Any:
    def outer(h: Any, r: Any) -> Any:
        h, _ = c.while_loop(lambda s: s[0] + s[1] < 4.0, lambda s: (s[0] + np.sin(s[0]) ** 2 + 0.5 * r, s[1] * 1.1), (h, r))
        return h * 0.3, h * r

    h, ys = c.scan(outer, x[0], x)
    return h + np.sum(ys**2)


def while_in_while(c: Any, x: Any) -> Any:
    def outer(s: Any) -> Any:
        k, h = s
        return k + 1, c.while_loop(lambda t: t < x[0] + k, lambda t: t * 1.3 + x[1] ** 2, h * 0.4)

    return c.while_loop(lambda s: s[0] < 3, outer, (0, x[2]))[1] ** 2


def branches(c: Any, x: Any) -> Any:
    def body(total: Any, r: Any) -> Any:
        new = c.cond(r > 1.0, lambda t: t * np.sqrt(r), lambda t: t - r * r, total)
        kind = np.int64(2 * r) % 3
        return new, c.switch(kind, [lambda a: a * r, lambda a: np.tanh(a) * x[0], lambda a: np.exp(-a * a)], total)

    total, ys = c.scan(body, x[1], x)
    return total * np.sum(ys)


def switch_in_while(c: Any, x: Any) -> Any:
    def body(s: Any) -> Any:
        i, h = s
        return i + 1, c.cond(h > x[0], lambda h: h / (1 + x[1] ** 2), lambda h: h * h + x[i % 3], h)

    return c.while_loop(lambda s: s[0] < 6, body, (0, x[2]))[1]


def while_in_switch(c: Any, x: Any) -> Any:
    def grow(h: Any) -> Any:
        return c.while_loop(lambda s: s < 5.0, lambda s: s * s + x[1], h + 1)

    return c.cond(x[0] > 0.75, grow, lambda h: h * x[2], x[0] * x[1]) * c.cond(x[0] < 0.75, grow, np.sin, x[2])


def length_one(c: Any, x: Any) -> Any:
    h, ys = c.scan(lambda h, r: (h * r, h + r), x[1], x[:1])
    return h * ys[0]


def length_zero(c: Any, x: Any) -> Any:
    h, ys = c.scan(lambda h, r: (h * r, h + r), x[1], x[:0])
    return h * h + np.sum(ys)


def dead_branch(c: Any, x: Any) -> Any:
    h = c.fori_loop(0, 3, lambda i, h: np.sqrt(h - 100.0 + i) * x[0], x[1])
    return np.where(x[2] > 50.0, h, x[0] * x[2])


def dead_elements(c: Any, x: Any) -> Any:
    h = c.fori_loop(0, 3, lambda i, h: np.sqrt(h) + x, x - 0.8)
    return np.sum(np.where(x > 0.8, h, x * x))


def gradient_inside(c: Any, x: Any) -> Any:
    slope = pb.grad(lambda h: np.sin(h) * x[0] + h**3)
    return c.fori_loop(0, 3, lambda i, h: h - 0.1 * slope(h) * x[i], x[1])


def loop_in_gradient_inside(c: Any, x: Any) -> Any:
    def energy(h: Any, r: Any) -> Any:
        return c.fori_loop(0, 2, lambda i, s: s * np.cos(s) * r, h)

    slope = pb.grad(energy)
    return c.scan(lambda h, r: (h - 0.1 * slope(h, r), None), x[1], x)[0]


def saved_while(c: Any, x: Any) -> Any:
    block = c.checkpoint(lambda h, r: c.while_loop(lambda s: s < 3.0, lambda s: s * 1.2 + r**2, h))
    return c.scan(lambda h, r: (block(h, r) * 0.3, h), x[0], x)[0]


def chunks(c: Any, x: Any, w: Any) -> Any:
    rows = np.concatenate([x, x * 0.5, x + 0.1, x[:1]])
    (h, k), ys = c.scan(
        lambda s, r: ((np.tanh(w @ s[0] + r) * s[0][s[1] % 2], s[1] + 1), (s[0] * r, s[1])), (x[0], 0), rows, checkpoint="sqrt"
    )
    return np.sum(h) * k + np.sum(np.sin(ys[0]) * ys[1][:, np.newaxis])


def backward_chunks(c: Any, x: Any) -> Any:
    rows = np.concatenate([x, x * 0.5])
    h, ys = c.scan(lambda h, r: (np.sin(h) * r, h + r), x[0], rows, reverse=True, checkpoint="sqrt")
    return h * np.sum(ys * rows)


def counted_chunks(c: Any, x: Any) -> Any:
    return c.fori_loop(1, np.int64(x[0] * 12), lambda i, s: s * np.sin(x[i % 3] + s) + 1, x[1], checkpoint="sqrt")


def while_in_chunks(c: Any, x: Any) -> Any:
    grow = lambda s: (s[0] * 1.2 + np.sin(s[1]) * x[2] ** 2, s[1] * 0.9 + x[1])  # noqa: E731
    return c.while_loop(lambda s: s[0] < 20.0, grow, (x[0], x[1]), checkpoint="sqrt")[0]


X, XS = np.array([0.7, 1.1, 1.3]), np.array([[0.5, 0.9, 0.2], [1.2, -0.4, 0.7]])
W = np.array([[0.3, -0.5, 0.8], [0.6, 0.1, -0.2], [0.4, 0.7, -0.9]])

PROGRAMS: dict[str, tuple[Any, ...]] = {
    f.__name__: (f, *args)
    for f, *args in [
        (recurrence, X), (linear, XS, W), (backwards, XS, W), (joined, XS, W), (several_carries, XS), (newton, X),
        (counted_while, X), (no_trips, X), (dynamic_count, X), (reads, X), (writes, X), (writes_once, X), (nested, XS, W),
        (while_in_scan, X), (while_in_while, X), (branches, X), (switch_in_while, X), (while_in_switch, X), (length_one, X),
        (length_zero, X), (dead_branch, X), (dead_elements, X), (gradient_inside, X), (loop_in_gradient_inside, X),
        (saved_while, X), (chunks, XS, W), (backward_chunks, X), (counted_chunks, X), (while_in_chunks, X),
    ]
}  # fmt: skip
