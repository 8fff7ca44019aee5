"""A CUDA device as this process uses it: its primary context, one stream, memory, and the modules that are loaded.

One ``Device`` object per device, with one context object of PyCUDA's, which is current only within ``with device:``, in any
thread. Whatever must be destroyed within the context, but dies in some thread, goes to a queue that the next ``with`` reads.
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

from pullback.codegen.cuda.source import graph_loops as cuda_turns
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device import deferred_release as cuda_lingering
from pullback.runtime.cuda.device.memory import APART, Block, Pool, Staging
from pullback.runtime.cuda.driver.driver import count, cuda, ordinal
from pullback.runtime.cuda.driver.errors import DeviceError, DeviceFault
from pullback.runtime.process.fork import hold_over_fork
from pullback.runtime.program.executable import trims

EVENT_WITHOUT_TIME = 2
TAKEN_UNASKED = 32 << 10
"""A launch with more bytes of shared memory than these, and what its function has besides, may be above what is given unasked."""
MOST_NAMED = 8
"""So many kernels are named where one has failed."""


Attached = TypeVar("Attached")


class _Depth(threading.local):
    """How often a thread is within the device."""

    depth = 0


class Device:
    """The device ``name``, as "cuda:0"; ``arch``, as "sm_90"; ``room``: bytes of shared memory that a block may have. Within
    ``with device:`` its context is current, and what the driver raises becomes a DeviceError."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"cuda:{number}"
        self._process = getpid()
        self._broken = ""
        self._local = _Depth()
        self._retired: deque[tuple[str, int]] = deque()
        self._loaded: dict[int, Loaded] = {}
        self.launched: deque[tuple[str, str]] = deque(maxlen=MOST_NAMED)
        handle = cuda.Device(number)
        self.title = handle.name()
        major, minor = handle.compute_capability()
        self.arch = f"sm_{major}{minor}"
        self.room = handle.get_attribute(cuda.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        self._context = handle.retain_primary_context()
        self.context_handle = int(self._context.handle)
        self.tapes = Tapes()
        self._undisturbed = threading.RLock()
        self.pool = Pool(self.let_go, self._undisturbed)
        self._ordering = threading.RLock()
        self._attached: dict[Hashable, Any] = {}
        self.driver = ctypes.CDLL("libcuda.so.1")
        self._event = ctypes.c_void_p()
        self.launch_graph = self.driver.cuGraphLaunch
        self.launch_graph.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._helpers: Loaded | None = None
        with self:
            self.driver.cuEventCreate(ctypes.byref(self._event), EVENT_WITHOUT_TIME)
            self.stream = cuda.Stream()
            self.handle = int(self.stream.handle)
            # Other libraries may work on the default stream while this one captures.
            self.capturing = Capturing(cuda.Stream(APART), self._undisturbed)
            self.staging = Staging(self.stream)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.title}, {self.arch}>"

    # the context

    def check(self) -> None:
        """Raises DeviceError where the device cannot be used any more."""
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
        """End what nobody holds any more; the driver lets work that is under way with it come to its end."""
        while self._retired:
            kind, number = self._retired.popleft()
            if kind == "module":
                self._loaded.pop(number, None)
            else:
                self.driver.cuGraphExecDestroy(ctypes.c_void_p(number))

    def retire_graph(self, handle: int) -> None:
        """A graph is not held any more, in whatever thread that is."""
        self._retired.append(("graph", handle))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        local = self._local
        depth = local.depth = local.depth - 1
        try:
            if error is not None and isinstance(error, cuda.Error):
                raise self._said(error) from error  # type: ignore[arg-type]
        finally:
            if not depth:
                self._context.pop()

    def _said(self, error: Exception) -> DeviceError:
        """An error of the driver's as ours. One that stays is of a kernel, or of the context: the device is not used again."""
        try:
            with self._undisturbed:
                cuda.Context.synchronize()
        except cuda.Error as lasting:
            self._broken = self._fault(lasting)
            return DeviceFault(self._broken)
        return DeviceError(f"{self.name}: {error}")

    def _fault(self, error: Exception) -> str:
        found = list(dict.fromkeys(f"{kernel} of {program}" for program, kernel in reversed(list(self.launched))))
        one, *others = found or ["a kernel"]
        also = f" (or, before it, {', '.join(others)})" if others else ""
        return (
            f"{self.name}: {one}{also} failed: {error}; nothing runs on this device any more in this process, its arrays "
            'are lost; device="cpu" is not affected'
        )

    def synchronize(self) -> None:
        """Wait until all work is done. Raises DeviceFault for a kernel that failed."""
        with self:
            self.stream.synchronize()
            self.launched.clear()

    def wait(self) -> None:
        """Wait for all that the device does, for other libraries too; the context is current."""
        with self._undisturbed:
            cuda.Context.synchronize()

    # streams of others

    def after(self, handle: int) -> None:
        """What this device's stream is given from now on waits for what a stream, by its handle, has been given so far."""
        self._order(handle, self.stream.handle, handle)

    def before(self, handle: int) -> None:
        """What that stream is given from now on waits for what this device's stream has been given so far."""
        self._order(self.stream.handle, handle, handle)

    def _order(self, first: int, second: int, foreign: int) -> None:
        with self._ordering:
            status = self.driver.cuEventRecord(self._event, ctypes.c_void_p(first))
            status = status or self.driver.cuStreamWaitEvent(ctypes.c_void_p(second), self._event, 0)
        if status:
            raise DeviceError(
                f"{self.name}: the stream {foreign:#x}, which an array says it is made on, cannot be waited for (CUDA error "
                f"{status}); it may have been destroyed, or be of another context: synchronize, and pass a copy"
            )

    # memory

    def take(self, size: int, what: str) -> Block:
        """Memory for so many bytes, contents undefined; the context is current."""
        return self.pool.take(size, what)

    def free_bytes(self) -> int:
        """Bytes that nobody has."""
        with self:
            return int(cuda.mem_get_info()[0])

    def let_go(self) -> None:
        """Drop what holds memory: graphs for calls to come, and what other libraries lent for calls that are done."""
        self.stream.synchronize()
        cuda_lingering.let_go(self)
        for tape in self.tapes:
            tape.let_go()

    def trim(self) -> None:
        """Give memory that waits for calls back to the driver, if the device can be used."""
        if not self._broken and self._process == getpid():
            with self:
                self.let_go()
                self.pool.trim()

    # what other files keep for a device

    def attached(self, create: Callable[[Device], Attached]) -> Attached:
        """Returns what ``create`` returns for this device, created at the first use and kept as long as the device."""
        if create not in self._attached:
            self._attached.setdefault(create, create(self))
        attached: Attached = self._attached[create]
        return attached

    # modules

    def helpers(self) -> Loaded:
        """The kernels that turn loops, compiled at the first call. Raises NoCompiler, CompileError."""
        if self._helpers is None:
            with self._ordering:
                if self._helpers is None:
                    self._helpers = cuda_compile.load(
                        cuda_turns.TEXT, self.arch, cuda_turns.NAMES, lambda image: self.load(image, self)
                    )
        return self._helpers

    def load(self, image: bytes, owner: Any) -> Loaded:
        """A module of machine code, unloaded some time after ``owner`` has died."""
        with self._undisturbed:
            loaded = Loaded(cuda.module_from_buffer(image))
        self._loaded[id(loaded)] = loaded
        weakref.finalize(owner, self._retired.append, ("module", id(loaded))).atexit = False
        return loaded

    def close(self) -> None:
        """At the end of the process: nothing of PyCUDA's outlives its context. Where the context is lost, nothing of it ends."""
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
        """Never let go of what the driver would be asked to end, and could not."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


class Capturing:
    """A stream on which one thread at a time captures work, with the lock of what may not happen meanwhile, in any thread."""

    def __init__(self, stream: Any, lock: threading.RLock) -> None:
        self.stream = stream
        self._lock = lock

    def __enter__(self) -> Any:
        self._lock.acquire()
        return self.stream

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Tapes:
    """The tapes of a device that are alive, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._found: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, tape: Any) -> None:
        with self._lock:
            self._found.add(tape)

    def __iter__(self) -> Iterator[Any]:
        with self._lock:
            return iter(list(self._found))


class Loaded:
    """The functions of a module of machine code, by number. Nobody else may hold one: it must end in its context."""

    __slots__ = ("_functions", "_module", "_rooms")

    def __init__(self, module: Any) -> None:
        self._module = module
        self._functions: dict[str, Any] = {}
        self._rooms: dict[str, int] = {}

    def function(self, name: str, shared: int = 0) -> Any:
        """A function, to be launched with so many bytes of shared memory: for many, it has to be told before."""
        found = self._functions.get(name)
        if found is None:
            found = self._functions[name] = self._module.get_function(name)
        if shared > self._rooms.get(name, TAKEN_UNASKED):
            found.set_attribute(cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            self._rooms[name] = shared
        return found

    def close(self) -> None:
        self._functions.clear()
        self._module = None


_devices: dict[int, Device] = {}
_lock = threading.Lock()
hold_over_fork(_lock)


def device(name: str) -> Device:
    """The device of that name, opened at its first use. Raises DeviceError where it is not there or not to be used."""
    number = ordinal(name)
    found = _devices.get(number)
    if found is None:
        with _lock:
            found = _devices.get(number)
            if found is None:
                found = _opened(number)
    found.check()
    return found


def _opened(number: int) -> Device:
    available = count()
    if number >= available:
        what = "one CUDA device, cuda:0" if available == 1 else f"CUDA devices cuda:0 to cuda:{available - 1}"
        raise DeviceError(f"there is no cuda:{number}: this machine has {what}")
    try:
        found = Device(number)
    except cuda.Error as error:
        raise DeviceError(f"cuda:{number} cannot be opened: {error}") from error
    atexit.register(found.close)
    trims.append(found.trim)
    _devices[number] = found
    return found


def _abandon_all() -> None:
    for found in _devices.values():
        found.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
