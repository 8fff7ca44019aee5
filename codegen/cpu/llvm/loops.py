"""Emit loops of a kernel.

A vector loop has a main part without masks and a remainder of masked vectors. If the body is light, the main part is unrolled
over several vectors, so that neither the loop counter nor the latency of dependent additions is the bottleneck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.llvm.accumulators import Accumulators
from pullback.codegen.cpu.llvm.addresses import Addresses, SerialAddresses, varying
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, vector_of
from pullback.codegen.cpu.llvm.overlapping_loads import Rows
from pullback.codegen.cpu.llvm.scan import Scans
from pullback.codegen.cpu.llvm.streaming import MOST_WEIGHT, Streams
from pullback.codegen.cpu.loops.unrolling import choose_unroll, is_short, lanes_of, weigh
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.ops.kernel.kernel import Load, Store

LAP = 64
"""The number of iterations after which partial sums are added to the next tier."""
MOST_WEIGHT_TWICE = 400
"""The greatest weight of a body that is emitted twice, with masks and without.

For larger bodies, and for loops with ``short`` inner loops, the compile time of a second copy outweighs the cost of a mask,
which is almost nothing on a machine with masked instructions.
"""
MOST_WEIGHT_UNMASKED = 40
"""The greatest weight of a body that is emitted twice where masks are registers and all accesses are contiguous.

For a heavier body, one masked copy is used: a mask with all lanes active until the last vector costs nothing.
"""
MOST_MASKED = 8
"""The greatest number of vectors whose sum is taken with masks alone in a kernel that a driver's loop has in place. The bits are
those of full vectors before a masked one, since all are in the lowest tier, and short rows and windows take half the time."""


def loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """Emit a loop of a kernel; return its results."""
    if i.params.get("map") == "vector" and e.width == 1 and not _ends_in_one_lane(e, i):
        return _vector_loop(e, i)
    combines = i.params.get("combine") is not None or i.params.get("scan")
    return _combining_loop(e, i) if combines else _serial_loop(e, i)


def counted(e: FunctionWriter, slot: str, limit: str, step: int, body: Callable[[str], None], leaf: bool = False) -> None:
    """Emit a loop that runs ``body`` while the counter in ``slot`` is below ``limit``. ``leaf``: as in ``_hide_index``."""
    with _head(e) as (head, inside, end):
        index = e.let(f"load i64, ptr {slot}")
        e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {limit}')}, label %{inside}, label %{end}")
        with e.conditional():
            e.label(inside, follows=True)
            body(_hide_index(e, index, leaf))
            e.line(f"store i64 {e.let(f'add i64 {index}, {step}')}, ptr {slot}")
            e.line(f"br label %{head}")


@contextmanager
def _head(e: FunctionWriter) -> Iterator[tuple[str, str, str]]:
    """Emit the head of a loop; yield the labels of its head, its body and the block after it."""
    e.count += 1
    head, inside, end = (f"{word}{e.count}" for word in ("head", "body", "end"))
    e.line(f"br label %{head}")
    e.label(head, follows=True)
    e.depth += 1
    yield head, inside, end
    e.depth -= 1
    e.label(end, follows=True)


def _hide_index(e: FunctionWriter, index: str, leaf: bool) -> str:
    """Return an index that LLVM's strength reduction does not see, except in a ``leaf``: scalar code without loops.

    Strength reduction takes a fifth of the compile time, and the addresses are already emitted as a base plus an index, which
    x86 addressing modes add for free.
    """
    return index if leaf else e.intrinsic("i64", "llvm.expect.i64", [("i64", index), ("i64", "0")])


def _counter(e: FunctionWriter) -> str:
    """Allocate a loop counter that starts at 0; return its slot."""
    slot = e.slot("i64")
    e.line(f"store i64 0, ptr {slot}")
    return slot


def _serial_loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """Emit a loop whose iterations run in order and may carry values."""
    (region,) = i.regions
    count, *initial = (e.env[v] for v in i.operands)
    dtypes = [v.type.dtype for v in i.results]
    types = [vector_of(element(d), e.width) for d in dtypes]
    starts = [e.vector(start, dtype) for start, dtype in zip(initial, dtypes, strict=True)]
    step = None if e.width > 1 else 0
    walks = SerialAddresses(e, region) if e.width > 1 else None
    before = e.current_block()
    with _head(e) as (head, inside, end):
        index, *names = [e.fresh() for _ in ("i64", *types)]
        first_line = len(e.lines)
        e.lines += [index, *names]
        e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {count.text}')}, label %{inside}, label %{end}")
        with e.conditional():
            e.label(inside, follows=True)
            visible_index = _hide_index(e, index, is_leaf(region))
            e.splats = dict(e.splats)
            e.env[region.parameters[0]] = Lanes(visible_index)
            for parameter, name in zip(region.parameters[1:], names, strict=True):
                e.env[parameter] = Lanes(name, step)
            _serial_body(e, region, walks, visible_index)
            after = [e.vector(e.env[value], dtype) for value, dtype in zip(region.results, dtypes, strict=True)]
            after.insert(0, e.let(f"add i64 {index}, 1"))
            last = e.current_block()
            e.line(f"br label %{head}")
        carried = zip((index, *names), ("i64", *types), ("0", *starts), after, strict=True)
        # values hoisted out of an enclosing vector loop have moved these lines
        for k, (name, t, start, value) in enumerate(carried, e.lines.index(index, first_line)):
            e.lines[k] = f"  {name} = phi {t} [ {start}, %{before} ], [ {value}, %{last} ]"
    return [Lanes(name, step) for name in names]


def _serial_body(e: FunctionWriter, region: Block, walks: SerialAddresses | None, index: str) -> None:
    """Emit the body of a serial loop at an index."""
    if walks is None:
        saved_varying, e.outer_varying = e.outer_varying, varying(region)
        e.block(region)
        e.outer_varying = saved_varying
        return
    saved = e.bases, e.in_serial_loop
    e.bases, e.in_serial_loop = walks.at(index), True
    e.block(walks.body)
    e.bases, e.in_serial_loop = saved


def _combining_loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """Emit a serial loop that reduces the values that its iterations yield, and may scan."""
    (region,) = i.regions
    count, *initial = (e.env[v] for v in i.operands)
    scans = Scans(e, i, initial, e.width)
    dtypes, yielded = [v.type.dtype for v in i.results[scans.count :]], region.results[scans.count :]
    sums = Accumulators(e, i.params.get("combine", ()), dtypes, e.width)
    walks = SerialAddresses(e, region) if e.width > 1 else None

    def body(index: str) -> None:
        e.splats = dict(e.splats)
        e.env[region.parameters[0]] = Lanes(index)
        scans.bind()
        _serial_body(e, region, walks, index)
        scans.store_results()
        sums.combine([e.vector(e.env[v], d) for v, d in zip(yielded, dtypes, strict=True)], None)

    slot = _counter(e)
    _in_tiers(e, slot, count.text, 1, sums, lambda limit: counted(e, slot, limit, 1, body, is_leaf(region)))
    start = [e.vector(v, d) for v, d in zip(initial[scans.count :], dtypes, strict=True)]
    step = None if e.width > 1 else 0
    return [Lanes(text, step) for text in (*scans.totals(), *sums.join(start, sums.total(), e.width))]


def _in_tiers(
    e: FunctionWriter, slot: str, limit: str, step: int, sums: Accumulators, run: Callable[[str], None], is_last: str = "false"
) -> None:
    """Emit a loop in tiers: ``run`` emits iterations up to a limit.

    Every ``LAP`` iterations the partial sums of floats are added to the second tier, and every 4,096 iterations to the third.
    The sums of the last iteration stay in the first tier.
    """
    if not sums.sums:
        run(limit)
        return
    e.count += 1
    head, inside, full, end = (f"{word}{e.count}" for word in ("tier", "part", "full", "whole"))
    e.line(f"br label %{head}")
    e.label(head, follows=True)
    index = e.let(f"load i64, ptr {slot}")
    e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {limit}')}, label %{inside}, label %{end}")
    e.label(inside, follows=True)
    next_index = e.let(f"add i64 {index}, {LAP * step}")
    until = e.intrinsic("i64", "llvm.smin.i64", [("i64", next_index), ("i64", limit)])
    with e.conditional():
        run(until)
        if is_last != "false":
            kept = f"more{e.count}"
            e.line(f"br i1 {is_last}, label %{end}, label %{kept}")
            e.label(kept, follows=True)
        sums.flush(0)
        low = e.let(f"and i64 {next_index}, {LAP * LAP * step - 1}")
        e.line(f"br i1 {e.let(f'icmp eq i64 {low}, 0')}, label %{full}, label %{head}")
        e.label(full, follows=True)
        sums.flush(1)
        e.line(f"br label %{head}")
    e.label(end)


def _with_rest(e: FunctionWriter, slot: str, count: str, sums: Accumulators, body: Callable[[str, int], None]) -> None:
    """Emit one masked body for all iterations: the mask has all lanes until the last, partial vector, which runs the same code
    once more.

    The partial sums of that last vector stay in the lowest tier.
    """
    c = vector_of("i1", e.width)
    full_count = e.let(f"and i64 {count}, {-e.width}")
    mask, limit = e.slot(c), e.slot("i64")
    e.line(f"store {c} {e.all_lanes()}, ptr {mask}")
    e.line(f"store i64 {full_count}, ptr {limit}")
    e.count += 1
    main, last, end = (f"{word}{e.count}" for word in ("again", "last", "end"))
    e.line(f"br label %{main}")
    e.label(main, follows=True)

    def masked(index: str) -> None:
        e.mask = e.let(f"load {c}, ptr {mask}")
        body(index, 0)
        e.mask = None

    until = e.let(f"load i64, ptr {limit}")
    is_last = e.let(f"icmp sgt i64 {until}, {full_count}")
    with e.conditional():
        _in_tiers(e, slot, until, e.width, sums, lambda limit: counted(e, slot, limit, e.width, masked), is_last)
    index = e.let(f"load i64, ptr {slot}")
    e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {count}')}, label %{last}, label %{end}")
    with e.conditional():
        e.label(last, follows=True)
        e.line(f"store {c} {first_lanes(e, count, index)}, ptr {mask}")
        e.line(f"store i64 {count}, ptr {limit}")
        e.line(f"br label %{main}")
    e.label(end, follows=True)


def _vector_loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """Emit a vector loop in the form that its body and the target's masks suggest; return its results."""
    (region,) = i.regions
    count, *initial = (e.env[v] for v in i.operands)
    scans = Scans(e, i, initial, 1)
    dtypes, yielded = [v.type.dtype for v in i.results[scans.count :]], region.results[scans.count :]
    combine = i.params.get("combine") or ()
    e.width = width = choose_width(e, region)
    weight = weigh(region, combine)
    short, most = is_short(region), i.params.get("max_trip_count")
    has_one_tier = short or (most is not None and most <= LAP * width)
    is_whole = i.params.get("multiple", 1) % width == 0
    unroll = 1 if e.inlined or has_one_tier or is_whole else choose_unroll(weight, width, count.literal, len(i.results))
    sums = Accumulators(e, combine, dtypes, width, unroll, has_one_tier)
    e.scans.update(scans.scan_by_parameter(unroll))
    addresses = Addresses(e, region)
    outer, e.repeated = e.env, addresses.repeated()
    e.start, e.hoisted, e.index = (len(e.lines), e.count), {}, region.parameters[0]
    slot = _counter(e)

    def body(index: str, part: int) -> None:
        e.env, e.splats = dict(outer), {}
        e.env[region.parameters[0]] = Lanes(index, 1)
        e.part, e.bases = part, addresses.at(index)
        e.block(addresses.body)
        sums.combine([e.vector(e.env[v], d) for v, d in zip(yielded, dtypes, strict=True)], e.mask, part % unroll)

    def full(index: str) -> None:
        e.first_part_addresses = []
        for part in range(unroll if e.streams is None else e.streams.unroll):
            e.next_access = 0
            body(e.let(f"add i64 {index}, {part * width}") if part else index, part)
            if e.rows is not None:
                e.rows.keep()
        if e.streams is not None:
            e.streams.flush()

    def rest(index: str) -> None:
        e.mask = first_lanes(e, count.text, index)
        body(index, 0)
        e.mask = None

    rows: Rows | None = None
    totals: list[str] | None = None
    e.prefetches_ahead = weight > MOST_WEIGHT and not e.inlined and not e.has_own_prefetches
    heavy = weight > MOST_WEIGHT_TWICE and masks_are_cheap(e, region)
    if is_whole and count.literal == width and not combine and not scans.count:
        body("0", 0)
    elif short or (not is_whole and (heavy or (e.target.vector_bytes == 64 and (i.params.get("short") or has_one_tier)))):
        _in_tiers(e, slot, count.text, width, sums, lambda limit: counted(e, slot, limit, width, rest))
    elif _can_end_masked(e, i, weight, addresses) and not (rows := Rows(e, region, addresses)).row_by_load and not is_whole:
        _with_rest(e, slot, count.text, sums, body)
    else:
        step = width * unroll
        streams, rows = Streams(e, region, weight, unroll, addresses), rows or Rows(e, region, addresses)

        def run(limit: str) -> None:
            if streams.test is not None:
                with e.when(streams.test), streams:
                    whole = limit if streams.unroll == unroll else e.let(f"and i64 {limit}, {-streams.unroll * width}")
                    counted(e, slot, whole, streams.unroll * width, full)
            rows.run(slot, limit, lambda: counted(e, slot, limit, step, full))

        def whole() -> None:
            _in_tiers(e, slot, e.let(f"and i64 {count.text}, {-step}"), step, sums, run)
            if not is_whole:
                counted(e, slot, count.text, width, rest)

        if sums.sums and e.inlined and e.is_single_chunk and weight <= MOST_WEIGHT_UNMASKED and masks_are_cheap(e, region):
            totals = _few_vectors(e, count.text, sums, lambda: counted(e, slot, count.text, width, rest), whole)
        else:
            whole()
    e.prefetches_ahead, e.part, e.bases, e.repeated, e.start, e.hoisted, e.index = False, 0, {}, set(), None, {}, None
    if totals is None:
        totals = sums.across(sums.total()) if combine else []
    scans.end()
    e.env, e.width = outer, 1
    return [Lanes(text) for text in (*scans.totals(), *sums.join([v.text for v in initial[scans.count :]], totals, 1))]


def _few_vectors(
    e: FunctionWriter, count: str, sums: Accumulators, few: Callable[[], None], whole: Callable[[], None]
) -> list[str]:
    """Emit a combining vector loop in two forms: ``few`` for at most ``MOST_MASKED`` vectors; return the combined values."""
    slots = [e.slot(element(d)) for d in sums.dtypes]

    def keep(values: list[str]) -> None:
        for value, slot, dtype in zip(sums.across(values), slots, sums.dtypes, strict=True):
            e.line(f"store {element(dtype)} {value}, ptr {slot}")

    e.count += 1
    short, long, end = (f"{word}{e.count}" for word in ("few", "more", "both"))
    e.line(f"br i1 {e.let(f'icmp sle i64 {count}, {MOST_MASKED * e.width}')}, label %{short}, label %{long}")
    for label, run, combined in ((short, few, sums.joined_parts), (long, whole, sums.total)):
        with e.conditional():
            e.label(label, follows=True)
            run()
            keep(combined())
            e.line(f"br label %{end}")
    e.label(end, follows=True)
    return [e.let(f"load {element(d)}, ptr {slot}") for d, slot in zip(sums.dtypes, slots, strict=True)]


def _ends_in_one_lane(e: FunctionWriter, i: Instruction) -> bool:
    """Return whether the last vector is known to hold one lane.

    A masked store of that lane alone can overrun its element where the value is also narrowed (LLVM 22 on x86).
    """
    count = e.env[i.operands[0]].literal
    return count is not None and count % choose_width(e, i.regions[0]) == 1


def choose_width(e: FunctionWriter, region: Block) -> int:
    """Return the number of lanes, set by the widest element of the loop; positions do not count."""
    return lanes_of(e.target.vector_bytes, region)


def first_lanes(e: FunctionWriter, count: str, index: str) -> str:
    """Return the mask of the lanes of the vector at ``index`` that are below ``count``."""
    left = e.let(f"sub i64 {count}, {index}")
    lanes = ", ".join(f"i64 {k}" for k in range(e.width))
    return e.let(f"icmp slt {vector_of('i64', e.width)} <{lanes}>, {e.broadcast(Lanes(left), 'i64', e.width)}")


def _can_end_masked(e: FunctionWriter, i: Instruction, weight: int, addresses: Addresses) -> bool:
    """Return whether a loop uses one masked body for all iterations.

    This requires a heavy body, masks in registers, and contiguous accesses only, none of them to kernel-local memory: a load
    from a masked store in the preceding loop cannot be forwarded and stalls.
    """
    (region,) = i.regions
    accesses = [k for k in region.instructions if isinstance(k.op, Load | Store)]
    is_plain = is_leaf(region) and not i.params.get("scan") and all(k in addresses.first for k in accesses)
    types = (ref_and_index(k)[0].type for k in accesses)
    is_shared = all(isinstance(t, RefType) and t.space == "global" for t in types)
    return e.target.vector_bytes == 64 and weight > MOST_WEIGHT_UNMASKED and is_plain and is_shared


def masks_are_cheap(e: FunctionWriter, region: Block) -> bool:
    """Return whether the target has masked instructions for all accesses of a body: AVX-512 for any element, AVX2 for 4 or 8
    bytes."""
    references = (i.operands[1 if isinstance(i.op, Store) else 0].type for i in walk(region) if isinstance(i.op, Load | Store))
    words = all(not t.dtype.is_bool and t.dtype.bytes >= 4 for t in references)
    return e.target.vector_bytes == 64 or (e.target.vector_bytes == 32 and words)


def is_leaf(region: Block) -> bool:
    """Return whether a body has no loops or branches."""
    return not any(i.regions for i in region.instructions)
