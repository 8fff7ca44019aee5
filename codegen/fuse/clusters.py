"""clusters: groups in the making, and the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Place, Scatter

MOST_WAITING = 32
ENDED = 1 << 20
NEVER = ENDED + 1


@dataclass(eq=False)
class Cluster:
    """A group in the making.

    ``scan``: in which order elements are visited, if it matters (``orders``); scanned values are known one phase
    after their elements, to readers at the same place. ``product``: the contraction among the members (``carrying``). ``phase``
    of a member: the pass that computes it, ``ENDED`` if it is known after the last, ``NEVER`` for a view, which other groups
    read. ``needs``: the groups whose values it reads. ``readers``: those that read what it updates, and so come first where they
    can.
    """

    number: int
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


@dataclass(frozen=True)
class Read:
    """How an instruction reads a stored or computed value: "same", "row", "scalar" or "other"; ``root`` is what is read."""

    root: Value
    way: str
    rank: int


def updated(cluster: Cluster) -> Value | None:
    """The array that a group updates, or a view of it."""
    if not cluster.opaque or not cluster.members or not isinstance(cluster.members[0].op, Place | Scatter):
        return None
    return cluster.members[0].operands[0]


@dataclass(frozen=True, eq=False)
class Order:
    """``base``: what a view is a view of."""

    clusters: Sequence[Cluster]
    base: Callable[[Value], Value]

    def run(self) -> list[Cluster]:
        """The groups, each after those it needs, otherwise in order of making.

        What reads an array that is updated comes before the update where it can, so that the update needs no copy."""
        done: set[int] = set()
        ordered: list[Cluster] = []
        readers: dict[Value, list[int]] = {}
        for cluster in self.clusters:
            for value in cluster.reads:
                readers.setdefault(self.base(value), []).append(cluster.number)
        for first in self.clusters:
            stack = [first.number]
            while stack:
                number = stack[-1]
                waiting = [n for n in sorted(self.clusters[number].needs) if n not in done]
                if waiting and number not in done:
                    stack.extend(waiting)
                    continue
                stack.pop()
                if number not in done:
                    for n in [*self.before_update(number, done, readers), number]:
                        done.add(n)
                        ordered.append(self.clusters[n])
        return ordered

    def before_update(self, number: int, done: set[int], readers: Mapping[Value, Sequence[int]]) -> list[int]:
        """The groups to run before one that updates an array, because they read it; each after those it needs."""
        base = self.updated(number)
        found: list[int] = []
        for reader in () if base is None else readers.get(base, ()):
            if reader in done or reader in found or reader == number or self.updated(reader) is base:
                continue
            waiting = self.waiting(reader, done, found)
            if number not in waiting:
                found += waiting
        return found

    def updated(self, number: int) -> Value | None:
        """The array that a group updates, if it does."""
        found = updated(self.clusters[number])
        return None if found is None else self.base(found)

    def waiting(self, number: int, done: set[int], also: Sequence[int]) -> list[int]:
        """A group after those that must run before it and have not; nothing if they are many."""
        found: list[int] = []
        stack = [number]
        while stack:
            if len(stack) > MOST_WAITING:
                return []
            top = stack[-1]
            needed = [n for n in self.clusters[top].needs if n not in done and n not in also and n not in found]
            if needed and top not in found:
                stack += needed
                continue
            stack.pop()
            if top not in found:
                found.append(top)
        return found
