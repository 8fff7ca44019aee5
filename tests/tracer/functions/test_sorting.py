"""Sorts, medians and quantiles: values as NumPy's, ties and NaNs included, and gradients to where elements came from."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.kernels.ops import sort
from pullback.ir.core.structure import walk
from pullback.ir.ops.library.sort import unsort
from pullback.ir.text import parse_function
from pullback.runtime.libraries import numpy_sorts
from pullback.runtime.threads import threads
from tests.support.agreement import agrees, gradients_agree, plain
from tests.support.targets import run_targets
from tests.support.versions import since

Call = Callable[..., Any]
RNG = np.random.default_rng(3)
A = RNG.normal(size=(4, 7))
SIZES = (0, 1, 2, 3, 8, 255, 256, 257, 700)

METHODS = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "linear",
    "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
)  # fmt: skip

CALLS: list[Call] = [
    lambda x: np.sort(x),
    lambda x: np.sort(x, axis=0),
    lambda x: np.sort(x, axis=None),
    lambda x: x[np.arange(4)[:, None], np.argsort(x, axis=1)],
    lambda x: np.take_along_axis(x, x.argsort(axis=0), axis=0),
    lambda x: sorted_copy(x),
    lambda x: np.partition(x, 2)[:, 2],
    lambda x: (np.median(x), np.median(x, axis=1), np.median(x, axis=(0, 1), keepdims=True)),
    lambda x: np.quantile(x, 0.3),
    lambda x: np.quantile(x, [0.0, 0.25, 1.0], axis=0),
    lambda x: np.quantile(x, [[0.1], [0.9]], axis=1, keepdims=True),
    lambda x: np.percentile(x, 40, axis=1),
    lambda x: [np.percentile(x, [15, 60], axis=1, method=m) for m in ("lower", "higher", "midpoint", "nearest", "linear")],
    lambda x: np.sort(x.ravel())[::-1][:3],
    lambda x: [np.quantile(x, [0.0, 0.3, 0.5, 1.0], axis=0, method=m) for m in METHODS],
    lambda x: [np.nanquantile(x, [0.0, 0.3, 0.5, 1.0], axis=0, method=m) for m in METHODS],
    lambda x: [np.percentile(x, 70, method=m) for m in METHODS],
    lambda x: (np.nanmedian(x), np.nanmedian(x, axis=1), np.nanpercentile(x, 25, axis=(0, 1), keepdims=True)),
    lambda x: np.quantile(x, [0.2, 0.9], axis=1, weights=np.arange(1.0, 8.0), method="inverted_cdf"),
    lambda x: np.nanquantile(x, 0.4, axis=0, weights=np.arange(28.0).reshape(4, 7), method="inverted_cdf"),
    lambda x: x[np.lexsort((x, np.round(x)), axis=0), np.arange(7)],
    lambda x: np.quantile(x, np.float32(0.3)),
    lambda x: np.argpartition(x, 2, axis=0)[2],
]


def sorted_copy(x: Any) -> Any:
    a = x.copy()
    a.sort(axis=0)
    return a


@pytest.mark.parametrize("call", [pytest.param(c, id=str(k)) for k, c in enumerate(CALLS)])
def test_values_and_gradients(call: Call) -> None:
    agrees(call, A, rtol=1e-13, atol=1e-15)
    agrees(call, np.where(A > 1, np.nan, A), rtol=1e-13, atol=1e-15)
    agrees(call, A.astype("f4"), rtol=1e-5)
    gradients_agree(call, A)


def test_integers_and_bools() -> None:
    whole = RNG.integers(-3, 4, (5, 6))
    for x in (whole, whole.astype("i1"), (whole + 3).astype("u2"), whole > 0):
        agrees(lambda x: (np.sort(x), np.argsort(x, axis=0, kind="stable")), x)
        if x.dtype != bool:
            agrees(lambda x: [np.quantile(x, 0.3, axis=1, method=m) for m in METHODS], x, rtol=1e-14)
            agrees(lambda x: (np.quantile(x, 1), np.nanquantile(x, [0, 1], axis=0), np.nanmedian(x)), x, rtol=1e-14)
    agrees(lambda x: (np.median(x), np.quantile(x, 0.3, axis=1)), whole, rtol=1e-14)


@pytest.mark.parametrize("size", SIZES)
def test_sizes_ties_and_nans(size: int) -> None:
    x = RNG.normal(size=size).round(1)
    x[::9] = np.nan
    x[1::11] = -np.inf
    agrees(lambda x: (np.sort(x), np.argsort(x, kind="stable")), x)
    agrees(lambda x: np.sort(x, axis=0), np.outer(x, [1.0, -2.0]))


def test_ties_keep_their_order_in_gradients() -> None:
    slope = pb.grad(lambda x: np.sort(x)[0] + 2 * np.sort(x)[1])(np.array([3.0, 1.0, 1.0]))
    np.testing.assert_array_equal(slope, [0.0, 1.0, 2.0])


def spoiled(count: int, dtype: str, of: str) -> Any:
    """Numbers with what sorts find hard."""
    if of == "many":
        result = RNG.normal(size=count) * 1e4
    elif of == "few":
        result = RNG.integers(0, 3, count).astype(float)
    elif of == "one":
        result = np.full(count, 7.0)
    elif of == "rising":
        result = np.arange(count) - count // 2.0
    else:
        result = np.tile([1.0, -2.0, 3.0], count // 3 + 1)[:count]
    x = result.astype(dtype)
    if x.dtype.kind == "f" and of != "rising":
        x[::7], x[1::5], x[2::11], x[3::13] = 0.0, -0.0, np.nan, -np.inf
        x[5::17] = -np.array(np.nan, dtype)
    return x


def in_bits(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1"])
@pytest.mark.parametrize("of", ["many", "few", "one", "rising", "periodic"])
def test_long_rows_have_the_same_bits_for_any_number_of_threads(dtype: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LONG", 1 << 14)
    run = pb.jit(lambda x: (np.sort(x), np.argsort(x, kind="stable")))
    before = pb.get_num_threads()
    try:
        for shape in (16384,), (20011,), (3, 17000), (1, 40000):
            x = spoiled(int(np.prod(shape)), dtype, of).reshape(shape)
            result = []
            for count in (1, 2, 3):
                pb.set_num_threads(count)
                result.append(run(x))
            elements, places = result[0]
            np.testing.assert_array_equal(elements, np.sort(x, axis=-1))
            np.testing.assert_array_equal(places, np.argsort(x, axis=-1, kind="stable"))
            for others in result[1:]:
                np.testing.assert_array_equal(in_bits(others[0]), in_bits(elements))
                np.testing.assert_array_equal(others[1], places)
            if x.dtype.kind == "f":
                assert np.sum(np.signbit(elements) & (elements == 0)) == np.sum(np.signbit(x) & (x == 0))
    finally:
        pb.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["f64", "f32", "u64", "i16"])
def test_parted_rows_as_interpreted(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort, "LONG", 64)
    t = f"{dtype}[2,150]"
    function = parse_function(
        f"func f(%x: {t}) -> ({t}, i64[2,150]) {{\n  %s: {t} = sort %x\n  %o: i64[2,150] = argsort %x\n  return %s, %o\n}}"
    )
    x = spoiled(300, function.parameters[0].type.dtype.numpy.str, "few").reshape(2, 150)
    results = run_targets(function, [x])
    expected = results.pop("interpreter")
    for target, result in results.items():
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=target)


def test_a_long_row_is_shared_out() -> None:
    x, before = RNG.normal(size=1 << 17), pb.get_num_threads()
    run, ordered = pb.jit(np.sort), np.sort(x)
    try:
        pb.set_num_threads(1)
        np.testing.assert_array_equal(run(x), ordered)
        pb.set_num_threads(2)
        count = threads.parallel_loops()
        np.testing.assert_array_equal(run(x), ordered)
        assert threads.parallel_loops() == count + 3
    finally:
        pb.set_num_threads(before)


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (40000,), (0, 3), (3, 0), (5, 4), (3, 2, 30)])
def test_what_goes_to_the_places_of_an_order_is_written_once(shape: tuple[int, ...]) -> None:
    x, w = RNG.normal(size=shape).round(2), RNG.normal(size=shape)
    slope = pb.grad(lambda x: np.sum(np.sort(x) * w))
    expected = np.empty(shape)
    np.put_along_axis(expected, np.argsort(x, axis=-1, kind="stable"), w, -1)
    np.testing.assert_array_equal(slope(x), expected)


def test_the_gradient_of_a_sort_has_no_base() -> None:
    arguments = "func f(%x: f64[n,m], %v: f64[n,m], %b: f64[n,m]) -> (f64[n,m]) {{\n  %o: i64[n,m] = argsort %x\n"
    arguments += "  %i: i64[n,m] = iota {{axis={axis}, dtype=i64, shape=[n, m]}}\n"
    arguments += "  %r: f64[n,m] = scatter_set %b, %i, %o, %v {{axes=[0, 1]}}\n  return %r\n}}"
    for axis, is_by_order in ((0, True), (1, False)):
        function = parse_function(arguments.format(axis=axis))
        assert any(i.op is unsort for i in walk(fuse(function).body)) == is_by_order


def test_errors() -> None:
    for call in (
        lambda x: np.quantile(x, 1.5),
        lambda x: np.percentile(x, -1),
        lambda x: np.sort(x, axis=2),
        lambda x: np.sort(x, kind="bubble"),
        lambda x: np.sort(x, order="a"),
        lambda x: np.sort(x, kind="stable", stable=True),
        lambda x: np.partition(x, 7),
        lambda x: np.partition(x, 2, kind="heap"),
        lambda x: np.lexsort((x, x[0])),
        lambda x: np.quantile(x, 0.5, method="best"),
        lambda x: np.quantile(x, 0.5, weights=np.ones(A.shape)),
        lambda x: np.quantile(x, 0.5, weights=-np.ones(A.shape), method="inverted_cdf"),
        *since(np, "2.4.0", lambda x: np.quantile(x, 0.5, weights=np.zeros(A.shape), method="inverted_cdf")),
        lambda x: np.percentile(x, 50, axis=0, weights=np.ones(3), method="inverted_cdf"),
    ):
        with pytest.raises(ValueError):
            plain(call, A)
        with pytest.raises(ValueError):
            pb.jit(call)(A)
    with pytest.raises(ValueError, match="range"):
        pb.jit(lambda x, q: np.quantile(x, q))(A, 1.5)


def test_where_numpy_gives_no_routine_python_sorts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_sorts, "_native", lambda kind, dtype: None)
    numpy_sorts._resolved.cache_clear()
    try:
        x = np.array([[3.5, 1.5, 1.5], [0.5, np.nan, -1.0]])
        agrees(lambda x: (np.sort(x), np.argsort(x, kind="stable"), np.sort(x[:0]), np.argsort(x[:, :1])), x)
    finally:
        numpy_sorts._resolved.cache_clear()


@pytest.mark.parametrize("side", ["left", "right"])
def test_searches_among_complex_numbers_with_nan(side: str) -> None:
    values = np.array([complex(a, b) for a in (0.0, 1.0, -1.0, np.nan, np.inf) for b in (0.0, 1.0, np.nan)])
    agrees(lambda a, v: np.searchsorted(a, v, side=side), np.sort(values[:12]), values)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searches_for_infinities_zeros_subnormals_and_nan(side: str, dtype: type) -> None:
    tiny, below_one = np.nextafter(dtype(0), dtype(1)), np.nextafter(dtype(1), dtype(0))
    values = np.array([-np.inf, -1, -tiny, -0.0, 0.0, tiny, below_one, 1, np.finfo(dtype).max, np.inf, np.nan], dtype)
    one = pb.jit(lambda a, v: np.searchsorted(a, v, side=side))
    for n in (1, 2, 3, 8, 17):
        a = np.sort(RNG.choice(values, n))
        agrees(lambda a, v: np.searchsorted(a, v, side=side), a, values)
        assert [one(a, v) for v in values] == np.searchsorted(a, values, side=side).tolist()


def test_a_search_compares_an_entry_once() -> None:
    traced = str(pb.jit(lambda a, v: np.searchsorted(a, v)).stages(np.arange(32.0), 3.5)["trace"])
    assert sum(traced.count(f" = {comparison} ") for comparison in ("le", "lt", "ge", "gt")) <= 6 + 2 * traced.count("check ")
    assert "bitnot" not in traced
