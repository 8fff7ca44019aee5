"""Strided matrices, read in place: products and reductions of strided arguments have the bits of contiguous ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.kernel import StageRows, StridedOrCopy
from pullback.ir.text import parse_module
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.choices.choices import VARIABLE, choices

RNG = np.random.default_rng(11)


def layouts(a: Any) -> Iterator[tuple[str, Any]]:
    """A matrix in all sorts of strides."""
    m, n = a.shape
    yield "fortran", np.asfortranarray(a)
    wide = np.full((m + 2, n + 5), 7, a.dtype)
    wide[1 : m + 1, 3 : n + 3] = a
    yield "padded rows", wide[1 : m + 1, 3 : n + 3]
    high = np.full((n + 2, m + 5), 7, a.dtype)
    high[1 : n + 1, 3 : m + 3] = a.T
    yield "padded columns", high[1 : n + 1, 3 : m + 3].T
    apart = np.full((m, 2 * n), 7, a.dtype)
    apart[:, ::2] = a
    yield "every second column", apart[:, ::2]
    yield "every second row, turned", np.repeat(a.T, 2, axis=0)[::2].T
    yield "rows from the last", a[::-1].copy()[::-1]
    yield "columns from the last", a[:, ::-1].copy()[:, ::-1]
    yield "columns of columns from the last", np.asfortranarray(a[:, ::-1])[:, ::-1]
    fields = np.zeros((m, n), [("x", a.dtype), ("y", "i1")])
    fields["x"] = a
    yield "a field", fields["x"]


PRODUCTS: dict[str, Callable[..., Any]] = {
    "x @ w": lambda x, w: x @ w,
    "x.T @ w": lambda x, w: x.T @ w,
    "x @ w.T": lambda x, w: x @ w.T,
}
SHAPES = ((2, 3, 2), (33, 65, 70), (8, 600, 500), (130, 40, 150), (12, 300, 33))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", PRODUCTS)
@pytest.mark.parametrize("who", ["ours", "library", "static"])
def test_products_of_strided_matrices(form: str, dtype: str, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"gemm={who}")
    choices_matmul.forget()
    choices.forget()
    try:
        check_products(form, dtype)
    finally:
        choices_matmul.forget()
        choices.forget()


def check_products(form: str, dtype: str) -> None:
    """Products of all layouts have the same bits."""
    call = PRODUCTS[form]
    compiled = pb.jit(call)
    for m, k, n in SHAPES:
        x = RNG.standard_normal((k, m) if form.startswith("x.T") else (m, k)).astype(dtype)
        w = RNG.standard_normal((n, k) if form.endswith("w.T") else (k, n)).astype(dtype)
        expected = compiled(x, w)
        np.testing.assert_allclose(expected, call(x, w), rtol=0, atol=2e-3 if dtype == "float32" else 1e-11)
        for name, strided in layouts(x):
            assert np.array_equal(compiled(strided, w), expected), (name, "left", m, k, n)
        for name, strided in layouts(w):
            assert np.array_equal(compiled(x, strided), expected), (name, "right", m, k, n)
        for (one, left), (other, right) in zip(layouts(x), list(layouts(w))[::-1], strict=True):
            assert np.array_equal(compiled(left, right), expected), (one, other, m, k, n)


def test_products_of_overlapping_rows() -> None:
    x = RNG.standard_normal(80)
    product = pb.jit(lambda x, w: x @ w)
    windows, spread = sliding_window_view(x, 30), np.broadcast_to(x[:30], (50, 30))
    w = RNG.standard_normal((30, 40))
    for left in (windows, spread, windows[::-1], np.broadcast_to(x[:50, None], (50, 30))):
        assert np.array_equal(product(left, w), product(left.copy(), w))
        assert np.array_equal(product(w.T[:, :30], left.T), product(w.T[:, :30].copy(), left.T.copy()))


@pytest.mark.parametrize("m, k, n", [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 4, 5), (4, 1, 5), (4, 5, 1), (1, 1, 1)])
def test_none_and_one(m: int, k: int, n: int) -> None:
    product = pb.jit(lambda x, w: x @ w)
    for left in (np.ones((k, m)).T, np.ones((m, 2 * k))[:, ::2]):
        for right in (np.ones((n, k)).T, np.ones((2 * k, n))[::2]):
            assert np.array_equal(product(left, right), np.full((m, n), float(k)))


def test_matrices_that_end_where_memory_ends() -> None:
    """Nothing behind the last element is read, whatever the strides: the array is the end of its memory."""
    product = pb.jit(lambda x, w: x @ w)
    for m, k, n in ((13, 37, 41), (70, 33, 50)):
        memory = RNG.standard_normal(k * (n + 3))
        w = as_strided(memory[3:], (k, n), (8 * (n + 3), 8))
        x = as_strided(RNG.standard_normal(m * (k + 1))[1:], (m, k), (8, 8 * m))
        assert np.array_equal(product(x, w), product(x.copy(), w.copy()))


def test_products_copy_nothing_that_lies_in_rows_or_columns() -> None:
    """The kernel takes the argument itself; nothing else is launched."""
    product = pb.jit(lambda x, w: x @ w)
    x, w = np.ones((100, 100)), np.asfortranarray(np.ones((100, 100)))
    _, kernel = parse_module(product.stages(x, w)["lower"]).functions
    assert sum(isinstance(i.op, StridedOrCopy) for i in walk(kernel.body)) == 1


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "x @ v": lambda x, u, v: x @ v,
    "u @ x": lambda x, u, v: u @ x,
    "sum(0)": lambda x, u, v: x.sum(0),
    "sum(1)": lambda x, u, v: x.sum(1),
    "max(1)": lambda x, u, v: x.max(1),
    "argmax(1)": lambda x, u, v: np.argmax(x, 1),
    "both": lambda x, u, v: (x.sum(1), (x * x).sum(0)),
    "centred": lambda x, u, v: x - x.mean(1)[:, None],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("form", REDUCTIONS)
def test_reductions_of_strided_matrices(form: str, dtype: str) -> None:
    compiled = pb.jit(REDUCTIONS[form])
    for m, n in ((5, 7), (64, 64), (65, 130), (700, 41), (33, 600), (6, 9001), (1, 9), (9, 1), (0, 4)):
        if form in ("max(1)", "argmax(1)", "centred") and not m * n:
            continue
        x, u, v = (np.asarray(3 * RNG.standard_normal(shape)).astype(dtype) for shape in ((m, n), m, n))
        expected = compiled(x, u, v)
        for name, strided in layouts(x):
            result = compiled(strided, u, v)
            for a, b in zip(result, expected, strict=True) if isinstance(result, tuple) else [(result, expected)]:
                assert np.array_equal(a, b), (name, m, n)


def test_sums_of_long_rows_have_all_tiers() -> None:
    """Rows of more than 64 times 64 steps of 64 elements: some columns at a time, with the bits of whole rows."""
    x = RNG.standard_normal((3, 64 * 64 * 64 + 5000)).astype("float32")
    for call in (lambda x: x.sum(1), lambda x: (x * x + 1).sum(1), lambda x: x.max(1)):
        compiled = pb.jit(call)
        assert np.array_equal(compiled(np.asfortranarray(x)), compiled(x))


ELEMENTS: dict[str, Callable[..., Any]] = {
    "of all": lambda x, y, v: np.sum(x * x),
    "and a row": lambda x, y, v: np.sum((x - v) ** 2),
    "largest": lambda x, y, v: np.max(x + 1),
    "of two": lambda x, y, v: np.sum(x * y),
    "element by element": lambda x, y, v: 2 * x + 1,
    "two matrices": lambda x, y, v: x * y + v,
    "complex": lambda x, y, v: x + 1j * y,
    "both": lambda x, y, v: (np.sum(x), np.sum(x * y), x - y),
    "mirrored": lambda x, y, v: np.sum(x[::-1] * x),
    "numbered": lambda x, y, v: np.sum(x * np.arange(x.shape[1])),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("form", ELEMENTS)
def test_elements_of_strided_matrices(form: str, dtype: str) -> None:
    """Elements are the same to the bit; sums of all of them are added in another order."""
    call = ELEMENTS[form]
    compiled = pb.jit(call)
    for m, n in ((5, 7), (64, 64), (65, 130), (200, 77), (1, 9), (9, 1), (0, 4), (4, 0)):
        if form == "largest" and not m * n:
            continue
        x, y, v = (np.asarray(3 * RNG.standard_normal(shape)).astype(dtype) for shape in ((m, n), (m, n), n))
        expected, wanted = compiled(x, y, v), call(x, y, v)
        for (name, left), (other, right) in zip(layouts(x), list(layouts(y))[::-1], strict=True):
            for second in (y, right):
                result = compiled(left, second, v)
                for a, b, c in zip(*((r if form == "both" else (r,)) for r in (result, expected, wanted)), strict=True):
                    if np.ndim(b):
                        assert np.array_equal(a, b), (name, other, m, n)
                    else:
                        assert a.dtype == c.dtype
                        np.testing.assert_allclose(a, c, rtol=1e-4 if dtype == "float32" else 1e-11, atol=1e-2, err_msg=name)


def test_sums_of_all_elements_go_as_they_lie() -> None:
    """A matrix in Fortran's order is added up as its transpose in C order is, by one thread or two."""
    compiled = pb.jit(lambda x: np.sum(x * x))
    threads = pb.get_num_threads()
    try:
        for m, n in ((30, 50), (700, 900)):
            x = RNG.standard_normal((m, n))
            result = []
            for count in (1, 2):
                pb.set_num_threads(count)
                result += [compiled(np.asfortranarray(x)), compiled(np.ascontiguousarray(x.T))]
            assert len(set(result)) == 1
    finally:
        pb.set_num_threads(threads)


def test_values_and_gradients_of_strided_matrices() -> None:
    compiled = pb.jit(pb.value_and_grad(lambda x: np.sum(np.tanh(x) * x)))
    x = RNG.standard_normal((70, 90))
    value, gradient = compiled(x)
    for name, strided in layouts(x):
        result = compiled(strided)
        assert np.array_equal(result[1], gradient), name
        np.testing.assert_allclose(result[0], value, rtol=1e-13)


def test_the_gradient_of_a_regression_reads_rows() -> None:
    def loss(x: Any, y: Any, w: Any) -> Any:
        z = x @ w
        return np.mean(np.logaddexp(0, z) - y * z)

    compiled = pb.jit(pb.value_and_grad(loss, argnums=2))
    x, y, w = RNG.standard_normal((300, 90)), (RNG.random(300) > 0.5) * 1.0, RNG.standard_normal(90)
    value, gradient = compiled(x, y, w)
    for name, strided in layouts(x):
        result = compiled(strided, y, w)
        assert result[0] == value and np.array_equal(result[1], gradient), name
    kernels = parse_module(compiled.stages(np.asfortranarray(x), y, w)["lower"]).functions[1:]
    assert sum(isinstance(i.op, StageRows) for kernel in kernels for i in walk(kernel.body)) == 1
