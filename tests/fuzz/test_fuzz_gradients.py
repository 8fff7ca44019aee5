"""Random programs of NumPy calls: their gradients agree with central differences, at orders 1 and 2, and with forward mode and
``vmap``.

Points at which differences of two sizes, or from two sides, disagree are left out: a kink or a jump is near. A failure is reduced
to the fewest lines that fail.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.transforms.expand import grad
from pullback.tracer import trace, unflatten
from tests.fuzz.calls import Program, defined, quiet, text_of
from tests.fuzz.test_fuzz_calls import BASE, Mismatch, accepted, outcome
from tests.support.shrinking import fewest

MOST_CALLS = 12
COARSE = 5e-3
"""What differences over 2e-5 are worth where numbers are rounded to float32 on the way."""
NOT_FOUND = "no derivative|no gradient|does not depend|not supported|static|depends on|a write into a traced array"
"""What a TraceError says where there is no derivative to compare, or where an array from outside is written through a view."""


def loss_of(lines: Sequence[str], arguments: Sequence[Any]) -> Callable[..., Any]:
    """The sum of all elements of the inexact results, each through a cosine and weighed."""
    function = defined(text_of(lines, len(arguments)))
    shown = quiet(function, *copy.deepcopy(list(arguments)))
    names = [name for name, value in shown.items() if np.asarray(value).dtype.kind in "fc"]
    are_arrays = [isinstance(x, np.ndarray) for x in arguments]

    def loss(*values: Any) -> Any:
        result = function(*[np.array(x) if is_array else x for x, is_array in zip(values, are_arrays, strict=True)])
        total = 0.0
        for position, name in enumerate(names):
            x = result[name]
            for part in (np.real(x), np.imag(x)) if np.iscomplexobj(x) else (x,):
                weights = np.cos(np.arange(1.0, np.size(part) + 1) + position).reshape(np.shape(part))
                total = total + np.sum(np.cos(part) * weights)
        return total

    return loss


def interpreted(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    result = trace(function, arguments)
    inputs = result.arguments(arguments)
    assert inputs is not None
    expanded = run(result.function, [*BEFORE_GRAD, grad, *OPTIMIZE])
    with np.errstate(all="ignore"):
        results = interpret(expanded, *inputs)
    return unflatten(result.out_tree, results[: len(result.returned)])


def compiled(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    return pb.jit(function)(*arguments)


def slope(f: Callable[[float], float], size: float) -> float | None:
    """The derivative at 0 by central differences, None if those of two sizes or from two sides disagree, or if the rounding of
    values so large hides it."""
    h = 1e-5
    values = {t: quiet(f, t * h) for t in (-4, -1, 0, 1, 4)}
    if not np.isfinite(list(values.values())).all():
        return None
    near, far = (values[1] - values[-1]) / (2 * h), (values[4] - values[-4]) / (8 * h)
    right, left = (values[4] - values[0]) / (4 * h), (values[0] - values[-4]) / (4 * h)
    scale = size + abs(near)
    if np.spacing(np.max(np.abs(list(values.values())))) > 1e-4 * scale * h:
        return None
    if abs(near - far) > 1e-5 * scale or abs(right - left) > 1e-2 * scale:
        return None
    return float(near)


def is_varied(x: Any) -> bool:
    """Whether derivatives are taken by an argument: by float64, of NumPy or Python."""
    return bool(isinstance(x, float) or getattr(x, "dtype", None) == np.float64)


def compare(lines: Sequence[str], arguments: Sequence[Any], target: Callable[..., Any], *, is_whole: bool = True) -> None:
    """Raises Mismatch where two ways to a derivative disagree; unless ``is_whole`` the first derivatives alone are looked at."""
    rng = np.random.default_rng(len(lines))
    wrt = [k for k, x in enumerate(arguments) if is_varied(x)]
    points = [_moved(arguments[k], 0.1 * rng.normal(size=np.shape(arguments[k]))) for k in wrt]
    directions = [float(rng.normal()) if isinstance(x, float) else rng.normal(size=np.shape(x)) for x in points]
    every = tuple(range(len(points)))
    whole_loss = loss_of(lines, whole(arguments, wrt, points))

    def loss(*values: Any) -> Any:
        return whole_loss(*whole(arguments, wrt, values))

    def along(*values: Any) -> Any:
        return sum(np.sum(g * d) for g, d in zip(pb.grad(loss, argnums=every)(*values), directions))

    def derivatives(*values: Any) -> Any:
        forward = pb.jvp(loss, values, tuple(directions))[1]
        return along(*values), forward, pb.grad(along, argnums=every)(*values) if is_whole else None

    def moved(t: float) -> list[Any]:
        return [_moved(x, t * d) for x, d in zip(points, directions)]

    result = outcome(target, derivatives, points)
    if isinstance(result, pb.TraceError) and re.search(NOT_FOUND, str(result)):
        return
    if isinstance(result, Exception):
        raise Mismatch(f"{type(result).__name__}: {result}")
    first, forward, second = result
    expected = slope(lambda t: loss(*moved(t)), 1.0)
    if expected is None or (
        not np.isfinite(first) and has_fixed_zeros(lines, whole(arguments, wrt, points), whole(arguments, wrt, moved(1e-3)))
    ):
        return
    agree("order 1", first, expected, COARSE if any("'f4'" in line for line in lines) else 1e-4)
    agree("forward mode", forward, first, 1e-7)
    if not is_whole:
        return
    again = slope(lambda t: target(along, moved(t)), 1.0)
    if again is not None:
        agree("order 2", sum(np.sum(s * d) for s, d in zip(second, directions)), again, 1e-3)
    rows = [np.stack([x, y]) for x, y in zip(points, moved(1e-3))]
    batched = target(pb.vmap(along), rows)
    agree("a batch", batched[0], first, 1e-7)


def _moved(x: Any, by: Any) -> Any:
    """A value and a number, of the value's type."""
    return np.asarray(x + by) if isinstance(x, np.ndarray) else type(x)(x + by)


def whole(arguments: Sequence[Any], wrt: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """The arguments with other values at some positions."""
    result = list(arguments)
    for k, value in zip(wrt, values, strict=True):
        result[k] = value
    return result


def has_fixed_zeros(lines: Sequence[str], here: Sequence[Any], there: Sequence[Any]) -> bool:
    """Whether a number is 0 at both places, like ``x - x``: the slope of its root is infinite."""
    function = defined(text_of(lines, len(here)))
    result = [quiet(function, *[np.array(x) for x in values]) for values in (here, there)]
    return any(np.any((np.asarray(x) == 0) & (np.asarray(result[1][name]) == 0)) for name, x in result[0].items())


def agree(name: str, result: Any, expected: Any, tolerance: float) -> None:
    if not abs(float(result) - float(expected)) <= tolerance * (1 + abs(float(expected))):
        raise Mismatch(f"{name}: {result}, expected {expected}")


def run_program(seed: int, target: Callable[..., Any] | None = None) -> None:
    rng = np.random.default_rng(seed)
    program = Program(lambda n: int(rng.integers(n)), rng, dtypes=("f8",))
    calls = 1 + int(rng.integers(MOST_CALLS))
    for _ in range(3 * calls):
        if len(program.lines) < calls:
            program.step()
    arguments = program.arguments
    lines = accepted([] if program.refused else program.lines, arguments)
    target = target or (compiled if seed % 8 == 0 else interpreted)

    def fails(candidate: Sequence[str]) -> bool:
        return isinstance(outcome(compare, candidate, arguments, target), Mismatch)

    if fails(lines):
        fewer = fewest(lines, fails)
        said = outcome(compare, fewer, arguments, target)
        pytest.fail("\n".join([str(said), text_of(fewer, len(arguments)), *map(repr, arguments)]))


@settings(max_examples=12, derandomize=True, **BASE)
@given(st.integers(0, 1 << 40))
def test_random_gradients(seed: int) -> None:
    run_program(seed)


@pytest.mark.parametrize("seed", [138, 1515501])
def test_what_failed_once(seed: int) -> None:
    """1515501: numbers that are float32 for a while. 138: a sum that its own kernel reads where a pad has it."""
    run_program(seed, compiled)


@pytest.mark.long
@settings(max_examples=2000, **BASE)
@given(st.integers(0, 1 << 40))
def test_many_random_gradients(seed: int) -> None:
    run_program(seed)
