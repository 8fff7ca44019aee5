"""One call of a program on a CUDA device: its addresses, and its parts, one after the other.

Work goes to the device's stream. NumPy's arrays go up on a stream of their own, each when the first step needs it, so that what
needs others runs meanwhile; and large results come down while later steps run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core.types import DTYPES, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.runtime.cuda.arrays.device_array import DeviceArray, dense_strides, spread
from pullback.runtime.cuda.device.graphs import Graph, captured
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.program.argument_blocks import scalar_bits
from pullback.runtime.cuda.program.layout import APART, Layout
from pullback.runtime.cuda.program.plan import Choice, Held, OnHost, Part, Turns, Until
from pullback.runtime.cuda.program.steps import Copied, Elsewhere, Filled, Piece, Place, Step

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.memory import Block


class Film:
    """The graphs of a program's pieces for one set of addresses and scalars, captured when they are first met. ``arena``: where
    all films of a tape have their temporaries, since they run one after the other, as their stream does. ``only``: the graph of a
    program that is one piece. ``is_met``: it was launched since one had to go."""

    __slots__ = ("arena", "graphs", "is_met", "only")

    def __init__(self, arena: Block | None) -> None:
        self.arena = arena
        self.graphs: dict[Piece, Graph] = {}
        self.only: Graph | None = None
        self.is_met = False


class Call:
    """A call under way; the device's context is current. ``waiting``: NumPy arrays that are not on the device yet, by row;
    ``early``: for results that are complete before the last step, by row, the event of that."""

    __slots__ = ("arena", "arguments", "device", "early", "executable", "film", "layout", "rows", "sizes", "stream", "waiting")

    def __init__(
        self, layout: Layout, rows: list[int], arguments: Sequence[Any], film: Film | None, waiting: dict[int, Any]
    ) -> None:
        self.layout = layout
        self.executable = layout.executable
        self.sizes: Mapping[str, int] = layout.sizes
        self.device = layout.device
        self.stream = layout.device.stream
        self.rows = rows
        self.arguments = arguments
        self.film = film
        self.waiting = waiting
        self.early: dict[int, Any] = {}
        self.arena: Block | None = None

    def run(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if type(part) is Piece:
                self.piece(part)
            elif isinstance(part, Turns):
                self.repeat(part)
            elif isinstance(part, Until):
                self.repeat_until(part)
            elif isinstance(part, Choice):
                self.run(part.regions[self.value(part.index)])
            elif isinstance(part, OnHost):
                self.on_host(part)

    # pieces

    def piece(self, piece: Piece) -> None:
        """Give the device the steps of a piece, as a graph if the call has one."""
        needed = [row for row in self.waiting if row in piece.arguments] if self.waiting else []
        film = self.film
        is_apart = sum(self.waiting[row].nbytes for row in needed) >= APART
        if film is None or is_apart or not piece.is_captured:
            self.each(piece, bool(needed))
            return
        for row in needed:
            self.bring(row)
        graph = film.graphs.get(piece)
        if graph is None:
            if piece not in self.layout.ran:
                # What its kernels take to be there is loaded at their first launch, which a capture does not allow.
                self.each(piece, False)
                return
            try:
                graph = film.graphs[piece] = self.graph(piece)
                film.only = graph if self.layout.is_one else None
            except (DeviceError, cuda.Error, AttributeError):
                # Launched one by one, the steps work or say what is wrong.
                self.forgo_graphs()
                self.each(piece, False)
                return
        self.device.launched.append(self.layout.named)
        graph.launch(self.device.handle)

    def graph(self, piece: Piece) -> Graph:
        """The steps of a piece with the addresses of this call. Raises DeviceError, and what the driver does."""
        works = [lambda stream, step=step: self.start(step, stream) for step in piece.steps]
        return captured(self.device, works, piece.after)

    def forgo_graphs(self) -> None:
        """This call, and those to come, launch no graphs."""
        layout = self.layout
        layout.is_repeatable = False
        self.film = None
        if not layout.is_exclusive:
            # The film's memory is for graphs, which run one after the other.
            self.arena = layout.take_arena()
            address = 0 if self.arena is None else self.arena.address
            self.rows[-2:] = address, address + layout.state_at

    def each(self, piece: Piece, is_waiting: bool) -> None:
        """One step after the other."""
        stream, ends = self.stream, self.layout.ends
        self.layout.ran.add(piece)
        for number, step in enumerate(piece.steps):
            if is_waiting:
                for touch in step.touches:
                    if touch.row in self.waiting:
                        self.bring(touch.row)
            self.start(step, stream)
            if (piece, number) in ends:
                for row in ends[piece, number]:
                    self.early[row] = self.device.staging.reached(stream)

    def start(self, step: Step, stream: Any) -> None:
        """Give a stream a step."""
        rows = self.rows
        if isinstance(step, Copied):
            (source, first), (target, second) = step.source, step.target
            cuda.memcpy_dtod_async(rows[target] + second, rows[source] + first, step.size, stream)
            return
        if isinstance(step, Filled):
            self.fill(step, stream)
            return
        launched, title = self.device.launched, self.executable.title
        if isinstance(step, Elsewhere):
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

    def fill(self, step: Filled, stream: Any) -> None:
        row, shift = step.target
        address, value = self.rows[row] + shift, step.value
        if step.scalar is not None:
            position, dtype = step.scalar
            found = np.asarray(self.arguments[position], DTYPES[dtype].numpy)
            value = int.from_bytes(found.tobytes(), "little")
        if step.unit == 1:
            cuda.memset_d8_async(address, value, step.count, stream)
        elif step.unit == 2:
            cuda.memset_d16_async(address, value, step.count, stream)
        else:
            for k in range(step.unit // 4):
                cuda.memset_d32_async(address + 4 * k, value >> 32 * k & 0xFFFFFFFF, step.count, stream)

    # what the host decides

    def value(self, held: Held) -> int:
        """Returns a number that decides. Waits for the device where it is there. Raises what a check says that failed before."""
        if held.place is None:
            return int(self.arguments[held.position])
        return int(self.number(held.place, held.dtype))

    def repeat(self, turns: Turns) -> None:
        """Run a loop of so many turns."""
        count = turns.count if isinstance(turns.count, int) else self.value(turns.count)
        self.put(turns.position, count - 1 if turns.is_reverse else 0)
        states, state, done = turns.states, 0, 0
        while done < count:
            if turns.several is not None and not state and count - done >= turns.several[0]:
                done += turns.several[0]
                self.run(turns.several[1])
                continue
            done += 1
            self.run(states.bodies[state])
            state = states.following[state]
        if not isinstance(turns.count, int):
            self.run(states.endings[state])

    def repeat_until(self, until: Until) -> None:
        """Run a loop as long as what a turn leaves says."""
        self.put(until.position, 0)
        self.run(until.first)
        states, state = until.states, 0
        while self.value(until.goes_on[state]):
            self.run(states.bodies[state])
            state = states.following[state]
        self.run(states.endings[state])

    def on_host(self, part: OnHost) -> None:
        """Run a step in Python, or a launch by the CPU, on copies."""
        i = part.instruction
        shapes = [self.executable.shape(v, self.sizes) for v in i.operands]
        values: list[Any] = []
        pairs = []
        for v, place, position, shape in zip(i.operands, part.places, part.positions, shapes, strict=True):
            if place is None:
                values.append(self.arguments[position])
                continue
            dtype, strides = v.type.dtype.numpy, self.strides(v, place)
            if strides is None:
                values.append(np.empty(shape, dtype))
                pairs.append((place, values[-1]))
            else:
                # What lies between its elements comes too.
                first, whole, view = spread(shape, dtype, strides)
                values.append(view)
                pairs.append(((place[0], place[1] + first), whole))
        self.check()
        self.download(pairs)
        changed: Sequence[int]
        if isinstance(i.op, Host):
            i.op.run(values, i.params)
            changed = range(len(values) - i.op.outputs(i.params), len(values))
        else:
            changed = self.executable.written[i.params["kernel"]]
            results = iter(self.executable.on_host(i).run(list(values), self.sizes))
            values = [a if shape or p is None else next(results) for a, p, shape in zip(values, part.places, shapes, strict=True)]
        for k in changed:
            place = part.places[k]
            if place is not None:
                self.upload(np.ascontiguousarray(values[k]).reshape(shapes[k]), place)

    # what the host knows

    def bring(self, row: int) -> None:
        """Have an array on the device: what the stream is given from now on comes after."""
        array = self.waiting.pop(row)
        staging = self.device.staging
        (staging.upload_beside if array.nbytes >= APART else staging.upload)(array, self.rows[row])

    def needs(self, place: Place) -> int:
        """The address of a place, when it is filled."""
        row, shift = place
        if row in self.waiting:
            self.bring(row)
        return self.rows[row] + shift

    def strides(self, value: Value, place: Place) -> tuple[int, ...] | None:
        """The strides, in bytes, of what is at a place, be it the parts of complex numbers; None of what is dense."""
        t = value.type
        given = self.arguments[place[0]] if isinstance(t, RefType) and t.layout != "c" else None
        if not isinstance(given, DeviceArray) or given.strides is None:
            return None
        is_part = len(given.strides) < value.type.rank
        return (*given.strides, value.type.dtype.bytes) if is_part else given.strides

    def put(self, place: Place, number: int) -> None:
        """Write an i64."""
        touch = Filled(place, 8, number & (1 << 64) - 1, 1, None, ())
        self.fill(touch, self.stream)

    def number(self, place: Place, dtype: np.dtype[Any]) -> Any:
        """What is at a place. Raises what a check says that failed before."""
        found = np.empty((), dtype)
        self.check([(self.needs(place), found)])
        return found[()]

    def bring_down(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """Fill arrays from rows; first those that are complete first."""
        staging, first = self.device.staging, list(self.early)
        early = sorted((p for p in pairs if p[0] in self.early), key=lambda p: first.index(p[0]))
        if early:
            staging.download_beside([(self.rows[row], array, self.early[row]) for row, array in early])
        rest = [(self.needs((row, 0)), array) for row, array in pairs if row not in self.early]
        staging.download(rest)

    def download(self, pairs: Sequence[tuple[Place, Any]]) -> None:
        self.device.staging.download([(self.needs(place), array) for place, array in pairs])

    def upload(self, array: Any, place: Place) -> None:
        self.device.staging.upload(array, self.needs(place))

    def check(self, also: Sequence[tuple[int, Any]] = ()) -> None:
        """Wait, fill arrays from addresses, and raise what the first launch says that failed."""
        layout = self.layout
        if not layout.failing:
            if also:
                self.device.staging.download(also)
            return
        state = np.zeros(layout.state_bytes // 4, np.int32)
        self.device.staging.download([(self.rows[layout.state_row], state), *also])
        if not state.any():
            return
        code, number = state[:2].tolist()
        if number:
            raise self.executable.failed(layout.failing[number - 1], code)
        first = int(np.flatnonzero(state)[0])
        raise self.executable.failed(layout.failing[first - 2], int(state[first]))


def stride_of(array: DeviceArray, axis: int) -> int:
    """The bytes from one element to the next along an axis; beyond the last axis of complex numbers, from part to part."""
    if axis == array.ndim:
        return array.dtype.itemsize // 2
    strides = dense_strides(array.shape, array.dtype.itemsize) if array.strides is None else array.strides
    return strides[axis]


__all__ = ["Call", "stride_of"]
