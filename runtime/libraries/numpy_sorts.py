"""NumPy's own sorts, as native functions: those that ``np.sort`` and ``np.argsort`` run for each dtype, without Python.

They are in the table of functions that each built-in dtype has (``PyArray_ArrFuncs``), whose layout and whose place in NumPy's C
API (``_PyDataType_GetArrFuncs``) its headers have published since 2.0. A function found there is tried before it is handed out;
where one is missing, or does not sort, a Python function that calls ``np.sort`` takes its place.
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


class _ArrayFunctions(ctypes.Structure):
    """The head of PyArray_ArrFuncs."""

    _fields_ = (("others", ctypes.c_void_p * 33), ("sort", ctypes.c_void_p * 3), ("argsort", ctypes.c_void_p * 3))


def address(kind: str, dtype: str) -> int:
    """The address of a "sort" or "argsort" of contiguous elements of a dtype; the places that an argsort gets are in any order
    before, and are not sorted stably."""
    return _found(kind, dtype)[0]


@functools.cache
def _found(kind: str, dtype: str) -> tuple[int, Any]:
    """The address, and what must live as long."""
    native = _native(kind, np.dtype(dtype))
    if native is not None and _sorts(kind, dtype, _PROTOTYPES[kind](native)):
        return native, None
    substitute = _PROTOTYPES[kind](_by_python(kind, np.dtype(dtype)))
    found = ctypes.cast(substitute, ctypes.c_void_p).value
    assert found is not None
    return found, substitute


def _native(kind: str, dtype: np.dtype[Any]) -> int | None:
    capsule = getattr(sys.modules.get("numpy._core._multiarray_umath"), "_ARRAY_API", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(pointer(capsule, None), ctypes.POINTER(ctypes.c_void_p))
    functions = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(table[_GET_ARRAY_FUNCTIONS])(dtype)
    found: int | None = getattr(_ArrayFunctions.from_address(functions), kind)[0] if functions else None
    return found


def _sorts(kind: str, dtype: str, function: Callable[..., int]) -> bool:
    """Whether a function sorts a few elements."""
    x = np.array([3, 1, 2, 0, 5, 4] * 50).astype(dtype)
    places = np.arange(x.size)
    given = [x.ctypes.data, *([places.ctypes.data] if kind == "argsort" else [])]
    if function(*given, x.size, None):
        return False
    return bool(np.all(np.diff(x[places].astype(float)) >= 0)) and np.unique(places).size == x.size


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
