"""Forward mode and batching through NumPy functions: <ct, J t> = <J^T ct, t>, and a batch is a stack of calls."""

import warnings
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.numpy_calls import JOINING, PRODUCTS, READS, REDUCTIONS, SHAPES, STATISTICS, Call, X, leaves

CALLS: list[tuple[Call, list[Any]]] = [
    *[(call, [X]) for call in REDUCTIONS + STATISTICS],
    *[(call, [x]) for call, x in [*SHAPES, *JOINING, *READS]],
    *PRODUCTS,
]


@pytest.mark.long
@pytest.mark.parametrize(("call", "xs"), CALLS)
def test_forward_agrees_with_reverse(call: Call, xs: list[Any]) -> None:
    rng = np.random.default_rng(3)
    tangents = [rng.normal(size=np.shape(x)) for x in xs]
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        value, pull = pb.vjp(call, *xs)
        _, moved = pb.jvp(call, tuple(xs), tuple(tangents))
        flat, structure = pb.tree.flatten(value)
        finite = [np.isfinite(y) if np.asarray(y).dtype.kind == "f" else None for y in flat]
        cts = [None if f is None else rng.normal(size=np.shape(f)) * f for f in finite]
        pulled = pull(pb.tree.unflatten(structure, cts)) if flat else [np.zeros(np.shape(x)) for x in xs]
    known = [(f, c) for f, c in zip(finite, cts, strict=True) if f is not None]
    left = sum(float(np.sum(np.where(f, t, 0) * c)) for t, (f, c) in zip(pb.tree.leaves(moved), known, strict=True))
    right = sum(float(np.sum(g * t)) for g, t in zip(pulled, tangents, strict=True))
    is_single = any(np.asarray(y).dtype == np.float32 for y in flat)
    assert left == pytest.approx(right, rel=1e-5 if is_single else 1e-10, abs=1e-5 if is_single else 1e-10)


@pytest.mark.long
@pytest.mark.parametrize(("call", "xs"), CALLS)
def test_a_batch_is_a_stack_of_calls(call: Call, xs: list[Any]) -> None:
    rows = [[x + 0.0 for x in xs], [x * 1.25 + 0.1 for x in xs]]
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        expected = [leaves(pb.jit(call)(*row)) for row in rows]
        result = leaves(pb.vmap(call)(*[np.stack(column) for column in zip(*rows, strict=True)]))
    for value, *each in zip(result, *expected, strict=True):
        np.testing.assert_allclose(value, np.stack(each), rtol=1e-6 if value.dtype == np.float32 else 1e-11, atol=1e-11)
