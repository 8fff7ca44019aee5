"""A convolutional network on 8 x 8 digits, as LeNet: two convolutions with pooling and a dense layer; and a step of descent."""

from typing import Any

import numpy as np

import pullback as pb
from benchmarks.case import Arguments, Case, Target

Array = Any
RATE = 0.1


def patches(x: Array) -> Array:
    """The 3 x 3 surroundings of each pixel of x (n, c, h, w): (n, c, h, w, 3, 3)."""
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))


def convolve(x: Array, w: Array) -> Array:
    return np.einsum("nchwij,fcij->nfhw", patches(x), w)


def pool(x: Array) -> Array:
    n, c, h, w = x.shape
    return np.max(x.reshape(n, c, h // 2, 2, w // 2, 2), axis=(3, 5))


def log_likelihood(z: Array, y: Array) -> Array:
    z = z - np.max(z, axis=1, keepdims=True)
    log_p = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return np.mean(log_p[np.arange(z.shape[0]), y])


def cnn(w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, x: Array, y: Array) -> Array:
    h = pool(np.maximum(convolve(x, w1) + b1[:, None, None], 0.0))
    h = pool(np.maximum(convolve(h, w2) + b2[:, None, None], 0.0))
    return -log_likelihood(h.reshape(x.shape[0], -1) @ w3 + b3, y)


def pool_by_hand(x: Array) -> Any:
    """The pooled array, and the function that takes its cotangent back; ties share."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    top = blocks.max(axis=(3, 5), keepdims=True)
    chosen = (blocks == top).astype(x.dtype)
    chosen /= chosen.sum(axis=(3, 5), keepdims=True)
    return top[:, :, :, 0, :, 0], lambda d: (chosen * d[:, :, :, None, :, None]).reshape(x.shape)


def layer_by_hand(x: Array, w: Array, b: Array) -> Any:
    z = convolve(x, w) + b[:, None, None]
    h, back_pool = pool_by_hand(np.maximum(z, 0.0))

    def back(d: Array) -> Any:
        dz = back_pool(d) * (z > 0)
        dw = np.einsum("nchwij,nfhw->fcij", patches(x), dz, optimize=True)
        return np.einsum("nfhwij,fcij->nchw", patches(dz), w[:, :, ::-1, ::-1], optimize=True), dw, dz.sum((0, 2, 3))

    return h, back


def cnn_by_hand(w1: Array, b1: Array, w2: Array, b2: Array, w3: Array, b3: Array, x: Array, y: Array) -> Any:
    h1, back1 = layer_by_hand(x, w1, b1)
    h2, back2 = layer_by_hand(h1, w2, b2)
    flat, rows, n = h2.reshape(len(x), -1), np.arange(len(x)), len(x)
    z = flat @ w3 + b3
    e = np.exp(z - np.max(z, axis=1, keepdims=True))
    dz = e / (np.sum(e, axis=1, keepdims=True) * n)
    dz[rows, y] -= 1.0 / n
    d2, dw2, db2 = back2((dz @ w3.T).reshape(h2.shape))
    _, dw1, db1 = back1(d2)
    return -log_likelihood(z, y), (dw1, db1, dw2, db2, flat.T @ dz, dz.sum(0))


def sgd(weights: Any, x: Array, y: Array) -> Any:
    value, gradients = pb.value_and_grad(cnn, argnums=(0, 1, 2, 3, 4, 5))(*weights, x, y)
    return value, [w - RATE * g for w, g in zip(weights, gradients)]


def sgd_by_hand(weights: Any, x: Array, y: Array) -> Any:
    value, gradients = cnn_by_hand(*weights, x, y)
    return value, [w - RATE * g for w, g in zip(weights, gradients)]


def digits(dtype: Any, batch: int) -> Arguments:
    rng = np.random.default_rng(14)
    shapes = ((8, 1, 3, 3), 0.5), ((8,), 0.1), ((16, 8, 3, 3), 0.2), ((16,), 0.1), ((64, 10), 0.2), ((10,), 0.1)
    weights = [(scale * rng.normal(size=shape)).astype(dtype) for shape, scale in shapes]
    return *weights, rng.normal(size=(batch, 1, 8, 8)).astype(dtype), rng.integers(0, 10, batch)


def step_arguments(dtype: Any, batch: int) -> Arguments:
    *weights, x, y = digits(dtype, batch)
    return weights, x, y


SHARED = {"workload": "cnn", "sizes": {"batch": 128}, "small": {"batch": 3}, "dtypes": ("float32",)}
AIM = {"targets": {"float32": Target(ad=0.8)}}
CASES = [
    Case(**SHARED, name="grad-b128", function=cnn, by_hand=cnn_by_hand, make=digits, wanted=(0, 1, 2, 3, 4, 5), **AIM),
    Case(**SHARED, name="sgd-b128", function=sgd, by_hand=sgd_by_hand, make=step_arguments, **AIM),
]
