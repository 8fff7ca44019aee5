"""Errors and warnings of CUDA devices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from pullback.runtime.compile.validation import CompileError


class DeviceError(RuntimeError):
    """Report that a device does not exist, or that an operation on it failed.

    See Also
    --------
    DeviceFault : A kernel failed.
    DeviceMemoryError : The memory of the device does not suffice.

    Examples
    --------
    >>> try:
    ...     pb.device_put(np.ones(3), "cuda:99")
    ... except pb.DeviceError:
    ...     print("no such device")
    no such device
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """Report that a device has no memory for a buffer, which the message names.

    Free memory that was kept for later calls has been returned to the driver.

    See Also
    --------
    DeviceError : The base class.
    trim : Frees memory that is kept for later calls.

    Examples
    --------
    >>> issubclass(pb.DeviceMemoryError, pb.DeviceError)
    True
    """


class NoArchitecture(CompileError):
    """Raised if a compiler does not support the architecture of a device."""


class DeviceFault(DeviceError):
    """Report that a kernel failed on a device: nothing runs there any more in this process. The CPU is not affected.

    See Also
    --------
    DeviceError : The base class.

    Examples
    --------
    >>> issubclass(pb.DeviceFault, pb.DeviceError)
    True
    """


class DeviceWarning(UserWarning):
    """Warn that part of a program for a device is run by the CPU, on copies.

    See Also
    --------
    jit : Takes the device.

    Examples
    --------
    Make it an error, so that no copy goes unnoticed:

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", pb.DeviceWarning)
    """


def warn_of(title: str, device: str, fallbacks: Sequence[Any]) -> None:
    """Warn which parts of the program ``title`` the CPU runs, at the line of the first: each fallback has a ``what`` and a
    ``loc``."""
    if fallbacks:
        loc = next((f.loc for f in fallbacks if f.loc), fallbacks[0].loc)
        what = ", ".join(dict.fromkeys(f.what for f in fallbacks))
        message = f"{title} on {device}: {what}; the CPU does it, on copies, at each call"
        warnings.warn_explicit(message, DeviceWarning, loc.file or "pullback", loc.line)
