"""Tests of Python's ints and index errors in rolled loops, against CPython."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb


def hashed(n: Any) -> Any:
    h = 14695981039346656037
    for i in range(n):
        h = ((h ^ i) * 1099511628211) % 2**64
    return h


def factorial(n: Any) -> Any:
    p = 1
    for i in range(1, n + 1):
        p *= i
    return p


def fibonacci(n: Any) -> Any:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def shifted(n: Any) -> Any:
    total = 0
    for i in range(n):
        total += 1 << i
    return total


def powers(n: Any) -> Any:
    total = 0.0
    for i in range(1, n):
        total += i**-1 + 0**i + 0.5**i
    return total


def divisions(n: Any) -> Any:
    total = 0
    for i in range(-n, n):
        total += i // 3 - i % -4 + (-i) // 7 + (isinstance(i, int) and i < 2.5)
    return total


@pytest.mark.parametrize("function", [hashed, factorial, fibonacci, shifted, powers, divisions])
@pytest.mark.parametrize("n", [0, 1, 20, 100])
def test_ints_are_exact_or_raise(function: Callable[[Any], Any], n: int) -> None:
    expected = function(n)
    assert pb.jit(function, loops="roll")(n) == pytest.approx(expected, rel=1e-15 if isinstance(expected, float) else 0)
    try:
        result = pb.jit(function, loops="roll")(np.int64(n))
    except (OverflowError, pb.TraceError):
        assert function in (hashed, factorial, fibonacci, shifted)
    else:
        assert result == pytest.approx(expected, rel=1e-14 if isinstance(expected, float) else 0)


def read(a: Any, at: Any) -> Any:
    total = 0.0
    for i in range(len(at)):
        total += a[at[i]]
    return total


def add(a: Any, at: Any) -> Any:
    for i in range(len(at)):
        a[at[i]] += 1.0
    return a


@pytest.mark.parametrize("function", [read, add])
@pytest.mark.parametrize("at", [[0, -10, 9], [0, 3, 3, 11, -12], [2, -11], list(np.arange(3000) % 13)])
def test_an_index_out_of_range_raises_numpys_error_and_writes_nothing(function: Callable[..., Any], at: list[int]) -> None:
    a, expected = np.arange(10.0), np.arange(10.0)
    compiled = pb.jit(function, loops="roll")
    try:
        result = function(expected, np.array(at))
    except IndexError as error:
        with pytest.raises(IndexError) as caught:
            compiled(a, np.array(at))
        assert str(caught.value) == str(error)
        np.testing.assert_equal(a, np.arange(10.0))
    else:
        np.testing.assert_equal(compiled(a, np.array(at)), result)


def test_steps_of_ranges_are_values() -> None:
    def total(n: Any, step: Any) -> Any:
        s = 0.0
        for i in range(0, n, step):
            s += i
        return s

    compiled = pb.jit(total, loops="roll")
    for n, step in ((10, 3), (-10, -3), (10, -3), (0, 1)):
        assert compiled(np.int64(n), np.int64(step)) == total(n, step)
    with pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"):
        compiled(np.int64(10), np.int64(0))


ENDLESS = """
import signal
import numpy as np, pullback as pb

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores the signal

def nested(a, x):
    while x > 0:
        for i in range(4):
            if x > 1:
                a[i] = a[i] + 1.0 / x
        x = x + 1.0 - 1.0
    return a

a = np.zeros(4)
print("runs", flush=True)
try:
    pb.jit(nested, loops="roll")(a, 2.0)
except KeyboardInterrupt:
    print("interrupted", a.sum(), flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="the signal is one of POSIX")
def test_an_endless_nested_loop_is_interrupted(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "runs\n"
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "interrupted 0.0\n"
