"""The operator set of neural network frameworks: where each is checked at orders 1 and 2, and the checks of those that no other
test has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from layers.activations import softplus

import pullback as pb
from tests.acceptance.checks import close, cotangent, gradients
from tests.tables.floor import check_reverse, check_second, check_value, lines
from tests.tables.floor_calls import ROWS

Array = Any
Call = Callable[..., Any]
rng = np.random.default_rng(4)


def normal(*shape: int) -> Array:
    return rng.normal(size=shape)


def definite(*shape: int) -> Array:
    a = normal(*shape, 4, 4)
    return a @ np.swapaxes(a, -1, -2) + 4 * np.eye(4)


def depth_to_space(x: Array, size: int = 2) -> Array:
    n, c, h, w = x.shape
    tiles = x.reshape(n, size, size, c // size**2, h, w)
    return tiles.transpose(0, 3, 4, 1, 5, 2).reshape(n, c // size**2, h * size, w * size)


def scatter_add(x: Array, v: Array) -> Array:
    x = x.copy()
    np.add.at(x, [2, 0, 2], v)
    return x


def index_fill(x: Array, v: Array) -> Array:
    x = x.copy()
    x[:, [0, 2]] = v
    return x


X, Y, Z, ROW, COLUMN = normal(3, 4), normal(3, 4), normal(3, 4), normal(4), normal(3, 1)
POSITIVE, BLOCK = rng.uniform(0.3, 2.0, (3, 4)), normal(2, 3, 4)
WITH_ZEROS = np.array([[1.5, 0.0, -2.0, 0.7], [0.0, 1.1, 0.0, 2.0], [0.4, -1.0, 3.0, -0.2]])
CLASSES = np.eye(4)[[1, 3, 0]]

# Operators that the floor of functions has, by their names there: compiled, by differences, orders 1 and 2.
FLOOR = {
    "clip": "numpy.clip",
    "absolute value": "numpy.abs",
    "reciprocal": "numpy.reciprocal",
    "square root": "numpy.sqrt",
    "exponential": "numpy.exp",
    "logarithm": "numpy.log",
    "log1p": "numpy.log1p",
    **{name: f"numpy.{name}" for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh"]},
    **{name: f"numpy.{name}" for name in ["arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh"]},
    "error function": "scipy.special.erf",
    "maximum of two": "numpy.maximum",
    "minimum of two": "numpy.minimum",
    "reshape": "numpy.reshape",
    "transpose": "numpy.transpose",
    "squeeze": "numpy.squeeze",
    "expand": "numpy.expand_dims",
    "broadcast": "numpy.broadcast_to",
    "tile": "numpy.tile",
    "repeat": "numpy.repeat",
    "pad": "numpy.pad",
    "select": "numpy.select",
    "stack": "numpy.stack",
    "concatenate": "numpy.concatenate",
    "cumulative sum": "numpy.cumsum",
    "cross product": "numpy.cross",
    "diagonal matrix": "numpy.diag",
    "outer product": "numpy.outer",
    "inverse": "numpy.linalg.inv",
    "solve": "numpy.linalg.solve",
    "determinant": "numpy.linalg.det",
    "log-determinant": "numpy.linalg.slogdet",
    "cholesky": "numpy.linalg.cholesky",
}

# The others: a call and the arguments that it is differentiated by.
OWN: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "power by arrays": (lambda x, p: x**p, (POSITIVE, Y)),
    "power by a row": (np.power, (POSITIVE, ROW)),
    "integer powers of zero": (lambda x: x ** np.array([0, 1, 2, 3]), (WITH_ZEROS,)),
    "softplus": (softplus, (X,)),
    "softsign": (lambda x: x / (1 + np.abs(x)), (X,)),
    "hard sigmoid": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), (4 * X,)),
    "hard swish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), (4 * X,)),
    "maximum of three": (lambda x, y, z: np.maximum(np.maximum(x, y), z), (X, Y, Z)),
    "minimum of three": (lambda x, y, z: np.minimum(np.minimum(x, y), z), (X, Y, Z)),
    "where of broadcast branches": (lambda x, y, z: np.where(x > 0, y, z), (X, ROW, COLUMN)),
    "prelu": (lambda x, slope: np.where(x > 0, x, slope * x), (X, ROW)),
    "slice with steps": (lambda x: x[::2, ::-3] * x[-1, 1::2], (X,)),
    "gather": (lambda x: x[[2, 0, 2, -1]] * x[[1, 1, 0, 2]], (X,)),
    "scatter-add": (scatter_add, (X, Y)),
    "index fill": (index_fill, (X, COLUMN)),
    "split with a part unused": (lambda x: [np.split(x, [1, 3], axis=1)[k] ** 2 for k in (0, 2)], (X,)),
    "one-hot product": (lambda x: np.sum(CLASSES * x, axis=1), (X,)),
    **{
        f"{name} {'with' if keep else 'without'} keepdims": (
            lambda x, f=f, keep=keep: f(x, axis=(0, 2), keepdims=keep) * np.sum(x**2),
            (BLOCK,),
        )
        for name, f in {"sum": np.sum, "mean": np.mean, "variance": np.var}.items()
        for keep in (True, False)
    },
    "variance of samples": (lambda x: np.var(x, axis=(0, 2), ddof=1), (BLOCK,)),
    "norm with keepdims": (lambda x: np.linalg.norm(x, axis=(0, 2), keepdims=True), (BLOCK,)),
    "norm without keepdims": (lambda x: np.linalg.norm(x, axis=-1), (BLOCK,)),
    "cumulative product with zeros": (lambda x: np.cumprod(x, axis=1), (WITH_ZEROS,)),
    "cosine similarity": (
        lambda x, y: np.sum(x * y, 1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)),
        (X, Y),
    ),
    "euclidean distance": (lambda x, y: np.sqrt(np.sum((x[:, None] - y) ** 2, axis=-1)), (X, Y)),
    "matmul batched": (np.matmul, (normal(2, 3, 4), normal(2, 4, 2))),
    "matmul broadcast": (np.matmul, (normal(2, 1, 3, 4), normal(5, 4, 2))),
    "cholesky solve": (
        lambda a, b: scipy.linalg.cho_solve((np.linalg.cholesky(a @ a.T + 4 * np.eye(4)), True), b),
        (normal(4, 4), ROW),
    ),
    "pseudo-inverse of more rows": (np.linalg.pinv, (normal(5, 3),)),
    "pseudo-inverse of more columns": (np.linalg.pinv, (normal(3, 5),)),
    "cast": (lambda x: x.astype(np.float32).astype(np.float64) * 0 + x * x.astype(int), (3 * X,)),
    "stop gradient": (lambda x: x * pb.stop_gradient(0 * x + 2.5), (X,)),
    "depth to space": (lambda x: depth_to_space(x) ** 2, (normal(2, 8, 2, 3),)),
}
ZERO = {"sign": np.sign, "round": np.round, "floor": np.floor}


@pytest.mark.parametrize("name", FLOOR)
def test_the_floor_has_it(name: str) -> None:
    (line,) = [line for line in lines() if line.name == FLOOR[name]]
    assert line.name in ROWS and not line.is_zero


@pytest.mark.parametrize("name", OWN)
def test_operator(name: str) -> None:
    call, arguments = OWN[name]
    if name != "stop gradient":
        check_value(call, arguments)
    check_reverse(call, arguments)
    check_second(call, arguments)


@pytest.mark.parametrize("name", ZERO)
def test_no_slope(name: str) -> None:
    call = ZERO[name]
    np.testing.assert_array_equal(pb.grad(lambda x: np.sum(call(x) * Y))(3 * X), np.zeros_like(X))


# The printed formulas: a call, its arguments, and its gradients for a cotangent.
A, B, S = normal(4, 4) + 3 * np.eye(4), normal(4, 3), definite()
FORMULAS: dict[str, tuple[Call, tuple[Any, ...], Call]] = {
    "inverse": (np.linalg.inv, (A,), lambda g, a: [-np.linalg.inv(a).T @ g @ np.linalg.inv(a).T]),
    "log-determinant": (lambda a: np.linalg.slogdet(a)[1], (A,), lambda g, a: [g * np.linalg.inv(a).T]),
    "solve": (
        np.linalg.solve,
        (A, B),
        lambda g, a, b: [-np.linalg.solve(a.T, g) @ np.linalg.solve(a, b).T, np.linalg.solve(a.T, g)],
    ),
    "cross product": (np.cross, (normal(5, 3), normal(5, 3)), lambda g, a, b: [np.cross(b, g), np.cross(g, a)]),
    "variance": (
        lambda x: np.var(x, axis=(0, 2), ddof=1, keepdims=True),
        (BLOCK,),
        lambda g, x: [2 * g * (x - x.mean((0, 2), keepdims=True)) / (x[:, 0].size - 1)],
    ),
    "norm": (
        lambda x: np.linalg.norm(x, axis=1, keepdims=True),
        (X,),
        lambda g, x: [g * x / np.linalg.norm(x, axis=1, keepdims=True)],
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name: str) -> None:
    call, arguments, formula = FORMULAS[name]
    g = cotangent(call(*arguments))
    close(gradients(call, g, *arguments)[1], formula(g, *arguments), 1e-10)
