"""Gradients of orders 1 and 2, compared with HIPS autograd's and JAX's, where they are installed (the bench extra)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Function = Callable[[Any, Any, Any], Any]


def logistic(np: Any, w: Any, x: Any) -> Any:
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - z * x[:, 0])


def softmax_row(np: Any, w: Any, x: Any) -> Any:
    z = x * w
    e = np.exp(z - np.max(z, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return np.sum(p * np.cos(x))


def layer_norm(np: Any, w: Any, x: Any) -> Any:
    c = x - np.mean(x, axis=1, keepdims=True)
    return np.sum(np.tanh(c / np.sqrt(np.mean(c * c, axis=1, keepdims=True) + 1e-5) * w))


def pairs(np: Any, w: Any, x: Any) -> Any:
    d = w[:, None] - w[None, :]
    return np.sum(1.0 / np.sqrt(d * d + 0.1)) + np.sum(x) * 0.0


def pieces(np: Any, w: Any, x: Any) -> Any:
    joined = np.concatenate([w[::-1], np.sin(w[1:]), w[:1] ** 3])
    return np.sum(joined[::2] * joined[1::2]) + np.sum(np.where(x > 0, np.log(x * x + 1.0), x) @ w)


def contracted(np: Any, w: Any, x: Any) -> Any:
    return np.einsum("ij,j,ik,k->", x, w, x, np.tanh(w))


def factored(np: Any, w: Any, x: Any) -> Any:
    a = x.T @ x + np.diag(w)
    lower = np.linalg.cholesky(a)
    return np.sum(np.sin(lower)) + np.sum(np.tanh(np.linalg.inv(a) @ w))


def solved(np: Any, w: Any, x: Any) -> Any:
    a = x.T @ x - np.outer(w, np.sin(w))
    sign, size = np.linalg.slogdet(a)
    return sign * size + np.sum(np.cos(np.linalg.solve(a, w))) + np.log(np.abs(np.linalg.det(a + np.diag(w))))


def decomposed(np: Any, w: Any, x: Any) -> Any:
    a = x.T @ x + np.diag(w * w)
    values, vectors = np.linalg.eigh(a)
    u, s, vt = np.linalg.svd(x * w, full_matrices=False)
    return np.sum(np.sin(values)) + np.sum(vectors**2 * w) + np.sum(np.cos(s)) + np.sum(u**2 @ s) + np.sum(np.sin(vt**2) * w)


def inverted(np: Any, w: Any, x: Any) -> Any:
    return np.sum(np.sin(np.linalg.pinv(x * w))) + np.sum(np.cos(np.linalg.pinv((x * w).T @ x[:, :2])))


PAGE = (logistic, softmax_row, layer_norm, pairs, pieces, contracted, factored, solved, decomposed, inverted)


@pytest.mark.parametrize("function", PAGE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("peer", ["autograd", "jax"])
def test_gradients_agree(peer: str, function: Function) -> None:
    theirs = pytest.importorskip(peer, reason=f"{peer} is not installed; the bench extra has it")
    if peer == "jax":
        theirs.config.update("jax_enable_x64", True)
    numpy_of_peer = importlib.import_module("jax.numpy" if peer == "jax" else "autograd.numpy")
    rng = np.random.default_rng(3)
    w, x, direction = rng.uniform(0.2, 1.0, 6), rng.standard_normal((5, 6)), rng.standard_normal(6)

    def ours_1(w: Any) -> Any:
        return function(np, w, x)

    def theirs_1(w: Any) -> Any:
        return function(numpy_of_peer, w, x)

    np.testing.assert_allclose(pb.grad(ours_1)(w), theirs.grad(theirs_1)(w), rtol=1e-10, atol=1e-12)
    ours_2 = pb.grad(lambda w: np.sum(pb.grad(ours_1)(w) * direction))
    theirs_2 = theirs.grad(lambda w: numpy_of_peer.sum(theirs.grad(theirs_1)(w) * direction))
    np.testing.assert_allclose(ours_2(w), theirs_2(w), rtol=1e-9, atol=1e-11)
