"""How time and memory grow: compile time with the steps of a loop and with the length of straight code, memory with checkpoints,
time of a chain of element reads and writes.

Times are of fresh processes of one thread without the kernel cache, each the best of `--runs`; memory is what
`f.memory` reports.

    python -m benchmarks.growth                     everything
    python -m benchmarks.growth lstm_compile
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from benchmarks.cases.loops import lstm, sequences

Array = Any
ROOT = Path(__file__).parent.parent


def first_call(f: Callable[..., Any], *arguments: Any) -> float:
    """Processor seconds of the first call beyond those of a later one."""
    times = []
    for _ in range(2):
        start = time.process_time()
        f(*arguments)
        times.append(time.process_time() - start)
    return times[0] - times[1]


def seconds(f: Callable[..., Any], *arguments: Any) -> float:
    times = []
    for _ in range(10):
        start = time.perf_counter()
        f(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def lstm_compile(steps: int) -> float:
    return first_call(pb.value_and_grad(lstm, argnums=(0, 1)), *sequences(np.float64, steps, 1, 32))


def lstm_run(steps: int) -> float:
    f = pb.value_and_grad(lstm, argnums=(0, 1))
    arguments = sequences(np.float64, steps, 1, 32)
    f(*arguments)
    return seconds(f, *arguments)


def straight(x: Array, count: int) -> Array:
    """So many operations, no two the same."""
    y = x
    for k in range(count // 7):
        y = np.sin(y) * (0.5 + k / count) + x * 0.25
        y = y / (1.0 + y * y)
    return np.sum(y)


def straight_compile(count: int) -> float:
    return first_call(pb.value_and_grad(lambda x: straight(x, count)), np.linspace(0.0, 1.0, 1000))


def states(checkpoint: Any) -> Callable[..., Any]:
    def f(a: Array, x: Array) -> Array:
        def step(h: Array, _: Any) -> Any:
            return np.tanh(a @ h), None

        h, _ = pb.scan(step, x[0], x, **({"checkpoint": checkpoint} if checkpoint else {}))
        return np.sum(h)

    return pb.value_and_grad(f)


def allocated(steps: int, checkpoint: Any) -> int:
    arguments = np.eye(100), np.ones((steps, 100))
    report = states(checkpoint).memory(*arguments)
    return int(report.allocated_bytes - sum(buffer.bytes for buffer in report.results))


def memory(steps: int) -> float:
    return allocated(steps, None)


def memory_sqrt(steps: int) -> float:
    return allocated(steps, "sqrt")


def reads_and_writes(x: Array) -> Array:
    """Each element is read by its index and written into an array."""

    def body(i: Array, a: Array) -> Array:
        a[i] = np.sin(x[i]) + 0.5 * a[i - 1]
        return a

    return np.sum(pb.fori_loop(1, len(x), body, np.ones(len(x))))


def chain_run(n: int) -> float:
    f, x = pb.value_and_grad(reads_and_writes), np.linspace(1.0, 1.5, n)
    f(x)
    return seconds(f, x)


LENGTHS, STEPS, ELEMENTS = (1250, 2500, 5000, 10_000), (100, 400, 1600, 6400), (1000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Growth:
    title: str
    unit: str
    sizes: tuple[int, ...]
    measure: Callable[[int], float]


GROWTHS = {
    "lstm_compile": Growth("first call of an LSTM's loss and gradient, by steps", "s", (100, 1000, 10_000), lstm_compile),
    "lstm_run": Growth("a later call of it", "s", (100, 1000, 10_000), lstm_run),
    "straight_compile": Growth("first call of straight code and its gradient, by operations", "s", LENGTHS, straight_compile),
    "memory": Growth("memory of the gradient of a loop over 100 numbers, by steps", "bytes", STEPS, memory),
    "memory_sqrt": Growth('the same with checkpoint="sqrt"', "bytes", STEPS, memory_sqrt),
    "chain_run": Growth("n element reads and writes in a loop, and their gradient", "s", ELEMENTS, chain_run),
}


def fresh(name: str, size: int) -> float:
    """The measure in a process of its own."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PULLBACK_NUM_THREADS"), "1")
    environment = {**os.environ, **one, "PULLBACK_CACHE_DIR": "off"}
    command = [sys.executable, "-m", "benchmarks.growth", name, "--only", str(size)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description="how time and memory grow")
    parser.add_argument("names", nargs="*", choices=[*GROWTHS, []], metavar="name", help=", ".join(GROWTHS))
    parser.add_argument("--only", type=int, help="one size, in this process")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for name in options.names or GROWTHS:
        growth = GROWTHS[name]
        if options.only:
            print(growth.measure(options.only))
            continue
        print(f"{name}: {growth.title}")
        before = None
        for size in growth.sizes:
            try:
                value = min(fresh(name, size) for _ in range(1 if growth.unit == "bytes" else options.runs))
            except RuntimeError as error:
                print(f"  {size:>10,}  {error}")
                continue
            ratio = f"{value / before:8.2f} times the one before" if before else ""
            shown = f"{value:>14,.0f} bytes" if growth.unit == "bytes" else f"{value:>14.4f} s"
            print(f"  {size:>10,}{shown}{ratio}", flush=True)
            before = value
    return 0


if __name__ == "__main__":
    sys.exit(main())
