"""DLPack for arrays on a device: capsules created and consumed through ``ctypes``. Structures and names follow dlpack.h."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from pullback.runtime.compile.engine import default_engine

CUDA = 2
LEGACY_STREAM = 1
CODES = {"i": 0, "u": 1, "f": 2, "V": 4, "c": 5, "b": 6}
NAME, USED = b"dltensor", b"used_dltensor"


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    pass


_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))

_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))
_hold = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _api))

FUNCTIONS = (
    "Py_IsInitialized", "PyGILState_Ensure", "PyGILState_Release", "Py_DecRef", "PyCapsule_IsValid", "PyCapsule_GetPointer",
)  # fmt: skip
"""Functions of Python's C API, in the order of the table that the code below reads."""
SOURCE = """
@table = internal global ptr null
@name = internal constant [9 x i8] c"dltensor\\00"

define i64 @pullback_dlpack_begin(ptr %functions) {
  store ptr %functions, ptr @table
  ret i64 0
}

; A consumer is done, in any thread, with or without Python's lock: what the tensor keeps alive is let go.
define void @pullback_dlpack_delete(ptr %managed) {
  %table = load ptr, ptr @table
  %is_initialized = load ptr, ptr %table
  %alive = call i32 %is_initialized()
  %ended = icmp eq i32 %alive, 0
  br i1 %ended, label %end, label %go
go:
  %at_ensure = getelementptr ptr, ptr %table, i64 1
  %ensure = load ptr, ptr %at_ensure
  %at_release = getelementptr ptr, ptr %table, i64 2
  %release = load ptr, ptr %at_release
  %at_decref = getelementptr ptr, ptr %table, i64 3
  %decref = load ptr, ptr %at_decref
  %at_context = getelementptr i8, ptr %managed, i64 CONTEXT
  %held = load ptr, ptr %at_context
  %state = call i32 %ensure()
  call void %decref(ptr %held)
  call void %release(i32 %state)
  br label %end
end:
  ret void
}

; A capsule dies; where nobody took its tensor, that is done with.
define void @pullback_dlpack_destroy(ptr %capsule) {
  %table = load ptr, ptr @table
  %at_valid = getelementptr ptr, ptr %table, i64 4
  %valid = load ptr, ptr %at_valid
  %at_pointer = getelementptr ptr, ptr %table, i64 5
  %pointer = load ptr, ptr %at_pointer
  %is_untaken = call i32 %valid(ptr %capsule, ptr @name)
  %taken = icmp eq i32 %is_untaken, 0
  br i1 %taken, label %end, label %go
go:
  %managed = call ptr %pointer(ptr %capsule, ptr @name)
  call void @pullback_dlpack_delete(ptr %managed)
  br label %end
end:
  ret void
}
""".replace("CONTEXT", str(_Managed.context.offset))
"""The deleter and destructor of capsules. They may run while a Python exception is pending, when no Python code may run except
finalisers."""


@functools.cache
def _deleter_and_destructor() -> tuple[int, int]:
    """Return the addresses of the tensor deleter and the capsule destructor."""
    code = default_engine().load(SOURCE, symbols=[f"pullback_dlpack_{name}" for name in ("begin", "delete", "destroy")])
    _table[:] = [ctypes.cast(getattr(_api, name), ctypes.c_void_p).value or 0 for name in FUNCTIONS]
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code["pullback_dlpack_begin"])(ctypes.addressof(_table))
    return code["pullback_dlpack_delete"], code["pullback_dlpack_destroy"]


_table = (ctypes.c_void_p * len(FUNCTIONS))()
_hold(_table)


def capsule(
    address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None, device_index: int, owner: Any
) -> Any:
    """Return the capsule of an array on a CUDA device, which keeps ``owner`` alive until its consumer deletes it."""
    rank = len(shape)
    sizes = (ctypes.c_int64 * max(rank, 1))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * max(rank, 1))(*(s // dtype.itemsize for s in strides))
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.device, tensor.ndim = address, _Device(CUDA, device_index), rank
    tensor.dtype = _DType(CODES[dtype.kind], dtype.itemsize * 8, 1)
    tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    if steps is not None:
        tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    delete, destroy = _deleter_and_destructor()
    held = [managed, sizes, steps, owner]
    managed.context, managed.deleter = id(held), delete
    _hold(held)
    return _new(ctypes.addressof(managed), NAME, destroy)


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ForeignTensor:
    """A tensor of another library, released when this object dies. ``owner`` is the object that it was taken from."""

    __slots__ = ("_managed", "address", "device_index", "dtype", "owner", "shape", "strides")

    def __init__(self, capsule: Any, owner: Any) -> None:
        if not _is_valid(capsule, NAME):
            raise BufferError("not a DLPack capsule that can be taken")
        managed = _Managed.from_address(_pointer(capsule, NAME))
        tensor = managed.tensor
        if tensor.device.type != CUDA:
            raise BufferError("the array is not on a CUDA device")
        self.dtype = _dtype_of(tensor.dtype)
        self.shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
        steps = tuple(tensor.strides[k] * self.dtype.itemsize for k in range(tensor.ndim)) if tensor.strides else None
        self.strides = steps
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.device_index = tensor.device.id
        self.owner = owner
        _rename(capsule, USED)
        self._managed: Any = managed

    def __del__(self) -> None:
        managed = getattr(self, "_managed", None)
        if managed is not None and managed.deleter:
            _Deleter(managed.deleter)(ctypes.addressof(managed))


def _dtype_of(dlpack_type: _DType) -> np.dtype[Any]:
    kinds = {code: kind for kind, code in CODES.items()}
    if dlpack_type.lanes != 1 or dlpack_type.code not in kinds or dlpack_type.bits % 8:
        raise BufferError(f"elements of DLPack code {dlpack_type.code}, {dlpack_type.bits} bits, are not known")
    kind = kinds[dlpack_type.code]
    if kind == "V":
        from ml_dtypes import bfloat16

        return np.dtype(bfloat16)
    return np.dtype("bool" if kind == "b" else f"{kind}{dlpack_type.bits // 8}")
