"""The programs of the corpus give what plain Python gives, with right gradients, or are refused as listed in refused.txt."""

import ast
from pathlib import Path

import pytest

from tests.corpus.checks import assessed, check_error, check_gradient, check_value, drawn, finite_leaves, plain
from tests.corpus.refused import REFUSED, expect
from tests.corpus.registry import CASES, MODULES

LIBRARIES = {"numpy", "math", "dataclasses", "collections", "typing", "tests.corpus.case"}
"""What the modules of programs import."""
LISTS = {"safe_ratio"}
"""Programs that take the elements of arrays as lists, which needs their values."""


@pytest.mark.parametrize("name", CASES)
def test_plain_run(name: str) -> None:
    case = CASES[name]
    for seed in range(case.seeds):
        finite_leaves(plain(case.function, drawn(case, seed, case.size)))


@pytest.mark.parametrize("name", CASES)
def test_value(name: str) -> None:
    result = assessed(lambda: check_value(CASES[name], CASES[name].size))
    expect("value", name, result.status, result.detail)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.argnums])
def test_gradient(name: str) -> None:
    result = assessed(lambda: check_gradient(CASES[name], CASES[name].size))
    expect("gradient", name, result.status, result.detail)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.failing])
def test_error(name: str) -> None:
    result = assessed(lambda: check_error(CASES[name]))
    expect("error", name, result.status, result.detail)


@pytest.mark.parametrize("name", CASES)
def test_rolled(name: str) -> None:
    """What `loops="roll"` compiles is right: values, and gradients."""
    case = CASES[name]
    result = assessed(lambda: check_value(case, case.size, loops="roll"))
    assert result.status in ("ok", "refused"), result.detail
    if case.argnums and result.status == "ok":
        result = assessed(lambda: check_gradient(case, case.size, loops="roll"))
        assert result.status in ("ok", "refused"), result.detail


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CASES if name not in LISTS])
def test_under_guards(name: str) -> None:
    """The paths of the data sets, followed and unrolled: this tests the cases themselves."""
    check_value(CASES[name], CASES[name].size, guards=True)
    if CASES[name].argnums:
        check_gradient(CASES[name], CASES[name].size, guards=True)


def test_listed_cases_exist() -> None:
    assert {name for _, name in REFUSED} <= set(CASES)


@pytest.mark.parametrize("path", [Path(str(module.__file__)) for module in MODULES], ids=lambda path: path.stem)
def test_programs_name_no_pullback(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert names <= LIBRARIES
    assert len(path.read_text().splitlines()) <= 400
