"""The examples of the reference that need a device run over the stand-in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from pullback.runtime.cuda.compile import compile as cuda_compile
from tests import cuda_host
from tests.repository.test_reference import DEVICE, NAMES, run_examples
from tests.support.cuda.targets import needs_host

WITH_DEVICE = [name for name, value in NAMES.items() if DEVICE in (inspect.getdoc(value) or "")]


@pytest.fixture
def compiler() -> Iterator[None]:
    """The compiler of the stand-in."""
    cuda_host.activate()
    before = cuda_compile.use(cuda_host.Compiler())
    try:
        yield
    finally:
        cuda_compile.use(before)


@needs_host
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", WITH_DEVICE)
def test_examples_run_on_a_device(name: str) -> None:
    assert run_examples(name, f"{inspect.getdoc(NAMES[name])}\n") == ""


def test_some_examples_need_a_device() -> None:
    assert {"pullback.DeviceArray", "pullback.device_put", "pullback.DeviceExport"} <= set(WITH_DEVICE)
