"""Series, recurrences, continued fractions and integer loops."""

import math

import numpy as np

from tests.corpus.case import Case


def horner(coefficients, x):
    """Polynomial and derivative, the highest power first."""
    p, dp = 0.0, 0.0
    for c in coefficients:
        dp = dp * x + p
        p = p * x + c
    return p, dp


def continued_fraction(x, n):
    """Tangent by a continued fraction from the bottom."""
    value = 2 * n - 1.0
    for k in reversed(range(1, n)):
        value = (2 * k - 1) - x * x / value
    return x / value


def lentz(a, x, tol=1e-14):
    """Upper incomplete gamma function over exp(-x) x**a by Lentz's method."""
    tiny = 1e-300
    b = x + 1.0 - a
    c = 1.0 / tiny
    d = 1.0 / b
    h = d
    for i in range(1, 200):
        an = -i * (i - a)
        b += 2.0
        d = an * d + b
        if abs(d) < tiny:
            d = tiny
        c = b + an / c
        if abs(c) < tiny:
            c = tiny
        d = 1.0 / d
        delta = d * c
        h *= delta
        if abs(delta - 1.0) < tol:
            break
    return h


def agm(a, b):
    """Arithmetic-geometric mean."""
    while abs(a - b) > 1e-14 * a:
        a, b = (a + b) / 2, np.sqrt(a * b)
    return a


def ellipk(m):
    return np.pi / (2 * agm(1.0, np.sqrt(1 - m)))


def pendulum_periods(amplitudes, length):
    """Exact periods of a pendulum by elliptic integrals."""
    return np.array([4 * math.sqrt(length / 9.81) * ellipk(np.sin(a / 2) ** 2) for a in amplitudes])


def exp_series(x, tol):
    """Exponential by its series after halving the argument."""
    halvings = 0
    y = x
    while abs(y) > 1:
        y = y / 2
        halvings += 1
    term, total, k = 1.0, 1.0, 0
    while abs(term) > tol * abs(total):
        k += 1
        term *= y / k
        total += term
    for _ in range(halvings):
        total *= total
    return total, k


def bessel_j(n, x):
    """J_0 ... J_n by Miller's downward recurrence."""
    start = 2 * ((n + 16) // 2)
    values = [0.0] * (start + 2)
    values[start] = 1e-30
    for k in range(start, 0, -1):
        values[k - 1] = 2 * k / x * values[k] - values[k + 1]
    norm = values[0]
    for k in range(2, start + 1, 2):
        norm += 2 * values[k]
    return np.array(values[:n + 1]) / norm


def legendre(n, x):
    """P_n at many points by the three-term recurrence."""
    if n == 0:
        return np.ones_like(x)
    p_prev, p = np.ones_like(x), x
    for k in range(1, n):
        p_prev, p = p, ((2 * k + 1) * x * p - k * p_prev) / (k + 1)
    return p


def gauss_legendre(n):
    """Nodes and weights by Newton's method."""
    x = np.zeros(n)
    w = np.zeros(n)
    for i in range((n + 1) // 2):
        z = np.cos(np.pi * (i + 0.75) / (n + 0.5))
        while True:
            p1, p2 = 1.0, 0.0
            for j in range(n):
                p1, p2 = ((2 * j + 1) * z * p1 - j * p2) / (j + 1), p1
            pp = n * (z * p1 - p2) / (z * z - 1)
            z1 = z
            z = z1 - p1 / pp
            if abs(z - z1) < 1e-14:
                break
        x[i], x[n - 1 - i] = -z, z
        w[i] = w[n - 1 - i] = 2 / ((1 - z * z) * pp * pp)
    return x, w


def quadrature(scale, n):
    x, w = gauss_legendre(n)
    return np.sum(w * np.exp(scale * x))


def clenshaw(c, x):
    """A Chebyshev series at one point."""
    b1 = b2 = 0.0
    for j in range(len(c) - 1, 0, -1):
        b1, b2 = 2 * x * b1 - b2 + c[j], b1
    return x * b1 - b2 + c[0]


def zeta_alternating(s, eps):
    """Riemann's zeta function by the alternating series with averaged partial sums."""
    total = 0.0
    sign = 1
    n = 1
    previous = None
    while True:
        total += sign / n**s
        sign = -sign
        n += 1
        average = total + 0.5 * sign / n**s
        if previous is not None and abs(average - previous) < eps:
            return average / (1 - 2 ** (1 - s))
        previous = average


def collatz(starts):
    """Lengths of the Collatz sequences."""
    lengths = np.zeros(len(starts), dtype=int)
    for i, n in enumerate(starts):
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        lengths[i] = steps
    return lengths


def gcd(a, b):
    """Greatest common divisor and the number of divisions."""
    count = 0
    while b:
        a, b = b, a % b
        count += 1
    return a, count


def extended_gcd(a, b):
    x0, x1, y0, y1 = 1, 0, 0, 1
    while b != 0:
        q = a // b
        a, b = b, a - q * b
        x0, x1 = x1, x0 - q * x1
        y0, y1 = y1, y0 - q * y1
    return a, x0, y0


def power_mod(base, exponent, modulus):
    """Modular power by squaring."""
    result = 1
    base %= modulus
    while exponent > 0:
        if exponent & 1:
            result = result * base % modulus
        base = base * base % modulus
        exponent >>= 1
    return result


def digit_sums(numbers):
    """Sums of decimal digits, repeated until one digit is left."""
    out = []
    for n in numbers:
        while n >= 10:
            s = 0
            while n > 0:
                s += n % 10
                n //= 10
            n = s
        out.append(n)
    return np.array(out)


def sieve(n):
    """Primes below n."""
    is_prime = np.ones(n, dtype=bool)
    is_prime[:2] = False
    i = 2
    while i * i < n:
        if is_prime[i]:
            is_prime[i * i::i] = False
        i += 1
    return is_prime.sum()


def logistic_lyapunov(r, x0, n):
    """Lyapunov exponents of the logistic map for several parameters; orbits that leave are marked."""
    exponents = np.zeros(len(r))
    for j in range(len(r)):
        x = x0
        total = 0.0
        for i in range(n):
            x = r[j] * x * (1 - x)
            if abs(x) > 10:
                total = -1.0 * n
                break
            total += np.log(abs(r[j] * (1 - 2 * x)))
        exponents[j] = total / n
    return exponents


def erf_regimes(values):
    """Error function: a series for small arguments, a continued fraction for large ones."""
    out = np.zeros(values.size)
    for i in range(values.size):
        x = values[i]
        z = x if x >= 0 else -x
        if z < 2.0:
            s = term = z
            k = 0
            while abs(term) > 1e-17 * abs(s):
                k += 1
                term = -term * z * z * (2 * k - 1) / (k * (2 * k + 1))
                s += term
            y = 2 / math.sqrt(math.pi) * s
        elif z < 6.0:
            f = 0.0
            for k in range(60, 0, -1):
                f = k / 2 / (z + f)
            y = 1 - np.exp(-z * z) / (math.sqrt(math.pi) * (z + f))
        else:
            y = 1.0
        out[i] = y if x >= 0 else -y
    return out


CASES = [
    Case(function=horner, argnums=(0, 1), arguments=lambda rng, n: (rng.normal(size=n), rng.uniform(-0.9, 0.9))),
    Case(function=continued_fraction, argnums=(0,), arguments=lambda rng, n: (rng.uniform(0.2, 1.3), n)),
    Case(function=lentz, argnums=(1,), arguments=lambda rng, n: (rng.uniform(0.5, 2.0), rng.uniform(3, 6))),
    Case(function=agm, argnums=(0, 1), arguments=lambda rng, n: (rng.uniform(1, 3), rng.uniform(0.01, 0.9))),
    Case(function=pendulum_periods, argnums=(0, 1), size=4, arguments=lambda rng, n: (rng.uniform(0.1, 2.9, n), 1.5)),
    Case(function=exp_series, seeds=6, argnums=(0,), arguments=lambda rng, n: (rng.uniform(1, 9) * rng.choice([-1, 1]), 1e-17)),
    Case(function=bessel_j, argnums=(1,), size=5, arguments=lambda rng, n: (n, rng.uniform(0.5 * n, 1.2 * n))),
    Case(function=legendre, argnums=(1,), arguments=lambda rng, n: (n, rng.uniform(-1, 1, 5))),
    Case(function=quadrature, argnums=(0,), size=5, turns=60, arguments=lambda rng, n: (rng.uniform(0.5, 2), n)),
    Case(function=clenshaw, argnums=(0, 1), arguments=lambda rng, n: (rng.normal(size=n), rng.uniform(-1, 1))),
    Case(function=zeta_alternating, argnums=(0,), arguments=lambda rng, n: (rng.uniform(2.5, 4.0), 1e-4)),
    Case(function=collatz, size=3, turns=100, arguments=lambda rng, n: (rng.integers(1, 9 if n < 10 else 9999, n),)),
    Case(function=gcd, seeds=6, arguments=lambda rng, n: (int(rng.integers(10, 900)), int(rng.integers(10, 900)))),
    Case(function=extended_gcd, arguments=lambda rng, n: tuple(rng.integers(10, 900, 2))),
    Case(function=power_mod, arguments=lambda rng, n: (rng.integers(2, 99), rng.integers(2, 99), 97)),
    Case(function=digit_sums, size=3, turns=500, arguments=lambda rng, n: (rng.integers(0, 9999, n),)),
    Case(function=sieve, size=30, arguments=lambda rng, n: (n + int(rng.integers(9)),)),
    Case(function=logistic_lyapunov, argnums=(0, 1), size=6, turns=200,
         arguments=lambda rng, n: (np.append(rng.uniform(2.5, 3.4, 3), 6.5), rng.uniform(0.2, 0.4), n)),
    Case(function=erf_regimes, argnums=(0,), size=3, turns=200,
         arguments=lambda rng, n: (np.append(rng.uniform(0.5, 3.5, n - 1) * rng.choice([-1, 1], n - 1), 7.0),)),
]  # fmt: skip
