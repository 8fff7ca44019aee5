"""Loops of programs that run inside kernels on a GPU: which do, and what they compute, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from tests.support.cuda.host_programs import Make, expected, run_program, scheduled, traced
from tests.support.cuda.targets import on_each
from tests.support.golden_files import assert_same


def steps(call: Any, *args: Any) -> list[str]:
    """The steps of a program, in loops too, without what makes and ends buffers."""
    module, _ = scheduled(traced(call, *args)[0])
    return [i.op.name for i in walk(module.functions[0].body) if i.op.name not in ("alloc", "free")]


def some(*shape: int, dtype: str = "f8") -> Any:
    return np.random.default_rng(len(shape)).random(shape).astype(dtype)


def logistic(x: Any, r: Any) -> Any:
    return pb.fori_loop(0, 40, lambda i, x: r * x * (1 - x), x)


def runge_kutta(x: Any, v: Any) -> Any:
    """A pendulum, step by step; the last state, and all angles."""
    h = 0.01

    def slope(x: Any, v: Any) -> Any:
        return v, -np.sin(x)

    def step(state: Any, _: Any) -> Any:
        x, v = state
        a, b = slope(x, v)
        c, d = slope(x + h / 2 * a, v + h / 2 * b)
        e, f = slope(x + h / 2 * c, v + h / 2 * d)
        g, k = slope(x + h * e, v + h * f)
        x, v = x + h / 6 * (a + 2 * c + 2 * e + g), v + h / 6 * (b + 2 * d + 2 * f + k)
        return (x, v), x

    return pb.scan(step, (x, v), None, length=20)


def with_rows(x: Any, rows: Any) -> Any:
    return pb.scan(lambda c, row: (c * 0.5 + row, c), x, rows, reverse=True)


def by_index(x: Any) -> Any:
    return pb.fori_loop(0, 9, lambda i, x: np.where(x > i / 9, x * 2 - i, x + i), x)


def swapped(x: Any, y: Any) -> Any:
    return pb.fori_loop(0, 7, lambda i, s: (s[1] + 1, s[0] * 2), (x, y))


def in_two(x: Any) -> Any:
    """A loop within a loop, and one behind it."""
    inner = pb.fori_loop(0, 5, lambda i, x: pb.fori_loop(0, 3, lambda j, x: x * 1.5 + i - j, x), x)
    return pb.fori_loop(0, 4, lambda i, x: x / 2, inner), inner


INSIDE = {
    "logistic": (logistic, some(50), 3 + some(50) / 2),
    "logistic of rows": (logistic, some(9, 50), 3 + some(50) / 2),
    "of a number": (logistic, 0.3, 3.7),
    "runge_kutta": (runge_kutta, some(30), some(30)),
    "with rows": (with_rows, some(20), some(6, 20)),
    "float32": (with_rows, some(21, dtype="f4"), some(6, 21, dtype="f4")),
    "by index": (by_index, some(33)),
    "swapped": (swapped, some(17), some(17)),
    "nothing to do": (lambda x: pb.fori_loop(0, 0, lambda i, x: x * 2, x), some(17)),
}
OUTSIDE = {
    "a sum": (lambda x: pb.fori_loop(0, 5, lambda i, x: x / np.sum(x), x), some(40)),
    "neighbours": (lambda x: pb.fori_loop(0, 5, lambda i, x: x + np.roll(x, 1), x), some(40)),
    "transposed": (lambda x: pb.fori_loop(0, 5, lambda i, x: x + x.T, x), some(7, 7)),
    "a product": (lambda x, w: pb.fori_loop(0, 5, lambda i, x: x @ w, x), some(7, 7), some(7, 7)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_these_are_one_launch(name: str) -> None:
    result = steps(*INSIDE[name])
    assert "loop" not in result and result.count("launch") == 1


@pytest.mark.parametrize("name", OUTSIDE)
def test_these_stay_loops(name: str) -> None:
    assert "loop" in steps(*OUTSIDE[name])


@on_each
@pytest.mark.parametrize("name", [*INSIDE, *OUTSIDE, "in two"])
def test_they_compute_what_the_interpreter_does(machine: Make, name: str) -> None:
    call, *args = {**INSIDE, **OUTSIDE, "in two": (in_two, some(20))}[name]
    function, values = traced(call, *args)
    result, wanted = run_program(machine, function, values), expected(function, values)
    assert_same(result, wanted, bitwise=False, rtol=1e-5 if name == "float32" else 1e-11)


@on_each
@pytest.mark.parametrize("name", sorted(set(INSIDE) - {"float32", "nothing to do"}))
def test_and_their_gradients(machine: Make, name: str) -> None:
    inner, *args = INSIDE[name]

    def total(*arguments: Any) -> Any:
        result = inner(*arguments)
        leaves = [a for part in (result if isinstance(result, tuple) else (result,))
                  for a in (part if isinstance(part, tuple) else (part,))]  # fmt: skip
        return sum(np.sum(leaf * (k + 1)) for k, leaf in enumerate(leaves))

    call = pb.value_and_grad(total, argnums=tuple(range(len(args))))
    function, values = traced(call, *args)
    assert_same(run_program(machine, function, values), expected(function, values), bitwise=False, rtol=1e-7)


@on_each
def test_second_derivatives(machine: Make) -> None:
    def curvature(x: Any, r: Any) -> Any:
        return pb.grad(lambda x: np.sum(pb.grad(lambda x: np.sum(logistic(x, r)))(x) ** 2))(x)

    function, values = traced(lambda x, r: curvature(x, r), some(12) / 10, 1 + some(12) / 10)
    assert_same(run_program(machine, function, values), expected(function, values), bitwise=False, rtol=1e-7)
