"""The lowering of one block: which buffer each value lives in and until when, views and copies of buffers, and launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.groups.registry import group_draft
from pullback.codegen.lower.donated_results import fails
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import ArrayType, RefType, Type, interleaved
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import group
from pullback.ir.ops.program import launch
from pullback.ir.text import canonical


class BlockLowering(ABC):
    """The lowering of one block: of a function, or of a region of its control flow.

    ``memory``: the buffer of each value, at first of the block's parameters. ``fixed``: the parameters whose buffers may not be
    written. ``kernels`` by canonical text, and the buffer that each view is of (``whole``), are the whole program's.
    """

    def __init__(
        self,
        block: Block,
        memory: Mapping[Value, Value],
        fixed: frozenset[Value],
        kernels: dict[str, Function],
        whole: dict[Value, Value],
        target: str,
    ) -> None:
        self.block = block
        self.memory = dict(memory)
        self.fixed = fixed
        self.kernels = kernels
        self.whole = whole
        self.target = target
        self.b = Builder()
        self.last_use: dict[Value, int] = {}
        self.owner: dict[Value, Value] = {}
        self.homes: dict[Value, Value] = {}
        self.last_failing = -1
        self.position = 0

    def run(self, over: Sequence[tuple[int, int]] = ()) -> None:
        self.find_lives()
        self.find_homes(over)
        for position, instruction in enumerate(self.block.instructions):
            self.position = position
            self.step(instruction)
            self.free(position, instruction)

    def inside(self, region: Block, memory: Mapping[Value, Value], fixed: frozenset[Value]) -> Self:
        """Return the lowering of a region."""
        return type(self)(region, memory, fixed, self.kernels, self.whole, self.target)

    @abstractmethod
    def step(self, instruction: Instruction) -> None:
        """Lower an instruction."""

    # lives

    def find_lives(self) -> None:
        """Which buffer each value lives in, and after which instruction the buffer is free."""
        for position, i in enumerate(self.block.instructions):
            is_view = isinstance(i.op, Reindex)
            for value in i.results:
                self.owner[value] = self.holder(i.operands[0]) if is_view else value
            for value in i.operands:
                self.last_use[self.holder(value)] = position
            for value in i.results:
                self.last_use.setdefault(self.owner[value], position)
        for value in self.block.results:
            self.last_use[self.holder(value)] = len(self.block.instructions)

    def holder(self, value: Value) -> Value:
        """The value whose buffer a value lives in."""
        while self.owner.get(value, value) is not value:
            value = self.owner[value]
        return value

    def find_homes(self, over: Sequence[tuple[int, int]]) -> None:
        """The parameters in whose memory results may be in the end, and the last instruction that can fail or be interrupted:
        until it is done, parameters are as they were given."""
        for result, parameter in over:
            value, home = self.holder(self.block.results[result]), self.block.parameters[parameter]
            ref = self.memory[home].type
            if value not in self.block.parameters and isinstance(ref, RefType) and ref.layout == "c":
                self.homes.setdefault(value, home)
        if self.homes:
            self.last_failing = max((k for k, i in enumerate(self.block.instructions) if fails(i)), default=-1)

    def comes_home(self, result: Value, operand: Value) -> bool:
        """Whether a result may be written over an operand because it is to be in that memory in the end."""
        own = self.holder(operand)
        return self.homes.get(result) is own and self.last_use[own] == self.position > self.last_failing

    def has_room(self, result: Value) -> bool:
        """Whether nothing reads the memory any more that a result is to be in in the end."""
        home = self.homes.get(result)
        return home is not None and self.last_use.get(home, -1) < self.position > self.last_failing

    def place(self, b: Builder, result: Value) -> Value:
        """The memory for a result: where it is to be in the end, if there is room, else a buffer."""
        if not self.has_room(result):
            return self.buffer(b, result)
        home = self.homes[result]
        self.last_use.setdefault(home, self.position)
        self.takes_over(result, home)
        ref = self.memory[home]
        t = result.type
        return ref if (ref.type.dtype, ref.type.shape) == (t.dtype, t.shape) else self.seen_as(b.at(b.loc, result.name), ref, t)

    def ends_here(self, value: Value, others: Sequence[Value]) -> bool:
        """Whether a value's buffer is the program's own, is read last by the present instruction and holds no other."""
        own = self.holder(value)
        return own not in self.fixed and self.last_use.get(own) == self.position and own not in map(self.holder, others)

    def takes_over(self, result: Value, operand: Value) -> None:
        """A result lives in the buffer of an operand from now on."""
        own = self.holder(operand)
        self.owner[result] = own
        self.last_use[own] = max(self.last_use[own], self.last_use[result])

    def free(self, position: int, instruction: Instruction) -> None:
        touched = dict.fromkeys(self.holder(v) for v in (*instruction.operands, *instruction.results))
        for value in touched:
            made_here = value in self.owner and value not in self.block.parameters
            if made_here and self.last_use.get(value) == position:
                self.b.free(self.memory[value])

    # buffers and launches

    def buffer(self, b: Builder, value: Value) -> Value:
        """A buffer for a value."""
        found: Value = b.at(b.loc, value.name).alloc(dtype=value.type.dtype, shape=value.type.shape)
        return found

    def launch(
        self,
        b: Builder,
        instruction: Instruction,
        draft: Draft,
        operands: Sequence[Value],
        refs: Sequence[Value] | None = None,
        over: Mapping[Value, Value] | None = None,
    ) -> None:
        """``over``: the results that are written over an operand."""
        arguments = list(refs) if refs is not None else [self.memory[v] for v in operands]
        for result in instruction.results:
            if over and result in over:
                self.memory[result] = arguments[operands.index(over[result])]
                self.takes_over(result, over[result])
            else:
                self.memory[result] = self.place(b, result)
        in_place = draft.updates_first and bool(over)
        buffers = [b.at(b.loc, "scratch").alloc(dtype=t.dtype, shape=t.shape) for t in draft.scratch]
        chosen = arguments[1:] if in_place else arguments
        kernel = draft.in_place if in_place and draft.in_place is not None else draft.kernel
        made = [v for v in instruction.results if in_place or not over or v not in over]
        given = [*chosen, *(self.memory[v] for v in made), *buffers]
        everything = tuple(self.real(b, ref) for ref in given)
        params: dict[str, Any] = {"kernel": self.named(kernel), "sizes": draft.sizes}
        if draft.failures:
            params["failures"] = draft.failures
        b.append(Instruction(launch, everything, (), params, (), instruction.loc))
        for ref in buffers:
            b.free(ref)

    def seen_as(self, b: Builder, ref: Value, t: Type) -> Value:
        """A buffer under another type."""
        found: Value = b.view(ref, dtype=t.dtype, shape=t.shape)
        self.whole[found] = self.whole.get(ref, ref)
        return found

    def real(self, b: Builder, ref: Value) -> Value:
        """A buffer as kernels see it: of complex numbers, the parts."""
        t = ref.type
        return self.seen_as(b, ref, interleaved(ArrayType(t.dtype, t.shape))) if t.dtype.is_complex else ref

    def named(self, kernel: Function) -> str:
        """The name under which a kernel is in the module; equal kernels are one."""
        text = canonical(kernel)
        if text not in self.kernels:
            self.kernels[text] = Function(f"k{len(self.kernels)}", kernel.body, "kernel")
        return self.kernels[text].name

    def layout(self, value: Value) -> str:
        found = self.memory[value].type
        return found.layout if isinstance(found, RefType) else "value"

    def dense(self, b: Builder, value: Value) -> Value:
        """The row-major buffer of a value; strided parameters are copied, scalars stored."""
        ref = self.memory[value]
        if isinstance(ref.type, RefType) and ref.type.layout == "c":
            return ref
        if value.type.dtype.is_complex:
            parts = Value(interleaved(ArrayType(value.type.dtype, value.type.shape)), value.name)
            self.memory[parts] = self.real(b, ref)
            return self.seen_as(b, self.dense(b, parts), ArrayType(value.type.dtype, value.type.shape))
        inner = Value(value.type, value.name)
        region = Block((inner,), (), (inner,))
        copy = Instruction(
            group, (value,), (Value(value.type, value.name),), {"space": value.type.shape, "rows": 0}, (region,), b.loc
        )
        layouts = (self.layout(value),)
        result = copy.results[0]
        self.launch(b, copy, group_draft(copy, layouts, {}, self.target), (value,))
        return self.memory[result]

    def sequence(self, b: Builder, value: Value) -> Value:
        """A stack, or the row-major buffer of an array."""
        return self.dense(b, value) if isinstance(value.type, ArrayType) else self.memory[value]

    def plain(self, b: Builder, value: Value) -> Value:
        """What a ``copy`` reads: the row-major buffer of a value, or a scalar as it is."""
        ref = self.memory[value]
        return ref if isinstance(ref.type, ArrayType) else self.dense(b, value)

    def result(self, value: Value) -> Value:
        """The buffer of a result; the runtime returns an argument that is a result as it is."""
        ref = self.memory[value]
        if isinstance(ref.type, RefType) or value in self.block.parameters:
            return ref
        return self.dense(self.b, value)
