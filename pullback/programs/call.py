"""One call of a transformed function before it runs: the input of the reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.programs.argument_types import ArgumentType, arguments_of
from pullback.programs.branch_paths import Paths
from pullback.programs.donation import Donated, over_of
from pullback.programs.dynamic_shapes import Kind, find_variant
from pullback.programs.entry import Entry
from pullback.programs.pipeline import Over
from pullback.programs.placement import device_of
from pullback.tracer import Parameters, Signature, Trace


@dataclass(frozen=True, kw_only=True, eq=False)
class Call:
    """A call that may never be made.

    ``retrace`` traces it, which runs the Python function once and stores nothing (``as_written``: see ``trace``); ``make``
    performs it, as the user would; ``entries`` are the compiled programs of the function by signature, ``variants`` those that
    may serve the call, and ``path`` returns the path of an entry's calls (see ``Explanation``). ``donated``: the structures of
    donated arguments, each with the index of its first leaf. ``requested_device``: the device of the function, None for the
    device of its arguments. ``kind``: the traces with symbolic sizes of calls like it, None if sizes are concrete.
    """

    title: str
    requested_device: str | None
    parameters: Parameters
    signature: Signature
    retrace: Callable[..., Trace]
    make: Callable[[], Any]
    entries: Mapping[Any, Sequence[Entry | Paths]]
    variants: Sequence[Entry]
    path: Callable[[Entry], str]
    donated: Donated = ()
    kind: Kind | None = None
    _traced: list[Trace] = field(default_factory=list)

    @property
    def trace(self) -> Trace:
        """The call's trace, made once."""
        if not self._traced:
            self._traced.append(self.retrace() if self.served is None else self.served)
        return self._traced[0]

    @property
    def device(self) -> str:
        """The device on which the call would run."""
        return device_of(self.requested_device, [*self.leaves, *(self.trace.outside() or ())])

    @property
    def served(self) -> Trace | None:
        """The trace with symbolic sizes that serves the call, at its sizes; None if there is none."""
        match = None if self.kind is None else find_variant(self.kind, self.signature)
        return None if match is None else match[0].at(match[1])

    @property
    def over(self) -> Over:
        """The results that may reuse the memory of parameters."""
        return over_of(self.trace, self.donated)

    @property
    def leaves(self) -> list[Any]:
        """The arrays and numbers among the arguments."""
        return self.signature.leaves

    @property
    def arguments(self) -> tuple[ArgumentType, ...]:
        """The types of the arguments."""
        return arguments_of(self.parameters, self.signature)
