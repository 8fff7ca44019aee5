"""Every op of the table on a device, by the runtime that users have, against the CPU: values, gradients in float64 and float32.

The cases of an op are one program, run in an order of threads, blocks and streams of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from pullback.ir import Function, Op
from pullback.ir.core.structure import Block
from pullback.ir.ops.library.family import Composed, Linalg
from tests.ir.test_op_table import NARROW, differentiable, seeded
from tests.support.cuda.places import calls_of, on_each_place, opened
from tests.support.gradients import loss_of, with_gradient
from tests.support.op_cases import case_function, cases, covered_ops, sample

pytestmark = pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
OPS = [op for op in covered_ops() if "func" in op.vocabularies]
MOVING = [op for op in OPS if any(differentiable(op))]
CLOSE, LIBRARY = (1e-10, 3e-5), (1e-8, 3e-3)
"""Relative, of float64 and of float32; of ops that a library computes."""


def joined(parts: Sequence[Function]) -> Function:
    """One function that does what several do."""
    parameters = [v for part in parts for v in part.parameters]
    instructions = [i for part in parts for i in part.body.instructions]
    results = [v for part in parts for v in part.results]
    return Function("f", Block(tuple(parameters), tuple(instructions), tuple(results)))


def check(runs_on: str, op: Op, parts: Sequence[tuple[Function, list[Any]]], is_narrow: bool = False) -> None:
    """The program of these parts gives on the device, called in several ways, what it does on the CPU. ``is_narrow``: it computes
    in float32."""
    function, arguments = joined([part for part, _ in parts]), [a for _, inputs in parts for a in inputs]
    rng = seeded(op)
    with opened(runs_on, crc32(op.name.encode())):
        (wanted,) = calls_of(function, arguments, rng, 0, device="cpu")
        every = calls_of(function, arguments, rng)
    close = LIBRARY if isinstance(op, Linalg | Composed) else CLOSE
    for result in every:
        for a, b in zip(result, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            if b.dtype.kind not in "fc":
                np.testing.assert_array_equal(a, b)
                continue
            largest = np.max(np.abs(b), initial=0, where=np.isfinite(b))
            tolerance = close[is_narrow or b.dtype in (np.float32, np.complex64)]
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * largest)


@on_each_place
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_values(runs_on: str, op: Op) -> None:
    rng = seeded(op)
    check(runs_on, op, [(case_function(case), case.arguments(rng)) for case in cases(op)])


@on_each_place
@pytest.mark.parametrize("op", MOVING, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_gradients(runs_on: str, op: Op, dtype: str) -> None:
    rng, parts = seeded(op), []
    for case, wanted in differentiable(op):
        if dtype == "f32":
            if case.params.get("dtype") is not None:
                continue
            case = replace(case, types=tuple(t.with_dtype(NARROW.get(t.dtype, t.dtype)) for t in case.types))
        loss, extra = loss_of(case)
        weights = [np.asarray(sample(rng, t, (0.3, 1.5))) for t in extra]
        arguments = [np.asarray(x, t.dtype.numpy) for x, t in zip(case.arguments(rng), case.types, strict=True)]
        parts.append((with_gradient(loss, case.types, wanted, extra), [*arguments, *weights]))
    if parts:
        check(runs_on, op, parts, dtype == "f32")
