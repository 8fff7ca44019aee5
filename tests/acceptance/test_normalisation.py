"""Normalisation: ``examples/layers/normalisation.py``."""

import math
import re
from typing import Any

import numpy as np
import pytest
from layers.normalisation import batch_norm1d, batch_norm2d, layer_norm, lrn

import pullback as pb
from tests.acceptance.checks import Program, check, cotangent, draw, in_dtypes

Array = Any
EPS = 1e-5


def along(x: Array, values: Array) -> Array:
    """Values of channels (axis 1), to be broadcast against x."""
    return np.expand_dims(values, tuple(range(1, x.ndim - 1)))


def statistics(x: Array, axes: Any) -> Any:
    """Mean and variance over axes, by loops."""
    kept = [k for k in range(x.ndim) if k not in axes]
    shape = [x.shape[k] for k in kept]
    means, variances = np.empty(shape), np.empty(shape)
    for position in np.ndindex(*shape):
        index: list[Any] = [slice(None)] * x.ndim
        for k, i in zip(kept, position, strict=True):
            index[k] = i
        numbers = [float(v) for v in x[tuple(index)].ravel()]
        means[position] = sum(numbers) / len(numbers)
        variances[position] = sum((v - means[position]) ** 2 for v in numbers) / len(numbers)
    return means, variances


def loop_batch_norm(x: Array, gamma: Array, beta: Array, mean: Array, var: Array, train: bool = True) -> Any:
    m, v = statistics(x, [k for k in range(x.ndim) if k != 1]) if train else (mean, var)
    out = np.empty(x.shape)
    for position in np.ndindex(*x.shape):
        c = position[1]
        out[position] = (x[position] - m[c]) / math.sqrt(v[c] + EPS) * gamma[c] + beta[c]
    return (out, 0.9 * mean + 0.1 * m, 0.9 * var + 0.1 * v) if train else (out, mean, var)


def batch_norm_gradients(G: Any, x: Array, gamma: Array, beta: Array, mean: Array, var: Array, train: bool = True) -> Any:
    """Return the gradients by x, gamma, beta and the averages, for cotangents of the output and the next averages."""
    axes = tuple(k for k in range(x.ndim) if k != 1)
    G, of_mean, of_var = G
    m, v = statistics(x, axes) if train else (mean, var)
    c = x - along(x, m)
    i = along(x, 1 / np.sqrt(v + EPS))
    hat, h = c * i, G * along(x, gamma)
    dgamma, dbeta = np.sum(G * hat, axis=axes), np.sum(G, axis=axes)
    if not train:
        dmean = -np.sum(h * i, axis=axes) + of_mean
        dvar = -0.5 * np.sum(h * c * i**3, axis=axes) + of_var
        return h * i, dgamma, dbeta, dmean, dvar
    dx = i * (h - np.mean(h, axis=axes, keepdims=True) - hat * np.mean(h * hat, axis=axes, keepdims=True))
    r = x.size // x.shape[1]
    longer = (
        h * i + 2 / r * c * np.sum(-0.5 * h * c * i**3, axis=axes, keepdims=True) + np.sum(-h * i, axis=axes, keepdims=True) / r
    )
    np.testing.assert_allclose(longer, dx, rtol=1e-9, atol=1e-12)
    dx = dx + along(x, 0.1 * of_mean) / r + along(x, 0.1 * of_var) * 2 * c / r
    return dx, dgamma, dbeta, 0.9 * of_mean, 0.9 * of_var


def loop_layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    m, v = statistics(x, [x.ndim - 1])
    out = np.empty(x.shape)
    for position in np.ndindex(*x.shape):
        row, k = position[:-1], position[-1]
        out[position] = (x[position] - m[row]) / math.sqrt(v[row] + EPS) * gamma[k] + beta[k]
    return out


def layer_norm_gradients(G: Array, x: Array, gamma: Array, beta: Array) -> Any:
    m, v = statistics(x, [x.ndim - 1])
    i = 1 / np.sqrt(v + EPS)[..., None]
    hat, h = (x - m[..., None]) * i, G * gamma
    dx = i * (h - np.mean(h, axis=-1, keepdims=True) - hat * np.mean(h * hat, axis=-1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    return dx, np.sum(G * hat, axis=rows), np.sum(G, axis=rows)


def window_sum(values: Array, reach: int) -> Array:
    out = np.zeros(values.shape)
    for c in range(values.shape[1]):
        for j in range(max(0, c - reach), min(values.shape[1], c + reach + 1)):
            out[:, c] += values[:, j]
    return out


def loop_lrn(x: Array, n: int, alpha: float, beta: float, k: float) -> Array:
    return x * (k + alpha * window_sum(x * x, n // 2)) ** -beta


def lrn_gradient(G: Array, x: Array, n: int, alpha: float, beta: float, k: float) -> Any:
    s = k + alpha * window_sum(x * x, n // 2)
    return (G * s**-beta - 2 * alpha * beta * x * window_sum(G * x * s ** (-beta - 1), n // 2),)


def batch_norm(f: Any, shape: Any, train: bool, seed: int = 0) -> Program:
    channels = (shape[1],)
    x, gamma, beta, mean = draw(shape, channels, channels, channels, seed=seed)
    (var,) = draw(channels, low=0.5)
    return Program(
        f=f,
        args=(x, gamma, beta, mean, var),
        oracle=loop_batch_norm,
        formula=batch_norm_gradients,
        options={"train": train},
    )


PROGRAMS = {
    "batch_norm1d, training": batch_norm(batch_norm1d, (7, 4), True),
    "batch_norm1d, in use": batch_norm(batch_norm1d, (7, 4), False),
    "batch_norm1d of two examples": batch_norm(batch_norm1d, (2, 3), True),
    "batch_norm2d, training": batch_norm(batch_norm2d, (3, 2, 5, 4), True),
    "batch_norm2d, in use": batch_norm(batch_norm2d, (3, 2, 5, 4), False),
    "batch_norm2d of one example": batch_norm(batch_norm2d, (1, 4, 3, 3), True),
    "layer_norm": Program(f=layer_norm, args=(*draw((6, 5), (5,), (5,)),), oracle=loop_layer_norm, formula=layer_norm_gradients),
    "layer_norm of sequences": Program(
        f=layer_norm, args=(*draw((2, 3, 7), (7,), (7,)),), oracle=loop_layer_norm, formula=layer_norm_gradients
    ),
    **{
        f"lrn over {n}": Program(
            f=lrn,
            args=(*draw((2, 6, 3, 2)),),
            oracle=loop_lrn,
            formula=lrn_gradient,
            options={"n": n, "alpha": 0.3, "beta": 0.75, "k": 1.5},
        )
        for n in (1, 4, 5)
    },
}


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_program(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], dtype)


def test_averages_are_state() -> None:
    """Averages go into the next step, and what they become is what use takes."""
    train, use = pb.jit(batch_norm1d), pb.jit(lambda *a: batch_norm1d(*a, train=False))
    batches = draw(*[(8, 3)] * 40, seed=5)
    gamma, beta, mean, var = np.ones(3), np.zeros(3), np.zeros(3), np.ones(3)
    for batch in batches:
        out, mean, var = train(2 + 3 * batch, gamma, beta, mean, var)
        np.testing.assert_allclose(np.mean(out, axis=0), np.zeros(3), atol=1e-12)
    weights = 0.1 * 0.9 ** np.arange(40)[::-1]
    np.testing.assert_allclose(mean, sum(w * np.mean(2 + 3 * x, axis=0) for w, x in zip(weights, batches)))
    out, again, _ = use(batches[0], gamma, beta, mean, var)
    np.testing.assert_array_equal(again, mean)
    np.testing.assert_allclose(out, (batches[0] - mean) / np.sqrt(var + EPS))


def test_batch_norm1d_as_published() -> None:
    """Figures of Apache SystemDS's test."""
    x, one, none = np.arange(1.0, 17.0).reshape(4, 4), np.ones(4), np.zeros(4)
    out, _, _ = pb.jit(batch_norm1d)(x, one, none, none, one)
    column = [-1.3416404, -0.4472135, 0.4472135, 1.3416404]
    np.testing.assert_allclose(out, np.transpose([column] * 4), rtol=0, atol=6e-8)


IMAGES = """
70 29 23 55 72 42 98 68 48 39 34 73 44 6 40 74 18 18 53 53
63 85 72 61 72 32 36 23 29 63 9 43 43 49 43 31 43 89 94 50
62 12 32 41 87 25 48 99 52 61 12 83 60 55 34 30 42 68 88 51
67 59 62 67 84 8 76 24 19 57 10 89 63 72 2 59 56 16 15 70
32 69 55 39 93 84 36 4 30 40 70 100 36 76 59 69 15 40 24 34
51 67 11 13 32 66 85 55 85 38 32 35 17 83 34 55 58 52 0 99
"""
NORMALISED = """
0.86215019 -0.76679718 -1.00517964 0.26619387 0.94161105 -0.25030172 1.97460198 0.78268933 -0.01191914 -0.36949289
-0.56814504 0.98134136 -0.17084086 -1.68059683 -0.32976246 1.02107191 -1.20383179 -1.20383179 0.18673301 0.18673301
0.50426388 1.41921711 0.87856293 0.42108631 0.87856293 -0.78498828 -0.61863315 -1.15928721 -0.90975463 0.50426388
-1.74153018 -0.32751167 -0.32751167 -0.07797909 -0.32751167 -0.82657707 -0.32751167 1.58557224 1.79351616 -0.0363903
0.4607178 -1.49978399 -0.71558321 -0.36269283 1.44096887 -0.99005347 -0.08822262 1.91148913 0.06861746 0.42150795
-1.49978399 1.28412855 0.38229787 0.18624771 -0.63716316 -0.79400325 -0.32348287 0.69597805 1.48017895 0.0294075
0.74295878 0.42511559 0.54430676 0.74295878 1.41837597 -1.60113597 1.10053277 -0.96544927 -1.16410136 0.34565473
-1.52167511 1.61702824 0.5840373 0.94161105 -1.83951855 0.42511559 0.30592418 -1.28329265 -1.32302308 0.86215019
-0.78498828 0.75379658 0.17155361 -0.4938668 1.75192738 1.37762833 -0.61863315 -1.9494741 -0.86816585 -0.45227802
0.79538536 2.04304862 -0.61863315 1.04491806 0.33790874 0.75379658 -1.49199748 -0.45227802 -1.11769855 -0.70181072
0.0294075 0.65676796 -1.53899395 -1.46057391 -0.71558321 0.61755812 1.36254871 0.18624771 1.36254871 -0.48032296
-0.71558321 -0.59795308 -1.30373383 1.28412855 -0.63716316 0.18624771 0.30387771 0.06861746 -1.97030437 1.91148913
"""


def test_batch_norm2d_as_published() -> None:
    """All figures of Apache SystemDS's test, which has eight decimals computed in single precision."""
    x = np.array(IMAGES.split(), float).reshape(2, 3, 4, 5)
    one, none = np.ones(3), np.zeros(3)
    for dtype in (np.float64, np.float32):
        out, _, _ = pb.jit(batch_norm2d)(*(a.astype(dtype) for a in (x, one, none, none, one)))
        np.testing.assert_allclose(out.ravel(), np.array(NORMALISED.split(), float), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["batch_norm1d, training", "batch_norm2d, training"])
def test_batch_norm_takes_two_reductions_back(name: str) -> None:
    """Two going forward and two back, over examples; and the normalised input is not read again."""
    f, (x, *others) = PROGRAMS[name].f, PROGRAMS[name].args

    def both(G: Array, *args: Array) -> Any:
        y, pull = pb.vjp(lambda *a: f(*a)[0], *args)
        return y, pull(G)[:3]

    forward, backward = halves(pb.jit(both).stages(x, x, *others)["simplify"])
    assert forward.count("= sum ") == 2
    assert backward.count("= sum ") == 2
    (normalised,) = re.findall(r"(%\d+): .* = div %\d+, %\d+\n.*\n.* = mul \1, ", forward)
    assert f"{normalised}," not in backward and f"{normalised} " not in backward


def test_batch_norm_keeps_means_and_deviations_alone() -> None:
    """The residuals are found without annotations; the normalised input, which SystemDS kept, is as large as the input."""
    x, gamma, beta, mean, var = PROGRAMS["batch_norm2d, training"].args
    weights = cotangent(x)
    f = pb.value_and_grad(lambda *a: np.sum(weights * batch_norm2d(*a, mean, var)[0]), argnums=(0, 1, 2))
    kept = [r.type for r in f.residuals(x, gamma, beta).residuals if r.kept == "memory"]
    assert kept == ["f64[2]", "f64[2]"]


def halves(text: str) -> tuple[str, str]:
    """Return the instructions of a simplified program: first the forward ones, then the ones that come from gradient rules."""
    lines = [line for line in str(text).splitlines() if " = " in line]
    back = [line for line in lines if line.lstrip().startswith("%d")]
    return "\n".join(line for line in lines if line not in back), "\n".join(back)
