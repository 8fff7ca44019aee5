"""The elementary functions of generated code: accuracy against mpmath, special values against NumPy, and the same results on
every processor, at every width and in every lane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.math.table import MATH
from pullback.ir.core.structure import walk
from pullback.ir.core.value import Value
from pullback.ir.text import parse_function
from pullback.runtime.compile.machine import find_host
from tests.support.elementary.arguments import BINARY, BOUNDS, NUMPY, STEPS, arguments_of, errors, hard, pairs_of
from tests.support.elementary.recipes import DTYPES, Array, built, compiled, run, run_block


def test_every_recipe_has_a_bound() -> None:
    assert set(BOUNDS) == set(MATH)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MATH)
def test_accuracy(name: str, dtype: str) -> None:
    arguments = pairs_of(name, dtype) if name in BINARY else (arguments_of(name, dtype),)
    assert arguments[0].size > 900
    result = run(MATH[name], *arguments)
    assert result.dtype == DTYPES[dtype]
    actual = errors(name, result, *arguments)
    worst = int(np.argmax(actual))
    bound = BOUNDS[name][0 if dtype == "f64" else 1]
    assert actual[worst] <= bound, ([a[worst] for a in arguments], result[worst], actual[worst])


SMALL_AND_LARGE = (0.0, 1e-310, 5e-324, 1e-300, 1e-40, 1e300, np.inf)
MIDDLE = (0.5, 1.0, 1.5, 2.0, 3.0, 90.0, 105.0, 160.0, 720.0, 747.0, 2000.0)


def assert_same(name: str, result: Array, expected: Array, *arguments: Array) -> None:
    """Equal infinities, NaNs, zeros and their signs, and other values to a few units in the last place."""
    tiny = np.finfo(result.dtype).smallest_subnormal
    with np.errstate(all="ignore"):
        near = np.abs(result - expected) <= 8 * np.finfo(result.dtype).eps * np.abs(expected) + tiny
    same = (result == expected) | (near & (expected != 0) & np.isfinite(expected))
    same &= np.signbit(result) == np.signbit(expected)
    same |= np.isnan(result) & np.isnan(expected)
    wrong = [(name, *(a[i] for a in arguments), result[i], expected[i]) for i in np.flatnonzero(~same)]
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
        if name in STEPS:
            end, least = arguments[0] + arguments[1], np.finfo(kind).tiny
            usual = (arguments[0] >= least) & (end >= least) & np.isfinite(end) & (arguments[1] != 0)
            arguments = tuple(a[usual] for a in arguments)
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
        assert all(i.op.name == "cold_function" for i in block.instructions if i.regions)
        assert not names & (set(MATH) | {"load", "store", "for", "if"})


def test_common_parts_merge() -> None:
    """logaddexp(x, y) and the expit(x - y) of its gradient share the exponential, sin and cos their reduction."""

    def count(*lines: str) -> int:
        body = "\n".join(lines)
        stores = "\n".join(f"store %{k}, %out" for k in range(1, len(lines) + 1) if "sub" not in lines[k - 1])
        text = f"pullback-ir 2\nkernel k(%x: f64[], %y: f64[], %out: &f64[]) -> () {{\n{body}\n{stores}\nreturn\n}}"
        return sum(1 for _ in walk(schedule(parse_function(text)).body))

    joined = count("%1: f64[] = sub %x, %y", "%2: f64[] = logaddexp %x, %y", "%3: f64[] = expit %1")
    assert joined < count("%1: f64[] = sub %x, %y", "%2: f64[] = logaddexp %x, %y") + 18
    assert count("%1: f64[] = sin %x", "%2: f64[] = cos %x") < count("%1: f64[] = sin %x") + 12


def special_arguments(dtype: str) -> Array:
    with np.errstate(over="ignore"):
        x = np.array([*SMALL_AND_LARGE, *MIDDLE])
        return np.concatenate([x, -x, [np.nan]]).astype(DTYPES[dtype])


LEVELS = ("native", "avx2", "baseline")
WIDTHS = (1, 2, 4, 8, 16)


def is_here(level: str) -> bool:
    try:
        return find_host(level) is not None
    except ValueError:
        return False


def bits(x: Array) -> Array:
    """The bits of floats, one pattern for all NaN."""
    return np.where(np.isnan(x), x.dtype.type(np.nan), x).view(f"u{x.itemsize}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MATH)
def test_same_bits_everywhere(name: str, dtype: str) -> None:
    """Interpreted and compiled for processors of every level, with vectors of every width, in any lane and in the tail."""
    special = special_arguments(dtype)
    if name in BINARY:
        x, y = pairs_of(name, dtype)
        first, second = (a.ravel() for a in np.meshgrid(special, special))
        arguments: tuple[Array, ...] = (np.concatenate([x[:700], first]), np.concatenate([y[:700], second]))
    else:
        arguments = (np.concatenate([arguments_of(name, dtype, 40), hard(dtype), special]),)
    expected = bits(run(MATH[name], *arguments))
    for level in filter(is_here, LEVELS):
        assert np.array_equal(bits(compiled(name, *arguments, level=level)), expected), level
    size = arguments[0].itemsize
    for width in (w for w in WIDTHS if w * size <= max(find_host().vector_bytes, 16)):
        for start in (0, 1, 3):
            part = tuple(np.ascontiguousarray(a[start:]) for a in arguments)
            result = compiled(name, *part, vector_bytes=width * size)
            assert np.array_equal(bits(result), expected[start:]), (width, start)


TABLES = Path(np.__file__).parent / "_core" / "tests" / "data"
CALLED = {name: (NUMPY.get(name) or getattr(np, name)).__name__ for name in MATH if name not in BINARY}
FILES = {name: f"umath-validation-set-{called}.csv" for name, called in CALLED.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [name for name, file in FILES.items() if (TABLES / file).exists()])
def test_tables_of_numpy(name: str, dtype: str) -> None:
    """The accuracy tables in NumPy's tests: correctly rounded results, from which ours are as far as our errors allow."""
    kind, unsigned = DTYPES[dtype], np.uint64 if dtype == "f64" else np.uint32
    lines = [line.split(",") for line in (TABLES / FILES[name]).read_text().splitlines()]
    rows = [line for line in lines if line[0] == f"np.{np.dtype(kind).name}"]
    assert len(rows) > 100
    x, expected = (np.array([int(row[k], 16) for row in rows], unsigned).view(kind) for k in (1, 2))
    result = compiled(name, x)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    assert np.array_equal(np.signbit(result)[~np.isnan(result)], np.signbit(expected)[~np.isnan(result)])
    usual = np.isfinite(expected)
    assert np.array_equal(result[~usual & ~np.isnan(result)], expected[~usual & ~np.isnan(result)])
    allowed = 1 if name in ("exp", "log", "sin", "cos") else 2
    distance = np.abs(result.view(unsigned).astype(object) - expected.view(unsigned).astype(object))
    wrong = usual & (distance > allowed)
    assert not wrong.any(), (x[wrong][:5], result[wrong][:5], expected[wrong][:5])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["exp", "exp2", "expit", "erfc", "ndtr", "logaddexp", "log_ndtr"])
def test_nothing_is_scaled_to_zero(name: str, dtype: str) -> None:
    """That takes a processor hundreds of cycles."""
    kind = DTYPES[dtype]
    ends = {"f64": (750.0, 900.0, 1e6, 1e300), "f32": (105.0, 120.0, 1e4, 1e30)}[dtype]
    far = np.array([*ends, *((np.sqrt(v) for v in ends) if name in ("erfc", "ndtr", "log_ndtr") else ())], kind)
    arguments = (far, np.zeros_like(far)) if name in BINARY else (far if name in ("erfc", "log_ndtr") else -far,)
    block = built(MATH[name], dtype, len(arguments))
    values: dict[Value, Array] = dict(zip(block.parameters, arguments, strict=True))
    with np.errstate(all="ignore"):
        run_block(block, values)
    scaled = [(values[i.results[0]], [values[v] for v in i.operands]) for i in block.instructions if i.op.name == "scalb"]
    assert scaled
    for result, (x, k) in scaled:
        is_lost = (result == 0) & (x != 0)
        assert not is_lost.any(), (far, result, x, k)
