"""Reverse mode: emit the gradients of a region's results after its instructions.

Reverse accumulation over the instructions of the region. Only values that depend on a wanted operand, and on which a
differentiated result depends, get a cotangent. A cotangent is ``ZERO``, a value, or a value with a predicate. Predicates
originate at ``select``: the cotangent of a branch is zero wherever that branch is not taken, whatever the derivatives there
(NaN and infinities included). They propagate through all ops (``predicates``); each contribution of an op that is not linear
is wrapped in a select. Behind the infinite slope of a root an exact zero cancels infinity (``strong_zero``).

Contributions to one value are summed in a fixed order: by decreasing position of the reading instruction, operands left to
right; values first, then contributions that are added into a part. A loop or branch that reads a value adds its contribution
to the sum of the contributions of later instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO, Contribution, Into, NoDerivative, Op, Zero
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, Loc
from pullback.ir.core.value import Value
from pullback.ir.ops.control.custom import Custom, positions, rule
from pullback.ir.ops.elementwise.elementwise import Elementwise, select
from pullback.ir.passes.editing.activity import dependents, requisites
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_view import add, logical_or
from pullback.ir.passes.editing.replay import inline, replay
from pullback.ir.passes.transforms.checkpoint_loops import chunk_loops
from pullback.ir.passes.transforms.predicates import History, masked_operands, propagated
from pullback.ir.passes.transforms.strong_zero import StrongBuilder, is_frail, is_steep


class GradientError(Exception):
    """A gradient that does not exist: ``loc`` is the user's line, the message names the op and operand."""

    def __init__(self, message: str, loc: Loc) -> None:
        super().__init__(message)
        self.loc = loc


@dataclass(frozen=True, eq=False, slots=True)
class Cotangent:
    """``value``, which is zero where ``predicate`` is false. ``steep``: it may derive from an infinite slope
    (``strong_zero``)."""

    value: Value
    predicate: Value | None = None
    steep: bool = False


Part = tuple[Contribution, Value | None]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """An instruction and its forward part: the position among the builder's instructions, the operands and the results."""

    instruction: Instruction
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    position: int


Sum = Callable[[int], Cotangent | None]
Structured = Callable[[Builder, Step, Sequence[Cotangent | None], Sequence[bool], Sum], Sequence[Part]]

STRUCTURED: dict[type[Op], Structured] = {}
"""Reverse mode of the ops with differentiated regions: ``rule(builder, step, cotangents, wants, sum)`` returns a contribution
for each operand. ``sum(k)`` removes and returns the sum of contributions to operand k so far, for the rule to add its own
to. The rule may replace its forward part."""


def differentiate(
    builder: Builder,
    region: Block,
    operands: Sequence[Value],
    wrt: Sequence[int],
    loc: Loc,
    of: Sequence[int] = (0,),
    seeds: Sequence[Value] | None = None,
    predicates: Sequence[Value | None] = (),
) -> list[Value]:
    """Emit a region on ``operands`` and the gradients of its results at ``of``; returns its results and the gradients.

    ``seeds``: the cotangents of those results, 1 by default. A seed with a predicate is zero where the predicate is false.
    """
    start = builder.at(Loc(loc.file, loc.line, "pullback"), "d")
    if seeds is None:
        cotangents: list[Cotangent | None] = [None] * len(of)
    else:
        cotangents = [Cotangent(seed, predicates[k] if predicates else None) for k, seed in enumerate(seeds)]
    results, cts = pull(builder, region, operands, wrt, loc, of, cotangents)
    gradients = [start.zeros_like(region.parameters[k]) if ct is None else ct.value for k, ct in zip(wrt, cts, strict=True)]
    return results + gradients


def pull(
    builder: Builder,
    region: Block,
    operands: Sequence[Value],
    wrt: Sequence[int],
    loc: Loc,
    of: Sequence[int],
    seeds: Sequence[Cotangent | None],
    sums: Mapping[int, Cotangent] | None = None,
    exposed: Sequence[Value] = (),
) -> tuple[list[Value], list[Cotangent | None]]:
    """Emit a region on ``operands``, and the cotangents of the operands at ``wrt`` for the results at ``of``. ``seeds``: the
    cotangents of these results, None for 1. Returns the region's results and the cotangents, None for zero. ``sums``: by
    operand, the cotangent to add to. ``exposed``: operands that may be infinite or NaN."""
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    forward: list[Step] = []
    builder = StrongBuilder.over(builder)
    active = active_values(region, wrt, of)
    chunked = chunk_loops(region, active)
    if chunked is not region:
        region, active = chunked, active_values(chunked, wrt, of)
    for instruction in region.instructions:
        inputs = tuple(env[v] for v in instruction.operands)
        position = len(builder.instructions)
        outputs = run_forward(builder, instruction, inputs, active)
        env.update(zip(instruction.results, outputs, strict=True))
        forward.append(Step(instruction, inputs, outputs, position))
    history = History(builder, exposed)
    parts: dict[Value, list[Part]] = {}
    builder.mark(ct.value for ct in (*seeds, *(sums or {}).values()) if ct is not None and ct.steep)
    for position, ct in (sums or {}).items():
        parts[region.parameters[position]] = [(ct.value, ct.predicate)]
    for seed, result in zip(seeds, (region.results[k] for k in of), strict=True):
        if result in active:
            start = builder.at(Loc(loc.file, loc.line, "pullback"), "d")
            ct = Cotangent(start.const(1.0, result.type.dtype)) if seed is None else seed
            parts.setdefault(result, []).append((ct.value, ct.predicate))
    for done in reversed(forward):
        instruction = done.instruction
        step = builder.at(instruction.loc.pullback_of(instruction.op), "d")
        cts = [with_steepness(step, _sum(step, parts.pop(v, []), v)) for v in instruction.results]
        if all(ct is None for ct in cts):
            continue
        wants = [v in active for v in instruction.operands]
        structured = STRUCTURED.get(type(instruction.op))
        if structured is not None:
            contributions = structured(step, done, cts, wants, _take_sum(step, parts, instruction))
        else:
            contributions = _contributions(step, instruction, done.inputs, done.outputs, cts, wants, history)
        for value, part in zip(instruction.operands, contributions, strict=True):
            if value in active and not isinstance(part[0], Zero):
                parts.setdefault(value, []).append(part)
    end = builder.at(Loc(loc.file, loc.line, "pullback"), "d")
    operand_cotangents = [_sum(end, parts.get(region.parameters[k], []), region.parameters[k]) for k in wrt]
    return [env[v] for v in region.results], [with_steepness(builder, ct) for ct in operand_cotangents]


def with_steepness(b: Builder, ct: Cotangent | None) -> Cotangent | None:
    """Return the cotangent, marked as steep if the builder has it marked so."""
    is_steep = ct is not None and isinstance(b, StrongBuilder) and ct.value in b.steep
    return replace(ct, steep=True) if ct is not None and is_steep else ct


def _take_sum(b: Builder, parts: dict[Value, list[Part]], instruction: Instruction) -> Sum:
    """Return a function that removes and returns the sum of contributions to an operand so far."""
    return lambda k: with_steepness(b, _sum(b, parts.pop(instruction.operands[k], []), instruction.operands[k]))


def run_forward(builder: Builder, instruction: Instruction, inputs: Sequence[Value], active: set[Value]) -> tuple[Value, ...]:
    """Emit the forward part of an instruction: a copy of it, or the function of a ``custom`` instruction, inlined."""
    if isinstance(instruction.op, Custom) and not active.isdisjoint(instruction.results):
        return inline(builder, instruction.regions[0], inputs)
    return replay(builder, instruction, inputs)


def active_values(region: Block, wrt: Sequence[int], of: Sequence[int]) -> set[Value]:
    """Return the inexact values that depend on a wanted parameter and on which a result at ``of`` depends."""
    reached = dependents(region, [region.parameters[k] for k in wrt], smooth=True)
    return reached & requisites(region, [region.results[k] for k in of])


def _sum(b: Builder, parts: Sequence[Part], value: Value) -> Cotangent | None:
    """Emit the sum of a value's contributions; None for zero."""
    if not parts:
        return None
    total: Value | None = None
    for contribution, _ in parts:
        if isinstance(contribution, Value):
            total = contribution if total is None else add(b, total, contribution)
    for contribution, _ in parts:
        if isinstance(contribution, Into):
            total = contribution.dense() if total is None else contribution.add(total)
    assert total is not None
    if total.type != value.type:
        raise TypeError(f"a contribution has type {total.type}, the value has type {value.type}")
    predicate: Value | None = None
    for _, condition in parts:
        if condition is None:
            return Cotangent(total)
        predicate = condition if predicate is None else logical_or(b, predicate, condition)
    return Cotangent(total, predicate)


def check_derivative(instruction: Instruction, wants: Sequence[bool]) -> None:
    """Raise GradientError if there is no derivative with respect to a wanted operand."""
    op = instruction.op
    if op.pullback is None:
        position_wanted = next(k for k, want in enumerate(wants) if want)
        raise GradientError(f"there is no gradient rule for operand {position_wanted} of {op.name}", instruction.loc)
    for position, why in op.missing.items():
        if wants[position]:
            raise GradientError(f"there is no derivative of {op.name} by its operand {position}: {why}", instruction.loc)


def apply_rule(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    cts: Sequence[Value | Zero],
    wants: Sequence[bool],
) -> list[Contribution]:
    """Return the contributions of an op's gradient rule. Raises GradientError where it has no derivative."""
    op = instruction.op
    assert op.pullback is not None
    try:
        return list(op.pullback(b, op, inputs, outputs, cts, instruction.params, wants))
    except NoDerivative as error:
        raise GradientError(str(error), instruction.loc) from None


def _contributions(
    b: StrongBuilder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    cts: Sequence[Cotangent | None],
    wants: Sequence[bool],
    history: History,
) -> list[Part]:
    """Emit the contributions of an instruction to its operands, with their predicates."""
    op = instruction.op
    if op.nondifferentiable:
        return [(ZERO, None)] * len(inputs)
    if isinstance(op, Custom):
        return _by_custom_rule(b, instruction, inputs, outputs, cts, wants)
    check_derivative(instruction, wants)
    predicates = [ct.predicate for ct in cts if ct is not None and ct.predicate is not None]
    if len(predicates) < sum(ct is not None for ct in cts):
        predicates = []
    operands = masked_operands(b, history, instruction, inputs, predicates[0], wants) if predicates else inputs
    own = b.plain() if is_frail(instruction) else b
    parts = apply_rule(own, instruction, operands, outputs, [ZERO if ct is None else ct.value for ct in cts], wants)
    _check_types(op.name, inputs, parts)
    if is_steep(instruction) or any(ct is not None and ct.steep for ct in cts):
        b.mark(parts)
    if op is select:
        return _branches(b, inputs[0], parts, predicates[0] if predicates else None)
    if not predicates:
        return [(part, None) for part in parts]
    operand_predicates = propagated(b, history, instruction, inputs, outputs, predicates, wants)
    if op.linear:
        return list(zip(parts, operand_predicates, strict=True))
    return [(_masked(b, predicate, part), predicate) for part, predicate in zip(parts, operand_predicates, strict=True)]


def check_custom(instruction: Instruction, wants: Sequence[bool]) -> None:
    """Raise GradientError if the rules of a ``custom`` instruction do not cover a wanted operand."""
    covered = positions(instruction.params)
    for position, want in enumerate(wants):
        if want and position not in covered:
            problem = "no rule for its derivative" if not covered else f"no derivative by its operand {position}"
            raise GradientError(f"{instruction.params['name']} has {problem}", instruction.loc)


def _by_custom_rule(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    cts: Sequence[Cotangent | None],
    wants: Sequence[bool],
) -> list[Part]:
    """Emit the contributions of a ``custom`` instruction: by its rule for cotangents, or the transpose of its rule for
    tangents."""
    params = instruction.params
    check_custom(instruction, wants)
    own = list(zip(outputs, cts, strict=True))[: params["outputs"]]
    floats = [(v, ct) for v, ct in own if v.type.dtype.is_inexact]
    seeds = [b.zeros_like(v) if ct is None else ct.value for v, ct in floats]
    predicates = [None if ct is None else ct.predicate for _, ct in floats]
    vjp, jvp = (rule(params, instruction.regions, kind) for kind in ("vjp", "jvp"))
    if vjp is not None:
        unknown = [None] * len(outputs), [None] * len(inputs)
        by, parts = params["vjp"], _inline_under(b, vjp, (*outputs, *seeds, *inputs), [*unknown[0], *predicates, *unknown[1]])
    else:
        assert jvp is not None
        by, first = params["jvp"], len(outputs)
        tangents = [b.zeros_like(inputs[k]) for k in by]
        wrt, of = range(first, first + len(by)), range(len(seeds))
        operands = (*outputs, *tangents, *inputs)
        parts = [(part, None) for part in transposed(b, jvp, operands, wrt, of, seeds, predicates)]
    by_operand = dict(zip(by, parts, strict=True))
    return [by_operand.get(k, (ZERO, None)) if want else (ZERO, None) for k, want in enumerate(wants)]


def _inline_under(
    b: Builder, region: Block, operands: Sequence[Value], predicates: Sequence[Value | None]
) -> list[tuple[Value, Value | None]]:
    """Inline a region whose operands are zero where their predicates are false: elementwise products with such a zero stay
    zero, whatever the other factor. Returns the results with their predicates, where known."""
    env = dict(zip(region.parameters, operands, strict=True))
    under = {p: c for p, c in zip(region.parameters, predicates, strict=True) if c is not None}
    for instruction in region.instructions:
        copies = replay(b, instruction, [env[v] for v in instruction.operands])
        env.update(zip(instruction.results, copies, strict=True))
        predicate = _zero_off(b, instruction, under)
        if predicate is not None:
            under[instruction.result] = predicate
            if not instruction.op.linear:
                env[instruction.result] = b.select(predicate, copies[0], b.zeros_like(copies[0]))
    return [(env[v], under.get(v)) for v in region.results]


def _zero_off(b: Builder, instruction: Instruction, under: Mapping[Value, Value]) -> Value | None:
    """Return a predicate for the result of an elementwise instruction, from the predicates ``under`` of its operands: where it
    is false the result is zero. None if there is none."""
    op, operands = instruction.op, instruction.operands
    if not isinstance(op, Elementwise):
        return None
    predicates = [under.get(v) for v in operands]
    if op.name == "mul":
        return next((c for c in predicates if c is not None), None)
    if op.name == "div":
        return predicates[0]
    chosen = predicates[1:] if op is select else predicates
    if not op.linear or any(c is None for c in chosen):
        return None
    first, *others = chosen
    for other in others:
        first = first if other is first else b.bitor(first, other)
    return first


def transposed(
    b: Builder,
    region: Block,
    operands: Sequence[Value],
    wrt: Sequence[int],
    of: Sequence[int],
    seeds: Sequence[Value],
    predicates: Sequence[Value | None] = (),
) -> list[Value]:
    """Emit the transpose of a region that is linear in the operands at ``wrt``: the cotangents of these operands, for the
    cotangents ``seeds`` of its results at ``of``, which are zero where their ``predicates`` are false."""
    builder = Builder(b.loc, hint=b.hint)
    cotangents = differentiate(builder, region, operands, wrt, b.loc, of, seeds, predicates)[len(region.results) :]
    for emitted in live(builder.block((), cotangents)).instructions:
        b.append(replace(emitted, loc=b.loc))
    return cotangents


def _check_types(name: str, inputs: Sequence[Value], parts: Sequence[Contribution]) -> None:
    if len(parts) != len(inputs):
        raise TypeError(f"the rule of {name} gave {len(parts)} contributions for {len(inputs)} operands")
    for position, (value, part) in enumerate(zip(inputs, parts, strict=True)):
        if isinstance(part, Value) and part.type != value.type:
            raise TypeError(f"the rule of {name} gave {part.type} for operand {position} of type {value.type}")


def _masked(b: Builder, predicate: Value | None, part: Contribution) -> Contribution:
    if predicate is None or not isinstance(part, Value):
        return part
    selected: Value = b.select(predicate, part, b.zeros_like(part))
    return selected


def _branches(b: Builder, condition: Value, contributions: Sequence[Contribution], predicate: Value | None) -> list[Part]:
    """Return the contributions of a select, with the predicates that originate here."""
    parts: list[Part] = [(ZERO, None)]
    for position, part in enumerate(contributions[1:]):
        if isinstance(part, Zero):
            parts.append((ZERO, None))
            continue
        taken = condition if position == 0 else b.bitnot(condition)
        parts.append((part, taken if predicate is None else b.bitand(taken, predicate)))
    return parts
