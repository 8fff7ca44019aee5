"""Reduce the rows of strided matrices some columns at a time.

Long rows that are staged whole stay in L2 at best. If their elements are only reduced, in loops over rows that each have one
loop along the row, the columns are staged in windows that stay in L1, and the partial results of each row are kept in
kernel-local buffers. The partial results are the same as those of the loop along the row, vector by vector and tier by tier
(``llvm.loops``), so that results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from pullback.codegen.analysis.independence import IDENTITIES
from pullback.codegen.cpu.loops.nest_builder import ceil_div, constant, serial, vector, when
from pullback.codegen.cpu.loops.unroll_and_jam import is_plain, jam
from pullback.codegen.cpu.loops.unrolling import choose_unroll, is_short, lanes_of, weigh
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, StageRows, Store

TIER = 64
"""Number of additions to a partial sum of the lowest tier, and of the tier above it."""
LONG = 4
"""Rows of more windows than this are reduced by windows."""
LIGHT = 28
"""Greatest weight of a body that is reduced by windows."""
WORD = 4
"""Least bytes of an element that is reduced by windows."""
REDUCED = frozenset({"add", "maximum", "minimum"})
"""The combiners that are reduced by windows."""

Bring = Callable[[Builder, Instruction, Value, Value], Value]


def stages_rows(i: Instruction) -> bool:
    """Return whether an instruction stages whole rows."""
    return isinstance(i.op, StageRows) and len(i.operands) == 3


@dataclass(frozen=True, eq=False)
class StagedReductions:
    """The part of a block that reduces staged rows.

    ``stagings``: the instructions that stage rows, ``loops``: the loops over these, ``others``: all other instructions, which
    come first.
    """

    stagings: Sequence[Instruction]
    loops: Sequence[_RowReductions]
    others: Sequence[Instruction]


def staged_reductions(
    instructions: Sequence[Instruction], results: Sequence[Value], vector_bytes: int, window: int
) -> StagedReductions | None:
    """Return the rest of a block, from the first ``stage_rows`` on, as reductions of staged rows; None if it does anything
    else.

    ``window``: the number of columns that stay in L1.
    """
    stagings = [i for i in instructions if stages_rows(i)]
    staged = {i.results[0] for i in stagings}
    loops, others = [], []
    for i in instructions:
        if stages_rows(i):
            continue
        if any(not staged.isdisjoint(k.operands) for r in i.regions for k in walk(r)):
            rows = _RowReductions.of(i, vector_bytes, staged)
            if rows is None or window % rows.step or not rows.is_alike:
                return None
            loops.append(rows)
        elif isinstance(i.op, Elementwise | Extent | Constant):
            others.append(i)
        else:
            return None
    alike = all(i.operands[1:] == stagings[0].operands[1:] for i in stagings)
    return StagedReductions(stagings, loops, others) if loops and alike and not results else None


class _RowReductions:
    """A loop over rows, each of which is one loop along the row, preceded and followed by other instructions."""

    def __init__(self, loop: Instruction, inner: Instruction, vector_bytes: int) -> None:
        self.loop, self.inner = loop, inner
        instructions = loop.regions[0].instructions
        k = instructions.index(inner)
        self.before, self.after = instructions[:k], instructions[k + 1 :]
        self.names: Sequence[str] = inner.params["combine"]
        self.width = lanes_of(vector_bytes, inner.regions[0])
        self.parts = choose_unroll(weigh(inner.regions[0], self.names), self.width, None, len(self.names))
        self.step = self.width * self.parts
        self.dtype = inner.results[0].type.dtype

    @property
    def is_alike(self) -> bool:
        """Return whether rows have the same number of accumulators when they are jammed."""
        jammed = walk(jam(Block((), (self.loop,), ())))
        loops = [k for k in jammed if isinstance(k.op, For) and k.results]
        combined = ((weigh(k.regions[0], k.params["combine"]), len(k.results)) for k in loops)
        return all(choose_unroll(weight, self.width, None, results) == self.parts for weight, results in combined)

    @staticmethod
    def of(i: Instruction, vector_bytes: int, staged: Set[Value]) -> _RowReductions | None:
        """Return a loop over rows in this form; None if an instruction is not one."""
        body = i.regions[0].instructions if i.regions else ()
        loops = [k for k in body if k.regions]
        if not isinstance(i.op, For) or i.results or i.params.get("ordered") or len(loops) != 1:
            return None
        (inner,) = loops
        k = body.index(inner)
        combine = inner.params.get("combine") if isinstance(inner.op, For) else None
        if not combine or inner.params.get("scan") or not REDUCED.issuperset(combine):
            return None
        inside = inner.regions[0]
        dtypes = {v.type.dtype for v in inner.results}
        is_float = all(d.is_float and d.bytes >= WORD for d in dtypes) and len(dtypes) == 1
        all_plain = all(is_plain(k) for k in (*body[:k], *body[k + 1 :], *inside.instructions))
        stores = any(isinstance(k.op, Store) for k in (*body[:k], *inside.instructions))
        used_outside = any(not staged.isdisjoint(k.operands) for k in (*body[:k], *body[k + 1 :]))
        written = {k.operands[1] for k in body if isinstance(k.op, Store)}
        read = {k.operands[0] for k in (*body, *inside.instructions) if isinstance(k.op, Load)}
        is_separable = all_plain and not stores and not used_outside and written.isdisjoint(read)
        is_light = weigh(inside, combine) <= LIGHT and not is_short(inside)
        return _RowReductions(i, inner, vector_bytes) if is_float and is_separable and is_light else None


class WindowedReductions:
    """Emits the reductions by windows. ``stage``: emits the staging of a window; ``window_width``: its number of columns."""

    def __init__(self, b: Builder, sums: StagedReductions, columns: Value, stage: Bring, window_width: int, rows: int) -> None:
        self.b, self.sums, self.columns, self.stage, self.window_width = b, sums, columns, stage, window_width
        self.memory = {}
        for r in sums.loops:
            self.memory[r] = b.local(dtype=r.dtype, shape=(rows, r.step + 2 * r.width))

    def write(self) -> None:
        """Emit the reductions."""
        b = self.b
        for r in self.sums.loops:
            self.for_each_row(b, r, lambda b, r, g: self.initialise(b, r, g))
        serial(b, ceil_div(b, self.columns, self.window_width), self.window)
        for r in self.sums.loops:
            self.for_each_row(b, r, lambda b, r, g: self.finish(b, r, g))

    def for_each_row(self, b: Builder, r: _RowReductions, body: Callable[[Builder, _RowReductions, Value], None]) -> None:
        """Emit a loop that runs ``body`` for each iteration of a loop over rows."""
        serial(b, r.loop.operands[0], lambda b, g: body(b, r, g))

    def buffer_rows(self, b: Builder, r: _RowReductions, g: Value) -> list[Value]:
        """Return the rows of the buffer that hold the partial results of an iteration."""
        first = b.mul(g, constant(b, len(r.names)))
        return [first, *(b.add(first, constant(b, k)) for k in range(1, len(r.names)))]

    def initialise(self, b: Builder, r: _RowReductions, g: Value) -> None:
        """Initialise the partial results of a row."""
        identities = [b.const(IDENTITIES[name](r.dtype), r.dtype) for name in r.names]
        places = self.buffer_rows(b, r, g)

        def fill(b: Builder, v: Value) -> None:
            for row, value in zip(places, identities, strict=True):
                b.store(value, self.memory[r], row, v)

        vector(b, constant(b, r.step + 2 * r.width), r.width, fill)

    def window(self, b: Builder, k: Value) -> None:
        """Emit the staging and reduction of one window."""
        left = b.mul(k, constant(b, self.window_width))
        width = b.minimum(b.sub(self.columns, left), constant(b, self.window_width))
        env = {i.results[0]: self.stage(b, i, left, width) for i in self.sums.stagings}
        for r in self.sums.loops:
            self.reduce_window(b, r, left, width, env)

    def reduce_window(self, b: Builder, r: _RowReductions, left: Value, width: Value, env: dict[Value, Value]) -> None:
        """Emit the reduction of one window for the rows of a loop."""
        full_columns = b.bitand(self.columns, constant(b, -r.step))
        main = b.maximum(b.sub(b.minimum(b.add(left, width), full_columns), left), constant(b, 0))
        at = b.add(left, main)
        shift = constant(b, r.step.bit_length() - 1)

        def full(b: Builder, r: _RowReductions, g: Value) -> None:
            known = self.row_values(b, r, g, env)
            steps = b.raw_shr(main, shift)
            serial(
                b,
                steps,
                lambda b, u: self.accumulate(b, r, g, known, b.add(left, b.raw_shl(u, shift)), constant(b, r.step), True),
            )

        self.for_each_row(b, r, full)
        is_full = b.eq(b.bitand(at, constant(b, TIER * r.step - 1)), constant(b, 0))
        ends = b.bitand(b.gt(main, constant(b, 0)), b.bitor(is_full, b.eq(at, full_columns)))
        rounded = b.add(at, constant(b, TIER * r.step - 1))
        block = b.bitand(rounded, constant(b, TIER * TIER * r.step - TIER * r.step))
        is_last = b.eq(block, constant(b, 0))
        if "add" in r.names:
            when(b, ends, lambda b: self.for_each_row(b, r, lambda b, r, g: self.flush(b, r, g, is_last)))
        remaining = b.sub(width, main)

        def masked(b: Builder, r: _RowReductions, g: Value) -> None:
            known = self.row_values(b, r, g, env)

            def lanes(b: Builder, u: Value) -> None:
                behind = b.mul(u, constant(b, r.width))
                count = b.minimum(b.sub(remaining, behind), constant(b, r.width))
                self.accumulate(b, r, g, known, b.add(at, behind), count, False)

            serial(b, ceil_div(b, remaining, r.width), lanes)

        when(b, b.gt(remaining, constant(b, 0)), lambda b: self.for_each_row(b, r, masked))

    def row_values(self, b: Builder, r: _RowReductions, g: Value, env: dict[Value, Value]) -> dict[Value, Value]:
        """Emit the values that an iteration computes before its loop along the row."""
        known = {**env, r.loop.regions[0].parameters[0]: g}
        _copy_instructions(b, r.before, known)
        return known

    def accumulate(
        self, b: Builder, r: _RowReductions, g: Value, env: dict[Value, Value], first: Value, count: Value, is_full: bool
    ) -> None:
        """Combine ``count`` elements, from column ``first`` on, with the first partial results."""
        buffer, places, (region,) = self.memory[r], self.buffer_rows(b, r, g), r.inner.regions

        def element(b: Builder, v: Value) -> None:
            known = {**env, region.parameters[0]: b.add(first, v)}
            _copy_instructions(b, region.instructions, known)
            for name, value, row in zip(r.names, region.results, places, strict=True):
                operands = b.load(buffer, row, v), known.get(value, value)
                b.store(b.emit(OPS[name], operands)[0], buffer, row, v)

        if is_full:
            vector(b, count, r.step, element)
        else:
            vector(b, count, 1, element, short=True)

    def join_parts(self, b: Builder, r: _RowReductions, row: Value, v: Value, name: str) -> Value:
        """Combine the parts of the lowest tier pairwise."""
        values = [b.load(self.memory[r], row, b.add(v, constant(b, k * r.width)) if k else v) for k in range(r.parts)]
        return _combine_pairwise(b, name, values)

    def upper_offsets(self, b: Builder, r: _RowReductions, v: Value) -> tuple[Value, Value]:
        """Return the offsets of the two upper tiers."""
        return b.add(v, constant(b, r.step)), b.add(v, constant(b, r.step + r.width))

    def flush(self, b: Builder, r: _RowReductions, g: Value, is_last: Value) -> None:
        """Add sums of the lowest tier to the middle tier, and to the upper tier if the middle one is full."""
        memory, places = self.memory[r], self.buffer_rows(b, r, g)
        zero = b.const(IDENTITIES["add"](r.dtype), r.dtype)

        def lanes(b: Builder, v: Value) -> None:
            middle, high = self.upper_offsets(b, r, v)
            for row in (p for p, name in zip(places, r.names, strict=True) if name == "add"):
                middle_sum = b.add(b.load(memory, row, middle), self.join_parts(b, r, row, v, "add"))
                upper_sum = b.load(memory, row, high)
                b.store(b.select(is_last, zero, middle_sum), memory, row, middle)
                b.store(b.select(is_last, b.add(upper_sum, middle_sum), upper_sum), memory, row, high)
                for k in range(r.parts):
                    b.store(zero, memory, row, b.add(v, constant(b, k * r.width)) if k else v)

        vector(b, constant(b, r.width), r.width, lanes)

    def finish(self, b: Builder, r: _RowReductions, g: Value) -> None:
        """Reduce the lanes of an iteration's partial results, and emit the instructions that follow the loop."""
        places, known = self.buffer_rows(b, r, g), self.row_values(b, r, g, {})
        inside, v = Builder(b.loc), Value(scalar(I64), "v")
        middle, high = self.upper_offsets(inside, r, v)
        totals = []
        for row, name in zip(places, r.names, strict=True):
            total = self.join_parts(inside, r, row, v, name)
            if name == "add":
                upper = inside.add(inside.load(self.memory[r], row, high), inside.load(self.memory[r], row, middle))
                total = inside.add(upper, total)
            totals.append(total)
        start = [known.get(x, x) for x in r.inner.operands[1:]]
        params = {"combine": tuple(r.names), "map": "vector", "multiple": r.width}
        reduced = b.emit(OPS["for"], (constant(b, r.width), *start), params, [inside.block([v], totals)])
        known.update(zip(r.inner.results, reduced, strict=True))
        _copy_instructions(b, r.after, known)


def _combine_pairwise(b: Builder, name: str, values: Sequence[Value]) -> Value:
    """Combine values pairwise."""
    remaining = list(values)
    while len(remaining) > 1:
        half = len(remaining) // 2
        remaining = [b.emit(OPS[name], pair)[0] for pair in zip(remaining[:half], remaining[half:], strict=True)]
    return remaining[0]


def _copy_instructions(b: Builder, instructions: Sequence[Instruction], env: dict[Value, Value]) -> None:
    """Copy instructions with replaced operands."""
    for i in instructions:
        results = tuple(Value(v.type, v.name) for v in i.results)
        b.append(Instruction(i.op, tuple(env.get(v, v) for v in i.operands), results, i.params, (), i.loc))
        env.update(zip(i.results, results, strict=True))
