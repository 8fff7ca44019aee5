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
from typing import Any

import numpy as np

from pullback.runtime.cuda_driver import cuda
from pullback.runtime.cuda_errors import DeviceMemoryError

CHUNK = 1 << 22
"""Bytes of one piece of pinned memory."""


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
    ``settle`` waits until nothing runs there."""

    grain = 512
    """Sizes are multiples of this, and large ones of an eighth of the power of two below them."""

    def __init__(self, let_go: Callable[[], None], settle: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self._let_go = let_go
        self._wait = settle
        self._dead: deque[tuple[int, int, bool]] = deque()
        self._free: dict[int, list[int]] = {}
        self._lent: list[tuple[int, int]] = []
        self._owners: dict[int, Any] = {}
        self.held_bytes = 0
        self.free_bytes = 0

    def take(self, size: int, what: str) -> Block:
        """A block for so many bytes. Raises DeviceMemoryError, which calls it ``what``."""
        rounded = self._rounded(size)
        with self._lock:
            if self._dead:
                self._collect()
            found = self._free.get(rounded)
            if found:
                self.free_bytes -= rounded
                return Block(found.pop(), rounded, self._dead)
            return Block(self._new(rounded, size, what), rounded, self._dead)

    def _rounded(self, size: int) -> int:
        if size <= self.grain:
            return self.grain
        step = max(self.grain, 1 << size.bit_length() - 4) if self.grain > 16 else self.grain
        return -(-size // step) * step

    def _new(self, rounded: int, size: int, what: str) -> int:
        for attempt in range(3):
            try:
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
        while self._dead:
            address, size, is_lent = self._dead.popleft()
            if is_lent:
                self._lent.append((address, size))
            else:
                self._keep(address, size)
        if self._lent and len(self._lent) > 64:
            self._settle()

    def _keep(self, address: int, size: int) -> None:
        self._free.setdefault(size, []).append(address)
        self.free_bytes += size

    def _settle(self) -> None:
        """Takes back what other libraries knew, once nothing runs on the device."""
        self._wait()
        for address, size in self._lent:
            self._keep(address, size)
        self._lent.clear()

    def trim(self) -> None:
        """Give free blocks back to the driver."""
        with self._lock:
            self._collect()
            if self._lent:
                self._settle()
            for size, addresses in self._free.items():
                for address in addresses:
                    self._owners.pop(address).free()
                    self.held_bytes -= size
            self._free.clear()
            self.free_bytes = 0

    def close(self) -> None:
        """Give everything back: the process ends."""
        for owner in self._owners.values():
            owner.free()
        self._owners.clear()
        self._free.clear()


class Staging:
    """Copies between the host's arrays and a device, through pinned memory, in the order of a stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._chunks = [cuda.pagelocked_empty(CHUNK, np.uint8) for _ in range(2)]
        self._events = [cuda.Event(cuda.event_flags.DISABLE_TIMING) for _ in range(2)]
        self._recorded = [False, False]
        self._back = cuda.pagelocked_empty(CHUNK, np.uint8)
        self._current = self._used = 0

    def upload(self, array: Any, address: int) -> None:
        """Copy a NumPy array, row-major, to the device. What happens to the array afterwards does not matter."""
        source = _bytes_of(array)
        with self._lock:
            for start in range(0, len(source), CHUNK):
                piece = source[start : start + CHUNK]
                room = self._room(len(piece))
                room[...] = piece
                cuda.memcpy_htod_async(address + start, room, self._stream)

    def _room(self, size: int) -> Any:
        """So much pinned memory that no copy reads any more."""
        if self._used + size > CHUNK:
            self._events[self._current].record(self._stream)
            self._recorded[self._current] = True
            self._current, self._used = 1 - self._current, 0
            if self._recorded[self._current]:
                self._events[self._current].synchronize()
        start, self._used = self._used, self._used + -(-size // 64) * 64
        return self._chunks[self._current][start : start + size]

    def download(self, pairs: Sequence[tuple[int, Any]]) -> None:
        """Fill NumPy arrays, row-major, from addresses, when all work so far is done."""
        with self._lock:
            waiting: list[tuple[Any, Any]] = []
            used = 0
            for address, array in pairs:
                target = _bytes_of(array)
                for start in range(0, len(target), CHUNK):
                    piece = target[start : start + CHUNK]
                    if used + len(piece) > CHUNK:
                        self._empty(waiting)
                        used = 0
                    room = self._back[used : used + len(piece)]
                    cuda.memcpy_dtoh_async(room, address + start, self._stream)
                    waiting.append((piece, room))
                    used += -(-len(piece) // 64) * 64
            self._empty(waiting)

    def _empty(self, waiting: list[tuple[Any, Any]]) -> None:
        self._stream.synchronize()
        for target, source in waiting:
            target[...] = source
        waiting.clear()

    def close(self) -> None:
        """Let go of what must end in the context."""
        self._chunks.clear()
        self._events.clear()
        self._back = None


def _bytes_of(array: Any) -> Any:
    return array.reshape(-1).view(np.uint8)
