"""Convert the trees of an exported function to data and back: the arguments and results that ``pb.load`` reads.

Nothing is imported or evaluated when data is read: a namedtuple becomes an instance of a new class, and a structure that only
its own class can build is not supported.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

from pullback.tracer import TreeDef
from pullback.tracer.arrays.mixed_numbers import MixedResult, number_of_path

Data = Any
PLAIN = (str, int, float, bool, type(None))
"""Types of static values and keys that can be stored."""


class NotData(Exception):
    """A structure that needs a class of the user's; ``args[0]`` names it."""


def tree_data(tree: TreeDef) -> Data:
    """Return a structure as lists, for JSON. Raises NotData."""
    children = [tree_data(c) for c in tree.children]
    match tree.kind:
        case "leaf":
            return ["leaf"]
        case "tuple" | "list":
            return [tree.kind, children]
        case "dict" if all(type(key) in PLAIN for key in tree.keys):
            return ["dict", list(tree.keys), children]
        case "namedtuple":
            return ["namedtuple", tree.type.__name__, list(tree.keys), children]
        case "registered" if tree.type is MixedResult:
            return ["number", children]
        case "static" | "named" if type(tree.data) in PLAIN:
            return ["static", tree.data]
        case "static" | "named" if type(tree.data) is tuple:
            return ["tuple", [tree_data(TreeDef("static", None, part)) for part in tree.data]]
        case "static" | "named":
            raise NotData(f"a {type(tree.data).__name__}")
    raise NotData(f"a {tree.type.__name__}")


def builder(data: Data) -> Callable[[Iterator[Any]], Any]:
    """Return a function that builds the tree of data from its leaves."""
    match data:
        case ["leaf"]:
            return next
        case ["static", value]:
            return lambda leaves: value
        case ["number", _]:
            return lambda leaves: number_of_path(next(leaves), next(leaves))
        case ["tuple", list(children)]:
            parts = [builder(c) for c in children]
            return lambda leaves: tuple([part(leaves) for part in parts])
        case ["list", list(children)]:
            parts = [builder(c) for c in children]
            return lambda leaves: [part(leaves) for part in parts]
        case ["dict", list(keys), list(children)]:
            pairs = [(key, builder(c)) for key, c in zip(keys, children, strict=True)]
            return lambda leaves: {key: part(leaves) for key, part in pairs}
        case ["namedtuple", str(name), list(fields), list(children)]:
            cls: Any = namedtuple(name, fields)  # type: ignore[misc]
            parts = [builder(c) for c in children]
            return lambda leaves: cls(*[part(leaves) for part in parts])
    raise ValueError(f"no structure: {data!r}")


def append_leaves(data: Data, value: Any, path: str, leaves: list[tuple[str, Any]]) -> None:
    """Append the leaves of a value that has this structure, with their paths. Raises TypeError for another structure."""
    match data:
        case ["leaf"]:
            leaves.append((path, value))
        case ["static", expected]:
            if type(value) is not type(expected) or value != expected:
                raise TypeError(f"{path} is {value!r}: the function was exported for {expected!r}")
        case ["tuple" | "list" as kind, children]:
            if not isinstance(value, tuple if kind == "tuple" else list) or len(value) != len(children):
                raise TypeError(f"{path} is {_description(value)}: a {kind} of {len(children)} is expected")
            for k, (child, part) in enumerate(zip(children, value, strict=True)):
                append_leaves(child, part, f"{path}[{k}]", leaves)
        case ["dict", keys, children]:
            if not isinstance(value, dict) or set(value) != set(keys):
                raise TypeError(f"{path} is {_description(value)}: a dict with keys {keys} is expected")
            for key, child in zip(keys, children, strict=True):
                append_leaves(child, value[key], f"{path}[{key!r}]", leaves)
        case ["namedtuple", _, fields, children]:
            if getattr(value, "_fields", None) != tuple(fields):
                raise TypeError(f"{path} is {_description(value)}: a namedtuple with fields {fields} is expected")
            for field, child in zip(fields, children, strict=True):
                append_leaves(child, getattr(value, field), f"{path}.{field}", leaves)


def _description(value: Any) -> str:
    if isinstance(value, dict):
        return f"a dict with keys {list(value)}"
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
