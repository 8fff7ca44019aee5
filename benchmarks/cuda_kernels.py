"""What kernels emitted for CUDA take on the first GPU, launch by launch: `python -m benchmarks.cuda_kernels --markdown FILE`.

Arguments and results are on the device before anything is timed, and programs of several kernels run as they will in one
stream. Times are between events, medians of many runs that follow each other. The limit is what a program must read and write,
each array once, at the rate of a copy on the device. Programs that compute more than they move have the limit of their flops.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from benchmarks.cases import elementwise, pairs, rows
from pullback.codegen.cuda.source.launch import Launch
from tests.support.cuda.gpu import Device, architecture, driver
from tests.support.cuda.host_programs import run_program, traced

Array = Any
COPIED = 1 << 30
LONGEST = 2000.0
"""Milliseconds that the runs of a program may take."""
SMALLEST = 0.03
"""Launches that take a smaller share of a program's time have no line."""
DTYPES = {"f64": np.float64, "f32": np.float32}
FLOPS = {"sm_90": {"f64": 33.5e12, "f32": 66.9e12}}
"""Flops a second by architecture, of the H100's data sheet, two of them in one multiply-add, which kernels do not use."""


@dataclass(frozen=True)
class Program:
    """A function on arguments; ``moved``: how many numbers it must read and write at least."""

    name: str
    call: Callable[..., Any]
    make: Callable[[Any], Sequence[Any]]
    moved: Callable[[], int]
    flops: int = 0


def gradient(function: Callable[..., Any], *wanted: int) -> Callable[..., Any]:
    return pb.value_and_grad(function, argnums=wanted)


def numbers(*shape: int) -> Callable[[Any], Sequence[Any]]:
    return lambda dtype: [np.random.default_rng(0).random(shape, np.float32).astype(dtype)]


OPTIONS, LABELS, NORMED, BODIES = 10**7, (65536, 1000), (65536, 768), 16384
VECTOR, TABLE = 1 << 26, (50_000, 1000)
PROGRAMS = [
    Program("sum of 2^26", lambda x: np.sum(x), numbers(VECTOR), lambda: VECTOR),
    Program("sums of columns, 50,000 x 1000", lambda x: np.sum(x, axis=0), numbers(*TABLE), lambda: 5 * 10**7),
    Program("sums of rows, 50,000 x 1000", lambda x: np.sum(x, axis=1), numbers(*TABLE), lambda: 5 * 10**7),
    Program("transpose and add, 8192 x 8192", lambda x: x + x.T, numbers(8192, 8192), lambda: 1 << 27),
    Program("cumulative sum of 10^7", lambda x: np.cumsum(x), numbers(OPTIONS), lambda: 2 * OPTIONS),
    Program(
        "polynomial of two, 5 x 10^7", elementwise.polynomial, lambda d: elementwise.two_vectors(d, 5 * 10**7), lambda: 15 * 10**7
    ),
    Program(
        "Black-Scholes, value and gradient, 10^7",
        gradient(elementwise.black_scholes, 0, 1, 2, 3, 4), lambda d: elementwise.options(d, OPTIONS), lambda: 10 * OPTIONS,
    ),
    Program(
        "softmax cross-entropy, value and gradient, 65,536 x 1000",
        gradient(rows.xent, 0), lambda d: rows.logits(d, *LABELS), lambda: 2 * LABELS[0] * LABELS[1],
    ),
    Program(
        "layer norm, value and gradient, 65,536 x 768",
        gradient(rows.layer_norm_loss, 0, 1, 2), lambda d: rows.rows_to_normalise(d, *NORMED), lambda: 3 * NORMED[0] * NORMED[1],
    ),
    Program(
        "n-body energy, value and gradient, 16,384",
        gradient(pairs.nbody, 0), lambda d: pairs.bodies(d, BODIES), lambda: 7 * BODIES, 25 * BODIES**2,
    ),
]  # fmt: skip


class Recorded(Device):
    """Runs launches once and remembers them. What they read and write stays on the device."""

    def __init__(self, kernels: Sequence[Any]) -> None:
        super().__init__(kernels)
        self.launches: list[tuple[Launch, int, int, int, Sequence[Any]]] = []

    def start(self, launch: Launch, blocks: int, threads: int, shared: int, values: Sequence[Any]) -> None:
        self.launches.append((launch, blocks, threads, shared, values))
        super().start(launch, blocks, threads, shared, values)

    def finish(self) -> None:
        driver().Context.synchronize()

    def times(self, runs: int) -> Any:
        """Milliseconds of each launch, by run and launch, and of each whole run behind them."""
        cuda = driver()
        result = []
        for _ in range(runs):
            events = [cuda.Event() for _ in range(len(self.launches) + 1)]
            events[0].record()
            for event, arguments in zip(events[1:], self.launches, strict=True):
                super().start(*arguments)
                event.record()
            events[-1].synchronize()
            each = [after.time_since(before) for before, after in pairwise(events)]
            result.append([*each, events[-1].time_since(events[0])])
        return np.array(result)

    def about(self, launch: Launch) -> str:
        """Registers a thread has, and its bytes in local memory where there are any."""
        function = self.function(launch)
        spilled = f", {function.local_size_bytes} bytes local" if function.local_size_bytes else ""
        return f"{function.num_regs}{spilled}"


def copy_rate() -> float:
    """Bytes a second, read and written, of a copy on the device."""
    cuda = driver()
    source, target = cuda.mem_alloc(COPIED), cuda.mem_alloc(COPIED)
    times = []
    for _ in range(20):
        before, after = cuda.Event(), cuda.Event()
        before.record()
        cuda.memcpy_dtod_async(target, source, COPIED)
        after.record()
        after.synchronize()
        times.append(after.time_since(before))
    return float(2 * COPIED / (np.median(times) * 1e-3))


def measured(program: Program, dtype: str, rate: float, runs: int) -> Iterator[list[str]]:
    """The rows of a program: the whole of it, and its launches."""
    built: list[Recorded] = []
    function, values = traced(program.call, *program.make(DTYPES[dtype]))

    def make(kernels: Sequence[Any]) -> Recorded:
        built.append(Recorded(kernels))
        return built[0]

    run_program(make, function, values)
    (machine,) = built
    runs = max(3, min(runs, int(LONGEST / np.max(machine.times(2)))))
    *each, whole = np.median(machine.times(runs), axis=0)
    moving = program.moved() * np.dtype(DTYPES[dtype]).itemsize / rate
    computing = program.flops / FLOPS[architecture()][dtype] if program.flops and architecture() in FLOPS else 0.0
    limit = 1e3 * max(moving, computing)
    yield [program.name, dtype, f"{whole:.3f}", f"{limit:.3f}", f"{limit / whole:.2f}", ""]
    for took, (launch, blocks, threads, *_) in zip(each, machine.launches, strict=True):
        if took > SMALLEST * whole:
            yield [f"· `{launch.name}`, {blocks} x {threads}", "", f"{took:.3f}", "", "", machine.about(launch)]
    for held in machine.held.values():
        held.copy.free()


HEAD = ["program or launch", "dtype", "ms", "limit, ms", "limit / time", "registers"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--markdown", type=Path, help="write the table there")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--only", default="", help="programs whose names have this in them")
    options = parser.parse_args()
    rate = copy_rate()
    version = driver().get_driver_version()
    about = f"{driver().Device(0).name()} ({architecture()}), CUDA {version // 1000}.{version % 1000 // 10}; "
    about += f"a copy on the device moves {rate / 1e12:.2f} TB/s, read and written"
    lines = [about, "", f"| {' | '.join(HEAD)} |", f"| {' | '.join('-' * len(h) for h in HEAD)} |"]
    print("\n".join(lines), flush=True)
    for program in (p for p in PROGRAMS if options.only in p.name):
        for dtype in DTYPES:
            for row in measured(program, dtype, rate, options.runs):
                lines.append(f"| {' | '.join(row)} |")
                print(lines[-1], flush=True)
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
