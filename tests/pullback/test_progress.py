"""The progress line: shown on terminals and in notebooks after a while, erased at the end, and nowhere else."""

from __future__ import annotations

import io
import sys
import time
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def unrolled(x: Any) -> Any:
    for k in range(60):
        x = np.sin(x) * k + 1.0
    return x


def compile_slowly(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, delay: float = 0.0) -> str:
    """What is written to ``stream``, as standard error, while a function is traced for a tenth of a second and compiled."""

    def slow(x: Any) -> Any:
        time.sleep(0.1)
        return unrolled(x)

    monkeypatch.setattr(progress, "DELAY", delay)
    monkeypatch.setattr(progress, "INTERVAL", 0.002)
    monkeypatch.setattr(sys, "stderr", stream)
    pb.grad(pb.jit(lambda x: np.sum(slow(x)), loops="unroll"))(np.ones(3))
    return stream.getvalue()


def test_a_terminal_shows_a_line_that_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    text = compile_slowly(monkeypatch, Terminal())
    frames = text.split("\r")
    assert frames[0] == frames[-1] == "" and frames[-2].isspace()
    shown = [frame.strip() for frame in frames[1:-2]]
    assert all(frame.startswith("pullback: grad(") for frame in shown)
    assert any("trace, at test_progress.py:" in frame for frame in shown)
    assert all(len(frame) < 80 for frame in shown)


def test_operations_and_the_line_that_most_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(progress, "is_watched", lambda stream: True)
    real = progress.working_on

    def working_on(*functions: Any) -> None:
        real(*functions)
        seen.extend(progress.line_of(compile_, 200) for compile_ in progress._compiles.values())

    monkeypatch.setattr(progress, "working_on", working_on)
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "off")
    pb.jit(lambda x: unrolled(x) * 1.7654, loops="unroll")(np.ones(3))
    lines = [text for text in seen if "operations, " in text]
    line = unrolled.__code__.co_firstlineno + 2
    assert lines and all(f" % at test_progress.py:{line}" in text for text in lines)


def test_short_compiles_files_and_logs_show_nothing(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    assert compile_slowly(monkeypatch, Terminal(), delay=100.0) == ""
    assert compile_slowly(monkeypatch, io.StringIO()) == ""
    monkeypatch.setenv("PULLBACK_LOG", "off")
    assert compile_slowly(monkeypatch, Terminal()) == ""
    monkeypatch.setattr(sys, "stderr", None)
    assert not progress.is_watched(sys.stderr)


def test_errors_end_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(x: Any) -> Any:
        time.sleep(0.05)
        raise LookupError("of the user's")

    stream = Terminal()
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(sys, "stderr", stream)
    with pytest.raises(LookupError):
        pb.jit(failing)(np.ones(3))
    assert progress._compiles == {} and "pullback: failing" in stream.getvalue() and stream.getvalue().endswith("\r")
