"""Training steps: each optimizer with a network as one compiled program, compared with hand-written NumPy over fifty steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from math import prod
from types import FrameType
from typing import Any

import numpy as np
import pytest
from layers import networks, optimizers
from layers.dense import affine
from layers.losses import softmax_cross_entropy
from layers.optimizers import INITIAL, initial_states, training_step

import pullback as pb
from pullback.ir import OPS
from pullback.ir.ops.array.reindex import Reindex
from tests.acceptance import by_hand
from tests.acceptance.by_hand import Tape
from tests.acceptance.checks import draw

Array = Any
State = tuple[Array, ...]
STEPS, RATE = 50, 0.01


def mlp_loss(params: Any, x: Array, y: Array) -> Array:
    w1, b1, w2, b2 = params
    return softmax_cross_entropy(affine(np.tanh(affine(x, w1, b1)), w2, b2), y)


def lenet_loss(params: Any, x: Array, y: Array) -> Array:
    return softmax_cross_entropy(networks.lenet_scores(params, x), y)


def mlp_by_hand(tape: Tape, params: Any, x: Array) -> Array:
    w1, b1, w2, b2 = params
    hidden = tape(lambda a: (np.tanh(a), lambda ct: ct * (1 - np.tanh(a) ** 2)), tape(by_hand.affine, x, w1, b1))
    return tape(by_hand.affine, hidden, w2, b2)


def lenet_by_hand(tape: Tape, params: Any, x: Array) -> Array:
    w1, b1, w2, b2, w3, b3, w4, b4 = params
    for w, b in ((w1, b1), (w2, b2)):
        x = tape(by_hand.max_pool, tape(by_hand.relu, tape(by_hand.conv2d, x, w, b, pad=1)))
    hidden = tape(by_hand.relu, tape(by_hand.affine, tape(by_hand.flat, x), w3, b3))
    return tape(by_hand.affine, hidden, w4, b4)


def gradients_by_hand(scores: Callable[..., Array], params: Any, x: Array, y: Array) -> tuple[float, list[Array]]:
    tape = Tape()
    value = tape(lambda s: by_hand.cross_entropy(s, y), scores(tape, params, x))
    return float(value), tape.gradients(np.float64(1.0), params)


def batches(n: int, *shape: int, count: int = 5) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(5)
    return [(rng.normal(size=(n, *shape)), np.eye(4)[rng.integers(0, 4, n)]) for _ in range(count)]


def initial(*shapes: tuple[int, ...]) -> list[Array]:
    """Weights and biases that change little from layer to layer."""
    scales = [prod(s) ** -0.25 for s in shapes]
    return [scale * x for scale, x in zip(scales, draw(*shapes, seed=6))]


TASKS = {
    "mlp": (mlp_loss, mlp_by_hand, initial((6, 9), (9,), (9, 4), (4,)), batches(16, 6)),
    "lenet": (
        lenet_loss,
        lenet_by_hand,
        initial((3, 1, 3, 3), (3,), (4, 3, 3, 3), (4,), (16, 7), (7,), (7, 4), (4,)),
        batches(4, 1, 8, 8),
    ),
}


def decayed(a: Array, b: Array, rate: float) -> Array:
    return rate * a + (1 - rate) * b


def sgd(x: Array, g: Array) -> Any:
    return x - RATE * g, ()


def momentum(x: Array, g: Array, v: Array) -> Any:
    v = 0.9 * v - RATE * g
    return x + v, (v,)


def nesterov(x: Array, g: Array, v: Array) -> Any:
    before, v = v, 0.9 * v - RATE * g
    return x - 0.9 * before + 1.9 * v, (v,)


def adagrad(x: Array, g: Array, s: Array) -> Any:
    s = s + g**2
    return x - RATE * g / (s**0.5 + 1e-8), (s,)


def rmsprop(x: Array, g: Array, s: Array) -> Any:
    s = decayed(s, g**2, 0.99)
    return x - RATE * g / (s**0.5 + 1e-8), (s,)


def adam(x: Array, g: Array, m: Array, v: Array, t: Array) -> Any:
    m, v, t = decayed(m, g, 0.9), decayed(v, g**2, 0.999), t + 1
    return x - RATE * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t) * m / (v**0.5 + 1e-8), (m, v, t)


def adamw(x: Array, g: Array, m: Array, v: Array, t: Array) -> Any:
    m, v, t = decayed(m, g, 0.9), decayed(v, g**2, 0.999), t + 1
    step = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)) ** 0.5 + 1e-8)
    return x - RATE * (step + 0.01 * x), (m, v, t)


def lars(x: Array, g: Array, v: Array) -> Any:
    size, rate = np.linalg.norm(x), RATE
    if x.ndim > 1 and min(x.shape) > 1 and size >= 1e-3:
        rate *= 0.001 * size / (np.linalg.norm(g) + 1e-4 * size + 1e-8)
    v = 0.9 * v - rate * (g + 1e-4 * x)
    return x + v, (v,)


def root(a: Array) -> Array:
    values, vectors = np.linalg.eigh(a)
    return vectors @ np.diag(values**-0.25) @ vectors.T


def shampoo(x: Array, g: Array, left: Array, right: Array) -> Any:
    a = g.reshape(len(left), len(right))
    left, right = left + a @ a.T, right + a.T @ a
    return x - RATE * (root(left) @ a @ root(right)).reshape(x.shape), (left, right)


def diagonal_shampoo(x: Array, g: Array, left: Array, right: Array) -> Any:
    a = g.reshape(left.size, right.size)
    left, right = left + (a**2).sum(1)[:, None], right + (a**2).sum(0)[None, :]
    return x - RATE * (a / (left * right) ** 0.25).reshape(x.shape), (left, right)


BY_HAND = [sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw, lars, shampoo, diagonal_shampoo]
RULES = {rule.__name__: rule for rule in BY_HAND}


def test_every_optimizer_has_a_rule_by_hand() -> None:
    assert sorted(RULES) == sorted(f.__name__ for f in INITIAL)


def pairs() -> list[Any]:
    few = ("nesterov", "adam", "shampoo")
    lenets = [pytest.param("lenet", n, marks=() if n in few else pytest.mark.long) for n in RULES]
    return [*[("mlp", name) for name in RULES], *lenets]


@pytest.mark.parametrize("task, name", pairs())
def test_fifty_steps(task: str, name: str) -> None:
    loss, scores, params, data = TASKS[task]
    optimizer = getattr(optimizers, name)
    step = training_step(loss, optimizer, rate=RATE)
    states = initial_states(optimizer, params)
    expected, expected_states = list(params), [list(s) for s in states]
    values = []
    for k in range(STEPS):
        x, y = data[k % len(data)]
        result, params, states = step(params, states, x, y)
        value, gradients = gradients_by_hand(scores, expected, x, y)
        results = [RULES[name](p, g, *s) for p, g, s in zip(expected, gradients, expected_states)]
        expected, expected_states = [p for p, _ in results], [s for _, s in results]
        np.testing.assert_allclose(result, value, rtol=1e-10)
        values.append(value)
    for array, by_numpy in zip(pb.tree.leaves((params, states)), pb.tree.leaves((expected, expected_states))):
        np.testing.assert_allclose(array, by_numpy, rtol=0, atol=1e-10 * max(1.0, np.max(np.abs(by_numpy))))
    assert values[-len(data)] < values[0]


def frames_of_user_code(call: Callable[[], Any]) -> int:
    """Count the calls of Python functions of the examples and of this file."""
    count = 0

    def profiled(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        name = frame.f_code.co_filename
        count += event == "call" and ("/layers/" in name or name == __file__) and frame.f_code.co_name != "<lambda>"

    before = sys.getprofile()
    sys.setprofile(profiled)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("task", TASKS)
def test_python_runs_once_for_each_signature(task: str) -> None:
    loss, _, params, data = TASKS[task]
    step = training_step(loss, optimizers.adam)
    states = initial_states(optimizers.adam, params)
    narrow = partial(pb.tree.map, lambda a: a.astype(np.float32))

    def entered(*arguments: Any) -> int:
        return frames_of_user_code(lambda: step(*arguments))

    (x, y), (other_x, other_y) = data[:2]
    assert entered(params, states, x, y) > 0
    assert [entered(params, states, other_x, other_y) for _ in range(3)] == [0, 0, 0]
    assert entered(params, states, x[:3], y[:3]) > 0
    assert entered(*narrow([params, states, x, y])) > 0
    assert [entered(params, states, x[1:4], y[1:4]), entered(*narrow([params, states, x, y]))] == [0, 0]
    value, result, _ = step(*narrow([params, states, x, y]))
    wide, expected, _ = step(params, states, x, y)
    assert value.dtype == np.float32
    np.testing.assert_allclose(value, wide, rtol=1e-5)
    for a, b in zip(result, expected):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-5)


def bytes_of_everything(text: str) -> int:
    """Return the bytes of all values of array IR, without values that only rearrange another's elements."""
    total = 0
    for kind, shape, op in re.findall(r"%\w+: [a-z]+(\d+)\[([\d,]*)\] = (\w+)", text):
        if not isinstance(OPS[op], Reindex):
            total += int(kind) // 8 * prod(int(n) for n in shape.split(",") if n)
    return total


@pytest.mark.parametrize("task", TASKS)
def test_memory_is_used_again(task: str) -> None:
    loss, _, params, _ = TASKS[task]
    x, y = {"mlp": batches(256, 6), "lenet": batches(64, 1, 8, 8)}[task][0]
    step = training_step(loss, optimizers.adam)
    arguments = (params, initial_states(optimizers.adam, params), x, y)
    report = step.memory(*arguments)
    inputs = sum(b.bytes for b in report.inputs)
    kept = inputs + bytes_of_everything(step.stages(*arguments)["simplify"])
    assert report.peak_bytes <= 0.65 * kept
