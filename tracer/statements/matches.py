"""The tests of patterns of ``match`` statements, and the parts of what they match (``tracer/syntax/patterns.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.tracer.arrays import mixed_numbers
from pullback.tracer.arrays.concretize import any_value
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.statements.choices import Choice, by_cases, narrowed
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.errors import TraceError

_WHOLE = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
"""The classes whose one positional pattern is of the object itself."""


@operator("sequence")
def is_sequence(value: Any, count: int, is_least: bool = False) -> Any:
    """Return whether a value is a sequence of ``count`` items, or of at least this number, as a pattern of ``match`` takes it."""
    value = narrowed(value)
    if isinstance(value, Choice):
        return by_cases(value, lambda case: is_sequence(case, count, is_least))
    if isinstance(value, TracedArray) or not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        return False
    return len(value) >= count if is_least else len(value) == count


@operator("starred")
def starred(value: Any, start: int, end: int) -> list[Any]:
    """Return the items for the star of a pattern: from ``start`` on, without the last ``-end``."""
    items = list(narrowed(value))
    return items[start:end] if end else items[start:]


@operator("mapping")
def is_mapping(value: Any, *keys: Any) -> Any:
    """Return whether a value is a mapping with keys."""
    value = narrowed(value)
    if isinstance(value, Choice):
        return by_cases(value, lambda case: is_mapping(case, *keys))
    return isinstance(value, Mapping) and all(key in value for key in keys)


@operator("rest")
def rest(value: Any, *keys: Any) -> dict[Any, Any]:
    """Return the items of a mapping whose keys are others."""
    result = dict(narrowed(value))
    for key in keys:
        del result[key]
    return result


@operator("instance")
def is_instance(value: Any, kind: Any, count: int, *names: str) -> Any:
    """Return whether a value is of a class, and has the attributes that ``count`` positional patterns and ``names`` read.

    Raises TypeError for too many positional patterns, as Python does.
    """
    value = narrowed(value)
    if isinstance(value, Choice):
        return by_cases(value, lambda case: is_instance(case, kind, count, *names))
    if not isinstance(kind, type):
        raise TypeError("called match pattern must be a class")
    example = any_value(value) if isinstance(value, TracedArray) else value
    is_kind = mixed_numbers.is_instance(value, kind) if mixed_numbers.is_mixed(value) else isinstance(example, kind)
    if is_kind is False:
        return False
    if isinstance(value, TracedArray) and (names or (count and kind not in _WHOLE)):
        raise TraceError("a pattern of a class that reads attributes of a traced value; test the values instead")
    listed = () if kind in _WHOLE else getattr(kind, "__match_args__", ())
    if count > (1 if kind in _WHOLE else len(listed)):
        raise TypeError(f"{kind.__name__}() accepts {len(listed)} positional sub-patterns ({count} given)")
    return all(hasattr(value, name) for name in (*listed[:count], *names)) and is_kind


@operator("positional")
def positional(value: Any, kind: Any, index: int) -> Any:
    """Return what a positional pattern of a class is of."""
    value = narrowed(value)
    return value if kind in _WHOLE else getattr(value, kind.__match_args__[index])
