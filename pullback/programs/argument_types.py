"""Describe as text the properties of a call's arguments that a program depends on: their types, and the values of static ones."""

from __future__ import annotations

import re
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType, dtype_of
from pullback.tracer import Parameters, Signature
from pullback.tracer.arrays.tree import TreeDef, is_object, leaf_key


@dataclass(frozen=True, kw_only=True)
class ArgumentType:
    """Describe the properties of an argument, or of a part of one, that a program depends on.

    Attributes
    ----------
    name : str
        The argument, as the user would write it.
    text : str
        "f64[3]" (an array), "f64[] scalar" (a NumPy scalar), "float" (a Python scalar), or the value of a static argument.
    is_static : bool
        Whether the program depends on its value.
    is_object : bool
        Whether it is read by attributes, so that it is static only in its class.

    See Also
    --------
    Explanation : Holds those of a call.

    Examples
    --------
    >>> report = pb.jit(lambda x, n: x * n).explain(np.ones(3), 2)
    >>> [(a.name, a.text) for a in report.arguments]
    [('x', 'f64[3]'), ('n', 'int')]
    """

    name: str
    text: str
    is_static: bool
    is_object: bool = False

    def __str__(self) -> str:
        return f"{self.name}={self.text}" if self.is_static else f"{self.name}: {self.text}"


def arguments_of(parameters: Parameters, call: Signature) -> tuple[ArgumentType, ...]:
    """Return the types of the arguments of a call, in order."""
    positional, keyed = call.tree.children
    leaves = iter(call.leaves)
    types: list[ArgumentType] = []
    for position, child in enumerate(positional.children):
        name = parameters.names[position] if position < len(parameters.names) else ""
        _parts(child, name or f"{parameters.variadic}[{position - len(parameters.names)}]", leaves, types)
    for name, child in zip(keyed.data[0], keyed.children, strict=True):
        _parts(child, name, leaves, types)
    return tuple(types)


def _parts(tree: TreeDef, name: str, leaves: Any, types: list[ArgumentType]) -> None:
    """Append the types of the parts of an argument."""
    match tree.kind:
        case "leaf":
            types.append(ArgumentType(name=name, text=type_text(next(leaves)), is_static=False))
            return
        case "static" | "named":
            is_read = tree.kind == "static" and is_object(type(tree.data))
            types.append(ArgumentType(name=name, text=shortened(tree.data), is_static=True, is_object=is_read))
            return
        case "dict":
            names = [f"{name}[{key!r}]" for key in tree.data[0]]
        case "namedtuple" | "dataclass":
            names = [f"{name}.{field}" for field in tree.data]
        case _:
            names = [f"{name}[{k}]" for k in range(len(tree.children))]
    for inner, child in zip(names, tree.children, strict=True):
        _parts(child, inner, leaves, types)


def type_text(leaf: Any) -> str:
    """Return the properties of an array or number that a program depends on: dtype, shape and memory order, or the Python
    type."""
    return key_text(leaf_key(leaf)) if isinstance(leaf, np.ndarray | np.generic | Remote) else type(leaf).__name__


def key_text(key: Any) -> str:
    """Return ``type_text`` of a value with this ``leaf_key``."""
    if isinstance(key, type):
        return key.__name__
    dtype, *rest = key
    shape, order, *device = rest or ((), "")
    try:
        text = str(ArrayType(dtype_of(dtype), shape))
    except TypeError:
        text = f"{dtype}[{','.join(map(str, shape))}]"
    if not rest:
        return f"{text} scalar"
    return (
        text
        + (" bytes swapped" if not dtype.isnative else " strided" if order == "strided" else "")
        + "".join(f" on {name}" for name in device)
    )


def shortened(value: Any, most: int = 40) -> str:
    """Return a value's repr in one line of at most ``most`` characters; for an array its type."""
    if isinstance(value, np.ndarray | Remote):
        return type_text(value)
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and (callable(value) or isinstance(value, ModuleType)):
        return name
    if isinstance(value, CodeType):
        return f"the code of {value.co_name}"
    if getattr(type(value), "__repr__", None) is object.__repr__:
        return f"<{type(value).__name__}>"
    try:
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", " ".join(repr(value).split()))
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else f"{text[: most - 3]}..."
