"""Scans of one CUDA kernel: three launches, in which lines are cut into chunks.

First what each chunk combines to, then what comes before each, then the scan itself. Along the last axis a block has a chunk,
whose elements its threads take side by side; along another one a thread has a chunk, and its neighbours those of the next
lines. How many chunks there are depends on the extents only. Where lines are many each is one chunk, and the first launches do
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pullback.codegen.cuda_launch import MOST_BLOCKS, THREADS, Cut
from pullback.codegen.cuda_parts import Part
from pullback.codegen.cuda_spelling import identity, join_text
from pullback.codegen.cuda_stages import Stage, pre_of
from pullback.codegen.cuda_words import bare, literal, loaded, stored, type_name
from pullback.codegen.cuda_writer import Writer, digits
from pullback.ir.structure import Instruction

LEAST_BY_BLOCK, LEAST_BY_THREAD = 2048, 64
"""A chunk has so many steps, if a block or a thread takes it."""
MOST_UNITS = 1 << 17


class ScanText:
    """Writes the launches of a scan. ``totals``: the scratch buffers of the chunks' totals, by scan loop."""

    def __init__(self, emitter: Any) -> None:
        self.e = emitter
        self.totals: dict[Instruction, list[int]] = {}

    def write(self, w: Writer, number: int, stage: Stage) -> dict[str, Any]:
        loop = stage.nest[-1]
        by_block = loop.params["map"] == "lane"
        if stage.kind == "scan_totals":
            self.totals[loop] = [
                self.e.reserve(number + 2, f"{v.name or 'scan'}_total", v.type.dtype, () if by_block else (THREADS,))
                for v in loop.regions[0].parameters[1:]
            ]
        {"scan_totals": self.total, "scan_begin": self.begin, "scan": self.scan}[stage.kind](w, number, stage, by_block)
        lines = tuple(self.e.extent(i.operands[0]) for i in stage.nest[:-1])
        length = self.e.extent(loop.operands[0])
        least, most = (LEAST_BY_BLOCK, MOST_BLOCKS) if by_block else (LEAST_BY_THREAD, MOST_UNITS)
        cut = Cut(length=length, least=least, most=most, once=stage.kind == "scan_begin")
        return {"threads": THREADS, "count": lines, "per_block": 1 if by_block else THREADS, "cut": cut}

    # what the launches share

    def starts(self, w: Writer, loop: Instruction) -> list[str]:
        return [w.value(v) for v in loop.operands[1 : len(loop.regions[0].parameters)]]

    def kept(self, w: Writer, loop: Instruction, is_stored: bool) -> list[str]:
        return [self.e.memory(w, k, is_stored) for k in self.totals[loop]]

    def lines(self, w: Writer, nest: Sequence[Instruction]) -> str:
        """How many lines there are."""
        counts = [bare(w.value(i.operands[0])) for i in nest]
        return w.name("lines", " * ".join(counts)) if len(counts) > 1 else counts[0]

    @contextmanager
    def chunks(self, w: Writer, nest: Sequence[Instruction], loop: Instruction, by_block: bool) -> Iterator[tuple[str, str, str]]:
        """The chunks of a thread or block: the number of a chunk's total, its first step and the end of its steps."""
        count = bare(w.value(loop.operands[0]))
        if not nest:
            chunks = w.name("chunks", "gridDim.x")
            size = w.name("size", f"pb_chunk_size({count}, {chunks}, blockDim.x)")
            first = w.name("first", f"blockIdx.x * {size}")
            yield "blockIdx.x", first, w.name("end", f"pb_minimum({first} + {size}, {count})")
            return
        lines = self.lines(w, nest)
        units = "gridDim.x" if by_block else "gridDim.x * blockDim.x"
        chunks = w.name("chunks", f"pb_chunks({units}, {lines})")
        size = w.name("size", f"pb_chunk_size({count}, {chunks}, {'blockDim.x' if by_block else '1'})")
        unit = w.names.fresh("unit")
        start, step = ("blockIdx.x", "gridDim.x") if by_block else ("pb_first()", "pb_step()")
        with w.braces(f"for (long long {unit} = {start}; {unit} < {lines} * {chunks}; {unit} += {step}) {{"):
            line, chunk = (f"{unit} / {chunks}", f"{unit} % {chunks}") if by_block else (f"{unit} % {lines}", f"{unit} / {lines}")
            self.line(w, nest, line)
            first = w.name("first", f"({chunk}) * {size}")
            end = w.name("end", f"pb_minimum({first} + {size}, {count})")
            yield unit, first, end

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
        blocks = w.blocks(number + 1)
        if not nest:
            befores = self.before(w, loop, self.starts(w, loop))
            self.begin_by_block(w, loop, befores, "", blocks)
            return
        lines = self.lines(w, nest)
        chunks = w.name("chunks", f"pb_chunks({blocks if by_block else f'{blocks} * blockDim.x'}, {lines})")
        w.line(f"if ({chunks} == 1) return;")
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

    def parts(self, loop: Instruction) -> list[Part]:
        pairs = zip(loop.params["scan"], loop.regions[0].parameters[1:], strict=True)
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
            chunks = w.last["chunks"]
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
