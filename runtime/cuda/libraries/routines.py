"""Routines of BLAS and LAPACK as functions of cuBLAS and cuSOLVER: a record for each, as in
``pullback.ir.ops.library.routines``.

A record lists the functions, and their arguments, with which a device runs a ``Library`` record. Arguments are listed as
there, with these in addition: ("code", number), a constant of an enumeration; ("own", k), the k-th buffer that the record
requires; ("work",) and ("lwork",), the workspace of the size that the library returned, and that size in elements; ("zero",)
and ("one",), factors in host memory; ("stride", position) and ("batch",), for functions that process a whole batch; and
("made", function), an object that a function of the library creates once. The prototypes are those of cusolverDn.h and
cublas_v2.h of CUDA 12 and 13: docs.nvidia.com/cuda/cusolver, sections "Dense Linear Solver Reference (legacy)" and "Dense
Eigenvalue Solver Reference (legacy)"; docs.nvidia.com/cuda/cublas, "cublas<t>trsm()", "cublas<t>geam()",
"cublasGemmStridedBatchedEx()".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.ir.ops.library.routines import Argument

FILL = {"L": ("code", 0), "U": ("code", 1)}
OPERATION = {"N": ("code", 0), "T": ("code", 1), "C": ("code", 2)}
DIAGONAL = {"N": ("code", 0), "U": ("code", 1)}
RIGHT = ("code", 1)
VECTORS = ("code", 1)
WORK: list[Argument] = [("work",), ("lwork",)]
ALGORITHM = ("code", -1)
TYPE_CODES = {("f32", False): (0, 68), ("f64", False): (1, 70), ("f32", True): (4, 68), ("f64", True): (5, 70)}
"""The ``cudaDataType`` and ``cublasComputeType_t`` of scalars, by dtype and whether they are complex."""

Params = Mapping[str, Any]
Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A call of a library function; {} in its name stands for the type letter S, D, C or Z."""

    library: str
    function: str
    arguments: Callable[[Params], Sequence[Argument]]
    of_complex: str = ""

    def name(self, letter: str) -> str:
        return (self.of_complex if letter in "CZ" and self.of_complex else self.function).format(letter)


@dataclass(frozen=True, kw_only=True)
class Record:
    """``steps``: the calls, in order. ``query``: the call that returns the number of elements of ``work``, if one is needed;
    the result is written through its last argument before any ("made", ...). ``own(shapes)``: the elements of further
    buffers, of the scalars' size. ``is_batched``: the steps process a whole batch. ``captures``: they may be captured in a
    graph."""

    steps: tuple[Step, ...]
    query: Step | None = None
    own: Callable[[Shapes], tuple[int, ...]] = lambda shapes: ()
    is_batched: bool = False
    captures: bool = True

    @property
    def all_steps(self) -> tuple[Step, ...]:
        return self.steps if self.query is None else (self.query, *self.steps)


def _query(function: str, arguments: Callable[[Params], Sequence[Argument]], of_complex: str = "") -> Step:
    complex_function = f"{of_complex}_bufferSize" if of_complex else ""
    return Step(library="cusolver", function=f"{function}_bufferSize", of_complex=complex_function, arguments=arguments)


def _solver(
    function: str, first: Callable[[Params], list[Argument]], rest: list[Argument], of_complex: str = "", **more: Any
) -> Record:
    """Return the record of a routine whose arguments, ``first`` and then ``rest``, begin with those of its query."""
    step = Step(library="cusolver", function=function, of_complex=of_complex, arguments=lambda params: [*first(params), *rest])
    return Record(steps=(step,), query=_query(function, first, of_complex), **more)


def _blas(function: str, arguments: Callable[[Params], Sequence[Argument]]) -> Step:
    return Step(library="cublas", function=function, arguments=arguments)


def _dense(function: str, arguments: Callable[[Params], Sequence[Argument]]) -> Step:
    return Step(library="cusolver", function=function, arguments=arguments)


def _matrix(*extents: Argument) -> Callable[[Params], list[Argument]]:
    return lambda params: [*extents, ("ref", 0), ("lead", 0)]


def _syevd_arguments(params: Params) -> list[Argument]:
    return [VECTORS, FILL["L" if params["lower"] else "U"], ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1)]


def _gesvdj_arguments(params: Params) -> list[Argument]:
    """Return the arguments of gesvdj. The right singular vectors, as columns, go to a buffer of the record."""
    arguments: list[Argument] = [
        VECTORS,
        ("code", int(not params["full"])),
        ("extent", 0, 1),
        ("extent", 0, 0),
        ("ref", 0),
        ("lead", 0),
    ]
    return [*arguments, ("ref", 1), ("ref", 2), ("lead", 2), ("own", 0), ("extent", 0, 0)]


def _transpose_vectors(params: Params) -> list[Argument]:
    """Return the arguments of geam that write the adjoint of the right singular vectors, if they are requested."""
    arguments = [OPERATION["C" if params["complex"] else "T"], OPERATION["N"], ("extent", 3, 1), ("extent", 0, 0), ("one",)]
    return [*arguments, ("own", 0), ("extent", 0, 0), ("zero",), ("ref", 3), ("lead", 3), ("ref", 3), ("lead", 3)]


def _trsm_arguments(params: Params) -> list[Argument]:
    triangle = _triangular(params, params["transposed"])
    return [RIGHT, *triangle, ("extent", 1, 1), ("extent", 1, 0), ("one",), ("ref", 0), ("lead", 0), ("ref", 1), ("lead", 1)]


def _trsv_arguments(params: Params) -> list[Argument]:
    triangle = _triangular(params, not params["transposed"])
    return [*triangle, ("extent", 1, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("integer", 1)]


def _triangular(params: Params, transposed: bool) -> list[Argument]:
    triangle = FILL["U" if params["lower"] else "L"]
    return [triangle, OPERATION["T" if transposed else "N"], DIAGONAL["U" if params["unit_diagonal"] else "N"]]


def _gemm_arguments(params: Params) -> list[Argument]:
    """Return the arguments of gemm. In column-major order it computes c^T = op(b)^T op(a)^T."""
    kind, arithmetic = params["numbers"]
    arguments: list[Argument] = [OPERATION["T" if params[name] else "N"] for name in ("transpose_b", "transpose_a")]
    arguments += [("extent", 2, 1), ("extent", 2, 0), ("extent", 0, 0 if params["transpose_a"] else 1), ("one",)]
    for position in (1, 0):
        arguments += [("ref", position), ("code", kind), ("lead", position), ("stride", position)]
    arguments += [("zero",), ("ref", 2), ("code", kind), ("lead", 2), ("stride", 2), ("batch",)]
    return [*arguments, ("code", arithmetic), ALGORITHM]


_SWEEPS = ("made", "cusolverDnCreateGesvdjInfo")
_GETRF = _matrix(("extent", 0, 1), ("extent", 0, 0))
_ORGQR: list[Argument] = [("extent", 0, 1), ("extent", 0, 0), ("extent", 1, 0), ("ref", 0), ("lead", 0), ("ref", 1)]
_SOLVED: list[Argument] = [
    OPERATION["N"], ("extent", 0, 0), ("extent", 2, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("lead", 2), ("own", 0),
]  # fmt: skip

RECORDS: Mapping[str, Record] = {
    "gemm": Record(steps=(_blas("cublasGemmStridedBatchedEx", _gemm_arguments),), is_batched=True),
    "trsm": Record(steps=(_blas("cublas{}trsm_v2", _trsm_arguments),)),
    "trsv": Record(steps=(_blas("cublas{}trsv_v2", _trsv_arguments),)),
    "potrf": _solver("cusolverDn{}potrf", _matrix(FILL["U"], ("extent", 0, 0)), [*WORK, ("ref", 1)]),
    "getrf": _solver("cusolverDn{}getrf", _GETRF, [("work",), ("ref", 1), ("ref", 2)]),
    "gesv": Record(
        steps=(
            _dense("cusolverDn{}getrf", lambda params: [*_GETRF(params), ("work",), ("ref", 1), ("ref", 3)]),
            _dense("cusolverDn{}getrs", lambda params: _SOLVED),
        ),
        query=_query("cusolverDn{}getrf", _GETRF),
        own=lambda shapes: (1,),
    ),
    "geqrf": _solver("cusolverDn{}geqrf", _GETRF, [("ref", 1), *WORK, ("ref", 3)]),
    "orgqr": _solver("cusolverDn{}orgqr", lambda params: _ORGQR, [*WORK, ("ref", 3)], "cusolverDn{}ungqr"),
    "syevd": _solver("cusolverDn{}syevd", _syevd_arguments, [*WORK, ("ref", 5)], "cusolverDn{}heevd", captures=False),
    "gesdd": Record(
        steps=(
            _dense("cusolverDn{}gesvdj", lambda params: [*_gesvdj_arguments(params), *WORK, ("ref", 7), _SWEEPS]),
            _blas("cublas{}geam", _transpose_vectors),
        ),
        query=_query("cusolverDn{}gesvdj", lambda params: [*_gesvdj_arguments(params), _SWEEPS]),
        own=lambda shapes: (math.prod(shapes[3]),),
        captures=False,
    ),
}  # fmt: skip
"""The records, by the names of ``pullback.ir.ops.library.routines`` and ``lapack``. A positive ``info`` has LAPACK's meaning."""
