"""Build programs for CUDA from the IR, or read them from the cache: emitted, compiled for the device, loaded and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pullback.codegen.analysis.steps import kernel_accesses
from pullback.codegen.cuda.source.launch import Launches
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.structure import Function, Module
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device.device import device
from pullback.runtime.cuda.driver.errors import DeviceError, NoArchitecture
from pullback.runtime.cuda.libraries.calls import has_record
from pullback.runtime.cuda.program import serialize as cuda_serialize
from pullback.runtime.cuda.program.executable import CudaExecutable
from pullback.runtime.cuda.program.serialize import Parts

if TYPE_CHECKING:
    from pullback.codegen.cuda import emit as cuda_emit
    from pullback.codegen.cuda.emit import Emitted
else:
    cuda_emit = later("pullback.codegen.cuda.emit")

Schedule = Callable[[Function, str], Function]


def compiled(module: Module, name: str, title: str, schedule: Schedule) -> CudaExecutable:
    """Return the program ``title`` for the device ``name``. ``module``: the program, then its kernels as ``lower`` returned
    them; ``schedule(kernel, device)`` returns a kernel scheduled for a device. Raises DeviceError, NoCompiler,
    CompileError."""
    parts, text = parts_of(module, schedule)
    names = dict.fromkeys(each.name for kernel in parts.kernels.values() for each in kernel.launches if each.name)

    def loaded(code: bytes) -> CudaExecutable:
        return CudaExecutable(replace(parts, code=code), name, title, schedule)

    if not names:
        return loaded(b"")
    gpu = device(name)
    try:
        return cuda_compile.load(text, gpu.arch, list(names), loaded)
    except NoArchitecture as error:
        raise DeviceError(
            f"{name}, {gpu.title}, is of architecture {gpu.arch}, and {error.reason}; install an NVRTC (or nvcc) of a CUDA "
            'that knows it, see `pullback doctor`, or use device="cpu"'
        ) from error


def parts_of(module: Module, schedule: Schedule) -> tuple[Parts, str]:
    """Return the parts of a program without its code, and the CUDA C of its kernels."""
    program, *kernels = module.functions
    emitted_kernels: list[Emitted] = []
    host_kernels: dict[str, tuple[Function, str]] = {}
    for kernel in kernels:
        try:
            emitted = cuda_emit.emit(schedule(kernel, "cuda"), kernel.name)
        except NotImplementedError as error:
            host_kernels[kernel.name] = kernel, str(error)
            continue
        small = [
            each.routine.name for each in emitted.launches if each.routine is not None and each.routine.is_for_small_matrices
        ]
        if small or any(each.orders for each in emitted.launches):
            reason = f"{small[0]} of matrices" if small else "linear algebra of matrices"
            host_kernels[kernel.name] = kernel, f"{reason} that are too large for one block, without a library"
        lacking = [
            each.routine.name for each in emitted.launches if each.routine and not each.name and not has_record(each.routine)
        ]
        if lacking:
            host_kernels[kernel.name] = kernel, f"{lacking[0]} has no CUDA spelling"
        else:
            emitted_kernels.append(emitted)
    written = {kernel.name: tuple(sorted(kernel_accesses(kernel)[1])) for kernel in kernels}
    launches = {each.name: Launches(name=each.name, launches=each.launches, scratch=each.scratch) for each in emitted_kernels}
    parts = Parts(program=program, kernels=launches, written=written, plain=host_kernels, code=b"")
    return parts, cuda_emit.join_kernels(emitted_kernels)


def key_of(template: bytes, name: str) -> str | None:
    """Return the cache key of a program from its template key; None if programs are not stored, or nothing can be compiled or
    run."""
    try:
        return cuda_serialize.key_of(template, device(name).arch)
    except (DeviceError, cuda_compile.NoCompiler):
        return None


def find(key: str, name: str, title: str, schedule: Schedule) -> CudaExecutable | None:
    """Return the program stored under a key, if the driver accepts its code; else None."""
    parts = cuda_serialize.find(key)
    if parts is None:
        return None
    try:
        return CudaExecutable(parts, name, title, schedule)
    except DeviceError:
        cuda_serialize.forget(key)
        return None


def keep(key: str, executable: CudaExecutable, seconds: float) -> None:
    """Store a program, if it can be serialised. ``seconds``: how long it took to build."""
    cuda_serialize.keep(key, executable.parts, executable.device.arch, seconds)
