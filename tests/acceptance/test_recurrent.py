"""The recurrent layers, compared with loops over steps, the formulas of backpropagation through time, and PyTorch's figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from layers import recurrent

import pullback as pb
from tests.acceptance.checks import Program, check, close, in_dtypes

Array = Any


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def joined(x: Array, h: Array) -> Array:
    return np.concatenate([x, h], axis=1)


def rnn_by_hand(x: Array, w: Array, b: Array, h0: Array, return_sequences: bool = True) -> Array:
    states = [h0]
    for t in range(x.shape[1]):
        states.append(np.tanh(joined(x[:, t], states[-1]) @ w + b))
    return np.stack(states[1:], 1) if return_sequences else states[-1]


def rnn_formula(ct: Array, x: Array, w: Array, b: Array, h0: Array, return_sequences: bool = True) -> Any:
    states = np.concatenate([h0[:, None], rnn_by_hand(x, w, b, h0)], 1)
    (_, steps, d), carry = x.shape, np.zeros_like(h0)
    dx, dw, db = np.zeros_like(x), np.zeros_like(w), np.zeros_like(b)
    for t in reversed(range(steps)):
        g = ct[:, t] if return_sequences else (ct if t == steps - 1 else 0)
        a = (1 - states[:, t + 1] ** 2) * (g + carry)
        dw += joined(x[:, t], states[:, t]).T @ a
        db += a.sum(0)
        both = a @ w.T
        dx[:, t], carry = both[:, :d], both[:, d:]
    return dx, dw, db, carry


def lstm_states(x: Array, w: Array, b: Array, h0: Array, c0: Array) -> Any:
    """The outputs and cells of all steps, the initial ones first, and the gates of each."""
    outs, cells, gates = [h0], [c0], []
    for t in range(x.shape[1]):
        z = np.split(joined(x[:, t], outs[-1]) @ w + b, 4, axis=1)
        i, f, o, g = *(sigmoid(part) for part in z[:3]), np.tanh(z[3])
        cells.append(f * cells[-1] + i * g)
        outs.append(o * np.tanh(cells[-1]))
        gates.append((i, f, o, g))
    return outs, cells, gates


def lstm_by_hand(x: Array, w: Array, b: Array, h0: Array, c0: Array, return_sequences: bool = True) -> Any:
    outs, cells, _ = lstm_states(x, w, b, h0, c0)
    return (np.stack(outs[1:], 1) if return_sequences else outs[-1]), cells[-1]


def lstm_formula(cts: Any, x: Array, w: Array, b: Array, h0: Array, c0: Array, return_sequences: bool = True) -> Any:
    ct, carry_c = cts
    outs, cells, gates = lstm_states(x, w, b, h0, c0)
    (_, steps, d), carry_h = x.shape, np.zeros_like(h0)
    dx, dw, db = np.zeros_like(x), np.zeros_like(w), np.zeros_like(b)
    for t in reversed(range(steps)):
        i, f, o, g = gates[t]
        tanh_c = np.tanh(cells[t + 1])
        dh = (ct[:, t] if return_sequences else (ct if t == steps - 1 else 0)) + carry_h
        dc = carry_c + o * (1 - tanh_c**2) * dh
        parts = [i * (1 - i) * g * dc, f * (1 - f) * cells[t] * dc, o * (1 - o) * tanh_c * dh, (1 - g**2) * i * dc]
        dz = np.concatenate(parts, axis=1)
        carry_c = f * dc
        dw += joined(x[:, t], outs[t]).T @ dz
        db += dz.sum(0)
        both = dz @ w.T
        dx[:, t], carry_h = both[:, :d], both[:, d:]
    return dx, dw, db, carry_h, carry_c


def flat_bilstm(x: Array, *cells: Array, return_sequences: bool = True) -> Any:
    return recurrent.bilstm(x, cells[:4], cells[4:], return_sequences)


def bilstm_by_hand(x: Array, *cells: Array, return_sequences: bool = True) -> Any:
    out, c = lstm_by_hand(x, *cells[:4], return_sequences=return_sequences)
    back, back_c = lstm_by_hand(x[:, ::-1], *cells[4:], return_sequences=return_sequences)
    return np.concatenate([out, back[:, ::-1] if return_sequences else back], -1), (c, back_c)


def bilstm_formula(cts: Any, x: Array, *cells: Array, return_sequences: bool = True) -> Any:
    ct, (c, back_c) = cts
    m = ct.shape[-1] // 2
    reverse_ct = ct[:, ::-1, m:] if return_sequences else ct[..., m:]
    dx, *first = lstm_formula((ct[..., :m], c), x, *cells[:4], return_sequences=return_sequences)
    back_dx, *second = lstm_formula((reverse_ct, back_c), x[:, ::-1], *cells[4:], return_sequences=return_sequences)
    return dx + back_dx[:, ::-1], *first, *second


def numbers(*shapes: tuple[int, ...], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) / np.sqrt(len(shape) and shape[0]) for shape in shapes]


N, T, D, M = 3, 5, 2, 4
CELL = ((D + M, 4 * M), (4 * M,), (N, M), (N, M))


PROGRAMS = {
    "rnn": Program(
        f=recurrent.rnn,
        args=tuple(numbers((N, T, D), (D + M, M), (M,), (N, M))),
        oracle=rnn_by_hand,
        formula=rnn_formula,
    ),
    "lstm": Program(f=recurrent.lstm, args=tuple(numbers((N, T, D), *CELL)), oracle=lstm_by_hand, formula=lstm_formula),
    "bilstm": Program(f=flat_bilstm, args=tuple(numbers((N, T, D), *CELL, *CELL)), oracle=bilstm_by_hand, formula=bilstm_formula),
}


@pytest.mark.parametrize("return_sequences", [True, False])
@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_layer(name: str, return_sequences: bool, dtype: Any) -> None:
    check(replace(PROGRAMS[name], options={"return_sequences": return_sequences}), dtype)


# Of PyTorch in float64, as apache/systemds keeps them: the first two figures, the last two and the sum of all, in the order of
# the arrays below. (n, t, d, m), the cotangents, and per array (figures, sum).
FORWARD = [
    ((2, 5, 2, 2), (-0.0008102472922156037, 0.004475520796032085, 0.02159823966183599, 0.028510847479637776), 0.6408820520180903),
    ((10, 5, 2, 6), (0.014710, 0.014903, -0.031634, -0.029460), -24.875022),
]
BACKWARD = [
    (
        (1, 5, 6, 4),
        "ones",
        ((0.070529, 0.078134, 4.630351, 5.161702), 146.237072),
        ((15.656030, 19.283222, 3.431978, 3.932355), 170.698863),
        ((-6.184786, -2.517676, 5.353186, 7.748765), 52.15646),
    ),
    (
        (4, 5, 6, 4),
        "cells",
        ((12.936883602135635, 14.996597145849965, 154.9402710645735, 172.04088337255266), 7439.832639835195),
        ((20.36934151390274, 25.085959116469013, 32.1260472498092, 36.885915401679945), 3523.9696269933784),
        ((-12.162430917772921, -5.540870051836107, 31.692850404743975, 47.4987955855196), 830.6017264981392),
    ),
    (
        (5, 5, 6, 4),
        "counted",
        ((158.126965, 168.813970, 358.753112, 371.897191), 44143.185802),
        ((375.082775, 461.954106, 170.679572, 183.774896), 22150.301739),
        ((-146.566052, -59.476765, 157.117270, 237.371894), 4435.763561),
    ),
]


def reference_arguments(n: int, t: int, d: int, m: int) -> Any:
    x = 0.01 * np.arange(n * t * d).reshape(n, t, d)
    w = 0.01 * (np.arange((d + m) * 4 * m) - (d + m) * m).reshape(d + m, 4 * m)
    b, h0, c0 = np.full(4 * m, 0.01), np.full((2 * n, m), 0.01), np.zeros((2 * n, m))
    if n == 2:
        b = 0.01 * (np.arange(4 * m) - 2 * m)
        h0 = 0.01 * (np.arange(2 * n * m) + 2 * m).reshape(2 * n, m)
        c0 = 0.01 * (np.arange(2 * n * m) - 2 * m).reshape(2 * n, m)
    return x, (w, b, h0[:n], c0[:n]), (w, b, h0[n:], c0[n:])


def same_figures(array: Array, figures: tuple[float, ...], total: float) -> None:
    flat = array.ravel()
    np.testing.assert_allclose([*flat[:2], *flat[-2:]], figures, rtol=0, atol=6e-7)
    np.testing.assert_allclose(flat.sum(), total, rtol=0, atol=6e-7 * flat.size)


@pytest.mark.parametrize("sizes, figures, total", FORWARD)
def test_bilstm_gives_the_values_of_pytorch(sizes: Any, figures: Any, total: float) -> None:
    out, _ = pb.jit(recurrent.bilstm)(*reference_arguments(*sizes))
    same_figures(out, figures, total)


@pytest.mark.parametrize("sizes, which, of_weights, of_states, of_inputs", BACKWARD)
def test_bilstm_gives_the_gradients_of_pytorch(sizes: Any, which: str, of_weights: Any, of_states: Any, of_inputs: Any) -> None:
    n, t, _, m = sizes
    cells = np.arange(2.0 * n * m).reshape(2, n, m) if which == "cells" else np.zeros((2, n, m))
    counted = np.arange(n * t * 2.0 * m).reshape(n, t, 2 * m)
    outputs = {"ones": np.ones((n, t, 2 * m)), "cells": np.zeros((n, t, 2 * m)), "counted": counted}[which]

    @pb.jit
    def gradients(arguments: Any, ct: Any) -> Any:
        return pb.vjp(recurrent.bilstm, *arguments)[1](ct)

    dx, forward, backward = gradients(reference_arguments(*sizes), (outputs, tuple(cells)))
    pairs = [(np.atleast_2d(a), np.atleast_2d(b)) for a, b in zip(forward, backward)]
    dw, db, dh, dc = (np.concatenate(pair) for pair in pairs)
    same_figures(np.concatenate([dw, db]), *of_weights)
    same_figures(np.concatenate([dh, dc]), *of_states)
    same_figures(dx, *of_inputs)


def unrolled(step: Callable[..., Any], xs: Array, carry: Any) -> tuple[Array, Any]:
    """A loop of Python over the steps."""
    outputs = []
    for t in range(xs.shape[1]):
        carry = step(xs[:, t], carry)
        outputs.append(carry[0])
    return np.stack(outputs, 1), carry


def test_a_scan_is_the_loop_unrolled() -> None:
    x, w, b, h0, c0 = numbers((N, T, D), *CELL)

    def unrolled_lstm(x: Array, w: Array, b: Array, h0: Array, c0: Array) -> Any:
        out, (_, c) = unrolled(lambda z, carry: recurrent.lstm_step(w[D:], z, *carry), x @ w[:D] + b, (h0, c0))
        return out, c

    def of(function: Any) -> Any:
        def loss(*arguments: Array) -> Any:
            out, c = function(*arguments)
            return np.sum(out**2) + np.sum(np.sin(c))

        return pb.value_and_grad(loss, argnums=(0, 1, 2, 3, 4))(x, w, b, h0, c0)

    close(of(recurrent.lstm), of(unrolled_lstm), 1e-12)
