"""Programs with an oracle and a formula are checked as compiled for the CPU, and on a CUDA device, a GPU or the stand-in for one,
through ``pb.jit(..., device="cuda")`` with NumPy's arrays, or with arrays that are there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import acceptance
import cuda_host
import numpy as np
import pytest
from cuda_library import Host
from cuda_targets import DEVICE, HOST

import pullback as pb
from pullback.runtime import cuda_compile, cuda_device
from pullback.runtime.cuda_program import CudaExecutable


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a program in a dtype run on each machine."""
    if "dtype" in metafunc.fixturenames:
        metafunc.fixturenames.append("machine")
        metafunc.parametrize("machine", [pytest.param(None, id="cpu"), HOST, DEVICE], indirect=True)


@pytest.fixture
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiled functions run there; every other test's with arrays that are there, the others' with each buffer in memory of its
    own."""
    if request.param is None:
        yield
        return
    is_there = bool(zlib.crc32(request.node.name.encode()) % 2)
    if not is_there:
        monkeypatch.setattr(CudaExecutable, "uses_tapes", False)
    monkeypatch.setattr(acceptance, "compiled", lambda call: on_device(call, is_there))
    is_host = request.param is Host
    if is_host:
        cuda_host.activate()
        monkeypatch.setattr(cuda_device.device("cuda:0").pool, "grain", 16)
    before = cuda_compile.use(cuda_host.Compiler() if is_host else None)
    try:
        yield
        cuda_device.device("cuda:0").synchronize()
    finally:
        cuda_compile.use(before)


def on_device(call: Callable[..., Any], is_there: bool) -> Callable[..., Any]:
    """A function as a user has it run on a device: with arrays that are there, it says nothing of the device."""
    if not is_there:
        return pb.jit(call, device="cuda")

    def run(*args: Any) -> Any:
        found = pb.jit(call)(*pb.tree.map(lambda x: pb.device_put(x) if isinstance(x, np.ndarray) else x, args))
        leaves = pb.tree.leaves(found)
        has_arrays = any(isinstance(x, np.ndarray) for x in pb.tree.leaves(args))
        assert not has_arrays or all(isinstance(x, pb.DeviceArray) or not np.ndim(x) for x in leaves)
        return pb.tree.map(lambda x: np.asarray(x)[()] if isinstance(x, pb.DeviceArray) else x, found)

    return run
