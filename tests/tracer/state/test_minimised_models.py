"""Models of classes that count their calls, keep what they computed and print each tenth call, as losses of a minimiser."""

from __future__ import annotations

import gc
import math
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import pullback as pb
from tests.support.api import traces

RNG = np.random.default_rng(37)
CALLS = 100_000
"""Calls of one model in the long test."""
MOST_OVERHEAD = 2_000_000
"""Bytes by which a process may grow in these calls, besides the history: caches of the allocator."""


class Model:
    """A loss with a history, which prints each tenth call."""

    size = 3

    def __init__(self) -> None:
        self.calls, self.last, self.history = 0, None, list[float]()
        self.best: dict[str, Any] = {"loss": math.inf, "w": None}

    def loss(self, w: Any) -> Any:
        raise NotImplementedError

    def __call__(self, w: Any) -> Any:
        self.calls += 1
        loss = self.loss(w)
        self.last = loss
        self.history.append(float(loss))
        self.best["w"] = w
        if self.calls % 10 == 0:
            print(f"call {self.calls}: loss {loss:.6f}, {len(w)} weights")
        return loss


class Line(Model):
    def __init__(self) -> None:
        super().__init__()
        self.x = np.linspace(0, 1, 50)
        self.y = 1 + 2 * self.x - 3 * self.x**2

    def loss(self, w: Any) -> Any:
        r = self.y - (w[0] + w[1] * self.x + w[2] * self.x**2)
        return np.sum(r * r)


class Logistic(Model):
    size = 4

    def __init__(self) -> None:
        super().__init__()
        self.x = np.random.default_rng(0).normal(size=(40, 4))
        self.y = (self.x @ np.array([1.0, -2.0, 0.5, 0.0]) > 0) * 1.0
        self.penalties = 0

    def penalty(self, w: Any) -> Any:
        self.penalties += 1
        return 0.05 * np.sum(w * w)

    def loss(self, w: Any) -> Any:
        z = self.x @ w
        return np.mean(np.logaddexp(0, z) - self.y * z) + self.penalty(w)


class Decay(Model):
    """The sum over a loop of steps of an explicit method."""

    size = 2

    def __init__(self) -> None:
        super().__init__()
        self.data = [math.exp(-0.7 * 0.1 * k) for k in range(20)]
        self.states = list[Any]()

    def loss(self, w: Any) -> Any:
        y, total = w[0], 0.0
        for d in self.data:
            total += (y - d) ** 2
            y = y - 0.1 * w[1] * y
        self.states.append((y, self.calls))
        return total


class Layers(Model):
    size = 2 * 3 + 3

    def __init__(self) -> None:
        super().__init__()
        self.x = np.random.default_rng(1).normal(size=(30, 2))
        self.y = np.tanh(self.x[:, 0] - self.x[:, 1])
        self.outputs: dict[str, Any] = {}

    def forward(self, w: Any) -> Any:
        hidden = np.tanh(self.x @ w[:6].reshape(2, 3))
        self.outputs["hidden"] = hidden
        return hidden @ w[6:]

    def loss(self, w: Any) -> Any:
        return np.mean((self.forward(w) - self.y) ** 2)


MODELS = [Line, Logistic, Decay, Layers]


def state(model: Model) -> list[Any]:
    """Return the numbers and arrays that a model holds, in order, with the types of all numbers."""
    result: list[Any] = []

    def add(x: Any) -> None:
        if isinstance(x, dict):
            x = [part for pair in x.items() for part in pair]
        if isinstance(x, list | tuple):
            for item in x:
                add(item)
        else:
            result.append((type(x), x))

    add(vars(model))
    return result


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "CG"])
def test_a_minimiser_leaves_what_the_uncompiled_program_leaves(kind: Any, method: str, capsys: Any) -> None:
    mine, plain, points = kind(), kind(), list[Any]()
    compiled = pb.value_and_grad(mine)

    def recorded(w: Any) -> Any:
        points.append(w)
        return compiled(w)

    start = 0.1 * np.random.default_rng(kind.size).normal(size=kind.size)
    result = minimize(recorded, start, jac=True, method=method, options={"maxiter": 400})
    printed = capsys.readouterr().out
    for w in points:
        plain(w)
    assert capsys.readouterr().out == printed and len(printed.splitlines()) == len(points) // 10
    assert mine.calls == len(points) == len(mine.history)
    for (my_type, a), (type_, b) in zip(state(mine), state(plain), strict=True):
        assert my_type is type_
        if isinstance(a, float | np.ndarray):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
        else:
            assert a == b
    assert mine.best["w"] is plain.best["w"] is points[-1]
    assert compiled.cache_info().templates_built <= 2
    expected = minimize(kind(), start, method=method, options={"maxiter": 400})
    assert result.fun <= expected.fun + 1e-6


@pytest.mark.parametrize("kind", MODELS)
def test_calls_need_no_new_trace(kind: Any, capsys: Any) -> None:
    model = kind()
    compiled = pb.value_and_grad(model)
    for k in range(40):
        if k == 4:
            before = traces()
        compiled(RNG.normal(size=kind.size))
    assert traces() == before
    assert model.calls == len(model.history) == 40


def _resident() -> int:
    """Return the bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_calls_take_constant_time_and_memory(capsys: Any) -> None:
    model = Logistic()
    compiled = pb.value_and_grad(model)
    points = RNG.normal(size=(64, 4))

    def run(count: int) -> float:
        begin = time.process_time()
        for k in range(count):
            compiled(points[k % 64])
        return time.process_time() - begin

    run(2000)
    capsys.readouterr()
    before, resident = traces(), _resident()
    first = run(1000)
    capsys.readouterr()
    for _ in range(CALLS // 1000 - 2):
        run(1000)
        capsys.readouterr()  # the printed lines are no memory of the calls
    last = run(1000)
    gc.collect()
    history = sys.getsizeof(model.history) + sum(map(sys.getsizeof, model.history))
    grown = _resident() - resident
    assert traces() == before
    assert model.calls == len(model.history) == CALLS + 2000
    assert grown < 2 * history + MOST_OVERHEAD
    tracemalloc.start()
    try:
        run(100)
        base = tracemalloc.get_traced_memory()[0]
        capacity = sys.getsizeof(model.history)
        run(1000)
        gc.collect()
        grown_objects = tracemalloc.get_traced_memory()[0] - base
    finally:
        tracemalloc.stop()
    own = 1000 * sys.getsizeof(1.0) + sys.getsizeof(model.history) - capacity
    capsys.readouterr()
    print(f"time of the last thousand calls: {last / first:.2f} of the first; grown by {grown:,} bytes, history {history:,}")
    assert grown_objects < own + 100_000
