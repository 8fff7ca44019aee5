"""Measures pullback against other systems, prints the table, and saves it as JSON, Markdown and plots.

    python -m benchmarks                                    everything, two threads and one
    python -m benchmarks --workloads chain,xent --threads 2 --dtypes f64 --peers numba,jax --rounds 5

Every workload and number of threads has a process of its own, in which the systems take turns. Results of earlier runs
in the JSON file that are not measured again are kept.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.about import about
from benchmarks.cases import CASES, SETS, WORKLOADS
from benchmarks.measure import LATE, PATIENCE
from benchmarks.plot import draw_all
from benchmarks.report import markdown, with_short

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PEERS = (
    "numba", "numba_kept", "c", "numpy", "numexpr", "openblas_avx512", "openblas_avx2",
    "jax", "torch", "tcompile", "tcompile_fn", "drjit", "autograd",
)  # fmt: skip
DTYPES = {"f64": "float64", "f32": "float32"}
AFTERWARDS = PATIENCE / 4
"""The seconds that a system has to compile a case for further numbers of threads."""
FOR_MEMORY = ("pullback", "jax")
Result = dict[str, Any]


def listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="time pullback beside other systems")
    parser.add_argument("--workloads", type=listed, help="some of them, by commas (default: all)")
    parser.add_argument("--set", choices=SETS, default=SETS[0], help="the table of figures, or what shows slowdowns")
    parser.add_argument("--cases", default="", help="only cases whose names start so, by commas: grad, fwd-n1e6, …")
    parser.add_argument("--peers", type=listed, default=list(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--threads", type=listed, default=["2", "1"], help="numbers of threads, by commas (default: 2,1)")
    parser.add_argument("--dtypes", type=listed, default=list(DTYPES), help="f64, f32 or both by a comma")
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each system")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="results are merged into this file")
    parser.add_argument("--large", action="store_true", help="with the cases that take minutes")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see whether everything runs")
    parser.add_argument("--memory", action="store_true", help="measure peaks of memory too")
    parser.add_argument("--machine", action="store_true", help="measure the limits of the machine alone too")
    parser.add_argument("--plot", action="store_true", help="draw plots beside the JSON file (needs matplotlib)")
    parser.add_argument("--readme", action="store_true", help="write the short table into README.md")
    return parser.parse_args()


def refusal(options: argparse.Namespace) -> str | None:
    """Return an error message if a requested workload, system or dtype does not exist."""
    for asked, known in ((options.workloads, WORKLOADS), (options.peers, PEERS), (options.dtypes, tuple(DTYPES))):
        if missing := sorted(set(asked) - set(known)):
            return f"no such thing: {', '.join(missing)}; there are {', '.join(known)}"
    return None


def lines(*command: str) -> Iterator[Result]:
    """Yield the records that a fresh process prints, one by one."""
    with subprocess.Popen([sys.executable, "-m", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {process.returncode}")


def measured(options: argparse.Namespace, workload: str, threads: str, before: Sequence[Result]) -> Iterator[Result]:
    """Yield the results of a workload. ``before``: results with other numbers of threads."""
    command = ["benchmarks.measure", workload, "--threads", threads, "--rounds", str(options.rounds)]
    command += ["--peers", ",".join(["pullback", *options.peers]), "--cases", options.cases]
    command += ["--dtypes", ",".join(DTYPES[d] for d in options.dtypes)]
    command += ["--patience", str(PATIENCE if threads == options.threads[0] else AFTERWARDS)]
    command += ["--set", options.set, "--late", ",".join(late(before))]
    command += [f"--{name}" for name in ("small", "large") if getattr(options, name)]
    yield from lines(*command)


def late(results: Sequence[Result]) -> list[str]:
    """The systems that were not ready in time, each behind its case's label and a colon."""
    absent = ((f"{r['workload']}/{r['case']}-{r['dtype']}", r["absent"]) for r in results)
    return [f"{label}:{name}" for label, why in absent for name, text in why.items() if text.startswith(LATE)]


def peaks(options: argparse.Namespace, workload: str) -> Iterator[tuple[str, dict[str, int]]]:
    """Bytes beyond inputs and outputs, by system, of each case."""
    for case in CASES:
        named = case.workload == workload and case.name.startswith(tuple(options.cases.split(",")))
        if named and options.set in case.sets and not case.large:
            for dtype in case.dtypes:
                systems = [s for s in FOR_MEMORY if s == "pullback" or s in options.peers]
                command = "benchmarks.memory", case.workload, case.name, dtype
                yield case.label(dtype), {s: next(lines(*command, s))["beyond"] for s in systems}


def key(result: Result) -> str:
    return f"{result['workload']}/{result['case']}-{result['dtype']}@{result['threads']}"


def progress(result: Result) -> str:
    taken = dict(sorted(result["seconds"].items(), key=lambda item: item[1]))
    base = taken.get("pullback")
    ours = f"{base * 1e3:9.3f} ms" if base else f"{'-':>12}"
    others = "  ".join(f"{name} {base / t:.2f}" if base else name for name, t in taken.items() if name != "pullback")
    limit = max(result["limit"].values(), default=0.0)
    others += f"  limit {base / limit:.2f}" if base and limit else ""
    wrong = [f"{name}: {why}" for name, why in result["absent"].items() if "wrong" in why or name == "pullback"]
    return f"{key(result):<40}{ours}  ours / {others}" + "".join(f"\n    {note}" for note in wrong)


def write(path: Path, report: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def measure(options: argparse.Namespace, report: Result) -> None:
    """Fills the report, written after each result."""
    actual: list[Result] = []
    for count, threads in enumerate(options.threads):
        if options.machine:
            report["machine"][threads] = next(lines("benchmarks.measure", "--machine", "--threads", threads))["machine"]
        for position, workload in enumerate(options.workloads):
            done = count * len(options.workloads) + position
            print(f"[{done + 1}/{len(options.threads) * len(options.workloads)}] {workload}", file=sys.stderr)
            for result in measured(options, workload, threads, actual):
                actual.append(result)
                print(progress(result), flush=True)
                report["results"][key(result)] = result
                write(options.json, report)
    for workload in options.workloads if options.memory else []:
        for label, beyond in peaks(options, workload):
            print(f"{label:<40}{'  '.join(f'{system} {size / 1e6:.1f} MB' for system, size in beyond.items())}", flush=True)
            report["memory"][label] = beyond
            write(options.json, report)


def main() -> int:
    options = arguments()
    options.workloads = options.workloads or list(dict.fromkeys(c.workload for c in CASES if options.set in c.sets))
    if reason := refusal(options):
        print(reason, file=sys.stderr)
        return 2
    report: Result = json.loads(options.json.read_text()) if options.json.exists() else {}
    report = {"machine": {}, "results": {}, "memory": {}, **report, "about": about()}
    measure(options, report)
    if not options.small:
        table = options.json.with_suffix(".md")
        table.write_text(markdown(report))
        print(f"\n{markdown(report)}\nwritten to {options.json} and {table}")
    if options.readme:
        page = ROOT / "README.md"
        page.write_text(with_short(page.read_text(), report, max(int(t) for t in options.threads)))
    if options.plot:
        print(*draw_all(report, options.json), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
