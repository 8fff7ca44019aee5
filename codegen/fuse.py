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

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.codegen.composed import composed
from pullback.codegen.contractions import contractions
from pullback.codegen.packed import packed
from pullback.codegen.positions import positions
from pullback.codegen.saving import Graph, Saving, Use, joined, weight
from pullback.codegen.scatters import scatters_from_zero
from pullback.codegen.sorted_twice import sorted_twice
from pullback.ir.builder import Builder
from pullback.ir.ops.complexes import Interleave
from pullback.ir.ops.control import Check, group
from pullback.ir.ops.create import Constant, Count, Iota
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.ops.index import Gather, Place, Scatter
from pullback.ir.ops.reduce import Reduce
from pullback.ir.ops.reindex import Reindex, broadcast, squeeze
from pullback.ir.ops.scan import Accumulate
from pullback.ir.passes.activity import is_pure
from pullback.ir.passes.split import split
from pullback.ir.structure import Block, Function, Instruction, Value
from pullback.ir.types import Shape

MOST_WEIGHT = 1000
MOST_PASSES = 6
MOST_WAITING = 32
MOST_NEAR = 64
MOST_FLOATING = 64
"""So many scalar instructions, of parameters and constants alone, are computed again by each group that needs them."""
ENDED = 1 << 20
NEVER = ENDED + 1


@dataclass(eq=False)
class Cluster:
    """A group in the making.

    ``scan``: the axis and the direction in which elements are visited, if the order matters; scanned values are known one phase
    after their elements, to readers at the same place. ``phase`` of a member: the pass that computes it, ``ENDED`` if it is known
    after the last, ``NEVER`` for a view, which other groups read. ``needs``: the groups whose values it reads. ``readers``: those
    that read what it updates, and so come first where they can.
    """

    number: int
    space: Shape
    rows: int | None = None
    scan: tuple[int, bool] | None = None
    members: list[Instruction] = field(default_factory=list)
    copies: list[Value] = field(default_factory=list)
    phase: dict[Value, int] = field(default_factory=dict)
    needs: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)
    reads: set[Value] = field(default_factory=set)
    opaque: bool = False
    weight: int = 0


def fuse(function: Function) -> Function:
    """Group the instructions of a function into kernels, in regions of loops and branches too: each on its own."""
    return fused(function)[0]


def fused(function: Function) -> tuple[Function, Saving]:
    """As ``fuse``, with what is stored and what is computed again."""
    prepared = positions(contractions(scatters_from_zero(split(sorted_twice(composed(function))))))
    savings: list[Saving] = []

    def region(block: Block) -> Block:
        inner, saving = fused(Function("region", block))
        savings.append(saving)
        return inner.body

    made = [replace(i, regions=tuple(map(region, i.regions))) if i.regions else i for i in prepared.instructions]
    fuser = _Fuser(replace(prepared, body=replace(prepared.body, instructions=tuple(made))))
    return fuser.run(), joined([fuser.saving, *savings])


def is_scanned(instruction: Instruction) -> bool:
    """Whether an instruction is a scan that a group can make."""
    if not isinstance(instruction.op, Accumulate):
        return False
    dtype = instruction.result.type.dtype
    return not dtype.is_complex and not (dtype.is_float and dtype.bits == 16)


def _order(instruction: Instruction) -> tuple[int, bool]:
    return instruction.params["axis"], instruction.params["reverse"]


@dataclass(frozen=True)
class _Read:
    """How an instruction reads a stored or computed value: "same", "row", "scalar" or "other"; ``root`` is what is read."""

    root: Value
    way: str
    rank: int


class _Fuser:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.producer = {v: i for i in function.instructions for v in i.results}
        self.clusters: list[Cluster] = []
        self.home: dict[Value, Cluster] = {}
        self.copied: dict[Value, Cluster] = {}
        self.packed = packed(function.instructions)
        self.checked: Cluster | None = None
        self.floating: dict[Value, int] = {}
        self.updates: dict[Value, Cluster] = {}
        self.reading: dict[Value, dict[int, None]] = {}
        self.position = {i: k for k, i in enumerate(function.instructions)}
        self.saving = Saving()

    def run(self) -> Function:
        for instruction in self.function.instructions:
            self.place(instruction)
        for value in self.function.results:
            self.store(value)
        self.save()
        return self.emit()

    # what an instruction is

    def is_path(self, instruction: Instruction) -> bool:
        """Whether an instruction is copied into its readers."""
        op = instruction.op
        if not self.packed.isdisjoint(instruction.results):
            return False
        if isinstance(op, Reindex):
            return not self.is_view(instruction)
        if isinstance(op, Constant | Count | Iota | Gather):
            return True
        return isinstance(op, Elementwise) and instruction.result in self.floating

    def is_view(self, instruction: Instruction) -> bool:
        """Whether an instruction is a view of a stored value. A squeeze of what is copied into its readers is copied, too."""
        if not isinstance(instruction.op, Reindex) or not instruction.op.view:
            return False
        made = self.producer.get(instruction.operands[0])
        return instruction.op is not squeeze or made is None or not self.is_path(made)

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
        is_whole = any(v.type.dtype.is_complex for v in instruction.operands)
        is_member = isinstance(op, Elementwise | Reduce | Check | Interleave) or is_scanned(instruction)
        if is_member and not is_whole:
            self.join(instruction)
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

    def is_loose(self, value: Value) -> bool:
        """Whether a scalar depends on parameters and constants alone."""
        made = self.producer.get(value)
        if made is None:
            return not value.type.shape
        return value in self.floating or isinstance(made.op, Constant | Count)

    def reads(self, value: Value, packs: bool = False) -> list[_Read]:
        """What the evaluation of a value reads, through paths; ``packs``: by the group that packs it."""
        found: list[_Read] = []
        stack = [(value, "same", value.type.rank)]
        seen: set[tuple[Value, str]] = set()
        while stack:
            current, way, rank = stack.pop()
            made = self.producer.get(current)
            is_stored = made is None or not (self.is_path(made) or (packs and current is value))
            if made is None or is_stored or current in self.home:
                found.append(_Read(current, "scalar" if not current.type.shape else way, rank))
                continue
            for position, operand in enumerate(made.operands):
                if isinstance(made.op, Gather) and not position:
                    found.append(_Read(operand, "other", operand.type.rank))
                    continue
                step = "other"
                if made.op is broadcast and way in ("same", "row"):
                    axes, kept = made.params["axes"], operand.type.rank
                    step = "row" if tuple(axes) == tuple(range(kept, rank)) and kept else "other"
                elif isinstance(made.op, Elementwise) or (
                    isinstance(made.op, Gather) and position and way == "same" and operand.type.rank == current.type.rank
                ):
                    step = way
                if (operand, step) not in seen:
                    seen.add((operand, step))
                    stack.append((operand, step, operand.type.rank))
        return found

    # joining groups

    def join(self, instruction: Instruction) -> None:
        op = instruction.op
        space = instruction.operands[0].type.shape
        reads = [r for v in instruction.operands for r in self.reads(v)]
        before = self.checked if isinstance(op, Check) else None
        for cluster in self.candidates(reads, space, scalar=isinstance(op, Elementwise | Interleave) and not space):
            phase = self.phase_in(cluster, instruction, reads)
            if phase is not None and self.is_acyclic(cluster, reads, before):
                self.add(cluster, instruction, reads, phase)
                self.follow(cluster, instruction)
                self.merge_neighbours(cluster, reads)
                return
        cluster = self.new_cluster(space)
        phase = self.phase_in(cluster, instruction, reads)
        assert phase is not None
        self.add(cluster, instruction, reads, phase)
        self.follow(cluster, instruction)

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

    def candidates(self, reads: Sequence[_Read], space: Shape, scalar: bool) -> list[Cluster]:
        """Groups that might take an instruction: those it reads from, latest first, then those that read what it reads."""
        direct = {self.home[r.root].number for r in reads if r.root in self.home and r.way != "other"}
        found = sorted((n for n in direct if not self.clusters[n].opaque), reverse=True)
        if not scalar:
            wanted = {r.root for r in reads}
            sources = [wanted, *(c.reads for c in {self.home[v] for v in wanted if v in self.home})]
            for cluster in reversed(self.clusters[-24:]):
                beside = not cluster.opaque and cluster.space == space and cluster.number not in direct
                if beside and (not wanted or not all(map(cluster.reads.isdisjoint, sources))):
                    found.append(cluster.number)
        return [self.clusters[n] for n in found if self.clusters[n].weight < MOST_WEIGHT]

    def phase_in(self, cluster: Cluster, instruction: Instruction, reads: Sequence[_Read]) -> int | None:
        """The phase an instruction would have in a group; None if it cannot be a member."""
        op, space = instruction.op, cluster.space
        shape = instruction.operands[0].type.shape
        row_shape = None if cluster.rows is None else space[: cluster.rows]
        if shape == space and (space or isinstance(op, Elementwise | Check | Interleave)):
            level = "element"
        elif row_shape is not None and shape == row_shape:
            level = "row"
        elif not shape:
            level = "scalar"
        else:
            return None
        phase = 0
        for read in reads:
            if self.holder(read.root) is not cluster:
                continue
            known = self.read_phase(cluster, read, level)
            if known is None:
                return None
            phase = max(phase, known)
        if cluster.scan is not None or is_scanned(instruction):
            return self.phase_in_scan(cluster, instruction, level, phase)
        if isinstance(op, Check):
            return ENDED if level != "row" else None
        if isinstance(op, Interleave):
            return ENDED
        if isinstance(op, Reduce) and level == "element":
            return self.reduced_phase(cluster, instruction, phase)
        if isinstance(op, Reduce) and level == "row":
            return None if instruction.result.type.shape or op.gives_position else ENDED
        if level == "scalar" and space:
            return ENDED if phase else None
        return phase

    def phase_in_scan(self, cluster: Cluster, instruction: Instruction, level: str, phase: int) -> int | None:
        """The phase in a group whose elements are visited in order: reductions are over all of them."""
        op = instruction.op
        if is_scanned(instruction):
            fits = cluster.scan in (None, _order(instruction)) and cluster.rows is None and not phase
            return 1 if fits and all(self.may_be_scanned(cluster, i) for i in cluster.members) else None
        if not self.may_be_scanned(cluster, instruction):
            return None
        if isinstance(op, Reduce | Check):
            return ENDED
        return phase if level == "element" else ENDED if phase else None

    def may_be_scanned(self, cluster: Cluster, instruction: Instruction) -> bool:
        """Whether an instruction can be a member of a group whose elements are visited in order."""
        op = instruction.op
        if isinstance(op, Reduce) and instruction.operands[0].type.shape == cluster.space:
            return len(instruction.params["axes"]) == len(cluster.space) and (not op.gives_position or len(cluster.space) == 1)
        return not isinstance(op, Interleave)

    def read_phase(self, cluster: Cluster, read: _Read, level: str) -> int | None:
        """When a member of the group is known to a reader at a level; None if it never is."""
        phase = cluster.phase[read.root]
        if phase == NEVER:
            return None
        if phase == ENDED:
            return ENDED if level == "scalar" and not read.root.type.shape and cluster.space else None
        if not cluster.space or not read.root.type.shape:
            return phase
        is_row = read.root.type.shape != cluster.space
        if level == "element":
            return phase if read.way == ("row" if is_row else "same") else None
        return phase if level == "row" and is_row and read.way == "same" else None

    def reduced_phase(self, cluster: Cluster, instruction: Instruction, phase: int) -> int | None:
        """The phase of a reduction: one more than its operand's if it is over the trailing axes, else the end."""
        axes, rank = tuple(instruction.params["axes"]), len(cluster.space)
        kept = rank - len(axes)
        if not kept or axes != tuple(range(kept, rank)) or cluster.rows not in (None, kept):
            return ENDED
        return phase + 1 if phase < MOST_PASSES else None

    def is_acyclic(self, cluster: Cluster, reads: Sequence[_Read], before: Cluster | None = None) -> bool:
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

    def add(self, cluster: Cluster, instruction: Instruction, reads: Sequence[_Read], phase: int) -> None:
        cluster.members.append(instruction)
        cluster.weight += weight(instruction)
        for value in instruction.results:
            cluster.phase[value] = phase
            self.home[value] = cluster
        if is_scanned(instruction):
            cluster.scan = _order(instruction)
        if isinstance(instruction.op, Reduce) and phase != ENDED:
            cluster.rows = len(cluster.space) - len(instruction.params["axes"])
        self.link(cluster, reads)

    def link(self, cluster: Cluster, reads: Sequence[_Read]) -> None:
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

    def merge_neighbours(self, cluster: Cluster, reads: Sequence[_Read]) -> None:
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
        cluster.scan = joined.scan
        cluster.needs = (cluster.needs | other.needs) - {cluster.number, other.number}
        self.home.update(dict.fromkeys(homes, cluster))
        self.copied.update(dict.fromkeys(copied, cluster))
        other.members, other.copies, other.phase, other.needs = [], [], {}, {cluster.number}
        if self.checked is other:
            self.checked = cluster

    def fill(self, cluster: Cluster, members: Sequence[Instruction], copies: Sequence[Value]) -> bool:
        """Add members, in program order, and copies to an empty group; false where one has no phase in it."""
        for instruction in members:
            reads = [r for v in instruction.operands for r in self.reads(v)]
            is_placed = all(self.holder(r.root) is not cluster or r.root in cluster.phase for r in reads)
            phase = self.phase_in(cluster, instruction, reads) if is_placed else None
            if phase is None:
                return False
            self.add(cluster, instruction, reads, phase)
        for value in copies:
            reads = self.reads(value, packs=value in self.packed)
            phases = [self.read_phase(cluster, r, "element") for r in reads if self.holder(r.root) is cluster]
            if None in phases:
                return False
            self.add_copy(cluster, value, reads, max((p for p in phases if p is not None), default=0))
        return True

    def opaque(self, instruction: Instruction) -> None:
        cluster = self.new_cluster(())
        cluster.opaque = True
        self.add(cluster, instruction, [_Read(self.base(v), "other", v.type.rank) for v in instruction.operands], 0)
        base = self.updated(cluster.number)
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
            if cluster.space == space and None not in phases and space and self.is_acyclic(cluster, reads):
                self.add_copy(cluster, value, reads, max((p for p in phases if p is not None), default=0))
                return
        self.add_copy(self.new_cluster(space), value, reads, 0)

    def base(self, value: Value) -> Value:
        """What a view is a view of."""
        made = self.producer.get(value)
        while made is not None and self.is_view(made):
            value = made.operands[0]
            made = self.producer.get(value)
        return value

    def add_copy(self, cluster: Cluster, value: Value, reads: Sequence[_Read], phase: int) -> None:
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

    # saving

    def save(self) -> None:
        """Choose what groups compute again instead of reading it."""
        stored = dict.fromkeys(self.function.parameters, "an argument")
        stored.update((self.base(v), "a result") for v in self.function.results)
        stored.update(
            (self.base(i.operands[0]), "elements are picked") for i in self.function.instructions if isinstance(i.op, Gather)
        )
        groups: list[list[Use]] = []
        for cluster in self.clusters:
            values = [*(v for i in cluster.members for v in i.operands), *cluster.copies]
            if cluster.opaque:
                (made,) = cluster.members
                stored.update((self.base(v), f"an operand of {made.op.name}") for v in values)
                stored.update((v, made.op.name) for v in made.results)
                continue
            stored.update((v, "a copy") for v in cluster.copies)
            reads = [(r, v) for v in values for r in self.reads(v, self.packs(cluster, v))]
            groups.append([Use(r.root, v.type.shape, self.holder(r.root) is cluster) for r, v in reads])
        for root in {use.root for uses in groups for use in uses if self.base(use.root) is not use.root}:
            stored.update((v, "seen as another shape") for v in (root, self.base(root)) if v not in stored)
        members = (i for c in self.clusters if not c.opaque for i in c.members)
        makers = {i.result: i for i in members if isinstance(i.op, Elementwise) and i.result.type.shape}
        self.saving = Graph(makers, self.made_from, stored, self.position).choose(groups)
        for cluster in self.clusters if self.saving.again else ():
            for value in [v for v in cluster.reads if v in self.saving.again]:
                cluster.reads.update(self.sources_of(cluster, value))

    def made_from(self, instruction: Instruction) -> list[Value]:
        """The values that an elementwise instruction is computed from, through paths."""
        return list(dict.fromkeys(r.root for v in instruction.operands for r in self.reads(v)))

    def sources_of(self, cluster: Cluster, value: Value) -> list[Value]:
        """What a group loads to have a value: itself, or what it is computed again from."""
        found: dict[Value, None] = {}
        seen: set[Value] = set()
        stack = [r.root for r in self.reads(value, self.packs(cluster, value))]
        while stack:
            root = stack.pop()
            if root in seen:
                continue
            seen.add(root)
            if root in self.saving.again and self.holder(root) is not cluster:
                stack += self.made_from(self.producer[root])
            else:
                found[root] = None
        return list(found)

    # the result

    def emit(self) -> Function:
        outputs = self.outputs()
        builder = Builder()
        stored: dict[Value, Value] = {v: v for v in self.function.parameters}
        for cluster in self.order():
            if not cluster.members and not cluster.copies:
                continue
            if cluster.number not in outputs and not cluster.opaque and not any(isinstance(i.op, Check) for i in cluster.members):
                continue
            if cluster.opaque:
                (instruction,) = cluster.members
                operands = tuple(self.stored(builder, v, stored) for v in instruction.operands)
                results = tuple(Value(v.type, v.name) for v in instruction.results)
                builder.append(
                    Instruction(instruction.op, operands, results, instruction.params, instruction.regions, instruction.loc)
                )
                stored.update(zip(instruction.results, results, strict=True))
                continue
            self.emit_group(builder, cluster, outputs.get(cluster.number, []), stored)
        results_ = [self.stored(builder, v, stored) for v in self.function.results]
        return builder.function(self.function.name, self.function.parameters, results_, self.function.kind)

    def outputs(self) -> dict[int, list[Value]]:
        """The values of each group that are read outside it."""
        found: dict[int, dict[Value, None]] = {}

        def need(value: Value, reader: Cluster | None) -> None:
            root = self.base(value)
            origin = self.holder(root)
            if origin is not None and not origin.opaque and (origin is not reader or root is not value):
                found.setdefault(origin.number, {})[root] = None

        for cluster in self.clusters:
            for instruction in cluster.members:
                for value in instruction.operands:
                    for root in [value] if cluster.opaque else self.sources_of(cluster, value):
                        need(root, cluster)
            for value in cluster.copies:
                found.setdefault(cluster.number, {})[value] = None
                for root in self.sources_of(cluster, value):
                    need(root, cluster)
        picked = (i.operands[0] for i in self.function.instructions if isinstance(i.op, Gather))
        for value in (*picked, *self.function.results):
            need(value, None)
        return {n: list(values) for n, values in found.items()}

    def order(self) -> list[Cluster]:
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
        cluster = self.clusters[number]
        if not cluster.opaque or not cluster.members or not isinstance(cluster.members[0].op, Place | Scatter):
            return None
        return self.base(cluster.members[0].operands[0])

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

    def stored(self, builder: Builder, value: Value, stored: dict[Value, Value]) -> Value:
        """A value in memory, as a view where it is one."""
        if value in stored:
            return stored[value]
        made = self.producer[value]
        operand = self.stored(builder, made.operands[0], stored)
        results = tuple(Value(v.type, v.name) for v in made.results)
        builder.append(Instruction(made.op, (operand,), results, made.params, (), made.loc))
        stored[value] = results[0]
        return results[0]

    def emit_group(self, builder: Builder, cluster: Cluster, outputs: list[Value], stored: dict[Value, Value]) -> None:
        members = self.closure(cluster, outputs)
        inside = {v for i in members for v in i.results}
        gathered = {i.operands[0] for i in members if isinstance(i.op, Gather)}
        operands = list(dict.fromkeys(v for i in members for v in i.operands if v not in inside or v in gathered))
        given = {v: Value(v.type, v.name) for v in operands}
        env = dict(given)
        parameters = tuple(given.values())
        copied = []
        for i in members:
            results = tuple(Value(v.type, v.name) for v in i.results)
            read = [given[v] if isinstance(i.op, Gather) and not k else env[v] for k, v in enumerate(i.operands)]
            copied.append(Instruction(i.op, tuple(read), results, i.params, i.regions, i.loc))
            env.update(zip(i.results, results, strict=True))
        region = Block(parameters, tuple(copied), tuple(env[v] for v in outputs))
        external = tuple(self.stored(builder, v, stored) for v in operands)
        results = tuple(Value(v.type, v.name) for v in outputs)
        params = {"space": cluster.space, "rows": cluster.rows or 0}
        loc = (cluster.members or [self.producer[cluster.copies[0]]])[0].loc
        builder.append(Instruction(group, external, results, params, (region,), loc))
        stored.update(zip(outputs, results, strict=True))

    def closure(self, cluster: Cluster, outputs: Sequence[Value]) -> list[Instruction]:
        """The members of a group that are needed, with the paths they read, in program order."""
        wanted = {i for i in cluster.members if isinstance(i.op, Check)}
        stack = [*outputs, *(v for i in wanted for v in i.operands)]
        while stack:
            value = stack.pop()
            made = self.producer.get(value)
            origin = self.copied.get(value) if value in self.packed else self.home.get(value)
            is_elsewhere = origin not in (None, cluster) and value not in self.saving.again
            if made is None or made in wanted or is_elsewhere:
                continue
            if self.is_view(made):
                continue
            wanted.add(made)
            stack.extend(made.operands[1:] if isinstance(made.op, Gather) else made.operands)
        return sorted(wanted, key=lambda i: self.position[i])
