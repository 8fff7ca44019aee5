"""The first iteration of a loop, which runs by itself and is undone if it is an iteration like the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.structure import Instruction
from pullback.ir.shapes.by_value import same_extent, same_shape
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.traced import TracedArray, has_rows
from pullback.tracer.arrays.tree import bare, flatten
from pullback.tracer.arrays.views import repeat_writes, undo_writes_from
from pullback.tracer.statements.containers import OutsideContents, Slot
from pullback.tracer.statements.earlier_traces import EarlierFirst, kind_of
from pullback.tracer.statements.unrolling import Growth, is_long, most_unrolled, walk_all
from pullback.tracer.statements.variables import UNBOUND, Variables, arrays_in, is_same
from pullback.tracer.user_code.errors import TraceError

_NARROW = ("f16", "f32", "c64")
"""The dtypes whose results depend on whether an operand is a Python number or one of NumPy's."""


_ARITHMETIC = ("ZeroDivisionError", "OverflowError", "ValueError")
"""The errors of Python's arithmetic, which NumPy's numbers do not raise."""


class FirstIteration:
    """What an iteration changed in its frame: the variables ``names`` of a body, arrays, and instructions.

    It is created before the iteration. ``temporary``: the variables whose values no other iteration reads; ``sequence`` returns
    what the loop goes over.
    """

    def __init__(
        self, body: Callable[..., Any], names: Sequence[str], temporary: Sequence[str], sequence: Callable[..., Any]
    ) -> None:  # fmt: skip
        self.frame, self.temporary = frame_of(), temporary
        try:
            self.variables: Variables | None = Variables(names, [body], (body, sequence))
        except TraceError:
            self.variables = None
        else:
            self.saved, self.before = self.variables.state.saved(), self.variables.read()
        self.first_link = len(self.frame.root.linked)
        self.start, self.first_write = len(self.frame.builder.instructions), len(self.frame.writes)
        self.statements = len(self.frame.root.statements)
        self.extents = len(self.frame.value_extents), len(self.frame.selected)
        self.facts = self.frame.facts
        self.places = self.frame.root.names.places
        stores = self.frame.root.stores
        self.stored, self.contents = self.places.contents(), stores.contents_outside(is_stored=True)
        self.contents_outside = stores.contents_outside()
        self.outside = OutsideContents(stores, () if self.variables is None else self.variables.state.ids)

    def _add_places(self) -> None:
        """Make the places outside to which the iteration stored first variables."""
        assert self.variables is not None
        new = [target for target in self.places.changed_since(self.stored) if target not in self.variables.places.values()]
        if new:
            self.variables.add_places(new)
            after = self.places.contents()
            self.places.restore(self.stored)
            self.before += self.variables.read()[len(self.before) :]
            self.places.restore(after)
        for target in new:
            target.is_variable = True

    @property
    def instructions(self) -> list[Instruction]:
        """The instructions of the iteration."""
        return self.frame.builder.instructions[self.start :]

    @property
    def size(self) -> int:
        """The number of instructions since the iteration started, without those of regions."""
        return len(self.frame.builder.instructions) - self.start

    @property
    def grows(self) -> bool:
        """Whether a list became longer or shorter."""
        return self.variables is not None and bool(self.saved.grown())

    def is_noted(self, noted: Sequence[EarlierFirst], count: int) -> bool:
        """Return whether the iteration, which did not run yet, would be undone as an earlier one of a loop of ``count`` was."""
        if self.variables is None:
            return False
        return any(x.serves(self.variables.names, self.before, self.temporary, count) for x in noted)

    @property
    def lengthens(self) -> bool:
        """Whether an array in a variable became longer or shorter."""
        if self.variables is None:
            return False
        pairs = ((a, b) for a, b in zip(self.before, self.variables.read(), strict=True) if a is not b)
        return any(_is_other_length(x, y) for a, b in pairs for x, y in zip(arrays_in([a]), arrays_in([b]), strict=False))

    @property
    def most_unrolled(self) -> int:
        """The largest number of operations of all iterations like this one that stay unrolled."""
        return most_unrolled(self.instructions, self.lengthens)

    def is_long(self, count: int) -> bool:
        """Return whether a loop of ``count`` iterations like this one is too long to be unrolled."""
        return is_long(self.instructions, count, self.lengthens)

    def is_too_much(self, growth: Growth, done: int, count: int) -> bool:
        """Return whether a loop of ``count`` iterations is too long to be unrolled, of which ``done`` ran since this one."""
        return growth.is_too_much(self.instructions, done, count, self.lengthens)

    def record(self) -> EarlierFirst:
        """Return what to note of the iteration, which was undone."""
        assert self.variables is not None
        most = most_unrolled(self.removed, self.after_lengthens)
        entry, after = tuple(map(kind_of, self.before)), tuple(map(kind_of, self.after))
        size = len(walk_all(self.removed))
        return EarlierFirst(names=self.variables.names, entry=entry, after=after, instructions=size, most=most)

    @property
    def has_effects(self) -> bool:
        """Whether the iteration has an effect that another one would repeat, such as a print."""
        return any(i.op.effect == "effect" for i in walk_all(self.instructions))

    @property
    def can_be_undone(self) -> bool:
        """Whether nothing but variables, arrays and instructions changed, and all variables have the types that they had."""
        if self.variables is None or not self.saved.has_same_keys():
            return False
        self._add_places()
        if self.frame.root.stores.changed_since(self.contents, self.variables.state.ids, is_stored=True):
            return False
        if self.extents != (len(self.frame.value_extents), len(self.frame.selected)):
            return False
        if self.has_effects:
            return False
        instructions = list(walk_all(self.instructions))
        is_narrow = any(str(v.type).startswith(_NARROW) for i in instructions for v in i.results)
        is_wide = not is_narrow and not any(i.op.name == "check" and i.params["error"] in _ARITHMETIC for i in instructions)
        grown = self.saved.grown()
        names, cells = self.variables.names, self.variables.cells
        columns = zip(names, cells, self.before, self.variables.read(), strict=True)
        return all(
            name in self.temporary or (isinstance(cell, Slot) and id(cell.container.value) in grown) or _is_alike(a, b, is_wide)
            for name, cell, a, b in columns
        )  # fmt: skip

    def undo(self) -> None:
        """Undo the iteration, which can be undone."""
        assert self.variables is not None
        self._add_places()
        self.stored_after = self.places.contents()
        self.saved_after, self.after, self.after_lengthens = self.variables.state.saved(), self.variables.read(), self.lengthens
        self.writes = undo_writes_from(self.frame, self.first_write)
        linked = self.frame.root.linked
        self.aliases = [(x, x.aliases) for x, _ in linked[self.first_link :]]
        for x, before in linked[: self.first_link - 1 if self.first_link else None : -1]:
            x.aliases = before
        del linked[self.first_link :]
        self.removed = self.frame.builder.remove_from(self.start)
        self.noted = self.frame.root.statements[self.statements :]
        self.facts, self.frame.facts = self.frame.facts, self.facts  # its checks are removed, and what they prove
        del self.frame.root.statements[self.statements :]
        self.saved.restore()
        self.variables.write(self.before)
        self.places.restore(self.stored)

    def restore(self) -> None:
        """Undo what was changed, in containers from outside too, and keep the instructions and their values. Raises TraceError if
        it cannot be undone."""
        for describe in self.frame.root.stores.changed_since(self.contents_outside):
            self.frame.root.names.change_again(describe)
        if self.variables is None or not self.saved.has_same_keys() or self.has_effects:
            raise TraceError("a try statement in which values decide whether an error is raised changes what cannot be undone")
        self.undo()
        self.outside.restore()
        for i in self.removed:
            self.frame.builder.append(i)

    def repeat(self) -> None:
        """Undo ``undo``."""
        assert self.variables is not None
        for i in self.removed:
            self.frame.builder.append(i)
        self.frame.root.statements += self.noted
        self.facts, self.frame.facts = self.frame.facts, self.facts
        repeat_writes(self.frame, self.writes)
        for x, aliases in self.aliases:
            x.aliases = aliases
        self.saved_after.restore()
        self.variables.write(self.after)
        self.places.restore(self.stored_after)


def _is_alike(before: Any, after: Any, is_wide: bool) -> bool:
    """Return whether a variable that holds ``before`` may be carried with the type of ``after``. ``is_wide``: operations on a
    Python float and on a float64 have the same results."""
    if is_same(before, after):
        return True
    if before is UNBOUND or after is UNBOUND or has_rows(before) or has_rows(after):
        return False
    (xs, one), (ys, other) = flatten(before), flatten(after)
    return bare(one) == bare(other) and all(_is_alike_leaf(x, y, is_wide) for x, y in zip(xs, ys, strict=True))


def _is_other_length(x: Any, y: TracedArray) -> bool:
    """Return whether an array becomes one that differs in its first extent alone."""
    if not isinstance(x, TracedArray | np.ndarray) or not x.ndim or x.ndim != y.ndim or x.dtype != y.dtype:
        return False
    return same_shape(x.shape[1:], y.shape[1:]) and not same_extent(x.shape[0], y.shape[0])


def _is_alike_leaf(x: Any, y: Any, is_wide: bool) -> bool:
    if isinstance(x, TracedArray):
        if not isinstance(y, TracedArray) or (x.type != y.type and not _is_other_length(x, y)):
            return False
        return x.weak == y.weak or (is_wide and x.weak == "float")
    if type(x) is type(y) and isinstance(x, int | float | complex):
        return True
    if type(x) is np.ndarray:
        return isinstance(y, TracedArray) and _is_other_length(x, y)
    if isinstance(x, np.generic):
        return isinstance(y, TracedArray) and not y.shape and not y.weak and y.dtype == x.dtype
    kind = {int: "i64", float: "f64", complex: "c128"}.get(type(x))
    return isinstance(y, TracedArray) and not y.shape and str(y.type) == f"{kind}[]" and (is_wide or bool(y.weak))
