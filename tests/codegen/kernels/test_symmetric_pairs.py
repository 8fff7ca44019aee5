"""Each pair of a set with itself once: every target agrees with the interpreter, at sizes around those of vectors, blocks and
chunks, for values that are their own mirror image, minus it, and neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.kernels.groups import registry
from tests.codegen.kernels.test_tiled_rows import check
from tests.support.forced_strategies import always

COUNTS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 65, 130)


def energy(x: Any, m: Any) -> Any:
    d = x[:, None, :] - x[None, :, :]
    return -0.5 * np.sum(m[:, None] * m[None, :] / np.sqrt(np.sum(d * d, axis=2) + 0.01))


def slope(x: Any, m: Any) -> Any:
    return pb.value_and_grad(energy, (0, 1))(x, m)


def pull(x: Any, m: Any) -> Any:
    """The mass of one of the two: the force on i is not minus that on j."""
    a = x[:, 0]
    d = a[:, None] - a[None, :]
    return np.sum(m[None, :] * d / (d * d + 0.1), axis=1), np.sum(np.exp(-np.abs(d)) * m[None, :])


def extremes(x: Any, m: Any) -> Any:
    a = x[:, 1]
    d = a[:, None] - a[None, :]
    return np.max(np.sin(d), axis=1), np.min(d * m[:, None], axis=1), np.max(d), np.sum(np.abs(d) < 0.5, axis=1), np.any(d > 2)


def apart(x: Any, m: Any) -> Any:
    """No pair of a point with itself."""
    a, none = x[:, 2], np.eye(len(x), dtype=bool)
    d = a[:, None] - a[None, :]
    return np.sum(np.where(none, 0.0, 1 / np.where(none, 1.0, d)), axis=1)


def quotients(x: Any, m: Any) -> Any:
    """Infinities of both signs where points are the same."""
    a = x[:, 0]
    d = a[:, None] - a[None, :]
    e = m[:, None] - m[None, :]
    return np.sum(1 / d, axis=1), np.max(1 / (d * e), axis=1), np.sum(1 / (d * d), axis=1)


def then_rows(x: Any, m: Any) -> Any:
    """Functions of the sums of rows, and sums of those."""
    a = x[:, 0]
    total = np.sum(np.tanh(a[:, None] * a[None, :]), axis=1)
    mean = np.mean(np.cos(a[:, None] - a[None, :]), axis=1)
    return np.sqrt(1 + total * total), np.sum(total * mean), mean, total + m


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (energy, slope, pull, extremes, apart, quotients, then_rows)}


def given(count: int, dtype: Any = np.float64, special: bool = False) -> list[Any]:
    rng = np.random.default_rng(count)
    result = [rng.normal(size=(count, 3)).astype(dtype), rng.uniform(0.5, 1.5, count).astype(dtype)]
    if special:
        for x in result:
            places = rng.random(x.shape) < 0.1
            x[places] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324], places.sum())
    return result


@pytest.fixture(autouse=True)
def _triangle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "pick", always("triangle"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_targets(name: str) -> None:
    for count in (17, 2):
        check(FUNCTIONS[name], given(count), count)
    check(FUNCTIONS[name], given(9, np.float32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str) -> None:
    check(FUNCTIONS[name], given(21, special=True))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes(name: str) -> None:
    function = pb.jit(FUNCTIONS[name])
    for count in COUNTS[name in ("extremes", "quotients", "then_rows") :]:
        with np.errstate(all="ignore"):
            result, wanted = function(*given(count)), FUNCTIONS[name](*given(count))
        for one, other in zip(leaves(result), leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12 * max(1, count), err_msg=f"{name} {count}")


def leaves(result: Any) -> list[Any]:
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("count", [310, 650, 1100])
def test_threads_change_no_bit(count: int) -> None:
    """In one, four and sixteen chunks."""
    function, result = pb.jit(slope), []
    x, m = given(count)
    threads = pb.get_num_threads()
    try:
        for index in (1, 2, 3):
            pb.set_num_threads(index)
            result.append(leaves(function(x, m)))
    finally:
        pb.set_num_threads(threads)
    for other in result[1:]:
        for one, same in zip(result[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
    d = x[:, None, :] - x[None, :, :]
    inverse = 1 / np.sqrt(np.sum(d * d, axis=2) + 0.01)
    np.testing.assert_allclose(result[0][1], m[:, None] * np.sum((m * inverse**3)[..., None] * d, axis=1), rtol=1e-10, atol=1e-10)


def test_sums_are_accurate() -> None:
    """A partial row takes in no more than 64 terms one by one."""
    x = np.full(20_000, 0.1, np.float32)
    with np.errstate(all="ignore"):
        result = pb.jit(lambda x: np.sum(x[:, None] * x[None, :] + np.exp(x[:, None] - x[None, :]), axis=1))(x)
    exact = 20_000 * (float(x[0]) * float(x[0]) + 1)
    np.testing.assert_allclose(result, exact, rtol=2e-6)


def test_each_pair_once() -> None:
    """Value and gradient of an energy take one root a pair, whichever point they are for."""
    text = pb.jit(lambda x, m: pb.value_and_grad(energy)(x, m)).stages(*given(5))["lower"]
    assert "near" in text
    assert text.count("= sqrt") == 4, "those of two rows, with the points of their block and with those beyond it"
