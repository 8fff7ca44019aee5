"""What the native call path relies on of CPython's and NumPy's binary interfaces: struct offsets, exported functions, one type.

All of it is here, and tested in this process before it is used. ``problem`` says what stands against it: another interpreter, a
minor version that it was not tested on, or something that lies elsewhere. Calls then take the plain path, in Python.

The base type of callables is made from exported functions alone, without machine code of ours: it has a vectorcall slot. While
that is empty Python calls ``__call__``, as of any object.
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
"""Words that ask for native calls by name: by the generic entry alone, or by one of each signature's own from the start."""

# Bytes from the start of an object, ``object.h`` and its like, and ``ndarraytypes.h``.
COUNTS_PLAINLY = sys.version_info < (3, 12)
"""Whether the first word of every object counts its references, all of them."""
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
"""Flags of an array: dense in row-major or column-major order; may be written."""
TYPE_FLAGS = 168
SLOTS = 16
"""Of an object of a class with ``__slots__`` and no other base than object: the first one's value, by name."""
VECTORCALL, HELD = 16, 24
"""Of a callable: the address that calls it, and the object that its native side reads."""
METHOD = 32
"""Of a callable: what its bound methods call."""
FUNCTION, INSTANCE = 24, 32
"""Of a bound method."""
DESCRIPTOR = 272
"""Of a type: what is called when an attribute of this type is read."""

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
    "PyErr_SetNone", "PyType_GenericAlloc",
)  # fmt: skip
ARRAY_FUNCTIONS = {
    "PyArray_CopyInto": 50, "PyArray_Scalar": 60, "PyArray_CopyObject": 84, "PyArray_NewCopy": 85, "PyArray_NewFromDescr": 94,
    "PyArray_EquivTypes": 182,
}  # fmt: skip
"""Functions of NumPy's by their places in its table of addresses, ``__multiarray_api.h``."""
OBJECTS: dict[str, Any] = {
    "ndarray": np.ndarray, "tuple": tuple, "list": list, "dict": dict, "str": str, "true": True, "none": None,
    "missed": NotImplemented, "float": float, "Exception": Exception, "AttributeError": AttributeError, "new": object.__new__,
}  # fmt: skip
ADDRESSES = (*FUNCTIONS, *ARRAY_FUNCTIONS, *OBJECTS)
"""What native code reads of one table, in this order."""


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


# A type refers to these as long as the process lives.
_kept: list[Any] = []


def wanted() -> str:
    """ "native", "fused", "plain", or "" where nothing was asked for. Raises ValueError for another word."""
    word = CALL_PATH.read()
    return "" if word == "auto" else word


def _unfit() -> str:
    """Why nothing of this can be used at all; empty if nothing stands against it."""
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


def _made_type() -> Any:
    """A type of objects with one word of their own, their vectorcall slot."""
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
    """The address of an exported function of Python's. Raises AttributeError."""
    return int(ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p).value or 0)


class _PlainCalled:
    """The base of callables where there is no native path."""

    __slots__ = ()


def _callable_type() -> Any:
    if _unfit():
        return _PlainCalled
    try:
        return _made_type()
    except (AttributeError, OSError, SystemError, TypeError, ValueError):
        return _PlainCalled


Called: Any = _callable_type()
"""The base of callables. The slots of a subclass lie in the order of their names; the first is what native code reads."""


def word_at(address: int) -> int:
    """The 64 bits at an address."""
    return int(ctypes.c_int64.from_address(address).value)


def set_word(address: int, value: int) -> None:
    """Write the 64 bits at an address."""
    ctypes.c_int64.from_address(address).value = value


def set_vectorcall(owner: Any, address: int) -> None:
    """Have a callable called at an address; 0 for its ``__call__``."""
    ctypes.c_int64.from_address(id(owner) + VECTORCALL).value = address


def is_called(owner: Any) -> bool:
    """Whether a callable is called natively."""
    return word_at(id(owner) + VECTORCALL) != 0


def enable_vectorcall(kind: type) -> None:
    """Have Python look at the vectorcall slot of a class's objects, though the class has a ``__call__``, for which it is another
    way."""
    if Called is not _PlainCalled and _flags_lie_there():
        ctypes.c_ulong.from_address(id(kind) + TYPE_FLAGS).value |= _HAS_VECTORCALL


def set_descriptor(kind: type, address: int) -> None:
    """Have the attributes that are objects of a class read at an address, instead of by its ``__get__``."""
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


def _flags_lie_there() -> bool:
    kinds: tuple[Any, ...] = (int, dict, Called, np.ndarray, functools.partial)
    return all(ctypes.c_ulong.from_address(id(k) + TYPE_FLAGS).value == k.__flags__ for k in kinds)


def addresses() -> list[int]:
    """The table for native code. Raises AttributeError or ImportError."""
    numpy_core = importlib.import_module("numpy._core._multiarray_umath")
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = (ctypes.c_void_p * (max(ARRAY_FUNCTIONS.values()) + 1)).from_address(pointer(numpy_core._ARRAY_API, None))
    found = [address_of(name) for name in FUNCTIONS]
    return [*found, *(table[k] or 0 for k in ARRAY_FUNCTIONS.values()), *map(id, OBJECTS.values())]


def is_known() -> bool:
    """Whether nothing stands against the native path."""
    return not problem()


@functools.cache
def problem() -> str:
    """Why calls take the plain path; empty if they need not. Tests every offset."""
    if unfit := _unfit():
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
    """Whether a dict has a number that every change of it changes, to one that no dict had, as up to Python 3.12."""
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
    """The address of what makes an object of a class of numbers of 8 bytes, ``f(kind, 0)``; 0 if it is not as known."""
    return _allocator(kind) if kind in (np.float64, np.int64) and not problem() else 0


@functools.cache
def _allocator(kind: Any) -> int:
    address = _slot_of(kind, _TP_ALLOC)
    if not address:
        return 0
    made, three = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)(address)(kind, 0), kind(3)
    ctypes.c_int64.from_address(id(made) + VALUE).value = word_at(id(three) + VALUE)
    return address if type(made) is kind and made == 3 else 0


def _test_type() -> bool:
    return all(word_at(id(x) + TYPE) == id(type(x)) for x in (1.5, "a", (), np.zeros(2), np.float64(1)))


def _test_counts() -> bool:
    x = object()
    held = [x] * 5
    return not COUNTS_PLAINLY or (word_at(id(x)) == sys.getrefcount(x) - 1 == 6 and len(held) == 5)


def _test_items() -> bool:
    a, b = object(), object()
    both = (a, b)
    if word_at(id(both) + SIZE) != 2 or [word_at(id(both) + ITEMS + 8 * k) for k in range(2)] != [id(a), id(b)]:
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
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for x in (whole, whole[1:, ::2], whole.T, np.zeros(()), np.zeros((0, 3), np.int64), whole.view(np.int32)):
        shape, strides = (word_at(id(x) + at) for at in (ARRAY_SHAPE, ARRAY_STRIDES))
        axes = range(x.ndim)
        found = [tuple(word_at(shape + 8 * k) for k in axes), tuple(word_at(strides + 8 * k) for k in axes)]
        rank, flags = (ctypes.c_int.from_address(id(x) + at).value for at in (ARRAY_RANK, ARRAY_FLAGS))
        if found != [x.shape, x.strides] or (rank, flags & 0xFFFF) != (x.ndim, x.flags.num & 0xFFFF):
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
    lies = [word_at(id(probe) + HELD), word_at(id(slotted) + SLOTS), word_at(id(slotted) + SLOTS + 8)]
    lies.append(word_at(id(probe) + METHOD))
    is_called = bool(Probe.__flags__ & _HAS_VECTORCALL) and probe(1, b=2) == ((1,), {"b": 2})
    return before == [0, 0, 0] and lies == [id(slotted), id(probe), id(before), id(before)] and is_called


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
    "the flags of a type": _flags_lie_there,
    "the slots of a callable": _test_callables,
    "what reads an attribute": _test_descriptors,
    "the functions of arrays": _test_dtypes,
}
