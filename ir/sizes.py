"""Sizes that a trace does not know as numbers: integers and numbers computed from the extents of arguments.

While a function with symbolic sizes is traced, an extent of an argument is a ``Size``: it has the value of the call at hand, and it
knows how that comes from the extents. What is computed from it is computed on both. Whoever asks for more than that, for the value,
a truth or an order, gets the answer of this call, and ``Sizes`` notes what was asked: the trace serves every call for which the
answers are the same. So nothing that reads a size can depend on it in silence.

A Size is a polynomial over *atoms*, with integer coefficients, so that equal ones are known to be equal. Atoms are extents of
arguments, and results of functions that are no polynomials. Other numbers (``1 / n``) are atoms alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.structure import NOWHERE, Loc

Monomial = tuple[int, ...]
Polynomial = tuple[tuple[Monomial, int], ...]
"""Terms in order: the numbers of the atoms of a product, and its coefficient."""

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Atom:
    """An extent of an argument, called ``name``, or what ``function`` gives for ``args``, which may hold sizes."""

    index: int
    name: str
    value: Any
    function: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A guard: ``left relation right`` was asked at ``loc``, and held."""

    left: Any
    relation: str
    right: Any
    loc: Loc

    def __str__(self) -> str:
        return f"{said(self.left)} {self.relation} {said(self.right)}"


class Sizes:
    """The sizes of one trace. ``steps`` are its atoms and guards in the order in which they came about; ``place`` says where the
    user's function is. Closed, it notes nothing: sizes are numbers from then on."""

    def __init__(self, place: Callable[[], Loc] = lambda: NOWHERE) -> None:
        self.place = place
        self.atoms: list[Atom] = []
        self.steps: list[Atom | Asked] = []
        self.is_open = True
        self._known: dict[Any, Number] = {}
        self._asked: set[Any] = set()
        self._low: dict[int, int] = {}
        self._solved: dict[int, Polynomial] = {}

    def extent(self, name: str, value: int) -> Size:
        """A new extent of an argument."""
        atom = Atom(index=len(self.atoms), name=name, value=value)
        self.atoms.append(atom)
        self._low[atom.index] = 0
        return Size(self, (((atom.index,), 1),), value)

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """What a function without effects gives for numbers of which some are these."""
        value = function(*map(plain, args))
        if not self.is_open:
            return value
        if isinstance(value, bool | np.bool_):
            self._ask((function, tuple(map(_key, args))), Call(function, args), "is", value)
            return value
        if not isinstance(value, int | float | complex | np.generic) or type(value) in _SYMBOLIC:
            self.pin(args)
            return value
        key = function, tuple(map(_key, args))
        found = self._known.get(key)
        if found is None:
            atom = Atom(index=len(self.atoms), name="", value=value, function=function, args=args)
            self.atoms.append(atom)
            self.steps.append(atom)
            if type(value) is int:
                found = Size(self, (((atom.index,), 1),), value)
                if _is_natural(self, function, args):
                    self._low[atom.index] = 0
            else:
                found = Number(self, atom.index, value)
            self._known[key] = found
        return found

    def compare(self, relation: str, a: Size | int, b: Size | int) -> bool:
        """Whether a relation of two integers holds; a guard, unless it holds for all sizes, or for none."""
        holds = bool(RELATIONS[relation](plain(a), plain(b)))
        if not self.is_open:
            return holds
        difference = self.reduced(_added(_terms(a), _terms(b), -1))
        decided = self._decided(relation, difference)
        if decided is not None:
            assert decided == holds, (relation, said(a), said(b))
            return holds
        kept = relation if holds else OPPOSITE[relation]
        if self._ask((kept, difference), a, kept, b):
            self._learn(kept, difference)
        return holds

    def pin(self, values: Iterable[Any]) -> None:
        """Note that these values themselves were asked for."""
        for x in values:
            if type(x) is Size:
                self.compare("==", x, x.value)
            elif type(x) is Number:
                self.pin(self.atoms[x.atom].args)
            elif isinstance(x, tuple | list):
                self.pin(x)

    def reduced(self, terms: Polynomial) -> Polynomial:
        """The same polynomial, by what is known of its atoms."""
        for _ in range(len(self._solved) + 1):
            found = next((a for m, _ in terms for a in m if a in self._solved), None)
            if found is None:
                break
            terms = _substituted(terms, found, self._solved[found])
        return terms

    def is_natural(self, terms: Polynomial, least: int = 0) -> bool:
        """Whether a polynomial is known to be at least so much."""
        low = self._bound(terms)
        return low is not None and low >= least

    def _ask(self, key: Any, left: Any, relation: str, right: Any) -> bool:
        """Note a guard; whether it is new."""
        if key in self._asked:
            return False
        self._asked.add(key)
        self.steps.append(Asked(left=left, relation=relation, right=right, loc=self.place()))
        return True

    def _decided(self, relation: str, difference: Polynomial) -> bool | None:
        """Whether a relation of a difference to 0 is the same for all sizes."""
        low = self._bound(difference)
        high = self._bound(_scaled(difference, -1))
        high = None if high is None else -high
        never, always = (low is not None and low > 0) or (high is not None and high < 0), low == high == 0
        match relation:
            case "==" | "!=":
                if always or never:
                    return always if relation == "==" else never
                if relation == "!=" and ("!=", difference) in self._asked:
                    return True
                return False if relation == "==" and ("!=", difference) in self._asked else None
            case "<" | ">=":
                found = True if high is not None and high < 0 else False if low is not None and low >= 0 else None
                return found if relation == "<" or found is None else not found
        found = True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        return found if relation == ">" or found is None else not found

    def _bound(self, terms: Polynomial) -> int | None:
        """A number that a polynomial is not less than, if that is known."""
        total = 0
        for atoms, factor in terms:
            lows = [self._low.get(a) for a in atoms]
            if atoms and (factor < 0 or any(low is None or low < 0 for low in lows)):
                return None
            total += factor * math.prod(low for low in lows if low is not None)
        return total

    def _learn(self, relation: str, difference: Polynomial) -> None:
        """Draw from a guard what it says of one atom."""
        single = [(m[0], factor) for m, factor in difference if len(m) == 1 and abs(factor) == 1]
        if relation == "==":
            for atom, factor in reversed(single):
                rest = _scaled(_added(difference, (((atom,), factor),), -1), -factor)
                if all(atom not in m for m, _ in rest):
                    self._solved[atom] = rest
                    return
            return
        if len(single) != 1 or any(m for m, _ in difference if m != (single[0][0],)):
            return
        atom, factor = single[0]
        number = sum(f for m, f in difference if not m)
        at = -number * factor  # where the atom makes the difference 0
        low = self._low.get(atom)
        relation = relation if factor > 0 else {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(relation, relation)
        found = {">=": at, ">": at + 1}.get(relation, at + 1 if relation == "!=" and low == at else None)
        if found is not None and (low is None or found > low):
            self._low[atom] = found


class Call:
    """A function of numbers whose answer, a truth, was asked for."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args


def _operator(function: Callable[[Any, Any], Any]) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """A binary operator and its reflected form."""

    def forward(self: Number, other: Any) -> Any:
        return self.sizes.apply(function, (self, other)) if _is_number(other) else NotImplemented

    def reflected(self: Number, other: Any) -> Any:
        return self.sizes.apply(function, (other, self)) if _is_number(other) else NotImplemented

    return forward, reflected


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: self.sizes.apply(function, (self,))


class Number:
    """A number that comes from sizes: ``value`` in this call. For ``isinstance`` it is of the class of its value."""

    __slots__ = ("atom", "sizes", "value")
    __array_priority__ = 900.0

    def __init__(self, sizes: Sizes, atom: int, value: Any) -> None:
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
        if any(hasattr(type(x), "__array_ufunc__") and not isinstance(x, np.ndarray) and not _is_number(x) for x in inputs):
            return NotImplemented
        if method == "__call__" and not kwargs and all(map(_is_number, inputs)):
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
    __neg__, __pos__, __abs__, __invert__ = map(_unary, (operator.neg, operator.pos, operator.abs, operator.invert))
    __trunc__, __floor__, __ceil__ = map(_unary, (math.trunc, math.floor, math.ceil))

    def __eq__(self, other: object) -> Any:
        return self.sizes.apply(operator.eq, (self, other)) if _is_number(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self.sizes.apply(operator.ne, (self, other)) if _is_number(other) else NotImplemented


class Size(Number):
    """An integer that comes from sizes. ``terms``: its polynomial."""

    __slots__ = ("terms",)

    def __init__(self, sizes: Sizes, terms: Polynomial, value: int) -> None:
        self.sizes = sizes
        self.terms = terms
        self.value = value

    @property
    def key(self) -> Any:
        return self.terms

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
        return self._made(_added(self.terms, _terms(other)), self.value + plain(other))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__sub__(other)
        return self._made(_added(self.terms, _terms(other), -1), self.value - plain(other))

    def __rsub__(self, other: Any) -> Any:
        return super().__rsub__(other) if type(other) is not int else (-self) + other

    def __mul__(self, other: Any) -> Any:
        if type(other) is not Size and type(other) is not int:
            return super().__mul__(other)
        return self._made(_multiplied(self.terms, _terms(other)), self.value * plain(other))

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self._made(_scaled(self.terms, -1), -self.value)

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
        return self.sizes.compare("<", self, other) if _is_integer(other) else super().__lt__(other)

    def __le__(self, other: Any) -> Any:
        return self.sizes.compare("<=", self, other) if _is_integer(other) else super().__le__(other)

    def __gt__(self, other: Any) -> Any:
        return self.sizes.compare(">", self, other) if _is_integer(other) else super().__gt__(other)

    def __ge__(self, other: Any) -> Any:
        return self.sizes.compare(">=", self, other) if _is_integer(other) else super().__ge__(other)

    def __eq__(self, other: object) -> Any:
        return self.sizes.compare("==", self, other) if _is_integer(other) else super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        return self.sizes.compare("!=", self, other) if _is_integer(other) else super().__ne__(other)

    def __hash__(self) -> int:
        return hash(self.pinned())


_SYMBOLIC = (Size, Number)


def is_size(x: Any) -> bool:
    """Whether a value is a number that comes from sizes."""
    return type(x) is Size or type(x) is Number


def plain(x: Any) -> Any:
    """The value of a number in this call; any other value, and what is inside tuples and lists, as it is."""
    kind = type(x)
    if kind is Size or kind is Number:
        return x.value
    if kind is tuple or kind is list:
        return kind(map(plain, x))
    return x


def lifted(function: Callable[..., Any], *args: Any) -> Any:
    """What a function without effects gives for numbers; one that comes from sizes if one of these does."""
    sizes = sizes_in(args)
    return function(*args) if sizes is None else sizes.apply(function, args)


def lifted_all(function: Callable[..., tuple[Any, ...]], *args: Any) -> tuple[Any, ...]:
    """The same of a function that gives a tuple, always as long, for numbers."""
    sizes = sizes_in(args)
    if sizes is None:
        return function(*args)
    count = len(function(*map(plain, args)))
    return tuple(sizes.apply(_item, (k, function, *args)) for k in range(count))


def _item(k: int, function: Callable[..., tuple[Any, ...]], *args: Any) -> Any:
    return function(*args)[k]


def sizes_in(values: Any) -> Sizes | None:
    """The sizes that a number among some values, or in a tuple or list of them, comes from."""
    for x in values:
        kind = type(x)
        if kind is Size or kind is Number:
            found: Sizes = x.sizes
            return found
        if kind is tuple or kind is list:
            inside = sizes_in(x)
            if inside is not None:
                return inside
    return None


def extent_of(x: Any) -> int:
    """An integer as an extent: a size stays one. Raises TypeError."""
    if type(x) is Number:
        return lifted(operator.index, x)  # type: ignore[no-any-return]
    return x if type(x) is Size else operator.index(x)  # type: ignore[no-any-return]


def as_float(x: Any) -> float:
    """A number as a Python float."""
    return x if type(x) is Number and isinstance(x, float) and not isinstance(x, np.generic) else lifted(float, x)  # type: ignore[no-any-return]


def as_int(x: Any) -> int:
    """A number as a Python int."""
    return x if type(x) is Size else lifted(int, x)  # type: ignore[no-any-return]


def as_complex(x: Any) -> complex:
    """A number as a Python complex."""
    return lifted(complex, x)  # type: ignore[no-any-return]


def _is_number(x: Any) -> bool:
    return is_size(x) or isinstance(x, int | float | complex | np.generic)


def _is_integer(x: Any) -> bool:
    return type(x) is Size or type(x) is int


def _key(x: Any) -> Any:
    if type(x) is tuple or type(x) is list:
        return type(x), tuple(map(_key, x))
    return (type(x), x.key) if is_size(x) else (type(x), repr(x))


def _is_natural(sizes: Sizes, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Whether what a function gives is known not to be negative."""
    if function in (operator.floordiv, operator.mod) and all(map(_is_integer, args)):
        least = (0 if function is operator.floordiv else None, 1)
        return all(low is None or sizes.is_natural(_terms(a), low) for a, low in zip(args, least, strict=True))
    return function is math.isqrt


# polynomials


def _terms(x: Any) -> Polynomial:
    if type(x) is Size:
        return x.terms
    return (((), x),) if x else ()


def _ordered(found: Mapping[Monomial, int]) -> Polynomial:
    return tuple(sorted((m, f) for m, f in found.items() if f))


def _added(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    found = dict(a)
    for m, f in b:
        found[m] = found.get(m, 0) + factor * f
    return _ordered(found)


def _scaled(a: Polynomial, factor: int) -> Polynomial:
    return tuple((m, f * factor) for m, f in a)


def _multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    found: dict[Monomial, int] = {}
    for m, f in a:
        for n, g in b:
            key = tuple(sorted(m + n))
            found[key] = found.get(key, 0) + f * g
    return _ordered(found)


def _substituted(terms: Polynomial, atom: int, by: Polynomial) -> Polynomial:
    found: Polynomial = ()
    for m, f in terms:
        made: Polynomial = ((tuple(a for a in m if a != atom), f),)
        for _ in range(m.count(atom)):
            made = _multiplied(made, by)
        found = _added(found, made)
    return found


def _quotient(x: Size, divisor: Any, exact: bool = False) -> Any:
    """The rounded quotient of a size, if it is one of polynomials; None if it is not. ``exact``: only if nothing remains."""
    if not _is_integer(divisor):
        return None
    sizes = x.sizes
    terms, by = sizes.reduced(x.terms), sizes.reduced(_terms(divisor))
    if len(by) != 1 or not divisor:
        return None
    (atoms, factor), = by
    whole, rest = [], []
    for m, f in terms:
        left = _without(m, atoms)
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


def _without(m: Monomial, atoms: Monomial) -> Monomial | None:
    left = list(m)
    for a in atoms:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


# what is asked, in words and as code


_SIGNS: dict[Any, str] = {
    operator.floordiv: "//", operator.mod: "%", operator.truediv: "/", operator.add: "+", operator.sub: "-", operator.mul: "*",
    operator.pow: "**", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==",
    operator.ne: "!=",
}  # fmt: skip


def said(x: Any) -> str:
    """A number, or what was asked of some, as a formula of the arguments' extents."""
    if type(x) is Call:
        return _called(x.function, [said(a) for a in x.args])
    if not is_size(x):
        return repr(x)
    if type(x) is Number:
        return _said_atom(x.sizes, x.atom)
    text = ""
    for m, f in sorted(x.terms, key=lambda term: (not term[0], term[1] < 0)):
        names = [_said_atom(x.sizes, a) for a in m]
        factors = " * ".join([*([str(abs(f))] if abs(f) != 1 or not names else []), *names])
        text += (" - " if f < 0 else " + ") + factors if text else ("-" if f < 0 else "") + factors
    return text or "0"


def _said_atom(sizes: Sizes, index: int) -> str:
    atom = sizes.atoms[index]
    if atom.function is None:
        return atom.name
    text = _called(atom.function, [said(a) for a in atom.args])
    return f"({text})" if atom.function in _SIGNS else text


def _called(function: Any, args: Sequence[str]) -> str:
    if function in _SIGNS and len(args) == 2:
        a, b = (f"({x})" if " " in x and not x.startswith("(") else x for x in args)
        return f"{a} {_SIGNS[function]} {b}"
    return f"{getattr(function, '__name__', 'a function')}({', '.join(args)})"
