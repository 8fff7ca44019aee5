"""Workloads that show whether something became slower: a fit, a softmax of distributions, the demo's step, scalar loops."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from benchmarks.case import Arguments, Case
from benchmarks.cases import elementwise, loops

Array = Any
ONLY = ("regression",)


def fit(x: Array, y: Array, t: Array) -> Array:
    z = np.tanh(x * y)
    return np.mean(np.logaddexp(0.0, z * y) - t * x * np.exp(-z))


def fit_by_hand(x: Array, y: Array, t: Array) -> Any:
    n = len(x)
    z = np.tanh(x * y)
    zy = z * y
    decay = t * np.exp(-z)
    value = np.mean(np.logaddexp(0.0, zy) - decay * x)
    share = 1.0 / (1.0 + np.exp(-zy))
    dz = (share * y + decay * x) * (1.0 - z * z)
    return value, ((dz * y - decay) / n, (dz * x + share * z) / n)


def three_vectors(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(1)
    return tuple(rng.normal(size=n).astype(dtype) for _ in range(3))


def softmax(z: Array, y: Array) -> Array:
    z = z - np.max(z, axis=1, keepdims=True)
    log_p = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(np.sum(y * log_p, axis=1))


def softmax_by_hand(z: Array, y: Array) -> Any:
    z = z - np.max(z, axis=1, keepdims=True)
    e = np.exp(z)
    total = np.sum(e, axis=1, keepdims=True)
    value = -np.mean(np.sum(y * (z - np.log(total)), axis=1))
    return value, ((e * (np.sum(y, axis=1, keepdims=True) / total) - y) / len(z),)


def distributions(dtype: Any, rows: int, columns: int) -> Arguments:
    rng = np.random.default_rng(2)
    return rng.normal(size=(rows, columns)).astype(dtype), np.eye(columns, dtype=dtype)[rng.integers(0, columns, rows)]


def recurrence(a: Array, u: Array) -> Array:
    """A cubic oscillator driven by u; the last position."""

    def step(h: Array, u_t: Array) -> Any:
        return h + a * (u_t - h * h * h), None

    h, _ = pb.scan(step, 0.0 * a, u)
    return h


def recurrence_by_hand(a: Array, u: Array) -> Array:
    h = 0.0
    for u_t in u.tolist():
        h = h + a * (u_t - h * h * h)
    return np.float64(h)


def recurrence_grad_by_hand(a: Array, u: Array) -> Any:
    values, h = [], 0.0
    inputs = u.tolist()
    for u_t in inputs:
        values.append(h)
        h = h + a * (u_t - h * h * h)
    du, ct, da = np.empty(len(u)), 1.0, 0.0
    for t in reversed(range(len(u))):
        before = values[t]
        da += ct * (inputs[t] - before * before * before)
        du[t] = ct * a
        ct = ct * (1 - 3 * a * before * before)
    return np.float64(h), (np.float64(da), du)


def driven(dtype: Any, n: int) -> Arguments:
    return np.asarray(0.01, dtype), np.sin(np.arange(n) / 50).astype(dtype)


def digits() -> Any:
    """The module of the demo program."""
    path = Path(__file__).parent.parent.parent / "examples" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEMO = digits()


def demo_arguments(dtype: Any) -> Arguments:
    *network, x, y = DEMO.example()
    return DEMO.Network(*network), DEMO.Network(*[np.zeros_like(w) for w in network]), x, y, 0.1


def recurrence_case(kind: str, **rest: Any) -> Case:
    shared = {"function": recurrence, "make": driven, "sizes": {"n": 10**5}, "small": {"n": 50}, "dtypes": ("float64",)}
    return Case(workload="recurrence", name=f"{kind}-n1e5", sets=ONLY, **shared, **rest)


CASES = [
    elementwise.chain_case(
        "grad-n1e6",
        2,
        None,
        n=10**6,
        sets=ONLY,
        function=elementwise.chain,
        by_hand=elementwise.chain_by_hand,
        wanted=(0, 1),
    ),
    Case(
        workload="fit",
        name="grad-n1e6",
        function=fit,
        by_hand=fit_by_hand,
        make=three_vectors,
        sizes={"n": 10**6},
        small={"n": 37},
        wanted=(0, 1),
        sets=ONLY,
    ),
    Case(
        workload="softmax",
        name="grad-4096x1000",
        function=softmax,
        by_hand=softmax_by_hand,
        make=distributions,
        sizes={"rows": 4096, "columns": 1000},
        small={"rows": 5, "columns": 21},
        wanted=(0,),
        sets=ONLY,
    ),
    Case(
        workload="demo",
        name="step-b64",
        function=DEMO.step.__wrapped__,
        by_hand=DEMO.step_by_hand,
        make=demo_arguments,
        sizes={},
        small={},
        dtypes=("float64",),
        sets=ONLY,
    ),
    loops.lstm_case(
        "one",
        2.5,
        by_hand=loops.lstm_by_hand,
        wanted=(0, 1),
        sizes={"steps": 1000, "batch": 1, "hidden": 32},
        sets=ONLY,
    ),
    recurrence_case("fwd", by_hand=recurrence_by_hand),
    recurrence_case("grad", by_hand=recurrence_grad_by_hand, wanted=(0, 1)),
]
