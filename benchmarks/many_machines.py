"""Functions by blocks of rows on a Dask cluster of processes of this machine: scaling, the time of a step, memory, a cold start.

    python -m benchmarks.many_machines                 # all parts, a few minutes
    python -m benchmarks.many_machines scaling steps   # some of them

``scaling``: two workers, and two plain processes that compute the same blocks. ``steps``: what a step takes above Dask's own
time for as many tasks. ``memory``: of the client with its scheduler, and of the workers, after fits 50 and 200. ``cold``: the
kernels that each worker of a cold cluster compiles. ``model``: the constants of the model in docs/many-machines.md, and what it
predicts. ``likelihood``: a fit to 1e7 rows.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import pullback as pb

COLUMNS = 20


def loss(w: Any, x: Any, y: Any) -> Any:
    """A likelihood whose time is computation: about a hundred operations for each number that is read."""
    z = np.tanh(x * w).sum(axis=1)
    return np.mean(np.logaddexp(0.0, z) - y * z + np.log1p(np.exp(-np.abs(z))) * np.cos(z))


fit = pb.value_and_grad(loss)
OVER = {"x": 0, "y": 0}


def negative_log_likelihood(p: Any, x: Any, y: Any) -> Any:
    """A linear model with normal errors of an unknown scale."""
    mean, log_scale = x @ p[:-1], p[-1]
    return np.sum(0.5 * ((y - mean) / np.exp(log_scale)) ** 2 + log_scale)


def rows(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Return parameters and rows."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=COLUMNS), rng.normal(size=(count, COLUMNS)), rng.random(count)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """The client of a cluster of worker processes with one thread each."""
    import distributed

    with (
        distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as processes,
        distributed.Client(processes, set_as_default=False) as client,
    ):
        yield client


def median_time(step: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a step in seconds, after three that do not count."""
    times = []
    for k in range(repeats + 3):
        start = time.perf_counter()
        step()
        if k >= 3:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def _plain_process(connection: Any, length: int, seed: int) -> None:
    _, x, y = rows(length, seed)
    slope = pb.value_and_grad(loss)
    while (request := connection.recv()) is not None:
        w, blocks = request
        results = [slope(w, x, y) for _ in range(blocks)]
        connection.send((sum(v for v, _ in results), sum(g for _, g in results)))


@contextmanager
def plain_processes(count: int, length: int) -> Iterator[Callable[[Any, int], None]]:
    """A function of parameters and a number of blocks of ``length`` rows, which each of ``count`` processes computes."""
    os.environ["PULLBACK_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(count)]
    started = [context.Process(target=_plain_process, args=(far, length, k)) for k, (_, far) in enumerate(pipes)]
    for process in started:
        process.start()

    def step(w: Any, blocks: int) -> None:
        for near, _ in pipes:
            near.send((w, blocks))
        for near, _ in pipes:
            near.recv()

    yield step
    for near, _ in pipes:
        near.send(None)
    for process in started:
        process.join()


def scaling(blocks: int = 8, length: int = 900_000, repeats: int = 7) -> float:
    """Print and return the time of two plain processes over that of two workers."""
    w, x, y = rows(blocks * length)
    with plain_processes(2, length) as plain, cluster(2) as client:
        bound = pb.distribute(fit, over=OVER, blocks=blocks, client=client).bind(x=x, y=y)
        times: dict[str, list[float]] = {"plain": [], "workers": []}
        for _ in range(repeats):
            times["plain"].append(median_time(lambda: plain(w, blocks // 2), 1))
            times["workers"].append(median_time(lambda: bound(w), 1))
    alone, together = (statistics.median(times[name]) for name in ("plain", "workers"))
    ratio = alone / together
    print(f"scaling: two plain processes {alone * 1e3:.1f} ms, two workers {together * 1e3:.1f} ms, ratio {ratio:.2f}")
    return ratio


def _own_task(block: Any, w: Any) -> Any:
    return fit(w, *block)


def own_step(client: Any, x: Any, y: Any, blocks: int) -> Callable[[Any], Any]:
    """Return a step as it is written with Dask alone: a task for each block with the same compiled function, and a sum."""
    ends = [k * len(x) // blocks for k in range(blocks + 1)]
    parts = client.scatter([(x[a:b], y[a:b]) for a, b in itertools.pairwise(ends)], hash=False)

    def step(w: Any) -> Any:
        results = client.gather(client.map(_own_task, parts, w=w, pure=False))
        return sum(v for v, _ in results) / blocks, sum(g for _, g in results) / blocks

    return step


def steps(repeats: int = 200) -> float:
    """Print what a step takes above Dask's own for the same tasks, in seconds: interleaved, medians. Returns the largest."""
    return max(_steps(blocks, repeats) for blocks in (8, 32, 128))


def _steps(blocks: int, repeats: int) -> float:
    w, x, y = rows(500 * blocks)
    with cluster(2) as client:
        bound = pb.distribute(fit, over=OVER, blocks=blocks, client=client).bind(x=x, y=y)
        own = own_step(client, x, y, blocks)
        np.testing.assert_allclose(bound(w)[1], own(w)[1], rtol=1e-9)
        ours, theirs = [], []
        for k in range(repeats + 10):
            before = time.perf_counter()
            bound(w)
            between = time.perf_counter()
            own(w)
            after = time.perf_counter()
            if k >= 10:
                ours.append(between - before)
                theirs.append(after - between)
    mine, own_time = statistics.median(ours), statistics.median(theirs)
    extra = mine - own_time
    print(f"steps: {blocks} tasks {mine * 1e3:.1f} ms, Dask's own {own_time * 1e3:.1f} ms, above it {extra * 1e3:+.1f} ms")
    return extra


def memory(first: int = 50, last: int = 200) -> dict[str, float]:
    """Print and return the growth of the memory of each process from one fit to a later one; print that of Dask's own tasks."""
    for name, is_own in (("Dask's own tasks", True), ("memory", False)):
        sizes = _memory(first, last, is_own)
        growth = {process: after / before - 1 for process, (before, after) in sizes.items()}
        shown = ", ".join(f"{process} {sizes[process][1] / 2**20:.0f} MiB ({g:+.1%})" for process, g in growth.items())
        print(f"{name}: after fit {last}, and since fit {first}: {shown}")
    return growth


def _memory(first: int, last: int, is_own: bool) -> dict[str, tuple[int, int]]:
    """Return the bytes of each process after two fits of three steps."""
    import psutil

    w, x, y = rows(20_000)
    with cluster(2) as client:
        step = own_step(client, x, y, 4)
        if not is_own:
            step = pb.distribute(fit, over=OVER, blocks=4, client=client).bind(x=x, y=y)
        workers = {f"worker {k}": pid for k, pid in enumerate(client.run(os.getpid).values())}
        pids = {"client and scheduler": os.getpid()} | workers
        sizes: dict[str, list[int]] = {name: [] for name in pids}
        for count in range(1, last + 1):
            point = w
            for _ in range(3):
                point = point - 0.1 * step(point)[1]
            if count in (first, last):
                for name, pid in pids.items():
                    sizes[name].append(psutil.Process(pid).memory_info().rss)
    return {name: (before, after) for name, (before, after) in sizes.items()}


def cold(workers: int = 3) -> list[int]:
    """Print and return the number of kernels that each worker of a cold cluster compiles."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("PULLBACK_CACHE_DIR")
        os.environ["PULLBACK_CACHE_DIR"] = folder
        try:
            w, x, y = rows(9000)
            with cluster(workers) as client:
                pb.distribute(fit, over=OVER, blocks=workers, client=client)(w, x, y)
                counts = list(client.run(_compiles).values())
        finally:
            if before is None:
                del os.environ["PULLBACK_CACHE_DIR"]
            else:
                os.environ["PULLBACK_CACHE_DIR"] = before
    print(f"cold: kernels compiled by each of {workers} workers: {counts}")
    return counts


def _compiles() -> int:
    return pb.cache_info().compiles


def predicted(workers: int, blocks: int, step: float, task: float, block: float) -> float:
    """Return the time of a step in seconds by the model: ``step`` for a round trip, ``task`` for each task on the one scheduler,
    ``block`` for the computation of a block while the other cores of a worker's machine compute theirs."""
    return step + max(blocks * task, -(-blocks // workers) * (block + task))


def model(length: int = 240_000, repeats: int = 7) -> None:
    """Print the constants of the model, measured, what it predicts, and what 1, 2 and 4 workers take."""
    w, x, y = rows(8 * length)
    cores = len(os.sched_getaffinity(0))
    with cluster(min(2, cores)) as client:
        few = pb.distribute(fit, over=OVER, blocks=2, client=client).bind(x=x[:80], y=y[:80])
        many = pb.distribute(fit, over=OVER, blocks=40, client=client).bind(x=x[:80], y=y[:80])
        short, long = median_time(lambda: few(w), 50), median_time(lambda: many(w), 50)
    task = (long - short) / 38
    step = max(short - 2 * task, 0.0)
    block = {}
    for count in (1, min(2, cores)):
        with plain_processes(count, length) as plain:
            block[count] = median_time(lambda plain=plain: plain(w, 1), repeats)
    shown = " and ".join(f"{seconds * 1e3:.0f} ms in each of {count} processes" for count, seconds in block.items())
    print(f"model: round trip {step * 1e3:.1f} ms, task {task * 1e3:.2f} ms, block {shown}")
    for workers in (1, 2, 4):
        with cluster(workers) as client:
            bound = pb.distribute(fit, over=OVER, blocks=8, client=client).bind(x=x, y=y)
            measured = median_time(lambda bound=bound: bound(w), repeats)
        used = min(workers, cores)
        expected = predicted(used, 8, step, task, block[min(used, 2)])
        error = f"{expected / measured - 1:+.0%}"
        print(f"model: {workers} workers: {measured * 1e3:.0f} ms measured, {expected * 1e3:.0f} ms predicted ({error})")
    for workers in (100, 1000):
        expected = predicted(workers, 4 * workers, step, task, block[min(2, cores)])
        moved = 2 * 4 * workers * w.nbytes
        what = f"{8 * workers:,} messages, {moved / 1e6:.1f} MB of parameters and partial results"
        print(f"model: {workers} workers, 4 blocks each: {expected * 1e3:.0f} ms predicted, {what}")


def likelihood(count: int = 10_000_000) -> None:
    """Print the time of a fit of a likelihood to ``count`` rows of five numbers on two workers, and its distance from the closed
    form: the weights of least squares, and the root of the mean square of what they leave."""
    import scipy.optimize

    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 5))
    y = x @ np.arange(5.0) + rng.normal(size=count)
    with cluster(2) as client:
        bound = pb.distribute(pb.value_and_grad(negative_log_likelihood), over=OVER, client=client).bind(x=x, y=y)
        start = time.perf_counter()
        bound(np.zeros(6))
        first = time.perf_counter() - start
        start = time.perf_counter()
        best = scipy.optimize.minimize(bound, np.zeros(6), jac=True)
        taken = time.perf_counter() - start
        step = median_time(lambda: bound(best.x), 20)
    weights = np.linalg.solve(x.T @ x, x.T @ y)
    exact = np.array([*weights, 0.5 * np.log(np.mean((y - x @ weights) ** 2))])
    error = np.max(np.abs(best.x - exact))
    assert error < 1e-6, error
    shown = f"first step {first:.1f} s, a fit of {best.nfev} steps {taken:.1f} s, a step {step * 1e3:.0f} ms"
    print(f"likelihood: {count:,} rows; {shown}; the parameters are within {error:.0e} of the closed form")


PARTS: dict[str, Callable[[], Any]] = {
    "scaling": scaling, "steps": steps, "memory": memory, "cold": cold, "model": model, "likelihood": likelihood,
}  # fmt: skip


def main() -> None:
    """Run the parts that the command line names, or all."""
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    from benchmarks.many_machines import main as imported

    imported()
