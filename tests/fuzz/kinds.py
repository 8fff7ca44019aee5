"""The checks of one random program of each kind; ``python -m tests.fuzz`` runs them by number."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pullback as pb
from tests.fuzz import calls as fuzz_calls
from tests.fuzz import mixed_calls, test_fuzz, test_fuzz_calls, test_fuzz_gradients, test_fuzz_source, typed_control_flow
from tests.fuzz.calls import defined, quiet
from tests.fuzz.test_fuzz_calls import LIMITS, MOST_CALLS, accepted
from tests.fuzz.values import LOOSE, SPACE, Line, Program, assess, text_of
from tests.support.outcomes import Mismatch, described, listed, outcome, same_error, same_values
from tests.support.shrinking import fewest

Failed = Mismatch
CALLS = 3
"""Sets of arguments for one program."""
VERIFIED = 4
"""One program in this many is compiled with ``verify=``, which must find no further difference."""


def values(seed: int) -> str:
    """A short program over every dtype and kind of number, called several times. What it did: passed, refused or nothing."""
    program = Program(np.random.default_rng([seed, 33]))
    calls = [program.arguments, *(program.others() for _ in range(CALLS - 1))]
    if not program.lines:
        return "nothing"
    verify = CALLS if seed % VERIFIED == 0 else 0
    try:
        return compared(program.lines, calls, verify)
    except Mismatch:
        raise Failed(reduced(program.lines, calls, verify)) from None


def compared(lines: Sequence[Line], calls: Sequence[Sequence[Any]], verify: int = 0) -> str:
    """Call a program compiled and plain. Raises Mismatch if they differ, or if ``verify``, for its number of calls, does."""
    text = text_of([line.text for line in lines], len(calls[0]))
    function = defined(text, SPACE)
    compiled = pb.jit(function, verify=verify)
    signs = not any(word in text for word in LOOSE)
    found_something = False
    for count, arguments in enumerate(calls):
        state = assess(lines, arguments)
        if state is None:
            continue
        mine, theirs = copy.deepcopy(list(arguments)), copy.deepcopy(list(arguments))
        expected = outcome(quiet, function, *theirs)
        result = outcome(compiled, *mine)
        if isinstance(result, pb.TraceError):
            return "refused"
        try:
            if isinstance(expected, NameError):
                return "nothing"
            if isinstance(expected, Exception):
                if not (isinstance(result, Exception) and state.ended < len(lines) - 1):
                    same_error(expected, result)
            elif isinstance(result, Exception):
                raise Mismatch(f"{described(result)}; NumPy: {described(expected)}")
            else:
                same_values(expected, result, state.rough, signs=signs)
                same_values(listed(theirs), listed(mine), state.rough, signs=signs)
        except Mismatch as error:
            raise Mismatch(f"call {count + 1}: {error}") from None
        found_something = True
    return "passed" if found_something else "nothing"


def reduced(lines: Sequence[Line], calls: Sequence[Sequence[Any]], verify: int) -> str:
    """The fewest lines and calls that fail, as text."""

    def fails(part: Sequence[Line], some: Sequence[Sequence[Any]]) -> bool:
        return bool(part) and bool(some) and isinstance(outcome(compared, part, some, verify), Mismatch)

    fewer = fewest(lines, lambda part: fails(part, calls))
    some = fewest(calls, lambda part: fails(fewer, part))
    last = outcome(compared, fewer, some, verify)
    text = text_of([line.text for line in fewer], len(calls[0]))
    return "\n".join([str(last), text, *(f"f{tuple(arguments)!r}" for arguments in some)])


def calls(seed: int) -> str:
    """A program of up to 30 calls on mixed arguments, called twice. Lines that a compiled program cannot have are left out;
    "refused" if these are more than half."""
    program = mixed_calls.grown(seed, MOST_CALLS)
    arguments = [program.arguments, program.others()]
    lines = accepted(program.lines, program.arguments)
    if not program.lines:
        return "nothing"

    def run(part: Sequence[str]) -> None:
        compare_calls(part, arguments)

    try:
        run(lines)
    except Mismatch:
        fewer = fewest(lines, lambda part: isinstance(outcome(run, part), Mismatch))
        text = text_of(fewer, len(program.arguments))
        raise Failed("\n".join([str(outcome(run, fewer)), text, *(f"f{tuple(x)!r}" for x in arguments)])) from None
    return "passed" if 2 * len(lines) >= len(program.lines) else "refused"


def compare_calls(lines: Sequence[str], calls: Sequence[Sequence[Any]]) -> None:
    """Call a program compiled and plain. Raises Mismatch where they differ."""
    function = defined(fuzz_calls.text_of(lines, len(calls[0])))
    compiled = pb.jit(function)
    for count, arguments in enumerate(calls):
        mine, theirs = copy.deepcopy(list(arguments)), copy.deepcopy(list(arguments))
        expected = outcome(quiet, function, *theirs)
        result = outcome(compiled, *mine)
        if isinstance(result, pb.TraceError):
            if count or any(word in str(result) for word in LIMITS) or isinstance(expected, Exception):
                return
            raise Mismatch(f"refused: {result}")
        try:
            if isinstance(expected, Exception):
                if not (isinstance(result, Exception) and line_of(result) > line_of(expected)):
                    same_error(expected, result)
                continue
            if not all(fuzz_calls.is_fit(x, mixed_calls.CHARS) for x in expected.values()):
                return
            if any(re.search("signbit|copysign", line) for line in lines) and any(np.isnan(x).any() for x in expected.values()):
                return  # the sign of a NaN is the processor's
            if isinstance(result, Exception):
                raise Mismatch(f"{described(result)}; NumPy: {described(expected)}")
            everything = [*expected.values(), *arguments]
            scale = max(float(np.max(np.abs(x), where=np.isfinite(x), initial=0)) for x in map(np.asarray, everything))
            same_values(expected, result, dict.fromkeys(expected, scale), signs=False)
            same_values(listed(theirs), listed(mine), dict.fromkeys(listed(theirs), scale), signs=False)
        except Mismatch as error:
            raise Mismatch(f"call {count + 1}: {error}") from None


def line_of(error: Exception) -> int:
    """Return the line of a program that raised while Python ran it, or while it was traced; 0 where a compiled program raised.

    What types and shapes decide is refused while a program is traced, before values decide what an earlier line raises.
    """
    result, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == "f":
            result = trace.tb_lineno
        trace = trace.tb_next
    return result


GRADIENT_CALLS = 6
COMPILED = 16
"""The derivatives of one program in this many are compiled; the others are interpreted."""
WHOLE = 4
"""Second derivatives and batches are compared for one program in this many."""


def gradients(seed: int) -> str:
    """Derivatives of a program of up to 6 calls by its float64 arguments, among arguments of other kinds."""
    program = mixed_calls.grown(seed, GRADIENT_CALLS, dtypes=FLOATS, kinds=DIFFERENTIATED, first="f8")
    arguments, target = program.arguments, test_fuzz_gradients.interpreted if seed % COMPILED else test_fuzz_gradients.compiled
    lines = [] if program.refused else accepted(program.lines, arguments)
    if not lines:
        return "refused" if program.lines and not program.refused else "nothing"

    def run(part: Sequence[str]) -> None:
        test_fuzz_gradients.compare(part, arguments, target, is_whole=seed % WHOLE == 0)

    if isinstance(outcome(run, lines), test_fuzz_calls.Mismatch):
        fewer = fewest(lines, lambda part: isinstance(outcome(run, part), test_fuzz_calls.Mismatch))
        text = fuzz_calls.text_of(fewer, len(arguments))
        raise Failed("\n".join([str(outcome(run, fewer)), text, f"f{tuple(arguments)!r}"]))
    return "passed"


def control(seed: int) -> str:
    """A program of branches and loops with integers and floats of every dtype: values and derivatives."""
    try:
        typed_control_flow.check(seed)
    except pb.TraceError:
        return "refused"
    except AssertionError as error:
        raise Failed(f"{error}\n{typed_control_flow.shown(seed)}") from None
    return "passed"


def sources(seed: int) -> str:
    """A function of slices, views and writes, with other data and other shapes."""
    try:
        test_fuzz_source.run_values(test_fuzz_source.Seeded(seed))
        if seed % WHOLE == 0:
            test_fuzz_source.run_gradients(test_fuzz_source.Seeded(seed))
    except AssertionError as error:
        raise Failed(str(error)) from None
    return "passed"


def programs(seed: int) -> str:
    """A program of the IR on every target, or a gradient."""
    check = test_fuzz.check_program if seed % WHOLE else test_fuzz.check_gradient
    try:
        check(test_fuzz.picker(seed, 35))
    except Exception as error:
        raise Failed(f"{error}\n" + "\n".join(getattr(error, "__notes__", ()))) from None
    return "passed"


FLOATS = ("f8", "f8", "f8", "f4", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8", "?", "c16", "c8")
DIFFERENTIATED = ("array", "array", "float", "float", "scalar", "int", "bool", "complex")
KINDS: dict[str, Callable[[int], str]] = {
    "value": values, "call": calls, "gradient": gradients, "control": control, "source": sources, "ir": programs,
}  # fmt: skip
