"""Continuous distributions that are functions of uniform numbers. Parameters are floats or arrays, and draws have gradients by
them. All take ``shape`` (that of the parameters if None) and ``dtype`` (float64, float32, float16 or bfloat16)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.random.bits import Shape, float_dtype, logs, middle, parameters, static_shape, unit
from pullback.random.key import drawing, fold_in
from pullback.tracer import emit
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.functions.scipy.special.special import ndtr, ndtri


def standard_normal(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    p, is_low = middle(key, shape, dtype)
    z = ndtri(p)
    return xp.where(is_low, z, -z)


@drawing("shape", "dtype")
def normal(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Standard normal: ``scipy.special.ndtri`` of the middle of the cell of the uniform draw, which is the uniform draw plus
    2**-54 (float32: 2**-25)."""
    return standard_normal(key, static_shape(shape), float_dtype(dtype))


@drawing("shape", "dtype")
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """exp(sigma * normal)."""
    found, kind, (scale,) = parameters(shape, dtype, sigma)
    return xp.exp(scale * standard_normal(key, found, kind))


@drawing("shape", "dtype")
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Standard normal within [lower, upper], by the inverse of its distribution function, in the tail that is nearer."""
    found, kind, (low, high) = parameters(shape, dtype, lower, upper)
    is_right = low > 0.0
    left, right = xp.where(is_right, -high, low), xp.where(is_right, -low, high)
    below, above = ndtr(left), ndtr(right)
    u = unit(key, found, kind)
    z = xp.clip(ndtri(below + (above - below) * xp.where(is_right, 1.0 - u, u)), left, right)
    return xp.where(is_right, -z, z)


@drawing("shape", "dtype")
def exponential(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Exponential of mean 1."""
    return standard_exponential(key, static_shape(shape), float_dtype(dtype))


def standard_exponential(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return -logs(key, shape, dtype)[1]


@drawing("shape", "dtype")
def gumbel(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Gumbel's: -log of an exponential."""
    return standard_gumbel(key, static_shape(shape), float_dtype(dtype))


def standard_gumbel(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return -xp.log(-logs(key, shape, dtype)[0])


@drawing("shape", "dtype")
def laplace(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Laplace's, of scale 1."""
    p, is_low = middle(key, static_shape(shape), float_dtype(dtype))
    size = xp.log(2.0 * p)
    return xp.where(is_low, size, -size)


@drawing("shape", "dtype")
def logistic(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Logistic, of scale 1."""
    low, high = logs(key, static_shape(shape), float_dtype(dtype))
    return low - high


@drawing("shape", "dtype")
def cauchy(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Cauchy's, of scale 1."""
    p, is_low = middle(key, static_shape(shape), float_dtype(dtype))
    size = 1.0 / xp.tan(math.pi * p)
    return xp.where(is_low, -size, size)


@drawing("shape", "dtype")
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Pareto's on [1, infinity), with the density b * x**(-b - 1)."""
    found, kind, (power,) = parameters(shape, dtype, b)
    return xp.exp(standard_exponential(key, found, kind) / power)


@drawing("shape", "dtype")
def rayleigh(key: Any, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Rayleigh's."""
    found, kind, (size,) = parameters(shape, dtype, scale)
    return size * xp.sqrt(2.0 * standard_exponential(key, found, kind))


@drawing("shape", "dtype")
def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Weibull's: scale * exponential ** (1 / concentration)."""
    found, kind, (size, power) = parameters(shape, dtype, scale, concentration)
    return size * standard_exponential(key, found, kind) ** (1.0 / power)


@drawing("shape", "dtype")
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Triangular over [left, right]."""
    found, kind, (low, top, high) = parameters(shape, dtype, left, mode, right)
    u, width = unit(key, found, kind), high - low
    is_left = u * width < top - low
    up = low + xp.sqrt(xp.where(is_left, u * width * (top - low), 0.0))
    return xp.where(is_left, up, high - xp.sqrt((1.0 - u) * width * (high - top)))


@drawing("shape", "dtype")
def maxwell(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Maxwell's: the length of a vector of three normal numbers."""
    return _length(key, static_shape(shape), float_dtype(dtype))


def _length(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    z = standard_normal(key, (*shape, 3), dtype)
    return xp.sqrt(xp.sum(z * z, axis=-1))


@drawing("shape", "dtype")
def double_sided_maxwell(key: Any, loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """loc plus or minus scale times Maxwell's."""
    found, kind, (center, size) = parameters(shape, dtype, loc, scale)
    is_up = unit(fold_in(key, 1), found, kind) < 0.5
    length = _length(fold_in(key, 0), found, kind)
    return center + size * xp.where(is_up, length, -length)


@drawing("shape", "dtype")
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """The inverse Gaussian distribution of this mean and of scale 1 (Michael, Schucany, Haas, Generating random variates using
    transformations with multiple roots, 1976). The gradient by ``mean`` is implicit: the draw moves as its quantile does."""
    found, kind, (mu,) = parameters(shape, dtype, mean)
    z, u = standard_normal(fold_in(key, 0), found, kind), unit(fold_in(key, 1), found, kind)
    half = 0.5 * mu * z * z
    root = xp.sqrt(half * (half + 2.0))
    small = mu / (1.0 + half + root)
    return emit("inverse_gaussian_draw", mu, xp.where(u * (mu + small) <= mu, small, mu * (1.0 + half + root)))
