"""Divisions of integers by a number that does not change in a loop: NumPy's results, without division instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.cli.main import main
from pullback.codegen.cpu.llvm.floor_division import NONE, POWER
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.text import parse_module, print_function

Array = np.ndarray[Any, np.dtype[Any]]
MOST = 2**63 - 1
DIVISORS = (
    5, 6, 7, 8, 9, 10, 11, 64, 100, 641, 1000, 65521, 65536, 2**31 - 1, 2**31, 2**31 + 1, 10**9 + 7, 2**32 - 1, 2**32, 2**32 + 1,
    6700417, 10**18, 2**61 - 1, 2**61 + 1, 2**62 - 1, 2**62, 2**62 + 1, MOST - 1, MOST, -3, -5, -10, -(2**31), -(2**62), -MOST,
    -MOST - 1,
)  # fmt: skip
KERNEL = """pullback-ir 2

kernel k(%x: &i64[], %d: i64[], %out0: &i64[], %out1: &i64[]) -> () {
  %0: i64[] = load %x
  %1: i64[] = floordiv %0, %d
  %2: i64[] = mod %0, %d
  store %1, %out0
  store %2, %out1
  return
}
"""
SCHEDULED = """\
kernel k(%x: &i64[], %d: i64[], %out0: &i64[], %out1: &i64[]) -> () {
  %0: i64[] = load %x
  %1: i64[] = floor_quotient %0, %d
  %2: i64[] = floor_remainder %0, %d
  store %1, %out0
  store %2, %out1
  return
}"""


def dividing(d: int) -> Callable[[Array], tuple[Array, Array]]:
    """Return a function whose loop divides by a constant, such that one iteration needs the one before."""

    def divide(steps: Array) -> tuple[Array, Array]:
        quotients, remainders = np.zeros_like(steps), np.zeros_like(steps)
        last = np.int64(0)
        for i in range(len(steps)):
            last = last + steps[i]
            quotients[i] = last // d
            remainders[i] = last % d
        return quotients, remainders

    return divide


def dividends(d: int) -> Array:
    """Return integers of all sizes, with those next to multiples of a divisor and to the ends of the type."""
    rng = np.random.default_rng(0)
    of_all_sizes = rng.integers(-MOST - 1, MOST, 300) >> rng.integers(0, 63, 300)
    multiples = of_all_sizes // d * d
    ends = np.array([0, 1, -1, MOST, MOST - 1, -MOST, -MOST - 1])
    with np.errstate(over="ignore"):
        return np.concatenate([of_all_sizes, multiples - 1, multiples, multiples + 1, ends])


def test_the_schedule_has_ops_for_divisions_by_parameters() -> None:
    assert print_function(schedule(parse_module(KERNEL)["k"])) == SCHEDULED


@pytest.mark.parametrize("d", DIVISORS)
def test_quotients_and_remainders_are_numpys(d: int) -> None:
    x = dividends(d)
    quotients, remainders = pb.jit(dividing(d), loops="roll")(np.diff(x, prepend=np.int64(0)))
    np.testing.assert_array_equal(quotients, x // d)
    np.testing.assert_array_equal(remainders, x % d)


def test_the_reciprocals_that_are_no_multipliers_are_small() -> None:
    assert max(NONE, POWER) < 2**63


def test_a_loop_divides_by_a_multiplication(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "digits.py"
    path.write_text(
        "def total(x):\n    s = 0\n    m = x[0]\n    while m > 0:\n        s += m % 10\n        m //= 10\n    return s\n"
    )
    assert not main(["dump", f"{path}:total", "i64[3]", "--stage", "llvm"])
    text = capsys.readouterr().out
    assert text.count("call i64 @reciprocal(") == 1
    assert "@floor_remainder(" in text and "sdiv" not in text.split("define i64")[1]
