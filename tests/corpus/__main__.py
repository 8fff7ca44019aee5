"""Prints a table of the corpus: ``python -m tests.corpus``, with ``--long`` for large trip counts, or the names of some cases.

One row for each case: the value, the gradient, and the CPU seconds of the first call of the value and of value and gradient,
without the kernel cache. ``--write-refused`` writes the list of refused cases anew.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

os.environ.setdefault("PULLBACK_CACHE_DIR", "off")

from tests.corpus.checks import LONG, Differences, Outcome, assessed, check_error, check_gradient, check_second, check_value
from tests.corpus.refused import reason_class, write
from tests.corpus.registry import CASES


class OverTime(BaseException):
    """A check that was stopped."""


def limited(seconds: int, check: Callable[[], float]) -> Outcome:
    """Run a check for at most some seconds."""

    def stop(*_: Any) -> None:
        raise OverTime

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return assessed(check)
    except OverTime:
        return Outcome("time", f"stopped after {seconds} s")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="cases, or nothing for all")
    parser.add_argument("--long", action="store_true", help="with the trip counts of `turns`")
    parser.add_argument("--second", action="store_true", help="second derivatives too")
    parser.add_argument("--guards", action="store_true", help="under pb.jit(guards=True)")
    parser.add_argument("--loops", default="", help="under pb.jit(loops=...)")
    parser.add_argument("--limit", type=int, default=60, help="seconds of one check, after which it is stopped")
    parser.add_argument("--write-refused", action="store_true", help="write tests/corpus/refused.txt anew, with `--second`")
    options = parser.parse_args()
    differences = LONG if options.long else Differences()
    options.second |= options.write_refused
    jit: dict[str, Any] = {"guards": True} if options.guards else {}
    jit |= {"loops": options.loops} if options.loops else {}
    kinds = ("value", "gradient", "second", "error")
    totals = {kind: Counter[str]() for kind in kinds}
    reasons = Counter[str]()
    refused: dict[tuple[str, str], str] = {}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    print(f"{'case':28} {'value':8} {'s':>6}  {'gradient':8} {'s':>6}  {'second        s ' * options.second}{'error':8} detail")
    for name in options.names or CASES:
        case = CASES[name]
        size = case.turns if options.long else case.size
        outcomes = {"value": limited(options.limit, lambda c=case, n=size: check_value(c, n, **jit))}
        if case.argnums:
            outcomes["gradient"] = limited(options.limit, lambda c=case, n=size: check_gradient(c, n, differences, **jit))
        if case.argnums and options.second:
            outcomes["second"] = limited(options.limit, lambda c=case, n=size: check_second(c, n, differences, **jit))
        if case.failing:
            outcomes["error"] = limited(options.limit, lambda c=case: check_error(c, **jit))
        for kind, o in outcomes.items():
            totals[kind][o.status] += 1
            if o.status == "refused":
                reasons[reason_class(o.detail)] += kind == "value"
                refused[kind, name] = reason_class(o.detail)
            elif o.status == "ok":
                seconds[kind].append(o.seconds)
        value, gradient, second, error = (outcomes.get(kind, Outcome("-")) for kind in kinds)
        detail = " | ".join(re.sub(r"^\S*?(\w+\.py:\d+)", r"\1", o.detail) for o in outcomes.values() if o.detail)
        timed = f"{value.status:8} {value.seconds:6.2f}  {gradient.status:8} {gradient.seconds:6.2f}  "
        timed += f"{second.status:8} {second.seconds:6.2f}" if options.second else ""
        print(f"{name:28} {timed} {error.status:8} {detail}", flush=True)
    for kind in kinds:
        times = sorted(seconds[kind])
        median = f"; first call {times[len(times) // 2]:.2f} s in the median, {times[-1]:.2f} s at most" if times else ""
        print(f"{kind}: {', '.join(f'{n} {status}' for status, n in totals[kind].most_common()) or 'none'}{median}")
    for reason, count in reasons.most_common():
        print(f"{count:4} {reason}")
    if options.write_refused:
        write(refused)
    return int(any(totals[kind][status] for kind in kinds for status in ("wrong", "crash")))


if __name__ == "__main__":
    sys.exit(main())
