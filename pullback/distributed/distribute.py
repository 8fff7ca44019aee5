"""``pb.distribute``: a function computed by blocks of rows, with one tree of reductions for any number of workers."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.compiled.function import Jitted
from pullback.distributed.blocks import Blocks, bounds_of, checked_blocks
from pullback.distributed.local import block_runner, outer_runner
from pullback.distributed.plan import Plan, plan_of, rows_of
from pullback.ir.core.lazy_imports import later
from pullback.ir.passes.rows.split import RunBlocks, evaluate
from pullback.tracer import Signature, TraceError, current, signature
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.transforms.api import jit
from pullback.transforms.vmap import Mapped
from pullback.tree import map as map_tree

if TYPE_CHECKING:
    from pullback.distributed import cluster, embedded
else:
    cluster, embedded = later("pullback.distributed.cluster"), later("pullback.distributed.embedded")

MOST_PLANS = 64
"""Largest number of plans kept for a function: one for each signature and set of guards."""


@with_users_frames
def distribute(
    function: Callable[..., Any], over: Mapping[str, int] | None = None, blocks: Blocks = None, client: Any = None
) -> Distributed:  # fmt: skip
    """Return the function computed by blocks of rows of its arguments, on the workers of a Dask cluster or in this process.

    What couples rows may be sums, means, extrema and the like over all rows, at any depth: a loss centred by a mean, a softmax
    over rows. Partial results are reduced up a binary tree over the blocks, so that results depend on the blocks but not on the
    workers.

    Parameters
    ----------
    function : callable
        A NumPy function, or a transform of one.
    over : mapping of str to int, optional
        The axis of rows of each argument that has rows, by name; an argument may be a tree of arrays. By default these are the
        arguments over which a `vmap` maps.
    blocks : int or sequence of int, optional
        How many blocks there are, or the number of rows of each; by default a block has 16 MiB.
    client : distributed.Client, "local" or None, optional
        "local" for a client of this process, which is closed at its exit; None for Dask's current client, or, without one, the
        same blocks one after another in this process.

    Returns
    -------
    callable
        The function. Results without rows are NumPy's. Those that keep the rows are Dask arrays on the workers, or NumPy's
        without a client. Its method ``bind(**arrays)`` returns the function with arguments whose rows stay with the workers.

    Raises
    ------
    TypeError, ValueError
        For ``over`` and ``blocks`` that do not fit the arguments.
    TraceError
        At the user's line, for what couples rows otherwise: sorts, differences of neighbours, products of rows with rows.

    See Also
    --------
    warm : Compiles for the workers before the first call.
    vmap : All rows in one call.

    Examples
    --------
    >>> def loss(w, x, y):
    ...     return np.mean((x @ w - y) ** 2)
    >>> fit = pb.distribute(pb.value_and_grad(loss), over={"x": 0, "y": 0}, blocks=4)
    >>> x = np.arange(16.0).reshape(8, 2)
    >>> fit(np.zeros(2), x, np.ones(8))
    (np.float64(1.0), array([-14., -16.]))
    """
    compiled = function if isinstance(function, Jitted) else jit(function)
    if over is None:
        over = _mapped_arguments(compiled)
    unknown = [name for name in over if name not in compiled._parameters.names]
    if unknown or not over:
        names = ", ".join(compiled._parameters.names) or "no parameters"
        raise ValueError(f"over names {unknown or 'no argument'}, and {compiled.__name__} has {names}")
    for name, axis in over.items():
        if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
            raise TypeError(f"over gives the axis of rows of {name} as an int, not {axis!r}")
    if client is not None and client != "local" and not hasattr(client, "scatter"):
        raise TypeError(f'client is a distributed.Client, "local" or None, not {client!r}')
    return Distributed(compiled, {name: int(axis) for name, axis in over.items()}, checked_blocks(blocks), client)


def _mapped_arguments(function: Jitted[..., Any]) -> dict[str, int]:
    """Return the axis over which a ``pb.vmap`` maps each argument. Raises TypeError for other functions."""
    transform = function._transform
    if not isinstance(transform, Mapped):
        raise TypeError(f"pb.distribute needs over, the axis of rows of each argument, as in over={{{'x'!r}: 0}}")
    axes = transform.in_axes
    by_argument = list(axes.children) if axes.kind in ("tuple", "list") else [axes] * len(function._parameters.names)
    if any(tree.kind != "static" for tree in by_argument):
        raise TypeError("pb.distribute needs over where in_axes are trees")
    pairs = zip(function._parameters.names, by_argument)
    return {name: tree.data for name, tree in pairs if tree.data is not None}


class Distributed:
    """A function computed by blocks of rows. It has the name and the documentation of the function it is made from.

    It may be called from several threads. It is not for use within traced functions.
    """

    def __init__(
        self, function: Jitted[..., Any], over: dict[str, int], blocks: Blocks, client: Any,
        bound: Mapping[str, Any] | None = None, plans: dict[Any, list[Plan]] | None = None,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, function)
        self._function = function
        self._over = over
        self._blocks = blocks
        self._client = client
        self._bound = dict(bound or {})
        self._plans: dict[Any, list[Plan]] = {} if plans is None else plans
        self._lock = threading.RLock()
        self._rows: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<distributed {self._function.__name__} over {', '.join(self._over)}>"

    def bind(self, **arrays: Any) -> Distributed:
        """Return the function with some arguments fixed: their contents are copied now, so that later changes have no effect.

        The workers of a cluster get the rows at the first call, once; this process keeps the copy, and sends the rows of a
        worker that is lost again. Raises TypeError for names that are no arguments.
        """
        names = self._function._parameters.names
        unknown = [name for name in arrays if name not in names]
        if unknown:
            raise TypeError(f"{self._function.__name__} has no argument {unknown[0]}; it has {', '.join(names)}")
        copies = {name: map_tree(_copied, value) for name, value in arrays.items()}
        bound = self._bound | copies
        return Distributed(self._function, self._over, self._blocks, self._client, bound, self._plans)

    @with_users_frames
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            raise TraceError(f"{self._function.__name__} is distributed, for calls from outside; use the function itself here")
        names, values = self._arguments(args, kwargs)
        call = signature(self._function._parameters, values, {})
        client = self._current_client()
        plan, arguments = self._plan(call, names, values)
        bounds = bounds_of(plan.rows, plan.row_bytes, self._blocks)
        blocks = self._block_runner(plan, bounds, client, call.leaves)
        results = evaluate(plan.split, arguments, outer_runner(plan), blocks)
        return plan.result(results, call.leaves, arguments)

    def _arguments(self, args: Any, kwargs: Any) -> tuple[list[str], list[Any]]:
        """Return the names and values of the arguments by position, with the bound ones."""
        every = self._function._parameters.names
        free = [name for name in every if name not in self._bound]
        twice = [name for name in kwargs if name in self._bound or name in free[: len(args)]]
        if len(args) > len(free) or twice or any(name not in every for name in kwargs):
            what = f"{len(args)} arguments by position" + "".join(f", {name}" for name in kwargs)
            raise TypeError(f"{self._function.__name__} takes {', '.join(free) or 'no further arguments'}, and got {what}")
        values = dict(zip(free, args)) | kwargs | self._bound
        names = [name for name in every if name in values]
        if names != list(every[: len(names)]):
            missing = next(name for name in every if name not in values)
            raise TypeError(f"{self._function.__name__} needs {missing}, an argument before {names[-1]}")
        return names, [values[name] for name in names]

    def _current_client(self) -> Any:
        """Return the Dask client of a call, or None."""
        if self._client == "local":
            return embedded.client()
        if self._client is not None:
            if self._client.status != "running":
                raise RuntimeError(f"the Dask client is {self._client.status}: {cluster.closed_advice()}")
            return self._client
        distributed = sys.modules.get("distributed")
        if distributed is None:
            return None
        try:
            client = distributed.default_client()
        except ValueError:
            return None
        return client if client.status == "running" else None

    def _plan(self, call: Signature, names: list[str], values: list[Any]) -> tuple[Plan, list[Any]]:
        """Return the plan that serves a call, and its arguments."""
        for plan in self._plans.get(call.key, ()):
            arguments = plan.arguments(call.leaves)
            if arguments is not None:
                return plan, arguments
        with self._lock:
            rows = rows_of(names, values, self._over, self._function._parameters)
            plan = plan_of(self._function, call, values, {}, rows)
            arguments = plan.arguments(call.leaves)
            if arguments is None:
                raise TraceError(f"{self._function.__name__} reads a value from outside that is another one at each read")
            while len(self._plans) >= MOST_PLANS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[call.key] = [plan, *self._plans.get(call.key, ())][:8]
        return plan, arguments

    def _block_runner(self, plan: Plan, bounds: tuple[int, ...], client: Any, leaves: Sequence[Any]) -> RunBlocks:
        if client is None:
            return block_runner(plan, bounds)
        rows = plan.rows_of(self._bound, leaves)
        with self._lock:
            bound = self._rows.setdefault(tuple(rows), cluster.BoundRows(rows))
        return cluster.cluster_runner(plan, bounds, client, bound)


def _copied(leaf: Any) -> Any:
    return np.array(leaf, order="C") if isinstance(leaf, np.ndarray) else leaf
