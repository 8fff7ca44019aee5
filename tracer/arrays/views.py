"""Views and writes: writing an array gives it a new value, and updates the array of which it is a view."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.literals import takes_number
from pullback.tracer.arrays.make import as_traced, broadcast_into, convert, emit, fresh, literal
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import READONLY, UNKNOWN, Recipe, TracedArray
from pullback.tracer.user_code.errors import TraceError, user_loc

_versions = itertools.count(1)
"""Versions of arrays: each write has its own, also one that follows a write that was undone."""

VIEW = "it is a view of another array; write into that array, or into a copy"
ALIAS = "it may be one of several arrays; write into a copy of it"
CONFLICT = (
    "an array that a branch or loop binds to several names is written under one name and used under another; write into a copy"
)


Related = Sequence[tuple[TracedArray, Sequence[TracedArray]]]
"""Arrays, each with those that it may be."""


def may_be(sources: Related, pairs: Sequence[tuple[TracedArray, TracedArray]]) -> None:
    """Note that each of some new arrays may be one of its sources, and what these may be, and that two of ``pairs`` may be one.

    Two new arrays that are no pair are never one, even if they have common sources: two names may exchange their arrays.
    """
    linked = [(x, y) for x, own in sources for source in own for y in (root_of(source), *root_of(source).aliases)]
    for x, own in sources:
        x.sources = tuple({id(y): y for source in own for y in sources_of(source)}.values())
    for x, y in (*linked, *pairs):
        for a, b in ((x, y), (y, x)):
            if a is not b and not any(b is other for other in a.aliases):
                frame_of().root.linked.append((a, a.aliases))
                a.aliases = (*a.aliases, b)


def sources_of(x: TracedArray) -> tuple[TracedArray, ...]:
    """Return the arrays, no views, of which an array is one."""
    root = root_of(x)
    return root.sources or (root,)


def may_be_one(x: TracedArray, y: TracedArray) -> bool:
    """Return whether two arrays may have common elements."""
    a, b = root_of(x), root_of(y)
    return a is b or any(b is other for other in a.aliases)


def forget(x: TracedArray) -> None:
    """Make the contents of an array unknown, since they were written under another name: a later use raises TraceError."""
    if x._value is UNKNOWN:
        return
    _note_write(x)
    x._value, x.literal, x.known = UNKNOWN, None, None
    x.version = next(_versions)


def _note_write(x: TracedArray) -> None:
    """Note what an array is before it changes in the current frame."""
    frame = frame_of()
    frame.writes.append((x, _state(x)))
    if x.frame is not frame:
        frame.written[id(x)] = x
        frame.overwritten.setdefault(id(x), _state(x))


def forgotten_in(frame: Frame) -> list[TracedArray]:
    """Return the arrays of outer frames whose contents became unknown in a frame."""
    return [x for x in written_in(frame) if x._value is UNKNOWN]


def _forget_aliases(root: TracedArray) -> None:
    """Forget the contents of the arrays that a written one may be, unless it is known under which condition it is.

    Raises TraceError if one of these is read-only.
    """
    for other in root.aliases:
        if other.readonly:
            raise TraceError(f"a write into a traced array: {ALIAS}")
    for other in root.aliases:
        if not (_follow(root, other) or _follow(other, root) or other.base is root or root.base is other):
            forget(root_of(other))


def _follow(choice: TracedArray, source: TracedArray) -> bool:
    """Make a source a view of the array that a branch chose, if neither was written since: it has the contents of the choice
    under the condition, and else its own. Return whether this is so."""
    frames = list(frame_of().outward)
    for x, condition, is_true, of_source, of_choice in choice.chosen:
        if choice.frame not in frames or source.frame not in frames:
            return False
        if x is source and (x.version, choice.version) == (of_source, of_choice) and x.base is choice.base is None:
            if x._value is UNKNOWN or choice._value is UNKNOWN:
                return False
            _note_write(x)
            x.base, x.recipe, x.seen = choice, _part_of_choice(x, condition, is_true), choice.version
            frame_of().root.followed.append(x)
            return True
    return False


def is_chosen(x: TracedArray) -> bool:
    """Return whether an array is a view of one that a branch chose, with contents of its own where it was not chosen."""
    return x.base is not None and any(x is source for source, *_ in x.base.chosen)


def settle_choices(frame: Frame) -> None:
    """Give the arrays of outer frames that are views of arrays that a branch in a frame chose contents of their own."""
    for x in written_in(frame):
        if x.base is not None and x.base.frame is frame and frame.overwritten[id(x)][6] is None and x._value is not UNKNOWN:
            _detach(x)


def settle_choice(x: TracedArray) -> None:
    """Give an array that is a view of one that a branch chose contents of its own, before another branch chooses it."""
    if is_chosen(x) and x.frame in list(frame_of().outward):
        _note_write(x)
        _detach(x)


def _detach(x: TracedArray) -> None:
    value = x.value
    x._value, x.frame, x.base, x.recipe, x.literal = value, frame_of(), None, None, None


def _part_of_choice(x: TracedArray, condition: TracedArray, is_true: bool) -> Recipe:
    """Return the recipe of an array that has the contents of its base if a condition is true, or not, and else its own."""

    def selected(new: TracedArray, other: TracedArray) -> TracedArray:
        test = broadcast_into(as_traced(condition != 0), x.shape)
        result: TracedArray = emit("select", test, *((new, other) if is_true else (other, new)))
        return result

    def take(base: TracedArray) -> TracedArray:
        return selected(base, TracedArray(x.type, x.frame, x._value, weak=x.weak, literal=x.literal))

    def put(base: TracedArray, new: TracedArray) -> TracedArray:
        return selected(new, base)

    return Recipe(take=take, put=put, key=None)


def view(x: TracedArray, of: TracedArray, recipe: Recipe | None = None) -> TracedArray:
    """Mark ``x`` as a view of ``of``; for a scalar, return a copy.

    A view without a recipe cannot be written, nor read after ``of`` was written.
    """
    if of.literal is not None or not (of.type.shape or of.is_cell):
        return fresh(x) if x is of else x
    if x is of:
        x = TracedArray(of.type, of.frame, of.value, weak=of.weak, loc=user_loc())
        x.known = of.known
    x.base, x.recipe, x.seen = of, recipe, of.version
    x.is_dense = False
    x.readonly = VIEW if recipe is None else READONLY if recipe.put is None else of.readonly
    return x


@hook("part")
def _part(x: TracedArray, name: str) -> TracedArray:
    """Return a view of the real or the imaginary part of a complex array."""

    def put(base: TracedArray, new: TracedArray) -> TracedArray:
        other: TracedArray = emit("imag" if name == "real" else "real", base)
        joined: TracedArray = emit("complex", *((new, other) if name == "real" else (other, new)))
        return joined

    if x.literal is not None:
        return literal(getattr(x.literal, name), None if x.weak else x.type.dtype.part.numpy)
    weak = "float" if x.weak else ""
    return view(emit(name, x, weak=weak), x, Recipe(take=lambda base: emit(name, base), put=put, key=name))


@hook("refresh")
def _refresh(x: TracedArray) -> None:
    """Bring a view up to date with its base, which may be a view itself."""
    views = [x]
    while views[-1].base is not None and views[-1].base.base is not None:
        views.append(views[-1].base)
    for outdated in reversed(views):
        base = outdated.base
        assert base is not None
        if base.version != outdated.seen:
            _recompute(outdated, base)


def _recompute(x: TracedArray, base: TracedArray) -> None:
    if x.recipe is None:
        error = TraceError("a view is read after its array was written; take the view again after the write, or copy it before")
        error.origins = error.origins or (x.described("it", (error.file, error.line)),)
        raise error
    _set(x, x.recipe.take(base))
    x.seen = base.version


def _set(target: TracedArray, new: TracedArray) -> None:
    frame = frame_of(new)
    frame.writes.append((target, _state(target)))
    if target.frame is not frame:
        frame.written[id(target)] = target
        frame.overwritten.setdefault(id(target), _state(target))
    target._value, target.frame, target.literal, target.known = frame.lift(new), frame, None, None
    target.version = next(_versions)


def root_of(x: TracedArray) -> TracedArray:
    """Return the array of which ``x`` is, directly or not, a view."""
    while x.base is not None:
        x = x.base
    return x


@hook("version_of")
def _version_of(x: TracedArray) -> int:
    """Return the number of writes into the array of which ``x`` is, directly or not, a view."""
    return root_of(x).version


def _refuse_outer(target: TracedArray) -> None:
    """Raise TraceError for a write that cannot leave the current frame."""
    frame, owner = frame_of(), root_of(target).frame
    if frame.sealed and owner is not frame and not frame.takes_writes:
        raise TraceError(f"a write into an array from outside {frame.sealed}")


def written_in(frame: Frame) -> list[TracedArray]:
    """Return the arrays of outer frames that were written in a frame."""
    return [x for x in frame.written.values() if isinstance(x, TracedArray)]


def overlay(target: TracedArray, new: TracedArray) -> None:
    """Make an array of an outer frame have the contents of ``new``, without counting this as a write of the user's."""
    _set(target, new)


def outer_contents(frame: Frame) -> list[tuple[TracedArray, TracedArray]]:
    """Return the arrays of outer frames, views excepted, that were written in a frame, each with its contents there.

    Raises TraceError for a view of an array that a branch chose, which has contents of its own too.
    """
    if any(map(is_chosen, written_in(frame))):
        raise TraceError(CONFLICT)
    targets = [x for x in written_in(frame) if x.base is None and x._value is not UNKNOWN]
    return [(x, TracedArray(x.type, x.frame, x._value, weak=x.weak, literal=x.literal, loc=x.loc)) for x in targets]


def undo_writes(frame: Frame) -> None:
    """Give the arrays of outer frames that were written in a frame their contents from before it."""
    for x in written_in(frame):
        _restore(x, frame.overwritten[id(x)])


def undo_writes_from(frame: Frame, start: int) -> list[tuple[TracedArray, tuple[Any, ...]]]:
    """Undo the writes of a frame from index ``start`` on. Return them as ``repeat_writes`` takes them."""
    undone = [(x, before) for x, before in frame.writes[start:]]
    after = [(x, _state(x)) for x in {id(x): x for x, _ in undone}.values()]
    for x, before in reversed(undone):
        _restore(x, before)
        if x.frame is not frame:
            frame.written.pop(id(x), None)
            frame.overwritten.pop(id(x), None)
    del frame.writes[start:]
    return after


def repeat_writes(frame: Frame, after: Sequence[tuple[TracedArray, tuple[Any, ...]]]) -> None:
    """Give arrays the contents that they had before writes were undone."""
    for x, state in after:
        frame.writes.append((x, _state(x)))
        if x.frame is not frame:
            frame.written[id(x)] = x
            frame.overwritten.setdefault(id(x), _state(x))
        _restore(x, state)


def _state(x: TracedArray) -> tuple[Any, ...]:
    return x._value, x.frame, x.literal, x.known, x.version, x.seen, x.base, x.recipe


def _restore(x: TracedArray, state: tuple[Any, ...]) -> None:
    x._value, x.frame, x.literal, x.known, x.version, x.seen, x.base, x.recipe = state


def write_back(target: TracedArray, new: TracedArray) -> None:
    """Assign the new value to an array that was written in an inner frame."""
    _refuse_outer(target)
    if target.base is None:
        if target.aliases:
            _forget_aliases(target)
        _set(target, new)
    else:
        update(target, new)


@hook("update")
def update(target: TracedArray, value: Any, casting: str = "same_kind") -> None:
    """Execute ``target[...] = value``: the array has a new value from now on, and so has the array of which it is a view.

    Raises TraceError if it cannot be written, and NumPy's ValueError for a read-only argument.
    """
    if target.readonly is READONLY:
        root = root_of(target)
        if root.readonly is READONLY and root.argument is not None:
            frame_of(root).root.kept_readonly.add(root.argument)
        raise ValueError(READONLY)
    if target.readonly:
        error = TraceError(f"a write into a traced array: {target.readonly}")
        error.wants_traced = frame_of().root.rolls and not frame_of().root.traces_made
        raise error
    if target._value is UNKNOWN:
        raise TraceError(CONFLICT)
    _refuse_outer(target)
    if target.aliases:
        _forget_aliases(target)
    source = as_traced(value)
    if not source.weak and not np.can_cast(source.dtype, target.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast from {source.dtype!r} to {target.dtype!r} with casting rule {casting!r}")
    if source.weak and not takes_number(target.dtype.kind, source.weak, casting):
        raise TypeError(f"Cannot cast a Python {source.weak} to {target.dtype!r} according to the rule {casting!r}")
    new = broadcast_into(convert(source, target.dtype), target.shape)
    if new is source and target.base is not None:
        new = fresh(source)  # which may be the base, or a view of it
    base, recipe = target.base, target.recipe
    if base is not None and recipe is not None and recipe.put is not None:
        update(base, recipe.put(base, new), casting)
    _set(target, new)
    if base is not None:
        target.seen = base.version  # after _set, which saves what ``undo_writes`` restores
