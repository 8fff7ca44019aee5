"""NumPy's own words for what it refuses: where an implementation raises, the function is called on arrays of the same types.

An implementation finds what is wrong by its own formulas, in another order and in other words. What NumPy says depends on shapes,
dtypes and static arguments alone, so that arrays of zeros and ones have it say the same.
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

MOST_ELEMENTS = 1_000_000
"""Of larger arrays no stand-in is made."""
_PYTHON = {"bool": True, "int": 0, "float": 1.0, "complex": 1j}


class _NoStandIn(Exception):
    """A value has none: a function of the user's, sizes that are not known, an array too large."""


@hook("numpys_error")
def numpys_error(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception | None:
    """What NumPy raises for such a call in the place of ``error``, if that is of the same kind or a TypeError."""
    try:
        given = [_stand_in(x) for x in args]
        words = {name: _stand_in(x) for name, x in kwargs.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            function(*given, **words)
    except (ValueError, TypeError, IndexError) as found:
        kind = next(k for k in type(found).__mro__ if "._" not in k.__module__)
        is_alike = isinstance(error, kind) or isinstance(found, type(error))
        return found if is_alike or kind is TypeError else None  # what types decide comes before shapes
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
        if math.prod(shape) > MOST_ELEMENTS:
            raise _NoStandIn
        made = (np.zeros if x.dtype.kind in "iu" else np.ones)(shape, x.dtype)
        return made if shape or x.is_cell else made[()]
    if isinstance(x, list | tuple) and type(x) in (list, tuple):
        return type(x)(_stand_in(e) for e in x)
    if callable(x) and not isinstance(x, type):
        raise _NoStandIn
    return x


def _refuse() -> int:
    raise _NoStandIn
