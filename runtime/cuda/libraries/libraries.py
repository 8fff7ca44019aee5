"""NVIDIA's libraries of linear algebra, through ``ctypes``: which are here, and a handle of each on a device.

The first file that has the version which is wanted is taken; the places are those of ``toolkit``. Nothing is loaded before it is
asked for, and loading needs no device.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pullback.runtime.choices.choices import pinned
from pullback.runtime.cuda.compile import toolkit
from pullback.runtime.cuda.driver.errors import DeviceError

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

WORKSPACE = 32 << 20
ANCHOR = 512


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A library: its ``title``, the first numbers of versions whose functions are those that are called, what happens without it;
    the functions that make a handle and give it a stream; and what its statuses mean."""

    name: str
    title: str
    majors: tuple[int, ...]
    without: str
    create: str
    set_stream: str
    statuses: dict[int, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """A library that was loaded."""

    path: str
    version: str
    library: Any


WANTED = {
    "cublas": Wanted(
        name="cublas", title="cuBLAS", majors=(12, 13), without="matrix products run on kernels of our own",
        create="cublasCreate_v2", set_stream="cublasSetStream_v2",
        statuses={
            1: "not initialized", 3: "no memory", 7: "an invalid value", 8: "an architecture that it does not know",
            11: "a failed mapping", 13: "a failed execution", 14: "an internal error", 15: "not supported",
        },
    ),
    "cusolver": Wanted(
        name="cusolver", title="cuSOLVER", majors=(11, 12), without="large matrices are factored by the CPU, on copies",
        create="cusolverDnCreate", set_stream="cusolverDnSetStream",
        statuses={
            1: "not initialized", 2: "no memory", 3: "an invalid value", 4: "an architecture that it does not know",
            5: "a failed mapping", 6: "a failed execution", 7: "an internal error", 8: "a matrix type that it does not know",
            9: "not supported",
        },
    ),
}  # fmt: skip
"""The statuses are those of ``cublasStatus_t`` and ``cusolverStatus_t`` (docs.nvidia.com/cuda/cublas and /cuda/cusolver)."""


@lru_cache
def find(name: str) -> Found | str:
    """A library, or why there is none and what to do."""
    wanted, others = WANTED[name], []
    for path in toolkit.libraries(name):
        try:
            library = ctypes.CDLL(path)
            version = _version(library, name)
        except (OSError, AttributeError):
            continue
        if version[0] in wanted.majors:
            return Found(path=path, version=".".join(map(str, version)), library=library)
        others.append(f"{path} is version {'.'.join(map(str, version))}")
    said = f"{'; '.join(others)}, and {' or '.join(map(str, wanted.majors))} is needed" if others else "none"
    return f"{said}: {wanted.without} (pip install nvidia-{name}, or NVIDIA's CUDA toolkit)"


def _version(library: Any, name: str) -> list[int]:
    """Raises AttributeError for what is no such library, OSError where it does not say."""
    numbers = []
    for which in range(3):
        value = ctypes.c_int()
        if library[f"{name}GetProperty"](which, ctypes.byref(value)):
            raise OSError(f"{name} does not say its version")
        numbers.append(value.value)
    return numbers


finders: list[Callable[[str], Found | str]] = [find]
"""What looks for a library: the first is asked. Tests put another one there."""


def multiplies() -> bool:
    """Whether matrix products may be a library's: what ``PULLBACK_CHOICES`` says of ``gemm``, else whether cuBLAS is found."""
    pin = pinned("gemm")
    return pin == "library" if pin in ("ours", "library") else isinstance(finders[0]("cublas"), Found)


class Handle:
    """A library on one device, for any thread. Raises DeviceError where it does not start."""

    def __init__(self, device: Device, wanted: Wanted, found: Found) -> None:
        self.wanted = wanted
        self.version = found.version
        self.lock = threading.RLock()
        self._library = found.library
        self._handle = ctypes.c_void_p()
        self._stream = 0
        with device:
            self._check(self._function(wanted.create)(ctypes.byref(self._handle)), "start")
            self._anchor = device.take(ANCHOR, f"an address for {wanted.title}")
            self._workspace = device.take(WORKSPACE, "the workspace of cuBLAS") if wanted.name == "cublas" else None
        self.known: dict[str, Any] = {}

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, name)
        except AttributeError:
            raise DeviceError(f"{self.wanted.title} {self.version} has no {name}") from None

    def has(self, name: str) -> bool:
        """Whether there is a function of that name."""
        try:
            self._function(name)
        except DeviceError:
            return False
        return True

    @property
    def anchor(self) -> int:
        """An address on the device for what only asks for sizes."""
        return self._anchor.address

    def on(self, stream: Any) -> None:
        """What is called from now on goes to a stream; the caller holds the lock."""
        if stream.handle == self._stream:
            return
        self._check(self._function(self.wanted.set_stream)(self._handle, ctypes.c_void_p(stream.handle)), "take a stream")
        if self._workspace is not None:
            place, size = ctypes.c_void_p(self._workspace.address), ctypes.c_size_t(WORKSPACE)
            self._check(self._function("cublasSetWorkspace_v2")(self._handle, place, size), "take memory")
        self._stream = stream.handle

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library with its handle. Raises DeviceError."""
        self._check(self._function(name)(self._handle, *arguments), f"do {name}")

    def made(self, name: str) -> Any:
        """What the function ``name`` makes besides handles, once."""
        with self.lock:
            if name not in self.known:
                found = ctypes.c_void_p()
                self._check(self._function(name)(ctypes.byref(found)), f"do {name}")
                self.known[name] = found
            return self.known[name]

    def _check(self, status: int, what: str) -> None:
        if status:
            said = self.wanted.statuses.get(status, "unknown")
            raise DeviceError(f"{self.wanted.title} could not {what} (its error {status}: {said})")


class Libraries:
    """The handles of one device, made at their first use."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lock = threading.RLock()
        self._handles: dict[str, Handle | None] = {}

    def handle(self, name: str) -> Handle | None:
        """A library; None where it is not to be had."""
        with self._lock:
            if name not in self._handles:
                self._handles[name] = self._opened(name)
            return self._handles[name]

    def _opened(self, name: str) -> Handle | None:
        found = finders[0](name)
        if isinstance(found, str):
            return None
        try:
            return Handle(self._device, WANTED[name], found)
        except DeviceError:
            return None

    def forget(self) -> None:
        """Look for all of them again."""
        with self._lock:
            self._handles.clear()


def libraries_of(device: Device) -> Libraries:
    """Returns the handles of a device."""
    return device.attached(Libraries)
