"""What the trace of a function asked of sizes: the recorder behind the numbers of ``sizes``, and what it says of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    key_of,
    plain,
    terms_of,
)
from pullback.ir.shapes.symbolic_arrays import is_static, made

RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
LARGEST = 2**63 - 1
"""No extent is larger."""
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A guard: ``left relation right`` was asked at ``loc``, and held."""

    left: Any
    relation: str
    right: Any
    loc: Loc

    def __str__(self) -> str:
        if self.relation == "is":
            return f"{'' if self.right else 'not '}{said(self.left)}"
        return f"{said(self.left)} {self.relation} {said(self.right)}"


class Sizes:
    """The sizes of one trace. ``steps`` are its atoms and guards in the order in which they came about; ``place`` says where the
    user's function is. Closed, it notes nothing: sizes are numbers from then on. ``refused``: why the trace serves no other
    call. ``is_caught``: the function may have caught an error, as one of a library that takes nothing but ints."""

    def __init__(self, place: Callable[[], Loc] = lambda: NOWHERE) -> None:
        self.place = place
        self.atoms: list[Atom] = []
        self.steps: list[Atom | Asked] = []
        self.is_open = True
        self.refused = ""
        self.is_caught = False
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
        args = frozen(args)
        if isinstance(value, bool | np.bool_):
            self._ask((function, tuple(map(key_of, args))), Call(function, args), "is", value)
            return value
        is_array = type(value) is np.ndarray and value.dtype.kind in "biufc"
        is_several = type(value) in (tuple, list) and value and all(map(is_static, value))
        if not (isinstance(value, int | float | complex | np.generic) or is_array or is_several):
            self.pin(args)
            return value
        if is_array:
            return self._atom(function, args, value)
        if is_several:
            whole = self._atom(function, args, value)
            return type(value)(self.apply(operator.getitem, (whole, k)) for k in range(len(value)))
        key = function, tuple(map(key_of, args))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._atom(function, args, value)
        return found

    def _atom(self, function: Callable[..., Any], args: tuple[Any, ...], value: Any) -> Any:
        """What stands for a new atom."""
        atom = Atom(index=len(self.atoms), name="", value=value, function=function, args=args)
        self.atoms.append(atom)
        self.steps.append(atom)
        if type(value) is not int:
            return made(self, atom.index, value)
        low = _least(self, function, args)
        if low is not None:
            self._low[atom.index] = low
        return Size(self, (((atom.index,), 1),), value)

    def compare(self, relation: str, a: Size | int, b: Size | int) -> bool:
        """Whether a relation of two integers holds; a guard, unless it holds for all sizes, or for none."""
        holds = bool(RELATIONS[relation](plain(a), plain(b)))
        if not self.is_open:
            return holds
        difference = self.reduced(added(terms_of(a), terms_of(b), -1))
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
            elif type(x) in KINDS:
                self.pin(self.atoms[x.atom].args)
            elif isinstance(x, tuple | list):
                self.pin(x)
            elif isinstance(x, slice):
                self.pin((x.start, x.stop, x.step))

    def reduced(self, terms: Polynomial) -> Polynomial:
        """The same polynomial, by what is known of its atoms."""
        for _ in range(len(self._solved) + 1):
            found = next((a for m, _ in terms for a in m if a in self._solved), None)
            if found is None:
                break
            terms = substituted(terms, found, self._solved[found])
        return terms

    def _ask(self, key: Any, left: Any, relation: str, right: Any) -> bool:
        """Note a guard; whether it is new."""
        if key in self._asked:
            return False
        self._asked.add(key)
        self.steps.append(Asked(left=left, relation=relation, right=right, loc=self.place()))
        return True

    def _decided(self, relation: str, difference: Polynomial) -> bool | None:
        """Whether a relation of a difference to 0 is the same for all sizes."""
        low = self.least(difference)
        high = self.least(scaled(difference, -1))
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

    def least(self, terms: Polynomial) -> int | None:
        """A number that a polynomial is not less than, if that is known."""
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
        """Draw from a guard what it says of one atom."""
        single = [(m[0], factor) for m, factor in difference if len(m) == 1 and abs(factor) == 1]
        if relation == "==":
            for atom, factor in reversed(single):
                rest = scaled(added(difference, (((atom,), factor),), -1), -factor)
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


def _least(sizes: Sizes, function: Callable[..., Any], args: tuple[Any, ...]) -> int | None:
    """What a function of integers is known not to be less than."""
    if function in (operator.floordiv, operator.mod) and all(map(is_integer, args)):
        low, divisor = (sizes.least(terms_of(a)) for a in args)
        if divisor is None or divisor < 1 or (function is operator.floordiv and (low is None or low < 0)):
            return None
        return low // args[1] if low is not None and function is operator.floordiv and type(args[1]) is int else 0
    return 0 if function is math.isqrt else None


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
    if type(x) not in KINDS:
        return repr(x)
    if type(x) is not Size:
        return _said_atom(x.sizes, x.atom)
    text = ""
    for m, f in sorted(x.terms, key=lambda term: (not term[0], term[1] < 0)):
        names = [_said_atom(x.sizes, a) for a in m]
        factors = " * ".join([*([str(abs(f))] if abs(f) != 1 or not names else []), *names])
        text += (" - " if f < 0 else " + ") + factors if text else ("-" if f < 0 else "") + factors
    return text or "0"


def extents_in(x: Any) -> dict[int, str]:
    """The extents of arguments that a number or a guard comes from: their atoms' numbers and names."""
    found: dict[int, str] = {}
    if isinstance(x, Asked):
        return extents_in(x.left) | extents_in(x.right)
    if isinstance(x, Call | tuple | list):
        for a in x.args if isinstance(x, Call) else x:
            found |= extents_in(a)
    elif isinstance(x, slice):
        found |= extents_in((x.start, x.stop, x.step))
    elif type(x) in KINDS:
        for index in (x.atom,) if type(x) is not Size else dict.fromkeys(a for m, _ in x.terms for a in m):
            atom = x.sizes.atoms[index]
            found |= extents_in(atom.args) if atom.function is not None else {index: atom.name}
    return found


def _said_atom(sizes: Recorder, index: int) -> str:
    atom = sizes.atoms[index]
    if atom.function is None:
        return atom.name
    text = _called(atom.function, [said(a) for a in atom.args])
    return f"({text})" if atom.function in _SIGNS else text


def _called(function: Any, args: Sequence[str]) -> str:
    if function in CONVERSIONS:
        return args[0]
    if function in _SIGNS and len(args) == 2:
        a, b = (f"({x})" if " " in x and not x.startswith("(") else x for x in args)
        return f"{a} {_SIGNS[function]} {b}"
    return f"{getattr(function, '__name__', 'a function')}({', '.join(args)})"
