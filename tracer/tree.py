"""Nested containers as a flat list of leaves and a structure that can be compared, hashed and filled again.

Containers are tuples, lists, dicts (with their order), namedtuples and dataclasses. Leaves are NumPy arrays and scalars,
Python numbers and traced arrays; every other value is static and part of the structure. Static values are equal if they
have one type and one value: 1, 1.0 and True are three, 0.0 and -0.0 two.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.tracer.array import TracedArray
from pullback.tracer.errors import TraceError

_NUMBERS = (bool, int, float, complex)
_LEAVES = frozenset({np.ndarray, TracedArray, *_NUMBERS})


class Identity:
    """Compares by the identity of what it holds."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class TreeDef:
    """The structure of a tree. ``kind``: "leaf", "static", "named" (static by the user's word) or of a container."""

    __slots__ = ("_hash", "children", "count", "data", "key", "kind", "type")

    def __init__(self, kind: str, type: Any = None, data: Any = None, key: Any = None, children: Sequence[TreeDef] = ()) -> None:
        self.kind = kind
        self.type = type
        self.data = data
        self.key = (kind, type, key)
        self.children = tuple(children)
        self.count: int = 1 if kind == "leaf" else sum([c.count for c in self.children])
        self._hash = hash((self.key, self.children))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TreeDef) or self._hash != other._hash:
            return False
        return self.key == other.key and self.children == other.children

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.kind == "leaf":
            return "*"
        if self.kind in ("static", "named"):
            return repr(self.data)
        keys = self.data[0] if self.kind == "dict" else self.data or ()
        inside = self.children if not self.data else [f"{k}={c!r}" for k, c in zip(keys, self.children)]
        return f"{self.type.__name__}({', '.join(map(str, inside))})"


LEAF = TreeDef("leaf")


def static_key(value: Any, by_identity: bool = True) -> Any:
    """What two static values share if they are the same. Raises TraceError for a value that cannot be hashed.

    ``by_identity``: objects with state of their own are the same only if they are one object.
    """
    if isinstance(value, float | complex):
        return type(value), repr(value)
    if isinstance(value, tuple | frozenset):
        return type(value), type(value)(map(static_key, value)) if type(value) in (tuple, frozenset) else value
    if isinstance(value, slice):
        return slice, static_key((value.start, value.stop, value.step))
    if by_identity and hasattr(value, "__dict__") and not isinstance(value, type):
        return Identity(value)
    try:
        hash(value)
    except TypeError:
        raise TraceError(
            f"a value of type {type(value).__name__} cannot be a static argument: it has no hash; "
            "pass arrays, numbers, or containers of them"
        ) from None
    return type(value), value


def static(value: Any) -> TreeDef:
    """The structure of one static value."""
    return TreeDef("static", None, value, static_key(value))


def named(value: Any) -> TreeDef:
    """The structure of a value that the user declared static: compared by its own equality."""
    return TreeDef("named", None, value, static_key(value, by_identity=False))


def is_leaf(x: Any) -> bool:
    return type(x) in _LEAVES or isinstance(x, np.generic | np.ndarray | TracedArray)


def flatten(tree: Any, *, static_numbers: bool = False) -> tuple[list[Any], TreeDef]:
    """Leaves and structure of a tree; ``static_numbers`` makes Python numbers part of the structure.

    Raises TraceError on a static value without a hash.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, static_numbers)


def _flatten(x: Any, leaves: list[Any], static_numbers: bool) -> TreeDef:
    kind = type(x)
    if (kind in _LEAVES or is_leaf(x)) and not (static_numbers and kind in _NUMBERS):
        leaves.append(x)
        return LEAF
    if kind is tuple or kind is list:
        return TreeDef(kind.__name__, kind, children=[_flatten(e, leaves, static_numbers) for e in x])
    if kind in (dict, OrderedDict, defaultdict):
        keys = tuple(x)
        extra = x.default_factory if kind is defaultdict else None
        key = keys if all(type(k) is str for k in keys) else static_key(keys)
        children = [_flatten(x[k], leaves, static_numbers) for k in keys]
        return TreeDef("dict", kind, (keys, extra), (key, extra), children)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return TreeDef("namedtuple", kind, x._fields, children=[_flatten(e, leaves, static_numbers) for e in x])
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = tuple(f.name for f in dataclasses.fields(x))
        children = [_flatten(getattr(x, n), leaves, static_numbers) for n in names]
        return TreeDef("dataclass", kind, names, names, children)
    return static(x)


def unflatten(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """The tree with these leaves, in containers of the same types."""
    rest = iter(leaves)
    found = _unflatten(tree, rest)
    if next(rest, None) is not None:
        raise ValueError(f"{len(leaves)} leaves for a structure of {tree.count}")
    return found


def _unflatten(tree: TreeDef, leaves: Any) -> Any:
    match tree.kind:
        case "leaf":
            return next(leaves)
        case "static" | "named":
            return tree.data
        case "tuple" | "list":
            return tree.type(_unflatten(c, leaves) for c in tree.children)
    children = [_unflatten(c, leaves) for c in tree.children]
    match tree.kind:
        case "dict":
            keys, extra = tree.data
            pairs = zip(keys, children, strict=True)
            return defaultdict(extra, pairs) if tree.type is defaultdict else tree.type(pairs)
        case "namedtuple":
            return tree.type(*children)
    made = object.__new__(tree.type)
    for name, child in zip(tree.data, children, strict=True):
        object.__setattr__(made, name, child)
    return made


def paths(tree: TreeDef, prefix: str = "") -> list[str]:
    """For each leaf, where it stands: names and positions joined by underscores."""
    if tree.kind == "leaf":
        return [prefix]
    keys: Sequence[Any] = range(len(tree.children))
    if tree.kind == "dict":
        keys = tree.data[0]
    elif tree.kind in ("namedtuple", "dataclass"):
        keys = tree.data
    return [p for k, c in zip(keys, tree.children) for p in paths(c, f"{prefix}_{k}" if prefix else str(k))]


def map_statics(tree: TreeDef, change: Any) -> TreeDef:
    """The structure with ``change(value)`` in place of each static value; for filling only, not for comparing."""
    if tree.kind == "static":
        changed = change(tree.data)
        return tree if changed is tree.data else TreeDef("static", None, changed, Identity(changed))
    if tree.kind in ("leaf", "named"):
        return tree
    children = [map_statics(c, change) for c in tree.children]
    if all(a is b for a, b in zip(children, tree.children)):
        return tree
    return TreeDef(tree.kind, tree.type, tree.data, tree.key[2], children)


def leaf_key(x: Any) -> Any:
    """What a program depends on in a leaf: dtype, shape and memory order of an array, the type of a scalar.

    Memory order is "c" (row-major, dense, aligned, native bytes) or "strided".
    """
    kind = type(x)
    if kind in _NUMBERS:
        return kind
    if isinstance(x, np.ndarray):
        flags = x.flags
        return x.dtype, x.shape, "c" if flags.c_contiguous and flags.aligned and x.dtype.isnative else "strided"
    return (x.dtype,)


def same_container(x: Any, tree: Any) -> bool:
    """Whether two containers have one type, one length and, for dicts, the same keys in the same order."""
    if type(x) is not type(tree) or len(x) != len(tree):
        return False
    return not isinstance(x, Mapping) or all(static_key(a) == static_key(b) for a, b in zip(x, tree))
