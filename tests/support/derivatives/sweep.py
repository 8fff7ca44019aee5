"""The errors of values and derivatives of elementwise ops, compiled, at the points of the sweep.

An error is a distance from the exact value in units of u (|f| + sum |x_i f_i|), u being the unit roundoff, and of derivatives
likewise with the next order: as much as a change of the arguments by one rounding makes. Where results underflow, what they may
be off by absolutely is taken off first: ``FLOOR`` times the smallest subnormal number. From a quarter of the largest number on,
infinity counts as right; and where a function or its derivative is that large, derivatives of the next order are not counted.
Where SciPy computes the values, points at which it is wrong itself (infinite, NaN, or off by ``LOST`` units) are not counted
either.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import pullback as pb
from pullback.ir import OPS
from tests.support.derivatives.references import orders, read
from tests.support.derivatives.rows import ROWS, Array, Row

DTYPES = {"f64": np.float64, "f32": np.float32}
MODES = ("reverse", "forward")
FLOOR = 256
"""Of the smallest subnormal number: what a result may lose that is a product of one that underflows."""


LOST = 2.0**20
"""Units from which a value of a library counts as wrong."""


def of_library(name: str) -> bool:
    """Whether the values of an op are those of a ufunc of SciPy."""
    spelling = getattr(OPS[name], "llvm", "")
    return isinstance(spelling, str) and spelling.startswith("ufunc:")


def program(row: Row, mode: str) -> Callable[..., Any]:
    """A compiled function of vectors: the value, and the first and second derivatives at each of their elements."""
    f, every = row.call, tuple(range(row.arity))

    def reverse(*x: Any) -> Any:
        def along(g: Any, k: int) -> Any:
            return lambda *z: pb.grad(lambda *y: np.sum(g(*y)), argnums=k)(*z)

        first = pb.grad(lambda *z: np.sum(f(*z)), argnums=every)(*x)
        second = [along(along(f, j), k)(*x) for j, k in itertools.combinations_with_replacement(every, 2)]
        return [f(*x), *first, *second]

    def forward(*x: Any) -> Any:
        def along(g: Any, k: int) -> Any:
            def derivative(*z: Any) -> Any:
                return pb.jvp(lambda v: g(*z[:k], v, *z[k + 1 :]), (z[k],), (np.ones_like(z[k]),))[1]

            return derivative

        second = [along(along(f, j), k)(*x) for j, k in itertools.combinations_with_replacement(every, 2)]
        return [f(*x), *(along(f, k)(*x) for k in every), *second]

    return pb.jit(reverse if mode == "reverse" else forward)


@dataclass(frozen=True)
class Errors:
    """The errors of one column: the value, or a derivative of a multi-index, at the points that have a reference."""

    index: tuple[int, ...]
    points: Array
    ours: Array
    right: Array
    units: Array

    @property
    def order(self) -> int:
        return sum(self.index)

    def worst(self) -> int:
        return int(np.argmax(self.units))


def chosen(name: str, dtype: str, every: int = 1) -> tuple[Array, Array, Array]:
    """The points of a row that are numbers of the format, one of ``every`` powers of two, and their columns."""
    x, values, scales = read(name)
    kind = DTYPES[dtype]
    with np.errstate(all="ignore"):
        narrow = x.astype(kind)
        # Twice a number of the last binade overflows, so that derivatives of its square are infinite.
        keep = np.all((narrow == x) & (np.abs(x) < 2.0 ** (np.finfo(kind).maxexp - 1)), axis=1)
        if (without := ROWS[name].without) is not None:
            keep &= ~without(*narrow.T)
        if every > 1:
            mantissa, exponent = np.frexp(x)
            thinned = np.all(np.abs(mantissa) == 0.5, axis=1) & (np.sum(exponent, axis=1) % every != 0)
            keep &= ~thinned
    return narrow[keep], values[keep], scales[keep]


def measured(name: str, dtype: str, mode: str, every: int = 1) -> Iterator[Errors]:
    """The errors of each column of a row."""
    row, kind = ROWS[name], DTYPES[dtype]
    x, values, scales = chosen(name, dtype, every)
    results = program(row, mode)(*np.ascontiguousarray(x.T))
    unit = float(np.finfo(kind).eps) / 2
    columns, is_usable = orders(row.arity), np.ones(len(x), bool)
    for k, (index, ours) in enumerate(zip(columns, results, strict=True)):
        info, right = np.finfo(np.asarray(ours).dtype), values[:, k]
        least, top = float(info.smallest_subnormal), float(info.max)
        known = ~np.isnan(right) & is_usable
        if sum(index) == 2 and row.without_second is not None:
            known &= ~row.without_second(*x.T)
        for j in range(k):
            if all(a <= b for a, b in zip(columns[j], index, strict=True)):
                known &= np.abs(values[:, j]) < top / 4
        with np.errstate(all="ignore"):
            there = right.astype(info.dtype).astype(np.float64)
            result = np.asarray(ours).astype(np.float64)
            # In units of the scale, without overflow or underflow of either.
            floor = FLOOR * least + (row.absolute if any(index[:-1]) else 0.0)
            distance = np.maximum(np.abs(result - right) - floor, 0)
            logarithm = np.log2(distance) - scales[:, k] - np.log2(unit)
            units = np.where(distance == 0, 0.0, np.exp2(np.minimum(logarithm, 1023)))
            units = np.where((result == there) | (result == right), 0.0, units)
            # Beyond the format, and from a quarter of its largest number on, infinity is right.
            same_sign = np.sign(result) == np.sign(right)
            infinite = np.isinf(result) & (np.abs(right) >= top / 4) | (np.abs(result) == top) & (np.abs(right) >= top)
            units = np.where(infinite & same_sign, 0.0, np.where(np.isfinite(result) & (np.abs(right) < top), units, np.inf))
        if k == 0 and of_library(name):
            is_usable = units <= LOST
            known &= is_usable
        yield Errors(index, x[known], np.asarray(ours)[known], right[known], units[known])
