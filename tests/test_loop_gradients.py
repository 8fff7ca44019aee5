"""Derivatives of loops and branches: each program beside itself unrolled in Python, through transforms of any order and kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loops import PROGRAMS, Compiled, Recorded
from tracing import run

import pullback as pb

Function = Callable[..., Any]


def weights(like: Any, seed: int) -> Any:
    return pb.tree.map(lambda x: 1 + 0.5 * np.cos(seed * np.arange(1.0, x.size + 1).reshape(x.shape)), like)


def dot(left: Any, right: Any) -> Any:
    return sum(np.sum(a * b) for a, b in zip(pb.tree.leaves(left), pb.tree.leaves(right), strict=True))


def grad(f: Function) -> Function:
    return lambda *args: pb.grad(f, argnums=tuple(range(len(args))))(*args)


def along(f: Function) -> Function:
    return lambda *args: pb.jvp(f, args, tuple(weights(args, 1)))[1]


def of_gradient(f: Function) -> Function:
    """The gradient as one number."""
    return lambda *args: dot(grad(f)(*args), weights(args, 2))


ROWS = np.array([0.0, 0.11, -0.17])


def rows(x: Any, k: int | None = None) -> Any:
    """Arguments for each row, or for one."""
    found = [x + shift for shift in ROWS]
    return np.stack(found) if k is None else found[k]


def batched(f: Callable[[int | None], Function]) -> Function:
    return lambda *args: np.sum(pb.vmap(f(None))(*(rows(x) for x in args)) * np.cos(ROWS))


def one_by_one(f: Callable[[int | None], Function]) -> Function:
    return lambda *args: sum(f(k)(*(rows(x, k) for x in args)) * np.cos(ROWS)[k] for k in range(len(ROWS)))


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "value": lambda f: f,
    "grad": grad,
    "jvp": along,
    "grad of grad": lambda f: grad(of_gradient(f)),
    "jvp of grad": lambda f: along(of_gradient(f)),
    "grad of jvp": lambda f: grad(along(f)),
    "order 3": lambda f: grad(of_gradient(of_gradient(f))),
}
BY_ROWS: dict[str, tuple[Callable[[Function], Function], Callable[[Function], Function]]] = {
    "vmap": (lambda f: f, lambda f: f),
    "vmap of grad": (lambda f: f, of_gradient),
    "grad of vmap": (grad, lambda f: f),
    "vmap of grad of grad": (lambda f: f, lambda f: of_gradient(of_gradient(f))),
    "grad of vmap of grad": (grad, of_gradient),
    "grad of grad of vmap": (lambda f: grad(of_gradient(f)), lambda f: f),
    "jvp of vmap of grad": (along, of_gradient),
}  # fmt: skip


def agree(found: Any, expected: Any) -> None:
    for x, y in zip(pb.tree.leaves(found), pb.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_unrolled(program: str, transform: str) -> None:
    function, *args = PROGRAMS[program]
    plain = Recorded()
    with np.errstate(all="ignore"):
        value = function(plain, *args)
    looped = run(TRANSFORMS[transform](lambda *a: function(Compiled, *a)), *args)
    if transform == "value":
        agree(looped, value)
    else:
        agree(looped, run(TRANSFORMS[transform](lambda *a: function(plain.replay(), *a)), *args))


@pytest.mark.parametrize("transform", BY_ROWS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_as_one_by_one(program: str, transform: str) -> None:
    function, *args = PROGRAMS[program]
    outer, inner = BY_ROWS[transform]
    plain = [Recorded() for _ in ROWS]
    with np.errstate(all="ignore"):
        for k, c in enumerate(plain):
            function(c, *(rows(x, k) for x in args))
    looped = run(outer(batched(lambda k: inner(lambda *a: function(Compiled, *a)))), *args)
    agree(looped, run(outer(one_by_one(lambda k: inner(lambda *a: function(plain[k].replay(), *a)))), *args))
