"""The pieces of a loop whose iterations choose by their index, and the loops over them; ``borders`` says what for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pullback.codegen.analysis.independence import is_shifted
from pullback.codegen.cpu.loops.parallelize import IDENTITY
from pullback.codegen.cpu.loops.unroll_and_jam import MOST_INSIDE
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, I64
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, Store

MOST_PLACES = 16
"""So many places where conditions change make pieces."""
MOST_BODY = 160
"""A body of up to so many instructions is copied for the inside whatever it saves; a longer one, whose copy takes LLVM a while,
where conditions are at least a third of it."""
MOST_CONSTANT = 1 << 30
LINE = 64
ANY_ORDER = {"add", "mul", "maximum", "minimum", "bitand", "bitor"}
"""The combiners whose results the order of elements changes by rounding at most."""
POSITIONAL = {
    "add",
    "sub",
    "mul",
    "raw_shl",
    "raw_shr",
    "lt",
    "le",
    "gt",
    "ge",
    "bitand",
    "bitor",
    "bitxor",
    "bitnot",
    "select",
    "minimum",
    "maximum",
}

Env = dict[Value, Value]
Makers = Mapping[Value, Instruction]


def is_plain_loop(i: Instruction) -> bool:
    """Return whether an instruction is an innermost loop over elements that choose, are stored each on its own, and may be
    combined in any order. Short reductions are left to ``jam``."""
    if not isinstance(i.op, For) or i.params.get("ordered") or i.params.get("scan"):
        return False
    inside, combine = i.regions[0].instructions, i.params.get("combine") or ()
    if i.results and (len(combine) != len(i.results) or not ANY_ORDER.issuperset(combine) or len(inside) <= MOST_INSIDE):
        return False
    plain = all(isinstance(k.op, Elementwise | Extent | Constant | Load | Store) and not k.regions for k in inside)
    return plain and any(k.op.name in ("select", "load_if") for k in inside)


class Pieces:
    """The pieces of one loop."""

    def __init__(self, i: Instruction, outer: Makers, given: frozenset[Value]) -> None:
        self.loop, self.given = i, given
        (self.count, *self.initial), (region,) = i.operands, i.regions
        self.index = region.parameters[0]
        self.instructions, self.combined = region.instructions, region.results
        self.inner = {v: k for k in self.instructions for v in k.results}
        self.producer = {**outer, **self.inner}
        self.truth = {
            v: bool(k.params["value"])
            for v, k in self.producer.items()
            if isinstance(k.op, Constant) and k.params["dtype"] is BOOL
        }
        self.varies: set[Value] = {self.index}
        for k in self.instructions:
            if not self.varies.isdisjoint(k.operands) or isinstance(k.op, Load):
                self.varies.update(k.results)
        self.turns = [k for k in self.instructions if self.is_turn(k)]
        self.steady = self.find_steady()
        self.choices = [k for k in self.instructions if self.is_choice(k)]
        self.wanted = list(dict.fromkeys(self.root(k.operands[0]) for k in self.choices if not self.is_one_read(k)))
        self.inside = self.find_inside()

    def is_turn(self, k: Instruction) -> bool:
        """Whether an instruction compares the index, shifted, with what does not vary."""
        if k.op.name not in ("lt", "le", "gt", "ge") or k.operands[0].type.dtype is not I64:
            return False
        moving = [v for v in k.operands if v in self.varies]
        return len(moving) == 1 and is_shifted(moving[0], self.index, self.inner, self.varies) and self.is_positional(k.result)

    def find_steady(self) -> set[Value]:
        """The conditions that are the same for all iterations of a piece."""
        found = {k.result for k in self.turns}
        for k in self.instructions:
            is_logic = k.op.name in ("bitand", "bitor", "bitnot", "bitxor") and k.result.type.dtype is BOOL
            if (is_logic or self.is_itself(k)) and all(v in found or v not in self.varies for v in k.operands):
                found.add(k.result)
        return found

    def is_itself(self, k: Instruction) -> bool:
        """Whether a choice between true and false is its condition."""
        return k.op.name == "select" and [self.truth.get(v) for v in k.operands[1:]] == [True, False]

    def negated(self, k: Instruction) -> Value | None:
        """What a condition is the opposite of."""
        if k.op.name == "bitnot":
            return k.operands[0]
        if k.op.name != "bitxor":
            return None
        return next((v for v, w in zip(k.operands, k.operands[::-1], strict=True) if self.truth.get(w) is True), None)

    def root(self, condition: Value) -> Value:
        """The condition that is chosen by in the end."""
        k = self.producer.get(condition)
        while k is not None and self.is_itself(k):
            condition = k.operands[0]
            k = self.producer.get(condition)
        return condition

    def is_choice(self, k: Instruction) -> bool:
        """Whether an instruction chooses by where the index lies, one way for a whole piece."""
        if k.op.name != "select" or self.is_itself(k):
            return False
        condition = k.operands[0]
        return condition in self.steady or (condition not in self.varies and self.is_positional(condition))

    def is_positional(self, condition: Value) -> bool:
        """Whether a condition is computed from indices and extents alone, so that sums do not overflow."""
        stack, seen = [condition], {condition}
        while stack:
            value = stack.pop()
            k = self.producer.get(value)
            if value in self.given or value.type.dtype not in (BOOL, I64):
                return False
            if k is None or isinstance(k.op, Extent):
                continue
            is_small = isinstance(k.op, Constant) and abs(int(k.params["value"])) <= MOST_CONSTANT
            if not is_small and not (isinstance(k.op, Elementwise) and k.op.name in POSITIONAL):
                return False
            new = [v for v in k.operands if v not in seen]
            seen.update(new)
            stack += new
        return True

    def reads_of(self, k: Instruction) -> list[Instruction]:
        """The two loads that a choice is between, if it is one of two elements of an array."""
        made = [self.inner.get(v) for v in k.operands[1:]]
        loads = [m for m in made if m is not None and isinstance(m.op, Load)]
        return loads if len(loads) == 2 and loads[0].operands[0] is loads[1].operands[0] else []

    def is_one_read(self, k: Instruction) -> bool:
        return bool(self.reads_of(k))

    def way(self) -> Callable[[Builder], None] | None:
        """How the loop is written; None to leave it as it is."""
        if not self.choices or not (self.turns or any(k.op.name == "load_if" for k in self.instructions)):
            return None
        joined = any(self.is_one_read(k) and k.operands[0] in self.varies for k in self.choices)
        is_long = len(self.instructions) > MOST_BODY
        if self.wanted and self.inside is not None and not joined and (not is_long or self.has_many_conditions()):
            return self.in_three
        is_few = joined and not self.wanted and len(self.turns) <= MOST_PLACES
        return self.in_pieces if is_few and not self.combined else None

    def has_many_conditions(self) -> bool:
        """Return whether conditions are at least a third of the body, positions not counted."""
        part = Part(self, Builder(), self.index, {}, dict.fromkeys(self.implied(), True))
        part.copies()
        return 3 * _length(used(part.b.instructions, part.combined())) <= 2 * _length(self.instructions)

    # writing

    def in_three(self, b: Builder) -> None:
        """Before all parts are inside, inside, and after."""
        assert self.inside is not None
        zero, one = b.const(0, I64), b.const(1, I64)
        low, high, whole = zero, self.count, b.const(True, BOOL)
        for condition in self.inside:
            k = self.inner.get(condition)
            if k is None:
                whole = b.bitand(whole, condition)
            elif self.is_rising(k):
                low = b.maximum(low, self.place(b, k))
            else:
                high = b.minimum(high, self.place(b, k))
        low, high = self.in_vectors(b, low, high)
        first = b.select(b.bitand(whole, b.lt(low, high)), low, self.count)
        last = b.maximum(first, b.select(whole, high, self.count))
        middle = Part(self, b, first, {}, dict.fromkeys(self.implied(), True))
        found = middle.write(b.sub(last, first), self.initial, multiple=self.lanes())
        part, inside = Value(self.index.type), Builder(b.loc)
        is_first = inside.lt(part, one)
        start = inside.select(is_first, zero, last)
        length = inside.select(is_first, first, inside.sub(self.count, last))
        ends = Part(self, inside, start, {}, {}).write(length, self.identities(inside), short=True)
        params = {"combine": self.loop.params["combine"]} if ends else {}
        body = inside.block((part,), ends)
        b.append(Instruction(OPS["for"], (b.const(2, I64), *found), self.loop.results, params, (body,), self.loop.loc))

    def identities(self, b: Builder) -> list[Value]:
        """What the combiners of the loop begin with where nothing was combined yet."""
        dtypes = [v.type.dtype for v in self.loop.results]
        return [b.const(IDENTITY[name](d), d) for name, d in zip(self.loop.params.get("combine") or (), dtypes, strict=True)]

    def in_vectors(self, b: Builder, low: Value, high: Value) -> tuple[Value, Value]:
        """Bounds moved inwards to multiples of a vector: a border takes one vector in any case, and a row often begins where
        one does, so that all but the neighbours beside lie within one line of the cache."""
        lanes = self.lanes()
        down = b.const(-lanes, I64)
        return b.bitand(b.add(low, b.const(lanes - 1, I64)), down), b.bitand(high, down)

    def lanes(self) -> int:
        """How many elements of each array that is stored to are in a line of the cache, at least."""
        stored = [k.operands[0].type.dtype for k in self.instructions if isinstance(k.op, Store)]
        stored = stored or [v.type.dtype for v in self.combined]
        return LINE // max(1 if dtype.is_bool else dtype.bytes for dtype in stored)

    def in_pieces(self, b: Builder) -> None:
        """A loop over pieces; each begins where the one before ended."""
        places = [self.place(b, k) for k in self.turns]
        piece, start = Value(self.index.type), Value(self.index.type, "start")
        inside = Builder(b.loc)
        end = self.count
        for place in dict.fromkeys(places):
            later = inside.select(inside.gt(place, start), place, self.count)
            end = inside.minimum(end, later)
        env = self.settled(inside, start)
        Part(self, inside, start, env, {}).write(inside.sub(end, start))
        body = inside.block((piece, start), (end,))
        b.emit(OPS["for"], (b.const(len(self.turns) + 1, I64), b.const(0, I64)), {}, (body,))

    def find_inside(self) -> list[Value] | None:
        """The turns and outer conditions that all hold where all that is wanted does; None if more is needed to know."""
        found = []
        for condition in self.implied():
            k = self.inner.get(condition)
            if k is None or k in self.turns:
                found.append(condition)
            elif k.op.name != "bitand":
                return None
        return found

    def implied(self) -> list[Value]:
        """What is true if all that is wanted is."""
        found, stack = dict.fromkeys(self.wanted), list(self.wanted)
        while stack:
            k = self.producer.get(stack.pop())
            if k is not None and k.op.name == "bitand":
                stack += [v for v in k.operands if v not in found]
                found.update(dict.fromkeys(k.operands))
        return list(found)

    def is_rising(self, k: Instruction) -> bool:
        """Whether a turn is true from its place on, rather than up to it."""
        return (k.op.name in ("ge", "gt")) == (k.operands[0] in self.varies)

    def place(self, b: Builder, k: Instruction) -> Value:
        """The first index after a turn."""
        moving, bound = k.operands if k.operands[0] in self.varies else k.operands[::-1]
        place = self.outside(b, bound)
        for name, by in self.shifts(moving):
            place = (b.sub if name == "add" else b.add)(place, self.outside(b, by))
        goes_after = (k.op.name in ("le", "gt")) == (moving is k.operands[0])
        return b.add(place, b.const(1, I64)) if goes_after else place

    def shifts(self, value: Value) -> Iterator[tuple[str, Value]]:
        """By what a value differs from the index."""
        while value is not self.index:
            k = self.inner[value]
            yield k.op.name, next(v for v in k.operands if v not in self.varies)
            value = next(v for v in k.operands if v in self.varies)

    def outside(self, b: Builder, value: Value) -> Value:
        """What does not vary, computed before the loop."""
        k = self.inner.get(value)
        return value if k is None else b.emit(k.op, tuple(self.outside(b, v) for v in k.operands), dict(k.params))[0]

    def settled(self, b: Builder, start: Value) -> Env:
        """The conditions that hold for a piece, computed at its first index."""
        env: Env = {self.index: start}
        needed = self.behind(self.steady)
        for k in self.instructions:
            if k.results and k.result in needed:
                operands = tuple(env.get(v, v) for v in k.operands)
                env[k.result] = b.emit(k.op, operands, dict(k.params))[0]
        return {v: env[v] for v in self.steady}

    def behind(self, values: set[Value]) -> set[Value]:
        """What values are computed from, themselves included."""
        found, stack = set(values), list(values)
        while stack:
            k = self.inner.get(stack.pop())
            new = [v for v in k.operands if v not in found] if k is not None else []
            found.update(new)
            stack += new
        return found


class Part:
    """The loop over a piece: what is known of its conditions is put in, what then is not needed left out."""

    def __init__(self, pieces: Pieces, b: Builder, start: Value, settled: Env, known: Mapping[Value, bool]) -> None:
        self.pieces = pieces
        self.outer = b
        self.b = Builder(b.loc)
        self.at = Value(pieces.index.type, pieces.index.name)
        self.truth = {**pieces.truth, **known}
        self.settled = settled
        self.env: Env = {**settled, pieces.index: self.b.add(self.at, start)}

    def write(
        self, length: Value, initial: Sequence[Value] = (), short: bool = False, multiple: int = 0
    ) -> tuple[Value, ...]:  # fmt: skip
        """Append the loop and return what it combines, from ``initial`` on. ``short``: most often there are few iterations;
        ``multiple``: of what number there are."""
        self.copies()
        loop, combined = self.pieces.loop, self.combined()
        body = Block((self.at,), used(self.b.instructions, combined), tuple(combined))
        params = {**loop.params, **({"short": True} if short else {}), **({"multiple": multiple} if multiple else {})}
        results = tuple(Value(v.type, v.name) for v in loop.results)
        self.outer.append(Instruction(loop.op, (length, *initial), results, params, (body,), loop.loc))
        return results

    def combined(self) -> list[Value]:
        """The values of an iteration that the loop combines."""
        return [self.value(v) for v in self.pieces.combined]

    def copies(self) -> None:
        """The instructions of the loop, as far as what is known leaves them."""
        for k in self.pieces.instructions:
            is_known = k.results and k.result in self.pieces.steady and (k.result in self.truth or self.fold(k) is not None)
            if not is_known and not (k.results and k.result in self.env):
                self.copy(k)

    def fold(self, k: Instruction) -> bool | None:
        """Note whether a condition is true, if that follows from what is known."""
        truths = [self.truth.get(v) for v in k.operands]
        found: bool | None = None
        negated = self.pieces.negated(k)
        if negated is not None:
            found = None if self.truth.get(negated) is None else not self.truth[negated]
        elif k.op.name in ("bitand", "bitor"):
            decides = k.op.name == "bitor"
            found = decides if decides in truths else (not decides if None not in truths else None)
        elif self.pieces.is_itself(k):
            found = truths[0]
        if found is not None:
            self.truth[k.result] = found
        return found

    def value(self, value: Value) -> Value:
        """A value in this loop."""
        if value in self.truth and value not in self.pieces.truth:
            return self.outer.const(self.truth[value], BOOL)
        return self.env.get(value, value)

    def copy(self, k: Instruction) -> None:
        b = self.b.at(k.loc, k.result.name if k.results else "")
        truth = self.truth.get(self.pieces.root(k.operands[1 if k.op.name == "load_if" else 0])) if k.operands else None
        match k.op.name:
            case "bitand" if True in (truths := [self.truth.get(v) for v in k.operands]):
                self.env[k.result] = self.value(k.operands[1 - truths.index(True)])
            case "select" if truth is not None:
                self.env[k.result] = self.value(k.operands[1 if truth else 2])
            case "select" if k in self.pieces.choices and self.pieces.is_one_read(k) and self.is_uniform(k.operands[0]):
                self.env[k.result] = self.read(b, k)
            case "load_if" if truth is True:
                self.env[k.result] = b.load(self.value(k.operands[0]), *map(self.value, k.operands[2:]))
            case "load_if" if truth is False:
                self.env[k.result] = b.const(0, k.result.type.dtype)
            case _:
                found = b.emit(k.op, tuple(map(self.value, k.operands)), dict(k.params))
                self.env.update(zip(k.results, found, strict=True))

    def is_uniform(self, condition: Value) -> bool:
        """Whether a condition is the same for all iterations of this loop."""
        return condition in self.settled or condition not in self.pieces.varies

    def read(self, b: Builder, k: Instruction) -> Value:
        """One of two elements of an array, as one load."""
        condition = self.value(k.operands[0])
        (first, guard), (second, other) = (_index_and_guard(load) for load in self.pieces.reads_of(k))
        pairs = [(self.value(v), self.value(w)) for v, w in zip(first, second, strict=True)]
        index = [v if v is w else b.select(condition, v, w) for v, w in pairs]
        ref = self.value(self.pieces.reads_of(k)[0].operands[0])
        if self.holds(guard, k.operands[0], True) and self.holds(other, k.operands[0], False):
            return b.load(ref, *index)
        yes = b.const(True, BOOL)
        guards = [yes if g is None else self.value(g) for g in (guard, other)]
        return b.load_if(ref, b.select(condition, *guards), *index)

    def holds(self, guard: Value | None, condition: Value, truth: bool) -> bool:
        """Whether a guard is true where a condition is, or is not."""
        if guard is None:
            return True
        made = self.pieces.producer.get(guard)
        return guard is condition if truth else made is not None and self.pieces.negated(made) is condition


def _length(instructions: Sequence[Instruction]) -> int:
    """How many instructions compute on elements or choose among them."""
    return sum(not (isinstance(k.op, Elementwise) and k.result.type.dtype is I64) for k in instructions)


def _index_and_guard(load: Instruction) -> tuple[Sequence[Value], Value | None]:
    assert isinstance(load.op, Load)
    return (load.operands[2:], load.operands[1]) if load.op.masked else (load.operands[1:], None)


def used(instructions: Sequence[Instruction], results: Sequence[Value] = ()) -> tuple[Instruction, ...]:
    """The instructions without what nothing reads; ``results`` are read."""
    needed: set[Value] = set(results)
    kept = []
    for k in reversed(instructions):
        if isinstance(k.op, Store) or k.regions or not needed.isdisjoint(k.results):
            kept.append(k)
            needed.update(v for inner in (k, *(m for r in k.regions for m in walk(r))) for v in inner.operands)
    return tuple(reversed(kept))
