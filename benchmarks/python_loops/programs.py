"""Programs with Python's own loops and branches, which Numba compiles as they stand, and what they are called with.

Each returns a number, whose derivative is by the arguments ``argnums``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program. ``arguments(rng)`` returns what it is called with; ``argnums`` are the arguments by which it is differentiated;
    ``is_element_loop``: it consists of loops over the elements of arrays; ``step``: the relative step of central differences."""

    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    argnums: tuple[int, ...] = ()
    is_element_loop: bool = False
    step: float = 1e-6

    @property
    def name(self) -> str:
        return self.function.__name__


def lorenz(x, y, z, steps, h):
    """Runge-Kutta steps of the Lorenz system."""
    for _ in range(steps):
        k1x, k1y, k1z = 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z
        a, b, c = x + h / 2 * k1x, y + h / 2 * k1y, z + h / 2 * k1z
        k2x, k2y, k2z = 10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c
        a, b, c = x + h / 2 * k2x, y + h / 2 * k2y, z + h / 2 * k2z
        k3x, k3y, k3z = 10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c
        a, b, c = x + h * k3x, y + h * k3y, z + h * k3z
        k4x, k4y, k4z = 10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c
        x = x + h / 6 * (k1x + 2 * k2x + 2 * k3x + k4x)
        y = y + h / 6 * (k1y + 2 * k2y + 2 * k3y + k4y)
        z = z + h / 6 * (k1z + 2 * k2z + 2 * k3z + k4z)
    return x + y + z


def garch(r, omega, alpha, beta):
    """Log likelihood of GARCH(1, 1), the variance bounded below."""
    h = omega / (1 - alpha - beta)
    likelihood = 0.0
    for t in range(len(r)):
        likelihood = likelihood - 0.5 * (np.log(h) + r[t] * r[t] / h)
        h = omega + alpha * r[t] * r[t] + beta * h
        if h < 1e-8:
            h = 1e-8
    return likelihood


def seidel(u, sweeps):
    """Gauss-Seidel sweeps over a line."""
    u = u.copy()
    for _ in range(sweeps):
        for i in range(1, u.shape[0] - 1):
            u[i] = 0.5 * (u[i - 1] + u[i + 1])
    return u.sum()


def seidel_2d(u, f, sweeps):
    """Gauss-Seidel sweeps over a grid."""
    u = u.copy()
    for _ in range(sweeps):
        for i in range(1, u.shape[0] - 1):
            for j in range(1, u.shape[1] - 1):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - f[i, j])
    return u.sum()


def mandelbrot(re, im, most):
    """Iterations until a point escapes."""
    x = 0.0
    y = 0.0
    k = 0
    while k < most and x * x + y * y <= 4.0:
        x, y = x * x - y * y + re, 2 * x * y + im
        k += 1
    return k + x


def bisection(a, low, high, tolerance):
    """Cube root by bisection; the last step by Newton makes it differentiable."""
    while high - low > tolerance:
        middle = 0.5 * (low + high)
        if middle * middle * middle - a > 0:
            high = middle
        else:
            low = middle
    return low - (low * low * low - a) / (3 * low * low)


def edit_distance(x, y, cost):
    """Levenshtein distance with a cost of replacement."""
    n = x.shape[0]
    m = y.shape[0]
    d = np.zeros((n + 1, m + 1))
    for i in range(1, n + 1):
        d[i, 0] = i
    for j in range(1, m + 1):
        d[0, j] = j
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            c = 0.0 if x[i - 1] == y[j - 1] else cost
            best = d[i - 1, j] + 1
            if d[i, j - 1] + 1 < best:
                best = d[i, j - 1] + 1
            if d[i - 1, j - 1] + c < best:
                best = d[i - 1, j - 1] + c
            d[i, j] = best
    return d[n, m]


def floyd_warshall(distances):
    """The sum of all shortest paths."""
    d = distances.copy()
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d.sum()


def cholesky(a):
    """Logarithm of the determinant by a Cholesky factorisation, element by element."""
    n = a.shape[0]
    low = np.zeros((n, n))
    total = 0.0
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= low[i, k] * low[j, k]
            if i == j:
                low[i, j] = np.sqrt(s)
                total += np.log(s)
            else:
                low[i, j] = s / low[j, j]
    return total


def cholesky_rows(a):
    """The same by products of rows."""
    n = a.shape[0]
    low = np.zeros((n, n))
    total = 0.0
    for i in range(n):
        for j in range(i):
            low[i, j] = (a[i, j] - np.dot(low[i, :j], low[j, :j])) / low[j, j]
        s = a[i, i] - np.dot(low[i, :i], low[i, :i])
        low[i, i] = np.sqrt(s)
        total += np.log(s)
    return total


def iir(x, b0, b1, b2, a1, a2):
    """The energy of what a biquad filter returns."""
    y = np.zeros(x.shape[0])
    for n in range(2, x.shape[0]):
        y[n] = b0 * x[n] + b1 * x[n - 1] + b2 * x[n - 2] - a1 * y[n - 1] - a2 * y[n - 2]
    return (y * y).sum()


def kalman(z, transition, observation, q, r):
    """Log likelihood of observations under a linear model with two states."""
    x = np.zeros(2)
    p = np.eye(2)
    total = 0.0
    for t in range(z.shape[0]):
        x = transition @ x
        p = transition @ p @ transition.T + q * np.eye(2)
        s = observation @ p @ observation + r
        residual = z[t] - observation @ x
        gain = p @ observation / s
        x = x + gain * residual
        p = p - np.outer(gain, observation @ p)
        total -= 0.5 * (np.log(s) + residual * residual / s)
    return total


def thomas(lower, diagonal, upper, right):
    """The sum of the solution of a tridiagonal system."""
    n = diagonal.shape[0]
    c = np.zeros(n)
    d = np.zeros(n)
    c[0] = upper[0] / diagonal[0]
    d[0] = right[0] / diagonal[0]
    for i in range(1, n):
        w = diagonal[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / w
        d[i] = (right[i] - lower[i] * d[i - 1]) / w
    for i in range(n - 2, -1, -1):
        d[i] = d[i] - c[i] * d[i + 1]
    return d.sum()


def binomial_tree(spot, strike, rate, sigma, years, steps):
    """An American put on a binomial tree, element by element."""
    dt = years / steps
    up = np.exp(sigma * np.sqrt(dt))
    discount = np.exp(-rate * dt)
    p = (np.exp(rate * dt) - 1 / up) / (up - 1 / up)
    v = np.zeros(steps + 1)
    for j in range(steps + 1):
        v[j] = max(strike - spot * up ** (2.0 * j - steps), 0.0)
    for i in range(steps - 1, -1, -1):
        for j in range(i + 1):
            held = discount * (p * v[j + 1] + (1 - p) * v[j])
            now = strike - spot * up ** (2.0 * j - i)
            v[j] = now if now > held else held
    return v[0]


def viterbi(start, transition, emission, observed):
    """Log probability of the most probable path."""
    n = start.shape[0]
    score = start + emission[:, observed[0]]
    for t in range(1, observed.shape[0]):
        after = np.zeros(n)
        for j in range(n):
            best = score[0] + transition[0, j]
            for i in range(1, n):
                s = score[i] + transition[i, j]
                if s > best:
                    best = s
            after[j] = best + emission[j, observed[t]]
        score = after
    return score.max()


def hmm_forward(start, transition, emission, observed):
    """Log likelihood by the scaled forward algorithm."""
    n = start.shape[0]
    alpha = start * emission[:, observed[0]]
    total = 0.0
    for t in range(1, observed.shape[0]):
        after = np.zeros(n)
        for j in range(n):
            s = 0.0
            for i in range(n):
                s += alpha[i] * transition[i, j]
            after[j] = s * emission[j, observed[t]]
        c = after.sum()
        total += np.log(c)
        alpha = after / c
    return total


def nbody(x, v, mass, steps, dt):
    """Kinetic energy after steps of bodies that attract each other."""
    x = x.copy()
    v = v.copy()
    n = x.shape[0]
    for _ in range(steps):
        for i in range(n):
            for j in range(n):
                if i != j:
                    dx = x[j, 0] - x[i, 0]
                    dy = x[j, 1] - x[i, 1]
                    dz = x[j, 2] - x[i, 2]
                    r = dx * dx + dy * dy + dz * dz + 0.01
                    w = dt * mass[j] / (r * np.sqrt(r))
                    v[i, 0] += w * dx
                    v[i, 1] += w * dy
                    v[i, 2] += w * dz
        for i in range(n):
            for k in range(3):
                x[i, k] += dt * v[i, k]
    energy = 0.0
    for i in range(n):
        energy += 0.5 * mass[i] * (v[i, 0] ** 2 + v[i, 1] ** 2 + v[i, 2] ** 2)
    return energy


def sparse_product(data, columns, starts, x):
    """The energy of the product of a matrix by compressed rows and a vector."""
    energy = 0.0
    for i in range(starts.shape[0] - 1):
        s = 0.0
        for k in range(starts[i], starts[i + 1]):
            s += data[k] * x[columns[k]]
        energy += s * s
    return energy


def weighted_histogram(bins, weights, n):
    """The energy of sums of weights by bin."""
    h = np.zeros(n)
    for i in range(bins.shape[0]):
        h[bins[i]] += weights[i]
    return (h * h).sum()


def scattered(y, at, x):
    """The energy of an array to which values are added at indices."""
    y = y.copy()
    for i in range(at.shape[0]):
        y[at[i]] += x[i]
    return (y * y).sum()


def knapsack(weights, values, capacity):
    """The largest value that fits a capacity."""
    best = np.zeros(capacity + 1)
    for i in range(weights.shape[0]):
        for c in range(capacity, weights[i] - 1, -1):
            t = best[c - weights[i]] + values[i]
            if t > best[c]:
                best[c] = t
    return best[capacity]


def insertion_sort(x):
    """A weighted sum of sorted numbers."""
    x = x.copy()
    for i in range(1, x.shape[0]):
        v = x[i]
        j = i - 1
        while j >= 0 and x[j] > v:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = v
    s = 0.0
    for i in range(x.shape[0]):
        s += i * x[i]
    return s


def binned(x, weights, n):
    """The energy of a histogram of weights by value."""
    h = np.zeros(n)
    for i in range(len(x)):
        h[int(x[i] * n)] += weights[i]
    return (h * h).sum()


def counted(labels, weights):
    """The energy of sums of weights by label; the labels say how many there are."""
    h = np.zeros(labels.max() + 1)
    for i in range(len(labels)):
        h[labels[i]] += weights[i]
    return (h * h).sum()


def sparse_in_place(data, columns, starts, x):
    """The energy of a product by compressed rows, which is summed in the result."""
    y = np.zeros(starts.shape[0] - 1)
    for i in range(y.shape[0]):
        for k in range(starts[i], starts[i + 1]):
            y[i] += data[k] * x[columns[k]]
    return (y * y).sum()


def binary_search(a, queries, weights):
    """The sum of weights at positions in a sorted array."""
    s = 0.0
    for i in range(len(queries)):
        low = 0
        high = len(a)
        while low < high:
            middle = (low + high) // 2
            if a[middle] < queries[i]:
                low = middle + 1
            else:
                high = middle
        s += weights[low]
    return s


def interpolation(x, at, values):
    """The sum of values between points, which a search finds."""
    s = 0.0
    for v in x:
        k = min(max(np.searchsorted(at, v), 1), len(at) - 1)
        w = (v - at[k - 1]) / (at[k] - at[k - 1])
        s += (1 - w) * values[k - 1] + w * values[k]
    return s


def sieve(weights):
    """The sum of weights at prime numbers."""
    n = len(weights)
    is_prime = np.ones(n, np.bool_)
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            for j in range(i * i, n, i):
                is_prime[j] = False
    s = 0.0
    for i in range(2, n):
        if is_prime[i]:
            s += weights[i]
    return s


def patience(x):
    """The sum of the piles' tops of patience sorting."""
    tops = np.zeros(len(x))
    piles = 0
    for v in x:
        low = 0
        high = piles
        while low < high:
            middle = (low + high) // 2
            if tops[middle] < v:
                low = middle + 1
            else:
                high = middle
        tops[low] = v
        if low == piles:
            piles += 1
    return tops.sum()


def window_means(x, k):
    """The energy of means of windows."""
    y = np.zeros(len(x) - k + 1)
    for i in range(len(y)):
        y[i] = x[i : i + k].mean()
    return (y * y).sum()


def weighted_digits(numbers, weights):
    """The sum of weights of all digits of numbers."""
    s = 0.0
    for i in range(len(numbers)):
        n = numbers[i]
        while n > 0:
            s += weights[n % 10]
            n //= 10
    return s


def trial_division(weights):
    """The sum of weights at prime numbers, by trial division."""
    s = 0.0
    for n in range(2, len(weights)):
        d = 2
        is_prime = True
        while d * d <= n:
            if n % d == 0:
                is_prime = False
                break
            d += 1
        if is_prime:
            s += weights[n]
    return s


def congruential(seed, n, a):
    """An integral by the numbers of a linear congruential generator."""
    state = seed
    s = 0.0
    for _ in range(n):
        state = (1103515245 * state + 12345) % 2147483648
        x = state / 2147483648
        s += 1 / (a + x * x)
    return s / n


def repeated(x, k):
    """The energy of elements that are repeated, each scaled by the elements before it."""
    y = np.zeros(len(x) * k)
    total = 1.0
    for i in range(len(x)):
        y[i * k : (i + 1) * k] = x[i] / total
        total += x[i]
    return (y * y).sum()


def heap_sort(x):
    """A weighted sum of numbers sorted by a heap."""
    x = x.copy()
    n = len(x)
    for start in range(2 * n - 2, -1, -1):
        root = start - n + 1
        end = n
        if root <= 0 and start < n:
            x[0], x[start] = x[start], x[0]
            root = 0
            end = start
        while True:
            child = 2 * root + 1
            if child >= end:
                break
            if child + 1 < end and x[child] < x[child + 1]:
                child += 1
            if x[root] >= x[child]:
                break
            x[root], x[child] = x[child], x[root]
            root = child
    s = 0.0
    for i in range(n):
        s += i * x[i]
    return s


def random_walk(transition, weights, draws):
    """The sum of weights of the states of a Markov chain with four states."""
    cumulated = np.zeros((4, 4))
    for i in range(4):
        s = 0.0
        for j in range(4):
            s += transition[i, j]
            cumulated[i, j] = s
    state = 0
    total = 0.0
    for v in draws:
        k = 0
        while k < 3 and cumulated[state, k] < v:
            k += 1
        state = k
        total += weights[state]
    return total


def positive_definite(rng, n):
    m = rng.normal(size=(n, n))
    return (m @ m.T + n * np.eye(n),)


def probabilities(rng, *shape):
    p = rng.uniform(0.2, 1.0, shape)
    return p / p.sum(axis=-1, keepdims=True)


def hidden(rng, n, symbols, steps):
    return probabilities(rng, n), probabilities(rng, n, n), probabilities(rng, n, symbols), rng.integers(0, symbols, steps)


def log_hidden(rng, n, symbols, steps):
    *p, observed = hidden(rng, n, symbols, steps)
    return (*map(np.log, p), observed)


def tracked(rng):
    return rng.normal(size=1000), np.array([[1.0, 0.1], [0.0, 0.98]]), np.array([1.0, 0.2]), 0.01, 0.5


def tridiagonal(rng):
    n = 5000
    return rng.uniform(-1, 1, n), rng.uniform(3, 4, n), rng.uniform(-1, 1, n), rng.normal(size=n)


def sparse(rng):
    return rng.normal(size=2400), rng.integers(0, 300, 2400), np.arange(0, 2401, 8), rng.normal(size=300)


def searched(rng):
    return np.sort(rng.random(1000)), rng.random(300), rng.random(1001)


def interpolated(rng):
    return rng.random(2000), np.linspace(0, 1, 33), rng.random(33)


def bodies(rng):
    return rng.normal(size=(16, 3)), 0.1 * rng.normal(size=(16, 3)), rng.uniform(0.5, 1, 16), 20, 0.01


PROGRAMS = (
    Program(function=lorenz, arguments=lambda rng: (1.0, 1.0, 1.0, 1000, 0.001), argnums=(0, 1, 2)),
    Program(function=garch, arguments=lambda rng: (rng.normal(size=5000) * 0.1, 1e-5, 0.1, 0.85), argnums=(1, 2, 3)),
    Program(function=seidel, arguments=lambda rng: (rng.random(200), 200), argnums=(0,), is_element_loop=True),
    Program(function=seidel_2d, arguments=lambda rng: (rng.random((40, 40)), rng.random((40, 40)), 30), argnums=(0, 1),
            is_element_loop=True),
    Program(function=mandelbrot, arguments=lambda rng: (-0.1, 0.65, 5000), argnums=(0, 1)),
    Program(function=bisection, arguments=lambda rng: (2.0, 0.0, 2.0, 1e-14), argnums=(0,)),
    Program(function=edit_distance, arguments=lambda rng: (rng.integers(0, 4, 150), rng.integers(0, 4, 150), 1.3), argnums=(2,),
            is_element_loop=True),
    Program(function=floyd_warshall, arguments=lambda rng: (rng.uniform(1, 9, (40, 40)),), argnums=(0,), is_element_loop=True),
    Program(function=cholesky, arguments=lambda rng: positive_definite(rng, 50), argnums=(0,), is_element_loop=True),
    Program(function=cholesky_rows, arguments=lambda rng: positive_definite(rng, 50), argnums=(0,)),
    Program(function=iir, arguments=lambda rng: (rng.normal(size=5000), 0.2, 0.3, 0.2, -0.5, 0.2), argnums=(0, 1, 2, 3, 4, 5),
            is_element_loop=True),
    Program(function=kalman, arguments=tracked, argnums=(1, 2, 3, 4)),
    Program(function=thomas, arguments=tridiagonal, argnums=(0, 1, 2, 3), is_element_loop=True),
    Program(function=binomial_tree, arguments=lambda rng: (100.0, 105.0, 0.05, 0.2, 1.0, 150), argnums=(0, 1, 2, 3),
            is_element_loop=True),
    Program(function=viterbi, arguments=lambda rng: log_hidden(rng, 8, 6, 300), argnums=(0, 1, 2), is_element_loop=True),
    Program(function=hmm_forward, arguments=lambda rng: hidden(rng, 8, 6, 300), argnums=(0, 1, 2), is_element_loop=True),
    Program(function=nbody, arguments=bodies, argnums=(0, 1, 2), is_element_loop=True),
    Program(function=sparse_product, arguments=sparse, argnums=(0, 3), is_element_loop=True),
    Program(function=weighted_histogram, arguments=lambda rng: (rng.integers(0, 64, 5000), rng.random(5000), 64), argnums=(1,),
            is_element_loop=True),
    Program(function=scattered, arguments=lambda rng: (rng.random(300), rng.integers(0, 300, 3000), rng.random(3000)),
            argnums=(0, 2), is_element_loop=True),
    Program(function=knapsack, arguments=lambda rng: (rng.integers(1, 30, 40), rng.random(40), 400), argnums=(1,),
            is_element_loop=True),
    Program(function=insertion_sort, arguments=lambda rng: (rng.random(200),), argnums=(0,), is_element_loop=True),
    Program(function=binned, arguments=lambda rng: (rng.random(5000), rng.random(5000), 64), argnums=(1,), is_element_loop=True),
    Program(function=counted, arguments=lambda rng: (rng.integers(0, 64, 5000), rng.random(5000)), argnums=(1,),
            is_element_loop=True),
    Program(function=sparse_in_place, arguments=sparse, argnums=(0, 3), is_element_loop=True),
    Program(function=binary_search, arguments=searched, argnums=(2,), is_element_loop=True),
    Program(function=interpolation, arguments=interpolated, argnums=(2,), is_element_loop=True),
    Program(function=sieve, arguments=lambda rng: (rng.random(5000),), argnums=(0,), is_element_loop=True),
    Program(function=patience, arguments=lambda rng: (rng.random(500),), argnums=(0,), is_element_loop=True),
    Program(function=window_means, arguments=lambda rng: (rng.random(2000), 10), argnums=(0,)),
    Program(function=weighted_digits, arguments=lambda rng: (rng.integers(1, 10**9, 500), rng.random(10)), argnums=(1,),
            is_element_loop=True),
    Program(function=trial_division, arguments=lambda rng: (rng.random(2000),), argnums=(0,), is_element_loop=True),
    Program(function=congruential, arguments=lambda rng: (12345, 5000, 1.5), argnums=(2,)),
    Program(function=repeated, arguments=lambda rng: (rng.random(500), 8), argnums=(0,), is_element_loop=True),
    Program(function=heap_sort, arguments=lambda rng: (rng.random(200),), argnums=(0,), is_element_loop=True),
    Program(function=random_walk, arguments=lambda rng: (probabilities(rng, 4, 4), rng.random(4), rng.random(2000)),
            argnums=(1,), is_element_loop=True),
)  # fmt: skip
