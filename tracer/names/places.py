"""Places outside the traced function to which it stores: attributes, globals, and variables of outer functions.

A place is read from outside at most once, as an input or with a guard; from the first store on, the function reads what it
stored. Its last value is a result of the trace, and a call that succeeds stores it. A store that Python would refuse raises
Python's error in the trace, at its line, so that no store of a call fails.

In a block of a branch or loop that values decide, the places to which it stores are variables of the block: the content of each,
and whether something was stored there (``is_stored``), which is a result of the trace where values decide it. So is the order
in which attributes that an object does not have get there (``since``).
"""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import Frame, current
from pullback.tracer.arrays.make import as_traced, cast, emit, literal
from pullback.tracer.arrays.traced import Keyed, TracedArray, has_rows
from pullback.tracer.arrays.tree import flatten
from pullback.tracer.arrays.views import may_be_one
from pullback.tracer.names.guards import Read
from pullback.tracer.user_code.errors import Restart, TraceError, user_loc
from pullback.tracer.user_code.ownership import attribute_names

AS_BEFORE = object()
"""The content of a place to which nothing was stored."""
DELETED = object()
"""The content of a place that was deleted."""


@dataclass(frozen=True, kw_only=True)
class PlaceKind:
    """A kind of places: ``write(owner, key, value)`` stores a value, ``delete(owner, key)`` removes the one that is there, and
    ``holds(owner, key)`` returns whether there is one."""

    write: Callable[[Any, Any, Any], None]
    delete: Callable[[Any, Any], None]
    holds: Callable[[Any, Any], bool]


def _write_attribute(owner: Any, name: str, value: Any) -> None:
    if type(owner).__setattr__ in _PLAIN_SETTERS:
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)


def _delete_attribute(owner: Any, name: str) -> None:
    if type(owner).__delattr__ in _PLAIN_DELETERS:
        delattr(owner, name)
    else:
        object.__delattr__(owner, name)


_LIBRARY_CLASSES = (object, SimpleNamespace, Namespace, threading.local)
_PLAIN_SETTERS: tuple[Any, ...] = tuple(kind.__setattr__ for kind in _LIBRARY_CLASSES)
_PLAIN_DELETERS: tuple[Any, ...] = tuple(kind.__delattr__ for kind in _LIBRARY_CLASSES)

def _has_content(cell: Any, key: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


ATTRIBUTE = PlaceKind(
    write=_write_attribute, delete=_delete_attribute, holds=lambda owner, name: name in attribute_names(owner)
)  # fmt: skip
CLASS_ATTRIBUTE = PlaceKind(
    write=type.__setattr__, delete=type.__delattr__, holds=lambda kind, name: name in vars(kind)
)  # fmt: skip
GLOBAL = PlaceKind(write=dict.__setitem__, delete=dict.__delitem__, holds=dict.__contains__)
CELL = PlaceKind(
    write=lambda cell, key, value: setattr(cell, "cell_contents", value),
    delete=lambda cell, key: delattr(cell, "cell_contents"), holds=_has_content,
)  # fmt: skip


def arrays_of(value: Any) -> list[TracedArray]:
    """Return the arrays in a value that have an identity, as numbers do not."""
    if has_rows(value) or isinstance(value, Keyed):
        return []
    if isinstance(value, list | tuple | dict):
        items = value.values() if isinstance(value, dict) else list.__iter__(value) if isinstance(value, list) else value
        return [x for item in items for x in arrays_of(item)]
    return [x for x in flatten(value)[0] if isinstance(x, TracedArray) and (x.shape or x.is_cell)]


class NewVariables(Restart):
    """Signals places that turn out to be variables of the blocks that run: the outermost statement on traced values is to be
    traced again."""


class Place:
    """A place of a kind, ``key`` of what ``owner()`` returns. Like a cell, it has ``cell_contents``: what the function
    reads there.

    ``before`` returns what it reads there before it stores. It raises AttributeError, KeyError or ValueError if there is nothing.
    ``stored``: what was stored there last, and ``is_stored``: whether something was, True, False or a traced bool.
    ``is_variable``: blocks that values decide store there. ``arrays_stored``: the arrays that were stored.
    ``is_new``: there is nothing before the call. ``since``: an int, maybe a traced one, that is greater than those of the places
    of the owner that hold something since before, and odd where what was there was deleted; 0 where it is there from before.
    """

    may_be_absent = True
    """Whether each read can find that there is nothing."""

    def __init__(self, kind: PlaceKind, owner: Read, key: Any, describe: str, before: Read) -> None:
        self.kind, self.owner, self.key, self.describe, self._before = kind, owner, key, describe, before
        self.stored: Any = AS_BEFORE
        self.is_stored: Any = False
        self.is_variable = False
        self.arrays_stored: list[TracedArray] = []
        self.since: Any = 0
        self.is_new = self.may_be_absent and not self.holds()

    def holds(self) -> bool:
        """Return whether there is something outside."""
        is_there: bool = presence(self.kind, self.owner, self.key)()
        return is_there

    def was_there(self) -> bool:
        """Return whether there was something before the function."""
        try:
            self._before()
        except (AttributeError, KeyError, ValueError):
            return False
        return True

    @property
    def content(self) -> Any:
        """What is there, DELETED if it was deleted. Raises ValueError if there is nothing."""
        if self.stored is not AS_BEFORE:
            return self.stored
        try:
            return self._before()
        except (AttributeError, KeyError):
            raise ValueError("nothing is stored there") from None

    @property
    def cell_contents(self) -> Any:
        self.refuse_absent()
        content = self.content
        if content is DELETED:
            raise ValueError("nothing is stored there")
        return content

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        self.stored, self.is_stored = value, True
        self.arrays_stored += arrays_of(value)

    @cell_contents.deleter
    def cell_contents(self) -> None:
        self.stored, self.is_stored = DELETED, True

    def refuse_absent(self) -> None:
        """Raise TraceError if values decide whether there is something."""
        if not isinstance(self.is_stored, bool) and not self.was_there():
            raise TraceError(f"{self.describe} is read, which is only there if values decide so; store to it on all paths")

    def put(self, content: Any) -> None:
        """Set what blocks, as their variable, leave in the place, AS_BEFORE if nothing."""
        self.stored = content

    def unstored_arrays(self) -> list[TracedArray]:
        """Return the arrays from before that its content may be only where nothing is stored."""
        if self.is_stored is True or not self.was_there():
            return []
        return [x for x in arrays_of(self._before()) if not any(may_be_one(x, y) for y in self.arrays_stored)]

    def state(self) -> State:
        """Return what is stored there, whether something is, and since when."""
        return self.stored, self.is_stored, self.since

    def set_state(self, state: State) -> None:
        """Set what ``state`` returned."""
        self.stored, self.is_stored, self.since = state

    def added(self, others: Sequence[Place]) -> Any:
        """Return since when something is there if it is stored now. ``others``: the places of the owner."""
        if self.stored is DELETED:
            return _after(others, 1)
        if self.is_stored is True or not self.is_new:
            return self.since
        since = _after(others, 0)
        return since if self.is_stored is False else _whole("select", self.is_stored, self.since, since)


State = tuple[Any, Any, Any]


def _after(places: Sequence[Place], parity: int) -> Any:
    """Return an int after those since which places hold something."""
    last: Any = 0
    for target in places:
        since = target.since
        is_known = isinstance(last, int) and isinstance(since, int)
        last = max(last, since) if is_known else _whole("maximum", last, since)
    odd = last | 1 if isinstance(last, int) else _whole("bitor", last, 1)
    return odd + 1 + parity if isinstance(odd, int) else _whole("add", odd, 1 + parity)


def _whole(op: str, *operands: Any) -> TracedArray:
    """Return the result of an op on ints, a Python int that is not checked."""
    xs = [as_traced(x) if isinstance(x, bool) or not isinstance(x, int) else literal(x, np.int64) for x in operands]
    result: TracedArray = emit(op, *(x if x.dtype.kind == "b" else cast(x, np.int64) for x in xs))
    result.weak, result.bounds = "int", (0, MOST_STORES)
    return result


MOST_STORES = 2**40
"""Bound of the numbers of stores to new places in a call."""


class VariablePlace(Place):
    """A place whose content is in a variable of the trace: ``get`` returns it, and ``set`` sets it. ``cell``: that of the
    variable, if it has one.

    Python stores there without a call, so that something is stored where the content is another object; blocks note with the
    content that they leave whether it was.
    """

    may_be_absent = False

    def __init__(
        self, kind: PlaceKind, owner: Read, key: Any, describe: str, before: Read, get: Read, set: Callable[[Any], None],
        cell: Any = None,
    ) -> None:  # fmt: skip
        self._get, self._set, self.cell = get, set, cell
        self._noted: tuple[Any, Any] | None = None
        stored = get()
        super().__init__(kind, owner, key, describe, before)
        set(stored)

    @property
    def stored(self) -> Any:
        return self._get()

    @stored.setter
    def stored(self, value: Any) -> None:
        self._set(value)

    @property
    def is_stored(self) -> Any:
        stored = self.stored
        if stored is AS_BEFORE:
            return False
        return self._noted[1] if self._noted is not None and self._noted[0] is stored else True

    @is_stored.setter
    def is_stored(self, value: Any) -> None:
        self._noted = self.stored, value

    def unstored_arrays(self) -> list[TracedArray]:
        return []

    def put(self, content: Any) -> None:
        try:
            is_before = content is self._before()
        except (AttributeError, KeyError, ValueError):
            is_before = False
        self.stored = AS_BEFORE if is_before else content


class Content:
    """The content of a place as a cell, like that of a variable."""

    __slots__ = ("of",)

    def __init__(self, of: Place) -> None:
        self.of = of

    @property
    def cell_contents(self) -> Any:
        return self.of.content

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        self.of.put(value)

    @cell_contents.deleter
    def cell_contents(self) -> None:
        self.of.put(AS_BEFORE)


class IsStored:
    """Whether something was stored in a place, as a cell."""

    __slots__ = ("of",)

    def __init__(self, of: Place) -> None:
        self.of = of

    @property
    def cell_contents(self) -> Any:
        return self.of.is_stored

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        if value is False:
            self.of.put(AS_BEFORE)
        self.of.is_stored = value


class Since:
    """Since when a place holds something, as a cell."""

    __slots__ = ("of",)

    def __init__(self, of: Place) -> None:
        self.of = of

    @property
    def cell_contents(self) -> Any:
        return self.of.since

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        self.of.since = value


Saved = Mapping[Place, State]
"""The states of places."""


_UNSTORED = AS_BEFORE, False, 0


class Places:
    """The places to which a trace stored, in the order of the first stores. ``variables`` returns, at any time, the places among
    globals, variables of outer functions and attributes of functions to which something was stored: Python stores there without a
    call."""

    def __init__(self, root: Frame, variables: Callable[[], Iterator[tuple[Any, Callable[[], Place]]]]) -> None:
        self._root = root
        self._variables = variables
        self._places: dict[Any, Place] = {}

    def get(self, owner: Any, key: Any) -> Place | None:
        """Return the place of an owner, if something was stored there."""
        return self._places.get((id(owner), key))

    def of(self, owner: Any) -> bool:
        """Return whether something was stored to an attribute of an object."""
        return any(key[0] == id(owner) for key in self._places)

    def on(self, owner: Any) -> list[Place]:
        """Return the places that are attributes of an object."""
        return [target for key, target in self._places.items() if key[0] == id(owner)]

    def on_in_order(self, owner: Any) -> list[Place]:
        """Return the attributes of an object to which something was stored, new ones in the order in which they got there. Raises
        TraceError if values decide it."""
        places = self.on(owner)
        undecided = [target for target in places if not isinstance(target.since, int)]
        if undecided:
            what = f"the order in which {undecided[0].describe} and other attributes are stored"
            raise TraceError(f"values decide {what}; store to them on all paths")
        return sorted(places, key=lambda target: target.since)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored."""
        return not self.all()

    def store(self, owner: Any, key: Any, value: Any, make: Callable[[], Place]) -> None:
        """Store a value in a place, DELETED if what is there is deleted. Raises TraceError where stores are refused."""
        self._refuse_here(make)
        if (id(owner), key) not in self._places:
            self._places[id(owner), key] = make()
        target = self._places[id(owner), key]
        if value is not DELETED:
            target.since = target.added(self.on(owner))
        target.cell_contents = value

    def _refuse_here(self, make: Callable[[], Place]) -> None:
        frame = current()
        refusing = next((f for f in frame.outward if not f.takes_stores), None) if frame is not None else None
        if refusing is not None:
            raise refusal(make().describe, refusing)

    def all(self) -> list[Place]:
        """Return the places to which something was stored."""
        for key, make in self._variables():
            if key not in self._places:
                self._places[key] = make()
        return list(self._places.values())

    def refuse_undecided(self, kind: type, name: str) -> None:
        """Raise TraceError if values decide whether an object of a class has an attribute of its own."""
        for (_, key), target in self._places.items():
            if key == name and not isinstance(target.is_stored, bool) and isinstance(target.owner(), kind):
                what = f"a store to the attribute .{name} of {kind.__qualname__}, while values decide whether {target.describe}"
                raise TraceError(f"{what} is an attribute of the object; store to it on all paths")

    def changed(self) -> list[Place]:
        """Return the places that have other contents than before the function."""
        stored = [target for target in self.all() if target.stored is not AS_BEFORE and target.is_stored is not False]
        return [target for target in stored if target.stored is not DELETED or target.was_there()]

    def ordered(self) -> list[Place]:
        """Return the places that held something before, and in whose owners others may come before them in a call in which they
        do not."""
        by_owner: dict[int, list[Place]] = {}
        for (owner, _), target in self._places.items():
            by_owner.setdefault(owner, []).append(target)
        several = [places for places in by_owner.values() if len(places) > 1]
        with_order = [places for places in several if any(t.is_new or not isinstance(t.is_stored, bool) for t in places)]
        return [target for places in with_order for target in places if target.may_be_absent and not target.is_new]

    def variables(self) -> list[Place]:
        """Return the places that are variables of the blocks of statements that values decide."""
        return [target for target in self.all() if target.is_variable or target.stored is not AS_BEFORE]

    def stored(self) -> list[Place]:
        """Return the places with a content that was stored."""
        return [target for target in self.all() if target.stored is not AS_BEFORE and target.stored is not DELETED]

    def contents(self) -> Saved:
        """Return what is stored in each place."""
        return {target: target.state() for target in self.all()}

    def changed_since(self, contents: Saved) -> list[Place]:
        """Return the places that have other contents than at the time of ``contents``."""
        return [target for target in self.all() if target.stored is not contents.get(target, _UNSTORED)[0]]

    def restore(self, contents: Saved) -> None:
        """Give all places what was stored at the time of ``contents``."""
        for target in self.all():
            target.set_state(contents.get(target, _UNSTORED))

    def join(self, contents: Saved, variables: Collection[Place]) -> None:
        """Make the places to which a block stored since the time of ``contents`` variables. Raises NewVariables if one was
        none of its ``variables``."""
        changed = self.changed_since(contents)
        for target in changed:
            target.is_variable = True
        new = [target for target in changed if target not in variables]
        if new:
            raise NewVariables(new[0].describe)

    @contextmanager
    def within(self, frame: Frame) -> Iterator[None]:
        """Raise TraceError if a function that is traced in this context, in a region, stores to a variable although the region
        takes no stores."""
        before = self.contents()
        yield
        changed = [] if frame.takes_stores else self.changed_since(before)
        for target in changed:
            target.set_state(before.get(target, _UNSTORED))
        for target in changed:
            raise refusal(target.describe, frame)

    def clear(self) -> None:
        self._places.clear()


def presence(kind: PlaceKind, owner: Read, key: Any) -> Read:
    """Return a function that returns whether a place holds something."""
    return lambda: kind.holds(owner(), key)


def refusal(describe: str, frame: Frame) -> TraceError:
    """Return the error for a store in a region that takes none."""
    what = frame.sealed.partition("; ")[0] or "a function that is traced once and runs any number of times"
    error = TraceError(f"{what} stores to {describe}; return the value, and store it after the call", user_loc())
    error.is_effect = True
    return error


def refuse_absent(target: Place) -> None:
    """Raise TraceError for a place that may hold nothing after a block, unless each read of it can find that."""
    if not target.may_be_absent:
        raise TraceError(f"a branch or loop on traced values stores to {target.describe}, which is not there; bind it before")
