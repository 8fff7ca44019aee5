"""Programs of every kind, run in a process that prints what it found and counted: for the tests of programs in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.runtime.process import counters

Array = Any
X = np.linspace(-1.0, 2.0, 60).reshape(12, 5)
SQUARE = X.T @ X + np.eye(5)


def dense(w: Array, x: Array) -> Array:
    return np.mean(np.logaddexp(0.0, np.tanh(x @ w) @ w.T))


def solved(a: Array, b: Array) -> Array:
    return np.sum(np.linalg.solve(a, b) ** 2)


def positive(a: Array) -> Array:
    return np.sum(np.linalg.cholesky(a))


def picked(x: Array, k: Array) -> Array:
    return x[k] * 2.0


def rows_in_order(x: Array) -> Array:
    return np.sort(x, axis=1)[:, ::-1], np.argsort(x, axis=0)


def recurrent(w: Array, xs: Array) -> Array:
    def step(h: Array, x: Array) -> tuple[Array, Array]:
        h = np.tanh(w @ h + x)
        return h, h[0]

    h, firsts = pb.scan(step, np.zeros(5), xs)
    return np.sum(h) + np.sum(firsts)


def halved(x: Array) -> Array:
    return pb.while_loop(lambda c: np.sum(c) > 1.0, lambda c: c * 0.5, x)


def failing_loop(a: Array, n: Array) -> Array:
    return pb.fori_loop(0, n, lambda k, b: np.linalg.cholesky(b) - 2.0 * np.eye(5), a)


def chosen(k: Array, x: Array) -> Array:
    return pb.switch(k, [np.sin, np.cos, lambda v: v * v], x)


def shown(x: Array) -> Array:
    pb.print("sum {}", np.sum(x))
    return x + 1.0


def shown_in_a_loop(x: Array) -> Array:
    def step(c: Array, row: Array) -> tuple[Array, None]:
        pb.print("row {:.2f}", np.sum(row))
        return c + row, None

    return pb.scan(step, np.zeros(5), x)[0]


def called(x: Array) -> Array:
    return pb.callback(lambda v: np.cumsum(v), pb.ShapeDtypeStruct((60,), np.float64), np.reshape(x, -1)) + 1.0


def complex_parts(x: Array) -> Array:
    return np.fft.ifft(np.fft.fft(x + 1j * x)).real


def updated(x: Array) -> Array:
    x[1:4] += 2.0
    return np.sum(x)


def returned(x: Array) -> Any:
    return x, x + 0.0, np.exp(x)


CALLS: dict[str, Callable[[], Any]] = {
    "gradient": lambda: pb.value_and_grad(dense)(X[:5], X),
    "sizes": lambda: pb.value_and_grad(dense)(X[:5].copy(), X[:7]),
    "strided": lambda: pb.jit(dense)(X[:5], np.asfortranarray(X)),
    "float32": lambda: pb.jit(dense)(X[:5].astype(np.float32), X.astype(np.float32)),
    "solve": lambda: pb.grad(solved, argnums=(0, 1))(SQUARE, X[:5]),
    "cholesky": lambda: pb.jit(positive)(SQUARE),
    "not positive": lambda: pb.jit(positive)(-SQUARE),
    "index": lambda: pb.jit(picked)(X, np.array([1, -2])),
    "out of range": lambda: pb.jit(picked)(X, np.array([1, 99])),
    "sort": lambda: pb.jit(rows_in_order)(np.sin(37.0 * X)),
    "scan": lambda: pb.value_and_grad(recurrent)(SQUARE / 40.0, X),
    "while": lambda: pb.jit(halved)(np.abs(X)),
    "failing loop": lambda: pb.jit(failing_loop)(SQUARE, 4),
    "switch": lambda: [pb.jit(chosen)(k, X) for k in range(3)],
    "print": lambda: pb.jit(shown)(X),
    "print in a loop": lambda: pb.jit(shown_in_a_loop)(X),
    "callback": lambda: pb.jit(called)(X),
    "complex": lambda: pb.jit(complex_parts)(X),
    "in place": lambda: pb.jit(updated)(np.arange(6.0)),
    "returned": lambda: pb.jit(returned)(X),
    "random": lambda: pb.jit(lambda key: pb.random.normal(key, (3, 4)))(pb.random.key(3)),
}


def bits(result: Any) -> str:
    """The exact contents of a result."""
    if isinstance(result, tuple | list):
        return f"({', '.join(map(bits, result))})"
    array = np.ascontiguousarray(result)
    return f"{type(result).__name__} {array.dtype} {np.shape(result)} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


def outcome(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call returns or raises, prints and counts."""
    before, printed = counters.snapshot(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = bits(call())
        except (ValueError, IndexError, np.linalg.LinAlgError) as error:
            lines = [f"{f.name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
            result = f"{type(error).__name__}: {error} {getattr(error, '__notes__', [])} {lines[-1:]}"
    taken = counters.snapshot() - before
    counts = {event: getattr(taken, event) for event in counters.EVENTS}
    return {"found": result, "printed": printed.getvalue(), "ran": sorted(k for k, v in taken.runs.items() if v), **counts}


if __name__ == "__main__":
    print(json.dumps({name: outcome(CALLS[name]) for name in sys.argv[1:] or CALLS}))
