"""Loops whose end values decide, or that are long: the body is traced once, with the variables that it changes as the carry."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.statements.blocks import MOST_NESTED, attempt
from pullback.tracer.statements.branches import Block, branch, is_undecided
from pullback.tracer.statements.choices import truth_of
from pullback.tracer.statements.completions import BREAK, CONTINUE, NEXT, Completion, is_code
from pullback.tracer.statements.earlier_traces import EarlierFirst, earlier, note_loop, takes_notes
from pullback.tracer.statements.first_iterations import FirstIteration
from pullback.tracer.statements.growing import GrowingList, list_of
from pullback.tracer.statements.items import Items, items
from pullback.tracer.statements.keyed import KnownElementsIterator
from pullback.tracer.statements.rolled_loops import LoopStatement, finished
from pullback.tracer.statements.try_statements import raised_after
from pullback.tracer.statements.unrolling import LIMITS, MOST_EMPTY, Growth
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.control_flow import note_statement
from pullback.tracer.user_code.errors import TraceError

MOST_FOLLOWED = 5000
"""Most items of an iterator of Python's after the one at which values may end a loop over it."""
MOST_PEELED = 2
"""Most iterations of a ``while`` loop that run by themselves, since variables have other types before them than after."""


@operator("while")
def while_(
    test: Callable[[], Any], body: Block, orelse: Block | None, names: Sequence[str], temporary: Sequence[str],
    live: Sequence[str] = (),
) -> Completion | None:
    """Run a ``while`` loop, or trace its body once from the first iteration on whose end values decide, or if it is long. The
    parameters are those of ``LoopStatement``."""
    return raised_after(_while(test, body, orelse, names, temporary, live))


def _while(
    test: Callable[[], Any], body: Block, orelse: Block | None, names: Sequence[str], temporary: Sequence[str],
    live: Sequence[str],
) -> Completion | None:  # fmt: skip
    """See ``while_``."""
    loop = LoopStatement(body=body, orelse=orelse, names=names, temporary=temporary, live=live, test=test)
    start: FirstIteration | None = None
    limits = [*LIMITS] if frame_of().root.rolls else []
    count = 0
    while True:
        holds = truth_of(test())
        if is_undecided(holds):
            if start is not None and start.grows and start.can_be_undone:
                start.undo()
                with attempt():
                    return loop.run(truth_of(test()), None)
                start.repeat()
            return loop.run(holds, None)
        if not holds:
            note_statement(frame_of().root.statements, "loop", "unrolled: no traced value decides when it ends")
            return None if orelse is None else orelse()
        if limits and (start is None or (count <= MOST_PEELED and not start.can_be_undone)):
            start = FirstIteration(body, names, temporary, test)
        if start is not None and limits and start.size > limits[-1]:
            has_many_operations = start.most_unrolled <= limits.pop()
            if has_many_operations and start.can_be_undone:
                start.undo()
                with attempt():
                    return loop.run(truth_of(test()), None)
                start.repeat()
            elif has_many_operations:
                with attempt():
                    return loop.run(holds, None)
        ended = loop.iteration()
        count += 1
        if ended is not None and not ended.is_decided:
            return loop.run(None, ended)
        if is_code(ended, BREAK):
            return None
        if ended is not None and ended.leaves:
            return ended


@operator("each")
def each(iterable: Any, body: Callable[[Any], Any]) -> None:
    """Run a loop of a comprehension."""

    def run(item: Any) -> None:
        body(item)

    for_(iterable, run, None, (), ())


@operator("comprehension")
def comprehension(plain: Callable[[], list[Any]], fill: Callable[[list[Any]], None]) -> list[Any]:
    """Return the list of a comprehension: what ``plain`` returns, or a list that ``fill`` makes longer."""
    out = list_of([])
    if not isinstance(out, GrowingList):
        return list_of(plain())
    fill(out)
    return out


@operator("for")
def for_(
    iterable: Any, body: Callable[[Any], Any], orelse: Block | None, names: Sequence[str], temporary: Sequence[str],
    live: Sequence[str] = (),
) -> Completion | None:
    """Run a ``for`` loop, or trace its body once if values decide its length or end, or if it is long. The parameters are those
    of ``LoopStatement``."""
    sequence = items(iterable)
    lists = [(x, x.rows, x.rows.length) for x in sequence.lists] if sequence is not None else []
    ended = _for(sequence, iterable, body, orelse, names, temporary, live)
    if any(x.rows is not rows or rows.length is not length for x, rows, length in lists):
        raise TraceError("a loop over a list on traced values changes the length of the list; go over a copy")
    return raised_after(ended)


def _for(
    sequence: Items | None, iterable: Any, body: Callable[[Any], Any], orelse: Block | None, names: Sequence[str],
    temporary: Sequence[str], live: Sequence[str],
) -> Completion | None:  # fmt: skip
    """Run a ``for`` loop over a sequence, or over what only Python can go over."""
    if sequence is None or not frame_of().root.rolls:
        return _python_loop(iterable, LoopStatement(body=body, orelse=orelse, names=names, temporary=temporary, live=live))
    loop = LoopStatement(body=body, orelse=orelse, names=names, temporary=temporary, live=live, items=sequence)
    if not sequence.is_counted:
        return loop.run(None, None)
    k, is_empty = 0, True
    start: FirstIteration | None = None
    begun, growth = 0, Growth()
    while k < sequence.count:
        first = FirstIteration(body, names, temporary, sequence.at) if is_empty and k < sequence.count - 1 else None
        if first is not None:
            start, begun, growth = first, k, Growth()
        if first is not None and not k and first.is_noted(earlier(EarlierFirst, body), sequence.count):
            with attempt():
                return loop.run(None, None)
            first = FirstIteration(body, names, temporary, sequence.at)
        ended = loop.iteration(sequence.at(k))
        k += 1
        is_decided = ended is None or ended.is_decided
        is_empty = first is not None and not first.size and k < MOST_EMPTY
        goes_on = is_decided and is_code(ended, NEXT, CONTINUE)
        if first is not None and (not is_decided or (goes_on and first.is_long(sequence.count - k + 1))):
            if first.can_be_undone:
                first.undo()
                with attempt():
                    ended_by_loop = loop.start_at(k - 1).run(None, None)
                    if k == 1 and takes_notes(body):
                        note_loop(body, first.record())
                    return ended_by_loop
                first.repeat()
            with attempt(is_decided):
                return _rest(loop, k, None if is_decided else ended)
        elif goes_on and start is not None and k < sequence.count and start.is_too_much(growth, k, sequence.count):
            if start.can_be_undone:
                start.undo()
                with attempt():
                    return loop.start_at(begun).run(None, None)
                start.repeat()
            start = None
            with attempt():
                return _rest(loop, k, None)
        elif not is_decided:
            return _rest(loop, k, ended)
        if is_code(ended, BREAK) or (ended is not None and ended.leaves):
            note_statement(frame_of().root.statements, "loop", f"unrolled: it ends in iteration {k} in any case")
            return None if is_code(ended, BREAK) else ended
    note_statement(frame_of().root.statements, "loop", f"unrolled: {k} short iterations")
    return None if orelse is None else orelse()


def _python_loop(iterable: Any, loop: LoopStatement) -> Completion | None:
    """Run a loop over an iterable that only Python can go over."""
    if frame_of().root.rolls:
        what = f"a {type(iterable).__name__}, which is no range or array"
        note_statement(frame_of().root.statements, "loop", f"unrolled: it goes over {what}")
    iterator = iter(iterable)
    for item in iterator:
        ended = loop.iteration(item)
        if ended is not None and not ended.is_decided:
            return finished(_nested(_remaining(iterator), loop, ended), loop.orelse, loop.names)
        if is_code(ended, BREAK):
            return None
        if ended is not None and ended.leaves:
            return ended
    return None if loop.orelse is None else loop.orelse()


def _remaining(iterator: Iterator[Any]) -> list[Callable[[], Any]]:
    """Return functions that return the items that are left. Raises TraceError if there are too many for a branch each."""
    if isinstance(iterator, KnownElementsIterator):
        return iterator.remaining()
    remaining = list(itertools.islice(iterator, MOST_FOLLOWED + 1))
    if len(remaining) > MOST_FOLLOWED:
        raise TraceError(f"a loop that values end goes over an iterator of more than {MOST_FOLLOWED} items; go over a range")
    return [partial(_same, item) for item in remaining]


def _same(item: Any) -> Any:
    return item


def _rest(loop: LoopStatement, k: int, ended: Completion | None) -> Completion | None:
    """Run the iterations of a ``for`` loop from ``k`` on in a loop. ``ended``: how the one before ended, if values decide it;
    then few iterations whose body is no loop's are each in a branch of the one before."""
    sequence = loop.items
    assert sequence is not None
    if ended is not None and sequence.count - k <= MOST_NESTED:
        with attempt():
            return loop.start_at(k).run(None, ended)
        nested = _nested([partial(sequence.at, j) for j in range(k, sequence.count)], loop, ended)
        return finished(nested, loop.orelse, loop.names)
    return loop.start_at(k).run(None, ended)


def _iteration(loop: LoopStatement, item: Callable[[], Any]) -> Completion | None:
    """Run an iteration of an item; return how it ended."""
    try:
        value = item()
    except StopIteration:
        return None
    return loop.iteration(value)


def _nested(remaining: Sequence[Callable[[], Any]], loop: LoopStatement, ended: Completion | None) -> Completion | None:
    """Run iterations one in another: each is a branch that is taken if the one before did not leave the loop. ``remaining``
    return their items, which the iterations before may change."""
    if not remaining:
        return ended
    if ended is None or ended.is_decided:
        if not is_code(ended, NEXT, CONTINUE):
            return ended
        return _nested(remaining[1:], loop, _iteration(loop, remaining[0]))
    before = ended

    def following() -> Completion | None:
        return _nested(remaining[1:], loop, _iteration(loop, remaining[0]))

    return branch(as_traced(is_code(before, NEXT, CONTINUE)), following, lambda: before, loop.names, [loop.body])


