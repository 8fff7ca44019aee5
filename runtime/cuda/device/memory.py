"""Memory of a CUDA device: a pool of buffers, and pinned memory through which host arrays are copied.

All work of a device goes to one stream, in the order in which the host enqueues it. Therefore a buffer that is no longer held
can be reused at once, without a driver call: earlier work with it runs first. A buffer that was lent to other libraries may be
in use on their streams, and is not reused until the device is synchronised.

A block may die in any thread, with any context, and during garbage collection; its end only adds it to a queue, which is
processed when the next block is taken.
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
"""The bytes of one piece of pinned memory."""
PART = 1 << 20
"""The largest bytes of one copy from or to pinned memory."""
NON_BLOCKING = 1
"""Flag of a stream that does not synchronise with the default stream (CU_STREAM_NON_BLOCKING)."""


class Block:
    """Device memory at ``address``, returned to its pool when this object dies. ``is_lent``: other libraries have its address."""

    __slots__ = ("_dead", "address", "is_lent", "size")

    def __init__(self, address: int, size: int, dead: deque[tuple[int, int, bool]]) -> None:
        self.address = address
        self.size = size
        self.is_lent = False
        self._dead = dead

    def release(self) -> None:
        """Return the memory to the pool although this object may still be held."""
        if self.address:
            self._dead.append((self.address, self.size, self.is_lent))
            self.address = 0

    __del__ = release


class Pool:
    """The blocks of a device, whose context must be current. ``release_cached`` drops what is held for later calls, when
    memory is short; ``capture_lock`` is held during driver calls that must not overlap with a capture."""

    grain = 512
    """The bytes of which block sizes are multiples; large sizes are multiples of an eighth of the power of two below them."""

    def __init__(self, release_cached: Callable[[], None], capture_lock: AbstractContextManager[Any]) -> None:
        self._lock = threading.RLock()
        self._capture_lock = capture_lock
        self._release_cached = release_cached
        self._dead: deque[tuple[int, int, bool]] = deque()
        self._free: dict[int, list[int]] = {}
        self._lent: list[tuple[int, int]] = []
        self._owners: dict[int, Any] = {}
        self.held_bytes = 0

    def take(self, size: int, description: str) -> Block:
        """Return a block of at least ``size`` bytes. Raises DeviceMemoryError that calls it ``description``."""
        return self.take_all(((self.rounded(size), size, description),))[0]

    def take_all(self, requests: Sequence[tuple[int, int, str]]) -> list[Block]:
        """Return a block for each request (rounded size, size, description). Raises DeviceMemoryError that names the
        description."""
        blocks = []
        dead = self._dead
        with self._lock:
            if dead:
                self._collect()
            for rounded, size, description in requests:
                free = self._free.get(rounded)
                if free:
                    blocks.append(Block(free.pop(), rounded, dead))
                else:
                    blocks.append(Block(self._new(rounded, size, description), rounded, dead))
        return blocks

    def rounded(self, size: int) -> int:
        """Return the size of the block that holds ``size`` bytes."""
        if size <= self.grain:
            return self.grain
        step = max(self.grain, 1 << size.bit_length() - 4) if self.grain > 16 else self.grain
        return -(-size // step) * step

    def _new(self, rounded: int, size: int, description: str) -> int:
        for attempt in range(3):
            try:
                with self._capture_lock:
                    owner = cuda.mem_alloc(rounded)
            except cuda.MemoryError as error:
                if attempt == 0:
                    self.trim()
                elif attempt == 1:
                    self._release_cached()
                    gc.collect()
                    self.trim()
                else:
                    free, total = cuda.mem_get_info()
                    raise DeviceMemoryError(
                        f"no memory for {description}, {size:,} bytes: of {total:,} on the device {free:,} are free, "
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
            self._reclaim_lent()

    def _reclaim_lent(self) -> None:
        """Make lent blocks reusable, after synchronising the device."""
        with self._capture_lock:
            cuda.Context.synchronize()
        for address, size in self._lent:
            self._free.setdefault(size, []).append(address)
        self._lent.clear()

    def trim(self) -> None:
        """Return free blocks to the driver."""
        with self._lock, self._capture_lock:
            self._collect()
            if self._lent:
                self._reclaim_lent()
            for size, addresses in self._free.items():
                for address in addresses:
                    self._owners.pop(address).free()
                    self.held_bytes -= size
            self._free.clear()

    def close(self) -> None:
        """Free all memory, at the end of the process."""
        for owner in self._owners.values():
            owner.free()
        self._owners.clear()
        self._free.clear()


class Staging:
    """Copies between host arrays and a device, through pinned memory: in the order of the device's stream, or, for large
    arrays, concurrently on separate streams, with events that order them as far as needed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._up, self._down = cuda.Stream(NON_BLOCKING), cuda.Stream(NON_BLOCKING)
        self._lock = threading.Lock()
        self._pieces = [_Pinned((stream, self._up)) for _ in range(2)]
        self._back = [_Pinned((stream, self._down)) for _ in range(2)]
        self._fence, self._landed = _event(), _event()
        self._spare: list[Any] = []

    def upload(self, array: Any, address: int) -> None:
        """Copy a row-major NumPy array to the device. The array may be changed after the call."""
        with self._lock:
            self._send(_bytes_of(array), address, self._stream)

    def begin(self) -> None:
        """Let ``upload_concurrently`` fill memory taken so far, after the stream's work enqueued so far."""
        with self._lock:
            self._fence.record(self._stream)
            self._up.wait_for_event(self._fence)

    def upload_concurrently(self, array: Any, address: int) -> None:
        """Copy an array concurrently with the stream's work enqueued since ``begin``; later work of the stream waits for the
        copy."""
        with self._lock:
            try:
                self._send(_bytes_of(array), address, self._up)
            finally:
                self._landed.record(self._up)
                self._stream.wait_for_event(self._landed)

    def _send(self, source: Any, address: int, stream: Any) -> None:
        """Copy bytes to the device in parts: one part is written to pinned memory while earlier ones are transferred."""
        for start in range(0, len(source), PART):
            part = source[start : start + PART]
            if not self._pieces[0].fits(len(part)):
                self._pieces[0].record()
                self._pieces.reverse()
                self._pieces[0].reuse()
            buffer = self._pieces[0].allocate(len(part), stream)
            buffer[...] = part
            cuda.memcpy_htod_async(address + start, buffer, stream)

    def record_event(self, stream: Any) -> Any:
        """Return an event after the work enqueued so far on a stream, for ``download_concurrently``."""
        with self._lock:
            event = self._spare.pop() if self._spare else _event()
        event.record(stream)
        return event

    def download(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """Fill row-major NumPy arrays from addresses, after all work enqueued so far."""
        with self._lock:
            self._fetch([(address, array, None) for address, array in pairs], self._stream)

    def download_concurrently(self, copies: Sequence[tuple[int, Any, Any]]) -> None:
        """Fill NumPy arrays from addresses, each once its event is over, concurrently with later work of the stream."""
        with self._lock:
            self._fetch(copies, self._down)
            self._spare += [event for _, _, event in copies]

    def _fetch(self, copies: Sequence[tuple[int, Any, Any]], stream: Any) -> None:
        """Copy from the device: one piece of pinned memory is emptied while the other is filled."""
        for piece in self._back:
            piece.reuse()
        try:
            self._fetch_all(copies, stream)
        except BaseException:
            # After an interrupt, the next call waits for the copies in progress.
            for piece in self._back:
                piece.record()
            raise
        for piece in self._back:
            piece.done()

    def _fetch_all(self, copies: Sequence[tuple[int, Any, Any]], stream: Any) -> None:
        waiting: list[tuple[Any, Any]] = []
        before: list[tuple[Any, Any]] = []
        back = self._back
        for address, array, event in copies:
            if event is not None:
                stream.wait_for_event(event)
            target = _bytes_of(array)
            for start in range(0, len(target), PART):
                part = target[start : start + PART]
                if not back[0].fits(len(part)):
                    back[0].record()
                    back.reverse()
                    _empty(back[0], before)
                    before, waiting = waiting, []
                buffer = back[0].allocate(len(part), stream)
                cuda.memcpy_dtoh_async(buffer, address + start, stream)
                waiting.append((part, buffer))
        if before:
            _empty(back[1], before)
        stream.synchronize()
        for target, source in waiting:
            target[...] = source

    def close(self) -> None:
        """Destroy streams and events, which must end within the context."""
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

    def allocate(self, size: int, stream: Any) -> Any:
        """Return the next ``size`` bytes, for a copy on a stream."""
        self._users.add(0 if stream is self._streams[0] else 1)
        start, self._used = self._used, self._used + -(-size // 64) * 64
        return self._memory[start : start + size]

    def record(self) -> None:
        """Record events after the copies made so far; nothing is added until ``reuse``."""
        for k in self._users:
            self._events[k].record(self._streams[k])
        self._recorded |= self._users
        self._users.clear()

    def reuse(self) -> None:
        """Wait for earlier copies, and start again at the beginning."""
        for k in self._recorded:
            self._events[k].synchronize()
        self.done()

    def done(self) -> None:
        """Mark all earlier copies as complete."""
        self._recorded.clear()
        self._users.clear()
        self._used = 0

    def close(self) -> None:
        self._events.clear()
        self._memory = None
        self._streams = (None, None)


def _empty(piece: _Pinned, waiting: list[tuple[Any, Any]]) -> None:
    """Copy the parts of a piece to their targets, after waiting for them."""
    piece.reuse()
    for target, source in waiting:
        target[...] = source
    waiting.clear()


def _event() -> Any:
    return cuda.Event(cuda.event_flags.DISABLE_TIMING)


def _bytes_of(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)
