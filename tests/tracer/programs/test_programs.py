"""Tests of everyday programs, compared with plain Python."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.tracer.programs import idiom_programs, scalar_programs, structure_programs

PROGRAMS = {
    function.__name__: entry for m in (scalar_programs, structure_programs, idiom_programs) for entry in m.PROGRAMS for function in entry[:1]
}


def outcome(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[str, Any]:
    """Return the result of a call with copies of the arguments, or its exception."""
    try:
        return "result", function(*copy.deepcopy(arguments))
    except Exception as error:
        return "error", error


def assert_same(result: Any, expected: Any) -> None:
    """Check that a value has the type of the expected one, and its contents to rounding."""
    assert type(result) is type(expected), (result, expected)
    if isinstance(expected, Exception):
        assert str(result) == str(expected)
    elif isinstance(expected, tuple | list):
        assert len(result) == len(expected)
        for a, b in zip(result, expected):
            assert_same(a, b)
    elif isinstance(expected, dict):
        assert list(result) == list(expected)
        for key in expected:
            assert_same(result[key], expected[key])
    elif isinstance(expected, float | complex | np.ndarray | np.generic):
        np.testing.assert_allclose(result, expected, rtol=1e-13, atol=0)
    elif hasattr(expected, "__dict__"):
        assert_same(vars(result), vars(expected))
    else:
        assert result == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_errors_are_pythons(name: str) -> None:
    function, calls, _ = PROGRAMS[name]
    compiled = pb.jit(function)
    for _ in range(3):
        for arguments in calls:
            expected, result = outcome(function, arguments), outcome(compiled, arguments)
            assert result[0] == expected[0], (arguments, expected, result)
            assert_same(result[1], expected[1])


def first_number(value: Any) -> Any:
    while isinstance(value, tuple | list):
        value = value[0]
    return value


@pytest.mark.parametrize("name", [name for name in PROGRAMS if PROGRAMS[name][2]])
def test_gradients_are_differences(name: str) -> None:
    function, calls, argnums = PROGRAMS[name]

    def number(*arguments: Any) -> Any:
        return first_number(function(*arguments))

    tested = 0
    for arguments in calls:
        for k in argnums:
            step = 1e-6 * max(1.0, abs(arguments[k]))
            moved = [[*arguments[:k], arguments[k] + s * step, *arguments[k + 1 :]] for s in (1, -1)]
            kinds = [outcome(number, a) for a in (arguments, *moved)]
            if (
                not isinstance(arguments[k], float)
                or any(kind == "error" for kind, _ in kinds)
                or is_at_a_jump(name, k, arguments)
            ):
                continue
            expected = (kinds[1][1] - kinds[2][1]) / (2 * step)
            assert math.isclose(pb.grad(number, argnums=k)(*arguments), expected, rel_tol=1e-4, abs_tol=1e-8)
            tested += 1
    assert tested


def is_at_a_jump(name: str, k: int, arguments: Sequence[Any]) -> bool:
    """Return whether a branch by equality takes the arguments, on another side than their neighbours."""
    return name == "mortgage" and k == 1 and arguments[1] == 0.0


RAY = ((0.0, 0.0, -5.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 1.0)


@pytest.mark.parametrize(
    "name, arguments", [("kepler", (0.5, 0.3)), ("ray_sphere", RAY), ("quadratic", (1.0, -3.0, 2.0)), ("status", (5.0,)), ("modm", (7.5, 2.0))]
)  # fmt: skip
def test_results_of_several_cases_are_built_natively(name: str, arguments: Any) -> None:
    compiled = pb.jit(PROGRAMS[name][0])
    for _ in range(3):
        compiled(*arguments)
    assert "path of warm calls: native\n" in f"{compiled.explain(*arguments)}\n"
