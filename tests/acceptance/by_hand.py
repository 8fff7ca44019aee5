"""Layers with the gradients of gradient tables, in NumPy: each gives its result and the function from the cotangent of that to
the cotangents of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def affine(x: Array, w: Array, b: Array) -> Any:
    return x @ w + b, lambda ct: (ct @ w.T, x.T @ ct, ct.sum(0))


def relu(x: Array) -> Any:
    return np.maximum(x, 0), lambda ct: ct * (x > 0)


def sigmoid(x: Array) -> Any:
    s = 1 / (1 + np.exp(-x))
    return s, lambda ct: ct * s * (1 - s)


def silu(x: Array) -> Any:
    s = 1 / (1 + np.exp(-x))
    return x * s, lambda ct: ct * (s + x * s * (1 - s))


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    return p, lambda ct: p * (ct - (ct * p).sum(1, keepdims=True))


def cross_entropy(x: Array, y: Array, eps: float = 1e-9) -> Any:
    """Return the cross-entropy of the softmax of x, and its backward function."""
    p, back = softmax(x)
    return -np.sum(y * np.log(p + eps)) / len(x), lambda ct: back(-ct / len(x) * y / (p + eps))


def conv2d(x: Array, w: Array, b: Array, stride: int = 1, pad: int = 0) -> Any:
    """One product for each offset in the filter."""
    (n, _, height, width), (f, _, hf, wf) = x.shape, w.shape
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    p, q = (height + 2 * pad - hf) // stride + 1, (width + 2 * pad - wf) // stride + 1
    offsets = [
        (i, j, np.s_[:, :, i : i + stride * p : stride, j : j + stride * q : stride]) for i in range(hf) for j in range(wf)
    ]
    out = np.zeros((n, f, p, q)) + b[:, None, None]
    for i, j, part in offsets:
        out += np.einsum("ncpq,fc->nfpq", wide[part], w[:, :, i, j])

    def back(ct: Array) -> Any:
        dwide, dw = np.zeros_like(wide), np.zeros_like(w)
        for i, j, part in offsets:
            dw[:, :, i, j] = np.einsum("nfpq,ncpq->fc", ct, wide[part])
            dwide[part] += np.einsum("nfpq,fc->ncpq", ct, w[:, :, i, j])
        return dwide[:, :, pad : pad + height, pad : pad + width], dw, ct.sum((0, 2, 3))

    return out, back


def depthwise(x: Array, w: Array, b: Array, stride: int = 1, pad: int = 0) -> Any:
    """A convolution whose filters see one channel each: w (C, 1, Hf, Wf)."""
    c = len(w)
    dense = np.zeros((c, c, *w.shape[2:]))
    dense[np.arange(c), np.arange(c)] = w[:, 0]
    out, dense_back = conv2d(x, dense, b, stride, pad)

    def back(ct: Array) -> Any:
        dx, dw, db = dense_back(ct)
        return dx, dw[np.arange(c), np.arange(c)][:, None], db

    return out, back


def conv2d_transpose(x: Array, w: Array, b: Array) -> Any:
    """Stride and filters of 2: each pixel becomes a tile. w (C, F, 2, 2)."""
    n, _, height, width = x.shape
    out = np.zeros((n, w.shape[1], 2 * height, 2 * width)) + b[:, None, None]
    corners = [(i, j, np.s_[:, :, i::2, j::2]) for i in (0, 1) for j in (0, 1)]
    for i, j, part in corners:
        out[part] += np.einsum("ncpq,cf->nfpq", x, w[:, :, i, j])

    def back(ct: Array) -> Any:
        dx, dw = np.zeros_like(x), np.zeros_like(w)
        for i, j, part in corners:
            dx += np.einsum("nfpq,cf->ncpq", ct[part], w[:, :, i, j])
            dw[:, :, i, j] = np.einsum("nfpq,ncpq->cf", ct[part], x)
        return dx, dw, ct.sum((0, 2, 3))

    return out, back


def batch_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Any:
    axes, gain = (0, 2, 3), gamma[:, None, None]
    c = x - x.mean(axes, keepdims=True)
    i = (np.mean(c * c, axes, keepdims=True) + eps) ** -0.5
    normal = c * i

    def back(ct: Array) -> Any:
        h = ct * gain
        dx = i * (h - h.mean(axes, keepdims=True) - normal * np.mean(h * normal, axes, keepdims=True))
        return dx, (ct * normal).sum(axes), ct.sum(axes)

    return normal * gain + beta[:, None, None], back


def max_pool(x: Array) -> Any:
    """Return the maxima of adjacent 2 x 2 windows, and the function that maps a cotangent of them to one of ``x``."""
    n, c, height, width = x.shape
    tiles = x.reshape(n, c, height // 2, 2, width // 2, 2)
    out = tiles.max((3, 5))

    def back(ct: Array) -> Array:
        return ((tiles == out[:, :, :, None, :, None]) * ct[:, :, :, None, :, None]).reshape(x.shape)

    return out, back


class Tape:
    """The cotangents of values of a network: each layer adds to those of its arguments, last layer first."""

    def __init__(self) -> None:
        self.layers: list[Any] = []

    def __call__(self, layer: Any, *arguments: Array, **options: Any) -> Array:
        out, back = layer(*arguments, **options)
        self.layers.append((out, arguments, back))
        return out

    def gradients(self, ct: Array, wanted: Any) -> list[Array]:
        """Return the gradients by the arrays of ``wanted``, which are identified by identity."""
        actual: dict[int, Array] = {id(self.layers[-1][0]): ct}
        for out, arguments, back in reversed(self.layers):
            results = back(actual[id(out)])
            for argument, result in zip(arguments, results if isinstance(results, tuple) else (results,)):
                actual[id(argument)] = actual.get(id(argument), 0) + result
        return [actual[id(array)] for array in wanted]


def add(x: Array, y: Array) -> Any:
    return x + y, lambda ct: (ct, ct)


def scale_channels(x: Array, weights: Array) -> Any:
    """x times weights (N, C, 1, 1)."""
    return x * weights, lambda ct: (ct * weights, (ct * x).sum((2, 3), keepdims=True))


def average(x: Array) -> Any:
    return x.mean((2, 3), keepdims=True), lambda ct: np.broadcast_to(ct / x[0, 0].size, x.shape)


def beside(x: Array, y: Array) -> Any:
    c = x.shape[1]
    return np.concatenate([x, y], 1), lambda ct: (ct[:, :c], ct[:, c:])


def flat(x: Array) -> Any:
    return x.reshape(len(x), -1), lambda ct: ct.reshape(x.shape)


def times(x: Array, constant: Array) -> Any:
    return x * constant, lambda ct: (ct * constant, 0)
