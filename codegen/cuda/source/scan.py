"""Scans of one CUDA kernel: three launches, in which lines are cut into chunks.

First what each chunk combines to, then what comes before each, then the scan itself. Along the last axis a block has a chunk,
whose elements its threads take side by side; along another one a thread has a chunk, and its neighbours those of the next
lines. How many chunks there are depends on the extents only. Where lines are many each is one chunk, and only the last launch is
made.

What a loop carries may also be linear in what it was, x = a * x + b. Then a chunk comes to a slope and an offset, and what comes
before the next one is slope * x + offset, unless that would lose more than a few bits against doing the steps in order (a slope
out of range, two large numbers that cancel): then that thread does them. Within chunks all steps are in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pullback.codegen.cuda.source.launch import MOST_BLOCKS, THREADS, Cut
from pullback.codegen.cuda.source.launch_writer import LaunchWriter
from pullback.codegen.cuda.source.names import bare, literal, loaded, stored, type_name
from pullback.codegen.cuda.source.partial_results import Part
from pullback.codegen.cuda.source.scalar_ops import identity, join_text
from pullback.codegen.cuda.source.split_launches import Stage, pre_of
from pullback.codegen.cuda.source.statements import Writer, digits
from pullback.ir.core.structure import Instruction

LEAST_BY_BLOCK, LEAST_BY_THREAD = 2048, 1
"""A chunk has so many steps, if a block or a thread takes it."""
WHOLE = 64
"""Lines of so many steps are not cut: two more launches take longer."""
MOST_UNITS, MOST_OF_LINE = 1 << 17, 1 << 12
"""Threads that have chunks, and chunks of a line whose totals one thread joins."""


class ScanText:
    """Writes the launches of a scan. ``totals``: the scratch buffers of the chunks' totals, by scan loop; of a linear one, of
    their offsets, and ``slopes``."""

    def __init__(self, emitter: LaunchWriter) -> None:
        self.e = emitter
        self.totals: dict[Instruction, list[int]] = {}
        self.slopes: dict[Instruction, int] = {}

    def write(self, w: Writer, number: int, stage: Stage) -> dict[str, Any]:
        loop = stage.nest[-1]
        by_block, is_linear = loop.params["map"] == "lane", not loop.params.get("scan")
        if stage.kind == "scan_totals":
            self.totals[loop] = [
                self.e.reserve(number + 2, f"{v.name or 'scan'}_total", v.type.dtype, () if by_block else (THREADS,))
                for v in loop.regions[0].parameters[1:]
            ]
            if is_linear:
                self.slopes[loop] = self.e.reserve(number + 2, "slope", loop.results[0].type.dtype, (THREADS,))
        if is_linear and stage.kind != "scan":
            {"scan_totals": self.total_line, "scan_begin": self.begin_line}[stage.kind](w, stage)
        else:
            {"scan_totals": self.total, "scan_begin": self.begin, "scan": self.scan}[stage.kind](w, number, stage, by_block)
        lines = tuple(self.e.extent(i.operands[0]) for i in stage.nest[:-1])
        length = self.e.extent(loop.operands[0])
        least, most = (LEAST_BY_BLOCK, MOST_BLOCKS) if by_block else (LEAST_BY_THREAD, MOST_UNITS)
        cut = Cut(
            length=length, least=least, most=most, chunks=MOST_BLOCKS if by_block else MOST_OF_LINE, joined=WHOLE,
            once=stage.kind == "scan_begin", is_whole=None if stage.kind == "scan" else False,
        )  # fmt: skip
        return {"threads": THREADS, "count": lines, "per_block": 1 if by_block else THREADS, "cut": cut}

    # what the launches share

    def starts(self, w: Writer, loop: Instruction) -> list[str]:
        return [w.value(v) for v in loop.operands[1 : len(loop.regions[0].parameters)]]

    def kept(self, w: Writer, loop: Instruction, is_stored: bool) -> list[str]:
        return [self.e.memory(w, k, is_stored) for k in self.totals[loop]]

    def lines(self, w: Writer, nest: Sequence[Instruction]) -> str:
        """How many lines there are."""
        counts = [bare(w.value(i.operands[0])) for i in nest]
        return w.name("lines", " * ".join(counts)) if len(counts) > 1 else [*counts, "1"][0]

    @contextmanager
    def chunks(self, w: Writer, nest: Sequence[Instruction], loop: Instruction, by_block: bool) -> Iterator[tuple[str, str, str]]:
        """The chunks of a thread or block: the number of a chunk's total, its first step and the end of its steps."""
        count, chunks = bare(w.value(loop.operands[0])), self.number(w)
        size = w.name("size", f"pb_chunk_size({count}, {chunks}, {'blockDim.x' if by_block else '1'})")
        if not nest and by_block:
            first = w.name("first", f"blockIdx.x * {size}")
            yield "blockIdx.x", first, w.name("end", f"pb_minimum<long long>({first} + {size}, {count})")
            return
        lines, unit = self.lines(w, nest) if nest else "", w.names.fresh("unit")
        start, step = ("blockIdx.x", "gridDim.x") if by_block else ("pb_first()", "pb_step()")
        total = f"{lines} * {chunks}" if nest else chunks
        with w.braces(f"for (long long {unit} = {start}; {unit} < {total}; {unit} += {step}) {{"):
            line, chunk = (f"{unit} / {chunks}", f"{unit} % {chunks}") if by_block else (f"{unit} % {lines}", f"{unit} / {lines}")
            self.line(w, nest, line)
            first = w.name("first", f"({chunk}) * {size}" if nest else f"{unit} * {size}")
            end = w.name("end", f"pb_minimum<long long>({first} + {size}, {count})")
            yield unit, first, end

    def number(self, w: Writer) -> str:
        """How many chunks a line has."""
        return w.parameter("chunks", "int ", "chunks")

    def line(self, w: Writer, nest: Sequence[Instruction], text: str) -> None:
        """The counters of a line, and what is computed for all of it."""
        if not nest:
            return
        counters, counts = [w.counter(i) for i in nest], [bare(w.value(i.operands[0])) for i in nest]
        if len(nest) == 1:
            w.line(f"long long {counters[0]} = {text};")
        else:
            number = w.name("line", text)
            w.line(f"long long {', '.join(digits(number, counters, counts))};")
        for outer in nest:
            for i in outer.regions[0].instructions:
                if not i.regions:
                    w.instruction(i)

    # the launches

    def total(self, w: Writer, number: int, stage: Stage, by_block: bool) -> None:
        *nest, loop = stage.nest
        made, elements = pre_of(loop)
        with self.chunks(w, nest, loop, by_block) as (unit, first, end):
            parts = self.parts(loop)
            sums = [w.let_text(f"{p.text}_part", p.dtype, _nothing(p)) for p in parts]
            t = w.counter(loop)
            begin, step = (f"{first} + threadIdx.x", f"{t} += blockDim.x") if by_block else (first, f"++{t}")
            with w.braces(f"for (long long {t} = {begin}; {t} < {end}; {step}) {{"):
                for i in made:
                    w.instruction(i)
                for part, total, element in zip(parts, sums, elements, strict=True):
                    w.line(f"{total} = {join_text(part.name, part.dtype, total, w.value(element))};")
            if by_block:
                types = [f"pb_{p.name}<{type_name(p.dtype)}>" for p in parts]
                sums = [w.let_text(f"{p.text}_all", p.dtype, f"pb_block<{t}>({s})") for p, t, s in zip(parts, types, sums)]
            kept = zip(self.kept(w, loop, True), sums, parts, strict=True)
            stores = [f"{ref}[{unit}] = {stored(text, p.dtype)};" for ref, text, p in kept]
            self.by_first(w, stores, by_block)

    def by_first(self, w: Writer, lines: Sequence[str], by_block: bool) -> None:
        """What one thread does if a whole block is at work."""
        if by_block:
            with w.braces("if (threadIdx.x == 0) {"):
                for text in lines:
                    w.line(text)
        else:
            for text in lines:
                w.line(text)

    def begin(self, w: Writer, number: int, stage: Stage, by_block: bool) -> None:
        """What comes before each chunk takes the place of its total."""
        *nest, loop = stage.nest
        chunks = self.number(w)
        if not nest:
            befores = self.before(w, loop, self.starts(w, loop))
            self.begin_by_block(w, loop, befores, "", chunks)
            return
        lines = self.lines(w, nest)
        line = w.names.fresh("line")
        start, step = ("blockIdx.x", "gridDim.x") if by_block else ("pb_first()", "pb_step()")
        with w.braces(f"for (long long {line} = {start}; {line} < {lines}; {line} += {step}) {{"):
            befores = self.before(w, loop, self.starts(w, loop))
            if by_block:
                self.begin_by_block(w, loop, befores, line, chunks)
            else:
                self.begin_by_thread(w, loop, befores, line, lines, chunks)

    def before(self, w: Writer, loop: Instruction, texts: Sequence[str]) -> list[str]:
        """Variables for what comes before the present element."""
        found = []
        for value, text in zip(loop.regions[0].parameters[1:], texts, strict=True):
            name = w.names.fresh(f"{value.name or 'scan'}_before")
            w.line(f"{type_name(value.type.dtype)} {name} = {text};")
            found.append(name)
        return found

    def begin_by_block(self, w: Writer, loop: Instruction, befores: Sequence[str], line: str, chunks: str) -> None:
        base, at = w.names.fresh("base"), w.names.fresh("at")
        with w.braces(f"for (long long {base} = 0; {base} < {chunks}; {base} += blockDim.x) {{"):
            w.line(f"long long {at} = {f'{line} * {chunks} + ' if line else ''}{base} + threadIdx.x;")
            inside = f"{base} + threadIdx.x < {chunks}"
            for part, ref, before in zip(self.parts(loop), self.kept(w, loop, True), befores, strict=True):
                given = f"{inside} ? {loaded(f'{ref}[{at}]', part.dtype)} : {_nothing(part)}"
                text = w.let_text(f"{part.text}_sofar", part.dtype, self.scanned(part, given, before))
                w.line(f"if ({inside}) {ref}[{at}] = {stored(text, part.dtype)};")

    def begin_by_thread(
        self, w: Writer, loop: Instruction, befores: Sequence[str], line: str, lines: str, chunks: str
    ) -> None:
        k = w.names.fresh("k")
        with w.braces(f"for (long long {k} = 0; {k} < {chunks}; ++{k}) {{"):
            for part, ref, before in zip(self.parts(loop), self.kept(w, loop, True), befores, strict=True):
                place = f"{ref}[{k} * {lines} + {line}]"
                total = w.let_text(f"{part.text}_chunk", part.dtype, loaded(place, part.dtype))
                w.line(f"{place} = {stored(before, part.dtype)};")
                w.line(f"{before} = {join_text(part.name, part.dtype, before, total)};")

    # what is linear in what it was

    def total_line(self, w: Writer, stage: Stage) -> None:
        """The slope and the offset of each chunk."""
        *nest, loop = stage.nest
        made, (factor, term) = pre_of(loop)
        with self.chunks(w, nest, loop, False) as (unit, first, end):
            total, t = w.names.fresh("steps"), w.counter(loop)
            w.line(f"pb_line<{type_name(loop.results[0].type.dtype)}> {total};")
            with w.braces(f"for (long long {t} = {first}; {t} < {end}; ++{t}) {{"):
                for i in made:
                    w.instruction(i)
                w.line(f"{total}.then({w.value(factor)}, {w.value(term)});")
            w.line(f"{self.e.memory(w, self.slopes[loop], True)}[{unit}] = {total}.slope_or_nan();")
            w.line(f"{self.kept(w, loop, True)[0]}[{unit}] = {total}.offset;")

    def begin_line(self, w: Writer, stage: Stage) -> None:
        """A thread for each line: what comes before each chunk takes the place of its offset."""
        *nest, loop = stage.nest
        made, (factor, term) = pre_of(loop)
        count, chunks, lines = bare(w.value(loop.operands[0])), self.number(w), self.lines(w, nest)
        size, dtype = w.name("size", f"pb_chunk_size({count}, {chunks}, 1)"), loop.results[0].type.dtype
        line, k, at = (w.names.fresh(hint) for hint in ("line", "k", "at"))
        with w.braces(f"for (long long {line} = pb_first(); {line} < {lines}; {line} += pb_step()) {{"):
            self.line(w, nest, line)
            (x,) = self.before(w, loop, self.starts(w, loop))
            with w.braces(f"for (long long {k} = 0; {k} < {chunks}; ++{k}) {{"):
                w.line(f"long long {at} = {f'{k} * {lines} + {line}' if nest else k};")
                slope = w.let_text("slope", dtype, f"{self.e.memory(w, self.slopes[loop])}[{at}]")
                offsets = self.kept(w, loop, True)[0]
                offset = w.let_text("offset", dtype, f"{offsets}[{at}]")
                w.line(f"{offsets}[{at}] = {x};")
                w.line(f"if (pb_follows({x}, {slope}, {offset})) continue;")
                t = w.counter(loop)
                until = f"pb_minimum<long long>(({k} + 1) * {size}, {count})"
                with w.braces(f"for (long long {t} = {k} * {size}; {t} < {until}; ++{t}) {{"):
                    for i in made:
                        w.instruction(i)
                    product = join_text("mul", dtype, w.value(factor), x)
                    w.line(f"{x} = {join_text('add', dtype, product, w.value(term))};")

    def parts(self, loop: Instruction) -> list[Part]:
        pairs = zip(loop.params.get("scan", ("line",)), loop.regions[0].parameters[1:], strict=True)
        return [Part(name, v.name or "scan", v.type.dtype) for name, v in pairs]

    def scanned(self, part: Part, given: str, before: str) -> str:
        return f"pb_scan<pb_{part.name}<{type_name(part.dtype)}>>({given}, {before})"

    def scan(self, w: Writer, number: int, stage: Stage, by_block: bool) -> None:
        """The scan and all that reads it; what is combined is kept by block for the launch that joins it."""
        *nest, loop = stage.nest
        region = loop.regions[0]
        scanned = len(region.parameters) - 1
        outer = stage.nest[0]
        combined = outer.results[scanned:] if outer is loop else outer.results
        parts = w.accumulators(loop.params.get("combine") or (), combined)
        with self.chunks(w, nest, loop, by_block) as (unit, first, end):
            starts = self.starts(w, loop)
            chunks = self.number(w)
            kept = zip(self.kept(w, loop, False), self.parts(loop), starts, strict=True)
            texts = [f"{chunks} > 1 ? {loaded(f'{ref}[{unit}]', p.dtype)} : {s}" for ref, p, s in kept]
            befores = self.before(w, loop, texts)
            if by_block:
                self.scan_by_block(w, loop, befores, first, end, parts)
            else:
                self.scan_by_thread(w, loop, befores, first, end, parts)
        if parts:
            self.e.keep_partials(w, number, outer, combined, w.totals(parts, True))

    def scan_by_block(
        self, w: Writer, loop: Instruction, befores: Sequence[str], first: str, end: str, parts: Sequence[Part]
    ) -> None:
        """All threads take an element each, in turns; those behind the end do as the last one does, and give nothing."""
        region = loop.regions[0]
        made, elements = pre_of(loop)
        base, t = w.names.fresh("base"), w.counter(loop)
        with w.braces(f"for (long long {base} = {first}; {base} < {end}; {base} += blockDim.x) {{"):
            w.line(f"bool inside = {base} + threadIdx.x < {end};")
            w.line(f"long long {t} = inside ? {base} + threadIdx.x : {end} - 1;")
            for i in made:
                w.instruction(i)
            for part, value, element, before in zip(self.parts(loop), region.parameters[1:], elements, befores, strict=True):
                w.let(value, self.scanned(part, f"inside ? {w.value(element)} : {_nothing(part)}", before))
            with w.braces("if (inside) {"):
                for i in region.instructions:
                    if i not in made:
                        w.instruction(i)
                w.take(parts, [w.value(v) for v in region.results[len(befores) :]])

    def scan_by_thread(
        self, w: Writer, loop: Instruction, befores: Sequence[str], first: str, end: str, parts: Sequence[Part]
    ) -> None:
        region, t = loop.regions[0], w.counter(loop)
        w.texts.update(zip(region.parameters[1:], befores, strict=True))
        with w.braces(f"for (long long {t} = {first}; {t} < {end}; ++{t}) {{"):
            w.block(region)
            w.take(parts, [w.value(v) for v in region.results[len(befores) :]])
            for before, value in zip(befores, region.results, strict=False):
                w.line(f"{before} = {w.value(value)};")


def _nothing(part: Part) -> str:
    """What a scan's combiner changes nothing with, be it a zero's sign."""
    return literal(-0.0, part.dtype) if part.is_sum else identity(part.name, part.dtype)
