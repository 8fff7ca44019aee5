"""Numbers that are Python's on one path and NumPy's on another: which of them is a value of the program, a tag.

    q = a[1] if c else q        ->      q = select(c, a[1], q), is_python = not c
    1.0 / q                     ->      check(not is_python or q != 0), ZeroDivisionError

The value of such a mixed number has NumPy's dtype, to which the Python number is converted. An operator of Python numbers and
mixed ones has a mixed result: Python's where all operands are Python's. Where it raises an error for Python's numbers alone, the
check has the tag in its condition. With a number of NumPy the result is NumPy's, without a tag. All other numbers have no tag:
their ``weak`` says what they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.make import as_traced, cast, emit, fresh, full, literal
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Container, register

Condition = bool | TracedArray
"""A condition: a bool that the trace knows, or a traced one."""
Tag = str | TracedArray
"""The type of a number: one that the trace knows, the name of a type of Python or, for a number of NumPy, an empty text; or a
traced value, a bool (the number is of the type of Python that has the dtype, else NumPy's) or one of ``CODES``."""

PYTHON: dict[str, type] = {"bool": bool, "int": int, "float": float, "complex": complex}
CODES: dict[str, int] = {name: k for k, name in enumerate(("", *PYTHON))}
"""The codes of types in traced tags of several types of Python, from the narrowest on; 0 stands for NumPy's."""
_NAMES: dict[np.dtype[Any], str] = {
    np.dtype(bool): "bool", **{np.dtype(code): "int" for code in ("i1", "i2", "i4", "i8", "u1", "u2", "u4")},
    **{np.dtype(code): "float" for code in ("f2", "f4", "f8")}, **{np.dtype(code): "complex" for code in ("c8", "c16")},
}  # fmt: skip
"""The types of Python whose numbers take the dtype of one of NumPy's."""
DTYPES: dict[str, Any] = {"bool": np.bool_, "int": np.int64, "float": np.float64, "complex": np.complex128}


def python_name(x: TracedArray) -> str:
    """Return the type of Python whose numbers have the dtype of a scalar; empty for an array, and for another dtype."""
    return "" if x.shape or x.is_cell else _NAMES.get(x.dtype, "")


def tag_of(x: TracedArray) -> Tag:
    """Return the type of a number. That of an array is NumPy's."""
    return x.weak if x.type_tag is None else x.type_tag


def is_mixed(x: Any) -> bool:
    """Return whether a value is a number of which values decide the type."""
    return isinstance(x, TracedArray) and x.type_tag is not None


def traced_tag(x: TracedArray) -> TracedArray:
    """Return the tag of a mixed number."""
    assert x.type_tag is not None
    return x.type_tag


def is_pythons(x: TracedArray) -> Condition:
    """Return whether a value is a Python number."""
    if x.weak or x.type_tag is None:
        return bool(x.weak)
    return x.type_tag if x.type_tag.dtype == bool else as_traced(emit("ne", x.type_tag, literal(0, np.int8)))


def all_python(xs: Iterable[TracedArray]) -> Condition:
    """Return whether all values are Python numbers."""
    result: Condition = True
    for x in xs:
        holds = is_pythons(x)
        if holds is False:
            return False
        if holds is not True and holds is not result:
            result = holds if result is True else as_traced(emit("bitand", as_condition(result), holds))
    return result


_CODE, _IS_PYTHONS = np.dtype(np.int8), np.dtype(bool)
"""The dtypes of traced tags."""


def tag_type(xs: Sequence[TracedArray], dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype of the tag of a number of ``dtype`` that is one of some, as values decide; None if all have one type,
    which the trace knows.

    It is that of codes if one of them may be of a type of Python that is narrower than that of the dtype.
    """
    own = _NAMES.get(np.dtype(dtype))
    if own is None or any(x.shape or x.is_cell for x in xs):
        return None
    if not any(map(is_mixed, xs)) and len({x.weak for x in xs}) == 1:
        return None
    return _CODE if any(_may_be_narrower(x, own) for x in xs) else _IS_PYTHONS


def _may_be_narrower(x: TracedArray, own: str) -> bool:
    """Return whether a number may be of a type of Python that is narrower than ``own``."""
    tag = tag_of(x)
    if isinstance(tag, str):
        return tag not in ("", own)
    return tag.dtype == _CODE or _NAMES[x.dtype] != own


def as_condition(condition: Condition) -> TracedArray:
    """Return a condition as a value of the current frame."""
    return as_traced(np.bool_(condition)) if isinstance(condition, bool) else condition


def tag_value(x: TracedArray, dtype: Any) -> TracedArray:
    """Return the type of a number as a value of the current frame, of the dtype of traced tags."""
    tag = tag_of(x)
    if isinstance(tag, str):
        return as_traced(_static(tag, dtype))
    return tag if tag.dtype == dtype else _coded(tag, x.dtype)


def column_tags(tags: TracedArray | None, name: str, dtype: Any, shape: Any, kind: Any) -> TracedArray:
    """Return the tags of a column of numbers of ``dtype`` as those of the dtype ``kind``. ``name``: of the column
    (``column_name``)."""
    if tags is not None:
        return tags if tags.dtype == kind else _coded(tags, dtype)
    return full(shape, _static(name, kind), kind)


def _static(name: str, dtype: Any) -> Any:
    """Return the tag of numbers of a type that the trace knows."""
    return np.int8(CODES[name]) if dtype == _CODE else np.bool_(name != "")


def _coded(tags: TracedArray, dtype: Any) -> TracedArray:
    """Return tags of numbers of ``dtype``, which tell whether they are Python's, as codes."""
    return as_traced(cast(tags, _CODE) * literal(CODES[_NAMES[dtype]], _CODE))


def column_name(xs: Sequence[TracedArray], dtype: Any, weak: str) -> str:
    """Return the name of the type of the numbers in a column of ``dtype``: of Python's, empty for NumPy's; with the character of
    the dtype of their tags after a slash if values decide it."""
    kind = tag_type(xs, dtype)
    return weak if kind is None else f"{weak}/{kind.char}"


def tags_named(name: str) -> Any:
    """Return the dtype of the tags of the numbers in a column; None if they have none."""
    _, _, char = name.partition("/")
    return np.dtype(char) if char else None


def mixed(x: TracedArray, tag: TracedArray, weak: str = "") -> TracedArray:
    """Return a scalar as a number of the type that a traced tag says. ``weak``: the widest type, if all are Python's. ``x`` is
    unchanged."""
    result = TracedArray(x.type, x.frame, x._value, weak=weak, literal=x.literal, loc=x.loc)
    result.type_tag = tag
    return result


def chosen(condition: TracedArray, result: TracedArray, x: TracedArray, y: TracedArray) -> TracedArray:
    """Return ``result``, which is ``x`` where a condition holds and else ``y``, with the type of the one that it is."""
    dtype = tag_type((x, y), result.dtype)
    weak = _NAMES[result.dtype] if x.weak and y.weak else ""
    return result if dtype is None else mixed(result, chosen_tag(condition, x, y, dtype), weak)


def chosen_tag(condition: TracedArray, x: TracedArray, y: TracedArray, dtype: Any) -> TracedArray:
    """Return the type of ``x`` where a condition holds, and else that of ``y``, of the dtype of traced tags."""
    if dtype != _CODE and not is_mixed(x) and not is_mixed(y):
        return condition if x.weak else as_traced(emit("bitnot", condition))
    return as_traced(emit("select", condition, tag_value(x, dtype), tag_value(y, dtype)))


_ARITHMETIC = (
    np.add, np.subtract, np.multiply, np.floor_divide, np.remainder, np.power, np.negative, np.positive, np.absolute,
)  # fmt: skip
"""The operators whose result is an int if all operands are bools or ints."""
_BITWISE = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
"""The operators whose result is a bool if all operands are."""
_SIGNED_ZEROS = (np.multiply, np.floor_divide, np.remainder, np.negative)
"""The operators whose result for ints, computed with floats, may be a negative zero."""


def typed(ufunc: np.ufunc, xs: Sequence[TracedArray], result: TracedArray) -> TracedArray:
    """Return the result of an operator on numbers, of which some are mixed, with the type that values decide."""
    where, own = all_python(xs), _NAMES.get(result.dtype, "")
    if where is False or not own:
        return result
    is_arithmetic = ufunc in _ARITHMETIC
    is_coded = all(_may_be_narrower(x, own) for x in xs) and (ufunc in _BITWISE or (is_arithmetic and own not in ("bool", "int")))
    if not is_coded:
        return result if where is True else mixed(result, where)
    codes = [tag_value(x, _CODE) for x in xs]
    code = functools.reduce(lambda a, b: as_traced(emit("maximum", a, b)), codes)
    if is_arithmetic:
        code = as_traced(emit("maximum", code, literal(CODES["int"], np.int8)))
    if ufunc in _SIGNED_ZEROS and own == "float":
        whole = as_traced(emit("add", result, literal(0.0, result.dtype)))
        result = as_traced(emit("select", _is_whole(code), whole, result))
    if ufunc is np.power:
        is_inverse = emit("lt", xs[1], literal(0, xs[1].dtype))
        code = as_traced(emit("select", is_inverse, literal(CODES[own], np.int8), code))
    if where is not True:
        code = as_traced(emit("select", where, code, literal(0, np.int8)))
    return mixed(result, code, own if where is True else "")


def are_whole(xs: Sequence[TracedArray]) -> Condition:
    """Return whether Python numbers are all bools or ints."""
    result: Condition = True
    for x in xs:
        if not is_mixed(x) or traced_tag(x).dtype != _CODE:
            if python_name(x) not in ("bool", "int"):
                return False
            continue
        holds = _is_whole(traced_tag(x))
        result = holds if result is True else as_traced(emit("bitand", as_condition(result), holds))
    return result


def _is_whole(code: TracedArray) -> TracedArray:
    """Return whether the code of a type is that of bools or ints."""
    return as_traced(emit("le", code, literal(CODES["int"], np.int8)))


def as_python(x: TracedArray) -> TracedArray:
    """Return a mixed number as one of the widest type of Python that it may have; other values unchanged."""
    if x.type_tag is None:
        return x
    kind = _NAMES[x.dtype]
    converted = fresh(cast(as_numpys(x), DTYPES[kind]))
    converted.weak, converted.known, converted.bounds = kind, None, x.bounds
    return converted


def as_numpys(x: TracedArray) -> TracedArray:
    """Return a mixed number as NumPy's, for where it is; other values unchanged."""
    return x if x.type_tag is None else TracedArray(x.type, x.frame, x.value, loc=x.loc)


def by_type(x: TracedArray) -> list[TracedArray]:
    """Return a mixed number as a number of each type that it may have, by the values of its tag."""
    result = [as_numpys(x)]
    for name in _pythons(x):
        result.append(fresh(cast(as_numpys(x), DTYPES[name])))
        result[-1].weak, result[-1].known = name, None
    return result


def is_instance(x: TracedArray, kinds: Any) -> bool | TracedArray:
    """Return whether the value for which a traced array stands is of a class, or of one of some classes."""
    return _answer(x, lambda kind: issubclass(kind, kinds))


def has_attribute(x: TracedArray, name: str) -> bool | TracedArray:
    """Return whether the value for which a traced array stands has an attribute."""
    return _answer(x, lambda kind: hasattr(np.zeros(0) if kind is np.ndarray else kind(0), name))


def _answer(x: TracedArray, test: Callable[[type], bool]) -> bool | TracedArray:
    """Return what a test of a class gives of the value for which a traced array stands."""
    if x.type_tag is None:
        return test(PYTHON[x.weak] if x.weak else np.ndarray if x.ndim or x.is_cell else x.dtype.type)
    answers = {name: test(PYTHON[name] if name else x.dtype.type) for name in _possible(x)}
    if len(set(answers.values())) == 1:
        return next(iter(answers.values()))
    tests = [_has_type(x, name) for name in answers if answers[name]]
    result = fresh(functools.reduce(lambda a, b: as_traced(emit("bitor", a, b)), tests))
    result.weak = "bool"
    return result


def _possible(x: TracedArray) -> list[str]:
    """Return the types that a mixed number may have, in the order of their codes."""
    return _pythons(x) if x.weak else ["", *_pythons(x)]


def _pythons(x: TracedArray) -> list[str]:
    """Return the types of Python that a mixed number may have, in the order of their codes."""
    own = _NAMES[x.dtype]
    return list(PYTHON)[: CODES[own]] if traced_tag(x).dtype == _CODE else [own]


def _has_type(x: TracedArray, name: str) -> TracedArray:
    """Return whether a mixed number has a type."""
    tag = traced_tag(x)
    if tag.dtype == _CODE:
        return as_traced(emit("eq", tag, literal(CODES[name], np.int8)))
    return tag if name else as_traced(emit("bitnot", tag))


class MixedResult:
    """A mixed number as a result of a traced function: its value, the tag of the type of the number that a call returns, and the
    widest type if all are Python's."""

    def __init__(self, value: Any, tag: Any, weak: str) -> None:
        self.value, self.tag, self.weak = value, tag, weak


def result_of(x: TracedArray) -> Any:
    """Return a value as a result of the traced function: a mixed number as a tree, of which a call makes the number."""
    return x if x.type_tag is None else MixedResult(as_numpys(x), x.type_tag, x.weak)


def number_of_path(value: Any, tag: Any, weak: str = "") -> Any:
    """Return the number of a result, a mixed one in a trace. On a device, and of a batch, it is an array of NumPy's type."""
    if isinstance(value, TracedArray):
        return mixed(value, tag, weak)
    if isinstance(tag, np.bool_ | bool):
        return value.item() if tag else value
    return _OF_CODES[int(tag)](value) if isinstance(tag, np.int8 | int) else value


def _whole(value: Any) -> Any:
    """Return a whole number as an int of Python; an infinity and NaN as a float."""
    return int(value) if abs(value) < math.inf else value.item()


_OF_CODES: list[Callable[[Any], Any]] = [lambda value: value, bool, _whole, float, complex]

register(
    Container(
        type=MixedResult,
        flatten=lambda r: ((r.value, r.tag), r.weak),
        unflatten=lambda weak, children: number_of_path(children[0], children[1], weak),
    )
)


@hook("check_attribute")
def check_attribute(x: TracedArray, name: str) -> None:
    """Emit the check of an attribute that numbers of some types that a number may have lack, and others have."""
    if x.type_tag is None:
        return
    kinds = {kind: hasattr(PYTHON[kind] if kind else x.dtype.type, name) for kind in _possible(x)}
    for kind in kinds if any(kinds.values()) else ():
        if kind and not kinds[kind]:
            holds, message = emit("bitnot", _has_type(x, kind)), f"{kind!r} object has no attribute {name!r}"
            emit("check", holds, error="AttributeError", message=message)
