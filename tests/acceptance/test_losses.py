"""Softmax, losses and regularisers: ``examples/layers/losses.py``."""

import math
from typing import Any

import numpy as np
import pytest
from layers.losses import (
    cross_entropy,
    cross_entropy2d,
    l1_loss,
    l1_reg,
    l2_loss,
    l2_reg,
    log_loss,
    log_loss_of_scores,
    log_softmax,
    logcosh_loss,
    logsumexp,
    softmax,
    softmax2d,
    softmax_cross_entropy,
)

import pullback as pb
from tests.acceptance.checks import Program, check, cotangent, draw, gradients, in_dtypes

Array = Any


def rows(x: Array, axis: int) -> Any:
    """The places of x without an axis, each with the numbers along it."""
    for position in np.ndindex(*np.delete(x.shape, axis)):
        index = (*position[: axis % x.ndim], slice(None), *position[axis % x.ndim :])
        yield index, [float(v) for v in x[index]]


def loop_softmax(s: Array, axis: int = -1) -> Array:
    out = np.empty(s.shape)
    for index, row in rows(s, axis):
        total = sum(math.exp(v - max(row)) for v in row)
        out[index] = [math.exp(v - max(row)) / total for v in row]
    return out


def loop_logsumexp(s: Array, axis: int = -1) -> Array:
    result = [max(row) + math.log(sum(math.exp(v - max(row)) for v in row)) for _, row in rows(s, axis)]
    return np.array(result).reshape(np.delete(s.shape, axis))


def softmax_gradient(G: Array, s: Array, axis: int = -1) -> Any:
    p = loop_softmax(s, axis)
    return (p * (G - np.sum(G * p, axis=axis, keepdims=True)),)


def log_softmax_gradient(G: Array, s: Array, axis: int = -1) -> Any:
    return (G - loop_softmax(s, axis) * np.sum(G, axis=axis, keepdims=True),)


def mean(term: Any) -> Any:
    """The sum of a term of two numbers over all elements, divided by the number of rows."""
    return lambda a, b: np.float64(sum(term(p, q) for p, q in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)) / len(a))


def loop_cross_entropy2d(p: Array, y: Array) -> Any:
    n, _, height, width = p.shape
    result = 0.0
    for i, k, u, v in np.ndindex(*p.shape):
        result -= y[i, k, u, v] * math.log(p[i, k, u, v] + 1e-10)
    return np.float64(result / (n * height * width))


def loop_softmax_cross_entropy(s: Array, y: Array) -> Any:
    return mean(lambda p, t: -t * math.log(p + 1e-9))(loop_softmax(s), y)


def softmax_cross_entropy_gradient(g: Any, s: Array, y: Array) -> Any:
    p = loop_softmax(s)
    t = y * p / (p + 1e-9)
    return (g / len(s) * (p * np.sum(t, axis=1, keepdims=True) - t),)


def one_hot(labels: Any, classes: int) -> Array:
    return np.eye(classes)[np.asarray(labels)]


(SCORES,) = draw((5, 4), low=-4, high=4)
(MAPS,) = draw((2, 3, 2, 4), low=-4, high=4, seed=1)
LABELS = one_hot([2, 0, 3, 3, 1], 4)
(ANY,) = draw((5, 4), low=0.0, high=2.0, seed=2)
(Q,) = draw((6, 1), low=0.05, high=0.95, seed=3)
(T,) = draw((6, 1), low=0.0, high=1.0, seed=4)

PROGRAMS = {
    "softmax": Program(f=softmax, args=(SCORES,), oracle=loop_softmax, formula=softmax_gradient),
    "softmax of columns": Program(f=softmax, args=(SCORES,), oracle=loop_softmax, formula=softmax_gradient, options={"axis": 0}),
    "softmax of equal scores": Program(f=softmax, args=(np.round(SCORES / 3),), oracle=loop_softmax, formula=softmax_gradient),
    "softmax2d": Program(
        f=softmax2d,
        args=(MAPS,),
        oracle=lambda s: loop_softmax(s, 1),
        formula=lambda G, s: softmax_gradient(G, s, 1),
    ),
    "log_softmax": Program(
        f=log_softmax,
        args=(SCORES,),
        oracle=lambda s: np.log(loop_softmax(s)),
        formula=log_softmax_gradient,
    ),
    "log_softmax of large scores": Program(
        f=log_softmax,
        args=(100 * SCORES,),
        oracle=lambda s: s - loop_logsumexp(s)[:, None],
        formula=log_softmax_gradient,
    ),
    "logsumexp": Program(
        f=logsumexp, args=(SCORES,), oracle=loop_logsumexp, formula=lambda g, s: (g[:, None] * loop_softmax(s),)
    ),
    "logsumexp over channels": Program(
        f=logsumexp,
        args=(MAPS + 700,),
        oracle=loop_logsumexp,
        formula=lambda g, s, axis: (g[:, None] * loop_softmax(s, axis),),
        options={"axis": 1},
    ),
    "cross_entropy": Program(
        f=cross_entropy,
        args=(loop_softmax(SCORES / 4), LABELS),
        oracle=mean(lambda p, y: -y * math.log(p + 1e-10)),
        formula=lambda g, p, y: (-g / len(p) * y / (p + 1e-10),),
        data=(1,),
    ),
    "cross_entropy2d": Program(
        f=cross_entropy2d,
        args=(loop_softmax(MAPS / 4, 1), np.moveaxis(one_hot([[[0, 1, 2, 0], [1, 1, 0, 2]]] * 2, 3), 3, 1)),
        oracle=loop_cross_entropy2d,
        formula=lambda g, p, y: (-g / (len(p) * p.shape[2] * p.shape[3]) * y / (p + 1e-10),),
        data=(1,),
    ),
    "softmax_cross_entropy": Program(
        f=softmax_cross_entropy,
        args=(SCORES, LABELS),
        oracle=loop_softmax_cross_entropy,
        formula=softmax_cross_entropy_gradient,
        data=(1,),
    ),
    "softmax_cross_entropy of weights": Program(
        f=softmax_cross_entropy,
        args=(SCORES, ANY),
        oracle=loop_softmax_cross_entropy,
        formula=softmax_cross_entropy_gradient,
        data=(1,),
    ),
    "softmax_cross_entropy of hopeless scores": Program(
        f=softmax_cross_entropy,
        args=(7 * SCORES, LABELS),
        oracle=loop_softmax_cross_entropy,
        formula=softmax_cross_entropy_gradient,
        data=(1,),
    ),
    "log_loss": Program(
        f=log_loss,
        args=(Q, np.round(T)),
        oracle=mean(lambda q, y: -(y * math.log(q) + (1 - y) * math.log(1 - q))),
        formula=lambda g, q, y: (g / len(q) * (q - y) / (q * (1 - q)),),
        data=(1,),
    ),
    "log_loss_of_scores": Program(
        f=log_loss_of_scores,
        args=(8 * Q - 4, T),
        oracle=mean(lambda x, y: math.log(1 + math.exp(x)) - y * x),
        formula=lambda g, x, y: (g / len(x) * (1 / (1 + np.exp(-x)) - y),),
        data=(1,),
    ),
    "l1_loss": Program(
        f=l1_loss,
        args=(SCORES, ANY),
        oracle=mean(lambda q, y: abs(q - y)),
        formula=lambda g, q, y: (g / len(q) * np.sign(q - y), -g / len(q) * np.sign(q - y)),
    ),
    "l1_loss where equal": Program(
        f=l1_loss,
        args=(LABELS, LABELS + (ANY > 1)),
        oracle=mean(lambda q, y: abs(q - y)),
        formula=lambda g, q, y: (g / len(q) * np.sign(q - y), -g / len(q) * np.sign(q - y)),
        smooth=False,
    ),
    "l2_loss": Program(
        f=l2_loss,
        args=(SCORES, ANY),
        oracle=mean(lambda q, y: (q - y) ** 2 / 2),
        formula=lambda g, q, y: (g / len(q) * (q - y), -g / len(q) * (q - y)),
    ),
    "logcosh_loss": Program(
        f=logcosh_loss,
        args=(SCORES, ANY),
        oracle=mean(lambda q, y: math.log(math.cosh(q - y))),
        formula=lambda g, q, y: (g / len(q) * np.tanh(q - y), -g / len(q) * np.tanh(q - y)),
    ),
    "logcosh_loss of 1e3": Program(
        f=logcosh_loss,
        args=(np.array([[1e3], [-1e3], [0.0], [2e3]]), np.array([[0.0], [0.0], [0.0], [1e3]])),
        oracle=lambda q, y: np.float64(3 * (1e3 - math.log(2)) / 4),
        formula=lambda g, q, y: (g / len(q) * np.tanh(q - y), -g / len(q) * np.tanh(q - y)),
    ),
    "l1_reg": Program(
        f=l1_reg,
        args=(SCORES,),
        oracle=lambda x, strength: np.float64(sum(strength * abs(v) for v in x.ravel())),
        formula=lambda g, x, strength: (g * strength * np.sign(x),),
        options={"strength": 0.3},
    ),
    "l2_reg": Program(
        f=l2_reg,
        args=(SCORES,),
        oracle=lambda x, strength: np.float64(sum(strength / 2 * v * v for v in x.ravel())),
        formula=lambda g, x, strength: (g * strength * x,),
        options={"strength": 0.3},
    ),
}


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_program(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_log_loss_of_far_scores(dtype: Any) -> None:
    x, y = np.array([[800.0], [800.0], [-800.0], [-800.0]], dtype), np.array([[1.0], [0.0], [1.0], [0.0]], dtype)
    value, slope = pb.value_and_grad(log_loss_of_scores)(x, y)
    assert value == 400
    np.testing.assert_array_equal(slope, np.array([[0.0], [0.25], [-0.25], [0.0]]))


def test_shortcut_of_softmax_cross_entropy() -> None:
    """(p - y) g/N, as SystemDS has it, is right only where the rows of y sum to 1 and the epsilon does not count."""
    for y, right in ((LABELS, True), (ANY, False)):
        _, (result, _) = gradients(softmax_cross_entropy, np.float64(0.7), SCORES, y)
        error = np.max(np.abs(result - 0.7 / len(y) * (softmax(SCORES) - y)))
        assert (error < 1e-6) == right


def test_softmax2d_and_its_loss_as_published() -> None:
    """Figures of Apache SystemDS: maps of 0 and 10, each pixel with one or two tens, and striped labels."""
    tens = [["110", "100", "100"], ["010", "010", "010"], ["001", "001", "001"]]
    maps = np.array([[[[10.0 * int(digit) for digit in row] for row in channel] for channel in tens]] * 2)
    p = pb.jit(softmax2d)(maps)
    one, none, two, beside = 0.9999092084, 0.0000453958, 0.4999886503, 0.0000226995
    first = [[one, two, none], [one, none, none], [one, none, none]]
    middle = [[none, two, none], [none, one, none], [none, one, none]]
    last = [[none, beside, one], [none, none, one], [none, none, one]]
    np.testing.assert_allclose(p, [[first, middle, last]] * 2, rtol=0, atol=6e-11)
    labels = np.zeros((2, 3, 3, 3))
    for c in range(3):
        labels[:, c, :, c] = 1
    assert round(float(pb.jit(cross_entropy2d)(p, labels)), 10) == 0.0770995828


def test_softmax_with_its_gradient_takes_one_exponential() -> None:
    """And two sums: the maximum, which the result does not depend on, has no part in the gradient."""
    weights = cotangent(SCORES)
    text = pb.jit(lambda s: pb.vjp(softmax, s)[1](weights)).stages(SCORES)["simplify"]
    assert (text.count("= exp "), text.count("= sum "), text.count("= eq ")) == (1, 2, 0)


def test_logsumexp_shares_its_exponential() -> None:
    text = pb.value_and_grad(lambda s: np.sum(logsumexp(s) ** 2)).stages(SCORES)["simplify"]
    assert text.count("= exp ") == 1
