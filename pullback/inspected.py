"""The methods by which every transformed function reports on a call of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, ParamSpec

from pullback import inspection
from pullback.inspection import Call, Cost, Explanation, Memory, Profile, Residuals, Stages
from pullback.tracer.tracebacks import with_users_frames

P = ParamSpec("P")


class Inspected(Generic[P]):
    """Each method takes the arguments of a call and returns a report, whose str is what the command line prints.

    They trace the call anew, which runs the Python function once. All but ``profile`` run nothing compiled and store nothing.
    Each raises TraceError where the call would.
    """

    __slots__ = ()

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """The call with these arguments, as the reports take it."""
        raise NotImplementedError

    @with_users_frames
    def stages(self, /, *args: P.args, **kwargs: P.kwargs) -> Stages:
        """The text of each stage that a call with these arguments goes through: a mapping by the stage's name.

        The stages: trace, grad, simplify, fuse, lower, schedule, program, llvm, asm.
        """
        return inspection.stages(self.examine(args, kwargs))

    @with_users_frames
    def explain(self, /, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Whether a call with these arguments runs a program that is there or is traced first, and why."""
        return inspection.explain(self.examine(args, kwargs))

    @with_users_frames
    def residuals(self, /, *args: P.args, **kwargs: P.kwargs) -> Residuals:
        """The values that the backward part of a gradient reads of the forward part, with their lines and bytes."""
        return inspection.residuals(self.examine(args, kwargs))

    @with_users_frames
    def memory(self, /, *args: P.args, **kwargs: P.kwargs) -> Memory:
        """The inputs, results and temporaries of a call with these arguments, and its peak of memory."""
        return inspection.memory(self.examine(args, kwargs))

    @with_users_frames
    def cost(self, /, *args: P.args, **kwargs: P.kwargs) -> Cost:
        """The operations, bytes and launches of a call with these arguments, kernel by kernel."""
        return inspection.cost(self.examine(args, kwargs))

    @with_users_frames
    def profile(self, /, *args: P.args, **kwargs: P.kwargs) -> Profile:
        """What each step of a call with these arguments takes, forward and backward, against the machine's limits.

        The call is made some times, for about half a second; what it writes into arguments is not written, but what it prints and
        the Python functions that it calls back have their effect each time. Raises what the call raises.
        """
        return inspection.profile(self.examine(args, kwargs))
