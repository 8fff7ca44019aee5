"""The graph of a call's kernels: what each computes, what it reads from others, and why they are not fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from pullback.inspection.cost import KernelCost, cost_of
from pullback.inspection.profile import Profile
from pullback.inspection.provenance import Anatomy, Step, members
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, Module, walk
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.kernel.kernel import For
from pullback.view.contents import NO_INDEX, Edge, Node, NodeKind
from pullback.view.places import Places

RUNS = {"core": "threads", "vector": "vector"}
"""How the loops of a scheduled kernel run, by their param ``map``; others are serial."""
STEP_REASONS: Mapping[NodeKind, str] = {
    "loop": "a loop is a step of the program, with kernels of its own",
    "branch": "a branch is a step of the program, with kernels of its own",
    "python": "Python computes it, outside of kernels",
}
"""Why a kernel and another kind of step are separate, by the kind."""


@dataclass(kw_only=True)
class Graph:
    """Nodes and edges. ``of_step``: the node of each launch in ``Anatomy.steps``; ``of_source``: that of each fused
    instruction."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    of_step: list[int] = field(default_factory=list)
    of_source: dict[Instruction, int] = field(default_factory=dict)


def graph_of(anatomy: Anatomy, scheduled: Module, places: Places) -> Graph:
    """Return the graph of a program. ``scheduled``: the module whose kernels say how their loops run."""
    return _Builder(anatomy, scheduled, places).run()


def with_times(graph: Graph, profile: Profile) -> Graph:
    """Return a graph whose nodes have the times of a profile."""
    nodes = list(graph.nodes)
    for step in profile.steps:
        if step.launch is not None:
            index = graph.of_step[step.launch]
            node = nodes[index]
            seconds = (node.seconds or 0.0) + step.seconds
            nodes[index] = replace(node, seconds=seconds, share=step.share, limit=step.limit)
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if node.parent != NO_INDEX and node.seconds is not None:
            parent = nodes[node.parent]
            nodes[node.parent] = replace(parent, seconds=(parent.seconds or 0.0) + node.seconds)
    return replace(graph, nodes=nodes)


class _Builder:
    def __init__(self, anatomy: Anatomy, scheduled: Module, places: Places) -> None:
        self.anatomy, self.places = anatomy, places
        self.reasons = anatomy.fusion.boundaries()
        self.names = anatomy.names(anatomy.fused)
        self.kernels = {f.name: f for f in scheduled.functions if f.kind == "kernel"}
        self.steps: dict[Instruction, list[Step]] = {}
        for step in anatomy.steps:
            if step.source is not None:
                self.steps.setdefault(step.source, []).append(step)
        self.graph = Graph()

    def run(self) -> Graph:
        self.block(self.anatomy.fused.body, NO_INDEX)
        for step in self.anatomy.steps:
            if step.source is None or step.source not in self.graph.of_source:
                self.graph.of_step.append(self.add(_copy_node(self.anatomy, step)))
            else:
                self.graph.of_step.append(self.graph.of_source[step.source])
        return self.graph

    def add(self, node: Node) -> int:
        self.graph.nodes.append(node)
        return len(self.graph.nodes) - 1

    def block(self, block: Block, parent: int) -> None:
        """Add the nodes of a block, and the edges between them. Views pass on the values that they show."""
        makers: dict[Value, tuple[int, Value]] = {}
        for i in block.instructions:
            reads = {k: makers[v] for k, v in enumerate(i.operands) if v in makers}
            if i not in self.steps and not isinstance(i.op, Host | Loop | Switch):
                if reads:
                    shown = next(iter(reads.values()))
                    makers.update((v, shown) for v in i.results)
                continue
            index = self.graph.of_source[i] = self.add(self.node(i, parent))
            for k, (maker, value) in reads.items():
                self.edge(i, k, maker, index, value)
            makers.update((v, (index, v)) for v in i.results)
            for region in i.regions if isinstance(i.op, Loop | Switch) else ():
                self.block(region, index)

    def edge(self, reader: Instruction, position: int, maker: int, target: int, value: Value) -> None:
        """Add an edge; a value that a node reads twice has one."""
        name, nodes = self.names.get(value, value.name), self.graph.nodes
        if any(e.source == maker and e.value == name for e in self.graph.edges[-len(reader.operands) :] if e.target == target):
            return
        reasons = [STEP_REASONS[nodes[k].kind] for k in (maker, target) if nodes[k].kind in STEP_REASONS]
        reason = reasons[0] if reasons else self.reasons.get(reader, {}).get(position, "")
        typed = isinstance(value.type, ArrayType)
        self.graph.edges.append(
            Edge(
                source=maker, target=target, value=name, type=self.anatomy.type_text(value) if typed else str(value.type),
                bytes=self.anatomy.bytes_of(value) if typed else 0, flops=nodes[maker].flops, reason=reason,
            )
        )  # fmt: skip

    def node(self, i: Instruction, parent: int) -> Node:
        if isinstance(i.op, Host | Loop | Switch):
            kind: NodeKind = "python" if isinstance(i.op, Host) else "loop" if isinstance(i.op, Loop) else "branch"
            costs = list(self.costs_within(i))
            inside = [k for region in i.regions for k in walk(region)]
            locs = [self.anatomy.loc(k) for k in (i, *inside)]
            return _node(i.op.name, kind, (i.op.name,), self.places.all_of(locs), parent, costs)
        steps = self.steps[i]
        costs = [cost_of(self.anatomy, step) for step in steps]
        main = next((s for s in steps if not s.is_copy), steps[-1])
        computed = [m for m in members(i) if not isinstance(m.op, Constant | Count)] or list(members(i))
        ops = tuple(dict.fromkeys(m.op.name for m in computed))
        locs = [self.anatomy.loc(m) for m in computed]
        node = _node(main.kernel.name, "kernel", ops, self.places.all_of(locs), parent, costs)
        return replace(node, loops=_loops(self.kernels.get(main.kernel.name)))

    def costs_within(self, i: Instruction) -> Iterator[KernelCost]:
        """Yield the costs of the launches in a loop or branch."""
        for region in i.regions if isinstance(i.op, Loop | Switch) else ():
            for inner in region.instructions:
                yield from (cost_of(self.anatomy, step) for step in self.steps.get(inner, ()))
                yield from self.costs_within(inner)


def _node(
    name: str, kind: NodeKind, ops: tuple[str, ...], places: tuple[int, ...], parent: int, costs: list[KernelCost]
) -> Node:  # fmt: skip
    return Node(
        name=name, kind=kind, ops=ops, places=places, parent=parent, flops=sum(c.flops for c in costs),
        functions=sum(c.functions for c in costs), bytes_read=sum(c.bytes_read for c in costs),
        bytes_written=sum(c.bytes_written for c in costs), launches=sum(c.launches for c in costs),
        is_exact=all(c.is_exact for c in costs),
    )  # fmt: skip


def _copy_node(anatomy: Anatomy, step: Step) -> Node:
    return _node(step.kernel.name, "kernel", ("copy",), (), NO_INDEX, [cost_of(anatomy, step)])


def _loops(kernel: Function | None) -> Mapping[str, int]:
    """Return the number of loops of a scheduled kernel by how they run."""
    counts: dict[str, int] = {}
    for i in walk(kernel.body) if kernel is not None else ():
        if isinstance(i.op, For):
            how = RUNS.get(str(i.params.get("map")), "serial")
            counts[how] = counts.get(how, 0) + 1
    return counts
