"""Roots and minima of functions of one variable: Kepler, Newton, bisection, secant, Brent, Halley, golden section."""

import math

import numpy as np

from tests.corpus.case import Case


def kepler(mean_anomaly, eccentricity):
    """Eccentric anomaly by Newton's method."""
    E = mean_anomaly if eccentricity < 0.8 else np.pi
    for _ in range(50):
        delta = (E - eccentricity * np.sin(E) - mean_anomaly) / (1 - eccentricity * np.cos(E))
        E = E - delta
        if abs(delta) < 1e-12:
            break
    return E


def kepler_orbit(times, period, ecc):
    """Radius and true anomaly of an orbit at many times."""
    r = np.zeros(len(times))
    nu = np.zeros(len(times))
    for i, t in enumerate(times):
        M = 2 * np.pi * t / period
        E = M
        err = 1.0
        n_iter = 0
        while err > 1e-13 and n_iter < 30:
            E_new = E - (E - ecc * np.sin(E) - M) / (1.0 - ecc * np.cos(E))
            err = abs(E_new - E)
            E = E_new
            n_iter += 1
        r[i] = 1 - ecc * np.cos(E)
        nu[i] = 2 * np.arctan2(np.sqrt(1 + ecc) * np.sin(E / 2), np.sqrt(1 - ecc) * np.cos(E / 2))
    return r, nu


def lambert_w(x, tol=1e-14, max_iter=60):
    """Principal branch of Lambert's W by Halley's method."""
    if x < -1 / math.e:
        raise ValueError("x is below -1/e")
    if x > 3:
        w = np.log(x) - np.log(np.log(x))
    else:
        w = x / (1 + x) if x > 0 else x
    for _ in range(max_iter):
        ew = np.exp(w)
        f = w * ew - x
        step = f / (ew * (w + 1) - (w + 2) * f / (2 * w + 2))
        w -= step
        if abs(step) <= tol * (1 + abs(w)):
            return w
    return w


def cube_root_newton(values, n):
    """Cube roots by Newton from a poor start, at most n steps."""
    out = []
    for a in values:
        x = 1.0
        steps = 0
        while abs(x * x * x - a) > 1e-13 * abs(a):
            x = (2 * x + a / (x * x)) / 3
            steps += 1
            if steps >= n:
                break
        out.append(x)
    return np.array(out)


def bisect(coefficients, lo, hi, tol):
    """Root of a cubic by bisection, with the number of halvings."""
    def f(x):
        c0, c1, c2, c3 = coefficients
        return c0 + x * (c1 + x * (c2 + x * c3))

    flo, fhi = f(lo), f(hi)
    if flo * fhi > 0:
        raise ValueError("no change of sign")
    count = 0
    while hi - lo > tol:
        mid = 0.5 * (lo + hi)
        fm = f(mid)
        if fm == 0:
            return mid, count
        if flo * fm < 0:
            hi, fhi = mid, fm
        else:
            lo, flo = mid, fm
        count += 1
    return 0.5 * (lo + hi), count


def secant(a, b, max_iter):
    """Root of exp(-a x) - b x, and the number of steps."""
    f = lambda x: np.exp(-a * x) - b * x
    x0, x1 = 0.0, 1.0
    f0, f1 = f(x0), f(x1)
    for k in range(max_iter):
        if abs(f1) < 1e-14 or f1 == f0:
            break
        x0, x1 = x1, x1 - f1 * (x1 - x0) / (f1 - f0)
        f0, f1 = f1, f(x1)
    else:
        k = max_iter
    return x1, k


def illinois(target, n):
    """Regula falsi with the Illinois correction for x + sin(x)/2 = target."""
    a, b = 0.0, 10.0
    fa, fb = a + np.sin(a) / 2 - target, b + np.sin(b) / 2 - target
    side = 0
    x = a
    for i in range(n):
        x = (fa * b - fb * a) / (fa - fb)
        fx = x + np.sin(x) / 2 - target
        if abs(fx) < 1e-13:
            break
        if fx * fb > 0:
            b, fb = x, fx
            if side == -1:
                fa *= 0.5
            side = -1
        elif fa * fx > 0:
            a, fa = x, fx
            if side == 1:
                fb *= 0.5
            side = 1
        else:
            break
    return x


def brent_root(p, maxiter):
    """Brent's method for x**3 - p[0] x - p[1] on [0, 4], after Numerical Recipes."""
    def f(x):
        return x**3 - p[0] * x - p[1]

    a, b = 0.0, 4.0
    fa, fb = f(a), f(b)
    assert fa * fb < 0
    c, fc = b, fb
    d = e = b - a
    for iteration in range(maxiter):
        if fb * fc > 0:
            c, fc = a, fa
            d = e = b - a
        if abs(fc) < abs(fb):
            a, b, c = b, c, b
            fa, fb, fc = fb, fc, fb
        tol1 = 2e-15 * abs(b) + 1e-14
        xm = 0.5 * (c - b)
        if abs(xm) <= tol1 or fb == 0.0:
            return b
        if abs(e) >= tol1 and abs(fa) > abs(fb):
            s = fb / fa
            if a == c:
                P = 2.0 * xm * s
                Q = 1.0 - s
            else:
                Q = fa / fc
                r = fb / fc
                P = s * (2.0 * xm * Q * (Q - r) - (b - a) * (r - 1.0))
                Q = (Q - 1.0) * (r - 1.0) * (s - 1.0)
            if P > 0:
                Q = -Q
            P = abs(P)
            if 2.0 * P < min(3.0 * xm * Q - abs(tol1 * Q), abs(e * Q)):
                e = d
                d = P / Q
            else:
                d = xm
                e = d
        else:
            d = xm
            e = d
        a, fa = b, fb
        if abs(d) > tol1:
            b = b + d
        elif xm > 0:
            b = b + tol1
        else:
            b = b - tol1
        fb = f(b)
    raise ValueError("no convergence")


def golden_section(weights, a, b, tol=1e-6):
    """Minimum of a weighted sum of squares of distances on [a, b], polished by one parabola."""
    invphi = (math.sqrt(5) - 1) / 2

    def cost(x):
        total = 0.0
        for k in range(len(weights)):
            total += weights[k] * (x - k) ** 2
        return total

    c, d = b - invphi * (b - a), a + invphi * (b - a)
    fc, fd = cost(c), cost(d)
    while abs(b - a) > tol:
        if fc < fd:
            b, d, fd = d, c, fc
            c = b - invphi * (b - a)
            fc = cost(c)
        else:
            a, c, fc = c, d, fd
            d = a + invphi * (b - a)
            fd = cost(d)
    return (a + b) / 2


def steffensen(x0, k):
    """Fixed point of cos(k x) with Aitken's acceleration."""
    x = x0
    while True:
        y = np.cos(k * x)
        z = np.cos(k * y)
        denominator = z - 2 * y + x
        if abs(denominator) < 1e-9:
            break
        x_next = x - (y - x) ** 2 / denominator
        if abs(x_next - x) < 1e-9:
            x = np.cos(k * x_next)
            break
        x = x_next
    return x


def colebrook(reynolds, roughness):
    """Darcy's friction factor: laminar, or Colebrook by fixed-point iteration."""
    out = np.empty_like(reynolds)
    for i in range(reynolds.size):
        Re = reynolds[i]
        if Re < 2300.0:
            out[i] = 64.0 / Re
            continue
        x = 6.0
        for _ in range(100):
            x_old = x
            x = -2.0 * np.log10(roughness / 3.7 + 2.51 * x / Re)
            if np.abs(x - x_old) < 1e-12:
                break
        out[i] = 1.0 / x**2
    return out


CASES = [
    Case(function=kepler, seeds=6, arguments=lambda rng, n: (rng.uniform(0.5, 2.5), rng.choice([0.3, 0.9])), argnums=(0, 1)),
    Case(function=kepler_orbit, arguments=lambda rng, n: (rng.uniform(0.05, 0.45, n), 1.0, rng.uniform(0.1, 0.6)),
         size=5, argnums=(0, 1, 2)),
    Case(function=lambert_w, seeds=6,
         arguments=lambda rng, n: (rng.choice([0.7, 5.0, -0.2]) * rng.uniform(0.9, 1.1),), argnums=(0,),
         failing=lambda rng: (-1.0,)),
    Case(function=cube_root_newton, arguments=lambda rng, n: (rng.uniform(2.0, 9.0, max(n // 10, 4)), 20), argnums=(0,)),
    Case(function=bisect, arguments=lambda rng, n: (np.array([-rng.uniform(1, 3), 1.0, 0.5, 1.0]), 0.0, 2.0, 1e-9),
         kinks="the result is a multiple of a power of two", failing=lambda rng: (np.ones(4), 0.0, 2.0, 1e-9)),
    Case(function=secant, arguments=lambda rng, n: (rng.uniform(0.5, 1.5), rng.uniform(0.5, 2.0), n), argnums=(0, 1)),
    Case(function=illinois, seeds=6, arguments=lambda rng, n: (rng.uniform(1.0, 6.0), n), size=30, argnums=(0,)),
    Case(function=brent_root, seeds=6, arguments=lambda rng, n: (rng.uniform(0.5, 2.0, 2), n), size=60, argnums=(0,),
         failing=lambda rng: (np.array([1.0, -2.0]), 60)),
    Case(function=golden_section, arguments=lambda rng, n: (rng.uniform(0.5, 2.0, 4), 0.0, rng.uniform(3.0, 4.0), 1e-4),
         kinks="the result is a node of a grid"),
    Case(function=steffensen, arguments=lambda rng, n: (rng.uniform(0.2, 0.5), rng.uniform(0.8, 1.2)), argnums=(1,)),
    Case(function=colebrook, arguments=lambda rng, n: (10 ** rng.uniform(2.5, 6.0, n), 1e-4), size=5, argnums=(0, 1)),
]  # fmt: skip
