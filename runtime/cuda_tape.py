"""Programs without control flow on a CUDA device: their launches in a list, with all that does not change from call to call.

Where buffers lie is planned once for each set of sizes: one block of the device's pool holds all temporaries, the kernels' own
memory and the statuses. A call takes that block and one for each result, fills in addresses, and launches. Calls that come again
with the same addresses and scalars, as in a loop that trains, become one launch of a CUDA graph.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.ops.program import Alloc, Copy, Free, Launch, View
from pullback.ir.structure import Instruction, Value
from pullback.ir.types import RefType
from pullback.runtime.cuda_arrays import DeviceArray, dense_strides, settle, wait_for
from pullback.runtime.cuda_blas import Product
from pullback.runtime.cuda_driver import cuda
from pullback.runtime.cuda_errors import DeviceError
from pullback.runtime.cuda_graphs import Graph, captured
from pullback.runtime.cuda_launch import Started, scalar_bits, scalar_key
from pullback.runtime.cuda_memory import Block
from pullback.runtime.program import Plan

if TYPE_CHECKING:
    from pullback.runtime.cuda_program import CudaExecutable, CudaInstance

ALIGNMENT = 256
WORD = 4
KEPT_GRAPHS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Patched:
    """A launch, and where its arguments come from: for each pointer its place, the row of the table of addresses, and what is
    added. ``strides`` and ``scalars`` are of arguments of the call."""

    start: Started
    pointers: tuple[tuple[int, int, int], ...]
    strides: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Copied:
    """A copy on the device: rows of the table of addresses, what is added to them, and the bytes."""

    source: tuple[int, int]
    target: tuple[int, int]
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Multiplied:
    """A product by cuBLAS: rows of the table of addresses, of a, b and c, and what is added to them."""

    product: Product
    pointers: tuple[tuple[int, int], ...]


Step = Patched | Copied | Multiplied


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A result: the row that it is in, and its type."""

    row: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def is_straight(executable: CudaExecutable) -> bool:
    """Whether a program is launches on the device and copies there, one after the other."""
    for i in executable.program.instructions:
        match i.op:
            case Launch():
                if i.params["kernel"] not in executable.kernels:
                    return False
            case Copy():
                if not isinstance(i.operands[0].type, RefType):
                    return False
            case Alloc() | View() | Free():
                pass
            case _:
                return False
    return True


class Tape:
    """A straight program with its sizes. ``graphs``: those of the addresses and scalars that were met last, None for what was met
    once."""

    def __init__(self, executable: CudaExecutable, instance: CudaInstance) -> None:
        self.executable = executable
        self.device = executable.device
        self.plan = Plan(executable.program)
        self.places = self.plan.place(instance.sizes)
        self.sizes = instance.sizes
        self.failing: list[Instruction] = []
        self.results = [self._described(v) for v in self.plan.shown]
        self.arena = len(executable.program.parameters) + len(self.results)
        self.arena_bytes = _rounded(self.places.arena_bytes)
        steps = [self._step(i, instance) for i in executable.program.instructions]
        self.status_at = self.arena_bytes
        self.steps: list[Step] = [self._with_status(step, number) for found in steps for step, number in found]
        self.arena_bytes += WORD * len(self.failing)
        self.shown = [self._shown(v) for v in executable.program.results]
        launches = [each for each in self.steps if isinstance(each, Patched)]
        # Statuses lie in a graph's own memory, where another thread's call would write over them.
        self.is_repeatable = len(self.steps) > 1 and not self.failing and not any(each.strides for each in launches)
        self.scalars = sorted({(position, dtype) for each in launches for _, position, dtype in each.scalars})
        self.graphs: OrderedDict[tuple[Any, ...], Graph | None] = OrderedDict()
        self.lock = threading.Lock()
        self.temporaries = f"the temporaries of {executable.title}"
        self.device.tapes.add(self)

    # what does not change

    def _described(self, value: Value) -> tuple[int, str]:
        """The bytes of a result's buffer, and what an error calls it."""
        shape, dtype = self.executable.shape(value, self.sizes), value.type.dtype
        text = f"{dtype}[{','.join(map(str, shape))}]"
        return math.prod(shape) * dtype.bytes, f"result {value.name or 'without name'} of {self.executable.title} ({text})"

    def _shown(self, value: Value) -> Shown:
        owner = self.plan.owner[value]
        return Shown(self.places.rows[owner], value.type.dtype.numpy, self.executable.shape(value, self.sizes))

    def _step(self, i: Instruction, instance: CudaInstance) -> list[tuple[Step, int]]:
        """What an instruction does, each with the number of its status or -1."""
        if isinstance(i.op, Copy):
            size = math.prod(self.executable.shape(i.operands[1], self.sizes)) * i.operands[1].type.dtype.bytes
            return [(Copied(self._at(i.operands[0]), self._at(i.operands[1]), size), -1)] if size else []
        return self._launch(i, instance) if isinstance(i.op, Launch) else []

    def _at(self, value: Value) -> tuple[int, int]:
        """The row and the offset of a buffer."""
        owner = self.plan.owner[value]
        return self.places.rows[owner], self.places.offsets.get(owner, 0)

    def _launch(self, i: Instruction, instance: CudaInstance) -> list[tuple[Step, int]]:
        launch = self.executable.bound(instance, i)
        if launch.product is not None:
            return [(Multiplied(launch.product, tuple(self._at(i.operands[k]) for k in launch.product.operands)), -1)]
        scratch = []
        for _, size in launch.scratch:
            scratch.append(self.arena_bytes)
            self.arena_bytes += _rounded(max(size, 1))
        number = len(self.failing) if launch.has_status else -1
        if launch.has_status:
            self.failing.append(i)
        found: list[tuple[Step, int]] = []
        for each in launch.starts:
            pointers = [(at, *self._at(i.operands[position])) for at, position in each.pointers]
            pointers += [(at, self.arena, scratch[which]) for at, which in each.scratch]
            strides = tuple((at, self._argument(i.operands[position]), axis) for at, position, axis in each.strides)
            scalars = tuple((at, self._argument(i.operands[position]), dtype) for at, position, dtype in each.scalars)
            found.append((Patched(each, tuple(pointers), strides, scalars), number))
        return found

    def _argument(self, value: Value) -> int:
        return self.plan.parameter[self.plan.owner[value]]

    def _with_status(self, step: Step, number: int) -> Step:
        if not isinstance(step, Patched) or number < 0:
            return step
        added = tuple((at, self.arena, self.status_at + WORD * number) for at in step.start.status)
        return replace(step, pointers=(*step.pointers, *added))

    # a call

    def run(self, arguments: Sequence[Any], keeps: bool, chosen: Sequence[DeviceArray | None] | None = None) -> list[Any]:
        """The results: arrays on the device if it ``keeps`` them, else NumPy's; in the ``chosen`` arrays where they can be."""
        device = self.device
        owners: list[Any] = []
        rows: list[int] = []
        foreign = []
        for parameter, argument in zip(self.executable.program.parameters, arguments, strict=True):
            if type(argument) is DeviceArray:
                if type(argument.owner) is not Block:
                    wait_for(argument)
                    foreign.append(argument)
                owner: Any = argument
            elif isinstance(parameter.type, RefType):
                owner = self._brought(parameter, argument)
            else:
                owner = None
            owners.append(owner)
            rows.append(0 if owner is None else owner.address)
        described = zip(self.plan.shown, self.results, strict=True)
        blocks = [self._room_of(value, chosen) or device.pool.take(size, what) for value, (size, what) in described]
        owners += blocks
        rows += [each.address for each in blocks]
        del blocks
        status = self._launched(rows, arguments, keeps and self.is_repeatable)
        made = self._kept(rows, owners) if keeps else self._copied(rows)
        if status is not None and self.failing:
            try:
                self._check(status)
            except BaseException:
                # What a kept traceback holds is not in use.
                owners.clear()
                made.clear()
                raise
        for array in foreign:
            settle(array)
        return made

    def _room_of(self, value: Value, chosen: Sequence[DeviceArray | None] | None) -> Block | None:
        """The memory of the array that was chosen for a result, if it begins with it."""
        given = None if chosen is None else chosen[self.executable.program.results.index(value)]
        whole = None if given is None else given.owner
        return whole if given is not None and isinstance(whole, Block) and whole.address == given.address else None

    def _brought(self, parameter: Value, argument: Any) -> Block:
        t = parameter.type
        assert isinstance(t, RefType)
        array = np.ascontiguousarray(argument, t.dtype.numpy)
        shape = ",".join(map(str, array.shape))
        block = self.device.take(array.nbytes, f"argument {parameter.name} of {self.executable.title} ({t.dtype}[{shape}])")
        self.device.staging.upload(array, block.address)
        return block

    def _launched(self, rows: list[int], arguments: Sequence[Any], is_repeatable: bool) -> Block | None:
        """Give the device all steps, by a graph if there is one for these addresses; the block with the statuses."""
        graph = self._graph(rows, arguments) if is_repeatable else None
        if graph is not None:
            self.device.launched.append((self.executable.title, "a kernel"))
            graph.launch(self.device.stream)
            return graph.arena
        arena = self.device.take(self.arena_bytes, self.temporaries) if self.arena_bytes else None
        rows.append(0 if arena is None else arena.address)
        self._start(rows, arguments, self.device.stream)
        return arena

    def _graph(self, rows: Sequence[int], arguments: Sequence[Any]) -> Graph | None:
        """The graph of the steps with these addresses and scalars; there is one from the second call with them on."""
        key = (*rows, *[scalar_key(arguments[position], dtype) for position, dtype in self.scalars])
        with self.lock:
            is_known = key in self.graphs
            graph = self.graphs.pop(key, None)
            if is_known and graph is None:
                graph = self._captured(rows, arguments)
            while len(self.graphs) >= KEPT_GRAPHS:
                self.graphs.popitem(last=False)
            self.graphs[key] = graph
        return graph

    def _captured(self, rows: Sequence[int], arguments: Sequence[Any]) -> Graph | None:
        arena = self.device.take(self.arena_bytes, self.temporaries)
        try:
            return captured(self.device, lambda stream: self._start([*rows, arena.address], arguments, stream), arena)
        except (DeviceError, cuda.Error):
            # Launched one by one, the steps work or say what is wrong.
            self.is_repeatable = False
            return None

    def _start(self, rows: Sequence[int], arguments: Sequence[Any], stream: Any) -> None:
        loaded, launched, title = self.executable.loaded, self.device.launched, self.executable.title
        if self.failing:
            cuda.memset_d32_async(rows[self.arena] + self.status_at, 0, len(self.failing), stream)
        for each in self.steps:
            if isinstance(each, Copied):
                (source, first), (target, second) = each.source, each.target
                cuda.memcpy_dtod_async(rows[target] + second, rows[source] + first, each.size, stream)
                continue
            if isinstance(each, Multiplied):
                blas = self.device.blas()
                assert blas is not None
                launched.append((title, "a matrix product"))
                blas.multiply(each.product, [rows[row] + shift for row, shift in each.pointers], stream)
                continue
            assert loaded is not None
            start = each.start
            values = start.values.copy()
            for at, row, shift in each.pointers:
                values[at] = rows[row] + shift
            for at, position, axis in each.strides:
                values[at] = stride_of(arguments[position], axis)
            for at, position, dtype in each.scalars:
                values[at] = scalar_bits(arguments[position], dtype)
            launched.append((title, start.name))
            loaded.function(start.name)._launch_kernel(start.grid, start.block, start.packing.pack(*values), start.shared, stream)

    def _check(self, arena: Block) -> None:
        """Wait, and raise what the first launch says that failed."""
        found = np.zeros(len(self.failing), np.int32)
        self.device.staging.download([(arena.address + self.status_at, found)])
        for i, status in zip(self.failing, found.tolist(), strict=True):
            if status:
                raise self.executable.failed(i, status)

    def _kept(self, rows: Sequence[int], owners: Sequence[Any]) -> list[Any]:
        made = []
        for shown in self.shown:
            owner = owners[shown.row]
            if isinstance(owner, DeviceArray):
                if owner.shape == shown.shape and owner.dtype == shown.dtype:
                    made.append(owner)
                    continue
                is_ours = isinstance(owner.owner, Block)
                address, owner = (owner.address, owner.owner) if is_ours else self._copy_of(owner)
                made.append(DeviceArray(self.device, address, shown.dtype, shown.shape, owner))
                continue
            made.append(DeviceArray(self.device, rows[shown.row], shown.dtype, shown.shape, owner))
        return made

    def _copy_of(self, array: DeviceArray) -> tuple[int, Block]:
        """The elements of another library's array, row-major, in memory of ours."""
        block = self.device.take(array.nbytes, f"a result of {self.executable.title}")
        if array.nbytes:
            cuda.memcpy_dtod_async(block.address, array.address, array.nbytes, self.device.stream)
        return block.address, block

    def _copied(self, rows: Sequence[int]) -> list[Any]:
        made = [np.empty(shown.shape, shown.dtype) for shown in self.shown]
        self.device.staging.download([(rows[shown.row], array) for shown, array in zip(self.shown, made, strict=True)])
        self.device.launched.clear()
        return made


def stride_of(array: DeviceArray, axis: int) -> int:
    """The bytes from one element to the next along an axis; beyond the last axis of complex numbers, from part to part."""
    if axis == array.ndim:
        return array.dtype.itemsize // 2
    strides = dense_strides(array.shape, array.dtype.itemsize) if array.strides is None else array.strides
    return strides[axis]


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
