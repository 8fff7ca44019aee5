"""NumPy's own sorts as native functions: those that ``np.sort`` and ``np.argsort`` run for each dtype, without Python.

They are in the function table of each built-in dtype (``PyArray_ArrFuncs``), whose layout and whose index in NumPy's C API
(``_PyDataType_GetArrFuncs``) its headers have published since 2.0. A function from the table is tested before it is used; if
it is missing, or does not sort, a Python function that calls ``np.sort`` replaces it.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

SIGNATURES = {"sort": "int (void *, npy_intp, void *)", "argsort": "int (void *, npy_intp *, npy_intp, void *)"}
_PROTOTYPES: dict[str, Any] = {
    "sort": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p),
    "argsort": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_void_p),
}
_GET_ARRAY_FUNCTIONS = 365
"""The index of ``_PyDataType_GetArrFuncs`` in NumPy's C API table."""


class _ArrayFunctions(ctypes.Structure):
    """The first fields of PyArray_ArrFuncs."""

    _fields_ = (("others", ctypes.c_void_p * 33), ("sort", ctypes.c_void_p * 3), ("argsort", ctypes.c_void_p * 3))


def address(kind: str, dtype: str) -> int:
    """Return the address of a "sort" or "argsort" of contiguous elements of a dtype. The index array passed to an argsort may
    hold the indices in any order; the sort is not stable."""
    return _resolved(kind, dtype)[0]


@functools.cache
def _resolved(kind: str, dtype: str) -> tuple[int, Any]:
    """Return the address, and an object that must live as long."""
    native = _native(kind, np.dtype(dtype))
    if native is not None and _sorts(kind, dtype, _PROTOTYPES[kind](native)):
        return native, None
    substitute = _PROTOTYPES[kind](_by_python(kind, np.dtype(dtype)))
    pointer = ctypes.cast(substitute, ctypes.c_void_p).value
    assert pointer is not None
    return pointer, substitute


def _native(kind: str, dtype: np.dtype[Any]) -> int | None:
    capsule = getattr(sys.modules.get("numpy._core._multiarray_umath"), "_ARRAY_API", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    functions = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(table[_GET_ARRAY_FUNCTIONS])(dtype)
    function: int | None = getattr(_ArrayFunctions.from_address(functions), kind)[0] if functions else None
    return function


def _sorts(kind: str, dtype: str, function: Callable[..., int]) -> bool:
    """Return whether a function sorts a small array correctly."""
    x = np.array([3, 1, 2, 0, 5, 4] * 50).astype(dtype)
    indices = np.arange(x.size)
    arguments = [x.ctypes.data, *([indices.ctypes.data] if kind == "argsort" else [])]
    if function(*arguments, x.size, None):
        return False
    return bool(np.all(np.diff(x[indices].astype(float)) >= 0)) and np.unique(indices).size == x.size


def _by_python(kind: str, dtype: np.dtype[Any]) -> Callable[..., int]:
    def elements(start: int, count: int, of: np.dtype[Any]) -> Any:
        return np.ctypeslib.as_array((ctypes.c_byte * (count * of.itemsize)).from_address(start)).view(of)

    def sort(start: int, count: int, nothing: Any) -> int:
        if count:
            elements(start, count, dtype).sort()
        return 0

    def argsort(start: int, places: int, count: int, nothing: Any) -> int:
        if count:
            elements(places, count, np.dtype(np.intp))[...] = np.argsort(elements(start, count, dtype))
        return 0

    return sort if kind == "sort" else argsort
