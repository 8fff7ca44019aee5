"""The command for a machine with a GPU: steps have limits, what they found stays, and their tests are there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import gpu_report
from tests.support.gpu_report import Step, run


def step(text: str) -> Step:
    return Step(name="a step", command=[sys.executable, "-u", "-c", text], seconds=60, file="step.txt")


def test_a_step_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    text = "import subprocess, sys; print('found'); subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    said = run(step(text), 2.0, tmp_path, {})
    assert said.startswith("time was up, ")
    assert (tmp_path / "step.txt").read_text() == "found\n"


def test_tests_are_counted(tmp_path: Path) -> None:
    lines = [
        "tests/a.py::b[c-gpu] PASSED [ 3%]", "[gw1] [ 50%] PASSED tests/a.py::c", "[gw0] [100%] FAILED tests/a.py::d",
        "FAILED tests/a.py::d - x",
    ]  # fmt: skip
    said = run(step(f"print({chr(10).join(lines)!r}); raise SystemExit(1)"), 60.0, tmp_path, {})
    assert said.startswith("status 1, ") and said.endswith("2 passed, 1 failed")


def test_steps_follow_each_other_and_are_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [step("pass"), step("raise SystemExit(3)"), step("print('here')")]
    monkeypatch.setattr(gpu_report, "steps", lambda *about: steps)
    assert gpu_report.main(["--out", str(tmp_path), "--seconds", "300"]) == 1
    summary = (tmp_path / "summary.md").read_text().splitlines()
    assert [line.partition(",")[0] for line in summary] == ["- a step: done", "- a step: status 3", "- a step: done"]
    assert capsys.readouterr().out.splitlines() == summary
    assert gpu_report.main(["--out", str(tmp_path), "--seconds", "0"]) == 1
    assert set((tmp_path / "summary.md").read_text().splitlines()) == {"- a step: no time was left"}


def test_what_matters_most_comes_first(tmp_path: Path) -> None:
    result = gpu_report.steps(tmp_path, 1, False)
    assert [s.name for s in result if s.name != "sanitizer"] == ["what is here", "first kernels", "tests", "benchmarks", "more"]
    assert sum(s.seconds for s in result if s.name != "more") < 600
    assert len({s.file for s in result}) == len(result) <= 6
