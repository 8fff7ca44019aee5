"""One call of a transformed function, before anything of it is run: what the reports are made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.programs.argument_types import ArgumentType, arguments_of
from pullback.programs.branch_paths import Paths
from pullback.programs.donation import Donated, over_of
from pullback.programs.dynamic_shapes import Kind, served
from pullback.programs.entry import Entry
from pullback.programs.pipeline import Over
from pullback.programs.placement import device_of
from pullback.tracer import Parameters, Signature, Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """A call that may never have been made. ``retrace`` traces it, which runs the Python function once and stores nothing;
    ``make`` makes it, as the user would; ``entries`` are the compiled programs of the function by signature, ``variants`` those
    that may serve the call, and ``path`` says what the calls of one take (see ``Explanation``). ``donated``: the structures of
    donated arguments, each with the index of its first leaf. ``asked``: the device that the function is for, None for that of its
    arguments. ``kind``: the traces with symbolic sizes of calls like it, None where sizes are numbers."""

    title: str
    asked: str | None
    parameters: Parameters
    signature: Signature
    retrace: Callable[[], Trace]
    make: Callable[[], Any]
    entries: Mapping[Any, Sequence[Entry | Paths]]
    variants: Sequence[Entry]
    path: Callable[[Entry], str]
    donated: Donated = ()
    kind: Kind | None = None
    _made: list[Trace] = field(default_factory=list)

    @property
    def trace(self) -> Trace:
        """The call's trace, made once."""
        if not self._made:
            self._made.append(self.retrace() if self.served is None else self.served)
        return self._made[0]

    @property
    def device(self) -> str:
        """Where the call would run."""
        return device_of(self.asked, [*self.leaves, *(self.trace.outside() or ())])

    @property
    def served(self) -> Trace | None:
        """The trace with symbolic sizes that serves the call, with its sizes, if there is one."""
        found = None if self.kind is None else served(self.kind, self.signature)
        return None if found is None else found[0].at(found[1])

    @property
    def over(self) -> Over:
        """The results that may be in the memory of parameters."""
        return over_of(self.trace, self.donated)

    @property
    def leaves(self) -> list[Any]:
        """The arrays and numbers among the arguments."""
        return self.signature.leaves

    @property
    def arguments(self) -> tuple[ArgumentType, ...]:
        """What a program depends on in the arguments."""
        return arguments_of(self.parameters, self.signature)
