"""Rules for updates of arrays at indices (``scatter_set``, ``scatter_add``, and the same of a regular part) and of regular parts
(``slice_set``, ``slice_add``). tests/golden/passes holds one example of each rule, under its name.

An update of an array that nothing reads any more is done in place, so these rules keep chains of updates short, and keep an
array in one chain: a choice between an array and its update becomes an update with a chosen value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.ir.core.op import OPS, Op
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Place, Scatter, gather_written, part_params
from pullback.ir.passes.simplify.rewrite import Rewriter, constant_like, rule

SETS = {"scatter_add": "scatter_set", "scatter_add_part": "scatter_set_part", "slice_add": "slice_set"}
"""By the op that adds, the op that replaces."""
MOST_CHOSEN = 16
"""Most updates of a branch, and most indices of an update, for which a choice between arrays becomes a choice of values."""


def _updated(b: Rewriter, base: Value, name: str, operands: Sequence[Value], params: dict[str, Any]) -> Instruction | None:
    """Return the update ``name`` that defines ``base``, if it writes the same elements as one with these operands and params, and
    only that one reads it."""
    producer = b.producer(base, name)
    if producer is None or b.reads.get(base) != 1 or part_params(producer.params) != part_params(params):
        return None
    *indices, value = operands
    is_same = producer.operands[1:-1] == tuple(indices) and producer.operands[-1].type == value.type
    return producer if is_same else None


@rule("scatter_set", "scatter_set_part", "slice_set")
def set_again(b: Rewriter, base: Value, *operands: Value, op: Op, **params: Any) -> Value | None:
    # x[i] = v; x[i] = w makes x[i] = w
    producer = _updated(b, base, op.name, operands, params)
    return None if producer is None else b.emit(op, (producer.operands[0], *operands), params)[0]


@rule(*SETS)
def added_to_zeros(b: Rewriter, base: Value, *operands: Value, op: Op, **params: Any) -> Value | None:
    # x[i] = 0; x[i] += v makes x[i] = v where no element is written twice, except that -0.0 stays -0.0
    name = SETS[op.name]
    if len(operands) > 1 and operands[0].type.rank:
        return None
    producer = _updated(b, base, name, operands, params)
    if producer is None or b.constant(producer.operands[-1]) != 0:
        return None
    result: Value = getattr(b, name)(producer.operands[0], *operands, **params)
    return result


@rule("scatter_add")
def add_of_pad(b: Rewriter, base: Value, *operands: Value, axes: Sequence[int], **_: Any) -> Value | None:
    # x[i] += pad v makes x[i, a:b] += v, except for the sign of zeros
    *indices, values = operands
    producer, rank = b.producer(values, "pad"), indices[0].type.rank
    if producer is None or b.reads.get(values, 1) != 1 or any(s is not None for s in producer.params["start"][:rank]):
        return None
    entries = {name: iter(producer.params[name][rank:]) for name in ("start", "step")}
    rest = range(base.type.rank)
    start = tuple(None if k in axes else next(entries["start"]) for k in rest)
    step = tuple(1 if k in axes else next(entries["step"]) for k in rest)
    result: Value = b.scatter_add_part(base, *indices, producer.operands[0], axes=axes, start=start, step=step)
    return result


@rule("gather")
def gather_of_written(b: Rewriter, x: Value, *indices: Value, axes: Sequence[int], **_: Any) -> Value | None:
    # x[i] = v; x[i] is v
    producer = b.producer(x, "scatter_set")
    if producer is None or indices[0].type.rank or tuple(producer.params["axes"]) != tuple(axes):
        return None
    return producer.operands[-1] if producer.operands[1:-1] == indices else None


@rule("slice_set")
def set_to_itself(b: Rewriter, base: Value, value: Value, start: Shape, step: Sequence[int], **_: Any) -> Value | None:
    # x[part] = x[part] makes x
    producer = b.producer(value, "slice")
    if producer is None or producer.operands[0] is not base:
        return None
    return base if part_params(producer.params) == {"start": tuple(start), "step": tuple(step)} else None


@rule("slice_set")
def set_in_zeros(b: Rewriter, base: Value, value: Value, start: Shape, step: Sequence[int], **_: Any) -> Value | None:
    # zeros with zeros[part] = v makes pad v
    is_zero = b.equals(base, 0.0) if not base.type.dtype.is_complex else False
    return b.pad(value, start=start, step=step, shape=base.type.shape) if is_zero else None


@rule("select")
def choice_of_updates(b: Rewriter, condition: Value, x: Value, y: Value, **_: Any) -> Value | None:
    # where(c, x with x[i] = v, x) = x with x[i] = where(c, v, x[i]), for updates of few elements; the same for two updates of x
    if not x.type.shape:
        return None
    chains = [_chain(b, v) for v in (x, y)]
    bases = [[v, *(i.operands[0] for i in chain)] for v, chain in zip((x, y), chains, strict=True)]
    common = next((v for v in bases[0] if v in bases[1]), None)
    if common is None:
        return _undone(b, condition, x, y)
    if common is x is y:
        return None
    result = common
    for k, (chain, values) in enumerate(zip(chains, bases, strict=True)):
        for i in reversed(chain[: values.index(common)]):
            result = _chosen(b, i, result, condition, k == 0)
    return result


def _undone(b: Rewriter, condition: Value, x: Value, y: Value) -> Value | None:
    """Emit a choice between an array and the end of a chain of updates of it, which other instructions read between the updates:
    the array after the updates, undone where it is not chosen."""
    for end, start, holds in ((x, y, True), (y, x, False)):
        chain = _chain(b, end, is_alone=False)
        bases = [i.operands[0] for i in chain]
        if start in bases:
            result = end
            for i in chain[: bases.index(start) + 1]:
                result = _restored(b, i, result, start, condition, holds)
            return result
    return None


def _restored(b: Rewriter, i: Instruction, base: Value, start: Value, condition: Value, holds: bool) -> Value:
    """Emit the elements that an update writes as they are in ``base`` or, where the update is not chosen, in ``start``."""
    params = part_params(i.params)
    chosen = _chosen_elements(b, i, condition)
    after, before = (_elements(b, i, array) for array in (base, start))
    value = b.select(chosen, after, before) if holds else b.select(chosen, before, after)
    return b.emit(OPS[SETS.get(i.op.name, i.op.name)], (base, *i.operands[1:-1], value), params)[0]


def _chain(b: Rewriter, value: Value, is_alone: bool = True) -> list[Instruction]:
    """Return the updates of few elements that end in a value, which nothing else reads, the last one first; if ``is_alone``,
    nothing else reads the value after any of them."""
    chain: list[Instruction] = []
    while len(chain) < MOST_CHOSEN and (b.reads.get(value) == 1 or (chain and not is_alone)):
        definition = b.definitions.get(value)
        if definition is None or not isinstance(definition.op, Scatter | Place) or not _is_narrow(definition):
            break
        chain.append(definition)
        value = definition.operands[0]
    return chain


def _is_narrow(i: Instruction) -> bool:
    """Return whether an update writes fewer axes than its array has, or only few indices."""
    if isinstance(i.op, Scatter) and i.op.accumulate and (i.operands[1].type.rank or i.result.type.dtype.kind not in "fiu"):
        return False
    base, values = i.operands[0].type.shape, i.operands[-1].type.shape
    if isinstance(i.op, Place):
        return not i.op.accumulate and any(e == 1 != full for e, full in zip(values, base, strict=True))
    indexed = i.operands[1].type.shape
    is_few = all(isinstance(e, int) for e in indexed) and math.prod(e for e in indexed if isinstance(e, int)) <= MOST_CHOSEN
    return is_few or len(values) < len(base)


def _chosen(b: Rewriter, i: Instruction, base: Value, condition: Value, holds: bool) -> Value:
    """Emit an update of ``base`` that is made where the condition ``holds``, or where it does not."""
    values = i.operands[-1]
    chosen = _chosen_elements(b, i, condition)
    is_sum = isinstance(i.op, Scatter) and i.op.accumulate
    other = constant_like(b, -0.0 if values.type.dtype.is_float else 0, values) if is_sum else _elements(b, i, base)
    value = b.select(chosen, values, other) if holds else b.select(chosen, other, values)
    return b.emit(i.op, (base, *i.operands[1:-1], value), part_params(i.params))[0]


def _elements(b: Rewriter, i: Instruction, array: Value) -> Value:
    """Emit the elements of an array that an update writes."""
    values, params = i.operands[-1], part_params(i.params)
    if isinstance(i.op, Scatter):
        return gather_written(b, array, i.operands[1:-1], values, params)
    result: Value = b.slice(array, **params, shape=values.type.shape)
    return result


def _chosen_elements(b: Rewriter, i: Instruction, condition: Value) -> Value:
    """Emit the condition for each element that an update writes."""
    uniform = b.operand(condition, "broadcast")
    if uniform is None or uniform.type.shape:
        return _elements(b, i, condition)
    spread: Value = b.spread(uniform, i.operands[-1].type.shape)
    return spread
