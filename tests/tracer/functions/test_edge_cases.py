"""What NumPy and SciPy answer at the edges: programs that run plain and compiled, and must give the same values and dtypes,
or the same exception."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import pullback as pb


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The values and dtypes that a call gives, or the exception that it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = function(*args)
        except (OverflowError, ValueError, TypeError, IndexError) as error:
            return type(error).__name__, str(error)
    parts = result if isinstance(result, tuple) else (result,)
    return [(np.asarray(part).dtype.name, np.asarray(part).tolist()) for part in parts]


def agrees(function: Callable[..., Any], *args: Any) -> None:
    expected = outcome(function, *args)
    for compiled in (pb.jit(function), pb.jit(function, dynamic=True)):
        for _ in range(2):
            assert repr(outcome(compiled, *args)) == repr(expected), args


# sums over products


@pytest.mark.parametrize("spec", ["ii", "ii->i", "ii->", "...ii->...i"])
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (3, 1), (2, 3), (2, 2), (1, 1), (0, 0)])
def test_einsum_of_a_diagonal(spec: str, shape: tuple[int, int]) -> None:
    agrees(lambda a: np.einsum(spec, a), np.arange(float(np.prod(shape))).reshape(shape))


def test_einsum_of_repeated_axes() -> None:
    agrees(lambda a: np.einsum("iij->j", a), np.ones((1, 3, 2)))
    agrees(lambda a, b: np.einsum("ii,ii", a, b), np.ones((2, 1)), np.ones((2, 2)))
    agrees(lambda a, b: np.einsum("jk,ii", a, b), np.ones((2, 2)), np.ones((1, 2)))
    agrees(lambda a, b: np.einsum("ii->i", a) + np.einsum("ij,jk->ik", a, b)[0], np.ones((3, 3)), np.ones((3, 3)))


# NaN, infinities and numbers out of range into integers

NUMBERS = (
    np.nan, np.inf, -np.inf, 300.5, -1.5, 1e30, 2.0**63, 7.0, np.float64("nan"), np.float32("inf"), np.float16("nan"),
    np.float64(1e30),
    np.float64(300.5), np.float32(-1.5), np.int64(300), np.uint64(2**63), np.uint8(200), np.array(np.nan), np.array(300.5),
)  # fmt: skip


def _set(key: Any) -> Callable[[Any, Any], Any]:
    def program(a: Any, v: Any) -> Any:
        x = a.copy()
        x[key] = v
        return x

    return program


def _filled(a: Any, v: Any) -> Any:
    x = a.copy()
    x.fill(v)
    return x


def _of_list(a: Any, v: Any) -> Any:
    x = a.copy()
    x[1:] = [v, 1]
    return x


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "item": _set(0),
    "slice": _set(slice(1, None)),
    "ellipsis": _set(...),
    "places": _set([0, 1]),
    "fill": _filled,
    "list": _of_list,
    "full": lambda a, v: np.full(3, v, dtype=a.dtype),
    "asarray": lambda a, v: np.asarray(v, dtype=a.dtype) + a,
}


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32", "uint64"])
@pytest.mark.parametrize("name", WRITES)
def test_floats_into_integers(name: str, dtype: str) -> None:
    a = np.arange(3, dtype=dtype)
    compiled = pb.jit(WRITES[name])
    for v in NUMBERS:
        if name == "list" and isinstance(v, np.ndarray):
            continue
        assert repr(outcome(compiled, a, v)) == repr(outcome(WRITES[name], a, v)), v


def test_constants_into_integers() -> None:
    for v in (np.nan, np.inf, 300.5, 7.0, np.float64("nan")):
        for dtype in ("int8", "int64", "uint8"):
            for name in ("item", "ellipsis", "full", "fill", "list"):
                agrees(lambda a, program=WRITES[name], v=v: program(a, v), np.arange(3, dtype=dtype))


def test_a_refused_number_leaves_arguments_alone() -> None:
    def f(a: Any, v: float) -> None:
        a[0] = 7
        a[1] = v

    a = np.arange(3)
    compiled = pb.jit(f)
    compiled(a, 5.0)
    assert a.tolist() == [7, 5, 2]
    a[:] = 0
    with pytest.raises(ValueError, match="cannot convert float NaN to integer") as caught:
        compiled(a, float("nan"))
    assert a.tolist() == [0, 0, 0]
    assert "a[1] = v" in "".join(caught.value.__notes__)


# windows, reductions without elements


@pytest.mark.parametrize("n, window", [(1, 2), (2, 2), (3, 2), (1, 1), (0, 1), (2, 5)])
def test_windows(n: int, window: int) -> None:
    agrees(lambda a: np.lib.stride_tricks.sliding_window_view(a, window) * 2, np.arange(float(n)))
    agrees(lambda a: np.lib.stride_tricks.sliding_window_view(a, window, axis=1) * 2, np.arange(2.0 * n).reshape(2, n))


@pytest.mark.parametrize("dtype", ["complex128", "complex64", "float16", "int8", "uint64", "bool"])
def test_reductions_of_nothing(dtype: str) -> None:
    for shape, axis in (((0,), None), ((0, 3), 0), ((2, 0), 1), ((2, 0), None), ((0, 3), 1)):
        a = np.zeros(shape, dtype)
        agrees(lambda a, axis=axis: (np.max(a, axis=axis, initial=1), np.min(a, axis=axis, initial=0, keepdims=True)), a)
        agrees(lambda a, axis=axis: (np.sum(a, axis=axis, initial=1), np.prod(a, axis=axis)), a)
        agrees(lambda a, axis=axis: np.max(a, axis=axis), a)


@pytest.mark.parametrize("values", [[], [-1.0], [-1.0, 2.0]], ids=["none", "one", "two"])
def test_reductions_with_initial(values: list[float]) -> None:
    v = np.array(values)
    for program in (
        lambda v: np.max(v[v >= 0], initial=0),
        lambda v: np.min(v[v >= 0], initial=3),
        lambda v: v[v >= 0].max(initial=-np.inf),
        lambda v: np.maximum.reduce(v[v > 0], initial=1),
        lambda v: np.max(v, initial=0.0, where=v > 0),
        lambda v: np.minimum.reduce(v, initial=1, where=v > 0),
        lambda v: np.nanmax(v[v >= 0], initial=2),
        lambda v: np.sum(v[v >= 0], initial=5),
        lambda v: np.prod(v, initial=5, where=v > 9),
        lambda v: np.max(v[v >= 0]),
        lambda v: np.argmax(v[v >= 0]),
    ):
        agrees(program, v)


# functions of small dtypes


def test_spacing_of_every_half() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        expected = np.spacing(halves)
    result = pb.jit(np.spacing)(halves)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(result), ~numbers)
    np.testing.assert_array_equal(result[numbers].view(np.uint16), expected[numbers].view(np.uint16))


@pytest.mark.parametrize("mode", ["same", "full", "valid"])
def test_correlations_of_bools(mode: Any) -> None:
    b, c = np.array([True, False, True]), np.array([True, True])
    for x, y in ((b, b), (b, c), (c, b), (b, np.array([1, 2], np.int8)), (b, np.array([1 + 1j, 2 - 1j]))):
        agrees(lambda x, y: (np.correlate(x, y, mode), np.convolve(x, y, mode)), x, y)


@pytest.mark.parametrize("dtype", ["uint64", "uint8", "int64", "bool", "float64"])
def test_bincount(dtype: str) -> None:
    agrees(lambda a: np.bincount(a, minlength=5), np.array([0, 1, 1], dtype))


def test_bincount_of_large_numbers() -> None:
    with pytest.raises(ValueError, match="must have no negative elements"):
        pb.jit(lambda a: np.bincount(a, minlength=5))(np.array([0, 2**63], np.uint64))


def _copied(v: Any, c: Any, **options: Any) -> Any:
    x = v.copy()
    np.copyto(x, c, **options)
    return x


def test_copyto_drops_leading_axes() -> None:
    v = np.arange(3)
    for shape in ((), (1,), (1, 1), (1, 1, 3), (3,), (2, 3), (3, 1), (2,)):
        agrees(lambda v, c: _copied(v, c, casting="unsafe"), v, np.full(shape, 7.0))
        agrees(lambda v, c: _copied(v, c, where=v > 1, casting="unsafe"), v, np.full(shape, 7.0))
        agrees(_copied, v, np.full(shape, 7.0))
        agrees(_copied, v, np.full(shape, 7))
    agrees(lambda v, c: _copied(v, c, where=np.array([[True, False, True]])), v, np.full((1, 3), 7))


@pytest.mark.parametrize("ufunc", [np.greater, np.equal, np.less_equal, np.not_equal])
def test_methods_of_comparisons(ufunc: Any) -> None:
    a = np.array([0, 5, 65535], np.uint16)
    agrees(lambda a: (ufunc.outer(a, -3), ufunc.outer(-3, a), ufunc.outer(a, 2**40), ufunc.outer(a, a)), a)
    agrees(lambda a: ufunc.reduce(a), a)
    agrees(lambda a: ufunc.accumulate(a), a)
    agrees(lambda a: ufunc.reduceat(a, [0, 1]), a)
    agrees(lambda a: (ufunc.reduce(a > 3), ufunc.accumulate(a > 3), ufunc.reduceat(a > 3, [0, 1])), a)

    def at(a: Any) -> Any:
        x = a.copy()
        ufunc.at(x, [0, 1, 1], 3)
        return x

    agrees(at, a)


# the Euclidean norm of scipy.linalg


VECTORS = (
    [1e200, 1.0, 1.0], [1e-200, 1e-200], [1e-42, 3e-42], [5e-324, 5e-324], [3.0, 4.0], [0.0, 0.0], [1e308, 1e308],
    [1.7e308, 1e308], [1e-160, 1e-170], [1e20, 1.0, 1.0], [3e38, 1e38], [1e-30, 2e-30], [2.0], [-3.0],
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_norm_overflows_where_the_result_does(dtype: str) -> None:
    norm = pb.jit(scipy.linalg.norm)
    for values in VECTORS:
        with np.errstate(over="ignore"):
            x = np.array(values, dtype)
        if not np.all(np.isfinite(x)):
            continue
        expected = np.asarray(scipy.linalg.norm(x), dtype)
        result = norm(x)
        assert type(result) is float  # as SciPy's is
        assert pb.jit(lambda x: x * scipy.linalg.norm(x))(x).dtype == dtype
        np.testing.assert_allclose(result, expected, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).smallest_subnormal)
        exact = x.astype(np.longdouble)
        size = np.sqrt(np.sum(exact * exact))
        unit = exact / size if size else exact
        for gradient, least in ((pb.grad(scipy.linalg.norm), 0.0), (pb.jacfwd(scipy.linalg.norm), 1e-15)):
            np.testing.assert_allclose(gradient(x), unit, rtol=8 * np.finfo(dtype).eps, atol=least)


def test_norm_of_complex_vectors_and_orders() -> None:
    for z in ([1e200 + 1e200j, 1], [3e-170j, 4e-170], [3 + 4j]):
        agrees(lambda z: scipy.linalg.norm(z) > 0, np.array(z))
        np.testing.assert_allclose(pb.jit(scipy.linalg.norm)(np.array(z)), scipy.linalg.norm(np.array(z)), rtol=1e-15)
    x = np.array([3e200, 4e200])
    for order in (None, 2):
        np.testing.assert_allclose(pb.jit(scipy.linalg.norm)(x, order), 5e200, rtol=1e-15)
    np.testing.assert_allclose(pb.hessian(scipy.linalg.norm)(x) * 1e200, pb.hessian(scipy.linalg.norm)(x / 1e200), rtol=1e-14)
    rows = np.array([[1e200, 1.0], [3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(pb.vmap(scipy.linalg.norm)(rows), [1e200, 5.0, 0.0], rtol=1e-15)
    np.testing.assert_allclose(pb.vmap(pb.grad(scipy.linalg.norm))(rows), [[1, 1e-200], [0.6, 0.8], [0, 0]], rtol=1e-15)
    with np.errstate(over="ignore"):
        agrees(lambda x: np.linalg.norm(x), np.array([1e200, 1.0]))
        agrees(lambda x: scipy.linalg.norm(x), np.full((2, 2), 1e200))


# complex products that overflow: as NumPy's numbers have them, each product rounded before they are added

PRODUCTS = """
import sys
import numpy as np
import pullback as pb

PROGRAMS = {
    "product": lambda z, w: z * w, "square": lambda z, w: np.square(z), "power": lambda z, w: z**2,
    "quotient": lambda z, w: z / w, "one": lambda z, w: z * w[0], "cube": lambda z, w: z**3,
    "sum": lambda z, w: np.sum(z * w, keepdims=True), "cumprod": lambda z, w: np.cumprod(z),
}

def numbers(dtype, n=67):
    rng, part = np.random.default_rng(5), np.finfo(dtype).dtype
    top = part.type(np.finfo(part).maxexp / 2 * np.log10(2))
    v = (rng.normal(size=4 * n) * 10.0 ** rng.uniform(-3, top + 2, 4 * n)).astype(part)
    v[::19], v[5::23], v[6::29], v[7::31] = np.inf, -np.inf, np.nan, 0
    return v[: 2 * n].view(dtype), v[2 * n :].view(dtype)

def results(dtype):
    z, w = numbers(dtype)
    with np.errstate(all="ignore"):
        return {name: pb.jit(f)(z, w) for name, f in PROGRAMS.items()}

if __name__ == "__main__":
    np.savez(sys.argv[1], **{k + d: v for d in ("complex64", "complex128") for k, v in results(np.dtype(d)).items()})
"""


def _products() -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "products"}
    exec(PRODUCTS, space)
    return space


def _same(a: Any, b: Any) -> None:
    np.testing.assert_array_equal(a.real, b.real)
    np.testing.assert_array_equal(a.imag, b.imag)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_products_that_overflow(dtype: str) -> None:
    space = _products()
    z, w = space["numbers"](np.dtype(dtype))
    with np.errstate(all="ignore"):
        _same(pb.jit(lambda z, w: z * w)(z, w), np.array([a * b for a, b in zip(z, w)], dtype))
        for name, program in space["PROGRAMS"].items():
            whole = pb.jit(program)(z, w)
            _same(pb.jit(program)(np.repeat(z, 3)[::3], np.repeat(w, 2)[::2]), whole)
            if name in ("product", "square", "power", "quotient", "cube"):
                one = pb.jit(program)
                _same(np.concatenate([one(z[k : k + 1], w[k : k + 1]) for k in range(len(z))]), whole)


@pytest.mark.long
def test_complex_products_are_the_same_on_every_cpu(tmp_path: Path) -> None:
    (tmp_path / "products.py").write_text(PRODUCTS)
    result = []
    for level in ("baseline", "native"):
        file = tmp_path / f"{level}.npz"
        environment = {**os.environ, "PULLBACK_CPU": level}
        subprocess.run([sys.executable, str(tmp_path / "products.py"), str(file)], env=environment, check=True)
        result.append(np.load(file))
    for name in result[0]:
        _same(result[0][name], result[1][name])


def test_complex_numbers_copied_into_real_arrays() -> None:
    for dtype in ("int8", "float32", "complex64", "bool"):
        agrees(lambda a: np.full(2, 1 + 2j, dtype=a.dtype), np.zeros(3, dtype))
        agrees(lambda a: np.full_like(a, 1 + 2j), np.zeros(3, dtype))
        agrees(lambda a: _copied(a, 1 + 2j, casting="unsafe"), np.zeros(3, dtype))
        agrees(lambda a: _filled(a, 1 + 2j), np.zeros(3, dtype))
        agrees(lambda a: _set(0)(a, 1 + 2j), np.zeros(3, dtype))
    agrees(lambda a: np.full((2,), a), np.ones(3))
    agrees(lambda v: np.max(v[v.real > 0], initial=0), np.zeros(0, complex))
    agrees(lambda v: np.max(v[v.real > 0]), np.array([1 + 1j, 1 + 2j, -3]))


def test_shapes_that_do_not_fit() -> None:
    agrees(lambda a, k: np.take_along_axis(a, k, 1), np.ones((2, 3)), np.zeros((3, 1), int))
    agrees(lambda a: np.rot90(a), np.ones(3))
    agrees(lambda a: np.rot90(a, axes=(0, 3)), np.ones((3, 3)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("count", [np.int8, np.int16, np.int32, np.int64])
def test_numbers_times_powers_of_two_are_rounded_once(dtype: Any, count: Any) -> None:
    """Zeros and infinities stay, results below the normal numbers are the nearest, powers may be out of range themselves."""
    kind, rng = np.finfo(dtype), np.random.default_rng(3)
    ends = [0, -0.0, 1, -1.5, kind.tiny, kind.smallest_subnormal, kind.max, np.inf, -np.inf, np.nan, 1.7 * kind.tiny]
    some = rng.normal(size=40)
    x = np.concatenate([ends, some, some * float(kind.tiny) ** 0.5, some * float(kind.max) ** 0.5]).astype(dtype)
    scaled = pb.jit(np.ldexp)
    powers = [0, 1, -1, 14, -25, 60, -60, 127, 128, -126, -150, 300, -300, -969, 1023, 1024, -1022, -1075, 2098, -2098, -(2**31)]
    for n in [n for n in powers if np.iinfo(count).min <= n <= np.iinfo(count).max]:
        with np.errstate(all="ignore"):
            right = np.ldexp(x, count(n))
        np.testing.assert_array_equal(scaled(x, count(n)), right, strict=True)
        np.testing.assert_array_equal(np.signbit(scaled(x, count(n)))[right == 0], np.signbit(right)[right == 0])


@pytest.mark.parametrize("value", [np.complex128(complex("inf")), np.complex64(complex("nan")), np.complex128(2.5 + 1j)])
def test_complex_numbers_among_integers_are_their_real_parts(value: Any) -> None:
    for write in (_set(0), _set(slice(0, 2)), _filled):
        agrees(lambda a, write=write: write(a, value), np.arange(3))
    agrees(lambda a: np.pad(a, 1, constant_values=value), np.arange(3))


def test_quantiles_of_complex_numbers() -> None:
    for function in (np.quantile, np.percentile, np.nanquantile, np.nanpercentile):
        agrees(lambda a, function=function: function(a, 0.3), np.ones(3) + 1j)


def test_branches_on_results_of_another_dtype() -> None:
    """A known scalar has the value that the call with ``dtype=`` gives."""
    agrees(lambda a, b: 1.0 if np.add(a, b, dtype="i4") > 255 else 2.0, np.uint8(200), np.uint8(100))
    agrees(lambda a, b: 1.0 if np.multiply(a, b, dtype="i8") > 255 else 2.0, np.int8(100), np.int8(100))
    agrees(lambda a: np.subtract(a, a, dtype="i1"), np.True_)
    agrees(lambda a: scipy.linalg.norm(a), np.array([np.inf + 0j]))
    agrees(lambda a: scipy.linalg.norm(a, check_finite=False), np.array([np.inf + 0j]))


@pytest.mark.parametrize("lengths", [(5, 3), (3, 5), (50, 40)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_what_is_not_finite_reaches_the_sums_that_it_is_part_of(lengths: tuple[int, int], mode: Any) -> None:
    """Convolutions and correlations multiply no infinity by the zeros outside of the array."""
    rng = np.random.default_rng(4)
    x, y = (rng.integers(1, 4, n).astype(float) for n in lengths)
    x[1], y[0], y[-1] = np.inf, np.nan, np.inf
    for function in (np.convolve, np.correlate):
        agrees(lambda x, y, function=function: function(x, y, mode), x, y)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_spacing_of_zeros_and_ends(dtype: Any) -> None:
    kind = np.finfo(dtype)
    ends = [-0.0, 0.0, -kind.smallest_subnormal, kind.smallest_subnormal, -1, 1, -kind.tiny, np.nan]
    agrees(lambda x: np.spacing(x), np.array(ends, dtype))
    agrees(lambda x: np.copysign(1.0, np.spacing(x)), np.array(ends, dtype)[:-1])


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "max": lambda a, axis: np.max(a, axis=axis), "min": lambda a, axis: a.min(axis=axis),
    "ptp": lambda a, axis: np.ptp(a, axis=axis),
    "fmax": lambda a, axis: np.fmax.reduce(a, axis=axis), "median": lambda a, axis: np.median(a, axis=axis),
    "percentile": lambda a, axis: np.percentile(a, 30, axis=axis), "norm": lambda a, axis: np.linalg.norm(a, np.inf, axis),
    "least norm": lambda a, axis: np.linalg.norm(a, -np.inf, axis), "mean": lambda a, axis: np.mean(a, axis=axis),
    "kept": lambda a, axis: np.max(a, axis=axis, keepdims=True), "initial": lambda a, axis: np.max(a, axis=axis, initial=2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_along_axes_of_nothing(name: str) -> None:
    """Along an axis without elements NumPy raises, whatever is left."""
    for shape in ((0,), (0, 0), (0, 3), (3, 0), (0, 2, 0)):
        for axis in (None, 0, -1, (0, 1), ()):
            if not isinstance(axis, tuple) or len(axis) <= len(shape):
                result, expected = (outcome(f, np.zeros(shape), axis) for f in (
                    pb.jit(REDUCTIONS[name], static_argnames="axis"), REDUCTIONS[name]))  # fmt: skip
                assert repr(result) == repr(expected), (shape, axis)


def test_sums_of_bools_begin_with_their_initial() -> None:
    for function in (np.add.reduce, np.multiply.reduce):
        for initial in (0.5, 0.0, np.float64(5e-324), True):
            agrees(lambda a, b, f=function: f(a, dtype="?", initial=b), np.zeros(3), initial)


def test_copies_onto_the_array_that_they_are_of() -> None:
    def copied(x: Any) -> Any:
        a = np.array(x)
        reverse = a[::-1]
        np.copyto(reverse, a)
        return a, reverse

    def written(x: Any) -> Any:
        a = np.array(x)
        b = a.reshape(2, 3)
        b.T[...] = a.reshape(3, 2)
        np.positive(a, out=a[::-1])
        return a, b

    agrees(copied, np.arange(6.0))
    agrees(written, np.arange(6.0))

    def flat(x: Any) -> Any:
        a = np.array(x)
        a[::-1].flat = a
        return a

    agrees(flat, np.arange(3.0))

    def flat_in_unknown_order(x: Any) -> Any:
        a = x.copy("K")
        a.flat = a[:, ::-1]
        return a

    with pytest.raises(pb.TraceError, match="of elements of the same array"):
        pb.jit(flat_in_unknown_order)(np.asfortranarray(np.arange(6.0).reshape(2, 3)))


def test_powers_of_bools_have_the_dtype_that_the_exponent_decides() -> None:
    compiled = pb.jit(lambda a, n: a**n)
    for n in (10, 2, 3, 2):
        agrees(lambda a, n: a**n, np.array([True, False]), n)
        assert compiled(np.array([True, False]), n).dtype == (np.array([True, False]) ** n).dtype

    def in_place(a: Any) -> Any:
        b = a > 0
        b **= 2
        return b

    agrees(in_place, np.ones(2))


def test_products_of_stacked_complex_numbers() -> None:
    for shape in ((0,), (3,), (2, 2)):
        x = np.arange(float(np.prod(shape))).reshape(shape) + 1j
        agrees(lambda a: np.stack([a, a + 1, a]).prod(0), x)
        agrees(lambda a: np.array([a, a]).prod(axis=-1), x)


def test_pythons_complex_and_float64_give_pythons_complex() -> None:
    """A float64 is a float to Python: the sum is weak, and takes the precision of the array that it meets."""
    agrees(lambda a, b, x: (a + b) * x, 1j, np.float64(2.0), np.ones(2, np.complex64))
    agrees(lambda a, b, x: (b + a) * x, 1j, np.float64(2.0), np.ones(2, np.complex64))


def test_operators_that_scalars_do_not_have() -> None:
    for a, b in ((np.complex128(1j), 2), (2, np.complex64(1)), (np.float32(1), np.int8(1)), (np.uint64(3), True)):
        agrees(lambda a, b: a % b, a, b)
        agrees(lambda a, b: a & b, a, b)
        agrees(lambda a, b: a @ b, a, b)


@pytest.mark.parametrize("casting", ["no", "equiv", "safe", "same_kind", "unsafe"])
@pytest.mark.parametrize("value", [True, 1, 300, 1.5, 1j, 2**70])
def test_copies_of_python_numbers(casting: Any, value: Any) -> None:
    for dtype in ("?", "i1", "u1", "i8", "f4", "f8", "c8"):
        if isinstance(value, complex) and casting == "unsafe" and dtype in "?f4f8":
            continue  # NumPy warns of the part that it drops

        def copied(x: Any) -> Any:
            a = np.array(x)
            np.copyto(a, value, casting=casting)
            return a

        agrees(copied, np.zeros(2, dtype))


def test_insert_of_values_with_more_axes() -> None:
    for values in (np.ones((1, 1)), np.ones((1, 1, 1)), np.ones(3), np.ones((2, 1))):
        for at in (0, [0], slice(0, 1), [0, 1], 5):
            agrees(lambda a, v, at=at: np.insert(a, at, v), np.zeros(2), values)


def test_gradients_of_bools_raise_as_their_differences_do() -> None:
    agrees(lambda a: np.gradient(a), np.array([True, False, True]))
    agrees(lambda a: np.gradient(a, np.array([0.0, 1.0, 3.0]), edge_order=2), np.array([True, False, True]))
