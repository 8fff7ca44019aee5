"""Literals (numbers in a trace) and the dtypes that can be traced."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.types import ArrayType, dtype_of
from pullback.ir.shapes.symbolic import conversion, is_size, lifted
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.promotion import Kind
from pullback.tracer.user_code.errors import TraceError

WEAK: dict[type, tuple[str, ArrayType]] = {
    bool: ("bool", ArrayType(dtype_of("bool"))),
    int: ("int", ArrayType(dtype_of("i64"))),
    float: ("float", ArrayType(dtype_of("f64"))),
    complex: ("complex", ArrayType(dtype_of("c128"))),
}

PYTHON_NUMBERS: dict[str, type] = {weak: kind for kind, (weak, _) in WEAK.items()}
"""The types of Python numbers by the names of the weak kinds."""

WEAK_KIND: dict[str, Kind] = {"int": int, "float": float, "complex": complex}


def literal_type(value: Any) -> tuple[ArrayType, str]:
    """Return the type of a Python scalar, NumPy scalar or array, and its weak kind (empty unless it is a Python scalar)."""
    if weak_class(value) in WEAK:
        weak, array_type = WEAK[weak_class(value)]
        return array_type, weak
    return ArrayType(element_of(value.dtype), value.shape), ""


def weak_class(value: Any) -> type:
    """Return the class of a number; for a symbolic size, the class that it stands for."""
    return value.__class__ if is_size(value) else type(value)


def as_python(value: Any, dtype: Any = None) -> Any:
    """Return a scalar, converted by NumPy to ``dtype``, as the Python number of a literal."""
    scalar = np.asarray(value, dtype)
    return float(scalar) if scalar.dtype.kind not in "biuc" else scalar.item()


def scalar_of(array: Any, kind: type | None) -> Any:
    """Return an array of rank 0 as a Python number of type ``kind``, or as NumPy's scalar if that is None. An array of another
    rank, or on a device, is returned itself."""
    if isinstance(array, Remote) or array.ndim:
        return array
    return array[()] if kind is None else kind(array)


def sized(value: Any, source: Any, target: np.dtype[Any]) -> Any:
    """Convert a symbolic number to the literal of a dtype. An integer that fits is unchanged."""
    if isinstance(value, int) and target.kind in "iu" and promotion.fits(value, target):
        return value
    return lifted(_converted, value, source, target)


@conversion
def _converted(value: Any, source: Any, target: Any) -> Any:
    return as_python(np.asarray(value, source).astype(target) if source is not None else np.asarray(value, target))


def element_of(dtype: Any) -> Any:
    """Return the element type of a NumPy dtype; names are NumPy's ("i8" has 64 bits). Raises TraceError for an unsupported
    one."""
    numpy_dtype = np.dtype(dtype)
    refuse_dtype(numpy_dtype, "an array")
    return dtype_of(numpy_dtype if isinstance(dtype, str) else dtype)


def refuse_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Raise TraceError unless arrays of ``dtype`` can be traced."""
    if dtype.kind in "biufc" and dtype.itemsize <= (16 if dtype.kind == "c" else 8) and dtype.char not in "gG":
        return
    if dtype.kind == "V" and dtype.name == "bfloat16":
        return
    instead = _NUMBERS[dtype.kind] if dtype.kind != "V" or dtype.names else _NO_FIELDS
    raise TraceError(f"{what} of dtype {dtype} cannot be traced; {instead}")


_NO_FIELDS = "use a dtype of numbers, as by .astype(np.float32)"


_NUMBERS = {
    "O": "use arrays of numbers, in a list or dict where their shapes differ",
    "c": "use complex128 (.astype(np.complex128))",
    "f": "use float64 (.astype(np.float64))",
    "U": "pass numbers that stand for the strings, or a tuple of strings",
    "S": "pass numbers that stand for the strings, or a tuple of strings",
    "M": "pass numbers, as by (t - t[0]) / np.timedelta64(1, 's')",
    "m": "pass numbers, as by t / np.timedelta64(1, 's')",
    "V": "pass its fields, as by {name: a[name] for name in a.dtype.names}",
    "T": "pass numbers that stand for the strings, or a tuple of strings",
}


def takes_number(kind: str, weak: str, casting: str) -> bool:
    """Return whether an array of dtype kind ``kind`` can store a Python number.

    With "unsafe" casting only a complex number in a real array is refused.
    """
    if casting == "unsafe":
        return weak != "complex" or kind in "bc"
    return "biufc".index(kind.replace("u", "i")) >= "biufc".index(weak[0].replace("u", "i"))
