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
    """Draw standard normal numbers.

    They are ``scipy.special.ndtri`` of the midpoint of the uniform draw's cell, which is the uniform draw plus 2**-54 (float32:
    2**-25).

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    uniform : The uniform distribution.
    truncated_normal : Within bounds.
    multivariate_normal : With a covariance.

    Examples
    --------
    >>> pb.random.normal(pb.random.key(0), shape=3)
    array([-2.27188415, -0.70132792, -1.21898019])
    """
    return standard_normal(key, static_shape(shape), float_dtype(dtype))


@drawing("shape", "dtype")
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw ``exp(sigma * normal)``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    sigma : float or array, optional
        The standard deviation of the logarithm; 1 by default.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    normal : The normal distribution.

    Examples
    --------
    >>> pb.random.lognormal(pb.random.key(0), shape=3)
    array([0.10311771, 0.49592632, 0.2955314 ])
    """
    extents, kind, (scale,) = parameters(shape, dtype, sigma)
    return xp.exp(scale * standard_normal(key, extents, kind))


@drawing("shape", "dtype")
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw standard normal numbers within [lower, upper].

    They are computed by the inverse of the distribution function in the nearer tail, so that bounds far out lose no digits.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    lower : float or array
        The lower bound.
    upper : float or array
        The upper bound.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    normal : The normal distribution.

    Examples
    --------
    >>> pb.random.truncated_normal(pb.random.key(0), 5.0, 6.0, 3)
    array([5.00223104, 5.05283547, 5.02264678])
    """
    extents, kind, (low, high) = parameters(shape, dtype, lower, upper)
    is_right = low > 0.0
    left, right = xp.where(is_right, -high, low), xp.where(is_right, -low, high)
    below, above = ndtr(left), ndtr(right)
    u = unit_uniform(key, extents, kind)
    z = xp.clip(ndtri(below + (above - below) * xp.where(is_right, 1.0 - u, u)), left, right)
    return xp.where(is_right, -z, z)


@drawing("shape", "dtype")
def exponential(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the exponential distribution of mean 1.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    gamma : The gamma distribution.
    weibull_min : A power of it.

    Examples
    --------
    >>> pb.random.exponential(pb.random.key(0), shape=3)
    array([0.01161394, 0.27647734, 0.11813719])
    """
    return standard_exponential(key, static_shape(shape), float_dtype(dtype))


def standard_exponential(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return -logs(key, shape, dtype)[1]


@drawing("shape", "dtype")
def gumbel(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Gumbel distribution: -log of an exponential variable.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    categorical : Draws by the maximum of such variables.
    exponential : The exponential distribution.

    Examples
    --------
    >>> pb.random.gumbel(pb.random.key(0), shape=3)
    array([-1.49545161, -0.35113712, -0.78590678])
    """
    return standard_gumbel(key, static_shape(shape), float_dtype(dtype))


def standard_gumbel(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    return -xp.log(-logs(key, shape, dtype)[0])


@drawing("shape", "dtype")
def laplace(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Laplace distribution of scale 1.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    exponential : The exponential distribution.

    Examples
    --------
    >>> pb.random.laplace(pb.random.key(0), shape=3)
    array([-3.76820372, -0.72753493, -1.5012487 ])
    """
    p, is_low = cell_midpoint(key, static_shape(shape), float_dtype(dtype))
    size = xp.log(2.0 * p)
    return xp.where(is_low, size, -size)


@drawing("shape", "dtype")
def logistic(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the logistic distribution of scale 1.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    gumbel : The difference of two such variables is logistic.

    Examples
    --------
    >>> pb.random.logistic(pb.random.key(0), shape=3)
    array([-4.44973696, -1.14420477, -2.0762587 ])
    """
    low, high = logs(key, static_shape(shape), float_dtype(dtype))
    return low - high


@drawing("shape", "dtype")
def cauchy(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Cauchy distribution of scale 1.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    t : Student's distribution, of which it is the case of one degree of freedom.

    Examples
    --------
    >>> pb.random.cauchy(pb.random.key(0), shape=3)
    array([-27.55495144,  -1.05455928,  -2.73904744])
    """
    p, is_low = cell_midpoint(key, static_shape(shape), float_dtype(dtype))
    size = 1.0 / xp.tan(math.pi * p)
    return xp.where(is_low, -size, size)


@drawing("shape", "dtype")
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the Pareto distribution on [1, infinity), with the density ``b * x**(-b - 1)``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    b : float or array
        The exponent, positive.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    exponential : The exponential distribution.

    Examples
    --------
    >>> pb.random.pareto(pb.random.key(0), 3.0, 3)
    array([1.00387882, 1.09653928, 1.0401647 ])
    """
    extents, kind, (power,) = parameters(shape, dtype, b)
    return xp.exp(standard_exponential(key, extents, kind) / power)


@drawing("shape", "dtype")
def rayleigh(key: Any, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the Rayleigh distribution.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    scale : float or array, optional
        The scale; 1 by default.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    maxwell : The length of a vector of three normal numbers.

    Examples
    --------
    >>> pb.random.rayleigh(pb.random.key(0), shape=3)
    array([0.15240693, 0.74360923, 0.48608062])
    """
    extents, kind, (size,) = parameters(shape, dtype, scale)
    return size * xp.sqrt(2.0 * standard_exponential(key, extents, kind))


@drawing("shape", "dtype")
def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the Weibull distribution: ``scale * exponential ** (1 / concentration)``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    scale : float or array
        The scale.
    concentration : float or array
        The shape of the density.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    exponential : The exponential distribution.

    Examples
    --------
    >>> pb.random.weibull_min(pb.random.key(0), 1.0, 2.0, 3)
    array([0.10776797, 0.52581113, 0.3437109 ])
    """
    extents, kind, (size, power) = parameters(shape, dtype, scale, concentration)
    return size * standard_exponential(key, extents, kind) ** (1.0 / power)


@drawing("shape", "dtype")
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the triangular distribution over [left, right].

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    left : float or array
        The lower end.
    mode : float or array
        The peak of the density.
    right : float or array
        The upper end.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    uniform : The uniform distribution.

    Examples
    --------
    >>> pb.random.triangular(pb.random.key(0), 0.0, 0.2, 1.0, 3)
    array([0.04805571, 0.22105158, 0.14928219])
    """
    extents, kind, (low, top, high) = parameters(shape, dtype, left, mode, right)
    u, width = unit_uniform(key, extents, kind), high - low
    is_left = u * width < top - low
    up = low + xp.sqrt(xp.where(is_left, u * width * (top - low), 0.0))
    return xp.where(is_left, up, high - xp.sqrt((1.0 - u) * width * (high - top)))


@drawing("shape", "dtype")
def maxwell(key: Any, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw from the Maxwell distribution: the length of a vector of three normal numbers.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    rayleigh : The length of a vector of two.
    double_sided_maxwell : With either sign.

    Examples
    --------
    >>> pb.random.maxwell(pb.random.key(0), shape=3)
    array([2.67193397, 0.61188161, 2.806146  ])
    """
    return _length(key, static_shape(shape), float_dtype(dtype))


def _length(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    z = standard_normal(key, (*shape, 3), dtype)
    return xp.sqrt(xp.sum(z * z, axis=-1))


@drawing("shape", "dtype")
def double_sided_maxwell(key: Any, loc: Any = 0.0, scale: Any = 1.0, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw ``loc`` plus or minus ``scale`` times a Maxwell variable.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    loc : float or array, optional
        The centre.
    scale : float or array, optional
        The scale.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    maxwell : The variable itself.

    Examples
    --------
    >>> pb.random.double_sided_maxwell(pb.random.key(0), shape=3)
    array([-2.37483384,  0.64000592,  2.44222743])
    """
    extents, kind, (center, size) = parameters(shape, dtype, loc, scale)
    is_up = unit_uniform(fold_in(key, 1), extents, kind) < 0.5
    length = _length(fold_in(key, 0), extents, kind)
    return center + size * xp.where(is_up, length, -length)


@drawing("shape", "dtype")
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the inverse Gaussian distribution of scale 1.

    The method is that of Michael, Schucany and Haas, Generating random variates using transformations with multiple roots (1976).
    The gradient by ``mean`` is implicit: the derivative of the quantile of the draw.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    mean : float or array
        The mean, positive.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    normal : The normal distribution.

    Examples
    --------
    >>> pb.random.wald(pb.random.key(0), 2.0, 3)
    array([0.38226752, 0.21186193, 1.15354485])
    """
    extents, kind, (mu,) = parameters(shape, dtype, mean)
    z, u = standard_normal(fold_in(key, 0), extents, kind), unit_uniform(fold_in(key, 1), extents, kind)
    half = 0.5 * mu * z * z
    root = xp.sqrt(half * (half + 2.0))
    small = mu / (1.0 + half + root)
    return emit("inverse_gaussian_draw", mu, xp.where(u * (mu + small) <= mu, small, mu * (1.0 + half + root)))
