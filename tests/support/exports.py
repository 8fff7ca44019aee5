"""What tests of exports share: models with their arguments, and what must be on the machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.runtime.compile import linker
from pullback.tree import leaves

Array = np.ndarray[Any, Any]
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_linker = pytest.mark.skipif(linker.find_linker() is None, reason="no linker is on this machine")
needs_compiler = pytest.mark.skipif(CC is None, reason="no C compiler is on this machine")

RNG = np.random.default_rng(5)
WEIGHTS = RNG.normal(size=(3, 4))
LARGE = RNG.normal(size=30_000)
SHIFT = 2.5


class Pair(NamedTuple):
    first: Any
    second: Any


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape)


def loss(w: Array, x: Array, y: Array) -> Any:
    """The mean logistic loss.

    w: weights of */ columns
    """
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z)


def network(p: dict[str, Array], x: Array) -> Any:
    return np.tanh(x @ p["w"] + p["b"]).sum()


def root(x: Any) -> Any:
    def body(c: Any) -> Any:
        y = c[0] - (c[0] ** 2 - x) / (2 * c[0])
        return y, abs(y * y - x)

    return pb.while_loop(lambda c: c[1] > 1e-10, body, (x, 1.0))[0]


def recurrent(a: Array, xs: Array) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(a * h + x)
        return h, h * 2

    return pb.scan(step, 0.0 * a, xs)


def saving(x: Array) -> Any:
    return pb.while_loop(lambda c: c[1] < 5.0, lambda c: (c[0] * 1.1 + x, c[1] + 1.0), (x, 0.0))[0].sum()


def same(result: Any, expected: Any) -> None:
    """Equal to the bit, of the same types."""
    for a, b in zip(leaves(result), leaves(expected), strict=True):
        assert type(a) is type(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)


Case = tuple[Callable[..., Any], tuple[Any, ...], list[tuple[Any, ...]]]
CASES: dict[str, Case] = {
    "gradient": (
        pb.value_and_grad(loss), ("f64[k]", "f64[n,k]", "f64[n]"),
        [(normal(3), normal(1000, 3), normal(1000)), (normal(1), normal(1, 1), normal(1)), (normal(2), normal(0, 2), normal(0))],
    ),
    "containers": (
        pb.value_and_grad(network), ({"w": "f64[k,m]", "b": "f64[m]"}, "f64[n,k]"),
        [({"w": normal(3, 4), "b": normal(4)}, normal(6, 3)), ({"w": normal(64, 80), "b": normal(80)}, normal(300, 64))],
    ),
    "while": (root, ("f64[]",), [(np.float64(2.0),), (np.float64(9.0),)]),
    "while gradient": (pb.grad(root), ("f64[]",), [(np.float64(2.0),)]),
    "saved by a while": (pb.value_and_grad(saving), ("f64[n]",), [(normal(4),), (normal(2000),), (normal(0),)]),
    "scan": (
        recurrent, ("f64[d]", "f64[t,d]"),
        [(normal(3), normal(10, 3)), (normal(40), normal(100, 40)), (normal(3), normal(0, 3))],
    ),
    "scan gradient": (
        pb.grad(lambda a, xs: recurrent(a, xs)[1].sum()), ("f64[d]", "f64[t,d]"), [(normal(3), normal(9, 3))],
    ),
    "outside": (lambda x: x @ WEIGHTS + SHIFT, ("f64[n,3]",), [(normal(5, 3),)]),
    "large outside": (lambda x: (x * LARGE).sum() + x[0], ("f64[30000]",), [(normal(30_000),)]),
    "threads": (lambda x: (np.sin(x).sum(), np.cos(x)), ("f64[n]",), [(normal(500_000),), (normal(10),)]),
    "solve": (
        pb.value_and_grad(lambda a, b: np.linalg.solve(a, b).sum()), ("f64[n,n]", "f64[n]"),
        [(normal(5, 5), normal(5)), (normal(60, 60), normal(60))],
    ),
    "product f32": (
        lambda a, b: a @ b, ("f32[n,k]", "f32[k,m]"), [(normal(200, 300).astype("f4"), normal(300, 90).astype("f4"))],
    ),
    "sort": (np.sort, ("f64[n]",), [(normal(10),), (normal(5000),)]),
    "ufunc": (lambda x: scipy.special.jv(1.5, np.abs(x)), ("f64[n]",), [(normal(10),)]),
    "complex": (lambda x: (x * 1j * x.conj(), np.abs(x)), ("c128[n]",), [(normal(4) + 1j * normal(4),)]),
    "complex scalar": (lambda x, z: x * z, ("f64[n]", "c128[]"), [(normal(4), np.complex128(1 + 2j))]),
    "bool": (lambda x: (x > 0, np.where(x > 0, x, 1)), ("f64[n]",), [(normal(4),)]),
    "results in a dict": (lambda x: {"a": x + 1, "b": (x.sum(), [x])}, ("f64[n]",), [(normal(4),)]),
    "results twice": (lambda x, y: (x, y, x + y, x + y), ("f64[n]", "f64[n]"), [(normal(4), normal(4))]),
    "nothing to compute": (lambda x: (x, x), ("f64[n]",), [(normal(4),)]),
    "numbers": (lambda x, rate, k: x * rate + k, ("f32[n]", 0.5, 3), [(normal(4).astype("f4"), 0.25, -7)]),
    "static": (lambda x, mode: x * 2 if mode == "a" else x, ("f64[n]", "a"), [(normal(4), "a")]),
    "namedtuple": (
        lambda p: Pair(p.first + p.second, p.first.mean()), (Pair("f64[n]", "f64[n]"),), [(Pair(normal(4), normal(4)),)],
    ),
    "ramps": (
        lambda x: x * np.arange(len(x)) + np.arange(len(x), dtype="f4") * 0.1, ("f64[n]",),
        [(normal(4),), (normal(9),), (normal(5000),)],
    ),
    "a diagonal": (np.linalg.inv, ("f64[n,n]",), [(normal(4, 4),), (normal(1, 1),), (normal(90, 90),), (normal(300, 300),)]),
    "other diagonals": (
        lambda x: x @ np.eye(len(x), len(x) + 1, k=1) + np.eye(len(x) + 1)[0], ("f32[n]",),
        [(normal(4).astype("f4"),), (normal(1000).astype("f4"),)],
    ),
    "zeros": (lambda x: np.zeros(len(x)) + x.mean(), ("f64[n]",), [(normal(4),), (normal(9),), (normal(1000),)]),
    "half": (lambda x: x[: len(x) // 2].sum() + x.std(ddof=1), ("f64[n]",), [(normal(14),), (normal(9),)]),
    "root of a size": (lambda x: x.sum() / np.sqrt(len(x)), ("f64[n]",), [(normal(14),), (normal(16),), (normal(1),)]),
    "pairs": (lambda x, y: np.exp(-((x[:, None] - y[None]) ** 2)).sum(0), ("f64[n]", "f64[m]"), [(normal(40), normal(30))]),
    "stencil": (lambda u: np.roll(u, 1, 0) + np.roll(u, -1, 1) - 4 * u, ("f64[n,m]",), [(normal(40, 50),)]),
    "hessian": (pb.hessian(lambda w, x: (np.tanh(x @ w) ** 2).mean()), ("f64[k]", "f64[n,k]"), [(normal(3), normal(7, 3))]),
    "branch": (lambda x: pb.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, x), ("f64[n]",), [(normal(3),), (-normal(4),)]),
    "f16": (lambda x, s: x * s, ("f16[n]", "f16[]"), [(normal(4).astype("f2"), np.float16(1.5))]),
}  # fmt: skip
