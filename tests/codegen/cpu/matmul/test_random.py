"""Matrix products of random forms, shapes, dtypes and layouts, with what comes before and after them, through the public door:
within the error bounds of textbooks, on any number of threads the same bits, whether or not neighbours share their kernels."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.codegen.fuse import matmul_fusion
from pullback.programs import pipeline
from pullback.runtime.process import counters
from pullback.tracer import flatten
from tests.support.error_bounds import BF16, Bounded, assert_within, bounded, unit
from tests.support.matmul.programs import (
    LARGE_WORK,
    MOST_WORK,
    ONE_IN,
    Pick,
    Program,
    drawn_extents,
    drawn_program,
    numbers,
    tupled,
)

Array = Any
INEXACT = ("d", "f", "D", "F", "e", BF16)
EXACT = tuple("?bBhHiIlL")
SAME = [(d, d) for d in ("d", "d", "f", "f", "e", BF16, "F", "D")]
MIXED = [(a, b) for a in (*INEXACT[:5], *EXACT) for b in INEXACT[:5] if a != b]
WHOLE = [(a, b) for a in EXACT for b in EXACT]
SHAPES = 3
"""So many of each program."""
LIMITS: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "phases": (Phase.generate,)}
MODES = {"alone": frozenset[str](), "carrying": frozenset({"cpu", matmul_fusion.ALONE})}
KNOWN = {name: pipeline.Templates() for name in MODES}


@contextmanager
def products(how: str) -> Iterator[None]:
    """Contractions share kernels with their neighbours, or do not, with templates of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul_fusion, "FUSING_TARGETS", MODES[how])
        patch.setattr(matmul_fusion, "BATCH_TARGETS", MODES[how] & {"cpu"})
        patch.setattr(pipeline, "templates", KNOWN[how])
        patch.setattr(pipeline, "stored_key", lambda *given: None)
        yield


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    before = pb.get_num_threads()
    pb.set_num_threads(count)
    try:
        yield
    finally:
        pb.set_num_threads(before)


def leaves(result: Any) -> list[Array]:
    return [np.asarray(x) for x in flatten(result)[0]]


def compare(result: Any, expected: Any, note: object) -> None:
    """Results with what was expected: exact, or within bounds."""
    for a, e in zip(tupled(result), tupled(expected), strict=True):
        if isinstance(e, Bounded):
            assert_within(a, e, note)
        else:
            assert np.asarray(a).dtype == np.asarray(e).dtype, note
            np.testing.assert_array_equal(a, e, err_msg=str(note))


def bounds(program: Program, operands: Any) -> Any:
    """Operands that know their errors, but for those that take part in nothing that rounds."""
    is_inexact = any(d in INEXACT for d in program.dtypes) or np.result_type(*program.dtypes[:2]).kind in "fc"
    return [
        tuple(bounded(x, is_inexact and d in EXACT) for x in arguments)
        for arguments, d in zip(operands, program.dtypes, strict=True)
    ]


def run(pick: Pick, dtypes: Any) -> None:
    program = drawn_program(pick, dtypes)
    rng = np.random.default_rng(pick(1 << 16))
    how = sorted(MODES)[pick(2)]
    compiled = None
    for _ in range(SHAPES):
        extents = drawn_extents(pick, program.form, LARGE_WORK if pick(ONE_IN) == 0 else MOST_WORK)
        if not program.fits(extents):
            continue
        operands, windows = program.operands(extents, rng)
        with np.errstate(all="ignore"):
            product = program.product(windows)(bounds(program, operands))
            shape = () if isinstance(product, tuple) else product.shape
            if program.epilogue.needs and not shape[-1]:
                continue
            dtype = getattr(product, "dtype", None)
            rest = tuple(numbers(s, dtype, rng) for s in program.epilogue.shapes(shape))
            expected = program.epilogue.function(product, *map(bounded, rest))
        if compiled is None or program.has_windows:
            compiled = pb.jit(program.function(windows))
        note = (str(program), extents, how)
        with products(how):
            result = compiled(operands, rest)
            compare(result, expected, note)
            with on_threads(1):
                alone = compiled(operands, rest)
        for one, two in zip(leaves(result), leaves(alone), strict=True):
            assert one.tobytes() == two.tobytes(), f"other bits on one thread: {note}"


def seeded(seed: int) -> Pick:
    rng = np.random.default_rng(seed)
    return lambda n: int(rng.integers(n))


def pick_of(data: st.DataObject) -> Pick:
    return lambda n: data.draw(st.integers(0, n - 1))


@pytest.mark.long
@settings(max_examples=30, derandomize=True, **LIMITS)
@given(st.data())
def test_one_dtype(data: st.DataObject) -> None:
    run(pick_of(data), SAME)


@settings(max_examples=12, derandomize=True, **LIMITS)
@given(st.data())
def test_mixed_dtypes(data: st.DataObject) -> None:
    run(pick_of(data), MIXED)


@settings(max_examples=12, derandomize=True, **LIMITS)
@given(st.data())
def test_integers_and_bools(data: st.DataObject) -> None:
    """Exact, modulo what an integer holds, as NumPy's."""
    run(pick_of(data), WHOLE)


SHARED = {
    "plain": lambda x, w: x @ w,
    "turned": lambda x, w: (w.T @ x.T).T,
    "with neighbours": lambda x, w: np.maximum(x * 0.5 @ w + 1.0, 0.0),
    "gradient": lambda x, w: pb.grad(lambda x, w: np.sum(np.tanh(x @ w)), argnums=(0, 1))(x, w),
}


VECTORS = 7
"""Products of one row, one column or one term, or several of these, are something else."""


@pytest.mark.parametrize("how", MODES)
@pytest.mark.parametrize("name", SHARED)
def test_all_shapes_share_kernels(name: str, how: str) -> None:
    compiled = pb.jit(lambda x, w: SHARED[name](x, w))
    with products(how):
        for size in (64, 300):
            compiled(np.ones((size, size)), np.ones((size, size)))
        shapes = list(itertools.product((0, 1, 2, 17, 200), (0, 1, 9, 300), (0, 1, 7, 32, 257)))
        for is_vector, most in ((False, 0), (True, VECTORS)):
            before = counters.snapshot()
            for m, k, n in (shape for shape in shapes if (1 in shape) == is_vector):
                result = compiled(np.full((m, k), 0.5), np.ones((k, n)))
                if name == "plain":
                    np.testing.assert_array_equal(result, np.full((m, n), 0.5 * k))
            after = counters.snapshot()
            assert after.templates_built - before.templates_built <= most
            assert is_vector or after.compiles == before.compiles


HALVES = {
    "matrix by vector": lambda a, b: a @ b[0],
    "vector by matrix": lambda a, b: b[1] @ a.T,
    "of two vectors": lambda a, b: a[0] @ b[0],
    "vdot": lambda a, b: np.vdot(a[:4], b),
    "rows": lambda a, b: np.einsum("ij,ij->i", a[:4], b),
    "axes of one operand": lambda a, b: np.einsum("ij,kj->k", a, b),
    "three operands": lambda a, b: np.einsum("ij,kj,j->ik", a, b, a[0]),
    "matrices": lambda a, b: a @ b.T,
}


@pytest.mark.parametrize("dtype", ["e", BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize("name", HALVES)
def test_halves_are_rounded_once(name: str, dtype: Any) -> None:
    """However few rows a product has, and however many steps it takes."""
    function, rng = HALVES[name], np.random.default_rng(5)
    for terms in (1, 2, 7, 300):
        a, b = (np.abs(rng.normal(size=(rows, terms))).astype(dtype) for rows in (9, 4))
        result = pb.jit(function)(a, b)
        exact = function(a.astype(float), b.astype(float))
        assert result.dtype == dtype
        np.testing.assert_array_less(np.abs(result.astype(float) - exact), (unit(dtype) + 1e-4) * exact)


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 2000, 50))
def test_many(start: int) -> None:
    for seed in range(start, start + 50):
        run(seeded(seed), (SAME, SAME, SAME, MIXED, WHOLE)[seed % 5])
