"""What LLVM makes of loops over the elements of arrays: the tests of an iteration."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.text import BRANCHY, HOT_LOOPS
from pullback.runtime.compile.engine import default_engine


def counted(x, n):
    h = np.zeros(n, np.int64)
    for i in range(len(x)):
        h[x[i]] += 1
    return h


def scattered(y, at, x):
    y = y.copy()
    for i in range(len(at)):
        y[at[i]] += x[i]
    return y


def gathered(x, at):
    s = 0.0
    for i in range(len(at)):
        s += x[at[i]]
    return s


AT = np.resize([3, -1, 0, 3, -5, 2], 90)
CALLS = {"counted": (counted, (AT, 5)), "scattered": (scattered, (np.ones(5), AT, np.arange(90.0))),
         "gathered": (gathered, (np.arange(5.0), AT))}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_an_index_is_tested_once_in_an_iteration(name: str) -> None:
    function, arguments = CALLS[name]
    text = pb.jit(function).stages(*arguments)["llvm"]
    driver = default_engine().optimised(text[text.index(HOT_LOOPS) :]).rpartition("define ")[2]
    assert len(re.findall(r"icmp u\w\w i64", driver)) == 1 and "smax" not in driver


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("outside", [5, -6, 2**63 - 1, -(2**63)])
def test_an_index_out_of_range_is_numpys_error(name: str, outside: int) -> None:
    function, arguments = CALLS[name]
    assert np.array_equal(pb.jit(function)(*arguments), function(*arguments))
    wrong = tuple(np.where(np.arange(90) >= 80, outside, AT) if a is AT else a for a in arguments)
    with pytest.raises(IndexError) as met:
        pb.jit(function)(*wrong)
    with pytest.raises(IndexError) as expected:
        function(*wrong)
    assert str(expected.value) in str(met.value)


def inserted(x):
    x = x.copy()
    for i in range(1, len(x)):
        v = x[i]
        j = i - 1
        while j >= 0 and x[j] > v:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = v
    return x


def test_a_condition_of_a_while_loop_is_a_branch() -> None:
    x = np.random.default_rng(0).normal(size=100)
    compiled = pb.jit(inserted)
    assert np.array_equal(compiled(x), np.sort(x))
    text = compiled.stages(x)["llvm"]
    assert "phi i1" not in default_engine().optimised(text[text.index(HOT_LOOPS) :]).rpartition("define ")[2]


def packed(weights, values, capacity):
    best = np.zeros((len(weights) + 1, capacity + 1))
    for i in range(1, len(weights) + 1):
        for c in range(capacity + 1):
            best[i, c] = best[i - 1, c]
            if weights[i - 1] <= c:
                t = best[i - 1, c - weights[i - 1]] + values[i - 1]
                if t > best[i, c]:
                    best[i, c] = t
    return best[len(weights), capacity]


def between(x, first, last, by):
    s = 0.0
    for k in range(first, last):
        s += x[k - by] * x[k]
    return s


def downwards(x, first, by):
    y = x.copy()
    for k in range(first, by - 1, -1):
        if y[k - by] > 0:
            y[k] = y[k] + y[k - by]
    return y


def shifted_at(x, at, w):
    y = np.zeros(len(x))
    for j in range(len(at)):
        y[j + w[0]] += x[at[j]]
    return y


def two_in_order(x, y, n):
    s = 0.0
    for k in range(n):
        s += x[k]
        y[k] = s
    return s


X = np.linspace(-1, 2, 90)
VERSIONS = {
    "between": (between, [(X, np.int64(a), np.int64(b), np.int64(c)) for a, b, c in
                          ((2, 90, 2), (50, 91, 3), (-3, 20, 1), (1, 40, 3), (0, 40, -60), (5, 5, 99), (9, 3, 99), (-91, 0, 0))]),
    "downwards": (downwards, [(X, np.int64(a), np.int64(b)) for a, b in
                              ((89, 3), (90, 3), (20, -5), (2, 9), (10**6, 10**6 - 50), (60, 0))]),
    "shifted_at": (shifted_at, [(X, np.arange(n) - shift, np.array([w])) for n, shift, w in
                                ((80, 0, 5), (80, 90, 5), (80, 91, 5), (80, 0, 11), (80, 0, -2), (80, 95, 80), (0, 0, 200))]),
}  # fmt: skip


def outcome(call):
    try:
        return call()
    except IndexError as error:
        return str(error)


@pytest.mark.parametrize("name", VERSIONS)
def test_loops_whose_indices_are_tested_before_them(name: str) -> None:
    function, calls = VERSIONS[name]
    compiled = pb.jit(function, loops="roll")
    for arguments in calls:
        expected, result = outcome(lambda: function(*arguments)), outcome(lambda: compiled(*arguments))  # noqa: B023
        if isinstance(expected, str):
            assert isinstance(result, str) and expected in result, arguments[1:]
        else:
            assert np.array_equal(result, expected), arguments[1:]


def test_a_loop_whose_index_is_out_of_range_late_writes_nothing() -> None:
    y = np.zeros(60)
    compiled = pb.jit(two_in_order, loops="roll")
    assert compiled(X, y, np.int64(60)) == two_in_order(X, np.zeros(60), 60) and y[59] != 0
    y[:] = 0
    with pytest.raises(IndexError, match="60"):
        compiled(X, y, np.int64(61))
    assert not y.any()


def test_a_loop_is_tested_before_it_and_has_no_tests_inside() -> None:
    arguments = X, np.int64(2), np.int64(90), np.int64(2)
    text = pb.jit(between, loops="roll").stages(*arguments)["lower"]
    with_checks, without = text.split("loop %")[1:]
    assert "failures" in with_checks and "failures" not in without
    kernels = {name: body for name, _, body in (kernel.partition("(") for kernel in text.split("kernel ")[1:])}
    inside = set(re.findall(r"kernel=(\w+)", without.partition("kernel k0(")[0]))
    assert inside and not any("below" in kernels[name] for name in inside)
    assert any("below" in kernels[name] for name in re.findall(r"kernel=(\w+)", with_checks))


def test_gradients_of_loops_of_two_versions() -> None:
    call = lambda x: between(x, np.int64(2), np.int64(90), np.int64(2))  # noqa: E731
    gradient = pb.grad(call)(X)
    expected = np.zeros(90)
    expected[2:] += X[:-2]
    expected[:-2] += X[2:]
    assert np.allclose(gradient, expected, rtol=1e-13)


def driver_of(function, *arguments) -> str:
    """The optimised driver of a call."""
    text = pb.jit(function).stages(*arguments)["llvm"]
    start = max(text.find(HOT_LOOPS), text.find(BRANCHY))
    return default_engine().optimised(text[start:], passes="full").rpartition("define ")[2]


def test_a_check_in_the_kernel_of_its_access_comes_first() -> None:
    rng = np.random.default_rng(0)
    arguments = rng.integers(1, 30, 40), rng.random(40), 400
    assert pb.jit(packed)(*arguments) == packed(*arguments)
    driver = driver_of(packed, *arguments)
    tests = re.findall(r"(%\S+) = icmp u\w\w i64", driver)
    assert tests and not any(f"select i1 {test}," in driver for test in tests)


def test_loads_of_arrays_that_nothing_writes_are_invariant() -> None:
    text = pb.jit(two_in_order, loops="roll").stages(X, np.zeros(90), np.int64(90))["llvm"]
    assert text.count("!invariant.load") >= 1
    assert not re.search("invariant.load", pb.jit(inserted, donate=0).stages(np.arange(100.0))["llvm"])


def counted_up_to_the_largest(x):
    h = np.zeros(x.max() + 1, np.int64)
    for i in range(len(x)):
        h[x[i]] += 1
    return h


def test_an_index_into_an_array_of_a_length_by_value_is_tested_once() -> None:
    x = np.resize([3, 7, 0, -1], 90)
    compiled = pb.jit(counted_up_to_the_largest)
    assert np.array_equal(compiled(x), counted_up_to_the_largest(x))
    assert "OverflowError" not in compiled.stages(x)["simplify"]
    with pytest.raises(IndexError, match="index -9 is out of bounds for axis 0 with size 8"):
        compiled(np.where(x == -1, -9, x))
    assert len(re.findall(r"icmp u\w\w i64", driver_of(counted_up_to_the_largest, x))) == 1
