"""What ``for`` statements go over: every way to call ``range``, ``enumerate``, ``zip`` and ``reversed``, as one loop."""

import itertools
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import pullback as pb


def numbered_from_one(x: Any) -> Any:
    s = 0.0
    for i, v in enumerate(x[1:], start=1):
        s = s * 0.5 + i * v
    return s


def strict_pairs(x: Any) -> Any:
    s = 0.0
    for u, v in zip(x[:-1], 2 * x[1:], strict=True):
        s = s * 0.5 + u * v
    return s


def pairs_of_any_lengths(x: Any) -> Any:
    s = 0.0
    for i, (u, v) in enumerate(zip(x[:-1], x, strict=False), start=3):
        s = s * 0.5 + u * v * i
    return s


def unpacked_arguments(x: Any) -> Any:
    s = 0.0
    for u, v in zip(*[x, x * 2]):
        s = s * 0.5 + u * v
    for i in range(*(1, 290)):
        s = s * 0.5 + x[i]
    return s


def backwards(x: Any) -> Any:
    s = 0.0
    for i in reversed(range(2, 280, 3)):
        s = s * 0.5 + np.sin(x[i])
    for v in reversed(x):
        s = s * 0.5 + v
    return s


def filtered_positions(x: Any) -> Any:
    return [i for i, v in enumerate(x[1:], start=1) if v > 1.5]


def neighbours(x: Any) -> Any:
    s = 0.0
    for a, b in itertools.pairwise(x):
        if (a - 1.3) * (b - 1.3) < 0:
            s += a - b
        s = s * 0.9 + a
    return s


def products(x: Any) -> Any:
    A, B = x.reshape(20, 15), np.zeros((20, 15))
    for i, j in product(range(20), range(1, 15)):
        B[i, j] = A[i, j] * 2 if A[i, j] > 1.4 else B[i, j - 1] + i
    for (i, v), w in itertools.product(enumerate(x[:6]), x[::7]):
        B[i, 0] += v * w
    return B


def pairs_of_bodies(x: Any) -> Any:
    s, masses = 0.0, [float(k) for k in range(1, 26)]
    for i, j in itertools.combinations(range(25), 2):
        s = s * 0.99 + x[i] * x[j] / (j - i)
    for (a, m), (b, n) in itertools.combinations(zip(x[:25], masses), 2):
        s = s * 0.99 + m * n * abs(a - b)
    for a, b in itertools.permutations(x[:20], 2):
        s = s * 0.99 + np.sin(a - b)
    for u, v, w in itertools.combinations_with_replacement(masses[:12], 3):
        s = s * 0.99 + u * v - w * x[0]
    return s


def indices_of_a_shape(x: Any) -> Any:
    A, B = x.reshape(20, 5, 3), np.zeros((20, 5))
    for i, j in np.ndindex(20, 5):
        B[i, j] = np.sin(A[i, j, 2]) * A[i, j, 0] + B[i - 1, j]
    for i, j, k in np.ndindex(A.shape):
        B[i, j] += A[i, j, k] * k
    return B


def elements_with_indices(x: Any) -> Any:
    s = 0.0
    for (i, j), v in np.ndenumerate(x.reshape(20, 15)):
        s = s * 0.9 + v * i - j
    for v in x.reshape(15, 20).flat:
        s = s * 0.9 + max(v, 1.2)
    return s


def elements_of_broadcast_arrays(x: Any) -> Any:
    s = 0.0
    for v, w in np.broadcast(x[:20], x[20:40, None]):
        s = s * 0.9 + v * np.sin(w)
    return s


def known_arrays(x: Any) -> Any:
    s = 0.0
    for i in np.arange(1, 290):
        s = s * 0.5 + x[i] * i + x[-i]
    for t in np.linspace(0, 1, 200):
        s += np.sin(t * x[0])
    for i, w in enumerate(np.full(150, 0.5, np.float32)):
        s = s * w + x[i]
    return s


@pytest.mark.parametrize(
    "function",
    [
        numbered_from_one, strict_pairs, pairs_of_any_lengths, unpacked_arguments, backwards, filtered_positions, neighbours,
        products, pairs_of_bodies, indices_of_a_shape, elements_with_indices, known_arrays,
        elements_of_broadcast_arrays,
    ],
)  # fmt: skip
def test_loops_over_calls_roll(function: Callable[..., Any]) -> None:
    x = np.linspace(1, 2, 300)
    compiled = pb.jit(function, guards=False)
    np.testing.assert_allclose(compiled(x), function(x), rtol=1e-14)
    loops = [s.how for s in compiled.explain(x).statements if s.kind == "loop"]
    assert loops and all(how.startswith("rolled") for how in loops)


def test_tuples_of_items_that_are_none_or_few() -> None:
    def sums(x: Any) -> Any:
        rows = [(a + b, i < j) for (i, a), (j, b) in itertools.combinations(enumerate(x), 2)]
        none = list(itertools.combinations(x, 0)), list(itertools.combinations(x[:1], 2))
        return rows, none, len(list(itertools.permutations(x, 3)))

    x = np.linspace(1, 2, 4)
    assert pb.jit(sums)(x) == sums(x)


def test_a_known_array_that_its_loop_changes_has_the_changes() -> None:
    def changed(x: Any) -> Any:
        weights, s = np.arange(200.0), 0.0
        for i, w in enumerate(weights):
            weights[(i + 1) % 200] += 0.5
            s = s * 0.5 + w * x[i]
        return s, weights

    x = np.linspace(1, 2, 300)
    s, weights = pb.jit(changed)(x)
    np.testing.assert_allclose(s, changed(x)[0], rtol=1e-14)
    np.testing.assert_array_equal(weights, changed(x)[1])


def test_known_counts_are_static_in_short_loops() -> None:
    def shapes(x: Any) -> Any:
        s = 0.0
        for n in np.array([1, 2, 3]):
            s = s + x.reshape(n, -1)[0].sum()
        return s

    x = np.linspace(1, 2, 300)
    np.testing.assert_allclose(pb.jit(shapes)(x), shapes(x), rtol=1e-14)


def test_pairs_of_other_lengths_are_an_error_if_they_are_strict() -> None:
    def pairs(x: Any) -> Any:
        s = 0.0
        for u, v in zip(x, 2 * x[1:], strict=True):
            s = s + u * v
        return s

    x = np.linspace(1, 2, 300)
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter than argument 1"):
        pairs(x)
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter than argument 1"):
        pb.jit(pairs)(x)


def strided(starts: Any, stops: Any, steps: Any) -> Any:
    total, count = 0, 0
    for k in range(len(steps)):
        for j in range(starts[k], stops[k], steps[k]):
            total = (3 * total + j) % 1000003
            count += 1
    return total, count


LEAST, GREATEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    "step", [1, 2, 7, -1, -3, 2**40, -(2**40), 2**62, LEAST, GREATEST], ids=lambda step: f"{step}"
)
def test_steps_that_values_decide(step: int) -> None:
    ends = [-9, -1, 0, 1, 4, 10, 2**50, -(2**50), 2**62, -(2**62) + 1]
    pairs = [(a, b) for a, b in product(ends, ends) if abs(b - a) // abs(step) < 300]
    starts, stops = (np.array(x) for x in zip(*pairs, strict=True))
    steps = np.full(len(pairs), step)
    compiled = pb.jit(strided, loops="roll")
    assert compiled(starts, stops, steps) == strided(starts.tolist(), stops.tolist(), steps.tolist())
    assert "rolled: as many iterations as values decide" in " ".join(str(compiled.explain(starts, stops, steps)).split())


def test_a_step_of_0_that_values_decide_raises() -> None:
    compiled = pb.jit(strided, loops="roll")
    with pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"):
        compiled(np.array([1, 1]), np.array([5, 5]), np.array([1, 0]))


def sieve(n: int) -> Any:
    is_prime = np.ones(n + 1, np.bool_)
    is_prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            for j in range(i * i, n + 1, i):
                is_prime[j] = False
    return is_prime


def test_a_step_that_is_the_variable_of_a_loop_is_one_loop() -> None:
    compiled = pb.jit(sieve)
    for n in (300, 1000):
        assert (compiled(n) == sieve(n)).all()
    report = str(compiled.explain(1000))
    assert report.count("rolled: ") == 2
    assert "unrolled" not in report


def scaled_sum(x: Any, steps: Any) -> Any:
    s = 0.0
    for step in steps:
        for j in range(0, len(x), step):
            s = s * 0.5 + np.sin(x[j])
    return s


def test_derivatives_through_steps_that_values_decide() -> None:
    x, steps = np.random.default_rng(0).normal(size=20), np.array([1, 3, 7, 20, 50])
    gradient = pb.grad(scaled_sum)(x, steps)
    direction = np.cos(np.arange(20))
    slope = (scaled_sum(x + 1e-6 * direction, steps) - scaled_sum(x - 1e-6 * direction, steps)) / 2e-6
    assert abs(gradient @ direction - slope) < 1e-8


def test_membership_in_a_range_of_an_index_by_value() -> None:
    def program(x: Any) -> Any:
        total, count, indices = 0.0, 0, range(len(x))
        for i in indices:
            if i + 1 not in indices:
                continue
            count += i in range(3, 50, 2)
            if i in range(50, 3, -3) or i in range(0):
                total -= x[i]
            if x[i + 1] - x[i] > 0.9:
                total = total * 0.5 + x[i]
                break
            total = total * 0.9 + x[i]
        return total, count, np.argmax(x) in range(10, 60), x[0] in range(3)

    compiled = pb.jit(program, guards=False)
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(size=80)
        x[0] = seed
        assert compiled(x) == pytest.approx(program(x), rel=1e-12)
        assert compiled.explain(x).statements[0].how.startswith("rolled")
