"""Structured matrices of scipy.linalg, composed of reads at static positions."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_shapes, broadcast_to, emit, expand, full, promote
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg.solve import conjugate
from pullback.tracer.functions.numpy.products import strong
from pullback.tracer.functions.scipy.linalg.arguments import scipy_twin


@scipy_twin("block_diag")
def block_diag(*arrs: Any) -> TracedArray:
    blocks = [strong(a) for a in arrs]
    blocks = promote(*(expand(a, range(2 - a.ndim)) if a.ndim < 2 else a for a in blocks))
    batch = broadcast_shapes(*(a.shape[:-2] for a in blocks))
    columns = sum(a.shape[-1] for a in blocks)
    rows, before = [], 0
    for a in blocks:
        height, width = a.shape[-2:]
        sides = [full((*batch, height, n), 0, a.dtype) for n in (before, columns - before - width)]
        rows.append(xp.concatenate([sides[0], broadcast_to(a, (*batch, height, width)), sides[1]], -1))
        before += width
    return xp.concatenate(rows, -2)


def _vectors(x: Any, since: str) -> TracedArray:
    """Return vectors along the last axis, a number as a vector of one element; SciPy before version ``since`` ravels the
    array."""
    array = strong(x)
    return array if array.ndim and np.lib.NumpyVersion(import_module("scipy").__version__) >= since else xp.ravel(array)


@scipy_twin("toeplitz")
def toeplitz(c: Any, r: Any = None) -> TracedArray:
    first = _vectors(c, "1.17.0")
    row = conjugate(first) if r is None else _vectors(r, "1.17.0")
    first, row = promote(first, row)
    batch = broadcast_shapes(first.shape[:-1], row.shape[:-1])
    n, m = first.shape[-1], row.shape[-1]
    first, row = broadcast_to(first, (*batch, n)), broadcast_to(row, (*batch, m))
    values = xp.concatenate([first[..., ::-1], row[..., 1:]], -1)
    return values[..., n - 1 - lifted(np.arange, n)[:, None] + lifted(np.arange, m)]


@scipy_twin("hankel")
def hankel(c: Any, r: Any = None) -> TracedArray:
    first = xp.ravel(strong(c))
    first, last = promote(first, xp.zeros_like(first) if r is None else xp.ravel(strong(r)))
    values = xp.concatenate([first, last[1:]])
    return values[lifted(np.arange, first.shape[0])[:, None] + lifted(np.arange, last.shape[0])]


@scipy_twin("circulant")
def circulant(c: Any) -> TracedArray:
    return circulants(_vectors(c, "1.15.0"))


def circulants(x: TracedArray) -> TracedArray:
    """Return the circulant matrix of each vector along the last axis."""
    n = lifted(np.arange, x.shape[-1])
    return x[..., (n[:, None] - n) % max(len(n), 1)]


@scipy_twin("companion")
def companion(a: Any) -> TracedArray:
    x = as_traced(a)
    n = x.shape[-1] if x.ndim else 0
    if n < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2.")
    emit("check", x[..., 0] != 0, error="ValueError", message="The first coefficient(s) of `a` must not be zero.")
    row = (-x[..., 1:] / (1.0 * x[..., :1]))[..., None, :]
    below = lifted(np.eye, n - 2, n - 1, dtype=row.dtype)
    return xp.concatenate([row, broadcast_to(as_traced(below), (*x.shape[:-1], n - 2, n - 1))], -2)


@scipy_twin("convolution_matrix")
def convolution_matrix(a: Any, n: int, mode: str = "full") -> TracedArray:
    if n <= 0:
        raise ValueError("n must be a positive integer.")
    x = as_traced(a)
    if not x.shape or x.shape[-1] == 0:
        raise ValueError("len(a) must be at least 1.")
    if mode not in ("full", "valid", "same"):
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    m = x.shape[-1]
    first, count = 0, m + n - 1
    if mode == "same":
        trim = min(n, m) - 1
        first, count = trim // 2, count - trim
    if mode == "valid":
        trim = min(n, m) - 1
        first, count = trim, count - 2 * trim
    at = first + lifted(np.arange, count)[:, None] - lifted(np.arange, n)
    inside = (at >= 0) & (at < m)
    result: TracedArray = xp.where(inside, x[..., np.clip(at, 0, m - 1)], x.dtype.type(0))
    return result


@scipy_twin("fiedler")
def fiedler(a: Any) -> TracedArray:
    x = as_traced(a)
    if x.size < 2:
        return as_traced(np.zeros((1, 1) if x.size else 0))
    return xp.abs(x[..., :, None] - x[..., None, :])


@scipy_twin("fiedler_companion")
def fiedler_companion(a: Any) -> TracedArray:
    """Return the pentadiagonal companion matrix of a polynomial's coefficients."""
    x = as_traced(a)
    n = x.shape[-1] if x.ndim else 0
    if n <= 2:
        return x[..., :0] if n < 2 else -(x[..., 1:] / x[..., :1])[..., None]
    emit("check", x[..., 0] != 0, error="ValueError", message="Leading coefficient is zero.")
    x = x / x[..., :1]
    order = n - 1
    at = np.zeros((order, order), np.intp)
    at[range(3, order, 2), range(1, order - 2, 2)] = 1
    at[range(2, order, 2), range(1, order - 1, 2)] = 2 + lifted(np.arange, 3, n, 2)
    at[range(0, order - 2, 2), range(2, order, 2)] = 1
    at[range(0, order - 1, 2), range(1, order, 2)] = 2 + lifted(np.arange, 2, n, 2)
    at[[0, 1], 0] = 3, 1
    return xp.concatenate([xp.zeros_like(x[..., :1]), xp.ones_like(x[..., :1]), -x], -1)[..., at]


@scipy_twin("leslie")
def leslie(f: Any, s: Any) -> TracedArray:
    x, y = promote(strong(f), strong(s))
    n = x.shape[-1]
    if n != y.shape[-1] + 1:
        raise ValueError(
            f"Incorrect lengths for f and s. The length of s along the last axis must be one less than the length of f. "
            f"Got f.shape={x.shape}, s.shape={y.shape}"
        )
    if not y.shape[-1]:
        raise ValueError("The length of s must be at least 1.")
    batch = broadcast_shapes(x.shape[:-1], y.shape[:-1])
    x, y = broadcast_to(x, (*batch, n)), broadcast_to(y, (*batch, n - 1))
    rates = xp.pad(y, [(0, 0)] * len(batch) + [(0, 1)])[..., None, :]
    below = xp.where(lifted(np.eye, n - 1, n, dtype=bool), rates, x.dtype.type(0))
    return xp.concatenate([x[..., None, :], below], -2)


@scipy_twin("khatri_rao")
def khatri_rao(a: Any, b: Any) -> TracedArray:
    x, y = as_traced(a), as_traced(b)
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError("The both arrays should be 2-dimensional.")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("The number of columns for both arrays should be equal.")
    products = x[..., :, None, :] * y[..., None, :, :]
    return reshaped(products, (*products.shape[:-3], math.prod(products.shape[-3:-1]), products.shape[-1]))
