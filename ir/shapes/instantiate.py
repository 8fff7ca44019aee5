"""Evaluate a symbolic trace for other extents: check whether its guards hold there, and compute its sizes and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.shapes.extents import Abstract, substitute
from pullback.ir.shapes.guards import RELATIONS, Guard, Predicate, Sizes
from pullback.ir.shapes.symbolic import KINDS, Atom, Size, is_size, plain, sizes_in

Values = Sequence[Any]
"""The values of all atoms at one point, by index."""


class Fails(Exception):
    """A trace does not serve a point: a guard has another outcome there, or, with ``guard`` None, ``reason`` was raised."""

    def __init__(self, guard: Guard | None, reason: str = "") -> None:
        super().__init__(str(guard) if guard is not None else reason)
        self.guard = guard


def values_at(sizes: Sizes, extents: Sequence[int]) -> list[Any]:
    """Return the values of all atoms for these extents of the arguments. Raises Fails."""
    values: list[Any] = list(extents)
    with np.errstate(all="ignore"):
        for step in sizes.steps:
            try:
                if isinstance(step, Atom):
                    assert step.function is not None
                    value = step.function(*[value_at(a, values) for a in step.args])
                    if type(value) is not type(step.value):
                        raise Fails(None, f"{step.function} gives a {type(value).__name__}")
                    values.append(value)
                    continue
                holds = _holds(step, values)
            except (ArithmeticError, ValueError, TypeError, IndexError) as error:
                raise Fails(step if isinstance(step, Guard) else None, str(error)) from None
            if not holds:
                raise Fails(step)
    return values


def _holds(guard: Guard, values: Values) -> bool:
    """Return whether a guard holds at a point."""
    left = value_at(guard.left, values)
    if guard.relation == "is":
        return bool(left) == bool(guard.right)
    return bool(RELATIONS[guard.relation](left, value_at(guard.right, values)))


def value_at(x: Any, values: Values) -> Any:
    """Evaluate a symbolic number, a predicate, or a tuple, list or slice with such values at a point; others are returned
    unchanged."""
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
    if kind is Predicate:
        return x.function(*[value_at(a, values) for a in x.args])
    if kind is tuple or kind is list:
        return kind([value_at(a, values) for a in x])
    return slice(value_at(x.start, values), value_at(x.stop, values), value_at(x.step, values)) if kind is slice else x


def function_at(function: Function, values: Values) -> Function:
    """Return a function evaluated at a point."""
    return _mapped(function, lambda x: value_at(x, values), lambda i: i.params)


def abstract_at(template: Abstract, values: Values) -> Abstract:
    """Return an abstract function with its sizes and constants evaluated at a point."""
    sizes = {name: value_at(n, values) for name, n in template.sizes.items()}
    return replace(template, sizes=sizes, constants=tuple(value_at(c, values) for c in template.constants))


def pinned(function: Function, *, whole: bool = False) -> Function:
    """Return a function with its symbolic params pinned to their values in this call, except params that are extents.
    ``whole``: extents are pinned too."""

    def concrete(x: Any) -> Any:
        recorder = sizes_in((x,))
        if recorder is not None:
            recorder.pin((x,))
        return plain(x)

    def kept(i: Instruction) -> Sequence[str]:
        return () if whole else (*i.op.extents, "value") if isinstance(i.op, Constant) else i.op.extents

    return _mapped(function, concrete if whole else lambda x: x, lambda i: [k for k in i.params if k not in kept(i)], concrete)


def _mapped(
    function: Function,
    extent: Callable[[Any], Any],
    names: Callable[[Instruction], Any],
    param: Callable[[Any], Any] | None = None,
) -> Function:
    """Map the extents of a function by ``extent``, and the params listed by ``names`` by ``param``."""
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
        instructions = []
        for i in old.instructions:
            operands = tuple(env.get(v, v) for v in i.operands)
            regions = tuple(block(r) for r in i.regions)
            instructions.append(Instruction(i.op, operands, tuple(define(v) for v in i.results), params(i), regions, i.loc))
        return Block(parameters, tuple(instructions), tuple(env.get(v, v) for v in old.results))

    return Function(function.name, block(function.body), function.kind)
