"""The call of any function, as the reports take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.api import jit
from pullback.inspected import Inspected
from pullback.inspection.call import Call


def examine(function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Call:
    """The call of a function, transformed or not."""
    return (function if isinstance(function, Inspected) else jit(function)).examine(args, kwargs)
