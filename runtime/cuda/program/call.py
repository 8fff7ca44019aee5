"""One call of a planned program on a CUDA device: its addresses, and its parts, run in order.

Work goes to the device's stream. NumPy arrays are uploaded on a stream of their own, each before the first step that needs it,
so that steps that need other arrays run meanwhile; large results are downloaded while later steps run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core.types import DTYPES, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.runtime.cuda.arrays.device_array import DeviceArray, dense_strides, strided_buffer
from pullback.runtime.cuda.device.graphs import Graph, captured
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.program.argument_blocks import scalar_bits
from pullback.runtime.cuda.program.layout import CONCURRENT_COPY_BYTES, Layout
from pullback.runtime.cuda.program.plan import Conditional, CountedLoop, HostScalar, HostStep, Part, WhileLoop
from pullback.runtime.cuda.program.steps import CopyStep, FillStep, LibraryStep, Location, Segment, Step

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.memory import Block


class GraphSet:
    """The graphs of a program's segments for one set of addresses and scalars, captured at first use. ``arena``: the
    temporaries, shared by all graph sets of a program, since they run one after the other, as their stream does.
    ``single_graph``: the graph of a program that is a single segment. ``was_launched``: it was launched since a graph set
    was last dropped."""

    __slots__ = ("arena", "graphs", "single_graph", "was_launched")

    def __init__(self, arena: Block | None) -> None:
        self.arena = arena
        self.graphs: dict[Segment, Graph] = {}
        self.single_graph: Graph | None = None
        self.was_launched = False


class Call:
    """A call in progress; the device's context must be current. ``pending``: NumPy arrays that are not on the device yet, by
    row; ``early``: an event for each result that is complete before the last step, by row."""

    __slots__ = (
        "arena",
        "arguments",
        "device",
        "early",
        "executable",
        "graph_set",
        "layout",
        "pending",
        "rows",
        "sizes",
        "stream",
    )

    def __init__(
        self, layout: Layout, rows: list[int], arguments: Sequence[Any], graph_set: GraphSet | None, pending: dict[int, Any]
    ) -> None:
        self.layout = layout
        self.executable = layout.executable
        self.sizes: Mapping[str, int] = layout.sizes
        self.device = layout.device
        self.stream = layout.device.stream
        self.rows = rows
        self.arguments = arguments
        self.graph_set = graph_set
        self.pending = pending
        self.early: dict[int, Any] = {}
        self.arena: Block | None = None

    def run(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if type(part) is Segment:
                self.segment(part)
            elif isinstance(part, CountedLoop):
                self.repeat(part)
            elif isinstance(part, WhileLoop):
                self.repeat_until(part)
            elif isinstance(part, Conditional):
                self.run(part.regions[self.value(part.index)])
            elif isinstance(part, HostStep):
                self.on_host(part)

    # pieces

    def segment(self, piece: Segment) -> None:
        """Enqueue the steps of a segment, as a graph if the call has one."""
        needed = [row for row in self.pending if row in piece.arguments] if self.pending else []
        graph_set = self.graph_set
        is_apart = sum(self.pending[row].nbytes for row in needed) >= CONCURRENT_COPY_BYTES
        if graph_set is None or is_apart or not piece.is_captured:
            self.each(piece, bool(needed))
            return
        for row in needed:
            self.bring(row)
        graph = graph_set.graphs.get(piece)
        if graph is None:
            if piece not in self.layout.ran:
                # Kernels are loaded at their first launch, which a capture does not allow.
                self.each(piece, False)
                return
            try:
                graph = graph_set.graphs[piece] = self.graph(piece)
                graph_set.single_graph = graph if self.layout.is_graph else None
            except (DeviceError, cuda.Error, AttributeError):
                # Launched one by one, the steps work or raise their own error.
                self.forgo_graphs()
                self.each(piece, False)
                return
        self.device.launched.append(self.layout.named)
        graph.launch(self.device.handle)

    def graph(self, piece: Segment) -> Graph:
        """Return the graph of a segment's steps with the addresses of this call. Raises DeviceError and driver errors."""
        works = [lambda stream, step=step: self.start(step, stream) for step in piece.steps]
        return captured(self.device, works, piece.dependencies)

    def forgo_graphs(self) -> None:
        """Launch no graphs in this call and in later ones."""
        layout = self.layout
        layout.is_repeatable = False
        self.graph_set = None
        if not layout.is_exclusive:
            # The arena of a graph set is for graphs, which run one after the other.
            self.arena = layout.take_arena()
            address = 0 if self.arena is None else self.arena.address
            self.rows[-2:] = address, address + layout.state_at

    def each(self, piece: Segment, is_waiting: bool) -> None:
        """Enqueue the steps one by one."""
        stream, ends = self.stream, self.layout.last_writes
        self.layout.ran.add(piece)
        for index, step in enumerate(piece.steps):
            if is_waiting:
                for touch in step.accesses:
                    if touch.row in self.pending:
                        self.bring(touch.row)
            self.start(step, stream)
            if (piece, index) in ends:
                for row in ends[piece, index]:
                    self.early[row] = self.device.staging.record_event(stream)

    def start(self, step: Step, stream: Any) -> None:
        """Enqueue a step on a stream."""
        rows = self.rows
        if isinstance(step, CopyStep):
            (source, first), (target, second) = step.source, step.target
            cuda.memcpy_dtod_async(rows[target] + second, rows[source] + first, step.size, stream)
            return
        if isinstance(step, FillStep):
            self.fill(step, stream)
            return
        launched, title = self.device.launched, self.executable.title
        if isinstance(step, LibraryStep):
            launched.append((title, step.called.name))
            step.called.call([rows[row] + shift for row, shift in step.pointers], stream)
            return
        start, arguments = step.start, self.arguments
        values = start.values.copy()
        for at, row, shift in step.pointers:
            values[at] = rows[row] + shift
        for at, position, axis in step.strides:
            values[at] = stride_of(arguments[position], axis)
        for at, position, dtype in step.scalars:
            values[at] = scalar_bits(arguments[position], dtype)
        launched.append((title, start.name))
        loaded = self.device.helpers() if step.is_helper else self.executable.loaded
        assert loaded is not None
        function = loaded.function(start.name, start.shared)
        function._launch_kernel(start.grid, start.block, start.packing.pack(*values), start.shared, stream)

    def fill(self, step: FillStep, stream: Any) -> None:
        row, shift = step.target
        address, value = self.rows[row] + shift, step.value
        if step.scalar is not None:
            position, dtype = step.scalar
            scalar = np.asarray(self.arguments[position], DTYPES[dtype].numpy)
            value = int.from_bytes(scalar.tobytes(), "little")
        if step.unit == 1:
            cuda.memset_d8_async(address, value, step.count, stream)
        elif step.unit == 2:
            cuda.memset_d16_async(address, value, step.count, stream)
        else:
            for k in range(step.unit // 4):
                cuda.memset_d32_async(address + 4 * k, value >> 32 * k & 0xFFFFFFFF, step.count, stream)

    # decisions of the host

    def value(self, held: HostScalar) -> int:
        """Return a scalar that decides, read from the device if it is in a buffer. Raises the error of an earlier failed
        check."""
        if held.location is None:
            return int(self.arguments[held.position])
        return int(self.scalar(held.location, held.dtype))

    def repeat(self, loop: CountedLoop) -> None:
        """Run a loop of known trip count."""
        count = loop.count if isinstance(loop.count, int) else self.value(loop.count)
        self.put(loop.position, count - 1 if loop.is_reverse else 0)
        states, state, done = loop.states, 0, 0
        while done < count:
            if loop.unrolled is not None and not state and count - done >= loop.unrolled[0]:
                done += loop.unrolled[0]
                self.run(loop.unrolled[1])
                continue
            done += 1
            self.run(states.bodies[state])
            state = states.following[state]
        if not isinstance(loop.count, int):
            self.run(states.endings[state])

    def repeat_until(self, loop: WhileLoop) -> None:
        """Run a loop while the condition left by an iteration is true."""
        self.put(loop.position, 0)
        self.run(loop.first)
        states, state = loop.states, 0
        while self.value(loop.conditions[state]):
            self.run(states.bodies[state])
            state = states.following[state]
        self.run(states.endings[state])

    def on_host(self, part: HostStep) -> None:
        """Run a host call, or a launch on the CPU, on copies."""
        i = part.instruction
        shapes = [self.executable.shape(v, self.sizes) for v in i.operands]
        values: list[Any] = []
        pairs = []
        for v, at, position, shape in zip(i.operands, part.locations, part.positions, shapes, strict=True):
            if at is None:
                values.append(self.arguments[position])
                continue
            dtype, strides = v.type.dtype.numpy, self.strides(v, at)
            if strides is None:
                values.append(np.empty(shape, dtype))
                pairs.append((at, values[-1]))
            else:
                # The bytes between its elements are copied too.
                first, buffer, view = strided_buffer(shape, dtype, strides)
                values.append(view)
                pairs.append(((at[0], at[1] + first), buffer))
        self.check()
        self.download(pairs)
        changed: Sequence[int]
        if isinstance(i.op, Host):
            i.op.run(values, i.params)
            changed = range(len(values) - i.op.outputs(i.params), len(values))
        else:
            changed = self.executable.written[i.params["kernel"]]
            scalars = iter(self.executable.on_host(i).run(list(values), self.sizes))
            values = [
                a if shape or p is None else next(scalars) for a, p, shape in zip(values, part.locations, shapes, strict=True)
            ]
        for k in changed:
            at = part.locations[k]
            if at is not None:
                self.upload(np.ascontiguousarray(values[k]).reshape(shapes[k]), at)

    # transfers

    def bring(self, row: int) -> None:
        """Upload an array; later work of the stream waits for it."""
        array = self.pending.pop(row)
        staging = self.device.staging
        (staging.upload_concurrently if array.nbytes >= CONCURRENT_COPY_BYTES else staging.upload)(array, self.rows[row])

    def address_of(self, location: Location) -> int:
        """Return the address of a location, after uploading its array."""
        row, shift = location
        if row in self.pending:
            self.bring(row)
        return self.rows[row] + shift

    def strides(self, value: Value, location: Location) -> tuple[int, ...] | None:
        """Return the strides, in bytes, of an operand, which may be the parts of complex numbers; None if it is dense."""
        t = value.type
        argument = self.arguments[location[0]] if isinstance(t, RefType) and t.layout != "c" else None
        if not isinstance(argument, DeviceArray) or argument.strides is None:
            return None
        is_part = len(argument.strides) < value.type.rank
        return (*argument.strides, value.type.dtype.bytes) if is_part else argument.strides

    def put(self, location: Location, constant: int) -> None:
        """Write an i64."""
        touch = FillStep(location, 8, constant & (1 << 64) - 1, 1, None, ())
        self.fill(touch, self.stream)

    def scalar(self, location: Location, dtype: np.dtype[Any]) -> Any:
        """Return the scalar at a location. Raises the error of an earlier failed check."""
        scalar = np.empty((), dtype)
        self.check([(self.address_of(location), scalar)])
        return scalar[()]

    def download_results(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """Fill arrays from rows; results that are complete early are copied first."""
        staging, first = self.device.staging, list(self.early)
        early = sorted((p for p in pairs if p[0] in self.early), key=lambda p: first.index(p[0]))
        if early:
            staging.download_concurrently([(self.rows[row], array, self.early[row]) for row, array in early])
        rest = [(self.address_of((row, 0)), array) for row, array in pairs if row not in self.early]
        staging.download(rest)

    def download(self, pairs: Sequence[tuple[Location, Any]]) -> None:
        self.device.staging.download([(self.address_of(location), array) for location, array in pairs])

    def upload(self, array: Any, location: Location) -> None:
        self.device.staging.upload(array, self.address_of(location))

    def check(self, also: Sequence[tuple[int, Any]] = ()) -> None:
        """Wait, fill the arrays of ``also`` from addresses, and raise the error of the first failed launch."""
        layout = self.layout
        if not layout.failing:
            if also:
                self.device.staging.download(also)
            return
        state = np.zeros(layout.state_bytes // 4, np.int32)
        self.device.staging.download([(self.rows[layout.state_row], state), *also])
        if not state.any():
            return
        code, ordinal = state[:2].tolist()
        if ordinal:
            raise self.executable.failed(layout.failing[ordinal - 1], code)
        first = int(np.flatnonzero(state)[0])
        raise self.executable.failed(layout.failing[first - 2], int(state[first]))


def stride_of(array: DeviceArray, axis: int) -> int:
    """Return the bytes between adjacent elements along an axis; beyond the last axis of a complex array, between the two
    parts."""
    if axis == array.ndim:
        return array.dtype.itemsize // 2
    strides = dense_strides(array.shape, array.dtype.itemsize) if array.strides is None else array.strides
    return strides[axis]


__all__ = ["Call", "stride_of"]
