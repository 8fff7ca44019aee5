"""Continuous distributions computed from uniform numbers.

Parameters are floats or arrays, and draws have gradients by them. All functions take ``shape`` (by default the shape of the
parameters) and ``dtype`` (float64, float32, float16 or bfloat16).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.random.bits import Shape, cell_midpoint, float_dtype, logs, parameters, static_shape, unit_uniform
from pullback.random.key import drawing, fold_in
from pullback.tracer import emit
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.functions.scipy.special.special import ndtr, ndtri


def standard_normal(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    p, is_low = cell_midpoint(key, shape, dtype)
    z = ndtri(p)
    return xp.where(is_low, z, -z)


@drawing("shape", "dtype")
def normal(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw standard normal numbers: ``scipy.special.ndtri`` of the midpoint of the uniform draw's cell, which is the uniform
    draw plus 2**-54 (float32: 2**-25)."""
    return standard_normal(key, static_shape(shape), float_dtype(dtype))


@drawing("shape", "dtype")
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw exp(sigma * normal)."""
    extents, kind, (scale,) = parameters(shape, dtype, sigma)
    return xp.exp(scale * standard_normal(key, extents, kind))


@drawing("shape", "dtype")
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw standard normal numbers within [lower, upper], by the inverse of the distribution function in the nearer tail."""
    extents, kind, (low, high) = parameters(shape, dtype, lower, upper)
    is_right = low > 0.0
    left, right = xp.where(is_right, -high, low), xp.where(is_right, -low, high)
    below, above = ndtr(left), ndtr(right)
    u = unit_uniform(key, extents, kind)
    z = xp.clip(ndtri(below + (above - below) * xp.where(is_right, 1.0 - u, u)), left, right)
    return xp.where(is_right, -z, z)


@drawing("shape", "dtype")
def exponential(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the exponential distribution of mean 1."""
    return standard_exponential(key, static_shape(shape), float_dtype(dtype))


def standard_exponential(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return -logs(key, shape, dtype)[1]


@drawing("shape", "dtype")
def gumbel(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Gumbel distribution: -log of an exponential variable."""
    return standard_gumbel(key, static_shape(shape), float_dtype(dtype))


def standard_gumbel(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return -xp.log(-logs(key, shape, dtype)[0])


@drawing("shape", "dtype")
def laplace(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Laplace distribution of scale 1."""
    p, is_low = cell_midpoint(key, static_shape(shape), float_dtype(dtype))
    size = xp.log(2.0 * p)
    return xp.where(is_low, size, -size)


@drawing("shape", "dtype")
def logistic(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the logistic distribution of scale 1."""
    low, high = logs(key, static_shape(shape), float_dtype(dtype))
    return low - high


@drawing("shape", "dtype")
def cauchy(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Cauchy distribution of scale 1."""
    p, is_low = cell_midpoint(key, static_shape(shape), float_dtype(dtype))
    size = 1.0 / xp.tan(math.pi * p)
    return xp.where(is_low, -size, size)


@drawing("shape", "dtype")
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the Pareto distribution on [1, infinity), with the density b * x**(-b - 1)."""
    extents, kind, (power,) = parameters(shape, dtype, b)
    return xp.exp(standard_exponential(key, extents, kind) / power)


@drawing("shape", "dtype")
def rayleigh(key: Any, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the Rayleigh distribution."""
    extents, kind, (size,) = parameters(shape, dtype, scale)
    return size * xp.sqrt(2.0 * standard_exponential(key, extents, kind))


@drawing("shape", "dtype")
def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the Weibull distribution: scale * exponential ** (1 / concentration)."""
    extents, kind, (size, power) = parameters(shape, dtype, scale, concentration)
    return size * standard_exponential(key, extents, kind) ** (1.0 / power)


@drawing("shape", "dtype")
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the triangular distribution over [left, right]."""
    extents, kind, (low, top, high) = parameters(shape, dtype, left, mode, right)
    u, width = unit_uniform(key, extents, kind), high - low
    is_left = u * width < top - low
    up = low + xp.sqrt(xp.where(is_left, u * width * (top - low), 0.0))
    return xp.where(is_left, up, high - xp.sqrt((1.0 - u) * width * (high - top)))


@drawing("shape", "dtype")
def maxwell(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Maxwell distribution: the length of a vector of three normal numbers."""
    return _length(key, static_shape(shape), float_dtype(dtype))


def _length(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    z = standard_normal(key, (*shape, 3), dtype)
    return xp.sqrt(xp.sum(z * z, axis=-1))


@drawing("shape", "dtype")
def double_sided_maxwell(key: Any, loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw loc plus or minus scale times a Maxwell variable."""
    extents, kind, (center, size) = parameters(shape, dtype, loc, scale)
    is_up = unit_uniform(fold_in(key, 1), extents, kind) < 0.5
    length = _length(fold_in(key, 0), extents, kind)
    return center + size * xp.where(is_up, length, -length)


@drawing("shape", "dtype")
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the inverse Gaussian distribution of this mean and of scale 1 (Michael, Schucany, Haas, Generating random
    variates using transformations with multiple roots, 1976).

    The gradient by ``mean`` is implicit: the derivative of the quantile of the draw.
    """
    extents, kind, (mu,) = parameters(shape, dtype, mean)
    z, u = standard_normal(fold_in(key, 0), extents, kind), unit_uniform(fold_in(key, 1), extents, kind)
    half = 0.5 * mu * z * z
    root = xp.sqrt(half * (half + 2.0))
    small = mu / (1.0 + half + root)
    return emit("inverse_gaussian_draw", mu, xp.where(u * (mu + small) <= mu, small, mu * (1.0 + half + root)))
