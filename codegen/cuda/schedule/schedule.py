"""schedule: says how a GPU runs a kernel's loops.

Requires: a lowered kernel. Keeps: its meaning. The outermost loops become grids of threads or blocks (``map_loops``), and matrix
products tiles (``tiled``).
"""

from pullback.codegen.cuda.schedule.map_loops import map_loops
from pullback.codegen.cuda.schedule.select_tiled_matmul import tiled
from pullback.ir.core.structure import Function


def schedule(kernel: Function) -> Function:
    """Return the kernel as a GPU runs it."""
    return Function(kernel.name, map_loops(tiled(kernel.body)), kernel.kind)
