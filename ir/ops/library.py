"""Library calls of kernels: routines of BLAS and LAPACK on dense references, which they update in place.

The routines read memory by columns, so a row-major matrix is to them its transpose. Each record says with which arguments the
routine does what its reference does with row-major arrays. ``arguments(params)`` lists them in order: ("letter", "N"),
("number", 1.0) of the references' dtype; as 32-bit integers ("extent", position, axis), ("lead", position), the last extent but
at least 1, and ("product", position), that of all extents; and ("ref", position). ``position`` counts operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import Op, Same, resolve
from pullback.ir.ops.kernel import KERNEL
from pullback.ir.structure import Block
from pullback.ir.types import DTYPES, F32, F64, Extent, RefType, Type

Argument = tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Library(Op):
    """``routine``: its dotted name with {} for the letter of the dtype. ``reads``, ``writes``: the operands whose elements it
    reads and changes. ``products(shapes, params)``: how many multiplications it does, and about as many additions.

    ``fit(shapes, params, same)`` is the rule of shapes of the operands; those in ``integers`` are of i32, the others of one
    float dtype, f32 or f64.
    """

    routine: str
    arguments: Callable[[Mapping[str, Any]], Sequence[Argument]]
    fit: Callable[[Sequence[tuple[Extent, ...]], Mapping[str, Any], Same], None]
    ranks: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    products: Callable[[Sequence[tuple[int, ...]], Mapping[str, Any]], int]
    integers: tuple[int, ...] = ()
    effect: str = "effect"
    vocabularies: frozenset[str] = KERNEL

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        refs = [t for t in types if isinstance(t, RefType) and t.layout == "c"]
        if len(refs) != len(types) or tuple(t.rank for t in refs) != self.ranks:
            raise TypeError(f"takes dense references of ranks {', '.join(map(str, self.ranks))}")
        for k, t in enumerate(refs):
            if t.dtype not in ((DTYPES["i32"],) if k in self.integers else (F32, F64)) or (
                k not in self.integers and t.dtype is not refs[0].dtype
            ):
                raise TypeError("takes references of one dtype, f32 or f64, and i32 for integers")
        self.fit([t.shape for t in refs], params, same)
        return ()

    def symbol(self, dtype: Any) -> str:
        """The routine's name for a dtype, such as "blas.dgemm"."""
        return self.routine.format("d" if dtype is F64 else "s")


def _routine(name: str, x: Any) -> Any:
    """SciPy's wrapper of a routine, for the dtype of ``x``."""
    module, _, function = name.rpartition(".")
    return resolve(f"scipy.linalg.{module}.{'d' if x.dtype == np.float64 else 's'}{function}")


# c = a @ b; ``ta``, ``tb``: a or b is stored transposed. By columns c^T = op(b)^T op(a)^T.


def _gemm(a: Any, b: Any, c: Any, ta: bool, tb: bool) -> None:
    np.matmul(a.T if ta else a, b.T if tb else b, out=c)


def _gemm_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, b, c = shapes
    m, k = reversed(a) if params["ta"] else a
    k2, n = reversed(b) if params["tb"] else b
    for e, f in ((k, k2), (m, c[0]), (n, c[1])):
        same(e, f)


def _gemm_arguments(params: Mapping[str, Any]) -> list[Argument]:
    letters = [("letter", "T" if params[name] else "N") for name in ("tb", "ta")]
    extents = [("extent", 2, 1), ("extent", 2, 0), ("extent", 0, 0 if params["ta"] else 1)]
    factors = [("number", 1.0), ("ref", 1), ("lead", 1), ("ref", 0), ("lead", 0)]
    return [*letters, *extents, *factors, ("number", 0.0), ("ref", 2), ("lead", 2)]


gemm = Library(
    name="gemm", reference=_gemm, routine="blas.{}gemm", ranks=(2, 2, 2), reads=(0, 1), writes=(2,), fit=_gemm_fit,
    arguments=_gemm_arguments, products=lambda shapes, params: math.prod(shapes[2]) * shapes[0][0 if params["ta"] else 1],
)  # fmt: skip


# x = op(a)^-1 x, a triangular; ``transposed``: op(a) is the transpose. By columns x^T = x^T (op(a)^T)^-1.


def _trsm(a: Any, x: Any, lower: bool, transposed: bool, unit_diagonal: bool) -> None:
    if x.size:
        x[...] = _routine("blas.trsm", x)(1.0, a, x, lower=lower, trans_a=transposed, diag=unit_diagonal)


def _trsm_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, x = shapes
    same(a[0], a[1])
    same(a[0], x[0])


def _trsm_arguments(params: Mapping[str, Any]) -> list[Argument]:
    triangle = "U" if params["lower"] else "L"
    letters = ["R", triangle, "T" if params["transposed"] else "N", "U" if params["unit_diagonal"] else "N"]
    extents = [("extent", 1, 1), ("extent", 1, 0)]
    return [*(("letter", k) for k in letters), *extents, ("number", 1.0), ("ref", 0), ("lead", 0), ("ref", 1), ("lead", 1)]


trsm = Library(
    name="trsm", reference=_trsm, routine="blas.{}trsm", ranks=(2, 2), reads=(0, 1), writes=(1,), fit=_trsm_fit,
    arguments=_trsm_arguments, products=lambda shapes, params: math.prod(shapes[1]) * shapes[0][0] // 2,
)  # fmt: skip


def _trsv_arguments(params: Mapping[str, Any]) -> list[Argument]:
    triangle = "U" if params["lower"] else "L"
    letters = [triangle, "N" if params["transposed"] else "T", "U" if params["unit_diagonal"] else "N"]
    return [*(("letter", k) for k in letters), ("extent", 1, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("extent", 1, 1)]


trsv = Library(
    name="trsv", reference=_trsm, routine="blas.{}trsv", ranks=(2, 2), reads=(0, 1), writes=(1,), fit=_trsm_fit,
    arguments=_trsv_arguments, products=lambda shapes, params: shapes[0][0] ** 2 // 2,
)  # fmt: skip
"""``trsm`` of one column."""


# The lower Cholesky factor in place of the lower triangle of a; ``info`` becomes 0, or the order of the first leading minor that
# is not positive. By columns it is the upper triangle.


def _potrf(a: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        a[...], info[...] = _routine("lapack.potrf", a)(a, lower=True, clean=False)


def _square(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    same(*shapes[0])


potrf = Library(
    name="potrf", reference=_potrf, routine="lapack.{}potrf", ranks=(2, 0), reads=(0,), writes=(0, 1), integers=(1,), fit=_square,
    products=lambda shapes, params: shapes[0][0] ** 3 // 6,
    arguments=lambda params: [("letter", "U"), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1)],
)  # fmt: skip


# The LU factors of the transpose of a, transposed, in place of a, with pivoting of the transpose's rows: row i was exchanged
# with row pivots[i], counted from 1.


def _getrf(a: Any, pivots: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        factors, found, info[...] = _routine("lapack.getrf", a)(a.T)
        a[...], pivots[...] = factors.T, found + 1


def _getrf_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, pivots, _ = shapes
    same(a[0], a[1])
    same(a[0], pivots[0])


getrf = Library(
    name="getrf", reference=_getrf, routine="lapack.{}getrf", ranks=(2, 1, 0), reads=(0,), writes=(0, 1, 2), integers=(1, 2),
    fit=_getrf_fit, products=lambda shapes, params: shapes[0][0] ** 3 // 3,
    arguments=lambda params: [("extent", 0, 0), ("extent", 0, 1), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2)],
)  # fmt: skip


# x = x a^-1, which overwrites a with factors. By columns x^T = (a^T)^-1 x^T.


def _gesv(a: Any, pivots: Any, x: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        factors, found, solution, info[...] = _routine("lapack.gesv", a)(a.T, x.T)
        a[...], pivots[...], x[...] = factors.T, found + 1, solution.T


def _gesv_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    for shape in (shapes[0], shapes[2]):
        for e in shape:
            same(e, shapes[1][0])


gesv = Library(
    name="gesv", reference=_gesv, routine="lapack.{}gesv", ranks=(2, 1, 2, 0), reads=(0, 2), writes=(0, 1, 2, 3),
    integers=(1, 3), fit=_gesv_fit, products=lambda shapes, params: 4 * shapes[0][0] ** 3 // 3,
    arguments=lambda params: [
        ("extent", 0, 0), ("extent", 2, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("lead", 2), ("ref", 3),
    ],
)  # fmt: skip


# Decompositions leave their results by columns: ``a`` is the transpose of the matrix, and so are the factors that they give.


def _syevd(a: Any, values: Any, work: Any, integers: Any, info: Any, lower: bool) -> None:
    info[...] = 0
    if a.size:
        values[...], vectors, info[...] = _routine("lapack.syevd", a)(a.T, lower=lower)
        a[...] = vectors.T


def _syevd_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    same(*shapes[0])
    same(shapes[0][0], shapes[1][0])


syevd = Library(
    name="syevd", reference=_syevd, routine="lapack.{}syevd", ranks=(2, 1, 1, 1, 0), reads=(0,), writes=(0, 1, 2, 3, 4),
    integers=(3, 4), fit=_syevd_fit, products=lambda shapes, params: 4 * shapes[0][0] ** 3,
    arguments=lambda params: [
        ("letter", "V"), ("letter", "L" if params["lower"] else "U"), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1),
        ("ref", 2), ("extent", 2, 0), ("ref", 3), ("extent", 3, 0), ("ref", 4),
    ],
)  # fmt: skip
"""Eigenvalues, ascending, and eigenvectors, a row each in place of a, of the symmetric matrix of which a^T has a triangle."""


def _gesdd(a: Any, values: Any, left: Any, right: Any, work: Any, integers: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        u, values[...], vt, info[...] = _routine("lapack.gesdd", a)(a.T, full_matrices=False)
        left[...], right[...] = u.T, vt.T


def _gesdd_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, values, left, right, *_ = shapes
    for e, f in ((a[1], left[1]), (a[0], right[0]), (values[0], left[0]), (values[0], right[1])):
        same(e, f)


gesdd = Library(
    name="gesdd", reference=_gesdd, routine="lapack.{}gesdd", ranks=(2, 1, 2, 2, 1, 2, 0), reads=(0,),
    writes=(0, 1, 2, 3, 4, 5, 6), integers=(5, 6), fit=_gesdd_fit,
    products=lambda shapes, params: 7 * math.prod(shapes[0]) * min(shapes[0]),
    arguments=lambda params: [
        ("letter", "S"), ("extent", 0, 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("lead", 2),
        ("ref", 3), ("lead", 3), ("ref", 4), ("extent", 4, 0), ("ref", 5), ("ref", 6),
    ],
)  # fmt: skip
"""The thin singular value decomposition of a^T; ``integers`` has 8 places for each value."""


def _geqrf(a: Any, scales: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        packed, scales[...], _, info[...] = _routine("lapack.geqrf", a)(a.T)
        a[...] = packed.T


def _geqrf_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    same(shapes[0][0], shapes[1][0])


def _orgqr(a: Any, scales: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        q, _, info[...] = _routine("lapack.orgqr", a)(a.T, scales)
        a[...] = q.T


geqrf = Library(
    name="geqrf", reference=_geqrf, routine="lapack.{}geqrf", ranks=(2, 1, 2, 0), reads=(0,), writes=(0, 1, 2, 3),
    integers=(3,), fit=_geqrf_fit, products=lambda shapes, params: shapes[0][0] ** 2 * shapes[0][1],
    arguments=lambda params: [
        ("extent", 0, 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("product", 2), ("ref", 3),
    ],
)  # fmt: skip
"""R and the reflections that make it, of a^T, which has no fewer rows than columns."""

orgqr = Library(
    name="orgqr", reference=_orgqr, routine="lapack.{}orgqr", ranks=(2, 1, 2, 0), reads=(0, 1), writes=(0, 2, 3),
    integers=(3,), fit=_geqrf_fit, products=lambda shapes, params: shapes[0][0] ** 2 * shapes[0][1],
    arguments=lambda params: [
        ("extent", 0, 1), ("extent", 0, 0), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2),
        ("product", 2), ("ref", 3),
    ],
)  # fmt: skip
"""Q, from what ``geqrf`` left."""
