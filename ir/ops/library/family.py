"""Linear algebra: what ops on matrices, the last two axes of their operands, have in common; axes before those are a batch.

``Linalg`` ops have kernels of their own, around calls of BLAS and LAPACK. ``Composed`` ops are ordinary ops but for their
gradient. Most are given a matrix with its factors: their values come from the factors and their gradients go to the matrix alone,
since what they compute does not depend on how it was factored. So one factorisation serves a solve, its gradient and a
determinant.

No op fails: a factorisation says in a result where it broke down, and a ``check`` of it raises.

Rules of ops that conjugate what they read are written for the gradient of textbooks, dL = Re tr(G^H dA), and put into the
transposition that the IR has, dL = Re tr(C^T dA), by ``conjugating``: C is the conjugate of G. C. Boeddeker et al., "On the
computation of complex-valued gradients with application to statistically optimum beamforming" (2017), has those rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core.op import OPS, ZERO, Contribution, Op, Region, Rule, Same
from pullback.ir.core.types import DTYPES, I64, ArrayType, DType, Extent, RefType, Shape, Type
from pullback.ir.core.value import Value

I32 = DTYPES["i32"]
INEXACT = tuple(DTYPES[name] for name in ("f32", "f64", "c64", "c128"))
Scalar = tuple[Value, ...]
TypedAs = Callable[[Sequence[Type], Mapping[str, Any], Same], tuple[ArrayType, ...]]


def real_of(dtype: DType) -> DType:
    """The dtype of the parts of a complex dtype; another dtype itself."""
    return DTYPES[f"f{dtype.bits // 2}"] if dtype.kind == "c" else dtype


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts are of a real one; a complex dtype itself."""
    return DTYPES[f"c{dtype.bits * 2}"] if dtype.kind == "f" else dtype


def matrices(types: Sequence[Type], count: int, same: Same) -> list[ArrayType]:
    """The operands of one inexact dtype and one batch, the first of square matrices. Raises TypeError."""
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
    """The one operand, matrices of an inexact dtype. Raises TypeError."""
    (a,) = types
    if not isinstance(a, ArrayType) or a.rank < 2 or a.dtype not in INEXACT:
        raise TypeError("takes matrices of a dtype that is floating-point or complex")
    return a


def same_form(a: ArrayType, form: str, same: Same) -> Extent:
    """Checks that matrices are "tall", "square" or "wide"; the lesser of their extents."""
    m, n = a.shape[-2:]
    if form == "square":
        same(m, n)
    elif isinstance(m, int) and isinstance(n, int) and form != ("wide" if m < n else "tall"):
        raise TypeError(f"the matrices are not {form}")
    return m if form == "wide" else n


@dataclass(frozen=True, eq=False, kw_only=True)
class Linalg(Op):
    """``typed_as(types, params, same)`` is the type rule. ``body(b, params, *refs)`` emits, in kernel IR, the work on one element
    of the batch; the references are the operands, the results and the scratch buffers; ``core`` are the ranks they then have.
    Those of complex arrays have one axis more, of the real and the imaginary part. ``small(lane, params, *matrices)`` is the
    work on one of many small real matrices (``ir.ops.kernel.small_matrices``), the matrices being the operands and the
    results."""

    typed_as: TypedAs
    core: tuple[int, ...]
    body: Callable[..., None]
    small: Callable[..., None] | None = None
    scratch: Callable[[ArrayType, Mapping[str, Any]], tuple[RefType, ...]] = lambda t, params: ()

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        return self.typed_as(types, params, same)


@dataclass(frozen=True, eq=False, kw_only=True)
class Composed(Op):
    """``typed_as`` as of ``Linalg``. ``compose(b, *operands, **params)`` emits ordinary ops and returns the results."""

    typed_as: TypedAs
    compose: Callable[..., tuple[Value, ...]]

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        return self.typed_as(types, params, same)


# what the rules are made of


def conj(b: Any, x: Value) -> Value:
    """The conjugate; of real numbers they themselves."""
    found: Value = b.conj(x) if x.type.dtype.kind == "c" else x
    return found


def conjugating(rule: Rule) -> Rule:
    """A rule for gradients G made one for cotangents C: both the cotangents that it gets and its contributions are conjugated."""

    def conjugated(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
        given = [ct if ct is ZERO else conj(b, ct) for ct in cts]
        found = rule(b, op, inputs, outputs, given, params, wants)
        return [conj(b, c) if isinstance(c, Value) else c for c in found]

    return conjugated


def no_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """The rule of an op whose operands are all ``missing``: it is never called."""
    raise AssertionError(op.name)


def matmul(b: Any, x: Value, y: Value, rows: str = "ik", columns: str = "kj") -> Value:
    """The product of matrices; "ki" and "jk" are those of a transposed operand."""
    batch = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: x.type.rank - 2]
    found: Value = b.contract(x, y, spec=f"{batch}{rows},{batch}{columns}->{batch}ij")
    return found


def within(b: Any, x: Value, y: Value) -> Value:
    """x^H y."""
    return matmul(b, conj(b, x), y, "ki")


def across(b: Any, x: Value, y: Value) -> Value:
    """x y^H."""
    return matmul(b, x, conj(b, y), "ik", "jk")


def turned(b: Any, x: Value) -> Value:
    """The transposed matrix."""
    rank = x.type.rank
    found: Value = b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))
    return found


def adjoint(b: Any, x: Value) -> Value:
    """The conjugate of the transposed matrix."""
    return conj(b, turned(b, x))


def hermitian(b: Any, x: Value) -> Value:
    """The Hermitian part; of real matrices the symmetric part."""
    found: Value = b.mul(b.add(x, adjoint(b, x)), b.full(0.5, x.type))
    return found


def position(b: Any, shape: Shape, axis: int) -> Value:
    found: Value = b.iota(shape=shape, axis=axis, dtype=I64)
    return found


def rows_and_columns(b: Any, t: Any) -> tuple[Value, Value]:
    """The row and the column of each element of matrices of a type."""
    return position(b, t.shape, t.rank - 2), position(b, t.shape, t.rank - 1)


def triangle(b: Any, x: Value, lower: bool, strict: bool = False) -> Value:
    """A triangle of the matrix, zero elsewhere; ``strict``: without the diagonal."""
    row, column = rows_and_columns(b, x.type)
    large, small = (row, column) if lower else (column, row)
    found: Value = b.select((b.gt if strict else b.ge)(large, small), x, b.zeros_like(x))
    return found


def identity(b: Any, t: Any) -> Value:
    """The identity matrix of a type."""
    found: Value = b.cast(b.eq(*rows_and_columns(b, t)), dtype=t.dtype)
    return found


def diagonal(b: Any, x: Value) -> Value:
    shape = x.type.shape[:-1]
    along = [position(b, shape, k) for k in range(len(shape))]
    found: Value = b.gather(x, *along, along[-1], axes=tuple(range(x.type.rank)))
    return found


def off_diagonal(b: Any, x: Value) -> Value:
    """1 / x off the diagonal, 0 on it."""
    on_diagonal = b.eq(*rows_and_columns(b, x.type))
    one = b.full(1, x.type)
    found: Value = b.select(on_diagonal, b.zeros_like(x), b.div(one, b.select(on_diagonal, one, x)))
    return found


def spread(b: Any, x: Value, t: Any) -> Value:
    """A number for each matrix at all of its places."""
    found: Value = b.broadcast(x, axes=(t.rank - 2, t.rank - 1), shape=t.shape)
    return found


def columns_of(b: Any, x: Value, t: Any) -> Value:
    """Element j of a vector at each place of column j, for matrices of a type; in their dtype."""
    found: Value = b.broadcast(as_dtype(b, x, t.dtype), axes=(t.rank - 2,), shape=t.shape)
    return found


def rows_of(b: Any, x: Value, t: Any) -> Value:
    """Element i of a vector at each place of row i."""
    found: Value = b.broadcast(as_dtype(b, x, t.dtype), axes=(t.rank - 1,), shape=t.shape)
    return found


def as_dtype(b: Any, x: Value, dtype: DType) -> Value:
    found: Value = x if x.type.dtype is dtype else b.cast(x, dtype=dtype)
    return found


def part(b: Any, x: Value, row: Extent, column: Extent, rows: Extent, columns: Extent) -> Value:
    """A block of matrices."""
    *batch, m, n = x.type.shape
    if (row, column, rows, columns) == (0, 0, m, n):
        return x
    start = (*(None for _ in batch), None if rows == m else row, None if columns == n else column)
    found: Value = b.slice(x, start=start, step=(1,) * x.type.rank, shape=(*batch, rows, columns))
    return found


def place(b: Any, x: Value, row: Extent, column: Extent, rows: Extent, columns: Extent) -> Value:
    """Matrices of zeros with a block."""
    *batch, m, n = x.type.shape
    if (row, column, rows, columns) == (0, 0, m, n):
        return x
    start = (*(0 for _ in batch), row, column)
    found: Value = b.pad(x, start=start, step=(1,) * x.type.rank, shape=(*batch, rows, columns))
    return found


# what the kernels are made of


def length(b: Any, ref: Value, axis: int) -> Value:
    found: Value = b.emit(OPS["extent"], (), {"size": ref.type.shape[axis]})[0]
    return found


def item(b: Any, ref: Value, *index: Value) -> Scalar:
    """A number in memory: its value, or its real and its imaginary part where there is an axis of them."""
    if ref.type.rank == len(index):
        return (b.here("load", ref, *index),)
    return tuple(b.here("load", ref, *index, b.const(k, I64)) for k in (0, 1))


def put(b: Any, x: Scalar | Value, ref: Value, *index: Value) -> None:
    """Store a number; a real one among complex ones has no imaginary part."""
    parts = (x,) if isinstance(x, Value) else x
    if ref.type.rank == len(index):
        b.here("store", parts[0], ref, *index)
        return
    for k, value in enumerate((*parts, b.const(0, ref.type.dtype))[:2]):
        b.here("store", value, ref, *index, b.const(k, I64))


def both(b: Any, name: str, x: Scalar, y: Scalar) -> Scalar:
    """An op on the parts of two numbers."""
    return tuple(b.here(name, v, w) for v, w in zip(x, y, strict=True))


def scaled(b: Any, x: Scalar, factor: Value) -> Scalar:
    """A number times a real one."""
    return tuple(b.here("mul", v, factor) for v in x)


def modulus(b: Any, x: Scalar) -> Value:
    found: Value = b.here("abs", *x) if len(x) == 1 else b.here("hypot", *x)
    return found


def choose(b: Any, condition: Value, x: Scalar, y: float = 0) -> Scalar:
    """A number, or a real constant where the condition does not hold."""
    others = (y, 0)
    return tuple(b.here("select", condition, v, b.const(other, v.type.dtype)) for v, other in zip(x, others, strict=False))


def each(b: Any, ref: Value, element: Callable[[Value, Value], Scalar | Value]) -> None:
    """Store ``element(i, j)`` at each place of a matrix."""
    i = b.open("i")
    j = b.open("j")
    put(b, element(i, j), ref, i, j)
    b.close(j, length(b, ref, 1))
    b.close(i, length(b, ref, 0))


def copy(b: Any, source: Value, target: Value) -> None:
    each(b, target, lambda i, j: item(b, source, i, j))


def turn(b: Any, source: Value, target: Value) -> None:
    """Store the transpose."""
    each(b, target, lambda i, j: item(b, source, j, i))


# what the references are made of


def by_columns(a: Any) -> Any:
    """The transposed matrices, dense."""
    return np.array(np.swapaxes(a, -1, -2), order="C")
