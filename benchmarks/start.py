"""What is paid before the first result: import time, and the demo's first step, from nothing and from disk.

Each number is the median over fresh processes: `python -m benchmarks.start`.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent

IMPORT = """
import time, numpy
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

NUMERICS = """
import time
start = time.perf_counter()
import numpy, scipy.linalg
print(time.perf_counter() - start)
"""

WARM_START = """
import sys, time
sys.path.insert(0, "examples")
start = time.perf_counter()
import pullback, digits
imported = time.perf_counter() - start
import numpy as np
network = digits.Network(np.ones((64, 32)) / 64, np.zeros(32), np.ones((32, 10)) / 32, np.zeros(10))
velocity = digits.Network(*map(np.zeros_like, network))
x, y = np.ones((64, 64)), np.eye(10)[np.arange(64) % 10]
start = time.perf_counter()
digits.step(network, velocity, x, y, 0.1)
taken = time.perf_counter() - start
assert {may_compile} or not {{"compile", "optimise"}} & set(pullback.runtime.process.counters.snapshot().runs)
print(imported + taken)
"""

FIRST_STEP = """
import time
from benchmarks.cases.regression import CASES
from benchmarks.peers import PEERS
case = next(case for case in CASES if case.workload == "demo")
call = PEERS["{system}"](case, case.make("float64"))
start = time.perf_counter()
call()
print(time.perf_counter() - start)
"""


def fresh(code: str, cache: str = "off") -> float:
    """Runs code in a new process with the kernel cache there; returns the number that it prints last."""
    environment = {**os.environ, "PULLBACK_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return float(done.stdout.split()[-1])


def imports(module: str, runs: int = 7) -> float:
    """Seconds of `import module` after `import numpy`."""
    return statistics.median(fresh(IMPORT.format(module=module)) for _ in range(runs))


def first_step(system: str, runs: int = 3) -> float:
    """Seconds of the first call of the demo's step, nothing cached."""
    return statistics.median(fresh(FIRST_STEP.format(system=system)) for _ in range(runs))


def first_step_from_disk(runs: int = 3) -> float:
    """Seconds of the same in a new process that finds every kernel on disk."""
    with tempfile.TemporaryDirectory() as cache:
        code = FIRST_STEP.format(system="pullback")
        fresh(code, cache)
        return statistics.median(fresh(code, cache) for _ in range(runs))


def warm_start(runs: int = 9) -> dict[str, float]:
    """Seconds of importing NumPy and scipy.linalg, and from `import pullback` to the first result of a step that is on disk, in
    turn."""
    with tempfile.TemporaryDirectory() as cache:
        fresh(WARM_START.format(may_compile=True), cache)
        pairs = [(fresh(NUMERICS), fresh(WARM_START.format(may_compile=False), cache)) for _ in range(runs)]
    numerics, starts = map(statistics.median, zip(*pairs))
    return {"import numpy, scipy.linalg": numerics, "to first result, on disk": starts}


def measure(systems: list[str]) -> dict[str, float]:
    """Every number that can be had, in seconds; a failure is printed and left out."""
    wanted = {"import pullback": lambda: imports("pullback")}
    if "jax" in systems:
        wanted["import jax"] = lambda: imports("jax")
        wanted["first step, jax"] = lambda: first_step("jax")
    if "pullback" in systems:
        wanted["first step, nothing cached"] = lambda: first_step("pullback")
        wanted["first step, from disk"] = first_step_from_disk
    result: dict[str, float] = {}
    for name, function in wanted.items():
        try:
            result[name] = function()
        except RuntimeError as error:
            print(f"  {name}: {error}")
    if "pullback" in systems:
        result |= warm_start()
    return result


if __name__ == "__main__":
    for name, seconds in measure(["pullback", "jax"]).items():
        print(f"{name:<28}{seconds:8.3f}")
