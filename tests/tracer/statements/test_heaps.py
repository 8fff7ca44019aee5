"""The module heapq in compiled functions: the heaps of CPython, to the order of their elements."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def made_a_heap(x: Any) -> Any:
    heap = list(x)
    heapq.heapify(heap)
    return heap


def pushed(x: Any) -> Any:
    heap: list[Any] = []
    for v in x:
        heapq.heappush(heap, v)
    return heap


def merged_pairs(x: Any) -> Any:
    heap, total = list(x), 0.0
    heapq.heapify(heap)
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        total += a + b
        heapq.heappush(heap, a + b)
    return total, heap


def greatest(x: Any) -> Any:
    heap: list[Any] = []
    for v in x:
        if len(heap) < 7:
            heapq.heappush(heap, v)
        else:
            heapq.heappushpop(heap, v)
    return sorted(heap), heap


def replaced(x: Any) -> Any:
    heap = [v for v in x if v > -0.5]
    heapq.heapify(heap)
    out = [heapq.heapreplace(heap, v * 2) for v in x]
    return out, heap


def sorted_by_a_heap(x: Any) -> Any:
    heap = list(x)
    heapq.heapify(heap)
    return [heapq.heappop(heap) for _ in range(len(x))]


def distances(x: Any) -> Any:
    weights = np.abs(x[:36].reshape(6, 6)) * (x[:36].reshape(6, 6) > -0.3)
    found = [math.inf] * 6
    found[0] = 0.0
    queue = [(0.0, 0)]
    while queue:
        distance, node = heapq.heappop(queue)
        if distance > found[node]:
            continue
        for k in range(6):
            if weights[node, k] > 0 and distance + weights[node, k] < found[k]:
                found[k] = distance + weights[node, k]
                heapq.heappush(queue, (found[k], k))
    return found


def events(x: Any) -> Any:
    queue = [(1.0 / abs(x[i]), i) for i in range(3)]
    heapq.heapify(queue)
    counts, time = np.zeros(3), 0.0
    while time < 20.0:
        time, i = heapq.heappop(queue)
        counts[i] += 1
        heapq.heappush(queue, (time + 1.0 / abs(x[i]), i))
    return counts, time


FUNCTIONS = (made_a_heap, pushed, merged_pairs, greatest, replaced, sorted_by_a_heap, distances, events)
INPUTS = [np.random.default_rng(k).standard_normal(40) for k in range(4)]
INPUTS[3] = np.round(INPUTS[3])


@pytest.mark.long
def test_heaps_are_those_of_cpython() -> None:
    for function in FUNCTIONS:
        compiled = pb.jit(function, guards=False)
        for x in INPUTS[: 3 if function is events else 4]:
            assert repr(compiled(x)) == repr(function(x)), function.__name__


@pytest.mark.long
def test_the_derivative_of_what_a_heap_returns() -> None:
    def loss(x: Any) -> Any:
        return merged_pairs(x)[0] + sum([v * k for k, v in enumerate(sorted_by_a_heap(x))])

    x = INPUTS[0][:12]
    step = 1e-6 * np.eye(12)
    expected = [(loss(x + e) - loss(x - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(pb.grad(loss)(x), expected, rtol=1e-6)


def test_an_empty_heap() -> None:
    def least(x: Any) -> Any:
        heap = [v for v in x if v > 0]
        return heapq.heappop(heap)

    compiled = pb.jit(least)
    assert compiled(np.array([0.5, -1.0, 1.0])) == 0.5
    with pytest.raises(IndexError, match="pop from empty list"):
        compiled(np.array([-1.0, -2.0, -0.5]))


def fill(out: list[Any], x: Any) -> None:
    for v in x:
        if v > 0:
            out.append(v)


def collect(function: Callable[..., Any]) -> Any:
    def collected(x: Any) -> Any:
        out: list[Any] = []
        function(out, x)
        return out

    return collected


def test_a_list_of_a_function_without_branches_is_made_longer_by_another() -> None:
    compiled = pb.jit(collect(fill), guards=False)
    for x in INPUTS:
        assert repr(compiled(x)) == repr(collect(fill)(x))


def test_a_list_argument_becomes_a_heap() -> None:
    def make(heap: list[float]) -> None:
        heapq.heapify(heap)

    x = [float(v) for v in INPUTS[0]]
    expected, result = list(x), list(x)
    heapq.heapify(expected)
    pb.jit(make, guards=False)(result)
    assert result == expected
