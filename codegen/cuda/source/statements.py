"""The statements of one CUDA launch: kernel instructions as lines of C.

``in_block`` says which threads run a statement: each thread for itself, or all threads of a block together, on the same
values. In the latter case only the first thread writes, and barriers surround accesses to memory that several threads share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pullback.codegen.analysis.independence import Loops
from pullback.codegen.cuda.source import vector_accesses as cuda_vector_accesses
from pullback.codegen.cuda.source.device_linalg import call_text
from pullback.codegen.cuda.source.function_text import FunctionText, Location
from pullback.codegen.cuda.source.names import HALF, Names, bare, literal, loaded, stored, stored_name, type_name
from pullback.codegen.cuda.source.packs import Packs
from pullback.codegen.cuda.source.partial_results import PartialResult
from pullback.codegen.cuda.source.scalar_ops import expression, half_expression
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import I64, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import AtomicAdd, Extent, Fail, For, If, Load, Prefetch, Store, Subview
from pullback.ir.ops.library.routines import Library

SMALL_CONSTANT = 1 << 20
"""Bound of the absolute value of constants that may occur in index arithmetic, which then does not wrap around."""
MOST_UNROLLED = 24
"""Most instructions of a loop body that is unrolled."""


class Writer(FunctionText):
    """Writes one device function. Its user sets the ``locations`` of the kernel's references. ``degrees``: for an index or an
    extent, its degree in the loop counters."""

    def __init__(self, kernel: Function, names: Names, loops: Loops) -> None:
        super().__init__(kernel, names)
        self.loops = loops
        self.degrees: dict[Value, int] = {}
        self.in_block = False
        self.shared: set[Value] = set()

    # instructions

    def instruction(self, i: Instruction) -> None:
        """Emit an instruction."""
        match i.op:
            case Extent():
                self.texts[i.result] = self.size(i.params["size"])
                self.degrees[i.result] = 0
            case Constant():
                self.texts[i.result] = literal(i.params["value"], i.params["dtype"])
                if i.params["dtype"] is I64 and abs(i.params["value"]) < SMALL_CONSTANT:
                    self.degrees[i.result] = 0
            case Load(masked=masked):
                self.comment(i.loc)
                text = self.at(self.locations[i.operands[0]], i.operands[2 if masked else 1 :])
                text = loaded(text, i.result.type.dtype)
                zero = literal(0, i.result.type.dtype)
                self.let(i.result, f"{self.value(i.operands[1])} ? {text} : {zero}" if masked else text)
            case AtomicAdd():
                t = "unsigned long long" if i.operands[0].type.dtype.bits == 64 else type_name(i.operands[0].type.dtype)
                target = self.at(self.locations[i.operands[1]], i.operands[2:])
                self.line(f"atomicAdd(({t}*)&{target}, ({t}){self.value(i.operands[0])});")
            case Store(masked=masked):
                self.store(i, masked)
            case Prefetch():
                pass  # the hardware hides latency by running other threads
            case Subview():
                self.subview(i)
            case For():
                self.loop(i)
            case If():
                with self.braces(f"if ({self.value(i.operands[0])}) {{"):
                    self.block(i.regions[0])
            case Fail():
                condition = "threadIdx.x == 0 && " if self.in_block else ""
                self.line(f"pb_fail({self.status()}, {condition}{self.value(i.operands[0])}, {i.params['code']});")
            case Library():
                self.comment(i.loc)
                self.line(call_text(i, [self.pointer(self.locations[v]) for v in i.operands], self.size))
            case Elementwise():
                self.elementwise(i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no CUDA spelling")

    def elementwise(self, i: Instruction) -> None:
        """Emit an elementwise op."""
        self.comment(i.loc)
        op = i.op
        assert isinstance(op, Elementwise)
        dtype = i.operands[1 if op.gives == "select" else 0].type.dtype
        texts, result = [self.value(v) for v in i.operands], i.result.type.dtype
        if self.is_index_arithmetic(i):
            self.let(i.result, op.template("cuda", "i").format(*(bare(t) for t in texts)))
            return
        params = {k: v for k, v in i.params.items() if k != "dtype"}
        if result.name in HALF or dtype.name in HALF:
            self.let(i.result, half_expression(op, texts, dtype, result, params))
        else:
            self.let(i.result, expression(op, texts, dtype, result, params))

    def is_index_arithmetic(self, i: Instruction) -> bool:
        """Return whether the result is index arithmetic, a sum of counters, extents and products of at most two of them, which
        is too small to wrap around."""
        degrees = [self.degrees.get(v) for v in i.operands]
        if i.op.name not in ("add", "sub", "mul") or None in degrees:
            return False
        operand_degrees = [d for d in degrees if d is not None]
        if i.op.name == "mul" and (max(operand_degrees) > 1 or 0 not in operand_degrees):
            return False
        self.degrees[i.result] = max(operand_degrees) + (1 if i.op.name == "mul" else 0) if max(operand_degrees) else 1
        return True

    def store(self, i: Instruction, masked: bool) -> None:
        """Emit a store; by one thread, if a whole block runs it."""
        target = self.at(self.locations[i.operands[1]], i.operands[3 if masked else 2 :])
        condition = [self.value(i.operands[2])] if masked else []
        value = stored(self.value(i.operands[0]), i.operands[0].type.dtype)
        if not self.in_block:
            guard = f"if ({condition[0]}) " if condition else ""
            self.line(f"{guard}{target} = {value};")
            return
        is_shared = self.loops.root_and_index(i.operands[1])[0] in self.shared
        if is_shared:
            self.sync()
        self.line(f"if ({' && '.join(['threadIdx.x == 0', *condition])}) {target} = {value};")
        if is_shared:
            self.sync()

    def subview(self, i: Instruction) -> None:
        """Emit a subview."""
        location, index = self.locations[i.operands[0]], bare(self.value(i.operands[1]))
        t = i.result.type
        assert isinstance(t, RefType)
        base, name = self.pointer(location), self.names.fresh(f"{location.text}_{index}")
        if t.layout == "strided":
            text = f"pb_at({base}, {index} * {self.stride(location, 0)})"
        else:
            text = f"{base} + {index} * {self.product(t.shape)}"
        self.line(f"{'' if location.is_stored else 'const '}{stored_name(t.dtype)}* {name} = {text};")
        self.locations[i.result] = Location(name, t, location.position, location.axis + 1, False, location.is_stored)

    # loops

    def enter_blocks(self, region: Block) -> None:
        """Begin statements that whole blocks run. Find the memory that threads share: it is written, and not only at a lane's
        own elements."""
        self.in_block = True
        lanes = {k: i.regions[0].parameters[0] for i in walk(region) if i.params.get("map") == "lane" for k in walk(i.regions[0])}
        by_ref: dict[Value, list[tuple[Value | None, tuple[Value, ...]]]] = {}
        for access in self.loops.accesses(region):
            by_ref.setdefault(access.ref, []).append((lanes.get(access.instruction), access.index))
        for ref in self.loops.stored(region):
            accesses = by_ref[ref]
            rank = len(accesses[0][1])
            owned = any(all(lane is not None and index[k] is lane for lane, index in accesses) for k in range(rank))
            if len(accesses) > 1 and not owned:
                self.shared.add(ref)

    def loop(self, i: Instruction) -> None:
        """Emit a loop."""
        is_lane = self.in_block and i.params.get("map") == "lane"
        touches = is_lane and any(a.ref in self.shared for a in self.loops.accesses(i.regions[0]))
        if touches:
            self.sync()
        combine = i.params.get("combine")
        if i.params.get("scan"):
            self.carried_loop(i)
        elif combine is not None:
            parts = self.accumulators(combine, i.results)
            with self.counted_loop(i, is_lane, parts):
                self.accumulate(parts, [self.value(v) for v in i.regions[0].results])
            self.results(i, self.totals(parts, is_lane))
        elif i.results:
            self.carried_loop(i)
        else:
            with self.counted_loop(i, is_lane):
                pass
        if touches:
            self.sync()

    @contextmanager
    def counted_loop(self, i: Instruction, is_lane: bool, parts: Sequence[PartialResult] = ()) -> Iterator[None]:
        """Emit the head and the body of a loop; text emitted inside the ``with`` ends the body."""
        index, count = self.counter(i), bare(self.value(i.operands[0]))
        start, step = ("threadIdx.x", f"{index} += blockDim.x") if is_lane else ("0", f"++{index}")
        outside = self.in_block
        packs = cuda_vector_accesses.find_packs(self, i.regions[0]) if is_lane else None
        if packs is not None:
            first, width = self.names.fresh("first"), str(packs.width)
            bounds = f"{width} * {start}", count, f"{width} * blockDim.x"
            with cuda_vector_accesses.pack_loop(self, i.regions[0], packs, first, bounds) as is_aligned:
                self.in_block = False
                with cuda_vector_accesses.pack_body(
                    self, i.regions[0], packs, first, f"{count} - {first}", width, is_aligned, parts
                ):
                    yield
            self.in_block = outside
            return
        if is_lane:
            self.unroll_hint(i.regions[0])
        with self.braces(f"for (long long {index} = {start}; {index} < {count}; {step}) {{"):
            self.in_block = outside and not is_lane
            self.block(i.regions[0])
            yield
        self.in_block = outside

    def unroll_hint(self, region: Block) -> None:
        """Unroll a loop with a short body, so that a thread issues the loads of several iterations before it uses them."""
        is_plain = not any(i.regions or (isinstance(i.op, Elementwise) and not i.op.cheap) for i in region.instructions)
        if is_plain and len(region.instructions) <= MOST_UNROLLED:
            self.lines.append("#pragma unroll 4")

    def counter(self, i: Instruction) -> str:
        value = i.regions[0].parameters[0]
        self.texts[value] = self.names.of(value)
        self.degrees[value] = 1
        return self.texts[value]

    def carried_loop(self, i: Instruction) -> None:
        """Emit a loop with variables carried from iteration to iteration; it may also combine."""
        (region,) = i.regions
        carried_count = len(region.parameters) - 1
        for result, start, parameter in zip(i.results[:carried_count], i.operands[1:], region.parameters[1:], strict=False):
            self.let(result, self.value(start))
            self.texts[parameter] = self.texts[result]
        variables = [self.texts[v] for v in i.results[:carried_count]]
        parts = self.accumulators(i.params.get("combine") or (), i.results[carried_count:])
        with self.counted_loop(i, False):
            self.accumulate(parts, [self.value(v) for v in region.results[carried_count:]])
            texts = [self.value(v) for v in region.results[:carried_count]]
            for k, text in enumerate(texts):
                if text in variables[:k]:
                    texts[k] = self.names.fresh(f"{text}_before")
                    self.line(f"{type_name(i.results[k].type.dtype)} {texts[k]} = {text};")
            for variable, text in zip(variables, texts, strict=True):
                if variable != text:
                    self.line(f"{variable} = {text};")
        self.results(i, self.totals(parts, False))

    @contextmanager
    def grid_stride_loop(
        self, nest: Sequence[Instruction], is_grid: bool, packs: Packs | None = None, parts: Sequence[PartialResult] = ()
    ) -> Iterator[None]:
        """Emit a nest distributed over the grid's threads or blocks; text emitted inside the ``with`` ends its innermost body."""
        if packs is not None:
            with self.packed_grid_stride_loop(nest, packs, parts):
                yield
            return
        counters, counts = [self.counter(i) for i in nest], [bare(self.value(i.operands[0])) for i in nest]
        start, step = ("pb_first()", "pb_step()") if is_grid else ("blockIdx.x", "gridDim.x")
        first = counters[0] if len(nest) == 1 else self.names.fresh("n")
        if is_grid:
            self.unroll_hint(nest[-1].regions[0])
        with self.braces(f"for (long long {first} = {start}; {first} < {' * '.join(counts)}; {first} += {step}) {{"):
            if len(nest) > 1:
                self.line(f"long long {', '.join(counters_from_index(first, counters, counts))};")
            for outer, inner in zip(nest, (*nest[1:], None)):
                for i in outer.regions[0].instructions:
                    if i is not inner:
                        self.instruction(i)
            yield

    @contextmanager
    def packed_grid_stride_loop(
        self, nest: Sequence[Instruction], packs: Packs, parts: Sequence[PartialResult]
    ) -> Iterator[None]:
        """Emit a nest distributed over the grid's threads, which take packs of the innermost loop's elements."""
        *outer, inner = nest
        counters, counts = [self.counter(i) for i in nest], [bare(self.value(i.operands[0])) for i in nest]
        first, width = self.names.fresh("first"), self.parameter("width", "int ", "width")
        if outer:
            n, row = self.names.fresh("n"), self.name("packs", f"({counts[-1]} + {width} - 1) / {width}")
            head = f"for (long long {n} = pb_first(); {n} < {' * '.join((*counts[:-1], row))}; {n} += pb_step()) {{"
        else:
            head = f"for (long long {first} = {width} * pb_first(); {first} < {counts[-1]}; {first} += {width} * pb_step()) {{"
        with self.braces(head):
            if outer:
                texts = counters_from_index(n, [*counters[:-1], first], [*counts[:-1], row])
                self.line(f"long long {', '.join(texts)} * {width};")
            for loop, below in zip(outer, nest[1:], strict=True):
                for i in loop.regions[0].instructions:
                    if i is not below:
                        self.instruction(i)
            remaining = f"{counts[-1]} - {first}"
            with cuda_vector_accesses.pack_body(self, inner.regions[0], packs, first, remaining, width, "", parts):
                yield


def counters_from_index(index: str, counters: Sequence[str], counts: Sequence[str]) -> list[str]:
    """Return the declarators of a nest's counters, computed from ``index``, the row-major position in the nest."""
    texts = []
    for k, counter in enumerate(counters):
        quotient = " / ".join([index, *reversed(counts[k + 1 :])])
        texts.append(f"{counter} = {quotient}" + (f" % {counts[k]}" if k else ""))
    return texts
