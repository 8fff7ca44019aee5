"""schedule, for the CPU: how each loop of a kernel runs, as a list of passes.

Requires: a lowered kernel. Keeps: its meaning. Matrix products become loops, functions without an instruction become kernel ops,
outermost loops are cut into chunks for the worker pool, and innermost loops become vector loops. ``CPU_SCHEDULE`` lists the
passes in order; those over loops are in modules of their names (``codegen/cpu/loops``).
"""

from __future__ import annotations

import functools
from dataclasses import replace

from pullback.codegen.cpu.expand_functions import expand_body
from pullback.codegen.cpu.loops.distribute_loops import phases
from pullback.codegen.cpu.loops.parallelize import chunk
from pullback.codegen.cpu.loops.rolled_loads import rolled_loads
from pullback.codegen.cpu.loops.shared_functions import OnDefinition
from pullback.codegen.cpu.loops.split_index_sets import borders
from pullback.codegen.cpu.loops.stage_rows import stage_rows
from pullback.codegen.cpu.loops.tile_transposes import transposes
from pullback.codegen.cpu.loops.unroll_and_jam import jam
from pullback.codegen.cpu.loops.vectorize import vectorize
from pullback.codegen.cpu.matmul.expand import products
from pullback.codegen.cpu.matmul.library_or_generated import of_library
from pullback.codegen.schedule_passes import SchedulePass, run_schedule
from pullback.codegen.targets import PROCESSORS, Processor, Target
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.ops.kernel.float_parts import cold_function
from pullback.ir.ops.kernel.functions import function_

ANY = Target(64)
"""The target that stands for any machine: vectors of 64 bytes."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What passes depend on. ``target``: the vector widths and caches for which products are expanded; ``timing``: instruction
    timings of the processor, None for any; ``on_definition``: called at once with each function shared with other kernels."""

    target: Target = ANY
    timing: Processor | None = None
    on_definition: OnDefinition | None = None


CpuPass = SchedulePass[Machine]
EXPAND_FUNCTIONS = CpuPass(
    name="expand_functions", run=lambda body, machine: expand_body(body, machine.timing), leaves_out=function_
)
VECTORIZE = CpuPass(name="vectorize", run=lambda body, machine: vectorize(body))

CPU_SCHEDULE = (
    CpuPass(name="expand_strided_operands", run=lambda body, machine: of_library(body, machine.target)),
    CpuPass(name="expand_matmuls", run=lambda body, machine: products(body, machine.target, machine.on_definition)),
    EXPAND_FUNCTIONS,
    CpuPass(name="parallelize", run=lambda body, machine: chunk(body)),
    CpuPass(name="split_index_sets", run=lambda body, machine: borders(body), leaves_out=cold_function),
    CpuPass(name="rolled_loads", run=lambda body, machine: rolled_loads(body)),
    CpuPass(name="tile_transposes", run=lambda body, machine: transposes(body)),
    CpuPass(name="stage_rows", run=lambda body, machine: stage_rows(body, machine.target.vector_bytes)),
    CpuPass(name="unroll_and_jam", run=lambda body, machine: jam(body)),
    VECTORIZE,
    CpuPass(name="distribute_loops", run=lambda body, machine: phases(body, machine.timing)),
)
"""The passes over a kernel. Definitions of functions are set aside on the way: of shared ones, which ``FUNCTION_SCHEDULE``
schedules, and of cold ones, whose loops are not worth passes."""
FUNCTION_SCHEDULE = (replace(EXPAND_FUNCTIONS, leaves_out=None), VECTORIZE)
"""The passes over the body of a shared function. It runs on any processor, so no timing is passed."""


def schedule(kernel: Function, processor: str = "", machine: Target = ANY, on_definition: OnDefinition | None = None) -> Function:
    """Return the kernel in the form that the CPU runs.

    ``processor``: LLVM's name of the CPU, or "" for any; ``machine``: the target of matrix products; ``on_definition``: called
    at once with each function that products share with other kernels, as in ``Functions``.
    """
    early = None if on_definition is None else lambda i, steps: on_definition(_scheduled_definition(i), steps)
    context = Machine(target=machine, timing=PROCESSORS.get(processor), on_definition=early)
    body, definitions = run_schedule(CPU_SCHEDULE, kernel.body, context)
    shared = map(_scheduled_definition, definitions[function_])
    return replace(kernel, body=replace(body, instructions=(*shared, *definitions[cold_function], *body.instructions)))


@functools.cache
def _shared_body(body: Block) -> Block:
    """Return the scheduled body of a function that kernels share."""
    return run_schedule(FUNCTION_SCHEDULE, body, Machine())[0]


def _scheduled_definition(i: Instruction) -> Instruction:
    """Return the definition of a shared function with a scheduled body."""
    return replace(i, regions=tuple(map(_shared_body, i.regions)))
