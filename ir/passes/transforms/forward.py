"""Forward mode: the tangents of a region's results, emitted beside its instructions.

A linear op is itself on the tangents. An elementwise op is the diagonal of its gradient rule: the tangent in the cotangent's
place; where that is zero because of a ``select``, so is what becomes of it, whatever the derivative is, and behind a root
(``strong``) where it is zero at all. Every other op has its
gradient rule transposed: rules are linear in the cotangents, so what a rule emits, differentiated by the cotangents with the
tangents as seeds, are the tangents of the results. Zero tangents are no values, as in reverse mode.
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
from pullback.ir.passes.transforms.predicates import pushed
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
"""A tangent that cannot be had is the error that says why; it is raised where the tangent is read."""

Structured = Callable[
    [Builder, Instruction, Sequence[Value], Sequence[Value | Zero], Sequence[bool]],
    tuple[Sequence[Value], Sequence[Tangent]],
]

STRUCTURED: dict[type[Op], Structured] = {}
"""Forward mode of the ops whose regions are differentiated: ``rule(builder, instruction, operands, tangents, wanted)`` emits the
instruction; its results and the tangents of those that are wanted."""


def push(
    builder: Builder,
    region: Block,
    operands: Sequence[Value],
    wrt: Sequence[int],
    tangents: Sequence[int],
    of: Sequence[int],
    loc: Loc,
) -> list[Value]:
    """Emit a region on ``operands`` and the tangents of the results at ``of``; returns its results and those."""
    given: list[Tangent] = [ZERO] * len(operands)
    for k, t in zip(wrt, tangents, strict=True):
        given[k] = operands[t]
    results, found = advance(builder, region, operands, given, of)
    end = builder.at(Loc(loc.file, loc.line, "jvp"), "t")
    return results + [dense(end, t, region.results[k]) for k, t in zip(of, found, strict=True)]


def advance(
    builder: Builder, region: Block, operands: Sequence[Value], given: Sequence[Tangent], of: Sequence[int]
) -> tuple[list[Value], list[Tangent]]:
    """Emit a region on ``operands``, which have the tangents ``given``; its results and the tangents of those at ``of``."""
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    moved: dict[Value, Tangent] = dict(zip(region.parameters, given, strict=True))
    under: dict[Value, Value] = {}
    frail: set[Value] = set()
    active = active_values(region, [k for k, t in enumerate(given) if not isinstance(t, Zero)], of)
    for instruction in region.instructions:
        inputs = tuple(env[v] for v in instruction.operands)
        wanted = [v in active for v in instruction.results]
        tangents = [moved.get(v, ZERO) if v in active else ZERO for v in instruction.operands]
        is_moved = any(wanted) and not all(isinstance(t, Zero) for t in tangents)
        step = builder.at(instruction.loc.noted(f"jvp({instruction.op.name})"), "t")
        structured = STRUCTURED.get(type(instruction.op))
        if is_moved and structured is not None:
            outputs, found = structured(step, instruction, inputs, [known(t) for t in tangents], wanted)
        else:
            outputs, found = run_forward(builder, instruction, inputs, active), [ZERO] * len(wanted)
            if is_moved:
                try:
                    off = [under.get(v) for v in instruction.operands]
                    is_strong = frail.isdisjoint(instruction.operands)
                    found = _tangents(step, instruction, inputs, outputs, tangents, wanted, off, is_strong)
                    if is_frail(instruction) or not is_strong:
                        frail.update(instruction.results)
                    predicate = pushed(step, instruction, inputs, [not isinstance(t, Zero) for t in tangents], off)
                    if predicate is not None:
                        under[instruction.results[0]] = predicate
                except GradientError as error:
                    found = [error if want else ZERO for want in wanted]
        env.update(zip(instruction.results, outputs, strict=True))
        moved.update(zip(instruction.results, found, strict=True))
    return [env[v] for v in region.results], [moved.get(region.results[k], ZERO) for k in of]


def known(tangent: Tangent) -> Value | Zero:
    if isinstance(tangent, GradientError):
        raise tangent
    return tangent


def dense(b: Builder, tangent: Tangent, like: Value) -> Value:
    """A tangent as a value."""
    found = known(tangent)
    return found if isinstance(found, Value) else zeros_like(b, like)


def _tangents(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    given: Sequence[Tangent],
    wanted: Sequence[bool],
    off: Sequence[Value | None],
    is_strong: bool,
) -> Sequence[Tangent]:
    """``off``: predicates where the tangents ``given`` are not zero, of those of which one is known. ``is_strong``: whether a
    zero among them prevails over an infinite slope."""
    op = instruction.op
    if op.nondifferentiable:
        return [ZERO] * len(outputs)
    if isinstance(op, CotangentTap):
        return given
    if isinstance(op, Custom):
        return _by_custom_rule(b, instruction, inputs, outputs, given)
    kinds = {v.type.dtype for v in (*inputs, *outputs) if v.type.dtype.is_inexact}
    is_diagonal = isinstance(op, Elementwise) and len(kinds) == 1 and kinds.pop().is_float
    if op.linear and not (is_diagonal and sum(not isinstance(t, Zero) for t in given) == 1):
        operands = [dense(b, t, x) if x.type.dtype.is_inexact else x for x, t in zip(inputs, given, strict=True)]
        return b.emit(op, operands, dict(instruction.params))
    check_derivative(instruction, [not isinstance(t, Zero) for t in given])
    if is_diagonal:
        return [_diagonal(b, instruction, inputs, outputs, given, off, is_strong)]
    return _transposed(b, instruction, inputs, outputs, given, wanted)


def _diagonal(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    given: Sequence[Tangent],
    off: Sequence[Value | None],
    is_strong: bool,
) -> Tangent:
    """The sum over the operands of each contribution to it, of its tangent."""
    rule = instruction.op.pullback
    assert rule is not None
    total: Value | Zero = ZERO
    for position, tangent in enumerate(given):
        if isinstance(tangent, Zero):
            continue
        wants = [k == position for k in range(len(inputs))]
        symbol = tangent if isinstance(tangent, Value) else outputs[0]
        part = rule(b, instruction.op, inputs, outputs, [symbol], instruction.params, wants)[position]
        if isinstance(part, Value):
            known(tangent)
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
    given: Sequence[Tangent],
    wanted: Sequence[bool],
) -> list[Tangent]:
    """The transpose of the gradient rule. Rules may ask whether a cotangent is zero: ones stand for the cotangents."""
    inner = Builder(b.loc, hint=b.hint)
    inner.is_linear = True
    parameters = [Value(v.type, v.name) for v in (*inputs, *outputs)]
    count = len(inputs)
    cts: list[Value | Zero] = [Value(v.type) if want else ZERO for v, want in zip(outputs, wanted, strict=True)]
    symbols = [ct for ct in cts if isinstance(ct, Value)]
    wants = [not isinstance(t, Zero) for t in given]
    parts = apply_rule(inner, instruction, parameters[:count], parameters[count:], cts, wants)
    results: list[Value] = []
    seeds: list[Value] = []
    for part, tangent in zip(parts, given, strict=True):
        if isinstance(part, Zero):
            continue
        seed = known(tangent)
        if isinstance(seed, Value):
            results.append(part.dense() if isinstance(part, Into) else part)
            seeds.append(seed)
    region = inner.block([*parameters, *symbols], results)
    first = len(parameters)
    wrt = range(first, first + len(symbols))
    ones = [b.full(1, v.type) for v in symbols]
    rest = iter(transposed(b, region, [*inputs, *outputs, *ones], wrt, range(len(results)), seeds))
    return [next(rest) if want else ZERO for want in wanted]


def _by_custom_rule(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], outputs: Sequence[Value], given: Sequence[Tangent]
) -> list[Tangent]:
    """What the rule of a ``custom`` instruction gives: that for tangents, or the transpose of that for cotangents."""
    params = instruction.params
    check_custom(instruction, [not isinstance(t, Zero) for t in given])
    vjp, jvp = (rule(params, instruction.regions, kind) for kind in ("vjp", "jvp"))
    by = params["vjp" if jvp is None else "jvp"]
    tangents = [dense(b, given[k], inputs[k]) for k in by]
    own = [k for k, v in enumerate(outputs[: params["outputs"]]) if v.type.dtype.is_inexact]
    if jvp is not None:
        parts: Sequence[Value] = inline(b, jvp, (*outputs, *tangents, *inputs))
    else:
        assert vjp is not None
        first = len(outputs)
        operands = (*outputs, *(b.full(1, outputs[k].type) for k in own), *inputs)
        parts = transposed(b, vjp, operands, range(first, first + len(own)), range(len(by)), tangents)
    found = dict(zip(own, parts, strict=True))
    return [found.get(k, ZERO) for k in range(len(outputs))]
