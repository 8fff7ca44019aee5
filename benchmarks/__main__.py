"""Measures pullback beside other systems, prints the table and keeps it as JSON.

    python -m benchmarks                                    everything, one and two threads
    python -m benchmarks --workloads chain,xent --threads 2 --dtypes f64 --peers numba,jax --rounds 5

Every workload and number of threads has a process of its own, in which the systems take turns. Results of earlier runs
that are in the JSON file and were not measured again stay there.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PEERS = ("numba", "c", "numpy", "numexpr", "jax", "torch", "tcompile", "tcompile_fn", "drjit", "autograd")
DTYPES = {"f64": "float64", "f32": "float32", "float64": "float64", "float32": "float32"}


def listed(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="time pullback beside other systems")
    parser.add_argument("--workloads", type=listed, help="some of them, by commas (default: all)")
    parser.add_argument("--cases", default="", help="only cases whose names start so, by commas: grad, fwd-n1e6, …")
    parser.add_argument("--peers", type=listed, default=list(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--threads", type=listed, default=["1", "2"], help="1, 2 or 1,2")
    parser.add_argument("--dtypes", type=listed, default=["f64", "f32"])
    parser.add_argument("--rounds", type=int, default=7, help="bursts of each system")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="results are merged into this file")
    parser.add_argument("--large", action="store_true", help="with the cases that take minutes")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see whether everything runs")
    return parser.parse_args()


def measured(options: argparse.Namespace, workload: str, threads: str) -> Iterator[dict[str, Any]]:
    """The results of a fresh process, one by one."""
    command = [sys.executable, "-m", "benchmarks.measure", workload, "--threads", threads, "--rounds", str(options.rounds)]
    command += ["--peers", ",".join(["pullback", *options.peers]), "--cases", options.cases]
    command += ["--dtypes", ",".join(DTYPES[d] for d in options.dtypes)]
    command += [f"--{name}" for name in ("small", "large") if getattr(options, name)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        raise SystemExit(f"{workload} ended with code {process.returncode}")


def key(result: dict[str, Any]) -> str:
    return f"{result['workload']}/{result['case']}-{result['dtype']}@{result['threads']}"


def progress(result: dict[str, Any]) -> str:
    taken = dict(sorted(result["seconds"].items(), key=lambda item: item[1]))
    base = taken.get("pullback")
    ours = f"{base * 1e3:9.3f} ms" if base else f"{'-':>12}"
    others = "  ".join(f"{name} {base / t:.2f}" if base else name for name, t in taken.items() if name != "pullback")
    limit = max(result["limit"].values(), default=0.0)
    others += f"  limit {base / limit:.2f}" if base and limit else ""
    wrong = [f"{name}: {why}" for name, why in result["absent"].items() if "wrong" in why or name == "pullback"]
    return f"{key(result):<40}{ours}  ours / {others}" + "".join(f"\n    {note}" for note in wrong)


def write(path: Path, report: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def main() -> int:
    options = arguments()
    from benchmarks.cases import WORKLOADS
    from benchmarks.report import markdown

    chosen = options.workloads or list(WORKLOADS)
    if missing := sorted(set(chosen) - set(WORKLOADS)) or sorted(set(options.peers) - set(PEERS)):
        print(f"no such thing: {', '.join(missing)}; there are {', '.join((*WORKLOADS, *PEERS))}", file=sys.stderr)
        return 2
    report: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {"results": {}}
    for threads in options.threads:
        for workload in chosen:
            for result in measured(options, workload, threads):
                print(progress(result), flush=True)
                report["results"][key(result)] = result
                write(options.json, report)
    if not options.small:
        table = options.json.with_suffix(".md")
        table.write_text(markdown(report) + "\n")
        print(f"\n{markdown(report)}\nwritten to {options.json} and {table}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
