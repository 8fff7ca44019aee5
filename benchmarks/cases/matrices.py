"""Objectives built on matrix products: logistic regression, a small network with Adam, gelu(x @ w + b)."""

from typing import Any

import numpy as np
from scipy.special import erf

import pullback as pb
from benchmarks.case import Arguments, Case, Work, both

Array = Any
ROOT_HALF = 0.7071067811865476
DENSITY = 0.3989422804014327
WIDTHS = {"inputs": 784, "first": 256, "second": 128, "classes": 10}
SMALL_WIDTHS = {"inputs": 12, "first": 9, "second": 7, "classes": 5}


def logreg(w: Array, x: Array, y: Array) -> Array:
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - y * z)


def logreg_by_hand(w: Array, x: Array, y: Array) -> Any:
    z = x @ w
    value = np.mean(np.logaddexp(z.dtype.type(0.0), z) - y * z)
    return value, (x.T @ (1.0 / (1.0 + np.exp(-z)) - y) / len(y),)


def classified(dtype: Any, rows: int, columns: int) -> Arguments:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(rows, columns)).astype(dtype)
    return (0.1 * rng.normal(size=columns)).astype(dtype), x, (rng.random(rows) < 0.5).astype(dtype)


def network(w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, x: Array, y: Array) -> Array:
    h1 = np.maximum(x @ w1 + b1, 0.0)
    h2 = np.maximum(h1 @ w2 + b2, 0.0)
    z = h2 @ w3 + b3
    z = z - np.max(z, axis=1, keepdims=True)
    log_p = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(log_p[np.arange(x.shape[0]), y])


def network_by_hand(w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, x: Array, y: Array) -> Any:
    h1 = np.maximum(x @ w1 + b1, 0.0)
    h2 = np.maximum(h1 @ w2 + b2, 0.0)
    z = h2 @ w3 + b3
    z -= np.max(z, axis=1, keepdims=True)
    e = np.exp(z)
    total = np.sum(e, axis=1, keepdims=True)
    rows, n = np.arange(len(x)), len(x)
    value = np.mean(np.log(total[:, 0]) - z[rows, y])
    dz = e / (total * n)
    dz[rows, y] -= 1.0 / n
    d2 = (dz @ w3.T) * (h2 > 0)
    d1 = (d2 @ w2.T) * (h1 > 0)
    parts = x.T @ d1, np.sum(d1, 0), h1.T @ d2, np.sum(d2, 0), h2.T @ dz, np.sum(dz, 0)
    return value, parts


def network_arguments(dtype: Any, batch: int, inputs: int, first: int, second: int, classes: int) -> Arguments:
    rng = np.random.default_rng(5)
    layers: list[Array] = []
    for rows, columns in ((inputs, first), (first, second), (second, classes)):
        layers.append((rng.normal(size=(rows, columns)) * (2.0 / rows) ** 0.5).astype(dtype))
        layers.append(np.zeros(columns, dtype))
    return *layers, rng.normal(size=(batch, inputs)).astype(dtype), rng.integers(0, classes, batch)


def adam(weights: Any, means: Any, squares: Any, t: Any, x: Array, y: Array) -> Any:
    """A whole step: the loss, and weights, means and squares after it."""
    value, gradients = pb.value_and_grad(network, argnums=(0, 1, 2, 3, 4, 5))(*weights, x, y)
    means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients)]
    squares = [0.999 * v + 0.001 * (g * g) for v, g in zip(squares, gradients)]
    rate, correction = 0.001 / (1.0 - 0.9**t), 1.0 - 0.999**t
    moved = [w - rate * m / (np.sqrt(v / correction) + 1e-8) for w, m, v in zip(weights, means, squares)]
    return value, moved, means, squares


def adam_by_hand(weights: Any, means: Any, squares: Any, t: Any, x: Array, y: Array) -> Any:
    value, gradients = network_by_hand(*weights, x, y)
    means = [0.9 * m + 0.1 * g for m, g in zip(means, gradients)]
    squares = [0.999 * v + 0.001 * (g * g) for v, g in zip(squares, gradients)]
    rate, correction = 0.001 / (1.0 - 0.9**t), 1.0 - 0.999**t
    moved = [w - rate * m / (np.sqrt(v / correction) + 1e-8) for w, m, v in zip(weights, means, squares)]
    return value, moved, means, squares


def adam_arguments(dtype: Any, **sizes: int) -> Arguments:
    *weights, x, y = network_arguments(dtype, **sizes)
    means = [np.full_like(w, 0.01) for w in weights]
    squares = [np.full_like(w, 0.01) for w in weights]
    return weights, means, squares, np.asarray(3.0, dtype), x, y


def gelu_mm(x: Array, w: Array, b: Array) -> Array:
    z = x @ w + b
    return 0.5 * z * (1.0 + erf(z * ROOT_HALF))


def gelu_loss(x: Array, w: Array, b: Array) -> Array:
    z = x @ w + b
    return np.mean(0.5 * z * (1.0 + erf(z * ROOT_HALF)))


def gelu_by_hand(x: Array, w: Array, b: Array) -> Any:
    z = x @ w + b
    phi = 0.5 * (1.0 + erf(z * ROOT_HALF))
    dz = (phi + z * np.exp(-0.5 * z * z) * DENSITY) / z.size
    return np.mean(z * phi), (dz @ w.T, x.T @ dz, np.sum(dz, axis=0))


def gelu_arguments(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(6)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in ((n, n), (n, n), (n,)))


def logreg_work(size: int, rows: int, columns: int) -> Work:
    return Work(reads=rows * columns * size)


def network_work(size: int, batch: int, inputs: int, first: int, second: int, classes: int) -> Work:
    weights = inputs * first + first * second + second * classes
    return Work(flops=6 * batch * weights - 2 * batch * inputs * first)


LOGREG = {
    "workload": "logreg",
    "function": logreg,
    "make": classified,
    "sizes": {"rows": 10**5, "columns": 100},
    "small": {"rows": 33, "columns": 6},
    "work": logreg_work,
}


def network_case(kind: str, batch: int, **rest: Any) -> Case:
    sizes, small = {"batch": batch, **WIDTHS}, {"batch": 6, **SMALL_WIDTHS}
    return Case(workload="mlp", name=f"{kind}-b{batch}", sizes=sizes, small=small, work=network_work, **rest)


def gelu_cases(n: int) -> list[Case]:
    shared = {"workload": "gelu_mm", "make": gelu_arguments, "sizes": {"n": n}, "small": {"n": 9}, "large": n > 1024}
    return [
        Case(
            **shared,
            name=f"fwd-{n}",
            function=gelu_mm,
            by_hand=gelu_mm,
            work=lambda size, n: Work(flops=2 * n**3),
            targets=both(0.95, 0.5, 1.2),
        ),
        Case(
            **shared,
            name=f"grad-{n}",
            function=gelu_loss,
            by_hand=gelu_by_hand,
            wanted=(0, 1, 2),
            work=lambda size, n: Work(flops=6 * n**3),
            targets=both(0.75, 0.5, 1.35),
        ),
    ]


def mlp_cases() -> list[Case]:
    grad = {"function": network, "by_hand": network_by_hand, "make": network_arguments, "wanted": (0, 1, 2, 3, 4, 5)}
    step = {"function": adam, "by_hand": adam_by_hand, "make": adam_arguments, "dtypes": ("float32",)}
    return [
        network_case("grad", 32, **grad, dtypes=("float32",), targets=both(0.6, 0.6, 2.0)),
        network_case("grad", 1024, **grad, targets=both(0.9, 0.6, 1.3)),
        network_case("adam", 32, **step, targets=both(0.45, 0.25)),
        network_case("adam", 1024, **step, targets=both(0.85, 0.45)),
    ]


CASES = [
    Case(**LOGREG, name="fwd-1e5x100", by_hand=logreg),
    Case(
        **LOGREG,
        name="grad-1e5x100",
        sets=("table", "regression"),
        by_hand=logreg_by_hand,
        wanted=(0,),
        targets=both(0.4, 0.7, 1.7),
    ),
    *mlp_cases(),
    *gelu_cases(1024),
    *gelu_cases(4096),
]
