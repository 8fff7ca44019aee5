"""Detection of side effects of a traced function: on containers passed to it, names, and random generators.

The function runs on copies, so that nothing outside changes during tracing. Changes are detected when it returns, and refused;
the line is located by running it again, with a check after each of its lines.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from pullback.ir import NOWHERE, Loc
from pullback.tracer.arrays.frame import digest
from pullback.tracer.arrays.traced import Keyed, Listed, Tagged
from pullback.tracer.arrays.tree import NAMESPACES, container_of, is_stand_in
from pullback.tracer.names.proxies import RANDOM, Outside
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import attribute_names, is_users, is_users_object, user_frame

OUTSIDE = "which comes from outside; return the value instead"
ARGUMENT = "and the caller's would stay as it is; change a copy of it, and return what is new"


def effect(message: str, loc: Loc | None) -> TraceError:
    """Return the error for a change of something outside the traced function."""
    error = TraceError(message, loc)
    error.is_effect = True
    return error


class Effects:
    """The watched objects, each with the message for its change; ``kept``: the containers of which one may be another, by id."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}
        self._wanted: dict[int, str] = {}
        self._watched: list[tuple[Callable[[], bool], str]] = []
        self._reached: list[list[tuple[Callable[[], bool], str]]] = []
        self._watches_globals = False

    def watch(self, is_unchanged: Callable[[], bool], message: str) -> None:
        """Raise ``message`` if ``is_unchanged()`` is false at a later check."""
        self._watched.append((is_unchanged, message))

    def watch_outside(self, is_unchanged: Callable[[], bool], describe: str, wanted: str = "") -> None:
        """Watch an outside object, called ``describe``. ``wanted``: the name of a container whose copy has others in it, which
        ``wanted()`` returns if it changed."""
        if wanted:
            self._wanted[len(self._watched)] = wanted
        self.watch(is_unchanged, f"the traced function changes {describe}, {OUTSIDE}")

    def watch_random(self, describe: str, state: Callable[[], Any]) -> None:
        """Watch a library's random generator, whose state shows whether it was drawn from."""
        before = state()
        self.watch(lambda: bool(state() == before), f"a random draw ({describe}): {RANDOM}")

    def watch_global_generators(self) -> None:
        """Watch NumPy's and Python's global generators, from which library code that is not followed may draw."""
        if not self._watches_globals:
            self._watches_globals = True
            self.watch_random("np.random", _numpy_state)
            self.watch_random("random", random.getstate)

    def watch_argument(self, value: Any, describe: str, may_change: Callable[[Any], bool] = lambda value: False) -> None:
        """Watch the containers of an argument, which are copies, but those that ``may_change``; arrays in them may be written."""
        items = items_of(value)
        if items is None:
            return
        if not may_change(value):
            message = f"the traced function changes the argument {describe}, {ARGUMENT}"
            self.watch(lambda: is_same_contents(items_of(value), items), message)
        for key, item in items:
            label = f"{describe}[{key!r}]" if isinstance(value, Mapping | list | tuple | deque) else f"{describe}.{key}"
            self.watch_argument(item, label, may_change)

    @contextmanager
    def within(self, function: Any, what: str) -> Iterator[None]:
        """Raise TraceError if ``function``, described by ``what`` and traced only once, changes objects in its closure."""
        watched: list[tuple[Callable[[], bool], str]] = []
        instead = f"{what} changes {{}}, which comes from outside it; put the value in what it is given, and return it"
        seen: set[int] = set()
        for name, value, is_unchanged in reached(function):
            if isinstance(value, Iterator) and not is_users_object(value):
                raise TraceError(f"{what} uses the iterator {name}, which its one run uses up; index an array instead")
            message = instead.format(name)
            watched.append((is_unchanged, message))
            watched += [(unchanged, message) for unchanged in watched_contents(value, seen)]
        self._reached.append(watched)
        try:
            yield
            self.refuse(user_loc())
        finally:
            self._reached.pop()

    def wanted(self) -> list[str]:
        """Return the containers that changed and whose copies have others in them."""
        return [describe for k, describe in self._wanted.items() if not self._watched[k][0]()]

    def refuse(self, loc: Loc | None) -> None:
        """Raise TraceError if a watched object changed."""
        for is_unchanged, message in itertools.chain(self._watched, *self._reached):
            if not is_unchanged():
                raise effect(message, loc)

    def clear(self) -> None:
        self._watched.clear()
        self._wanted.clear()


def reached(function: Any) -> Iterator[tuple[str, Any, Callable[[], bool]]]:
    """Yield the variables of outer functions that a function reads, with their values and functions that return whether they
    are unchanged.

    Functions among these values are searched too.
    """
    work, seen = [function], set()
    while work:
        current = work.pop()
        if isinstance(current, partial):
            work += [current.func, *current.args]
        if isinstance(current, MethodType):
            work.append(current.__func__)
            yield type(current.__self__).__name__, current.__self__, lambda: True
        if not isinstance(current, FunctionType) or current in seen:
            continue
        seen.add(current)
        for value in (*(current.__defaults__ or ()), *(current.__kwdefaults__ or {}).values()):
            yield f"a default of {current.__name__}", value, lambda: True
        for cell, name in zip(current.__closure__ or (), current.__code__.co_freevars):
            with suppress(ValueError):
                value = cell.cell_contents
                yield name, value, partial(_holds, cell, value)
                work.append(value)


def _holds(cell: CellType, value: Any) -> bool:
    return cell.cell_contents is value


def _contents(value: Any) -> Any:
    """Return the mutable part of a value: a container's items, a hash of an array's numbers; None for any other value."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return digest(value)
    if is_users_object(value) and not issubclass(type(value), Outside) and hasattr(value, "__dict__"):
        return list(vars(value).items())
    if is_users_object(value) and not issubclass(type(value), Outside) and not dataclasses.is_dataclass(value):
        return [(name, getattr(value, name)) for name in attribute_names(value)]
    return items_of(value)


def watched_contents(value: Any, seen: set[int]) -> Iterator[Callable[[], bool]]:
    """Yield functions that return whether a value, and the values in it, are unchanged."""
    before = None if id(value) in seen else _contents(value)
    if before is None:
        return
    seen.add(id(value))
    yield partial(_is_as_before, value, before)
    for _, inside in before if isinstance(before, list) else ():
        yield from watched_contents(inside, seen)


def _is_as_before(value: Any, before: Any) -> bool:
    now = _contents(value)
    return bool(now == before) if isinstance(before, bytes) else is_same_contents(now, before)


def items_of(value: Any) -> Sequence[tuple[Any, Any]] | None:
    """Return the items of a container that is mutable, or may hold one that is, with their keys; None for any other value."""
    kind = type(value)
    if isinstance(value, Tagged):
        return list(enumerate(value.cases))
    if issubclass(kind, Keyed):
        return [("entries", value.entries)]
    if issubclass(kind, Listed):
        rows = value.rows
        return [("rows", rows), ("length", rows.length)] if rows is not None else list(enumerate(list.__iter__(value)))
    if kind in (set, deque):
        return list(enumerate(value))
    if hasattr(kind, "__setitem__") and isinstance(value, Mapping):
        return list(value.items())
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return list(enumerate(value))
    if kind in NAMESPACES or (container_of(kind) is not None and hasattr(value, "__dict__")):
        return list(vars(value).items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if is_stand_in(kind):
            return [(f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
        return [(name, getattr(value, name)) for name in attribute_names(value)]
    return None


def is_same_contents(a: Any, b: Any) -> bool:
    """Return whether two lists of items have the same keys and are the same objects."""
    return len(a) == len(b) and all(j is k or (type(j) in (str, int) and j == k) for (j, _), (k, _) in zip(a, b)) and all(
        x is y for (_, x), (_, y) in zip(a, b)
    )  # fmt: skip


def _numpy_state() -> Any:
    """Return the state of NumPy's global generator."""
    state: Any = np.random.get_state(legacy=False)
    inside = [v.tobytes() if isinstance(v, np.ndarray) else v for v in state["state"].values()]
    return [state["bit_generator"], *inside, state.get("has_gauss")]


def generators_in(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the random generators in a library's object, with functions that read their states."""
    for name, inside in vars(value).items():
        if isinstance(inside, np.random.Generator | np.random.RandomState | random.Random):
            yield name, partial(_state_of, inside)


def _state_of(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return repr(generator.get_state(legacy=True))
    return generator.getstate()


@contextmanager
def line_by_line(check: Callable[[Loc], None]) -> Iterator[None]:
    """Call ``check`` after each line of the user's code that runs in this context, with the location of that line."""
    last = NOWHERE
    before = sys.gettrace()

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal last
        check(last)
        caller = user_frame(frame.f_back) if event == "return" else frame
        last = NOWHERE if caller is None else Loc(caller.f_code.co_filename, caller.f_lineno)
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return local(frame, event, argument) if is_users(frame.f_code) else None

    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
