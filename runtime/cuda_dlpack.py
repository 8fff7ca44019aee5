"""DLPack for arrays on a device: capsules made and taken through ``ctypes``. Structures and names are those of dlpack.h."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

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


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_api = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(("PyCapsule_New", _api))
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_is_valid_at = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))

_shown: dict[int, tuple[Any, ...]] = {}
"""What each tensor that was handed out keeps alive, by the address of its structure."""


@_Deleter
def _delete(managed: Any) -> None:
    _shown.pop(ctypes.addressof(managed.contents), None)


@_Destructor
def _destroy(capsule: int) -> None:
    """Of a capsule that nobody took."""
    if _is_valid_at(capsule, NAME):
        _shown.pop(_pointer_at(capsule, NAME), None)


def capsule(
    address: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None, number: int, owner: Any
) -> Any:
    """The capsule of an array on a CUDA device, which keeps ``owner`` until its consumer is done."""
    rank = len(shape)
    sizes = (ctypes.c_int64 * max(rank, 1))(*shape)
    steps = None if strides is None else (ctypes.c_int64 * max(rank, 1))(*(s // dtype.itemsize for s in strides))
    managed = _Managed()
    tensor = managed.tensor
    tensor.data, tensor.device, tensor.ndim = address, _Device(CUDA, number), rank
    tensor.dtype = _DType(CODES[dtype.kind], dtype.itemsize * 8, 1)
    tensor.shape = ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))
    if steps is not None:
        tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _delete
    at = ctypes.addressof(managed)
    _shown[at] = (managed, sizes, steps, owner)
    return _new(at, NAME, _destroy)


class Taken:
    """A tensor of another library's, given back when nobody holds this. ``owner`` is what it was taken from."""

    __slots__ = ("_managed", "address", "dtype", "number", "owner", "shape", "strides")

    def __init__(self, given: Any, owner: Any) -> None:
        if not _is_valid(given, NAME):
            raise BufferError("not a DLPack capsule that can be taken")
        managed = _Managed.from_address(_pointer(given, NAME))
        tensor = managed.tensor
        if tensor.device.type != CUDA:
            raise BufferError("the array is not on a CUDA device")
        self.dtype = _dtype_of(tensor.dtype)
        self.shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
        steps = tuple(tensor.strides[k] * self.dtype.itemsize for k in range(tensor.ndim)) if tensor.strides else None
        self.strides = steps
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.number = tensor.device.id
        self.owner = owner
        _rename(given, USED)
        self._managed: Any = managed

    def __del__(self) -> None:
        managed = getattr(self, "_managed", None)
        if managed is not None and managed.deleter:
            managed.deleter(ctypes.byref(managed))


def _dtype_of(found: _DType) -> np.dtype[Any]:
    kinds = {code: kind for kind, code in CODES.items()}
    if found.lanes != 1 or found.code not in kinds or found.bits % 8:
        raise BufferError(f"elements of DLPack code {found.code}, {found.bits} bits, are not known")
    kind = kinds[found.code]
    if kind == "V":
        from ml_dtypes import bfloat16

        return np.dtype(bfloat16)
    return np.dtype("bool" if kind == "b" else f"{kind}{found.bits // 8}")
