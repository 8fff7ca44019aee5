"""Arrays that a loop carries under several names, which change from one iteration to the next.

    for _ in range(n):                     carried: %old, %new, which start as the arrays of before the loop
        new[1:] = old[:-1] + old[1:]       %new is written: who reads the array that ``new`` was before the loop is refused
        old, new = new, old                ``old`` gets the array of ``new``, and the other way round: never one array

A loop carries the contents of arrays. This is what Python does if an array that an iteration writes has no other name that is
read later. Each carried array may be one of those that flow into its name: the one of before the loop, and those that an
iteration binds to it. What may be one array is noted (``views.may_be``), so that a write under one name makes the contents under
the other names unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.views import CONFLICT, forget, may_be, may_be_one, root_of, sources_of
from pullback.tracer.user_code.errors import TraceError

Position = tuple[int, int]
"""The index of a carried variable, and of an array in it."""
Pair = frozenset[Position]
Arrays = Mapping[Position, Sequence[TracedArray]]


class LoopAliases:
    """What the carried arrays of a loop may be at the start of an iteration: each one of its ``origins``, arrays from outside,
    and two of ``pairs`` the same array; and after an iteration: ``end_origins``, ``end_pairs``. ``readonly``: why some may not be
    written, such as elements of lists."""

    def __init__(self) -> None:
        self.origins: dict[Position, list[TracedArray]] = {}
        self.pairs: set[Pair] = set()
        self.end_origins: dict[Position, list[TracedArray]] = {}
        self.end_pairs: set[Pair] = set()
        self.readonly: dict[Position, str] = {}

    def enter(self, entry: Arrays, inside: Arrays) -> None:
        """Note what the parameters of an iteration may be."""
        origins = {p: [*map(root_of, arrays), *self.origins.get(p, ())] for p, arrays in entry.items()}
        _note(inside, origins, self.pairs)
        for p, xs in inside.items():
            for x in xs:
                x.sources, x.readonly = (), self.readonly.get(p, "")

    def leave(self, results: Arrays, runs: bool) -> None:
        """Note what the arrays after the loop may be. ``runs``: there is an iteration in any case."""
        origins, pairs = (self.end_origins, self.end_pairs) if runs else (self.origins, self.pairs)
        _note(results, origins, pairs)
        for p, xs in results.items():
            for x in xs:
                x.sources, x.readonly = (x, *x.sources), x.readonly or self.readonly.get(p, "")

    def note_same(self, entry: Arrays, results: Arrays, is_empty: Callable[[], TracedArray]) -> None:
        """Note that an array after the loop is the one before it if the loop ``is_empty``, unless iterations lead to that."""
        for p, xs in results.items():
            before = [root_of(x) for x in entry.get(p, ())]
            if len(xs) == len(before) == 1 and xs[0].base is None and not xs[0].same_as:
                x, y = xs[0], before[0]
                if not _holds(self.end_origins.get(p, ()), before) and y.literal is None:
                    others = ((z, as_traced(np.logical_and(is_empty(), when))) for z, when in y.same_as)
                    x.same_as = ((y, is_empty()), *(pair for pair in others if not _holds(self.end_origins.get(p, ()), pair[:1])))

    def learn(self, entry: Arrays, inside: Arrays, after: Arrays, inner: Frame) -> bool:
        """Find what flows into each name, from its arrays before the loop and after an iteration. Return whether this is more
        than was known."""
        parameters = {id(x): p for p, arrays in inside.items() for x in arrays}
        ends = {p: _distinct([y for x in arrays for y in sources_of(x)]) for p, arrays in after.items()}
        flows = {p: {parameters[id(x)] for x in xs if id(x) in parameters} for p, xs in ends.items()}
        frames = [] if inner.parent is None else list(inner.parent.outward)
        bound = {p: [x for x in xs if x.frame in frames] for p, xs in ends.items()}
        outside = [x for xs in bound.values() for x in xs]
        direct = _pairs(after)
        origins, pairs = {p: list(map(root_of, arrays)) for p, arrays in entry.items()}, _pairs(entry)
        while True:
            end_origins = {p: _distinct([*bound[p], *(x for q in flows[p] for x in origins.get(q, ()))]) for p in ends}
            end_pairs = direct | {frozenset((p, q)) for p in ends for q in ends if p < q and _crosses(flows[p], flows[q], pairs)}
            end_pairs |= _pairs({p: [x for x in xs if _holds(outside, (x,))] for p, xs in end_origins.items()})
            both = {p: _distinct([*origins[p], *end_origins.get(p, ())]) for p in origins}
            if end_pairs <= pairs and all(len(both[p]) == len(origins[p]) for p in origins):
                break
            origins, pairs = both, pairs | end_pairs
        is_more = not pairs <= self.pairs or any(not _holds(self.origins.get(p, ()), xs) for p, xs in origins.items())
        self.origins, self.pairs = origins, pairs
        self.end_origins, self.end_pairs = end_origins, end_pairs
        return is_more

    def learn_readonly(self, after: Arrays) -> bool:
        """Find which names get arrays that may not be written. Return whether this is more than was known."""
        reasons = {p: y.readonly for p, xs in after.items() for x in xs for y in (root_of(x), *sources_of(x)) if y.readonly}
        is_more = not reasons.keys() <= self.readonly.keys()
        self.readonly = reasons | self.readonly
        return is_more

    def exchanged(self, entry: Arrays, inside: Arrays) -> list[Position]:
        """Return the positions whose arrays from before the loop iterations may exchange, if these write one, so that each array
        has one name at any time; none if this is not so."""
        names = {id(x): p for p, arrays in entry.items() for x in arrays if x.base is None and not x.readonly}
        group = [p for p in inside if any(y.version for y in inside[p])]
        for p in group:
            origins = self.origins.get(p, ())
            if any(id(x) not in names for x in origins) or any(p in pair for pair in self.pairs):
                return []
            group += [q for x in origins if (q := names[id(x)]) not in group]
            group += [q for q in inside if q not in group and any(_holds(origins, (y,)) for y in self.origins.get(q, ()))]
        is_alike = len({str(inside[p][0].type) for p in group}) == 1 and all(len(entry[p]) == 1 for p in group)
        return sorted(group) if is_alike else []

    def written(self, inside: Arrays) -> list[TracedArray]:
        """Return the arrays from outside that iterations may have written through the carried ones."""
        return _distinct([x for p, arrays in inside.items() if any(y.version for y in arrays) for x in self.origins.get(p, ())])


def same_when(x: TracedArray, y: TracedArray) -> Any:
    """Return the condition under which an array is another one, True or False if it is known; None if nothing is known in the
    current frame."""
    if x is y:
        return True
    frames = [None, *frame_of().outward]
    known = next((when for z, when in x.same_as if z is y and when.frame in frames), None)
    return known if known is not None or may_be_one(x, y) else False


def either(test: TracedArray, x: Any, y: Any) -> TracedArray:
    """Return ``x if test else y`` of two conditions."""
    if x is True and y is False:
        return as_traced(test != 0)
    return as_traced(np.where(test != 0, x, y))


def _note(arrays: Arrays, origins: Arrays, pairs: Iterable[Pair]) -> None:
    """Note what carried arrays, parameters or results, may be."""
    single = {p: root_of(xs[0]) for p, xs in arrays.items()}
    related = [(single[p], single[q]) for p, q in map(tuple, pairs) if p in single and q in single]
    may_be([(x, origins.get(p, ())) for p, x in single.items()], related)


def _pairs(arrays: Arrays) -> set[Pair]:
    """Return the positions of which arrays may have common elements."""
    return {
        frozenset((p, q)) for p in arrays for q in arrays if p < q and any(may_be_one(x, y) for x in arrays[p] for y in arrays[q])
    }


def _crosses(sources: Iterable[Position], others: Iterable[Position], pairs: set[Pair]) -> bool:
    """Return whether one of some positions may have the array of another one of others."""
    return any(frozenset((a, b)) in pairs for a in sources for b in others if a != b)


def are_exchanged(after: Arrays, group: Iterable[Position]) -> bool:
    """Return whether the arrays after an iteration are those of before it, under other names."""
    return all(len(after[p]) == 1 and after[p][0].base is None and after[p][0].tag is not None for p in group)


def selected(index: int, tags: Sequence[TracedArray], values: Sequence[TracedArray]) -> TracedArray:
    """Return the value whose tag is an index."""
    result = values[-1]
    for tag, value in zip(tags[-2::-1], values[-2::-1], strict=True):
        result = as_traced(np.where(tag == index, value, result))
    return result


def chosen(tag: TracedArray, values: Sequence[TracedArray]) -> TracedArray:
    """Return the value whose index is a tag."""
    result = values[-1]
    for k in range(len(values) - 2, -1, -1):
        result = as_traced(np.where(tag == k, values[k], result))
    return result


def refuse_read(arrays: Sequence[TracedArray], inner: Frame) -> None:
    """Raise TraceError if one of the arrays from outside, which iterations may write under other names, is read in them."""
    if any(id(x) in inner.arrays_read for x in arrays):
        raise TraceError(CONFLICT)


def forget_all(arrays: Sequence[TracedArray]) -> None:
    """Make the contents of arrays unknown."""
    for x in arrays:
        forget(x)


def _distinct(arrays: Sequence[TracedArray]) -> list[TracedArray]:
    return list({id(x): x for x in arrays}.values())


def _holds(known: Sequence[TracedArray], xs: Sequence[TracedArray]) -> bool:
    return all(any(x is y for y in known) for x in xs)
