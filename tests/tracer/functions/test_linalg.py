"""numpy.linalg and scipy.linalg: compiled values, dtypes, gradients and errors, compared with NumPy's and SciPy's."""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir import DTYPES, ArrayType, Builder, Module, Value
from pullback.ir.passes.pipeline import OPTIMIZE, run
from pullback.ir.passes.size_classes import templated
from pullback.runtime.program.executable import Executable
from pullback.tracer import trace
from pullback.tracer.arrays.replacements import library_twin
from tests.support.numpy_calls import leaves
from tests.support.versions import IS_OLDER, known, since
from tests.tables.linalg_calls import NUMPY, ONE_TRIANGLE, SCIPY, SPECTRAL, TALL, A, M, P, V, positive
from tests.tables.linalg_forms import FORMS, SECOND, VALUES_ALONE
from tests.tracer.functions.test_function_gradients import check_gradient, weighted

Call = Callable[..., Any]


def same(call: Call, *arguments: Any, rtol: float = 1e-9) -> None:
    """A compiled call gives what the plain call gives: structure, dtypes, shapes and values."""
    with warnings.catch_warnings(action="ignore"):
        expected = leaves(known(call, *arguments))
    result = leaves(pb.jit(call)(*arguments))
    assert len(result) == len(expected)
    for f, e in zip(result, expected, strict=True):
        f, e = np.asarray(f), np.asarray(e)
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        size = np.max(np.abs(e[np.isfinite(e)]), initial=1)
        np.testing.assert_allclose(f, e, rtol=rtol, atol=rtol * size)


@pytest.mark.parametrize(("call", "arguments"), [*NUMPY, *SCIPY, *SPECTRAL, *ONE_TRIANGLE, *FORMS, *VALUES_ALONE])
def test_values(call: Call, arguments: list[Any]) -> None:
    same(call, *arguments)


@pytest.mark.parametrize(("call", "arguments"), [c for c in NUMPY + SCIPY + SPECTRAL + FORMS if all(x.size for x in c[1])])
def test_gradients(call: Call, arguments: list[Any]) -> None:
    check_gradient(call, *arguments)


@pytest.mark.parametrize(("call", "arguments"), SECOND)
def test_second_gradients(call: Call, arguments: list[Any]) -> None:
    rng = np.random.default_rng(11)
    directions = [rng.normal(size=x.shape) for x in arguments]

    def along(*xs: Any) -> Any:
        result = pb.grad(weighted(call), argnums=tuple(range(len(xs))))(*xs)
        return sum(np.sum(g * d) for g, d in zip(result, directions, strict=True))

    second = pb.grad(along, argnums=tuple(range(len(arguments))))(*arguments)
    others = [rng.normal(size=x.shape) for x in arguments]
    ends = [along(*(x + s * 1e-6 * d for x, d in zip(arguments, others, strict=True))) for s in (1, -1)]
    got = sum(np.sum(g * d) for g, d in zip(second, others, strict=True))
    assert got == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-5)


OF_ONE_MATRIX: list[Call] = [
    *(np.linalg.cholesky, np.linalg.inv, np.linalg.det, np.linalg.slogdet, np.linalg.tensorinv),
    lambda a: np.linalg.matrix_power(a, -3),
    lambda a: np.linalg.solve(a, np.array([1.0, 2.0], np.float32)),
    lambda a: np.linalg.solve(a, [1, 2]),
    lambda a: np.linalg.solve(a, a),
    *(np.linalg.eigvalsh, np.linalg.svdvals, np.linalg.qr, np.linalg.pinv, np.linalg.cond, np.linalg.matrix_rank),
    lambda a: np.linalg.norm(a, 2),
    lambda a: np.linalg.lstsq(a, a[0])[:3:2],
    lambda a: scipy.linalg.cholesky(a),
    lambda a: scipy.linalg.inv(a),
    lambda a: scipy.linalg.det(a),
    lambda a: scipy.linalg.expm(a),
    lambda a: scipy.linalg.eigvalsh(a),
    lambda a: scipy.linalg.svdvals(a),
    lambda a: scipy.linalg.qr(a)[0],
    lambda a: scipy.linalg.pinv(a),
    lambda a: scipy.linalg.lu_factor(a),
    *since(scipy, "1.15.0", lambda a: scipy.linalg.solve(a, a), lambda a: scipy.linalg.solve(a, a, assume_a="pos")),
    lambda a: scipy.linalg.solve(a, np.array([1.0, 2.0])),
    lambda a: scipy.linalg.solve_triangular(a, np.array([1.0, 2.0], np.float32), lower=True),
    lambda a: scipy.linalg.cho_solve((a, True), a),
    lambda a: scipy.linalg.block_diag(a, np.float32(1)),
    lambda a: scipy.linalg.toeplitz(a[0]),
]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("call", OF_ONE_MATRIX)
def test_dtypes(call: Call, dtype: str) -> None:
    a = np.array([[1, 0], [0, 1]] if dtype == "bool" else [[4, 1], [1, 3]]).astype(dtype)
    if call is np.linalg.tensorinv:
        a = a.reshape(1, 2, 2)
        call = lambda a: np.linalg.tensorinv(a, ind=2)  # noqa: E731
    try:
        call(a)
    except TypeError as error:
        with pytest.raises(TypeError, match=str(error)):
            pb.jit(call)(a)
        return
    same(call, a, rtol=1e-6)


def test_float32_gradients_are_those_of_float64_rounded() -> None:
    def loss(a: Any, b: Any) -> Any:
        return np.sum(np.linalg.solve(a, b) ** 2) + np.linalg.slogdet(a)[1] + np.sum(scipy.linalg.inv(a))

    wide = pb.grad(loss)(A, M)
    narrow = pb.grad(loss)(A.astype(np.float32), M.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=1e-4)


SINGULAR, INDEFINITE = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[1.0, 2.0], [2.0, 1.0]])
FAILURES: list[tuple[Call, Any, str]] = [
    (lambda a: np.linalg.cholesky(a), INDEFINITE, "Matrix is not positive definite"),
    (lambda a: np.linalg.cholesky(a), np.stack([np.eye(2), INDEFINITE]), "Matrix is not positive definite"),
    (lambda a: np.linalg.solve(a, np.ones(2)), SINGULAR, "Singular matrix"),
    (lambda a: np.linalg.inv(a), SINGULAR, "Singular matrix"),
    (lambda a: np.linalg.inv(a), np.stack([SINGULAR, np.eye(2)]), "Singular matrix"),
    (lambda a: np.linalg.matrix_power(a, -1), SINGULAR, "Singular matrix"),
    (lambda a: scipy.linalg.cholesky(a), INDEFINITE, "leading minor of the array is not positive definite"),
    (lambda a: scipy.linalg.cho_factor(a)[0], -np.eye(2), "leading minor of the array is not positive definite"),
    (lambda a: scipy.linalg.solve(a, np.ones(2)), SINGULAR, "singular matrix"),
    (lambda a: scipy.linalg.solve(a, np.ones(2), assume_a="pos"), INDEFINITE, "singular matrix"),
    *since(
        scipy, "1.16.0",
        (lambda a: scipy.linalg.solve(np.diag(a[0]), np.ones(2), assume_a="diagonal"), np.zeros((2, 2)), "singular matrix"),
    ),
    (lambda a: scipy.linalg.inv(a), SINGULAR, "singular matrix"),
    (lambda a: scipy.linalg.solve_triangular(a, np.ones(2)), np.zeros((2, 2)), "singular matrix"),
    (lambda a: scipy.linalg.eigvalsh(np.eye(2), a), INDEFINITE, "not positive definite"),
    (lambda a: scipy.linalg.solve_banded((0, 0), a[:1], np.ones(2)), np.zeros((2, 2)), "singular matrix"),
    (lambda a: scipy.linalg.solveh_banded(a[:1], np.ones(2)), -np.eye(2), "leading minor"),
    (lambda a: scipy.linalg.solve_circulant(a[0], np.ones(2)), np.ones((2, 2)), "near singular circulant matrix"),
    (lambda a: scipy.linalg.logm(a), np.full((2, 2), np.nan), "array must not contain infs or NaNs"),
    (lambda a: np.abs(np.linalg.eigvals(a)), np.full((2, 2), np.nan), "array must not contain infs or NaNs"),
    (lambda a: scipy.linalg.cholesky(a), np.full((2, 2), np.nan), "array must not contain infs or NaNs"),
    (lambda a: scipy.linalg.solve(a, np.ones(2)), np.full((2, 2), np.inf), "array must not contain infs or NaNs"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "a", "message"), FAILURES)
def test_failures_are_those_of_numpy_at_the_users_line(call: Call, a: Any, message: str) -> None:
    with pytest.raises(ValueError) as plain:
        call(a)
    for transform in (pb.jit(call), pb.grad(lambda a: np.sum(call(a)))):
        with pytest.raises(type(plain.value), match=f"(?i){message}") as caught:
            transform(a)
        line = call.__code__.co_firstlineno
        (note,) = caught.value.__notes__
        assert f"test_linalg.py:{line}, in compiled code" in note
    reason = str(plain.value).lower()
    worded = (message.lower(), "potrf return info", "matrix is singular")  # as SciPy 1.18, and before 1.17, has it
    assert any(words in reason for words in worded)


def test_the_first_failure_is_the_one_raised() -> None:
    def call(a: Any, b: Any) -> Any:
        first = np.linalg.inv(a)
        return first @ np.linalg.cholesky(b)

    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        pb.jit(call)(SINGULAR, INDEFINITE)
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        pb.jit(call)(INDEFINITE, INDEFINITE)


def test_a_result_that_nothing_reads_fails_all_the_same() -> None:
    def call(a: Any) -> Any:
        np.linalg.cholesky(a)
        return a + 1

    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        pb.jit(call)(INDEFINITE)
    np.testing.assert_array_equal(pb.jit(call)(np.eye(2)), np.eye(2) + 1)


@pytest.mark.parametrize("a", [SINGULAR, np.zeros((3, 3)), np.arange(9.0).reshape(3, 3), np.stack([SINGULAR, INDEFINITE])])
def test_determinants_of_singular_matrices(a: Any) -> None:
    same(lambda a: (np.linalg.det(a), np.linalg.slogdet(a)), a)


@pytest.mark.parametrize(
    "a",
    [
        SINGULAR,
        np.zeros((1, 1)),
        np.zeros((2, 2)),
        np.arange(9.0).reshape(3, 3),
        np.diag([0.0, 2.0, 3.0]),
        np.diag([0.0, 0.0, 3.0]),
        np.diag([0.0, 1.0, 2.0, 3.0]),
        np.diag([0.0, 1.0, 0.0, 3.0, 2.0]),
        np.outer(np.arange(1.0, 5.0), np.cos(np.arange(4.0))) + np.outer(np.arange(4.0), np.ones(4)),
        np.outer(np.arange(1.0, 5.0), np.cos(np.arange(4.0))),
        np.zeros((4, 4)),
        np.cos(np.arange(25.0) ** 2).reshape(5, 5),
    ],
)
def test_the_gradient_of_the_determinant_of_a_singular_matrix_is_its_cofactors(a: Any) -> None:
    def minor(i: int, j: int) -> Any:
        return (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1))

    cofactors = np.array([[minor(i, j) for j in range(len(a))] for i in range(len(a))])
    np.testing.assert_allclose(pb.grad(lambda a: np.linalg.det(a))(a), cofactors, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(pb.grad(lambda a: scipy.linalg.det(a))(a), cofactors, rtol=1e-12, atol=1e-12)
    direction = np.cos(np.arange(a.size)).reshape(a.shape)
    second = pb.grad(lambda a: np.sum(pb.grad(lambda a: np.linalg.det(a))(a) * direction))(a)
    expected = np.zeros_like(a)
    for i, j, k, m in itertools.product(range(len(a)), repeat=4):
        if i != k and j != m:
            inner = np.delete(np.delete(a, [i, k], 0), [j, m], 1)
            sign = (-1) ** (i + j + k + m) * (1 if (i < k) == (j < m) else -1)
            expected[i, j] += sign * np.linalg.det(inner) * direction[k, m]
    np.testing.assert_allclose(second, expected, rtol=1e-11, atol=1e-12)
    along = pb.jvp(pb.grad(lambda a: np.linalg.det(a)), (a,), (direction,))[1]
    np.testing.assert_allclose(along, expected, rtol=1e-11, atol=1e-12)
    along_rows = pb.vmap(pb.grad(lambda a: np.sum(pb.grad(lambda a: np.linalg.det(a))(a) * direction)))
    rows = along_rows(np.stack([a, a + np.eye(len(a))]))
    np.testing.assert_allclose(rows[0], expected, rtol=1e-11, atol=1e-12)


def test_second_derivatives_of_complex_determinants() -> None:
    a = (np.cos(np.arange(16.0) ** 2) + 1j * np.sin(np.arange(16.0))).reshape(4, 4)
    a[:, 3] = a[:, 2]
    d = (np.sin(np.arange(16.0) ** 2) + 1j * np.cos(np.arange(16.0))).reshape(4, 4)

    def f(t: Any) -> Any:
        return np.linalg.det(a + t * d).real

    h = 1e-3
    assert pb.grad(pb.grad(f))(0.0) == pytest.approx((f(h) - 2 * f(0.0) + f(-h)) / h**2, rel=1e-5)


def test_a_branch_not_taken_has_no_gradient() -> None:
    stack = np.stack([np.diag([2.0, 3.0]), SINGULAR])

    def loss(a: Any) -> Any:
        return np.sum(np.where(np.array([True, False]), np.linalg.slogdet(a)[1], 0.0))

    np.testing.assert_allclose(pb.grad(loss)(stack), [np.diag([1 / 2, 1 / 3]), np.zeros((2, 2))])


def test_nan_gives_what_numpy_gives() -> None:
    a = np.array([[4.0, np.nan], [np.nan, 2.0]])
    with np.errstate(all="ignore"):
        expected = leaves((np.linalg.slogdet(a), np.linalg.det(a)))
        np.testing.assert_array_equal(leaves(pb.jit(lambda a: (np.linalg.slogdet(a), np.linalg.det(a)))(a)), expected)


SAME_ERRORS: list[Call] = [
    lambda a: np.linalg.cholesky(a[0]),
    lambda a: np.linalg.inv(a[:2]),
    lambda a: np.linalg.det(a[:, :2]),
    lambda a: np.linalg.slogdet(a[0, 0]),
    lambda a: np.linalg.solve(a, a[:3]),
    lambda a: np.linalg.solve(a, a[0, :3]),
    lambda a: np.linalg.solve(a, 2.0),
    lambda a: np.linalg.matrix_power(a, 0.5),
    lambda a: np.linalg.multi_dot([a]),
    lambda a: np.linalg.eigh(a[:2]),
    lambda a: np.linalg.eigh(a, UPLO="X"),
    lambda a: np.linalg.svd(a[0]),
    lambda a: np.linalg.qr(a, mode="nonsense"),
    lambda a: np.linalg.pinv(a, 0.1, rtol=0.1),
    lambda a: np.linalg.lstsq(a, a[0, :3]),
    lambda a: np.linalg.lstsq(a[None], a),
    lambda a: np.linalg.matrix_rank(a, 0.1, rtol=0.1),
    lambda a: np.linalg.cond(a[:0]),
    lambda a: np.linalg.norm(a, 3),
    lambda a: np.linalg.multi_dot([a, a[0], a]),
    lambda a: np.linalg.tensorinv(a, ind=0),
    lambda a: np.linalg.tensorsolve(a, a[0, :3]),
    lambda a: np.linalg.outer(a, a),
    lambda a: np.linalg.cross(a, a),
    lambda a: scipy.linalg.cholesky(a[:2]),
    lambda a: scipy.linalg.cho_solve((a, True), a[:2]),
    lambda a: scipy.linalg.solve(a, a[:2]),
    lambda a: scipy.linalg.solve(a, a[0], assume_a="nonsense"),
    lambda a: scipy.linalg.solve_triangular(a[:2], a[0]),
    lambda a: scipy.linalg.solve_triangular(a, a[:3]),
    lambda a: scipy.linalg.inv(a[0]),
    lambda a: scipy.linalg.expm(a[0]),
    lambda a: scipy.linalg.expm(a[:2]),
    lambda a: scipy.linalg.det(a[0]),
    lambda a: scipy.linalg.cholesky(a, nonsense=True),
    lambda a: scipy.linalg.eigh(a, subset_by_index=[2, 7]),
    lambda a: scipy.linalg.solve_banded((1, 2), a[:3], a[0]),
    lambda a: scipy.linalg.solve_banded((1, 1), a[:3], a[0, :3]),
    lambda a: scipy.linalg.solveh_banded(a[:2], a[0, :3]),
    lambda a: scipy.linalg.solve_sylvester(a, a, a[:2]),
    lambda a: scipy.linalg.solve_continuous_lyapunov(a, a[:2]),
    lambda a: scipy.linalg.solve_discrete_lyapunov(a, a, method="nonsense"),
    lambda a: scipy.linalg.sqrtm(a[:2]),
    lambda a: scipy.linalg.logm(a[:2]),
    lambda a: scipy.linalg.polar(a, side="nonsense"),
    lambda a: scipy.linalg.lstsq(a, a[:2]),
    lambda a: scipy.linalg.lu(a[0]),
    lambda a: scipy.linalg.schur(a, output="nonsense"),
    lambda a: scipy.linalg.companion(a[0, :1]),
    lambda a: scipy.linalg.convolution_matrix(a[0], 0),
    lambda a: scipy.linalg.leslie(a[0], a[1]),
    lambda a: scipy.linalg.eigh_tridiagonal(a[0], a[1]),
    lambda a: np.linalg.eig(a[:2]),
    lambda a: np.linalg.svd(a[:2], hermitian=True),
]


@pytest.mark.parametrize("call", SAME_ERRORS)
def test_same_errors(call: Call) -> None:
    with pytest.raises(Exception) as plain:
        call(P)
    with pytest.raises(type(plain.value)):
        pb.jit(call)(P)


def test_least_squares_of_dependent_columns_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="dependent columns"):
        pb.jit(lambda a: np.linalg.lstsq(a, np.ones(5))[0])(TALL[:, [0, 0, 1]])


def test_pseudo_inverses_of_lower_rank() -> None:
    """The gradient is along matrices of the same rank."""
    u, v = TALL[:, :2], np.random.default_rng(1).normal(size=(2, 4))

    def loss(u: Any, v: Any) -> Any:
        return np.sum(np.cos(np.linalg.pinv(u @ v, 1e-9)))

    np.testing.assert_allclose(pb.jit(loss)(u, v), loss(u, v), rtol=1e-10)
    gradient = pb.grad(loss)(u, v)
    direction = np.random.default_rng(2).normal(size=u.shape)
    ends = [loss(u + s * 1e-6 * direction, v) for s in (1, -1)]
    np.testing.assert_allclose(np.sum(gradient * direction), (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("a", [np.eye(3), np.eye(4, 2), np.diag([2.0, 2.0, 1e-3]), np.eye(2, 3) * 0.5])
def test_pseudo_inverses_of_equal_singular_values(a: Any) -> None:
    weights = np.random.default_rng(6).normal(size=a.shape[::-1])
    check_gradient(lambda a: np.linalg.pinv(a, 0.1) * weights, a)


@pytest.mark.parametrize("a", [np.eye(3), np.diag([2.0, 2.0, 1.0])])
def test_functions_that_are_smooth_at_equal_values(a: Any) -> None:
    weights = np.random.default_rng(6).normal(size=a.shape)
    roots = since(scipy, "1.16.0", scipy.linalg.sqrtm)
    for call in (*roots, scipy.linalg.logm, lambda x: scipy.linalg.polar(x)[0], scipy.linalg.expm):
        check_gradient(lambda x: call(x + 0.0) * weights, a)  # noqa: B023


def test_equal_eigenvalues() -> None:
    np.testing.assert_allclose(pb.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2))(np.eye(3)), 2 * np.eye(3))
    assert np.isnan(pb.grad(lambda a: np.linalg.eigh(a)[1][0, 1])(np.eye(2))).any()


D, Q = np.diag([4.0, 1.0, 1.0]), np.linalg.qr(np.cos(np.arange(9.0) ** 2).reshape(3, 3))[0]


@pytest.mark.parametrize("a", [D, Q @ D @ Q.T, (Q @ D @ Q.T).astype(complex)], ids=["diagonal", "turned", "complex"])
@pytest.mark.parametrize("modes", ["both", "reverse"])
def test_vectors_of_a_separate_eigenvalue_beside_equal_ones(a: Any, modes: str) -> None:
    weights = np.arange(9.0).reshape(3, 3) ** 2

    def separate(a: Any) -> Any:
        v = np.linalg.eigh(a)[1][:, 2]
        return np.sum(np.outer(v, np.conj(v)) * weights).real + np.linalg.eigh(a)[0][2]

    def of_both(a: Any) -> Any:
        v = np.linalg.eigh(a)[1][:, :2]
        return np.sum((v @ np.conj(v).T) * weights).real

    direction = np.sin(np.arange(9.0)).reshape(3, 3)
    direction, h = direction + direction.T, 1e-6
    for f in (separate, of_both):
        slope = (f(a + h * direction) - f(a - h * direction)) / (2 * h)
        gradient = pb.grad(f)(a)
        np.testing.assert_allclose(np.sum(gradient * direction).real, slope, rtol=1e-6, atol=1e-8)
        if modes == "both" and f is separate:
            along = pb.jvp(f, (a,), (direction.astype(a.dtype),))[1]
            np.testing.assert_allclose(along, slope, rtol=1e-6, atol=1e-8)


def test_a_separate_eigenvector_by_its_element() -> None:
    def f(a: Any) -> Any:
        return np.linalg.eigh(a)[1][1, 2]

    gradient = pb.grad(f)(D)
    np.testing.assert_allclose(gradient, [[0, 1 / 6, 0], [1 / 6, 0, 0], [0, 0, 0]], atol=1e-15)
    for direction in np.eye(9).reshape(9, 3, 3):
        np.testing.assert_allclose(pb.jvp(f, (D,), (direction,))[1], np.sum(gradient * direction), atol=1e-15)


@pytest.mark.parametrize("a", [0.7 * np.eye(3), D, Q @ D @ Q.T, np.diag([1.0, 2.0, 3.0])], ids=["0", "1", "2", "3"])
def test_second_derivatives_of_sums_of_functions_of_eigenvalues(a: Any) -> None:
    a = (a + a.T) / 2
    direction = np.sin(np.arange(9.0)).reshape(3, 3)
    even, inverse = (direction + direction.T) / 2, np.linalg.inv(a)
    for f, expected in (
        (lambda a: np.sum(np.log(np.linalg.eigvalsh(a))), -inverse @ even @ inverse),
        (lambda a: np.sum(np.linalg.eigh(a)[0] ** 3), 3 * (a @ even + even @ a)),
        (lambda a: np.linalg.eigvalsh(a).sum(), 0 * a),
        (lambda a: np.sum(2.0 / (1.0 + np.linalg.eigvalsh(a))), None),
    ):
        gradient = pb.grad(f)
        second = pb.grad(lambda a: np.sum(gradient(a) * direction))(a)  # noqa: B023
        if expected is None:
            r = np.linalg.inv(np.eye(3) + a)
            expected = 2 * (r @ r @ even @ r + r @ even @ r @ r)
        np.testing.assert_allclose(second, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(pb.jvp(gradient, (a,), (direction,))[1], expected, rtol=1e-10, atol=1e-12)
    batch = np.stack([a, np.eye(3)])
    result = pb.grad(lambda a: np.sum(np.log(np.linalg.eigvalsh(a))))(batch)
    np.testing.assert_allclose(result, np.linalg.inv(batch), rtol=1e-12, atol=1e-14)
    weighted = pb.grad(lambda a: np.sum(np.linalg.eigvalsh(a) * np.array([1.0, 2.0, 3.0])))
    np.testing.assert_allclose(weighted(np.diag([1.0, 2.0, 3.0])), np.diag([1.0, 2.0, 3.0]), atol=1e-15)


def test_functions_that_equal_eigenvalues_leave_open_are_nan() -> None:
    def function(a: Any) -> Any:
        w, v = np.linalg.eigh(a)
        return np.sum((v * np.exp(w)) @ v.T * np.arange(9.0).reshape(3, 3))

    assert np.isnan(pb.grad(function)(D)).any()
    apart = np.diag([4.0, 1.0, 2.0])
    expected = pb.grad(lambda a: np.sum(scipy.linalg.expm((a + a.T) / 2) * np.arange(9.0).reshape(3, 3)))(apart)
    np.testing.assert_allclose(pb.grad(function)(apart), expected, rtol=1e-10, atol=1e-10)


def test_singular_vectors_beside_equal_singular_values() -> None:
    weights = np.cos(np.arange(9.0) ** 2).reshape(3, 3)
    for s in (np.diag([2.0, 2.0, 1.0]), 2 * np.eye(3), Q @ np.diag([2.0, 2.0, 1.0]) @ weights):

        def polar(a: Any) -> Any:
            u, _, vt = np.linalg.svd(a)
            return np.sum(u @ vt * weights)

        expected = pb.grad(lambda a: np.sum(scipy.linalg.polar(a)[0] * weights))(s)
        np.testing.assert_allclose(pb.grad(polar)(s), expected, rtol=1e-10, atol=1e-13)
    gradient = pb.grad(lambda a: np.linalg.svd(a)[0][0, 2])(np.diag([2.0, 2.0, 1.0]))
    np.testing.assert_allclose(gradient, [[0, 0, -1 / 3], [0, 0, 0], [-2 / 3, 0, 0]], atol=1e-15)
    tall = Q @ np.diag([2.0, 2.0, 1.0])
    tall = np.concatenate([tall, 0 * tall])
    gradient = pb.grad(lambda a: np.sum(np.linalg.svd(a, full_matrices=False)[0][:, 2] ** 2 * np.arange(6.0)))(tall)
    assert np.isfinite(gradient).all()


def test_equal_decompositions_are_computed_once() -> None:
    function = trace(lambda a: np.linalg.eigh(a)[1] @ np.linalg.eigh(a)[1], [D]).function
    built = run(templated(function).function, OPTIMIZE)
    assert sum(i.op.name == "eigh" for i in built.instructions) == 1


def test_exponentials_of_any_size() -> None:
    """Beyond what doubles hold, nothing hangs."""
    rotation = np.array([[0.0, -1.0], [1.0, 0.0]])
    compiled = pb.jit(lambda a: scipy.linalg.expm(a))
    for angle in (0.0, 1e-300, 1e-8, 3.0, 1e3, 1e6):
        expected = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        np.testing.assert_allclose(compiled(rotation * angle), expected, rtol=0, atol=1e-15 * max(angle, 1))
    np.testing.assert_allclose(compiled(np.diag([-1e9, 0.0])), np.diag([0.0, 1.0]), atol=1e-6)
    for bad in (np.nan, np.inf, 1e300):
        assert not np.isfinite(compiled(np.full((2, 2), bad))).any()


def test_the_gradient_of_an_exponential_at_several_orders() -> None:
    def flow(t: Any) -> Any:
        return scipy.linalg.expm(t * A)[0, 1]

    third = pb.grad(pb.grad(pb.grad(flow)))(0.3)
    np.testing.assert_allclose(third, (A @ A @ A @ scipy.linalg.expm(0.3 * A))[0, 1], rtol=1e-9)


OF_SCIPY = [
    "cholesky",
    "cho_factor",
    "cho_solve",
    "solve_triangular",
    "solve",
    "inv",
    "det",
    "lu",
    "lu_factor",
    "lu_solve",
    "norm",
    "eig",
    "eigvals",
    "eigh",
    "eigvalsh",
    "eigh_tridiagonal",
    "eigvalsh_tridiagonal",
    "svd",
    "svdvals",
    "diagsvd",
    "qr",
    "qr_multiply",
    "pinv",
    "pinvh",
    "lstsq",
    "null_space",
    "orth",
    "polar",
    "orthogonal_procrustes",
    "schur",
    "rsf2csf",
    "hessenberg",
    "expm",
    "expm_frechet",
    "cosm",
    "sinm",
    "tanm",
    "coshm",
    "sinhm",
    "tanhm",
    "funm",
    "fractional_matrix_power",
    "solve_banded",
    "solveh_banded",
    "solve_toeplitz",
    "matmul_toeplitz",
    "solve_circulant",
    "solve_sylvester",
    "solve_continuous_lyapunov",
    "solve_discrete_lyapunov",
    "block_diag",
    "toeplitz",
    "hankel",
    "circulant",
    "companion",
    "convolution_matrix",
    "fiedler",
    "fiedler_companion",
    "leslie",
    "khatri_rao",
]


@pytest.mark.skipif(IS_OLDER, reason="the arguments are those of newer versions")
@pytest.mark.parametrize("name", OF_SCIPY)
def test_signatures_are_those_of_scipy(name: str) -> None:
    function = getattr(scipy.linalg, name)
    theirs, ours = inspect.signature(function).parameters, inspect.signature(library_twin(function)).parameters
    for key, parameter in theirs.items():
        assert name == "eigvals" or ours[key].kind == parameter.kind, key
        assert ours[key].default == parameter.default or type(parameter.default) is object, key
    assert name == "eigvals" or list(ours)[: len(theirs)] == list(theirs)


def test_scipy_is_itself_on_arrays_made_in_the_trace() -> None:
    np.testing.assert_array_equal(pb.jit(lambda x: x + scipy.linalg.inv(np.eye(2) * 2))(np.zeros((2, 2))), np.eye(2) / 2)


OF_ONE_TRIANGLE: list[Call] = [
    lambda a: np.linalg.cholesky(a),
    lambda a: scipy.linalg.cholesky(a),
    lambda a: scipy.linalg.cholesky(a, lower=True),
    lambda a: np.linalg.eigvalsh(a),
    lambda a: np.linalg.eigh(a, "U")[1] ** 2,
    lambda a: scipy.linalg.solve(a, V, assume_a="pos"),
    lambda a: scipy.linalg.solve(a, V, assume_a="sym"),
    lambda a: scipy.linalg.solve(a, V, assume_a="her", lower=True),
]


@pytest.mark.parametrize("call", OF_ONE_TRIANGLE)
def test_a_matrix_of_which_one_triangle_is_read_has_a_symmetric_gradient(call: Call) -> None:
    gradient = pb.grad(lambda a: np.sum(np.sin(call(a))))(P)
    np.testing.assert_array_equal(gradient, gradient.T)
    through = pb.grad(lambda a: np.sum(np.sin(call((a + a.T) / 2))))(P)
    np.testing.assert_allclose(gradient, through, rtol=1e-12)


def test_gradients_of_functions_of_eigenvalues_are_symmetric_to_the_last_bit() -> None:
    loss = pb.grad(lambda a: np.sum(np.sin(np.linalg.eigvalsh(a))))
    for n in (1, 2, 3, 4, 7, 20):
        for dtype in (np.float32, np.float64, np.complex128):
            a = np.random.default_rng(n).normal(size=(n, n)) + 1j * np.random.default_rng(n + 1).normal(size=(n, n))
            a = (a + a.conj().T).astype(dtype) if dtype is np.complex128 else (a + a.conj().T).real.astype(dtype)
            gradient = loss(a)
            np.testing.assert_array_equal(gradient, gradient.conj().T)
            w, v = np.linalg.eigh(a)
            expected = v * np.cos(w) @ v.conj().T
            expected = expected.conj() if dtype is np.complex128 else expected
            tolerance = 1e-4 if dtype is np.float32 else 1e-10
            np.testing.assert_allclose(gradient, expected, rtol=tolerance, atol=tolerance)


def strided(a: Any) -> Any:
    wide = np.zeros([2 * n for n in a.shape])
    wide[tuple(slice(None, None, 2) for _ in a.shape)] = a
    return wide[tuple(slice(None, None, 2) for _ in a.shape)]


@pytest.mark.parametrize("change", [np.asfortranarray, strided, lambda a: a[::-1, ::-1][::-1, ::-1]])
def test_any_memory_order(change: Call) -> None:
    def call(a: Any, b: Any) -> Any:
        return np.linalg.cholesky(a), np.linalg.solve(a, b), np.linalg.slogdet(a), scipy.linalg.solve_triangular(a, b)

    same(call, change(P), change(M))


def test_library_calls_have_no_cuda_text() -> None:
    assert pb.jit(np.fft.rfft, device="cuda").stages(A)["cuda"].startswith("// fft_1d has no CUDA spelling")


def test_axes_beyond_the_integers_of_lapack_are_refused() -> None:
    b = Builder()
    x = Value(ArrayType(DTYPES["f64"], ("n", "n")), "x")
    module = lower(fuse(b.function("f", [x], b.cholesky(x))))
    first, *kernels = module.functions
    executable = Executable(Module((first, *map(schedule, kernels))))
    with pytest.raises(ValueError, match=r"lapack\.dpotrf takes axes of at most 2,147,483,647 elements"):
        executable.instantiate({"n": 2**31})
    executable.instantiate({"n": 2**31 - 1})


def test_a_new_shape_compiles_nothing() -> None:
    def call(a: Any, b: Any) -> Any:
        return np.linalg.solve(a, b), np.linalg.eigvalsh(a), np.linalg.svd(a[:, :2], full_matrices=False)[1]

    compiled = pb.jit(call)
    compiled(P, V)
    before = pb.cache_info()
    big = positive(9)
    for result, expected in zip(compiled(big, np.ones(9)), call(big, np.ones(9)), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-9)
    assert pb.cache_info().compiles == before.compiles


def test_many_threads() -> None:
    compiled = pb.jit(lambda a: (np.linalg.inv(a), np.linalg.eigvalsh(a), np.linalg.svdvals(a)))
    matrices = [positive(n) for n in range(1, 33)]
    with ThreadPoolExecutor(8) as pool:
        for a, (inverse, values, _) in zip(matrices, pool.map(compiled, matrices), strict=True):
            np.testing.assert_allclose(inverse @ a, np.eye(len(a)), atol=1e-6)
            np.testing.assert_allclose(values, np.linalg.eigvalsh(a), rtol=1e-9)


# programs


def log_marginal_likelihood(theta: Any, x: Any, y: Any) -> Any:
    """Return the log marginal likelihood of a Gaussian process.

    Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equation 2.30.
    """
    length, amplitude, noise = np.exp(theta)
    squares = np.sum((x[:, None] - x[None]) ** 2, -1)
    k = amplitude**2 * np.exp(-0.5 * squares / length**2) + noise**2 * np.eye(len(x))
    factor = np.linalg.cholesky(k)
    weights = scipy.linalg.cho_solve((factor, True), y)
    return -0.5 * y @ weights - np.sum(np.log(np.diag(factor))) - 0.5 * len(x) * np.log(2 * np.pi)


def log_density(mean: Any, covariance: Any, x: Any) -> Any:
    """Return the log density of multivariate normal variables, one in each row."""
    factor = scipy.linalg.cholesky(covariance, lower=True)
    z = scipy.linalg.solve_triangular(factor, (x - mean).T, lower=True)
    constant = np.sum(np.log(np.diag(factor))) + 0.5 * len(mean) * np.log(2 * np.pi)
    return np.sum(-0.5 * np.sum(z * z, 0) - constant)


def test_a_gaussian_process() -> None:
    rng = np.random.default_rng(3)
    x, y, theta = rng.normal(size=(40, 2)), rng.normal(size=40), np.array([0.1, -0.2, -0.7])
    value, gradient = pb.value_and_grad(log_marginal_likelihood)(theta, x, y)
    np.testing.assert_allclose(value, log_marginal_likelihood(theta, x, y), rtol=1e-12)
    for e, g in zip(np.eye(3), gradient, strict=True):
        ends = [log_marginal_likelihood(theta + s * 1e-5 * e, x, y) for s in (1, -1)]
        np.testing.assert_allclose(g, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)

    def along(theta: Any, direction: Any) -> Any:
        return pb.grad(log_marginal_likelihood)(theta, x, y) @ direction

    direction = np.array([0.3, -1.0, 0.5])
    second = pb.grad(along)(theta, direction)
    for e, g in zip(np.eye(3), second, strict=True):
        ends = [along(theta + s * 1e-5 * e, direction) for s in (1, -1)]
        np.testing.assert_allclose(g, (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-5)


def test_a_multivariate_normal() -> None:
    x, mean = np.random.default_rng(4).normal(size=(30, 4)), V
    value, (by_mean, by_covariance) = pb.value_and_grad(log_density, argnums=(0, 1))(mean, P, x)
    np.testing.assert_allclose(value, log_density(mean, P, x), rtol=1e-12)
    inverse, centred = np.linalg.inv(P), x - mean
    np.testing.assert_allclose(by_mean, np.sum(centred @ inverse, 0), rtol=1e-10)
    expected = 0.5 * (inverse @ centred.T @ centred @ inverse - len(x) * inverse)
    np.testing.assert_allclose(by_covariance, expected, rtol=1e-9, atol=1e-11)


def test_a_kalman_filter() -> None:
    def log_likelihood(q: Any, observed: Any) -> Any:
        transition, seen = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
        state, spread, total = np.zeros(2), np.eye(2), 0.0
        for y in observed:
            state, spread = transition @ state, transition @ spread @ transition.T + q * np.eye(2)
            residual = y - seen @ state
            covariance = seen @ spread @ seen.T + 0.5 * np.eye(1)
            gain = np.linalg.solve(covariance, seen @ spread).T
            total = total - 0.5 * (residual @ np.linalg.solve(covariance, residual) + np.linalg.slogdet(covariance)[1])
            state, spread = state + gain @ residual, spread - gain @ seen @ spread
        return total

    observed = np.cumsum(np.random.default_rng(2).normal(size=8))[:, None]
    value, gradient = pb.value_and_grad(log_likelihood)(0.3, observed)
    np.testing.assert_allclose(value, log_likelihood(0.3, observed), rtol=1e-12)
    ends = [log_likelihood(0.3 + h, observed) for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(gradient, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)
