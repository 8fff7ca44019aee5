"""Branches on traced values: both sides become regions, whose results are the variables and arrays that either changes."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from pullback.ir.core.types import I64
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.tracer.arrays.concretize import decides
from pullback.tracer.arrays.frame import current, frame_of
from pullback.tracer.arrays.make import as_traced, broadcast_into, cast, emit
from pullback.tracer.arrays.mixed_numbers import chosen_tag, is_mixed, mixed, tag_value
from pullback.tracer.arrays.python_ints import common_bounds
from pullback.tracer.arrays.sequence_comparisons import equality, inequality, ordering
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import bare, flatten
from pullback.tracer.arrays.value_extents import largest
from pullback.tracer.arrays.views import may_be, may_be_one, root_of, settle_choice, write_back
from pullback.tracer.names.places import refuse_absent
from pullback.tracer.statements.aliases import either, forget_all, same_when
from pullback.tracer.statements.blocks import BlockRegion, Ran, attempt, until_joined
from pullback.tracer.statements.catching import InSide, Outcomes, outcome, raise_here
from pullback.tracer.statements.choices import all_of, assume, contains, is_, note, proves, truth_of
from pullback.tracer.statements.completions import NEXT, RETURN, Completion, code_of, is_code, possible_codes
from pullback.tracer.statements.containers import dereferenced, keep, refuse_changed, refuse_objects, shares_containers
from pullback.tracer.statements.counting import MOST_ATTEMPTS, provide_counted
from pullback.tracer.statements.growing import Grows
from pullback.tracer.statements.joins import Joined, placeholder
from pullback.tracer.statements.packed_values import PackedValues
from pullback.tracer.statements.raising import check
from pullback.tracer.statements.variables import (
    ALIAS,
    UNBOUND,
    Variables,
    arrays_in,
    bound_by,
    is_alias,
    is_same,
    note_partly_bound,
    without_rows,
)
from pullback.tracer.syntax import table
from pullback.tracer.transforms.region import emit_regions, rebuild
from pullback.tracer.user_code.control_flow import note_statement
from pullback.tracer.user_code.errors import TraceError

Block = Callable[[], Any]

MOST_SELECTED = 24
"""Largest number of instructions of both sides that are evaluated in any case: about as many as a mispredicted branch costs
cycles."""


def is_undecided(value: Any) -> bool:
    """Return whether the truth of a value is known at run time alone."""
    if not isinstance(value, TracedArray) or current() is None:
        return False
    root = frame_of().root
    if decides(value):
        return False
    return not value.shape and value.dtype.kind in "biufc" and root.rolls and not root.outcomes.follows


@table.operator("if")
def if_(
    test: Any, then: Block, orelse: Block | None, names: Sequence[str], live: Sequence[str] = (), filled: Sequence[str] = ()
) -> Completion | None:  # fmt: skip
    """Run one of two blocks, or trace both. Return how it ended."""
    other, test = orelse or _nothing, truth_of(test)
    if not is_undecided(test):
        ended: Completion | None = (then if test else other)()
        return ended
    return branch(test, then, other, names, live=live, filled=filled)


def _nothing() -> None:
    """Do nothing, as an absent ``else``."""


@table.operator("choose")
def choose(test: Any, then: Block, orelse: Block, blocks: Sequence[Block] = ()) -> Any:
    """Return the value of ``then() if test else orelse()``. ``blocks``: the blocks of the expression that these call, if they are
    no blocks themselves; what they bind by ``:=`` may be unbound afterwards."""
    test = truth_of(test)
    if not is_undecided(test):
        return then() if test else orelse()
    blocks = blocks or (then, orelse)
    names = bound_by(blocks)
    ended = branch(test, _returning(then), _returning(orelse), names, blocks if names else (), names)
    assert ended is not None
    share(ended.aliases, ended.value)
    return ended.value


def _returning(block: Block) -> Block:
    """Return a block that returns the value of an expression."""

    def run() -> Completion:
        return Completion(code=RETURN, value=block())

    return run


@table.operator("and")
def and_(value: Any, *others: Block) -> Any:
    """Return the value of ``value and others[0]() and ...``."""
    if not others:
        return value
    return _joined_tests(value, others, True, others)


@table.operator("or")
def or_(value: Any, *others: Block) -> Any:
    """Return the value of ``value or others[0]() or ...``."""
    if not others:
        return value
    return _joined_tests(value, others, False, others)


def _joined_tests(value: Any, others: Sequence[Block], is_and: bool, blocks: Sequence[Block]) -> Any:
    """Return the value of ``value and others[0]() and ...``, or of one with ``or``, and note what it proves about choices.
    ``blocks``: the blocks of the expression that ``others`` call."""
    other, *rest = others
    test = truth_of(value)

    def following() -> Any:
        second = other()
        return _joined_tests(second, rest, is_and, blocks) if rest else second

    if not is_undecided(test):
        return following() if bool(test) is is_and else value
    second: Any = None

    def run() -> Any:
        nonlocal second
        second = following()
        return second

    result = choose(test, run, lambda: value, blocks) if is_and else choose(test, lambda: value, run, blocks)
    both = all_of(proves(test, is_and), proves(second, is_and))
    note(result, both if is_and else {}, {} if is_and else both)
    return result


@table.operator("not")
def not_(value: Any) -> Any:
    """Return ``not value``."""
    value = truth_of(value)
    if not is_undecided(value):
        return not value
    result = as_traced(np.logical_not(value))
    result.weak = "bool"
    note(result, proves(value, False), proves(value, True))
    return result


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": ordering(operator.lt), "LtE": ordering(operator.le), "Gt": ordering(operator.gt), "GtE": ordering(operator.ge),
    "Eq": equality, "NotEq": inequality, "Is": is_, "IsNot": lambda a, b: not_(is_(a, b)),
    "In": lambda a, b: contains(b, a), "NotIn": lambda a, b: not_(contains(b, a)),
}  # fmt: skip


@table.operator("compare")
def compare(left: Any, ops: Sequence[str], *others: Block) -> Any:
    """Return the value of a chained comparison."""
    right = others[0]()
    result = _COMPARISONS[ops[0]](left, right)
    if len(ops) == 1:
        return result
    return _joined_tests(result, [lambda: compare(right, ops[1:], *others[1:])], True, others[1:])


@table.operator("assert")
def assert_(test: Any, message: Block | None = None) -> None:
    """Check an assertion, at run time if values decide it."""
    test = truth_of(test)
    if is_undecided(test):
        is_held = outcome(test)
        if is_held is False:
            raise_here(AssertionError(*([] if message is None else [message()])))
        if is_held:
            assume(frame_of(), test, True)
            return
        region = BlockRegion("a message")
        with region.inner.active():
            error = AssertionError(*([] if message is None else [message()]))
        check(test, error, region, np.logical_not(test))
        assume(frame_of(), test, True)
    elif not test:
        raise_here(AssertionError(*([] if message is None else [message()])))


def branch(
    test: TracedArray, then: Block, orelse: Block, names: Sequence[str], blocks: Sequence[Any] = (), live: Sequence[str] = (),
    filled: Sequence[str] = (),
) -> Completion | None:  # fmt: skip
    """Trace both sides of a branch and return how it ended. ``blocks``: the blocks whose variables the sides bind, if these are
    no blocks. ``live``: variables that are read afterwards although a side may leave them unbound; ``filled``: ones that are not
    read after a side that does."""
    return until_joined(lambda: _sized_branch(test, then, orelse, names, blocks, live, filled))


def _sized_branch(
    test: TracedArray, then: Block, orelse: Block, names: Sequence[str], blocks: Sequence[Any], live: Sequence[str],
    filled: Sequence[str],
) -> Completion | None:  # fmt: skip
    """See ``branch``; the arrays of lists are made long enough."""
    statements = frame_of().root.statements
    count, sized = len(statements), set[int]()
    for _ in range(MOST_ATTEMPTS):
        try:
            return _branch(test, then, orelse, names, blocks, live, filled, sized)
        except Grows as grows:
            del statements[count:]
            if type(grows.needed - grows.before) is int:
                grows.target.provide(grows, 1)
                continue
            variables = _variables(then, orelse, names, blocks)
            sized |= provide_counted(grows, variables, lambda: _branch(test, then, orelse, names, blocks, live, filled, set()))
    raise TraceError("the lists of a branch on traced values grow in each trace")


def _branch(
    test: TracedArray, then: Block, orelse: Block, names: Sequence[str], blocks: Sequence[Any], live: Sequence[str],
    filled: Sequence[str], sized: set[int],
) -> Completion | None:  # fmt: skip
    """See ``branch``; ``sized``: the ids of the lists whose arrays are long enough. Raises Grows."""
    variables = _variables(then, orelse, names, blocks)
    regions, sides = [], []
    for side in (then, orelse):
        region = BlockRegion("a branch")
        assume(region.inner, test, side is then)
        try:
            with _side(region):
                ran = region.run(side, variables)
        except InSide as inside:
            if inside.outcomes.frame is not frame_of():
                raise
            return _taken(inside.outcomes.of(test), test, then, orelse)
        for target, _, most in ran.lists:
            if id(target) not in sized:
                target.refuse_longer(most)
        if ran.raised is not None:
            negated = as_traced(np.logical_not(test))
            holds, runs = (negated, test) if side is then else (test, negated)
            is_held = outcome(holds)
            if is_held is None:
                check(holds, ran.raised, region, runs)
            return _taken((side is not then) == (is_held is not False), test, then, orelse)
        regions.append(region)
        sides.append(ran)
    return _Join(test, regions, sides, variables, live, filled, sized).emit()


def _side(region: BlockRegion) -> AbstractContextManager[None]:
    """Return a context in which a side of a branch is traced."""
    statements: list[Outcomes] = frame_of().root.try_statements
    return statements[-1].side(region.inner) if statements else nullcontext()


def _taken(is_true: bool, test: TracedArray, then: Block, orelse: Block) -> Completion | None:
    """Run the side of a branch for which its test is known, and return how it ended."""
    assume(frame_of(), test, is_true)
    ended: Completion | None = then() if is_true else orelse()
    return ended


def _variables(then: Block, orelse: Block, names: Sequence[str], blocks: Sequence[Any]) -> Variables:
    """Return the variables of the sides of a branch."""
    return Variables(names, blocks or [b for b in (then, orelse) if getattr(b, "__closure__", None)], (then, orelse, *blocks))


class _Join:
    """The join of two sides of a branch. ``live`` and ``filled``: as of ``branch``."""

    def __init__(
        self, test: TracedArray, regions: Sequence[BlockRegion], sides: Sequence[Ran], variables: Variables, live: Sequence[str],
        filled: Sequence[str], sized: set[int],
    ) -> None:  # fmt: skip
        self.live, self.filled, self.sized = live, filled, sized
        self.test, self.regions, self.sides, self.variables = test, regions, sides, variables
        self.frames = [r.inner for r in regions]
        self.paths = list(zip(self.frames, sides, strict=True))
        self.copied: list[Any] = []
        self.same: dict[Hashable, TracedArray] = {}
        self.packed = PackedValues(self.paths, variables)

    def emit(self) -> Completion | None:
        """Emit the branch, set the variables and arrays that it changes, and return how it ended."""
        names = self.variables.names
        columns = list(zip(*(ran.variables for ran in self.sides), strict=True))
        results: list[Any] = [UNBOUND] * len(names)
        joined: dict[int, Joined] = {}
        for k, (a, b) in enumerate(columns):
            if a is b or is_same(*map(self.variables.state.referenced, (a, b))):
                results[k] = a
            elif a is not UNBOUND and b is not UNBOUND:
                if k in self.variables.places or k in self.variables.outside:
                    refuse_objects([a, b], names[k])
                joined[k] = self.joined([a, b], names[k], is_sole=k in self.variables.sole)
            elif k in self.variables.places:
                refuse_absent(self.variables.places[k])
                refuse_objects([a, b], names[k])
                joined[k] = self.joined([a, b], names[k], is_filled=True)
            elif names[k] in self.live or names[k] in self.filled:
                with attempt():
                    joined[k] = self.joined([a, b], names[k], is_filled=names[k] in self.filled)
        targets = list({id(t): t for ran in self.sides for t, _ in ran.written}.values())
        new = [{id(t): x for t, x in ran.written} for ran in self.sides]
        writes = [Joined([side.get(id(t), t) for side in new], self.paths, "an array") for t in targets]
        code, value = self.completion()
        tags, conditions = self.tags(joined), self.conditions(joined)
        parts = [*tags.values(), *conditions.values(), *joined.values(), *writes, *code, *value]
        emitted = iter(self.columns([c for part in parts for c in part.columns]))
        tagged = {position: next(emitted) for position in tags}
        self.same = {position: next(emitted) for position in conditions}
        for k, part in joined.items():
            results[k] = self.packed.unpacked(dereferenced(rebuild(part.tree, [next(emitted) for _ in part.columns])))
            share_made(columns[k], results[k])
        for target in targets:
            write_back(target, next(emitted))
        self.note_aliases({k: results[k] for k in joined}, tagged)
        self.variables.write(results)
        note_partly_bound(names, results, *(ran.variables for ran in self.sides))
        self.bound_lists()
        codes = [code_of(ran.completion) for ran in self.sides]
        if not code and codes[0] == NEXT:
            self.keep_copies(columns, results)
            self.forget()
            return None
        ended = next(emitted) if code else codes[0]
        returned = UNBOUND
        if value:
            leaves = [next(emitted) for _ in value[0].columns]
            returned = self.packed.unpacked(dereferenced(rebuild(value[0].tree, leaves)))
        for j, result in enumerate(arrays_in([returned])):
            rows = [_returned(ran) for ran in self.sides]
            for x in itertools.chain(*rows):
                settle_choice(x)
            if _are_alike(rows):
                self.note_choice(result, [row[j : j + 1] for row in rows])
        self.keep_copies([*columns, self.returned()], [*results, returned])
        if value:
            share_made(self.returned(), returned)
        self.forget()
        possible = frozenset[int]().union(*(possible_codes(ran.completion) for ran in self.sides))
        aliases = tuple(y for ran in self.sides for y in aliases_in(ran.completion))
        if frame_of().root.try_statements:
            share(aliases, returned)  # a ``finally`` clause may write into what is returned
        return Completion(code=ended, value=returned, possible=possible, aliases=aliases)

    def forget(self) -> None:
        """Make the contents of the arrays unknown that a side has written under other names."""
        forget_all([x for ran in self.sides for x in ran.forgotten])

    def tags(self, joined: Iterable[int]) -> dict[tuple[int, int], Joined]:
        """Return the joins of the tags of arrays that a loop exchanges, by variables and positions in these."""
        rows = {k: [list(arrays_in([ran.variables[k]])) for ran in self.sides] for k in joined}
        rows = {k: sides for k, sides in rows.items() if len(sides[0]) == len(sides[1])}
        pairs = {(k, j): pair for k, sides in rows.items() for j, pair in enumerate(zip(*sides, strict=True))}
        return {
            position: Joined([x.tag for x in pair], self.paths, "a tag")
            for position, pair in pairs.items()
            if all(x.tag is not None and x.base is None for x in pair)
        }

    def note_aliases(self, results: dict[int, Any], tags: Mapping[tuple[int, int], TracedArray]) -> None:
        """Note which arrays the results, of variables by their indices, may be: those of the sides, one with another. ``tags``:
        of the results."""
        held = [{k: list(arrays_in([ran.variables[k]])) for k in results} for ran in self.sides]
        for array in itertools.chain(*(arrays for side in held for arrays in side.values())):
            settle_choice(array)
        own = {k: list(arrays_in([result])) for k, result in results.items()}
        positions = [(k, j) for k, arrays in own.items() for j in range(len(arrays))]

        def sources(k: int, j: int, side: int) -> list[TracedArray]:
            arrays = held[side][k]
            return [arrays[j]] if len(arrays) == len(own[k]) else arrays

        linked = [k for k in own if any(self.is_alias(k, side) for side in range(2))]
        rows = [(own[k][j], [x for side in range(2) for x in sources(k, j, side)]) for k, j in positions if k in linked]
        pairs = []
        for at, (k, j) in enumerate(positions):
            for i, m in positions[at + 1 :]:
                if any(may_be_one(x, y) for side in range(2) for x in sources(k, j, side) for y in sources(i, m, side)):
                    pairs.append((own[k][j], own[i][m]))
        may_be(rows, pairs)
        for k, j in tags:
            own[k][j].tag = tags[k, j]
        for k, j in positions:
            self.note_choice(own[k][j], [sources(k, j, side) for side in range(2)])

    def note_choice(self, result: TracedArray, sides: Sequence[Sequence[TracedArray]]) -> None:
        """Note under which condition a result is an array of before the branch."""
        chosen, frames = [], list(frame_of().outward)
        for side, arrays in enumerate(sides):
            others = sides[1 - side]
            for x in arrays if len(arrays) == 1 else ():
                is_own = x.frame in frames and x.base is None and x.literal is None and x.type == result.type
                if is_own and not any(may_be_one(x, y) for y in others):
                    chosen.append((x, self.test, side == 0, x.version, result.version))
        result.chosen = tuple(chosen)
        result.same_as = self.same_as(result, sides)

    def same_as(self, result: TracedArray, sides: Sequence[Sequence[TracedArray]]) -> tuple[tuple[TracedArray, TracedArray], ...]:
        """Return the arrays of before the branch that a result may be, if it is known when it is, with the conditions."""
        pairs = []
        for y, conditions in self.known_same(sides):
            key = _key_of(y, sides)
            if y.type == result.type and (key in self.same or self.are_outer(conditions)):
                pairs.append((y, self.same[key] if key in self.same else either(self.test, *conditions)))
        return tuple(pairs)

    def conditions(self, joined: Iterable[int]) -> dict[Hashable, Joined]:
        """Return the joins of the conditions, which sides compute, under which arrays of variables, and of what is returned, are
        arrays of before the branch."""
        pairs = [[list(arrays_in([ran.variables[k]])) for ran in self.sides] for k in joined]
        pairs.append([_returned(ran) for ran in self.sides])
        parts: dict[Hashable, Joined] = {}
        for rows in filter(_are_alike, pairs):
            for j in range(max(map(len, rows))):
                sides = [row[j : j + 1] for row in rows]
                for y, conditions in self.known_same(sides):
                    if not self.are_outer(conditions):
                        values = []
                        for (frame, _), when in zip(self.paths, conditions, strict=True):
                            with frame.active():
                                values.append(cast(as_traced(when), bool))
                        parts[_key_of(y, sides)] = Joined(values, self.paths, "a condition")
        return parts

    def known_same(self, sides: Sequence[Sequence[TracedArray]]) -> list[tuple[TracedArray, list[Any]]]:
        """Return the arrays of before the branch that an array, which is one on each side or none, may be, if it is known when it
        is, each with the conditions on the sides."""
        if any(len(arrays) > 1 for arrays in sides):
            return []
        held = [x for arrays in sides for x in arrays]
        frames = list(frame_of().outward)
        known = {id(y): y for y in (*held, *(y for x in held for y, _ in x.same_as)) if y.base is None and y.literal is None}
        pairs = []
        for y in known.values():
            conditions = []
            for (frame, _), arrays in zip(self.paths, sides, strict=True):
                with frame.active():
                    conditions.append(same_when(arrays[0], y) if arrays else False)
            if y.frame in frames and not any(when is None for when in conditions):
                pairs.append((y, conditions))
        return pairs

    @staticmethod
    def are_outer(conditions: Sequence[Any]) -> bool:
        """Return whether no side computes one of some conditions."""
        frames = [None, *frame_of().outward]
        return all(isinstance(when, bool) or when.frame in frames for when in conditions)

    def is_alias(self, k: int, side: int) -> bool:
        """Return whether an array in a variable is another name's too, on one side."""
        ran, frame = self.sides[side], self.frames[side]
        own = list(arrays_in([ran.variables[k]]))
        if not own:
            return False
        others = [x for x in arrays_in(ran.variables) if not any(x is y for y in own)]
        return any(is_alias(x, others, frame) for x in own)

    def completion(self) -> tuple[list[Joined], list[Joined]]:
        """Return the code of how the branch ended, if values decide it, and the value that it returns, if it may."""
        ends = [ran.completion for ran in self.sides]
        codes = [code_of(e) for e in ends]
        is_decided = all(isinstance(c, int) for c in codes) and codes[0] == codes[1]
        code = [] if is_decided else [Joined([np.int64(c) if isinstance(c, int) else c for c in codes], self.paths, "the end")]
        values = self.returned()
        if values[0] is UNBOUND and values[1] is UNBOUND:
            return code, []
        return code, [self.joined(values, "what is returned", is_filled=True)]

    def bound_lists(self) -> None:
        """Set the bounds of the lengths of lists."""
        for (target, least, most), (_, other_least, other_most) in zip(*(ran.lists for ran in self.sides), strict=True):
            is_sized = id(target) in self.sized and target.rows is not None
            end = target.rows.capacity if is_sized else largest(most, other_most)
            target.bound(-math.inf if is_sized else min(least, other_least), end)

    def returned(self) -> list[Any]:
        """Return what each side returns, ``UNBOUND`` if nothing."""
        return [UNBOUND if ran.completion is None else ran.completion.value for ran in self.sides]

    def keep_copies(self, columns: Sequence[Sequence[Any]], results: Sequence[Any]) -> None:
        """Refuse later changes of containers if the join holds copies of some."""
        differing = [pair for pair in columns if pair[0] is not pair[1]]
        if self.copied or any(shares_containers([pair[path] for pair in differing]) for path in range(2)):
            keep([*self.copied, *columns, results])

    def joined(self, values: Sequence[Any], name: str, is_filled: bool = False, is_sole: bool = False) -> Joined:
        """Return the join of two trees, in which containers of the state stand for themselves where both have the same ones; else
        their contents are joined. ``is_filled``: a tree that is ``UNBOUND`` is never read, and gets zeros; ``is_sole``:
        lists have no other names."""
        values = self.packed.packed_in(values, name, is_sole)
        for k in range(2) if is_filled else ():
            if values[k] is UNBOUND:
                with self.frames[k].active():
                    values = [placeholder(values[1 - j]) if j == k else v for j, v in enumerate(values)]
        referenced = [self.variables.state.referenced(v) for v in values]
        if all(a is b for a, b in zip(values, referenced, strict=True)):
            return Joined(values, self.paths, name)
        structures = [bare(flatten(v)[1]) for v in referenced]
        if structures[0] == structures[1]:
            return Joined(referenced, self.paths, name)
        for value, ran in zip(values, self.sides, strict=True):
            refuse_changed([value], ran.changed)
        self.copied.append(values)
        return Joined(values, self.paths, name)

    def columns(self, columns: Sequence[Any]) -> list[TracedArray]:
        """Emit the results of the branch: by selects if both sides are cheap and cannot fail, else by a ``switch``."""
        tag_types = {k: c.tag_type for k, c in enumerate(columns) if c.tag_type is not None}
        tagged = [k for k in tag_types if any(map(is_mixed, columns[k].arrays))]
        rows = []
        for path, frame in enumerate(self.frames):
            with frame.active():
                rows.append([c.of(path) for c in columns] + [tag_value(columns[k].arrays[path], tag_types[k]) for k in tagged])
        instructions = [i for frame in self.frames for i in frame.builder.instructions]
        if not columns and all(i.op.effect == "pure" and not i.regions for i in instructions):
            return []
        if len(instructions) <= MOST_SELECTED and all(map(_is_selectable, instructions)):
            test = cast(as_traced(self.test != 0), bool)
            sides = []
            for region, row, is_taken in zip(self.regions, rows, (True, False), strict=True):
                has_checks = any(i.op.effect == "fails" for i in region.inner.builder.instructions)
                unless = (emit("bitnot", test) if is_taken else test) if has_checks else None
                sides.append(region.close(row).inline(unless))
            note_statement(frame_of().root.statements, "branch", "both sides are computed, and one is selected")
            emitted = [emit("select", broadcast_into(test, a.shape), a, b) for a, b in zip(*sides, strict=True)]
        else:
            index = emit("cast", as_traced(self.test != 0), dtype=I64)
            regions = [(self.regions[k], rows[k]) for k in (1, 0)]
            note_statement(frame_of().root.statements, "branch", "one side runs")
            emitted = emit_regions("switch", {}, [index], regions)
        own = emitted[len(columns) :]
        for x, column in zip(emitted, columns, strict=False):
            cells = [side.is_cell for side in column.arrays]
            x.weak, x.created = column.kind[1], any(cells)
            x.readonly = ALIAS if any(cells) != all(cells) else ""
        tags = dict(zip(tagged, own, strict=True))
        for k, dtype in tag_types.items():
            if k not in tags:
                test = cast(as_traced(self.test != 0), bool)
                tags[k] = chosen_tag(test, columns[k].arrays[0], columns[k].arrays[1], dtype)
            emitted[k] = mixed(emitted[k], tags[k], columns[k].kind[1])
            if columns[k].kind[0].kind in "bi" or not columns[k].kind[1]:
                emitted[k].bounds = common_bounds(columns[k].arrays)
        return emitted[: len(columns)]


def _are_alike(rows: Sequence[Sequence[TracedArray]]) -> bool:
    """Return whether the arrays on the sides of a branch are as many, or one side has none."""
    return len({len(row) for row in rows if row}) <= 1


def _key_of(y: TracedArray, sides: Sequence[Sequence[TracedArray]]) -> Hashable:
    """Return what identifies the condition under which the array of each side is another one."""
    return id(y), *(id(x) for arrays in sides for x in arrays), *map(len, sides)


def _returned(ran: Ran) -> list[TracedArray]:
    """Return the arrays in what a side returns."""
    return list(arrays_in([UNBOUND if ran.completion is None else ran.completion.value]))


def aliases_in(completion: Completion | None) -> list[TracedArray]:
    """Return the arrays that what a block returns may be, or be views of."""
    if completion is None:
        return []
    return [*completion.aliases, *map(root_of, arrays_in([completion.value]))]


def _is_selectable(i: Any) -> bool:
    """Return whether an instruction may be executed although its side is not taken, and is cheap. A check does not fail there."""
    if i.op.name == "check":
        return not i.operands[0].type.shape and "rows" not in i.params
    is_cheap = isinstance(i.op, Constant) or (isinstance(i.op, Elementwise) and i.op.cheap)
    return is_cheap and i.op.effect == "pure" and not any(v.type.shape for v in i.results)


def share(arrays: Sequence[TracedArray], result: Any) -> None:
    """Note that the arrays in ``result`` may be some of ``arrays``: a write into one makes the contents of the others unknown."""
    may_be([(root_of(new), arrays) for new in arrays_in([result])], ()) if arrays else None


def share_made(values: Sequence[Any], result: Any) -> None:
    """Refuse later writes into arrays of NumPy that the function created and that are leaves of values, and into ``result``,
    which may be one of them."""
    created = [x for v in values if v is not UNBOUND for x in flatten(without_rows(v))[0] if isinstance(x, np.ndarray)]
    if created:
        for x in arrays_in([result]):
            x.readonly = x.readonly or ALIAS
        keep(created)


@table.operator("after")
def after(
    ended: Completion | None, rest: Block, names: Sequence[str], live: Sequence[str] = (), filled: Sequence[str] = ()
) -> Completion | None:  # fmt: skip
    """Run the statements after one that may have left a loop or function around it. Return how they ended. ``live`` and
    ``filled``: as of ``branch``."""
    if ended is None:
        following: Completion | None = rest()
        return following
    if ended.is_decided or NEXT not in ended.possible:
        return ended
    left = ended
    if ended.possible <= {NEXT, RETURN}:
        left = Completion(code=RETURN, value=ended.value, aliases=ended.aliases)
    return branch(as_traced(is_code(ended, NEXT)), rest, lambda: left, names, [rest], live, filled)


@table.operator("value")
def value_of(completion: Completion | None) -> Any:
    """Return what a function returns whose body ended so: None on the paths that return nothing."""
    if completion is None or (completion.is_decided and completion.code == NEXT):
        return None
    share(completion.aliases, completion.value)
    if completion.is_decided or completion.possible == {RETURN}:
        return completion.value
    return choose(as_traced(is_code(completion, RETURN)), lambda: completion.value, lambda: None)
