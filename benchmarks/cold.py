"""What the first call of a program costs with nothing cached, stage by stage: `python -m benchmarks.cold`.

Each line is the quickest of some fresh processes: seconds of the call by the clock beyond those of a later call, then of each
stage. The modules that a program from disk does not need, passes and code generation, are imported before, in ``imports``.
The ``second`` call has a thread compile the native call path where the cache has none yet. What threads do at once counts for
each of them: the stages of LLVM may take longer than ``compile``.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from benchmarks.cases.regression import DEMO, demo_arguments
from benchmarks.growth import straight
from pullback.runtime.process import counters

Array = Any
ROOT = Path(__file__).parent.parent
KERNELS, OPERATIONS = 20, 5000
SETTLE = 0.6
MODULES = ("ir.passes.transforms.expand", "ir.passes.pipeline", "codegen.cuda.emit", "codegen.fuse.fuse",
           "codegen.lower.lower", "codegen.cpu.schedule", "codegen.cpu.llvm.kernel", "codegen.cpu.llvm.program")  # fmt: skip
STAGES = ("trace", "grad", "simplify", "fuse", "lower", "schedule", "compile")
OF_LLVM = ("parse text", "optimise", "emit object", "load object")


def kernels(x: Array) -> Array:
    """Run KERNELS kernels, each of which depends on a sum of the previous one and computes two functions."""
    functions = (np.exp, np.sin, np.tanh, np.log1p, np.cos)
    for k in range(KERNELS):
        y = functions[k % 5](0.5 * x) * functions[(k + 1 + k // 5) % 5](np.abs(x)) + 0.1 * k
        x = y - np.mean(y)
    return x


def operations(x: Array) -> Array:
    """Run OPERATIONS operations as a trace counts them: thirteen for the seven that are written in a round."""
    return straight(x, OPERATIONS * 7 // 13)


def after(before: Callable[..., Any], arguments: Sequence[Array], function: Callable[..., Any], *shapes: Any, dtype: Any) -> Any:
    """A function in a process that has compiled and called another one."""
    for _ in range(3):
        pb.jit(before)(*arguments)
    time.sleep(SETTLE)
    return (pb.jit(function), *(np.ones(shape, dtype) for shape in shapes))


def after_a_sum(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """A first function of products in a process where the native code of the runtime is there: its threads, pool and calls."""
    return after(np.add, [np.ones(1_000_000)] * 2, function, *shapes, dtype=dtype)


def after_a_product(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Return a function in a process that has compiled a product of the same dtype, with the functions that products share."""
    return after(np.matmul, [np.ones((200, 200), dtype)] * 2, function, *shapes, dtype=dtype)


def gram(x: Array, y: Array) -> Array:
    return x.T @ y


def with_bias(x: Array, y: Array, b: Array) -> Array:
    return np.maximum(x @ y + b, 0.0)


def with_squares(x: Array, y: Array) -> Array:
    z = x @ y
    return np.sum(z * z, axis=-1)


def scaled(x: Array, y: Array) -> Array:
    return (0.5 * x) @ y


def left_turned(x: Array, y: Array) -> Array:
    return np.einsum("zkm,zkn->zmn", x, y)


def right_turned(x: Array, y: Array) -> Array:
    return np.einsum("zmk,znk->zmn", x, y)


def by_vector(v: Array, x: Array) -> Array:
    return x @ v


def along_rows(x: Array) -> Array:
    return np.sum(x, axis=1)


def with_fortran(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the same for a function whose matrices of the last shape are column-major."""
    f, *arguments = after_a_product(function, *shapes)
    return (f, *(np.asfortranarray(x) if x.shape == shapes[-1] else x for x in arguments))


BATCH = (30, 60, 100), (30, 100, 100)
PROGRAMS: dict[str, Callable[[], Any]] = {
    "demo": lambda: (DEMO.step, *demo_arguments(np.float64)),
    "kernels": lambda: (pb.jit(kernels), np.linspace(0.0, 1.0, 1000)),
    "operations": lambda: (pb.value_and_grad(operations), np.linspace(0.0, 1.0, 1000)),
    "product": lambda: (pb.jit(np.matmul), np.ones((100, 100)), np.ones((100, 100))),
    "first": lambda: after_a_sum(np.matmul, (100, 100), (100, 100)),
    "large": lambda: after_a_sum(np.matmul, (1000, 1000), (1000, 1000)),
    "again": lambda: after_a_product(gram, (100, 100), (100, 100)),
    "fortran": lambda: with_fortran(np.matmul, (90, 100), (100, 100)),
    "layer": lambda: after_a_product(with_bias, (60, 100), (100, 90), (90,)),
    "squares": lambda: after_a_product(with_squares, (60, 100), (100, 90)),
    "batch": lambda: after_a_product(np.matmul, *BATCH),
    "left": lambda: after_a_product(left_turned, (30, 100, 60), (30, 100, 100)),
    "right": lambda: after_a_product(right_turned, (30, 60, 100), (30, 100, 100)),
    "bias": lambda: after_a_product(with_bias, (30, 60, 100), (30, 100, 90), (90,)),
    "batch_squares": lambda: after_a_product(with_squares, *BATCH),
    "batch_scaled": lambda: after_a_product(scaled, *BATCH),
    "complex": lambda: after_a_product(np.matmul, *BATCH, dtype=np.complex128),
    "vector": lambda: with_fortran(by_vector, (100,), (90, 100)),
    "sums": lambda: with_fortran(along_rows, (100, 90)),
}
TITLES = {
    "demo": "a step of the demo",
    "kernels": f"{KERNELS} kernels, two functions each",
    "operations": f"{OPERATIONS:,} operations and their gradient",
    "product": "a matrix product",
    "first": "the first one of a process that runs",
    "large": "such a one of 1,000 x 1,000",
    "again": "one in another order",
    "fortran": "one in Fortran's order",
    "layer": "one with a bias and a maximum",
    "squares": "one with sums of squares along rows",
    "batch": "a batch of them",
    "left": "a batch, left ones turned",
    "right": "a batch, right ones turned",
    "bias": "a batch with a bias and a maximum",
    "batch_squares": "a batch with sums of squares",
    "batch_scaled": "a batch with a scaled left operand",
    "complex": "a complex batch after a complex one",
    "vector": "a Fortran matrix by a vector",
    "sums": "sums along the rows of a Fortran matrix",
}


def measure(name: str) -> dict[str, float]:
    """In this process: seconds of the call, "total", and of each stage."""
    f, *arguments = PROGRAMS[name]()
    before = counters.snapshot().seconds
    start = time.perf_counter()
    for module in MODULES:
        importlib.import_module(f"pullback.{module}")
    imports = time.perf_counter() - start
    times = []
    for _ in range(4):
        start = time.perf_counter()
        f(*arguments)
        times.append(time.perf_counter() - start)
    seconds = {stage: value - before.get(stage, 0.0) for stage, value in counters.snapshot().seconds.items()}
    return {"total": times[0] - min(times[1:]), "second": times[1], "imports": imports, **seconds}


def fresh(name: str) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.cold", name, "--here"]
    environment = {**os.environ, "PULLBACK_CACHE_DIR": "off"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each process compiles the modules that it imports
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description="what a first call costs with nothing cached")
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []], metavar="name", help=", ".join(PROGRAMS))
    parser.add_argument("--here", action="store_true", help="in this process, as JSON")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    columns = ("total", *STAGES, *OF_LLVM, "imports", "second")
    if not options.here:
        print(f"{'':<38}" + "".join(f"{c:>13}" for c in columns))
    for name in options.names or PROGRAMS:
        if options.here:
            print(json.dumps(measure(name)))
            continue
        result = min((fresh(name) for _ in range(options.runs)), key=lambda seconds: seconds["total"])
        print(f"{TITLES[name]:<38}" + "".join(f"{result.get(c, 0.0):13.3f}" for c in columns), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
