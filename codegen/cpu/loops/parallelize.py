"""chunk: cut the outermost loops of a kernel into chunks of iterations, which the worker pool runs in parallel.

Requires: a kernel for the CPU whose functions are expanded. Keeps: its meaning. A loop is cut if its iterations are
independent and write disjoint memory (proved, or promised by the param ``independent``) or scratch, which becomes private to
each chunk. A reduction becomes a partial result per chunk in a kernel-local buffer, and a loop after it combines these in
order.

The kernel computes the number of chunks from the extents and a nominal cost of an iteration, never from the number of threads,
so results do not depend on that. Loops too short for a second thread are one chunk, others 4, 16 or 64. Chunks of elements
begin at multiples of 64, so that only the last one has a partial vector and no cache line is written by two threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from pullback.codegen.analysis.independence import OWN, PRIVATE, Loops, is_independent
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, I64, DType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall, ColdFunction
from pullback.ir.ops.kernel.functions import Call
from pullback.ir.ops.kernel.kernel import MAX_PRIVATE_BYTES, Extent, Fail, For, Load, Store, combined_values
from pullback.ir.ops.library.routines import Library

UNIT = 32
"""Cost units per cycle."""
LEAST_COST = UNIT << 17
"""Cost from which a loop is cut into 4 chunks, about 30 us; 4 times as much gives 16 chunks, and 16 times as much gives 64."""
HOT_DIVISOR = 4
"""Divisor of ``LEAST_COST`` in kernels that are launched in loops, where the threads stay awake between launches."""
SHIFTS = (2, 4, 6)
"""Logarithms of the numbers of chunks."""
MOST_CHUNKS = 1 << SHIFTS[-1]
ALIGNMENT = 64
"""Elements of which a chunk of elements has a multiple."""

IDENTITY = {op.combine: op.identity for op in OPS.values() if isinstance(op, Reduce)}
"""By combiner, a function from a dtype to its identity."""

# Nominal costs per f64 in a vector loop; a scalar op costs 8 times as much, and other dtypes cost in proportion to their bytes.
PLAIN, DIVISION, MEMORY, CALL = 2, 32, 12, 80 * UNIT
ALONE, ITERATION, LOOP = 8, 2 * UNIT, 20 * UNIT
PRODUCT, LIBRARY_CALL = 4, 100 * UNIT
DEFAULT_TRIP_COUNT = 16
"""The trip count assumed for an inner loop that has neither a known count nor the param ``trip_count``."""


def chunk(block: Block) -> Block:
    """Return a kernel's body with its outermost loops cut."""
    loops = Loops(block)
    instructions: list[Instruction] = []
    cold = {i.params["function"]: i.regions[0] for i in block.instructions if isinstance(i.op, ColdFunction)}
    for i in block.instructions:
        fates = _fates(loops, i)
        if fates is not None:
            scratch = [ref for ref, fate in fates.items() if fate == PRIVATE]
            _ChunkedLoop(loops, Builder(i.loc, instructions), i, scratch, cold).run()
        else:
            instructions.append(i)
    return replace(block, instructions=tuple(instructions))


def _fates(loops: Loops, i: Instruction) -> dict[Value, str] | None:
    """Return, by reference that a loop writes, whether it is disjoint or private memory; None if the loop must not be cut."""
    if not is_independent(i) or i.params.get("map") is not None:
        return None
    if i.params.get("independent"):
        return {}
    fates = loops.fates([i])
    return fates if fates is not None and set(fates.values()) <= {OWN, PRIVATE} else None


def is_several(count: Value, producers: Mapping[Value, Instruction]) -> Value | None:
    """Return the condition under which a number of chunks, which ``_ChunkedLoop.sizes`` emitted, is above one: the work is at
    least the first threshold. None if that is not the only one. ``producers``: the instructions by their results."""
    power = producers.get(count)
    if power is None or power.op is not OPS["raw_shl"] or (shift := producers.get(power.operands[1])) is None:
        return None
    condition: Value | None = None
    works = set[Value]()
    while shift.op is OPS["select"]:
        condition, _, smaller = shift.operands
        test = producers.get(condition)
        if test is None or test.op is not OPS["ge"] or smaller not in producers:
            return None
        works.add(test.operands[0])
        shift = producers[smaller]
    return condition if len(works) == 1 and isinstance(shift.op, Constant) and shift.params["value"] == 0 else None


def whole_range(i: Instruction) -> tuple[Value, Value, Value] | None:
    """Return the first iteration and the number of iterations of a chunk, in the body of a loop over chunks, and the number of
    all iterations, which a single chunk has; None if they are computed otherwise than by ``_ChunkedLoop.run``."""
    at = i.regions[0].parameters[0]
    steps = [k for k in i.regions[0].instructions if not isinstance(k.op, Constant)][:4]
    if [k.op.name for k in steps] != ["mul", "minimum", "sub", "minimum"]:
        return None
    start, first, rest, part = steps
    size, count = start.operands[1], first.operands[1]
    is_range = start.operands[0] is at and first.operands[0] is start.result and rest.operands == (count, first.result)
    return (first.result, part.result, count) if is_range and part.operands == (size, rest.result) else None


@dataclass
class Cost:
    """A cost as a sum of products: a coefficient times the values of trip counts."""

    terms: dict[tuple[Value, ...], int] = field(default_factory=dict)

    def add(self, other: Cost, times: int = 1, count: Value | None = None) -> None:
        """Add ``times`` another cost, multiplied by the trip count ``count`` if there is one."""
        for counts, coefficient in other.terms.items():
            key = counts if count is None else (*counts, count)
            self.terms[key] = self.terms.get(key, 0) + times * coefficient

    @staticmethod
    def of(value: int) -> Cost:
        """Return a constant cost."""
        return Cost({(): value})


class _ChunkedLoop:
    """One loop in chunks.

    ``b`` appends to the enclosing block. ``scratch``: memory that each iteration writes, then reads. ``cold``: the functions
    that the loop rarely calls.
    """

    def __init__(self, loops: Loops, b: Builder, i: Instruction, scratch: Sequence[Value], cold: Mapping[str, Block]) -> None:
        self.loops, self.b, self.i, self.scratch, self.cold = loops, b, i, scratch, cold
        self.costs: dict[tuple[str, bool], Cost] = {}
        inner = list(walk(i.regions[0]))
        regions = (i.regions[0], *(r for k in inner for r in k.regions))
        self.inside = {v for k in inner for v in k.results} | {v for r in regions for v in r.parameters}
        self.extents: dict[object, Value] = {}
        self.constants: dict[int, Value] = {}

    def run(self) -> None:
        """Emit the loop over chunks, or the loop itself if it always has one chunk."""
        b, (count, *initial) = self.b, self.i.operands
        chunk_count, size = self.sizes(count)
        if chunk_count is None:
            b.append(self.i)
            return
        partials = [b.local(dtype=v.type.dtype, shape=(MOST_CHUNKS,)) for v in initial]
        at = Value(scalar(I64), "c")
        inner = Builder(self.i.loc)
        first = inner.minimum(inner.mul(at, size), count)
        results = self.part(inner, first, inner.minimum(size, inner.sub(count, first)))
        for value, partial in zip(results, partials, strict=True):
            inner.store(value, partial, at)
        b.emit(OPS["for"], (chunk_count,), {"map": "core"}, [inner.block([at], [])])
        if partials:
            self.join(chunk_count, initial, partials)

    def part(self, b: Builder, first: Value, count: Value) -> tuple[Value, ...]:
        """Emit the loop over the iterations of one chunk; return its reductions."""
        (region,) = self.i.regions
        params = {name: value for name, value in self.i.params.items() if name != "hot"}
        position, old = Value(scalar(I64), region.parameters[0].name), region.parameters[0]
        shifted = Builder(self.i.loc)
        env = {old: shifted.add(position, first), **{ref: b.private(ref) for ref in self.scratch}}
        for k in region.instructions:
            shifted.append(_with_operands(k, env))
        body = shifted.block([position], [env.get(v, v) for v in region.results])
        operands = (count, *self.identities(b))
        results = tuple(Value(v.type, v.name) for v in self.i.results)
        b.append(Instruction(self.i.op, operands, results, params, (body,), self.i.loc))
        return results

    def identities(self, b: Builder) -> list[Value]:
        """Return the start values of the loop's reductions."""
        start_values = []
        for name, values in combined_values(self.i.params.get("combine", ()), self.i.results):
            dtype = values[0].type.dtype
            start_values.append(b.const(IDENTITY[name](dtype), dtype))
            start_values += [b.const(-1, I64) for _ in values[1:]]
        return start_values

    def join(self, chunk_count: Value, initial: Sequence[Value], partials: Sequence[Value]) -> None:
        """Emit the loop that combines the chunks' results in order, one by one: there is mostly a single one, which has just been
        stored, and a vector could not be loaded before that is in memory."""
        inner, at = Builder(self.i.loc), Value(scalar(I64), "c")
        body = inner.block([at], [inner.load(partial, at) for partial in partials])
        params = {name: value for name, value in self.i.params.items() if name != "hot"} | {"map": "serial"}
        self.b.append(Instruction(self.i.op, (chunk_count, *initial), self.i.results, params, (body,), self.i.loc))

    # the number of chunks

    def sizes(self, count: Value) -> tuple[Value | None, Value]:
        """Return the number of chunks and the iterations of each; the number is None if it is always one."""
        b = self.b
        cost = self.cost(self.i.regions[0], self.is_vector(self.i))
        static_count = self.literal(count)
        if static_count is not None and set(cost.terms) == {()} and not self.scratch:
            most = self.static_shift(static_count * cost.terms[()])
            if not most:
                return None, count
            shift = self.constant(most)
        else:
            shift = self.shift(cost, count)
        chunks = b.raw_shl(self.constant(1), shift)
        size = b.raw_shr(b.add(count, b.sub(chunks, self.constant(1))), shift)
        if not any(k.regions for k in self.i.regions[0].instructions) or self.is_vector(self.i):
            size = b.bitand(b.add(size, self.constant(ALIGNMENT - 1)), self.constant(-ALIGNMENT))
        if not self.i.results and self.is_chosen(count):
            chunks = b.select(b.gt(count, self.constant(0)), chunks, self.constant(0))
        return chunks, size

    def is_chosen(self, count: Value) -> bool:
        """Return whether a trip count depends on a condition, as in one variant of several: if it is 0, nothing is called."""
        seen, worklist = {count}, [count]
        while worklist:
            producer = self.loops.defined.get(worklist.pop())
            if producer is not None:
                if producer.op is OPS["select"]:
                    return True
                new = [v for v in producer.operands if v not in seen]
                seen.update(new)
                worklist += new
        return False

    def shift(self, cost: Cost, count: Value) -> Value:
        """Emit the logarithm of the number of chunks."""
        b, shift = self.b, self.constant(0)
        if set(cost.terms) == {()}:
            work, unit_cost, least_count = count, cost.terms[()], 2
        else:
            work, unit_cost, least_count = b.mul(self.total_of(cost), count), 1, 1
        for least, chunk_shift in zip(self.thresholds, SHIFTS, strict=True):
            least_work = max(least_count, -(-least // unit_cost))
            shift = b.select(b.ge(work, self.constant(least_work)), self.constant(chunk_shift), shift)
        for ref in self.scratch:
            size = self.constant(ref.type.dtype.bytes)
            for extent in ref.type.shape:
                size = b.mul(size, self.constant(extent) if isinstance(extent, int) else self.extent(extent))
            shift = b.select(b.gt(size, self.constant(MAX_PRIVATE_BYTES)), self.constant(0), shift)
        return shift

    def static_shift(self, work: int) -> int:
        """Return the logarithm of the number of chunks of a loop whose cost is known."""
        return max((shift for least, shift in zip(self.thresholds, SHIFTS, strict=True) if work >= least), default=0)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Return the least cost of a loop for each number of chunks."""
        least, *others = (LEAST_COST << 2 * k for k in range(len(SHIFTS)))
        return (least // HOT_DIVISOR if self.i.params.get("hot") else least, *others)

    def total_of(self, cost: Cost) -> Value:
        """Emit the value of a cost."""
        total: Value | None = None
        for counts, coefficient in cost.terms.items():
            term = self.constant(coefficient)
            for count in counts:
                term = self.b.mul(term, count)
            total = term if total is None else self.b.add(total, term)
        assert total is not None
        return total

    def constant(self, value: int) -> Value:
        """Return a constant of the enclosing block, emitted once."""
        if value not in self.constants:
            self.constants[value] = self.b.const(value, I64)
        return self.constants[value]

    # costs

    def literal(self, value: Value) -> int | None:
        """Return the value of a constant or of a static extent, else None."""
        producer = self.loops.defined.get(value)
        if producer is None:
            return None
        if isinstance(producer.op, Constant):
            return int(producer.params["value"])
        size = producer.params.get("size") if isinstance(producer.op, Extent) else None
        return size if isinstance(size, int) else None

    def count_before_loop(self, count: Value) -> Value | None:
        """Return a trip count that is available before the loop, else None. One from memory is not: the sizes alone must decide
        whether the code for several chunks is reached."""
        if count not in self.inside:
            producer = self.loops.defined.get(count)
            return None if producer is not None and isinstance(producer.op, Load) else count
        producer = self.loops.defined.get(count)
        return self.extent(producer.params["size"]) if producer is not None and isinstance(producer.op, Extent) else None

    def extent(self, size: object) -> Value:
        """Return a size, emitted once in the enclosing block."""
        if size not in self.extents:
            self.extents[size] = self.b.emit(OPS["extent"], (), {"size": size})[0]
        return self.extents[size]

    def is_vector(self, i: Instruction) -> bool:
        """Return whether a loop will be a vector loop. Its inner loops may only be recurrences, of which each lane runs one."""
        body = list(walk(i.regions[0]))
        is_plain = all(_is_recurrence(k) if isinstance(k.op, For) else not isinstance(k.op, Library | Call) for k in body)
        has_loops = any(isinstance(k.op, For) for k in body)
        return is_independent(i) and is_plain and (not has_loops or all(isinstance(k.op, _IN_LANES) for k in body))

    def cost(self, block: Block, is_vector: bool) -> Cost:
        """Return the nominal cost of one execution of a block."""
        total = Cost.of(PLAIN if is_vector else ITERATION)
        for i in block.instructions:
            match i.op:
                case For():
                    self.add_loop(total, i, is_vector)
                case Library():
                    self.add_library(total, i)
                case ColdCall():
                    total.add(self.cost_of_cold(i.params["function"], is_vector))
                case _:
                    for region in i.regions:
                        total.add(self.cost(region, is_vector))
                    total.add(Cost.of(_cost_of(i) * (1 if is_vector else ALONE)))
        return total

    def cost_of_cold(self, function: str, is_vector: bool) -> Cost:
        """Return the cost of a rarely called function."""
        if (function, is_vector) not in self.costs:
            self.costs[function, is_vector] = self.cost(self.cold[function], is_vector)
        return self.costs[function, is_vector]

    def add_loop(self, total: Cost, i: Instruction, is_in_vector: bool) -> None:
        """Add the cost of an inner loop. ``is_in_vector``: whether lanes of a vector loop run it together."""
        inner, count = self.cost(i.regions[0], is_in_vector or self.is_vector(i)), i.operands[0]
        static_count, dynamic_count = self.literal(count), self.count_before_loop(count)
        total.add(Cost.of(LOOP // ALONE if is_in_vector else LOOP))
        if static_count is not None or dynamic_count is None:
            total.add(inner, i.params.get("trip_count", DEFAULT_TRIP_COUNT) if static_count is None else static_count)
        else:
            total.add(inner, 1, dynamic_count)

    def add_library(self, total: Cost, i: Instruction) -> None:
        """Add the cost of a routine: the extents of its first reference times the last extent of its last, as in a matrix
        product."""
        shapes = [v.type.shape for v in i.operands if v.type.shape]
        extents = (*shapes[0], shapes[-1][-1] if len(shapes[0]) > 1 else DEFAULT_TRIP_COUNT) if shapes else ()
        static_size = math.prod(e for e in extents if isinstance(e, int))
        counts = tuple(self.extent(e) for e in extents if not isinstance(e, int))
        total.add(Cost({counts: PRODUCT * static_size}))
        total.add(Cost.of(LIBRARY_CALL))


def _cost_of(i: Instruction) -> int:
    """Return the nominal cost of an instruction per element of a vector."""
    if isinstance(i.op, Load | Store):
        ref = i.operands[1 if isinstance(i.op, Store) else 0].type
        return max(1, MEMORY * _bytes(ref.dtype) // 8)
    if isinstance(i.op, Fail) or not isinstance(i.op, Elementwise):
        return 0
    dtype = i.operands[0].type.dtype if i.operands else BOOL
    spelling = i.op.template("llvm", dtype.kind)
    if spelling.startswith("ufunc:"):
        return CALL
    unit_cost = DIVISION if i.op.name in ("div", "div_in_range", "sqrt", "idiv") else PLAIN
    return max(1, unit_cost * _bytes(dtype) // 8)


_IN_LANES = (Elementwise, Constant, Extent, Load, Store, For, ColdCall)
"""The ops of a loop over recurrences."""


def _is_recurrence(i: Instruction) -> bool:
    """Return whether a loop carries values from iteration to iteration, in order, and is not scheduled yet."""
    return bool(i.results) and not {"combine", "scan", "map"} & i.params.keys()


def _bytes(dtype: DType) -> int:
    """Return the bytes of an element in memory."""
    return 1 if dtype.is_bool else dtype.bytes


def _with_operands(i: Instruction, env: dict[Value, Value]) -> Instruction:
    """Return an instruction, with its regions, whose operands are replaced."""
    if not i.regions and env.keys().isdisjoint(i.operands):
        return i
    regions = tuple(
        Block(r.parameters, tuple(_with_operands(k, env) for k in r.instructions), tuple(env.get(v, v) for v in r.results))
        for r in i.regions
    )
    return Instruction(i.op, tuple(env.get(v, v) for v in i.operands), i.results, i.params, regions, i.loc)
