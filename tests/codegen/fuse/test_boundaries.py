"""The stage ``fuse`` says of every operand that another kernel computes why it is another."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir import OPS
from pullback.ir.ops.array.create import Constant, Count
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.text import parse_module

X, W, V = np.linspace(-1, 1, 80).reshape(20, 4), np.linspace(0, 1, 12).reshape(4, 3), np.linspace(0.5, 2, 20)


def notes(f: Callable[..., Any], *args: Any) -> list[str]:
    """What is said in the dump, in order. It can be read, and nothing that another step computes is without a word."""
    text = pb.jit(f).stages(*args)["fuse"]
    parse_module(text)
    said: dict[str, str] = {}
    built: set[str] = set()
    result = []
    for line in (line.strip() for line in text.splitlines() if re.match(r"  [%#]", line)):
        if line.startswith("#"):
            name, _, reason = line[2:].partition(": ")
            said[name] = reason
            continue
        results, _, rest = line.partition(" = ")
        op, _, operands = re.split(r" [{(]", rest)[0].partition(" ")
        assert built & set(re.findall(r"%\w+", operands)) == set(said), line
        is_kernel = not (isinstance(OPS[op], Reindex) and OPS[op].view) and not isinstance(OPS[op], Constant | Count)
        built |= set(re.findall(r"(%\w+):", results)) if is_kernel else set()
        result += said.values()
        said = {}
    return result


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "one kernel": (lambda v: np.sum(np.exp(v) * v), (V,), []),
    "rows": (lambda x: np.exp(x - np.max(x, axis=1, keepdims=True)) / np.sum(x, axis=1, keepdims=True), (X,), []),
    "product": (lambda x, w: np.tanh(x @ w), (X, W), ["contract has a kernel of its own"]),
    "of a product": (lambda x, w: np.tanh(x) @ w, (X, W), ["contract has a kernel of its own"]),
    "whole sum": (lambda v: v - np.mean(v), (V,), ["sub needs all of a reduction that ends with its kernel"]),
    "sum over rows": (lambda x: x - np.sum(x, axis=0), (X,), ["sub needs all of a reduction that ends with its kernel"]),
    "mirrored": (lambda v: np.exp(v) * np.exp(v)[::-1], (V,), ["mul reads it at other places than its own"]),
    "computed again": (lambda v: (v * 2.0) * (v * 2.0)[::-1], (V,), []),
    "sorted": (lambda v: np.sort(v) - np.sort(v)[0], (V,), ["sort has a kernel of its own"]),
    "at other places": (lambda v: np.cumsum(v)[::-1] * v, (V,), ["mul reads it at other places than its own"]),
    "two orders": (lambda v: np.cumsum(np.cumsum(v)), (V,), ["cumsum visits the elements in an order of its own"]),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons(name: str) -> None:
    function, args, expected = CASES[name]
    assert notes(function, *args) == expected


def long_chain(x: Any) -> Any:
    for k in range(400):
        x = np.maximum(x * 1.5 - k, 0.5 * x + 1.0)
    return np.sum(x), x


def test_size() -> None:
    assert "one kernel would have more than 1,000 instructions" in notes(pb.jit(long_chain, loops="unroll"), V)


def test_gradients_and_loops() -> None:
    def step(c: Any, v: Any) -> Any:
        c = np.tanh(c @ W.T @ W) + np.sum(c) * v
        return c, np.sum(c, axis=0)

    def loss(c: Any) -> Any:
        c, ys = pb.scan(step, c, V)
        return np.sum(c * c) + np.sum(np.sort(ys, axis=0))

    step_by_step = pb.value_and_grad(loss)
    assert "scan has a kernel of its own" in notes(step_by_step, np.ones((2, 3)))
    inside = [line.strip() for line in step_by_step.stages(np.ones((2, 3)))["fuse"].splitlines() if line.startswith("    #")]
    assert any(line.endswith(": contract has a kernel of its own") for line in inside)
