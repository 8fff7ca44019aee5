"""Reductions of the rows of strided matrices, some columns at a time.

Long rows that are brought near whole are in the second cache at best. If nothing but their elements is reduced, in loops over
rows of which each has one loop along the row, so many columns are brought near as stay in the first cache, and each row's partial
results wait in memory of the kernel's own. They are those that the loop along the row would have, vector by vector and tier by
tier (``llvm_loops``), so that results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from pullback.codegen.analysis.independence import IDENTITIES
from pullback.codegen.cpu.loops.nest_builder import number, parts, serial, vector, when
from pullback.codegen.cpu.loops.unroll_and_jam import is_plain, jam
from pullback.codegen.cpu.loops.unrolling import choose_unroll, is_short, lanes_of, weigh
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, StageRows, Store

TIER = 64
"""So many additions a partial sum takes in the lowest tier, and in the one above it."""
LONG = 4
"""Rows of more windows than that are reduced so."""
LIGHT = 28
"""The most weight of a body that is reduced so."""
WORD = 4
REDUCED = frozenset({"add", "maximum", "minimum"})

Bring = Callable[[Builder, Instruction, Value, Value], Value]


def is_near(i: Instruction) -> bool:
    """Whether an instruction brings whole rows near."""
    return isinstance(i.op, StageRows) and len(i.operands) == 3


@dataclass(frozen=True, eq=False)
class Sums:
    """What the rest of a block does with rows that are brought near: ``nears``, loops over rows, all else, which goes first."""

    nears: Sequence[Instruction]
    loops: Sequence[_Rows]
    others: Sequence[Instruction]


def sums_of(rest: Sequence[Instruction], results: Sequence[Value], vector_bytes: int, wide: int) -> Sums | None:
    """The rest of a block from the first ``stage_rows`` on as such; None if it does something else. ``wide``: how many columns
    stay in L1."""
    nears = [i for i in rest if is_near(i)]
    found = {i.results[0] for i in nears}
    loops, others = [], []
    for i in rest:
        if is_near(i):
            continue
        if any(not found.isdisjoint(k.operands) for r in i.regions for k in walk(r)):
            rows = _Rows.of(i, vector_bytes, found)
            if rows is None or wide % rows.step or not rows.is_alike:
                return None
            loops.append(rows)
        elif isinstance(i.op, Elementwise | Extent | Constant):
            others.append(i)
        else:
            return None
    alike = all(i.operands[1:] == nears[0].operands[1:] for i in nears)
    return Sums(nears, loops, others) if loops and alike and not results else None


class _Rows:
    """A loop over rows, each of which is one loop along the row and what goes around it: ``before`` and ``after``."""

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
        """Whether rows have as many partial results where several are reduced together."""
        together = walk(jam(Block((), (self.loop,), ())))
        loops = [k for k in together if isinstance(k.op, For) and k.results]
        combined = ((weigh(k.regions[0], k.params["combine"]), len(k.results)) for k in loops)
        return all(choose_unroll(weight, self.width, None, results) == self.parts for weight, results in combined)

    @staticmethod
    def of(i: Instruction, vector_bytes: int, near: Set[Value]) -> _Rows | None:
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
        plain = all(is_plain(k) for k in (*body[:k], *body[k + 1 :], *inside.instructions))
        stores = any(isinstance(k.op, Store) for k in (*body[:k], *inside.instructions))
        around = any(not near.isdisjoint(k.operands) for k in (*body[:k], *body[k + 1 :]))
        written = {k.operands[1] for k in body if isinstance(k.op, Store)}
        read = {k.operands[0] for k in (*body, *inside.instructions) if isinstance(k.op, Load)}
        apart = plain and not stores and not around and written.isdisjoint(read)
        is_light = weigh(inside, combine) <= LIGHT and not is_short(inside)
        return _Rows(i, inner, vector_bytes) if is_float and apart and is_light else None


class Reduced:
    """Such loops, written. ``bring``: how some columns of a matrix are brought near; ``wide``: how many."""

    def __init__(self, b: Builder, sums: Sums, columns: Value, bring: Bring, wide: int, rows: int) -> None:
        self.b, self.sums, self.columns, self.bring, self.wide = b, sums, columns, bring, wide
        self.memory = {}
        for r in sums.loops:
            self.memory[r] = b.local(dtype=r.dtype, shape=(rows, r.step + 2 * r.width))

    def write(self) -> None:
        b = self.b
        for r in self.sums.loops:
            self.each(b, r, lambda b, r, g: self.clear(b, r, g))
        serial(b, parts(b, self.columns, self.wide), self.window)
        for r in self.sums.loops:
            self.each(b, r, lambda b, r, g: self.end(b, r, g))

    def each(self, b: Builder, r: _Rows, body: Callable[[Builder, _Rows, Value], None]) -> None:
        """Something for each iteration of a loop over rows."""
        serial(b, r.loop.operands[0], lambda b, g: body(b, r, g))

    def places(self, b: Builder, r: _Rows, g: Value) -> list[Value]:
        """The rows of memory that an iteration's reductions have."""
        first = b.mul(g, number(b, len(r.names)))
        return [first, *(b.add(first, number(b, k)) for k in range(1, len(r.names)))]

    def clear(self, b: Builder, r: _Rows, g: Value) -> None:
        none = [b.const(IDENTITIES[name](r.dtype), r.dtype) for name in r.names]
        places = self.places(b, r, g)

        def fill(b: Builder, v: Value) -> None:
            for place, value in zip(places, none, strict=True):
                b.store(value, self.memory[r], place, v)

        vector(b, number(b, r.step + 2 * r.width), r.width, fill)

    def window(self, b: Builder, k: Value) -> None:
        left = b.mul(k, number(b, self.wide))
        long = b.minimum(b.sub(self.columns, left), number(b, self.wide))
        env = {i.results[0]: self.bring(b, i, left, long) for i in self.sums.nears}
        for r in self.sums.loops:
            self.columns_of(b, r, left, long, env)

    def columns_of(self, b: Builder, r: _Rows, left: Value, long: Value, env: dict[Value, Value]) -> None:
        """What the rows of a loop have in some columns."""
        whole = b.bitand(self.columns, number(b, -r.step))
        main = b.maximum(b.sub(b.minimum(b.add(left, long), whole), left), number(b, 0))
        at = b.add(left, main)
        shift = number(b, r.step.bit_length() - 1)

        def full(b: Builder, r: _Rows, g: Value) -> None:
            known = self.around(b, r, g, env)
            steps = b.raw_shr(main, shift)
            serial(b, steps, lambda b, u: self.take(b, r, g, known, b.add(left, b.raw_shl(u, shift)), number(b, r.step), True))

        self.each(b, r, full)
        is_full = b.eq(b.bitand(at, number(b, TIER * r.step - 1)), number(b, 0))
        ends = b.bitand(b.gt(main, number(b, 0)), b.bitor(is_full, b.eq(at, whole)))
        far = b.add(at, number(b, TIER * r.step - 1))
        block = b.bitand(far, number(b, TIER * TIER * r.step - TIER * r.step))
        is_last = b.eq(block, number(b, 0))
        if "add" in r.names:
            when(b, ends, lambda b: self.each(b, r, lambda b, r, g: self.up(b, r, g, is_last)))
        rest = b.sub(long, main)

        def masked(b: Builder, r: _Rows, g: Value) -> None:
            known = self.around(b, r, g, env)

            def lanes(b: Builder, u: Value) -> None:
                behind = b.mul(u, number(b, r.width))
                count = b.minimum(b.sub(rest, behind), number(b, r.width))
                self.take(b, r, g, known, b.add(at, behind), count, False)

            serial(b, parts(b, rest, r.width), lanes)

        when(b, b.gt(rest, number(b, 0)), lambda b: self.each(b, r, masked))

    def around(self, b: Builder, r: _Rows, g: Value, env: dict[Value, Value]) -> dict[Value, Value]:
        """What an iteration computes before its loop along the row."""
        known = {**env, r.loop.regions[0].parameters[0]: g}
        _again(b, r.before, known)
        return known

    def take(
        self, b: Builder, r: _Rows, g: Value, env: dict[Value, Value], first: Value, count: Value, is_whole: bool
    ) -> None:
        """Combine elements from a column on with the partial results, from the first of these on."""
        low, places, (region,) = self.memory[r], self.places(b, r, g), r.inner.regions

        def element(b: Builder, v: Value) -> None:
            known = {**env, region.parameters[0]: b.add(first, v)}
            _again(b, region.instructions, known)
            for name, value, place in zip(r.names, region.results, places, strict=True):
                both = b.load(low, place, v), known.get(value, value)
                b.store(b.emit(OPS[name], both)[0], low, place, v)

        if is_whole:
            vector(b, count, r.step, element)
        else:
            vector(b, count, 1, element, short=True)

    def lowest(self, b: Builder, r: _Rows, place: Value, v: Value, name: str) -> Value:
        """The parts of the lowest tier as one, halves first."""
        values = [b.load(self.memory[r], place, b.add(v, number(b, k * r.width)) if k else v) for k in range(r.parts)]
        return _joined(b, name, values)

    def upper(self, b: Builder, r: _Rows, v: Value) -> tuple[Value, Value]:
        """Where the two upper tiers are."""
        return b.add(v, number(b, r.step)), b.add(v, number(b, r.step + r.width))

    def up(self, b: Builder, r: _Rows, g: Value, is_last: Value) -> None:
        """Move sums up from the lowest tier, and from the one above it if that is full, too."""
        memory, places = self.memory[r], self.places(b, r, g)
        zero = b.const(IDENTITIES["add"](r.dtype), r.dtype)

        def lanes(b: Builder, v: Value) -> None:
            middle, high = self.upper(b, r, v)
            for place in (p for p, name in zip(places, r.names, strict=True) if name == "add"):
                one = b.add(b.load(memory, place, middle), self.lowest(b, r, place, v, "add"))
                two = b.load(memory, place, high)
                b.store(b.select(is_last, zero, one), memory, place, middle)
                b.store(b.select(is_last, b.add(two, one), two), memory, place, high)
                for k in range(r.parts):
                    b.store(zero, memory, place, b.add(v, number(b, k * r.width)) if k else v)

        vector(b, number(b, r.width), r.width, lanes)

    def end(self, b: Builder, r: _Rows, g: Value) -> None:
        """Combine the lanes of an iteration's reductions, and do what goes after them."""
        places, known = self.places(b, r, g), self.around(b, r, g, {})
        inside, v = Builder(b.loc), Value(scalar(I64), "v")
        middle, high = self.upper(inside, r, v)
        totals = []
        for place, name in zip(places, r.names, strict=True):
            total = self.lowest(inside, r, place, v, name)
            if name == "add":
                upper = inside.add(inside.load(self.memory[r], place, high), inside.load(self.memory[r], place, middle))
                total = inside.add(upper, total)
            totals.append(total)
        start = [known.get(x, x) for x in r.inner.operands[1:]]
        params = {"combine": tuple(r.names), "map": "vector", "multiple": r.width}
        found = b.emit(OPS["for"], (number(b, r.width), *start), params, [inside.block([v], totals)])
        known.update(zip(r.inner.results, found, strict=True))
        _again(b, r.after, known)


def _joined(b: Builder, name: str, values: Sequence[Value]) -> Value:
    """Values combined, halves first."""
    found = list(values)
    while len(found) > 1:
        half = len(found) // 2
        found = [b.emit(OPS[name], pair)[0] for pair in zip(found[:half], found[half:], strict=True)]
    return found[0]


def _again(b: Builder, instructions: Sequence[Instruction], env: dict[Value, Value]) -> None:
    """Instructions once more, of values in other places."""
    for i in instructions:
        results = tuple(Value(v.type, v.name) for v in i.results)
        b.append(Instruction(i.op, tuple(env.get(v, v) for v in i.operands), results, i.params, (), i.loc))
        env.update(zip(i.results, results, strict=True))
