"""The elementary functions of generated code: accuracy against mpmath, special values against NumPy.

Each recipe is built by the real builder and its instructions run on arrays by the reference of each op, so that what is
measured is the recipe and not a compiler. ``BOUNDS`` are the greatest errors allowed, in units in the last place of the exact
result; they lie a little above the greatest seen over some 1e6 arguments each.
"""

from __future__ import annotations

import fractions
import functools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import pullback.ir.ops  # noqa: F401
from pullback.codegen.math import MATH
from pullback.codegen.math_basis import Recipe
from pullback.codegen.schedule import schedule
from pullback.ir.builder import Builder
from pullback.ir.structure import Block, Value, walk
from pullback.ir.text import parse_function
from pullback.ir.types import scalar

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {"f64": np.float64, "f32": np.float32}

# op: (float64, float32)
BOUNDS = {
    "exp": (0.95, 0.95),
    "log": (0.95, 0.95),
    "log1p": (1.4, 1.5),
    "tanh": (2.0, 2.0),
    "expit": (2.4, 2.4),
    "logaddexp": (1.6, 1.7),
    "erf": (0.95, 0.95),
    "sin": (0.95, 0.95),
    "cos": (0.95, 0.95),
    "expm1": (1.4, 1.4),
    "gammaln": (1.5, 1.5),
    "digamma": (1.5, 1.5),
    "pow": (1.0, 0.6),
    "exp2": (0.95, 0.95),
    "log2": (1.0, 1.0),
    "log10": (0.95, 0.95),
    "erfc": (3.6, 3.2),
    "tan": (1.2, 1.3),
    "sinh": (2.5, 2.5),
    "cosh": (1.4, 1.5),
    "atan": (1.9, 1.7),
    "atan2": (1.9, 1.7),
    "asin": (1.7, 1.7),
    "acos": (0.9, 0.9),
    "hypot": (1.0, 1.0),
    "cbrt": (0.6, 0.6),
    "asinh": (1.9, 2.0),
    "acosh": (2.2, 2.2),
    "atanh": (2.0, 2.0),
}
BINARY = {"logaddexp", "pow", "atan2", "hypot"}
NUMPY: dict[str, Callable[..., Array]] = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "pow": np.power,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "digamma": scipy.special.digamma,
    # SciPy's own is infinite at subnormal numbers.
    "gammaln": lambda x: np.where((np.abs(x) > 0) & (np.abs(x) < 1e-300), -np.log(np.abs(x)), scipy.special.gammaln(x)),
    # SciPy's own flushes its subnormal values to 0.
    "expit": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x))),
}
EXACT: dict[str, Callable[..., Any]] = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "logaddexp": lambda x, y: max(x, y) + mpmath.log1p(mpmath.exp(-abs(x - y))),
    "pow": mpmath.power,
    "gammaln": lambda x: mpmath.loggamma(x).real,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
}
# Where results of float64 are finite; float32 has its own limits for the growing functions.
RANGES = {
    "exp": (-746.0, 709.0, -104.0, 88.7),
    "exp2": (-1075.0, 1023.9, -150.0, 127.9),
    "expm1": (-50.0, 709.0, -50.0, 88.7),
    "sinh": (-710.0, 710.0, -89.0, 89.0),
    "cosh": (-710.0, 710.0, -89.0, 89.0),
    "expit": (-745.0, 50.0, -103.0, 50.0),
    "erfc": (-7.0, 27.2, -7.0, 10.05),
    "gammaln": (0.0, 2.5e305, 0.0, 4e36),
    "digamma": (1e-300, np.inf, 1e-38, np.inf),
    "log": (0.0, np.inf, 0.0, np.inf),
    "log2": (0.0, np.inf, 0.0, np.inf),
    "log10": (0.0, np.inf, 0.0, np.inf),
    "log1p": (-1.0, np.inf, -1.0, np.inf),
    "acosh": (1.0, np.inf, 1.0, np.inf),
    "atanh": (-1.0, 1.0, -1.0, 1.0),
    "asin": (-1.0, 1.0, -1.0, 1.0),
    "acos": (-1.0, 1.0, -1.0, 1.0),
}


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    def split(v: Array) -> tuple[Array, Array]:
        scaled = v * 134217729.0
        high = scaled - (scaled - v)
        return high, v - high

    (a, b), (c, d) = split(x), split(y)
    product = x * y
    return product, b * d - (((product - a * c) - b * c) - a * d)


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z rounded once (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008)."""
    x, y, z = np.broadcast_arrays(x, y, z)
    if x.dtype == np.float32:
        product, rest = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
        return odd_sum(product, rest).astype(np.float32)
    high, low = two_product(x, y)
    first, second = two_sum(z, low)
    total, third = two_sum(high, first)
    result = total + odd_sum(second, third)
    size, zero = np.abs(x * y), (x == 0) | (y == 0)
    usual = (size > 1e-270) & (size < 1e290) & (np.abs(x) < 1e290) & (np.abs(y) < 1e290) & (np.abs(z) < 1e300)
    result = np.where(usual, result, x * y + z)
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    for i in np.argwhere(~usual & ~zero & finite):
        result[tuple(i)] = fma_of_fractions(*(float(v[tuple(i)]) for v in (x, y, z)))
    return result


def odd_sum(x: Array, y: Array) -> Array:
    """x + y rounded to odd: if inexact, to the neighbour whose last bit is set."""
    total, error = two_sum(x, y)
    bits = total.view(np.int64)
    away = (error > 0) == (total > 0)
    fixed = np.where((error != 0) & (bits & 1 == 0), bits + np.where(away, 1, -1), bits).view(np.float64)
    return np.where(np.isfinite(total) & np.isfinite(error), fixed, total)


def fma_of_fractions(x: float, y: float, z: float) -> float:
    exact = fractions.Fraction(x) * fractions.Fraction(y) + fractions.Fraction(z)
    if not exact:
        return x * y + z
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@functools.cache
def built(recipe: Recipe, dtype: str, arity: int) -> Block:
    b = Builder()
    parameters = [Value(scalar(dtype)) for _ in range(arity)]
    return b.block(parameters, [recipe(b, *parameters)])


def run(recipe: Recipe, *arguments: Array) -> Array:
    """The recipe at every element of ``arguments``."""
    dtype = {v: k for k, v in DTYPES.items()}[arguments[0].dtype.type]
    block = built(recipe, dtype, len(arguments))
    values: dict[Value, Array] = dict(zip(block.parameters, arguments, strict=True))
    with np.errstate(all="ignore"):
        run_block(block, values)
    return np.broadcast_to(values[block.results[0]], arguments[0].shape)


def run_block(block: Block, values: dict[Value, Array]) -> None:
    for i in block.instructions:
        operands = [values[v] for v in i.operands]
        if i.regions:
            run_block(i.regions[0], values)
            found = [np.where(operands[0], values[v], o) for v, o in zip(i.regions[0].results, operands[1:], strict=True)]
        elif i.op.name == "fma":
            found = [fma(*operands)]
        else:
            found = list(i.op.evaluate(operands, i.params, [v.type for v in i.results]))
        values.update(zip(i.results, found, strict=True))


def arguments_of(name: str, dtype: str, count: int = 260) -> Array:
    """Arguments over the whole range: all magnitudes, the middle, near 1 and the multiples of pi/2, both signs."""
    rng = np.random.default_rng(sum(map(ord, name + dtype)))
    least, most = (-1074, 1023) if dtype == "f64" else (-149, 127)
    multiples = np.round(np.exp2(rng.uniform(0, 15, count))) * np.pi / 2
    parts = [
        np.exp2(rng.uniform(least, most, count)),
        np.exp2(rng.uniform(-30, 10, count)),
        rng.uniform(0, 1, count),
        rng.uniform(0, 7, 2 * count),
        rng.uniform(0, 100, count),
        rng.uniform(0, 745, count),
        1 + rng.normal(0, 1, count) * np.exp2(rng.uniform(-45, 0, count)),
        multiples,
        multiples + rng.uniform(-0.8, 0.8, count),
    ]
    x = np.concatenate(parts)
    x = np.concatenate([x, -x]).astype(DTYPES[dtype])
    limits = RANGES.get(name, (-np.inf, np.inf) * 2)
    low, high = limits[:2] if dtype == "f64" else limits[2:]
    return x[(x > low) & (x < high) & np.isfinite(x)]


def pairs_of(name: str, dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(sum(map(ord, name + dtype)))
    kind = DTYPES[dtype]
    if name == "logaddexp":
        x = rng.uniform(-60, 60, 2000).astype(kind)
        return x, (x + rng.normal(0, 1, 2000) * np.exp2(rng.uniform(-20, 6, 2000))).astype(kind)
    if name == "pow":
        x = np.abs(arguments_of(name, dtype, 150))
        x = x[(x != 0) & (x != 1)]
        span = 708.0 if dtype == "f64" else 87.0
        return x, (rng.uniform(-span, span, x.size) / np.log(x.astype(np.float64))).astype(kind)
    x = arguments_of(name, dtype, 100)
    x = x[np.abs(x) < (1e300 if dtype == "f64" else 1e38)]
    near = x.astype(np.longdouble) * np.exp2(rng.uniform(-30, 30, x.size))
    y = np.where(rng.random(x.size) < 0.5, rng.permutation(x), near)
    keep = np.abs(y) < (1e300 if dtype == "f64" else 1e38)
    return x[keep], y[keep].astype(kind)


def errors(name: str, result: Array, *arguments: Array) -> Array:
    """Distances from the exact values in units in the last place of these."""
    exact = EXACT.get(name) or getattr(mpmath, name)
    digits, least = (53, -1074) if result.dtype == np.float64 else (24, -149)
    found = []
    with mpmath.workdps(50):
        for y, *xs in zip(result.tolist(), *(a.tolist() for a in arguments), strict=True):
            value = exact(*(mpmath.mpf(x) for x in xs))
            scale = abs(value)
            if name == "logaddexp":
                scale = max(scale, abs(max(xs)), mpmath.log(2))
            exponent = max(mpmath.frexp(scale)[1] - digits, least)
            found.append(float(abs(mpmath.mpf(y) - value) / mpmath.ldexp(1, exponent)))
    return np.array(found)


def test_every_recipe_has_a_bound() -> None:
    assert set(BOUNDS) == set(MATH)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MATH)
def test_accuracy(name: str, dtype: str) -> None:
    arguments = pairs_of(name, dtype) if name in BINARY else (arguments_of(name, dtype),)
    assert arguments[0].size > 900
    result = run(MATH[name], *arguments)
    assert result.dtype == DTYPES[dtype]
    found = errors(name, result, *arguments)
    worst = int(np.argmax(found))
    bound = BOUNDS[name][0 if dtype == "f64" else 1]
    assert found[worst] <= bound, ([a[worst] for a in arguments], result[worst], found[worst])


SMALL_AND_LARGE = (0.0, 1e-310, 5e-324, 1e-300, 1e-40, 1e300, np.inf)
MIDDLE = (0.5, 1.0, 1.5, 2.0, 3.0, 90.0, 105.0, 160.0, 720.0, 747.0, 2000.0)


def assert_same(name: str, found: Array, expected: Array, *arguments: Array) -> None:
    """Equal infinities, NaNs, zeros and their signs, and other values to a few units in the last place."""
    tiny = np.finfo(found.dtype).smallest_subnormal
    with np.errstate(all="ignore"):
        near = np.abs(found - expected) <= 8 * np.finfo(found.dtype).eps * np.abs(expected) + tiny
    same = (found == expected) | (near & (expected != 0) & np.isfinite(expected))
    same &= np.signbit(found) == np.signbit(expected)
    same |= np.isnan(found) & np.isnan(expected)
    wrong = [(name, *(a[i] for a in arguments), found[i], expected[i]) for i in np.flatnonzero(~same)]
    assert not wrong, wrong[:10]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MATH)
def test_special_values(name: str, dtype: str) -> None:
    kind = DTYPES[dtype]
    with np.errstate(all="ignore"):
        x = np.array([*SMALL_AND_LARGE, *MIDDLE])
        x = np.concatenate([x, -x, [np.nan]]).astype(kind)
        arguments: tuple[Array, ...] = (x,)
        if name in BINARY:
            arguments = tuple(a.ravel() for a in np.meshgrid(x, x))
        reference = NUMPY.get(name) or getattr(np, name)
        # In float64 first: NumPy's own float32 functions differ in their last digits and at some subnormal numbers.
        expected = reference(*(a.astype(np.float64) for a in arguments)).astype(kind)
    assert_same(name, run(MATH[name], *arguments), expected, *arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exact_results(dtype: str) -> None:
    """Where the exact value is a small integer or a power of two, the result is that."""
    kind = DTYPES[dtype]
    integers = np.arange(-40, 41).astype(kind)
    tens = np.arange(0, 22 if dtype == "f64" else 10).astype(kind)
    largest = 2 ** np.finfo(kind).nmant
    powers = np.array([(x, y) for x in range(-60, 61) for y in range(25) if abs(x) ** y < largest])
    bases, exponents = powers[:, 0].astype(kind), powers[:, 1].astype(kind)
    assert np.array_equal(run(MATH["exp2"], integers), np.exp2(integers.astype(np.float64)))
    assert np.array_equal(run(MATH["log2"], np.exp2(integers)), integers)
    assert np.array_equal(run(MATH["log10"], (10.0 ** tens.astype(np.float64)).astype(kind)), tens)
    assert np.array_equal(run(MATH["cbrt"], integers**3), integers)
    assert np.array_equal(run(MATH["pow"], bases, exponents), [float(x**y) for x, y in powers.tolist()])
    assert np.array_equal(run(MATH["hypot"], integers * 3, integers * 4), np.abs(integers) * 5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "sinh", "sin", "tan", "asin", "atan", "asinh", "atanh"])
def test_tiny_arguments_come_back(name: str, dtype: str) -> None:
    kind = DTYPES[dtype]
    info = np.finfo(kind)
    x = np.array([info.smallest_subnormal, info.smallest_normal, info.eps**2, 0.0], kind)
    x = np.concatenate([x, -x])
    result = run(MATH[name], x)
    assert np.array_equal(result, x) and np.array_equal(np.signbit(result), np.signbit(x))


@pytest.mark.parametrize("name", MATH)
def test_straight_line(name: str) -> None:
    """No region, no memory, no op that is itself a recipe of this table."""
    for dtype in DTYPES:
        block = built(MATH[name], dtype, 2 if name in BINARY else 1)
        names = {i.op.name for i in block.instructions}
        assert all(i.op.name == "rare" for i in block.instructions if i.regions)
        assert not names & (set(MATH) | {"load", "store", "for", "if"})


def test_common_parts_merge() -> None:
    """logaddexp(x, y) and the expit(x - y) of its gradient share the exponential, sin and cos their reduction."""

    def count(*lines: str) -> int:
        body = "\n".join(lines)
        stores = "\n".join(f"store %{k}, %out" for k in range(1, len(lines) + 1) if "sub" not in lines[k - 1])
        text = f"pullback-ir 1\nkernel k(%x: f64[], %y: f64[], %out: &f64[]) -> () {{\n{body}\n{stores}\nreturn\n}}"
        return sum(1 for _ in walk(schedule(parse_function(text)).body))

    joined = count("%1: f64[] = sub %x, %y", "%2: f64[] = logaddexp %x, %y", "%3: f64[] = expit %1")
    assert joined < count("%1: f64[] = sub %x, %y", "%2: f64[] = logaddexp %x, %y") + 12
    assert count("%1: f64[] = sin %x", "%2: f64[] = cos %x") < count("%1: f64[] = sin %x") + 12
