"""Access to `llvmlite.binding`, imported and initialised at its first use, and its slow calls without its global lock."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@functools.cache
def llvm_binding() -> Any:
    """Return `llvmlite.binding`, imported and initialised at the first call."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def _unlocked(name: str, count: int) -> Any:
    """Return a function of llvmlite's library that takes ``count`` arguments, without the lock that llvmlite holds during each
    call; None if its signature is another. Threads that share no context and no target machine may be in LLVM at the same
    time."""
    from llvmlite.binding import ffi

    try:
        wrapped = getattr(ffi.lib, name)
        function = getattr(ctypes.CDLL(ffi.lib._name), name)
        function.argtypes, function.restype = wrapped.argtypes, wrapped.restype
    except (AttributeError, OSError):
        return None
    return function if function.argtypes is not None and len(function.argtypes) == count else None


def run_passes(manager: Any, module: Any, builder: Any) -> None:
    """Run the passes of a manager on a module."""
    run = _unlocked("LLVMPY_RunNewModulePassManager", 3)
    if run is None:
        manager.run(module, builder)
    else:
        run(manager, module, builder)


def emit_object(machine: Any, module: Any) -> bytes:
    """Return the object file of a module. Raises RuntimeError."""
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
def releases_llvmlite_lock() -> Iterator[None]:
    """A context in which a thread calls llvmlite, and at whose end it does not hold the lock that llvmlite takes for each
    call.

    An exception raised by a signal handler between acquiring the lock and the call leaves the lock held, and every other
    thread would block forever. It may also be raised while an object is being finalised, where Python ignores it.
    """
    try:
        yield
    finally:
        from llvmlite.binding import ffi

        lock = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
        while lock is not None and lock._is_owned():
            lock.release()


@functools.cache
def initialise_all_targets() -> None:
    """Initialise every target that LLVM was built with, so that code can be compiled for other machines."""
    llvm_binding().initialize_all_targets()
    llvm_binding().initialize_all_asmprinters()


@functools.cache
def llvm_version() -> str:
    """Return the versions that decide the machine code of a text, such as "llvmlite 0.50.0 LLVM 22.1.0"."""
    import llvmlite

    return f"llvmlite {llvmlite.__version__} LLVM {'.'.join(map(str, llvm_binding().llvm_version_info))}"
