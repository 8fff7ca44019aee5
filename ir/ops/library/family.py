"""Linear algebra: shared parts of ops on matrices. Matrices are the last two axes of the operands; the axes before are a
batch.

``Linalg`` ops have kernels of their own, around calls of BLAS and LAPACK. ``Composed`` ops are built of ordinary ops but have
their own gradient rule. Most take a matrix with its factors: their values are computed from the factors and their gradients go
to the matrix alone, since the result does not depend on the factorisation. One factorisation therefore serves a solve, its
gradient and a determinant.

No op fails: a factorisation returns where it broke down, and a ``check`` of that result raises.

Rules of ops that conjugate their operands are written for the textbook gradient, dL = Re tr(G^H dA), and converted to the IR's
convention, dL = Re tr(C^T dA), by ``conjugating``: C is the conjugate of G. For these rules see C. Boeddeker et al., "On the
computation of complex-valued gradients with application to statistically optimum beamforming" (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import OPS, ZERO, Contribution, Op, Region, Rule, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES, I64, ArrayType, DType, Extent, RefType, Shape, Type
from pullback.ir.core.value import Value

I32 = DTYPES["i32"]
INEXACT = tuple(DTYPES[name] for name in ("f32", "f64", "c64", "c128"))
Scalar = tuple[Value, ...]
TypedAs = Callable[[Sequence[Type], Mapping[str, Any], Same], tuple[ArrayType, ...]]


def real_of(dtype: DType) -> DType:
    """Return the dtype of the parts of a complex dtype; another dtype unchanged."""
    return DTYPES[f"f{dtype.bits // 2}"] if dtype.kind == "c" else dtype


def complex_of(dtype: DType) -> DType:
    """Return the complex dtype whose parts have a real dtype; a complex dtype unchanged."""
    return DTYPES[f"c{dtype.bits * 2}"] if dtype.kind == "f" else dtype


def matrices(types: Sequence[Type], count: int, same: Same) -> list[ArrayType]:
    """Return the operand types, checked: one inexact dtype, one batch, the first square. Raises TypeError."""
    arrays = [t for t in types if isinstance(t, ArrayType)]
    if len(arrays) != count or len(types) != count:
        raise TypeError(f"takes {count} arrays")
    first = arrays[0]
    for t in arrays:
        if t.rank < 2 or t.rank != first.rank or t.dtype is not first.dtype or t.dtype not in INEXACT:
            raise TypeError("takes matrices of one dtype, floating-point or complex, with as many batch axes")
        for e, f in zip(first.shape[:-2], t.shape[:-2], strict=True):
            same(e, f)
    same(first.shape[-2], first.shape[-1])
    return arrays


def rectangular(types: Sequence[Type]) -> ArrayType:
    """Return the type of the one operand, matrices of an inexact dtype. Raises TypeError."""
    (a,) = types
    if not isinstance(a, ArrayType) or a.rank < 2 or a.dtype not in INEXACT:
        raise TypeError("takes matrices of a dtype that is floating-point or complex")
    return a


def same_form(a: ArrayType, form: str, same: Same) -> Extent:
    """Check that matrices are "tall", "square" or "wide", and return the lesser of their extents. Raises TypeError."""
    m, n = a.shape[-2:]
    if form == "square":
        same(m, n)
    elif isinstance(m, int) and isinstance(n, int) and form != ("wide" if m < n else "tall"):
        raise TypeError(f"the matrices are not {form}")
    return m if form == "wide" else n


@dataclass(frozen=True, eq=False, kw_only=True)
class Linalg(Op):
    """An op on matrices with its own kernel. ``typed_as(types, params, same)`` is the type rule. ``body(b, params, *refs)``
    emits, in kernel IR, the work on one element of the batch; the references are the operands, the results and the scratch
    buffers; ``core`` are their ranks without the batch. References to complex arrays have one more axis, of the real and
    the imaginary part. ``small(lane, params, *matrices)`` emits the work on one of many small real matrices
    (``ir.ops.kernel.small_matrices``); the matrices are the operands and the results."""

    typed_as: TypedAs
    core: tuple[int, ...]
    body: Callable[..., None]
    small: Callable[..., None] | None = None
    scratch: Callable[[ArrayType, Mapping[str, Any]], tuple[RefType, ...]] = lambda t, params: ()

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        return self.typed_as(types, params, same)


@dataclass(frozen=True, eq=False, kw_only=True)
class Composed(Op):
    """An op on matrices that is lowered to ordinary ops. ``typed_as`` as of ``Linalg``. ``compose(b, *operands, **params)``
    emits them and returns the results."""

    typed_as: TypedAs
    compose: Callable[..., tuple[Value, ...]]

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        return self.typed_as(types, params, same)


# building blocks of rules


def conj(b: Any, x: Value) -> Value:
    """Return the conjugate of ``x``; ``x`` itself if it is real."""
    result: Value = b.conj(x) if x.type.dtype.kind == "c" else x
    return result


def conjugating(rule: Rule) -> Rule:
    """Return a rule for cotangents C from a rule for gradients G: the cotangents passed in and its contributions are
    conjugated."""

    def conjugated(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
        gradients = [ct if ct is ZERO else conj(b, ct) for ct in cts]
        contributions = rule(b, op, inputs, outputs, gradients, params, wants)
        return [conj(b, c) if isinstance(c, Value) else c for c in contributions]

    return conjugated


def no_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Raise AssertionError: the rule of an op whose operands are all ``missing``, which is never called."""
    raise AssertionError(op.name)


def matmul(b: Any, x: Value, y: Value, rows: str = "ik", columns: str = "kj") -> Value:
    """Return the product of matrices; the subscripts "ki" and "jk" transpose an operand."""
    batch = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: x.type.rank - 2]
    result: Value = b.contract(x, y, spec=f"{batch}{rows},{batch}{columns}->{batch}ij")
    return result


def xh_y(b: Any, x: Value, y: Value) -> Value:
    """Return x^H y."""
    return matmul(b, conj(b, x), y, "ki")


def x_yh(b: Any, x: Value, y: Value) -> Value:
    """Return x y^H."""
    return matmul(b, x, conj(b, y), "ik", "jk")


def transpose(b: Any, x: Value) -> Value:
    """Return the transposed matrix."""
    rank = x.type.rank
    result: Value = b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))
    return result


def adjoint(b: Any, x: Value) -> Value:
    """Return the conjugate transpose."""
    return conj(b, transpose(b, x))


def hermitian(b: Any, x: Value) -> Value:
    """Return the Hermitian part, (x + x^H) / 2; the symmetric part for real matrices."""
    result: Value = b.mul(b.add(x, adjoint(b, x)), b.full(0.5, x.type))
    return result


def position(b: Any, shape: Shape, axis: int) -> Value:
    indices: Value = b.iota(shape=shape, axis=axis, dtype=I64)
    return indices


def rows_and_columns(b: Any, t: Any) -> tuple[Value, Value]:
    """Return the row index and the column index of each element of matrices of type ``t``."""
    return position(b, t.shape, t.rank - 2), position(b, t.shape, t.rank - 1)


def triangle(b: Any, x: Value, lower: bool, strict: bool = False) -> Value:
    """Return a triangle of the matrix, zero elsewhere; ``strict``: without the diagonal."""
    row, column = rows_and_columns(b, x.type)
    large, small = (row, column) if lower else (column, row)
    result: Value = b.select((b.gt if strict else b.ge)(large, small), x, b.zeros_like(x))
    return result


def identity(b: Any, t: Any) -> Value:
    """Return identity matrices of type ``t``."""
    result: Value = b.cast(b.eq(*rows_and_columns(b, t)), dtype=t.dtype)
    return result


def diagonal(b: Any, x: Value) -> Value:
    shape = x.type.shape[:-1]
    along = [position(b, shape, k) for k in range(len(shape))]
    result: Value = b.gather(x, *along, along[-1], axes=tuple(range(x.type.rank)))
    return result


def off_diagonal(b: Any, x: Value) -> Value:
    """Return 1 / x off the diagonal, 0 on it."""
    on_diagonal = b.eq(*rows_and_columns(b, x.type))
    one = b.full(1, x.type)
    result: Value = b.select(on_diagonal, b.zeros_like(x), b.div(one, b.select(on_diagonal, one, x)))
    return result


def spread(b: Any, x: Value, t: Any) -> Value:
    """Broadcast one scalar for each matrix to all elements of the matrix."""
    result: Value = b.broadcast(x, axes=(t.rank - 2, t.rank - 1), shape=t.shape)
    return result


def columns_of(b: Any, x: Value, t: Any) -> Value:
    """Broadcast a vector, as the dtype of ``t``, to matrices of type ``t``: element j fills column j."""
    result: Value = b.broadcast(as_dtype(b, x, t.dtype), axes=(t.rank - 2,), shape=t.shape)
    return result


def rows_of(b: Any, x: Value, t: Any) -> Value:
    """Broadcast a vector, as the dtype of ``t``, to matrices of type ``t``: element i fills row i."""
    result: Value = b.broadcast(as_dtype(b, x, t.dtype), axes=(t.rank - 1,), shape=t.shape)
    return result


def as_dtype(b: Any, x: Value, dtype: DType) -> Value:
    result: Value = x if x.type.dtype is dtype else b.cast(x, dtype=dtype)
    return result


def part(b: Any, x: Value, row: Extent, column: Extent, rows: Extent, columns: Extent) -> Value:
    """Return the block of ``rows`` by ``columns`` elements at (``row``, ``column``) of matrices."""
    *batch, m, n = x.type.shape
    if (row, column, rows, columns) == (0, 0, m, n):
        return x
    start = (*(None for _ in batch), None if rows == m else row, None if columns == n else column)
    result: Value = b.slice(x, start=start, step=(1,) * x.type.rank, shape=(*batch, rows, columns))
    return result


def pad_block(b: Any, x: Value, row: Extent, column: Extent, rows: Extent, columns: Extent) -> Value:
    """Return zero matrices of ``rows`` by ``columns`` elements with the block ``x`` at (``row``, ``column``)."""
    *batch, m, n = x.type.shape
    if (row, column, rows, columns) == (0, 0, m, n):
        return x
    start = (*(0 for _ in batch), row, column)
    result: Value = b.pad(x, start=start, step=(1,) * x.type.rank, shape=(*batch, rows, columns))
    return result


# building blocks of kernels


def length(b: Any, ref: Value, axis: int) -> Value:
    value: Value = b.emit(OPS["extent"], (), {"size": ref.type.shape[axis]})[0]
    return value


def item(b: Any, ref: Value, *index: Value) -> Scalar:
    """Load a scalar: its value, or its real and imaginary parts if ``ref`` has an axis of them."""
    if ref.type.rank == len(index):
        return (b.here("load", ref, *index),)
    return tuple(b.here("load", ref, *index, b.const(k, I64)) for k in (0, 1))


def put(b: Any, x: Scalar | Value, ref: Value, *index: Value) -> None:
    """Store a scalar; a real value stored in a complex reference gets the imaginary part 0."""
    parts = (x,) if isinstance(x, Value) else x
    if ref.type.rank == len(index):
        b.here("store", parts[0], ref, *index)
        return
    for k, value in enumerate((*parts, b.const(0, ref.type.dtype))[:2]):
        b.here("store", value, ref, *index, b.const(k, I64))


def apply_parts(b: Any, name: str, x: Scalar, y: Scalar) -> Scalar:
    """Apply the op ``name`` to the parts of two scalars."""
    return tuple(b.here(name, v, w) for v, w in zip(x, y, strict=True))


def scaled(b: Any, x: Scalar, factor: Value) -> Scalar:
    """Return a scalar times a real factor."""
    return tuple(b.here("mul", v, factor) for v in x)


def modulus(b: Any, x: Scalar) -> Value:
    result: Value = b.here("abs", *x) if len(x) == 1 else b.here("hypot", *x)
    return result


def choose(b: Any, condition: Value, x: Scalar, y: float = 0) -> Scalar:
    """Return ``x`` where the condition holds, else the real constant ``y``."""
    others = (y, 0)
    return tuple(b.here("select", condition, v, b.const(other, v.type.dtype)) for v, other in zip(x, others, strict=False))


def each(b: Any, ref: Value, element: Callable[[Value, Value], Scalar | Value]) -> None:
    """Emit loops that store ``element(i, j)`` into each element of a matrix."""
    i = b.open("i")
    j = b.open("j")
    put(b, element(i, j), ref, i, j)
    b.close(j, length(b, ref, 1))
    b.close(i, length(b, ref, 0))


def copy(b: Any, source: Value, target: Value) -> None:
    each(b, target, lambda i, j: item(b, source, i, j))


def store_transposed(b: Any, source: Value, target: Value) -> None:
    """Emit loops that store the transpose of ``source``."""
    each(b, target, lambda i, j: item(b, source, j, i))


# building blocks of references


def by_columns(a: Any) -> Any:
    """Return the transposed matrices, dense."""
    return np.array(np.swapaxes(a, -1, -2), order="C")
