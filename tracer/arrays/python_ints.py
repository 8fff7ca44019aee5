"""Arithmetic of Python ints with unknown values: 64 bits hold the result, or the program raises.

Each traced int has bounds. If the operands' bounds show that a result fits, nothing is checked at run time; otherwise a check
follows the operation. An argument is assumed to be short, of at most 32 bits, so that most arithmetic fits: the trace then
serves no call with a longer one. An int of unknown size, such as the carry of a loop, has the bounds of int64.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from pullback.ir.passes.hoist_guards import BEYOND
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.make import emit, literal
from pullback.tracer.arrays.mixed_numbers import Condition, is_mixed
from pullback.tracer.arrays.python_floats import require
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.check_messages import Limit

Bounds = tuple[int, int]

LEAST, GREATEST = -(2**63), 2**63 - 1
SHORT = 2**31
"""Bound of a short int (32 bits): at least -SHORT and less than SHORT."""
MAX_TRIP_COUNT = 2**48
"""Upper bound of a loop's trip count: three days of iterations of a nanosecond each."""
CARRIED_STEP = 2**16
"""Largest growth per iteration of a carried int that is not checked: 2**47 iterations would be needed to exceed 64 bits."""
ROOM = 2**62
"""Largest size of an int to which a loop adds such steps."""
MAX_EXTENT = 2**48
"""Upper bound of any extent."""
MESSAGE = Limit(
    "a Python integer that the function computes has more than 64 bits, which compiled code does not hold; use floats"
)

_takes_short: ContextVar[bool] = ContextVar("pullback_takes_short", default=True)


@contextmanager
def allow_long_arguments() -> Iterator[None]:
    """Allow arguments of up to 64 bits in the traces of this context, where no caller checks whether they are short."""
    token = _takes_short.set(False)
    try:
        yield
    finally:
        _takes_short.reset(token)


def serves_other_sizes() -> bool:
    """Return whether the program of this trace is an export, which also runs with other sizes than those of its traces."""
    return not _takes_short.get()


def is_short(value: Any) -> bool:
    """Return whether an int has at most 32 bits."""
    return bool(-SHORT <= value < SHORT)


def argument_bounds(index: int, value: Any) -> int | None:
    """Return the deferred bounds of leaf ``index`` of a call: its index if it is a short int, else None."""
    return index if _takes_short.get() and type(value) is int and is_short(value) else None


def bounds_of(x: TracedArray) -> Bounds:
    """Return the least and the greatest value of a Python int. The bounds of an argument become a guard of its trace."""
    if x.literal is not None:
        return (-MAX_EXTENT, MAX_EXTENT) if is_size(x.literal) else (int(x.literal), int(x.literal))
    if isinstance(x.bounds, int):
        frame_of(x).root.short.add(x.bounds)
        return -SHORT, SHORT - 1
    if x.weak == "bool" or x.dtype.kind == "b":
        return 0, 1
    low, high = x.bounds or (LEAST, GREATEST)
    return int(low), int(high)


def index_bounds(x: TracedArray) -> Bounds | None:
    """Return the least and the greatest value of an index that is a Python int, without a guard; None for another one."""
    if x.literal is not None or x.weak not in ("int", "bool") or isinstance(x.bounds, int):
        return None
    return bounds_of(x)


def common_bounds(xs: Sequence[TracedArray]) -> Bounds | None:
    """Return the bounds of a number that is one of several: those of the Python ints among them. None if they are not known, or a
    Python number is no int."""
    ints = [x for x in xs if x.weak or is_mixed(x)]
    if not ints or not all(x.weak in ("int", "bool") or x.dtype.kind in "bi" for x in ints):
        return None
    if not all(isinstance(x.bounds, tuple) or (x.literal is not None and not is_size(x.literal)) for x in ints):
        return None
    ranges = list(map(bounds_of, ints))
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _corners(function: Callable[[int, int], int]) -> Callable[[Bounds, Bounds], Bounds]:
    def bounds(a: Bounds, b: Bounds) -> Bounds:
        values = [function(x, y) for x in a for y in b]
        return min(values), max(values)

    return bounds


def _size(a: Bounds) -> int:
    return max(abs(a[0]), abs(a[1]))


def _power(a: Bounds, b: Bounds) -> Bounds:
    if b[0] < 0 or b[1] > 64:
        return (-(2**64), 2**64) if _size(a) > 1 else (-1, 1)
    return -(_size(a) ** b[1]), max(_size(a) ** b[1], 1)


def _shifted(a: Bounds, b: Bounds) -> Bounds:
    return (-(2**64), 2**64) if b[1] > 64 else (min(a[0], 0) << max(b[1], 0), max(a[1], 0) << max(b[1], 0))


def _bits(a: Bounds, b: Bounds) -> Bounds:
    width = min(max(_size(a), _size(b)).bit_length(), 63)
    return -(1 << width), (1 << width) - 1


def _common_bits(a: Bounds, b: Bounds) -> Bounds:
    tops = [x[1] for x in (a, b) if x[0] >= 0]
    return (0, min(tops)) if tops else _bits(a, b)


def _remainder(a: Bounds, b: Bounds) -> Bounds:
    if b[0] > 0:
        return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1
    return min(1 - _size(b), 0), max(_size(b) - 1, 0)


_BOUNDS: dict[np.ufunc, Callable[..., Bounds]] = {
    np.add: _corners(lambda x, y: x + y),
    np.subtract: _corners(lambda x, y: x - y),
    np.multiply: _corners(lambda x, y: x * y),
    np.floor_divide: lambda a, b: (0, a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else (-_size(a), _size(a)),
    np.remainder: _remainder,
    np.power: _power,
    np.left_shift: _shifted,
    np.right_shift: lambda a, b: (min(a[0], 0), max(a[1], 0)),
    np.bitwise_and: _common_bits,
    np.bitwise_or: _bits,
    np.bitwise_xor: _bits,
    np.negative: lambda a: (-a[1], -a[0]),
    np.absolute: lambda a: (0, _size(a)),
    np.positive: lambda a: a,
    np.invert: lambda a: (~a[1], ~a[0]),
}


def _zero_division_message(division: Callable[[int, int], Any]) -> str:
    """Return Python's message for a division of ints by zero, which differs between versions."""
    try:
        division(1, 0)
    except ZeroDivisionError as error:
        return str(error)
    raise AssertionError(division)


_BY_ZERO: dict[np.ufunc, str] = {
    np.true_divide: _zero_division_message(operator.truediv),
    np.floor_divide: _zero_division_message(operator.floordiv),
    np.remainder: _zero_division_message(operator.mod),
    np.divmod: _zero_division_message(divmod),
}


def check_divisor(ufunc: np.ufunc, xs: Sequence[TracedArray], where: Condition = True) -> None:
    """Emit a check that raises Python's ZeroDivisionError for a division of Python ints by zero. ``where``: whether they are
    Python's.

    Nothing is emitted if the bounds of the divisor exclude 0.
    """
    if ufunc not in _BY_ZERO or not all(x.weak in ("int", "bool") for x in xs):
        return
    low, high = bounds_of(xs[1])
    if low <= 0 <= high and xs[1].literal is None:
        require(emit("ne", xs[1], literal(0, xs[1].dtype)), "ZeroDivisionError", _BY_ZERO[ufunc], where)


def keep_exact(
    ufunc: np.ufunc, xs: Sequence[TracedArray], result: TracedArray, is_known: bool, where: Condition = True
) -> None:  # fmt: skip
    """Set the bounds of the result of an operation on Python ints, and emit an overflow check if they exceed 64 bits.

    ``is_known``: the trace knows the value in this call. Then a call in which it has more bits is traced anew. ``where``: whether
    the ints are Python's.
    """
    if ufunc not in _BOUNDS:
        return
    ranges = [bounds_of(x) for x in xs]
    if ufunc in (np.left_shift, np.right_shift) and ranges[1][0] < 0:
        require(emit("ge", xs[1], literal(0, np.int64)), "ValueError", "negative shift count", where)
    low, high = _BOUNDS[ufunc](*ranges)
    if low >= LEAST and high <= GREATEST:
        result.bounds = (low, high)
        return
    result.bounds = (LEAST, GREATEST)  # not the part of low ... high: where the check fails, the result has wrapped around
    carried = [x for x, b in zip(xs, reversed(ranges)) if _is_carried(x) and _size(b) <= CARRIED_STEP]
    if ufunc in (np.add, np.subtract) and carried:
        for x in carried:
            _note_unchecked(x)
        return
    frame = frame_of(*xs)
    is_retraced = is_known and frame.parent is None and frame.sizes is None and _takes_short.get()
    require(_is_exact(ufunc, xs), BEYOND if is_retraced else "OverflowError", MESSAGE, where)


def _is_carried(x: TracedArray) -> bool:
    """Return whether an int is the carry of a loop's iteration."""
    frame: Frame | None = x.frame
    return x.literal is None and x.bounds is None and frame is not None and bool(frame.sealed) and x.value in frame.parameters


def _note_unchecked(x: TracedArray) -> None:
    """Note that little is added to the carry of a loop's iteration without a check."""
    assert x.frame is not None
    x.frame.unchecked.add(x.value)


def require_room(entry: TracedArray, parameter: TracedArray) -> None:
    """Emit a check that an int with which a loop starts has few enough bits for what its iterations add to the ``parameter``."""
    if parameter.frame is None or parameter.value not in parameter.frame.unchecked:
        return
    if _is_carried(entry):
        _note_unchecked(entry)
        return
    if _size(bounds_of(entry)) > ROOM:
        is_within = emit("bitand", emit("ge", entry, literal(-ROOM, np.int64)), emit("le", entry, literal(ROOM, np.int64)))
        require(is_within, "OverflowError", MESSAGE)


_FITS = {np.add: "add_fits", np.subtract: "sub_fits", np.multiply: "mul_fits"}
"""The ops of whether an operation has not wrapped around."""


def _is_exact(ufunc: np.ufunc, xs: Sequence[TracedArray]) -> TracedArray:
    """Return whether an operation on int64 has not wrapped around.

    Powers are compared with float ones, which reject some results that just fit.
    """
    least = literal(LEAST, np.int64)
    a, b = xs[0], xs[-1]
    fits: TracedArray
    if ufunc in _FITS:
        fits = emit(_FITS[ufunc], a, b)
    elif ufunc in (np.negative, np.absolute):
        fits = emit("ne", a, least)
    elif ufunc is np.floor_divide:
        fits = emit("bitnot", emit("bitand", emit("eq", a, least), emit("eq", b, literal(-1, np.int64))))
    else:
        x, y = (emit("cast", v, dtype=np.float64) for v in (a, b))
        if ufunc is np.left_shift:
            y = emit("exp2", y)
        size: Any = emit("pow" if ufunc is np.power else "mul", x, y)
        fits = emit("le", emit("abs", size), literal(2.0**63 * (1 - 2.0**-40), np.float64))
    return fits
