"""Intervals of 64-bit integers and of bools (0 and 1), and what comparisons say about them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

Interval = tuple[int, int]
"""The least and the greatest value."""

LEAST, GREATEST = -(2**63), 2**63 - 1
ANY: Interval = (LEAST, GREATEST)
BOOL: Interval = (0, 1)
NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
"""The comparison that holds where one does not."""
SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
"""The same comparison with its operands exchanged."""
_COMPARED = {name: getattr(operator, name) for name in NEGATED}


def join(intervals: Sequence[Interval]) -> Interval:
    """Return the least interval that contains all."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)


def meet(a: Interval, b: Interval) -> Interval:
    """Return the common part of two intervals; the first one if they have none, as in code that never runs."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a


def is_within(a: Interval, b: Interval) -> bool:
    """Return whether ``b`` contains ``a``."""
    return b[0] <= a[0] and a[1] <= b[1]


def compared(name: str, a: Interval, b: Interval) -> Interval:
    """Return the interval of a comparison."""
    if name in ("eq", "ne"):
        if a[1] < b[0] or b[1] < a[0]:
            return (0, 0) if name == "eq" else (1, 1)
        if a == b and a[0] == a[1]:
            return (1, 1) if name == "eq" else (0, 0)
        return BOOL
    outcomes = [int(_COMPARED[name](x, y)) for x, y in ((a[0], b[1]), (a[1], b[0]))]
    return min(outcomes), max(outcomes)


def limited(name: str, a: Interval, b: Interval) -> Interval:
    """Return the interval of a value in ``a`` of which a comparison with one in ``b`` holds."""
    match name:
        case "lt":
            limit = LEAST, b[1] - 1
        case "le":
            limit = LEAST, b[1]
        case "gt":
            limit = b[0] + 1, GREATEST
        case "ge":
            limit = b[0], GREATEST
        case "eq":
            limit = b
        case _:
            return (a[0] + (b == (a[0], a[0])), a[1] - (b == (a[1], a[1]))) if a[0] < a[1] else a
    return meet(a, limit)


def _corners(function: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    """Return the interval function of a function that is monotonic in each operand."""

    def interval(a: Interval, b: Interval) -> Interval:
        values = [function(x, y) for x in a for y in b]
        return min(values), max(values)

    return interval


def _divided(a: Interval, b: Interval) -> Interval:
    """Return the interval of a floor division."""
    return _corners(operator.floordiv)(a, b) if b[0] > 0 else ANY


def _remainder(a: Interval, b: Interval) -> Interval:
    """Return the interval of a remainder, which has the sign of the divisor."""
    if b[0] <= 0:
        return ANY
    return (0, min(a[1], b[1] - 1)) if a[0] >= 0 else (0, b[1] - 1)


def _common_bits(a: Interval, b: Interval) -> Interval:
    """Return the interval of a bitwise and."""
    tops = [high for low, high in (a, b) if low >= 0]
    return (0, min(tops)) if tops else ANY


def _bits(a: Interval, b: Interval) -> Interval:
    """Return the interval of a bitwise or, or exclusive or."""
    return (0, (1 << max(a[1], b[1]).bit_length()) - 1) if a[0] >= 0 and b[0] >= 0 else ANY


ARITHMETIC: dict[str, Callable[..., Interval]] = {
    "add": _corners(operator.add),
    "sub": _corners(operator.sub),
    "mul": _corners(operator.mul),
    "minimum": _corners(min),
    "maximum": _corners(max),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(a[0], -a[1], 0), max(-a[0], a[1])),
    "floordiv": _divided,
    "mod": _remainder,
    "bitand": _common_bits,
    "bitor": _bits,
    "bitxor": _bits,
}
"""The intervals of exact results of ops by those of their operands."""


def computed(name: str, operands: Sequence[Interval]) -> Interval:
    """Return the interval of an op on i64 scalars; any value if the exact result may have more than 64 bits."""
    if name not in ARITHMETIC:
        return ANY
    low, high = ARITHMETIC[name](*operands)
    return (low, high) if low >= LEAST and high <= GREATEST else ANY


def fits(name: str, operands: Sequence[Interval]) -> Interval:
    """Return the interval of whether the exact result of an op on i64 scalars has 64 bits."""
    return (1, 1) if is_within(ARITHMETIC[name](*operands), ANY) else BOOL
