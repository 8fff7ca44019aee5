"""Calls on the stand-in for a GPU, in a process of their own: prints what they gave, and what was built, loaded and run."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.process import counters
from tests import cuda_host

X = np.linspace(-1.0, 1.0, 60).reshape(12, 5)


def loss(x: Any, y: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return -np.sum(y * np.log(e / np.sum(e, axis=1, keepdims=True)))


def loop(x: Any) -> Any:
    return pb.scan(lambda h, row: (np.tanh(h + row),) * 2, np.zeros(5), x)[1]


def solved(x: Any) -> Any:
    return np.linalg.solve(x.T @ x + np.eye(5), x[0])


def rooted(x: Any, i: Any) -> Any:
    return np.sum(x[i] * 2)


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "rows": (pb.value_and_grad(loss), (X, np.abs(X))),
    "rows of float32": (pb.value_and_grad(loss), (X.astype(np.float32), np.abs(X).astype(np.float32))),
    "a loop": (loop, (X,)),
    "a product": (lambda x: np.sin(x.T @ x), (X,)),
    "steps of the CPU": (solved, (X,)),
    "an index": (rooted, (X, np.array([1, 3, -1]))),
    "an index beyond": (rooted, (X, np.array([1, 99]))),
    "nothing": (lambda x: x * 2, (X[:0],)),
}


def main() -> None:
    warnings.simplefilter("ignore", pb.DeviceWarning)
    cuda_host.activate()
    cuda_compile.use(cuda_host.Compiler())
    actual = {}
    for name, (call, args) in CALLS.items():
        before = counters.snapshot()
        try:
            result = pb.jit(call, device="cuda")(*args)
            leaves = [np.asarray(leaf).tobytes().hex() for leaf in (result if isinstance(result, tuple) else (result,))]
        except IndexError as error:
            leaves = [str(error), *getattr(error, "__notes__", ())]
        now = counters.snapshot() - before
        known = {event: getattr(now, event) for event in counters.EVENTS}
        actual[name] = {"found": leaves, "ran": sorted(now.runs), **known}
    print(json.dumps(actual))


if __name__ == "__main__":
    sys.exit(main())
