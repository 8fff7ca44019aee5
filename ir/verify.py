"""The verifier. This docstring specifies well-formed IR.

1. Each value is defined once and before its uses: as a parameter of an enclosing block or by an earlier instruction.
2. Every op belongs to the function's vocabulary: array ops in a func, kernel ops in a kernel, program ops in a program.
3. Regions of array ops are closed: they read only their own parameters and instructions. Regions of kernel and program
   ops may read values of the enclosing blocks.
4. Each instruction's operands, params and regions are accepted by its op's type rule, and its results have the types that the
   rule returns. Ops never broadcast, promote or default.
5. Only kernels and programs hold references; references are not results of a func.
6. No function takes or returns a stack.
7. An extent by value appears, in types and params, only after an instruction that defines it, in the same block or in one
   around it. Regions of array ops may use the extents that the blocks around them define; transforms, ``custom`` and ``group``
   run their regions in place, so that what these define stays defined.
"""

from __future__ import annotations

from pullback.ir.core.op import must_match
from pullback.ir.core.structure import Block, Function, Instruction, Module
from pullback.ir.core.types import RefType, StackType, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import DefineExtent
from pullback.ir.ops.control.custom import Custom
from pullback.ir.ops.control.regions import Group, Transform
from pullback.ir.ops.program import BindExtent
from pullback.ir.shapes.extents import by_value_in, factor_names
from pullback.ir.text import Printer


class VerifyError(Exception):
    """Ill-formed IR: a bug in pullback or in a hand-written file. The message shows the function with the instruction marked."""


def verify(function: Function) -> Function:
    """Check a function and return it. Raises VerifyError."""
    if any(isinstance(v.type, StackType) for v in (*function.parameters, *function.results)):
        raise VerifyError(f"{function.name} takes or returns a stack")
    _Verifier(function).block(function.body, set())
    return function


def verify_module(module: Module) -> Module:
    """Check every function of a module and return it. Raises VerifyError."""
    for function in module.functions:
        verify(function)
    return module


class _Verifier:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.defined: set[Value] = set()
        self.extents: set[str] = set()

    def fail(self, message: str, instruction: Instruction | None = None) -> VerifyError:
        printer = Printer()
        lines = printer.function(self.function).split("\n")
        if instruction is not None:
            marked = Printer()
            marked.names, marked.taken = printer.names, printer.taken
            marked.instruction(instruction, 0)
            guilty = marked.lines[0].strip()
            lines = [f"->{line[2:]}" if line.strip() == guilty else line for line in lines]
        return VerifyError("\n".join([message, "", *lines]))

    def define(self, value: Value, visible: set[Value], instruction: Instruction | None) -> None:
        if value in self.defined:
            raise self.fail("a value is defined twice", instruction)
        self.defined.add(value)
        visible.add(value)

    def block(self, block: Block, outer: set[Value], holder: Instruction | None = None) -> None:
        visible = set(outer)
        for parameter in block.parameters:
            self.define(parameter, visible, holder)
        for instruction in block.instructions:
            self.instruction(instruction, visible)
        for value in block.results:
            if value not in visible:
                raise self.fail("a block returns a value that is not defined in it", holder)

    def regions(self, instruction: Instruction, visible: set[Value]) -> None:
        """Verify the regions of an instruction, and the extents by value of its types and params."""
        if isinstance(instruction.op, DefineExtent | BindExtent):
            self.extents.update(instruction.params["extent"])
        outer = set(self.extents)
        for region in instruction.regions:
            self.block(region, visible, instruction)
        if not isinstance(instruction.op, Transform | Custom | Group):
            self.extents = outer
        shapes = [v.type.shape for v in instruction.results]
        shapes += [instruction.params[name] for name in instruction.op.extents if name in instruction.params]
        names = (n for shape in shapes for e in by_value_in(shape) for n in factor_names(e))
        unknown = next((n for n in names if is_by_value(n) and n not in self.extents), None)
        if unknown is not None:
            raise self.fail(f"the extent {unknown} is not defined above", instruction)

    def instruction(self, instruction: Instruction, visible: set[Value]) -> None:
        op, kind = instruction.op, self.function.kind
        if kind not in op.vocabularies:
            raise self.fail(f"{op.name} is not an op of a {kind}", instruction)
        for value in instruction.operands:
            if value not in visible:
                raise self.fail(f"{op.name} reads a value that is not defined above", instruction)
        self.regions(instruction, set() if kind == "func" else visible)
        try:
            types = op.infer([v.type for v in instruction.operands], instruction.params, instruction.regions, must_match)
        except (TypeError, KeyError, ValueError) as error:
            raise self.fail(f"{op.name}: {error}", instruction) from None
        actual = tuple(v.type for v in instruction.results)
        if actual != types:
            expected, stated = (", ".join(map(str, t)) for t in (types, actual))
            raise self.fail(f"{op.name} has type ({stated}), expected ({expected})", instruction)
        if kind == "func" and any(isinstance(t, RefType) for t in types):
            raise self.fail(f"{op.name} gives a reference inside a func", instruction)
        for value in instruction.results:
            self.define(value, visible, instruction)
