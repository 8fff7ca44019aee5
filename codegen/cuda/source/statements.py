"""The statements of one CUDA launch: kernel instructions as lines of C.

``in_block`` says who runs a statement: every thread for itself, or all threads of a block together with the same values; then
the first thread alone writes, and barriers stand around memory that several threads share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pullback.codegen.analysis.independence import Loops
from pullback.codegen.cuda.source import vector_accesses as cuda_packs
from pullback.codegen.cuda.source.device_linalg import call_text
from pullback.codegen.cuda.source.function_text import FunctionText, Place
from pullback.codegen.cuda.source.names import HALF, Names, bare, literal, loaded, stored, stored_name, type_name
from pullback.codegen.cuda.source.packs import Packs
from pullback.codegen.cuda.source.partial_results import Part
from pullback.codegen.cuda.source.scalar_ops import of_half, spelled
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import I64, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import AtomicAdd, Extent, Fail, For, If, Load, Prefetch, Store, Subview
from pullback.ir.ops.library.routines import Library

SMALL = 1 << 20
SHORT = 24


class Writer(FunctionText):
    """Writes one device function; ``places`` of the kernel's references are set by its user."""

    def __init__(self, kernel: Function, names: Names, loops: Loops) -> None:
        super().__init__(kernel, names)
        self.loops = loops
        self.degrees: dict[Value, int] = {}
        self.in_block = False
        self.shared: set[Value] = set()

    # instructions

    def instruction(self, i: Instruction) -> None:
        match i.op:
            case Extent():
                self.texts[i.result] = self.size(i.params["size"])
                self.degrees[i.result] = 0
            case Constant():
                self.texts[i.result] = literal(i.params["value"], i.params["dtype"])
                if i.params["dtype"] is I64 and abs(i.params["value"]) < SMALL:
                    self.degrees[i.result] = 0
            case Load(masked=masked):
                self.comment(i.loc)
                text = self.at(self.places[i.operands[0]], i.operands[2 if masked else 1 :])
                text = loaded(text, i.result.type.dtype)
                zero = literal(0, i.result.type.dtype)
                self.let(i.result, f"{self.value(i.operands[1])} ? {text} : {zero}" if masked else text)
            case AtomicAdd():
                t = "unsigned long long" if i.operands[0].type.dtype.bits == 64 else type_name(i.operands[0].type.dtype)
                target = self.at(self.places[i.operands[1]], i.operands[2:])
                self.line(f"atomicAdd(({t}*)&{target}, ({t}){self.value(i.operands[0])});")
            case Store(masked=masked):
                self.store(i, masked)
            case Prefetch():
                pass  # other threads run while one waits
            case Subview():
                self.sub(i)
            case For():
                self.loop(i)
            case If():
                with self.braces(f"if ({self.value(i.operands[0])}) {{"):
                    self.block(i.regions[0])
            case Fail():
                only = "threadIdx.x == 0 && " if self.in_block else ""
                self.line(f"pb_fail({self.status()}, {only}{self.value(i.operands[0])}, {i.params['code']});")
            case Library():
                self.comment(i.loc)
                self.line(call_text(i, [self.pointer(self.places[v]) for v in i.operands], self.size))
            case Elementwise():
                self.elementwise(i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no CUDA spelling")

    def elementwise(self, i: Instruction) -> None:
        self.comment(i.loc)
        op = i.op
        assert isinstance(op, Elementwise)
        dtype = i.operands[1 if op.gives == "select" else 0].type.dtype
        texts, result = [self.value(v) for v in i.operands], i.result.type.dtype
        if self.is_position(i):
            self.let(i.result, op.spelling("cuda", "i").format(*(bare(t) for t in texts)))
            return
        params = {k: v for k, v in i.params.items() if k != "dtype"}
        if result.name in HALF or dtype.name in HALF:
            self.let(i.result, of_half(op, texts, dtype, result, params))
        else:
            self.let(i.result, spelled(op, texts, dtype, result, params))

    def is_position(self, i: Instruction) -> bool:
        """Whether the result is a sum of positions, extents and products of two of those, too small to wrap around."""
        degrees = [self.degrees.get(v) for v in i.operands]
        if i.op.name not in ("add", "sub", "mul") or None in degrees:
            return False
        known = [d for d in degrees if d is not None]
        if i.op.name == "mul" and (max(known) > 1 or 0 not in known):
            return False
        self.degrees[i.result] = max(known) + (1 if i.op.name == "mul" else 0) if max(known) else 1
        return True

    def store(self, i: Instruction, masked: bool) -> None:
        target = self.at(self.places[i.operands[1]], i.operands[3 if masked else 2 :])
        condition = [self.value(i.operands[2])] if masked else []
        value = stored(self.value(i.operands[0]), i.operands[0].type.dtype)
        if not self.in_block:
            only = f"if ({condition[0]}) " if condition else ""
            self.line(f"{only}{target} = {value};")
            return
        is_shared = self.loops.place(i.operands[1])[0] in self.shared
        if is_shared:
            self.sync()
        self.line(f"if ({' && '.join(['threadIdx.x == 0', *condition])}) {target} = {value};")
        if is_shared:
            self.sync()

    def sub(self, i: Instruction) -> None:
        place, index = self.places[i.operands[0]], bare(self.value(i.operands[1]))
        t = i.result.type
        assert isinstance(t, RefType)
        base, name = self.pointer(place), self.names.fresh(f"{place.text}_{index}")
        if t.layout == "strided":
            text = f"pb_at({base}, {index} * {self.stride(place, 0)})"
        else:
            text = f"{base} + {index} * {self.product(t.shape)}"
        self.line(f"{'' if place.is_stored else 'const '}{stored_name(t.dtype)}* {name} = {text};")
        self.places[i.result] = Place(name, t, place.position, place.axis + 1, False, place.is_stored)

    # loops

    def enter_blocks(self, region: Block) -> None:
        """From here on whole blocks run; finds the memory that threads share: written, and not always at a lane's own places."""
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
        is_lane = self.in_block and i.params.get("map") == "lane"
        touches = is_lane and any(a.ref in self.shared for a in self.loops.accesses(i.regions[0]))
        if touches:
            self.sync()
        combine = i.params.get("combine")
        if i.params.get("scan"):
            self.carrying(i)
        elif combine is not None:
            parts = self.accumulators(combine, i.results)
            with self.counting(i, is_lane, parts):
                self.take(parts, [self.value(v) for v in i.regions[0].results])
            self.results(i, self.totals(parts, is_lane))
        elif i.results:
            self.carrying(i)
        else:
            with self.counting(i, is_lane):
                pass
        if touches:
            self.sync()

    @contextmanager
    def counting(self, i: Instruction, is_lane: bool, parts: Sequence[Part] = ()) -> Iterator[None]:
        """The head and the body of a loop; what is written inside the ``with`` ends the body."""
        index, count = self.counter(i), bare(self.value(i.operands[0]))
        start, step = ("threadIdx.x", f"{index} += blockDim.x") if is_lane else ("0", f"++{index}")
        outside = self.in_block
        packs = cuda_packs.find(self, i.regions[0]) if is_lane else None
        if packs is not None:
            first, width = self.names.fresh("first"), str(packs.width)
            places = f"{width} * {start}", count, f"{width} * blockDim.x"
            with cuda_packs.turns(self, i.regions[0], packs, first, places) as whole:
                self.in_block = False
                with cuda_packs.packed(self, i.regions[0], packs, first, f"{count} - {first}", width, whole, parts):
                    yield
            self.in_block = outside
            return
        if is_lane:
            self.unrolled(i.regions[0])
        with self.braces(f"for (long long {index} = {start}; {index} < {count}; {step}) {{"):
            self.in_block = outside and not is_lane
            self.block(i.regions[0])
            yield
        self.in_block = outside

    def unrolled(self, region: Block) -> None:
        """Have a thread begin several iterations of a short body at once: it waits for their loads together."""
        is_plain = not any(i.regions or (isinstance(i.op, Elementwise) and not i.op.cheap) for i in region.instructions)
        if is_plain and len(region.instructions) <= SHORT:
            self.lines.append("#pragma unroll 4")

    def counter(self, i: Instruction) -> str:
        value = i.regions[0].parameters[0]
        self.texts[value] = self.names.of(value)
        self.degrees[value] = 1
        return self.texts[value]

    def carrying(self, i: Instruction) -> None:
        """A loop whose variables live on from iteration to iteration; it may also combine."""
        (region,) = i.regions
        number = len(region.parameters) - 1
        for result, start, parameter in zip(i.results[:number], i.operands[1:], region.parameters[1:], strict=False):
            self.let(result, self.value(start))
            self.texts[parameter] = self.texts[result]
        variables = [self.texts[v] for v in i.results[:number]]
        parts = self.accumulators(i.params.get("combine") or (), i.results[number:])
        with self.counting(i, False):
            self.take(parts, [self.value(v) for v in region.results[number:]])
            texts = [self.value(v) for v in region.results[:number]]
            for k, text in enumerate(texts):
                if text in variables[:k]:
                    texts[k] = self.names.fresh(f"{text}_before")
                    self.line(f"{type_name(i.results[k].type.dtype)} {texts[k]} = {text};")
            for variable, text in zip(variables, texts, strict=True):
                if variable != text:
                    self.line(f"{variable} = {text};")
        self.results(i, self.totals(parts, False))

    @contextmanager
    def shared_out(
        self, nest: Sequence[Instruction], is_grid: bool, packs: Packs | None = None, parts: Sequence[Part] = ()
    ) -> Iterator[None]:
        """A nest that the grid's threads or blocks share out; what is written inside the ``with`` ends its innermost body."""
        if packs is not None:
            with self.packs_shared_out(nest, packs, parts):
                yield
            return
        counters, counts = [self.counter(i) for i in nest], [bare(self.value(i.operands[0])) for i in nest]
        start, step = ("pb_first()", "pb_step()") if is_grid else ("blockIdx.x", "gridDim.x")
        first = counters[0] if len(nest) == 1 else self.names.fresh("n")
        if is_grid:
            self.unrolled(nest[-1].regions[0])
        with self.braces(f"for (long long {first} = {start}; {first} < {' * '.join(counts)}; {first} += {step}) {{"):
            if len(nest) > 1:
                self.line(f"long long {', '.join(digits(first, counters, counts))};")
            for outer, inner in zip(nest, (*nest[1:], None)):
                for i in outer.regions[0].instructions:
                    if i is not inner:
                        self.instruction(i)
            yield

    @contextmanager
    def packs_shared_out(self, nest: Sequence[Instruction], packs: Packs, parts: Sequence[Part]) -> Iterator[None]:
        """Likewise, where a grid's threads take packs of the innermost loop's elements."""
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
                texts = digits(n, [*counters[:-1], first], [*counts[:-1], row])
                self.line(f"long long {', '.join(texts)} * {width};")
            for loop, below in zip(outer, nest[1:], strict=True):
                for i in loop.regions[0].instructions:
                    if i is not below:
                        self.instruction(i)
            left = f"{counts[-1]} - {first}"
            with cuda_packs.packed(self, inner.regions[0], packs, first, left, width, "", parts):
                yield


def digits(number: str, counters: Sequence[str], counts: Sequence[str]) -> list[str]:
    """The counters of a nest as functions of the position in all of it, row-major."""
    found = []
    for k, counter in enumerate(counters):
        rest = " / ".join([number, *reversed(counts[k + 1 :])])
        found.append(f"{counter} = {rest}" + (f" % {counts[k]}" if k else ""))
    return found
