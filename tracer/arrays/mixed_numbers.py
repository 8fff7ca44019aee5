"""Numbers that are Python's on one path and NumPy's on another: which of them is a value of the program, a tag.

    q = a[1] if c else q        ->      q = select(c, a[1], q), is_python = not c
    1.0 / q                     ->      check(not is_python or q != 0), ZeroDivisionError

The value of such a mixed number has NumPy's dtype, to which the Python number is converted. An operator of Python numbers and
mixed ones has a mixed result: Python's where all operands are Python's. Where it raises an error for Python's numbers alone, the
check has the tag in its condition. With a number of NumPy the result is NumPy's, without a tag. All other numbers have no tag:
their ``weak`` says what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.make import as_traced, cast, emit, fresh
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Container, register

Tag = bool | TracedArray
"""Whether a number is Python's: a bool that the trace knows, or a traced one."""

PYTHON: dict[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}
_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(bool): "bool", **{np.dtype(code): "int" for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4")},
    **{np.dtype(code): "float" for code in ("f2", "f4", "f8")}, **{np.dtype(code): "complex" for code in ("c8", "c16")},
}  # fmt: skip
"""The types of Python whose numbers take the dtype of one of NumPy's."""
_DTYPES: dict[str, Any] = {"bool": np.bool_, "int": np.int64, "float": np.float64, "complex": np.complex128}


def python_name(x: TracedArray) -> str:
    """Return the type of Python whose numbers have the dtype of a scalar; empty for an array, and for another dtype."""
    return "" if x.shape or x.is_cell else _NAMES.get(x.dtype, "")


def tag_of(x: TracedArray) -> Tag:
    """Return whether a value is a Python number."""
    if x.weak:
        return True
    return False if x.is_python is None else x.is_python


def is_mixed(x: Any) -> bool:
    """Return whether a value is a number that is Python's or NumPy's, as values decide."""
    return isinstance(x, TracedArray) and x.is_python is not None


def all_python(xs: Iterable[TracedArray]) -> Tag:
    """Return whether all values are Python numbers."""
    result: Tag = True
    for tag in map(tag_of, xs):
        if tag is False:
            return False
        if tag is not True and tag is not result:
            result = tag if result is True else as_traced(emit("bitand", as_tag(result), as_tag(tag)))
    return result


def do_mix(xs: Sequence[TracedArray], dtype: Any) -> bool:
    """Return whether values, of which a path gives one to a number of ``dtype``, are Python's on one path and NumPy's on another:
    some are Python's, or may be, and not all are."""
    if np.dtype(dtype) not in _NAMES or any(x.shape or x.is_cell for x in xs):
        return False
    return any(tag_of(x) is not False for x in xs) and not all(x.weak for x in xs)


def as_tag(tag: Tag) -> TracedArray:
    """Return a tag as a value of the current frame."""
    return as_traced(np.bool_(tag)) if isinstance(tag, bool) else tag


def mixed(x: TracedArray, tag: Tag) -> TracedArray:
    """Return a scalar of NumPy as a number that is Python's where a tag says so. ``x`` is unchanged."""
    result = TracedArray(x.type, x.frame, x._value, literal=x.literal, loc=x.loc)
    result.is_python = as_tag(tag)
    return result


def chosen(condition: TracedArray, result: TracedArray, x: TracedArray, y: TracedArray) -> TracedArray:
    """Return ``result``, which is the number ``x`` where a condition holds and else ``y``, with the tag of the one that it is."""
    if not do_mix((x, y), result.dtype):
        return result
    if x.weak and not y.weak and y.is_python is None:
        return mixed(result, condition)
    if y.weak and not x.weak and x.is_python is None:
        return mixed(result, as_traced(emit("bitnot", condition)))
    return mixed(result, as_traced(emit("select", condition, as_tag(tag_of(x)), as_tag(tag_of(y)))))


def as_python(x: TracedArray) -> TracedArray:
    """Return a mixed number as Python's, for where it is; other values unchanged."""
    if x.is_python is None:
        return x
    kind = _NAMES[x.dtype]
    converted = fresh(cast(as_numpys(x), _DTYPES[kind]))
    converted.weak, converted.known, converted.bounds = kind, None, x.bounds
    return converted


def as_numpys(x: TracedArray) -> TracedArray:
    """Return a mixed number as NumPy's, for where it is; other values unchanged."""
    return x if x.is_python is None else TracedArray(x.type, x.frame, x.value, loc=x.loc)


def is_instance(x: TracedArray, kinds: Any) -> bool | TracedArray:
    """Return whether the value for which a traced array stands is of a class, or of one of some classes."""
    return _answer(x, lambda kind: issubclass(kind, kinds))


def has_attribute(x: TracedArray, name: str) -> bool | TracedArray:
    """Return whether the value for which a traced array stands has an attribute."""
    return _answer(x, lambda kind: hasattr(np.zeros(0) if kind is np.ndarray else kind(0), name))


def _answer(x: TracedArray, test: Callable[[type], bool]) -> bool | TracedArray:
    """Return what a test of a class gives of the value for which a traced array stands."""
    if x.weak:
        return test(PYTHON[x.weak])
    numpys = test(np.ndarray if x.ndim or x.is_cell else x.dtype.type)
    if x.is_python is None:
        return numpys
    pythons = test(PYTHON[_NAMES[x.dtype]])
    if pythons == numpys:
        return pythons
    result = fresh(x.is_python) if pythons else as_traced(emit("bitnot", x.is_python))
    result.weak = "bool"
    return result


class MixedResult:
    """A mixed number as a result of a traced function: its value, and whether a call returns a number of Python."""

    def __init__(self, value: Any, tag: Any) -> None:
        self.value, self.tag = value, tag


def result_of(x: TracedArray) -> Any:
    """Return a value as a result of the traced function: a mixed number as a tree, of which a call makes the number."""
    return x if x.is_python is None else MixedResult(as_numpys(x), as_tag(x.is_python))


def number_of_path(value: Any, tag: Any) -> Any:
    """Return the number of a result, a mixed one in a trace. On a device, and of a batch, it is an array of NumPy's type."""
    if isinstance(value, TracedArray):
        return mixed(value, tag)
    return value.item() if isinstance(tag, np.bool_ | bool) and tag else value


register(
    Container(
        type=MixedResult, flatten=lambda r: ((r.value, r.tag), None), unflatten=lambda _, children: number_of_path(*children)
    )
)


@hook("check_attribute")
def check_attribute(x: TracedArray, name: str) -> None:
    """Emit the check of an attribute that a number of NumPy has, and one of Python has not."""
    kind = _NAMES[x.dtype]
    if x.is_python is not None and not hasattr(PYTHON[kind], name):
        holds, message = emit("bitnot", x.is_python), f"{kind!r} object has no attribute {name!r}"
        emit("check", holds, error="AttributeError", message=message)
