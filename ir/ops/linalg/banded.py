"""Equations of banded matrices, stored by their diagonals, one for each row: bands[upper + i - j, j] is a[i, j]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Same
from pullback.ir.core.types import I64, ArrayType, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import I32, INEXACT, Linalg, by_columns, each, item, part, rectangular, store_transposed
from pullback.ir.ops.library.lapack import gbsv, pbtrf


def _banded_solve(x: Any, bands: Any, lower: int, upper: int) -> tuple[Any, Any]:
    solution, info = np.array(np.swapaxes(x, -1, -2), order="C"), np.zeros(x.shape[:-2], np.int32)
    n = bands.shape[-1]
    for index in np.ndindex(info.shape):
        columns = np.zeros((n, 2 * lower + upper + 1), bands.dtype)
        columns[:, lower:] = bands[index].T
        gbsv.function(columns, np.zeros(n, np.int32), solution[index], info[(*index, ...)], lower=lower, upper=upper)
    return np.swapaxes(solution, -1, -2), info


def _type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    arrays = [t for t in types if isinstance(t, ArrayType) and t.rank >= 2 and t.dtype in INEXACT]
    if len(arrays) != 2 or arrays[0].rank != arrays[1].rank or arrays[0].dtype is not arrays[1].dtype:
        raise TypeError("takes right sides and bands of one dtype, with as many batch axes")
    x, bands = arrays
    for e, f in zip((*bands.shape[:-2], bands.shape[-1]), x.shape[:-1], strict=True):
        same(e, f)
    same(bands.shape[-2], params["lower"] + params["upper"] + 1)
    return x, ArrayType(I32, x.shape[:-2])


def _scratch(x: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n, k = x.shape[-2:]
    return RefType(x.dtype, (n, 2 * params["lower"] + params["upper"] + 1)), RefType(I32, (n,)), RefType(x.dtype, (k, n))


def _body(b: Any, params: Mapping[str, Any], right_sides: Value, bands: Value, x: Value, info: Value, *scratch: Value) -> None:
    columns, pivots, transposed_x = scratch
    lower = b.const(params["lower"], I64)

    def element(i: Value, j: Value) -> tuple[Value, ...]:
        at = b.select(b.ge(j, lower), b.sub(j, lower), b.const(0, I64))
        return item(b, bands, at, i)

    each(b, columns, element)
    store_transposed(b, right_sides, transposed_x)
    b.here("gbsv", columns, pivots, transposed_x, info, lower=params["lower"], upper=params["upper"])
    store_transposed(b, transposed_x, x)


def _rows(b: Any, rows: Sequence[Value]) -> Value:
    """Return matrices whose rows are the vectors."""
    lines = [b.broadcast(row, axes=(row.type.rank - 1,), shape=(*row.type.shape[:-1], 1, row.type.shape[-1])) for row in rows]
    *batch, _, n = lines[0].type.shape
    if len(lines) == 1:
        return lines[0]
    result: Value = b.concat(*lines, axis=len(batch), starts=tuple(range(len(lines))), shape=(*batch, len(lines), n))
    return result


def _shifted(b: Any, x: Value, axis: int, by: int) -> Value:
    result: Value = b.shift(x, axis=axis, offset=by) if by else x
    return result


def _transposed(b: Any, bands: Value, lower: int, upper: int) -> Value:
    """Return the bands of the transposed matrix: its row k is row lower + upper - k, shifted."""
    rank, n = bands.type.rank, bands.type.shape[-1]
    rows = []
    for k in range(lower + upper + 1):
        row = b.squeeze(part(b, bands, lower + upper - k, 0, 1, n), axes=(rank - 2,))
        rows.append(_shifted(b, row, rank - 2, lower - k))
    return _rows(b, rows)


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (_, bands), x = inputs, outputs[0]
    lower, upper = params["lower"], params["upper"]
    ct = b.banded_solve(cts[0], _transposed(b, bands, lower, upper), lower=upper, upper=lower)[0]
    if not wants[1]:
        return [ct, ZERO]
    axis = x.type.rank - 2
    rows = [b.sum(b.mul(_shifted(b, ct, axis, upper - k), x), axes=(axis + 1,)) for k in range(lower + upper + 1)]
    return [ct, b.neg(_rows(b, rows))]


banded_solve = Linalg(
    name="banded_solve", reference=_banded_solve, pullback=_rule, typed_as=_type, core=(2, 2, 2, 0, 2, 1, 2), body=_body,
    scratch=_scratch,
)  # fmt: skip
"""Solves banded equations. Operands: the right sides and the bands. Results: the solutions and, of i32, a positive number
where a matrix is singular. Params ``lower`` and ``upper``: the numbers of diagonals below and above the main one."""


# banded_minors: tests Hermitian matrices for positive definiteness


def _banded_minors(bands: Any, lower: int) -> Any:
    columns, info = by_columns(bands), np.zeros(bands.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        pbtrf.function(columns[index], info[(*index, ...)], lower=lower)
    return info


def _minors_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    bands = rectangular(types)
    same(bands.shape[-2], params["lower"] + 1)
    return (ArrayType(I32, bands.shape[:-2]),)


def _minors_body(b: Any, params: Mapping[str, Any], bands: Value, info: Value, *scratch: Value) -> None:
    store_transposed(b, bands, scratch[0])
    b.here("pbtrf", scratch[0], info, lower=params["lower"])


banded_minors = Linalg(
    name="banded_minors", reference=_banded_minors, typed_as=_minors_type, core=(2, 0, 2), body=_minors_body,
    scratch=lambda bands, params: (RefType(bands.dtype, (bands.shape[-1], bands.shape[-2])),),
    nondifferentiable="an order is an integer",
)  # fmt: skip
"""The order of the first leading minor that is not positive, or 0. Operand: the main diagonal and the ``lower`` diagonals
below."""
