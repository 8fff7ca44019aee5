"""Scans of a CUDA kernel: three launches, in which lines are split into chunks.

The launches compute the total of each chunk, then the value before each chunk, then the scan itself. Along the contiguous axis
a block takes a chunk, and its threads take adjacent elements; along another axis a thread takes a chunk, and adjacent threads
take those of adjacent lines. The number of chunks depends on the extents only. With many lines, each is one chunk, and only
the last launch is needed.

A loop may also carry a linear recurrence, x = a * x + b. The total of a chunk is then a slope and an offset, and the value
before the next chunk is slope * x + offset, unless that would lose more than a few bits compared with executing the steps in
order (a slope out of range, two large numbers that cancel): in that case the thread executes the steps. Within chunks, all
steps are executed in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pullback.codegen.cuda.source.launch import MOST_BLOCKS, THREADS, Cut
from pullback.codegen.cuda.source.launch_writer import LaunchWriter
from pullback.codegen.cuda.source.names import bare, literal, loaded, stored, type_name
from pullback.codegen.cuda.source.partial_results import PartialResult
from pullback.codegen.cuda.source.scalar_ops import combine_expression, identity
from pullback.codegen.cuda.source.split_launches import Stage, scan_inputs
from pullback.codegen.cuda.source.statements import Writer, counters_from_index
from pullback.ir.core.structure import Instruction

LEAST_BY_BLOCK, LEAST_BY_THREAD = 2048, 1
"""Least steps of a chunk, if a block or if a thread takes it."""
MOST_UNSPLIT = 64
"""Steps up to which lines are not split: two more launches take longer."""
MOST_UNITS, MOST_OF_LINE = 1 << 17, 1 << 12
"""Most threads that take chunks, and most chunks of a line whose totals one thread combines."""


class ScanText:
    """Writes the launches of a scan. ``totals``: the scratch buffers of the chunks' totals, by scan loop; for a linear
    recurrence, of their offsets, and ``slopes``."""

    def __init__(self, emitter: LaunchWriter) -> None:
        self.e = emitter
        self.totals: dict[Instruction, list[int]] = {}
        self.slopes: dict[Instruction, int] = {}

    def write(self, w: Writer, stage_index: int, stage: Stage) -> dict[str, Any]:
        """Emit one launch of a scan; return arguments of ``Launch``."""
        loop = stage.nest[-1]
        by_block, is_linear = loop.params["map"] == "lane", not loop.params.get("scan")
        if stage.kind == "scan_totals":
            self.totals[loop] = [
                self.e.reserve(stage_index + 2, f"{v.name or 'scan'}_total", v.type.dtype, () if by_block else (THREADS,))
                for v in loop.regions[0].parameters[1:]
            ]
            if is_linear:
                self.slopes[loop] = self.e.reserve(stage_index + 2, "slope", loop.results[0].type.dtype, (THREADS,))
        if is_linear and stage.kind != "scan":
            {"scan_totals": self.total_recurrence, "scan_begin": self.begin_recurrence}[stage.kind](w, stage)
        else:
            {"scan_totals": self.total, "scan_begin": self.begin, "scan": self.scan}[stage.kind](w, stage_index, stage, by_block)
        lines = tuple(self.e.extent(i.operands[0]) for i in stage.nest[:-1])
        length = self.e.extent(loop.operands[0])
        least, most = (LEAST_BY_BLOCK, MOST_BLOCKS) if by_block else (LEAST_BY_THREAD, MOST_UNITS)
        cut = Cut(
            length=length, least=least, most=most, chunks=MOST_BLOCKS if by_block else MOST_OF_LINE, joined=MOST_UNSPLIT,
            once=stage.kind == "scan_begin", is_whole=None if stage.kind == "scan" else False,
        )  # fmt: skip
        return {"threads": THREADS, "count": lines, "per_block": 1 if by_block else THREADS, "cut": cut}

    # shared by the launches

    def starts(self, w: Writer, loop: Instruction) -> list[str]:
        """Return the initial values of what the scan carries."""
        return [w.value(v) for v in loop.operands[1 : len(loop.regions[0].parameters)]]

    def total_buffers(self, w: Writer, loop: Instruction, is_stored: bool) -> list[str]:
        """Return the pointers to the buffers of totals."""
        return [self.e.memory(w, k, is_stored) for k in self.totals[loop]]

    def lines(self, w: Writer, nest: Sequence[Instruction]) -> str:
        """Return the number of lines."""
        counts = [bare(w.value(i.operands[0])) for i in nest]
        return w.name("lines", " * ".join(counts)) if len(counts) > 1 else [*counts, "1"][0]

    @contextmanager
    def chunks(self, w: Writer, nest: Sequence[Instruction], loop: Instruction, by_block: bool) -> Iterator[tuple[str, str, str]]:
        """Emit a loop over the chunks of a thread or block; yield the index of a chunk's total, its first step and the end of
        its steps."""
        count, chunks = bare(w.value(loop.operands[0])), self.chunk_count(w)
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

    def chunk_count(self, w: Writer) -> str:
        """Return the number of chunks of a line."""
        return w.parameter("chunks", "int ", "chunks")

    def line(self, w: Writer, nest: Sequence[Instruction], text: str) -> None:
        """Emit the counters of the line with index ``text``, and the instructions that are invariant along it."""
        if not nest:
            return
        counters, counts = [w.counter(i) for i in nest], [bare(w.value(i.operands[0])) for i in nest]
        if len(nest) == 1:
            w.line(f"long long {counters[0]} = {text};")
        else:
            index = w.name("line", text)
            w.line(f"long long {', '.join(counters_from_index(index, counters, counts))};")
        for outer in nest:
            for i in outer.regions[0].instructions:
                if not i.regions:
                    w.instruction(i)

    # the launches

    def total(self, w: Writer, stage_index: int, stage: Stage, by_block: bool) -> None:
        """Emit the launch that computes the total of each chunk."""
        *nest, loop = stage.nest
        definitions, elements = scan_inputs(loop)
        with self.chunks(w, nest, loop, by_block) as (unit, first, end):
            parts = self.parts(loop)
            sums = [w.let_text(f"{p.text}_part", p.dtype, _identity(p)) for p in parts]
            t = w.counter(loop)
            begin, step = (f"{first} + threadIdx.x", f"{t} += blockDim.x") if by_block else (first, f"++{t}")
            with w.braces(f"for (long long {t} = {begin}; {t} < {end}; {step}) {{"):
                for i in definitions:
                    w.instruction(i)
                for part, total, element in zip(parts, sums, elements, strict=True):
                    w.line(f"{total} = {combine_expression(part.name, part.dtype, total, w.value(element))};")
            if by_block:
                types = [f"pb_{p.name}<{type_name(p.dtype)}>" for p in parts]
                sums = [w.let_text(f"{p.text}_all", p.dtype, f"pb_block<{t}>({s})") for p, t, s in zip(parts, types, sums)]
            buffers = zip(self.total_buffers(w, loop, True), sums, parts, strict=True)
            stores = [f"{ref}[{unit}] = {stored(text, p.dtype)};" for ref, text, p in buffers]
            self.by_first(w, stores, by_block)

    def by_first(self, w: Writer, lines: Sequence[str], by_block: bool) -> None:
        """Emit lines for a single thread: the first one of a block, if a whole block runs this."""
        if by_block:
            with w.braces("if (threadIdx.x == 0) {"):
                for text in lines:
                    w.line(text)
        else:
            for text in lines:
                w.line(text)

    def begin(self, w: Writer, stage_index: int, stage: Stage, by_block: bool) -> None:
        """Emit the launch that replaces the total of each chunk by the value before it."""
        *nest, loop = stage.nest
        chunks = self.chunk_count(w)
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
        """Declare variables for the scanned values before the current element."""
        names = []
        for value, text in zip(loop.regions[0].parameters[1:], texts, strict=True):
            name = w.names.fresh(f"{value.name or 'scan'}_before")
            w.line(f"{type_name(value.type.dtype)} {name} = {text};")
            names.append(name)
        return names

    def begin_by_block(self, w: Writer, loop: Instruction, befores: Sequence[str], line: str, chunks: str) -> None:
        base, at = w.names.fresh("base"), w.names.fresh("at")
        with w.braces(f"for (long long {base} = 0; {base} < {chunks}; {base} += blockDim.x) {{"):
            w.line(f"long long {at} = {f'{line} * {chunks} + ' if line else ''}{base} + threadIdx.x;")
            inside = f"{base} + threadIdx.x < {chunks}"
            for part, ref, before in zip(self.parts(loop), self.total_buffers(w, loop, True), befores, strict=True):
                total = f"{inside} ? {loaded(f'{ref}[{at}]', part.dtype)} : {_identity(part)}"
                text = w.let_text(f"{part.text}_sofar", part.dtype, self.scan_call(part, total, before))
                w.line(f"if ({inside}) {ref}[{at}] = {stored(text, part.dtype)};")

    def begin_by_thread(self, w: Writer, loop: Instruction, befores: Sequence[str], line: str, lines: str, chunks: str) -> None:
        k = w.names.fresh("k")
        with w.braces(f"for (long long {k} = 0; {k} < {chunks}; ++{k}) {{"):
            for part, ref, before in zip(self.parts(loop), self.total_buffers(w, loop, True), befores, strict=True):
                element = f"{ref}[{k} * {lines} + {line}]"
                total = w.let_text(f"{part.text}_chunk", part.dtype, loaded(element, part.dtype))
                w.line(f"{element} = {stored(before, part.dtype)};")
                w.line(f"{before} = {combine_expression(part.name, part.dtype, before, total)};")

    # linear recurrences

    def total_recurrence(self, w: Writer, stage: Stage) -> None:
        """Emit the launch that computes the slope and the offset of each chunk."""
        *nest, loop = stage.nest
        definitions, (factor, addend) = scan_inputs(loop)
        with self.chunks(w, nest, loop, False) as (unit, first, end):
            total, t = w.names.fresh("steps"), w.counter(loop)
            w.line(f"pb_line<{type_name(loop.results[0].type.dtype)}> {total};")
            with w.braces(f"for (long long {t} = {first}; {t} < {end}; ++{t}) {{"):
                for i in definitions:
                    w.instruction(i)
                w.line(f"{total}.then({w.value(factor)}, {w.value(addend)});")
            w.line(f"{self.e.memory(w, self.slopes[loop], True)}[{unit}] = {total}.slope_or_nan();")
            w.line(f"{self.total_buffers(w, loop, True)[0]}[{unit}] = {total}.offset;")

    def begin_recurrence(self, w: Writer, stage: Stage) -> None:
        """Emit the launch in which a thread for each line replaces the offset of each chunk by the value before it."""
        *nest, loop = stage.nest
        definitions, (factor, addend) = scan_inputs(loop)
        count, chunks, lines = bare(w.value(loop.operands[0])), self.chunk_count(w), self.lines(w, nest)
        size, dtype = w.name("size", f"pb_chunk_size({count}, {chunks}, 1)"), loop.results[0].type.dtype
        line, k, at = (w.names.fresh(hint) for hint in ("line", "k", "at"))
        with w.braces(f"for (long long {line} = pb_first(); {line} < {lines}; {line} += pb_step()) {{"):
            self.line(w, nest, line)
            (x,) = self.before(w, loop, self.starts(w, loop))
            with w.braces(f"for (long long {k} = 0; {k} < {chunks}; ++{k}) {{"):
                w.line(f"long long {at} = {f'{k} * {lines} + {line}' if nest else k};")
                slope = w.let_text("slope", dtype, f"{self.e.memory(w, self.slopes[loop])}[{at}]")
                offsets = self.total_buffers(w, loop, True)[0]
                offset = w.let_text("offset", dtype, f"{offsets}[{at}]")
                w.line(f"{offsets}[{at}] = {x};")
                w.line(f"if (pb_follows({x}, {slope}, {offset})) continue;")
                t = w.counter(loop)
                until = f"pb_minimum<long long>(({k} + 1) * {size}, {count})"
                with w.braces(f"for (long long {t} = {k} * {size}; {t} < {until}; ++{t}) {{"):
                    for i in definitions:
                        w.instruction(i)
                    product = combine_expression("mul", dtype, w.value(factor), x)
                    w.line(f"{x} = {combine_expression('add', dtype, product, w.value(addend))};")

    def parts(self, loop: Instruction) -> list[PartialResult]:
        pairs = zip(loop.params.get("scan", ("line",)), loop.regions[0].parameters[1:], strict=True)
        return [PartialResult(name, v.name or "scan", v.type.dtype) for name, v in pairs]

    def scan_call(self, part: PartialResult, value: str, before: str) -> str:
        """Return the call that scans the values of a block's threads, starting from ``before``."""
        return f"pb_scan<pb_{part.name}<{type_name(part.dtype)}>>({value}, {before})"

    def scan(self, w: Writer, stage_index: int, stage: Stage, by_block: bool) -> None:
        """Emit the launch of the scan and of everything that reads it; combined values are stored per block for the launch
        that joins them."""
        *nest, loop = stage.nest
        region = loop.regions[0]
        scanned = len(region.parameters) - 1
        outer = stage.nest[0]
        combined = outer.results[scanned:] if outer is loop else outer.results
        parts = w.accumulators(loop.params.get("combine") or (), combined)
        with self.chunks(w, nest, loop, by_block) as (unit, first, end):
            starts = self.starts(w, loop)
            chunks = self.chunk_count(w)
            buffers = zip(self.total_buffers(w, loop, False), self.parts(loop), starts, strict=True)
            texts = [f"{chunks} > 1 ? {loaded(f'{ref}[{unit}]', p.dtype)} : {s}" for ref, p, s in buffers]
            befores = self.before(w, loop, texts)
            if by_block:
                self.scan_by_block(w, loop, befores, first, end, parts)
            else:
                self.scan_by_thread(w, loop, befores, first, end, parts)
        if parts:
            self.e.store_partials(w, stage_index, outer, combined, w.totals(parts, True))

    def scan_by_block(
        self, w: Writer, loop: Instruction, befores: Sequence[str], first: str, end: str, parts: Sequence[PartialResult]
    ) -> None:
        """Emit the scan by a block: in each iteration a thread takes an element; threads beyond the end repeat the last
        element and contribute the identity."""
        region = loop.regions[0]
        definitions, elements = scan_inputs(loop)
        base, t = w.names.fresh("base"), w.counter(loop)
        with w.braces(f"for (long long {base} = {first}; {base} < {end}; {base} += blockDim.x) {{"):
            w.line(f"bool inside = {base} + threadIdx.x < {end};")
            w.line(f"long long {t} = inside ? {base} + threadIdx.x : {end} - 1;")
            for i in definitions:
                w.instruction(i)
            for part, value, element, before in zip(self.parts(loop), region.parameters[1:], elements, befores, strict=True):
                w.let(value, self.scan_call(part, f"inside ? {w.value(element)} : {_identity(part)}", before))
            with w.braces("if (inside) {"):
                for i in region.instructions:
                    if i not in definitions:
                        w.instruction(i)
                w.accumulate(parts, [w.value(v) for v in region.results[len(befores) :]])

    def scan_by_thread(
        self, w: Writer, loop: Instruction, befores: Sequence[str], first: str, end: str, parts: Sequence[PartialResult]
    ) -> None:
        region, t = loop.regions[0], w.counter(loop)
        w.texts.update(zip(region.parameters[1:], befores, strict=True))
        with w.braces(f"for (long long {t} = {first}; {t} < {end}; ++{t}) {{"):
            w.block(region)
            w.accumulate(parts, [w.value(v) for v in region.results[len(befores) :]])
            for before, value in zip(befores, region.results, strict=False):
                w.line(f"{before} = {w.value(value)};")


def _identity(part: PartialResult) -> str:
    """Return the literal of a scan combiner's identity; for sums, negative zero, which keeps the sign of a zero."""
    return literal(-0.0, part.dtype) if part.is_sum else identity(part.name, part.dtype)
