"""One call of a transformed function before it runs: the input of the reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from pullback.ir.core.records import dataclass
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
    """Describe a call that may never be made; reports are made from it.

    Attributes
    ----------
    title : str
        The function with its transforms.
    requested_device : str or None
        The device of the function, None for the device of its arguments.
    parameters : Parameters
        The parameters of the function.
    signature : Signature
        The types of the arguments, and the values of the static ones.
    retrace : callable
        Traces the call, which runs the Python function once and stores nothing.
    make : callable
        Performs the call, as the user would.
    entries : mapping
        The compiled programs of the function by signature.
    variants : sequence
        The programs that may serve the call.
    path : callable
        Returns the path of the calls of a program, as in `Explanation`.
    donated : tuple
        The structures of donated arguments, each with the index of its first leaf.
    kind : Kind or None
        The traces with symbolic sizes of calls like it, None if sizes are concrete.

    See Also
    --------
    Report : What is made from it.

    Examples
    --------
    >>> f = pb.jit(lambda x: x + 1)
    >>> call = f.examine((np.ones(3),), {})
    >>> isinstance(call, pb.inspection.Call)
    True
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
