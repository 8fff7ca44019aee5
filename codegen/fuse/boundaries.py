"""boundaries: the reasons why a kernel reads from memory what another kernel computes, for dumps."""

from __future__ import annotations

from pullback.codegen.fuse.clusters import Cluster
from pullback.codegen.fuse.grouping import MOST_WEIGHT, Grouping
from pullback.ir.core.value import Value


def boundary(grouping: Grouping, reader: Cluster, value: Value) -> str | None:
    """Return the reason why ``reader`` and the kernel that computes ``value`` are separate; None if no other kernel computes
    it."""
    maker = grouping.holder(grouping.base(value))
    if maker is None or maker is reader:
        return None
    for cluster in (maker, reader):
        if cluster.opaque:
            return f"{cluster.members[0].op.name} has a kernel of its own"
    if value in grouping.packed:
        return "it is put together first, since it is read many times"
    return _refusal(grouping, reader, maker, value) or _conflict(grouping, reader, maker)


def _refusal(grouping: Grouping, reader: Cluster, maker: Cluster, value: Value) -> str | None:
    """Return the reason why a member of the reader cannot be one of the maker; members that read the value come first."""
    needs = {i: grouping.reads_of(i) for i in reader.members}
    ordered = sorted(reader.members, key=lambda i: all(r.root is not value for r in needs[i]))
    for i in ordered:
        phase = grouping.phase_in(maker, i, needs[i])
        if isinstance(phase, str):
            return phase
    for copy in reader.copies:
        for read in grouping.reads(copy, grouping.is_packer(reader, copy)):
            phase = grouping.read_phase(maker, read, "element") if grouping.holder(read.root) is maker else 0
            if isinstance(phase, str):
                return f"what is stored {phase}"
    return None


def _conflict(grouping: Grouping, reader: Cluster, maker: Cluster) -> str:
    """Return the reason why two groups whose members could be in one kernel are separate."""
    if reader.weight + maker.weight > MOST_WEIGHT:
        return f"one kernel would have more than {MOST_WEIGHT:,} instructions"
    if grouping.has_group_between(reader, maker):
        return "another kernel runs between them"
    if not grouping.are_alike(reader, maker):
        return "the kernels are of two shapes"
    return "they met as parts of other kernels"
