"""Steps of recurrent networks: the gates of a step are one kernel, in its gradient too; values and gradients of the usual ways
to write them, in scans and in Python's loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import pullback as pb
from pullback.ir.core.structure import Block, Module
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.control.loops import Scan
from pullback.ir.ops.control.regions import Group
from pullback.ir.text import parse_module
from pullback.programs.pipeline import template_counts

Array = Any
Step = Callable[..., Any]


def lstm_step(w: Array, b: Array, state: Any, x: Array) -> Any:
    h, c = state
    m = h.shape[1]
    z = np.concatenate([x, h], axis=1) @ w + b
    gates = 1.0 / (1.0 + np.exp(-z[:, : 3 * m]))
    i, f, o = gates[:, :m], gates[:, m : 2 * m], gates[:, 2 * m :]
    c = f * c + i * np.tanh(z[:, 3 * m :])
    h = o * np.tanh(c)
    return (h, c), h


def split_step(w: Array, b: Array, state: Any, x: Array) -> Any:
    h, c = state
    i, f, o, g = np.split(x @ w[: x.shape[1]] + h @ w[x.shape[1] :] + b, 4, axis=1)
    c = expit(f) * c + expit(i) * np.tanh(g)
    h = expit(o) * np.tanh(c)
    return (h, c), h


def transposed_step(w: Array, b: Array, state: Any, x: Array) -> Any:
    """The gates are rows."""
    h, c = state
    m = h.shape[1]
    z = w.T @ np.concatenate([x, h], axis=1).T + b[:, None]
    t = expit(z)
    c = t[m : 2 * m].T * c + t[:m].T * (2 * t[3 * m :].T - 1)
    h = t[2 * m : 3 * m].T * np.tanh(c)
    return (h, c), h


def gru_step(w: Array, b: Array, state: Any, x: Array) -> Any:
    (h,) = state
    m = h.shape[1]
    a, u = x @ w[: x.shape[1]] + b, h @ w[x.shape[1] :]
    gates = expit(a[:, : 2 * m] + u[:, : 2 * m])
    n = np.tanh(a[:, 2 * m :] + gates[:, :m] * u[:, 2 * m :])
    h = (1 - gates[:, m:]) * n + gates[:, m:] * h
    return (h,), h


def plain_step(w: Array, b: Array, state: Any, x: Array) -> Any:
    (h,) = state
    h = np.tanh(np.concatenate([x, h], axis=1) @ w + b)
    return (h,), h


STEPS: dict[str, tuple[Step, int, int]] = {
    "lstm": (lstm_step, 4, 2),
    "split": (split_step, 4, 2),
    "transposed": (transposed_step, 4, 2),
    "gru": (gru_step, 3, 1),
    "plain": (plain_step, 1, 1),
}


def network(step: Step, states: int, is_scan: bool) -> Callable[..., Any]:
    def run(w: Array, b: Array, h: Array, xs: Array) -> Any:
        state = (h, np.cos(h))[:states]
        if is_scan:
            state, outs = pb.scan(lambda s, x: step(w, b, s, x), state, xs)
            return np.sum(outs * outs) + np.sum(state[-1])
        total = 0.0
        for t in range(xs.shape[0]):
            state, h = step(w, b, state, xs[t])
            total = total + np.sum(h * h)
        return total + np.sum(state[-1])

    return run


def arguments(gates: int, steps: int, batch: int, inputs: int, hidden: int, dtype: Any = np.float64) -> tuple[Array, ...]:
    rng = np.random.default_rng(steps + batch)
    shapes = ((inputs + hidden, gates * hidden), (gates * hidden,), (batch, hidden), (steps, batch, inputs))
    return tuple((0.5 * rng.normal(size=shape)).astype(dtype) for shape in shapes)


@pytest.mark.parametrize(("name", "is_scan"), [*((name, True) for name in STEPS), ("lstm", False)])
def test_values_and_gradients_to_second_order(name: str, is_scan: bool) -> None:
    step, gates, states = STEPS[name]
    check = pb.check_grad(network(step, states, is_scan), order=2, argnums=(0, 1, 2), modes=("rev",))
    check(*arguments(gates, 2, 2, 3, 2))


@pytest.mark.parametrize("name", STEPS)
def test_every_shape(name: str) -> None:
    """One hidden unit, no batch, no step, and extents that fall together."""
    step, gates, states = STEPS[name]
    scanned, looped = (pb.value_and_grad(network(step, states, is_scan), argnums=(0, 1, 2, 3)) for is_scan in (True, False))
    for steps, batch, inputs, hidden in ((3, 3, 2, 1), (2, 1, 1, 5), (1, 4, 4, 4), (2, 33, 3, 17)):
        passed = arguments(gates, steps, batch, inputs, hidden)
        for result, wanted in zip(flat(scanned(*passed)), flat(looped(*passed)), strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-11, atol=1e-12)
    for result in flat(scanned(*arguments(gates, 0, 2, 3, 4)))[1:3]:
        assert not result.any()


def flat(result: Any) -> list[Any]:
    value, gradients = result
    return [value, *gradients]


@pytest.mark.parametrize("name", ["lstm", "split", "gru"])
def test_a_batch_of_networks(name: str) -> None:
    step, gates, states = STEPS[name]
    function = pb.grad(network(step, states, True))
    w, b, h, xs = arguments(gates, 3, 2, 3, 4)
    ws = np.stack([w, -w, 2 * w])
    together = pb.vmap(function, in_axes=(0, None, None, None))(ws, b, h, xs)
    for result, each in zip(together, ws, strict=True):
        np.testing.assert_allclose(result, function(each, b, h, xs), rtol=1e-11, atol=1e-12)


def steps_of(function: Any, *arguments: Any) -> list[Block]:
    """The bodies of the scans of a compiled function, forward and back."""
    module: Module = parse_module(function.stages(*arguments)["fuse"])
    return [i.regions[0] for i in module.functions[0].instructions if isinstance(i.op, Scan)]


@pytest.mark.parametrize("name", ["lstm", "split"])
def test_one_kernel_has_all_gates(name: str) -> None:
    """A step is the product with the state before and one kernel; the step back one kernel, the product, and the bias's sums."""
    step, gates, states = STEPS[name]
    function = pb.jit(pb.value_and_grad(network(step, states, True), argnums=(0, 1)))
    forward, back = steps_of(function, *arguments(gates, 5, 4, 3, 6))
    kernels = [[i.op for i in block.instructions if isinstance(i.op, Group | Contract)] for block in (forward, back)]
    assert [op.name for op in kernels[0]] == ["contract", "group"]
    assert [op.name for op in kernels[1]].count("contract") == 1
    assert [op.name for op in kernels[1]].count("group") <= 3


def test_gates_come_from_their_tails_and_the_rest_is_computed_again() -> None:
    """The step back computes the candidate and tanh of the cell from what was kept, each once: value and derivative share an
    exponential. Of the gates the tails were kept, by which both cost none. A derivative from the value alone would lose its
    digits in the tails."""
    function = pb.jit(pb.value_and_grad(network(lstm_step, 2, True), argnums=(0, 1)))
    forward, back = steps_of(function, *arguments(4, 5, 4, 3, 6))
    ops = [k.op.name for i in back.instructions for region in i.regions for k in region.instructions]
    assert (ops.count("tanh"), ops.count("sech2")) == (1, 1)
    assert (ops.count("expit"), ops.count("logistic_pdf")) == (0, 0)
    ops = [k.op.name for i in forward.instructions for region in i.regions for k in region.instructions]
    assert (ops.count("tanh"), ops.count("expit")) == (2, 3)


@pytest.mark.parametrize(("name", "numbers"), [("lstm", 42), ("split", 42), ("transposed", 42), ("gru", 36), ("plain", 21)])
def test_what_a_step_keeps(name: str, numbers: int) -> None:
    """Each step keeps, for each row of the batch, its result, the state it starts from and one number for each unit of each gate.
    The gated unit (GRU) also keeps the product that a gate multiplies, and the plain network the input as well as the state."""
    step, gates, states = STEPS[name]
    function = pb.jit(pb.value_and_grad(network(step, states, True), argnums=(0, 1)))
    module: Module = parse_module(function.stages(*arguments(gates, 5, 4, 3, 6))["simplify"])
    forward, _ = (i for i in module.functions[0].instructions if isinstance(i.op, Scan))
    assert sum(math.prod(v.type.shape[1:]) for v in forward.results[forward.params["carried"] :]) == 4 * numbers


def test_one_program_for_all_sizes() -> None:
    function = pb.jit(pb.value_and_grad(network(lstm_step, 2, True), argnums=(0, 1)))
    before = template_counts().built
    for batch, inputs, hidden in ((5, 7, 9), (6, 10, 11), (30, 40, 50)):
        function(*arguments(4, 6, batch, inputs, hidden))
    assert template_counts().built - before <= 1


def test_one_place_alone_is_no_class() -> None:
    """The index that is read along an axis is a constant of a template only if several are read."""
    x = np.random.default_rng(1).normal(size=(3, 20))
    before = template_counts().built
    for k in (1, 2, 3):

        def one(x: Array, k: int = k) -> Array:
            return np.arctan(np.tan(x).reshape(3, 4, 5)[:, k])

        np.testing.assert_allclose(pb.jit(one)(x), one(x), rtol=1e-12)
    assert template_counts().built - before <= 1
