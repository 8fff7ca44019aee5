"""Which loops of a kernel a GPU runs side by side.

A loop is shared out only if each reference that it writes has a fate (``analysis.independence``). The blocks of a grid get copies
of what is private or combined. Within a block, lanes may only write places of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.independence import IDENTITIES, OWN, PRIVATE, Loops, is_independent
from pullback.codegen.analysis.library_loops import batch_of, calls_library
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, Fail, For, If, Load, Prefetch, Store, combined_values
from pullback.ir.ops.kernel.matmul import Product

FEW = 32


def perfect_nest(loop: Instruction) -> list[Instruction]:
    """The loop and, as long as a body is one loop and pure instructions, the loops in it."""
    nest = [loop]
    while "combine" not in nest[-1].params:
        region = nest[-1].regions[0]
        inner = [i for i in region.instructions if i.regions]
        plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load) for i in region.instructions if not i.regions)
        if len(inner) != 1 or not plain or not is_independent(inner[0]) or "combine" in inner[0].params:
            break
        nest.append(inner[0])
    return nest


def linear(loop: Instruction) -> tuple[Value, Value] | None:
    """What a loop that carries one number multiplies it by and adds at each step; None if it does anything else with it. Floats
    of 16 bits are rounded twice a step, which several steps at once cannot be."""
    region = loop.regions[0]
    if loop.params.get("combine") or loop.params.get("scan") or len(region.parameters) != 2:
        return None
    before, (after,) = region.parameters[1], region.results
    product = next((i for i in region.instructions if before in i.operands), None)
    total = next((i for i in region.instructions if product and not {*product.results}.isdisjoint(i.operands)), None)
    if product is None or total is None or (product.op.name, total.op.name) != ("mul", "add") or total.result is not after:
        return None
    uses = [v for i in walk(region) for v in i.operands]
    if uses.count(before) != 1 or uses.count(product.result) != 1 or (before.type.dtype.is_float and before.type.dtype.bytes < 4):
        return None
    factor, term = (next(v for v in i.operands if v is not k) for i, k in ((product, before), (total, product.result)))
    return factor, term


def scan_nest(loops: Loops, loop: Instruction) -> list[Instruction] | None:
    """The loops over the lines of a scan and the scan, or what is linear in the number that it carries, if chunks of lines can be
    shared out: all that a line is is its scan, each step writes places of its own, and only what is combined is read later."""
    nest = [loop]
    while not nest[-1].params.get("scan") and linear(nest[-1]) is None:
        region = nest[-1].regions[0]
        inner = [i for i in region.instructions if i.regions]
        plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load) for i in region.instructions if not i.regions)
        if len(inner) != 1 or not plain or not is_independent(nest[-1]) or not isinstance(inner[0].op, For):
            return None
        nest.append(inner[0])
    scan = nest[-1]
    region, number = scan.regions[0], len(scan.params.get("scan") or (1,))
    read = {v for i in walk(loops.body) for v in (*i.operands, *(u for r in i.regions for u in r.results))}
    given = [(i.params.get("combine", ()), i.results[number if i is scan else 0 :]) for i in nest]
    passed = all(outer.regions[0].results == found for outer, (_, found) in zip(nest, given[1:]))
    plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load | Store | Prefetch) for i in region.instructions)
    if not plain or not passed or not read.isdisjoint(scan.results[:number]) or len({g[0] for g in given}) > 1:
        return None
    if not all(_begins_with_nothing(loops, i, number if i is scan else 0) for i in nest[1:]):
        return None
    fates = loops.fates(nest)
    return nest if fates is not None and set(fates.values()) <= {OWN} else None


def _begins_with_nothing(loops: Loops, loop: Instruction, number: int) -> bool:
    """Whether what a loop combines, behind ``number`` other values, begins with what changes nothing."""
    for name, values in combined_values(loop.params.get("combine", ()), loop.operands[1 + number :]):
        made = loops.defined.get(values[0])
        nothing = IDENTITIES[name](values[0].type.dtype)
        if made is None or not isinstance(made.op, Constant) or repr(made.params["value"]) != repr(nothing):
            return False
    return True


def _scanned(loops: Loops, nest: Sequence[Instruction]) -> Instruction:
    """The loops of a scan, mapped. Along the last axis of memory a block takes a chunk, unless steps are linear."""
    region, counter = nest[-1].regions[0], nest[-1].regions[0].parameters[0]
    inside = {v for i in walk(region) for v in i.results}
    accesses = [a for a in loops.accesses(region) if a.index]
    stores = [a for a in accesses if a.is_store] or accesses
    along = not stores or len(nest) == 1 or any(loops.moves_with(a.index[-1], counter, inside) for a in stores)
    along = along and linear(nest[-1]) is None
    made = _with(nest[-1], "lane" if along else "chunk", _serial(region))
    return _nested((*nest[:-1], nest[-1]), "block" if along else "grid", made.regions[0], made.params["map"])


def map_loops(body: Block) -> Block:
    """A kernel's body whose loops say how a GPU runs them.

    At the top: "grid", a nest whose iterations are threads; "block", a nest whose iterations are blocks; or "serial". In a
    "block" or "serial" loop: "lane", shared out among the threads of a block; everything else is "serial". A scan is "lane", a
    chunk of it a block, or "chunk", a chunk a thread; loops around it are "block" or "grid".
    """
    loops = Loops(body)
    return Block(body.parameters, tuple(_top(loops, i) if isinstance(i.op, For) else i for i in body.instructions), body.results)


def _top(loops: Loops, loop: Instruction) -> Instruction:
    if any(isinstance(i.op, Product) for i in walk(loop.regions[0])):
        return _all_serial(loop)
    if calls_library(loop):
        return _all_serial(loop) if batch_of(loop) else _whole(loops, loop)
    scan = scan_nest(loops, loop)
    if scan is not None:
        return _scanned(loops, scan)
    if not is_independent(loop):
        return _with(loop, "serial", _in_block(loops, loop.regions[0]))
    nest = perfect_nest(loop)
    by_depth = [(k, loops.fates(nest[:k])) for k in range(len(nest), 0, -1)]
    allowed = [(k, fates) for k, fates in by_depth if fates is not None]
    choices = [(k, fates, _in_block(loops, nest[k - 1].regions[0])) for k, fates in allowed]
    if not choices:
        return _with(loop, "serial", _in_block(loops, loop.regions[0]))
    own = [c for c in choices if set(c[1].values()) <= {OWN}]
    with_lanes = [c for c in choices if _has_lanes(c[2])]
    depth, fates, inner = (own or with_lanes or choices)[0]
    if _has_lanes(inner) or set(fates.values()) - {OWN}:
        return _nested(nest[:depth], "block", inner)
    return _nested(nest[:depth], "grid", _serial(nest[depth - 1].regions[0]))


def _whole(loops: Loops, loop: Instruction) -> Instruction:
    """A loop with calls of a library among other work: a block runs an iteration, and each call, as a whole."""
    nest = perfect_nest(loop) if is_independent(loop) else []
    for depth in range(len(nest), 0, -1):
        fates = loops.fates(nest[:depth])
        if fates is not None and set(fates.values()) <= {OWN, PRIVATE}:
            return _nested(nest[:depth], "block", _in_block(loops, nest[depth - 1].regions[0]))
    return _with(loop, "serial", _in_block(loops, loop.regions[0]))


def _has_lanes(block: Block) -> bool:
    return any(i.params.get("map") == "lane" for i in walk(block))


def _nested(nest: Sequence[Instruction], how: str, inner: Block, last: str = "") -> Instruction:
    """A nest mapped ``how``, with ``inner`` the body of its last loop, which is mapped ``last`` if that is another way."""
    made = _with(nest[-1], last or how, inner)
    for before, loop in zip(reversed(nest[1:]), reversed(nest[:-1])):
        region = loop.regions[0]
        instructions = tuple(made if i is before else i for i in region.instructions)
        made = _with(loop, how, Block(region.parameters, instructions, region.results))
    return made


def _in_block(loops: Loops, block: Block) -> Block:
    """The body of a loop that whole blocks run."""
    return Block(block.parameters, tuple(_in_block_loop(loops, i) for i in block.instructions), block.results)


def _in_block_loop(loops: Loops, i: Instruction) -> Instruction:
    if not i.regions:
        return i
    if isinstance(i.op, If):
        return _all_serial(i)
    count = loops.defined.get(i.operands[0])
    few = i.params.get("short") or (count is not None and isinstance(count.op, Constant) and count.params["value"] <= FEW)
    fates = loops.fates([i]) if is_independent(i) and not few and not calls_library(i) else None
    fails = any(isinstance(k.op, Fail) for k in walk(i.regions[0]))
    if fates is not None and set(fates.values()) <= {OWN} and not fails:
        return _with(i, "lane", _serial(i.regions[0]))
    return _with(i, "serial", _in_block(loops, i.regions[0]))


def _serial(block: Block) -> Block:
    return Block(block.parameters, tuple(_all_serial(i) if i.regions else i for i in block.instructions), block.results)


def _all_serial(i: Instruction) -> Instruction:
    regions = tuple(_serial(r) for r in i.regions)
    params = {**i.params, "map": "serial"} if isinstance(i.op, For) else i.params
    return Instruction(i.op, i.operands, i.results, params, regions, i.loc)


def _with(loop: Instruction, how: str, region: Block) -> Instruction:
    return Instruction(loop.op, loop.operands, loop.results, {**loop.params, "map": how}, (region,), loop.loc)
