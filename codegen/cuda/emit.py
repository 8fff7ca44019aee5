"""emit: the CUDA C of a kernel whose loops are mapped to a GPU, written to be read by a person.

A kernel becomes launches that run one after the other on one stream. ``Launch.slots`` lists the arguments of each; ``Scratch``
describes the memory that the kernel needs besides its arguments. Values keep their names, and comments repeat the user's
lines. No result depends on the order in which threads run: partial results are combined in a fixed tree, whose shape depends
on the extents only. The text needs no header; it is meant for compilation with ``-fmad=false``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pullback.codegen.analysis.independence import COMBINERS, OWN, PRIVATE
from pullback.codegen.analysis.library_loops import batch_of
from pullback.codegen.cuda.matmul.device_functions import PRODUCTS
from pullback.codegen.cuda.matmul.emit import ProductText, launch_bounds
from pullback.codegen.cuda.matmul.tensor_cores import UNITS
from pullback.codegen.cuda.source import vector_accesses as cuda_vector_accesses
from pullback.codegen.cuda.source.device_functions import DEVICE, functions
from pullback.codegen.cuda.source.device_linalg import FEWEST_THREADS, ROUTINES, has_routine, routine_of, threads_of
from pullback.codegen.cuda.source.function_text import Location
from pullback.codegen.cuda.source.launch import ALIGNMENT, LONG_THREADS, MANY_THREADS, THREADS, Launch, Launches
from pullback.codegen.cuda.source.launch_writer import LaunchWriter
from pullback.codegen.cuda.source.names import Names, loaded, stored, stored_name, type_name
from pullback.codegen.cuda.source.radix_sort import SORTING, SortText
from pullback.codegen.cuda.source.radix_sort import written as sort_written
from pullback.codegen.cuda.source.scalar_ops import combine_expression, identity
from pullback.codegen.cuda.source.scan import ScanText
from pullback.codegen.cuda.source.split_launches import Stage, library_call_of
from pullback.codegen.cuda.source.statements import Writer
from pullback.codegen.cuda.source.transposed_tiles import SIDE, write_tiles
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import ArrayType, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.library.routines import Library

LAUNCH_BOUNDS = {"gemm": "__launch_bounds__(256, 2) ", "block": f"__launch_bounds__({LONG_THREADS}, 1) "}
"""The launch bounds of kinds of launches: most threads of a block, and blocks that must fit on a multiprocessor."""
SHARED_BY_BLOCK = 512
"""The most bytes of shared memory that ``pb_block`` takes for each combiner and type."""


@dataclass(frozen=True, kw_only=True)
class Emitted(Launches):
    """Launches with their CUDA C. ``body``: the functions of ``launches``; ``text``: these and the device functions that they
    call."""

    body: str

    @property
    def text(self) -> str:
        return _with_device_functions(self.body)


def emit(kernel: Function, name: str) -> Emitted:
    """Return the CUDA C of a kernel scheduled for "cuda". Raises NotImplementedError for element types that CUDA C
    cannot express."""
    return _Emitter(kernel, name).run()


def emit_all(kernels: Sequence[Function]) -> str:
    """Return one text for several kernels, each under its own name; device functions occur once."""
    return join_kernels([emit(kernel, kernel.name) for kernel in kernels])


def join_kernels(kernels: Sequence[Emitted]) -> str:
    """Return one text for several emitted kernels."""
    return _with_device_functions("\n".join(kernel.body for kernel in kernels))


def _with_device_functions(body: str) -> str:
    own = {f"pb_{name}": _combiner(name) for name in sorted(COMBINERS) if f"pb_{name}" not in DEVICE}
    own |= SORTING | PRODUCTS | UNITS | ROUTINES
    prelude = functions(body, own)
    return f"{prelude}\n\n{body}" if prelude else body


class _Emitter(LaunchWriter):
    """Emits the launches of one kernel."""

    def __init__(self, kernel: Function, name: str) -> None:
        super().__init__(kernel)
        self.name = name
        self.copies: dict[tuple[Instruction, Value], int] = {}
        self.saved: dict[Value, int] = {}
        self.scans = ScanText(self)
        self.sorts = SortText(self)
        self.products = ProductText(self)
        self.stage_of = {v: stage for stage in self.stages for v in stage.computed()}
        self.needs = [self.needs_of(stage) for stage in self.stages]
        self.imported = {v for _, imports in self.needs for v in imports}

    def run(self) -> Emitted:
        """Emit all launches. Launches whose texts are equal share one function."""
        functions: dict[str, str] = {}
        launches = []
        for k, stage in enumerate(self.stages):
            if stage.kind == "routine" and not has_routine(library_call_of(stage_loop(stage)).op):
                launches.append(self.library_launch(stage))
                continue
            w, comment, launch = self.launch(k, stage)
            name = self.name if len(self.stages) == 1 else f"{self.name}_{k}"
            text = w.function("{}", comment, LAUNCH_BOUNDS.get(stage.kind) or launch_bounds(stage.kind))
            fixed = SHARED_BY_BLOCK * len(set(re.findall(r"pb_block<[^(]*", text)))
            launches.append(Launch(name=functions.setdefault(text, name), slots=w.slots(), fixed=fixed, **launch))
        body = "\n\n".join(text.replace("{}(", f"{name}(", 1) for text, name in functions.items()) + "\n"
        return Emitted(name=self.name, body=body, launches=tuple(launches), scratch=tuple(self.scratch))

    def needs_of(self, stage: Stage) -> tuple[set[Instruction], set[Value]]:
        """Return the top-level instructions that a launch recomputes, and the values that it reads from earlier launches."""
        recomputed: set[Instruction] = set()
        imports: set[Value] = set()
        stack = list(stage.reads())
        while stack:
            value = stack.pop()
            definition = self.top.get(value)
            if definition is None or definition in recomputed:
                continue
            if value not in self.stage_of:
                recomputed.add(definition)
                stack.extend(definition.operands)
            elif self.stage_of[value] is not stage:
                imports.add(value)
        return recomputed, imports

    def launch(self, index: int, stage: Stage) -> tuple[Writer, str, dict[str, Any]]:
        """Emit one launch; return its writer, its comment and the arguments of ``Launch`` for it."""
        w = Writer(self.kernel, self.names, self.loops)
        written = self.written(stage)
        for position, value in enumerate(self.kernel.parameters):
            if isinstance(value.type, RefType):
                w.locations[value] = Location(self.names.of(value), value.type, position, 0, True, value in written)
        recomputed, imports = self.needs[index]
        own = {v for i in stage.tail for v in i.results}
        dependents = self.dependents_of(recomputed, own | (set(stage.loop.results) if stage.loop is not None else set()))
        for i in self.kernel.body.instructions:
            for value in (v for v in i.results if v in imports):
                w.let(value, loaded(f"{self.memory(w, self.saved[value])}[0]", value.type.dtype))
            if i in recomputed and i not in dependents:
                w.instruction(i)
        after = [i for i in self.kernel.body.instructions if i in dependents or i in stage.tail]
        launch = self.body(w, index, stage, after)
        if stage.kind in ("block", "serial"):
            calls = [i for i in walk(stage_loop(stage).regions[0]) if isinstance(i.op, Library)]
            launch["orders"] = tuple(dict.fromkeys(e for i in calls for e in threads_of(i)))
        return w, _comment_of(stage, self.names), launch

    def dependents_of(self, recomputed: set[Instruction], values: set[Value]) -> set[Instruction]:
        """Return the recomputed instructions that depend on ``values``, which the launch itself computes."""
        dependents: set[Instruction] = set()
        for i in self.kernel.body.instructions:
            if i in recomputed and any(v in values for v in i.operands):
                dependents.add(i)
                values = values | set(i.results)
        return dependents

    def written(self, stage: Stage) -> set[Value]:
        """Return the parameters that a launch writes."""
        if stage.kind in ("scan_totals", "scan_begin"):
            return set()
        if stage.kind.startswith("sort_"):
            return sort_written(stage)
        if stage.kind == "fold":
            return {stage.ref} if stage.ref is not None else set()
        inside = set(stage.tail) | {k for i in stage.tail for r in i.regions for k in walk(r)}
        if stage.loop is not None and stage.kind != "finish":
            inside |= {stage.loop, *(k for r in stage.loop.regions for k in walk(r))}
        return {a.ref for a in self.loops.accesses(self.kernel.body) if a.is_store and a.instruction in inside}

    def body(self, w: Writer, index: int, stage: Stage, after: Sequence[Instruction]) -> dict[str, Any]:
        """Emit the statements of a launch; return arguments of ``Launch``: its threads, the extents of its distributed loops,
        the iterations per block, and the shapes that are copied for each block."""
        match stage.kind:
            case "one":
                for i in after:
                    w.instruction(i)
                self.save(w, stage)
                return {"threads": 1, "count": (), "per_block": 1}
            case "tiles_few" | "tiles_large" | "tiles_small" | "tiles_part" | "tiles_join":
                return self.products.write(w, index, stage)
            case "routine":
                return self.routine(w, stage)
            case "fold":
                return self.fold_copies(w, stage)
            case "scan_totals" | "scan_begin" | "scan":
                return self.scans.write(w, index, stage)
            case "sort_rows" | "sort_count" | "sort_begin" | "sort_place":
                return self.sorts.write(w, index, stage)
            case "finish":
                self.finish(w, stage)
                self.tail(w, stage, after)
                return {"threads": THREADS, "count": (), "per_block": 1}
            case "serial":
                assert stage.loop is not None
                w.enter_blocks(stage.loop.regions[0])
                w.instruction(stage.loop)
                self.tail(w, stage, after)
                return {"threads": THREADS, "count": (), "per_block": 1}
        return self.distributed_nest(w, index, stage)

    def tail(self, w: Writer, stage: Stage, after: Sequence[Instruction]) -> None:
        """Emit the instructions that one thread runs at the end of the launch."""
        w.in_block = False
        if not after and not stage.computed() & self.imported:
            return
        if stage.kind == "serial":
            w.sync()
        with w.braces("if (threadIdx.x == 0) {"):
            for i in after:
                w.instruction(i)
            self.save(w, stage)

    def save(self, w: Writer, stage: Stage) -> None:
        """Store the values that later launches read."""
        index = self.stages.index(stage)
        for value in (v for i in self.kernel.body.instructions for v in i.results if v in stage.computed() & self.imported):
            self.saved[value] = self.reserve(index, f"{self.names.of(value)}_saved", value.type.dtype, ())
            w.line(f"{self.memory(w, self.saved[value], True)}[0] = {stored(w.value(value), value.type.dtype)};")

    # loops

    def distributed_nest(self, w: Writer, index: int, stage: Stage) -> dict[str, Any]:
        """Emit a nest whose iterations are distributed over threads or blocks."""
        loop, inner = stage.loop, stage.nest[-1]
        assert loop is not None
        is_grid = stage.kind == "grid"
        self.own: dict[Value, RefType] = {}
        count = tuple(self.extent(i.operands[0]) for i in stage.nest)
        if stage.transposed is not None:
            write_tiles(w, stage.nest, stage.transposed)
            return {"threads": THREADS, "count": count, "per_block": SIDE * SIDE}
        copied: list[Shape] = []
        if not is_grid:
            w.enter_blocks(inner.regions[0])
            copied = [self.private_copy(w, index, ref, fate) for ref, fate in stage.fates.items() if fate != OWN]
            self.initialise_copies(w, stage)
        parts = w.accumulators(loop.params.get("combine") or (), loop.results)
        packs = cuda_vector_accesses.find_packs(w, inner.regions[0]) if is_grid else None
        with w.grid_stride_loop(stage.nest, is_grid, packs, parts):
            w.accumulate(parts, [w.value(v) for v in inner.regions[0].results])
        self.store_copies(w, stage)
        if parts:
            self.store_partials(w, index, loop, loop.results, w.totals(parts, is_grid))
        along = () if is_grid else tuple(dict.fromkeys(self.extent(i.operands[0]) for i in lane_loops(inner.regions[0])))
        local = tuple((shape, ref.type.dtype.bytes) for shape, ref in zip(copied, self.own, strict=True))
        return {
            "threads": THREADS if is_grid else LONG_THREADS, "count": count, "per_block": THREADS if is_grid else 1,
            "copied": tuple(copied), "is_private": {*stage.fates.values()} <= {OWN, PRIVATE}, "local": local, "along": along,
            "width": packs.width if packs else 1,
        }  # fmt: skip

    def private_copy(self, w: Writer, stage_index: int, ref: Value, fate: str) -> Shape:
        """Give each block a copy of a buffer that it writes: in shared memory if there is room, else in scratch memory. Return
        its shape."""
        location = w.locations[ref]
        t = location.type
        is_private = fate == PRIVATE
        index = self.reserve(stage_index, f"{location.text}_{'rows' if is_private else 'parts'}", t.dtype, t.shape, is_private)
        self.copies[(stage_loop(self.stages[stage_index]), ref)] = index
        name, own, size = stored_name(t.dtype), self.names.fresh(f"{location.text}_own"), w.product(t.shape)
        if not self.own:
            w.line("extern __shared__ uint4 pb_shared[];")
        at = "".join(f" + ({w.product(s.shape)} * {s.dtype.bytes} + {ALIGNMENT - 1}) / {ALIGNMENT}" for s in self.own.values())
        shared = w.parameter("shared", "int ", "shared")
        w.line(f"{name}* {own} = {shared} ? ({name}*)(pb_shared{at}) : {self.memory(w, index, True)} + blockIdx.x * {size};")
        w.locations[ref] = Location(own, t)
        self.own[ref] = t
        return t.shape

    def initialise_copies(self, w: Writer, stage: Stage) -> None:
        """Fill the blocks' copies with the identity of their combiner."""
        for ref, fate in stage.fates.items():
            if ref in self.own and fate != PRIVATE:
                dtype = ref.type.dtype
                nothing = stored(identity(fate, dtype), dtype)
                self.for_each_of_copy(w, ref, lambda n: f"{w.locations[ref].text}[{n}] = {nothing};")  # noqa: B023
        if set(stage.fates.values()) - {OWN, PRIVATE}:
            w.sync()

    def store_copies(self, w: Writer, stage: Stage) -> None:
        """Move combined copies from shared memory to scratch memory."""
        refs = [ref for ref, fate in stage.fates.items() if ref in self.own and fate != PRIVATE]
        if not refs:
            return
        w.sync()
        with w.braces("if (shared) {"):
            for ref in refs:
                parts = self.memory(w, self.copies[(stage_loop(stage), ref)], True)
                start = f"blockIdx.x * {w.product(self.own[ref].shape)}"
                self.for_each_of_copy(w, ref, lambda n: f"{parts}[{start} + {n}] = {w.locations[ref].text}[{n}];")  # noqa: B023

    def for_each_of_copy(self, w: Writer, ref: Value, text: Callable[[str], str]) -> None:
        """Emit a loop over the elements of a copy, distributed over the threads of the block. ``text`` returns the statement
        for an index."""
        n = self.names.fresh("n")
        with w.braces(f"for (long long {n} = threadIdx.x; {n} < {w.product(self.own[ref].shape)}; {n} += blockDim.x) {{"):
            w.line(text(n))

    def finish(self, w: Writer, stage: Stage) -> None:
        """Emit the launch of one block that combines the partial results of all blocks."""
        loop = stage_loop(stage)
        results = loop.results[len(loop.regions[0].parameters) - 1 :]
        parts, k = w.accumulators(loop.params["combine"], results), self.names.fresh("k")
        blocks = w.blocks(self.scratch[self.partial[loop][0]].launch)
        with w.braces(f"for (long long {k} = threadIdx.x; {k} < {blocks}; {k} += blockDim.x) {{"):
            pairs = zip(self.partial[loop], results, strict=True)
            w.accumulate(parts, [loaded(f"{self.memory(w, m)}[{k}]", v.type.dtype) for m, v in pairs])
        w.results(loop, w.totals(parts, True))

    def fold_copies(self, w: Writer, stage: Stage) -> dict[str, Any]:
        """Combine the copies of all blocks into a result: a block takes 32 elements at a time, whose copies are distributed
        over its warps."""
        ref = stage.ref
        assert ref is not None
        location, name = w.locations[ref], stage.fates[ref]
        t = location.type
        index = self.copies[(stage_loop(stage), ref)]
        base, n, k, size = *(self.names.fresh(hint) for hint in ("base", "n", "k")), w.product(t.shape)
        blocks, target = w.blocks(self.scratch[index].launch), f"{w.pointer(location)}[{n}]"
        with w.braces(f"for (long long {base} = blockIdx.x * 32; {base} < {size}; {base} += gridDim.x * 32) {{"):
            w.line(f"long long {n} = pb_minimum<long long>({base} + threadIdx.x % 32, {size} - 1);")
            parts = w.accumulators((name,), (Value(ArrayType(t.dtype), "all"),))
            with w.braces(f"for (long long {k} = threadIdx.x / 32; {k} < {blocks}; {k} += blockDim.x / 32) {{"):
                w.accumulate(parts, [loaded(f"{self.memory(w, index)}[{k} * {size} + {n}]", t.dtype)])
            (total,) = w.totals(parts, False)
            total = w.let_text("total", t.dtype, f"pb_warps<pb_{name}<{type_name(t.dtype)}>>({total})")
            joined = stored(combine_expression(name, t.dtype, loaded(target, t.dtype), total), t.dtype)
            w.line(f"if (threadIdx.x < 32 && {base} + threadIdx.x < {size}) {target} = {joined};")
        return {"threads": MANY_THREADS, "count": t.shape, "per_block": 32}

    def routine(self, w: Writer, stage: Stage) -> dict[str, Any]:
        """Emit the calls of a library routine, one block for each matrix of a batch."""
        loop = stage_loop(stage)
        nest, call = batch_of(loop) or [], library_call_of(loop)
        w.in_block = True
        if nest:
            with w.grid_stride_loop(nest, False):
                pass
        else:
            w.instruction(loop)
        count = tuple(self.extent(i.operands[0]) for i in nest)
        routine = routine_of(self.kernel, self.loops, nest, call, count)
        return {"threads": THREADS, "count": count, "per_block": 1, "around": threads_of(call), "routine": routine}

    def library_launch(self, stage: Stage) -> Launch:
        """Return the launch of a routine without CUDA C, which a library runs. Raises NotImplementedError if no library can
        either."""
        loop = stage_loop(stage)
        nest, call = batch_of(loop) or [], library_call_of(loop)
        routine = routine_of(self.kernel, self.loops, nest, call, tuple(self.extent(i.operands[0]) for i in nest))
        if routine is None:
            raise NotImplementedError(f"{call.op.name} has no CUDA spelling")
        return Launch(name="", slots=(), threads=FEWEST_THREADS, count=(), per_block=1, routine=routine)


def stage_loop(stage: Stage) -> Instruction:
    """Return the instruction that a launch implements."""
    if stage.loop is None:
        raise AssertionError(f"a launch of kind {stage.kind} has no loop")
    return stage.loop


def lane_loops(region: Block) -> list[Instruction]:
    """Return the loops whose iterations are distributed over the threads of a block."""
    return [i for i in walk(region) if i.params.get("map") == "lane"]


def _combiner(name: str) -> str:
    """Return the device function of a combiner that is an operator; integers wrap around."""
    op = OPS[name]
    assert isinstance(op, Elementwise)
    spelling = op.template("cuda", "f")
    wrapped = spelling.format("(unsigned long long)x", "(unsigned long long)y")
    return f"""\
template <class T> __device__ T pb_{name}(T x, T y) {{
    if constexpr (T(0.5) == T(0)) return (T)({wrapped});
    else return {spelling.format("x", "y")};
}}"""


def _comment_of(stage: Stage, names: Names) -> str:
    """Return the comment above a launch."""
    match stage.kind:
        case "grid":
            return f"A block for each tile of {SIDE} by {SIDE} elements." if stage.transposed else "A thread for each element."
        case "sort_rows":
            return "A block sorts a row."
        case "sort_count":
            return "How many elements of each chunk have each digit: a block for each chunk."
        case "sort_begin":
            return "Where elements of each digit and chunk go: a block for each row."
        case "sort_place":
            return "Elements go there: a block for each chunk."
        case "scan_totals":
            return f"What each chunk combines to: a {_unit(stage)} for each."
        case "scan_begin":
            return f"What comes before each chunk: a {_unit(stage)} for each line."
        case "scan":
            return f"The scan: a {_unit(stage)} for each chunk."
        case "block":
            return "A block for each row."
        case "finish":
            return f"One block joins what all blocks found: {', '.join(names.of(v) for v in stage_loop(stage).results)}."
        case "fold":
            assert stage.ref is not None
            return f"A block adds up what all blocks found, 32 elements of {names.of(stage.ref)} at a time, side by side."
        case "tiles_large":
            return "A block for each large tile of the product."
        case "tiles_small" | "tiles_part":
            return "A block for each small tile of the product, or for each part of the terms of one."
        case "tiles_few":
            return "A thread for each sum of a small product."
        case "tiles_join":
            return "A thread for each sum joins its parts."
        case "routine":
            name = library_call_of(stage_loop(stage)).op.name
            return f"A block for each matrix: {name}." if batch_of(stage_loop(stage)) else f"One block: {name}."
        case "serial":
            return "One block."
    return "One thread."


def _unit(stage: Stage) -> str:
    return "block" if stage.nest[-1].params["map"] == "lane" else "thread"
