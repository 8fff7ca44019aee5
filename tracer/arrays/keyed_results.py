"""Dicts and sets as results of a traced function: trees of their elements, of which a call makes them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Container, flatten, register
from pullback.tracer.user_code.errors import TraceError


class KeyedResult:
    """A dict or set as a result of a traced function: a tree of its elements, of which a call makes it."""

    def __init__(self, elements: Any, kind: Any) -> None:
        self.elements, self.kind = elements, kind


def container_of_elements(kind: Any, elements: Sequence[Any]) -> Any:
    """Return the dict or set of a kind, a class and the function of a default value, that has some elements."""
    own, factory = kind
    if own is defaultdict:
        return defaultdict(factory, elements)
    return own(dict(elements) if own is Counter else elements)


def _result_of(kind: Any, children: Sequence[Any]) -> Any:
    """Return the dict or set of a result. Raises TraceError in a trace."""
    if any(isinstance(x, TracedArray) for x in flatten(list(children[0]))[0]):
        raise TraceError("a dict or set whose keys values decide is a result inside a traced function; return arrays")
    return container_of_elements(kind, children[0])


register(Container(type=KeyedResult, flatten=lambda r: ((r.elements,), r.kind), unflatten=_result_of))


def result_of_counter(counter: Counter[Any]) -> KeyedResult:
    """Return a ``Counter`` as a result."""
    return KeyedResult(list(counter.items()), (Counter, None))
