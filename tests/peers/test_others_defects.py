"""Gradients that other systems got wrong, ours right: against differences, the formula, and the wrong one, at orders 1 and 2."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.tables.others_defects import ENTRIES, Entry, differences


@pytest.mark.parametrize("entry", ENTRIES, ids=[f"{e.system}-{e.name}" for e in ENTRIES])
def test_ours_is_right_where_theirs_is_not(entry: Entry) -> None:
    rng = np.random.default_rng(7)
    inputs = entry.make(rng)
    arguments, wrt = list(inputs.arguments), inputs.wrt
    ct = rng.normal(size=np.shape(inputs.program(*arguments)))
    weights = [rng.normal(size=arguments[k].shape) for k in wrt]

    def loss(*values: Any) -> Any:
        return np.sum(ct * inputs.program(*values))

    def first(*values: Any) -> Any:
        return pb.grad(loss, argnums=wrt)(*values)

    def slope(*values: Any) -> Any:
        return sum(np.sum(w * g) for w, g in zip(weights, first(*values)))

    def both(*values: Any) -> Any:
        return first(*values), pb.grad(slope, argnums=wrt)(*values) if inputs.has_second else None

    result, second = pb.jit(both)(*arguments)
    wrongs = inputs.wrong(*arguments, ct)
    for gradient, e in zip(result, differences(inputs.program, arguments, wrt, ct), strict=True):
        np.testing.assert_allclose(gradient, e, rtol=0, atol=1e-6 * (1 + np.max(np.abs(e))))
    assert any(np.max(np.abs(g - w)) > 1e-2 * (1 + np.max(np.abs(g))) for g, w in zip(result, wrongs, strict=True))
    if inputs.right is not None:
        for gradient, e in zip(result, inputs.right(*arguments, ct), strict=True):
            np.testing.assert_allclose(gradient, e, rtol=1e-10, atol=1e-12)
    if inputs.has_second:
        ours = pb.jit(slope)
        for gradient, e in zip(second, differences(ours, arguments, wrt, 1.0, 1e-5), strict=True):
            np.testing.assert_allclose(gradient, e, rtol=0, atol=1e-5 * (1 + np.max(np.abs(e))))


def test_names_are_unique() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_a_gradient_is_the_same_in_every_run() -> None:
    x = np.random.default_rng(0).normal(size=(50, 70))
    gradient = pb.grad(lambda x: np.sum(np.sin(np.sum(x * x, axis=1, keepdims=True))))
    assert len({gradient(x).tobytes() for _ in range(20)}) == 1
