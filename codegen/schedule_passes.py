"""A schedule as a list of named passes over a kernel's body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from pullback.ir.core.op import Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction

Context = TypeVar("Context")


@dataclass(frozen=True, kw_only=True)
class SchedulePass(Generic[Context]):
    """A pass of a schedule: ``run`` rewrites a body, given what is known of the machine. ``leaves_out``: an op whose instructions
    at the top of the kernel, definitions of functions, this pass and those behind it do not see."""

    name: str
    run: Callable[[Block, Context], Block]
    leaves_out: Op | None = None


def run_schedule(
    passes: Sequence[SchedulePass[Context]], body: Block, context: Context
) -> tuple[Block, dict[Op, tuple[Instruction, ...]]]:
    """Run the passes in order; return the body and the definitions that passes left out, by op."""
    definitions: dict[Op, tuple[Instruction, ...]] = {}
    for each in passes:
        op = each.leaves_out
        if op is not None:
            definitions[op] = tuple(i for i in body.instructions if i.op is op)
            if definitions[op]:
                body = replace(body, instructions=tuple(i for i in body.instructions if i.op is not op))
        body = each.run(body, context)
    return body, definitions
