"""Times calls with Python's numbers in pullback, Numba and plain Python; prints a table.

    python -m benchmarks.scalar_calls                      all programs
    python -m benchmarks.scalar_calls kepler gcd --rounds 9
    python -m benchmarks.scalar_calls --checks             what the checks of Python's errors cost, too

Values, their types and errors are compared with plain Python for two sets of arguments, and gradients with central differences,
before anything is timed. All systems run in one process and take turns in rounds, each for a burst of calls by the same loop; a
system's time is the median of its bursts, with that of the loop.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from benchmarks.scalar_calls.programs import PROGRAMS, Program

BURST_SECONDS = 0.004
WARM_CALLS = 25_000
"""The number of calls after which a thread compiles the entry point of a small program."""
COMPILE_SECONDS = 2.0
"""Time for which nothing runs after the first calls, in which threads compile."""
TOLERANCE, SLOPE_TOLERANCE, STEP = 1e-12, 1e-5, 1e-6

Function = Callable[..., Any]


def loop_over(count: int) -> Callable[..., float]:
    """Return a function that calls another one with ``count`` arguments n times and returns the seconds."""
    names = ", ".join(f"a{k}" for k in range(count))
    text = f"def loop(f, n, {names}):\n start = now()\n for _ in range(n): f({names})\n return now() - start"
    namespace: dict[str, Any] = {"now": time.perf_counter}
    exec(text, namespace)
    loop: Callable[..., float] = namespace["loop"]
    return loop


def is_equal(result: Any, expected: Any) -> bool:
    """Return whether a result has the types of the expected one, and its values within the tolerance."""
    if type(result) is not type(expected):
        return False
    if isinstance(expected, tuple):
        return len(result) == len(expected) and all(map(is_equal, result, expected))
    if isinstance(expected, float | complex):
        return abs(result - expected) <= TOLERANCE * abs(expected)
    return bool(result == expected)


def outcome(function: Function, arguments: Sequence[Any]) -> Any:
    """Return the result of a call, or the type and the text of its exception."""
    try:
        return function(*arguments)
    except (ArithmeticError, ValueError, RuntimeError) as error:
        return type(error), str(error)


def slope(program: Program, k: int) -> float:
    """Return the derivative by an argument, by central differences."""
    values = []
    for sign in (1, -1):
        moved = list(program.arguments)
        moved[k] += sign * STEP * max(1.0, abs(moved[k]))
        values.append(program.function(*moved))
    return float(values[0] - values[1]) / (2 * STEP * max(1.0, abs(program.arguments[k])))


def unchecked(program: Program) -> Function:
    """Return the compiled function without the checks of Python's errors; what the program itself raises stays."""
    import pullback as pb
    from pullback.compiled import function as module
    from pullback.ir import Block
    from pullback.ir.ops.control.regions import Check

    def without_checks(block: Block) -> Block:
        kept = [i for i in block.instructions if not isinstance(i.op, Check) or "raises" in i.params]
        return replace(block, instructions=tuple(replace(i, regions=tuple(map(without_checks, i.regions))) for i in kept))

    def trace(*args: Any, **kwargs: Any) -> Any:
        traced = checked_trace(*args, **kwargs)
        return replace(traced, function=replace(traced.function, body=without_checks(traced.function.body)))

    f = program.function
    compiled: Function = pb.jit(FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, f.__closure__))
    checked_trace = module.trace
    module.trace = trace
    try:
        for arguments in (program.arguments, program.other):
            outcome(compiled, arguments)
    finally:
        module.trace = checked_trace
    return compiled


def systems_of(program: Program) -> dict[str, Function]:
    """Return the functions to time, all of which are right. Raises SystemExit."""
    import pullback as pb

    calls: dict[str, Function] = {"python": program.function, "pullback": pb.jit(program.function)}
    for arguments in (program.arguments, program.other):
        expected = outcome(program.function, arguments)
        result = outcome(calls["pullback"], arguments)
        if not is_equal(result, expected):
            raise SystemExit(f"{program.name}: {result!r}, expected {expected!r}")
    if program.argnums:
        calls["gradient"] = pb.value_and_grad(program.function, argnums=program.argnums)
        for k, derivative in zip(program.argnums, calls["gradient"](*program.arguments)[1], strict=True):
            expected = slope(program, k)
            if not abs(derivative - expected) <= SLOPE_TOLERANCE * max(abs(expected), 1e-6):
                raise SystemExit(f"gradient of {program.name}: {derivative!r}, expected {expected!r}")
    return calls | numba_of(program)


def numba_of(program: Program) -> dict[str, Function]:
    """Return the function that Numba compiles; none if it is not installed or does not take the function."""
    try:
        from numba import njit
        from numba.core.errors import NumbaError
    except ImportError:
        return {}
    compiled = njit(program.function)
    try:
        result = compiled(*program.arguments)
    except NumbaError:
        return {}
    expected = program.function(*program.arguments)
    if not agree(result, expected):
        raise SystemExit(f"{program.name} in Numba: {result!r}, expected {expected!r}")
    return {"numba": compiled}


def agree(result: Any, expected: Any) -> bool:
    """Return whether numbers, in tuples or not, agree; Numba's have other types."""
    if isinstance(expected, tuple):
        return all(map(agree, result, expected))
    return bool(abs(result - expected) <= 1e-9 * abs(expected))


def measure(program: Program, rounds: int, checks: bool) -> dict[str, float]:
    """Return the seconds of a call of each system: the median over rounds. ``checks``: also without checks."""
    calls = systems_of(program) | ({"unchecked": unchecked(program)} if checks else {})
    loop = loop_over(len(program.arguments))
    for call in calls.values():
        loop(call, WARM_CALLS, *program.arguments)
    time.sleep(COMPILE_SECONDS)
    once = {name: loop(call, WARM_CALLS // 10, *program.arguments) / (WARM_CALLS // 10) for name, call in calls.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for k in range(rounds):
        for name, call in list(calls.items())[:: -1 if k % 2 else 1]:
            count = max(1, round(BURST_SECONDS / once[name]))
            taken[name].append(loop(call, count, *program.arguments) / count)
    return {name: statistics.median(t) for name, t in taken.items()}


def row(name: str, times: dict[str, float]) -> str:
    ours, gradient = times["pullback"], times.get("gradient")
    cells = [f"{ours * 1e6:.3f}", f"{ours / times['numba']:.2f}" if "numba" in times else "", f"{ours / times['python']:.2f}"]
    cells += ["", ""] if gradient is None else [f"{gradient * 1e6:.3f}", f"{gradient / ours:.1f}"]
    cells += [f"{ours / times['unchecked']:.2f}"] if "unchecked" in times else []
    return f"| {name} | {' | '.join(cells)} |"


def geometric_mean(numbers: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, numbers))) if numbers else math.nan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scalar_calls", description="time calls with Python's numbers")
    parser.add_argument("names", nargs="*", help="some of the programs (default: all)")
    parser.add_argument("--rounds", type=int, default=15, help="bursts of each system")
    parser.add_argument("--checks", action="store_true", help="time the functions without the checks of Python's errors, too")
    options = parser.parse_args()
    names = [p.name for p in PROGRAMS]
    if missing := sorted(set(options.names) - set(names)):
        print(f"no such program: {', '.join(missing)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    titles = ["value, us", "/ Numba", "/ Python", "value and gradient, us", "/ value"] + ["/ without checks"] * options.checks
    print(f"| program | {' | '.join(titles)} |")
    print(f"| --- |{' ---: |' * len(titles)}")
    results = []
    for program in PROGRAMS:
        if not options.names or program.name in options.names:
            results.append(measure(program, options.rounds, options.checks))
            print(row(program.name, results[-1]), flush=True)
    numba = geometric_mean([t["pullback"] / t["numba"] for t in results if "numba" in t])
    python = geometric_mean([t["pullback"] / t["python"] for t in results])
    gradient = geometric_mean([t["gradient"] / t["pullback"] for t in results if "gradient" in t])
    print(f"\nGeometric means: {numba:.2f} of Numba's time, {python:.2f} of Python's; value and gradient take {gradient:.2f}")
    print("of the time of the value.")
    if options.checks:
        ratio = geometric_mean([t["pullback"] / t["unchecked"] for t in results])
        print(f"With checks {ratio:.2f} of the time without.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
