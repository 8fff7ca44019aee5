"""A run that tests no CUDA says so, and fails where that is demanded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cuda.gpu import missing
from tests.support.paths import ROOT

COMMAND = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/cuda_host/test_driver.py")


def run(tmp_path: Path, demand: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest where there is no compiler, so no stand-in."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST", "PULLBACK_CUDA"))}
    environment = {**kept, "PATH": str(tmp_path), "PULLBACK_CUDA": demand}
    return subprocess.run(COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_a_run_without_the_stand_in_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "")
    assert done.returncode == 0 and " skipped" in done.stdout
    assert "CUDA WAS NOT TESTED" in done.stdout and "there is no g++ to compile CUDA C for the host" in done.stdout


@pytest.mark.skipif(missing() is None, reason="a GPU is here, on which CUDA is tested")
def test_it_fails_where_cuda_is_demanded(tmp_path: Path) -> None:
    done = run(tmp_path, "any")
    assert done.returncode == 4
    assert "CUDA cannot be tested here, and PULLBACK_CUDA=any demands it: there is no g++" in done.stderr + done.stdout
    assert run(tmp_path, "host").returncode == 1


def test_another_word_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "yes")
    assert done.returncode == 4 and "PULLBACK_CUDA=yes: host, gpu or any is expected" in done.stderr + done.stdout


def test_the_tests_of_ci_demand_it() -> None:
    """``.ci/run`` is ``make test``, which demands CUDA but where a person says otherwise."""
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec make test")
    recipe = (ROOT / "Makefile").read_text().partition("\ntest:")[2].partition("\n\n")[0]
    assert "cuda-host" in recipe and "PULLBACK_CUDA=$${PULLBACK_CUDA-any} $(BIN)/python -m pytest" in recipe
