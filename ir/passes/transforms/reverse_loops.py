"""Reverse mode of ``scan`` and ``while``.

The forward loop is *augmented*: it also returns, as sequences, the residuals of each iteration, which its reverse reads and
does not recompute. The reverse is a scan in the opposite direction over them. It carries the cotangents of the differentiated
carried values, and the sums of the cotangents of captures, to which each iteration adds its own, in place if that is a part of
an array. A ``while`` returns its trip count, so its reverse is a scan as well, and the reverse of that uses this rule again.

If every incoming cotangent has a predicate, one joint predicate decides whether the contributions count. As far as the body
propagates predicates, they are carried along with the cotangents, so that elements of a branch not taken never yield NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO, Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, copy_block
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Scan, While
from pullback.ir.passes.editing.activity import carries_needed, carries_reached
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of, scan
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.transforms.final_values import FinalReads, versions_of
from pullback.ir.passes.transforms.predicates import History
from pullback.ir.passes.transforms.residuals import choose, constant_carries, counters, needed, without_effects
from pullback.ir.passes.transforms.reverse import STRUCTURED, Cotangent, Part, Step, Sum
from pullback.ir.passes.transforms.split_derivative import (
    Cotangents,
    Derived,
    Kind,
    derive,
    joint_predicate,
    marked,
    masked_part,
    masked_total,
    pair,
    predicate_of,
)
from pullback.ir.passes.transforms.undo_writes import Undone, undo_writes


@dataclass(frozen=True, eq=False)
class _Carried:
    """A cotangent that the reverse carries: ``seed`` in the body, initially ``start``, of the type of ``like``; ``following``
    is its value after an iteration, None for zero."""

    seed: Cotangent
    start: Cotangent | None
    like: Value
    following: Cotangent | None

    def inits(self, b: Builder) -> list[Value]:
        inits = [b.zeros_like(self.like) if self.start is None else self.start.value]
        if self.seed.predicate is not None:
            inits.append(predicate_of(self.start) or b.full(False, self.seed.predicate.type))
        return inits

    def results(self, b: Builder) -> list[Value]:
        results = [b.zeros_like(self.seed.value) if self.following is None else self.following.value]
        if self.seed.predicate is not None:
            results.append(predicate_of(self.following) or b.full(False, self.seed.predicate.type))
        return results


def reverse_loop(b: Builder, step: Step, cts: Cotangents, wants: Sequence[bool], sum: Sum) -> list[Part]:
    """Emit the reverse of a ``scan`` or ``while``. Positions count from 0 within carries, sequences and captures."""
    loop = parts_of(step.instruction)
    inits, sequences, captures = loop.operands(step.inputs)
    wanted = loop.operands(wants)
    ends, rows = loop.results(cts)
    reached, _ = carries_reached(loop, wants, smooth=True)
    read, _, _ = carries_needed(loop, [ct is not None for ct in cts])
    active = [k for k in range(loop.carried) if reached[k] and read[k]]
    sliced = [j for j, want in enumerate(wanted[1]) if want]
    summed = [j for j, want in enumerate(wanted[2]) if want]
    first = loop.first + loop.carried + loop.sliced
    before = {j: sum(first + j) for j in summed}
    joint = joint_predicate(b, cts)
    starts = {**{1 + k: ends[k] for k in active}, **{1 + loop.carried + loop.sliced + j: before[j] for j in summed}}
    derived = _derivative_of_body(b, loop, starts, rows, sliced, joint is not None and not _is_uniform(b, cts))
    own_carries, own_rows, own_captures = loop.parameters(derived.own)
    after = loop.results(step.outputs)[0]
    arrays = zip(own_carries, derived.forward.results, after, strict=False)
    final = FinalReads(versions_of(derived.forward, arrays), is_loop=True)
    derived = replace(derived, backward=final.backward(derived.backward))
    again = final.rerun(derived.forward)

    cotangents = iter(derived.cotangents)
    seeds = iter(derived.seeds)
    carries = {k: _Carried(next(seeds), ends[k], inits[k], next(cotangents)) for k in active}
    slices = {j: next(cotangents) for j in sliced}
    totals = {j: _Carried(total, before[j], captures[j], next(cotangents)) for j, total in zip(summed, derived.sums, strict=True)}
    totals = {j: c for j, c in totals.items() if c.following is not None and c.following.value is not c.seed.value}
    row_cotangents = {j: ct for j, ct in slices.items() if ct is not None}

    last = Builder(b.loc, hint=b.hint)
    carried = [*carries.values(), *totals.values()]
    results = [v for c in carried for v in c.results(last)]
    row_pairs = [*zip(own_rows, sequences, strict=True)]
    capture_pairs = [*zip(own_captures, captures, strict=True)]
    for seed, ct in zip(seeds, (ct for ct in rows if ct is not None), strict=True):
        row_pairs += zip(pair(seed), pair(ct), strict=False)

    defined_last = {v for i in last.instructions for v in i.results}
    rows_out = [v for ct in row_cotangents.values() for v in pair(ct)]
    required = [v for v in derived.read([*results, *rows_out]) if v not in defined_last]
    recomputable = _known_carries(loop, derived, inits)
    free = {*derived.own[:1], *own_rows, *own_captures, *recomputable, *final.free()}
    forward, undone, kept = _residuals(final.forward(derived.forward), again, own_carries, required, free)
    rerun = without_effects(again, required)
    capture_pairs += final.pairs()
    row_pairs += zip(kept, _keep(b, step, loop, forward, kept), strict=True)
    body = [*needed(rerun.instructions, required, {*kept, *derived.own}), *derived.backward, *last.instructions]
    body = [*(i for u in undone for i in u.instructions()), *body]
    results += [*(u.array for u in undone), *rows_out]
    used = {v for i in body for v in i.operands} | set(results)
    for parameter, (pairs, instructions) in recomputable.items():
        if parameter in used and parameter not in kept:
            capture_pairs += pairs
            body = [*instructions, *body]
    used |= {v for i in body for v in i.operands}
    row_pairs = [pair for pair in row_pairs if pair[0] in used]
    capture_pairs = [pair for pair in capture_pairs if pair[0] in used]
    parameters = [derived.own[0], *(v for c in carried for v in pair(c.seed)), *(u.after for u in undone)]
    parameters += [p for p, _ in (*row_pairs, *capture_pairs)]
    outputs = iter(
        scan(
            b,
            copy_block(Block(tuple(parameters), tuple(body), tuple(results))),
            [*(v for c in carried for v in c.inits(b)), *(after[own_carries.index(u.array)] for u in undone)],
            [x for _, x in row_pairs],
            [x for _, x in capture_pairs],
            loop.length,
            loop.count(step.inputs, step.outputs),
            not loop.reverse,
            "sums" if step.instruction.params.get("checkpoint") == "sums" else None,
        )
    )

    def taken(like: Cotangent) -> Cotangent:
        value = marked(b, next(outputs), like.steep)
        return Cotangent(value, None if like.predicate is None else next(outputs), like.steep)

    tops = {k: taken(c.seed) for k, c in carries.items()}
    sums = {j: taken(c.seed) for j, c in totals.items()}
    for _ in undone:
        next(outputs)
    gathered = {j: taken(ct) for j, ct in row_cotangents.items()}
    parts: list[Part] = [(ZERO, None)] * loop.first
    parts += [masked_part(b, joint, tops.get(k)) if want else (ZERO, None) for k, want in enumerate(wanted[0])]
    parts += [masked_part(b, joint, gathered.get(j)) for j in range(loop.sliced)]
    return parts + [masked_total(b, joint, sums.get(j), before.get(j)) for j in range(len(captures))]


def _residuals(
    forward: Block, again: Block, carries: Sequence[Value], required: Sequence[Value], free: set[Value]
) -> tuple[Block, list[Undone], list[Value]]:
    """Return the body of the forward loop, the carried arrays whose writes the reverse undoes, and the values that are saved.
    ``again``: the forward part as the reverse executes it."""
    computed = without_effects(again, required)
    kept = choose(computed, required, free)
    arrays = [(v, forward.results[k]) for k, v in enumerate(carries) if v in kept]
    block, undone = undo_writes(forward, arrays, free)
    if not undone:
        return forward, [], kept
    kept = choose(computed, required, {*free, *(u.array for u in undone)})
    return block, undone, list(dict.fromkeys([*kept, *(v for u in undone for v in u.saved)]))


def _derivative_of_body(
    b: Builder,
    loop: LoopParts,
    starts: Mapping[int, Cotangent | None],
    rows: Cotangents,
    sliced: Sequence[int],
    has_predicates: bool,
) -> Derived:
    """Return the derivative of the body of a loop. ``starts``: the initial values of the carried cotangents, by parameter. A
    carried cotangent has a predicate if its initial value has one and every iteration yields one, and is steep if an
    iteration makes it so."""
    masked = {k for k, ct in starts.items() if has_predicates and (ct is None or ct.predicate is not None)}
    steep = {k for k, ct in starts.items() if ct is not None and ct.steep}
    row_kinds = {
        loop.carried + j: Kind(has_predicates and ct.predicate is not None, ct.steep)
        for j, ct in enumerate(rows)
        if ct is not None
    }
    wrt = [*(k for k in starts if k <= loop.carried), *(1 + loop.carried + j for j in sliced)]
    while True:
        kinds = {k: Kind(k in masked, k in steep) for k in starts}
        of = {k - 1: kind for k, kind in kinds.items() if k <= loop.carried} | row_kinds
        derived = derive(b, loop.body, of, wrt, {k: kind for k, kind in kinds.items() if k > loop.carried})
        cotangents = [*zip([*wrt, *(k for k in starts if k > loop.carried)], derived.cotangents, strict=True)]
        lost = {k for k, ct in cotangents if k in masked and ct is not None and ct.predicate is None}
        gained = {k for k, ct in cotangents if k in starts and k not in steep and ct is not None and ct.steep}
        if not lost and not gained:
            return derived
        masked -= lost
        steep |= gained


def _is_uniform(b: Builder, cts: Cotangents) -> bool:
    """Return whether each predicate is known to be the same for all elements of its cotangent."""
    history = History(b)
    predicates = [ct.predicate for ct in cts if ct is not None and ct.predicate is not None]
    return all(isinstance(p.type, ArrayType) and history.spread(p) == frozenset(range(p.type.rank)) for p in predicates)


def _known_carries(
    loop: LoopParts, derived: Derived, inits: Sequence[Value]
) -> dict[Value, tuple[list[tuple[Value, Value]], list[Instruction]]]:
    """Return the carried values that the reverse computes without residuals: by parameter, the captures that this needs, and
    the instructions."""
    block, carries = derived.forward, loop.parameters(derived.own)[0]
    _, _, captures = loop.parameters(derived.own)
    recomputable: dict[Value, tuple[list[tuple[Value, Value]], list[Instruction]]] = {
        carries[k]: ([(carries[k], inits[k])], []) for k in constant_carries(block, loop.carried)
    }
    if loop.reverse and not loop.length:
        return recomputable
    for k, (op, makers, step_value) in counters(block, loop.carried, captures).items():
        start, t = Value(carries[k].type, carries[k].name), carries[k].type

        def counted(b: Builder, op: Op = op, step_value: Value = step_value, start: Value = start) -> Value:
            env: dict[Value, Value] = {}
            for maker in makers:  # noqa: B023
                env[maker.result] = replay(b, maker, [env.get(v, v) for v in maker.operands])[0]
            iteration = derived.own[0]
            if loop.reverse:
                iteration = b.sub(b.sub(b.count(shape=loop.length), b.const(1, I64)), iteration)
            runs = b.spread(iteration if t.dtype is I64 else b.cast(iteration, dtype=t.dtype), t.shape)  # noqa: B023
            return b.emit(op, (start, b.mul(runs, env.get(step_value, step_value))))[0]

        recomputable[carries[k]] = [(start, inits[k])], _defined(carries[k], counted)
    return recomputable


def _defined(value: Value, emit: Callable[[Builder], Value]) -> list[Instruction]:
    """Return the instructions that ``emit`` appends; the last one is made to define ``value``."""
    b = Builder()
    emit(b)
    return [*b.instructions[:-1], replace(b.instructions[-1], results=(value,))]


def _keep(b: Builder, step: Step, loop: LoopParts, forward: Block, kept: Sequence[Value]) -> list[Value]:
    """Make the forward loop return the values ``kept`` of each iteration, and return their sequences."""
    results, outputs = list(forward.results), list(step.outputs)
    offset = len(outputs) - len(results)
    sequences = []
    for v in kept:
        position = next((k for k, r in enumerate(results) if r is v and k >= loop.carried), None)
        if position is None:
            position = len(results)
            results.append(v)
            outputs.append(Value(loop.sequence(v.type), v.name))
        sequences.append(outputs[position + offset])
    if len(results) > len(forward.results):
        old = step.instruction
        body = live(Block(forward.parameters, forward.instructions, tuple(results)))
        b.instructions[step.position] = replace(
            old, operands=step.inputs, results=tuple(outputs), regions=(*old.regions[:-1], body)
        )
    return sequences


STRUCTURED[Scan] = reverse_loop
STRUCTURED[While] = reverse_loop
