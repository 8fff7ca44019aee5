"""What a native call reads from outside its arguments, and what must hold there: names and attributes that are compared, and
objects that are looked at like arguments.

What is inside a container from outside, ``rates["w"][0]``, is reached from the name that leads to it: that is read, and its nodes
say what is asked of the items. Where reads are not look-ups, Python reads everything (``trace.watch``).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from pullback.fastcall.arguments import VALUES, Flat, Want
from pullback.fastcall.results import written_beside, written_inputs
from pullback.programs.entry import Entry
from pullback.runtime.fastcall.record_layout import Guard, Reading
from pullback.runtime.fastcall.records import NotNative
from pullback.tracer.arrays.frame import Captured
from pullback.tracer.arrays.tree import container_of
from pullback.tracer.names.guards import Guard as Guarded
from pullback.tracer.names.guards import attribute_of, attribute_through, item_of

GuardRow = tuple[Guard, Any, Any, Any, bool]
ReadRow = tuple[Reading, Any, Any]


class Surroundings:
    """The guards of an entry and what it reads anew: rows for ``runtime.fastcall.records``, or ``watch``, which does both in
    Python.

    ``values`` are read; ``wants`` says of each what is asked of it. ``knows_classes``: whether it depends on which classes are
    registered.
    """

    def __init__(self, entry: Entry, watched: bool = False) -> None:
        self._entry = entry
        trace = entry.trace
        self._inputs: Any = trace.inputs[len(trace.inputs) - entry.outside_count :] if entry.outside_count else ()
        self._beside = written_beside(trace)
        self.guards: list[GuardRow] = []
        self.reads: list[ReadRow] = []
        self.watch: Callable[[], Any] | None = None
        self.knows_classes = False
        self.values: list[Any] = []
        self.wants: list[Want] = []
        self._known: dict[Any, int] = {}
        self._places: list[Want] = []
        if watched:
            self._as_watch()
        else:
            self._as_rows()

    def registers(self, flat: Flat) -> list[int]:
        """Where the inputs from outside lie, and then the arrays that are written and not read."""
        return [flat.places[id(want)] for want in self._places]

    def _as_rows(self) -> None:
        for guard in sorted(self._entry.trace.guards, key=lambda g: g.how != "identity"):
            self._guard(guard)
        for given in self._inputs:
            self._places.append(self._want(given.read) if isinstance(given, Captured) else self._constant(given.array))
        self._places += [self._want(given.read) for given in self._beside]
        for want in self._places:
            want.hows.add("input")
            if isinstance(want.value, np.ndarray) and not (want.value.ndim and want.value.dtype.isnative):
                raise NotNative("an array from outside is converted")

    def _as_watch(self) -> None:
        """Everything is read by the watch of the trace."""
        if self._beside:
            raise NotNative("the function writes into an array from outside of which it reads nothing") from None
        self.guards, self.reads, self.watch = [], [], self._entry.trace.watch.read
        found = self.watch()
        if found is None:
            raise NotNative("what is outside has changed") from None
        first = len(self._entry.trace.inputs) - len(self._inputs)
        for k in written_inputs(self._entry.trace):
            given = self._inputs[k - first] if k >= first else None
            if isinstance(given, Captured) and found[k - first] is not given.read():
                raise NotNative("the function writes into an array from outside that is converted where it is read") from None
        self.values = found
        self.wants = self._places = [Want(x, {"input"}) for x in found]

    def _guard(self, guard: Guarded) -> None:
        if guard.how == "state":
            raise NotNative("a guard on all attributes of an object")
        read: Any = guard.read
        if isinstance(read, functools.partial) and read.func is container_of and guard.holds():
            self.knows_classes = True
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
            self._want(read).hows.add(guard.how)

    def _want(self, read: Any) -> Want:
        """What is asked of what a read gives."""
        if _is_item(read):
            inside, key = read.args
            return self._want(inside).item(key)
        row = _look_up(read)
        mark = (row[0], id(row[1]), row[2])
        if mark not in self._known:
            self._known[mark] = len(self.reads)
            self._add(Reading(int(row[0])), row[1], row[2], read())
        return self.wants[self._known[mark]]

    def _constant(self, array: Any) -> Want:
        return self._add(Reading.SAME, array, None, array)

    def _add(self, kind: Reading, a: Any, b: Any, value: Any) -> Want:
        self.reads.append((kind, a, b))
        self.values.append(value)
        self.wants.append(Want(value, set()))
        return self.wants[-1]


def _is_item(read: Any) -> bool:
    return isinstance(read, functools.partial) and read.func is item_of and not read.keywords


def _look_up(read: Any) -> tuple[Reading, Any, Any]:
    """What a read looks up: (how, owner, name)."""
    if isinstance(read, functools.partial) and not read.keywords:
        function: Any = read.func
        args = read.args
        owner = getattr(function, "__self__", None)
        if type(owner) is dict and function.__name__ == "__getitem__" and type(args[0]) is str:
            return Reading.ITEM, owner, args[0]
        if function is getattr and len(args) == 2 and type(args[1]) is str:
            return Reading.ATTRIBUTE, args[0], args[1]
        if function is attribute_through and len(args) == 2 and type(args[0]) is weakref.ref and type(args[1]) is str:
            return Reading.THROUGH, args[0], args[1]
        if function is attribute_of and type(args[0]) is weakref.ref and args[0]() is not None:
            return Reading.THROUGH, args[0], args[1]
    raise NotNative("something outside that is read by code")


def flattened(entry: Entry, values: Sequence[Any], static: Sequence[bool]) -> tuple[Flat, Surroundings]:
    """The objects of a call with what an entry reads from outside, which Python reads where there is no other way. Raises
    NotNative."""
    for watched in (False, True):
        flat = Flat(values, static)
        try:
            found = Surroundings(entry, watched)
            flat.expand(found.values, found.wants)
        except NotNative:
            if watched:
                raise
        except Exception as error:
            raise NotNative("what is outside cannot be read now") from error
        else:
            break
    return flat, found
