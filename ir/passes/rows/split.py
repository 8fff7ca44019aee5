"""Split a function over blocks of rows: what each block computes, how partial results are reduced, what is computed once.

The values of a function have a *round*: the number of reductions over rows, one after another, on which they depend. The split
has for each round a function without rows (``outer``), which computes what does not depend on rows, and a function of a block
(``map``), which computes partial results and results that keep the rows. A map computes anew what it needs of the rows of earlier
rounds. Functions exchange values through numbered *slots*; the first are the parameters of the whole function.

Requires: a func without extents but ints and ``ROWS``, without ``gradient`` and ``jvp`` instructions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Iota
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.rows.combine import combined
from pullback.ir.passes.rows.rules import (
    INSTEAD,
    Coupled,
    Kind,
    Reduction,
    is_by_rows,
    is_row_index,
    kind_of,
    row_axis,
    touches_rows,
)

FIRST = -1
"""The slot of the index of a block's first row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """A function whose parameters are read from the slots ``inputs``, and whose results are stored in the slots ``outputs``."""

    function: Function
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockPart(Part):
    """A part that runs for each block.

    ``reductions``: the names of the combinations, each with its number of partial results, which are the first results;
    ``kept``: the axes of rows of the results that follow, which keep the rows.
    """

    reductions: tuple[tuple[str, int], ...]
    kept: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Split:
    """A function by blocks of rows. ``rounds``: pairs of an outer part and a part for each block, None if nothing is to be done,
    in order. ``results``: the slots of the results. ``axes``: the axis of rows of each parameter, None if it has none."""

    name: str
    rounds: tuple[tuple[Part | None, BlockPart | None], ...]
    results: tuple[int, ...]
    axes: tuple[int | None, ...]
    result_axes: tuple[int | None, ...]


def split_rows(function: Function) -> Split:
    """Return the split of a function. Raises Coupled for an instruction that couples rows in another way than by a reduction."""
    return _Splitter(function).split()


RunOuter = Callable[[Part, list[Any]], Sequence[Any]]
"""Runs an outer part on its arguments, and returns its results."""
RunBlocks = Callable[[BlockPart, Mapping[int, Any]], tuple[Sequence[tuple[Any, ...]], Sequence[Any]]]
"""Runs a part for all blocks, with values from slots. Returns the reduced partial results of each reduction, and the results that
keep the rows."""


def evaluate(split: Split, arguments: Sequence[Any], run_outer: RunOuter, run_blocks: RunBlocks) -> list[Any]:
    """Return the results of a split, whose parts run in order."""
    slots: dict[int, Any] = dict(enumerate(arguments))
    for outer, block in split.rounds:
        if outer is not None:
            slots.update(zip(outer.outputs, run_outer(outer, [slots[k] for k in outer.inputs]), strict=True))
        if block is not None:
            reduced, kept = run_blocks(block, slots)
            slots.update(zip(block.outputs, (*(x for partials in reduced for x in partials), *kept), strict=True))
    return [slots[k] for k in split.results]


def blocks_in_order(
    split: Split, bounds: Sequence[int], call: Callable[[BlockPart, list[Any], int], Sequence[Any]],
    rows_of: Callable[[Any, int, int, int], Any],
) -> RunBlocks:  # fmt: skip
    """Return how a part runs for one block after another. ``call(part, arguments, rows)`` runs it for one of them, and
    ``rows_of(value, axis, start, stop)`` returns the rows of a value. Results that keep the rows are joined."""

    def run(part: BlockPart, slots: Mapping[int, Any]) -> tuple[Sequence[tuple[Any, ...]], Sequence[Any]]:
        results = []
        for start, stop in nonempty(bounds):
            arguments: list[Any] = []
            for k in part.inputs:
                axis = split.axes[k] if 0 <= k < len(split.axes) else None
                value = np.int64(start) if k == FIRST else slots[k]
                arguments.append(value if axis is None else rows_of(value, axis, start, stop))
            results.append(call(part, arguments, stop - start))
        partials = [partials_of(part, r) for r in results]
        first = len(part.outputs) - len(part.kept)
        kept = [np.concatenate([np.asarray(r[k]) for r in results], axis) for k, axis in enumerate(part.kept, first)]
        return combined([name for name, _ in part.reductions], partials), kept

    return run


def nonempty(bounds: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first row and the end of each block that has rows; of one block without rows if there are none."""
    ranges = [(a, b) for a, b in itertools.pairwise(bounds) if a < b]
    return ranges or [(0, 0)]


def partials_of(block: BlockPart, results: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the partial results of a block, for each reduction."""
    ends = np.cumsum([0, *(count for _, count in block.reductions)]).tolist()
    return [tuple(results[a:b]) for a, b in itertools.pairwise(ends)]


CLONED = (Constant, Iota)
"""Families of instructions without rows that each part computes for itself, since their operands are smaller than their
results, as are those of ``broadcast``."""


@dataclass(eq=False)
class _Splitter:
    """The state of one split. ``round``: by value; ``slots``: of the values that parts exchange; ``partials``: the slots of the
    partial results by reduction; ``outer`` and ``block``: the values that each round has to compute."""

    function: Function
    kinds: dict[Instruction, Kind | None] = field(default_factory=dict)
    round: dict[Value, int] = field(default_factory=dict)
    effects: dict[int, list[Instruction]] = field(default_factory=dict)
    makers: dict[Value, Instruction] = field(default_factory=dict)
    slots: dict[Value, int] = field(default_factory=dict)
    partials: dict[Instruction, tuple[Value, ...]] = field(default_factory=dict)
    outer: dict[int, dict[Value, None]] = field(default_factory=dict)
    count: int = 0

    def split(self) -> Split:
        function = self.function
        for v in function.parameters:
            row_axis(v.type)
            self.slot(v)
            self.round[v] = 0
        for i in function.instructions:
            self.classify(i)
        last = max(self.round.values(), default=0)
        last = max([last, *self.effects])
        for v in function.results:
            if not is_by_rows(v):
                self.demand(v)
        rounds: list[tuple[Part | None, BlockPart | None]] = []
        for k in reversed(range(last + 1)):
            block = self.block_part(k)
            rounds.append((self.outer_part(k), block))
        return Split(
            name=function.name,
            rounds=tuple(reversed(rounds)),
            results=tuple(self.slot(v) for v in function.results),
            axes=tuple(row_axis(v.type) for v in function.parameters),
            result_axes=tuple(row_axis(v.type) for v in function.results),
        )

    def slot(self, v: Value) -> int:
        if v not in self.slots:
            self.slots[v] = len(self.slots)
        return self.slots[v]

    def classify(self, i: Instruction) -> None:
        """Find the kind of an instruction and the round of its results."""
        kind = kind_of(i, self.makers.get) if touches_rows(i) else None
        self.kinds[i] = kind
        self.makers.update(dict.fromkeys(i.results, i))
        round_ = max((self.round[v] for v in i.operands), default=0)
        if not is_pure(i):
            self.effects.setdefault(round_, []).append(i)
        self.round.update(dict.fromkeys(i.results, round_ + isinstance(kind, Reduction)))

    def demand(self, v: Value) -> None:
        """Note that a value without rows is needed, in the round in which it is computed."""
        self.slot(v)
        if v in self.makers:
            maker = self.makers[v]
            if touches_rows(maker) and not isinstance(self.kinds[maker], Reduction):
                raise Coupled(f"{maker.op.name} couples rows: a result of it is one for all rows; {INSTEAD}", maker.loc)
            self.outer.setdefault(self.round[v], {})[v] = None

    def is_cloned(self, i: Instruction) -> bool:
        return isinstance(i.op, CLONED) or i.op is broadcast

    def outer_part(self, k: int) -> Part | None:
        """Return the outer part of a round: what is demanded, and effects without rows."""
        wanted = list(self.outer.get(k, {}))
        effects = [i for i in self.effects.get(k, ()) if not touches_rows(i)]
        inside = self.needed(
            [*wanted, *(v for i in effects for v in i.operands)], effects,
            lambda i: (not touches_rows(i) and (self.is_cloned(i) or self.round_of(i) == k)) or self.is_reduced_at(i, k),
            lambda i: [v for v in i.operands if not is_by_rows(v)],
        )  # fmt: skip
        if not inside:
            return None
        b, env, inputs = Builder(), dict[Value, Value](), dict[Value, Value]()

        def read(v: Value) -> Value:
            if v not in env:
                env[v] = inputs[v] = Value(v.type, v.name)
                if v in self.makers:
                    self.demand(v)
                self.slot(v)
            return env[v]

        for i in inside:
            kind = self.kinds[i]
            if isinstance(kind, Reduction):
                partials = [read(v) for v in self.partials_of(i)]
                operands = [read(v) if not is_by_rows(v) else v for v in i.operands]
                results = kind.finish(b.at(i.loc), i, partials, operands)
            else:
                results = replay(b, i, [read(v) for v in i.operands])
            env.update(zip(i.results, results, strict=True))
        function = b.function(f"{self.function.name}_{k}", tuple(inputs.values()), [env[v] for v in wanted])
        return Part(
            function=function, inputs=tuple(self.slots[v] for v in inputs), outputs=tuple(self.slots[v] for v in wanted)
        )

    def is_reduced_at(self, i: Instruction, k: int) -> bool:
        return isinstance(self.kinds[i], Reduction) and self.round_of(i) == k

    def round_of(self, i: Instruction) -> int:
        """Return the round of an instruction's results, or of an effect."""
        if i.results:
            return self.round[i.results[0]]
        return max((self.round[v] for v in i.operands), default=0)

    def partials_of(self, i: Instruction) -> tuple[Value, ...]:
        """Return the values that stand for the reduced partial results of a reduction."""
        if i not in self.partials:
            kind = self.kinds[i]
            assert isinstance(kind, Reduction)
            types = [v.type for v in kind.partial(Builder(), i, i.operands, lambda: Value(scalar(I64)))]
            self.partials[i] = tuple(Value(t, i.results[0].name) for t in types)
        return self.partials[i]

    def needed(
        self, values: Iterable[Value], effects: Iterable[Instruction], is_inside: Callable[[Instruction], bool],
        operands: Callable[[Instruction], Sequence[Value]],
    ) -> list[Instruction]:  # fmt: skip
        """Return the instructions of a part, in order: effects, and what values depend on as far as ``is_inside`` holds."""
        wanted, chosen = set(values), set(effects)
        inside = []
        for i in reversed(self.function.instructions):
            if i in chosen or (not wanted.isdisjoint(i.results) and is_inside(i)):
                inside.append(i)
                wanted.update(operands(i))
        return inside[::-1]

    def block_part(self, k: int) -> BlockPart | None:
        """Return the part of a round for each block: the reductions of the next round, results by rows, and checks of rows."""
        instructions = self.function.instructions
        reductions = [i for i in instructions if self.is_reduced_at(i, k + 1) and i in self.partials]
        kept = [v for v in dict.fromkeys(self.function.results) if is_by_rows(v) and self.round[v] == k and v in self.makers]
        effects = [i for i in self.effects.get(k, ()) if touches_rows(i) and not isinstance(self.kinds[i], Reduction)]
        if not reductions and not kept and not effects:
            return None
        read_by = [v for i in (*reductions, *effects) for v in self.block_operands(i)]
        inside = self.needed(
            [*read_by, *kept], effects,
            lambda i: (touches_rows(i) and not isinstance(self.kinds[i], Reduction)) or self.is_cloned(i),
            self.block_operands,
        )  # fmt: skip
        b, env, inputs = Builder(), dict[Value, Value](), dict[Value, Value]()
        first: list[Value] = []

        def read(v: Value) -> Value:
            if v not in env:
                env[v] = inputs[v] = Value(v.type, v.name)
                if v in self.makers:
                    self.demand(v)
            return env[v]

        def first_row() -> Value:
            if not first:
                first.append(Value(scalar(I64), "first"))
            return first[0]

        local: dict[Value, Value] = {}
        for i in inside:
            operands = [read(v) for v in i.operands]
            if i.op.name in ("gather", *SCATTERS):
                operands = self.with_local_rows(b.at(i.loc), i, operands, local)
            results = replay(b, i, operands)
            if isinstance(i.op, Iota) and row_axis(i.result.type) == i.params["axis"]:
                at = b.at(i.loc)
                start = first_row() if i.params["dtype"] is I64 else at.cast(first_row(), dtype=i.params["dtype"])
                results = (at.add(results[0], at.spread(start, i.result.type.shape)),)
            env.update(zip(i.results, results, strict=True))
        partials: list[Value] = []
        names: list[tuple[str, int]] = []
        for i in reductions:
            kind = self.kinds[i]
            assert isinstance(kind, Reduction)
            operands = [read(v) if v in self.block_operands(i) else v for v in i.operands]
            emitted = kind.partial(b.at(i.loc), i, operands, first_row)
            partials += emitted
            names.append((kind.combine, len(emitted)))
        returned = [*partials, *(read(v) for v in kept)]
        outputs = [self.slot(v) for i in reductions for v in self.partials[i]] + [self.slot(v) for v in kept]
        function = b.function(f"{self.function.name}_rows{k or ''}", (*inputs.values(), *first), returned)
        return BlockPart(
            function=function,
            inputs=(*(self.slots[v] for v in inputs), *[FIRST] * len(first)),
            outputs=tuple(outputs),
            reductions=tuple(names),
            kept=tuple(a for v in kept if (a := row_axis(v.type)) is not None),
        )

    def block_operands(self, i: Instruction) -> Sequence[Value]:
        """Return the operands that a block reads: of a scatter that is reduced, all but the base."""
        is_sum = isinstance(self.kinds[i], Reduction) and i.op.name in SCATTERS
        return i.operands[1:] if is_sum else i.operands

    def with_local_rows(
        self, b: Any, i: Instruction, operands: list[Value], local: dict[Value, Value]
    ) -> list[Value]:  # fmt: skip
        """Return the operands of an access to arrays by rows, in which each row reads or writes itself: by its index in the
        block."""
        axis = row_axis(i.operands[0].type)
        if axis not in i.params["axes"]:
            return operands
        position = 1 + list(i.params["axes"]).index(axis)
        index = i.operands[position]
        own = row_axis(index.type)
        assert own is not None and is_row_index(index, own, self.makers.get)
        if index not in local:
            local[index] = b.iota(shape=index.type.shape, axis=own, dtype=index.type.dtype)
        return [*operands[:position], local[index], *operands[position + 1 :]]


SCATTERS = ("scatter_add", "scatter_set", "scatter_add_part", "scatter_set_part")
"""The ops that write at indices."""
