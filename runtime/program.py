"""Programs: what one signature compiles to, run as one native call.

An ``Executable`` holds the machine code of a program's kernels. For each set of sizes it keeps an ``Instance``: the argument
slots of all steps in one block, with sizes and native addresses filled in, and the places of temporary buffers in one arena,
planned from their lifetimes. A call takes a ``Frame`` (a copy of the block, and an arena), fills in addresses and scalars, and
runs all steps natively. Executables may be called from several threads at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from pullback.codegen.llvm import emit
from pullback.codegen.llvm_program import Driver, emit_program, has_control_flow, on_stack
from pullback.codegen.llvm_text import Emitted
from pullback.ir.extents import value_of
from pullback.ir.interpret import seen_as
from pullback.ir.ops.control import CheckFailed
from pullback.ir.ops.host import Host as HostOp
from pullback.ir.ops.program import Alloc, Free, Launch, View, launch
from pullback.ir.structure import Function, Instruction, Module, Value, walk
from pullback.ir.text import canonical
from pullback.ir.types import DTYPES, RefType
from pullback.runtime import cache, interrupts, symbols, threads
from pullback.runtime.engine import Host, default_engine
from pullback.runtime.host import HostStep, raised
from pullback.runtime.launcher import address_of, fill, launcher
from pullback.runtime.memory import empty, empty_many, is_large

ALIGNMENT = 64
KEPT_FRAMES = 4
KEPT_INSTANCES = 64
KEPT_ARENA = 1 << 14
MOST_OF_LAPACK = 2**31 - 1

NATIVE = frozenset({"threads", "library", "gemm", "sort", "ufunc", "c"})
"""The kinds of slots that hold addresses of native functions, the same for all programs."""

Table = np.ndarray[Any, Any]

_BYTE = np.dtype(np.uint8)


def kernel_name(kernel: Function) -> str:
    """The symbol of a scheduled kernel: its own hash."""
    return f"k{cache.key(canonical(kernel))[:24]}"


def emit_kernel(kernel: Function, host: Host | None = None) -> Emitted:
    """The LLVM text of a scheduled kernel for a machine, this one if none is given."""
    host = host or default_engine().host()
    return emit(kernel, kernel_name(kernel), host.vector_bytes, host.has_fma, host.core)


def emit_driver(module: Module, host: Host | None = None) -> Driver:
    """The LLVM text of a program with control flow, its kernels scheduled, for a machine, this one if none is given."""
    host = host or default_engine().host()
    program, *kernels = module.functions
    name = f"p{cache.key(*(f'{f.name} {canonical(f)}' for f in module.functions))[:24]}"
    by_name = {kernel.name: kernel for kernel in kernels}
    return emit_program(program, by_name, Plan(program).fresh, name, host.vector_bytes, host.has_fma, host.core)


def parts_of(module: Module) -> list[str]:
    """The LLVM texts of a scheduled module for this machine, one for each thing that is compiled on its own."""
    program, *kernels = module.functions
    return [emit_driver(module).text] if has_control_flow(program) else [emit_kernel(kernel).text for kernel in kernels]


@dataclass(frozen=True, eq=False)
class Instance:
    """A program with its sizes: ready to run but for addresses. ``tables`` and ``hosts`` keep what ``header`` points to alive."""

    block: Table
    header: Table
    tables: tuple[Table, ...]
    hosts: tuple[HostStep, ...]
    strides: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[str, int, int], ...]
    results: tuple[tuple[tuple[int, ...], Any], ...]
    large: tuple[bool, ...]
    arena_bytes: int
    sizes: Mapping[str, int]
    frames: list[Frame]


class Frame:
    """The memory of one call in flight: argument slots, seen as each dtype, and the arena of temporaries.

    A large arena is taken for each call from the pool that results come from: programs of many sizes would keep one each.
    """

    __slots__ = ("address", "arena", "base", "block", "views")

    def __init__(self, instance: Instance) -> None:
        self.block = instance.block.copy()
        self.address = address_of(self.block)
        self.views = {name: self.block.view(DTYPES[name].numpy) for name in {s[0] for s in instance.scalars}}
        self.arena: Table | None = None
        self.base = 0

    def take(self, size: int) -> None:
        """An arena of so many bytes."""
        self.arena = empty((size + ALIGNMENT,), _BYTE)
        self.base = address_of(self.arena)
        self.base += -self.base % ALIGNMENT


class _LoadedKernel:
    """A kernel of a program: its machine code, where it starts, and what its argument slots are."""

    def __init__(self, emitted: Emitted | Driver) -> None:
        self.code = default_engine().kernel(emitted.text, symbols=[emitted.name])
        self.address = self.code.addresses[emitted.name]
        self.slots = emitted.slots


def _emitted_ahead(kernels: Sequence[Function]) -> dict[str, Emitted]:
    """The LLVM texts of kernels by name, the longest first. Threads compile these while the others are written, and while the
    functions that they call are looked up, which may import libraries."""
    if len(kernels) < 2:
        return {kernel.name: emit_kernel(kernel) for kernel in kernels}
    found: dict[str, Emitted] = {}
    with default_engine().ahead(threads.get_num_threads() - 1) as compile_ahead:
        for kernel in sorted(kernels, key=lambda kernel: -sum(1 for _ in walk(kernel.body))):
            emitted = found[kernel.name] = emit_kernel(kernel)
            compile_ahead(emitted.text)
        for slot in dict.fromkeys(slot for emitted in found.values() for slot in emitted.slots):
            if slot[0] in NATIVE:
                _native(slot)
    return found


class Executable:
    """A program and its compiled kernels.

    ``module``: the program, then its kernels as ``schedule`` left them for the CPU. Raises CompileError.
    """

    def __init__(self, module: Module) -> None:
        self.program, *kernels = module.functions
        driver = emit_driver(module) if has_control_flow(self.program) else None
        if driver is None:
            self.kernels = {name: _LoadedKernel(emitted) for name, emitted in _emitted_ahead(kernels).items()}
        else:
            self.kernels = {driver.name: _LoadedKernel(driver)}
        self.launcher = launcher()
        self.plan = Plan(self.program, driver)
        self.instances: dict[tuple[int, ...], Instance] = {}

    def run(self, arguments: list[Any], sizes: Mapping[str, int]) -> list[Any]:
        """Run on arguments (arrays for references, scalars for rank-0 parameters) and the sizes of all extents.

        Returns fresh arrays, except that a parameter that is a result is returned as it was given. Raises CheckFailed, and what
        a step in Python raises.
        """
        return self.call(self.instance(sizes), arguments)

    def instance(self, sizes: Mapping[str, int]) -> Instance:
        """The program with these sizes; the last few are kept."""
        key = tuple(sizes.values())
        found = self.instances.get(key)
        if found is None:
            if len(self.instances) >= KEPT_INSTANCES:
                self.instances.pop(next(iter(self.instances.copy())), None)
            found = self.instances.setdefault(key, self.instantiate(sizes))
        return found

    def call(self, instance: Instance, arguments: list[Any]) -> list[Any]:
        """As ``run``, with an instance of this program."""
        try:
            frame = instance.frames.pop()
        except IndexError:
            frame = Frame(instance)
        if frame.arena is None:
            frame.take(instance.arena_bytes)
        if instance.large:
            results = empty_many(instance.results, instance.large)
        else:
            results = [np.empty(shape, dtype) for shape, dtype in instance.results]
        if self.plan.boxed:
            arguments = list(arguments)
            for k, dtype in self.plan.boxed:
                arguments[k] = np.array(arguments[k], dtype)
        for position, argument, axis in instance.strides:
            frame.block[position] = arguments[argument].strides[axis]
        for name, position, argument in instance.scalars:
            frame.views[name][position] = arguments[argument]
        if not self.launcher.reads_arrays:
            targets, sources, shifts = (table.tolist() for table in instance.tables[2:5])
            fill(frame.block, targets, sources, shifts, [*arguments, *results], frame.base)
        status = self.launcher.native(address_of(instance.header), id(arguments), id(results), frame.base, frame.address)
        if len(instance.frames) < KEPT_FRAMES:
            if instance.arena_bytes > KEPT_ARENA:
                frame.arena = None
            instance.frames.append(frame)
        if status:
            raise self.failure(status)
        return results if self.plan.gives_all else self.plan.give(arguments, results, instance.sizes)

    def failure(self, status: int) -> BaseException:
        """What a status says: the step above bit 32, the kernel's own code below."""
        step = self.plan.steps[(status >> 32) - 1]
        if isinstance(step.op, HostOp):
            return raised()
        failure = step.params["failures"][(status & 0xFFFFFFFF) - 1]
        if failure is None:
            return raised()
        error, message, place = failure
        failed = CheckFailed(error, message)
        failed.add_note(place)
        return failed

    def instantiate(self, sizes: Mapping[str, int]) -> Instance:
        """Fill in sizes and native addresses, and place the temporaries."""
        offsets, rows, arena_bytes = self.plan.place(sizes)
        block: list[int] = []
        functions, starts, targets, sources, shifts = [], [], [], [], []
        strides: list[tuple[int, int, int]] = []
        scalars: list[tuple[str, int, int]] = []
        hosts: list[HostStep] = []
        for step in self.plan.steps:
            starts.append(len(block))
            slots: Sequence[tuple[Any, ...]]
            if isinstance(step.op, HostOp):
                hosts.append(HostStep(step, [_shape(v, sizes) for v in step.operands]))
                functions.append(hosts[-1].address)
                slots = [("pointer", k) for k in range(len(step.operands))]
            else:
                kernel = self.kernels[step.params["kernel"]]
                functions.append(kernel.address)
                slots = kernel.slots
            for slot in slots:
                at = len(block)
                block.append(0)
                kind, *rest = slot
                if kind == "size":
                    block[at] = value_of(step.params["sizes"][rest[0]], sizes)
                elif kind == "poll":
                    block[at] = address_of(interrupts.table())
                elif kind == "host":
                    inside = step.params["hosts"][rest[0]]
                    hosts.append(HostStep(inside, [_shape(v, sizes) for v in inside.operands]))
                    block[at] = hosts[-1].address
                elif kind in NATIVE:
                    limited = step.params.get("limited", step.params["sizes"])
                    if kind == "library" and any(value_of(e, sizes) > MOST_OF_LAPACK for e in limited):
                        raise ValueError(f"{rest[0]} takes axes of at most {MOST_OF_LAPACK:,} elements")
                    block[at] = _native(slot)
                else:
                    owner = self.plan.owner[step.operands[rest[0]]]
                    if kind == "pointer":
                        targets.append(at)
                        sources.append(rows[owner])
                        shifts.append(offsets.get(owner, 0))
                    elif kind == "stride" and rest[1] == owner.type.rank:
                        block[at] = owner.type.dtype.part.bytes
                    elif kind == "stride":
                        strides.append((at, self.plan.parameter[owner], rest[1]))
                    else:
                        scalars.append((rest[1], at * 8 // DTYPES[rest[1]].bytes, self.plan.parameter[owner]))
        tables = tuple(np.array(t, np.int64) for t in (functions, starts, targets, sources, shifts))
        counts = (len(targets) if self.launcher.reads_arrays else 0, len(self.program.parameters), len(self.plan.fresh))
        addresses = [address_of(t) for t in tables]
        header = np.array([*addresses[:2], len(functions), *addresses[2:], *counts], np.int64)
        results = tuple((_shape(v, sizes), v.type.dtype.numpy) for v in self.plan.shown)
        large = tuple(is_large(*spec) for spec in results)
        large = large if any(large) else ()
        filled = np.array(block, np.int64)
        return Instance(
            filled, header, tables, tuple(hosts), tuple(strides), tuple(scalars), results, large, arena_bytes, sizes, []
        )


class Plan:
    """What is the same for all sizes: steps (a ``driver`` is one), which buffer each value is in, which buffers are results."""

    def __init__(self, program: Function, driver: Driver | None = None) -> None:
        self.program = program
        self.parameter = {v: k for k, v in enumerate(program.parameters)}
        self.boxed = [
            (k, v.type.dtype.numpy) for k, v in enumerate(program.parameters) if isinstance(v.type, RefType) and not v.type.rank
        ]
        self.owner: dict[Value, Value] = {v: v for v in program.parameters}
        for i in walk(program.body):
            if isinstance(i.op, Alloc):
                self.owner[i.result] = i.result
            elif isinstance(i.op, View) and i.operands[0] in self.owner:
                self.owner[i.result] = self.owner[i.operands[0]]
        if driver is None:
            self.steps = [i for i in program.instructions if isinstance(i.op, Launch | HostOp)]
        else:
            params = {"kernel": driver.name, "sizes": driver.sizes, "limited": driver.limited}
            steps = {"failures": driver.failures, "hosts": driver.hosts}
            self.steps = [Instruction(launch, driver.buffers, (), {**params, **steps})]
        self.has_driver = has_control_flow(program)
        owners = [self.owner[v] for v in program.results]
        self.fresh = list(dict.fromkeys(o for o in owners if o not in self.parameter))
        self.shown = [program.results[owners.index(owner)] for owner in self.fresh]
        self.gives_all = self.fresh == owners

    def place(self, sizes: Mapping[str, int]) -> tuple[dict[Value, int], dict[Value, int], int]:
        """Arena offsets of temporaries, the row of the address table of each buffer, and the arena's size."""
        count = len(self.program.parameters)
        rows = {**self.parameter, **{v: count + k for k, v in enumerate(self.fresh)}}
        arena = _Arena()
        offsets: dict[Value, int] = {}
        for i in walk(self.program.body):
            if isinstance(i.op, Alloc) and i.result not in rows and not (self.has_driver and on_stack(i.result.type)):
                t = i.result.type
                elements = 1
                for e in t.shape:
                    elements *= value_of(e, sizes)
                offsets[i.result] = arena.take(elements * t.dtype.bytes)
                rows[i.result] = count + len(self.fresh)
            elif isinstance(i.op, Free) and self.owner.get(i.operands[0]) in offsets:
                arena.release(offsets[self.owner[i.operands[0]]])
        return offsets, rows, arena.most

    def give(self, arguments: Sequence[Any], results: list[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The results in order, each with memory of its own."""
        made = dict(zip(self.fresh, results, strict=True))
        given: set[Value] = set()
        found = []
        for value in self.program.results:
            owner = self.owner[value]
            if owner in self.parameter:
                argument = arguments[self.parameter[owner]]
                found.append(argument if value is owner else np.array(seen_as(argument, value.type.dtype, _shape(value, sizes))))
                continue
            array = made[owner] if value in self.shown else made[owner].reshape(_shape(value, sizes))
            found.append(array.copy() if owner in given else array)
            given.add(owner)
        return found


def arena_place(size: int) -> int:
    """The bytes that a buffer takes in the arena; an empty one has a place too."""
    return max(size, 1) + -max(size, 1) % ALIGNMENT


class _Arena:
    """Offsets in one block of memory: the first gap that is large enough. The last gap has no end."""

    def __init__(self) -> None:
        self.gaps: list[tuple[int, float]] = [(0, inf)]
        self.sizes: dict[int, int] = {}
        self.most = 0

    def take(self, size: int) -> int:
        """A place for so many bytes; empty buffers have one of their own too."""
        size = arena_place(size)
        place = next(k for k, (start, end) in enumerate(self.gaps) if end - start >= size)
        start, end = self.gaps[place]
        self.gaps[place : place + 1] = [(start + size, end)] if end - start > size else []
        self.sizes[start] = size
        self.most = max(self.most, start + size)
        return start

    def release(self, offset: int) -> None:
        """The place is a gap again, one with those beside it."""
        start, end = offset, float(offset + self.sizes.pop(offset))
        place = bisect_left(self.gaps, (start, end))
        first = last = place
        if place and self.gaps[place - 1][1] == start:
            first, start = place - 1, self.gaps[place - 1][0]
        if self.gaps[place][0] == end:
            last, end = place + 1, self.gaps[place][1]
        self.gaps[first:last] = [(start, end)]


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(value_of(e, sizes) for e in value.type.shape)


def _native(slot: tuple[Any, ...]) -> int:
    if slot[0] == "threads":
        return threads.table()
    if slot[0] in ("library", "gemm"):
        threads.tame_library()
    if slot[0] in ("library", "gemm", "sort"):
        return symbols.address(slot[1])
    if slot[0] == "c":
        return symbols.address(f"c.{slot[1]}")
    loop = symbols.ufunc_loop(slot[1], slot[2])
    return int((loop.function if slot[3] == "function" else loop.data) or 0)
