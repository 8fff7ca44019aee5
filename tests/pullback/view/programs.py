"""Functions of which the tests make pages. The tests find lines by their text."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb

GRÖSSE = "</script><script>document.title = 'owned'</script>"


def network(w1: Any, w2: Any, x: Any, y: Any) -> Any:
    h = np.tanh(x @ w1)
    z = h @ w2
    z = z - np.max(z, axis=1, keepdims=True)
    log_p = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(np.sum(y * log_p, axis=1))


def network_example() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    shapes = ((16, 8), (8, 4), (32, 16), (32, 4))
    return tuple(rng.normal(size=shape) for shape in shapes)


def simulate(rates: Any, state: Any) -> Any:
    total = 0.0
    for i in range(len(rates)):
        state = state + rates[i] * (1.0 - state)
        if state < 0.0:
            state = 0.0
        total += state * state
    for _ in range(2):
        total = total * 0.5
    return total


def hostile(x: Any, größe: Any = 2.0) -> Any:
    """It says <script>alert("é")</script> & more."""
    text = "</script><img src=x onerror=alert(1)>"  # <b>größer</b>
    y = np.exp(-x * größe)
    return np.sum(y * len(text) * len(GRÖSSE))


def branches_on_values(x: Any) -> Any:
    y = np.sin(x)
    if y[0] > 0.5:  # <i>no</i> value is known
        return y
    return -y


@pb.jit(loops="unroll")
def called(x: Any) -> Any:
    return branches_on_values(x) + 1.0


def mistaken(x: Any) -> Any:
    return np.sum(x) + np.zeros(3) @ x


def printing(x: Any) -> Any:
    print("the sum is", np.sum(x))
    return x * 2.0


@pb.jit(loops="unroll")
def deep(layers: Any, x: Any) -> Any:
    h = x
    for w, b in layers:
        h = layer(h, w, b)
    return np.mean(h * h)


def layer(h: Any, w: Any, b: Any) -> Any:
    z = h @ w + b
    z = z - np.mean(z, axis=1, keepdims=True)
    z = z / np.sqrt(np.mean(z * z, axis=1, keepdims=True) + 1e-5)
    return h + np.tanh(z) * 0.1


def deep_example(count: int = 165) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(8, 8)) * 0.1, rng.normal(size=8)) for _ in range(count)], rng.normal(size=(16, 8))
