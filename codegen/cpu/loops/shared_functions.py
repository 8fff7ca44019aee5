"""The functions that a kernel shares with others for its products, by name: each is told of when it is defined, and what sizes
reach it, so that a thread may compile it while the kernel is still spelled out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pullback.codegen.cpu.loops.reachability import Reach, Steps
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value

Told = Callable[[Instruction, Steps], None]


class Functions(dict[str, Instruction]):
    """``told``: called with each definition, those that it calls before it, and with the steps that tell what sizes reach it;
    again if it is defined again, where others do."""

    def __init__(self, told: Told | None = None) -> None:
        super().__init__()
        self.told = told
        self.steps: Steps = ()
        self.path: tuple[Value, ...] = ()

    def __setitem__(self, name: str, made: Instruction) -> None:
        super().__setitem__(name, made)
        if self.told is not None:
            self.told(made, self.steps)

    def __ior__(self, others: Mapping[str, Instruction]) -> Functions:  # type: ignore[override,misc]
        for name, made in others.items():
            self[name] = made
        return self

    @contextmanager
    def under(self, b: Builder, *path: Value) -> Iterator[None]:
        """What is defined inside is called where all of these conditions and counts are other than 0."""
        around = self.path, self.steps
        if self.told is not None:
            self.path += path
            self.steps = Reach(Block((), tuple(b.instructions), ())).steps([self.path])
        try:
            yield
        finally:
            self.path, self.steps = around

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("functions are defined one at a time")
