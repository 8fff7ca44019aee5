"""What a traced function must leave as it is: containers that it was given, names, random generators.

The function runs on copies, so that nothing outside changes while it is traced. What it changed is seen when it is done, and
refused; the line is found by running it again, with a look after each of its lines.
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
from pullback.tracer.arrays.tree import container_of
from pullback.tracer.names.proxies import RANDOM, Outside
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import is_users, is_users_object, user_frame

OUTSIDE = "which comes from outside; return the value instead"
ARGUMENT = "and the caller's would stay as it is; change a copy of it, and return what is new"


def effect(message: str, loc: Loc | None) -> TraceError:
    """The error for a change of something outside the traced function."""
    error = TraceError(message, loc)
    error.is_effect = True
    return error


class Effects:
    """What is looked at, each with what to say if it changed."""

    def __init__(self) -> None:
        self._watched: list[tuple[Callable[[], bool], str]] = []
        self._reached: list[list[tuple[Callable[[], bool], str]]] = []
        self._watches_globals = False

    def watch(self, is_unchanged: Callable[[], bool], message: str) -> None:
        """Raise ``message`` where ``is_unchanged()`` is false."""
        self._watched.append((is_unchanged, message))

    def watch_outside(self, is_unchanged: Callable[[], bool], describe: str) -> None:
        """Something from outside, called ``describe``."""
        self.watch(is_unchanged, f"the traced function changes {describe}, {OUTSIDE}")

    def watch_random(self, describe: str, state: Callable[[], Any]) -> None:
        """A random generator of a library's, whose state tells whether it drew."""
        before = state()
        self.watch(lambda: bool(state() == before), f"a random draw ({describe}): {RANDOM}")

    def watch_global_generators(self) -> None:
        """NumPy's and Python's global generators, from which library code that is not followed may draw."""
        if not self._watches_globals:
            self._watches_globals = True
            self.watch_random("np.random", _numpy_state)
            self.watch_random("random", random.getstate)

    def watch_argument(self, value: Any, describe: str) -> None:
        """The containers of an argument, which are copies; arrays in them may be written."""
        items = _items(value)
        if items is None:
            return
        self.watch(lambda: _is_same(_items(value), items), f"the traced function changes the argument {describe}, {ARGUMENT}")
        for key, item in items:
            label = f"{describe}[{key!r}]" if isinstance(value, Mapping | list | tuple) else f"{describe}.{key}"
            self.watch_argument(item, label)

    @contextmanager
    def within(self, function: Any, what: str) -> Iterator[None]:
        """Raises TraceError if ``function``, which is ``what`` and runs once for all times, changes what its closure holds."""
        found: list[tuple[Callable[[], bool], str]] = []
        instead = f"{what} changes {{}}, which comes from outside it; put the value in what it is given, and return it"
        seen: set[int] = set()
        for name, value, is_unchanged in reached(function):
            if isinstance(value, Iterator) and not is_users_object(value):
                raise TraceError(f"{what} uses the iterator {name}, which its one run uses up; index an array instead")
            message = instead.format(name)
            found.append((is_unchanged, message))
            found += [(unchanged, message) for unchanged in _kept(value, seen)]
        self._reached.append(found)
        try:
            yield
            self.refuse(user_loc())
        finally:
            self._reached.pop()

    def refuse(self, loc: Loc | None) -> None:
        """Raises TraceError if something changed."""
        for is_unchanged, message in itertools.chain(self._watched, *self._reached):
            if not is_unchanged():
                raise effect(message, loc)

    def clear(self) -> None:
        self._watched.clear()


def reached(function: Any) -> Iterator[tuple[str, Any, Callable[[], bool]]]:
    """The variables of outer functions that a function reads, with their values and whether they still are those; of the
    functions among these values too."""
    work, seen = [function], set()
    while work:
        found = work.pop()
        if isinstance(found, partial):
            work += [found.func, *found.args]
        if isinstance(found, MethodType):
            work.append(found.__func__)
            yield type(found.__self__).__name__, found.__self__, lambda: True
        if not isinstance(found, FunctionType) or found in seen:
            continue
        seen.add(found)
        for value in (*(found.__defaults__ or ()), *(found.__kwdefaults__ or {}).values()):
            yield f"a default of {found.__name__}", value, lambda: True
        for cell, name in zip(found.__closure__ or (), found.__code__.co_freevars):
            with suppress(ValueError):
                value = cell.cell_contents
                yield name, value, partial(_holds, cell, value)
                work.append(value)


def _holds(cell: CellType, value: Any) -> bool:
    return cell.cell_contents is value


def _contents(value: Any) -> Any:
    """What can change in a value: the items of a container, the numbers of an array; None of any other."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return digest(value)
    if type(value) in (set, deque):
        return list(enumerate(value))
    if is_users_object(value) and not issubclass(type(value), Outside) and hasattr(value, "__dict__"):
        return list(vars(value).items())
    return _items(value)


def _kept(value: Any, seen: set[int]) -> Iterator[Callable[[], bool]]:
    """Whether a value, and what it holds, are as they are now."""
    before = None if id(value) in seen else _contents(value)
    if before is None:
        return
    seen.add(id(value))
    yield partial(_is_as_before, value, before)
    for _, inside in before if isinstance(before, list) else ():
        yield from _kept(inside, seen)


def _is_as_before(value: Any, before: Any) -> bool:
    now = _contents(value)
    return bool(now == before) if isinstance(before, bytes) else _is_same(now, before)


def _items(value: Any) -> Sequence[tuple[Any, Any]] | None:
    """What is in a container that can be changed, or may hold one that can, with its keys; None for any other value."""
    kind = type(value)
    if hasattr(kind, "__setitem__") and isinstance(value, Mapping):
        return list(value.items())
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return list(enumerate(value))
    if container_of(kind) is not None and hasattr(value, "__dict__"):
        return list(vars(value).items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name, None)) for f in dataclasses.fields(value)]
    return None


def _is_same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(j is k or (type(j) in (str, int) and j == k) for (j, _), (k, _) in zip(a, b)) and all(
        x is y for (_, x), (_, y) in zip(a, b)
    )  # fmt: skip


def _numpy_state() -> Any:
    """The state of NumPy's global generator."""
    state: Any = np.random.get_state(legacy=False)
    inside = [v.tobytes() if isinstance(v, np.ndarray) else v for v in state["state"].values()]
    return [state["bit_generator"], *inside, state.get("has_gauss")]


def generators_in(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The random generators that an object of a library's holds, and how their states are read."""
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
    """Calls ``check`` after each line of the user's that runs in this context, with the place of that line."""
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
