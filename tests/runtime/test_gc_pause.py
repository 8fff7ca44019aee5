"""The garbage collector stands still while a program is built, and runs afterwards as before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs import pipeline
from pullback.runtime.process.gc_pause import paused


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_it_runs_again_after_the_last() -> None:
    with paused():
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_runs_again_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), paused():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_one_that_was_off_stays_off() -> None:
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


def test_it_stands_still_while_passes_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, lowered = [], pipeline.lowered

    def watched(*arguments: Any) -> Any:
        seen.append(gc.isenabled())
        return lowered(*arguments)

    monkeypatch.setattr(pipeline, "lowered", watched)
    assert pb.jit(lambda x: np.sum(x * 3.0 + x))(np.ones(3)) == 12.0
    assert seen == [False]
    assert gc.isenabled()


def test_what_was_made_is_collected_at_the_end() -> None:
    with paused():
        marks = [weakref.ref(type("Made", (), {}))]
    result: list[int] = []
    gc.callbacks.append(seen := lambda phase, about: result.append(about["generation"]) if phase == "stop" else None)
    try:
        with paused():
            marks += [weakref.ref(type("Made", (), {}))]
    finally:
        gc.callbacks.remove(seen)
    assert result == [0]
    assert [mark() for mark in marks] == [None, None]
