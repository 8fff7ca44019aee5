"""Blocks computed by the workers of a Dask cluster.

Each block is one task. Up to ``FAN_IN`` results come back to the client as they are; more are combined on the workers, by tasks
for whole subtrees of the tree of all blocks, so that the bits are those of the tree. What the client has sent to stay, the bound
data and the programs, it also keeps: a worker that is lost takes copies with it, and these are sent again.
"""

from __future__ import annotations

import logging
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import field
from typing import Any

import dask
import dask.array as da
import numpy as np
from distributed import KilledWorker
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from pullback.distributed import warm
from pullback.distributed.blocks import rows_between
from pullback.distributed.partials import bytes_of, count_of, layout_of
from pullback.distributed.plan import Plan
from pullback.distributed.tasks import (
    BlockResult,
    BlockTask,
    ProgramLost,
    RowBlock,
    combine_blocks,
    compute_block,
    encoded_call,
    kept_result,
    reduced_blocks,
)
from pullback.ir.core.records import dataclass
from pullback.ir.passes.rows.split import FIRST, BlockPart, RunBlocks, nonempty

logger = logging.getLogger("pullback.distributed")

FAN_IN = 64
"""The largest number of partial results that the client, or one task, combines: a power of two, so that they are subtrees."""
MOST_GATHERED = 8 * 2**20
"""The bytes of partial results beyond which the workers reduce them to one, rather than the client."""
SENT_WITH_TASKS = 64 * 2**10
"""The bytes of arguments that are sent with each task; more are sent to the workers once, separately."""
MOST_PREPARED = 4
"""The number of block lengths for which programs are compiled ahead. Blocks of equal length but for one row have two; one program
serves all lengths of a size class."""
ATTEMPTS = 8
"""How often a part is computed again after workers were lost. A block that kills workers does not stop before."""
WAIT_FOR_WORKERS = 60
"""The seconds for which a part waits for a first worker after all were lost; a worker that is restarted takes a few."""


class Kept:
    """Data that the client keeps, and the workers have: a list of objects, each behind a future."""

    def __init__(self, objects: Sequence[Any], client: Any, broadcast: bool = False) -> None:
        self.objects = list(objects)
        self.broadcast = broadcast
        self.futures: list[Any] = []
        self._client: Callable[[], Any] = weakref.ref(client)
        self._send(range(len(self.objects)))

    def _send(self, positions: Sequence[int]) -> None:
        client = self._client()
        chosen = [self.objects[k] for k in positions]
        futures = client.scatter(chosen, hash=False, broadcast=self.broadcast)
        if len(chosen) == len(self.objects):
            self.futures = futures
        else:
            for k, future in zip(positions, futures, strict=True):
                self.futures[k] = future

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler has reported an object that no worker has."""
        return any(f.status != "finished" for f in self.futures)

    def renew(self) -> None:
        """Send the objects again that no worker has."""
        client = self._client()
        alive = [f for f in self.futures if f.status == "finished"]
        try:
            holders = client.who_has(alive) if alive else {}
        except LOST:
            holders = {}
        lost = [k for k, f in enumerate(self.futures) if not holders.get(f.key)]
        if lost:
            lengths = len(lost), len(self.objects)
            logger.warning("%d of %d blocks or programs were lost with their workers, and are sent again", *lengths)
            self._send(lost)


@dataclass(eq=False)
class BoundRows:
    """Bound arrays with rows, in the order of their leaves. ``leaves``: the leaf and the axis of rows of each. ``by_client``: the
    blocks that the workers of a client have, by bounds."""

    arrays: Mapping[int, tuple[Any, int]]
    by_client: weakref.WeakKeyDictionary[Any, dict[tuple[int, ...], Kept]] = field(default_factory=weakref.WeakKeyDictionary)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def kept(self, client: Any, bounds: tuple[int, ...]) -> Kept:
        """Return the blocks between bounds, which are sent at the first call."""
        with self.lock:
            by_bounds = self.by_client.setdefault(client, {})
            if bounds not in by_bounds:
                blocks = [RowBlock(a, b, _rows(self.arrays.values(), a, b)) for a, b in nonempty(bounds)]
                by_bounds[bounds] = Kept(blocks, client)
            return by_bounds[bounds]


def _rows(arrays: Iterable[tuple[Any, int]], start: int, stop: int) -> tuple[Any, ...]:
    """Return the rows of arrays, each with its axis of rows, from ``start`` to ``stop``."""
    return tuple(np.ascontiguousarray(rows_between(x, axis, start, stop)) for x, axis in arrays)


Sources = tuple[tuple[str, int], ...]

_tasks: weakref.WeakKeyDictionary[Any, weakref.WeakKeyDictionary[BlockPart, dict[Sources, Kept]]] = weakref.WeakKeyDictionary()
"""The tasks that the workers of a client have, by the part of a plan and by where its arguments come from."""


def cluster_runner(plan: Plan, bounds: tuple[int, ...], client: Any, bound: BoundRows) -> RunBlocks:
    """Return how the parts of a plan run for the blocks between ``bounds``: on the workers of ``client``. The tasks of all parts
    are released with it, after the call: a scheduler in this process would release them while the rest of the call computes."""

    steps: list[_Step] = []

    def run(part: BlockPart, slots: Mapping[int, Any]) -> tuple[Sequence[tuple[Any, ...]], Sequence[Any]]:
        step = _Step(plan, part, bounds, client, bound, slots)
        steps.append(step)
        for attempt in range(ATTEMPTS):
            try:
                return step.run()
            except LOST as error:
                if client.status != "running":
                    raise RuntimeError(f"the Dask client is {client.status}: {closed_advice()}") from error
                if attempt + 1 == ATTEMPTS:
                    raise
                logger.warning("%s: %s; it is computed again", plan.name, error)
                client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS)
                step.renew()
        raise AssertionError

    return run


def closed_advice() -> str:
    """Return what to do when a client has been closed."""
    return "pass another one to pb.distribute, or none to compute in this process"


LOST = (KilledWorker, FutureCancelledError, CancelledError, CommClosedError, ProgramLost)
"""The errors that a lost worker causes."""


class _Step:
    """One part computed by the workers."""

    def __init__(
        self, plan: Plan, part: BlockPart, bounds: tuple[int, ...], client: Any, bound: BoundRows, slots: Mapping[int, Any]
    ) -> None:
        self.plan, self.part, self.client, self.slots = plan, part, client, slots
        self.ranges = nonempty(bounds)
        self.layout = layout_of(part)
        self.sources, sent, values = _sources(plan, part, bound)
        self.bound = bound.kept(client, bounds) if any(origin == "bound" for origin, _ in self.sources) else None
        self.kinds: Mapping[Any, Sequence[str]] = {}
        self.futures: Sequence[Any] = ()
        self.task = self._task()
        arrays = [(slots[k], plan.axes[k]) for k in sent]
        rows = [_rows(arrays, a, b) for a, b in self.ranges] if arrays else []
        self.sent: list[Any] | Kept = rows
        if _bytes_of([x for block in rows for x in block]) > SENT_WITH_TASKS:
            self.sent = Kept(rows, client)
        self.values: tuple[Any, ...] | Kept = tuple(slots[k] for k in values)
        if _bytes_of(self.values) > SENT_WITH_TASKS:
            self.values = Kept([self.values], client, broadcast=True)
        if len(self.kinds) > 1:
            self._compare_kinds()

    def _compare_kinds(self) -> None:
        """Warn if workers of different kinds compute other bits for the first block."""
        keywords = self._call()
        first = [column[0] for column in self._columns()]
        futures = [
            self.client.submit(compute_block, *first, **keywords, workers=[addresses[0]], pure=False)
            for addresses in self.kinds.values()
        ]
        bits = {_bits(result) for result in self.client.gather(futures)}
        if len(bits) > 1:
            warm.warn_of_kinds(self.kinds, self.plan.name)

    def _columns(self) -> list[Sequence[Any]]:
        """Return the blocks, and the rows that are sent with this call, if any."""
        blocks = [RowBlock(a, b) for a, b in self.ranges] if self.bound is None else self.bound.futures
        sent = self.sent.futures if isinstance(self.sent, Kept) else self.sent
        return [blocks, sent] if sent else [blocks]

    def _call(self) -> dict[str, Any]:
        """Return the keywords of the tasks.

        Dask searches each argument for futures, and each future is a dependency of each task, which costs its scheduler time. So
        small values are sent as bytes, and the program by its key.
        """
        (task,), (data,) = self.task.objects, self.task.futures
        if isinstance(self.values, Kept):
            return {"call": encoded_call(task, data.key, ()), "values": self.values.futures[0]}
        return {"call": encoded_call(task, data.key, self.values)}

    def _task(self) -> Kept:
        parts = _tasks.setdefault(self.client, weakref.WeakKeyDictionary())
        by_sources = parts.setdefault(self.part, {})
        if self.sources not in by_sources:
            task = BlockTask(self.plan.program(self.part), self.sources, count_of(self.part))
            lengths = tuple(dict.fromkeys(b - a for a, b in self.ranges))[:MOST_PREPARED]
            self.kinds = warm.kinds_of(self.client)
            warm.built_once(self.client, self.kinds, task.prepare, (lengths,), self.plan.name)
            by_sources[self.sources] = Kept([task], self.client)
        elif by_sources[self.sources].is_lost:
            by_sources[self.sources].renew()
        return by_sources[self.sources]

    def renew(self) -> None:
        """Send again what was lost."""
        for kept in (self.bound, self.task, self.sent, self.values):
            if isinstance(kept, Kept):
                kept.renew()

    def run(self) -> tuple[Sequence[tuple[Any, ...]], Sequence[Any]]:
        """Compute the part for all blocks."""
        client, token = self.client, secrets.token_hex(8)
        keys = [(f"{self.plan.name}-{token}", k) for k in range(len(self.ranges))]
        futures = self.futures = client.map(compute_block, *self._columns(), **self._call(), key=keys, pure=False)
        kept = [_Blocks(futures, k, axis, self) for k, axis in enumerate(self.part.kept)]
        reduced: list[tuple[Any, ...]] = []
        if self.part.reductions:
            reduced = self._reduced(futures, token)
        elif not self.part.kept:
            client.gather(futures)
        return reduced, [k.array() for k in kept]

    def _reduced(self, futures: Sequence[Any], token: str) -> list[tuple[Any, ...]]:
        """Return the reduced partial results, combined up the tree."""
        level, parts = 0, list(futures)
        size = bytes_of(self.layout)
        while len(parts) > FAN_IN or (self.part.kept and level == 0) or (len(parts) > 1 and len(parts) * size > MOST_GATHERED):
            groups = [parts[k : k + FAN_IN] for k in range(0, len(parts), FAN_IN)]
            keys = [(f"{self.plan.name}-reduce-{token}", level, k) for k in range(len(groups))]
            parts = self.client.map(combine_blocks, groups, key=keys, layout=self.layout, pure=False)
            level += 1
        return reduced_blocks(self.client.gather(parts), self.layout)


def _sources(plan: Plan, part: BlockPart, bound: BoundRows) -> tuple[Sources, list[int], list[int]]:
    """Return where each argument of a part comes from, the slots of arrays whose rows are sent, and those of other values."""
    positions = {k: n for n, k in enumerate(bound.arrays)}
    sent: list[int] = []
    values: list[int] = []
    sources = []
    for k in part.inputs:
        if k == FIRST:
            sources.append(("first", 0))
        elif k in plan.axes and k in positions:
            sources.append(("bound", positions[k]))
        else:
            listed = sent if k in plan.axes else values
            listed.append(k)
            sources.append(("sent" if k in plan.axes else "value", len(listed) - 1))
    return tuple(sources), sent, values


def _bits(result: BlockResult) -> bytes:
    """Return the bytes of a block's result."""
    every = (result,) if isinstance(result, bytes) else result
    return b"".join([x if isinstance(x, bytes) else np.asarray(x).tobytes() for x in every])


def _bytes_of(values: Sequence[Any]) -> int:
    """Return the bytes of arrays and numbers."""
    return sum(getattr(x, "nbytes", 8) for x in values)


class _Blocks:
    """A result that keeps the rows, on the workers."""

    def __init__(self, futures: Sequence[Any], position: int, axis: int, step: _Step) -> None:
        self.futures, self.position, self.axis, self.step = futures, position, axis, step

    def array(self) -> Any:
        """Return the Dask array of the blocks."""
        part = self.step.part
        value = part.function.results[len(part.outputs) - len(part.kept) + self.position]
        read = dask.delayed(kept_result, pure=True)
        blocks = []
        for future, (a, b) in zip(self.futures, self.step.ranges, strict=True):
            shape = tuple(e if isinstance(e, int) else b - a for e in value.type.shape)
            blocks.append(da.from_delayed(read(future, self.position), shape, value.type.dtype.numpy))
        return da.concatenate(blocks, self.axis) if len(blocks) > 1 else blocks[0]
