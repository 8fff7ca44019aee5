"""Which functions of other modules a kernel calls with a call's sizes: so that what none has reached is not compiled.

A kernel calls one if conditions hold, and loops over chunks run, whose values are computed from sizes. ``Reach`` writes down
how, as steps; ``is_reached`` follows them with the sizes of a call. Of what else they depend on nothing is assumed: a function
counts as reached unless it is sure that it is not.

Steps are tuples: ("extent", name or number), ("const", number), ("chosen", dtype), ("unknown",), or an op's name and the steps
that its operands are; in the end ("all", ...) for each way to the function, and ("any", ...) of these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from pullback.codegen.slots import Slot
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Extent, Tuned
from pullback.ir.shapes.extents import value_of

Path = tuple[Value, ...]
Told = Callable[[Slot], None]
Steps = tuple[tuple[Any, ...], ...]
Reached = Callable[[Steps], bool]
"""Whether the sizes at hand reach what such steps tell of; what has none is always reached."""
Number = int | None
"""What a step gives; None if sizes do not say."""

_LARGEST = 2**63 - 1


def _quotient(x: int, y: int) -> Number:
    return x // y if x >= 0 and y > 0 else None


_OPS: Mapping[str, Callable[..., Number]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "idiv": _quotient,
    "raw_shr": lambda x, y: x >> y if 0 <= y < I64.bits else None, "raw_shl": lambda x, y: x << y if 0 <= y < I64.bits else None,
    "minimum": min, "maximum": max, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor,
    "bitnot": lambda x: not x if isinstance(x, bool) else ~x,
}  # fmt: skip
"""What ops give for numbers, as they do for i64 and bool."""

_OPERATIONS = {*_OPS, "select"}
_UNKNOWN = ("unknown",)


class Reach:
    """That of the functions that a kernel calls, by their slots. ``told``: called with a slot when a way to its function is met
    that is ``reached``."""

    def __init__(self, body: Block, told: Told | None = None, reached: Reached = lambda steps: True) -> None:
        self._body, self._told, self._reached = body, told, reached
        self._ways: dict[Slot, dict[Path, None]] = {}
        self._found: dict[Value, int] = {}
        self._all: list[tuple[Any, ...]] = []
        self._needs: list[int] = []
        self._of: dict[tuple[Path, ...], Steps] = {}

    @cached_property
    def _made(self) -> Mapping[Value, Instruction]:
        return {v: i for i in walk(self._body) for v in i.results}

    def meet(self, slot: Slot, path: Path) -> None:
        """The function of a slot is called where all of these conditions and counts of loops are other than 0."""
        ways = self._ways.setdefault(slot, {})
        if path not in ways:
            ways[path] = None
            if self._told is not None and self.reaches(path):
                self._told(slot)

    def reaches(self, path: Path) -> bool:
        """Whether all of these conditions and counts may be other than 0 with the sizes at hand."""
        return self._reached(self._steps((path,)))

    def slot(self, slot: Slot) -> Slot:
        """A slot with the steps that tell whether its function is called, if there are any."""
        steps = self._steps(tuple(self._ways.get(slot, ())))
        return (*slot, steps) if steps else slot

    def _steps(self, paths: tuple[Path, ...]) -> Steps:
        if paths not in self._of:
            self._of[paths] = self.steps(paths)
        return self._of[paths]

    def steps(self, paths: Sequence[Path]) -> Steps:
        """How to find whether all values of one of some paths are other than 0; no steps if sizes do not say anything of that."""
        ends = [tuple(map(self._step_of, path)) for path in paths]
        if not paths or any(all(self._all[k] == _UNKNOWN for k in end) for end in ends):
            return ()
        needed = 0
        for k in {k for end in ends for k in end}:
            needed |= self._needs[k]
        place: dict[int, int] = {}
        steps: list[tuple[Any, ...]] = []
        while needed:
            k = (needed & -needed).bit_length() - 1
            needed &= needed - 1
            place[k] = len(steps)
            name, *operands = self._all[k]
            steps.append((name, *map(place.__getitem__, operands)) if name in _OPERATIONS else self._all[k])
        found = [("all", *map(place.__getitem__, end)) for end in ends]
        return (*steps, *found, ("any", *range(len(steps), len(steps) + len(found))))

    def _step_of(self, value: Value) -> int:
        """The step that gives a value, behind those of what it is computed from."""
        waiting = [value]
        while waiting:
            made = self._made.get(waiting[-1])
            operands = made.operands if made is not None and _is_known(made) else ()
            left = [v for v in operands if v not in self._found]
            if left:
                waiting += left
                continue
            at = waiting.pop()
            if at not in self._found:
                given = [self._found[v] for v in operands]
                self._found[at] = len(self._all)
                self._needs.append(reduce(operator.or_, (self._needs[k] for k in given), 1 << len(self._all)))
                self._all.append(_step(made, given))
        return self._found[value]


def _is_known(i: Instruction) -> bool:
    return i.op.name in _OPERATIONS and all(_is_scalar(v) for v in (*i.operands, *i.results))


def _is_scalar(v: Value) -> bool:
    return isinstance(v.type, ArrayType) and not v.type.shape and v.type.dtype in (I64, BOOL)


def _step(i: Instruction | None, operands: Sequence[int]) -> tuple[Any, ...]:
    if i is None:
        return _UNKNOWN
    if operands:
        return i.op.name, *operands
    match i.op:
        case Extent():
            return "extent", i.params["size"]
        case Tuned():
            return "chosen", i.params["dtype"].name
        case Constant() if _is_scalar(i.result):
            value = i.params["value"]
            return "const", bool(value) if i.result.type.dtype is BOOL else int(value)
    return _UNKNOWN


def is_reached(steps: Steps, sizes: Mapping[str, int], chosen: Callable[[str], Number] = lambda dtype: None) -> bool:
    """Whether a kernel whose extents have these sizes may call a function of which such steps tell. ``chosen``: what a kernel
    gets for what was chosen for a dtype."""
    found: list[Number] = []
    for name, *operands in steps:
        match name:
            case "extent":
                found.append(value_of(operands[0], sizes))
            case "const":
                found.append(operands[0])
            case "chosen":
                found.append(chosen(operands[0]))
            case "unknown":
                found.append(None)
            case _:
                found.append(_value(name, [found[k] for k in operands]))
    return found[-1] != 0


def _value(name: str, given: Sequence[Number]) -> Number:
    match name, given:
        case "all", _:
            return 0 if 0 in given else None
        case "any", _:
            return 0 if all(value == 0 for value in given) else None
        case "select", [condition, one, other]:
            chosen = other if condition == 0 else one
            return chosen if condition is not None or one == other else None
        case ("mul" | "bitand"), _ if 0 in given:
            return 0
        case _ if None in given:
            return None
    value = _OPS[name](*given)
    return value if value is not None and abs(value) <= _LARGEST else None
