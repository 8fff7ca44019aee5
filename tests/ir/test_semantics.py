"""The semantics fixed for all targets: values where NumPy leaves them to the platform, derivatives where there is none."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pullback.ir import DTYPES, OPS, ArrayType, Builder, Value
from pullback.ir.ops.elementwise import semantics
from pullback.ir.passes.pipeline import BEFORE_GRAD
from tests.support.golden_files import assert_same, run_targets
from tests.support.gradients import derivative

NAN, INF = float("nan"), float("inf")
MIN8, MIN64, MAX64 = -128, -(2**63), 2**63 - 1

# op, dtype, operands, result: one row for each promise
VALUES: list[tuple[str, str, list[Any], Any]] = [
    ("floordiv", "i64", [7, 0], 0), ("floordiv", "i64", [-7, 2], -4), ("floordiv", "i64", [MIN64, -1], MIN64),
    ("floordiv", "i8", [MIN8, -1], MIN8), ("floordiv", "u8", [7, 0], 0), ("floordiv", "f64", [1.0, 0.0], INF),
    ("floordiv", "f64", [0.0, 0.0], NAN), ("floordiv", "f64", [-1.0, INF], -1.0),
    ("mod", "i64", [7, 0], 0), ("mod", "i64", [-7, 3], 2), ("mod", "i64", [7, -3], -2),
    ("mod", "i64", [MIN64, -1], 0),
    ("mod", "f64", [-0.5, 2.0], 1.5), ("mod", "f64", [1.0, 0.0], NAN), ("mod", "f64", [-0.0, 3.0], 0.0),
    ("mod", "f64", [-1.0, INF], INF),
    ("fmod", "i64", [-7, 3], -1), ("fmod", "i64", [7, 0], 0), ("fmod", "i64", [MIN64, -1], 0),
    ("fmod", "f64", [-7.0, 3.0], -1.0),
    ("add", "i8", [127, 1], -128), ("sub", "u8", [0, 1], 255), ("mul", "i64", [MAX64, 2], -2),
    ("add_fits", "i64", [MAX64, 0], True), ("add_fits", "i64", [MAX64, 1], False), ("add_fits", "i64", [MIN64, -1], False),
    ("add_fits", "i64", [MIN64, MAX64], True), ("add_fits", "i8", [127, 1], False), ("add_fits", "i8", [-127, -1], True),
    ("sub_fits", "i64", [MIN64, 1], False), ("sub_fits", "i64", [0, MIN64], False), ("sub_fits", "i64", [-1, MIN64], True),
    ("sub_fits", "i64", [MAX64, -1], False), ("sub_fits", "i64", [MAX64, MAX64], True), ("sub_fits", "i8", [-128, 1], False),
    ("mul_fits", "i64", [MIN64, -1], False), ("mul_fits", "i64", [-1, MIN64], False), ("mul_fits", "i64", [MIN64, 1], True),
    ("mul_fits", "i64", [0, MIN64], True), ("mul_fits", "i64", [2**32, 2**31], False),
    ("mul_fits", "i64", [2**32, -(2**31)], True), ("mul_fits", "i64", [3037000499, 3037000499], True),
    ("mul_fits", "i64", [3037000500, 3037000500], False), ("mul_fits", "i64", [-3037000500, 3037000500], False),
    ("mul_fits", "i64", [2**62, 4], False), ("mul_fits", "i64", [-5, -7], True), ("mul_fits", "i8", [-128, -1], False),
    ("mul_fits", "i8", [16, 8], False), ("mul_fits", "i8", [16, -8], True),
    ("neg", "i8", [MIN8], MIN8),
    ("neg", "u8", [1], 255), ("abs", "i8", [MIN8], MIN8), ("add", "bool", [True, True], True),
    ("mul", "bool", [True, False], False),
    ("shl", "i64", [1, 63], MIN64), ("shl", "i64", [1, 64], 0), ("shl", "i64", [1, -1], 0), ("shl", "i8", [1, 8], 0),
    ("shr", "i64", [-8, 64], -1), ("shr", "i64", [8, 64], 0), ("shr", "i64", [-8, 1], -4),
    ("shr", "u8", [255, 8], 0), ("shr", "i8", [-1, -1], -1),
    ("pow", "i64", [2, -1], 0), ("pow", "i64", [0, 0], 1),
    ("pow", "i64", [3, 41], 3**41 - 2**64 * (3**41 >> 64) - 2**64 * ((3**41 >> 63) & 1)),
    ("pow", "f64", [NAN, 0.0], 1.0), ("pow", "f64", [1.0, NAN], 1.0), ("pow", "f64", [-8.0, 1 / 3], NAN),
    ("pow", "f64", [-0.0, -1.0], -INF),
    ("maximum", "f64", [NAN, 1.0], NAN), ("maximum", "f64", [1.0, NAN], NAN),
    ("maximum", "f64", [-0.0, 0.0], 0.0), ("maximum", "f64", [0.0, -0.0], 0.0),
    ("minimum", "f64", [NAN, 1.0], NAN), ("minimum", "f64", [-0.0, 0.0], -0.0), ("minimum", "f64", [0.0, -0.0], -0.0),
    ("fmax", "f64", [NAN, 1.0], 1.0), ("fmax", "f64", [NAN, NAN], NAN), ("fmax", "f64", [-0.0, 0.0], 0.0),
    ("fmin", "f64", [1.0, NAN], 1.0), ("fmin", "f64", [0.0, -0.0], -0.0),
    ("clip", "f64", [NAN, 0.0, 1.0], NAN), ("clip", "f64", [5.0, 3.0, 1.0], 1.0),
    ("clip", "f64", [-INF, -1.0, 1.0], -1.0),
    ("sign", "f64", [NAN], NAN), ("sign", "f64", [-0.0], 0.0), ("sign", "i64", [MIN64], -1), ("sign", "u8", [9], 1),
    ("rint", "f64", [0.5], 0.0), ("rint", "f64", [1.5], 2.0), ("rint", "f64", [-0.5], -0.0),
    ("ceil", "f64", [-0.5], -0.0), ("trunc", "f64", [-1.5], -1.0),
    ("eq", "f64", [NAN, NAN], False), ("ne", "f64", [NAN, NAN], True), ("lt", "f64", [NAN, 1.0], False),
    ("ge", "f64", [NAN, NAN], False),
    ("eq", "f64", [-0.0, 0.0], True), ("lt", "i64", [-1, 0], True), ("lt", "u64", [2**64 - 1, 0], False),
    ("lt", "bool", [False, True], True),
    ("fma", "f64", [1 + 2**-52, 1 - 2**-52, -1.0], -(2.0**-104)), ("fma", "f64", [1e308, 10.0, -INF], -INF),
    ("fma", "f64", [1e308, 1e308, 1.0], INF),
    ("fma", "f32", [1 + 2**-12, 1 + 2**-12, 2.0**-60], 1 + 2**-11 + 2**-23),
    ("fma", "f64", [INF, 0.0, 1.0], NAN), ("div", "f64", [1.0, -0.0], -INF), ("div", "f64", [0.0, 0.0], NAN),
    ("sqrt", "f64", [-0.0], -0.0), ("sqrt", "f64", [-1.0], NAN), ("log", "f64", [0.0], -INF),
    ("log", "f64", [-1.0], NAN),
    ("exp", "f64", [-INF], 0.0), ("exp", "f64", [710.0], INF), ("log1p", "f64", [-1.0], -INF),
    ("atan2", "f64", [0.0, -0.0], np.pi),
    ("atan2", "f64", [-0.0, -0.0], -np.pi), ("hypot", "f64", [INF, NAN], INF),
    ("copysign", "f64", [1.0, -0.0], -1.0), ("tanh", "f64", [INF], 1.0),
    ("logaddexp", "f64", [-INF, -INF], -INF), ("logaddexp", "f64", [INF, INF], INF),
    ("expit", "f64", [-INF], 0.0), ("erf", "f64", [INF], 1.0),
    ("bitnot", "bool", [True], False), ("bitnot", "u8", [1], 254),
]  # fmt: skip

CASTS: list[tuple[str, Any, str, Any]] = [
    ("f64", NAN, "i64", MIN64), ("f64", INF, "i64", MIN64), ("f64", 2.0**63, "i64", MIN64), ("f64", -1.9, "i64", -1),
    ("f64", NAN, "i32", -(2**31)), ("f64", 2.0**31, "i32", -(2**31)), ("f64", 2147483647.9, "i32", 2147483647),
    ("f64", 300.7, "u8", 44), ("f64", -1.0, "u8", 255), ("f64", NAN, "u8", 0), ("f64", 1e10, "i8", 0),
    ("f64", NAN, "bool", True),
    ("f64", -0.0, "bool", False), ("f64", 1e300, "f32", INF), ("f64", 1e-300, "f32", 0.0),
    ("f64", 2.0**63, "u64", 2**63), ("i64", -1, "u8", 255),
    ("i64", MAX64, "f64", 2.0**63), ("i64", 2**53 + 1, "f64", 2.0**53), ("u64", 2**64 - 1, "i64", -1),
    ("bool", True, "f32", 1.0),
]  # fmt: skip


def one(op: str, dtype: str, operands: list[Any], /, **params: Any) -> dict[str, Any]:
    """The results of an op on scalars, by target."""
    b = Builder()
    arrays = [np.asarray(x, DTYPES[dtype].numpy) for x in operands]
    parameters = [Value(ArrayType(DTYPES[dtype]), f"x{k}") for k in range(len(arrays))]
    function = b.function("f", parameters, b.emit(OPS[op], parameters, params))
    return run_targets(function, arrays)


@pytest.mark.parametrize(("op", "dtype", "operands", "expected"), VALUES, ids=lambda x: str(x).replace(" ", ""))
def test_value(op: str, dtype: str, operands: list[Any], expected: Any) -> None:
    exact = OPS[op].cheap or op in ("floordiv", "mod", "fmod", "pow", "fma")  # type: ignore[attr-defined]
    for results in one(op, dtype, operands).values():
        arguments = np.asarray(expected, results[0].dtype)
        assert_same(results, [arguments], bitwise=exact, rtol=1e-15)
        assert np.signbit(results[0]) == np.signbit(arguments) or np.isnan(arguments) if arguments.dtype.kind == "f" else True


@pytest.mark.parametrize(("source", "value", "target", "expected"), CASTS, ids=lambda x: str(x))
def test_conversion(source: str, value: Any, target: str, expected: Any) -> None:
    for results in one("cast", source, [value], dtype=DTYPES[target]).values():
        assert_same(results, [np.asarray(expected, DTYPES[target].numpy)])


def nearest(exact: Fraction, dtype: Any) -> Any:
    """The number of a dtype that is nearest to a fraction; of two, the one whose last bit is not set."""
    near = np.asarray(float(exact), dtype)
    infinite = np.asarray(np.inf, dtype)
    around = [np.nextafter(near, -infinite), near, np.nextafter(near, infinite)]
    integer = np.dtype(f"u{near.dtype.itemsize}")
    return min(around, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(integer)) & 1))


def awkward(rng: np.random.Generator, dtype: Any) -> tuple[Any, Any, Any]:
    """Factors and addends for fma: any that are finite, such as cancel nearly all of a product, and subnormal ones."""
    info = np.finfo(dtype)
    scale = 2.0 ** (info.minexp // 2)

    def normal(by: float = 1.0) -> Any:
        return (rng.normal(size=200) * by).astype(dtype)

    x, y = normal(), normal()
    near = -(x.astype(np.float64) * y) * (1 + rng.integers(-3, 4, 200) * float(info.eps))
    least = float(info.smallest_subnormal)
    few = (rng.integers(-5, 6, 200) * least).astype(dtype)
    powers = rng.integers(info.minexp // 2, info.maxexp // 2 - 2, (3, 200))
    wide = list(np.ldexp(rng.normal(size=(3, 200)), powers).astype(dtype))
    rows = ([x, y, near.astype(dtype)], [normal(scale), normal(scale), few], wide)
    columns = zip(*rows, strict=True)
    first, second, third = (np.concatenate(column) for column in columns)
    return first, second, third


@pytest.mark.parametrize("name", ["f64", "f32", "f16"])
def test_fma_is_rounded_once(name: str) -> None:
    dtype = DTYPES[name].numpy
    x, y, z = awkward(np.random.default_rng(0), dtype)
    result = semantics.fma(x, y, z)
    assert result.dtype == dtype
    for a, b, c, f in zip(x, y, z, result, strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        assert float(f) == float(nearest(exact, dtype) if exact else 0.0), (a, b, c)
        assert semantics.fma(a, b, c) == f
    zeros = [semantics.fma(*map(dtype.type, row)) for row in ((2, 3, -6), (-0.0, 1, -0.0), (0.0, 1, -0.0))]
    assert [(float(v), math.copysign(1, v)) for v in zeros] == [(0, 1), (0, -1), (0, 1)]


def test_bits_are_kept_by_bitcast() -> None:
    for results in one("bitcast", "f64", [-0.0], dtype=DTYPES["i64"]).values():
        assert int(results[0]) == struct.unpack("<q", struct.pack("<d", -0.0))[0]


REDUCTIONS: list[tuple[str, str, list[Any], Any]] = [
    ("sum", "f64", [], 0.0), ("prod", "f64", [], 1.0), ("max", "f64", [], -INF), ("min", "f64", [], INF),
    ("max", "i8", [], MIN8),
    ("min", "u8", [], 255), ("any", "bool", [], False), ("all", "bool", [], True),
    ("max", "f64", [1.0, NAN, 2.0], NAN),
    ("min", "f64", [NAN, 1.0], NAN), ("max", "f64", [-0.0, 0.0], 0.0), ("min", "f64", [0.0, -0.0], -0.0),
    ("sum", "i8", [127, 1], -128),
    ("argmax", "f64", [1.0, 2.0, 2.0], 1), ("argmin", "f64", [1.0, NAN, 0.0, NAN], 1),
    ("argmax", "i64", [3, 3], 0), ("argmax", "bool", [False, True], 1),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "values", "expected"), REDUCTIONS, ids=lambda x: str(x).replace(" ", ""))
def test_reduction(op: str, dtype: str, values: list[Any], expected: Any) -> None:
    b = Builder()
    x = Value(ArrayType(DTYPES[dtype], (len(values),)), "x")
    function = b.function("f", [x], b.emit(OPS[op], [x], {"axes": (0,)}))
    for results in run_targets(function, [np.array(values, DTYPES[dtype].numpy)]).values():
        assert_same(results, [np.asarray(expected, results[0].dtype)])


# derivatives at singular points: builder of a function, its arguments, the derivatives


def constant(b: Any, count: float, x: Any) -> Any:
    return b.full(count, x.type)


def norm(b: Any, x: Any) -> Any:
    return b.sqrt(b.sum(b.mul(x, x), axes=(0,)))


def mean_norm(b: Any, x: Any) -> Any:
    squares = b.sum(b.pow(b.abs(x), constant(b, 2, x)), axes=(0,))
    return b.sqrt(b.div(squares, constant(b, 2, squares)))


def deviation(b: Any, x: Any) -> Any:
    total = b.sum(x, axes=(0,))
    mean = b.div(total, constant(b, 2, total))
    centred = b.sub(x, b.broadcast(mean, axes=(0,), shape=x.type.shape))
    variance = b.sum(b.mul(centred, centred), axes=(0,))
    return b.sqrt(b.div(variance, constant(b, 2, variance)))


def relu(b: Any, x: Any) -> Any:
    return b.select(b.gt(x, constant(b, 0, x)), x, constant(b, 0, x))


def guarded_log(b: Any, x: Any) -> Any:
    return b.select(b.gt(x, constant(b, 0, x)), b.log(x), constant(b, 0, x))


def guarded_square_root(b: Any, x: Any) -> Any:
    return b.select(b.gt(x, constant(b, 0, x)), b.exp(b.sqrt(x)), b.mul(x, x))


POINTS: list[tuple[str, Callable[..., Any], list[Any], list[Any]]] = [
    ("abs at 0", lambda b, x: b.abs(x), [0.0], [0.0]),
    ("abs at -0", lambda b, x: b.abs(x), [-0.0], [0.0]),
    ("sign at 0", lambda b, x: b.sign(x), [0.0], [0.0]),
    ("floor at 1", lambda b, x: b.floor(x), [1.0], [0.0]),
    ("relu at 0", relu, [0.0], [0.0]),
    ("maximum of equals", lambda b, x, y: b.maximum(x, y), [2.0, 2.0], [0.5, 0.5]),
    ("minimum of equals", lambda b, x, y: b.minimum(x, y), [2.0, 2.0], [0.5, 0.5]),
    ("maximum of zeros", lambda b, x, y: b.maximum(x, y), [0.0, -0.0], [0.5, 0.5]),
    ("fmax beside NaN", lambda b, x, y: b.fmax(x, y), [1.0, NAN], [1.0, 0.0]),
    ("fmin of equals", lambda b, x, y: b.fmin(x, y), [1.0, 1.0], [0.5, 0.5]),
    ("max of ties", lambda b, x: b.max(x, axes=(0,)), [np.array([1.0, 3.0, 3.0, 3.0])], [np.array([0, 1, 1, 1]) / 3]),
    ("min of ties", lambda b, x: b.min(x, axes=(0,)), [np.array([1.0, 3.0, 1.0])], [np.array([0.5, 0, 0.5])]),
    ("clip inside", lambda b, x, lo, hi: b.clip(x, lo, hi), [0.5, 0.0, 1.0], [1.0, 0.0, 0.0]),
    ("clip at the lower bound", lambda b, x, lo, hi: b.clip(x, lo, hi), [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]),
    ("clip at the upper bound", lambda b, x, lo, hi: b.clip(x, lo, hi), [1.0, 0.0, 1.0], [1.0, 0.0, 0.0]),
    ("clip below", lambda b, x, lo, hi: b.clip(x, lo, hi), [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
    ("clip above", lambda b, x, lo, hi: b.clip(x, lo, hi), [2.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
    ("sqrt at 0", lambda b, x: b.sqrt(x), [0.0], [INF]),
    ("cbrt at 0", lambda b, x: b.cbrt(x), [0.0], [INF]),
    ("log at 0", lambda b, x: b.log(x), [0.0], [INF]),
    ("hypot at 0", lambda b, x, y: b.hypot(x, y), [0.0, 0.0], [0.0, 0.0]),
    ("norm at 0", norm, [np.zeros(2)], [np.zeros(2)]),
    ("norm elsewhere", norm, [np.array([3.0, 4.0])], [np.array([0.6, 0.8])]),
    ("root mean square at 0", mean_norm, [np.zeros(2)], [np.zeros(2)]),
    ("standard deviation of equals", deviation, [np.array([5.0, 5.0])], [np.zeros(2)]),
    ("pow with exponent 0", lambda b, x, y: b.pow(x, y), [0.0, 0.0], [0.0, -INF]),
    ("pow with base 0", lambda b, x, y: b.pow(x, y), [0.0, 2.0], [0.0, 0.0]),
    ("pow of a negative number", lambda b, x: b.pow(x, constant(b, 2, x)), [-3.0], [-6.0]),
    ("pow of 0 by 1", lambda b, x: b.pow(x, constant(b, 1, x)), [0.0], [1.0]),
    ("branch not taken", guarded_log, [0.0], [0.0]),
    ("branch not taken, of NaN", guarded_log, [NAN], [0.0]),
    ("branch taken", guarded_log, [2.0], [0.5]),
    ("chain in a branch not taken", guarded_square_root, [-3.0], [-6.0]),
    ("prod with one 0", lambda b, x: b.prod(x, axes=(0,)), [np.array([0.0, 2.0, 3.0])], [np.array([6.0, 0.0, 0.0])]),
    ("prod with two 0", lambda b, x: b.prod(x, axes=(0,)), [np.array([0.0, 0.0, 3.0])], [np.zeros(3)]),
    ("logaddexp of -inf", lambda b, x, y: b.logaddexp(x, y), [-INF, -INF], [0.5, 0.5]),
    ("expit far out", lambda b, x: b.expit(x), [-800.0], [0.0]),
]


@pytest.mark.parametrize(("build", "arguments", "expected"), [row[1:] for row in POINTS], ids=[row[0] for row in POINTS])
def test_derivative(build: Callable[..., Any], arguments: list[Any], expected: list[Any]) -> None:
    for passes in ([], BEFORE_GRAD) if build not in (norm, mean_norm, deviation) else (BEFORE_GRAD,):
        result = derivative(build, *map(np.asarray, arguments), passes=passes)
        for a, e in zip(result, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-14)


SECOND: list[tuple[str, Callable[..., Any], list[Any], Any]] = [
    ("norm at 0", norm, [np.zeros(2)], np.zeros(2)),
    ("root mean square at 0", mean_norm, [np.zeros(2)], np.zeros(2)),
    ("standard deviation of equals", deviation, [np.array([5.0, 5.0])], np.zeros(2)),
    ("hypot at 0", lambda b, x, y: b.hypot(x, y), [0.0, 0.0], 0.0),
    ("branch not taken", guarded_log, [0.0], 0.0),
    ("chain in a branch not taken", guarded_square_root, [-3.0], 2.0),
    ("branch taken", guarded_log, [2.0], -0.25),
    ("abs at 0", lambda b, x: b.abs(x), [0.0], 0.0),
    ("pow of 0 by 2", lambda b, x: b.pow(x, constant(b, 2, x)), [0.0], 2.0),
    ("pow of 0 by 1", lambda b, x: b.pow(x, constant(b, 1, x)), [0.0], 0.0),
    ("prod with one 0", lambda b, x: b.prod(x, axes=(0,)), [np.array([0.0, 2.0])], np.array([1.0, 1.0])),
]


@pytest.mark.parametrize(("build", "arguments", "expected"), [row[1:] for row in SECOND], ids=[row[0] for row in SECOND])
def test_second_derivative(build: Callable[..., Any], arguments: list[Any], expected: Any) -> None:
    result = derivative(build, *map(np.asarray, arguments), order=2, passes=BEFORE_GRAD)
    np.testing.assert_allclose(result[0], expected, rtol=1e-14)


def test_third_derivative_of_a_norm_at_0_is_0() -> None:
    result = derivative(norm, np.zeros(2), order=3, passes=BEFORE_GRAD)
    np.testing.assert_array_equal(result[0], np.zeros(2))


def test_unmarked_square_root_keeps_infinity() -> None:
    def build(b: Any, x: Any) -> Any:
        return b.sqrt(b.sum(x, axes=(0,)))

    result = derivative(build, np.zeros(2), passes=BEFORE_GRAD)
    np.testing.assert_array_equal(result[0], [INF, INF])
