"""Distances of scipy.spatial.distance and the quantiser of scipy.cluster.vq, composed of array functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import refuse, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.user_code.errors import TraceError

Metric = Callable[..., Any]


def _norm(x: Any) -> Any:
    return xp.sqrt(xp.sum(x * x, axis=-1))


def _cosine(u: Any, v: Any) -> Any:
    return 1.0 - xp.sum(u * v, axis=-1) / (_norm(u) * _norm(v))


def _correlation(u: Any, v: Any) -> Any:
    return _cosine(u - xp.mean(u, axis=-1, keepdims=True), v - xp.mean(v, axis=-1, keepdims=True))


def _canberra(u: Any, v: Any) -> Any:
    size = xp.abs(u) + xp.abs(v)
    return xp.sum(xp.where(size == 0, 0.0, xp.abs(u - v) / xp.where(size == 0, 1.0, size)), axis=-1)


def _minkowski(u: Any, v: Any, p: Any = 2.0, w: Any = None) -> Any:
    if not p > 0:
        raise ValueError("p must be greater than 0")
    size = xp.abs(u - v)
    if p == math.inf:
        return xp.max(size, axis=-1)
    if w is None and p == 2:
        return _norm(u - v)
    terms = size**p if w is None else w * size**p
    total = xp.sum(terms, axis=-1)
    is_zero = total == 0
    return xp.where(is_zero, 0.0, xp.where(is_zero, 1.0, total) ** (1.0 / p))


_METRICS: dict[str, Metric] = {
    "euclidean": lambda u, v: _norm(u - v),
    "sqeuclidean": lambda u, v: xp.sum((u - v) ** 2, axis=-1),
    "cityblock": lambda u, v: xp.sum(xp.abs(u - v), axis=-1),
    "chebyshev": lambda u, v: xp.max(xp.abs(u - v), axis=-1),
    "cosine": _cosine,
    "correlation": _correlation,
    "canberra": _canberra,
    "braycurtis": lambda u, v: xp.sum(xp.abs(u - v), axis=-1) / xp.sum(xp.abs(u + v), axis=-1),
    "hamming": lambda u, v: xp.mean(u != v, axis=-1),
    "minkowski": _minkowski,
}


def _metric(name: Any, options: dict[str, Any]) -> Metric:
    if callable(name):
        name = next((k for k in _METRICS if getattr(name, "__name__", "") == k), name)
    metric = _METRICS.get(name) if isinstance(name, str) else None
    if metric is None:
        raise TraceError(
            f"scipy.spatial.distance with metric={name!r} is not supported with traced arrays; "
            f"use {', '.join(map(repr, _METRICS))}, or write its formula"
        )
    if name != "minkowski":
        refuse(f"scipy.spatial.distance ({name})", **options)
        return metric
    return lambda u, v: _minkowski(u, v, **options)


@twin_of("scipy.spatial.distance.cdist")
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    refuse("cdist", out=out)
    a, b = (cast(as_traced(v), np.float64) for v in (XA, XB))
    if a.ndim != 2:
        raise ValueError("XA must be a 2-dimensional array.")
    if b.ndim != 2:
        raise ValueError("XB must be a 2-dimensional array.")
    if a.shape[1] != b.shape[1]:
        raise ValueError("XA and XB must have the same number of columns (i.e. feature dimension.)")
    return _metric(metric, kwargs)(reshaped(a, (a.shape[0], 1, a.shape[1])), reshaped(b, (1, *b.shape)))


@twin_of("scipy.spatial.distance.pdist")
def pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    refuse("pdist", out=out)
    a = cast(as_traced(X), np.float64)
    if a.ndim != 2:
        raise ValueError("A 2-dimensional array must be passed.")
    first, second = np.triu_indices(a.shape[0], 1)
    return _metric(metric, kwargs)(xp.take(a, first, axis=0), xp.take(a, second, axis=0))


@twin_of("scipy.spatial.distance.squareform")
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    """Convert between a matrix and its condensed vector. Only the upper triangle of a matrix is read; symmetry is not checked."""
    x = as_traced(X)
    if x.ndim == 2 and force.lower() != "tomatrix":
        first, second = np.triu_indices(x.shape[0], 1)
        return x[first, second]
    if x.ndim != 1 or force.lower() == "tovector":
        raise ValueError("The first argument must be one or two dimensional array.")
    n = math.isqrt(2 * x.shape[0]) + 1
    if n * (n - 1) != 2 * x.shape[0]:
        raise ValueError("Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer n >= 2.")
    if n == 1:
        return xp.zeros((1, 1), x.dtype, like=x)
    index = np.zeros((n, n), np.int64)
    first, second = np.triu_indices(n, 1)
    index[first, second] = index[second, first] = lifted(np.arange, x.shape[0])
    return xp.where(lifted(np.eye, n, dtype=bool), np.zeros((), x.dtype), xp.take(x, index))


def _register_vector_metric(name: str) -> None:
    def evaluate(u: Any, v: Any, **kwargs: Any) -> Any:
        x, y = (cast(as_traced(a), np.float64) for a in (u, v))
        if x.ndim != 1 or y.ndim != 1:
            raise ValueError("Input vector should be 1-D.")
        return _metric(name, {k: w for k, w in kwargs.items() if w is not None})(x, y)

    twin_of(f"scipy.spatial.distance.{name}")(evaluate)


for _name in ("euclidean", "sqeuclidean", "cityblock", "chebyshev", "cosine", "correlation", "canberra", "braycurtis"):
    _register_vector_metric(_name)


@twin_of("scipy.spatial.distance.minkowski")
def minkowski(u: Any, v: Any, p: Any = 2, w: Any = None) -> Any:
    x, y = (cast(as_traced(a), np.float64) for a in (u, v))
    return _minkowski(x, y, p, w)


# scipy.cluster


@twin_of("scipy.cluster.vq.vq")
def vq(obs: Any, code_book: Any, check_finite: bool = True) -> Any:
    """Return the index of the nearest code of each observation, and its distance."""
    x, codes = as_traced(obs), as_traced(code_book)
    dtype = np.float32 if x.dtype == codes.dtype == np.float32 else np.float64
    if x.ndim != codes.ndim:
        raise ValueError("Observation and code_book should have the same rank")
    x, codes = cast(x, dtype), cast(codes, dtype)
    if x.ndim == 1:
        x, codes = reshaped(x, (x.shape[0], 1)), reshaped(codes, (codes.shape[0], 1))
    gaps = reshaped(x, (x.shape[0], 1, x.shape[1])) - reshaped(codes, (1, *codes.shape))
    squares = xp.sum(gaps * gaps, axis=-1)
    code = xp.argmin(squares, axis=-1)
    least = xp.min(squares, axis=-1)
    is_zero = least == 0
    return code.astype(np.int32), xp.where(is_zero, 0.0 * least, xp.sqrt(xp.where(is_zero, 1.0 + least, least)))
