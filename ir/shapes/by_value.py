"""Extents by value in a trace: integers that instructions compute, used as extents.

While a function is traced, such an extent is a ``Size`` of a ``ValueSizes``: a polynomial over atoms, each of which one
``define_extent`` instruction defines. No value is known, so every operation that needs one is passed to the tracer's functions:
it computes on traced numbers instead, or raises an error. In the IR it has a name; ``numbered`` gives the extents of a finished
trace their final names, and defines the ones that are sums and products of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import BY_VALUE, I64, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import DefineExtent, count, define_extent
from pullback.ir.shapes.extents import extents_of, rename
from pullback.ir.shapes.guards import RELATIONS, Sizes, compared_across
from pullback.ir.shapes.polynomials import Polynomial, added, substituted
from pullback.ir.shapes.symbolic import Atom, Size, is_of_one_trace, terms_of

FIRST = 1009
"""The number that stands for the first extent by value in arithmetic; no result depends on it."""
LARGEST_EXTENT = 2**40
"""An upper bound of the extent of an array that fits into memory."""


class ValueSizes(Sizes):
    """The extents by value of one trace. ``numbers``: the tracer's number of each atom; ``by_name``: the sizes by
    their provisional names; ``capacities``: the atoms that are extents of buffers which may be longer than needed.

    Two of them, or one and an int, are equal if they are known to be: the user's code, which may branch on a comparison, gets
    numbers in their place. ``compute(function, args)`` applies a function to numbers where arithmetic on polynomials does not
    suffice; ``decide(relation, a, b)`` compares two whose order is not known, and ``need(size)`` raises the error of code that
    needs the number itself.
    """

    is_by_value = True

    def __init__(
        self,
        compute: Callable[[Callable[..., Any], tuple[Any, ...]], Any],
        decide: Callable[[str, Any, Any], bool],
        need: Callable[[Any], int],
    ) -> None:
        super().__init__()
        self.numbers: list[Any] = []
        self.by_name: dict[str, Size] = {}
        self._names: dict[Polynomial, str] = {}
        self._most: dict[int, Polynomial] = {}
        self.capacities: set[int] = set()
        self._compute, self._decide, self._need = compute, decide, need

    def define(self, count: Any, least: int = 0, most: Any = None, is_capacity: bool = False) -> Size:
        """Return the size whose number is ``count``; it is at least ``least`` and, if that is known, at most ``most``, an int or
        a size. ``is_capacity``: it is that of a buffer which may be longer than needed."""
        atom = Atom(index=len(self.atoms), name=f"{BY_VALUE}{len(self.atoms)}", value=FIRST + len(self.atoms))
        self.atoms.append(atom)
        self.numbers.append(count)
        self._low[atom.index] = least
        if most is not None:
            self._most[atom.index] = terms_of(most)
        if is_capacity:
            self.capacities.add(atom.index)
        size = Size(self, (((atom.index,), 1),), atom.value)
        self.name(size)
        return size

    def name(self, size: Size) -> str:
        """Return the provisional name of a size in the IR."""
        if size.terms not in self._names:
            name = self._names[size.terms] = f"{BY_VALUE}{len(self._names)}"
            self.by_name[name] = size
        return self._names[size.terms]

    def atom_name(self, atom: int) -> str:
        """Return the provisional name of an atom."""
        return self._names[(((atom,), 1),)]

    def atoms_of(self, name: str) -> set[int]:
        """Return the atoms of a polynomial."""
        return {a for atoms, _ in self.by_name[name].terms for a in atoms}

    def bound(self, terms: Polynomial, kept: Any) -> Polynomial:
        """Return an upper bound of a polynomial: atoms that are added, except those of the size ``kept``, have their own upper
        bounds in their place."""
        free = self._most.keys() - {a for m, _ in terms_of(kept) for a in m}
        for _ in self.atoms:
            bounded = next((a for m, f in terms if f > 0 and len(m) == 1 for a in m if a in free), None)
            if bounded is None:
                break
            terms = substituted(terms, bounded, self._most[bounded])
        return terms

    def is_positive(self, size: Size) -> bool:
        """Return whether a size is known to be at least 1."""
        return self._decided(">", size.terms) is True

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        return self._compute(function, args)

    def compare(self, relation: str, a: Size | int, b: Size | int) -> bool:
        if not is_of_one_trace(a, b):
            return compared_across(relation, a, b)
        difference = added(terms_of(a), terms_of(b), -1)
        if not difference:
            return bool(RELATIONS[relation](0, 0))
        decided = self._decided(relation, difference)
        if decided is None:
            return relation == "!=" if relation in ("==", "!=") else self._decide(relation, a, b)
        return decided

    def pin(self, values: Iterable[Any]) -> None:
        for x in values:
            if type(x) is Size:
                self._need(x)
            elif isinstance(x, tuple | list):
                self.pin(x)
            elif isinstance(x, slice):
                self.pin((x.start, x.stop, x.step))


def is_value_size(x: Any) -> bool:
    """Return whether a value is an extent by value of a trace."""
    return type(x) is Size and x.sizes.is_by_value


def most_of(size: Any) -> int:
    """Return an upper bound of an extent by value."""
    terms = size.sizes.bound(size.terms, 0)
    bound = sum(max(factor, 0) * (LARGEST_EXTENT if atoms else 1) for atoms, factor in terms)
    return min(max(bound, 1), LARGEST_EXTENT)


def known_less(extent: Any, bound: int) -> bool:
    """Return whether an extent is known to be less than an int."""
    if not is_value_size(extent):
        return bool(extent < bound)
    return most_of(extent) < bound


def same_extent(a: Any, b: Any) -> bool:
    """Return whether two extents are known to be equal; of extents by value, only those with equal polynomials are."""
    if is_value_size(a) or is_value_size(b):
        return type(a) is type(b) and a.sizes is b.sizes and a.terms == b.terms
    return bool(a == b)


def extents_differ(a: Any, b: Any) -> bool:
    """Return whether two extents are known to differ."""
    return not (is_value_size(a) or is_value_size(b)) and bool(a != b)


def shapes_differ(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether two shapes are known to differ."""
    return len(a) != len(b) or any(map(extents_differ, a, b))


def same_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether two shapes are known to be equal."""
    return len(a) == len(b) and all(map(same_extent, a, b))


def holds_value_size(shape: Iterable[Any]) -> bool:
    """Return whether a shape has an extent by value."""
    return any(map(is_value_size, shape))


def numbered(function: Function, sizes: ValueSizes | None) -> Function:
    """Return a finished trace whose extents by value are numbered in the order of their definitions. Those that are polynomials
    of others are defined right after the last of these."""
    return function if sizes is None or not sizes.numbers else _Naming(function, sizes).run()


class _Naming:
    """The state of one ``numbered``. ``names``: the final names; ``derived``: the provisional names of polynomials to define
    after an atom."""

    def __init__(self, function: Function, sizes: ValueSizes) -> None:
        self.function = function
        self.sizes = sizes
        self.names: dict[str, str] = {}
        self.derived: dict[str, list[str]] = {}

    def run(self) -> Function:
        defined = [i.params["extent"][0] for i in walk(self.function.body) if isinstance(i.op, DefineExtent)]
        order = {name: k for k, name in enumerate(dict.fromkeys(defined))}
        self.names = {name: f"{BY_VALUE}{k}" for name, k in order.items()}
        for name in extents_of(self.function):
            if is_by_value(name) and name not in self.names:
                last = max(map(self.sizes.atom_name, self.sizes.atoms_of(name)), key=order.__getitem__)
                self.derived.setdefault(last, []).append(name)
                self.names[name] = f"{BY_VALUE}{len(self.names)}"
        completed = replace(self.function, body=self.block(self.function.body))
        return rename(completed, self.names)

    def block(self, block: Block) -> Block:
        """Return a block with the definitions of polynomials."""
        instructions: list[Instruction] = []
        for i in block.instructions:
            instructions.append(replace(i, regions=tuple(map(self.block, i.regions))) if i.regions else i)
            if isinstance(i.op, DefineExtent):
                for name in self.derived.get(i.params["extent"][0], ()):
                    self.define(Builder(i.loc, instructions), name)
        return replace(block, instructions=tuple(instructions))

    def define(self, b: Builder, name: str) -> None:
        """Emit the definition of an extent that is a polynomial of others."""
        total: Value | None = None
        for atoms, factor in self.sizes.by_name[name].terms:
            (term,) = b.emit(count, (), {"shape": tuple(map(self.sizes.atom_name, atoms))})
            term = term if factor == 1 else b.mul(term, b.const(factor, I64))
            total = term if total is None else b.add(total, term)
        assert total is not None
        is_capacity = self.sizes.atoms_of(name) <= self.sizes.capacities
        b.emit(define_extent, (total,), {"extent": (name,), **({"capacity": True} if is_capacity else {})})
