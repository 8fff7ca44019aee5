"""What the arguments of a native call must be: a node for each object, and the objects inside by their registers.

Two calls that the nodes take for the same have equal keys (``tree.fingerprint``), and are served by the same program.
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
    ROW_MAJOR,
    as_array,
    container_of,
    is_array_like,
    is_large,
    labelled_array,
    leaf_key,
)
from pullback.tracer.user_code.array_libraries import library_of

NUMBERS = {float: ("number", np.float64), complex: ("number", np.complex128), int: ("int", np.int64), bool: ("bool", np.bool_)}
VALUES = (str, int, bool, bytes)
"""Compared by their own equality, which runs no code of a user's."""
_SCALAR_KINDS = "biufc"
_LONGDOUBLE = np.dtype(np.longdouble).num

GIVEN, STATIC, NAMED, ITSELF = "given", "static", "named", "itself"
"""How an object is told apart: as an argument; as a static value in one; as an argument declared static; by identity."""



class Want:
    """What is asked of an object from outside: that it is an "input" of the program, or has its "type"; that it is the one that
    it was ("identity"), equal to it ("value"), or in all parts ("plain"); of a container its kind and keys ("container")."""

    def __init__(self, value: Any, hows: set[str]) -> None:
        self.value = value
        self.hows = hows
        self.items: dict[Any, Want] = {}

    def item(self, key: Any) -> Want:
        """What is asked of an item."""
        return self.items.setdefault(key, Want(self.value[key], set()))


Inside = list[tuple[Any, Any]]


class Flat:
    """The objects of a call by register, parents before what is inside, and what each must be. ``places``: the register of what
    is asked for from outside, by its id.

    ``runs_python``: whether code of a user's may run while they are looked at; ``knows_classes``: whether a class that is
    registered may change what an object is."""

    def __init__(self, values: Sequence[Any], static: Sequence[bool]) -> None:
        self.values = list(values)
        self.inputs = len(self.values)
        self.nodes: list[NodeOf] = []
        self.runs_python = False
        self.knows_classes = False
        self.places: dict[int, int] = {}
        self._how: list[Any] = [NAMED if is_static else GIVEN for is_static in static]
        self._inside: list[range] = []
        self._made_anew: set[int] = set()

    def expand(self, outside: Sequence[Any], wants: Sequence[Want]) -> None:
        """Add what is read from outside, and what is asked of it, then everything inside containers."""
        self.values += outside
        self._how += wants
        k = labelled = 0
        while k < len(self.values):
            how = self._how[k]
            if isinstance(how, Want):
                self.places[id(how)] = k
                node, inside = _wanted(self.values[k], how, len(self.values))
            else:
                node, inside = node_of(self.values[k], how, len(self.values))
            children = range(len(self.values), len(self.values) + len(inside))
            self.runs_python |= _runs_python(node)
            labelled += node.kind is Node.TAKEN and node.a is _labelled
            if labelled > 1:
                raise NotNative("two objects with labels are looked at together; pass their arrays")
            self.knows_classes |= node.kind in (Node.FIELDS, Node.TAKEN, Node.WEAK)
            if node.kind is Node.TAKEN or k in self._made_anew:
                self._made_anew.update(children)
            self.nodes.append(node)
            self._inside.append(children)
            self.values += [x for x, _ in inside]
            self._how += [how for _, how in inside]
            k += 1

    def leaves(self, first: int, end: int) -> list[int]:
        """The registers of the leaves of some inputs, in the order of ``tree.flatten``."""
        found: list[int] = []
        left = list(range(first, end))[::-1]
        while left:
            k = left.pop()
            if self.nodes[k].kind in (Node.ARRAY, Node.EXACT):
                found.append(k)
            left += self._inside[k][::-1]
        return found

    def has(self, registers: Sequence[int], leaves: Sequence[Any]) -> bool:
        """Whether the leaves of a call are what lies in these registers."""
        if len(registers) != len(leaves):
            return False
        return all(
            self.values[k] is x or (k in self._made_anew and type(self.values[k]) is type(x) and _alike(self.values[k], x))
            for k, x in zip(registers, leaves)
        )

    def pin(self, register: int, value: Any) -> None:
        """The number in a register must be this one."""
        if type(value) not in (int, bool) or not -(1 << 63) <= value < 1 << 63:
            raise NotNative("the value of an int is asked for that has more than 64 bits")
        self.nodes[register] = NodeOf(kind=Node.NUMBER, type=type(value), number=int(value))

    def limit(self, register: int, bits: int) -> None:
        """The int in a register must have at most 32 or 64 bits."""
        self.nodes[register] = NodeOf(kind=Node.RANGE, type=int, number=bits)


def _alike(a: Any, b: Any) -> bool:
    return bool(leaf_key(a) == leaf_key(b))


def _runs_python(node: NodeOf) -> bool:
    return node.kind in (Node.FIELDS, Node.TAKEN) or (node.kind is Node.EQUAL and type(node.a) not in (*VALUES, float))


def node_of(x: Any, how: str, first: int) -> tuple[NodeOf, Inside]:
    """What an object must be to be taken for another like this one, and what is inside. Raises NotNative."""
    if how != GIVEN:
        return _static(x, how, first)
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
        return NodeOf(kind=Node.SEQUENCE, type=kind, first=first, count=len(x)), _all(x, GIVEN)
    if kind is list:
        return NodeOf(kind=Node.LIST, type=kind, first=first, count=len(x)), _all(x, GIVEN)
    if kind is dict and all(type(k) in VALUES for k in x):
        return NodeOf(kind=Node.DICT, type=kind, keys=tuple(x), first=first, count=len(x)), _all(x.values(), GIVEN)
    return _taken(x, first) or _static(x, STATIC, first)


def _all(values: Any, how: str) -> Inside:
    return [(x, how) for x in values]


def _wanted(x: Any, want: Want, first: int) -> tuple[NodeOf, Inside]:
    """The node of an object from outside."""
    hows = want.hows
    if want.items or "container" in hows:
        if hows - {"container"}:
            raise NotNative("a container from outside is asked for in two ways")
        node, inside = node_of(x, GIVEN, first)
        if node.kind not in (Node.DICT, Node.LIST, Node.SEQUENCE):
            raise NotNative(f"a {type(x).__name__} is outside")
        keys = node.keys if node.kind is Node.DICT else range(len(inside))
        if set(want.items) - set(keys):
            raise NotNative("an item from outside is counted from the end")
        return node, [(item, want.items.get(key) or Want(item, set())) for (item, _), key in zip(inside, keys, strict=True)]
    if not hows:
        return NodeOf(kind=Node.ANY), []
    if hows <= {"input", "type"}:
        node, inside = node_of(x, GIVEN, first)
        if node.kind not in (Node.ARRAY, Node.EXACT):
            raise NotNative(f"a {type(x).__name__} is outside")
        return node, inside
    if hows == {"identity"}:
        return NodeOf(kind=Node.SAME, a=x), []
    if hows == {"value"}:
        return _static(x, STATIC, first) if type(x) in (*VALUES, float) else (NodeOf(kind=Node.SAME, a=x), [])
    if hows == {"plain"}:
        return _plain(x, first)
    raise NotNative("something outside is asked for in two ways")


def _plain(x: Any, first: int) -> tuple[NodeOf, Inside]:
    """The node of a number or text, or of containers of nothing else; agrees with ``guards.plain_key``."""
    if x is None or type(x) in (*VALUES, float):
        return _static(x, STATIC, first)
    if type(x) not in (list, tuple, dict):
        raise NotNative(f"a {type(x).__name__} is outside")
    node, inside = node_of(x, GIVEN, first)
    if node.kind not in (Node.DICT, Node.LIST, Node.SEQUENCE):
        raise NotNative(f"a {type(x).__name__} is outside")
    return node, [(item, Want(item, {"plain"})) for item, _ in inside]


def _taken(x: Any, first: int) -> tuple[NodeOf, Inside] | None:
    """The node of an object that is taken apart by attributes or by a function; None for any other."""
    kind = type(x)
    if is_array_like(kind) or kind is memoryview:
        take: Any = _as_array if library_of(kind) is None else _labelled
    elif kind in (OrderedDict, defaultdict):
        take = _mapping
    elif x.__class__ is kind and (container := container_of(kind)) is not None:
        take = container.flatten
    elif x.__class__ is kind and dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = tuple(field.name for field in dataclasses.fields(x))
        node = NodeOf(kind=Node.FIELDS, type=kind, keys=names, first=first, count=len(names))
        return node, [(getattr(x, name), GIVEN) for name in names]
    else:
        return None
    found = take(x)
    children, beside = found
    if type(found) is not tuple or type(children) not in (tuple, list):
        raise NotNative(f"flatten of {kind.__name__} gives no plain tuples; return (children, data), children a tuple")
    node = NodeOf(kind=Node.TAKEN, type=kind, a=take, first=first, count=len(children) + 1)
    return node, [*_all(children, GIVEN), (beside, STATIC)]


def _labelled(x: Any) -> tuple[tuple[Any, ...], Any]:
    """The array of an object of a library, and what else a program depends on if there is no other such object."""
    found = labelled_array(x)
    return ((found[0],), found[1].oddity) if isinstance(found, tuple) else ((found,), "")


def _as_array(x: Any) -> tuple[tuple[Any, ...], None]:
    return (as_array(x),), None


def _mapping(x: Any) -> tuple[tuple[Any, ...], Any]:
    return tuple(x.values()), (tuple(x), x.default_factory if type(x) is defaultdict else None)


def _static(x: Any, how: str, first: int) -> tuple[NodeOf, Inside]:
    """The node of a static value; agrees with ``tree.static_key``."""
    kind = type(x)
    if x is None or x is Ellipsis:
        return NodeOf(kind=Node.SAME, a=x), []
    if how == ITSELF:
        return _itself(x), []
    if kind in (*VALUES, float):
        return NodeOf(kind=Node.EQUAL, a=x), []
    if kind is tuple:
        return NodeOf(kind=Node.SEQUENCE, type=kind, first=first, count=len(x)), _all(x, STATIC)
    if kind is slice:
        inside = _all((x.start, x.stop, x.step), STATIC)
        return NodeOf(kind=Node.FIELDS, type=kind, keys=("start", "stop", "step"), first=first, count=3), inside
    if kind is MethodType:
        inside = _all((x.__self__, x.__func__), ITSELF)
        return NodeOf(kind=Node.FIELDS, type=kind, keys=("__self__", "__func__"), first=first, count=2), inside
    if isinstance(x, type) or (how == STATIC and hasattr(x, "__dict__") and kind not in EQUAL):
        return _itself(x), []
    is_plain = kind is not frozenset or all(type(e) is str for e in x)
    if not is_plain or isinstance(x, complex | float | np.ndarray) or is_array_like(kind):
        raise NotNative(f"a static value is a {kind.__name__}; use text, an int or a tuple of them")
    return NodeOf(kind=Node.EQUAL, a=x), []


def _itself(x: Any) -> NodeOf:
    return NodeOf(kind=Node.WEAK, a=weakref.ref(x)) if type(x).__weakrefoffset__ else NodeOf(kind=Node.SAME, a=x)
