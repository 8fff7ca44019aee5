"""Discrete distributions of counts. Draws are integers and have no gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.random.bits import logs, parameters, result_shape, unit_uniform
from pullback.random.gamma import DOUBLE, first_accepted, word_midpoint
from pullback.random.key import drawing, fold_in
from pullback.tracer import emit
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast

FEW = 10.0
"""Mean below which a count is computed by summing probabilities; from this mean on by rejection."""
MOST = 2.0**63 - 1024.0
"""The largest float that fits an int64."""
STEPS = 50
"""Largest number of probabilities summed: the remaining probability is below 1e-17."""
TRIALS = 32
"""Number of trials of the rejection method."""
STIRLING = np.array(
    [math.lgamma(k + 1.0) - (k + 0.5) * math.log(k + 1.0) + k + 1.0 - 0.5 * math.log(2 * math.pi) for k in range(10)]
)
"""Errors of Stirling's formula for the logarithm of k!, for k below 10."""


def _require(condition: Any, message: str) -> None:
    emit("check", condition, error="ValueError", message=message)


def _as_count(value: Any, dtype: Any) -> Any:
    kind = np.dtype(dtype)
    if kind.kind not in "iuf":
        raise TypeError(f"a draw of counts has a dtype of numbers, not {kind}")
    return cast(value, kind)


def _inverse(u: Any, first: Any, ratio: Any) -> Any:
    """Return the count at which the sum of probabilities exceeds u: the probability of 0 is ``first``, that of k + 1 is
    ``ratio(k)`` times that of k."""
    probability, total, count = first, first, cast(u >= first, np.float64)
    for k in range(STEPS):
        probability = probability * ratio(k)
        total = total + probability
        count = count + cast(u >= total, np.float64)
    return count


@drawing("shape", "dtype")
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """Draw the number of trials up to the first success.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    p : float or array
        The probability of a success.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        A dtype of numbers; int64 by default.

    Returns
    -------
    array of integers, of shape ``shape``
        The draws, at least 1 and at most 2**63 - 1024.

    Raises
    ------
    ValueError
        Unless 0 < p <= 1.
    TypeError
        For a dtype that is not of numbers.

    See Also
    --------
    binomial : The number of successes.

    Examples
    --------
    >>> pb.random.geometric(pb.random.key(0), 0.3, 5)
    array([1, 1, 1, 3, 2])
    """
    extents, _, (chance,) = parameters(shape, DOUBLE, p)
    _require((chance > 0.0) & (chance <= 1.0), "p <= 0, p > 1 or p contains NaNs")
    count = xp.floor(logs(key, extents, DOUBLE)[1] / xp.log1p(-chance)) + 1.0
    return _as_count(xp.minimum(count, MOST), dtype)


@drawing("shape", "dtype")
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """Draw from the Poisson distribution.

    For a mean below 10 probabilities are summed; above, the method is Hörmann's PTRS (The transformed rejection method for
    generating Poisson random variables, 1993).

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    lam : float or array
        The mean.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        A dtype of numbers; int64 by default.

    Returns
    -------
    array of integers, of shape ``shape``
        The draws.

    Raises
    ------
    ValueError
        For a mean that is negative, NaN or above 2**62.
    TypeError
        For a dtype that is not of numbers.

    See Also
    --------
    binomial : Of a fixed number of trials.

    Examples
    --------
    >>> pb.random.poisson(pb.random.key(0), 4.0, 5)
    array([2, 8, 5, 5, 3])
    """
    extents, _, (mean,) = parameters(shape, DOUBLE, lam)
    _require((mean >= 0.0) & (mean <= 2.0**62), "lam < 0, lam > 2**62 or lam is NaN")
    low = xp.minimum(mean, FEW)
    few = _inverse(unit_uniform(fold_in(key, 0), extents, DOUBLE), xp.exp(-low), lambda k: low * (1.0 / (k + 1)))
    high = xp.maximum(mean, FEW)
    b = 0.931 + 2.53 * xp.sqrt(high)
    a = -0.059 + 0.02483 * b
    inverse_alpha = xp.log(1.1239 + 1.1328 / (b - 3.4))
    quick = 0.9277 - 3.6224 / (b - 2.0)

    def count(word: Any, a: Any, b: Any, mean: Any) -> tuple[Any, Any]:
        u = word_midpoint(word) - 0.5
        us = 0.5 - xp.abs(u)
        return us, xp.floor((2.0 * a / us + b) * u + mean + 0.43)

    def accepts(words: Any, wide: Any) -> Any:
        mu, aa, bb = wide(high), wide(a), wide(b)
        us, k = count(words[0], aa, bb, mu)
        v = word_midpoint(words[1])
        exact = xp.log(v) + wide(inverse_alpha) - xp.log(aa / (us * us) + bb) <= k * wide(xp.log(high)) - mu - _log_factorial(k)
        return ((us >= 0.07) & (v <= wide(quick))) | ((k >= 0.0) & ((us >= 0.013) | (v <= us)) & exact)

    word, _ = first_accepted(fold_in(key, 1), extents, TRIALS, accepts)
    return _as_count(xp.where(mean < FEW, few, count(word, a, b, high)[1]), dtype)


def _tail(k: Any) -> Any:
    """Return the error of Stirling's formula for the logarithm of k!."""
    exact = xp.take(as_traced(STIRLING), cast(xp.clip(k, 0.0, 9.0), np.int64))
    square = (k + 1.0) * (k + 1.0)
    return xp.where(k <= 9.0, exact, (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0))


def _log_factorial(k: Any) -> Any:
    """Return the logarithm of k! for whole numbers; negative ones count as 0."""
    k = xp.maximum(k, 0.0)
    return (k + 0.5) * xp.log(k + 1.0) - (k + 1.0) + 0.5 * math.log(2.0 * math.pi) + _tail(k)


def standard_binomial(key: Any, n: Any, p: Any) -> Any:
    """Draw binomial counts for float64 arrays of one shape, as float64. Raises ValueError as ``binomial``."""
    _require(n >= 0.0, "n < 0")
    _require((p >= 0.0) & (p <= 1.0), "p < 0, p > 1 or p contains NaNs")
    shape = n.shape
    q = xp.minimum(p, 1.0 - p)
    is_few = n * q < FEW
    each, left = q / (1.0 - q), xp.where(is_few, n, 0.0)
    rise = lambda k: each * xp.maximum(left - k, 0.0) * (1.0 / (k + 1))  # noqa: E731
    few = _inverse(unit_uniform(fold_in(key, 0), shape, DOUBLE), xp.exp(left * xp.log1p(-q)), rise)
    few = xp.minimum(few, n)
    count_, chance = xp.where(is_few, 100.0, n), xp.where(is_few, 0.5, q)
    spread = xp.sqrt(count_ * chance * (1.0 - chance))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * chance
    alpha = (2.83 + 5.1 / b) * spread
    quick = 0.92 - 4.2 / b
    mode = xp.floor((count_ + 1.0) * chance)
    odds = chance / (1.0 - chance)
    center = (mode + 0.5) * xp.log((mode + 1.0) / (odds * (count_ - mode + 1.0))) + _tail(mode) + _tail(count_ - mode)

    def draw(word: Any, a: Any, b: Any, n: Any, p: Any) -> tuple[Any, Any]:
        u = word_midpoint(word) - 0.5
        us = 0.5 - xp.abs(u)
        return us, xp.floor((2.0 * a / us + b) * u + n * p + 0.5)

    def accepts(words: Any, wide: Any) -> Any:
        aa, bb, nn, m, r = wide(a), wide(b), wide(count_), wide(mode), wide(odds)
        us, k = draw(words[0], aa, bb, nn, wide(chance))
        v = word_midpoint(words[1])
        is_inside = (k >= 0.0) & (k <= nn)
        k = xp.clip(k, 0.0, nn)
        rest = (nn + 1.0) * xp.log((nn - m + 1.0) / (nn - k + 1.0)) + (k + 0.5) * xp.log(r * (nn - k + 1.0) / (k + 1.0))
        exact = xp.log(v * wide(alpha) / (aa / (us * us) + bb)) <= wide(center) + rest - _tail(k) - _tail(nn - k)
        return is_inside & (((us >= 0.07) & (v <= wide(quick))) | exact)

    word, _ = first_accepted(fold_in(key, 1), shape, TRIALS, accepts)
    successes = xp.where(is_few, few, draw(word, a, b, count_, chance)[1])
    return xp.where(p > 0.5, n - successes, successes)


@drawing("shape", "dtype")
def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    """Draw the number of successes among trials.

    Where n * min(p, 1 - p) is below 10 probabilities are summed; otherwise the method is Hörmann's BTRS (The generation of
    binomial random variates, 1993).

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    n : int or array
        The number of trials.
    p : float or array
        The probability of a success.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        A dtype of numbers; int64 by default.

    Returns
    -------
    array of integers, of shape ``shape``
        The draws.

    Raises
    ------
    ValueError
        For negative ``n`` and for ``p`` outside [0, 1].
    TypeError
        For a dtype that is not of numbers.

    See Also
    --------
    bernoulli : One trial.
    multinomial : Several categories.

    Examples
    --------
    >>> pb.random.binomial(pb.random.key(0), 10, 0.3, 5)
    array([1, 6, 4, 4, 2])
    """
    _, _, (count, chance) = parameters(shape, DOUBLE, n, p)
    return _as_count(standard_binomial(key, count, chance), dtype)


@drawing("shape", "dtype")
def multinomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = np.int64) -> Any:
    r"""Draw the counts of several draws by category.

    Each count is a binomial draw of what the counts before it left.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    n : int or array
        The number of draws.
    p : array of floats, shape (..., k)
        The probabilities of the categories.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.
    dtype : dtype_like, optional
        A dtype of numbers; int64 by default.

    Returns
    -------
    array of integers, of shape (\*shape, k)
        The counts.

    Raises
    ------
    ValueError
        As for `binomial`, and for a ``p`` without axes.

    See Also
    --------
    binomial : Two categories.

    Examples
    --------
    >>> pb.random.multinomial(pb.random.key(0), 10, np.array([0.2, 0.3, 0.5]))
    array([4, 2, 4])
    """
    chances = cast(as_traced(p), np.float64)
    if not chances.ndim:
        raise ValueError("p must have at least one axis")
    total = cast(as_traced(n), np.float64)
    kinds = chances.shape[-1]
    lead = result_shape(shape, total, xp.empty_like(chances[..., 0]) if kinds else total)
    chances, left = broadcast_to(chances, (*lead, kinds)), broadcast_to(total, lead)
    rest = xp.flip(xp.cumsum(xp.flip(chances, -1), -1), -1)
    counts = []
    for k in range(kinds - 1):
        chance = xp.where(rest[..., k] > 0.0, chances[..., k] / rest[..., k], 0.0)
        counts.append(standard_binomial(fold_in(key, k), left, xp.minimum(chance, 1.0)))
        left = left - counts[-1]
    return _as_count(xp.stack([*counts, left], -1), dtype)
