"""Writes into what is not an array argument: containers of arrays, objects, captured arrays."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tests.tables.inplace import V, W, X, Y, of


@dataclass
class Layer:
    w: Any
    b: Any


class Pair(NamedTuple):
    first: Any
    second: Any


@of({"w": X, "b": V})
def arrays_of_a_dict(params: Any) -> Any:
    params["w"] *= 2
    params["b"][0] = params["w"][1, 1]


@of({"w": X, "b": W}, {"w": Y, "b": V})
def descent_over_a_dict(params: Any, grads: Any) -> Any:
    for name in params:
        params[name] -= 0.1 * grads[name]


@of([V, W])
def arrays_of_a_list(arrays: Any) -> Any:
    for a in arrays:
        a += 1
    arrays[0][1:] *= arrays[1][:-1]


@of([(X, V), (Y, W)])
def nested_containers(layers: Any) -> Any:
    for w, b in layers:
        w *= 0.5
        b[:] = np.tanh(b)
    return sum((w**2).sum() for w, _ in layers)


@of(Layer(X, V))
def arrays_of_a_dataclass(layer: Any) -> Any:
    layer.w[0] = layer.b[:4]
    layer.b *= 2


@of(Pair(V, W))
def arrays_of_a_namedtuple(pair: Any) -> Any:
    pair.first[...] = pair.second * pair.first
    return pair.second


@of(V, W)
def a_dict_of_the_function(x: Any, w: Any) -> Any:
    state = {"m": np.zeros(6), "n": 0}
    for _ in range(2):
        state["m"] += x * w
        state["n"] += 1
    state["m"][0] = 1
    return state


@of(X)
def a_list_of_rows(x: Any) -> Any:
    rows = list(x)
    rows[0] = rows[1] * 2
    rows[2][0] = 5
    return np.stack(rows)


@of(V)
def a_list_that_grows(x: Any) -> Any:
    path = []
    y = x.copy()
    for _ in range(3):
        y *= 0.5
        path.append(y.copy())
    path.append(y)
    y[0] = 0
    return path


@of(V)
def an_object_of_the_function(x: Any) -> Any:
    layer = Layer(np.zeros(6), x)
    layer.w[1:] = x[:-1]
    layer.b[0] = 3
    layer.w = layer.w * 2
    return layer.w


@of(V)
def a_default_is_none(x: Any, out: Any = None) -> Any:
    if out is None:
        out = np.empty_like(x)
    out[:] = x**2
    return out


@of(V, V * 2)
def an_out_of_the_users(x: Any, out: Any = None) -> Any:
    if out is None:
        out = np.empty_like(x)
    out[:] = x**2
    return out


# arrays that are no arguments: what makes a function, and the arrays that it writes


def a_closure() -> Any:
    buffer = np.zeros(6)

    def call(x: Any) -> Any:
        buffer[1:] = buffer[:-1] + x[1:]
        return buffer.sum()

    return call, [buffer]


def a_dict_of_arrays() -> Any:
    state = {"m": np.zeros(6), "v": [np.ones(6)]}

    def call(x: Any) -> Any:
        state["m"] *= 0.9
        state["m"] += x
        state["v"][0][:] = state["m"] ** 2
        return state["v"][0] * 2

    return call, [state["m"], state["v"][0]]


class Smoother:
    def __init__(self) -> None:
        self.state = np.zeros((2, 6))
        self.count = np.zeros((), int)

    def step(self, x: Any) -> Any:
        self.state[0] = 0.5 * self.state[0] + x
        self.state[1] += self.state[0]
        self.state.T[0] = 1
        self.count += 1
        return self.state[1].sum() / self.count


def an_object() -> Any:
    built = Smoother()
    return built.step, [built.state, built.count]


def a_column_of_a_table() -> Any:
    table = np.zeros((6, 3))
    column = table[:, 1]

    def call(x: Any) -> Any:
        np.add(column, x, out=column)
        np.add.at(column, [0, 0], 1.0)
        column[column > 2] = 2
        return column[::-1]

    return call, [table]


def a_default() -> Any:
    seen = np.zeros(3, int)

    def call(x: Any, seen: Any = seen) -> Any:
        seen[np.argmax(x) % 3] += 1
        return seen * x[:3]

    return call, [seen]


def a_static_mask_that_is_written() -> Any:
    used = np.zeros(6, bool)

    def call(x: Any) -> Any:
        result = np.sum(x[used])
        used[np.argmax(np.where(used, -np.inf, x))] = True
        return result

    return call, [used]


OUTSIDE = [a_closure, a_dict_of_arrays, an_object, a_column_of_a_table, a_default, a_static_mask_that_is_written]
