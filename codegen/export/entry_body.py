"""Emit the function that runs a program without Python, and the sizes that it computes from the extents of a call.

It computes the sizes, then takes the arena, in which temporaries with disjoint live ranges share memory; then it calls the
kernels, one after another, and copies results. Every exit frees the arena.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pullback.codegen.cpu.llvm.lanes import literal, stored
from pullback.codegen.cpu.llvm.text import Extents
from pullback.codegen.export.interface import CODES, HOOKS, Fill, Interface, Location, Step
from pullback.ir.core.types import DTYPES, DType, Extent
from pullback.ir.shapes.extents import product
from pullback.ir.shapes.formulas import Formula, Scaled

ALIGNMENT = 64
"""Alignment of temporaries in bytes."""
MOST_ON_STACK = 1 << 14
"""Most bytes of temporaries, if constant, that are allocated on the stack."""
MOST_BYTES = 1 << 47
"""Bytes of memory that no machine exceeds."""
MOST_OF_LIBRARY = 2**31 - 1
"""Largest extent that BLAS and LAPACK take: their integers have 32 bits."""


class Sizes(Extents):
    """A function while it is written, with ``%extents``, and the program's sizes computed from them."""

    def __init__(self, interface: Interface) -> None:
        super().__init__()
        self.interface = interface
        self.named: dict[str, str] = {}
        self.formulas = dict(interface.sizes)
        self.positions = {bounds.name: k for k, bounds in enumerate(interface.extents)}

    def size(self, name: str) -> str:
        """Return a size of the program as an i64."""
        if name not in self.named:
            self.named[name] = self.formula(self.formulas[name])
        return self.named[name]

    def extent_of(self, name: str) -> str:
        """Return a named extent as an i64."""
        key = f"extent {name}"
        if key not in self.named:
            at = self.at_entry(f"getelementptr i64, ptr %extents, i64 {self.positions[name]}")
            self.named[key] = self.at_entry(f"load i64, ptr {at}")
        return self.named[key]

    def formula(self, formula: Formula) -> str:
        """Return a formula of extents as an i64."""
        if formula.constant_value is not None:
            return str(formula.constant_value)
        total = ""
        for coefficient, names in formula.terms:
            term = str(coefficient)
            for name in names:
                value = self.extent_of(name)
                term = value if term == "1" else self.at_entry(f"mul i64 {term}, {value}")
            total = self.at_entry(f"add i64 {total}, {term}") if total else term
        if formula.divisor == 1:
            return total
        quotient = self.at_entry(f"sdiv i64 {total}, {formula.divisor}")
        remainder = self.at_entry(f"srem i64 {total}, {formula.divisor}")
        below = self.at_entry(f"sext i1 {self.at_entry(f'icmp slt i64 {remainder}, 0')} to i64")
        return self.at_entry(f"add i64 {quotient}, {below}")


class Body(Sizes):
    """The function that runs the program."""

    def run(self) -> str:
        """Return the function's text."""
        self.status = self.slot("i64")
        self.arena = self.slot("ptr")
        most = max((len(step.slots) for step in self.interface.steps), default=0)
        self.block = self.slot(f"[{max(most, 1)} x i64]")
        self.line(f"store ptr null, ptr {self.arena}")
        self.bounds()
        self.allocate()
        for fill in self.interface.fills:
            self.fill(fill)
        for step in self.interface.steps:
            self.step(step)
        for copied in self.interface.copies:
            self.copy(("result", copied.result), copied.source, copied.bytes)
        self.leave(0)
        self.label("end")
        block = self.let(f"load ptr, ptr {self.arena}")
        kept, free = self.labels("kept", "free")
        self.line(f"br i1 {self.let(f'icmp eq ptr {block}, null')}, label %{kept}, label %{free}")
        self.label(free)
        self.line(f"call void @release(ptr {block})")
        self.line(f"br label %{kept}")
        self.label(kept)
        self.line(f"ret i64 {self.let(f'load i64, ptr {self.status}')}")
        heading = "define internal i64 @program(ptr %extents, ptr %arguments, ptr %results) noinline nounwind {"
        return "\n".join([heading, "entry:", *self.entry, *self.lines, "}", ""])

    def labels(self, *words: str) -> list[str]:
        """Return new labels."""
        self.count += 1
        return [f"{word}{self.count}" for word in words]

    def leave(self, status: int | str) -> None:
        """Store the status and branch to the end."""
        self.line(f"store i64 {status}, ptr {self.status}")
        self.line("br label %end")

    def leave_if(self, test: str, status: str) -> None:
        """Leave with a status if an i1 is true."""
        out, on = self.labels("refused", "on")
        self.line(f"br i1 {test}, label %{out}, label %{on}")
        self.label(out)
        self.leave(CODES[status])
        self.label(on)

    def bounds(self) -> None:
        """Leave if an extent is outside the range that the program serves."""
        for bounds in self.interface.extents:
            value = self.extent_of(bounds.name)
            self.leave_if(self.let(f"icmp slt i64 {value}, {bounds.low}"), "BAD_EXTENT")
            if bounds.high is not None:
                self.leave_if(self.let(f"icmp sgt i64 {value}, {bounds.high}"), "BAD_EXTENT")
        limited = dict.fromkeys(e for step in self.interface.steps for e in step.limited if isinstance(e, str))
        for extent in limited:
            self.leave_if(self.let(f"icmp sgt i64 {self.extent(extent)}, {MOST_OF_LIBRARY}"), "BAD_EXTENT")

    # memory

    def allocate(self) -> None:
        """Take the arena and compute the offset of each temporary in it."""
        self.temporaries: list[str] = []
        total = "0"
        for choices in self.interface.temporaries:
            size = "1"
            for choice in choices:
                self.check_size(choice)
                value = self.extent(product(choice))
                size = self.maximum(size, value)
            self.temporaries.append(total)
            total = self.sum(total, self.round_up(size))
        if total == "0":
            return
        if total.isdigit() and int(total) <= MOST_ON_STACK:
            self.base = self.at_entry(f"alloca [{total} x i8], align {ALIGNMENT}")
            return
        size_with_padding = self.sum(total, str(ALIGNMENT))
        block = self.let(f"call ptr @reallocate(ptr null, i64 {size_with_padding})")
        self.leave_if(self.let(f"icmp eq ptr {block}, null"), "NO_MEMORY")
        self.line(f"store ptr {block}, ptr {self.arena}")
        address = self.let(f"ptrtoint ptr {block} to i64")
        after = self.let(f"add i64 {address}, {ALIGNMENT - 1}")
        aligned = self.let(f"and i64 {after}, {-ALIGNMENT}")
        shift = self.let(f"sub i64 {aligned}, {address}")
        self.base = self.let(f"getelementptr i8, ptr {block}, i64 {shift}")

    def check_size(self, choice: Sequence[Extent]) -> None:
        """Leave if a buffer would be larger than memory can be, before its size wraps around."""
        flat = product(choice)
        if isinstance(flat, int):
            return
        total = ""
        for factor in flat.split("*"):
            value = self.let(f"sitofp i64 {self.factor(factor)} to double")
            total = self.let(f"fmul double {total}, {value}") if total else value
        self.leave_if(self.let(f"fcmp ogt double {total}, {float(MOST_BYTES):.1f}"), "NO_MEMORY")

    def maximum(self, a: str, b: str) -> str:
        if a.isdigit() and b.isdigit():
            return str(max(int(a), int(b)))
        return self.intrinsic("i64", "llvm.smax.i64", [("i64", a), ("i64", b)])

    def round_up(self, size: str) -> str:
        if size.isdigit():
            return str(-(-int(size) // ALIGNMENT) * ALIGNMENT)
        return self.let(f"and i64 {self.let(f'add i64 {size}, {ALIGNMENT - 1}')}, {-ALIGNMENT}")

    def sum(self, a: str, b: str) -> str:
        return str(int(a) + int(b)) if a.isdigit() and b.isdigit() else self.let(f"add i64 {a}, {b}")

    def pointer(self, location: Location) -> str:
        """Return the address of a buffer."""
        kind, k = location
        match kind:
            case "argument" | "result":
                return self.let(f"load ptr, ptr {self.let(f'getelementptr ptr, ptr %{kind}s, i64 {k}')}")
            case "data":
                return f"@data{k}"
            case "temporary":
                return self.let(f"getelementptr i8, ptr {self.base}, i64 {self.temporaries[k]}")
        dtype = self.interface.numbers[k][0]
        t = f"i{dtype.bytes * 8}"
        slot = self.slot(t)
        self.line(f"store {t} {self.bits(location, dtype)}, ptr {slot}")
        return slot

    def bits(self, location: Location, dtype: DType) -> str:
        """Return a scalar as an integer of the same number of bits."""
        t = f"i{dtype.bytes * 8}"
        if location[0] != "number":
            return self.let(f"load {t}, ptr {self.pointer(location)}")
        value = self.interface.numbers[location[1]][1]
        if isinstance(value, Scaled):
            scaled, word = self.scaled(value), {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat"}[dtype.name]
            narrow = scaled if word == "double" else self.let(f"fptrunc double {scaled} to {word}")
            return self.let(f"bitcast {word} {narrow} to {t}")
        if isinstance(value, Formula):
            integer = self.formula(value)
            if dtype.is_float:
                return self.bits_of_float(self.let(f"sitofp i64 {integer} to double"), dtype, t)
            return integer if t == "i64" else self.let(f"trunc i64 {integer} to {t}")
        payload = dtype.numpy.type(value).tobytes()
        return str(int.from_bytes(payload, "little"))

    def bits_of_float(self, double: str, dtype: DType, t: str) -> str:
        word = {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat"}[dtype.name]
        narrow = double if word == "double" else self.let(f"fptrunc double {double} to {word}")
        return self.let(f"bitcast {word} {narrow} to {t}")

    def scaled(self, value: Scaled) -> str:
        n = self.let(f"sitofp i64 {self.formula(value.formula)} to double")
        if value.kind.endswith("root"):
            n = self.intrinsic("double", "llvm.sqrt.f64", [("double", n)])
        factor = f"0x{struct.unpack('<Q', struct.pack('<d', value.factor))[0]:016X}"
        return self.let(f"{'fdiv' if value.kind.startswith('over') else 'fmul'} double {factor}, {n}")

    def copy(self, target: Location, source: Location, size: Sequence[Extent]) -> None:
        self.declared["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        pointers = f"ptr {self.pointer(target)}, ptr {self.pointer(source)}"
        self.line(f"call void @llvm.memcpy.p0.p0.i64({pointers}, i64 {self.extent(product(size))}, i1 false)")

    def fill(self, fill: Fill) -> None:
        """Emit the loop that fills an array whose elements depend on sizes alone."""
        t, is_float = stored(fill.dtype), fill.dtype.is_float
        count, target, position = self.extent(product(fill.shape)), self.pointer(fill.location), self.slot("i64")
        columns = self.extent(fill.shape[-1])
        head, body, end = self.labels("head", "fill", "filled")
        self.line(f"store i64 0, ptr {position}")
        self.line(f"br label %{head}")
        self.label(head)
        k = self.let(f"load i64, ptr {position}")
        self.line(f"br i1 {self.let(f'icmp slt i64 {k}, {count}')}, label %{body}, label %{end}")
        self.label(body)
        start, step = (literal(x, fill.dtype) for x in (fill.start, fill.step))
        if fill.kind == "diagonal":
            row, column = self.let(f"sdiv i64 {k}, {columns}"), self.let(f"srem i64 {k}, {columns}")
            is_there = self.let(f"icmp eq i64 {column}, {self.let(f'add i64 {row}, {int(fill.start)}')}")
            value = self.let(f"select i1 {is_there}, {t} {step}, {t} {literal(0, fill.dtype)}")
        elif is_float:
            distance = self.let(f"fmul {t} {self.let(f'sitofp i64 {k} to {t}')}, {step}")
            value = self.let(f"fadd {t} {distance}, {start}")
        else:
            index = k if t == "i64" else self.let(f"trunc i64 {k} to {t}")
            value = self.let(f"add {t} {self.let(f'mul {t} {index}, {step}')}, {start}")
        self.line(f"store {t} {value}, ptr {self.let(f'getelementptr {t}, ptr {target}, i64 {k}')}")
        self.line(f"store i64 {self.let(f'add i64 {k}, 1')}, ptr {position}")
        self.line(f"br label %{head}")
        self.label(end)

    # steps

    def step(self, step: Step) -> None:
        """Fill in the slots of a kernel and call it."""
        for k, slot in enumerate(step.slots):
            at = self.let(f"getelementptr i64, ptr {self.block}, i64 {k}")
            self.line(f"store i64 {self.slot_value(step, slot)}, ptr {at}")
        status = self.let(f"call i64 @{step.symbol}(ptr {self.block})")
        if not step.first:
            return
        failed, on = self.labels("failed", "on")
        self.line(f"br i1 {self.let(f'icmp ne i64 {status}, 0')}, label %{failed}, label %{on}")
        self.label(failed)
        self.leave(self.let(f"add i64 {status}, {step.first - 1}"))
        self.label(on)

    def slot_value(self, step: Step, slot: Sequence[object]) -> str:
        kind, *rest = slot
        match kind, rest:
            case "size", [int(k)]:
                return self.extent(step.sizes[k])
            case "pointer", [int(k)]:
                return self.word(self.pointer(step.operands[k]))
            case "scalar", [int(k), str(name)]:
                return self.scalar(step.operands[k], name)
            case "stride", [int(k), int()]:
                return str(step.itemsizes[k])
            case "threads", _:
                return self.word("@crew")
            case "poll", _:
                address = f"getelementptr ([{len(HOOKS)} x ptr], ptr @hooks, i64 0, i64 {HOOKS.index('poll')})"
                own = self.let(f"load ptr, ptr {address}")
                is_null = self.let(f"icmp eq ptr {own}, null")
                return self.word(self.let(f"select i1 {is_null}, ptr @poll, ptr {own}"))
            case "c", [str(name)]:
                return self.word({"realloc": "@reallocate", "free": "@release"}[name])
            case "room", [str(name)]:
                return "0" if name == "state" else self.word(f"@{name}_room")
            case "shared", [str(name), *_]:
                self.declared[f"declare void @{name}()"] = None
                return self.word(f"@{name}")
        for k, need in enumerate(self.interface.needs):
            if tuple(slot) in need.slots:
                address = f"getelementptr ([{len(self.interface.needs)} x ptr], ptr @needs, i64 0, i64 {k})"
                return self.word(self.let(f"load ptr, ptr {address}"))
        raise NotImplementedError(f"slot {slot}")

    def scalar(self, location: Location, name: str) -> str:
        """Return a scalar in the low bits of a slot."""
        leaf = DTYPES[name]
        t = f"i{leaf.bytes * 8}"
        bits = self.bits(location, leaf)
        return bits if t == "i64" or bits.isdigit() else self.let(f"zext {t} {bits} to i64")

    def word(self, pointer: str) -> str:
        return self.let(f"ptrtoint ptr {pointer} to i64")
