"""The parts of CPython's and NumPy's binary interfaces that the fast call relies on: struct offsets, exported functions, one
type.

All of them are here, and tested in this process before they are used. ``problem`` returns why they cannot be used: another
interpreter, an untested minor version, or another layout. Calls are then served by Python.

The base type of callables is created from exported functions alone, without machine code of ours: it has a vectorcall slot.
While that is empty Python calls ``__call__``, as for any object.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import struct
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.core.environment import CALL_PATH
from pullback.runtime.compile.platforms import PYTHONS

VARIABLE = CALL_PATH.name
NATIVE = ("native", "fused")
"""The settings that force native calls: through the generic entry only, or through an entry specialised for each signature at
once."""

# Offsets in bytes within objects (``object.h`` and related headers) and arrays (``ndarraytypes.h``).
COUNTS_PLAINLY = sys.version_info < (3, 12)
"""Whether the first word of every object is its reference count, without immortal objects."""
TYPE = 8
SIZE = 16
ITEMS = 24
VALUE = 16
REFERENT = 16
ARRAY_DATA, ARRAY_RANK, ARRAY_SHAPE, ARRAY_STRIDES, ARRAY_DTYPE, ARRAY_FLAGS = 16, 24, 32, 40, 56, 64
DTYPE_CLASS = 16
DICT_TAG = 24
ROW_MAJOR = 0x101
DENSE, WRITEABLE = 0x3, 0x400
"""Flags of an array: dense in row-major or column-major order; writeable."""
TYPE_FLAGS = 168
SLOTS = 16
"""The offset of the first slot, by name, in an object of a class with ``__slots__`` whose only base is object."""
VECTORCALL, HELD = 16, 24
"""Offsets in a callable: the vectorcall function, and the object that its native side reads."""
METHOD = 32
"""The offset in a callable of the function that its bound methods call."""
FUNCTION, INSTANCE = 24, 32
"""Offsets in a bound method: its function and its instance."""
BOUND_FUNCTION = 16
"""The offset in a bound method of Python's of its function."""
DESCRIPTOR = 272
"""The offset in a type of the function called when an attribute of this type is read."""

_HAS_VECTORCALL, _IS_BASE = 1 << 11, 1 << 10
_TP_ALLOC, _TP_CALL, _TP_MEMBERS = 47, 50, 72
_TP_DESCRIPTOR = 54
_SSIZE, _READONLY = 19, 1

FUNCTIONS = (
    "Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyErr_Occurred", "PyDict_Next", "PyDict_GetItemWithError", "PyDict_New",
    "PyDict_SetItem", "PyTuple_New", "PyList_New", "PyLong_FromLongLong", "PyLong_AsLongLongAndOverflow",
    "PyObject_GetAttr", "PyObject_RichCompareBool", "PyObject_Vectorcall", "PyContextVar_Get", "PyContext_Enter",
    "PyContext_Exit", "PyEval_SaveThread", "PyEval_RestoreThread", "PyFunction_GetCode", "PyMem_RawMalloc", "PyMem_RawFree",
    "PyErr_NoMemory", "PyErr_ExceptionMatches", "_Py_Dealloc", "PyObject_GenericSetAttr",
    "PyErr_SetNone", "PyType_GenericAlloc", "PyBool_FromLong",
)  # fmt: skip
ARRAY_FUNCTIONS = {
    "PyArray_CopyInto": 50, "PyArray_Scalar": 60, "PyArray_CopyObject": 84, "PyArray_NewCopy": 85, "PyArray_NewFromDescr": 94,
    "PyArray_EquivTypes": 182,
}  # fmt: skip
"""NumPy functions by their indices in its table of addresses, ``__multiarray_api.h``."""
OBJECTS: dict[str, Any] = {
    "ndarray": np.ndarray, "tuple": tuple, "list": list, "dict": dict, "str": str, "true": True, "none": None,
    "missed": NotImplemented, "float": float, "Exception": Exception, "AttributeError": AttributeError, "new": object.__new__,
}  # fmt: skip
ADDRESSES = (*FUNCTIONS, *ARRAY_FUNCTIONS, *OBJECTS)
"""The names of the addresses that native code reads from one table, in this order."""


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("pointer", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int), ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(_Slot)),
    )  # fmt: skip


class _Member(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


# Objects referenced by the type, for the life of the process.
_kept: list[Any] = []


def wanted() -> str:
    """Return "native", "fused", "plain", or "" if unset. Raises ValueError for another word."""
    word = CALL_PATH.read()
    return "" if word == "auto" else word


def _unsupported() -> str:
    """Return why native calls cannot be used at all; "" if they can."""
    if sys.implementation.name != "cpython":
        return f"{sys.implementation.name}: CPython is known"
    if struct.calcsize("P") != 8:
        return f"{8 * struct.calcsize('P')} bits: 64 are known"
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or object.__basicsize__ != 16:
        return "a free-threaded or debug build of Python"
    if wanted() == "plain":
        return f"{VARIABLE}=plain"
    if sys.version_info[:2] not in PYTHONS and wanted() not in NATIVE:
        return f"Python {sys.version_info[0]}.{sys.version_info[1]} was not tested ({VARIABLE}=native to use it all the same)"
    return ""


def _create_type() -> Any:
    """Return a type of objects with one word of their own, the vectorcall slot."""
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _SSIZE, VECTORCALL, _READONLY, None))
    slots = (_Slot * 3)(
        _Slot(_TP_CALL, address_of("PyVectorcall_Call")), _Slot(_TP_MEMBERS, ctypes.addressof(members))
    )  # fmt: skip
    size = object.__basicsize__ + 8
    spec = _Spec(b"pullback.runtime.fastcall.abi.Called", size, 0, _IS_BASE | _HAS_VECTORCALL, slots)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
    _kept.extend((members, slots, spec))
    return make(ctypes.addressof(spec))


def address_of(function: str) -> int:
    """Return the address of an exported function of Python. Raises AttributeError."""
    return int(ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p).value or 0)


class _PlainCalled:
    """The base of callables if there is no native path."""

    __slots__ = ()


def _callable_type() -> Any:
    if _unsupported():
        return _PlainCalled
    try:
        return _create_type()
    except (AttributeError, OSError, SystemError, TypeError, ValueError):
        return _PlainCalled


Called: Any = _callable_type()
"""The base of callables. The slots of a subclass are ordered by name; native code reads the first."""


def word_at(address: int) -> int:
    """Return the 64 bits at an address."""
    return int(ctypes.c_int64.from_address(address).value)


def set_word(address: int, value: int) -> None:
    """Write the 64 bits at an address."""
    ctypes.c_int64.from_address(address).value = value


def set_vectorcall(owner: Any, address: int) -> None:
    """Set the function that calls a callable; 0 for its ``__call__``."""
    ctypes.c_int64.from_address(id(owner) + VECTORCALL).value = address


def is_native(owner: Any) -> bool:
    """Return whether a callable is called natively."""
    return word_at(id(owner) + VECTORCALL) != 0


def enable_vectorcall(kind: type) -> None:
    """Make Python use the vectorcall slot of a class's objects, although the class defines ``__call__``, which disables it."""
    if Called is not _PlainCalled and _flags_match():
        ctypes.c_ulong.from_address(id(kind) + TYPE_FLAGS).value |= _HAS_VECTORCALL


def set_descriptor(kind: type, address: int) -> None:
    """Set the function that reads attributes whose values are objects of a class, in place of its ``__get__``."""
    ctypes.c_int64.from_address(id(kind) + DESCRIPTOR).value = address


def _slot_of(kind: type, slot: int) -> int:
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_int)(("PyType_GetSlot", ctypes.pythonapi))
    return int(get(kind, slot) or 0)


def _test_descriptors() -> bool:
    class Read(Called):
        __slots__ = ("held",)

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self

    kinds = (type(_slot_of), property, classmethod, Read)
    return all(word_at(id(k) + DESCRIPTOR) == _slot_of(k, _TP_DESCRIPTOR) != 0 for k in kinds)


def _flags_match() -> bool:
    kinds: tuple[Any, ...] = (int, dict, Called, np.ndarray, functools.partial)
    return all(ctypes.c_ulong.from_address(id(k) + TYPE_FLAGS).value == k.__flags__ for k in kinds)


def addresses() -> list[int]:
    """Return the table of addresses for native code. Raises AttributeError or ImportError."""
    numpy_core = importlib.import_module("numpy._core._multiarray_umath")
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = (ctypes.c_void_p * (max(ARRAY_FUNCTIONS.values()) + 1)).from_address(pointer(numpy_core._ARRAY_API, None))
    exported = [address_of(name) for name in FUNCTIONS]
    return [*exported, *(table[k] or 0 for k in ARRAY_FUNCTIONS.values()), *map(id, OBJECTS.values())]


def is_supported() -> bool:
    """Return whether the native path can be used."""
    return not problem()


@functools.cache
def problem() -> str:
    """Return why calls are served by Python; "" if native calls can be used. Tests every offset."""
    if unfit := _unsupported():
        return unfit
    if Called is _PlainCalled:
        return "PyType_FromSpec made no type"
    try:
        wrong = next((name for name, test in _TESTS.items() if not test()), "")
        missing = 0 in addresses()
    except (AttributeError, ImportError, OSError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    if wrong:
        return f"this Python or NumPy keeps {wrong} elsewhere"
    return "a function of Python's or NumPy's has no address" if missing else ""


@functools.cache
def dicts_are_tagged() -> bool:
    """Return whether every change of a dict sets its version tag to a value that no dict has had, as up to Python 3.12."""
    if problem() or sys.version_info >= (3, 13):
        return False
    table: dict[str, Any] = {"a": 1}
    met = {word_at(id(table) + DICT_TAG)}
    for k, change in enumerate((
        lambda: table.__setitem__("a", 2), lambda: table.__setitem__("b", 3), lambda: table.pop("b"), lambda: table.update(a=4),
        lambda: table.setdefault("c", 5), table.popitem, table.clear,
    )):  # fmt: skip
        change()
        tag = word_at(id(table) + DICT_TAG)
        met.add(tag)
        if len(met) != k + 2 or table.get("a") is NotImplemented or word_at(id(table) + DICT_TAG) != tag:
            return False
    return True


def allocator(kind: type) -> int:
    """Return the address of the function ``f(kind, 0)`` that creates a number of a class; 0 if it is unknown."""
    return _allocator(kind) if kind in (np.float64, np.int64, float, complex) and not problem() else 0


@functools.cache
def _allocator(kind: Any) -> int:
    address = _slot_of(kind, _TP_ALLOC)
    if not address:
        return 0
    created, three = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)(address)(kind, 0), kind(3)
    for k in range(2 if kind is complex else 1):
        ctypes.c_int64.from_address(id(created) + VALUE + 8 * k).value = word_at(id(three) + VALUE + 8 * k)
    return address if type(created) is kind and created == 3 else 0


def _test_type() -> bool:
    return all(word_at(id(x) + TYPE) == id(type(x)) for x in (1.5, "a", (), np.zeros(2), np.float64(1)))


def _test_counts() -> bool:
    x = object()
    held = [x] * 5
    return not COUNTS_PLAINLY or (word_at(id(x)) == sys.getrefcount(x) - 1 == 6 and len(held) == 5)


def _test_items() -> bool:
    a, b = object(), object()
    pair = (a, b)
    if word_at(id(pair) + SIZE) != 2 or [word_at(id(pair) + ITEMS + 8 * k) for k in range(2)] != [id(a), id(b)]:
        return False
    many = [a, b, a]
    items = word_at(id(many) + ITEMS)
    return word_at(id(many) + SIZE) == 3 and [word_at(items + 8 * k) for k in range(3)] == [id(a), id(b), id(a)]


def _bytes_at(address: int, count: int) -> bytes:
    return ctypes.string_at(address, count)


def _test_values() -> bool:
    numbers = [1.5, 2.5 - 3j, *(np.dtype(code).type(3) for code in "?bBhHiIlLqQefdFD")]
    return all(_bytes_at(id(x) + VALUE, np.dtype(type(x)).itemsize) == np.array(x, type(x)).tobytes() for x in numbers)


def _test_arrays() -> bool:
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for x in (base, base[1:, ::2], base.T, np.zeros(()), np.zeros((0, 3), np.int64), base.view(np.int32)):
        shape, strides = (word_at(id(x) + at) for at in (ARRAY_SHAPE, ARRAY_STRIDES))
        axes = range(x.ndim)
        read = [tuple(word_at(shape + 8 * k) for k in axes), tuple(word_at(strides + 8 * k) for k in axes)]
        rank, flags = (ctypes.c_int.from_address(id(x) + at).value for at in (ARRAY_RANK, ARRAY_FLAGS))
        if read != [x.shape, x.strides] or (rank, flags & 0xFFFF) != (x.ndim, x.flags.num & 0xFFFF):
            return False
        if word_at(id(x) + ARRAY_DATA) != x.__array_interface__["data"][0] or word_at(id(x) + ARRAY_DTYPE) != id(x.dtype):
            return False
        if word_at(id(x.dtype) + DTYPE_CLASS) != id(x.dtype.type):
            return False
    return True


def _test_references() -> bool:
    class Owner:
        pass

    owner = Owner()
    reference = weakref.ref(owner)
    was = word_at(id(reference) + REFERENT) == id(owner)
    del owner
    return was and word_at(id(reference) + REFERENT) == id(None)


def _test_bound_methods() -> bool:
    method = _Bound().method
    return word_at(id(method) + BOUND_FUNCTION) == id(_Bound.method)


class _Bound:
    def method(self) -> None:
        pass


def _test_callables() -> bool:
    class Probe(Called):
        __slots__ = ("__dict__", "__weakref__", "held", "method")

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return args, kwargs

    class Slotted:
        __slots__ = ("a", "b")
        a: Any
        b: Any

    enable_vectorcall(Probe)
    probe, slotted = Probe(), Slotted()
    before = [word_at(id(probe) + HELD), word_at(id(probe) + VECTORCALL), word_at(id(slotted) + SLOTS)]
    probe.held, probe.method, slotted.a, slotted.b = slotted, before, probe, before
    stored = [word_at(id(probe) + HELD), word_at(id(slotted) + SLOTS), word_at(id(slotted) + SLOTS + 8)]
    stored.append(word_at(id(probe) + METHOD))
    is_called = bool(Probe.__flags__ & _HAS_VECTORCALL) and probe(1, b=2) == ((1,), {"b": 2})
    return before == [0, 0, 0] and stored == [id(slotted), id(probe), id(before), id(before)] and is_called


def _test_dtypes() -> bool:
    table = dict(zip(ADDRESSES, addresses(), strict=True))
    same = ctypes.PYFUNCTYPE(ctypes.c_ubyte, ctypes.py_object, ctypes.py_object)(table["PyArray_EquivTypes"])
    doubles, ints = np.dtype(np.float64), np.dtype(np.int64)
    return bool(same(doubles, np.dtype("f8"))) and not same(doubles, ints) and not same(doubles, doubles.newbyteorder())


_TESTS: dict[str, Callable[[], bool]] = {
    "the type of an object": _test_type,
    "the count of references": _test_counts,
    "the items of a tuple or list": _test_items,
    "the value of a number": _test_values,
    "the fields of an array": _test_arrays,
    "the object of a weak reference": _test_references,
    "the flags of a type": _flags_match,
    "the slots of a callable": _test_callables,
    "the function of a bound method": _test_bound_methods,
    "what reads an attribute": _test_descriptors,
    "the functions of arrays": _test_dtypes,
}
