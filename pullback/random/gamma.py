"""The gamma distribution and distributions derived from it.

Marsaglia and Tsang, A simple method for generating gamma variables, 2000, in logarithms. Element i makes its trials with
blocks of its own, at the counters (1, i, 0, 3), (2, i, 0, 3), …, and takes the first accepted one of 16; the chance that none
is accepted, in which case the next one is taken unchecked, is below 1e-20. All is computed in float64 and rounded. Gradients
by the shape are implicit: the derivative of the quantile of the draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.random.bits import Shape, float_dtype, parameters, result_shape, sequence, unit_uniform
from pullback.random.continuous import standard_normal
from pullback.random.key import ROUNDS, block, drawing, fold_in
from pullback.tracer import emit
from pullback.tracer.arrays.arguments import positions, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, expand
from pullback.tracer.functions.scipy.special.special import expit, ndtri

DOUBLE = np.dtype(np.float64)
TRIALS = 16
"""Number of trials of each element."""


def word_midpoint(word: Any) -> Any:
    """Return the midpoint of the cell of a word, in (0, 1); 1 - 2**-54 is rounded to 1."""
    return (cast(word >> np.uint64(11), np.float64) + 0.5) * 2.0**-53


def first_accepted(key: Any, shape: Shape, trials: int, accepts: Any) -> Any:
    """Return the two words of the first accepted trial of an even number of trials; a block holds two trials.

    ``accepts(words, wide)`` returns which trials are accepted; ``wide`` adds an axis of blocks to an array of ``shape``.
    """
    index = sequence(shape)
    axis = len(shape)
    wide_shape = (*shape, trials // 2)

    def wide(x: Any) -> Any:
        return broadcast_to(expand(x, (axis,)), wide_shape)

    blocks = positions(wide_shape, axis, np.uint64)
    words = block(key, blocks + np.uint64(1), wide(index), 0, ROUNDS, words=(0, 1, 2, 3))
    first_accepts, second_accepts = (accepts(pair, wide) for pair in (words[:2], words[2:]))
    trial = xp.where(first_accepts, 2 * blocks, xp.where(second_accepts, 2 * blocks + 1, np.uint64(trials)))
    first = xp.min(trial, axis=-1)
    words = block(key, first // 2 + np.uint64(1), index, 0, ROUNDS, words=(0, 1, 2, 3))
    is_second = first % 2 == 1
    return [xp.where(is_second, b, a) for a, b in zip(words[:2], words[2:], strict=True)]


def standard_loggamma(key: Any, a: Any) -> Any:
    """Draw the logarithm of a gamma variable, for float64 shapes ``a``."""
    is_small = a < 1.0
    d = xp.where(is_small, a + 1.0, a) - 1.0 / 3.0

    def cube_root(word: Any, d: Any) -> tuple[Any, Any]:
        x = ndtri(word_midpoint(word))
        return x, 1.0 + x / xp.sqrt(9.0 * d)

    def accepts(words: Any, wide: Any) -> Any:
        scale = wide(d)
        x, root = cube_root(words[0], scale)
        v = root * root * root
        return (root > 0.0) & (xp.log(word_midpoint(words[1])) < 0.5 * x * x + scale * (1.0 - v + xp.log(v)))

    word, _ = first_accepted(key, a.shape, TRIALS, accepts)
    logarithm = xp.log(d) + 3.0 * xp.log(cube_root(word, d)[1])
    (extra,) = block(key, 0, sequence(a.shape), 0, ROUNDS, words=(0,))
    logarithm = logarithm + xp.where(is_small, xp.log(word_midpoint(extra)) / a, 0.0)
    return emit("log_gamma_draw", a, xp.where(a >= 0.0, logarithm, np.nan))


def _loggamma(key: Any, shape: Any, *values: Any) -> list[Any]:
    """Return independent draws with these shapes, broadcast together."""
    _, _, arrays = parameters(shape, DOUBLE, *values)
    keys = [key] if len(arrays) == 1 else [fold_in(key, k) for k in range(len(arrays))]
    return [standard_loggamma(k, a) for k, a in zip(keys, arrays, strict=True)]


@drawing("shape", "dtype")
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw the logarithm of a gamma variable of scale 1.

    It is right even where the variable itself is too small for a float.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    a : float or array
        The shape of the density; the draw is NaN where it is negative.
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
    gamma : The gamma distribution.

    Examples
    --------
    >>> pb.random.loggamma(pb.random.key(0), 1e-3, 3)
    array([-850.2310362 , -146.15924041, -240.51152295])
    """
    (logarithm,) = _loggamma(key, shape, a)
    return cast(logarithm, float_dtype(dtype))


@drawing("shape", "dtype")
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the gamma distribution of scale 1.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    a : float or array
        The shape of the density; the draw is NaN where it is negative.
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
    loggamma : Its logarithm.
    chisquare : Twice a gamma variable.
    beta : A ratio of gamma variables.

    Examples
    --------
    >>> pb.random.gamma(pb.random.key(0), 2.0, 3)
    array([1.07392384, 1.3318473 , 2.27707077])
    """
    (logarithm,) = _loggamma(key, shape, a)
    return cast(xp.exp(logarithm), float_dtype(dtype))


@drawing("shape", "dtype")
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the chi-square distribution: twice a gamma variable of shape ``df / 2``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    df : float or array
        The degrees of freedom.
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
    gamma : The gamma distribution.

    Examples
    --------
    >>> pb.random.chisquare(pb.random.key(0), 4.0, 3)
    array([2.14784769, 2.66369459, 4.55414155])
    """
    (logarithm,) = _loggamma(key, shape, 0.5 * as_traced(df))
    return cast(2.0 * xp.exp(logarithm), float_dtype(dtype))


@drawing("shape", "dtype")
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the beta distribution: ``x / (x + y)`` of gamma variables x and y of shapes ``a`` and ``b``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    a : float or array
        The first shape.
    b : float or array
        The second shape.
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
    gamma : The gamma distribution.
    dirichlet : Of several components.

    Examples
    --------
    >>> pb.random.beta(pb.random.key(0), 2.0, 3.0, 3)
    array([0.30626281, 0.78812014, 0.40204484])
    """
    x, y = _loggamma(key, shape, a, b)
    return cast(expit(x - y), float_dtype(dtype))


@drawing("shape", "dtype")
def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the F distribution: the ratio of two chi-square variables, each divided by its degrees of freedom.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    dfnum : float or array
        The degrees of freedom of the numerator.
    dfden : float or array
        The degrees of freedom of the denominator.
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
    chisquare : The chi-square distribution.

    Examples
    --------
    >>> pb.random.f(pb.random.key(0), 3.0, 8.0, 3)
    array([0.62686391, 5.27519797, 0.96966897])
    """
    _, _, (above, below) = parameters(shape, DOUBLE, dfnum, dfden)
    x, y = _loggamma(key, None, 0.5 * above, 0.5 * below)
    return cast(xp.exp(x - y) * (below / above), float_dtype(dtype))


@drawing("shape", "dtype")
def t(key: Any, df: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from Student's t distribution.

    It is a normal variable over the root of a chi-square variable divided by its degrees of freedom.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    df : float or array
        The degrees of freedom.
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
    chisquare : The chi-square distribution.

    Examples
    --------
    >>> pb.random.t(pb.random.key(0), 4.0, 3)
    array([-1.16212535,  3.4773226 ,  0.39501845])
    """
    _, _, (degrees,) = parameters(shape, DOUBLE, df)
    z = standard_normal(fold_in(key, 0), degrees.shape, DOUBLE)
    (half,) = _loggamma(fold_in(key, 1), None, 0.5 * degrees)
    return cast(z * xp.sqrt(0.5 * degrees) * xp.exp(-0.5 * half), float_dtype(dtype))


@drawing("shape", "dtype")
def generalized_normal(key: Any, p: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    """Draw from the generalized normal distribution, with a density proportional to ``exp(-abs(x)**p)``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    p : float or array
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
    normal : The normal distribution.
    laplace : The case of exponent 1.

    Examples
    --------
    >>> pb.random.generalized_normal(pb.random.key(0), 3.0, 3)
    array([-0.8842623 ,  0.5391767 ,  0.65498677])
    """
    _, _, (power,) = parameters(shape, DOUBLE, p)
    return cast(standard_generalized_normal(key, power), float_dtype(dtype))


def standard_generalized_normal(key: Any, power: Any) -> Any:
    (size,) = _loggamma(fold_in(key, 0), None, 1.0 / power)
    size = xp.exp(size / power)
    return xp.where(unit_uniform(fold_in(key, 1), power.shape, DOUBLE) < 0.5, size, -size)


@drawing("shape", "dtype")
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    r"""Draw from the Dirichlet distribution: normalised gamma variables along the last axis.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    alpha : array of floats, shape (..., n)
        The parameters, one for each component.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape (\*shape, n)
        The draws; their last axis adds up to 1.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    beta : Of two components.

    Examples
    --------
    >>> pb.random.dirichlet(pb.random.key(0), np.array([1.0, 2.0, 3.0]), 2)
    array([[0.06342346, 0.2624034 , 0.67417315],
           [0.07942399, 0.22629761, 0.6942784 ]])
    """
    shapes = cast(as_traced(alpha), np.float64)
    if not shapes.ndim:
        raise ValueError("alpha must have at least one axis")
    lead = result_shape(shape, xp.empty(shapes.shape[:-1])) if shape is not None else shapes.shape[:-1]
    logarithms = standard_loggamma(key, broadcast_to(shapes, (*lead, shapes.shape[-1])))
    shares = xp.exp(logarithms - xp.max(logarithms, axis=-1, keepdims=True))
    return cast(shares / xp.sum(shares, axis=-1, keepdims=True), float_dtype(dtype))
