"""Draws of random vectors and matrices."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.random.bits import float_dtype, result_shape, static_shape
from pullback.random.continuous import standard_exponential, standard_normal
from pullback.random.gamma import DOUBLE, standard_generalized_normal
from pullback.random.key import drawing, fold_in
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast


@drawing("shape", "dtype")
def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = np.float64) -> Any:
    r"""Draw from the multivariate normal distribution: ``mean + L @ z`` with the Cholesky factor L of the covariance.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    mean : array of floats, shape (..., n)
        The mean.
    cov : array of floats, shape (..., n, n)
        The covariance.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape (\*shape, n)
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.
    numpy.linalg.LinAlgError
        For a covariance that is not positive definite.

    See Also
    --------
    normal : The normal distribution.

    Examples
    --------
    >>> pb.random.multivariate_normal(pb.random.key(0), np.zeros(2), np.array([[2.0, 1.0], [1.0, 2.0]]), 2)
    array([[-3.21292937, -2.46541246],
           [-1.72389832, -0.66333038]])
    """
    kind = float_dtype(dtype)
    center, spread = (cast(as_traced(v), kind) for v in (mean, cov))
    if not center.ndim or spread.shape[-2:] != (center.shape[-1],) * 2:
        raise ValueError(f"mean is (..., n) and cov (..., n, n), not {center.shape} and {spread.shape}")
    lead = result_shape(shape, xp.empty(center.shape[:-1]), xp.empty(spread.shape[:-2]))
    z = standard_normal(key, (*lead, center.shape[-1]), kind)
    factor = xp.linalg.cholesky(spread)
    return center + xp.squeeze(xp.matmul(factor, xp.expand_dims(z, -1)), -1)


@drawing("n", "shape", "dtype")
def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = np.float64) -> Any:
    r"""Draw orthogonal matrices, uniform by Haar's measure.

    They are the Q of the QR factorisation of normal numbers, with the signs that make the diagonal of R positive (Mezzadri, How
    to generate random matrices from the classical compact groups, 2007).

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    n : int
        The number of rows and columns.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape (\*shape, n, n)
        The matrices.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    normal : The normal distribution.
    ball : Points of a ball.

    Examples
    --------
    >>> q = pb.random.orthogonal(pb.random.key(0), 3)
    >>> np.allclose(q @ q.T, np.eye(3))
    True
    """
    size = operator.index(n)
    z = standard_normal(key, (*static_shape(shape), size, size), float_dtype(dtype))
    q, r = xp.linalg.qr(z)
    signs = xp.where(xp.diagonal(r, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)
    return cast(q * xp.expand_dims(signs, -2), z.dtype)


@drawing("d", "shape", "dtype")
def ball(key: Any, d: int, p: Any = 2.0, shape: Any = (), dtype: Any = np.float64) -> Any:
    r"""Draw points uniformly from the unit ball of the p-norm.

    The method is that of Barthe et al., A probabilistic approach to the geometry of the l_p^n-ball (2005).

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    d : int
        The dimension.
    p : float or array, optional
        The exponent of the norm; 2 by default.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.

    Returns
    -------
    array of floats, of shape (\*shape, d)
        The points.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For a negative extent.

    See Also
    --------
    orthogonal : Orthogonal matrices.

    Examples
    --------
    >>> pb.random.ball(pb.random.key(0), 2, shape=3)
    array([[-0.01743959,  0.56408563],
           [-0.86891613, -0.46550954],
           [ 0.58866129, -0.56290598]])
    """
    extents = static_shape(shape)
    power = broadcast_to(cast(as_traced(p), np.float64), (*extents, operator.index(d)))
    g = standard_generalized_normal(fold_in(key, 0), power)
    extra = standard_exponential(fold_in(key, 1), extents, DOUBLE)
    total = xp.sum(xp.abs(g) ** power, axis=-1) + extra
    lengths = total ** (1.0 / cast(as_traced(p), np.float64))
    return cast(g / xp.expand_dims(lengths, -1), float_dtype(dtype))
