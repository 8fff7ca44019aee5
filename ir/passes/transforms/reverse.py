"""Reverse mode: the gradients of a region's results, emitted after its instructions.

Reverse accumulation over the region's instructions, walked iteratively. The forward part is pruned both ways: only values
that depend on a wanted operand and that a differentiated result depends on get a cotangent. A cotangent is ``ZERO``, a value, or
a value under a predicate. Predicates are born at ``select``: the cotangent of a branch is zero, and stays so, wherever that
branch was not taken, whatever the derivatives there are (NaN and infinities included). They travel through all ops
(``predicates``); each contribution of an op that is not linear is wrapped in a select. Behind the infinite slope of a root an
exact zero is stronger than infinity (``strong``).

Contributions to one value are summed in a fixed order: by decreasing position of the reading instruction, operands left to
right; values first, then those that are added into a part. A loop or branch that reads a value adds its contribution to the sum
of those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO, Contribution, Into, NoDerivative, Op, Zero
from pullback.ir.core.structure import Block, Instruction, Loc
from pullback.ir.core.value import Value
from pullback.ir.ops.control.custom import Custom, positions, rule
from pullback.ir.ops.elementwise.elementwise import Elementwise, select
from pullback.ir.passes.editing.activity import dependents, requisites
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_view import add, either
from pullback.ir.passes.editing.replay import inline, replay
from pullback.ir.passes.transforms.checkpoint_loops import in_chunks
from pullback.ir.passes.transforms.predicates import History, carried, shielded
from pullback.ir.passes.transforms.strong_zero import StrongBuilder, is_frail, is_steep


class GradientError(Exception):
    """A gradient that cannot be had: ``loc`` is the user's line, the message says which op and operand."""

    def __init__(self, message: str, loc: Loc) -> None:
        super().__init__(message)
        self.loc = loc


@dataclass(frozen=True, eq=False, slots=True)
class Cotangent:
    """``value``, zero off ``predicate``: a bool for each element. ``steep``: it may be of an infinite slope (``strong``)."""

    value: Value
    predicate: Value | None = None
    steep: bool = False


Part = tuple[Contribution, Value | None]


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """An instruction and where its forward part is: at ``position`` of the builder's instructions, with these operands and
    results."""

    instruction: Instruction
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    position: int


Sum = Callable[[int], Cotangent | None]
Structured = Callable[[Builder, Step, Sequence[Cotangent | None], Sequence[bool], Sum], Sequence[Part]]

STRUCTURED: dict[type[Op], Structured] = {}
"""Reverse mode of the ops whose regions are differentiated: ``rule(builder, step, cotangents, wants, sum)`` gives a contribution
for each operand. ``sum(k)`` takes the contributions to operand k that there are, for the rule to add its own to; it may put
another instruction in the place of its forward part."""


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

    ``seeds``: the cotangents of those results; 1 if there are none. They are zero off their ``predicates``, where they have one.
    """
    start = builder.at(Loc(loc.file, loc.line, "pullback"), "d")
    if seeds is None:
        given: list[Cotangent | None] = [None] * len(of)
    else:
        given = [Cotangent(seed, predicates[k] if predicates else None) for k, seed in enumerate(seeds)]
    results, found = pull(builder, region, operands, wrt, loc, of, given)
    gradients = [start.zeros_like(region.parameters[k]) if ct is None else ct.value for k, ct in zip(wrt, found, strict=True)]
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
    """Emit a region on ``operands`` and the cotangents of those at ``wrt``, None for zero, of the results at ``of`` with the
    cotangents ``seeds``, None for 1; returns the region's results and those. ``sums``: what the cotangents of these operands are
    added to. ``exposed``: operands that may be infinite or NaN."""
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    forward: list[Step] = []
    builder = StrongBuilder.over(builder)
    active = active_values(region, wrt, of)
    chunked = in_chunks(region, active)
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
            contributions = structured(step, done, cts, wants, _taken(step, parts, instruction))
        else:
            contributions = _contributions(step, instruction, done.inputs, done.outputs, cts, wants, history)
        for value, part in zip(instruction.operands, contributions, strict=True):
            if value in active and not isinstance(part[0], Zero):
                parts.setdefault(value, []).append(part)
    end = builder.at(Loc(loc.file, loc.line, "pullback"), "d")
    found = [_sum(end, parts.get(region.parameters[k], []), region.parameters[k]) for k in wrt]
    return [env[v] for v in region.results], [with_steepness(builder, ct) for ct in found]


def with_steepness(b: Builder, ct: Cotangent | None) -> Cotangent | None:
    """The cotangent, which says whether it is steep as far as a builder knows."""
    is_steep = ct is not None and isinstance(b, StrongBuilder) and ct.value in b.steep
    return replace(ct, steep=True) if ct is not None and is_steep else ct


def _taken(b: Builder, parts: dict[Value, list[Part]], instruction: Instruction) -> Sum:
    """What is known so far of the cotangent of an operand, which is no longer known then."""
    return lambda k: with_steepness(b, _sum(b, parts.pop(instruction.operands[k], []), instruction.operands[k]))


def run_forward(builder: Builder, instruction: Instruction, inputs: Sequence[Value], active: set[Value]) -> tuple[Value, ...]:
    """The forward part of an instruction: a copy of it, or the function inside one with rules of its own."""
    if isinstance(instruction.op, Custom) and not active.isdisjoint(instruction.results):
        return inline(builder, instruction.regions[0], inputs)
    return replay(builder, instruction, inputs)


def active_values(region: Block, wrt: Sequence[int], of: Sequence[int]) -> set[Value]:
    """The inexact values that depend on a wanted parameter and that a result at ``of`` depends on."""
    reached = dependents(region, [region.parameters[k] for k in wrt], smooth=True)
    return reached & requisites(region, [region.results[k] for k in of])


def _sum(b: Builder, parts: Sequence[Part], value: Value) -> Cotangent | None:
    """The cotangent of a value from its contributions; None for zero."""
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
        predicate = condition if predicate is None else either(b, predicate, condition)
    return Cotangent(total, predicate)


def check_derivative(instruction: Instruction, wants: Sequence[bool]) -> None:
    """Raises GradientError if there is no derivative by a wanted operand."""
    op = instruction.op
    if op.pullback is None:
        place = next(k for k, want in enumerate(wants) if want)
        raise GradientError(f"there is no gradient rule for operand {place} of {op.name}", instruction.loc)
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
    """What the gradient rule of an op gives. Raises GradientError where it has no derivative."""
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
    op = instruction.op
    if op.nondifferentiable:
        return [(ZERO, None)] * len(inputs)
    if isinstance(op, Custom):
        return _by_custom_rule(b, instruction, inputs, outputs, cts, wants)
    check_derivative(instruction, wants)
    predicates = [ct.predicate for ct in cts if ct is not None and ct.predicate is not None]
    if len(predicates) < sum(ct is not None for ct in cts):
        predicates = []
    given = shielded(b, history, instruction, inputs, predicates[0], wants) if predicates else inputs
    own = b.plain() if is_frail(instruction) else b
    found = apply_rule(own, instruction, given, outputs, [ZERO if ct is None else ct.value for ct in cts], wants)
    _check_types(op.name, inputs, found)
    if is_steep(instruction) or any(ct is not None and ct.steep for ct in cts):
        b.mark(found)
    if op is select:
        return _branches(b, inputs[0], found, predicates[0] if predicates else None)
    if not predicates:
        return [(part, None) for part in found]
    known = carried(b, history, instruction, inputs, outputs, predicates, wants)
    if op.linear:
        return list(zip(found, known, strict=True))
    return [(_masked(b, predicate, part), predicate) for part, predicate in zip(found, known, strict=True)]


def check_custom(instruction: Instruction, wants: Sequence[bool]) -> None:
    """Raises GradientError if the rules of a ``custom`` instruction do not differentiate by a wanted operand."""
    known = positions(instruction.params)
    for position, want in enumerate(wants):
        if want and position not in known:
            what = "no rule for its derivative" if not known else f"no derivative by its operand {position}"
            raise GradientError(f"{instruction.params['name']} has {what}", instruction.loc)


def _by_custom_rule(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    cts: Sequence[Cotangent | None],
    wants: Sequence[bool],
) -> list[Part]:
    """What the rule of a ``custom`` instruction gives: that for cotangents, or the transpose of that for tangents."""
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
        given = (*outputs, *tangents, *inputs)
        parts = [(part, None) for part in transposed(b, jvp, given, wrt, of, seeds, predicates)]
    found = dict(zip(by, parts, strict=True))
    return [found.get(k, (ZERO, None)) if want else (ZERO, None) for k, want in enumerate(wants)]


def _inline_under(
    b: Builder, region: Block, operands: Sequence[Value], predicates: Sequence[Value | None]
) -> list[tuple[Value, Value | None]]:
    """As ``inline``, where operands are zero off their predicates: elementwise products of zero stay zero, whatever the other
    factor is. The results with the predicates that are known of them."""
    env = dict(zip(region.parameters, operands, strict=True))
    under = {p: c for p, c in zip(region.parameters, predicates, strict=True) if c is not None}
    for instruction in region.instructions:
        made = replay(b, instruction, [env[v] for v in instruction.operands])
        env.update(zip(instruction.results, made, strict=True))
        predicate = _zero_off(b, instruction, under)
        if predicate is not None:
            under[instruction.result] = predicate
            if not instruction.op.linear:
                env[instruction.result] = b.select(predicate, made[0], b.zeros_like(made[0]))
    return [(env[v], under.get(v)) for v in region.results]


def _zero_off(b: Builder, instruction: Instruction, under: Mapping[Value, Value]) -> Value | None:
    """Where the result of an elementwise instruction is zero because of its operands, which are zero off ``under``; None if
    nowhere."""
    op, operands = instruction.op, instruction.operands
    if not isinstance(op, Elementwise):
        return None
    known = [under.get(v) for v in operands]
    if op.name == "mul":
        return next((c for c in known if c is not None), None)
    if op.name == "div":
        return known[0]
    chosen = known[1:] if op is select else known
    if not op.linear or any(c is None for c in chosen):
        return None
    first, *rest = chosen
    for other in rest:
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
    """The transpose of a region that is linear in the operands at ``wrt``: what the cotangents ``seeds`` of its results at
    ``of``, zero off their ``predicates``, give for those."""
    made = Builder(b.loc, hint=b.hint)
    found = differentiate(made, region, operands, wrt, b.loc, of, seeds, predicates)[len(region.results) :]
    for emitted in live(made.block((), found)).instructions:
        b.append(replace(emitted, loc=b.loc))
    return found


def _check_types(name: str, inputs: Sequence[Value], found: Sequence[Contribution]) -> None:
    if len(found) != len(inputs):
        raise TypeError(f"the rule of {name} gave {len(found)} contributions for {len(inputs)} operands")
    for position, (value, part) in enumerate(zip(inputs, found, strict=True)):
        if isinstance(part, Value) and part.type != value.type:
            raise TypeError(f"the rule of {name} gave {part.type} for operand {position} of type {value.type}")


def _masked(b: Builder, predicate: Value | None, part: Contribution) -> Contribution:
    if predicate is None or not isinstance(part, Value):
        return part
    found: Value = b.select(predicate, part, b.zeros_like(part))
    return found


def _branches(b: Builder, condition: Value, found: Sequence[Contribution], predicate: Value | None) -> list[Part]:
    """The contributions of a select, under the predicates that are born here."""
    parts: list[Part] = [(ZERO, None)]
    for position, part in enumerate(found[1:]):
        if isinstance(part, Zero):
            parts.append((ZERO, None))
            continue
        taken = condition if position == 0 else b.bitnot(condition)
        parts.append((part, taken if predicate is None else b.bitand(taken, predicate)))
    return parts
