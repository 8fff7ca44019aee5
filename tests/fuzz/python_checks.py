"""Checks of random functions with Python's own control flow against plain Python: results, arguments afterwards, exceptions."""

from __future__ import annotations

import builtins
import linecache
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np

import pullback as pb
from pullback.ir.interpret import CheckFailed, interpret
from pullback.ir.passes.transforms.reverse import GradientError
from pullback.tracer.arrays.literals import scalar_of
from pullback.tracer.arrays.tree import unflatten
from pullback.tracer.trace import Trace, trace
from pullback.tracer.user_code.clauses import NOT_HANDLED
from tests.fuzz.python_control import arguments_of, function_of, is_equal
from tests.fuzz.python_expressions import LENGTH
from tests.fuzz.test_fuzz_gradients import interpreted, slope
from tests.support.outcomes import said

WIDE = 2**63
"""The least int that a compiled program has no value for: it raises OverflowError."""
OUTSIDE = re.compile(r"\b(an )?index( -?\d+)? is out of bounds for axis (\d)( with size \d+)?")
"""NumPy's IndexError, whose numbers a compiled program does not always have."""
ESCAPING = (IndexError, ArithmeticError, ValueError)
"""The errors of operations."""


class Interpreted:
    """A function whose traces are interpreted. A call of other types, or of other ints of Python, is traced anew."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.traces: dict[Any, Trace] = {}

    def __call__(self, *arguments: Any) -> Any:
        key = tuple(x if type(x) is int else type(x) for x in arguments)
        traced = self.traces.get(key)
        if traced is None or traced.pinned or traced.branches:
            traced = self.traces[key] = trace(self.function, arguments, rolls=True)
        inputs = traced.arguments(arguments)
        assert inputs is not None
        try:
            with np.errstate(all="ignore"):
                results = interpret(traced.function, *inputs)
        except CheckFailed as error:
            raise (pb.TraceError if error.error == NOT_HANDLED else getattr(builtins, error.error))(str(error)) from None
        count = len(traced.returned)
        # A result of the interpreter may be a view of an input, which is written below.
        own = map(scalar_of, map(np.array, results[:count]), traced.numbers)
        leaves = [arguments[k] if k is not None else x for x, k in zip(own, traced.returned, strict=True)]
        for k, new in zip(traced.writes, results[count:], strict=False):
            arguments[k][...] = new
        return unflatten(traced.out_tree, leaves)


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments with copies of the arrays among them."""
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def outcome(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Return what a call returns, or the exception that it raises."""
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            return function(*arguments)
    except Exception as error:
        return error


def difference(seed: int, compiled: Callable[..., Any], calls: int) -> str:
    """Call the program of a seed compiled and plain. Return how they differ, "refused" for one that is, empty if they agree."""
    function, text = function_of(seed)
    for call in range(calls):
        arguments = arguments_of(1000 * seed + call)
        mine, theirs = copies(arguments), copies(arguments)
        result, expected = outcome(compiled, mine), outcome(function, theirs)
        if isinstance(result, pb.TraceError):
            return "refused"
        differs = compared(result, expected)
        if isinstance(result, pb.VerificationError) and is_by_join(result):
            continue
        is_refuted = isinstance(result, pb.VerificationError) and result.what == "exception"
        if (isinstance(result, OverflowError) or is_refuted) and overflows(function, copies(arguments)):
            continue
        if (isinstance(result, ESCAPING) or is_refuted) and "except" in text:
            continue  # without guards, no except clause sees what an operation raises
        if not differs and not is_equal(mine, list(arguments) if isinstance(result, Exception) else theirs):
            differs = f"arguments afterwards: {mine}; plain Python: {theirs}"
        if differs:
            return f"{seed}, call {call}, f{arguments}: {differs}\n{text}"
    return ""


def compared(result: Any, expected: Any) -> str:
    """Return how the outcomes of two calls of a program differ; empty if they are the same."""
    if isinstance(result, Exception) or isinstance(expected, Exception):
        words = [OUTSIDE.sub(r"axis \3", said(error)) for error in (result, expected)]
        is_same = type(result) is type(expected) and words[0] == words[1]
    else:
        is_same = is_equal(result, expected)
        if is_same and (wrong := types_differ(result, expected)):
            return wrong
    return "" if is_same else f"{result!r}; plain Python: {expected!r}"


def is_by_join(error: pb.VerificationError) -> bool:
    """Return whether ``verify=`` met a number of the dtype that the variable has on another path (see ``is_equal``)."""
    dtypes = {text.partition("[")[0] for text in (error.found, error.expected)}
    return dtypes in ({"float32", "float64"}, {"int64", "float64"}, {"a Python int", "bool"})


def types_differ(result: Any, expected: Any) -> str:
    """Return the first number of Python's of another type than plain Python's; empty if there is none. A number of NumPy may
    stand for one of Python, which the variable is on another path."""
    if isinstance(result, list | tuple | dict):
        keys = result if isinstance(result, dict) else range(len(result))
        return next(filter(None, (types_differ(result[k], expected[k]) for k in keys)), "")
    kinds = (bool, int, float, complex)
    is_wrong = type(result) in kinds and type(expected) is not type(result)
    return f"{result!r} is no {type(expected).__name__}" if is_wrong else ""


def overflows(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Return whether a variable of a function, or an item, becomes an int in plain Python for which 64 bits do not suffice."""
    is_wide = False

    def observe(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal is_wide
        ints = [x for x in (value, *frame.f_locals.values()) if type(x) is int]
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        ints += [x * x for x in ints] if re.search(r"\b(\w+) \* \1\b", line) else []
        is_wide |= any(not -WIDE <= x < WIDE for x in ints) or "6364136223846793005" in line
        return observe

    sys.settrace(observe)
    try:
        outcome(function, arguments)
    finally:
        sys.settrace(None)
    return is_wide


def derivatives_differ(seed: int) -> str:
    """Compare the derivative of a program along a direction, by differences of plain Python, by reverse and by forward mode.
    Return how they differ, "refused" for a program that is, empty if they agree."""
    function, text = function_of(seed, is_loss=True)
    rng = np.random.default_rng([seed, 38])
    count, ints = int(rng.integers(0, 5)), rng.integers(-4, 5, LENGTH)
    points = [float(rng.normal()), float(rng.normal()), rng.normal(size=LENGTH)]
    directions = [float(rng.normal()), float(rng.normal()), rng.normal(size=LENGTH)]

    def loss(p: Any, q: Any, a: Any) -> Any:
        return function(p, q, count, a, ints.copy())

    def both(p: Any, q: Any, a: Any) -> Any:
        reverse = pb.grad(loss, argnums=(0, 1, 2))(p, q, a.copy())
        along = sum(np.sum(g * d) for g, d in zip(reverse, directions, strict=True))
        return along, pb.jvp(loss, (p, q, a), tuple(directions))[1]

    def moved(t: float) -> float:
        return float(loss(*(x + t * d for x, d in zip(points, directions, strict=True))))

    value = outcome(moved, [0.0])
    if isinstance(value, Exception) or not np.isfinite(value):
        return ""  # a value that is not finite has no slope
    expected = slope(moved, 1.0)
    result = outcome(lambda *x: interpreted(both, x), copies(points))
    if isinstance(result, pb.TraceError):
        return "refused"
    if isinstance(result, CheckFailed) and "except" in text:
        return ""  # without guards, no except clause sees what an operation raises
    if not isinstance(result, Exception):
        values = [*result, result[0] if expected is None else expected]
        if np.allclose(values, values[0], rtol=1e-4, atol=1e-6, equal_nan=True):
            return ""
    return f"{seed}, f{(*points[:2], count, points[2], ints)}: {result!r}; differences: {expected}\n{text}"


def rows_differ(seed: int, count: int = 4) -> str:
    """Compare a program over rows of arguments, under ``pb.vmap``, with plain calls for each row. Return how they differ,
    "refused" for a program that is, empty if they agree. Every other program has its ints in rows too."""
    function, text = function_of(seed, is_loss=True)
    columns = list(zip(*(arguments_of(1000 * seed + k) for k in range(count)), strict=True))
    p, q = (np.array(column, np.float64) for column in columns[:2])
    a, whole, ints = np.array(columns[3], np.float64), np.array(columns[2], np.int64), np.array(columns[4])
    has_rows_of_ints = seed % 2 == 0
    if not has_rows_of_ints:
        whole, ints = np.full_like(whole, whole[0]), np.broadcast_to(ints[0], ints.shape)

    def one(p: Any, q: Any, a: Any, n: Any, v: Any) -> Any:
        return function(p, q, n, a.copy(), v.copy())

    def rows(p: Any, q: Any, a: Any) -> Any:
        if has_rows_of_ints:
            return pb.vmap(one)(p, q, a, whole, ints)
        return pb.vmap(lambda *x: one(*x, int(whole[0]), ints[0]))(p, q, a)

    def plain(*x: Any) -> Any:
        return np.array([float(function(p[k], q[k], whole[k], a[k].copy(), ints[k].copy())) for k in range(count)])

    expected, result = outcome(plain, ()), outcome(lambda *x: interpreted(rows, x), (p, q, a))
    if isinstance(result, pb.TraceError | GradientError):
        return "refused"
    if isinstance(expected, Exception) or (isinstance(result, CheckFailed) and "except" in text):
        return ""  # of several rows, which one raises its exception is not decided by Python's order
    if not isinstance(result, Exception) and np.allclose(result, expected, rtol=1e-9, atol=1e-9, equal_nan=True):
        return ""
    return f"{seed}, f{(p, q, whole, a, ints)}: {result!r}; row by row: {expected!r}\n{text}"
