"""LLVM text with locations is the text that is compiled, and its machine code is linked by line numbers to the user's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.located import Marks, line_numbers, with_line_numbers
from pullback.ir.core.structure import Loc, Module
from pullback.programs.pipeline import observe_stages
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import located_parts_of, parts_of
from tests.support import statement_programs

X = np.linspace(0.1, 2.0, 64)


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.sum(e / np.sum(e, axis=1, keepdims=True), axis=0)


def sorted_products(x: Any) -> Any:
    return np.sort(x @ x.T, axis=1)[:, ::2] + np.cumsum(x, axis=1)[:, :1]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (softmax, (X.reshape(8, 8),)),
    "gradient": (pb.grad(lambda x: np.sum(softmax(x) ** 2)), (np.tile(X, (8, 1)),)),
    "products and sorts": (sorted_products, (np.tile(X, (70, 1)),)),
    "loop": (statement_programs.rolled_loop, (X, np.array([9]))),
    "loop that leaves": (statement_programs.loop_that_leaves, (X, np.array([9]))),
    "checks": (statement_programs.checks, (X, np.array([9]))),
}


def scheduled(name: str) -> Module:
    function, arguments = CASES[name]
    call = pb.jit(function).examine(arguments, {})
    return observe_stages(call.trace, call.leaves, "cpu", (), lambda *shown: None)


@pytest.mark.parametrize("name", CASES)
def test_parts_are_those_that_are_compiled(name: str) -> None:
    module = scheduled(name)
    parts = located_parts_of(module)
    assert list(parts) == parts_of(module)
    assert any(any(locs) for locs in parts.values())
    for text, locs in parts.items():
        assert len(locs) == len(text.split("\n"))
        assert not any(loc for line, loc in zip(text.split("\n"), locs, strict=True) if not line.startswith("  "))


@pytest.mark.parametrize("name", CASES)
def test_line_numbers_do_not_change_the_code(name: str) -> None:
    engine = default_engine()
    for text, locs in located_parts_of(scheduled(name)).items():
        if not any(locs):
            continue
        numbers = [k + 1 if loc else 0 for k, loc in enumerate(locs)]
        assembly = engine.assembly(text)
        linked = line_numbers(assembly, engine.assembly(with_line_numbers(text.split("\n"), numbers)))
        assert len(linked) == len(assembly.split("\n")) and any(linked) and set(linked) <= {0, *numbers}


def test_another_text_has_no_locations() -> None:
    marks = Marks()
    line = marks.marked("%v1 = add i64 1, 2", Loc("model.py", 3))
    assert marks.locs_of("  %v1 = add i64 1, 2\n", f"  {line}\n") == [Loc("model.py", 3), Loc()]
    assert marks.locs_of("  %v1 = add i64 1, 3\n", f"  {line}\n") == [Loc(), Loc()]
    assert marks.locs_of("  %v1 = add i64 1, 2", f"  {line}\n") == [Loc()]
    for comment in (line, "%v2 = sub i64 1, 2"):
        assert line_numbers("f:\n\tretq", f"f:\n\t.loc\t1 7 0\n\tnop # {comment}\n\tretq") == [0, 0]
    assert line_numbers("f:\n\tretq # x", "f:\n\t.loc\t1 7 0\n\tretq") == [0, 7]
