"""The IR's structure: values, instructions, blocks, functions, modules. One structure serves all vocabularies.

Everything is frozen; a pass builds a new function. Values and instructions compare by identity. A block is a list of
instructions with parameters and results; a region of an instruction is a block. Within a function each value is defined
once, before its uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pullback.ir.core.op import Op
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the user's source. ``note`` says how the instruction came about, as in ``pullback(mul)``."""

    file: str = ""
    line: int = 0
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.file)

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else ""
        return " ".join(part for part in (place, self.note) if part)

    def noted(self, note: str) -> Loc:
        """The same place with a note."""
        return replace(self, note=note)

    def pullback_of(self, op: Op) -> Loc:
        """The location of a gradient instruction made by the rule of ``op`` at this place."""
        return self.noted(f"pullback({op.name})")


NOWHERE = Loc()


@dataclass(frozen=True, eq=False, slots=True)
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
        """The one result."""
        (value,) = self.results
        return value


def key_of(op: Op, operands: Sequence[Any], params: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells instructions without regions apart that compute different things, by what stands for their operands."""
    given = ((name, value if isinstance(value, DType) else repr(value)) for name, value in params.items())
    return op, tuple(operands), tuple(sorted(given, key=lambda pair: pair[0])) if params else ()


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
    """The functions of one text; a program and its kernels, or a single function."""

    functions: tuple[Function, ...]

    def __getitem__(self, name: str) -> Function:
        for function in self.functions:
            if function.name == name:
                return function
        raise KeyError(name)


def walk(block: Block) -> Iterator[Instruction]:
    """All instructions of a block in program order, those of regions after the instruction that holds them."""
    stack = [iter(block.instructions)]
    while stack:
        for instruction in stack[-1]:
            yield instruction
            if instruction.regions:
                stack.extend(iter(region.instructions) for region in reversed(instruction.regions))
                break
        else:
            stack.pop()


def copied(block: Block, given: Sequence[Value] = ()) -> Block:
    """The same block of new values, regions included; with ``given`` ones for its parameters, which it then does not have. What
    it reads from outside stays."""
    env: dict[Value, Value] = dict(zip(block.parameters, given, strict=True)) if given else {}

    def define(values: tuple[Value, ...]) -> tuple[Value, ...]:
        env.update((v, Value(v.type, v.name)) for v in values)
        return read(values)

    def read(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(env.get(v, v) for v in values)

    def copy(old: Block) -> Block:
        parameters = () if given and old is block else define(old.parameters)
        made = []
        for i in old.instructions:
            regions = tuple(copy(region) for region in i.regions)
            made.append(Instruction(i.op, read(i.operands), define(i.results), i.params, regions, i.loc))
        return Block(parameters, tuple(made), read(old.results))

    return copy(block)


def rewired(block: Block, env: Mapping[Value, Value]) -> Block:
    """The same block, regions included, that reads other values in place of some of its surroundings'."""
    if not env:
        return block

    def read(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(env.get(v, v) for v in values)

    def rewire(old: Block) -> Block:
        made = []
        for i in old.instructions:
            regions = tuple(map(rewire, i.regions))
            made.append(Instruction(i.op, read(i.operands), i.results, i.params, regions, i.loc))
        return Block(old.parameters, tuple(made), read(old.results))

    return rewire(block)


def use_counts(block: Block) -> dict[Value, int]:
    """How often each value is read inside a block, its regions and results included."""
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
