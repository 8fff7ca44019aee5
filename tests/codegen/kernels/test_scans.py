"""Cumulative sums: fused with what surrounds them, over vectors, in chunks and down columns, with derivatives."""

import re
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.kernels.groups import registry, scan
from pullback.codegen.lower.lower import lower
from pullback.ir.text import parse_function, print_module
from tests.support.forced_strategies import always
from tests.support.golden_files import bind_sizes
from tests.support.targets import assert_close, run_targets

RNG = np.random.default_rng(0)
SIZES = (0, 1, 7, 8, 9, 39, 40, 41, 63, 64, 65, 127, 129, 257)

ROW = """func f(%x: f64[n], %w: f64[n]) -> (f64[n], f64[], f64[n], f64[]) {
  %s: f64[n] = sin %x
  %c: f64[n] = cumsum %s {axis=0, reverse=false}
  %y: f64[n] = mul %c, %w
  %t: f64[] = sum %y {axes=[0]}
  %m: f64[] = max %c {axes=[0]}
  %r: f64[n] = cumsum %y {axis=0, reverse=true}
  return %y, %t, %r, %m
}"""
COLUMNS = """func f(%x: f64[n,m], %w: f64[n,m]) -> (f64[n,m], f64[], f64[n,m]) {
  %c: f64[n,m] = cumsum %x {axis=0, reverse=false}
  %y: f64[n,m] = mul %c, %w
  %t: f64[] = sum %y {axes=[0, 1]}
  %d: f64[n,m] = cumsum %y {axis=1, reverse=true}
  %r: f64[n,m] = cumsum %y {axis=0, reverse=true}
  %e: f64[n,m] = add %d, %r
  return %e, %t, %r
}"""


def agree(text: str, *shapes: tuple[int, ...]) -> None:
    extents = dict(zip(("n", "m"), shapes[0], strict=False))
    for name, extent in extents.items():
        text = re.sub(rf"\b{name}(?=[],])", str(extent), text)
    function = parse_function(text)
    arguments = [RNG.uniform(0.5, 1.5, shape) for shape in shapes]
    results = run_targets(function, arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            assert_close(a, e, 256, note=f"{shapes} on {target}")


@pytest.mark.parametrize("size", SIZES)
def test_rows_in_chunks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("scan"))
    monkeypatch.setattr(scan, "CHUNKS", ((40, 2), (200, 4)))
    agree(ROW, (size,), (size,))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("block", [16, 64])
def test_rows_in_blocks(size: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("scan_blocks"))
    monkeypatch.setattr(scan, "BLOCK", block)
    monkeypatch.setattr(scan, "BLOCK_CHUNKS", 4)
    agree(ROW, (size,), (size,))


@pytest.mark.parametrize("size", [(1 << 17) - 1, 1 << 17, (1 << 17) + 1, (1 << 18) + 8, (1 << 18) + 63, (1 << 22) + 13])
def test_long_rows(size: int) -> None:
    """Past the caches, too, up and down; whole numbers, of which every order gives the same sums."""
    x, w = RNG.integers(-9, 9, size=(2, size)).astype("f8")
    value, (slope, other) = pb.value_and_grad(lambda x, w: np.sum(np.cumsum(x) * w), argnums=(0, 1))(x, w)
    assert value == np.sum(np.cumsum(x) * w)
    np.testing.assert_array_equal(slope, np.cumsum(w[::-1])[::-1])
    np.testing.assert_array_equal(other, np.cumsum(x))


@pytest.mark.parametrize("shape", [(3, 5), (5, 700), (1, 513), (0, 4), (4, 0), (1, 1)])
def test_columns(shape: tuple[int, int]) -> None:
    agree(COLUMNS, shape, shape)


def test_one_kernel_makes_the_elements_the_sums_and_their_reduction() -> None:
    function = parse_function(ROW)
    module = lower(fuse(function))
    assert bind_sizes(function)
    assert len(module.functions) == 3, "the program, a kernel forwards and one backwards"
    assert "{combine=[add, maximum], scan=[add]}" in print_module(module)


def total(x: Any, axis: int) -> Any:
    return np.sum(np.cumsum(x, axis=axis) ** 2)


@pytest.mark.parametrize(("shape", "axis"), [((9,), 0), ((3, 8), 1), ((8, 3), 0), ((2, 5, 3), 1)])
def test_derivatives(shape: tuple[int, ...], axis: int) -> None:
    x = RNG.normal(size=shape)
    twice = 2 * np.cumsum(x, axis)
    slope = np.flip(np.cumsum(np.flip(twice, axis), axis), axis)
    np.testing.assert_allclose(pb.grad(lambda x: total(x, axis))(x), slope, rtol=1e-12)
    hessian = pb.hessian(lambda x: total(x, axis))(x).reshape(x.size, x.size)
    np.testing.assert_allclose(hessian @ x.ravel(), slope.ravel(), rtol=1e-12)
    pb.check_grads(lambda x: np.cumsum(np.sin(x), axis=axis), (x,), order=2)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "u1", "c16", "?"])
@pytest.mark.parametrize("size", [0, 1, 8, 17, 131073])
def test_dtypes(dtype: str, size: int) -> None:
    x = RNG.integers(0, 3, size).astype(dtype)
    if dtype == "f2":
        x = x[:1000]
    for call in (lambda x: np.cumsum(x), lambda x: np.cumsum(x[::-1])[::-1]):
        result, expected = pb.jit(call)(x), call(x)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("at", [0, 5, 30, 9000, 132000])
def test_special_values(at: int) -> None:
    cumsum = pb.jit(lambda x: np.cumsum(x))
    for values in ([np.nan], [np.inf], [-np.inf], [np.inf, 1.0, -np.inf], [-0.0, -0.0, 5e-324]):
        x = np.full(10 + at, -0.0)
        x[at : at + len(values)] = values
        with np.errstate(invalid="ignore"):
            expected = np.cumsum(x)
        np.testing.assert_array_equal(cumsum(x), expected)
        np.testing.assert_array_equal(np.signbit(cumsum(x)), np.signbit(expected))


def test_layouts_and_overwritten_operands() -> None:
    x = RNG.normal(size=(33, 21))
    for y in (x, np.asfortranarray(x), x[::2], x[:, ::-1], x.T):
        for axis in (0, 1):
            np.testing.assert_allclose(pb.jit(lambda y, k=axis: np.cumsum(np.cumsum(y, k) * 2, k) + 1)(y),
                                       np.cumsum(np.cumsum(y, axis) * 2, axis) + 1, rtol=1e-10, atol=1e-12)  # fmt: skip


def test_sums_of_large_arrays_are_no_less_accurate_than_one_by_one() -> None:
    x = RNG.uniform(size=1 << 21).astype("f4")
    exact = np.cumsum(x.astype("f8"))
    error, numpys = (np.max(np.abs(c - exact)) for c in (pb.jit(lambda x: np.cumsum(x))(x), np.cumsum(x)))
    assert error <= numpys


@pytest.mark.parametrize("shape", [(5,), (70000,), (3, 70000), (4000, 5)], ids=str)
def test_scans_of_what_changes_nothing(shape: tuple[int, ...]) -> None:
    """The elements are a constant that an addition would leave out."""
    x = np.arange(np.prod(shape)).reshape(shape)
    for call in (lambda x: np.cumsum(np.zeros(shape, int), axis=-1) + x, lambda x: np.cumsum(x * 0, axis=0)):
        np.testing.assert_array_equal(pb.jit(call)(x), call(x))
