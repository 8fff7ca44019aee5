"""Whether a compiled program of a random test did what NumPy does: values, dtypes, shapes, arguments afterwards, exceptions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

UNCOUNTED = re.compile("boolean array indexing assignment cannot assign|a mask chooses another number|with shape .*\\bn\\b")
"""Errors whose words have a count in NumPy that a compiled program does not know."""
PRECISION = {"e": 2.0**-6, "f": 2.0**-13, "F": 2.0**-13, "d": 2.0**-32, "D": 2.0**-32}
"""What rough values may differ by, for the numbers that went into them."""


class Mismatch(AssertionError):
    """What NumPy and a target disagree on."""


def public(kind: type[Exception]) -> type[Exception]:
    """The class of an exception that a user can name; NumPy's errors of ufuncs have private ones."""
    return next(k for k in kind.__mro__ if "._" not in k.__module__)


def same_error(expected: Exception, result: Any) -> None:
    """Raises Mismatch if what was raised is not what NumPy raises, in its words."""
    words = said(expected), said(result)
    if not isinstance(result, public(type(expected))) or (words[0] != words[1] and not any(map(UNCOUNTED.search, words))):
        raise Mismatch(f"{described(result)}; NumPy: {described(expected)}")


def said(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()


def described(outcome: Any) -> str:
    return f"{type(outcome).__name__}: {outcome}" if isinstance(outcome, Exception) else f"gives {outcome!r}"


def same_values(
    expected: Mapping[str, Any], result: Mapping[str, Any], rough: Mapping[str, float], *, signs: bool = True
) -> None:
    """Raises Mismatch where one of the named values differs. ``rough``: of those that rounding changes, the sizes of the numbers
    that went into them; the others are equal, with ``signs`` also their zeros."""
    chars = [np.asarray(x).dtype.char for x in expected.values()]
    bound = max((PRECISION.get(c, 0.0) for c in chars), default=0.0)
    for name, value in expected.items():
        same(name, value, result[name], bound * (1 + rough[name]) if name in rough else 0.0, bound, signs)


def same(name: str, expected: Any, result: Any, atol: float, rtol: float, signs: bool) -> None:
    e, f = np.asarray(expected), np.asarray(result)
    if (e.dtype, e.shape) != (f.dtype, f.shape):
        raise Mismatch(f"{name} is {f.dtype}{f.shape}; NumPy: {e.dtype}{e.shape}")
    if e.ndim and isinstance(expected, np.ndarray) != isinstance(result, np.ndarray):
        raise Mismatch(f"{name} is a {type(result).__name__}; NumPy: {type(expected).__name__}")
    with np.errstate(all="ignore"):
        if atol:
            is_right = np.allclose(f, e, rtol=rtol, atol=atol, equal_nan=True)
        else:
            is_right = bool(np.array_equal(f, e, equal_nan=e.dtype.kind in "fc"))
            if is_right and signs and e.dtype.kind == "f":
                numbers = ~np.isnan(e)
                is_right = bool(np.array_equal(np.signbit(f)[numbers], np.signbit(e)[numbers]))
    if not is_right:
        raise Mismatch(f"{name} is {f!r}; NumPy: {e!r}")


def outcome(run: Any, *arguments: Any) -> Any:
    """What a call gives, or the exception that it raises."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return run(*arguments)
    except Exception as error:
        return error


def listed(arguments: Sequence[Any]) -> dict[str, Any]:
    """Arrays among the arguments, which a call may write into, by their names."""
    return {f"a{k}": x for k, x in enumerate(arguments) if isinstance(x, np.ndarray)}
