"""The lowering of one block: the buffer of each value and its live range, views and copies of buffers, and launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.groups.registry import group_draft
from pullback.codegen.lower.copies import FROM_OUTSIDE, IN_STEP, ROW_MAJOR, CopyLog
from pullback.codegen.lower.donated_results import fails
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import ArrayType, RefType, Type, interleaved
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.host import Clock
from pullback.ir.ops.control.regions import group
from pullback.ir.ops.program import launch
from pullback.ir.shapes.extents import by_value_in
from pullback.ir.text import canonical


class BlockLowering(ABC):
    """The lowering of one block: of a function, or of a region of its control flow.

    ``memory``: the buffer of each value, initially of the block's parameters. ``fixed``: the parameters whose buffers may not
    be written. ``kernels``, by canonical text, ``whole``, the buffer that each view shows a part of, and ``copies``, which
    records copies of arrays, are shared by the whole program. ``written``: the updates that the groups before them have done.
    """

    def __init__(
        self,
        block: Block,
        memory: Mapping[Value, Value],
        fixed: frozenset[Value],
        kernels: dict[str, Function],
        whole: dict[Value, Value],
        target: str,
        copies: CopyLog,
    ) -> None:
        self.block = block
        self.memory = dict(memory)
        self.fixed = fixed
        self.kernels = kernels
        self.whole = whole
        self.target = target
        self.copies = copies
        self.b = Builder()
        self.last_use: dict[Value, int] = {}
        self.owner: dict[Value, Value] = {}
        self.homes: dict[Value, Value] = {}
        self.last_failing = -1
        self.position = 0
        self.written: set[Instruction] = set()

    def run(self, over: Sequence[tuple[int, int]] = ()) -> None:
        self.find_live_ranges()
        self.find_homes(over)
        for position, instruction in enumerate(self.block.instructions):
            self.position = position
            self.step(instruction)
            self.free(position, instruction)

    def inside(self, region: Block, memory: Mapping[Value, Value], fixed: frozenset[Value]) -> Self:
        """Return the lowering of a region."""
        return type(self)(region, memory, fixed, self.kernels, self.whole, self.target, self.copies)

    @abstractmethod
    def step(self, instruction: Instruction) -> None:
        """Lower an instruction."""

    # lives

    def find_live_ranges(self) -> None:
        """Find the buffer of each value, and the instruction after which the buffer is free."""
        for position, i in enumerate(self.block.instructions):
            is_view = isinstance(i.op, Reindex)
            for value in i.results:
                self.owner[value] = self.holder(i.operands[0]) if is_view else value
            for value, operand in zip(i.results[1:], i.operands, strict=True) if isinstance(i.op, Clock) else ():
                self.owner[value] = self.holder(operand)
            for value in i.operands:
                self.last_use[self.holder(value)] = position
            for value in i.results:
                self.last_use.setdefault(self.owner[value], position)
        for value in self.block.results:
            self.last_use[self.holder(value)] = len(self.block.instructions)

    def holder(self, value: Value) -> Value:
        """Return the value whose buffer a value shares."""
        while self.owner.get(value, value) is not value:
            value = self.owner[value]
        return value

    def find_homes(self, over: Sequence[tuple[int, int]]) -> None:
        """Find the home of each result: the parameter into whose memory it may be written. Also find the last instruction that
        can fail or be interrupted: until it is done, parameters are unchanged."""
        for result, parameter in over:
            value, home = self.holder(self.block.results[result]), self.block.parameters[parameter]
            ref = self.memory[home].type
            if value not in self.block.parameters and isinstance(ref, RefType) and ref.layout == "c":
                self.homes.setdefault(value, home)
        if self.homes:
            self.last_failing = max((k for k, i in enumerate(self.block.instructions) if fails(i)), default=-1)

    def may_overwrite(self, result: Value, operand: Value) -> bool:
        """Return whether a result may be written over an operand because the operand's memory is the result's home."""
        own = self.holder(operand)
        return self.homes.get(result) is own and self.last_use[own] == self.position > self.last_failing

    def is_home_free(self, result: Value) -> bool:
        """Return whether nothing reads the memory of a result's home any more."""
        home = self.homes.get(result)
        return home is not None and self.last_use.get(home, -1) < self.position > self.last_failing

    def result_buffer(self, b: Builder, result: Value) -> Value:
        """Return the memory for a result: its home, if that is free, else a new buffer."""
        if not self.is_home_free(result):
            return self.buffer(b, result)
        home = self.homes[result]
        self.last_use.setdefault(home, self.position)
        self.share_buffer(result, home)
        ref = self.memory[home]
        t = result.type
        return ref if (ref.type.dtype, ref.type.shape) == (t.dtype, t.shape) else self.view_as(b.at(b.loc, result.name), ref, t)

    def is_last_use(self, value: Value, others: Sequence[Value]) -> bool:
        """Return whether a value's buffer is the program's own, is last read by the present instruction and is not shared with
        ``others``."""
        own = self.holder(value)
        return own not in self.fixed and self.last_use.get(own) == self.position and own not in map(self.holder, others)

    def log_copy(self, b: Builder, value: Value) -> None:
        """Record that the last step copies an array because its memory may not be overwritten, and why."""
        if self.copies.records is None:
            return
        own = self.holder(value)
        for i in self.block.instructions[self.position + 1 :] if own not in self.fixed else ():
            if own in map(self.holder, i.operands):
                self.copies.add(b.instructions, value, "it is still read", i)
                return
        is_result = own in map(self.holder, self.block.results)
        reason = FROM_OUTSIDE if own in self.fixed else "it is a result as well" if is_result else IN_STEP
        self.copies.add(b.instructions, value, reason)

    def share_buffer(self, result: Value, operand: Value) -> None:
        """Record that a result shares the buffer of an operand from now on."""
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
        """Return a new buffer for a value."""
        ref: Value = b.at(b.loc, value.name).alloc(dtype=value.type.dtype, shape=value.type.shape)
        return ref

    def launch(
        self,
        b: Builder,
        instruction: Instruction,
        draft: Draft,
        operands: Sequence[Value],
        refs: Sequence[Value] | None = None,
        over: Mapping[Value, Value] | None = None,
    ) -> None:
        """Append the launch of a kernel. ``over``: the results that are written over an operand."""
        arguments = list(refs) if refs is not None else [self.memory[v] for v in operands]
        for result in instruction.results:
            if over and result in over:
                self.memory[result] = arguments[operands.index(over[result])]
                self.share_buffer(result, over[result])
            else:
                self.memory[result] = self.result_buffer(b, result)
        in_place = draft.updates_first and bool(over)
        buffers = [b.at(b.loc, "scratch").alloc(dtype=t.dtype, shape=t.shape) for t in draft.scratch]
        chosen = arguments[1:] if in_place else arguments
        kernel = draft.in_place if in_place and draft.in_place is not None else draft.kernel
        written = [v for v in instruction.results if in_place or not over or v not in over]
        references = [*chosen, *(self.memory[v] for v in written), *buffers]
        everything = tuple(self.as_parts(b, ref) for ref in references)
        params: dict[str, Any] = {"kernel": self.kernel_name(kernel), "sizes": draft.sizes}
        if draft.failures:
            params["failures"] = draft.failures
        b.append(Instruction(launch, everything, (), params, (), instruction.loc))
        for ref in buffers:
            b.free(ref)

    def view_as(self, b: Builder, ref: Value, t: Type) -> Value:
        """Return a view of a buffer as another type."""
        view: Value = b.view(ref, dtype=t.dtype, shape=t.shape)
        self.whole[view] = self.whole.get(ref, ref)
        return view

    def as_parts(self, b: Builder, ref: Value) -> Value:
        """Return the view of a buffer that kernels use: for complex numbers, their parts."""
        t = ref.type
        return self.view_as(b, ref, interleaved(ArrayType(t.dtype, t.shape))) if t.dtype.is_complex else ref

    def kernel_name(self, kernel: Function) -> str:
        """Return the name of a kernel in the module; equal kernels are added once."""
        text = canonical(kernel)
        if text not in self.kernels:
            self.kernels[text] = Function(f"k{len(self.kernels)}", kernel.body, "kernel")
        return self.kernels[text].name

    def layout(self, value: Value) -> str:
        kind = self.memory[value].type
        return kind.layout if isinstance(kind, RefType) else "value"

    def dense(self, b: Builder, value: Value) -> Value:
        """Return the row-major buffer of a value; strided parameters are copied, scalars stored."""
        ref = self.memory[value]
        if isinstance(ref.type, RefType) and ref.type.layout == "c":
            return ref
        if value.type.dtype.is_complex:
            parts = Value(interleaved(ArrayType(value.type.dtype, value.type.shape)), value.name)
            self.memory[parts] = self.as_parts(b, ref)
            return self.view_as(b, self.dense(b, parts), ArrayType(value.type.dtype, value.type.shape))
        return self.copied(b, value)

    def copied(self, b: Builder, value: Value) -> Value:
        """Return a new row-major buffer with the contents of a value."""
        if value.type.dtype.is_complex:
            parts = Value(interleaved(ArrayType(value.type.dtype, value.type.shape)), value.name)
            self.memory[parts] = self.as_parts(b, self.memory[value])
            return self.view_as(b, self.copied(b, parts), ArrayType(value.type.dtype, value.type.shape))
        inner = Value(value.type, value.name)
        region = Block((inner,), (), (inner,))
        copy = Instruction(
            group, (value,), (Value(value.type, value.name),), {"space": value.type.shape, "rows": 0}, (region,), b.loc
        )
        layouts = (self.layout(value),)
        result = copy.results[0]
        self.launch(b, copy, group_draft(copy, layouts, {}, self.target), (value,))
        self.copies.add(b.instructions, value, ROW_MAJOR)
        return self.memory[result]

    def sequence(self, b: Builder, value: Value) -> Value:
        """Return a stack, or the row-major buffer of an array."""
        return self.dense(b, value) if isinstance(value.type, ArrayType) else self.memory[value]

    def plain(self, b: Builder, value: Value) -> Value:
        """Return the source of a ``copy`` of a value: its row-major buffer, or the scalar itself."""
        ref = self.memory[value]
        return ref if isinstance(ref.type, ArrayType) else self.dense(b, value)

    def result(self, value: Value) -> Value:
        """Return the buffer of a result; the runtime returns an argument that is a result unchanged. A view with an extent by
        value, or of a buffer with one, is copied, so that the result is an array of its own."""
        ref = self.memory[value]
        if ref in self.whole and by_value_in((*value.type.shape, *self.whole[ref].type.shape)):
            return self.copied(self.b, value)
        if isinstance(ref.type, RefType) or value in self.block.parameters:
            return ref
        return self.dense(self.b, value)
