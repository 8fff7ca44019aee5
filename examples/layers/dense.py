"""Layers of matrix products: affine maps, factorisation machines, embeddings, scale and shift."""

import numpy as np


def affine(x, w, b):
    """x w + b.

    x: (N, D), w: (D, M), b: (M,). Result: (N, M).
    """
    return x @ w + b


def low_rank_affine(x, u, v, b):
    """x u v + b: an affine map whose matrix has rank R, in O(N R (D + M)) steps.

    x: (N, D), u: (D, R), v: (R, M), b: (M,). Result: (N, M).
    """
    return x @ u @ v + b


def fm(x, w0, w, v):
    """A factorisation machine: w0 + sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j, in O(N D K) steps.

    x: (N, D), w0: a number, w: (D, 1), v: (D, K), K the rank of the interactions. Result: (N, 1).

    S. Rendle, Factorization Machines, ICDM 2010, lemma 3.1.
    """
    pairs = (x @ v) ** 2 - (x * x) @ (v * v)
    return w0 + x @ w + 0.5 * np.sum(pairs, axis=1, keepdims=True)


def embedding(table, indices, padding=None):
    """Rows of a table.

    table: (V, D), indices: integers of any shape S, negative ones counted from the end. Result: S + (D,).

    ``padding``: an index that stands for no row; it gives zeros, and that row of the table is never moved by a gradient.
    """
    rows = table[indices]
    if padding is None:
        return rows
    none = indices % len(table) == padding % len(table)
    return np.where(none[..., None], 0, rows)


def scale_shift1d(x, gamma, beta):
    """x gamma + beta for each feature.

    x: (N, D), gamma, beta: (D,). Result: (N, D).
    """
    return x * gamma + beta


def scale_shift2d(x, gamma, beta):
    """x gamma + beta for each channel.

    x: (N, C, H, W), gamma, beta: (C,). Result: (N, C, H, W).
    """
    return x * gamma[:, None, None] + beta[:, None, None]
