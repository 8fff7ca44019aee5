"""A loaded kernel of a program: its machine code and its argument slots."""

from __future__ import annotations

from typing import Any

from pullback.ir.core.structure import Function
from pullback.runtime.compile.engine import Kernel


class LoadedKernel:
    """A kernel of a program: its machine code and cache key, its address, and its argument slots. ``text``: the LLVM text;
    empty if the program's kernels are long. ``source``: the kernel before scheduling, or its IR text, if texts of its slots
    may be unwritten."""

    __slots__ = ("address", "code", "key", "slots", "source", "symbol", "text")

    def __init__(
        self,
        code: Kernel,
        symbol: str,
        key: str,
        slots: tuple[tuple[Any, ...], ...],
        text: str,
        source: Function | str | None = None,
    ) -> None:
        self.text = text
        self.source = source
        self.code = code
        self.symbol = symbol
        self.key = key
        self.address = code.addresses[symbol]
        self.slots = slots
