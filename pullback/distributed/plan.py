"""Plans: how a call of one signature is computed by blocks of rows, found once by tracing it.

A plan holds what an entry of ``pb.jit`` holds: the trace with its guards and outside inputs. Instead of one program it has the
parts of a split.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.compiled.function import Jitted
from pullback.distributed.programs import BlockProgram
from pullback.ir import Function, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.regions import Vmap
from pullback.ir.passes.rows.named import with_rows
from pullback.ir.passes.rows.rules import ROWS, Coupled
from pullback.ir.passes.rows.split import BlockPart, Part, Split, split_rows
from pullback.ir.passes.size_classes import templated
from pullback.programs.pipeline import Outcome, split_outcomes
from pullback.runtime.process.fork import work
from pullback.runtime.process.stack_room import with_reserved_stack
from pullback.tracer import Signature, Trace, TraceError, signature, trace
from pullback.tracer.arrays.literals import scalar_of
from pullback.tracer.arrays.python_ints import is_short
from pullback.tracer.arrays.tree import generate_unflatten
from pullback.tracer.names.guard_code import native

if TYPE_CHECKING:
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
else:
    grad, passes = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.pipeline")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The leaves of a call that have rows: ``axes`` is the axis of rows by leaf, ``count`` the number of rows. ``titles`` names
    the argument of each leaf. ``are_all``: whether other arguments may not have rows. ``is_known``: whether ``count`` is the
    number, and not one of several that stand for it."""

    axes: Mapping[int, int]
    count: int
    titles: Mapping[int, str]
    are_all: bool = True
    is_known: bool = True


def rows_of(names: Sequence[str], args: Sequence[Any], over: Mapping[str, int], parameters: Any) -> Rows:
    """Return the leaves with rows of a call, whose arguments have these names. Raises TypeError for an argument that is no array,
    ValueError for axes that do not exist and for numbers of rows that differ."""
    axes: dict[int, int] = {}
    titles: dict[int, str] = {}
    counts: dict[str, int] = {}
    position = 0
    for name, value in zip(names, args, strict=True):
        leaves = [] if name in parameters.static else signature(replace(parameters, static=frozenset()), (value,), {}).leaves
        if name in over and not leaves:
            raise TypeError(f"over names {name}, which has no array")
        for k, leaf in enumerate(leaves, position):
            titles[k] = name
            if name not in over:
                continue
            if not isinstance(leaf, np.ndarray):
                raise TypeError(f"over names {name}, which is {type(leaf).__name__} and has no rows")
            if not -leaf.ndim <= over[name] < leaf.ndim:
                raise ValueError(f"over says axis {over[name]} of {name}, which has shape {leaf.shape}")
            axes[k] = over[name] % leaf.ndim
            counts.setdefault(f"{name} has {leaf.shape[axes[k]]:,}", leaf.shape[axes[k]])
        position += len(leaves)
    if len(set(counts.values())) > 1:
        raise ValueError(f"the arguments have different numbers of rows: {', '.join(counts)}")
    return Rows(axes=axes, count=next(iter(counts.values())), titles=titles)


class Plan:
    """How the calls of a signature are computed. ``axes``: the axis of rows by parameter; ``programs``: those of the parts."""

    def __init__(self, trace: Trace, split: Split, outcomes: tuple[Outcome, ...], rows: Rows) -> None:
        self.trace = trace
        self.split = split
        self.rows = rows.count
        self.titles = rows.titles
        self.row_bytes = _row_bytes(trace.function, rows)
        self.axes = {k: axis for k, axis in enumerate(split.axes) if axis is not None}
        self.programs = {
            part: BlockProgram(part.function) for pair in split.rounds for part in pair if part is not None
        }  # fmt: skip
        for program in self.programs.values():
            program.errors = trace.errors
        self._outcomes = outcomes
        self._read = trace.watch.read if trace.guards or len(trace.inputs) > len(rows.titles) else None
        self._fill = generate_unflatten(trace.result_tree)

    @property
    def name(self) -> str:
        """The name of the user's function."""
        return self.split.name

    def rows_of(self, names: Collection[str], leaves: Sequence[Any]) -> dict[int, tuple[Any, int]]:
        """Return the leaves with rows of the named arguments, each with its axis of rows."""
        return {k: (leaves[k], axis) for k, axis in self.axes.items() if self.titles.get(k) in names}

    def program(self, part: Part) -> BlockProgram:
        """Return the program of a part."""
        return self.programs[part]

    def arguments(self, leaves: Sequence[Any]) -> list[Any] | None:
        """Return the values of the parameters; None if a guard of the trace does not hold."""
        pinned = ((p.value, leaves[p.index]) for p in self.trace.pinned)
        if not all(type(a) is type(b) and a == b for a, b in pinned) or not all(is_short(leaves[k]) for k in self.trace.short):
            return None
        own = list(map(native, leaves))
        if self._read is None:
            return own
        outside = self._read()
        return None if outside is None else own + outside

    @property
    def result_types(self) -> list[Any]:
        """The types of the results of the split."""
        values = self.trace.function.results
        by_index = {o.index: v.type for o, v in zip(self._outcomes, values, strict=True) if o.source in ("result", "repeat")}
        return [by_index[k] for k in range(len(by_index))]

    def result(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any]) -> Any:
        """Return the result of a call, from the results of its split."""
        filled = []
        for outcome in self._outcomes:
            match outcome.source:
                case "leaf":
                    filled.append(leaves[outcome.index])
                case "parameter":
                    value = arguments[outcome.index]
                    is_lazy = not isinstance(value, np.ndarray | np.generic | int | float | complex)
                    filled.append(value if is_lazy else scalar_of(np.array(value), outcome.kind))
                case _:
                    value = results[outcome.index]
                    if outcome.source == "repeat" and isinstance(value, np.ndarray):
                        value = value.copy()
                    filled.append(scalar_of(value, outcome.kind) if isinstance(value, np.ndarray) else value)
        return self._fill(filled)


def plan_of(
    function: Jitted[..., Any], call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], rows: Rows
) -> Plan:  # fmt: skip
    """Return the plan of a call. Raises TraceError at the user's line for what cannot be traced, or couples rows."""
    with work.underway():
        plan: Plan = with_reserved_stack(lambda: _plan(function, call, args, kwargs, rows))
        return plan


def _plan(function: Jitted[..., Any], call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], rows: Rows) -> Plan:
    traced = trace(
        function._traced, args, kwargs, name=function.__name__, parameters=function._parameters, call=call,
        rolls=function._transform.rolls, follows_choices=False,
    )  # fmt: skip
    if traced.has_effects:
        what = ", ".join([*traced.changes, *(traced.labels[k] for k in traced.writes)]) or "an array from outside"
        raise TraceError(f"{function.__name__} changes {what}, and a distributed function cannot; return the new values instead")
    if traced.branches:
        raise TraceError(f"{function.__name__} branches on values of the call; use np.where or pb.cond, as the rows differ")
    plain, outcomes = split_outcomes(traced)
    split = split_of(plain, rows)
    if rows.are_all:
        _check_parameters(traced, split, rows)
    _check_parts(split)
    return Plan(traced, split, outcomes, rows)


def split_of(function: Function, rows: Rows) -> Split:
    """Return the split of a traced function. Raises TraceError at the user's line for what couples rows."""
    try:
        return split_rows(_by_rows(function, rows))
    except (Coupled, grad.GradientError) as error:
        raise TraceError(str(error), error.loc) from None


def _row_bytes(function: Function, rows: Rows) -> int:
    """Return the bytes of one row of the arguments."""
    total = 0
    for k, axis in rows.axes.items():
        t = function.parameters[k].type
        total += math.prod(e for a, e in enumerate(t.shape) if a != axis and isinstance(e, int)) * t.dtype.bytes
    return total


def _by_rows(function: Function, rows: Rows) -> Function:
    """Return a traced function with gradients expanded, and with the extent of rows."""
    named = templated(function, symbolic=rows.count)
    extents = {named.function.parameters[k].type.shape[axis] for k, axis in rows.axes.items()}

    def is_map(i: Instruction) -> bool:
        if not isinstance(i.op, Vmap):
            return False
        mapped: Value = i.operands[i.params["batched"][0]]
        return mapped.type.shape[0] in extents

    expanded = grad.grad(passes.run(named.function, passes.BEFORE_GRAD), is_map)
    has_maps = any(map(is_map, expanded.instructions))
    steps = [passes.PASSES[name] for name in KEEPING_MAPS] if has_maps else passes.OPTIMIZE
    return with_rows(replace(named, function=passes.run(expanded, steps)), rows.axes, rows.count, rows.is_known)


KEEPING_MAPS = ("simplify", "cse", "dce")
"""The passes for functions in which maps over rows stay, with gradients inside."""


def _check_parameters(traced: Trace, split: Split, rows: Rows) -> None:
    """Raise TraceError if an argument that ``over`` does not name has an axis of rows."""
    for k, axis in enumerate(split.axes):
        if axis is not None and k < len(rows.titles) and k not in rows.axes:
            raise TraceError(
                f"{traced.labels[k]} has an element for each row along axis {axis}; name it in over, as in "
                f'over={{..., "{rows.titles[k]}": {axis}}}'
            )


def _check_parts(split: Split) -> None:
    """Raise TraceError for calls of Python in what blocks compute, and for lengths that values decide in what parts exchange."""
    for part in (part for pair in split.rounds for part in pair if part is not None):
        makers = {v: i for i in walk(part.function.body) for v in i.results}
        for i in walk(part.function.body) if isinstance(part, BlockPart) else ():
            if isinstance(i.op, Host):
                raise TraceError(f"{i.op.name} runs Python for blocks of rows; leave it out of distributed functions", i.loc)
        for v in part.function.results:
            if v in makers and any(not isinstance(e, int) and e != ROWS for e in v.type.shape):
                raise TraceError(
                    f"{makers[v].op.name} has a length that values decide, which distributed functions do not compute with; "
                    "use np.where, or compute it before and pass the result",
                    makers[v].loc,
                )
