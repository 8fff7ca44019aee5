"""Updates of arrays in loops, and their gradients, move what they write: no array is copied in an iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb


class Program(NamedTuple):
    """A function, the shapes of its arguments for a size, and the power of the size to which its work grows."""

    function: Callable[..., Any]
    shapes: Callable[[int], list[tuple[int, ...]]]
    power: int = 1


def clipped(v: Any) -> Any:
    def step(t: Any, s: Any) -> Any:
        w = s[t - 1] + v[t, 1]
        s[t] = np.where(w < v[t, 0], v[t, 0], w)
        return s

    return pb.fori_loop(1, len(v), step, np.zeros(len(v)))


def thomas(a: Any, b: Any, d: Any) -> Any:
    n = len(b)
    c, x = np.zeros(n), np.zeros(n)
    c[0], x[0] = a[0] / b[0], d[0] / b[0]

    def forward(i: Any, state: Any) -> Any:
        c, x = state
        m = b[i] - a[i] * c[i - 1]
        c[i] = a[i] / m
        x[i] = (d[i] - a[i] * x[i - 1]) / m
        return c, x

    c, x = pb.fori_loop(1, n, forward, (c, x))

    def back(k: Any, x: Any) -> Any:
        i = n - 2 - k
        x[i] -= c[i] * x[i + 1]
        return x

    return pb.fori_loop(0, n - 1, back, x)


def columns(p: Any) -> Any:
    def step(j: Any, p: Any) -> Any:
        p[1:-1, j] = 0.5 * p[1:-1, j - 1] + p[:-2, j]
        return p

    return pb.fori_loop(1, p.shape[1], step, p + 0.0)


def gauss_seidel(u: Any) -> Any:
    def row(i: Any, u: Any) -> Any:
        def element(j: Any, u: Any) -> Any:
            u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
            return u

        return pb.fori_loop(1, len(u) - 1, element, u)

    return pb.fori_loop(1, len(u) - 1, row, u + 0.0)


def rows(u: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        u[i, 1:-1] = 0.25 * (u[i - 1, 1:-1] + u[i + 1, 1:-1] + u[i, :-2] + u[i, 2:])
        return u

    return pb.fori_loop(1, len(u) - 1, step, u + 0.0)


def distances(x: Any, y: Any) -> Any:
    d = np.zeros((len(x) + 1, len(y) + 1))
    d[:, 0], d[0, :] = np.arange(len(x) + 1), np.arange(len(y) + 1)

    def row(i: Any, d: Any) -> Any:
        def element(j: Any, d: Any) -> Any:
            cost = (x[i - 1] - y[j - 1]) ** 2
            d[i, j] = np.minimum(np.minimum(d[i - 1, j], d[i, j - 1]), d[i - 1, j - 1]) + cost
            return d

        return pb.fori_loop(1, len(y) + 1, element, d)

    return pb.fori_loop(1, len(x) + 1, row, d)


def chosen(s: Any, v: Any) -> Any:
    def step(i: Any, s: Any) -> Any:
        changed = s.copy()
        changed[i] = s[i - 1] * 2 + v[i]
        changed[i - 1] += v[i]
        return np.where(v[i] > 1, changed, s)

    return pb.fori_loop(1, len(s), step, s + 0.0)


def branches(s: Any, v: Any) -> Any:
    def step(i: Any, s: Any) -> Any:
        def write(s: Any) -> Any:
            s[i] = s[i - 1] * 2
            return s

        return pb.cond(v[i] > 1, write, lambda s: s, s)

    return pb.fori_loop(1, len(s), step, s + 0.0)


def exchanged(a: Any, b: Any) -> Any:
    def step(i: Any, state: Any) -> Any:
        a, b = state
        a[i] = b[i - 1] * 2 + a[i]
        return b, a

    return pb.fori_loop(0, len(a), step, (a + 0.0, b + 0.0))


def several(x: Any, w: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        x[i, 1:3] *= 2
        x[i, 3:] += w[i, ::2]
        x[i, 5:0:-2] = x[i, 4::-2] * w[i, :3]
        return x

    return pb.fori_loop(0, len(x), step, x + 0.0)


def views(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        inside = x[1:-1]
        inside[i] = inside[i] * 2 + x[0]
        inside[i, 1] = 5.0
        x.T[1:, i] = x.T[:-1, i] * 0.5
        x[::-1][i, 2:] += x[i, :-2]
        return x

    return pb.fori_loop(0, len(x) - 2, step, x + 0.0)


def pairs(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        a, b = x[i], x[i + 1]
        low, high = np.minimum(a, b), np.maximum(a, b)
        x[i] = low
        x[i + 1] = high
        return x

    return pb.fori_loop(0, len(x) - 1, step, x + 0.0)


def listed(x: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        x[np.array([i, (i + 1) % len(x)]), 1:3] *= 2
        return x

    return pb.fori_loop(0, len(x), step, x + 0.0)


def counted(x: Any, w: Any) -> Any:
    def step(i: Any, h: Any) -> Any:
        k = np.int64(x[i] * 10) % len(x)
        h[k] += w[i]
        np.add.at(h, np.array([k, k]), np.stack([w[i], 2 * w[i]]))
        return h

    return pb.fori_loop(0, len(x), step, np.zeros(len(x)))


def batched(x: Any, v: Any) -> Any:
    def one(x: Any, v: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            def write(x: Any) -> Any:
                x[i] = x[i - 1] * 2
                return x

            return pb.cond(x[i - 1] < v, write, lambda x: x, x)

        return pb.fori_loop(1, len(x), step, x + 0.0)

    return pb.vmap(one)(x, v)


def waves(a: Any, b: Any) -> Any:
    z = a + 1j * b

    def step(j: Any, z: Any) -> Any:
        z[1:, j] = z[:-1, j - 1] * (0.5 + 0.2j) + z[1:, j]
        return z

    z = pb.fori_loop(1, z.shape[1], step, z)
    return z.real + z.imag


def until(a: Any, b: Any) -> Any:
    def step(state: Any) -> Any:
        a, b, i = state
        a[i] = np.minimum(b[i - 1] + a[i], 3.0)
        return b, a, i + 1

    return pb.while_loop(lambda state: state[2] < len(a), step, (a + 0.0, b + 0.0, np.int64(1)))[:2]


PROGRAMS = {
    "an element under a choice": Program(clipped, lambda n: [(n, 2)]),
    "elements of two arrays": Program(thomas, lambda n: [(n,)] * 3),
    "columns of an inner block": Program(columns, lambda n: [(6, n)]),
    "elements in nested loops": Program(gauss_seidel, lambda n: [(n, n)], 2),
    "rows without their ends": Program(rows, lambda n: [(n, n)], 2),
    "a table": Program(distances, lambda n: [(n,), (n,)], 2),
    "a choice between an array and its update": Program(chosen, lambda n: [(n,)] * 2),
    "a branch that writes": Program(branches, lambda n: [(n,)] * 2),
    "arrays exchanged": Program(exchanged, lambda n: [(n,)] * 2),
    "several parts of a row": Program(several, lambda n: [(n, 6)] * 2),
    "views of views": Program(views, lambda n: [(n, 6)]),
    "elements exchanged": Program(pairs, lambda n: [(n,)]),
    "rows at several indices": Program(listed, lambda n: [(n, 4)]),
    "counts": Program(counted, lambda n: [(n,)] * 2),
    "branches of a batch": Program(batched, lambda n: [(3, n), (3,)]),
    "columns of complex numbers": Program(waves, lambda n: [(4, n)] * 2),
    "a loop with a condition": Program(until, lambda n: [(n,)] * 2),
}


def arguments(program: Program, size: int) -> list[Any]:
    rng = np.random.default_rng(size)
    return [rng.uniform(0.5, 1.5, shape) for shape in program.shapes(size)]


def with_gradient(program: Program) -> Any:
    def loss(*args: Any) -> Any:
        results = program.function(*args)
        return sum(np.sum(x * x) for x in (results if isinstance(results, tuple) else (results,)))

    return pb.value_and_grad(loss, argnums=tuple(range(len(program.shapes(1)))))


@pytest.mark.parametrize("has_gradient", [False, True], ids=["value", "gradient"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_iterations_move_what_they_write(name: str, has_gradient: bool) -> None:
    program = PROGRAMS[name]
    function = with_gradient(program) if has_gradient else pb.jit(program.function)
    moved = []
    for size in (32, 128):
        args = arguments(program, size)
        assert not [c for c in function.memory(*args).copies if c.is_in_loop], size
        moved.append(function.cost(*args).total.bytes)
    assert moved[1] <= 1.2 * 4**program.power * moved[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients(name: str) -> None:
    program = PROGRAMS[name]
    pb.check_grad(program.function, argnums=tuple(range(len(program.shapes(1)))))(*arguments(program, 7))


def test_copies_are_reported_with_their_reason() -> None:
    def kept(a: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            a, total = state
            before = a.copy()
            a[i] = a[i - 1] * 2
            return a, total + np.sum(before * a)

        return pb.fori_loop(1, len(a), step, (a + 0.0, 0.0))

    report = pb.jit(kept).memory(np.ones(50))
    (copy,) = [c for c in report.copies if c.is_in_loop]
    assert (copy.bytes, copy.times, copy.is_in_loop) == (400, 49, True)
    assert copy.reason == "it is still read" and copy.reader.line == copy.loc.line + 1
    assert "copies of arrays:" in str(report) and copy.reason in str(report)

    def changed(a: Any) -> Any:
        b = a.copy()
        b[3] = 1.0
        return b

    (copy,) = pb.jit(changed).memory(np.ones(50)).copies
    assert copy.times == 1 and not copy.is_in_loop and "from outside" in copy.reason
