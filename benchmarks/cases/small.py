"""Calls whose time is that of one call: a few numbers in, a few out; and a gradient by twenty small arrays."""

from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case, Target

Array = Any


def rosenbrock(x: Array) -> Array:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_by_hand(x: Array) -> Any:
    head = x[:-1]
    miss, rest = x[1:] - head * head, 1.0 - head
    gradient = np.zeros_like(x)
    gradient[:-1] = -400.0 * head * miss - 2.0 * rest
    gradient[1:] += 200.0 * miss
    return np.sum(100.0 * miss * miss + rest * rest), (gradient,)


def points(dtype: Any, n: int) -> Arguments:
    return (np.linspace(-1.0, 1.0, n).astype(dtype),)


def identity(x: Array) -> Array:
    return np.positive(x)


def tree(parameters: dict[str, Array]) -> Array:
    total = 0.0
    for value in parameters.values():
        total = total + np.sum(value * value)
    return total


def tree_by_hand(parameters: dict[str, Array]) -> Any:
    value = sum(np.sum(v * v) for v in parameters.values())
    return value, ({name: 2.0 * v for name, v in parameters.items()},)


def leaves(dtype: Any, count: int) -> Arguments:
    rng = np.random.default_rng(13)
    return ({f"p{i}": rng.normal(size=10).astype(dtype) for i in range(count)},)


def rosenbrock_case(n: int) -> Case:
    shared = {"function": rosenbrock, "by_hand": rosenbrock_by_hand, "make": points, "wanted": (0,)}
    sizes = {"sizes": {"n": n}, "small": {"n": min(n, 11)}, "sets": ("table", "regression") if n == 10 else ("table",)}
    targets = {"float64": Target(ad=1 / 40, hand=0.25)} if n == 2 else {}
    return Case(workload="small", name=f"rosen_grad-n{n}", dtypes=("float64",), targets=targets, **shared, **sizes)


CASES = [
    *[rosenbrock_case(n) for n in (2, 10, 100, 1000)],
    Case(
        workload="small",
        name="identity-n1",
        function=identity,
        by_hand=identity,
        make=points,
        sizes={"n": 1},
        small={"n": 1},
        dtypes=("float64",),
    ),
    Case(
        workload="small",
        name="tree20_grad",
        function=tree,
        by_hand=tree_by_hand,
        make=leaves,
        sizes={"count": 20},
        small={"count": 3},
        wanted=(0,),
        dtypes=("float64",),
        targets={"float64": Target(ad=0.2)},
    ),
]
