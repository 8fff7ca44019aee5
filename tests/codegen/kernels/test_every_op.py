"""Every op through the compiled path, on every dtype it takes, compared with the array interpreter.

Cheap ops and integers agree exactly, elementary functions to a few units in the last place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pullback.ir import DTYPES, OPS, ArrayType, Builder, DType, Function, Op, Value
from pullback.ir.core.types import COMPLEX_OF
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather, Place, Scatter
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.array.scan import Accumulate, LinearRecurrence
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.library.family import Composed, Linalg
from tests.support.op_cases import Case, case_function, cases, covered_ops, elementwise_params, sample, special_arguments
from tests.support.targets import assert_close, run_targets

TESTED = [op for op in covered_ops() if "func" in op.vocabularies]
ELEMENTWISE = [op for op in TESTED if isinstance(op, Elementwise)]
DTYPES_OF = {
    "b": ("bool",),
    "i": ("i8", "i16", "i32", "i64"),
    "u": ("u8", "u16", "u32", "u64"),
    "f": ("f16", "bf16", "f32", "f64"),
}
EVERY = tuple(DTYPES[name] for names in DTYPES_OF.values() for name in names)


MOVING = Reindex | Interleave | Gather | Constant


def named(ops: list[Any]) -> Any:
    return pytest.mark.parametrize("op", ops, ids=lambda op: op.name)


def tolerance(op: Op) -> float:
    """Units in the last place between our functions and those of NumPy and SciPy: each is off by a few."""
    if isinstance(op, Elementwise):
        return 0 if op.cheap else 8 if any(str(name).startswith("scipy") for name in (op.reference, *op.also)) else 4
    if isinstance(op, Linalg | Composed):
        return 2**16
    return 4 if op.name in ("sum", "prod", "contract", "cumsum") else 0


def floor(op: Op, dtype: DType) -> float:
    """Return the size below which results are compared absolutely: digits cancel at the zeros at negative arguments."""
    result = op.name in ("gammaln", "digamma") and dtype.bits >= 32
    return 0.25 if result else 0.0


def check(function: Function, arguments: list[Any], ulps: float, note: object, least: float = 0.0) -> None:
    results = run_targets(function, arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            assert_close(a, e, ulps, least, note=f"{note} on {target}")


def is_real(case: Case) -> bool:
    kinds = [t.dtype.kind for t in case.types] + [d.kind for d in [case.params.get("dtype")] if d is not None]
    return "c" not in kinds


@named(TESTED)
def test_cases(op: Op) -> None:
    rng = np.random.default_rng(0)
    for case in cases(op):
        ulps = tolerance(op) if is_real(case) or isinstance(op, MOVING) else max(tolerance(op), 16)
        check(case_function(case), case.arguments(rng), ulps, case)


def every_dtype(op: Elementwise) -> Iterator[Case]:
    """A case for each dtype, and for each dtype it may give."""
    for dtype in EVERY:
        if dtype.kind not in op.kinds or (op.gives == "complex" and dtype not in COMPLEX_OF):
            continue
        t = ArrayType(dtype, (3,))
        types = (ArrayType(DTYPES["bool"], (3,)), t, t) if op.gives == "select" else (t,) * op.arity
        choices = [{"dtype": d} for d in EVERY] if op.name == "cast" else elementwise_params(op, dtype)
        for params in choices:
            yield Case(op=op, types=types, params=params)


@named(ELEMENTWISE)
def test_special_values(op: Elementwise) -> None:
    for case in every_dtype(op):
        arguments = special_arguments(case)
        count = arguments[0].shape
        vectors = Case(op=op, types=tuple(t.with_shape(count) for t in case.types), params=case.params)
        check(case_function(vectors), arguments, tolerance(op), vectors, floor(op, case.types[0].dtype))


@named([op for op in TESTED if isinstance(op, Reduce)])
def test_reductions_of_every_dtype(op: Reduce) -> None:
    rng = np.random.default_rng(1)
    for dtype in EVERY:
        if dtype.kind not in op.kinds:
            continue
        for shape, axes in (((37,), (0,)), ((5, 19), (1,)), ((5, 19), (0,)), ((3, 4, 5), (1,))):
            t = ArrayType(dtype, shape)
            case = Case(op=op, types=(t,), params={"axes": axes})
            ulps = {16: 8, 32: 16, 64: 16}[dtype.bits] if dtype.is_float and op.name in ("sum", "prod") else 0
            check(case_function(case), [sample(rng, t, (0.5, 1.5))], ulps, case)


@named([op for op in TESTED if isinstance(op, Reduce)])
def test_reductions_of_special_values(op: Reduce) -> None:
    """NaN, infinities and zeros of both signs at every place of a vector that has a tail."""
    for dtype in (DTYPES["f16"], DTYPES["f32"], DTYPES["f64"]):
        if dtype.kind not in op.kinds:
            continue
        x = np.zeros((40, 19), dtype.numpy)
        x[:19][np.eye(19, dtype=bool)] = np.nan
        x[19] = -0.0
        x[20:38, ::3] = np.where(np.eye(18, 7, dtype=bool), -np.inf, -0.0)
        x[38, 4] = np.inf
        for axis in (0, 1):
            case = Case(op=op, types=(ArrayType(dtype, x.shape),), params={"axes": (axis,)})
            check(case_function(case), [x], 0, case)


@named([op for op in TESTED if isinstance(op, Reindex | Gather | Scatter | Place | LinearRecurrence | Accumulate)])
def test_moving_every_dtype(op: Op) -> None:
    """Ops that move or accumulate elements do so for elements of any size."""
    rng = np.random.default_rng(2)
    for case in cases(op):
        if case.types[0].dtype.name != "f64" or 0 in case.types[0].shape:
            continue
        for dtype in EVERY:
            types = tuple(t.with_dtype(dtype) if t.dtype.name == "f64" else t for t in case.types)
            try:
                op.infer(types, case.params, (), lambda a, b: None)
            except TypeError:
                continue
            if dtype.is_bool and getattr(op, "accumulate", False):
                continue
            moved = Case(op=op, types=types, params=case.params, bounds=case.bounds)
            check(case_function(moved), moved.arguments(rng), 64 if isinstance(op, Accumulate) else 0, moved)


@pytest.mark.parametrize("spec", ["ij,jk->ik", "ij,kj->ki", "ij,j->i", "i,i->", "i,j->ij", "bij,bjk->bik", "ijk,kjl->il"])
def test_contractions_of_every_dtype(spec: str) -> None:
    rng = np.random.default_rng(3)
    extents = dict(zip("bijkl", (2, 5, 7, 3, 4), strict=True))
    words = spec.split("->")[0].split(",")
    for dtype in EVERY:
        if dtype.kind not in "iuf" or dtype.name == "bf16":
            continue
        types = tuple(ArrayType(dtype, tuple(extents[k] for k in word)) for word in words)
        case = Case(op=OPS["contract"], types=types, params={"spec": spec})
        ulps = 64 if dtype.is_float else 0
        check(case_function(case), [sample(rng, t, (0.5, 1.5)) for t in types], ulps, case)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i64", "i8", "u16", "bool"])
def test_lengths_around_the_vector_width(dtype: str) -> None:
    """A map, a sum and a position for every length from 0 to 70: full vectors, tails, and nothing."""
    rng = np.random.default_rng(4)
    for count in range(0, 71, 1 if dtype in ("f64", "i8") else 3):
        t = ArrayType(DTYPES[dtype], (count,))
        b = Builder()
        x = Value(t, "x")
        folded = b.any(x, axes=(0,)) if t.dtype.is_bool else b.sum(x, axes=(0,))
        results = [b.select(b.eq(x, b.full(1, t)), x, b.full(0, t)), folded, *([b.argmax(x, axes=(0,))] if count else [])]
        array = sample(rng, t, (0.5, 1.5))
        if dtype[0] == "f":
            array = np.round(array * 4).astype(array.dtype) / 4
        check(b.function("f", [x], results), [array], 0, count)
