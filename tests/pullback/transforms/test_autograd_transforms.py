"""The transforms of HIPS autograd, compared with its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
autograd = importlib.import_module("autograd")
ag = importlib.import_module("autograd.differential_operators")
anp = importlib.import_module("autograd.numpy")
RNG = np.random.default_rng(4)
X, W, V = RNG.uniform(0.3, 1.4, 3), RNG.normal(size=(2, 3)), RNG.normal(size=3)
Make = Callable[[Any, Any], Any]


def wave(np: Any, x: Any, s: Any = 2.0) -> Any:
    return np.sin(x) * np.exp(-x * s)


def energy(np: Any, x: Any, s: Any = 2.0) -> Any:
    return np.sum(np.cos(x * s) * x[0]) + np.prod(x)


def layer(np: Any, x: Any, w: Any = W) -> Any:
    return np.tanh(np.dot(w, x))


def both(transform: str, function: Any, *options: Any) -> tuple[Any, Any]:
    def with_numpy(numpy: Any) -> Any:
        return lambda *args: function(numpy, *args)

    theirs = getattr(autograd, transform, None) or getattr(ag, transform)
    return getattr(pb, transform)(with_numpy(np), *options), theirs(with_numpy(anp), *options)


def close(result: Any, expected: Any) -> None:
    if isinstance(expected, tuple | list):
        assert len(result) == len(expected)
        for a, b in zip(result, expected, strict=True):
            close(a, b)
        return
    assert np.shape(result) == np.shape(expected)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)


CALLS: list[tuple[str, Any, tuple[Any, ...], tuple[Any, ...]]] = [
    ("elementwise_grad", wave, (), (X, 2.0)),
    ("elementwise_grad", wave, (1,), (X, np.array([1.0, 2.0, 3.0]))),
    ("elementwise_grad", wave, ((0, 1),), (X, V)),
    ("elementwise_grad", layer, (), (X, W)),
    ("deriv", wave, (), (1.3, 2.0)),
    ("deriv", wave, (), (X, 2.0)),
    ("deriv", wave, (1,), (X, 0.5)),
    ("jacobian", layer, (), (X, W)),
    ("jacobian", layer, (1,), (X, W)),
    ("jacobian", energy, (), (X, 2.0)),
    ("hessian", energy, (), (X, 2.0)),
    ("hessian", energy, (1,), (X, 2.0)),
    ("hessian_tensor_product", energy, (), (X, 2.0, V)),
    ("hessian_vector_product", lambda np, w: np.sum(np.sin(w)) ** 2, (), (W, W + 1.0)),
    ("tensor_jacobian_product", layer, (), (X, W, V[:2])),
    ("vector_jacobian_product", layer, (1,), (X, W, V[:2])),
    ("tensor_jacobian_product", lambda np, x: np.outer(x, np.sin(x)), (), (X, V)),
    ("tensor_jacobian_product", lambda np, x: np.outer(x, np.sin(x)), (), (X, W.T @ W)),
    ("grad_and_aux", lambda np, x: (np.sum(x**2), np.sin(x)), (), (X,)),
    ("grad", energy, (1,), (X, 3.0)),
    ("value_and_grad", energy, (), (X, 3.0)),
]


@pytest.mark.parametrize(("transform", "function", "options", "args"), CALLS)
def test_results_are_those_of_autograd(transform: str, function: Any, options: Any, args: Any) -> None:
    ours, theirs = both(transform, function, *options)
    close(ours(*args), theirs(*args))
    close(pb.jit(lambda *xs: ours(*xs))(*args), theirs(*args))


MAKERS: list[tuple[str, Any, tuple[Any, ...], tuple[Any, ...], Any]] = [
    ("make_vjp", layer, (), (X, W), V[:2]),
    ("make_vjp", layer, (1,), (X, W), V[:2]),
    ("make_vjp", wave, (), (X, 2.0), V),
    ("make_hvp", energy, (), (X, 2.0), V),
    ("make_jvp", layer, (), (X, W), V),
    ("make_jvp", layer, (1,), (X, W), W * 2.0),
    ("make_jvp_reversemode", layer, (), (X, W), V),
    ("make_ggnvp", layer, (), (X, W), V),
]


@pytest.mark.parametrize(("transform", "function", "options", "args", "vector"), MAKERS)
def test_maps_are_those_of_autograd(transform: str, function: Any, options: Any, args: Any, vector: Any) -> None:
    ours, theirs = both(transform, function, *options)

    def use(make: Any) -> Any:
        built = make(*args)
        return [built[0](vector), built[1]] if isinstance(built, tuple) else built(vector)

    close(use(ours), use(theirs))
    close(pb.jit(lambda v: use(lambda *xs: ours(*xs)))(vector), use(theirs))


def test_an_outer_function_of_gauss_newton() -> None:
    def outer(numpy: Any) -> Any:
        return lambda y: numpy.sum(numpy.exp(y)) * y[0]

    ours = pb.make_ggnvp(lambda x: layer(np, x), outer(np))(X)(V)
    close(ours, ag.make_ggnvp(lambda x: layer(anp, x), outer(anp))(X)(V))
    jacobian, curvature = pb.jacobian(lambda x: layer(np, x))(X), pb.hessian(outer(np))(layer(np, X))
    close(ours, jacobian.T @ curvature @ jacobian @ V)


def test_gradients_by_name() -> None:
    def f(x: Array, y: Array = 2.0, *rest: Array, scale: Array = 3.0, **more: Array) -> Array:
        return np.sum(x) * y * scale + sum(rest) ** 2 + more.get("z", 0.0) ** 3

    close(pb.grad_named(f, "y")(X, 2.0), np.sum(X) * 3.0)
    result = pb.multigrad_dict(f)(X, 2.0, 5.0, 1.0, z=2.0)
    assert list(result) == ["x", "y", "rest", "scale", "more"]
    close(result["x"], np.full(3, 6.0))
    close(result["rest"], (12.0, 12.0))
    close(result["scale"], 2 * np.sum(X))
    close(result["more"]["z"], 12.0)
    close(pb.multigrad_dict(f)(X)["y"], np.sum(X) * 3.0)


@pytest.mark.parametrize("function", [lambda np, z: np.sin(z) * z**2, lambda np, z: np.exp(z) / (z + 1.0)])
def test_holomorphic_gradients(function: Any) -> None:
    ours, theirs = both("holomorphic_grad", function)
    close(ours(1.2 + 0.7j), theirs(1.2 + 0.7j))
    with pytest.raises(TypeError, match="real results"):
        pb.elementwise_grad(lambda z: function(np, z))(1.2 + 0.7j)


class Model:
    def loss(self, x: Array, s: Array) -> Array:
        return np.sum(np.sin(x) * s)

    slope = pb.elementwise_grad(loss)


def test_methods() -> None:
    model = Model()
    close(model.slope(X, 2.0), 2 * np.cos(X))
    hvp, gradient = pb.make_hvp(model.loss)(X, 2.0)
    close(gradient, 2 * np.cos(X))
    close(hvp(V), -2 * np.sin(X) * V)
    close(pb.make_jvp(model.loss)(X, 2.0)(V)[1], 2 * np.cos(X) @ V)
