"""fuse: decide which instructions share a kernel and which values are stored.

Requires: an optimised func without gradient instructions, contractions canonical. Keeps: the meaning; every elementwise op,
reduction and check of the result is in a ``group`` instruction, one kernel each; only views of stored values and ops with
kernels of their own remain outside.

A group has a space (a shape) and, once a reduction over the trailing axes is used inside it, a number of ``rows`` axes: the
leading axes that the reduction keeps. Its members are elements (of the space's shape), rows (of the leading axes' shape), and
scalars. A kernel iterates over the rows; for each row it makes a pass over the row's elements, and a further pass each time
that elements depend on a reduction of the row. Reductions over other axes are complete only at the end of the kernel; only
other groups use them.

Constants, indices, reindexing, gathers and scalars that do not depend on stored values cost no memory traffic: they are copied
into every group that reads them. ``rematerialize`` decides which elements that one group computes and another reads are
stored, and which are recomputed by each group that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce

from pullback.codegen.fuse.boundaries import boundary
from pullback.codegen.fuse.clusters import Cluster, Order
from pullback.codegen.fuse.flatten_batches import flatten_batches
from pullback.codegen.fuse.grouping import Grouping
from pullback.codegen.fuse.interchange import interchange_loops
from pullback.codegen.fuse.matmul_fusion import read_masks
from pullback.codegen.fuse.read_offsets import Reads
from pullback.codegen.fuse.rematerialize import Graph, Rematerialization, Use, join_decisions
from pullback.codegen.fuse.rewrites.argreductions import argreductions_over_last_axis
from pullback.codegen.fuse.rewrites.contractions import canonical_contractions
from pullback.codegen.fuse.rewrites.decompose import decompose
from pullback.codegen.fuse.rewrites.element_updates import element_updates
from pullback.codegen.fuse.rewrites.indexed_views import indexed_views
from pullback.codegen.fuse.rewrites.interleave import interleave_short_axes
from pullback.codegen.fuse.rewrites.permutations import scatter_to_unsort, share_sorts
from pullback.codegen.fuse.rewrites.powers import powers_by_roots
from pullback.codegen.fuse.rewrites.push_up_slices import push_up_slices
from pullback.codegen.fuse.rewrites.scatter_to_select import scatter_to_select
from pullback.codegen.fuse.rewrites.segment_sums import segment_sums
from pullback.codegen.fuse.rewrites.stencils import stencil_updates_to_select
from pullback.codegen.fuse.rewrites.unroll_reductions import unroll_reductions
from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.control.regions import Check, group
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.complex.split import split


def _written_parameters(i: Instruction) -> Container[int]:
    """Return the positions of the parameters of an instruction's regions that an update may overwrite: the carried values of a
    loop; all parameters of a branch, of which some end with it."""
    if isinstance(i.op, Loop):
        return range(1, 1 + i.params["carried"])
    return range(len(i.regions[0].parameters)) if isinstance(i.op, Switch) else ()


@dataclass(frozen=True, eq=False)
class Fused:
    """A function of groups; ``kernels``: the kernels of its body, then those of its regions."""

    function: Function
    kernels: tuple[_Kernels, ...]

    @property
    def rematerialization(self) -> Rematerialization:
        """Return which values are stored and which are recomputed."""
        return join_decisions([k.rematerialization for k in self.kernels])

    def boundaries(self) -> dict[Instruction, dict[int | None, str]]:
        """Return, for each instruction of the function, the positions of the operands that another kernel computes, with the
        reason why the kernels are separate."""
        return {i: reasons for kernels in self.kernels for i in kernels.origin if (reasons := kernels.boundaries(i))}


def rewrites_before_contractions(target: str) -> tuple[Callable[[Function], Function], ...]:
    """Return the rewrites that precede the canonical form of contractions, in order."""
    split_complex = partial(split, products=target == "cpu")
    return (
        decompose,
        share_sorts,
        scatter_to_unsort,
        split_complex,
        interleave_short_axes,
        push_up_slices,
        indexed_views,
        scatter_to_select,
        segment_sums,
    )


REWRITES_AFTER_CONTRACTIONS: tuple[Callable[[Function], Function], ...] = (
    argreductions_over_last_axis,
    unroll_reductions,
    stencil_updates_to_select,
    powers_by_roots,
)
"""The rewrites that follow the canonical form of contractions, in order."""


def fuse(function: Function, target: str = "cpu") -> Function:
    """Group the instructions of a function into kernels, and separately those of its regions (loops, branches). ``target``:
    "cpu", "cuda" or "cuda-alone", which determines whether contractions fuse with their neighbours (``matmul_fusion``)."""
    return fuse_with_decisions(function, target).function


def fuse_with_decisions(function: Function, target: str = "cpu", written: Container[int] = ()) -> Fused:
    """Group as ``fuse`` does; return the decisions as well. ``written``: the positions of the parameters whose memory an update
    may overwrite."""
    if target == "cpu":
        function = element_updates(function, {p for k, p in enumerate(function.parameters) if k in written})
    canonical = canonical_contractions(reduce(lambda f, step: step(f), rewrites_before_contractions(target), function), target)
    prepared = flatten_batches(reduce(lambda f, step: step(f), REWRITES_AFTER_CONTRACTIONS, canonical), target)
    inside: list[_Kernels] = []

    def region(block: Block, i: Instruction) -> Block:
        inner = fuse_with_decisions(Function("region", block), target, _written_parameters(i))
        inside.extend(inner.kernels)
        return inner.function.body

    instructions = [
        replace(i, regions=tuple(region(block, i) for block in i.regions)) if i.regions else i for i in prepared.instructions
    ]
    grouped = replace(prepared, body=replace(prepared.body, instructions=tuple(instructions)))
    if target == "cpu":
        grouped = interchange_loops(grouped)
    kernels = _Kernels(Grouping(grouped, target, [p for k, p in enumerate(grouped.parameters) if k in written]).run())
    return Fused(kernels.run(), (kernels, *inside))


class _Kernels:
    """The groups of a function as instructions: what they store, recompute and read.

    ``origin``: the group of each emitted instruction, and its operands as values of the original function.
    """

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self.function = grouping.function
        self.clusters = grouping.clusters
        self.producer = grouping.producer
        self.rematerialization = Rematerialization()
        self.origin: dict[Instruction, tuple[Cluster, Sequence[Value]]] = {}

    def run(self) -> Function:
        self.choose_recomputed()
        return self.emit()

    def boundaries(self, instruction: Instruction) -> dict[int | None, str]:
        """Return, for the operands of an instruction that another kernel computes, the reason why the kernels are separate."""
        cluster, operands = self.origin[instruction]
        reasons = {k: boundary(self.grouping, cluster, v) for k, v in enumerate(operands)}
        return {k: why for k, why in reasons.items() if why is not None}

    # rematerialisation

    def choose_recomputed(self) -> None:
        """Choose the values that groups recompute instead of reading them."""
        stored = dict.fromkeys(self.function.parameters, "an argument")
        stored.update((self.grouping.base(v), "a result") for v in self.function.results)
        for i in self.function.instructions:
            reason = f"an operand of {i.op.name}" if isinstance(i.op, Contract) else "elements are picked"
            stored.update((self.grouping.base(v), reason) for v in self.grouping.in_memory(i))
        groups: list[list[Use]] = []
        for cluster in self.clusters:
            if cluster.opaque:
                (member,) = cluster.members
                stored.update((self.grouping.base(v), f"an operand of {member.op.name}") for v in member.operands)
                stored.update((v, member.op.name) for v in member.results)
                continue
            if cluster.product is not None and cluster.members == [cluster.product] and not cluster.copies:
                stored.update((v, cluster.product.op.name) for v in cluster.product.results)
            stored.update((v, "a copy") for v in cluster.copies)
            groups.append(list(self.uses(cluster)))
        products = {c.product.result: c.product.op.name for c in self.clusters if c.product is not None}
        read = (use.root for uses in groups for use in uses if not use.inside)
        stored.update((v, products[v]) for v in read if v in products)
        for root in {use.root for uses in groups for use in uses if self.grouping.base(use.root) is not use.root}:
            stored.update((v, "seen as another shape") for v in (root, self.grouping.base(root)) if v not in stored)
        members = (i for c in self.clusters if not c.opaque for i in c.members)
        makers = {i.result: i for i in members if self.is_recomputable(i)}
        reads = Reads(self.grouping.through)
        self.rematerialization = Graph(makers, self.sources, stored, self.grouping.position, reads).choose(groups)
        for cluster in self.clusters if self.rematerialization.recomputed else ():
            for value in [v for v in cluster.reads if v in self.rematerialization.recomputed]:
                cluster.reads.update(self.loads_for(cluster, value))

    def is_recomputable(self, i: Instruction) -> bool:
        """Return whether groups may recompute an instruction's result: it has elements, and no source is overwritten."""
        if not isinstance(i.op, Elementwise) or not i.result.type.shape:
            return False
        updates = self.grouping.updates
        return not updates or not self.grouping.is_repeated or all(self.grouping.base(v) not in updates for v in self.sources(i))

    def uses(self, cluster: Cluster) -> Iterator[Use]:
        """Yield what a group reads for its members and for its copies."""
        for i in cluster.members:
            for k, v in enumerate(i.operands):
                often = read_masks(i, self.grouping.target)[k] if i is cluster.product else 1
                for r in self.grouping.reads(v) if v not in self.grouping.in_memory(i) or i is not cluster.product else ():
                    yield Use(r.root, v, self.grouping.holder(r.root) is cluster, often)
        for v in cluster.copies:
            for r in self.grouping.reads(v, self.grouping.is_packer(cluster, v)):
                yield Use(r.root, v, self.grouping.holder(r.root) is cluster)

    def sources(self, instruction: Instruction) -> list[Value]:
        """Return the values from which an elementwise instruction is computed, through paths."""
        return list(dict.fromkeys(r.root for v in instruction.operands for r in self.grouping.reads(v)))

    def loads_for(self, cluster: Cluster, value: Value) -> list[Value]:
        """Return the values that a group loads to compute ``value``: itself, or the sources from which it is recomputed."""
        loads: dict[Value, None] = {}
        seen: set[Value] = set()
        stack = [r.root for r in self.grouping.reads(value, self.grouping.is_packer(cluster, value))]
        while stack:
            root = stack.pop()
            if root in seen:
                continue
            seen.add(root)
            if root in self.rematerialization.recomputed and self.grouping.holder(root) is not cluster:
                stack += self.sources(self.producer[root])
            else:
                loads[root] = None
        return list(loads)

    # the result

    def emit(self) -> Function:
        """Return the function of groups."""
        outputs = self.outputs()
        builder = Builder()
        stored: dict[Value, Value] = {v: v for v in self.function.parameters}
        for cluster in Order(self.clusters, self.grouping.base).run():
            if not cluster.members and not cluster.copies:
                continue
            if cluster.index not in outputs and not cluster.opaque and not any(isinstance(i.op, Check) for i in cluster.members):
                continue
            needed = outputs.get(cluster.index, [])
            members = cluster.members if cluster.opaque else self.closure(cluster, needed)
            if cluster.opaque or members == [cluster.product]:
                (instruction,) = members
                operands = tuple(self.stored(builder, v, stored) for v in instruction.operands)
                results = tuple(Value(v.type, v.name) for v in instruction.results)
                emitted = Instruction(instruction.op, operands, results, instruction.params, instruction.regions, instruction.loc)
                builder.append(emitted)
                self.origin[emitted] = cluster, instruction.operands
                stored.update(zip(instruction.results, results, strict=True))
                continue
            self.emit_group(builder, cluster, needed, stored)
        results_ = [self.stored(builder, v, stored) for v in self.function.results]
        return builder.function(self.function.name, self.function.parameters, results_, self.function.kind)

    def outputs(self) -> dict[int, list[Value]]:
        """Return the values of each group that are read outside it."""
        values_of: dict[int, dict[Value, None]] = {}

        def need(value: Value, reader: Cluster | None) -> None:
            root = self.grouping.base(value)
            origin = self.grouping.holder(root)
            if origin is not None and not origin.opaque and (origin is not reader or root is not value):
                values_of.setdefault(origin.index, {})[root] = None

        for cluster in self.clusters:
            for instruction in cluster.members:
                for value in instruction.operands:
                    is_whole = cluster.opaque or value in self.grouping.in_memory(instruction)
                    for root in [value] if is_whole else self.loads_for(cluster, value):
                        need(root, cluster)
            for value in cluster.copies:
                values_of.setdefault(cluster.index, {})[value] = None
                for root in self.loads_for(cluster, value):
                    need(root, cluster)
        picked = (v for i in self.function.instructions for v in self.grouping.in_memory(i))
        for value in (*picked, *self.function.results):
            need(value, None)
        return {n: list(values) for n, values in values_of.items()}

    def stored(self, builder: Builder, value: Value, stored: dict[Value, Value]) -> Value:
        """Return a value in memory; a view of stored values is emitted as a view."""
        if value in stored:
            return stored[value]
        view = self.producer[value]
        assert self.grouping.is_view(view), f"{view.op.name} is read before it is stored"
        operand = self.stored(builder, view.operands[0], stored)
        results = tuple(Value(v.type, v.name) for v in view.results)
        builder.append(Instruction(view.op, (operand,), results, view.params, (), view.loc))
        stored[value] = results[0]
        return results[0]

    def emit_group(self, builder: Builder, cluster: Cluster, outputs: list[Value], stored: dict[Value, Value]) -> None:
        """Emit the ``group`` instruction of a cluster."""
        members = self.closure(cluster, outputs)
        inside = {v for i in members for v in i.results}
        gathered = {v for i in members for v in self.grouping.in_memory(i)}
        operands = list(dict.fromkeys(v for i in members for v in i.operands if v not in inside or v in gathered))
        parameter_of = {v: Value(v.type, v.name) for v in operands}
        env = dict(parameter_of)
        parameters = tuple(parameter_of.values())
        copied = []
        for i in members:
            results = tuple(Value(v.type, v.name) for v in i.results)
            read = [parameter_of[v] if v in self.grouping.in_memory(i) else env[v] for v in i.operands]
            copied.append(Instruction(i.op, tuple(read), results, i.params, i.regions, i.loc))
            env.update(zip(i.results, results, strict=True))
        region = Block(parameters, tuple(copied), tuple(env[v] for v in outputs))
        external = tuple(self.stored(builder, v, stored) for v in operands)
        results = tuple(Value(v.type, v.name) for v in outputs)
        params = {"space": cluster.space, "rows": cluster.rows or 0}
        loc = (cluster.members or [self.producer[cluster.copies[0]]])[0].loc
        emitted = Instruction(group, external, results, params, (region,), loc)
        builder.append(emitted)
        self.origin[emitted] = cluster, operands
        stored.update(zip(outputs, results, strict=True))

    def closure(self, cluster: Cluster, outputs: Sequence[Value]) -> list[Instruction]:
        """Return the members of a group that are needed, with the paths they read, in program order."""
        needed = {i for i in cluster.members if isinstance(i.op, Check)}
        stack = [*outputs, *(v for i in needed for v in i.operands)]
        while stack:
            value = stack.pop()
            definition = self.producer.get(value)
            origin = self.grouping.copied.get(value) if value in self.grouping.packed else self.grouping.home.get(value)
            is_elsewhere = origin not in (None, cluster) and value not in self.rematerialization.recomputed
            if definition is None or definition in needed or is_elsewhere:
                continue
            if self.grouping.is_view(definition):
                continue
            needed.add(definition)
            stack.extend(v for v in definition.operands if v not in self.grouping.in_memory(definition))
        return sorted(needed, key=lambda i: self.grouping.position[i])
