"""What a user does with a device, in short: on a GPU, and over the stand-in for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.inspection import machine_limits
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.program.profile import TimedProgram
from tests import cuda_host
from tests.support.cuda.host_kernels import Host
from tests.support.cuda.targets import DEVICE, HOST


@pytest.fixture(params=[HOST, DEVICE])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether it is a GPU."""
    is_host = request.param is Host
    if is_host:
        cuda_host.activate()
        monkeypatch.setattr(TimedProgram, "busy_bytes", 0)
        monkeypatch.setitem(
            machine_limits.SIZES, "cuda", machine_limits.Sizes(footprints=(1 << 12, 1 << 14), product=16, functions=1 << 8)
        )
    before = cuda_compile.use(cuda_host.Compiler() if is_host else None)
    machine_limits._measured.cache_clear()
    try:
        yield not is_host
    finally:
        machine_limits._measured.cache_clear()
        cuda_compile.use(before)


def loss(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z)


rng = np.random.default_rng(0)
W, X, Y = np.zeros(3), rng.normal(size=(200, 3)), rng.integers(0, 2, 200).astype(float)
step = pb.value_and_grad(loss)


def test_training(machine: bool) -> None:
    w, x, y = pb.device_put((W, X, Y))
    host = W
    for _ in range(20):
        value, gradient = step(w, x, y)
        w -= 0.5 * gradient
        expected, slope = step(host, X, Y)
        host = host - 0.5 * slope
    assert float(value) == pytest.approx(float(expected)) and isinstance(w, pb.DeviceArray)
    np.testing.assert_allclose(np.asarray(w), host, rtol=1e-10)


def test_results_in_memory_that_is_given_up(machine: bool) -> None:
    f = pb.jit(lambda x: np.cumsum(np.sin(x)))
    x, host = pb.device_put(X[:, 0]), X[:, 0]
    address = x.address
    for _ in range(5):
        x, host = f.into(x, x), f(host)
        assert x.address == address
    np.testing.assert_allclose(np.asarray(x), host, rtol=1e-10)


def test_a_profile(machine: bool) -> None:
    result = step.profile(*pb.device_put((W, X, Y)))
    assert result.steps and all(s.seconds > 0 and s.bytes_per_second > 0 for s in result.steps)
    assert "cuda:0" in str(result)


def test_an_export(machine: bool, tmp_path: Path) -> None:
    built = pb.export(step, "f64[3]", "f64[n,3]", "f64[n]", path=tmp_path / "model", device="cuda")
    value, gradient = pb.load(built.file, trust=True)(W, X, Y)
    np.testing.assert_allclose(value, step(W, X, Y)[0], rtol=1e-12)
    np.testing.assert_allclose(gradient, step(W, X, Y)[1], rtol=1e-10)


def test_checks_and_masks(machine: bool) -> None:
    x = pb.device_put(X)
    np.testing.assert_array_equal(np.asarray(x[x > 0]), X[X > 0])
    with pytest.raises(IndexError):
        pb.jit(lambda x, k: x[k])(x, 777)
    assert float(x.sum()) == pytest.approx(X.sum())


def test_memory_of_pycuda(machine: bool) -> None:
    import pycuda.driver as cuda

    x = pb.device_put(X)
    with x.gpu:
        memory = cuda.to_device(X)

        class Foreign:
            @property
            def __cuda_array_interface__(self) -> dict[str, Any]:
                data = (int(memory), False)
                return {"shape": X.shape, "typestr": "<f8", "data": data, "strides": None, "stream": None, "version": 3}

        Foreign.__module__ = "library"
        np.testing.assert_allclose(np.asarray(pb.jit(np.sin)(Foreign())), np.sin(X), rtol=1e-12)
        memory.free()
