"""The order of traced numbers, by which lists are sorted: Python's stable order, of tuples by their first difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.make import as_traced, emit, fresh, number_of_extent
from pullback.tracer.arrays.mixed_numbers import tag_type, tag_value
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import bare, flatten, unflatten
from pullback.tracer.arrays.views import root_of
from pullback.tracer.syntax.table import PREFIX, operator_called
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError

ALIAS = "it is an element of a list that is sorted; write into a copy"
NAN = Limit("a list is sorted by keys that are not a number, whose order no comparison decides; replace them, or use np.argsort")
"""The error of a program for NaN among keys: Python's order depends on its algorithm then."""
_ITEMS = "a list of elements of several structures or types is sorted as values decide; make them alike"
_KINDS = "a list is sorted by keys of several structures, or by arrays, as values decide; make the keys alike"


def order_of(columns: Sequence[TracedArray], reverse: Any) -> TracedArray:
    """Return the indices that sort rows of keys, of which ``columns`` are vectors of one length each. ``reverse``: from the
    greatest key on; equal ones stay in their order."""
    if not columns:
        raise TraceError(_KINDS)
    for column in columns:
        if column.dtype.kind in "fc":
            emit("check", as_traced(np.logical_not(np.any(np.isnan(column)))), error="ValueError", message=NAN)
    if reverse:
        columns = [c[::-1] for c in columns]
    order = xp.argsort(columns[0], kind="stable") if len(columns) == 1 else xp.lexsort(tuple(columns[::-1]))
    return as_traced(number_of_extent(columns[0].shape[0]) - 1 - order[::-1]) if reverse else as_traced(order)


def is_undecided_order(keys: Sequence[Any]) -> bool:
    """Return whether values decide the order of keys."""
    leaves = flatten(list(keys))[0]
    return any(isinstance(x, TracedArray) and known_value(x) is None for x in leaves)


def sorted_items(items: Sequence[Any], keys: Sequence[Any], reverse: Any) -> list[Any]:
    """Return items in the order of their keys. Raises TraceError unless the items have one structure and one type, and the keys
    too."""
    order = order_of([column for column, *_ in _columns(_ranked(keys), _KINDS, is_key=True)], reverse)
    freeze(items)
    result = _reordered(items, order)
    freeze(result)
    return result


def _ranked(keys: Sequence[Any]) -> list[Any]:
    """Return keys with numbers of the same order in place of texts."""
    if all(type(x) is str for x in keys):
        ranks = {text: k for k, text in enumerate(sorted(set(keys)))}
        return [ranks[x] for x in keys]
    if all(type(x) is tuple and len(x) == len(keys[0]) for x in keys):
        return list(zip(*map(_ranked, zip(*keys, strict=True)), strict=True))
    return list(keys)


def _reordered(items: Sequence[Any], order: TracedArray) -> list[Any]:
    """Return items of one structure in an order. Tuples may have texts, which become texts of several cases."""
    tree = bare(flatten(items[0])[1])
    if type(items[0]) is tuple and any(bare(flatten(item)[1]) != tree for item in items):
        if all(type(item) is tuple and len(item) == len(items[0]) for item in items):
            return list(zip(*(_reordered(column, order) for column in zip(*items, strict=True)), strict=True))
    if all(type(x) is str for x in items):
        element = operator_called(PREFIX + "element")
        return [element(list(items), fresh(order[k])) for k in range(len(items))]
    columns = _columns(items, _ITEMS)
    rows: list[list[TracedArray]] = [[] for _ in items]
    for column, weak, tags in columns:
        ordered = column[order]
        ordered_tags = None if tags is None else tags[order]
        for k, row in enumerate(rows):
            row.append(fresh(ordered[k]))
            row[-1].weak = weak
            row[-1].type_tag = None if ordered_tags is None else fresh(ordered_tags[k])
    return [unflatten(tree, row) for row in rows]


def freeze(items: Sequence[Any]) -> None:
    """Refuse later writes into arrays in items, which may be others of them."""
    for x in flatten(list(items))[0]:
        if isinstance(x, TracedArray) and (x.shape or x.is_cell):
            for array in (x, root_of(x)):
                array.readonly = array.readonly or ALIAS


def _columns(items: Sequence[Any], what: str, is_key: bool = False) -> list[tuple[TracedArray, str, TracedArray | None]]:
    """Return an array for each leaf of items, with the name of its Python type, and the tags of mixed numbers."""
    flat = [flatten(item) for item in items]
    if any(bare(tree) != bare(flat[0][1]) for _, tree in flat):
        raise TraceError(what)
    columns = []
    for column in zip(*(leaves for leaves, _ in flat), strict=True):
        arrays = [as_traced(x) for x in column]
        tag = tag_type(arrays, arrays[0].dtype)
        kinds = {("" if tag is not None else x.weak, x.dtype, x.shape) for x in arrays}
        if is_key and all(not x.shape for x in arrays):
            kinds = {("", np.dtype(float), ())}
        if len(kinds) > 1 or (is_key and arrays[0].shape):
            raise TraceError(what)
        tags = None if tag is None else as_traced(xp.stack([tag_value(x, tag) for x in arrays]))
        columns.append((as_traced(xp.stack(arrays)), arrays[0].weak if tag is None else "", tags))
    return columns
