"""Determine which functions of other modules a kernel calls for the sizes of a call, so that unreached ones are not compiled.

A kernel calls a function if conditions hold and loops over chunks have iterations, all of which are computed from sizes.
``Reach`` records these computations as steps; ``is_reached`` evaluates the steps for given sizes. Everything else is unknown:
a function counts as reached unless the sizes rule it out.

Steps are tuples: ("extent", name or integer), ("const", value), ("chosen", dtype), ("unknown",), or an op's name and the
indices of the steps that are its operands; then ("all", ...) for each path to the function, and ("any", ...) of these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

from pullback.codegen.slots import Slot
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, I64, ArrayType
from pullback.ir.core.types import Extent as NamedExtent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Extent, Tuned
from pullback.ir.shapes.extents import value_of


@dataclass(frozen=True)
class Several:
    """A count that is above 1."""

    count: Value


Path = tuple[Value | Several, ...]
"""Conditions and trip counts that are nonzero whenever a function is called, and counts that are above 1."""
OnCallee = Callable[[Slot], None]
"""A callback that takes the slot of a reached function."""
Steps = tuple[tuple[Any, ...], ...]
"""Steps that compute whether sizes reach a function."""
Reached = Callable[[Steps], bool]
"""A predicate: whether the current sizes reach a function with these steps; no steps means always reached."""
StepValue = int | None
"""The value of a step; None if the sizes do not determine it."""

_LARGEST = 2**63 - 1
"""The largest i64; results beyond it are unknown."""


def _quotient(x: int, y: int) -> StepValue:
    """Return a quotient rounded down, or None unless it is of a nonnegative integer by a positive one."""
    return x // y if x >= 0 and y > 0 else None


_OPS: Mapping[str, Callable[..., StepValue]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "idiv": _quotient,
    "raw_shr": lambda x, y: x >> y if 0 <= y < I64.bits else None, "raw_shl": lambda x, y: x << y if 0 <= y < I64.bits else None,
    "minimum": min, "maximum": max, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "bitand": operator.and_, "bitor": operator.or_, "bitxor": operator.xor,
    "bitnot": lambda x: not x if isinstance(x, bool) else ~x,
}  # fmt: skip
"""The ops that steps evaluate, with the semantics of i64 and bool."""

_OPERATIONS = {*_OPS, "select"}
_REFERRING = {*_OPERATIONS, "all", "any"}
"""The steps whose operands are steps."""
_UNKNOWN = ("unknown",)


class Reach:
    """The functions that a kernel calls, by slot, and the paths to them.

    ``on_callee``: called with a slot when the first ``reached`` path to its function is recorded, and again for each further
    one.
    """

    def __init__(self, body: Block, on_callee: OnCallee | None = None, reached: Reached = lambda steps: True) -> None:
        self._body, self._on_callee, self._reached = body, on_callee, reached
        self._paths: dict[Slot, dict[Path, None]] = {}
        self._step_by_value: dict[Hashable, int] = {}
        self._all: list[tuple[Any, ...]] = []
        self._needs: list[int] = []
        self._steps_by_paths: dict[tuple[Path, ...], Steps] = {}

    @cached_property
    def _producers(self) -> Mapping[Value, Instruction]:
        """Return the instruction that produces each value."""
        return {v: i for i in walk(self._body) for v in i.results}

    def record(self, slot: Slot, path: Path) -> None:
        """Record that the function of a slot is called if all conditions and trip counts of a path are nonzero."""
        paths = self._paths.setdefault(slot, {})
        if path not in paths:
            paths[path] = None
            if self._on_callee is not None and self.reaches(path):
                self._on_callee(slot)

    def reaches(self, path: Path) -> bool:
        """Return whether all conditions and trip counts of a path may be nonzero for the current sizes."""
        return self._reached(self._steps((path,)))

    def slot_with_steps(self, slot: Slot) -> Slot:
        """Return a slot with the steps that compute whether its function is called, if there are any."""
        steps = self._steps(tuple(self._paths.get(slot, ())))
        return (*slot, steps) if steps else slot

    def _steps(self, paths: tuple[Path, ...]) -> Steps:
        """Return the memoised steps of some paths."""
        if paths not in self._steps_by_paths:
            self._steps_by_paths[paths] = self.steps(paths)
        return self._steps_by_paths[paths]

    def steps(self, paths: Sequence[Path]) -> Steps:
        """Return steps that compute whether all values of any of the paths are nonzero; none if the sizes do not restrict
        them."""
        ends = [tuple(map(self._step_of, path)) for path in paths]
        if not paths or any(all(self._all[k] == _UNKNOWN for k in end) for end in ends):
            return ()
        needed = 0
        for k in {k for end in ends for k in end}:
            needed |= self._needs[k]
        index_of: dict[int, int] = {}
        steps: list[tuple[Any, ...]] = []
        while needed:
            k = (needed & -needed).bit_length() - 1
            needed &= needed - 1
            index_of[k] = len(steps)
            name, *operands = self._all[k]
            steps.append((name, *map(index_of.__getitem__, operands)) if name in _OPERATIONS else self._all[k])
        path_steps = [("all", *map(index_of.__getitem__, end)) for end in ends]
        return (*steps, *path_steps, ("any", *range(len(steps), len(steps) + len(path_steps))))

    def _step_of(self, condition: Value | Several) -> int:
        """Return the index of the step that computes a condition, after adding the steps of its operands."""
        if isinstance(condition, Value):
            return self._step_of_value(condition)
        count = self._step_of_value(condition.count)
        if self._all[count] == _UNKNOWN:
            return count
        one = self._added(1, [], ("const", 1))
        return self._added(condition, [count, one], ("gt", count, one))

    def _step_of_value(self, value: Value) -> int:
        """Return the index of the step that computes a value, after adding the steps of its operands."""
        worklist = [value]
        while worklist:
            producer = self._producers.get(worklist[-1])
            operands = producer.operands if producer is not None and _is_known(producer) else ()
            left = [v for v in operands if v not in self._step_by_value]
            if left:
                worklist += left
                continue
            at = worklist.pop()
            operand_steps = [self._step_by_value[v] for v in operands]
            self._added(at, operand_steps, _step(producer, operand_steps))
        return self._step_by_value[value]

    def _added(self, key: Hashable, operands: Sequence[int], step: tuple[Any, ...]) -> int:
        """Return the index of the step for a key, which is added unless there is one."""
        if key not in self._step_by_value:
            self._step_by_value[key] = len(self._all)
            self._needs.append(reduce(operator.or_, (self._needs[k] for k in operands), 1 << len(self._all)))
            self._all.append(step)
        return self._step_by_value[key]


def _is_known(i: Instruction) -> bool:
    """Return whether an instruction is an op on scalars that steps evaluate."""
    return i.op.name in _OPERATIONS and all(_is_scalar(v) for v in (*i.operands, *i.results))


def _is_scalar(v: Value) -> bool:
    """Return whether a value is an i64 or bool scalar."""
    return isinstance(v.type, ArrayType) and not v.type.shape and v.type.dtype in (I64, BOOL)


def _step(i: Instruction | None, operands: Sequence[int]) -> tuple[Any, ...]:
    """Return the step of an instruction."""
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


def renamed(steps: Steps, names: Callable[[NamedExtent], NamedExtent | None]) -> Steps:
    """Return steps with each extent mapped by ``names``, to None if it is unknown."""
    result = []
    for name, *operands in steps:
        extent = names(operands[0]) if name == "extent" else None
        result.append((name, *operands) if name != "extent" else _UNKNOWN if extent is None else (name, extent))
    return tuple(result)


def joined(alternatives: Sequence[Steps]) -> Steps:
    """Return steps that compute whether any of several steps hold; none if some of these are none."""
    distinct = list(dict.fromkeys(alternatives))
    if len(distinct) == 1 or not all(distinct):
        return distinct[0] if len(distinct) == 1 else ()
    result: list[tuple[Any, ...]] = []
    ends = []
    for steps in distinct:
        start = len(result)
        for name, *operands in steps:
            result.append((name, *(k + start for k in operands)) if name in _REFERRING else (name, *operands))
        ends.append(len(result) - 1)
    return (*result, ("any", *ends))


def is_reached(steps: Steps, sizes: Mapping[str, int], chosen: Callable[[str], StepValue] = lambda dtype: None) -> bool:
    """Return whether a kernel with these sizes may call a function with such steps.

    ``chosen``: a function from a dtype to the result of its tuning, None if unknown.
    """
    values: list[StepValue] = []
    for name, *operands in steps:
        match name:
            case "extent":
                values.append(value_of(operands[0], sizes))
            case "const":
                values.append(operands[0])
            case "chosen":
                values.append(chosen(operands[0]))
            case "unknown":
                values.append(None)
            case _:
                values.append(_value(name, [values[k] for k in operands]))
    return values[-1] != 0


def _value(name: str, operands: Sequence[StepValue]) -> StepValue:
    """Return the value of an op for operands of which some may be unknown."""
    match name, operands:
        case "all", _:
            return 0 if 0 in operands else None
        case "any", _:
            return 0 if all(value == 0 for value in operands) else None
        case "select", [condition, if_true, if_false]:
            chosen = if_false if condition == 0 else if_true
            return chosen if condition is not None or if_true == if_false else None
        case (("mul" | "bitand"), _) if 0 in operands:
            return 0
        case _ if None in operands:
            return None
    value = _OPS[name](*operands)
    return value if value is not None and abs(value) <= _LARGEST else None
