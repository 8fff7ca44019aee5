"""emit, for the CPU: convert a scheduled kernel to LLVM IR text.

A kernel becomes ``i64 @name(ptr %args)``: %args points to 64-bit slots that hold, in the order of ``slots``, a pointer for
each reference (and the byte strides of a strided one), the bits of each scalar, the sizes, and the addresses of native
functions. The function returns the status: 0 or the code of the first failure.

Vector loops use vector types: full vectors, several per iteration if the body is light, then masked ones (``llvm.loops``).
Mutable variables are stack slots, which LLVM promotes to registers. Sums of floats flush their partial sums every 64 and every
4,096 iterations, to bound the rounding error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.codegen.cpu.llvm.casts import cast
from pullback.codegen.cpu.llvm.division import REGISTER, divided, plan
from pullback.codegen.cpu.llvm.float_parts import cold_call, expand_plain, part
from pullback.codegen.cpu.llvm.floor_division import FUNCTIONS, floor_division
from pullback.codegen.cpu.llvm.function_writer import NO_KERNEL
from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, mangled, splat, vector_of
from pullback.codegen.cpu.llvm.library_calls import argsort_row, fft_1d, library, resolve_ties, sort_row, ufunc
from pullback.codegen.cpu.llvm.loops import loop
from pullback.codegen.cpu.llvm.memory import Accesses
from pullback.codegen.cpu.llvm.overlapping_loads import read_only
from pullback.codegen.cpu.llvm.parallel_loops import (
    is_reduction,
    parallel_loop,
    parallel_reduction,
    private_memref,
    run_outlined_branch,
    thread_count,
)
from pullback.codegen.cpu.llvm.select import compare_positions, select_by_bits, selects_by_bits
from pullback.codegen.cpu.llvm.shared_functions import call, define, function_address, module_of, only_calls
from pullback.codegen.cpu.llvm.streaming import written_only
from pullback.codegen.cpu.llvm.table_lookup import LANES, lookup, lookup_pair, pairs_of
from pullback.codegen.cpu.llvm.text import BRIEF, NAMELESS, Emitted, named
from pullback.codegen.cpu.llvm.transposed_stores import GROUP, square_group, store_square, store_transposed, transposed_group
from pullback.codegen.cpu.llvm.variants import defer_loop, run_outlined_loop, write_deferred
from pullback.codegen.cpu.llvm.vector_patterns import MOST_COMPONENTS, interleaved_group, repeated_position, store_interleaved
from pullback.codegen.cpu.loops.reachability import OnCallee, Reach, Reached, Steps
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
from pullback.ir.ops.kernel.functions import Call, FunctionAddress, RefAt, TableEntry
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
    kernel: Function,
    name: str,
    target: Target,
    on_callee: OnCallee | None = None,
    reached: Reached = lambda steps: True,
    emitter: type[Emitter] | None = None,
) -> Emitted:
    """Return the LLVM text of a kernel scheduled for the CPU.

    An empty ``name`` names the symbol by a hash of the text. ``on_callee``: called with the slots of functions in other
    modules that ``reached`` says the current sizes may call; these are emitted first. ``emitter``: the class that emits, by
    default ``Emitter``.
    """
    emitter = emitter or Emitter
    reach = functools.partial(Reach, on_callee=on_callee, reached=reached)
    if name:
        return emitter(kernel, name, target, reach=reach).run()
    emitted = emitter(kernel, NAMELESS, target, reach=reach).run()
    text, symbol = named(emitted.text, NAMELESS)
    return replace(emitted, name=symbol, text=text)


def early_emitter(target: Target, on_text: Callable[[str], None], reached: Reached) -> Callable[[Instruction, Steps], None]:
    """Return a function that emits shared functions before the kernels that call them are complete.

    The returned function takes a shared function, callees before callers, and the steps that decide from the sizes whether it
    is reached. ``on_text`` is called with the text of each reached function.
    """
    emitter = Emitter(NO_KERNEL, "", target)

    def take(function: Instruction, steps: Steps) -> None:
        define(emitter, function)
        if reached(steps):
            on_text(module_of(emitter, function))

    return take


class Emitter(Accesses):
    """Emits one function of a kernel, instruction by instruction."""

    def __init__(
        self, kernel: Function, name: str, target: Target, direct: str = "", reach: Callable[[Block], Reach] = Reach
    ) -> None:
        super().__init__(kernel, name, target, direct, reach)
        self.pairs: dict[Value, Sequence[Instruction]] = {}
        self.looked_up: dict[Value, str] = {}
        self.multiply_add_divisions: set[Value] = set()

    # the function

    def run(self) -> Emitted:
        """Emit the kernel; return its text and argument slots."""
        self.written_only, self.read_only = written_only(self.kernel), read_only(self.kernel)
        self.has_own_prefetches = bool(self.shared) or any(isinstance(i.op, Prefetch) for i in walk(self.kernel.body))
        for position, value in enumerate(self.kernel.parameters):
            self.parameter(position, value)
        for index in sorted({int(e[1:]) for e in _size_names(self.kernel)}):
            self.sizes[f"s{index}"] = Lanes(self.argument("size", index))
        self.add_extents()
        self.status = self.slot("i64")
        self.line(f"store i64 0, ptr {self.status}")
        self.block(self.kernel.body)
        write_deferred(self)
        self.end()
        body = [*self.functions, f"{self.heading()} {{", "entry:", *self.entry, *self.lines, "}"]
        text = "\n".join([*(() if self.direct else self.declared), "", *body, ""])
        slots = self.slots if self.direct else map(self.reach.slot_with_steps, self.slots)
        return Emitted(self.name, BRIEF + text if self.is_brief() else text, tuple(slots))

    def is_brief(self) -> bool:
        """Return whether all loops of the kernel only call functions of other modules."""
        return bool(self.shared or self.in_own_module) and only_calls(self.kernel.body, self.in_own_module)

    def heading(self) -> str:
        """Return the first line of the function's definition."""
        if not self.direct:
            return f"define i64 @{self.name}(ptr noalias %args)"
        types = ("ptr" if slot[0] == "pointer" else "i64" for slot in self.slots)
        return f"define internal i64 @{self.name}({', '.join(f'{t} %a{k}' for k, t in enumerate(types))}) {self.direct}"

    def block(self, block: Block) -> None:
        """Emit the instructions of a block; groups of stores that can be combined are emitted together."""
        skipped = 0
        if self.target.vector_bytes == LANES * _F64.bytes and self.width == LANES:
            self.pairs.update(pairs_of(block))
        if self.target.vector_bytes == REGISTER and self.width > 1 and self.target.cpu in PROCESSORS:
            self.multiply_add_divisions |= plan(block, PROCESSORS[self.target.cpu], self.width)
        producers = {v: i for i in block.instructions for v in i.results} if self.width > 1 else {}
        for k, i in enumerate(block.instructions):
            if not isinstance(i.op, Elementwise | Load | Constant | Extent):
                self.write_count += 1
            if self.failing and not isinstance(i.op, Elementwise | Constant | Extent | Fail):
                self.leave_at_failures()
            if skipped:
                skipped -= 1
            elif k + 1 < len(block.instructions) and is_reduction(self, i, block.instructions[k + 1]):
                parallel_reduction(self, i, block.instructions[k + 1])
                skipped = 1
            elif not isinstance(i.op, Store):
                self.instruction(i)
            elif group := interleaved_group(self, block.instructions[k : k + MOST_COMPONENTS]):
                store_interleaved(self, group)
                skipped = len(group) - 1
            elif group := square_group(self, block.instructions[k : k + self.width], producers):
                store_square(self, group, producers)
                skipped = len(group) - 1
            elif group := transposed_group(self, block.instructions[k : k + GROUP], producers):
                store_transposed(self, group)
                skipped = GROUP - 1
            else:
                self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        """Emit an instruction. Raises NotImplementedError for an op that has no LLVM lowering."""
        match i.op:
            case Elementwise():
                self.elementwise(i)
            case Extent():
                self.env[i.result] = self.extent(i.params["size"])
            case Constant():
                self.env[i.result] = Lanes(literal(i.params["value"], i.params["dtype"]))
            case Load() if self.rows is not None and i in self.rows.row_by_load:
                self.env[i.result] = self.rows.load(i)
            case Load(masked=masked):
                guard = self.env[i.operands[1]] if masked else None
                memref = self.memrefs[i.operands[0]]
                if i in self.bases:
                    self.env[i.result] = self.load_contiguous(
                        memref,
                        self.contiguous_address(memref, *self.bases[i]),
                        guard,
                        self.in_serial_loop,
                        i not in self.repeated,
                    )
                else:
                    self.env[i.result] = self.load(memref, [self.env[v] for v in i.operands[2 if masked else 1 :]], guard)
            case Store(masked=masked):
                guard = self.env[i.operands[2]] if masked else None
                value, memref = self.env[i.operands[0]], self.memrefs[i.operands[1]]
                if i in self.bases:
                    self.store_contiguous(value, memref, self.contiguous_address(memref, *self.bases[i]), guard)
                else:
                    self.store(value, memref, [self.env[v] for v in i.operands[3 if masked else 2 :]], guard)
            case Prefetch():
                into_l1, memref = bool(i.params.get("into_l1")), self.memrefs[i.operands[0]]
                if i in self.bases:
                    self.prefetch_contiguous(self.contiguous_address(memref, *self.bases[i]), memref.type.dtype, into_l1)
                else:
                    self.prefetch(memref, [self.env[v] for v in i.operands[1:]], into_l1)
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
                self.env[i.result] = Lanes(thread_count(self))
            case Stride():
                self.env[i.result] = self.memrefs[i.operands[0]].strides[i.params["axis"]]
            case Tuned():
                dtype, extents = i.params["dtype"].name, tuple(i.params["extents"])
                self.env[i.result] = Lanes(self.native("choice", i.params["subject"], dtype, extents))
            case Private():
                self.memrefs[i.result] = private_memref(self, i) if self.native_source else self.memrefs[i.operands[0]]
            case For() if i.params.get("map") == "core" and self.has_several_parallel_loops and not self.direct:
                defer_loop(self, i)
            case For() if i.params.get("map") == "core":
                parallel_loop(self, i)
            case For() if i in self.outlined_loops:
                run_outlined_loop(self, i)
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
            case TableEntry():
                self.table_entry(i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no LLVM spelling")

    # elementwise ops

    def elementwise(self, i: Instruction) -> None:
        """Emit an elementwise op: in scalar form, as a position that grows from lane to lane, or as a vector."""
        op = i.op
        assert isinstance(op, Elementwise)
        if self.scans and i.operands[0] in self.scans:
            self.env[i.result] = self.scans[i.operands[0]].step(self.vector(self.env[i.operands[1]], i.result.type.dtype))
            return
        operands = [self.env[v] for v in i.operands]
        dtypes = [v.type.dtype for v in i.operands]
        affine = self.affine_position(op, operands, dtypes) or repeated_position(self, i, operands) if self.width > 1 else None
        if affine is not None:
            self.env[i.result] = affine
            return
        width = 1 if self.width == 1 or all(o.is_scalar for o in operands) else self.width
        texts = [o.text if width == 1 else self.vector(o, d) for o, d in zip(operands, dtypes, strict=True)]
        dtype = dtypes[1] if op.gives == "select" else dtypes[0]
        spelling = op.template("llvm", dtype.kind)
        if spelling == "cast":
            text = cast(self, texts[0], dtype, i.params["dtype"], width, bool(i.params.get("in_range")))
        elif spelling == "bitcast":
            text = self.let(
                f"bitcast {vector_of(element(dtype), width)} {texts[0]} to {vector_of(element(i.params['dtype']), width)}"
            )
        elif op.gives == "select" and width > 1 and selects_by_bits(self.target, operands, dtype):
            text = select_by_bits(self, operands, dtype)
        elif spelling == "parts":
            text = part(self, op.name, texts, dtype, width)
        elif spelling == "lookup":
            text = self.lookup(i, texts[0], dtype, width)
        elif i.result in self.multiply_add_divisions and width > 1:
            text = divided(self, i, operands)
        elif spelling.startswith("ufunc:"):
            text = ufunc(self, spelling[6:], texts, dtype, width)
        elif spelling in FUNCTIONS:
            text = floor_division(self, spelling, texts[0], texts[1], self.reciprocal(i.operands[1]))
        elif spelling.startswith("fits:"):
            text = self.fits(spelling[5:], texts, dtype, width)
        else:
            text = self.emit_elementwise(op, spelling, texts, dtype, width)
        self.env[i.result] = Lanes(text, 0 if width == 1 else None)

    def lookup(self, i: Instruction, index: str, dtype: DType, width: int) -> str:
        """Emit a table lookup; two lookups by the same index may be emitted as one."""
        if width == LANES and i.result in self.pairs and i.result not in self.looked_up:
            same = self.pairs[i.result]
            values = lookup_pair(self, index, dtype, [k.params["values"] for k in same])
            self.looked_up.update(zip((k.result for k in same), values, strict=True))
        return self.looked_up.pop(i.result, None) or lookup(self, index, dtype, i.params["values"], i.params["dtype"], width)

    def affine_position(self, op: Op, operands: list[Lanes], dtypes: list[DType]) -> Lanes | None:
        """Return the result of an i64 op as a scalar plus a multiple of the lane, or None if it has no such form.

        Sums, differences and products of positions and choices between two by a uniform condition have one. Comparisons for
        equality compute the one lane in which two positions meet.
        """
        if dtypes[-1] is not _I64:
            return None
        if op.name == "add" and any(o.per_lane for o in operands) and any(o.is_scalar for o in operands):
            return self.add(*operands)
        if any(o.step is None for o in operands):
            return None
        if op.name == "select":
            condition, a, b = operands
            if a.is_scalar or a.step != b.step:
                return None
            return Lanes(self.let(f"select i1 {condition.text}, i64 {a.text}, i64 {b.text}"), a.step)
        if op.name in ("eq", "ne"):
            return compare_positions(self, op, operands)
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

    def emit_elementwise(self, op: Elementwise, spelling: str, texts: list[str], dtype: DType, width: int) -> str:
        """Emit an op from its template; 16-bit floats are computed in float32."""
        if op.name == "fma" and dtype.bits == 16:
            return self.half_fma(texts, dtype, width)
        if dtype.is_float and dtype.bits == 16 and op.gives != "select":
            floats = [cast(self, text, dtype, _F32, width, False) for text in texts]
            result = self.emit_elementwise(op, op.template("llvm", "f"), floats, _F32, width)
            return result if op.gives == "bool" else cast(self, result, _F32, dtype, width, False)
        if op.name == "fma" and not self.target.has_fma:
            return expand_plain(self, "fma", texts, dtype, width)
        text, declared = _template(op, spelling, dtype, width)
        if declared:
            self.declared[declared] = None
        return self.let(text.format(*texts))

    def fits(self, name: str, texts: list[str], dtype: DType, width: int) -> str:
        """Emit whether integer arithmetic does not overflow."""
        t, c, m = vector_of(element(dtype), width), vector_of("i1", width), mangled(element(dtype), width)
        pair = self.intrinsic(f"{{{t}, {c}}}", f"llvm.{name}.with.overflow.{m}", [(t, text) for text in texts])
        overflows = self.let(f"extractvalue {{{t}, {c}}} {pair}, 1")
        return self.let(f"xor {c} {overflows}, {splat('i1', 'true', width)}")

    def reciprocal(self, divisor: Value) -> str | None:
        """Return the reciprocal of a scalar parameter, which the caller of an inlined function computes before its loops, or
        None."""
        if not self.inlined:
            return None
        return self.native("reciprocal", self.kernel.parameters.index(divisor))

    def half_fma(self, texts: list[str], dtype: DType, width: int) -> str:
        """Emit a 16-bit fma in float64: the product of two halves is exact there, and so is the sum wherever its rounding
        could matter."""
        d = vector_of("double", width)
        x, y, z = (cast(self, text, dtype, _F64, width, False) for text in texts)
        product = self.let(f"fmul {d} {x}, {y}")
        return cast(self, self.let(f"fadd {d} {product}, {z}"), _F64, dtype, width, False)

    # branches and loops

    def branch(self, i: Instruction) -> None:
        """Emit a branch on a uniform condition."""
        assert self.env[i.operands[0]].is_scalar, "lanes of one vector do not part"
        saved = self.env, self.splats, self.path
        self.env, self.splats, self.path = dict(self.env), dict(self.splats), (*self.path, i.operands[0])
        with self.when(saved[0][i.operands[0]].text):
            if i in self.outlined_branches:
                run_outlined_branch(self, i)
            else:
                self.block(i.regions[0])
        self.env, self.splats, self.path = saved

    def loop(self, i: Instruction) -> None:
        """Emit a loop and bind its results."""
        saved = self.env, self.splats
        self.env, self.splats = dict(self.env), dict(self.splats)
        results = loop(self, i)
        self.env, self.splats = saved
        self.env.update(zip(i.results, results, strict=True))

    def fail(self, i: Instruction) -> None:
        """Set the status to the failure's code if its condition holds. Code that is inlined leaves before its next access, by a
        branch that LLVM joins with that of the driver."""
        if self.direct == "alwaysinline" and not self.depth and not self.path:
            self.failing.append((self.env[i.operands[0]].text, int(i.params["code"])))
            return
        self.join_status(self.let(f"select i1 {self.env[i.operands[0]].text}, i64 {i.params['code']}, i64 0"))


@functools.cache
def _template(op: Elementwise, spelling: str, dtype: DType, width: int) -> tuple[str, str]:
    """Return the template of an op, with a placeholder per operand, and the declaration of the function it calls, or ""."""
    t, m = vector_of(element(dtype), width), mangled(element(dtype), width)
    text = spelling.format(*(f"{{{k}}}" for k in range(op.arity)), t=t, m=m, c=vector_of("i1", width))
    if "@" not in text:
        return text, ""
    types = [t] * op.arity + (["i1"] if op.name == "abs" and dtype.is_integer else [])
    return text, f"declare {t} @{text.partition('@')[2].partition('(')[0]}({', '.join(types)})"


def _size_names(kernel: Function) -> set[str]:
    """Return the names of the sizes that a kernel's types and instructions use."""
    names = {e for v in kernel.parameters for e in v.type.shape if isinstance(e, str)}
    for i in walk(kernel.body):
        if isinstance(i.op, Extent) and isinstance(i.params["size"], str):
            names.add(i.params["size"])
    return names
