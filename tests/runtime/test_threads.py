"""Parallel loops: results are the same, bit by bit, for any number of threads, and small work starts none."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.loops.parallelize import MOST_CHUNKS
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.kernels.groups import registry
from pullback.ir.core.structure import walk
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_function, print_function
from pullback.ir.verify import verify
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries import symbols
from pullback.runtime.threads import threads

Array = np.ndarray[Any, Any]
Make = Callable[[np.random.Generator, int], tuple[Array, ...]]
COUNTS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def several(x: Array, y: Array) -> Any:
    return np.sum(np.exp(x) * y), np.max(x), np.argmin(y), np.prod(1 + x * 1e-7), np.sin(x) + y


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layer_norm(x: Array, g: Array, b: Array) -> Any:
    m = x.mean(axis=1, keepdims=True)
    v = ((x - m) ** 2).mean(axis=1, keepdims=True)
    return np.sum(((x - m) / np.sqrt(v + 1e-5) * g + b) ** 2)


def column_sums(x: Array) -> Any:
    return x.sum(axis=0), (x * x).max(axis=0)


def product(x: Array) -> Any:
    return np.tanh(x @ x.T[:, :50]) + 1


def steps(x: Array) -> Any:
    def body(k: Any, x: Array) -> Array:
        return x + 0.1 * (np.sin(x) - x * x)

    return pb.fori_loop(0, 5, body, x)


def vector(rng: np.random.Generator, n: int) -> tuple[Array, ...]:
    return (rng.normal(size=n),)


def vectors(rng: np.random.Generator, n: int) -> tuple[Array, ...]:
    return rng.normal(size=n), rng.normal(size=n)


def matrix(rng: np.random.Generator, n: int) -> tuple[Array, ...]:
    return (rng.normal(size=(max(n // 100, 1), 100)),)


def rows(rng: np.random.Generator, n: int) -> tuple[Array, ...]:
    return rng.normal(size=(max(n // 100, 1), 100)), rng.normal(size=100), rng.normal(size=100)


PROGRAMS: list[tuple[str, Callable[..., Any], Make]] = [
    ("several", several, vectors),
    ("float32", lambda x: (np.sum(x.astype(np.float32)), np.argmax(x)), vector),
    ("softmax", softmax, matrix),
    ("wide_rows", softmax, lambda rng, n: (rng.normal(size=(max(n // 40_000, 1), 40_000)),)),
    ("layer_norm", pb.value_and_grad(layer_norm, argnums=(0, 1, 2)), rows),
    ("column_sums", column_sums, matrix),
    ("strided", lambda x: np.sqrt(np.abs(x[:, ::2])).sum(axis=1), matrix),
    ("product", product, matrix),
    ("steps", steps, vector),
    ("steps_grad", pb.grad(lambda x: np.sum(steps(x))), vector),
]


def flat(value: Any) -> list[bytes]:
    if isinstance(value, tuple | list):
        return [part for item in value for part in flat(item)]
    return [np.asarray(value).tobytes()]


@pytest.mark.parametrize("n", [0, 1, 63, 300_000])
@pytest.mark.parametrize(("function", "make"), [p[1:] for p in PROGRAMS], ids=[p[0] for p in PROGRAMS])
def test_results_do_not_depend_on_the_number_of_threads(function: Callable[..., Any], make: Make, n: int) -> None:
    if n == 0 and function in (several, PROGRAMS[1][1]):
        pytest.skip("no extreme of nothing")
    compiled = pb.jit(function)
    arguments = make(np.random.default_rng(n), n)
    result = []
    for count in COUNTS:
        threads.set_num_threads(count)
        result.append(flat(compiled(*arguments)))
    assert all(f == result[0] for f in result)


def test_large_loops_are_shared_out_and_agree_with_numpy() -> None:
    threads.set_num_threads(3)
    x, y = vectors(np.random.default_rng(0), 300_000)
    before = threads.parallel_loops()
    result = pb.jit(several)(x, y)
    assert threads.parallel_loops() > before
    assert threads.started_threads() == 2
    for a, b in zip(result, several(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(("shape", "shared"), [((3000, 100), True), ((8, 40_000), False)])
def test_rows_of_scratch_are_private_unless_they_are_long(
    shape: tuple[int, int], shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "pick", lambda space, choices: next((s for s in choices if s.name == "rows"), choices[0]))
    threads.set_num_threads(2)
    x = np.random.default_rng(0).normal(size=shape)
    before = threads.parallel_loops()
    np.testing.assert_allclose(pb.jit(lambda x: softmax(x) + 0)(x), softmax(x), rtol=1e-13)
    assert (threads.parallel_loops() > before) is shared


def test_small_work_starts_no_thread() -> None:
    threads.set_num_threads(4)
    x, y = vectors(np.random.default_rng(0), 1000)
    before = threads.parallel_loops()
    pb.jit(several)(x, y)
    assert threads.started_threads() == 0
    assert threads.parallel_loops() == before


def test_one_thread_starts_none() -> None:
    threads.set_num_threads(1)
    pb.jit(several)(*vectors(np.random.default_rng(0), 300_000))
    assert threads.started_threads() == 0


@pytest.mark.parametrize(("m", "k", "n"), [(0, 3, 4), (3, 0, 4), (5, 7, 9), (1000, 50, 70), (17, 900, 600), (300, 310, 320)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("transposed", range(4))
def test_products_do_not_depend_on_the_number_of_threads(m: int, k: int, n: int, dtype: Any, transposed: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
    left, right = (np.ascontiguousarray(x.T) if transposed & bit else x for x, bit in ((a, 1), (b, 2)))
    compiled = pb.jit(lambda x, y: (x.T if transposed & 1 else x) @ (y.T if transposed & 2 else y))
    result = []
    for count in COUNTS:
        threads.set_num_threads(count)
        result.append(compiled(left, right))
    assert all(f.tobytes() == result[0].tobytes() for f in result)
    np.testing.assert_allclose(result[0], a @ b, rtol=1e-3 if dtype is np.float32 else 1e-9, atol=1e-3)


def test_the_library_keeps_its_number_of_threads() -> None:
    before = symbols.blas_get_threads()
    threads.set_num_threads(2)
    x = np.random.default_rng(0).normal(size=(200, 200))
    pb.jit(lambda x: np.linalg.solve(x @ x.T + np.eye(200), x))(x)
    assert symbols.blas_get_threads() == before
    assert threads.library_calls() == 0


@pytest.mark.parametrize("position", [0, 150_000, 299_999])
def test_a_failure_in_any_chunk_is_raised(position: int) -> None:
    @pb.jit
    def checked(x: Array, at: Array, power: Array) -> Any:
        return x[at] + np.sum(at**power)

    x, at, power = np.ones(10), np.ones(300_000, np.int64), np.ones(300_000, np.int64)
    checked(x, at, power)
    at[position] = 10
    power[300_000 - 1 - position] = -1
    for count in COUNTS:
        threads.set_num_threads(count)
        with pytest.raises(IndexError, match="out of bounds"):
            checked(x, at, power)
        with pytest.raises(ValueError, match="negative integer powers"):
            checked(x, np.ones_like(at), power)


def test_many_threads_at_once() -> None:
    threads.set_num_threads(3)
    x, y = vectors(np.random.default_rng(0), 300_000)
    compiled = pb.jit(several)
    expected = flat(compiled(x, y))
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(1 for _ in range(10) if flat(compiled(x, y)) != expected)

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for count in (1, 4, 2):
        threads.set_num_threads(count)
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_starts_its_own() -> None:
    threads.set_num_threads(2)
    x, y = vectors(np.random.default_rng(0), 300_000)
    compiled = pb.jit(several)
    expected = flat(compiled(x, y))
    child = os.fork()
    if not child:
        status = 1
        try:
            none = threads.started_threads() == 0
            status = 0 if none and flat(compiled(x, y)) == expected and threads.started_threads() == 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert flat(compiled(x, y)) == expected


def run(code: str, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in (threads.VARIABLE, threads.OTHER_VARIABLE)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=120)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"PULLBACK_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, "3"),
        ({"OMP_NUM_THREADS": "5,2"}, "5"),
        ({"OMP_NUM_THREADS": "lots"}, str(threads._processors())),
        ({"PULLBACK_NUM_THREADS": "0"}, "ValueError: PULLBACK_NUM_THREADS=0: a number of threads, 1 to 256, is expected"),
        ({"PULLBACK_NUM_THREADS": "abc"}, "ValueError: PULLBACK_NUM_THREADS=abc: a number of threads, 1 to 256, is expected"),
    ],
)
def test_settings(environment: dict[str, str], words: str) -> None:
    assert run("import pullback as pb; print(pb.get_num_threads())", **environment) == words


BEFORE = "import numpy, threadpoolctl, pullback as pb; from threadpoolctl import threadpool_info, threadpool_limits"
AFTER = "import pullback as pb, numpy; from threadpoolctl import threadpool_info, threadpool_limits"
LIMITS = """
(ours,) = [pool for pool in threadpool_info() if pool["user_api"] == "pullback"]
with threadpool_limits(1):
    inside = pb.get_num_threads()
    with threadpool_limits({"pullback": 4}):
        more = pb.get_num_threads()
with threadpool_limits(1, user_api="blas"):
    other = pb.get_num_threads()
print(ours["num_threads"], inside, more, other, pb.get_num_threads())
"""


@pytest.mark.parametrize("imports", [BEFORE, AFTER], ids=["before", "after"])
def test_threadpoolctl_sees_and_limits_them(imports: str) -> None:
    assert run(f"{imports}\n{LIMITS}", PULLBACK_NUM_THREADS="3") == "3 1 4 3 3"


def test_threadpoolctl_is_not_imported_by_us() -> None:
    code = "import sys, pullback as pb; before = 'threadpoolctl' in sys.modules; import threadpoolctl, importlib"
    again = "importlib.reload(threadpoolctl) is threadpoolctl"
    more = f"print(before, {again}, [f for f in sys.meta_path if 'threadpools' in repr(f)])"
    assert run(f"{code}; {more}") == "False True []"


@pytest.mark.parametrize("count", [0, -1, 257])
def test_numbers_without_sense_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} threads, 1 to 256"):
        pb.set_num_threads(count)


@pytest.mark.parametrize("count", [1.5, "2", None, True])
def test_what_is_no_number_is_refused(count: Any) -> None:
    with pytest.raises(TypeError, match="an int is expected"):
        pb.set_num_threads(count)


def test_processors_are_those_that_a_control_group_grants(tmp_path: Path) -> None:
    groups, root = tmp_path / "cgroup", tmp_path / "fs"
    (root / "a" / "b").mkdir(parents=True)
    groups.write_text("0::/a/b\n")
    assert threads._quota(groups, root) == float("inf")
    (root / "a" / "b" / "cpu.max").write_text("max 100000\n")
    (root / "a" / "cpu.max").write_text("150000 100000\n")
    assert threads._quota(groups, root) == 1.5
    (root / "cpu" / "c").mkdir(parents=True)
    groups.write_text("4:cpu,cpuacct:/c\n")
    (root / "cpu" / "c" / "cpu.cfs_quota_us").write_text("-1\n")
    (root / "cpu" / "c" / "cpu.cfs_period_us").write_text("100000\n")
    assert threads._quota(groups, root) == float("inf")
    (root / "cpu" / "c" / "cpu.cfs_quota_us").write_text("300000\n")
    assert threads._quota(groups, root) == 3


SUM = """pullback-ir 2
kernel k(%x: &f64[s0], %out: &f64[s0], %total: &f64[], %at: &i64[]) -> () {
  %0: f64[] = const {value=0.5}
  %low: f64[] = const {value=-inf}
  %none: i64[] = const {value=-1}
  %n: i64[] = extent {size=s0}
  %1: f64[], %2: f64[], %3: i64[] = for %n, %0, %low, %none {combine=[add, argmax]} (%i: i64[]) {
    %4: f64[] = load %x, %i
    %5: f64[] = mul %4, %4
    store %5, %out, %i
    yield %4, %5, %i
  }
  store %1, %total
  store %3, %at
  return
}
"""


@pytest.mark.parametrize("n", [0, 1, 100, 70_000])
def test_a_chunked_kernel_means_the_same(n: int) -> None:
    kernel = parse_function(SUM)
    cut = verify(schedule(kernel))
    assert [i.params["map"] for i in walk(cut.body) if "map" in i.params] == ["core", "vector", "serial"]
    assert f"&f64[{MOST_CHUNKS}; stack] = local" in print_function(cut)
    x = np.random.default_rng(n).integers(-9, 9, n).astype(float)
    result = []
    for function in (kernel, cut):
        memory = (x, np.zeros(n), np.zeros(()), np.zeros((), np.int64))
        assert interpret(function, *memory) == 0
        result.append([m.tobytes() for m in memory])
    assert result[0] == result[1]


IDLE = """
import os, time
import numpy as np
import pullback as pb

multiply, a = pb.jit(lambda a: np.exp(a @ a)), np.ones((300, 300))
for _ in range(3):
    multiply(a)
time.sleep(0.3)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before)
"""


@pytest.mark.long
def test_threads_sleep_when_there_is_nothing_to_do() -> None:
    environment = {**os.environ, "PULLBACK_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", IDLE], env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.1


MODE = """
define i32 @mode(i32 %new) {
  %place = alloca i32
  %before = alloca i32
  store i32 %new, ptr %place
  call void @llvm.x86.sse.stmxcsr(ptr %before)
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  %old = load i32, ptr %before
  ret i32 %old
}
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
"""
FLUSHED = 0x9FC0
"""Subnormal numbers count as zero, and zeros are made of them; nothing traps."""


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="the mode is that of one processor")
@pytest.mark.parametrize("threads_are_started", ["kept", "flushed"])
def test_subnormal_numbers_do_not_depend_on_who_started_the_threads(threads_are_started: str) -> None:
    """Some libraries leave a thread in a mode without subnormal numbers, which threads that it starts inherit."""
    change = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(default_engine().load(MODE, symbols=["mode"])["mode"])
    halved = pb.jit(lambda x: x * 0.5)
    x = np.full(300_000, np.finfo(np.float64).tiny)
    halved(x)

    def run(flushed: bool) -> Array:
        before = change(FLUSHED) if flushed else None
        try:
            return np.concatenate([halved(x) for _ in range(20)])
        finally:
            if before is not None:
                change(before)

    threads.set_num_threads(1)
    threads.set_num_threads(3)
    run(threads_are_started == "flushed")
    assert threads.started_threads() == 2
    for flushed in (False, True, False):
        assert np.unique(run(flushed).view(np.int64)).tolist() == [0 if flushed else 1 << 51]
