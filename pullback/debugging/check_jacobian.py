"""What ``check_grad`` does besides the gradient of one combination: the whole Jacobian, and the gradient in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.debugging.finite_differences import Differences, Options, Slope
from pullback.transforms.api import grad
from pullback.transforms.derivatives import jacrev

MOST_ENTRIES = 2048
SINGLE_RTOL = 1e-3

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """The Jacobian of ``vector``, a function of ``values`` called ``names`` that gives the elements of all results in a row,
    beside differences of ``plain``, which gives the same. ``results``: name and shape of each result."""

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
        """Whether there is one row."""
        return sum(int(np.prod(shape)) for _, shape in self.results) == 1

    def slopes(self) -> Iterator[Slope]:
        """Each entry beside its difference quotient."""
        if not self.count:
            return
        matrix = jacrev(self.vector, argnums=tuple(range(len(self.values))))(*self.values)
        rows = _Rows(self.plain)
        places = [(name, index) for name, shape in self.results for index in np.ndindex(shape)]
        for k, (name, at) in enumerate(places):
            differences = Differences(lambda *xs, k=k: rows(*xs)[k], self.values, self.dtype, self.options)
            what = f"of {name} at {list(at)}" if at else f"of {name}"
            for position, x in enumerate(self.values):
                row = np.asarray(matrix[position], float)[k]
                for index in np.ndindex(np.shape(x)):
                    yield replace(differences.coordinate(position, self.names[position], row, 1, index), what=what)


class _Rows:
    """A function whose results are kept: each element of them is asked for by itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._found: dict[tuple[bytes, ...], Array] = {}

    def __call__(self, *values: Any) -> Array:
        key = tuple(np.asarray(v).tobytes() for v in values)
        if key not in self._found:
            self._found[key] = np.asarray(self._function(*values), float)
        return self._found[key]


def in_single(
    function: Callable[..., Any], values: Sequence[Any], names: Sequence[str], expected: Sequence[Any], options: Options
) -> Iterator[Slope]:
    """The gradient with the values in float32, beside what it is in float64."""
    given = [np.asarray(x, np.float32)[()] for x in values]
    found = grad(function, argnums=tuple(range(len(given))))(*given)
    rtol = SINGLE_RTOL if options.rtol is None else options.rtol
    for name, part, whole in zip(names, found, expected, strict=True):
        right = np.asarray(whole, float)
        largest = float(np.max(np.abs(right), where=np.isfinite(right), initial=0.0))
        for index in np.ndindex(right.shape):
            yield Slope(
                name=name,
                index=index,
                order=1,
                found=float(np.asarray(part)[index]),
                expected=float(right[index]),
                allowed=options.atol + rtol * abs(float(right[index])) + 0.1 * rtol * largest,
                what="in float32",
            )
