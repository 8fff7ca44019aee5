"""scipy.stats.gaussian_kde in a trace, of traced samples or created outside. Method: Scott, Multivariate Density Estimation,
1992."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast
from pullback.tracer.arrays.replacements import kind_twin, twin_of
from pullback.tracer.functions.numpy.linalg.solve import diagonal, lower_factor, triangular
from pullback.tracer.functions.numpy.reductions import logsumexp
from pullback.tracer.user_code.errors import TraceError

if TYPE_CHECKING:
    from pullback.tracer.names.resolver import Names


@twin_of("scipy.stats.gaussian_kde")
class GaussianKde:
    """Kernel density estimates at points: ``evaluate``, ``pdf``, ``logpdf`` and the call itself."""

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        self.dataset: Any = xp.atleast_2d(cast(as_traced(dataset), np.float64))
        if not self.dataset.size > 1:
            raise ValueError("`dataset` input should have multiple elements.")
        self.d, self.n = self.dataset.shape
        if weights is None:
            self.weights: Any = cast(as_traced(np.full(self.n, 1.0 / self.n)), np.float64)
        else:
            array: Any = xp.atleast_1d(cast(as_traced(weights), np.float64))
            if array.ndim != 1:
                raise ValueError("`weights` input should be one-dimensional.")
            if array.shape[0] != self.n:
                raise ValueError("`weights` input should be of length n")
            self.weights = array / xp.sum(array)
        self.neff = 1.0 / xp.sum(self.weights**2)
        self.set_bandwidth(bw_method)

    def scotts_factor(self) -> Any:
        return self.neff ** (-1.0 / (self.d + 4))

    def silverman_factor(self) -> Any:
        return (self.neff * (self.d + 2.0) / 4.0) ** (-1.0 / (self.d + 4))

    def set_bandwidth(self, bw_method: Any = None) -> None:
        if bw_method is None or (isinstance(bw_method, str) and bw_method == "scott"):
            self.factor: Any = self.scotts_factor()
        elif isinstance(bw_method, str) and bw_method == "silverman":
            self.factor = self.silverman_factor()
        elif isinstance(bw_method, str):
            raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar or a callable.")
        else:
            self.factor = bw_method(self) if callable(bw_method) else bw_method
        covariance = xp.cov(self.dataset, rowvar=True, bias=False, aweights=self.weights)
        self.covariance: Any = reshaped(covariance, (self.d, self.d)) * self.factor**2

    def _logarithms(self, points: Any) -> Any:
        """Return the logarithm of each sample's kernel at each point."""
        columns: Any = xp.atleast_2d(cast(as_traced(points), np.float64))
        if columns.shape[0] != self.d:
            if columns.shape != (1, self.d):
                raise ValueError(f"points have dimension {columns.shape[0]}, dataset has dimension {self.d}")
            columns = reshaped(columns, (self.d, 1))
        factor = lower_factor(self.covariance, "The data appears to lie in a lower-dimensional subspace of the space.")
        samples, at = (triangular(factor, v, lower=True) for v in (self.dataset, columns))
        gap = samples[:, :, None] - at[:, None, :]
        size = 0.5 * self.d * math.log(2.0 * math.pi) + xp.sum(xp.log(diagonal(factor)))
        return -0.5 * xp.sum(gap * gap, axis=0) - size

    def evaluate(self, points: Any) -> Any:
        return xp.sum(xp.exp(self._logarithms(points)) * self.weights[:, None], axis=0)

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Any:
        return logsumexp(self._logarithms(x), axis=0, b=self.weights[:, None])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TraceError(f"scipy.stats.gaussian_kde.{name} of traced values is not supported; use evaluate or logpdf")


@kind_twin("scipy.stats.gaussian_kde")
def outside_kde(value: Any, names: Names) -> GaussianKde:
    def read(name: str) -> Any:
        return names.resolve(getattr(value, name), partial(getattr, value, name), f"gaussian_kde.{name}")

    kde = GaussianKde(read("dataset"), weights=read("weights"))
    kde.factor, kde.covariance = read("factor"), as_traced(read("covariance"))
    return kde
