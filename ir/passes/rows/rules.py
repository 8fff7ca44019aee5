"""What each op does along the axis of rows: it maps each row on its own, it reduces over the rows, or it couples them.

An array is *by rows* if the extent ``ROWS`` is in its type; an array without it is the same for all blocks. A rule is a function
of a family of ops, in the registry ``RULES``, which is called for each instruction with an operand or result by rows. It returns
MAPS or a ``Reduction``, or raises ``Coupled`` with the reason why a block cannot be computed on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pullback.ir.core.op import Op, must_match
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.array.create import Constant, Iota
from pullback.ir.ops.array.index import Gather, Place, RollBy, Scatter
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, concat, flip, pad, reshape, roll, shift, slice_, windows
from pullback.ir.ops.array.scan import Accumulate, LinearRecurrence
from pullback.ir.ops.control.custom import Custom
from pullback.ir.ops.control.loops import Scan, Switch, While
from pullback.ir.ops.control.markers import Barrier, CotangentTap, Saved, Stop
from pullback.ir.ops.control.regions import Check, Group, Vmap
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.library.family import Composed, Linalg
from pullback.ir.ops.library.fourier import Fourier
from pullback.ir.ops.library.sort import Sort

ROWS = "rows"
"""The name of the extent of the axis of rows."""


INSTEAD = "compute it for all rows before, and pass the result"
"""What to do instead of an op that couples rows, where nothing better is known."""


class Coupled(Exception):
    """Raised for an instruction that cannot be computed by blocks of rows; the message says why."""

    def __init__(self, message: str, loc: Loc = NOWHERE) -> None:
        super().__init__(message)
        self.loc = loc


class Maps:
    """The kind of an instruction that computes each row from the same row of its operands."""


MAPS = Maps()


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """An instruction whose results have no rows, and are reduced from those of blocks.

    ``combine``: the name of the way in which two partial results become one, a key of ``combine.COMBINATIONS``. ``partial(b,
    instruction, operands, first)`` emits the partial results of a block, whose first row has the index ``first()``, and
    ``finish(b, instruction, partials, operands)`` the results from the reduced ones; ``partial`` reads the operands by rows, and
    ``finish`` those without rows.
    """

    combine: str
    partial: Callable[[Any, Instruction, Sequence[Value], Callable[[], Value]], Sequence[Value]]
    finish: Callable[[Any, Instruction, Sequence[Value], Sequence[Value]], Sequence[Value]]


Kind = Maps | Reduction
Definitions = Callable[[Value], Instruction | None]
"""Returns the instruction that defines a value."""
Rule = Callable[[Instruction, Definitions], Kind]
RULES: dict[type[Op], Rule] = {}
"""The rules by family; that of the closest base class of an op's class applies."""


def row_axis(t: Type) -> int | None:
    """Return the axis of rows of a type; None if it has none. Raises Coupled if it has two."""
    axes = [k for k, e in enumerate(t.shape) if e == ROWS]
    if len(axes) > 1:
        raise Coupled(f"its array {t} has an element for each pair of rows")
    return axes[0] if axes else None


def is_by_rows(value: Value) -> bool:
    """Return whether an array has an axis of rows."""
    return ROWS in value.type.shape


def touches_rows(instruction: Instruction) -> bool:
    """Return whether an instruction reads, returns or computes within its regions an array by rows."""
    if any(map(is_by_rows, (*instruction.operands, *instruction.results))):
        return True
    return any(touches_rows(i) for region in instruction.regions for i in region.instructions)


def kind_of(instruction: Instruction, definition: Definitions) -> Kind:
    """Return what an instruction that touches rows does along them. Raises Coupled, at its location."""
    try:
        for v in (*instruction.operands, *instruction.results):
            row_axis(v.type)
        for kind in type(instruction.op).__mro__:
            if kind in RULES:
                return RULES[kind](instruction, definition)
        raise Coupled("it has no rule for rows")
    except Coupled as error:
        if error.loc:
            raise
        message = f"{instruction.op.name} couples rows: {error}"
        raise Coupled(message if ";" in message else f"{message}; {INSTEAD}", instruction.loc) from None


def rule_of(*families: type[Op]) -> Callable[[Rule], Rule]:
    """Return a decorator that registers a rule for families of ops."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(families, rule))
        return rule

    return register


def _rows_in(values: Sequence[Value]) -> list[int]:
    """Return the axes of rows of those values that have one."""
    return [axis for v in values if (axis := row_axis(v.type)) is not None]


def along(axis: int, reason: str, *values: Value) -> Kind:
    """Return MAPS unless ``axis`` is the axis of rows of one of the values. Raises Coupled with the reason."""
    if axis in _rows_in(values):
        raise Coupled(reason)
    return MAPS


# families that map each row


@rule_of(Elementwise, CotangentTap, Stop, Saved, Barrier, Check, Constant, Interleave)
def _each(i: Instruction, definition: Definitions) -> Kind:
    return MAPS


@rule_of(Iota)
def _iota(i: Instruction, definition: Definitions) -> Kind:
    """The index along the rows starts, in a block, at the index of its first row (``split`` adds it)."""
    return MAPS


@rule_of(Reindex)
def _reindex(i: Instruction, definition: Definitions) -> Kind:
    """Return the kind of an op that moves elements: the axis of rows is moved as a whole, or not at all."""
    op, params, (x, *_) = i.op, i.params, i.operands
    axis, to = row_axis(x.type), row_axis(i.result.type)
    if op is reshape:
        if axis is None or to is None or _product(x.type.shape[:axis]) != _product(i.result.type.shape[:to]):
            raise Coupled("the rows become part of another axis; keep them as an axis of their own")
        return MAPS
    if op in (slice_, pad):
        axes = [k for k in (axis, to) if k is not None]
        if any(params["start"][k] is not None for k in axes):
            raise Coupled("a part of the rows is taken; mask the rows instead, as by np.where or where=")
        return MAPS
    if op in (flip, roll) and axis in params["axes"]:
        raise Coupled("the rows change their order")
    if op is shift:
        return along(params["axis"], "each row reads a neighbour", x)
    if op is concat:
        return along(params["axis"], "rows are joined to others", *i.operands, i.result)
    if op is windows:
        return along(params["axis"], "each window has several rows", x)
    return MAPS


def _product(extents: Sequence[Any]) -> Any:
    """Return the product of extents: an int if all are, else a tuple of all."""
    total = 1
    for e in extents:
        if not isinstance(e, int):
            return tuple(extents)
        total *= e
    return total


@rule_of(Accumulate, LinearRecurrence)
def _accumulate(i: Instruction, definition: Definitions) -> Kind:
    return along(i.params["axis"], "each row depends on the rows before it", *i.operands)


@rule_of(Sort)
def _sort(i: Instruction, definition: Definitions) -> Kind:
    return along(i.operands[0].type.rank - 1, "rows are ordered by their values", *i.operands)


@rule_of(Fourier)
def _fourier(i: Instruction, definition: Definitions) -> Kind:
    return along(i.params["axis"], "each frequency depends on all rows", *i.operands)


COLUMNS = {"triangular_solve": 1, "solve": 2}
"""The ops that compute each column of an operand, the one at this position, and of the result on its own."""


@rule_of(Linalg, Composed)
def _matrices(i: Instruction, definition: Definitions) -> Kind:
    """Return MAPS if the axis of rows is an axis of the batch, or that of independent columns.

    An axis of the batch is the same one in all operands and results, and the type rule holds without it and those before it.
    """
    values = (*i.operands, *i.results)
    axes = {row_axis(v.type) for v in values}
    if i.op.name in COLUMNS:
        right, last = i.operands[COLUMNS[i.op.name]], i.result.type.rank - 1
        if row_axis(right.type) == last and not any(is_by_rows(v) for v in i.operands if v is not right):
            return MAPS
    if len(axes) == 1 and (axis := axes.pop()) is not None:
        operands = [v.type.with_shape(v.type.shape[axis + 1 :]) for v in i.operands if isinstance(v.type, ArrayType)]
        results = tuple(v.type.with_shape(v.type.shape[axis + 1 :]) for v in i.results if isinstance(v.type, ArrayType))
        with suppress(TypeError, IndexError):
            if i.op.infer(operands, i.params, i.regions, must_match) == results:
                return MAPS
    raise Coupled("the rows are an axis of its matrices")


# reductions


def _emit_same(b: Any, i: Instruction, operands: Sequence[Value], first: Callable[[], Value]) -> Sequence[Value]:
    results: Sequence[Value] = b.emit(i.op, operands, dict(i.params))
    return results


def _reduced(b: Any, i: Instruction, partials: Sequence[Value], operands: Sequence[Value]) -> Sequence[Value]:
    return partials


@rule_of(Reduce)
def _reduce(i: Instruction, definition: Definitions) -> Kind:
    op, (x,) = i.op, i.operands
    assert isinstance(op, Reduce)
    if row_axis(x.type) not in i.params["axes"]:
        return MAPS
    if not op.gives_position:
        return Reduction(combine=op.combine, partial=_emit_same, finish=_reduced)
    if x.type.dtype.is_complex:
        raise Coupled("complex numbers have no order here; compare their absolute values")
    return Reduction(combine=op.combine, partial=_position, finish=lambda b, i, partials, operands: partials[:1])


def _position(b: Any, i: Instruction, operands: Sequence[Value], first: Callable[[], Value]) -> Sequence[Value]:
    """Return the position of the extreme among all rows, and the extreme."""
    (x,) = operands
    position = b.emit(i.op, operands, dict(i.params))[0]
    shifted = b.add(position, b.spread(first(), position.type.shape))
    extreme = (b.max if i.op.name == "argmax" else b.min)(x, axes=i.params["axes"])
    return shifted, extreme


@rule_of(Contract)
def _contract(i: Instruction, definition: Definitions) -> Kind:
    words, out = split(i.params["spec"])
    letters = {w[a] for w, v in zip(words, i.operands, strict=True) if (a := row_axis(v.type)) is not None}
    if letters <= set(out):
        return MAPS
    return Reduction(combine="add", partial=_emit_same, finish=_reduced)


# indices


def is_row_index(value: Value, axis: int, definition: Definitions) -> bool:
    """Return whether each element of an array of integers is its index along ``axis``, or that index after a correction of
    indices that are negative."""
    i = definition(value)
    if i is None:
        return False
    if isinstance(i.op, Iota):
        return bool(i.params["axis"] == axis)
    match i.op.name:
        case "broadcast":
            kept = [k for k in range(value.type.rank) if k not in i.params["axes"]]
            return axis in kept and is_row_index(i.operands[0], kept.index(axis), definition)
        case "squeeze":
            kept = [k for k in range(i.operands[0].type.rank) if k not in i.params["axes"]]
            return is_row_index(i.operands[0], kept[axis], definition)
        case "cast":
            return is_row_index(i.operands[0], axis, definition)
        case "select":
            test = definition(i.operands[0])
            is_sign = test is not None and test.op.name == "lt" and test.operands[0] in (i.operands[2],)
            return is_sign and is_row_index(i.operands[2], axis, definition)
    return False


def own_row(x: Value, indices: Sequence[Value], axes: Sequence[int], definition: Definitions) -> int | None:
    """Return the position among ``indices`` of the one for the axis of rows of ``x``, if each row reads or writes itself; None
    if the axis is not indexed. Raises Coupled if it is indexed otherwise."""
    axis = row_axis(x.type)
    if axis is None or axis not in axes:
        return None
    position = list(axes).index(axis)
    index = indices[position]
    own = row_axis(index.type)
    if own is None or not is_row_index(index, own, definition):
        raise Coupled("rows are selected by indices; index another axis, or mask the rows")
    return position


@rule_of(Gather)
def _gather(i: Instruction, definition: Definitions) -> Kind:
    x, *indices = i.operands
    if own_row(x, indices, i.params["axes"], definition) is None and is_by_rows(x) and any(map(is_by_rows, indices)):
        raise Coupled("each row reads all rows")
    return MAPS


@rule_of(RollBy)
def _roll_by(i: Instruction, definition: Definitions) -> Kind:
    if row_axis(i.operands[0].type) in i.params["axes"]:
        raise Coupled("the rows change their order")
    return MAPS


@rule_of(Scatter)
def _scatter(i: Instruction, definition: Definitions) -> Kind:
    base, *indices, _ = i.operands
    if is_by_rows(base):
        if own_row(base, indices, i.params["axes"], definition) is None and any(map(is_by_rows, indices)):
            raise Coupled("each row writes to all rows")
        return MAPS
    if not i.op.accumulate:  # type: ignore[attr-defined]
        raise Coupled("rows overwrite each other in one array; add them, as np.add.at and np.bincount do")
    return Reduction(combine="add", partial=_scattered, finish=_added)


def _scattered(b: Any, i: Instruction, operands: Sequence[Value], first: Callable[[], Value]) -> Sequence[Value]:
    """Return the sums of a block's rows, without the base."""
    zeros = b.zeros_like(i.operands[0])
    results: Sequence[Value] = b.emit(i.op, (zeros, *operands[1:]), dict(i.params))
    return results


def _added(b: Any, i: Instruction, partials: Sequence[Value], operands: Sequence[Value]) -> Sequence[Value]:
    return (b.add(operands[0], partials[0]),)


@rule_of(Place)
def _place(i: Instruction, definition: Definitions) -> Kind:
    axis = row_axis(i.operands[0].type)
    if axis is None or i.params["start"][axis] is not None:
        raise Coupled("a part of the rows is written; choose the rows by np.where instead")
    return MAPS


# regions


@rule_of(Switch, While, Custom, Group)
def _region(i: Instruction, definition: Definitions) -> Kind:
    """Return MAPS if every instruction within maps rows: a reduction there would be one of a block."""
    for region in i.regions:
        _check_region(region)
    return MAPS


@rule_of(Scan)
def _scan(i: Instruction, definition: Definitions) -> Kind:
    if ROWS in i.params["length"]:
        raise Coupled("the loop goes over the rows, one after another; write it for all rows at once, or pb.vmap it")
    return _region(i, definition)


@rule_of(Vmap)
def _vmap(i: Instruction, definition: Definitions) -> Kind:
    """Return MAPS for a map over the rows, whatever it maps."""
    for k, v in enumerate(i.operands):
        if is_by_rows(v) and (k not in i.params["batched"] or row_axis(v.type) != 0):
            raise Coupled("each of its calls reads all rows")
    if any(not is_by_rows(v) for v in i.results):
        raise Coupled("it has a result that does not depend on what is mapped; return it from outside the map")
    return MAPS


def _check_region(region: Block) -> None:
    makers = {v: i for i in region.instructions for v in i.results}
    for i in region.instructions:
        if isinstance(i.op, Iota) and row_axis(i.result.type) == i.params["axis"]:
            raise Coupled("the positions of rows are counted within a loop or branch; count them outside of it", i.loc)
        if touches_rows(i) and not isinstance(kind_of(i, makers.get), Maps):
            raise Coupled(f"{i.op.name} over the rows within a loop or branch: sums over rows belong outside of it", i.loc)
