"""The inputs to a program's cache key besides its text, its sources, LLVM and NumPy: the machine that it is scheduled for, and
the libraries that constants are folded with.

A kernel's code is decided by its own text, which already reflects these; therefore they enter the keys of programs only.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pullback.ir.core.lazy_imports import later
from pullback.runtime.compile.machine import Host

if TYPE_CHECKING:
    import importlib.metadata as metadata
else:
    metadata = later("importlib.metadata")  # it imports the package email, 20 ms, and is seldom used

_VERSION_FILES = {"scipy": "version.py", "ml_dtypes": "__init__.py"}
"""Libraries whose functions fold constants too, and the file of each that contains its version: reading the file avoids
importing SciPy in a process whose programs are all cached."""
_NUMPY_VARIABLES = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")
"""Environment variables that select NumPy's own loops, which may differ in last bits."""


def deciders(host: Host) -> Iterator[str]:
    """Yield all inputs, as text."""
    yield f"vectors of {host.vector_bytes} bytes, fused multiply-add {host.has_fma}, {host.core}, second cache {host.cache}"
    for library, file in _VERSION_FILES.items():
        yield f"{library} {_version(library, file)}"
    yield _c_library_version()
    for name in _NUMPY_VARIABLES:
        yield f"{name}={os.environ.get(name, '')}"


def _version(library: str, file: str) -> str:
    spec = importlib.util.find_spec(library)
    folder = "" if spec is None or spec.origin is None else os.path.dirname(spec.origin)
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as opened:
            return opened.read()
    except OSError:
        return metadata.version(library)


def _c_library_version() -> str:
    """Return the version of the C library whose functions NumPy calls for scalars; "" if unknown."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""
