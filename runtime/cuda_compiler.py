"""What makes machine code of CUDA C: chosen once for the process, so that tests can put a compiler of the host in its place."""

from __future__ import annotations

from typing import Protocol

from pullback.runtime.cuda_errors import DeviceError


class Compiler(Protocol):
    """A compiler of CUDA C."""

    def image(self, source: str, arch: str) -> bytes:
        """What a module is loaded from. ``arch`` as "sm_90". Raises an error with the compiler's words."""


class _Missing:
    def image(self, source: str, arch: str) -> bytes:
        raise DeviceError('device="cuda": there is no compiler of CUDA C')


_chosen: list[Compiler] = [_Missing()]


def compiler() -> Compiler:
    """The compiler in use."""
    return _chosen[0]


def use(other: Compiler) -> Compiler:
    """Have programs compiled by another compiler from now on; returns the one before."""
    before, _chosen[0] = _chosen[0], other
    return before
