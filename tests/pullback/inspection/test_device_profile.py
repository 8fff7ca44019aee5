"""``f.profile`` on a CUDA device, over the stand-in: the same report as on the CPU, by events around the steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.inspection import Profile, machine_limits
from pullback.runtime.cuda.program.profile import TimedProgram
from tests.support.cuda.driver_stand_in import device

__all__ = ["device"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small programs measure the stand-in, which nothing keeps busy."""
    machine_limits._measured.cache_clear()
    monkeypatch.setattr(TimedProgram, "busy_bytes", 0)
    monkeypatch.setitem(
        machine_limits.SIZES, "cuda", machine_limits.Sizes(footprints=(1 << 12, 1 << 14), product=16, functions=1 << 8)
    )
    yield
    machine_limits._measured.cache_clear()


def loss(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    z = z - np.max(z, axis=1, keepdims=True)
    return -np.mean(np.sum(y * (z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))), axis=1))


rng = np.random.default_rng(0)
ARGUMENTS = rng.normal(size=(30, 8)), rng.normal(size=(50, 30)), rng.normal(size=(50, 8))


def adds_up(result: Profile) -> None:
    total = sum(s.seconds for s in result.steps) + result.control_seconds + result.outside_seconds
    assert total == pytest.approx(result.seconds) and all(s.seconds > 0 for s in result.steps)
    assert result.ordinary_seconds is None or result.ordinary_seconds > 0


@pytest.mark.parametrize("kept", [True, False], ids=["there", "NumPy's"])
def test_a_gradient(kept: bool, tmp_path: Path) -> None:
    f = pb.jit(pb.value_and_grad(loss), device="cuda")
    arguments = pb.device_put(ARGUMENTS) if kept else ARGUMENTS
    result, cost = f.profile(*arguments), f.cost(*arguments)
    adds_up(result)
    assert [s.name for s in result.steps] == [k.kernel for k in cost.kernels]
    assert [s.cost and s.cost.bytes for s in result.steps] == [k.bytes for k in cost.kernels]
    assert all(s.bytes_per_second > 0 and s.share > 0 for s in result.steps)
    assert {s.part for s in result.steps} == {"forward", "backward", "both"}
    starts = [s.start for s in result.steps]
    assert None not in starts and starts == sorted(starts, key=float)
    text = str(result)
    assert "cuda:0, stand-in 0 on the host" in text and "with its end waited for" in text and "test_device_profile.py" in text
    result.chrome_trace(tmp_path / "trace.json")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) >= len(result.steps)


def test_a_loop() -> None:
    f = pb.jit(lambda x: pb.fori_loop(0, 5, lambda k, y: np.cumsum(y) * 0.1, x))
    result = f.profile(pb.device_put(np.ones(200)))
    adds_up(result)
    (step,) = result.steps
    assert step.runs == 5 and step.start is None and step.cost is not None and step.cost.launches == 5
    assert result.control_seconds >= 0 and "loops and branches" in str(result)


def test_a_while_loop_counts_its_turns() -> None:
    f = pb.jit(lambda x: pb.while_loop(lambda y: np.sum(y) < 100, lambda y: y * 2, x))
    result = f.profile(pb.device_put(np.ones(10)))
    assert sorted(s.runs for s in result.steps) == [4, 5]


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
def test_what_the_cpu_does_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    there = pb.ShapeDtypeStruct((3,), float)
    result = pb.jit(lambda x: pb.callback(lambda y: seen.append(1) or y * 2, there, x) + 1, device="cuda").profile(np.ones(3))
    adds_up(result)
    assert result.ordinary_seconds is None and seen and any(s.cost is None for s in result.steps)
    result = pb.jit(np.linalg.eigvals).profile(pb.device_put(np.eye(5)))
    assert any(s.name.endswith(" on the CPU") for s in result.steps)


def test_errors_and_empty_calls() -> None:
    with pytest.raises(IndexError, match="index 9"):
        pb.jit(lambda x, k: x[k]).profile(pb.device_put(np.ones(3)), 9)
    assert pb.jit(lambda x: x).profile(pb.device_put(np.ones(3))).steps == ()


def test_the_device_is_kept_busy_first(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that steps follow each other without waiting for the host."""
    sizes: list[int] = []
    monkeypatch.setattr(TimedProgram, "busy_bytes", 4e12)
    take = device.pool.take
    monkeypatch.setattr(device.pool, "take", lambda size, what: sizes.append(size) or take(min(size, 1 << 12), what))
    monkeypatch.setattr("pullback.runtime.cuda.program.profile.FILLED", 1 << 20)
    counted: list[Any] = []
    monkeypatch.setattr("pycuda.driver.memset_d32_async", lambda *args: counted.append(args))
    program = machine_limits._program("doubled", "f64[n]", "add %x, %x", "cuda:0")
    assert isinstance(program, TimedProgram)
    with device:
        program.keep_busy(3)
    assert sizes == [1 << 20] and len(counted) == round(3 * 2e-5 * 4e12 / (1 << 20) + 0.5)


def test_limits(device: Any) -> None:
    result = machine_limits.limits("cuda:0")
    assert result.where == f"cuda:0, {device.title}" and result.source == "measured in this process"
    assert result is machine_limits.limits("cuda:0") and result.flops["f32"] > 0 and result.functions > 0
    assert [size for size, _ in result.traffic] == [1 << 12, 1 << 14]
