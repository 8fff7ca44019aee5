"""Memory of results: dead arrays' blocks are used again, within bounds, on any thread, across forks and until the very end."""

from __future__ import annotations

import ctypes
import gc
import importlib
import itertools
import os
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.memory import result_arrays
from pullback.runtime.memory.pool import LARGE_BYTES, POOL_BLOCKS, SOURCE
from pullback.runtime.memory.result_arrays import Array, Pool, Unavailable

BYTE = np.dtype(np.uint8)
F64 = np.dtype(np.float64)
MIB = 1 << 20

# A line of the native code, and what moves data off its boundary.
ALIGNED = "%offset = add i64 %pad, 16"
MISPLACED = "%offset = add i64 %pad, 32"

numpy_core: Any = importlib.import_module("numpy._core._multiarray_umath")


@pytest.fixture
def pool() -> Pool:
    return result_arrays.make_pool(4 * MIB)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No pool found or failed so far."""
    monkeypatch.setattr(result_arrays, "_state", {})
    return monkeypatch


def take(pool: Pool, size: int) -> Array:
    return pool.empty_many([((size,), BYTE)], [True])[0]


def place(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_large_array_owns_its_data() -> None:
    array = result_arrays.empty((300, 400), F64)
    assert (array.shape, array.dtype, array.base) == ((300, 400), F64, None)
    assert array.flags.owndata and array.flags.c_contiguous and array.flags.writeable
    assert place(array) % 64 == 0
    assert numpy_core.get_handler_name(array) == result_arrays.HANDLER_NAME


def test_small_arrays_are_numpys() -> None:
    small, large, none = result_arrays.empty_many([((), F64), ((100_000,), F64), ((0, 5), F64)])
    names = [numpy_core.get_handler_name(a) for a in (small, large, none)]
    assert names == ["default_allocator", result_arrays.HANDLER_NAME, "default_allocator"]
    assert [a.shape for a in (small, large, none)] == [(), (100_000,), (0, 5)]


def test_the_handler_of_the_caller_stays() -> None:
    before = numpy_core.get_handler_name()
    array = result_arrays.empty((100_000,), F64)
    assert numpy_core.get_handler_name() == before
    assert numpy_core.get_handler_name(array.copy()) == before
    assert numpy_core.get_handler_name(array + 1) == before


def test_an_array_too_large_raises() -> None:
    with pytest.raises(MemoryError):
        result_arrays.empty((1 << 57,), F64)
    with pytest.raises(ValueError, match="array is too big"):
        result_arrays.empty((1 << 62, 4), F64)
    assert numpy_core.get_handler_name() == "default_allocator"
    assert result_arrays.empty((100_000,), F64).shape == (100_000,)


def test_freed_memory_is_used_again(pool: Pool) -> None:
    first = take(pool, 100_000)
    where = place(first)
    assert pool["count"] == 0
    del first
    assert (pool["count"], pool["bytes"]) == (1, 102_400)
    other = take(pool, 200_000)
    second = take(pool, 100_001)
    assert place(second) == where
    assert place(other) != where
    assert (pool["count"], pool["bytes"], pool["hits"], pool["misses"]) == (0, 0, 1, 2)


def test_the_newest_block_comes_first(pool: Pool) -> None:
    arrays = [take(pool, LARGE_BYTES) for _ in range(3)]
    places = [place(a) for a in arrays]
    while arrays:
        arrays.pop(0)
    again = [take(pool, LARGE_BYTES) for _ in range(3)]
    assert [place(a) for a in again] == places[::-1]


def test_blocks_begin_at_different_places_of_a_page(pool: Pool) -> None:
    """A store and a load whose addresses differ in high bits alone are taken for the same."""
    places = sorted(place(array) % 4096 for array in [take(pool, 2 * LARGE_BYTES) for _ in range(8)])
    gaps = np.diff(places)
    assert gaps.min() >= 256 and places[0] >= 512


def test_a_block_is_never_given_twice(pool: Pool) -> None:
    rng = np.random.default_rng(0)
    held: list[tuple[Array, int]] = []
    for count in range(2000):
        if held and rng.random() < 0.5:
            array, value = held.pop(int(rng.integers(len(held))))
            assert array.min() == array.max() == value
        else:
            array = take(pool, int(rng.integers(1, 4)) * LARGE_BYTES)
            array[:] = count % 251
            held.append((array, count % 251))
            held = held[-20:]
    spans = sorted((place(a), place(a) + a.nbytes) for a, _ in held)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert pool["hits"] > 100


def test_bytes_are_bounded(pool: Pool) -> None:
    arrays = [take(pool, MIB) for _ in range(10)]
    while arrays:
        arrays.pop()
        assert pool["bytes"] <= pool.limit
    assert (pool["bytes"], pool["count"]) == (4 * MIB, 4)
    beyond = take(pool, 5 * MIB)
    del beyond
    assert pool["bytes"] == 4 * MIB


def test_the_oldest_block_goes_first(pool: Pool) -> None:
    arrays = [take(pool, MIB) for _ in range(5)]
    places = [place(a) for a in arrays]
    while arrays:
        arrays.pop(0)
    again = [take(pool, MIB) for _ in range(4)]
    assert [place(a) for a in again] == places[:0:-1]
    assert pool["hits"] == 4


def test_blocks_are_bounded() -> None:
    pool = result_arrays.make_pool(64 * MIB)
    arrays = [take(pool, LARGE_BYTES) for _ in range(POOL_BLOCKS + 20)]
    del arrays
    assert (pool["count"], pool["bytes"]) == (POOL_BLOCKS, POOL_BLOCKS * LARGE_BYTES)


def test_trim_gives_memory_back(pool: Pool) -> None:
    arrays = [take(pool, MIB) for _ in range(4)]
    del arrays
    pool.trim(2 * MIB)
    assert (pool["count"], pool["bytes"]) == (2, 2 * MIB)
    pool.trim()
    assert (pool["count"], pool["bytes"]) == (0, 0)


def test_trim_and_info() -> None:
    gc.collect()
    result_arrays.trim()
    before = result_arrays.info()
    assert (before["bytes"], before["blocks"]) == (0, 0)
    array = result_arrays.empty((LARGE_BYTES,), BYTE)
    del array
    after = result_arrays.info()
    assert (after["bytes"], after["blocks"], after["misses"]) == (LARGE_BYTES, 1, before["misses"] + 1)
    pb.trim(keep=LARGE_BYTES)
    assert result_arrays.info()["blocks"] == 1
    pb.trim()
    assert result_arrays.info()["blocks"] == 0


@pytest.mark.parametrize("old", [1, 1000, LARGE_BYTES - 1, LARGE_BYTES, 100_000, 5 * MIB])
@pytest.mark.parametrize("new", [0, 1, 999, LARGE_BYTES, 100_001, 300_000, 6 * MIB])
def test_resize_keeps_values_and_alignment(pool: Pool, old: int, new: int) -> None:
    array = take(pool, old)
    values = np.random.default_rng(old).integers(0, 256, old, np.uint8)
    array[:] = values
    array.resize(new, refcheck=False)
    assert array.flags.owndata and array.base is None and place(array) % 64 == 0
    np.testing.assert_array_equal(array[:old], values[:new])
    assert not array[old:].any()


def test_growing_step_by_step(pool: Pool) -> None:
    array = take(pool, 8)
    array[:] = range(8)
    for size in range(1000, 3_000_000, 100_003):
        array.resize(size, refcheck=False)
        assert array[:8].tolist() == list(range(8))
    del array
    assert pool["bytes"] <= pool.limit


def test_many_sizes(pool: Pool) -> None:
    """The first and last byte of every array may be written, around every boundary there is."""
    edges = [0, 1, 63, 64, 4095, 4096, LARGE_BYTES, LARGE_BYTES + 4096, MIB, 4 * MIB]
    sizes = sorted({max(0, edge + d) for edge in edges for d in range(-2, 3)})
    for size in sizes * 2:
        array = take(pool, size)
        array[:] = 255
        assert array.size == size and place(array) % 64 == 0


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "c16", "O", "M8[s]", "U7", "f8,i4"])
def test_any_dtype(pool: Pool, dtype: str) -> None:
    (array,) = pool.empty_many([((50, 1000), np.dtype(dtype))], [True])
    assert array.dtype == np.dtype(dtype) and array.shape == (50, 1000)
    if dtype == "O":
        assert array[0, 0] is None
        array[:] = [[[]]]


def test_views_keep_the_block(pool: Pool) -> None:
    array = take(pool, LARGE_BYTES)
    view = array[10:20]
    array[:] = 7
    del array
    assert pool["count"] == 0
    other = take(pool, LARGE_BYTES)
    other[:] = 9
    assert view.tolist() == [7] * 10
    del view
    assert pool["count"] == 1


def test_eight_threads(pool: Pool) -> None:
    """Each thread finds its own values in its arrays, and arrays may die on another thread."""
    wrong: list[str] = []
    shared: list[tuple[Array, int]] = []

    def work(mark: int) -> None:
        rng = np.random.default_rng(mark)
        held: list[Array] = []
        for _ in range(400):
            array = take(pool, int(rng.integers(1, 5)) * LARGE_BYTES)
            array[:] = mark
            held.append(array)
            if len(held) > 3:
                shared.append((held.pop(0), mark))
            try:
                other, its = shared.pop(0)
            except IndexError:
                continue
            if other.min() != its or other.max() != its:
                wrong.append(f"{its} became {other.min()}..{other.max()}")
            if any(a.min() != mark or a.max() != mark for a in held):
                wrong.append(f"the arrays of {mark} changed")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shared.clear()
    assert not wrong
    assert pool["lock"] == 0
    assert pool["bytes"] <= pool.limit and pool["count"] <= POOL_BLOCKS
    assert pool["hits"] + pool["misses"] == 8 * 400


def test_threads_without_pythons_lock(pool: Pool) -> None:
    """ctypes lets go of Python's lock for each of these calls, so they run at the same time."""
    code = default_engine().load(SOURCE, symbols=["pullback_pool_malloc", "pullback_pool_free"])
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    malloc = ctypes.CFUNCTYPE(pointer, pointer, size)(code["pullback_pool_malloc"])
    free = ctypes.CFUNCTYPE(None, pointer, pointer, size)(code["pullback_pool_free"])
    wrong: list[int] = []

    def work(mark: int) -> None:
        for count in range(2000):
            length = LARGE_BYTES * (1 + count % 3)
            data = malloc(pool.address, length)
            ends = [ctypes.c_ubyte.from_address(data), ctypes.c_ubyte.from_address(data + length - 1)]
            ends[0].value = ends[1].value = mark
            time.sleep(0)
            if [end.value for end in ends] != [mark, mark]:
                wrong.append(mark)
            free(pool.address, data, length)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool["lock"] == 0 and pool["hits"] + pool["misses"] == 8 * 2000
    assert pool["bytes"] <= pool.limit


def test_a_taken_lock_is_passed_by(pool: Pool) -> None:
    waiting, array = take(pool, LARGE_BYTES), take(pool, LARGE_BYTES)
    del waiting
    pool.acquire()
    try:
        other = take(pool, LARGE_BYTES)
        del array
        assert pool["count"] == 1
    finally:
        pool.release()
    assert (pool["hits"], pool["misses"]) == (0, 3)
    del other
    assert pool["count"] == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork() -> None:
    """Children, forked while threads allocate, free what they inherited and allocate on."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            result_arrays.empty((LARGE_BYTES,), BYTE)

    inherited = result_arrays.empty((2 * LARGE_BYTES,), BYTE)
    inherited[:] = 3
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = []
    try:
        for _ in range(10):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                os._exit(_child(inherited))
            children.append(child)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 10
    assert inherited.min() == inherited.max() == 3


def _child(inherited: Array) -> int:
    where = place(inherited)
    if inherited.min() != 3:
        return 1
    inherited.resize(0, refcheck=False)
    again = result_arrays.empty((2 * LARGE_BYTES,), BYTE)
    again[:] = 4
    return 0 if place(again) == where else 2


def run(code: str, **environment: str) -> str:
    """What a fresh interpreter prints; it must end well."""
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


COMPILED_MEANWHILE = """
import numpy as np
import pullback as pb
from pullback.runtime.compile import engine
begin, begun = engine.Engine.compile_in_background, []
def noted(self, text, *others):
    begun.append("pullback_pool_malloc" in text)
    return begin(self, text, *others)

engine.Engine.compile_in_background = noted
f, size = {"product": (lambda x: x @ x, 40), "large": (lambda x: 2 * x, 400), "small": (lambda x: 2 * x, 4)}["NAME"]
x = np.ones((size, size))
assert np.array_equal(pb.jit(f)(x), f(x))
print(any(begun))
"""


@pytest.mark.parametrize(("name", "limit", "expected"), [
    ("product", "", "True"), ("large", "", "True"), ("small", "", "False"), ("large", "0", "False"),
])  # fmt: skip
def test_it_is_compiled_meanwhile_by_programs_that_take_from_it(name: str, limit: str, expected: str) -> None:
    code = COMPILED_MEANWHILE.replace("NAME", name)
    assert run(code, PULLBACK_CACHE_DIR="off", PULLBACK_POOL_BYTES=limit) == expected


AT_THE_END = """
import sys
import numpy as np
from pullback.runtime.memory import result_arrays as memory
byte = np.dtype(np.uint8)
class Late:
    def __del__(self):
        self.array.resize(300_000, refcheck=False)
        print(int(self.array[0]), flush=True)
late = Late()
late.array = memory.empty((100_000,), byte)
late.array[:] = 5
sys.kept = memory.empty_many([((n * 70_000,), byte) for n in range(1, 40)])
np.kept = memory.empty((100_000,), byte)
loop = [memory.empty((100_000,), byte)]
loop.append(loop)
for name in [n for n in sys.modules if n.startswith(("pullback", "llvmlite"))]:
    del sys.modules[name]
del memory
"""


def test_arrays_outlive_everything() -> None:
    assert run(AT_THE_END) == "5"


def test_nothing_happens_before_the_first_large_result() -> None:
    code = (
        "import numpy as np; from pullback.runtime.memory import result_arrays; result_arrays.empty((5,), np.dtype('f8'));"
        "print(result_arrays._state, result_arrays.info()['misses']); result_arrays.trim()"
    )
    assert run(code) == "{} 0"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0", "PULLBACK_POOL_BYTES=0: off below 65,536 bytes"),
        ("65535", "PULLBACK_POOL_BYTES=65535: off below 65,536 bytes"),
    ],
)
def test_the_environment_turns_it_off(fresh: pytest.MonkeyPatch, value: str, reason: str) -> None:
    fresh.setenv(result_arrays.VARIABLE, value)
    array = result_arrays.empty((100_000,), F64)
    assert numpy_core.get_handler_name(array) == "default_allocator"
    assert result_arrays.status() == reason
    assert result_arrays.info() == {"bytes": 0, "blocks": 0, "hits": 0, "misses": 0}
    result_arrays.trim()


def test_the_environment_bounds_it(fresh: pytest.MonkeyPatch) -> None:
    fresh.setenv(result_arrays.VARIABLE, str(MIB))
    assert result_arrays.status() == "up to 1,048,576 bytes (PULLBACK_POOL_BYTES)"
    arrays = [result_arrays.empty((MIB // 2,), BYTE) for _ in range(3)]
    del arrays
    assert result_arrays.info()["bytes"] == MIB


def test_the_default_bound(fresh: pytest.MonkeyPatch) -> None:
    fresh.delenv(result_arrays.VARIABLE, raising=False)
    limit = result_arrays.default_bytes()
    assert result_arrays.LEAST_BYTES <= limit <= result_arrays.MOST_BYTES
    assert result_arrays.status() == f"up to {limit:,} bytes (PULLBACK_POOL_BYTES)"


@pytest.mark.parametrize(("pages", "expected"), [(1, 256 << 20), (2**21, 512 << 20), (2**30, 2 << 30), (None, 256 << 20)])
def test_the_default_follows_the_machine(monkeypatch: pytest.MonkeyPatch, pages: int | None, expected: int) -> None:
    def sysconf(name: str) -> int:
        if pages is None:
            raise ValueError("unrecognized configuration name")
        return {"SC_PHYS_PAGES": pages, "SC_PAGE_SIZE": 4096}[name]

    monkeypatch.setattr(result_arrays.os, "sysconf", sysconf)
    assert result_arrays.default_bytes() == expected


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("_ABI_VERSION", 0x03000000, "NumPy's ABI is 0x2000000: 0x3000000 is known"),
        ("_CAPSULE_NAME", b"something", "ValueError: "),
        ("SOURCE", "define void @pullback_pool_malloc() {", "CompileError: "),
        ("SOURCE", SOURCE.replace("ret i1 %both", "ret i1 false"), "freed memory is not used again"),
        ("SOURCE", SOURCE.replace(ALIGNED, MISPLACED), "an array does not own aligned memory"),
        ("SOURCE", SOURCE.replace("call void @llvm.memcpy.p0.p0.i64(ptr %other", ";"), "a longer array lost its values"),
    ],
)
def test_a_failed_test_takes_the_slower_path(fresh: pytest.MonkeyPatch, attribute: str, value: Any, reason: str) -> None:
    fresh.setattr(result_arrays, attribute, value)
    array = result_arrays.empty((100_000,), F64)
    assert array.shape == (100_000,) and array.flags.owndata
    assert numpy_core.get_handler_name(array) == "default_allocator"
    assert result_arrays.status().startswith(reason)
    assert result_arrays.info()["misses"] == 0


def test_another_python_takes_the_slower_path(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(sys.implementation, "name", "pypy")
    assert result_arrays.empty((100_000,), F64).shape == (100_000,)
    assert result_arrays.status() == "pypy, 64 bits: CPython with 64 bits is known"
    with pytest.raises(Unavailable, match="pypy"):
        result_arrays.make_pool(MIB)


def test_results_of_compiled_functions_come_from_the_pool() -> None:
    @pb.jit
    def double(x: Array) -> Array:
        return 2 * x

    @pb.jit
    def columns(x: Array) -> Array:
        return (x + 1).reshape(-1, 4)

    x = np.arange(40_000.0)
    first = double(x)
    where = place(first)
    assert numpy_core.get_handler_name(first) == result_arrays.HANDLER_NAME
    del first
    second = double(x)
    assert place(second) == where
    np.testing.assert_array_equal(second, 2 * x)
    table = columns(x)
    assert table.shape == (10_000, 4) and table.base is None
    np.testing.assert_array_equal(table.ravel(), x + 1)
    assert numpy_core.get_handler_name(double(x[:5])) == "default_allocator"
