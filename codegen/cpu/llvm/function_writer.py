"""One LLVM function of a kernel in the making: its arguments, its status, where its references are, and addresses in these.

What writes loops, branches, tables, calls or accesses into it takes a ``FunctionWriter``; ``Emitter`` derives from it and says
which of these writes which instruction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol, Self

from pullback.codegen.cpu.llvm.lanes import Lanes, element, stored, wide
from pullback.codegen.cpu.llvm.text import Unwritten
from pullback.codegen.cpu.llvm.values import Values
from pullback.codegen.cpu.loops.reachability import Path, Reach
from pullback.codegen.slots import Slot
from pullback.codegen.targets import Target
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import BOOL, ArrayType, DType, RefType, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import parted

NO_KERNEL = Function("", Block((), (), ()), "kernel")
"""The kernel of a function that is in a module of its own."""


@dataclass(frozen=True)
class Place:
    """Where a reference's elements are: base pointer, the extents or byte strides, the remaining type."""

    pointer: str
    type: RefType
    extents: tuple[Lanes, ...]
    strides: tuple[Lanes, ...]


class LineStores(Protocol):
    """What a vector loop over much memory does with its loads and stores; ``unroll``: how many vectors an iteration has."""

    unroll: int

    def ahead(self, pointer: str, dtype: DType, part: int, step: int = 1) -> None:
        """Prefetch the line that a load will need."""

    def store(self, text: str, t: str, pointer: str, base: str, dtype: DType) -> bool:
        """Store a vector past the caches; return whether that is done."""

    def flush(self) -> None:
        """Make the stores that are put off."""


class RowLoads(Protocol):
    """What a vector loop does with loads of neighbours in a row."""

    @property
    def of(self) -> Collection[Instruction]:
        """Return these loads."""

    def load(self, i: Instruction) -> Lanes:
        """Write a load; return its value."""

    def keep(self) -> None:
        """Keep the vectors of an iteration for the next one."""


class ScanStep(Protocol):
    """What a vector loop does with a scanned value."""

    def step(self, given: str) -> Lanes:
        """Return the combinations up to each lane."""


class DeferredLoop(Protocol):
    """A loop over chunks that is written after all else; ``size``: how many instructions it has."""

    size: int

    def is_reached(self, reach: Reach) -> bool:
        """Return whether the sizes at hand may reach it."""

    def write(self, e: FunctionWriter) -> None:
        """Write it where it belongs."""


class Part:
    """A vector loop of a form (``variants``) as a module. ``path``: what has to be other than 0 for the form to run."""

    def __init__(self, name: str, path: Path, form: Unwritten) -> None:
        self.name, self.path, self._form = name, path, form
        self.written = ""
        self.slot: Slot = ("shared", name, Unwritten(self._text))

    def _text(self) -> str:
        if not self.written:
            str(self._form)
        return self.written


class FunctionWriter(Values, ABC):
    """``direct``, if not empty: the attribute of an internal function of a larger module, whose arguments are parameters.

    ``mask``: the lanes of the last, partial vector; None where all run. ``part``: which of an iteration's vectors is written.
    ``firsts``: the addresses of the first part's accesses, of which ``met`` were met again. ``asks_ahead``: whether loads ask for
    the lines behind theirs. ``blocks``: the slots of the blocks of memory that the function holds. ``depth``: how many loops are
    around. ``status``: the slot of what the function returns, where it returns anything."""

    status: str

    def __init__(
        self, kernel: Function, name: str, target: Target, direct: str = "", reach: Callable[[Block], Reach] = Reach
    ) -> None:
        super().__init__(target)
        self.kernel, self.shared = parted(kernel)
        self.reach = reach(self.kernel.body)
        self.path: Path = ()
        self.name = name
        self.direct = direct
        self.places: dict[Value, Place] = {}
        self.mask: str | None = None
        self.part = 0
        self.firsts: list[str] = []
        self.met = 0
        self.asks_ahead = False
        self.streams: LineStores | None = None
        self.blocks: list[str] = []
        self.depth = 0
        self.bases: Mapping[Instruction, tuple[str, str]] = {}
        self.walks = False
        self.around: Set[Value] = set()
        self.again: Set[Instruction] = set()
        self.rows: RowLoads | None = None
        self.past_slot: str | None = None
        self.leaves = False
        self.written_only: frozenset[Value] = frozenset()
        self.read_only: frozenset[Value] = frozenset()
        self.kernel_asks = False
        self.constants: dict[tuple[object, ...], str] = {}
        self.scans: dict[Value, ScanStep] = {}
        self.functions: list[str] = []
        self.waiting: list[DeferredLoop] = []
        self.elsewhere: set[Instruction] = set()
        self.apart_branches: Set[Instruction] = set()
        self.parts: dict[Instruction, Part] = {}
        self.has_several = sum(i.params.get("map") == "core" for i in kernel.body.instructions) > 1
        self.cold: dict[str, Block] = {}
        self.natives_of: Callable[..., str] | None = None
        self.arguments: tuple[str, Mapping[tuple[object, ...], int]] | None = None

    def inner(self, name: str) -> Self:
        """Return the writer of a function beside this one."""
        writer = type(self)(self.kernel, name, self.target)
        writer.declared, writer.constants = self.declared, self.constants
        writer.cold, writer.shared, writer.reach = self.cold, self.shared, self.reach
        writer.written_only, writer.read_only, writer.kernel_asks = self.written_only, self.read_only, self.kernel_asks
        return writer

    def apart(self, name: str) -> Self:
        """Return the writer of a function in a module of its own."""
        return type(self)(NO_KERNEL, name, self.target)

    # instructions

    @abstractmethod
    def block(self, block: Block) -> None:
        """Write the instructions of a block."""

    @abstractmethod
    def instruction(self, i: Instruction) -> None:
        """Write an instruction."""

    @abstractmethod
    def spelled(self, op: Elementwise, spelling: str, texts: list[str], dtype: DType, width: int) -> str:
        """Write an elementwise op as its spelling says; return the result."""

    @abstractmethod
    def load_line(self, place: Place, pointer: str, guard: Lanes | None, walks: bool = False, asks: bool = True) -> Lanes:
        """Write a load of neighbours, the first at an address; return the vector."""

    # arguments

    def native(self, *what: object) -> str:
        if what[0] == "shared":
            self.reach.meet(what, self.path)
        return self.given(*what)

    def given(self, *what: object) -> str:
        """The address of a native function as the kernel gives it to its functions."""
        return super().native(*what) if self.natives_of is None else self.natives_of(*what)

    @property
    def inlined(self) -> bool:
        """Whether the function takes the place of its calls, and so had better be short."""
        return self.direct == "alwaysinline"

    def argument(self, *what: object) -> str:
        if self.arguments is not None:
            block, positions = self.arguments
            return self.at_entry(f"load i64, ptr {self.at_entry(f'getelementptr i64, ptr {block}, i64 {positions[what]}')}")
        if not self.direct:
            return super().argument(*what)
        self.slots.append(what)
        return f"%a{len(self.slots) - 1}"

    def pointer(self, position: int) -> str:
        """The address of a parameter's memory."""
        return self.argument("pointer", position) if self.direct else self.address("pointer", position)

    def parameter(self, position: int, value: Value) -> None:
        t = value.type
        assert not isinstance(t, StackType)
        if isinstance(t, ArrayType):
            bits = self.argument("scalar", position, t.dtype.name)
            self.env[value] = Lanes(self.from_bits(bits, t.dtype))
            return
        pointer = self.pointer(position)
        strides = tuple(Lanes(self.argument("stride", position, k)) for k in range(t.rank)) if t.layout == "strided" else ()
        self.places[value] = Place(pointer, t, (), strides)

    def from_bits(self, bits: str, dtype: DType) -> str:
        name, current = element(dtype), bits
        if dtype.is_bool:
            found = self.fresh()
            self.entry.append(f"  {found} = icmp ne i64 {bits}, 0")
            return found
        if dtype.bits < 64:
            current = self.fresh()
            self.entry.append(f"  {current} = trunc i64 {bits} to i{dtype.bits}")
        if not dtype.is_float:
            return current
        found = self.fresh()
        self.entry.append(f"  {found} = bitcast i{dtype.bits} {current} to {name}")
        return found

    def know_extents(self) -> None:
        """Give the places that have none the extents of their types."""
        for value, place in list(self.places.items()):
            if len(place.extents) < place.type.rank:
                self.places[value] = replace(place, extents=tuple(self.extent(e) for e in place.type.shape))

    # the end

    def streamed(self) -> str:
        """The slot of an i1 that says whether stores of this function may have gone past the caches."""
        if self.past_slot is None:
            self.past_slot = self.slot("i1")
            self.entry.append(f"  store i1 false, ptr {self.past_slot}")
        return self.past_slot

    def end(self) -> None:
        """Return the status; who reads what was stored past the caches finds it there."""
        if self.leaves:
            self.line("br label %out")
            self.label("out")
        if self.past_slot is not None:
            with self.when(self.let(f"load i1, ptr {self.past_slot}")):
                self.line("fence seq_cst")
        for block in self.blocks:
            self.give_back(block)
        self.line(f"ret i64 {self.let(f'load i64, ptr {self.status}')}")

    def leave(self, status: int) -> None:
        self.join_status(str(status))
        self.line("br label %out")
        self.leaves = True

    def join_status(self, status: str) -> None:
        """The kernel's status becomes another unless it has one."""
        before = self.let(f"load i64, ptr {self.status}")
        first = self.let(f"icmp eq i64 {before}, 0")
        self.line(f"store i64 {self.let(f'select i1 {first}, i64 {status}, i64 {before}')}, ptr {self.status}")

    def give_back(self, block: str) -> None:
        """Give back what a slot holds, if it holds anything."""
        held = self.let(f"load ptr, ptr {block}")
        with self.when(self.let(f"icmp ne ptr {held}, null")):
            self.line(f"call void {self.callee('room', 'give')}(ptr {self.callee('room', 'state')}, ptr {held}, i64 0)")

    # addresses

    def offset(self, place: Place, index: Sequence[Lanes]) -> Lanes:
        """The position of an element: in elements, or in bytes for strided references."""
        total = Lanes("0")
        if place.strides:
            for i, stride in zip(index, place.strides, strict=True):
                total = self.add(total, self.multiply(i, stride))
            return total
        for i, extent in zip(index, place.extents, strict=True):
            total = self.add(self.multiply(total, extent), i)
        return total

    def pointers(self, place: Place, offset: Lanes) -> str:
        step = "i8" if place.strides else stored(place.type.dtype)
        if offset.is_scalar:
            return self.let(f"getelementptr {step}, ptr {place.pointer}, i64 {offset.text}")
        return self.let(f"getelementptr {step}, ptr {place.pointer}, {wide('i64', self.width)} {self.i64(offset)}")

    def beside(self, place: Place, first: str, moved: str, step: int = 1) -> str:
        """The address of neighbours, so many elements behind a first one. In a further part of an iteration, it is a fixed
        distance from that of the same access in the first part."""
        name = stored(place.type.dtype)
        if self.part:
            self.met += 1
            return self.let(f"getelementptr {name}, ptr {self.firsts[self.met - 1]}, i64 {step * self.part * self.width}")
        found = self.let(f"getelementptr {name}, ptr {first}, i64 {moved}")
        self.firsts.append(found)
        return found

    def in_row(self, place: Place, index: Sequence[Lanes]) -> str | None:
        """The address of neighbours by that of their row, which loops need not compute again; None if they are no part of one."""
        *outer, inner = index or (Lanes("0"),)
        if place.strides or inner.step != 1 or not all(i.is_scalar for i in outer):
            return None
        row = self.multiply(self.offset(replace(place, extents=place.extents[:-1]), outer), place.extents[-1])
        first = place.pointer if row.literal == 0 else self.pointers(place, row)
        return self.beside(place, first, inner.text)

    def guarded(self, guard: Lanes | None) -> str | None:
        """The mask of a vector access: the tail's and the guard's lanes; None for all."""
        if guard is None:
            return self.mask
        mine = self.vector(guard, BOOL)
        if self.mask is None:
            return mine
        return self.let(f"and {wide('i1', self.width)} {self.mask}, {mine}")

    def near(self, pointer: str, place: Place, mask: str) -> str:
        """The address of a masked load; the place's own where no lane is read: one that no page backs is slow even then."""
        is_read = self.intrinsic("i1", f"llvm.vector.reduce.or.v{self.width}i1", [(wide("i1", self.width), mask)])
        return self.let(f"select i1 {is_read}, ptr {pointer}, ptr {place.pointer}")

    def loaded(self, text: str, dtype: DType, width: int) -> str:
        if not dtype.is_bool:
            return text
        return self.let(f"icmp ne {wide('i8', width)} {text}, {'zeroinitializer' if width > 1 else '0'}")

    def all_lanes(self) -> str:
        return "<" + ", ".join(["i1 true"] * self.width) + ">"
