"""A function of scalars on every element of arrays: traced once, its instructions repeated with one axis more.

What depends on an element gets a leading axis; what does not stays as it is. Each family of ops says how it takes the axis.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir import Instruction, Value
from pullback.ir.ops.contract import Contract, split
from pullback.ir.ops.control import Check
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.ops.index import Gather
from pullback.ir.ops.reduce import Reduce
from pullback.ir.ops.scan import Recur
from pullback.ir.types import ArrayType, dtype_of
from pullback.tracer.array import TracedArray, as_traced, broadcast_to, emit, expand, wrap
from pullback.tracer.frame import Frame, frame_of

Arrays = list[TracedArray]


class CannotBatch(Exception):
    """An instruction whose op has no way to take one axis more."""


def over_elements(function: Callable[..., Any], vectors: Sequence[TracedArray], kinds: Sequence[str]) -> tuple[Any, list[Any]]:
    """``function`` of scalars, at every place of equally long ``vectors``; ``kinds`` are the weak kinds that it meets.

    Returns what it returned for one place, and for each of its results (one, or those of a tuple) the vector of them. Raises
    CannotBatch.
    """
    outer = frame_of()
    inner = Frame(outer)
    places = [
        TracedArray(ArrayType(dtype_of(v.dtype)), inner, inner.parameter(ArrayType(dtype_of(v.dtype))), weak=kind, loc=v.loc)
        for v, kind in zip(vectors, kinds, strict=True)
    ]
    with inner.active():
        result = function(*places)
        found = [as_traced(r) for r in (result if isinstance(result, tuple) else (result,))]
        values = [inner.lift(x) for x in found]
    length = vectors[0].size
    env: dict[Value, tuple[TracedArray, bool]] = {p: (v, True) for p, v in zip(inner.parameters, vectors)}
    env.update((p, (wrap(v), False)) for p, v in zip(inner.parameters[len(vectors) :], inner.outer, strict=True))
    for instruction in inner.builder.instructions:
        _repeat(instruction, env, length)
    return result, [_leading(*env[v], length) for v in values]


def _repeat(instruction: Instruction, env: dict[Value, tuple[TracedArray, bool]], length: int) -> None:
    given = [env[v] for v in instruction.operands]
    operands = [x for x, _ in given]
    batched = [is_batched for _, is_batched in given]
    if not any(batched):
        if instruction.regions:
            raise CannotBatch(instruction.op.name)
        made = emit(instruction.op, *operands, **instruction.params)
    else:
        made = _batched(instruction, operands, batched, length)
    results = made if isinstance(made, tuple) else (made,)
    env.update((v, (x, any(batched))) for v, x in zip(instruction.results, results))


def _leading(x: TracedArray, is_batched: bool, length: int) -> TracedArray:
    return x if is_batched else broadcast_to(expand(x, (0,)), (length, *x.shape))


def _batched(instruction: Instruction, operands: Arrays, batched: Sequence[bool], length: int) -> Any:
    op, params = instruction.op, instruction.params
    if isinstance(op, Gather):
        return _gather(operands, batched, params["axes"], length)
    if isinstance(op, Contract):
        return emit(op, *operands, spec=_spec(params["spec"], batched))
    operands = [_leading(x, is_batched, length) for x, is_batched in zip(operands, batched)]
    if isinstance(op, Elementwise | Check):
        return emit(op, *operands, **params)
    if isinstance(op, Reduce):
        return emit(op, *operands, axes=tuple(a + 1 for a in params["axes"]))
    if isinstance(op, Recur) or op.name in _REINDEX:
        return emit(op, *operands, **_shifted(params, length))
    raise CannotBatch(op.name)


_REINDEX = frozenset({"broadcast", "squeeze", "transpose", "reshape", "slice", "pad", "flip", "shift", "concat"})


def _shifted(params: Mapping[str, Any], length: int) -> dict[str, Any]:
    """The params of an op that moves elements, for arrays with a leading axis."""
    found = dict(params)
    if "axes" in params:
        found["axes"] = tuple(a + 1 for a in params["axes"])
    if "axis" in params:
        found["axis"] = params["axis"] + 1
    if "perm" in params:
        found["perm"] = (0, *(a + 1 for a in params["perm"]))
    if "shape" in params and "axis" not in params:
        found["shape"] = (length, *params["shape"])
    if "step" in params:
        found["start"], found["step"] = (0, *(s or 0 for s in params["start"])), (1, *params["step"])
    if "starts" in params:
        found["shape"] = (length, *params["shape"])
    return found


def _gather(operands: Arrays, batched: Sequence[bool], axes: Sequence[int], length: int) -> Any:
    x = operands[0]
    indices = [_leading(i, is_batched, length) for i, is_batched in zip(operands[1:], batched[1:])]
    if not batched[0]:
        return emit("gather", x, *indices, axes=tuple(axes))
    place = emit("iota", shape=indices[0].shape, axis=0, dtype="i64")
    return emit("gather", x, place, *indices, axes=(0, *(a + 1 for a in axes)))


def _spec(spec: str, batched: Sequence[bool]) -> str:
    """The subscripts of a contraction, with a letter more where there is an axis more."""
    inputs, out = split(spec)
    letter = next(c for c in string.ascii_letters if c not in spec)
    left, right = (letter + word if is_batched else word for word, is_batched in zip(inputs, batched))
    return f"{left},{right}->{letter}{out}"
