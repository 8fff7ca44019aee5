"""scipy.ndimage, interpolate, spatial, cluster and samples of scipy.stats: values and gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.interpolate
import scipy.ndimage
import scipy.sparse.linalg
import scipy.spatial
import scipy.special
import scipy.stats

import pullback as pb
from tests.support.agreement import agrees, gradients_agree
from tests.support.versions import since

Call = Callable[..., Any]
ndimage, interpolate, stats, distance = scipy.ndimage, scipy.interpolate, scipy.stats, scipy.spatial.distance
RNG = np.random.default_rng(3)
A, K, V = RNG.normal(size=(6, 5)), RNG.normal(size=(3, 2)), RNG.normal(size=(6, 5, 2))
PLACES = np.array([[0.3, 2.2], [4.4, 3.1], [1.6, 0.9]])
AXES = (np.arange(6.0), np.array([0.0, 1.0, 2.5, 3.0, 4.5]))
GRID = interpolate.RegularGridInterpolator(AXES, V)
CUBIC, SIDE = interpolate.CubicSpline(AXES[0], V), interpolate.CubicSpline(AXES[1], V, axis=1, extrapolate=False)
PCHIP = interpolate.PchipInterpolator(AXES[0], A[:, 0])
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")
WEIGHTS = RNG.uniform(0.5, 1.0, 6)
KDE = stats.gaussian_kde(A[:, :2].T, weights=WEIGHTS)
ROUND = np.round(A * 2) / 2

CALLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "ndimage.convolve": (lambda a, k: [ndimage.convolve(a, k, mode=m, cval=0.5) for m in MODES], (A, K)),
    "ndimage.correlate": (lambda a, k: [ndimage.correlate(a, k, origin=(1, 0)), ndimage.convolve(a, k, origin=-1)], (A, K)),
    "ndimage.1d": (
        lambda a: [ndimage.convolve1d(a, [1.0, 2.0, 3.0, 1.0], axis=0), ndimage.correlate1d(a, [1.0, 2.0], mode="wrap")], (A,),
    ),
    "gaussian_filter": (lambda a: [ndimage.gaussian_filter(a, (0.4, 0.8)), ndimage.gaussian_filter(a, 0.5, order=1)], (A,)),
    "uniform_filter": (lambda a: [ndimage.uniform_filter(a, 3), ndimage.uniform_filter(a, (2, 1), mode="mirror")], (A,)),
    "edges": (lambda a: [ndimage.sobel(a), ndimage.prewitt(a, axis=0, mode="nearest")], (A,)),
    "map_coordinates": (
        lambda a, x: [
            ndimage.map_coordinates(a, 9 * (x - 0.5), order=1, mode=m)
            for m in (*MODES, "grid-wrap", "grid-mirror", "grid-constant")
        ],
        (A, RNG.uniform(size=(2, 7))),
    ),
    "map_coordinates 0": (lambda a: [ndimage.map_coordinates(a, PLACES.T[:, :2], order=0, mode=m) for m in MODES], (A,)),
    "grid": (
        lambda v, x: [
            interpolate.RegularGridInterpolator(AXES, v)(x),
            interpolate.RegularGridInterpolator(AXES, v, "nearest")(x[0]),
            interpolate.RegularGridInterpolator(AXES, v, bounds_error=False, fill_value=0.5)((9 * x[:, 0] - 3.0, x[:, 1])),
            interpolate.RegularGridInterpolator(AXES, v, bounds_error=False, fill_value=None)(9 * x - 20.0),
        ],
        (V, PLACES),
    ),
    "grid outside": (lambda x: GRID(x), (PLACES,)),
    "splines outside": (lambda x: [CUBIC(x), CUBIC(x - 9.0, 1), SIDE(x), PCHIP(x), PCHIP.derivative()(x)], (PLACES,)),
    "CubicSpline": (
        lambda y, x: [
            interpolate.CubicSpline(AXES[0], y)(x),
            interpolate.CubicSpline(AXES[1], y, axis=1, bc_type="natural")(x, 2),
            interpolate.CubicSpline(AXES[1] + x[0, 0], y[0], bc_type="clamped")(x),
        ],
        (V, PLACES),
    ),
    "interp1d": (
        lambda y, x: [
            interpolate.interp1d(AXES[1], y, axis=1, bounds_error=False, fill_value=2.0)(3 * x),
            interpolate.interp1d(AXES[0], y, axis=0, fill_value="extrapolate")(x - 1.0),
            interpolate.interp1d(AXES[0], y[:, 0, 0])(x),
        ],
        (V, PLACES),
    ),
    "cdist": (
        lambda a, b: [
            distance.cdist(a, b, m)
            for m in ("cosine", "correlation", "canberra", "braycurtis", "euclidean", "cityblock", "chebyshev", "sqeuclidean")
        ],
        (A, RNG.normal(size=(3, 5))),
    ),
    "minkowski": (
        lambda a, b: [distance.cdist(a, b, "minkowski", p=3), distance.minkowski(a[0], b[1], 1.5), distance.cosine(a[0], b[0])],
        (A, RNG.normal(size=(3, 5))),
    ),
    "squareform": (lambda a: [distance.squareform(distance.pdist(a)), distance.pdist(a, 'cityblock')], (A,)),
    "vq": (lambda a, b: scipy.cluster.vq.vq(a, b)[1], (A, RNG.normal(size=(3, 5)))),
    "gaussian_kde": (
        lambda x, d, w: [
            stats.gaussian_kde(d)(x), stats.gaussian_kde(d[0], "silverman")(x[0]), stats.gaussian_kde(d, weights=w).logpdf(x),
            stats.gaussian_kde(d, 0.4).pdf(x[:, 0]),
        ],
        (PLACES[:2], A[:, :2].T, WEIGHTS),
    ),
    "gaussian_kde outside": (lambda x: [KDE(x), KDE.logpdf(x)], (PLACES[:2],)),
    "iqr": (lambda a: [stats.iqr(a), stats.iqr(a, axis=1, scale="normal")], (A,)),
    "trim_mean": (lambda a: [stats.trim_mean(a, 0.2), stats.trim_mean(a, 0.3, None)], (A,)),
    "solvers": (
        lambda a, b: [
            getattr(scipy.sparse.linalg, k)(a @ a.T + np.eye(6), b, rtol=1e-14)[0] for k in ("cg", "gmres", "bicgstab")
        ],
        (A / 2, WEIGHTS),
    ),
    "sph_harm_y": (
        lambda x: [
            part(scipy.special.sph_harm_y(n, m, x[0], x[1]))
            for n, m in ((0, 0), (3, -2), (np.array([[2], [4]]), 1)) for part in (np.real, np.imag)
        ],
        (PLACES.T,),
    ),
    "wofz": (lambda x: [np.real(scipy.special.wofz(x)), np.imag(scipy.special.wofz(x))], (PLACES,)),
    "poisson.entropy": (lambda mu: stats.poisson.entropy(mu), (np.array([0.5, 3.0, 50.0, 120.0]),)),
    "bernoulli.entropy": (lambda p: stats.bernoulli.entropy(p), (np.array([0.2, 0.6]),)),
}  # fmt: skip

VALUES: dict[str, tuple[Call, Any]] = {
    "rankdata": (
        lambda x: [
            stats.rankdata(x, m, axis=k) for m in ("average", "min", "max", "dense", "ordinal") for k in (None, 0, 1)
        ],
        ROUND,
    ),
    "rankdata NaN": (lambda x: [stats.rankdata(x, axis=k) for k in (None, 0, 1)], np.where(ROUND[1, 2] == ROUND, np.nan, ROUND)),
    "mode": (lambda x: [stats.mode(x, axis=k, keepdims=b).mode for k in (None, 0, 1) for b in (False, True)], ROUND),
    **dict(since(scipy, "1.16.0", ("mode's count", (lambda x: [stats.mode(x, axis=k).count for k in (None, 0, 1)], ROUND)))),
    "mode of integers": (lambda x: tuple(stats.mode(x.astype(int))), ROUND),
    "ppf": (
        lambda q: [
            stats.bernoulli.ppf(q, 0.3), stats.bernoulli.isf(q, 0.3), stats.bernoulli.ppf(q, 0.3, loc=2), stats.geom.ppf(q, 0.3),
        ],
        np.array([0, 0.1, 0.3, 0.7, 0.9999, 1, -1, np.nan]),
    ),
    "poisson.entropy": (lambda mu: stats.poisson.entropy(mu), np.array([0.0, 150.0, 250.0])),
    "map_coordinates of integers": (lambda x: ndimage.map_coordinates((9 * x).astype(np.int32), PLACES.T[:, :2], order=1), A),
    "vq codes": (lambda x: scipy.cluster.vq.vq(x, A[:3] + 0.1), A),
    "float32": (lambda x: ndimage.gaussian_filter(x.astype("f4"), 1.0), A),
    "integers": (lambda x: ndimage.convolve((9 * x).astype(int), np.ones((2, 2))), A),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str) -> None:
    call, args = CALLS[name]
    agrees(call, *args, rtol=1e-9, atol=1e-12)
    gradients_agree(call, *args)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    call, x = VALUES[name]
    agrees(call, x, rtol=1e-6 if name == "float32" else 1e-10)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: GRID(x + 10.0), "One of the requested xi is out of bounds in dimension 0"),
        (lambda x: interpolate.interp1d(AXES[0], V, axis=0)(x + 10.0), "A value .*in x_new is above"),
        (lambda x: distance.cdist(x, x[:, :1]), "same number of columns"),
    ],
)
def test_errors_are_those_of_scipy(call: Call, words: str) -> None:
    for function in (call, pb.jit(call)):
        with pytest.raises(ValueError, match=words):
            function(PLACES)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ndimage.map_coordinates(x, x.T, order=3), "use order=1"),
        (lambda x: interpolate.CubicSpline(x[:, 0], x, bc_type="periodic"), "'natural'"),
        (lambda x: interpolate.interp1d(x[:, 0], x, kind="cubic", axis=0), "is linear"),
        (lambda x: KDE.integrate_box_1d(x[0, 0], 1.0), "integrate_box_1d"),
    ],
)
def test_refused(call: Call, words: str) -> None:
    with pytest.raises(pb.TraceError, match=words) as caught:
        pb.jit(call)(PLACES)
    assert caught.value.file == __file__
