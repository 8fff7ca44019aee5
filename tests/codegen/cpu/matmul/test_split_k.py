"""Products of few rows and columns and many terms: parts of the terms have sums of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.matmul.shape_classes import DEEP, LOW
from pullback.codegen.cpu.matmul.split_k import MOST_PARTS, PART
from pullback.runtime.choices import matmul as choices_matmul

RNG = np.random.default_rng(13)
FORMS: dict[str, Callable[..., Any]] = {
    "x.T @ y": lambda x, y: x.T @ y,
    "x @ y": lambda x, y: x @ y,
    "x.T @ y.T": lambda x, y: x.T @ y.T,
    "x @ y.T": lambda x, y: x @ y.T,
}
SHAPES = (
    (DEEP, 1, 2), (DEEP - 1, 5, 5), (DEEP + 1, LOW, 17), (3 * PART, LOW + 1, 9), (5_000, 20, 20), (MOST_PARTS * PART, 3, 7),
    (MOST_PARTS * PART + 1, 2, 24), (100_003, 4, 33), (4_000, 11, 64), (4_000, 11, 129),
)  # fmt: skip


@pytest.fixture(autouse=True)
def by_us(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PULLBACK_CHOICES", "gemm=ours")
    choices_matmul.forget()
    yield
    choices_matmul.forget()


def operands(form: str, shape: tuple[int, int, int], dtype: str) -> tuple[Any, Any]:
    k, m, n = shape
    left, right = form.split(" @ ")
    x, y = RNG.normal(size=(k, m)).astype(dtype), RNG.normal(size=(k, n)).astype(dtype)
    return (x if left == "x.T" else np.ascontiguousarray(x.T)), (np.ascontiguousarray(y.T) if right == "y.T" else y)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_within_its_bound(form: str, dtype: str) -> None:
    function = FORMS[form]
    compiled = pb.jit(function)
    for shape in SHAPES:
        x, y = operands(form, shape, dtype)
        wide = function(x.astype(np.longdouble), y.astype(np.longdouble))
        sizes = function(abs(x).astype(np.longdouble), abs(y).astype(np.longdouble))
        u = np.finfo(dtype).eps / 2 * shape[0]
        result = compiled(x, y)
        assert result.dtype == dtype
        assert np.all(abs(result - wide) <= u / (1 - u) * sizes), shape


@pytest.mark.parametrize("form", FORMS)
def test_bits_do_not_go_by_threads_or_layouts(form: str) -> None:
    compiled = pb.jit(FORMS[form])
    for shape in ((9_000, 13, 20), (70_001, 4, 3)):
        x, y = operands(form, shape, "float64")
        expected = compiled(x, y)
        wide = np.full((x.shape[0], x.shape[1] + 3), np.nan)
        wide[:, 1:-2] = x
        for left, right in ((np.asfortranarray(x), y), (wide[:, 1:-2], np.asfortranarray(y)), (x[::-1].copy()[::-1], y)):
            np.testing.assert_array_equal(compiled(left, right), expected)
        before = pb.get_num_threads()
        try:
            pb.set_num_threads(1)
            np.testing.assert_array_equal(compiled(x, y), expected)
        finally:
            pb.set_num_threads(before)


def test_what_is_not_finite_goes_where_it_belongs() -> None:
    x, y = operands("x.T @ y", (5_000, 6, 10), "float64")
    x[4_321, 2], y[17, 3], x[99, 5], y[99, 0] = np.nan, np.inf, np.inf, 0
    with np.errstate(invalid="ignore"):
        expected = x.T @ y
        result = pb.jit(FORMS["x.T @ y"])(x, y)
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    np.testing.assert_array_equal(result == np.inf, expected == np.inf)
    np.testing.assert_array_equal(result == -np.inf, expected == -np.inf)


def test_a_matrix_by_itself_and_its_gradients() -> None:
    x = RNG.normal(size=(4_100, 5))

    def loss(x: Any) -> Any:
        g = x.T @ x
        return np.sum(g * g) / len(x)

    value, gradient = pb.value_and_grad(loss)(x)
    np.testing.assert_allclose(value, loss(x), rtol=1e-12)
    np.testing.assert_allclose(gradient, 4 * x @ (x.T @ x) / len(x), rtol=1e-11, atol=1e-11)
