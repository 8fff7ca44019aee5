"""Arguments of effects: values of the trace as trees, of which a call makes what Python would have there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.descriptions import shows_traced
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import Listed, TracedArray, has_rows
from pullback.tracer.arrays.tree import Container, container_of, register
from pullback.tracer.effects.user_frames import Caller, called_below, callers_of
from pullback.tracer.names.proxies import Outside
from pullback.tracer.trace import with_lists
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import attribute_names, is_users_object
from pullback.tracer.user_code.tracebacks import keep_users_frames


class ObjectCopy:
    """An object of a class, with attributes, as a tree."""

    def __init__(self, kind: type, attributes: dict[str, Any]) -> None:
        self.kind, self.attributes = kind, attributes


def _object(data: Any, children: Sequence[Any]) -> Any:
    """Return the object of which a tree is a copy."""
    kind, names = data
    result = object.__new__(kind)
    for name, value in zip(names, children, strict=True):
        object.__setattr__(result, name, value)
    return result


register(
    Container(
        type=ObjectCopy,
        flatten=lambda copy: (tuple(copy.attributes.values()), (copy.kind, tuple(copy.attributes))),
        unflatten=_object,
    )
)


class HashedCopy:
    """A set, frozenset or dict, of a ``kind``, whose hashes values may decide, as a tree of its elements, of a dict the pairs of
    its keys and values."""

    def __init__(self, kind: type, elements: Sequence[Any]) -> None:
        self.kind, self.elements = kind, tuple(elements)


register(
    Container(
        type=HashedCopy,
        flatten=lambda copy: (copy.elements, copy.kind),
        unflatten=lambda kind, elements: kind(elements),
    )
)


class ExceptionCopy:
    """An exception as a tree of its arguments and attributes. ``frames``: those of the user's that it left, innermost first."""

    def __init__(self, kind: type, args: Sequence[Any], attributes: dict[str, Any], frames: Sequence[Caller]) -> None:
        self.kind, self.args, self.attributes, self.frames = kind, args, attributes, frames


def _exception(data: Any, children: Sequence[Any]) -> Any:
    """Return the exception of which a tree is a copy, with a traceback of the user's frames."""
    kind, names, frames = data
    args, values = children[: len(children) - len(names)], children[len(children) - len(names) :]
    error = kind.__new__(kind, *args)
    error.args = tuple(args)
    for name, value in zip(names, values, strict=True):
        BaseException.__setattr__(error, name, value)
    if frames:
        try:
            called_below(frames, partial(_raise, error))
        except kind:
            keep_users_frames(error)
    return error


def _raise(error: BaseException) -> None:
    raise error


register(
    Container(
        type=ExceptionCopy,
        flatten=lambda copy: ((*copy.args, *copy.attributes.values()), (copy.kind, tuple(copy.attributes), copy.frames)),
        unflatten=_exception,
    )
)


def argument(value: Any, title: str, around: tuple[int, ...] = ()) -> Any:
    """Return a value as an argument of the effect called ``title``, as it is now. Raises TraceError for what cannot be one.

    ``around``: the ids of the objects that hold it.
    """
    if is_size(value):
        return as_traced(value)
    if isinstance(value, str):
        if shows_traced(value):
            raise TraceError(
                f"{title} of a text of a traced value, made where texts are not followed (a function without source, a method "
                "__str__ or __repr__); pass the value itself, or write pb.jit(effects='trace')"
            )
        return value
    if isinstance(value, TracedArray | Outside):
        return with_lists(value)
    if id(value) in around:
        raise TraceError(f"{title} of an object that holds itself; pass its attributes")
    value, inside = with_lists(value), (*around, id(value))
    if type(value) in (list, tuple) or (isinstance(value, Listed) and not has_rows(value)):
        items = [argument(x, title, inside) for x in value]
        return tuple(items) if type(value) is tuple else items
    if type(value) in (set, frozenset):
        return HashedCopy(type(value), [argument(x, title, inside) for x in value])
    if type(value) is dict and any(type(k) in (TracedArray, tuple) for k in value):
        return HashedCopy(dict, [argument(pair, title, inside) for pair in value.items()])
    if type(value) is dict:
        return {k: argument(x, title, inside) for k, x in value.items()}
    if isinstance(value, BaseException):
        parts = [argument(x, title, inside) for x in value.args]
        held = {name: argument(x, title, inside) for name, x in vars(value).items()}
        return ExceptionCopy(type(value), parts, held, callers_of(value.__traceback__))
    if not is_users_object(value) or container_of(type(value)) is not None or _is_plain(value):
        return value
    attributes = {name: argument(getattr(value, name), title, inside) for name in attribute_names(value)}
    return ObjectCopy(type(value), attributes)


def _is_plain(value: Any) -> bool:
    """Return whether an object is filled as a structure, as a dataclass is."""
    return hasattr(type(value), "__dataclass_fields__") or hasattr(value, "_fields")
