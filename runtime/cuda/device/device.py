"""A CUDA device as used by this process: its primary context, one stream, memory, and the loaded modules.

There is one ``Device`` object per device, with one PyCUDA context object, which is current only within ``with device:``, in
any thread. An object that must be destroyed within the context, but may die in any thread, goes to a queue that the next
``with`` processes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from os import getpid
from typing import Any, TypeVar

from pullback.codegen.cuda.source import graph_loops as cuda_graph_loops
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device import deferred_release as cuda_deferred_release
from pullback.runtime.cuda.device.memory import NON_BLOCKING, Block, Pool, Staging
from pullback.runtime.cuda.driver.driver import count, cuda, ordinal
from pullback.runtime.cuda.driver.errors import DeviceError, DeviceFault
from pullback.runtime.process.fork import hold_over_fork
from pullback.runtime.program.executable import trims

EVENT_WITHOUT_TIME = 2
"""The flag of an event that records no time (CU_EVENT_DISABLE_TIMING)."""
DEFAULT_SHARED_BYTES = 32 << 10
"""The bytes of dynamic shared memory up to which a launch needs no attribute set. Beyond it, together with the function's
static shared memory, a launch may exceed the default limit."""
MAX_NAMED_KERNELS = 8
"""The largest number of kernels named in the message after one has failed."""


Attached = TypeVar("Attached")


class _Depth(threading.local):
    """The nesting depth of ``with device:`` in a thread."""

    depth = 0


class Device:
    """The device ``name``, such as "cuda:0"; ``arch``, such as "sm_90"; ``max_shared_bytes``: the largest shared memory of a
    thread block. Within ``with device:`` its context is current, and driver errors are raised as DeviceError."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name = f"cuda:{index}"
        self._process = getpid()
        self._broken = ""
        self._local = _Depth()
        self._retired: deque[tuple[str, int]] = deque()
        self._loaded: dict[int, LoadedModule] = {}
        self.launched: deque[tuple[str, str]] = deque(maxlen=MAX_NAMED_KERNELS)
        handle = cuda.Device(index)
        self.title = handle.name()
        major, minor = handle.compute_capability()
        self.arch = f"sm_{major}{minor}"
        self.max_shared_bytes = handle.get_attribute(cuda.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        self._context = handle.retain_primary_context()
        self.context_handle = int(self._context.handle)
        self.planned_programs = PlannedPrograms()
        self._capture_lock = threading.RLock()
        self.pool = Pool(self.release_cached, self._capture_lock)
        self._event_lock = threading.RLock()
        self._attached: dict[Hashable, Any] = {}
        self.driver = ctypes.CDLL("libcuda.so.1")
        self._event = ctypes.c_void_p()
        self.launch_graph = self.driver.cuGraphLaunch
        self.launch_graph.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._helpers: LoadedModule | None = None
        with self:
            self.driver.cuEventCreate(ctypes.byref(self._event), EVENT_WITHOUT_TIME)
            self.stream = cuda.Stream()
            self.handle = int(self.stream.handle)
            # Other libraries may work on the default stream while this one captures.
            self.capturing = CaptureStream(cuda.Stream(NON_BLOCKING), self._capture_lock)
            self.staging = Staging(self.stream)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.title}, {self.arch}>"

    # the context

    def check(self) -> None:
        """Raise DeviceError if the device cannot be used any more."""
        if self._process != getpid():
            raise DeviceError(
                f"{self.name} was used before this process was forked, and CUDA cannot be used in such a child: start it by "
                '"spawn" (multiprocessing.set_start_method), or use the device first in the child'
            )
        if self._broken:
            raise DeviceFault(self._broken)

    def __enter__(self) -> Device:
        local = self._local
        depth = local.depth
        if not depth:
            if self._broken or self._process != getpid():
                self.check()
            self._context.push()
            if self._retired:
                self._end_retired()
        local.depth = depth + 1
        return self

    def _end_retired(self) -> None:
        """Destroy the queued objects; the driver lets work in progress with them finish."""
        while self._retired:
            kind, handle = self._retired.popleft()
            if kind == "module":
                self._loaded.pop(handle, None)
            else:
                self.driver.cuGraphExecDestroy(ctypes.c_void_p(handle))

    def retire_graph(self, handle: int) -> None:
        """Queue a graph for destruction, from any thread."""
        self._retired.append(("graph", handle))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        local = self._local
        depth = local.depth = local.depth - 1
        try:
            if error is not None and isinstance(error, cuda.Error):
                raise self._translated(error) from error  # type: ignore[arg-type]
        finally:
            if not depth:
                self._context.pop()

    def _translated(self, error: Exception) -> DeviceError:
        """Return a driver error as a DeviceError. If the error persists, a kernel or the context failed: the device is not
        used again."""
        try:
            with self._capture_lock:
                cuda.Context.synchronize()
        except cuda.Error as lasting:
            self._broken = self._fault(lasting)
            return DeviceFault(self._broken)
        return DeviceError(f"{self.name}: {error}")

    def _fault(self, error: Exception) -> str:
        names = list(dict.fromkeys(f"{kernel} of {program}" for program, kernel in reversed(list(self.launched))))
        latest, *others = names or ["a kernel"]
        also = f" (or, before it, {', '.join(others)})" if others else ""
        return (
            f"{self.name}: {latest}{also} failed: {error}; nothing runs on this device any more in this process, its arrays "
            'are lost; device="cpu" is not affected'
        )

    def synchronize(self) -> None:
        """Wait until all work is done. Raises DeviceFault if a kernel failed."""
        with self:
            self.stream.synchronize()
            self.launched.clear()

    def wait(self) -> None:
        """Wait for all work on the device, that of other libraries included; the context must be current."""
        with self._capture_lock:
            cuda.Context.synchronize()

    # streams of other libraries

    def wait_for_stream(self, handle: int) -> None:
        """Make later work of this device's stream wait for the work enqueued so far on another stream, by its handle."""
        self._order(handle, self.stream.handle, handle)

    def make_stream_wait(self, handle: int) -> None:
        """Make later work of another stream, by its handle, wait for the work enqueued so far on this device's stream."""
        self._order(self.stream.handle, handle, handle)

    def _order(self, first: int, second: int, foreign: int) -> None:
        with self._event_lock:
            status = self.driver.cuEventRecord(self._event, ctypes.c_void_p(first))
            status = status or self.driver.cuStreamWaitEvent(ctypes.c_void_p(second), self._event, 0)
        if status:
            raise DeviceError(
                f"{self.name}: the stream {foreign:#x}, which an array says it is made on, cannot be waited for (CUDA error "
                f"{status}); it may have been destroyed, or be of another context: synchronize, and pass a copy"
            )

    # memory

    def take(self, size: int, description: str) -> Block:
        """Return a block of ``size`` bytes, contents undefined; the context must be current."""
        return self.pool.take(size, description)

    def free_bytes(self) -> int:
        """Return the unallocated bytes of the device."""
        with self:
            return int(cuda.mem_get_info()[0])

    def release_cached(self) -> None:
        """Drop what holds memory: graphs kept for later calls, and objects of other libraries whose work is done."""
        self.stream.synchronize()
        cuda_deferred_release.release_done(self)
        for tape in self.planned_programs:
            tape.let_go()

    def trim(self) -> None:
        """Return the pool's free memory to the driver, if the device can be used."""
        if not self._broken and self._process == getpid():
            with self:
                self.release_cached()
                self.pool.trim()

    # objects that other modules attach to a device

    def attached(self, create: Callable[[Device], Attached]) -> Attached:
        """Return the result of ``create(device)``, created at the first use and kept as long as the device."""
        if create not in self._attached:
            self._attached.setdefault(create, create(self))
        attached: Attached = self._attached[create]
        return attached

    # modules

    def helpers(self) -> LoadedModule:
        """Return the helper kernels of loops, compiled at the first call. Raises NoCompiler, CompileError."""
        if self._helpers is None:
            with self._event_lock:
                if self._helpers is None:
                    self._helpers = cuda_compile.load(
                        cuda_graph_loops.TEXT, self.arch, cuda_graph_loops.NAMES, lambda image: self.load(image, self)
                    )
        return self._helpers

    def load(self, image: bytes, owner: Any) -> LoadedModule:
        """Load a module of machine code; it is unloaded some time after ``owner`` has died."""
        with self._capture_lock:
            loaded = LoadedModule(cuda.module_from_buffer(image))
        self._loaded[id(loaded)] = loaded
        weakref.finalize(owner, self._retired.append, ("module", id(loaded))).atexit = False
        return loaded

    def close(self) -> None:
        """Destroy all PyCUDA objects before the context, at the end of the process. If the context is lost, they are leaked
        instead."""
        if self._broken or self._process != getpid():
            self.abandon()
            return
        try:
            with self:
                self.stream.synchronize()
                for loaded in self._loaded.values():
                    loaded.close()
                self._end_retired()
                self.staging.close()
                self.pool.close()
                self.stream = self.capturing.stream = None
        except DeviceError:
            self.abandon()
        self._broken = self._broken or f"{self.name}: the process is ending"

    def abandon(self) -> None:
        """Leak this object, whose driver objects can no longer be destroyed."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class CaptureStream:
    """A stream on which one thread at a time captures work, with the lock of operations that are forbidden during a capture."""

    def __init__(self, stream: Any, lock: threading.RLock) -> None:
        self.stream = stream
        self._lock = lock

    def __enter__(self) -> Any:
        self._lock.acquire()
        return self.stream

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class PlannedPrograms:
    """The live planned programs of a device, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, tape: Any) -> None:
        with self._lock:
            self._members.add(tape)

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            return iter(list(self._members))


class LoadedModule:
    """The functions of a loaded module, by name. It must not outlive its context; only the device and its owner hold it."""

    __slots__ = ("_functions", "_module", "_shared_limits")

    def __init__(self, module: Any) -> None:
        self._module = module
        self._functions: dict[str, Any] = {}
        self._shared_limits: dict[str, int] = {}

    def function(self, name: str, shared: int = 0) -> Any:
        """Return a function that will be launched with ``shared`` bytes of dynamic shared memory; above the default limit, the
        function's attribute is raised first."""
        loaded = self._functions.get(name)
        if loaded is None:
            loaded = self._functions[name] = self._module.get_function(name)
        if shared > self._shared_limits.get(name, DEFAULT_SHARED_BYTES):
            loaded.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            self._shared_limits[name] = shared
        return loaded

    def close(self) -> None:
        self._functions.clear()
        self._module = None


_devices: dict[int, Device] = {}
_lock = threading.Lock()
hold_over_fork(_lock)


def device(name: str) -> Device:
    """Return the device of that name, opened at its first use. Raises DeviceError if it does not exist or cannot be used."""
    index = ordinal(name)
    opened = _devices.get(index)
    if opened is None:
        with _lock:
            opened = _devices.get(index)
            if opened is None:
                opened = _opened(index)
    opened.check()
    return opened


def _opened(index: int) -> Device:
    available = count()
    if index >= available:
        what = "one CUDA device, cuda:0" if available == 1 else f"CUDA devices cuda:0 to cuda:{available - 1}"
        raise DeviceError(f"there is no cuda:{index}: this machine has {what}")
    try:
        opened = Device(index)
    except cuda.Error as error:
        raise DeviceError(f"cuda:{index} cannot be opened: {error}") from error
    atexit.register(opened.close)
    trims.append(opened.trim)
    _devices[index] = opened
    return opened


def _abandon_all() -> None:
    for opened in _devices.values():
        opened.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
