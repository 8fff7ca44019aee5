"""Lists and dicts among the arguments, which a function changes in place: values, contents and identities as plain Python has."""

import copy
import heapq
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(7)
Make = Callable[[], tuple[Any, ...]]


def floats(n: int) -> list[float]:
    return [float(v) for v in RNG.integers(-20, 20, n)]


def rows(n: int, m: int) -> list[list[float]]:
    return [floats(m) for _ in range(n)]


# sorting


def bubble_sort(xs: Any) -> Any:
    n = len(xs)
    for i in range(n):
        for j in range(n - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs


def insertion_sort(arr: Any) -> None:
    for i in range(1, len(arr)):
        key = arr[i]
        j = i - 1
        while j >= 0 and arr[j] > key:
            arr[j + 1] = arr[j]
            j -= 1
        arr[j + 1] = key


def selection_sort(a: Any) -> Any:
    for i in range(len(a)):
        least = i
        for j in range(i + 1, len(a)):
            if a[j] < a[least]:
                least = j
        a[i], a[least] = a[least], a[i]
    return a


def partition(a: Any, low: Any, high: Any) -> Any:
    pivot = a[high]
    i = low - 1
    for j in range(low, high):
        if a[j] <= pivot:
            i += 1
            a[i], a[j] = a[j], a[i]
    a[i + 1], a[high] = a[high], a[i + 1]
    return i + 1


def quick_sort_by_stack(a: Any) -> Any:
    stack = [(0, len(a) - 1)]
    while stack:
        low, high = stack.pop()
        if low < high:
            p = partition(a, low, high)
            stack.append((low, p - 1))
            stack.append((p + 1, high))
    return a


def sift(a: Any, n: Any, i: Any) -> None:
    while True:
        largest = i
        left, right = 2 * i + 1, 2 * i + 2
        if left < n and a[left] > a[largest]:
            largest = left
        if right < n and a[right] > a[largest]:
            largest = right
        if largest == i:
            break
        a[i], a[largest] = a[largest], a[i]
        i = largest


def heap_sort(a: Any) -> None:
    n = len(a)
    for i in range(n // 2 - 1, -1, -1):
        sift(a, n, i)
    for i in range(n - 1, 0, -1):
        a[0], a[i] = a[i], a[0]
        sift(a, i, 0)


def merge(arr: Any, first: int, middle: int, last: int) -> None:
    left, right = arr[first : middle + 1], arr[middle + 1 : last + 1]
    i = j = 0
    k = first
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            arr[k] = left[i]
            i += 1
        else:
            arr[k] = right[j]
            j += 1
        k += 1
    while i < len(left):
        arr[k] = left[i]
        i += 1
        k += 1
    while j < len(right):
        arr[k] = right[j]
        j += 1
        k += 1


def merge_parts(arr: Any, first: int, last: int) -> None:
    if first < last:
        middle = (first + last) // 2
        merge_parts(arr, first, middle)
        merge_parts(arr, middle + 1, last)
        merge(arr, first, middle, last)


def merge_sort(arr: Any) -> Any:
    merge_parts(arr, 0, len(arr) - 1)
    return arr


def sort_by_method(xs: Any, v: Any) -> Any:
    xs.append(v)
    xs.sort()
    xs.reverse()
    return xs[0]


# loops


def reverse_by_two_pointers(xs: Any) -> None:
    i, j = 0, len(xs) - 1
    while i < j:
        xs[i], xs[j] = xs[j], xs[i]
        i += 1
        j -= 1


def sieve(flags: Any) -> Any:
    n = len(flags)
    flags[0] = flags[1] = False
    for p in range(2, n):
        if flags[p]:
            for q in range(p * p, n, p):
                flags[q] = False
    return sum(flags)


def fisher_yates(xs: Any, draws: Any) -> None:
    for i in range(len(xs) - 1, 0, -1):
        j = int(draws[i] * (i + 1))
        xs[i], xs[j] = xs[j], xs[i]


def running_sums(xs: Any) -> Any:
    for k in range(1, len(xs)):
        xs[k] += xs[k - 1]
    return xs[-1]


def append_in_loop(xs: Any, n: Any) -> None:
    for k in range(n):
        xs.append(float(k))


def halves(xs: Any, x: Any) -> Any:
    while x > 1.0:
        x = x / 2
        xs.append(x)
    return xs


def life(grid: Any) -> None:
    n, m = len(grid), len(grid[0])
    new = [[0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            count = 0
            for a in (-1, 0, 1):
                for b in (-1, 0, 1):
                    if a or b:
                        count += grid[(i + a) % n][(j + b) % m]
            new[i][j] = 1 if count == 3 or (count == 2 and grid[i][j] == 1) else 0
    for i in range(n):
        for j in range(m):
            grid[i][j] = new[i][j]


def transpose(m: Any) -> Any:
    for i in range(len(m)):
        for j in range(i + 1, len(m)):
            m[i][j], m[j][i] = m[j][i], m[i][j]
    return m


def solve(a: Any, b: Any) -> Any:
    n = len(b)
    for k in range(n - 1):
        for i in range(k + 1, n):
            f = a[i][k] / a[k][k]
            for j in range(k, n):
                a[i][j] -= f * a[k][j]
            b[i] -= f * b[k]
    x = [0.0] * n
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s -= a[i][j] * x[j]
        x[i] = s / a[i][i]
    return x


def add_polynomials(p: Any, q: Any) -> Any:
    for i in range(len(q)):
        if i < len(p):
            p[i] += q[i]
        else:
            p.append(q[i])
    return p


# heaps, dicts and other state


def fourth_smallest(heap: Any) -> Any:
    heapq.heapify(heap)
    for _ in range(3):
        heapq.heappop(heap)
    return heapq.heappop(heap)


def push(heap: Any, v: Any) -> Any:
    heapq.heappush(heap, v)
    return heap[0]


def fibonacci(n: Any, memo: Any) -> Any:
    if n in memo:
        return memo[n]
    if n < 2:
        return n
    memo[n] = fibonacci(n - 1, memo) + fibonacci(n - 2, memo)
    return memo[n]


def add_edge(graph: Any, u: Any, v: Any, w: Any) -> Any:
    graph.setdefault(u, []).append((v, w))
    graph.setdefault(v, []).append((u, w))
    return len(graph[u])


def count_words(words: Any, counts: Any) -> Any:
    for w in words:
        counts[w] = counts.get(w, 0) + 1
    return counts


def record(w: Any, history: Any) -> Any:
    loss = float(np.sum(w**2))
    history.append(loss)
    return loss


def record_state(w: Any, state: Any) -> Any:
    state["n"] += 1
    state["losses"].append(np.sum(w**2))
    state["last"] = w * 2
    return w.sum()


def every_method(xs: Any, d: Any) -> Any:
    xs.insert(1, 9.0)
    xs.extend([1.0, 2.0])
    xs += [4.0]
    last = xs.pop()
    xs.reverse()
    first = xs.pop(0)
    xs.remove(9.0)
    d.update(a=1.0, z=last)
    d.setdefault("q", []).append(first)
    removed = d.pop("b")
    del xs[0]
    xs.sort()
    return removed


def clear(xs: Any, d: Any) -> None:
    xs.clear()
    d.clear()
    d["new"] = xs


def default_dict(d: Any, x: Any) -> Any:
    d[3].append(x)
    return d


def ordered_dict(d: Any, x: Any) -> None:
    d.move_to_end("a")
    d["z"] = x


def counts_by_value(xs: Any, counts: Any) -> Any:
    for x in xs:
        k = int(x) % 3
        counts[k] = counts.get(k, 0) + 1
    return counts


def memo_by_value(x: Any, memo: Any) -> Any:
    if int(x) in memo:
        return memo[int(x)]
    memo[int(x)] = x * x
    return x * x


def last_by_value(xs: Any, out: Any) -> Any:
    seen = {}
    for x in xs:
        seen[int(x)] = x
    out["seen"], out["n"] = seen, len(seen)
    return seen


def rolling_window(q: Any, x: Any) -> Any:
    q.append(x)
    q.popleft()
    return q


def bounded_window(q: Any, x: Any) -> Any:
    q.append(x)
    return sum(q) / len(q)


def halves_in_a_deque(q: Any, x: Any) -> Any:
    while x > 1.0:
        x = x / 2
        q.append(x)
    return q


def breadth_first(neighbours: Any, q: Any, distance: Any) -> None:
    while q:
        u = q.popleft()
        for v in neighbours[u]:
            if v not in distance:
                distance[v] = distance[u] + 1
                q.append(v)


def depth_first(neighbours: Any, u: Any, seen: Any, order: Any) -> None:
    seen.add(u)
    for v in neighbours[u]:
        if v not in seen:
            depth_first(neighbours, v, seen, order)
    order.append(u)


def visit(seen: Any, u: Any) -> Any:
    if u in seen:
        return False
    seen.add(u)
    return True


def elements_by_value(seen: Any, xs: Any) -> None:
    for x in xs:
        seen.add(int(x))


def set_methods(s: Any, t: Any) -> Any:
    s |= t
    s.discard(1)
    s.update([7])
    t.clear()
    return len(s), s


def over_a_set(s: Any) -> Any:
    return [2 * e for e in s], {1, 2}, deque([1.0])


# identities


def in_a_tuple(t: Any) -> Any:
    t[0].append(t[1])
    return t


def swapped_arrays(xs: Any) -> Any:
    xs[0], xs[1] = xs[1], xs[0]
    xs.append(xs[0] * 2)
    return xs[0], xs[2]


def written_arrays(xs: Any) -> Any:
    xs[0] += 1.0
    xs.append(xs[0])
    return xs[1]


def new_list_under_several_names(d: Any) -> Any:
    new = [1.0]
    d["a"], d["b"], d["c"] = new, new, {"inside": new}
    return new


def new_array_under_several_names(d: Any, x: Any) -> Any:
    new = x * 2
    d["a"] = new
    return new, [new]


def exchanged_rows(m: Any, i: Any, j: Any) -> Any:
    m[i], m[j] = m[j], m[i]
    return m[i]


def two_names(a: Any, b: Any) -> Any:
    a[0] = 5.0
    b[1] = a[0] + b[0]
    return a, b


def two_keys(d: Any) -> Any:
    d["x"].append(1.0)
    d["y"].append(2.0)
    return d["x"]


def one_in_another(d: Any, xs: Any) -> Any:
    d["xs"] = xs
    xs.append(3.0)
    return d


def returned(xs: Any, d: Any) -> Any:
    xs[0] += 1.0
    return d, xs, [xs]


def arrays_under_two_names(a: Any, b: Any) -> Any:
    a[0] *= 2.0
    b[0] += 1.0
    b.append(a[0])
    return a[0]


def two_lists_of_arrays() -> tuple[Any, Any]:
    xs = [RNG.random(3)]
    return xs, xs


# branches and errors


def by_sign(xs: Any, v: Any) -> None:
    if v > 0:
        xs[0] = v
    else:
        xs[1] = v


def appended_by_sign(xs: Any, v: Any) -> Any:
    if v > 0:
        xs.append(v)
    return xs


def early_return(xs: Any, v: Any) -> Any:
    if v > 0:
        return None
    xs.append(v)
    return v


def raises_in_the_middle(xs: Any, d: Any, v: Any) -> Any:
    xs[0] = v
    xs.append(v)
    d["v"] = v
    if v < 0:
        raise ValueError("negative")
    xs[1] = 2 * v
    return v


def index_error(xs: Any, i: Any) -> None:
    xs[0] = 1.0
    xs[i] = 2.0


def of_a_tuple(t: Any) -> None:
    t[0] = 1.0


def graph() -> dict[int, Any]:
    return {0: [], 1: [(2, 1.0)], 2: [(1, 1.0)]}


def twice() -> tuple[Any, Any]:
    xs = [1.0, 2.0]
    return xs, xs


def twice_in_a_dict() -> tuple[Any, ...]:
    xs = [1.0]
    return ({"x": xs, "y": xs},)


PROGRAMS: list[tuple[Callable[..., Any], list[Make]]] = [
    *((f, [lambda: (floats(9),), lambda: (floats(7),)]) for f in (bubble_sort, insertion_sort, selection_sort, heap_sort)),
    *((f, [lambda: (floats(9),), lambda: (floats(7),)]) for f in (quick_sort_by_stack, merge_sort, reverse_by_two_pointers)),
    (bubble_sort, [lambda: (floats(40),)]),
    (bubble_sort, [lambda: ([int(v) for v in floats(30)],)]),
    (bubble_sort, [lambda: ([np.float64(v) for v in floats(30)],)]),
    (sort_by_method, [lambda: (floats(8), 0.5)]),
    (sieve, [lambda: ([True] * 40,)]),
    (fisher_yates, [lambda: (floats(12), RNG.random(12))]),
    (running_sums, [lambda: (floats(30),)]),
    (append_in_loop, [lambda: ([1.0], 30), lambda: ([1.0], 25)]),
    (halves, [lambda: ([1.0], 100.0), lambda: ([1.0], 1000.0), lambda: ([1.0], 0.5)]),
    (life, [lambda: ([[int(v > 0) for v in row] for row in rows(6, 7)],)]),
    (transpose, [lambda: (rows(5, 5),)]),
    (solve, [lambda: ([[v + 99.0 * (i == j) for j, v in enumerate(r)] for i, r in enumerate(rows(6, 6))], floats(6))]),
    (add_polynomials, [lambda: ([1.0, 2.0], [3.0, 4.0, 5.0])]),
    (fourth_smallest, [lambda: (floats(8),)]),
    (push, [lambda: (sorted(floats(8)), 0.5), lambda: (sorted(floats(8)), -30.0)]),
    (fibonacci, [lambda: (10, {}), lambda: (12, {3: 2, 2: 1})]),
    (add_edge, [lambda: (graph(), 0, 1, 2.5), lambda: (graph(), 0, 5, 1.5)]),
    (count_words, [lambda: (("a", "b", "a"), {"b": 3}), lambda: (("a", "b", "a"), {"b": 4})]),
    (record, [lambda: (RNG.random(4), []), lambda: (RNG.random(4), [1.0])]),
    (record_state, [lambda: (RNG.random(4), {"n": 0, "losses": [], "last": None})]),
    (every_method, [lambda: ([3.0, 1.0, 2.0], {"a": 0.0, "b": 5.0})]),
    (clear, [lambda: ([3.0], {"a": 1})]),
    (default_dict, [lambda: (defaultdict(list), 1.0), lambda: (defaultdict(list, {3: [2.0]}), 1.0)]),
    (ordered_dict, [lambda: (OrderedDict(a=1.0, b=2.0), 3.0)]),
    (counts_by_value, [lambda: (np.array(floats(20)), {}), lambda: (np.array(floats(20)), {1: 5})]),
    (memo_by_value, [lambda: (3.5, {1: 9.0}), lambda: (1.5, {1: 9.0})]),
    (last_by_value, [lambda: (np.array(floats(9)), {})]),
    (rolling_window, [lambda: (deque([1.0, 2.0, 3.0]), 4.0)]),
    (bounded_window, [lambda: (deque([1.0, 2.0, 3.0], 3), 4.0), lambda: (deque([1.0], 3), 4.0)]),
    (halves_in_a_deque, [lambda: (deque([1.0]), 100.0), lambda: (deque([1.0]), 50.0)]),
    (breadth_first, [lambda: ({0: [1, 2], 1: [3], 2: [3], 3: []}, deque([0]), {0: 0})]),
    (depth_first, [lambda: ({0: [1, 2], 1: [3], 2: [3], 3: []}, 0, set(), [])]),
    (visit, [lambda: ({1, 2}, 3), lambda: ({1, 2}, 2), lambda: (set(), 2)]),
    (elements_by_value, [lambda: ({1, 2}, np.array(floats(20)))]),
    (set_methods, [lambda: ({1, 2}, {3, "a"})]),
    (over_a_set, [lambda: ({5, 1, 9},), lambda: ({9, 1, 5, 100},)]),
    (in_a_tuple, [lambda: (([1.0], 2.0),)]),
    (swapped_arrays, [lambda: ([RNG.random(2), RNG.random(3)],)]),
    (written_arrays, [lambda: ([RNG.random(2), RNG.random(3)],)]),
    (new_list_under_several_names, [lambda: ({},), lambda: ({"a": 1},)]),
    (new_array_under_several_names, [lambda: ({}, RNG.random(3))]),
    (exchanged_rows, [lambda: (rows(2, 2), 0, 1)]),
    (two_names, [lambda: ([1.0, 2.0], [1.0, 2.0]), twice, lambda: ([1.0, 2.0], [1.0, 2.0]), twice]),
    (two_names, [twice, lambda: ([1.0, 2.0], [1.0, 2.0])]),
    (arrays_under_two_names, [two_lists_of_arrays, lambda: ([RNG.random(3)], [RNG.random(3)])]),
    (two_keys, [lambda: ({"x": [1.0], "y": [1.0]},), twice_in_a_dict]),
    (one_in_another, [lambda: ({}, [1.0])]),
    (returned, [lambda: ([1.0], {"a": [2.0]})]),
    (by_sign, [lambda: ([1.0, 2.0], 3.0), lambda: ([1.0, 2.0], -3.0)]),
    (appended_by_sign, [lambda: ([1.0, 2.0], 3.0), lambda: ([1.0, 2.0], -3.0)]),
    (early_return, [lambda: ([1.0, 2.0], 3.0), lambda: ([1.0, 2.0], -3.0)]),
    (raises_in_the_middle, [lambda: ([1.0, 2.0], {}, 3.0), lambda: ([1.0, 2.0], {}, -3.0)]),
    (index_error, [lambda: ([1.0, 2.0], 5), lambda: ([1.0, 2.0], 1)]),
    (of_a_tuple, [lambda: ((1.0, 2.0),)]),
]


def names_of(value: Any, names: dict[int, int]) -> Iterator[int]:
    """Yield a number for each container and array in a value, the same for the same object."""
    if isinstance(value, list | dict | deque | set | np.ndarray):
        is_new = id(value) not in names
        yield names.setdefault(id(value), len(names))
        if not is_new:
            return
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | deque) else ():
        yield from names_of(item, names)


def refuse_unlike(a: Any, b: Any) -> None:
    """Fail unless two values have the same types, keys and, to the last digits, numbers."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, list | tuple | deque):
        assert len(a) == len(b), (a, b)
        assert not isinstance(a, deque) or a.maxlen == b.maxlen
        for x, y in zip(a, b, strict=True):
            refuse_unlike(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            refuse_unlike(a[key], b[key])
    elif isinstance(a, float | np.ndarray | np.generic):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    else:
        assert a == b


@pytest.mark.parametrize(("function", "makes"), PROGRAMS, ids=[f"{f.__name__}-{k}" for k, (f, _) in enumerate(PROGRAMS)])
def test_calls_leave_what_plain_python_leaves(function: Callable[..., Any], makes: list[Make]) -> None:
    """Values, contents, types and identities, in calls with other values, and after an error the arguments of before."""
    compiled = pb.jit(function)
    for k in range(2 + 2 * len(makes)):
        args = makes[k % len(makes)]()
        mine, plain = copy.deepcopy(args), copy.deepcopy(args)
        plain_contents = str(plain)
        try:
            expected = function(*plain)
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(*mine)
            refuse_unlike(mine, args)
            continue
        result = compiled(*mine)
        refuse_unlike((result, mine), (expected, plain))
        if plain_contents == str(plain):
            continue  # a call that changes no container returns a new one
        assert list(names_of((result, mine), {})) == list(names_of((expected, plain), {}))


# transforms


def sorted_sum(xs: Any, w: Any) -> Any:
    bubble_sort(xs)
    return sum(x * x * (k + 1) for k, x in enumerate(xs)) * w


def scaled_in_place(xs: Any, w: Any) -> Any:
    for k in range(len(xs)):
        xs[k] = xs[k] * w + k
    return sum(x * x for x in xs)


def state_of_steps(x: Any, state: Any) -> Any:
    for k in range(5):
        state["v"] = 0.5 * state["v"] + x * k
        state["path"].append(state["v"])
    return sum(v * v for v in state["path"])


def products(xs: Any, w: Any) -> Any:
    xs.append(xs[0] * w)
    xs[0] = xs[1] * xs[-1]
    xs[1] = xs.pop()
    return xs[0] * xs[1] + w


def history(w: Any, losses: Any) -> Any:
    loss = (w**2).sum() * 3.0
    losses.append(float(loss))
    return loss


GRADIENTS: list[tuple[Callable[..., Any], Make, int]] = [
    (sorted_sum, lambda: ([3.0, 1.0, 2.0, 5.0, -1.0], 1.5), 0),
    (sorted_sum, lambda: ([3.0, 1.0, 2.0, 5.0, -1.0], 1.5), 1),
    (scaled_in_place, lambda: ([3.0, 1.0, 2.0], 1.5), 0),
    (scaled_in_place, lambda: ([float(k) for k in range(20)], 0.5), 1),
    (state_of_steps, lambda: (1.5, {"v": 1.0, "path": [0.5]}), 0),
    (products, lambda: ([2.0, 3.0, 1.0], 1.5), 0),
    (products, lambda: ([2.0, 3.0, 1.0], 1.5), 1),
    (history, lambda: (np.array([1.0, 2.0]), [4.0]), 0),
]


@pytest.mark.parametrize(("function", "make", "argnum"), GRADIENTS)
def test_gradients_and_one_store(function: Callable[..., Any], make: Make, argnum: int) -> None:
    """The gradient by central differences; the containers have what one call of the function leaves, as numbers."""
    compiled = pb.value_and_grad(function, argnum)
    for _ in range(3):
        mine, plain = make(), make()
        value, gradient = compiled(*mine)
        np.testing.assert_allclose(value, function(*plain), rtol=1e-12)
        refuse_unlike(mine, plain)
        for _ in range(3):
            direction = random_like(make()[argnum])
            above, below = (moved(make(), argnum, direction, h) for h in (1e-6, -1e-6))
            slope = (function(*above) - function(*below)) / 2e-6
            np.testing.assert_allclose(product(gradient, direction), slope, rtol=1e-6, atol=1e-6)


def random_like(x: Any) -> Any:
    return [random_like(e) for e in x] if isinstance(x, list) else RNG.normal(size=np.shape(x))


def moved(args: tuple[Any, ...], argnum: int, direction: Any, by: float) -> list[Any]:
    """Return the arguments with one of them moved along a direction."""
    x = args[argnum]
    new = [a + by * float(d) for a, d in zip(x, direction, strict=True)] if isinstance(x, list) else x + by * direction
    return [*args[:argnum], new, *args[argnum + 1 :]]


def product(a: Any, b: Any) -> Any:
    return sum(map(product, a, b)) if isinstance(a, list) else np.sum(a * b)


def test_a_list_in_aux_is_the_callers() -> None:
    def f(w: Any, xs: Any) -> Any:
        xs.append(w * 2)
        return w * w, xs

    xs = [1.0]
    (value, aux), gradient = pb.value_and_grad(f, has_aux=True)(3.0, xs)
    assert aux is xs
    assert (value, gradient, xs) == (9.0, 6.0, [1.0, 6.0])
    assert type(xs[1]) is float


def test_a_gradient_inside_a_function() -> None:
    def step(w: Any, losses: Any) -> Any:
        value, gradient = pb.value_and_grad(history)(w, losses)
        losses.append(value)
        return w - 0.1 * gradient

    losses: list[Any] = []
    compiled, w = pb.jit(step), np.array([1.0, 2.0])
    for _ in range(3):
        w = compiled(w, losses)
    assert len(losses) == 6
    assert losses[0] == losses[1] == 15.0
    assert losses[4] < losses[2] < losses[0]


def test_second_derivatives_store_once() -> None:
    def f(x: Any, log: Any) -> Any:
        log.append(x * 2)
        return x**3

    log: list[Any] = []
    assert pb.grad(pb.grad(f))(2.0, log) == 12.0
    assert log == [4.0]


def appends(y: Any, xs: Any) -> Any:
    xs.append(1.0)
    return y * y


REFUSED: list[tuple[Callable[..., Any], str]] = [
    (lambda xs, x: pb.vmap(appends, (0, None))(x, xs), "changes the argument"),
    (lambda xs, x: pb.vmap(lambda y: appends(y, xs))(x), "a function that is mapped changes the argument xs"),
    (lambda xs, x: np.vectorize(lambda y: appends(y, xs))(x), "called for each element changes the argument xs"),
    (lambda xs, x: pb.scan(lambda c, y: (c + appends(y, xs), y), 0.0, x), "the body of a loop changes xs"),
    (lambda xs, x: pb.cond(x[0] > 0, lambda: appends(x, xs), lambda: x), "a branch changes xs"),
    (lambda xs, x: pb.jvp(lambda y: appends(y, xs), (x,), (x,)), "a function that is linearized changes the argument xs"),
    (lambda xs, x: pb.vmap(lambda y: pb.grad(lambda z: appends(z, xs))(y))(x), "a function that is mapped changes the argument"),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_changes_in_functions_that_run_several_times_are_refused(k: int) -> None:
    function, message = REFUSED[k]
    xs = [0.0]
    with pytest.raises(pb.TraceError, match=message):
        pb.jit(function)(xs, np.arange(1.0, 4.0))
    assert xs == [0.0]


@pytest.mark.parametrize("container", [[1.0], {1: 1.0}, {1}, deque([1.0])])
def test_maps_refuse_changes_of_whole_containers(container: Any) -> None:
    def f(x: Any, c: Any) -> Any:
        c.clear()
        return x

    before = copy.deepcopy(container)
    with pytest.raises(pb.TraceError, match="changes the argument c"):
        pb.vmap(f, (0, None))(np.arange(3.0), container)
    assert container == before


def test_gradients_with_deques_and_sets() -> None:
    def f(q: Any, seen: Any) -> Any:
        q.append(q[0] * q[1])
        q.popleft()
        seen.add(4)
        return q[0] * q[1]

    q, seen = deque([2.0, 3.0]), {1}
    gradient = pb.grad(f)(q, seen)
    assert list(gradient) == [9.0, 12.0]
    assert (list(q), seen) == ([3.0, 6.0], {1, 4})


def test_a_map_over_a_list_that_the_function_changes_is_refused() -> None:
    xs = [np.arange(3.0)]
    with pytest.raises(pb.TraceError, match="changes the argument xs, and the caller's would stay as it is"):
        pb.vmap(lambda xs: xs.append(xs[0]))(xs)
    assert len(xs) == 1


def test_a_traced_value_of_an_inner_function_is_not_stored() -> None:
    """A value that a function, whose gradient is taken inside, puts in a list around it does not exist outside of it."""

    def f(xs: Any, x: Any) -> Any:
        def inner(y: Any) -> Any:
            xs.append(y * 2)
            return y * y

        return pb.grad(inner)(x)

    with pytest.raises(pb.TraceError, match="traced value used after its trace"):
        pb.jit(f)([], 2.0)


def test_arrays_of_a_list_that_a_loop_changes_keep_their_identity() -> None:
    """A loop on traced values would make new arrays; the loop unrolls instead."""

    def by_sums(xs: Any) -> None:
        for i in range(len(xs)):
            for j in range(len(xs) - 1 - i):
                if xs[j].sum() > xs[j + 1].sum():
                    xs[j], xs[j + 1] = xs[j + 1], xs[j]

    arrays = [np.array([3.0, 1.0]), np.array([2.0, 0.0]), np.array([0.0, 1.0])]
    xs = list(arrays)
    pb.jit(by_sums, guards=True)(xs)
    assert [next(k for k, a in enumerate(arrays) if a is x) for x in xs] == [2, 1, 0]


def test_a_function_with_its_own_derivative_that_changes_a_list_is_refused() -> None:
    @pb.custom_vjp
    def f(xs: Any, v: Any) -> Any:
        xs.append(v)
        return v * v

    f.defvjp(lambda xs, v: (f(xs, v), v), lambda v, seed: (None, 2 * v * seed))
    xs = [1.0]
    with pytest.raises(pb.TraceError, match="changes the argument 0 of a function with derivative rules"):
        pb.grad(lambda v, xs: f(xs, v))(2.0, xs)
    assert xs == [1.0]


def test_checks_of_gradients_leave_the_arguments() -> None:
    log: list[float] = []
    pb.check_grad(history)(np.array([1.0, 2.0]), log)
    assert log == []


def test_keys_by_value_in_a_function_that_is_differentiated_are_refused() -> None:
    def f(x: Any, memo: Any) -> Any:
        if x > 0.0:
            memo[int(x)] = x * x
        return x * x

    memo: dict[int, float] = {}
    with pytest.raises(pb.TraceError, match=r"a dict among the arguments|a traced value"):
        pb.grad(f)(2.0, memo)
    assert memo == {}


@dataclass
class Model:
    weights: list[float]
    rate: float


def test_a_list_in_a_dataclass() -> None:
    def grow(model: Any, x: Any) -> Any:
        model.weights.append(x * model.rate)
        return model.weights

    model = Model([1.0], 2.0)
    weights = model.weights
    assert pb.jit(grow)(model, 3.0) is weights
    assert weights == [1.0, 6.0]


def test_an_attribute_of_an_argument_is_set() -> None:
    def set_rate(model: Any, x: Any) -> None:
        model.rate = x

    model = Model([1.0], 2.0)
    pb.jit(set_rate)(model, 3.0)
    assert model == Model([1.0], 3.0)


def test_a_list_in_itself() -> None:
    def f(xs: Any, d: Any) -> None:
        new: dict[str, Any] = {}
        new["self"] = new
        d["new"] = new
        xs.append(xs)

    xs: list[Any] = []
    d: dict[str, Any] = {}
    pb.jit(f)(xs, d)
    assert xs[0] is xs
    assert d["new"]["self"] is d["new"]


# ways to call


def test_verify_compares_containers() -> None:
    compiled = pb.jit(every_method, verify=2)
    for _ in range(3):
        mine, plain = ([3.0, 1.0, 2.0], {"a": 0.0, "b": 5.0}), ([3.0, 1.0, 2.0], {"a": 0.0, "b": 5.0})
        compiled(*mine)
        every_method(*plain)
        refuse_unlike(mine, plain)


def test_verify_finds_other_contents_and_restores() -> None:
    """The trace has the value of a function of Python's that no guard sees."""

    def f(xs: Any, v: Any) -> None:
        xs[0] = v
        xs.append(v * sys.getrecursionlimit())

    compiled, xs, before = pb.jit(f, verify=2), [1.0], sys.getrecursionlimit()
    compiled([1.0], 2.0)
    sys.setrecursionlimit(before + 1)
    try:
        with pytest.raises(pb.VerificationError, match=r"argument xs afterwards\[1\] differs"):
            compiled(xs, 2.0)
    finally:
        sys.setrecursionlimit(before)
    assert xs == [1.0]


def test_keywords_and_nested_functions() -> None:
    compiled = pb.jit(lambda w, *, log: pb.jit(record)(w, log) * 2)
    for k in range(4):
        log: list[Any] = [0.0] * (k % 2)
        assert compiled(np.ones(3), log=log) == 6.0
        assert log == [*[0.0] * (k % 2), 3.0]


def test_symbolic_sizes() -> None:
    compiled, log = pb.jit(record, dynamic=True), list[float]()
    for n in (3, 4, 3):
        compiled(np.ones(n), log)
    assert log == [3.0, 4.0, 3.0]


def test_out_and_export_are_refused(tmp_path: Path) -> None:
    log: list[float] = []
    with pytest.raises(pb.TraceError, match="is called without out"):
        pb.jit(record).into(None, np.ones(3), log)
    with pytest.raises(pb.ExportError, match="changes history: return new ones instead"):
        pb.export(record, np.ones(3), log, path=tmp_path / "record")
    assert log == []


def test_donated_arrays_and_a_list() -> None:
    def f(x: Any, log: Any) -> Any:
        log.append(x.sum())
        return x * 2

    log: list[Any] = []
    np.testing.assert_array_equal(pb.jit(f, donate=0)(np.ones(3), log), 2.0)
    assert log == [3.0]


def test_reports() -> None:
    compiled = pb.jit(record)
    compiled(np.ones(3), [])
    report = compiled.explain(np.ones(3), [])
    assert "Python, since it changes history, which Python stores" in str(report)
    found = pb.find_nan(record)(np.array([np.nan]), [])
    assert found.results == ("result",)  # what is stored is the result
    found = pb.find_nan(record_state)(np.array([np.nan]), {"n": 0, "losses": [], "last": None})
    assert found.results == ("result", "argument state['last'] after the call", "argument state['losses'][0] after the call")


def test_plain_python_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_DISABLE_JIT", "1")
    log: list[float] = []
    pb.jit(record)(np.ones(3), log)
    assert log == [3.0]


def test_an_unchanged_list_needs_no_python() -> None:
    report = pb.jit(lambda xs: xs[0] + xs[1]).explain([1.0, 2.0])
    assert "Python, since" not in str(report)


# lists that only get longer


def traces_of(function: Any) -> int:
    return sum(map(len, function._entries.by_key.values()))


def test_a_list_that_only_gets_longer_is_traced_a_few_times() -> None:
    def step(w: Any, log: Any, *, state: Any) -> Any:
        loss = np.sum(w**2)
        log.append(float(loss))
        state["losses"].append(loss)
        state["losses"] += [w * 2, loss]
        return log

    mine: tuple[Any, Any] = ([], {"losses": [], "name": "a"})
    plain: tuple[Any, Any] = ([], {"losses": [], "name": "a"})
    compiled, counts = pb.jit(step), []
    for k in range(50):
        w = np.full(3, float(k))
        assert compiled(w, mine[0], state=mine[1]) is mine[0]
        step(w, plain[0], state=plain[1])
        counts.append(traces_of(compiled))
    refuse_unlike(mine, plain)
    assert counts[-1] == counts[10]
    for k in range(3):  # the same program, other lists
        other: list[Any] = [k]
        compiled(np.ones(3), other, state={"losses": [], "name": "a"})
        assert other == [k, 3.0]
    assert traces_of(compiled) == counts[-1]


def by_length(log: Any) -> Any:
    log.append(float(len(log)))
    return log[-1]


def by_contents(log: Any) -> Any:
    log.append(1.0 + sum(log))
    return log[0]


def by_heap(log: Any) -> Any:
    heapq.heappush(log, 3.0 - 2.0 * np.float64(0.0))
    return None


def by_truth(log: Any) -> Any:
    if log:
        log.append(2.0)
    else:
        log.append(1.0)


def by_array(log: Any) -> Any:
    log.append(1.0)
    return np.mean(log)


def by_copy(log: Any) -> Any:
    log.append(2.0)
    return [*log], list(log), log + [1.0], [1.0] + log, tuple(log)


def by_loop(log: Any) -> Any:
    total = 0.0
    for x in log:
        total += x
    log.append(total)


def in_a_loop(log: Any) -> Any:
    for k in range(20):
        log.append(float(k))


def under_a_branch(log: Any) -> Any:
    for k in range(2):
        if np.sin(float(k)) > 0.5:
            log.append(float(k))
    log.append(-1.0)


@pytest.mark.parametrize(
    "function", [by_length, by_contents, by_heap, by_truth, by_array, by_copy, by_loop, in_a_loop, under_a_branch]
)
def test_a_list_that_is_read_is_traced_with_its_contents(function: Callable[..., Any]) -> None:
    compiled, mine, plain = pb.jit(function), list[float](), list[float]()
    for _ in range(8):
        refuse_unlike(compiled(mine), function(plain))
        refuse_unlike(mine, plain)


def test_a_list_that_is_read_on_one_path() -> None:
    def f(log: Any, n: Any) -> Any:
        log.append(1.0)
        return log[0] if n else 0.0

    compiled, log = pb.jit(f), [5.0]
    for k in range(12):
        assert compiled(log, k % 9 == 8) == (5.0 if k % 9 == 8 else 0.0)
    assert log == [5.0, *[1.0] * 12]


def test_gradients_and_verified_calls_of_lists_that_get_longer() -> None:
    gradient, verified, first, second = pb.value_and_grad(history), pb.jit(record, verify=20), list[float](), list[float]()
    for k in range(10):
        value, slope = gradient(np.array([1.0, float(k)]), first)
        np.testing.assert_allclose(slope, [6.0, 6.0 * k])
        verified(np.array([1.0, float(k)]), second)
        assert first[-1] == value
    assert first == [3.0 * (1 + k * k) for k in range(10)]
    assert second == [1.0 + k * k for k in range(10)]


def test_a_list_that_gets_longer_under_two_names() -> None:
    def f(a: Any, b: Any) -> Any:
        a.append(1.0)
        b.append(2.0)
        return a is b

    compiled = pb.jit(f)
    mine, plain = (list[float](), list[float]()), (list[float](), list[float]())
    for k in range(8):
        assert compiled(*mine) is f(*plain) is False
        if k > 5:
            assert compiled(mine[0], mine[0]) is f(plain[0], plain[0]) is True
    assert mine == plain


def test_an_error_of_a_call_keeps_the_list() -> None:
    def f(x: Any, log: Any) -> Any:
        log.append(x)
        if x < 0:
            raise ValueError("negative")
        return x

    compiled, log = pb.jit(f), list[float]()
    for k in range(10):
        if k % 3 == 2:
            with pytest.raises(ValueError, match="negative"):
                compiled(-1.0, log)
        else:
            compiled(float(k), log)
    assert log == [0.0, 1.0, 3.0, 4.0, 6.0, 7.0, 9.0]


@pytest.mark.parametrize("make", [lambda: [1.0, 2.0], lambda: {0: 1.0}, lambda: deque([1.0])], ids=["list", "dict", "deque"])
@pytest.mark.parametrize("first", [0, 1])
def test_whether_two_arguments_are_one_container(make: Any, first: int) -> None:
    """A program is for calls with the same containers in the same places."""

    def same(p: Any, q: Any) -> Any:
        return p is q, p[0] + q[0]

    def branching(p: Any, q: Any) -> Any:
        if p is not q:
            return p[0] * q[0]
        return -p[0]

    one, other = make(), make()
    for f in (same, branching):
        compiled = pb.jit(f)
        for arguments in (((one, other), (one, one))[first], (one, one), (one, other), (other, other), (other, one)):
            for _ in range(2):
                assert compiled(*arguments) == f(*arguments)
