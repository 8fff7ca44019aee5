"""The warning about Python loops that unroll into a program with a long compile time."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from pullback.ir import Instruction
from pullback.ir.ops.control.regions import Transform
from pullback.tracer.user_code.source import function_at, nodes_at, shown

SECONDS_OF_SCALAR, SECONDS_OF_ARRAY = 0.2e-3, 0.4e-3
"""CPU time to trace and compile an operation on numbers and one on arrays: programs of 1,000 to 10,000 take 0.19 to 0.27 ms for
one on numbers, 0.36 to 0.5 ms for one on arrays."""
DIFFERENTIATED = 2.3
"""Multiple of these for an operation whose derivative is compiled too: 2.0 to 2.5 in the same programs."""
MANY_SECONDS = 1.0
"""The predicted time from which the warning is given."""
MANY_OF_A_LINE = 100
"""Number of operations of one line from which a loop is taken to be the cause."""
_FREE = ("const", "broadcast")


class UnrollWarning(UserWarning):
    """Warn that a Python loop was traced iteration by iteration, into many thousands of operations.

    See Also
    --------
    fori_loop : One loop in the program.
    scan : One loop with collected results.

    Examples
    --------
    >>> issubclass(pb.UnrollWarning, UserWarning)
    True
    """

    __module__ = "pullback"


_met: set[tuple[str, int, str]] = set()


def warn_unrolled(instructions: Sequence[Instruction], title: str, reason: str = "") -> None:
    """Warn, once for a function and a line, if a loop made a trace long. ``reason``: why it was not rolled, if that is known.

    The warning is at the loop around the user's line that has most instructions, or at that line.
    """
    if len(instructions) < MANY_OF_A_LINE and not any(i.regions for i in instructions):
        return
    costs = list(_costs(instructions, 1.0))
    seconds = sum(cost for _, cost in costs)
    if seconds <= MANY_SECONDS:
        return
    counts = Counter((i.loc.file, i.loc.line) for i, _ in costs)
    (file, line), most = counts.most_common(1)[0]
    if most < MANY_OF_A_LINE:
        return
    loop = next((n for n in nodes_at(file, line) if isinstance(n, ast.For | ast.While)), None)
    at = line if loop is None else loop.lineno
    if (file, at, title) in _met:
        return
    _met.add((file, at, title))
    what = f"the loop at {shown(file)}:{at}" if loop else f"a loop around {shown(file)}:{at}, in {function_at(file, at)},"
    also = f", since it cannot be one of the program: {reason}" if reason else ""
    message = (
        f"{what} unrolls{also}: {title} has {len(costs):,} operations, which take about {seconds:.1f} seconds to compile; write "
        f"{_instead(loop)}, which compiles the body once"
    )
    warnings.warn_explicit(message, UnrollWarning, file or "pullback", at)


def _costs(instructions: Iterable[Instruction], factor: float) -> Iterator[tuple[Instruction, float]]:
    """Yield instructions and those in them, each with the predicted seconds of its compile; ``factor``: of those around them."""
    for i in instructions:
        is_number = all(not v.type.shape for v in (*i.operands, *i.results))
        yield i, 0.0 if i.op.name in _FREE else factor * (SECONDS_OF_SCALAR if is_number else SECONDS_OF_ARRAY)
        inside = factor * DIFFERENTIATED if isinstance(i.op, Transform) else factor
        for region in i.regions:
            yield from _costs(region.instructions, inside)


def _instead(loop: ast.For | ast.While | None) -> str:
    match loop:
        case ast.While():
            return "pb.while_loop(condition, body, state)"
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[stop])):
            return f"pb.fori_loop(0, {ast.unparse(stop)}, body, state)"
        case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[start, stop])):
            return f"pb.fori_loop({ast.unparse(start)}, {ast.unparse(stop)}, body, state)"
        case ast.For(iter=ast.Name(id=name)):
            return f"pb.scan(body, state, {name})"
    return "pb.fori_loop(0, n, body, state) or pb.scan(body, state, xs)"
