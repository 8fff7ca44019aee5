"""Sizes that a trace does not know as numbers: integers and numbers computed from the extents of arguments.

While a function with symbolic sizes is traced, an extent of an argument is a ``Size``: it has the value of the call at hand,
and it knows how that comes from the extents. What is computed from it is computed on both. Whoever asks for more than that, for
the value, a truth or an order, gets the answer of this call, and the ``Recorder`` (``guards.Sizes``) notes what was asked: the
trace serves every call for which the answers are the same. So nothing that reads a size can depend on it in silence.

A Size is a polynomial over *atoms*, with integer coefficients, so that equal ones are known to be equal. Atoms are extents of
arguments, and results of functions that are no polynomials. Other numbers (``1 / n``) are atoms alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from pullback.ir.core.scalars import SymbolicScalar
from pullback.ir.shapes.polynomials import Polynomial, added, multiplied, scaled, without


@dataclass(frozen=True, kw_only=True, eq=False)
class Atom:
    """An extent of an argument, called ``name``, or what ``function`` gives for ``args``, which may hold sizes."""

    index: int
    name: str
    value: Any
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


class Recorder(Protocol):
    """What numbers need of the trace that they belong to: it computes on them, and records what was asked of them.

    ``is_open``: whether it still records; closed, results are plain numbers. ``refused``: why the trace serves no other call.
    """

    is_open: bool
    refused: str

    @property
    def atoms(self) -> Sequence[Atom]:
        """The atoms so far, each at its ``index``."""

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Return what a function without effects gives for numbers of which some are the trace's."""

    def compare(self, relation: str, a: Size | int, b: Size | int) -> bool:
        """Return whether a relation of two integers holds, and record a guard unless it holds for all sizes or for none."""

    def pin(self, values: Iterable[Any]) -> None:
        """Record that these values themselves were asked for."""

    def reduced(self, terms: Polynomial) -> Polynomial:
        """Return an equal polynomial, by what is known of its atoms."""


def _operator(function: Callable[[Any, Any], Any]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """A binary operator and its reflected form."""

    def forward(self: Number, other: Any) -> Any:
        return self.sizes.apply(function, (self, other)) if is_number(other) else NotImplemented

    def reflected(self: Number, other: Any) -> Any:
        return self.sizes.apply(function, (other, self)) if is_number(other) else NotImplemented

    return forward, reflected


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: self.sizes.apply(function, (self,))


class Number(SymbolicScalar):
    """A number that comes from sizes: ``value`` in this call. For ``isinstance`` it is of the class of its value."""

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
        """What numbers have in common that are equal for all sizes."""
        return self.atom

    def pinned(self) -> Any:
        """The value, which was asked for."""
        self.sizes.pin((self,))
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "ndim", "shape", "size", "itemsize"):
            return getattr(self.value, name)
        if name.startswith("__") and not hasattr(self.value, name):
            raise AttributeError(name)
        return getattr(self.pinned(), name)

    def converted(self, kind: type) -> Any:
        """Return the number as an int, a float or a complex that comes from the same sizes."""
        is_float = isinstance(self.value, float) and not isinstance(self.value, np.generic)
        return self if kind is float and is_float else self.sizes.apply(kind, (self,))

    def item(self) -> Any:
        """The same as a number of Python's."""
        return self.sizes.apply(operator.methodcaller("item"), (self,))

    def __bool__(self) -> bool:
        found = self.sizes.apply(bool, (self,))
        return bool(found)

    def __index__(self) -> int:
        return operator.index(self.pinned())

    def __int__(self) -> int:
        return int(self.pinned())

    def __float__(self) -> float:
        return float(self.pinned())

    def __complex__(self) -> complex:
        return complex(self.pinned())

    def __str__(self) -> str:
        return str(self.pinned())

    def __repr__(self) -> str:
        return repr(self.pinned())

    def __format__(self, spec: str) -> str:
        return format(self.pinned(), spec)

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

    def _made(self, terms: Polynomial, value: int) -> Any:
        """A size, or the number that it is for all sizes."""
        if not self.sizes.is_open or not any(m for m, _ in terms):
            return value
        return Size(self.sizes, terms, value)

    def __bool__(self) -> bool:
        return self.sizes.compare("!=", self, 0)

    def __add__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__add__(other)
        return self._made(added(self.terms, terms_of(other)), self.value + plain(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__sub__(other)
        return self._made(added(self.terms, terms_of(other), -1), self.value - plain(other))

    def __rsub__(self, other: Any) -> Any:
        return super().__rsub__(other) if type(other) is not int else (-self) + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__mul__(other)
        return self._made(multiplied(self.terms, terms_of(other)), self.value * plain(other))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._made(scaled(self.terms, -1), -self.value)

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
        found = _quotient(self, other)
        return super().__floordiv__(other) if found is None else found

    def __mod__(self, other: Any) -> Any:
        found = _quotient(self, other, exact=True)
        return super().__mod__(other) if found is None else 0

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


def conversion(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: of a number that the function makes of another, its first argument, that one is shown."""
    CONVERSIONS.add(function)
    return function


CONVERSIONS: set[Any] = {float, int, complex, operator.index}


KINDS: set[type] = {Size, Number}
"""The classes of what comes from sizes; ``symbolic_arrays.py`` adds another."""


def is_size(x: Any) -> bool:
    """Whether a value is a number that comes from sizes."""
    return type(x) is Size or type(x) is Number


def plain(x: Any) -> Any:
    """The value of a number in this call; any other value, and what is inside tuples and lists, as it is."""
    kind = type(x)
    if kind in KINDS:
        return x.value
    if kind is tuple or kind is list:
        return kind(map(plain, x))
    return slice(plain(x.start), plain(x.stop), plain(x.step)) if kind is slice else x


def lifted(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function without effects gives for numbers and arrays; one that comes from sizes if one of ``args`` does."""
    sizes = sizes_in(args)
    if sizes is None or sizes_in(kwargs.values()) is not None or not all(map(is_data, (*args, *kwargs.values()))):
        return function(*args, **kwargs)
    return sizes.apply(bound(function, kwargs), args)


def bound(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    """A function with these keywords."""
    return partial(function, **{k: frozen(v) for k, v in kwargs.items()}) if kwargs else function


def is_data(x: Any) -> bool:
    """Whether a value may be an argument of a call that is made again for other sizes: it holds no function and no state."""
    if isinstance(x, tuple | list):
        return type(x) in (tuple, list) and all(map(is_data, x))
    if type(x) is slice:
        return all(map(is_data, (x.start, x.stop, x.step)))
    return x is None or x is Ellipsis or is_number(x) or type(x) in KINDS or type(x) in _DATA or is_type(x)


def is_type(x: Any) -> bool:
    """Whether a value says what numbers are: a dtype, or a class of Python's or NumPy's."""
    return isinstance(x, np.dtype) or (isinstance(x, type) and (x in (bool, int, float, complex) or issubclass(x, np.generic)))


_DATA = (np.ndarray, str)


def frozen(x: Any) -> Any:
    """The same data, which nobody else may change."""
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(map(frozen, x))
    return x.copy() if kind is np.ndarray else x


def sizes_in(values: Any) -> Recorder | None:
    """The sizes that a number among some values, or in a tuple or list of them, comes from."""
    for x in values:
        kind = type(x)
        if kind in KINDS:
            found: Recorder = x.sizes
            return found
        if kind is tuple or kind is list or kind is slice:
            inside = sizes_in((x.start, x.stop, x.step) if kind is slice else x)
            if inside is not None:
                return inside
    return None


def extent_of(x: Any) -> int:
    """An integer as an extent: a size stays one. Raises TypeError."""
    found: Any = lifted(operator.index, x) if type(x) is Number else x
    return found if type(x) is Number or type(x) is Size else operator.index(x)


def is_number(x: Any) -> bool:
    """Whether a value is a number of Python's or NumPy's, or one that comes from sizes."""
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
    """The rounded quotient of a size, if it is one of polynomials; None if it is not. ``exact``: only if nothing remains."""
    if not is_integer(divisor):
        return None
    sizes = x.sizes
    terms, by = sizes.reduced(x.terms), sizes.reduced(terms_of(divisor))
    if len(by) != 1 or not divisor:
        return None
    (atoms, factor), = by
    whole, rest = [], []
    for m, f in terms:
        left = without(m, atoms)
        if left is not None and f % factor == 0:
            whole.append((left, f // factor))
        else:
            rest.append((m, f))
    if rest and (exact or atoms or not whole):
        return None
    found = x._made(tuple(whole), sum(f * math.prod(sizes.atoms[a].value for a in m) for m, f in whole))
    if not rest:
        return found
    left_over = x._made(tuple(rest), x.value - plain(found) * factor)
    return found + (left_over // factor)


