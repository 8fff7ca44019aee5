"""The functions that a kernel shares with others for its products, by name: each is told of when it is defined, so that a thread
may compile it while the kernel is still spelled out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pullback.ir.structure import Instruction

Told = Callable[[Instruction], None]


class Functions(dict[str, Instruction]):
    """``told``: called with each definition, those that it calls before it."""

    def __init__(self, told: Told | None = None) -> None:
        super().__init__()
        self.told = told

    def __setitem__(self, name: str, made: Instruction) -> None:
        is_new = name not in self
        super().__setitem__(name, made)
        if is_new and self.told is not None:
            self.told(made)

    def __ior__(self, others: Mapping[str, Instruction]) -> Functions:  # type: ignore[override,misc]
        for name, made in others.items():
            self[name] = made
        return self

    @contextmanager
    def untold(self) -> Iterator[None]:
        """Nobody is told of what is defined inside: of functions that few sizes reach."""
        told, self.told = self.told, None
        yield
        self.told = told

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("functions are defined one at a time")
