"""One system in a process of its own, which prepares and times cases on request, one line each.

A request is a JSON object with ``do``: "check" (case, dtype) computes at small sizes and compares with pullback's CPU target in
float64; "prepare" (case, dtype) gives the seconds of the first call; "time" those of a burst of calls, and of a call alone
without waiting; "drop" frees the case; "ceilings" gives the device's limits. An answer has ``error`` where something failed.
"""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.gpu.cases import CASES, GpuCase
from benchmarks.gpu.systems import SYSTEMS, Prepared
from benchmarks.measure import TOLERANCE, difference, widened

BURST_SECONDS, MOST_CALLS = 0.2, 2000
SHORT = 200
ANSWER = "answer "


class Worker:
    """``system``: a name in ``SYSTEMS``. ``small``: times are taken at small sizes too, to try the program."""

    def __init__(self, system: str, small: bool = False) -> None:
        self.prepare_case = SYSTEMS[system]
        self.small = small
        self.prepared: Prepared | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        try:
            result: dict[str, Any] = getattr(self, "do_" + request["do"])(request)
        except NotImplementedError as error:
            return {"absent": str(error) or "not there"}
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:500]}
        return result

    def do_check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        case, dtype = case_of(request)
        arguments = case.make(np.dtype(dtype).type, **case.small)
        prepared = self.prepare_case(case, arguments)
        result = prepared.fetch(prepared.call())
        far = difference(widened(result), widened(reference(case, arguments)), "float64")
        if not far <= TOLERANCE[dtype]:
            raise ValueError(f"the result is {far:.1e} from that of the CPU in float64")
        return {"difference": far}

    def do_prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        case, dtype = case_of(request)
        arguments = case.make(np.dtype(dtype).type, **(case.small if self.small else case.sizes))
        self.prepared = self.prepare_case(case, arguments)
        seconds = clocked(self.once)
        for _ in range(3):
            self.once()
        return {"first": seconds}

    def once(self) -> None:
        assert self.prepared is not None
        self.prepared.call()
        self.prepared.wait()

    def do_time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self.prepared is not None
        calls = int(min(max(BURST_SECONDS / clocked(self.once), 3), MOST_CALLS))

        taken = in_bursts(self.prepared, calls)
        alone = []
        for _ in range(min(calls, SHORT)):
            alone.append(clocked(self.prepared.call))
            self.prepared.wait()
        return {"seconds": taken, "returns": statistics.median(alone)}

    def do_drop(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.prepared = None
        gc.collect()
        return {}

    def do_ceilings(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return ceilings(small=self.small)


def case_of(request: Mapping[str, Any]) -> tuple[GpuCase, str]:
    (case,) = (c for c in CASES if c.name == request["case"])
    return case, request["dtype"]


def reference(case: GpuCase, arguments: Any) -> Any:
    """The result of the CPU target in float64."""
    import pullback as pb

    call = pb.value_and_grad(case.function, argnums=case.wanted) if case.wanted else pb.jit(case.function)
    return call(*[x.astype(np.float64) if x.dtype.kind == "f" else x for x in arguments])


def in_bursts(prepared: Prepared, calls: int) -> float:
    """Return the seconds per call of ``calls`` calls that follow each other without waiting: the median of three bursts."""

    def burst() -> None:
        for _ in range(calls):
            prepared.call()
        prepared.wait()

    return statistics.median(clocked(burst) for _ in range(3)) / calls


def clocked(call: Callable[[], Any]) -> float:
    """Return the seconds of a call, including the release of its result."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ceilings(small: bool = False) -> dict[str, Any]:
    """Return the limits of the device, measured by PyTorch: bytes a second of a copy, and flops a second of matrix products."""
    import torch

    n, m = (1 << 16, 64) if small else (1 << 28, 8192)
    source = torch.ones(n, device="cuda")
    target = torch.empty_like(source)
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}
    result["copy"] = 2 * source.nbytes / _repeated(torch, lambda: target.copy_(source))
    for name, dtype, tf32 in (("f32", torch.float32, False), ("tf32", torch.float32, True), ("bf16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(m, m, device="cuda", dtype=dtype) for _ in range(2))
        result[name] = 2 * m**3 / _repeated(torch, lambda a=a, b=b: a @ b)
    torch.backends.cuda.matmul.allow_tf32 = False
    return result


def _repeated(torch: Any, call: Callable[[], Any], runs: int = 10) -> float:
    call()
    torch.cuda.synchronize()

    def all_runs() -> None:
        for _ in range(runs):
            call()
        torch.cuda.synchronize()

    return min(clocked(all_runs) for _ in range(3)) / runs


def serve(system: str, small: bool) -> None:
    """Answer the requests of standard input until it ends."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    worker = Worker(system, small)
    for line in sys.stdin:
        print(ANSWER + json.dumps(worker.answer(json.loads(line))), flush=True)
