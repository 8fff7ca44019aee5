"""NumPy's type promotion, computed by NumPy itself, and the mapping from ufuncs to ops.

Python scalars are weak (NEP 50): they are represented by the types ``int``, ``float``, ``complex``. This module does not
depend on traced arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pullback.ir.core.op import OPS, Op, resolve
from pullback.ir.ops.elementwise.elementwise import Elementwise

Kind = np.dtype[Any] | type
Loop = tuple[tuple[np.dtype[Any], ...], tuple[np.dtype[Any], ...]]

# Filled by pullback.tracer.functions: ufuncs without an op of their own, or that need several. A plain ufunc's function
# takes traced arrays that have the loop's input dtypes and one shape, and its results are cast to the loop's output
# dtypes. The function of a generalised ufunc (matmul, vecdot, ...) takes the unchanged arguments, and keywords.
COMPOSITIONS: dict[np.ufunc, Callable[..., Any]] = {}


def composition(*ufuncs: np.ufunc) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that implements these ufuncs."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for ufunc in ufuncs:
            COMPOSITIONS[ufunc] = function
        return function

    return register


_LATE: dict[str, Callable[..., Any]] = {}


def late_composition(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that implements the ufunc with this dotted name, whose module may not be imported yet."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _LATE[name] = function
        return function

    return register


def composition_of(ufunc: np.ufunc) -> Callable[..., Any] | None:
    """Return the function that implements a ufunc, or None."""
    composition = COMPOSITIONS.get(ufunc)
    if composition is None:
        name = f"scipy.special.{ufunc.__name__}"
        composition = _LATE.get(name)
        if composition is not None and resolve(name) is not ufunc:
            return None
    return composition


@lru_cache(maxsize=4096)
def loop(
    ufunc: np.ufunc, kinds: tuple[Kind, ...], dtype: np.dtype[Any] | None = None, casting: str | None = None
) -> Loop:  # fmt: skip
    """Return the input and output dtypes of the loop that NumPy would run; ``dtype`` and ``casting`` are the ufunc's keywords.

    ``kinds`` has a dtype for each input, or ``int``, ``float``, ``complex`` for a Python scalar. Raises NumPy's TypeError if
    there is no loop. Python integers alone are int64.
    """
    if all(k is int for k in kinds):
        kinds = (np.dtype(np.int64),) * len(kinds)
    nothing = (None,) * ufunc.nout
    keywords: dict[str, Any] = {} if dtype is None else {"signature": (None,) * ufunc.nin + (dtype,) * ufunc.nout}
    if casting is not None:
        keywords["casting"] = casting
    dtypes = ufunc.resolve_dtypes((*kinds, *nothing), **keywords)
    if set(kinds) == {int} and dtypes[0].hasobject:  # NumPy compares two Python ints as objects
        dtypes = (*(np.dtype(np.int64),) * ufunc.nin, *dtypes[ufunc.nin :])
    return tuple(dtypes[: ufunc.nin]), tuple(dtypes[ufunc.nin :])


@lru_cache(maxsize=4096)
def common(kinds: tuple[Kind, ...]) -> np.dtype[Any]:
    """Return NumPy's ``result_type`` of dtypes and of the types of Python scalars."""
    sample: dict[type, Any] = {int: 0, float: 0.0, complex: 0j}
    return np.result_type(*(k if isinstance(k, np.dtype) else sample[k] for k in kinds))


@lru_cache(maxsize=8)
def _ops(count: int, newest: Op, with_scipy: bool) -> dict[int, tuple[Any, Op]]:
    by_reference: dict[int, tuple[Any, Op]] = {}
    for op in OPS.values():
        if not isinstance(op, Elementwise) or "func" not in op.vocabularies:
            continue
        for name in (op.reference, *op.also):
            if isinstance(name, str) and name.startswith("scipy.") and not with_scipy:
                continue
            reference = resolve(name)
            by_reference.setdefault(id(reference), (reference, op))
    return by_reference


def op_of(function: Any) -> Op | None:
    """Return the elementwise op of a NumPy or SciPy function (by identity) or of an op's own reference, or None."""
    entry = _ops(len(OPS), next(reversed(OPS.values())), "scipy.special" in sys.modules).get(id(function))
    return None if entry is None else entry[1]


def name_of(function: Any) -> str:
    """Return a NumPy or SciPy function's name as users write it."""
    module = getattr(function, "__module__", None) or "numpy"
    name = getattr(function, "__name__", repr(function))
    if isinstance(function, np.ufunc):
        special = sys.modules.get("scipy.special")
        module = "numpy" if getattr(np, name, None) is function or special is None else "scipy.special"
    return public_name(module, name)


def public_name(module: str, name: str) -> str:
    """Return the public dotted name of what NumPy or SciPy define as ``name`` in ``module``."""
    name = name.removesuffix(".__new__").removesuffix(".__init__")
    parts = [p for p in module.split(".") if not p.startswith("_")]
    first = name.partition(".")[0]
    meant = getattr(sys.modules.get(module), first, None)
    for k in range(1, len(parts)):
        if meant is not None and getattr(sys.modules.get(".".join(parts[:k])), first, None) is meant:
            parts = parts[:k]
            break
    return ".".join(["np" if parts[0] == "numpy" else parts[0], *parts[1:], name])


_MATRIX = "use plain arrays, with @ for products"
_ODE = "use pb.odeint or scipy.integrate.odeint, which have derivatives, or write the steps as a loop (pb.scan, pb.while_loop)"
_ROOT = "write the step of its iteration in pb.fixed_point, which has derivatives, or call it outside, on a compiled function"
_MINIMUM = "call it outside, on a compiled pb.value_and_grad of the function, or write the steps as a loop, or by pb.fixed_point"
_REASONS = {
    "np.save": "return the array, and save the result of the call",
    "np.asmatrix": _MATRIX,
    "np.matrix": _MATRIX,
    "np.bmat": "join the blocks by np.block",
    "np.testing.": "leave the check out, or make it after the call, on the result",
    "np.lib.stride_tricks.as_strided": "take the elements by an index array, as x[i[:, None] + j], or by sliding_window_view",
    "scipy.integrate.solve_ivp": _ODE,
    "scipy.integrate.solve_bvp": _ODE,
    "scipy.integrate.ode": _ODE,
    "scipy.linalg.ldl": "use np.linalg.cholesky, or np.linalg.eigh where the matrix is not positive definite",
    "scipy.linalg.subspace_angles": "of Qa and Qb by np.linalg.qr they are np.arccos(np.linalg.svd(Qa.T @ Qb)[1])",
    "scipy.linalg.solve_continuous_are": "iterate to its fixed point by pb.fixed_point, or solve it outside",
    "scipy.linalg.solve_discrete_are": "iterate to its fixed point by pb.fixed_point, or solve it outside",
    **{
        f"scipy.optimize.{name}": _ROOT
        for name in (
            "root",
            "fsolve",
            "brent",
            "newton",
            "bisect",
            "ridder",
            "toms748",
            "fixed_point",
            "broyden",
            "anderson",
        )
    },
    **{
        f"scipy.optimize.{name}": _MINIMUM
        for name in (
            "minimize",
            "least",
            "curve",
            "fmin",
            "basinhopping",
            "differential",
            "dual",
            "shgo",
            "direct",
            "brute",
        )
    },
    "scipy.integrate.": "sum a quadrature rule, with nodes and weights from np.polynomial.legendre.leggauss outside",
    "np.polynomial.": "evaluate a series by its function, as chebval(x, c); what drops zeros at its end depends on values",
    "scipy.interpolate.": "use np.interp, or evaluate each piece with NumPy and choose with np.select",
    "scipy.optimize.": "call it outside, on a compiled function and its gradient, or write a fixed number of steps",
    "scipy.sparse.": "use a dense array, or index arrays and np.add.at",
    "scipy.ndimage.shift": "write scipy.ndimage.map_coordinates with order=1, or np.interp along an axis",
    "scipy.ndimage.zoom": "write scipy.ndimage.map_coordinates with order=1, or np.interp along an axis",
    "scipy.special.lambertw": "iterate its equation w exp(w) = z by pb.fixed_point or a fixed number of Newton's steps",
    "scipy.special.airye": "scale scipy.special.airy by exp(2/3 x sqrt(x)), or its inverse",
    "scipy.spatial.transform.": "write its matrix by np.stack, of np.cos and np.sin of angles or of products of a quaternion",
    "scipy.spatial.": "compute the distances with NumPy, or find the neighbours outside",
}


def unsupported(function: Any) -> str:
    """Return the message that a function does not take traced values."""
    return not_supported(name_of(function))


def not_supported(name: str) -> str:
    reason = next((r for prefix, r in _REASONS.items() if name.startswith(prefix)), "")
    instead = reason or "write it with functions that are, or compute it outside the traced function"
    return f"{name} of traced arrays is not supported; {instead}"


def fits(value: int, dtype: np.dtype[Any]) -> bool:
    """Return whether a Python integer is in the range of an integer dtype."""
    info = np.iinfo(dtype)
    return bool(info.min <= value <= info.max)


def shapes_text(shapes: Sequence[tuple[int, ...]]) -> str:
    return " ".join(str(s).replace(" ", "") for s in shapes)
