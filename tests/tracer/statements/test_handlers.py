"""Errors of operations in ``try`` statements whose ``except`` clauses handle them: a guard decides which path a call takes."""

from __future__ import annotations

import copy
import dis
import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.user_code.clauses import _statements
from tests.support.api import Array

pytestmark = pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
ERRORS = (ValueError, OverflowError)


def quotient(x: Array) -> Any:
    try:
        return 1.0 / float(x[0] - x[1])
    except ZeroDivisionError:
        return 0.0


def with_jitter(a: Array) -> Any:
    for k in range(6):
        try:
            return np.linalg.cholesky(a + 1e-8 * 10.0**k * np.eye(len(a))), k
        except np.linalg.LinAlgError:
            pass
    return None


def inverse(a: Array) -> Any:
    try:
        return np.linalg.inv(a)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(a)


def bounded_exp(v: float) -> Any:
    try:
        return math.exp(v)
    except ERRORS:
        return math.inf


def element(x: Array, k: int) -> Any:
    try:
        return x[k]
    except (KeyError, IndexError):
        return -1.0


def counted(x: Array) -> Any:
    total, n = 0.0, 0
    for v in x:
        try:
            total += 1.0 / float(v)
        except ArithmeticError:
            n += 1
    return total, n


def of_helper(x: Array) -> Any:
    def divided(a: Any, b: Any) -> Any:
        return a / b

    try:
        result = divided(2.0, float(x[0]))
    except Exception:
        result = -1.0
    else:
        result += 1.0
    finally:
        x[0] = 5.0
    return result


def bare(x: Array) -> Any:
    try:
        return x[0], float(x[1]) // float(x[0])
    except:  # noqa: E722
        return 0.0


def raised_again(x: Array) -> Any:
    try:
        return 1.0 / float(x[0])
    except ZeroDivisionError as error:
        raise ValueError("the first number is 0") from error


def of_another_kind(x: Array) -> Any:
    try:
        return 1.0 / float(x[0])
    except KeyError:
        return 0.0


def at_the_end(x: Array) -> Any:
    y = 0.0
    try:
        y = 1.0 / float(x[0])
    finally:
        y = y + 1.0
    return y


ZERO, ONES = np.array([0.0, 2.0]), np.array([4.0, 2.0])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 4.0]]) - 1e-5 * np.eye(2)
CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (quotient, [(np.ones(2),), (ONES,)]),
    (with_jitter, [(np.eye(2),), (INDEFINITE,), (-np.eye(2),)]),
    (inverse, [(np.zeros((2, 2)),), (2 * np.eye(2),)]),
    (bounded_exp, [(0.0,), (1e4,)]),
    (element, [(ONES, 1), (ONES, 2), (ONES, -3)]),
    (counted, [(np.array([1.0, 0.0, 2.0, 0.0]),), (np.ones(4),)]),
    (of_helper, [(ZERO,), (ONES,)]),
    (bare, [(ZERO,), (ONES,)]),
    (raised_again, [(ZERO,), (ONES,)]),
    (of_another_kind, [(ZERO,), (ONES,)]),
    (at_the_end, [(ZERO,), (ONES,)]),
]


def outcome(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return what a function returns or raises, and its arguments afterwards."""
    own = copy.deepcopy(arguments)
    try:
        return function(*own), own
    except Exception as error:
        return (type(error), str(error)), own


def bare_text(value: Any) -> str:
    """Return the text of a value, with scalars of NumPy as those of Python."""
    return re.sub(r"np\.\w+\(([^()]*)\)", r"\1", repr(value))


@pytest.mark.parametrize("function, calls", CASES, ids=[c[0].__name__ for c in CASES])
def test_each_call_takes_its_path(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    compiled = pb.jit(function)
    for arguments in (*calls, *calls[::-1]):
        actual, expected = outcome(compiled, arguments), outcome(function, arguments)
        assert bare_text(actual) == bare_text(expected)


def test_gradients_are_of_the_path() -> None:
    slope = pb.grad(lambda a: np.sum(inverse(a) ** 2))
    a = np.array([[2.0, 0.3], [0.1, 1.0]])
    inverted = np.linalg.inv(a)
    np.testing.assert_allclose(slope(a), -2 * inverted.T @ inverted @ inverted.T, rtol=1e-12)
    np.testing.assert_array_equal(pb.grad(lambda x: quotient(x) * 1.0)(np.ones(2)), [0.0, 0.0])


def test_where_no_guard_can_decide_the_error_is_raised() -> None:
    """As in a row of ``pb.vmap``, or with ``guards=False``."""
    rows = np.array([[1.0, 2.0], [3.0, 5.0]])
    by_row = pb.vmap(lambda x: 1.0 / (x[0] - x[1]))(rows)
    np.testing.assert_array_equal(pb.vmap(quotient)(rows), by_row)
    strict = pb.jit(quotient, guards=False)
    assert strict(rows[0]) == -1.0
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        strict(np.ones(2))


def test_clauses_of_an_instruction() -> None:
    def function(f: Any) -> None:
        try:
            f(1)
        except (ValueError, np.linalg.LinAlgError):
            f(2)
        except KeyError:
            pass
        try:
            with f(3):
                f(4)
        except:  # noqa: E722
            pass
        try:
            f(5)
        finally:
            f(6)

    classes = {"ValueError": ("ValueError",), "LinAlgError": ("np", "linalg", "LinAlgError"), "KeyError": ("KeyError",)}
    calls = [i for i in dis.get_instructions(function.__code__) if i.opname == "CALL"]
    first = function.__code__.co_firstlineno
    classes_at = {i: {*itertools.chain(*_statements(function.__code__, i.offset))} for i in calls}
    seen = {i.positions.lineno - first: clauses for i, clauses in classes_at.items() if i.positions}
    assert seen[2] == set(classes.values())
    assert seen[4] == set()
    assert seen[9] == {("BaseException",)}
    assert seen[13] == set()


def catches_a_refusal(q: Any, x: Array, n: Any) -> Any:
    try:
        r: Any = 1.0
        for y in {1.0, 2.0}:
            if x[0] > y:
                r = x
    except Exception:
        if q < 100.0:
            raise KeyError("small") from None
    return (1, 2, 3)[n] / 0 + r


def test_a_check_of_a_clause_that_caught_a_refusal_decides_nothing() -> None:
    for x in (np.zeros(3), np.ones(3) + 0.5):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            pb.jit(catches_a_refusal)(1.0, x, 1)
