"""The self-test: right kernels pass, wrong ones are named, and a crash is an answer."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.cli import selftest
from pullback.cli.main import main
from pullback.cli.selftest import KERNELS, Kernel, problem


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_right(name: str) -> None:
    assert problem(KERNELS[name]) == ""


def raising(x: Any) -> Any:
    raise ValueError("no\nsecond line")


@pytest.mark.parametrize(
    ("compiled", "message"),
    [
        (lambda x: x * 2, ""),
        (lambda x: np.where(x == 2, 7.0, x * 2), "1 of 4 elements differ, the first: 7.0 where NumPy gives 4.0"),
        (lambda x: np.where(x == 1, np.nan, x * 2), "1 of 4 elements differ, the first: nan where NumPy gives 2.0"),
        (lambda x: (x * 2).astype(np.float32), "float32[4] where NumPy gives float64[4]"),
        (lambda x: x[:2] * 2, "float64[2] where NumPy gives float64[4]"),
        (raising, "ValueError: no"),
    ],
)
def test_wrong_kernels_are_named(compiled: Any, message: str) -> None:
    assert problem(Kernel(compiled=compiled, expected=lambda x: x * 2, make=lambda rng: (np.arange(4.0),))) == message


def test_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--selftest"]) == 0
    lines = capfd.readouterr().out.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("selftest"))
    shown = [line for line in lines[start:] if line.startswith("  ")]
    assert len(shown) == len(KERNELS) == 10 and all(" ok  " in line for line in shown)
    assert lines[-1].startswith("selftest   all ok, ")


def test_a_wrong_kernel_fails_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Kernel(compiled=lambda x: x, expected=lambda x: x + 1, make=lambda rng: (np.zeros(3),))
    monkeypatch.setattr(selftest, "KERNELS", {"zero": wrong})
    assert selftest.run() == 1
    assert "zero" in (out := capsys.readouterr().out) and "wrong: 3 of 3 elements differ" in out


@pytest.mark.parametrize(("code", "message"), [(-11, "died (signal 11)"), (0xC000001D, "died (code 0xc000001d)")])
def test_a_crash_fails_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], code: int, message: str
) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, code))
    assert selftest.report() == 1
    assert message in (out := capsys.readouterr().out) and "selftest   wrong" in out


def test_no_kernel_comes_from_the_disk(tmp_path: Path) -> None:
    """The process that checks has no cache folder, whatever the environment says."""
    code = "from pullback.cli import selftest; selftest.report()"
    environment = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True)
    assert done.returncode == 0 and not list(tmp_path.iterdir())
