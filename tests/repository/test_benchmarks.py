"""The workloads of the benchmarks agree with NumPy at small sizes, and the program runs from end to end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import limits
from benchmarks.__main__ import late
from benchmarks.case import Case, Target, Work
from benchmarks.cases import CASES
from benchmarks.measure import PATIENCE, TOLERANCE, difference, prepare
from benchmarks.peers import PEERS, openblas
from benchmarks.report import MARKS, Row, means, with_short
from tests.support.paths import ROOT

TRIED = {(case.function, case.wanted, tuple(case.small)): case for case in CASES}.values()
PAIRS = [pytest.param(case, dtype, id=case.label(dtype)) for case in TRIED for dtype in case.dtypes]


@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_pullback_and_numpy_agree_with_the_reference_in_float64(case: Case, dtype: str) -> None:
    calls, absent = prepare(case, dtype, ["pullback", "numpy"], case.small)
    assert absent == {}
    assert list(calls) == ["pullback", "numpy"]


def test_a_wrong_value_shape_or_dtype_is_seen() -> None:
    right = (np.float64(2.0), (np.array([1.0, -4.0]),))
    assert difference(right, right, "float64") == 0.0
    assert difference((2.0, (np.array([1.0, -4.1]),)), right, "float64") == pytest.approx(0.025)
    assert difference((np.float64("nan"), right[1]), right, "float64") == np.inf
    wrong: list[Any] = [(2.0,), (2.0, (np.array([1.0]),)), (2.0, (np.array([1.0, -4.0], "f4"),)), (2, right[1])]
    assert [difference(other, right, "float64") for other in wrong] == [np.inf] * 4
    assert TOLERANCE["float64"] < 0.025


def test_a_system_that_takes_too_long_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it catches what is raised within it."""

    def never(case: Case, arguments: Any) -> Any:
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    monkeypatch.setitem(PEERS, "torch", never)
    case = CASES[0]
    calls, absent = prepare(case, case.dtypes[0], ["torch", "numpy"], case.small, patience=0.2)
    assert list(calls) == ["numpy"] and absent == {"torch": "not ready after 0.2 s"}
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_kernels_that_this_processor_cannot_run_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(level: str) -> None:
        raise ValueError(f"PULLBACK_CPU={level}: this CPU has no {level}f")

    monkeypatch.setattr(openblas, "find_host", lacking)
    monkeypatch.setattr(openblas.ctypes, "CDLL", None)
    product = next(case for case in CASES if case.workload == "matmul")
    _, absent = prepare(product, "float32", ["openblas_avx512"], product.small)
    assert absent == {"openblas_avx512": "NotImplementedError: OpenBLAS for SkylakeX: this CPU has no avx512f"}


def test_what_was_late_is_not_waited_for_again() -> None:
    case = CASES[0]
    result = {"workload": case.workload, "case": case.name, "dtype": "float64"}
    absent = {"torch": "not ready after 300 s", "jax": "jax is not installed"}
    assert late([{**result, "absent": absent}]) == [f"{case.label('float64')}:torch"]
    calls, absent = prepare(case, "float64", ["torch", "numpy"], case.small, late=["torch"])
    assert list(calls) == ["numpy"] and absent["torch"].startswith(f"not ready after {PATIENCE:g} s on another")


def test_a_limit_above_a_measured_time_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result = iter([1e9, 2e9, 8e9, 9e9])
    monkeypatch.setattr(limits, "_rates", {})
    monkeypatch.setattr(limits, "measured_rate", lambda name: next(result))
    work = Work(reads=0, writes=0, flops=10**6)
    assert limits.shares(work, "float64", {}, 0.4e-3) == {"flops": 1e6 / 8e9}
    assert limits.shares(work, "float64", {}, 1.0) == {"flops": 1e6 / 8e9}
    assert next(result) == 9e9


def run(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_program_runs_from_end_to_end_and_keeps_earlier_results(tmp_path: Path) -> None:
    position = tmp_path / "results.json"
    shared = ("--peers", "numpy", "--threads", "1", "--rounds", "1", "--small", "--json", str(position))
    assert "chain/map-n1e7-float64@1" in run("--workloads", "chain", "--cases", "map", *shared)
    run("--workloads", "xent", "--cases", "grad", "--dtypes", "f32", *shared)
    results = json.loads(position.read_text())["results"]
    assert set(results) == {"chain/map-n1e7-float64@1", "chain/map-n1e7-float32@1", "xent/grad-4096x1000-float32@1"}
    assert set(results["xent/grad-4096x1000-float32@1"]["seconds"]) == {"pullback", "numpy"}


def test_an_unknown_workload_is_refused() -> None:
    command = [sys.executable, "-m", "benchmarks", "--workloads", "chian"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "chian" in done.stderr


def row(label: str, ours: float, ad: float, hand: float, limit: float, target: Target | None) -> Row:
    return Row(label=label, threads=2, ours=ours, ad=("jax", ad), hand=("c", hand), numpy=None, limit=limit, target=target)


def test_rows_miss_by_what_they_aim_at_and_means_leave_out_what_has_no_limit() -> None:
    aimed = row("chain/x", 2.0, 4.0, 2.0, 1.0, Target(ad=0.5, hand=0.9))
    assert aimed.misses() == {"hand": 1.0}
    free = row("heat/x", 8.0, 1.0, 8.0, 1.0, None)
    assert free.misses() == {"ad": 8.0}
    assert means([aimed, free]) == pytest.approx({"ad": 2.0, "hand": 1.0, "limit": 2.0})


def test_the_block_of_a_page_is_written_anew_and_nothing_else() -> None:
    result = {"workload": "chain", "case": "grad-n1e7", "dtype": "float64", "threads": 2, "limit": {"bytes": 0.5}, "absent": {}}
    seconds = {"pullback": 1.0, "jax": 4.0, "c": 2.0}
    report = {"about": {"processor": "2 x X"}, "results": {"chain/grad-n1e7-float64@2": {**result, "seconds": seconds}}}
    page = with_short(f"before\n{MARKS[0]}\nstale text\n{MARKS[1]}\nafter\n", report, 2)
    assert page.startswith(f"before\n{MARKS[0]}\n2 threads of X")
    assert page.endswith(f"{MARKS[1]}\nafter\n")
    assert "| chain/grad-n1e7-float64 | 1 s | jax | 0.25 (≤ 0.5) | c | 0.50 (≤ 0.95) | **2.00** (≤ 1.5) |" in page
    assert "stale text" not in page
    assert with_short(page, report, 2) == page
