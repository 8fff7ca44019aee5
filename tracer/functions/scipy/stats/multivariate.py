"""Multivariate distributions of scipy.stats in a trace: multivariate_normal, dirichlet and multinomial.

The normal distribution is computed by a Cholesky factor: a covariance that is not positive definite raises LinAlgError when
the program runs, as in SciPy; ``allow_singular`` has no effect. Only the lower triangle of a covariance is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit
from pullback.tracer.arrays.replacements import kind_twin, takes_traced
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg.solve import diagonal, lower_factor, triangular
from pullback.tracer.functions.scipy.special.special import digamma, gammaln, xlogy
from pullback.tracer.functions.scipy.stats.laws import LOG_2PI
from pullback.tracer.names.proxies import RANDOM, Outside
from pullback.tracer.user_code.errors import TraceError

if TYPE_CHECKING:
    from pullback.tracer.names.resolver import Names

Formula = Callable[..., Any]


def _float(x: Any) -> TracedArray:
    return cast(as_traced(x), np.float64)


def _check(condition: Any, message: str) -> None:
    emit("check", as_traced(condition), error="ValueError", message=message)


# the normal distribution


def _parameters(mean: Any, cov: Any) -> tuple[Any, Any]:
    """Return the mean as a vector and the covariance as a matrix, from the forms that SciPy accepts."""
    if not isinstance(cov, TracedArray | np.ndarray | np.generic | int | float | list | tuple | None):
        raise TraceError("scipy.stats.multivariate_normal with a Covariance object is not supported; pass the matrix")
    matrix = _float(1.0 if cov is None else cov)
    if mean is None:
        size = matrix.shape[0] if matrix.ndim == 2 else 1
        center = _float(np.zeros(size))
    else:
        center = _float(mean)
        size = center.size
    if size == 1:
        center, matrix = reshaped(center, (1,)), reshaped(matrix, (1, 1))
    if center.ndim != 1:
        raise ValueError(f"Array 'mean' must be a vector of length {size}.")
    if matrix.ndim == 0:
        matrix = xp.eye(size, like=matrix) * matrix
    elif matrix.ndim == 1:
        matrix = xp.diag(matrix)
    if matrix.shape != (size, size):
        raise ValueError(f"Array 'cov' must be a square matrix of the size of 'mean', but cov.shape = {matrix.shape}.")
    return center, matrix


def _factor(matrix: Any) -> Any:
    return lower_factor(matrix, "The input matrix must be symmetric positive definite.")


def _normal_logpdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    center, matrix = _parameters(mean, cov)
    size, points = center.shape[0], _float(x)
    if points.ndim < 2:
        points = reshaped(points, (points.size, 1) if size == 1 else (1, points.size))
    factor = _factor(matrix)
    rows = points - center
    deviation = reshaped(rows, (math.prod(rows.shape[:-1]), size))
    whitened = triangular(factor, xp.transpose(deviation), lower=True)
    distance = xp.sum(whitened * whitened, axis=0)
    log_norm = size * LOG_2PI + 2.0 * xp.sum(xp.log(diagonal(factor)))
    return xp.squeeze(reshaped(-0.5 * (log_norm + distance), rows.shape[:-1]))


def _normal_entropy(mean: Any = None, cov: Any = 1) -> Any:
    center, matrix = _parameters(mean, cov)
    return 0.5 * center.shape[0] * (LOG_2PI + 1.0) + xp.sum(xp.log(diagonal(_factor(matrix))))


# the Dirichlet distribution


def _alpha(alpha: Any) -> Any:
    vector = _float(alpha)
    if vector.ndim != 1:
        raise ValueError(f"Parameter vector 'a' must be one dimensional, but a.shape = {vector.shape}.")
    _check(vector > 0, "All parameters must be greater than 0")
    return vector


def _dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    a, parts = _alpha(alpha), _float(x)
    if parts.shape[0] + 1 != a.shape[0] and parts.shape[0] != a.shape[0]:
        raise ValueError(
            "Vector 'x' must have either the same number of entries as, or one entry fewer than, parameter vector 'a', "
            f"but alpha.shape = {a.shape} and x.shape = {parts.shape}."
        )
    if parts.shape[0] != a.shape[0]:
        last = 1.0 - xp.sum(parts, axis=0)
        parts = xp.concatenate([parts, reshaped(last, (1, *last.shape))], axis=0)
    exponents = reshaped(a, (a.shape[0], *(1,) * (parts.ndim - 1)))
    _check(parts >= 0, "Each entry in 'x' must be greater than or equal to zero.")
    _check(parts <= 1, "Each entry in 'x' must be smaller or equal one.")
    _check(~((parts == 0) & (exponents < 1)), "Each entry in 'x' must be greater than zero if its alpha is less than one.")
    _check(xp.abs(xp.sum(parts, axis=0) - 1.0) <= 10e-10, "The input vector 'x' must lie within the normal simplex.")
    return xp.squeeze(-_log_beta(a) + xp.sum(xlogy(exponents - 1.0, parts), axis=0))


def _log_beta(a: Any) -> Any:
    return xp.sum(gammaln(a)) - gammaln(xp.sum(a))


def _dirichlet_mean(alpha: Any) -> Any:
    a = _alpha(alpha)
    return a / xp.sum(a)


def _dirichlet_var(alpha: Any) -> Any:
    a = _alpha(alpha)
    total = xp.sum(a)
    return a * (total - a) / (total * total * (total + 1.0))


def _dirichlet_entropy(alpha: Any) -> Any:
    a = _alpha(alpha)
    total = xp.sum(a)
    return _log_beta(a) + (total - a.shape[0]) * digamma(total) - xp.sum((a - 1.0) * digamma(a))


# the multinomial distribution


def _multinomial_logpmf(x: Any, n: Any, p: Any) -> Any:
    counts, trials, shares = _float(x), _float(n), _float(p)
    if not counts.ndim:
        raise ValueError("x must be an array.")
    if counts.shape[-1] != shares.shape[-1]:
        message = f"received {counts.shape[-1]}, but expected {shares.shape[-1]}."
        raise ValueError(f"Size of each quantile should be size of p: {message}")
    is_bad = xp.any((shares < 0) | (shares > 1), axis=-1) | (trials < 0)
    remainder = 1.0 - xp.sum(shares[..., :-1], axis=-1)
    last = xp.where(xp.abs(1.0 - xp.sum(shares, axis=-1)) > 10 * np.finfo(np.float64).eps, remainder, shares[..., -1])
    shares = xp.concatenate([shares[..., :-1], reshaped(last, (*last.shape, 1))], axis=-1)
    is_outside = xp.any((xp.trunc(counts) != counts) | (counts < 0), axis=-1) | (xp.sum(counts, axis=-1) != trials)
    logarithm = gammaln(trials + 1.0) + xp.sum(xlogy(counts, shares) - gammaln(counts + 1.0), axis=-1)
    return xp.where(is_bad, math.nan, xp.where(is_outside, -math.inf, logarithm))


def _exp(function: Formula) -> Formula:
    return lambda *args, **kwargs: xp.exp(function(*args, **kwargs))


_LAWS: Mapping[str, Mapping[str, Formula]] = {
    "multivariate_normal": {"logpdf": _normal_logpdf, "pdf": _exp(_normal_logpdf), "entropy": _normal_entropy},
    "dirichlet": {
        "logpdf": _dirichlet_logpdf, "pdf": _exp(_dirichlet_logpdf), "mean": _dirichlet_mean, "var": _dirichlet_var,
        "entropy": _dirichlet_entropy,
    },
    "multinomial": {"logpmf": _multinomial_logpmf, "pmf": _exp(_multinomial_logpmf)},
}  # fmt: skip
_FROZEN: Mapping[str, tuple[str, ...]] = {
    "multivariate_normal": ("mean", "cov"), "dirichlet": ("alpha",), "multinomial": ("n", "p"),
}  # fmt: skip
_OF_PARAMETERS = ("mean", "var", "cov", "entropy")


class Multivariate(Outside):
    """A multivariate distribution of scipy.stats."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def _read(self, name: str) -> Any:
        if name in ("rvs", "random_state"):
            raise TraceError(f"a random draw (scipy.stats, .{name}): {RANDOM}")
        value = getattr(self._real, name)
        return partial(self._call, name) if callable(value) else self._resolve(name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if not takes_traced(args, kwargs):
            return getattr(self._real, name)(*args, **kwargs)
        formula = _LAWS.get(self._title, {}).get(name)
        if formula is None:
            self._unsupported(name)
        return formula(*args, **kwargs)

    @property
    def _title(self) -> str:
        return type(self._real).__name__.removesuffix("_gen").removesuffix("_frozen")

    def _unsupported(self, name: str) -> NoReturn:
        raise TraceError(
            f"scipy.stats.{self._title}.{name} of traced values is not supported; write its formula, or compute it outside"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not takes_traced(args, kwargs):
            return frozen(self._real(*args, **kwargs), self._names)
        kwargs.pop("seed", None)
        return FrozenMultivariate(self, args, kwargs)


class FrozenMultivariate:
    """A multivariate distribution with fixed parameters."""

    def __init__(self, dist: Multivariate, args: Any, kwargs: Any) -> None:
        self.dist = dist
        self.args = args
        self.kwargs = kwargs

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self.dist, name)
        if name in _OF_PARAMETERS:
            return lambda: method(*self.args, **self.kwargs)
        return lambda x: method(x, *self.args, **self.kwargs)


_MODULE = "scipy.stats._multivariate"


@kind_twin(f"{_MODULE}.multi_rv_generic")
def multivariate(value: Any, names: Names) -> Multivariate:
    return Multivariate(value, names)


@kind_twin(f"{_MODULE}.multi_rv_frozen")
def frozen(value: Any, names: Names) -> Any:
    dist = Multivariate(value, names)
    parameters = _FROZEN.get(dist._title)
    if parameters is None:
        return dist
    arguments = [names.resolve(getattr(value, p), partial(getattr, value, p), f"{dist._title}.{p}") for p in parameters]
    return FrozenMultivariate(Multivariate(value._dist, names), tuple(arguments), {})
