"""Describe what a native call reads from outside its arguments, and the guards on it: names and attributes that are compared,
and objects that are checked like arguments.

A value inside an outside container, ``rates["w"][0]``, is reached from the name of the container: the container is read, and
its nodes hold the checks on the items. If a read is not a look-up, Python reads everything (``trace.watch``).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from pullback.fastcall.arguments import VALUES, Checks, Flat
from pullback.fastcall.results import written_inputs, written_only
from pullback.programs.entry import Entry
from pullback.runtime.fastcall.record_layout import Guard, Reading
from pullback.runtime.fastcall.records import NO_ITEM, NotNative
from pullback.tracer.arrays.frame import Captured
from pullback.tracer.arrays.tree import container_of
from pullback.tracer.names.guards import Guard as Guarded
from pullback.tracer.names.guards import are_absent, attribute_of, attribute_through, item_of

GuardRow = tuple[Guard, Any, Any, Any, bool]
ReadRow = tuple[Reading, Any, Any]


class Captures:
    """The guards of an entry and its reads at each call: rows for ``runtime.fastcall.records``, or ``watch``, which does both
    in Python.

    ``values`` are the values read, ``checks`` the checks on each. ``knows_classes``: whether they depend on the registered
    classes.
    """

    def __init__(self, entry: Entry, watched: bool = False) -> None:
        self._entry = entry
        trace = entry.trace
        self._inputs: Any = trace.inputs[len(trace.inputs) - entry.outside_count :] if entry.outside_count else ()
        self._written_only = written_only(trace)
        self.guards: list[GuardRow] = []
        self.reads: list[ReadRow] = []
        self.watch: Callable[[], Any] | None = None
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
        elif guard.how in ("identity", "value") and not _is_item(read):
            kind, a, b = _look_up(read)
            by_value = guard.how == "value" and type(guard.expected) in (*VALUES, float)
            self.guards.append((Guard(int(kind)), a, b, guard.expected, by_value))
        else:
            self._checks(read).kinds.add(guard.how)

    def _checks(self, read: Any) -> Checks:
        """Return the checks on the value of a read."""
        if _is_item(read):
            inside, key = read.args
            return self._checks(inside).item(key)
        row = _look_up(read)
        mark = (row[0], id(row[1]), row[2])
        if mark not in self._indices:
            self._indices[mark] = len(self.reads)
            self._add(Reading(int(row[0])), row[1], row[2], read())
        return self.checks[self._indices[mark]]

    def _constant(self, array: Any) -> Checks:
        return self._add(Reading.SAME, array, None, array)

    def _add(self, kind: Reading, a: Any, b: Any, value: Any) -> Checks:
        self.reads.append((kind, a, b))
        self.values.append(value)
        self.checks.append(Checks(value, set()))
        return self.checks[-1]


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
            captures = Captures(entry, watched)
            flat.expand(captures.values, captures.checks)
        except NotNative:
            if watched:
                raise
        except Exception as error:
            raise NotNative("what is outside cannot be read now") from error
        else:
            break
    return flat, captures
