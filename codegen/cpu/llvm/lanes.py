"""Represent a kernel value in emitted LLVM code: a scalar for all lanes, a vector, or a scalar plus a multiple of the lane."""

from __future__ import annotations

import struct
from typing import NamedTuple

from pullback.ir.core.types import DType

NAMES = {"f16": "i16", "bf16": "i16", "f32": "float", "f64": "double", "bool": "i1"}
"""The LLVM type of a scalar by the name of its dtype, where it is not an integer of the same size."""


class Lanes(NamedTuple):
    """A value in all lanes of a vector loop.

    ``step`` None: ``text`` is a vector. 0: a scalar, the same in all lanes. Otherwise an i64, ``text`` + lane * ``step``. With
    ``each``: an i64, ``text`` + the entry of each lane in ``each``.
    """

    text: str
    step: int | None = 0
    per_lane: tuple[int, ...] = ()

    @property
    def is_scalar(self) -> bool:
        """Return whether the value is the same scalar in all lanes."""
        return self.step == 0

    @property
    def literal(self) -> int | None:
        """Return the value of an integer literal, else None."""
        if self.step != 0 or self.text.startswith("%"):
            return None
        return int(self.text) if self.text.lstrip("-").isdigit() else None


def element(dtype: DType) -> str:
    """Return the LLVM type of a scalar in a register; 16-bit floats are held as their bits."""
    return NAMES.get(dtype.name, f"i{dtype.bits}")


def stored(dtype: DType) -> str:
    """Return the LLVM type of a scalar in memory."""
    return "i8" if dtype.is_bool else element(dtype)


def vector_of(name: str, width: int) -> str:
    """Return the type of ``width`` lanes; a width of 1 is a scalar."""
    return f"<{width} x {name}>" if width > 1 else name


def splat(name: str, text: str, width: int) -> str:
    """Return a constant in all lanes."""
    return f"splat ({name} {text})" if width > 1 else text


def mangled(name: str, width: int) -> str:
    """Return a type as it is written in the name of an intrinsic."""
    short = {"float": "f32", "double": "f64"}.get(name, name)
    return f"v{width}{short}" if width > 1 else short


def literal(value: object, dtype: DType) -> str:
    """Return the text of a constant operand."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))  # type: ignore[call-overload]
    bits = dtype.numpy.type(value)
    if dtype.name in ("f32", "f64"):
        return f"0x{int(_double_bits(float(bits))):016X}"
    return str(int(bits.view("u2")))


def _double_bits(value: float) -> int:
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])
