"""Attention and the layer of BERT, compared with loops over batch and heads, the published formulas, and PyTorch's figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from layers import attention
from layers.activations import gelu

import pullback as pb
from tests.acceptance.checks import Program, check, draw, in_dtypes
from tests.acceptance.transformer_figures import ATTENTION, BERT, BERT_RESULTS

Array = Any
EPS, ROOT, CUBE = 1e-5, np.sqrt(2 / np.pi), 0.044715
MASK, *MASKS = [
    (np.random.default_rng(9).random(shape) < 0.7) / 0.7 for shape in ((2, 2, 4, 5), (2, 2, 4, 4), (2, 4, 6), (2, 4, 6))
]


def softmax_by_hand(scores: Array, axis: int = -1) -> Array:
    e = np.exp(scores)
    return e / e.sum(axis, keepdims=True)


def head_by_hand(q: Array, k: Array, v: Array, axis: int = -1, mask: Any = 1.0) -> Array:
    return softmax_by_hand(q @ k.T / np.sqrt(q.shape[1]), axis) * mask @ v


def head_formula(ct: Array, q: Array, k: Array, v: Array, axis: int = -1, mask: Any = 1.0) -> Any:
    root = np.sqrt(q.shape[1])
    p = softmax_by_hand(q @ k.T / root, axis)
    dp = ct @ v.T * mask
    ds = p * (dp - (dp * p).sum(axis, keepdims=True))
    return ds @ k / root, ds.T @ q / root, (p * mask).T @ ct


def key_is_value(q: Array, v: Array) -> Array:
    return attention.attention(q, v, v)


def key_is_value_formula(ct: Array, q: Array, v: Array) -> Any:
    dq, dk, dv = head_formula(ct, q, v, v)
    return dq, dk + dv


def over_batch(function: Callable[..., Any], arrays: Sequence[Array], heads: int) -> list[list[Any]]:
    """Return the result for each example and head; ``arrays`` are (N, T, heads d), followed by a mask (N, heads, T, S)."""
    rows = []
    for n in range(len(arrays[0])):
        parts = [np.split(a[n], heads, axis=1) for a in arrays]
        rows.append([function(n, h, *[part[h] for part in parts]) for h in range(heads)])
    return rows


def multi_by_hand(q: Array, k: Array, v: Array, heads: int, mask: Array) -> Array:
    mask = np.broadcast_to(mask, (len(q), heads, q.shape[1], k.shape[1]))
    rows = over_batch(lambda n, h, *part: head_by_hand(*part, mask=mask[n, h]), (q, k, v), heads)
    return np.stack([np.concatenate(row, axis=1) for row in rows])


def multi_formula(ct: Array, q: Array, k: Array, v: Array, heads: int, mask: Array) -> Any:
    mask = np.broadcast_to(mask, (len(q), heads, q.shape[1], k.shape[1]))
    rows = over_batch(lambda n, h, *part: head_formula(*part, mask=mask[n, h]), (ct, q, k, v), heads)
    return tuple(np.stack([np.concatenate([part[k] for part in row], axis=1) for row in rows]) for k in range(3))


def layer_norm_by_hand(x: Array, gamma: Array, beta: Array) -> Any:
    """The result, and what its gradient reads."""
    c = x - x.mean(-1, keepdims=True)
    i = (np.mean(c * c, -1, keepdims=True) + EPS) ** -0.5
    return c * i * gamma + beta, (c * i, i, gamma)


def layer_norm_formula(ct: Array, normal: Array, i: Array, gamma: Array) -> Any:
    h = ct * gamma
    dx = i * (h - h.mean(-1, keepdims=True) - normal * np.mean(h * normal, -1, keepdims=True))
    return dx, (ct * normal).sum((0, 1)), ct.sum((0, 1))


ACTIVATIONS = {
    "tanh": (np.tanh, np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "gelu": (
        gelu,
        lambda x: x * (1 + np.tanh(ROOT * (x + CUBE * x**3))) / 2,
        lambda x: (
            (1 + np.tanh(ROOT * (x + CUBE * x**3))) / 2
            + x / 2 * (1 - np.tanh(ROOT * (x + CUBE * x**3)) ** 2) * ROOT * (1 + 3 * CUBE * x**2)
        ),
    ),
}
NAMES = [f"{kind}_{name}" for name in ("q", "k", "v", "context", "intermediate", "out") for kind in "wb"]
NAMES += ["gamma_1", "beta_1", "gamma_2", "beta_2"]


def bert_arguments(n: int, t: int, d: int, inner: int) -> tuple[Array, ...]:
    shapes = {"w_intermediate": (d, inner), "b_intermediate": (inner,), "w_out": (inner, d)}
    return tuple(draw((n, t, d), *[shapes.get(name, (d, d) if name[0] == "w" else (d,)) for name in NAMES]))


def bert(states: Array, *weights: Array, heads: int, activation: str) -> Array:
    masks = [mask.astype(states.dtype) for mask in MASKS]
    return attention.bert_layer(dict(zip(NAMES, weights)), states, heads, ACTIVATIONS[activation][0], EPS, masks)


def bert_by_hand(states: Array, *weights: Array, heads: int, activation: str) -> Array:
    return bert_values(states, weights, heads, activation)["out"]


def bert_values(states: Array, weights: Any, heads: int, activation: str) -> dict[str, Any]:
    p = dict(zip(NAMES, weights))
    values = {name: states @ p[f"w_{name}"] + p[f"b_{name}"] for name in "qkv"}
    values["context"] = multi_by_hand(values["q"], values["k"], values["v"], heads, MASKS[0])
    first = (values["context"] @ p["w_context"] + p["b_context"]) * MASKS[1] + states
    values["middle"], values["norm_1"] = layer_norm_by_hand(first, p["gamma_1"], p["beta_1"])
    values["before"] = values["middle"] @ p["w_intermediate"] + p["b_intermediate"]
    values["after"] = ACTIVATIONS[activation][1](values["before"])
    second = (values["after"] @ p["w_out"] + p["b_out"]) * MASKS[2] + values["middle"]
    values["out"], values["norm_2"] = layer_norm_by_hand(second, p["gamma_2"], p["beta_2"])
    return values


def bert_formula(ct: Array, states: Array, *weights: Array, heads: int, activation: str) -> Any:
    """Three cotangents meet at the states, two at the result of the first layer norm."""
    p, values, result = dict(zip(NAMES, weights)), bert_values(states, weights, heads, activation), {}

    def affine(name: str, ct: Array, x: Array) -> Array:
        result[f"w_{name}"], result[f"b_{name}"] = np.einsum("nti,ntj->ij", x, ct), ct.sum((0, 1))
        return ct @ p[f"w_{name}"].T

    second, result["gamma_2"], result["beta_2"] = layer_norm_formula(ct, *values["norm_2"])
    after = affine("out", second * MASKS[2], values["after"])
    before = after * ACTIVATIONS[activation][2](values["before"])
    middle = second + affine("intermediate", before, values["middle"])
    first, result["gamma_1"], result["beta_1"] = layer_norm_formula(middle, *values["norm_1"])
    context = affine("context", first * MASKS[1], values["context"])
    parts = multi_formula(context, values["q"], values["k"], values["v"], heads, MASKS[0])
    into = [affine(name, part, states) for name, part in zip("qkv", parts)]
    return first + sum(into), *[result[name] for name in NAMES]


def masked(q: Array, k: Array, v: Array, heads: int, mask: Array) -> Array:
    return attention.multi_attention(q, k, v, heads, mask.astype(q.dtype))


PROGRAMS = {
    "attention": Program(
        f=attention.attention, args=tuple(draw((4, 3), (5, 3), (5, 2))), oracle=head_by_hand, formula=head_formula
    ),
    "over queries": Program(
        f=attention.attention,
        args=tuple(draw((4, 3), (5, 3), (5, 2))),
        oracle=head_by_hand,
        formula=head_formula,
        options={"axis": -2},
    ),
    "key is value": Program(
        f=key_is_value,
        args=tuple(draw((4, 3), (5, 3))),
        oracle=lambda q, v: head_by_hand(q, v, v),
        formula=key_is_value_formula,
    ),
    "heads": Program(
        f=attention.multi_attention,
        args=tuple(draw((2, 4, 6), (2, 5, 6), (2, 5, 6))),
        oracle=multi_by_hand,
        formula=multi_formula,
        options={"heads": 3, "mask": 1.0},
    ),
    "heads with dropout": Program(
        f=masked,
        args=tuple(draw((2, 4, 6), (2, 5, 6), (2, 5, 6))),
        oracle=multi_by_hand,
        formula=multi_formula,
        options={"heads": 2, "mask": MASK},
    ),
    **{
        f"bert with {activation}": Program(
            f=bert,
            args=bert_arguments(2, 4, 6, 5),
            oracle=bert_by_hand,
            formula=bert_formula,
            options={"heads": 2, "activation": activation},
            cancels=0.1,
        )
        for activation in ACTIVATIONS
    },
}


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_layer(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], dtype)


def test_heads_give_the_gradients_of_pytorch() -> None:
    figures = ATTENTION

    @pb.jit
    def gradients(ct: Array, q: Array, k: Array, v: Array) -> Any:
        return pb.vjp(lambda q, k, v: attention.multi_attention(q, k, v, 2), q, k, v)[1](ct)

    for name, result in zip("qkv", gradients(*[figures[key] for key in ("ct", "q", "k", "v")])):
        np.testing.assert_allclose(result, figures[f"d{name}"], rtol=0, atol=1e-6)


def test_bert_gives_the_figures_of_hugging_face() -> None:
    """The tolerances are what float32 loses in weights of this size."""
    params = {"gamma_1": np.ones(4), "beta_1": np.zeros(4), "gamma_2": np.ones(4), "beta_2": np.zeros(4)}
    params |= {name: BERT[name] for name in NAMES if name not in params}

    @pb.jit
    def program(ct: Array, params: Any, states: Array) -> Any:
        out, pull = pb.vjp(lambda params, states: attention.bert_layer(params, states, 2, np.tanh), params, states)
        return out, pull(ct)

    out, (result, states) = program(BERT["ct"], params, BERT["states"])
    for name, array in {"out": out, "states": states, **result}.items():
        *ends, total = BERT_RESULTS[name]
        np.testing.assert_allclose([array.flat[0], array.flat[-1]], ends, rtol=0, atol=2e-5)
        np.testing.assert_allclose(np.sum(array), total, rtol=0, atol=1e-4)
