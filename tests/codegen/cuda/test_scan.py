"""Scans in CUDA C: chunks of lines by blocks and by threads, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.arrays.make import emit
from tests.support.cuda.host_programs import Make, emitted, expected, run_program, scheduled, traced
from tests.support.cuda.targets import on_each
from tests.support.golden_files import assert_same

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
    result = emitted(scheduled(function)[0])[0]
    assert [launch.name for launch in result.launches] == ["k0_0", "k0_1", "k0_2"]
    assert [launch.blocks({"s0": 10**7}) for launch in result.launches] == [1024, 1, 1024]
    assert [launch.blocks({"s0": 3000}) for launch in result.launches] == [2, 1, 2]
    assert [launch.blocks({"s0": 0}) for launch in result.launches] == [0, 0, 1]


def linear(factors: Any, terms: Any, axis: int = 0) -> Any:
    """x[t] = a[t] * x[t - 1] + b[t] along an axis, by the op itself."""
    return emit("linear_recurrence", factors, terms, axis=axis, reverse=False)


@on_each
def test_products_of_whole_numbers_give_the_same_bits(machine: Make) -> None:
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-4, 5, shape) for shape, _ in SHAPES] + [rng.integers(1, 9, 700).astype("i2")]
    axes = [*(axis for _, axis in SHAPES), 0]
    call = lambda *x: [np.cumprod(a, axis=axis, dtype=a.dtype) for a, axis in zip(x, axes, strict=True)]  # noqa: E731
    assert_same(*run(machine, call, *arrays))


@on_each
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_products(machine: Make, dtype: str) -> None:
    rng = np.random.default_rng(2)
    arrays = [np.exp(0.3 * rng.normal(size=shape)).astype(dtype) for shape, _ in SHAPES]
    call = lambda *x: [np.cumprod(a, axis=axis) for a, (_, axis) in zip(x, SHAPES, strict=True)]  # noqa: E731
    assert_same(*run(machine, call, *arrays), bitwise=False, rtol=1e-11 if dtype == "f8" else 2e-4)


PRODUCTS = {
    "become zero": np.full(9000, 0.5),
    "become infinite": np.full(9000, 2.0),
    "have a zero": np.where(np.arange(9000) == 4000, 0.0, 1.0001),
    "have a NaN": np.where(np.arange(9000) == 4000, np.nan, 1.0001),
    "have an infinity": np.where(np.arange(9000) == 4000, -np.inf, 1.0001),
    "have a zero and then an infinity": np.where(np.arange(9000) == 4000, 0.0, np.where(np.arange(9000) == 7000, np.inf, 1.1)),
    "go down and up again": np.exp(690 * np.cos(np.arange(9000))),
    "go far down and up again": np.repeat(np.tile([1e-150, 1e150], 60), 75)[:9000] ** 0.02,
    "come from above": np.concatenate([np.full(2000, 1.3), np.full(2000, 1e-4), np.full(5000, 1.2)]),
}


@on_each
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_that(machine: Make, name: str) -> None:
    """Chunks do not lose what goes out of range within them."""
    assert_same(*run(machine, np.cumprod, PRODUCTS[name]), bitwise=False, rtol=1e-11)


def put_back(steps: int, factor: float) -> Any:
    """What has to be added for a number to grow from 1 by a factor, and to be 1 again every 30 steps."""
    terms, x = np.zeros(steps), 0.0
    for t in range(steps):
        terms[t] = 0.0 if t % 30 else 1.0 - factor * x
        x = factor * x + terms[t]
    return terms


LINES = {
    "decays": lambda rng: (np.full(9000, 0.9), rng.normal(size=9000)),
    "decays at once": lambda rng: (np.full(9000, 1e-30), rng.normal(size=9000)),
    "is a sum": lambda rng: (np.ones(9000), rng.normal(size=9000)),
    "turns": lambda rng: (np.full(9000, -1.0), rng.normal(size=9000)),
    "grows": lambda rng: (np.full(9000, 1.01), rng.normal(size=9000)),
    "grows and is put back": lambda rng: (np.full(9000, 3.3), put_back(9000, 3.3)),
    "is forgotten and grows": lambda rng: (np.tile([1e-160, 1e-160, 1e160, 1e160], 2250), np.full(9000, 1e-300)),
    "is infinite": lambda rng: (np.full(9000, 0.9), np.where(np.arange(9000) == 500, np.inf, 1.0)),
    "is not a number": lambda rng: (np.full(9000, 0.9), np.where(np.arange(9000) == 500, np.nan, 1.0)),
}


@on_each
@pytest.mark.parametrize("name", LINES)
def test_what_is_linear(machine: Make, name: str) -> None:
    factors, terms = LINES[name](np.random.default_rng(5))
    result, wanted = run(machine, linear, factors, terms)
    far = np.maximum.accumulate(np.abs(wanted[0]))
    np.testing.assert_allclose(result[0], wanted[0], rtol=1e-9, atol=0 if name == "grows and is put back" else 1e-13 * np.max(
        far, initial=0, where=np.isfinite(far)))  # fmt: skip


@on_each
def test_what_is_linear_along_other_axes_and_its_gradient(machine: Make) -> None:
    rng = np.random.default_rng(6)
    a, b = 0.9 + 0.1 * rng.random((4, 700, 3)), rng.normal(size=(4, 700, 3))
    for axis in range(3):
        assert_same(*run(machine, lambda x, y: linear(x, y, axis), a, b), bitwise=False, rtol=1e-9)  # noqa: B023
        call = pb.value_and_grad(lambda x, y: np.sum(linear(x, y, axis) ** 2), argnums=(0, 1))  # noqa: B023
        assert_same(*run(machine, call, a, b), bitwise=False, rtol=1e-8)


def test_lines_are_cut_into_chunks() -> None:
    kernel = emitted(scheduled(traced(np.cumprod, np.ones(10))[0])[0])[-1]
    assert len(kernel.launches) == 3
    assert [launch.chunks_for({"s0": 10**7}) for launch in kernel.launches] == [4096] * 3
    assert [launch.blocks({"s0": 10**7}) for launch in kernel.launches] == [16, 1, 16]
    assert [launch.blocks({"s0": 60}) for launch in kernel.launches] == [0, 0, 1]
    assert [launch.chunks_for({"s0": n}) for n in (64, 65, 128, 1000) for launch in kernel.launches[2:]] == [1, 13, 16, 46]


@on_each
def test_scans_of_one_number_over_extents_that_are_known(machine: Make) -> None:
    """The element is made outside the loop, and a count is a literal."""
    call = lambda x: (np.cumsum(np.full((3, 5), 2.0), axis=1), np.cumsum(np.full_like(x, -1.0), axis=0), np.cumsum(np.ones(3)))  # noqa: E731
    assert_same(*run(machine, call, np.zeros((2, 3, 3))))
    assert_same(*run(machine, call, np.zeros((5000, 2))))
