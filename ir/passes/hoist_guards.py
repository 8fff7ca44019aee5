"""Guards: checks that a program is one for its arguments. A program that fails one has done nothing."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.regions import Check

GUARD = "Guard"
"""The ``error`` of a check that is a guard; its message is the guard's number."""
BEYOND = "Beyond"
"""The ``error`` of a check that an int has 64 bits: a call for which it fails is traced anew, with the int static."""


def is_guard(instruction: Instruction) -> bool:
    """Whether an instruction is a guard."""
    return isinstance(instruction.op, Check) and instruction.params["error"] in (GUARD, BEYOND)


def guards_first(function: Function) -> Function:
    """Move guards, with what they read, before the first step in Python.

    Requires: a func without transforms and without functions of custom derivatives.
    Keeps: the order of what moves, and of what stays.
    """
    instructions = function.instructions
    if not any(isinstance(i.op, Host) for i in instructions) or not any(map(is_guard, instructions)):
        return function
    wanted: set[Value] = set()
    first: list[Instruction] = []
    rest: list[Instruction] = []
    for i in reversed(instructions):
        if is_guard(i) or not wanted.isdisjoint(i.results):
            wanted.update(i.operands)
            first.append(i)
        else:
            rest.append(i)
    return replace(function, body=replace(function.body, instructions=(*reversed(first), *reversed(rest))))
