"""Hoist guards: checks that a program is valid for its arguments. They run first, so that a program that fails one has no
effects."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.regions import Check

GUARD = "Guard"
"""The ``error`` of a check that is a guard; its message is the guard's index."""
BEYOND = "Beyond"
"""The ``error`` of a check that an int fits into 64 bits. A call for which it fails is retraced with the int static."""


def is_guard(instruction: Instruction) -> bool:
    """Return whether an instruction is a guard."""
    return isinstance(instruction.op, Check) and instruction.params["error"] in (GUARD, BEYOND)


def without_guards(function: Function) -> Function:
    """Remove the guards on branches of a function without transform instructions, for arguments of the call that was traced.

    A rewrite of a float near a tie may change its last bit, so that the guard of this very call fails.
    """
    kept = (i for i in function.instructions if not (is_guard(i) and i.params["error"] == GUARD))
    return replace(function, body=replace(function.body, instructions=tuple(kept)))


def guards_first(function: Function) -> Function:
    """Move guards, with the instructions that they depend on, before the first host callback.

    Requires: a func without transform instructions and without functions of custom derivatives. Keeps: the order among the
    moved instructions, and among the others.
    """
    instructions = function.instructions
    if not any(isinstance(i.op, Host) for i in instructions) or not any(map(is_guard, instructions)):
        return function
    wanted: set[Value] = set()
    first: list[Instruction] = []
    others: list[Instruction] = []
    for i in reversed(instructions):
        if is_guard(i) or not wanted.isdisjoint(i.results):
            wanted.update(i.operands)
            first.append(i)
        else:
            others.append(i)
    return replace(function, body=replace(function.body, instructions=(*reversed(first), *reversed(others))))
