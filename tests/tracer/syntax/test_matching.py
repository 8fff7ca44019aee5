"""The source of a function is used only if it is proved to be the function's."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pullback as pb
from pullback.tracer.syntax import matching
from pullback.tracer.syntax.matching import has_flow, rewritten
from pullback.tracer.syntax.rewriting import Rewriter

TEXT = """
def f(x):
    if x > 0:
        return x
    return -x

g, h = (lambda x: 1 if x else 2), (lambda x: 2 if x else 1)
"""


def functions_of(text: str, file: str) -> dict[str, Callable[..., Any]]:
    namespace: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    return namespace


def test_code_equal_to_the_file_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "here.py"
    path.write_text(TEXT)
    functions = functions_of(TEXT, str(path))
    code = rewritten(functions["f"].__code__)
    assert code is not None
    assert (code.co_name, code.co_qualname, code.co_firstlineno) == ("f", "f", 2)
    assert all(c.co_name == "f" for c in code.co_consts if hasattr(c, "co_name"))
    first, second = rewritten(functions["g"].__code__), rewritten(functions["h"].__code__)
    assert first is not None
    assert second is not None
    assert first != second


def test_a_file_that_changed_is_not_the_source(tmp_path: Path) -> None:
    path = tmp_path / "there.py"
    path.write_text(TEXT)
    function = functions_of(TEXT.replace("-x", "2 * x"), str(path))["f"]
    assert rewritten(function.__code__) is None


def test_code_without_a_file_has_no_source() -> None:
    assert rewritten(functions_of(TEXT, "<nowhere>")["f"].__code__) is None


def test_future_features_of_the_compiler_are_kept() -> None:
    file = "<with annotations>"
    text = "def f(x: undefined) -> undefined:\n    return 1 if x else 2\n"
    namespace: dict[str, Any] = {}
    exec(compile(text, file, "exec"), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    with pytest.raises(NameError):
        exec(compile(text, file, "exec", dont_inherit=True), {})
    assert rewritten(namespace["f"].__code__) is not None


def test_a_module_that_is_reloaded_has_its_new_source(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"
    path.write_text(TEXT)
    assert rewritten(functions_of(TEXT, str(path))["f"].__code__) is not None
    text = TEXT.replace("-x", "2 * x")
    path.write_text(text)
    assert rewritten(functions_of(text, str(path))["f"].__code__) is not None


def test_code_without_control_flow_is_not_looked_up(tmp_path: Path) -> None:
    text = "def f(x):\n    return x + 1\n\ndef g(x):\n    return [v for v in x if v], not x\n"
    functions = functions_of(text, str(tmp_path / "absent.py"))
    assert not has_flow(functions["f"].__code__)
    assert has_flow(functions["g"].__code__)


SEVERAL = """
def before(x): return [1 if x else 2]

class Model:
    def first(self, x):
        return 1 if x else 2

    @staticmethod
    def second(x):
        def inside(y):
            return 1 if y else 2
        return inside(x) if x else inside

last, final = (lambda x: 1 if x else 2), (
    lambda x: 2 if x else 1); after = lambda x: 3 if x else 1
"""


@pytest.mark.parametrize(
    ("name", "line", "count"), [("before", 2, 1), ("first", 5, 1), ("second", 8, 2), ("inside", 10, 1), ("<lambda>", 15, 3)]
)
def test_only_the_functions_of_a_line_are_rewritten(
    name: str, line: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other functions of a file, and those around a function, cost nothing."""
    path = tmp_path / "several.py"
    path.write_text(SEVERAL)
    codes = [c for c in matching._nested(compile(SEVERAL, str(path), "exec", dont_inherit=True)) if c.co_firstlineno == line]
    bodies: list[str] = []
    for kind in ("visit_FunctionDef", "visit_Lambda"):
        visit = getattr(Rewriter, kind)
        monkeypatch.setattr(Rewriter, kind, lambda self, node, visit=visit: [bodies.append(""), visit(self, node)][1])
    code = next(c for c in codes if c.co_name == name)
    result = rewritten(code)
    assert result is not None
    assert result != code
    assert (result.co_name, result.co_qualname, result.co_firstlineno) == (code.co_name, code.co_qualname, line)
    assert len(bodies) == count


def test_statements_that_share_lines_are_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "shared.py"
    path.write_text(SEVERAL)
    for name, sign in (("last", 1), ("final", 2), ("after", 3)):
        code = rewritten(functions_of(SEVERAL, str(path))[name].__code__)
        assert code is not None
        assert sign in code.co_consts or any(sign in c.co_consts for c in matching._nested(code))


def test_functions_and_classes_in_blocks_have_pythons_names() -> None:
    def named(x: float) -> list[str]:
        names: list[str] = []
        while x < 3:
            x += 1
        for _ in range(2):
            if x > 2.5:

                def inner(y: float) -> float:
                    return y

                class Local:
                    """A class of an iteration."""

                names = [inner.__qualname__, (lambda y: y).__qualname__, Local.__qualname__]
        return names

    assert pb.jit(named)(0.5) == named(0.5)

    def called(x: float) -> float:
        while x < 3:
            x += 1
        if x > 2.5:
            return (lambda y: y)(x, scale=2.0)  # type: ignore[call-arg]
        return x

    with pytest.raises(TypeError, match=r"<locals>\.called\.<locals>\.<lambda>\(\) got an unexpected keyword argument 'scale'"):
        pb.jit(called)(0.5)
