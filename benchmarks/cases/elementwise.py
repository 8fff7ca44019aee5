"""Black-Scholes prices (exp, log, erf, sqrt) and a polynomial of two arrays: forward and gradient in one pass over the data."""

from typing import Any

import numpy as np
from scipy.special import erf

from benchmarks.case import Arguments, Case, Target, Work, both

Array = Any
ROOT_HALF = 0.7071067811865476
DENSITY = 0.3989422804014327
TABLE, BOTH = ("table",), ("table", "regression")


def black_scholes(spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Array:
    root = sigma * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / root
    d2 = d1 - root
    phi1 = 0.5 * (1.0 + erf(d1 * ROOT_HALF))
    phi2 = 0.5 * (1.0 + erf(d2 * ROOT_HALF))
    return np.sum(spot * phi1 - strike * np.exp(-rate * years) * phi2)


def black_scholes_by_hand(spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Any:
    root_years = np.sqrt(years)
    root = sigma * root_years
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / root
    phi1 = 0.5 * (1.0 + erf(d1 * ROOT_HALF))
    phi2 = 0.5 * (1.0 + erf((d1 - root) * ROOT_HALF))
    discounted = np.exp(-rate * years) * phi2
    owed = strike * discounted
    vega = spot * np.exp(-0.5 * d1 * d1) * root_years * DENSITY
    value = np.sum(spot * phi1 - owed)
    return value, (phi1, -discounted, 0.5 * vega * sigma / years + rate * owed, years * owed, vega)


def options(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(0)
    bounds = [(50.0, 150.0), (50.0, 150.0), (0.2, 3.0), (0.0, 0.08), (0.1, 0.6)]
    return tuple(rng.uniform(low, high, n).astype(dtype) for low, high in bounds)


def polynomial(x: Array, y: Array) -> Array:
    return x * y + 0.5 * x * x * y - y * y * x


def chain(x: Array, y: Array) -> Array:
    return np.sum(x * y + 0.5 * x * x * y - y * y * x)


def chain_by_hand(x: Array, y: Array) -> Any:
    xy = x * y
    value = np.sum(xy + 0.5 * x * xy - y * xy)
    return value, (y + xy - y * y, x + 0.5 * x * x - 2.0 * xy)


def two_vectors(dtype: Any, n: int) -> Arguments:
    rng = np.random.default_rng(1)
    return tuple(rng.normal(size=n).astype(dtype) for _ in range(2))


def black_scholes_cases(n: int, name: str) -> list[Case]:
    calls = {"log": n, "exp": n, "erf": 2 * n, "sqrt": n}

    def forward(size: int, n: int) -> Work:
        return Work(reads=5 * n * size, calls=calls)

    def gradient(size: int, n: int) -> Work:
        return Work(reads=5 * n * size, writes=5 * n * size, calls={**calls, "exp": 2 * n})

    shared = {"workload": "black_scholes", "function": black_scholes, "make": options, "sizes": {"n": n}, "small": {"n": 37}}
    goals = {"float64": Target(ad=0.45, hand=0.75, limit=1.7), "float32": Target(ad=0.7, hand=0.8, limit=1.7)}
    return [
        Case(
            **shared,
            name=f"fwd-{name}",
            by_hand=black_scholes,
            work=forward,
            targets=both(0.8, 0.8, 1.4),
        ),
        Case(
            **shared,
            name=f"grad-{name}",
            sets=BOTH if n == 10**6 else TABLE,
            by_hand=black_scholes_by_hand,
            wanted=(0, 1, 2, 3, 4),
            work=gradient,
            targets=goals,
        ),
    ]


def chain_case(name: str, writes: int, target: Target | None, n: int = 10**7, **rest: Any) -> Case:
    def work(size: int, n: int) -> Work:
        return Work(reads=2 * n * size, writes=writes * n * size)

    return Case(
        workload="chain",
        name=name,
        make=two_vectors,
        sizes={"n": n},
        small={"n": 1037},
        work=work,
        targets=dict.fromkeys(("float64", "float32"), target) if target else {},
        **rest,
    )


CASES = [
    *black_scholes_cases(10**6, "n1e6"),
    *black_scholes_cases(10**7, "n1e7"),
    chain_case("map-n1e7", 1, Target(ad=1.0, hand=1.0), function=polynomial, by_hand=polynomial),
    chain_case("fwd-n1e7", 0, Target(ad=0.9, hand=1.05), function=chain, by_hand=chain),
    chain_case("grad-n1e7", 2, Target(ad=0.5, hand=0.95, limit=1.5), function=chain, by_hand=chain_by_hand, wanted=(0, 1)),
]
