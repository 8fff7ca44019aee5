"""Choose the loops of a kernel that a GPU runs in parallel.

The iterations of a loop are distributed only if each reference that it writes has a fate (``analysis.independence``). The
blocks of a grid get copies of private or combined references. Within a block, each lane may only write elements of its own.
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

SHORT = 32
"""Trip count up to which an inner loop is not distributed over the lanes of a block."""


def perfect_nest(loop: Instruction) -> list[Instruction]:
    """Return the loop and, as long as a body is one loop and pure instructions, the loops inside it."""
    nest = [loop]
    while "combine" not in nest[-1].params:
        region = nest[-1].regions[0]
        inner = [i for i in region.instructions if i.regions]
        plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load) for i in region.instructions if not i.regions)
        if len(inner) != 1 or not plain or not is_independent(inner[0]) or "combine" in inner[0].params:
            break
        nest.append(inner[0])
    return nest


def linear_recurrence(loop: Instruction) -> tuple[Value, Value] | None:
    """Return the factor and the addend of a loop that carries one number x and computes x = factor * x + addend; None
    otherwise. 16-bit floats are excluded: they are rounded twice per step, which combined steps cannot reproduce."""
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
    factor, addend = (next(v for v in i.operands if v is not k) for i, k in ((product, before), (total, product.result)))
    return factor, addend


def scan_nest(loops: Loops, loop: Instruction) -> list[Instruction] | None:
    """Return the loops over the lines of a scan and the scan itself (or a linear recurrence) if the chunks of its lines can be
    distributed; None otherwise. The loops must contain nothing but the scan, each step must write elements of its own, and
    only combined results may be read later."""
    nest = [loop]
    while not nest[-1].params.get("scan") and linear_recurrence(nest[-1]) is None:
        region = nest[-1].regions[0]
        inner = [i for i in region.instructions if i.regions]
        plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load) for i in region.instructions if not i.regions)
        if len(inner) != 1 or not plain or not is_independent(nest[-1]) or not isinstance(inner[0].op, For):
            return None
        nest.append(inner[0])
    scan = nest[-1]
    region, scanned_count = scan.regions[0], len(scan.params.get("scan") or (1,))
    read = {v for i in walk(loops.body) for v in (*i.operands, *(u for r in i.regions for u in r.results))}
    combined = [(i.params.get("combine", ()), i.results[scanned_count if i is scan else 0 :]) for i in nest]
    passed = all(outer.regions[0].results == results for outer, (_, results) in zip(nest, combined[1:]))
    plain = all(isinstance(i.op, Elementwise | Constant | Extent | Load | Store | Prefetch) for i in region.instructions)
    if not plain or not passed or not read.isdisjoint(scan.results[:scanned_count]) or len({g[0] for g in combined}) > 1:
        return None
    if not all(_starts_with_identities(loops, i, scanned_count if i is scan else 0) for i in nest[1:]):
        return None
    fates = loops.fates(nest)
    return nest if fates is not None and set(fates.values()) <= {OWN} else None


def _starts_with_identities(loops: Loops, loop: Instruction, carried_count: int) -> bool:
    """Return whether each value that a loop combines, after ``carried_count`` other values, starts as the identity of its
    combiner."""
    for name, values in combined_values(loop.params.get("combine", ()), loop.operands[1 + carried_count :]):
        definition = loops.defined.get(values[0])
        identity = IDENTITIES[name](values[0].type.dtype)
        if definition is None or not isinstance(definition.op, Constant) or repr(definition.params["value"]) != repr(identity):
            return False
    return True


def _map_scan(loops: Loops, nest: Sequence[Instruction]) -> Instruction:
    """Return the loops of a scan, mapped. If the scan is along the contiguous axis, a block takes a chunk, unless it is a
    linear recurrence; otherwise a thread takes a chunk."""
    region, counter = nest[-1].regions[0], nest[-1].regions[0].parameters[0]
    inside = {v for i in walk(region) for v in i.results}
    accesses = [a for a in loops.accesses(region) if a.index]
    stores = [a for a in accesses if a.is_store] or accesses
    along = not stores or len(nest) == 1 or any(loops.varies_with(a.index[-1], counter, inside) for a in stores)
    along = along and linear_recurrence(nest[-1]) is None
    mapped = _with_mapping(nest[-1], "lane" if along else "chunk", _serial(region))
    return _map_nest((*nest[:-1], nest[-1]), "block" if along else "grid", mapped.regions[0], mapped.params["map"])


def map_loops(body: Block) -> Block:
    """Return a kernel's body whose loops have the parameter ``map``.

    At the top: "grid", a nest whose iterations are threads; "block", a nest whose iterations are blocks; or "serial". In a
    "block" or "serial" loop: "lane", distributed over the threads of a block; everything else is "serial". A scan is "lane",
    where a block takes a chunk, or "chunk", where a thread takes one; the loops around it are "block" or "grid".
    """
    loops = Loops(body)
    return Block(
        body.parameters, tuple(_map_top(loops, i) if isinstance(i.op, For) else i for i in body.instructions), body.results
    )


def _map_top(loops: Loops, loop: Instruction) -> Instruction:
    if any(isinstance(i.op, Product) for i in walk(loop.regions[0])):
        return _all_serial(loop)
    if calls_library(loop):
        return _all_serial(loop) if batch_of(loop) else _map_calling_loop(loops, loop)
    scan = scan_nest(loops, loop)
    if scan is not None:
        return _map_scan(loops, scan)
    if not is_independent(loop):
        return _with_mapping(loop, "serial", _map_block_body(loops, loop.regions[0]))
    nest = perfect_nest(loop)
    by_depth = [(k, loops.fates(nest[:k])) for k in range(len(nest), 0, -1)]
    allowed = [(k, fates) for k, fates in by_depth if fates is not None]
    choices = [(k, fates, _map_block_body(loops, nest[k - 1].regions[0])) for k, fates in allowed]
    if not choices:
        return _with_mapping(loop, "serial", _map_block_body(loops, loop.regions[0]))
    own = [c for c in choices if set(c[1].values()) <= {OWN}]
    with_lanes = [c for c in choices if _has_lanes(c[2])]
    depth, fates, inner = (own or with_lanes or choices)[0]
    if _has_lanes(inner) or set(fates.values()) - {OWN}:
        return _map_nest(nest[:depth], "block", inner)
    return _map_nest(nest[:depth], "grid", _serial(nest[depth - 1].regions[0]))


def _map_calling_loop(loops: Loops, loop: Instruction) -> Instruction:
    """Return a loop with library calls among other work, mapped so that a block runs an iteration, and all threads of the
    block run each call together."""
    nest = perfect_nest(loop) if is_independent(loop) else []
    for depth in range(len(nest), 0, -1):
        fates = loops.fates(nest[:depth])
        if fates is not None and set(fates.values()) <= {OWN, PRIVATE}:
            return _map_nest(nest[:depth], "block", _map_block_body(loops, nest[depth - 1].regions[0]))
    return _with_mapping(loop, "serial", _map_block_body(loops, loop.regions[0]))


def _has_lanes(block: Block) -> bool:
    return any(i.params.get("map") == "lane" for i in walk(block))


def _map_nest(nest: Sequence[Instruction], how: str, inner: Block, last: str = "") -> Instruction:
    """Return a nest mapped ``how``, with ``inner`` as the body of its last loop, which is mapped ``last`` if that is set."""
    mapped = _with_mapping(nest[-1], last or how, inner)
    for before, loop in zip(reversed(nest[1:]), reversed(nest[:-1])):
        region = loop.regions[0]
        instructions = tuple(mapped if i is before else i for i in region.instructions)
        mapped = _with_mapping(loop, how, Block(region.parameters, instructions, region.results))
    return mapped


def _map_block_body(loops: Loops, block: Block) -> Block:
    """Return the body of a loop that whole blocks run, with its inner loops mapped."""
    return Block(block.parameters, tuple(_map_inner_loop(loops, i) for i in block.instructions), block.results)


def _map_inner_loop(loops: Loops, i: Instruction) -> Instruction:
    if not i.regions:
        return i
    if isinstance(i.op, If):
        return _all_serial(i)
    count = loops.defined.get(i.operands[0])
    is_short = i.params.get("short") or (count is not None and isinstance(count.op, Constant) and count.params["value"] <= SHORT)
    fates = loops.fates([i]) if is_independent(i) and not is_short and not calls_library(i) else None
    fails = any(isinstance(k.op, Fail) for k in walk(i.regions[0]))
    if fates is not None and set(fates.values()) <= {OWN} and not fails:
        return _with_mapping(i, "lane", _serial(i.regions[0]))
    return _with_mapping(i, "serial", _map_block_body(loops, i.regions[0]))


def _serial(block: Block) -> Block:
    return Block(block.parameters, tuple(_all_serial(i) if i.regions else i for i in block.instructions), block.results)


def _all_serial(i: Instruction) -> Instruction:
    regions = tuple(_serial(r) for r in i.regions)
    params = {**i.params, "map": "serial"} if isinstance(i.op, For) else i.params
    return Instruction(i.op, i.operands, i.results, params, regions, i.loc)


def _with_mapping(loop: Instruction, how: str, region: Block) -> Instruction:
    return Instruction(loop.op, loop.operands, loop.results, {**loop.params, "map": how}, (region,), loop.loc)
