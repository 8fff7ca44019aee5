"""Compiled functions in other processes and threads: forked, spawned, of joblib, many at once, on an empty cache."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import pullback as pb
from pullback.programs.pipeline import template_counts
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.process import counters
from pullback.runtime.process.fork import Work
from pullback.runtime.process.locks import KeyedLocks
from pullback.tracer.names.guards import Guard
from tests.support.api import Array, traces

W = np.array([0.5, -1.0, 2.0])
SCALE = 2.0
FORKS = hasattr(os, "fork")


@pb.value_and_grad
def loss(w: Array, k: float) -> Any:
    return SCALE * np.sum(np.exp(k * w))


class Model:
    def __init__(self, k: float) -> None:
        self.k = k

    @pb.grad
    def slope(self, w: Array) -> Any:
        return np.sum(np.exp(self.k * w))


def expected(k: float) -> tuple[float, Array]:
    return SCALE * np.sum(np.exp(k * W)), SCALE * k * np.exp(k * W)


def check(result: Any, k: float) -> None:
    np.testing.assert_allclose(result[0], expected(k)[0], rtol=1e-14)
    np.testing.assert_allclose(result[1], expected(k)[1], rtol=1e-14)


def call(k: float) -> Any:
    return loss(W, k)


def compile_new(k: float) -> tuple[Any, Any]:
    """Return the results of a function compiled before and of a new one."""
    power = int(k)
    return loss(W, k), pb.grad(lambda w: np.sum(w**power) + np.sum(np.tanh(w)))(W)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_pool_of_processes(method: str) -> None:
    check(call(1.0), 1.0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        for k, result in zip((1.0, 2.0, 3.0), pool.map(loss, [W] * 3, (1.0, 2.0, 3.0))):
            check(result, k)
        slopes = list(pool.map(Model(2.0).slope, [W, 2 * W]))
    np.testing.assert_allclose(slopes, [2 * np.exp(2 * W), 2 * np.exp(4 * W)])


@pytest.mark.parametrize("backend", [pytest.param("loky", marks=pytest.mark.long), "threading"])
def test_joblib_with_eight_workers(backend: str) -> None:
    data = np.arange(3.0)
    closure = pb.grad(lambda w, k: np.sum(np.exp(k * w)) + data @ w)
    with joblib.parallel_config(backend, n_jobs=8):
        named = joblib.Parallel()(joblib.delayed(loss)(W, float(k)) for k in range(16))
        valued = joblib.Parallel()(joblib.delayed(closure)(W, float(k)) for k in range(16))
        methods = joblib.Parallel()(joblib.delayed(Model(float(k)).slope)(W) for k in range(16))
    for k in range(16):
        check(named[k], float(k))
        np.testing.assert_allclose(valued[k], k * np.exp(k * W) + data)
        np.testing.assert_allclose(methods[k], k * np.exp(k * W))
    if backend == "loky":
        joblib.externals.loky.get_reusable_executor().shutdown()


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked child that does this, 0 if it went well, in time."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -1


def child_work() -> None:
    result, new = compile_new(3.0)
    check(result, 3.0)
    np.testing.assert_allclose(new, 3 * W**2 + 1 / np.cosh(W) ** 2)


def child_thread() -> None:
    with ThreadPoolExecutor(2) as pool:
        for result, _ in pool.map(compile_new, (4.0, 5.0)):
            assert np.isfinite(result[0])
    child_work()


@pytest.mark.skipif(not FORKS, reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("work", [child_work, child_thread])
def test_fork_after_use(work: Callable[[], None]) -> None:
    call(1.0)
    assert in_child(work) == 0
    check(call(1.0), 1.0)


def test_calls_do_not_import_masked_arrays() -> None:
    """A fork amid the import, which takes long, would leave the child waiting."""
    code = """
import sys, numpy as np, pullback as pb
f = pb.jit(lambda x, y: x @ y + 1)
for _ in range(5):
    f(np.ones((2, 3)), np.ones((3, 2)))
print("numpy.ma" in sys.modules)
try:
    f(np.ma.masked_array([[1.0, 2.0, 3.0]]), np.ones((3, 2)))
except pb.TraceError as error:
    print("MaskedArray" in str(error))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


@pytest.mark.long
@pytest.mark.skipif(not FORKS, reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_other_threads_compile() -> None:
    stop = threading.Event()
    numbers = itertools.count(10)

    def busy() -> None:
        while not stop.is_set():
            compile_new(float(next(numbers) % 40))

    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        statuses = [in_child(child_work) for _ in range(4)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert statuses == [0] * 4


def test_forks_amid_work_do_not_wait_for_each_other() -> None:
    work = Work()

    def forking(k: int) -> bool:
        for _ in range(200):
            with work.underway(), work.underway():
                depth = work.before_fork()
                work.after_fork(depth, in_child=False)
                assert depth == 2
        return True

    assert all(together(4, forking))
    work.after_fork(work.before_fork(), in_child=True)
    with work.underway():
        pass


def test_a_fork_waits_for_work() -> None:
    work, inside, done = Work(), threading.Event(), threading.Event()
    order = []

    def working(k: int) -> None:
        if k:
            inside.wait()
            depth = work.before_fork()
            order.append("forked")
            work.after_fork(depth, in_child=False)
        else:
            with work.underway():
                inside.set()
                done.wait(0.05)
                order.append("worked")

    together(2, working)
    assert order == ["worked", "forked"]


STARTING = """
import sys
import numpy as np, pullback as pb

@pb.value_and_grad
def loss(w, x):
    return np.mean(np.logaddexp(0, x @ w)) + np.sum(np.tanh(w))

print("ready", flush=True)
sys.stdin.readline()
print(repr(loss(np.ones(3), np.arange(12.0).reshape(4, 3))))
"""


@pytest.mark.long
def test_eight_processes_at_once_on_an_empty_cache(tmp_path: Path) -> None:
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", STARTING]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, env=environ, **pipes) for _ in range(8)]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 8  # type: ignore[union-attr]
    for process in started:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    result = {process.communicate(timeout=120) for process in started}
    assert len(result) == 1 and next(iter(result))[1] == ""
    assert all(process.returncode == 0 for process in started)


COUNTED = """
import sys
import numpy as np, pullback as pb

@pb.value_and_grad
def loss(w, x):
    return np.mean(np.logaddexp(0, np.tanh(x @ w) @ w.T)) + np.sum(np.sort(w, axis=0)[0])

print("ready", flush=True)
sys.stdin.readline()
value, slope = loss(np.ones((3, 2)), np.arange(12.0).reshape(4, 3))
info = loss.cache_info()
print(value.hex(), slope.tobytes().hex(), "|", info.disk_hits, info.compiles, info.hits)
"""


def test_eight_processes_compile_a_kernel_once_each_at_most(tmp_path: Path) -> None:
    """The processes leave a complete cache, which the ninth process hits."""
    folder = tmp_path / "cache"
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(folder), "PULLBACK_VERIFY": "0"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-W", "error", "-c", COUNTED], env=environ, **pipes) for _ in range(8)]
    assert [process.stdout.readline() for process in started] == ["ready\n"] * 8  # type: ignore[union-attr]
    for process in started:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    actual = [process.communicate(timeout=120) for process in started]
    assert [(process.returncode, err) for process, (_, err) in zip(started, actual)] == [(0, "")] * 8
    results, counts = zip(*(out.strip().split(" | ") for out, _ in actual))
    assert len(set(results)) == 1
    needed = {sum(map(int, count.split()[:2])) for count in counts}
    assert len(needed) == 1, "each kernel counts once in each process"
    store = KernelCache(folder)
    objects = [entry for entry in store.entries() if entry.kind == "object" and entry.meta["symbols"] != ["pullback_run"]]
    assert len(objects) == needed.pop()
    good, bad, newer = store.verify()
    assert good and not bad and not newer and not list(folder.rglob(".new-*"))
    ninth = subprocess.run([sys.executable, "-c", COUNTED], env=environ, input="go\n", capture_output=True, text=True, check=True)
    result, counts_of_ninth = ninth.stdout.removeprefix("ready\n").strip().split(" | ")
    assert result == results[0] and counts_of_ninth.split()[1] == "0"


WARM_WORKERS = """
import multiprocessing, sys
import cloudpickle, joblib, numpy as np, pullback as pb
from pullback.runtime.process import counters
from pullback.runtime.cache.cache import KernelCache

def make(scale):
    return pb.value_and_grad(lambda w: scale * np.sum(np.tanh(w)) ** 2)

def work(pickled):
    function = cloudpickle.loads(pickled)
    before = counters.snapshot()
    value, slope = function(np.arange(4.0))
    taken = counters.snapshot() - before
    return float(value), slope.tolist(), taken.templates_loaded, taken.templates_built, taken.compiles

if __name__ == "__main__":
    function = make(2.0)
    value, slope = function(np.arange(4.0))
    pickled = cloudpickle.dumps(function)
    assert b"ELF" not in pickled and b"llvm" not in pickled and len(pickled) < 4000, len(pickled)
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            for found in pool.map(work, [pickled] * 4):
                assert found[:2] == (float(value), slope.tolist()), (method, found)
                assert found[3:] == (0, 0), (method, found)
    with joblib.parallel_config("loky", n_jobs=2):
        for found in joblib.Parallel()(joblib.delayed(work)(pickled) for _ in range(4)):
            assert found[:2] == (float(value), slope.tolist()) and found[3:] == (0, 0), found
    print("done")
"""


@pytest.mark.long
def test_workers_of_every_kind_find_the_program(tmp_path: Path) -> None:
    """A pickled function holds its source of truth; workers load its program from the cache and compile nothing."""
    script = tmp_path / "script.py"
    script.write_text(WARM_WORKERS)
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "cache"), "PULLBACK_VERIFY": "0"}
    done = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


# threads


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Return the results of ``work`` in ``count`` threads that start at once."""
    barrier = threading.Barrier(count)

    def run(k: int) -> Any:
        barrier.wait()
        return work(k)

    with ThreadPoolExecutor(count) as pool:
        calls = [pool.submit(run, k) for k in range(count)]
        errors = [error for error in (call.exception(timeout=100) for call in calls) if isinstance(error, Exception)]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {count} threads", errors)
    return [call.result() for call in calls]


def test_one_signature_is_traced_once() -> None:
    @pb.grad
    def fresh(w: Array) -> Any:
        return np.sum(np.arctan(w) * np.cosh(w))

    before, built = traces(), template_counts().built
    start = counters.snapshot()
    result = together(16, lambda k: fresh(W))
    assert traces() == before + 1 and template_counts().built == built + 1
    assert (counters.snapshot() - start).compiles <= 1
    for gradient in result:
        np.testing.assert_array_equal(gradient, result[0])


def begins(events: list[threading.Event], k: int) -> None:
    """Note that trace ``k`` of two has begun, and wait until the other one has; a function may be traced more than once."""
    events[k].set()
    assert events[1 - k].wait(timeout=60)


def test_different_functions_do_not_wait_for_each_other() -> None:
    """Each of two traces waits until the other one has begun."""
    events = [threading.Event(), threading.Event()]

    @pb.jit
    def one(w: Array) -> Any:
        begins(events, 0)
        return np.sum(w)

    @pb.jit
    def two(w: Array) -> Any:
        begins(events, 1)
        return np.sum(w) * 2

    functions = (one, two)
    assert together(2, lambda k: functions[k](W)) == [1.5, 3.0]


def test_functions_that_call_each_other() -> None:
    events = [threading.Event(), threading.Event()]

    @pb.jit
    def even(w: Array, n: int) -> Any:
        begins(events, 0) if n == 3 else None
        return np.sum(w) if n == 0 else odd(w, n - 1)

    @pb.jit
    def odd(w: Array, n: int) -> Any:
        begins(events, 1) if n == 3 else None
        return -np.sum(w) if n == 0 else even(w, n - 1)

    functions = (even, odd)
    assert together(2, lambda k: functions[k](W, 3)) == [-1.5, 1.5]


def test_many_threads_and_functions_with_changing_guards() -> None:
    names: dict[str, Any] = {"np": np, "scale": 1.0, "mode": "up", "n": 2}
    exec(
        "def f(w): return scale * np.sum(w) + (1.0 if mode == 'up' else -1.0)\n"
        "def g(w): return np.sum(np.stack([w * k for k in range(n)]))\n"
        "def h(w): return f(w) * 0 + g(w)\n",
        names,
    )
    functions = [pb.jit(names["f"]), pb.grad(names["f"]), pb.jit(names["g"]), pb.jit(names["h"])]
    stop = threading.Event()

    def change() -> None:
        for k in itertools.count():
            if stop.is_set():
                return
            names.update(scale=float(k % 5), mode=("up", "down")[k % 2], n=2 + k % 3)
            time.sleep(0.0005)

    def hammer(k: int) -> None:
        for turn in range(60):
            which = (k + turn) % 4
            result = functions[which](W[: 1 + turn % 3])
            total = float(np.sum(W[: 1 + turn % 3]))
            if which == 0:
                assert float(result) in {s * total + m for s in range(5) for m in (1.0, -1.0)}
            elif which == 1:
                assert result.min() == result.max() and float(result[0]) in range(5)
            else:
                assert np.isclose(result, [total, 3 * total, 6 * total]).any()

    changer = threading.Thread(target=change)
    changer.start()
    try:
        together(16, hammer)
    finally:
        stop.set()
        changer.join()


def test_what_is_bound_anew_between_two_reads_is_no_other_object_at_each() -> None:
    modes = iter(["up", "down", "up", "up"])
    anew = Guard(read=lambda: next(modes), expected="up", how="identity", describe="mode")
    assert anew.is_stable()
    built = Guard(read=object, expected=None, how="identity", describe="made")
    assert not built.is_stable()


def test_keyed_locks() -> None:
    locks, running, most = KeyedLocks(), [0, 0], [0, 0]

    def work(k: int) -> None:
        for _ in range(50):
            with locks.hold(k % 2), locks.hold(k % 2):
                running[k % 2] += 1
                most[k % 2] = max(most[k % 2], running[k % 2])
                time.sleep(0)
                running[k % 2] -= 1

    together(6, work)
    assert most == [1, 1] and not locks._inside
