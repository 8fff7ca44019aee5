"""The stand-in driver as the device of compiled functions, for tests of programs and arrays on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pullback.runtime.choices import choices
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device import device as cuda_device
from tests import cuda_host
from tests.support.cuda.targets import UNAVAILABLE

__all__ = ["device", "order"]


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[cuda_device.Device]:
    """The first device, whose buffers end where their last element ends."""
    if UNAVAILABLE is not None:
        pytest.skip(UNAVAILABLE)
    cuda_host.activate()
    os.environ.setdefault(choices.VARIABLE, choices.STATIC)
    cuda_compile.use(cuda_host.Compiler())
    try:
        result = cuda_device.device("cuda:0")
        for each in (result, cuda_device.device("cuda:1")):
            each.pool.grain = 16
        yield result
        result.synchronize()
    finally:
        cuda_compile.use(None)


@pytest.fixture(params=[0, 1, 5], ids=["as they come", "reversed", "random"])
def order(request: pytest.FixtureRequest) -> Iterator[None]:
    """The order in which threads, blocks and streams run."""
    cuda_host.order(request.param)
    yield
    cuda_host.order(0)
