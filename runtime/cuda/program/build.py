"""Programs for CUDA from the passes, or from the cache: emitted, compiled for the device, loaded and kept."""

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
from pullback.runtime.cuda.libraries.calls import is_known
from pullback.runtime.cuda.program import serialize as cuda_stored
from pullback.runtime.cuda.program.executable import CudaExecutable
from pullback.runtime.cuda.program.serialize import Parts

if TYPE_CHECKING:
    from pullback.codegen.cuda import emit as cuda
    from pullback.codegen.cuda.emit import Emitted
else:
    cuda = later("pullback.codegen.cuda.emit")

Schedule = Callable[[Function, str], Function]


def compiled(module: Module, name: str, title: str, schedule: Schedule) -> CudaExecutable:
    """The program ``title`` for the device ``name``. ``module``: the program, then its kernels as ``lower`` made them;
    ``schedule(kernel, device)`` gives what a device runs. Raises DeviceError, NoCompiler, CompileError."""
    parts, text = parts_of(module, schedule)
    names = dict.fromkeys(each.name for kernel in parts.kernels.values() for each in kernel.launches if each.name)

    def loaded(code: bytes) -> CudaExecutable:
        return CudaExecutable(replace(parts, code=code), name, title, schedule)

    if not names:
        return loaded(b"")
    place = device(name)
    try:
        return cuda_compile.load(text, place.arch, list(names), loaded)
    except NoArchitecture as error:
        raise DeviceError(
            f"{name}, {place.title}, is of architecture {place.arch}, and {error.reason}; install an NVRTC (or nvcc) of a CUDA "
            'that knows it, see `pullback doctor`, or use device="cpu"'
        ) from error


def parts_of(module: Module, schedule: Schedule) -> tuple[Parts, str]:
    """What a program is made of, but for its code, and the CUDA C of its kernels."""
    program, *kernels = module.functions
    made: list[Emitted] = []
    plain: dict[str, tuple[Function, str]] = {}
    for kernel in kernels:
        try:
            emitted = cuda.emit(schedule(kernel, "cuda"), kernel.name)
        except NotImplementedError as error:
            plain[kernel.name] = kernel, str(error)
            continue
        small = [each.routine.name for each in emitted.launches if each.routine is not None and each.routine.is_small]
        if small or any(each.orders for each in emitted.launches):
            what = f"{small[0]} of matrices" if small else "linear algebra of matrices"
            plain[kernel.name] = kernel, f"{what} that are too large for one block, without a library"
        lacking = [
            each.routine.name for each in emitted.launches if each.routine and not each.name and not is_known(each.routine)
        ]
        if lacking:
            plain[kernel.name] = kernel, f"{lacking[0]} has no CUDA spelling"
        else:
            made.append(emitted)
    written = {kernel.name: tuple(sorted(kernel_accesses(kernel)[1])) for kernel in kernels}
    launches = {each.name: Launches(name=each.name, launches=each.launches, scratch=each.scratch) for each in made}
    parts = Parts(program=program, kernels=launches, written=written, plain=plain, code=b"")
    return parts, cuda.joined(made)


def key_of(template: bytes, name: str) -> str | None:
    """The cache key of the program of a template key; None where programs are not kept, or nothing can be compiled or run."""
    try:
        return cuda_stored.key_of(template, device(name).arch)
    except (DeviceError, cuda_compile.NoCompiler):
        return None


def find(key: str, name: str, title: str, schedule: Schedule) -> CudaExecutable | None:
    """The program for a device that was kept under a key, if the driver takes its code."""
    parts = cuda_stored.find(key)
    if parts is None:
        return None
    try:
        return CudaExecutable(parts, name, title, schedule)
    except DeviceError:
        cuda_stored.forget(key)
        return None


def keep(key: str, executable: CudaExecutable, seconds: float) -> None:
    """Keep a program, if it can be. ``seconds`` that its making took."""
    cuda_stored.keep(key, executable.parts, executable.device.arch, seconds)
