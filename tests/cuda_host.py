"""Emitted CUDA C, run on the host: compiled with g++ behind cuda_host.h, launch after launch, in place of a program's kernels."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.codegen.cuda import Emitted, emit
from pullback.codegen.fuse import fuse
from pullback.codegen.lower import lower
from pullback.codegen.schedule import schedule
from pullback.ir import Function, Module
from pullback.ir.extents import Abstract, abstract, value_of
from pullback.ir.interpret import _Program, interpret
from pullback.ir.ops.control import CheckFailed
from pullback.ir.passes.grad import grad
from pullback.ir.passes.pipeline import OPTIMIZE, run
from pullback.ir.types import DTYPES
from pullback.ir.verify import verify_module

HEADER = Path(__file__).parent / "cuda_host.h"
COMPILER = shutil.which("g++")
FLAGS = ("-std=c++17", "-O1", "-w", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c++", "-include", str(HEADER))
FOLDER = tempfile.TemporaryDirectory(prefix="pullback-cuda-")


def scheduled(function: Function, layouts: Sequence[str] = ()) -> tuple[Module, Abstract]:
    """The program of a func with its kernels scheduled for CUDA, and the func with abstract extents."""
    found = abstract(function)
    constants = ["c"] * (len(found.function.parameters) - len(layouts))
    module = lower(fuse(run(grad(found.function), OPTIMIZE)), [*layouts, *constants] if layouts else (), "cuda")
    program, *kernels = module.functions
    module = Module((program, *(schedule(k, "cuda") for k in kernels)))
    verify_module(module)
    return module, found


def emitted(module: Module) -> list[Emitted]:
    """The kernels of a program, each emitted under its name."""
    return [emit(kernel, kernel.name) for kernel in module.functions[1:]]


def load(texts: Sequence[Emitted]) -> ctypes.CDLL:
    """The kernels as a library of the host. Each is compiled in a namespace of its own."""
    assert COMPILER is not None
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    parts = []
    for kernel in texts:
        exports = "\n".join(f"HOST_EXPORT({launch.name})" for launch in kernel.launches)
        parts.append(f"namespace of_{kernel.name} {{\n{kernel.text}\n{exports}\n}}\n#undef PB_INF\n#undef PB_NAN\n")
    source, library = folder / "kernels.cu", folder / "kernels.so"
    source.write_text("\n".join(parts))
    done = subprocess.run([COMPILER, *FLAGS, "-o", str(library), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def launch_all(library: ctypes.CDLL, kernel: Emitted, arguments: Sequence[Any], sizes: Mapping[str, int]) -> int:
    """Run the launches of a kernel on NumPy arrays and scalars; returns its status."""
    blocks = [launch.blocks(sizes) for launch in kernel.launches]
    scratch = [
        np.full(blocks[s.launch] * math.prod(value_of(e, sizes) for e in s.shape) + 1, 113).astype(s.dtype.numpy)
        for s in kernel.scratch
    ]
    status = np.zeros(1, np.int32)
    for number, launch in enumerate(kernel.launches):
        values: list[Any] = []
        for slot in launch.slots:
            match slot:
                case ("pointer", int(position)):
                    values.append(ctypes.c_void_p(arguments[position].ctypes.data))
                case ("stride", int(position), int(axis)):
                    values.append(ctypes.c_longlong(arguments[position].strides[axis]))
                case ("scalar", int(position), str(dtype)):
                    values.append(np.asarray(arguments[position], DTYPES[dtype].numpy))
                case ("size", int(size)):
                    values.append(ctypes.c_longlong(sizes[f"s{size}"]))
                case ("scratch", int(which)):
                    values.append(ctypes.c_void_p(scratch[which].ctypes.data))
                case ("blocks", int(which)):
                    values.append(ctypes.c_longlong(blocks[which]))
                case ("status",):
                    values.append(ctypes.c_void_p(status.ctypes.data))
        addresses = [v.ctypes.data if isinstance(v, np.ndarray) else ctypes.addressof(v) for v in values]
        table = (ctypes.c_void_p * max(1, len(values)))(*addresses)
        together = library[f"host_{launch.name}"](blocks[number], launch.threads, table)
        assert together, f"{launch.name}: only some threads of a block reach a barrier"
    return int(status[0])


class _HostProgram(_Program):
    """A program whose launches run emitted CUDA C."""

    def __init__(self, sizes: dict[str, int], module: Module) -> None:
        super().__init__(sizes, module)
        self.emitted = {kernel.name: kernel for kernel in emitted(module)}
        self.library = load(list(self.emitted.values()))

    def launch(self, params: Mapping[str, Any], operands: list[Any]) -> None:
        sizes = {f"s{k}": value_of(e, self.sizes) for k, e in enumerate(params["sizes"])}
        status = launch_all(self.library, self.emitted[params["kernel"]], operands, sizes)
        if status:
            error, message, *_ = params["failures"][status - 1]
            raise CheckFailed(error, message)


def run_on_host(function: Function, arguments: Sequence[Any], layouts: Sequence[str] = ()) -> tuple[Any, ...]:
    """The results of a func through CUDA C."""
    module, found = scheduled(function, layouts)
    program = module.functions[0]
    host = _HostProgram(dict(found.sizes), module)
    values = [*arguments, *found.constants]
    env = {p: np.asarray(v, p.type.dtype.numpy) for p, v in zip(program.parameters, values, strict=True)}
    host.block(program.body, env)
    return tuple(np.asarray(env[v]) for v in program.results)


def expected(function: Function, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a func by the interpreter."""
    with np.errstate(all="ignore"):
        results: tuple[Any, ...] = interpret(grad(function), *arguments)
    return results
