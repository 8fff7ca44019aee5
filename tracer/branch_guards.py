"""outcomes: what traced values are in the call that is traced, so that the function can branch on them.

Where the function asks for a value, the trace so far runs on the call's arguments: of what was recorded the part that the value
needs, in the interpreter, each instruction once. The trace follows what was found, and a guard, a ``check`` among its
instructions, says that it is still so.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir import OPS, Block, Builder, Function, Instruction, Loc, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.structure import copied, walk
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.host import Callback
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.hoist_guards import GUARD
from pullback.tracer.arrays.frame import Argument, Captured, Constant, Frame, Given
from pullback.tracer.names.guard_code import native
from pullback.tracer.user_code.errors import NotKnown, TraceError, here, user_loc
from pullback.tracer.user_code.source import MOST_TEXT, line_text
from pullback.tracer.user_code.unroll_warning import MANY_OPS, warn_unrolled

if TYPE_CHECKING:
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
    from pullback.tracer.arrays.traced import TracedArray
else:
    grad, passes = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.pipeline")


CLOSE = {"f64": 1e-13, "f32": 1e-5}


@dataclass(frozen=True, kw_only=True)
class Branch:
    """A place where a function asked for the value of what is traced: ``text`` of the source at ``loc``, and the value."""

    text: str
    outcome: Any
    loc: Loc

    @property
    def key(self) -> tuple[type, str]:
        """Equal for equal outcomes: NaN is itself, 0.0 and -0.0 differ."""
        return type(self.outcome), repr(self.outcome)


Ran = dict[Value, tuple[Instruction, Sequence[Any], Any]]


class Outcomes:
    """The values of one trace, whose call has ``leaves``.

    ``branches`` are the guards in the order in which they were asked; ``in_order``: they stand in the program in that order.
    ``failed`` is the check that a run of the trace so far did not pass.
    """

    def __init__(self, root: Frame, leaves: Sequence[Any], title: str) -> None:
        self.follows = False
        self.branches: list[Branch] = []
        self.in_order = True
        self.failed: CheckFailed | None = None
        self._root = root
        self._leaves = leaves
        self._title = title
        self._is_long = False
        self._values: dict[Value, Any] = {}
        self._asked: dict[tuple[Value, bool], Any] = {}
        self._made: dict[Value, Instruction] = {}
        self._seen: dict[Frame, int] = {}
        self._checked: dict[Frame, int] = {}
        self._guarded: set[Frame] = set()

    @contextmanager
    def following(self) -> Iterator[None]:
        """Branches on traced values are followed in this context."""
        before, self.follows = self.follows, True
        try:
            yield
        finally:
            self.follows = before

    def settle(self, x: TracedArray, current: Frame, ask: Callable[[Any], Any]) -> Any:
        """What ``ask`` says of a traced value, guarded by the value, or, where its truth is asked, by that.

        Raises NotKnown, and CheckFailed where a check of the trace so far does not pass.
        """
        is_truth = ask is bool
        outer = list(_outward(current))
        value, frame = _home(x.value, x.frame or current, outer)
        if (value, is_truth) not in self._asked:
            if not self._is_long and sum(len(f.builder.instructions) for f in outer) > MANY_OPS:
                self._is_long = True
                warn_unrolled([i for f in outer for i in f.builder.instructions], self._title)
            for f in reversed(outer):
                self._check(f)
            found = self._value(value, frame)
            found = found.item() if x.weak else found[()] if not found.ndim else found
            if isinstance(frame.given.get(value, ()), tuple):
                self._guard(*self._out_of_bodies(value, frame, outer), outer, found, is_truth)
            self._asked[value, is_truth] = found
        return ask(self._asked[value, is_truth])

    def ran(self) -> Ran:
        """The instructions that ran, by the values they made, with their operands and that value."""
        values = self._values
        return {v: (i, [values[o] for o in i.operands], values[v]) for v, i in self._made.items() if v in values}

    def _out_of_bodies(self, value: Value, frame: Frame, outer: Sequence[Frame]) -> tuple[Value, Frame]:
        """A known value, computed again before the branches and loops in whose bodies it is: they may have effects first."""
        while frame.parent is not None and any(f.sealed for f in _outward(frame)):
            value, frame = _home(self._replayed(value, frame, frame.parent), frame.parent, outer)
        return value, frame

    def _replayed(self, value: Value, frame: Frame, target: Frame) -> Value:
        """The same value of the frame around, by copies of the instructions that it needs."""
        made: dict[Value, Value] = {}
        work = [value]
        while work:
            v = work[-1]
            instruction = self._definition(v, frame)
            if v in made:
                work.pop()
            elif instruction is None:
                given = self._given(v, frame)
                if isinstance(given, tuple):
                    made[v] = target.lift_value(*given)
                else:
                    made[v] = target.builder.const(given.item(), v.type.dtype)
            elif missing := [o for o in instruction.operands if o not in made]:
                work += missing
            else:
                results = tuple(Value(r.type, r.name) for r in instruction.results)
                operands = tuple(made[o] for o in instruction.operands)
                regions = tuple(map(copied, instruction.regions))
                target.builder.append(replace(instruction, operands=operands, results=results, regions=regions))
                for old, new in zip(instruction.results, results, strict=True):
                    made[old] = new
                    self._values[new] = self._values[old]
        return made[value]

    def _guard(self, value: Value, frame: Frame, inside: Sequence[Frame], found: Any, is_truth: bool) -> None:
        """Records that a value of a frame, one of those around the current one, is what was found."""
        loc, site = user_loc(), here()
        inside = inside[: inside.index(frame)]
        self.in_order = self.in_order and self._guarded.isdisjoint(inside)
        self._guarded.update(_outward(frame))
        b = frame.builder.at(loc)
        outcome = bool(found) if is_truth else found
        b.check(_condition(b, value, outcome, is_truth), error=GUARD, message=str(len(self.branches)))
        text = ast.unparse(site.node) if isinstance(site.node, ast.expr) else line_text(site.file, site.line)
        text = text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."
        self.branches.append(Branch(text=text, outcome=outcome, loc=loc))

    def _check(self, frame: Frame) -> None:
        """Runs what can fail among the new instructions of a frame."""
        instructions = frame.builder.instructions
        start = self._checked.get(frame, 0)
        self._checked[frame] = len(instructions)
        for i in instructions[start:]:
            if i.op.effect == "fails" or any(j.op.effect == "fails" for r in i.regions for j in walk(r)):
                try:
                    self._run_all([*i.operands], frame)
                    if not i.results or i.results[0] not in self._values:
                        self._run(i)
                except NotKnown:
                    continue

    def _value(self, value: Value, frame: Frame) -> Any:
        self._run_all([value], frame)
        return self._values[value]

    def _run_all(self, values: Sequence[Value], frame: Frame) -> None:
        """Makes these values of a frame known."""
        work: list[tuple[Value, Frame]] = [(v, frame) for v in values]
        while work:
            value, where = work[-1]
            if value in self._values:
                work.pop()
                continue
            made = self._definition(value, where)
            if made is None:
                given = self._given(value, where)
                if not isinstance(given, tuple):
                    self._values[value] = np.asarray(given, value.type.dtype.numpy)
                elif given[0] in self._values:
                    self._values[value] = self._values[given[0]]
                else:
                    work.append(given)
                continue
            if any(isinstance(j.op, Callback) for j in (made, *(j for r in made.regions for j in walk(r)))):
                raise NotKnown("which comes from a Python function that the program calls")
            missing = [(v, where) for v in made.operands if v not in self._values]
            if missing:
                work += missing
            else:
                self._run(made)

    def _definition(self, value: Value, frame: Frame) -> Instruction | None:
        instructions = frame.builder.instructions
        for i in instructions[self._seen.get(frame, 0) :]:
            for v in i.results:
                self._made[v] = i
        self._seen[frame] = len(instructions)
        return self._made.get(value)

    def _given(self, value: Value, frame: Frame) -> Given:
        """What a parameter stands for."""
        if frame.parent is not None:
            if value not in frame.given:
                raise NotKnown("which differs from row to row or from step to step, or is a cotangent")
            return frame.given[value]
        source = self._root.inputs[self._root.parameters.index(value)]
        match source:
            case Argument(index=index):
                return native(self._leaves[index])
            case Captured(read=read):
                return native(read())
            case Constant(array=array):
                return native(array)
        raise NotKnown("which is a function")

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
                found = interpret(function, *(self._values[v] for v in parameters), effects=False)
        except CheckFailed as failed:
            self.failed = failed
            raise
        self._values.update(zip(i.results, found, strict=True))


def _home(value: Value, frame: Frame, outer: Sequence[Frame]) -> tuple[Value, Frame]:
    """Where a value that a region was given is made."""
    while isinstance(given := frame.given.get(value), tuple) and given[1] in outer:
        value, frame = given
    return value, frame


def _outward(frame: Frame | None) -> Iterator[Frame]:
    while frame is not None:
        yield frame
        frame = frame.parent


def _condition(b: Builder, value: Value, outcome: Any, is_truth: bool) -> Value:
    """That a value is true, or false, or what it was; a float up to its last bits, which the interpreter may round otherwise."""
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
