"""Smallest failing programs: of a source text by its lines, of a function of the IR by its instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pullback.ir import Block, Function, Value
from pullback.ir.interpret import interpret
from pullback.ir.passes.editing.dce import dce

T = TypeVar("T")
Fails = Callable[[Function, Sequence[Any]], bool]


def fewest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A part of the items that fails and of which none can be left out. Large pieces are tried first (Zeller and Hildebrandt,
    Simplifying and isolating failure-inducing input, 2002)."""
    kept, size = list(items), max(len(items) // 2, 1)
    while True:
        removed = False
        for first in range(len(kept) - size, -1, -size):
            candidate = kept[:first] + kept[first + size :]
            if fails(candidate):
                kept, removed = candidate, True
        if size == 1 and not removed:
            return kept
        size = max(size // 2, 1)


def smallest(function: Function, arguments: Sequence[Any], fails: Fails) -> tuple[Function, list[Any]]:
    """A function with fewer results and instructions that still fails, and its arguments.

    An instruction goes by becoming parameters, which are given what the interpreter found for its results.
    """
    result, inputs = function, list(arguments)
    results = fewest(result.results, lambda r: bool(r) and fails(*pruned(result, r, inputs)))
    result, inputs = pruned(result, results, inputs)
    for instruction in result.instructions:
        candidate = pruned(result, instruction.results, inputs)
        if fails(*candidate):
            result, inputs = candidate
            break
    for instruction in result.instructions:
        if instruction in result.instructions:
            candidate = cut(result, instruction.results, inputs)
            if fails(*candidate):
                result, inputs = candidate
    return result, inputs


def pruned(function: Function, results: Sequence[Value], arguments: Sequence[Any]) -> tuple[Function, list[Any]]:
    """The function of some of its results, without what they do not need."""
    body = Block(function.parameters, function.instructions, tuple(results))
    kept = dce(replace(function, body=body))
    read = {v for i in kept.instructions for v in i.operands} | set(results)
    used = [k for k, p in enumerate(function.parameters) if p in read]
    parameters = tuple(function.parameters[k] for k in used)
    return replace(kept, body=replace(kept.body, parameters=parameters)), [arguments[k] for k in used]


def cut(function: Function, values: Sequence[Value], arguments: Sequence[Any]) -> tuple[Function, list[Any]]:
    """The function with the instruction that makes these values gone: they are parameters."""
    known = interpret(replace(function, body=replace(function.body, results=tuple(values))), *arguments)
    rest = tuple(i for i in function.instructions if i.results != tuple(values))
    body = Block((*function.parameters, *values), rest, function.results)
    return pruned(replace(function, body=body), function.results, [*arguments, *known])
