"""Checks of the functions that HIPS autograd differentiates; ``python -m tests.tables.floor`` prints one line for each.

Each is checked compiled: value and dtype; the gradient of a randomly weighted sum of its results; its directional derivative
in forward mode; and the second order, the gradient of a weighted sum of gradients. Derivatives are compared with central
differences.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pullback as pb
from pullback.tracer import flatten
from tests.support.paths import TABLES
from tests.tables.floor_calls import ROWS
from tests.tables.floor_tools import CHECKS as TOOLS

Call = Callable[..., Any]
STEP = 1e-6
TOLERANCE = 2e-6
ELSEWHERE = ("floor.transform", "floor.extend", "floor.tooling", "floor.container")


@dataclass(frozen=True)
class Line:
    """A line of the list. ``modes``: rev, fwd, zero or none."""

    section: str
    name: str
    modes: str

    @property
    def is_zero(self) -> bool:
        return "zero" in self.modes


def lines() -> list[Line]:
    """All lines of ``floor.txt``."""
    result = []
    for text in (TABLES / "floor.txt").read_text().splitlines():
        if not text.startswith("#"):
            name, modes, _ = text.split("\t")
            section, _, name = name.partition(":")
            result.append(Line(section, name, modes))
    return result


def functions() -> list[Line]:
    """The lines of functions."""
    return [line for line in lines() if line.section not in ELSEWHERE]


def quiet(call: Call, *arguments: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return call(*arguments)


def inexact(result: Any) -> list[Any]:
    return [leaf for leaf in flatten(result)[0] if np.asarray(leaf).dtype.kind in "fc"]


def real_loss(call: Call, shapes: Sequence[tuple[int, ...]], complex_ones: Sequence[bool]) -> Call:
    """The sum of all results, real and imaginary parts, with fixed random weights."""
    rng = np.random.default_rng(3)
    weights = [(rng.uniform(0.5, 1.5, s), rng.uniform(0.5, 1.5, s)) for s in shapes]

    def loss(*xs: Any) -> Any:
        total = 0.0
        for leaf, (by_real, by_imag), is_complex in zip(inexact_of(call(*xs), len(shapes)), weights, complex_ones):
            if is_complex:
                total = total + np.sum(by_real * np.real(leaf)) + np.sum(by_imag * np.imag(leaf))
            else:
                total = total + np.sum(by_real * leaf)
        return total

    return loss


def inexact_of(result: Any, count: int) -> list[Any]:
    """The float and complex leaves of a traced or plain result."""
    actual = [leaf for leaf in flatten(result)[0] if getattr(leaf, "dtype", np.dtype(type(leaf))).kind in "fc"]
    assert len(actual) == count
    return actual


def loss_of(call: Call, arguments: Sequence[Any]) -> Call:
    result = [np.asarray(leaf) for leaf in inexact(quiet(call, *arguments))]
    return real_loss(call, [f.shape for f in result], [f.dtype.kind == "c" for f in result])


def directions_of(arguments: Sequence[Any], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    result = []
    for a in map(np.asarray, arguments):
        d = rng.uniform(0.3, 1.0, a.shape) * rng.choice([-1.0, 1.0], a.shape)
        result.append(d + 1j * rng.uniform(0.3, 1.0, a.shape) if a.dtype.kind == "c" else d)
    return result


def difference(call: Call, arguments: Sequence[Any], directions: Sequence[Any]) -> list[Any]:
    """The central difference of every result along the directions."""
    above, below = (inexact(quiet(call, *(a + s * STEP * d for a, d in zip(arguments, directions)))) for s in (1, -1))
    return [(np.asarray(a) - np.asarray(b)) / (2 * STEP) for a, b in zip(above, below)]


def close(result: Any, expected: Any, what: str, tolerance: float = TOLERANCE) -> None:
    scale = 1 + np.max(np.abs(expected), initial=0)
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * scale, err_msg=what)


def check_value(call: Call, arguments: Sequence[Any]) -> None:
    """Values, dtypes and structure are NumPy's."""
    expected, tree = flatten(quiet(call, *arguments))
    result, found_tree = flatten(pb.jit(call)(*arguments))
    assert found_tree == tree
    for e, f in zip(expected, result):
        assert np.shape(f) == np.shape(e) and np.asarray(f).dtype == np.asarray(e).dtype
        close(f, e, "value", 1e-10) if np.asarray(e).dtype.kind in "fc" else np.testing.assert_array_equal(f, e)


def check_reverse(call: Call, arguments: Sequence[Any]) -> None:
    """The gradient by each argument."""
    loss = loss_of(call, arguments)
    gradients = pb.grad(loss, argnums=tuple(range(len(arguments))))(*arguments)
    for k, gradient in enumerate(gradients):
        assert np.shape(gradient) == np.shape(arguments[k])
        directions = [d if j == k else np.zeros_like(d) for j, d in enumerate(directions_of(arguments, 5))]
        (expected,) = difference(loss, arguments, directions)
        close(np.real(np.sum(gradient * directions[k])), expected, f"gradient by argument {k}")


def check_forward(call: Call, arguments: Sequence[Any]) -> None:
    """The derivative along a direction, of all results."""
    directions = directions_of(arguments, 7)
    _, tangents = pb.jvp(call, tuple(arguments), tuple(directions))
    for result, expected in zip(inexact(tangents), difference(call, arguments, directions), strict=True):
        close(result, expected, "tangent")


def check_second(call: Call, arguments: Sequence[Any]) -> None:
    """The gradient of a weighted sum of the gradients."""
    loss = loss_of(call, arguments)
    positions, weights = tuple(range(len(arguments))), directions_of(arguments, 9)

    def slope(*xs: Any) -> Any:
        gradients = pb.grad(loss, argnums=positions)(*xs)
        return sum(np.sum(np.real(g * w)) for g, w in zip(gradients, weights))

    result = pb.grad(slope, argnums=positions)(*arguments)
    directions = directions_of(arguments, 5)
    (expected,) = difference(slope, arguments, directions)
    close(sum(np.real(np.sum(f * d)) for f, d in zip(result, directions)), expected, "second order", 1e-5)


def check_zero(call: Call, arguments: Sequence[Any]) -> None:
    """The results have no derivative: the gradient of a sum with them is that of the sum without them."""

    def loss(*xs: Any) -> Any:
        leaves = [leaf for leaf in flatten(call(*xs))[0] if hasattr(leaf, "dtype")]
        return sum(np.sum(leaf * 1.0) for leaf in leaves) + sum(np.sum(x * x) for x in xs)

    gradients = pb.grad(loss, argnums=tuple(range(len(arguments))))(*arguments)
    for x, gradient in zip(arguments, gradients):
        np.testing.assert_array_equal(gradient, 2 * x)


CHECKS: dict[str, Call] = {"value": check_value, "reverse": check_reverse, "forward": check_forward, "second": check_second}
ZERO_CHECKS: dict[str, Call] = {"value": check_value, "zero": check_zero}


def checks(line: Line) -> dict[str, Call]:
    """What is checked of a line, by its name."""
    return ZERO_CHECKS if line.is_zero else CHECKS


def main() -> int:
    failed = 0
    for line in lines():
        words = []
        for name, run in all_checks(line).items():
            try:
                run()
            except Exception as error:
                words.append(f"{name}: {' '.join(str(error).split())[:200] or type(error).__name__}")
        failed += bool(words)
        print(f"{line.section}:{line.name}\t{'; '.join(words) or 'passes ' + ', '.join(all_checks(line))}")
    print(f"{len(lines()) - failed} of {len(lines())} pass")
    return bool(failed)


def all_checks(line: Line) -> dict[str, Callable[[], None]]:
    """What is run for a line, by its name."""
    if line.section in ELSEWHERE:
        return {"formula": TOOLS[line.name]}
    return {name: functools.partial(check, *ROWS[line.name]) for name, check in checks(line).items()}


if __name__ == "__main__":
    sys.exit(main())
