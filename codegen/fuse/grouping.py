"""grouping: which instructions share a kernel (``fuse`` says what a group is).

Instructions are met in program order. Each joins a group that it reads from, or one that reads what it reads, where it has a
*phase* in it; else it begins one. Groups that it reads from are joined with its own where all their members have phases in one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pullback.codegen.fuse.clusters import ENDED, NEVER, Cluster, Read, updated
from pullback.codegen.fuse.inlining import Paths
from pullback.codegen.fuse.iteration_order import is_by_rows, is_scanned, may_be_in_order, not_by_rows, order, taken
from pullback.codegen.fuse.matmul_fusion import beside_phase, carries, is_along, is_batch, product_phase
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
MOST_PASSES = 6
MOST_NEAR = 64
MOST_FLOATING = 64
"""So many scalar instructions, of parameters and constants alone, are computed again by each group that needs them."""


class Grouping(Paths):
    def __init__(self, function: Function, target: str) -> None:
        super().__init__(function, target)
        self.clusters: list[Cluster] = []
        self.copied: dict[Value, Cluster] = {}
        self.checked: Cluster | None = None
        self.updates: dict[Value, Cluster] = {}
        self.reading: dict[Value, dict[int, None]] = {}
        self.position = {i: k for k, i in enumerate(function.instructions)}

    def run(self) -> Grouping:
        """Place every instruction, and store the results."""
        for instruction in self.function.instructions:
            self.place(instruction)
        for value in self.function.results:
            self.store(value)
        return self

    def place(self, instruction: Instruction) -> None:
        op = instruction.op
        if not self.packed.isdisjoint(instruction.results):
            if isinstance(op, Gather):
                self.store(instruction.operands[0])
            self.store(instruction.result)
            return
        if isinstance(op, Elementwise) and not instruction.result.type.shape and all(map(self.is_loose, instruction.operands)):
            weight = 1 + sum(self.floating.get(v, 0) for v in instruction.operands)
            if weight <= MOST_FLOATING:
                self.floating[instruction.result] = weight
                return
        if self.is_path(instruction):
            if isinstance(op, Gather):
                self.store(instruction.operands[0])
            return
        if carries(instruction, self.target, self.producer.get):
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
        self.opaque(instruction)

    # joining groups

    def begin_product(self, instruction: Instruction) -> None:
        """Begin a group with a contraction, which its readers may join."""
        near = [v for v in instruction.operands if self.is_near(v)]
        if is_batch(instruction, self.target):
            near = [v for v in near if self.is_cheap_again(v, instruction)]
        far = [v for v in instruction.operands if v not in near]
        self.far[instruction] = [v for v in far if v not in self.widened]
        for value in far:
            self.store(self.producer[value].operands[0] if value in self.widened else value)
        self.add(self.new_cluster(instruction.result.type.shape), instruction, self.reads_of(instruction), 0)

    def join_summed(self, instruction: Instruction) -> bool:
        """Have a group that computes or reads what is summed by rows visit the elements in the order of the rows, if one can."""
        *indices, values = instruction.operands
        for index in indices:
            self.store(index)
        reads = [Read(self.base(v), "other", v.type.rank) for v in indices] + self.reads(values)
        for cluster in self.candidates(reads, values.type.shape, scalar=False):
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
        along = [c for c in self.clusters if self.adds_up(c, instruction)]
        for cluster in [*along, *self.candidates(reads, space, scalar=isinstance(op, Elementwise | Interleave) and not space)]:
            phase = self.phase_in(cluster, instruction, reads)
            if isinstance(phase, int) and self.is_acyclic(cluster, reads, before):
                self.add(cluster, instruction, reads, phase)
                self.follow(cluster, instruction)
                self.merge_neighbours(cluster, reads)
                return
        cluster = self.new_cluster(space)
        phase = self.phase_in(cluster, instruction, reads)
        assert isinstance(phase, int)
        self.add(cluster, instruction, reads, phase)
        self.follow(cluster, instruction)

    def adds_up(self, cluster: Cluster, instruction: Instruction) -> bool:
        """Whether an instruction adds up an operand of a group's contraction."""
        product = cluster.product
        return product is not None and is_batch(product, self.target) and is_along(instruction, product)

    def follow(self, cluster: Cluster, instruction: Instruction) -> None:
        """Have checks and steps in Python run in program order, so that the first failure is the one reported."""
        if is_pure(instruction):
            return
        if self.checked is not None and self.checked is not cluster:
            cluster.needs.add(self.checked.number)
        self.checked = cluster

    def new_cluster(self, space: Shape) -> Cluster:
        self.clusters.append(Cluster(len(self.clusters), space))
        return self.clusters[-1]

    def candidates(self, reads: Sequence[Read], space: Shape, scalar: bool) -> list[Cluster]:
        """Groups that might take an instruction: those it reads from, those with contractions first, then the latest; then those
        that read what it reads."""
        direct = {self.home[r.root].number for r in reads if r.root in self.home and r.way != "other"}
        known = [self.clusters[n] for n in direct if not self.clusters[n].opaque]
        found = [c.number for c in sorted(known, key=lambda c: (c.product is None, -c.number))]
        if not scalar:
            wanted = {r.root for r in reads}
            sources = [wanted, *(c.reads for c in {self.home[v] for v in wanted if v in self.home})]
            for cluster in reversed(self.clusters[-24:]):
                beside = not cluster.opaque and cluster.space == space and cluster.number not in direct
                if beside and cluster.product is None and (not wanted or not all(map(cluster.reads.isdisjoint, sources))):
                    found.append(cluster.number)
        return [self.clusters[n] for n in found if self.clusters[n].weight < MOST_WEIGHT]

    def phase_in(self, cluster: Cluster, instruction: Instruction, reads: Sequence[Read]) -> int | str:
        """The phase an instruction would have in a group; if it cannot be a member, why."""
        op, space = instruction.op, cluster.space
        if isinstance(op, Contract):
            return product_phase(cluster, instruction, any(self.holder(r.root) is cluster for r in reads), self.target)
        if self.adds_up(cluster, instruction):
            return ENDED
        shape = taken(instruction)
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
            known = self.read_phase(cluster, read, level)
            if isinstance(known, str):
                return f"{op.name} {known}"
            phase = max(phase, known)
        if cluster.product is not None:
            return beside_phase(instruction, level, phase, cluster, self.target)
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
        """The phase in a group whose elements are visited in order: reductions are over all of them."""
        op = instruction.op
        if isinstance(op, ScatterSum) or is_by_rows(cluster):
            why = not_by_rows(cluster, instruction, reads, self.whole)
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
        """When a member of the group is known to a reader at a level; if it never is, why: what the reader does."""
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
        """The phase of a reduction: one more than its operand's if it is over the trailing axes, else the end."""
        axes, rank = tuple(instruction.params["axes"]), len(cluster.space)
        kept = rank - len(axes)
        if not kept or axes != tuple(range(kept, rank)) or cluster.rows not in (None, kept):
            return ENDED
        return phase + 1 if phase < MOST_PASSES else f"{instruction.op.name} would be in pass {phase + 1} over the rows"

    def is_acyclic(self, cluster: Cluster, reads: Sequence[Read], before: Cluster | None = None) -> bool:
        """Whether nothing that an instruction reads elsewhere, and no group that must run before it, depends on the group."""
        origins = [before, *(self.holder(r.root) for r in reads)]
        starts = [o.number for o in origins if o is not None and o is not cluster]
        return not self.reads_before(starts, cluster) and not self.leads(starts, cluster)

    def leads(self, starts: Sequence[int], cluster: Cluster) -> bool:
        """Whether any of some groups is this one or needs it."""
        stack = list(starts)
        seen: set[int] = set()
        while stack:
            number = stack.pop()
            if number == cluster.number:
                return True
            if number not in seen:
                seen.add(number)
                stack.extend(self.clusters[number].needs)
        return False

    def reads_before(self, starts: Sequence[int], cluster: Cluster) -> bool:
        """Whether a group reads what one of some groups, or one of those just before them, updates."""
        queue = deque(starts)
        seen = set(starts)
        while queue and len(seen) < MOST_NEAR:
            found = self.clusters[queue.popleft()]
            if cluster.number in found.readers:
                return True
            new = (found.needs | found.readers) - seen
            seen |= new
            queue.extend(new)
        return False

    def add(self, cluster: Cluster, instruction: Instruction, reads: Sequence[Read], phase: int) -> None:
        cluster.members.append(instruction)
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
                    cluster.needs.add(origin.number)
                self.read_early(cluster, self.base(read.root))

    def read_early(self, cluster: Cluster, base: Value) -> None:
        """Keep what reads an array apart from what needs its update: it comes first, and the update needs no copy."""
        self.reading.setdefault(base, {})[cluster.number] = None
        update = self.updates.get(base)
        if update is not None and update.number not in (cluster.number, *cluster.needs):
            update.readers.add(cluster.number)

    def merge_neighbours(self, cluster: Cluster, reads: Sequence[Read]) -> None:
        """Take in the other groups that an instruction just added reads from, where they can be one kernel."""
        others = {self.home[r.root].number for r in reads if r.root in self.home and r.way != "other"}
        for number in sorted(others - {cluster.number}):
            other = self.clusters[number]
            if other.opaque or not other.members or not self.are_alike(cluster, other):
                continue
            if other.weight + cluster.weight <= MOST_WEIGHT and not self.is_apart(cluster, other):
                self.merge(cluster, other)

    @staticmethod
    def are_alike(a: Cluster, b: Cluster) -> bool:
        """Whether two groups have one space, or one computes rows of the other."""
        return a.space == b.space or any(
            wide.rows is not None
            and wide.space[: wide.rows] == narrow.space
            and not narrow.copies
            and narrow.rows is None
            and narrow.scan is None
            for wide, narrow in ((a, b), (b, a))
        )

    def is_apart(self, a: Cluster, b: Cluster) -> bool:
        """Whether a third group must run between two groups."""
        return any(self.leads([n for n in first.needs if n != last.number], last) for first, last in ((a, b), (b, a)))

    def merge(self, cluster: Cluster, other: Cluster) -> None:
        """Make two groups one, if every member finds a phase in it."""
        homes = {v: c for c in (cluster, other) for v in c.phase if v in self.home}
        copied = {v: c for c in (cluster, other) for v in c.copies}
        wide = max(cluster, other, key=lambda c: len(c.space))
        joined = Cluster(cluster.number, wide.space, wide.rows)
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
        cluster.needs = (cluster.needs | other.needs) - {cluster.number, other.number}
        self.home.update(dict.fromkeys(homes, cluster))
        self.copied.update(dict.fromkeys(copied, cluster))
        other.members, other.copies, other.phase, other.needs = [], [], {}, {cluster.number}
        other.product = None
        if self.checked is other:
            self.checked = cluster

    def fill(self, cluster: Cluster, members: Sequence[Instruction], copies: Sequence[Value]) -> bool:
        """Add members, in program order, and copies to an empty group; false where one has no phase in it."""
        for instruction in members:
            reads = self.reads_of(instruction)
            is_placed = all(self.holder(r.root) is not cluster or r.root in cluster.phase for r in reads)
            phase = self.phase_in(cluster, instruction, reads) if is_placed else "not yet"
            if isinstance(phase, str):
                return False
            self.add(cluster, instruction, reads, phase)
        for value in copies:
            reads = self.reads(value, packs=value in self.packed)
            phases = [self.read_phase(cluster, r, "element") for r in reads if self.holder(r.root) is cluster]
            if any(isinstance(p, str) for p in phases):
                return False
            self.add_copy(cluster, value, reads, max((p for p in phases if isinstance(p, int)), default=0))
        return True

    def opaque(self, instruction: Instruction) -> None:
        cluster = self.new_cluster(())
        cluster.opaque = True
        self.add(cluster, instruction, [Read(self.base(v), "other", v.type.rank) for v in instruction.operands], 0)
        target = updated(cluster)
        base = None if target is None else self.base(target)
        if base is not None and base not in self.function.parameters and base not in self.updates:
            self.updates[base] = cluster
            cluster.readers.update(n for n in self.reading.get(base, ()) if n != cluster.number)
        self.follow(cluster, instruction)

    # storing

    def store(self, value: Value) -> None:
        """Have a value in memory: paths that are not views of stored values get a group that copies them."""
        value = self.base(value)
        if value in self.home or value in self.copied or value not in self.producer:
            return
        space = value.type.shape
        reads = self.reads(value, packs=value in self.packed)
        for cluster in self.candidates(reads, space, scalar=False):
            inside = [r for r in reads if self.holder(r.root) is cluster]
            phases = [self.read_phase(cluster, r, "element") for r in inside]
            known = [p for p in phases if isinstance(p, int)]
            if cluster.space == space and known == phases and space and self.is_acyclic(cluster, reads):
                self.add_copy(cluster, value, reads, max(known, default=0))
                return
        self.add_copy(self.new_cluster(space), value, reads, 0)

    def add_copy(self, cluster: Cluster, value: Value, reads: Sequence[Read], phase: int) -> None:
        cluster.copies.append(value)
        cluster.phase[value] = phase
        self.copied[value] = cluster
        self.link(cluster, reads)

    def packs(self, cluster: Cluster, value: Value) -> bool:
        """Whether a group is the one that packs a value."""
        return value in self.packed and self.copied.get(value) is cluster

    def holder(self, value: Value) -> Cluster | None:
        """The group that computes, or stores, a value."""
        return self.home.get(value) or self.copied.get(value)
