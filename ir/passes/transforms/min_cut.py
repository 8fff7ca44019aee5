"""Save or recompute: of the values that are read later, which are kept, and which are computed again from those.

The least total cost is a minimum cut (Dinic 1970). Each value is an edge whose capacity is the cost of keeping it; an edge from
the source to its head bears the cost of computing it again, which then needs its operands. Values that nothing connects are cut
apart from each other: each connected part of up to ``MOST_EXACT`` values exactly, a larger one by one backward walk that
compares keeping a value with computing it from kept operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pullback.ir.core.structure import Instruction
from pullback.ir.ops.elementwise.elementwise import Elementwise

MOST_EXACT = 4000
NEVER = 1 << 62
"""The cost of what cannot be done."""
SHARED = 3
"""What part of a function's cost a derivative has that shares its exponential."""
UNIT = 16
"""The cost of moving a byte. That of computing one by a cheap op is 1."""


def again_cost(instruction: Instruction, size: int, function: int) -> int:
    """The cost of computing ``size`` bytes again elementwise; ``function``: that of one byte of a function (exp, tanh)."""
    op = instruction.op
    if not isinstance(op, Elementwise) or op.cheap:
        return size
    return size * (function // SHARED if op.derivative_of else function)


@dataclass(slots=True)
class Node:
    """A value: ``keep`` is the cost of having it later, ``again`` that of computing it once more from ``operands`` (positions of
    earlier nodes), ``is_read`` whether something reads it later."""

    keep: int
    again: int = NEVER
    operands: list[int] = field(default_factory=list)
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The positions of the values to keep and of those to compute again, and whether the cost is the least possible."""

    kept: frozenset[int]
    again: frozenset[int]
    is_exact: bool


def cut(nodes: Sequence[Node], most_exact: int = MOST_EXACT) -> Cut:
    """The cheapest way to have every value that is read. ``nodes``: each after its operands. Of equal costs, the fewest values
    are computed again."""
    kept: set[int] = set()
    again: set[int] = set()
    is_exact = True
    for part in _parts(nodes):
        if len(part) == 1:
            (only,) = part
            if nodes[only].is_read:
                (again if nodes[only].again < nodes[only].keep else kept).add(only)
        elif len(part) <= most_exact:
            _exactly(nodes, part, kept, again)
        else:
            is_exact = False
            _nearly(nodes, part, kept, again)
    return Cut(frozenset(kept), frozenset(again), is_exact)


def _parts(nodes: Sequence[Node]) -> list[list[int]]:
    """The connected parts: positions in order. A value that cannot be computed again ends where its operands begin."""
    root = list(range(len(nodes)))

    def find(k: int) -> int:
        while root[k] != k:
            root[k] = root[root[k]]
            k = root[k]
        return k

    for k, node in enumerate(nodes):
        if node.again < NEVER:
            for operand in node.operands:
                root[find(operand)] = find(k)
    found: dict[int, list[int]] = {}
    for k in range(len(nodes)):
        found.setdefault(find(k), []).append(k)
    return list(found.values())


def _nearly(nodes: Sequence[Node], part: Sequence[int], kept: set[int], again: set[int]) -> None:
    needed = {k for k in part if nodes[k].is_read}
    for k in reversed(part):
        if k in needed:
            node = nodes[k]
            cost = node.again + sum(nodes[v].keep for v in dict.fromkeys(node.operands) if v not in needed)
            if cost < node.keep:
                again.add(k)
                needed.update(node.operands)
            else:
                kept.add(k)


def _exactly(nodes: Sequence[Node], part: Sequence[int], kept: set[int], again: set[int]) -> None:
    place = {k: position for position, k in enumerate(part)}
    source, sink = 2 * len(part), 2 * len(part) + 1
    flow = _Network(2 * len(part) + 2)
    for k, position in place.items():
        node = nodes[k]
        head, tail = 2 * position, 2 * position + 1
        flow.join(head, tail, node.keep)
        if node.again:
            flow.join(source, head, node.again)
        if node.again < NEVER:
            for operand in dict.fromkeys(node.operands):
                flow.join(2 * place[operand] + 1, head, NEVER)
        if node.is_read:
            flow.join(tail, sink, NEVER)
    flow.fill(source, sink)
    late = flow.reaching(sink)
    for k, position in place.items():
        if late[2 * position + 1]:
            (again if late[2 * position] else kept).add(k)


class _Network:
    """Edges in pairs, an edge and its reverse: ``ends[e]`` and ``room[e]``, those that leave a node in ``leaving``."""

    def __init__(self, size: int) -> None:
        self.leaving: list[list[int]] = [[] for _ in range(size)]
        self.ends: list[int] = []
        self.room: list[int] = []

    def join(self, start: int, end: int, capacity: int) -> None:
        self.leaving[start].append(len(self.ends))
        self.leaving[end].append(len(self.ends) + 1)
        self.ends += (end, start)
        self.room += (capacity, 0)

    def fill(self, source: int, sink: int) -> None:
        """The greatest flow, level graph by level graph."""
        while (level := self.levels(source, sink)) is not None:
            self.block(source, sink, level, [0] * len(self.leaving))

    def levels(self, source: int, sink: int) -> list[int] | None:
        """The distance of each node from the source; None if the sink cannot be reached."""
        ends, room = self.ends, self.room
        level = [-1] * len(self.leaving)
        level[source] = 0
        front = [source]
        while front:
            after = []
            for node in front:
                for edge in self.leaving[node]:
                    end = ends[edge]
                    if room[edge] and level[end] < 0:
                        level[end] = level[node] + 1
                        after.append(end)
            if level[sink] >= 0:
                return level
            front = after
        return None

    def block(self, source: int, sink: int, level: list[int], tried: list[int]) -> None:
        """Send all that goes along shortest paths."""
        ends, room = self.ends, self.room
        path: list[int] = []
        node = source
        while True:
            if node == sink:
                amount = min(room[edge] for edge in path)
                for edge in path:
                    room[edge] -= amount
                    room[edge ^ 1] += amount
                first = next(k for k, edge in enumerate(path) if not room[edge])
                node = ends[path[first] ^ 1]
                del path[first:]
                continue
            edges = self.leaving[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if room[edge] and level[ends[edge]] == level[node] + 1:
                    path.append(edge)
                    node = ends[edge]
                    break
                tried[node] += 1
            else:
                if not path:
                    return
                edge = path.pop()
                node = ends[edge ^ 1]
                tried[node] += 1

    def reaching(self, sink: int) -> list[bool]:
        """Whether each node still reaches the sink."""
        found = [False] * len(self.leaving)
        found[sink] = True
        stack = [sink]
        while stack:
            for edge in self.leaving[stack.pop()]:
                start = self.ends[edge]
                if self.room[edge ^ 1] and not found[start]:
                    found[start] = True
                    stack.append(start)
        return found
