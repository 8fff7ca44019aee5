"""Writes into what is not an array argument: containers of arrays, objects, captured arrays."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from inplace import V, W, X, Y, of


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
