"""Products of at most eight rows where registers are few: the right operand is read in place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.matmul.blocking import Blocking
from pullback.codegen.cpu.matmul.few_rows import K_UNROLL, ROWS, STRIP, VECTORS, FewRows
from pullback.ir import Module
from pullback.ir.core.structure import Block, Function
from pullback.ir.core.types import F32
from pullback.ir.interpret import interpret
from pullback.ir.text import print_module
from pullback.runtime.threads import threads
from tests.support.matmul import kernels as products
from tests.support.matmul.kernels import MACHINES, batch_text, compiled_product, fenced, product_text
from tests.support.paths import GOLDEN

RNG = np.random.default_rng(17)
MACHINE = "AVX2"
LANES = 8
"""The float32 lanes of a vector."""
TURNED = {"x @ w": (False, False), "x.T @ w": (True, False), "x @ w.T": (False, True)}


def shapes(dtype: str) -> list[tuple[int, int, int]]:
    """Rows, terms, columns: about all that is cut, runs of terms and strips included."""
    least, most = (size // np.dtype(dtype).itemsize for size in (4 * VECTORS**2 * LANES, STRIP))
    run = 1024 // np.dtype(dtype).itemsize
    return [
        (1, 5, least), (ROWS, 9, least - 1), (2, 0, least), (3, 1, least + 1), (5, K_UNROLL, 71), (ROWS, K_UNROLL + 3, most),
        (ROWS - 1, run - 1, most + 1), (4, run, 2 * most - 1), (ROWS, run + 1, 3 * most + 5), (6, 2 * run + K_UNROLL, 100),
        (ROWS + 1, 20, 100), (0, 7, 100), (ROWS, 1000, 1000),
    ]  # fmt: skip


def bound(x: Any, w: Any, dtype: str) -> Any:
    """Higham's for sums of products (2002, section 3.5)."""
    u = np.finfo(dtype).eps / 2 * (x.shape[1] + 1)
    return u / (1 - u) * (abs(x).astype(np.longdouble) @ abs(w).astype(np.longdouble))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("form", TURNED)
def test_every_shape_within_its_bound(form: str, dtype: str) -> None:
    """Arrays end where memory ends, and results have the same bits on any number of threads."""
    kernel = compiled_product(product_text(dtype, TURNED[form]), MACHINE)
    numpy = f"f{int(dtype[1:]) // 8}"
    before = threads.get_num_threads()
    for m, k, n in shapes(numpy):
        x, w = RNG.normal(size=(m, k)).astype(numpy), RNG.normal(size=(k, n)).astype(numpy)
        arguments = [
            fenced(np.ascontiguousarray(a.T) if is_turned else a) for a, is_turned in zip((x, w), TURNED[form], strict=True)
        ]
        result = []
        try:
            for count in (1, 2, 3):
                threads.set_num_threads(count)
                out = fenced(np.full((m, n), np.nan, numpy))
                assert kernel([*arguments, out], [m, k, n]) == 0
                result.append(out)
        finally:
            threads.set_num_threads(before)
        wide = x.astype(np.longdouble) @ w.astype(np.longdouble)
        assert np.all(abs(result[0] - wide) <= bound(x, w, numpy)), (m, k, n)
        assert all(np.array_equal(result[0], other) for other in result[1:])


@pytest.mark.parametrize("form", TURNED)
def test_which_products_are_read_as_they_lie(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    noted = ctypes.CFUNCTYPE(None)(lambda: calls.append(1))
    address = products.native_address

    def instead(slot: Any) -> int:
        is_few = slot[0] == "shared" and slot[1].startswith("few_rows")
        return ctypes.cast(noted, ctypes.c_void_p).value or 0 if is_few else address(slot)

    monkeypatch.setattr(products, "native_address", instead)
    kernel = compiled_product(product_text("f32", TURNED[form]), MACHINE)
    for m, k, n in shapes("f4"):
        x, w = np.ones((m, k), "f4"), np.ones((k, n), "f4")
        arguments = [np.ascontiguousarray(a.T) if is_turned else a for a, is_turned in zip((x, w), TURNED[form], strict=True)]
        calls.clear()
        assert kernel([*arguments, np.empty((m, n), "f4")], [m, k, n]) == 0
        is_few = 0 < m <= ROWS and n >= VECTORS**2 * LANES and not TURNED[form][1]
        assert bool(calls) is is_few, (m, k, n)


def test_strided_operands_are_read_as_they_lie() -> None:
    kernel = compiled_product(product_text("f64", layout="strided"), MACHINE)
    x, w = RNG.normal(size=(5, 40)), RNG.normal(size=(40, 90))
    wide = np.full((40, 99), np.nan)
    wide[:, 4:94] = w
    for left in (x, np.asfortranarray(x), x[:, ::-1].copy()[:, ::-1]):
        for right in (w, np.asfortranarray(w), wide[:, 4:94]):
            out = np.empty((5, 90))
            assert kernel([left, right, out], [5, 40, 90]) == 0
            np.testing.assert_allclose(out, x @ w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["x @ w", "x.T @ w"])
def test_interpreted(form: str) -> None:
    kernel = compiled_product(product_text("f64", TURNED[form]), MACHINE)
    for m, k, n in ((5, 6, 40), (2, 0, 33)):
        x, w, out = RNG.normal(size=(m, k)), RNG.normal(size=(k, n)), np.full((m, n), np.nan)
        stored = np.ascontiguousarray(x.T) if TURNED[form][0] else x
        assert interpret(kernel.kernel, stored, w, out, sizes={"s0": m, "s1": k, "s2": n}) == 0
        np.testing.assert_allclose(out, x @ w, rtol=1e-12, atol=1e-12)


def test_what_is_not_finite_goes_where_it_belongs() -> None:
    """NaN and infinity also propagate from the last terms of K, which are fewer than are added at a time."""
    kernel = compiled_product(product_text("f64"), MACHINE)
    x, w = RNG.normal(size=(6, 259)), RNG.normal(size=(259, 70))
    w[258, 3], w[0, 5], x[2, 258], x[4, 7], w[7, 9] = np.inf, np.nan, -np.inf, np.inf, 0
    out = np.empty((6, 70))
    assert kernel([x, w, out], [6, 259, 70]) == 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, np.where(np.isfinite(x @ w), out, x @ w))
        assert np.isfinite(out).sum() == np.isfinite(x @ w).sum()


BATCH = batch_text("f32")
SCALED = BATCH.replace("      store %sum", "      %2: f32[] = mul %sum, %sum\n      store %2")


@pytest.mark.parametrize("text", [BATCH, SCALED], ids=["stored", "squared"])
def test_batches(text: str) -> None:
    """Batches with an epilogue are included; their sums are stored in the memory of the results."""
    kernel = compiled_product(text, MACHINE)
    for z, m, k, n in ((3, 8, 300, 700), (7, 5, 9, 300), (1, 2, 0, 513), (2, 9, 30, 300)):
        x, w = RNG.normal(size=(z, m, k)).astype("f4"), RNG.normal(size=(z, k, n)).astype("f4")
        out, wide = fenced(np.full((z, m, n), np.nan, "f4")), x.astype(np.float64) @ w
        assert kernel([fenced(x), fenced(w), out], [z, m, k, n]) == 0
        expected, size = (wide, 1.0) if text is BATCH else (wide**2, 2 * abs(wide))
        limit = 2.0**-23 * (k + 2) * (abs(x).astype(np.float64) @ abs(w)) * size + 1e-6 * abs(expected)
        assert np.all(abs(out - expected) <= limit), (z, m, k, n)


FORMS: dict[str, Callable[..., Any]] = {
    "plain": lambda x, w: x @ w,
    "left turned": lambda x, w: x.T @ w,
    "its gradient": pb.grad(lambda x, w: np.sum(np.tanh(x @ w))),
}


@pytest.mark.usefixtures("our_products")
@pytest.mark.parametrize("form", FORMS)
def test_calls(form: str) -> None:
    """The package is called as users call it, on this machine's own kernels."""
    for dtype, accuracy in (("f4", 1e-4), ("f8", 1e-12)):
        x, w = RNG.normal(size=(7, 300)).astype(dtype), RNG.normal(size=(300, 130)).astype(dtype)
        if form == "left turned":
            x = np.ascontiguousarray(x.T)
        expected = FORMS[form](x, w) if "gradient" not in form else (1 - np.tanh(x @ w) ** 2) @ w.T
        result = pb.jit(FORMS[form])(x, w)
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected, rtol=accuracy, atol=accuracy * 10)


def test_text(bless: bool, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / "matmul" / "scheduled" / "few.ir"
    few = FewRows(F32, Blocking(rows=4, vectors=1, accumulators=2, lanes=4, k_block=8, max_column_panels=2, max_row_panels=2))
    result = print_module(Module((Function("k", Block((), (few.define(),), ()), "kernel"),)))
    if bless:
        path.write_text(result)
    assert path.read_text() == result


def test_machines() -> None:
    """If registers hold all sums of a tile, few rows use packed panels, as more rows do."""
    for name, target in MACHINES.items():
        kernel = compiled_product(product_text("f32"), name)
        assert any(slot[:2] == ("shared", "few_rows_f32") for slot in kernel.slots) is (name == MACHINE), target
