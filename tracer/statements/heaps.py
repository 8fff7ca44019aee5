"""The functions of heapq on lists with traced numbers: CPython's algorithms, by the operators of statements.

An element goes up, or down, by loops that end where a comparison of values decides; the elements of a heap that becomes longer or
shorter are rows of arrays, as those of any such list. The order of the elements in the list is that of CPython.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pullback.tracer.arrays.python_scalars import integer
from pullback.tracer.arrays.sequence_comparisons import ordering
from pullback.tracer.arrays.traced import TracedArray, has_rows
from pullback.tracer.statements.branches import and_, choose, is_undecided, not_
from pullback.tracer.statements.choices import truth_of
from pullback.tracer.statements.growing import element_of
from pullback.tracer.statements.items import items_of
from pullback.tracer.statements.loops import for_, while_
from pullback.tracer.syntax import table

_is_less = ordering(operator.lt)


def _sift_down(heap: Any, start: Any, position: Any) -> None:
    """Move the element at a position towards ``start`` until its parent is not greater."""
    element = element_of(heap, position)

    def is_before_parent() -> Any:
        return and_(position > start, lambda: _is_less(element, element_of(heap, (position - 1) >> 1)))

    def move_parent() -> None:
        nonlocal position
        parent = (position - 1) >> 1
        heap[position] = element_of(heap, parent)
        position = parent

    while_(is_before_parent, move_parent, None, ("position",), (), ("position",))
    heap[position] = element


def _sift_up(heap: Any, position: Any) -> None:
    """Move the smaller children of a position up to a leaf, and the element at the position from there to its place."""
    end, start, element = _length(heap), position, element_of(heap, position)
    child = 2 * position + 1

    def has_child() -> Any:
        return child < end

    def move_child() -> None:
        nonlocal position, child
        right = child + 1
        is_right = and_(right < end, lambda: not_(_is_less(element_of(heap, child), element_of(heap, right))))
        child = child + _as_int(is_right)
        heap[position] = element_of(heap, child)
        position = child
        child = 2 * position + 1

    while_(has_child, move_child, None, ("position", "child"), (), ("position", "child"))
    heap[position] = element
    _sift_down(heap, start, position)


def _length(heap: Any) -> Any:
    """Return the number of elements of a list, which values may decide."""
    return heap.length() if has_rows(heap) else list.__len__(heap)


def _as_int(condition: Any) -> Any:
    """Return 1 where a condition holds, and else 0."""
    return integer(condition) if isinstance(condition, TracedArray) else int(truth_of(condition))


@table.operator("heappush")
def _push(heap: Any, item: Any) -> None:
    """Append an element, and move it to its place."""
    heap.append(item)
    _sift_down(heap, 0, _length(heap) - 1)


@table.operator("heappop")
def _pop(heap: Any) -> Any:
    """Remove the least element and return it. Raises IndexError for an empty heap, at run time if values decide it."""
    last = heap.pop()
    return _where_some(heap, lambda: _replaced(heap, last), lambda: last)


@table.operator("heapreplace")
def _replaced(heap: Any, item: Any) -> Any:
    """Return the least element, for which ``item`` is put into the heap."""
    least = element_of(heap, 0)
    heap[0] = item
    _sift_up(heap, 0)
    return least


@table.operator("heappushpop")
def _push_and_pop(heap: Any, item: Any) -> Any:
    """Return the least of an element and those of the heap, which gets the others."""

    def is_less() -> Any:
        return _where_some(heap, lambda: _is_less(element_of(heap, 0), item), lambda: False)

    return choose(is_less(), lambda: _replaced(heap, item), lambda: item)


@table.operator("heapify")
def _heapify(heap: Any) -> None:
    """Make a list a heap."""
    for_(items_of(reversed, items_of(range, _length(heap) // 2)), lambda k: _sift_up(heap, k), None, (), ())


def _where_some(heap: Any, some: Callable[[], Any], none: Callable[[], Any]) -> Any:
    """Return the value of ``some()`` if a list has elements, else of ``none()``."""
    is_some = _length(heap) > 0
    return choose(is_some, some, none) if is_undecided(is_some) else some() if is_some else none()
