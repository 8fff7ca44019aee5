"""Plain matrix products on a GPU, compared with PyTorch's: `python -m benchmarks.gpu.products [float32 float64 float16]`.

Each method runs in a process of its own: the measured choice, generated kernels, a library. A time is the median of
bursts of calls that follow each other without waiting; errors are relative to NumPy's product in float64. The time of a small
product is the host's cost of the call.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.cases import GpuCase
from benchmarks.gpu.systems import SYSTEMS, Prepared
from benchmarks.gpu.worker import in_bursts

WAYS = ("measured", "ours", "library")
DTYPES = ("float32", "float64", "float16")
SHAPES = (
    (64, 64, 64), (256, 256, 256), (512, 512, 512), (1000, 1000, 1000), (1024, 1024, 1024), (2048, 2048, 2048),
    (4096, 4096, 4096), (32, 1024, 1024), (8192, 256, 32), (100000, 20, 20), (20, 20, 100000), (1, 4096, 4096),
)  # fmt: skip
"""Rows, columns and terms."""
BURST_FLOPS, MOST_CALLS, WARM = 4e11, 200, 5


def product(x: Any, y: Any) -> Any:
    return x @ y


def operands(dtype: Any, m: int, n: int, k: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)


def seconds(prepared: Prepared, calls: int) -> float:
    """Return the seconds of a call in a burst, after first calls that compile, choose a method and record graphs."""
    for _ in range(WARM):
        prepared.call()
    prepared.wait()
    return in_bursts(prepared, calls)


def row(dtype: str, m: int, n: int, k: int, others: Sequence[str]) -> list[str]:
    """Return the row of a product: its rate, its error, and the ratios of its time to the others'."""
    sizes = {"m": m, "n": n, "k": k}
    case = GpuCase(name="product", function=product, make=operands, sizes=sizes, small=sizes)
    arguments, flops = operands(np.dtype(dtype).type, **sizes), 2 * m * n * k
    calls = int(min(max(BURST_FLOPS / flops, 5), MOST_CALLS))
    ours = SYSTEMS["pullback"](case, arguments)
    taken = seconds(ours, calls)
    wanted = arguments[0].astype(np.float64) @ arguments[1].astype(np.float64)
    error = np.linalg.norm(ours.fetch(ours.call()).astype(np.float64) - wanted) / np.linalg.norm(wanted)
    ratios = [f"{taken / seconds(SYSTEMS[system](case, arguments), calls):.2f}" for system in others]
    return [dtype, f"{m} x {n} x {k}", f"{flops / taken / 1e12:.3g}", f"{error:.0e}", *ratios]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.products", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dtypes", nargs="*", help=f"of {', '.join(DTYPES)} (all)")
    parser.add_argument("--way", choices=WAYS, help="in this process, by what PULLBACK_CHOICES says")
    parser.add_argument("--systems", default="torch", help="beside which, comma-separated")
    parser.add_argument("--most", type=int, default=4096, help="no larger extents than this, but for narrow matrices")
    options = parser.parse_args(arguments)
    dtypes, others = options.dtypes or DTYPES, [name for name in options.systems.split(",") if name]
    if options.way:
        for dtype in dtypes:
            for m, n, k in SHAPES:
                if sorted((m, n, k))[1] <= options.most:
                    print(f"| {' | '.join([options.way, *row(dtype, m, n, k, others)])} |", flush=True)
        return
    print(f"| by | dtype | product | TFLOP/s | error | {' | '.join(f'ours / {name}' for name in others)} |")
    print(f"{'| --- ' * (5 + len(others))}|", flush=True)
    for way in WAYS:
        pinned = {} if way == "measured" else {"PULLBACK_CHOICES": way}
        rest = ["--systems", options.systems, "--most", str(options.most)]
        command = [sys.executable, "-m", "benchmarks.gpu.products", *dtypes, "--way", way, *rest]
        subprocess.run(command, env={**os.environ, "PULLBACK_CACHE_DIR": "off", **pinned}, check=False)


if __name__ == "__main__":
    main()
