"""LAPACK decompositions, as records of ``library``.

Arrays are column-major: ``a`` is the transpose of the matrix, and the factors are transposed too. ``real`` work arrays are
needed only by the complex routines, or hold the imaginary parts that the real routines return.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Same
from pullback.ir.ops.library.routines import Argument, Library, any_shapes, routine

N = ("letter", "N")
V = ("letter", "V")


def _cubed(factor: int) -> Any:
    return lambda shapes, params: factor * shapes[0][0] ** 3


# eigenvalues


def _syevd(a: Any, values: Any, work: Any, real: Any, integers: Any, info: Any, lower: bool) -> None:
    info[...] = 0
    if a.size:
        values[...], vectors, info[...] = routine("lapack.syevd", a, "lapack.heevd")(a.T, lower=lower)
        a[...] = vectors.T


def _syevd_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    same(*shapes[0])
    same(shapes[0][0], shapes[1][0])


def _syevd_arguments(params: Mapping[str, Any]) -> list[Argument]:
    real = [("ref", 3), ("extent", 3, 0)] if params["complex"] else []
    return [
        V, ("letter", "L" if params["lower"] else "U"), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2),
        ("extent", 2, 0), *real, ("ref", 4), ("extent", 4, 0), ("ref", 5),
    ]  # fmt: skip


syevd = Library(
    name="syevd", reference=_syevd, routine="lapack.{}syevd", of_complex="lapack.{}heevd", ranks=(2, 1, 1, 1, 1, 0), reads=(0,),
    writes=(0, 1, 2, 3, 4, 5), integers=(4, 5), work=(3, 4), real=(1, 3), fit=_syevd_fit, products=_cubed(4),
    arguments=_syevd_arguments,
)  # fmt: skip
"""The eigenvalues, ascending, and the eigenvectors, as rows that overwrite a, of a Hermitian matrix; one triangle of a^T is
read."""


def _geev(a: Any, values: Any, second: Any, left: Any, right: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if not a.size:
        return
    results = routine("lapack.geev", a)(a.T, compute_vl=0)
    if a.dtype.kind == "c":
        values[...], _, vectors, info[...] = results
    else:
        values[...], second[0], _, vectors, info[...] = results
    right[...] = vectors.T


def _geev_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    n = shapes[0][0]
    for e in (shapes[0][1], shapes[1][0], *shapes[4]):
        same(n, e)


def _geev_arguments(params: Mapping[str, Any]) -> list[Argument]:
    values: list[Argument] = [("ref", 1)] if params["complex"] else [("ref", 1), ("ref", 2)]
    real: list[Argument] = [("ref", 2)] if params["complex"] else []
    return [
        N, V, ("extent", 0, 0), ("ref", 0), ("lead", 0), *values, ("ref", 3), ("lead", 0), ("ref", 4), ("lead", 4), ("ref", 5),
        ("product", 5), *real, ("ref", 6),
    ]  # fmt: skip


geev = Library(
    name="geev", reference=_geev, routine="lapack.{}geev", ranks=(2, 1, 2, 1, 2, 2, 0), reads=(0,), writes=(0, 1, 2, 3, 4, 5, 6),
    integers=(6,), work=(5,), real=(2,), fit=_geev_fit, products=_cubed(12), arguments=_geev_arguments,
)  # fmt: skip
"""The eigenvalues (for real matrices their imaginary parts are in the first row of ``second``) and the right eigenvectors, as
rows; a conjugate pair of eigenvectors as a real and an imaginary part."""


def _gees(a: Any, count: Any, values: Any, second: Any, vectors: Any, work: Any, flags: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        t, *_, z, _, info[...] = routine("lapack.gees", a)(lambda *_: None, a.T)
        a[...], vectors[...] = t.T, z.T


def _gees_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    n = shapes[0][0]
    for e in (shapes[0][1], shapes[2][0], shapes[3][0], *shapes[4]):
        same(n, e)


def _gees_arguments(params: Mapping[str, Any]) -> list[Argument]:
    values: list[Argument] = [("ref", 2)] if params["complex"] else [("ref", 2), ("ref", 3)]
    real: list[Argument] = [("ref", 3)] if params["complex"] else []
    return [
        V, N, ("ref", 6), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), *values, ("ref", 4), ("lead", 4), ("ref", 5),
        ("product", 5), *real, ("ref", 6), ("ref", 7),
    ]  # fmt: skip


gees = Library(
    name="gees", reference=_gees, routine="lapack.{}gees", ranks=(2, 0, 1, 1, 2, 2, 1, 0), reads=(0,),
    writes=(0, 1, 2, 3, 4, 5, 7), integers=(1, 6, 7), work=(5, 6), real=(3,), fit=_gees_fit, products=_cubed(12),
    arguments=_gees_arguments,
)  # fmt: skip
"""The Schur form, which overwrites a, and its vectors."""


def _gehrd(a: Any, scales: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if len(a) > 1:
        packed, scales[: len(a) - 1], info[...] = routine("lapack.gehrd", a)(a.T)
        a[...] = packed.T


def _orghr(a: Any, scales: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if len(a) == 1:
        a[...] = 1
    elif a.size:
        q, info[...] = routine("lapack.orghr", a, "lapack.unghr")(a.T, scales[: len(a) - 1])
        a[...] = q.T


def _hessenberg_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    same(*shapes[0])
    same(shapes[0][0], shapes[1][0])


def _hessenberg_arguments(params: Mapping[str, Any]) -> list[Argument]:
    return [
        ("extent", 0, 0), ("integer", 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("product", 2),
        ("ref", 3),
    ]  # fmt: skip


gehrd = Library(
    name="gehrd", reference=_gehrd, routine="lapack.{}gehrd", ranks=(2, 1, 2, 0), reads=(0,), writes=(0, 1, 2, 3), integers=(3,),
    work=(2,), fit=_hessenberg_fit, products=_cubed(2), arguments=_hessenberg_arguments,
)  # fmt: skip
"""The Hessenberg form and the reflections that produce it. The matrix must not be empty."""

orghr = Library(
    name="orghr", reference=_orghr, routine="lapack.{}orghr", of_complex="lapack.{}unghr", ranks=(2, 1, 2, 0), reads=(0, 1),
    writes=(0, 2, 3), integers=(3,), work=(2,), fit=_hessenberg_fit, products=_cubed(1), arguments=_hessenberg_arguments,
)  # fmt: skip
"""The orthogonal matrix, from the reflections of ``gehrd``."""


# singular values


def _gesdd(a: Any, values: Any, left: Any, right: Any, work: Any, real: Any, integers: Any, info: Any, full: bool) -> None:
    info[...] = 0
    if a.size:
        u, values[...], vt, info[...] = routine("lapack.gesdd", a)(a.T, full_matrices=full)
        left[...], right[...] = u.T, vt.T


def _gesdd_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, values, left, right, *_ = shapes
    same(a[1], left[1])
    same(a[0], right[0])
    if not params["full"]:
        same(values[0], left[0])
        same(values[0], right[1])


def _gesdd_arguments(params: Mapping[str, Any]) -> list[Argument]:
    real: list[Argument] = [("ref", 5)] if params["complex"] else []
    return [
        ("letter", "A" if params["full"] else "S"), ("extent", 0, 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1),
        ("ref", 2), ("lead", 2), ("ref", 3), ("lead", 3), ("ref", 4), ("extent", 4, 0), *real, ("ref", 6), ("ref", 7),
    ]  # fmt: skip


gesdd = Library(
    name="gesdd", reference=_gesdd, routine="lapack.{}gesdd", ranks=(2, 1, 2, 2, 1, 1, 2, 0), reads=(0,),
    writes=(0, 1, 2, 3, 4, 5, 6, 7), integers=(6, 7), work=(4, 5, 6), real=(1, 5), fit=_gesdd_fit, arguments=_gesdd_arguments,
    products=lambda shapes, params: 7 * math.prod(shapes[0]) * min(shapes[0]),
)  # fmt: skip
"""The singular value decomposition of a^T, thin or ``full``; ``integers`` has 8 entries for each singular value."""


# orthogonal factors


def _geqrf(a: Any, scales: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        packed, scales[...], _, info[...] = routine("lapack.geqrf", a)(a.T)
        a[...] = packed.T


def _orgqr(a: Any, scales: Any, work: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        q, _, info[...] = routine("lapack.orgqr", a, "lapack.ungqr")(a.T, scales)
        a[...] = q.T


geqrf = Library(
    name="geqrf", reference=_geqrf, routine="lapack.{}geqrf", ranks=(2, 1, 2, 0), reads=(0,), writes=(0, 1, 2, 3),
    integers=(3,), work=(2,), fit=any_shapes, products=lambda shapes, params: shapes[0][0] ** 2 * shapes[0][1],
    arguments=lambda params: [
        ("extent", 0, 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("product", 2), ("ref", 3),
    ],
)  # fmt: skip
"""R and the reflections that produce it, for a^T."""

orgqr = Library(
    name="orgqr", reference=_orgqr, routine="lapack.{}orgqr", of_complex="lapack.{}ungqr", ranks=(2, 1, 2, 0), reads=(0, 1),
    writes=(0, 2, 3), integers=(3,), work=(2,), fit=any_shapes, products=lambda shapes, params: shapes[0][0] ** 2 * shapes[0][1],
    arguments=lambda params: [
        ("extent", 0, 1), ("extent", 0, 0), ("extent", 1, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("product", 2),
        ("ref", 3),
    ],
)  # fmt: skip
"""Q, thin or full, from the reflections of ``geqrf``."""


def _geqp3(a: Any, pivots: Any, scales: Any, work: Any, real: Any, info: Any) -> None:
    info[...] = 0
    if a.size:
        packed, pivots[...], _, _, info[...] = routine("lapack.geqp3", a)(a.T)
        a[...] = packed.T


def _geqp3_arguments(params: Mapping[str, Any]) -> list[Argument]:
    real: list[Argument] = [("ref", 4)] if params["complex"] else []
    return [
        ("extent", 0, 1), ("extent", 0, 0), ("ref", 0), ("lead", 0), ("ref", 1), ("ref", 2), ("ref", 3), ("product", 3), *real,
        ("ref", 5),
    ]  # fmt: skip


geqp3 = Library(
    name="geqp3", reference=_geqp3, routine="lapack.{}geqp3", ranks=(2, 1, 1, 2, 2, 0), reads=(0, 1), writes=(0, 1, 2, 3, 4, 5),
    integers=(1, 5), work=(3, 4), real=(4,), fit=lambda shapes, params, same: same(shapes[0][0], shapes[1][0]),
    arguments=_geqp3_arguments,
    products=lambda shapes, params: shapes[0][0] ** 2 * shapes[0][1],
)  # fmt: skip
"""As ``geqrf`` with column pivoting, so that the diagonal of R decreases: column i was column pivots[i], counted from 1."""


# equations


def _trsyl(a: Any, b: Any, c: Any, scale: Any, info: Any, adjoint: bool) -> None:
    info[...] = 0
    if c.size:
        letter = "N" if not adjoint else "C" if a.dtype.kind == "c" else "T"
        x, scale[...], info[...] = routine("lapack.trsyl", a)(a.T, b.T, c.T, trana=letter, tranb=letter)
        c[...] = x.T


def _trsyl_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    a, b, c, *_ = shapes
    for e, f in ((a[0], a[1]), (b[0], b[1]), (c[1], a[0]), (c[0], b[0])):
        same(e, f)


def _trsyl_arguments(params: Mapping[str, Any]) -> list[Argument]:
    letter = ("letter", "N" if not params["adjoint"] else "C" if params["complex"] else "T")
    refs = [("ref", 0), ("lead", 0), ("ref", 1), ("lead", 1), ("ref", 2), ("lead", 2), ("ref", 3), ("ref", 4)]
    return [letter, letter, ("integer", 1), ("extent", 0, 0), ("extent", 1, 0), *refs]


trsyl = Library(
    name="trsyl", reference=_trsyl, routine="lapack.{}trsyl", ranks=(2, 2, 2, 0, 0), reads=(0, 1, 2), writes=(2, 3, 4),
    integers=(4,), real=(3,), fit=_trsyl_fit, arguments=_trsyl_arguments,
    products=lambda shapes, params: shapes[2][0] * shapes[2][1] * (shapes[2][0] + shapes[2][1]) // 2,
)  # fmt: skip
"""Overwrites c with x such that a x + x b = scale c, or with ``adjoint`` a^H x + x b^H = scale c, for Schur forms a and b."""


def _gbsv(bands: Any, pivots: Any, x: Any, info: Any, lower: int, upper: int) -> None:
    info[...] = 0
    if bands.size:
        factors, pivots[...], solution, info[...] = routine("lapack.gbsv", bands)(lower, upper, bands.T, x.T)
        bands[...], x[...] = factors.T, solution.T


def _gbsv_fit(shapes: Sequence[Any], params: Mapping[str, Any], same: Same) -> None:
    bands, pivots, x, _ = shapes
    same(bands[0], pivots[0])
    same(bands[0], x[1])


gbsv = Library(
    name="gbsv", reference=_gbsv, routine="lapack.{}gbsv", ranks=(2, 1, 2, 0), reads=(0, 2), writes=(0, 1, 2, 3), integers=(1, 3),
    fit=_gbsv_fit, products=lambda shapes, params: shapes[0][0] * shapes[0][1] * (shapes[2][0] + 1),
    arguments=lambda params: [
        ("extent", 0, 0), ("integer", params["lower"]), ("integer", params["upper"]), ("extent", 2, 0), ("ref", 0), ("lead", 0),
        ("ref", 1), ("ref", 2), ("lead", 2), ("ref", 3),
    ],
)  # fmt: skip
"""Solves for each row of x, which the solution overwrites; ``bands`` has for each column of the matrix ``lower`` unused
entries, then its diagonals from the ``upper``-th above to the ``lower``-th below. ``info`` is positive if the matrix is
singular."""


def _pbtrf(bands: Any, info: Any, lower: int) -> None:
    info[...] = 0
    if bands.size:
        factor, info[...] = routine("lapack.pbtrf", bands)(bands.T, lower=True)
        bands[...] = factor.T


pbtrf = Library(
    name="pbtrf", reference=_pbtrf, routine="lapack.{}pbtrf", ranks=(2, 0), reads=(0,), writes=(0, 1), integers=(1,),
    fit=any_shapes, products=lambda shapes, params: shapes[0][0] * shapes[0][1] ** 2,
    arguments=lambda params: [
        ("letter", "L"), ("extent", 0, 0), ("integer", params["lower"]), ("ref", 0), ("lead", 0), ("ref", 1),
    ],
)  # fmt: skip
"""The Cholesky factor of a Hermitian band matrix, stored for each column as the diagonal and the entries below; ``info``
becomes 0, or the order of the first leading minor that is not positive."""
