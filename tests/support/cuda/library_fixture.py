"""The fixture that has programs on the stand-in device use the stand-ins of cuBLAS and cuSOLVER, or neither."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pullback.programs.pipeline import templates
from pullback.runtime.choices import choices
from pullback.runtime.cuda.device.device import Device
from pullback.runtime.cuda.libraries import libraries as cuda_libraries
from tests.support.cuda.library_stand_ins import Library


def forget(device: Device) -> None:
    """Programs, choices and handles are made anew."""
    cuda_libraries.libraries_of(device).forget()
    choices.choices.forget()
    templates.forget()
    gc.collect()


@pytest.fixture
def library(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Both libraries, which are taken wherever they can be."""
    built = Library()
    result = cuda_libraries.LoadedLibrary(path="stand-in", version="12.0.0", library=built)
    monkeypatch.setattr(cuda_libraries, "finders", [lambda name: result])
    monkeypatch.setenv(choices.VARIABLE, "library")
    forget(device)
    yield built
    device.synchronize()
    forget(device)


@pytest.fixture
def alone(device: Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither library."""
    monkeypatch.setattr(cuda_libraries, "finders", [lambda name: "none"])
    forget(device)
    yield
    forget(device)
