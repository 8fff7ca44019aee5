"""Index-heavy objectives: rows of an embedding, a running sum, a sort."""

from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case, Target, Work

Array = Any


def embed(table: Array, position: Array, c: Array) -> Array:
    return table[position]


def embed_loss(table: Array, position: Array, c: Array) -> Array:
    return np.sum(table[position] * c)


def embed_by_hand(table: Array, position: Array, c: Array) -> Any:
    gradient = np.zeros_like(table)
    np.add.at(gradient, position, c)
    return np.sum(table[position] * c), (gradient,)


def embedding(dtype: Any, rows: int, width: int, count: int) -> Arguments:
    rng = np.random.default_rng(11)
    table, c = rng.normal(size=(rows, width)), rng.normal(size=(count, width))
    return table.astype(dtype), rng.integers(0, rows, count), c.astype(dtype)


def running(x: Array, c: Array) -> Array:
    return np.cumsum(x)


def running_loss(x: Array, c: Array) -> Array:
    return np.sum(np.cumsum(x) * c)


def cumsum_by_hand(x: Array, c: Array) -> Any:
    return np.sum(np.cumsum(x) * c), (np.cumsum(c[::-1])[::-1],)


def series(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(12)
    return tuple(rng.normal(size=n).astype(dtype) for _ in range(2))


def ordered(x: Array, c: Array) -> Array:
    return np.sort(x)


def ordered_loss(x: Array, c: Array) -> Array:
    return np.sum(np.sort(x) * c)


def sort_by_hand(x: Array, c: Array) -> Any:
    order = np.argsort(x)
    gradient = np.empty_like(x)
    gradient[order] = c
    return np.sum(x[order] * c), (gradient,)


def embed_case(kind: str, large: int, tables: int, **rest: Any) -> Case:
    """`large` counts the arrays (count, width), `tables` those of a table's shape."""

    def work(size: int, rows: int, width: int, count: int) -> Work:
        gathered = count * width * size
        return Work(reads=gathered * (large - 1 + tables) + 8 * count, writes=(rows * width * size if tables else gathered))

    sizes, small = {"rows": 50_000, "width": 64, "count": 100_000}, {"rows": 9, "width": 5, "count": 23}
    shared = {"make": embedding, "sizes": sizes, "small": small, "work": work, "dtypes": ("float32",)}
    return Case(workload="index", name=f"embed_{kind}", **shared, **rest)


def series_case(name: str, arrays: int, **rest: Any) -> Case:
    def work(size: int, n: int) -> Work:
        return Work(reads=(arrays - 1) * n * size, writes=n * size)

    return Case(workload="index", name=name, make=series, small={"n": 1037}, **({"work": work} if arrays else {}), **rest)


LONG, SHORT = {"sizes": {"n": 10**7}}, {"sizes": {"n": 10**6}, "dtypes": ("float64",)}
CASES = [
    embed_case("fwd", 2, 0, function=embed, by_hand=embed),
    embed_case(
        "grad",
        2,
        1,
        function=embed_loss,
        by_hand=embed_by_hand,
        wanted=(0,),
        targets={"float32": Target(ad=0.3, hand=0.8, limit=2.5)},
    ),
    series_case(
        "cumsum_fwd",
        2,
        **LONG,
        function=running,
        by_hand=running,
        targets=dict.fromkeys(("float64", "float32"), Target(ad=0.1, hand=0.5, limit=2.5)),
    ),
    series_case(
        "cumsum_grad",
        3,
        **LONG,
        function=running_loss,
        by_hand=cumsum_by_hand,
        wanted=(0,),
        dtypes=("float64",),
        targets={"float64": Target(ad=0.05, hand=0.6, limit=2.5)},
    ),
    series_case("sort_fwd", 0, **SHORT, function=ordered, by_hand=ordered, targets={"float64": Target(ad=0.07, hand=1.05)}),
    series_case(
        "sort_grad",
        0,
        **SHORT,
        function=ordered_loss,
        by_hand=sort_by_hand,
        wanted=(0,),
        targets={"float64": Target(ad=0.2, hand=0.6)},
    ),
]
