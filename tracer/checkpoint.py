"""A function whose derivatives compute its values anew: a ``custom`` instruction whose rules differentiate another copy of it.

What a policy keeps are residuals of that instruction. In the copy they stand, behind ``known``, in the place of what would be
computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir import OPS, Block, Builder, Instruction, Value
from pullback.ir.ops.contract import Contract, split
from pullback.ir.passes.residuals import CHEAP
from pullback.ir.sizes import extent_of
from pullback.ir.structure import copied
from pullback.ir.text import print_file
from pullback.ir.types import ArrayType
from pullback.tracer.array import as_traced
from pullback.tracer.errors import user_loc
from pullback.tracer.frame import frame_of
from pullback.tracer.region import Closed, Region, follow, restore
from pullback.tracer.trace import parameters_of
from pullback.tracer.traced import TracedArray
from pullback.tracer.tree import flatten, unflatten

Policy = str | Callable[[str, str], bool]
POLICIES = ("nothing", "contractions", "everything")


def checkpoint_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], policy: Policy, budget: int | None
) -> Any:
    """``function(*args, **kwargs)``, of which a derivative keeps the arguments, and what the policy says."""
    if not frame_of().order or policy == "everything":
        return follow(function)(*args, **kwargs)
    parameters, region = parameters_of(function), Region()

    def enter(leaf: Any, path: str) -> Any:
        is_value = isinstance(leaf, TracedArray) and leaf.known is None and leaf.literal is None
        return region.enter(leaf, is_same=True) if is_value else leaf

    positional = [region.argument(x, parameters.name(k), enter)[0] for k, x in enumerate(args)]
    keywords = {name: region.argument(x, name, enter)[0] for name, x in kwargs.items()}
    leaves, tree = flatten(region.call(function, positional, keywords))
    written = region.written()
    names = {id(new) for _, new in written}
    kept = list({id(x): x for x in leaves if region.holds(x) and id(x) not in names}.values())
    closed = region.close([*kept, *(new for _, new in written)])
    results = _emitted(closed, policy, budget)
    made = restore(written, results[len(kept) :]) | {id(x): new for x, new in zip(kept, results)}
    return unflatten(tree, [_like(made.get(id(x), x), x) for x in leaves])


def _like(x: Any, leaf: Any) -> Any:
    if isinstance(leaf, TracedArray) and x is not leaf:
        x.weak = leaf.weak
    return x


def _emitted(closed: Closed, policy: Policy, budget: int | None) -> list[TracedArray]:
    frame, loc = frame_of(), user_loc()
    values = [frame.lift(x, loc) for x in closed.given]
    own = _inexact(closed.block.results)
    by = tuple(k for k in _inexact(values) if not frame.is_outside(values[k]))
    if not own or not by:
        return closed.inline()
    kept = _kept(closed.block, policy, budget)
    rules = [_rule(closed, values, own, by, kept, is_vjp) for is_vjp in (True, False)]
    params = {"name": "checkpoint", "outputs": len(closed.block.results), "vjp": by, "jvp": by}
    block = replace(closed.block, results=(*closed.block.results, *kept))
    emitted = frame.builder.at(loc).emit(OPS["custom"], values, params, [block, *rules])[: len(closed.block.results)]
    return [as_traced(TracedArray(v.type, frame, v, loc=loc)) for v in emitted]  # type: ignore[arg-type]


def _inexact(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(k for k, v in enumerate(values) if v.type.dtype.is_inexact)


def _kept(block: Block, policy: Policy, budget: int | None) -> list[Value]:
    """The values of a block that a derivative keeps; within a budget those that cost most to compute, for their bytes."""
    found = []
    for i in block.instructions:
        is_array = all(isinstance(v.type, ArrayType) for v in i.results)
        if is_array and (_is_kept(i, policy) or (budget is not None and not isinstance(i.op, CHEAP))):
            found += [(_work(i) / max(_bytes(v), 1), v) for v in i.results]
    if budget is None:
        return [v for _, v in found]
    chosen = set()
    for _, value in sorted(found, key=lambda pair: -pair[0]):
        if _bytes(value) <= budget:
            budget -= _bytes(value)
            chosen.add(value)
    return [v for _, v in found if v in chosen]


def _is_kept(i: Instruction, policy: Policy) -> bool:
    if callable(policy):
        return bool(policy(i.op.name, f"{print_file(i.loc.file)}:{i.loc.line}"))
    return policy == "contractions" and isinstance(i.op, Contract)


def _bytes(value: Value) -> int:
    return math.prod(map(extent_of, value.type.shape)) * value.type.dtype.bytes


def _work(i: Instruction) -> int:
    """About how many numbers an instruction goes through."""
    if isinstance(i.op, Contract):
        letters, _ = split(i.params["spec"])
        return math.prod({x: int(e) for v, word in zip(i.operands, letters) for x, e in zip(word, v.type.shape)}.values())
    inner = sum(_work(k) for region in i.regions for k in region.instructions)
    return inner * max((int(v.type.shape[0]) for v in i.results if v.type.shape), default=1) + sum(map(_bytes, i.operands))


def _rule(
    closed: Closed, values: Sequence[Value], own: tuple[int, ...], by: tuple[int, ...], kept: Sequence[Value], is_vjp: bool
) -> Block:
    """The region of a rule: the derivative of a copy of the function, of operands behind barriers."""
    if is_vjp:
        closed = replace(closed, block=_with_known(closed.block, kept))
    block = copied(closed.again().block)
    outputs = [Value(v.type) for v in block.results]
    saved = [Value(v.type) for v in kept]
    results = [*outputs, *saved]
    seeds = [Value(block.results[k].type) for k in own] if is_vjp else [Value(values[k].type) for k in by]
    operands = [Value(v.type, v.name) for v in values]
    b = Builder()
    first = len(block.parameters)
    places = tuple(range(first, first + len(seeds)))
    extra = [Value(v.type) for v in seeds]
    inner = Block((*block.parameters, *extra), block.instructions, block.results)
    if is_vjp:
        shut = [b.barrier(v, seeds[0]) for v in (*operands, *saved)]
        found = b.emit(OPS["gradient"], (*shut, *seeds), {"wrt": by, "of": own, "seeds": places}, [inner])
    else:
        found = b.emit(OPS["jvp"], (*operands, *seeds), {"wrt": by, "of": own, "tangents": places}, [inner])
    return b.block([*results, *seeds, *operands], found[len(outputs) :])


def _with_known(block: Block, kept: Sequence[Value]) -> Block:
    """The block with a parameter for each value that is kept, which is read in the value's place."""
    given = {v: Value(v.type) for v in kept}
    names: dict[Value, Value] = {}
    made: list[Instruction] = []
    for i in block.instructions:
        made.append(replace(i, operands=tuple(names.get(v, v) for v in i.operands)))
        for value in (v for v in i.results if v in given):
            b = Builder(i.loc, made)
            names[value] = b.known(value, given[value])
    results = tuple(names.get(v, v) for v in block.results)
    return Block((*block.parameters, *given.values()), tuple(made), results)
