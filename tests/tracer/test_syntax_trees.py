"""Conversions of syntax trees, which other threads of CPython 3.11 may disturb."""

from __future__ import annotations

import ast
import threading
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.user_code.syntax_trees import MOST_ATTEMPTS, undisturbed


def test_a_disturbed_conversion_is_repeated() -> None:
    failures = [SystemError("AST constructor recursion depth mismatch (before=96, after=94)")] * 2

    def convert() -> str:
        if failures:
            raise failures.pop()
        return "converted"

    assert undisturbed(convert) == "converted"
    assert failures == []


def test_a_conversion_that_is_disturbed_each_time_ends() -> None:
    count = 0

    def convert() -> None:
        nonlocal count
        count += 1
        raise SystemError

    with pytest.raises(ValueError, match="other threads"):
        undisturbed(convert)
    assert count == MOST_ATTEMPTS


def test_other_errors_are_those_of_the_conversion() -> None:
    with pytest.raises(SyntaxError):
        undisturbed(lambda: ast.parse("x ="))


@pytest.mark.long
def test_functions_roll_while_other_threads_parse(tmp_path: Any) -> None:
    """First calls in two threads, each of functions of files that are not parsed yet, while another one parses."""
    body = "    for v in x:\n        if v > 0.5:\n            total += v\n"
    text = f"def f(x):\n    total = 0.0\n{body * 20}    return total\n"
    is_done = threading.Event()
    results: list[Any] = []

    def parse() -> None:
        while not is_done.is_set():
            try:
                ast.parse(text)
            except SystemError:  # this thread's own
                continue

    def call(name: str) -> None:
        for k in range(5):
            path = tmp_path / f"{name}{k}.py"
            path.write_text(f"{text}# {name}{k}\n")
            names: dict[str, Any] = {}
            exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
            x = np.linspace(0.0, 1.0, 300)
            explanation = pb.jit(names["f"]).explain(x)
            results.append({s.how for s in explanation.statements if s.kind == "loop"} | {explanation.not_rolled})

    threads = [threading.Thread(target=call, args=(name,)) for name in "ab"]
    parser = threading.Thread(target=parse)
    for thread in (parser, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    is_done.set()
    parser.join()
    assert results == [{"rolled: 300 iterations", ""}] * 10
