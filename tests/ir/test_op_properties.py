"""The properties that op records state hold: parity and commutativity, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import DTYPES, OPS, ArrayType
from pullback.ir.ops.elementwise.elementwise import Elementwise

SAMPLES = np.concatenate([np.linspace(-30.0, 30.0, 241), 2.0 ** np.arange(-1000, 1000, 50), [0.0, -0.0, np.inf, -np.inf, np.nan]])
PARITY = [op for op in OPS.values() if isinstance(op, Elementwise) and op.parity]
COMMUTATIVE = [op for op in OPS.values() if op.commutative]


def value(op: Any, *operands: Any) -> Any:
    """Return what an op means for float64 or int64 operands."""
    kind = "bool" if op.gives == "bool" else "f64" if operands[0].dtype.kind == "f" else "i64"
    with np.errstate(all="ignore"):
        (result,) = op.evaluate(list(operands), {}, [ArrayType(DTYPES[kind], operands[0].shape)])
    return result


@pytest.mark.parametrize("op", PARITY, ids=lambda op: op.name)
def test_parity(op: Any) -> None:
    sign = 1 if op.parity == "even" else -1
    assert op.parity in ("even", "odd")
    assert np.array_equal(value(op, -SAMPLES), sign * value(op, SAMPLES), equal_nan=True)


@pytest.mark.parametrize("op", COMMUTATIVE, ids=lambda op: op.name)
def test_commutativity(op: Any) -> None:
    if "f" in op.kinds:
        x, y = np.repeat(SAMPLES, 7), np.tile(SAMPLES[:7], len(SAMPLES))
        assert np.array_equal(value(op, x, y), value(op, y, x), equal_nan=True)
    if "i" in op.kinds:
        a, b = np.repeat(np.arange(-9, 9), 5), np.tile([-(2**63), 2**63 - 1, 0, 3, -1], 18)
        assert np.array_equal(value(op, a, b), value(op, b, a))


def test_some_records_state_each() -> None:
    assert len(PARITY) > 15 and len(COMMUTATIVE) > 8
