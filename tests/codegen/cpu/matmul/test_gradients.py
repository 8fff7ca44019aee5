"""Gradients of matrix products: of plain ones by their formulas, within error bounds; of products with what comes before and
after them, to second order, by differences in extended precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from tests.codegen.cpu.matmul.test_random import LIMITS, MODES, pick_of, products, seeded
from tests.support.error_bounds import assert_within, bounded
from tests.support.matmul.programs import Pick, drawn_extents, drawn_program, numbers

Array = Any
FORMULAS: dict[str, tuple[tuple[str, str], Callable[..., Any], Callable[..., Any]]] = {
    "@": (("ij", "jk"), lambda a, b: a @ b, lambda a, b, g: (g @ b.T, a.T @ g)),
    "@ turned": (("ji", "kj"), lambda a, b: a.T @ b.T, lambda a, b, g: (b.T @ g.T, g.T @ a.T)),
    "@ vector": (("ij", "j"), lambda a, b: a @ b, lambda a, b, g: (np.outer(g, b), a.T @ g)),
    "vectors": (("j", "j"), lambda a, b: a @ b, lambda a, b, g: (g * b, g * a)),
    "batch": (("bij", "bjk"), np.matmul, lambda a, b, g: (g @ np.swapaxes(b, 1, 2), np.swapaxes(a, 1, 2) @ g)),
    "batch by one": (
        ("bij", "jk"), np.matmul, lambda a, b, g: (g @ b.T, np.einsum("bij,bik->jk", a, g)),
    ),
    "dot of stacks": (
        ("aij", "bjk"), np.dot, lambda a, b, g: (np.einsum("aibk,bjk->aij", g, b), np.einsum("aibk,aij->bjk", g, a)),
    ),
    "inner": (("ij", "kj"), np.inner, lambda a, b, g: (g @ b, g.T @ a)),
    "outer": (("i", "k"), np.outer, lambda a, b, g: (g @ b, a @ g)),
    "tensordot": (
        ("aij", "ijk"), lambda a, b: np.tensordot(a, b, 2),
        lambda a, b, g: (np.einsum("ak,ijk->aij", g, b), np.einsum("ak,aij->ijk", g, a)),
    ),
    "heads": (
        ("iqhd", "ikhd"), lambda a, b: np.einsum("iqhd,ikhd->ihqk", a, b),
        lambda a, b, g: (np.einsum("ihqk,ikhd->iqhd", g, b), np.einsum("ihqk,iqhd->ikhd", g, a)),
    ),
}  # fmt: skip


class Formula:
    """The letters of a formula, in the form that ``drawn_extents`` reads."""

    def __init__(self, letters: tuple[str, ...]) -> None:
        self.letters = letters


def run_formula(pick: Pick) -> None:
    """Gradients are products themselves, with the same bounds."""
    names = sorted(FORMULAS)
    name = names[pick(len(names))]
    letters, function, formula = FORMULAS[name]
    dtype = "dfFD"[pick(4)] if name != "outer" else "df"[pick(2)]
    how, rng = sorted(MODES)[pick(2)], np.random.default_rng(pick(1 << 16))
    gradient = pb.jit(lambda a, b, g: pb.vjp(function, a, b)[1](g))
    for _ in range(2):
        extents = drawn_extents(pick, Formula(letters), 1 << 17)
        a, b = (numbers(tuple(extents[k] for k in word), dtype, rng) for word in letters)
        g = numbers(np.shape(function(a, b)), dtype, rng)
        expected = formula(*map(bounded, (a, b, g)))
        with products(how):
            result = gradient(a, b, g)
        for one, wanted, x in zip(result, expected, (a, b), strict=True):
            assert np.shape(one) == x.shape
            assert_within(one, wanted, (name, dtype, extents, how))


def run_differences(pick: Pick) -> None:
    """A direction's derivative, and the second one, of a random program."""
    program = drawn_program(pick, [("d", "d")], smooth=True)
    how, rng = sorted(MODES)[pick(2)], np.random.default_rng(pick(1 << 16))
    extents = drawn_extents(pick, program.form, 1 << 11)
    if not program.fits(extents):
        return
    operands, windows = program.operands(extents, rng)
    shape = np.shape(program.product(windows)(operands)) if program.epilogue.name != "plain" else ()
    if program.epilogue.needs and not shape[-1]:
        return
    rest = tuple(numbers(s, "d", rng) for s in program.epilogue.shapes(shape))
    flat = [x for arguments in (*operands, rest) for x in arguments]
    moving = [k for k, x in enumerate(flat) if x.dtype.kind == "f"]
    counts = [len(arguments) for arguments in operands]
    call = program.function(windows)

    def loss(*arguments: Array) -> Array:
        every = list(flat)
        for k, x in zip(moving, arguments):
            every[k] = x
        parts = [tuple(every[sum(counts[:k]) : sum(counts[: k + 1])]) for k in range(len(counts))]
        result = call(parts, tuple(every[sum(counts) :]))
        return sum(np.sum(np.sin(z + 0.5) * z) for z in (result if isinstance(result, tuple) else (result,)))

    at = [flat[k] for k in moving]
    along = [np.asarray(rng.normal(size=x.shape)) for x in at]
    first, second, is_smooth = differences(loss, at, along)
    if not is_smooth:
        return
    wanted = tuple(range(len(at)))
    with products(how):
        result = pb.jit(pb.grad(loss, argnums=wanted))(*at)
        _, turned = pb.jit(lambda at, along: pb.jvp(pb.grad(loss, argnums=wanted), at, along))(tuple(at), tuple(along))
    note = (str(program), extents, how)
    for order, value, parts in ((1, first, result), (2, second, turned)):
        products_of = [np.sum(p.astype(np.longdouble) * d) for p, d in zip(parts, along, strict=True)]
        size = 1 + sum(float(np.sum(np.abs(p * d))) for p, d in zip(parts, along, strict=True))
        assert all(p.shape == x.shape and p.dtype == np.float64 for p, x in zip(parts, at, strict=True)), note
        got = float(sum(products_of))
        assert abs(got - float(value)) <= (1e-9, 1e-6)[order - 1] * size, (order, got, float(value), note)


def differences(loss: Callable[..., Any], at: list[Array], along: list[Array]) -> tuple[Any, Any, bool]:
    """Return the first and second derivative in a direction, and whether two steps agree on them, as they do not at a kink."""
    wide = [np.asarray(x, np.longdouble) for x in at]

    def moved(h: float) -> Any:
        with np.errstate(all="ignore"):
            return loss(*(np.asarray(x + np.longdouble(h) * d) for x, d in zip(wide, along, strict=True)))

    result = []
    here = moved(0.0)
    for h in (2.0**-13, 2.0**-14):
        ahead, behind, far, back = moved(h), moved(-h), moved(2 * h), moved(-2 * h)
        first = (8 * (ahead - behind) - (far - back)) / (12 * h)
        second = (16 * (ahead + behind) - (far + back) - 30 * here) / (12 * h * h)
        result.append((first, second))
    (a, b), (c, d) = result
    agree = [abs(a - c) <= 1e-10 * (1 + abs(c)), abs(b - d) <= 1e-7 * (1 + abs(d))]
    return c, d, bool(np.isfinite([float(c), float(d)]).all() and all(agree))


@settings(max_examples=16, derandomize=True, **LIMITS)
@given(st.data())
def test_formulas(data: st.DataObject) -> None:
    run_formula(pick_of(data))


@pytest.mark.long
@settings(max_examples=12, derandomize=True, **LIMITS)
@given(st.data())
def test_differences(data: st.DataObject) -> None:
    run_differences(pick_of(data))


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 1000, 50))
def test_many(start: int) -> None:
    for seed in range(start, start + 50):
        (run_formula, run_differences)[seed % 2](seeded(seed))
