"""Zeros behind the infinite slope of a root (ir/passes/transforms/strong_zero.py): through loops, batches, branches and both
modes; the rows of docs/gradient-policy.md have the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.size_classes import templated
from pullback.ir.passes.transforms.expand import grad
from pullback.tracer import trace

A = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 3.0]])


def in_a_loop(x: Any) -> Any:
    return np.sqrt(pb.fori_loop(0, 3, lambda i, s: s + x[i] ** 2, 0.0))


def roots_in_a_loop(x: Any) -> Any:
    return pb.fori_loop(0, 3, lambda i, s: np.sqrt(np.maximum(s * s + x[i] ** 2, 0.0)), 0.0)


def in_a_scan(x: Any) -> Any:
    def step(s: Any, r: Any) -> Any:
        s = s + r * r
        return s, np.sqrt(s)

    return np.sum(pb.scan(step, 0.0, x)[1])


def in_a_while(x: Any) -> Any:
    def step(state: Any) -> Any:
        k, s = state
        return k + 1, s + x[k] * x[k]

    return np.sqrt(pb.while_loop(lambda state: state[0] < 3, step, (0, 0.0))[1])


def in_a_branch(x: Any) -> Any:
    return pb.cond(np.sum(x) < 1.0, lambda x: np.sqrt(np.maximum(np.sum(x * x), 0.0)), lambda x: np.sum(x), x)


def python_loop(x: Any) -> Any:
    s = 0.0
    for k in range(3):
        s = s + x[k] * x[k]
    return np.sqrt(s)


def outside_of_a_loop(x: Any) -> Any:
    distance = np.sqrt(np.maximum(np.sum(x * x), 0.0))
    return pb.fori_loop(0, 3, lambda i, s: s + distance * x[i], distance)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f
    for f in (in_a_loop, roots_in_a_loop, in_a_scan, in_a_while, in_a_branch, python_loop, outside_of_a_loop)
} | {
    "gather": lambda x: np.sum(np.sqrt((x * np.abs(x))[np.array([0, 1, 0, 2])])),
    "transposed": lambda x: np.sum(np.sqrt(np.maximum(np.outer(x, x).T, 0.0))),
    "quadratic": lambda x: np.sqrt(x @ A @ x),
    "quadratic of both": lambda x: np.sqrt((x + 0) @ (A * (1 + x[0])) @ x),
    "chosen": lambda x: np.where(x[0] < 1, np.sqrt(np.maximum(np.sum(x**2), 0)), 0.0),
    "concatenated": lambda x: np.sqrt(np.maximum(np.sum(np.concatenate([x, x]) ** 2), 0)),
    "scaled": lambda x: 3.0 * np.sqrt(np.maximum(np.sum((x / 2.0) ** 2), 0)) / 7.0,
    "complex": lambda x: np.sqrt(np.maximum((x + 1j * x) @ np.conj(x + 1j * x), 0).real),
    "divided": lambda x: np.sqrt(np.maximum(np.sum(x**2) / (1 + x[0]), 0)),
    "exponent": lambda x: np.sum(np.exp(-np.sqrt(np.maximum(x**2, 0)))),
}  # fmt: skip


SOME = ("in_a_loop", "in_a_branch", "quadratic", "gather")


@pytest.mark.parametrize(("name", "dtype"), [*((name, np.float64) for name in PROGRAMS), *((name, np.float32) for name in SOME)])
def test_at_zero(name: str, dtype: Any) -> None:
    f, x = PROGRAMS[name], np.zeros(3, dtype)
    direction = np.array([1, 2, 3], dtype)
    gradient = pb.grad(f)

    @pb.jit
    def derivatives(x: Any) -> Any:
        second = pb.grad(lambda x: np.sum(gradient(x) * direction))(x)
        return gradient(x), pb.jvp(f, (x,), (direction,))[1], second, pb.jvp(gradient, (x,), (direction,))[1]

    first, along, second, again = derivatives(x)
    assert first.dtype == dtype
    np.testing.assert_array_equal(first, np.zeros(3))
    np.testing.assert_array_equal(along, 0.0)
    np.testing.assert_array_equal(second, again)
    assert np.isfinite(second).all()


@pytest.mark.parametrize("name", ["in_a_while", *SOME])
def test_rows_are_as_one_by_one(name: str) -> None:
    gradient = pb.grad(PROGRAMS[name])
    rows = np.array([[0.0, 0.0, 0.0], [0.5, 0.25, 0.125], [0.0, 0.0, 0.0]])
    result = pb.vmap(gradient)(rows)
    np.testing.assert_allclose(result, [gradient(row) for row in rows], rtol=1e-12)
    np.testing.assert_array_equal(result[0], np.zeros(3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_elsewhere_as_differences(name: str) -> None:
    f, x, h = PROGRAMS[name], np.array([0.5, 0.25, 0.125]), 1e-6
    differences = [(f(x + e) - f(x - e)) / (2 * h) for e in h * np.eye(3)]
    np.testing.assert_allclose(pb.grad(f)(x), differences, rtol=1e-7, atol=1e-8)


def test_partly_zero() -> None:
    """Elements that are not 0 have the derivatives that they have alone."""
    x = np.array([0.0, 2.0, 0.0])
    np.testing.assert_allclose(pb.grad(lambda x: np.sum(np.sqrt(np.maximum(x * x, 0))))(x), [0.0, 1.0, 0.0])
    rows = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]])
    result = pb.grad(lambda x: np.sum(np.sqrt(np.maximum(np.sum(x * x, axis=1), 0))))(rows)
    np.testing.assert_allclose(result, rows / 3)
    result = pb.grad(lambda a: np.sqrt(np.zeros(3) @ a @ np.zeros(3)))(A)
    np.testing.assert_array_equal(result, np.zeros((3, 3)))


def test_a_plain_root_stays_infinite() -> None:
    x = np.array([0.0, 4.0])
    np.testing.assert_array_equal(pb.grad(lambda x: np.sum(np.sqrt(x)))(x), [np.inf, 0.25])
    np.testing.assert_array_equal(pb.jvp(np.sqrt, (x,), (np.array([1.0, 1.0]),))[1], [np.inf, 0.25])
    np.testing.assert_array_equal(pb.jvp(np.sqrt, (x,), (np.array([0.0, 1.0]),))[1], [0.0, 0.25])
    np.testing.assert_array_equal(pb.grad(lambda x: np.sqrt(np.sum(x)))(np.zeros(2)), [np.inf, np.inf])
    assert np.isnan(pb.grad(lambda x: np.cos(np.sqrt(x)))(0.0)) and np.isnan(pb.grad(lambda x: x * np.sqrt(x))(0.0))


def test_a_softening_that_the_call_knows_costs_nothing() -> None:
    """A number under the root counts as positive: the gradient has no choices."""

    def energy(x: Any, softening: Any) -> Any:
        return np.sum(1 / np.sqrt(np.sum(x * x, axis=1) + softening))

    x = np.arange(6.0).reshape(3, 2)
    function = templated(trace(pb.grad(energy), [x, 0.5]).function).function
    built = run(grad(run(function, BEFORE_GRAD)), OPTIMIZE)
    assert not any(i.op.name == "select" for i in walk(built.body))
    np.testing.assert_allclose(pb.grad(energy)(x, 0.5), -x / (np.sum(x * x, axis=1, keepdims=True) + 0.5) ** 1.5)


def test_a_choice_inside_a_loop_that_is_not_chosen() -> None:
    """What a predicate inside a loop lets through is still masked by that of the whole loop, at order 2."""

    def f(x: Any) -> Any:
        h = pb.fori_loop(0, 3, lambda i, h: np.where(h < -50.0, np.sqrt(h - 100.0 + i) * x[0], x[1]), x[1] - 200.0)
        return np.where(x[2] > 50.0, h, x[0] * x[2])

    gradient = pb.grad(f)
    result = pb.grad(lambda x: np.sum(np.sin(gradient(x)) * np.array([1.0, 2.0, 3.0])))(np.array([0.7, 1.2, 0.4]))
    np.testing.assert_allclose(result, [3 * np.cos(0.7), 0.0, np.cos(0.4)])


@pytest.mark.parametrize(
    ("f", "hessian"),
    [
        (lambda x: 0.5 * np.linalg.norm(x) ** 2, np.eye(3)),
        (lambda x: np.sum(np.sqrt(x * x) ** 2), 2 * np.eye(3)),
        (lambda x: np.sum(np.abs(x + 0j) ** 2), 2 * np.eye(3)),
        (lambda x: np.sum(np.hypot(x, 2 * x) ** 2), 10 * np.eye(3)),
        (lambda x: np.linalg.norm(x) ** 4, np.zeros((3, 3))),
        (lambda x: (np.linalg.norm(x) / 5.0) ** 2, 2 / 25 * np.eye(3)),
        (lambda x: 0.5 * np.linalg.norm(x) * np.linalg.norm(x), np.eye(3)),
        (lambda x: np.sqrt(x @ A @ x) ** 2, 2 * A),
        (lambda x: np.linalg.norm(A @ x) ** 2, 2 * A.T @ A),
        (lambda x: pb.fori_loop(0, 2, lambda i, s: s + np.linalg.norm(x) ** 2, 0.0), 4 * np.eye(3)),
    ],
)
def test_even_powers_of_norms(f: Callable[[Any], Any], hessian: Any) -> None:
    np.testing.assert_allclose(pb.hessian(f)(np.zeros(3)), hessian, atol=1e-14)
    x = np.array([0.5, -0.25, 2.0])
    assert pb.value_and_grad(f)(x)[0] == pytest.approx(f(x), rel=1e-13)


def test_squares_overflow_where_they_did() -> None:
    """A factor is not squared by itself."""

    def f(x: Any, s: Any) -> Any:
        return (np.linalg.norm(x) / s) ** 2

    for x, s in ((np.array([1e-150]), 1e-170), (np.array([1e150]), 1e200), (np.array([0.0]), 1e-200)):
        assert pb.value_and_grad(f)(x, s)[0] == pytest.approx(f(x, s), rel=1e-12)
    assert pb.value_and_grad(lambda x: (np.hypot(x, x) / 1e200) ** 2)(1e200)[0] == pytest.approx(2.0)


def test_the_square_of_a_root_of_what_may_be_negative() -> None:
    value, slope = pb.vmap(pb.value_and_grad(lambda x: np.sqrt(x) ** 2))(np.array([-1.0, 0.0, 4.0]))
    np.testing.assert_array_equal(value, [np.nan, 0.0, 4.0])
    np.testing.assert_array_equal(slope, [np.nan, 1.0, 1.0])
