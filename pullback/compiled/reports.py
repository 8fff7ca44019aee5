"""The methods by which every transformed function reports on a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pullback.ir.core.lazy_imports import later
from pullback.tracer.names.call_objects import serving
from pullback.tracer.user_code.tracebacks import with_users_frames

if TYPE_CHECKING:
    from pullback.inspection import reports
    from pullback.inspection.reports import Call, Cost, Explanation, Memory, Profile, Residuals, Stages
    from pullback.view import view as views
    from pullback.view.view import View
else:
    reports = later("pullback.inspection.reports")
    views = later("pullback.view.view")

P = ParamSpec("P")
R = TypeVar("R")


class Inspected(Generic[P]):
    """The reporting methods. Each takes the arguments of a call and returns a report whose str is what the command line
    prints.

    They trace the call again, which runs the Python function once. All but ``profile`` and ``view`` run no compiled code and
    store nothing. Each but ``view`` raises TraceError where the call would.
    """

    __slots__ = ()

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Return the call with these arguments, as used by the reports."""
        raise NotImplementedError

    @with_users_frames
    def stages(self, /, *args: P.args, **kwargs: P.kwargs) -> Stages:
        """Return the text of each stage that a call with these arguments goes through.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        pullback.inspection.Stages
            A mapping by the stage's name: trace, grad, simplify, fuse, lower, schedule, then program, llvm, asm on the CPU; cuda,
            ptx, sass on a GPU.

        Raises
        ------
        TraceError
            Where the call would.

        See Also
        --------
        pullback.inspection.Stages : The mapping.

        Examples
        --------
        >>> f = pb.jit(lambda x: np.sum(np.sin(x)))
        >>> print(f.stages(np.ones(3))["simplify"].rstrip())
        pullback-ir 2
        <BLANKLINE>
        func lambda(%x: f64[3]) -> (f64[]) {
          %0: f64[3] = sin %x
          %1: f64[] = sum %0 {axes=[0]}
          return %1
        }
        """
        return _report(reports.stages, self.examine(args, kwargs))

    @with_users_frames
    def explain(self, /, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Return whether a call with these arguments runs an existing program or is traced first, and why.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        pullback.inspection.Explanation
            The report.

        Raises
        ------
        TraceError
            Where the call would.

        See Also
        --------
        pullback.inspection.Explanation : The report.

        Examples
        --------
        >>> f = pb.jit(lambda x: x + 1)
        >>> f.explain(np.ones(3)).status
        'first call'
        >>> _ = f(np.ones(3))
        >>> f.explain(np.ones(3)).status, f.explain(3).status
        ('compiled', 'new signature')
        """
        return _report(reports.explain, self.examine(args, kwargs))

    @with_users_frames
    def residuals(self, /, *args: P.args, **kwargs: P.kwargs) -> Residuals:
        """Return the values that the backward part of a gradient reads from the forward part, with their lines and bytes.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        pullback.inspection.Residuals
            The report.

        Raises
        ------
        TraceError
            Where the call would.

        See Also
        --------
        pullback.checkpoint : Recomputes residuals.
        pullback.inspection.Residuals : The report.

        Examples
        --------
        >>> g = pb.grad(lambda w, x: np.sum(np.tanh(x @ w)))
        >>> report = g.residuals(np.ones((3, 2)), np.ones((5, 3)))
        >>> [(r.op, r.kept) for r in report.residuals]
        [('contract', 'memory')]
        """
        return _report(reports.residuals, self.examine(args, kwargs))

    @with_users_frames
    def memory(self, /, *args: P.args, **kwargs: P.kwargs) -> Memory:
        """Return the inputs, results and temporaries of a call with these arguments, and its peak memory.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        pullback.inspection.Memory
            The report.

        Raises
        ------
        TraceError
            Where the call would.

        See Also
        --------
        pullback.inspection.Memory : The report.

        Examples
        --------
        >>> f = pb.jit(lambda x: np.sum(np.exp(x) * x))
        >>> f.memory(np.ones(1000)).peak_bytes
        8008
        """
        return _report(reports.memory, self.examine(args, kwargs))

    @with_users_frames
    def cost(self, /, *args: P.args, **kwargs: P.kwargs) -> Cost:
        """Return the operations, bytes and launches of a call with these arguments, kernel by kernel.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        pullback.inspection.Cost
            The report.

        Raises
        ------
        TraceError
            Where the call would.

        See Also
        --------
        profile : The time of each step.
        pullback.inspection.Cost : The report.

        Examples
        --------
        >>> f = pb.jit(lambda x, y: np.sum(x * y))
        >>> total = f.cost(np.ones(1000), np.ones(1000)).total
        >>> total.flops, total.bytes
        (2000, 16008)
        """
        return _report(reports.cost, self.examine(args, kwargs))

    @with_users_frames
    def profile(self, /, *args: P.args, **kwargs: P.kwargs) -> Profile:
        """Return the time of each step of a call with these arguments, forward and backward, against the machine's limits.

        The call is repeated for about half a second; writes into arguments are discarded, but prints and Python callbacks take
        effect each time.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        pullback.inspection.Profile
            The report.

        Raises
        ------
        TraceError
            Where the call would, and whatever else the call raises.

        See Also
        --------
        cost : The work without running it.
        pullback.inspection.Profile : The report.

        Examples
        --------
        >>> f = pb.jit(lambda x: np.sum(x * x))
        >>> f.profile(np.ones(1000)).seconds > 0
        True
        """
        return _report(reports.profile, self.examine(args, kwargs))

    @with_users_frames
    def view(self, /, *args: P.args, **kwargs: P.kwargs) -> View:
        """Return a page on a call with these arguments: source, stages, kernels, memory, time, residuals, loops.

        The call is profiled, unless it has effects. If it cannot be traced, the page shows the error at its line.

        Parameters
        ----------
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        View
            One HTML page, ``html``, which needs no server. ``save(path)`` writes it, ``open()`` shows it in a browser, and a
            notebook shows it as the last value of a cell. ``contents`` has all that it shows as values.

        Raises
        ------
        TypeError
            If the arguments do not fit the function.

        See Also
        --------
        stages : The texts of the stages.
        profile : The time of each step.

        Examples
        --------
        >>> f = pb.jit(lambda x: np.sum(x * x))
        >>> page = f.view(np.ones(1000))
        >>> page.save("page.html", stage="llvm").name
        'page.html'
        >>> [node.flops for node in page.contents.nodes]
        [2000]
        """
        return _report(views.view, self.examine(args, kwargs))


def _report(report: Callable[[Call], R], call: Call) -> R:
    """Return a report on a call, whose objects are read."""
    with serving(call.signature.objects):
        return report(call)
