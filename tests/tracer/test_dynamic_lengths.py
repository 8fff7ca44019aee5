"""Extents by value next to the symbolic extents of `pb.jit(dynamic=True)`: what is computed of both is NumPy's, for all sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def appended(x: Any) -> Any:
    kept = []
    for v in x:
        if v > 0:
            kept.append(v * 2)
    return np.array(kept), len(kept)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a slice as long as a value": lambda x: x[: np.argmax(x)],
    "a slice from a value": lambda x: x[np.argmax(x) :],
    "slices of several arrays": lambda x: (x[: np.argmax(x)], np.append(x, x)[: np.argmax(x)], x[: len(x) // 2]),
    "a sum of extents": lambda x: (np.append(x[x > 0], x), np.concatenate([x[x > 0], x, x[x > 1]])[::2]),
    "a product of extents": lambda x: (np.outer(x[x > 0], x), np.outer(x, x[x > 0]).ravel(), np.tile(x[x > 0], len(x))),
    "numbers of both": lambda x: [op(x[x > 0].size, len(x)) for op in (np.add, np.multiply, np.less, np.equal, np.floor_divide)],
    "an extent bounded by another": lambda x: (x[x > 0][: len(x) // 2], np.sort(x[x > 0])[-len(x) :], np.roll(x[x > 0], len(x))),
    "padding": lambda x: np.pad(x[x > 0], (len(x) // 2, 0)),
    "equal numbers": lambda x: (x[x > -9] + x, np.reshape(np.append(x[x > 0], x[x <= 0]), (len(x), 1))),
    "an axis that follows from another": lambda x: np.reshape(np.outer(x, x[x > 0]), (-1, len(x))),
    "a list": appended,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_numpys(name: str) -> None:
    program = PROGRAMS[name]
    compiled = pb.jit(program, dynamic=True)
    for n in (4, 7, 12, 30, 4):
        x = np.random.default_rng(n).normal(size=n)
        results, expected = pb.tree.leaves(compiled(x)), pb.tree.leaves(program(x))
        assert [np.shape(r) for r in results] == [np.shape(e) for e in expected]
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["a slice as long as a value", "a sum of extents", "equal numbers"])
def test_gradients_are_those_of_other_traces(name: str) -> None:
    def loss(x: Any) -> Any:
        return sum(np.sum(np.sin(leaf) * (k + 1)) for k, leaf in enumerate(pb.tree.leaves(PROGRAMS[name](x))))

    gradient, compiled = pb.grad(loss), pb.jit(pb.grad(loss), dynamic=True)
    for n in (4, 7, 30):
        x = np.random.default_rng(n).normal(size=n)
        np.testing.assert_allclose(compiled(x), gradient(x), rtol=1e-12)
