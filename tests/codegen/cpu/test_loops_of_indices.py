"""What LLVM makes of loops over the elements of arrays: the tests of an iteration."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.text import HOT_LOOPS
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
