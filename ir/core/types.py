"""Types of IR values: element types, arrays, stacks, and references to memory.

An extent (one entry of a shape) is an int or the name of a symbolic size. Two extents are equal only if they are the same int
or the same name. A name ``v0``, ``v1``, ... is an extent *by value*: an instruction ``define_extent`` defines it when the program
runs, and types that follow may use it. Every other name is known before the program runs. Types are immutable, hashable and
compare by content.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass

Extent = int | str
Shape = tuple[Extent, ...]
BY_VALUE = "v"
"""The first letter of the names of extents that instructions define; other names begin with other letters."""


def is_by_value(extent: Extent) -> bool:
    """Return whether an extent is the name of one that an instruction defines."""
    return isinstance(extent, str) and extent[0] == BY_VALUE and extent[1:].isdigit()


@dataclass(frozen=True)
class DType:
    """An element type. ``kind`` is its NumPy letter: b (bool), i, u, f, c."""

    name: str
    kind: str
    bits: int

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        return max(self.bits // 8, 1)

    @functools.cached_property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; for bf16 the one of ml_dtypes."""
        if self.name == "bf16":
            return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
        return np.dtype("bool" if self.kind == "b" else f"{self.kind}{self.bytes}")

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_inexact(self) -> bool:
        return self.kind in "fc"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    @property
    def part(self) -> DType:
        """The type of the real and the imaginary part; a real type itself."""
        return DTYPES[f"f{self.bits // 2}"] if self.is_complex else self


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("bool", "b", 8),
        *(DType(f"i{n}", "i", n) for n in (8, 16, 32, 64)),
        *(DType(f"u{n}", "u", n) for n in (8, 16, 32, 64)),
        DType("f16", "f", 16),
        DType("bf16", "f", 16),
        DType("f32", "f", 32),
        DType("f64", "f", 64),
        DType("c64", "c", 64),
        DType("c128", "c", 128),
    )
}
BOOL, I64, F32, F64 = (DTYPES[name] for name in ("bool", "i64", "f32", "f64"))
COMPLEX_OF = {DTYPES["f32"]: DTYPES["c64"], DTYPES["f64"]: DTYPES["c128"]}
_BY_NUMPY = {d.numpy: d for d in DTYPES.values() if d.name != "bf16"}


def dtype_of(dtype: Any) -> DType:
    """Return the DType of a NumPy dtype, DType or name. Raises TypeError for an unsupported one (object, str, datetime, ...)."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DTYPES:
        return DTYPES[dtype]
    numpy_dtype = np.dtype(dtype)
    dtype_record = _BY_NUMPY.get(numpy_dtype) or _BY_NUMPY.get(numpy_dtype.newbyteorder("="))
    if dtype_record is not None:
        return dtype_record
    if numpy_dtype.name == "bfloat16":
        return DTYPES["bf16"]
    raise TypeError(f"arrays of dtype {numpy_dtype} cannot be compiled")


@dataclass(frozen=True)
class ArrayType:
    """The type of an array value; at rank 0 also the type of a scalar in a kernel."""

    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def with_shape(self, shape: Shape) -> ArrayType:
        return ArrayType(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> ArrayType:
        return ArrayType(dtype, self.shape)


@dataclass(frozen=True)
class RefType:
    """A reference to memory that a kernel reads or writes.

    ``layout``: "c" (row-major, dense) or "strided" (byte strides are passed at run time). ``space``: "global" (buffers
    of the program), "stack" (private to one execution of the enclosing region), "shared" (of a CUDA block).
    """

    dtype: DType
    shape: Shape = ()
    layout: str = "c"
    space: str = "global"

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        words = [w for w in (self.layout, self.space) if w not in ("c", "global")]
        inside = ",".join(map(str, self.shape)) + "".join(f"; {w}" for w in words)
        return f"&{self.dtype}[{inside}]"


@dataclass(frozen=True)
class StackType:
    """A sequence of values of one array type, whose length is known at run time. Loops of unknown length write and read it."""

    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(['*', *map(str, self.shape)])}]"


Type = ArrayType | RefType | StackType


def interleaved(t: ArrayType) -> ArrayType:
    """Return the real array type that a complex array has in memory: the two parts are adjacent, along a last axis of extent
    2."""
    return ArrayType(t.dtype.part, (*t.shape, 2))


@functools.cache
def scalar(dtype: DType | str) -> ArrayType:
    """Return the type of a rank-0 array."""
    return ArrayType(dtype_of(dtype), ())
