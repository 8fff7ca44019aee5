"""Loops over time: an LSTM over a sequence, and the heat equation by explicit steps."""

from typing import Any

import numpy as np

import pullback as pb
from benchmarks.case import Arguments, Case, Target, Work

Array = Any
STEPS = 100


def lstm(w: Array, b: Array, x: Array) -> Array:
    """The mean square of the outputs; x (steps, batch, inputs), w (inputs + hidden, 4 hidden)."""
    hidden = w.shape[1] // 4

    def step(carry: Any, x_t: Array) -> Any:
        h, c = carry
        z = np.concatenate([x_t, h], axis=1) @ w + b
        gates = 1.0 / (1.0 + np.exp(-z[:, : 3 * hidden]))
        i, f, o = gates[:, :hidden], gates[:, hidden : 2 * hidden], gates[:, 2 * hidden :]
        c = f * c + i * np.tanh(z[:, 3 * hidden :])
        h = o * np.tanh(c)
        return (h, c), h

    zero = np.zeros((x.shape[1], hidden), x.dtype)
    _, h = pb.scan(step, (zero, zero), x)
    return np.mean(h * h)


def lstm_forward_by_hand(w: Array, b: Array, x: Array) -> Any:
    steps, batch, _ = x.shape
    m = w.shape[1] // 4
    hs, cs = np.zeros((2, steps + 1, batch, m), x.dtype)
    gates = np.empty((steps, batch, 4 * m), x.dtype)
    for t in range(steps):
        z = np.concatenate([x[t], hs[t]], axis=1) @ w + b
        gates[t, :, : 3 * m] = 1.0 / (1.0 + np.exp(-z[:, : 3 * m]))
        gates[t, :, 3 * m :] = np.tanh(z[:, 3 * m :])
        i, f, o, g = np.split(gates[t], 4, axis=1)
        cs[t + 1] = f * cs[t] + i * g
        hs[t + 1] = o * np.tanh(cs[t + 1])
    return hs, cs, gates


def lstm_value_by_hand(w: Array, b: Array, x: Array) -> Any:
    return np.mean(lstm_forward_by_hand(w, b, x)[0][1:] ** 2)


def lstm_by_hand(w: Array, b: Array, x: Array) -> Any:
    hs, cs, gates = lstm_forward_by_hand(w, b, x)
    steps, batch, inputs = x.shape
    outputs = hs[1:]
    dw, db = np.zeros_like(w), np.zeros_like(b)
    dh = dc = np.zeros((batch, w.shape[1] // 4), x.dtype)
    for t in reversed(range(steps)):
        i, f, o, g = np.split(gates[t], 4, axis=1)
        tanh_c = np.tanh(cs[t + 1])
        dh = dh + outputs[t] * (2.0 / outputs.size)
        dc = dc + o * (1.0 - tanh_c * tanh_c) * dh
        parts = [i * (1.0 - i) * g * dc, f * (1.0 - f) * cs[t] * dc, o * (1.0 - o) * tanh_c * dh, (1.0 - g * g) * i * dc]
        dz = np.concatenate(parts, axis=1)
        dc = f * dc
        dw += np.concatenate([x[t], hs[t]], axis=1).T @ dz
        db += np.sum(dz, axis=0)
        dh = dz @ w[inputs:].T
    return np.mean(outputs * outputs), (dw, db)


def sequences(dtype: Any, steps: int, batch: int, hidden: int) -> Arguments:
    rng = np.random.default_rng(9)
    shapes = ((2 * hidden, 4 * hidden), 0.1), ((4 * hidden,), 0.1), ((steps, batch, hidden), 1.0)
    return tuple((scale * rng.normal(size=shape)).astype(dtype) for shape, scale in shapes)


def add_inside(u: Array, change: Array) -> Array:
    """`u` with `change` added to all but its border."""
    u = u.copy()
    u[1:-1, 1:-1] += change
    return u


def heat(u: Array) -> Array:
    """The mean square of temperatures u after STEPS explicit steps, at a border that stays as it is."""

    def step(_: Any, u: Array) -> Array:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return add_inside(u, 0.2 * (around - 4.0 * u[1:-1, 1:-1]))

    u = pb.fori_loop(0, STEPS, step, u)
    return np.mean(u * u)


def spread(u: Array, out: Array, room: Array) -> None:
    """A step from u into out; what it computes is its own transpose, but for the border."""
    np.add(u[:-2, 1:-1], u[2:, 1:-1], out=room)
    room += u[1:-1, :-2]
    room += u[1:-1, 2:]
    room *= 0.2
    np.multiply(u[1:-1, 1:-1], 1.0 - 0.8, out=out[1:-1, 1:-1])
    out[1:-1, 1:-1] += room


def heat_end(u: Array) -> Array:
    u, out, room = u.copy(), u.copy(), np.empty_like(u[1:-1, 1:-1])
    for _ in range(STEPS):
        spread(u, out, room)
        u, out = out, u
    return u


def heat_value_by_hand(u: Array) -> Any:
    u = heat_end(u)
    return np.mean(u * u)


def heat_by_hand(u: Array) -> Any:
    u = heat_end(u)
    d = u * (2.0 / u.size)
    inner, room = d.copy(), np.empty_like(d[1:-1, 1:-1])
    edges = [(np.s_[0, 1:-1], np.s_[1, 1:-1]), (np.s_[-1, 1:-1], np.s_[-2, 1:-1])]
    edges += [(np.s_[1:-1, 0], np.s_[1:-1, 1]), (np.s_[1:-1, -1], np.s_[1:-1, -2])]
    border = d.copy()
    border[1:-1, 1:-1] = 0.0
    out = np.zeros_like(d)
    for side in (np.s_[0, :], np.s_[-1, :], np.s_[:, 0], np.s_[:, -1]):
        inner[side] = 0.0
    for _ in range(STEPS):
        for edge, beside in edges:
            border[edge] += 0.2 * inner[beside]
        spread(inner, out, room)
        inner, out = out, inner
    return np.mean(u * u), (inner + border,)


def temperatures(dtype: Any, n: int) -> Arguments:
    return (np.random.default_rng(10).normal(size=(n, n)).astype(dtype),)


def lstm_case(kind: str, factor: float, sizes: Any = None, **rest: Any) -> Case:
    sizes, small = sizes or {"steps": 64, "batch": 32, "hidden": 128}, {"steps": 5, "batch": 3, "hidden": 4}

    def work(size: int, steps: int, batch: int, hidden: int) -> Work:
        return Work(flops=int(factor * steps * batch * 2 * 2 * hidden * 4 * hidden))

    return Case(
        workload="lstm",
        name=f"{kind}-T{sizes['steps']}",
        function=lstm,
        make=sequences,
        sizes=sizes,
        small=small,
        work=work,
        **rest,
    )


def heat_case(kind: str, factor: int, **rest: Any) -> Case:
    def work(size: int, n: int) -> Work:
        return Work(flops=factor * 6 * n * n * STEPS)

    sizes, small = {"n": 512}, {"n": 14}
    return Case(
        workload="heat", name=f"{kind}-512-100", function=heat, make=temperatures, sizes=sizes, small=small, work=work, **rest
    )


CASES = [
    lstm_case("fwd", 1.0, by_hand=lstm_value_by_hand, dtypes=("float32",)),
    lstm_case(
        "grad",
        2.5,
        by_hand=lstm_by_hand,
        wanted=(0, 1),
        targets={"float64": Target(ad=0.4, hand=0.3, limit=2.0), "float32": Target(ad=0.9, hand=0.3, limit=2.0)},
    ),
    heat_case("fwd", 1, by_hand=heat_value_by_hand),
    heat_case(
        "grad",
        2,
        by_hand=heat_by_hand,
        wanted=(0,),
        targets=dict.fromkeys(("float64", "float32"), Target(ad=0.35, hand=0.8)),
    ),
]
