"""Value and gradient as one hand-written loop under Numba: what a careful user writes where speed matters.

Same results as the functions of the same names in `workloads`.
"""

import math
from typing import Any

import numpy as np
from numba import njit

Array = Any


@njit
def black_scholes(spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Any:
    n = len(spot)
    d_spot, d_strike, d_years = np.empty(n), np.empty(n), np.empty(n)
    d_rate, d_sigma = np.empty(n), np.empty(n)
    value = 0.0
    for i in range(n):
        s, k, t, r, v = spot[i], strike[i], years[i], rate[i], sigma[i]
        root_t = math.sqrt(t)
        d1 = (math.log(s / k) + (r + 0.5 * v * v) * t) / (v * root_t)
        phi1 = 0.5 * (1.0 + math.erf(d1 * math.sqrt(0.5)))
        phi2 = 0.5 * (1.0 + math.erf((d1 - v * root_t) * math.sqrt(0.5)))
        discounted = math.exp(-r * t) * phi2
        vega = s * math.exp(-0.5 * d1 * d1) * root_t / math.sqrt(2.0 * math.pi)
        value += s * phi1 - k * discounted
        d_spot[i], d_strike[i] = phi1, -discounted
        d_years[i] = 0.5 * vega * v / t + r * k * discounted
        d_rate[i], d_sigma[i] = t * k * discounted, vega
    return value, (d_spot, d_strike, d_years, d_rate, d_sigma)


@njit
def chain(x: Array, y: Array) -> Any:
    n = len(x)
    dx, dy = np.empty(n), np.empty(n)
    value = 0.0
    for i in range(n):
        a, b = x[i], y[i]
        value += a * b + 0.5 * a * a * b - b * b * a
        dx[i] = b + a * b - b * b
        dy[i] = a + 0.5 * a * a - 2.0 * a * b
    return value, (dx, dy)


@njit
def fit(x: Array, y: Array, t: Array) -> Any:
    n = len(x)
    dx, dy = np.empty(n), np.empty(n)
    value = 0.0
    for i in range(n):
        a, b = x[i], y[i]
        z = math.tanh(a * b)
        decay = t[i] * math.exp(-z)
        small = math.exp(-abs(z * b))
        value += max(z * b, 0.0) + math.log1p(small) - decay * a
        share = (1.0 if z * b > 0.0 else small) / (1.0 + small)
        dz = (share * b + decay * a) * (1.0 - z * z)
        dx[i], dy[i] = (dz * b - decay) / n, (dz * a + share * z) / n
    return value / n, (dx, dy)


@njit
def rosenbrock(x: Array) -> Any:
    gradient = np.zeros(len(x))
    value = 0.0
    for i in range(len(x) - 1):
        miss, rest = x[i + 1] - x[i] * x[i], 1.0 - x[i]
        value += 100.0 * miss * miss + rest * rest
        gradient[i] += -400.0 * x[i] * miss - 2.0 * rest
        gradient[i + 1] += 200.0 * miss
    return value, (gradient,)


@njit
def recurrence(a: float, u: Array) -> float:
    h = 0.0
    for t in range(len(u)):
        h = h + a * (u[t] - h * h * h)
    return h


@njit
def recurrence_grad(a: float, u: Array) -> Any:
    n = len(u)
    values, du = np.empty(n), np.empty(n)
    h = da = 0.0
    for t in range(n):
        values[t] = h
        h = h + a * (u[t] - h * h * h)
    ct = 1.0
    for t in range(n - 1, -1, -1):
        before = values[t]
        da += ct * (u[t] - before * before * before)
        du[t] = ct * a
        ct = ct * (1.0 - 3.0 * a * before * before)
    return h, (da, du)
