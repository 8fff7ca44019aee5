"""Checks and times pullback's CUDA target against other systems: `python -m benchmarks.gpu --markdown FILE --json FILE`.

Each system runs in a process of its own; they take turns case by case, in rounds, so that all share the device alike. Results are
first compared with the CPU target's in float64 at small sizes; a system that differs is not timed. A time is the median of bursts
of calls that follow each other without waiting, arguments and results on the device; `returns` is the time until one call
returns to the caller; `first call` includes compiling with an empty cache. The limit is the time to read and write the necessary
bytes at the rate of a copy, or to do the flops of products at the rate of PyTorch's.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.cases import CASES, GpuCase
from benchmarks.gpu.systems import SYSTEMS
from benchmarks.gpu.worker import ANSWER, serve

ROOT = Path(__file__).parent.parent.parent
OURS, HANDED = "pullback", "torch"
ROUNDS = 3
Times = dict[str, dict[str, Any]]


class Process:
    """A worker in a process of its own. One that has ended answers with an error."""

    def __init__(self, system: str, small: bool) -> None:
        command = [sys.executable, "-m", "benchmarks.gpu", "--serve", system, *(["--small"] if small else [])]
        cold = {**os.environ, "PULLBACK_CACHE_DIR": "off", "CUDA_CACHE_DISABLE": "1"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=cold, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """The worker's answer to a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            return {"error": "the process has ended"}
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                result: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return result
        return {"error": f"the process ended with status {self.process.wait()}"}

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def measured(case: GpuCase, dtype: str, workers: Mapping[str, Process]) -> Times:
    """Return the times of each system for a case: ``first`` call, ``seconds``, ``returns``, or why there is no time."""
    about = {"case": case.name, "dtype": dtype}
    result: Times = {}
    ready = []
    for system, worker in workers.items():
        result[system] = worker.ask(do="check", **about)
        if "difference" in result[system]:
            result[system] |= worker.ask(do="prepare", **about)
            if "first" in result[system]:
                ready.append(system)
    rounds: dict[str, list[dict[str, Any]]] = {system: [] for system in ready}
    for _ in range(ROUNDS):
        for system in ready:
            rounds[system].append(workers[system].ask(do="time"))
    for system, taken in rounds.items():
        failed = [answer for answer in taken if "seconds" not in answer]
        result[system] |= failed[0] if failed else {k: float(np.median([t[k] for t in taken])) for k in ("seconds", "returns")}
    for worker in workers.values():
        worker.ask(do="drop")
    return result


def limit(case: GpuCase, dtype: str, ceilings: Mapping[str, Any]) -> float | None:
    """The seconds that a case takes at least."""
    result = []
    if case.moved is not None and "copy" in ceilings:
        result.append(case.moved(**case.sizes) * np.dtype(dtype).itemsize / ceilings["copy"])
    if case.flops is not None and "f32" in ceilings:
        result.append(case.flops(**case.sizes) / ceilings["f32"])
    return max(result) if result else None


HEAD = ["case", "dtype", "ours, ms", "best other", "ours / it", "ours / limit", "returns, µs", "first call, s", "all others, ms"]


def row(case: GpuCase, dtype: str, times: Times, ceilings: Mapping[str, Any]) -> list[str]:
    """The table's row of a case. A ratio above its aim is bold."""
    ours = times.get(OURS, {})
    others = {name: t["seconds"] for name, t in times.items() if name != OURS and "seconds" in t}
    every = ", ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in sorted(others.items(), key=lambda pair: pair[1]))
    if "seconds" not in ours:
        why = ours.get("error") or ours.get("absent") or "not measured"
        return [case.name, dtype, why.replace("|", "/").replace("\n", " ")[:80], "", "", "", "", "", every]
    best = min(others, key=lambda name: others[name]) if others else ""
    least = limit(case, dtype, ceilings)

    def ratio(kind: str, of: float | None) -> str:
        if not of:
            return ""
        aim, result = case.targets.get(kind), ours["seconds"] / of
        text = f"{result:.2f}" if aim is None or result <= aim else f"**{result:.2f}**"
        return text if aim is None else f"{text} (≤ {aim:.2f})"

    return [
        case.name, dtype, f"{1e3 * ours['seconds']:.4g}", best, ratio("ad", others.get(best)), ratio("limit", least),
        f"{1e6 * ours['returns']:.1f}", f"{ours['first']:.2f}", every,
    ]  # fmt: skip


def lines_of(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default="", help="those whose names have one of these in them, comma-separated")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma-separated")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    parser.add_argument("--json", type=Path, help="write all that was measured there")
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no case after so many")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the program")
    parser.add_argument("--serve", choices=sorted(SYSTEMS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve, options.small)
        return
    unknown = sorted({*options.systems.split(",")} - {*SYSTEMS})
    if unknown:
        parser.error(f"unknown systems: {', '.join(unknown)}; {', '.join(SYSTEMS)} are known")
    end = time.monotonic() + options.seconds
    workers = {system: Process(system, options.small) for system in options.systems.split(",")}
    ceilings = workers[HANDED].ask(do="ceilings") if HANDED in workers else {}
    print(json.dumps(ceilings), flush=True)
    wanted = [c for c in CASES if any(part in c.name for part in options.cases.split(","))]
    taken: dict[str, Times] = {}
    rows: list[list[str]] = []
    for case in wanted:
        for dtype in case.dtypes:
            if time.monotonic() > end:
                rows.append([case.name, dtype, "no time was left", *[""] * (len(HEAD) - 3)])
                continue
            taken[f"{case.name}-{dtype}"] = times = measured(case, dtype, workers)
            rows.append(row(case, dtype, times, ceilings))
            print(lines_of(rows)[-1], flush=True)
    for worker in workers.values():
        worker.end()
    if options.markdown:
        about = f"{datetime.date.today().isoformat()}, {ceilings.get('device', 'a CUDA device')}"
        rates = {name: rate for name, rate in ceilings.items() if isinstance(rate, float)}
        said = ", ".join(f"{name} {rate / 1e12:.3g} T{'B' if name == 'copy' else 'FLOP'}/s" for name, rate in rates.items())
        options.markdown.write_text("\n".join([f"{about}; {said}" if said else about, "", *lines_of(rows), ""]))
    if options.json:
        options.json.write_text(json.dumps({"ceilings": ceilings, "times": taken}, indent=1) + "\n")


if __name__ == "__main__":
    main()
