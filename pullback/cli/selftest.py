"""`pullback doctor --selftest`: compile ten kernels in a separate process, call each four times and compare it with NumPy.

The process keeps its kernels in memory, so that it tests nothing stored on disk, and a crash in compiled code is reported too.
``python -m pullback.cli.selftest`` is that process; it prints a line for each kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pullback.fastcall import describe as fastcall_describe
from pullback.ir.core.records import dataclass
from pullback.transforms import api

TIMEOUT = 120
"""Timeout of the process in seconds."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A check: ``compiled`` is called with the arguments of ``make`` and compared with ``expected``, within ``ulps`` units in
    the last place of the largest element."""

    compiled: Callable[..., Any]
    expected: Callable[..., Any]
    make: Callable[[np.random.Generator], tuple[Any, ...]]
    ulps: float = 0.0


def _plain(function: Callable[..., Any], make: Callable[[np.random.Generator], tuple[Any, ...]], ulps: float = 0.0) -> Kernel:
    return Kernel(compiled=api.jit(function), expected=function, make=make, ulps=ulps)


def _floats(*shape: int, dtype: Any = np.float64) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.uniform(0.2, 2.0, shape).astype(dtype)


def _arguments(*makers: Callable[[np.random.Generator], Any]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    return lambda rng: tuple(make(rng) for make in makers)


def _softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def _integers(x: Any, y: Any) -> Any:
    return np.where(x > y, x * y - 7, x // np.maximum(y, 1)) % 11


def _flags(x: Any, y: Any) -> Any:
    return (x < y) ^ ((x > 0.5) & ~(y > 0.5))


def _value(x: Any, y: Any) -> Any:
    return np.sum(np.tanh(x) * y) + np.mean(x * x)


def _slope(x: Any, y: Any) -> Any:
    return (1.0 - np.tanh(x) ** 2) * y + 2.0 * x / x.size


def _picked(x: Any, index: Any) -> Any:
    return np.sum(x[index] ** 2)


def _picked_slope(x: Any, index: Any) -> Any:
    slope = np.zeros_like(x)
    np.add.at(slope, index, 2.0 * x[index])
    return slope


def _random_integers(low: int, high: int, count: int, dtype: Any = np.int64) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.integers(low, high, count).astype(dtype)


KERNELS: Mapping[str, Kernel] = {
    "float32": _plain(lambda x: np.sqrt(x) * np.float32(3) - x, _arguments(_floats(517, dtype=np.float32))),
    "integers": _plain(_integers, _arguments(_random_integers(-50, 50, 301, np.int32), _random_integers(-50, 50, 301, np.int32))),
    "bools": _plain(_flags, _arguments(_floats(131), _floats(131))),
    "reduction": _plain(lambda x: (np.sum(x), np.max(x), np.argmin(x)), _arguments(_floats(10_007)), ulps=64),
    "rows": _plain(_softmax, _arguments(_floats(33, 65)), ulps=32),
    "matrix product": _plain(lambda x, y: x @ y, _arguments(_floats(31, 17), _floats(17, 23)), ulps=64),
    "running sum": _plain(lambda x: np.cumsum(x * 0.5), _arguments(_floats(259)), ulps=64),
    "functions": _plain(lambda x: np.sin(x) + np.log1p(x) * np.exp(-x) + np.arctan(x), _arguments(_floats(401)), ulps=32),
    "gradient": Kernel(
        compiled=api.value_and_grad(_value), expected=lambda x, y: (_value(x, y), _slope(x, y)),
        make=_arguments(_floats(211), _floats(211)), ulps=64,
    ),
    "gradient by index": Kernel(
        compiled=api.grad(_picked), expected=_picked_slope, make=_arguments(_floats(40), _random_integers(0, 40, 90)), ulps=16
    ),
}  # fmt: skip


def problem(kernel: Kernel) -> str:
    """Return a description of what is wrong with a kernel; empty if nothing is."""
    args = kernel.make(np.random.default_rng(0))
    try:
        # The first call traces, the next go through Python; the fourth is native where native calls are supported.
        kernel.compiled(*args), kernel.compiled(*args)
        while fastcall_describe.is_underway():
            time.sleep(0.01)
        results = [kernel.compiled(*args) for _ in range(2)][-1]
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    expected = kernel.expected(*args)
    pairs = list(zip(results, expected)) if isinstance(expected, tuple) else [(results, expected)]
    for got, reference in pairs:
        a, b = np.asarray(got), np.asarray(reference)
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype}{list(a.shape)} where NumPy gives {b.dtype}{list(b.shape)}"
        tolerance = kernel.ulps * np.spacing(np.max(np.abs(b))) if b.dtype.kind == "f" else 0
        wrong = ~(np.abs(a - b) <= tolerance) if b.dtype.kind == "f" else a != b
        if np.any(wrong):
            count, at = np.count_nonzero(wrong), int(np.argmax(np.ravel(wrong)))
            return f"{count} of {a.size} elements differ, the first: {a.flat[at]} where NumPy gives {b.flat[at]}"
    return ""


def run() -> int:
    """Check every kernel in this process; return 1 if one is wrong."""
    wrong = 0
    for name, kernel in KERNELS.items():
        start = time.perf_counter()
        message = problem(kernel)
        wrong += bool(message)
        print(f"  {name:<18} {f'wrong: {message}' if message else f'ok  {time.perf_counter() - start:.2f} s'}", flush=True)
    print(f"calls      {fastcall_describe.status()}", flush=True)
    return 1 if wrong else 0


def report() -> int:
    """Check every kernel in a separate process and print its output; return 1 if one is wrong or the process crashed."""
    environment = {**os.environ, "PULLBACK_CACHE_DIR": "off"}
    start = time.perf_counter()
    print(f"selftest   {len(KERNELS)} kernels, compiled anew:", flush=True)
    try:
        done = subprocess.run([sys.executable, "-m", "pullback.cli.selftest"], env=environment, timeout=TIMEOUT, check=False)
        code = done.returncode
    except subprocess.TimeoutExpired:
        print(f"  the process was stopped after {TIMEOUT} s")
        return 1
    if code < 0 or code > 1:
        how = f"signal {-code}" if code < 0 else f"code {code:#x}"
        print(f"  the process died ({how}) in the kernel after the last one shown")
    print(f"selftest   {'wrong' if code else 'all ok'}, {time.perf_counter() - start:.1f} s")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(run())
