"""Linear algebra of complex matrices: compiled values against NumPy and SciPy, gradients against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy
import scipy.linalg

import pullback as pb
from tests.support.versions import since
from tests.tables.linalg_forms import adjoint
from tests.tracer.functions.test_linalg import same

Call = Callable[..., Any]
_rng = np.random.default_rng(8)


def complexes(*shape: int) -> Any:
    return _rng.normal(size=shape) + 1j * _rng.normal(size=shape)


def herm(a: Any) -> Any:
    return (a + adjoint(a)) / 2


Z, TALL, WIDE, B, BATCH = complexes(3, 3), complexes(5, 3), complexes(3, 5), complexes(3, 2), complexes(2, 3, 3)
H = Z @ adjoint(Z) + np.eye(3)
BOTH = BATCH @ adjoint(BATCH) + np.eye(3)
SEVERAL = np.array([1.0, -0.4, 0.7])


def beyond(x: Any, k: int) -> Any:
    """The projector onto the columns from the k-th on."""
    return x[..., k:] @ adjoint(x[..., k:])


CALLS: list[tuple[Call, list[Any]]] = [
    (lambda a: np.linalg.cholesky(herm(a)), [H, BOTH]),
    (lambda a: np.linalg.cholesky(herm(a), upper=True), [H]),
    (lambda a: np.linalg.inv(a), [Z, BATCH]),
    (lambda a: (np.linalg.det(a), *np.linalg.slogdet(a)), [Z, BATCH]),
    (lambda a: np.linalg.solve(a, B), [Z, BATCH]),
    (lambda a: np.linalg.matrix_power(a, -3), [Z]),
    (lambda a: (np.linalg.eigvalsh(herm(a)), np.abs(np.linalg.eigh(herm(a))[1])), [H, BOTH]),
    (lambda a: np.abs(np.linalg.eigh(herm(a), UPLO="U")[1]), [H]),
    (lambda a: np.linalg.svdvals(a), [Z, TALL, WIDE]),
    (lambda a: (lambda u, s, v: (np.abs(u), (u * SEVERAL) @ v))(*np.linalg.svd(a, full_matrices=False)), [TALL, WIDE]),
    (lambda a: beyond(np.linalg.svd(a)[0], 3), [TALL]),
    (lambda a: beyond(adjoint(np.linalg.svd(a)[2]), 3), [WIDE]),
    (lambda a: tuple(np.linalg.qr(a)), [Z, TALL, WIDE]),
    (lambda a: beyond(np.linalg.qr(a, mode="complete")[0], 3), [TALL]),
    (lambda a: np.linalg.pinv(a), [Z, TALL, WIDE]),
    (lambda a: np.linalg.lstsq(a, np.ones(5))[:2], [TALL]),
    (lambda a: np.linalg.cond(a), [Z]),
    *since(np, "2.3.0", (lambda a: np.linalg.cond(a, 1), [Z])),
    (lambda a: [np.linalg.norm(a, k) for k in (None, "fro", 1, -1, 2, -2, np.inf, "nuc")], [Z]),
    (lambda a: [np.linalg.norm(a[0], k) for k in (None, 1, 3, np.inf)], [Z]),
    (lambda a: (np.linalg.eigvals(a) + 0j, np.abs(np.linalg.eig(a)[1])), [Z, Z.real, BATCH]),
    (lambda a: scipy.linalg.expm(a), [Z, BATCH]),
    (lambda a: scipy.linalg.logm(a), [Z]),
    *since(scipy, "1.15.0", (lambda a: scipy.linalg.sqrtm(a), [Z])),
    (lambda a: (scipy.linalg.cosm(a), scipy.linalg.tanhm(a)), [Z / 3]),
    (lambda a: scipy.linalg.funm(a, lambda x: x * np.exp(x)), [Z]),
    (lambda a: scipy.linalg.fractional_matrix_power(a, 1.3), [Z]),
    (lambda a: scipy.linalg.lu(a)[1:], [Z, TALL, WIDE]),
    (lambda a: scipy.linalg.polar(a), [Z, TALL]),
    (lambda a: scipy.linalg.qr(a, pivoting=True, mode="economic")[:2], [Z]),
    (lambda a: scipy.linalg.solve_triangular(a, np.ones(3), trans="C"), [Z]),
    (lambda a: scipy.linalg.lu_solve(scipy.linalg.lu_factor(a), np.ones(3), trans=2), [Z]),
    (lambda a: scipy.linalg.cho_solve(scipy.linalg.cho_factor(herm(a)), np.ones(3)), [H]),
    (lambda a: scipy.linalg.solve(herm(a), np.ones(3), assume_a="her"), [H]),
    (lambda a: scipy.linalg.solve(a + a.T, np.ones(3), assume_a="sym"), [Z]),
    (lambda a: scipy.linalg.eigh(herm(a), herm(a @ a) + np.eye(3), eigvals_only=True), [H]),
    (lambda a: scipy.linalg.solve_banded((1, 1), a, np.ones(3)), [Z]),
    (lambda a: scipy.linalg.solveh_banded(a[:2] / 9 + np.array([[0], [3]]), np.ones(3)), [Z]),
    (lambda a: scipy.linalg.solve_sylvester(a, a + 3 * np.eye(3), a), [Z]),
    (lambda a: scipy.linalg.solve_continuous_lyapunov(a, a), [Z]),
    (lambda a: scipy.linalg.solve_discrete_lyapunov(a, a), [Z]),
    (lambda a: (scipy.linalg.toeplitz(a[0]), scipy.linalg.circulant(a[1])), [Z]),
]
EACH = [(call, a) for call, arguments in CALLS for a in arguments]
VALUES_ALONE: list[tuple[Call, Any]] = [
    (lambda a: scipy.linalg.schur(a), Z),
    (lambda a: scipy.linalg.hessenberg(a, calc_q=True), Z),
    (lambda a: np.linalg.eig(a), BATCH),
    (lambda a: np.linalg.svd(a), WIDE),
    (lambda a: np.linalg.eigh(a), H),
    (lambda a: np.linalg.cholesky(a), np.zeros((0, 0), complex)),
    (lambda a: np.linalg.solve(a, a), np.zeros((2, 0, 0), complex)),
]


@pytest.mark.parametrize(("call", "a"), EACH + VALUES_ALONE)
def test_values(call: Call, a: Any) -> None:
    same(call, a)


OF_ONE: list[Call] = [np.linalg.inv, np.linalg.eigvals, np.linalg.svdvals, np.linalg.slogdet, scipy.linalg.expm, np.linalg.norm]


@pytest.mark.parametrize("call", OF_ONE)
def test_dtypes_of_single_precision(call: Call) -> None:
    same(call, Z.astype(np.complex64), rtol=1e-5)


def leaves(result: Any) -> list[Any]:
    return [leaf for r in result for leaf in leaves(r)] if isinstance(result, tuple | list) else [result]


def weighted(call: Call) -> Call:
    """A real number that both parts of every result count in."""

    def loss(a: Any) -> Any:
        total = 0.0
        for k, x in enumerate(leaves(call(a))):
            at = np.arange(np.size(x)).reshape(np.shape(x)) + k
            total = total + np.sum(np.cos(at) * np.real(x)) + np.sum(np.sin(1 + at) * np.imag(x))
        return total

    return loss


def check(loss: Call, gradient: Any, a: Any) -> None:
    """A gradient is dL/dx - i dL/dy."""
    d = np.random.default_rng(3).normal(size=a.shape)
    for factor in (1, 1j) if np.iscomplexobj(a) else (1,):
        with warnings.catch_warnings(action="ignore"):
            ends = [loss(a + s * 1e-6 * factor * d) for s in (1, -1)]
        expected = (ends[0] - ends[1]) / 2e-6
        assert np.sum(gradient * factor * d).real == pytest.approx(expected, rel=2e-6, abs=2e-6)


@pytest.mark.parametrize(("call", "a"), EACH)
def test_gradients(call: Call, a: Any) -> None:
    loss = weighted(call)
    check(loss, pb.grad(loss)(a), a)


@pytest.mark.parametrize(("call", "a"), [(call, arguments[-1]) for call, arguments in CALLS[::2]])
def test_second_gradients(call: Call, a: Any) -> None:
    loss, d = weighted(call), np.random.default_rng(4).normal(size=a.shape) * (1 + (1j if np.iscomplexobj(a) else 0))

    def along(a: Any) -> Any:
        return np.sum(np.real(pb.grad(loss)(a) * d))

    check(along, pb.grad(along)(a), a)


@pytest.mark.parametrize("call", [np.linalg.eig, np.linalg.eigvals])
def test_eigenvalues_of_real_matrices_are_complex(call: Call) -> None:
    result = leaves(pb.jit(lambda a: call(a))(np.diag([1.0, 2.0])))
    assert {x.dtype for x in result} == {np.dtype(complex)}
    np.testing.assert_array_equal(result[0], [1, 2])


ROOTS: list[Call] = [
    *since(scipy, "1.15.0", scipy.linalg.sqrtm),
    scipy.linalg.logm,
    lambda a: scipy.linalg.fractional_matrix_power(a, 0.5),
]


@pytest.mark.parametrize("call", ROOTS)
def test_functions_of_real_matrices_are_real_or_refused(call: Call) -> None:
    a = np.diag([1.0, -2.0])
    with pytest.raises(np.linalg.LinAlgError, match="pass the matrix as a complex one"):
        pb.jit(lambda a: call(a))(a)
    same(lambda a: call(a), a.astype(complex))


def test_equal_eigenvalues_of_general_matrices() -> None:
    total = pb.grad(lambda a: np.sum(np.linalg.eigvals(a) ** 2).real)
    np.testing.assert_allclose(total(2 * np.eye(3)), 4 * np.eye(3))
    assert np.isnan(pb.grad(lambda a: np.linalg.eig(a)[1][0, 1].real)(np.eye(2))).any()
    a = np.array([[4.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    k = int(np.argmax(np.linalg.eigvals(a)))  # its vector is (3, 1, 0) / sqrt 10
    separate = pb.grad(lambda a: np.abs(np.linalg.eig(a)[1][1, k]) ** 2)(a)
    np.testing.assert_allclose(separate, [[-0.06, -0.02, 0.0], [0.18, 0.06, 0.0], [0.0, 0.0, 0.0]], atol=1e-12)
