"""The small networks, compared with the same layers with gradients by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layers import networks

import pullback as pb
from tests.acceptance import by_hand
from tests.acceptance.by_hand import Tape
from tests.acceptance.checks import Program, check, draw, gradients, in_dtypes

Array = Any
KEY, KEEP = pb.random.key(3), 0.5


def coins(*shape: int) -> Array:
    """What dropout multiplies by."""
    return np.asarray(pb.random.bernoulli(KEY, KEEP, shape)) / KEEP


def l2(x: Array, y: Array) -> Any:
    return np.sum((x - y) ** 2) / (2 * len(x)), lambda ct: (ct * (x - y) / len(x), ct * (y - x) / len(x))


def two_layers(tape: Tape, x: Array, y: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    hidden = tape(by_hand.relu, tape(by_hand.affine, x, w1, b1))
    return tape(l2, tape(by_hand.affine, hidden, w2, b2), y)


def feed_forward(tape: Tape, x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    hidden = tape(by_hand.relu, tape(by_hand.affine, x, w1, b1))
    hidden = tape(by_hand.times, hidden, coins(*hidden.shape))
    return tape(by_hand.sigmoid, tape(by_hand.affine, hidden, w2, b2))


def lenet_scores(tape: Tape, x: Array, *params: Array, dropout: bool = True) -> Array:
    w1, b1, w2, b2, w3, b3, w4, b4 = params
    for w, b in ((w1, b1), (w2, b2)):
        x = tape(by_hand.max_pool, tape(by_hand.relu, tape(by_hand.conv2d, x, w, b, pad=1)))
    hidden = tape(by_hand.relu, tape(by_hand.affine, tape(by_hand.flat, x), w3, b3))
    if dropout:
        hidden = tape(by_hand.times, hidden, coins(*hidden.shape))
    return tape(by_hand.affine, hidden, w4, b4)


def lenet(tape: Tape, x: Array, *params: Array) -> Array:
    return tape(by_hand.softmax, lenet_scores(tape, x, *params))


def softmax_classifier(tape: Tape, x: Array, y: Array, w: Array, b: Array) -> Array:
    scores = tape(by_hand.affine, x, w, b)
    return tape(lambda s: by_hand.cross_entropy(s, y), scores)


def two_biases(tape: Tape, x: Array, b1: Array, b2: Array) -> Array:
    product = tape(lambda s, x: (s * x, lambda ct: (ct * x, ct * s)), tape(by_hand.add, x, b1), x)
    return tape(by_hand.add, product, b2)


LENET = ((5, 2, 8, 4), (3, 2, 3, 3), (3,), (4, 3, 3, 3), (4,), (8, 6), (6,), (6, 4), (4,))
LABELS = np.eye(4)[[0, 2, 1, 1, 3]]
NETWORKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, tuple[int, ...]]] = {
    "two_layer_affine_l2_net": (
        lambda x, y, *p: networks.two_layer_affine_l2_net(p, x, y),
        two_layers,
        draw((1000, 100), (1000, 5), (100, 10), (10,), (10, 5), (5,)),
        (),
    ),
    "feed_forward": (
        lambda x, *p: networks.feed_forward(p, x, key=KEY),
        feed_forward,
        draw((6, 5), (5, 8), (8,), (8, 3), (3,)),
        (),
    ),
    "lenet": (lambda x, *p: networks.lenet(p, x, key=KEY), lenet, draw(*LENET), ()),
    "softmax_classifier": (
        lambda x, y, *p: networks.softmax_classifier(p, x, y),
        softmax_classifier,
        [*draw((5, 7)), LABELS, *draw((7, 4), (4,), seed=1)],
        (1,),
    ),
    "two_biases": (networks.two_biases, two_biases, draw((4, 3), (4, 3), (4, 3)), ()),
}


def program(name: str) -> Program:
    f, oracle, args, data = NETWORKS[name]

    def taped(*args: Array) -> tuple[Tape, Array]:
        tape = Tape()
        return tape, oracle(tape, *args)

    return Program(
        f=f,
        args=tuple(args),
        oracle=lambda *args: taped(*args)[1],
        formula=lambda ct, *args: taped(*args)[0].gradients(ct, [a for k, a in enumerate(args) if k not in data]),
        data=data,
        cancels=0.1,
    )


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(NETWORKS))
def test_network(name: str, dtype: Any) -> None:
    check(program(name), dtype)


def test_a_value_of_two_readers() -> None:
    value, result = gradients(networks.two_biases, 2.0, 0.0, -1.0, 2.0)
    assert (float(value), [float(g) for g in result]) == (2.0, [-2.0, 0.0, 2.0])
