"""lower: from fused array IR to a program and its kernels.

Requires: a fused function. Keeps: its meaning. The program allocates, launches, and frees; each group and each op with a kernel
of its own becomes a kernel. Target-neutral: loops say what they combine, not how they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.codegen.collapse import collapse
from pullback.codegen.group_kernel import Draft, group_kernel
from pullback.codegen.op_kernels import op_kernel
from pullback.ir.builder import Builder
from pullback.ir.ops.complexes import Reinterpret
from pullback.ir.ops.control import Group, group
from pullback.ir.ops.host import Host
from pullback.ir.ops.program import launch
from pullback.ir.ops.reindex import Reindex
from pullback.ir.structure import Block, Function, Instruction, Module, Value
from pullback.ir.text import canonical
from pullback.ir.types import ArrayType, RefType, Type, interleaved


def lower(function: Function, layouts: Sequence[str] = ()) -> Module:
    """The program of a fused function, then its kernels. ``layouts``: "c" or "strided" for each parameter."""
    return _Lowering(function, layouts or ["c"] * len(function.parameters)).run()


class _Lowering:
    def __init__(self, function: Function, layouts: Sequence[str]) -> None:
        self.function = function
        self.layouts = layouts
        self.b = Builder()
        self.kernels: dict[str, Function] = {}
        self.memory: dict[Value, Value] = {}
        self.last_use: dict[Value, int] = {}
        self.owner: dict[Value, Value] = {}
        self.position = 0

    def run(self) -> Module:
        parameters = []
        for value, layout in zip(self.function.parameters, self.layouts, strict=True):
            t = value.type
            in_memory = t.shape or t.dtype.is_complex
            ref = Value(RefType(t.dtype, t.shape, layout), value.name) if in_memory else Value(t, value.name)
            self.memory[value] = ref
            parameters.append(ref)
        self.find_lives()
        for position, instruction in enumerate(self.function.instructions):
            self.position = position
            self.step(instruction)
            self.free(position, instruction)
        results = [self.result(v) for v in self.function.results]
        program = self.b.function(self.function.name, parameters, results, "program")
        return Module((program, *self.kernels.values()))

    def find_lives(self) -> None:
        """Which buffer each value lives in, and after which instruction the buffer is free."""
        for position, i in enumerate(self.function.instructions):
            is_view = isinstance(i.op, Reindex)
            for value in i.results:
                self.owner[value] = self.owner.get(i.operands[0], i.operands[0]) if is_view else value
            for value in i.operands:
                self.last_use[self.owner.get(value, value)] = position
            for value in i.results:
                self.last_use.setdefault(self.owner[value], position)
        for value in self.function.results:
            self.last_use[self.owner.get(value, value)] = len(self.function.instructions)

    def step(self, instruction: Instruction) -> None:
        op = instruction.op
        b = self.b.at(instruction.loc)
        if isinstance(op, Reindex):
            (result,) = instruction.results
            (operand,) = instruction.operands
            source = self.memory[operand] if isinstance(op, Reinterpret) else self.dense(b, operand)
            self.memory[result] = self.seen_as(b.at(b.loc, result.name), source, result.type)
            return
        if isinstance(op, Group):
            layouts = tuple(self.layout(v) for v in instruction.operands)
            self.launch(b, instruction, group_kernel(collapse(instruction, layouts), layouts), instruction.operands)
            return
        operands = [self.dense(b, v) for v in instruction.operands]
        if isinstance(op, Host):
            for value in instruction.results:
                self.memory[value] = b.at(b.loc, value.name).alloc(dtype=value.type.dtype, shape=value.type.shape)
            buffers = (*operands, *(self.memory[v] for v in instruction.results))
            b.append(Instruction(op, buffers, (), instruction.params, (), instruction.loc))
            return
        draft = op_kernel(instruction)
        in_place = self.in_place(instruction, draft)
        self.launch(b, instruction, draft, instruction.operands, operands, in_place)

    def in_place(self, instruction: Instruction, draft: Draft) -> bool:
        """Whether the op updates its first operand, and that buffer ends here and is the program's own."""
        if not draft.updates_first:
            return False
        base = instruction.operands[0]
        own = self.owner.get(base, base)
        others = [self.owner.get(v, v) for v in instruction.operands[1:]]
        return own not in self.function.parameters and self.last_use.get(own) == self.position and own not in others

    def launch(
        self,
        b: Builder,
        instruction: Instruction,
        draft: Draft,
        operands: Sequence[Value],
        refs: Sequence[Value] | None = None,
        in_place: bool = False,
    ) -> None:
        arguments = list(refs) if refs is not None else [self.memory[v] for v in operands]
        for position, result in enumerate(instruction.results):
            if position == 0 and in_place:
                self.memory[result] = arguments[0]
                self.owner[result] = self.owner.get(operands[0], operands[0])
                self.last_use[self.owner[result]] = max(self.last_use[self.owner[result]], self.last_use[result])
                continue
            self.memory[result] = b.at(b.loc, result.name).alloc(dtype=result.type.dtype, shape=result.type.shape)
        buffers = [b.at(b.loc, "scratch").alloc(dtype=t.dtype, shape=t.shape) for t in draft.scratch]
        chosen = arguments[1:] if draft.updates_first and in_place else arguments
        kernel = draft.in_place if in_place and draft.in_place is not None else draft.kernel
        given = [*chosen, *(self.memory[v] for v in instruction.results), *buffers]
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
        self.launch(b, copy, group_kernel(collapse(copy, layouts), layouts), (value,))
        return self.memory[result]

    def result(self, value: Value) -> Value:
        """The buffer of a result; the runtime returns an argument that is a result as it is."""
        ref = self.memory[value]
        if isinstance(ref.type, RefType) or value in self.function.parameters:
            return ref
        return self.dense(self.b, value)

    def free(self, position: int, instruction: Instruction) -> None:
        touched = dict.fromkeys(self.owner.get(v, v) for v in (*instruction.operands, *instruction.results))
        for value in touched:
            made_here = value in self.owner and value not in self.function.parameters
            if made_here and self.last_use.get(value) == position:
                self.b.free(self.memory[value])
