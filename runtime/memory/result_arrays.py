"""Memory of results: large arrays that own their data and whose memory is reused when they die.

A freshly mapped page costs more than writing it, so the blocks of dead results are kept in a bounded pool (``pool`` has its
code). NumPy allocates and frees through our handler (NEP 49), which each array references. Arrays may therefore be freed on
any thread, in forked children and after this module: handler, table and code stay for the life of the process. NumPy reads the
handler from a context variable; it is set only in contexts of our own, in which only ``np.empty`` runs. The pool is created at
the first large result and tested before its first use; if a test fails, ``np.empty`` is used instead and ``status`` gives the
reason.

The layout of the handler and the indices of NumPy's functions are part of NumPy's ABI: ``PyDataMem_Handler`` in
``ndarraytypes.h`` and the API table in ``__multiarray_api.h``.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from pullback.ir.core.environment import POOL_BYTES
from pullback.ir.core.records import dataclass
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.compile.validation import CompileError
from pullback.runtime.memory.pool import ALLOCATOR, FIELDS, LARGE_BYTES, SERVICES, SOURCE, STATE_BYTES
from pullback.runtime.process.fork import hold_over_fork

VARIABLE = POOL_BYTES.name
LEAST_BYTES, MOST_BYTES = 256 << 20, 2 << 30
"""The bounds, in bytes, of the pool's default limit, which is a sixteenth of the machine's memory."""
HANDLER_NAME = "pullback"

_ABI_VERSION = 0x02000000
_GET_ABI_VERSION, _SET_HANDLER = 0, 304
_CAPSULE_NAME = b"mem_handler"
_HANDLER = struct.Struct("127sB5P")

Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], np.dtype[Any]]


class Unavailable(Exception):
    """Raised, with the reason, if there is no pool in this process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """A NumPy memory handler and its table of freed blocks. Never freed, since arrays may outlive everything else."""

    handler: Any
    limit: int
    fields: Any
    malloc: int
    free: int
    set_handler: Callable[[Any], Any]
    contexts: list[Context] = field(default_factory=list)
    trim_one: Callable[[int, int], int]
    try_acquire: Callable[[int], int]
    unlock: Callable[[int], None]

    def __getitem__(self, name: str) -> int:
        return int(self.fields[FIELDS.index(name)])

    @property
    def address(self) -> int:
        return ctypes.addressof(self.fields)

    def empty_many(self, specs: Sequence[Spec], pooled: Sequence[bool]) -> list[Array]:
        """Return uninitialised arrays; those for which ``pooled`` is true come from the pool, whatever their sizes."""
        try:
            context = self.contexts.pop()
        except IndexError:
            context = self.new_context()
        try:
            run = context.run
            return [
                run(np.empty, shape, dtype) if own else np.empty(shape, dtype)
                for (shape, dtype), own in zip(specs, pooled, strict=True)
            ]
        finally:
            self.contexts.append(context)

    def new_context(self) -> Context:
        """Return a context in which NumPy allocates arrays from the pool."""
        context = Context()
        context.run(self.set_handler, self.handler)
        return context

    def trim(self, keep: int = 0) -> None:
        """Free the oldest blocks until at most ``keep`` bytes are held."""
        while self.trim_one(self.address, keep):
            pass

    def acquire(self) -> bool:
        while not self.try_acquire(self.address):
            time.sleep(0)
        return True

    def release(self) -> None:
        self.unlock(self.address)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array that owns its data, like ``np.empty``. Raises MemoryError."""
    return empty_many([(shape, dtype)])[0]


def empty_many(specs: Sequence[Spec], large: Sequence[bool] | None = None) -> list[Array]:
    """Return an uninitialised array for each (shape, dtype); those of ``LARGE_BYTES`` and more come from the pool. Raises
    MemoryError.

    ``large``: the precomputed results of ``is_large``, for repeated calls.
    """
    if large is None:
        large = [is_large(shape, dtype) for shape, dtype in specs]
    pool = _get_pool() if True in large else None
    if pool is None:
        return [np.empty(shape, dtype) for shape, dtype in specs]
    return pool.empty_many(specs, large)


def is_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    """Return whether such an array comes from the pool, if there is one."""
    return prod(shape) * dtype.itemsize >= LARGE_BYTES


def trim(keep: int = 0) -> None:
    """Free the memory held by the pools, except ``keep`` bytes each."""
    for name in ("pool", "kernels"):
        if isinstance(pool := _state.get(name), Pool):
            pool.trim(max(0, keep))


def info() -> dict[str, int]:
    """Return the ``bytes`` and ``blocks`` held by the pool, and the number of allocations served by it (``hits``) or not
    (``misses``)."""
    pool = _state.get("pool")
    if not isinstance(pool, Pool):
        return {"bytes": 0, "blocks": 0, "hits": 0, "misses": 0}
    return {"bytes": pool["bytes"], "blocks": pool["count"], "hits": pool["hits"], "misses": pool["misses"]}


def status() -> str:
    """Return one line: the limit of the pool in bytes, or why there is none."""
    pool = _get_pool()
    return str(_state["pool"]) if pool is None else f"up to {pool.limit:,} bytes ({VARIABLE})"


def make_pool(limit: int) -> Pool:
    """Return a pool of at most ``limit`` bytes that passed its test. Raises Unavailable."""
    if sys.implementation.name != "cpython" or struct.calcsize("P") != 8:
        raise Unavailable(f"{sys.implementation.name}, {8 * struct.calcsize('P')} bits: CPython with 64 bits is known")
    try:
        pool = _build(limit)
        problem = _test(pool)
    except (AttributeError, ImportError, OSError, TypeError, ValueError, MemoryError, CompileError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    if problem:
        raise Unavailable(problem)
    pool.trim()
    pool.fields[FIELDS.index("hits")] = pool.fields[FIELDS.index("misses")] = 0
    return pool


def compile_in_background() -> None:
    """Compile the pool's code in a background thread, if the pool has not been created yet."""
    if "pool" not in _state:
        with suppress(Unavailable):
            _limit()
            default_engine().compile_in_background(SOURCE)


def pool() -> Pool | None:
    """Return the pool of this process, created at the first call; None if there is none."""
    return _get_pool()


def pool_of_kernels() -> Pool | None:
    """Return a second pool of the same limit for the scratch memory of kernels, which is not counted with the results."""
    first = _get_pool()
    pool = _state.get("kernels")
    if pool is None and first is not None:
        state = _calloc()(1, STATE_BYTES)
        if not state:
            return None
        fields = (ctypes.c_int64 * len(FIELDS)).from_address(state)
        for name in ("limit", "malloc", "calloc", "free", "madvise"):
            fields[FIELDS.index(name)] = first[name]
        created = replace(first, fields=fields, contexts=[])
        pool = _state.setdefault("kernels", created)
        if pool is created:
            hold_over_fork(created)
    return pool if isinstance(pool, Pool) else None


def _calloc() -> Callable[[int, int], int | None]:
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(("calloc", ctypes.CDLL(None)))


# "pool": the pool of results, or why there is none; "kernels": the pool of kernel scratch.
_state: dict[str, Pool | Unavailable] = {}


def _get_pool() -> Pool | None:
    """Return the pool of this process, created at the first call; None if there is none."""
    pool = _state.get("pool")
    if pool is None:
        created: Pool | Unavailable
        try:
            created = make_pool(_limit())
        except Unavailable as reason:
            created = reason
        pool = _state.setdefault("pool", created)
        if pool is created and isinstance(created, Pool):
            hold_over_fork(created)
    return pool if isinstance(pool, Pool) else None


def default_bytes() -> int:
    """Return the default limit of the pool on this machine, in bytes."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        memory = 0
    return min(max(memory // 16, LEAST_BYTES), MOST_BYTES)


def _limit() -> int:
    text = POOL_BYTES.read() or str(default_bytes())
    if int(text) < LARGE_BYTES:
        raise Unavailable(f"{VARIABLE}={text}: off below {LARGE_BYTES:,} bytes")
    return int(text)


def _build(limit: int) -> Pool:
    numpy_core = importlib.import_module("numpy._core._multiarray_umath")
    get_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = (ctypes.c_void_p * (_SET_HANDLER + 1)).from_address(get_pointer(numpy_core._ARRAY_API, None))
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(table[_GET_ABI_VERSION] or 0)()
    if version != _ABI_VERSION:
        raise Unavailable(f"NumPy's ABI is {version:#x}: {_ABI_VERSION:#x} is known")
    libc = ctypes.CDLL(None)
    code = default_engine().load(SOURCE, symbols=[f"pullback_pool_{name}" for name in ALLOCATOR + SERVICES])
    # All of this lives in memory of the C library that is never freed.
    calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(("calloc", libc))
    state, handler, name = (calloc(1, size) for size in (STATE_BYTES, _HANDLER.size, 16))
    if not (state and handler and name):
        raise MemoryError("no memory for the pool itself")
    fields = (ctypes.c_int64 * len(FIELDS)).from_address(state)
    fields[FIELDS.index("limit")] = limit
    for function in ("malloc", "calloc", "free", "madvise"):
        if function != "madvise" or _wants_huge_pages(numpy_core):
            fields[FIELDS.index(function)] = ctypes.cast(getattr(libc, function), ctypes.c_void_p).value or 0
    ctypes.memmove(name, _CAPSULE_NAME, len(_CAPSULE_NAME))
    functions = [code[f"pullback_pool_{function}"] for function in ALLOCATOR]
    ctypes.memmove(handler, _HANDLER.pack(HANDLER_NAME.encode(), 1, state, *functions), _HANDLER.size)
    new_capsule = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    return Pool(
        handler=new_capsule(handler, name, None),
        limit=limit,
        fields=fields,
        malloc=code["pullback_pool_malloc"],
        free=code["pullback_pool_free"],
        set_handler=ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER] or 0),
        trim_one=ctypes.CFUNCTYPE(long, pointer, long)(code["pullback_pool_trim"]),
        try_acquire=ctypes.CFUNCTYPE(long, pointer)(code["pullback_pool_acquire"]),
        unlock=ctypes.CFUNCTYPE(None, pointer)(code["pullback_pool_release"]),
    )


def _python(name: str, *types: Any) -> Any:
    """Return a function of Python's C API, given its result type and argument types."""
    return ctypes.PYFUNCTYPE(*types)((name, ctypes.pythonapi))


def _wants_huge_pages(numpy_core: Any) -> bool:
    """Return whether NumPy requests huge pages; the pool does the same."""
    wants = getattr(numpy_core, "_get_madvise_hugepage", None)
    return sys.platform == "linux" and wants is not None and bool(wants())


def _test(pool: Pool) -> str | None:
    """Return what is wrong with the pool; None if it passes."""
    numpy_core = importlib.import_module("numpy._core._multiarray_umath")
    before = numpy_core.get_handler_name()
    byte = np.dtype(np.uint8)
    first, small = pool.empty_many([((LARGE_BYTES,), byte), ((3,), byte)], [True, True])
    if numpy_core.get_handler_name() != before:
        return "the handler is not confined to our contexts"
    for array in (first, small):
        if (numpy_core.get_handler_name(array), numpy_core.get_handler_version(array)) != (HANDLER_NAME, 1):
            return "an array names another handler"
        if array.base is not None or not array.flags.owndata or array.ctypes.data % 64:
            return "an array does not own aligned memory"
    pattern = np.arange(LARGE_BYTES, dtype=np.uint16).astype(np.uint8)
    first[:] = pattern
    first.resize(3 * LARGE_BYTES, refcheck=False)
    if not np.array_equal(first[:LARGE_BYTES], pattern) or first[LARGE_BYTES:].any():
        return "a longer array lost its values"
    first.resize(100, refcheck=False)
    if not np.array_equal(first, pattern[:100]):
        return "a shorter array lost its values"
    del array
    (first,) = pool.empty_many([((3 * LARGE_BYTES,), byte)], [True])
    address = first.ctypes.data
    del first
    held = pool["bytes"]
    (reused,) = pool.empty_many([((3 * LARGE_BYTES,), byte)], [True])
    if pool.limit >= 3 * LARGE_BYTES and (reused.ctypes.data != address or pool["bytes"] != held - 3 * LARGE_BYTES):
        return "freed memory is not used again"
    return None
