"""Python's builtins and its math module, and functions that call the user's function for each element."""

import contextlib
import functools
import itertools
import math
import numbers
import operator
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence, Sized
from typing import Any

import numpy as np
import pytest
from numpy import float32

import pullback as pb
from tests.support.agreement import agrees, gradients_agree

Call = Callable[..., Any]
X = np.array([0.4, 1.7, 0.9, 1.7, 0.25])
NAN = np.array([np.nan, 1.0, np.nan, 2.0])
TABLE = np.array([0.5, 2.0, -1.0])
LIMIT = 1.25
COUNT = 2

BUILTINS: list[Call] = [
    lambda x: max(x[0], x[1]),
    lambda x: min(x[0], x[1], x[2]),
    lambda x: max(x),
    lambda x: min(x),
    lambda x: (max(v * w for v, w in zip(x, x[::-1])), min([x[1], 0.5])),
    lambda x: max(x, key=lambda v: -abs(v - 1)),
    lambda x: min([2.0, 3.0, 1.0], key=lambda v: (v - x[0]) ** 2),
    lambda x: max([], default=x[0]),
    lambda x: max(float(x[0]), 1.0),
    lambda x: [max(LIMIT, x[0]), np.tile(x, max(COUNT, 1)), x * max(LIMIT, 0.0)],
    lambda x: sum(x),
    lambda x: sum(x, 2.0),
    lambda x: sum(x.reshape(5, 1)),
    lambda x: sum(v * k for k, v in enumerate(x)),
    lambda x: sum(np.outer(x, x), x),
    lambda x: abs(x[0]) + pow(x[1], 2) + pow(2.0, x[0]),
    lambda x: divmod(x[1], x[0]),
    lambda x: round(x[0], 1),
    lambda x: x[0] * round(x[1]) + round(-x[2]) + round(int(x[1])) * round(2.567, 1),
    lambda x: TABLE[round(x[1])] * x,
    lambda x: float(x[0]) * x,
    lambda x: float(x[0]),
    lambda x: float(x[:1].sum()) * 2,
    lambda x: int(x[1] * 3),
    lambda x: TABLE[int(x[1])] * x,
    lambda x: bool(x[0] > 1),
    lambda x: np.where(bool(x[0]), x, 0.0),
    lambda x: [x] * int(COUNT),
    lambda x: x.astype(float) if float is not int and isinstance(2.5, float) else x,
    lambda x: np.zeros(3, dtype=float) + float(x[0]),
    lambda x: any(v > 1 for v in x),
    lambda x: all(x > 0),
    lambda x: any(x > 5),
    lambda x: x * any([False, COUNT > 1]),
    lambda x: len(x) * x[0],
    lambda x: functools.reduce(max, x),
    lambda x: functools.reduce(operator.mul, x),
    lambda x: np.array(list(itertools.accumulate(x, max))),
    lambda x: [a - b for a, b in zip(x, reversed(x))],
    lambda x: list(map(operator.neg, x)),
    lambda x: [*sorted(x), *sorted([x[0], 0.7], reverse=True)],
]

NAMES = """sin cos tan asin acos atan sinh cosh tanh asinh atanh exp exp2 expm1 log1p log2 log10 log sqrt cbrt fabs degrees
radians erf erfc gamma lgamma isnan isinf isfinite floor ceil trunc modf frexp"""
MATH: list[Call] = [
    *(functools.partial(lambda name, x: getattr(math, name)(x), name) for name in NAMES.split()),
    lambda x: math.acosh(1 + x),
    lambda x: math.log(x, 2),
    lambda x: math.log(5.0, 1 + x),
    lambda x: math.atan2(x, 0.5) + math.copysign(x, -2.0) + math.fmod(7.0, x) + math.pow(x, 2.5) + math.pow(2, x),
    lambda x: [math.remainder(v, x) for v in (5.0, -5.0, 0.25, -0.1, 7.3)],
    lambda x: math.remainder(x, math.inf),
    lambda x: math.hypot(x, 2.0, x * x),
    lambda x: math.hypot(-x),
    lambda x: math.dist([x, 1.0], (2.0, x)),
    lambda x: math.prod([x, 2, x * x]),
    lambda x: math.prod((x * k for k in range(1, 4)), start=0.5),
    lambda x: math.fsum(x * k for k in range(4)),
    lambda x: math.ldexp(x, 3),
    lambda x: (math.isclose(x, x + 1e-12), math.isclose(x, 1.0), math.isclose(x, 0.4, abs_tol=1.0)),
    lambda x: math.floor(x) * 2 + math.ceil(x),
]

VECTORIZED: list[Call] = [
    lambda x: np.vectorize(lambda a: a * a + 1)(x),
    lambda x: np.vectorize(lambda a: math.exp(a) + TABLE[int(a)])(x),
    lambda x: np.vectorize(lambda a, b: max(a, b) * x[0])(x[:, None], x),
    lambda x: np.vectorize(lambda a: (a, a * 2))(x),
    lambda x: np.vectorize(lambda a: np.sum([a, a * 2, x[0]]))(x),
    lambda x: np.vectorize(lambda a: np.dot([a, a * 2.0], np.array([x[0], 1.0])))(x),
    lambda x: np.vectorize(lambda a: np.array([a, 2.0]).max() + np.cumsum([a, a])[1])(x),
    lambda x: np.vectorize(lambda a, v: a * v.sum(), excluded=[1])(x, x),
    lambda x: np.vectorize(lambda a, n: a**n, otypes=[float])(x, 3),
    lambda x: np.vectorize(lambda a: 1)(x),
    lambda x: np.vectorize(lambda a, b=2.0: a * b)(x, b=x[::-1]),
    lambda x: np.vectorize(lambda a: x[0])(np.arange(3)),
    lambda x: np.vectorize(lambda a: a + 1, otypes=["d"])(x[:0]),
    lambda x: OUTSIDE(x, 2.0),
    lambda x: np.apply_along_axis(lambda r: r.sum() * r[0], 0, np.outer(x, x)),
    lambda x: np.apply_along_axis(lambda r: r[:2], 0, np.outer(x, x)),
    lambda x: np.apply_along_axis(lambda r: np.outer(r, r[:2]), 1, np.outer(x, x[:3])),
    lambda x: np.apply_over_axes(np.sum, np.outer(x, x), [0, 1]),
    lambda x: np.piecewise(x, [x < 0.5, x > 1.5], [lambda v: v**2, lambda v: np.log(v), 3.0]),
    lambda x: np.piecewise(x, [x < 1], [0, lambda v: np.sqrt(v - 1)]),
    lambda x: np.piecewise(x, x < 1, [lambda v, k: v * k, 1.0], 4.0),
    lambda x: np.fromiter((a * 2 for a in x), float, 3),
    lambda x: np.fromfunction(lambda i, j: i * x[0] + j * x[1], (3, 4)),
    lambda x: sum(v * sum(i) for i, v in np.ndenumerate(np.outer(x, x))),
    lambda x: np.array([a * b + 1 for a, b in np.broadcast(x, x[:2, None])]),
    lambda x: np.full(np.broadcast(x, x[:2, None]).shape, np.broadcast(x, 1.0).size * x[0]),
]


@np.vectorize
def OUTSIDE(a: Any, b: Any) -> Any:
    return math.sin(a) * b


def numbered(calls: list[Call]) -> Any:
    return [pytest.param(c, id=str(k)) for k, c in enumerate(calls)]


@pytest.mark.parametrize("call", numbered([*BUILTINS, *VECTORIZED]))
def test_vectors(call: Call) -> None:
    agrees(call, X)
    gradients_agree(call, X + 0.01 * np.arange(5))


@pytest.mark.parametrize("call", numbered(MATH))
def test_math(call: Call) -> None:
    for x in (0.4, np.float64(0.9), np.float32(0.3)):
        with contextlib.suppress(TypeError):
            call(x)
            agrees(call, x, rtol=1e-12)
    gradients_agree(call, 0.6)


def test_order_of_nan_and_of_ties() -> None:
    for call in (max, min, lambda x: max(x[1:]), lambda x: min(x[3], x[0], x[1]), lambda x: max(x[0], x[1])):
        agrees(call, NAN)
        agrees(call, -np.abs(NAN[::-1]).copy())
    agrees(max, np.array([np.nan, np.nan, -np.inf]))
    agrees(max, np.array([np.nan, -np.inf])[::-1].copy())
    np.testing.assert_array_equal(pb.grad(lambda x: max(x))(np.array([1.0, 3.0, 3.0])), [0, 1, 0])
    np.testing.assert_array_equal(pb.grad(lambda x: min(x[2], x[1]))(np.array([1.0, 3.0, 3.0])), [0, 0, 1])


def test_integers_of_what_is_none() -> None:
    for call in (lambda x: x * int(x[0]), lambda x: x * math.floor(x[0])):
        compiled = pb.jit(call)
        compiled(X)
        with pytest.raises(ValueError, match="NaN"):
            compiled(NAN)
        for bad in (np.inf, -1e300):
            with pytest.raises(OverflowError):
                compiled(X * bad)


def test_math_raises_where_python_does() -> None:
    call: Call
    for call in (math.sqrt, math.log, math.asin, lambda x: math.fmod(x, 0.0)):
        with pytest.raises(ValueError):
            call(-2.0)
        with pytest.raises(ValueError):
            pb.jit(lambda x, call=call: call(x))(-2.0)
    with pytest.raises(OverflowError, match="math range error"):
        pb.jit(lambda x: math.exp(x))(1e3)


REFUSED: list[tuple[Call, str]] = [
    (lambda x: max(x, x + 1), "np.max"),
    (lambda x: max("ab", key=lambda v: x[0]), "np.argmax"),
    (lambda x: math.factorial(int(x[0])), "gammaln"),
    (lambda x: math.gcd(int(x[0]), 2), "static_argnames"),
    (lambda x: pow(int(x[1]), 2, 5), "% mod"),
    (lambda x: next(np.nditer(x, flags=["external_loop"])), "ndenumerate"),
    (lambda x: np.frompyfunc(lambda a: a, 1, 1)(x), "np.vectorize"),
    (lambda x: np.vectorize(lambda a: a, signature="()->()")(x), "signature"),
    (lambda x: np.lib.stride_tricks.as_strided(x, (2,), (8,)), "np.as_strided|np.lib"),
    (lambda x: np.polynomial.Polynomial(x)(2.0), "np.polynomial"),
    (lambda x: __import__("scipy.interpolate").interpolate.BSpline(TABLE, x[:3], 1)(1.0), "scipy.interpolate.BSpline"),
]


@pytest.mark.parametrize(("call", "words"), [pytest.param(*r, id=str(k)) for k, r in enumerate(REFUSED)])
def test_refused(call: Call, words: str) -> None:
    with pytest.raises(pb.TraceError, match=words) as caught:
        pb.jit(call)(X)
    assert caught.value.file == __file__


def test_any_of_an_array_decides() -> None:
    def decided(x: Any) -> Any:
        return 1 if any(x > 1) else 2

    compiled = pb.jit(decided)
    assert [compiled(x) for x in (X, X / 2, -X)] == [1, 2, 2]
    with pytest.raises(pb.TraceError, match=r"np\.where") as caught:
        pb.jit(decided, loops="unroll")(X)
    assert caught.value.file == __file__


def test_a_range_of_a_value_is_followed_or_refused() -> None:
    def counted(x: Any) -> Any:
        return range(int(x[0]))

    with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
        for x in (np.array([3.5]), np.array([0.5])):
            assert pb.jit(counted)(x) == counted(x)
    for options in ({"guards": False}, {"loops": "unroll"}):
        with pytest.raises(pb.TraceError, match=r"range\(\) of a traced value(?s:.)*pb\.fori_loop") as caught:
            pb.jit(counted, **options)(np.array([3.5]))
        assert caught.value.file == __file__


def test_a_count_of_items_is_checked() -> None:
    for call in (lambda x: float(x), lambda x: int(x), lambda x: math.sin(x), lambda x: round(x)):
        with pytest.raises(TypeError, match=r"length-1|__round__"):
            pb.jit(call)(X)
    agrees(lambda x: math.exp(x[0, 0]), np.ones((1, 1)))


def converted(x: Any, n: Any, a: Any) -> Any:
    def inner(y: Any) -> Any:
        return np.float32(y) + np.float64(y)

    built = np.zeros(3, np.float64)
    built[0] = float32(a[0])
    numbers = np.int64(x) + 1, np.int8(n), np.uint8(a[0] > 0), np.bool_(x), np.double(x) * float32(2)
    arrays = np.float64(a), np.float32([x, 1.0]), a.astype(float32), built, float32(x) * a
    return numbers, arrays, [inner(v) for v in a], np.float64(2.0), isinstance(np.float64(1), np.float64)


@pytest.mark.parametrize("args", [(1.5, 3, np.array([1.25, 2.0])), (np.float32(2.5), 7, np.array([1, 2], np.float32))])
def test_number_types_of_numpy_convert(args: Any) -> None:
    agrees(converted, *args)


def test_number_types_of_numpy_are_themselves_elsewhere() -> None:
    def f(x: Any) -> Any:
        kind = np.float64
        assert np.dtype(np.float64) == np.float64 and type(np.float64(2.0)) is np.float64 and kind.fromhex("0x1p1") == 2.0
        return np.zeros(2, np.float32) + np.float64.fromhex("0x1p1") * x, np.finfo(np.float32).eps * x

    agrees(f, 1.5)
    assert pb.grad(lambda x: np.float64(x) ** 2 * np.float32(x))(1.5) == 6.75


def test_the_greatest_of_tuples_and_dicts_by_a_key() -> None:
    def chosen(x: Any) -> Any:
        pairs, dicts = enumerate(x), [{"key": v, "row": x * v} for v in x]
        number, value = max(pairs, key=lambda pair: pair[1])
        first = max([(1, x[0]), (2, x[1])], key=lambda t: t[1])
        return number, type(number).__name__, value, min(dicts, key=lambda d: d["key"]), first

    agrees(chosen, np.array([1.5, 2.5, 0.25]))
    with pytest.raises(pb.TraceError, match="items that are no numbers"):
        pb.jit(lambda x: max([("a", x[0]), ("b", x[1])], key=lambda t: t[1]))(np.ones(2))
    with pytest.raises(pb.TraceError, match="arrays of several shapes"):
        pb.jit(lambda x: max([x[:1], x], key=lambda v: v[0]))(np.ones(2))


def test_a_shape_that_is_an_iterator() -> None:
    agrees(lambda x: np.indices(len(v) for v in (x, x[1:])) + x[0], np.ones(3))


def test_arguments_that_may_be_one_array_are_not_told_apart() -> None:
    x = np.ones(3)
    for f in (lambda x, y: x is y, lambda x, y: x[0] if x is not y else y[1]):
        with pytest.raises(pb.TraceError, match="whether two arguments are one array"):
            pb.jit(f)(x, x)
    agrees(lambda x, y: (x is y, x is x, x.T is x), x, np.ones((2, 2)))


def kinds_of(value: Any) -> Any:
    """Return results of tests of an argument that may be a number or an array."""
    names = ("__len__", "__iter__", "__getitem__", "shape", "dtype", "copy", "is_integer", "real", "conjugate", "no_such_name")
    classes = (Iterable, Sized, Hashable, Sequence, numbers.Number, numbers.Integral, float, int, np.generic, np.ndarray, object)
    attributes = tuple(hasattr(value, name) for name in names)
    return attributes, tuple(isinstance(value, c) for c in classes), np.isscalar(value), getattr(value, "flat", None) is None


@pytest.mark.parametrize("value", [1.5, 3, True, 1j, np.float64(2.5), np.float32(1.5), np.int64(2), np.ones(3), np.array(1.5)])
def test_kinds_of_arguments(value: Any) -> None:
    assert pb.jit(kinds_of)(value) == kinds_of(value)
    agrees(lambda x: (np.isscalar(x[0]), np.isscalar(x), np.isscalar(x.sum()), isinstance(x[0], Iterable)), np.ones(2))
    agrees(lambda x, t: np.ones_like(x) * t if np.isscalar(t) else t, np.ones(3), 2.5)


is_a, largest = isinstance, max


def test_builtins_by_other_names() -> None:
    agrees(lambda x: (is_a(x, np.ndarray), is_a(x[0], float), is_a([x], list), largest(x[0], x[1])), np.array([1.5, 2.5]))


CHOICES = [max, min, lambda *x: sorted(x)[0], lambda p, q: max([p, q], key=abs), lambda p, q: max((p, 1), (q, 2))[0]]


@pytest.mark.parametrize("choose", CHOICES)
def test_a_chosen_number_keeps_its_value_under_another_name(choose: Any) -> None:
    def f(p: Any, q: Any) -> Any:
        q = choose(p, q)
        y = q
        q -= 1.0
        if y > q:
            p *= 2
        else:
            q *= 3.0
        return y, q, p

    for arguments in ((np.float64(0.5), np.float64(-1.75)), (0.5, 3.0), (np.float64(0.5), 3.0), (0.5, np.float64(-2.0))):
        assert pb.jit(f)(*arguments) == f(*arguments)


SEQUENCES: list[Call] = [
    lambda p, q: (max((p, 1), (q, 2)), min((p, 1), (q, 2))),
    lambda p, q: (max([p, q], [q, p]), min((p, (q, 1)), (p, (q, 0)))),
    lambda p, q: max((p * k - q, -k) for k in range(3)),
    lambda p, q: min([(p, q), (q, p), (0.5, 3.0)], key=lambda pair: (pair[1], pair[0])),
    lambda p, q: sorted(np.array([p, q, 0.5]), key=lambda v: -v),
]


@pytest.mark.parametrize("choose", [pytest.param(f, id=str(k)) for k, f in enumerate(SEQUENCES)])
def test_sequences_compare_by_their_first_difference(choose: Call) -> None:
    for arguments in ((0.5, 3.0), (3.0, 0.5), (2.0, 2.0), (math.nan, 1.0) if choose is not SEQUENCES[-1] else (0.5, 0.5)):
        assert repr(pb.jit(choose, guards=False)(*arguments)) == repr(choose(*arguments))


def test_hasattr_is_that_of_an_instance() -> None:
    names = ("__dict__", "__name__", "mro", "shape", "real", "is_integer", "__len__", "__module__")

    def attributes(x: Any, y: Any, n: Any) -> Any:
        return [hasattr(v, name) for v in (x, y, n, y[0], x > 1) for name in names]

    arguments = 1.5, np.ones(2), 3
    assert pb.jit(attributes)(*arguments) == attributes(*arguments)
