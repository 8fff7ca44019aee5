"""The structure of the IR: values, instructions, blocks, functions, modules. Array functions, kernels and programs share it.

Everything is frozen; a pass builds a new function. Values and instructions compare by identity. A block is a list of
instructions with parameters and results; a region of an instruction is a block. Within a function each value is defined once,
before its uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from pullback.ir.core.op import Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value

RECOMPUTED = "recomputed "
"""The note of an instruction that a gradient recomputes, before the number of the part."""


@dataclass(frozen=True, slots=True)
class Loc:
    """A location in the user's source. ``note`` describes the origin of a derived instruction, as in ``pullback(mul)``, and ends
    with the number of the part of a gradient that recomputes it, if one does, as in ``recomputed 2``."""

    file: str = ""
    line: int = 0
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.file)

    def __str__(self) -> str:
        position = f"{self.file}:{self.line}" if self.file else ""
        return " ".join(part for part in (position, self.note) if part)

    def noted(self, note: str) -> Loc:
        """Return the same location with a note."""
        return replace(self, note=note)

    def recomputed_in(self, part: int) -> Loc:
        """Return the location of an instruction that a part of a gradient recomputes."""
        return self.noted(f"{self.note} {RECOMPUTED}{part}".strip())

    @property
    def part(self) -> int:
        """Return the number of the part of a gradient that recomputes an instruction; 0 if none does."""
        return int(self.note.rpartition(RECOMPUTED)[2]) if RECOMPUTED in self.note else 0

    def pullback_of(self, op: Op) -> Loc:
        """Return the location of an instruction emitted here by the gradient rule of ``op``."""
        return self.noted(f"pullback({op.name})")


NOWHERE = Loc()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Block:
    parameters: tuple[Value, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    results: tuple[Value, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Instruction:
    op: Op
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    regions: tuple[Block, ...] = ()
    loc: Loc = NOWHERE

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value


def key_of(op: Op, operands: Sequence[Any], params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key that is equal for instructions without regions that compute the same; ``operands`` stand for their
    operands."""
    items = ((name, value if isinstance(value, DType) else repr(value)) for name, value in params.items())
    return op, tuple(operands), tuple(sorted(items, key=lambda pair: pair[0])) if params else ()


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """``kind`` names the vocabulary: "func" (array ops), "kernel", "program"."""

    name: str
    body: Block
    kind: str = "func"

    @property
    def parameters(self) -> tuple[Value, ...]:
        return self.body.parameters

    @property
    def results(self) -> tuple[Value, ...]:
        return self.body.results

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.body.instructions


@dataclass(frozen=True, eq=False, slots=True)
class Module:
    """The functions of one file: a program and its kernels, or a single function."""

    functions: tuple[Function, ...]

    def __getitem__(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)


def walk(block: Block) -> Iterator[Instruction]:
    """Iterate over all instructions of a block in program order; those of regions follow the instruction that holds them."""
    stack = [iter(block.instructions)]
    while stack:
        for instruction in stack[-1]:
            yield instruction
            if instruction.regions:
                stack.extend(iter(region.instructions) for region in reversed(instruction.regions))
                break
        else:
            stack.pop()


def copy_block(block: Block, arguments: Sequence[Value] = ()) -> Block:
    """Return a copy of a block with new values, regions included. ``arguments``: values to substitute for its parameters,
    which the copy then does not have. Values from outside the block stay."""
    env: dict[Value, Value] = dict(zip(block.parameters, arguments, strict=True)) if arguments else {}

    def define(values: tuple[Value, ...]) -> tuple[Value, ...]:
        env.update((v, Value(v.type, v.name)) for v in values)
        return read(values)

    def read(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(env.get(v, v) for v in values)

    def copy(old: Block) -> Block:
        parameters = () if arguments and old is block else define(old.parameters)
        instructions = []
        for i in old.instructions:
            regions = tuple(copy(region) for region in i.regions)
            instructions.append(Instruction(i.op, read(i.operands), define(i.results), i.params, regions, i.loc))
        return Block(parameters, tuple(instructions), read(old.results))

    return copy(block)


def substitute_values(block: Block, env: Mapping[Value, Value]) -> Block:
    """Return the block, regions included, with the outer values that are keys of ``env`` replaced."""
    if not env:
        return block

    def read(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(env.get(v, v) for v in values)

    def rewire(old: Block) -> Block:
        instructions = []
        for i in old.instructions:
            regions = tuple(map(rewire, i.regions))
            instructions.append(Instruction(i.op, read(i.operands), i.results, i.params, regions, i.loc))
        return Block(old.parameters, tuple(instructions), read(old.results))

    return rewire(block)


def with_contents(block: Block, instructions: Sequence[Instruction], results: Sequence[Value]) -> Block:
    """Return a block with the same parameters and other contents; the block itself if the contents are the same, so that passes
    tell by identity what has changed."""
    contents = tuple(instructions), tuple(results)
    return block if contents == (block.instructions, block.results) else Block(block.parameters, *contents)


def with_regions(instruction: Instruction, regions: Iterable[Block], operands: Sequence[Value] | None = None) -> Instruction:
    """Return an instruction with other regions and operands; the instruction itself if they are the same."""
    parts = instruction.operands if operands is None else tuple(operands), tuple(regions)
    is_same = parts == (instruction.operands, instruction.regions)
    return instruction if is_same else replace(instruction, operands=parts[0], regions=parts[1])


def use_counts(block: Block) -> dict[Value, int]:
    """Count the uses of each value inside a block, in its regions and its results included."""
    counts: dict[Value, int] = {}
    for instruction in walk(block):
        for value in instruction.operands:
            counts[value] = counts.get(value, 0) + 1
        for region in instruction.regions:
            for value in region.results:
                counts[value] = counts.get(value, 0) + 1
    for value in block.results:
        counts[value] = counts.get(value, 0) + 1
    return counts
