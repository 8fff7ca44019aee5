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
    """Draw mean + L @ z with the Cholesky factor L of the covariance; of shape (*shape, n). ``mean`` is (..., n), ``cov``
    (..., n, n).

    Raises ValueError for shapes that do not fit and LinAlgError for a ``cov`` that is not positive definite.
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
    """Draw orthogonal matrices, uniform by Haar's measure, (*shape, n, n).

    They are the Q of the QR factorisation of normal numbers, with the signs that make the diagonal of R positive (Mezzadri,
    How to generate random matrices from the classical compact groups, 2007).
    """
    size = operator.index(n)
    z = standard_normal(key, (*static_shape(shape), size, size), float_dtype(dtype))
    q, r = xp.linalg.qr(z)
    signs = xp.where(xp.diagonal(r, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)
    return cast(q * xp.expand_dims(signs, -2), z.dtype)


@drawing("d", "shape", "dtype")
def ball(key: Any, d: int, p: Any = 2.0, shape: Any = (), dtype: Any = np.float64) -> Any:
    """Draw points uniformly from the unit ball of the p-norm in ``d`` dimensions, (*shape, d) (Barthe et al., A probabilistic
    approach to the geometry of the l_p^n-ball, 2005)."""
    extents = static_shape(shape)
    power = broadcast_to(cast(as_traced(p), np.float64), (*extents, operator.index(d)))
    g = standard_generalized_normal(fold_in(key, 0), power)
    extra = standard_exponential(fold_in(key, 1), extents, DOUBLE)
    total = xp.sum(xp.abs(g) ** power, axis=-1) + extra
    lengths = total ** (1.0 / cast(as_traced(p), np.float64))
    return cast(g / xp.expand_dims(lengths, -1), float_dtype(dtype))
