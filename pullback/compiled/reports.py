"""The methods by which every transformed function reports on a call of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from pullback.ir.core.lazy_imports import later
from pullback.tracer.user_code.tracebacks import with_users_frames

if TYPE_CHECKING:
    from pullback.inspection import reports
    from pullback.inspection.reports import Call, Cost, Explanation, Memory, Profile, Residuals, Stages
else:
    reports = later("pullback.inspection.reports")

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

        The stages: trace, grad, simplify, fuse, lower, schedule, then program, llvm, asm on the CPU; cuda, ptx, sass on a GPU.
        """
        return reports.stages(self.examine(args, kwargs))

    @with_users_frames
    def explain(self, /, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Whether a call with these arguments runs a program that is there or is traced first, and why."""
        return reports.explain(self.examine(args, kwargs))

    @with_users_frames
    def residuals(self, /, *args: P.args, **kwargs: P.kwargs) -> Residuals:
        """The values that the backward part of a gradient reads of the forward part, with their lines and bytes."""
        return reports.residuals(self.examine(args, kwargs))

    @with_users_frames
    def memory(self, /, *args: P.args, **kwargs: P.kwargs) -> Memory:
        """The inputs, results and temporaries of a call with these arguments, and its peak of memory."""
        return reports.memory(self.examine(args, kwargs))

    @with_users_frames
    def cost(self, /, *args: P.args, **kwargs: P.kwargs) -> Cost:
        """The operations, bytes and launches of a call with these arguments, kernel by kernel."""
        return reports.cost(self.examine(args, kwargs))

    @with_users_frames
    def profile(self, /, *args: P.args, **kwargs: P.kwargs) -> Profile:
        """What each step of a call with these arguments takes, forward and backward, against the machine's limits.

        The call is made some times, for about half a second; what it writes into arguments is not written, but what it prints and
        the Python functions that it calls back have their effect each time. Raises what the call raises.
        """
        return reports.profile(self.examine(args, kwargs))
