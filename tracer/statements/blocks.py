"""Tracing of one block into a region of its own, after which nothing outside the region has changed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.traced import UNKNOWN, TracedArray
from pullback.tracer.arrays.views import (
    forgotten_in,
    outer_contents,
    overlay,
    root_of,
    settle_choice,
    settle_choices,
    undo_writes,
)
from pullback.tracer.names.places import NewVariables
from pullback.tracer.statements.catching import raised_by_statement
from pullback.tracer.statements.containers import OutsideContents
from pullback.tracer.statements.growing import GrowingList
from pullback.tracer.statements.variables import UNBOUND, Variables, arrays_in
from pullback.tracer.stores import refusing_outside
from pullback.tracer.transforms.branches import running
from pullback.tracer.transforms.region import Region
from pullback.tracer.user_code.control_flow import dropped_if_refused
from pullback.tracer.user_code.defects import note_defect
from pullback.tracer.user_code.errors import TraceError

MOST_NESTED = 30
"""Greatest depth of branches in branches: a recursion that values end has no end in a trace."""

MOST_JOINED = 50
"""Largest number of traces of a statement until all places outside to which its blocks store are known."""
OTHER_PLACES = "a branch or loop on traced values stores to other places in each trace"

T = TypeVar("T")
Steps = Generator[tuple[Any, ...], Any, T]
"""A trace that stops wherever the body of a loop is to run: it yields the arguments of the body, and is sent what the body
returns."""


def driven(steps: Steps[T], body: Callable[..., Any] | None = None) -> T:
    """Return the result of a trace whose bodies of loops are calls of ``body``."""
    try:
        arguments = next(steps)
        while True:
            assert body is not None
            try:
                ended = body(*arguments)
            except BaseException as error:
                arguments = steps.throw(error)
            else:
                arguments = steps.send(ended)
    except StopIteration as end:
        result: T = end.value
        return result


class _Stopped(Exception):
    """A StopIteration of a block, which no generator may raise."""

    def __init__(self, error: StopIteration) -> None:
        super().__init__()
        self.error = error


def _at_once(block: Callable[[], T]) -> Steps[T]:
    """Run a block that has no steps."""
    try:
        return block()
    except StopIteration as error:
        raise _Stopped(error) from None
    yield ()


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a block did: the ``completion`` that it returned, the contents of the ``variables`` after it, and the arrays of outer
    frames that it wrote, each with its new value. ``contents``: the arrays in the variables and in what is returned, by their
    ids, each with its value at the end of the block, before writes were undone. ``changed``: the ids of the containers that it
    changed. ``lists``: the lists with rows, each with bounds of its length at the end. ``forgotten``: outer arrays that it may
    have written under other names. ``raised``: the exception of a ``raise``
    statement that ended it."""

    completion: Any
    variables: list[Any]
    written: list[tuple[TracedArray, TracedArray]]
    contents: dict[int, tuple[TracedArray, TracedArray]]
    changed: set[int]
    lists: list[tuple[GrowingList, Any, Any]]
    forgotten: list[TracedArray]
    raised: Exception | None = None

    def at_end(self, leaf: Any) -> Any:
        """Return a leaf of a variable, or of what is returned, with its value at the end of the block."""
        return self.contents[id(leaf)][1] if id(leaf) in self.contents else leaf


@contextmanager
def attempt(is_allowed: bool = True) -> Iterator[None]:
    """A context in which a TraceError is suppressed, as if what it encloses had not been tried, if that ``is_allowed``."""
    root = frame_of().root
    refusals = root.refusals
    count = len(refusals)
    try:
        with dropped_if_refused(root.statements):
            yield
    except TraceError as error:
        if not is_allowed or (error.wants_lists and root.grows is None):
            raise
        del refusals[count:]


def until_joined(run: Callable[[], T]) -> T:
    """Return the result of a trace of a statement, which is repeated if places outside turn out to be variables of its blocks."""
    statements = frame_of().root.statements
    count = len(statements)
    for _ in range(MOST_JOINED):
        try:
            return run()
        except NewVariables:
            if frame_of().is_conditional:
                raise
            del statements[count:]
    raise TraceError(OTHER_PLACES)


class BlockRegion(Region):
    """The region of a block; ``what`` describes it for errors."""

    def __init__(self, what: str) -> None:
        for x in frame_of().root.followed:
            settle_choice(x)  # type: ignore[arg-type]
        super().__init__()
        self.inner.order = self.outer.order
        self.inner.sealed = f"{what}; write it as plain NumPy code"
        self.inner.takes_writes, self.inner.takes_stores = True, self.outer.takes_stores
        depth, frame = 0, self.outer
        while frame.parent is not None:
            depth, frame = depth + frame.takes_writes, frame.parent
        if depth > MOST_NESTED:
            raise TraceError(f"more than {MOST_NESTED} branches on traced values in one another; write a loop for a recursion")

    def run(
        self, block: Callable[[], Any], variables: Variables, overlaid: Sequence[tuple[TracedArray, TracedArray]] = (),
        extra: list[Any] | None = None,
    ) -> Ran:  # fmt: skip
        """Trace a block, and undo its changes of the variables and of outer arrays. ``overlaid``: outer arrays, each with the
        parameter of the region that holds its contents; ``extra``: what the block adds to its results."""
        return driven(self.steps(lambda: _at_once(block), variables, overlaid, extra))

    def steps(
        self, block: Callable[[], Steps[Any]], variables: Variables, overlaid: Sequence[tuple[TracedArray, TracedArray]] = (),
        extra: list[Any] | None = None,
    ) -> Steps[Ran]:  # fmt: skip
        """Trace a block as ``run`` does, where the block's own steps are."""
        before = variables.read()
        more = [] if extra is None else extra
        saved = variables.state.saved()
        places = self.outer.root.names.places
        stores = self.outer.root.stores
        stored, outside = places.contents(), OutsideContents(stores, variables.state.ids)
        before_outside = stores.contents_outside()
        raised = None
        try:
            with self.inner.active(), running(), places.within(self.inner), refusing_outside(self.inner):
                for target, new in overlaid:
                    overlay(target, new)
                try:
                    completion = yield from block()
                except TraceError:
                    raise
                except Exception as error:
                    completion, raised = None, _raised(error.error if isinstance(error, _Stopped) else error)
                if raised is None and self.inner.takes_stores:
                    places.join(stored, variables.places.values())
                    stores.join(before_outside, variables.state.ids)
                saved.refuse_other_keys()
                settle_choices(self.inner)
                after = variables.read()
                returned = getattr(completion, "value", UNBOUND)
                contents = {id(x): (x, _copy(x)) for x in arrays_in([*after, returned, *more])}
                self.outer.root.stores.in_blocks |= saved.changed()
                written, changed, forgotten = outer_contents(self.inner), saved.changed(), forgotten_in(self.inner)
                lists = [(x, x.rows.least, x.rows.most) for x, _ in saved.lists if x.rows is not None]
        finally:
            undo_writes(self.inner)
            saved.restore()
            variables.write(before)
            places.restore(stored)
            outside.restore()
        return Ran(
            completion=completion, variables=after, written=written, contents=contents, changed=changed, lists=lists,
            forgotten=forgotten,
            raised=raised,
        )  # fmt: skip


def _copy(x: TracedArray) -> TracedArray:
    """Return an array with the current value of another one, which may be unknown."""
    if root_of(x)._value is UNKNOWN:
        return TracedArray(x.type, x.frame, UNKNOWN, weak=x.weak, loc=x.loc)
    value = None if x.literal is not None else x.value
    copy = TracedArray(x.type, x.frame, value, weak=x.weak, literal=x.literal, loc=x.loc)
    copy.type_tag, copy.bounds = x.type_tag, x.bounds if x.type_tag is not None else None
    return copy


def _raised(error: Exception) -> Exception:
    """Return the exception of a ``raise`` statement of the user's. Raises TraceError for another one."""
    if raised_by_statement(error) or any(error is x for x in frame_of().root.raised_again):
        return error
    note_defect(frame_of().root.defects, error)
    raise TraceError(f"a block under a traced value fails: {type(error).__name__}: {error}") from error
