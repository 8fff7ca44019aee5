"""saving: which of the values that one group computes and another reads are stored, and which each reader computes again.

The minimum cut (``ir/passes/transforms/min_cut.py``) over bytes moved. A stored value is written once and read by each group that
needs it; one that is in memory anyway (a parameter, the result or operand of a contraction or of any op with a kernel of its own)
is only read. Elementwise ops between values of one shape can be computed again: a cheap op counts as a sixteenth of moving its
result, a function (exp, tanh) as one and a half: it takes about as long as writing and reading a number from memory, and many
times that where the number stays in a cache. Each counts once for each group that needs its result, be it for values far behind:
of a chain along which many groups read, only the end is computed again. And it counts as often as there are places at which it is
computed (``places``), twice where they are several, for what it loads there. All else is kept: results of reductions,
contractions, sorts and factorisations, and what a broadcast repeats. A chain of more than ``MOST_AGAIN`` machine instructions,
about ten functions, is cut.

Extents are names at this stage. Each counts as one number (``nominal_bytes``), so a program is decided once for all shapes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pullback.codegen.fuse.read_offsets import HERE, Places, Reads, behind, together
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.transforms.min_cut import UNIT, Node, again_cost, cut
from pullback.ir.shapes.extents import nominal_bytes

MOST_AGAIN = 400
HEAVY = 30
FUNCTION = 24
"""The cost of a byte of a function, where moving it costs ``UNIT``."""


@dataclass(frozen=True, eq=False)
class Saving:
    """``again``: the values that each group which reads them computes anew, rather than their own group storing them. ``why``:
    for the instructions whose results are stored, the reason. ``is_exact``: whether no other choice moves fewer bytes."""

    again: Mapping[Value, Instruction] = field(default_factory=dict)
    why: Mapping[Instruction, str] = field(default_factory=dict)
    is_exact: bool = True


def joined(savings: Sequence[Saving]) -> Saving:
    """The choices of a function and of its regions as one."""
    again = {v: i for saving in savings for v, i in saving.again.items()}
    why = {i: text for saving in savings for i, text in saving.why.items()}
    return Saving(again, why, all(saving.is_exact for saving in savings))


@dataclass(frozen=True, eq=False)
class Use:
    """A group's reading of a value for an operand. ``inside``: the group computes the value itself. ``often``: how often it reads
    it, as bits, two at most."""

    root: Value
    operand: Value
    inside: bool
    often: int = 1


class Graph:
    """``makers``: the elementwise instructions of groups, by their results. ``made_from(i)``: what one is computed from.
    ``stored``: the values that are in memory in any case, and why. ``reads``: where operands read them."""

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

    def choose(self, groups: Sequence[Sequence[Use]]) -> Saving:
        """Which values are computed again, of those that the groups read."""
        for use in (use for uses in groups for use in uses if use.root.type.shape != use.operand.type.shape):
            made = self.makers.pop(use.root, None)
            if made is not None:
                self.why.setdefault(made, "repeated by a broadcast")
        own: dict[Value, int] = {}
        for k, uses in enumerate(groups):
            outside: dict[Value, int] = {}
            for use in (use for use in uses if not use.inside):
                outside[use.root] = outside.get(use.root, 0) | use.often
            if any(v in self.makers and v not in self.stored for v in outside):
                for value, often in outside.items():
                    own[value] = own.get(value, 0) | often << 2 * k
        if not own:
            return Saving(why=self.why)
        operands = self.operands(own)
        values = sorted(operands, key=lambda v: self.position[self.makers[v]] if v in self.makers else -1)
        nodes = self.nodes(values, operands, own, self.places(values, [use for uses in groups for use in uses if not use.inside]))
        found = cut(nodes)
        for value in (values[k] for k in found.kept if values[k] in self.makers):
            self.why.setdefault(self.makers[value], "fewest bytes" if found.is_exact else "fewer bytes")
        again = {values[k]: self.makers[values[k]] for k in sorted(found.again)}
        return Saving(again, self.why, found.is_exact)

    def operands(self, read: Iterable[Value]) -> dict[Value, list[Value]]:
        """What is read and what that can be computed from, and so on, each with its operands: none if it has to be kept."""
        found: dict[Value, list[Value]] = {}
        stack = list(read)
        while stack:
            value = stack.pop()
            if value not in found:
                found[value] = list(self.made_from(self.makers[value])) if value in self.makers else []
                stack += found[value]
        return found

    def places(self, values: Sequence[Value], uses: Sequence[Use]) -> Mapping[Value, int]:
        """At how many places each of the values, in program order, is computed if all that read it are."""
        found: dict[Value, Places] = {}
        for use in uses:
            more = self.reads.of(use.operand).get(use.root, HERE)
            found[use.root] = together(found.get(use.root, more), more)
        for value in reversed(values):
            if value in self.makers:
                for root, places in self.reads.of_all(self.makers[value]).items():
                    more = behind(found.get(value, HERE), places)
                    found[root] = together(found.get(root, more), more)
        return {v: len(places) for v, places in found.items()}

    def nodes(
        self,
        values: Sequence[Value],
        operands: Mapping[Value, Sequence[Value]],
        own: Mapping[Value, int],
        places: Mapping[Value, int],
    ) -> list[Node]:
        """The nodes of values in program order; ``own``: which groups read each and how often, as bits, two a group."""
        counts = {v: groups.bit_count() for v, groups in own.items()}
        needed = dict(own)
        for value in reversed(values):
            for operand in operands[value]:
                counts[operand] = max(counts.get(operand, 0), counts.get(value, 1))
                needed[operand] = needed.get(operand, 0) | needed.get(value, 0)
        place = {v: k for k, v in enumerate(values)}
        heavy = sum(1 << k for k, v in enumerate(values) if v in self.makers and weight(self.makers[v]) > 1)
        chains: dict[Value, int] = {}
        nodes = []
        for value in values:
            size, count = nominal_bytes(value.type), counts[value]
            node = Node(UNIT * size * (count + (value not in self.stored)), is_read=value in own)
            chain = functools.reduce(operator.or_, (chains.get(v, 0) for v in operands[value]), 1 << place[value])
            if operands[value] and chain.bit_count() + (HEAVY - 1) * (chain & heavy).bit_count() <= MOST_AGAIN:
                times = max(needed[value].bit_count(), 1) * _times(places.get(value, 1))
                node.again = again_cost(self.makers[value], size * times, FUNCTION)
                node.operands = [place[v] for v in operands[value]]
                chains[value] = chain
            elif operands[value]:
                self.why.setdefault(self.makers[value], "end of a long chain")
            nodes.append(node)
        return nodes


def _times(places: int) -> int:
    """How many times an op counts: at places of their own, what it is computed from is loaded for each, too."""
    return places if places == 1 else 2 * places


def weight(instruction: Instruction) -> int:
    """About how many machine instructions an op becomes: LLVM's time grows faster than the size of a function."""
    return 1 if not isinstance(instruction.op, Elementwise) or instruction.op.cheap else HEAVY
