"""Control flow: what branches and loops give beside what plain Python gives, and the errors of those that do not fit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from control_programs import PROGRAMS, XS, W, collatz, matrix_powers
from tracing import run

import pullback as pb
from pullback.uncompiled import in_python


def plain(program: Callable[..., Any], *args: Any) -> Any:
    """What a program gives whose branches and loops run in plain Python."""
    with in_python(), np.errstate(all="ignore"):
        return program(*args)


def agrees(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Equal trees of equal types and values."""
    assert pb.tree.structure(found) == pb.tree.structure(expected)
    for x, y in zip(map(np.asarray, pb.tree.leaves(found)), map(np.asarray, pb.tree.leaves(expected)), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_plain_python(name: str) -> None:
    program, args = PROGRAMS[name]
    before = copy.deepcopy(args)
    expected = plain(program, *copy.deepcopy(args))
    agrees(run(program, *args), expected, 1e-13)
    agrees(pb.jit(program)(*args), expected, 1e-12)
    agrees(args, before)


def test_plain_runs_are_loops_of_python() -> None:
    steps, n = 0, 27
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    assert plain(collatz, 27) == steps == 111
    total, running = plain(lambda xs: pb.scan(lambda t, x: (t + x, t + x), 0.0, xs), XS)
    np.testing.assert_array_equal(running, np.cumsum(XS))
    assert total == running[-1]
    products = [W, W.T @ W, (W + 1) @ (W.T @ W), (W - 1) @ ((W + 1) @ (W.T @ W)), W @ ((W - 1) @ ((W + 1) @ (W.T @ W)))]
    np.testing.assert_allclose(plain(matrix_powers, W), np.stack(products), rtol=1e-13)
