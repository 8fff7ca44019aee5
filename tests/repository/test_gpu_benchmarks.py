"""The benchmarks of the GPU, over the stand-in driver: pullback's results are right, and answers become rows of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import products
from benchmarks.gpu.__main__ import HEAD, limit, lines_of, row
from benchmarks.gpu.cases import CASES, GpuCase
from benchmarks.gpu.worker import Worker
from pullback.runtime.cuda.device.device import Device
from tests.support.cuda.driver_stand_in import device

__all__ = ["device"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_agrees_with_the_cpu(case: GpuCase) -> None:
    worker, about = Worker("pullback", small=True), {"case": case.name, "dtype": "float32"}
    result = worker.answer({"do": "check", **about})
    assert "difference" in result, result


def test_a_case_is_timed() -> None:
    worker = Worker("pullback", small=True)
    assert set(worker.answer({"do": "prepare", "case": "small_grad", "dtype": "float32"})) == {"first"}
    assert set(worker.answer({"do": "time"})) == {"seconds", "returns"}
    assert worker.answer({"do": "drop"}) == {}
    assert "error" in worker.answer({"do": "time"})


class Local(Worker):
    """A worker in this process, with the interface of a worker process."""

    def ask(self, **request: Any) -> dict[str, Any]:
        return self.answer(request)

    def end(self) -> None:
        self.prepared = None


def test_the_program_writes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "Process", Local)
    table, results = tmp_path / "table.md", tmp_path / "results.json"
    program.main([
        "--small", "--systems", "pullback", "--cases", "row_sums,small_grad", "--markdown", str(table), "--json", str(results),
    ])  # fmt: skip
    assert [line.split(" | ")[0] for line in table.read_text().splitlines()[4:]] == ["| row_sums", "| small_grad"]
    times = json.loads(results.read_text())["times"]
    assert set(times["row_sums-float32"]["pullback"]) == {"difference", "first", "seconds", "returns"}


def test_products_are_timed_and_compared(
    device: Device, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "SHAPES", ((5, 3, 7), (1, 90, 9), (90, 90, 9)))
    monkeypatch.setattr(products, "MOST_CALLS", 2)
    products.main(["float32", "float16", "--way", "measured", "--systems", "", "--most", "64"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    shapes = ["5 x 3 x 7", "1 x 90 x 9"]
    assert [cells[:3] for cells in rows] == [["measured", dtype, text] for dtype in ("float32", "float16") for text in shapes]
    assert all(float(cells[4]) < (1e-6 if cells[1] == "float32" else 1e-3) for cells in rows)


def test_a_row_says_what_missed_its_aim() -> None:
    (case,) = (c for c in CASES if c.name == "sum")
    ceilings = {"copy": 4e12}
    least = limit(case, "float32", ceilings)
    assert least == pytest.approx((1 << 28) * 4 / 4e12)
    ours = {"seconds": 2 * least, "returns": 5e-6, "first": 0.25}
    times = {"pullback": ours, "jax": {"seconds": 4 * least}, "torch": {"error": "x"}}
    cells = dict(zip(HEAD, row(case, "float32", times, ceilings), strict=True))
    assert (cells["best other"], cells["ours / it"], cells["ours / limit"]) == ("jax", "0.50 (≤ 1.00)", "**2.00** (≤ 1.11)")
    missing = row(case, "float32", {"pullback": {"error": "a | b"}}, {})
    assert (len(missing), missing[2]) == (len(HEAD), "a / b")
    assert len(lines_of([missing])) == 3
