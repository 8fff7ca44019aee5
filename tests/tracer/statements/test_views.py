"""Views that exist before a loop or branch and are written in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.tracer.trace import trace


def one_row(x: np.ndarray[Any, Any]) -> Any:
    row = x[1]
    for k in range(len(row)):
        row[k] = row[k] + k
    return np.sum(x * x)


def each_row(x: np.ndarray[Any, Any]) -> Any:
    for i in range(len(x)):
        row = x[i]
        for k in range(len(row)):
            row[k] = 0.5 * row[k] + row[k - 1]
    return np.sum(x * x)


def rows_of_array(x: np.ndarray[Any, Any]) -> Any:
    for row in x:
        for k in range(1, len(row)):
            row[k] += row[k - 1] * 0.5
    return np.sum(x * x)


def columns(x: np.ndarray[Any, Any]) -> Any:
    y = (x * 2.0).T
    for k in range(len(y)):
        scan(y[k])
    y = y.T
    for k in range(len(y)):
        scan(y[k])
    return np.sum(y * y)


def scan(row: np.ndarray[Any, Any]) -> None:
    total = 0.0
    for k in range(len(row)):
        total = 0.7 * total + row[k]
        row[k] = total


def view_of_view(x: np.ndarray[Any, Any]) -> Any:
    block = x[1:]
    row = block[0, ::-1]
    for k in range(1, row.shape[0]):
        row[k] += 0.5 * row[k - 1]
        x[1, 0] += 1.0
    return np.sum(block * block) + row[0]


def two_views(x: np.ndarray[Any, Any]) -> Any:
    front, back = x[0], x[0, ::-1]
    k = 0
    while k < len(front):
        front[k] = front[k] * 0.5 + back[k]
        k += 1
    return np.sum(front * back)


def in_branch(x: np.ndarray[Any, Any]) -> Any:
    row = x[0]
    for k in range(len(row)):
        if row[k] > 0.5:
            row[k] = 2.0 * row[k]
        else:
            x[0, k] = row[k] - 1.0
    return np.sum(row * row)


PROGRAMS = [one_row, each_row, rows_of_array, columns, view_of_view, two_views, in_branch]


@pytest.mark.parametrize("shape", [(3, 4), (2, 90), (70, 60)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_written_views(program: Callable[..., Any], shape: tuple[int, int]) -> None:
    x = np.random.default_rng(3).uniform(size=shape)
    expected, result = x.copy(), x.copy()
    value = program(expected)
    assert pb.jit(program, guards=False)(result) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_of_written_views(program: Callable[..., Any]) -> None:
    x = np.random.default_rng(4).uniform(size=(2, 80))
    direction = np.random.default_rng(5).normal(size=x.shape)
    gradient = pb.grad(lambda y: program(y * 1.0))(x)
    step = 1e-7 * direction
    slope = (program((x + step) * 1.0) - program((x - step) * 1.0)) / 2e-7
    assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-5)


def eliminated(a: np.ndarray[Any, Any]) -> Any:
    u = a.copy()
    for k in range(len(u) - 1):
        u[k + 1 :, k] /= u[k, k]
        u[k + 1 :, k + 1 :] -= np.outer(u[k + 1 :, k], u[k, k + 1 :])
    return u


def test_an_augmented_assignment_to_a_slice_of_a_length_by_value_writes_once() -> None:
    a = np.random.default_rng(0).normal(size=(40, 40)) + 8 * np.eye(40)
    names = [i.op.name for i in walk(trace(eliminated, (a,)).function.body)]
    assert (names.count("scatter_set_part"), names.count("slice_set")) == (1, 1)
    assert np.allclose(pb.jit(eliminated)(a), eliminated(a), rtol=1e-12)


def shifted_key(a: np.ndarray[Any, Any]) -> Any:
    u = a.copy()
    for k in range(1, len(u)):
        start = np.array(k)
        part = u[start:]
        part *= 0.5
        start -= 1
        u[start:-1] = part
    return u


def test_a_key_that_was_written_since_is_another_one() -> None:
    a = np.random.default_rng(0).normal(size=30)
    assert np.allclose(pb.jit(shifted_key)(a), shifted_key(a), rtol=1e-12)
