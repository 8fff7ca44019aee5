"""What can go wrong with a CUDA device, and how it is said."""

from __future__ import annotations

from pullback.runtime.engine import CompileError


class DeviceError(RuntimeError):
    """A device that is not there, or that does not do what it is asked."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no memory for a buffer, which the message names. Memory that waited for calls has been given back."""


class NoArchitecture(CompileError):
    """A compiler makes no code for the architecture of a device."""


class DeviceFault(DeviceError):
    """A kernel failed on a device: nothing runs there any more in this process. The CPU is not affected."""
