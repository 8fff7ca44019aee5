"""Random programs of control flow: values against plain Python, derivatives against the same program unrolled.

The unrolled program is traced with ``guards=True``: Python's own branches and loops, which follow the values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.fuzz.control_flow import Compiled, Plain, Program

WRT = (0, 1, 3, 4)
SHORT = 12
"""Hessians are taken of programs of fewer steps."""


def arguments(seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed + 10**6)
    a, s, k = rng.normal(size=3) * 0.7, float(rng.normal() * 0.7), int(rng.integers(0, 5))
    return a, s, k, rng.normal(size=(3, 3)) * 0.6, rng.normal(size=(4, 3)) * 0.8


def close(result: Any, expected: Any, what: str) -> None:
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-9, err_msg=what)


def unrolled(transformed: Any, *arguments: Any) -> Any:
    return pb.jit(transformed, guards=True, device="cpu")(*arguments)


def check(seed: int, depth: int = 2) -> None:
    """Run the program of a seed. Raises AssertionError where two ways to compute the same thing differ."""
    program, inputs = Program(seed, depth), arguments(seed)
    f, plain = program(Compiled), program(Plain)
    with np.errstate(all="ignore"):
        expected = plain(*inputs)
    close([pb.jit(f)(*inputs)], [expected], "value")
    gradient = pb.grad(f, argnums=WRT)(*inputs)
    close(gradient, unrolled(pb.grad(plain, argnums=WRT), *inputs), "gradient")
    along_a_direction(f, inputs, gradient, seed)
    if seed % 3 == 0:
        second = pb.grad(pb.grad(f, argnums=1), argnums=1)
        close([second(*inputs)], [unrolled(pb.grad(pb.grad(plain, argnums=1), argnums=1), *inputs)], "second derivative")
    elif seed % 3 == 1:
        of_rows(f, inputs, seed)
    elif len(program.text) < SHORT:
        matrix = pb.hessian(lambda a: f(a, *inputs[1:]))(inputs[0])
        close([matrix], [unrolled(pb.hessian(lambda a: plain(a, *inputs[1:])), inputs[0])], "Hessian")


def along_a_direction(f: Any, arguments: Any, gradient: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, s, k, w, xs = arguments
    primals = (a, s, w, xs)
    tangents = tuple(rng.normal(size=np.shape(x)) if np.shape(x) else float(rng.normal()) for x in primals)
    _, moved = pb.jvp(lambda a, s, w, xs: f(a, s, k, w, xs), primals, tangents)
    close([moved], [sum(np.sum(g * t) for g, t in zip(gradient, tangents, strict=True))], "jvp")


def of_rows(f: Any, arguments: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, s, k = rng.normal(size=(3, 3)), rng.normal(size=3), np.array([arguments[2], 0, 3])
    axes = (0, 0, 0, None, None)
    by = pb.grad(f, argnums=(0, 1))
    rows = [by(a[i], s[i], k[i], *arguments[3:]) for i in range(3)]
    each = [np.stack(column) for column in zip(*rows, strict=True)]
    close(pb.vmap(by, in_axes=axes)(a, s, k, *arguments[3:]), each, "vmap of grad")
    total = pb.grad(lambda a, s: np.sum(pb.vmap(f, in_axes=axes)(a, s, k, *arguments[3:])), argnums=(0, 1))
    close(total(a, s), each, "grad of vmap")


@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 6))])
def test_programs(seed: int) -> None:
    check(seed, 1 + seed % 2)


def test_what_failed_once() -> None:
    """121: rows of a kernel that looks numbers up in a matrix, of which no pass walks the elements."""
    check(121)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_more_programs(seed: int) -> None:
    check(seed)
