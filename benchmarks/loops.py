"""Workloads of loops: an LSTM and a scalar recurrence, as `pb.scan`, by hand in NumPy, and (numba_loops) as Numba's loops."""

import functools
from typing import Any

import numpy as np
from workload import Workload

import pullback as pb

Array = Any
Arguments = tuple[Any, ...]


def lstm(w: Array, b: Array, x: Array) -> Array:
    """The mean square of the outputs of 32 units; x (steps, 1, 32)."""

    def step(carry: Any, x_t: Array) -> Any:
        h, c = carry
        z = np.concatenate([x_t, h], axis=1) @ w + b
        i, f, o = 1 / (1 + np.exp(-z[:, :32])), 1 / (1 + np.exp(-z[:, 32:64])), 1 / (1 + np.exp(-z[:, 64:96]))
        c = f * c + i * np.tanh(z[:, 96:])
        h = o * np.tanh(c)
        return (h, c), h

    zero = np.zeros_like(x[0])
    _, h = pb.scan(step, (zero, zero), x)
    return np.mean(h * h)


def lstm_by_hand(w: Array, b: Array, x: Array) -> Any:
    steps, m = len(x), 32
    hs, cs = np.zeros((2, steps + 1, 1, m), x.dtype)
    gates = np.empty((steps, 1, 4 * m), x.dtype)
    for t in range(steps):
        z = np.concatenate([x[t], hs[t]], axis=1) @ w + b
        gates[t, :, : 3 * m] = 1 / (1 + np.exp(-z[:, : 3 * m]))
        gates[t, :, 3 * m :] = np.tanh(z[:, 3 * m :])
        i, f, o, g = np.split(gates[t], 4, axis=1)
        cs[t + 1] = f * cs[t] + i * g
        hs[t + 1] = o * np.tanh(cs[t + 1])
    outputs = hs[1:]
    dw, db = np.zeros_like(w), np.zeros_like(b)
    dh = dc = np.zeros((1, m), x.dtype)
    for t in reversed(range(steps)):
        i, f, o, g = np.split(gates[t], 4, axis=1)
        tanh_c = np.tanh(cs[t + 1])
        dh = dh + outputs[t] * x.dtype.type(2 / outputs.size)
        dc = dc + o * (1 - tanh_c * tanh_c) * dh
        parts = [i * (1 - i) * g * dc, f * (1 - f) * cs[t] * dc, o * (1 - o) * tanh_c * dh, (1 - g * g) * i * dc]
        dz = np.concatenate(parts, axis=1)
        dc = f * dc
        dw += np.concatenate([x[t], hs[t]], axis=1).T @ dz
        db += dz[0]
        dh = (dz @ w.T)[:, 32:]
    return np.mean(outputs * outputs), (dw, db)


def lstm_arguments(dtype: Any, steps: int = 1000) -> Arguments:
    rng = np.random.default_rng(0)
    shapes = ((64, 128), 0.2), ((128,), 0.1), ((steps, 1, 32), 1.0)
    return tuple((scale * rng.normal(size=shape)).astype(dtype) for shape, scale in shapes)


def recurrence(a: Array, u: Array) -> Array:
    """A cubic oscillator driven by u; the last position."""

    def step(h: Array, u_t: Array) -> Any:
        return h + a * (u_t - h * h * h), None

    h, _ = pb.scan(step, 0.0 * a, u)
    return h


def recurrence_by_hand(a: Array, u: Array) -> Array:
    h = 0.0
    for u_t in u.tolist():
        h = h + a * (u_t - h * h * h)
    return np.float64(h)


def recurrence_grad_by_hand(a: Array, u: Array) -> Any:
    values, h = [], 0.0
    inputs = u.tolist()
    for u_t in inputs:
        values.append(h)
        h = h + a * (u_t - h * h * h)
    du, ct, da = np.empty(len(u)), 1.0, 0.0
    for t in reversed(range(len(u))):
        before = values[t]
        da += ct * (inputs[t] - before * before * before)
        du[t] = ct * a
        ct = ct * (1 - 3 * a * before * before)
    return np.float64(h), (np.float64(da), du)


def recurrence_arguments() -> Arguments:
    return np.float64(0.01), np.sin(np.arange(100_000) / 50)


def workloads() -> list[Workload]:
    return [
        *[
            Workload(
                name=f"lstm_{name}",
                title=f"LSTM, 1000 steps, 32 units, {name}",
                function=lstm,
                by_hand=lstm_by_hand,
                arguments=functools.partial(lstm_arguments, dtype),
                wanted=(0, 1),
                tolerance=tolerance,
            )
            for name, dtype, tolerance in (("f64", np.float64, 1e-9), ("f32", np.float32, 1e-3))
        ],
        Workload(
            name="recurrence",
            title="1e5 steps of a scalar recurrence",
            function=recurrence,
            by_hand=recurrence_by_hand,
            arguments=recurrence_arguments,
        ),
        Workload(
            name="recurrence_grad",
            title="the same with its gradient",
            function=recurrence,
            by_hand=recurrence_grad_by_hand,
            arguments=recurrence_arguments,
            wanted=(0, 1),
        ),
    ]
