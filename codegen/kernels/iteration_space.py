"""collapse: join neighbouring axes of a group's space that every member treats alike, so that loops are long and memory is
traversed contiguously."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, use_counts
from pullback.ir.core.types import ArrayType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave, component
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.index import Gather, ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, slice_, squeeze
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import product


@dataclass(frozen=True, eq=False)
class Space:
    """A group ready for a kernel: its region, the extents of its space, and how many of them are rows. ``nears``: whether rows
    of strided matrices may be staged in cache."""

    region: Block
    extents: Shape
    rows: int
    nears: bool = False

    @property
    def scans(self) -> list[Instruction]:
        """Return the scans, which determine the order in which elements are visited."""
        return [i for i in self.region.instructions if isinstance(i.op, Accumulate)]

    @property
    def row_sums(self) -> list[Instruction]:
        """Return the sums over the elements that are scattered to one row of a result; elements are visited in the order of
        these rows."""
        return [i for i in self.region.instructions if isinstance(i.op, ScatterSum)]

    @property
    def product(self) -> Instruction | None:
        """Return the contraction whose results are elements, if there is one."""
        return next((i for i in self.region.instructions if isinstance(i.op, Contract)), None)

    @property
    def order(self) -> str | None:
        """Return why the elements cannot be visited in any order; None if they can."""
        if self.product is not None:
            return "elements are visited as a matrix product has them"
        if self.row_sums:
            return "elements are visited in the order of rows that they are summed to"
        return "elements are visited in the order of a scan" if self.scans else None


def collapse(group: Instruction, layouts: Sequence[str]) -> Space:
    """Return the space of a group with as few axes as possible. ``layouts`` of the operands; strided ones keep their axes."""
    (region,) = group.regions
    extents, rows = tuple(group.params["space"]), group.params["rows"]
    space = Space(region, extents, rows)
    joins = _joins(space, layouts)
    if not any(joins):
        return space
    parts: list[list[int]] = [[0]]
    for axis, joined in enumerate(joins, 1):
        if joined:
            parts[-1].append(axis)
        else:
            parts.append([axis])
    return _rewrite(space, parts) or space


def _joins(space: Space, layouts: Sequence[str]) -> list[bool]:
    """Return, for each axis but the first, whether it can be joined with the previous one."""
    rank = len(space.extents)
    joins = [axis != space.rows for axis in range(1, rank)]
    extents, row_shape = space.extents, space.extents[: space.rows]

    def alike(axes: Sequence[int]) -> None:
        for axis in range(1, rank):
            joins[axis - 1] &= (axis in axes) == (axis - 1 in axes)

    components = _components(space)
    reads_of_components = [i for i in space.region.instructions if i.op is squeeze and i.operands[0] in components]
    for parameter, layout in zip(space.region.parameters, layouts, strict=True):
        if layout == "strided" and parameter.type.rank > 1:
            return [False] * (rank - 1)
    for i in space.region.instructions:
        shape = i.results[0].type.shape if i.results else ()
        if isinstance(i.op, Interleave) and 0 < i.params.get("axis", 0) < i.operands[0].type.rank:
            joins[i.params["axis"] - 1] = False
        if i in reads_of_components or (i.op is slice_ and i.result in components):
            continue
        if isinstance(i.op, Interleave) or (i.op is component and _is_read(space, i) and shape in (extents, row_shape)):
            continue
        if isinstance(i.op, Gather):
            return [False] * (rank - 1)
        if isinstance(i.op, Accumulate):
            alike([i.params["axis"]])
            continue
        if isinstance(i.op, Elementwise | Check) or not shape:
            if isinstance(i.op, Reduce):
                alike(i.params["axes"])
        elif (i.op is broadcast and shape == space.extents) or (
            isinstance(i.op, Reduce) and i.operands[0].type.shape == space.extents
        ):
            alike(i.params["axes"])
        elif i.op is broadcast and not i.operands[0].type.shape and shape == row_shape:
            pass
        else:
            return [False] * (rank - 1)
    return joins


def _components(space: Space) -> set[Value]:
    """Return the slices of parameters at one index of each axis after those of the elements, without these axes read as
    elements, and only so."""
    rank, count = len(space.extents), use_counts(space.region)
    squeezed = {
        i.operands[0]
        for i in space.region.instructions
        if i.op is squeeze and i.result.type.shape == space.extents and _drops_row(space, i)
    }
    return {
        i.result
        for i in space.region.instructions
        if i.op is slice_
        and i.result in squeezed
        and count[i.result] == 1
        and _is_read(space, i)
        and i.operands[0].type.shape[:rank] == space.extents
        and i.result.type.shape[rank:] == (1,) * (i.result.type.rank - rank)
        and all(start is None for start in i.params["start"][:rank])
    }


def _drops_row(space: Space, i: Instruction) -> bool:
    """Return whether a squeeze drops all axes after as many as the elements have."""
    return tuple(i.params["axes"]) == tuple(range(len(space.extents), i.operands[0].type.rank))


def _is_read(space: Space, i: Instruction) -> bool:
    """Return whether an instruction reads a parameter of the region."""
    return i.operands[0] in space.region.parameters


def _rewrite(space: Space, parts: Sequence[Sequence[int]]) -> Space | None:
    """Return the region with joined axes; None if a value would need two shapes."""
    extents = tuple(product([space.extents[a] for a in part]) for part in parts)
    rows = sum(1 for part in parts if part[0] < space.rows)
    shapes: dict[Value, Shape] = {}

    def record(value: Value, kept: Sequence[int]) -> bool:
        """Record which axes of the space a value has; return whether this agrees with the earlier records."""
        shape = tuple(product([space.extents[a] for a in part]) for part in parts if part[0] in kept)
        return shapes.setdefault(value, shape) == shape

    axes = range(len(space.extents))
    row_shape = space.extents[: space.rows]

    def natural(value: Value) -> bool:
        shape = value.type.shape
        if shape == space.extents:
            return record(value, axes)
        return not shape or (shape == row_shape and record(value, axes[: space.rows]))

    def interleave_axis(i: Instruction) -> int:
        """Return the axis of a result along which arrays are interleaved."""
        axis = i.params.get("axis", i.operands[0].type.rank)
        return sum(part[0] < axis for part in parts)

    components = _components(space)

    def with_row(value: Value) -> bool:
        """Record the shape of a value that has further axes after those of the elements."""
        shape = (*extents, *value.type.shape[len(space.extents) :])
        return shapes.setdefault(value, shape) == shape

    for i in space.region.instructions:
        if i.op is slice_ and i.result in components:
            fits = with_row(i.operands[0]) and with_row(i.result)
        elif i.op is squeeze and i.operands[0] in components:
            fits = natural(i.result)
        elif isinstance(i.op, Interleave):
            fits = all(map(natural, i.operands))
            first_shape = shapes.get(i.operands[0], ())
            axis = interleave_axis(i)
            shapes[i.result] = (*first_shape[:axis], len(i.operands), *first_shape[axis:])
        elif i.op is component:
            fits = natural(i.result)
            with_parts = (*shapes.get(i.result, ()), 2)
            fits = fits and shapes.setdefault(i.operands[0], with_parts) == with_parts
        elif i.op is broadcast and i.result.type.shape == space.extents:
            fits = record(i.result, axes) and record(i.operands[0], [a for a in axes if a not in i.params["axes"]])
        elif isinstance(i.op, Reduce) and i.operands[0].type.shape == space.extents:
            fits = record(i.operands[0], axes) and record(i.result, [a for a in axes if a not in i.params["axes"]])
        else:
            fits = all(natural(v) for v in (*i.operands, *i.results))
        if not fits:
            return None
    if not all(natural(v) for v in space.region.results if v not in shapes):
        return None
    first = {part[0]: k for k, part in enumerate(parts)}
    env = {v: Value(ArrayType(v.type.dtype, shapes.get(v, v.type.shape)), v.name) for v in space.region.parameters}
    instructions = []
    for i in space.region.instructions:
        results = tuple(Value(ArrayType(v.type.dtype, shapes.get(v, v.type.shape)), v.name) for v in i.results)
        env.update(zip(i.results, results, strict=True))
        params = dict(i.params)
        if isinstance(i.op, Accumulate):
            params["axis"] = first[i.params["axis"]]
        if isinstance(i.op, Interleave) and "axis" in params:
            params["axis"] = interleave_axis(i)
        if i.op is slice_:
            added = len(space.extents) - len(extents)
            params |= {name: tuple(params[name])[added:] for name in ("start", "step")}
        if i.op is squeeze:
            params["axes"] = tuple(range(len(extents), results[0].type.rank + len(params["axes"])))
        elif "axes" in params:
            is_row = i.op is broadcast and i.result.type.shape != space.extents
            params["axes"] = tuple(range(rows)) if is_row else tuple(first[a] for a in params["axes"] if a in first)
        if "shape" in params and tuple(params["shape"]) == i.result.type.shape:
            params["shape"] = results[0].type.shape
        instructions.append(Instruction(i.op, tuple(env[v] for v in i.operands), results, params, i.regions, i.loc))
    parameters = tuple(env[v] for v in space.region.parameters)
    return Space(Block(parameters, tuple(instructions), tuple(env[v] for v in space.region.results)), extents, rows)
