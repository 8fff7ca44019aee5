"""Run a call on the interpreter: each instruction of the unoptimised program, with its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pullback.checking.instruction_log import straight_line
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.interpret import Observer, interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.pipeline import BEFORE_GRAD, parts, run
from pullback.ir.passes.transforms.expand import GradientError, grad
from pullback.programs.call import Call
from pullback.programs.report import location
from pullback.tracer import Argument, Captured, TraceError
from pullback.tracer.failures import raise_failure

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Run:
    """An interpreted call.

    ``values`` holds the value of each parameter and result of an instruction, ``producer`` the instruction that computed it;
    ``labels`` describes the parameters. ``iterations`` gives the loop iterations of instructions that ran in loops, outermost
    first, from 0.
    """

    function: Function
    values: dict[Value, Array]
    producer: dict[Value, Instruction]
    labels: dict[Value, str]
    iterations: Mapping[Instruction, tuple[int, ...]] = field(default_factory=dict)

    def title(self, value: Value) -> str:
        """Return a description of a value: its argument, or the instruction that computed it."""
        instruction = self.producer.get(value)
        if instruction is None:
            return self.labels[value]
        name = f"{instruction.loc.note}, {instruction.op.name}" if instruction.loc.note else instruction.op.name
        return f"{name} at {location(instruction.loc)}" if instruction.loc else name


def run_straight(call: Call, *, effects: bool = True) -> Run:
    """Run a call and record the instructions that ran, loop iterations and branches taken included. Raises as ``run_call``."""
    function, arguments = _prepared(call)
    values = _typed(function, arguments)
    iterations: dict[Instruction, tuple[int, ...]] = {}
    try:
        executed = straight_line(function, values, iterations, effects=effects)
    except CheckFailed as failed:
        raise_failure(call.trace.function, failed, arguments, call.trace.errors)
    maker = {v: i for i in executed.instructions for v in i.results}
    return Run(executed, values, maker, dict(zip(executed.parameters, parameter_labels(call), strict=True)), iterations)


def run_call(call: Call) -> Run:
    """Run a call. Raises TraceError if a gradient cannot be computed, and the error of a failed check."""
    values: dict[Value, Array] = {}
    maker: dict[Value, Instruction] = {}

    def observe(instruction: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        values.update(zip(instruction.results, map(np.asarray, results), strict=True))
        maker.update(dict.fromkeys(instruction.results, instruction))

    function, arguments = observed(call, observe)
    return Run(function, values | arguments, maker, dict(zip(function.parameters, parameter_labels(call), strict=True)))


def observed(call: Call, observe: Observer, *, effects: bool = True) -> tuple[Function, dict[Value, Array]]:
    """Run a call and pass each instruction that ran, those of regions included, to ``observe``.

    Returns the function that ran and the values of its parameters. Raises as ``run_call``.
    """
    function, arguments = _prepared(call)
    values = _typed(function, arguments)
    try:
        interpret(function, *(values[p] for p in function.parameters), observe=observe, effects=effects)
    except CheckFailed as failed:
        raise_failure(call.trace.function, failed, arguments, call.trace.errors)
    return function, values


def interpreted_results(call: Call, observe: Observer | None) -> Sequence[Any]:
    """Return the results of a call's program on the interpreter: those of the function, then what it writes.

    Nothing is printed. Raises as ``run_call``.
    """
    function, arguments = _prepared(call)
    values = _typed(function, arguments)
    try:
        results: Sequence[Any] = interpret(function, *(values[p] for p in function.parameters), observe=observe, effects=False)
    except CheckFailed as failed:
        raise_failure(call.trace.function, failed, arguments, call.trace.errors)
    return results


def _prepared(call: Call) -> tuple[Function, Sequence[Any]]:
    """Return the unoptimised function of a call with its gradients expanded, and its arguments."""
    arguments = call.trace.arguments(call.leaves)
    if arguments is None:
        raise TraceError("a value from outside changed its type while the function was traced")
    try:
        return dce(grad(run(call.trace.function, [step for step in BEFORE_GRAD if step is not parts]))), arguments
    except GradientError as error:
        raise TraceError(str(error), error.loc) from None


def run_stepwise(function: Function, arguments: Sequence[Any]) -> dict[Value, Array]:
    """Return the values of a function's top-level instructions, gradients included, up to the first one that fails."""
    values = _typed(function, arguments)
    for instruction in function.instructions:
        operands = tuple(dict.fromkeys(instruction.operands))
        single = Function("step", Block(operands, (instruction,), instruction.results))
        try:
            results = interpret(grad(single), *(values[v] for v in operands), effects=False)
        except CheckFailed:
            break
        values.update(zip(instruction.results, results, strict=True))
    return values


def _typed(function: Function, arguments: Sequence[Any]) -> dict[Value, Array]:
    return {p: np.asarray(a, p.type.dtype.numpy) for p, a in zip(function.parameters, arguments, strict=True)}


def parameter_labels(call: Call) -> list[str]:
    """Return a description of each parameter of a call's trace."""
    names = [a.name for a in call.arguments if not a.is_static]
    labels = []
    for source in call.trace.inputs:
        match source:
            case Argument(index=index):
                labels.append(f"argument {names[index]}")
            case Captured(describe=describe):
                labels.append(f"{describe}, from outside")
            case _:
                labels.append("an array met in the function")
    return labels
