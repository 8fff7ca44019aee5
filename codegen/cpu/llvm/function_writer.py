"""The writer of one LLVM function of a kernel: its arguments, its status, its references and their addresses.

Modules that emit loops, branches, tables, calls or accesses take a ``FunctionWriter``; its subclass ``Emitter`` dispatches
each instruction to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Protocol, Self

from pullback.codegen.cpu.llvm.lanes import Lanes, element, stored, vector_of
from pullback.codegen.cpu.llvm.text import RARELY, LazyText
from pullback.codegen.cpu.llvm.values import Values
from pullback.codegen.cpu.loops.reachability import Path, Reach
from pullback.codegen.slots import Slot
from pullback.codegen.targets import Target
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import BOOL, ArrayType, DType, RefType, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import split_functions

NO_KERNEL = Function("", Block((), (), ()), "kernel")
"""The empty kernel of a function that is emitted as a separate module."""


@dataclass(frozen=True)
class MemRef:
    """The memory of a reference: its base pointer, type, extents and, for a strided one, byte strides. ``is_constant``: nothing
    writes to it while the program runs."""

    pointer: str
    type: RefType
    extents: tuple[Lanes, ...]
    strides: tuple[Lanes, ...]
    is_constant: bool = False


class StreamedAccesses(Protocol):
    """How a vector loop over more memory than the caches hold emits its loads and stores.

    ``unroll``: the number of vectors of one iteration.
    """

    unroll: int

    def prefetch_ahead(self, pointer: str, dtype: DType, part: int, step: int = 1) -> None:
        """Emit a prefetch of the line that a later iteration loads."""

    def store(self, text: str, t: str, pointer: str, base: str, dtype: DType) -> bool:
        """Emit a non-temporal store of a vector; return False if that is not possible and the caller has to store it."""

    def flush(self) -> None:
        """Emit the deferred stores."""


class RowLoads(Protocol):
    """How a vector loop loads several overlapping vectors of one row."""

    @property
    def row_by_load(self) -> Collection[Instruction]:
        """Return these loads."""

    def load(self, i: Instruction) -> Lanes:
        """Emit a load; return its value."""

    def keep(self) -> None:
        """Keep the vectors of this iteration for the next one."""


class ScanStep(Protocol):
    """How a vector loop combines the vectors of a scanned value."""

    def step(self, values: str) -> Lanes:
        """Return the combination of all iterations up to each lane."""


class LoopsOverChunks(Protocol):
    """The loops over chunks of a driver's kernels, whose bodies are functions of a separate module."""

    def function(self, e: FunctionWriter, i: Instruction, copies: dict[Value, str]) -> tuple[str, Any]:
        """Emit the body of a loop; return the address of its function and its captures."""


class DeferredLoop(Protocol):
    """A loop over chunks that is emitted after the rest of the kernel. ``size``: its number of instructions."""

    size: int

    def is_reached(self, reach: Reach) -> bool:
        """Return whether the current sizes may reach the loop."""

    def write(self, e: FunctionWriter) -> None:
        """Emit the loop at its position in the kernel."""


class OutlinedLoop:
    """A vector loop of a variant (``variants``), emitted as a separate module.

    ``path``: the conditions that are nonzero whenever the variant runs.
    """

    def __init__(self, name: str, path: Path, form: LazyText) -> None:
        self.name, self.path, self._form = name, path, form
        self.written = ""
        self.slot: Slot = ("shared", name, LazyText(self._text))

    def _text(self) -> str:
        if not self.written:
            str(self._form)
        return self.written


class FunctionWriter(Values, ABC):
    """A writer of one function.

    ``direct``: if not empty, the attribute of an internal function of a larger module, whose arguments are plain parameters.
    ``mask``: the active lanes of the last, partial vector, or None if all are active. ``part``: the index of the vector within
    an unrolled iteration. ``first_part_addresses``: the addresses of the accesses in part 0; ``next_access`` counts those
    already reused in the present part. ``prefetches_ahead``: whether loads also prefetch the line ``PREFETCH_DISTANCE`` bytes
    behind theirs. ``blocks``: stack slots that hold the heap blocks of the function. ``depth``: the number of enclosing loops.
    ``constant``: the parameters to whose memory nothing writes while the program runs. ``status``: the stack slot of the returned
    status, if any. ``failing``: conditions that are tested before the next access, and the status if one holds. ``chunks``: the
    loops over chunks of a driver, in whose kernels a single chunk runs in place: ``is_single_chunk``, which is short.
    """

    chunks: LoopsOverChunks | None = None
    is_single_chunk = False
    status: str

    def __init__(
        self, kernel: Function, name: str, target: Target, direct: str = "", reach: Callable[[Block], Reach] = Reach
    ) -> None:
        super().__init__(target)
        self.kernel, self.shared = split_functions(kernel)
        self.reach = reach(self.kernel.body)
        self.path: Path = ()
        self.name = name
        self.direct = direct
        self.memrefs: dict[Value, MemRef] = {}
        self.mask: str | None = None
        self.part = 0
        self.first_part_addresses: list[str] = []
        self.next_access = 0
        self.prefetches_ahead = False
        self.streams: StreamedAccesses | None = None
        self.blocks: list[str] = []
        self.depth = 0
        self.bases: Mapping[Instruction, tuple[str, str]] = {}
        self.in_serial_loop = False
        self.outer_varying: Set[Value] = set()
        self.repeated: Set[Instruction] = set()
        self.rows: RowLoads | None = None
        self.streamed_slot: str | None = None
        self.has_exit = False
        self.failing: list[tuple[str, int]] = []
        self.written_only: frozenset[Value] = frozenset()
        self.read_only: frozenset[Value] = frozenset()
        self.constant: frozenset[Value] = frozenset()
        self.write_count = 0
        self.tables: dict[tuple[str, ...], str] = {}
        self.has_own_prefetches = False
        self.constants: dict[tuple[object, ...], str] = {}
        self.scans: dict[Value, ScanStep] = {}
        self.functions: list[str] = []
        self.deferred: list[DeferredLoop] = []
        self.in_own_module: set[Instruction] = set()
        self.outlined_branches: Set[Instruction] = set()
        self.outlined_loops: dict[Instruction, OutlinedLoop] = {}
        self.has_several_parallel_loops = sum(i.params.get("map") == "core" for i in kernel.body.instructions) > 1
        self.cold: dict[str, Block] = {}
        self.native_source: Callable[..., str] | None = None
        self.arguments: tuple[str, Mapping[tuple[object, ...], int]] | None = None

    def nested(self, name: str) -> Self:
        """Return the writer of another function in the same module."""
        writer = type(self)(self.kernel, name, self.target)
        writer.declared, writer.constants = self.declared, self.constants
        writer.cold, writer.shared, writer.reach = self.cold, self.shared, self.reach
        writer.written_only, writer.read_only, writer.has_own_prefetches = (
            self.written_only,
            self.read_only,
            self.has_own_prefetches,
        )
        return writer

    def separate_module(self, name: str) -> Self:
        """Return the writer of a function in a separate module."""
        return type(self)(NO_KERNEL, name, self.target)

    # instructions

    @abstractmethod
    def block(self, block: Block) -> None:
        """Emit the instructions of a block."""

    @abstractmethod
    def instruction(self, i: Instruction) -> None:
        """Emit an instruction."""

    @abstractmethod
    def emit_elementwise(self, op: Elementwise, spelling: str, texts: list[str], dtype: DType, width: int) -> str:
        """Emit an elementwise op from its template ``spelling``; return the result."""

    @abstractmethod
    def load_contiguous(
        self, memref: MemRef, pointer: str, guard: Lanes | None, in_serial_loop: bool = False, prefetches: bool = True
    ) -> Lanes:
        """Emit a load of a contiguous vector at an address; return the vector."""

    # arguments

    def native(self, *slot: object) -> str:
        """Return the address of a native function as an i64; functions of other modules are also reported to ``reach``."""
        if slot[0] == "shared":
            self.reach.record(slot, self.path)
        return self.native_argument(*slot)

    def native_argument(self, *slot: object) -> str:
        """Return the address of a native function; a nested function takes it from the kernel that calls it."""
        return super().native(*slot) if self.native_source is None else self.native_source(*slot)

    @property
    def inlined(self) -> bool:
        """Return whether the function is inlined into its callers and should be short."""
        return self.direct == "alwaysinline"

    def argument(self, *slot: object) -> str:
        """Return the i64 of an argument slot: from a block of slots, from the slots of the kernel, or as a plain parameter."""
        if self.arguments is not None:
            block, positions = self.arguments
            return self.at_entry(f"load i64, ptr {self.at_entry(f'getelementptr i64, ptr {block}, i64 {positions[slot]}')}")
        if not self.direct:
            return super().argument(*slot)
        self.slots.append(slot)
        return f"%a{len(self.slots) - 1}"

    def pointer(self, position: int) -> str:
        """Return the address of a parameter's memory."""
        return self.argument("pointer", position) if self.direct else self.address("pointer", position)

    def parameter(self, position: int, value: Value) -> None:
        """Bind a parameter of the kernel to its argument slots."""
        t = value.type
        assert not isinstance(t, StackType)
        if isinstance(t, ArrayType):
            bits = self.argument("scalar", position, t.dtype.name)
            self.env[value] = Lanes(self.from_bits(bits, t.dtype))
            return
        pointer = self.pointer(position)
        strides = tuple(Lanes(self.argument("stride", position, k)) for k in range(t.rank)) if t.layout == "strided" else ()
        self.memrefs[value] = MemRef(pointer, t, (), strides, value in self.constant)

    def from_bits(self, bits: str, dtype: DType) -> str:
        """Convert the bits of a scalar argument to its dtype, at entry."""
        name, current = element(dtype), bits
        if dtype.is_bool:
            result = self.fresh()
            self.entry.append(f"  {result} = icmp ne i64 {bits}, 0")
            return result
        if dtype.bits < 64:
            current = self.fresh()
            self.entry.append(f"  {current} = trunc i64 {bits} to i{dtype.bits}")
        if not dtype.is_float:
            return current
        result = self.fresh()
        self.entry.append(f"  {result} = bitcast i{dtype.bits} {current} to {name}")
        return result

    def add_extents(self) -> None:
        """Add extents to the references that have none, from their types."""
        for value, memref in list(self.memrefs.items()):
            if len(memref.extents) < memref.type.rank:
                self.memrefs[value] = replace(memref, extents=tuple(self.extent(e) for e in memref.type.shape))

    # the end

    def streamed_flag(self) -> str:
        """Return the slot of an i1 that is true once the function may have emitted non-temporal stores."""
        if self.streamed_slot is None:
            self.streamed_slot = self.slot("i1")
            self.entry.append(f"  store i1 false, ptr {self.streamed_slot}")
        return self.streamed_slot

    def end(self) -> None:
        """Emit the end of the function: a fence after non-temporal stores, the release of its heap blocks, and the return of
        its status."""
        self.leave_at_failures()
        if self.has_exit:
            self.line("br label %out")
            self.label("out")
        if self.streamed_slot is not None:
            with self.when(self.let(f"load i1, ptr {self.streamed_slot}")):
                self.line("fence seq_cst")
        for block in self.blocks:
            self.free_block(block)
        self.line(f"ret i64 {self.let(f'load i64, ptr {self.status}')}")

    def leave_at_failures(self) -> None:
        """Emit a branch for all conditions in ``failing``; the function ends with the status of the first that holds."""
        if not self.failing:
            return
        self.count += 1
        failed, on = f"fails{self.count}", f"holds{self.count}"
        self.declared[RARELY] = None
        any_fails = self.failing[0][0]
        for condition, _ in self.failing[1:]:
            any_fails = self.let(f"or i1 {any_fails}, {condition}")
        self.line(f"br i1 {any_fails}, label %{failed}, label %{on}, !prof !9000")
        with self.conditional():
            self.label(failed, follows=True)
            status = str(self.failing[-1][1])
            for condition, code in reversed(self.failing[:-1]):
                status = self.let(f"select i1 {condition}, i64 {code}, i64 {status}")
            self.leave(status)
        self.label(on, follows=True)
        self.failing.clear()

    def leave(self, status: str) -> None:
        """Set the status, unless another is set, and branch to the end of the function."""
        self.join_status(status)
        self.line("br label %out")
        self.has_exit = True

    def join_status(self, status: str) -> None:
        """Set the kernel's status unless it is already nonzero."""
        before = self.let(f"load i64, ptr {self.status}")
        first = self.let(f"icmp eq i64 {before}, 0")
        self.line(f"store i64 {self.let(f'select i1 {first}, i64 {status}, i64 {before}')}, ptr {self.status}")

    def free_block(self, block: str) -> None:
        """Free the heap block whose address a slot holds, if it is not null."""
        held = self.let(f"load ptr, ptr {block}")
        with self.when(self.let(f"icmp ne ptr {held}, null")):
            self.line(f"call void {self.callee('room', 'give')}(ptr {self.callee('room', 'state')}, ptr {held}, i64 0)")

    # addresses

    def offset(self, memref: MemRef, index: Sequence[Lanes]) -> Lanes:
        """Return the offset of an element: in elements, or in bytes for strided references."""
        total = Lanes("0")
        if memref.strides:
            for i, stride in zip(index, memref.strides, strict=True):
                total = self.add(total, self.multiply(i, stride))
            return total
        for i, extent in zip(index, memref.extents, strict=True):
            total = self.add(self.multiply(total, extent), i)
        return total

    def pointers(self, memref: MemRef, offset: Lanes) -> str:
        """Return the address at an offset, or a vector of addresses if the offset differs from lane to lane."""
        step = "i8" if memref.strides else stored(memref.type.dtype)
        if offset.is_scalar:
            return self.let(f"getelementptr {step}, ptr {memref.pointer}, i64 {offset.text}")
        return self.let(f"getelementptr {step}, ptr {memref.pointer}, {vector_of('i64', self.width)} {self.i64(offset)}")

    def contiguous_address(self, memref: MemRef, first: str, offset: str, step: int = 1) -> str:
        """Return the address of a contiguous vector that is ``offset`` elements behind the address ``first``.

        In further parts of an unrolled iteration it is a constant distance from the address of the same access in part 0.
        """
        name = stored(memref.type.dtype)
        if self.part:
            self.next_access += 1
            start = self.first_part_addresses[self.next_access - 1]
            return self.let(f"getelementptr {name}, ptr {start}, i64 {step * self.part * self.width}")
        address = self.let(f"getelementptr {name}, ptr {first}, i64 {offset}")
        self.first_part_addresses.append(address)
        return address

    def row_address(self, memref: MemRef, index: Sequence[Lanes]) -> str | None:
        """Return the address of a contiguous vector, computed from the address of its row, which is loop-invariant.

        None if the lanes are not contiguous along the last axis.
        """
        *outer, inner = index or (Lanes("0"),)
        if memref.strides or inner.step != 1 or not all(i.is_scalar for i in outer):
            return None
        row = self.multiply(self.offset(replace(memref, extents=memref.extents[:-1]), outer), memref.extents[-1])
        first = memref.pointer if row.literal == 0 else self.pointers(memref, row)
        return self.contiguous_address(memref, first, inner.text)

    def access_mask(self, guard: Lanes | None) -> str | None:
        """Return the mask of an access: the lanes of the tail that the guard admits, or None if all lanes are active."""
        if guard is None:
            return self.mask
        lanes = self.vector(guard, BOOL)
        if self.mask is None:
            return lanes
        return self.let(f"and {vector_of('i1', self.width)} {self.mask}, {lanes}")

    def readable_address(self, pointer: str, memref: MemRef, mask: str) -> str:
        """Return the address of a masked load, or the base of the reference if no lane is active.

        A masked load of an address without a mapped page is slow even if all its lanes are inactive.
        """
        is_read = self.intrinsic("i1", f"llvm.vector.reduce.or.v{self.width}i1", [(vector_of("i1", self.width), mask)])
        return self.let(f"select i1 {is_read}, ptr {pointer}, ptr {memref.pointer}")

    def from_memory(self, text: str, dtype: DType, width: int) -> str:
        """Convert a loaded value from its form in memory: booleans are stored as bytes."""
        if not dtype.is_bool:
            return text
        return self.let(f"icmp ne {vector_of('i8', width)} {text}, {'zeroinitializer' if width > 1 else '0'}")

    def all_lanes(self) -> str:
        return "<" + ", ".join(["i1 true"] * self.width) + ">"
