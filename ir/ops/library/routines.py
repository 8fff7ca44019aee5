"""Library calls of kernels: routines of BLAS and LAPACK on dense references, which they update in place.

The routines are column-major, so they see a row-major matrix as its transpose. Each record lists the arguments for which the
routine does what its reference does with row-major arrays. ``arguments(params)`` lists them in order: ("letter", "N"), or
("letter", "N", position) of a reference that may be stored transposed, ("number", 1.0) of the references' dtype; as 32-bit
integers ("extent", position, axis), ("lead", position), the last extent but at least 1, ("product", position), the product of
all extents, and ("integer", 1); and ("ref", position). ``position`` counts operands.

A complex routine takes references with a last axis of two, of the real and the imaginary parts, which is not counted in ranks
and extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same, resolve
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES, F32, F64, Extent, RefType, Type
from pullback.ir.ops.kernel.kernel import KERNEL

Argument = tuple[Any, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Library(Op):
    """A library routine. ``routine``: its dotted name with {} for the letter of the dtype; ``of_complex``: its name for
    complex operands, if different. ``reads``, ``writes``: the operands whose elements it reads and changes.
    ``products(shapes, params)``: the number of multiplications that it does, with about as many additions.

    ``fit(shapes, params, same)`` is the type rule for the operands' shapes; operands in ``integers`` are of i32, the others of
    one float dtype, f32 or f64. Operands of a complex routine that are in ``real`` are not complex. ``kinds``: "f", "c" or
    both. Operands in ``work`` are LAPACK's work arrays; their contents are undefined afterwards. Operands in ``strided`` may
    be strided references that are contiguous along one axis, with a stride along the other that is at least the contiguous
    extent.
    """

    routine: str
    arguments: Callable[[Mapping[str, Any]], Sequence[Argument]]
    fit: Callable[[Sequence[tuple[Extent, ...]], Mapping[str, Any], Same], None]
    ranks: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    products: Callable[[Sequence[tuple[int, ...]], Mapping[str, Any]], int]
    integers: tuple[int, ...] = ()
    real: tuple[int, ...] = ()
    work: tuple[int, ...] = ()
    strided: tuple[int, ...] = ()
    of_complex: str = ""
    kinds: str = "fc"
    effect: str = "effect"
    vocabularies: frozenset[str] = KERNEL

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        refs = [t for k, t in enumerate(types) if isinstance(t, RefType) and (t.layout == "c" or k in self.strided)]
        if len(refs) != len(self.ranks) or len(refs) != len(types):
            raise TypeError(f"takes {len(self.ranks)} dense references")
        pairs = self.pairs(refs)
        if ("c" if pairs else "f") not in self.kinds or tuple(t.rank - (k in pairs) for k, t in enumerate(refs)) != self.ranks:
            raise TypeError(f"takes dense references of ranks {', '.join(map(str, self.ranks))}")
        for k, t in enumerate(refs):
            if t.dtype not in ((DTYPES["i32"],) if k in self.integers else (F32, F64)) or (
                k not in self.integers and t.dtype is not refs[0].dtype
            ):
                raise TypeError("takes references of one dtype, f32 or f64, and i32 for integers")
            if k in pairs:
                same(t.shape[-1], 2)
        self.fit([t.shape[:rank] for t, rank in zip(refs, self.ranks, strict=True)], params, same)
        return ()

    def pairs(self, refs: Sequence[Any]) -> frozenset[int]:
        """Return the positions of references to complex values; ``refs`` have a ``rank``."""
        if refs[0].rank == self.ranks[0]:
            return frozenset()
        return frozenset(range(len(self.ranks))) - {*self.integers, *self.real}

    def symbol(self, dtype: Any, is_complex: bool) -> str:
        """Return the routine's name for a dtype, such as "blas.dgemm"."""
        letters = "zc" if is_complex else "ds"
        name = self.of_complex if is_complex and self.of_complex else self.routine
        return name.format(letters[dtype is not F64])

    def call(self, operands: Sequence[Any], params: Mapping[str, Any]) -> None:
        """Run the reference of the routine on arrays."""
        if operands[0].ndim > self.ranks[0]:
            others = {*self.integers, *self.real}
            operands = [x if k in others else _view_complex(x) for k, x in enumerate(operands)]
        self.function(*operands, **params)


def _view_complex(x: Any) -> Any:
    """View the memory of parts as complex values."""
    return x.view(np.result_type(x.dtype, np.complex64))[..., 0]


LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}


def routine(name: str, x: Any, of_complex: str = "") -> Any:
    """Return SciPy's wrapper of a routine, for the dtype of ``x``."""
    module, _, function = (of_complex if of_complex and x.dtype.kind == "c" else name).rpartition(".")
    return resolve(f"scipy.linalg.{module}.{LETTERS[x.dtype.char]}{function}")


# c = a @ b; ``transpose_a``, ``transpose_b``: a or b is stored transposed. Column-major: c^T = op(b)^T op(a)^T. ``conj``: the
# operands that are conjugated as well; they are stored transposed.


def _gemm(
    a: Any, b: Any, c: Any, transpose_a: bool, transpose_b: bool, tf32: bool = False, conj: Sequence[bool] = (False, False)
) -> None:
    a, b = (np.conj(x) if is_conj else x for x, is_conj in zip((a, b), conj, strict=True))
    np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out=c)


def _gemm_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, b, c = shapes
    m, k = reversed(a) if params["transpose_a"] else a
    k2, n = reversed(b) if params["transpose_b"] else b
    for e, f in ((k, k2), (m, c[0]), (n, c[1])):
        same(e, f)


def _gemm_arguments(params: Mapping[str, Any]) -> list[Argument]:
    conj = params.get("conj", (False, False))
    stored = ((1, params["transpose_b"]), (0, params["transpose_a"]))
    letters = [("letter", "C" if conj[k] else "T" if is_transposed else "N", k) for k, is_transposed in stored]
    extents = [("extent", 2, 1), ("extent", 2, 0), ("extent", 0, 0 if params["transpose_a"] else 1)]
    factors = [("number", 1.0), ("ref", 1), ("lead", 1), ("ref", 0), ("lead", 0)]
    return [*letters, *extents, *factors, ("number", 0.0), ("ref", 2), ("lead", 2)]


gemm = Library(
    name="gemm", reference=_gemm, routine="blas.{}gemm", ranks=(2, 2, 2), reads=(0, 1), writes=(2,), fit=_gemm_fit,
    strided=(0, 1), arguments=_gemm_arguments,
    products=lambda shapes, params: math.prod(shapes[2]) * shapes[0][0 if params["transpose_a"] else 1],
)  # fmt: skip


# x = op(a)^-1 x, a triangular; ``transposed``: op(a) is the transpose. Column-major: x^T = x^T (op(a)^T)^-1.


def _trsm(a: Any, x: Any, lower: bool, transposed: bool, unit_diagonal: bool) -> None:
    if x.size:
        x[...] = routine("blas.trsm", x)(1.0, a, x, lower=lower, trans_a=transposed, diag=unit_diagonal)


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
"""``trsm`` for a single column."""


# The lower Cholesky factor overwrites the lower triangle of a; ``info`` becomes 0, or the order of the first leading minor that
# is not positive. Column-major, it is the upper triangle.


def _potrf(a: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        a[...], info[...] = routine("lapack.potrf", a)(a, lower=True, clean=False)


def any_shapes(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    """Accept all shapes: the least extent is not known when types are checked."""


def square(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    same(*shapes[0])


potrf = Library(
    name="potrf", reference=_potrf, routine="lapack.{}potrf", ranks=(2, 0), reads=(0,), writes=(0, 1), integers=(1,), fit=square,
    products=lambda shapes, params: shapes[0][0] ** 3 // 6,
    arguments=lambda params: [("letter", "U"), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1)],
)  # fmt: skip


# The transposed LU factors of the transpose of a overwrite a, with pivoting of the transpose's rows: row i was exchanged
# with row pivots[i], counted from 1.


def _getrf(a: Any, pivots: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        factors, exchanges, info[...] = routine("lapack.getrf", a)(a.T)
        a[...], pivots[...] = factors.T, exchanges + 1


getrf = Library(
    name="getrf", reference=_getrf, routine="lapack.{}getrf", ranks=(2, 1, 0), reads=(0,), writes=(0, 1, 2), integers=(1, 2),
    fit=any_shapes, products=lambda shapes, params: shapes[0][0] * shapes[0][1] * min(shapes[0]) // 2,
    arguments=lambda params: [("extent", 0, 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2)],
)  # fmt: skip


# x = x a^-1; factors overwrite a. Column-major: x^T = (a^T)^-1 x^T.


def _gesv(a: Any, pivots: Any, x: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        factors, exchanges, solution, info[...] = routine("lapack.gesv", a)(a.T, x.T)
        a[...], pivots[...], x[...] = factors.T, exchanges + 1, solution.T


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
