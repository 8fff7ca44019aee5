"""Planned programs on a CUDA device, and their calls.

A call takes a block for all temporaries and one for each result, fills in addresses, and launches. Repeated calls with the
same addresses and scalars, as in a training loop, launch CUDA graphs, one for each segment: a graph set.
"""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.runtime.cuda.arrays.device_array import DeviceArray, signal_owner, wait_for
from pullback.runtime.cuda.device.memory import Block
from pullback.runtime.cuda.program.argument_blocks import scalar_key
from pullback.runtime.cuda.program.call import Call, GraphSet
from pullback.runtime.cuda.program.layout import CONCURRENT_COPY_BYTES, Layout
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram

MAX_GRAPH_SETS = 8
"""The largest number of graph sets of a program that are kept."""


class PlannedProgram(Layout):
    """A planned program with its sizes. ``graph_sets``: those of the latest addresses and scalars, None for a combination met
    once. The constructor raises NotPlannable."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        super().__init__(executable, instance)
        self.graph_sets: OrderedDict[tuple[Any, ...], GraphSet | None] = OrderedDict()
        self.arena: Block | None = None
        self.lock = threading.Lock()
        # Held by a call that reads from the arena what its graphs wrote.
        self.busy = threading.Lock()
        self.device.planned_programs.add(self)

    def replay(self, arguments: Sequence[Any]) -> list[Any] | None:
        """Return the results of a call whose arrays are all ours and on the device, by one launch if there is a graph for it;
        None for other calls."""
        device, rows = self.device, []
        for k in self.arrays:
            argument = arguments[k]
            if type(argument) is not DeviceArray or type(argument.owner) is not Block or argument.gpu is not device:
                return None
            rows.append(argument.address)
        with device:
            blocks = device.pool.take_all(self.results)
            for block in blocks:
                rows.append(block.address)
            key = (*rows, self._packed(arguments)) if self.scalars else tuple(rows)
            graph_set = self.graph_sets.get(key)
            if graph_set is None or graph_set.single_graph is None:
                return self.run(arguments, True, blocks)
            graph_set.was_launched = True
            device.launched.append(self.named)
            graph_set.single_graph.launch(device.handle)
        return [
            DeviceArray(device, blocks[which].address, dtype, shape, blocks[which], None, (), key)
            for which, dtype, shape, key in self.fresh
        ]

    def run(self, arguments: Sequence[Any], on_device: bool, blocks: Sequence[Block] | None = None) -> list[Any]:
        """Return the results: arrays on the device if ``on_device``, else NumPy arrays. ``blocks``: memory taken for them."""
        device = self.device
        owners: list[Any] = []
        rows: list[int] = []
        foreign = []
        pending: dict[int, Any] = {}
        for parameter, argument in zip(self.executable.program.parameters, arguments, strict=True):
            if type(argument) is DeviceArray:
                if type(argument.owner) is not Block:
                    wait_for(argument)
                    foreign.append(argument)
                owner: Any = argument
            elif isinstance(parameter.type, RefType):
                owner, pending[len(rows)] = self._argument_block(parameter, argument)
            else:
                owner = None
            owners.append(owner)
            rows.append(0 if owner is None else owner.address)
        blocks = device.pool.take_all(self.results) if blocks is None else blocks
        owners += blocks
        rows += [block.address for block in blocks]
        if pending and any(array.nbytes >= CONCURRENT_COPY_BYTES for array in pending.values()):
            device.staging.begin()
        is_concurrent = self.is_graph and sum(array.nbytes for array in pending.values()) >= CONCURRENT_COPY_BYTES
        graph_set = self._graph_set(rows, arguments) if self.is_repeatable and not is_concurrent else None
        try:
            call = self._run(rows, arguments, graph_set, pending)
            results = self._device_results(call, owners) if on_device else self._host_results(call, owners)
            if self.failing:
                call.check()
        except BaseException:
            # A kept traceback must not keep the memory.
            owners.clear()
            blocks = results = []
            raise
        finally:
            if graph_set is not None and self.is_exclusive:
                self.busy.release()
        for array in foreign:
            signal_owner(array)
        return results

    def result_blocks(self, chosen: Sequence[DeviceArray | None]) -> list[Block]:
        """Return memory for the results: the block of the array chosen for a result if the array begins with it, else a new
        block. The context must be current."""
        pairs = zip(self.plan.shown, self.results, strict=True)
        return [self._block_of(value, chosen) or self.device.pool.take_all([each])[0] for value, each in pairs]

    def _block_of(self, value: Value, chosen: Sequence[DeviceArray | None]) -> Block | None:
        array = chosen[self.executable.program.results.index(value)]
        block = None if array is None else array.owner
        return block if array is not None and isinstance(block, Block) and block.address == array.address else None

    def _argument_block(self, parameter: Value, argument: Any) -> tuple[Block, Any]:
        t = parameter.type
        assert isinstance(t, RefType)
        array = np.ascontiguousarray(argument, t.dtype.numpy)
        shape = ",".join(map(str, array.shape))
        description = f"argument {parameter.name} of {self.executable.title} ({t.dtype}[{shape}])"
        return self.device.take(array.nbytes, description), array

    def _run(self, rows: list[int], arguments: Sequence[Any], graph_set: GraphSet | None, pending: dict[int, Any]) -> Call:
        arena = self.take_arena() if graph_set is None else graph_set.arena
        address = 0 if arena is None else arena.address
        call = Call(self, [*rows, address, address + self.state_at], arguments, graph_set, pending)
        call.arena = arena
        call.run(self.parts)
        return call

    def let_go(self) -> None:
        """Drop the graphs and the memory kept for later calls."""
        self.graph_sets.clear()
        self.arena = None

    def _graph_set(self, rows: Sequence[int], arguments: Sequence[Any]) -> GraphSet | None:
        """Return the graph set for these addresses and scalars, from the second call with them on; None if another call is
        using its arena."""
        first = len(self.executable.program.parameters)
        key: tuple[Any, ...] = (*[rows[k] for k in self.arrays], *rows[first:])
        if self.scalars:
            key = *key, self._packed(arguments)
        if self.strided:
            key = *key, *[getattr(arguments[position], "strides", None) for position in self.strided]
        with self.lock:
            is_known = key in self.graph_sets
            graph_set = self.graph_sets.pop(key, None)
            if is_known and graph_set is None:
                if self.arena is None:
                    self.arena = self.take_arena()
                graph_set = GraphSet(self.arena)
            while len(self.graph_sets) >= MAX_GRAPH_SETS:
                old, other = self.graph_sets.popitem(last=False)
                if other is not None and other.was_launched:
                    other.was_launched = False
                    self.graph_sets[old] = other
            self.graph_sets[key] = graph_set
        if graph_set is None or (self.is_exclusive and not self.busy.acquire(blocking=False)):
            return None
        return graph_set

    def _packed(self, arguments: Sequence[Any]) -> Any:
        """Return a key of the scalars of a call: 0.0 and -0.0 differ."""
        try:
            return self.packer.pack(*[arguments[position] for position, _ in self.scalars])
        except struct.error:
            return tuple(scalar_key(arguments[position], dtype) for position, dtype in self.scalars)

    def _device_results(self, call: Call, owners: Sequence[Any]) -> list[Any]:
        results = []
        for shown in self.result_rows:
            owner, address = owners[shown.row], call.address_of((shown.row, 0))
            if isinstance(owner, DeviceArray):
                results.append(owner.result(shown.dtype, shown.shape))
            else:
                results.append(DeviceArray(self.device, address, shown.dtype, shown.shape, owner))
        return results

    def _host_results(self, call: Call, owners: Sequence[Any]) -> list[Any]:
        results, pairs = [], []
        for shown in self.result_rows:
            owner = owners[shown.row]
            if isinstance(owner, DeviceArray) and owner.strides is not None:
                results.append(owner.seen_as(shown.dtype, shown.shape).copy_to_host())
                continue
            results.append(np.empty(shown.shape, shown.dtype))
            pairs.append((shown.row, results[-1]))
        call.download_results(pairs)
        self.device.launched.clear()
        return results
