"""NVIDIA's libraries of linear algebra, through ``ctypes``: which are installed, and a handle of each on a device.

The first file with a supported version is loaded, from the folders of ``toolkit``. Nothing is loaded before it is requested,
and loading needs no device.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pullback.ir.core.records import dataclass
from pullback.runtime.choices.choices import pinned
from pullback.runtime.cuda.compile import toolkit
from pullback.runtime.cuda.driver.errors import DeviceError

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

WORKSPACE = 32 << 20
"""The bytes of the workspace passed to cuBLAS."""
ANCHOR = 512
"""The bytes of the device buffer whose address is passed to size queries."""


@dataclass(frozen=True, kw_only=True)
class LibrarySpec:
    """A library: its ``title``, the supported major versions, what happens without it, the functions that create a handle and
    set its stream, and the meanings of its statuses."""

    name: str
    title: str
    majors: tuple[int, ...]
    without: str
    create: str
    set_stream: str
    statuses: dict[int, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedLibrary:
    """A loaded library."""

    path: str
    version: str
    library: Any


WANTED = {
    "cublas": LibrarySpec(
        name="cublas", title="cuBLAS", majors=(12, 13), without="matrix products run on kernels of our own",
        create="cublasCreate_v2", set_stream="cublasSetStream_v2",
        statuses={
            1: "not initialized", 3: "no memory", 7: "an invalid value", 8: "an architecture that it does not know",
            11: "a failed mapping", 13: "a failed execution", 14: "an internal error", 15: "not supported",
        },
    ),
    "cusolver": LibrarySpec(
        name="cusolver", title="cuSOLVER", majors=(11, 12), without="large matrices are factored by the CPU, on copies",
        create="cusolverDnCreate", set_stream="cusolverDnSetStream",
        statuses={
            1: "not initialized", 2: "no memory", 3: "an invalid value", 4: "an architecture that it does not know",
            5: "a failed mapping", 6: "a failed execution", 7: "an internal error", 8: "a matrix type that it does not know",
            9: "not supported",
        },
    ),
}  # fmt: skip
"""The libraries by name. The statuses are those of ``cublasStatus_t`` and ``cusolverStatus_t`` (docs.nvidia.com/cuda/cublas
and /cuda/cusolver)."""


@lru_cache
def find(name: str) -> LoadedLibrary | str:
    """Return a loaded library, or why there is none and what to do."""
    wanted, others = WANTED[name], []
    for path in toolkit.libraries(name):
        try:
            library = ctypes.CDLL(path)
            version = _version(library, name)
        except (OSError, AttributeError):
            continue
        if version[0] in wanted.majors:
            return LoadedLibrary(path=path, version=".".join(map(str, version)), library=library)
        others.append(f"{path} is version {'.'.join(map(str, version))}")
    problem = f"{'; '.join(others)}, and {' or '.join(map(str, wanted.majors))} is needed" if others else "none"
    return f"{problem}: {wanted.without} (pip install nvidia-{name}, or NVIDIA's CUDA toolkit)"


def _version(library: Any, name: str) -> list[int]:
    """Return the three version numbers. Raises AttributeError if the file is no such library, OSError if the query fails."""
    numbers = []
    for which in range(3):
        value = ctypes.c_int()
        if library[f"{name}GetProperty"](which, ctypes.byref(value)):
            raise OSError(f"{name} does not say its version")
        numbers.append(value.value)
    return numbers


finders: list[Callable[[str], LoadedLibrary | str]] = [find]
"""The functions that find a library; the first is used. Tests insert another one."""


def may_use_cublas() -> bool:
    """Return whether matrix products may use cuBLAS: as ``PULLBACK_CHOICES`` pins ``gemm``, else whether it is installed."""
    pin = pinned("gemm")
    return pin == "library" if pin in ("ours", "library") else isinstance(finders[0]("cublas"), LoadedLibrary)


class Handle:
    """A library's handle on one device, for any thread. The constructor raises DeviceError if it cannot be created."""

    def __init__(self, device: Device, wanted: LibrarySpec, loaded: LoadedLibrary) -> None:
        self.wanted = wanted
        self.version = loaded.version
        self.lock = threading.RLock()
        self._library = loaded.library
        self._handle = ctypes.c_void_p()
        self._stream = 0
        with device:
            self._check(self._function(wanted.create)(ctypes.byref(self._handle)), "start")
            self._anchor = device.take(ANCHOR, f"an address for {wanted.title}")
            self._workspace = device.take(WORKSPACE, "the workspace of cuBLAS") if wanted.name == "cublas" else None
        self.created: dict[str, Any] = {}

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError:
            raise DeviceError(f"{self.wanted.title} {self.version} has no {name}") from None

    def has(self, name: str) -> bool:
        """Return whether there is a function of that name."""
        try:
            self._function(name)
        except DeviceError:
            return False
        return True

    @property
    def anchor(self) -> int:
        """A valid device address for calls that only query sizes."""
        return self._anchor.address

    def use_stream(self, stream: Any) -> None:
        """Direct later calls to a stream; the caller holds the lock."""
        if stream.handle == self._stream:
            return
        self._check(self._function(self.wanted.set_stream)(self._handle, ctypes.c_void_p(stream.handle)), "take a stream")
        if self._workspace is not None:
            workspace, size = ctypes.c_void_p(self._workspace.address), ctypes.c_size_t(WORKSPACE)
            self._check(self._function("cublasSetWorkspace_v2")(self._handle, workspace, size), "take memory")
        self._stream = stream.handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library with its handle. Raises DeviceError."""
        self._check(self._function(name)(self._handle, *arguments), f"do {name}")

    def created_by(self, name: str) -> Any:
        """Return the object that the function ``name`` creates, created once."""
        with self.lock:
            if name not in self.created:
                created = ctypes.c_void_p()
                self._check(self._function(name)(ctypes.byref(created)), f"do {name}")
                self.created[name] = created
            return self.created[name]

    def _check(self, status: int, action: str) -> None:
        if status:
            meaning = self.wanted.statuses.get(status, "unknown")
            raise DeviceError(f"{self.wanted.title} could not {action} (its error {status}: {meaning})")


class Libraries:
    """The handles of one device, created at their first use."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._handles: dict[str, Handle | None] = {}

    def handle(self, name: str) -> Handle | None:
        """Return the handle of a library; None if it is not available."""
        with self._lock:
            if name not in self._handles:
                self._handles[name] = self._opened(name)
            return self._handles[name]

    def _opened(self, name: str) -> Handle | None:
        loaded = finders[0](name)
        if isinstance(loaded, str):
            return None
        try:
            return Handle(self._device, WANTED[name], loaded)
        except DeviceError:
            return None

    def forget(self) -> None:
        """Drop all handles, so that the libraries are searched again."""
        with self._lock:
            self._handles.clear()


def libraries_of(device: Device) -> Libraries:
    """Return the handles of a device."""
    return device.attached(Libraries)
