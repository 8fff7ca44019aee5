"""NumPy's own error messages: where an implementation raises, NumPy's function is called on arrays of the same types.

An implementation detects errors by its own formulas, in another order and with other messages. NumPy's errors depend on
shapes, dtypes and static arguments alone, so arrays of zeros and ones raise the same.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import TracedArray

MAX_ELEMENTS = 1_000_000
"""Largest array, in elements, for which a stand-in is allocated."""
_PYTHON = {"bool": True, "int": 0, "float": 1.0, "complex": 1j}


class _NoStandIn(Exception):
    """Raised for a value without a stand-in: a user's function, an unknown size, an array too large."""


@hook("numpys_error")
def numpys_error(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception | None:
    """Return NumPy's exception for such a call if it is of the kind of ``error`` or a TypeError, else None."""
    try:
        positional = [_stand_in(x) for x in args]
        keywords = {name: _stand_in(x) for name, x in kwargs.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            function(*positional, **keywords)
    except (ValueError, TypeError, IndexError) as raised:
        kind = next(k for k in type(raised).__mro__ if "._" not in k.__module__)
        is_alike = isinstance(error, kind) or isinstance(raised, type(error))
        return raised if is_alike or kind is TypeError else None  # NumPy checks types before shapes
    except Exception:
        return None
    return None


def _stand_in(x: Any) -> Any:
    if isinstance(x, TracedArray):
        known = known_value(x)
        if known is not None:
            return np.array(known[0]) if x.is_cell else known[0]
        if x.literal is not None:
            return x.literal
        if x.weak:
            return _PYTHON[x.weak]
        shape = tuple(int(n) if type(n) is int else _refuse() for n in x.shape)
        if math.prod(shape) > MAX_ELEMENTS:
            raise _NoStandIn
        array = (np.zeros if x.dtype.kind in "iu" else np.ones)(shape, x.dtype)
        return array if shape or x.is_cell else array[()]
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(_stand_in(e) for e in x)
    if callable(x) and not isinstance(x, type):
        raise _NoStandIn
    return x


def _refuse() -> int:
    raise _NoStandIn
