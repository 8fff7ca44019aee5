"""Objects of the user's classes as results of a traced function that made them: trees of their attributes, of which a call makes
them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pullback.tracer.arrays.tree import Container, TreeDef, container_of, real_class, register, structure_of
from pullback.tracer.user_code.ownership import attribute_names

_OWN_WAYS = ("__new__", "__getstate__", "__reduce__", "__reduce_ex__", "__del__", "__getattribute__")
"""The methods of a class by which its objects may be more than their attributes."""


class ObjectResult:
    """An object of a class that has attributes of these names and values."""

    def __init__(self, kind: type, names: Sequence[str], values: Sequence[Any]) -> None:
        self.kind, self.names, self.values = kind, tuple(names), tuple(values)


def is_object_result(value: Any) -> bool:
    """Return whether a value is an object that the traced function made, of a class of the user's, and no more than its
    attributes. One of a dataclass with other attributes than its fields is one; any other is a tree of these."""
    kind = real_class(type(value))
    if kind is type(value) or container_of(kind) is not None:
        return False
    if hasattr(kind, "__dataclass_fields__") and set(attribute_names(value)) == {f.name for f in dataclasses.fields(kind)}:
        return False
    bases = [k for k in kind.__mro__ if k is not object]
    has_own_ways = any(name in vars(k) for k in bases for name in _OWN_WAYS)
    return all(k.__flags__ & _HEAP_TYPE for k in bases) and not has_own_ways


_HEAP_TYPE = 1 << 9


class _Flattened:
    """The leaves of a tree, as in ``tree``, in which the objects that the traced function made are trees of their attributes."""

    __slots__ = ("leaves",)

    def __init__(self) -> None:
        self.leaves: list[Any] = []

    def __call__(self, x: Any) -> TreeDef:
        if is_object_result(x):
            names = tuple(attribute_names(x))
            return TreeDef("dataclass", type(x), names, names, [self(getattr(x, name)) for name in names])
        return structure_of(x, self.leaves, self)


def flatten_with_objects(value: Any) -> tuple[list[Any], TreeDef]:
    """Return the leaves and the structure of a value of the trace, with those of the objects that the traced function made."""
    flattened = _Flattened()
    tree = flattened(value)
    return flattened.leaves, tree


def _object_of(data: tuple[type, Sequence[str]], children: Sequence[Any]) -> Any:
    """Return the object of a result."""
    kind, names = data
    result: Any = object.__new__(kind)
    for name, value in zip(names, children, strict=True):
        object.__setattr__(result, name, value)
    return result


register(Container(type=ObjectResult, flatten=lambda r: (r.values, (r.kind, r.names)), unflatten=_object_of))
