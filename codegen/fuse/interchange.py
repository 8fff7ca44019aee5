"""interchange: turn a scan over elementwise iterations into one kernel, in which each element runs through all iterations.

Requires: a scan whose region is fused. Keeps: its meaning, to the bit. If every group of the region computes elements of one
shape, or scalars, each from the elements at its own index, the loop over iterations and the loop over elements can be
exchanged: the carried elements then stay in registers, and vectors of elements run through the iterations independently. A
scan that stores rows is one kernel whatever its length; other scans are cut into strips.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.fuse.rematerialize import weight
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, copy_block, substitute_values
from pullback.ir.core.types import I64, ArrayType, Extent, Shape, interleaved, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave, Reinterpret, component
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reindex import Reindex, broadcast
from pullback.ir.ops.control.loops import Scan, elementwise_scan
from pullback.ir.ops.control.regions import Group, group
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced, replay

STRIP = 256
"""Most iterations in one kernel. Between kernels the program polls for Ctrl-C; 256 passes over 10^7 elements in cache take about
a second."""
MOST_WEIGHT = 400
"""Greatest weight of an iteration (``rematerialize.weight``). The values of a heavier one do not stay in registers."""
MOST_SCALARS = 4
"""Greatest ratio of the weight of an iteration's scalars to that of its elements: the kernel computes the scalars again for
each few vectors."""


def interchange_loops(function: Function) -> Function:
    """Return a function whose scans over elementwise iterations are kernels."""
    bodies = {i: body for i in function.instructions if isinstance(i.op, Scan) and (body := _flat_body(i)) is not None}
    return replaced(function, bodies.__contains__, lambda b, i, new: _Interchange(b, i, bodies[i], new).run())


def _flat_body(i: Instruction) -> Block | None:
    """Return the region of a scan with the contents of its groups, or None if an iteration is not elementwise. A complex state is
    two parameters, its parts, a complex capture is an array of pairs, and a sequence is a capture whose rows are gathered."""
    (region,) = i.regions
    states, rows = region.parameters[1 : 1 + i.params["carried"]], region.results[i.params["carried"] :]
    shapes = {v.type.shape for v in states if v.type.shape}
    are_arrays = all(isinstance(v.type, ArrayType) for v in (*i.operands, *i.results))
    if i.params.get("checkpoint") or len(shapes) != 1 or not are_arrays:
        return None
    (space,) = shapes
    if any(v.type.dtype.is_complex or v.type.shape != space for v in rows):
        return None
    flat = _Flattening(i)
    if flat.has_complex_rows or not all(flat.add(k, space) for k in region.instructions):
        return None
    results = flat.results()
    if results is None:
        return None
    body = Block(tuple(flat.parameters), tuple(flat.b.instructions), results)
    return body if _is_elementwise(body, space, 1 + len(results) - len(rows)) else None


class _Flattening:
    """The contents of the groups of a region, with complex values as pairs of real ones."""

    def __init__(self, i: Instruction) -> None:
        (region,) = i.regions
        self.b, self.region, self.carried = Builder(i.loc), region, i.params["carried"]
        self.env: dict[Value, Value] = {}
        self.pairs: dict[Value, tuple[Value, ...]] = {}
        self.parameters: list[Value] = []
        sequences = range(1 + self.carried, 1 + self.carried + i.params["sliced"])
        self.has_complex_rows = any(region.parameters[k].type.dtype.is_complex for k in sequences)
        operands = i.operands if i.params["length"] else i.operands[1:]
        for k, v in enumerate(region.parameters):
            assert isinstance(v.type, ArrayType)
            if k in sequences:
                self.parameters.append(Value(operands[k - 1].type, v.name))
                self.env[v] = self.b.gather(self.parameters[-1], region.parameters[0], axes=(0,), in_range=(0,))
            elif not v.type.dtype.is_complex:
                self.env[v] = v
                self.parameters.append(v)
            elif k <= self.carried:
                part = ArrayType(v.type.dtype.part, v.type.shape)
                self.pairs[v] = Value(part, f"{v.name}_re" if v.name else ""), Value(part, f"{v.name}_im" if v.name else "")
                self.parameters += self.pairs[v]
            else:
                self.env[v] = Value(interleaved(v.type), v.name)
                self.parameters.append(self.env[v])

    def add(self, i: Instruction, space: Shape) -> bool:
        """Add an instruction of the region; return whether that is possible."""
        if isinstance(i.op, Reinterpret):
            return self.renamed(i)
        if not isinstance(i.op, Group) or i.params["rows"] or tuple(i.params["space"]) not in (space, ()):
            return False
        (inner,) = i.regions
        for parameter, operand in zip(inner.parameters, i.operands, strict=True):
            self.rename(parameter, operand)
        for k in inner.instructions:
            if _joins_parts(k) and all(v in self.env for v in k.operands):
                self.pairs[k.result] = tuple(self.env[v] for v in k.operands)
            elif k.op is component and k.operands[0] in self.pairs:
                self.env[k.result] = self.pairs[k.operands[0]][k.params["index"]]
            elif all(v in self.env for v in k.operands):
                self.env.update(zip(k.results, replay(self.b, k, [self.env[v] for v in k.operands]), strict=True))
            else:
                return False
        for result, value in zip(i.results, inner.results, strict=True):
            self.rename(result, value)
        return True

    def renamed(self, i: Instruction) -> bool:
        """Name the result of a view as its operand; return whether that has the parts of complex numbers."""
        (operand,) = i.operands
        self.rename(i.result, operand)
        is_capture = operand in self.region.parameters[1 + self.carried :] and operand.type.dtype.is_complex
        return operand in self.pairs or is_capture

    def rename(self, name: Value, value: Value) -> None:
        """Give the contents of a value another name."""
        if value in self.env:
            self.env[name] = self.env[value]
        if value in self.pairs:
            self.pairs[name] = self.pairs[value]

    def results(self) -> tuple[Value, ...] | None:
        """Return the carried values at the end of an iteration, or None if one is not computed in parts."""
        results: list[Value] = []
        for v in self.region.results:
            if v not in (self.pairs if v.type.dtype.is_complex else self.env):
                return None
            results += self.pairs[v] if v.type.dtype.is_complex else [self.env[v]]
        return tuple(results)


def _joins_parts(i: Instruction) -> bool:
    """Return whether an instruction joins two arrays along a new last axis, as the parts of complex numbers are."""
    rank = i.operands[0].type.rank if i.operands else 0
    return isinstance(i.op, Interleave) and len(i.operands) == 2 and i.params.get("axis", rank) == rank


def _is_elementwise(body: Block, space: Shape, moving: int) -> bool:
    """Return whether a body computes elements from scalars and from elements at the same index, and is worth a kernel.
    ``moving``: the number of leading parameters that differ from iteration to iteration."""
    varying = set(body.parameters[:moving])
    work = {True: 0, False: 0}
    for i in body.instructions:
        if len(i.results) != 1:
            return False
        varies = not varying.isdisjoint(i.operands)
        if varies:
            varying.update(i.results)
        shape = i.result.type.shape
        match i.op:
            case Constant():
                pass
            case Elementwise() if shape in (space, ()):
                work[bool(shape)] += weight(i) if varies else 0
            case Reindex() if i.op is broadcast and not i.operands[0].type.shape:
                pass
            case Reindex() if not varies and shape in (space, ()):
                pass
            case Gather() if shape in (space, ()) and i.operands[0] in body.parameters[moving:]:
                work[bool(shape)] += 1
            case _:
                return False
    return work[False] <= MOST_SCALARS * work[True] and work[True] <= MOST_WEIGHT


class _Interchange:
    """The kernels of a scan whose flat body is elementwise."""

    def __init__(self, b: Builder, i: Instruction, body: Block, new: New) -> None:
        self.b, self.i, self.body = b, i, body
        self.is_reverse, self.length = i.params["reverse"], tuple(i.params["length"])
        self.count = None if self.length else new(i.operands[0])
        operands = tuple(map(new, i.operands if self.length else i.operands[1:]))
        states, captures = operands[: i.params["carried"]], operands[i.params["carried"] :]
        self.states = tuple(part for v in states for part in self.parts(v))
        self.has_rows = len(body.results) > len(self.states)
        self.captures = tuple(b.view_as_real(v) if v.type.dtype.is_complex else v for v in captures)
        index = body.parameters[0]
        self.reads_position = index in body.results or any(index in k.operands for k in body.instructions)

    def parts(self, value: Value) -> tuple[Value, ...]:
        """Return the arrays that are carried for a state: its parts, if it is complex."""
        if not value.type.dtype.is_complex:
            return (value,)
        pairs = self.b.view_as_real(value)
        return self.b.component(pairs, index=0), self.b.component(pairs, index=1)

    def run(self) -> list[Value]:
        """Append the kernels; return the results of the scan."""
        values = iter(self.kernels())
        results: list[Value] = []
        for v in self.i.results:
            is_complex = v.type.dtype.is_complex
            results.append(self.b.view_as_complex(self.b.interleave(next(values), next(values))) if is_complex else next(values))
        return results

    def kernels(self) -> tuple[Value, ...]:
        """Append the kernels; return the carried values at the end."""
        if self.has_rows or (self.length and isinstance(self.length[0], int) and self.length[0] <= STRIP):
            return self.kernel(self.b, (), self.states, self.captures, ())
        return self.strips()

    def kernel(
        self, b: Builder, count: Sequence[Value], states: Sequence[Value], captures: Sequence[Value], starts: Sequence[Value]
    ) -> tuple[Value, ...]:
        """Append the kernel of ``count`` iterations, or of all, as where rows are stored. ``starts``: the position of the first
        one, if that varies."""
        index, *others = self.body.parameters
        inner, step = Builder(self.i.loc), Value(index.type, index.name)
        first = [Value(v.type, "start") for v in starts]
        position = step
        is_reverse = self.is_reverse and self.has_rows
        if self.is_reverse and self.reads_position and not is_reverse:
            position = inner.sub(first[0] if first else inner.const(self.length[0] - 1, I64), step)
        elif first:
            position = inner.add(first[0], step)
        body = substitute_values(self.body, {index: position})
        region = copy_block(Block((step, *others, *first), (*inner.instructions, *body.instructions), body.results))
        params = {"carried": len(states), "sliced": 0, "length": () if count else self.length, "reverse": is_reverse}
        return b.emit(elementwise_scan, (*count, *states, *captures, *starts), params, [region])

    def strips(self) -> tuple[Value, ...]:
        """Append a scan over strips of ``STRIP`` iterations, each of which is one kernel; return its results."""
        b, length = self.b, self.length[0] if self.length else None
        total = [] if isinstance(length, int) else [b.count(shape=self.length) if self.count is None else self.count]
        strips = [b.floordiv(b.add(v, b.const(STRIP - 1, I64)), b.const(STRIP, I64)) for v in total]
        inner, strip = Builder(self.i.loc), Value(scalar(I64), "strip")
        states, captures, totals = ([Value(v.type, v.name) for v in values] for values in (self.states, self.captures, total))
        start, count = inner.emit(group, (strip, *totals), {"rows": 0, "space": ()}, [self.part(length)])
        results = self.kernel(inner, [count], states, captures, [start] if self.reads_position else [])
        region = inner.block([strip, *states, *captures, *totals], results)
        lengths = (-(-length // STRIP),) if isinstance(length, int) else ()
        params = {"carried": len(states), "sliced": 0, "length": lengths, "reverse": False}
        return b.emit(OPS["scan"], (*strips, *self.states, *self.captures, *total), params, [region])

    def part(self, length: Extent | None) -> Block:
        """Return the block that computes the first position of a strip and its number of iterations, of the strip and, if it is
        not known, the number of all iterations."""
        b, strip = Builder(self.i.loc), Value(scalar(I64), "strip")
        total = b.const(length, I64) if isinstance(length, int) else Value(scalar(I64), "n")
        most = b.const(STRIP, I64)
        first = b.mul(strip, most)
        left = b.sub(total, first)
        start = b.sub(left, b.const(1, I64)) if self.is_reverse else first
        return b.block([strip] if isinstance(length, int) else [strip, total], [start, b.minimum(left, most)])
