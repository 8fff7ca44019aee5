"""Scans in CUDA C: chunks of lines by blocks and by threads, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_program import Make, emitted, expected, run_program, scheduled, traced
from cuda_targets import on_each
from golden import assert_same

import pullback as pb

SHAPES = [((0,), 0), ((1,), 0), ((255,), 0), ((5000,), 0), ((70001,), 0), ((3, 5001), 1), ((0, 7), 1), ((300, 5), 1),
          ((5001, 3), 0), ((7, 0), 0), ((130, 400), 0), ((4, 700, 3), 1), ((3, 4, 2500), 2)]  # fmt: skip
CALLS = {
    "sum": np.cumsum,
    "maximum": np.maximum.accumulate,
    "minimum": np.minimum.accumulate,
    "from the end": lambda x, axis: np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis),
    "of products, and their total": lambda x, axis: (np.cumsum(x * x, axis=axis) * 2, np.sum(np.cumsum(x * x, axis=axis))),
}


def run(machine: Make, call: Any, *args: Any) -> tuple[Any, Any]:
    function, values = traced(call, *args)
    return run_program(machine, function, values), expected(function, values)


@on_each
@pytest.mark.parametrize("name", CALLS)
def test_scans_of_whole_numbers_give_the_same_bits(machine: Make, name: str) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-4, 5, shape).astype(float) for shape, _ in SHAPES]
    assert_same(*run(machine, lambda *x: [CALLS[name](a, axis=axis) for a, (_, axis) in zip(x, SHAPES, strict=True)], *arrays))


@on_each
@pytest.mark.parametrize("dtype", ["f4", "i8", "i4", "u1", "i2"])
def test_scans_of_other_dtypes(machine: Make, dtype: str) -> None:
    x = np.random.default_rng(2).integers(0, 9, (2, 3000)).astype(dtype)
    assert_same(*run(machine, lambda a: (np.cumsum(a, axis=1, dtype=a.dtype), np.maximum.accumulate(a, axis=1)), x))


@on_each
def test_nan_stays_in_a_scan(machine: Make) -> None:
    x = np.random.default_rng(3).normal(size=6000)
    x[[4100, 5000]] = np.nan, np.inf
    assert_same(*run(machine, lambda a: (np.maximum.accumulate(a), np.cumsum(a)[4000:]), x), bitwise=False)


@on_each
def test_sums_of_negative_zeros_are_such(machine: Make) -> None:
    assert_same(*run(machine, np.cumsum, np.full(6000, -0.0)))


@on_each
@pytest.mark.parametrize(("shape", "axis"), [((6000,), 0), ((5, 2600), 1), ((2600, 5), 0)], ids=str)
def test_gradients_of_scans(machine: Make, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(4).normal(size=shape)
    call = pb.value_and_grad(lambda a: np.sum(np.cumsum(a, axis=axis) ** 2))
    assert_same(*run(machine, call, x), bitwise=False, rtol=1e-9)


def test_chunks_are_as_many_as_the_extents_say() -> None:
    function, _ = traced(np.cumsum, np.zeros(10))
    found = emitted(scheduled(function)[0])[0]
    assert [launch.name for launch in found.launches] == ["k0_0", "k0_1", "k0_2"]
    assert [launch.blocks({"s0": 10**7}) for launch in found.launches] == [1024, 1, 1024]
    assert [launch.blocks({"s0": 3000}) for launch in found.launches] == [2, 1, 2]
    assert [launch.blocks({"s0": 0}) for launch in found.launches] == [1, 1, 1]


@on_each
def test_scans_of_one_number_over_extents_that_are_known(machine: Make) -> None:
    """The element is made outside the loop, and a count is a literal."""
    call = lambda x: (np.cumsum(np.full((3, 5), 2.0), axis=1), np.cumsum(np.full_like(x, -1.0), axis=0), np.cumsum(np.ones(3)))  # noqa: E731
    assert_same(*run(machine, call, np.zeros((2, 3, 3))))
    assert_same(*run(machine, call, np.zeros((5000, 2))))
