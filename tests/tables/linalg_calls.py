"""Calls of numpy.linalg and scipy.linalg, as tables: each with the arguments it is tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg

Call = Callable[..., Any]
_rng = np.random.default_rng(5)


def positive(*shape: int) -> Any:
    """Symmetric positive definite matrices."""
    g = _rng.normal(size=(*shape, shape[-1]))
    return g @ np.swapaxes(g, -1, -2) + np.eye(shape[-1])


def regular(*shape: int) -> Any:
    """Matrices far from singular ones, whose largest elements are not on the diagonal."""
    return _rng.normal(size=(*shape, shape[-1])) + 3 * np.roll(np.eye(shape[-1]), 1, 0)


def sym(a: Any) -> Any:
    """The symmetric part: what a call that reads one triangle is differentiated through."""
    return (a + np.swapaxes(a, -1, -2)) / 2


def numbers(*shape: int) -> Any:
    return _rng.normal(size=shape)


A, P, V, M = regular(4), positive(4), numbers(4), numbers(4, 2)
BATCH, POSITIVE_BATCH = regular(2, 3), positive(2, 3)
EMPTY, ONE, DIAGONAL = np.zeros((0, 0)), np.array([[2.5]]), np.diag([1.5, 0.5, 2.0, 0.8])
SQUARE = (A, BATCH, ONE, EMPTY, np.zeros((0, 3, 3)), np.zeros((2, 0, 0)))
DEFINITE = (P, POSITIVE_BATCH, ONE, EMPTY, np.zeros((0, 3, 3)))


def _with(call: Call, *sets: tuple[Any, ...]) -> list[tuple[Call, list[Any]]]:
    return [(call, list(arguments)) for arguments in sets]


def _each(call: Call, matrices: tuple[Any, ...]) -> list[tuple[Call, list[Any]]]:
    return [(call, [m]) for m in matrices]


NUMPY: list[tuple[Call, list[Any]]] = [
    *_each(lambda a: np.linalg.cholesky(sym(a)), DEFINITE),
    *_each(lambda a: np.linalg.cholesky(sym(a), upper=True), DEFINITE),
    *_with(
        lambda a, b: np.linalg.solve(a, b),
        (A, V), (A, M), (A.T, M), (BATCH, numbers(3)), (BATCH, numbers(2, 3, 2)), (BATCH, numbers(3, 1)),
        (regular(3), numbers(5, 2, 3, 2)), (regular(2, 1, 3), numbers(4, 3, 2)), (A, numbers(4, 0)), (EMPTY, np.zeros((0, 2))),
        (EMPTY, np.zeros(0)), (ONE, numbers(1)), (np.zeros((0, 3, 3)), numbers(3, 2)), (A[::-1, ::-1], V[::-1]),
    ),
    *_each(lambda a: np.linalg.inv(a), SQUARE),
    *_each(lambda a: np.linalg.det(a), SQUARE),
    *_each(lambda a: np.linalg.slogdet(a), SQUARE),
    *_each(lambda a: np.linalg.slogdet(a).logabsdet, (A,)),
    *_each(lambda a: [np.linalg.matrix_power(a, n) for n in (0, 1, 2, 3, 7, 8, -1, -5)], (A / 3, BATCH / 3)),
    *_with(
        lambda *xs: np.linalg.multi_dot(xs),
        (A, M), (V, A), (V, V), (V, A, V), (M.T, A, M), (V, A, A, M), (A, A, A, M, numbers(2)),
    ),
    *_with(lambda a: np.linalg.tensorinv(a), (regular(6).reshape(2, 3, 3, 2),)),
    *_with(lambda a: np.linalg.tensorinv(a, ind=1), (regular(6).reshape(6, 3, 2),)),
    *_with(lambda a, b: np.linalg.tensorsolve(a, b), (regular(6).reshape(2, 3, 6), numbers(2, 3))),
    *_with(lambda a, b: np.linalg.tensorsolve(a, b, axes=(0,)), (regular(6).reshape(6, 2, 3), numbers(2, 3))),
    *_each(lambda x: [np.linalg.vector_norm(x, ord=k) for k in (2, 1, np.inf, -np.inf, 3, 0)], (A, V, BATCH)),
    *_each(lambda x: np.linalg.vector_norm(x, axis=(0, 2), keepdims=True), (BATCH,)),
    *_each(lambda x: [np.linalg.matrix_norm(x, ord=k) for k in ("fro", 1, -1, np.inf, -np.inf)], (A, BATCH, M)),
    *_each(lambda x: np.linalg.matrix_norm(x, keepdims=True), (BATCH,)),
    *_each(lambda x: (np.linalg.trace(x), np.linalg.trace(x, offset=1), np.linalg.diagonal(x, offset=-1)), (A, BATCH)),
    *_each(lambda x: np.linalg.matrix_transpose(x), (A, BATCH)),
    *_with(lambda x, y: (np.linalg.outer(x, y), np.linalg.vecdot(x, y)), (V, V[::-1])),
    *_with(lambda x, y: np.linalg.cross(x, y), (numbers(2, 3), numbers(3))),
    *_with(lambda x, y: (np.linalg.matmul(x, y), np.linalg.tensordot(x, y, axes=1)), (A, M)),
]  # fmt: skip


def spread(*shape: int) -> Any:
    """Return matrices with well separated singular values."""
    *batch, m, n = shape
    k = min(m, n)
    left, right = (np.linalg.qr(_rng.normal(size=(*batch, e, e)))[0] for e in (m, n))
    return (left[..., :k] * np.arange(1, k + 1)) @ np.swapaxes(right[..., :k], -1, -2)


S4, TALL, WIDE, STACK = spread(4, 4), spread(5, 3), spread(3, 5), spread(2, 3, 2)
ANY_SHAPE = (S4, TALL, WIDE, STACK, ONE)
EMPTIES = (EMPTY, np.zeros((0, 3)), np.zeros((3, 0)), np.zeros((0, 3, 2)))
SYMMETRIC = (sym(S4 @ np.diag([1.0, -1.0, 1.0, 1.0]) @ S4.T), sym(STACK @ np.swapaxes(STACK, -1, -2))[..., :2, :2], ONE, EMPTY)

SPECTRAL: list[tuple[Call, list[Any]]] = [
    *_each(lambda a: np.linalg.eigh(sym(a)), SYMMETRIC),
    *_each(lambda a: np.linalg.eigh(sym(a), UPLO="U").eigenvectors, SYMMETRIC),
    *_each(lambda a: (np.linalg.eigvalsh(sym(a)), np.linalg.eigvalsh(sym(a), "U")), SYMMETRIC),
    *_each(lambda a: np.linalg.svd(a, full_matrices=False), (*ANY_SHAPE, *EMPTIES)),
    *_each(lambda a: np.linalg.svd(a), (S4, ONE, EMPTY)),
    *_each(lambda a: (np.linalg.svd(a, compute_uv=False), np.linalg.svdvals(a)), ANY_SHAPE),
    *_each(lambda a: np.linalg.qr(a), (*ANY_SHAPE, *EMPTIES)),
    *_each(lambda a: np.linalg.qr(a, mode="r"), ANY_SHAPE),
    *_each(lambda a: np.linalg.qr(a, "complete"), (S4, WIDE)),
    *_each(lambda a: np.linalg.pinv(a), (*ANY_SHAPE, np.zeros((0, 3)))),
    *_each(lambda a: (np.linalg.pinv(a, 0.1), np.linalg.pinv(a, rtol=1e-3), np.linalg.pinv(a, rtol=None)), (TALL, STACK)),
    *_each(lambda a: np.linalg.pinv(a, 0.6), (S4, WIDE, TALL)),
    *_with(lambda a, b: np.linalg.lstsq(a, b)[0], (TALL, numbers(5)), (TALL, numbers(5, 2)), (WIDE, numbers(3)), (S4, V)),
    *_with(lambda a, b: np.linalg.lstsq(a, b, rcond=-1), (TALL, numbers(5)), (TALL, numbers(5, 2)), (WIDE, numbers(3)), (S4, V)),
    *_each(lambda a: (np.linalg.matrix_rank(a), np.linalg.matrix_rank(a, 1.5), np.linalg.matrix_rank(a, rtol=0.4)), ANY_SHAPE),
    *_each(lambda a: (np.linalg.cond(a), np.linalg.cond(a, 2), np.linalg.cond(a, -2)), ANY_SHAPE),
    *_each(lambda a: [np.linalg.norm(a, k, axis=(-2, -1)) for k in (2, -2, "nuc")], ANY_SHAPE),
    *_each(lambda a: np.linalg.norm(a, "nuc", axis=(2, 0), keepdims=True), (spread(2, 3, 2),)),
    *_each(lambda a: (np.linalg.norm(a, 2), np.linalg.matrix_norm(a, ord="nuc", keepdims=True)), (S4, TALL)),
    *_each(lambda a: scipy.linalg.eigh(sym(a), driver="evd"), SYMMETRIC[:1]),
    *_each(lambda a: scipy.linalg.eigh(sym(a), driver="evd", lower=False)[1] ** 2, SYMMETRIC[:1]),
    *_each(lambda a: (scipy.linalg.eigvalsh(sym(a)), scipy.linalg.eigh(sym(a), eigvals_only=True)), SYMMETRIC[:1]),
    *_with(lambda a, b: scipy.linalg.eigh(sym(a), sym(b))[0], (SYMMETRIC[0], P)),
    *_with(lambda a, b: scipy.linalg.eigh(sym(a), sym(b), lower=False)[1] ** 2, (SYMMETRIC[0], P)),
    *_each(lambda a: scipy.linalg.svd(a, full_matrices=False), (S4, TALL, WIDE)),
    *_each(lambda a: (scipy.linalg.svdvals(a), scipy.linalg.svd(a, compute_uv=False)), (S4, TALL, WIDE)),
    *_each(lambda a: scipy.linalg.qr(a, mode="economic"), (S4, TALL, WIDE)),
    *_each(lambda a: (scipy.linalg.qr(a), scipy.linalg.qr(a, mode="r")), (S4, WIDE)),
    *_each(lambda a: (scipy.linalg.pinv(a), scipy.linalg.pinv(a, atol=1.5, return_rank=True)), (S4, TALL, WIDE)),
]


ONE_TRIANGLE: list[tuple[Call, list[Any]]] = [
    *_each(lambda a: np.linalg.cholesky(a + np.triu(np.ones(a.shape[-2:]), 1)), (P,)),
    *_each(lambda a: np.linalg.cholesky(a + np.tril(np.ones(a.shape[-2:]), -1), upper=True), (P,)),
    *_each(lambda a: scipy.linalg.cholesky(a + np.tril(a, -1), lower=False, overwrite_a=False, check_finite=False), (P,)),
    *_each(lambda a: scipy.linalg.cholesky(a + np.triu(a, 1), True), (P,)),
    *_with(lambda a, b: scipy.linalg.solve(np.triu(a), b, assume_a="pos"), (P, V), (P, M)),
    *_with(lambda a, b: scipy.linalg.solve(np.tril(a), b, assume_a="pos", lower=True), (P, V)),
    *_with(lambda a, b: scipy.linalg.solve(np.triu(a), b, assume_a="sym"), (P - 2 * np.eye(4), V)),
    *_with(lambda a, b: scipy.linalg.solve(np.tril(a), b, lower=True, assume_a="sym"), (P - 2 * np.eye(4), M)),
    *_each(lambda a: (np.linalg.eigh(np.tril(a)), np.linalg.eigvalsh(np.triu(a), "U")), (P, POSITIVE_BATCH)),
    *_each(lambda a: (scipy.linalg.eigvalsh(np.tril(a)), scipy.linalg.eigvalsh(np.triu(a), lower=False)), (P,)),
    *_with(lambda a, b: scipy.linalg.eigvalsh(np.tril(a), np.tril(b)), (P - np.eye(4), P)),
]


def triangle_of(factor: Any) -> Any:
    """Return the part of ``cho_factor``'s result that SciPy specifies."""
    c, lower = factor
    return (np.tril if lower else np.triu)(c), lower


SCIPY: list[tuple[Call, list[Any]]] = [
    *_each(lambda a: scipy.linalg.cholesky(sym(a)), (P, ONE, EMPTY, P[::-1, ::-1])),
    *_each(lambda a: scipy.linalg.cholesky(sym(a), lower=True), (P, ONE, EMPTY)),
    *_each(lambda a: triangle_of(scipy.linalg.cho_factor(sym(a)))[0], (P,)),
    *_each(lambda a: triangle_of(scipy.linalg.cho_factor(sym(a), lower=True))[0], (P,)),
    *_with(lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(sym(a)), b), (P, V), (P, M)),
    *_with(lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(sym(a), True), b, check_finite=False), (P, V), (P, M)),
    *_with(lambda a, b: scipy.linalg.cho_solve((np.tril(a) + 3 * np.eye(4), True), b), (A, V)),
    *[
        entry
        for trans in (0, 1, "T", "N", "C")
        for lower in (False, True)
        for unit in (False, True)
        for entry in _with(
            lambda a, b, trans=trans, lower=lower, unit=unit: scipy.linalg.solve_triangular(a, b, trans, lower, unit),
            (P, V), (P, M),
        )
    ],
    *[
        entry
        for kind in (None, "gen", "general", "sym", "symmetric", "her", "pos", "positive definite", "diagonal", "tridiagonal",
                     "lower triangular", "upper triangular")
        for entry in _with(lambda a, b, kind=kind: scipy.linalg.solve(sym(a), b, assume_a=kind), (DIAGONAL, V))
    ],
    *_with(
        lambda a, b: scipy.linalg.solve(a, b),
        (A, V), (A, M), (BATCH, numbers(3)), (BATCH, numbers(2, 3, 1)), (ONE, numbers(1)), (ONE, V),
    ),
    *_with(lambda a, b: scipy.linalg.solve(a, b, transposed=True, assume_a="gen"), (A, V), (A, M)),
    *_with(lambda a, b: scipy.linalg.solve(sym(a), b, assume_a="sym"), (P - 2 * np.eye(4), V)),
    *_with(lambda a, b: scipy.linalg.solve(sym(a), b, lower=True, assume_a="sym"), (P - 2 * np.eye(4), M)),
    *_with(lambda a, b: scipy.linalg.solve(np.triu(np.tril(a, 1), -1), b, assume_a="tridiagonal"), (P, V)),
    *_with(lambda a, b: scipy.linalg.solve(np.tril(a), b, assume_a="lower triangular"), (P, V)),
    *_each(lambda a: scipy.linalg.inv(a), (A, ONE, EMPTY)),
    *_each(lambda a: scipy.linalg.det(a), (A, ONE, EMPTY, BATCH)),
    *_each(lambda a: scipy.linalg.lu_factor(a), (A, ONE)),
    *_with(lambda a, b: scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b), (A, V), (A, M)),
    *_with(lambda a, b: scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans=1), (A, V), (A, M)),
    *_with(lambda a, b: scipy.linalg.block_diag(a, b, 3.0, [[1, 2]]), (A, M), (V, M)),
    *_each(lambda c: scipy.linalg.toeplitz(c), (V, V[:1])),
    *_with(lambda c, r: scipy.linalg.toeplitz(c, r), (V, numbers(3)), (V, numbers(6))),
    *_with(lambda c, r: scipy.linalg.hankel(c, r), (V, numbers(3))),
    *_each(lambda c: (scipy.linalg.hankel(c), scipy.linalg.circulant(c)), (V,)),
    *_each(lambda a: scipy.linalg.expm(a), (A, A / 9, BATCH, ONE, EMPTY, np.zeros((3, 3)), np.triu(A), np.diag(V))),
    *_each(lambda a: scipy.linalg.expm(-40 * a @ np.swapaxes(a, -1, -2)), (A,)),
    *_each(lambda x: (scipy.linalg.norm(x, axis=0), scipy.linalg.norm(x, 1, -1, True)), (A, V)),
]  # fmt: skip
