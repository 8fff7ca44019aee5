"""Programs on a CUDA device: their compiled kernels, loaded, and their launches with sizes filled in.

What plans a program, walks through it or calls it takes these, and ``CudaExecutable`` is one that can be called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pullback.codegen.cuda.source.launch import Launch as CudaLaunch
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Function, Instruction, Loc, Module, walk
from pullback.ir.core.types import ArrayType, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.ops.program import Launch, launch
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices.choices import Choice
from pullback.runtime.cuda.device.device import Device, Loaded, device
from pullback.runtime.cuda.driver.errors import warn_of
from pullback.runtime.cuda.libraries.calls import Called, chosen
from pullback.runtime.cuda.libraries.tuning import seconds
from pullback.runtime.cuda.program.argument_blocks import Bound, bound, started
from pullback.runtime.cuda.program.serialize import Parts
from pullback.runtime.program.executable import Executable

Schedule = Callable[[Function, str], Function]


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """A kernel that the CPU runs: what it is of, at ``loc``, and why there is no CUDA C of it."""

    kernel: str
    what: str
    loc: Loc


@dataclass(frozen=True, eq=False)
class SizedProgram:
    """The sizes of a program, and launches that were bound to them."""

    sizes: Mapping[str, int]
    launches: dict[int, Bound]


class LoadedProgram:
    """A program and its compiled kernels, on the device ``name``.

    ``schedule(kernel, device)`` gives what a device runs of a kernel. ``title``: what errors call it. ``handed``: the results
    that are numbers it was given, which ``program`` is without: the index of each among the results, its parameter, its dtype.
    ``fallbacks``: what the CPU runs of it, as far as is known: with some sizes it may be more. ``choices``: what was chosen
    between kernels of ours and libraries, by what it is about. Raises DeviceError.
    """

    def __init__(self, parts: Parts, name: str, title: str, schedule: Schedule) -> None:
        self.parts = parts
        self.program, self.handed = _without_numbers(parts.program)
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
        self.loaded: Loaded | None = None
        if parts.code:
            with self.device:
                self.loaded = self.device.load(parts.code, self)

    def bound(self, instance: SizedProgram, step: Instruction) -> Bound:
        """A launch of the program with its sizes filled in."""
        found = instance.launches.get(id(step))
        if found is None:
            sizes = {f"s{k}": value_of(e, instance.sizes) for k, e in enumerate(step.params["sizes"])}

            def choose(launch: CudaLaunch, buffers: list[tuple[str, int]]) -> tuple[Choice, Called | None] | None:
                def start(launch: CudaLaunch, addresses: Mapping[int, int], stream: Any) -> None:
                    self._start(launch, addresses, sizes, stream)

                return chosen(self.device, launch, sizes, buffers, partial(seconds, self.device, start))

            found = bound(self.kernels[step.params["kernel"]], sizes, choose, self.device.room)
            instance.launches[id(step)] = found
            self.choices.update((str(choice.key), choice) for choice in found.choices if choice.how != "only")
            if found.is_on_host:
                self._fall_back(step)
        return found

    def _start(self, launch: CudaLaunch, addresses: Mapping[int, int], sizes: Mapping[str, int], stream: Any) -> None:
        """Give a stream one launch of ours that has no operands but references."""
        assert self.loaded is not None
        count = launch.blocks(sizes)
        one = started(launch, [count], count, sizes, self.device.room)
        values = one.values.copy()
        for at, position in one.pointers:
            values[at] = addresses[position]
        function, packed = self.loaded.function(one.name, one.shared), one.packing.pack(*values)
        function._launch_kernel(one.grid, one.block, packed, one.shared, stream)

    def _fall_back(self, step: Instruction) -> None:
        """The CPU does a launch that a GPU does with other sizes."""
        found = self._fallback(step)
        if found not in self.fallbacks:
            self.fallbacks = (*self.fallbacks, found)
            warn_of(self.title, self.device.name, (found,))

    def _fallback(self, step: Instruction) -> Fallback:
        name = step.params["kernel"]
        return Fallback(kernel=name, what=self.parts.plain[name][1], loc=step.loc)

    def failed(self, step: Instruction, status: int) -> BaseException:
        """What a launch's status says."""
        error, message, place = step.params["failures"][status - 1]
        failed = CheckFailed(error, message)
        if place:
            failed.add_note(place)
        return failed

    def on_host(self, step: Instruction) -> Executable:
        """A launch as a program of the CPU."""
        found = self._on_host.get(step)
        if found is None:
            values = tuple(Value(v.type, f"x{k}") for k, v in enumerate(step.operands))
            again = Instruction(launch, values, (), step.params, (), step.loc)
            shown = tuple(v for v in values if isinstance(v.type, RefType) and not v.type.rank)
            program = Function(self.program.name, Region(values, (again,), shown), "program")
            kernel, _ = self.parts.plain[step.params["kernel"]]
            found = Executable(Module((program, kernel)), {}, lambda kernel, told=None: self._schedule(kernel, "cpu"))
            self._on_host[step] = found
        return found

    def shape(self, value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a value of the program."""
        t = value.type
        assert isinstance(t, RefType | ArrayType)
        return tuple(value_of(e, sizes) for e in t.shape)


def _without_numbers(program: Function) -> tuple[Function, tuple[tuple[int, int, np.dtype[Any]], ...]]:
    """A program without the results that are numbers it was given, and for each of these its place among the results, which
    parameter it is, and its dtype."""
    positions = {v: k for k, v in enumerate(program.parameters) if isinstance(v.type, ArrayType)}
    handed = tuple((at, positions[v], v.type.dtype.numpy) for at, v in enumerate(program.results) if v in positions)
    shown = tuple(v for v in program.results if v not in positions)
    return replace(program, body=replace(program.body, results=shown)), handed
