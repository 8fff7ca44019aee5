"""Reverse mode of ``switch``: a switch whose branches read the residuals of the forward branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO
from pullback.ir.core.structure import Block, copy_block
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Switch
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.updates import updated_operand
from pullback.ir.passes.transforms.final_values import FinalReads, versions_of
from pullback.ir.passes.transforms.residuals import choose, needed, without_effects
from pullback.ir.passes.transforms.reverse import STRUCTURED, Cotangent, Part, Step, Sum
from pullback.ir.passes.transforms.split_derivative import (
    Cotangents,
    Derived,
    Kind,
    derive,
    joint_predicate,
    marked,
    masked_total,
    pair,
    predicate_of,
)


def reverse_switch(b: Builder, step: Step, cts: Cotangents, wants: Sequence[bool], sum: Sum) -> list[Part]:
    """Emit the reverse of a ``switch``."""
    instruction = step.instruction
    captures = step.inputs[1:]
    joint = joint_predicate(b, cts)
    taken = [j for j, ct in enumerate(cts) if ct is not None]
    summed = [k for k, want in enumerate(wants[1:]) if want]
    before = {k: sum(1 + k) for k in summed}
    order = sorted(summed, key=lambda k: before[k] is not None)
    bare, based = [k for k in order if before[k] is None], [k for k in order if before[k] is not None]
    kinds = {j: Kind(joint is not None and predicate_of(ct) is not None, ct.steep) for j, ct in enumerate(cts) if ct is not None}
    sums = {k: Kind(is_steep=ct.steep) for k in based if (ct := before[k]) is not None}
    branches = [derive(b, region, kinds, bare, sums) for region in instruction.regions]
    adding = [p for p, k in enumerate(order) if any(_adds(branch, p - len(bare), branch.cotangents[p]) for branch in branches)]
    if not adding:
        return [(ZERO, None), *(masked_total(b, joint, None, before.get(k)) for k in range(len(captures)))]

    finals = [_final_reads(step, branch) for branch in branches]
    branches = [replace(branch, backward=f.backward(branch.backward)) for branch, f in zip(branches, finals, strict=True)]
    forwards = [f.rerun(branch.forward) for branch, f in zip(branches, finals, strict=True)]
    branches = [replace(branch, forward=f.forward(branch.forward)) for branch, f in zip(branches, finals, strict=True)]
    lasts = [Builder(b.loc, hint=b.hint) for _ in branches]
    results, required, rerun, kept = [], [], [], []
    for branch, last, final, again in zip(branches, lasts, finals, forwards, strict=True):
        yielded = [(branch.cotangents[p], captures[order[p]]) for p in adding]
        results.append([last.zeros_like(x) if ct is None else ct.value for ct, x in yielded])
        defined_last = {v for i in last.instructions for v in i.results}
        required.append([v for v in branch.read(results[-1]) if v not in defined_last])
        rerun.append(without_effects(again, required[-1]))
        free = {*branch.own, *final.free()}
        kept.append(choose(rerun[-1], required[-1], free))
    columns: list[tuple[Value, list[Value]]] = [*_slots(b, step, branches, kept)]
    columns += [(x, [branch.own[k] for branch in branches]) for k, x in enumerate(captures)]
    for n, final in enumerate(finals):
        columns += [(x, [p if k == n else Value(p.type) for k in range(len(branches))]) for p, x in final.pairs()]
    for p, j in enumerate(taken):
        ct = cts[j]
        assert ct is not None
        seeds = [pair(branch.seeds[p]) for branch in branches]
        columns += [(x, list(own)) for x, own in zip(pair(ct), zip(*seeds, strict=True), strict=False)]
    for p, k in enumerate(based):
        old = before[k]
        assert old is not None
        columns.append((old.value, [branch.sums[p].value for branch in branches]))
    bodies = [
        [*needed(block.instructions, wanted, {*own, *branch.own}), *branch.backward, *last.instructions]
        for branch, block, wanted, own, last in zip(branches, rerun, required, kept, lasts, strict=True)
    ]
    used = {v for body, yielded in zip(bodies, results, strict=True) for v in (*(x for i in body for x in i.operands), *yielded)}
    columns = [column for column in columns if not used.isdisjoint(column[1])]
    regions = [
        copy_block(Block(tuple(values[n] for _, values in columns), tuple(body), tuple(yielded)))
        for n, (body, yielded) in enumerate(zip(bodies, results, strict=True))
    ]
    outputs = b.emit(instruction.op, (step.inputs[0], *(x for x, _ in columns)), {}, regions)
    steep = {p for branch in branches for p, ct in enumerate(branch.cotangents) if ct is not None and ct.steep}
    totals = {order[p]: Cotangent(marked(b, v, p in steep)) for p, v in zip(adding, outputs, strict=True)}
    return [(ZERO, None), *(masked_total(b, joint, totals.get(k), before.get(k)) for k in range(len(captures)))]


def _final_reads(step: Step, branch: Derived) -> FinalReads:
    """Return the reads of a branch from the arrays after it."""
    arrays = zip(_starts(step, branch), branch.forward.results, step.outputs, strict=True)
    return FinalReads(versions_of(branch.forward, arrays), is_loop=False)


def _starts(step: Step, branch: Derived) -> list[Value | None]:
    """Return the parameter of a branch that each result updates; None for another one."""
    bases = [updated_operand(step.instruction, v, through_loops=True) for v in step.instruction.results]
    own = dict(zip(step.instruction.operands[1:], branch.own, strict=True))
    return [None if v is None else own.get(v) for v in bases]


def _adds(branch: Derived, position: int, ct: Cotangent | None) -> bool:
    """Return whether a branch contributes to a cotangent, besides the sum that is passed in at ``position``."""
    return ct is not None and (position < 0 or ct.value is not branch.sums[position].value)


def _slots(
    b: Builder, step: Step, branches: Sequence[Derived], kept: Sequence[Sequence[Value]]
) -> list[tuple[Value, list[Value]]]:
    """Make the forward switch return residuals of its branches. Returns its results, each with the value in every branch.
    Values of equal type share a result; a branch without one returns zeros."""
    outputs = list(step.outputs)
    count = len(outputs)
    regions: list[list[Value | None]] = []
    for branch, values in zip(branches, kept, strict=True):
        slots: list[Value | None] = [None] * len(outputs)
        for v in values:
            fits = (
                k
                for k, x in enumerate(outputs)
                if slots[k] is None and (branch.forward.results[k] is v if k < count else x.type == v.type)
            )
            slot = next(fits, None)
            if slot is None:
                slot = len(outputs)
                outputs.append(Value(v.type, v.name))
                slots.append(None)
            slots[slot] = v
        regions.append(slots)
    regions = [slots + [None] * (len(outputs) - len(slots)) for slots in regions]
    if len(outputs) > count:
        blocks = []
        for branch, slots in zip(branches, regions, strict=True):
            builder = Builder(b.loc, [*branch.forward.instructions], b.hint)
            extra = [builder.zeros_like(x) if v is None else v for x, v in zip(outputs[count:], slots[count:], strict=True)]
            blocks.append(live(builder.block(branch.own, [*branch.forward.results, *extra])))
        b.instructions[step.position] = replace(
            step.instruction, operands=step.inputs, results=tuple(outputs), regions=tuple(blocks)
        )
    return [(x, [slots[k] or Value(x.type) for slots in regions]) for k, x in enumerate(outputs)]


STRUCTURED[Switch] = reverse_switch
