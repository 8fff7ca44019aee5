"""Programs on a CUDA device: launches on one stream, loops and branches by the host.

An ``CudaExecutable`` holds the machine code of a program's kernels, compiled from one text. A call walks through the program: a
buffer is a block of the device's pool, given back at its last use, a launch is an argument block packed and handed to the driver.
Nothing waits for the device but what must know a value: a branch, a loop of unknown length, a check, a step in Python, and a
result that goes to NumPy. A kernel that has no CUDA C is run by the CPU, on copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.extents import value_of
from pullback.ir.ops.control import CheckFailed
from pullback.ir.ops.program import Launch, launch
from pullback.ir.structure import Block as Region
from pullback.ir.structure import Function, Instruction, Loc, Module, Value, walk
from pullback.ir.types import ArrayType, RefType
from pullback.runtime.cuda_arrays import DeviceArray
from pullback.runtime.cuda_blas import product_of
from pullback.runtime.cuda_device import Device, Loaded, device
from pullback.runtime.cuda_errors import DeviceError
from pullback.runtime.cuda_launch import Bound, bound
from pullback.runtime.cuda_run import Run
from pullback.runtime.cuda_stored import Parts
from pullback.runtime.cuda_tape import Tape, is_straight
from pullback.runtime.program import Executable

KEPT_INSTANCES = 64

Schedule = Callable[[Function, str], Function]


@dataclass(frozen=True, kw_only=True)
class Fallback:
    """A kernel that the CPU runs: what it is of, at ``loc``, and why there is no CUDA C of it."""

    kernel: str
    what: str
    loc: Loc


@dataclass(frozen=True, eq=False)
class CudaInstance:
    """A program with its sizes: launches that were bound to them, and its tape, if it has one."""

    sizes: Mapping[str, int]
    launches: dict[int, Bound]
    tape: list[Tape]


class CudaExecutable:
    """A program and its compiled kernels, on the device ``name``.

    ``schedule(kernel, device)`` gives what a device runs of a kernel. ``title``: what errors call it. ``fallbacks``: what the CPU
    runs of it. Raises DeviceError.
    """

    home: Mapping[int, int] = {}
    uses_tapes = True
    """Whether straight programs run from a list; else they are walked through, as programs with loops are."""

    def __init__(self, parts: Parts, name: str, title: str, schedule: Schedule) -> None:
        self.parts = parts
        self.program = parts.program
        self.title = title
        self.device: Device = device(name)
        self.instances: dict[tuple[int, ...], CudaInstance] = {}
        self._schedule = schedule
        self._on_host: dict[Instruction, Executable] = {}
        self.kernels = parts.kernels
        self.written = parts.written
        self.fallbacks = tuple(
            Fallback(kernel=i.params["kernel"], what=parts.plain[i.params["kernel"]][1], loc=i.loc)
            for i in walk(self.program.body)
            if isinstance(i.op, Launch) and i.params["kernel"] in parts.plain
        )
        self.is_straight = is_straight(self)
        self.loaded: Loaded | None = None
        if parts.code:
            with self.device:
                self.loaded = self.device.load(parts.code, self)

    def instance(self, sizes: Mapping[str, int]) -> CudaInstance:
        """The program with these sizes; the last few are kept."""
        key = tuple(sizes.values())
        found = self.instances.get(key)
        if found is None:
            if len(self.instances) >= KEPT_INSTANCES:
                self.instances.pop(next(iter(self.instances.copy())), None)
            found = self.instances.setdefault(key, CudaInstance(dict(sizes), {}, []))
        return found

    def call(self, instance: CudaInstance, arguments: Sequence[Any], chosen: Sequence[Any] | None = None) -> list[Any]:
        """Run on arguments: NumPy arrays or arrays on the device for references, scalars for rank-0 parameters.

        ``chosen``: for each result an array in which it may be made, or None. The results are arrays on the device if an argument
        is one, or with ``chosen``; else NumPy's. Raises CheckFailed, DeviceError, and what a step in Python raises.
        """
        keeps = chosen is not None or any(isinstance(a, DeviceArray) for a in arguments)
        self.check(arguments)
        with self.device:
            if not self.is_straight or not self.uses_tapes:
                return Run(self, instance).results(arguments, keeps)
            if not instance.tape:
                instance.tape.append(Tape(self, instance))
            return instance.tape[0].run(arguments, keeps, chosen)

    def check(self, arguments: Sequence[Any]) -> None:
        """Raises DeviceError for an array of another device."""
        for parameter, argument in zip(self.program.parameters, arguments, strict=True):
            if isinstance(argument, DeviceArray) and argument.place is not self.device:
                where = f"{self.title} runs on {self.device.name}"
                raise DeviceError(f"{parameter.name} is on {argument.device}, and {where}")

    def bound(self, instance: CudaInstance, step: Instruction) -> Bound:
        """A launch of the program with its sizes filled in."""
        found = instance.launches.get(id(step))
        if found is None:
            sizes = {f"s{k}": value_of(e, instance.sizes) for k, e in enumerate(step.params["sizes"])}
            name = step.params["kernel"]
            multiplies = name in self.parts.products and self.device.blas() is not None
            product = product_of(self.parts.products[name], sizes) if multiplies else None
            found = bound(self.kernels[name], sizes) if product is None else Bound((), (), False, product)
            instance.launches[id(step)] = found
        return found

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
            found = Executable(Module((program, kernel)), {}, lambda kernel: self._schedule(kernel, "cpu"))
            self._on_host[step] = found
        return found

    def shape(self, value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of a value of the program."""
        t = value.type
        assert isinstance(t, RefType | ArrayType)
        return tuple(value_of(e, sizes) for e in t.shape)
