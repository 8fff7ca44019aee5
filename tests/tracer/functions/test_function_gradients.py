"""Gradients through NumPy functions, written or indexed arrays included, agree with central differences of the values."""

import warnings
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.verify import verify
from pullback.tracer import gradient_call, trace
from tests.support.numpy_calls import JOINING, PRODUCTS, READS, REDUCTIONS, SHAPES, STATISTICS, Call, V, X, leaves
from tests.support.versions import known
from tests.tracer.test_assignment import WRITES, recurrence, write_cast


def weighted(call: Call) -> Call:
    """A scalar that every float64 element of a call's results counts in."""

    def loss(*xs: Any) -> Any:
        total = 0.0
        for k, result in enumerate(leaves(call(*xs))):
            if hasattr(result, "dtype") and result.dtype == np.float64:
                weights = 1.0 + np.cos(np.arange(result.size) + k).reshape(result.shape)
                total = total + np.sum(weights * np.sin(result))
        return total

    return loss


def check_gradient(call: Call, *xs: Any) -> None:
    loss = weighted(call)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        value = known(loss, *xs)
        if not np.isfinite(value) or value == 0.0:
            return
    result = trace(lambda *a: gradient_call(loss, a, argnums=tuple(range(len(a))))[2], xs)
    program = grad(result.function)
    verify(program)
    inputs = result.arguments(xs)
    assert inputs is not None
    gradients = interpret(program, *inputs)
    rng = np.random.default_rng(7)
    directions = [rng.normal(size=np.shape(x)) for x in xs]
    step = 1e-6
    above, below = (loss(*(x + s * step * d for x, d in zip(xs, directions, strict=True))) for s in (1, -1))
    expected = (above - below) / (2 * step)
    got = sum(float(np.sum(g * d)) for g, d in zip(gradients, directions, strict=True))
    assert got == pytest.approx(expected, rel=1e-6, abs=1e-6)


ONE: list[tuple[Call, Any]] = [
    *[(call, X) for call in REDUCTIONS + STATISTICS],
    *SHAPES,
    *JOINING,
    *READS,
    *[(call, X) for call in WRITES if call is not write_cast],
    (recurrence, V),
]


@pytest.mark.parametrize(("call", "x"), ONE)
def test_gradient(call: Call, x: Any) -> None:
    check_gradient(call, x)


@pytest.mark.parametrize(("call", "xs"), PRODUCTS)
def test_gradients_of_products(call: Call, xs: list[Any]) -> None:
    check_gradient(call, *xs)


def test_repeated_writes_count_once() -> None:
    def call(x: Any) -> Any:
        a = np.zeros(4)
        a[[1, 1, -3]] = x[:3]
        a[np.array([[0, 2], [2, 0]])] = x[1:].reshape(2, 2)
        return a * np.array([0.5, 1.5, -2.0, 3.0])

    check_gradient(call, V)


SPREADS: list[Call] = [
    lambda x: np.std(x),
    lambda x: np.sum(np.std(x, axis=0, keepdims=True)),
    lambda x: np.sqrt(np.mean((x - 1.0) ** 2)),
    lambda x: np.linalg.norm(x - 1.0) / x.size,
    lambda x: np.std(x[0, :1]) + np.squeeze(x[:1, :1]) * 0,
    lambda x: np.sqrt(0.3 * np.sum((x - 1.0) * (x - 1.0))),
]


@pytest.mark.parametrize("call", SPREADS)
def test_a_spread_of_nothing_has_gradient_zero(call: Call) -> None:
    np.testing.assert_array_equal(pb.grad(call)(np.ones((2, 3))), np.zeros((2, 3)))


def test_a_differentiated_factor_keeps_the_singular_point_of_sqrt() -> None:
    x = np.array([3.0, 4.0])
    assert pb.grad(lambda k: np.sqrt(k * np.sum(x * x)))(0.0) == np.inf
    assert pb.grad(lambda k: np.sqrt(k * np.sum(x * x)))(1.0) == 2.5
