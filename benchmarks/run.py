"""Compares systems on the same workloads in one process, in turn, so that a busy machine slows all of them
alike.

Every system's results are checked against NumPy before it is timed. A round times each system once; the table
shows the median over rounds of its time divided by pullback's in the same round: 3.0 is three times as long.
`copy` moves as many bytes as the workload must read and write: what memory alone would take. Libraries to
compare with are imported late: any may be absent, and all count processors when first imported.

    python benchmarks/run.py                        everything, one thread
    python benchmarks/run.py chain softmax --rounds 15
"""

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
HERE = Path(__file__).parent
NAMES = ["pullback", "numpy", "jax", "autograd", "numba", "copy"]
SAMPLE_SECONDS = 0.01


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="time pullback beside other systems")
    parser.add_argument("workloads", nargs="*", help="names of workloads (default: all)")
    parser.add_argument("--systems", default=",".join(NAMES), help=f"some of {','.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1, help="processors this process may use; 0: all")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "latest.json")
    parser.add_argument("--no-start", action="store_true", help="leave out import and first-call times")
    return parser.parse_args()


def pin(threads: int) -> None:
    """Binds the process to its first processors; must come before NumPy and JAX count them."""
    if threads:
        chosen = sorted(os.sched_getaffinity(0))[:threads]
        os.sched_setaffinity(0, chosen)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PULLBACK_NUM_THREADS"):
            os.environ[name] = str(len(chosen))


def leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (tuple, list)):
        return [leaf for child in tree for leaf in leaves(child)]
    return [tree]


def difference(got: Any, expected: Any) -> float:
    """The largest difference between two results, relative to the largest number of each array."""
    import numpy as np

    worst = 0.0
    pairs = list(zip(leaves(got), leaves(expected), strict=True))
    for a, b in pairs:
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        gap = float(np.max(np.abs(a - b))) / max(float(np.max(np.abs(b))), 1e-300)
        worst = max(worst, gap if gap == gap else float("inf"))
    return worst


def prepare(workload: Any, names: list[str]) -> tuple[dict[str, Call], dict[str, str]]:
    """The calls that work and are right, and for each other system why not."""
    from systems import SYSTEMS

    expected = SYSTEMS["numpy"](workload)()
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    for name in names:
        try:
            call = SYSTEMS[name](workload)
            result = call()
        except ModuleNotFoundError as error:
            absent[name] = f"{error.name} is not installed"
            continue
        except Exception as error:
            absent[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        gap = 0.0 if name == "copy" else difference(result, expected)
        if gap > workload.tolerance:
            absent[name] = f"wrong result (relative difference {gap:.1e})"
        else:
            calls[name] = call
    return calls, absent


def seconds(call: Call, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


def measure(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Seconds a call for each system and round; systems take turns within a round."""
    numbers = {}
    for name, call in calls.items():
        once = seconds(call, 2)
        numbers[name] = max(1, round(SAMPLE_SECONDS / max(once, 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.disable()
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call, numbers[name]))
    gc.enable()
    return times


def compare(workload: Any, names: list[str], rounds: int) -> dict[str, Any]:
    calls, absent = prepare(workload, names)
    times = measure(calls, rounds)
    base = next(iter(times))
    ratios = {name: statistics.median(t / b for t, b in zip(taken, times[base], strict=True)) for name, taken in times.items()}
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {"title": workload.title, "base": base, "ratios": ratios, "seconds": medians, "absent": absent}


def row(name: str, result: dict[str, Any], names: list[str]) -> str:
    cells = [f"{result['ratios'][n]:9.2f}" if n in result["ratios"] else f"{'-':>9}" for n in names]
    apart = "" if result["base"] == names[0] else f" ({result['base']} = 1)"
    return f"{name:<14}{''.join(cells)}   {result['title']}{apart}"


def notes(results: dict[str, Any]) -> list[str]:
    """Why each empty place of the table is empty; a system absent everywhere is named once."""
    why: dict[tuple[str, str], list[str]] = {}
    for name, result in results.items():
        for system, reason in result["absent"].items():
            if system != "copy":
                why.setdefault((system, reason), []).append(name)
    return [
        f"{system}{'' if len(names) == len(results) else ' on ' + ', '.join(names)}: {reason}"
        for (system, reason), names in why.items()
    ]


def main() -> int:
    options = arguments()
    pin(options.threads)
    asked = [name for name in options.systems.split(",") if name]
    names = [name for name in NAMES if name in asked]
    unknown = sorted(set(asked) - set(NAMES))
    if unknown or not names:
        print(f"no such system: {', '.join(unknown)}; there are {', '.join(NAMES)}", file=sys.stderr)
        return 2
    from workloads import workloads

    known = {w.name: w for w in workloads()}
    chosen = options.workloads or list(known)
    if missing := sorted(set(chosen) - set(known)):
        print(f"no such workload: {', '.join(missing)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    threads = f"{options.threads} thread(s)" if options.threads else "all processors"
    print(f"time divided by {names[0]}'s; {threads}, float64, median of {options.rounds} rounds")
    print(f"{'':<14}{''.join(f'{n:>9}' for n in names)}")
    results: dict[str, Any] = {}
    for name in chosen:
        results[name] = compare(known[name], names, options.rounds)
        print(row(name, results[name], names), flush=True)
        gc.collect()
    for note in notes(results):
        print(f"  - {note}")
    report: dict[str, Any] = {"threads": options.threads, "rounds": options.rounds, "workloads": results}
    if not options.no_start:
        from start import measure as measure_start

        print("\nbefore the first result, seconds (import: beyond NumPy's own)")
        report["start"] = measure_start(names)
        for name, value in report["start"].items():
            print(f"  {name:<28}{value:8.3f}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nwritten to {options.json}")
    return int(any("wrong" in why for r in results.values() for why in r["absent"].values()))


if __name__ == "__main__":
    sys.exit(main())
