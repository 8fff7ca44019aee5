"""`llvmlite.binding`, which is imported and initialised at the first need, and what of it takes long."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@functools.cache
def llvm_binding() -> Any:
    """`llvmlite.binding`, imported and initialised at the first need."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def _unlocked(name: str, count: int) -> Any:
    """A function of llvmlite's of so many arguments, without the lock that it holds for each call; None if it is not as known.
    Threads that share no context and no machine may be in LLVM at once."""
    from llvmlite.binding import ffi

    try:
        known = getattr(ffi.lib, name)
        found = getattr(ctypes.CDLL(ffi.lib._name), name)
        found.argtypes, found.restype = known.argtypes, known.restype
    except (AttributeError, OSError):
        return None
    return found if found.argtypes is not None and len(found.argtypes) == count else None


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Run the passes of a manager on a module."""
    run = _unlocked("LLVMPY_RunNewModulePassManager", 3)
    if run is None:
        manager.run(module, builder)
    else:
        run(manager, module, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """The object file of a module. Raises RuntimeError."""
    from llvmlite.binding import ffi

    emit = _unlocked("LLVMPY_TargetMachineEmitToMemory", 4)
    if emit is None:
        return bytes(machine.emit_object(module))
    with ffi.OutputString() as reason:
        buffer = emit(machine, module, 1, reason)
        if not buffer:
            raise RuntimeError(str(reason))
    try:
        return ctypes.string_at(ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@contextmanager
def unheld() -> Iterator[None]:
    """A block of a thread that calls llvmlite, after which the thread does not hold the lock that llvmlite takes for each call.

    What the handler of a signal raises between the taking of it and the call leaves it held, and every other thread would wait
    for ever. It may also raise amid the end of an object, where Python passes over it.
    """
    try:
        yield
    finally:
        from llvmlite.binding import ffi

        lock = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
        while lock is not None and lock._is_owned():
            lock.release()


@functools.cache
def know_all_targets() -> None:
    llvm_binding().initialize_all_targets()
    llvm_binding().initialize_all_asmprinters()


@functools.cache
def llvm_version() -> str:
    """The versions that decide what a text becomes, such as "llvmlite 0.50.0 LLVM 22.1.0"."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, llvm_binding().llvm_version_info))}"
