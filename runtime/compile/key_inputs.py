"""What decides the code of a program besides its text, its sources, LLVM and NumPy: the machine that it is scheduled for, and
what else constants are computed with while it is compiled.

The code of a kernel is decided by the kernel's own text, which says what came of these; so they are in the keys of programs
alone.
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
    metadata = later("importlib.metadata")  # it imports the package email, 20 ms; seldom is it used

_VERSIONS = {"scipy": "version.py", "ml_dtypes": "__init__.py"}
"""Libraries whose functions fold constants too, and the file of each that says which version it is: a process whose programs are
in the folder imports no more of SciPy than it needs."""
_OF_NUMPY = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")
"""Which of its own loops NumPy takes: they may differ in last bits."""


def deciders(host: Host) -> Iterator[str]:
    """All of these, as words."""
    yield f"vectors of {host.vector_bytes} bytes, fused multiply-add {host.has_fma}, {host.core}, second cache {host.cache}"
    for library, file in _VERSIONS.items():
        yield f"{library} {_version(library, file)}"
    yield _c_library()
    for name in _OF_NUMPY:
        yield f"{name}={os.environ.get(name, '')}"


def _version(library: str, file: str) -> str:
    spec = importlib.util.find_spec(library)
    folder = "" if spec is None or spec.origin is None else os.path.dirname(spec.origin)
    try:
        with open(os.path.join(folder, file), encoding="utf-8") as opened:
            return opened.read()
    except OSError:
        return metadata.version(library)


def _c_library() -> str:
    """The library whose functions NumPy calls for numbers by themselves."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""
