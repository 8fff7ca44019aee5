"""Derivatives over the whole domain of a function: at 2^k for the k of its dtype and both signs, float64 and float32, orders 1
and 2, in reverse and forward mode, within a few units in the last place of mpmath.

A rule that subtracts from the function's value, or two functions from each other, has no digits left where these are nearly
equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special as sp
from scipy import stats

import pullback as pb
from pullback.codegen.math.basis import Recipe
from pullback.codegen.math.expand import Expander
from pullback.ir.core.structure import NOWHERE
from pullback.ir.passes.transforms.kept_tails import TAILS, Tail
from tests.support.elementary.recipes import run

Array = np.ndarray[Any, np.dtype[Any]]
DIGITS = 80
KINDS = {"f64": np.float64, "f32": np.float32}


@dataclass(frozen=True, kw_only=True)
class Row:
    """``first`` and ``second``: the derivatives of ``function`` by mpmath. ``low``, ``high``: the open interval of arguments;
    ``ulps``: the bounds of both orders in units of epsilon times the derivative. ``stride``: of the exponents."""

    function: Callable[..., Any]
    first: Callable[..., Any]
    second: Callable[..., Any]
    low: float = -np.inf
    high: float = np.inf
    ulps: tuple[float, float] = (8.0, 16.0)
    digits: int = DIGITS
    stride: int = 1
    kinds: tuple[str, ...] = ("f64", "f32")


def _sech2(x: Any) -> Any:
    return 4 * mp.exp(-2 * abs(x)) / (1 + mp.exp(-2 * abs(x))) ** 2


def _logistic(x: Any) -> Any:
    return mp.exp(-abs(x)) / (1 + mp.exp(-abs(x))) ** 2


def _tanh(x: Any) -> Any:
    t = mp.expm1(-2 * abs(x))
    return -t / (t + 2) * mp.sign(x)


def _integral(n: int, x: Any) -> Any:
    """exp(x^2) times the integral of erfc of order n."""
    if abs(x) < 1e-60:
        return mp.mpf(2) ** -n / mp.gamma(mp.mpf(n) / 2 + 1)
    if x > 40:
        terms = [(-1) ** m * mp.factorial(2 * m + n) / (mp.factorial(m) * (2 * x) ** (2 * m + n + 1)) for m in range(20)]
        return 2 / mp.sqrt(mp.pi) / mp.factorial(n) * mp.fsum(terms)
    if x >= 0:
        return mp.mpf(2) ** -n / mp.sqrt(mp.pi) * mp.hyperu((mp.mpf(n) + 1) / 2, mp.mpf(1) / 2, x * x)
    if x < -30:
        return mp.mpf(10) ** 400
    grown = mp.exp(x * x)
    if n == 0:
        return 2 * grown - _integral(0, -x)
    return _integral(1, -x) - 2 * x * grown if n == 1 else (x * x + mp.mpf(1) / 2) * grown - _integral(2, -x)


def _mills(x: Any) -> Any:
    """The normal density over the distribution function."""
    if x > 45:
        return mp.npdf(x)
    return mp.sqrt(2 / mp.pi) / _integral(0, -x / mp.sqrt(2))


def _mills_slope(x: Any) -> Any:
    y = -x / mp.sqrt(2)
    return -x * mp.npdf(x) if x > 45 else -2 / mp.sqrt(mp.pi) * _integral(1, y) / _integral(0, y) ** 2


def _bell(x: Any) -> Any:
    return mp.exp(-x * x)


def _i_scaled(n: int, x: Any) -> Any:
    """Of order n of the integral of (1 - cos t)^n exp(-x (1 - cos t)) over [0, pi], over pi; n - 1 times differentiated i0e."""
    half = mp.mpf(1) / 2
    return mp.mpf(2) ** n * mp.gamma(n + half) / (mp.sqrt(mp.pi) * mp.factorial(n)) * mp.hyp1f1(n + half, n + 1, -2 * abs(x))


def _zeta(x: Any, order: int) -> Any:
    if x < 40:
        return mp.zeta(x, 1, order)
    return mp.fsum((-mp.log(n)) ** order * mp.mpf(n) ** -x for n in range(2, 60))


def _sinhc(x: Any) -> Any:
    """The derivative of sinh(x) / x."""
    return (x * mp.cosh(x) - mp.sinh(x)) / (x * x) if abs(x) > 1e-9 else x / 3 + x**3 / 30


def _sinc(x: Any) -> Any:
    """The derivative of sin(x) / x."""
    return (x * mp.cos(x) - mp.sin(x)) / (x * x) if abs(x) > 1e-9 else -x / 3 + x**3 / 30


def _sinc_2(x: Any) -> Any:
    return -mp.sin(x) / x - 2 * _sinc(x) / x


def _dawsn(x: Any) -> Any:
    if abs(x) > 100:
        return mp.fsum(mp.fac2(2 * k - 1) / (2 ** (k + 1) * x ** (2 * k + 1)) for k in range(12))
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def _student(d: Any, order: int) -> Any:
    """Derivatives by d of the logarithm of Student's density at 1."""
    half, more = d / 2, (d + 1) / 2
    if order == 1:
        return (mp.psi(0, more) - mp.psi(0, half)) / 2 - 1 / (2 * d) - mp.log1p(1 / d) / 2 + more / (d * (d + 1))
    return (mp.psi(1, more) - mp.psi(1, half)) / 4 + 1 / (2 * d * d) + 1 / (2 * d * (d + 1)) - 1 / (2 * d * d)


ROWS = {
    "tanh": Row(function=np.tanh, first=_sech2, second=lambda x: -2 * _tanh(x) * _sech2(x)),
    "expit": Row(function=sp.expit, first=_logistic, second=lambda x: -_tanh(x / 2) * _logistic(x)),
    "1 / (1 + exp(-x))": Row(
        function=lambda x: 1 / (1 + np.exp(-x)), first=_logistic, second=lambda x: -_tanh(x / 2) * _logistic(x)
    ),
    "logistic.cdf": Row(
        function=stats.logistic.cdf, first=_logistic, second=lambda x: -_tanh(x / 2) * _logistic(x), kinds=("f64",)
    ),
    "logistic.logpdf": Row(
        function=stats.logistic.logpdf, first=lambda x: -_tanh(x / 2), second=lambda x: -_sech2(x / 2) / 2, kinds=("f64",)
    ),
    "log_expit": Row(function=sp.log_expit, first=lambda x: 1 / (1 + mp.exp(x)), second=lambda x: -_logistic(x)),
    "logaddexp": Row(function=lambda x: np.logaddexp(0.0, x), first=lambda x: 1 / (1 + mp.exp(-x)), second=_logistic),
    "expm1": Row(function=np.expm1, first=mp.exp, second=mp.exp, high=700),
    "expon.logcdf": Row(
        function=stats.expon.logcdf, first=lambda x: 1 / mp.expm1(x), second=lambda x: -1 / (4 * mp.sinh(x / 2) ** 2), low=0.0,
        kinds=("f64",), ulps=(8, 24),
    ),
    "log1p": Row(function=np.log1p, first=lambda x: 1 / (1 + x), second=lambda x: -1 / (1 + x) ** 2, low=-1.0),
    "log2": Row(function=np.log2, first=lambda x: 1 / (x * mp.log(2)), second=lambda x: -1 / (x * x * mp.log(2)), low=0.0),
    "log10": Row(function=np.log10, first=lambda x: 1 / (x * mp.log(10)), second=lambda x: -1 / (x * x * mp.log(10)), low=0.0),
    "log_ndtr": Row(function=sp.log_ndtr, first=_mills, second=_mills_slope, stride=3),
    "norm.logcdf": Row(function=stats.norm.logcdf, first=_mills, second=_mills_slope, kinds=("f64",), stride=7),
    "norm.logsf": Row(
        function=stats.norm.logsf, first=lambda x: -_mills(-x), second=lambda x: _mills_slope(-x), kinds=("f64",), stride=7
    ),
    "ndtr": Row(function=sp.ndtr, first=mp.npdf, second=lambda x: -x * mp.npdf(x)),
    "erf": Row(
        function=sp.erf, first=lambda x: 2 / mp.sqrt(mp.pi) * _bell(x), second=lambda x: -4 * x / mp.sqrt(mp.pi) * _bell(x)
    ),
    "erfc": Row(
        function=sp.erfc, first=lambda x: -2 / mp.sqrt(mp.pi) * _bell(x), second=lambda x: 4 * x / mp.sqrt(mp.pi) * _bell(x)
    ),
    "erfcx": Row(function=sp.erfcx, first=lambda x: -2 * _integral(1, x), second=lambda x: 8 * _integral(2, x), stride=3),
    "arcsin": Row(
        function=np.arcsin, first=lambda x: 1 / mp.sqrt(1 - x * x), second=lambda x: x / mp.sqrt(1 - x * x) ** 3, low=-1.0,
        high=1.0,
    ),
    "arccos": Row(
        function=np.arccos, first=lambda x: -1 / mp.sqrt(1 - x * x), second=lambda x: -x / mp.sqrt(1 - x * x) ** 3, low=-1.0,
        high=1.0,
    ),
    "arctanh": Row(
        function=np.arctanh, first=lambda x: 1 / (1 - x * x), second=lambda x: 2 * x / (1 - x * x) ** 2, low=-1.0, high=1.0
    ),
    "arctan": Row(function=np.arctan, first=lambda x: 1 / (1 + x * x), second=lambda x: -2 * x / (1 + x * x) ** 2),
    "arcsinh": Row(function=np.arcsinh, first=lambda x: 1 / mp.sqrt(1 + x * x), second=lambda x: -x / mp.sqrt(1 + x * x) ** 3),
    "arccosh": Row(
        function=np.arccosh, first=lambda x: 1 / mp.sqrt(x * x - 1), second=lambda x: -x / mp.sqrt(x * x - 1) ** 3, low=1.0
    ),
    "hypot(x, 1)": Row(
        function=lambda x: np.hypot(x, x.dtype.type(1)), first=lambda x: x / mp.sqrt(1 + x * x),
        second=lambda x: 1 / mp.sqrt(1 + x * x) ** 3,
    ),
    "sinc": Row(
        function=np.sinc, first=lambda x: mp.pi * _sinc(mp.pi * x), second=lambda x: mp.pi**2 * _sinc_2(mp.pi * x), low=-0.6,
        high=0.6, ulps=(8, 32),
    ),
    "shi": Row(function=lambda x: sp.shichi(x)[0], first=lambda x: mp.sinh(x) / x, second=_sinhc, low=-80, high=80),
    "si": Row(function=lambda x: sp.sici(x)[0], first=lambda x: mp.sin(x) / x, second=_sinc, low=-1.5, high=1.5),
    "dawsn": Row(
        function=sp.dawsn, first=lambda x: 1 - 2 * x * _dawsn(x),
        second=lambda x: -2 * _dawsn(x) - 2 * x * (1 - 2 * x * _dawsn(x)),
        digits=300, ulps=(40, 80), stride=3, low=-1e30, high=1e30,
    ),
    "i0e": Row(
        function=sp.i0e, first=lambda x: -mp.sign(x) * _i_scaled(1, x), second=lambda x: _i_scaled(2, x), ulps=(80, 2000),
        stride=3, kinds=("f64",),
    ),
    "i0e of float32": Row(
        function=sp.i0e, first=lambda x: -mp.sign(x) * _i_scaled(1, x), second=lambda x: _i_scaled(2, x), kinds=("f32",)
    ),
    "i1e": Row(
        function=sp.i1e, first=lambda x: _i_scaled(2, x) - _i_scaled(1, x),
        second=lambda x: (_i_scaled(2, x) - _i_scaled(3, x)) * mp.sign(x), ulps=(80, 2000), stride=3, low=1.6,
        kinds=("f64",),
    ),
    "zeta": Row(function=sp.zeta, first=lambda x: _zeta(x, 1), second=lambda x: _zeta(x, 2), low=1.5, high=1000, ulps=(16, 32)),
    "betaln(x, 1)": Row(
        function=lambda a: sp.betaln(a, 1.0), first=lambda x: -1 / x, second=lambda x: 1 / x**2, low=0.0, kinds=("f64",)
    ),
    "betaln(1, x)": Row(
        function=lambda a: sp.betaln(1.0, a), first=lambda x: -1 / x, second=lambda x: 1 / x**2, low=0.0, kinds=("f64",)
    ),
    "t.logpdf(1, x)": Row(
        function=lambda d: stats.t.logpdf(1.0, d), first=lambda x: _student(x, 1), second=lambda x: _student(x, 2), low=1e-3,
        high=1e12, kinds=("f64",), ulps=(200, 2000), digits=160,
    ),
}  # fmt: skip


def arguments(row: Row, kind: Any) -> Array:
    least, most = (-1074, 1024) if kind is np.float64 else (-149, 128)
    x = np.ldexp(1.0, np.arange(least, most, row.stride))
    x = np.concatenate([x, -x, [1.5, -1.5, 0.75, -0.75, 20.0, -20.0, 5.5, -5.5, 12.25]])
    return x[(x > row.low) & (x < row.high)].astype(kind)


def exact(function: Callable[..., Any], x: Array, digits: int) -> list[Any]:
    with mp.workdps(digits):
        return [function(mp.mpf(float(v))) for v in x]


def check(result: Array, wanted: list[Any], x: Array, ulps: float, label: str) -> None:
    info = np.finfo(result.dtype)
    wrong = []
    for value, right, at in zip(result, wanted, x, strict=True):
        size = abs(right)
        if size > float(info.max) * (1 - float(info.eps) * ulps):
            is_right = abs(value) >= float(info.max) * (1 - 2 * float(info.eps) * ulps) and (value > 0) == (right > 0)
        else:
            step = max(float(size * float(info.eps)), float(info.smallest_subnormal))
            is_right = bool(np.isfinite(value)) and abs(mp.mpf(float(value)) - right) <= ulps * step
        if not is_right:
            wrong.append((float(at), float(value), mp.nstr(right, 17)))
    assert not wrong, (label, len(wrong), wrong[:12])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ROWS)
def test_derivatives_over_the_whole_domain(name: str, kind: str) -> None:
    row = ROWS[name]
    if kind not in row.kinds:
        return
    x = arguments(row, KINDS[kind])
    ones = np.ones_like(x)
    by_reverse = pb.grad(lambda v: np.sum(row.function(v)))
    wanted = exact(row.first, x, row.digits)
    check(by_reverse(x), wanted, x, row.ulps[0], "reverse")
    check(pb.jvp(row.function, (x,), (ones,))[1], wanted, x, row.ulps[0], "forward")
    wanted = exact(row.second, x, row.digits)
    check(pb.grad(lambda v: np.sum(by_reverse(v)))(x), wanted, x, row.ulps[1], "reverse over reverse")
    check(pb.jvp(by_reverse, (x,), (ones,))[1], wanted, x, row.ulps[1], "forward over reverse")


@pytest.mark.parametrize("kind", KINDS)
def test_gates_in_loops_over_the_whole_domain(kind: str) -> None:
    """The gradient of a gate in a loop reads the gate's value and derivative: both are those of the function itself, at zeros of
    either sign, where the tail underflows, at infinities and NaN too."""
    dtype = KINDS[kind]
    points = arguments(ROWS["expit"], dtype)
    limits = np.array([-105.0, 105.0, -746.0, 746.0, 0.0, -0.0, np.inf, -np.inf, np.nan, np.copysign(np.nan, -1.0)], dtype)
    x = np.concatenate([points, limits])

    def through_gates(c: Any, xs: Any, w: Any) -> Any:
        """What a gate is of is kept: products are not computed twice."""

        def step(state: Any, x: Any) -> Any:
            c, w = state
            return (sp.expit(x @ w) * c, -w), None

        (c, _), _ = pb.scan(step, (c, w), xs)
        return np.sum(c)

    inputs = np.ones_like(x)[:, None], x[None, :, None], np.ones((1, 1), dtype)
    value, (by_c, by_x) = pb.value_and_grad(through_gates, argnums=(0, 1))(*inputs)
    by_c, by_x = by_c[:, 0], by_x[0, :, 0]
    gate = pb.jit(sp.expit)(x)
    np.testing.assert_array_equal(by_c, gate)
    np.testing.assert_array_equal(by_x, pb.grad(lambda v: np.sum(sp.expit(v)))(x))
    check(by_x[: len(points)], exact(_logistic, points, DIGITS), points, 8.0, "in a loop")
    assert np.isnan(value) and list(by_c[-4:-2]) == [1, 0] and list(by_x[-4:-2]) == [0, 0]
    text = pb.jit(pb.grad(through_gates, argnums=(0, 1))).stages(*inputs)["simplify"]
    assert "copysign" in text and "logistic_pdf" not in text


LIMITS = [-105.0, 105.0, -746.0, 746.0, 0.0, -0.0, np.inf, -np.inf, np.nan, np.copysign(np.nan, -1.0)]


def tanh_points(dtype: Any) -> tuple[Array, Array]:
    """Points over the whole domain with those around 1/2 = tanh(0.5493...) and the far end, and all of them with the limits."""
    far = np.linspace(340.0, 375.0, 141) if dtype is np.float64 else np.linspace(40.0, 54.0, 141)
    points = np.concatenate([arguments(ROWS["tanh"], dtype), np.linspace(0.5, 0.6, 201), -np.linspace(0.5, 0.6, 201), far, -far])
    return points.astype(dtype), np.concatenate([points, LIMITS]).astype(dtype)


def expanded(compute: Callable[..., Any]) -> Recipe:
    """A recipe of what ``compute`` emits, functions expanded."""

    def recipe(b: Any, z: Any) -> Any:
        cold: dict[str, Any] = {}
        result = compute(Expander(NOWHERE, b.instructions, {}, cold), z)
        b.instructions[:0] = cold.values()
        return result

    return recipe


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", TAILS.values(), ids=lambda tail: tail.function.name)
def test_value_and_derivative_follow_from_what_is_kept(tail: Tail, kind: str) -> None:
    """Bit by bit, of zeros of either sign, infinities and NaN too; subnormal derivatives to a unit."""
    _, x = tanh_points(KINDS[kind])
    wanted, derivative = (run(expanded(lambda b, z, op=op: b.emit(op, (z,))[0]), x) for op in (tail.function, tail.derivative))
    split = run(expanded(lambda b, z: tail.split(b, z)[0]), x)
    value, slope = (run(expanded(lambda b, z, k=k: tail.join(b, tail.split(b, z)[1])[k]), x) for k in (0, 1))
    for result in split, value:
        np.testing.assert_array_equal(result, wanted)
        np.testing.assert_array_equal(np.signbit(result) | np.isnan(result), np.signbit(wanted) | np.isnan(wanted))
    info = np.finfo(KINDS[kind])
    np.testing.assert_allclose(slope, derivative, rtol=0, atol=info.smallest_subnormal)
    usual = ~(derivative < 2 * info.tiny)
    np.testing.assert_array_equal(slope[usual], derivative[usual])


@pytest.mark.parametrize("kind", KINDS)
def test_layers_over_the_whole_domain(kind: str) -> None:
    """The gradient of a layer reads one number, from which tanh and its derivative follow: the values are those of tanh itself,
    and the derivatives keep their digits."""
    dtype = KINDS[kind]
    points, x = tanh_points(dtype)

    def layers(x: Any, w: Any, v: Any, c: Any) -> Any:
        return np.sum(np.tanh(x @ w) @ v * c)

    v = np.tile(np.array([[1, 0]], dtype), (len(x), 1, 1))
    arguments = x[:, None, None], np.ones((1, 1), dtype), v, np.ones_like(v)
    gradient = pb.jit(pb.value_and_grad(layers, argnums=(0, 2)))
    value, (by_x, by_v) = gradient(*arguments)
    slope = pb.grad(lambda v: np.sum(np.tanh(v)))(x)
    assert np.isnan(value)
    np.testing.assert_array_equal(by_v[:, 0, 0], pb.jit(np.tanh)(x))
    usual = ~(slope < 2 * np.finfo(dtype).tiny)
    np.testing.assert_array_equal(by_x[usual, 0, 0], slope[usual])
    check(by_x[: len(points), 0, 0], exact(_sech2, points, DIGITS), points, 8.0, "in a layer")
    text = gradient.stages(*arguments)["simplify"]
    assert (text.count(" tanh "), text.count(" tanh_tail "), text.count(" sech2 ")) == (1, 1, 0)

    second = pb.grad(lambda *arguments: np.sum(pb.grad(layers)(*arguments)))(*arguments)
    check(second[: len(points), 0, 0], exact(ROWS["tanh"].second, points, DIGITS), points, 16.0, "order 2")


@pytest.mark.parametrize("kind", KINDS)
def test_tanh_in_loops_over_the_whole_domain(kind: str) -> None:
    dtype = KINDS[kind]
    points, x = tanh_points(dtype)

    def through_steps(c: Any, xs: Any, w: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            c, w = state
            return (np.tanh(x @ w) * c, -w), None

        (c, _), _ = pb.scan(step, (c, w), xs)
        return np.sum(c)

    arguments = np.ones_like(x)[:, None], x[None, :, None], np.ones((1, 1), dtype)
    by_c, by_x = pb.grad(through_steps, argnums=(0, 1))(*arguments)
    np.testing.assert_array_equal(by_c[:, 0], pb.jit(np.tanh)(x))
    check(by_x[0, : len(points), 0], exact(_sech2, points, DIGITS), points, 8.0, "in a loop")
    text = pb.jit(pb.grad(through_steps, argnums=(0, 1))).stages(*arguments)["simplify"]
    assert (text.count(" tanh_tail "), text.count(" sech2 ")) == (1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_far_ends_in_the_kernel_and_called(kind: str) -> None:
    """A kernel with few derivatives of tanh has the code of their far ends in it, one with many calls it: bits are the same, in
    vectors, their rests and alone."""
    low, high = (340.0, 375.0) if kind == "f64" else (40.0, 54.0)
    x = np.linspace(low, high, 1003).astype(KINDS[kind])
    slope = pb.grad(lambda v: np.sum(np.tanh(v)))
    few, many = pb.jit(slope), pb.jit(lambda v: [slope(v - k) for k in range(6)])
    wanted = few(x)
    for k, result in enumerate(many(x)):
        np.testing.assert_array_equal(result, few(x - k))
    np.testing.assert_array_equal([few(x[k : k + 1])[0] for k in range(0, len(x), 97)], wanted[::97])
    assert 0 < np.count_nonzero(wanted) < len(x)
    assert "far_sech2" not in few.stages(x)["llvm"]
    assert "far_sech2" in many.stages(x)["llvm"]
