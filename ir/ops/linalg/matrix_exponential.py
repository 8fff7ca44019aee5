"""The exponential of matrices, the last two axes of the operand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Contribution, Op, Same, resolve
from pullback.ir.core.types import I64, ArrayType, Extent, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import (
    I32,
    Linalg,
    Scalar,
    apply_parts,
    copy,
    each,
    item,
    length,
    matrices,
    modulus,
    scaled,
    transpose,
)

PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""The coefficients of the Pade approximant of degree 13, lowest degree first."""
LARGEST_NORM = 5.371920351148152
"""The largest 1-norm at which the approximant of degree 13 is used without halving."""


def _expm(a: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(resolve("scipy.linalg.expm")(a), a.dtype)


def _type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return tuple(matrices(types, 1, same))


def _scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n = a.shape[-1]
    return (*(RefType(a.dtype, (n, n)) for _ in range(7)), RefType(I32, (n,)), RefType(I32))


def _squarings(b: Any, a: Value) -> Value:
    """Return how often the matrix must be halved for its 1-norm to be at most ``LARGEST_NORM``; NaN if it is not finite."""
    zero = b.const(0, a.type.dtype)
    j = b.open("j")
    i = b.open("i")
    size = modulus(b, item(b, a, i, j))
    (total,) = b.close(i, length(b, a, 0), (zero,), (size,), ("add",))
    (norm,) = b.close(j, length(b, a, 1), (zero,), (total,), ("maximum",))
    needed = b.here("ceil", b.here("log2", b.here("div", norm, b.const(LARGEST_NORM, a.type.dtype))))
    is_finite = b.here("lt", norm, b.const(math.inf, a.type.dtype))
    count: Value = b.here("select", is_finite, b.here("maximum", needed, zero), b.const(math.nan, a.type.dtype))
    return count


def _body(b: Any, params: Mapping[str, Any], a: Value, out: Value, *scratch: Value) -> None:
    """Emit the Pade approximant of degree 13 of the halved matrix, squared as often: N. Higham, "The scaling and squaring
    method for the matrix exponential revisited" (2005), algorithm 2.3, without the lower degrees. Numerator and denominator
    commute, so left and right division are equal."""
    x, x2, x4, x6, odd, even, work, pivots, info = scratch
    dtype = a.type.dtype

    def product(left: Value, right: Value, result: Value) -> None:
        b.here("gemm", left, right, result, transpose_a=False, transpose_b=False)

    def combined(result: Value, of_six: int, others: Sequence[int], start: Value | None = None) -> None:
        """Emit start + p6 x6 + p4 x4 + p2 x2 + p0 into ``result``, with the coefficients at these positions of ``PADE``."""

        def element(i: Value, j: Value) -> Scalar:
            total = scaled(b, item(b, x6, i, j), b.const(PADE[of_six], dtype))
            for ref, position in zip((x4, x2), others, strict=False):
                total = apply_parts(b, "add", total, scaled(b, item(b, ref, i, j), b.const(PADE[position], dtype)))
            if start is None:
                return total
            unit = b.here("select", b.here("eq", i, j), b.const(PADE[others[2]], dtype), b.const(0, dtype))
            return apply_parts(b, "add", (b.here("add", total[0], unit), *total[1:]), item(b, start, i, j))

        each(b, result, element)

    count = _squarings(b, a)
    factor = b.here("exp2", b.here("neg", count))
    each(b, x, lambda i, j: scaled(b, item(b, a, i, j), factor))
    product(x, x, x2)
    product(x2, x2, x4)
    product(x4, x2, x6)
    combined(work, 13, (11, 9))
    product(x6, work, odd)
    combined(work, 7, (5, 3, 1), odd)
    product(x, work, odd)
    combined(work, 12, (10, 8))
    product(x6, work, even)
    combined(even, 6, (4, 2, 0), even)
    each(b, work, lambda i, j: apply_parts(b, "sub", item(b, even, i, j), item(b, odd, i, j)))
    each(b, out, lambda i, j: apply_parts(b, "add", item(b, even, i, j), item(b, odd, i, j)))
    b.here("gesv", work, pivots, out, info)
    squarings = b.here("cast", count, dtype=I64)
    k = b.open("k")
    product(out, out, work)
    copy(b, work, out)
    b.close_ordered(k, squarings)


def _twice(n: Extent) -> Extent:
    return 2 * n if isinstance(n, int) else f"{n}*2"


def block_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the derivative of a matrix function along e, a block of the function of [[a, e], [0, a]]: N. Higham, Functions of
    Matrices (2008), theorem 3.6."""
    (a,), rank = inputs, inputs[0].type.rank
    n, batch = a.type.shape[-1], a.type.shape[:-2]
    shape, steps = (*batch, _twice(n), _twice(n)), (1,) * rank

    def pad(x: Value, row: Extent, column: Extent) -> Value:
        padded: Value = b.pad(x, start=(*(0 for _ in batch), row, column), step=steps, shape=shape)
        return padded

    a_transposed = transpose(b, a)
    block = b.add(b.add(pad(a_transposed, 0, 0), pad(a_transposed, n, n)), pad(cts[0], 0, n))
    return [b.slice(b.emit(op, (block,))[0], start=(*(0 for _ in batch), 0, n), step=steps, shape=a.type.shape)]


expm = Linalg(
    name="expm", reference=_expm, pullback=block_rule, typed_as=_type, core=(2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0), body=_body,
    scratch=_scratch,
)  # fmt: skip
