"""Sorts and scatters in CUDA C, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.cuda.host_programs import Make, emitted, expected, run_program, scheduled, traced
from tests.support.cuda.targets import on_each
from tests.support.golden_files import assert_same

SHAPES = [(0,), (1,), (300,), (9000,), (20001,), (5, 300), (0, 3), (3, 0), (2, 9001)]
DTYPES = ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u1"]


def run(machine: Make, call: Any, *args: Any) -> tuple[Any, Any]:
    function, values = traced(call, *args)
    return run_program(machine, function, values), expected(function, values)


def some(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers with many equals, and all kinds that order."""
    x = np.random.default_rng(5).integers(0 if dtype[0] == "u" else -60, 60, shape)
    if dtype[0] != "f":
        return x.astype(dtype)
    result = x.astype(dtype) / 8
    result[..., 1:2], result[..., 2:3], result[..., 3:4], result[..., 4:5] = np.nan, np.inf, -np.inf, -0.0
    return result


@on_each
@pytest.mark.parametrize("dtype", DTYPES)
def test_sorts_and_orders(machine: Make, dtype: str) -> None:
    shapes = SHAPES if dtype in ("f8", "u1") else [(9000,), (5, 300)]

    def call(*arrays: Any) -> Any:
        return [(np.sort(a, axis=-1), np.argsort(a, axis=-1, kind="stable")) for a in arrays]

    result, wanted = run(machine, call, *(some(s, dtype) for s in shapes))
    for a, b in zip(result, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


@on_each
def test_sums_of_what_goes_to_one_place(machine: Make) -> None:
    rng = np.random.default_rng(6)
    values, table = rng.integers(-9, 10, 20000).astype(float), rng.integers(-9, 10, (70, 5)).astype(float)
    few, many = rng.integers(0, 3, 20000), rng.integers(0, 70000, 20000)

    def call(v: Any, t: Any, i: Any, k: Any) -> Any:
        wide = np.zeros(70000)
        wide[k] = v
        looked_up = pb.grad(lambda a: np.sum(a[i % 70, :2] ** 2))(t)
        return np.bincount(i, v, minlength=4), np.bincount(k, v, minlength=70000), wide, looked_up, np.bincount(i, minlength=4)

    assert_same(*run(machine, call, values, table, few, many))


@on_each
def test_scatters_to_several_axes(machine: Make) -> None:
    rng = np.random.default_rng(7)
    base, i, j = rng.integers(0, 9, (6, 5, 4)).astype(float), rng.integers(0, 6, (3, 50)), rng.integers(-4, 4, (3, 50))
    v = rng.integers(0, 9, (3, 50, 5)).astype(float)

    def call(a: Any, i: Any, j: Any, v: Any) -> Any:
        b, c, d = a.copy(), a.copy(), a.copy()
        np.add.at(b, (i, slice(None), j), v)
        c[i, :, j] = v
        d[i[0]] = 2.0
        e = a.astype(int)
        np.add.at(e, (i, slice(None), j), v.astype(int))
        return b, c, d, e

    assert_same(*run(machine, call, base, i, j, v))


@on_each
def test_gradient_of_a_table(machine: Make) -> None:
    rng = np.random.default_rng(8)
    t, i = rng.normal(size=(40, 300)), rng.integers(0, 40, 90)
    assert_same(*run(machine, pb.value_and_grad(lambda t: np.sum(np.sin(t[i]) ** 2)), t), bitwise=False, rtol=1e-9)


def test_turns_are_those_that_keys_ask_for() -> None:
    function, _ = traced(lambda i, v: np.bincount(i, v, minlength=50), np.zeros(5, int), np.zeros(5))
    result = emitted(scheduled(function)[0])[-1]
    sizes = {"s0": 50, "s1": 10**7}
    assert sum(launch.blocks(sizes) > 0 for launch in result.launches) == 1 + 2 * 3 + 2
    assert sum(launch.blocks({"s0": 10**6, "s1": 10**7}) > 0 for launch in result.launches) == 1 + 4 * 3 + 2
    assert sum(launch.blocks({"s0": 10**6, "s1": 100}) > 0 for launch in result.launches) == 1 + 1 + 2
