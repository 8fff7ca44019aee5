"""Loops in emitted LLVM code.

A vector loop has a main part without masks and a rest of masked vectors. Where the body is light, an iteration of the main part
takes several vectors, so that neither the counter nor the wait of one addition for another is what bounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.llvm.accumulators import Accumulators
from pullback.codegen.cpu.llvm.addresses import Addresses, Walks, varying
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, wide
from pullback.codegen.cpu.llvm.overlapping_loads import Rows
from pullback.codegen.cpu.llvm.scan import Scans
from pullback.codegen.cpu.llvm.streaming import MOST_WEIGHT, Streams
from pullback.codegen.cpu.loops.unrolling import choose_unroll, is_short, lanes_of, weigh
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.ops.kernel.kernel import Load, Store

LAP = 64
"""After so many iterations partial sums move up a tier."""
MOST_TWICE = 400
"""The most weight of a body that is written twice, with masks and without: LLVM's time for a large body, or for a loop that has
``short`` loops, is worth more than a mask, which a machine with masked instructions has for next to nothing."""
MOST_CHEAP = 40
"""The most weight of a body that is written twice where masks are registers of their own and all that it accesses lies side by
side: of a heavier one, a mask of all lanes until the last vector is no work."""


def loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """A loop of a kernel; returns its results."""
    if i.params.get("map") == "vector" and e.width == 1 and not _ends_in_one_lane(e, i):
        return _vector_loop(e, i)
    combines = i.params.get("combine") is not None or i.params.get("scan")
    return _combining_loop(e, i) if combines else _serial_loop(e, i)


def counted(e: FunctionWriter, slot: str, limit: str, step: int, body: Callable[[str], None], leaf: bool = False) -> None:
    """Run a body while the number in a slot is below a limit, which steps meet exactly or pass; ``leaf`` as ``_hidden`` says."""
    with _head(e) as (head, inside, end):
        index = e.let(f"load i64, ptr {slot}")
        e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {limit}')}, label %{inside}, label %{end}")
        with e.aside():
            e.label(inside, follows=True)
            body(_hidden(e, index, leaf))
            e.line(f"store i64 {e.let(f'add i64 {index}, {step}')}, ptr {slot}")
            e.line(f"br label %{head}")


@contextmanager
def _head(e: FunctionWriter) -> Iterator[tuple[str, str, str]]:
    """The names of a loop's blocks: its head, whose lines are written next, its body, and what comes after it."""
    e.count += 1
    head, inside, end = (f"{word}{e.count}" for word in ("head", "body", "end"))
    e.line(f"br label %{head}")
    e.label(head, follows=True)
    e.depth += 1
    yield head, inside, end
    e.depth -= 1
    e.label(end, follows=True)


def _hidden(e: FunctionWriter, index: str, leaf: bool) -> str:
    """An index, unless the body is a ``leaf``, scalar code without loops, hidden from LLVM's strength reduction, which takes a
    fifth of the time of a compilation to find addresses: a base and an index, as they are written, are what a processor adds for
    nothing."""
    return index if leaf else e.intrinsic("i64", "llvm.expect.i64", [("i64", index), ("i64", "0")])


def _counter(e: FunctionWriter) -> str:
    slot = e.slot("i64")
    e.line(f"store i64 0, ptr {slot}")
    return slot


def _serial_loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """A loop whose iterations run in order and may carry values."""
    (region,) = i.regions
    count, *initial = (e.env[v] for v in i.operands)
    dtypes = [v.type.dtype for v in i.results]
    types = [wide(element(d), e.width) for d in dtypes]
    starts = [e.vector(start, dtype) for start, dtype in zip(initial, dtypes, strict=True)]
    step = None if e.width > 1 else 0
    walks = Walks(e, region) if e.width > 1 else None
    before = e.here()
    with _head(e) as (head, inside, end):
        index, *names = [e.fresh() for _ in ("i64", *types)]
        place = len(e.lines)
        e.lines += [index, *names]
        e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {count.text}')}, label %{inside}, label %{end}")
        with e.aside():
            e.label(inside, follows=True)
            shown = _hidden(e, index, is_leaf(region))
            e.splats = dict(e.splats)
            e.env[region.parameters[0]] = Lanes(shown)
            for parameter, name in zip(region.parameters[1:], names, strict=True):
                e.env[parameter] = Lanes(name, step)
            _walk(e, region, walks, shown)
            after = [e.vector(e.env[value], dtype) for value, dtype in zip(region.results, dtypes, strict=True)]
            after.insert(0, e.let(f"add i64 {index}, 1"))
            last = e.here()
            e.line(f"br label %{head}")
        carried = zip((index, *names), ("i64", *types), ("0", *starts), after, strict=True)
        # what was spread before a vector loop around has moved these lines
        for k, (name, t, start, value) in enumerate(carried, e.lines.index(index, place)):
            e.lines[k] = f"  {name} = phi {t} [ {start}, %{before} ], [ {value}, %{last} ]"
    return [Lanes(name, step) for name in names]


def _walk(e: FunctionWriter, region: Block, walks: Walks | None, index: str) -> None:
    """The body of a serial loop, at an index."""
    if walks is None:
        around, e.around = e.around, varying(region)
        e.block(region)
        e.around = around
        return
    saved = e.bases, e.walks
    e.bases, e.walks = walks.at(index), True
    e.block(walks.body)
    e.bases, e.walks = saved


def _combining_loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    """A serial loop that combines what its iterations yield, and may scan."""
    (region,) = i.regions
    count, *initial = (e.env[v] for v in i.operands)
    scans = Scans(e, i, initial, e.width)
    dtypes, yielded = [v.type.dtype for v in i.results[scans.number :]], region.results[scans.number :]
    sums = Accumulators(e, i.params.get("combine", ()), dtypes, e.width)
    walks = Walks(e, region) if e.width > 1 else None

    def body(index: str) -> None:
        e.splats = dict(e.splats)
        e.env[region.parameters[0]] = Lanes(index)
        scans.bind()
        _walk(e, region, walks, index)
        scans.keep()
        sums.take([e.vector(e.env[v], d) for v, d in zip(yielded, dtypes, strict=True)], None)

    slot = _counter(e)
    _in_tiers(e, slot, count.text, 1, sums, lambda limit: counted(e, slot, limit, 1, body, is_leaf(region)))
    start = [e.vector(v, d) for v, d in zip(initial[scans.number :], dtypes, strict=True)]
    step = None if e.width > 1 else 0
    return [Lanes(text, step) for text in (*scans.totals(), *sums.join(start, sums.total(), e.width))]


def _in_tiers(
    e: FunctionWriter, slot: str, limit: str, step: int, sums: Accumulators, run: Callable[[str], None], is_last: str = "false"
) -> None:
    """``run`` runs iterations up to a limit. Every ``LAP`` move the partial sums of floats up a tier, every 4,096 those; those of
    the last iteration stay where they are."""
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
    far = e.let(f"add i64 {index}, {LAP * step}")
    until = e.intrinsic("i64", "llvm.smin.i64", [("i64", far), ("i64", limit)])
    with e.aside():
        run(until)
        if is_last != "false":
            kept = f"more{e.count}"
            e.line(f"br i1 {is_last}, label %{end}, label %{kept}")
            e.label(kept, follows=True)
        sums.flush(0)
        low = e.let(f"and i64 {far}, {LAP * LAP * step - 1}")
        e.line(f"br i1 {e.let(f'icmp eq i64 {low}, 0')}, label %{full}, label %{head}")
        e.label(full, follows=True)
        sums.flush(1)
        e.line(f"br label %{head}")
    e.label(end)


def _with_rest(e: FunctionWriter, slot: str, count: str, sums: Accumulators, body: Callable[[str, int], None]) -> None:
    """Iterations of whole vectors, then one of the lanes that are left, all of one text: its mask has every lane until then.
    What is added up last stays in the lowest tier."""
    c = wide("i1", e.width)
    whole = e.let(f"and i64 {count}, {-e.width}")
    mask, limit = e.slot(c), e.slot("i64")
    e.line(f"store {c} {e.all_lanes()}, ptr {mask}")
    e.line(f"store i64 {whole}, ptr {limit}")
    e.count += 1
    again, last, end = (f"{word}{e.count}" for word in ("again", "last", "end"))
    e.line(f"br label %{again}")
    e.label(again, follows=True)

    def masked(index: str) -> None:
        e.mask = e.let(f"load {c}, ptr {mask}")
        body(index, 0)
        e.mask = None

    until = e.let(f"load i64, ptr {limit}")
    is_last = e.let(f"icmp sgt i64 {until}, {whole}")
    with e.aside():
        _in_tiers(e, slot, until, e.width, sums, lambda limit: counted(e, slot, limit, e.width, masked), is_last)
    index = e.let(f"load i64, ptr {slot}")
    e.line(f"br i1 {e.let(f'icmp slt i64 {index}, {count}')}, label %{last}, label %{end}")
    with e.aside():
        e.label(last, follows=True)
        e.line(f"store {c} {first_lanes(e, count, index)}, ptr {mask}")
        e.line(f"store i64 {count}, ptr {limit}")
        e.line(f"br label %{again}")
    e.label(end, follows=True)


def _vector_loop(e: FunctionWriter, i: Instruction) -> list[Lanes]:
    (region,) = i.regions
    count, *initial = (e.env[v] for v in i.operands)
    scans = Scans(e, i, initial, 1)
    dtypes, yielded = [v.type.dtype for v in i.results[scans.number :]], region.results[scans.number :]
    combine = i.params.get("combine") or ()
    e.width = width = choose_width(e, region)
    weight = weigh(region, combine)
    short, most = is_short(region), i.params.get("max_trip_count")
    has_one_tier = short or (most is not None and most <= LAP * width)
    is_whole = i.params.get("multiple", 1) % width == 0
    unroll = 1 if e.inlined or has_one_tier or is_whole else choose_unroll(weight, width, count.literal, len(i.results))
    sums = Accumulators(e, combine, dtypes, width, unroll, has_one_tier)
    e.scans.update(scans.by_parameter(unroll))
    addresses = Addresses(e, region)
    outer, e.again = e.env, addresses.again()
    e.start, e.early, e.index = (len(e.lines), e.count), {}, region.parameters[0]
    slot = _counter(e)

    def body(index: str, part: int) -> None:
        e.env, e.splats = dict(outer), {}
        e.env[region.parameters[0]] = Lanes(index, 1)
        e.part, e.bases = part, addresses.at(index)
        e.block(addresses.body)
        sums.take([e.vector(e.env[v], d) for v, d in zip(yielded, dtypes, strict=True)], e.mask, part % unroll)

    def full(index: str) -> None:
        e.firsts = []
        for part in range(unroll if e.streams is None else e.streams.unroll):
            e.met = 0
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
    e.asks_ahead = weight > MOST_WEIGHT and not e.inlined and not e.kernel_asks
    heavy = weight > MOST_TWICE and masks_are_cheap(e, region)
    if is_whole and count.literal == width and not combine and not scans.number:
        body("0", 0)
    elif short or (not is_whole and (heavy or (e.target.vector_bytes == 64 and (i.params.get("short") or has_one_tier)))):
        _in_tiers(e, slot, count.text, width, sums, lambda limit: counted(e, slot, limit, width, rest))
    elif _can_end_masked(e, i, weight, addresses) and not (rows := Rows(e, region, addresses)).of and not is_whole:
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

        _in_tiers(e, slot, e.let(f"and i64 {count.text}, {-step}"), step, sums, run)
        if not is_whole:
            counted(e, slot, count.text, width, rest)
    e.asks_ahead, e.part, e.bases, e.again, e.start, e.early, e.index = False, 0, {}, set(), None, {}, None
    totals = sums.across(sums.total()) if combine else []
    scans.end()
    e.env, e.width = outer, 1
    return [Lanes(text) for text in (*scans.totals(), *sums.join([v.text for v in initial[scans.number :]], totals, 1))]


def _ends_in_one_lane(e: FunctionWriter, i: Instruction) -> bool:
    """Whether the last vector is known to hold one lane.

    A masked store of that lane alone can overrun its element where the value is also narrowed (LLVM 22 on x86).
    """
    count = e.env[i.operands[0]].literal
    return count is not None and count % choose_width(e, i.regions[0]) == 1


def choose_width(e: FunctionWriter, region: Block) -> int:
    """As many lanes as the widest element of the loop allows; positions do not count."""
    return lanes_of(e.target.vector_bytes, region)


def first_lanes(e: FunctionWriter, count: str, index: str) -> str:
    """The mask of the lanes of a vector at an index that are below a count."""
    left = e.let(f"sub i64 {count}, {index}")
    lanes = ", ".join(f"i64 {k}" for k in range(e.width))
    return e.let(f"icmp slt {wide('i64', e.width)} <{lanes}>, {e.spread(Lanes(left), 'i64', e.width)}")


def _can_end_masked(e: FunctionWriter, i: Instruction, weight: int, addresses: Addresses) -> bool:
    """Whether a body is heavy, masks are registers of their own, and it reads and writes nothing but neighbours; none in memory
    of the kernel's own, since what a phase stores under a mask, the next one waits for."""
    (region,) = i.regions
    accesses = [k for k in region.instructions if isinstance(k.op, Load | Store)]
    is_plain = is_leaf(region) and not i.params.get("scan") and all(k in addresses.first for k in accesses)
    types = (ref_and_index(k)[0].type for k in accesses)
    is_shared = all(isinstance(t, RefType) and t.space == "global" for t in types)
    return e.target.vector_bytes == 64 and weight > MOST_CHEAP and is_plain and is_shared


def masks_are_cheap(e: FunctionWriter, region: Block) -> bool:
    """Whether the machine has masked instructions for all that a body accesses: AVX-512 for any element, AVX2 for words."""
    references = (i.operands[1 if isinstance(i.op, Store) else 0].type for i in walk(region) if isinstance(i.op, Load | Store))
    words = all(not t.dtype.is_bool and t.dtype.bytes >= 4 for t in references)
    return e.target.vector_bytes == 64 or (e.target.vector_bytes == 32 and words)


def is_leaf(region: Block) -> bool:
    """Whether a body has no loops or branches."""
    return not any(i.regions for i in region.instructions)
