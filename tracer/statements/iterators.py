"""Loops of functions whose source is not at hand: an iterator traces the body that the interpreter runs between its items.

    for i in range(1000):           # the first item is 0: an iteration as it stands
        s = s + x[i] * y            # the second one is a traced index, and ``s`` a parameter of a region
                                    # at the third one, the region is closed: the loop is emitted, and ``s`` is its result

``range``, ``enumerate``, ``zip`` and ``reversed``, and arrays, return such an iterator where a ``for`` statement goes over their
result, which the bytecode shows. The variables of the body are those of the interpreter's frame, which are read and set. A loop
that ``break`` or ``return`` may leave, or that turns out not to be one body, unrolls: its function is traced anew.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CellType, FrameType, FunctionType
from typing import Any

from pullback.tracer.arrays.frame import Frame, current, frame_of
from pullback.tracer.statements.blocks import Steps
from pullback.tracer.statements.branches import is_undecided
from pullback.tracer.statements.containers import State
from pullback.tracer.statements.items import Items, items, items_of
from pullback.tracer.statements.rolled_loops import LoopStatement
from pullback.tracer.statements.unrolling import MOST_EMPTY, Growth, is_long
from pullback.tracer.statements.variables import Variables
from pullback.tracer.syntax.bytecode import LoopKey
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.control_flow import note_statement
from pullback.tracer.user_code.errors import TraceError


class Local:
    """A variable of a running function, as a cell: ``cell_contents`` is read, assigned and deleted."""

    __slots__ = ("frame", "name")

    def __init__(self, frame: FrameType, name: str) -> None:
        self.frame, self.name = frame, name

    @property
    def cell_contents(self) -> Any:
        values = self.frame.f_locals
        if self.name not in values:
            raise ValueError("no value")
        return values[self.name]

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        self.frame.f_locals[self.name] = value
        _set_locals(self.frame)

    @cell_contents.deleter
    def cell_contents(self) -> None:
        if not _HAS_COPIES:
            raise TraceError("a loop binds a variable on some paths only; bind it before the loop")
        self.frame.f_locals.pop(self.name, None)
        _set_locals(self.frame)


_HAS_COPIES = sys.version_info < (3, 13)
"""Whether ``f_locals`` of a frame is a copy of its variables, which does not set them."""


def _set_locals(frame: FrameType) -> None:
    """Set the variables of a running function to those in its ``f_locals``."""
    if _HAS_COPIES:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(1))


class Locals(Variables):
    """The variables of a running function, those that functions among them bind, and the items of the containers that it
    reaches."""

    def __init__(self, frame: FrameType) -> None:
        code, values = frame.f_code, dict(frame.f_locals)
        own = dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        self.state = State((), [*values.items()])
        bound = self.state.bound
        self.names = (*own, *(name for name, _ in bound), *self.state.names)
        cells: list[Any] = [*(Local(frame, name) for name in own), *(cell for _, cell in bound), *self.state.slots]
        self.cells = cells
        self.sole, self.places = set[int](), {}
        first = len(cells) - len(self.state.slots)
        self.outside = {k + first for k in self.state.slots_outside}
        self.add_places(frame_of().root.names.places.variables())


class Loop(Iterator[Any]):
    """The iterator of the ``for`` statement ``key`` in the frame of a running function."""

    def __init__(self, sequence: Items, frame: FrameType, key: LoopKey, trace: Frame) -> None:
        self.sequence, self.frame, self.key, self.trace = sequence, frame, key, trace
        self.first, self.start = 0, len(trace.builder.instructions)
        self.growth = Growth()
        self.is_decided = self.is_over = False
        self.steps: Steps[Any] | None = None

    def __next__(self) -> Any:
        if self.steps is not None:
            return self._step(lambda steps: steps.send(None))
        if self.is_over:
            raise StopIteration
        if not self.sequence.is_counted or (self.first and self._is_rolled()):
            code = self.frame.f_code
            body = FunctionType(code, self.frame.f_globals, closure=tuple(CellType() for _ in code.co_freevars))
            variables = functools.partial(Locals, self.frame)  # refers to no loop, which ends with its last reference
            self.trace.root.is_rewritten = True
            live = () if self.sequence.is_counted else (*code.co_varnames, *code.co_cellvars)
            loop = LoopStatement(
                body=body, names=(), temporary=(), live=live, items=self.sequence, first=self.first, variables=variables
            )
            self.steps = loop.steps(None, None)
            return self._step(next)
        if self.first == self.sequence.count:
            self.is_over = True
            note_statement(self.trace.root.statements, "loop", f"unrolled: {self.first} short iterations")
            raise StopIteration
        self.first += 1
        return self.sequence.at(self.first - 1)

    def _is_rolled(self) -> bool:
        """Return whether the remaining iterations are many, after the first one that has operations, or after several of which
        each is longer than the one before."""
        count, remaining = self.sequence.count, self.sequence.count - self.first
        if remaining < 2 or current() is not self.trace:
            return False
        instructions = self.trace.builder.instructions[self.start :]
        if self.is_decided:
            return self.growth.is_too_much(instructions, self.first, count)
        self.is_decided = bool(instructions) or self.first >= MOST_EMPTY
        return is_long(instructions, remaining + 1)

    def _step(self, step: Callable[[Steps[Any]], Any]) -> Any:
        """Return the item of the next trace of the body, or end."""
        steps, self.steps = self.steps, None
        assert steps is not None
        try:
            (item,) = step(steps)
        except StopIteration:
            self.is_over = True
            raise
        except BaseException:
            self.trace.root.failed_loops.append(self.key)
            raise
        self.steps = steps
        return item

    def __del__(self) -> None:
        if self.steps is not None:
            self.steps.close()
            root = self.trace.root
            root.failed_loops.append(self.key)
            root.refusals.append(TraceError("a loop of a function without source is left by an exception"))


class ItemIterator(Iterator[Any]):
    """An iterator over items, as what ``zip``, ``enumerate`` and ``reversed`` return is."""

    def __init__(self, inner: Items) -> None:
        self.inner, self.position = inner, 0

    def __next__(self) -> Any:
        if self.position == self.inner.count:
            raise StopIteration
        self.position += 1
        return self.inner.at(self.position - 1)

    def rest(self) -> Items:
        """Return the items that are left, as one loop consumes them all."""
        inner, first, self.position = self.inner, self.position, self.inner.count
        return Items(inner.count - first, lambda k: inner.at(k + first), inner.lists)


@operator("iterator")
def iterator(
    function: Any, arguments: Sequence[Any], keywords: dict[str, Any], caller: FrameType, key: LoopKey | None
) -> Any:
    """Return what ``range``, ``enumerate``, ``zip`` or ``reversed`` returns to a function without source: the iterator of the
    ``for`` statement ``key`` that goes over it, if there is one and its length is known."""
    if function is range and key is None and any(map(is_undecided, arguments)):
        return range(*arguments)
    if key is not None:  # a loop that nothing leaves before its end
        arguments = [x.rest() if isinstance(x, ItemIterator) else x for x in arguments]
    result = items_of(function, *arguments, **keywords)
    if not isinstance(result, Items | range):
        return result
    loop = rows(result, caller, key)
    if loop is None and isinstance(result, Items):
        return ItemIterator(result) if result.is_counted else function(*arguments, **keywords)
    return loop or result


@operator("rows")
def rows(value: Any, caller: FrameType, key: LoopKey | None) -> Iterator[Any] | None:
    """Return the iterator of the ``for`` statement ``key`` over items; None for others."""
    trace, elements = current(), items(value)
    if trace is None or key is None or elements is None or elements.lists:
        return None
    return None if key in trace.root.plain_loops else Loop(elements, caller, key, trace)
