"""Executables: the compiled program of one signature, run as one native call.

An ``Executable`` holds the machine code of a program's kernels. For each set of sizes it keeps an ``Instance``: the argument
slots of all steps in one block, with sizes and native addresses filled in, and the offsets of temporary buffers in one arena,
planned from their live ranges. A call takes a ``Frame`` (a copy of the block, and an arena), fills in addresses and scalars,
and runs all steps natively. Executables may be called from several threads at once.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from pullback.codegen.cpu.llvm.program_interface import Driver, has_control_flow
from pullback.codegen.cpu.llvm.text import NO_MEMORY, Emitted, LazyText
from pullback.codegen.cpu.loops.reachability import OnCallee, Reached, Steps
from pullback.codegen.slots import Slot
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction, Loc, Module, walk
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.control.host import Host as HostOp
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.ops.program import launch
from pullback.ir.shapes.extents import value_of
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.compile.machine import Host
from pullback.runtime.memory import result_arrays
from pullback.runtime.memory.result_arrays import empty, empty_many, is_large
from pullback.runtime.program import created_results, interrupts, polling
from pullback.runtime.program.arena import ALIGNMENT, SMALL_ARENA
from pullback.runtime.program.created_results import creating
from pullback.runtime.program.host_calls import HostStep, take_exception
from pullback.runtime.program.launcher import address_of, fill, launcher
from pullback.runtime.program.loaded_kernel import LoadedKernel
from pullback.runtime.program.native_addresses import NATIVE, Callees, Sizes, native_address, reaches
from pullback.runtime.program.plan import Plan, ResultSource, shape_of
from pullback.runtime.threads import threads

if TYPE_CHECKING:
    from pullback.codegen.cpu import located
    from pullback.codegen.cpu.llvm import kernel as llvm
    from pullback.codegen.cpu.llvm import program as llvm_program
    from pullback.codegen.cpu.llvm.kernel import Emitter
    from pullback.codegen.cpu.llvm.program import ProgramWriter
else:
    llvm, llvm_program = later("pullback.codegen.cpu.llvm.kernel"), later("pullback.codegen.cpu.llvm.program")
    located = later("pullback.codegen.cpu.located")

KEPT_FRAMES = 4
"""The largest number of frames kept per instance."""
KEPT_INSTANCES = 64
"""The largest number of sets of sizes whose instances are kept."""
MAX_TEXT = 1 << 17
"""The length of LLVM text up to which programs get a fast call of their own (``specialized_entry``)."""
MAX_LAPACK_INT = 2**31 - 1
"""The largest axis that LAPACK's 32-bit integers allow."""

Table = np.ndarray[Any, Any]

_BYTE = np.dtype(np.uint8)


def emit_kernel(
    kernel: Function,
    host: Host | None = None,
    on_callee: OnCallee | None = None,
    reached: Reached = lambda steps: True,
    emitter: type[Emitter] | None = None,
) -> Emitted:
    """Return the LLVM text of a scheduled kernel for a machine, by default this one. ``on_callee``, ``reached``, ``emitter``: as
    for ``llvm.emit``."""
    host = host or default_engine().host()
    return llvm.emit(kernel, "", host.target, on_callee, reached, emitter)


def emit_driver(module: Module, host: Host | None = None, writer: type[ProgramWriter] | None = None) -> Driver:
    """Return the LLVM text of a program with control flow, its kernels scheduled, for a machine, by default this one."""
    host = host or default_engine().host()
    program, *kernels = module.functions
    by_name = {kernel.name: kernel for kernel in kernels}
    fresh, emit = Plan(program).fresh, llvm_program.emit_program
    driver = emit(program, by_name, fresh, "driver", host.target, writer)
    name = f"p{hashlib.sha256(driver.text.encode()).hexdigest()[:24]}"
    return replace(driver, name=name, text=driver.text.replace("@driver(", f"@{name}("))


def parts_of(module: Module) -> list[str]:
    """Return the LLVM texts of a scheduled module for this machine, one per unit compiled separately."""
    return list(dict.fromkeys(_texts_of(module)))


def located_parts_of(module: Module) -> dict[str, list[Loc]]:
    """Return the texts of ``parts_of`` with the location of each of their lines."""
    marks = located.Marks()
    marked = _texts_of(module, marks.emitter, marks.writer)
    parts: dict[str, list[Loc]] = {}
    for text, same in zip(_texts_of(module), marked, strict=True):
        if text not in parts:
            parts[text] = marks.locs_of(text, same)
    return parts


def _texts_of(
    module: Module, emitter: type[Emitter] | None = None, writer: type[ProgramWriter] | None = None
) -> list[str]:  # fmt: skip
    """Return the texts that the kernels of a module need, those that several need repeated."""
    program, *kernels = module.functions
    codes: list[Emitted | Driver] = (
        [emit_driver(module, writer=writer)] if has_control_flow(program) else [emit_kernel(k, emitter=emitter) for k in kernels]
    )
    return [text for emitted in codes for text in (*shared_with(emitted), emitted.text)]


def shared_with(emitted: Emitted | Driver) -> list[str]:
    """Return the texts of the functions that code shares with other code."""
    return [str(slot[2]) for slot in emitted.slots if slot[0] == "shared"]


@dataclass(frozen=True, eq=False)
class Instance:
    """A program with its sizes, complete except for addresses and scalars. ``tables`` and ``hosts`` keep alive what ``header``
    points to. ``looks``: the steps before which it polls for an interrupt. ``creation``: the positions in ``block`` of the
    function that creates results and of its state, if there are."""

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
    gives: tuple[ResultSource, ...]
    looks: tuple[int, ...]
    creation: tuple[int, ...]


class Frame:
    """The memory of one call in progress: argument slots, viewed as each dtype, and the arena of temporaries.

    A large arena is allocated for each call from the pool of results: kept arenas would add up over programs with many sizes.
    """

    __slots__ = ("address", "arena", "base", "block", "views")

    def __init__(self, instance: Instance) -> None:
        self.block = instance.block.copy()
        self.address = address_of(self.block)
        self.views = {name: self.block.view(DTYPES[name].numpy) for name in {s[0] for s in instance.scalars}}
        self.arena: Table | None = None
        self.base = 0

    def take(self, size: int) -> None:
        """Allocate an arena of ``size`` bytes."""
        self.arena = empty((size + ALIGNMENT,), _BYTE)
        self.base = address_of(self.arena)
        self.base += -self.base % ALIGNMENT


def _load(emitted: Emitted | Driver, source: Function | None = None) -> LoadedKernel:
    engine = default_engine()
    code = engine.kernel(emitted.text, symbols=[emitted.name])
    if not any(is_unwritten(slot) for slot in emitted.slots):
        source = None
    return LoadedKernel(code, emitted.name, engine.key(emitted.text), emitted.slots, emitted.text, source)


def is_unwritten(slot: Slot) -> bool:
    """Return whether a slot is a function of another module whose text has not been generated yet."""
    return slot[0] == "shared" and isinstance(slot[2], LazyText) and not slot[2].is_written


Schedule = Callable[..., Function]
"""Schedules a kernel; takes a callback for the functions that it shares with others."""


def _emit_ahead(program: Function, kernels: Sequence[Function], schedule: Schedule, sizes: Sizes | None) -> dict[str, Emitted]:
    """Return the LLVM texts of kernels by name, emitting the longest first. Threads compile them, and the functions of other
    modules that they call with these sizes, while more are emitted, and while native functions are looked up, which may
    import libraries."""
    emitted_by_name: dict[str, Emitted] = {}
    launches_by_name = defaultdict[str, list[Instruction]](list)
    for instruction in walk(program.body):
        if instruction.op is launch:
            launches_by_name[instruction.params["kernel"]].append(instruction)
    with default_engine().precompile(threads.get_num_threads() - 1) as compile_ahead:
        for kernel in sorted(kernels, key=lambda kernel: -sum(1 for _ in walk(kernel.body))):

            @functools.cache
            def reached(steps: Steps, launches: Sequence[Instruction] = tuple(launches_by_name[kernel.name])) -> bool:
                return sizes is None or any(reaches(i, steps, sizes) for i in launches)

            scheduled = schedule(kernel, llvm.early_emitter(default_engine().host().target, compile_ahead, reached))
            emitted = emit_kernel(scheduled, on_callee=lambda slot: compile_ahead(str(slot[2])), reached=reached)
            emitted_by_name[kernel.name] = emitted
            if len(kernels) == 1 and not any(slot[0] == "shared" for slot in emitted.slots):
                return emitted_by_name
            compile_ahead(emitted.text)
        for slot in dict.fromkeys(slot for emitted in emitted_by_name.values() for slot in emitted.slots):
            if slot[0] in NATIVE and slot[0] != "shared":
                native_address(slot)
    return emitted_by_name


class Executable:
    """A program and its compiled kernels.

    ``module``: the program, then its kernels, which ``schedule`` schedules for the CPU. ``home``: the results that reuse the
    memory of parameters, with these parameters. ``sizes``: those of the first call, if known; parts of kernels that they do
    not reach are compiled for the first sizes that do. The constructor raises CompileError.
    """

    writer: type[ProgramWriter] | None = None
    """The class that emits the driver, if not the ordinary one."""
    keep: Callable[[], None] | None = None
    """Stores the program again, with the texts of functions that its cache entry lacks."""
    laps: Table | None = None
    """The table in which a driver that reads the clock adds up the time of each step."""

    def __init__(
        self, module: Module, home: Mapping[int, int] = MappingProxyType({}),
        schedule: Schedule = lambda kernel, on_callee=None: kernel, sizes: Sizes | None = None,
    ) -> None:  # fmt: skip
        program, *kernels = module.functions
        driver = None
        if has_control_flow(program):
            driver = emit_driver(Module((program, *map(schedule, kernels))), writer=self.writer)
        if driver is None:
            emitted, sources = _emit_ahead(program, kernels, schedule, sizes), {kernel.name: kernel for kernel in kernels}
            loaded = {name: _load(each, sources[name]) for name, each in emitted.items()}
        else:
            loaded = {driver.name: _load(driver)}
        self._set(program, loaded, driver, home)

    @classmethod
    def of(
        cls, program: Function, kernels: Mapping[str, LoadedKernel], driver: Driver | None, home: Mapping[int, int]
    ) -> Executable:
        """Return a program whose kernels, by name, or whose driver are loaded."""
        executable = cls.__new__(cls)
        executable._set(program, kernels, driver, home)
        return executable

    def _set(
        self, program: Function, kernels: Mapping[str, LoadedKernel], driver: Driver | None, home: Mapping[int, int]
    ) -> None:
        self.program = program
        self.home = home
        self.kernels = kernels
        if sum(len(kernel.text) for kernel in kernels.values()) > MAX_TEXT:
            for kernel in kernels.values():
                kernel.text = ""
        self.driver = None if driver is None else replace(driver, text="")
        self.launcher = launcher()
        self.plan = Plan(program, driver)
        self.polls = any(slot[0] == "poll" for kernel in kernels.values() for slot in kernel.slots)
        self.instances: dict[tuple[int, ...], Instance] = {}
        self.callees = Callees(self.plan.steps, {name: kernel.slots for name, kernel in kernels.items()})
        _alive.add(self)

    def run(self, arguments: list[Any], sizes: Mapping[str, int]) -> list[Any]:
        """Run the program on arguments (arrays for references, scalars for rank-0 parameters) with the sizes of all extents.

        Returns fresh arrays, except that a parameter that is a result, or whose memory a result takes, is returned itself.
        Raises CheckFailed, and what a host call raises.
        """
        return self.call(self.instance(sizes), arguments)

    def instance(self, sizes: Mapping[str, int]) -> Instance:
        """Return the program with these sizes; the last few are kept."""
        key = tuple(sizes.values())
        known = self.instances.get(key)
        if known is None:
            if len(self.instances) >= KEPT_INSTANCES:
                self.instances.pop(next(iter(self.instances.copy())), None)
            known = self.instances.setdefault(key, self.instantiate(sizes))
            if self.callees.has_written and self.keep is not None:
                self.callees.has_written = False
                self.keep()
        return known

    def call(self, instance: Instance, arguments: list[Any], chosen: Sequence[Any] | None = None) -> list[Any]:
        """Run an instance of this program, as ``run`` does. ``chosen``: for each result buffer the dense array to use, which
        shares no memory with arguments, or None for a new one."""
        try:
            frame = instance.frames.pop()
        except IndexError:
            frame = Frame(instance)
        if frame.arena is None:
            frame.take(instance.arena_bytes)
        if chosen is not None:
            pairs = zip(chosen, instance.results, strict=True)
            results = [empty(*spec) if array is None else array for array, spec in pairs]
        elif instance.large:
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
        with self.creation(results):
            status = self.launcher.native(address_of(instance.header), id(arguments), id(results), frame.base, frame.address)
        if len(instance.frames) < KEPT_FRAMES:
            if instance.arena_bytes > SMALL_ARENA:
                frame.arena = None
            instance.frames.append(frame)
        if status:
            raise self.failure(status)
        return results if self.plan.gives_all else [source.out_of(arguments, results) for source in instance.gives]

    def creation(self, results: list[Any]) -> AbstractContextManager[None]:
        """Return a context in which the program fills in the results that it allocates itself."""
        return creating(results, self.plan.created) if self.plan.created else nullcontext()

    def failure(self, status: int) -> BaseException:
        """Return the exception of a status: the step above bit 32, the kernel's own code below."""
        if status & 0xFFFFFFFF == polling.STOPPED:
            return take_exception()
        if status & 0xFFFFFFFF == NO_MEMORY:
            return MemoryError("there is no memory for what a step computes with")
        step = self.plan.steps[(status >> 32) - 1]
        if isinstance(step.op, HostOp):
            return take_exception()
        failure = step.params["failures"][(status & 0xFFFFFFFF) - 1]
        if failure is None:
            return take_exception()
        error, message, note = failure
        failed = CheckFailed(error, message)
        if note:
            failed.add_note(note)
        return failed

    def instantiate(self, sizes: Mapping[str, int]) -> Instance:
        """Return an instance: fill in sizes and native addresses, and place the temporaries."""
        places = self.plan.placement(sizes)
        called = self.callees.addresses(sizes)
        block: list[int] = []
        functions, starts, targets, sources, shifts = [], [], [], [], []
        strides: list[tuple[int, int, int]] = []
        scalars: list[tuple[str, int, int]] = []
        creation: dict[str, int] = {}
        hosts: list[HostStep] = []
        homes = {self.program.parameters[k] for k in self.home.values()}
        looks = polling.polled_steps(self.plan, self.kernels, homes, sizes)
        for index, step in enumerate(self.plan.steps):
            starts.append(len(block))
            block += [0] * len(polling.SLOTS) if index in looks else []
            slots: Sequence[tuple[Any, ...]]
            if isinstance(step.op, HostOp):
                hosts.append(HostStep(step, sizes))
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
                elif kind == "create":
                    block[at] = created_results.address()
                    creation[kind] = at
                elif kind == "creation":
                    creation[kind] = at
                elif kind == "laps":
                    block[at] = address_of(self.laps)
                elif kind == "host":
                    inside = step.params["hosts"][rest[0]]
                    hosts.append(HostStep(inside, sizes))
                    block[at] = hosts[-1].address
                elif kind in ("shared", "choice"):
                    block[at] = called[index].get(slot, 0)
                elif kind in NATIVE:
                    limited = step.params.get("limited", step.params["sizes"])
                    if kind == "library" and any(value_of(e, sizes) > MAX_LAPACK_INT for e in limited):
                        raise ValueError(f"{rest[0]} takes axes of at most {MAX_LAPACK_INT:,} elements")
                    block[at] = native_address(slot)
                else:
                    owner = self.plan.owner[step.operands[rest[0]]]
                    if kind == "pointer":
                        targets.append(at)
                        sources.append(places.rows[owner])
                        shifts.append(places.offsets.get(owner, 0))
                    elif kind == "stride" and rest[1] == owner.type.rank:
                        block[at] = owner.type.dtype.part.bytes
                    elif kind == "stride":
                        strides.append((at, self.plan.parameter[owner], rest[1]))
                    else:
                        scalars.append((rest[1], at * 8 // DTYPES[rest[1]].bytes, self.plan.parameter[owner]))
        polling.fill(block, functions, starts, {index: self.plan.steps[index] for index in looks})
        tables = tuple(np.array(t, np.int64) for t in (functions, starts, targets, sources, shifts))
        counts = (len(targets) if self.launcher.reads_arrays else 0, len(self.program.parameters), len(self.plan.fresh))
        addresses = [address_of(t) for t in tables]
        header = np.array([*addresses[:2], len(functions), *addresses[2:], *counts], np.int64)
        results = tuple((shape_of(v, sizes), v.type.dtype.numpy) for v in self.plan.shown)
        large = tuple(is_large(*spec) for spec in results)
        large = large if any(large) else ()
        filled = np.array(block, np.int64)
        return Instance(
            filled, header, tables, tuple(hosts), tuple(strides), tuple(scalars), results, large, places.arena_bytes, sizes, [],
            () if self.plan.gives_all else self.plan.gives(sizes, self.home), looks,
            tuple(creation[kind] for kind in ("create", "creation") if creation),
        )  # fmt: skip


_alive: WeakSet[Executable] = WeakSet()
trims: list[Callable[[], None]] = []
"""Further functions that free memory: those of devices in use."""


def trim(keep: int = 0) -> None:
    """Free memory kept for later calls: small arenas, and the pool of large results and arenas.

    Large results and arenas take their memory from a pool and return it when they die; each program keeps small arenas for its
    next calls. Devices free all unused memory. Memory in use is not touched.

    Parameters
    ----------
    keep : int, optional
        The bytes that the pool may keep.

    See Also
    --------
    jit : Its option ``donate`` reuses the memory of arguments.

    Examples
    --------
    >>> pb.trim()
    """
    for executable in list(_alive):
        for instance in list(executable.instances.values()):
            instance.frames.clear()
    result_arrays.trim(keep)
    for give_back in trims:
        give_back()
