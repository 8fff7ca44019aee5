"""grouping: choose which instructions share a kernel (``fuse`` defines a group).

Instructions are visited in program order. Each joins a group that it reads from, or one that reads the same values, if it has
a *phase* in it; otherwise it starts a group. Groups that it reads from are merged with its own if all their members have
phases in the merged group. What a gradient recomputes, as at a checkpoint, joins no group of other instructions: it would run
earlier, and its results would be stored until the gradient reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from pullback.codegen.fuse.clusters import ENDED, NEVER, Cluster, Read, updated_operands
from pullback.codegen.fuse.inlining import Paths, read_before_updates
from pullback.codegen.fuse.iteration_order import (
    is_by_rows,
    is_scanned,
    may_be_in_order,
    operand_shape,
    order,
    row_order_conflict,
)
from pullback.codegen.fuse.matmul_fusion import is_batch, may_fuse, neighbour_phase, product_phase, sums_left_operand
from pullback.codegen.fuse.rematerialize import weight
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.index import Gather, ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.activity import is_pure

MOST_WEIGHT = 1000
"""Largest weight of a group, in machine instructions (``rematerialize.weight``)."""
MOST_PASSES = 6
"""Most passes of a kernel over the elements of a row."""
MOST_SEARCHED = 64
"""Most groups that are searched for one whose update must follow a read."""
MOST_FLOATING = 64
"""Most scalar instructions, depending on parameters and constants alone, that are recomputed by each group that needs them."""


class Grouping(Paths):
    """Assigns instructions to groups. ``copied``: the group that stores a path; ``checked``: the last group with a check or a
    step in Python; ``updates``: the group that updates an array; ``reading``: the groups that read an array; ``fixed``: the
    parameters whose memory stays as it is (``written`` are the others); ``is_repeated``: whether there are others, as in the body
    of a loop, where a copy of an array costs more than kernels that are separate."""

    def __init__(self, function: Function, target: str, written: Collection[Value] = ()) -> None:
        super().__init__(function, target)
        self.fixed = frozenset(function.parameters).difference(written)
        self.is_repeated = bool(written)
        if self.is_repeated:
            self.packed |= read_before_updates(function.instructions, self.fixed)
        self.clusters: list[Cluster] = []
        self.copied: dict[Value, Cluster] = {}
        self.checked: Cluster | None = None
        self.updates: dict[Value, Cluster] = {}
        self.reading: dict[Value, dict[int, None]] = {}
        self.position = {i: k for k, i in enumerate(function.instructions)}

    def run(self) -> Grouping:
        """Assign every instruction to a group, and store the results."""
        for instruction in self.function.instructions:
            self.assign(instruction)
        for value in self.function.results:
            self.store(value)
        for cluster in self.clusters:
            cluster.members.sort(key=self.position.__getitem__)
        return self

    def assign(self, instruction: Instruction) -> None:
        op = instruction.op
        if not self.packed.isdisjoint(instruction.results):
            if isinstance(op, Gather):
                self.store(instruction.operands[0])
            self.store(instruction.result)
            return
        if isinstance(op, Elementwise) and not instruction.result.type.shape and all(map(self.is_floating, instruction.operands)):
            weight = 1 + sum(self.floating.get(v, 0) for v in instruction.operands)
            if weight <= MOST_FLOATING:
                self.floating[instruction.result] = weight
                return
        if self.is_path(instruction):
            if isinstance(op, Gather):
                self.store(instruction.operands[0])
            return
        if may_fuse(instruction, self.target, self.producer.get):
            self.begin_product(instruction)
            return
        is_whole = any(v.type.dtype.is_complex for v in instruction.operands)
        is_member = isinstance(op, Elementwise | Reduce | Check | Interleave) or is_scanned(instruction)
        if is_member and not is_whole:
            self.join(instruction)
            return
        if isinstance(op, ScatterSum) and not is_whole and self.join_summed(instruction):
            return
        if isinstance(op, Reindex):
            self.store(instruction.operands[0])
            origin = self.holder(self.base(instruction.operands[0]))
            if origin is not None:
                self.home[instruction.result] = origin
                origin.phase[instruction.result] = NEVER
            return
        for value in instruction.operands:
            self.store(value)
        self.add_opaque(instruction)

    # joining groups

    def begin_product(self, instruction: Instruction) -> None:
        """Start a group with a contraction, which its readers may join."""
        inlined = [v for v in instruction.operands if self.is_inlined_operand(v)]
        if is_batch(instruction, self.target):
            inlined = [v for v in inlined if self.is_cheap_to_recompute(v, instruction)]
        in_memory = [v for v in instruction.operands if v not in inlined]
        self.memory_operands[instruction] = [v for v in in_memory if v not in self.widened]
        for value in in_memory:
            self.store(self.producer[value].operands[0] if value in self.widened else value)
        self.add(self.new_cluster(instruction.result.type.shape), instruction, self.reads_of(instruction), 0)

    def join_summed(self, instruction: Instruction) -> bool:
        """Add a sum by rows to a group that computes or reads its operand, if there is one that can visit the elements in the
        order of the rows. Return whether there is."""
        *indices, values = instruction.operands
        for index in indices:
            self.store(index)
        reads = [Read(self.base(v), "other", v.type.rank) for v in indices] + self.reads(values) + self.extent_reads(instruction)
        for cluster in self.candidates(instruction, reads, values.type.shape, scalar=False):
            phase = self.phase_in(cluster, instruction, reads)
            if isinstance(phase, int) and self.is_acyclic(cluster, reads):
                self.add(cluster, instruction, reads, phase)
                return True
        return False

    def join(self, instruction: Instruction) -> None:
        op = instruction.op
        space = instruction.operands[0].type.shape
        reads = self.reads_of(instruction)
        before = self.checked if isinstance(op, Check) else None
        along = [c for c in self.clusters if self.adds_up(c, instruction)] if isinstance(op, Reduce) else []
        is_scalar = isinstance(op, Elementwise | Interleave) and not space
        for cluster in [*along, *self.candidates(instruction, reads, space, is_scalar)]:
            phase = self.phase_in(cluster, instruction, reads)
            if isinstance(phase, int) and self.is_acyclic(cluster, reads, before):
                self.add(cluster, instruction, reads, phase)
                self.keep_checks_in_order(cluster, instruction)
                self.merge_neighbours(cluster, reads, instruction.loc.part)
                return
        cluster = self.new_cluster(space)
        phase = self.phase_in(cluster, instruction, reads)
        assert isinstance(phase, int)
        self.add(cluster, instruction, reads, phase)
        self.keep_checks_in_order(cluster, instruction)

    def adds_up(self, cluster: Cluster, instruction: Instruction) -> bool:
        """Return whether an instruction sums an operand of a group's contraction."""
        product = cluster.product
        return product is not None and is_batch(product, self.target) and sums_left_operand(instruction, product)

    def keep_checks_in_order(self, cluster: Cluster, instruction: Instruction) -> None:
        """Keep checks and steps in Python in program order, so that the first failure is the one reported."""
        if is_pure(instruction):
            return
        if self.checked is not None and self.checked is not cluster:
            cluster.needs.add(self.checked.index)
        self.checked = cluster

    def new_cluster(self, space: Shape) -> Cluster:
        self.clusters.append(Cluster(len(self.clusters), space))
        return self.clusters[-1]

    def candidates(self, instruction: Instruction, reads: Sequence[Read], space: Shape, scalar: bool) -> list[Cluster]:
        """Return the groups that might take an instruction: first those it reads from, of these first the ones with
        contractions, then the latest; then those that read the same values; for scalars also the group of the last check, which
        computes many of the scalars that the instruction reads."""
        direct = {self.home[r.root].index for r in reads if r.root in self.home and r.way != "other"}
        direct_clusters = [self.clusters[n] for n in direct if not self.clusters[n].opaque]
        indices = [c.index for c in sorted(direct_clusters, key=lambda c: (c.product is None, -c.index))]
        part = instruction.loc.part
        if part:
            indices = [n for n in indices if self.clusters[n].part == part]
        if not scalar:
            roots = {r.root for r in reads}
            sources = [roots, *(c.reads for c in {self.home[v] for v in roots if v in self.home})]
            for cluster in reversed(self.clusters[-24:]):
                is_candidate = not cluster.opaque and cluster.space == space and cluster.index not in direct
                is_candidate &= part in (0, cluster.part)
                if is_candidate and cluster.product is None and (not roots or not all(map(cluster.reads.isdisjoint, sources))):
                    indices.append(cluster.index)
        checked = self.checked
        if checked is not None and not checked.opaque and space == checked.space == () and checked.index not in indices:
            indices += [checked.index] * (part in (0, checked.part))
        return [self.clusters[n] for n in indices if self.clusters[n].weight < MOST_WEIGHT]

    def phase_in(self, cluster: Cluster, instruction: Instruction, reads: Sequence[Read]) -> int | str:
        """Return the phase that an instruction would have in a group; if it cannot be a member, the reason."""
        op, space = instruction.op, cluster.space
        if isinstance(op, Contract):
            return product_phase(cluster, instruction, any(self.holder(r.root) is cluster for r in reads), self.target)
        if self.adds_up(cluster, instruction):
            return ENDED
        shape = operand_shape(instruction)
        row_shape = None if cluster.rows is None else space[: cluster.rows]
        if shape == space and (space or isinstance(op, Elementwise | Check | Interleave)):
            level = "element"
        elif row_shape is not None and shape == row_shape:
            level = "row"
        elif not shape:
            level = "scalar"
        else:
            return f"{op.name} is not of the kernel's shape"
        phase = 0
        for read in reads:
            if self.holder(read.root) is not cluster:
                continue
            operand_phase = self.read_phase(cluster, read, level)
            if isinstance(operand_phase, str):
                return f"{op.name} {operand_phase}"
            phase = max(phase, operand_phase)
        if cluster.product is not None:
            return neighbour_phase(instruction, level, phase, cluster, self.target)
        if isinstance(op, ScatterSum) or cluster.scan is not None or is_scanned(instruction):
            return self.phase_in_order(cluster, instruction, reads, level, phase)
        if isinstance(op, Check):
            return ENDED if level != "row" else "checks of rows have a kernel of their own"
        if isinstance(op, Interleave):
            return ENDED
        if isinstance(op, Reduce) and level == "element":
            return self.reduced_phase(cluster, instruction, phase)
        if isinstance(op, Reduce) and level == "row":
            return f"{op.name} is of rows" if instruction.result.type.shape or op.gives_position else ENDED
        if level == "scalar" and space:
            return ENDED if phase else f"{op.name} reads nothing that the kernel reduces"
        return phase

    def phase_in_order(
        self, cluster: Cluster, instruction: Instruction, reads: Sequence[Read], level: str, phase: int
    ) -> int | str:
        """Return the phase in a group whose elements are visited in a fixed order, or the reason why there is none. Reductions
        in it are over all elements."""
        op = instruction.op
        if isinstance(op, ScatterSum) or is_by_rows(cluster):
            why = row_order_conflict(cluster, instruction, reads, self.stored_or_multiplied)
            if why is not None:
                return why
        elif is_scanned(instruction):
            fits = cluster.scan in (None, order(instruction)) and cluster.rows is None and not phase
            fits &= all(may_be_in_order(cluster, i) for i in cluster.members)
            return 1 if fits else f"{op.name} visits the elements in an order of its own"
        elif not may_be_in_order(cluster, instruction):
            return f"{op.name} is of elements in an order that is not the scan's"
        if isinstance(op, Reduce | Check | ScatterSum):
            return ENDED
        return phase if level == "element" else ENDED if phase else f"{op.name} reads nothing that the kernel reduces"

    def read_phase(self, cluster: Cluster, read: Read, level: str) -> int | str:
        """Return the phase in which a member of the group is known to a reader at ``level``; if it never is, the reason: what
        the reader does."""
        phase = cluster.phase[read.root]
        if phase == NEVER:
            return "reads it as another shape"
        if phase == ENDED:
            is_after = level == "scalar" and not read.root.type.shape and bool(cluster.space)
            return ENDED if is_after else "needs all of a reduction that ends with its kernel"
        if not cluster.space or not read.root.type.shape:
            return phase
        is_row = read.root.type.shape != cluster.space
        if level == "element" and read.way == ("row" if is_row else "same"):
            return phase
        return phase if level == "row" and is_row and read.way == "same" else "reads it at other places than its own"

    def reduced_phase(self, cluster: Cluster, instruction: Instruction, phase: int) -> int | str:
        """Return the phase of a reduction: one more than its operand's if it is over the trailing axes, else ``ENDED``. If
        there would be too many passes, return the reason."""
        axes, rank = tuple(instruction.params["axes"]), len(cluster.space)
        kept = rank - len(axes)
        if not kept or axes != tuple(range(kept, rank)) or cluster.rows not in (None, kept):
            return ENDED
        return phase + 1 if phase < MOST_PASSES else f"{instruction.op.name} would be in pass {phase + 1} over the rows"

    def is_acyclic(self, cluster: Cluster, reads: Sequence[Read], before: Cluster | None = None) -> bool:
        """Return whether an instruction can join a group: neither the other groups that it reads from nor the one that must
        precede it depend on the group."""
        origins = [before, *(self.holder(r.root) for r in reads)]
        starts = [o.index for o in origins if o is not None and o is not cluster]
        return not self.reads_before(starts, cluster) and not self.depends_on(starts, cluster)

    def depends_on(self, starts: Sequence[int], cluster: Cluster, updates: bool = False) -> bool:
        """Return whether any of the groups ``starts`` is this one or needs it; with ``updates``, or updates what it reads."""
        stack = list(starts)
        seen: set[int] = set()
        while stack:
            index = stack.pop()
            if index == cluster.index:
                return True
            if index not in seen:
                seen.add(index)
                stack.extend(self.clusters[index].needs)
                stack.extend(self.clusters[index].readers if updates else ())
        return False

    def reads_before(self, starts: Sequence[int], cluster: Cluster) -> bool:
        """Return whether a group reads what one of the groups ``starts``, or one of those shortly before them, updates."""
        queue = deque(starts)
        seen = set(starts)
        while queue and len(seen) < MOST_SEARCHED:
            current = self.clusters[queue.popleft()]
            if cluster.index in current.readers:
                return True
            new = (current.needs | current.readers) - seen
            seen |= new
            queue.extend(new)
        return False

    def add(self, cluster: Cluster, instruction: Instruction, reads: Sequence[Read], phase: int) -> None:
        if not cluster.members:
            cluster.part = instruction.loc.part
        cluster.members.append(instruction)
        cluster.has_only_scalars &= isinstance(instruction.op, Elementwise) and not instruction.result.type.shape and not phase
        cluster.weight += weight(instruction)
        for value in instruction.results:
            cluster.phase[value] = phase
            self.home[value] = cluster
        cluster.scan = cluster.scan or order(instruction)
        if isinstance(instruction.op, Contract) and not cluster.opaque:
            cluster.product = instruction
        if isinstance(instruction.op, Reduce) and phase != ENDED:
            cluster.rows = len(cluster.space) - len(instruction.params["axes"])
        self.link(cluster, reads)

    def link(self, cluster: Cluster, reads: Sequence[Read]) -> None:
        for read in reads:
            origin = self.holder(read.root)
            if origin is not cluster:
                cluster.reads.add(read.root)
                if origin is not None:
                    cluster.needs.add(origin.index)
                self.read_early(cluster, self.base(read.root))

    def read_early(self, cluster: Cluster, base: Value) -> None:
        """Record that a group reads an array, so that it precedes the array's update if it does not depend on it; the update
        then needs no copy."""
        self.reading.setdefault(base, {})[cluster.index] = None
        update = self.updates.get(base)
        if update is not None and update.index not in (cluster.index, *cluster.needs):
            update.readers.add(cluster.index)

    def merge_neighbours(self, cluster: Cluster, reads: Sequence[Read], part: int) -> None:
        """Merge the other groups that an instruction just added reads from into its group, where they can be one kernel.
        ``part``: the part of a gradient that recomputes the instruction, or 0."""
        others = {self.home[r.root].index for r in reads if r.root in self.home and r.way != "other"}
        for index in sorted(others - {cluster.index}):
            other = self.clusters[index]
            if other.opaque or not other.members or not self.are_alike(cluster, other) or part not in (0, other.part):
                continue
            if other.weight + cluster.weight <= MOST_WEIGHT and not self.has_group_between(cluster, other):
                self.merge(cluster, other)

    @staticmethod
    def are_alike(a: Cluster, b: Cluster) -> bool:
        """Return whether two groups have the same space, or one computes rows of the other."""
        return a.space == b.space or any(
            wide.rows is not None
            and wide.space[: wide.rows] == narrow.space
            and not narrow.copies
            and narrow.rows is None
            and narrow.scan is None
            for wide, narrow in ((a, b), (b, a))
        )

    def has_group_between(self, a: Cluster, b: Cluster) -> bool:
        """Return whether a third group must run between two groups."""
        orders = (([n for n in first.needs if n != last.index], last) for first, last in ((a, b), (b, a)))
        return any(self.depends_on(starts, last, updates=self.is_repeated and bool(self.updates)) for starts, last in orders)

    def merge(self, cluster: Cluster, other: Cluster) -> None:
        """Merge two groups, if every member has a phase in the result."""
        if self.has_only_scalars(cluster) and self.has_only_scalars(other):
            self.merge_scalars(cluster, other)
            return
        homes = {v: c for c in (cluster, other) for v in c.phase if v in self.home}
        copied = {v: c for c in (cluster, other) for v in c.copies}
        wide = max(cluster, other, key=lambda c: len(c.space))
        joined = Cluster(cluster.index, wide.space, wide.rows)
        joined.phase.update((v, NEVER) for c in (cluster, other) for v, phase in c.phase.items() if phase == NEVER)
        self.home.update(dict.fromkeys(homes, joined))
        self.copied.update(dict.fromkeys(copied, joined))
        work = sorted([*cluster.members, *other.members], key=lambda i: self.position[i])
        if not self.fill(joined, work, list(copied)):
            self.home.update(homes)
            self.copied.update(copied)
            return
        cluster.members, cluster.copies, cluster.phase = joined.members, joined.copies, joined.phase
        cluster.rows, cluster.reads, cluster.weight, cluster.space = joined.rows, joined.reads, joined.weight, joined.space
        cluster.scan, cluster.product = joined.scan, joined.product
        cluster.has_only_scalars = joined.has_only_scalars
        cluster.needs = (cluster.needs | other.needs) - {cluster.index, other.index}
        self.home.update(dict.fromkeys(homes, cluster))
        self.copied.update(dict.fromkeys(copied, cluster))
        other.members, other.copies, other.phase, other.needs = [], [], {}, {cluster.index}
        other.product = None
        if self.checked is other:
            self.checked = cluster

    @staticmethod
    def has_only_scalars(cluster: Cluster) -> bool:
        """Return whether all members of a group compute scalars from scalars, in one phase."""
        is_plain = not cluster.space and cluster.rows is None and cluster.scan is None and cluster.product is None
        return is_plain and cluster.has_only_scalars and not cluster.copies

    def merge_scalars(self, cluster: Cluster, other: Cluster) -> None:
        """Merge two groups of scalars. The members are put in program order at the end."""
        self.home.update(dict.fromkeys(other.phase, cluster))
        cluster.members += other.members
        cluster.phase.update(other.phase)
        cluster.reads -= other.phase.keys()
        for value in other.reads:
            if self.holder(value) is not cluster:
                cluster.reads.add(value)
                self.read_early(cluster, self.base(value))
        cluster.weight += other.weight
        cluster.needs = (cluster.needs | other.needs) - {cluster.index, other.index}
        other.members, other.phase, other.needs = [], {}, {cluster.index}

    def fill(self, cluster: Cluster, members: Sequence[Instruction], copies: Sequence[Value]) -> bool:
        """Add members, in program order, and copies to an empty group; return False if one has no phase in it."""
        for instruction in members:
            reads = self.reads_of(instruction)
            is_placed = all(self.holder(r.root) is not cluster or r.root in cluster.phase for r in reads)
            phase = self.phase_in(cluster, instruction, reads) if is_placed else "not yet"
            if isinstance(phase, str):
                return False
            self.add(cluster, instruction, reads, phase)
        for value in copies:
            reads = self.reads_of_copy(value)
            phases = [self.read_phase(cluster, r, "element") for r in reads if self.holder(r.root) is cluster]
            if any(isinstance(p, str) for p in phases):
                return False
            self.add_copy(cluster, value, reads, max((p for p in phases if isinstance(p, int)), default=0))
        return True

    def add_opaque(self, instruction: Instruction) -> None:
        cluster = self.new_cluster(())
        cluster.opaque = True
        operands = [Read(self.base(v), "other", v.type.rank) for v in instruction.operands]
        self.add(cluster, instruction, operands + self.extent_reads(instruction), 0)
        for base in map(self.base, updated_operands(cluster)):
            if base not in self.fixed and base not in self.updates:
                self.updates[base] = cluster
                cluster.readers.update(n for n in self.reading.get(base, ()) if n != cluster.index)
        self.keep_checks_in_order(cluster, instruction)

    # storing

    def store(self, value: Value) -> None:
        """Ensure that a value is in memory: a path that is not a view of a stored value is added to a group that copies it."""
        value = self.base(value)
        if value in self.home or value in self.copied or value not in self.producer:
            return
        space = value.type.shape
        reads = self.reads_of_copy(value)
        for cluster in self.candidates(self.producer[value], reads, space, scalar=False):
            inside = [r for r in reads if self.holder(r.root) is cluster]
            phases = [self.read_phase(cluster, r, "element") for r in inside]
            member_phases = [p for p in phases if isinstance(p, int)]
            fits = cluster.space == space and member_phases == phases and (bool(space) or cluster is self.checked)
            if fits and self.is_acyclic(cluster, reads):
                self.add_copy(cluster, value, reads, max(member_phases, default=0))
                return
        self.add_copy(self.new_cluster(space), value, reads, 0)

    def reads_of_copy(self, value: Value) -> list[Read]:
        """Return the reads of a group that stores a path."""
        extents = [Read(self.extents[name], "other", 0) for name in (self.extents_on_path(value) if self.extents else ())]
        return [*self.reads(value, packs=value in self.packed), *extents]

    def add_copy(self, cluster: Cluster, value: Value, reads: Sequence[Read], phase: int) -> None:
        cluster.copies.append(value)
        cluster.phase[value] = phase
        self.copied[value] = cluster
        self.link(cluster, reads)

    def is_packer(self, cluster: Cluster, value: Value) -> bool:
        """Return whether a group is the one that stores a packed value."""
        return value in self.packed and self.copied.get(value) is cluster

    def holder(self, value: Value) -> Cluster | None:
        """Return the group that computes, or stores, a value."""
        return self.home.get(value) or self.copied.get(value)
