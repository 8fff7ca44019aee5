"""Find the pieces of a loop that selects by its index, and emit the loops over them (``borders``)."""

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

MOST_CHANGES = 16
"""Greatest number of positions where conditions change in a loop that is split into pieces."""
MOST_BODY = 160
"""Greatest number of instructions of a body that is always copied for the inside.

A longer one, whose copy takes LLVM longer to compile, is copied only if conditions are at least a third of it.
"""
MOST_CONSTANT = 1 << 30
"""Greatest absolute value of a constant in a position, so that sums do not overflow."""
LINE = 64
"""Bytes of a cache line."""
ANY_ORDER = {"add", "mul", "maximum", "minimum", "bitand", "bitor"}
"""Combiners for which a different order changes the result by rounding at most."""
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
"""Ops of which conditions on positions consist."""

Env = dict[Value, Value]
Producers = Mapping[Value, Instruction]


def is_plain_loop(i: Instruction) -> bool:
    """Return whether an instruction is an innermost loop that selects by conditions, stores its elements independently and, if
    it reduces, reduces in any order. Short reductions are left to ``jam``."""
    if not isinstance(i.op, For) or i.params.get("ordered") or i.params.get("scan"):
        return False
    body, combine = i.regions[0].instructions, i.params.get("combine") or ()
    if i.results and (len(combine) != len(i.results) or not ANY_ORDER.issuperset(combine) or len(body) <= MOST_INSIDE):
        return False
    is_plain = all(isinstance(k.op, Elementwise | Extent | Constant | Load | Store) and not k.regions for k in body)
    return is_plain and any(k.op.name in ("select", "load_if") for k in body)


class Pieces:
    """The pieces of one loop.

    ``comparisons``: of the index with a loop-invariant bound. ``constant_in_piece``: the conditions that are constant in each
    piece. ``inner_conditions``: those of selections that hold inside. ``inside``: the comparisons and outer conditions that
    imply these.
    """

    def __init__(self, i: Instruction, outer: Producers, parameters: frozenset[Value]) -> None:
        self.loop, self.parameters = i, parameters
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
        self.varying: set[Value] = {self.index}
        for k in self.instructions:
            if not self.varying.isdisjoint(k.operands) or isinstance(k.op, Load):
                self.varying.update(k.results)
        self.comparisons = [k for k in self.instructions if self.is_comparison(k)]
        self.constant_in_piece = self.find_constant_in_piece()
        self.choices = [k for k in self.instructions if self.is_choice(k)]
        self.inner_conditions = self.find_inner_conditions()
        self.inside = self.find_inside()

    def is_comparison(self, k: Instruction) -> bool:
        """Return whether an instruction compares the index, plus an offset, with a loop-invariant value."""
        if k.op.name not in ("lt", "le", "gt", "ge") or k.operands[0].type.dtype is not I64:
            return False
        moving = [v for v in k.operands if v in self.varying]
        return len(moving) == 1 and is_shifted(moving[0], self.index, self.inner, self.varying) and self.is_positional(k.result)

    def find_constant_in_piece(self) -> set[Value]:
        """Return the conditions that are constant in each piece."""
        conditions = {k.result for k in self.comparisons}
        for k in self.instructions:
            is_logic = k.op.name in ("bitand", "bitor", "bitnot", "bitxor") and k.result.type.dtype is BOOL
            if (is_logic or self.is_identity_select(k)) and all(v in conditions or v not in self.varying for v in k.operands):
                conditions.add(k.result)
        return conditions

    def is_identity_select(self, k: Instruction) -> bool:
        """Return whether an instruction selects true if its condition is true, else false."""
        return k.op.name == "select" and [self.truth.get(v) for v in k.operands[1:]] == [True, False]

    def negated(self, k: Instruction) -> Value | None:
        """Return the operand that a condition negates, or None."""
        if k.op.name == "bitnot":
            return k.operands[0]
        if k.op.name != "bitxor":
            return None
        return next((v for v, w in zip(k.operands, k.operands[::-1], strict=True) if self.truth.get(w) is True), None)

    def root(self, condition: Value) -> Value:
        """Return the condition that identity selects forward."""
        k = self.producer.get(condition)
        while k is not None and self.is_identity_select(k):
            condition = k.operands[0]
            k = self.producer.get(condition)
        return condition

    def is_choice(self, k: Instruction) -> bool:
        """Return whether an instruction selects by a condition on the index that is constant in each piece."""
        if k.op.name != "select" or self.is_identity_select(k):
            return False
        condition = k.operands[0]
        return condition in self.constant_in_piece or (condition not in self.varying and self.is_positional(condition))

    def is_index_select(self, k: Instruction) -> bool:
        """Return whether an instruction selects between two indices, as the reading of a roll does."""
        return k.op.name == "select" and k.result.type.dtype is I64

    def is_joined(self, k: Instruction) -> bool:
        """Return whether an instruction selects between two parts of one array, neither of which is known to be the larger."""
        is_of_one_array = self.selects_two_loads(k) or self.is_index_select(k)
        return is_of_one_array and not self.is_near_end(self.root(k.operands[0]))

    def find_inner_conditions(self) -> list[Value]:
        """Return the conditions of the selections inside, where all of them hold; others are in values that these do not
        select."""
        kept = {k for k in self.choices if not self.is_joined(k)}
        needed, conditions = set(self.combined), dict[Value, None]()
        for k in reversed(self.instructions):
            if not isinstance(k.op, Store) and needed.isdisjoint(k.results):
                continue
            needed.update(k.operands[:2] if k in kept else k.operands)
            if k in kept:
                conditions[self.root(k.operands[0])] = None
        return list(conditions)[::-1]

    def is_near_end(self, condition: Value) -> bool:
        """Return whether a condition changes only at a constant distance from an end of its axis, or not in this loop."""
        k = self.inner.get(condition)
        if k is not None and k.op.name == "bitand" and condition in self.varying:
            return all(map(self.is_near_end, k.operands))
        if k is None or k not in self.comparisons:
            return condition not in self.varying
        bound = self.producer.get(next(v for v in k.operands if v not in self.varying))
        if bound is not None and bound.op.name == "sub":
            bound = self.producer.get(bound.operands[1])
        return bound is not None and isinstance(bound.op, Constant)

    def is_positional(self, condition: Value) -> bool:
        """Return whether a condition is computed from indices and extents alone, so that its sums do not overflow."""
        stack, seen = [condition], {condition}
        while stack:
            value = stack.pop()
            k = self.producer.get(value)
            if value in self.parameters or value.type.dtype not in (BOOL, I64):
                return False
            if k is None or isinstance(k.op, Extent):
                continue
            is_small = isinstance(k.op, Constant) and abs(int(k.params["value"])) <= MOST_CONSTANT
            if not is_small and not (isinstance(k.op, Elementwise) and k.op.name in POSITIONAL):
                return False
            new = [v for v in self.bounds(k) if v not in seen]
            seen.update(new)
            stack += new
        return True

    def bounds(self, k: Instruction) -> tuple[Value, ...]:
        """Return the values that bound a result: the limits of a clamped value, the operands of other ops."""
        inner = self.producer.get(k.operands[0]) if k.op.name == "maximum" else None
        return (inner.operands[1], k.operands[1]) if inner is not None and inner.op.name == "minimum" else k.operands

    def selected_loads(self, k: Instruction) -> list[Instruction]:
        """Return the two loads of one array that an instruction selects between, else none."""
        producers = [self.inner.get(v) for v in k.operands[1:]]
        loads = [m for m in producers if m is not None and isinstance(m.op, Load)]
        return loads if len(loads) == 2 and loads[0].operands[0] is loads[1].operands[0] else []

    def selects_two_loads(self, k: Instruction) -> bool:
        """Return whether an instruction selects between two loads of one array."""
        return bool(self.selected_loads(k))

    def choose_writer(self) -> Callable[[Builder], None] | None:
        """Return the method that emits the loop, or None if the loop stays unchanged."""
        if not self.choices or not (self.comparisons or any(k.op.name == "load_if" for k in self.instructions)):
            return None
        joined = any(self.is_joined(k) and k.operands[0] in self.varying for k in self.choices)
        is_long = len(self.instructions) > MOST_BODY
        if self.inner_conditions and self.inside is not None and not joined and (not is_long or self.has_many_conditions()):
            return self.write_three_loops
        return self.write_piece_loop if joined and len(self.comparisons) <= MOST_CHANGES else None

    def has_many_conditions(self) -> bool:
        """Return whether conditions are at least a third of the body, positions not counted."""
        part = Part(self, Builder(), self.index, {}, dict.fromkeys(self.implied(), True))
        part.copy_body()
        return 3 * _length(used(part.b.instructions, part.combined())) <= 2 * _length(self.instructions)

    # writing

    def write_three_loops(self, b: Builder) -> None:
        """Emit the loop over the inside and a loop over the two ends."""
        assert self.inside is not None
        zero, one = b.const(0, I64), b.const(1, I64)
        low, high, all_hold = zero, self.count, b.const(True, BOOL)
        for condition in self.inside:
            k = self.inner.get(condition)
            if k is None:
                all_hold = b.bitand(all_hold, condition)
            elif self.is_rising(k):
                low = b.maximum(low, self.change_position(b, k))
            else:
                high = b.minimum(high, self.change_position(b, k))
        low, high = self.align_bounds(b, low, high)
        first = b.select(b.bitand(all_hold, b.lt(low, high)), low, self.count)
        last = b.maximum(first, b.select(all_hold, high, self.count))
        middle = Part(self, b, first, {}, dict.fromkeys(self.implied(), True))
        reduced = middle.write(b.sub(last, first), self.initial, multiple=self.lanes())
        part, inside = Value(self.index.type), Builder(b.loc)
        is_first = inside.lt(part, one)
        start = inside.select(is_first, zero, last)
        length = inside.select(is_first, first, inside.sub(self.count, last))
        ends = Part(self, inside, start, {}, {}).write(length, self.identities(inside), short=True)
        params = {"combine": self.loop.params["combine"]} if ends else {}
        body = inside.block((part,), ends)
        b.append(Instruction(OPS["for"], (b.const(2, I64), *reduced), self.loop.results, params, (body,), self.loop.loc))

    def identities(self, b: Builder) -> list[Value]:
        """Return the identities of the loop's combiners."""
        dtypes = [v.type.dtype for v in self.loop.results]
        return [b.const(IDENTITY[name](d), d) for name, d in zip(self.loop.params.get("combine") or (), dtypes, strict=True)]

    def align_bounds(self, b: Builder, low: Value, high: Value) -> tuple[Value, Value]:
        """Round bounds inwards to multiples of a vector.

        An end takes one masked vector in any case, and rows often begin at a multiple of a vector, so that aligned accesses
        stay in one cache line.
        """
        lanes = self.lanes()
        down = b.const(-lanes, I64)
        return b.bitand(b.add(low, b.const(lanes - 1, I64)), down), b.bitand(high, down)

    def lanes(self) -> int:
        """Return the least number of elements of a stored array per cache line."""
        stored = [k.operands[0].type.dtype for k in self.instructions if isinstance(k.op, Store)]
        stored = stored or [v.type.dtype for v in self.combined]
        return LINE // max(1 if dtype.is_bool else dtype.bytes for dtype in stored)

    def write_piece_loop(self, b: Builder) -> None:
        """Emit a loop over pieces; each begins where the previous one ended."""
        positions = [self.change_position(b, k) for k in self.comparisons]
        piece, start, after = (Value(self.index.type, name) for name in ("", "start", ""))
        before = [Value(v.type, v.name) for v in self.initial]
        piece_body = Builder(b.loc)
        end = self.count
        for position in dict.fromkeys(positions):
            later = piece_body.select(piece_body.gt(position, start), position, self.count)
            end = piece_body.minimum(end, later)
        env = self.conditions_of_piece(piece_body, start)
        reduced = Part(self, piece_body, start, env, {}).write(piece_body.sub(end, start), before)
        body = piece_body.block((piece, start, *before), (end, *reduced))
        operands = (b.const(len(self.comparisons) + 1, I64), b.const(0, I64), *self.initial)
        b.append(Instruction(OPS["for"], operands, (after, *self.loop.results), {}, (body,), self.loop.loc))

    def find_inside(self) -> list[Value] | None:
        """Return the comparisons and outer conditions that imply all inner conditions; None if other conditions are involved."""
        conditions = []
        for condition in self.implied():
            k = self.inner.get(condition)
            if k is None or k in self.comparisons:
                conditions.append(condition)
            elif k.op.name != "bitand":
                return None
        return conditions

    def implied(self) -> list[Value]:
        """Return all conditions that hold if the inner conditions do."""
        conditions, stack = dict.fromkeys(self.inner_conditions), list(self.inner_conditions)
        while stack:
            k = self.producer.get(stack.pop())
            if k is not None and k.op.name == "bitand":
                stack += [v for v in k.operands if v not in conditions]
                conditions.update(dict.fromkeys(k.operands))
        return list(conditions)

    def is_rising(self, k: Instruction) -> bool:
        """Return whether a comparison becomes true, rather than false, as the index grows."""
        return (k.op.name in ("ge", "gt")) == (k.operands[0] in self.varying)

    def change_position(self, b: Builder, k: Instruction) -> Value:
        """Emit the first index at which a comparison has changed."""
        moving, bound = k.operands if k.operands[0] in self.varying else k.operands[::-1]
        position = self.hoisted(b, bound)
        for name, by in self.shifts(moving):
            position = (b.sub if name == "add" else b.add)(position, self.hoisted(b, by))
        goes_after = (k.op.name in ("le", "gt")) == (moving is k.operands[0])
        return b.add(position, b.const(1, I64)) if goes_after else position

    def shifts(self, value: Value) -> Iterator[tuple[str, Value]]:
        """Yield the offsets, with their ops, by which a value differs from the index."""
        while value is not self.index:
            k = self.inner[value]
            yield k.op.name, next(v for v in k.operands if v not in self.varying)
            value = next(v for v in k.operands if v in self.varying)

    def hoisted(self, b: Builder, value: Value) -> Value:
        """Emit a loop-invariant value before the loop."""
        k = self.inner.get(value)
        return value if k is None else b.emit(k.op, tuple(self.hoisted(b, v) for v in k.operands), dict(k.params))[0]

    def conditions_of_piece(self, b: Builder, start: Value) -> Env:
        """Emit the conditions of a piece, at its first index."""
        env: Env = {self.index: start}
        needed = self.dependencies(self.constant_in_piece)
        for k in self.instructions:
            if k.results and k.result in needed:
                operands = tuple(env.get(v, v) for v in k.operands)
                env[k.result] = b.emit(k.op, operands, dict(k.params))[0]
        return {v: env[v] for v in self.constant_in_piece}

    def dependencies(self, values: set[Value]) -> set[Value]:
        """Return the values that values depend on, including themselves."""
        dependencies, stack = set(values), list(values)
        while stack:
            k = self.inner.get(stack.pop())
            new = [v for v in k.operands if v not in dependencies] if k is not None else []
            dependencies.update(new)
            stack += new
        return dependencies


class Part:
    """The loop over a piece, with its known conditions folded and unused instructions removed."""

    def __init__(self, pieces: Pieces, b: Builder, start: Value, settled: Env, known: Mapping[Value, bool]) -> None:
        self.pieces = pieces
        self.outer = b
        self.b = Builder(b.loc)
        self.at = Value(pieces.index.type, pieces.index.name)
        self.truth = {**pieces.truth, **known}
        self.conditions = settled
        self.env: Env = {**settled, pieces.index: self.b.add(self.at, start)}

    def write(
        self, length: Value, initial: Sequence[Value] = (), short: bool = False, multiple: int = 0
    ) -> tuple[Value, ...]:  # fmt: skip
        """Emit the loop and return its reductions, which start with ``initial``.

        ``short``: the loop mostly has few iterations; ``multiple``: its trip count is a multiple of this number.
        """
        self.copy_body()
        loop, combined = self.pieces.loop, self.combined()
        body = Block((self.at,), used(self.b.instructions, combined), tuple(combined))
        params = {**loop.params, **({"short": True} if short else {}), **({"multiple": multiple} if multiple else {})}
        results = tuple(Value(v.type, v.name) for v in loop.results)
        self.outer.append(Instruction(loop.op, (length, *initial), results, params, (body,), loop.loc))
        return results

    def combined(self) -> list[Value]:
        """Return the values of an iteration that the loop reduces."""
        return [self.value(v) for v in self.pieces.combined]

    def copy_body(self) -> None:
        """Copy the instructions of the loop that known conditions leave."""
        for k in self.pieces.instructions:
            is_known = (
                k.results and k.result in self.pieces.constant_in_piece and (k.result in self.truth or self.fold(k) is not None)
            )
            if not is_known and not (k.results and k.result in self.env):
                self.copy(k)

    def fold(self, k: Instruction) -> bool | None:
        """Return and record the value of a condition if known conditions imply it, else None."""
        truths = [self.truth.get(v) for v in k.operands]
        folded: bool | None = None
        negated = self.pieces.negated(k)
        if negated is not None:
            folded = None if self.truth.get(negated) is None else not self.truth[negated]
        elif k.op.name in ("bitand", "bitor"):
            decides = k.op.name == "bitor"
            folded = decides if decides in truths else (not decides if None not in truths else None)
        elif self.pieces.is_identity_select(k):
            folded = truths[0]
        if folded is not None:
            self.truth[k.result] = folded
        return folded

    def value(self, value: Value) -> Value:
        """Return a value in this loop."""
        if value in self.truth and value not in self.pieces.truth:
            return self.outer.const(self.truth[value], BOOL)
        return self.env.get(value, value)

    def copy(self, k: Instruction) -> None:
        """Copy an instruction, simplified by known conditions."""
        b = self.b.at(k.loc, k.result.name if k.results else "")
        truth = self.truth.get(self.pieces.root(k.operands[1 if k.op.name == "load_if" else 0])) if k.operands else None
        match k.op.name:
            case "bitand" if True in (truths := [self.truth.get(v) for v in k.operands]):
                self.env[k.result] = self.value(k.operands[1 - truths.index(True)])
            case "select" if truth is not None:
                self.env[k.result] = self.value(k.operands[1 if truth else 2])
            case "select" if k in self.pieces.choices and self.pieces.selects_two_loads(k) and self.is_uniform(k.operands[0]):
                self.env[k.result] = self.read(b, k)
            case "select" if k in self.pieces.choices and self.pieces.is_index_select(k) and self.is_uniform(k.operands[0]):
                self.env[k.result] = self.select_index(b, k)
            case "load_if" if truth is True:
                self.env[k.result] = b.load(self.value(k.operands[0]), *map(self.value, k.operands[2:]))
            case "load_if" if truth is False:
                self.env[k.result] = b.const(0, k.result.type.dtype)
            case _:
                results = b.emit(k.op, tuple(map(self.value, k.operands)), dict(k.params))
                self.env.update(zip(k.results, results, strict=True))

    def select_index(self, b: Builder, k: Instruction) -> Value:
        """Emit a selection between two indices as the index of the loop plus a selected offset, so that a read stays one of
        adjacent elements."""
        pieces = self.pieces
        if not all(is_shifted(v, pieces.index, pieces.inner, pieces.varying) for v in k.operands[1:]):
            return b.emit(k.op, tuple(map(self.value, k.operands)), dict(k.params))[0]
        offsets = []
        for v in k.operands[1:]:
            offset = self.outer.const(0, I64)
            for name, by in pieces.shifts(v):
                offset = (self.outer.add if name == "add" else self.outer.sub)(offset, pieces.hoisted(self.outer, by))
            offsets.append(offset)
        chosen = self.outer.select(self.value(k.operands[0]), *offsets)
        return b.add(self.value(pieces.index), chosen)

    def is_uniform(self, condition: Value) -> bool:
        """Return whether a condition is constant in this loop."""
        return condition in self.conditions or condition not in self.pieces.varying

    def read(self, b: Builder, k: Instruction) -> Value:
        """Emit a selection between two loads of an array as one load."""
        condition = self.value(k.operands[0])
        (first, guard), (second, other) = (_index_and_guard(load) for load in self.pieces.selected_loads(k))
        pairs = [(self.value(v), self.value(w)) for v, w in zip(first, second, strict=True)]
        index = [v if v is w else b.select(condition, v, w) for v, w in pairs]
        ref = self.value(self.pieces.selected_loads(k)[0].operands[0])
        if self.holds(guard, k.operands[0], True) and self.holds(other, k.operands[0], False):
            return b.load(ref, *index)
        yes = b.const(True, BOOL)
        guards = [yes if g is None else self.value(g) for g in (guard, other)]
        return b.load_if(ref, b.select(condition, *guards), *index)

    def holds(self, guard: Value | None, condition: Value, truth: bool) -> bool:
        """Return whether a guard is true wherever a condition has the given truth value."""
        if guard is None:
            return True
        producer = self.pieces.producer.get(guard)
        return guard is condition if truth else producer is not None and self.pieces.negated(producer) is condition


def _length(instructions: Sequence[Instruction]) -> int:
    """Return the number of instructions that are not positions."""
    return sum(not (isinstance(k.op, Elementwise) and k.result.type.dtype is I64) for k in instructions)


def _index_and_guard(load: Instruction) -> tuple[Sequence[Value], Value | None]:
    """Return the index and the guard, if any, of a load."""
    assert isinstance(load.op, Load)
    return (load.operands[2:], load.operands[1]) if load.op.masked else (load.operands[1:], None)


def used(instructions: Sequence[Instruction], results: Sequence[Value] = ()) -> tuple[Instruction, ...]:
    """Return the instructions that stores and ``results`` depend on."""
    needed: set[Value] = set(results)
    kept = []
    for k in reversed(instructions):
        if isinstance(k.op, Store) or k.regions or not needed.isdisjoint(k.results):
            kept.append(k)
            needed.update(v for inner in (k, *(m for r in k.regions for m in walk(r))) for v in inner.operands)
    return tuple(reversed(kept))
