"""emit, for CUDA: a kernel whose loops are mapped to a GPU as CUDA C that a person can read.

A kernel becomes launches, to be run one after the other on one stream; ``Launch.slots`` says what each takes, ``Scratch`` what
memory the kernel needs besides its arguments. Values keep their names, and comments give the user's lines. No result depends
on the order in which threads run: partial results are joined in a fixed tree, whose shape depends on the extents only. The
text needs no header; it is meant for compilation with ``-fmad=false``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pullback.codegen.cuda_device import DEVICE, functions
from pullback.codegen.cuda_loops import OWN, PRIVATE, Loops
from pullback.codegen.cuda_stages import Stage, stages
from pullback.codegen.cuda_words import TYPES, Names, stored_name, type_name
from pullback.codegen.cuda_writer import IDENTITY, Place, Writer, join_text
from pullback.ir.extents import value_of
from pullback.ir.op import OPS
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.ops.kernel import Gemm, Load, combined_values
from pullback.ir.structure import Function, Instruction, Value, walk
from pullback.ir.types import ArrayType, DType, RefType, Shape

THREADS = 256
MOST_BLOCKS = 1024
MOST_COPIED = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Memory of a kernel's own: an array of ``shape`` for each block of the launch numbered ``launch``."""

    name: str
    dtype: DType
    shape: Shape
    launch: int


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A device function and how to launch it: ``blocks(sizes)`` blocks of ``threads`` threads.

    ``slots``: what the arguments are, in order, as tuples ("pointer", position), ("stride", position, axis) in bytes, ("scalar",
    position, dtype), ("size", number), ("scratch", number), ("blocks", launch), ("status",), an int that starts as 0.
    """

    name: str
    slots: tuple[tuple[object, ...], ...]
    threads: int
    count: Shape
    per_block: int
    copied: tuple[Shape, ...] = ()

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """How many blocks share the iterations; a function of the sizes s0, s1, ... alone."""
        iterations = math.prod(value_of(e, sizes) for e in self.count)
        copied = sum(math.prod(value_of(e, sizes) for e in shape) for shape in self.copied)
        return max(1, min(-(-iterations // self.per_block), MOST_BLOCKS, MOST_COPIED // max(copied, 1)))


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """``text``: CUDA C that defines the functions of ``launches``, which run in that order."""

    name: str
    text: str
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]


def emit(kernel: Function, name: str) -> Emitted:
    """The CUDA C of a kernel scheduled for "cuda". Raises NotImplementedError on element types without a CUDA spelling."""
    return _Emitter(kernel, name).run()


class _Emitter:
    def __init__(self, kernel: Function, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.loops = Loops(kernel.body)
        self.stages = stages(kernel, self.loops)
        self.names = Names()
        for value in kernel.parameters:
            self.names.of(value)
        self.top = {v: i for i in kernel.body.instructions for v in i.results}
        self.scratch: list[Scratch] = []
        self.partial: dict[Instruction, list[int]] = {}
        self.copies: dict[tuple[int, Value], int] = {}
        self.saved: dict[Value, int] = {}
        self.position = {stage: k for k, stage in enumerate(self.stages)}
        self.maker = {v: stage for stage in self.stages for v in stage.made()}
        self.imports = [self.needed(stage)[1] for stage in self.stages]
        self.combiners: dict[str, None] = {}

    def run(self) -> Emitted:
        found = [self.launch(k, stage) for k, stage in enumerate(self.stages)]
        body = "\n\n".join(text for text, _ in found)
        own = {f"pb_{name}": _combiner(name) for name in OPS if f"pb_{name}" not in DEVICE and name in _JOINED}
        prelude = functions(body, own)
        return Emitted(
            name=self.name,
            text=f"{prelude}\n\n{body}\n" if prelude else f"{body}\n",
            launches=tuple(launch for _, launch in found),
            scratch=tuple(self.scratch),
        )

    def needed(self, stage: Stage) -> tuple[set[Instruction], set[Value]]:
        """What a launch computes again of the kernel's top level, and which values it gets from earlier launches."""
        again: set[Instruction] = set()
        imports: set[Value] = set()
        stack = list(stage.reads())
        while stack:
            value = stack.pop()
            made = self.top.get(value)
            if made is None or made in again:
                continue
            if value in self.maker:
                if self.maker[value] is not stage:
                    imports.add(value)
                continue
            again.add(made)
            stack.extend(made.operands)
        return again, imports

    def launch(self, number: int, stage: Stage) -> tuple[str, Launch]:
        """The text of one launch."""
        w = Writer(self.kernel, self.names, self.loops)
        again, imports = self.needed(stage)
        for value in self.kernel.parameters:
            self.parameter(w, value, stage)
        for i in self.kernel.body.instructions:
            if i in again:
                w.instruction(i)
            for value in i.results:
                if value in imports:
                    memory = w.scratch(self.saved[value], self.scratch[self.saved[value]])
                    w.let(value, f"{memory}[0]" + (" != 0" if value.type.dtype.is_bool else ""))
        count, per_block, copied = self.body(w, number, stage)
        self.save(w, number, stage)
        name = self.name if len(self.stages) == 1 else f"{self.name}_{number}"
        text = w.function(name)
        threads = 1 if stage.kind == "one" else THREADS
        return text, Launch(name=name, slots=w.slots(), threads=threads, count=count, per_block=per_block, copied=copied)

    def parameter(self, w: Writer, value: Value, stage: Stage) -> None:
        t = value.type
        if isinstance(t, ArrayType):
            w.scalar(value)
            return
        stored = stage.ref is value or value in self.written(stage)
        w.places[value] = Place(self.names.of(value), t, t.shape, value, stored)

    def written(self, stage: Stage) -> set[Value]:
        found = {r for i in stage.tail for r in self.written_by(i)}
        if stage.loop is not None and stage.kind not in ("finish", "fold"):
            found |= self.written_by(stage.loop)
        return found

    def written_by(self, i: Instruction) -> set[Value]:
        if i.regions:
            return self.loops.stored(i.regions[0])
        return {a.ref for a in self.loops.accesses(self.kernel.body) if a.instruction is i and a.is_store}

    def body(self, w: Writer, number: int, stage: Stage) -> tuple[Shape, int, tuple[Shape, ...]]:
        """The statements of a launch; returns the extents whose iterations are shared out, how many a block takes, and the
        shapes that every block has a copy of."""
        match stage.kind:
            case "one":
                for i in stage.tail:
                    w.instruction(i)
                return (), 1, ()
            case "gemm":
                return self.gemm(w, stage)
            case "fold":
                return self.fold(w, number, stage)
            case "finish":
                self.finish(w, number, stage)
                return (), 1, ()
            case "serial":
                assert stage.loop is not None
                w.enter_blocks(stage.loop)
                w.instruction(stage.loop)
                self.tail(w, stage)
                return (), 1, ()
        return self.shared_out(w, number, stage)

    def tail(self, w: Writer, stage: Stage) -> None:
        w.in_block = False
        if not stage.tail:
            return
        w.sync()
        with w.braces("if (threadIdx.x == 0) {"):
            for i in stage.tail:
                w.instruction(i)
            self.save_all(w, stage, [v for i in stage.tail for v in i.results])

    def shared_out(self, w: Writer, number: int, stage: Stage) -> tuple[Shape, int, tuple[Shape, ...]]:
        """A nest whose iterations are threads or blocks."""
        loop, inner = stage.loop, stage.nest[-1]
        assert loop is not None
        counts = tuple(w.extent_of(i.operands[0]) for i in stage.nest)
        copied: list[Shape] = []
        if stage.kind == "block":
            w.enter_blocks(inner)
            for ref, fate in stage.fates.items():
                if fate != OWN:
                    copied.append(self.copy(w, number, ref, fate))
        combine = loop.params.get("combine") or ()
        dtypes = [v.type.dtype for v in loop.results]
        parts = w.accumulators(combine, loop.results)
        with w.nest(stage.nest, counts, stage.kind == "grid"):
            w.nest_body(stage.nest)
            w.take(parts, [w.value(v) for v in inner.regions[0].results])
        if combine:
            self.partials(w, number, loop, w.totals(parts, stage.kind == "grid"), dtypes)
        return counts, THREADS if stage.kind == "grid" else 1, tuple(copied)

    def copy(self, w: Writer, number: int, ref: Value, fate: str) -> Shape:
        """Give each block a copy of what it writes, at first without effect on what it is added to."""
        t, place = ref.type, w.places[ref]
        assert isinstance(t, RefType)
        index = self.new_scratch(number, f"{place.text}_{'rows' if fate == PRIVATE else 'parts'}", t.dtype, t.shape)
        self.copies[(number, ref)] = index
        memory, size = w.scratch(index, self.scratch[index], True), w.size_text(t.shape)
        own = self.names.fresh(f"{place.text}_own")
        w.line(f"{stored_name(t.dtype)}* {own} = {memory} + blockIdx.x * {size};")
        w.places[ref] = Place(own, t, t.shape, None, True)
        if fate != PRIVATE:
            n = self.names.fresh("n")
            with w.braces(f"for (long long {n} = threadIdx.x; {n} < {size}; {n} += blockDim.x) {{"):
                w.line(f"{own}[{n}] = {IDENTITY[fate](t.dtype)};")
            w.sync()
        return t.shape

    def new_scratch(self, number: int, name: str, dtype: DType, shape: Shape) -> int:
        self.scratch.append(Scratch(name=self.names.fresh(name), dtype=dtype, shape=shape, launch=number))
        return len(self.scratch) - 1

    def partials(self, w: Writer, number: int, loop: Instruction, totals: Sequence[str], dtypes: Sequence[DType]) -> None:
        """Keep the partial results of a block for the launch that joins them."""
        self.partial[loop] = []
        with w.braces("if (threadIdx.x == 0) {"):
            for value, total, dtype in zip(loop.results, totals, dtypes, strict=True):
                index = self.new_scratch(number, f"{self.names.of(value)}_parts", dtype, ())
                self.partial[loop].append(index)
                w.line(f"{w.scratch(index, self.scratch[index], True)}[blockIdx.x] = {total};")

    def finish(self, w: Writer, number: int, stage: Stage) -> None:
        """One block joins the partial results."""
        loop = stage.loop
        assert loop is not None
        combine = loop.params["combine"]
        memory = [w.scratch(k, self.scratch[k]) for k in self.partial[loop]]
        parts, k = w.accumulators(combine, loop.results), self.names.fresh("k")
        source = self.scratch[self.partial[loop][0]].launch
        with w.braces(f"for (long long {k} = threadIdx.x; {k} < {w.blocks(source)}; {k} += blockDim.x) {{"):
            w.take(parts, [f"{m}[{k}]" + (" != 0" if v.type.dtype.is_bool else "") for m, v in zip(memory, loop.results, strict=True)])
        w.results(loop, w.totals(parts, True))
        self.tail(w, stage)

    def fold(self, w: Writer, number: int, stage: Stage) -> tuple[Shape, int, tuple[Shape, ...]]:
        """Add the copies of all blocks to a result, block after block."""
        ref = stage.ref
        assert ref is not None
        t = ref.type
        assert isinstance(t, RefType)
        index = next(k for (launch, value), k in self.copies.items() if value is ref and self.stages[launch].loop is stage.loop)
        name, source = stage.fates[ref], self.scratch[index].launch
        memory, place, n, k = w.scratch(index, self.scratch[index]), w.pointer(w.places[ref]), self.names.fresh("n"), self.names.fresh("k")
        size, test = w.size_text(t.shape), " != 0" if t.dtype.is_bool else ""
        with w.braces(f"for (long long {n} = pb_first(); {n} < {size}; {n} += pb_step()) {{"):
            result = Value(ArrayType(t.dtype), "all")
            parts = w.accumulators((name,), (result,))
            with w.braces(f"for (long long {k} = 0; {k} < {w.blocks(source)}; ++{k}) {{"):
                w.take(parts, [f"{memory}[{k} * {size} + {n}]{test}"])
            (total,) = w.totals(parts, False)
            w.line(f"{place}[{n}] = {join_text(name, t.dtype, f'{place}[{n}]{test}', total)};")
        return t.shape, THREADS, ()

    def gemm(self, w: Writer, stage: Stage) -> tuple[Shape, int, tuple[Shape, ...]]:
        """All blocks share out the tiles of a matrix product; products of a batch come one after the other."""
        assert stage.loop is not None
        inside = [stage.loop, *(i for r in stage.loop.regions for i in walk(r))]
        if any(isinstance(i.op, Load) for i in inside):
            raise NotImplementedError("a matrix product in a loop that also reads elements is not emitted for CUDA")
        w.instruction(stage.loop)
        product = next(i for i in inside if isinstance(i.op, Gemm))
        return w.shape_of(product.operands[2]), THREADS, ()

    def save(self, w: Writer, number: int, stage: Stage) -> None:
        """Keep what later launches read."""

    def save_all(self, w: Writer, stage: Stage, values: Sequence[Value]) -> None:
        """Keep what later launches read."""


def _combiner(name: str) -> str:
    return ""


_JOINED: frozenset[str] = frozenset()
