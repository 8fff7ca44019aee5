"""How much memory a case takes beyond its inputs and outputs, in a process of one system; prints JSON. Linux only.

The process is ready (libraries imported, a tiny call made, arguments placed) before its resident size is read. After the
call that compiles, the peak is reset and some more calls are made: the peak counts what is kept between calls, not what
compiling took.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import leaves, pin

STATUS = Path("/proc/self/status")
CALLS = 4


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (the peak), in bytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def beyond(workload: str, name: str, dtype: str, system: str) -> dict[str, Any]:
    from benchmarks.cases import CASES
    from benchmarks.peers import PEERS

    case = next(case for case in CASES if (case.workload, case.name) == (workload, name))
    PEERS[system](case, case.make(dtype, **case.small))()
    call = PEERS[system](case, case.make(dtype, **case.sizes))
    before = resident("VmRSS")
    outputs = sum(leaf.nbytes for leaf in leaves(call()) if hasattr(leaf, "nbytes"))
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(CALLS):
        call()
    return {"outputs": outputs, "beyond": max(0, resident("VmHWM") - before - outputs)}


def main() -> int:
    parser = argparse.ArgumentParser(description="the peak of memory of one case and system")
    for option in ("workload", "name", "dtype", "system"):
        parser.add_argument(option)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    pin(options.threads)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    print(json.dumps(beyond(options.workload, options.name, options.dtype, options.system)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
