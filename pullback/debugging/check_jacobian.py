"""The further checks of ``check_grad``: the full Jacobian, and the gradient in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.debugging.finite_differences import Differences, Options, Slope
from pullback.ir.core.records import dataclass
from pullback.transforms.api import grad
from pullback.transforms.derivatives import jacrev

MOST_ENTRIES = 2048
"""Largest Jacobian, in entries, that is checked."""
SINGLE_RTOL = 1e-3
"""Default relative tolerance of the gradient in float32."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """The Jacobian of ``vector``, compared with differences of ``plain``, which computes the same.

    ``vector`` is a function of ``values``, which have the ``names``; it returns the elements of all results in one vector.
    ``results``: name and shape of each result.
    """

    vector: Callable[..., Any]
    plain: Callable[..., Any]
    names: Sequence[str]
    values: Sequence[Any]
    results: Sequence[tuple[str, tuple[int, ...]]]
    dtype: Any
    options: Options

    @property
    def count(self) -> int:
        """The number of entries."""
        ins, outs = sum(map(np.size, self.values)), sum(int(np.prod(shape)) for _, shape in self.results)
        return int(ins * outs)

    @property
    def is_gradient(self) -> bool:
        """Whether there is only one row."""
        return sum(int(np.prod(shape)) for _, shape in self.results) == 1

    def slopes(self) -> Iterator[Slope]:
        """Yield each entry with its difference quotient."""
        if not self.count:
            return
        matrix = jacrev(self.vector, argnums=tuple(range(len(self.values))))(*self.values)
        rows = _CachedFunction(self.plain)
        elements = [(name, index) for name, shape in self.results for index in np.ndindex(shape)]
        for k, (name, at) in enumerate(elements):
            differences = Differences(lambda *xs, k=k: rows(*xs)[k], self.values, self.dtype, self.options)
            label = f"of {name} at {list(at)}" if at else f"of {name}"
            for position, x in enumerate(self.values):
                row = np.asarray(matrix[position], float)[k]
                for index in np.ndindex(np.shape(x)):
                    yield replace(differences.coordinate(position, self.names[position], row, 1, index), what=label)


class _CachedFunction:
    """A function that caches its results: each element of a result is read by a call of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._results: dict[tuple[bytes, ...], Array] = {}

    def __call__(self, *values: Any) -> Array:
        key = tuple(np.asarray(v).tobytes() for v in values)
        if key not in self._results:
            self._results[key] = np.asarray(self._function(*values), float)
        return self._results[key]


def in_float32(
    function: Callable[..., Any], values: Sequence[Any], names: Sequence[str], expected: Sequence[Any], options: Options
) -> Iterator[Slope]:
    """Compare the gradient with the values in float32 with ``expected``, the one in float64."""
    singles = [np.asarray(x, np.float32)[()] for x in values]
    gradients = grad(function, argnums=tuple(range(len(singles))))(*singles)
    rtol = SINGLE_RTOL if options.rtol is None else options.rtol
    for name, single, double in zip(names, gradients, expected, strict=True):
        right = np.asarray(double, float)
        largest = float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0))
        for index in np.ndindex(right.shape):
            yield Slope(
                name=name,
                index=index,
                order=1,
                found=float(np.asarray(single)[index]),
                expected=float(right[index]),
                allowed=options.atol + rtol * abs(float(right[index])) + 0.1 * rtol * largest,
                what="in float32",
            )
