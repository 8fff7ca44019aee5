"""The contents of containers that a call changed, for ``pb.jit(verify=n)``: each leaf with what plain Python stored there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.tree import TreeDef, children_of
from pullback.tracer.stores import LONGER, Stores

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
Pair = tuple[str, Any, Any, int | None]
"""The name of a leaf, the compiled and the plain value, and the ordinal of the former among the program's results, or None."""


class Unlike(Exception):
    """Two values have other structures: the name, and a description of each."""


def stored_pairs(stores: Stores, first: int, mine: Arguments, plain: Arguments) -> Iterator[Pair]:
    """Yield the leaves of the containers that a call changed; ``first`` is the ordinal of the first leaf. Raises Unlike."""
    ordinals = itertools.count(first)
    objects = zip(stores.containers(mine), stores.containers(plain), strict=True)
    by_index = dict(enumerate(objects))
    for fill, tree, name in zip(stores.fills, stores.trees, stores.names, strict=True):
        if fill.index in by_index:
            a, b = by_index[fill.index]
            if fill.of is LONGER:
                if len(a) != len(b):
                    raise Unlike(f"{name} afterwards", f"a list of {len(a)}", f"a list of {len(b)}")
                a, b = (x[len(x) - len(tree.children) :] for x in (a, b))
            yield from _pairs(tree, a, b, f"{name} afterwards", ordinals)


def _pairs(tree: TreeDef, a: Any, b: Any, name: str, ordinals: Iterator[int]) -> Iterator[Pair]:
    if type(a) is not type(b):
        raise Unlike(name, f"a {type(a).__name__}", f"a {type(b).__name__}")
    match tree.kind:
        case "leaf":
            yield name, a, b, next(ordinals)
        case "same leaf":
            yield name, a, b, tree.data
        case "object":
            return
        case "static" | "named" if isinstance(a, bool | int | float | complex):
            yield name, a, b, None
        case "static" | "named":
            if not (a is b or a == b):
                raise Unlike(name, repr(a), repr(b))
        case "registered" if isinstance(a, list):
            columns = [next(ordinals) for _ in range(tree.count)]
            if list(map(type, a)) != list(map(type, b)):
                raise Unlike(name, repr(a), repr(b))
            ordinal = columns[0] if len(columns) == 1 else None
            yield name, np.array(a), np.array(b), ordinal
        case "set":
            if a != b:
                raise Unlike(name, repr(a), repr(b))
        case "tuple" | "list" | "dict" | "deque" | "namedtuple" | "dataclass":
            keys, others = _keys(tree, a), _keys(tree, b)
            if keys != others:
                raise Unlike(name, f"{keys}", f"{others}")
            for k, child, x, y in zip(tree.keys, tree.children, children_of(tree, a), children_of(tree, b), strict=True):
                yield from _pairs(child, x, y, f"{name}[{k!r}]", ordinals)
        case _:
            for _ in range(tree.count):
                next(ordinals)


def _keys(tree: TreeDef, value: Any) -> list[Any]:
    """Return the keys of the items of a container."""
    return list(value) if tree.kind == "dict" else list(tree.data) if tree.kind == "dataclass" else list(range(len(value)))
