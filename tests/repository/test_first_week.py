"""The programs of examples/first_week give what plain NumPy gives, with right gradients, before and after a change."""

from __future__ import annotations

import ast
import importlib.util
import runpy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.paths import EXAMPLES
from tests.tables.first_week import CASES

FOLDER = EXAMPLES / "first_week"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"first_week_{name}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wide(tree: Any) -> Any:
    """float32 arrays in float64, so that differences of plain NumPy runs say something."""
    return pb.tree.map(lambda x: x.astype(float) if getattr(x, "dtype", None) == np.float32 else x, tree)


def check(compiled: Any, function: Callable[..., Any], args: Any, step: float) -> float:
    """Value as plain NumPy's; gradient as the differences of plain NumPy's values along three directions. The value."""
    value, gradient = compiled(*args)
    expected = function(*args)
    assert type(value) is type(expected) or isinstance(expected, float)
    single = value.dtype == np.float32
    np.testing.assert_allclose(value, expected, rtol=2e-6 if single else 1e-10)
    assert str(pb.tree.structure(gradient)) == str(pb.tree.structure(args[0]))
    slope = pb.tree.ravel(gradient)[0].astype(float)
    vector, unravel = pb.tree.ravel(wide(args[0]))
    others = wide(args[1:])
    rng = np.random.default_rng(0)
    for _ in range(3):
        direction = rng.uniform(-1, 1, vector.shape) * np.maximum(np.abs(vector), 0.1)
        f = [function(unravel(vector + k * step * direction), *others) for k in (-2, -1, 1, 2)]
        difference = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)
        scale = np.sum(np.abs(slope * direction)) + 1e-9 / step * abs(value)
        np.testing.assert_allclose(slope @ direction, difference, rtol=0, atol=scale * (1e-4 if single else 1e-6))
    return float(value)


def test_every_program_has_a_case() -> None:
    assert list(CASES) == PROGRAMS
    assert len(PROGRAMS) >= 30


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    case, module = CASES[name], load(name)
    function, args = case.start(module)
    compiled = pb.value_and_grad(function)
    before = check(compiled, function, args, case.step)
    changed = case.change(module, function)
    after = check(compiled, function, args if changed is None else changed, case.step)
    assert abs(after - before) > 1e-6 * abs(before), "nothing was changed"


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(action="error"):
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) >= 2 and "nan" not in printed


@pytest.mark.parametrize("name", PROGRAMS)
def test_numerical_functions_name_no_pullback(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda) and getattr(node, "name", "") != "main"
    ]
    main = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    inside = set(ast.walk(main))
    for function in functions:
        if function not in inside:
            names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            assert not names & {"pb", "pullback"}, function.lineno
    assert {"pb"} <= {node.id for node in ast.walk(main) if isinstance(node, ast.Name)}
