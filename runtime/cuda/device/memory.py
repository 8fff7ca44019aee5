"""Memory of a CUDA device: a pool for buffers, and pinned memory through which the host's arrays pass.

All work of a device goes to one stream, in the order in which the host asks for it. So a buffer that nobody holds any more may
be given to the next who asks at once, without a word to the driver: what still runs with it runs before. What was shown to
other libraries may be in use on streams of theirs, and waits until the device has nothing to do.

A block may die in any thread, with any context, and during a collection; so its end only goes to a queue, which is read where
the next block is taken.
"""

from __future__ import annotations

import gc
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceMemoryError

CHUNK = 1 << 22
"""Bytes of one piece of pinned memory."""
PART = 1 << 20
"""Bytes of one copy from or to it."""
APART = 1
"""A stream that does not wait for the default stream."""


class Block:
    """Memory of a device, at ``address``; it goes back to its pool when nobody holds it. ``is_lent``: other libraries know it."""

    __slots__ = ("_dead", "address", "is_lent", "size")

    def __init__(self, address: int, size: int, dead: deque[tuple[int, int, bool]]) -> None:
        self.address = address
        self.size = size
        self.is_lent = False
        self._dead = dead

    def release(self) -> None:
        """Nobody uses it any more, though it may still be held."""
        if self.address:
            self._dead.append((self.address, self.size, self.is_lent))
            self.address = 0

    __del__ = release


class Pool:
    """The blocks of a device, whose context is current. ``let_go`` drops what is held for calls to come, when memory is short;
    ``apart`` is held where a driver allows no capture beside."""

    grain = 512
    """Sizes are multiples of this, and large ones of an eighth of the power of two below them."""

    def __init__(self, let_go: Callable[[], None], apart: AbstractContextManager[Any]) -> None:
        self._lock = threading.RLock()
        self._apart = apart
        self._let_go = let_go
        self._dead: deque[tuple[int, int, bool]] = deque()
        self._free: dict[int, list[int]] = {}
        self._lent: list[tuple[int, int]] = []
        self._owners: dict[int, Any] = {}
        self.held_bytes = 0

    def take(self, size: int, what: str) -> Block:
        """A block for so many bytes. Raises DeviceMemoryError, which calls it ``what``."""
        return self.take_all(((self.rounded(size), size, what),))[0]

    def take_all(self, wanted: Sequence[tuple[int, int, str]]) -> list[Block]:
        """Blocks for so many bytes each, which were ``rounded``. Raises DeviceMemoryError, with what it calls them."""
        made = []
        dead = self._dead
        with self._lock:
            if dead:
                self._collect()
            for rounded, size, what in wanted:
                found = self._free.get(rounded)
                if found:
                    made.append(Block(found.pop(), rounded, dead))
                else:
                    made.append(Block(self._new(rounded, size, what), rounded, dead))
        return made

    def rounded(self, size: int) -> int:
        """The bytes of a block for so many."""
        if size <= self.grain:
            return self.grain
        step = max(self.grain, 1 << size.bit_length() - 4) if self.grain > 16 else self.grain
        return -(-size // step) * step

    def _new(self, rounded: int, size: int, what: str) -> int:
        for attempt in range(3):
            try:
                with self._apart:
                    owner = cuda.mem_alloc(rounded)
            except cuda.MemoryError as error:
                if attempt == 0:
                    self.trim()
                elif attempt == 1:
                    self._let_go()
                    gc.collect()
                    self.trim()
                else:
                    free, total = cuda.mem_get_info()
                    raise DeviceMemoryError(
                        f"no memory for {what}, {size:,} bytes: of {total:,} on the device {free:,} are free, "
                        f"{self.held_bytes:,} are in arrays and buffers of this process; what was free has been given back"
                    ) from error
            else:
                address = int(owner)
                self._owners[address] = owner
                self.held_bytes += rounded
                return address
        raise AssertionError("three attempts")

    def _collect(self) -> None:
        dead, free = self._dead, self._free
        while dead:
            address, size, is_lent = dead.popleft()
            if is_lent:
                self._lent.append((address, size))
                continue
            if size in free:
                free[size].append(address)
            else:
                free[size] = [address]
        if len(self._lent) > 64:
            self._settle()

    def _settle(self) -> None:
        """Takes back what other libraries knew, once nothing runs on the device."""
        with self._apart:
            cuda.Context.synchronize()
        for address, size in self._lent:
            self._free.setdefault(size, []).append(address)
        self._lent.clear()

    def trim(self) -> None:
        """Give free blocks back to the driver."""
        with self._lock, self._apart:
            self._collect()
            if self._lent:
                self._settle()
            for size, addresses in self._free.items():
                for address in addresses:
                    self._owners.pop(address).free()
                    self.held_bytes -= size
            self._free.clear()

    def close(self) -> None:
        """Give everything back: the process ends."""
        for owner in self._owners.values():
            owner.free()
        self._owners.clear()
        self._free.clear()


class Staging:
    """Copies between the host's arrays and a device, through pinned memory: in the order of its stream, or, of large arrays,
    beside it on streams of their own, which wait for it and for which it waits, as far as they must."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._up, self._down = cuda.Stream(APART), cuda.Stream(APART)
        self._lock = threading.Lock()
        self._pieces = [_Pinned((stream, self._up)) for _ in range(2)]
        self._back = [_Pinned((stream, self._down)) for _ in range(2)]
        self._fence, self._landed = _event(), _event()
        self._spare: list[Any] = []

    def upload(self, array: Any, address: int) -> None:
        """Copy a NumPy array, row-major, to the device. What happens to the array afterwards does not matter."""
        with self._lock:
            self._give(_bytes_of(array), address, self._stream)

    def begin(self) -> None:
        """Memory that was taken so far may be filled by ``upload_beside``: what the stream does with it comes first."""
        with self._lock:
            self._fence.record(self._stream)
            self._up.wait_for_event(self._fence)

    def upload_beside(self, array: Any, address: int) -> None:
        """The same beside what the stream has been given since ``begin``; what it is given from now on comes after."""
        with self._lock:
            try:
                self._give(_bytes_of(array), address, self._up)
            finally:
                self._landed.record(self._up)
                self._stream.wait_for_event(self._landed)

    def _give(self, source: Any, address: int, stream: Any) -> None:
        """One part is put into pinned memory while those before are copied."""
        for start in range(0, len(source), PART):
            part = source[start : start + PART]
            if not self._pieces[0].fits(len(part)):
                self._pieces[0].leave()
                self._pieces.reverse()
                self._pieces[0].reuse()
            room = self._pieces[0].room(len(part), stream)
            room[...] = part
            cuda.memcpy_htod_async(address + start, room, stream)

    def reached(self, stream: Any) -> Any:
        """An event of what a stream has been given so far, for ``download_beside``."""
        with self._lock:
            event = self._spare.pop() if self._spare else _event()
        event.record(stream)
        return event

    def download(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """Fill NumPy arrays, row-major, from addresses, when all work so far is done."""
        with self._lock:
            self._fetch([(address, array, None) for address, array in pairs], self._stream)

    def download_beside(self, those: Sequence[tuple[int, Any, Any]]) -> None:
        """Fill NumPy arrays from addresses, each when its event is over, whatever the stream does meanwhile."""
        with self._lock:
            self._fetch(those, self._down)
            self._spare += [event for _, _, event in those]

    def _fetch(self, those: Sequence[tuple[int, Any, Any]], stream: Any) -> None:
        """One piece is emptied while the other is filled."""
        for piece in self._back:
            piece.reuse()
        try:
            self._fetch_all(those, stream)
        except BaseException:
            # Who comes after an interrupt waits for what is under way.
            for piece in self._back:
                piece.leave()
            raise
        for piece in self._back:
            piece.done()

    def _fetch_all(self, those: Sequence[tuple[int, Any, Any]], stream: Any) -> None:
        waiting: list[tuple[Any, Any]] = []
        before: list[tuple[Any, Any]] = []
        back = self._back
        for address, array, event in those:
            if event is not None:
                stream.wait_for_event(event)
            target = _bytes_of(array)
            for start in range(0, len(target), PART):
                part = target[start : start + PART]
                if not back[0].fits(len(part)):
                    back[0].leave()
                    back.reverse()
                    _empty(back[0], before)
                    before, waiting = waiting, []
                room = back[0].room(len(part), stream)
                cuda.memcpy_dtoh_async(room, address + start, stream)
                waiting.append((part, room))
        if before:
            _empty(back[1], before)
        stream.synchronize()
        for target, source in waiting:
            target[...] = source

    def close(self) -> None:
        """Let go of what must end in the context."""
        for piece in (*self._pieces, *self._back):
            piece.close()
        self._spare.clear()
        self._up = self._down = self._fence = self._landed = None


class _Pinned:
    """A piece of pinned memory, for copies on one of two streams."""

    __slots__ = ("_events", "_memory", "_recorded", "_streams", "_used", "_users")

    def __init__(self, streams: tuple[Any, Any]) -> None:
        self._streams = streams
        self._memory = cuda.pagelocked_empty(CHUNK, np.uint8)
        self._events = [_event() for _ in streams]
        self._used = 0
        self._users: set[int] = set()
        self._recorded: set[int] = set()

    def fits(self, size: int) -> bool:
        return self._used + size <= CHUNK

    def room(self, size: int, stream: Any) -> Any:
        """So much of it, for a copy on a stream."""
        self._users.add(0 if stream is self._streams[0] else 1)
        start, self._used = self._used, self._used + -(-size // 64) * 64
        return self._memory[start : start + size]

    def leave(self) -> None:
        """Nothing more goes there for now."""
        for k in self._users:
            self._events[k].record(self._streams[k])
        self._recorded |= self._users
        self._users.clear()

    def reuse(self) -> None:
        """Wait for the copies of before, and begin anew."""
        for k in self._recorded:
            self._events[k].synchronize()
        self.done()

    def done(self) -> None:
        """All copies of before are over."""
        self._recorded.clear()
        self._users.clear()
        self._used = 0

    def close(self) -> None:
        self._events.clear()
        self._memory = None
        self._streams = (None, None)


def _empty(piece: _Pinned, waiting: list[tuple[Any, Any]]) -> None:
    """Copy from a piece to where its parts belong, when they are there."""
    piece.reuse()
    for target, source in waiting:
        target[...] = source
    waiting.clear()


def _event() -> Any:
    return cuda.Event(cuda.event_flags.DISABLE_TIMING)


def _bytes_of(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)
