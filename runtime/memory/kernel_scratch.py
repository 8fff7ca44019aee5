"""Scratch memory of kernels: from the pool, or from the C library if there is no pool.

``take(state, bytes)`` returns a block, or null if there is no memory; ``give(state, block, bytes)`` frees a block. Both may be
called from any thread.
"""

from __future__ import annotations

import functools

import numpy as np

from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries import symbols
from pullback.runtime.memory import result_arrays as memory

SOURCE = """
define ptr @pullback_room_take(ptr %state, i64 %bytes) nounwind {
  %realloc = load ptr, ptr %state
  %block = call ptr %realloc(ptr null, i64 %bytes)
  ret ptr %block
}

define void @pullback_room_give(ptr %state, ptr %block, i64 %bytes) nounwind {
  %at = getelementptr ptr, ptr %state, i64 1
  %free = load ptr, ptr %at
  call void %free(ptr %block)
  ret void
}
"""
_tables: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []


@functools.cache
def addresses() -> dict[str, int]:
    """Return the addresses of "state", "take" and "give"."""
    pool = memory.pool_of_kernels()
    if pool is not None:
        return {"state": pool.address, "take": pool.malloc, "give": pool.free}
    code = default_engine().load(SOURCE, symbols=["pullback_room_take", "pullback_room_give"])
    table = np.array([symbols.address("c.realloc"), symbols.address("c.free")], np.int64)
    _tables.append(table)
    return {"state": table.ctypes.data, "take": code["pullback_room_take"], "give": code["pullback_room_give"]}
