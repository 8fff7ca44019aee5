"""Tests of numbers that are ints, bools or floats of Python, as values decide: calls return CPython's numbers, types included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.text import print_function
from pullback.tracer.trace import trace
from tests.support.outcomes import said


def root_or_zero(x: Any) -> Any:
    if x < 0:
        return 0
    return math.sqrt(x)


def sum_or_zero(x: Any) -> Any:
    if x[0] < 0:
        return 0
    return np.sum(x)


def payoff(s: Any, k: Any) -> Any:
    return max(0, s - k)


def scaled_payoff(s: Any, k: Any) -> Any:
    return max(0, s - k) * 2 + 1


def halved_payoff(s: Any, k: Any) -> Any:
    return max(0, s - k) / 2


def sum_above(x: Any, t: Any) -> Any:
    s = 0
    for v in x:
        if v > t:
            s += v
    return s


def sum_of_sines(x: Any, t: Any) -> Any:
    s = 0
    for i in range(300):
        if math.sin(i * t) > x:
            s += math.sin(i * t)
    return s


def false_or_three(x: Any) -> Any:
    r = False
    if x > 0:
        r = 3
    return r


def one_of_three(x: Any) -> Any:
    if x > 0:
        return True
    if x < -1:
        return 2
    return 1.5


def halves(x: Any, t: Any) -> Any:
    n = 0
    for i in range(100):
        if i * t > x:
            n += 1
        if i * t > 2 * x:
            n += 0.5
    return n


def inverse(x: Any) -> Any:
    n = 0
    if x > 0:
        n = x
    return 1 / n


def remainders(x: Any) -> Any:
    n = 0
    if x > 0:
        n = x
    return 7 // n, 7 % n


def operators(x: Any) -> Any:
    n = 2
    if x > 0:
        n = x
    return n ** -1, n ** 2, -n, abs(n), n // 2, n % 2, 3 - n


def shown(x: Any) -> Any:
    n = 2
    if x > 0:
        n = x
    return f"{n}", isinstance(n, int), isinstance(n, float), str(n * 2)


def listed(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out.append(float(v))
        else:
            out.append(0)
    return out


def three_types(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out.append(v)
        elif v < -1:
            out.append(1.5)
        else:
            out.append(0)
    return out


def in_a_dict(x: Any) -> Any:
    d = {}
    for v in x:
        k = int(v)
        d[k] = d.get(k, 0) + float(v)
    return d


def grown(x: Any) -> Any:
    n = 1
    while n < x:
        n = n * 1.5
    return n


def least(x: Any) -> Any:
    b = 10**18
    for v in x:
        if v < b:
            b = v
    return b


def of_a_call(x: Any) -> Any:
    g = pb.jit(payoff)
    return g(x, 1.0), g(x, 1.0) + 1


def conversions(x: Any) -> Any:
    n = 3
    if x > 0:
        n = x
    return round(n, 1), round(n), int(n), float(n), bool(n), divmod(n, 2)


def attribute(x: Any) -> Any:
    n = 3
    if x > 0:
        n = x
    return n.is_integer()


def parts(x: Any) -> Any:
    n = 3
    if x > 0:
        n = x
    return n.real, n.conjugate()


def conditional(x: Any, n: Any) -> Any:
    return (x / n if n > 0 else 0) + 0


def bits(n: Any) -> Any:
    total = value = 0
    for i in range(200):
        value = value * 3 + i * n
        if abs(value) > 2**40:
            value = 5 - value % 12345
        total += value.bit_length() - value.bit_count()
    return total


def whole_numbers(x: Any) -> Any:
    count = 0
    for i in range(100):
        if (i * x).is_integer():
            count += 1
    return count, x.is_integer()


def signed_zeros(x: Any) -> Any:
    n = 0
    if x > 0:
        n = x
    return math.copysign(1.0, -n), math.copysign(1.0, n * -3), f"{-n}"


def rounded_sum(x: Any) -> Any:
    total = 0
    for i in range(300):
        total = round(total + x, 2) if i % 3 else round(total - x, 1)
    return total, round(total, -1), round(total)


PAYOFF = """
func payoff(%s: f64[], %k: f64[]) -> (f64[], i8[]) {
  %0: f64[] = sub %s, %k
  %1: f64[] = const {value=0.0}
  %2: bool[] = gt %0, %1
  %3: f64[] = const {value=0.0}
  %4: f64[] = select %2, %0, %3
  %5: i8[] = const {value=3}
  %6: i8[] = const {value=2}
  %7: i8[] = select %2, %5, %6
  return %4, %7
}
"""


def test_the_type_is_a_value_of_the_program() -> None:
    assert print_function(trace(payoff, (3.0, 2.0)).function).strip() == PAYOFF.strip()


DRAWS = np.random.default_rng(0).standard_normal(100)
PRICES: Any = [(1.0, 2.0), (3.0, 2.0), (2.0, 2.0), (np.float64(1.0), 2.0), (np.float64(3.0), 2.0)]
NUMBERS: Any = [(2.55,), (-2.0,), (np.float64(2.5),), (np.float64(-2.0),)]
CASES: list[tuple[Callable[..., Any], Any]] = [
    (root_or_zero, [(-1.0,), (2.0,)]),
    (sum_or_zero, [(np.array([-1.0, 2.0]),), (np.array([1.0, 2.0]),)]),
    *((f, PRICES) for f in (payoff, scaled_payoff, halved_payoff)),
    (sum_above, [(DRAWS, 0.5), (DRAWS, 100.0), (DRAWS[:0], 0.5)]),
    (sum_of_sines, [(0.5, 0.1), (2.0, 0.1)]),
    (false_or_three, [(1.0,), (-1.0,)]),
    (one_of_three, [(1.0,), (-2.0,), (-0.5,)]),
    (halves, [(20.0, 1.0), (60.0, 1.0), (200.0, 1.0)]),
    *((f, NUMBERS) for f in (inverse, remainders, operators, shown, conversions, parts, signed_zeros)),
    (attribute, [(2.5,), (3.0,)]),
    (listed, [(DRAWS,), (-abs(DRAWS),)]),
    (three_types, [(DRAWS,), (-abs(DRAWS),), (2 * DRAWS,)]),
    (in_a_dict, [(3 * DRAWS,)]),
    (grown, [(0.5,), (20.0,)]),
    (least, [(DRAWS,), (DRAWS[:0],)]),
    (of_a_call, [(0.5,), (2.5,)]),
    (conditional, [(2.5, 3), (2.5, 0), (2.5, np.int64(3)), (2.5, np.int64(0))]),
    (bits, [(3,), (np.int64(3),)]),
    (whole_numbers, [(0.25,), (0.1,), (3.0,), (math.inf,)]),
    (rounded_sum, [(0.105,), (-2.675,)]),
]  # fmt: skip


def outcome(function: Callable[..., Any], arguments: Any) -> Any:
    """Return the result of a call, or the type of its exception and what this says."""
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    except Exception as error:
        return type(error), said(error)


def agrees(result: Any, expected: Any) -> bool:
    """Return whether two trees have equal numbers of the same types."""
    if isinstance(expected, tuple | list):
        return type(result) is type(expected) and len(result) == len(expected) and all(map(agrees, result, expected))
    if isinstance(expected, dict):
        return agrees(list(result.items()), list(expected.items()))
    return type(result) is type(expected) and (result == expected or result != result)


@pytest.mark.filterwarnings("ignore:::numpy")
def test_results_have_the_types_of_their_paths() -> None:
    for function, calls in CASES:
        compiled = pb.jit(function)
        for arguments in calls:
            expected = outcome(function, arguments)
            for _ in range(2):
                result = outcome(compiled, arguments)
                assert agrees(result, expected), (function.__name__, arguments, result, expected)


def test_derivatives_and_batches() -> None:
    assert pb.grad(payoff)(3.0, 2.0) == 1.0 and pb.grad(payoff)(1.0, 2.0) == 0.0
    assert pb.grad(pb.grad(lambda s: max(0, s - 1.0) ** 3))(3.0) == 12.0
    value, gradient = pb.value_and_grad(sum_above)(DRAWS, 0.5)
    assert value == sum_above(DRAWS, 0.5) and np.array_equal(gradient, DRAWS > 0.5)
    assert np.array_equal(pb.vmap(payoff)(np.arange(4.0), np.ones(4)), [0.0, 0.0, 1.0, 2.0])
    tangent = pb.jvp(lambda s: max(0, s) * 2.0, (1.5,), (1.0,))[1]
    assert tangent == 2.0


def test_programs_in_files_return_the_type(tmp_path: Any) -> None:
    pb.export(payoff, 3.0, 2.0, path=tmp_path / "payoff")
    exported = pb.load(tmp_path / "payoff.so", trust=True)
    assert agrees([exported(1.0, 2.0), exported(3.0, 2.0)], [0, 1.0])
