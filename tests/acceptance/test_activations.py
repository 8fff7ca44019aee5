"""Functions of one number: ``examples/layers/activations.py``."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layers.activations import dropout, elu, gelu, leaky_relu, relu, selu, sigmoid, silu, softplus, tanh

import pullback as pb
from tests.acceptance.checks import Program, check, draw, gradients, in_dtypes

Array = Any
A, L = 1.6732632423543772, 1.0507009873554805
K, C = math.sqrt(2 / math.pi), 0.044715
X = np.array([1, -0.5, 0, 2, 0.5, -1.5, -2])


def sigma(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def bell(x: float) -> float:
    return (1 + math.tanh(K * (x + C * x**3))) / 2


def gelu_slope(x: float) -> float:
    t = math.tanh(K * (x + C * x**3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * K * (1 + 3 * C * x * x)


# name: the function, its options, its value and its slope for one number
TABLE: dict[str, tuple[Any, dict[str, float], Callable[..., float], Callable[..., float]]] = {
    "relu": (relu, {}, lambda x: max(0.0, x), lambda x: 1.0 if x > 0 else 0.0),
    "leaky_relu": (leaky_relu, {}, lambda x: max(x, 0.01 * x), lambda x: 1.0 if x > 0 else 0.01),
    "leaky_relu 0.3": (leaky_relu, {"slope": 0.3}, lambda x: max(x, 0.3 * x), lambda x: 1.0 if x > 0 else 0.3),
    "elu": (elu, {}, lambda x: x if x > 0 else math.exp(x) - 1, lambda x: 1.0 if x > 0 else math.exp(x)),
    "elu 0.7": (
        elu, {"alpha": 0.7}, lambda x: x if x > 0 else 0.7 * (math.exp(x) - 1), lambda x: 1.0 if x > 0 else 0.7 * math.exp(x)
    ),
    "selu": (selu, {}, lambda x: L * x if x > 0 else L * A * (math.exp(x) - 1), lambda x: L if x > 0 else L * A * math.exp(x)),
    "gelu": (gelu, {}, lambda x: x * bell(x), gelu_slope),
    "sigmoid": (sigmoid, {}, sigma, lambda x: sigma(x) * sigma(-x)),
    "silu": (silu, {}, lambda x: x * sigma(x), lambda x: sigma(x) + x * sigma(x) * sigma(-x)),
    "softplus": (softplus, {}, lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))), sigma),
    "tanh": (tanh, {}, math.tanh, lambda x: 4 * sigma(2 * x) * sigma(-2 * x)),
}  # fmt: skip


def program(name: str, x: Array, smooth: bool = True) -> Program:
    function, options, value, slope = TABLE[name]
    return Program(
        f=lambda x: function(x, **options),
        args=(x,),
        oracle=np.vectorize(value, otypes=[float]),
        formula=lambda G, x: (G * np.vectorize(slope, otypes=[float])(x),),
        smooth=smooth,
    )


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(TABLE))
def test_program(name: str, dtype: Any) -> None:
    check(program(name, *draw((3, 5), low=-4, high=4)), dtype)
    check(program(name, X, smooth=False), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", ["sigmoid", "silu", "softplus", "tanh", "elu", "selu", "gelu"])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_far_from_zero(name: str, dtype: Any) -> None:
    check(program(name, np.array([-800.0, -100.0, 100.0, 800.0]), smooth=False), dtype)
    slope = pb.elementwise_grad(TABLE[name][0])
    assert np.all(np.isfinite(pb.elementwise_grad(slope)(np.array([-800.0, 800.0], dtype))))


# Figures of Apache SystemDS's tests of these layers, with the slopes that follow from them.
PUBLISHED = {
    "gelu": (
        [0.8411919906, -0.1542859902, 0, 1.9545976941, 0.3457140098, -0.100428423, -0.0454023059],
        [1.0829640838, 0.1326300965, 0.5, 1.0860992566, 0.8673699035, -0.1277107932, -0.0860992566],
    ),
    "selu": (
        [1.0507009874, -0.6917581878, 0, 2.1014019747, 0.5253504937, -1.3658143534, -1.5201664686],
        [1.0507009874, 1.066341153, 1.7580993408, 1.0507009874, 1.0507009874, 0.3922849875, 0.2379328723],
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_published(name: str) -> None:
    values, slopes = PUBLISHED[name]
    y, (dx,) = gradients(TABLE[name][0], np.ones(7), X)
    np.testing.assert_allclose(y, values, rtol=0, atol=6e-11)
    np.testing.assert_allclose(dx, slopes, rtol=0, atol=6e-11)


def test_elu_as_published() -> None:
    x = np.array([0.3923, -0.2236, -0.3195, -1.2050, 1.0445, -0.6332, 0.5731, 0.5409, -0.3919, -1.0427])
    y, (dx,) = gradients(elu, x, x)
    values = [0.3923, -0.2003, -0.2735, -0.7003, 1.0445, -0.4691, 0.5731, 0.5409, -0.3242, -0.6475]
    slopes = [0.3923, -0.1788, -0.2321, -0.3611, 1.0445, -0.3362, 0.5731, 0.5409, -0.2648, -0.3676]
    np.testing.assert_allclose(y, values, rtol=0, atol=1e-4)
    np.testing.assert_allclose(dx, slopes, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dropout(dtype: Any) -> None:
    key, (x,) = pb.random.key(5), draw((40, 50), low=0.5)
    mask = np.asarray(pb.random.bernoulli(key, 0.8, x.shape))
    assert 0.75 < mask.mean() < 0.85
    check(
        Program(
            f=lambda x: dropout(x, key, 0.8),
            args=(x,),
            oracle=lambda x: mask * x / 0.8,
            formula=lambda G, x: (G * mask / 0.8,),
        ),
        dtype,
    )


def test_gelu_with_its_gradient_is_one_kernel() -> None:
    text = pb.value_and_grad(lambda x: np.sum(gelu(x) ** 2)).stages(np.ones((64, 128)))["lower"]
    assert text.count("\nkernel ") == 1
    assert text.count("= tanh ") == 1
