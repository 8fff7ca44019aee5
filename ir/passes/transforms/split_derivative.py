"""Split the derivative of a region into its forward part, its reverse part and the residuals between them; combine the
predicates of the resulting cotangents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, ArrayType, StackType, Type
from pullback.ir.core.value import Value
from pullback.ir.passes.editing.loop_view import any_element, broadcast_like, logical_and, logical_or
from pullback.ir.passes.transforms.reverse import Cotangent, Part, pull
from pullback.ir.passes.transforms.strong_zero import StrongBuilder
from pullback.ir.shapes.extents import definers, used_in

Cotangents = Sequence[Cotangent | None]


@dataclass(frozen=True, eq=False)
class Derived:
    """A body with its derivative, on parameters ``own``. ``forward``: the instructions that do not depend on the cotangents
    ``seeds`` of its results; ``backward``: those that do. ``cotangents``: the cotangents of the wanted parameters, of which
    the last ones are added to ``sums``."""

    own: list[Value]
    seeds: list[Cotangent]
    sums: list[Cotangent]
    forward: Block
    backward: list[Instruction]
    cotangents: list[Cotangent | None]

    def read(self, results: Iterable[Value]) -> list[Value]:
        """Return the values of the forward part that the backward part and its results read, and the numbers that define the
        extents of the backward part."""
        late = {v for i in self.backward for v in i.results} | values_of([*self.seeds, *self.sums])
        own = definers(self.forward.instructions)
        extents = (own[name] for name in (used_in(self.backward) if own else ()) if name in own)
        values = [*(v for i in self.backward for v in i.operands), *results, *extents]
        return [v for v in dict.fromkeys(values) if v not in late]


def values_of(cts: Cotangents) -> set[Value]:
    """Return the values and predicates of cotangents."""
    values = [v for ct in cts if ct is not None for v in (ct.value, ct.predicate)]
    return {v for v in values if v is not None}


@dataclass(frozen=True)
class Kind:
    """The kind of a cotangent: whether it has a predicate, and whether it may be steep."""

    is_masked: bool = False
    is_steep: bool = False


def derive(b: Builder, body: Block, of: Mapping[int, Kind], wrt: Sequence[int], summed: Mapping[int, Kind]) -> Derived:
    """Return the derivative of the results of a body at ``of`` with respect to its parameters at ``wrt``, and at ``summed``,
    where it is added to an existing sum. The values of both mappings are the kinds of the cotangents."""
    inner = Builder(b.loc, hint=b.hint)
    own = [Value(p.type, p.name) for p in body.parameters]
    seeds = [_seed(body.results[k].type, kind) for k, kind in of.items()]
    sums = {k: _seed(body.parameters[k].type, kind) for k, kind in summed.items()}
    results, cotangents = pull(inner, body, own, [*wrt, *summed], b.loc, list(of), seeds, sums, own)
    late = values_of([*seeds, *sums.values()])
    forward: list[Instruction] = []
    backward: list[Instruction] = []
    for instruction in inner.instructions:
        is_late = not late.isdisjoint(instruction.operands)
        (backward if is_late else forward).append(instruction)
        late.update(instruction.results if is_late else ())
    return Derived(own, seeds, list(sums.values()), Block(tuple(own), tuple(forward), tuple(results)), backward, cotangents)


def _seed(t: Type, kind: Kind) -> Cotangent:
    return Cotangent(Value(t, "d"), Value(ArrayType(BOOL, t.shape), "on") if kind.is_masked else None, kind.is_steep)


def pair(ct: Cotangent) -> list[Value]:
    return [ct.value] if ct.predicate is None else [ct.value, ct.predicate]


def marked(b: Builder, value: Value, is_steep: bool) -> Value:
    """Return a value, marked as steep if ``is_steep``."""
    if is_steep and isinstance(b, StrongBuilder):
        b.mark([value])
    return value


def predicate_of(ct: Cotangent | None) -> Value | None:
    return None if ct is None else ct.predicate


def joint_predicate(b: Builder, cts: Cotangents) -> Value | None:
    """Emit whether any of the cotangents is not zero, if all of them have predicates; None if that is unknown."""
    joint: Value | None = None
    for ct in cts:
        if ct is None:
            continue
        if ct.predicate is None:
            return None
        on = any_element(b, ct.predicate)
        joint = on if joint is None else b.bitor(joint, on)
    return joint


def masked_part(b: Builder, joint: Value | None, ct: Cotangent | None) -> Part:
    """Emit a contribution that counts only if ``joint`` is true."""
    if ct is None:
        return ZERO, None
    if joint is None:
        return ct.value, ct.predicate
    on = broadcast_like(b, joint, ct.value)
    predicate = on if ct.predicate is None else logical_and(b, ct.predicate, on)
    if isinstance(ct.value.type, StackType):
        return ct.value, predicate
    return b.select(on, ct.value, b.zeros_like(ct.value)), predicate


def masked_total(b: Builder, joint: Value | None, total: Cotangent | None, before: Cotangent | None) -> Part:
    """Emit the cotangent of a capture: ``total``, which is a sum that started from ``before``."""
    if total is None:
        return (ZERO, None) if before is None else (before.value, before.predicate)
    if joint is None:
        return total.value, None
    on = broadcast_like(b, joint, total.value)
    value = b.select(on, total.value, b.zeros_like(total.value) if before is None else before.value)
    predicate = on if total.predicate is None else logical_and(b, total.predicate, on)
    if before is None:
        return value, predicate
    return value, None if before.predicate is None else logical_or(b, before.predicate, predicate)
