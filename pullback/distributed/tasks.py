"""What runs on the workers of a Dask cluster. Imports of Dask's scheduler, which loads these functions, stay light.

A message for a task has no program, but its key. All workers get the program once, when it is compiled. It is also data of Dask:
from there a worker gets it at its first task that has joined since, or was restarted.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.distributed.partials import Layout, packed, unpacked
from pullback.distributed.programs import MOST_PROGRAMS, BlockProgram
from pullback.ir.core.lazy_imports import later
from pullback.ir.passes.rows.combine import Partials

if TYPE_CHECKING:
    import distributed
else:
    distributed = later("distributed")

BlockResult = bytes | tuple[Any, ...]
"""The partial results of a block, packed; if there are results that keep the rows, a tuple that these follow."""
ORIGINS = ("bound", "sent", "value", "first")
"""Where arguments come from: the rows that a worker keeps, those of this call, the values without rows, the first row."""
RECENT_CALLS = 8
"""The number of calls whose values a worker keeps decoded: those of a few clients, 64 KiB each at most."""


class RowBlock:
    """A block: its first row ``start``, the row ``stop`` after its last, and its ``rows`` of the bound arrays.

    Arrays that arrive in a message may begin at any byte. They are copied once, as the block is unpickled, since every call would
    copy them otherwise.
    """

    def __init__(self, start: int, stop: int, rows: Sequence[Any] = ()) -> None:
        self.start = start
        self.stop = stop
        self.rows = tuple(np.require(x, requirements="A") for x in rows)

    def __reduce__(self) -> Any:
        return RowBlock, (self.start, self.stop, self.rows)

    def __sizeof__(self) -> int:
        return sum(x.nbytes for x in self.rows)


class BlockTask:
    """A part of a plan, as the workers keep it. ``sources``: where each argument comes from, one of ``ORIGINS``, and its position
    there; ``partials``: how many results are partial results. ``key`` names it among all."""

    def __init__(self, program: BlockProgram, sources: Sequence[tuple[str, int]], partials: int) -> None:
        self.program = program
        self.sources = tuple(sources)
        self.partials = partials
        self.key = hashlib.sha256(repr((program.text, self.sources, partials)).encode()).hexdigest()
        self._reads = [(ORIGINS.index(origin), k) for origin, k in self.sources]

    def __reduce__(self) -> Any:
        return block_task, (self.program, self.sources, self.partials)

    def prepare(self, lengths: Sequence[int]) -> None:
        """Compile the program for blocks of these numbers of rows."""
        for rows in lengths:
            self.program.prepare(rows)

    def __call__(self, block: RowBlock, sent: Sequence[Any] = (), values: Sequence[Any] = ()) -> BlockResult:
        columns = block.rows, sent, values, (np.int64(block.start),)
        results = self.program(block.stop - block.start, [columns[origin][k] for origin, k in self._reads])
        partials = packed(results[: self.partials])
        return (partials, *results[self.partials :]) if len(results) > self.partials else partials


_tasks: dict[str, BlockTask] = {}
"""The tasks that have arrived in this process by key: at most ``MOST_PROGRAMS``, the last ones."""
_lock = threading.Lock()


def block_task(program: BlockProgram, sources: Sequence[tuple[str, int]], partials: int) -> BlockTask:
    """Return a task that arrives in this process, which keeps it."""
    return _kept(BlockTask(program, sources, partials))


def _kept(task: BlockTask) -> BlockTask:
    with _lock:
        while len(_tasks) >= MOST_PROGRAMS and task.key not in _tasks:
            _tasks.pop(next(iter(_tasks)))
        return _tasks.setdefault(task.key, task)


class ProgramLost(Exception):
    """No worker has the program of a task: all that had it were lost."""


def _fetched(key: str, data: str) -> BlockTask:
    """Return a task from another worker, which has it as ``data`` of Dask. Raises ProgramLost."""
    worker = distributed.get_worker()
    response = distributed.utils.sync(worker.loop, worker.scheduler.gather, keys=[data])
    if response["status"] != "OK":
        raise ProgramLost(f"no worker has the program {key[:8]}")
    return _kept(response["data"][data])


def encoded_call(task: BlockTask, data: str, values: Sequence[Any]) -> bytes:
    """Return what the tasks of a step have in common: the key of the program, that of the data of Dask which it is, and the
    values without rows."""
    return pickle.dumps((task.key, data, tuple(values)), protocol=5)


@functools.lru_cache(maxsize=RECENT_CALLS)
def _decoded(call: bytes) -> tuple[str, str, tuple[Any, ...]]:
    """Return what a call encodes, once for the tasks of a step."""
    key, data, values = pickle.loads(call)
    for x in values:
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    return key, data, values


def compute_block(
    block: RowBlock, sent: Sequence[Any] = (), *, call: bytes, values: Sequence[Any] = ()
) -> BlockResult:  # fmt: skip
    """Compute a part of a plan for one block. ``values``: those that are too large for the call."""
    key, data, own = _decoded(call)
    task = _tasks.get(key) or _fetched(key, data)
    return task(block, sent, values or own)


def compute_chunk(start: int, sent: Sequence[Any], axes: Sequence[int], task: BlockTask, values: Sequence[Any]) -> BlockResult:
    """Compute a part of a plan for a chunk of arrays, whose number of rows they show."""
    arrays = [np.asarray(x) for x in sent]
    rows = arrays[0].shape[axes[0]] if arrays else 0
    return task(RowBlock(start, start + rows), arrays, values)


def reduced_blocks(parts: Sequence[BlockResult], layout: Layout) -> list[Partials]:
    """Return the reduced partial results of a run of blocks."""
    return unpacked(layout, [part if isinstance(part, bytes) else part[0] for part in parts])


def combine_blocks(parts: Sequence[BlockResult], layout: Layout) -> bytes:
    """Return the reduced partial results of a run of blocks, packed as those of a block."""
    return packed([x for partials in reduced_blocks(parts, layout) for x in partials])


def kept_result(result: tuple[Any, ...], position: int) -> Any:
    """Return a result of a block that keeps the rows."""
    return result[1 + position]
