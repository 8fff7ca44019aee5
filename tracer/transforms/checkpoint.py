"""Checkpointing: a ``custom`` instruction for a function, whose derivative rules differentiate a recomputed copy of it.

Values kept by the policy are residuals of that instruction. In the copy each is read, by a ``saved`` instruction, instead of
being recomputed. With a budget the function is split into segments by ``ir.passes.transforms.checkpoint_segments``, with one
such instruction for each.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pullback.ir import OPS, Block, Builder, Instruction, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import copy_block
from pullback.ir.core.types import ArrayType
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.control.loops import Scan
from pullback.ir.passes.transforms.checkpoint_segments import Cuts, cut, is_work, segments
from pullback.ir.shapes.symbolic import extent_of
from pullback.ir.text import print_file
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, wrap
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import flatten, paths
from pullback.tracer.stores import refusing_changes
from pullback.tracer.trace import parameters_of
from pullback.tracer.transforms.container_arguments import ContainerArguments
from pullback.tracer.transforms.region import Closed, Region, as_weak, follow, restore
from pullback.tracer.user_code.errors import user_loc
from pullback.tracer.user_code.ownership import user_frame

if TYPE_CHECKING:
    from pullback.ir.passes.transforms import checkpoint_chunks as chunks
    from pullback.ir.passes.transforms import checkpoint_residuals as held
else:
    chunks = later("pullback.ir.passes.transforms.checkpoint_chunks")
    held = later("pullback.ir.passes.transforms.checkpoint_residuals")

Policy = str | Callable[[str, str], bool]
POLICIES = ("nothing", "contractions", "everything")


def checkpoint_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], policy: Policy, budget: int | None
) -> Any:
    """Return ``function(*args, **kwargs)``; its derivative keeps only the arguments and the values that the policy selects."""
    if not frame_of().order or policy == "everything":
        return follow(function)(*args, **kwargs)
    parameters, region = parameters_of(function), Region()
    region.inner.is_straight = True
    containers = ContainerArguments(region)

    def enter(leaf: Any, path: str) -> Any:
        is_value = isinstance(leaf, TracedArray) and leaf.known is None and leaf.literal is None
        return region.enter(leaf, is_same=True) if is_value else leaf

    def entered(value: Any, label: str) -> Any:
        leaves, tree = flatten(value)
        return containers.filled(value, tree, [enter(x, path) for x, path in zip(leaves, paths(tree, label), strict=True)], label)

    positional = [entered(x, parameters.name(k)) for k, x in enumerate(args)]
    keywords = {name: entered(x, name) for name, x in kwargs.items()}
    containers.begin()
    with refusing_changes(region.outer, "a function with a checkpoint", is_outside_stored=True):
        result = region.call(function, positional, keywords)
    written = region.written()
    entered_values = {id(new): x for x, new in zip(region.operands, region.inside, strict=True)}
    names = {id(new) for _, new in written} | entered_values.keys()
    kept = [x for x in containers.values(result) if id(x) not in names]
    closed = region.close([*kept, *(new for _, new in written)])
    results = _emit_checkpoint(closed, policy, budget)
    outside = entered_values | restore(written, results[len(kept) :])
    outside |= {id(x): as_weak(new, x) for x, new in zip(kept, results)}
    containers.store(outside)
    return containers.converted(result)


class CheckpointWarning(UserWarning):
    """Warn of a checkpoint whose kept or recomputed values need more bytes than its budget.

    The message gives the smallest size that a division into segments reaches.

    See Also
    --------
    checkpoint : Takes the budget.

    Examples
    --------
    >>> import warnings
    >>> f = pb.checkpoint(lambda x: np.sum(np.exp(np.sin(np.cumsum(x)))), budget=8)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = pb.grad(f)(np.ones(1000))
    >>> [w.category.__name__ for w in caught]
    ['CheckpointWarning']
    """

    __module__ = "pullback"


def _emit_checkpoint(closed: Closed, policy: Policy, budget: int | None) -> list[TracedArray]:
    kept = _kept(closed.block, policy)
    if budget is None or not closed.block.instructions:
        return _emit_custom(closed, kept)
    frame = frame_of()
    by = tuple(k for k in _inexact(closed.block.parameters) if not frame.is_outside(frame.lift(closed.operands[k])))
    saving = replace(closed, block=_with_sums_in_loops(closed.block))
    plan = _planned(saving.block, by, policy, budget)
    if plan.whole <= budget:
        return _emit_custom(closed if plan.whole + plan.sequences <= budget else saving, plan.results)
    if plan.cuts.total > budget and chunks.has_long_scans(saving.block):
        plan = min(plan, _planned(chunks.with_split_scans(saving.block), by, policy, budget), key=lambda p: p.cuts.total)
    if plan.cuts.total > budget:
        _warn(plan.cuts, budget)
    known = dict(zip(plan.block.parameters, (frame.lift(x) for x in closed.operands), strict=True))
    parts = segments(plan.block, plan.cuts.after)
    for part in parts:
        block = part.block
        crossing = () if part is parts[-1] else block.results
        inside = dict.fromkeys(v for i in block.instructions for v in i.results if v in plan.kept or v in crossing)
        results = _emit_custom(Closed(block=block, operands=tuple(wrap(known[v]) for v in part.reads)), list(inside))
        known.update(zip(block.results, (frame.lift(x) for x in results), strict=True))
    return [wrap(known[v]) for v in plan.block.results]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Plan:
    """Cuts of a block. ``kept``: the values that the policy keeps; ``results``: these, all that are expensive to recompute, and
    all that the gradient holds. ``whole``: the bytes that it holds if it recomputes none of these; ``sequences``: those of
    residuals of loops."""

    block: Block
    kept: Collection[Value]
    results: Sequence[Value]
    whole: int
    sequences: int
    cuts: Cuts


def _planned(block: Block, by: Sequence[int], policy: Policy, budget: int) -> _Plan:
    kept = set(_kept(block, policy))
    own = {v for i in block.instructions for v in i.results}
    residuals = held.residuals_of(block, by, _inexact(block.results), _bytes)
    results = [v for i in block.instructions for v in i.results if v in kept or v in residuals or is_work(i)]
    return _Plan(
        block=block,
        kept=kept,
        results=results,
        whole=sum(map(_bytes, results)) + sum(r.bytes for v, r in residuals.items() if v not in set(results)),
        sequences=sum(r.bytes for v, r in residuals.items() if v not in own),
        cuts=cut(block, budget, kept, residuals, _bytes),
    )


def _kept(block: Block, policy: Policy) -> list[Value]:
    return [v for i in block.instructions if _is_kept(i, policy) for v in i.results]


def _with_sums_in_loops(block: Block) -> Block:
    """Return the block with its scans marked: their gradients take the least memory for sums."""
    instructions = []
    for i in block.instructions:
        if isinstance(i.op, Scan) and "checkpoint" not in i.params:
            i = replace(i, params={**i.params, "checkpoint": "sums"})
        instructions.append(replace(i, regions=tuple(map(_with_sums_in_loops, i.regions))) if i.regions else i)
    return replace(block, instructions=tuple(instructions))


def _warn(cuts: Cuts, budget: int) -> None:
    frame = user_frame(sys._getframe(1))
    message = (
        f"a checkpoint has budget={budget:_}, and its gradient needs {cuts.total - budget:,} bytes more: it keeps {cuts.kept:,} "
        f"bytes, and computes {cuts.recomputed:,} again at a time; give budget={cuts.total:_}, or checkpoint a smaller part"
    )
    file, line = ("pullback", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(message, CheckpointWarning, file, line)


def _emit_custom(closed: Closed, kept: Sequence[Value]) -> list[TracedArray]:
    """Return the results of a ``custom`` instruction of the region, whose derivatives keep its operands and ``kept``."""
    frame, loc = frame_of(), user_loc()
    values = [frame.lift(x, loc) for x in closed.operands]
    own = _inexact(closed.block.results)
    by = tuple(k for k in _inexact(values) if not frame.is_outside(values[k]))
    if not own or not by:
        return closed.inline()
    rules = [_rule(closed, values, own, by, kept, is_vjp) for is_vjp in (True, False)]
    params = {"name": "checkpoint", "outputs": len(closed.block.results), "vjp": by, "jvp": by}
    block = replace(closed.block, results=(*closed.block.results, *kept))
    emitted = frame.builder.at(loc).emit(OPS["custom"], values, params, [block, *rules])[: len(closed.block.results)]
    return [as_traced(TracedArray(v.type, frame, v, loc=loc)) for v in emitted]  # type: ignore[arg-type]


def _inexact(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(k for k, v in enumerate(values) if v.type.dtype.is_inexact)


def _is_kept(i: Instruction, policy: Policy) -> bool:
    if not all(isinstance(v.type, ArrayType) for v in i.results):
        return False
    if callable(policy):
        return bool(policy(i.op.name, f"{print_file(i.loc.file)}:{i.loc.line}"))
    return policy == "contractions" and isinstance(i.op, Contract)


def _bytes(value: Value) -> int:
    return math.prod(map(extent_of, value.type.shape)) * value.type.dtype.bytes


def _rule(
    closed: Closed, values: Sequence[Value], own: tuple[int, ...], by: tuple[int, ...], kept: Sequence[Value], is_vjp: bool
) -> Block:
    """Return the region of a rule: the derivative of a copy of the function, with its operands behind barriers."""
    if is_vjp:
        closed = replace(closed, block=_with_known(closed.block, kept))
    block = copy_block(closed.copy().block)
    outputs = [Value(v.type) for v in block.results]
    saved = [Value(v.type) for v in kept]
    results = [*outputs, *saved]
    seeds = [Value(block.results[k].type) for k in own] if is_vjp else [Value(values[k].type) for k in by]
    operands = [Value(v.type, v.name) for v in values]
    b = Builder()
    first = len(block.parameters)
    positions = tuple(range(first, first + len(seeds)))
    extra = [Value(v.type) for v in seeds]
    inner = Block((*block.parameters, *extra), block.instructions, block.results)
    if is_vjp:
        guarded = [b.barrier(v, seeds[0]) for v in (*operands, *saved)]
        derivatives = b.emit(OPS["gradient"], (*guarded, *seeds), {"wrt": by, "results": own, "seeds": positions}, [inner])
    else:
        derivatives = b.emit(OPS["jvp"], (*operands, *seeds), {"wrt": by, "results": own, "tangents": positions}, [inner])
    return b.block([*results, *seeds, *operands], derivatives[len(outputs) :])


def _with_known(block: Block, kept: Sequence[Value]) -> Block:
    """Return the block with a parameter for each kept value, from which the value's uses read."""
    parameters = {v: Value(v.type) for v in kept}
    names: dict[Value, Value] = {}
    instructions: list[Instruction] = []
    for i in block.instructions:
        instructions.append(replace(i, operands=tuple(names.get(v, v) for v in i.operands)))
        for value in (v for v in i.results if v in parameters):
            b = Builder(i.loc, instructions)
            names[value] = b.saved(value, parameters[value])
    results = tuple(names.get(v, v) for v in block.results)
    return Block((*block.parameters, *parameters.values()), tuple(instructions), results)
