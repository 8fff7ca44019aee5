"""Sample statistics of scipy.stats, composed as in SciPy's own sources. Only the default treatment of NaNs is supported."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.op import resolve
from pullback.tracer.arrays.arguments import axis_of, part, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, promote
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.scipy.stats.continuous import betainc
from pullback.tracer.user_code.errors import TraceError


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
    skewness = xp.mean(d**3, axis=at) / xp.mean(d**2, axis=at) ** 1.5
    n = x.shape[at]
    return skewness if bias else skewness * np.sqrt((n - 1.0) * n) / (n - 2.0)


@twin_of("scipy.stats.kurtosis")
def kurtosis(a: Any, axis: Any = 0, fisher: bool = True, bias: bool = True, nan_policy: str = "propagate") -> Any:
    x, at = _prepared("kurtosis", a, axis, nan_policy)
    d = x - xp.mean(x, axis=at, keepdims=True)
    result = xp.mean(d**4, axis=at) / xp.mean(d**2, axis=at) ** 2
    n = x.shape[at]
    if not bias:
        result = 1.0 / (n - 2) / (n - 3) * ((n**2 - 1.0) * result - 3 * (n - 1) ** 2.0) + 3.0
    return result - 3.0 if fisher else result


@twin_of("scipy.stats.moment")
def moment(a: Any, order: Any = 1, axis: Any = 0, nan_policy: str = "propagate", *, center: Any = None) -> Any:
    x, at = _prepared("moment", a, axis, nan_policy)
    if np.ndim(order):
        raise TraceError("scipy.stats.moment of traced arrays with several orders is not supported; call it for each")
    middle = xp.mean(x, axis=at, keepdims=True) if center is None else center
    return xp.mean((x - middle) ** order, axis=at)


@twin_of("scipy.stats.rankdata")
def rankdata(a: Any, method: str = "average", *, axis: Any = None, nan_policy: str = "propagate") -> Any:
    """Return ranks; along an axis (or for "dense") by comparing all pairs of elements, for axis=None by a sort."""
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f'unknown method "{method}"')
    x, at = _prepared("rankdata", a, axis, nan_policy)
    last = x.ndim - 1
    rows: Any = xp.moveaxis(x, axis_of(at, x.ndim), last) if x.ndim else reshaped(x, (1,))
    n = rows.shape[-1]
    if axis is None and method != "dense":
        ordered = xp.sort(rows)
        below, until = xp.searchsorted(ordered, rows, side="left"), xp.searchsorted(ordered, rows, side="right")
    else:
        this, other = rows[..., :, None], rows[..., None, :]
        is_less, is_same = other < this, other == this
        if method == "dense":
            is_first = ~xp.any(is_same & np.tri(n, k=-1, dtype=bool), axis=-1)
            is_less = is_less & is_first[..., None, :]
        below = xp.sum(is_less, axis=-1)
        until = below + xp.sum(is_same, axis=-1)
    match method:
        case "average":
            ranks = 0.5 * (below + until + 1)
        case "max":
            ranks = until
        case "ordinal":
            ranks = xp.argsort(xp.argsort(rows, axis=-1, kind="stable"), axis=-1, kind="stable") + 1
        case _:
            ranks = below + 1
    is_float = np.lib.NumpyVersion(str(resolve("scipy.__version__"))) >= "1.18.0"
    if is_float:
        ranks = cast(as_traced(ranks), x.dtype if x.dtype.kind == "f" else np.float64)
    if method == "average" or is_float:
        ranks = xp.where(xp.any(xp.isnan(rows), axis=-1, keepdims=True), np.nan, ranks)
    return xp.moveaxis(ranks, -1, at) if axis is not None else ranks


@twin_of("scipy.stats.mode")
def mode(a: Any, axis: Any = 0, nan_policy: str = "propagate", keepdims: bool = False) -> Any:
    """Return the least of the most frequent elements, by comparing all pairs along the axis."""
    array = as_traced(a)
    _, at = _prepared("mode", a, axis, nan_policy)
    x: Any = reshaped(array, (array.size,)) if axis is None else cast(array, array.dtype)
    rows = xp.moveaxis(x, axis_of(at, x.ndim), -1)
    is_same = rows[..., :, None] == rows[..., None, :]
    if rows.dtype.kind == "f":
        is_same = is_same | (xp.isnan(rows)[..., :, None] & xp.isnan(rows)[..., None, :])
    counts = xp.sum(is_same, axis=-1)
    most = xp.max(counts, axis=-1, keepdims=True)
    ordered = xp.argsort(rows, axis=-1, kind="stable")
    index = xp.argmax(xp.take_along_axis(counts, ordered, axis=-1) == most, axis=-1, keepdims=True)
    value_of_mode = xp.take_along_axis(rows, xp.take_along_axis(ordered, index, axis=-1), axis=-1)
    results = []
    for value in (value_of_mode, most):
        value = xp.moveaxis(value, -1, at) if axis is not None else reshaped(value, (1,) * array.ndim)
        results.append(value if keepdims else xp.squeeze(value, axis=None if axis is None else at))
    return resolve("scipy.stats._stats_py.ModeResult")(*results)


@twin_of("scipy.stats.iqr")
def iqr(
    x: Any, axis: Any = None, rng: Any = (25, 75), scale: Any = 1.0, nan_policy: str = "propagate", interpolation: str = "linear",
    keepdims: bool = False,
) -> Any:  # fmt: skip
    _prepared("iqr", x, axis, nan_policy)
    if isinstance(scale, str):
        if scale.lower() != "normal":
            raise ValueError(f"{scale} not a valid scale for `iqr`")
        scale = 1.3489795003921634
    low, high = xp.percentile(as_traced(x), sorted(rng), axis=axis, method=interpolation, keepdims=keepdims)
    return (high - low) / scale


@twin_of("scipy.stats.trim_mean")
def trim_mean(a: Any, proportiontocut: float, axis: Any = 0) -> Any:
    x, at = _prepared("trim_mean", a, axis)
    position = axis_of(at, x.ndim)
    n = x.shape[position]
    cut = int(proportiontocut * n)
    if n - 2 * cut <= 0:
        raise ValueError("Proportion too big.")
    return xp.mean(part(xp.sort(x, axis=position), position, cut, n - 2 * cut), axis=position)


@twin_of("scipy.stats.pearsonr")
def pearsonr(x: Any, y: Any, *, alternative: str = "two-sided", method: Any = None, axis: Any = 0) -> Any:
    """Return SciPy's result object: the coefficient, and the p-value of its exact distribution (a beta distribution on -1 to
    1)."""
    if method is not None:
        raise TraceError("scipy.stats.pearsonr of traced arrays with a method is not supported; leave it out")
    if alternative not in ("two-sided", "less", "greater"):
        raise ValueError("`alternative` must be 'less', 'greater', or 'two-sided'.")
    (a, at), (b, _) = (_prepared("pearsonr", v, axis) for v in (x, y))
    if a.dtype.kind == "c" or b.dtype.kind == "c" or a.shape != b.shape:
        raise TraceError("scipy.stats.pearsonr of complex or broadcast traced arrays is not supported; give two of one shape")
    n = a.shape[axis_of(at, a.ndim)]
    if n < 3:
        raise TraceError("scipy.stats.pearsonr of fewer than 3 traced values is not supported; it is the sign of their slope")
    left, right = (v - xp.mean(v, axis=at, keepdims=True) for v in promote(a, b))
    lengths = [xp.linalg.norm(v, axis=at, keepdims=True) for v in (left, right)]
    r = xp.clip(xp.sum(left / lengths[0] * (right / lengths[1]), axis=at), -1.0, 1.0)
    half = n / 2 - 1
    sign = {"two-sided": -xp.abs(r), "less": r, "greater": -r}[alternative]
    below = betainc(half, half, (sign + 1) / 2)
    p = 2 * below if alternative == "two-sided" else below
    kind = resolve("scipy.stats._stats_py.PearsonRResult")
    return kind(statistic=r, pvalue=p, alternative=alternative, n=n, x=x, y=y, axis=axis)


@twin_of("scipy.stats.spearmanr")
def spearmanr(a: Any, *args: Any, **kwargs: Any) -> Any:
    raise TraceError(
        "scipy.stats.spearmanr of traced arrays is not supported; np.corrcoef of scipy.stats.rankdata's ranks is its statistic"
    )
