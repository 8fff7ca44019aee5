"""Random programs of rows, columns and elements under forced schedules: every target agrees with the interpreter, at sizes around
those of vectors, tiles and chunks, with NaN, infinities and zeros of both signs among the elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.kernels.groups import registry
from pullback.tracer import flatten, trace
from tests.support.forced_strategies import always, at_random
from tests.support.targets import assert_close, run_targets

SIZES = [(0, 3), (3, 0), (1, 1), (2, 7), (3, 8), (5, 9), (17, 16), (63, 4), (64, 3), (65, 17), (130, 33), (9, 700), (4100, 2)]
NAMES = ("flat", "rows", "tiles")


def binary(kind: int, a: Any, b: Any) -> Any:
    match kind % 6:
        case 0:
            return a + b
        case 1:
            return a - b
        case 2:
            return a * np.tanh(b)
        case 3:
            return np.maximum(a, b)
        case 4:
            return np.where(a > b, a, 0.5 * b)
        case _:
            return np.exp(-(a * a)) * b


def grown(seed: int) -> Callable[..., Any]:
    """A random function of elements x and y, rows r and columns k: what it returns has every kind of shape it met."""
    rng = np.random.default_rng(seed)
    plan = [tuple(int(n) for n in rng.integers(1 << 16, size=4)) for _ in range(int(rng.integers(4, 11)))]

    def f(x: Any, y: Any, r: Any, k: Any) -> Any:
        elements, rows, ended = [x, y], [r], []
        for what, kind, first, second in plan:
            a, b = elements[first % len(elements)], elements[second % len(elements)]
            match what % 8:
                case 0 | 1:
                    elements.append(binary(kind, a, b))
                case 2:
                    elements.append(binary(kind, a, rows[second % len(rows)][:, None]))
                case 3:
                    elements.append(binary(kind, a, k))
                case 4 | 5:
                    rows.append(np.mean(a, axis=1) if kind % 3 else np.sum(a, axis=1))
                case 6:
                    rows.append(binary(kind, rows[first % len(rows)], rows[second % len(rows)]))
                case _:
                    ended.append(np.sum(a, axis=0))
        ended.append(np.sum(elements[-1] * y, axis=0))
        return (*ended, np.sum(rows[-1]), elements[-1], rows[-1], np.sum(elements[-1]))

    return f


def arguments(seed: int, height: int, width: int, dtype: Any = np.float64, special: bool = False) -> list[Any]:
    rng = np.random.default_rng(seed)
    result = [rng.normal(size=shape).astype(dtype) for shape in ((height, width), (height, width), height, width)]
    if special:
        for x in result:
            places = rng.random(x.shape) < 0.05
            x[places] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324], places.sum())
    return result


def check(function: Callable[..., Any], arguments: list[Any], note: object = "") -> None:
    """All targets give what the interpreter gives, to what the sums of a few thousand elements lose."""
    with np.errstate(all="ignore"):
        traced = trace(function, tuple(arguments), {})
        values = traced.arguments(flatten((tuple(arguments), {}))[0])
        assert values is not None
        targets = run_targets(traced.function, values)
    expected = targets.pop("interpreter")
    for target, results in targets.items():
        for position, (result, wanted) in enumerate(zip(results, expected, strict=True)):
            finite = np.abs(wanted[np.isfinite(wanted)])
            floor = max(1.0, float(np.max(finite, initial=0)))
            ulps = 2.0**16 if wanted.dtype.itemsize == 8 else 2.0**12
            assert_close(result, wanted, ulps, floor, f"{position} on {target} {note}")


@pytest.mark.parametrize("seed", range(26))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always(NAMES[seed % 3]) if seed % 4 else at_random(seed))
    height, width = SIZES[seed % len(SIZES)]
    dtype = np.float32 if seed % 5 == 4 else np.float64
    check(grown(seed), arguments(seed, height, width, dtype), (seed, height, width))


@pytest.mark.parametrize("seed", range(6))
def test_special_values(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("tiles"))
    check(grown(100 + seed), arguments(seed, 19, 21, special=True), seed)


@pytest.mark.parametrize("seed", range(8))
def test_gradients(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("tiles") if seed % 2 else at_random(seed))

    function = grown(200 + seed)

    def loss(x: Any, y: Any, r: Any, k: Any) -> Any:
        return sum(np.sum(np.sin(part)) for part in function(x, y, r, k))

    check(lambda *given: pb.value_and_grad(loss, (0, 2, 3))(*given), arguments(seed, *SIZES[(3 + seed) % len(SIZES)]), seed)


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def logreg(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - y * z)


@pytest.mark.parametrize("layout", ["transposed", "stepped", "unaligned"])
def test_layouts(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("tiles"))
    rng = np.random.default_rng(0)
    x = {
        "transposed": lambda: rng.normal(size=(11, 70)).T,
        "stepped": lambda: rng.normal(size=(140, 33))[::2, ::3],
        "unaligned": lambda: np.frombuffer(bytes(1) + rng.normal(size=(70, 11)).tobytes(), np.float64, offset=1).reshape(70, 11),
    }[layout]()
    w, y = rng.normal(size=11), rng.integers(0, 2, 70).astype(float)
    value, slope = pb.jit(pb.value_and_grad(logreg))(w, x, y)
    z = x @ w
    np.testing.assert_allclose(value, np.mean(np.logaddexp(0, z) - y * z), rtol=1e-12)
    np.testing.assert_allclose(slope, x.T @ (1 / (1 + np.exp(-z)) - y) / 70, rtol=1e-12)


def test_sums_of_columns_are_the_same_wherever_a_chunk_lies() -> None:
    """A chunk of 64 rows gives the same bits in a longer array, and a copy at another address the same as the first."""
    total = pb.jit(lambda x: np.sum(x, axis=0))
    x = np.random.default_rng(0).normal(size=(64, 37))
    once = total(x)
    np.testing.assert_array_equal(total(np.vstack([x, np.zeros((6400, 37))])), once)
    apart = np.empty(64 * 37 + 1)[1:].reshape(64, 37)
    apart[:] = x
    np.testing.assert_array_equal(total(apart), once)


def test_sums_of_columns_are_accurate() -> None:
    x = np.full((1 << 20, 3), 0.1, np.float32)
    result = pb.jit(lambda x: np.sum(x, axis=0))(x)
    np.testing.assert_allclose(result, np.sum(x.astype(np.float64), axis=0), rtol=5e-6)


@pytest.mark.parametrize("name", ["softmax", "logreg"])
def test_value_in_one_group(name: str) -> None:
    """A softmax, and logistic regression with its gradient, are one launch: each row is read from memory once."""
    rng = np.random.default_rng(0)
    functions: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "softmax": (softmax, (rng.normal(size=(70, 33)),)),
        "logreg": (partial(pb.value_and_grad(logreg)), (rng.normal(size=5), rng.normal(size=(70, 5)), rng.normal(size=70))),
    }
    function, arguments = functions[name]
    text = pb.jit(function).stages(*arguments)["lower"]
    assert text.count("launch ") == 1


def test_the_position_of_the_largest_row_is_a_group_of_its_own() -> None:
    """A reduction of rows that gives a position reads what another group has stored."""

    def f(x: Any) -> Any:
        best = np.argmax(x, axis=1)
        return np.argmax(best * 2), best, np.argmax(np.sum(x, axis=1))

    check(f, [np.random.default_rng(0).normal(size=(5, 7))])


def test_what_waits_in_a_result_is_read_before_it_is_overwritten() -> None:
    """A softmax and its pullback: the exponentials are needed in the pass after the one that writes the softmax."""

    def softmax(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    def both(ct: Any, x: Any) -> Any:
        y, pull = pb.vjp(softmax, x)
        return y, *pull(ct)

    ct, x = np.random.default_rng(0).normal(size=(2, 70, 40))
    y, dx = pb.jit(both)(ct, x)
    p = softmax(x)
    np.testing.assert_allclose(y, p, rtol=1e-13)
    np.testing.assert_allclose(dx, p * (ct - np.sum(p * ct, axis=-1, keepdims=True)), rtol=1e-10, atol=1e-15)


def test_what_is_read_at_other_places_does_not_wait_in_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("tiles"))

    def f(x: Any) -> Any:
        t = np.tanh(x)
        return t[:, ::-1] - np.sum(t, axis=1, keepdims=True) * x

    x = np.random.default_rng(1).normal(size=(70, 40))
    np.testing.assert_allclose(pb.jit(f)(x), f(x), rtol=1e-12, atol=1e-12)
