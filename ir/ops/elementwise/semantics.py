"""Reference semantics of elementwise ops, fixed for all targets where NumPy's depend on the platform or warn.

x // 0 and x % 0 of integers are 0; MIN // -1 is MIN; shifts past the width give 0 (right shifts of negative numbers -1); a
float outside the range of a signed 32- or 64-bit integer, and NaN, convert to its least value, other integer types convert
through those and wrap; maximum and minimum propagate NaN and put -0 below +0; fmax and fmin ignore NaN.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

Array = Any


def is_float(x: Array) -> bool:
    """Return whether an array holds floats, including bfloat16, which NumPy treats as a void type."""
    return np.asarray(x).dtype.kind in "fV"


def _guarded(function: Any, x: Array, y: Array) -> Array:
    """Return an integer division that is 0 where the divisor is 0."""
    if is_float(y):
        return function(x, y)
    zero = y == 0
    return np.where(zero, np.zeros_like(y), function(x, np.where(zero, np.ones_like(y), y)))


def floordiv(x: Array, y: Array, natural: bool = False) -> Array:
    """Return the floor of the quotient; ``natural`` is for code alone."""
    return _guarded(np.floor_divide, x, y)


def mod(x: Array, y: Array, natural: bool = False) -> Array:
    """Return the remainder of ``floordiv``; ``natural`` is for code alone."""
    return _guarded(np.remainder, x, y)


def fmod(x: Array, y: Array) -> Array:
    return _guarded(np.fmod, x, y)


def idiv(x: Array, y: Array) -> Array:
    """Return the quotient rounded towards zero; the divisor must not be 0, nor -1 under MIN."""
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient < 0) & (quotient * y != x)).astype(quotient.dtype)


def fma(x: Array, y: Array, z: Array) -> Array:
    """Return x * y + z, rounded once: for float64 by integers, else in float64, first rounded to odd."""
    dtype = np.asarray(x).dtype
    if dtype.itemsize <= 4:
        return np.asarray(_FMA_TO_ODD(*(np.asarray(v, np.float64) for v in (x, y, z))), np.float64).astype(dtype)
    return np.asarray(_FMA(x, y, z), dtype)


def _fma(x: float, y: float, z: float) -> float:
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return z if math.isfinite(x) and math.isfinite(y) else x * y + z
    (a, p), (b, q), (c, r) = x.as_integer_ratio(), y.as_integer_ratio(), z.as_integer_ratio()
    exact = a * b * r + c * p * q
    if exact == 0:
        return x * y + z
    try:
        return exact / (p * q * r)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _fma_to_odd(x: float, y: float, z: float) -> float:
    """Return x * y + z for exact products, rounded to odd: if inexact, the neighbour of the sum whose last bit is set."""
    product = x * y
    total = product + z
    remainder = total - product
    error = (product - (total - remainder)) + (z - remainder)
    if error == 0 or not math.isfinite(error) or int(math.ldexp(math.frexp(total)[0], 53)) & 1:
        return total
    return math.nextafter(total, math.copysign(math.inf, error))


_FMA, _FMA_TO_ODD = np.frompyfunc(_fma, 3, 1), np.frompyfunc(_fma_to_odd, 3, 1)


def sign(x: Array) -> Array:
    return np.add(np.sign(x), np.zeros_like(x)) if is_float(x) else np.sign(x)


def pow(x: Array, y: Array, root: bool = False, fractional: bool = False) -> Array:
    """Return C's power for floats. Arrays of rank 1 or more are passed to NumPy, which takes a square root instead only where
    the exponent is a scalar 0.5. A negative integer exponent gives 0 (the tracer checks it first)."""
    x, y = np.asarray(x), np.asarray(y)
    if is_float(x) or x.dtype.kind == "c":
        return np.power(np.atleast_1d(x), np.atleast_1d(y)).reshape(np.broadcast_shapes(x.shape, y.shape))
    negative = y < 0
    return np.where(negative, np.zeros_like(x), np.power(x, np.where(negative, np.zeros_like(y), y)))


def sqrt(x: Array, norm: bool = False, positive: bool = False) -> Array:
    """Return the square root; the params are for gradients alone."""
    return np.sqrt(x)


def cbrt(x: Array, root: bool = False) -> Array:
    """Return the cube root; ``root`` is for gradients alone."""
    return np.cbrt(x)


def _signed_zeros(out: Array, x: Array, y: Array, zero: Array) -> Array:
    if not is_float(out):
        return out
    return np.where((np.asarray(x) == 0) & (np.asarray(y) == 0), zero, out)


def maximum(x: Array, y: Array) -> Array:
    return _signed_zeros(np.maximum(x, y), x, y, np.add(x, y))


def minimum(x: Array, y: Array) -> Array:
    out = np.minimum(x, y)
    return out if not is_float(out) else _signed_zeros(out, x, y, -np.add(-np.asarray(x), -np.asarray(y)))


def fmax(x: Array, y: Array) -> Array:
    return _signed_zeros(np.fmax(x, y), x, y, np.add(x, y))


def fmin(x: Array, y: Array) -> Array:
    out = np.fmin(x, y)
    return out if not is_float(out) else _signed_zeros(out, x, y, -np.add(-np.asarray(x), -np.asarray(y)))


def clip(x: Array, lo: Array, hi: Array) -> Array:
    return minimum(maximum(x, lo), hi)


def gammaln(x: Array) -> Array:
    """Return SciPy's gammaln, corrected for subnormal numbers, which SciPy takes for 0."""
    result = importlib.import_module("scipy.special").gammaln(x)
    size = np.abs(x)
    with np.errstate(divide="ignore"):
        return np.where((size > 0) & (size < 1e-300), -np.log(size), result)


def erfcinv(y: Array) -> Array:
    """Return SciPy's erfcinv, corrected for the least subnormal number, which SciPy takes for 0."""
    special = importlib.import_module("scipy.special")
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = special.ndtri_exp(np.log(y) - math.log(2)) / -math.sqrt(2)
    return np.where((y > 0) & (y < 1e-300), tail, special.erfcinv(y)).astype(np.asarray(y).dtype)


def sech2(x: Array) -> Array:
    """Return 1 - tanh(x)**2."""
    e = np.exp(-2.0 * np.abs(np.asarray(x, np.float64)))
    return (4.0 * e / (1.0 + e) ** 2).astype(np.asarray(x).dtype)


TANH_NEAR = 0.5494
"""The argument at which abs(tanh) is 1/2, to a few digits; for larger ones tanh is computed as 1 minus its tail."""


def tanh_tail(x: Array) -> Array:
    """Return 1 - abs(tanh(x))."""
    e = np.exp(-2.0 * np.abs(np.asarray(x, np.float64)))
    return (2.0 * e / (1.0 + e)).astype(np.asarray(x).dtype)


def logistic_pdf(x: Array) -> Array:
    """Return the derivative of the logistic function."""
    e = np.exp(-np.abs(np.asarray(x, np.float64)))
    return (e / (1.0 + e) ** 2).astype(np.asarray(x).dtype)


def logistic_logpdf(x: Array) -> Array:
    size = np.abs(np.asarray(x, np.float64))
    return (-size - 2.0 * np.log1p(np.exp(-size))).astype(np.asarray(x).dtype)


def one_minus_square(x: Array) -> Array:
    return (1 - x) * (1 + x)


def lorentzian(x: Array) -> Array:
    """Return 1 / (1 + x**2)."""
    inverse = 1 / np.where(np.abs(x) > 1e15, x, 1)
    return np.where(np.abs(x) > 1e15, inverse * inverse, 1 / (1 + x * x))


def over_hypot(x: Array, y: Array, h: Array) -> Array:
    """Return x / hypot(x, y), where ``h`` is hypot(x, y); 0 at the origin. A subnormal ``h`` has too few digits and is
    recomputed."""
    kind = np.float64 if x.dtype == np.float64 else np.float32
    x, y, h, up = x.astype(kind), y.astype(kind), h.astype(kind), kind(2.0**60 if kind is np.float64 else 2.0**30)
    is_small = (h > 0) & (h < np.finfo(kind).smallest_normal)
    quotient = np.where(is_small, x * up, x) / np.where(is_small, np.hypot(x * up, y * up), h)
    return np.where(h == 0, np.zeros_like(quotient), quotient)


def gauss(x: Array) -> Array:
    """Return exp(-x**2)."""
    x64 = np.asarray(x, np.float64)
    return np.exp(-x64 * x64).astype(np.asarray(x).dtype)


def normal_pdf(x: Array) -> Array:
    x64 = np.asarray(x, np.float64)
    return (np.exp(-0.5 * x64 * x64) / math.sqrt(2.0 * math.pi)).astype(np.asarray(x).dtype)


def inverse_mills(x: Array) -> Array:
    """Return the normal density over the normal distribution function."""
    special = importlib.import_module("scipy.special")
    x64 = np.asarray(x, np.float64)
    below = math.sqrt(2.0 / math.pi) / special.erfcx(np.minimum(x64, 0.0) / -math.sqrt(2.0))
    above = np.exp(-0.5 * x64 * x64) / math.sqrt(2.0 * math.pi) / special.ndtr(np.maximum(x64, 0.0))
    return np.where(x64 < 0, below, above).astype(np.asarray(x).dtype)


def mills_gap(x: Array) -> Array:
    """Return x + inverse_mills(x); for negative x as a quotient of integrals of erfc."""
    special = importlib.import_module("scipy.special")
    x64 = np.asarray(x, np.float64)
    y = np.minimum(x64, 0.0) / -math.sqrt(2.0)
    with np.errstate(all="ignore"):
        quotient = np.where(y < 1e7, _scaled_integral(1, np.minimum(y, 1e7)) / special.erfcx(np.minimum(y, 1e7)), 0.5 / y)
    return np.where(x64 < 0, math.sqrt(2.0) * quotient, x64 + inverse_mills(x64)).astype(np.asarray(x).dtype)


def ierfcx(x: Array) -> Array:
    """Return exp(x**2) times the integral of erfc from x to infinity."""
    x64 = np.asarray(x, np.float64)
    return _scaled_integral(1, x64).astype(np.asarray(x).dtype)


def i2erfcx(x: Array) -> Array:
    """Return exp(x**2) times the twice repeated integral of erfc from x to infinity."""
    x64 = np.asarray(x, np.float64)
    return _scaled_integral(2, x64).astype(np.asarray(x).dtype)


_NODES = np.exp(np.linspace(-4.0, 3.0, 141) - np.exp(-np.linspace(-4.0, 3.0, 141)))
_WEIGHTS = 0.05 * _NODES * (1.0 + np.exp(-np.linspace(-4.0, 3.0, 141)))


def _scaled_integral(n: int, x: Array) -> Array:
    """Return 2 / sqrt(pi) times the integral of t**n / n! exp(-t**2 - 2 x t) over t > 0 (DLMF 7.18.2), by the
    double-exponential rule; for large x by the asymptotic series (7.18.14), and for negative x by reflection of the
    integral at -x."""
    x, below = np.abs(x), x < 0
    scale = 1.0 / np.maximum(1.0, np.minimum(x, 1e150))[..., None]
    t = _NODES * scale
    terms = t**n * np.exp(-t * t - 2.0 * x[..., None] * t)
    total = np.sum(terms * (_WEIGHTS * scale), axis=-1) * (2.0 / math.sqrt(math.pi) / math.factorial(n))
    inverse = 0.5 / np.maximum(x, 30.0)
    square, series = inverse * inverse, np.zeros_like(x)
    for m in range(9, -1, -1):
        series = series * -square + math.factorial(2 * m + n) / math.factorial(m)
    asymptotic = series * inverse ** (n + 1) * (2.0 / math.sqrt(math.pi) / math.factorial(n))
    total = np.where(x > 30.0, asymptotic, total)
    grown = np.exp(np.minimum(x * x, 745.0))
    mirrored = total + 2.0 * x * grown if n == 1 else (x * x + 0.5) * grown - total
    return np.where(below, np.where(x > 26.8, np.inf, mirrored), total)


def polygamma(x: Array, n: int) -> Array:
    special = importlib.import_module("scipy.special")
    sign_ = 1.0 if n % 2 else -1.0
    return (sign_ * math.factorial(n) * special.zeta(n + 1, np.asarray(x, np.float64))).astype(np.asarray(x).dtype)


def digamma_step(x: Array, d: Array) -> Array:
    """Return digamma(x + d) - digamma(x), for positive arguments by the recurrence and the asymptotic series of both, term by
    term."""
    return _polygamma_step(x, d, 0)


def trigamma_step(x: Array, d: Array) -> Array:
    """Return trigamma(x + d) - trigamma(x), likewise."""
    return _polygamma_step(x, d, 1)


_SERIES = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""The Bernoulli numbers B2, B4, ..., B14."""


def _polygamma_step(x: Array, d: Array, order: int) -> Array:
    special = importlib.import_module("scipy.special")
    dtype, x, d = np.asarray(x).dtype, np.asarray(x, np.float64), np.asarray(d, np.float64)
    start, end, size = np.minimum(x, x + d), np.maximum(x, x + d), np.abs(d)
    usual = (start > 0) & (end < np.inf)
    start, end = np.where(usual, start, 1.0), np.where(usual, end, 1.0)
    total = np.zeros(np.broadcast_shapes(x.shape, d.shape))
    for k in range(10):
        p, q = 1 / (start + k), 1 / (end + k)
        total = total + size * p * q * (p + q if order else 1.0)
    p, q = 1 / (start + 10), 1 / (end + 10)
    series = 0.5 * (p + q) if order else np.full_like(total, 0.5)
    for j, bernoulli in enumerate(_SERIES, 1):
        power = 2 * j + order
        ratio = sum(q**i * p ** (power - 1 - i) for i in range(power))
        series = series + ratio * (bernoulli if order else bernoulli / (2 * j))
    step = size * p * q
    total = -(total + step + step * series) if order else total + step * series + np.log1p(size * p)
    with np.errstate(all="ignore"):
        plain = special.polygamma(1, x + d) - special.polygamma(1, x) if order else special.digamma(x + d) - special.digamma(x)
    return np.where(usual, np.where(d < 0, -total, total), plain).astype(dtype)


def expn(x: Array, n: int) -> Array:
    return expn_at(np.full_like(x, n), x)


def expn_at(n: Array, x: Array) -> Array:
    """Return the exponential integral of an order that is stored as a float; NaN for invalid orders."""
    is_order = (n >= 0) & (n < 2.0**31) & (np.trunc(n) == n)
    result = importlib.import_module("scipy.special").expn(np.where(is_order, n, np.zeros_like(n)), x)
    return np.where(is_order, result, np.full_like(x, np.nan))


def shl(x: Array, n: Array) -> Array:
    width = np.asarray(x).dtype.itemsize * 8
    inside = (np.asarray(n) >= 0) & (np.asarray(n) < width)
    return np.where(inside, np.left_shift(x, np.where(inside, n, 0).astype(np.asarray(x).dtype)), 0)


def shr(x: Array, n: Array) -> Array:
    width = np.asarray(x).dtype.itemsize * 8
    inside = (np.asarray(n) >= 0) & (np.asarray(n) < width)
    past = np.where(np.asarray(x) < 0, -1, 0).astype(np.asarray(x).dtype)
    return np.where(inside, np.right_shift(x, np.where(inside, n, 0).astype(np.asarray(x).dtype)), past)


def below(x: Array, n: Array) -> Array:
    """Return whether 0 <= x < n, for n of at least 0."""
    unsigned = np.dtype(f"u{np.asarray(x).dtype.itemsize}")
    return np.asarray(x).view(unsigned) < np.asarray(n).view(unsigned)


def is_index(x: Array, n: Array) -> Array:
    """Return whether -n <= x < n, for n of at least 0."""
    with np.errstate(all="ignore"):
        return below(np.where(np.asarray(x) < 0, np.add(x, n), x), n)


def add_fits(x: Array, y: Array) -> Array:
    """Return whether sums do not wrap around: where both numbers have the sign that their sum lacks, it has."""
    with np.errstate(all="ignore"):
        total = np.add(x, y)
    return (np.bitwise_xor(x, total) & np.bitwise_xor(y, total)) >= 0


def sub_fits(x: Array, y: Array) -> Array:
    """Return whether differences do not wrap around."""
    with np.errstate(all="ignore"):
        difference = np.subtract(x, y)
    return (np.bitwise_xor(x, y) & np.bitwise_xor(x, difference)) >= 0


def mul_fits(x: Array, y: Array) -> Array:
    """Return whether products do not wrap around: divided by one factor they are the other. The least integer times -1 wraps,
    and so does its quotient by -1."""
    x, y = np.asarray(x), np.asarray(y)
    with np.errstate(all="ignore"):
        product = np.multiply(x, y)
        quotient = np.floor_divide(product, np.where(x == 0, np.ones_like(x), x))
    return (x == 0) | ((quotient == y) & ~((x == -1) & (y == np.iinfo(y.dtype).min)))


def div_in_range(x: Array, y: Array) -> Array:
    """Return x / y for positive y, and x that is 0, NaN or so large that a remainder of the division is a normal number."""
    return np.true_divide(x, y)


def cast(x: Array, dtype: Any, in_range: bool = False) -> Array:
    """Return ``x`` as ``dtype``; ``in_range`` promises that a float fits the integer type."""
    x = np.asarray(x)
    target = dtype.numpy
    if x.dtype.kind == "c" and dtype.kind not in "bc":
        x = x.real
    if x.dtype.kind not in "fV" or dtype.kind not in "iu":
        return x.astype(target)
    x64 = x.astype(np.float64)
    if dtype.bits < 32 or (dtype.kind == "i" and dtype.bits == 32):
        return _to_signed(x64, np.int32).astype(target)
    if dtype.name == "u64":
        high = x64 >= 2.0**63
        low = _to_signed(np.where(high, x64 - 2.0**63, x64), np.int64).astype(np.uint64)
        return np.where(high, low ^ np.uint64(1 << 63), low)
    return _to_signed(x64, np.int64).astype(target)


def _to_signed(x: Array, target: Any) -> Array:
    info = np.iinfo(target)
    good = (x > float(info.min) - 1) & (x < float(info.max) + 1) if target is np.int32 else (x >= -(2.0**63)) & (x < 2.0**63)
    return np.where(good, np.trunc(np.where(good, x, 0)).astype(target), info.min)


def bitcast(x: Array, dtype: Any) -> Array:
    return np.asarray(x).view(dtype.numpy)


def lookup(index: Array, values: tuple[float, ...], dtype: Any) -> Array:
    """Return the value at the low bits of ``index``; the number of values is a power of two."""
    table = np.asarray(values, dtype.numpy)
    result: Array = table[np.asarray(index) % np.uint8(len(table))]
    return result


PHILOX = ((0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B))
"""The multipliers of Philox4x64 and the increments of its keys; for narrower integers, their low bits."""
PHILOX_ROUNDS = 10


def mulhi(x: Array, y: Array) -> Array:
    """Return the high half of the product of unsigned integers."""
    x, y = np.asarray(x), np.asarray(y)
    half = np.asarray(x.dtype.itemsize * 4, x.dtype)
    low = (np.ones_like(half) << half) - np.ones_like(half)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    first = x1 * y0 + (x0 * y0 >> half)
    second = x0 * y1 + (first & low)
    return x1 * y1 + (first >> half) + (second >> half)


def philox(c0: Array, c1: Array, c2: Array, c3: Array, k0: Array, k1: Array, word: int) -> Array:
    """Return a word of the block of Philox4x64-10 at counter c under key k (Salmon et al., Parallel random numbers: as easy as
    1, 2, 3, 2011)."""
    dtype = np.asarray(c0).dtype
    (m0, m1), (w0, w1) = ([np.asarray(v % 2 ** (8 * dtype.itemsize), dtype) for v in pair] for pair in PHILOX)
    for _ in range(PHILOX_ROUNDS):
        c0, c1, c2, c3 = mulhi(c2, m1) ^ c1 ^ k0, c2 * m1, mulhi(c0, m0) ^ c3 ^ k1, c0 * m0
        k0, k1 = k0 + w0, k1 + w1
    return (c0, c1, c2, c3)[word]
