"""``next``, ``any`` and ``all`` of generator expressions, which end at an element; ``max`` and ``min`` with a key or a default.

    next((i for i, v in enumerate(x) if v > t), None)    ->    for i, v in enumerate(x):
                                                                   if v > t:
                                                                       return i
                                                               return None
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import has_rows
from pullback.tracer.arrays.value_extents import check_some
from pullback.tracer.functions.python.builtins import index_of_extreme
from pullback.tracer.statements.branches import choose, is_undecided, share
from pullback.tracer.statements.catching import outcome, raise_here
from pullback.tracer.statements.completions import RETURN, Completion, is_code
from pullback.tracer.statements.growing import GrowingList, list_of
from pullback.tracer.statements.items import Items, items
from pullback.tracer.statements.loops import for_
from pullback.tracer.statements.raising import check
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.errors import TraceError

MOST_UNROLLED = 50
"""The most elements whose keys are computed one by one: as many as a select for each takes a tenth of a second to compile."""


@operator("searched")
def searched(iterable: Any, body: Callable[[Any], Any]) -> Completion | None:
    """Run a loop of a search, and return how it ended."""
    return for_(iterable, body, None, (), ())


@operator("search")
def search(
    function: Any, iterable: Any, plain: Callable[[Any], Any], scan: Callable[[Any], Completion | None], *default: Any
) -> Any:  # fmt: skip
    """Return ``function`` of a generator expression: ``next`` with a ``default`` or without, ``any`` or ``all``. ``plain``
    returns the generator that goes over an iterable; ``scan`` goes over it up to the element that decides, which it returns."""
    name = _name_of(function)
    result = _RESULTS.get(name)
    if result is None:
        return function(plain(iterable), *default)
    return result(scan(iterable), *default)


def _name_of(function: Any) -> str:
    """Return the name of a builtin function that is followed in this trace; empty for another one."""
    root = frame_of().root
    if not root.rolls or root.outcomes.follows:
        return ""
    return next((name for name in (*_RESULTS, *_EXTREMES) if function is root.names.builtins[name]), "")


def _next(ended: Completion | None, *default: Any) -> Any:
    """Return the value of the element that was met, or the default. Raises StopIteration if there is neither."""

    met = ended is not None and _is_met(ended)
    if default:
        return default[0] if ended is None else choose(met, lambda: _value(ended), lambda: default[0])
    if is_undecided(met) and (is_known := outcome(met)) is None:
        check(met, StopIteration())
    elif ended is None or not (is_known if is_undecided(met) else met):
        raise_here(StopIteration())
    return _value(ended)


def _value(ended: Completion | None) -> Any:
    """Return the value of the element that was met."""
    assert ended is not None
    share(ended.aliases, ended.value)
    return ended.value


def _any(ended: Completion | None) -> Any:
    """Return whether an element was met."""
    return False if ended is None else _is_met(ended)


def _all(ended: Completion | None) -> Any:
    """Return whether no element was met."""
    return True if ended is None else _as_bool(np.logical_not(_is_met(ended)))


def _is_met(ended: Completion) -> Any:
    met = is_code(ended, RETURN)
    return met if isinstance(met, bool) else _as_bool(met)


def _as_bool(value: Any) -> Any:
    """Return a truth as one of Python's."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    result = as_traced(value)
    result.weak = "bool"
    return result


_RESULTS: dict[str, Callable[..., Any]] = {"next": _next, "any": _any, "all": _all}
_EXTREMES = ("max", "min")


@operator("extreme")
def extreme(function: Any, *arguments: Any, **options: Any) -> Any:
    """Return ``function(*arguments, **options)``: ``max`` or ``min`` with a key or a default."""
    name = _name_of(function)
    if name not in _EXTREMES or len(arguments) != 1 or not options.keys() <= {"key", "default"}:
        return function(*arguments, **options)
    elements = arguments[0]
    if has_rows(elements) and "default" in options:
        default = options.pop("default")
        return choose(elements.length() != 0, lambda: function(elements, **options), lambda: default)
    sequence = items(elements) if options.get("key") is not None and not has_rows(elements) else None
    if sequence is None or (sequence.is_counted and sequence.count <= MOST_UNROLLED):
        return function(*arguments, **options)
    return _by_key(name, sequence, **options)


def _by_key(name: str, sequence: Items, key: Callable[[Any], Any], default: Any = None) -> Any:
    """Return the first item whose key no other beats. ``default``: of no item, of which there is one if the number is known."""
    keys = list_of([])
    if not isinstance(keys, GrowingList):
        refused = TraceError(f"{name} of more than {MOST_UNROLLED} items by a key")
        refused.wants_lists = True
        raise refused
    for_(sequence, lambda item: keys.append(key(item)), None, (), ())
    values = keys.array()
    if values.ndim != 1:
        raise TraceError(f"{name} by a key that is no number; choose by np.argmax or np.argmin of an array")
    check_some(values.shape[0], f"{name}() arg is an empty sequence")
    index = as_traced(index_of_extreme(values, name))
    index.weak = "int"
    return sequence.at(index)
