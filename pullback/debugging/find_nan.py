"""Implement ``pb.find_nan``: locate the origin of the first value that is not finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ParamSpec

from pullback.checking.interpreted_run import run_straight
from pullback.checking.nonfinite_origins import NonFinite, Search
from pullback.compiled.reports import Inspected
from pullback.ir.core.records import dataclass
from pullback.programs.call import Call
from pullback.programs.report import Report
from pullback.transforms.api import jit
from pullback.tree import leaf_paths


def examine(function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Call:
    """Return the call of a function, transformed or not."""
    return (function if isinstance(function, Inspected) else jit(function)).examine(args, kwargs)


P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True, repr=False)
class NonFiniteReport(Report):
    """The result of ``find_nan``; false if every result is finite.

    ``first`` is the earliest origin in program order, ``others`` are further ones: independent, or a NaN that the first led
    to. ``results`` names the results that are not finite.
    """

    function: str
    first: NonFinite | None
    others: tuple[NonFinite, ...]
    results: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.first is not None

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.function}: all finite"
        lines = [f"{self.function}: {', '.join(self.results)} not finite", *self.first.lines()]
        for other in self.others:
            lines += ["also", *other.lines()]
        return "\n".join(lines)


def find_nan(f: Callable[P, Any], *, inf: bool = True) -> Callable[P, NonFiniteReport]:
    """Return a function that runs a call of ``f`` and reports the origin of the first value that is not finite.

    The call is traced and run by the interpreter, one instruction at a time, forward and backward and through each iteration of a
    loop, before any optimisation; all its intermediate values are in memory at once. From each result that is NaN or infinite the
    report follows the values that caused it: to an instruction that computed it from finite operands, with its op, or
    "pullback(op)" for a gradient, the source line and the operands there; or to the argument that contained it already. Values
    that no result depends on are not reported, as in a branch of ``where`` that is not taken, nor are infinities that are
    constants of the program, where a NaN is computed from them.

    Parameters
    ----------
    f : callable
        Any function or transformed function.
    inf : bool, optional
        False leaves infinite results out, which NumPy returns too.

    Returns
    -------
    callable
        A function of the arguments of ``f`` that returns a report: its ``str`` is its text, its fields have the same content; it
        is false if all results are finite.

    Raises
    ------
    TraceError
        From the call, for what cannot be traced, and whatever else the call raises.

    See Also
    --------
    check_grad : Wrong derivatives that are finite.
    jit : Its option ``debug`` checks each call.

    Examples
    --------
    >>> report = pb.find_nan(pb.grad(lambda x: np.sum(np.sqrt(x))))(np.array([0.0, 1.0]))
    >>> bool(report), report.first.op
    (True, 'div')
    """

    def report(*args: P.args, **kwargs: P.kwargs) -> NonFiniteReport:
        call = examine(f, args, kwargs)
        run = run_straight(call)
        search = Search(run, inf)
        bad = [v for v in run.function.results if search.is_bad(v, "nan") or (inf and search.is_bad(v, "inf"))]
        events = search.events(dict.fromkeys(bad))
        names = [f"result{at}" for at in leaf_paths(call.trace.out_tree, "")]
        names += call.trace.stored_labels
        names += [f"argument {call.trace.labels[k]} after the call" for k in call.trace.writes]
        names += [f"{write.describe} after the call" for write in call.trace.outside_writes]
        is_bad = set(bad)
        return NonFiniteReport(
            function=call.title,
            first=events[0] if events else None,
            others=tuple(events[1:]),
            results=tuple(n for n, v in zip(names, run.function.results, strict=True) if v in is_bad),
        )

    return report
