"""A call of each function of SciPy in ``beyond.txt`` with traced arguments; it is differentiated by those of float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.sparse.linalg
import scipy.special
import scipy.stats

Row = tuple[Callable[..., Any], tuple[Any, ...]]

_rng = np.random.default_rng(23)


def normal(*shape: int) -> Any:
    return _rng.normal(size=shape)


def between(low: float, high: float, *shape: int) -> Any:
    return _rng.uniform(low, high, shape)


P, Q, SMALL, U = between(0.4, 2.0, 5), between(0.5, 1.8, 5), between(0.1, 0.9, 5), between(0.15, 0.85, 5)
X, M = normal(5), normal(4, 4) + 3 * np.eye(4)
DEFINITE = M @ M.T
SIGNAL, IMAGE = normal(64), normal(6, 7)
BAND = (3 + between(0.0, 1.0, 4), between(0.2, 0.9, 3))

ROWS: dict[str, Row] = {}


def special(names: str, *arguments: Any) -> None:
    for name in names.split():
        ROWS[f"scipy.special.{name}"] = (getattr(scipy.special, name), arguments)


special("entr erfcx exp1 expi spence loggamma dawsn fresnel sici i0e i1e", P)
special("log_ndtr ndtr", X)
special("log_softmax softmax", X)
special("ndtri", U)
special("rel_entr kl_div xlogy xlog1py owens_t poch", P, Q)
special("boxcox boxcox1p", P, Q)
special("zeta", P + 1.5, Q)
ROWS |= {
    "scipy.special.bernoulli": (lambda x: scipy.special.bernoulli(4) * x[0], (X,)),
    "scipy.special.jv": (lambda x: scipy.special.jv(2, x), (P,)),
    "scipy.special.comb": (lambda x: scipy.special.comb(5.5, x), (P,)),
    "scipy.special.expn": (lambda x: scipy.special.expn(3, x), (P,)),
    "scipy.special.factorial": (scipy.special.factorial, (P,)),
    "scipy.special.hyp1f1": (lambda x: scipy.special.hyp1f1(0.7, 1.9, x), (X,)),
    "scipy.special.hyp2f1": (lambda x: scipy.special.hyp2f1(0.7, 0.4, 1.9, x), (U,)),
    "scipy.special.sph_harm_y": (lambda t, p: np.abs(scipy.special.sph_harm_y(2, 1, t, p)), (P, Q)),
    "scipy.special.wofz": (lambda x: np.real(scipy.special.wofz(x)), (X,)),
}



def linalg(names: str, *arguments: Any) -> None:
    for name in names.split():
        ROWS[f"scipy.linalg.{name}"] = (getattr(scipy.linalg, name), arguments)


def constants(names: str) -> None:
    """Matrices made by an extent alone."""
    for name in names.split():
        ROWS[f"scipy.linalg.{name}"] = (lambda x, name=name: getattr(scipy.linalg, name)(4) * x[0], (X,))


linalg("det inv lu lu_factor polar expm", M / 4)
linalg("circulant companion fiedler fiedler_companion hankel toeplitz", P)
constants("dft hadamard hilbert invhilbert invpascal pascal helmert")
ROWS |= {
    "scipy.linalg.block_diag": (scipy.linalg.block_diag, (M, normal(2, 3))),
    "scipy.linalg.cholesky": (lambda a: scipy.linalg.cholesky((a + a.T) / 2), (DEFINITE,)),
    "scipy.linalg.cho_factor": (lambda a: np.triu(scipy.linalg.cho_factor((a + a.T) / 2)[0]), (DEFINITE,)),
    "scipy.linalg.cho_solve": (
        lambda a, b: scipy.linalg.cho_solve((np.linalg.cholesky((a + a.T) / 2), True), b),
        (DEFINITE, normal(4)),
    ),
    "scipy.linalg.convolution_matrix": (lambda x: scipy.linalg.convolution_matrix(x, 4), (X,)),
    "scipy.linalg.eigh": (lambda a: scipy.linalg.eigh((a + a.T) / 2)[0], (DEFINITE,)),
    "scipy.linalg.eigh_tridiagonal": (lambda d, e: scipy.linalg.eigh_tridiagonal(d, e)[0], BAND),
    "scipy.linalg.expm_frechet": (scipy.linalg.expm_frechet, (M / 4, normal(4, 4))),
    "scipy.linalg.funm": (lambda a: scipy.linalg.funm((a + a.T) / 20, np.exp), (DEFINITE,)),
    "scipy.linalg.hessenberg": (scipy.linalg.hessenberg, (M,)),
    "scipy.linalg.leslie": (scipy.linalg.leslie, (P, U[:4])),
    "scipy.linalg.lu_solve": (lambda a, b: scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b), (M, normal(4))),
    "scipy.linalg.qr": (scipy.linalg.qr, (M,)),
    "scipy.linalg.qr_multiply": (scipy.linalg.qr_multiply, (M, normal(4, 4))),
    "scipy.linalg.rsf2csf": (lambda a: np.abs(np.diag(scipy.linalg.rsf2csf(*scipy.linalg.schur(a))[0])), (M,)),
    "scipy.linalg.schur": (lambda a: np.trace(scipy.linalg.schur(a)[0]), (M,)),
    "scipy.linalg.solve": (scipy.linalg.solve, (M, normal(4))),
    "scipy.linalg.svd": (lambda a: scipy.linalg.svd(a)[1], (M,)),
    "scipy.signal.convolve2d": (scipy.signal.convolve2d, (IMAGE, normal(2, 3))),
    "scipy.signal.correlate": (scipy.signal.correlate, (SIGNAL, normal(5))),
    "scipy.signal.correlate2d": (scipy.signal.correlate2d, (IMAGE, normal(2, 3))),
    "scipy.signal.csd": (lambda x, y: np.abs(scipy.signal.csd(x, y, nperseg=16)[1]), (SIGNAL, normal(64))),
    "scipy.signal.detrend": (scipy.signal.detrend, (SIGNAL,)),
    "scipy.signal.fftconvolve": (scipy.signal.fftconvolve, (SIGNAL, normal(5))),
    "scipy.signal.istft": (lambda x: scipy.signal.istft(scipy.signal.stft(x, nperseg=16)[2], nperseg=16)[1], (SIGNAL,)),
    "scipy.signal.stft": (lambda x: np.abs(scipy.signal.stft(x, nperseg=16)[2]) ** 2, (SIGNAL,)),
    "scipy.signal.welch": (lambda x: scipy.signal.welch(x, nperseg=16)[1], (SIGNAL,)),
    "scipy.ndimage.map_coordinates": (
        lambda image, at: scipy.ndimage.map_coordinates(image, at, order=1),
        (IMAGE, np.stack([between(0.1, 4.9, 4), between(0.1, 5.9, 4)])),
    ),
    "scipy.integrate.trapezoid": (scipy.integrate.trapezoid, (SIGNAL,)),
    "scipy.interpolate.RegularGridInterpolator": (
        lambda values, at: scipy.interpolate.RegularGridInterpolator((np.arange(6.0), np.arange(7.0)), values)(at),
        (IMAGE, np.stack([between(0.1, 4.9, 4), between(0.1, 5.9, 4)], axis=1)),
    ),
    "scipy.cluster.vq.vq": (lambda x, c: scipy.cluster.vq.vq(x, c)[1], (normal(6, 2), normal(3, 2))),
}
ROWS |= {f"scipy.fft.{name}": (getattr(scipy.fft, name), (SIGNAL,)) for name in ("dct", "idct")}
ROWS |= {f"scipy.fft.{name}": (getattr(scipy.fft, name), (IMAGE,)) for name in ("dctn", "idctn")}
ROWS |= {
    f"scipy.sparse.linalg.{name}": (
        lambda a, b, name=name: getattr(scipy.sparse.linalg, name)((a + a.T) / 2, b, rtol=1e-13)[0],
        (DEFINITE, normal(4)),
    )
    for name in ("cg", "gmres", "bicgstab")
}

COUNTS = np.array([0, 1, 3, 2, 4])
LAWS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bernoulli": (np.array([0, 1, 1, 0, 1]), (SMALL,)), "beta": (U, (P, Q)), "betabinom": (COUNTS, (6, P, Q)),
    "binom": (COUNTS, (6, SMALL)), "cauchy": (X, (Q, P)), "chi2": (P, (Q,)), "expon": (P, (0.1, Q)),
    "gamma": (P, (Q,)),
    "gennorm": (X, (P,)), "geom": (COUNTS + 1, (SMALL,)), "gumbel_l": (X, (Q, P)), "gumbel_r": (X, (Q, P)),
    "laplace": (X, (Q, P)),
    "logistic": (X, (Q, P)), "nbinom": (COUNTS, (P, SMALL)), "norm": (X, (Q, P)), "pareto": (P + 1.2, (Q,)),
    "truncnorm": (U - 0.5, (-1.5, 2.0)), "uniform": (U, (0.05, 1.1)), "vonmises": (U, (P,)), "wrapcauchy": (P, (SMALL,)),
}  # fmt: skip


def law(line: str) -> Row:
    """The call of a distribution's method."""
    _, _, name, method = line.split(".")
    x, parameters = LAWS[name]
    call = getattr(getattr(scipy.stats, name), method)
    if method == "entropy":
        return call, parameters
    return call, (U if method in ("ppf", "isf") else x, *parameters)


ROWS |= {
    "scipy.stats.gaussian_kde": (lambda data, at: scipy.stats.gaussian_kde(data)(at), (SIGNAL, X)),
    "scipy.stats.mode": (lambda x: scipy.stats.mode(np.round(x))[0], (SIGNAL,)),
    "scipy.stats.rankdata": (scipy.stats.rankdata, (SIGNAL,)),
    "scipy.stats.sem": (scipy.stats.sem, (SIGNAL,)),
    "scipy.stats.poisson.entropy": (scipy.stats.poisson.entropy, (P,)),
    "scipy.stats.multinomial.logpmf": (lambda p: scipy.stats.multinomial.logpmf([1, 2, 0, 1, 1], 5, p / np.sum(p)), (P,)),
    "scipy.stats.multinomial.pmf": (lambda p: scipy.stats.multinomial.pmf([1, 2, 0, 1, 1], 5, p / np.sum(p)), (P,)),
}

MISSING = {
    "scipy.optimize.minimize": "runs outside, on pb.value_and_grad of the function with jac=True",
    "scipy.spatial.transform.Rotation": "objects of compiled classes are not traced; write the matrix",
    "scipy.spatial.transform.Slerp": "objects of compiled classes are not traced; write the interpolation of quaternions",
}
"""What is refused, and why."""

NO_GRADIENT = (
    "scipy.linalg.hessenberg", "scipy.linalg.rsf2csf", "scipy.linalg.schur", "scipy.stats.mode", "scipy.stats.rankdata",
    "scipy.stats.bernoulli.ppf",
)  # fmt: skip
"""Calls whose results have no derivative, or none that is there."""
