"""fuse: decides which instructions share a kernel and which values are stored.

Requires: an optimised func without gradient instructions, contractions canonical. Keeps: the meaning; every elementwise op,
reduction and check of the result sits in a ``group`` instruction, one kernel each; what remains outside are views of stored
values and ops with kernels of their own.

A group has a space (a shape) and, once a reduction over the trailing axes is used inside it, a number of ``rows`` axes: the
leading axes that the reduction keeps. Its members are elements (of the space's shape), rows (of the leading axes' shape), and
scalars. A kernel runs over the rows; for each row it makes passes over the row's elements, one more each time that elements
need a reduction of the row. Reductions over other axes end with the kernel and are used by other groups only.

Constants, positions, reindexing, gathers and scalars that depend on nothing stored cost no memory traffic: they are copied
into every group that reads them. Of the elements that one group computes and another reads, ``saving`` says which are stored and
which are computed again by each group that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pullback.codegen.fuse.boundaries import boundary
from pullback.codegen.fuse.clusters import Cluster, Order
from pullback.codegen.fuse.flatten_batches import merged
from pullback.codegen.fuse.grouping import Grouping
from pullback.codegen.fuse.matmul_fusion import often_read
from pullback.codegen.fuse.read_offsets import Reads
from pullback.codegen.fuse.rematerialize import Graph, Saving, Use, joined
from pullback.codegen.fuse.rewrites.argreductions import positions
from pullback.codegen.fuse.rewrites.contractions import contractions
from pullback.codegen.fuse.rewrites.decompose import composed
from pullback.codegen.fuse.rewrites.interleave import beside
from pullback.codegen.fuse.rewrites.permutations import sorted_twice, unsorted
from pullback.codegen.fuse.rewrites.push_up_slices import divided
from pullback.codegen.fuse.rewrites.scatter_to_select import row_updates
from pullback.codegen.fuse.rewrites.segment_sums import scatters_from_zero
from pullback.codegen.fuse.rewrites.stencils import patched
from pullback.codegen.fuse.rewrites.unroll_reductions import pooled
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.control.regions import Check, group
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.complex.split import split


@dataclass(frozen=True, eq=False)
class Fused:
    """A function of groups; ``kernels``: those of its body, then of its regions."""

    function: Function
    kernels: tuple[_Kernels, ...]

    @property
    def saving(self) -> Saving:
        """What is stored and what is computed again."""
        return joined([k.saving for k in self.kernels])

    def boundaries(self) -> dict[Instruction, dict[int | None, str]]:
        """For each instruction of the function, the positions of the operands that another kernel computes, and why another."""
        return {i: found for kernels in self.kernels for i in kernels.made if (found := kernels.boundaries(i))}


def prepare(target: str) -> tuple[Callable[[Function], Function], ...]:
    """What is rewritten before instructions are grouped, in order; then contractions, as a target does them."""
    parted = partial(split, products=target == "cpu")
    return composed, sorted_twice, unsorted, parted, beside, divided, row_updates, scatters_from_zero


PLACED: tuple[Callable[[Function], Function], ...] = (positions, pooled, patched)
"""What is rewritten after contractions."""


def fuse(function: Function, target: str = "cpu") -> Function:
    """Group the instructions of a function into kernels, in regions of loops and branches too: each on its own. ``target``:
    "cpu", "cuda" or "cuda-alone" (``carrying``), which says whether contractions share kernels with their neighbours."""
    return fused(function, target).function


def fused(function: Function, target: str = "cpu") -> Fused:
    """As ``fuse``, with what was decided."""
    canonical = contractions(reduce(lambda f, step: step(f), prepare(target), function), target)
    prepared = merged(reduce(lambda f, step: step(f), PLACED, canonical), target)
    inside: list[_Kernels] = []

    def region(block: Block) -> Block:
        found = fused(Function("region", block), target)
        inside.extend(found.kernels)
        return found.function.body

    made = [replace(i, regions=tuple(map(region, i.regions))) if i.regions else i for i in prepared.instructions]
    kernels = _Kernels(Grouping(replace(prepared, body=replace(prepared.body, instructions=tuple(made))), target).run())
    return Fused(kernels.run(), (kernels, *inside))


class _Kernels:
    """The groups of a function as instructions: what they store, what they compute again, what they read.

    ``made``: the group of each instruction written, and its operands as the function knew them."""

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self.function = grouping.function
        self.clusters = grouping.clusters
        self.producer = grouping.producer
        self.saving = Saving()
        self.made: dict[Instruction, tuple[Cluster, Sequence[Value]]] = {}

    def run(self) -> Function:
        self.save()
        return self.emit()

    def boundaries(self, instruction: Instruction) -> dict[int | None, str]:
        cluster, operands = self.made[instruction]
        found = {k: boundary(self.grouping, cluster, v) for k, v in enumerate(operands)}
        return {k: why for k, why in found.items() if why is not None}

    # saving

    def save(self) -> None:
        """Choose what groups compute again instead of reading it."""
        stored = dict.fromkeys(self.function.parameters, "an argument")
        stored.update((self.grouping.base(v), "a result") for v in self.function.results)
        for i in self.function.instructions:
            why = f"an operand of {i.op.name}" if isinstance(i.op, Contract) else "elements are picked"
            stored.update((self.grouping.base(v), why) for v in self.grouping.in_memory(i))
        groups: list[list[Use]] = []
        for cluster in self.clusters:
            if cluster.opaque:
                (made,) = cluster.members
                stored.update((self.grouping.base(v), f"an operand of {made.op.name}") for v in made.operands)
                stored.update((v, made.op.name) for v in made.results)
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
        makers = {i.result: i for i in members if isinstance(i.op, Elementwise) and i.result.type.shape}
        places = Reads(self.grouping.through)
        self.saving = Graph(makers, self.made_from, stored, self.grouping.position, places).choose(groups)
        for cluster in self.clusters if self.saving.again else ():
            for value in [v for v in cluster.reads if v in self.saving.again]:
                cluster.reads.update(self.sources_of(cluster, value))

    def uses(self, cluster: Cluster) -> Iterator[Use]:
        """What a group reads for its members and for what it copies."""
        for i in cluster.members:
            for k, v in enumerate(i.operands):
                often = often_read(i, self.grouping.target)[k] if i is cluster.product else 1
                for r in self.grouping.reads(v) if v not in self.grouping.in_memory(i) or i is not cluster.product else ():
                    yield Use(r.root, v, self.grouping.holder(r.root) is cluster, often)
        for v in cluster.copies:
            for r in self.grouping.reads(v, self.grouping.packs(cluster, v)):
                yield Use(r.root, v, self.grouping.holder(r.root) is cluster)

    def made_from(self, instruction: Instruction) -> list[Value]:
        """The values that an elementwise instruction is computed from, through paths."""
        return list(dict.fromkeys(r.root for v in instruction.operands for r in self.grouping.reads(v)))

    def sources_of(self, cluster: Cluster, value: Value) -> list[Value]:
        """What a group loads to have a value: itself, or what it is computed again from."""
        found: dict[Value, None] = {}
        seen: set[Value] = set()
        stack = [r.root for r in self.grouping.reads(value, self.grouping.packs(cluster, value))]
        while stack:
            root = stack.pop()
            if root in seen:
                continue
            seen.add(root)
            if root in self.saving.again and self.grouping.holder(root) is not cluster:
                stack += self.made_from(self.producer[root])
            else:
                found[root] = None
        return list(found)

    # the result

    def emit(self) -> Function:
        outputs = self.outputs()
        builder = Builder()
        stored: dict[Value, Value] = {v: v for v in self.function.parameters}
        for cluster in Order(self.clusters, self.grouping.base).run():
            if not cluster.members and not cluster.copies:
                continue
            if cluster.number not in outputs and not cluster.opaque and not any(isinstance(i.op, Check) for i in cluster.members):
                continue
            needed = outputs.get(cluster.number, [])
            alone = cluster.members if cluster.opaque else self.closure(cluster, needed)
            if cluster.opaque or alone == [cluster.product]:
                (instruction,) = alone
                operands = tuple(self.stored(builder, v, stored) for v in instruction.operands)
                results = tuple(Value(v.type, v.name) for v in instruction.results)
                made = Instruction(instruction.op, operands, results, instruction.params, instruction.regions, instruction.loc)
                builder.append(made)
                self.made[made] = cluster, instruction.operands
                stored.update(zip(instruction.results, results, strict=True))
                continue
            self.emit_group(builder, cluster, needed, stored)
        results_ = [self.stored(builder, v, stored) for v in self.function.results]
        return builder.function(self.function.name, self.function.parameters, results_, self.function.kind)

    def outputs(self) -> dict[int, list[Value]]:
        """The values of each group that are read outside it."""
        found: dict[int, dict[Value, None]] = {}

        def need(value: Value, reader: Cluster | None) -> None:
            root = self.grouping.base(value)
            origin = self.grouping.holder(root)
            if origin is not None and not origin.opaque and (origin is not reader or root is not value):
                found.setdefault(origin.number, {})[root] = None

        for cluster in self.clusters:
            for instruction in cluster.members:
                for value in instruction.operands:
                    is_whole = cluster.opaque or value in self.grouping.in_memory(instruction)
                    for root in [value] if is_whole else self.sources_of(cluster, value):
                        need(root, cluster)
            for value in cluster.copies:
                found.setdefault(cluster.number, {})[value] = None
                for root in self.sources_of(cluster, value):
                    need(root, cluster)
        picked = (v for i in self.function.instructions for v in self.grouping.in_memory(i))
        for value in (*picked, *self.function.results):
            need(value, None)
        return {n: list(values) for n, values in found.items()}

    def stored(self, builder: Builder, value: Value, stored: dict[Value, Value]) -> Value:
        """A value in memory, as a view where it is one."""
        if value in stored:
            return stored[value]
        made = self.producer[value]
        assert self.grouping.is_view(made), f"{made.op.name} is read before it is stored"
        operand = self.stored(builder, made.operands[0], stored)
        results = tuple(Value(v.type, v.name) for v in made.results)
        builder.append(Instruction(made.op, (operand,), results, made.params, (), made.loc))
        stored[value] = results[0]
        return results[0]

    def emit_group(self, builder: Builder, cluster: Cluster, outputs: list[Value], stored: dict[Value, Value]) -> None:
        members = self.closure(cluster, outputs)
        inside = {v for i in members for v in i.results}
        gathered = {v for i in members for v in self.grouping.in_memory(i)}
        operands = list(dict.fromkeys(v for i in members for v in i.operands if v not in inside or v in gathered))
        given = {v: Value(v.type, v.name) for v in operands}
        env = dict(given)
        parameters = tuple(given.values())
        copied = []
        for i in members:
            results = tuple(Value(v.type, v.name) for v in i.results)
            read = [given[v] if v in self.grouping.in_memory(i) else env[v] for v in i.operands]
            copied.append(Instruction(i.op, tuple(read), results, i.params, i.regions, i.loc))
            env.update(zip(i.results, results, strict=True))
        region = Block(parameters, tuple(copied), tuple(env[v] for v in outputs))
        external = tuple(self.stored(builder, v, stored) for v in operands)
        results = tuple(Value(v.type, v.name) for v in outputs)
        params = {"space": cluster.space, "rows": cluster.rows or 0}
        loc = (cluster.members or [self.producer[cluster.copies[0]]])[0].loc
        made = Instruction(group, external, results, params, (region,), loc)
        builder.append(made)
        self.made[made] = cluster, operands
        stored.update(zip(outputs, results, strict=True))

    def closure(self, cluster: Cluster, outputs: Sequence[Value]) -> list[Instruction]:
        """The members of a group that are needed, with the paths they read, in program order."""
        wanted = {i for i in cluster.members if isinstance(i.op, Check)}
        stack = [*outputs, *(v for i in wanted for v in i.operands)]
        while stack:
            value = stack.pop()
            made = self.producer.get(value)
            origin = self.grouping.copied.get(value) if value in self.grouping.packed else self.grouping.home.get(value)
            is_elsewhere = origin not in (None, cluster) and value not in self.saving.again
            if made is None or made in wanted or is_elsewhere:
                continue
            if self.grouping.is_view(made):
                continue
            wanted.add(made)
            stack.extend(v for v in made.operands if v not in self.grouping.in_memory(made))
        return sorted(wanted, key=lambda i: self.grouping.position[i])
