"""A call on the interpreter: each instruction of the program, before it is optimised, with its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.checking.instruction_log import straight
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.interpret import Observer, interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.pipeline import BEFORE_GRAD, run
from pullback.ir.passes.transforms.expand import GradientError, grad
from pullback.programs.call import Call
from pullback.programs.entry import failure
from pullback.programs.report import place
from pullback.tracer import Argument, Captured, TraceError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Run:
    """``values`` has the value of each parameter and result of an instruction; ``labels`` says what the parameters are;
    ``turns``, of instructions that ran in loops, in which turns, the outermost first, counted from 0."""

    function: Function
    values: dict[Value, Array]
    maker: dict[Value, Instruction]
    labels: dict[Value, str]
    turns: Mapping[Instruction, tuple[int, ...]] = field(default_factory=dict)

    def title(self, value: Value) -> str:
        """What a value is: an argument, or what made it."""
        made = self.maker.get(value)
        if made is None:
            return self.labels[value]
        name = f"{made.loc.note}, {made.op.name}" if made.loc.note else made.op.name
        return f"{name} at {place(made.loc)}" if made.loc else name


def run_straight(call: Call, *, effects: bool = True) -> Run:
    """Run a call whose instructions are those that ran, turns of loops and branches taken among them. Raises as ``run_call``."""
    function, arguments = _prepared(call)
    values = _typed(function, arguments)
    turns: dict[Instruction, tuple[int, ...]] = {}
    try:
        found = straight(function, values, turns, effects=effects)
    except CheckFailed as failed:
        raise failure(call.trace.function, failed, arguments) from None
    maker = {v: i for i in found.instructions for v in i.results}
    return Run(found, values, maker, dict(zip(found.parameters, parameter_labels(call), strict=True)), turns)


def run_call(call: Call) -> Run:
    """Run a call. Raises TraceError where a gradient cannot be had, and what a failed check says."""
    values: dict[Value, Array] = {}
    maker: dict[Value, Instruction] = {}

    def observe(instruction: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        values.update(zip(instruction.results, map(np.asarray, results), strict=True))
        maker.update(dict.fromkeys(instruction.results, instruction))

    function, given = observed(call, observe)
    return Run(function, values | given, maker, dict(zip(function.parameters, parameter_labels(call), strict=True)))


def observed(call: Call, observe: Observer, *, effects: bool = True) -> tuple[Function, dict[Value, Array]]:
    """Run a call and tell ``observe`` each instruction that ran, those of regions too. The function that ran, and its arguments.
    Raises as ``run_call``."""
    function, arguments = _prepared(call)
    given = _typed(function, arguments)
    try:
        interpret(function, *(given[p] for p in function.parameters), observe=observe, effects=effects)
    except CheckFailed as failed:
        raise failure(call.trace.function, failed, arguments) from None
    return function, given


def interpreted_results(call: Call, observe: Observer | None) -> Sequence[Any]:
    """The results of a call's program on the interpreter: those of the function, then what it writes. Nothing is printed. Raises
    as ``run_call``."""
    function, arguments = _prepared(call)
    given = _typed(function, arguments)
    try:
        found: Sequence[Any] = interpret(function, *(given[p] for p in function.parameters), observe=observe, effects=False)
    except CheckFailed as failed:
        raise failure(call.trace.function, failed, arguments) from None
    return found


def _prepared(call: Call) -> tuple[Function, Sequence[Any]]:
    """The function of a call before it is optimised, and its arguments."""
    arguments = call.trace.arguments(call.leaves)
    if arguments is None:
        raise TraceError("a value from outside changed its type while the function was traced")
    try:
        return dce(grad(run(call.trace.function, BEFORE_GRAD))), arguments
    except GradientError as error:
        raise TraceError(str(error), error.loc) from None


def run_stepwise(function: Function, arguments: Sequence[Any]) -> dict[Value, Array]:
    """The values of a function's own instructions, gradients among them, up to one that fails."""
    values = _typed(function, arguments)
    for instruction in function.instructions:
        operands = tuple(dict.fromkeys(instruction.operands))
        single = Function("step", Block(operands, (instruction,), instruction.results))
        try:
            found = interpret(grad(single), *(values[v] for v in operands), effects=False)
        except CheckFailed:
            break
        values.update(zip(instruction.results, found, strict=True))
    return values


def _typed(function: Function, arguments: Sequence[Any]) -> dict[Value, Array]:
    return {p: np.asarray(a, p.type.dtype.numpy) for p, a in zip(function.parameters, arguments, strict=True)}


def parameter_labels(call: Call) -> list[str]:
    """What each parameter of a call's trace is."""
    names = [a.name for a in call.arguments if not a.is_static]
    found = []
    for given in call.trace.inputs:
        match given:
            case Argument(index=index):
                found.append(f"argument {names[index]}")
            case Captured(describe=describe):
                found.append(f"{describe}, from outside")
            case _:
                found.append("an array met in the function")
    return found
