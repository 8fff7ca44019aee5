"""One build at a time among processes that share a cache folder: locks of files, and the compiles of a cold start counted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pullback.runtime.cache import build_lock
from pullback.runtime.cache.build_lock import locked

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files are not locked there")

PROGRAM = """
import numpy as np, pullback as pb

def f(w, x):
    return np.sum(np.tanh(w * x) + np.exp(-w))

pb.value_and_grad(f)(np.ones(5000), np.ones(5000))
info = pb.cache_info()
print(info.compiles, info.templates_built)
"""


def counts(folder: Path, processes: int) -> list[tuple[int, int]]:
    """The kernels and templates that each of some processes builds that start at the same time."""
    environment = {**os.environ, "PULLBACK_CACHE_DIR": str(folder), "PULLBACK_VERIFY": ""}  # verified programs are built anew
    command = [sys.executable, "-c", PROGRAM]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    return [tuple(map(int, output.split())) for output in outputs]  # type: ignore[misc]


def test_processes_that_start_together_build_once(tmp_path: Path) -> None:
    alone = counts(tmp_path / "one", 1)[0]
    together = counts(tmp_path / "many", 3)
    assert sum(built for _, built in together) == alone[1] == 1
    assert sum(compiles for compiles, _ in together) == alone[0]
    assert not list((tmp_path / "many").rglob(".*lock*"))


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    path = tmp_path / "aa" / "lock"
    order: list[str] = []

    def second() -> None:
        with locked(path) as is_held:
            order.append(f"second {is_held}")

    with locked(path) as is_held:
        assert is_held and path.exists()
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(5 * build_lock.INTERVAL)
        order.append("first")
    thread.join()
    assert order == ["first", "second True"]
    assert not path.exists()


def test_without_a_lock_nothing_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that cannot be written, and beyond the longest wait."""
    file = tmp_path / "file"
    file.touch()
    with locked(file / "lock") as is_held:
        assert not is_held
    monkeypatch.setattr(build_lock, "LONGEST_WAIT", 0.05)
    with locked(tmp_path / "lock"), locked(tmp_path / "lock") as is_held:
        assert not is_held
