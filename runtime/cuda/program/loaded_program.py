"""Programs on a CUDA device: their compiled kernels, loaded, and their launches with sizes filled in.

The planner, the interpreter and the calls work on these; ``CudaExecutable`` is one that can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pullback.codegen.cuda.source.launch import Launch as CudaLaunch
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Function, Instruction, Loc, Module, walk
from pullback.ir.core.types import ArrayType, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.ops.program import Launch, launch
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices.choices import Choice
from pullback.runtime.cuda.device.device import Device, LoadedModule, device
from pullback.runtime.cuda.driver.errors import warn_of
from pullback.runtime.cuda.libraries.calls import LibraryCall, choose_routine
from pullback.runtime.cuda.libraries.tuning import seconds
from pullback.runtime.cuda.program.argument_blocks import SizedKernel, sized_kernel, sized_launch
from pullback.runtime.cuda.program.serialize import Parts
from pullback.runtime.program.executable import Executable

Schedule = Callable[[Function, str], Function]


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """A kernel that the CPU runs: its description, its ``loc``, and why it has no CUDA C."""

    kernel: str
    what: str
    loc: Loc


@dataclass(frozen=True, eq=False)
class SizedProgram:
    """The sizes of a program, and its launches with these sizes."""

    sizes: Mapping[str, int]
    launches: dict[int, SizedKernel]


class LoadedProgram:
    """A program and its compiled kernels, on the device ``name``.

    ``schedule(kernel, device)`` returns a kernel scheduled for a device. ``title``: the name in errors. ``passed_through``:
    the results that are scalar arguments, which ``program`` omits: the index of each among the results, its parameter, its
    dtype. ``fallbacks``: the kernels known to run on the CPU; some sizes may add more. ``choices``: the choices between
    generated kernels and libraries, by their keys. The constructor raises DeviceError.
    """

    def __init__(self, parts: Parts, name: str, title: str, schedule: Schedule) -> None:
        self.parts = parts
        self.program, self.passed_through = _without_scalars(parts.program)
        self.title = title
        self.device: Device = device(name)
        self._schedule = schedule
        self._on_host: dict[Instruction, Executable] = {}
        self.kernels = parts.kernels
        self.written = parts.written
        self.fallbacks = tuple(
            self._fallback(i)
            for i in walk(self.program.body)
            if isinstance(i.op, Launch) and i.params["kernel"] not in parts.kernels
        )
        self.choices: dict[str, Choice] = {}
        self.loaded: LoadedModule | None = None
        if parts.code:
            with self.device:
                self.loaded = self.device.load(parts.code, self)

    def bound(self, instance: SizedProgram, step: Instruction) -> SizedKernel:
        """Return a launch of the program with its sizes filled in."""
        kernel = instance.launches.get(id(step))
        if kernel is None:
            sizes = {f"s{k}": value_of(e, instance.sizes) for k, e in enumerate(step.params["sizes"])}

            def choose(launch: CudaLaunch, buffers: list[tuple[str, int]]) -> tuple[Choice, LibraryCall | None] | None:
                def start(launch: CudaLaunch, addresses: Mapping[int, int], stream: Any) -> None:
                    self._start(launch, addresses, sizes, stream)

                return choose_routine(self.device, launch, sizes, buffers, partial(seconds, self.device, start))

            kernel = sized_kernel(self.kernels[step.params["kernel"]], sizes, choose, self.device.max_shared_bytes)
            instance.launches[id(step)] = kernel
            self.choices.update((str(choice.key), choice) for choice in kernel.choices if choice.how != "only")
            if kernel.is_on_host:
                self._fall_back(step)
        return kernel

    def _start(self, launch: CudaLaunch, addresses: Mapping[int, int], sizes: Mapping[str, int], stream: Any) -> None:
        """Enqueue one generated launch whose operands are all references."""
        assert self.loaded is not None
        count = launch.blocks(sizes)
        sized = sized_launch(launch, [count], count, sizes, self.device.max_shared_bytes)
        values = sized.values.copy()
        for at, position in sized.pointers:
            values[at] = addresses[position]
        function, packed = self.loaded.function(sized.name, sized.shared), sized.packing.pack(*values)
        function._launch_kernel(sized.grid, sized.block, packed, sized.shared, stream)

    def _fall_back(self, step: Instruction) -> None:
        """Record, with a warning, that the CPU runs a launch that the GPU runs with other sizes."""
        fallback = self._fallback(step)
        if fallback not in self.fallbacks:
            self.fallbacks = (*self.fallbacks, fallback)
            warn_of(self.title, self.device.name, (fallback,))

    def _fallback(self, step: Instruction) -> Fallback:
        name = step.params["kernel"]
        return Fallback(kernel=name, what=self.parts.plain[name][1], loc=step.loc)

    def failed(self, step: Instruction, status: int) -> BaseException:
        """Return the exception for a launch's status."""
        error, message, note = step.params["failures"][status - 1]
        failed = CheckFailed(error, message)
        if note:
            failed.add_note(note)
        return failed

    def on_host(self, step: Instruction) -> Executable:
        """Return a launch as a program of the CPU."""
        executable = self._on_host.get(step)
        if executable is None:
            values = tuple(Value(v.type, f"x{k}") for k, v in enumerate(step.operands))
            copied = Instruction(launch, values, (), step.params, (), step.loc)
            shown = tuple(v for v in values if isinstance(v.type, RefType) and not v.type.rank)
            program = Function(self.program.name, Region(values, (copied,), shown), "program")
            kernel, _ = self.parts.plain[step.params["kernel"]]
            executable = Executable(Module((program, kernel)), {}, lambda kernel, on_callee=None: self._schedule(kernel, "cpu"))
            self._on_host[step] = executable
        return executable

    def shape(self, value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of a value of the program."""
        t = value.type
        assert isinstance(t, RefType | ArrayType)
        return tuple(value_of(e, sizes) for e in t.shape)


def _without_scalars(program: Function) -> tuple[Function, tuple[tuple[int, int, np.dtype[Any]], ...]]:
    """Return a program without the results that are scalar arguments, and for each of these its index among the results, its
    parameter, and its dtype."""
    positions = {v: k for k, v in enumerate(program.parameters) if isinstance(v.type, ArrayType)}
    handed = tuple((at, positions[v], v.type.dtype.numpy) for at, v in enumerate(program.results) if v in positions)
    shown = tuple(v for v in program.results if v not in positions)
    return replace(program, body=replace(program.body, results=shown)), handed
