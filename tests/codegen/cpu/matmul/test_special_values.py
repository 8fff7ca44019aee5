"""Matrix products of special numbers, of no elements, and of integers at both ends, in all forms and for all machines."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs import pipeline
from pullback.runtime.compile import engine
from tests.codegen.cpu.matmul.test_random import MODES, SAME, products, run, seeded
from tests.support.error_bounds import BF16, assert_within, bounded
from tests.support.matmul.programs import FORMS, Form
from tests.tables.bad_input import values

Array = Any
LEVELS = ("baseline", "avx2")
"""Machines with narrower vectors, without the fused multiplication and with it."""
KINDS = ("nan", "inf", "-inf", "infinities", "mixed", "huge", "zeros")
BY_NAME = {form.name: form for form in FORMS}
SPECIAL = [
    "@", "@ turned both", "@ vector right", "@ vectors", "matmul batch", "matmul batch right", "dot of stacks", "inner", "outer",
    "tensordot of two axes", "ij,jk->ki", "ijb,jkb->ikb",
]  # fmt: skip
"""Of two operands: of more, what is infinite on the way depends on the order."""


def given(form: Form, extents: dict[str, int], dtype: Any, kinds: tuple[str, ...], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    shapes = [tuple(extents[k] for k in word) for word in form.letters]
    return [values(kinds[min(k, 1)], shape, np.dtype(dtype), rng) for k, shape in enumerate(shapes)]


def spelled_out(form: Form, operands: list[Array]) -> Array:
    """Without a library, which may leave products by zero out."""
    with np.errstate(all="ignore"):
        if form.function is np.matmul or form.name.startswith("@"):
            x, y = operands
            x, y = (x.T, y.T) if "both" in form.name else (x, y)
            left = x[..., None, :] if x.ndim == 1 else x
            right = y[:, None] if y.ndim == 1 else y
            total = np.sum(left[..., :, :, None] * right[..., None, :, :], axis=-2)
            total = total[..., 0, :] if x.ndim == 1 else total
            return total[..., 0] if y.ndim == 1 else total
        return form.function(*operands)


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_numbers(name: str, how: str) -> None:
    """NaN and infinities are where sums of products have them, zeros by infinities too."""
    form = BY_NAME[name]
    compiled = pb.jit(lambda *x: form.function(*x) + 0.0)
    for dtype, letters in (("d", "ijkabl"), ("f", "jikabl")):
        sizes = dict(zip(letters, (13, 9, 18, 5, 3, 2), strict=True))
        for kind in KINDS:
            operands = given(form, sizes, dtype, (kind, "plain"), len(kind))
            operands[-1].flat[:: 3 + operands[-1].size // 7] = 0.0
            expected = np.asarray(spelled_out(form, [x.astype("d" if kind != "huge" else dtype) for x in operands]))
            with products(how):
                result = np.asarray(compiled(*operands))
            for is_kind in (np.isnan, np.isposinf, np.isneginf):
                np.testing.assert_array_equal(is_kind(result), is_kind(expected), err_msg=f"{is_kind.__name__} {dtype} {kind}")
            finite = np.isfinite(expected)
            np.testing.assert_allclose(result[finite], expected[finite], rtol=1e-5 if dtype == "f" else 1e-12, atol=1e-5)


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("name", ["@", "@ vector right", "@ vectors", "matmul batch", "@ turned both", "@ turned result"])
def test_numbers_that_underflow(name: str, dtype: str, how: str) -> None:
    form, sizes = BY_NAME[name], {"i": 30, "j": 21, "k": 35, "b": 3}
    operands = given(form, sizes, dtype, ("tiny", "plain"), 3)
    normal = [operands[0] * 2.0**30, operands[1]]
    least = [np.full_like(operands[0], np.finfo(dtype).tiny) * (1 + operands[0] * 0), operands[1] * 0.0625]
    compiled = pb.jit(lambda *x: form.function(*x))
    for x in (operands, normal, least):
        with products(how):
            assert_within(compiled(*x), form.function(*map(bounded, x)), name)


@pytest.mark.parametrize("dtype", ["d", "f", "e", "D", "F", "?", "b", "B", "i", "q", "Q"])
def test_no_elements(dtype: str) -> None:
    """No terms are zeros, no rows or columns are nothing, as in NumPy."""
    for k, form in enumerate(FORMS):
        letters = sorted(set("".join(form.letters)) - {"1"})
        if k % (3 if dtype == "d" else 11) != ord(dtype) % (3 if dtype == "d" else 11):
            continue
        compiled = pb.jit(form.function)
        for none in letters:
            sizes = {letter: 0 if letter == none else 2 + letters.index(letter) for letter in letters} | {"1": 1}
            operands = [np.ones([sizes[c] for c in word], dtype) for word in form.letters]
            if form.name == "vecdot" and dtype == "?":
                continue
            expected = form.function(*operands)
            for one, wanted in zip(*(x if isinstance(x, tuple) else (x,) for x in (compiled(*operands), expected)), strict=True):
                assert np.asarray(one).dtype == np.asarray(wanted).dtype, form.name
                np.testing.assert_array_equal(one, wanted, err_msg=f"{form.name} {none}")


@pytest.mark.parametrize("dtype", ["e", BF16, "f", "d"], ids=["f16", "bf16", "f32", "f64"])
def test_what_is_too_large(dtype: Any) -> None:
    """Sums are infinite where they are too large for the dtype, and not where they are only on the way, in 16 bits."""
    a = np.full((3, 40), 300.0).astype(dtype)
    b = np.full((40, 5), 200.0).astype(dtype)
    b[1::2] *= -1
    assert (pb.jit(lambda a, b: a @ b)(a, b) == 0).all()
    if np.dtype(dtype) == np.float16:
        assert np.isposinf(pb.jit(lambda a, b: a @ b)(a, np.abs(b))).all()


@functools.cache
def _engine(level: str) -> Any:
    return engine.Engine(level=level)


@pytest.mark.parametrize("level", LEVELS)
def test_other_machines(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random products on machines with narrower vectors."""
    try:
        result = _engine(level)
    except ValueError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(engine, "_default", result)
    monkeypatch.setattr("tests.codegen.cpu.matmul.test_random.KNOWN", {name: pipeline.Templates() for name in MODES})
    for seed in range(6):
        run(seeded(seed), SAME)
