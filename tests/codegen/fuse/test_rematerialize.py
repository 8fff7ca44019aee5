"""What is kept for a gradient and what is computed again: the minimum cut, and what it finds in programs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, expit

import pullback as pb
from pullback.ir.passes.transforms.min_cut import NEVER, Cut, Node, cut

RNG = np.random.default_rng(7)
Array = Any


# the minimum cut


def cost(nodes: list[Node], result: Cut) -> int:
    needed, total = [n.is_read for n in nodes], 0
    for k in reversed(range(len(nodes))):
        if needed[k]:
            total += nodes[k].keep if k in result.saved else nodes[k].recompute
            for operand in () if k in result.saved else nodes[k].operands:
                needed[operand] = True
    return total


def random_nodes(r: random.Random, count: int) -> list[Node]:
    nodes = []
    for k in range(count):
        operands = r.sample(range(k), min(k, r.randint(0, 3)))
        nodes.append(Node(r.randint(0, 9), r.choice([0, 1, 2, NEVER]) if operands else NEVER, operands, r.random() < 0.5))
    return nodes


def test_no_choice_costs_less() -> None:
    r = random.Random(0)
    for _ in range(200):
        nodes = random_nodes(r, r.randint(1, 8))
        subsets = itertools.product([False, True], repeat=len(nodes))
        every = (Cut(frozenset(k for k, yes in enumerate(s) if yes), frozenset(), is_exact=True) for s in subsets)
        best = min(cost(nodes, result) for result in every)
        assert best < NEVER
        result = cut(nodes)
        assert result.is_exact and cost(nodes, result) == best
        nearly = cut(nodes, most_exact=1)
        assert best <= cost(nodes, nearly) < NEVER


def test_of_equal_costs_the_fewest_are_computed_again() -> None:
    nodes = [Node(8), Node(8, 0, [0]), Node(8, 0, [1], is_read=True)]
    assert cut(nodes).saved == {2} and not cut(nodes).recomputed


# programs


def in_memory(function: Callable[..., Any], *args: Any, argnums: Any = 0) -> list[str]:
    """The ops whose results are kept in memory for a gradient, but operands of contractions, which always are."""
    result = pb.value_and_grad(function, argnums=argnums).residuals(*args)
    assert result.algorithm == "minimum cut"
    return [r.op for r in result.residuals if r.kept == "memory" and not r.why.startswith("an operand")]


def normalised(x: Array, gain: Array, bias: Array, w: Array) -> Array:
    mean = x.mean(0)
    variance = ((x - mean) ** 2).mean(0)
    return np.sum(np.tanh(((x - mean) / np.sqrt(variance + 1e-5) * gain + bias) @ w))


def gelu_layers(x: Array, w1: Array, w2: Array) -> Array:
    z = x @ w1
    return np.sum(np.tanh((0.5 * z * (1 + erf(z / np.sqrt(2)))) @ w2))


def by_pairs(x: Array, scale: Array) -> Array:
    kernel = np.exp(-0.5 * ((x[:, None] - x[None, :]) / scale) ** 2)
    return np.sum(np.tanh(kernel @ x))


def chain_of(step: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    def chain(x: Array, w: Array) -> Array:
        for _ in range(10):
            x = step(x)
        return np.sum(np.tanh(x @ w))

    return chain


X, GAIN, BIAS, W = RNG.normal(size=(40, 6)), RNG.normal(size=6), RNG.normal(size=6), RNG.normal(size=(6, 3))
SQUARE = RNG.normal(size=(6, 6))


def test_batch_norm_keeps_mean_and_deviation_not_the_normalised_input() -> None:
    args = X, GAIN, BIAS, W
    result = pb.value_and_grad(normalised, argnums=(0, 1, 2, 3)).residuals(*args)
    big = [r for r in result.residuals if r.type == "f64[40,6]"]
    assert [r.op for r in big if r.kept == "memory"] == ["add"]
    assert {r.op for r in big if r.kept == "recomputed"} <= {"sub", "div"}
    assert all(r.kept == "memory" for r in result.residuals if r.type == "f64[6]")


@pytest.mark.parametrize(
    "step",
    [np.sin, lambda x: x * x - 0.5, lambda x: x / (1 + np.abs(x)), lambda x: np.maximum(x, 0.1 * x)],
    ids=["sin", "square", "softsign", "relu"],
)
def test_a_chain_keeps_its_input(step: Callable[[Array], Array]) -> None:
    """And the last product, in memory for the kernel that computes tanh of it and, of it too, the derivative."""
    assert in_memory(chain_of(step), 0.1 * X, W, argnums=(0, 1)) == ["contract"]


def test_a_chain_of_functions_keeps_one_of_nine() -> None:
    assert sorted(in_memory(chain_of(np.exp), 0.1 * X, W, argnums=(0, 1))) == ["contract", "exp"]


def test_a_chain_of_functions_that_share_exponentials_with_their_derivatives_keeps_its_input() -> None:
    assert in_memory(chain_of(np.tanh), 0.1 * X, W, argnums=(0, 1)) == ["contract"]


LAYERS = 8


@pytest.mark.parametrize("function", [np.tanh, expit], ids=["tanh", "expit"])
@pytest.mark.parametrize("has_bias", [False, True], ids=["", "bias"])
def test_a_layer_keeps_one_array_for_a_function_and_its_derivative(function: Any, has_bias: bool) -> None:
    def layers(ws: Array, bs: Array, x: Array) -> Array:
        for k in range(LAYERS):
            x = function(x @ ws[k] + bs[k]) if has_bias else function(x @ ws[k])
        return np.mean(x**2)

    ws, bs, x = 0.3 * RNG.normal(size=(LAYERS, 32, 32)), RNG.normal(size=(LAYERS, 32)), RNG.normal(size=(128, 32))
    call = pb.value_and_grad(lambda ws, x: layers(ws, bs, x))
    temporaries = [t for t in call.memory(list(ws), x).temporaries if t.bytes == x.nbytes]
    assert call.memory(list(ws), x).arena_bytes <= (LAYERS + 2) * x.nbytes, temporaries
    if not has_bias:
        pb.check_grad(lambda ws, x: layers(ws, bs, x))(list(ws[:, :3, :3]), x[:2, :3])


def test_no_function_is_computed_again_by_many_groups() -> None:
    def f(x: Array, w: Array, b: Array) -> Array:
        for _ in range(4):
            x = np.tanh(x * w + b)
            x = (x - np.mean(x, axis=0)) / np.std(x, axis=0)
        return np.mean(x**3)

    result = pb.value_and_grad(f).residuals(X, GAIN, BIAS)
    assert [r.kept for r in result.residuals if r.op == "tanh"] == ["memory"] * 4


def test_layers_keep_products_and_no_more() -> None:
    """The second product is in memory for the one kernel that reads it."""
    assert in_memory(gelu_layers, X, SQUARE, W, argnums=(0, 1, 2)) == ["contract", "contract"]


def test_pairs_are_not_kept() -> None:
    assert "sub" not in in_memory(by_pairs, GAIN, 0.7, argnums=(0, 1))


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (normalised, (X, GAIN, BIAS, W)),
    (gelu_layers, (X, SQUARE, W)),
    (by_pairs, (GAIN, 0.7)),
    (chain_of(np.sin), (X, W)),
    (chain_of(lambda x: np.where(x > 0, x / 2, np.tanh(x))), (X, W)),
]


@pytest.mark.parametrize(("function", "args"), CASES, ids=["batch norm", "gelu", "pairs", "sin", "where"])
def test_gradients_are_right(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    pb.check_grad(function, order=2)(*args)


def test_what_is_written_in_place_is_still_read() -> None:
    def f(x: Array, w: Array) -> Array:
        y = np.sin(x @ w)
        z = y * 2
        y[1:3] = 0.5
        return np.sum((np.tanh(z) @ w) * (y @ w))

    def again(x: Array, w: Array) -> Array:
        y = np.sin(x @ w)
        mask = np.ones((40, 1))
        mask[1:3] = 0
        return np.sum((np.tanh(y * 2) @ w) * ((mask * y + 0.5 * (1 - mask)) @ w))

    for a, b in zip(pb.grad(f, (0, 1))(X, SQUARE), pb.grad(again, (0, 1))(X, SQUARE), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_what_elements_are_picked_of_is_in_memory() -> None:
    def f(x: Array, k: Array) -> Array:
        y = np.sin(x) * 2
        total = np.sum(np.tanh(y @ SQUARE))
        return total + np.sum((y * y)[k] * y[k])

    pb.check_grad(f, argnums=0)(X, np.array([3, 0, 3, 39]))


def reads(x: Array) -> Array:
    total = 0.0
    for k in range(len(x)):
        total = total + x[k] * x[k]
    return total


def writes(x: Array) -> Array:
    a = np.zeros(len(x))
    for k in range(len(x)):
        a[k] = np.sin(x[k])
    return np.sum(a * a)


@pytest.mark.parametrize("function", [reads, writes])
def test_elements_one_by_one_move_bytes_in_proportion(function: Callable[[Array], Array]) -> None:
    small, large = (pb.value_and_grad(function).cost(np.ones(n)).total.bytes for n in (30, 120))
    assert large < 4.2 * small


def test_steps_that_each_wait_for_a_sum_share_one_kernel() -> None:
    def steps(x: Array, a: Array) -> Array:
        for _ in range(60):
            x = a * x + np.sum(x)
        return x

    x, a = np.linspace(-1.0, 1.0, 9), np.float64(0.125)
    result = pb.jit(steps)(x, a)
    np.testing.assert_allclose(result, steps(x, a), rtol=1e-13)
    text = pb.jit(steps).stages(x, a)["schedule"]
    # But for the last steps, which compute again what a few others computed, they are all of one text.
    assert text.count("launch") == 61 and text.count("\nkernel ") < 25


def with_skips(ws: list[Array], x: Array) -> Array:
    for w in ws:
        x = x + np.tanh(x @ w)
    return np.sum(x**2)


def two_branches(ws: list[Array], x: Array) -> Array:
    y = x
    for w in ws:
        x, y = x + np.tanh(y @ w), y - x * np.sin(x @ w)
    return np.sum(x * y)


def sums_of_all(ws: list[Array], x: Array) -> Array:
    total = x
    for w in ws:
        x = np.sin(x @ w)
        total = total + x
    return np.sum(total**2)


@pytest.mark.parametrize("network", [with_skips, two_branches, sums_of_all])
def test_running_sums_of_layers_move_bytes_in_proportion(network: Callable[..., Array]) -> None:
    """Each layer adds to a sum of all layers behind it: the sum is stored, not added again from all its terms."""
    x = RNG.normal(size=(50, 4))
    f = pb.value_and_grad(network, argnums=(0, 1))
    small, large = (f.cost(list(RNG.normal(size=(n, 4, 4)) / 4), x).total.bytes for n in (10, 40))
    assert large < 4.2 * small
    pb.check_grad(network)(list(RNG.normal(size=(6, 4, 4)) / 4), x[:3])
