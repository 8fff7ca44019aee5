"""Choose the short axes along which values become separate parts.

    y = concat [a, b, c]; z = y + x; z[0] * z[2]      of f64[3] needs no array: z is three scalars

An axis of one value is also an axis of the values that are computed from it element by element, of its slices, of a loop's
carried value: such axes are connected, and are split together or not at all. Connected axes are split if the program itself
extracts or assembles components along these axes, at constant positions, and few other ops need complete arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType, Extent, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Iota
from pullback.ir.ops.array.index import Gather, Place, Scatter
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import concat, pad, reshape, roll, slice_
from pullback.ir.ops.control.loops import Loop, Scan, Switch
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.structure.axis_maps import mapped_axes, regular_part, reshape_groups
from pullback.ir.shapes.extents import factor_names, value_of
from pullback.ir.shapes.symbolic import is_size

MOST_PARTS = 32
"""Largest number of parts of a value."""
MOST_INNER = 4
"""Largest extent of an axis that is split because a neighbouring axis is."""
FREE_WORK = 64
"""Elementwise operations on parts that splitting may emit, however few components are extracted or assembled."""
WORK_PER_PART = 16
"""Elementwise operations on parts that splitting may emit for each part that is taken out or put in."""

ROUNDS = 4
"""Times that the choice is corrected, each time without the axes whose splitting is not worthwhile."""

Axis = tuple[Value, int]


@dataclass(eq=False)
class _Uses:
    """The uses of connected axes: positions ``read`` and ``written`` with the extent they are of, the number of parts taken
    out (``takes``) and put in (``puts``), elementwise operations, and uses of complete arrays by other ops (``complete``), or
    as results (``returned``). An access at computed indices moves all parts into memory, and an update moves them back too."""

    positions: set[tuple[tuple[int, ...], int]] = field(default_factory=set)
    takes: int = 0
    puts: int = 0
    work: int = 0
    complete: int = 0
    returned: int = 0
    axes: list[Axis] = field(default_factory=list)
    is_named: bool = False
    is_stack: bool = False


def short_axes(body: Block, sizes: Mapping[str, int] | None = None) -> dict[Value, tuple[int, ...]]:
    """Return the axes along which values are split, for each value that has such axes; for values of regions too.

    ``sizes``: the values of named extents. With it, the axes are the ones that would be split if their names were constant;
    named axes are then chosen only if the program takes out, or puts in, most of their positions one by one, or in equal
    parts.
    """
    if not _moves_parts(body):
        return {}
    connections = _Connections(sizes or {})
    connections.block(body)
    return _Choice(connections).run()


def constant_names(body: Block, sizes: Mapping[str, int]) -> set[str]:
    """Return the names of the extents of axes that are split if these are constant, and of the positions along them."""
    chosen = short_axes(body, sizes)
    names: set[Any] = {v.type.shape[a] for v, axes in chosen.items() for a in axes}
    if chosen:
        _add_positions(body, chosen, names)
    return {name for e in names if isinstance(e, str) for name in factor_names(e)}


def _add_positions(block: Block, chosen: Mapping[Value, tuple[int, ...]], names: set[Any]) -> None:
    """Add the starts of parts along chosen axes, and their extents, to ``names``."""
    for i in block.instructions:
        if i.op in (slice_, pad) or isinstance(i.op, Place):
            outer = i.operands[0] if i.op is not pad else i.result
            inner = i.result if i.op is slice_ else i.operands[-1]
            names.update(e for a in chosen.get(outer, ()) for e in (i.params["start"][a], inner.type.shape[a]))
        elif i.op is concat and i.params["axis"] in chosen.get(i.result, ()):
            names.update((*i.params["starts"], *(v.type.shape[i.params["axis"]] for v in i.operands)))
        elif i.op is roll and not set(i.params["axes"]).isdisjoint(chosen.get(i.result, ())):
            names.update(i.params["offset"])
        for region in i.regions:
            _add_positions(region, chosen, names)


def _moves_parts(block: Block) -> bool:
    """Return whether any instruction takes parts out of arrays, or puts parts into arrays."""
    return any(
        i.op in (slice_, concat, pad) or isinstance(i.op, Place) or any(map(_moves_parts, i.regions)) for i in block.instructions
    )


class _Connections:
    """Which axes are connected (a union-find), and how they are used."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = {name: size for name, size in sizes.items() if not is_size(size)}
        self.parent: dict[Axis, Axis] = {}
        self.events: list[tuple[Axis, str, Any]] = []
        self.values: dict[Value, None] = {}

    def size(self, extent: Extent | None) -> int | None:
        """Return the value of an extent, None if it is not constant."""
        if isinstance(extent, str):
            return value_of(extent, self.sizes) if all(name in self.sizes for name in factor_names(extent)) else None
        return None if extent is None or is_size(extent) else int(extent)

    def is_short(self, axis: Axis) -> bool:
        value, a = axis
        size = self.size(value.type.shape[a])
        return size is not None and 1 <= size <= MOST_PARTS

    def find(self, axis: Axis) -> Axis:
        parent = self.parent
        root = axis
        while (above := parent.setdefault(root, root)) != root:
            root = above
        while axis != root:
            parent[axis], axis = root, parent[axis]
        return root

    def connect(self, *axes: Axis) -> None:
        """Connect axes that are short."""
        short = [axis for axis in axes if self.is_short(axis)]
        for other in short[1:]:
            self.parent[self.find(other)] = self.find(short[0])

    def note(self, axis: Axis, kind: str, data: Any = None) -> None:
        if self.is_short(axis):
            self.find(axis)
            self.events.append((axis, kind, data))

    def complete(self, values: Sequence[Value], kind: str = "complete") -> None:
        """Note that complete arrays are needed."""
        for value in values:
            for a in range(len(value.type.shape)):
                self.note((value, a), kind if isinstance(value.type, ArrayType) else "stack")

    def same(self, *values: Value) -> None:
        """Connect each axis of values of one type."""
        for a in range(len(values[0].type.shape)):
            self.connect(*((v, a) for v in values))

    # instructions

    def block(self, block: Block, kind: str = "returned") -> None:
        self.values.update(dict.fromkeys(v for v in block.parameters if v.type.shape))
        for i in block.instructions:
            self.values.update(dict.fromkeys(v for v in i.results if v.type.shape))
            self.instruction(i)
        if kind:
            self.complete(block.results, kind)

    def instruction(self, i: Instruction) -> None:
        if isinstance(i.op, Loop | Switch):
            self.control(i)
        elif i.op in (slice_, pad) or isinstance(i.op, Place):
            self.part(i)
        elif i.op is concat:
            self.concat(i)
        elif i.op is reshape:
            self.reshape(i)
        elif (axes := mapped_axes(i)) is not None:
            if i.op is roll:
                self.roll(i, axes)
            for a, k in axes.items():
                self.connect((i.result, a), *((v, k) for v in i.operands))
            if isinstance(i.op, Elementwise):
                for a in axes:
                    self.note((i.result, a), "work")
            elif isinstance(i.op, Reduce):
                for a in i.params["axes"]:
                    self.note((i.operands[0], a), "work")
        elif isinstance(i.op, Gather | Scatter):
            self.complete(i.operands[:1], "indexed" if isinstance(i.op, Gather) else "updated")
            self.complete(i.operands[1:])
        elif not isinstance(i.op, Iota):
            self.complete(i.operands)
            for region in i.regions:
                self.block(region)

    def roll(self, i: Instruction, axes: dict[int, int]) -> None:
        """Connect the axes that a roll moves elements along, which are split together; if that is not possible, remove them from
        ``axes``."""
        rolled = [(i.operands[0], a) for a in i.params["axes"]]
        if self.size(i.params["offset"][0]) is not None and all(map(self.is_short, rolled)):
            self.connect(*rolled)
            return
        for axis in rolled:
            self.note(axis, "complete")
            del axes[axis[1]]

    def part(self, i: Instruction) -> None:
        """Connect a slice, a pad or an update of a slice with its operands."""
        if i.op is slice_:
            outer, inner, kind = i.operands[0], i.result, "take"
        else:
            outer, inner, kind = i.result, i.operands[-1], "put"
        if isinstance(i.op, Place):
            self.same(i.operands[0], i.result)
        for a, start in enumerate(i.params["start"]):
            if start is None:
                self.connect((outer, a), (inner, a))
                continue
            positions = regular_part(i, a, self.size) if self.is_short((outer, a)) else None
            if positions:
                self.connect((outer, a), (inner, a))
                self.note((outer, a), kind, positions)
            elif kind == "put":
                self.note((inner, a), "complete")

    def concat(self, i: Instruction) -> None:
        axis = i.params["axis"]
        for a in range(i.result.type.rank):
            if a != axis:
                self.connect((i.result, a), *((v, a) for v in i.operands))
        joined = (i.result, axis)
        sizes = [self.size(v.type.shape[axis]) for v in i.operands]
        if not self.is_short(joined) or not all(sizes):
            for v in i.operands:
                self.note((v, axis), "complete")
            return
        self.connect(joined, *((v, axis) for v in i.operands))
        start = 0
        for size in sizes:
            assert size is not None
            self.note(joined, "put", tuple(range(start, start + size)))
            start += size

    def reshape(self, i: Instruction) -> None:
        (x,), result = i.operands, i.result
        grouped: tuple[set[int], set[int]] = (set(), set())
        for before, after in reshape_groups(x.type.shape, result.type.shape, self.size):
            axes = [*((x, a) for a in before), *((result, a) for a in after)]
            if all(map(self.is_short, axes)):
                self.connect(*axes)
            grouped[0].update(before if all(map(self.is_short, axes)) else ())
        for a in range(x.type.rank):
            if a not in grouped[0]:
                self.note((x, a), "complete")

    def control(self, i: Instruction) -> None:
        """Connect the operands, parameters and results of a loop or a switch."""
        params, results = i.params, list(i.results)
        if isinstance(i.op, Switch):
            self.complete(i.operands[:1])
            for operand, *parameters in zip(i.operands[1:], *(r.parameters for r in i.regions), strict=True):
                self.same(operand, *parameters)
            for result, *inner in zip(results, *(r.results for r in i.regions), strict=True):
                self.same(result, *inner)
            for region in i.regions:
                self.block(region, "")
            return
        assert isinstance(i.op, Loop)
        first, carried = i.op.first(params), params["carried"]
        sliced = params.get("sliced", 0)
        *conditions, body = i.regions
        for k, operand in enumerate(i.operands[first:]):
            if carried <= k < carried + sliced:
                if isinstance(operand.type, StackType):
                    self.same(operand, *(r.parameters[1 + k] for r in i.regions))
                else:
                    self.complete([operand], "sequence")
            else:
                self.same(operand, *(r.parameters[1 + k] for r in i.regions))
                for a in range(len(operand.type.shape)):
                    self.note((operand, a), "work")
        for k in range(carried):
            self.same(results[k], body.results[k], i.operands[first + k])
        rows = results[carried if isinstance(i.op, Scan) else carried + 1 :]
        for result, row in zip(rows, body.results[carried:], strict=True):
            if isinstance(result.type, StackType):
                self.same(result, row)
            else:
                self.complete([row], "returned")
        for region in conditions:
            self.block(region, "")
        self.block(body, "")


class _Choice:
    """The choice of connected axes that are split."""

    def __init__(self, connections: _Connections) -> None:
        self.c = connections
        self.uses: dict[Axis, _Uses] = {}
        for axis in connections.parent:
            uses = self.uses.setdefault(connections.find(axis), _Uses())
            uses.axes.append(axis)
            uses.is_named |= isinstance(axis[0].type.shape[axis[1]], str)
        for axis, kind, data in connections.events:
            self.count(axis, kind, data)

    def root(self, axis: Axis) -> Axis | None:
        return self.c.find(axis) if axis in self.c.parent else None

    def count(self, axis: Axis, kind: str, data: Any) -> None:
        """Count one use."""
        uses = self.uses[self.c.find(axis)]
        extent = self.c.size(axis[0].type.shape[axis[1]])
        assert extent is not None
        match kind:
            case "take" | "put" if len(data) < extent:
                uses.positions.add((data, extent))
                uses.takes += kind == "take"
                uses.puts += kind == "put"
            case "work":
                uses.work += extent
            case "complete":
                uses.complete += 1
            case "indexed":
                uses.complete += extent
            case "updated":
                uses.complete += 2 * extent
            case "stack":
                uses.is_stack = True
            case "returned" | "sequence":
                uses.returned += 1

    def run(self) -> dict[Value, tuple[int, ...]]:
        outer = {root for root, uses in self.uses.items() if self.has_components(uses)}
        if not outer:
            return {}
        values = [v for v in self.c.values if any((v, a) in self.c.parent for a in range(len(v.type.shape)))]
        chosen = self.with_inner(outer, values)
        for _ in range(ROUNDS):
            dropped = {root for root in chosen if not self.is_worthwhile(root, chosen, root in outer)}
            dropped |= self.too_many(chosen, values)
            if not dropped:
                break
            chosen -= dropped
        chosen -= self.too_many(chosen, values)
        result = {v: self.axes_of(v, chosen) for v in values}
        return {v: axes for v, axes in result.items() if axes}

    def has_components(self, uses: _Uses) -> bool:
        """Return whether the program extracts or assembles components along axes."""
        if not uses.takes + uses.puts or not uses.puts + uses.work:
            return False
        if not uses.is_named:
            return True
        covered: dict[tuple[int, int], set[int]] = {}
        for positions, extent in uses.positions:
            if positions[0] % len(positions) == 0 and extent % len(positions) == 0:
                covered.setdefault((extent, len(positions)), set()).add(positions[0])
        return any(len(starts) > 1 and 2 * len(starts) * part >= extent for (extent, part), starts in covered.items())

    def with_inner(self, chosen: set[Axis], values: Sequence[Value]) -> set[Axis]:
        """Add axes of a few elements of values that become scalars with them."""
        chosen = set(chosen)
        for value in values:
            extents = [self.c.size(e) for e in value.type.shape]
            count = 1
            for extent in extents:
                count *= MOST_PARTS + 1 if extent is None else extent
            roots = [self.root((value, a)) for a in range(len(extents))]
            if 0 < count <= MOST_PARTS and None not in roots and any(r in chosen for r in roots):
                inner = [r for r, e in zip(roots, extents, strict=True) if e is not None and e <= MOST_INNER]
                chosen.update(r for r in inner if r is not None)
        return chosen

    def axes_of(self, value: Value, chosen: set[Axis]) -> tuple[int, ...]:
        return tuple(a for a in range(len(value.type.shape)) if self.root((value, a)) in chosen)

    def parts_of(self, value: Value, chosen: set[Axis]) -> int:
        count = 1
        for a in self.axes_of(value, chosen):
            count *= self.c.size(value.type.shape[a]) or 1
        return count

    def too_many(self, chosen: set[Axis], values: Sequence[Value]) -> set[Axis]:
        """Return the axes to be left unsplit because a value would have too many parts: of such a value, all but the ones whose
        parts are most often taken out or put in."""
        dropped: set[Axis] = set()
        for value in values:
            axes = self.axes_of(value, chosen - dropped)
            if len(axes) > 1 and self.parts_of(value, chosen - dropped) > MOST_PARTS:
                roots = {self.c.find((value, a)) for a in axes}
                best = max(roots, key=lambda r: self.uses[r].takes + self.uses[r].puts)
                dropped |= roots - {best} if len(roots) > 1 else roots
        return dropped

    def is_worthwhile(self, root: Axis, chosen: set[Axis], is_outer: bool) -> bool:
        """Return whether splitting connected axes removes more work than it adds."""
        uses = self.uses[root]
        if uses.is_stack:
            return False
        moved = uses.takes + uses.puts
        are_scalars = all(len(self.axes_of(v, chosen)) == len(v.type.shape) for v, _ in uses.axes)
        if are_scalars:
            return uses.complete <= moved and (not is_outer or uses.work <= FREE_WORK + WORK_PER_PART * moved)
        return is_outer and not uses.complete and bool(uses.takes and uses.puts)
