"""Attention over keys and values, and a transformer layer. Batches of sequences are (N, T, D)."""

import numpy as np
from layers.activations import gelu
from layers.dense import affine
from layers.losses import softmax
from layers.normalisation import layer_norm


def attention(q, k, v, axis=-1, mask=1.0):
    """Scaled dot-product attention: softmax(q k^T / sqrt D) v.

    q: (..., T, D), k: (..., S, D), v: (..., S, E). Result: (..., T, E).

    The softmax is over keys, or with ``axis=-2`` over queries. ``mask`` multiplies the probabilities, as dropout does.

    A. Vaswani et al., Attention Is All You Need, 2017.
    """
    scores = q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    return (softmax(scores, axis) * mask) @ v


def multi_attention(q, k, v, heads, mask=1.0):
    """Attention of several heads, each with its share of the features.

    q: (N, T, D), k, v: (N, S, D), D a multiple of heads; mask: (N, heads, T, S). Result: (N, T, D).
    """
    q, k, v = _split(q, heads), _split(k, heads), _split(v, heads)
    return _merge(attention(q, k, v, mask=mask))


def bert_layer(params, states, heads, activation=gelu, eps=1e-12, masks=(1.0, 1.0, 1.0)):
    """A layer of BERT: attention of each state to all, a layer of two affine maps, each added to its input and normalised.

    params: a dict of w_q, w_k, w_v, w_context (D, D), w_intermediate (D, I), w_out (I, D), their biases b_..., and gamma_1,
    beta_1, gamma_2, beta_2 (D,). states: (N, T, D). Result: (N, T, D).

    ``masks``, of dropout, multiply the probabilities of attention and the results of the maps context and out.

    J. Devlin et al., BERT, 2018.
    """
    p = params
    q, k, v = (affine(states, p[f"w_{name}"], p[f"b_{name}"]) for name in "qkv")
    context = affine(multi_attention(q, k, v, heads, masks[0]), p["w_context"], p["b_context"])
    middle = layer_norm(context * masks[1] + states, p["gamma_1"], p["beta_1"], eps)
    inner = activation(affine(middle, p["w_intermediate"], p["b_intermediate"]))
    out = affine(inner, p["w_out"], p["b_out"])
    return layer_norm(out * masks[2] + middle, p["gamma_2"], p["beta_2"], eps)


def _split(x, heads):
    n, t, width = x.shape
    return np.swapaxes(x.reshape(n, t, heads, width // heads), 1, 2)


def _merge(x):
    n, heads, t, d = x.shape
    return np.swapaxes(x, 1, 2).reshape(n, t, heads * d)
