"""What can go wrong with a CUDA device, and how it is said."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from pullback.runtime.compile.validation import CompileError


class DeviceError(RuntimeError):
    """A device that is not there, or that does not do what it is asked."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no memory for a buffer, which the message names. Memory that waited for calls has been given back."""


class NoArchitecture(CompileError):
    """A compiler makes no code for the architecture of a device."""


class DeviceFault(DeviceError):
    """A kernel failed on a device: nothing runs there any more in this process. The CPU is not affected."""


class DeviceWarning(UserWarning):
    """Something of a program for a device is done by the CPU, on copies."""


def warn_of(title: str, device: str, fallbacks: Sequence[Any]) -> None:
    """Warn, at the first line, of what the CPU does of the program ``title``: of each ``what`` it is and its ``loc``."""
    if fallbacks:
        loc = next((f.loc for f in fallbacks if f.loc), fallbacks[0].loc)
        what = ", ".join(dict.fromkeys(f.what for f in fallbacks))
        message = f"{title} on {device}: {what}; the CPU does it, on copies, at each call"
        warnings.warn_explicit(message, DeviceWarning, loc.file or "pullback", loc.line)
