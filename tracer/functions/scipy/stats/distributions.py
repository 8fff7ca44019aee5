"""Distributions of scipy.stats in a trace: SciPy's public methods, computed from the formulas of a ``Law``.

Parameters, location and scale may be traced; a distribution may be frozen with them, in the trace or outside. Results are
SciPy's: NaN for invalid parameters, the edge values outside the support, float64. Gradients are those of the selected branch.

The formulas of a distribution without a ``Law`` in ``LAWS``, such as a user's own, are taken from the methods that SciPy
documents for subclasses (``_logpdf``, ``_cdf``, ``_argcheck``, ...). They work if they are composed of NumPy functions of
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, broadcast_together, cast, fresh
from pullback.tracer.arrays.replacements import kind_twin, takes_traced, twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.scipy.stats.laws import LAWS, Law, all_positive, formula_of
from pullback.tracer.names.proxies import RANDOM, Outside
from pullback.tracer.user_code.errors import TraceError, recording_errors
from pullback.tracer.user_code.ownership import is_users, is_users_class

if TYPE_CHECKING:
    from pullback.tracer.names.resolver import Names

NAN = math.nan
_LETTERS = {"m": "mean", "v": "var", "s": "skew", "k": "kurtosis"}
_POINTWISE = ("pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "ppf", "isf")
_MOMENTS = ("mean", "var", "std", "median", "entropy", "interval", "support", "stats")
_BELOW: Mapping[str, float] = {"pdf": 0.0, "logpdf": -math.inf, "cdf": 0.0, "logcdf": -math.inf, "sf": 1.0, "logsf": 0.0}
_ABOVE: Mapping[str, float] = {"pdf": 0.0, "logpdf": -math.inf, "cdf": 1.0, "logcdf": 0.0, "sf": 0.0, "logsf": -math.inf}


class Distribution(Outside):
    """A distribution of scipy.stats."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def _read(self, name: str) -> Any:
        if name in ("rvs", "random_state"):
            raise TraceError(f"a random draw (scipy.stats, .{name}): {RANDOM}")
        if name in _POINTWISE or name in _MOMENTS:
            return partial(self._call, name) if hasattr(self._real, name) else getattr(self._real, name)
        value = getattr(self._real, name)
        if isinstance(value, MethodType) and (name.startswith("_") or is_users_class(type(self._real))):
            return MethodType(self._follow(value.__func__), self)
        return partial(self._as_it_is, name) if callable(value) else self._resolve(name)

    def _follow(self, function: Any) -> Any:
        names = self._names
        return names.follow(function) if is_users(function.__code__) else names.follow_library(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Frozen:
        return Frozen(self, args, kwargs)

    freeze = __call__

    def _as_it_is(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if takes_traced(args, kwargs):
            self._unsupported(name)
        return getattr(self._real, name)(*args, **kwargs)

    def _unsupported(self, name: str) -> NoReturn:
        title = getattr(self._real, "name", None) or type(self._real).__name__
        raise TraceError(
            f"scipy.stats.{title}.{name} of traced values is not supported; write its formula, or compute it outside"
        )

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if not takes_traced(args, kwargs) and not is_users_class(type(self._real)):
            return getattr(self._real, method)(*args, **kwargs)
        return _Call(self, method).result(*args, **kwargs)

    def law(self) -> Any:
        """Return the formulas of the distribution."""
        real = self._real
        registered = LAWS.get(getattr(real, "name", ""))
        is_scipys = type(real).__module__.startswith("scipy.stats.") and type(real).__name__ == f"{real.name}_gen"
        return registered if registered is not None and is_scipys else _SubclassLaw(self)


class Frozen:
    """A distribution with fixed parameters."""

    def __init__(self, dist: Distribution, args: Any, kwds: Any) -> None:
        self.dist = dist
        self.args = args
        self.kwds = kwds

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self.dist, name)
        if name in ("ppf", "isf", "pdf", "logpdf", "pmf", "logpmf", "cdf", "logcdf", "sf", "logsf"):
            return lambda x: method(x, *self.args, **self.kwds)
        if name == "interval":
            return lambda confidence=None: method(confidence, *self.args, **self.kwds)
        if name == "stats":
            return lambda moments="mv": method(*self.args, **{**self.kwds, "moments": moments})
        if name in _MOMENTS:
            return lambda: method(*self.args, **self.kwds)
        if callable(method):
            return partial(self.dist._as_it_is, name, as_traced(0.0))
        return method


class _SubclassLaw:
    """The formulas that a distribution defines in the methods documented for subclasses."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution
        names = (*_POINTWISE, "entropy", "stats", "argcheck", "get_support")
        methods = {name: self._method(name) for name in names}
        self.formulas: dict[str, Callable[..., Any]] = {name: f for name, f in methods.items() if f is not None}
        stats = self.formulas.pop("stats", None)
        if stats is not None:
            for index, name in enumerate(("mean", "var", "skew", "kurtosis")):
                self.formulas[name] = partial(self._moment, stats, index)
        self.valid = self.formulas.pop("argcheck", all_positive)
        real = distribution._real
        self.support = self.formulas.pop("get_support", lambda *args: (real.a, real.b))

    def _method(self, name: str) -> Callable[..., Any] | None:
        real = self.distribution._real
        home = next((k for k in type(real).__mro__ if f"_{name}" in vars(k)), None)
        if home is None or home.__module__ == "scipy.stats._distn_infrastructure":
            return None
        return partial(self._checked_call, name, getattr(self.distribution, f"_{name}"))

    def _moment(self, stats: Callable[..., Any], index: int, *args: Any) -> Any:
        value = stats(*args)[index]
        if value is None:
            self.distribution._unsupported(f"stats with moments={'mvsk'[index]!r}")
        return value

    def _checked_call(self, name: str, method: Callable[..., Any], *args: Any) -> Any:
        if is_users_class(type(self.distribution._real)):
            return method(*args)
        noted: list[TraceError] = []
        try:
            with recording_errors(noted):
                value = method(*args)
        except Exception:
            self.distribution._unsupported(name.strip("_"))
        if noted:
            self.distribution._unsupported(name.strip("_"))
        return value


class _Call:
    """One call of a method of a distribution."""

    def __init__(self, distribution: Distribution, method: str) -> None:
        self.distribution = distribution
        self.method = method
        self.law: Law | _SubclassLaw = distribution.law()
        self.is_discrete = not hasattr(distribution._real, "pdf")

    def result(self, *args: Any, **kwargs: Any) -> Any:
        first = []
        if self.method in _POINTWISE or self.method == "interval":
            word = {"ppf": "q", "isf": "q", "interval": "confidence"}.get(self.method, "k" if self.is_discrete else "x")
            first = [kwargs.pop(word)] if word in kwargs else [args[0]]
            args = args if len(first) and word in kwargs else args[1:] if args else args
        moments = kwargs.pop("moments", "mv") if self.method == "stats" else ""
        shapes, loc, scale = self._parameters(args, kwargs)
        self.shapes = [cast(s, np.float64) for s in shapes]
        self.loc, self.scale = loc, scale
        self.valid = self._validity()
        if self.method in ("ppf", "isf"):
            return self._quantile(first[0], self.method)
        if self.method in _POINTWISE:
            return self._at(first[0])
        match self.method:
            case "interval":
                below = (1.0 - as_traced(first[0])) / 2.0
                return self._quantile(below, "ppf"), self._quantile((1.0 + as_traced(first[0])) / 2.0, "ppf")
            case "support":
                return tuple(self._masked(b * self.scale + self.loc) for b in self._support())
            case "median":
                return self._quantile(0.5, "ppf")
            case "stats":
                results = [self._moment(_LETTERS[m]) for m in moments]
                return results[0] if len(results) == 1 else tuple(results)
        return self._moment(self.method)

    def _parameters(self, args: Any, kwargs: dict[str, Any]) -> tuple[list[TracedArray], TracedArray, TracedArray]:
        """Return shapes, location and scale, named as in SciPy's methods."""
        real = self.distribution._real
        names = [n.strip() for n in real.shapes.split(",")] if real.shapes else []
        names += ["loc"] if self.is_discrete else ["loc", "scale"]
        if len(args) > len(names):
            raise TypeError(f"{self.method}() takes from {len(names)} to {len(names)} parameters but {len(args)} were given")
        arguments = dict(zip(names, args))
        for name, value in kwargs.items():
            if name in arguments or name not in names:
                raise TypeError(f"{self.method}() got an unexpected or repeated argument {name!r}")
            arguments[name] = value
        arguments = {"loc": 0, "scale": 1, **arguments}
        missing = [n for n in names if n not in arguments]
        if missing:
            raise TypeError(f"{self.method}() missing required arguments: {', '.join(missing)}")
        shapes = [as_traced(arguments[n]) for n in names if n not in ("loc", "scale")]
        loc, scale = as_traced(arguments["loc"]), as_traced(arguments["scale"])
        return [cast(s, s.dtype) for s in shapes], cast(loc, loc.dtype), cast(scale, scale.dtype)

    def _validity(self) -> Any:
        is_valid = self.law.valid(*self.shapes) & (self.scale > 0)
        return is_valid if isinstance(is_valid, TracedArray) else as_traced(bool(is_valid))

    def _support(self) -> list[TracedArray]:
        return [cast(as_traced(b), np.float64) for b in self.law.support(*self.shapes)]

    def _formula(self, method: str) -> Callable[..., Any]:
        formula = formula_of(self.law, method)
        if formula is None and isinstance(self.law, Law):
            formula = formula_of(_SubclassLaw(self.distribution), method)
        if formula is None:
            self.distribution._unsupported(method)
        return formula

    def _masked(self, result: Any, *others: Any) -> Any:
        """Broadcast a value to the shape of all parameters, with NaN where these are invalid."""
        valid = self.valid & (self.loc == self.loc)
        value = cast(as_traced(result), np.float64)
        value, mask, *_ = broadcast_together(value, valid, self.loc, self.scale, *self.shapes, *others)
        return xp.where(mask, value, NAN)

    def _at(self, x: Any) -> Any:
        """Return the value of the called method at x."""
        method = {"pmf": "pdf", "logpmf": "logpdf"}.get(self.method, self.method)
        points = as_traced(x)
        points = cast(points, points.dtype)
        y = cast(points - self.loc if self.is_discrete else (points - self.loc) / self.scale, np.float64)
        low, high = self._support()
        is_density = method in ("pdf", "logpdf")
        if self.is_discrete:
            argument = y if is_density else xp.floor(y)
            inside = (y >= low) & ((y <= high) & (xp.floor(y) == y) if is_density else y < high)
            above = y >= high
        else:
            argument = y
            inside = (y >= low) & (y <= high) if is_density else (y > low) & (y < high)
            above = y >= high
        value = self._formula(self.method)(argument, *self.shapes)
        if is_density and not self.is_discrete:
            value = value / self.scale if method == "pdf" else value - xp.log(self.scale)
        if self.is_discrete and method in ("pdf", "cdf", "sf"):
            value = xp.clip(value, 0.0, 1.0)
        outside = xp.where(above, _ABOVE[method], _BELOW[method])
        result = xp.where(inside, value, outside)
        return self._masked(xp.where(xp.isnan(y), NAN, result), points)

    def _quantile(self, q: Any, method: str) -> Any:
        if self.is_discrete and formula_of(self.law, "ppf") is None:
            self.distribution._unsupported(self.method)
        p = as_traced(q)
        p = cast(p, np.float64)
        low, high = self._support()
        if self.is_discrete:
            low = low - 1.0
        first, last = (low, high) if method == "ppf" else (high, low)
        inside = (p > 0) & (p < 1)
        value = self._formula(method)(p, *self.shapes) * self.scale + self.loc
        edge = xp.where(p == 0, first * self.scale + self.loc, xp.where(p == 1, last * self.scale + self.loc, NAN))
        return self._masked(xp.where(inside, value, edge), p)

    def _moment(self, method: str) -> Any:
        if method == "std":
            return xp.sqrt(self._moment("var"))
        value = cast(as_traced(self._formula(method)(*self.shapes)), np.float64)
        if method == "mean":
            value = value * self.scale + self.loc
        elif method == "var":
            value = value * self.scale * self.scale
        elif method == "entropy" and not self.is_discrete:
            value = value + xp.log(self.scale)
        return fresh(self._masked(value))


# the selection helpers that SciPy's own formulas call


@twin_of("scipy._lib._util._lazywhere")
def lazywhere(cond: Any, arrays: Any, f: Callable[..., Any], fillvalue: Any = None, f2: Any = None) -> Any:
    arrays = [cast(as_traced(a), np.float64) for a in arrays]
    return xp.where(cond, f(*arrays), f2(*arrays) if f2 is not None else fillvalue)


@twin_of("scipy._lib.array_api_extra.apply_where", "scipy._external.array_api_extra.apply_where")
def apply_where(
    cond: Any, args: Any, f1: Callable[..., Any], f2: Any = None, /, *, fill_value: Any = None, xp: Any = None
) -> Any:
    return lazywhere(cond, args if isinstance(args, tuple | list) else (args,), f1, fill_value, f2)


_MODULE = "scipy.stats._distn_infrastructure"


@kind_twin(f"{_MODULE}.rv_generic")
def distribution(value: Any, names: Names) -> Distribution:
    return Distribution(value, names)


@kind_twin(f"{_MODULE}.rv_frozen")
def frozen(value: Any, names: Names) -> Frozen:
    dist = distribution(value.dist, names)
    args = names.resolve(value.args, partial(getattr, value, "args"), f"{value.dist.name}.args")
    kwds = names.resolve(value.kwds, partial(getattr, value, "kwds"), f"{value.dist.name}.kwds")
    return Frozen(dist, args, kwds)
