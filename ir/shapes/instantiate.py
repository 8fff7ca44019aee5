"""Functions whose extents and numbers come from sizes: whether a trace serves other sizes, and what it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.shapes.extents import Abstract, substitute
from pullback.ir.shapes.guards import RELATIONS, Asked, Call, Sizes
from pullback.ir.shapes.symbolic import KINDS, Atom, Size, is_size, plain, sizes_in

Values = Sequence[Any]
"""Of each atom of some sizes the value at a point."""


class Fails(Exception):
    """A trace does not serve a point: ``asked`` has another answer there, or, without one, what it computes raises ``reason``."""

    def __init__(self, asked: Asked | None, reason: str = "") -> None:
        super().__init__(str(asked) if asked is not None else reason)
        self.asked = asked


def values_at(sizes: Sizes, extents: Sequence[int]) -> list[Any]:
    """The values of all atoms for these extents of the arguments. Raises Fails."""
    values: list[Any] = list(extents)
    with np.errstate(all="ignore"):
        for step in sizes.steps:
            try:
                if isinstance(step, Atom):
                    assert step.function is not None
                    found = step.function(*[value_at(a, values) for a in step.args])
                    if type(found) is not type(step.value):
                        raise Fails(None, f"{step.function} gives a {type(found).__name__}")
                    values.append(found)
                    continue
                holds = _holds(step, values)
            except (ArithmeticError, ValueError, TypeError, IndexError) as error:
                raise Fails(step if isinstance(step, Asked) else None, str(error)) from None
            if not holds:
                raise Fails(step)
    return values


def _holds(asked: Asked, values: Values) -> bool:
    left = value_at(asked.left, values)
    if asked.relation == "is":
        return bool(left) == bool(asked.right)
    return bool(RELATIONS[asked.relation](left, value_at(asked.right, values)))


def value_at(x: Any, values: Values) -> Any:
    """The value at a point of a number, of what is inside a tuple or list, or of what was asked; any other as it is."""
    kind = type(x)
    if kind is Size:
        total = 0
        for atoms, factor in x.terms:
            for a in atoms:
                factor *= values[a]
            total += factor
        return total
    if kind in KINDS:
        return values[x.atom]
    if kind is Call:
        return x.function(*[value_at(a, values) for a in x.args])
    if kind is tuple or kind is list:
        return kind([value_at(a, values) for a in x])
    return slice(value_at(x.start, values), value_at(x.stop, values), value_at(x.step, values)) if kind is slice else x


def function_at(function: Function, values: Values) -> Function:
    """A function at a point."""
    return _mapped(function, lambda x: value_at(x, values), lambda i: i.params)


def abstract_at(found: Abstract, values: Values) -> Abstract:
    """The sizes and constants of a function with named extents, at a point."""
    sizes = {name: value_at(n, values) for name, n in found.sizes.items()}
    return replace(found, sizes=sizes, constants=tuple(value_at(c, values) for c in found.constants))


def pinned(function: Function, *, whole: bool = False) -> Function:
    """A function whose params that are no extents hold no numbers that come from sizes: such were asked for. ``whole``: and no
    other part of it does."""

    def number(x: Any) -> Any:
        found = sizes_in((x,))
        if found is not None:
            found.pin((x,))
        return plain(x)

    def kept(i: Instruction) -> Sequence[str]:
        return () if whole else (*i.op.extents, "value") if isinstance(i.op, Constant) else i.op.extents

    return _mapped(function, number if whole else lambda x: x, lambda i: [k for k in i.params if k not in kept(i)], number)


def _mapped(
    function: Function,
    extent: Callable[[Any], Any],
    names: Callable[[Instruction], Any],
    param: Callable[[Any], Any] | None = None,
) -> Function:
    """A function with other extents, and other params where they have these names."""
    env: dict[Value, Value] = {}

    def define(value: Value) -> Value:
        env[value] = Value(substitute(value.type, extent), value.name) if any(map(is_size, value.type.shape)) else value
        return env[value]

    def params(i: Instruction) -> Mapping[str, Any]:
        change = param or extent
        changed = {k: change(i.params[k]) for k in names(i) if sizes_in((i.params[k],)) is not None}
        return {**i.params, **changed} if changed else i.params

    def block(old: Block) -> Block:
        parameters = tuple(define(v) for v in old.parameters)
        made = []
        for i in old.instructions:
            operands = tuple(env.get(v, v) for v in i.operands)
            regions = tuple(block(r) for r in i.regions)
            made.append(Instruction(i.op, operands, tuple(define(v) for v in i.results), params(i), regions, i.loc))
        return Block(parameters, tuple(made), tuple(env.get(v, v) for v in old.results))

    return Function(function.name, block(function.body), function.kind)
