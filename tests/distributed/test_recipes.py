"""Other ways to many processes, as users of NumPy know them, with compiled functions: joblib, executors, MPI, a grid search."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback as pb
from tests.distributed.losses import arguments, squares
from tests.support.paths import ROOT

joblib = pytest.importorskip("joblib")
slope = pb.value_and_grad(squares)
ROWS = 600
w, x, y = arguments(ROWS)
EXPECTED = [slope(w, x[k : k + 200], y[k : k + 200]) for k in range(0, ROWS, 200)]


def same(results: object) -> bool:
    return all(a == b and np.array_equal(p, q) for (a, p), (b, q) in zip(results, EXPECTED, strict=True))  # type: ignore[call-overload]


def test_joblib() -> None:
    tasks = (joblib.delayed(slope)(w, x[k : k + 200], y[k : k + 200]) for k in range(0, ROWS, 200))
    assert same(joblib.Parallel(n_jobs=2)(tasks))


def test_executors() -> None:
    parts = [x[k : k + 200] for k in range(0, ROWS, 200)], [y[k : k + 200] for k in range(0, ROWS, 200)]
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        assert same(list(threads.map(slope, [w] * 3, *parts)))
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, spawn) as processes:
        assert same(list(processes.map(slope, [w] * 3, *parts)))


MPI = """
import numpy as np
from mpi4py import MPI

import pullback as pb
from tests.distributed.losses import arguments

comm = MPI.COMM_WORLD
w, x, y = arguments(600)
mine = slice(comm.rank * 600 // comm.size, (comm.rank + 1) * 600 // comm.size)
value, slope = pb.value_and_grad(lambda w, x, y: np.sum((x @ w - y) ** 2))(w, x[mine], y[mine])
total, gradient = np.zeros(()), np.zeros_like(slope)
comm.Allreduce(np.asarray(value), total)
comm.Allreduce(slope, gradient)
np.testing.assert_allclose(total, np.sum((x @ w - y) ** 2), rtol=1e-12)
np.testing.assert_allclose(gradient, 2 * x.T @ (x @ w - y), rtol=1e-12)
print("rank", comm.rank, "of", comm.size)
"""


def test_mpi_reduces_outside(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    launcher = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if launcher is None:
        pytest.skip("there is no mpiexec")
    program = tmp_path / "program.py"
    program.write_text(MPI)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [launcher, "-n", "2", sys.executable, str(program)]
    result = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split("\n"))[1:] == ["rank 0 of 2", "rank 1 of 2"]


def test_grid_search() -> None:
    base = pytest.importorskip("sklearn.base")
    selection = pytest.importorskip("sklearn.model_selection")
    from tests.distributed.estimator import Ridge

    assert issubclass(Ridge, base.BaseEstimator)
    search = selection.GridSearchCV(Ridge(), {"penalty": [0.0, 0.01, 10.0]}, n_jobs=2, cv=3)
    target = x @ np.arange(5.0) + 0.01 * y
    search.fit(x, target)
    assert search.best_params_["penalty"] < 10.0 and search.best_score_ > 0.999
