"""The order in which a group visits its elements: any, unless a member is a scan or a sum by rows."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pullback.codegen.fuse.clusters import Cluster, Read
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.index import ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.ops.elementwise.elementwise import Elementwise


def is_scanned(instruction: Instruction) -> bool:
    """Return whether an instruction is a scan that a group can compute."""
    if not isinstance(instruction.op, Accumulate):
        return False
    dtype = instruction.result.type.dtype
    return not dtype.is_complex and not (dtype.is_float and dtype.bits == 16)


def order(instruction: Instruction) -> tuple[object, ...] | None:
    """Return the order in which an instruction requires elements to be visited; None for any."""
    if isinstance(instruction.op, ScatterSum):
        *indices, _ = instruction.operands
        return (*indices, *instruction.result.type.shape[: len(indices)])
    return (instruction.params["axis"], instruction.params["reverse"]) if is_scanned(instruction) else None


def operand_shape(instruction: Instruction) -> Shape:
    """Return the shape of the elements that an instruction reads."""
    return instruction.operands[-1 if isinstance(instruction.op, ScatterSum) else 0].type.shape


def is_by_rows(cluster: Cluster) -> bool:
    """Return whether a group visits elements in the order of the rows to which they are summed."""
    return cluster.scan is not None and isinstance(cluster.scan[0], Value)


def may_be_in_order(cluster: Cluster, instruction: Instruction) -> bool:
    """Return whether an instruction can be a member of a group whose elements are visited in a fixed order."""
    op = instruction.op
    if isinstance(op, Reduce) and instruction.operands[0].type.shape == cluster.space:
        return len(instruction.params["axes"]) == len(cluster.space) and (not op.gives_position or len(cluster.space) == 1)
    return not isinstance(op, Interleave)


def row_order_conflict(cluster: Cluster, instruction: Instruction, reads: Sequence[Read], stored: Container[Value]) -> str | None:
    """Return the reason why a group with an instruction cannot visit elements in the order of rows; None if it can.

    Few rows give threads few parts, and elements of one row are not contiguous. Such a group therefore computes little, reads
    one array of its shape, and stores none: no member may be one of the values in ``stored``.
    """
    name = instruction.op.name
    if cluster.rows is not None or cluster.copies or cluster.scan not in (None, order(instruction) or cluster.scan):
        return f"{name} visits the elements in an order of its own"
    for i in (instruction,) if is_by_rows(cluster) else (*cluster.members, instruction):
        cheap = isinstance(i.op, Elementwise) and i.op.cheap and not (i.result.type.shape and i.result in stored)
        if not cheap and not isinstance(i.op, ScatterSum) and not (isinstance(i.op, Reduce) and may_be_in_order(cluster, i)):
            return f"{i.op.name} is of elements in an order that is not that of rows"
    reads_in_all = {*cluster.reads, *(r.root for r in reads if r.root not in cluster.phase)}
    if sum(v.type.shape == cluster.space for v in reads_in_all) > 1:
        return f"{name} would read another array in the order of rows"
    return None
