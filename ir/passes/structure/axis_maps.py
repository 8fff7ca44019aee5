"""Maps between the axes of an instruction's operands and the axes of its result, for ops that move or combine elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import Extent, Shape
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, flip, roll, shift, squeeze, transpose
from pullback.ir.ops.control.markers import Stop
from pullback.ir.ops.elementwise.elementwise import Elementwise

Size = Callable[[Extent], int | None]
"""Returns the value of an extent; None if it is not constant."""


def mapped_axes(i: Instruction) -> dict[int, int] | None:
    """Return, for each axis of the result that is an axis of every operand, that axis of the operands.

    None for ops whose results are not computed slice by slice of such axes. Along an axis that the map lacks, the result of a
    ``broadcast`` repeats its operand; the axes of an operand that no axis of the result maps to are removed by a reduction or
    by ``squeeze``.
    """
    op, params = i.op, i.params
    if isinstance(op, Elementwise | Stop) or op in (flip, roll, shift):
        return {k: k for k in range(i.result.type.rank)}
    if op is broadcast:
        return _positions([k for k in range(len(params["shape"])) if k not in params["axes"]])
    if op is transpose:
        return dict(enumerate(params["perm"]))
    if op is squeeze or (isinstance(op, Reduce) and not op.gives_position):
        return dict(enumerate(k for k in range(i.operands[0].type.rank) if k not in params["axes"]))
    return None


def _positions(axes: Sequence[int]) -> dict[int, int]:
    return {axis: k for k, axis in enumerate(axes)}


def reshape_groups(operand: Shape, result: Shape, size: Size) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the groups of axes of an operand that a reshape turns into groups of axes of its result, up to the first axes
    whose extents are not constant and differ.

        f64[n,6] to f64[n,3,2]: ((0,), (0,)), ((1,), (1, 2))
    """
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    a = b = 0
    while a < len(operand) and b < len(result):
        if operand[a] == result[b]:
            groups.append(((a,), (b,)))
            a, b = a + 1, b + 1
            continue
        first, second = a, b
        left, right = size(operand[a]), size(result[b])
        a, b = a + 1, b + 1
        while left != right:
            if left is None or right is None:
                return groups
            if left < right and a < len(operand):
                left, a = _times(left, size(operand[a])), a + 1
            elif right < left and b < len(result):
                right, b = _times(right, size(result[b])), b + 1
            else:
                return groups
        if left is None:
            return groups
        groups.append((tuple(range(first, a)), tuple(range(second, b))))
    groups += [((k,), ()) for k in range(a, len(operand)) if size(operand[k]) == 1]
    groups += [((), (k,)) for k in range(b, len(result)) if size(result[k]) == 1]
    return groups


def _times(left: int, right: int | None) -> int | None:
    return None if right is None else left * right


def regular_part(i: Instruction, axis: int, size: Size) -> tuple[int, ...] | None:
    """Return the positions along an axis that a ``slice`` reads, or a ``pad`` or an update of a slice writes; None if they are
    not constant."""
    start, step = i.params["start"][axis], i.params["step"][axis]
    part = i.operands[-1] if i.op.name != "slice" else i.result
    first, count = 0 if start is None else size(start), size(part.type.shape[axis])
    return None if first is None or count is None else tuple(first + step * k for k in range(count))
