"""Save or recompute: choose, among values that are read later, which to save and which to recompute from saved ones.

The least total cost is a minimum cut (Dinic 1970). Each value is an edge whose capacity is the cost of saving it; an edge from
the source to its head has the cost of recomputing it, which then needs its operands. Connected components are solved
separately: those of up to ``MOST_EXACT`` values exactly, larger ones by one backward walk that compares saving a value with
recomputing it from saved operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.elementwise.elementwise import Elementwise

MOST_EXACT = 4000
"""Largest number of values in a component that is solved exactly."""
NEVER = 1 << 62
"""The cost of an impossible choice."""
SHARED = 3
"""Divisor of a function's cost for a derivative that shares its exponential."""
UNIT = 16
"""The cost of moving a byte. Computing a byte by a cheap op costs 1."""


def recompute_cost(instruction: Instruction, size: int, function: int) -> int:
    """Return the cost of recomputing ``size`` bytes elementwise; ``function``: cost per byte of a function (exp, tanh)."""
    op = instruction.op
    if not isinstance(op, Elementwise) or op.cheap:
        return size
    return size * (function // SHARED if op.derivative_of else function)


@dataclass(slots=True)
class Node:
    """A value. ``keep``: the cost of saving it; ``recompute``: the cost of recomputing it from ``operands`` (positions of earlier
    nodes); ``is_read``: whether it is read later."""

    keep: int
    recompute: int = NEVER
    operands: list[int] = field(default_factory=list)
    is_read: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """The positions of the values to save and of those to recompute, and whether the cost is minimal."""

    saved: frozenset[int]
    recomputed: frozenset[int]
    is_exact: bool


def cut(nodes: Sequence[Node], most_exact: int = MOST_EXACT) -> Cut:
    """Return the cheapest way to have every value that is read. ``nodes``: each after its operands. Among equal costs, the
    fewest values are recomputed."""
    saved: set[int] = set()
    recomputed: set[int] = set()
    is_exact = True
    for part in _parts(nodes):
        if len(part) == 1:
            (only,) = part
            if nodes[only].is_read:
                (recomputed if nodes[only].recompute < nodes[only].keep else saved).add(only)
        elif len(part) <= most_exact:
            _solve_exactly(nodes, part, saved, recomputed)
        else:
            is_exact = False
            _solve_approximately(nodes, part, saved, recomputed)
    return Cut(frozenset(saved), frozenset(recomputed), is_exact)


def _parts(nodes: Sequence[Node]) -> list[list[int]]:
    """Return the connected components as lists of positions, in order. No component extends through a value that cannot be
    recomputed."""
    root = list(range(len(nodes)))

    def find(k: int) -> int:
        while root[k] != k:
            root[k] = root[root[k]]
            k = root[k]
        return k

    for k, node in enumerate(nodes):
        if node.recompute < NEVER:
            for operand in node.operands:
                root[find(operand)] = find(k)
    by_root: dict[int, list[int]] = {}
    for k in range(len(nodes)):
        by_root.setdefault(find(k), []).append(k)
    return list(by_root.values())


def _solve_approximately(nodes: Sequence[Node], part: Sequence[int], saved: set[int], recomputed: set[int]) -> None:
    """Solve a large component approximately, by a backward walk."""
    needed = {k for k in part if nodes[k].is_read}
    for k in reversed(part):
        if k in needed:
            node = nodes[k]
            cost = node.recompute + sum(nodes[v].keep for v in dict.fromkeys(node.operands) if v not in needed)
            if cost < node.keep:
                recomputed.add(k)
                needed.update(node.operands)
            else:
                saved.add(k)


def _solve_exactly(nodes: Sequence[Node], part: Sequence[int], saved: set[int], recomputed: set[int]) -> None:
    """Solve a component exactly, by a minimum cut."""
    positions = {k: position for position, k in enumerate(part)}
    source, sink = 2 * len(part), 2 * len(part) + 1
    flow = _Network(2 * len(part) + 2)
    for k, position in positions.items():
        node = nodes[k]
        head, tail = 2 * position, 2 * position + 1
        flow.join(head, tail, node.keep)
        if node.recompute:
            flow.join(source, head, node.recompute)
        if node.recompute < NEVER:
            for operand in dict.fromkeys(node.operands):
                flow.join(2 * positions[operand] + 1, head, NEVER)
        if node.is_read:
            flow.join(tail, sink, NEVER)
    flow.fill(source, sink)
    late = flow.reaching(sink)
    for k, position in positions.items():
        if late[2 * position + 1]:
            (recomputed if late[2 * position] else saved).add(k)


class _Network:
    """A flow network of edges in pairs with their reverses: ``ends[e]`` and ``room[e]`` of each edge; ``leaving`` by node."""

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
        """Compute the maximum flow, level graph by level graph."""
        while (level := self.levels(source, sink)) is not None:
            self.block(source, sink, level, [0] * len(self.leaving))

    def levels(self, source: int, sink: int) -> list[int] | None:
        """Return the distance of each node from the source; None if the sink is unreachable."""
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
        """Saturate all shortest paths: compute a blocking flow of the level graph."""
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
        """Return, by node, whether it still reaches the sink."""
        reaches = [False] * len(self.leaving)
        reaches[sink] = True
        stack = [sink]
        while stack:
            for edge in self.leaving[stack.pop()]:
                start = self.ends[edge]
                if self.room[edge ^ 1] and not reaches[start]:
                    reaches[start] = True
                    stack.append(start)
        return reaches
