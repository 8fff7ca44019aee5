"""Implement ``pb.vmap``: map a function over an axis of its arguments."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, overload

from pullback.compiled.function import Jitted, transformed
from pullback.compiled.transform import Function, Transform
from pullback.ir.core.records import dataclass
from pullback.tracer import TreeDef, flatten, follow, over_axes, rebuild
from pullback.tracer.user_code.tracebacks import with_users_frames

P = ParamSpec("P")
Axes = Any


@dataclass(frozen=True, kw_only=True)
class Mapped(Transform):
    """A function mapped over axes; ``in_axes`` and ``out_axes`` are trees of static numbers. ``skip``: the number of first
    arguments that are not mapped, such as ``self``."""

    in_axes: TreeDef
    out_axes: TreeDef
    axis_size: int | None = None
    skip: int = 0

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        axes, out = rebuild(self.in_axes, ()), rebuild(self.out_axes, ())
        if self.skip:
            mapped_axes = axes if isinstance(axes, tuple | list) else [axes] * (len(args) - self.skip)
            axes = [*(None for _ in range(self.skip)), *mapped_axes]
        return over_axes(follow(function), args, kwargs, axes, out, self.axis_size)

    def after_self(self) -> Transform:
        return replace(self, skip=self.skip + 1)


@overload
def vmap(
    function: Callable[P, Any], in_axes: Axes = 0, out_axes: Axes = 0, *, axis_size: int | None = None
) -> Jitted[P, Any]: ...
@overload
def vmap(
    function: None = None, in_axes: Axes = 0, out_axes: Axes = 0, *, axis_size: int | None = None
) -> Callable[[Callable[P, Any]], Jitted[P, Any]]: ...
@with_users_frames
def vmap(function: Any = None, in_axes: Axes = 0, out_axes: Axes = 0, *, axis_size: int | None = None) -> Any:
    """Map a function over an axis of its arguments: all rows at once, with the results of separate calls; also a decorator.

    Values that do not depend on a mapped value are computed once. A write into a row of an argument reaches the argument. A check
    that fails for a row fails for all, and the error names the first such row.

    Parameters
    ----------
    function : callable
        A NumPy function of one row.
    in_axes : int, None or tree of them, optional
        For each positional argument the axis to map over, None to pass it unchanged, or a tree of these for containers; one int
        for all. Keywords are mapped over their first axis.
    out_axes : int, None or tree of them, optional
        The position of the new axis in the result, or a tree of positions; None for results that are the same for all rows.
    axis_size : int, optional
        The number of rows, which is needed if nothing is mapped.

    Returns
    -------
    callable
        A compiled function of arguments that have the mapped axes.

    Raises
    ------
    TypeError
        For invalid axes.
    TraceError
        From a call, if sizes or containers do not fit.

    See Also
    --------
    map : One row after the other, in less memory.
    numpy.vectorize : Python's loop over elements.

    Examples
    --------
    A gradient for each row of the data, by the same weights:

    >>> loss = lambda w, x: np.sum(x @ w) ** 2
    >>> data = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> pb.vmap(pb.grad(loss), in_axes=(None, 0))(np.array([1.0, 2.0]), data)
    array([[2., 0.],
           [0., 4.],
           [6., 6.]])
    """
    if function is None:
        return functools.partial(vmap, in_axes=in_axes, out_axes=out_axes, axis_size=axis_size)
    if axis_size is not None:
        axis_size = operator.index(axis_size)
    mapped_in, mapped_out = _static(in_axes, "in_axes"), _static(out_axes, "out_axes")
    return transformed(function, Mapped(name="vmap", in_axes=mapped_in, out_axes=mapped_out, axis_size=axis_size))


def _static(axes: Axes, name: str) -> TreeDef:
    """Return a tree of axes that can be compared. Raises TypeError."""
    leaves, structure = flatten(axes, static_numbers=True)
    work = [structure]
    while work:
        node = work.pop()
        work.extend(node.children)
        if node.kind == "static" and (isinstance(node.data, bool) or not isinstance(node.data, int | None)):
            leaves.append(node.data)
    if leaves:
        raise TypeError(f"{name} holds ints and None, not {leaves[0]!r}")
    return structure
