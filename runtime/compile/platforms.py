"""The supported platforms, and the compilation target of each."""

from __future__ import annotations

import platform
import struct
import sys
import sysconfig
from collections.abc import Mapping

from pullback.runtime.compile.machine import Host

HOSTS: Mapping[str, Host] = {
    "Linux x86-64": Host(triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features="", vector_bytes=32, has_fma=True),
    "Linux aarch64": Host(triple="aarch64-unknown-linux-gnu", cpu="generic", features="", vector_bytes=16, has_fma=True),
    "Linux aarch64 with SVE": Host(
        triple="aarch64-unknown-linux-gnu", cpu="neoverse-v1", features="", vector_bytes=16, has_fma=True
    ),
    "macOS arm64": Host(triple="arm64-apple-macosx11.0.0", cpu="apple-m1", features="", vector_bytes=16, has_fma=True),
    "Windows x86-64": Host(triple="x86_64-pc-windows-msvc", cpu="x86-64-v3", features="", vector_bytes=32, has_fma=True),
    "Windows x86-64 of 2009": Host(triple="x86_64-pc-windows-msvc", cpu="x86-64-v2", features="", vector_bytes=16, has_fma=False),
}
"""A machine of each platform, for which code can be compiled on any other."""

PYTHONS = ((3, 11), (3, 12), (3, 13))
_MACHINES = {"amd64": "x86-64", "x86_64": "x86-64", "arm64": "arm64", "aarch64": "aarch64"}
_SUPPORT = {
    ("Linux", "x86-64"): "tested",
    ("Linux", "aarch64"): "expected to work",
    ("Darwin", "arm64"): "expected to work",
    ("Windows", "x86-64"): "expected to work",
}


def is_free_threaded() -> bool:
    """Return whether this Python was built without the global interpreter lock, also if it runs with the lock."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def check_interpreter() -> None:
    """Raise ImportError in a free-threaded build of Python: its objects have another layout, and the caches of a process rely on
    the lock."""
    if is_free_threaded():
        major, minor = sys.version_info[:2]
        raise ImportError(
            f"pullback does not support free-threaded builds of Python, which this one is: {sys.executable}. "
            f"Install it for a build with the global interpreter lock, such as python{major}.{minor}."
        )


def support(system: str = "", machine: str = "", *, bits: int = 8 * struct.calcsize("P"), has_gil: bool | None = None) -> str:
    """Return the level of support of a platform, by default this one: "tested", "expected to work", or "not supported: why"."""
    system, machine = system or platform.system(), machine or platform.machine()
    has_gil = not is_free_threaded() if has_gil is None else has_gil
    if bits != 64:
        return f"not supported: Python of {bits} bits"
    if not has_gil:
        return "not supported: Python without its lock (free-threaded)"
    canonical = _MACHINES.get(machine.lower(), machine)
    if (system, canonical) == ("Darwin", "x86-64"):
        return "not supported: Intel Macs"
    return _SUPPORT.get((system, canonical), f"not supported: {system} {machine} was never tried")


def python_support(version: tuple[int, int] = sys.version_info[:2], implementation: str = sys.implementation.name) -> str:
    """Return the level of support of a Python version."""
    if implementation != "cpython":
        return f"not supported: {implementation}; CPython is"
    if version in PYTHONS:
        return "tested"
    return "not supported: too old" if version < PYTHONS[0] else "never tried"
