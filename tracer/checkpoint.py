"""A function whose derivatives compute its values anew: a ``custom`` instruction whose rules differentiate another copy of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir import OPS, Block, Builder, Value
from pullback.ir.structure import copied
from pullback.tracer.array import TracedArray, as_traced
from pullback.tracer.errors import user_loc
from pullback.tracer.frame import frame_of
from pullback.tracer.region import Closed, Region, follow, restore
from pullback.tracer.trace import parameters_of
from pullback.tracer.tree import flatten, unflatten


def checkpoint_call(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``function(*args, **kwargs)``, of which a derivative keeps the arguments alone."""
    if not frame_of().order:
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
    results = _emitted(closed)
    made = restore(written, results[len(kept) :]) | {id(x): new for x, new in zip(kept, results)}
    return unflatten(tree, [_like(made.get(id(x), x), x) for x in leaves])


def _like(x: Any, leaf: Any) -> Any:
    if isinstance(leaf, TracedArray) and x is not leaf:
        x.weak = leaf.weak
    return x


def _emitted(closed: Closed) -> list[TracedArray]:
    frame, loc = frame_of(), user_loc()
    values = [frame.lift(x, loc) for x in closed.given]
    own = _inexact(closed.block.results)
    by = tuple(k for k in _inexact(values) if not frame.is_outside(values[k]))
    if not own or not by:
        return closed.inline()
    rules = [_rule(closed, values, own, by, is_vjp) for is_vjp in (True, False)]
    params = {"name": "checkpoint", "outputs": len(closed.block.results), "vjp": by, "jvp": by}
    emitted = frame.builder.at(loc).emit(OPS["custom"], values, params, [closed.block, *rules])
    return [as_traced(TracedArray(v.type, frame, v, loc=loc)) for v in emitted]  # type: ignore[arg-type]


def _inexact(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(k for k, v in enumerate(values) if v.type.dtype.is_inexact)


def _rule(closed: Closed, values: Sequence[Value], own: tuple[int, ...], by: tuple[int, ...], is_vjp: bool) -> Block:
    """The region of a rule: the derivative of a copy of the function, of operands behind barriers."""
    block = copied(closed.again().block)
    results = [Value(v.type) for v in block.results]
    seeds = [Value(block.results[k].type) for k in own] if is_vjp else [Value(values[k].type) for k in by]
    operands = [Value(v.type, v.name) for v in values]
    b = Builder()
    first = len(operands)
    places = tuple(range(first, first + len(seeds)))
    extra = [Value(v.type) for v in seeds]
    inner = Block((*block.parameters, *extra), block.instructions, block.results)
    if is_vjp:
        shut = [b.barrier(v, seeds[0]) for v in operands]
        found = b.emit(OPS["gradient"], (*shut, *seeds), {"wrt": by, "of": own, "seeds": places}, [inner])
    else:
        found = b.emit(OPS["jvp"], (*operands, *seeds), {"wrt": by, "of": own, "tangents": places}, [inner])
    return b.block([*results, *seeds, *operands], found[len(results) :])
