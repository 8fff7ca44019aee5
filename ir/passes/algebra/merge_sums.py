"""Merge sums along the same axes of the same product: factors that are constant along the axes are moved out of the sum.

    sum (g * scale) + sum (g * x * scale)  and  sum g, sum (g * x)   take two sums instead of four
    sum (x - mean x)                                                 takes none: it is 0 * mean x

This merges the gradients of normalised values: a batch normalisation keeps two sums over the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.passes.simplify.rewrite import Rewriter, constant_like, without_axes
from pullback.ir.passes.simplify.rules_array import renumbered, spread

TERMS, FACTORS, DEPTH = 6, 8, 12
"""Largest number of terms and of factors per term, and greatest depth, to which products are expanded."""

Axes = tuple[int, ...]
Core = tuple[frozenset[tuple[Value, int]], Axes]


@dataclass(frozen=True)
class Term:
    """A product of values with exponents 1 or -1: the factors ``outside`` are constant along the axes, the factors ``inside``
    vary."""

    negative: bool = False
    outside: tuple[tuple[Value, int], ...] = ()
    inside: tuple[tuple[Value, int], ...] = ()

    def core(self, axes: Axes) -> Core:
        """Return the varying factors with the axes: a key that is equal for terms that can share a sum."""
        powers: dict[Value, int] = {}
        for value, exponent in self.inside:
            powers[value] = powers.get(value, 0) + exponent
        return frozenset(powers.items()), axes


def sums(function: Function) -> Function:
    """Replace sums whose products have the same varying factors by one sum, times the remaining factors.

    Applied only if it leaves fewer sums, or one with fewer terms. Only one product may remain of a sum of several terms:
    separate sums of two products may be large where the terms cancel, and their difference would lose accuracy.

    Requires: a func after ``simplify`` and ``cse``; other kinds are returned unchanged. Keeps: values up to rounding, as long
    as no factor moved out overflows its product; NaN and infinities where they were.
    """
    return replace(function, body=_merged(function.body)) if function.kind == "func" else function


def _merged(block: Block) -> Block:
    regions = {i: tuple(_merged(r) for r in i.regions) for i in block.instructions if i.regions}
    products = _Products(block)
    candidates = {i: products.terms(i) for i in block.instructions if _is_candidate(i)}
    chosen = _chosen(candidates, products)
    if not chosen and all(r is s for i, rs in regions.items() for r, s in zip(rs, i.regions)):
        return block
    b = Rewriter()
    new: dict[Value, Value] = {v: v for v in block.parameters}
    shared_sums: dict[Core, Value] = {}
    for instruction in block.instructions:
        b.loc, b.hint = instruction.loc, instruction.results[0].name if instruction.results else ""
        if instruction in chosen:
            results: Sequence[Value] = [_combined(b, instruction, chosen[instruction], products, new, shared_sums)]
        else:
            operands = [new[v] for v in instruction.operands]
            results = b.emit(instruction.op, operands, dict(instruction.params), regions.get(instruction, ()), instruction)
        new.update(zip(instruction.results, results, strict=True))
    return Block(block.parameters, tuple(b.instructions), tuple(new[v] for v in block.results))


def _is_candidate(instruction: Instruction) -> bool:
    return instruction.op.name == "sum" and instruction.result.type.dtype.name in ("f32", "f64")


def _chosen(candidates: dict[Instruction, list[Term]], products: _Products) -> dict[Instruction, list[Term]]:
    """Return the sums to rewrite: sums of one product that other sums read too, and sums of several terms of which at most one
    product remains, and either fewer terms remain or that product is summed already."""
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
        left = [core for core in cores if not products.mean_of_deviation(core)]
        if len(set(left)) <= 1 and (len(left) < len(cores) or left[0] in readers):
            chosen[instruction] = terms
    return chosen


class _Products:
    """Expands values of a block into sums of products."""

    def __init__(self, block: Block) -> None:
        self.definitions = {v: i for i in block.instructions for v in i.results}
        self.expanded: dict[tuple[Value, Axes], list[Term]] = {}

    def terms(self, instruction: Instruction) -> list[Term]:
        """Return the terms that a sum adds up along its axes, each as a product."""
        return self._terms(instruction.operands[0], tuple(instruction.params["axes"]), 0)

    def _terms(self, value: Value, axes: Axes, depth: int) -> list[Term]:
        if (value, axes) not in self.expanded:
            terms = self._expanded(value, axes, depth) if depth < DEPTH else None
            if terms is None or len(terms) > TERMS or any(len(t.inside) + len(t.outside) > FACTORS for t in terms):
                terms = [Term(inside=((value, 1),))]
            self.expanded[value, axes] = terms
        return self.expanded[value, axes]

    def _expanded(self, value: Value, axes: Axes, depth: int) -> list[Term] | None:
        producer = self.definitions.get(value)
        if producer is None or producer.op.name not in ("neg", "add", "sub", "mul", "div"):
            return None
        x = producer.operands[0]
        if producer.op.name == "neg":
            return [_negated(t) for t in self._terms(x, axes, depth + 1)]
        y = producer.operands[1]
        if producer.op.name in ("add", "sub"):
            if self.constant_along(x, axes) or self.constant_along(y, axes):
                return None
            others = self._terms(y, axes, depth + 1)
            return self._terms(x, axes, depth + 1) + [_negated(t) if producer.op.name == "sub" else t for t in others]
        exponent = 1 if producer.op.name == "mul" else -1
        if self.constant_along(y, axes):
            return [replace(t, outside=(*t.outside, (y, exponent))) for t in self._terms(x, axes, depth + 1)]
        if self.constant_along(x, axes) and exponent == 1:
            return [replace(t, outside=(*t.outside, (x, 1))) for t in self._terms(y, axes, depth + 1)]
        first, second = self._factors(x, axes, depth), self._factors(y, axes, depth)
        raised = tuple((v, e * exponent) for v, e in second.inside)
        outside = tuple((v, e * exponent) for v, e in second.outside)
        return [Term(first.negative != second.negative, (*first.outside, *outside), (*first.inside, *raised))]

    def _factors(self, value: Value, axes: Axes, depth: int) -> Term:
        """Return a value as one product; a sum of several terms is a factor by itself."""
        if self.constant_along(value, axes):
            return Term(outside=((value, 1),))
        terms = self._terms(value, axes, depth + 1)
        return terms[0] if len(terms) == 1 else Term(inside=((value, 1),))

    def constant_along(self, value: Value, axes: Axes) -> bool:
        producer = self.definitions.get(value)
        return producer is not None and producer.op.name == "broadcast" and set(axes) <= set(producer.params["axes"])

    def mean_of_deviation(self, core: Core) -> Value | None:
        """Return the mean of x along the axes if the core is x minus that mean; else None."""
        factors, axes = core
        producer = self.definitions.get(next(iter(factors))[0]) if len(factors) == 1 else None
        if producer is None or next(iter(factors))[1] != 1 or producer.op.name != "sub":
            return None
        x, mean = producer.operands
        spread_mean = self.definitions.get(mean)
        if spread_mean is None or spread_mean.op.name != "broadcast" or tuple(spread_mean.params["axes"]) != axes:
            return None
        quotient = self.definitions.get(spread_mean.operands[0])
        if quotient is None or quotient.op.name != "div":
            return None
        total = self.definitions.get(quotient.operands[0])
        if total is None or total.op.name != "sum" or total.operands != (x,) or tuple(total.params["axes"]) != axes:
            return None
        counted = self.count(quotient.operands[1])
        is_count = counted is not None and tuple(counted) == tuple(x.type.shape[a] for a in axes)
        return quotient.result if is_count else None

    def count(self, value: Value) -> Any:
        """Return the extents whose product is ``value``, if it is a count; else None."""
        producer = self.definitions.get(value)
        while producer is not None and producer.op.name in ("broadcast", "cast"):
            producer = self.definitions.get(producer.operands[0])
        return producer.params["shape"] if producer is not None and producer.op.name == "count" else None


def _negated(term: Term) -> Term:
    return replace(term, negative=not term.negative)


def _combined(
    b: Rewriter, i: Instruction, terms: list[Term], products: _Products, new: dict[Value, Value], sums_by_core: dict[Core, Value]
) -> Value:
    """Emit the sum of terms, from sums of their cores; ``sums_by_core`` holds those already emitted."""
    axes = tuple(i.params["axes"])
    total = None
    for term in terms:
        core = term.core(axes)
        mean = products.mean_of_deviation(core)
        if core not in sums_by_core:
            sums_by_core[core] = _core(b, term, axes, new) if mean is None else b.mul(new[mean], constant_like(b, 0.0, new[mean]))
        value = sums_by_core[core]
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
    """Emit the sum of the product of the varying factors."""
    product = None
    for factor, exponent in sorted(term.inside, key=lambda f: -f[1]):
        value = new[factor]
        if exponent == 1:
            product = value if product is None else b.mul(product, value)
        else:
            product = b.div(constant_like(b, 1.0, value) if product is None else product, value)
    assert product is not None
    total: Value = b.sum(product, axes=axes)
    return total


def _without_axes(b: Rewriter, value: Value, axes: Axes) -> Value:
    """Return a broadcast value without axes that the broadcast added."""
    producer = b.definitions[value]
    axes_left = renumbered(producer.params["axes"], axes)
    return spread(b, producer.operands[0], axes_left, without_axes(value.type.shape, axes))
