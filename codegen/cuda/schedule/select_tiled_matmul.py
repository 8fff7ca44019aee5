"""tiled: select the matrix products of a kernel that a GPU computes in tiles.

Requires: a lowered kernel. Keeps: its meaning. ``gemm`` becomes ``product``. A product stays if it is at the top of the body
or alone in a batch, that is, in loops there whose iterations write disjoint elements; the row count, the column count and the
trip counts have to be extents, from which the host computes the number of tiles. Any other product becomes loops.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.analysis.independence import OWN, Loops, is_independent
from pullback.codegen.analysis.library_loops import batch_of
from pullback.codegen.cuda.schedule.naive_matmul import expand_products
from pullback.codegen.fuse.matmul_fusion import HALVES
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import Op
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, Store, Subview, extent, load, store
from pullback.ir.ops.kernel.matmul import Product, product
from pullback.ir.ops.library.routines import gemm


def tiled(body: Block) -> Block:
    """Return a kernel's body whose products are tiled or expanded into loops."""
    body = replace(body, instructions=_with_products(body))
    loops = Loops(body)
    instructions: list[Instruction] = []
    for i in body.instructions:
        is_tiled = has_product(i) and _is_batch(loops, batch_nest(i))
        instructions.extend((i,) if is_tiled else expand_products(Block((), (i,))).instructions)
    return replace(body, instructions=tuple(instructions))


def equivalent_gemm(i: Instruction) -> Instruction | None:
    """Return the ``gemm`` equivalent to a product; None if its operands or its epilogue compute anything."""
    left, right, epilogue = i.regions
    reads = [_only_access(region, Load) for region in (left, right)]
    write = _only_access(epilogue, Store)
    if write is None or write.operands[0] is not epilogue.parameters[2] or write.operands[2:] != epilogue.parameters[:2]:
        return None
    refs, flags = [], []
    for region, read in zip((left, right), reads, strict=True):
        if read is None or read.results != region.results or {*read.operands[1:]} != {*region.parameters}:
            return None
        refs.append(read.operands[0])
        flags.append(read.operands[1:] != region.parameters)
    params = {**i.params, "transpose_a": flags[0], "transpose_b": flags[1]}
    return Instruction(gemm, (*refs, write.operands[1]), (), params, (), i.loc)


def _only_access(region: Block, kind: type[Op]) -> Instruction | None:
    """Return the only instruction of a region if it is a load or a store of a matrix by two indices; None otherwise."""
    (i, *others) = region.instructions or (None,)
    if i is None or others or not isinstance(i.op, kind) or getattr(i.op, "masked", False):
        return None
    return i if len(i.operands) == 3 + (kind is Store) else None


def has_product(i: Instruction) -> bool:
    return any(isinstance(k.op, Product) for k in (i, *(k for region in i.regions for k in walk(region))))


def batch_nest(i: Instruction) -> list[Instruction]:
    """Return the loops of a batch, outermost first, followed by the instruction in the innermost one: the product, if it is a
    batch."""
    nest = [i]
    while isinstance(nest[-1].op, For):
        inner = [k for k in nest[-1].regions[0].instructions if k.regions]
        if len(inner) != 1:
            break
        nest.append(inner[0])
    return nest


def extent_of(loops: Loops, value: Value) -> int | str | None:
    """Return a trip count, row count, column count or K as an extent; None if the kernel computes it."""
    definition = loops.defined.get(value)
    if definition is None or not isinstance(definition.op, Extent | Constant):
        return None
    size = definition.params["size" if isinstance(definition.op, Extent) else "value"]
    return size if isinstance(size, int | str) else None


def half_type(i: Instruction) -> str | None:
    """Return the 16-bit type from which the elements of both operands are converted; None if there is none."""
    left, right = (_before_cast(region) for region in i.regions[:2])
    if left is None or right is None or left.type != right.type:
        return None
    return left.type.dtype.name


def element_of(region: Block) -> tuple[list[Instruction], Value]:
    """Return the instructions that compute an operand's element, without a final conversion from a 16-bit type, and the
    element."""
    value = _before_cast(region) or region.results[0]
    return [i for i in region.instructions if value is region.results[0] or region.results[0] not in i.results], value


def _before_cast(region: Block) -> Value | None:
    definition = next((i for i in region.instructions if region.results[0] in i.results), None)
    if definition is None or definition.op.name != "cast" or definition.operands[0].type.dtype.name not in HALVES:
        return None
    return definition.operands[0]


def _is_batch(loops: Loops, nest: list[Instruction]) -> bool:
    *around, last = nest
    if not isinstance(last.op, Product) or last.params.get("combine"):
        return False
    counts = [loop.operands[0] for loop in around]
    if any(extent_of(loops, v) is None for v in (*counts, *last.operands[:2])):
        return False
    for loop, inner in zip(around, nest[1:]):
        others = [i for i in loop.regions[0].instructions if i is not inner]
        plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load | Subview) for i in others)
        if not is_independent(loop) or "combine" in loop.params or not plain:
            return False
    fates = loops.fates(around) if around else {}
    return fates is not None and set(fates.values()) <= {OWN}


def _with_products(block: Block) -> tuple[Instruction, ...]:
    """Return the instructions of a body with products in place of each ``gemm`` of real numbers, alone or in a batch. Any
    other library call is computed by a block."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        if batch_of(i) is None:
            instructions.append(i)
        elif i.op is gemm and len(i.operands[0].type.shape) == 2:
            _as_product(Builder(i.loc, instructions), i)
        else:
            inside = tuple(replace(r, instructions=_with_products(r)) for r in i.regions)
            instructions.append(replace(i, regions=inside) if i.regions else i)
    return tuple(instructions)


def _as_product(b: Builder, i: Instruction) -> None:
    """Append ``c = a @ b``, with either operand transposed, as a product."""
    left, right, out = i.operands
    assert isinstance(left.type, RefType) and isinstance(out.type, RefType)
    ta, tb = bool(i.params["transpose_a"]), bool(i.params["transpose_b"])
    shape = (*out.type.shape, left.type.shape[0 if ta else 1])
    sizes = [b.emit(extent, (), {"size": e})[0] for e in shape]
    regions = []
    for ref, names, is_transposed in ((left, "ip", ta), (right, "pj", tb)):
        index = [Value(scalar(I64), name) for name in names]
        inner = Builder(i.loc)
        (element,) = inner.emit(load, (ref, *(reversed(index) if is_transposed else index)))
        regions.append(inner.block(index, [element]))
    index = [Value(scalar(I64), name) for name in "ij"]
    total = Value(scalar(out.type.dtype), "sum")
    inner = Builder(i.loc)
    inner.emit(store, (total, out, *index))
    params = {"tf32": True} if i.params.get("tf32") else {}
    b.emit(product, sizes, params, [*regions, inner.block([*index, total], [])])
