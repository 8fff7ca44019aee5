"""Runs random programs of each kind: ``python -m tests.fuzz --kind value --programs 5000 --seed 0``.

Programs of one seed do not depend on how many are run: seed S has the programs S, S + 1, ... Runs in processes of a few hundred
programs, so that memory stays small. Ends with one line: programs, refused, failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter

from tests.support.paths import ROOT

CHUNK = 400
"""Programs of one process: some 40 ms each."""


def run(kind: str, seed: int, count: int, findings: str) -> Counter[str]:
    """Run the programs in this process; failures are printed, and added to a file if there is one."""
    from tests.fuzz.kinds import KINDS, Failed

    counts: Counter[str] = Counter()
    for index in range(seed, seed + count):
        try:
            counts[KINDS[kind](index)] += 1
        except Failed as error:
            counts["failed"] += 1
            report = f"=== {kind} {index}\n{error}\n"
            print(report, flush=True)
            if findings:
                with open(findings, "a") as file:
                    file.write(report)
        except Exception as error:
            counts["failed"] += 1
            print(f"=== {kind} {index}\nthe fuzzer itself: {type(error).__name__}: {error}\n", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", required=True, help="value, call, source, ir, gradient or control; several with commas")
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--findings", default="", help="a file to which failures are added")
    parser.add_argument("--here", action="store_true", help="in this process")
    arguments = parser.parse_args()
    is_bad = False
    for kind in arguments.kind.split(","):
        began = time.monotonic()
        if arguments.here:
            counts = run(kind, arguments.seed, arguments.programs, arguments.findings)
        else:
            counts = _in_processes(kind, arguments.seed, arguments.programs, arguments.findings)
        passed, refused, failed = (counts[k] for k in ("passed", "refused", "failed"))
        share = refused / max(sum(counts.values()), 1)
        print(
            f"{kind}: {sum(counts.values())} programs from seed {arguments.seed}, {passed} passed, {refused} refused "
            f"({share:.1%}), "
            f"{counts['nothing']} said nothing, {failed} failed; {time.monotonic() - began:.0f} s", flush=True,
        )  # fmt: skip
        is_bad |= bool(failed)
    return int(is_bad)


def _in_processes(kind: str, seed: int, count: int, findings: str) -> Counter[str]:
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="pullback-fuzz-") as folder:
        environment = {**os.environ, "PULLBACK_CACHE_DIR": os.environ.get("PULLBACK_FUZZ_CACHE", folder)}
        for first in range(seed, seed + count, CHUNK):
            many = min(CHUNK, seed + count - first)
            words = ["--kind", kind, "--programs", str(many), "--seed", str(first), "--here", "--findings", findings]
            built = subprocess.run(
                [sys.executable, "-m", "tests.fuzz", *words], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE
            )  # fmt: skip
            *reports, last = built.stdout.rstrip("\n").split("\n")
            if reports:
                print("\n".join(reports), flush=True)
            for name, word in (("passed", "passed"), ("refused", "refused"), ("nothing", "said"), ("failed", "failed")):
                numbers = [w for w, after in zip(last.split(), last.split()[1:], strict=False) if after.strip(",;") == word]
                total[name] += int(numbers[0]) if numbers else 0
            if built.returncode not in (0, 1):
                total["failed"] += 1
                print(
                    f"=== {kind} {first} to {first + many - 1}: the process ended with "
                    f"{built.returncode}\n{built.stdout[-2000:]}",
                    flush=True,
                )
    return total


if __name__ == "__main__":
    sys.exit(main())
