"""Structures that hold what either of two trees holds, with choices where these differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import LEAF, TreeDef, bare, container_of, flatten
from pullback.tracer.statements.choices import MOST_CASES, Choice, is_static
from pullback.tracer.transforms.region import rebuild
from pullback.tracer.user_code.errors import TraceError

_UNMATCHED = "a variable of a loop on traced values has objects of other structures in each iteration; use tuples of numbers"


def merged(a: TreeDef, b: TreeDef) -> TreeDef | None:
    """Return the structure of a tree that is either of two; None if there is none."""
    if a == b:
        return a
    if not _is_choice(a) and not _is_choice(b):
        alike = _merged_alike(a, b)
        if alike is not None:
            return alike
    cases = list(_cases(a))
    for case in _cases(b):
        index, case_merged = _match(cases, case)
        if index is None:
            cases.append(case)
        else:
            cases[index] = case_merged
    if len(cases) > MOST_CASES or not all(map(_is_case, cases)):
        return None
    container = container_of(Choice)
    return TreeDef("registered", Choice, (container, None), (container, (type(None), None)), [LEAF, *cases])


def spread(tree: TreeDef, leaves: Sequence[TracedArray], into: TreeDef) -> list[TracedArray | None]:
    """Return the leaves of a tree as those of a structure that ``merged`` returned for its own, with None for each leaf of a case
    that the tree is not."""
    if tree == into:
        return list(leaves)
    if not _is_choice(into):
        out: list[TracedArray | None] = []
        start = 0
        for own, child in zip(tree.children, into.children, strict=True):
            out += spread(own, leaves[start : start + own.count], child)
            start += own.count
        return out
    rows: list[list[TracedArray | None]] = [[None] * c.count for c in _cases(into)]
    positions = []
    start = 1 if _is_choice(tree) else 0
    for case in _cases(tree):
        index, _ = _match(_cases(into), case)
        assert index is not None
        rows[index] = spread(case, leaves[start : start + case.count], _cases(into)[index])
        positions.append(index)
        start += case.count
    tag = _moved(leaves[0], positions) if _is_choice(tree) else as_traced(np.int64(positions[0]))
    tag.weak = "int"
    return [tag, *(x for row in rows for x in row)]


def _moved(tag: TracedArray, positions: Sequence[int]) -> TracedArray:
    """Return the tag of a choice whose case ``k`` is case ``positions[k]`` of another one."""
    if list(positions) == list(range(len(positions))):
        return tag
    result: Any = np.int64(positions[-1])
    for k in range(len(positions) - 2, -1, -1):
        result = np.where(tag == k, np.int64(positions[k]), result)
    return as_traced(result)


def _is_choice(tree: TreeDef) -> bool:
    return tree.kind == "registered" and tree.type is Choice


def _cases(tree: TreeDef) -> Sequence[TreeDef]:
    return tree.children[1:] if _is_choice(tree) else (tree,)


def _is_case(tree: TreeDef) -> bool:
    return tree.kind != "static" or is_static(tree.data)


def _match(cases: Sequence[TreeDef], case: TreeDef) -> tuple[int | None, TreeDef]:
    """Return the index of the case of a choice that another one is, and both as one; None if it is a case of its own."""
    for k, other in enumerate(cases):
        both = other if other == case else _merged_alike(other, case)
        if both is not None:
            return k, both
    return None, case


def _merged_alike(a: TreeDef, b: TreeDef) -> TreeDef | None:
    """Return the structure of containers of one class and keys; None for others."""
    if not a.children or len(a.children) != len(b.children) or a.key != b.key:
        return None
    children = [merged(x, y) for x, y in zip(a.children, b.children)]
    if any(c is None for c in children):
        return None
    return TreeDef(a.kind, a.type, a.data, a.key[2], [c for c in children if c is not None])


def restructured(value: Any, into: TreeDef, others: Any) -> Any:
    """Return a tree in a structure that ``merged`` returned for its own; ``others``: a tree that has the leaves of the cases that
    this one is not, or arrays of their types."""
    leaves, tree = flatten(value)
    fallback, other = flatten(others)
    row = spread(bare(tree), list(map(as_traced, leaves)), into)
    missing = spread(bare(other), list(map(as_traced, fallback)), into)
    if len(row) != len(missing):
        raise TraceError(_UNMATCHED)
    return rebuild(into, [y if x is None else x for x, y in zip(row, missing, strict=True)])
