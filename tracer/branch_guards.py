"""Values of traced arrays during tracing, so that the traced function can branch on them.

When the function needs the value of a traced array, the part of the trace so far on which it depends is interpreted on the
call's arguments, each instruction once. The trace continues with that value, and a guard (a ``check`` instruction) is
recorded, which fails at run time if the value differs.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir import OPS, Block, Builder, Function, Instruction, Loc, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import copy_block, walk
from pullback.ir.core.types import is_by_value
from pullback.ir.interpret import interpret
from pullback.ir.ops.array.create import DefineExtent
from pullback.ir.ops.control.host import Callback, Host
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.hoist_guards import GUARD
from pullback.ir.shapes.extents import definers, extents_of
from pullback.tracer.arrays.frame import Argument, Called, Captured, Constant, Frame, Input, Source
from pullback.tracer.names.guard_code import native
from pullback.tracer.user_code.errors import NotKnown, TraceError, user_loc, user_site
from pullback.tracer.user_code.source import MOST_TEXT, line_text
from pullback.tracer.user_code.unroll_warning import warn_unrolled

if TYPE_CHECKING:
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
    from pullback.tracer.arrays.traced import TracedArray
else:
    grad, passes = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.pipeline")


CLOSE = {"f64": 1e-13, "f32": 1e-5}
"""Relative tolerances of guards on floats, by dtype; others have 1e-2."""
MOST_FOLLOWED = 5000
"""Number of operations after which a loop that is followed, without a demand for it, is refused: a second of compile."""


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A branch on a traced value: ``text`` is the source expression at ``loc``, ``outcome`` its value."""

    text: str
    outcome: Any
    loc: Loc

    @property
    def key(self) -> tuple[type, str]:
        """A key equal for equal outcomes: NaN equals itself, 0.0 and -0.0 differ."""
        return type(self.outcome), repr(self.outcome)


Ran = dict[Value, tuple[Instruction, Sequence[Any], Any]]


class Outcomes:
    """The interpreted values of one trace, whose call has ``leaves``.

    ``follows``: every value that the function needs is established and guarded; ``follows_choices``: truths and whole numbers
    are, and a trace that becomes long by it is refused. ``branches`` are the guards in the order in which the function
    branched; ``in_order`` is true while they stand in the program in that order. ``failed`` is the check of the trace so far
    that failed when it was interpreted, or None.
    """

    def __init__(self, root: Frame, leaves: Sequence[Any], title: str) -> None:
        self.follows = root.follows_values
        self.follows_choices = root.follows_choices
        self.branches: list[Branch] = []
        self.in_order = True
        self.failed: CheckFailed | None = None
        self._root = root
        self._leaves = leaves
        self._title = title
        self._most_operations = MOST_FOLLOWED
        self._values: dict[Value, Any] = {}
        self._evaluated: dict[tuple[Value, bool], Any] = {}
        self._definitions: dict[Value, Instruction] = {}
        self._seen: dict[Frame, int] = {}
        self._checked: dict[Frame, int] = {}
        self._guarded: set[Frame] = set()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow branches on traced values in this context."""
        before, self.follows = self.follows, True
        try:
            yield
        finally:
            self.follows = before

    def settle(self, x: TracedArray, current: Frame, convert: Callable[[Any], Any]) -> Any:
        """Return ``convert`` of the value of ``x``, and record a guard on that value, or on its truth if ``convert`` is
        ``bool``.

        Raises NotKnown for a value that cannot be computed during tracing, and CheckFailed if a check of the trace so far
        fails.
        """
        is_truth = convert is bool
        outer = list(_outward(current))
        value, frame = _origin(x.value, x.frame or current, outer)
        if (value, is_truth) not in self._evaluated:
            if sum(len(f.builder.instructions) for f in outer) > self._most_operations:
                if not self.follows:
                    raise TraceError(f"a loop unrolls into more than {MOST_FOLLOWED} operations before a value ends it")
                self._most_operations *= 2
                warn_unrolled([i for f in outer for i in f.builder.instructions], self._title)
            for f in reversed(outer):
                self._check(f)
            result = self._evaluate(value, frame)
            result = result.item() if x.weak else result[()] if not result.ndim else result
            if isinstance(frame.sources.get(value, ()), tuple):
                self._guard(*self._hoist(value, frame, outer), outer, result, is_truth)
            self._evaluated[value, is_truth] = result
        return convert(self._evaluated[value, is_truth])

    def check(self, frame: Frame) -> None:
        """Interpret the checks of a frame, and set ``failed`` to the first that fails."""
        with suppress(CheckFailed, TraceError):
            self._check(frame)

    def effects_so_far(self, frame: Frame) -> Callable[[], None]:
        """Return a function that makes the host calls without results of a root frame as it is now, in order. It raises what they
        raise; it stops at a check that fails."""
        block = Block(tuple(frame.parameters), tuple(frame.builder.instructions), ())
        if frame.sizes is not None or not any(isinstance(i.op, Host) and not i.results for i in walk(block)):
            return lambda: None
        inputs = list(frame.inputs)
        arguments = [self._input(source) for source in inputs]

        def perform() -> None:
            assert inputs is not None  # they keep the functions that are called
            function = grad.grad(passes.run(Function("so_far", block), passes.BEFORE_GRAD))
            with np.errstate(all="ignore"), suppress(CheckFailed):
                typed = [np.asarray(a, p.type.dtype.numpy) for a, p in zip(arguments, block.parameters, strict=True)]
                interpret(function, *typed)

        return perform

    def ran(self) -> Ran:
        """Return the interpreted instructions by the values they define, with their operands' values and that value."""
        values = self._values
        return {v: (i, [values[o] for o in i.operands], values[v]) for v, i in self._definitions.items() if v in values}

    def _hoist(self, value: Value, frame: Frame, outer: Sequence[Frame]) -> tuple[Value, Frame]:
        """Recompute a value in front of the branches and loops whose bodies define it, which may have effects before it."""
        while frame.parent is not None and any(f.sealed for f in _outward(frame)):
            value, frame = _origin(self._copy_to_parent(value, frame, frame.parent), frame.parent, outer)
        return value, frame

    def _copy_to_parent(self, value: Value, frame: Frame, target: Frame) -> Value:
        """Return ``value`` of ``frame`` as a value of its enclosing frame ``target``, by copying the instructions that it
        depends on."""
        copies: dict[Value, Value] = {}
        work = [value]
        while work:
            v = work[-1]
            instruction = self._definition(v, frame)
            if v in copies:
                work.pop()
            elif instruction is None:
                source = self._source(v, frame)
                if isinstance(source, tuple):
                    copies[v] = target.lift_value(*source)
                else:
                    copies[v] = target.builder.const(source.item(), v.type.dtype)
            elif missing := [o for o in instruction.operands if o not in copies]:
                work += missing
            else:
                results = tuple(Value(r.type, r.name) for r in instruction.results)
                operands = tuple(copies[o] for o in instruction.operands)
                regions = tuple(map(copy_block, instruction.regions))
                target.builder.append(replace(instruction, operands=operands, results=results, regions=regions))
                for old, new in zip(instruction.results, results, strict=True):
                    copies[old] = new
                    self._values[new] = self._values[old]
        return copies[value]

    def _guard(self, value: Value, frame: Frame, inside: Sequence[Frame], result: Any, is_truth: bool) -> None:
        """Record a guard that ``value`` of ``frame``, the current frame or one around it, equals ``result``."""
        loc, site = user_loc(), user_site()
        inside = inside[: inside.index(frame)]
        self.in_order = self.in_order and self._guarded.isdisjoint(inside)
        self._guarded.update(_outward(frame))
        b = frame.builder.at(loc)
        outcome = bool(result) if is_truth else result
        b.check(_condition(b, value, outcome, is_truth), error=GUARD, message=str(len(self.branches)))
        text = ast.unparse(site.node) if isinstance(site.node, ast.expr) else line_text(site.file, site.line)
        text = (text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}...") or "a branch"
        self.branches.append(Branch(text=text, outcome=outcome, loc=loc))

    def _check(self, frame: Frame) -> None:
        """Interpret the new instructions of a frame that can fail."""
        instructions = frame.builder.instructions
        start = self._checked.get(frame, 0)
        self._checked[frame] = len(instructions)
        for i in instructions[start:]:
            if i.op.effect == "fails" or any(j.op.effect == "fails" for r in i.regions for j in walk(r)):
                try:
                    self._interpret([*i.operands], frame)
                    for count, scope in self._counts(i).values():
                        self._interpret([count], scope)
                    if not i.results or i.results[0] not in self._values:
                        self._run(i)
                except NotKnown:
                    continue

    def _evaluate(self, value: Value, frame: Frame) -> Any:
        self._interpret([value], frame)
        return self._values[value]

    def _interpret(self, values: Sequence[Value], frame: Frame) -> None:
        """Interpret the instructions on which ``values`` of ``frame`` depend."""
        work: list[tuple[Value, Frame]] = [(v, frame) for v in values]
        while work:
            value, scope = work[-1]
            if value in self._values:
                work.pop()
                continue
            definition = self._definition(value, scope)
            if definition is None:
                source = self._source(value, scope)
                if not isinstance(source, tuple):
                    self._values[value] = np.asarray(source, value.type.dtype.numpy)
                elif source[0] in self._values:
                    self._values[value] = self._values[source[0]]
                else:
                    work.append(source)
                continue
            inside = (definition, *(j for r in definition.regions for j in walk(r)))
            if any(isinstance(j.op, Callback) and j.results for j in inside):
                raise NotKnown("which comes from a Python function that the program calls")
            needed = [*((v, scope) for v in definition.operands), *self._counts(definition).values()]
            missing = [(v, f) for v, f in needed if v not in self._values]
            if missing:
                work += missing
            else:
                self._run(definition)

    def _definition(self, value: Value, frame: Frame) -> Instruction | None:
        instructions = frame.builder.instructions
        for i in instructions[self._seen.get(frame, 0) :]:
            for v in i.results:
                self._definitions[v] = i
        self._seen[frame] = len(instructions)
        return self._definitions.get(value)

    def _source(self, value: Value, frame: Frame) -> Source:
        """Return what a parameter stands for: a value with its frame, or an array."""
        if frame.parent is not None:
            if value not in frame.sources:
                raise NotKnown("which differs from row to row or from step to step, or is a cotangent")
            return frame.sources[value]
        source = self._root.inputs[self._root.parameters.index(value)]
        if isinstance(source, Called):
            raise NotKnown("which is a function")
        return self._input(source)

    def _input(self, source: Input) -> np.ndarray[Any, Any]:
        """Return the value of an input of the root."""
        match source:
            case Called(array=array):
                return np.asarray(array)
            case Argument(index=index):
                return native(self._leaves[index])
            case Captured(read=read):
                return native(read())
            case Constant(array=array):
                return native(array)

    def _counts(self, i: Instruction) -> dict[int, tuple[Value, Frame]]:
        """Return the numbers that define the extents by value of an instruction, with their frames, by the indices of atoms."""
        sizes = self._root.value_sizes
        if sizes is None or isinstance(i.op, DefineExtent):
            return {}
        atoms = {a for name in _extents_by_value(i) if name in sizes.by_name for a in sizes.atoms_of(name)}
        numbers = {a: sizes.numbers[a] for a in sorted(atoms)}
        return {a: (x.value, x.frame) for a, x in numbers.items() if x.frame is not None}

    def _sizes(self, i: Instruction) -> dict[str, int]:
        """Return the extents by value of an instruction as ints."""
        counts = {a: int(self._values[v]) for a, (v, _) in self._counts(i).items()}
        if self._root.value_sizes is None or not counts:
            return {}
        by_name = self._root.value_sizes.by_name
        terms = {name: by_name[name].terms for name in _extents_by_value(i) if name in by_name}
        return {n: sum(f * math.prod(counts[a] for a in atoms) for atoms, f in t) for n, t in terms.items()}

    def _run(self, i: Instruction) -> None:
        parameters = tuple(dict.fromkeys(i.operands))
        function = Function("so_far", Block(parameters, (i,), i.results))
        if i.regions:
            try:
                function = grad.grad(passes.run(function, passes.BEFORE_GRAD))
            except grad.GradientError as error:
                raise TraceError(str(error), error.loc) from None
        try:
            with np.errstate(all="ignore"):
                arguments = [self._values[v] for v in parameters]
                results = interpret(function, *arguments, sizes=self._sizes(i), effects=False)
        except CheckFailed as failed:
            if not self._root.refusals:  # else the check may be that of a clause that caught the refusal
                self.failed = failed
            raise
        self._values.update(zip(i.results, results, strict=True))


def _extents_by_value(i: Instruction) -> list[str]:
    """Return the names of the extents by value that an instruction has, and does not define itself."""
    defined = definers(j for r in i.regions for j in walk(r))
    return [n for n in extents_of(Function("one", Block((), (i,), ()))) if is_by_value(n) and n not in defined]


def _origin(value: Value, frame: Frame, outer: Sequence[Frame]) -> tuple[Value, Frame]:
    """Return the value of an outer frame, and that frame, for which ``value`` of a region stands."""
    while isinstance(source := frame.sources.get(value), tuple) and source[1] in outer:
        value, frame = source
    return value, frame


def _outward(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.parent


def _condition(b: Builder, value: Value, outcome: Any, is_truth: bool) -> Value:
    """Return whether ``value`` is true or false (``is_truth``) or equals ``outcome``.

    Floats are compared up to ``CLOSE``, because the interpreter may round their last bits otherwise.
    """
    dtype, shape = value.type.dtype, value.type.shape
    if is_truth:
        truth = value if dtype.is_bool else b.emit(OPS["ne"], (value, b.full(0, value.type)))[0]
        return truth if outcome else b.emit(OPS["bitnot"], (truth,))[0]
    was = np.asarray(outcome).reshape(-1)[0].item()
    if dtype.is_float and was != was:
        return b.emit(OPS["ne"], (value, value))[0]
    if not dtype.is_float or not np.isfinite(was):
        return b.emit(OPS["eq"], (value, b.spread(b.const(was, dtype), shape)))[0]
    margin = CLOSE.get(dtype.name, 1e-2) * abs(was)
    low, high = was - margin, was + margin
    above = b.emit(OPS["ge"], (value, b.spread(b.const(low, dtype), shape)))[0]
    below = b.emit(OPS["le"], (value, b.spread(b.const(high, dtype), shape)))[0]
    return b.emit(OPS["bitand"], (above, below))[0]
