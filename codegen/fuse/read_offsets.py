"""read_offsets: count the offsets at which an element of one value is computed from elements of another, as in a stencil.

A value that is not stored is recomputed at each offset, and its own operands at each of theirs: seven neighbours of seven
neighbours. An offset is a chain of instructions that move elements (slices, padding, concatenations); two different chains are
two offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex, broadcast

MOST_OFFSETS = 64
"""Number of offsets up to which they are counted; more are as expensive as too many."""

Offset = tuple[Instruction, ...]
"""The chain of instructions that move elements."""
Offsets = frozenset[Offset]
"""A set of offsets."""
NO_OFFSET: Offsets = frozenset({()})
"""The set that contains only the offset zero."""


def union(a: Offsets, b: Offsets) -> Offsets:
    """Return the union of two sets of offsets."""
    return a if a is b or len(a) >= MOST_OFFSETS or b <= a else a | b


def compose(outer: Offsets, inner: Offsets) -> Offsets:
    """Return the offsets of ``outer`` followed by those of ``inner``, in all combinations."""
    if inner is NO_OFFSET or outer is NO_OFFSET:
        return outer if inner is NO_OFFSET else inner
    return frozenset([a + b for a in outer for b in inner][:MOST_OFFSETS])


class Reads:
    """The values from which values are computed, and the offsets. ``through(v)`` returns the instruction of a value that its
    readers recompute, else None."""

    def __init__(self, through: Callable[[Value], Instruction | None]) -> None:
        self.through = through
        self.cache: dict[Value, dict[Value, Offsets]] = {}

    def of(self, value: Value) -> Mapping[Value, Offsets]:
        """Return the offsets of each value that is in memory or a member of a group."""
        stack = [value]
        while stack:
            current = stack[-1]
            definition = None if current in self.cache else self.through(current)
            missing = [v for v in definition.operands if v not in self.cache] if definition is not None else []
            if missing:
                stack += missing
                continue
            stack.pop()
            self.cache.setdefault(current, {current: NO_OFFSET} if definition is None else self.of_instruction(definition))
        return self.cache[value]

    def of_instruction(self, instruction: Instruction) -> dict[Value, Offsets]:
        """Return the offsets of an instruction, from those of its operands."""
        result: dict[Value, Offsets] = {}
        moves = isinstance(instruction.op, Reindex) and not instruction.op.view and instruction.op is not broadcast
        for operand in instruction.operands:
            for root, offsets in self.cache[operand].items():
                moved = compose(frozenset({(instruction,)}), offsets) if moves else offsets
                result[root] = union(result.get(root, moved), moved)
        return result

    def of_all(self, instruction: Instruction) -> dict[Value, Offsets]:
        """Return the offsets of the values that an instruction reads, whether its readers recompute it or not."""
        return reduce(_merge, map(self.of, instruction.operands), {})


def _merge(result: dict[Value, Offsets], more: Mapping[Value, Offsets]) -> dict[Value, Offsets]:
    for root, offsets in more.items():
        result[root] = union(result.get(root, offsets), offsets)
    return result
