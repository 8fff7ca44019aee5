"""What a loop or branch keeps of its forward part for its gradient, and what the gradient computes again.

``choose`` picks the values to keep: a minimum cut over bytes between what the gradient reads and where ops end that are cheap to
run again, which is at carried values and at results of contractions, reductions, loops and the like. So of a number read from an
array that a loop carries it keeps the number, not the array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from pullback.ir.core.op import OPS, Op
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reindex import Reindex, reshape
from pullback.ir.ops.control.markers import Barrier, CotangentTap, Stop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.transforms.min_cut import NEVER, UNIT, Node, again_cost, cut
from pullback.ir.shapes.extents import NOMINAL, nominal_bytes

CHEAP = (Elementwise, Reindex, Gather, Constant, Iota, Count, Barrier, Stop, CotangentTap)
FUNCTION = 12
"""The cost of computing a byte by a function, where moving it costs ``UNIT``: what a loop keeps is multiplied by its steps."""


def choose(forward: Block, required: Iterable[Value], free: Collection[Value]) -> list[Value]:
    """The values of ``forward`` to keep so that ``required`` can be computed from them and ``free``, in the order of their
    definition: those of fewest bytes. Stacks are not kept: what makes them runs again."""
    made = {v: i for i in forward.instructions for v in i.results}
    read = dict.fromkeys(required)
    wanted: dict[Value, None] = {}
    stack = list(read)
    while stack:
        value = stack.pop()
        if value not in wanted:
            wanted[value] = None
            stack += _sources(value, made, free)
    order = [v for v in (*forward.parameters, *made) if v in wanted]
    order = [*(v for v in wanted if v not in made and v not in forward.parameters), *order]
    place = {v: k for k, v in enumerate(order)}
    nodes = []
    known = _parts(forward.instructions)
    for value in order:
        size = 0 if value in free else nominal_bytes(value.type, known)
        node = Node(2 * UNIT * size, is_read=value in read)
        if value not in free and value in made and _runs_again(made[value], value):
            node.again = again_cost(made[value], size, FUNCTION)
            if isinstance(value.type, StackType):
                node.keep, node.again = NEVER, 0
        node.operands = [place[v] for v in _sources(value, made, free)]
        nodes.append(node)
    return [order[k] for k in sorted(cut(nodes).kept) if order[k] not in free]


def _parts(instructions: Iterable[Instruction]) -> dict[str, int]:
    """What named extents count as that are parts of others: those that a reshape makes of one, beside a number."""
    known: dict[str, int] = {}
    for i in instructions:
        if i.op is reshape:
            whole, shape = i.operands[0].type.shape, i.result.type.shape
            for number, part in pairwise(e for e in shape if e not in whole):
                if isinstance(number, int) and isinstance(part, str) and number:
                    known[part] = max(1, NOMINAL // number)
    return known


def _sources(value: Value, made: Mapping[Value, Instruction], free: Collection[Value]) -> Sequence[Value]:
    """What a value is computed again from; nothing if it is not."""
    instruction = made.get(value)
    return () if instruction is None or value in free or not _runs_again(instruction, value) else instruction.operands


def _runs_again(instruction: Instruction, result: Value) -> bool:
    return isinstance(instruction.op, CHEAP) or isinstance(result.type, StackType)


def bytes_of_run(carried: Sequence[Value], instructions: Sequence[Instruction]) -> int:
    """About what a loop keeps of a run for its gradient: the carried numbers, and results that are dear to compute again."""
    dear = [v for i in instructions if not isinstance(i.op, CHEAP) for v in i.results]
    return sum(nominal_bytes(v.type) for v in (*carried, *dear) if isinstance(v.type, ArrayType) and v.type.dtype.is_inexact)


def needed(instructions: Sequence[Instruction], wanted: Iterable[Value], known: Collection[Value]) -> list[Instruction]:
    """The instructions that compute ``wanted`` from ``known``, in order."""
    missing = {v for v in wanted if v not in known}
    kept = []
    for instruction in reversed(instructions):
        if not missing.isdisjoint(instruction.results):
            missing.update(v for v in instruction.operands if v not in known)
            kept.append(instruction)
    return kept[::-1]


def quiet(block: Block, results: Sequence[Value]) -> Block:
    """A block for its second run: with other results, and without what it says and checks."""
    return live(Block(block.parameters, tuple(map(_quiet, filter(_is_computed, block.instructions))), tuple(results)))


def _quiet(instruction: Instruction) -> Instruction:
    regions = []
    for region in instruction.regions:
        regions.append(replace(region, instructions=tuple(map(_quiet, filter(_is_computed, region.instructions)))))
    return replace(instruction, regions=tuple(regions)) if regions else instruction


def _is_computed(instruction: Instruction) -> bool:
    return bool(instruction.results) or instruction.op.effect == "pure"


def constant_carries(block: Block, carried: int) -> list[int]:
    """The carried values that each run hands on as they are."""
    return [k for k in range(carried) if block.results[k] is block.parameters[1 + k]]


def counters(block: Block, carried: int, captures: Collection[Value]) -> dict[int, tuple[Op, list[Instruction], Value]]:
    """The carried integers that each run adds the same number to, or takes it from: by position the op, the instructions that
    make the number, and the number."""
    made = {v: i for i in block.instructions for v in i.results}
    found = {}
    for k, result in enumerate(block.results[:carried]):
        parameter, instruction = block.parameters[1 + k], made.get(result)
        if instruction is None or instruction.op not in (OPS["add"], OPS["sub"]) or not parameter.type.dtype.is_integer:
            continue
        x, y = instruction.operands
        if y is parameter and instruction.op is OPS["add"]:
            x, y = y, x
        makers = _makers(y, made, captures)
        if x is parameter and makers is not None:
            found[k] = instruction.op, makers, y
    return found


def _makers(value: Value, made: dict[Value, Instruction], captures: Collection[Value]) -> list[Instruction] | None:
    """The instructions that make a value of captures and constants alone, by moving elements; None if there are others."""
    makers: list[Instruction] = []
    while value not in captures:
        instruction = made.get(value)
        if instruction is None or len(instruction.operands) > 1 or not isinstance(instruction.op, Reindex | Constant):
            return None
        makers.insert(0, instruction)
        if not instruction.operands:
            break
        (value,) = instruction.operands
    return makers
