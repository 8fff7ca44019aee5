"""Matrix products alone, square and thin, and batches of small matrices."""

from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case, Target, Work

Array = Any


def matmul(x: Array, y: Array) -> Array:
    return x @ y


def factors(dtype: Any, m: int, k: int, n: int) -> Arguments:
    rng = np.random.default_rng(8)
    return rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)


def matmul_work(size: int, m: int, k: int, n: int) -> Work:
    return Work(reads=(m * k + k * n) * size, writes=m * n * size, flops=2 * m * k * n)


def matmul_case(m: int, k: int, n: int, dtypes: tuple[str, ...] = ("float32",)) -> Case:
    limit = 1 / 0.85 if min(m, k, n) >= 512 else None
    return Case(
        workload="matmul", name=f"fwd-{m}x{k}x{n}", function=matmul, by_hand=matmul, make=factors, work=matmul_work,
        sizes={"m": m, "k": k, "n": n}, small={"m": 9, "k": 12, "n": 7}, dtypes=dtypes, large=m * k * n > 1 << 31,
        targets=dict.fromkeys(dtypes, Target(ad=1.0, hand=1.0, limit=limit)),
    )  # fmt: skip


def solves(a: Array, y: Array) -> Array:
    return np.sum(np.linalg.solve(a, y[..., None]) ** 2)


def solves_by_hand(a: Array, y: Array) -> Any:
    x = np.linalg.solve(a, y[..., None])
    dy = np.linalg.solve(np.swapaxes(a, -1, -2), 2 * x)
    return np.sum(x**2), (-dy * np.swapaxes(x, -1, -2), dy[..., 0])


def systems(dtype: Any, count: int, n: int) -> Arguments:
    rng = np.random.default_rng(9)
    return (rng.normal(size=(count, n, n)) + n * np.eye(n)).astype(dtype), rng.normal(size=(count, n)).astype(dtype)


def solves_work(size: int, count: int, n: int) -> Work:
    return Work(reads=count * n * (n + 1) * size, writes=count * n * (n + 1) * size, flops=count * 2 * n**3 // 3)


SKINNY = (
    (32, 1024, 1024), (1024, 32, 1024), (1024, 1024, 32), (8, 1024, 1024), (8, 4096, 4096), (1, 1024, 1024), (1024, 1024, 1),
)  # fmt: skip
CASES = [
    *(matmul_case(n, n, n) for n in (64, 128, 256, 512, 1024, 2048, 4096)),
    *(matmul_case(*shape, ("float32", "float64")) for shape in SKINNY),
    Case(
        workload="solves", name="grad-10000x6", function=solves, by_hand=solves_by_hand, make=systems, work=solves_work,
        sizes={"count": 10_000, "n": 6}, small={"count": 19, "n": 3}, wanted=(0, 1),
        targets=dict.fromkeys(("float64", "float32"), Target(ad=0.2)),
    ),
]  # fmt: skip
