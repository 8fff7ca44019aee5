"""schedule, for CUDA: how the loops of a kernel map to a GPU, as a list of passes.

Requires: a lowered kernel. Keeps: its meaning. ``CUDA_SCHEDULE`` lists the passes in order, each in a module of its name: matrix
products become tiles, then outermost loops become grids of threads or blocks.
"""

from dataclasses import replace

from pullback.codegen.cuda.schedule.map_loops import map_loops
from pullback.codegen.cuda.schedule.select_tiled_matmul import tiled
from pullback.codegen.schedule_passes import SchedulePass, run_schedule
from pullback.ir.core.structure import Function

CudaPass = SchedulePass[None]

CUDA_SCHEDULE = (
    CudaPass(name="select_tiled_matmul", run=lambda body, _: tiled(body)),
    CudaPass(name="map_loops", run=lambda body, _: map_loops(body)),
)


def schedule(kernel: Function) -> Function:
    """Return the kernel with its loops mapped and its products tiled."""
    return replace(kernel, body=run_schedule(CUDA_SCHEDULE, kernel.body, None)[0])
