"""rematerialize: choose which values that one group computes and another reads are stored, and which each reader recomputes.

Uses the minimum cut (``ir/passes/transforms/min_cut.py``) over bytes moved. A stored value is written once and read by each
group that needs it; a value that is in memory in any case (a parameter, the result or operand of a contraction or of any op
with a kernel of its own) is only read. Elementwise ops between values of one shape can be recomputed: a cheap op costs a
sixteenth of moving its result, a function (exp, tanh) one and a half times as much as moving it: it takes about as long as
writing and reading a number in memory, and many times that if the number stays in a cache. Each op is counted once for each
group that needs its result, directly or through other values: of a chain along which many groups read, only the end is
recomputed. If these groups load more for its operands than for its result, the difference is added (``_more_loads``): a running
sum to which each group adds a value of its own is stored by each group, since recomputing it loads all values again. An op is
also counted once for each offset at which it is computed (``read_offsets``), twice if there are several offsets, to account for
its loads there. Everything else is stored: results of reductions, contractions, sorts and factorisations, and sources of
broadcasts. A chain of more than ``MOST_AGAIN`` machine instructions, about ten functions, is cut.

Extents are names at this stage. Each counts as one number (``nominal_bytes``), so a program is decided once for all shapes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from pullback.codegen.fuse.read_offsets import NO_OFFSET, Offsets, Reads, compose, union
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.transforms.min_cut import UNIT, Node, cut, recompute_cost
from pullback.ir.shapes.extents import nominal_bytes

MOST_RECOMPUTED = 400
"""Most machine instructions in a chain that is recomputed."""
HEAVY = 30
"""Weight of an op that is not cheap, in machine instructions."""
FUNCTION = 24
"""Cost of computing a byte of a function's result, where moving a byte costs ``UNIT``."""


@dataclass(frozen=True, eq=False)
class Rematerialization:
    """The decisions. ``recomputed``: the values that each reading group recomputes instead of loading them, with their
    instructions. ``why``: for the instructions whose results are stored, the reason. ``is_exact``: whether no other choice
    moves fewer bytes."""

    recomputed: Mapping[Value, Instruction] = field(default_factory=dict)
    why: Mapping[Instruction, str] = field(default_factory=dict)
    is_exact: bool = True


def join_decisions(savings: Sequence[Rematerialization]) -> Rematerialization:
    """Return the decisions of a function and of its regions as one."""
    recomputed = {v: i for saving in savings for v, i in saving.recomputed.items()}
    why = {i: text for saving in savings for i, text in saving.why.items()}
    return Rematerialization(recomputed, why, all(saving.is_exact for saving in savings))


@dataclass(frozen=True, eq=False)
class Use:
    """A group's read of a value for an operand. ``inside``: the group computes the value itself. ``often``: the mask of how
    often it reads the value, two bits."""

    root: Value
    operand: Value
    inside: bool
    often: int = 1


class Graph:
    """The graph that is cut. ``makers``: the elementwise instructions of groups, by their results. ``made_from(i)`` returns
    the values from which one is computed. ``stored``: the values that are in memory in any case, and the reason. ``reads``:
    the offsets at which operands read them."""

    def __init__(
        self,
        makers: Mapping[Value, Instruction],
        made_from: Callable[[Instruction], Sequence[Value]],
        stored: Mapping[Value, str],
        position: Mapping[Instruction, int],
        reads: Reads,
    ) -> None:
        self.reads = reads
        self.makers, self.made_from, self.stored, self.position = dict(makers), made_from, stored, position
        self.why = {i: stored[v] for v, i in makers.items() if v in stored}

    def choose(self, groups: Sequence[Sequence[Use]]) -> Rematerialization:
        """Choose which of the values that the groups read are recomputed."""
        for use in (use for uses in groups for use in uses if use.root.type.shape != use.operand.type.shape):
            instruction = self.makers.pop(use.root, None)
            if instruction is not None:
                self.why.setdefault(instruction, "repeated by a broadcast")
        own: dict[Value, int] = {}
        for k, uses in enumerate(groups):
            outside: dict[Value, int] = {}
            for use in (use for use in uses if not use.inside):
                outside[use.root] = outside.get(use.root, 0) | use.often
            if any(v in self.makers and v not in self.stored for v in outside):
                for value, often in outside.items():
                    own[value] = own.get(value, 0) | often << 2 * k
        if not own:
            return Rematerialization(why=self.why)
        operands = self.operands(own)
        values = sorted(operands, key=lambda v: self.position[self.makers[v]] if v in self.makers else -1)
        nodes = self.nodes(
            values, operands, own, self.offset_counts(values, [use for uses in groups for use in uses if not use.inside])
        )
        result = cut(nodes)
        for value in (values[k] for k in result.saved if values[k] in self.makers):
            self.why.setdefault(self.makers[value], "fewest bytes" if result.is_exact else "fewer bytes")
        recomputed = {values[k]: self.makers[values[k]] for k in sorted(result.recomputed)}
        return Rematerialization(recomputed, self.why, result.is_exact)

    def operands(self, read: Iterable[Value]) -> dict[Value, list[Value]]:
        """Return the values that are read and all values from which these can be recomputed, each with its operands; none if
        it must be stored."""
        operands_of: dict[Value, list[Value]] = {}
        stack = list(read)
        while stack:
            value = stack.pop()
            if value not in operands_of:
                operands_of[value] = list(self.made_from(self.makers[value])) if value in self.makers else []
                stack += operands_of[value]
        return operands_of

    def offset_counts(self, values: Sequence[Value], uses: Sequence[Use]) -> Mapping[Value, int]:
        """Return the number of offsets at which each value is computed if all its readers recompute it. ``values``: in program
        order."""
        offsets: dict[Value, Offsets] = {}
        for use in uses:
            more = self.reads.of(use.operand).get(use.root, NO_OFFSET)
            offsets[use.root] = union(offsets.get(use.root, more), more)
        for value in reversed(values):
            if value in self.makers:
                for root, read_offsets in self.reads.of_all(self.makers[value]).items():
                    more = compose(offsets.get(value, NO_OFFSET), read_offsets)
                    offsets[root] = union(offsets.get(root, more), more)
        return {v: len(read_offsets) for v, read_offsets in offsets.items()}

    def nodes(
        self,
        values: Sequence[Value],
        operands: Mapping[Value, Sequence[Value]],
        own: Mapping[Value, int],
        offset_counts: Mapping[Value, int],
    ) -> list[Node]:
        """Return the nodes of values in program order; ``own``: the mask of the groups that read each and how often, two bits
        per group."""
        counts = {v: groups.bit_count() for v, groups in own.items()}
        needed = dict(own)
        for value in reversed(values):
            for operand in operands[value]:
                counts[operand] = max(counts.get(operand, 0), counts.get(value, 1))
                needed[operand] = needed.get(operand, 0) | needed.get(value, 0)
        index = {v: k for k, v in enumerate(values)}
        heavy = sum(1 << k for k, v in enumerate(values) if v in self.makers and weight(self.makers[v]) > 1)
        chains: dict[Value, int] = {}
        nodes = []
        for value in values:
            size, count = nominal_bytes(value.type), counts[value]
            node = Node(UNIT * size * (count + (value not in self.stored)), is_read=value in own)
            chain = functools.reduce(operator.or_, (chains.get(v, 0) for v in operands[value]), 1 << index[value])
            if operands[value] and chain.bit_count() + (HEAVY - 1) * (chain & heavy).bit_count() <= MOST_RECOMPUTED:
                times = max(needed[value].bit_count(), 1) * _cost_factor(offset_counts.get(value, 1))
                node.recompute = recompute_cost(self.makers[value], size * times, FUNCTION)
                node.recompute += UNIT * _more_loads(value, operands[value], own, counts, needed)
                node.operands = [index[v] for v in operands[value]]
                chains[value] = chain
            elif operands[value]:
                self.why.setdefault(self.makers[value], "end of a long chain")
            nodes.append(node)
        return nodes


def _more_loads(
    value: Value, operands: Sequence[Value], own: Mapping[Value, int], counts: Mapping[Value, int], needed: Mapping[Value, int]
) -> int:
    """Return how many bytes more the groups that need a value load if they compute it from its operands, beyond the loads in the
    costs of storing these. One load counts as much as writing the value: a group in a new place reads operands instead."""
    groups = needed[value]
    own_loads = nominal_bytes(value.type) * (1 + groups.bit_count() - counts[value])
    loads = (nominal_bytes(v.type) * ((groups | own.get(v, 0)).bit_count() - counts[v]) for v in operands)
    return max(0, sum(loads) - own_loads)


def _cost_factor(offset_count: int) -> int:
    """Return the factor for an op's cost: if it is computed at several offsets, its operands are loaded at each as well."""
    return offset_count if offset_count == 1 else 2 * offset_count


def weight(instruction: Instruction) -> int:
    """Return the approximate number of machine instructions of an op: LLVM's compile time grows faster than the size of a
    function."""
    return 1 if not isinstance(instruction.op, Elementwise) or instruction.op.cheap else HEAVY
