"""clusters: groups while they are formed, and the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import ArrayType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Place, Scatter
from pullback.ir.ops.control.loops import Switch
from pullback.ir.passes.editing.updates import updated_operand

MOST_PENDING = 32
"""Most groups that are moved before an update because one of them reads the array."""
ENDED = 1 << 20
"""Phase of a value that is known after the last pass."""
NEVER = ENDED + 1
"""Phase of a view, which only other groups read."""


@dataclass(eq=False)
class Cluster:
    """A group while it is formed.

    ``scan``: the order in which elements are visited, if it matters (``iteration_order``); scanned values are known one phase
    after their elements, to readers at the same index. ``product``: the contraction among the members (``matmul_fusion``).
    ``phase`` of a member: the pass that computes it, ``ENDED`` if it is known after the last, ``NEVER`` for a view, which
    other groups read. ``needs``: the groups whose values it reads. ``readers``: the groups that read what it updates, which
    precede it where they can. ``has_only_scalars``: every member is a scalar function of scalars that the first pass computes.
    ``part``: the part of a gradient that recomputes the first member, 0 if none does (``Loc.part``).
    """

    index: int
    space: Shape
    rows: int | None = None
    scan: tuple[object, ...] | None = None
    product: Instruction | None = None
    members: list[Instruction] = field(default_factory=list)
    copies: list[Value] = field(default_factory=list)
    phase: dict[Value, int] = field(default_factory=dict)
    needs: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)
    reads: set[Value] = field(default_factory=set)
    opaque: bool = False
    weight: int = 0
    has_only_scalars: bool = True
    part: int = 0


@dataclass(frozen=True)
class Read:
    """A read of a stored or computed value, ``root``. ``way``: at the same index ("same"), by a row's index ("row"), as a
    scalar ("scalar"), or any other way ("other")."""

    root: Value
    way: str
    rank: int


def updated_operands(cluster: Cluster) -> list[Value]:
    """Return the arrays, or the views of them, that a group updates: the base of an update, or those of the sides of a branch."""
    if not cluster.opaque or not cluster.members or not isinstance(cluster.members[0].op, Place | Scatter | Switch):
        return []
    i = cluster.members[0]
    operands = (updated_operand(i, v) for v in i.results if isinstance(v.type, ArrayType) and v.type.shape)
    return list(dict.fromkeys(v for v in operands if v is not None))


@dataclass(frozen=True, eq=False)
class Order:
    """The order of groups. ``base`` returns the value that a view is a view of."""

    clusters: Sequence[Cluster]
    base: Callable[[Value], Value]

    def run(self) -> list[Cluster]:
        """Return the groups, each after those it needs, otherwise in the order in which they were created. A group that needs a
        later one waits for it: if the other ran earlier, with all that it needs, what the groups between read would be in memory
        for longer.

        Groups that read an array precede its update where they can, so that the update needs no copy.
        """
        done: set[int] = set()
        ordered: list[Cluster] = []
        readers: dict[Value, list[int]] = {}
        for cluster in self.clusters:
            for value in cluster.reads:
                readers.setdefault(self.base(value), []).append(cluster.index)
        last = self.last_needs()
        for first in sorted(self.clusters, key=lambda c: last[c.index]):
            stack = [first.index]
            while stack:
                index = stack[-1]
                pending = [n for n in sorted(self.clusters[index].needs) if n not in done]
                if pending and index not in done:
                    stack.extend(pending)
                    continue
                stack.pop()
                if index not in done:
                    for n in [*self.before_update(index, done, readers), index]:
                        done.add(n)
                        ordered.append(self.clusters[n])
        return ordered

    def last_needs(self) -> list[int]:
        """Return, for each group, the largest index among itself and the groups that must run before it."""
        last = [-1] * len(self.clusters)
        for first in range(len(last)):
            stack = [first]
            while stack:
                index = stack[-1]
                pending = [n for n in self.clusters[index].needs if last[n] < 0] if last[index] < 0 else []
                if pending:
                    stack += pending
                    continue
                stack.pop()
                last[index] = max([index, *(last[n] for n in self.clusters[index].needs)])
        return last

    def before_update(self, index: int, done: set[int], readers: Mapping[Value, Sequence[int]]) -> list[int]:
        """Return the groups to run before one that updates an array, because they read it; each after those it needs."""
        earlier: list[int] = []
        for array, reader in ((v, n) for v in self.updated(index) for n in readers.get(v, ())):
            if reader in done or reader in earlier or reader == index or array in self.updated(reader):
                continue
            pending = self.with_pending(reader, done, earlier)
            if index not in pending:
                earlier += pending
        return earlier

    def updated(self, index: int) -> list[Value]:
        """Return the arrays that a group updates."""
        return [self.base(v) for v in updated_operands(self.clusters[index])]

    def with_pending(self, index: int, done: set[int], also: Sequence[int]) -> list[int]:
        """Return a group after those that must run before it and have not; an empty list if they are more than
        ``MOST_PENDING``."""
        pending: list[int] = []
        stack = [index]
        while stack:
            if len(stack) > MOST_PENDING:
                return []
            top = stack[-1]
            needed = [n for n in self.clusters[top].needs if n not in done and n not in also and n not in pending]
            if needed and top not in pending:
                stack += needed
                continue
            stack.pop()
            if top not in pending:
                pending.append(top)
        return pending
