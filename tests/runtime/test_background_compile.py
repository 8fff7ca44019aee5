"""Texts compiled by threads while the caller writes more of them."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.compile.background import SWITCH_INTERVAL, BackgroundTask, BackgroundWorkers
from pullback.runtime.compile.engine import Engine
from pullback.runtime.compile.validation import CompileError
from pullback.runtime.process import counters
from tests.runtime.test_engine import axpy, run_axpy

HELPERS = (0, 1, 3)


def shout(text: str) -> bytes:
    if text == "bad":
        raise ValueError(text)
    return text.upper().encode()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(KernelCache(tmp_path))


@pytest.mark.parametrize("helpers", HELPERS)
def test_everything_is_done_but_what_fails(helpers: int) -> None:
    ahead = BackgroundWorkers(shout, helpers, ValueError)
    for text in ("a", "bad", "b", "c"):
        ahead.add(text)
    ahead.finish()
    assert ahead.done == {"a": b"A", "b": b"B", "c": b"C"}


@pytest.mark.parametrize("helpers", HELPERS)
def test_what_nobody_has_begun_is_dropped(helpers: int) -> None:
    going, dropped = threading.Event(), threading.Event()

    def slow(text: str) -> bytes:
        going.set()
        assert dropped.wait(60)
        return text.encode()

    ahead = BackgroundWorkers(slow, helpers, ValueError)
    for k in range(20):
        ahead.add(str(k))
    assert not helpers or going.wait(60)
    threading.Timer(0.05, dropped.set).start()
    ahead.drop()
    assert len(ahead.done) <= helpers


def test_threads_end() -> None:
    before = threading.active_count()
    ahead = BackgroundWorkers(shout, 3, ValueError)
    for k in range(9):
        ahead.add(str(k))
    ahead.finish()
    assert threading.active_count() == before


@pytest.mark.parametrize("helpers", HELPERS)
def test_kernels_are_compiled_once(engine: Engine, helpers: int) -> None:
    texts = {f"ahead{k}": axpy(f"ahead{k}", k + 0.5) for k in range(6)}
    before = counters.snapshot()
    with engine.precompile(helpers) as compile_ahead:
        for text in texts.values():
            compile_ahead(text)
    assert counters.snapshot().seconds["emit object"] > before.seconds.get("emit object", 0.0)
    emitted = counters.snapshot().runs["emit object"]
    for k, (name, text) in enumerate(texts.items()):
        result = engine.kernel(text, symbols=[name])
        assert run_axpy(result.addresses[name])[1] == k + 0.5 + 1.5
    after = counters.snapshot()
    assert after.runs["emit object"] == emitted
    assert (after - before).compiles == len(texts)


def test_objects_are_those_of_one_thread(engine: Engine) -> None:
    texts = [axpy(f"same{k}", k + 0.5) for k in range(8)]
    alone = [engine.compile(text) for text in texts]
    ahead = BackgroundWorkers(engine.compile, 3, ValueError)
    for text in texts:
        ahead.add(text)
    ahead.finish()
    assert [ahead.done[text] for text in texts] == alone


def test_what_is_known_is_not_compiled(engine: Engine) -> None:
    text = axpy("known")
    engine.kernel(text, symbols=["known"])
    runs = counters.snapshot().runs["emit object"]
    with engine.precompile(2) as compile_ahead:
        compile_ahead(text)
    assert counters.snapshot().runs["emit object"] == runs


def test_a_bad_text_is_an_error_where_it_is_asked_for(engine: Engine) -> None:
    with engine.precompile(2) as compile_ahead:
        for text in ("define nonsense", axpy("good")):
            compile_ahead(text)
    assert run_axpy(engine.kernel(axpy("good"), symbols=["good"]).addresses["good"])[0] == 1.5
    with pytest.raises(CompileError):
        engine.kernel("define nonsense", symbols=["f"])


def test_an_error_of_the_writer_passes(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), engine.precompile(2) as compile_ahead:
        compile_ahead(axpy("left"))
        raise ZeroDivisionError
    assert run_axpy(engine.kernel(axpy("left"), symbols=["left"]).addresses["left"])[0] == 1.5


@pytest.mark.parametrize("helpers", HELPERS)
def test_an_interrupt_amid_the_callers_part_ends_the_threads(helpers: int) -> None:
    main, before = threading.current_thread(), threading.active_count()
    others = threading.Event()

    def interrupted(text: str) -> bytes:
        if threading.current_thread() is main:
            others.set()
            raise KeyboardInterrupt
        assert others.wait(60)
        return b""

    ahead = BackgroundWorkers(interrupted, helpers, ValueError)
    for k in range(20):
        ahead.add(str(k))
    with pytest.raises(KeyboardInterrupt):
        ahead.finish()
    ahead.drop()
    assert threading.active_count() == before


@pytest.mark.parametrize("when", ["before it runs", "while it begins", "when it runs"])
def test_an_interrupt_amid_the_start_of_a_thread_passes(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    late, ended = threading.Event(), threading.Event()

    class Interrupted(threading.Thread):
        def start(self) -> None:
            if when != "before it runs":
                super().start()
            raise KeyboardInterrupt

        def _bootstrap_inner(self) -> None:
            assert when != "while it begins" or late.wait(60)
            super()._bootstrap_inner()  # type: ignore[misc]
            ended.set()

    class Unstarted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return True

    ahead = BackgroundWorkers(shout, 1, ValueError)
    monkeypatch.setattr(threading, "Thread", Interrupted)
    if when == "while it begins":
        monkeypatch.setattr(threading, "Event", Unstarted)
    with pytest.raises(KeyboardInterrupt):
        ahead.add("a")
    monkeypatch.undo()
    ahead.drop()
    late.set()
    assert when == "before it runs" or ended.wait(60)
    assert not ahead.done or when == "when it runs"


@pytest.mark.parametrize("is_passed_over", [False, True])
def test_a_signal_amid_a_call_of_llvmlite_keeps_no_thread_from_it(engine: Engine, is_passed_over: bool) -> None:
    from llvmlite.binding import ffi

    text = axpy("beside")
    with nullcontext() if is_passed_over else pytest.raises(KeyboardInterrupt), engine.precompile(1) as compile_ahead:
        compile_ahead(text)
        ffi.lib._lock.__enter__()
        if not is_passed_over:
            raise KeyboardInterrupt
        compile_ahead(axpy("other"))
    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(engine.load(text, symbols=["beside"])["beside"]), daemon=True)
    thread.start()
    thread.join(60)
    assert run_axpy(result[0])[0] == 1.5


def test_a_failure_of_the_callers_part_that_is_no_failure_of_a_text_passes() -> None:
    def late(text: str) -> bytes:
        raise TimeoutError

    ahead = BackgroundWorkers(late, 0, ValueError)
    ahead.add("a")
    with pytest.raises(TimeoutError):
        ahead.finish()


def test_work_begun_is_done_meanwhile() -> None:
    before = threading.active_count()
    assert BackgroundTask(shout, "a").result() == b"A"
    assert BackgroundTask(shout, "bad").result() is None
    assert threading.active_count() == before


def test_a_text_begun_is_compiled_once(engine: Engine) -> None:
    text = axpy("begun")
    runs = counters.snapshot().runs.get("emit object", 0)
    engine.compile_in_background(text)
    engine.compile_in_background(text)
    assert run_axpy(engine.kernel(text, symbols=["begun"]).addresses["begun"])[0] == 1.5
    engine.compile_in_background(text)
    assert counters.snapshot().runs["emit object"] == runs + 1
    engine.compile_in_background("define nonsense")
    with pytest.raises(CompileError):
        engine.kernel("define nonsense", symbols=["f"])


def test_threads_switch_often_only_meanwhile() -> None:
    before, seen = sys.getswitchinterval(), []

    def look(text: str) -> bytes:
        seen.append(sys.getswitchinterval())
        return b""

    assert BackgroundTask(look, "").result() == b""
    assert seen == [pytest.approx(min(before, SWITCH_INTERVAL))]
    assert sys.getswitchinterval() == before

    def change(text: str) -> bytes:
        sys.setswitchinterval(0.003)
        return b""

    try:
        BackgroundTask(change, "").result()
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


def test_a_text_added_twice_is_compiled_once(engine: Engine) -> None:
    runs = counters.snapshot().runs.get("emit object", 0)
    with engine.precompile(1) as compile_ahead:
        for _ in range(3):
            compile_ahead(axpy("again"))
    assert counters.snapshot().runs["emit object"] == runs + 1
