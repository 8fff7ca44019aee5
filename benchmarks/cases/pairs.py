"""Broadcasting pairs that are reduced at once: a softened n-body energy, and the objective of a Gaussian mixture (ADBench's)."""

from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case, Target, Work

Array = Any
SOFTENING = 1e-2
LOG_2_PI = 1.8378770664093453


def nbody(x: Array, m: Array) -> Array:
    """The energy of masses m at x (n, 3)."""
    d = x[:, None, :] - x[None, :, :]
    distance = np.sqrt(np.sum(d * d, axis=2) + SOFTENING)
    return -0.5 * np.sum(m[:, None] * m[None, :] / distance)


def nbody_by_hand(x: Array, m: Array) -> Any:
    squares = np.full((len(x), len(x)), SOFTENING, x.dtype)
    for axis in range(3):
        d = x[:, None, axis] - x[None, :, axis]
        d *= d
        squares += d
    inverse = 1.0 / np.sqrt(squares)
    pull = inverse / squares
    pull *= m
    gradient = (x * np.sum(pull, axis=1, keepdims=True) - pull @ x) * m[:, None]
    return -0.5 * (m @ (inverse @ m)), (gradient,)


def bodies(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(7)
    return rng.normal(size=(n, 3)).astype(dtype), rng.uniform(0.5, 1.5, n).astype(dtype)


def logsumexp(a: Array) -> Array:
    top = np.max(a, axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(a - top), axis=-1)) + top[..., 0]


def gmm(alphas: Array, means: Array, factors: Array, x: Array, position: Array, diagonal: Array) -> Array:
    """The log likelihood of points x (n, d) under k Gaussians of inverse covariance Q'Q, with a Wishart prior.

    factors (k, d (d + 1) / 2) holds the logarithms of Q's diagonal, then what is below it and a zero follows, by rows;
    place (d, d) says where an element stands, diagonal is 1 on the diagonal.
    """
    n, d = x.shape
    logs = factors[:, :d]
    below = np.concatenate([factors[:, d:], np.zeros_like(factors[:, :1])], axis=1)[:, position]
    q = below + np.exp(logs)[:, :, None] * diagonal
    centred = x[:, None, :] - means
    scaled = np.einsum("kij,nkj->nki", q, centred)
    inner = alphas + np.sum(logs, axis=1) - 0.5 * np.sum(scaled * scaled, axis=2)
    likelihood = np.sum(logsumexp(inner)) - n * logsumexp(alphas) - 0.5 * n * d * LOG_2_PI
    return likelihood + 0.5 * np.sum(q * q)


def gmm_by_hand(alphas: Array, means: Array, factors: Array, x: Array, position: Array, diagonal: Array) -> Any:
    (n, d), k = x.shape, len(means)
    logs, zero = factors[:, :d], np.zeros((k, 1), factors.dtype)
    exps = np.exp(logs)
    q = np.concatenate([factors[:, d:], zero], axis=1)[:, position] + exps[:, :, None] * diagonal
    centred = (x[:, None, :] - means).transpose(1, 0, 2)
    scaled = centred @ q.transpose(0, 2, 1)
    inner = alphas + np.sum(logs, axis=1) - 0.5 * np.sum(scaled * scaled, axis=2).T
    share = np.exp(inner - logsumexp(inner)[:, None])
    value = np.sum(logsumexp(inner)) - n * logsumexp(alphas) - 0.5 * n * d * LOG_2_PI
    weighted = scaled * share.T[:, :, None]
    d_q = q - weighted.transpose(0, 2, 1) @ centred
    total = np.sum(share, axis=0)
    d_logs = total[:, None] + np.einsum("kii->ki", d_q) * exps
    d_below = d_q[:, *np.tril_indices(d, -1)]
    d_means = np.einsum("kij,ki->kj", q, np.sum(weighted, axis=1))
    return value + 0.5 * np.sum(q * q), (
        total - n * np.exp(alphas - logsumexp(alphas)),
        d_means,
        np.concatenate([d_logs, d_below], axis=1),
    )


def gmm_value(*arguments: Array) -> Any:
    return gmm_by_hand(*arguments)[0]


def mixture(dtype: Any, n: int, d: int, k: int) -> Arguments:
    rng = np.random.default_rng(8)
    below = d * (d - 1) // 2
    position = np.full((d, d), below)
    position[np.tril_indices(d, -1)] = np.arange(below)
    parts = rng.normal(size=k), rng.normal(size=(k, d)), 0.3 * rng.normal(size=(k, d + below)), rng.normal(size=(n, d))
    return *[part.astype(dtype) for part in parts], position, np.eye(d, dtype=dtype)


def nbody_case(kind: str, flops: int, **rest: Any) -> Case:
    sizes, small = {"n": 2000}, {"n": 19}
    work = {"work": lambda size, n: Work(flops=flops * n * n)}
    return Case(workload="nbody", name=f"{kind}-2000", function=nbody, make=bodies, sizes=sizes, small=small, **work, **rest)


def gmm_case(kind: str, d: int, k: int, factor: int, **rest: Any) -> Case:
    sizes, small = {"n": 1000, "d": d, "k": k}, {"n": 7, "d": 4, "k": 3}

    def work(size: int, n: int, d: int, k: int) -> Work:
        return Work(flops=factor * n * k * (d * d + 4 * d))

    name = f"{kind}-d{d}k{k}n1000"
    shared = {"function": gmm, "make": mixture, "dtypes": ("float64",)}
    return Case(workload="gmm", name=name, sizes=sizes, small=small, work=work, **shared, **rest)


CASES = [
    nbody_case("fwd", 15, by_hand=lambda x, m: nbody_by_hand(x, m)[0]),
    nbody_case(
        "grad",
        25,
        by_hand=nbody_by_hand,
        wanted=(0,),
        targets={"float64": Target(ad=0.04, hand=0.9, limit=1.9), "float32": Target(ad=0.02, hand=1.0, limit=1.9)},
    ),
    *[gmm_case("fwd", d, k, 1, by_hand=gmm_value) for d, k in ((10, 25), (20, 100))],
    *[
        gmm_case("grad", d, k, 3, by_hand=gmm_by_hand, wanted=(0, 1, 2), targets={"float64": Target(ad=aim, hand=aim)})
        for d, k, aim in ((10, 25, 0.4), (20, 100, 0.2))
    ],
]
