"""scipy.interpolate: interpolation on grids, and by piecewise polynomials."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import axis_of, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit
from pullback.tracer.arrays.replacements import kind_twin, twin_of
from pullback.tracer.user_code.errors import TraceError

if TYPE_CHECKING:
    from pullback.tracer.names.resolver import Names


def _float(x: Any) -> Any:
    return cast(as_traced(x), np.float64)


def _check(condition: Any, message: str) -> None:
    emit("check", as_traced(condition), error="ValueError", message=message)


@twin_of("scipy.interpolate.RegularGridInterpolator")
class GridInterpolator:
    """SciPy's RegularGridInterpolator, linear or to the nearest point, on ascending grids."""

    def __init__(
        self, points: Any, values: Any, method: str = "linear", bounds_error: bool = True, fill_value: Any = np.nan, **kwargs: Any
    ) -> None:
        if kwargs:
            raise TraceError(f"RegularGridInterpolator of traced arrays takes no {', '.join(kwargs)}=; leave it out")
        self.grid = [_float(p) for p in points]
        self.values = as_traced(values)
        self.method = method
        self.bounds_error = bounds_error
        self.fill_value = fill_value
        if len(self.grid) > self.values.ndim:
            raise ValueError(f"There are {len(self.grid)} point arrays, but values has {self.values.ndim} dimensions")
        for k, p in enumerate(self.grid):
            if p.ndim != 1:
                raise ValueError(f"The points in dimension {k} must be 1-dimensional")
            if p.shape[0] != self.values.shape[k]:
                raise ValueError(f"There are {p.shape[0]} points and {self.values.shape[k]} values in dimension {k}")
            _check(p[1:] > p[:-1], f"The points in dimension {k} must be strictly ascending")

    def __call__(self, xi: Any, method: Any = None, *, nu: Any = None) -> Any:
        chosen = self.method if method is None else method
        if chosen not in ("linear", "nearest") or nu is not None:
            raise TraceError(f"RegularGridInterpolator of traced arrays with method={chosen!r} is not supported; use 'linear'")
        rank = len(self.grid)
        if isinstance(xi, tuple):
            xi = xp.stack(xp.broadcast_arrays(*(as_traced(x) for x in xi)), axis=-1)
        points = _float(xi)
        if not points.ndim:
            points = reshaped(points, (1,))
        if points.ndim == 1 and rank == 1:
            points = reshaped(points, (points.shape[0], 1))
        if points.shape[-1] != rank:
            raise ValueError(
                f"The requested sample points xi have dimension {points.shape[-1]}, but this RegularGridInterpolator has "
                f"dimension {rank}"
            )
        flat = reshaped(points, (math.prod(points.shape[:-1]), rank))
        result = self._at(flat, chosen)
        lead = points.shape[:-1] if points.ndim > 1 else (1,)
        return xp.reshape(result, lead + tuple(self.values.shape[rank:]))

    def _at(self, flat: Any, method: str) -> Any:
        sides = []
        is_outside: Any = None
        for k, p in enumerate(self.grid):
            x, n = flat[:, k], p.shape[0]
            is_beyond = (x < p[0]) | (x > p[-1])
            if self.bounds_error:
                _check(~is_beyond, f"One of the requested xi is out of bounds in dimension {k}")
            is_outside = is_beyond if is_outside is None else is_outside | is_beyond
            low = xp.clip(xp.searchsorted(p, x, side="right") - 1, 0, max(n - 2, 0))
            high = xp.minimum(low + 1, n - 1)
            share = (x - p[low]) / xp.where(high == low, 1.0, p[high] - p[low])
            if method == "nearest":
                sides.append([(xp.where(share <= 0.5, low, high), None)])
            else:
                sides.append([(low, 1.0 - share), (high, share)])
        total: Any = None
        trailing = (1,) * (self.values.ndim - len(self.grid))
        for corner in itertools.product(*sides):
            term: Any = self.values[tuple(index for index, _ in corner)]
            for _, weight in corner:
                term = term if weight is None else term * reshaped(weight, (weight.shape[0], *trailing))
            total = term if total is None else total + term
        total = total if total.dtype.kind in "fc" else cast(total, np.float64)
        is_nan = xp.any(xp.isnan(flat), axis=-1)
        mark = reshaped(is_nan, (is_nan.shape[0], *trailing))
        if self.fill_value is not None and not self.bounds_error:
            total = xp.where(reshaped(is_outside, mark.shape), self.fill_value, total)
        return xp.where(mark, np.nan, total)


@kind_twin("scipy.interpolate.RegularGridInterpolator")
def grid_interpolator(value: Any, names: Names) -> Any:
    grid = names.resolve(value.grid, partial(getattr, value, "grid"), "RegularGridInterpolator.grid")
    values = names.resolve(value.values, partial(getattr, value, "values"), "RegularGridInterpolator.values")
    if getattr(value, "_descending_dimensions", None) or value.method not in ("linear", "nearest"):
        return None
    return GridInterpolator(grid, values, value.method, value.bounds_error, value.fill_value)


class PiecewisePolynomial:
    """A piecewise polynomial of one variable: ``c[k, i]`` is the coefficient of (x - x[i])**(degree - k) in piece i."""

    def __init__(self, c: Any, x: Any, extrapolate: Any, axis: int = 0) -> None:
        self.c = as_traced(c)
        self.x = as_traced(x)
        self.extrapolate = extrapolate
        self.axis = axis

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        extrapolates = self.extrapolate if extrapolate is None else extrapolate
        points = _float(x)
        flat: Any = reshaped(points, (points.size,))
        knots: Any = self.x
        if extrapolates == "periodic":
            flat = knots[0] + (flat - knots[0]) % (knots[-1] - knots[0])
        piece = xp.clip(xp.searchsorted(knots, flat, side="right") - 1, 0, knots.shape[0] - 2)
        trailing_rank = self.c.ndim - 2
        step = reshaped(flat - knots[piece], (flat.shape[0], *(1,) * trailing_rank))
        degree = self.c.shape[0] - 1
        total: Any = None
        for k in range(degree + 1 - nu):
            power = degree - k
            factor = float(np.prod(np.arange(power - nu + 1, power + 1), initial=1.0))
            term = self.c[k][piece] * factor
            total = term if total is None else total * step + term
        if total is None:
            total = self.c[0][piece] * 0.0
        if not extrapolates:
            is_outside = (flat < knots[0]) | (flat > knots[-1])
            total = xp.where(reshaped(is_outside, step.shape), np.nan, total)
        result = xp.reshape(total, tuple(points.shape) + tuple(self.c.shape[2:]))
        order = [points.ndim + k for k in range(self.axis)]
        order += list(range(points.ndim)) + [points.ndim + k for k in range(self.axis, trailing_rank)]
        return xp.transpose(result, order) if order != sorted(order) else result

    def derivative(self, nu: int = 1) -> PiecewisePolynomial:
        c: Any = self.c
        for _ in range(nu):
            powers = lifted(np.arange, c.shape[0] - 1, 0, -1.0).reshape(-1, *(1,) * (c.ndim - 1))
            c = c[:-1] * powers if c.shape[0] > 1 else c * 0.0
        return PiecewisePolynomial(c, self.x, self.extrapolate, self.axis)


@twin_of("scipy.interpolate.CubicSpline")
def cubic_spline(x: Any, y: Any, axis: Any = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None) -> PiecewisePolynomial:
    """Return the spline whose slopes at the knots solve a linear system (de Boor, A Practical Guide to Splines, 1978), here a
    dense one."""
    if bc_type not in ("not-a-knot", "natural", "clamped"):
        raise TraceError(
            "scipy.interpolate.CubicSpline of traced values with such a bc_type= is not supported; "
            "use 'not-a-knot', 'natural' or 'clamped'"
        )
    knots, values = _float(x), as_traced(y)
    at = axis_of(axis, values.ndim)
    rows: Any = xp.moveaxis(_float(values), at, 0)
    n = knots.shape[0]
    if knots.ndim != 1 or rows.shape[0] != n:
        raise ValueError(f"The length of `y` along `axis`={axis} doesn't match the length of `x`")
    if n < 4:
        raise TraceError("scipy.interpolate.CubicSpline of traced values wants four knots or more; use np.polyfit for fewer")
    _check(knots[1:] > knots[:-1], "`x` must be strictly increasing sequence.")
    step: Any = knots[1:] - knots[:-1]
    trailing = (1,) * (rows.ndim - 1)
    widths = reshaped(step, (n - 1, *trailing))
    rate = (rows[1:] - rows[:-1]) / widths
    matrix, right = xp.zeros((n, n), like=knots), xp.zeros(rows.shape, like=knots)
    inner = lifted(np.arange, 1, n - 1)
    matrix[inner, inner - 1] = step[1:]
    matrix[inner, inner] = 2.0 * (step[:-1] + step[1:])
    matrix[inner, inner + 1] = step[:-1]
    right[1:-1] = 3.0 * (widths[1:] * rate[:-1] + widths[:-1] * rate[1:])
    for end, next_, first, second in ((0, 1, 0, 1), (n - 1, n - 2, n - 2, n - 3)):
        if bc_type == "not-a-knot":
            span = step[first] + step[second]
            matrix[end, end], matrix[end, next_] = step[second], span
            right[end] = ((step[first] + 2.0 * span) * step[second] * rate[first] + step[first] ** 2 * rate[second]) / span
        elif bc_type == "natural":
            matrix[end, end], matrix[end, next_] = 2.0, 1.0
            right[end] = 3.0 * rate[first]
        else:
            matrix[end, end] = 1.0
    flat = reshaped(as_traced(right), (n, right.size // n))
    slopes = xp.reshape(xp.linalg.solve(matrix, flat), rows.shape)
    curve = slopes[:-1] + slopes[1:] - 2.0 * rate
    c = xp.stack([curve / widths**2, (rate - slopes[:-1] - curve) / widths, slopes[:-1], rows[:-1]])
    return PiecewisePolynomial(c, knots, True if extrapolate is None else extrapolate, at)


@kind_twin("scipy.interpolate.PPoly")
def piecewise(value: Any, names: Names) -> PiecewisePolynomial:
    c = names.resolve(value.c, partial(getattr, value, "c"), "PPoly.c")
    x = names.resolve(value.x, partial(getattr, value, "x"), "PPoly.x")
    return PiecewisePolynomial(c, x, value.extrapolate, value.axis)


@twin_of("scipy.interpolate.interp1d")
def interp1d(
    x: Any, y: Any, kind: Any = "linear", axis: Any = -1, copy: bool = True, bounds_error: Any = None, fill_value: Any = np.nan,
    assume_sorted: bool = False,
) -> Any:  # fmt: skip
    if kind != "linear" or (isinstance(fill_value, str) and fill_value != "extrapolate") or isinstance(fill_value, tuple):
        raise TraceError("scipy.interpolate.interp1d of traced arrays is linear, with one number or 'extrapolate' to fill")
    values = as_traced(y)
    at = axis_of(axis, values.ndim)
    knots: Any = _float(x)
    rows: Any = xp.moveaxis(values if values.dtype.kind == "f" else cast(values, np.float64), at, 0)
    if not assume_sorted:
        order = xp.argsort(knots)
        knots, rows = knots[order], rows[order]
    trailing = (1,) * (rows.ndim - 1)
    slopes = (rows[1:] - rows[:-1]) / reshaped(knots[1:] - knots[:-1], (knots.shape[0] - 1, *trailing))
    extends = isinstance(fill_value, str)
    has_fill = not isinstance(fill_value, float) or not np.isnan(fill_value)
    is_strict = not extends and (not has_fill if bounds_error is None else bounds_error)
    pieces = PiecewisePolynomial(xp.stack([slopes, rows[:-1]]), knots, True, at)

    def evaluate(new: Any) -> Any:
        points = _float(new)
        is_outside = (points < knots[0]) | (points > knots[-1])
        if is_strict:
            _check(~is_outside, "A value in x_new is above or below the interpolation range.")
        result = pieces(points)
        if extends or is_strict:
            return result
        shape = [1] * at + list(points.shape) + [1] * (values.ndim - 1 - at)
        return xp.where(reshaped(is_outside, shape), fill_value, result)

    return evaluate
