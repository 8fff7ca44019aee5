"""A call of each function that HIPS autograd differentiates (``floor.txt``), by its name there.

A row holds the function and the arguments that it is differentiated by; what else a call needs is in the function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats

Call = Callable[..., Any]
Row = tuple[Call, tuple[Any, ...]]

_rng = np.random.default_rng(11)


def normal(*shape: int) -> Any:
    return _rng.normal(size=shape)


def between(low: float, high: float, *shape: int) -> Any:
    return _rng.uniform(low, high, shape)


def cplx(*shape: int) -> Any:
    return _rng.normal(size=shape) + 1j * _rng.normal(size=shape)


def definite(n: int) -> Any:
    a = normal(n, n)
    return a @ a.T + n * np.eye(n)


def symmetric(a: Any) -> Any:
    return (a + a.T) / 2


X, Y, V, W = normal(3, 4), normal(3, 4), normal(5), normal(5)
POSITIVE, UNIT, SQUARE, CUBE = between(0.3, 2.0, 3, 4), between(-0.9, 0.9, 3, 4), normal(4, 4) + 2 * np.eye(4), normal(2, 3, 4)
COMPLEX, PROBABILITY = cplx(3, 4), between(0.1, 0.9, 3, 4)
APART = np.arange(12.0)[_rng.permutation(12)].reshape(3, 4) + between(0.1, 0.4, 3, 4)

ROWS: dict[str, Row] = {}


def same_for(names: str, *arguments: Any, of: Any = np, prefix: str = "numpy") -> None:
    """Rows of functions that are called with the same arguments."""
    for name in names.split():
        ROWS[f"{prefix}.{name}"] = (getattr(of, name), arguments)


def methods(names: str, array: Any) -> None:
    """Rows of methods that are called without arguments."""
    for name in names.split():
        ROWS[f"ndarray.{name}"] = (operator.methodcaller(name), (array,))


same_for("negative abs absolute fabs reciprocal exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh asinh atan", X)
same_for("rad2deg degrees deg2rad radians square sinc nan_to_num", X)
same_for("log log2 log10 log1p sqrt", POSITIVE)
same_for("arcsin arccos arctanh asin acos atanh", UNIT)
same_for("arccosh acosh", POSITIVE + 1.0)
same_for("add subtract multiply divide true_divide maximum minimum fmax fmin logaddexp logaddexp2 arctan2 atan2 hypot", X, Y)
same_for("mod remainder", X, POSITIVE)
same_for("power pow", POSITIVE, Y)
same_for("real imag conj conjugate angle real_if_close", COMPLEX)
same_for("sum mean prod var std max min amax amin cumsum diff gradient ravel squeeze flipud fliplr rot90 sort", APART)
same_for("dot matmul", X, normal(4, 2))
same_for("inner outer kron", X, normal(2, 4))
same_for("triu tril diag diagonal trace", SQUARE)
same_for("transpose permute_dims atleast_1d atleast_2d atleast_3d", X)
ROWS |= {
    "numpy.clip": (lambda x: np.clip(x, -0.5, 0.8), (X,)),
    "numpy.where": (lambda x, y: np.where(np.arange(4) % 2 == 0, x, y), (X, Y)),
    "numpy.tensordot": (lambda a, b: np.tensordot(a, b, ([1, 2], [0, 1])), (CUBE, normal(3, 4, 2))),
    "numpy.einsum": (lambda a, b, c: np.einsum("ij,jk,kl->il", a, b, c), (X, normal(4, 2), normal(2, 3))),
    "numpy.cross": (np.cross, (normal(4, 3), normal(4, 3))),
    "numpy.reshape": (lambda x: np.reshape(x, (2, 6)), (X,)),
    "numpy.expand_dims": (lambda x: np.expand_dims(x, 1), (X,)),
    "numpy.swapaxes": (lambda x: np.swapaxes(x, 0, 2), (CUBE,)),
    "numpy.moveaxis": (lambda x: np.moveaxis(x, 0, -1), (CUBE,)),
    "numpy.rollaxis": (lambda x: np.rollaxis(x, 2), (CUBE,)),
    "numpy.broadcast_to": (lambda x: np.broadcast_to(x, (2, 3, 4)), (X,)),
    "numpy.roll": (lambda x: np.roll(x, 2, axis=1), (X,)),
    "numpy.repeat": (lambda x: np.repeat(x, [1, 0, 3, 2], axis=1), (X,)),
    "numpy.tile": (lambda x: np.tile(x, (2, 2)), (X,)),
    "numpy.pad": (lambda x: np.pad(x, ((1, 2), (0, 1)), constant_values=3.0), (X,)),
    "numpy.split": (lambda x: np.split(x, [1, 3], axis=1), (X,)),
    "numpy.array_split": (lambda x: np.array_split(x, 3, axis=1), (X,)),
    "numpy.hsplit": (lambda x: np.hsplit(x, 2), (X,)),
    "numpy.vsplit": (lambda x: np.vsplit(x, 3), (X,)),
    "numpy.dsplit": (lambda x: np.dsplit(x, 2), (CUBE,)),
    "numpy.full": (lambda v: np.full((2, 3), v), (np.array(1.3),)),
    "numpy.linspace": (lambda a, b: np.linspace(a, b, 5), (np.array(0.3), np.array(1.7))),
    "numpy.partition": (lambda x: np.partition(x, 2, axis=1)[:, 2], (APART,)),
    "numpy.astype": (lambda x: np.astype(x * 1, np.float64), (X,)),
    "numpy.array": (lambda a, b: np.array([[a[0], b[1]], [b[0], a[1]]]), (V, W)),
    "numpy.concatenate": (lambda a, b: np.concatenate([a, b, a], axis=1), (X, Y)),
    "numpy.stack": (lambda a, b: np.stack([a, b], axis=1), (X, Y)),
    "numpy.vstack": (lambda a, b: np.vstack([a, b]), (X, Y)),
    "numpy.row_stack": (lambda a, b: np.vstack([a, b]), (X, Y)),
    "numpy.hstack": (lambda a, b: np.hstack([a, b]), (X, Y)),
    "numpy.column_stack": (lambda a, b: np.column_stack([a, b]), (V, W)),
    "numpy.append": (lambda a, b: np.append(a, b, axis=0), (X, Y)),
    "numpy.select": (lambda a, b: np.select([a > 0.5, b > 0], [a * b, b], default=0.1), (X, Y)),
    "numpy.r_": (lambda a, b: np.r_[a, 1.0, b[:2]], (V, W)),
    "numpy.c_": (lambda a, b: np.c_[a, b, a], (V, W)),
    "ndarray.__getitem__": (lambda x: (x[1:, ::-2], x[[0, 2, 2], 1], np.where(x[0] > 0, x[0], 0.0), x[-1]), (X,)),
    "ndarray.T": (lambda x: x.T, (X,)),
    "iteration over axis 0 / len()": (lambda x: [row * k for k, row in enumerate(x)] + [x.sum() * len(x)], (X,)),
}

METHODS: dict[str, Call] = {
    "clip": lambda x: x.clip(-0.5, 0.8),
    "compress": lambda x: x.compress([True, False, True], axis=0),
    "cumprod": lambda x: x.cumprod(axis=1),
    "ptp": lambda x: np.ptp(x, axis=1),
    "take": lambda x: x.take([2, 0, 0], axis=0),
    "repeat": lambda x: x.repeat(2, axis=0),
    "reshape": lambda x: x.reshape(2, -1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "astype": lambda x: (x * 2).astype(np.float64),
}
ROWS |= {f"ndarray.{name}": (call, (APART,)) for name, call in METHODS.items()}
methods("cumsum diagonal max mean min prod ravel squeeze std sum trace transpose var flatten", APART)

OPERATORS: dict[str, Call] = {
    "neg": lambda a: -a, "abs": lambda a: abs(a),
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "truediv": lambda a, b: a / b,
    "pow": lambda a, b: a**b, "mod": lambda a, b: a % b, "matmul": lambda a, b: a @ b.T,
    "radd": lambda a: 2.5 + a, "rsub": lambda a: 2.5 - a, "rmul": lambda a: 2.5 * a, "rtruediv": lambda a: 2.5 / a,
    "rpow": lambda a: 2.5**a, "rmod": lambda a: 2.5 % a, "rmatmul": lambda a: [[1.0, 2.0, 0.5]] @ a,
}  # fmt: skip
for _name, _call in OPERATORS.items():
    ROWS[f"ndarray.__{_name}__"] = (_call, (POSITIVE, APART)[: _call.__code__.co_argcount])

COMPARISONS: dict[str, Call] = {
    "eq": lambda a: a == Y, "ne": lambda a: a != Y, "lt": lambda a: a < Y,
    "le": lambda a: a <= Y, "gt": lambda a: a > Y, "ge": lambda a: a >= Y,
}  # fmt: skip
ROWS |= {f"ndarray.__{name}__": (call, (X,)) for name, call in COMPARISONS.items()}

# Derivatives that are zero everywhere.
same_for("all any argmax argmin around ceil count_nonzero fix floor rint round sign trunc", X)
same_for("isfinite isinf isnan isneginf isposinf", X)
same_for("iscomplex isreal logical_not ones_like zeros_like iscomplexobj isscalar ndim shape size argsort", X)
same_for("allclose array_equal array_equiv equal not_equal greater greater_equal less less_equal isclose", X, Y)
same_for("logical_and logical_or logical_xor", X, Y)
same_for("floor_divide", X, POSITIVE)
ROWS |= {
    "numpy.argpartition": (lambda x: np.take_along_axis(x, np.argpartition(x, 2, axis=1), 1)[:, 2] > 0, (APART,)),
    "numpy.argwhere": (lambda x: np.sum(x[np.argwhere(np.arange(3) > 0)]) > 0, (X,)),
    "numpy.empty_like": (lambda x: np.empty_like(x).shape, (X,)),
    "numpy.full_like": (lambda x: np.full_like(x, 2.0), (X,)),
    "numpy.flatnonzero": (lambda x: x.ravel()[np.flatnonzero(np.array([0, 1, 1]))] > 0, (X,)),
    "numpy.nonzero": (lambda x: x[np.nonzero(np.array([0, 1, 1]))] > 0, (X,)),
    "numpy.searchsorted": (lambda x: np.searchsorted(np.array([-1.0, 0.0, 1.0]), x), (X,)),
    "numpy.result_type": (lambda x: np.zeros(2, np.result_type(x, np.float32)), (X,)),
}
methods("all any argmax argmin argsort round", X)
ROWS |= {
    "ndarray.argpartition": (lambda x: np.take_along_axis(x, x.argpartition(2, axis=1), 1)[:, 2] > 0, (APART,)),
    "ndarray.nonzero": (lambda x: x[np.array([0, 1, 1]).nonzero()] > 0, (X,)),
    "ndarray.searchsorted": (lambda v: np.sort(v).searchsorted(0.3), (V,)),
}

same_for("det slogdet inv pinv norm", SQUARE, of=np.linalg, prefix="numpy.linalg")
ROWS |= {
    "numpy.linalg.solve": (np.linalg.solve, (SQUARE, normal(4, 2))),
    "numpy.linalg.eigh": (lambda a: (lambda w, v: (w, v * v))(*np.linalg.eigh(symmetric(a))), (definite(4),)),
    "numpy.linalg.eig": (lambda a: np.sort(np.abs(np.linalg.eig(a)[0])), (SQUARE,)),
    "numpy.linalg.cholesky": (lambda a: np.linalg.cholesky(symmetric(a)), (definite(4),)),
    "numpy.linalg.svd": (lambda a: (lambda u, s, v: (s, u**2, v**2))(*np.linalg.svd(a, full_matrices=False)), (X,)),
}

same_for("fft ifft fft2 ifft2 fftn ifftn", COMPLEX, of=np.fft, prefix="numpy.fft")
same_for("irfft irfft2 irfftn fftshift ifftshift", COMPLEX, of=np.fft, prefix="numpy.fft")
same_for("rfft rfft2 rfftn", X, of=np.fft, prefix="numpy.fft")

BANDS = np.array([[0.0, 0.3, -0.4, 0.2], [3.0, 2.5, 4.0, 3.5], [0.5, -0.6, 0.1, 0.0]])
ROWS |= {
    "scipy.linalg.sqrtm": (scipy.linalg.sqrtm, (definite(3),)),
    "scipy.linalg.solve_triangular": (lambda a, b: scipy.linalg.solve_triangular(a, b, lower=True), (SQUARE, normal(4, 2))),
    "scipy.linalg.solve_banded": (lambda ab, b: scipy.linalg.solve_banded((1, 1), ab, b), (BANDS, normal(4))),
    "scipy.linalg.solve_sylvester": (scipy.linalg.solve_sylvester, (definite(3), definite(2), normal(3, 2))),
}

same_for("psi digamma gamma gammaln rgamma j0 y0 j1 y1 i0 i1 erf erfc expit", POSITIVE, of=scipy.special, prefix="scipy.special")
same_for("beta betaln", POSITIVE, POSITIVE[::-1] + 0.2, of=scipy.special, prefix="scipy.special")
same_for("erfinv", UNIT, of=scipy.special, prefix="scipy.special")
same_for("erfcinv logit", PROBABILITY, of=scipy.special, prefix="scipy.special")
same_for("gammasgn logsumexp", X, of=scipy.special, prefix="scipy.special")
ROWS |= {
    "scipy.special.betainc": (lambda x: scipy.special.betainc(1.5, 2.5, x), (PROBABILITY,)),
    "scipy.special.polygamma": (lambda x: scipy.special.polygamma(2, x), (POSITIVE,)),
    "scipy.special.gammainc": (lambda x: scipy.special.gammainc(1.5, x), (POSITIVE,)),
    "scipy.special.gammaincc": (lambda x: scipy.special.gammaincc(1.5, x), (POSITIVE,)),
    "scipy.special.multigammaln": (lambda x: scipy.special.multigammaln(x, 3), (POSITIVE + 2.0,)),
    "scipy.special.jn": (lambda x: scipy.special.jn(2, x), (POSITIVE,)),
    "scipy.special.yn": (lambda x: scipy.special.yn(2, x), (POSITIVE,)),
    "scipy.special.iv": (lambda x: scipy.special.iv(1.5, x), (POSITIVE,)),
    "scipy.special.ive": (lambda x: scipy.special.ive(1.5, x), (POSITIVE,)),
}

COVARIANCE, CONCENTRATION = definite(3), between(0.8, 3.0, 4)
SIMPLEX = np.array([0.1, 0.2, 0.3, 0.4])


def _simplex(w: Any) -> Any:
    return w / np.sum(w)


def _decay(y: Any, t: Any, k: Any) -> Any:
    return -k * y + 0.1 * t


ROWS |= {
    "scipy.signal.convolve": (lambda a, b: scipy.signal.convolve(a, b, mode="full"), (X, normal(2, 3))),
    "scipy.integrate.odeint": (
        lambda y0, t, k: scipy.integrate.odeint(_decay, y0, t, args=(k,), rtol=1e-11, atol=1e-11),
        (np.array([1.0, 0.5]), np.array([0.0, 0.4, 1.0]), np.array([0.7, 1.2])),
    ),
}


def _law(name: str, methods: str, *arguments: Any, call: Callable[[Call], Call] = lambda method: method) -> None:
    for method in methods.split():
        ROWS[f"scipy.stats.{name}.{method}"] = (call(getattr(getattr(scipy.stats, name), method)), arguments)


_law("beta", "logpdf pdf", PROBABILITY, POSITIVE, POSITIVE[::-1])
_law("beta", "cdf", PROBABILITY, call=lambda m: lambda x: m(x, 1.5, 2.5))
_law("chi2", "cdf logpdf pdf", POSITIVE, call=lambda m: lambda x: m(x, 3.0))
_law("gamma", "logpdf pdf", POSITIVE, POSITIVE[::-1])
_law("gamma", "cdf", POSITIVE, call=lambda m: lambda x: m(x, 1.7))
_law("norm", "pdf cdf sf logpdf logcdf logsf", X, Y, POSITIVE)
_law("t", "pdf logpdf", X, POSITIVE + 1.0, Y, POSITIVE)
_law("t", "cdf logcdf", X, Y, call=lambda m: lambda x, loc: m(x, 3.5, loc))
_law("poisson", "cdf logpmf pmf", POSITIVE, call=lambda m: lambda mu: m(np.array([0, 1, 3, 5]), mu))
_law("dirichlet", "logpdf pdf", SIMPLEX, CONCENTRATION, call=lambda m: lambda w, a: m(_simplex(w), a))
_law(
    "multivariate_normal", "logpdf pdf", normal(5, 3), normal(3), COVARIANCE,
    call=lambda m: lambda x, mean, c: m(x, mean, symmetric(c)),
)  # fmt: skip
_law("multivariate_normal", "entropy", COVARIANCE, call=lambda m: lambda c: m(np.zeros(3), symmetric(c)))
