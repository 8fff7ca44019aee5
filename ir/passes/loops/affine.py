"""Affine forms of integer scalars in the indices of loops, and proofs that one exceeds another.

A form is an integer combination of *atoms*: the index of a loop in an iteration, an extent, or an i64 scalar that is computed
in another way. An atom has bounds, forms of atoms further out: the index of ``for i in range(k + 1, n)`` is at least 0 and at
most n - k - 2. ``Forms.is_positive`` eliminates the atoms of a form, those of the innermost loops first, by their bounds: the
method of Fourier and Motzkin, restricted to one bound at a time.

An atom stands for a value in one iteration of each loop around it. A form about another iteration is *renamed*: its atoms that
the loop computes are distinct from those of the first one.

Forms are exact integers. An index is taken to be computed without overflow of 64 bits: ``LARGEST`` bounds constants and factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count, DefineExtent
from pullback.ir.ops.control.loops import Loop, Switch, While
from pullback.ir.passes.loops.integer_intervals import NEGATED
from pullback.ir.shapes.extents import by_value_in, factor_names

LARGEST = 2**31
"""The least absolute value of a constant or factor that is not followed."""
DEEPEST = 16
"""The largest number of instructions that are followed to a form."""
MOST_BOUNDS = 64
"""The largest number of bounds that are tried in a proof: several for each atom of an index in a nest of five loops."""
Extent = int | str


@dataclass(frozen=True)
class Atom:
    """A value in an iteration, or an extent by its name. ``other``: in another iteration than the atom without it."""

    key: Value | str
    other: bool = False


@dataclass(frozen=True)
class Form:
    """A sum of atoms with factors, and a constant."""

    terms: Mapping[Atom, int]
    constant: int = 0

    def plus(self, form: Form, factor: int = 1) -> Form:
        """Return the sum of this form and a multiple of another one."""
        terms = dict(self.terms)
        for atom, c in form.terms.items():
            terms[atom] = terms.get(atom, 0) + factor * c
        return Form({a: c for a, c in terms.items() if c}, self.constant + factor * form.constant)

    def shifted(self, by: int) -> Form:
        """Return the sum of this form and a constant."""
        return Form(self.terms, self.constant + by)

    def mapped(self, atoms: Callable[[Atom], Atom]) -> Form:
        """Return the form with other atoms."""
        return Form({atoms(a): c for a, c in self.terms.items()}, self.constant)


ZERO = Form({})


@dataclass(frozen=True, eq=False)
class Facts:
    """What is known where code runs: forms that are not negative, and forms that are not zero."""

    not_negative: tuple[Form, ...] = ()
    not_zero: tuple[Form, ...] = ()

    def and_(self, other: Facts) -> Facts:
        """Return both."""
        return Facts(self.not_negative + other.not_negative, self.not_zero + other.not_zero)

    def mapped(self, atoms: Callable[[Atom], Atom]) -> Facts:
        """Return the facts about other atoms."""
        return Facts(*(tuple(f.mapped(atoms) for f in forms) for forms in (self.not_negative, self.not_zero)))


Bounds = tuple[list[Form], list[Form]]
"""Lower and upper bounds of an atom."""


class Forms:
    """The forms of the i64 scalars of a block and its regions. ``home``: the instructions whose regions hold a value, from the
    outermost to the innermost, with the positions of the regions; ``order``: the position of a value in the program."""

    def __init__(self, block: Block) -> None:
        self.definitions: dict[Value, Instruction] = {}
        self.sources: dict[Value, Value] = {}
        self.home: dict[Value, tuple[tuple[Instruction, int], ...]] = {}
        self.order: dict[Value, int] = {}
        self.loops: dict[Value, Instruction] = {}
        self.counters: dict[Value, tuple[Instruction, int]] = {}
        self.numbers: dict[str, Value | None] = {}
        self._memo: dict[Value, Form] = {}
        self._enter(block, ())

    def _enter(self, block: Block, path: tuple[tuple[Instruction, int], ...]) -> None:
        for v in block.parameters:
            self.home[v], self.order[v] = path, len(self.order)
        for i in block.instructions:
            for v in i.results:
                self.definitions[v], self.home[v], self.order[v] = i, path, len(self.order)
            if isinstance(i.op, DefineExtent):
                name = i.params["extent"][0]
                self.numbers[name] = None if name in self.numbers else i.operands[0]
            if isinstance(i.op, Loop):
                first, carried = i.op.first(i.params), i.params["carried"]
                held = carried + i.params.get("sliced", 0)
                for region in i.regions:
                    self.sources.update(zip(region.parameters[1 + held :], i.operands[first + held :], strict=True))
                    self.loops[region.parameters[0]] = i
                body = i.regions[-1]
                self.counters.update((p, (i, k)) for k, p in enumerate(body.parameters[1 : 1 + carried]))
            elif isinstance(i.op, Switch):
                for region in i.regions:
                    self.sources.update(zip(region.parameters, i.operands[1:], strict=True))
            for k, region in enumerate(i.regions):
                self._enter(region, (*path, (i, k)))

    def root(self, value: Value) -> Value:
        """Return the value that a parameter of regions is."""
        while value in self.sources:
            value = self.sources[value]
        return value

    def of(self, value: Value, depth: int = 0) -> Form:
        """Return the form of an i64 scalar."""
        value = self.root(value)
        if value not in self._memo:
            form = self._computed(value, depth) if depth < DEEPEST else None
            if form is None or abs(form.constant) >= LARGEST or any(abs(c) >= LARGEST for c in form.terms.values()):
                form = Form({Atom(value): 1})
            self._memo[value] = form
        return self._memo[value]

    def of_extent(self, extent: Extent) -> Form | None:
        """Return the form of an extent; None if several instructions define it. One that a value defines is that value: code on
        elements runs only if there are some."""
        return self._of_named(extent, self.of_count)

    def of_start(self, start: Extent) -> Form | None:
        """Return the form of an offset; None if several instructions define its name."""
        return self._of_named(start, self.of)

    def _of_named(self, extent: Extent, of: Callable[[Value], Form]) -> Form | None:
        if isinstance(extent, int):
            return Form({}, extent)
        if not by_value_in((extent,)):
            return Form({Atom(extent): 1})
        if extent not in self.numbers:
            return None if any(name in self.numbers for name in factor_names(extent)) else Form({Atom(extent): 1})
        scalar = self.numbers[extent]
        return None if scalar is None else of(scalar)

    def of_count(self, value: Value) -> Form:
        """Return the form of a trip count, or of an extent, where it is positive: that of x for max(x, 0)."""
        i = self.definitions.get(self.root(value))
        if i is not None and i.op.name == "maximum":
            for x, y in (i.operands, i.operands[::-1]):
                form = self.of(y)
                if not form.terms and form.constant <= 0:
                    return self.of(x)
        return self.of(value)

    def _computed(self, value: Value, depth: int) -> Form | None:
        """Return the form of a value that is computed from others; None for an atom."""
        if value in self.counters:
            return self._counted(value, depth)
        i = self.definitions.get(value)
        if i is None or not _is_integer(value):
            return None
        if isinstance(i.op, Constant):
            content = i.params["value"]
            return Form({}, int(content)) if isinstance(content, int) else None
        if isinstance(i.op, Count):
            shape = i.params["shape"]
            return self.of_start(shape[0]) if len(shape) == 1 else None
        if isinstance(i.op, DefineExtent):
            return self.of(i.operands[0], depth + 1)
        if not all(map(_is_integer, i.operands)):
            return None
        forms = [self.of(v, depth + 1) for v in i.operands]
        match i.op.name:
            case "add":
                return forms[0].plus(forms[1])
            case "sub":
                return forms[0].plus(forms[1], -1)
            case "neg":
                return ZERO.plus(forms[0], -1)
            case "mul":
                x, y = forms if not forms[1].terms else forms[::-1]
                return ZERO.plus(x, y.constant) if not y.terms else None
        return None

    def _counted(self, value: Value, depth: int) -> Form | None:
        """Return the form of a carried integer to which each iteration adds a constant."""
        loop, k = self.counters[value]
        if not _is_integer(value) or loop.params.get("reverse"):
            return None
        following = self.definitions.get(loop.regions[-1].results[k])
        if following is None or following.op.name not in ("add", "sub"):
            return None
        x, y = following.operands
        if x is not value and following.op.name == "add":
            x, y = y, x
        step = self.of(y, depth + 1)
        if x is not value or step.terms:
            return None
        factor = step.constant if following.op.name == "add" else -step.constant
        start = self.of(loop.operands[loop.op.first(loop.params) + k], depth + 1)  # type: ignore[attr-defined]
        return start.plus(Form({Atom(loop.regions[-1].parameters[0]): 1}), factor)

    def bounds(self, key: Value | str) -> Bounds:
        """Return the bounds of an atom, in its iteration."""
        if isinstance(key, str):
            return [ZERO], []
        if key in self.loops:
            return [ZERO], _known(self._last(self.loops[key]))
        i = self.definitions.get(key)
        if i is None:
            return [], []
        match i.op.name:
            case "maximum" if all(map(_is_integer, i.operands)):
                return [self.of(v) for v in i.operands], []
            case "minimum" if all(map(_is_integer, i.operands)):
                return [], [self.of(v) for v in i.operands]
            case "argmax" | "argmin" if len(i.params["axes"]) == 1:
                extent = self.of_extent(i.operands[0].type.shape[i.params["axes"][0]])
                return [ZERO], [] if extent is None else [extent.shifted(-1)]
        return [], []

    def _last(self, loop: Instruction) -> Form | None:
        """Return the index of the last iteration of a loop, or the greatest index; None if it is not known."""
        if isinstance(loop.op, While):
            return None
        length = loop.params["length"]
        count = self.of_extent(length[0]) if length else self.of_count(loop.operands[0])
        return None if count is None else count.shifted(-1)

    def facts(self, condition: Value, holds: bool) -> Facts:
        """Return what a comparison of i64 scalars says about them where it is true, or where it is not."""
        value = self.root(condition)
        i = self.definitions.get(value)
        while i is not None and i.op.name in ("cast", "bitnot") and not value.type.shape:
            if i.op.name == "bitnot":
                if value.type.dtype is not BOOL:
                    return Facts()
                holds = not holds
            value = self.root(i.operands[0])
            i = self.definitions.get(value)
        if i is None or i.op.name not in NEGATED or not all(map(_is_integer, i.operands)):
            return Facts()
        x, y = map(self.of, i.operands)
        match i.op.name if holds else NEGATED[i.op.name]:
            case "lt":
                return Facts((y.plus(x, -1).shifted(-1),))
            case "le":
                return Facts((y.plus(x, -1),))
            case "gt":
                return Facts((x.plus(y, -1).shifted(-1),))
            case "ge":
                return Facts((x.plus(y, -1),))
            case "eq":
                return Facts((x.plus(y, -1), y.plus(x, -1)))
            case _:
                return Facts(not_zero=(x.plus(y, -1),))

    def is_positive(self, form: Form, facts: Facts, rename: Callable[[Atom], Atom]) -> bool:
        """Return whether a form is proved to be at least 1. ``rename`` maps the atoms of the bounds of an atom of another
        iteration to those of that iteration."""
        if self._is_least(form, facts, rename, [MOST_BOUNDS]):
            return True
        is_not_zero = any(form in (f, ZERO.plus(f, -1)) for f in facts.not_zero)
        return is_not_zero and self._is_least(form.shifted(1), facts, rename, [MOST_BOUNDS])

    def _is_least(self, form: Form, facts: Facts, rename: Callable[[Atom], Atom], left: list[int]) -> bool:
        """See ``is_positive``. A bound is used if all its atoms come before the atom that it replaces. ``left``: the number of
        bounds that may still be tried."""
        if not form.terms:
            return form.constant >= 1
        atom = max(form.terms, key=self._rank)
        rank = self._rank(atom)
        factor = form.terms[atom]
        rest = Form({a: c for a, c in form.terms.items() if a != atom}, form.constant)
        own = self.bounds(atom.key)[factor < 0]
        limits = [f.mapped(rename) if atom.other else f for f in own]
        for fact in facts.not_negative:
            c = fact.terms.get(atom)
            if c == (1 if factor > 0 else -1):
                others = Form({a: d for a, d in fact.terms.items() if a != atom}, fact.constant)
                limits.append(ZERO.plus(others, -c))
        for limit in limits:
            if all(self._rank(a) < rank for a in limit.terms):
                left[0] -= 1
                if left[0] < 0:
                    return False
                if self._is_least(rest.plus(limit, factor), facts, rename, left):
                    return True
        return False

    def _rank(self, atom: Atom) -> tuple[int, bool, int]:
        """Return the place of an atom in the order of elimination: the last one is eliminated first."""
        if isinstance(atom.key, str):
            return -1, False, 0
        return sum(isinstance(i.op, Loop) for i, _ in self.home[atom.key]), atom.other, self.order[atom.key]


def _known(form: Form | None) -> list[Form]:
    return [] if form is None else [form]


def _is_integer(value: Value) -> bool:
    """Return whether a value is an i64 scalar."""
    return isinstance(value.type, ArrayType) and not value.type.shape and value.type.dtype is I64
