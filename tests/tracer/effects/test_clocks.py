"""Reads of the clock are made at each call, after what is before them and before what is after them."""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer import trace
from tests.support.api import traces

NAP = 0.02
"""Time for which a callback sleeps, in seconds: far more than the rest of a program takes."""
CLOCKS = ["time", "perf_counter", "monotonic", "process_time", "thread_time"]


def nap(x: Any) -> Any:
    """Return an array after a while, in a program too."""

    def sleep(v: Any) -> Any:
        time.sleep(NAP)
        return v

    return pb.callback(sleep, x, x)


@pytest.mark.parametrize("name", [*CLOCKS, *(f"{name}_ns" for name in CLOCKS)])
def test_each_call_reads_the_clock(name: str) -> None:
    clock = getattr(time, name)
    compiled = pb.jit(lambda x: (np.sum(x), clock()))
    before, reads = clock(), [compiled(np.ones(3))[1] for _ in range(5)]
    times = [before, *reads, clock()]
    assert times == sorted(times)
    assert {type(read) for read in reads} == {type(before)}
    assert reads[-1] > before or name.startswith(("process", "thread"))


def test_what_is_before_a_read_has_finished_and_what_is_after_it_has_not_begun() -> None:
    def f(x: Any) -> Any:
        a = nap(x)
        t0 = time.perf_counter()
        b = np.sin(x)
        t1 = perf_counter()
        c = nap(x)
        t2 = time.perf_counter()
        return a + b + c, t1 - t0, t2 - t1

    compiled = pb.jit(f)
    for _ in range(2):
        start = time.perf_counter()
        _, short, long = compiled(np.ones(3))
        assert time.perf_counter() - start > 2 * NAP
        assert 0 <= short < NAP <= long


def test_kernels_are_not_fused_across_a_read() -> None:
    def f(x: Any, w: Any) -> Any:
        y = np.sin(x)
        t0 = time.perf_counter()
        z = y * w
        return z, time.perf_counter() - t0

    ops = [i.op.name for i in trace(f, (np.ones(3), np.ones(3))).function.instructions]
    assert ops == ["sin", "clock", "mul", "clock", "sub"]
    words = [line.split()[0] for line in pb.jit(f).stages(np.ones(3), np.ones(3))["lower"].splitlines() if line.strip()]
    steps = [word for word in words if word in ("launch", "clock")]
    assert steps == ["launch", "clock", "launch", "clock", "launch"]


class Model:
    """A class that times its evaluations."""

    def __init__(self) -> None:
        self.calls, self.seconds, self.last = 0, 0.0, 0

    def loss(self, w: Any) -> Any:
        start, begin = time.perf_counter(), time.perf_counter_ns()
        self.calls += 1
        value = np.sum(np.sin(w) ** 2)
        self.seconds += time.perf_counter() - start
        self.last = time.perf_counter_ns() - begin
        return value


@pytest.mark.parametrize("transform", [pb.jit, pb.value_and_grad, pb.grad, pb.hessian])
def test_a_class_that_times_itself(transform: Callable[..., Any]) -> None:
    model, plain = Model(), Model()
    compiled, expected = transform(model.loss), transform(lambda w: np.sum(np.sin(w) ** 2))
    w = np.arange(4.0)
    compiled(w)
    count = traces()
    for k in range(3):
        start, seconds = time.perf_counter(), model.seconds
        result = compiled(w + k)
        total = time.perf_counter() - start
        assert 0 < model.seconds - seconds < total and 0 < model.last < total * 1e9
        for mine, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (result, expected(w + k))), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-14)
    plain.loss(w)
    assert traces() - count <= 1 and model.calls == 4
    assert [type(x) for x in vars(model).values()] == [type(x) for x in vars(plain).values()]


def test_derivatives_pass_through_a_read() -> None:
    def timed(x: Any, y: Any) -> Any:
        a = np.sin(x) * y
        t = time.time()
        b = a * x + y
        u = time.time()
        return np.sum(a * b) + 0.0 * (u - t)

    def plain(x: Any, y: Any) -> Any:
        a = np.sin(x) * y
        return np.sum(a * (a * x + y))

    x, y = np.arange(1.0, 4.0), np.array([0.5, -1.0, 2.0])
    for transform in (pb.grad, pb.hessian, lambda f: pb.grad(pb.checkpoint(f)), lambda f: lambda *a: pb.jvp(f, a, a)[1]):
        np.testing.assert_allclose(transform(timed)(x, y), transform(plain)(x, y), rtol=1e-13)


def test_arrays_that_are_written_around_a_read() -> None:
    def f(x: Any) -> Any:
        x[0] = 5.0
        t = time.time()
        y = x * 2
        x[1] = y[0]
        u = time.time()
        x[2] = u >= t
        return y, x

    mine, plain = np.zeros(4), np.zeros(4)
    result, expected = pb.jit(f)(mine), f(plain)
    np.testing.assert_array_equal(mine, plain)
    np.testing.assert_array_equal(result[0], expected[0])
    assert result[1] is mine


def test_a_time_decides_and_is_printed(capsys: Any) -> None:
    def f(x: Any) -> Any:
        start = time.perf_counter()
        total = np.sum(x)
        elapsed = time.perf_counter() - start
        print(f"in time: {elapsed < 60.0}")
        return total if elapsed < 60.0 else -total

    compiled = pb.jit(f)
    assert [compiled(np.ones(3)), compiled(np.ones(3) * 2)] == [3.0, 6.0]
    assert capsys.readouterr().out == "in time: True\n" * 2


def in_a_loop(x: Any) -> Any:
    total = 0.0
    while total < x[0]:
        total += time.time()
    return total


def in_a_branch(x: Any) -> Any:
    return time.time() if x[0] > 0 else 0.0


def under_vmap(x: Any) -> Any:
    return pb.vmap(lambda row: row * time.time())(x)


def in_a_scan(x: Any) -> Any:
    return pb.fori_loop(0, 3, lambda i, c: c + time.time(), x[0])


@pytest.mark.parametrize("program", [in_a_loop, in_a_branch, under_vmap, in_a_scan])
def test_a_read_that_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(pb.TraceError, match=r"clock|traced value"):
        pb.jit(program, guards=False)(np.ones(3))


def test_effects_of_the_trace_read_the_clock_once() -> None:
    compiled = pb.jit(lambda x: (np.sum(x), time.time()), effects="trace")
    assert compiled(np.ones(3)) == compiled(np.ones(3))
