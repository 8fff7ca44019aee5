"""Arrays that are read across their rows: every target agrees with the interpreter, and NumPy with all, at extents around those
of vectors, tiles and chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.core.structure import walk
from pullback.ir.interpret import interpret
from pullback.ir.ops.kernel.kernel import Local
from pullback.ir.text import parse_function
from tests.codegen.kernels.test_tiled_rows import check
from tests.support.targets import compiled

EXTENTS = (0, 1, 7, 8, 9, 32, 33, 70)
DTYPES = (np.float64, np.float32, np.int8, np.uint16, np.bool_, np.complex128)


def turned(x: Any, y: Any) -> Any:
    return x.T + y


def symmetric(x: Any, y: Any) -> Any:
    """Operands read in two orders, and two results."""
    return x.T * y - y, np.where(y < x.T, x.T, 2 * y)


def by_rows(x: Any, y: Any) -> Any:
    """Each row of the result has a number of its own."""
    return x.T * np.arange(x.shape[1])[:, None] + np.cos(np.arange(x.shape[1]))[:, None]


def copied(x: Any, y: Any) -> Any:
    return np.ascontiguousarray(x.T)


def guarded(x: Any, y: Any) -> Any:
    """Not all of the result is read."""
    return np.tril(x.T) + np.triu(y, 1)


def back(x: Any, y: Any) -> Any:
    return y[::-1, ::-1] * x.T[:, ::-1]


def rows(x: Any, y: Any) -> Any:
    return np.exp(x.T - y).sum(1), x.T.max(0)


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (turned, symmetric, by_rows, copied, guarded, back, rows)}


def given(height: int, width: int, dtype: Any = np.float64) -> list[Any]:
    rng = np.random.default_rng(height * 1000 + width)
    return [(rng.normal(size=s) * 3).astype(dtype) for s in ((height, width), (width, height))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_targets(name: str) -> None:
    check(FUNCTIONS[name], given(33, 70))
    check(FUNCTIONS[name], given(9, 5, np.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_extents(name: str) -> None:
    function = pb.jit(FUNCTIONS[name])
    least = 1 if name == "rows" else 0
    for height in (e for e in EXTENTS if e >= least):
        for width in (e for e in EXTENTS if e >= least):
            x, y = given(height, width)
            for one, other in zip(leaves(function(x, y)), leaves(FUNCTIONS[name](x, y)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=f"{height} x {width}")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: Any) -> None:
    for height, width in ((70, 130), (3, 200), (200, 3), (64, 64)):
        x, _ = given(height, width, dtype)
        result = pb.jit(lambda x: np.ascontiguousarray(x.T))(x)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, x.T)


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 1)])
@pytest.mark.parametrize("shape", [(40, 33, 9), (5, 70, 34), (33, 2, 66), (9, 9, 0)])
def test_permutations(perm: tuple[int, ...], shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=shape)
    weight = np.random.default_rng(2).normal(size=tuple(shape[k] for k in perm))
    np.testing.assert_array_equal(pb.jit(lambda x: x.transpose(perm) * 2 + weight)(x), x.transpose(perm) * 2 + weight)


def test_special_values() -> None:
    x, y = given(37, 41)
    x.flat[::7], x.flat[1::7], x.flat[2::7], y.flat[::5] = np.nan, -np.inf, -0.0, 5e-324
    for name in ("turned", "symmetric", "back"):
        check(FUNCTIONS[name], [x, y])


@pytest.mark.parametrize("extents", [(700, 900), (1024, 1024)])
def test_threads_change_no_bit(extents: tuple[int, int]) -> None:
    x, y = given(*extents)
    function, threads = pb.jit(symmetric), pb.get_num_threads()
    try:
        for count in (1, 2, 3):
            pb.set_num_threads(count)
            for one, other in zip(function(x, y), symmetric(x, y), strict=True):
                np.testing.assert_array_equal(one, other)
    finally:
        pb.set_num_threads(threads)


@pytest.mark.parametrize(
    ("text", "tiles"),
    [
        ("%0: f64[m,n] = transpose %x {perm=[1,0]}\n  %1: f64[m,n] = neg %0", 1),
        ("%0: f64[n,m] = neg %x\n  %1: f64[m,n] = transpose %0 {perm=[1,0]}", 1),
    ],
)
def test_what_is_read_across_has_a_tile(text: str, tiles: int) -> None:
    function = parse_function(f"pullback-ir 2\nfunc f(%x: f64[n,m]) -> (f64[m,n]) {{\n  {text}\n  return %1\n}}")
    kernels = compiled(function).scheduled.functions[1:]
    assert sum(isinstance(i.op, Local) for k in kernels for i in walk(k.body)) == tiles


COPY = """pullback-ir 2

kernel k(%x: &f64[s0,s1; strided], %out: &f64[s0,s1]) -> () {
  %0: i64[] = extent {size=s0}
  %1: i64[] = extent {size=s1}
  for %0 (%i: i64[]) {
    for %1 (%j: i64[]) {
      %2: f64[] = load %x, %i, %j
      store %2, %out, %i, %j
      yield
    }
    yield
  }
  return
}
"""
VIEWS: dict[str, Callable[[Any], Any]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "rows of some": lambda x: np.repeat(x, 2, 0)[::2],
    "columns of some": lambda x: np.repeat(x, 3, 1)[:, ::3],
    "columns of some, F": lambda x: np.asfortranarray(np.repeat(x, 3, 1))[:, ::3],
    "backwards": lambda x: x[::-1, ::-1],
    "backwards, F": lambda x: np.asfortranarray(x)[::-1, ::-1],
    "one row": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column": lambda x: np.broadcast_to(x[:, :1], x.shape),
}


def test_a_strided_copy_has_a_tile_and_both_ways() -> None:
    kernel = schedule(parse_function(COPY))
    names = [i.op.name for i in walk(kernel.body)]
    assert names.count("stride") == 2 and sum(isinstance(i.op, Local) for i in walk(kernel.body)) == 1
    for view in VIEWS.values():
        for height, width in ((0, 3), (1, 1), (7, 40), (40, 7), (33, 70)):
            x = view(np.arange(float(max(height, 1) * width)).reshape(-1, width))[:height]
            out = np.full((height, width), np.nan)
            assert interpret(kernel, x, out) == 0
            np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_strided_arguments_of_products(view: str, dtype: Any) -> None:
    function = pb.jit(lambda x, y: x @ y)
    for height in EXTENTS[1:]:
        for width in EXTENTS[1:]:
            x, y = given(height, width, dtype)
            expected = VIEWS[view](x) @ VIEWS[view](y)
            result = function(VIEWS[view](x), VIEWS[view](y))
            np.testing.assert_allclose(result, expected, rtol=1e-3 if dtype == np.float32 else 1e-9, atol=1e-4)


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]
