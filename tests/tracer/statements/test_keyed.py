"""Dicts and sets whose keys values decide: lookups, insertions, order, types, errors and derivatives."""

import copy
import itertools
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(0)


def types_of(value: Any) -> Any:
    """Return the type of a value, with those of its items; of a set in the order of these."""
    if isinstance(value, dict):
        return type(value), [(types_of(k), types_of(v)) for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), [types_of(v) for v in sorted(value)]
    return (type(value), [types_of(v) for v in value]) if isinstance(value, list | tuple) else type(value)


def counted(x: Any) -> Any:
    counts = {}
    for v in x:
        counts[v] = counts.get(v, 0) + 1
    return counts, len(counts)


def counted_by_branch(x: Any) -> Any:
    counts: dict[Any, int] = dict([])  # noqa: C406
    for v in x:
        if v in counts:
            counts[v] += 1
        else:
            counts[v] = 1
    best = max(counts, key=counts.get)
    return best, counts[best], list(counts), list(counts.values())


def counter(x: Any) -> Any:
    counts = Counter()
    for v in x:
        counts[v % 5] += 2
    return counts, counts[-1], Counter(x), Counter(x).most_common(2), len(counts)


def defaults(x: Any) -> Any:
    total = defaultdict(int)
    for k, v in enumerate(x):
        total[v] += k
    return total, total[17], len(total), dict(total), sorted(total.items())


def of_pairs(x: Any) -> Any:
    table = {}
    for i in range(len(x) - 1):
        pair = (x[i], x[i + 1])
        if pair not in table:
            table[pair] = i
    return table, sorted(table), (x[0], x[1]) in table


def inverse(x: Any) -> Any:
    first = {v: k for k, v in enumerate(x)}
    return [first[v] for v in x[:4]], {v for v in x if v > 3}, len({x[0], x[1], x[2]})


def removed(x: Any) -> Any:
    left = {}
    for v in x:
        left[v] = v * 2
    for v in x[:5]:
        left.pop(v, None)
    for v in x[5:7]:
        if v in left:
            w = left[v]
            del left[v]
            left[-w] = 1
    return left, len(left), [k + 1 for k in left]


def set_default(x: Any) -> Any:
    names: dict[Any, Any] = {}
    return [names.setdefault(v, len(names)) for v in x], len(names)


def repeated(x: Any) -> Any:
    seen, twice = set(), 0
    for v in x:
        if v in seen:
            twice += 1
        seen.add(v)
    return twice, len(seen), sorted(seen), min(seen), max(seen), sum(seen)


def first_repeated(x: Any) -> Any:
    seen = set()
    for k in range(len(x)):
        if x[k] in seen:
            return k, len(seen)
        seen.add(x[k])
    return -1, len(seen)


def distinct(x: Any) -> Any:
    return len(set(x)), sorted(set(x)), set(x), sorted(set(x.tolist())), len(set(itertools.pairwise(x)))


def algebra(x: Any) -> Any:
    a, b = set(x[::2]), set(x[1::2])
    return (
        a & b, a | b, a - b, a ^ b, a <= b, a == b, a.isdisjoint(b), a.union(b) >= a, sorted(a.intersection(b)),
        len(a.difference(b)), bool(a & b), (a & b) < a,
    )  # fmt: skip


def discarded(x: Any) -> Any:
    left = set(x)
    for v in x[:6]:
        left.discard(v)
    left.update(x[:2])
    left |= {100}
    return left, len(left)


def cycle(x: Any) -> Any:
    seen, n = set(), x[0]
    while n not in seen:
        seen.add(n)
        n = (n * n + 3) % 50
    return n, len(seen)


def positions(x: Any) -> Any:
    last: dict[Any, Any] = {}
    longest = start = 0
    for k, v in enumerate(x):
        if v in last and last[v] >= start:
            start = last[v] + 1
        last[v] = k
        longest = max(longest, k - start + 1)
    return longest


def two_sum(x: Any) -> Any:
    seen = {}
    for k, v in enumerate(x):
        if 9 - v in seen:
            return seen[9 - v], k
        seen[v] = k
    return None


INTEGERS = [
    counted, counted_by_branch, counter, defaults, of_pairs, inverse, removed, set_default, repeated, first_repeated, distinct,
    algebra, discarded, cycle, positions, two_sum,
]  # fmt: skip


@pytest.mark.parametrize("function", INTEGERS)
def test_values_types_and_order(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for seed, most in enumerate((9, 5, 40, 9)):
        x = np.random.default_rng(seed).integers(0, most, 20)
        expected, result = function(x), compiled(x)
        assert result == expected
        assert types_of(result) == types_of(expected)


@pytest.mark.parametrize("function", [counted, counted_by_branch, repeated, two_sum, set_default])
def test_lists_of_numbers_of_python(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for seed in range(3):
        x = [int(v) for v in np.random.default_rng(seed).integers(0, 7, 20)]
        assert compiled(x) == function(x)
        assert types_of(compiled(x)) == types_of(function(x))


def totals(k: Any, w: Any) -> Any:
    total = {}
    for i in range(len(k)):
        total[k[i]] = total.get(k[i], 0.0) + w[i] ** 2
    return sum(v * (j + 1) for j, v in enumerate(total.values())) + total[k[3]]


def groups(k: Any, w: Any) -> Any:
    total, count = defaultdict(float), defaultdict(int)
    for key, value in zip(k, w):
        total[key] += value
        count[key] += 1
    out = 0.0
    for key, value in total.items():
        out += key * np.sin(value / count[key])
    return out


def paths(k: Any, w: Any) -> Any:
    best = {}
    for i in range(8):
        for j in range(8):
            step = w[i] * w[j + 2] + (0.0 if k[i] > 2 else 1.0)
            before = max(best[(i - 1, j)] if i else 0.0, best[(i, j - 1)] if j else 0.0)
            best[(i, j)] = before + step
    return best[(7, 7)]


def memo(k: Any, w: Any) -> Any:
    known = {0: 1.0, 1: 0.5}
    for i in range(2, 60):
        known[i] = 0.5 * known[i - 1] + w[i % 10] * known[i - 2]
    return known[59] * known[17]


def looked_up(k: Any, w: Any) -> Any:
    rates = {0: w[0], 1: w[1] ** 2, 2: w[2] * w[3], 3: 2.0 * w[4], 4: w[5]}
    total = 0.0
    for v in k:
        total += rates[v] * w[6]
    return total


@pytest.mark.parametrize("function", [totals, groups, paths, memo, looked_up])
def test_values_and_derivatives(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    slope = pb.jit(pb.grad(function, argnums=1), guards=False)
    for seed in range(3):
        k, w = np.random.default_rng(seed).integers(0, 5, 20), np.random.default_rng(seed).normal(size=20)
        assert type(compiled(k, w)) is type(function(k, w))
        np.testing.assert_allclose(compiled(k, w), function(k, w), rtol=1e-13)
        step = 1e-6 * RNG.standard_normal(20)
        difference = function(k, w + step) - function(k, w - step)
        np.testing.assert_allclose(2 * np.sum(slope(k, w) * step), difference, rtol=1e-6, atol=1e-12)


def test_missing_keys_raise_at_run_time() -> None:
    def read(x: Any, k: Any) -> Any:
        table = {}
        for v in x:
            table[v] = 1.0
        return table[k]

    def deleted(x: Any, k: Any) -> Any:
        table = {}
        for v in x:
            table[v] = 1.0
        del table[k]
        return len(table)

    def taken(x: Any, k: Any) -> Any:
        left = set(x)
        left.remove(k)
        return left

    def inside(x: Any, k: Any) -> Any:
        table, total = {}, 0
        for j in range(3):
            table[x[j]] = j
        for v in x:
            total += table[v]
        return total + k

    x = np.arange(20) % 7
    for function in (read, deleted, taken, inside):
        compiled = pb.jit(function, guards=False)
        for k in (np.int64(3), np.int64(9)):
            try:
                expected = function(x, k)
            except KeyError as error:
                with pytest.raises(KeyError) as caught:
                    compiled(x, k)
                assert caught.value.args == error.args
            else:
                assert compiled(x, k) == expected


def test_the_order_of_a_set_is_refused() -> None:
    def listed(x: Any) -> Any:
        return list(set(x))

    def visited(x: Any) -> Any:
        total = 0.0
        for v in set(x):
            total = 0.5 * total + v
        return total

    def total(x: Any) -> Any:
        return sum(set(x * 0.1))

    for function in (listed, visited, total):
        with pytest.raises(pb.TraceError, match=r"the order of a set|the sum of a set of floats"):
            pb.jit(function, guards=False)(np.arange(20) % 7)


def test_keys_that_are_not_a_number_are_an_error() -> None:
    def distinct(x: Any) -> Any:
        return len(set(x))

    def counted(x: Any) -> Any:
        counts = {}
        for v in x:
            counts[v] = counts.get(v, 0) + 1
        return counts

    x = np.round(RNG.uniform(0, 3, 20))
    for function in (distinct, counted):
        compiled = pb.jit(function, guards=False)
        assert compiled(x) == function(x)
        with pytest.raises(ValueError, match="is not a number"):
            compiled(np.where(x == x[4], math.nan, x))


def test_static_keys_of_other_kinds_stay() -> None:
    def mixed(x: Any) -> Any:
        counts, options = {}, {}
        options["scale"], options["name"] = 2.0, "total"
        for v in x:
            counts[v] = counts.get(v, 0) + 1
        options["scale"] += 1
        table = {"a": x, 1: options["name"], (2, 3): None}
        return counts, options, list(options), table[1], table[(2, 3)], sorted({3, 1, 2}), [str(k) for k in {5: 0, "b": 1}]

    compiled = pb.jit(mixed, guards=False)
    for seed in range(2):
        x = np.random.default_rng(seed).integers(0, 5, 20)
        assert compiled(x) == mixed(x)
        assert types_of(compiled(x)) == types_of(mixed(x))


def test_dicts_and_sets_of_a_call_are_its_own() -> None:
    def counted(x: Any, more: Any) -> Any:
        counts, other = {}, None
        for v in x:
            counts[v] = counts.get(v, 0) + 1
        other = counts
        copied = counts.copy()
        if more > 0:
            other[100] = 1
            del copied[x[0]]
        return counts, copied, 100 in other

    compiled = pb.jit(counted, guards=False)
    for more in (np.int64(1), np.int64(-1), np.int64(1)):
        x = np.arange(20) % 6
        assert compiled(x, more) == counted(x, more)


def test_a_loop_over_a_dict_that_gets_keys_is_refused() -> None:
    def grown(x: Any) -> Any:
        counts = {}
        for v in x:
            counts[v] = 1
        for k in counts:
            counts[k + 1] = 2
        return counts

    with pytest.raises(pb.TraceError, match="changes the length"):
        pb.jit(grown, guards=False)(np.arange(0, 40, 2))


def test_keys_of_a_loop_over_a_dict_are_keys() -> None:
    def entropy(x: Any) -> Any:
        counts = defaultdict(int)
        for v in x:
            counts[v] += 1
        total = 0.0
        for v in counts:
            total -= counts[v] / len(x) * np.log(counts[v] / len(x))
        return total, len(counts)

    def halved(x: Any) -> Any:
        counts = {}
        for v in x:
            counts[v] = counts.get(v, 0) + v
        for v, n in counts.items():
            if n > 3:
                counts[v] = n // 2
        return counts

    for function in (entropy, halved):
        compiled = pb.jit(function, guards=False)
        for most in (3, 9):
            x = np.random.default_rng(most).integers(0, most, 20)
            assert compiled(x) == function(x)


def test_lists_of_lists_whose_lengths_values_decide_are_results() -> None:
    def shared(a: Any, b: Any) -> Any:
        return [sorted(set(a[i]) & set(b[i])) for i in range(len(a))], OrderedDict((v, 1) for v in a[0])

    compiled = pb.jit(shared, guards=False)
    for seed in range(3):
        a, b = np.random.default_rng(seed).integers(0, 6, (2, 4, 5))
        assert compiled(a, b) == shared(a, b)


RATES = {0: 1.5, 3: 2.5, 7: -1.0}


def test_tables_from_outside_are_read_at_keys_that_values_decide() -> None:
    def weighted(x: Any, k: Any) -> Any:
        total = 0.0
        for i in range(len(k)):
            total += RATES[k[i]] * x[i]
        return total

    compiled = pb.jit(weighted, guards=False)
    k, x = np.array([0, 3, 7, 7] * 20), np.arange(80.0)
    assert compiled(x, k) == weighted(x, k)
    np.testing.assert_array_equal(pb.grad(compiled)(x, k), [RATES[int(v)] for v in k])
    with pytest.raises(KeyError) as caught:
        compiled(x, k + 1)
    assert caught.value.args == (1,)


def updated(k: Any, w: Any) -> Any:
    total = {}
    for i in range(len(k)):
        if w[i] > 0:
            total[k[i]] = total.get(k[i], 1.0) * w[i] + np.sin(w[i])
        elif k[i] in total:
            total[k[i] + 10] = total.pop(k[i]) * w[i]
    return sum((j + 1) * v for j, v in enumerate(total.values()))


def test_batches_and_second_derivatives() -> None:
    k, w = RNG.integers(0, 4, (3, 40)), RNG.normal(size=(3, 40))
    compiled = pb.jit(updated, guards=False)
    slope = pb.grad(compiled, argnums=1)
    np.testing.assert_allclose(pb.vmap(compiled)(k, w), [updated(a, b) for a, b in zip(k, w, strict=True)], rtol=1e-12)
    np.testing.assert_allclose(pb.vmap(slope)(k, w), [slope(a, b) for a, b in zip(k, w, strict=True)], rtol=1e-12)
    curvature = pb.grad(lambda x: np.sum(slope(k[0], x) * w[1]))(w[0])
    step = 1e-6 * w[2]
    difference = np.sum((slope(k[0], w[0] + step) - slope(k[0], w[0] - step)) * w[1])
    np.testing.assert_allclose(2 * np.sum(curvature * step), difference, rtol=1e-5, atol=1e-11)


def test_views_copies_and_verified_sets() -> None:
    def views(k: Any) -> Any:
        a, b = {}, {}
        for v in k[:20]:
            a[v] = 1
        for v in k[20:]:
            b[v + 2] = 1
        return sorted(a.keys() & b.keys()), a.keys() - b, len(a.keys() | b.keys()), copy.copy(a)

    compiled = pb.jit(views, guards=False, verify=2)
    for seed in range(2):
        k = np.random.default_rng(seed).integers(0, 6, 40)
        assert compiled(k) == views(k)


def test_keys_of_several_types_are_refused() -> None:
    def read(x: Any, k: Any) -> Any:
        table = {1: 0.5, 2.5: 1.5, x[0]: 2.0}
        return table[k]

    with pytest.raises(pb.TraceError, match="keys of several types"):
        pb.jit(read, guards=False)(np.array([1.0, 2.0]), np.int64(1))


def test_counters_with_traced_values_are_results() -> None:
    def weighted(pairs: Any) -> Any:
        total = Counter()
        for key, weight in pairs:
            total[key] += weight
        return total, {"again": Counter(a=pairs[0][1], b=2)}

    class Named(dict[str, Any]):
        """A dict of the user's."""

    def named(x: Any) -> Any:
        result = Named()
        result["a"] = x
        return result

    compiled = pb.jit(weighted)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        pairs = [(int(k), float(w)) for k, w in zip(rng.integers(0, 5, 20), rng.normal(size=20), strict=True)]
        assert compiled(pairs) == weighted(pairs)
        assert types_of(compiled(pairs)) == types_of(weighted(pairs))
    with pytest.raises(pb.TraceError, match="returns an object of class Named that holds traced values"):
        pb.jit(named)(1.0)


def test_counters_that_a_loop_returns_on_one_path_are_refused_or_right() -> None:
    def ended(q: float) -> Any:
        counts: Counter[int] = Counter()
        lists: defaultdict[int, list[float]] = defaultdict(list)
        steps = 0
        while True:
            steps += 1
            if steps > q:
                return steps, dict(lists), counts
            steps += len(lists)

    with pytest.raises(pb.TraceError, match="in each iteration"):
        pb.jit(ended, guards=False)(2.5)


def dict_of(p: float) -> dict[int, float]:
    return {1: p, 2: 2.0 * p, 3: p}


def removing(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for k, v in d.items():
        s += v
        if p > 0.0:
            del d[k]
    return s


def adding(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for j, v in enumerate(d.values()):
        s += j * v
        if p > 0.0:
            d[7] = p
    return s


def removing_one_that_follows(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for k in d:
        if d[k] > 1.5:
            d.pop(3, None)
        s += 1.0
    return s


def adding_at_the_end(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for k in d:
        if k == 3 and d[k] * k > 2.5:
            del d[k]
        s += 1.0
    return s + len(d)


def adding_to_a_set(p: float) -> Any:
    elements, s = {1}, p
    for _ in elements:
        if p > 0.0:
            elements.add(9)
        s += 1.0
    return s


def leaving_after_a_change(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for k in d:
        if d[k] * k > 1.5:
            del d[k]
            break
        s += d[k]
    else:
        s += 100.0
    return s + len(d)


def leaving_before_another(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for k in d:
        if s > p * 2.0:
            break
        if k == 3 and d[k] * k > 2.5:
            del d[k]
        s += 1.0
    return s + len(d)


def updating(p: float) -> Any:
    d, s = dict_of(p), 0.0
    for _, v in d.items():
        if p > 0.0:
            d[2] = v * 3.0
        s += v
    return s


@pytest.mark.parametrize(
    "function",
    [
        *(removing, adding, removing_one_that_follows, adding_at_the_end, adding_to_a_set),
        *(leaving_after_a_change, leaving_before_another, updating),
    ],
)
def test_loops_over_dicts_that_they_change(function: Callable[..., Any]) -> None:
    """A loop whose dict has another number of keys when the next is read raises Python's error; values are read when their turn
    comes."""
    for compiled in (pb.jit(function), pb.jit(function, guards=False)):
        for p in (1.0, -1.0, 2.5, 0.25):
            try:
                expected = function(p)
            except RuntimeError as error:
                with pytest.raises(RuntimeError, match=str(error)):
                    compiled(p)
            else:
                assert compiled(p) == expected


def test_views_of_dicts_follow_changes() -> None:
    def held(p: float) -> Any:
        d = dict_of(p)
        values, items, s = d.values(), d.items(), 0.0
        if p > 0.0:
            d[1] = p * 7.0
        for k, v in items:
            s += k * v
        for v in values:
            s += v
        return s + sum(values)

    for compiled in (pb.jit(held), pb.jit(held, guards=False)):
        for p in (1.0, -1.0):
            assert compiled(p) == held(p)
