"""Functions by blocks of rows on a Dask cluster of processes of this machine: scaling, the time of a step, memory, a cold start.

    python -m benchmarks.many_machines                 # all parts, a few minutes
    python -m benchmarks.many_machines scaling steps   # some of them

``scaling``: two workers, and two plain processes that compute the same blocks. ``steps``: what a step takes above Dask's own
time for as many tasks. ``memory``: of the client with its scheduler, and of the workers, after fits 50 and 200. ``cold``: the
kernels that each worker of a cold cluster compiles. ``model``: the constants of the model in docs/many-machines.md, and what it
predicts.
"""

from __future__ import annotations

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


def _plain_process(connection: Any, blocks: int, length: int, seed: int) -> None:
    _, x, y = rows(length, seed)
    slope = pb.value_and_grad(loss)
    while (w := connection.recv()) is not None:
        results = [slope(w, x, y) for _ in range(blocks)]
        connection.send((sum(v for v, _ in results), sum(g for _, g in results)))


def scaling(blocks: int = 8, length: int = 240_000, repeats: int = 7) -> float:
    """Print and return the time of two plain processes over that of two workers."""
    os.environ["PULLBACK_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    arguments = [(far, blocks // 2, length, k) for k, (_, far) in enumerate(pipes)]
    started = [context.Process(target=_plain_process, args=each) for each in arguments]
    for process in started:
        process.start()
    w, x, y = rows(blocks * length)

    def plain() -> None:
        for near, _ in pipes:
            near.send(w)
        for near, _ in pipes:
            near.recv()

    with cluster(2) as client:
        bound = pb.distribute(pb.value_and_grad(loss), over={"x": 0, "y": 0}, blocks=blocks, client=client).bind(x=x, y=y)
        times: dict[str, list[float]] = {"plain": [], "workers": []}
        for _ in range(repeats):
            times["plain"].append(median_time(plain, 1))
            times["workers"].append(median_time(lambda: bound(w), 1))
    for near, _ in pipes:
        near.send(None)
    for process in started:
        process.join()
    alone, together = (statistics.median(times[name]) for name in ("plain", "workers"))
    ratio = alone / together
    print(f"scaling: two plain processes {alone * 1e3:.1f} ms, two workers {together * 1e3:.1f} ms, ratio {ratio:.2f}")
    return alone / together


def _numpy_task(block: Any, w: Any) -> Any:
    x, y = block
    d = x @ w - y
    return d @ d, x.T @ d


def steps(blocks: int = 8, repeats: int = 200) -> float:
    """Print and return what a step takes above Dask's own for as many tasks of NumPy, in seconds: interleaved, medians."""

    def squares(w: Any, x: Any, y: Any) -> Any:
        d = x @ w - y
        return d @ d

    w, x, y = rows(2000 * blocks)
    with cluster(2) as client:
        bound = pb.distribute(pb.value_and_grad(squares), over={"x": 0, "y": 0}, blocks=blocks, client=client).bind(x=x, y=y)
        parts = client.scatter([(x[k * 2000 : (k + 1) * 2000], y[k * 2000 : (k + 1) * 2000]) for k in range(blocks)], hash=False)

        def own() -> Any:
            results = client.gather(client.map(_numpy_task, parts, w=w, pure=False))
            return sum(v for v, _ in results), sum(2 * g for _, g in results)

        ours, theirs = [], []
        for k in range(repeats + 10):
            before = time.perf_counter()
            bound(w)
            between = time.perf_counter()
            own()
            after = time.perf_counter()
            if k >= 10:
                ours.append(between - before)
                theirs.append(after - between)
    mine, own_time = statistics.median(ours), statistics.median(theirs)
    extra = mine - own_time
    print(f"steps: {blocks} tasks {mine * 1e3:.1f} ms, Dask's own {own_time * 1e3:.1f} ms, above it {extra * 1e3:+.1f} ms")
    return extra


def memory(first: int = 50, last: int = 200) -> dict[str, float]:
    """Print and return the growth of the memory of each process from one fit to a later one."""
    import psutil

    w, x, y = rows(20_000)
    with cluster(2) as client:
        bound = pb.distribute(pb.value_and_grad(loss), over={"x": 0, "y": 0}, blocks=4, client=client).bind(x=x, y=y)
        workers = {f"worker {k}": pid for k, pid in enumerate(client.run(os.getpid).values())}
        pids = {"client and scheduler": os.getpid()} | workers
        sizes: dict[int, dict[str, int]] = {}
        for fit in range(1, last + 1):
            point = w
            for _ in range(3):
                point = point - 0.1 * bound(point)[1]
            if fit in (first, last):
                sizes[fit] = {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}
    growth = {name: sizes[last][name] / sizes[first][name] - 1 for name in pids}
    shown = ", ".join(f"{name} {sizes[last][name] / 2**20:.0f} MiB ({g:+.1%})" for name, g in growth.items())
    print(f"memory after fit {last}, and since fit {first}: {shown}")
    return growth


def cold(workers: int = 3) -> list[int]:
    """Print and return the number of kernels that each worker of a cold cluster compiles."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("PULLBACK_CACHE_DIR")
        os.environ["PULLBACK_CACHE_DIR"] = folder
        try:
            w, x, y = rows(9000)
            with cluster(workers) as client:
                pb.distribute(pb.value_and_grad(loss), over={"x": 0, "y": 0}, blocks=workers, client=client)(w, x, y)
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
    ``block`` for the computation of a block."""
    return step + max(blocks * task, -(-blocks // workers) * (block + task))


def model(length: int = 120_000, repeats: int = 7) -> None:
    """Print the constants of the model, measured, and what it predicts."""
    os.environ["PULLBACK_NUM_THREADS"] = "1"
    w, x, y = rows(8 * length)
    fit = pb.value_and_grad(loss)
    tiny = x[:80], y[:80]
    measured: dict[int, float] = {}
    with cluster(1) as client:
        over = {"x": 0, "y": 0}
        few = pb.distribute(fit, over=over, blocks=2, client=client).bind(x=tiny[0], y=tiny[1])
        many = pb.distribute(fit, over=over, blocks=40, client=client).bind(x=tiny[0], y=tiny[1])
        short, long = median_time(lambda: few(w), 30), median_time(lambda: many(w), 30)
    task = (long - short) / 38
    step = max(short - 2 * task, 0.0)
    block = median_time(lambda: fit(w, x[:length], y[:length]), repeats)
    print(f"model: round trip {step * 1e3:.1f} ms, task {task * 1e3:.2f} ms, block {block * 1e3:.1f} ms")
    cores = len(os.sched_getaffinity(0))
    for workers in (1, 2, 4):
        with cluster(workers) as client:
            bound = pb.distribute(fit, over={"x": 0, "y": 0}, blocks=8, client=client).bind(x=x, y=y)
            measured[workers] = median_time(lambda bound=bound: bound(w), repeats)
        expected = predicted(min(workers, cores), 8, step, task, block)
        print(f"model: {workers} workers: {measured[workers] * 1e3:.0f} ms measured, {expected * 1e3:.0f} ms predicted")
    for workers in (100, 1000):
        expected = predicted(workers, 4 * workers, step, task, block)
        print(f"model: {workers} workers, 4 blocks each: {expected * 1e3:.0f} ms predicted")


PARTS: dict[str, Callable[[], Any]] = {"scaling": scaling, "steps": steps, "memory": memory, "cold": cold, "model": model}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
