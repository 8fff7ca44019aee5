"""Classes of patterns in functions without source (``case float():``), which match the values for which traced ones stand."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pullback.tracer.arrays.mixed_numbers import PYTHON, is_instance
from pullback.tracer.arrays.number_types import MATCHED
from pullback.tracer.arrays.traced import TracedArray

_PYTHONS = tuple(PYTHON.values())


class _Matched(type):
    """The class of replacements of classes: they have the instances of ``kind``."""

    kind: type

    def __instancecheck__(cls, value: Any) -> bool:
        return bool(is_instance(value, cls.kind) if isinstance(value, TracedArray) else isinstance(value, cls.kind))


@functools.cache
def _replacement(kind: type) -> type:
    """Return the replacement of a class. Its base decides whether a positional pattern is of the object itself."""
    base = int if kind is bool else kind if kind in _PYTHONS else object
    name = kind.__name__ if kind in _PYTHONS else f"{kind.__module__}.{kind.__name__}"  # as errors of patterns show it
    return _Matched(name, (base,), {"kind": kind})


def matched(value: Any) -> Any:
    """Return the replacement of a class of numbers or arrays in a pattern; other values unchanged."""
    is_class = isinstance(value, type) and (value in _PYTHONS or issubclass(value, np.generic | np.ndarray))
    return _replacement(value) if is_class else value


def matched_builtins() -> dict[str, type]:
    """Return the replacements of Python's classes of numbers in patterns, by the names that load them."""
    return {kind.__name__ + MATCHED: matched(kind) for kind in _PYTHONS}
