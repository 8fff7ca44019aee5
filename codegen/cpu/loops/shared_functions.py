"""Functions that a kernel shares with other kernels. Each definition is reported at once, with the sizes that reach it, so
that it can be compiled in the background while the rest of the kernel is still being lowered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pullback.codegen.cpu.loops.reachability import Reach, Steps
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value

OnDefinition = Callable[[Instruction, Steps], None]
"""Called with a definition and the steps that compute which sizes reach it."""


class Functions(dict[str, Instruction]):
    """Definitions of shared functions by name.

    ``on_definition`` is called with each definition, callees first, and with the steps that compute which sizes reach it;
    again if it is defined once more on another path.
    """

    def __init__(self, on_definition: OnDefinition | None = None) -> None:
        super().__init__()
        self.on_definition = on_definition
        self.steps: Steps = ()
        self.path: tuple[Value, ...] = ()

    def __setitem__(self, name: str, definition: Instruction) -> None:
        super().__setitem__(name, definition)
        if self.on_definition is not None:
            self.on_definition(definition, self.steps)

    def __ior__(self, others: Mapping[str, Instruction]) -> Functions:  # type: ignore[override,misc]
        for name, definition in others.items():
            self[name] = definition
        return self

    @contextmanager
    def under(self, b: Builder, *path: Value) -> Iterator[None]:
        """Record, for definitions inside this context, the conditions and counts that must all be nonzero for their calls to
        run."""
        outer = self.path, self.steps
        if self.on_definition is not None:
            self.path += path
            self.steps = Reach(Block((), tuple(b.instructions), ())).steps([self.path])
        try:
            yield
        finally:
            self.path, self.steps = outer

    def update(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("functions are defined one at a time")
