"""Plain matrix products: kernels of our own over SciPy's BLAS, shape by shape, and who should do each class of shapes.

    python -m benchmarks.products [f32 f64]          # PULLBACK_CPU=avx2, OPENBLAS_CORETYPE=Haswell: other machines' code

For each class of ``codegen/cpu/matmul/shape_classes.py`` its shapes with the ratio of times, then their geometric mean, who does
it by the table there, and who would be faster. What differs belongs into that table.
"""

from __future__ import annotations

import argparse
import math
import sys

from pullback.codegen.cpu.matmul.shape_classes import CLASSES, LIBRARY, OURS, Shape, class_of
from pullback.ir.core.types import DTYPES as TYPES
from pullback.runtime.choices.matmul import DTYPES, default_of
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries.symbols import blas_name
from pullback.runtime.program.tune_matmul import MARGIN, times
from pullback.runtime.threads.threads import get_num_threads, set_num_threads

SHAPES: tuple[Shape, ...] = (
    (16, 16, 16), (32, 32, 32), (48, 48, 48), (64, 64, 64), (8, 64, 64), (8, 128, 128), (64, 64, 8), (128, 16, 64),
    (4, 100000, 4), (20, 10000, 20), (64, 10000, 64), (20, 5000, 25),
    (96, 96, 96), (128, 128, 128), (32, 256, 256), (256, 32, 256), (256, 256, 32), (8, 512, 512), (1000, 10, 100),
    (8, 2048, 1024), (32, 1024, 2048), (64, 2048, 2048), (4, 4096, 1024),
    (4, 1024, 1024), (8, 1024, 1024), (16, 1024, 1024), (32, 512, 512), (32, 1024, 1024), (64, 512, 512), (64, 1024, 1024),
    (1024, 1024, 4), (1024, 1024, 8), (4096, 256, 16), (10000, 64, 10), (512, 4096, 16),
    (1024, 4, 1024), (1024, 8, 1024), (1024, 32, 1024), (3000, 32, 1000), (100000, 10, 25),
    (192, 192, 192), (256, 256, 256), (400, 400, 400), (512, 512, 512), (1000, 1000, 1000), (128, 2048, 1024),
    (1024, 1024, 32), (256, 8192, 256), (2048, 256, 256),
)  # fmt: skip


def main() -> int:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dtypes", nargs="*", choices=[*DTYPES, []], metavar="dtype", help=f"of {', '.join(DTYPES)} (both)")
    parser.add_argument("--threads", type=int, help="so many")
    parser.add_argument("--rounds", type=int, default=7, help="of each product by each (7)")
    arguments = parser.parse_args()
    if arguments.threads:
        set_num_threads(arguments.threads)
    host = default_engine().host()
    print(f"{host.core}, vectors of {host.vector_bytes} bytes, {get_num_threads()} threads; {blas_name()}")
    for dtype in arguments.dtypes or DTYPES:
        for position in range(len(CLASSES)):
            report(dtype, position, arguments.rounds)
    return 0


def report(dtype: str, position: int, rounds: int) -> None:
    """Print the ratios of one class."""
    logs = []
    for shape in (s for s in SHAPES if class_of(s, TYPES[dtype].part.bytes) == position):
        result = times(dtype, shape, rounds)
        ratio = result[OURS] / result[LIBRARY]
        logs.append(math.log(ratio))
        words = " ".join(f"{extent:>6}" for extent in shape)
        print(f"  {dtype} {words}  library {1e6 * result[LIBRARY]:>9.1f} us  ours/library {ratio:.2f}", flush=True)
    mean = math.exp(sum(logs) / len(logs))
    usual = default_of(dtype, position)
    faster = usual if abs(mean - 1) < MARGIN else OURS if mean < 1 else LIBRARY
    mark = "" if faster == usual else "   <- another one"
    print(f"{dtype} {CLASSES[position].name:<8} {mean:.2f}  table: {usual}, faster: {faster}{mark}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
