"""What a careful user writes under Numba: one parallel loop for value and gradient, into arrays that are allocated once.
(Calls that are shorter than an allocation return new arrays, as ours do; the peer numba_kept writes into a kept array.)

Constants have the arguments' dtype. LOOPS holds, by workload and
kind of case, a function of the case's arguments that returns a call without arguments.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

from benchmarks.hand import numba_pairs, numba_recurrence, numba_stencil

Array = Any
Call = Callable[[], Any]


@njit(parallel=True, fastmath=True, cache=True)
def black_scholes_fwd(spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Any:
    real = spot.dtype.type
    half, root_half, one = real(0.5), real(0.7071067811865476), real(1)
    total = 0.0
    for i in prange(len(spot)):
        s, k, t, r, v = spot[i], strike[i], years[i], rate[i], sigma[i]
        root = v * math.sqrt(t)
        d1 = (math.log(s / k) + (r + half * v * v) * t) / root
        phi1 = half * (one + math.erf(d1 * root_half))
        phi2 = half * (one + math.erf((d1 - root) * root_half))
        total += s * phi1 - k * math.exp(-r * t) * phi2
    return total


@njit(parallel=True, fastmath=True, cache=True)
def black_scholes_grad(
    spot: Array, strike: Array, years: Array, rate: Array, sigma: Array,
    d_spot: Array, d_strike: Array, d_years: Array, d_rate: Array, d_sigma: Array,
) -> Any:  # fmt: skip
    real = spot.dtype.type
    half, root_half, one, density = real(0.5), real(0.7071067811865476), real(1), real(0.3989422804014327)
    total = 0.0
    for i in prange(len(spot)):
        s, k, t, r, v = spot[i], strike[i], years[i], rate[i], sigma[i]
        root_t = math.sqrt(t)
        root = v * root_t
        d1 = (math.log(s / k) + (r + half * v * v) * t) / root
        phi1 = half * (one + math.erf(d1 * root_half))
        phi2 = half * (one + math.erf((d1 - root) * root_half))
        discounted = math.exp(-r * t) * phi2
        owed = k * discounted
        vega = s * math.exp(-half * d1 * d1) * root_t * density
        total += s * phi1 - owed
        d_spot[i], d_strike[i] = phi1, -discounted
        d_years[i] = half * vega * v / t + r * owed
        d_rate[i], d_sigma[i] = t * owed, vega
    return total


@njit(parallel=True, fastmath=True, cache=True)
def chain_map(x: Array, y: Array, out: Array) -> None:
    half = x.dtype.type(0.5)
    for i in prange(len(x)):
        a, b = x[i], y[i]
        out[i] = a * b + half * a * a * b - b * b * a


@njit(parallel=True, fastmath=True, cache=True)
def chain_fwd(x: Array, y: Array) -> Any:
    half = x.dtype.type(0.5)
    total = x.dtype.type(0)
    for i in prange(len(x)):
        a, b = x[i], y[i]
        total += a * b + half * a * a * b - b * b * a
    return total


@njit(parallel=True, fastmath=True, cache=True)
def chain_grad(x: Array, y: Array, dx: Array, dy: Array) -> Any:
    half, two = x.dtype.type(0.5), x.dtype.type(2)
    total = x.dtype.type(0)
    for i in prange(len(x)):
        a, b = x[i], y[i]
        total += a * b + half * a * a * b - b * b * a
        dx[i] = b + a * b - b * b
        dy[i] = a + half * a * a - two * a * b
    return total


@njit(parallel=True, fastmath=True, cache=True)
def xent_fwd(z: Array, y: Array, part: Array) -> Any:
    rows, columns = z.shape
    for i in prange(rows):
        top = z[i, 0]
        for j in range(columns):
            top = max(top, z[i, j])
        total = z.dtype.type(0)
        for j in range(columns):
            total += math.exp(z[i, j] - top)
        part[i] = math.log(total) + top - z[i, y[i]]
    return part.mean()


@njit(parallel=True, fastmath=True, cache=True)
def xent_grad(z: Array, y: Array, part: Array, dz: Array) -> Any:
    rows, columns = z.shape
    weight = z.dtype.type(1) / z.dtype.type(rows)
    for i in prange(rows):
        top = z[i, 0]
        for j in range(columns):
            top = max(top, z[i, j])
        total = z.dtype.type(0)
        for j in range(columns):
            e = math.exp(z[i, j] - top)
            dz[i, j] = e
            total += e
        part[i] = math.log(total) + top - z[i, y[i]]
        scale = weight / total
        for j in range(columns):
            dz[i, j] *= scale
        dz[i, y[i]] -= weight
    return part.mean()


@njit(parallel=True, fastmath=True, cache=True)
def layer_norm_fwd(x: Array, gain: Array, bias: Array, out: Array) -> None:
    rows, columns = x.shape
    real = x.dtype.type
    for i in prange(rows):
        mean = real(0)
        for j in range(columns):
            mean += x[i, j]
        mean /= real(columns)
        square = real(0)
        for j in range(columns):
            square += (x[i, j] - mean) * (x[i, j] - mean)
        scale = real(1) / math.sqrt(square / real(columns) + real(1e-5))
        for j in range(columns):
            out[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]


@njit(parallel=True, fastmath=True, cache=True)
def layer_norm_grad(x: Array, gain: Array, bias: Array, c: Array, part: Array, dx: Array, gains: Array, biases: Array) -> Any:
    """gains and biases (chunks, columns) take the sums of each chunk of rows."""
    rows, columns = x.shape
    chunks = len(part)
    real = x.dtype.type
    count = real(columns)
    for chunk in prange(chunks):
        value = real(0)
        gains[chunk] = real(0)
        biases[chunk] = real(0)
        for i in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            mean = real(0)
            for j in range(columns):
                mean += x[i, j]
            mean /= count
            square = real(0)
            for j in range(columns):
                square += (x[i, j] - mean) * (x[i, j] - mean)
            scale = real(1) / math.sqrt(square / count + real(1e-5))
            first = second = real(0)
            for j in range(columns):
                normal = (x[i, j] - mean) * scale
                d = c[i, j] * gain[j]
                first += d
                second += d * normal
                value += c[i, j] * bias[j]
                gains[chunk, j] += c[i, j] * normal
                biases[chunk, j] += c[i, j]
            value += second
            first /= count
            second /= count
            for j in range(columns):
                normal = (x[i, j] - mean) * scale
                dx[i, j] = scale * (c[i, j] * gain[j] - first - normal * second)
        part[chunk] = value
    return part.sum()


@njit(parallel=True, fastmath=True, cache=True)
def logreg_fwd(w: Array, x: Array, y: Array, part: Array) -> Any:
    rows, columns = x.shape
    real = x.dtype.type
    for chunk in prange(len(part)):
        total = real(0)
        for i in range(chunk * rows // len(part), (chunk + 1) * rows // len(part)):
            z = real(0)
            for j in range(columns):
                z += x[i, j] * w[j]
            total += max(z, real(0)) + math.log1p(math.exp(-abs(z))) - y[i] * z
        part[chunk] = total
    return part.sum() / real(rows)


@njit(parallel=True, fastmath=True, cache=True)
def logreg_grad(w: Array, x: Array, y: Array, part: Array, parts: Array) -> Any:
    rows, columns = x.shape
    chunks = len(part)
    real = x.dtype.type
    for chunk in prange(chunks):
        total = real(0)
        parts[chunk] = real(0)
        for i in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            z = real(0)
            for j in range(columns):
                z += x[i, j] * w[j]
            small = math.exp(-abs(z))
            total += max(z, real(0)) + math.log1p(small) - y[i] * z
            share = (real(1) if z > real(0) else small) / (real(1) + small) - y[i]
            for j in range(columns):
                parts[chunk, j] += share * x[i, j]
        part[chunk] = total
    return part.sum() / real(rows)


@njit(parallel=True, fastmath=True, cache=True)
def embed_fwd(table: Array, position: Array, out: Array) -> None:
    for i in prange(len(position)):
        out[i] = table[position[i]]


@njit(parallel=True, fastmath=True, cache=True)
def embed_grad(table: Array, position: Array, c: Array, part: Array, gradient: Array) -> Any:
    """Each thread owns a range of the table's rows, and adds what falls into it."""
    owners = len(part)
    for owner in prange(owners):
        low, high = owner * len(table) // owners, (owner + 1) * len(table) // owners
        gradient[low:high] = table.dtype.type(0)
        total = table.dtype.type(0)
        for i in range(len(position)):
            row = position[i]
            if low <= row < high:
                for j in range(table.shape[1]):
                    total += table[row, j] * c[i, j]
                    gradient[row, j] += c[i, j]
        part[owner] = total
    return part.sum()


@njit(parallel=True, cache=True)
def cumsum_fwd(x: Array, part: Array, out: Array) -> None:
    """The sums of chunks first, then each chunk from the sum before it."""
    chunks = len(part)
    for chunk in prange(chunks):
        total = x.dtype.type(0)
        for i in range(chunk * len(x) // chunks, (chunk + 1) * len(x) // chunks):
            total += x[i]
        part[chunk] = total
    for chunk in prange(chunks):
        total = x.dtype.type(0)
        for before in range(chunk):
            total += part[before]
        for i in range(chunk * len(x) // chunks, (chunk + 1) * len(x) // chunks):
            total += x[i]
            out[i] = total


@njit(cache=True)
def cumsum_grad(x: Array, c: Array, out: Array) -> Any:
    """The value is the sum of x times the sum of c from there on."""
    total = value = x.dtype.type(0)
    for i in range(len(x) - 1, -1, -1):
        total += c[i]
        out[i] = total
        value += total * x[i]
    return value


@njit(fastmath=True, cache=True)
def rosenbrock(x: Array) -> Any:
    """A float and a new array, as pullback gives them."""
    gradient = np.zeros_like(x)
    value = 0.0
    for i in range(len(x) - 1):
        miss, rest = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        value += 100.0 * miss * miss + rest * rest
        gradient[i] += -400.0 * x[i] * miss - 2.0 * rest
        gradient[i + 1] += 200.0 * miss
    return value, gradient


@njit(fastmath=True, cache=True)
def rosenbrock_into(x: Array, gradient: Array) -> Any:
    gradient[:] = 0.0
    value = 0.0
    for i in range(len(x) - 1):
        miss, rest = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        value += 100.0 * miss * miss + rest * rest
        gradient[i] += -400.0 * x[i] * miss - 2.0 * rest
        gradient[i + 1] += 200.0 * miss
    return value


def valued(loop: Callable[..., Any], inputs: Any, part: Array | None, outs: Any) -> Call:
    """A call of the loop for value and gradients, its value of the inputs' dtype."""
    real = inputs[0].dtype.type
    scratch = () if part is None else (part,)
    return lambda: (real(loop(*inputs, *scratch, *outs)), outs)


def filled(loop: Callable[..., Any], inputs: Any, scratch: Any, out: Array) -> Call:
    def call() -> Array:
        loop(*inputs, *scratch, out)
        return out

    return call


def like(*arrays: Array) -> tuple[Array, ...]:
    return tuple(np.empty_like(a) for a in arrays)


def make_layer_norm_grad(x: Array, gain: Array, bias: Array, c: Array) -> Call:
    part = np.empty(min(64, len(x)), x.dtype)
    dx, gains, biases = np.empty_like(x), np.empty((len(part), len(gain)), x.dtype), np.empty((len(part), len(gain)), x.dtype)
    real = x.dtype.type

    def call() -> Any:
        value = layer_norm_grad(x, gain, bias, c, part, dx, gains, biases)
        return real(value), (dx, gains.sum(axis=0), biases.sum(axis=0))

    return call


def make_logreg_grad(w: Array, x: Array, y: Array) -> Call:
    part = np.empty(min(64, len(x)), x.dtype)
    parts = np.empty((len(part), len(w)), x.dtype)
    real = x.dtype.type

    def call() -> Any:
        value = logreg_grad(w, x, y, part, parts)
        return real(value), (parts.sum(axis=0) / real(len(x)),)

    return call


def make_embed_grad(table: Array, position: Array, c: Array) -> Call:
    return valued(embed_grad, (table, position, c), np.empty(2, table.dtype), like(table))


def scalar(loop: Callable[..., Any], inputs: Any, *scratch: Array) -> Call:
    real = inputs[0].dtype.type
    return lambda: real(loop(*inputs, *scratch))


LOOPS: dict[tuple[str, str], Callable[..., Call]] = {
    ("black_scholes", "fwd"): lambda *a: scalar(black_scholes_fwd, a),
    ("black_scholes", "grad"): lambda *a: valued(black_scholes_grad, a, None, like(*a)),
    ("chain", "map"): lambda x, y: filled(chain_map, (x, y), (), np.empty_like(x)),
    ("chain", "fwd"): lambda *a: scalar(chain_fwd, a),
    ("chain", "grad"): lambda *a: valued(chain_grad, a, None, like(*a)),
    ("xent", "fwd"): lambda z, y: scalar(xent_fwd, (z, y), np.empty(len(z), z.dtype)),
    ("xent", "grad"): lambda z, y: valued(xent_grad, (z, y), np.empty(len(z), z.dtype), like(z)),
    ("layernorm", "fwd"): lambda x, gain, bias, c: filled(layer_norm_fwd, (x, gain, bias), (), np.empty_like(x)),
    ("layernorm", "grad"): make_layer_norm_grad,
    ("logreg", "fwd"): lambda w, x, y: scalar(logreg_fwd, (w, x, y), np.empty(min(64, len(x)), x.dtype)),
    ("logreg", "grad"): make_logreg_grad,
    ("index", "embed_fwd"): lambda table, place, c: filled(embed_fwd, (table, place), (), np.empty_like(c)),
    ("index", "embed_grad"): make_embed_grad,
    ("index", "cumsum_fwd"): lambda x, c: filled(cumsum_fwd, (x,), (np.empty(64, x.dtype),), np.empty_like(x)),
    ("index", "cumsum_grad"): lambda x, c: valued(cumsum_grad, (x, c), None, like(x)),
    ("small", "rosen_grad"): lambda x: lambda: rosenbrock(x),
    **numba_pairs.LOOPS,
    **numba_stencil.LOOPS,
    **numba_recurrence.LOOPS,
}
KEPT: dict[tuple[str, str], Callable[..., Call]] = {
    ("small", "rosen_grad"): lambda x: valued(rosenbrock_into, (x,), None, like(x)),
}
"""The same into an array made once, where LOOPS makes a new one."""
