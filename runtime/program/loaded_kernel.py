"""A kernel of a program as a process has it: its machine code and its argument slots."""

from __future__ import annotations

from typing import Any

from pullback.ir.core.structure import Function
from pullback.runtime.compile.engine import Kernel


class LoadedKernel:
    """A kernel of a program: its machine code and the key of that, where it starts, and what its argument slots are. ``text``:
    what it was made of; empty where the kernels of the program are long. ``source``: the kernel before it was scheduled, or its
    text, where texts in its slots may be unwritten."""

    __slots__ = ("address", "code", "key", "slots", "source", "symbol", "text")

    def __init__(
        self, code: Kernel, symbol: str, key: str, slots: tuple[tuple[Any, ...], ...], text: str,
        source: Function | str | None = None,
    ) -> None:
        self.text = text
        self.source = source
        self.code = code
        self.symbol = symbol
        self.key = key
        self.address = code.addresses[symbol]
        self.slots = slots
