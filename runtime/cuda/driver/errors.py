"""Errors and warnings of CUDA devices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from pullback.runtime.compile.validation import CompileError


class DeviceError(RuntimeError):
    """Raised if a device does not exist, or if an operation on it fails."""


class DeviceMemoryError(DeviceError, MemoryError):
    """Raised if a device has no memory for a buffer, which the message names. Free memory that was kept for later calls has
    been returned to the driver."""


class NoArchitecture(CompileError):
    """Raised if a compiler does not support the architecture of a device."""


class DeviceFault(DeviceError):
    """Raised after a kernel failed on a device: nothing runs there any more in this process. The CPU is not affected."""


class DeviceWarning(UserWarning):
    """Issued if part of a program for a device is run by the CPU, on copies."""


def warn_of(title: str, device: str, fallbacks: Sequence[Any]) -> None:
    """Warn which parts of the program ``title`` the CPU runs, at the line of the first: each fallback has a ``what`` and a
    ``loc``."""
    if fallbacks:
        loc = next((f.loc for f in fallbacks if f.loc), fallbacks[0].loc)
        what = ", ".join(dict.fromkeys(f.what for f in fallbacks))
        message = f"{title} on {device}: {what}; the CPU does it, on copies, at each call"
        warnings.warn_explicit(message, DeviceWarning, loc.file or "pullback", loc.line)
