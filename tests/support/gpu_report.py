"""``python -m tests.support.gpu_report``: checks of a machine with a GPU, in ten minutes, the most important first.

Each step has a limit of its own and writes to a file of its own while it runs, so that what was found stays if time runs out:

    what is here    the doctor's report, and the packages that tests need
    first kernels   the golden texts and the promised semantics, launch by launch
    tests           ``pytest -m "gpu and not long"``: kernels, programs, ops, acceptance, the fuzzers' first seeds
    sanitizer       a sample of them under compute-sanitizer, where that is
    benchmarks      ``python -m benchmarks.gpu``
    more            the long cases, as far as time goes

``--rehearse`` runs them all over the stand-in for a GPU, with small sizes and pullback alone, to try this program.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import ROOT

NEEDED = ("numpy", "scipy", "llvmlite", "pycuda", "pytest", "hypothesis", "ml_dtypes", "mpmath", "xdist", "torch", "jax", "cupy")
STAND_IN = """\
import sys
sys.path.insert(0, {root!r})
if "pip" not in sys.argv[0]:
    from tests import cuda_host
    from pullback.runtime.cuda.compile import compile as cuda_compile

    cuda_host.activate()
    cuda_compile.use(cuda_host.Compiler())
"""
SAMPLE = "golden or promised or scans_of_whole or test_sorts or test_transposes or test_dense or test_recurrent or seed0"
ENDS = 15
"""Seconds that the benchmarks get to come to an end."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A command, its time limit in seconds, and the file for its output."""

    name: str
    command: Sequence[str]
    seconds: float
    file: str


def pytest(*arguments: str, workers: int = 0) -> list[str]:
    shared = ["-n", str(workers)] if workers > 1 and importlib.util.find_spec("xdist") else []
    always = ["-v", "-p", "no:cacheprovider", "--continue-on-collection-errors", "--tb=short"]
    return [sys.executable, "-m", "pytest", *always, *shared, *arguments]


def steps(out: Path, workers: int, rehearse: bool) -> list[Step]:
    here = "import importlib.util as u; print({n: bool(u.find_spec(n)) for n in " + repr(NEEDED) + "})"
    doctor = "import sys, subprocess; sys.exit(subprocess.call([sys.executable, '-m', 'pullback', 'doctor']))"
    small = ["--small", "--systems", "pullback"] if rehearse else []
    bench = [sys.executable, "-m", "benchmarks.gpu", "--json", str(out / "benchmarks.json"), *small]
    first = pytest("-m", "gpu and not long", "tests/codegen/cuda/test_emit.py", "-k", "golden or promised")
    result = [
        Step(name="what is here", command=[sys.executable, "-c", f"{here}; {doctor}"], seconds=40, file="here.txt"),
        Step(name="first kernels", command=first, seconds=60, file="first.txt"),
        Step(name="tests", command=pytest("-m", "gpu and not long", "tests", workers=workers), seconds=200, file="tests.txt"),
    ]
    if tool := shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer"):
        files = (f"tests/codegen/cuda/test_{name}.py" for name in ("emit", "scan", "radix_sort", "transposed_tiles"))
        sample = pytest("-m", "gpu and not long", *files, "tests/cuda_host", "tests/fuzz/test_cuda_fuzz.py", "-k", SAMPLE)
        checked = [tool, "--error-exitcode", "9", "--target-processes", "all", *sample]
        result.append(Step(name="sanitizer", command=checked, seconds=80, file="sanitizer.txt"))
    result.append(Step(name="benchmarks", command=bench, seconds=210, file="benchmarks.txt"))
    result.append(Step(name="more", command=pytest("-m", "gpu and long", "tests", workers=workers), seconds=1e9, file="more.txt"))
    return result


def run(step: Step, seconds: float, out: Path, environment: dict[str, str]) -> str:
    """Run a step and return how it ended, in words. The processes it started end with it."""
    begin = time.monotonic()
    command = [*step.command, *(["--seconds", f"{max(seconds - ENDS, 1):.0f}"] if "benchmarks.gpu" in step.command else [])]
    with open(out / step.file, "w") as file:
        streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **streams)
        try:
            status = process.wait(timeout=seconds)
            ended = "done" if not status else f"status {status}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            ended = "time was up"
    text = (out / step.file).read_text(errors="replace")
    counts = {word: len(re.findall(rf"(?m)^.* {word}\b.*(?:::|\[ *\d+%\])", text)) for word in ("PASSED", "FAILED", "ERROR")}
    tested = ", ".join(f"{n} {word.lower()}" for word, n in counts.items() if n)
    return f"{ended}, {time.monotonic() - begin:.0f} s" + (f", {tested}" if tested else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.gpu_report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=580.0, help="end after so many")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "on_gpu", help="the folder for what is found")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1), help="processes that share out the tests")
    parser.add_argument("--rehearse", action="store_true", help="over the stand-in for a GPU")
    parser.add_argument("--steps", default="", help="those whose names have one of these in them, comma-separated")
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.seconds
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PULLBACK_CUDA": "gpu"}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        if options.rehearse:
            (Path(folder) / "sitecustomize.py").write_text(STAND_IN.format(root=str(ROOT)))
            environment["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT), os.environ.get("PYTHONPATH", "")])
        with open(out / "summary.md", "w") as summary:
            for step in steps(out, options.workers, options.rehearse):
                if not any(part in step.name for part in options.steps.split(",")):
                    continue
                left = end - time.monotonic()
                said = run(step, min(step.seconds, left), out, environment) if left > 1 else "no time was left"
                bad += not said.startswith("done") and step.name != "more"
                line = f"- {step.name}: {said}"
                print(line, flush=True)
                print(line, file=summary, flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
