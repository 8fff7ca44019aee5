"""Notes of the traces of a loop for the next traces of the loop.

A loop in a loop is traced once more whenever the outer one is: for its first iteration, and until its carry is known. Begun from
nothing each time, the body of ``k`` nested loops would be traced about ``4**k`` times; begun from the carry with which the trace
before ended, about ``4 * k**2`` times. Whatever does not prove right makes the loop begin from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import bare, flatten
from pullback.tracer.statements.variables import UNBOUND
from pullback.tracer.user_code.ownership import is_users

_NUMBERS = {"int": int, "float": float, "complex": complex, "bool": bool}
Kind = tuple[Any, tuple[Any, ...]]
CLEARLY = 4
"""A loop is rolled without a first iteration if it is this many times too long to be unrolled: where the variables of outer loops
are static, an iteration has fewer instructions."""
MOST_NOTED = 4
"""The number of traces of a loop that are noted: it begins from static and from traced values, of one type and another."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EarlierCarry:
    """The carry of a loop: the indices of its variables, called ``names``, which held ``entry`` before; the arrays from outside
    that it writes; whether values end it."""

    names: tuple[str, ...]
    entry: tuple[Kind, ...]
    carried: tuple[int, ...]
    targets: tuple[TracedArray, ...]
    may_leave: bool

    def serves(self, names: Sequence[str], entry: Sequence[Any]) -> bool:
        """Return whether it may be the carry again: variables that hold static values hold the same ones."""
        if tuple(names) != self.names:
            return False
        return all(_is_as_static(kind_of(entry[k]), self.entry[k]) for k in self.carried)


@dataclass(frozen=True, kw_only=True, eq=False)
class EarlierFirst:
    """A first iteration that was undone: what the variables, called ``names``, held before and after, and how many
    ``instructions`` it has; ``most``: that many instructions may be unrolled."""

    names: tuple[str, ...]
    entry: tuple[Kind, ...]
    after: tuple[Kind, ...]
    instructions: int
    most: int

    def serves(self, names: Sequence[str], entry: Sequence[Any], temporary: Sequence[str], count: int) -> bool:
        """Return whether the first of ``count`` iterations would be undone too: each variable has the type from before that one,
        or the one from after it."""
        if tuple(names) != self.names or (count - 1) * self.instructions <= CLEARLY * self.most:
            return False
        columns = zip(names, map(kind_of, entry), self.entry, self.after, strict=True)
        return all(name in temporary or now == after or _has_type(now, before) for name, now, before, after in columns)


T = TypeVar("T", EarlierCarry, EarlierFirst)


def takes_notes(body: Callable[..., Any]) -> bool:
    """Return whether the traces of a loop are noted. Those of comprehensions, which share one body, are not, and none where lists
    may be rows of arrays, whose loops are traced in several ways."""
    return is_users(body.__code__) and not frame_of().root.grows


def earlier(kind: type[T], body: Callable[..., Any]) -> Sequence[T]:
    """Return what is noted of earlier traces of a loop in this trace of the function, the last one first."""
    noted: Sequence[T] = frame_of().root.loops.get((kind, body.__code__), ())
    return noted


def note_loop(body: Callable[..., Any], noted: EarlierCarry | EarlierFirst) -> None:
    """Keep a note of a trace of a loop."""
    loops = frame_of().root.loops
    before = loops.get((type(noted), body.__code__), ())
    loops[type(noted), body.__code__] = [noted, *(x for x in before if x.entry != noted.entry)][:MOST_NOTED]


def kind_of(value: Any) -> Kind:
    """Return the structure of a variable's content, and for each leaf a type, or what it is if it is static."""
    if value is UNBOUND:
        return UNBOUND, ()
    leaves, tree = flatten(value)
    return bare(tree), tuple(map(_leaf_kind, leaves))


def _leaf_kind(leaf: Any) -> Any:
    if isinstance(leaf, TracedArray):
        return leaf.type, leaf.weak
    return type(leaf), repr(leaf) if isinstance(leaf, int | float | complex | str | None) else id(leaf)


def _is_as_static(now: Kind, before: Kind) -> bool:
    """Return whether what is static now was static before, and the same."""
    if now[0] != before[0]:
        return False
    return all(a == b or not isinstance(a[0], type) for a, b in zip(now[1], before[1], strict=True))


def _has_type(now: Kind, before: Kind) -> bool:
    """Return whether contents have the same structure and types, where a Python number may be traced or not."""
    if now[0] != before[0]:
        return False
    return all(a == b or _number(a) == _number(b) is not None for a, b in zip(now[1], before[1], strict=True))


def _number(leaf: Any) -> Any:
    """Return the class of a leaf that is a Python number, else None."""
    first, second = leaf
    if isinstance(first, type):
        return first if first in _NUMBERS.values() else None
    return _NUMBERS.get(second) if not first.shape else None
