"""Times Python's own loops in pullback, Numba (with and without its bounds checks), JAX and plain Python; prints a table.

    python -m benchmarks.python_loops                       all programs
    python -m benchmarks.python_loops seidel garch --rounds 9

Each program has a process of its own. Results are compared before anything is timed: values with plain Python, gradients with
central differences along one direction. The systems take turns in rounds, each for a burst of calls; a system's time is the
median of its bursts. "first" is the CPU time of the first call, with nothing in the kernel cache.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Call = Callable[[], Any]
ROOT = Path(__file__).parent.parent.parent
BURST_SECONDS, WARM_SECONDS = 0.01, 0.3
COMPILE_SECONDS = 1.0
"""Time for which nothing runs after the first calls: a thread compiles the entry point of later calls meanwhile."""
TOLERANCE, SLOPE_TOLERANCE = 1e-9, 1e-4


def cpu_seconds(call: Call) -> tuple[float, Any]:
    """Return the CPU time of a call, in all threads, and its result."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def check(name: str, result: float, expected: float, tolerance: float) -> None:
    if not abs(result - expected) <= tolerance * max(abs(expected), 1e-300):
        raise SystemExit(f"{name}: {result!r}, expected {expected!r}")


def slope(program: Any, arguments: Sequence[Any], direction: Sequence[Any]) -> float:
    """Return the derivative of a program along a direction of its ``argnums``, by central differences."""
    values = []
    for sign in (1, -1):
        moved = list(arguments)
        for k, d in zip(program.argnums, direction, strict=True):
            moved[k] = moved[k] + sign * program.step * d
        values.append(program.function(*moved))
    return float(values[0] - values[1]) / (2 * program.step)


def prepare_values(program: Any, arguments: Sequence[Any]) -> tuple[dict[str, Call], float]:
    """Return the calls for the value, all of which are right, and the CPU seconds of the first call of pullback."""
    import pullback as pb

    compiled = pb.jit(program.function, loops="roll")
    first, value = cpu_seconds(lambda: compiled(*arguments))
    calls: dict[str, Call] = {"pullback": lambda: compiled(*arguments)}
    expected = program.function(*arguments)
    check(f"{program.name} in pullback", value, expected, TOLERANCE)
    for name, options in (("numba", {}), ("checked", {"boundscheck": True})):
        try:
            from numba import njit
        except ImportError:
            break
        loop = njit(**options)(program.function)
        check(f"{program.name} in {name}", loop(*arguments), expected, TOLERANCE)
        calls[name] = lambda loop=loop: loop(*arguments)
    calls["python"] = lambda: program.function(*arguments)
    return calls, first


def prepare_gradients(program: Any, arguments: Sequence[Any]) -> tuple[dict[str, Call], float]:
    """Return the calls for value and gradient, and the CPU seconds of the first call of pullback."""
    import numpy as np

    import pullback as pb

    compiled = pb.jit(pb.value_and_grad(program.function, argnums=program.argnums), loops="roll")
    first, (_, gradient) = cpu_seconds(lambda: compiled(*arguments))
    rng = np.random.default_rng(1)
    direction = [rng.uniform(0.5, 1, np.shape(arguments[k])) * np.mean(np.abs(arguments[k])) for k in program.argnums]
    expected = slope(program, arguments, direction)
    along = sum(float(np.sum(g * d)) for g, d in zip(gradient, direction, strict=True))
    check(f"gradient of {program.name} in pullback", along, expected, SLOPE_TOLERANCE)
    calls: dict[str, Call] = {"pullback": lambda: compiled(*arguments)}
    try:
        import jax

        from benchmarks.python_loops.jax_programs import PROGRAMS
    except ImportError:
        return calls, first
    if program.name in PROGRAMS:
        static = tuple(k for k, a in enumerate(arguments) if isinstance(a, int))
        scanned = jax.jit(jax.value_and_grad(PROGRAMS[program.name], argnums=program.argnums), static_argnums=static)
        placed = [a if isinstance(a, int) else jax.device_put(a) for a in arguments]
        gradient = scanned(*placed)[1]
        along = sum(float(np.sum(np.asarray(g) * d)) for g, d in zip(gradient, direction, strict=True))
        check(f"gradient of {program.name} in JAX", along, expected, SLOPE_TOLERANCE)
        calls["jax"] = lambda: jax.block_until_ready(scanned(*placed))
    return calls, first


def timed(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the seconds of a call of each system: the median over rounds."""
    counts, taken = {}, {name: [] for name in calls}
    for call in calls.values():
        call()
    time.sleep(COMPILE_SECONDS)
    for name, call in calls.items():
        end = time.perf_counter() + WARM_SECONDS
        once = math.inf
        while time.perf_counter() < end:
            start = time.perf_counter()
            call()
            once = min(once, time.perf_counter() - start)
        counts[name] = max(1, round(BURST_SECONDS / once))
    for k in range(rounds):
        for name, call in list(calls.items())[:: -1 if k % 2 else 1]:
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            taken[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(t) for name, t in taken.items()}


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Return the times of a program. ``rounds`` of 0: the first call for value and gradient alone."""
    import numpy as np

    from benchmarks.python_loops.programs import PROGRAMS

    program = next(p for p in PROGRAMS if p.name == name)
    arguments = program.arguments(np.random.default_rng(0))
    if not rounds:
        return {"gradient": prepare_gradients(program, arguments)[1]}
    values, first = prepare_values(program, arguments)
    times = {"value": timed(values, rounds), "gradient": timed(prepare_gradients(program, arguments)[0], rounds)}
    return {"name": name, "is_element_loop": program.is_element_loop, **times, "first": {"value": first}}


def in_process(name: str, rounds: int) -> dict[str, Any]:
    """Return what a fresh process measures without a kernel cache. Raises CalledProcessError if a result is wrong."""
    command = [sys.executable, "-m", "benchmarks.python_loops", "--measure", name, "--rounds", str(rounds)]
    environment = {**os.environ, "PULLBACK_CACHE_DIR": "off"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def geometric_mean(numbers: Iterable[float]) -> float:
    logs = [math.log(x) for x in numbers]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


def row(result: dict[str, Any]) -> str:
    value, gradient = result["value"], result["gradient"]
    ours, slopes = value["pullback"], gradient["pullback"]
    cells = [f"{ours * 1e6:.1f}"]
    cells += [f"{ours / value[c]:.2f}" if c in value else "" for c in ("numba", "checked")]
    cells += [f"{value['python'] / ours:.0f}", f"{slopes * 1e6:.1f}", f"{slopes / ours:.2f}"]
    cells += [f"{slopes / gradient['jax']:.2f}" if "jax" in gradient else ""]
    cells += [f"{first:.2f}" for first in result["first"].values()]
    return f"| {result['name']} | {' | '.join(cells)} |"


def table(results: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| program | value, us | / Numba | / Numba, checked | Python / ours "
        "| gradient, us | / value | / JAX's | first, s | gradient, s |",
        "| --- | " + " | ".join(["---:"] * 9) + " |",
        *map(row, results),
    ]
    faster = [(r["value"]["python"] / r["value"]["pullback"], r["is_element_loop"]) for r in results]
    ratio = geometric_mean(r["gradient"]["pullback"] / r["value"]["pullback"] for r in results)
    numba = geometric_mean(r["value"]["pullback"] / r["value"]["numba"] for r in results if "numba" in r["value"])
    lines += [
        "",
        f"Geometric means: {numba:.2f} of Numba's time; {geometric_mean(x for x, _ in faster):.0f} times as fast as Python,",
        f"{geometric_mean(x for x, element in faster if element):.0f} on loops over elements; value and gradient take "
        f"{ratio:.2f} of the time of the value.",
    ]
    return "\n".join(lines)


def main() -> int:
    from benchmarks.python_loops.programs import PROGRAMS

    parser = argparse.ArgumentParser(prog="python -m benchmarks.python_loops", description="time Python's own loops")
    parser.add_argument("names", nargs="*", help="some of the programs (default: all)")
    parser.add_argument("--rounds", type=int, default=9, help="bursts of each system")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.rounds)))
        return 0
    names = [p.name for p in PROGRAMS]
    if missing := sorted(set(options.names) - set(names)):
        print(f"no such program: {', '.join(missing)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    results = []
    for name in options.names or names:
        try:
            result = in_process(name, options.rounds)
            result["first"].update(in_process(name, 0))
        except subprocess.CalledProcessError as error:
            print(f"{name}: no result (code {error.returncode})", file=sys.stderr)
            continue
        results.append(result)
        print(row(results[-1]), flush=True)
    print(f"\n{table(results)}")
    return int(len(results) < len(options.names or names))


if __name__ == "__main__":
    sys.exit(main())
