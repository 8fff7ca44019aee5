"""The warning about Python loops that unroll into a program with a long compile time."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence

from pullback.ir import Instruction
from pullback.ir.core.structure import walk
from pullback.ir.ops.control.regions import Transform
from pullback.tracer.user_code.source import function_at, nodes_at, shown

MANY_OPS = 5000
"""Number of traced operations from which the warning is given."""
MANY_DIFFERENTIATED = 4000  # operations under a gradient, which are compiled with their derivatives
MANY_OF_A_LINE = 100


class UnrollWarning(UserWarning):
    """A Python loop was traced iteration by iteration, into many thousands of operations."""

    __module__ = "pullback"


_met: set[tuple[str, int, str]] = set()


def warn_unrolled(instructions: Sequence[Instruction], title: str) -> None:
    """Warn, once for a function and a line, if a loop made a trace long.

    The warning is at the loop around the user's line that has most instructions, or at that line.
    """
    total = sum(1 for i in instructions for _ in _all(i))
    differentiated = sum(1 for i in instructions for j in _all(i) if isinstance(j.op, Transform) for _ in _all(j)) if total else 0
    if total <= MANY_OPS and differentiated <= MANY_DIFFERENTIATED:
        return
    counts = Counter((j.loc.file, j.loc.line) for i in instructions for j in _all(i))
    (file, line), most = counts.most_common(1)[0]
    if most < MANY_OF_A_LINE:
        return
    loop = next((n for n in nodes_at(file, line) if isinstance(n, ast.For | ast.While)), None)
    at = line if loop is None else loop.lineno
    if (file, at, title) in _met:
        return
    _met.add((file, at, title))
    what = f"the loop at {shown(file)}:{at}" if loop else f"a loop around {shown(file)}:{at}, in {function_at(file, at)},"
    also = ", of which derivatives are taken" if differentiated > MANY_DIFFERENTIATED else ""
    message = f"{what} unrolls: {title} has {total:,} operations{also}; write {_instead(loop)}, which compiles the body once"
    warnings.warn_explicit(message, UnrollWarning, file or "pullback", at)


def _all(i: Instruction) -> Iterator[Instruction]:
    yield i
    for region in i.regions:
        yield from walk(region)


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
