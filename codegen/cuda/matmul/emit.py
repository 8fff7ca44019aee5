"""Emit the matrix products of a CUDA kernel: calls of ``pb_product`` with functions for their operands' elements and for their
sums.

An operand that is a matrix in memory, row-major or transposed, is passed as such; the elements of any other operand are
computed where they are fetched. The launches of a product are alternatives selected by the extents: large tiles, small tiles,
or small tiles with split-K, followed by a launch that adds up the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pullback.codegen.cuda.schedule.select_tiled_matmul import batch_nest, element_of, equivalent_gemm, extent_of, half_type
from pullback.codegen.cuda.source.device_linalg import routine_of
from pullback.codegen.cuda.source.launch import THREADS, Tiles
from pullback.codegen.cuda.source.launch_writer import LaunchWriter
from pullback.codegen.cuda.source.names import bare, stored, stored_name, type_name
from pullback.codegen.cuda.source.split_launches import Stage
from pullback.codegen.cuda.source.statements import Writer, counters_from_index
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Extent, Load

TILE_SHAPES = {
    "f32": ((128, 128, 8), (64, 64, 16)),
    "tf32": ((128, 128, 16), (64, 64, 16)),
    "f16": ((128, 128, 32), (64, 64, 32)),
    "bf16": ((128, 128, 32), (64, 64, 32)),
    "f64": ((128, 64, 8), (64, 32, 16)),
}
"""For each type of multiplication: rows and columns of a large and of a small tile, and the K iterations of it that are in
shared memory at a time."""
STANDALONE_KINDS = ("few", "large", "small")
"""The kinds of launches that compute a product alone, which a library call may replace."""
COMPUTED_DEPTH = 16
"""K iterations in shared memory at a time, for large tiles whose elements are computed and held in registers meanwhile."""


def launch_bounds(kind: str) -> str:
    """Return the launch bounds of a kind of launch: threads of a block, and blocks that shall fit on a multiprocessor."""
    return {"tiles_large": "__launch_bounds__(256, 2) ", "tiles_small": "__launch_bounds__(256, 3) ",
            "tiles_part": "__launch_bounds__(256, 3) "}.get(kind, "")  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Operand:
    """An operand. ``name``: the C object that returns its elements. ``along``: it is contiguous along K."""

    name: str
    is_contiguous_along_k: bool


class ProductText:
    """Writes the launches of products."""

    def __init__(self, emitter: LaunchWriter) -> None:
        self.emitter = emitter
        self.buffers: dict[Instruction, int] = {}
        self.names: dict[tuple[Instruction, str], str] = {}

    def write(self, w: Writer, stage_index: int, stage: Stage) -> dict[str, Any]:
        """Emit the launch of a product; return arguments of ``Launch``."""
        assert stage.loop is not None
        *loops, product = batch_nest(stage.loop)
        kind = half_type(product) or product.regions[0].results[0].type.dtype.name
        kind = "tf32" if kind == "f32" and product.params.get("tf32") else kind
        role = stage.kind.removeprefix("tiles_")
        large, small = TILE_SHAPES[kind]
        unit = self.name(w, product, "unit")
        rows, columns, depth = large if role == "large" else small
        is_computed = any(_dense_load(*element_of(region), region) is None for region in product.regions[:2])
        depth = min(depth, COMPUTED_DEPTH) if is_computed and role == "large" else depth
        if role != "few":
            w.line(f"using {unit} = pb_unit_{kind}<{rows}, {columns}, {depth}>;")
        for i in (i for loop in loops for i in loop.regions[0].instructions):
            if isinstance(i.op, Extent | Constant):
                w.instruction(i)
        if role == "few":
            self.thread_per_sum(w, loops, product)
        elif role == "join":
            self.join(w, loops, product, unit, self.buffers[stage.loop])
        else:
            if role != "large" and stage.loop not in self.buffers:
                shape = (small[0], small[1])
                index = self.emitter.stages.index(stage) + (role == "small")
                self.buffers[stage.loop] = self.emitter.reserve(index, "kept", product.regions[2].parameters[2].type.dtype, shape)
            self.tiles(w, loops, product, unit, None if role == "large" else self.buffers[stage.loop])
        m, n, k = (extent_of(w.loops, v) for v in product.operands)
        counts = [extent_of(w.loops, loop.operands[0]) for loop in loops]
        assert m is not None and n is not None
        tiles = Tiles(
            rows=m, columns=n, depth=k or 0, batch=tuple(e for e in counts if e is not None), large=large[:2], small=small[:2],
            role=role,
        )  # fmt: skip
        call = equivalent_gemm(product) if role in STANDALONE_KINDS else None
        routine = routine_of(self.emitter.kernel, w.loops, loops, call, tiles.batch) if call is not None else None
        return {"threads": THREADS, "count": (), "per_block": 1, "tiles": tiles, "routine": routine}

    def name(self, w: Writer, product: Instruction, hint: str) -> str:
        """Return an identifier of a product, the same in all of its launches."""
        key = (product, hint)
        if key not in self.names:
            self.names[key] = w.names.fresh(hint)
        return self.names[key]

    def tiles(self, w: Writer, loops: list[Instruction], product: Instruction, unit: str, buffer: int | None) -> None:
        """Emit the computation of a block's tile, for all of K or for one part of it."""
        rows, columns, depth = (self.size(w, v, loops) for v in product.operands)
        tile, part = "blockIdx.x", ""
        if buffer is not None:
            parts = w.parts()
            tile, part = f"blockIdx.x / {parts}", f"blockIdx.x % {parts}, {parts}, "
            part += self.emitter.memory(w, buffer, True)
        if loops:
            tiles, index = self.name(w, product, "tiles"), self.name(w, product, "number")
            w.line(f"int {tiles} = pb_tiles<{unit}>({rows}, {columns});")
            if buffer is not None:
                w.line(f"long long {index} = {tile} / {tiles};")
                part += f" + {index} * {tiles} * {parts} * {unit}::rows * {unit}::columns"
            else:
                index = f"{tile} / {tiles}"
            self.batch(w, loops, index)
            tile += f" % {tiles}"
        left, right = (self.operand(w, product, k) for k in (0, 1))
        epilogue = self.name(w, product, "each")
        i, j, total = product.regions[2].parameters
        w.texts[total] = w.names.of(total)
        head = f"long long {self.counter(w, i)}, long long {self.counter(w, j)}, {type_name(total.type.dtype)} {w.texts[total]}"
        with self.lambda_braces(w, f"auto {epilogue} = [&]({head}) {{"):
            w.block(product.regions[2])
        flags = ", ".join("true" if operand.is_contiguous_along_k else "false" for operand in (left, right))
        arguments = [left.name, right.name, epilogue, rows, columns, depth, tile, *([part] if part else [])]
        w.line(f"pb_product<{unit}, {flags}>({', '.join(arguments)});")

    def thread_per_sum(self, w: Writer, loops: list[Instruction], product: Instruction) -> None:
        """Emit a product with one thread for each sum."""
        left, right, region = product.regions
        total = region.parameters[2]
        with self.sums(w, loops, product) as (_, i, j):
            w.texts[total], p = w.names.of(total), self.counter(w, left.parameters[1])
            self.bind_index(w, left.parameters[0], i)
            self.bind_index(w, right.parameters[0], p)
            self.bind_index(w, right.parameters[1], j)
            w.line(f"{type_name(total.type.dtype)} {w.texts[total]} = 0;")
            with w.braces(f"for (long long {p} = 0; {p} < {bare(w.value(product.operands[2]))}; ++{p}) {{"):
                w.block(left)
                w.block(right)
                x, y = (w.value(operand.results[0]) for operand in (left, right))
                w.line(f"{w.texts[total]} = fma({x}, {y}, {w.texts[total]});")
            w.block(region)

    def join(self, w: Writer, loops: list[Instruction], product: Instruction, unit: str, buffer: int) -> None:
        """Add up the parts of each sum and emit the product's epilogue."""
        region, parts = product.regions[2], w.parts()
        rows, columns = (bare(w.value(v)) for v in product.operands[:2])
        with self.sums(w, loops, product) as (n, i, j):
            start = self.emitter.memory(w, buffer)
            if loops:
                size = f"pb_tiles<{unit}>({rows}, {columns}) * {parts} * {unit}::rows * {unit}::columns"
                start += f" + {n} / ({rows} * {columns}) * {size}"
            w.let(region.parameters[2], f"pb_joined<{unit}>({start}, {i}, {j}, {columns}, {parts})")
            w.block(region)

    @contextmanager
    def sums(self, w: Writer, loops: list[Instruction], product: Instruction) -> Iterator[tuple[str, str, str]]:
        """Emit a loop over all sums, distributed over the threads; yield the names of a sum's index, its row and its column."""
        rows, columns = (bare(w.value(v)) for v in product.operands[:2])
        i, j, _ = product.regions[2].parameters
        names = [*(w.counter(loop) for loop in loops), self.counter(w, i), self.counter(w, j)]
        counts = [*(bare(w.value(loop.operands[0])) for loop in loops), rows, columns]
        n = w.names.fresh("n")
        with w.braces(f"for (long long {n} = pb_first(); {n} < {' * '.join(counts)}; {n} += pb_step()) {{"):
            w.line(f"long long {', '.join(counters_from_index(n, names, counts))};")
            self.batch_instructions(w, loops)
            yield n, names[-2], names[-1]

    def batch(self, w: Writer, loops: list[Instruction], index: str) -> None:
        """Emit the batch counters of a block, and the instructions of the batch loops."""
        names, counts = [w.counter(loop) for loop in loops], [bare(w.value(loop.operands[0])) for loop in loops]
        w.line(f"long long {', '.join(counters_from_index(index, names, counts))};")
        self.batch_instructions(w, loops)

    def batch_instructions(self, w: Writer, loops: list[Instruction]) -> None:
        """Emit the instructions of the batch loops, without the extents and constants."""
        for i in (i for loop in loops for i in loop.regions[0].instructions):
            if not i.regions and not isinstance(i.op, Extent | Constant):
                w.instruction(i)

    def size(self, w: Writer, value: Value, loops: list[Instruction]) -> str:
        """Return the text of the row count, column count or K; a name if it is computed inside the batch loops, which are
        emitted later."""
        return bare(w.value(value)) if value in w.texts or not loops else w.names.of(value)

    def operand(self, w: Writer, product: Instruction, index: int) -> _Operand:
        """Emit the C object that returns an operand's elements: ``pb_dense`` of a matrix in memory, or a lambda."""
        region = product.regions[index]
        row, column = region.parameters
        outer, k = (row, column) if index == 0 else (column, row)
        instructions, element = element_of(region)
        name = self.name(w, product, ("left", "right")[index])
        dense = _dense_load(instructions, element, region)
        if dense is not None:
            w.comment(dense.loc)
            location, zero = w.locations[dense.operands[0]], Value(scalar(I64))
            w.texts[zero] = "0"
            start = w.at(location, (*dense.operands[1:-2], zero, zero))
            pointer = w.pointer(location) if start.endswith("[0]") else f"&{start}"
            t = location.type
            w.line(f"pb_dense<{stored_name(t.dtype)}> {name}{{{pointer}, {w.size(t.shape[-1])}}};")
            return _Operand(name, dense.operands[-1] is k)
        head = ", ".join(f"long long {self.counter(w, v)}" for v in (row, column))
        with self.lambda_braces(w, f"auto {name} = [&]({head}) {{"):
            for i in instructions:
                w.instruction(i)
            w.line(f"return {stored(w.value(element), element.type.dtype)};")
        return _Operand(name, _is_contiguous_along_k(w, region, outer, k))

    def counter(self, w: Writer, value: Value) -> str:
        """Use the value's own identifier as an index of degree 1; return it."""
        return self.bind_index(w, value, w.names.of(value))

    def bind_index(self, w: Writer, index: Value, text: str) -> str:
        """Use ``text`` for an index of degree 1; return it."""
        w.texts[index] = text
        w.degrees[index] = 1
        return text

    @contextmanager
    def lambda_braces(self, w: Writer, opening: str) -> Iterator[None]:
        """Emit the braces of a lambda."""
        with w.braces(opening):
            yield
        w.lines[-1] += ";"


def _dense_load(instructions: list[Instruction], element: Value, region: Block) -> Instruction | None:
    """Return the load of an operand that is a matrix in memory, row-major or transposed; None if it is anything else."""
    if len(instructions) != 1 or not isinstance(instructions[0].op, Load) or instructions[0].op.masked:
        return None
    (load,) = instructions
    t = load.operands[0].type
    if load.result is not element or not isinstance(t, RefType) or t.layout != "c" or t.dtype.is_bool or len(load.operands) < 3:
        return None
    is_whole = set(load.operands[-2:]) == set(region.parameters)
    return load if is_whole and not set(region.parameters) & set(load.operands[1:-2]) else None


def _is_contiguous_along_k(w: Writer, region: Block, outer: Value, k: Value) -> bool:
    """Return whether most loads of an operand's elements are contiguous along K."""
    inside = {v for i in walk(region) for v in i.results} | set(region.parameters)
    votes = 0
    for i in walk(region):
        if isinstance(i.op, Load) and len(i.operands) > 1:
            rank = len(i.operands)
            last = i.operands[-1]
            votes += rank * (w.loops.varies_with(last, k, inside) - w.loops.varies_with(last, outer, inside))
    return votes > 0
