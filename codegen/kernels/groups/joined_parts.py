"""The parts of a group that joins arrays: which concat determines them, its row-major form of few axes, and the runs of parts
that are the same function of different arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, concat, pad, roll, squeeze
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import product

LEAST_RUN = 4
"""Fewest parts of a run; fewer parts have a loop each."""


@dataclass(frozen=True)
class Run:
    """Parts that follow one another, from ``first``: one part, or ``count`` that are the same function. ``tables``: for each
    parameter of the first part that differs between the parts, the parameters of all of them."""

    first: int
    count: int
    tables: Mapping[Value, Sequence[Value]]


def join_of(space: Space) -> Instruction | None:
    """Return the concat of most parts that is read at the elements of a group themselves; None if there is none."""
    joins = [i for i in _read_at_elements(space) if i.op is concat and len(i.operands) > 1]
    return max(joins, key=lambda i: len(i.operands), default=None)


def same_parts(i: Instruction, join: Instruction) -> bool:
    """Return whether an instruction joins arrays in the same way as another one."""
    is_same = i.op is concat and all(i.params[name] == join.params[name] for name in ("axis", "starts"))
    return is_same and i.result.type.shape == join.result.type.shape


def has_borders(space: Space, join: Instruction) -> bool:
    """Return whether a concat adds borders of constant extent, and elements are moved or joined in other ways too, as in a
    stencil: loops whose index sets are split have no selections along any axis."""
    extents = [v.type.shape[join.params["axis"]] for v in join.operands]
    is_border = sum(not isinstance(e, int) for e in extents) == 1
    moving = (i for i in space.region.instructions if i.op in (concat, pad, roll) and i.result.type.shape == space.extents)
    return is_border and not all(same_parts(i, join) for i in moving)


def _read_at_elements(space: Space) -> list[Instruction]:
    """Return the instructions whose results are read at the elements of a group themselves: elementwise ones, and the first
    others on each path."""
    producer = {v: i for i in space.region.instructions for v in i.results}
    stack = [v for v in space.region.results if v.type.shape == space.extents]
    stack += [i.operands[0] for i in space.region.instructions if isinstance(i.op, Reduce | Check)]
    seen: dict[Instruction, None] = {}
    while stack:
        value = stack.pop()
        i = producer.get(value)
        if i is None or i in seen or value.type.shape != space.extents:
            continue
        seen[i] = None
        if isinstance(i.op, Elementwise):
            stack += i.operands
    return list(seen)


# row-major forms


def flattened(space: Space, layouts: Sequence[str]) -> Space:
    """Return a group whose axes from that of the parts on are one axis, and so are those before it, if all its members allow
    that; else the group."""
    join = join_of(space)
    if join is None or len(space.extents) < 2 or "strided" in layouts:
        return space
    return _Flattened(space, join).run() or space


class _Flattened:
    """A group in which all arrays have the axes (rows, elements of a row), or only the latter if there is one row."""

    def __init__(self, space: Space, join: Instruction) -> None:
        self.space, self.join, self.axis = space, join, int(join.params["axis"])
        self.rank = len(space.extents)

    def shape(self, shape: Shape) -> Shape:
        """Return the flattened form of a shape; scalars stay."""
        row = product(shape[self.axis :])
        return (product(shape[: self.axis]), row) if self.axis and shape else (row,) if shape else ()

    def run(self) -> Space | None:
        """Return the flattened group, None if there is none."""
        region = self.space.region
        values = [*region.parameters, *(v for i in region.instructions for v in i.results)]
        if any(v.type.rank and v.type.rank < self.axis + (self.axis > 0) for v in values):
            return None
        if any(v.type.shape and v.type.shape[: self.axis] != self.space.extents[: self.axis] for v in values):
            return None
        env = {v: self.value(v) for v in region.parameters}
        instructions = []
        for i in region.instructions:
            new = self.instruction(i, env)
            if new is None:
                return None
            instructions += new
        block = Block(tuple(env[v] for v in region.parameters), tuple(instructions), tuple(env[v] for v in region.results))
        return replace(self.space, region=block, extents=self.shape(self.space.extents))

    def value(self, value: Value) -> Value:
        return Value(ArrayType(value.type.dtype, self.shape(value.type.shape)), value.name)

    def instruction(self, i: Instruction, env: dict[Value, Value]) -> list[Instruction] | None:
        """Return the flattened form of an instruction, none if it is only another name, None if there is none."""
        params: dict[str, Any] = dict(i.params)
        if i.op is concat:
            inner = i.result.type.shape[self.axis + 1 :]
            if params["axis"] != self.axis or any(v.type.shape[self.axis + 1 :] != inner for v in i.operands):
                return None
            starts = tuple(product((start, *inner)) if start else 0 for start in params["starts"])
            params |= {"axis": min(self.axis, 1), "starts": starts, "shape": self.shape(i.result.type.shape)}
        elif i.op is broadcast and not i.operands[0].type.shape:
            shape = self.shape(i.result.type.shape)
            params |= {"axes": tuple(range(len(shape))), "shape": shape}
        elif i.op is broadcast or i.op is squeeze:
            if self.shape(i.operands[0].type.shape) != self.shape(i.result.type.shape):
                return None
            env[i.result] = env[i.operands[0]]
            return []
        elif isinstance(i.op, Reduce):
            if tuple(params["axes"]) != tuple(range(self.rank)):
                return None
            params["axes"] = tuple(range(len(self.shape(self.space.extents))))
        elif not isinstance(i.op, Elementwise | Constant | Check):
            return None
        results = tuple(map(self.value, i.results))
        env.update(zip(i.results, results, strict=True))
        return [Instruction(i.op, tuple(env[v] for v in i.operands), results, params, i.regions, i.loc)]


# runs


def runs_of(join: Instruction, space: Space, layouts: Sequence[str]) -> list[Run]:
    """Return the parts of a concat, and of the others of the same parts, in runs, in order."""
    layout = dict(zip(space.region.parameters, layouts, strict=True))
    producer = {v: i for i in space.region.instructions for v in i.results}
    read = _read_at_elements(space)
    joins = [i for i in read if same_parts(i, join)]
    has_rows = len(space.extents) > 1
    may_run = join.params["axis"] == len(space.extents) - 1 <= 1
    forms = [_form(values, producer, layout, has_rows) for values in zip(*(i.operands for i in joins), strict=True)]
    others = _parameters_read([i for i in read if i not in joins], joins, space)
    runs: list[Run] = []
    first = 0
    while first < len(forms):
        last = first + 1
        while last < len(forms) and forms[last][0] is not None and forms[last][0] == forms[first][0]:
            last += 1
        leaves = list(zip(*(leaves for _, leaves in forms[first:last]), strict=True))
        tables = {some[0]: some for some in leaves if len(set(some)) > 1}
        if last - first >= LEAST_RUN and may_run and others.isdisjoint(tables):
            runs.append(Run(first, last - first, tables))
        else:
            runs += [Run(k, 1, {}) for k in range(first, last)]
        first = last
    return runs


def _parameters_read(read: Sequence[Instruction], joins: Sequence[Instruction], space: Space) -> set[Value]:
    """Return the parameters of a group that instructions read in other ways than through the parts of ``joins``."""
    producer = {v: i for i in space.region.instructions for v in i.results}
    reductions = [i for i in space.region.instructions if isinstance(i.op, Reduce)]
    results = {v for i in (*read, *joins, *reductions) for v in i.results}
    stack = [v for i in read for v in i.operands if v not in results or not isinstance(i.op, Elementwise)]
    stack += [v for v in space.region.results if v not in results]
    seen: set[Value] = set()
    while stack:
        v = stack.pop()
        if v not in seen:
            seen.add(v)
            stack += producer[v].operands if v in producer else ()
    return seen & set(space.region.parameters)


def _form(
    values: Sequence[Value], producer: Mapping[Value, Instruction], layout: Mapping[Value, str], has_rows: bool
) -> tuple[tuple[Any, ...] | None, list[Value]]:
    """Return what equals the form of another part if the values of both are the same functions, and the parameters that these
    read; None instead of a form that cannot be in a run."""
    leaves: dict[Value, int] = {}
    steps: dict[Value, int] = {}
    form: list[Any] = []
    stack = list(values)
    while stack:
        v = stack[-1]
        i = producer.get(v)
        if v in steps or v in leaves:
            stack.pop()
        elif i is None:
            stack.pop()
            if layout[v] == "strided" or v.type.rank > 1 + has_rows:
                return None, []
            leaves[v] = len(leaves)
            form.append((v.type.dtype, layout[v], v.type.rank))
        elif not isinstance(i.op, Elementwise | Constant) and i.op not in (broadcast, squeeze):
            return None, []
        elif missing := [k for k in i.operands if k not in steps and k not in leaves]:
            stack += missing
        else:
            stack.pop()
            steps[v] = len(form)
            reads = tuple((k in leaves, leaves[k] if k in leaves else steps[k]) for k in i.operands)
            form.append((i.op.name, reads, _settings(i.params)))
    form.append(tuple((v in leaves, leaves[v] if v in leaves else steps[v]) for v in values))
    return tuple(form), list(leaves)


def _settings(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the params without shapes, in a form that can be compared."""
    settings = ((name, params[name]) for name in sorted(params) if name != "shape")
    return tuple((name, value if isinstance(value, int | str | tuple) else repr(value)) for name, value in settings)
