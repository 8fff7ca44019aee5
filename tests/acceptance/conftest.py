"""Programs with an oracle and a formula are checked as compiled for the CPU, and as CUDA C."""

from __future__ import annotations

from functools import partial
from typing import Any

import acceptance
import pytest
from cuda_program import on_machine
from cuda_targets import DEVICE, HOST


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a program in a dtype run on each machine."""
    if "dtype" in metafunc.fixturenames:
        metafunc.fixturenames.append("machine")
        metafunc.parametrize("machine", [pytest.param(None, id="cpu"), HOST, DEVICE], indirect=True)


@pytest.fixture
def machine(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled functions run as emitted CUDA C there, launch after launch."""
    if request.param is not None:
        monkeypatch.setattr(acceptance, "compiled", lambda call: partial(on_machine, request.param, call))
