"""Loops over lists and tuples of equal elements: one loop over rows of arrays, unless iterations change what they go over."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def numbers(x: Any) -> Any:
    s = 0.0
    for v in x.tolist():
        s = s * 0.9 + (v if v > 0 else 0.5 * v)
    return s, type(s).__name__


def pairs_of_numbers(x: Any) -> Any:
    s = 0.0
    for i, (a, b) in enumerate(zip(x.tolist(), x[::-1].tolist())):
        s = s * 0.9 + a * b + i
    return s


def from_the_end(x: Any) -> Any:
    s = 0.0
    for v in reversed(x.tolist()):
        s = s * 0.9 + np.sin(v)
    return s


def known_ints(x: Any) -> Any:
    s = 0.0
    for i in [3, 1, 4, 1, 5, 9, 2, 6] * 30:
        s = s * 0.9 + x[i] * i / 7
    return s


def dicts(x: Any) -> Any:
    bodies = [{"mass": x[i], "position": x[i : i + 2]} for i in range(60)]
    s = 0.0
    for body in bodies:
        s = s * 0.5 + (body["mass"] * body["position"][0] if body["mass"] > 0 else body["position"][1])
    return s


def lists_of_lists(x: Any) -> Any:
    rows = [[x[i] * j for j in range(5)] for i in range(60)]
    s = 0.0
    for row in rows:
        for v in row:
            s = s * 0.5 + v
    return s


def first_above(x: Any) -> Any:
    for i, v in enumerate(x.tolist()):
        if v > 1.2:
            return i, v
    return -1, 0.0


def products_of_lists(x: Any) -> Any:
    s = 0.0
    for a, b in itertools.product(x[:9].tolist(), x[9:18].tolist()):
        s = s * 0.9 + a * b
    return s


def chosen_row(x: Any) -> Any:
    rows = [x[3 * i : 3 * i + 3] for i in range(26)]
    best, least = rows[0], 1e9
    for row in rows:
        if np.sum(row**2) < least:
            best, least = row, np.sum(row**2)
    return best, least


X = np.random.default_rng(3).normal(size=80)
ROLLED = [numbers, pairs_of_numbers, from_the_end, known_ints, dicts, first_above, products_of_lists]


def check(function: Callable[..., Any], compiled: Callable[..., Any], *arguments: Any) -> None:
    ours, theirs = compiled(*arguments), function(*arguments)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (ours, theirs)), strict=True):
        assert type(a) is type(b), (type(a), type(b))
        if isinstance(b, str):
            assert a == b
        else:
            np.testing.assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("function", ROLLED)
def test_loops_over_lists_roll(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    check(function, compiled, X)
    loops = [s.how for s in compiled.explain(X).statements if s.kind == "loop"]
    assert any(how.startswith("rolled") for how in loops) and not any("which is no range" in how for how in loops), loops


def test_a_list_of_lists_rolls_by_its_rows() -> None:
    compiled = pb.jit(lists_of_lists, guards=False)
    check(lists_of_lists, compiled, X)
    assert compiled.explain(X).statements[0].how == "rolled: 60 iterations"


@pytest.mark.parametrize("function", [numbers, pairs_of_numbers, dicts, lists_of_lists])
def test_gradients_of_loops_over_lists(function: Callable[..., Any]) -> None:
    def loss(x: Any) -> Any:
        result = function(x)
        return result[0] if isinstance(result, tuple) else result

    direction, h = np.random.default_rng(4).normal(size=80), 1e-6
    numeric = (loss(X + h * direction) - loss(X - h * direction)) / (2 * h)
    np.testing.assert_allclose(pb.jit(pb.grad(loss))(X) @ direction, numeric, rtol=1e-6)


def test_lists_among_the_arguments() -> None:
    def distance(xs: Any, points: Any) -> Any:
        s = 0.0
        for v, (a, b) in zip(xs, points):
            s += (v - a) ** 2 if v > b else 0.1 * b
        return s

    xs, points = X.tolist(), [(float(a), float(b)) for a, b in X.reshape(40, 2)]
    compiled = pb.jit(distance, guards=False)
    assert compiled(xs, points) == pytest.approx(distance(xs, points), rel=1e-13)
    assert compiled.explain(xs, points).statements[0].how == "rolled: 40 iterations"


def appended_to(x: Any) -> Any:
    xs, s = x.tolist(), 0.0
    for v in xs:
        if len(xs) < 90:
            xs.append(v * 0.5)
        s = s * 0.9 + v
    return s, len(xs)


def appended_to_by_number(x: Any) -> Any:
    xs, s = x.tolist(), 0.0
    for i, v in enumerate(xs):
        if i < 10:
            xs.append(v * 0.5)
        s = s * 0.9 + v
    return s, len(xs)


def shortened(x: Any) -> Any:
    xs, s = x.tolist(), 0.0
    for v in xs:
        if len(xs) > 60:
            xs.pop()
        s = s * 0.9 + v * np.sin(v)
    return s, len(xs)


def paired_and_shortened(x: Any) -> Any:
    xs, s = x.tolist(), 0.0
    for a, v in zip(x, xs):
        if len(xs) > 60:
            xs.pop()
        s = s * 0.9 + v * np.sin(a)
    return s, len(xs)


def changed_ahead(x: Any) -> Any:
    xs, s = x.tolist(), 0.0
    for i, v in enumerate(xs):
        if i + 1 < len(xs):
            xs[i + 1] = xs[i + 1] + v
        s = s * 0.9 + v
    return s


def changed_at_the_end(x: Any) -> Any:
    xs, s = x.tolist(), 0.0
    for v in xs:
        xs[-1] += v
        s = s * 0.9 + v
    return s, xs[-1]


def rows_that_change(x: Any) -> Any:
    rows, s = [x[3 * i : 3 * i + 3] * 1 for i in range(26)], 0.0
    for row in rows:
        row[0] = row[1] * 2
        row += 1
        s = s * 0.9 + row.sum()
    return s, rows[3]


def other_rows_that_change(x: Any) -> Any:
    rows, s = [x[3 * i : 3 * i + 3] * 1 for i in range(26)], 0.0
    for row in rows:
        rows[-1][0] += row[1]
        s = s * 0.9 + np.sin(row).sum()
    return s, rows[-1]


def viewed_rows_that_change(x: Any) -> Any:
    y, s = x[:78].reshape(26, 3) * 1, 0.0
    for row in [y[i] for i in range(26)]:
        y[-1, 0] += row[1]
        s = s * 0.9 + np.sin(row).sum()
    return s, y


def changed_afterwards(x: Any) -> Any:
    rows, s = [x[3 * i : 3 * i + 3] * 1 for i in range(26)], 0.0
    for row in rows:
        s = s * 0.9 + np.sin(row).sum()
    row[0] = 5.0
    return s, rows[-1]


def changed_lists(x: Any) -> Any:
    rows, s = [[x[i], x[i + 1]] for i in range(60)], 0.0
    for row in rows:
        row[0] = s
        s = s * 0.5 + row[1]
    return s, rows[7][0]


def compared_rows(x: Any) -> Any:
    rows, n = [x[3 * i : 3 * i + 3] * 1 for i in range(26)], 0
    for row in rows:
        if row is rows[3]:
            n += 1
        n += row[0] > 0
    return int(n)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(
    "function",
    [
        appended_to, appended_to_by_number, shortened, paired_and_shortened, changed_ahead, changed_at_the_end, rows_that_change,
        other_rows_that_change, viewed_rows_that_change, changed_afterwards, changed_lists, compared_rows, chosen_row,
    ],
)  # fmt: skip
def test_lists_that_their_loops_change_are_those_of_python(function: Callable[..., Any]) -> None:
    check(function, pb.jit(function), X)


def test_elements_of_several_types_keep_their_types() -> None:
    def kinds(x: Any) -> Any:
        result = ""
        for v in [1.0, x[0], 2, True, 3.0] * 20:
            result += type(v).__name__
        return result

    assert pb.jit(kinds)(X) == kinds(X)


def test_loops_over_lists_of_lists_of_several_lengths() -> None:
    def of_groups(x: Any, k: Any) -> Any:
        groups = [[x[i] for i in range(len(x)) if k[i] == g] for g in range(6)]
        total = 0.0
        for g in groups:
            for v in g:
                total += v * len(g)
        return total, [sum(g) / len(g) if g else 0.0 for g in groups], groups

    compiled = pb.jit(of_groups, guards=False)
    x = np.random.default_rng(0).normal(size=70)
    for k in (np.arange(70) % 6, np.arange(70) % 3, np.arange(70) // 10):
        assert repr(compiled(x, k)) == repr(of_groups(x, k))
    np.testing.assert_allclose(pb.grad(lambda x: compiled(x, np.arange(70) % 7)[0])(x), np.where(np.arange(70) % 7 == 6, 0, 10.0))
