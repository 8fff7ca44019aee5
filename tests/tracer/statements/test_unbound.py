"""Names that some paths leave unbound, under `pb.jit(loops="roll")`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

X = np.array([0.5, -0.25, 0.75, 0.125, -1.0, 0.375])


def branch(x: Any, n: Any) -> Any:
    if x[0] > 0:
        y = 2 * x[1]
    if x[2] > 0.7:
        y = x[3] * x[0]
    return y * y


def augmented(x: Any, n: Any) -> Any:
    if x[0] > 0:
        y = 2 * x[1]
    else:
        z = x[1]
    if x[0] > 0:
        y += x[2]
        return y * y
    z *= x[2]
    return z


def last(x: Any, n: Any) -> Any:
    k = 0
    while k < n:
        item = x[k] * x[k]
        k = k + 1
    return item * k


def first(x: Any, n: Any) -> Any:
    for i in range(n):
        if x[i] < -0.9 or x[i] > 0.6:
            at = i
            break
    return x[at] * (at + 1)


def arrays(x: Any, n: Any) -> Any:
    if x[1] < 0.0 or x[2] > 0.05:
        y = x[1:] * x[:-1]
    if x[0] > 0:
        return np.sum(x)
    return np.sum(y)


def read_in_each_iteration(x: Any, n: Any) -> Any:
    r = x[1]
    if x[0] > 0.5:
        e = x[2] * n
    for k in range(4, 0, -2):
        r += e
        if not (2.0 < x[3] <= r):
            continue
        r += k * x[4]
    return r


@pytest.mark.parametrize("function", [branch, augmented, last, first, arrays, read_in_each_iteration])
def test_values_errors_and_gradients(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, loops="roll")
    slope = pb.grad(compiled)
    direction = np.array([0.3, -0.7, 0.2, 0.9, -0.4, 0.6])
    for x in (X, -X, 0.1 * X, 0.0 * X):
        for count in (np.int64(6), np.int64(2), np.int64(0), 3):
            try:
                want = function(x, count)
            except UnboundLocalError as error:
                with pytest.raises(UnboundLocalError) as caught:
                    compiled(x, count)
                assert str(caught.value) == str(error)
                continue
            np.testing.assert_allclose(compiled(x, count), want, rtol=1e-14)
            if np.any(x):
                difference = (function(x + 1e-6 * direction, count) - function(x - 1e-6 * direction, count)) / 2e-6
                np.testing.assert_allclose(np.sum(slope(x, count) * direction), difference, rtol=1e-6, atol=1e-8)


def deleted(x: Any, n: Any) -> Any:
    e, s = x[0], 0.0
    for k in range(n):
        s += x[k] * (k + 1)
        if s > 1.0:
            del e
    return s


def deleted_where_bound(x: Any, n: Any) -> Any:
    s = 0.0
    for k in range(n):
        e = x[k] * 2
        s += e * e
        del e
    return s


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("function", [deleted, deleted_where_bound])
def test_deleted_variables_are_unbound(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    for x in (X, -X, 3 * X):
        for count in (np.int64(6), np.int64(2), np.int64(0)):
            try:
                want = function(x, count)
            except UnboundLocalError as error:
                with pytest.raises(UnboundLocalError, match=str(error)):
                    compiled(x, count)
                continue
            np.testing.assert_allclose(compiled(x, count), want, rtol=1e-14)


def deleted_in_a_clause(x: Any, n: Any) -> Any:
    if x[0] > 0:
        e = 0.5 * x[1]
    try:
        s = x[2] + e
    except Exception:
        s = x[2] * 3
    try:
        e = s
    except ValueError:
        del e
    return s


def deleted_after_a_loop(x: Any, n: Any) -> Any:
    for k in range(n):
        if x[k] > 0.6:
            e = x[k] * k
    try:
        s = e * 2
        del e
    except NameError:
        s = x[0]
    return s


def values_without_a_common_type(x: Any, n: Any) -> Any:
    if x[0] > 0:
        e = {"a": x[1]}.keys()
    else:
        s = x[1]
    try:
        return len(e) * x[2]
    except UnboundLocalError:
        return s * 5


def handled_inside(x: Any, n: Any) -> Any:
    def shifted() -> Any:
        return e + x[3]

    if x[0] > 0:
        e = x[1]
    try:
        return shifted()
    except NameError:
        return 2 * x[3]


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(
    "function", [deleted_in_a_clause, deleted_after_a_loop, values_without_a_common_type, handled_inside]
)
def test_clauses_that_handle_unbound_variables_run_where_python_runs_them(function: Callable[..., Any]) -> None:
    for options in ({}, {"guards": False}):
        compiled = pb.jit(function, **options)
        for x in (X, -X, 3 * X, 0.1 * X):
            for count in (np.int64(6), np.int64(2), np.int64(0)):
                try:
                    np.testing.assert_allclose(compiled(x, count), function(x, count), rtol=1e-14)
                except pb.TraceError:
                    assert options
