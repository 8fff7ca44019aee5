"""Arrays under several names: names that a branch binds, and names that a loop exchanges, with writes into them."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.trace import trace


class Pair:
    pass


def loop_branch(x: Any, y: Any, n: Any) -> Any:
    x = x.copy()
    z = y.copy()
    k = 0.0
    while k < n:
        t = x if x[0] < z[1] else z
        t[1] += 1.0
        t[0] += t[1] * 0.25
        x[2] += 0.5
        k += 1
    return x, z


def loop_branch_arg(x: Any, y: Any, n: Any) -> Any:
    k = 0.0
    while k < n:
        if x[0] < y[1]:
            t = x
        else:
            t = y
        t[1] += 1.0
        t[0] += t[1] * 0.25
        v = t[2:]
        v *= 1.5
        k += 1
    return t


def elif_branch(x: Any, y: Any, n: Any) -> Any:
    if x[0] > n:
        t = x
    elif y[0] > n:
        t = y
    else:
        t = x * 0
    t[0] = 3.0
    return t


def write_source(x: Any, y: Any, n: Any) -> Any:
    t = x if n > 2 else y
    v = t[1:]
    w = x[:2]
    x[1] = 8.0
    t[2] = 9.0
    w[0] = 5.0
    return t, v, w, x, y


def write_in_branch(x: Any, y: Any, n: Any) -> Any:
    t = x if n > 2 else y
    if x[0] < 5:
        t[0] = 7.0
    else:
        x[0] = 1.0
    if y[0] > 6:
        t[1:] = x[:-1] + y[1:]
    return t, x, y


def while_swap(x: Any, y: Any, n: Any) -> Any:
    a, b = x, y
    k = 0.0
    while k < n:
        b[1:] = a[:-1] * 0.5 + b[1:]
        b[0] = a[0] + k
        if b[1] > 3:
            break
        a, b = b, a
        k += 1
    return a, b


def while_swap3(x: Any, y: Any, n: Any) -> Any:
    a, b, c = x, y, x * 2
    k = 0.0
    while k < n:
        c[:] = a * 0.5 + b
        a, b, c = b, c, a
        if a[0] > 2:
            a, b = b, a
        k += 1
    a[0] = 100.0
    return a, b, c


def while_prev(x: Any, y: Any, n: Any) -> Any:
    prev = x
    k = 0.0
    while k < n:
        cur = prev.copy()
        cur[1:] += prev[:-1]
        prev = cur
        k += 1
    prev[0] = 9.0
    return prev


def while_same(x: Any, y: Any, n: Any) -> Any:
    a, b = x, y
    k = 0.0
    while k < n:
        b[0] += a[1]
        a = b
        a[1] = a[0] + 1
        k += 1
    return a, b


def nested_arg(x: Any, y: Any, n: Any) -> Any:
    a, b = x, y
    k = 0.0
    while k < n:
        j = 0.0
        while j < k:
            b[1:] = a[:-1] + 0.5
            b[0] = a[0]
            a, b = b, a
            j += 1
        a[0] += 1
        k += 1
    return a, b


def list_swap(x: Any, y: Any, n: Any) -> Any:
    s = [x, y]
    k = 0.0
    while k < n:
        s[1][1:] = s[0][:-1] + 0.5
        s[0], s[1] = s[1], s[0]
        k += 1
    return s


def tuple_swap(x: Any, y: Any, n: Any) -> Any:
    s = (x, y)
    k = 0.0
    while k < n:
        s[1][1:] = s[0][:-1] + 0.5
        s = (s[1], s[0])
        k += 1
    return s


def attr_swap(x: Any, y: Any, n: Any) -> Any:
    s = Pair()
    s.a, s.b = x, y
    k = 0.0
    while k < n:
        s.b[1:] = s.a[:-1] + 0.5
        s.a, s.b = s.b, s.a
        k += 1
    return s.a, s.b


def best_while(x: Any, y: Any, n: Any) -> Any:
    best = y
    fb = 1e9
    k = 0.0
    while k < n:
        f = np.sum((x - 1) ** 2)
        if f < fb:
            best = x
            fb = f
        x[1] -= 0.3
        k += 1
    return best, x, fb


def first_alias(x: Any, y: Any, n: Any) -> Any:
    a = x
    b = y
    k = 0.0
    while k < n:
        c = a if a[0] < b[0] else b
        c[0] += 1.0
        a, b = b, a
        k += 1
    return a, b


def halves(x: Any, y: Any, n: Any) -> Any:
    x, y = x.copy(), y.copy()
    for i in range(len(x)):
        t = x if x[i] > n else y
        t[i] *= 0.5
    return x, y


def descent(x: Any, y: Any, n: Any) -> Any:
    w, k = x.copy(), 0.0
    while k < n:
        w *= 0.9
        if y @ w < 1:
            w += 0.1 * y
        if w[0] > 0.5:
            w = w / w[0]
        k += 1
    return w


def first_or_second(x: Any, y: Any, n: Any) -> Any:
    if n > 2:
        return x
    return y


def through_a_helper(x: Any, y: Any, n: Any) -> Any:
    t = first_or_second(x, y, n)
    t[0] = 5.0
    return t * x


def reversed_view(x: Any, y: Any, n: Any) -> Any:
    t = x
    if n > 2:
        t = x[::-1]
    t[0] = 77.0
    return t


def smallest_costs(x: Any, y: Any, n: Any) -> Any:
    previous, current = x.copy(), np.zeros_like(x)
    k = 0.0
    while k < n:
        for j in range(len(x)):
            best = previous[j]
            if j > 0:
                best = min(best, previous[j - 1])
            current[j] = best + y[j]
        previous, current = current, previous
        k += 1
    return previous


RIGHT = [
    loop_branch, write_source, while_swap, while_swap3, nested_arg, list_swap, tuple_swap, attr_swap, descent, halves,
    through_a_helper, smallest_costs,
]  # fmt: skip
REFUSED = [write_in_branch, loop_branch_arg, elif_branch, while_prev, while_same, best_while, first_alias, reversed_view]
X, Y = np.array([1.0, 2.0, -0.5, 3.0, 0.25]), np.array([0.5, 1.0, 4.0, 2.0, 0.75])


@pytest.mark.parametrize("function", [*RIGHT, *REFUSED])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_values_and_arguments_are_pythons(function: Callable[..., Any], dtype: type) -> None:
    if dtype is np.complex128 and function in (descent, smallest_costs):
        dtype = np.float64
    compiled = pb.jit(function, guards=False)
    for x, y in ((X.astype(dtype), Y.astype(dtype)), (Y.astype(dtype), X.astype(dtype))):
        for n in (0.0, 1.0, 2.0, 3.0, 8.0, 9.0):
            arguments, own = [x.copy(), y.copy(), n], [x.copy(), y.copy(), n]
            try:
                expected = function(*arguments)
            except Exception as error:
                expected = type(error)
            try:
                result = compiled(*own)
            except pb.TraceError as error:
                assert function in REFUSED
                assert "is written under one name and used under another" in str(error)
                continue
            except Exception as error:
                result = type(error)
            assert function in RIGHT
            np.testing.assert_equal(result, expected)
            assert all(map(np.array_equal, own, arguments))


def test_refused_programs_are_followed_by_guards() -> None:
    for n in (0.0, 3.0):
        x, y, own, other = X.copy(), Y.copy(), X.copy(), Y.copy()
        expected = while_same(x, y, n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pb.RetraceWarning)
            result = pb.jit(while_same)(own, other, n)
        np.testing.assert_equal([result, own, other], [expected, x, y])


@pytest.mark.parametrize("function", RIGHT)
def test_derivatives(function: Callable[..., Any]) -> None:
    weights = np.random.default_rng(0).normal(size=(6, len(X)))

    def loss(x: Any, y: Any) -> Any:
        x, y = x + 0.0, y + 0.0
        result = function(x, y, 3.0)
        rows = [*(result if isinstance(result, tuple | list) else (result,)), x, y]
        return sum(np.sum(w[: len(row)] * row * row) for w, row in zip(weights, rows, strict=False))

    tangents = (np.cos(X), np.sin(Y))
    gradient = pb.grad(loss, argnums=(0, 1))(X + 0.013, Y + 0.017)
    directional = sum(np.sum(g * t) for g, t in zip(gradient, tangents, strict=True))
    ahead, behind = (loss(X + 0.013 + s * tangents[0], Y + 0.017 + s * tangents[1]) for s in (1e-6, -1e-6))
    np.testing.assert_allclose(directional, (ahead - behind) / 2e-6, rtol=1e-6)
    np.testing.assert_allclose(pb.jvp(loss, (X + 0.013, Y + 0.017), tangents)[1], directional, rtol=1e-10)
    hessian = pb.hessian(loss)(X + 0.013, Y + 0.017)
    shifted = [pb.grad(loss)(X + 0.013 + s * 1e-6 * tangents[0], Y + 0.017) for s in (1, -1)]
    np.testing.assert_allclose(hessian @ tangents[0], (shifted[0] - shifted[1]) / 2e-6, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", RIGHT)
def test_vmap(function: Callable[..., Any]) -> None:
    def changed(x: Any, y: Any, n: Any) -> Any:
        x, y = x + 0.0, y + 0.0
        result = function(x, y, n)
        return [*(result if isinstance(result, tuple | list) else (result,)), x, y]

    xs, ys, ns = np.stack([X, Y, X + 1]), np.stack([Y, X, Y]), np.array([0.0, 2.0, 3.0])
    rows = [changed(x, y, n) for x, y, n in zip(xs, ys, ns, strict=True)]
    for k, column in enumerate(pb.vmap(changed)(xs, ys, ns)):
        np.testing.assert_allclose(column, np.stack([row[k] for row in rows]), rtol=1e-14)


def test_what_was_not_known_to_python_either_is_not_read() -> None:
    def kept(x: Any, n: Any) -> Any:
        a, b, k = x.copy(), np.zeros(len(x)), 0.0
        kept = a
        view = b[1:]
        while k < n:
            b[0] = a[1] + 1
            a, b = b, a
            k += 1
        return a, b, kept, view

    compiled = pb.jit(kept, guards=False)
    for n in (0.0, 1.0, 2.0, 7.0):
        np.testing.assert_equal(compiled(X, n), kept(X, n))


def left_with_an_alias(q: Any, a: Any, v: Any) -> Any:
    m, k = 1, abs(v[3])
    b = np.zeros(4)
    a = a.copy()
    for i in range(0, len(a), 2):
        m = (m + i) % 7
        if 1.25 < q <= a[0] and m != 3:
            b = a
            break
        k = m // 2
        m = 3
        m, k = k, m
    r = b[1]
    a[k % 4] = 0.5
    return r, k, a


def test_an_iteration_that_is_undone_leaves_no_aliases() -> None:
    a, v = np.array([2.0, -1.25, -1.5, 0.75]), np.array([-3, 3, -2, 1])
    traced = trace(left_with_an_alias, (-2.0, a, v))
    defined = set(traced.function.parameters)
    for i in traced.function.instructions:
        assert defined.issuperset(i.operands)
        defined |= set(i.results)
    for q in (-2.0, 1.5):
        np.testing.assert_equal(pb.jit(left_with_an_alias)(q, a, v)[0], left_with_an_alias(q, a, v)[0])
