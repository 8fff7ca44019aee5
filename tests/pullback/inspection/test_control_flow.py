"""The explain report on branches, loops and checks: how each is compiled, at the user's line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import Array

X = np.linspace(0.5, 1.5, 40)


def of_line(function: Any, *arguments: Any) -> dict[str, str]:
    """Return how each statement is compiled, by the text of its line."""
    return {s.text: s.how for s in function.explain(*arguments).statements}


def test_loops() -> None:
    @pb.jit
    def f(x: Array, n: int) -> Any:
        total = np.float64(0.0)
        for i in range(len(x)):
            total = total + x[i] * np.sqrt(x[i] + total)
        for k in range(3):
            total += k
        while total > 1.0:
            total = total / 2
        for row in x[:n]:
            total = total + row
            if total > 40.0:
                break
        for item in [1.0, "a", None]:
            total = total + (0.0 if item is None or item == "a" else item)
        return total

    how = of_line(f, X, 30)
    assert how["for i in range(len(x)):"] == "rolled: 40 iterations"
    assert how["for k in range(3):"] == "unrolled: 3 short iterations"
    assert how["while total > 1.0:"] == "rolled: values decide when it ends"
    assert how["for row in x[:n]:"].endswith("iterations, unless values end it before")
    assert how['for item in [1.0, "a", None]:'] == "unrolled: it goes over a list, which is no range or array"
    f(X, 30)
    assert of_line(f, X, 30) == how
    report = f.explain(X, 30)
    assert "branches, loops and checks:" in str(report) and not report.not_rolled
    assert [s.loc.line for s in report.statements] == sorted(s.loc.line for s in report.statements)


def test_a_loop_whose_first_iteration_differs() -> None:
    @pb.jit
    def f(x: Array) -> Any:
        best = None
        for v in x:
            best = v if best is None else max(best, v)
        return best

    many = np.sin(np.arange(1000.0))
    assert of_line(f, many)["for v in x:"] == "rolled from iteration 2 on: 999 iterations"
    assert f(many) == many.max()


def test_branches_and_checks() -> None:
    @pb.jit
    def f(x: Array, a: float) -> Any:
        if a > 1.0:
            a = 1.0
        if a < 0.2:
            x = np.cumsum(np.sort(x))
        if a < -1.0:
            raise ValueError("too small")
        return x * a

    how = of_line(f, X, 0.5)
    assert how["if a > 1.0:"] == "both sides are computed, and one is selected"
    assert how["if a < 0.2:"] == "one side runs"
    assert how["if a < -1.0:"] == "checked at run time, raises ValueError"


def test_statements_of_helpers_are_at_their_own_lines() -> None:
    def bounded(v: Any) -> Any:
        return 1.0 if v > 1.0 else v

    @pb.jit
    def f(x: Array) -> Any:
        return bounded(x[0]) + bounded(x[1]) + sum(k for k in range(2))

    report = f.explain(X)
    assert [(s.kind, s.text) for s in report.statements] == [("branch", "return 1.0 if v > 1.0 else v")]


def test_a_loop_in_a_rolled_loop_is_there_once() -> None:
    @pb.grad
    def f(x: Array) -> Any:
        total = np.float64(0.0)
        for i in range(40):
            for j in range(40):
                total = total + x[i] * x[j] if i < j else total
        return total

    how = f.explain(X).statements
    assert [s.how for s in how if s.kind == "loop"] == ["rolled: 40 iterations"] * 2
    assert len(how) == 3


def test_the_reason_for_unrolling() -> None:
    @pb.jit
    def f(x: Array) -> Any:
        for k in range(3):
            x = x + k
        if x[0] > 100.0:
            return x[:3, None]
        return x

    report = f.explain(X)
    assert report.not_rolled.startswith("what is returned is f64[3,1] and f64[40] on the paths of a branch on a traced value")
    assert report.statements == ()
    assert "loops are unrolled, since" in str(report)
    with pytest.warns(pb.RetraceWarning, match="are no single program"):
        np.testing.assert_array_equal(f(X), X + 3)
    assert f.explain(X).not_rolled == report.not_rolled


@pytest.mark.parametrize("options", [{"loops": "unroll"}, {"guards": True}])
def test_functions_without_statements_have_no_lines(options: dict[str, Any]) -> None:
    report = pb.jit(lambda x: np.sin(x) * 2, **options).explain(X)
    assert report.statements == () and report.not_rolled == ""
    assert "loops" not in str(report)


def test_a_function_without_source() -> None:
    names: dict[str, Any] = {}
    exec("def f(x):\n    for v in range(3):\n        x = x + v\n    return x", names)
    statements = pb.jit(names["f"]).explain(X).statements
    assert [(s.kind, s.loc.line) for s in statements] == [("function", 1), ("loop", 2)]
    assert statements[1].how == "unrolled: 3 short iterations"
    assert "source is not at hand" in statements[0].how
