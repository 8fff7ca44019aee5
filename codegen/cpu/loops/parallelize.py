"""chunk: the outermost loops of a kernel become loops over chunks of iterations, which threads can share out.

Requires: a kernel for the CPU whose functions are spelled out. Keeps: its meaning. A loop is cut if its iterations are
independent and write memory of their own, which is seen or promised by the param ``independent``, or scratch, of which each chunk
has its own. What it combines becomes a partial result for each chunk, in memory of the kernel's own, and a loop after it joins
these in order.

Into how many chunks is computed by the kernel, from the extents and a nominal cost of an iteration, never from the number of
threads: so results do not depend on that. Loops too short to be worth a second thread are one chunk, others 4, 16 or 64. Chunks
of elements begin at multiples of 64, so that only the last has a tail and no cache line is written by two threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.codegen.analysis.independence import OWN, PRIVATE, Loops, is_independent
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, I64, DType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall, ColdFunction
from pullback.ir.ops.kernel.functions import Call
from pullback.ir.ops.kernel.kernel import MOST_PRIVATE, Extent, Fail, For, Load, Store, combined_values
from pullback.ir.ops.library.routines import Library

UNIT = 32
"""Costs are in parts of a cycle, this many a cycle."""
LEAST = UNIT << 17
"""What a loop must cost to be cut: 4 chunks from here on, 16 from 4 times and 64 from 16 times as much; some 30 us."""
OFTEN = 4
"""In kernels that loops launch, between whose runs threads stay awake, so many times less is enough."""
SHIFTS = (2, 4, 6)
MOST_CHUNKS = 1 << SHIFTS[-1]
ALIGNMENT = 64

IDENTITY = {op.combine: op.identity for op in OPS.values() if isinstance(op, Reduce)}

# Nominal costs of an f64 in a vector; of an op alone 8 times that, of other dtypes in proportion to their bytes.
PLAIN, DIVISION, MEMORY, CALL = 2, 32, 12, 80 * UNIT
ALONE, ITERATION, LOOP = 8, 2 * UNIT, 20 * UNIT
PRODUCT, LIBRARY_CALL = 4, 100 * UNIT
GUESS = 16
"""The trip count of a loop that only its surroundings know, and whose maker says nothing (``trip_count``)."""


def chunk(block: Block) -> Block:
    """A kernel's body with its outermost loops cut."""
    loops = Loops(block)
    made: list[Instruction] = []
    cold = {i.params["function"]: i.regions[0] for i in block.instructions if isinstance(i.op, ColdFunction)}
    for i in block.instructions:
        fates = _fates(loops, i)
        if fates is not None:
            scratch = [ref for ref, fate in fates.items() if fate == PRIVATE]
            _Cut(loops, Builder(i.loc, made), i, scratch, cold).run()
        else:
            made.append(i)
    return replace(block, instructions=tuple(made))


def _fates(loops: Loops, i: Instruction) -> dict[Value, str] | None:
    """What becomes of the memory that a loop writes; None if the loop must not be cut."""
    if not is_independent(i) or i.params.get("map") is not None:
        return None
    if i.params.get("independent"):
        return {}
    fates = loops.fates([i])
    return fates if fates is not None and set(fates.values()) <= {OWN, PRIVATE} else None


@dataclass
class Cost:
    """A cost as a sum of terms: a number times the values of trip counts."""

    terms: dict[tuple[Value, ...], int] = field(default_factory=dict)

    def add(self, other: Cost, times: int = 1, count: Value | None = None) -> None:
        for counts, number in other.terms.items():
            key = counts if count is None else (*counts, count)
            self.terms[key] = self.terms.get(key, 0) + times * number

    @staticmethod
    def of(number: int) -> Cost:
        return Cost({(): number})


class _Cut:
    """One loop in chunks. ``b`` appends to the block that the loop is in. ``scratch``: what each iteration writes, then reads.
    ``cold``: the functions that it rarely calls."""

    def __init__(self, loops: Loops, b: Builder, i: Instruction, scratch: Sequence[Value], cold: Mapping[str, Block]) -> None:
        self.loops, self.b, self.i, self.scratch, self.cold = loops, b, i, scratch, cold
        self.costs: dict[tuple[str, bool], Cost] = {}
        inner = list(walk(i.regions[0]))
        regions = (i.regions[0], *(r for k in inner for r in k.regions))
        self.inside = {v for k in inner for v in k.results} | {v for r in regions for v in r.parameters}
        self.extents: dict[object, Value] = {}
        self.numbers: dict[int, Value] = {}

    def run(self) -> None:
        b, (count, *initial) = self.b, self.i.operands
        number, size = self.sizes(count)
        if number is None:
            b.append(self.i)
            return
        partials = [b.local(dtype=v.type.dtype, shape=(MOST_CHUNKS,)) for v in initial]
        at = Value(scalar(I64), "c")
        inner = Builder(self.i.loc)
        first = inner.minimum(inner.mul(at, size), count)
        found = self.part(inner, first, inner.minimum(size, inner.sub(count, first)))
        for value, partial in zip(found, partials, strict=True):
            inner.store(value, partial, at)
        b.emit(OPS["for"], (number,), {"map": "core"}, [inner.block([at], [])])
        if partials:
            self.join(number, initial, partials)

    def part(self, b: Builder, first: Value, count: Value) -> tuple[Value, ...]:
        """The loop over the iterations of one chunk; what it combines to."""
        (region,) = self.i.regions
        params = {name: value for name, value in self.i.params.items() if name != "hot"}
        position, old = Value(scalar(I64), region.parameters[0].name), region.parameters[0]
        moved = Builder(self.i.loc)
        env = {old: moved.add(position, first), **{ref: b.private(ref) for ref in self.scratch}}
        for k in region.instructions:
            moved.append(_reading(k, env))
        body = moved.block([position], [env.get(v, v) for v in region.results])
        operands = (count, *self.identities(b))
        results = tuple(Value(v.type, v.name) for v in self.i.results)
        b.append(Instruction(self.i.op, operands, results, params, (body,), self.i.loc))
        return results

    def identities(self, b: Builder) -> list[Value]:
        found = []
        for name, values in combined_values(self.i.params.get("combine", ()), self.i.results):
            dtype = values[0].type.dtype
            found.append(b.const(IDENTITY[name](dtype), dtype))
            found += [b.const(-1, I64) for _ in values[1:]]
        return found

    def join(self, number: Value, initial: Sequence[Value], partials: Sequence[Value]) -> None:
        """The loop that combines the chunks' results, in order."""
        inner, at = Builder(self.i.loc), Value(scalar(I64), "c")
        body = inner.block([at], [inner.load(partial, at) for partial in partials])
        params = {name: value for name, value in self.i.params.items() if name != "hot"}
        self.b.append(Instruction(self.i.op, (number, *initial), self.i.results, params, (body,), self.i.loc))

    # how many

    def sizes(self, count: Value) -> tuple[Value | None, Value]:
        """The number of chunks and the iterations of each; None if there is always one."""
        b = self.b
        cost = self.cost(self.i.regions[0], self.is_vector(self.i))
        number = self.literal(count)
        if number is not None and set(cost.terms) == {()} and not self.scratch:
            most = self.chosen(number * cost.terms[()])
            if not most:
                return None, count
            shift = self.number(most)
        else:
            shift = self.shift(cost, count)
        chunks = b.raw_shl(self.number(1), shift)
        size = b.raw_shr(b.add(count, b.sub(chunks, self.number(1))), shift)
        if not any(k.regions for k in self.i.regions[0].instructions):
            size = b.bitand(b.add(size, self.number(ALIGNMENT - 1)), self.number(-ALIGNMENT))
        if not self.i.results and self.is_chosen(count):
            chunks = b.select(b.gt(count, self.number(0)), chunks, self.number(0))
        return chunks, size

    def is_chosen(self, count: Value) -> bool:
        """Whether a trip count goes by a condition, as that of one form of several: if it is 0, nothing is called."""
        seen, waiting = {count}, [count]
        while waiting:
            made = self.loops.defined.get(waiting.pop())
            if made is not None:
                if made.op is OPS["select"]:
                    return True
                new = [v for v in made.operands if v not in seen]
                seen.update(new)
                waiting += new
        return False

    def shift(self, cost: Cost, count: Value) -> Value:
        """The logarithm of the number of chunks."""
        b, shift = self.b, self.number(0)
        if set(cost.terms) == {()}:
            work, each = count, cost.terms[()]
        else:
            work, each = b.mul(self.value(cost), count), 1
        for least, number in zip(self.leasts, SHIFTS, strict=True):
            shift = b.select(b.ge(work, self.number(-(-least // each))), self.number(number), shift)
        for ref in self.scratch:
            size = self.number(ref.type.dtype.bytes)
            for extent in ref.type.shape:
                size = b.mul(size, self.number(extent) if isinstance(extent, int) else self.extent(extent))
            shift = b.select(b.gt(size, self.number(MOST_PRIVATE)), self.number(0), shift)
        return shift

    def chosen(self, work: int) -> int:
        return max((shift for least, shift in zip(self.leasts, SHIFTS, strict=True) if work >= least), default=0)

    @property
    def leasts(self) -> tuple[int, ...]:
        """What the loop must cost for each number of chunks."""
        least, *others = (LEAST << 2 * k for k in range(len(SHIFTS)))
        return (least // OFTEN if self.i.params.get("hot") else least, *others)

    def value(self, cost: Cost) -> Value:
        total: Value | None = None
        for counts, number in cost.terms.items():
            term = self.number(number)
            for count in counts:
                term = self.b.mul(term, count)
            total = term if total is None else self.b.add(total, term)
        assert total is not None
        return total

    def number(self, value: int) -> Value:
        """A constant of the enclosing block, each once."""
        if value not in self.numbers:
            self.numbers[value] = self.b.const(value, I64)
        return self.numbers[value]

    # costs

    def literal(self, value: Value) -> int | None:
        made = self.loops.defined.get(value)
        if made is None:
            return None
        if isinstance(made.op, Constant):
            return int(made.params["value"])
        size = made.params.get("size") if isinstance(made.op, Extent) else None
        return size if isinstance(size, int) else None

    def known(self, count: Value) -> Value | None:
        """A trip count as a value that is known before the loop."""
        if count not in self.inside:
            return count
        made = self.loops.defined.get(count)
        return self.extent(made.params["size"]) if made is not None and isinstance(made.op, Extent) else None

    def extent(self, size: object) -> Value:
        if size not in self.extents:
            self.extents[size] = self.b.emit(OPS["extent"], (), {"size": size})[0]
        return self.extents[size]

    def is_vector(self, i: Instruction) -> bool:
        inside = list(walk(i.regions[0]))
        return is_independent(i) and not any(isinstance(k.op, Library | For | Call) for k in inside)

    def cost(self, block: Block, is_vector: bool) -> Cost:
        """The nominal cost of one run of a block."""
        total = Cost.of(PLAIN if is_vector else ITERATION)
        for i in block.instructions:
            match i.op:
                case For():
                    self.add_loop(total, i)
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
        if (function, is_vector) not in self.costs:
            self.costs[function, is_vector] = self.cost(self.cold[function], is_vector)
        return self.costs[function, is_vector]

    def add_loop(self, total: Cost, i: Instruction) -> None:
        inner, count = self.cost(i.regions[0], self.is_vector(i)), i.operands[0]
        number, known = self.literal(count), self.known(count)
        total.add(Cost.of(LOOP))
        if number is not None or known is None:
            total.add(inner, i.params.get("trip_count", GUESS) if number is None else number)
        else:
            total.add(inner, 1, known)

    def add_library(self, total: Cost, i: Instruction) -> None:
        """A routine's products: the extents of its first reference times the last of its last, as in a matrix product."""
        shapes = [v.type.shape for v in i.operands if v.type.shape]
        extents = (*shapes[0], shapes[-1][-1] if len(shapes[0]) > 1 else GUESS) if shapes else ()
        number = math.prod(e for e in extents if isinstance(e, int))
        counts = tuple(self.extent(e) for e in extents if not isinstance(e, int))
        total.add(Cost({counts: PRODUCT * number}))
        total.add(Cost.of(LIBRARY_CALL))


def _cost_of(i: Instruction) -> int:
    """The nominal cost of an instruction on one element of a vector."""
    if isinstance(i.op, Load | Store):
        ref = i.operands[1 if isinstance(i.op, Store) else 0].type
        return max(1, MEMORY * _bytes(ref.dtype) // 8)
    if isinstance(i.op, Fail) or not isinstance(i.op, Elementwise):
        return 0
    dtype = i.operands[0].type.dtype if i.operands else BOOL
    spelling = i.op.spelling("llvm", dtype.kind)
    if spelling.startswith("ufunc:"):
        return CALL
    each = DIVISION if i.op.name in ("div", "div_in_range", "sqrt", "idiv") else PLAIN
    return max(1, each * _bytes(dtype) // 8)


def _bytes(dtype: DType) -> int:
    return 1 if dtype.is_bool else dtype.bytes


def _reading(i: Instruction, env: dict[Value, Value]) -> Instruction:
    """An instruction, its regions included, that reads other values."""
    if not i.regions and env.keys().isdisjoint(i.operands):
        return i
    regions = tuple(
        Block(r.parameters, tuple(_reading(k, env) for k in r.instructions), tuple(env.get(v, v) for v in r.results))
        for r in i.regions
    )
    return Instruction(i.op, tuple(env.get(v, v) for v in i.operands), i.results, i.params, regions, i.loc)
