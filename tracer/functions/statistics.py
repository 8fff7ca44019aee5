"""Sample statistics of scipy.stats, as compositions after SciPy's own. Only their default treatment of NaNs is supported."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.tracer.array import TracedArray, as_traced, cast
from pullback.tracer.errors import TraceError
from pullback.tracer.functions.common import reshaped, xp
from pullback.tracer.twins import twin_of


def _prepared(name: str, a: Any, axis: Any, nan_policy: str = "propagate") -> tuple[TracedArray, Any]:
    if nan_policy != "propagate":
        raise TraceError(f"scipy.stats.{name} of traced arrays with nan_policy={nan_policy!r} is not supported; leave it out")
    x = as_traced(a)
    x = cast(x, x.dtype if x.dtype.kind == "f" else np.float64)
    return (reshaped(x, (x.size,)), 0) if axis is None else (x, axis)


@twin_of("scipy.stats.zscore")
def zscore(a: Any, axis: Any = 0, ddof: int = 0, nan_policy: str = "propagate") -> Any:
    return zmap(a, a, axis, ddof, nan_policy)


@twin_of("scipy.stats.zmap")
def zmap(scores: Any, compare: Any, axis: Any = 0, ddof: int = 0, nan_policy: str = "propagate") -> Any:
    _prepared("zmap", compare, axis, nan_policy)
    x, y = (cast(as_traced(v), as_traced(v).dtype if as_traced(v).dtype.kind == "f" else np.float64) for v in (compare, scores))
    mean, std = xp.mean(x, axis=axis, keepdims=True), xp.std(x, axis=axis, ddof=ddof, keepdims=True)
    is_constant = xp.all(x == xp.min(x, axis=axis, keepdims=True), axis=axis, keepdims=True)
    return xp.where(is_constant, np.nan, (y - mean) / std)


@twin_of("scipy.stats.gmean")
def gmean(a: Any, axis: Any = 0, dtype: Any = None, weights: Any = None) -> Any:
    x, at = _prepared("gmean", a, axis)
    return xp.exp(xp.average(xp.log(x if dtype is None else cast(x, dtype)), axis=at, weights=weights))


@twin_of("scipy.stats.hmean")
def hmean(a: Any, axis: Any = 0, dtype: Any = None, *, weights: Any = None) -> Any:
    x, at = _prepared("hmean", a, axis)
    return 1.0 / xp.average(1.0 / (x if dtype is None else cast(x, dtype)), axis=at, weights=weights)


@twin_of("scipy.stats.sem")
def sem(a: Any, axis: Any = 0, ddof: int = 1, nan_policy: str = "propagate") -> Any:
    x, at = _prepared("sem", a, axis, nan_policy)
    return xp.std(x, axis=at, ddof=ddof) / np.sqrt(x.shape[at])


@twin_of("scipy.stats.variation")
def variation(a: Any, axis: Any = 0, nan_policy: str = "propagate", ddof: int = 0) -> Any:
    x, at = _prepared("variation", a, axis, nan_policy)
    return xp.std(x, axis=at, ddof=ddof) / xp.mean(x, axis=at)


@twin_of("scipy.stats.skew")
def skew(a: Any, axis: Any = 0, bias: bool = True, nan_policy: str = "propagate") -> Any:
    x, at = _prepared("skew", a, axis, nan_policy)
    d = x - xp.mean(x, axis=at, keepdims=True)
    found = xp.mean(d**3, axis=at) / xp.mean(d**2, axis=at) ** 1.5
    n = x.shape[at]
    return found if bias else found * np.sqrt((n - 1.0) * n) / (n - 2.0)


@twin_of("scipy.stats.kurtosis")
def kurtosis(a: Any, axis: Any = 0, fisher: bool = True, bias: bool = True, nan_policy: str = "propagate") -> Any:
    x, at = _prepared("kurtosis", a, axis, nan_policy)
    d = x - xp.mean(x, axis=at, keepdims=True)
    found = xp.mean(d**4, axis=at) / xp.mean(d**2, axis=at) ** 2
    n = x.shape[at]
    if not bias:
        found = 1.0 / (n - 2) / (n - 3) * ((n**2 - 1.0) * found - 3 * (n - 1) ** 2.0) + 3.0
    return found - 3.0 if fisher else found


@twin_of("scipy.stats.moment")
def moment(a: Any, order: Any = 1, axis: Any = 0, nan_policy: str = "propagate", *, center: Any = None) -> Any:
    x, at = _prepared("moment", a, axis, nan_policy)
    if np.ndim(order):
        raise TraceError("scipy.stats.moment of traced arrays with several orders is not supported; call it for each")
    middle = xp.mean(x, axis=at, keepdims=True) if center is None else center
    return xp.mean((x - middle) ** order, axis=at)
