"""Values of lists that grow in branches and loops on values, read in all ways, against plain Python to the bit; gradients."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

OUTSIDE = [1.0, 2.0, 4.0]


def returned(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    return out


def returned_indices(x: Any) -> Any:
    out = []
    for i, v in enumerate(x):
        if v > 0:
            out.append(i)
    return (out, len(out))


def returned_pairs(x: Any) -> Any:
    out = [(0, x[0])]
    for i, v in enumerate(x):
        if v > 0:
            out.append((i, 2 * v))
    return out


def returned_arrays(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out.append(x * v)
    return out


def summed_arrays(x: Any) -> Any:
    out = [x]
    for v in x:
        if v > 0:
            out.append(x / 3)
    return sum(out)


def largest_and_least(x: Any) -> Any:
    out = []
    for v in x:
        if v > -1:
            out.append(v / 3)
    return (max(out), min(out))


def stacked_vectors(x: Any) -> Any:
    out = [x]
    for v in x:
        if v > 0:
            out.append(x * v)
    a = (np.stack(out), np.stack(out, axis=1), np.stack(out, -1), np.concatenate(out), np.vstack(out))
    return (a, np.hstack(out), np.column_stack(out), np.array(out), np.asarray(out))


def stacked_matrices(x: Any) -> Any:
    x = x.reshape(2, 2)
    out = [x]
    for v in x.ravel():
        if v > 0:
            out.append(x * v)
    a = (np.stack(out, axis=1), np.concatenate(out, axis=1), np.concatenate(out, axis=-1))
    return (a, np.vstack(out), np.hstack(out), np.concatenate(out, axis=None))


def sorted_by_insertion(x: Any) -> Any:
    best = []
    for v in x:
        p = len(best)
        while p > 0 and best[p - 1] > v:
            p -= 1
        best.insert(p, v)
        if len(best) > 3:
            best.pop()
    return np.array(best)


def inserted_at_both_ends(x: Any) -> Any:
    out = [0.5]
    for v in x:
        if v > 0:
            out.insert(0, v)
        else:
            out.insert(-1, v)
    return np.array(out)


def queue_of_a_list(x: Any) -> Any:
    out = [0.5]
    t = 0.0
    for v in x:
        if v > 0:
            out.append(v)
        elif out:
            t += out.pop(0) * 2
    return (t, np.array(out))


def popped_in_the_middle(x: Any) -> Any:
    out = [0.5, 1.5, 2.5]
    t = 0.0
    for v in x:
        if v > 0:
            out.append(v)
        else:
            t += out.pop(1) * 2
    return (t, np.array(out))


def two_names(x: Any) -> Any:
    a = b = []
    for v in x:
        if v > 0:
            a.append(v)
        else:
            b.append(-v)
    return (np.array(a), len(b), a is b)


def appended_by_a_function(x: Any) -> Any:

    def add(lst, v):
        if v > 0:
            lst.append(v)

    out = []
    for v in x:
        add(out, v)
    return np.array(out)


def long_recurrence(x: Any) -> Any:
    out = [x[0]]
    for i in range(500):
        out.append(0.5 * out[-1] + x[i % 4])
    return out


def until_large(x: Any) -> Any:
    out = []
    s = x[0]
    while s < 10:
        s = s * 1.5 + 1
        out.append(s)
    return out


def extended(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out += [v, 2 * v]
        else:
            out.extend([v])
    return (np.array(out), out[-1], out[0], out[1])


def unbounded_in_unbounded(x: Any) -> Any:
    out = []
    s = abs(x[0]) + 0.1
    while s < 20:
        t = s
        while t < 30:
            t = t * 2
            out.append(t)
        s = s * 1.5
    return (np.array(out), len(out))


def under_if(x: Any) -> Any:
    out = []
    if x[0] > 0:
        s = x[0]
        while s < 20:
            s = s * 1.5
            out.append(s)
    return np.array(out)


def tuple_at_an_index(x: Any) -> Any:
    w = (1.0, 2.0, 3.0)
    t = 0.0
    k = 0
    while t < 10:
        t += w[k % 3] * (1 + x[0] ** 2)
        k += 1
    return (t, k)


def double_ended(x: Any) -> Any:
    d = deque()
    t = 0.0
    for v in x:
        if v > 0:
            d.append(v)
        elif d:
            t += d.popleft()
        if len(d) > 2:
            t += d.pop() * 3
    return (t, len(d), d[0] if d else 0.0)


def popped_deque(x: Any) -> Any:
    d = deque([0.5])
    for v in x:
        if v < 0:
            d.pop()
        else:
            d.append(v)
    return d[-1]


def deque_from_both_ends(x: Any) -> Any:
    d = deque([0.5])
    for v in x:
        if v < 0:
            d.appendleft(v)
        else:
            d.append(v)
    t = 0.0
    for k, v in enumerate(d):
        t += k * v
    return t


def popped_before_appended(x: Any) -> Any:
    s = []
    for v in x:
        if v < 0:
            b = s.pop()
            a = s.pop()
            s.append(a * b + v)
        else:
            s.append(v)
    return s[-1]


def copies_by_list(x: Any) -> Any:
    out = list()  # noqa: C408
    for v in x:
        if v > 0:
            out.append(v)
    o2 = list(out)
    o2.append(1.0)
    return (np.array(out), len(o2), np.array(o2))


def pairs_of_a_comprehension(x: Any) -> Any:
    ys = [v * w for v in x for w in x if v > w]
    return np.array(ys)


def long_comprehension(x: Any) -> Any:
    a = [i * x[0] for i in range(400)]
    return (a[3], sum(a), len(a), a)


def comprehension_in_a_loop(x: Any) -> Any:
    k = 0
    t = 0.0
    while t < 3:
        ys = [v for v in x if v < t]
        t += 0.5 + len(ys) * 0.1
        k += 1
    return (k, t)


def arrays_at_an_index(x: Any) -> Any:
    W = [x, 2 * x, 3 * x]
    k = 0
    t = x
    while t[0] * t[0] < 100 and k < 30:
        t = t + W[k % 3] + 0.1
        k += 1
    return (t, k)


def pairs_at_an_index(x: Any) -> Any:
    W = ((1, 2.0), (3, 4.0))
    k = 0
    t = x[0]
    while t * t < 100 and k < 30:
        a, b = W[k % 2]
        t = t + a * b
        k += 1
    return (t, k)


def outside_list_at_an_index(x: Any) -> Any:
    k = 0
    t = x[0]
    while t * t < 100 and k < 30:
        t = t + OUTSIDE[k % 3]
        k += 1
    return (t, k)


def index_out_of_range(x: Any) -> Any:
    W = [1.0, 2.0]
    k = 0
    t = x[0]
    while t * t < 100 and k < 30:
        t = t + W[k]
        k += 1
    return (t, k)


def cleared(x: Any) -> Any:
    out = []
    t = 0.0
    for v in x:
        if v > 1:
            t += sum(out)
            out.clear()
        else:
            out.append(v)
    return (t, len(out))


def independent_copies(x: Any) -> Any:
    out = [x[0]]
    for v in x:
        if v > 0:
            out.append(v)
    c = out.copy()
    d = out[:]
    for v in x:
        if v > 0.5:
            out.append(v)
            c.append(2 * v)
    return (np.array(out), np.array(c), np.array(d))


def items_set_at_indices(x: Any) -> Any:
    out = [0.0] * 3
    for i, v in enumerate(x):
        if v > 0:
            out[i % 3] += v
    return (np.array(out), out)


def list_of_each_iteration(x: Any) -> Any:
    t = 0.0
    for i in range(300):
        h = []
        for v in x:
            if v > 0.01 * i:
                h.append(v)
        t += len(h) + (h[-1] if h else 0.0)
    return t


def popped_until_empty(x: Any) -> Any:
    s = [1.0 * v for v in x]
    t = 0.0
    while s:
        v = s.pop()
        t = 0.5 * t + v
        if t > 1.5:
            break
    return (t, len(s))


def of_both_sides(x: Any) -> Any:
    out = []
    for v in x:
        out.append(v if v > 0 else -2 * v)
    return (out, np.mean(out), np.max(out))


def several_lists(x: Any) -> Any:
    a = []
    b = []
    c = []
    for v in x:
        if v > 1:
            a.append(v)
        elif v > 0:
            b.append(v)
            c.append(1)
        else:
            c.append(2)
            c.append(3)
    return (len(a), len(b), len(c), np.array(c))


def until_a_break(x: Any) -> Any:
    out = []
    for i in range(1000):
        s = x[0] * i * 0.01
        out.append(s)
        if s > 2 or s < -2:
            break
    return out


def lists_of_a_dict(x: Any) -> Any:
    d = {"a": [], "b": []}
    for v in x:
        d["a" if True else "b"].append(v)
        if v > 0:
            d["b"].append(2 * v)
    return (np.array(d["a"]), len(d["b"]))


def single_precision(x: Any) -> Any:
    x = x.astype(np.float32)
    out = []
    for v in x:
        if v > -1:
            out.append(v * v)
    return (np.array(out), sum(out), max(out))


def truths(x: Any) -> Any:
    out = []
    for v in x:
        if v > 0:
            out.append(v > 0.5)
    return (out, sum(out), np.array(out))


def lists_of_lists(x: Any) -> Any:
    out = []
    for i in range(100):
        row = []
        for v in x:
            row.append(v * i)
        out.append(row)
    return (np.array(out), out[3][1])


def lattice(x: Any) -> Any:
    values = [max(x[0] + 0.25 * j, 0.0) for j in range(41)]
    for i in range(39, -1, -1):
        for j in range(i + 1):
            values[j] = 0.5 * values[j] + 0.25 * values[j + 1] + x[1]
    return values[0]


def lattice_with_exercise(x: Any) -> Any:
    values = [0.0] * 41
    for j in range(41):
        values[j] = x[0] * j - x[2]
    for i in range(39, -1, -1):
        for j in range(i + 1):
            now, later = x[0] * j - x[2] * i, 0.5 * (values[j] + values[j + 1])
            values[j] = now if now > later else later
    return values[:2]


def counts_of_a_list(x: Any) -> Any:
    counts = [0] * 5
    for k in range(300):
        counts[int(abs(x[k % 4]) * 64 + k) % 5] += 1
    return counts


PROGRAMS = [
    lattice,
    lattice_with_exercise,
    counts_of_a_list,
    returned,
    returned_indices,
    returned_pairs,
    returned_arrays,
    summed_arrays,
    largest_and_least,
    stacked_vectors,
    stacked_matrices,
    sorted_by_insertion,
    inserted_at_both_ends,
    queue_of_a_list,
    popped_in_the_middle,
    two_names,
    appended_by_a_function,
    long_recurrence,
    until_large,
    extended,
    unbounded_in_unbounded,
    under_if,
    tuple_at_an_index,
    double_ended,
    popped_deque,
    deque_from_both_ends,
    popped_before_appended,
    copies_by_list,
    pairs_of_a_comprehension,
    long_comprehension,
    comprehension_in_a_loop,
    arrays_at_an_index,
    pairs_at_an_index,
    outside_list_at_an_index,
    index_out_of_range,
    cleared,
    independent_copies,
    items_set_at_indices,
    list_of_each_iteration,
    popped_until_empty,
    of_both_sides,
    several_lists,
    until_a_break,
    lists_of_a_dict,
    single_precision,
    truths,
    lists_of_lists,
]
INPUTS = [
    np.array([0.55, 1.25, -0.75, 0.3]),
    np.array([1.55, 0.3, 2.1, 0.6]),
    np.array([-0.55, -1.35, -2.1, -0.2]),
    np.array([0.5, -1.5, 0.25, 3.0]),
]


def outcome(function: Callable[..., Any], x: Any) -> Any:
    """Return what a function returns, or the exception that it raises."""
    try:
        return function(x.copy())
    except pb.TraceError:
        raise
    except Exception as error:
        return error


def same(expected: Any, result: Any) -> None:
    """Assert that two results are equal to the bit; an error equals one of its class and text."""
    if isinstance(expected, Exception):
        assert (type(result), str(result)) == (type(expected), str(expected))
    elif isinstance(expected, tuple | list):
        assert type(result) is type(expected)
        assert len(result) == len(expected)
        for e, r in zip(expected, result, strict=True):
            same(e, r)
    else:
        assert np.shape(expected) == np.shape(result)
        assert np.size(expected) == 0 or np.asarray(expected).dtype == np.asarray(result).dtype
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("function", [lattice, lattice_with_exercise, counts_of_a_list])
def test_nests_of_loops_over_a_list_roll(function: Callable[..., Any]) -> None:
    explanation = pb.jit(function).explain(INPUTS[0])
    assert [s.how for s in explanation.statements if s.kind == "loop" and not s.how.startswith("rolled")] == []


@pytest.mark.parametrize("function", PROGRAMS)
def test_values(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for x in INPUTS:
        same(outcome(function, x), outcome(compiled, x))


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that sums the arrays and floats of a result, with weights, if lengths are no obstacle."""

    def total(x: Any) -> Any:
        result = function(x)
        parts = result if isinstance(result, tuple) else (result,)
        return sum(np.sum(np.array(part) ** 2) * (k + 0.5) for k, part in enumerate(parts))

    return total


SMOOTH = [
    lattice, lattice_with_exercise, returned,
    summed_arrays, largest_and_least, sorted_by_insertion, inserted_at_both_ends, queue_of_a_list,
    popped_in_the_middle, appended_by_a_function, unbounded_in_unbounded, until_large, tuple_at_an_index, double_ended,
    pairs_of_a_comprehension, arrays_at_an_index, pairs_at_an_index, independent_copies, popped_until_empty, of_both_sides,
]  # fmt: skip


@pytest.mark.parametrize("function", SMOOTH)
def test_gradients(function: Callable[..., Any]) -> None:
    total, rng = loss(function), np.random.default_rng(1)
    slope = pb.jit(pb.grad(total), guards=False)
    for exact in INPUTS:
        x = exact + [0.013, 0.007, -0.011, 0.0031]  # at no kink
        plain = outcome(total, x)
        if isinstance(plain, Exception):
            continue
        step = 1e-6 * rng.standard_normal(len(x))
        difference = (total(x + step) - total(x - step)) / 2
        np.testing.assert_allclose(np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-11)
        second = pb.grad(lambda x: np.sum(slope(x) * np.arange(1.0, 5.0)))(x)
        change = np.sum((slope(x + step) - slope(x - step)) * np.arange(1.0, 5.0)) / 2
        np.testing.assert_allclose(np.sum(second * step), change, rtol=1e-4, atol=1e-9)
