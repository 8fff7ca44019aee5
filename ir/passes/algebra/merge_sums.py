"""Merges sums along the same axes of the same product: what does not vary along them is taken out of the sum.

    sum (g * scale) + sum (g * x * scale)  and  sum g, sum (g * x)   take two sums, not four
    sum (x - mean x)                                                 takes none: it is 0 * mean x

This is where the gradients of normalised values meet: of a batch normalisation two sums over the batch are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.passes.simplify.rewrite import Rewriter, spread_like, without
from pullback.ir.passes.simplify.rules_array import renumbered, spread

TERMS, FACTORS, DEPTH = 6, 8, 12

Axes = tuple[int, ...]
Core = tuple[frozenset[tuple[Value, int]], Axes]


@dataclass(frozen=True)
class Term:
    """A product: the factors ``outside`` do not vary along the axes, those ``inside`` do. Each has an exponent, 1 or -1."""

    negative: bool = False
    outside: tuple[tuple[Value, int], ...] = ()
    inside: tuple[tuple[Value, int], ...] = ()

    def core(self, axes: Axes) -> Core:
        powers: dict[Value, int] = {}
        for value, exponent in self.inside:
            powers[value] = powers.get(value, 0) + exponent
        return frozenset(powers.items()), axes


def sums(function: Function) -> Function:
    """Sums whose products have the same varying factors become one, times what differs.

    Only where that leaves fewer sums, or one whose terms are fewer. What is left of a sum of terms is of one product: the sums
    of two may be large where terms cancel, and then their difference is not the sum of the differences.

    Requires: a func after ``simplify`` and ``cse``; other kinds are returned as they are.
    Keeps: values but for rounding, as long as no factor taken out overflows its product; NaN and infinities where they were.
    """
    return replace(function, body=_merged(function.body)) if function.kind == "func" else function


def _merged(block: Block) -> Block:
    regions = {i: tuple(_merged(r) for r in i.regions) for i in block.instructions if i.regions}
    found = _Products(block)
    candidates = {i: found.terms(i) for i in block.instructions if _is_candidate(i)}
    chosen = _chosen(candidates, found)
    if not chosen and all(r is s for i, rs in regions.items() for r, s in zip(rs, i.regions)):
        return block
    b = Rewriter()
    new: dict[Value, Value] = {v: v for v in block.parameters}
    made: dict[Core, Value] = {}
    for instruction in block.instructions:
        b.loc, b.hint = instruction.loc, instruction.results[0].name if instruction.results else ""
        if instruction in chosen:
            results: Sequence[Value] = [_combined(b, instruction, chosen[instruction], found, new, made)]
        else:
            operands = [new[v] for v in instruction.operands]
            results = b.emit(instruction.op, operands, dict(instruction.params), regions.get(instruction, ()), instruction)
        new.update(zip(instruction.results, results, strict=True))
    return Block(block.parameters, tuple(b.instructions), tuple(new[v] for v in block.results))


def _is_candidate(instruction: Instruction) -> bool:
    return instruction.op.name == "sum" and instruction.result.type.dtype.name in ("f32", "f64")


def _chosen(candidates: dict[Instruction, list[Term]], found: _Products) -> dict[Instruction, list[Term]]:
    """The sums to be written anew: those of one product that others read too, and those of several terms of which one product
    is left, that exists or has fewer terms."""
    readers: dict[Core, int] = {}
    for instruction, terms in candidates.items():
        if len(terms) == 1:
            core = terms[0].core(instruction.params["axes"])
            readers[core] = readers.get(core, 0) + 1
    chosen = {}
    for instruction, terms in candidates.items():
        cores = [t.core(instruction.params["axes"]) for t in terms]
        if len(terms) == 1:
            if readers[cores[0]] > 1:
                chosen[instruction] = terms
            continue
        left = [core for core in cores if not found.mean_of_deviation(core)]
        if len(set(left)) <= 1 and (len(left) < len(cores) or left[0] in readers):
            chosen[instruction] = terms
    return chosen


class _Products:
    """Values of a block as sums of products."""

    def __init__(self, block: Block) -> None:
        self.made_by = {v: i for i in block.instructions for v in i.results}
        self.known: dict[tuple[Value, Axes], list[Term]] = {}

    def terms(self, instruction: Instruction) -> list[Term]:
        """The terms that a sum adds up along its axes, each as a product."""
        return self._terms(instruction.operands[0], tuple(instruction.params["axes"]), 0)

    def _terms(self, value: Value, axes: Axes, depth: int) -> list[Term]:
        if (value, axes) not in self.known:
            found = self._expanded(value, axes, depth) if depth < DEPTH else None
            if found is None or len(found) > TERMS or any(len(t.inside) + len(t.outside) > FACTORS for t in found):
                found = [Term(inside=((value, 1),))]
            self.known[value, axes] = found
        return self.known[value, axes]

    def _expanded(self, value: Value, axes: Axes, depth: int) -> list[Term] | None:
        made = self.made_by.get(value)
        if made is None or made.op.name not in ("neg", "add", "sub", "mul", "div"):
            return None
        x = made.operands[0]
        if made.op.name == "neg":
            return [_negated(t) for t in self._terms(x, axes, depth + 1)]
        y = made.operands[1]
        if made.op.name in ("add", "sub"):
            if self.constant_along(x, axes) or self.constant_along(y, axes):
                return None
            others = self._terms(y, axes, depth + 1)
            return self._terms(x, axes, depth + 1) + [_negated(t) if made.op.name == "sub" else t for t in others]
        exponent = 1 if made.op.name == "mul" else -1
        if self.constant_along(y, axes):
            return [replace(t, outside=(*t.outside, (y, exponent))) for t in self._terms(x, axes, depth + 1)]
        if self.constant_along(x, axes) and exponent == 1:
            return [replace(t, outside=(*t.outside, (x, 1))) for t in self._terms(y, axes, depth + 1)]
        first, second = self._factors(x, axes, depth), self._factors(y, axes, depth)
        raised = tuple((v, e * exponent) for v, e in second.inside)
        outside = tuple((v, e * exponent) for v, e in second.outside)
        return [Term(first.negative != second.negative, (*first.outside, *outside), (*first.inside, *raised))]

    def _factors(self, value: Value, axes: Axes, depth: int) -> Term:
        """A value as one product: itself, if it is a sum of several."""
        if self.constant_along(value, axes):
            return Term(outside=((value, 1),))
        found = self._terms(value, axes, depth + 1)
        return found[0] if len(found) == 1 else Term(inside=((value, 1),))

    def constant_along(self, value: Value, axes: Axes) -> bool:
        made = self.made_by.get(value)
        return made is not None and made.op.name == "broadcast" and set(axes) <= set(made.params["axes"])

    def mean_of_deviation(self, core: Core) -> Value | None:
        """The mean of x along the axes if the core is x minus that mean."""
        factors, axes = core
        made = self.made_by.get(next(iter(factors))[0]) if len(factors) == 1 else None
        if made is None or next(iter(factors))[1] != 1 or made.op.name != "sub":
            return None
        x, mean = made.operands
        spread_mean = self.made_by.get(mean)
        if spread_mean is None or spread_mean.op.name != "broadcast" or tuple(spread_mean.params["axes"]) != axes:
            return None
        quotient = self.made_by.get(spread_mean.operands[0])
        if quotient is None or quotient.op.name != "div":
            return None
        total = self.made_by.get(quotient.operands[0])
        if total is None or total.op.name != "sum" or total.operands != (x,) or tuple(total.params["axes"]) != axes:
            return None
        counted = self.count(quotient.operands[1])
        is_count = counted is not None and tuple(counted) == tuple(x.type.shape[a] for a in axes)
        return quotient.result if is_count else None

    def count(self, value: Value) -> Any:
        """The extents whose product is a value, if it is a count."""
        made = self.made_by.get(value)
        while made is not None and made.op.name in ("broadcast", "cast"):
            made = self.made_by.get(made.operands[0])
        return made.params["shape"] if made is not None and made.op.name == "count" else None


def _negated(term: Term) -> Term:
    return replace(term, negative=not term.negative)


def _combined(
    b: Rewriter, instruction: Instruction, terms: list[Term], found: _Products, new: dict[Value, Value], made: dict[Core, Value]
) -> Value:
    """The sum of a list of terms, from sums of their cores that are shared with others."""
    axes = tuple(instruction.params["axes"])
    total = None
    for term in terms:
        core = term.core(axes)
        mean = found.mean_of_deviation(core)
        if core not in made:
            made[core] = _core(b, term, axes, new) if mean is None else b.mul(new[mean], spread_like(b, 0.0, new[mean]))
        value = made[core]
        for factor, exponent in term.outside:
            narrow = _without_axes(b, new[factor], axes)
            value = b.mul(value, narrow) if exponent == 1 else b.div(value, narrow)
        if total is None:
            total = b.neg(value) if term.negative else value
        else:
            total = b.sub(total, value) if term.negative else b.add(total, value)
    assert total is not None
    return total


def _core(b: Rewriter, term: Term, axes: Axes, new: dict[Value, Value]) -> Value:
    """The sum of the product of the varying factors."""
    product = None
    for factor, exponent in sorted(term.inside, key=lambda f: -f[1]):
        value = new[factor]
        if exponent == 1:
            product = value if product is None else b.mul(product, value)
        else:
            product = b.div(spread_like(b, 1.0, value) if product is None else product, value)
    assert product is not None
    found: Value = b.sum(product, axes=axes)
    return found


def _without_axes(b: Rewriter, value: Value, axes: Axes) -> Value:
    """A value that a broadcast made, without axes that are new in it."""
    made = b.made_by[value]
    rest = renumbered(made.params["axes"], axes)
    return spread(b, made.operands[0], rest, without(value.type.shape, axes))
