"""Pairs under Numba: the n-body energy with nothing of size n x n stored, and the mixture's objective by point and component."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

Array = Any
Call = Callable[[], Any]
LOG_2_PI = 1.8378770664093453


@njit(parallel=True, fastmath=True, cache=True)
def nbody_fwd(x: Array, y: Array, z: Array, m: Array, part: Array) -> Any:
    real = x.dtype.type
    one, softening = real(1), real(1e-2)
    for i in prange(len(x)):
        total = real(0)
        for j in range(len(x)):
            a, b, c = x[i] - x[j], y[i] - y[j], z[i] - z[j]
            total += m[j] * (one / math.sqrt(a * a + b * b + c * c + softening))
        part[i] = total * m[i]
    return part.sum()


@njit(parallel=True, fastmath=True, cache=True)
def nbody_grad(x: Array, y: Array, z: Array, m: Array, part: Array, gradient: Array) -> Any:
    real = x.dtype.type
    one, softening = real(1), real(1e-2)
    for i in prange(len(x)):
        total = da = db = dc = real(0)
        for j in range(len(x)):
            a, b, c = x[i] - x[j], y[i] - y[j], z[i] - z[j]
            inverse = one / math.sqrt(a * a + b * b + c * c + softening)
            pull = m[j] * inverse
            total += pull
            pull *= inverse * inverse
            da += pull * a
            db += pull * b
            dc += pull * c
        part[i] = total * m[i]
        gradient[i, 0] = da * m[i]
        gradient[i, 1] = db * m[i]
        gradient[i, 2] = dc * m[i]
    return part.sum()


def make_nbody_fwd(x: Array, m: Array) -> Call:
    part, half = np.empty_like(m), m.dtype.type(-0.5)

    def call() -> Any:
        return half * nbody_fwd(*np.ascontiguousarray(x.T), m, part)

    return call


def make_nbody_grad(x: Array, m: Array) -> Call:
    part, gradient, half = np.empty_like(m), np.empty_like(x), m.dtype.type(-0.5)

    def call() -> Any:
        return half * nbody_grad(*np.ascontiguousarray(x.T), m, part, gradient), (gradient,)

    return call


@njit(fastmath=True, cache=True)
def _responsibilities(alphas: Array, means: Array, q: Array, sums: Array, point: Array, inner: Array, scaled: Array) -> float:
    """Fills inner (k,) with the shares of the components in one point and scaled (k, d); gives the log of their sum."""
    k, d = means.shape
    top = -np.inf
    for c in range(k):
        square = 0.0
        for i in range(d):
            z = 0.0
            for j in range(i + 1):
                z += q[c, i, j] * (point[j] - means[c, j])
            scaled[c, i] = z
            square += z * z
        inner[c] = alphas[c] + sums[c] - 0.5 * square
        top = max(top, inner[c])
    total = 0.0
    for c in range(k):
        inner[c] = math.exp(inner[c] - top)
        total += inner[c]
    for c in range(k):
        inner[c] /= total
    return math.log(total) + top


@njit(parallel=True, fastmath=True, cache=True)
def gmm_loop(alphas: Array, means: Array, q: Array, sums: Array, x: Array, part: Array, shares: Array, d_means: Array, d_q: Array,
             gradient: bool) -> None:  # fmt: skip
    (n, d), k = x.shape, len(means)
    chunks = len(part)
    for chunk in prange(chunks):
        inner, scaled = np.empty(k), np.empty((k, d))
        shares[chunk] = 0.0
        d_means[chunk] = 0.0
        d_q[chunk] = 0.0
        total = 0.0
        for p in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            total += _responsibilities(alphas, means, q, sums, x[p], inner, scaled)
            if gradient:
                for c in range(k):
                    shares[chunk, c] += inner[c]
                    for i in range(d):
                        z = scaled[c, i] * inner[c]
                        for j in range(i + 1):
                            d_q[chunk, c, i, j] -= z * (x[p, j] - means[c, j])
                            d_means[chunk, c, j] += z * q[c, i, j]
        part[chunk] = total


def make_gmm(gradient: bool) -> Callable[..., Call]:
    def make(alphas: Array, means: Array, factors: Array, x: Array, position: Array, diagonal: Array) -> Call:
        (n, d), k, chunks = x.shape, len(means), 2
        part, shares = np.empty(chunks), np.empty((chunks, k))
        all_means, all_q = np.empty((chunks, k, d)), np.empty((chunks, k, d, d))
        zero, below = np.zeros((k, 1)), np.tril_indices(d, -1)

        def call() -> Any:
            logs = factors[:, :d]
            exps = np.exp(logs)
            q = np.concatenate([factors[:, d:], zero], axis=1)[:, position] + exps[:, :, None] * diagonal
            gmm_loop(alphas, means, q, logs.sum(axis=1), x, part, shares, all_means, all_q, gradient)
            top = alphas.max()
            e = np.exp(alphas - top)
            value = part.sum() - n * (np.log(e.sum()) + top) - 0.5 * n * d * LOG_2_PI + 0.5 * np.sum(q * q)
            if not gradient:
                return value
            d_q, total = q + all_q.sum(axis=0), shares.sum(axis=0)
            d_logs = total[:, None] + np.einsum("kii->ki", d_q) * exps
            return value, (total - n * e / e.sum(), all_means.sum(axis=0), np.concatenate([d_logs, d_q[:, *below]], axis=1))

        return call

    return make


LOOPS: dict[tuple[str, str], Callable[..., Call]] = {
    ("nbody", "fwd"): make_nbody_fwd,
    ("nbody", "grad"): make_nbody_grad,
    ("gmm", "fwd"): make_gmm(False),
    ("gmm", "grad"): make_gmm(True),
}
