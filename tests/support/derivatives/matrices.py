"""Derivatives of linear algebra against mpmath: along a direction, on matrices that are well and badly conditioned.

Each function is made a number: a weighted sum of the elements of its results, of vectors of their squares, since those are
found but for their signs. An error is counted in units of u (|f'| + the greatest |D f'[E]|), where E are changes of the
elements by the size of the greatest: what rounding the matrix once would do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from mpmath import mp

import pullback as pb

Array = np.ndarray[Any, np.dtype[Any]]
DIGITS = 80
STEP = 15
"""Differences are over steps of 10 to minus this: their error is the square of it, what cancels is three times the digits."""


@dataclass(frozen=True)
class Matrix:
    """``call(a)`` and ``exact(a)`` give lists of arrays, of which the sum weighted by ``_weights`` is differentiated."""

    call: Callable[[Any], Sequence[Any]]
    exact: Callable[[Any], Sequence[Any]]
    kinds: tuple[str, ...] = ("regular", "graded")
    bounds: tuple[int, int, int] = (16, 16, 16)


def operand(kind: str) -> Array:
    """``regular``: far from singular; ``graded``: symmetric and positive, with a condition number of some 10^5; ``positive``:
    the same of some 10; ``tall``: 5 x 3."""
    rng = np.random.default_rng(11)
    if kind == "regular":
        return rng.normal(size=(4, 4)) / 2 + np.diag([4.0, -3.0, 2.5, 5.0])
    if kind == "tall":
        return rng.normal(size=(5, 3)) + np.eye(5, 3)
    if kind == "root":
        return rng.normal(size=(4, 4)) / 4 + np.diag([1.0, 2.0, 3.0, 5.0])
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    values = [1.0, 0.1, 1e-3, 1e-5] if kind == "graded" else [1.0, 2.0, 4.0, 7.0]
    a = turn * values @ turn.T
    return (a + a.T) / 2


def _symmetric(a: Any) -> Any:
    return (a + a.T) * 0.5 if not isinstance(a, mp.matrix) else (a + a.T) / 2


def _squares(*arrays: Any) -> list[Any]:
    return [v.apply(lambda e: e * e) if isinstance(v, mp.matrix) else v * v for v in arrays]


RIGHT = np.arange(1.0, 9.0).reshape(4, 2) / 4
LEFT = np.diag([3.0, 4.0, 5.0, 6.0]) + np.arange(16.0).reshape(4, 4) / 16


def _mp(a: Array) -> Any:
    return mp.matrix(a.tolist())


def _column(values: Sequence[Any]) -> Any:
    return mp.matrix([[v] for v in values])


def _lower(a: Any) -> Any:
    result = a.copy()
    for i in range(a.rows):
        for j in range(i + 1, a.cols):
            result[i, j] = 0
    return result


def _inverse(a: Any) -> Any:
    return mp.inverse(a)


def _solved(a: Any, b: Any) -> Any:
    return mp.inverse(a) * b


def _lu(a: Any) -> list[Any]:
    """Gauss's elimination in the order of rows that float64 takes."""
    order = np.argmax(scipy.linalg.lu(np.array(a.tolist(), float))[0].T, axis=1)
    n = a.rows
    u = mp.matrix(n, n)
    for i in range(n):
        for j in range(n):
            u[i, j] = a[int(order[i]), j]
    low = mp.eye(n)
    for k in range(n):
        for i in range(k + 1, n):
            low[i, k] = u[i, k] / u[k, k]
            for j in range(n):
                u[i, j] -= low[i, k] * u[k, j]
    return [low, u]


def _eigenvectors(a: Any) -> list[Any]:
    values, vectors = mp.eigsy(a)
    return [_column(list(values)), *_squares(vectors)]


def _svd(a: Any) -> list[Any]:
    u, s, v = mp.svd_r(a)
    return [_column(list(s)), *_squares(u, v)]


def _eig(a: Any) -> list[Any]:
    """Sums over the eigenvalues, which no order changes."""
    values, vectors = mp.eig(a)
    total = sum(mp.exp(v / 4) for v in values)
    fourth = mp.mpf(0)
    for j in range(a.cols):
        size = sum(abs(vectors[i, j]) ** 2 for i in range(a.rows))
        fourth += sum((i + 1) * (abs(vectors[i, j]) ** 2 / size) ** 2 for i in range(a.rows))
    return [_column([mp.re(total), fourth])]


def _eig_call(a: Any) -> list[Any]:
    values, vectors = np.linalg.eig(a)
    rows = np.arange(1.0, len(a) + 1)[:, None]
    return [np.stack([np.sum(np.real(np.exp(values / 4))), np.sum(rows * np.abs(vectors) ** 4)])[:, None]]


def _sylvester(a: Any) -> list[Any]:
    """A X + X B = C by one system for all elements."""
    b, c = _mp(LEFT[:2, :2]), _mp(RIGHT)
    n, m = a.rows, b.rows
    system, side = mp.matrix(n * m, n * m), mp.matrix(n * m, 1)
    for i in range(n):
        for j in range(m):
            side[i * m + j] = c[i, j]
            for k in range(n):
                system[i * m + j, k * m + j] += a[i, k]
            for k in range(m):
                system[i * m + j, i * m + k] += b[k, j]
    x = mp.lu_solve(system, side)
    return [mp.matrix([[x[i * m + j] for j in range(m)] for i in range(n)])]


def _banded(a: Any) -> list[Any]:
    full = mp.matrix(4, 4)
    for i in range(4):
        for j in range(4):
            if -1 <= j - i <= 1:
                full[i, j] = a[1 + i - j, j]
    return [_solved(full, _mp(RIGHT))]


def _power(a: Any, function: Callable[[Any], Any]) -> Any:
    return mp.matrix(function(a).apply(mp.re))


MATRICES: dict[str, Matrix] = {
    "solve": Matrix(lambda a: [np.linalg.solve(a, RIGHT)], lambda a: [_solved(a, _mp(RIGHT))]),
    "triangular_solve": Matrix(
        lambda a: [scipy.linalg.solve_triangular(a, RIGHT, lower=True)], lambda a: [_solved(_lower(a), _mp(RIGHT))]
    ),
    "banded_solve": Matrix(lambda a: [scipy.linalg.solve_banded((1, 1), a[:3], RIGHT)], _banded, kinds=("banded",)),
    "cholesky": Matrix(
        lambda a: [np.linalg.cholesky(_symmetric(a))], lambda a: [mp.cholesky(_symmetric(a))], kinds=("positive", "graded")
    ),
    "lu": Matrix(lambda a: scipy.linalg.lu(a)[1:], _lu),
    "qr": Matrix(
        lambda a: _squares(*np.linalg.qr(a)),
        lambda a: _squares(*(m for m in mp.qr(a, mode="skinny"))),
        kinds=("regular", "tall", "graded"),
    ),
    "eigh": Matrix(
        lambda a: [(r := np.linalg.eigh(_symmetric(a)))[0][:, None], *_squares(r[1])],
        lambda a: _eigenvectors(_symmetric(a)),
        kinds=("positive", "graded"),
    ),
    "svd": Matrix(
        lambda a: [(r := np.linalg.svd(a, full_matrices=False))[1][:, None], *_squares(r[0], r[2])],
        _svd,
        kinds=("regular", "tall", "graded"),
    ),
    "eig": Matrix(_eig_call, _eig, kinds=("root",)),
    "expm": Matrix(lambda a: [scipy.linalg.expm(a)], lambda a: [mp.expm(a)], kinds=("root", "graded")),
    "logm": Matrix(lambda a: [scipy.linalg.logm(a)], lambda a: [_power(a, mp.logm)], kinds=("root",)),
    "sqrtm": Matrix(lambda a: [scipy.linalg.sqrtm(a)], lambda a: [_power(a, mp.sqrtm)], kinds=("root",)),
    "det": Matrix(lambda a: [np.linalg.det(a)[None, None]], lambda a: [_column([mp.det(a)])]),
    "slogdet": Matrix(lambda a: [np.linalg.slogdet(a)[1][None, None]], lambda a: [_column([mp.log(abs(mp.det(a)))])]),
    "pinv": Matrix(lambda a: [np.linalg.pinv(a)], lambda a: [mp.inverse(a.T * a) * a.T], kinds=("tall", "regular")),
    "sylvester": Matrix(lambda a: [scipy.linalg.solve_sylvester(a, LEFT[:2, :2], RIGHT)], _sylvester, kinds=("root",)),
    "unitary": Matrix(lambda a: [scipy.linalg.polar(a)[0]], lambda a: [(r := mp.svd_r(a))[0] * r[2]], kinds=("tall", "regular")),
}


_WEIGHTS = np.random.default_rng(2).integers(1, 8, (3, 6, 6)) / 8.0


def _weights(shape: tuple[int, ...], k: int) -> Array:
    return _WEIGHTS[k, : shape[0], : shape[1]]


def _banded_operand() -> Array:
    return np.concatenate([np.random.default_rng(3).normal(size=(3, 4)) + [[0.0], [4.0], [0.0]], np.zeros((1, 4))])


def of_matrix(name: str, kind: str, mode: str, dtype: Any = np.float64) -> list[float]:
    """The errors of the value, and of the first and second derivative along a direction, in the units of the module."""
    row = MATRICES[name]
    a = (_banded_operand() if kind == "banded" else operand(kind)).astype(dtype)
    rng = np.random.default_rng(5)
    v = (rng.integers(-8, 9, a.shape) / 8.0).astype(dtype)
    changes = [rng.choice([-1.0, 1.0], a.shape) * np.abs(a).max() for _ in range(4)]
    if kind == "banded":
        v[3] = 0

    def loss(x: Any) -> Any:
        return sum(np.sum(r * _weights(r.shape, k).astype(dtype)) for k, r in enumerate(row.call(x)))

    if mode == "reverse":
        first = lambda x: np.sum(pb.grad(loss)(x) * v)  # noqa: E731
        result = [pb.jit(loss)(a), pb.jit(first)(a), np.sum(pb.grad(first)(a) * v)]
    else:
        first = lambda x: pb.jvp(loss, (x,), (v,))[1]  # noqa: E731
        result = [pb.jit(loss)(a), pb.jit(first)(a), pb.jit(lambda x: pb.jvp(first, (x,), (v,))[1])(a)]
    return counted(
        [float(f) for f in result], row, a.astype(np.float64), v.astype(np.float64), changes, float(np.finfo(dtype).eps) / 2
    )


def counted(result: list[float], row: Matrix, a: Array, v: Array, changes: list[Array], unit: float) -> list[float]:
    """The errors of ``found``, by differences in many digits."""
    with mp.workdps(DIGITS):
        h = mp.mpf(10) ** -STEP
        base, along = _mp(a), _mp(v)

        def exact(i: int, change: Any, j: int) -> Any:
            parts = row.exact(base + along * (h * i) + (change * (h * j) if j else mp.matrix(*a.shape)))
            total = mp.mpf(0)
            for k, part in enumerate(parts):
                w = _weights((part.rows, part.cols), k)
                total += sum(part[p, q] * float(w[p, q]) for p in range(part.rows) for q in range(part.cols))
            return total

        def derivatives(values: dict[int, Any]) -> list[Any]:
            return [values[0], (values[1] - values[-1]) / (2 * h), (values[1] - 2 * values[0] + values[-1]) / h**2]

        right = derivatives({i: exact(i, None, 0) for i in (-1, 0, 1)})
        moves = [mp.mpf(0)] * 3
        for change in map(_mp, changes):
            up, down = (derivatives({i: exact(i, change, s) for i in (-1, 0, 1)}) for s in (1, -1))
            moves = [max(m, abs(p - q) / (2 * h)) for m, p, q in zip(moves, up, down, strict=True)]
        return [float(abs(mp.mpf(f) - r) / (unit * (abs(r) + m))) for f, r, m in zip(result, right, moves, strict=True)]
