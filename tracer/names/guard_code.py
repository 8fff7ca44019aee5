"""Code generated for each trace that reads its outside values and checks its guards at each call.

Guards and reads are straight-line Python: a global is one lookup and one comparison by identity. The code never raises: a read
that fails counts as a failed guard, and the next trace reports the failure.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.tracer.arrays.frame import Called, Captured, Constant, Input
from pullback.tracer.arrays.tree import ROW_MAJOR, leaf_key
from pullback.tracer.names.call_objects import CURRENT, all_of, object_of_call
from pullback.tracer.names.guards import (
    Guard,
    Read,
    attribute_of,
    attribute_through,
    function_through,
    item_of,
    same_value,
)
from pullback.tracer.user_code.ownership import GENERATED

_NUMBERS = (np.ndarray, np.generic, float, int, Remote)


class Watch:
    """The generated functions of a trace.

    ``read()`` returns the values of the outside inputs, which come last; None if a guard fails, or if an input changed its
    type. ``holds()`` checks the guards alone, and ``outside()`` reads alone.
    """

    __slots__ = ("holds", "outside", "read")

    holds: Callable[[], bool]
    outside: Callable[[], list[Any] | None]
    read: Callable[[], list[Any] | None]

    def __init__(self, guards: Sequence[Guard], inputs: Sequence[Input]) -> None:
        writer = _Writer()
        checks = [writer.check(g) for g in sorted(guards, key=_cost)]
        lines: list[str] = []
        values = [writer.input(source, lines) for source in inputs if isinstance(source, Captured | Constant | Called)]
        holds = " and ".join(checks) or "True"
        result = f"return [{', '.join(values)}]"
        text = "\n".join([
            *_function("holds", [f"return {holds}"], "False"),
            *_function("outside", [*lines, result], "None"),
            *_function("read", [f"if not ({holds}): return None" if checks else "pass", *lines, result], "None"),
        ])  # fmt: skip
        exec(_compiled(text), writer.values)
        # Popped, so that the code and the objects that it names form no reference cycle.
        for name in self.__slots__:
            setattr(self, name, writer.values.pop(name))


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> CodeType:
    """Compile code, cached by its text: a function traced repeatedly, such as a lambda in a loop, has the same text."""
    return compile(text, GENERATED, "exec")


def _function(name: str, lines: Sequence[str], failed: str) -> list[str]:
    own = ["  objects = current.objects or traced()"] if any("objects[" in line for line in lines) else []
    return [f"def {name}():", " try:", *own, *(f"  {line}" for line in lines), f" except Exception: return {failed}"]


def _cost(guard: Guard) -> int:
    return {"class": 0, "identity": 1, "value": 2}.get(guard.how, 3)


class _Writer:
    """Generates the code; ``values`` are the objects that it names."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"same_value": same_value, "fits": _fits, "ndarray": np.ndarray, "native": native}
        self._traced: dict[int, Read] = {}
        self.values |= {"current": CURRENT, "traced": functools.partial(_all_by_index, self._traced)}
        self._names: dict[int, str] = {}

    def name(self, value: Any) -> str:
        """Return the name of an object in the code."""
        label = self._names.get(id(value))
        if label is None:
            label = self._names[id(value)] = f"v{len(self._names)}"
            self.values[label] = value
        return label

    def expression(self, read: Read) -> str:
        """Return an expression that reads a value, without a call if possible."""
        if isinstance(read, functools.partial) and not read.keywords:
            function: Any = read.func
            args = read.args
            owner = getattr(function, "__self__", None)
            if function is item_of:
                return f"{self.expression(args[0])}[{self.key(args[1])}]"
            if function is getattr and len(args) == 2 and _is_name(args[1]):
                return f"{self.name(args[0])}.{args[1]}"
            if function is object_of_call:
                self._traced[args[0]] = args[1]
                return f"objects[{args[0]}]"
            if function is attribute_through and len(args) == 2 and _is_name(args[1]):
                return f"{self.expression(args[0])}.{args[1]}"
            if function is function_through and _is_name(args[1]):
                return f"{self.expression(args[0])}.{args[1]}.__func__"
            if function is attribute_of and _is_name(args[1]):
                last = self.name(args[2])
                return f"({last} if (f := {self.name(args[0])}()) is None else f.{args[1]})"
            if type(owner) is dict and function.__name__ == "__getitem__":
                return f"{self.name(owner)}[{self.key(args[0])}]"
        return f"{self.name(read)}()"

    def key(self, key: Any) -> str:
        return repr(key) if type(key) in (int, str) else self.name(key)

    def check(self, guard: Guard) -> str:
        """Return an expression that is true if a guard holds."""
        match guard.how:
            case "identity":
                return f"{self.expression(guard.read)} is {self.name(guard.expected)}"
            case "value":
                expected = self.name(guard.expected)
                return f"((a := {self.expression(guard.read)}) is {expected} or same_value(a, {expected}))"
            case "class":
                return f"type({self.expression(guard.read)}) is {self.name(guard.expected)}"
            case "same":
                return f"{self.expression(guard.read)} is {self.expression(guard.expected)}"
            case "distinct" if isinstance(guard.read, functools.partial) and guard.read.func is all_of:
                reads = guard.read.args[0]
                return f"len({{{', '.join(f'id({self.expression(read)})' for read in reads)}}}) == {len(reads)}"
        return f"{self.name(guard.holds)}()"

    def input(self, source: Captured | Constant | Called, lines: list[str]) -> str:
        """Append lines that read and check an input, and return the name of its value."""
        name = f"i{len(lines)}"
        if isinstance(source, Constant):
            lines.append(f"{name} = native({self.name(source.array)})")
            return name
        if isinstance(source, Called):
            lines.append(f"{name} = {self.name(source.array)}")
            return name
        key = source.key
        lines.append(f"{name} = {self.expression(source.read)}")
        is_other = f"not fits({name}, {self.name(key)})"
        if key is int:
            lines.append(f"if type({name}) is not int or not {-(2**63)} <= {name} < {2**63}: return None")
        elif isinstance(key, type):
            lines.append(f"if type({name}) is not {self.name(key)}: return None")
        elif len(key) == 1:
            lines.append(f"if type({name}) is not {self.name(key[0].type)}: return None")
        elif len(key) == 3 and key[2] == "c" and key[1]:
            dtype, shape = self.name(key[0]), self.name(key[1])
            is_usual = f"type({name}) is ndarray and {name}.dtype is {dtype} and {name}.shape == {shape}"
            is_dense = f"{name}.flags.num & {ROW_MAJOR} == {ROW_MAJOR}"
            lines.append(f"if not ({is_usual} and {is_dense}) and {is_other}: return None")
        else:
            lines.append(f"if {is_other}: return None")
            lines.append(f"{name} = native({name})")
        return name


def _all_by_index(reads: Mapping[int, Read]) -> dict[int, Any]:
    """Return what reads return, by their indices."""
    return {index: read() for index, read in reads.items()}


def _is_name(text: Any) -> bool:
    return type(text) is str and text.isidentifier() and not keyword.iskeyword(text)


def _fits(value: Any, key: Any) -> bool:
    return isinstance(value, _NUMBERS) and bool(leaf_key(value) == key)


def native(value: Any) -> Any:
    """Return an array in native byte order, one of rank 0 as a scalar; other values unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    if not value.ndim:
        return value[()]
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))
