"""The copies of arrays that a call makes, and why, for the memory report."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pullback.inspection.provenance import SOURCED, Anatomy, members, unmarked
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc
from pullback.ir.core.types import DType
from pullback.ir.shapes.extents import value_of
from pullback.programs.report import location


@dataclass(frozen=True, kw_only=True)
class Copied:
    """Describe an array that a call copies.

    Attributes
    ----------
    type : str
        The type of the array.
    bytes : int
        The bytes that are copied each time.
    times : int
        The number of copies; for a loop whose trip count depends on the data, the number in one iteration.
    is_in_loop : bool
        Whether a loop repeats it.
    reason : str
        Why the step copies it.
    loc : Loc
        The line of the step that copies it.
    reader : Loc
        The line that still reads the array.

    See Also
    --------
    Memory : Holds the copies of a call.

    Examples
    --------
    >>> def steps(x):
    ...     y = x.copy()
    ...     for i in range(len(x) - 1):
    ...         y[i + 1] += y[i]
    ...     return x, y
    >>> [(c.type, c.bytes) for c in pb.jit(steps).memory(np.ones(100)).copies]
    [('f64[100]', 800)]
    """

    type: str
    bytes: int
    times: int
    is_in_loop: bool
    reason: str
    loc: Loc = NOWHERE
    reader: Loc = NOWHERE


def copy_text(copy: Copied) -> str:
    """Return a line that says where an array is copied, and why."""
    where = f"{location(copy.loc)}: " if copy.loc else ""
    return f"{where}{copy.reason}" + (f" at {location(copy.reader)}" if copy.reader else "")


def copies_of(anatomy: Anatomy) -> tuple[Copied, ...]:
    """Return the copies of arrays of a call, in the order of its program."""
    runs = dict(_runs(anatomy, anatomy.program.body, 1, False))
    copies = []
    for record in anatomy.copies:
        if record.step not in runs:
            continue
        times, is_in_loop = runs[record.step]
        t = record.value.type
        shape = tuple(value_of(e, anatomy.sizes) for e in t.shape)
        dtype: DType = t.dtype
        copies.append(
            Copied(
                type=f"{dtype}[{','.join(map(str, shape))}]", bytes=math.prod(shape) * dtype.bytes,
                times=times, is_in_loop=is_in_loop, reason=record.reason, loc=_line(anatomy, record.step),
                reader=NOWHERE if record.reader is None else _line(anatomy, record.reader),
            )
        )  # fmt: skip
    return tuple(c for c in copies if c.bytes and c.times)


def _runs(anatomy: Anatomy, block: Block, times: int, is_in_loop: bool) -> Iterator[tuple[Instruction, tuple[int, bool]]]:
    """Yield the steps of a program, each with its number of runs and whether a loop repeats it."""
    for i in block.instructions:
        yield i, (times, is_in_loop)
        is_loop = i.op.name in ("loop", "loop_while")
        inside = times * math.prod(value_of(e, anatomy.sizes) for e in i.params.get("length", ()))
        for region in i.regions:
            yield from _runs(anatomy, region, inside, is_in_loop or is_loop)


def _line(anatomy: Anatomy, step: Instruction) -> Loc:
    """Return the user's line of a step, or of the first op that it runs."""
    source = anatomy.sources[step.loc.line] if step.loc.file == SOURCED else step
    for i in members(source):
        loc = unmarked(anatomy.loc(i))
        if loc:
            return loc
    return unmarked(anatomy.loc(source))
