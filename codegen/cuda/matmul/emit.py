"""Matrix products of one CUDA kernel: what is done with their operands' elements and with their sums, around ``pb_product``.

An operand that is a matrix in memory, as it lies or turned, is handed over whole; of any other the element is computed where it
is fetched. The launches of a product are alternatives, of which the extents choose: large tiles, small ones, or small ones whose
terms several blocks share, and then what joins the parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pullback.codegen.cuda.schedule.select_tiled_matmul import element_of, extent_of, half_of, nest_of, plain_routine
from pullback.codegen.cuda.source.device_linalg import routine_of
from pullback.codegen.cuda.source.launch import THREADS, Tiles
from pullback.codegen.cuda.source.launch_writer import LaunchWriter
from pullback.codegen.cuda.source.names import bare, stored, stored_name, type_name
from pullback.codegen.cuda.source.split_launches import Stage
from pullback.codegen.cuda.source.statements import Writer, digits
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Extent, Load

SHAPES = {
    "f32": ((128, 128, 8), (64, 64, 16)),
    "tf32": ((128, 128, 16), (64, 64, 16)),
    "f16": ((128, 128, 32), (64, 64, 32)),
    "bf16": ((128, 128, 32), (64, 64, 32)),
    "f64": ((128, 64, 8), (64, 32, 16)),
}
"""By what is multiplied: rows and columns of large and small tiles, and how many terms of them are in shared memory at a time."""
WHOLE = ("few", "large", "small")
"""The launches that do a product by themselves, which a library may do instead."""
FEW_TERMS = 16
"""So many terms of halves, where elements are computed for large tiles and wait in registers."""


def bounds(kind: str) -> str:
    """The threads of a block of a launch, and how many blocks a processor shall have room for."""
    return {"tiles_large": "__launch_bounds__(256, 2) ", "tiles_small": "__launch_bounds__(256, 3) ",
            "tiles_part": "__launch_bounds__(256, 3) "}.get(kind, "")  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Operand:
    """``name``: what holds its elements. ``along``: terms are neighbours in memory."""

    name: str
    along: bool


class ProductText:
    """Writes the launches of products."""

    def __init__(self, emitter: LaunchWriter) -> None:
        self.emitter = emitter
        self.kept: dict[Instruction, int] = {}
        self.found: dict[tuple[Instruction, str], str] = {}

    def write(self, w: Writer, number: int, stage: Stage) -> dict[str, Any]:
        assert stage.loop is not None
        *loops, product = nest_of(stage.loop)
        kind = half_of(product) or product.regions[0].results[0].type.dtype.name
        kind = "tf32" if kind == "f32" and product.params.get("tf32") else kind
        role = stage.kind.removeprefix("tiles_")
        large, small = SHAPES[kind]
        unit = self.name(w, product, "unit")
        rows, columns, depth = large if role == "large" else small
        is_computed = any(_dense(*element_of(region), region) is None for region in product.regions[:2])
        depth = min(depth, FEW_TERMS) if is_computed and role == "large" else depth
        if role != "few":
            w.line(f"using {unit} = pb_unit_{kind}<{rows}, {columns}, {depth}>;")
        for i in (i for loop in loops for i in loop.regions[0].instructions):
            if isinstance(i.op, Extent | Constant):
                w.instruction(i)
        if role == "few":
            self.few(w, loops, product)
        elif role == "join":
            self.join(w, loops, product, unit, self.kept[stage.loop])
        else:
            if role != "large" and stage.loop not in self.kept:
                shape = (small[0], small[1])
                index = self.emitter.stages.index(stage) + (role == "small")
                self.kept[stage.loop] = self.emitter.reserve(index, "kept", product.regions[2].parameters[2].type.dtype, shape)
            self.tiles(w, loops, product, unit, None if role == "large" else self.kept[stage.loop])
        m, n, k = (extent_of(w.loops, v) for v in product.operands)
        counts = [extent_of(w.loops, loop.operands[0]) for loop in loops]
        assert m is not None and n is not None
        tiles = Tiles(
            rows=m, columns=n, terms=k or 0, batch=tuple(e for e in counts if e is not None), large=large[:2], small=small[:2],
            role=role,
        )  # fmt: skip
        call = plain_routine(product) if role in WHOLE else None
        routine = routine_of(self.emitter.kernel, w.loops, loops, call, tiles.batch) if call is not None else None
        return {"threads": THREADS, "count": (), "per_block": 1, "tiles": tiles, "routine": routine}

    def name(self, w: Writer, product: Instruction, hint: str) -> str:
        """A name of a product's, the same in all of its launches."""
        key = (product, hint)
        if key not in self.found:
            self.found[key] = w.names.fresh(hint)
        return self.found[key]

    def tiles(self, w: Writer, loops: list[Instruction], product: Instruction, unit: str, kept: int | None) -> None:
        """A block's tile of the product, of all its terms or of a part."""
        rows, columns, terms = (self.size(w, v, loops) for v in product.operands)
        tile, part = "blockIdx.x", ""
        if kept is not None:
            parts = w.parts()
            tile, part = f"blockIdx.x / {parts}", f"blockIdx.x % {parts}, {parts}, "
            part += self.emitter.memory(w, kept, True)
        if loops:
            tiles, index = self.name(w, product, "tiles"), self.name(w, product, "number")
            w.line(f"int {tiles} = pb_tiles<{unit}>({rows}, {columns});")
            if kept is not None:
                w.line(f"long long {index} = {tile} / {tiles};")
                part += f" + {index} * {tiles} * {parts} * {unit}::rows * {unit}::columns"
            else:
                index = f"{tile} / {tiles}"
            self.batch(w, loops, index)
            tile += f" % {tiles}"
        left, right = (self.operand(w, product, k) for k in (0, 1))
        each = self.name(w, product, "each")
        i, j, total = product.regions[2].parameters
        w.texts[total] = w.names.of(total)
        head = f"long long {self.counter(w, i)}, long long {self.counter(w, j)}, {type_name(total.type.dtype)} {w.texts[total]}"
        with self.function(w, f"auto {each} = [&]({head}) {{"):
            w.block(product.regions[2])
        flags = ", ".join("true" if operand.along else "false" for operand in (left, right))
        arguments = [left.name, right.name, each, rows, columns, terms, tile, *([part] if part else [])]
        w.line(f"pb_product<{unit}, {flags}>({', '.join(arguments)});")

    def few(self, w: Writer, loops: list[Instruction], product: Instruction) -> None:
        """Each sum is one thread's."""
        left, right, region = product.regions
        total = region.parameters[2]
        with self.sums(w, loops, product) as (_, i, j):
            w.texts[total], p = w.names.of(total), self.counter(w, left.parameters[1])
            self.given(w, left.parameters[0], i)
            self.given(w, right.parameters[0], p)
            self.given(w, right.parameters[1], j)
            w.line(f"{type_name(total.type.dtype)} {w.texts[total]} = 0;")
            with w.braces(f"for (long long {p} = 0; {p} < {bare(w.value(product.operands[2]))}; ++{p}) {{"):
                w.block(left)
                w.block(right)
                x, y = (w.value(operand.results[0]) for operand in (left, right))
                w.line(f"{w.texts[total]} = fma({x}, {y}, {w.texts[total]});")
            w.block(region)

    def join(self, w: Writer, loops: list[Instruction], product: Instruction, unit: str, kept: int) -> None:
        """The parts of each sum are joined, and what is done with sums is done."""
        region, parts = product.regions[2], w.parts()
        rows, columns = (bare(w.value(v)) for v in product.operands[:2])
        with self.sums(w, loops, product) as (n, i, j):
            start = self.emitter.memory(w, kept)
            if loops:
                size = f"pb_tiles<{unit}>({rows}, {columns}) * {parts} * {unit}::rows * {unit}::columns"
                start += f" + {n} / ({rows} * {columns}) * {size}"
            w.let(region.parameters[2], f"pb_joined<{unit}>({start}, {i}, {j}, {columns}, {parts})")
            w.block(region)

    @contextmanager
    def sums(self, w: Writer, loops: list[Instruction], product: Instruction) -> Iterator[tuple[str, str, str]]:
        """A loop over all sums, which threads share out: the names of the number of each, its row and its column."""
        rows, columns = (bare(w.value(v)) for v in product.operands[:2])
        i, j, _ = product.regions[2].parameters
        names = [*(w.counter(loop) for loop in loops), self.counter(w, i), self.counter(w, j)]
        counts = [*(bare(w.value(loop.operands[0])) for loop in loops), rows, columns]
        n = w.names.fresh("n")
        with w.braces(f"for (long long {n} = pb_first(); {n} < {' * '.join(counts)}; {n} += pb_step()) {{"):
            w.line(f"long long {', '.join(digits(n, names, counts))};")
            self.around(w, loops)
            yield n, names[-2], names[-1]

    def batch(self, w: Writer, loops: list[Instruction], number: str) -> None:
        """Which of a batch a block computes, and what is computed for it."""
        names, counts = [w.counter(loop) for loop in loops], [bare(w.value(loop.operands[0])) for loop in loops]
        w.line(f"long long {', '.join(digits(number, names, counts))};")
        self.around(w, loops)

    def around(self, w: Writer, loops: list[Instruction]) -> None:
        for i in (i for loop in loops for i in loop.regions[0].instructions):
            if not i.regions and not isinstance(i.op, Extent | Constant):
                w.instruction(i)

    def size(self, w: Writer, value: Value, loops: list[Instruction]) -> str:
        """A number of rows, columns or terms; one that is computed for each of a batch comes later."""
        return bare(w.value(value)) if value in w.texts or not loops else w.names.of(value)

    def operand(self, w: Writer, product: Instruction, number: int) -> _Operand:
        region = product.regions[number]
        row, column = region.parameters
        outer, term = (row, column) if number == 0 else (column, row)
        instructions, element = element_of(region)
        name = self.name(w, product, ("left", "right")[number])
        dense = _dense(instructions, element, region)
        if dense is not None:
            w.comment(dense.loc)
            place, zero = w.places[dense.operands[0]], Value(scalar(I64))
            w.texts[zero] = "0"
            start = w.at(place, (*dense.operands[1:-2], zero, zero))
            pointer = w.pointer(place) if start.endswith("[0]") else f"&{start}"
            t = place.type
            w.line(f"pb_dense<{stored_name(t.dtype)}> {name}{{{pointer}, {w.size(t.shape[-1])}}};")
            return _Operand(name, dense.operands[-1] is term)
        head = ", ".join(f"long long {self.counter(w, v)}" for v in (row, column))
        with self.function(w, f"auto {name} = [&]({head}) {{"):
            for i in instructions:
                w.instruction(i)
            w.line(f"return {stored(w.value(element), element.type.dtype)};")
        return _Operand(name, _lies_along(w, region, outer, term))

    def counter(self, w: Writer, value: Value) -> str:
        return self.given(w, value, w.names.of(value))

    def given(self, w: Writer, position: Value, text: str) -> str:
        w.texts[position] = text
        w.degrees[position] = 1
        return text

    @contextmanager
    def function(self, w: Writer, opening: str) -> Iterator[None]:
        with w.braces(opening):
            yield
        w.lines[-1] += ";"


def _dense(instructions: list[Instruction], element: Value, region: Block) -> Instruction | None:
    """The load by which an operand is a matrix in memory, as it lies or turned."""
    if len(instructions) != 1 or not isinstance(instructions[0].op, Load) or instructions[0].op.masked:
        return None
    (found,) = instructions
    t = found.operands[0].type
    if found.result is not element or not isinstance(t, RefType) or t.layout != "c" or t.dtype.is_bool or len(found.operands) < 3:
        return None
    is_whole = set(found.operands[-2:]) == set(region.parameters)
    return found if is_whole and not set(region.parameters) & set(found.operands[1:-2]) else None


def _lies_along(w: Writer, region: Block, outer: Value, term: Value) -> bool:
    """Whether most of what is read for an operand's elements has those of neighbouring terms side by side."""
    inside = {v for i in walk(region) for v in i.results} | set(region.parameters)
    votes = 0
    for i in walk(region):
        if isinstance(i.op, Load) and len(i.operands) > 1:
            rank = len(i.operands)
            last = i.operands[-1]
            votes += rank * (w.loops.moves_with(last, term, inside) - w.loops.moves_with(last, outer, inside))
    return votes > 0
