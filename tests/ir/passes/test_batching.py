"""Batching of every op, generated from the op table: each row of the batch is what the op gives alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from pullback.ir import OPS, Builder, Function, Op, Value
from pullback.ir.core.structure import copy_block
from pullback.ir.interpret import interpret
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.verify import verify
from tests.support.op_cases import Case, case_function, cases, covered_ops, sample
from tests.support.programs import random_function

ROWS = 2
BATCHED = [op for op in covered_ops() if "func" in op.vocabularies and any(case.types for case in cases(op))]


def mapped(case: Case, batched: Sequence[int]) -> Function:
    b = Builder()
    inside = [Value(t, f"q{k}") for k, t in enumerate(case.types)]
    region = b.block(inside, case.emit(b, inside))
    b = Builder()
    types = [t.with_shape((ROWS, *t.shape)) if k in batched else t for k, t in enumerate(case.types)]
    parameters = [Value(t, f"p{k}") for k, t in enumerate(types)]
    return verify(
        b.function("f", parameters, b.emit(OPS["vmap"], parameters, {"batched": tuple(batched), "fixed": ()}, [region]))
    )


def choices(case: Case) -> Iterator[list[int]]:
    """All operands, and each alone."""
    yield list(range(len(case.types)))
    if len(case.types) > 1:
        yield from ([k] for k in range(len(case.types)))


@pytest.mark.parametrize("op", BATCHED, ids=lambda op: op.name)
def test_rows_of_a_batch_are_the_results_of_each(op: Op) -> None:
    rng = np.random.default_rng(1)
    for case in cases(op):
        single = case_function(case)
        for batched in choices(case) if case.types else ():
            drawn = [case.arguments(rng) for _ in range(ROWS)]
            rows = [[drawn[i if k in batched else 0][k] for k in range(len(case.types))] for i in range(ROWS)]
            arguments = [np.stack([r[k] for r in rows]) if k in batched else rows[0][k] for k in range(len(case.types))]
            result = interpret(verify(grad(mapped(case, batched))), *arguments)
            expected = [interpret(single, *row) for row in rows]
            for value, *each in zip(result, *expected, strict=True):
                assert value.dtype == each[0].dtype
                is_narrow = value.dtype.kind in "fc" and np.finfo(value.dtype).bits < 64
                tolerance = 1e-4 if is_narrow else 1e-12
                message = f"{case} by {batched}"
                np.testing.assert_allclose(value, np.stack(each), rtol=tolerance, atol=tolerance, err_msg=message)


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    """Rows of a batch of a program are the program's results, with and without the passes before and after."""
    function, rng = random_function(seed), np.random.default_rng(seed)
    types: list[Any] = [v.type for v in function.parameters]
    batched = [k for k in range(len(types)) if rng.random() < 0.7] or [0]
    b = Builder()
    parameters = [Value(t.with_shape((ROWS, *t.shape)) if k in batched else t) for k, t in enumerate(types)]
    params = {"batched": tuple(batched), "fixed": ()}
    whole = b.function("f", parameters, b.emit(OPS["vmap"], parameters, params, [copy_block(function.body)]))
    drawn = [[sample(rng, t) for t in types] for _ in range(ROWS)]
    rows = [[row[k] if k in batched else drawn[0][k] for k in range(len(types))] for row in drawn]
    arguments = [np.stack([r[k] for r in rows]) if k in batched else rows[0][k] for k in range(len(types))]
    with np.errstate(all="ignore"):
        expected = [interpret(function, *row) for row in rows]
        for program in (grad(whole), run(grad(run(whole, BEFORE_GRAD)), OPTIMIZE)):
            for value, *each in zip(interpret(verify(program), *arguments), *expected, strict=True):
                np.testing.assert_allclose(value, np.stack(each), rtol=1e-5, atol=1e-8)


def test_what_no_batched_value_reaches_stays_as_it_is() -> None:
    case = next(c for c in cases(OPS["contract"]) if c.params["spec"] == "ij,jk->ik")
    b = Builder()
    x, y = inside = [Value(t) for t in case.types]
    region = b.block(inside, [b.contract(b.exp(x), b.sin(y), spec="ij,jk->ik")])
    b = Builder()
    parameters: list[Any] = [Value(case.types[0]), Value(case.types[1].with_shape((5, *case.types[1].shape)))]
    function = b.function("f", parameters, b.emit(OPS["vmap"], parameters, {"batched": (1,), "fixed": ()}, [region]))
    result = run(grad(run(function, BEFORE_GRAD)), OPTIMIZE)
    assert [str(i.results[0].type) for i in result.instructions if i.op.name == "exp"] == ["f64[2,3]"]
    assert "broadcast" not in [i.op.name for i in result.instructions]
