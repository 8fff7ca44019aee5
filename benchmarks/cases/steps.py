"""Many small operations each of which waits for the one before: what a program costs between its kernels."""

from typing import Any

import numpy as np

import pullback as pb
from benchmarks.case import Arguments, Case, Target

Array = Any
SUMS, PRODUCTS, ELEMENTWISE = 500, 500, 1000


def sums(x: Array, a: Array) -> Array:
    for _ in range(SUMS):
        x = a * x + np.sum(x)
    return x


def sums_loop(x: Array, a: Array) -> Array:
    return pb.fori_loop(0, SUMS, lambda _, x: a * x + np.sum(x), x)


def sums_arguments(dtype: Any, n: int) -> Arguments:
    """Equal elements and the factor with which they stay what they are; of others a step multiplies the differences by it."""
    return np.full(n, 0.75, dtype), np.asarray(1.0 - n, dtype)


def products(x: Array, w: Array) -> Array:
    for _ in range(PRODUCTS):
        x = np.tanh(x @ w)
    return x


def products_loop(x: Array, w: Array) -> Array:
    return pb.fori_loop(0, PRODUCTS, lambda _, x: np.tanh(x @ w), x)


def products_arguments(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(21)
    return rng.normal(size=(n, n)).astype(dtype), (0.5 * rng.normal(size=(n, n))).astype(dtype)


def elementwise(x: Array, a: Array) -> Array:
    for _ in range(ELEMENTWISE):
        x = a * x * (1.0 - x)
    return x


def elementwise_loop(x: Array, a: Array) -> Array:
    return pb.fori_loop(0, ELEMENTWISE, lambda _, x: a * x * (1.0 - x), x)


def elementwise_arguments(dtype: Any, n: int) -> Arguments:
    """Of a factor with which the logistic map converges, so that dtypes agree."""
    return np.linspace(0.1, 0.9, n).astype(dtype), np.asarray(2.7, dtype)


def steps_case(name: str, function: Any, by_hand: Any, make: Any, ad: float | None = None, *, large: bool = False) -> Case:
    """A row of float64. ``ad``: the ratio to the best of other systems that it should reach."""
    return Case(
        workload="steps",
        name=name,
        function=function,
        by_hand=by_hand,
        make=make,
        sizes={"n": 8},
        small={"n": 3},
        dtypes=("float64",),
        targets={} if ad is None else {"float64": Target(ad=ad)},
        large=large,
    )


CASES = [
    # JAX compiles this for minutes.
    steps_case(f"sums-{SUMS}", sums, sums, sums_arguments, 1 / 20, large=True),
    steps_case(f"products-{PRODUCTS}", products, products, products_arguments, 1 / 4),
    steps_case(f"elementwise-{ELEMENTWISE}", elementwise, elementwise, elementwise_arguments, 1 / 3),
    steps_case(f"sums_loop-{SUMS}", sums_loop, sums, sums_arguments),
    steps_case(f"products_loop-{PRODUCTS}", products_loop, products, products_arguments),
    steps_case(f"elementwise_loop-{ELEMENTWISE}", elementwise_loop, elementwise, elementwise_arguments),
]
