"""Series of numpy.polynomial, filters of scipy.ndimage and scipy.signal, scipy.fftpack and pearsonr: values, dtypes and
derivatives as NumPy and SciPy have them, with their options."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fftpack
import scipy.ndimage
import scipy.signal
import scipy.stats
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre, polynomial

import pullback as pb

RNG = np.random.default_rng(8)
X, C = RNG.uniform(-1, 1, 5), RNG.normal(size=4)
GRID, CUBE, IMAGE = RNG.normal(size=(3, 2)), RNG.normal(size=(2, 3, 2)), RNG.normal(size=(6, 7))
FAMILIES = {"cheb": chebyshev, "leg": legendre, "herm": hermite, "herme": hermite_e, "lag": laguerre, "poly": polynomial}

Call = Callable[..., Any]


def same(function: Call, *args: Any, slope: bool = True) -> None:
    """The call compiled is the plain one, and its derivative is that of differences."""
    with warnings.catch_warnings(action="ignore"):
        expected = function(*args)
    result = pb.jit(function)(*args)
    for a, b in zip(result, expected) if isinstance(expected, tuple) else [(result, expected)]:
        assert (np.asarray(a).dtype, np.shape(a)) == (np.asarray(b).dtype, np.shape(b))
        tolerance = 1e-5 if np.asarray(b).dtype in (np.float32, np.complex64) else 1e-11
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    if slope:

        def loss(*xs: Any) -> Any:
            outcome = function(*xs)
            leaves = outcome if isinstance(outcome, tuple) else (outcome,)
            return sum(np.sum(np.abs(leaf * leaf) * np.arange(1.0, 1 + np.size(leaf)).reshape(np.shape(leaf))) for leaf in leaves)

        assert pb.check_grad(loss)(*args).is_right


SERIES: list[tuple[str, tuple[Any, ...]]] = [
    ("val", (X, C)), ("val", (0.5, C)), ("val", (X, GRID)), ("val2d", (X, X + 1, GRID)), ("val3d", (X, X, X, CUBE)),
    ("grid2d", (X, C, GRID)), ("grid3d", (X, C, X[:2], CUBE)), ("der", (C,)), ("int", (C,)),
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("name", "args"), SERIES, ids=[f"{name}{k}" for k, (name, _) in enumerate(SERIES)])
def test_series(family: str, name: str, args: tuple[Any, ...]) -> None:
    same(getattr(FAMILIES[family], f"{family}{name}"), *args)


@pytest.mark.parametrize("family", FAMILIES)
def test_series_of_other_numbers(family: str) -> None:
    value, vander = (getattr(FAMILIES[family], f"{family}{name}") for name in ("val", "vander"))
    same(value, X, np.array([1, 2, 3]), slope=False)
    same(value, X + 1j, C)
    same(value, X.astype(np.float32), C.astype(np.float32), slope=False)
    same(value, np.zeros(0), C, slope=False)
    same(lambda x, c: value(x, c, tensor=False), np.array([0.5, 0.25]), GRID)
    same(lambda x: vander(x, 3), X)
    add = getattr(FAMILIES[family], f"{family}add")
    for a, b in ((X, C), (C, X), (C, -C), (C, np.array([0.5]))):
        np.testing.assert_array_equal(pb.jit(add, guards=False)(a, b), add(a, b))


FILTERS: dict[str, Call] = {
    "maximum": lambda x: scipy.ndimage.maximum_filter(x, 3),
    "minimum": lambda x: scipy.ndimage.minimum_filter(x, size=(2, 3), mode="nearest"),
    "maximum of a footprint": lambda x: scipy.ndimage.maximum_filter(x, footprint=[[0, 1, 0], [1, 1, 1]], mode="wrap"),
    "minimum with an origin": lambda x: scipy.ndimage.minimum_filter(x, 3, origin=(1, -1), mode="mirror"),
    "maximum, constant": lambda x: scipy.ndimage.maximum_filter(x, 4, mode="constant", cval=0.5),
    "maximum along an axis": lambda x: scipy.ndimage.maximum_filter(x, 3, axes=(1,)),
    "minimum 1d": lambda x: scipy.ndimage.minimum_filter1d(x, 4, axis=0),
    "median": lambda x: scipy.ndimage.median_filter(x, (3, 2)),
    "medfilt": lambda x: scipy.signal.medfilt(x, (3, 5)),
    "medfilt by default": lambda x: scipy.signal.medfilt(x),
    "upfirdn": lambda x: scipy.signal.upfirdn(C, x, 3, 2),
    "upfirdn along an axis": lambda x: scipy.signal.upfirdn(C, x, 1, 2, axis=0),
    "upfirdn of long taps": lambda x: scipy.signal.upfirdn(np.cos(np.arange(40.0)), x, 2, 3),
    "pearsonr": lambda x: tuple(scipy.stats.pearsonr(x[0], x[1])),
    "pearsonr, less": lambda x: scipy.stats.pearsonr(x, x[::-1] ** 2, alternative="less", axis=1).pvalue,
    "deconvolve": lambda x: scipy.signal.deconvolve(x[0], x[1, :3]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(name: str) -> None:
    same(FILTERS[name], IMAGE)
    same(FILTERS[name], IMAGE.astype(np.float32), slope=False)
    if not name.startswith(("pearsonr", "deconvolve", "upfirdn")):
        same(FILTERS[name], (IMAGE * 10).astype(np.int64), slope=False)


TRANSFORMS: dict[str, Call] = {
    **{name: getattr(scipy.fftpack, name) for name in ("fft", "ifft", "rfft", "irfft", "dct", "idct", "dst", "idst")},
    **{name: getattr(scipy.fftpack, name) for name in ("fft2", "ifft2", "fftn", "ifftn", "dctn", "idctn", "dstn", "idstn")},
    **{f"rfft of length {n}": lambda x, n=n: scipy.fftpack.rfft(x, n, 0) for n in (4, 7)},
    **{f"irfft of length {n}": lambda x, n=n: scipy.fftpack.irfft(x, n, 0) for n in (4, 7)},
    **{f"idct {k}": lambda x, k=k: scipy.fftpack.idct(x, k, axis=0, norm="ortho") for k in (1, 2, 3, 4)},
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_fftpack(name: str) -> None:
    same(TRANSFORMS[name], IMAGE)
    same(TRANSFORMS[name], IMAGE.astype(np.float32), slope=False)


def test_what_they_raise() -> None:
    cases: list[tuple[Call, type[Exception], str]] = [
        (lambda x: scipy.ndimage.maximum_filter(x), RuntimeError, "no footprint provided"),
        (lambda x: scipy.signal.medfilt(x, 2), ValueError, "Each element of kernel_size should be odd"),
        (lambda x: scipy.fftpack.rfft(x + 1j), TypeError, "x must be a real sequence"),
        (lambda x: scipy.signal.upfirdn(x, x), ValueError, "h must be 1-D with non-zero length"),
    ]
    for function, kind, words in cases:
        for f in (function, pb.jit(function)):
            with pytest.raises(kind, match=words):
                f(IMAGE)
