"""Programs on a CUDA device, run by the real PyCUDA over the stand-in driver: results as on the CPU, memory, threads, faults."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cuda_host
import numpy as np
import pytest
from control_programs import PROGRAMS
from test_benchmarks import PAIRS
from test_cuda_programs import close, compiled
from test_random import OF_SHAPE

import pullback as pb
from benchmarks.case import Case
from pullback.runtime import cuda_compiler, cuda_device, cuda_dlpack
from pullback.tracer import flatten, unflatten

ROOT = Path(__file__).parent.parent
SMALL = [pair for pair in PAIRS if "sort" not in str(pair.id)]


class Compiler:
    """g++ in place of NVRTC."""

    def cubin(self, text: str, arch: str, kernels: Sequence[str]) -> bytes:
        return cuda_host.image(text, int(arch.removeprefix("sm_")))


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[cuda_device.Device]:
    """The first device, whose buffers end where their last element ends."""
    cuda_host.activate()
    cuda_compiler.use(Compiler())
    found = cuda_device.device("cuda:0")
    for each in (found, cuda_device.device("cuda:1")):
        each.pool.grain = 16
    yield found
    found.synchronize()
    cuda_compiler.use(None)


@pytest.fixture(params=[0, 1, 5], ids=["as they come", "reversed", "random"])
def order(request: pytest.FixtureRequest) -> Iterator[None]:
    """The order in which threads, blocks and streams run."""
    cuda_host.order(request.param)
    yield
    cuda_host.order(0)


def both(call: Callable[..., Any], *args: Any) -> None:
    """A call gives on the device what it does on the CPU: with NumPy's arrays NumPy's, with arrays there such arrays."""
    wanted = [np.asarray(leaf) for leaf in flatten(pb.jit(call)(*args))[0]]
    leaves = flatten(pb.jit(call, device="cuda")(*args))[0]
    assert not any(isinstance(leaf, pb.DeviceArray) for leaf in leaves)
    close([np.asarray(leaf) for leaf in leaves], wanted)
    found, tree = flatten(args)
    given = unflatten(tree, [pb.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in found])
    leaves = flatten(pb.jit(call)(*given))[0]
    if any(isinstance(leaf, pb.DeviceArray) for leaf in flatten(given)[0]):
        assert all(isinstance(leaf, pb.DeviceArray) for leaf in leaves)
    close([np.asarray(leaf) for leaf in leaves], wanted)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_control_flow(name: str) -> None:
    call, args = PROGRAMS[name]
    both(call, *args)


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize(("case", "dtype"), SMALL)
def test_workloads_of_the_benchmarks(case: Case, dtype: str) -> None:
    both(compiled(case), *case.make(np.dtype(dtype).type, **case.small))
