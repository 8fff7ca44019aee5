"""Calls of NumPy functions, as tables that several tests share, and how a call is traced, interpreted and compared."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.verify import verify
from pullback.tracer import trace, unflatten
from tests.support.versions import known

Call = Callable[..., Any]


def run(function: Call, *arguments: Any) -> list[Any]:
    """The results of tracing and interpreting a call."""
    traced = trace(function, arguments)
    verify(traced.function)
    inputs = traced.arguments(arguments)
    assert inputs is not None
    return leaves(unflatten(traced.out_tree, interpret(traced.function, *inputs)))


def leaves(result: Any) -> list[Any]:
    if isinstance(result, tuple | list):
        return [leaf for r in result for leaf in leaves(r)]
    return [result]


def check(function: Call, *arguments: Any, exact: bool = False) -> None:
    """A call gives what NumPy gives, interpreted and compiled."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        expected = leaves(known(function, *(a.copy() for a in arguments)))
    _compare(expected, run(function, *arguments), 0 if exact else 32)
    _compare(expected, leaves(pb.jit(function)(*arguments)), 2 if exact else 32)


def _compare(expected: list[Any], result: list[Any], epsilons: int) -> None:
    assert len(result) == len(expected)
    for e, f in zip(expected, result, strict=True):
        e, f = np.asarray(e), np.asarray(f)
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        if e.dtype.kind != "f":
            np.testing.assert_array_equal(f, e)
            continue
        tolerance = epsilons * float(np.finfo(e.dtype).eps)
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


def array(shape: Any = (3, 4), dtype: Any = float, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    d = np.dtype(dtype)
    if d.kind == "b":
        return rng.random(shape) < 0.5
    if d.kind in "iu":
        return rng.integers(0 if d.kind == "u" else -9, 10, shape).astype(d)
    return rng.normal(size=shape).astype(d)


def numbered(calls: list[Call]) -> Any:
    return [pytest.param(c, id=f"{k}") for k, c in enumerate(calls)]


REDUCTIONS: list[Call] = [
    lambda x: np.sum(x),
    lambda x: np.sum(x, axis=0),
    lambda x: x.sum(axis=(0, -1)),
    lambda x: x.sum(1, keepdims=True),
    lambda x: np.sum(x, axis=()),
    lambda x: np.sum(x, dtype=np.float64),
    lambda x: np.sum(x, axis=1, initial=3),
    lambda x: np.sum(x, axis=1, where=np.array([True, False, True, False])),
    lambda x: np.sum(x, where=x > 1),
    lambda x: np.sum(x, dtype=bool),
    lambda x: np.prod(x, axis=-1),
    lambda x: x.prod(axis=(1,), keepdims=True),
    lambda x: np.prod(x, axis=0, initial=2, where=x != 0),
    lambda x: np.mean(x),
    lambda x: np.mean(x, axis=0),
    lambda x: x.mean(axis=-1, keepdims=True),
    lambda x: np.mean(x, axis=1, where=np.array([[True], [False], [True]])),
    lambda x: np.mean(x, axis=1, where=x > -100),
    lambda x: np.mean(x, dtype=np.float32),
    lambda x: np.max(x),
    lambda x: np.max(x, axis=1),
    lambda x: np.amax(x, axis=(0, 1), keepdims=True),
    lambda x: x.max(axis=0, initial=1),
    lambda x: np.max(x, axis=0, initial=0, where=x > 2),
    lambda x: np.min(x),
    lambda x: x.min(axis=1, keepdims=True),
    lambda x: np.amin(x, initial=1, where=x < 2),
    lambda x: np.any(x),
    lambda x: np.any(x, axis=1),
    lambda x: np.any(x, axis=0, keepdims=True, where=x > 1),
    lambda x: x.all(),
    lambda x: np.all(x, axis=(0, 1)),
    lambda x: np.all(x, axis=-1, where=np.array([True, False, True, True])),
    lambda x: np.argmax(x),
    lambda x: np.argmax(x, axis=1),
    lambda x: x.argmin(axis=0),
    lambda x: np.argmin(x, axis=-1, keepdims=True),
    lambda x: np.argmax(x, keepdims=True),
    lambda x: np.count_nonzero(x),
    lambda x: np.count_nonzero(x, axis=1, keepdims=True),
    lambda x: np.cumsum(x),
    lambda x: np.cumsum(x, axis=1),
    lambda x: x.cumsum(axis=0, dtype=np.float64),
    lambda x: np.cumprod(x, axis=-1),
    lambda x: np.diff(x),
    lambda x: np.diff(x, axis=0),
    lambda x: np.diff(x, n=2, axis=1),
    lambda x: np.average(x),
    lambda x: np.average(x, axis=1),
    lambda x: np.average(x, axis=1, weights=np.array([1.0, 2.0, 3.0, 4.0])),
    lambda x: np.average(x, axis=0, weights=np.ones((3, 4)), returned=True),
    lambda x: np.average(x, axis=(1, 0), weights=np.arange(12.0).reshape(4, 3), keepdims=True),
    lambda x: np.maximum.reduce(x),
    lambda x: np.maximum.reduce(x, axis=1, initial=0),
    lambda x: np.add.reduce(x, axis=None),
    lambda x: np.multiply.reduce(x, axis=1, keepdims=True),
    lambda x: np.logical_or.reduce(x, axis=1),
    lambda x: np.logical_and.reduce(x),
    lambda x: np.add.accumulate(x, axis=1),
]
STATISTICS: list[Call] = [
    lambda x: np.var(x),
    lambda x: np.var(x, axis=0),
    lambda x: x.var(axis=(0, 1), ddof=1),
    lambda x: np.var(x, axis=1, keepdims=True, correction=1),
    lambda x: np.var(x, axis=1, where=np.array([True, True, False, True])),
    lambda x: np.var(x, axis=1, keepdims=True, mean=np.mean(x, axis=1, keepdims=True)),
    lambda x: np.std(x),
    lambda x: x.std(axis=-1, ddof=1.5),
    lambda x: np.std(x, dtype=np.float64),
]
NOT_FOR_BOOL: list[Call] = [
    lambda x: np.ptp(x),
    lambda x: np.ptp(x, axis=1, keepdims=True),
    lambda x: np.diff(x, prepend=0, append=x[:, :1]),
    lambda x: np.clip(x, 1, 3),
    lambda x: np.clip(x, None, 3),
    lambda x: np.clip(x, 2, None),
    lambda x: x.clip(1),
    lambda x: x.clip(max=2),
    lambda x: np.clip(x, min=1, max=2.5),
    lambda x: np.clip(x, x[:1], x[1:2]),
    lambda x: np.clip(x, 1, np.array([1, 2, 3, 4])),
    lambda x: np.sign(x),
]


X = array((3, 4))
V = array(5, seed=1)
CUBE = array((2, 3, 4), seed=2)
SQUARE = array((4, 4), seed=3)
WIDE = array((2, 1, 4), seed=4)

SHAPES: list[tuple[Call, Any]] = [
    (lambda x: np.reshape(x, (4, 3)), X),
    (lambda x: x.reshape(2, -1), X),
    (lambda x: x.reshape(-1), X),
    (lambda x: x.reshape((12,)), X),
    (lambda x: x.reshape(3, 1, 4), X),
    (lambda x: x.reshape(1, 3, 4, 1), X),
    (lambda x: x.reshape(2, 4), WIDE),
    (lambda x: x.reshape(6, 2, order="F"), X),
    (lambda x: np.reshape(x, -1, order="F"), CUBE),
    (lambda x: x.ravel(), CUBE),
    (lambda x: np.ravel(x, order="F"), X),
    (lambda x: x.flatten(), X),
    (lambda x: x.flatten("F"), X),
    (lambda x: x.T, CUBE),
    (lambda x: x.mT, CUBE),
    (lambda x: np.transpose(x, (1, 0, 2)), CUBE),
    (lambda x: x.transpose(2, 0, -2), CUBE),
    (lambda x: x.transpose((2, 0, 1)), CUBE),
    (lambda x: np.permute_dims(x, (2, 1, 0)), CUBE),
    (lambda x: np.matrix_transpose(x), CUBE),
    (lambda x: np.swapaxes(x, 0, -1), CUBE),
    (lambda x: x.swapaxes(1, 2), CUBE),
    (lambda x: np.moveaxis(x, 0, -1), CUBE),
    (lambda x: np.moveaxis(x, [0, 1], [-1, -2]), CUBE),
    (lambda x: np.rollaxis(x, 2), CUBE),
    (lambda x: np.rollaxis(x, 0, 3), CUBE),
    (lambda x: np.squeeze(x), WIDE),
    (lambda x: x.squeeze(1), WIDE),
    (lambda x: np.squeeze(x, axis=(-2,)), WIDE),
    (lambda x: np.expand_dims(x, 0), X),
    (lambda x: np.expand_dims(x, (0, -1)), X),
    (lambda x: np.broadcast_to(x, (2, 3, 4)), X),
    (lambda x: np.broadcast_to(x, (5, 2, 3, 4)), WIDE),
    (lambda x: np.broadcast_arrays(x, np.ones((2, 1, 1))), X),
    (lambda x: np.atleast_1d(x), X),
    (lambda x: np.atleast_2d(x), V),
    (lambda x: np.atleast_3d(x), V),
    (lambda x: np.atleast_3d(x), X),
    (lambda x: np.atleast_2d(x, x[0], x[0, 0]), X),
    (lambda x: np.flip(x), X),
    (lambda x: np.flip(x, 1), X),
    (lambda x: np.flip(x, (0, -1)), CUBE),
    (lambda x: np.flipud(x), X),
    (lambda x: np.fliplr(x), X),
    *[(lambda x, k=k: np.rot90(x, k), X) for k in range(-1, 4)],
    (lambda x: np.rot90(x, 1, (1, 2)), CUBE),
    (lambda x: np.roll(x, 2), X),
    (lambda x: np.roll(x, -5), X),
    (lambda x: np.roll(x, 1, axis=1), X),
    (lambda x: np.roll(x, (1, -1), axis=(0, 1)), X),
    (lambda x: np.roll(x, 2, axis=(0, 1)), X),
    (lambda x: np.roll(x, 0, axis=0), X),
    (lambda x: np.tile(x, 2), X),
    (lambda x: np.tile(x, (2, 1)), X),
    (lambda x: np.tile(x, (2, 3, 2)), X),
    (lambda x: np.tile(x, ()), X),
    (lambda x: np.repeat(x, 2), X),
    (lambda x: np.repeat(x, 3, axis=1), X),
    (lambda x: x.repeat([1, 0, 2], axis=0), X),
    (lambda x: np.repeat(x, 0, axis=0), X),
    (lambda x: np.pad(x, 1), X),
    (lambda x: np.pad(x, ((1, 2), (0, 3))), X),
    (lambda x: np.pad(x, (2, 1), constant_values=5), X),
    (lambda x: np.pad(x, 1, constant_values=((1, 2), (3, 4))), X),
    (lambda x: np.pad(x, ((1, 0), (2, 2)), mode="edge"), X),
    (lambda x: np.pad(x, 2, mode="reflect"), X),
    (lambda x: np.pad(x, (7, 9), mode="reflect"), V),
    (lambda x: np.pad(x, (2, 1), "symmetric"), X),
    (lambda x: np.pad(x, (3, 6), "wrap"), V),
    (lambda x: np.pad(x, 0), X),
    (lambda x: np.pad(x, {1: 2}), X),
    (lambda x: np.diagonal(x), X),
    (lambda x: x.diagonal(1), X),
    (lambda x: np.diagonal(x, -2), X),
    (lambda x: np.diagonal(x, 9), X),
    (lambda x: np.diagonal(x, 0, 0, 2), CUBE),
    (lambda x: np.diag(x), V),
    (lambda x: np.diag(x, 2), V),
    (lambda x: np.diag(x, -1), V),
    (lambda x: np.diag(x, 1), SQUARE),
    (lambda x: np.diagflat(x, 1), X),
    (lambda x: np.triu(x), X),
    (lambda x: np.triu(x, 1), CUBE),
    (lambda x: np.tril(x, -1), SQUARE),
    (lambda x: np.tril(x), V),
    (lambda x: np.trace(x), SQUARE),
    (lambda x: x.trace(1), X),
    (lambda x: np.trace(x, -1, 1, 2), CUBE),
    (lambda x: np.copy(x), X),
    (lambda x: x.copy(), X),
    (lambda x: x.astype(np.float32), X),
    (lambda x: x.astype("int8"), X),
    (lambda x: x.astype(bool), X),
    (lambda x: np.astype(x, np.int64), X),
]
JOINING: list[tuple[Call, Any]] = [
    (lambda x: np.concatenate([x, x]), X),
    (lambda x: np.concatenate((x, x[:, :1]), axis=-1), X),
    (lambda x: np.concatenate([x, x], axis=None), X),
    (lambda x: np.concatenate([x, np.ones((1, 4), int)]), X),
    (lambda x: np.concatenate([x, x], dtype=np.float32), X),
    (lambda x: np.concatenate([x[:0], x]), X),
    (lambda x: np.stack([x, x + 1]), X),
    (lambda x: np.stack([x, x], axis=-1), X),
    (lambda x: np.stack(x), X),
    (lambda x: np.stack([x[0, 0], 2.0, 3]), X),
    (lambda x: np.vstack([x, x[0]]), X),
    (lambda x: np.vstack((x, x)), V),
    (lambda x: np.hstack([x, x]), X),
    (lambda x: np.hstack([x, x[0], 1.0]), V),
    (lambda x: np.dstack([x, x]), X),
    (lambda x: np.dstack([x, x]), V),
    (lambda x: np.column_stack([x, x]), V),
    (lambda x: np.column_stack([x, x[:, 0]]), X),
    (lambda x: np.append(x, 1.5), X),
    (lambda x: np.append(x, [[1, 2, 3, 4]], axis=0), X),
    (lambda x: np.split(x, 2, axis=1), X),
    (lambda x: np.split(x, [1, 3], axis=1), X),
    (lambda x: np.split(x, [1, 9]), X),
    (lambda x: np.array_split(x, 3), V),
    (lambda x: np.hsplit(x, 2), X),
    (lambda x: np.vsplit(x, [2]), X),
    (lambda x: np.dsplit(x, 2), CUBE),
    (lambda x: np.unstack(x, axis=1), X),
]
INDEX = np.array([[0, 2], [1, -1]])
READS: list[tuple[Call, Any]] = [
    (lambda x: x[0], CUBE),
    (lambda x: x[-1, 2], CUBE),
    (lambda x: x[1, 2, 3], CUBE),
    (lambda x: x[1:], CUBE),
    (lambda x: x[:, ::2], CUBE),
    (lambda x: x[:, ::-1, 1:3], CUBE),
    (lambda x: x[..., -1], CUBE),
    (lambda x: x[:, None, 1], CUBE),
    (lambda x: x[None, ..., None], CUBE),
    (lambda x: x[::-2], V),
    (lambda x: x[4:1:-2], V),
    (lambda x: x[10:], V),
    (lambda x: x[-2:1], V),
    (lambda x: x[...], V),
    (lambda x: x[()], V),
    (lambda x: x[np.int64(1)], V),
    (lambda x: x[np.array(1)], V),
    (lambda x: x[[0, 2, 2]], V),
    (lambda x: x[[]], V),
    (lambda x: x[INDEX], V),
    (lambda x: x[[0, -1]], CUBE),
    (lambda x: x[:, [0, 2]], CUBE),
    (lambda x: x[:, [0, 2], [1, 3]], CUBE),
    (lambda x: x[[0, 1], :, [1, 3]], CUBE),
    (lambda x: x[[0, 1], ..., [1, 3]], CUBE),
    (lambda x: x[:, [0, 1], ..., [1, 3]], CUBE),
    (lambda x: x[0, :, [1, 3]], CUBE),
    (lambda x: x[:, 1, [1, 3]], CUBE),
    (lambda x: x[[0, 1], None, [1, 2]], CUBE),
    (lambda x: x[None, [0, 1], [1, 2], None], CUBE),
    (lambda x: x[:, None, [0, 1], None], CUBE),
    (lambda x: x[[[0], [1]], [0, 2]], CUBE),
    (lambda x: x[INDEX, 0], SQUARE),
    (lambda x: x[::-1, INDEX, ::2], CUBE),
    (lambda x: x[np.ix_([0, 1], [2, 0])], CUBE),
    (lambda x: x[np.ix_([0, np.argmax(x[0, 0])], [2, 0], np.argmin(x[0], axis=0)[:2])], CUBE),
    (lambda x: x[np.array([True, False, True, False, True])], V),
    (lambda x: x[np.array([[True, False, True], [False, False, True]])], CUBE),
    (lambda x: x[:, np.array([True, False, True])], CUBE),
    (lambda x: x[0, np.array([True, False, True])], CUBE),
    (lambda x: x[[True, False]], CUBE),
    (lambda x: x[np.argmax(x)], V),
    (lambda x: x[np.argmax(x, axis=0)], SQUARE),
    (lambda x: x[:, np.argmin(x[0])], SQUARE),
    (lambda x: x[np.argmax(x[:, 0]), 1:], SQUARE),
    (lambda x: x[np.arange(4), np.argmax(x, axis=1)], SQUARE),
    (lambda x: x[[np.argmax(x[0]), 1]], SQUARE),
    (lambda x: np.array([5.0, 6.0, 7.0, 8.0])[np.argmax(x[0])], SQUARE),
    (lambda x: x[np.uint8(3)], V),
    (lambda x: list(x), X),
    (lambda x: [a * b for a, b in x[:, :2]], X),
    (lambda x: x[np.tril_indices_from(x)], SQUARE),
    (lambda x: x[np.unravel_index(np.argmax(x), (3, 4))], X),
    (lambda x: np.take(x, [0, 2]), X),
    (lambda x: np.take(x, 1, axis=1), X),
    (lambda x: x.take([[0, 1], [2, -1]], axis=1), X),
    (lambda x: np.take(x, [5, -7], axis=0, mode="wrap"), X),
    (lambda x: np.take(x, [5, -7], axis=1, mode="clip"), X),
    (lambda x: np.take(x, np.argmax(x, axis=0), axis=1), SQUARE),
    (lambda x: np.take_along_axis(x, np.argmax(x, axis=1, keepdims=True), axis=1), X),
    (lambda x: np.take_along_axis(x, np.argmin(x, axis=0)[None], 0), X),
    (lambda x: np.take_along_axis(x, np.array([3, 1]), None), X),
    (lambda x: np.where(x > 0, x, 0), X),
    (lambda x: np.where(x > 0, 1, 0), X),
    (lambda x: np.where(np.array([True, False, True, False]), x, x[:, :1]), X),
    (lambda x: np.where(x, x, np.float32(1)), X),
    (lambda x: np.select([x > 1, x > 0], [x, 2 * x], 7), X),
    (lambda x: np.select([x[0] > 0, x > 0], [1, x]), X),
    (lambda x: np.choose(np.argmax(x, axis=1), [x[:, 0], 5.0, x[:, 1], x[:, 2]]), X),
    (lambda x: np.compress([True, False, True], x, axis=0), X),
    (lambda x: x.compress([False, True]), X),
    (lambda x: np.extract([[True, False] * 2] * 4, x), SQUARE),
    (lambda x: np.delete(x, 1, axis=1), X),
]


Y = array((4, 3), seed=5)
W = array(3, seed=6)
STACK = array((5, 4, 3), seed=7)
PRODUCTS: list[tuple[Call, list[Any]]] = [
    (lambda x, y: x @ y, [X, Y]),
    (lambda x, y: np.matmul(x, y), [X, STACK]),
    (lambda x, y: x @ y, [STACK, X]),
    (lambda x, y: x @ y, [STACK, X[None]]),
    (lambda x, y: x @ y, [STACK[:, None], np.stack([X, X])]),
    (lambda x, y: x @ y, [X, Y[:, 0]]),
    (lambda x, y: x @ y, [W, X]),
    (lambda x, y: x @ y, [W, W]),
    (lambda x, y: x @ y, [W, np.stack([X] * 2)]),
    (lambda x, y: x @ y, [STACK, W]),
    (lambda x: x @ np.ones((4, 2), np.float32), [X]),
    (lambda x: np.eye(3, dtype=int) @ x, [X]),
    (lambda x, y: np.dot(x, y), [X, Y]),
    (lambda x, y: x.dot(y), [STACK, X]),
    (lambda x, y: np.dot(x, y), [X, STACK]),
    (lambda x, y: np.dot(x, y), [W, W]),
    (lambda x: np.dot(x, 3), [X]),
    (lambda x, y: np.vdot(x, y), [X, Y]),
    (lambda x, y: np.inner(x, y), [X, Y.T]),
    (lambda x, y: np.inner(x, y), [STACK, W]),
    (lambda x, y: np.inner(x, y), [X, X[0, 0]]),
    (lambda x, y: np.outer(x, y), [X, W]),
    (lambda x, y: np.add.outer(x, y), [X, W]),
    (lambda x, y: np.tensordot(x, y, 1), [X, Y]),
    (lambda x, y: np.tensordot(x, y), [X, X]),
    (lambda x, y: np.tensordot(x, y, 0), [X, W]),
    (lambda x, y: np.tensordot(x, y, ([1, 0], [0, 1])), [X, Y]),
    (lambda x, y: np.tensordot(x, y, (-1, 1)), [X, STACK]),
    (lambda x, y: np.kron(x, y), [X, Y]),
    (lambda x, y: np.kron(x, y), [X, W]),
    (lambda x, y: np.cross(x, y), [W, array(3, seed=9)]),
    (lambda x, y: np.cross(x, y), [Y, W]),
    (lambda x, y: np.cross(x, y, axis=0), [X, array((3, 4), seed=9)]),
    (lambda x, y: np.vecdot(x, y), [X, X]),
    (lambda x, y: np.vecdot(x, y, axis=0), [X, X]),
    (lambda x, y: np.einsum("ij,jk->ik", x, y), [X, Y]),
    (lambda x, y: np.einsum("ij,jk", x, y), [X, Y]),
    (lambda x, y: np.einsum("ij,ji", x, y), [X, Y]),
    (lambda x: np.einsum("ij->ji", x), [X]),
    (lambda x: np.einsum("ij->", x), [X]),
    (lambda x: np.einsum("ij->j", x), [X]),
    (lambda x: np.einsum("ii", x), [SQUARE]),
    (lambda x: np.einsum("ii->i", x), [SQUARE]),
    (lambda x: np.einsum("iji->ij", x), [np.stack([SQUARE] * 3, 1)]),
    (lambda x, y: np.einsum("ii,ij->j", x, y), [SQUARE, SQUARE]),
    (lambda x, y: np.einsum("ij,kl->il", x, y), [X, Y]),
    (lambda x, y: np.einsum("...ij,...jk->...ik", x, y), [STACK, X]),
    (lambda x, y: np.einsum("...j,j", x, y), [STACK, W]),
    (lambda x, y: np.einsum("b...,b...->...", x, y), [STACK, array((5, 1, 3), seed=8)]),
    (lambda x, y: np.einsum("...i,...i->...", x, y), [STACK, Y]),
    (lambda x, y: np.einsum("ij, ij -> i", x, y), [X, X]),
    (lambda x, y: np.einsum("i,j->ij", x, y), [W, W]),
    (lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [0, 2]), [X, Y]),
    (lambda x, y: np.einsum(x, [0, 1], y, [1, 0]), [X, Y]),
    (lambda x: np.einsum(x, [30, 2]), [X]),
    (lambda x, y: np.einsum(x, [25, 26], y, [26, 51]), [X, Y]),
    (lambda x, y: np.einsum(x, [Ellipsis, 0, 1], y, [1], [Ellipsis, 0]), [STACK, W]),
    (lambda x, y, z: np.einsum("ij,jk,kl->il", x, y, z), [X, Y, X]),
    (lambda x, y, z: np.einsum("ij,jk,ki->", x, y, z, optimize=True), [X, Y, array((3, 3))]),
    (lambda x, y, z: np.einsum("i,j,ij->", x, y, z, optimize="optimal"), [W, Y[:, 0], X]),
    (lambda x, y, z: np.einsum("i,i,i->i", x, y, z), [W, W, W]),
    (lambda x, y, z: np.einsum("ij,jk,kl->il", x, y, z, optimize=["einsum_path", (0, 2), (0, 1)]), [X, Y, X]),
    (lambda x, y: np.einsum("ij,j,i->", x, y, np.ones(3)), [X, Y[:, 0]]),
    (lambda x: np.linalg.norm(x), [X]),
    (lambda x: np.linalg.norm(x, axis=1), [X]),
    (lambda x: np.linalg.norm(x, axis=(0, 1), keepdims=True), [X]),
    (lambda x: np.linalg.norm(x, "fro"), [X]),
    (lambda x: np.linalg.norm(x, 1), [X]),
    (lambda x: np.linalg.norm(x, -np.inf), [X]),
    *[(lambda x, o=o: np.linalg.norm(x, o), [W]) for o in (None, 0, 1, 2, 3, -1, np.inf, -np.inf, 2.5)],
    (lambda x: np.linalg.norm(x, 1, axis=0, keepdims=True), [X]),
    (lambda x: np.linalg.norm(x, np.inf, axis=(1, 2)), [STACK]),
]
