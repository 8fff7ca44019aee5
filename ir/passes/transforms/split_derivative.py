"""The derivative of a region, apart: what its forward part is, what its reverse part, and what the second reads of the first. And
the predicates of what comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, ArrayType, StackType, Type
from pullback.ir.core.value import Value
from pullback.ir.passes.editing.loop_view import both, either, everywhere, holds_anywhere
from pullback.ir.passes.transforms.reverse import Cotangent, Part, pull
from pullback.ir.passes.transforms.strong_zero import StrongBuilder

Cotangents = Sequence[Cotangent | None]


@dataclass(frozen=True, eq=False)
class Derived:
    """A body with its derivative, on parameters ``own``: ``forward``, the instructions that do not read the cotangents
    ``seeds`` of its results, and ``backward``, those that do. ``found``: the cotangents of what is wanted, the last of which are
    added to ``sums``."""

    own: list[Value]
    seeds: list[Cotangent]
    sums: list[Cotangent]
    forward: Block
    backward: list[Instruction]
    found: list[Cotangent | None]

    def read(self, results: Iterable[Value]) -> list[Value]:
        """What the backward part and its results read of the forward part."""
        late = {v for i in self.backward for v in i.results} | values_of([*self.seeds, *self.sums])
        values = [*(v for i in self.backward for v in i.operands), *results]
        return [v for v in dict.fromkeys(values) if v not in late]


def values_of(cts: Cotangents) -> set[Value]:
    given = [v for ct in cts if ct is not None for v in (ct.value, ct.predicate)]
    return {v for v in given if v is not None}


@dataclass(frozen=True)
class Kind:
    """Of a cotangent to come: whether it has a predicate, and whether it may be steep."""

    is_masked: bool = False
    is_steep: bool = False


def derive(b: Builder, body: Block, of: Mapping[int, Kind], wrt: Sequence[int], summed: Mapping[int, Kind]) -> Derived:
    """The derivative of the results of a body at ``of`` by its parameters at ``wrt``, and at ``summed``, where it is added to
    what there is. Both say what the cotangents are like."""
    inner = Builder(b.loc, hint=b.hint)
    own = [Value(p.type, p.name) for p in body.parameters]
    seeds = [_seed(body.results[k].type, kind) for k, kind in of.items()]
    sums = {k: _seed(body.parameters[k].type, kind) for k, kind in summed.items()}
    results, found = pull(inner, body, own, [*wrt, *summed], b.loc, list(of), seeds, sums, own)
    late = values_of([*seeds, *sums.values()])
    forward: list[Instruction] = []
    backward: list[Instruction] = []
    for instruction in inner.instructions:
        is_late = not late.isdisjoint(instruction.operands)
        (backward if is_late else forward).append(instruction)
        late.update(instruction.results if is_late else ())
    return Derived(own, seeds, list(sums.values()), Block(tuple(own), tuple(forward), tuple(results)), backward, found)


def _seed(t: Type, kind: Kind) -> Cotangent:
    return Cotangent(Value(t, "d"), Value(ArrayType(BOOL, t.shape), "on") if kind.is_masked else None, kind.is_steep)


def pair(ct: Cotangent) -> list[Value]:
    return [ct.value] if ct.predicate is None else [ct.value, ct.predicate]


def marked(b: Builder, value: Value, is_steep: bool) -> Value:
    """A value that is steep from now on, if ``is_steep``."""
    if is_steep and isinstance(b, StrongBuilder):
        b.mark([value])
    return value


def predicate_of(ct: Cotangent | None) -> Value | None:
    return None if ct is None else ct.predicate


def whole_predicate(b: Builder, cts: Cotangents) -> Value | None:
    """Whether any of the cotangents is not zero, where all of them have predicates; None if that is not known."""
    whole: Value | None = None
    for ct in cts:
        if ct is None:
            continue
        if ct.predicate is None:
            return None
        on = holds_anywhere(b, ct.predicate)
        whole = on if whole is None else b.bitor(whole, on)
    return whole


def part_under(b: Builder, whole: Value | None, ct: Cotangent | None) -> Part:
    """A contribution that counts if ``whole`` is true."""
    if ct is None:
        return ZERO, None
    if whole is None:
        return ct.value, ct.predicate
    on = everywhere(b, whole, ct.value)
    predicate = on if ct.predicate is None else both(b, ct.predicate, on)
    if isinstance(ct.value.type, StackType):
        return ct.value, predicate
    return b.select(on, ct.value, b.zeros_like(ct.value)), predicate


def total_under(b: Builder, whole: Value | None, total: Cotangent | None, before: Cotangent | None) -> Part:
    """The cotangent of a capture: ``total``, which was added to ``before``."""
    if total is None:
        return (ZERO, None) if before is None else (before.value, before.predicate)
    if whole is None:
        return total.value, None
    on = everywhere(b, whole, total.value)
    value = b.select(on, total.value, b.zeros_like(total.value) if before is None else before.value)
    predicate = on if total.predicate is None else both(b, total.predicate, on)
    if before is None:
        return value, predicate
    return value, None if before.predicate is None else either(b, before.predicate, predicate)
