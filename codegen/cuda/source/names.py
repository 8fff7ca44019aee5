"""The types, literals and identifiers of emitted CUDA C.

Every value keeps its name, changed where needed into an identifier that is neither a keyword nor a function.
"""

from __future__ import annotations

import re

import numpy as np

from pullback.ir.core.op import OPS
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise

TYPES = {
    "bool": "bool", "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int", "u64": "unsigned long long",
    "f32": "float", "f64": "double", "f16": "float", "bf16": "float",
}  # fmt: skip
"""The C type of each element type in registers."""
HALF = ("f16", "bf16")
"""16-bit floats: computed as float and rounded after each operation; stored in memory as their bits."""
_SUFFIXES = {"i32": "", "i64": "LL", "u32": "U", "u64": "ULL"}
"""The suffixes of integer literals; the types without one are converted by a cast."""
_KEYWORDS = """
alignas alignof and asm assert atomicAdd atomicCAS auto bitand bitor blockDim blockIdx blocks bool break case catch char chunks
class column compl const constexpr continue decltype default delete do double else enum explicit export extern false float for
friend goto gridDim if inline inside int long main mutable namespace new noexcept not nullptr operator or parts private protected
public register return row shared shift short signed sizeof static static_assert status step struct switch template this threadIdx
throw true try typedef typeid typename union unsigned using virtual void volatile warpSize wchar_t while width xor
"""
"""The words that emitted code uses otherwise."""


def type_name(dtype: DType) -> str:
    """Return the C type of a scalar in a register."""
    if dtype.name not in TYPES:
        raise NotImplementedError(f"kernels on {dtype} are not emitted for CUDA: use float32 or float64")
    return TYPES[dtype.name]


def stored_name(dtype: DType) -> str:
    """Return the C type of a scalar in memory."""
    return "unsigned char" if dtype.is_bool else "unsigned short" if dtype.name in HALF else type_name(dtype)


def loaded(text: str, dtype: DType) -> str:
    """Return an expression that converts a scalar in memory to its type in registers."""
    return f"{text} != 0" if dtype.is_bool else f"pb_from_{dtype}({text})" if dtype.name in HALF else text


def stored(text: str, dtype: DType) -> str:
    """Return an expression that converts a scalar in a register to its type in memory."""
    return f"pb_to_{dtype}({text})" if dtype.name in HALF else text


def literal(value: object, dtype: DType) -> str:
    """Return a constant of exactly this type; negative ones in parentheses."""
    name = type_name(dtype)
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        scalar = int(value)  # type: ignore[call-overload]
        if dtype.name not in _SUFFIXES:
            return f"({name}){scalar}"
        suffix = _SUFFIXES[dtype.name]
        if dtype.kind == "i" and scalar == np.iinfo(dtype.numpy).min:
            return f"({scalar + 1}{suffix} - 1)"
        return f"({scalar}{suffix})" if scalar < 0 else f"{scalar}{suffix}"
    scalar = dtype.numpy.type(value)
    if not np.isfinite(scalar):
        text = "PB_NAN" if np.isnan(scalar) else "PB_INF" if scalar > 0 else "(-PB_INF)"
        return text if dtype.name == "f64" else f"(float){text}"
    text = str(scalar if dtype.name not in HALF else np.float32(scalar)) + ("" if dtype.name == "f64" else "f")
    return f"({text})" if np.signbit(scalar) else text


def bare(text: str) -> str:
    """Return an i64 literal without its suffix, for use in an index; any other text unchanged."""
    return text[:-2] if re.fullmatch(r"\d+LL", text) else text


def unsigned(dtype: DType) -> str:
    """Return the unsigned type in which an integer type's sums and products wrap around."""
    return "unsigned long long" if dtype.bits == 64 else "unsigned int"


class Names:
    """The identifiers of a kernel's values."""

    def __init__(self) -> None:
        spellings = " ".join(s for op in OPS.values() if isinstance(op, Elementwise) for s in _texts(op))
        functions = re.findall(r"[A-Za-z_]\w*", re.sub(r"{\w*}", "", spellings))
        self.taken = {*_KEYWORDS.split(), *functions}
        self.assigned: dict[Value, str] = {}
        self.strides: dict[tuple[Value, int], str] = {}

    def of(self, value: Value) -> str:
        if value not in self.assigned:
            self.assigned[value] = self.fresh(value.name or "t")
        return self.assigned[value]

    def stride(self, value: Value, axis: int) -> str:
        """Return the identifier of a reference's stride in bytes."""
        key = (value, axis)
        if key not in self.strides:
            self.strides[key] = self.fresh(f"{self.of(value)}_stride{axis}")
        return self.strides[key]

    def combined(self, value: Value, combiner: str, word: str) -> str:
        """Return a new identifier for a part of a result."""
        return self.fresh(f"{value.name or combiner}_{word}")

    def fresh(self, hint: str) -> str:
        """Return a new identifier similar to ``hint``."""
        word = re.sub(r"[^0-9A-Za-z_]", "_", hint)
        if not re.match(r"[A-Za-z]", word) or word.startswith(("pb_", "PB_")):
            word = f"t{word}"
        name, count = word, 1
        while name in self.taken or re.fullmatch(r"s\d+", name):
            count += 1
            name = f"{word}{'_' if word[-1].isdigit() or word == 's' else ''}{count}"
        self.taken.add(name)
        return name


def _texts(op: Elementwise) -> list[str]:
    return [op.cuda] if isinstance(op.cuda, str) else list(op.cuda.values())
