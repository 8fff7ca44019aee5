"""Programs on a CUDA device, written out, and called.

A call takes a block for all temporaries and one for each result, fills in addresses, and launches. Calls that come again with the
same addresses and scalars, as in a loop that trains, launch CUDA graphs, one for each piece: a film.
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
from pullback.runtime.cuda.arrays.device_array import DeviceArray, settle, wait_for
from pullback.runtime.cuda.device.memory import Block
from pullback.runtime.cuda.program.argument_blocks import scalar_key
from pullback.runtime.cuda.program.call import Call, Film
from pullback.runtime.cuda.program.layout import APART, Layout
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram

KEPT_FILMS = 8


class Tape(Layout):
    """A program with its sizes. ``films``: those of the addresses and scalars that were met last, None for what was met once.
    Raises Unfit."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        super().__init__(executable, instance)
        self.films: OrderedDict[tuple[Any, ...], Film | None] = OrderedDict()
        self.arena: Block | None = None
        self.lock = threading.Lock()
        # Held by a call that reads what it left in the arena.
        self.busy = threading.Lock()
        self.device.tapes.add(self)

    def again(self, arguments: Sequence[Any]) -> list[Any] | None:
        """The results of a call of arrays of ours on the device, which is one launch where there is a graph for it; None for
        other calls."""
        device, rows = self.device, []
        for k in self.arrays:
            argument = arguments[k]
            if type(argument) is not DeviceArray or type(argument.owner) is not Block or argument.place is not device:
                return None
            rows.append(argument.address)
        with device:
            blocks = device.pool.take_all(self.results)
            for block in blocks:
                rows.append(block.address)
            key = (*rows, self._packed(arguments)) if self.scalars else tuple(rows)
            film = self.films.get(key)
            if film is None or film.only is None:
                return self.run(arguments, True, blocks)
            film.is_met = True
            device.launched.append(self.named)
            film.only.launch(device.handle)
        return [
            DeviceArray(device, blocks[which].address, dtype, shape, blocks[which], None, (), key)
            for which, dtype, shape, key in self.fresh
        ]

    def run(self, arguments: Sequence[Any], keeps: bool, blocks: Sequence[Block] | None = None) -> list[Any]:
        """The results: arrays on the device if it ``keeps`` them, else NumPy's. ``blocks``: memory for them that was taken."""
        device = self.device
        owners: list[Any] = []
        rows: list[int] = []
        foreign = []
        waiting: dict[int, Any] = {}
        for parameter, argument in zip(self.executable.program.parameters, arguments, strict=True):
            if type(argument) is DeviceArray:
                if type(argument.owner) is not Block:
                    wait_for(argument)
                    foreign.append(argument)
                owner: Any = argument
            elif isinstance(parameter.type, RefType):
                owner, waiting[len(rows)] = self._room_for(parameter, argument)
            else:
                owner = None
            owners.append(owner)
            rows.append(0 if owner is None else owner.address)
        blocks = device.pool.take_all(self.results) if blocks is None else blocks
        owners += blocks
        rows += [block.address for block in blocks]
        if waiting and any(array.nbytes >= APART for array in waiting.values()):
            device.staging.begin()
        is_apart = self.is_one and sum(array.nbytes for array in waiting.values()) >= APART
        film = self._film(rows, arguments) if self.is_repeatable and not is_apart else None
        try:
            call = self._run(rows, arguments, film, waiting)
            made = self._kept(call, owners) if keeps else self._copied(call, owners)
            if self.failing:
                call.check()
        except BaseException:
            # What a kept traceback holds is not in use.
            owners.clear()
            blocks = made = []
            raise
        finally:
            if film is not None and self.is_exclusive:
                self.busy.release()
        for array in foreign:
            settle(array)
        return made

    def rooms(self, chosen: Sequence[DeviceArray | None]) -> list[Block]:
        """Memory for the results: of the arrays that were chosen for them where these begin with it, else taken. The context is
        current."""
        pairs = zip(self.plan.shown, self.results, strict=True)
        return [self._room_of(value, chosen) or self.device.pool.take_all([each])[0] for value, each in pairs]

    def _room_of(self, value: Value, chosen: Sequence[DeviceArray | None]) -> Block | None:
        given = chosen[self.executable.program.results.index(value)]
        whole = None if given is None else given.owner
        return whole if given is not None and isinstance(whole, Block) and whole.address == given.address else None

    def _room_for(self, parameter: Value, argument: Any) -> tuple[Block, Any]:
        t = parameter.type
        assert isinstance(t, RefType)
        array = np.ascontiguousarray(argument, t.dtype.numpy)
        shape = ",".join(map(str, array.shape))
        what = f"argument {parameter.name} of {self.executable.title} ({t.dtype}[{shape}])"
        return self.device.take(array.nbytes, what), array

    def _run(self, rows: list[int], arguments: Sequence[Any], film: Film | None, waiting: dict[int, Any]) -> Call:
        arena = self.take_arena() if film is None else film.arena
        address = 0 if arena is None else arena.address
        call = Call(self, [*rows, address, address + self.state_at], arguments, film, waiting)
        call.arena = arena
        call.run(self.parts)
        return call

    def let_go(self) -> None:
        """Drop what holds memory for calls to come."""
        self.films.clear()
        self.arena = None

    def _film(self, rows: Sequence[int], arguments: Sequence[Any]) -> Film | None:
        """The film for these addresses and scalars; there is one from the second call with them on. None where another call has
        its arena."""
        first = len(self.executable.program.parameters)
        key: tuple[Any, ...] = (*[rows[k] for k in self.arrays], *rows[first:])
        if self.scalars:
            key = *key, self._packed(arguments)
        if self.strided:
            key = *key, *[getattr(arguments[position], "strides", None) for position in self.strided]
        with self.lock:
            is_known = key in self.films
            film = self.films.pop(key, None)
            if is_known and film is None:
                if self.arena is None:
                    self.arena = self.take_arena()
                film = Film(self.arena)
            while len(self.films) >= KEPT_FILMS:
                old, other = self.films.popitem(last=False)
                if other is not None and other.is_met:
                    other.is_met = False
                    self.films[old] = other
            self.films[key] = film
        if film is None or (self.is_exclusive and not self.busy.acquire(blocking=False)):
            return None
        return film

    def _packed(self, arguments: Sequence[Any]) -> Any:
        """What tells the scalars of calls apart: 0.0 and -0.0 are two."""
        try:
            return self.packer.pack(*[arguments[position] for position, _ in self.scalars])
        except struct.error:
            return tuple(scalar_key(arguments[position], dtype) for position, dtype in self.scalars)

    def _kept(self, call: Call, owners: Sequence[Any]) -> list[Any]:
        made = []
        for shown in self.shown:
            owner, address = owners[shown.row], call.needs((shown.row, 0))
            if isinstance(owner, DeviceArray):
                made.append(owner.result(shown.dtype, shown.shape))
            else:
                made.append(DeviceArray(self.device, address, shown.dtype, shown.shape, owner))
        return made

    def _copied(self, call: Call, owners: Sequence[Any]) -> list[Any]:
        made, pairs = [], []
        for shown in self.shown:
            owner = owners[shown.row]
            if isinstance(owner, DeviceArray) and owner.strides is not None:
                made.append(owner.seen_as(shown.dtype, shown.shape).copy_to_host())
                continue
            made.append(np.empty(shown.shape, shown.dtype))
            pairs.append((shown.row, made[-1]))
        call.bring_down(pairs)
        self.device.launched.clear()
        return made
