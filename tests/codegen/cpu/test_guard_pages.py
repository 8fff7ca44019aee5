"""Compiled code under an allocator that faults at the first byte past an array, and after it was freed (``guard.c``)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT, TESTS

CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the allocator is of Linux's C library"),
    pytest.mark.skipif(CC is None, reason="no C compiler is on this machine"),
]

WRONG = {
    "past the end": "view.value",
    "far past the end": "ctypes.c_double.from_address(place + 8 * 600).value",
    "a write past the end": "view.value = 1.0",
    "freed": "del x; ctypes.c_double.from_address(place).value",
}
USE = """
import ctypes, numpy as np
x = np.empty(500)
assert np.isnan(x).all()
place = x.ctypes.data
view = ctypes.c_double.from_address(place + 8 * 500)
print("there", flush=True)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    built = tmp_path_factory.mktemp("guard") / "guard.so"
    subprocess.run([str(CC), "-O2", "-shared", "-fPIC", "-o", str(built), str(TESTS / "support" / "guard.c"), "-ldl"], check=True)
    result = {**os.environ, "LD_PRELOAD": str(built), "PULLBACK_POOL_BYTES": "0"}
    if subprocess.run([sys.executable, "-c", USE], env=result, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let the allocator reserve its addresses")
    return result


@pytest.mark.parametrize("name", WRONG)
def test_the_allocator_faults(name: str, environment: dict[str, str]) -> None:
    """So that the next test can fail."""
    done = subprocess.run([sys.executable, "-c", f"{USE}\n{WRONG[name]}"], env=environment, capture_output=True, check=False)
    assert done.stdout == b"there\n" and done.returncode < 0


LONG = ["codegen/cpu/test_step_dependencies.py", "pullback/test_shared_memory.py"]


@pytest.mark.parametrize("file", ["pullback/test_out.py", *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_programs_stay_inside_their_memory(file: str, environment: dict[str, str]) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS / file)]
    command = [sys.executable, "-X", "faulthandler", "-m", "pytest", *options]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
