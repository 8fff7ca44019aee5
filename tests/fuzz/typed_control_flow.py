"""Random programs of control flow on integers and floats of every dtype: values against plain Python, derivatives against
finite differences.

Most are interpreted; the values of some, and the derivatives of fewer, are compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from tests.fuzz.calls import quiet
from tests.fuzz.control_flow import Compiled, Plain, Program
from tests.fuzz.test_fuzz_calls import interpreted as interpreted_values
from tests.fuzz.test_fuzz_gradients import interpreted, slope
from tests.fuzz.values import laid_out
from tests.support.outcomes import outcome, same_error

INTS = ("int", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
LAYOUTS = ("C", "C", "F", "strided", "reversed", "offset", "broadcast")
VALUES, DERIVATIVES = 3, 24
"""The values of one program in VALUES, and the derivatives of one in DERIVATIVES, are compiled."""
WRT = (0, 1, 3, 4)


def arguments(seed: int, count: int = 0) -> tuple[Any, ...]:
    """An array, a number, an integer, a matrix and a sequence, of one float dtype and one of any integers. Another ``number``:
    other values."""
    rng = np.random.default_rng([seed, 36])
    dtype = ("f8", "f8", "f8", "f4")[rng.integers(4)]
    kind, layouts = INTS[rng.integers(len(INTS))], [LAYOUTS[k] for k in rng.integers(len(LAYOUTS), size=3)]
    is_numpy = dtype == "f4" or bool(rng.integers(2))
    rng = np.random.default_rng([seed, 36, count])
    k = int(rng.integers(0, 6)) if kind.startswith("u") or rng.random() < 0.7 else -int(rng.integers(1, 4))
    s = float(rng.normal() * 0.7)
    drawn = [rng.normal(size=3) * 0.7, rng.normal(size=(3, 3)) * 0.6, rng.normal(size=(4, 3)) * 0.8]
    a, w, xs = (laid_out(x.astype(dtype), layout) for x, layout in zip(drawn, layouts, strict=True))
    return a, np.dtype(dtype).type(s) if is_numpy else s, k if kind == "int" else np.dtype(kind).type(k), w, xs


def program_of(seed: int) -> Program:
    return Program(seed, 1 + (seed % 4 == 0))


def shown(seed: int) -> str:
    """The program of a seed and its arguments, as text."""
    return "\n".join([str(program_of(seed)), *(f"f{arguments(seed, n)!r}" for n in range(2))])


def check(seed: int) -> None:
    """Run the program of a seed. Raises AssertionError where two ways to compute the same thing differ."""
    program = program_of(seed)
    f, plain = program(Compiled), program(Plain)
    compiled = pb.jit(f)
    for count in range(2):
        inputs = arguments(seed, count)
        expected = outcome(quiet, plain, *inputs)
        result = outcome(compiled, *inputs) if seed % VALUES == 0 else outcome(interpreted_values, f, inputs)
        if isinstance(result, pb.TraceError):
            raise result
        if isinstance(expected, Exception):
            same_error(expected, result)
            return
        if isinstance(result, OverflowError):
            raise pb.TraceError(f"in a branch that plain Python did not take: {result}")
        if isinstance(result, Exception):
            raise result
        close(result, expected, 2e-3 if inputs[0].dtype.itemsize < 8 else 1e-8, f"value of call {count + 1}")
    if inputs[0].dtype == np.float64:
        derivatives(seed, f, plain, inputs)


def derivatives(seed: int, f: Any, plain: Any, arguments: tuple[Any, ...]) -> None:
    rng = np.random.default_rng([seed, 37])
    points = [np.array(arguments[k]) if k != 1 else float(arguments[k]) for k in WRT]
    directions = [rng.normal(size=np.shape(x)) if np.shape(x) else float(rng.normal()) for x in points]

    def at(of: Any, values: Any) -> Any:
        return of(values[0], values[1], arguments[2], values[2], values[3])

    def both(*values: Any) -> Any:
        gradient = pb.grad(lambda *x: at(f, x), argnums=(0, 1, 2, 3))(*values)
        along = sum(np.sum(g * d) for g, d in zip(gradient, directions, strict=True))
        return along, pb.jvp(lambda *x: at(f, x), values, tuple(directions))[1]

    first, forward = both(*points) if seed % DERIVATIVES == 0 else interpreted(both, points)
    expected = slope(lambda t: float(at(plain, [x + t * d for x, d in zip(points, directions, strict=True)])), 1.0)
    close(forward, first, 1e-7, "forward mode")
    if expected is not None:
        close(first, expected, 1e-4, "gradient")


def close(result: Any, expected: Any, tolerance: float, what: str) -> None:
    e, f = np.asarray(expected), np.asarray(result)
    if f.dtype != e.dtype or f.shape != e.shape:
        raise AssertionError(f"{what} is {f.dtype}{f.shape}, expected {e.dtype}{e.shape}")
    if not np.allclose(f, e, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise AssertionError(f"{what} is {result!r}, expected {expected!r}")
