"""Describe what a native call reads from outside its arguments, and the guards on it: names and attributes that are compared,
and objects that are checked like arguments.

A value inside an outside container, ``rates["w"][0]``, is reached from the name of the container: the container is read, and
its nodes hold the checks on the items. If a read is not a look-up, Python reads everything (``trace.watch``).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from pullback.fastcall.arguments import VALUES, Checks, Flat
from pullback.fastcall.results import written_inputs, written_only
from pullback.programs.entry import Entry
from pullback.runtime.fastcall.record_layout import Demand, Guard, Reading
from pullback.runtime.fastcall.records import NO_ITEM, NotNative
from pullback.tracer.arrays.frame import Captured
from pullback.tracer.arrays.tree import Leaves, container_of, fingerprint, is_object
from pullback.tracer.names.call_objects import is_of_call, object_of_call, serving
from pullback.tracer.names.guards import Guard as Guarded
from pullback.tracer.names.guards import are_absent, attribute_of, attribute_through, function_through, item_of

GuardRow = tuple[Guard, Any, Any, Any, bool]
ReadRow = tuple[Reading, Any, Any, Any]
MOST_DISTINCT = 24
"""Largest number of objects of one class of which each is compared with the others."""


class Captures:
    """The guards of an entry and its reads at each call: rows for ``runtime.fastcall.records``, or ``watch``, which does both
    in Python.

    ``values`` are the values read, ``checks`` the checks on each. ``knows_classes``: whether they depend on the registered
    classes. ``watched``: the number of arguments that ``watch`` gets; ``demands``: which objects must be one, and which not.
    """

    def __init__(self, entry: Entry, arguments: Sequence[Any], static: Sequence[bool], watched: bool = False) -> None:
        self._entry = entry
        self._arguments = arguments
        self._static = static
        self._objects = _objects_of(arguments, static)
        self.watched = 0
        self.demands: list[tuple[Demand, int, Any]] = []
        trace = entry.trace
        self._inputs: Any = trace.inputs[len(trace.inputs) - entry.outside_count :] if entry.outside_count else ()
        self._written_only = written_only(trace)
        self.guards: list[GuardRow] = []
        self.reads: list[ReadRow] = []
        self.watch: Callable[..., Any] | None = None
        self.knows_classes = False
        self.values: list[Any] = []
        self.checks: list[Checks] = []
        self._indices: dict[Any, int] = {}
        self._input_checks: list[Checks] = []
        if watched:
            self._as_watch()
        else:
            self._as_rows()

    def registers(self, flat: Flat) -> list[int]:
        """Return the registers of the inputs from outside, then those of the arrays that are written but not read."""
        return [flat.registers[id(want)] for want in self._input_checks]

    def _as_rows(self) -> None:
        for guard in sorted(self._entry.trace.guards, key=lambda g: g.how != "identity"):
            self._guard(guard)
        for source in self._inputs:
            self._input_checks.append(self._checks(source.read) if isinstance(source, Captured) else self._constant(source.array))
        self._input_checks += [self._checks(source.read) for source in self._written_only]
        for want in self._input_checks:
            want.kinds.add("input")
            if isinstance(want.value, np.ndarray) and not (want.value.ndim and want.value.dtype.isnative):
                raise NotNative("an array from outside is converted")

    def _as_watch(self) -> None:
        """Have the trace's watch read everything. Raises NotNative."""
        if self._written_only:
            raise NotNative("the function writes into an array from outside of which it reads nothing") from None
        self.guards, self.reads, self.watch = [], [], self._entry.trace.watch.read
        values = self.watch()
        if self._objects:
            self.watch, self.watched = functools.partial(_watch_with_objects, self.watch, self._static), len(self._arguments)
        if values is None:
            raise NotNative("what is outside has changed") from None
        first = len(self._entry.trace.inputs) - len(self._inputs)
        for k in written_inputs(self._entry.trace):
            source = self._inputs[k - first] if k >= first else None
            if isinstance(source, Captured) and values[k - first] is not source.read():
                raise NotNative("the function writes into an array from outside that is converted where it is read") from None
        self.values = values
        self.checks = self._input_checks = [Checks(x, {"input"}) for x in values]

    def _guard(self, guard: Guarded) -> None:
        if guard.how == "state":
            raise NotNative("a guard on all attributes of an object")
        read: Any = guard.read
        if guard.how in ("class", "same", "distinct"):
            self._guard_objects(guard)
            return
        if isinstance(read, functools.partial) and read.func is container_of and guard.holds():
            self.knows_classes = True
            return
        if isinstance(read, functools.partial) and read.func is are_absent and type(read.args[0]) is dict and guard.holds():
            items, names = read.args
            self.guards += [(Guard.ITEM, items, name, NO_ITEM, False) for name in sorted(names)]
            return
        is_own = isinstance(read, functools.partial) and read.func is attribute_of and read.args[1] == "__code__"
        if is_own:
            owner, _, last = read.args
            if type(owner()) is not FunctionType or guard.expected is not last:
                raise NotNative("a function that changed")
            self.guards.append((Guard.CODE, owner, last, last, False))
        elif isinstance(read, functools.partial) and read.func is function_through:
            self._method(read, guard.expected)
        elif guard.how in ("identity", "value") and not _is_item(read) and not is_of_call(read):
            kind, a, b = _look_up(read)
            by_value = guard.how == "value" and type(guard.expected) in (*VALUES, float)
            self.guards.append((Guard(int(kind)), a, b, guard.expected, by_value))
        else:
            self._checks(read).kinds.add(guard.how)

    def _guard_objects(self, guard: Guarded) -> None:
        """Add a guard on the class of an object of the call, or on which objects are one."""
        read: Any = guard.read
        if guard.how == "class":
            if read.func is object_of_call:
                self._register(read)  # whose node has its class
            else:
                self._checks(read).kinds.add("class")
            return
        if guard.how == "same":
            self.demands.append((Demand.SAME, self._register(read), self._register(guard.expected)))
            return
        registers = list(map(self._register, read.args[0]))
        if len(registers) > MOST_DISTINCT:
            raise NotNative("many objects of one class are compared with each other")
        self.demands += [(Demand.OTHER, a, b) for k, a in enumerate(registers) for b in registers[:k]]

    def _method(self, read: Any, function: Any) -> None:
        """Add the guard that a method of an object is a function. Raises NotNative."""
        owner, name = read.args
        method = getattr(owner(), name)
        if type(method) is not MethodType:
            raise NotNative("a method that is no bound method of Python's")
        checks = self._row(self._attribute(owner, name), method, "method")
        checks.function = function

    def _attribute(self, owner: Any, name: str) -> ReadRow:
        """Return the row that reads an attribute of an object. Raises NotNative."""
        if is_of_call(owner):
            return Reading.OF, self._register(owner), name, type(owner())
        return (*_look_up(functools.partial(attribute_through, owner, name)), None)

    def _register(self, read: Any) -> int:
        """Return the register of an object that is read. Raises NotNative."""
        if isinstance(read, functools.partial) and read.func is object_of_call:
            return self._reached(self._objects[read.args[0]])
        if not is_of_call(read) or _is_item(read):
            raise NotNative("an object from outside is compared with one of the call")
        return self._register_of(self._checks(read))

    def _register_of(self, checks: Checks) -> int:
        return len(self._arguments) + next(k for k, known in enumerate(self.checks) if known is checks)

    def _reached(self, steps: Steps) -> int:
        """Return the register of an object in containers of the arguments."""
        register, *keys = steps
        value = self._arguments[register]
        for key in keys:
            kind = Reading.VALUE_OF if type(value) is dict else Reading.ITEM_OF
            owner_class, value = type(value), value[key]
            checks = self._row((kind, register, key, owner_class), value, "value")
            if is_object(type(value)):
                checks.kinds.add("class")
            register = self._register_of(checks)
        return int(register)

    def _checks(self, read: Any) -> Checks:
        """Return the checks on the value of a read."""
        if _is_item(read):
            inside, key = read.args
            return self._checks(inside).item(key)
        if isinstance(read, functools.partial) and read.func is object_of_call:
            raise NotNative("an object of the call is compared as a whole")
        if is_of_call(read):
            if len(read.args) != 2 or type(read.args[1]) is not str:
                raise NotNative("something of an object that is read by code")
            return self._row(self._attribute(*read.args), read(), "value")
        return self._row((*_look_up(read), None), read(), "value")

    def _row(self, row: ReadRow, value: Any, what: str) -> Checks:
        kind, a, b, owner_class = row
        mark = (kind, a if kind >= Reading.OF else id(a), b, what)
        if mark not in self._indices:
            checks = self._add(Reading(int(kind)), a, b, value, owner_class)
            self._indices[mark] = len(self.reads) - 1
            checks.kinds.update({"method"} if what == "method" else ())
        return self.checks[self._indices[mark]]

    def _constant(self, array: Any) -> Checks:
        return self._add(Reading.SAME, array, None, array)

    def _add(self, kind: Reading, a: Any, b: Any, value: Any, owner_class: Any = None) -> Checks:
        self.reads.append((kind, a, b, owner_class))
        self.values.append(value)
        self.checks.append(Checks(value, set()))
        return self.checks[-1]


Steps = tuple[Any, ...]
"""The register of an argument, and the keys of the containers in it that lead to an object."""


def _objects_of(values: Sequence[Any], static: Sequence[bool]) -> list[Steps]:
    """Return the objects that the arguments have, in their order (see ``tree.fingerprint``)."""
    objects: list[Steps] = []
    for k, (value, is_static) in enumerate(zip(values, static, strict=True)):
        if not is_static:
            objects += _steps_to_objects(value, (k,))
    return objects


def _steps_to_objects(value: Any, steps: Steps) -> Iterator[Steps]:
    kind = type(value)
    if is_object(kind):
        yield steps
    elif kind in (tuple, list) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        for k, item in enumerate(value):
            yield from _steps_to_objects(item, (*steps, k))
    elif kind is dict:
        for key, item in value.items():
            yield from _steps_to_objects(item, (*steps, key))


def _objects_in(arguments: Sequence[Any], static: Sequence[bool]) -> list[Any]:
    leaves = Leaves((arguments, {}))
    for value, is_static in zip(arguments, static, strict=True):
        if not is_static:
            fingerprint(value, leaves, [])
    return leaves.objects


def _watch_with_objects(read: Callable[[], Any], static: Sequence[bool], *arguments: Any) -> Any:
    """Return what a trace reads in a call with these arguments."""
    with serving(_objects_in(arguments, static)):
        return read()


def _is_item(read: Any) -> bool:
    return isinstance(read, functools.partial) and read.func is item_of and not read.keywords


def _look_up(read: Any) -> tuple[Reading, Any, Any]:
    """Return the look-up that a read performs: (how, owner, name). Raises NotNative for any other read.

    A ``get`` of an item that is there is its look-up: without the item the native call finds nothing, and Python serves the call.
    """
    if isinstance(read, functools.partial) and not read.keywords:
        function: Any = read.func
        args = read.args
        owner = getattr(function, "__self__", None)
        if type(owner) is dict and function.__name__ == "__getitem__" and type(args[0]) is str:
            return Reading.ITEM, owner, args[0]
        if type(owner) is dict and function.__name__ == "get" and type(args[0]) is str and args[0] in owner:
            return Reading.ITEM, owner, args[0]
        if function is getattr and len(args) == 2 and type(args[1]) is str:
            return Reading.ATTRIBUTE, args[0], args[1]
        if function is attribute_through and len(args) == 2 and type(args[0]) is weakref.ref and type(args[1]) is str:
            return Reading.THROUGH, args[0], args[1]
        if function is attribute_of and type(args[0]) is weakref.ref and args[0]() is not None:
            return Reading.THROUGH, args[0], args[1]
    raise NotNative("something outside that is read by code")


def flattened(entry: Entry, values: Sequence[Any], static: Sequence[bool]) -> tuple[Flat, Captures]:
    """Return the objects of a call and the captures of an entry, which Python reads if there is no other way. Raises
    NotNative."""
    for watched in (False, True):
        flat = Flat(values, static)
        try:
            captures = Captures(entry, values, static, watched)
            flat.expand(captures.values, captures.checks)
        except NotNative:
            if watched:
                raise
        except Exception as error:
            raise NotNative("what is outside cannot be read now") from error
        else:
            break
    return flat, captures
