"""Layers of matrix products: ``examples/layers/dense.py``."""

from typing import Any

import numpy as np
import pytest
from layers.dense import affine, embedding, fm, low_rank_affine, scale_shift1d, scale_shift2d

import pullback as pb
from tests.acceptance.checks import Program, check, draw, gradients, in_dtypes

Array = Any


def loop_affine(x: Array, w: Array, b: Array) -> Array:
    return np.array([[b[m] + sum(x[n, d] * w[d, m] for d in range(len(w))) for m in range(len(b))] for n in range(len(x))])


def loop_fm(x: Array, w0: Array, w: Array, v: Array) -> Array:
    out = np.zeros((len(x), 1))
    for n, row in enumerate(x):
        out[n] = w0 + sum(row[i] * w[i, 0] for i in range(len(row)))
        for i in range(len(row)):
            for j in range(i + 1, len(row)):
                out[n] += sum(v[i, k] * v[j, k] for k in range(v.shape[1])) * row[i] * row[j]
    return out


def fm_gradients(G: Array, x: Array, w0: Array, w: Array, v: Array) -> Any:
    s = G * (x @ v)
    return (
        G @ w.T + s @ v.T - G * x * np.sum(v * v, axis=1),
        np.sum(G, axis=0) if np.ndim(w0) else np.sum(G),
        x.T @ G,
        x.T @ s - v * ((x * x).T @ G),
    )


def loop_embedding(table: Array, indices: Array, padding: Any = None) -> Array:
    out = np.zeros((*indices.shape, table.shape[1]))
    for position in np.ndindex(*indices.shape):
        row = indices[position] % len(table)
        if padding is None or row != padding % len(table):
            out[position] = table[row]
    return out


def embedding_gradient(G: Array, table: Array, indices: Array, padding: Any = None) -> Any:
    out = np.zeros_like(table)
    for position in np.ndindex(*indices.shape):
        out[indices[position]] += G[position]
    if padding is not None:
        out[padding] = 0
    return (out,)


def loop_scale_shift(x: Array, gamma: Array, beta: Array) -> Array:
    out = np.empty(x.shape)
    for position in np.ndindex(*x.shape):
        out[position] = x[position] * gamma[position[1]] + beta[position[1]]
    return out


def scale_shift_gradients(G: Array, x: Array, gamma: Array, beta: Array) -> Any:
    axes = tuple(k for k in range(x.ndim) if k != 1)
    return G * np.expand_dims(gamma, tuple(range(1, x.ndim - 1))), np.sum(G * x, axis=axes), np.sum(G, axis=axes)


INDICES = np.array([[2, 0, -1], [2, 2, 4], [-4, 3, 0]])

PROGRAMS = {
    "affine": Program(
        f=affine,
        args=(*draw((5, 3), (3, 4), (4,)),),
        oracle=loop_affine,
        formula=lambda G, x, w, b: (G @ w.T, x.T @ G, G.sum(axis=0)),
    ),
    "affine of one row": Program(
        f=affine,
        args=(*draw((1, 3), (3, 1), (1,)),),
        oracle=loop_affine,
        formula=lambda G, x, w, b: (G @ w.T, x.T @ G, G.sum(axis=0)),
    ),
    "low_rank_affine": Program(
        f=low_rank_affine,
        args=(*draw((6, 5), (5, 2), (2, 4), (4,)),),
        oracle=lambda x, u, v, b: loop_affine(loop_affine(x, u, np.zeros(2)), v, b),
        formula=lambda G, x, u, v, b: (G @ v.T @ u.T, x.T @ G @ v.T, (x @ u).T @ G, G.sum(axis=0)),
    ),
    **{
        f"fm of rank {rank}": Program(
            f=fm, args=(*draw((4, 5), (1,), (5, 1), (5, rank), seed=rank),), oracle=loop_fm, formula=fm_gradients
        )
        for rank in (1, 2, 3, 7)
    },
    "embedding": Program(f=embedding, args=(*draw((6, 4)), INDICES), oracle=loop_embedding, formula=embedding_gradient),
    **{
        f"embedding padded by {padding}": Program(
            f=embedding,
            args=(*draw((6, 4)), INDICES),
            oracle=loop_embedding,
            formula=embedding_gradient,
            options={"padding": padding},
        )
        for padding in (2, -6)
    },
    "scale_shift1d": Program(
        f=scale_shift1d, args=(*draw((5, 3), (3,), (3,)),), oracle=loop_scale_shift, formula=scale_shift_gradients
    ),
    "scale_shift2d": Program(
        f=scale_shift2d, args=(*draw((2, 3, 4, 5), (3,), (3,)),), oracle=loop_scale_shift, formula=scale_shift_gradients
    ),
}


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_program(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], dtype)


def test_embedding_as_published() -> None:
    """Figures of Apache SystemDS's test of its embedding layer, whose indices count from 1."""
    G = np.arange(1.0, 31.0).reshape(5, 6)
    indices = np.array([1, 1, 1, 4, 6]) - 1
    y, (result,) = gradients(lambda table, indices: embedding(table, indices, padding=3), G, *draw((10, 6)), indices)
    expected = np.zeros((10, 6))
    expected[0] = [21, 24, 27, 30, 33, 36]
    expected[5] = [25, 26, 27, 28, 29, 30]
    np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(y[3], np.zeros(6))


def test_the_first_layers_input_gets_no_gradient_unasked() -> None:
    """Of two layers, a gradient by the weights takes two products fewer than one by the input, too."""

    def loss(params: Any, x: Array) -> Any:
        w1, b1, w2, b2 = params
        return np.sum(affine(np.tanh(affine(x, w1, b1)), w2, b2) ** 2)

    x, *params = draw((8, 7), (7, 6), (6,), (6, 5), (5,))
    counts = []
    for argnums in (0, (0, 1)):
        text = pb.grad(loss, argnums=argnums).stages(params, x)["simplify"]
        counts.append(text.count("= contract "))
    assert counts == [5, 6]
