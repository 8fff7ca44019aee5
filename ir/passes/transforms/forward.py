"""Forward mode: emit the tangents of a region's results, interleaved with its instructions.

A linear op is applied to the tangents. An elementwise op uses the diagonal of its gradient rule, called with the tangent as
its cotangent. Where the tangent is zero because of a ``select``, its image is zero too, whatever the derivative; behind a root
(``strong_zero``), wherever it is zero. For every other op the gradient rule is transposed: rules are linear in the cotangents,
so differentiating the instructions that a rule emits by the cotangents, with the tangents as seeds, yields the tangents of the
results. Zero tangents are not values, as in reverse mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO, Into, Op, Zero
from pullback.ir.core.structure import Block, Instruction, Loc
from pullback.ir.core.value import Value
from pullback.ir.ops.control.custom import Custom, rule
from pullback.ir.ops.control.markers import CotangentTap
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.loop_view import zeros_like
from pullback.ir.passes.editing.replay import inline
from pullback.ir.passes.transforms.predicates import forward_predicate
from pullback.ir.passes.transforms.reverse import (
    GradientError,
    active_values,
    apply_rule,
    check_custom,
    check_derivative,
    run_forward,
    transposed,
)
from pullback.ir.passes.transforms.strong_zero import is_frail, is_steep, strong_product

Tangent = Value | Zero | GradientError
"""A tangent that does not exist is represented by its error, which is raised where the tangent is read."""

Structured = Callable[
    [Builder, Instruction, Sequence[Value], Sequence[Value | Zero], Sequence[bool]],
    tuple[Sequence[Value], Sequence[Tangent]],
]

STRUCTURED: dict[type[Op], Structured] = {}
"""Forward mode of the ops with differentiated regions: ``rule(builder, instruction, operands, tangents, wanted)`` emits the
instruction and returns its results and the tangents of the wanted ones."""


def emit_jvp(
    builder: Builder,
    region: Block,
    operands: Sequence[Value],
    wrt: Sequence[int],
    tangents: Sequence[int],
    of: Sequence[int],
    loc: Loc,
) -> list[Value]:
    """Emit a region on ``operands``, and the tangents of the results at ``of``; returns its results and these tangents."""
    operand_tangents: list[Tangent] = [ZERO] * len(operands)
    for k, t in zip(wrt, tangents, strict=True):
        operand_tangents[k] = operands[t]
    results, result_tangents = emit_with_tangents(builder, region, operands, operand_tangents, of)
    end = builder.at(Loc(loc.file, loc.line, "jvp"), "t")
    return results + [dense(end, t, region.results[k]) for k, t in zip(of, result_tangents, strict=True)]


def emit_with_tangents(
    builder: Builder, region: Block, operands: Sequence[Value], operand_tangents: Sequence[Tangent], of: Sequence[int]
) -> tuple[list[Value], list[Tangent]]:
    """Emit a region on ``operands`` with the tangents ``operand_tangents``; returns its results and the tangents of those at
    ``of``."""
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    moved: dict[Value, Tangent] = dict(zip(region.parameters, operand_tangents, strict=True))
    under: dict[Value, Value] = {}
    frail: set[Value] = set()
    active = active_values(region, [k for k, t in enumerate(operand_tangents) if not isinstance(t, Zero)], of)
    for instruction in region.instructions:
        inputs = tuple(env[v] for v in instruction.operands)
        wanted = [v in active for v in instruction.results]
        tangents = [moved.get(v, ZERO) if v in active else ZERO for v in instruction.operands]
        is_moved = any(wanted) and not all(isinstance(t, Zero) for t in tangents)
        step = builder.at(instruction.loc.noted(f"jvp({instruction.op.name})"), "t")
        structured = STRUCTURED.get(type(instruction.op))
        if is_moved and structured is not None:
            outputs, result_tangents = structured(step, instruction, inputs, [checked(t) for t in tangents], wanted)
        else:
            outputs, result_tangents = run_forward(builder, instruction, inputs, active), [ZERO] * len(wanted)
            if is_moved:
                try:
                    off = [under.get(v) for v in instruction.operands]
                    is_strong = frail.isdisjoint(instruction.operands)
                    result_tangents = _tangents(step, instruction, inputs, outputs, tangents, wanted, off, is_strong)
                    if is_frail(instruction) or not is_strong:
                        frail.update(instruction.results)
                    predicate = forward_predicate(step, instruction, inputs, [not isinstance(t, Zero) for t in tangents], off)
                    if predicate is not None:
                        under[instruction.results[0]] = predicate
                except GradientError as error:
                    result_tangents = [error if want else ZERO for want in wanted]
        env.update(zip(instruction.results, outputs, strict=True))
        moved.update(zip(instruction.results, result_tangents, strict=True))
    return [env[v] for v in region.results], [moved.get(region.results[k], ZERO) for k in of]


def checked(tangent: Tangent) -> Value | Zero:
    """Return a tangent; raise it if it is an error."""
    if isinstance(tangent, GradientError):
        raise tangent
    return tangent


def dense(b: Builder, tangent: Tangent, like: Value) -> Value:
    """Return a tangent as a value."""
    value = checked(tangent)
    return value if isinstance(value, Value) else zeros_like(b, like)


def _tangents(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    tangents: Sequence[Tangent],
    wanted: Sequence[bool],
    off: Sequence[Value | None],
    is_strong: bool,
) -> Sequence[Tangent]:
    """Emit the tangents of the results. ``off``: for each operand, a predicate that holds where its tangent is not zero, or
    None. ``is_strong``: whether a zero tangent cancels an infinite slope."""
    op = instruction.op
    if op.nondifferentiable:
        return [ZERO] * len(outputs)
    if isinstance(op, CotangentTap):
        return tangents
    if isinstance(op, Custom):
        return _by_custom_rule(b, instruction, inputs, outputs, tangents)
    kinds = {v.type.dtype for v in (*inputs, *outputs) if v.type.dtype.is_inexact}
    is_diagonal = isinstance(op, Elementwise) and len(kinds) == 1 and kinds.pop().is_float
    if op.linear and not (is_diagonal and sum(not isinstance(t, Zero) for t in tangents) == 1):
        operands = [dense(b, t, x) if x.type.dtype.is_inexact else x for x, t in zip(inputs, tangents, strict=True)]
        return b.emit(op, operands, dict(instruction.params))
    check_derivative(instruction, [not isinstance(t, Zero) for t in tangents])
    if is_diagonal:
        return [_diagonal(b, instruction, inputs, outputs, tangents, off, is_strong)]
    return _transposed(b, instruction, inputs, outputs, tangents, wanted)


def _diagonal(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    tangents: Sequence[Tangent],
    off: Sequence[Value | None],
    is_strong: bool,
) -> Tangent:
    """Emit the tangent of an elementwise op: the sum of the gradient rule's contributions, one per operand tangent."""
    rule = instruction.op.pullback
    assert rule is not None
    total: Value | Zero = ZERO
    for position, tangent in enumerate(tangents):
        if isinstance(tangent, Zero):
            continue
        wants = [k == position for k in range(len(inputs))]
        symbol = tangent if isinstance(tangent, Value) else outputs[0]
        part = rule(b, instruction.op, inputs, outputs, [symbol], instruction.params, wants)[position]
        if isinstance(part, Value):
            checked(tangent)
            if isinstance(tangent, Value) and is_strong and is_steep(instruction):
                part = strong_product(b, part, tangent, part)
            predicate = off[position]
            if predicate is not None and not instruction.op.finite:
                part = b.select(predicate, part, b.zeros_like(part))
            total = b.add(total, part) if isinstance(total, Value) else part
    return total


def _transposed(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    tangents: Sequence[Tangent],
    wanted: Sequence[bool],
) -> list[Tangent]:
    """Emit the transpose of the gradient rule. Rules may test whether a cotangent is zero: ones stand for the cotangents."""
    inner = Builder(b.loc, hint=b.hint)
    inner.is_linear = True
    parameters = [Value(v.type, v.name) for v in (*inputs, *outputs)]
    count = len(inputs)
    cts: list[Value | Zero] = [Value(v.type) if want else ZERO for v, want in zip(outputs, wanted, strict=True)]
    symbols = [ct for ct in cts if isinstance(ct, Value)]
    wants = [not isinstance(t, Zero) for t in tangents]
    parts = apply_rule(inner, instruction, parameters[:count], parameters[count:], cts, wants)
    results: list[Value] = []
    seeds: list[Value] = []
    for part, tangent in zip(parts, tangents, strict=True):
        if isinstance(part, Zero):
            continue
        seed = checked(tangent)
        if isinstance(seed, Value):
            results.append(part.dense() if isinstance(part, Into) else part)
            seeds.append(seed)
    region = inner.block([*parameters, *symbols], results)
    first = len(parameters)
    wrt = range(first, first + len(symbols))
    ones = [b.full(1, v.type) for v in symbols]
    remaining = iter(transposed(b, region, [*inputs, *outputs, *ones], wrt, range(len(results)), seeds))
    return [next(remaining) if want else ZERO for want in wanted]


def _by_custom_rule(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], outputs: Sequence[Value], operand_tangents: Sequence[Tangent]
) -> list[Tangent]:
    """Emit the tangents of a ``custom`` instruction by its rule for tangents, or the transpose of its rule for cotangents."""
    params = instruction.params
    check_custom(instruction, [not isinstance(t, Zero) for t in operand_tangents])
    vjp, jvp = (rule(params, instruction.regions, kind) for kind in ("vjp", "jvp"))
    by = params["vjp" if jvp is None else "jvp"]
    tangents = [dense(b, operand_tangents[k], inputs[k]) for k in by]
    own = [k for k, v in enumerate(outputs[: params["outputs"]]) if v.type.dtype.is_inexact]
    if jvp is not None:
        parts: Sequence[Value] = inline(b, jvp, (*outputs, *tangents, *inputs))
    else:
        assert vjp is not None
        first = len(outputs)
        operands = (*outputs, *(b.full(1, outputs[k].type) for k in own), *inputs)
        parts = transposed(b, vjp, operands, range(first, first + len(own)), range(len(by)), tangents)
    by_result = dict(zip(own, parts, strict=True))
    return [by_result.get(k, ZERO) for k in range(len(outputs))]
