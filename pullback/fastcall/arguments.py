"""Describe the arguments of a native call: one node for each object, and the objects inside by their registers.

Two calls that the nodes do not distinguish have equal keys (``tree.fingerprint``) and are served by the same program.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from types import MethodType
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic_arrays import is_masked
from pullback.runtime.fastcall.record_layout import Node
from pullback.runtime.fastcall.records import NodeOf, NotNative
from pullback.tracer.arrays.tree import (
    EQUAL,
    NAMESPACES,
    ROW_MAJOR,
    as_array,
    container_of,
    is_array_like,
    is_large,
    is_object,
    is_tree,
    labelled_array,
    leaf_key,
)
from pullback.tracer.user_code.array_libraries import library_of

NUMBERS = {float: ("number", np.float64), complex: ("number", np.complex128), int: ("int", np.int64), bool: ("bool", np.bool_)}
"""Source kind and dtype of each Python number type."""
VALUES = (str, int, bool, bytes)
"""Types compared by their own equality, which runs no user code."""
_SCALAR_KINDS = "biufc"
_LONGDOUBLE = np.dtype(np.longdouble).num

ARGUMENT, STATIC, NAMED, IDENTITY = "given", "static", "named", "itself"
"""How an object is compared: as an argument; as a static value inside one; as an argument declared static; by identity."""


class Checks:
    """The checks on an object from outside.

    ``kinds``: it is an "input" of the program, or only its "type" matters; it must be the same object ("identity"), equal
    ("value"), or equal in all parts ("plain"); of a container, kind and keys must match ("container"), of an object its "class",
    and a bound "method" must be of ``function``.
    """

    def __init__(self, value: Any, hows: set[str]) -> None:
        self.value = value
        self.kinds = hows
        self.items: dict[Any, Checks] = {}
        self.function: Any = None

    def item(self, key: Any) -> Checks:
        """Return the checks on an item."""
        return self.items.setdefault(key, Checks(self.value[key], set()))


Inside = list[tuple[Any, Any]]


class Flat:
    """The objects of a call by register, each before the objects inside it, with a node for each.

    ``registers``: the register of each object from outside, by the id of its ``Checks``. ``runs_python``: whether comparing
    them may run user code; ``knows_classes``: whether registering a class may change how an object is treated.
    """

    def __init__(self, values: Sequence[Any], static: Sequence[bool]) -> None:
        self.values = list(values)
        self.inputs = len(self.values)
        self.nodes: list[NodeOf] = []
        self.runs_python = False
        self.knows_classes = False
        self.registers: dict[int, int] = {}
        self._how: list[Any] = [NAMED if is_static else ARGUMENT for is_static in static]
        self._inside: list[range] = []
        self._rebuilt: set[int] = set()

    def expand(self, outside: Sequence[Any], checks: Sequence[Checks]) -> None:
        """Add the objects read from outside with their checks, then everything inside containers. Raises NotNative."""
        self.values += outside
        self._how += checks
        k = labelled = 0
        while k < len(self.values):
            how = self._how[k]
            if isinstance(how, Checks):
                self.registers[id(how)] = k
                node, inside = _captured_node(self.values[k], how, len(self.values))
            else:
                node, inside = node_of(self.values[k], how, len(self.values))
            children = range(len(self.values), len(self.values) + len(inside))
            self.runs_python |= _runs_python(node)
            labelled += node.kind is Node.TAKEN and node.a is _labelled
            if labelled > 1:
                raise NotNative("two objects with labels are looked at together; pass their arrays")
            self.knows_classes |= node.kind in (Node.FIELDS, Node.TAKEN, Node.WEAK, Node.OBJECT)
            if node.kind is Node.TAKEN or k in self._rebuilt:
                self._rebuilt.update(children)
            self.nodes.append(node)
            self._inside.append(children)
            self.values += [x for x, _ in inside]
            self._how += [how for _, how in inside]
            k += 1

    def leaves(self, first: int, end: int) -> list[int]:
        """Return the registers of the leaves of some inputs, in the order of ``tree.flatten``."""
        leaf_registers: list[int] = []
        pending = list(range(first, end))[::-1]
        while pending:
            k = pending.pop()
            if self.nodes[k].kind in (Node.ARRAY, Node.EXACT):
                leaf_registers.append(k)
            pending += self._inside[k][::-1]
        return leaf_registers

    def has(self, registers: Sequence[int], leaves: Sequence[Any]) -> bool:
        """Return whether the leaves of a call are the objects in these registers."""
        if len(registers) != len(leaves):
            return False
        return all(
            self.values[k] is x or (k in self._rebuilt and type(self.values[k]) is type(x) and _same_key(self.values[k], x))
            for k, x in zip(registers, leaves)
        )

    def pin(self, register: int, value: Any) -> None:
        """Require the number in a register to equal ``value``. Raises NotNative for an int of more than 64 bits."""
        if isinstance(value, np.integer):
            self.nodes[register] = NodeOf(kind=Node.EQUAL, type=type(value), a=value)
            return
        if type(value) not in (int, bool) or not -(1 << 63) <= value < 1 << 63:
            raise NotNative("the value of an int is asked for that has more than 64 bits")
        self.nodes[register] = NodeOf(kind=Node.NUMBER, type=type(value), constant=int(value))

    def limit(self, register: int, bits: int) -> None:
        """Require the int in a register to have at most 32 or 64 bits."""
        self.nodes[register] = NodeOf(kind=Node.RANGE, type=int, constant=bits)


def _same_key(a: Any, b: Any) -> bool:
    return bool(leaf_key(a) == leaf_key(b))


def _runs_python(node: NodeOf) -> bool:
    if node.kind is Node.EQUAL:
        return type(node.a) not in (*VALUES, float)
    return node.kind in (Node.FIELDS, Node.TAKEN, Node.OBJECT)


def node_of(x: Any, how: str, first: int) -> tuple[NodeOf, Inside]:
    """Return the node that accepts objects like this one, and the objects inside it. Raises NotNative."""
    if how != ARGUMENT:
        return _static_node(x, how, first)
    kind = type(x)
    if isinstance(x, np.ndarray) and not is_masked(x):
        dense = int(x.flags.num & ROW_MAJOR == ROW_MAJOR)
        return NodeOf(kind=Node.ARRAY, type=kind, a=x.dtype, shape=x.shape, first=dense), []
    if kind in NUMBERS and not is_large(x):
        return NodeOf(kind=Node.EXACT, type=kind), []
    if isinstance(x, np.generic):
        if kind is not x.dtype.type or x.dtype.kind not in _SCALAR_KINDS or x.dtype.itemsize > 16 or x.dtype.num == _LONGDOUBLE:
            raise NotNative(f"an argument is a {kind.__name__}; pass a float or a complex")
        return NodeOf(kind=Node.EXACT, type=kind), []
    if kind is tuple or (isinstance(x, tuple) and hasattr(x, "_fields") and kind.__iter__ is tuple.__iter__):
        return NodeOf(kind=Node.SEQUENCE, type=kind, first=first, count=len(x)), _with_mode(x, ARGUMENT)
    if kind is list:
        return NodeOf(kind=Node.LIST, type=kind, first=first, count=len(x)), _with_mode(x, ARGUMENT)
    if kind is dict and all(type(k) in VALUES for k in x):
        return NodeOf(kind=Node.DICT, type=kind, keys=tuple(x), first=first, count=len(x)), _with_mode(x.values(), ARGUMENT)
    if is_object(kind):
        return NodeOf(kind=Node.OBJECT, type=kind), []
    return _flattened_node(x, first) or _static_node(x, STATIC, first)


def _with_mode(values: Any, how: str) -> Inside:
    return [(x, how) for x in values]


def _captured_node(x: Any, checks: Checks, first: int) -> tuple[NodeOf, Inside]:
    """Return the node of an object from outside. Raises NotNative."""
    kinds = checks.kinds
    if checks.items or "container" in kinds:
        if kinds - {"container"}:
            raise NotNative("a container from outside is asked for in two ways")
        node, inside = node_of(x, ARGUMENT, first)
        if node.kind not in (Node.DICT, Node.LIST, Node.SEQUENCE):
            raise NotNative(f"a {type(x).__name__} is outside")
        keys = node.keys if node.kind is Node.DICT else range(len(inside))
        if set(checks.items) - set(keys):
            raise NotNative("an item from outside is counted from the end")
        return node, [(item, checks.items.get(key) or Checks(item, set())) for (item, _), key in zip(inside, keys, strict=True)]
    if not kinds:
        return NodeOf(kind=Node.ANY), []
    if kinds <= {"input", "type"}:
        node, inside = node_of(x, ARGUMENT, first)
        if node.kind not in (Node.ARRAY, Node.EXACT):
            raise NotNative(f"a {type(x).__name__} is outside")
        return node, inside
    if kinds == {"identity"}:
        return NodeOf(kind=Node.SAME, a=x), []
    if kinds == {"value"}:
        return _static_node(x, STATIC, first) if type(x) in (*VALUES, float) else (NodeOf(kind=Node.SAME, a=x), [])
    if kinds == {"plain"}:
        return _plain_node(x, first)
    if kinds == {"class"}:
        return NodeOf(kind=Node.OBJECT, type=type(x)), []
    if kinds == {"method"}:
        return NodeOf(kind=Node.METHOD, type=MethodType, a=checks.function), []
    if "value" in kinds and kinds <= {"input", "type", "value"} and type(x) in (*VALUES, float):
        return _static_node(x, STATIC, first)
    raise NotNative("something outside is asked for in two ways")


def _plain_node(x: Any, first: int) -> tuple[NodeOf, Inside]:
    """Return the node of a number or text, or of containers of only these; agrees with ``guards.plain_key``. Raises NotNative."""
    if x is None or type(x) in (*VALUES, float):
        return _static_node(x, STATIC, first)
    if type(x) not in (list, tuple, dict):
        raise NotNative(f"a {type(x).__name__} is outside")
    node, inside = node_of(x, ARGUMENT, first)
    if node.kind not in (Node.DICT, Node.LIST, Node.SEQUENCE):
        raise NotNative(f"a {type(x).__name__} is outside")
    return node, [(item, Checks(item, {"plain"})) for item, _ in inside]


def _flattened_node(x: Any, first: int) -> tuple[NodeOf, Inside] | None:
    """Return the node of an object that is flattened by attributes or by a function; None for any other. Raises NotNative."""
    kind = type(x)
    if is_array_like(kind) or kind is memoryview:
        take: Any = _as_array if library_of(kind) is None else _labelled
    elif kind in (OrderedDict, defaultdict):
        take = _mapping
    elif kind is set:
        take = _elements
    elif kind in NAMESPACES and is_tree(x):
        take = _attributes
    elif x.__class__ is kind and (container := container_of(kind)) is not None:
        take = container.flatten
    elif x.__class__ is kind and dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = tuple(field.name for field in dataclasses.fields(x))
        node = NodeOf(kind=Node.FIELDS, type=kind, keys=names, first=first, count=len(names))
        return node, [(getattr(x, name), ARGUMENT) for name in names]
    else:
        return None
    parts = take(x)
    children, data = parts
    if type(parts) is not tuple or type(children) not in (tuple, list):
        raise NotNative(f"flatten of {kind.__name__} gives no plain tuples; return (children, data), children a tuple")
    node = NodeOf(kind=Node.TAKEN, type=kind, a=take, first=first, count=len(children) + 1)
    return node, [*_with_mode(children, ARGUMENT), (data, STATIC)]


def _labelled(x: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the array of a library's object, and the other data a program depends on if there is no other such object."""
    array = labelled_array(x)
    return ((array[0],), array[1].oddity) if isinstance(array, tuple) else ((array,), "")


def _as_array(x: Any) -> tuple[tuple[Any, ...], None]:
    return (as_array(x),), None


def _attributes(x: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(vars(x).values()), tuple(vars(x))


def _elements(x: Any) -> tuple[tuple[()], tuple[Any, ...]]:
    return (), tuple(x)


def _mapping(x: Any) -> tuple[tuple[Any, ...], Any]:
    return tuple(x.values()), (tuple(x), x.default_factory if type(x) is defaultdict else None)


def _static_node(x: Any, how: str, first: int) -> tuple[NodeOf, Inside]:
    """Return the node of a static value; agrees with ``tree.static_key``. Raises NotNative."""
    kind = type(x)
    if x is None or x is Ellipsis:
        return NodeOf(kind=Node.SAME, a=x), []
    if how == IDENTITY:
        return _identity_node(x), []
    if kind in (*VALUES, float):
        return NodeOf(kind=Node.EQUAL, a=x), []
    if kind is tuple:
        return NodeOf(kind=Node.SEQUENCE, type=kind, first=first, count=len(x)), _with_mode(x, STATIC)
    if kind is slice:
        inside = _with_mode((x.start, x.stop, x.step), STATIC)
        return NodeOf(kind=Node.FIELDS, type=kind, keys=("start", "stop", "step"), first=first, count=3), inside
    if kind is MethodType:
        inside = _with_mode((x.__self__, x.__func__), IDENTITY)
        return NodeOf(kind=Node.FIELDS, type=kind, keys=("__self__", "__func__"), first=first, count=2), inside
    if isinstance(x, type) or (how == STATIC and hasattr(x, "__dict__") and kind not in EQUAL):
        return _identity_node(x), []
    is_plain = kind is not frozenset or all(type(e) is str for e in x)
    if not is_plain or isinstance(x, complex | float | np.ndarray) or is_array_like(kind):
        raise NotNative(f"a static value is a {kind.__name__}; use text, an int or a tuple of them")
    return NodeOf(kind=Node.EQUAL, a=x), []


def _identity_node(x: Any) -> NodeOf:
    return NodeOf(kind=Node.WEAK, a=weakref.ref(x)) if type(x).__weakrefoffset__ else NodeOf(kind=Node.SAME, a=x)
