"""Emitted CUDA C, run on the host: by the real PyCUDA over the stand-in driver of ``cuda_host``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from pullback.codegen.cuda.emit import Emitted
from pullback.ir import Function
from tests import cuda_host
from tests.support.cuda.gpu import Device, driver
from tests.support.cuda.host_programs import run_program, text_of


class Host(Device):
    """The kernels as a module of the stand-in; each program meets an order of threads, blocks and streams of its own."""

    guard = 0  # the stand-in has its own

    def __init__(self, kernels: Sequence[Emitted]) -> None:
        cuda_host.activate()
        cuda_host.forgive()
        super().__init__(kernels)

    def load(self, kernels: Sequence[Emitted]) -> Any:
        text = self.edited(text_of(kernels, cuda_host.Compiler.record))
        cuda_host.order(crc32(text.encode()) % 50)
        return driver().module_from_buffer(cuda_host.image(text))

    def edited(self, text: str) -> str:
        """The text that is compiled, for tests that plant mistakes."""
        return text


def run_on_host(function: Function, arguments: Sequence[Any], layouts: Sequence[str] = ()) -> tuple[Any, ...]:
    """The results of a func through CUDA C on the host."""
    return run_program(Host, function, arguments, layouts)
