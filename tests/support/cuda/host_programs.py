"""Programs whose kernels run as emitted CUDA C, launch after launch, on whatever takes it: the host or a GPU."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.codegen.cuda.emit import Emitted, emit
from pullback.codegen.cuda.schedule.schedule import schedule
from pullback.codegen.cuda.source.launch import Launch
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir import Function, Module
from pullback.ir.core.types import DTYPES
from pullback.ir.interpret import _Program, interpret, undefined
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.size_classes import templated
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.shapes.extents import Abstract, value_of
from pullback.ir.verify import verify_module
from pullback.tracer import flatten, trace, unflatten


class Machine(ABC):
    """A machine that runs the kernels of one program."""

    room = 48 << 10
    """Bytes of shared memory that a block may have."""

    @abstractmethod
    def address(self, array: Any) -> int:
        """Return the address of an array's first element for the launches of a kernel."""

    @abstractmethod
    def start(self, launch: Launch, blocks: int, threads: int, shared: int, values: Sequence[Any]) -> None:
        """Start a launch with numbers of blocks, threads a block and bytes of shared memory; arguments are NumPy scalars."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the launches of a kernel, after which the arrays hold their results."""


Make = Callable[[Sequence[Emitted]], Machine]


def traced(call: Callable[..., Any], *args: Any) -> tuple[Function, list[Any]]:
    """Return the func traced from a call of a user's function, and its arguments, in C order."""
    result = trace(call, args, {})
    values = result.arguments(flatten((args, {}))[0])
    assert values is not None
    return result.function, [np.asarray(v, order="C") for v in values]


def on_machine(make: Make, call: Callable[..., Any], *args: Any) -> Any:
    """Return the results of a user's function, in its containers, computed by kernels on a machine."""
    result = trace(call, args, {})
    values = result.arguments(flatten((args, {}))[0])
    assert values is not None
    leaves = run_program(make, result.function, [np.asarray(v, order="C") for v in values])
    return unflatten(result.result_tree, [leaf[()] for leaf in leaves])


def scheduled(function: Function, layouts: Sequence[str] = ()) -> tuple[Module, Abstract]:
    """The program of a func with its kernels scheduled for CUDA, and the func with abstract extents."""
    result = templated(function)
    constants = ["c"] * (len(result.function.parameters) - len(layouts))
    optimised = run(grad(run(result.function, BEFORE_GRAD)), OPTIMIZE)
    module = lower(fuse(optimised, "cuda"), [*layouts, *constants] if layouts else (), "cuda")
    program, *kernels = module.functions
    module = Module((program, *(schedule(k) for k in kernels)))
    verify_module(module)
    return module, result


def emitted(module: Module) -> list[Emitted]:
    """The kernels of a program, each emitted under its name."""
    return [emit(kernel, kernel.name) for kernel in module.functions[1:]]


def text_of(kernels: Sequence[Emitted], after: Callable[[Launch], str] | None = None) -> str:
    """Return one text of several kernels, each in a namespace of its own; ``after`` returns the text that follows each launch."""
    parts = []
    for kernel in kernels:
        functions = {launch.name: launch for launch in kernel.launches}.values()
        lines = "".join(f"{after(launch)}\n" for launch in functions) if after else ""
        parts.append(f"namespace of_{kernel.name} {{\n{kernel.text}\n{lines}}}\n#undef PB_INF\n#undef PB_NAN\n")
    return "\n".join(parts)


def launch_all(machine: Machine, kernel: Emitted, arguments: Sequence[Any], sizes: Mapping[str, int]) -> int:
    """Run the launches of a kernel on NumPy arrays and scalars; returns its status."""
    blocks = [launch.blocks(sizes) for launch in kernel.launches]
    scratch = [
        undefined(s.dtype, [blocks[s.launch] * math.prod(value_of(e, sizes) for e in s.shape) + 1]) for s in kernel.scratch
    ]
    status = np.zeros(1, np.int32)

    def value(slot: tuple[object, ...]) -> Any:
        match slot:
            case ("pointer", int(position)):
                return np.uint64(machine.address(arguments[position]))
            case ("stride", int(position), int(axis)):
                return np.int64(arguments[position].strides[axis])
            case ("scalar", int(position), str(dtype)):
                result = np.asarray(arguments[position], DTYPES[dtype].numpy)
                return (result.view(np.uint16) if dtype in ("f16", "bf16") else result)[()]
            case ("size", int(size)):
                return np.int64(sizes[f"s{size}"])
            case ("number", int(count)):
                return np.int32(count)
            case ("scratch", int(which)):
                return np.uint64(machine.address(scratch[which]))
            case ("blocks", int(which)):
                return np.int64(blocks[which])
            case ("status",):
                return np.uint64(machine.address(status))
        raise AssertionError(slot)

    for launch, count in zip(kernel.launches, blocks, strict=True):
        shared = launch.shared(sizes, machine.room)
        if count:
            own = {("shared",): np.int32(shared), ("width",): np.int32(launch.width_for(sizes))}
            own["parts",] = np.int32(launch.parts(sizes))
            if launch.cut is not None:
                own["chunks",] = np.int32(launch.chunks_for(sizes))
            values = [own[slot] if slot in own else value(slot) for slot in launch.slots]
            machine.start(launch, count, launch.threads_for(sizes), shared, values)
    machine.finish()
    return int(status[0])


class CudaProgram(_Program):
    """A program whose launches run emitted CUDA C."""

    def __init__(self, sizes: dict[str, int], module: Module, make: Make) -> None:
        super().__init__(sizes, module)
        self.emitted = {kernel.name: kernel for kernel in emitted(module)}
        self.machine = make(list(self.emitted.values()))

    def launch(self, params: Mapping[str, Any], operands: list[Any]) -> None:
        sizes = {f"s{k}": value_of(e, self.sizes) for k, e in enumerate(params["sizes"])}
        status = launch_all(self.machine, self.emitted[params["kernel"]], operands, sizes)
        if status:
            error, message, *_ = params["failures"][status - 1]
            raise CheckFailed(error, message)


def run_program(make: Make, function: Function, arguments: Sequence[Any], layouts: Sequence[str] = ()) -> tuple[Any, ...]:
    """The results of a func through CUDA C, on the machine that ``make`` makes for its kernels."""
    module, result = scheduled(function, layouts)
    program = module.functions[0]
    running = CudaProgram(dict(result.sizes), module, make)
    values = [*arguments, *result.constants]
    env = {p: np.asarray(v, p.type.dtype.numpy) for p, v in zip(program.parameters, values, strict=True)}
    running.block(program.body, env)
    return tuple(np.asarray(env[v]) for v in program.results)


def expected(function: Function, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a func by the interpreter."""
    with np.errstate(all="ignore"):
        results: tuple[Any, ...] = interpret(grad(function), *arguments)
    return results
