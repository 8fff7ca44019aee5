"""A process with all its file descriptors in use: a first call says so, later calls need none, and what is freed is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, resource, sys
import numpy as np, pullback as pb

f, g = pb.jit(lambda x: np.sin(x) + 1.0), pb.grad(lambda x: np.sum(np.cos(x)))
if sys.argv[1] == "warm":
    f(np.ones(2))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass

def attempt(function):
    try:
        return function(np.zeros(2)).tolist()
    except OSError as error:
        return error.errno, error.strerror[:41]

for _ in range(3):
    print(attempt(f))
print(attempt(g))
for each in held:
    os.close(each)
print(attempt(f), attempt(g))
pb.jit(lambda x: x * 3.0)(np.ones(2))
"""
NONE_LEFT = "(24, 'the process has no file descriptors left,')"


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is POSIX's")
@pytest.mark.parametrize("folder", ["off", "cache"])
@pytest.mark.parametrize("state", ["cold", "warm"])
def test_without_file_descriptors(state: str, folder: str, tmp_path: Path) -> None:
    cache = folder if folder == "off" else str(tmp_path / folder)
    environment = {**os.environ, "PULLBACK_CACHE_DIR": cache, "PULLBACK_VERIFY": "0"}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, state]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    of_f = NONE_LEFT if state == "cold" else "[1.0, 1.0]"
    *before, last = done.stdout.splitlines()
    assert before[:3] == [of_f] * 3
    assert before[3] == NONE_LEFT or (state == "warm" and before[3] == "[-0.0, -0.0]")
    assert last == "[1.0, 1.0] [-0.0, -0.0]"
    assert folder == "off" or list(Path(cache).rglob("*.kernel")), "the folder is written again"
