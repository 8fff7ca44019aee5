"""Rewrite sums of functions of the eigenvalues of Hermitian matrices as one op each.

    w, v = eigh a;  sum (log w)   ->   spectral_sum a, v, w, log w, 1 / w, -1 / w**2

Its gradient is a function of the matrix, whose own derivatives do not divide by differences of equal eigenvalues. The function
must be the same for all eigenvalues: its other operands are constant along them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import sum_
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.control.regions import Transform
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.linalg.eigh_svd import eigh
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.transforms.forward import emit_jvp


def spectral_sums(function: Function) -> Function:
    """Rewrite such sums in regions of transforms.

    Requires: a func before ``grad`` (other kinds are returned unchanged). Keeps: values bit by bit, and first derivatives up
    to rounding.
    """
    if function.kind != "func" or not any(i.op is eigh for i in walk(function.body)):
        return function
    body = _outside(function.body)
    return function if body is function.body else replace(function, body=body)


def _outside(block: Block) -> Block:
    instructions = [_with_regions(i, ()) if i.regions else i for i in block.instructions]
    is_same = all(new is old for new, old in zip(instructions, block.instructions, strict=True))
    return block if is_same else replace(block, instructions=tuple(instructions))


def _with_regions(i: Instruction, active: Collection[Value]) -> Instruction:
    if isinstance(i.op, Transform):
        wrt = i.params.get("wrt", ())
        reached = [k for k, v in enumerate(i.operands) if v in active or k in wrt]
        regions = tuple(_inside(region, reached) for region in i.regions)
    else:
        regions = tuple(_outside(region) for region in i.regions)
    is_same = all(new is old for new, old in zip(regions, i.regions, strict=True))
    return i if is_same else replace(i, regions=regions)


def _inside(block: Block, reached: Sequence[int]) -> Block:
    """Rewrite a region. ``reached``: positions of the parameters that depend on differentiated values."""
    active = {block.parameters[k] for k in reached}
    source: dict[Value, Instruction] = {}
    definitions: dict[Value, Instruction] = {}
    uniform: set[Value] = set()
    b, new, is_changed = Builder(), dict[Value, Value](), False
    for i in block.instructions:
        if not active.isdisjoint(i.operands):
            active.update(i.results)
        if i.regions:
            old, i = i, _with_regions(i, active)
            is_changed |= old is not i
        if i.op is broadcast and i.result.type.rank - 1 in i.params["axes"]:
            uniform.add(i.result)
        if i.op is eigh and i.operands[0] in active:
            source[i.results[0]] = i
        elif isinstance(i.op, Elementwise) and len(i.results) == 1:
            of = {source.get(v) for v in i.operands if v in active}
            is_same_for_all = all(v in active or v in uniform for v in i.operands)
            if len(of) == 1 and None not in of and is_same_for_all and all(v.type == i.result.type for v in i.operands):
                source[i.result] = next(e for e in of if e is not None)
                definitions[i.result] = i
        operands = tuple(new.get(v, v) for v in i.operands)
        decomposition = source.get(i.operands[0]) if i.op is sum_ else None
        if decomposition is not None and i.operands[0].type.rank - 1 in i.params["axes"]:
            emitter = b.at(i.loc, i.result.name)
            new[i.result] = _sum(emitter, i, decomposition, definitions, new)
            is_changed = True
        elif operands == i.operands:
            b.append(i)
        else:
            new.update(zip(i.results, replay(b, i, operands), strict=True))
    return b.block(block.parameters, [new.get(v, v) for v in block.results]) if is_changed else block


def _sum(b: Builder, i: Instruction, e: Instruction, definitions: dict[Value, Instruction], new: dict[Value, Value]) -> Value:
    """Emit the sum of a function of the eigenvalues of a decomposition."""
    y, w = i.operands[0], e.results[0]
    steps: dict[Value, Instruction] = {}
    fixed: dict[Value, None] = {}
    stack = [y]
    while stack:
        v = stack.pop()
        if v in definitions:
            steps[v] = definitions[v]
            stack += [x for x in definitions[v].operands if x not in steps]
        elif v is not w:
            fixed[v] = None
    order = [step for step in definitions.values() if step.result in steps]
    tangent = Value(w.type, "t")
    region = Block((w, *fixed, tangent), tuple(order), (y,))
    inner, last = Builder(b.loc, hint=b.hint), len(fixed) + 1
    own = [Value(v.type, v.name) for v in region.parameters]
    slope = inner.block(own, emit_jvp(inner, region, own, (0,), (last,), (0,), b.loc)[1:])
    operands = [*(new.get(v, v) for v in (w, *fixed)), b.full(1, w.type)]
    first, second = emit_jvp(b, slope, operands, (0,), (last,), (0,), b.loc)
    a, values, vectors = (new.get(v, v) for v in (e.operands[0], *e.results[:2]))
    total: Value = b.spectral_sum(a, vectors, values, new.get(y, y), first, second)
    batch_axes = tuple(axis for axis in i.params["axes"] if axis != y.type.rank - 1)
    return b.sum(total, axes=batch_axes) if batch_axes else total
