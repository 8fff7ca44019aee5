"""What makes machine code of CUDA C: that of the machine, or another one, as tests have a compiler of the host."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol


class Compiler(Protocol):
    """A compiler of CUDA C."""

    def cubin(self, text: str, arch: str, kernels: Sequence[str]) -> bytes:
        """What a module with these functions is loaded from, for an architecture such as "sm_90". Raises CompileError."""


_chosen: list[Compiler] = []


def cubin(text: str, arch: str, kernels: Sequence[str]) -> bytes:
    """What a module is loaded from, by the compiler in use."""
    maker: Any = _chosen[0] if _chosen else importlib.import_module("pullback.runtime.cuda_compile")
    found: bytes = maker.cubin(text, arch, kernels)
    return found


def use(other: Compiler | None) -> None:
    """Have programs compiled by another compiler from now on, None for that of the machine."""
    _chosen[:] = [] if other is None else [other]
