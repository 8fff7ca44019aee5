"""Calls of linear algebra whose results are determined but for signs or rotations, and of equations and functions of matrices, as
tables: each with the arguments it is tried on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
import scipy.linalg

from tests.support.versions import since
from tests.tables.linalg_calls import (
    ANY_SHAPE,
    BATCH,
    EMPTY,
    ONE,
    POSITIVE_BATCH,
    S4,
    STACK,
    SYMMETRIC,
    TALL,
    WIDE,
    A,
    Call,
    M,
    P,
    V,
    numbers,
    sym,
)

Entries = list[tuple[Call, list[Any]]]


def _each(call: Call, *matrices: Any) -> Entries:
    return [(call, [m]) for m in matrices]


def _with(call: Call, *sets: tuple[Any, ...]) -> Entries:
    return [(call, list(arguments)) for arguments in sets]


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def whole_svd(a: Any) -> Any:
    """What a full decomposition says whatever the vectors beyond are."""
    u, s, vt = np.linalg.svd(a)
    k = s.shape[-1]
    outside, other = u[..., k:], vt[..., k:, :]
    return u[..., :k], s, vt[..., :k, :], outside @ adjoint(outside), adjoint(other) @ other


def whole_qr(a: Any) -> Any:
    q, r = np.linalg.qr(a, mode="complete")
    outside = q[..., a.shape[-1] :]
    return q[..., : a.shape[-1]], r, outside @ adjoint(outside)


def rebuilt(parts: Any) -> Any:
    """The product of factors."""
    result = parts[0]
    for part in parts[1:]:
        result = result @ part
    return result


BANDS = np.array([[0.0, 0.3, -0.4, 0.2], [3.0, 2.5, 4.0, 3.5], [0.7, -0.6, 0.9, 0.0], [0.2, 0.1, 0.0, 0.0]])
HALF = np.array([[0.0, 0.3, -0.4, 0.2], [3.0, 2.5, 4.0, 3.5]])
SPIRAL = A @ A + 9 * np.eye(4)
APART = S4 + 5 * np.eye(4)

NUMPY_FORMS: Entries = [
    *_each(whole_svd, TALL, WIDE, STACK, S4),
    *_each(lambda a: [x.shape for x in np.linalg.svd(a)], TALL, np.zeros((3, 0)), np.zeros((0, 2))),
    *_each(lambda a: np.linalg.svd(a)[0], np.zeros((3, 0))),
    *_each(whole_qr, TALL, STACK, WIDE, S4),
    *_each(lambda a: np.linalg.qr(a, mode="complete"), np.zeros((3, 0)), np.zeros((0, 3))),
    *_each(lambda a: np.linalg.svd(sym(a), hermitian=True)[1], *SYMMETRIC),
    *_each(lambda a: [x**2 for x in np.linalg.svd(sym(a), hermitian=True)], S4, ONE),
    *_each(lambda a: np.linalg.svd(sym(a), compute_uv=False, hermitian=True), *SYMMETRIC),
    *_each(lambda a: np.linalg.pinv(sym(a), hermitian=True), SYMMETRIC[0], P),
    *_each(lambda a: np.linalg.matrix_rank(sym(a), hermitian=True), SYMMETRIC[0], P),
    *_each(lambda a: [np.linalg.cond(a, p) for p in (1, -1, np.inf, -np.inf, "fro")], A, BATCH, ONE),
    *_each(lambda a: [np.linalg.cond(a, p) for p in ("nuc",)], A),
    *_each(lambda a: [np.linalg.matrix_norm(a, ord=p) for p in ("nuc", 2, -2)], *ANY_SHAPE),
    *_each(lambda a: [np.linalg.norm(a, p) for p in (0.5, 3, 2.5, -1.5)], V),
    *_each(lambda a: [np.linalg.norm(a, p, axis=0) for p in (0.5, 3, -2)], A),
]

SCIPY_FORMS: Entries = [
    *_each(lambda a: scipy.linalg.lu(a)[1:], A, TALL, WIDE, BATCH, ONE, EMPTY, np.zeros((3, 0))),
    *_each(lambda a: scipy.linalg.lu(a)[0], A, TALL, WIDE, BATCH, ONE, EMPTY, np.zeros((0, 3))),
    *_each(lambda a: scipy.linalg.lu(a, permute_l=True), A, TALL, WIDE, BATCH, ONE, EMPTY),
    *_each(lambda a: scipy.linalg.lu(a, p_indices=True), A, TALL, WIDE, BATCH, ONE, EMPTY),
    *_each(lambda a: scipy.linalg.lu_factor(a), TALL, WIDE),
    *since(scipy, "1.16.0", *_each(lambda a: scipy.linalg.lu_factor(a), BATCH)),
    *_with(lambda a, b: scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), b, trans=2), (A, V), (BATCH, numbers(2, 3, 2))),
    *_each(lambda a: scipy.linalg.qr(a, pivoting=True, mode="economic"), S4, TALL, WIDE),
    *_each(lambda a: scipy.linalg.qr(a, pivoting=True, mode="r"), S4, TALL, WIDE),
    *_each(lambda a: (scipy.linalg.qr(a)[1], scipy.linalg.qr(a, mode="r")[0], scipy.linalg.qr(a)[0][:, :3]), TALL),
    *_with(lambda a, c: scipy.linalg.qr_multiply(a, c), (TALL, numbers(2, 5)), (TALL, numbers(5))),
    *_with(lambda a, c: scipy.linalg.qr_multiply(a, c, mode="left"), (TALL, numbers(3, 2)), (S4, V)),
    *_each(lambda a: scipy.linalg.polar(a), S4, TALL, STACK, ONE),
    *_each(lambda a: scipy.linalg.polar(a, side="left"), S4, WIDE, ONE),
    *_each(lambda a: scipy.linalg.pinvh(sym(a)), SYMMETRIC[0], P),
    *_with(lambda a, b: scipy.linalg.lstsq(a, b), (TALL, numbers(5)), (TALL, numbers(5, 2)), (WIDE, numbers(3)), (S4, V)),
    *_with(lambda a, b: scipy.linalg.lstsq(a, b, lapack_driver="gelsy")[:3], (TALL, numbers(5)), (S4, V)),
    *_each(lambda a: scipy.linalg.null_space(a) @ scipy.linalg.null_space(a).T, WIDE),
    *_each(lambda a: scipy.linalg.orth(a), TALL, S4),
    *_with(lambda a, b: scipy.linalg.orthogonal_procrustes(a, b), (TALL, numbers(5, 3))),
    *since(scipy, "1.16.0", *_with(lambda d, e: scipy.linalg.eigh_tridiagonal(d, e), (V, numbers(3)), (numbers(1), numbers(0)))),
    *_with(lambda d, e: scipy.linalg.eigvalsh_tridiagonal(d, e), (V, numbers(3))),
    *_with(lambda d, e: scipy.linalg.eigvalsh_tridiagonal(d, e, select="i", select_range=(1, 2)), (V, numbers(3))),
    *_each(lambda a: scipy.linalg.eigh(sym(a), subset_by_index=[1, 2])[0], S4),
    *_with(lambda a, b: scipy.linalg.eigh(sym(a), sym(b), type=2)[1] ** 2, (S4, P)),
    *_with(lambda a, b: scipy.linalg.eigvalsh(sym(a), sym(b), type=2), (S4, P)),
    *_with(lambda a, b: scipy.linalg.eigh(sym(a), sym(b), type=3)[1] ** 2, (S4, P)),
    *_each(lambda s: (scipy.linalg.diagsvd(s, 3, 4), scipy.linalg.diagsvd(s, 5, 3)), numbers(3)),
    # equations
    *_with(lambda ab, b: scipy.linalg.solve_banded((2, 1), ab, b), (BANDS, V), (BANDS, M), (BANDS, numbers(4, 0))),
    *_with(lambda ab, b: scipy.linalg.solve_banded((1, 0), ab[1:3], b), (BANDS, V)),
    *_with(lambda ab, b: scipy.linalg.solve_banded((0, 0), ab[1:2], b), (BANDS, V)),
    *_with(lambda ab, b: scipy.linalg.solve_banded((0, 1), ab[:2], b), (BANDS, M)),
    *_with(lambda ab, b: scipy.linalg.solveh_banded(ab, b), (HALF, V), (HALF, M), (np.stack([0 * V + 0.1, *HALF]), V)),
    *_with(lambda ab, b: scipy.linalg.solveh_banded(ab[1:3], b, lower=True), (BANDS, V)),
    *_with(lambda ab, b: scipy.linalg.solveh_banded(ab[1:], b, lower=True), (BANDS, M)),
    *_with(lambda c, b: scipy.linalg.solve_toeplitz(c, b), (V + 4 * np.eye(4)[0], V), (V + 4 * np.eye(4)[0], M)),
    *_with(lambda c, r, b: scipy.linalg.solve_toeplitz((c, r), b), (V + 4 * np.eye(4)[0], numbers(4), V)),
    *_with(lambda c, r, x: scipy.linalg.matmul_toeplitz((c, r), x), (V, numbers(4), M), (V, numbers(3), numbers(3))),
    *_with(lambda c, b: scipy.linalg.solve_circulant(c, b), (V + 4 * np.eye(4)[0], V), (V + 4 * np.eye(4)[0], M)),
    *_with(
        lambda a, b, q: scipy.linalg.solve_sylvester(a, b, q),
        (APART, P, numbers(4, 4)), (APART, P[:2, :2], M), (ONE, P, V[None]),
    ),
    *_with(lambda a, q: scipy.linalg.solve_continuous_lyapunov(a, q), (APART, numbers(4, 4)), (ONE, ONE)),
    *_with(lambda a, q: scipy.linalg.solve_discrete_lyapunov(a / 9, q), (A, numbers(4, 4))),
    *_with(lambda a, q: scipy.linalg.solve_discrete_lyapunov(a / 9, q, method="bilinear"), (A, numbers(4, 4))),
    # functions; SciPy's fractional powers of SPIRAL are complex, ours are not
    *[(call, [x]) for x in (A / 3, ONE, np.zeros((2, 2))) for call in (
        lambda a: scipy.linalg.cosm(a), lambda a: scipy.linalg.sinm(a), lambda a: scipy.linalg.tanm(a),
        lambda a: scipy.linalg.coshm(a), lambda a: scipy.linalg.sinhm(a), lambda a: scipy.linalg.tanhm(a),
    )],
    *_with(lambda a, e: scipy.linalg.expm_frechet(a, e), (A / 3, numbers(4, 4))),
    *_with(lambda a, e: scipy.linalg.expm_frechet(a, e, compute_expm=False), (A / 3, numbers(4, 4))),
    *_each(lambda a: scipy.linalg.sqrtm(a), P / 3, ONE, EMPTY, POSITIVE_BATCH),
    *since(scipy, "1.16.0", *_each(lambda a: scipy.linalg.sqrtm(a), SPIRAL)),
    *_each(lambda a: scipy.linalg.logm(a), P / 3, SPIRAL, ONE, POSITIVE_BATCH, np.eye(3)),
    *_each(lambda a: scipy.linalg.fractional_matrix_power(a, 0.3), P / 3, ONE, POSITIVE_BATCH),
    *_each(lambda a: scipy.linalg.fractional_matrix_power(a, -1.7), P / 3, ONE, POSITIVE_BATCH),
    *_each(lambda a: scipy.linalg.fractional_matrix_power(a, 2), A),
    *_each(lambda a: scipy.linalg.signm(a), A, ONE),
    *_each(lambda a: scipy.linalg.funm(a, lambda x: x * x + np.exp(-x)), A / 3, ONE),
    # matrices of a form
    *_each(lambda c: scipy.linalg.companion(c), V, numbers(2, 3), numbers(2)),
    *[(lambda a, n=n, mode=mode: scipy.linalg.convolution_matrix(a, n, mode), [V])
      for n in (1, 3, 6) for mode in ("full", "same", "valid")],
    *_each(lambda a: scipy.linalg.fiedler(a), V, numbers(2, 3), numbers(1)),
    *_each(lambda a: scipy.linalg.fiedler_companion(a), V, numbers(6), numbers(7), numbers(2), numbers(3)),
    *_with(lambda f, s: scipy.linalg.leslie(f, s), (V, numbers(3)), (numbers(2, 3), numbers(2, 2))),
    *_with(lambda a, b: scipy.linalg.khatri_rao(a, b), (M, numbers(3, 2))),
    *_each(lambda c: (scipy.linalg.toeplitz(c), scipy.linalg.circulant(c)), numbers(2, 3)),
]  # fmt: skip

VALUES_ALONE: Entries = [
    *_each(lambda a: rebuilt([scipy.linalg.hessenberg(a, calc_q=True)[k] for k in (1, 0)]), A, ONE),
    *_each(lambda a: scipy.linalg.hessenberg(a), A),
    *_each(lambda a: np.linalg.qr(a, mode="raw"), TALL, WIDE, STACK, np.zeros((3, 0))),
    *_each(lambda a: (scipy.linalg.qr(a, mode="raw"), scipy.linalg.qr(a, mode="raw", pivoting=True)), TALL, WIDE),
    *_each(lambda a: scipy.linalg.schur(a), A, ONE),
    *_each(lambda a: scipy.linalg.schur(a, output="complex")[0], P),
    *_each(lambda a: (lambda t, z: z @ t @ adjoint(z))(*scipy.linalg.rsf2csf(*scipy.linalg.schur(a))), A),
    *_each(lambda a: np.tril(scipy.linalg.rsf2csf(*scipy.linalg.schur(a))[0], -1), A),
]
"""Calls that have no gradient."""


FORMS: Entries = NUMPY_FORMS + SCIPY_FORMS

SECOND: Entries = [
    *_each(whole_svd, TALL, WIDE),
    *_each(whole_qr, TALL),
    *_each(lambda a: scipy.linalg.lu(a), TALL, WIDE, A),
    *_each(lambda a: scipy.linalg.polar(a), S4, TALL),
    *_each(lambda a: np.linalg.pinv(a), TALL),
    *_each(lambda a: (np.linalg.eigh(sym(a)), np.linalg.cond(a), np.linalg.norm(a, "nuc")), S4),
    *_with(lambda a, b: np.linalg.lstsq(a, b)[:2], (TALL, numbers(5))),
    *_with(lambda a, b: scipy.linalg.eigh(sym(a), sym(b))[0], (S4, P)),
    *_with(lambda ab, b: scipy.linalg.solve_banded((2, 1), ab, b), (BANDS, V)),
    *_with(lambda a, b, q: scipy.linalg.solve_sylvester(a, b, q), (APART, P[:2, :2], M)),
    *_each(lambda a: (scipy.linalg.cosm(a), scipy.linalg.tanhm(a)), A / 3),
    *_each(lambda a: (np.linalg.det(a), np.linalg.slogdet(a)[1], np.linalg.inv(a)), A),
    *_each(lambda a: np.linalg.cholesky(sym(a)), P),
    *_each(lambda a: (scipy.linalg.sqrtm(a), scipy.linalg.logm(a)), SPIRAL),
]  # fmt: skip
"""Calls whose gradient is differentiated again."""
