"""Emitted CUDA C, run on the first GPU: compiled as programs are and launched through PyCUDA."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pullback.codegen.cuda.emit import Emitted
from pullback.codegen.cuda.source.launch import Launch
from pullback.ir import Function
from pullback.runtime.cuda.compile import compile as cuda_compile
from tests.support.cuda.host_programs import Machine, run_program, text_of

GUARD, AROUND = 256, 0xA5
"""How many bytes around an array must stay as they are, and what is in them."""


@lru_cache
def missing() -> str | None:
    """What a GPU's tests need and this machine has not."""
    if os.environ.get("PULLBACK_CUDA") == "host":
        return "the stand-in for a GPU is asked for"
    if importlib.util.find_spec("pycuda") is None:
        return "needs pycuda (pip install pullback[cuda])"
    try:
        import pycuda.driver as cuda
    except ImportError as error:
        return f"needs NVIDIA's driver ({error})"
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        return f"needs a CUDA device ({error})"
    if not count:
        return "needs a CUDA device"
    try:
        cuda_compile.compiler()
    except cuda_compile.NoCompiler as error:
        return str(error)
    return None


@lru_cache
def driver() -> Any:
    """PyCUDA's driver, the primary context of the first device current until the process ends."""
    import pycuda.driver as cuda

    cuda.init()
    context = cuda.Device(0).retain_primary_context()
    context.push()
    atexit.register(context.pop)
    return cuda


@lru_cache
def architecture() -> str:
    major, minor = driver().Device(0).compute_capability()
    return f"sm_{major}{minor}"


@dataclass(frozen=True)
class Held:
    """Memory of the host and its copy on the device, which begins ``Device.guard`` bytes behind ``copy``."""

    memory: Any
    copy: Any
    owner: Any


class Device(Machine):
    """The kernels as a module of the GPU. What they read and write is copied there for the launches of each kernel."""

    guard = GUARD

    def __init__(self, kernels: Sequence[Emitted]) -> None:
        self.held: dict[tuple[int, int], Held] = {}
        self.functions: dict[str, Any] = {}
        self.module = self.load(kernels) if kernels else None

    def load(self, kernels: Sequence[Emitted]) -> Any:
        """The kernels as a module of the driver's."""
        names = [launch.name for kernel in kernels for launch in kernel.launches]
        text = text_of(kernels, getattr(cuda_compile.compiler(), "record", None))
        return cuda_compile.load(text, architecture(), names, driver().module_from_buffer)

    def address(self, array: Any) -> int:
        """Arrays that share memory do so on the device."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        start, end = bounds = np.lib.array_utils.byte_bounds(owner)
        if bounds not in self.held:
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * (end - start)).from_address(start))
            self.held[bounds] = Held(memory, driver().to_device(self.guarded(memory)), owner)
        return int(self.held[bounds].copy) + self.guard + int(array.ctypes.data) - start

    def function(self, launch: Launch) -> Any:
        if launch.name not in self.functions:
            assert self.module is not None
            self.functions[launch.name] = self.module.get_function(launch.name)
        return self.functions[launch.name]

    def start(self, launch: Launch, blocks: int, threads: int, shared: int, values: Sequence[Any]) -> None:
        arguments = [v.view(np.uint8) if v.dtype == bool else v for v in values]
        if shared > 32 << 10:
            most = driver().function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.function(launch).set_attribute(most, shared)
        self.function(launch)(*arguments, grid=(blocks, 1, 1), block=(threads, 1, 1), shared=shared)

    def finish(self) -> None:
        cuda = driver()
        cuda.Context.synchronize()
        for held in self.held.values():
            image = self.guarded(held.memory)
            wanted, end = image[: self.guard].copy(), self.guard + len(held.memory)
            cuda.memcpy_dtoh(image, held.copy)
            np.testing.assert_array_equal(image[: self.guard], wanted, "written before an array")
            np.testing.assert_array_equal(image[end : end + self.guard], wanted, "written behind an array")
            inside = image[self.guard : end]
            if held.owner.flags.writeable:
                held.memory[...] = inside
            else:
                np.testing.assert_array_equal(inside, held.memory, "written where nothing may be")
            held.copy.free()
        self.held.clear()

    def guarded(self, memory: Any) -> Any:
        """A copy of bytes with guards around it; at least one byte."""
        around = np.full(self.guard, AROUND, np.uint8)
        return np.concatenate([around, memory, around if len(memory) + self.guard else np.zeros(1, np.uint8)])


def run_on_device(function: Function, arguments: Sequence[Any], layouts: Sequence[str] = ()) -> tuple[Any, ...]:
    """The results of a func through CUDA C on the first GPU."""
    return run_program(Device, function, arguments, layouts)
