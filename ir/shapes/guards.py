"""The recorder of a symbolic trace: it computes on symbolic sizes and records the guards under which the trace is valid."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Loc
from pullback.ir.shapes.polynomials import Polynomial, added, scaled, substituted
from pullback.ir.shapes.symbolic import (
    CONVERSIONS,
    KINDS,
    Atom,
    Number,
    Recorder,
    Size,
    frozen,
    is_integer,
    is_of_one_trace,
    key_of,
    of_one_trace,
    plain,
    terms_of,
)
from pullback.ir.shapes.symbolic_arrays import is_static, symbolic_value

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
"""Comparison functions by their Python operators."""
LARGEST = 2**63 - 1
"""An upper bound of every extent."""
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
"""The negation of each relation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Guard:
    """A guard: ``left relation right`` was tested at ``loc`` and held."""

    left: Any
    relation: str
    right: Any
    loc: Loc

    def __str__(self) -> str:
        if self.relation == "is":
            return f"{'' if self.right else 'not '}{formula_text(self.left)}"
        return f"{formula_text(self.left)} {self.relation} {formula_text(self.right)}"


class Sizes:
    """The sizes of one trace. ``steps``: its atoms and guards in the order of their creation. ``location``: returns the
    current location in the user's function. ``is_open``: once it is False, nothing is recorded and sizes are plain numbers.
    ``refused``: why the trace serves no other call. ``is_caught``: the user's function may have caught an error, for
    instance of a library that accepts only ints."""

    is_by_value = False

    def __init__(self, location: Callable[[], Loc] = lambda: NOWHERE) -> None:
        self.location = location
        self.atoms: list[Atom] = []
        self.steps: list[Atom | Guard] = []
        self.is_open = True
        self.refused = ""
        self.is_caught = False
        self._known: dict[Any, Number] = {}
        self._recorded: set[Any] = set()
        self._low: dict[int, int] = {}
        self._solved: dict[int, Polynomial] = {}

    def extent(self, name: str, value: int) -> Size:
        """Create the size of a new extent of an argument."""
        atom = Atom(index=len(self.atoms), name=name, value=value)
        self.atoms.append(atom)
        self._low[atom.index] = 0
        return Size(self, (((atom.index,), 1),), value)

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Apply a function without effects to numbers, at least one of them symbolic, and return a symbolic result."""
        value = function(*map(plain, args))
        if not self.is_open:
            return value
        args = frozen(args)
        if isinstance(value, bool | np.bool_):
            self._record((function, tuple(map(key_of, args))), Predicate(function, args), "is", value)
            return value
        is_array = type(value) is np.ndarray and value.dtype.kind in "biufc"
        is_several = type(value) in (tuple, list) and value and all(map(is_static, value))
        if not (isinstance(value, int | float | complex | np.generic) or is_array or is_several):
            self.pin(args)
            return value
        if is_array:
            return self._atom(function, args, value)
        if is_several:
            sequence = self._atom(function, args, value)
            return type(value)(self.apply(operator.getitem, (sequence, k)) for k in range(len(value)))
        key = function, tuple(map(key_of, args))
        symbol = self._known.get(key)
        if symbol is None:
            symbol = self._known[key] = self._atom(function, args, value)
        return symbol

    def _atom(self, function: Callable[..., Any], args: tuple[Any, ...], value: Any) -> Any:
        """Create an atom and return the symbolic value for it."""
        atom = Atom(index=len(self.atoms), name="", value=value, function=function, args=args)
        self.atoms.append(atom)
        self.steps.append(atom)
        if type(value) is not int:
            return symbolic_value(self, atom.index, value)
        low = _least(self, function, args)
        if low is not None:
            self._low[atom.index] = low
        return Size(self, (((atom.index,), 1),), value)

    def compare(self, relation: str, a: Size | int, b: Size | int) -> bool:
        """Return whether a relation of two integers holds. Records a guard, unless the relation is decided for all sizes."""
        if not is_of_one_trace(a, b):
            return compared_across(relation, a, b)
        holds = bool(RELATIONS[relation](plain(a), plain(b)))
        if not self.is_open:
            return holds
        difference = self.reduced(added(terms_of(a), terms_of(b), -1))
        decided = self._decided(relation, difference)
        if decided is not None:
            assert decided == holds, (relation, formula_text(a), formula_text(b))
            return holds
        kept = relation if holds else OPPOSITE[relation]
        if self._record((kept, difference), a, kept, b):
            self._learn(kept, difference)
        return holds

    def pin(self, values: Iterable[Any]) -> None:
        """Record guards that fix these values, because they were read."""
        for x in values:
            if type(x) is Size:
                self.compare("==", x, x.value)
            elif type(x) in KINDS:
                self.pin(self.atoms[x.atom].args)
            elif isinstance(x, tuple | list):
                self.pin(x)
            elif isinstance(x, slice):
                self.pin((x.start, x.stop, x.step))

    def reduced(self, terms: Polynomial) -> Polynomial:
        """Return an equal polynomial, with the solved atoms substituted."""
        for _ in range(len(self._solved) + 1):
            atom = next((a for m, _ in terms for a in m if a in self._solved), None)
            if atom is None:
                break
            terms = substituted(terms, atom, self._solved[atom])
        return terms

    def _record(self, key: Any, left: Any, relation: str, right: Any) -> bool:
        """Record a guard; returns whether it is new."""
        if key in self._recorded:
            return False
        self._recorded.add(key)
        self.steps.append(Guard(left=left, relation=relation, right=right, loc=self.location()))
        return True

    def _decided(self, relation: str, difference: Polynomial) -> bool | None:
        """Decide a relation of a difference to 0 for all sizes; None if it depends on the sizes."""
        low = self.least(difference)
        high = self.least(scaled(difference, -1))
        high = None if high is None else -high
        never, always = (low is not None and low > 0) or (high is not None and high < 0), low == high == 0
        match relation:
            case "==" | "!=":
                if always or never:
                    return always if relation == "==" else never
                if relation == "!=" and ("!=", difference) in self._recorded:
                    return True
                return False if relation == "==" and ("!=", difference) in self._recorded else None
            case "<" | ">=":
                decided = True if high is not None and high < 0 else False if low is not None and low >= 0 else None
                return decided if relation == "<" or decided is None else not decided
        decided = True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        return decided if relation == ">" or decided is None else not decided

    def least(self, terms: Polynomial) -> int | None:
        """Return a lower bound of a polynomial; None if none is known."""
        total = 0
        for atoms, factor in terms:
            lows = [self._low[a] for a in atoms if self._low.get(a, -1) >= 0]
            if len(lows) < len(atoms):
                return None
            if atoms and factor < 0:
                if any(self.atoms[a].function is not None for a in atoms):
                    return None
                lows = [LARGEST] * len(atoms)
            total += factor * math.prod(lows)
        return total

    def _learn(self, relation: str, difference: Polynomial) -> None:
        """Derive the solution or a lower bound of one atom from a guard."""
        single = [(m[0], factor) for m, factor in difference if len(m) == 1 and abs(factor) == 1]
        if relation == "==":
            for atom, factor in reversed(single):
                solution = scaled(added(difference, (((atom,), factor),), -1), -factor)
                if all(atom not in m for m, _ in solution):
                    self._solved[atom] = solution
                    return
            return
        if len(single) != 1 or any(m for m, _ in difference if m != (single[0][0],)):
            return
        atom, factor = single[0]
        constant = sum(f for m, f in difference if not m)
        at = -constant * factor  # the value of the atom for which the difference is 0
        low = self._low.get(atom)
        relation = relation if factor > 0 else {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(relation, relation)
        bound = {">=": at, ">": at + 1}.get(relation, at + 1 if relation == "!=" and low == at else None)
        if bound is not None and (low is None or bound > low):
            self._low[atom] = bound


def compared_across(relation: str, a: Any, b: Any) -> bool:
    """Return whether a relation of two sizes of different recorders is known to hold. Beside an extent by value, an extent of an
    argument is fixed by a guard if the order of the two is needed."""
    if relation in ("==", "!=") and (a.sizes.is_by_value or b.sizes.is_by_value):
        return relation == "!="
    return bool(RELATIONS[relation](*of_one_trace(a, b)))


class Predicate:
    """A predicate: a function of symbolic numbers whose result, a bool, was tested."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args


def _least(sizes: Sizes, function: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
    """Return a lower bound of a function of integers; None if none is known."""
    if function in (operator.floordiv, operator.mod) and all(map(is_integer, args)):
        low, divisor = (sizes.least(terms_of(a)) for a in args)
        if divisor is None or divisor < 1 or (function is operator.floordiv and (low is None or low < 0)):
            return None
        return low // args[1] if low is not None and function is operator.floordiv and type(args[1]) is int else 0
    return 0 if function is math.isqrt else None


# guards as text


_SIGNS: dict[Any, str] = {
    operator.floordiv: "//", operator.mod: "%", operator.truediv: "/", operator.add: "+", operator.sub: "-", operator.mul: "*",
    operator.pow: "**", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==",
    operator.ne: "!=",
}  # fmt: skip


def formula_text(x: Any) -> str:
    """Write a symbolic number or a predicate as a formula of the arguments' extents."""
    if type(x) is Predicate:
        return _call_text(x.function, [formula_text(a) for a in x.args])
    if type(x) not in KINDS:
        return repr(x)
    if type(x) is not Size:
        return _atom_text(x.sizes, x.atom)
    text = ""
    for m, f in sorted(x.terms, key=lambda term: (not term[0], term[1] < 0)):
        names = [_atom_text(x.sizes, a) for a in m]
        factors = " * ".join([*([str(abs(f))] if abs(f) != 1 or not names else []), *names])
        text += (" - " if f < 0 else " + ") + factors if text else ("-" if f < 0 else "") + factors
    return text or "0"


def extents_in(x: Any) -> dict[int, str]:
    """Return the extents of arguments on which a number or a guard depends: their atoms' indices and names."""
    extents: dict[int, str] = {}
    if isinstance(x, Guard):
        return extents_in(x.left) | extents_in(x.right)
    if isinstance(x, Predicate | tuple | list):
        for a in x.args if isinstance(x, Predicate) else x:
            extents |= extents_in(a)
    elif isinstance(x, slice):
        extents |= extents_in((x.start, x.stop, x.step))
    elif type(x) in KINDS:
        for index in (x.atom,) if type(x) is not Size else dict.fromkeys(a for m, _ in x.terms for a in m):
            atom = x.sizes.atoms[index]
            extents |= extents_in(atom.args) if atom.function is not None else {index: atom.name}
    return extents


def _atom_text(sizes: Recorder, index: int) -> str:
    atom = sizes.atoms[index]
    if atom.function is None:
        return atom.name
    text = _call_text(atom.function, [formula_text(a) for a in atom.args])
    return f"({text})" if atom.function in _SIGNS else text


def _call_text(function: Any, args: Sequence[str]) -> str:
    if function in CONVERSIONS:
        return args[0]
    if function in _SIGNS and len(args) == 2:
        a, b = (f"({x})" if " " in x and not x.startswith("(") else x for x in args)
        return f"{a} {_SIGNS[function]} {b}"
    return f"{getattr(function, '__name__', 'a function')}({', '.join(args)})"
