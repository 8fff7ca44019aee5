"""Checks and times the systems on one workload in one process of a given number of threads; prints JSON.

Run by `python -m benchmarks`; environment and processors are set before NumPy is imported, since all libraries count them
then.

Systems take turns in rounds, so that a busy machine slows all alike, each once the threads of the one before sleep: those of
OpenBLAS keep a processor busy for a tenth of a second after a product. Every other round goes backwards. A turn is a burst of
calls, each timed alone (many at once if they are short), whose median counts; a system's time is that of its quietest burst. A
call's results die within its time. What takes longer than ``--patience`` to compile is absent: torch.compile is not done with
6,000 operations after a quarter of an hour. ``--late`` names what was so on another number of threads, and is not waited for
again.
"""

import argparse
import gc
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

Call = Callable[[], Any]
VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA", "NUMEXPR", "PULLBACK")
BURST_SECONDS = 0.04
WARMED, WARM_SECONDS = 1e-3, 1.0
"""Calls shorter than WARMED seconds run for WARM_SECONDS before they count, so that background and delayed compiles are done."""
SHORTEST = 20e-6
QUIET_SECONDS, LOOK_SECONDS = 0.5, 0.01
"""The longest wait for the threads of the previous system, and the interval between two checks, in seconds."""
SLOW = 0.1
FAR = 8.0
PATIENCE, AGAIN, LATE = 180.0, 1.0, "not ready after"
DTYPE_BYTES = {"float64": 8, "float32": 4}
TOLERANCE = {"float64": 1e-9, "float32": 2e-3}


def pin(threads: int) -> None:
    """Binds the process to its last processors; must come before NumPy, JAX and the others count them."""
    chosen = sorted(os.sched_getaffinity(0))[-threads:]
    os.sched_setaffinity(0, chosen)
    for name in VARIABLES:
        os.environ[f"{name}_NUM_THREADS"] = str(len(chosen))


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, (tuple, list)):
        return [leaf for child in tree for leaf in leaves(child)]
    return [tree]


def widened(tree: Any) -> Any:
    """The same with every float32 array as float64."""
    import numpy as np

    if isinstance(tree, dict):
        return {key: widened(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [widened(child) for child in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree.astype(np.float64) if getattr(tree, "dtype", None) == np.float32 else tree


def difference(got: Any, expected: Any, dtype: str) -> float:
    """The largest difference between two results, relative to the largest number of each array; infinite if they do not match."""
    import numpy as np

    worst = 0.0
    ours, theirs = leaves(got), leaves(expected)
    if len(ours) != len(theirs):
        return float("inf")
    for a, b in zip(ours, theirs):
        if np.shape(a) != np.shape(b) or not isinstance(a, (np.ndarray, np.generic, float)):
            return float("inf")
        if isinstance(a, np.ndarray) and a.ndim and str(a.dtype) != dtype:
            return float("inf")
        gap = float(np.max(np.abs(a - b), initial=0.0)) / max(float(np.max(np.abs(b), initial=0.0)), 1e-300)
        worst = max(worst, gap if gap == gap else float("inf"))
    return worst


class TooLong(BaseException):
    """A system takes too long to be made ready."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TooLong in the midst of what takes longer, as soon as it runs Python; again each second, for a callback of a
    system's (JAX's of the garbage collector) may swallow it."""

    def stop(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def prepare(
    case: Any, dtype: str, names: list[str], sizes: Any, patience: float = PATIENCE, late: Collection[str] = ()
) -> tuple[dict[str, Call], dict[str, str]]:
    """The calls that work and are right, and for each other system why not. ``patience``: the seconds that one has to compile;
    ``late``: those that have not been ready before."""
    from benchmarks.peers import PEERS

    arguments = case.make(dtype, **sizes)
    expected = case.by_hand(*widened(arguments))
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    for name in names:
        if name in late:
            absent[name] = f"{LATE} {patience:g} s on another number of threads"
            continue
        try:
            with at_most(patience):
                call = PEERS[name](case, arguments)
                gap = difference(call(), expected, dtype)
        except TooLong:
            absent[name] = f"{LATE} {patience:g} s"
        except ModuleNotFoundError as error:
            absent[name] = f"{error.name} is not installed"
        except Exception as error:
            absent[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        else:
            if gap <= TOLERANCE[dtype]:
                calls[name] = call
            else:
                absent[name] = f"wrong result (relative difference {gap:.1e})"
    return calls, absent


def wait_for_quiet() -> None:
    """Wait until no thread of this process takes time of a processor, as those do that look for more work before they sleep."""
    end = time.perf_counter() + QUIET_SECONDS
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(LOOK_SECONDS)
        if time.process_time() - before < LOOK_SECONDS / 10:
            return


def burst(call: Call, count: int, repeats: int) -> float:
    """The median over repeats of the seconds a call takes, `number` calls timed at once."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            call()
        taken.append((time.perf_counter() - start) / count)
    return statistics.median(taken)


def plan(call: Call) -> tuple[float, int, int]:
    """The seconds of a call, and how many calls are timed at once and how often in a burst. Short calls are warm then."""
    once = burst(call, 1, 1)
    if once < SLOW:
        once = min(once, burst(call, 1, 1), burst(call, 1, 1))
    if once < WARMED:
        end = time.perf_counter() + WARM_SECONDS
        while time.perf_counter() < end:
            once = min(once, burst(call, 10, 1))
    count = max(1, round(SHORTEST / max(once, 1e-9))) if once < SHORTEST else 1
    return once, count, max(1 if once > SLOW else 3, min(200, round(BURST_SECONDS / (once * count))))


def measure(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds a call for each system and round; a system far behind the fastest has two rounds."""
    plans = {name: plan(call) for name, call in calls.items()}
    fastest = min(once for once, _, _ in plans.values())
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    for turn in range(rounds):
        for name, call in list(calls.items())[:: -1 if turn % 2 else 1]:
            once, count, repeats = plans[name]
            if turn < 2 or once < FAR * fastest:
                wait_for_quiet()
                call()
                times[name].append(burst(call, count, repeats))
    gc.enable()
    return times


def compare(case: Any, dtype: str, names: list[str], options: argparse.Namespace, late: Collection[str] = ()) -> dict[str, Any]:
    from benchmarks import limits

    sizes, rounds = case.small if options.small else case.sizes, options.rounds
    calls, absent = prepare(case, dtype, names, sizes, options.patience, late)
    work = case.work(DTYPE_BYTES[dtype], **sizes) if case.work else None
    try:
        traffic = limits.traffic(work) if work else {}
        times = measure({**calls, **traffic}, rounds)
        moved = {name: min(times[name]) for name in traffic}
        limit = limits.shares(work, dtype, moved, min(min(times[name]) for name in calls)) if work else {}
    except NotImplementedError:
        times, limit = measure(calls, rounds), {}
    return {
        "workload": case.workload,
        "case": case.name,
        "dtype": dtype,
        "sizes": dict(sizes),
        "seconds": {name: min(times[name]) for name in calls},
        "spread": {name: max(taken) / min(taken) for name, taken in times.items()},
        "limit": limit,
        "absent": absent,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="time systems on one workload")
    parser.add_argument("workload", nargs="?")
    parser.add_argument("--machine", action="store_true", help="measure the limits of the machine alone")
    parser.add_argument("--peers", default="")
    parser.add_argument("--cases", default="")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds that a system has to compile a case")
    parser.add_argument("--late", default="", help="systems by commas, each behind its case's label and a colon")
    parser.add_argument("--set", default="table")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--large", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    pin(options.threads)
    from benchmarks.cases import CASES
    from benchmarks.limits import machine

    if options.machine:
        print(json.dumps({"machine": machine(), "threads": options.threads}), flush=True)
        return 0
    for case in CASES:
        wanted = case.workload == options.workload and case.name.startswith(tuple(options.cases.split(",")))
        if not wanted or options.set not in case.sets or (case.large and not options.large):
            continue
        for dtype in case.dtypes:
            if dtype in options.dtypes.split(","):
                known = (k.partition(":") for k in options.late.split(","))
                late = [name for label, _, name in known if label == case.label(dtype)]
                result = compare(case, dtype, options.peers.split(","), options, late)
                print(json.dumps({**result, "threads": options.threads}), flush=True)
                gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
