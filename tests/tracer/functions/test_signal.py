"""Convolutions, filters, interpolation, integrals, differences, polynomials, and reductions that leave NaNs out."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.signal
import scipy.spatial
import scipy.stats

import pullback as pb
from tests.support.agreement import agrees, gradients_agree

Call = Callable[..., Any]
signal = scipy.signal
RNG = np.random.default_rng(1)
X = RNG.normal(size=9)
Y = RNG.normal(size=4)
A = RNG.normal(size=(5, 9))
B = RNG.normal(size=(2, 3))
LONG = RNG.normal(size=70)
BUTTER = signal.butter(4, 0.2)
SECTIONS = signal.butter(5, 0.3, output="sos")
RISING = np.array([0.1, 0.4, 0.5, 1.1, 1.7, 2.0, 2.2, 3.0, 3.1])
NANS = np.where(np.arange(45) % 4 == 1, np.nan, RNG.normal(size=45)).reshape(5, 9)

OF_TWO: list[Call] = [
    *(lambda x, y, m=m: np.convolve(x, y, m) for m in ("full", "same", "valid")),
    *(lambda x, y, m=m: np.convolve(y[:2], x, m) for m in ("full", "same", "valid")),
    *(lambda x, y, m=m: np.correlate(x, y, m) for m in ("full", "same", "valid")),
    *(lambda x, y, m=m: np.correlate(y, x, m) for m in ("full", "same", "valid")),
    lambda x, y: np.correlate(x, y),
    *(lambda x, y, m=m: signal.convolve(x, y, m) for m in ("full", "same", "valid")),
    *(lambda x, y, m=m: signal.correlate(y, x, m) for m in ("full", "same", "valid")),
    *(lambda x, y, m=m: signal.fftconvolve(y, x, m) for m in ("full", "same", "valid")),
    lambda x, y: signal.oaconvolve(x, y, "same"),
    lambda x, y: signal.convolve(np.outer(x, y), B, "same"),
    lambda x, y: signal.convolve2d(np.outer(x, y), np.outer(y, y), "valid"),
    lambda x, y: signal.correlate(np.outer(x, y), np.outer(x, y), "same"),
    lambda x, y: signal.lfilter(y, [2.0, -0.6], x),
    lambda x, y: signal.lfilter(y, 1.5, x),
    lambda x, y: signal.lfilter([1.0, 0.5], [1.0, -0.5, 0.3], x),
    lambda x, y: signal.lfilter(y, [2.0, 0.3, 0.2, 0.1, -0.2, 0.1], np.outer(y, x), axis=0),
    lambda x, y: signal.lfilter([1.0], np.array([1.0, 0.2]) * y[0], x),
    lambda x, y: signal.lfilter([1.0, y[0]], [1.0, 0.2 * y[1], -0.1 * y[2]], x),
    lambda x, y: signal.lfilter([0.3, 0.2], [1.0, -0.4, 0.1], x, zi=y[:2]),
    lambda x, y: signal.lfilter(y, [1.0, -0.4], np.outer(y, x), zi=np.outer(y, y[:3])),
    lambda x, y: signal.lfilter(y, [1.0, -0.4], x[:2], zi=y[1:]),
    lambda x, y: np.interp(x, RISING, X),
    lambda x, y: np.interp(np.abs(x), np.cumsum(np.abs(y)), y, left=-1.0, right=y[0]),
    lambda x, y: np.interp(x, [0.1, 2.0, 0.7, 1.1], y, period=2.5),
    lambda x, y: np.interp(x, [1.0], y[:1]),
    lambda x, y: np.trapezoid(x, RISING) if hasattr(np, "trapezoid") else np.trapz(x, RISING),
    lambda x, y: scipy.integrate.trapezoid(np.outer(y, x), dx=y[0], axis=0),
    lambda x, y: scipy.integrate.cumulative_trapezoid(x, np.cumsum(np.abs(x)), initial=0),
    lambda x, y: scipy.integrate.cumulative_trapezoid(np.outer(y, x), RISING),
    lambda x, y: (scipy.integrate.simpson(x, x=RISING), scipy.integrate.simpson(y, dx=0.3)),
    lambda x, y: (
        scipy.integrate.simpson(np.outer(x, y)),
        scipy.integrate.simpson(np.outer(x, y), axis=0),
        scipy.integrate.simpson(y[:2]),
    ),
    lambda x, y: (
        np.gradient(x),
        np.gradient(x, 0.5, edge_order=2),
        np.gradient(x, RISING),
        np.gradient(x, RISING, edge_order=2),
    ),
    lambda x, y: np.gradient(np.outer(x, y), y[0], np.cumsum(np.abs(y))),
    lambda x, y: np.gradient(np.outer(x, y), axis=1),
    lambda x, y: np.ediff1d(x, to_end=[1.0, 2.0], to_begin=y[0]),
    lambda x, y: (np.unwrap(3 * x), np.unwrap(np.outer(5 * y, x), axis=0, period=4.0)),
    lambda x, y: (np.polyval(y, x), np.polyval(y, 2.0), np.polyval([1.0, 2.0], x)),
    lambda x, y: (np.polyder(y), np.polyder(y, 2), np.polyint(y), np.polyint(y, 2, [1.0, 2.0])),
    lambda x, y: (np.polyadd(x, y), np.polysub(y, x), np.polymul(x, y)),
    lambda x, y: (np.polynomial.polynomial.polyval(x, y), np.polynomial.polynomial.polyval(x, np.outer(y, y))),
    lambda x, y: (np.cov(np.outer(y, x) + A[:4]), np.cov(x, x**2), np.cov(A, ddof=0, aweights=np.abs(x))),
    lambda x, y: (np.cov(x), np.cov(np.outer(x, y) + X[:, None] ** 2, rowvar=False, bias=True)),
    lambda x, y: np.corrcoef(np.outer(y, x) + A[:4]),
    lambda x, y: (np.block([[x, y], [y, x]]), np.block([x, 2.0]), np.resize(y, (3, 2))),
    lambda x, y: np.bincount([0, 2, 2, 1], weights=y, minlength=5),
    lambda x, y: scipy.spatial.distance.cdist(np.outer(y, x), A),
    lambda x, y: [scipy.spatial.distance.cdist(A, np.outer(y, x), m) for m in ("sqeuclidean", "cityblock", "chebyshev")],
    lambda x, y: scipy.spatial.distance.pdist(np.outer(y, x)),
    lambda x, y: np.exp([x[0], 1.0]) + np.maximum([x[0], y[0]], 0.5),
    lambda x, y: (scipy.stats.zscore(x), scipy.stats.zscore(np.outer(x, y), axis=1, ddof=1), scipy.stats.sem(x)),
    lambda x, y: (
        scipy.stats.gmean(np.abs(x)),
        scipy.stats.hmean(np.abs(x)),
        scipy.stats.variation(x),
        scipy.stats.moment(x, 3),
    ),
    lambda x, y: (
        scipy.stats.skew(x),
        scipy.stats.kurtosis(x),
        scipy.stats.skew(x, bias=False),
        scipy.stats.kurtosis(x, bias=False),
    ),
]
# with an axis or not, for arrays with NaNs
OF_NANS: list[Call] = [
    lambda a: (np.nansum(a), np.nansum(a, axis=0), np.nanprod(a, axis=1, keepdims=True)),
    lambda a: (np.nanmean(a), np.nanmean(a, axis=1), np.nanvar(a, axis=0, ddof=1), np.nanstd(a)),
    lambda a: (np.nanmax(a), np.nanmin(a, axis=0), np.nanmax(a, axis=1, keepdims=True)),
    lambda a: (np.nancumsum(a, axis=1), np.nancumprod(a)),
]
FILTERS: list[Call] = [
    lambda x: (signal.detrend(x), signal.detrend(x, type="constant"), signal.detrend(x, bp=[20, 45])),
    lambda x: signal.detrend(np.outer(x, Y), axis=0),
    *(lambda x, m=m: signal.savgol_filter(x, 7, 2, mode=m) for m in ("interp", "mirror", "nearest", "wrap", "constant")),
    lambda x: signal.savgol_filter(np.outer(Y, x), 9, 3, deriv=1, delta=0.5),
    lambda x: signal.savgol_filter(x, 41, 3),
    lambda x: signal.lfilter(*BUTTER, np.concatenate([x] * 8)),
    lambda x: signal.lfilter([0.2, 0.1], [1.0, -1.2, 0.5], np.outer(Y, np.tile(x, 5)), zi=np.outer(Y, Y[:2])),
    lambda x: (signal.filtfilt(*BUTTER, x), signal.filtfilt([0.3, 0.2], [1.0, -0.4], np.outer(x, Y), axis=0, padlen=5)),
    lambda x: (signal.filtfilt(*BUTTER, x, padtype="even"), signal.filtfilt(*BUTTER, x, padtype=None)),
    lambda x: (signal.sosfilt(SECTIONS, x), signal.sosfilt(SECTIONS, np.outer(x, Y), axis=0)),
    lambda x: signal.lfilter(np.hanning(40), [1.0], np.outer(Y, x)),
    lambda x: (signal.convolve(x, x[:50]), np.convolve(x, np.hanning(45), "same")),
    lambda x: signal.convolve(np.outer(x[:9], x[:8]), np.outer(x[:7], x[:6])),
]
SEARCHES: list[Call] = [
    lambda a, v: (np.searchsorted(a, v), np.searchsorted(a, v, side="right"), a.searchsorted(v[0])),
    lambda a, v: (np.digitize(v, a_static()), np.digitize(v, a_static()[::-1]), np.digitize(v, a_static(), right=True)),
    lambda a, v: np.searchsorted(a[::-1], v, sorter=np.arange(8, -1, -1)),
]


def a_static() -> Any:
    return [0.1, 0.5, 1.7]


def numbered(calls: list[Call]) -> Any:
    return [pytest.param(c, id=str(k)) for k, c in enumerate(calls)]


@pytest.mark.parametrize("call", numbered(OF_TWO))
def test_of_two(call: Call) -> None:
    agrees(call, X, Y, rtol=1e-11, atol=1e-13)
    gradients_agree(call, X, Y)


@pytest.mark.parametrize("call", numbered(OF_NANS))
def test_reductions_without_nans(call: Call) -> None:
    for a in (NANS, NANS.astype("f4"), np.arange(6).reshape(2, 3), np.full((2, 2), np.nan)):
        agrees(call, a, rtol=1e-5 if a.dtype == np.float32 else 1e-12, atol=1e-15)
    gradients_agree(lambda s: call(NANS * s), 1.3)
    assert np.isfinite(pb.grad(lambda a: sum(np.sum(np.where(np.isfinite(r), r, 0)) for r in call(a)))(np.abs(NANS) + 1))[
        ~np.isnan(NANS)
    ].all()


@pytest.mark.parametrize("call", numbered(FILTERS))
def test_filters(call: Call) -> None:
    agrees(call, LONG, rtol=1e-10, atol=1e-12)
    gradients_agree(call, LONG)


@pytest.mark.parametrize("call", numbered(SEARCHES))
def test_searches(call: Call) -> None:
    values = np.array([-1.0, 0.1, 0.45, 1.7, 3.1, 9.0, np.nan, np.inf])
    agrees(call, RISING, values)
    agrees(call, np.array([0, 0, 1, 1, 1, 2, 5, 5, 7]), values)
    agrees(lambda v: np.searchsorted(np.array([0.5, 1.0, np.nan, np.nan]), v, side="right"), values)
    agrees(lambda v: np.searchsorted(np.array([]), v), values)


def test_positions_without_nans() -> None:
    agrees(lambda a: (np.nanargmax(a), np.nanargmin(a, axis=0), np.nanargmax(a, axis=1, keepdims=True)), NANS)
    with pytest.raises(ValueError, match="All-NaN"):
        pb.jit(lambda a: np.nanargmax(a, axis=1))(np.full((2, 2), np.nan))


def test_edges_and_dtypes() -> None:
    at = np.array([np.nan, np.inf, -np.inf, 0.1, 3.1, 0.0999, 3.1001, 0.5])
    agrees(lambda x: np.interp(x, RISING, X), at, rtol=1e-13)
    agrees(lambda x: np.interp(x, RISING, X), np.float32(0.7), rtol=1e-13)
    agrees(lambda a, b: (np.convolve(a, b), np.correlate(a, b, "same"), signal.convolve(a, b)), np.arange(5), np.arange(3))
    agrees(lambda a: np.convolve(a, a), X.astype("f4"), rtol=1e-5)
    agrees(lambda a: signal.lfilter([1.0, 2.0], [1.0, 0.5], a), np.arange(5))
    np.testing.assert_array_equal(pb.grad(lambda x: np.sum(np.interp(x, RISING, X)))(np.array([-1.0, 5.0])), [0.0, 0.0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: scipy.spatial.distance.cdist(np.outer(x, x), A, "jaccard"), "euclidean"),
        (lambda x: scipy.stats.zscore(x, nan_policy="omit"), "nan_policy"),
    ],
)
def test_refused(call: Call, words: str) -> None:
    with pytest.raises(pb.TraceError, match=words) as caught:
        pb.jit(call)(X)
    assert caught.value.file == __file__


def test_wrong_calls_raise_as_in_numpy() -> None:
    for call in (
        lambda x: np.convolve(x, x[:0]),
        lambda x: np.convolve(np.outer(x, x), x),
        lambda x: signal.convolve(x, np.outer(x, x)),
        lambda x: signal.convolve(np.outer(x, x[:2]), np.outer(x[:2], x), "valid"),
        lambda x: np.gradient(x[:1]),
        lambda x: np.interp(x, x, x[:2]),
        lambda x: np.searchsorted(x, x, side="middle"),
        lambda x: signal.detrend(x, type="cubic"),
        lambda x: signal.savgol_filter(x, 11, 2),
    ):
        with pytest.raises(ValueError):
            call(X)
        with pytest.raises(ValueError):
            pb.jit(call)(X)
