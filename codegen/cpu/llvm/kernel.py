"""emit, for the CPU: a scheduled kernel as LLVM IR text.

A kernel becomes ``i64 @name(ptr %args)``: %args points to 64-bit slots that hold, in order, what ``slots`` lists: a pointer
for each reference (and the byte strides of a strided one), the bits of each scalar, the sizes, and the addresses of native
functions. The result is the status, 0 or the code of the first failure.

Vector loops are written with vector types: full vectors, several of them an iteration where the body is light, then masked ones
(``llvm_loops``). Variables that change are stack slots, which LLVM turns into registers. Sums of floats flush their partial sums
every 64 and every 4,096 iterations, so that no chain of additions is long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.codegen.cpu.llvm.casts import cast
from pullback.codegen.cpu.llvm.division import REGISTER, divided, plan
from pullback.codegen.cpu.llvm.float_parts import cold_call, part, spelled_out
from pullback.codegen.cpu.llvm.function_writer import NO_KERNEL
from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, mangled, wide
from pullback.codegen.cpu.llvm.library_calls import argsort_row, fft_1d, library, resolve_ties, sort_row, ufunc
from pullback.codegen.cpu.llvm.loops import loop
from pullback.codegen.cpu.llvm.memory import Accesses
from pullback.codegen.cpu.llvm.overlapping_loads import read_only
from pullback.codegen.cpu.llvm.parallel_loops import core_loop, number_of_threads, private_place, run_apart
from pullback.codegen.cpu.llvm.select import is_by_bits, met, selected
from pullback.codegen.cpu.llvm.shared_functions import call, calls, define, function_address, written
from pullback.codegen.cpu.llvm.streaming import written_only
from pullback.codegen.cpu.llvm.table_lookup import LANES, lookup, lookup_pair, pairs_of
from pullback.codegen.cpu.llvm.text import BRIEF, NAMELESS, Emitted, named
from pullback.codegen.cpu.llvm.transposed_stores import TURNED, square, store_square, store_turned, turned
from pullback.codegen.cpu.llvm.variants import run_part, wait, write_waiting
from pullback.codegen.cpu.llvm.vector_patterns import are_pair, of_each, store_pair
from pullback.codegen.cpu.loops.reachability import Reach, Reached, Steps, Told
from pullback.codegen.targets import PROCESSORS, Target
from pullback.ir.core.op import Op
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import F32 as _F32
from pullback.ir.core.types import F64 as _F64
from pullback.ir.core.types import I64 as _I64
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall, ColdFunction
from pullback.ir.ops.kernel.functions import Call, FunctionAddress, RefAt
from pullback.ir.ops.kernel.kernel import (
    Extent,
    Fail,
    FlatView,
    For,
    If,
    Load,
    Local,
    Prefetch,
    Private,
    RowView,
    SelectRef,
    SelectRows,
    Store,
    Stride,
    Subview,
    Threads,
    Tuned,
)
from pullback.ir.ops.library.fourier import Fft1d
from pullback.ir.ops.library.routines import Library
from pullback.ir.ops.library.sort import ArgsortRow, ResolveTies, SortRow


def emit(
    kernel: Function, name: str, target: Target, told: Told | None = None, reached: Reached = lambda steps: True
) -> Emitted:
    """The LLVM text of a kernel scheduled for the CPU, whose symbol is named after the text if ``name`` is empty. ``told``:
    called with the slots of functions in other modules that are ``reached``, which are written first."""
    reach = functools.partial(Reach, told=told, reached=reached)
    if name:
        return Emitter(kernel, name, target, reach=reach).run()
    found = Emitter(kernel, NAMELESS, target, reach=reach).run()
    text, own = named(found.text, NAMELESS)
    return replace(found, name=own, text=text)


def ahead(target: Target, told: Callable[[str], None], reached: Reached) -> Callable[[Instruction, Steps], None]:
    """Gives what takes functions that kernels share, those first that others call, and steps that tell what sizes reach them; it
    writes those that are reached, and tells of their texts."""
    emitter = Emitter(NO_KERNEL, "", target)

    def take(function: Instruction, steps: Steps) -> None:
        define(emitter, function)
        if reached(steps):
            told(written(emitter, function))

    return take


class Emitter(Accesses):
    """Writes one function of a kernel, instruction by instruction."""

    def __init__(
        self, kernel: Function, name: str, target: Target, direct: str = "", reach: Callable[[Block], Reach] = Reach
    ) -> None:
        super().__init__(kernel, name, target, direct, reach)
        self.pairs: dict[Value, Sequence[Instruction]] = {}
        self.looked_up: dict[Value, str] = {}
        self.by_multipliers: set[Value] = set()

    # the function

    def run(self) -> Emitted:
        self.written_only, self.read_only = written_only(self.kernel), read_only(self.kernel)
        self.kernel_asks = bool(self.shared) or any(isinstance(i.op, Prefetch) for i in walk(self.kernel.body))
        for position, value in enumerate(self.kernel.parameters):
            self.parameter(position, value)
        for number in sorted({int(e[1:]) for e in _size_names(self.kernel)}):
            self.sizes[f"s{number}"] = Lanes(self.argument("size", number))
        self.know_extents()
        self.status = self.slot("i64")
        self.line(f"store i64 0, ptr {self.status}")
        self.block(self.kernel.body)
        write_waiting(self)
        self.end()
        body = [*self.functions, f"{self.heading()} {{", "entry:", *self.entry, *self.lines, "}"]
        text = "\n".join([*(() if self.direct else self.declared), "", *body, ""])
        slots = self.slots if self.direct else map(self.reach.slot, self.slots)
        return Emitted(self.name, BRIEF + text if self.is_brief() else text, tuple(slots))

    def is_brief(self) -> bool:
        """Whether all that the kernel's loops do is done by functions of other modules."""
        return bool(self.shared or self.elsewhere) and calls(self.kernel.body, self.elsewhere)

    def heading(self) -> str:
        if not self.direct:
            return f"define i64 @{self.name}(ptr noalias %args)"
        types = ("ptr" if what[0] == "pointer" else "i64" for what in self.slots)
        return f"define internal i64 @{self.name}({', '.join(f'{t} %a{k}' for k, t in enumerate(types))}) {self.direct}"

    def block(self, block: Block) -> None:
        waiting: Instruction | None = None
        left = 0
        if self.target.vector_bytes == LANES * _F64.bytes and self.width == LANES:
            self.pairs.update(pairs_of(block))
        if self.target.vector_bytes == REGISTER and self.width > 1 and self.target.cpu in PROCESSORS:
            self.by_multipliers |= plan(block, PROCESSORS[self.target.cpu], self.width)
        made = {v: i for i in block.instructions for v in i.results} if self.width > 1 else {}
        for k, (i, after) in enumerate(zip(block.instructions, (*block.instructions[1:], None))):
            if not isinstance(i.op, Store):
                self.instruction(i)
            elif left:
                left -= 1
            elif waiting is not None:
                store_pair(self, waiting, i)
                waiting = None
            elif after is not None and are_pair(self, i, after):
                waiting = i
            elif group := square(self, block.instructions[k : k + self.width], made):
                store_square(self, group, made)
                left = len(group) - 1
            elif group := turned(self, block.instructions[k : k + TURNED], made):
                store_turned(self, group)
                left = TURNED - 1
            else:
                self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        match i.op:
            case Elementwise():
                self.elementwise(i)
            case Extent():
                self.env[i.result] = self.extent(i.params["size"])
            case Constant():
                self.env[i.result] = Lanes(literal(i.params["value"], i.params["dtype"]))
            case Load() if self.rows is not None and i in self.rows.of:
                self.env[i.result] = self.rows.load(i)
            case Load(masked=masked):
                guard = self.env[i.operands[1]] if masked else None
                place = self.places[i.operands[0]]
                if i in self.bases:
                    self.env[i.result] = self.load_line(
                        place, self.beside(place, *self.bases[i]), guard, self.walks, i not in self.again
                    )
                else:
                    self.env[i.result] = self.load(place, [self.env[v] for v in i.operands[2 if masked else 1 :]], guard)
            case Store(masked=masked):
                guard = self.env[i.operands[2]] if masked else None
                value, place = self.env[i.operands[0]], self.places[i.operands[1]]
                if i in self.bases:
                    self.store_line(value, place, self.beside(place, *self.bases[i]), guard)
                else:
                    self.store(value, place, [self.env[v] for v in i.operands[3 if masked else 2 :]], guard)
            case Prefetch():
                into_l1, place = bool(i.params.get("into_l1")), self.places[i.operands[0]]
                if i in self.bases:
                    self.prefetch_line(self.beside(place, *self.bases[i]), place.type.dtype, into_l1)
                else:
                    self.prefetch(place, [self.env[v] for v in i.operands[1:]], into_l1)
            case Subview():
                self.subview(i)
            case SelectRef():
                self.select_ref(i)
            case SelectRows():
                self.select_rows(i)
            case FlatView():
                self.flat_view(i)
            case RowView():
                self.row_view(i)
            case Local():
                self.local(i)
            case Threads():
                self.env[i.result] = Lanes(number_of_threads(self))
            case Stride():
                self.env[i.result] = self.places[i.operands[0]].strides[i.params["axis"]]
            case Tuned():
                dtype, extents = i.params["dtype"].name, tuple(i.params["extents"])
                self.env[i.result] = Lanes(self.native("choice", i.params["subject"], dtype, extents))
            case Private():
                self.places[i.result] = private_place(self, i) if self.natives_of else self.places[i.operands[0]]
            case For() if i.params.get("map") == "core" and self.has_several and not self.direct:
                wait(self, i)
            case For() if i.params.get("map") == "core":
                core_loop(self, i)
            case For() if i in self.parts:
                run_part(self, i)
            case For():
                self.loop(i)
            case If():
                self.branch(i)
            case Fail():
                self.fail(i)
            case ArgsortRow():
                argsort_row(self, i)
            case ResolveTies():
                resolve_ties(self, i)
            case SortRow():
                sort_row(self, i)
            case Fft1d():
                fft_1d(self, i)
            case Library():
                library(self, i)
            case ColdFunction():
                (self.cold[i.params["function"]],) = i.regions
            case ColdCall():
                cold_call(self, i)
            case FunctionAddress():
                self.env[i.result] = function_address(self, i)
            case Call():
                call(self, i)
            case RefAt():
                self.ref_at(i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no LLVM spelling")

    # elementwise ops

    def elementwise(self, i: Instruction) -> None:
        op = i.op
        assert isinstance(op, Elementwise)
        if self.scans and i.operands[0] in self.scans:
            self.env[i.result] = self.scans[i.operands[0]].step(self.vector(self.env[i.operands[1]], i.result.type.dtype))
            return
        operands = [self.env[v] for v in i.operands]
        dtypes = [v.type.dtype for v in i.operands]
        affine = self.affine(op, operands, dtypes) or of_each(self, i, operands) if self.width > 1 else None
        if affine is not None:
            self.env[i.result] = affine
            return
        width = 1 if self.width == 1 or all(o.is_scalar for o in operands) else self.width
        texts = [o.text if width == 1 else self.vector(o, d) for o, d in zip(operands, dtypes, strict=True)]
        dtype = dtypes[1] if op.gives == "select" else dtypes[0]
        spelling = op.spelling("llvm", dtype.kind)
        if spelling == "cast":
            text = cast(self, texts[0], dtype, i.params["dtype"], width, bool(i.params.get("in_range")))
        elif spelling == "bitcast":
            text = self.let(f"bitcast {wide(element(dtype), width)} {texts[0]} to {wide(element(i.params['dtype']), width)}")
        elif op.gives == "select" and width > 1 and is_by_bits(self.target, operands, dtype):
            text = selected(self, operands, dtype)
        elif spelling == "parts":
            text = part(self, op.name, texts, dtype, width)
        elif spelling == "lookup":
            text = self.lookup(i, texts[0], dtype, width)
        elif i.result in self.by_multipliers and width > 1:
            text = divided(self, i, operands)
        elif spelling.startswith("ufunc:"):
            text = ufunc(self, spelling[6:], texts, dtype, width)
        else:
            text = self.spelled(op, spelling, texts, dtype, width)
        self.env[i.result] = Lanes(text, 0 if width == 1 else None)

    def lookup(self, i: Instruction, index: str, dtype: DType, width: int) -> str:
        if width == LANES and i.result in self.pairs and i.result not in self.looked_up:
            same = self.pairs[i.result]
            found = lookup_pair(self, index, dtype, [k.params["values"] for k in same])
            self.looked_up.update(zip((k.result for k in same), found, strict=True))
        return self.looked_up.pop(i.result, None) or lookup(self, index, dtype, i.params["values"], i.params["dtype"], width)

    def affine(self, op: Op, operands: list[Lanes], dtypes: list[DType]) -> Lanes | None:
        """Sums, differences and products of positions stay positions, and so does a choice between two, the same in all lanes.
        Whether two are equal is asked of one lane."""
        if dtypes[-1] is not _I64:
            return None
        if op.name == "add" and any(o.each for o in operands) and any(o.is_scalar for o in operands):
            return self.add(*operands)
        if any(o.step is None for o in operands):
            return None
        if op.name == "select":
            condition, a, b = operands
            if a.is_scalar or a.step != b.step:
                return None
            return Lanes(self.let(f"select i1 {condition.text}, i64 {a.text}, i64 {b.text}"), a.step)
        if op.name in ("eq", "ne"):
            return met(self, op, operands)
        if op.name not in ("add", "sub", "mul"):
            return None
        a, b = operands
        if a.is_scalar and b.is_scalar:
            return None
        if op.name == "add":
            return self.add(a, b)
        if op.name == "sub":
            assert a.step is not None and b.step is not None
            return Lanes(self.let(f"sub i64 {a.text}, {b.text}"), a.step - b.step)
        return self.multiply(a, b)

    def spelled(self, op: Elementwise, spelling: str, texts: list[str], dtype: DType, width: int) -> str:
        if op.name == "fma" and dtype.bits == 16:
            return self.half_fma(texts, dtype, width)
        if dtype.is_float and dtype.bits == 16 and op.gives != "select":
            floats = [cast(self, text, dtype, _F32, width, False) for text in texts]
            found = self.spelled(op, op.spelling("llvm", "f"), floats, _F32, width)
            return found if op.gives == "bool" else cast(self, found, _F32, dtype, width, False)
        if op.name == "fma" and not self.target.has_fma:
            return spelled_out(self, "fma", texts, dtype, width)
        text, declared = _spelling(op, spelling, dtype, width)
        if declared:
            self.declared[declared] = None
        return self.let(text.format(*texts))

    def half_fma(self, texts: list[str], dtype: DType, width: int) -> str:
        """In float64, where the product of two halves is exact and the sum is too wherever its rounding could matter."""
        d = wide("double", width)
        x, y, z = (cast(self, text, dtype, _F64, width, False) for text in texts)
        product = self.let(f"fmul {d} {x}, {y}")
        return cast(self, self.let(f"fadd {d} {product}, {z}"), _F64, dtype, width, False)

    # branches and loops

    def branch(self, i: Instruction) -> None:
        assert self.env[i.operands[0]].is_scalar, "lanes of one vector do not part"
        saved = self.env, self.splats, self.path
        self.env, self.splats, self.path = dict(self.env), dict(self.splats), (*self.path, i.operands[0])
        with self.when(saved[0][i.operands[0]].text):
            if i in self.apart_branches:
                run_apart(self, i)
            else:
                self.block(i.regions[0])
        self.env, self.splats, self.path = saved

    def loop(self, i: Instruction) -> None:
        saved = self.env, self.splats
        self.env, self.splats = dict(self.env), dict(self.splats)
        results = loop(self, i)
        self.env, self.splats = saved
        self.env.update(zip(i.results, results, strict=True))

    def fail(self, i: Instruction) -> None:
        self.join_status(self.let(f"select i1 {self.env[i.operands[0]].text}, i64 {i.params['code']}, i64 0"))

@functools.cache
def _spelling(op: Elementwise, spelling: str, dtype: DType, width: int) -> tuple[str, str]:
    """The text of an op with places for its operands, and of the function's declaration if it calls one."""
    t, m = wide(element(dtype), width), mangled(element(dtype), width)
    text = spelling.format(*(f"{{{k}}}" for k in range(op.arity)), t=t, m=m, c=wide("i1", width))
    if "@" not in text:
        return text, ""
    types = [t] * op.arity + (["i1"] if op.name == "abs" and dtype.is_integer else [])
    return text, f"declare {t} @{text.partition('@')[2].partition('(')[0]}({', '.join(types)})"


def _size_names(kernel: Function) -> set[str]:
    found = {e for v in kernel.parameters for e in v.type.shape if isinstance(e, str)}
    for i in walk(kernel.body):
        if isinstance(i.op, Extent) and isinstance(i.params["size"], str):
            found.add(i.params["size"])
    return found
