"""numpy.linalg on traced arrays, composed of the IR's factorisations.

As in NumPy, matrices are the last two axes, float32 is computed in float64 and rounded, integers give float64, and a matrix
that cannot be factored raises LinAlgError when the compiled function runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from pullback.ir.shapes.by_value import holds_value_size, is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import as_array, as_number, reshaped, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_shapes,
    broadcast_to,
    cast,
    emit,
    expand,
    full,
    with_extents,
)
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray

SlogdetResult = type(np.linalg.slogdet(np.ones((1, 1))))
Solve = Callable[..., TracedArray]


# shared by the functions of NumPy and SciPy; the matrices are float32 or float64


def transposed(x: TracedArray) -> TracedArray:
    result: TracedArray = emit("transpose", x, perm=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return result


def conjugate(x: TracedArray) -> TracedArray:
    result: TracedArray = xp.conjugate(x) if x.dtype.kind == "c" else x
    return result


def adjoint(x: TracedArray) -> TracedArray:
    """Return the conjugate transpose."""
    return conjugate(transposed(x))


def diagonal(x: TracedArray) -> TracedArray:
    result: TracedArray = xp.diagonal(x, axis1=-2, axis2=-1)
    return result


def identity_like(x: TracedArray) -> TracedArray:
    return broadcast_to(as_traced(lifted(np.eye, x.shape[-1], dtype=x.dtype)), x.shape)


def lower_factor(a: TracedArray, message: str) -> TracedArray:
    """Return the Cholesky factor, computed from the lower triangle. Emits the check that the factorisation succeeded."""
    factor, info = emit("cholesky", a)
    emit("check", info == 0, error="LinAlgError", message=message)
    assert isinstance(factor, TracedArray)
    return factor


def triangular(a: TracedArray, b: TracedArray, lower: bool, trans: bool = False, unit: bool = False) -> TracedArray:
    """Return the solution x of op(a) x = b, where only one triangle of ``a`` is read."""

    def solve_one(a: TracedArray, b: TracedArray) -> TracedArray:
        solution: TracedArray = emit("triangular_solve", a, b, lower=lower, transposed=trans, unit_diagonal=unit)
        return solution

    return _by_columns(solve_one, b, a)


def general(a: TracedArray, b: TracedArray, message: str, trans: bool = False) -> TracedArray:
    """Return the solution x of op(a) x = b, by LU factors."""
    packed, pivots = emit("lu", a, form="square")
    emit("check", diagonal(packed) != 0, error="LinAlgError", message=message)

    def solve_one(a: TracedArray, b: TracedArray, packed: TracedArray, pivots: TracedArray) -> TracedArray:
        solution: TracedArray = emit("solve", a, packed, b, pivots, transposed=trans)
        return solution

    return _by_columns(solve_one, b, a, packed, pivots)


def _by_columns(solve_one: Solve, b: TracedArray, a: TracedArray, *others: TracedArray) -> TracedArray:
    """Call ``solve_one`` with equal batch axes; if ``a`` has no batch axes, those of ``b`` become columns."""
    n, k = b.shape[-2:]
    outer = b.shape[:-2]
    if a.ndim == 2:
        if not outer:
            return solve_one(a, b, *others)
        columns = reshaped(xp.moveaxis(b, -2, 0), (n, math.prod(outer) * k))
        return xp.moveaxis(reshaped(solve_one(a, columns, *others), (n, *outer, k)), 0, -2)
    batch, rank = broadcast_shapes(a.shape[:-2], outer), a.ndim - 2
    broadcast = [broadcast_to(x, (*batch, *x.shape[rank:])) for x in (a, *others)]
    return solve_one(broadcast[0], broadcast_to(b, (*batch, n, k)), *broadcast[1:])


def unchecked_inverse(a: TracedArray) -> TracedArray:
    """Return the inverse; a singular matrix gives infinities and NaN."""
    packed, pivots = emit("lu", a, form="square")
    inverse: TracedArray = emit("solve", a, packed, identity_like(a), pivots, transposed=False)
    return inverse


def determinant(a: TracedArray) -> TracedArray:
    """Return the determinant; for n <= 3 by its definition, whose derivatives of all orders are also right for singular
    matrices."""
    n = a.shape[-1]
    if not is_value_size(n) and n <= 3:
        return _minor(a, tuple(range(n)))
    packed, pivots = emit("lu", a, form="square")
    result: TracedArray = emit("det", a, packed, pivots)
    return result


def _minor(a: TracedArray, columns: tuple[int, ...]) -> Any:
    """Return the determinant of the last ``len(columns)`` rows and these columns."""
    if not columns:
        return full(a.shape[:-2], 1, a.dtype)
    row = a.shape[-1] - len(columns)
    if len(columns) == 1:
        return a[..., row, columns[0]]
    terms = [a[..., row, c] * _minor(a, columns[:k] + columns[k + 1 :]) for k, c in enumerate(columns)]
    return terms[0] - terms[1] if len(terms) == 2 else terms[0] - terms[1] + terms[2]


def signed_logarithm(a: TracedArray) -> tuple[TracedArray, TracedArray]:
    """Return the sign of the determinant and the logarithm of its absolute value."""
    packed, pivots = emit("lu", a, form="square")
    sign, size = emit("slogdet", a, packed, pivots)
    return sign, size


# numpy.linalg


def square(x: Any) -> TracedArray:
    """Return ``x`` as a stack of square matrices. Raises NumPy's errors."""
    a = as_traced(x)
    if a.ndim < 2:
        raise LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    if a.shape[-2] != a.shape[-1]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return a


def result_dtype(*arrays: TracedArray) -> np.dtype[Any]:
    """Return the result's dtype: single precision if all arrays are, else double; complex if one is. Raises TypeError for
    other floats."""
    for x in arrays:
        if x.dtype.kind in "fV" and x.dtype not in (np.float32, np.float64):
            raise TypeError(f"array type {x.dtype.name} is unsupported in linalg")
    is_single = all(x.dtype in (np.float32, np.complex64) for x in arrays)
    if any(x.dtype.kind == "c" for x in arrays):
        return np.dtype(np.complex64 if is_single else np.complex128)
    return np.dtype(np.float32 if is_single else np.float64)


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the real and imaginary parts of a complex dtype."""
    return dtype.type(0).real.dtype


def in_double(x: TracedArray, dtype: np.dtype[Any]) -> TracedArray:
    """Convert to the precision in which NumPy computes results of ``dtype``."""
    return cast(x, np.complex128 if dtype.kind == "c" else np.float64)


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> TracedArray:
    x = square(a)
    dtype = result_dtype(x)
    x = in_double(x, dtype)
    factor = lower_factor(adjoint(x) if upper else x, "Matrix is not positive definite")
    return cast(adjoint(factor) if upper else factor, dtype)


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> TracedArray:
    x, y = square(a), as_traced(b)
    dtype = result_dtype(x, y)
    name, is_vector = ("solve1", True) if y.ndim == 1 else ("solve", False)
    signature = "(m,m),(m)->(m)" if is_vector else "(m,m),(m,n)->(m,n)"
    if y.ndim == 0:
        raise ValueError(
            f"{name}: Input operand 1 does not have enough dimensions (has 0, gufunc core with signature {signature} requires 2)"
        )
    n, m = x.shape[-1], y.shape[-1 if is_vector else -2]
    if holds_value_size((n, m)):
        y = with_extents(y, (*y.shape[:-1], n) if is_vector else (*y.shape[:-2], n, y.shape[-1]))
    elif n != m:
        raise ValueError(
            f"{name}: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature {signature} "
            f"(size {m} is different from {n})"
        )
    y = in_double(y, dtype)
    solution = general(in_double(x, dtype), expand(y, (1,)) if is_vector else y, "Singular matrix")
    return cast(solution[..., 0] if is_vector else solution, dtype)


@implements(np.linalg.inv)
def inv(a: Any) -> TracedArray:
    x = square(a)
    dtype = result_dtype(x)
    x = in_double(x, dtype)
    return cast(general(x, identity_like(x), "Singular matrix"), dtype)


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> Any:
    x = square(a)
    dtype = result_dtype(x)
    sign, size = signed_logarithm(in_double(x, dtype))
    return SlogdetResult(cast(sign, dtype), cast(size, real_dtype(dtype)))


@implements(np.linalg.det)
def det(a: Any) -> TracedArray:
    x = square(a)
    dtype = result_dtype(x)
    return as_number(cast(determinant(in_double(x, dtype)), dtype))


@implements(np.linalg.matrix_power)
def matrix_power(a: Any, n: Any) -> TracedArray:
    """Return a matrix power, by repeated squaring."""
    x = square(a)
    try:
        power = operator.index(n)
    except TypeError as error:
        raise TypeError("exponent must be an integer") from error
    if power == 0:
        return identity_like(x)
    if power < 0:
        x, power = inv(x), -power
    if power <= 3:
        for factor in [x] * (power - 1):
            x = x @ factor
        return x
    power_of_two: Any = None
    result: Any = None
    while power:
        power_of_two = x if power_of_two is None else power_of_two @ power_of_two
        power, bit = divmod(power, 2)
        if bit:
            result = power_of_two if result is None else result @ power_of_two
    return result


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> TracedArray:
    """Return the product of a chain of matrices, multiplied in the order of least work."""
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    matrices = [as_traced(x) for x in arrays]
    for x in matrices[1:-1] if len(matrices) > 2 else ():
        if x.ndim != 2:
            raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if len(matrices) == 2:
        return xp.dot(*matrices)
    is_row, is_column = matrices[0].ndim == 1, matrices[-1].ndim == 1
    matrices[0] = expand(matrices[0], (0,)) if is_row else matrices[0]
    matrices[-1] = expand(matrices[-1], (1,)) if is_column else matrices[-1]
    for x in (matrices[0], matrices[-1]):
        if x.ndim != 2:
            raise LinAlgError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    result = _chain(matrices, _splits([x.shape[0] for x in matrices] + [matrices[-1].shape[1]]), 0, len(matrices) - 1)
    kept = tuple(n for n, gone in zip(result.shape, (is_row, is_column), strict=True) if not gone)
    return reshaped(result, kept)


def _splits(extents: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return where to split each chain i..j of matrices with these ``extents`` so that the products cost least."""
    count = len(extents) - 1
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(count)}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            choices = [cost[i, k] + cost[k + 1, j] + extents[i] * extents[k + 1] * extents[j + 1] for k in range(i, j)]
            cost[i, j] = min(choices)
            best[i, j] = i + choices.index(cost[i, j])
    return best


def _chain(arrays: Sequence[TracedArray], best: dict[tuple[int, int], int], i: int, j: int) -> TracedArray:
    if i == j:
        return arrays[i]
    k = best[i, j]
    return xp.dot(_chain(arrays, best, i, k), _chain(arrays, best, k + 1, j))


@implements(np.linalg.tensorinv)
def tensorinv(a: Any, ind: int = 2) -> TracedArray:
    x = as_traced(a)
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    rows, columns = x.shape[ind:], x.shape[:ind]
    count = math.prod(rows)
    other = x.size // count if count else 0
    return reshaped(inv(reshaped(x, (count, other))), (*rows, *columns))


@implements(np.linalg.tensorsolve)
def tensorsolve(a: Any, b: Any, axes: Any = None) -> TracedArray:
    x, y = as_traced(a), as_traced(b)
    if axes is not None:
        order = list(range(x.ndim))
        for k in axes:
            order.remove(k)
            order.insert(x.ndim, k)
        x = xp.transpose(x, order)
    shape = x.shape[-(x.ndim - y.ndim) :]
    count = math.prod(shape)
    if x.size != count**2:
        raise LinAlgError("Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])")
    return as_array(reshaped(solve(reshaped(x, (count, count)), reshaped(y, (y.size,))), shape))


@implements(np.linalg.trace)
def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> TracedArray:
    return xp.trace(as_traced(x), offset, -2, -1, dtype)


@implements(np.linalg.diagonal)
def diagonals(x: Any, /, *, offset: int = 0) -> TracedArray:
    return xp.diagonal(as_traced(x), offset, -2, -1)


@implements(np.linalg.outer)
def outer(x1: Any, x2: Any, /) -> TracedArray:
    x, y = as_traced(x1), as_traced(x2)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={x.ndim} and x2.ndim={y.ndim}.")
    return xp.outer(x, y)


@implements(np.linalg.cross)
def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> TracedArray:
    x, y = as_traced(x1), as_traced(x2)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, "
            f"but they are {x.shape[axis]} and {y.shape[axis]} dimensional instead."
        )
    return xp.cross(x, y, axis=axis)


@implements(np.linalg.tensordot)
def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> TracedArray:
    return xp.tensordot(as_traced(x1), as_traced(x2), axes)


@implements(np.linalg.matmul)
def matmul(x1: Any, x2: Any, /) -> TracedArray:
    return xp.matmul(as_traced(x1), as_traced(x2))


@implements(np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> TracedArray:
    return xp.vecdot(as_traced(x1), as_traced(x2), axis=axis)


@implements(np.linalg.matrix_transpose)
def matrix_transpose(x: Any, /) -> TracedArray:
    return xp.matrix_transpose(as_traced(x))
