"""Symbolic sizes: integers and other numbers that are computed from the extents of arguments.

While a function is traced with symbolic sizes, an extent of an argument is a ``Size``: it holds its value in the current call,
and its formula in terms of the extents. Arithmetic is done on both. An operation that needs more, such as the value, a truth
value or an order, gets the result of the current call, and the ``Recorder`` (``guards.Sizes``) records it as a guard: the
trace serves every call in which all guards have the same result. So no use of a size goes unrecorded.

A Size is a polynomial over *atoms*, with integer coefficients, in canonical form, so that equal polynomials compare equal.
Atoms are extents of arguments, and results of functions that are not polynomials. Other numbers (``1 / n``) are single atoms.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.scalars import SymbolicScalar
from pullback.ir.shapes.polynomials import Polynomial, added, multiplied, scaled, without


@dataclass(frozen=True, kw_only=True, eq=False)
class Atom:
    """An extent of an argument, called ``name``, or the result of ``function`` for ``args``, which may hold sizes."""

    index: int
    name: str
    value: Any
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


class Recorder(Protocol):
    """The interface of a symbolic trace as its numbers use it: it computes on them, and records guards.

    ``is_open``: whether it still records; once closed, results are plain numbers. ``is_by_value``: whether its sizes are extents
    that the program computes (``by_value``). ``refused``: why the trace serves no other
    call.
    """

    is_open: bool
    is_by_value: bool
    refused: str

    @property
    def atoms(self) -> Sequence[Atom]:
        """The atoms so far, each at its ``index``."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return the result of a function without effects for numbers, at least one of them symbolic in this trace."""

    def compare(self, relation: str, a: Size | int, b: Size | int) -> bool:
        """Return whether a relation of two integers holds, and record a guard unless it holds for all sizes or for none."""

    def pin(self, values: Iterable[Any]) -> None:
        """Record guards that fix these values, because they were read."""

    def reduced(self, terms: Polynomial) -> Polynomial:
        """Return an equal polynomial, with the solved atoms substituted."""


def _operator(function: Callable[[Any, Any], Any]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Return a binary operator and its reflected form."""

    def forward(self: Number, other: Any) -> Any:
        return self.sizes.apply(function, (self, other)) if is_number(other) else NotImplemented

    def reflected(self: Number, other: Any) -> Any:
        return self.sizes.apply(function, (other, self)) if is_number(other) else NotImplemented

    return forward, reflected


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: self.sizes.apply(function, (self,))


UNKNOWN = "n"
"""The text of an extent by value in error messages."""


class Number(SymbolicScalar):
    """A symbolic number, which has ``value`` in this call. ``isinstance`` sees the class of its value."""

    __slots__ = ("atom", "sizes", "value")
    __array_priority__ = 900.0

    def __init__(self, sizes: Recorder, atom: int, value: Any) -> None:
        self.sizes = sizes
        self.atom = atom
        self.value = value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)

    @property
    def key(self) -> Any:
        """A key that numbers share if they are equal for all sizes."""
        return self.atom

    def pinned(self) -> Any:
        """Return the value, and record a guard that fixes it."""
        self.sizes.pin((self,))
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "ndim", "shape", "size", "itemsize"):
            return getattr(self.value, name)
        if name.startswith("__") and not hasattr(self.value, name):
            raise AttributeError(name)
        return getattr(self.pinned(), name)

    def converted(self, kind: type) -> Any:
        """Return the number as an int, a float or a complex number of the same trace."""
        is_float = isinstance(self.value, float) and not isinstance(self.value, np.generic)
        return self if kind is float and is_float else self.sizes.apply(kind, (self,))

    def item(self) -> Any:
        """Return the number as a Python number."""
        return self.sizes.apply(operator.methodcaller("item"), (self,))

    def __bool__(self) -> bool:
        truth = self.sizes.apply(bool, (self,))
        return bool(truth)

    def __index__(self) -> int:
        return operator.index(self.pinned())

    def __int__(self) -> int:
        return int(self.pinned())

    def __float__(self) -> float:
        return float(self.pinned())

    def __complex__(self) -> complex:
        return complex(self.pinned())

    def __str__(self) -> str:
        return UNKNOWN if self.sizes.is_by_value else str(self.pinned())

    def __repr__(self) -> str:
        return UNKNOWN if self.sizes.is_by_value else repr(self.pinned())

    def __format__(self, spec: str) -> str:
        return UNKNOWN if self.sizes.is_by_value else format(self.pinned(), spec)

    def __hash__(self) -> int:
        return hash(self.pinned())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self.value), (self.pinned(),)

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: Any) -> Number:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.pinned(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(type(x) in KINDS and isinstance(x, np.ndarray) for x in inputs):
            return NotImplemented
        if any(hasattr(type(x), "__array_ufunc__") and not isinstance(x, np.ndarray) and not is_number(x) for x in inputs):
            return NotImplemented
        if method == "__call__" and not kwargs and all(map(is_number, inputs)):
            with np.errstate(all="ignore"):
                return self.sizes.apply(ufunc, inputs)
        self.sizes.pin(inputs)
        return getattr(ufunc, method)(*map(plain, inputs), **kwargs)

    def __round__(self, ndigits: Any = None) -> Any:
        return self.sizes.apply(round, (self,) if ndigits is None else (self, ndigits))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    __add__, __radd__ = _operator(operator.add)
    __sub__, __rsub__ = _operator(operator.sub)
    __mul__, __rmul__ = _operator(operator.mul)
    __truediv__, __rtruediv__ = _operator(operator.truediv)
    __floordiv__, __rfloordiv__ = _operator(operator.floordiv)
    __mod__, __rmod__ = _operator(operator.mod)
    __pow__, __rpow__ = _operator(operator.pow)
    __and__, __rand__ = _operator(operator.and_)
    __or__, __ror__ = _operator(operator.or_)
    __xor__, __rxor__ = _operator(operator.xor)
    __lshift__, __rlshift__ = _operator(operator.lshift)
    __rshift__, __rrshift__ = _operator(operator.rshift)
    __lt__, __le__, __gt__, __ge__ = (_operator(f)[0] for f in (operator.lt, operator.le, operator.gt, operator.ge))
    __neg__, __pos__, __abs__, __invert__ = (_unary(f) for f in (operator.neg, operator.pos, operator.abs, operator.invert))
    __trunc__, __floor__, __ceil__ = (_unary(f) for f in (math.trunc, math.floor, math.ceil))

    def __eq__(self, other: object) -> Any:
        return self.sizes.apply(operator.eq, (self, other)) if is_number(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self.sizes.apply(operator.ne, (self, other)) if is_number(other) else NotImplemented


class Size(Number):
    """An integer that comes from sizes. ``terms``: its polynomial."""

    __slots__ = ("terms",)

    def __init__(self, sizes: Recorder, terms: Polynomial, value: int) -> None:
        self.sizes = sizes
        self.terms = terms
        self.value = value

    @property
    def key(self) -> Any:
        return self.terms

    def converted(self, kind: type) -> Any:
        return self if kind is int else super().converted(kind)

    def _create(self, terms: Polynomial, value: int) -> Any:
        """Return the size with these terms, or its value if it is the same for all sizes."""
        if not self.sizes.is_open or not any(m for m, _ in terms):
            return value
        return Size(self.sizes, terms, value)

    def __bool__(self) -> bool:
        return self.sizes.compare("!=", self, 0)

    def __add__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__add__(other)
        if not is_of_one_trace(self, other):
            return operator.add(*of_one_trace(self, other))
        return self._create(added(self.terms, terms_of(other)), self.value + plain(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__sub__(other)
        if not is_of_one_trace(self, other):
            return operator.sub(*of_one_trace(self, other))
        return self._create(added(self.terms, terms_of(other), -1), self.value - plain(other))

    def __rsub__(self, other: Any) -> Any:
        return super().__rsub__(other) if type(other) is not int else (-self) + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__mul__(other)
        if not is_of_one_trace(self, other):
            return operator.mul(*of_one_trace(self, other))
        return self._create(multiplied(self.terms, terms_of(other)), self.value * plain(other))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._create(scaled(self.terms, -1), -self.value)

    def __pos__(self) -> Any:
        return self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __round__(self, ndigits: Any = None) -> Any:
        return self if ndigits is None else super().__round__(ndigits)

    def __pow__(self, other: Any) -> Any:
        return math.prod([self] * other) if type(other) is int and 0 < other <= 4 else super().__pow__(other)

    def __floordiv__(self, other: Any) -> Any:
        if not is_of_one_trace(self, other):
            return operator.floordiv(*of_one_trace(self, other))
        quotient = _quotient(self, other)
        return super().__floordiv__(other) if quotient is None else quotient

    def __mod__(self, other: Any) -> Any:
        if not is_of_one_trace(self, other):
            return operator.mod(*of_one_trace(self, other))
        quotient = _quotient(self, other, exact=True)
        return super().__mod__(other) if quotient is None else 0

    def __lt__(self, other: Any) -> Any:
        return self.sizes.compare("<", self, other) if is_integer(other) else super().__lt__(other)

    def __le__(self, other: Any) -> Any:
        return self.sizes.compare("<=", self, other) if is_integer(other) else super().__le__(other)

    def __gt__(self, other: Any) -> Any:
        return self.sizes.compare(">", self, other) if is_integer(other) else super().__gt__(other)

    def __ge__(self, other: Any) -> Any:
        return self.sizes.compare(">=", self, other) if is_integer(other) else super().__ge__(other)

    def __eq__(self, other: Any) -> Any:
        return self.sizes.compare("==", self, other) if is_integer(other) else super().__eq__(other)

    def __ne__(self, other: Any) -> Any:
        return self.sizes.compare("!=", self, other) if is_integer(other) else super().__ne__(other)

    def __hash__(self) -> int:
        return hash(self.pinned())


def is_of_one_trace(a: Any, b: Any) -> bool:
    """Return whether two integers are no sizes of different recorders, such as an extent of an argument and one by value."""
    return type(a) is not Size or type(b) is not Size or a.sizes is b.sizes


def of_one_trace(a: Any, b: Any) -> tuple[Any, Any]:
    """Return two integers, and, of sizes of different recorders, the one that is no extent by value as the int that a guard
    fixes."""
    if is_of_one_trace(a, b):
        return a, b
    return (a, b.pinned()) if a.sizes.is_by_value else (a.pinned(), b)


def conversion(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: mark a function that converts its first argument to another kind of number; guards show the argument alone."""
    CONVERSIONS.add(function)
    return function


CONVERSIONS: set[Any] = {float, int, complex, operator.index}
"""Functions that guards do not show: they convert a number."""


KINDS: set[type] = {Size, Number}
"""The classes of symbolic values; ``symbolic_arrays.py`` adds one."""


def is_size(x: Any) -> bool:
    """Return whether a value is a symbolic number."""
    return type(x) is Size or type(x) is Number


def plain(x: Any) -> Any:
    """Return the value of a symbolic number in this call, also inside tuples, lists and slices; other values are returned
    unchanged."""
    kind = type(x)
    if kind in KINDS:
        return x.value
    if kind is tuple or kind is list:
        return kind(map(plain, x))
    return slice(plain(x.start), plain(x.stop), plain(x.step)) if kind is slice else x


def lifted(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Apply a function without effects to numbers and arrays. The result is symbolic if one of ``args`` is."""
    sizes = sizes_in(args)
    if sizes is None or sizes_in(kwargs.values()) is not None or not all(map(is_data, (*args, *kwargs.values()))):
        return function(*args, **kwargs)
    return sizes.apply(bound(function, kwargs), args)


def bound(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with these keyword arguments bound."""
    return partial(function, **{k: frozen(v) for k, v in kwargs.items()}) if kwargs else function


def is_data(x: Any) -> bool:
    """Return whether a value may be an argument of a call that is repeated for other sizes: it holds no function and no state."""
    if isinstance(x, tuple | list):
        return type(x) in (tuple, list) and all(map(is_data, x))
    if type(x) is slice:
        return all(map(is_data, (x.start, x.stop, x.step)))
    return x is None or x is Ellipsis or is_number(x) or type(x) in KINDS or type(x) in _DATA or is_type(x)


def is_type(x: Any) -> bool:
    """Return whether a value is a dtype, or a number class of Python or NumPy."""
    return isinstance(x, np.dtype) or (isinstance(x, type) and (x in (bool, int, float, complex) or issubclass(x, np.generic)))


_DATA = (np.ndarray, str)


def frozen(x: Any) -> Any:
    """Return the same data with arrays copied, so that later writes do not change it."""
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(map(frozen, x))
    return x.copy() if kind is np.ndarray else x


def sizes_in(values: Any) -> Recorder | None:
    """Return the recorder of a symbolic number in ``values``, or in a tuple, list or slice of them; None if there is none."""
    for x in values:
        kind = type(x)
        if kind in KINDS:
            recorder: Recorder = x.sizes
            return recorder
        if kind is tuple or kind is list or kind is slice:
            inside = sizes_in((x.start, x.stop, x.step) if kind is slice else x)
            if inside is not None:
                return inside
    return None


def extent_of(x: Any) -> int:
    """Return an integer as an extent: a size stays symbolic. Raises TypeError."""
    extent: Any = lifted(operator.index, x) if type(x) is Number else x
    return extent if type(x) is Number or type(x) is Size else operator.index(x)


def is_number(x: Any) -> bool:
    """Return whether a value is a number of Python or NumPy, or a symbolic one."""
    return is_size(x) or isinstance(x, int | float | complex | np.generic)


def is_integer(x: Any) -> bool:
    return type(x) is Size or type(x) is int


def key_of(x: Any) -> Any:
    if type(x) is tuple or type(x) is list:
        return type(x), tuple(map(key_of, x))
    if type(x) is slice:
        return slice, key_of((x.start, x.stop, x.step))
    if type(x) is np.ndarray:
        return x.dtype.str, x.shape, x.tobytes()
    return (type(x), x.key) if type(x) in KINDS else (type(x), repr(x))


def terms_of(x: Any) -> Polynomial:
    if type(x) is Size:
        return x.terms
    return (((), x),) if x else ()


def _quotient(x: Size, divisor: Any, exact: bool = False) -> Any:
    """Divide a size, rounding down; None if the quotient is no polynomial. ``exact``: None also if there is a remainder."""
    if not is_integer(divisor):
        return None
    sizes = x.sizes
    terms, by = sizes.reduced(x.terms), sizes.reduced(terms_of(divisor))
    if len(by) != 1 or not divisor:
        return None
    ((atoms, factor),) = by
    divided, remaining = [], []
    for m, f in terms:
        monomial = without(m, atoms)
        if monomial is not None and f % factor == 0:
            divided.append((monomial, f // factor))
        else:
            remaining.append((m, f))
    if remaining and (exact or atoms or not divided):
        return None
    quotient = x._create(tuple(divided), sum(f * math.prod(sizes.atoms[a].value for a in m) for m, f in divided))
    if not remaining:
        return quotient
    remainder = x._create(tuple(remaining), x.value - plain(quotient) * factor)
    return quotient + (remainder // factor)
