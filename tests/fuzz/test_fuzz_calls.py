"""Random programs of 1 to 30 NumPy calls: values, dtypes, shapes and exceptions are NumPy's, interpreted and compiled.

A failure is reduced: the message holds the fewest lines that fail and, where these can be traced, the smallest program as
``.ir``.
"""

from __future__ import annotations

import builtins
import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.ir import OPS, Function
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.text import print_function
from pullback.tracer import trace, unflatten
from tests.fuzz.calls import Program, defined, quiet, text_of
from tests.support import targets
from tests.support.shrinking import fewest, smallest

MOST_CALLS = 30

LIMITS = (
    "depends on", "static", "longdouble", "object", "view", "into a", "is not supported", "broadcast", "overlap", "branch",
    "shape of", "known", "complex",
)  # fmt: skip
"""Words of the TraceErrors for calls that NumPy accepts and a compiled program cannot, such as shapes that values decide."""


class Mismatch(AssertionError):
    """What NumPy and a target disagree on."""


def interpreted(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    result = trace(function, arguments)
    inputs = result.arguments(arguments)
    assert inputs is not None
    with np.errstate(all="ignore"):
        results = interpret(result.function, *inputs)
    return unflatten(result.out_tree, results[: len(result.returned)])


def compiled(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    return pb.jit(function)(*arguments)


TARGETS: dict[str, Callable[..., Any]] = {"interpreter": interpreted, "cpu": compiled}


def outcome(run: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives, or the exception that it raises."""
    try:
        return run(*arguments)
    except CheckFailed as error:
        return getattr(builtins, error.error)(str(error))
    except Exception as error:
        return error


def compare(lines: Sequence[str], arguments: Sequence[Any]) -> None:
    """Raises Mismatch where a target does not do what NumPy does."""
    function = defined(text_of(lines, len(arguments)))
    expected = outcome(quiet, function, *copy.deepcopy(list(arguments)))
    for name, run in TARGETS.items():
        result = outcome(run, function, copy.deepcopy(list(arguments)))
        if isinstance(result, pb.TraceError):
            if not isinstance(expected, Exception) and not any(word in str(result) for word in LIMITS):
                raise Mismatch(f"{name} refuses: {result}")
            continue
        if isinstance(expected, Exception) or isinstance(result, Exception):
            if not isinstance(expected, Exception) or not isinstance(result, public(type(expected))):
                raise Mismatch(f"{name}: {_said(result)}; NumPy: {_said(expected)}")
            continue
        for key, value in expected.items():
            agree(f"{name}: {key}", value, result[key], precision(expected.values()))


def public(kind: type[Exception]) -> type[Exception]:
    """The class of an exception that a user can name; NumPy's errors of ufuncs have private ones."""
    return next(k for k in kind.__mro__ if "._" not in k.__module__)


def accepted(lines: Sequence[str], arguments: Sequence[Any]) -> list[str]:
    """The lines without those that a compiled program cannot have, and without what reads them."""
    kept = list(lines)
    while kept:
        function = defined(text_of(kept, len(arguments)))
        refusal = outcome(trace, function, copy.deepcopy(list(arguments)))
        if not isinstance(refusal, pb.TraceError) or not any(word in str(refusal) for word in LIMITS):
            break
        kept = without(kept, min((refusal.line or 2) - 2, len(kept) - 1))
    return kept


def without(lines: Sequence[str], position: int) -> list[str]:
    """The lines but one, and but those that read the name that it makes, directly or through others."""
    gone = {lines[position].split()[0]} if lines[position].startswith("v") else set()
    kept = list(lines[:position])
    for line in lines[position + 1 :]:
        name, *rest = re.findall(r"\b[av]\d+\b", line)
        if gone & {name, *rest}:
            gone |= {name}
        else:
            kept.append(line)
    return kept


def _said(result: Any) -> str:
    return f"{type(result).__name__}: {result}" if isinstance(result, Exception) else "a result"


def precision(values: Any) -> float:
    dtypes = [np.asarray(v).dtype for v in values]
    return 1e-2 if any(d.char in "fF" for d in dtypes) else 1e-7


def agree(name: str, expected: Any, result: Any, tolerance: float) -> None:
    e, f = np.asarray(expected), np.asarray(result)
    if (e.dtype, e.shape) != (f.dtype, f.shape):
        raise Mismatch(f"{name} is {f.dtype}{f.shape}; NumPy: {e.dtype}{e.shape}")
    atol = tolerance * (1 + np.max(np.abs(e[np.isfinite(e)]), initial=0)) if e.dtype.kind in "fc" else 0
    if not np.allclose(f, e, rtol=tolerance, atol=atol, equal_nan=True):
        raise Mismatch(f"{name} is {f}; NumPy: {e}")


def reduced(lines: Sequence[str], arguments: Sequence[Any]) -> str:
    """The smallest failing program, as text."""

    def fails(candidate: Sequence[str]) -> bool:
        return isinstance(outcome(compare, candidate, arguments), Mismatch)

    fewer = fewest(lines, fails)
    words = [str(outcome(compare, fewer, arguments)), text_of(fewer, len(arguments)), *map(repr, arguments)]
    traced = outcome(trace, defined(text_of(fewer, len(arguments))), copy.deepcopy(list(arguments)))
    if not isinstance(traced, Exception):
        function, inputs = traced.function, list(traced.arguments(copy.deepcopy(list(arguments))))
        if differs(function, inputs):
            function, inputs = smallest(function, inputs, differs)
        words += [print_function(function), *map(repr, inputs)]
    return "\n".join(words)


def differs(function: Function, arguments: Sequence[Any]) -> bool:
    """Whether the compiled program of a function gives something else than the interpreter, or fails."""
    inputs = copy.deepcopy(list(arguments))
    a = outcome(interpret, function, *inputs)
    b = outcome(lambda: targets.compiled(function, [targets.layout_of(x) for x in inputs]).run(inputs))
    if isinstance(a, Exception) or isinstance(b, Exception):
        return type(a) is not type(b)
    return any(isinstance(outcome(agree, "", x, y, precision(a)), Mismatch) for x, y in zip(a, b, strict=True))


def run_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = Program(lambda n: int(rng.integers(n)), rng)
    calls = 1 + int(rng.integers(MOST_CALLS))
    for _ in range(3 * calls):
        if len(program.lines) < calls and not program.refused:
            program.step()
    lines = accepted(program.lines, program.arguments)
    if isinstance(outcome(compare, lines, program.arguments), Mismatch):
        pytest.fail(reduced(lines, program.arguments))


BASE: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "phases": (Phase.generate,)}


@settings(max_examples=36, derandomize=True, **BASE)
@given(st.integers(0, 1 << 40))
def test_random_calls(seed: int) -> None:
    run_program(seed)


@pytest.mark.long
@settings(max_examples=3000, **BASE)
@given(st.integers(0, 1 << 40))
def test_many_random_calls(seed: int) -> None:
    run_program(seed)


def test_the_reducer_finds_the_lines_that_fail() -> None:
    lines = ["v0 = a0 + 1", "v1 = np.sin(a0)", "v2 = v0 * 2", "v3 = v1 + v2", "v4 = v3.T"]
    assert fewest(lines, lambda kept: {"v0 = a0 + 1", "v2 = v0 * 2"} <= set(kept)) == ["v0 = a0 + 1", "v2 = v0 * 2"]


def test_the_reducer_finds_the_instruction_that_fails() -> None:
    x = np.array([0.5, 2.0])
    traced = trace(lambda x: (np.exp(np.sin(x) * 2) + x, np.cos(x).sum()), (x,))

    def fails(function: Function, arguments: Sequence[Any]) -> bool:
        return any(i.op is OPS["exp"] for i in function.instructions)

    function, arguments = smallest(traced.function, [x], fails)
    assert [i.op.name for i in function.instructions] == ["exp"]
    np.testing.assert_allclose(arguments[0], np.sin(x) * 2)
