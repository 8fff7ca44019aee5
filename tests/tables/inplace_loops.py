"""Loops that write: recurrences, stencils, tables, eliminations."""

from typing import Any

import numpy as np

from tests.tables.inplace import A, I, P, V, W, X, of

S = A @ A.T


@of(V)
def recurrence(x: Any) -> Any:
    y = np.zeros(6)
    y[0] = x[0]
    for i in range(1, 6):
        y[i] = 0.5 * y[i - 1] + np.sin(x[i])
    return y


@of(V)
def recurrence_in_place(x: Any) -> Any:
    for i in range(1, len(x)):
        x[i] += 0.9 * x[i - 1]


@of(V)
def fibonacci(x: Any) -> Any:
    f = np.empty(12)
    f[0], f[1] = x[0], x[1]
    for i in range(2, 12):
        f[i] = f[i - 1] + f[i - 2]
    return f


@of(V)
def heat(u: Any) -> Any:
    for _ in range(4):
        u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])


@of(A)
def heat_in_two_axes(u: Any) -> Any:
    for _ in range(3):
        v = u.copy()
        v[1:-1, 1:-1] = 0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2])
        v[0] = v[1]
        u = v
    return u


@of(A, order=1)
def gauss_seidel(u: Any) -> Any:
    for _ in range(2):
        for i in range(1, 3):
            for j in range(1, 3):
                u[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@of(V, W)
def wave_with_swapped_buffers(u: Any, v: Any) -> Any:
    old, new = u.copy(), v.copy()
    for _ in range(4):
        old[1:-1] = 2 * new[1:-1] - old[1:-1] + 0.1 * (new[2:] - 2 * new[1:-1] + new[:-2])
        old, new = new, old
    return new


@of(V)
def cumulative_sum(x: Any) -> Any:
    for i in range(1, 6):
        x[i] += x[i - 1]


@of(X, order=1)
def summed_area_table(x: Any) -> Any:
    s = np.zeros((4, 5))
    for i in range(3):
        for j in range(4):
            s[i + 1, j + 1] = x[i, j] + s[i, j + 1] + s[i + 1, j] - s[i, j]
    return s


@of(V)
def running_maximum(x: Any) -> Any:
    m = x.copy()
    for i in range(1, 6):
        m[i] = max(m[i - 1], x[i])
    return m


@of(A, V, order=1)
def gauss(a: Any, b: Any) -> Any:
    a, b = a.copy(), b[:4].copy()
    n = len(b)
    for k in range(n):
        for i in range(k + 1, n):
            f = a[i, k] / a[k, k]
            a[i, k:] -= f * a[k, k:]
            b[i] -= f * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


@of(A, V, order=1)
def gauss_jordan_of_arguments(a: Any, b: Any) -> Any:
    b = b[:4]
    for k in range(4):
        b[k] /= a[k, k]
        a[k] /= a[k, k]
        for i in range(4):
            if i != k:
                b[i] -= a[i, k] * b[k]
                a[i] -= a[i, k] * a[k]


@of(A, order=1)
def lu(a: Any) -> Any:
    n = a.shape[0]
    l = np.eye(n)  # noqa: E741
    for k in range(n - 1):
        l[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :] -= np.outer(l[k + 1 :, k], a[k])
    return l


@of(A[[2, 0, 3, 1]], order=1)
def lu_with_pivots(a: Any) -> Any:
    n = len(a)
    perm = np.arange(n)
    for k in range(n - 1):
        p = k + np.argmax(np.abs(a[k:, k]))
        a[[k, p]] = a[[p, k]]
        perm[[k, p]] = perm[[p, k]]
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return perm


@of(S, order=1)
def cholesky(a: Any) -> Any:
    n = a.shape[0]
    l = np.zeros_like(a)  # noqa: E741
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j] - np.sum(l[i, :j] * l[j, :j])
            l[i, j] = np.sqrt(s) if i == j else s / l[j, j]
    return l


@of(A, order=1)
def gram_schmidt(a: Any) -> Any:
    q = np.empty_like(a)
    for j in range(4):
        v = a[:, j].copy()
        for k in range(j):
            v -= (q[:, k] @ v) * q[:, k]
        q[:, j] = v / np.sqrt(v @ v)
    return q


@of(V, P + 3, W, P, order=1)
def thomas(a: Any, b: Any, c: Any, d: Any) -> Any:
    n = len(d)
    b, d = b.copy(), d.copy()
    for i in range(1, n):
        m = a[i] / b[i - 1]
        b[i] -= m * c[i - 1]
        d[i] -= m * d[i - 1]
    x = np.empty(n)
    x[-1] = d[-1] / b[-1]
    for i in reversed(range(n - 1)):
        x[i] = (d[i] - c[i] * x[i + 1]) / b[i]
    return x


@of(np.abs(A))
def floyd_warshall(d: Any) -> Any:
    for k in range(4):
        d[:] = np.minimum(d, d[:, k, None] + d[None, k])


@of(np.abs(A), order=1)
def floyd_warshall_by_element(d: Any) -> Any:
    for k in range(3):
        for i in range(3):
            for j in range(3):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])


@of(V, W, order=1)
def time_warping(x: Any, y: Any) -> Any:
    d = np.full((5, 5), np.inf)
    d[0, 0] = 0
    for i in range(1, 5):
        for j in range(1, 5):
            d[i, j] = (x[i] - y[j]) ** 2 + min(d[i - 1, j], d[i, j - 1], d[i - 1, j - 1])
    return d[4, 4]


@of(V, W, order=1)
def soft_time_warping(x: Any, y: Any) -> Any:
    d = np.zeros((4, 4))
    for i in range(1, 4):
        for j in range(1, 4):
            d[i, j] = (x[i] - y[j]) ** 2 - np.log(np.exp(-d[i - 1, j]) + np.exp(-d[i, j - 1]) + np.exp(-d[i - 1, j - 1]))
    return d[-1, -1]


@of(P, order=1)
def knapsack(value: Any) -> Any:
    best = np.zeros(8)
    for i, weight in enumerate((2, 3, 4)):
        for w in range(7, weight - 1, -1):
            best[w] = np.maximum(best[w], best[w - weight] + value[i])
    return best


@of(np.abs(A[:3, :3]), np.abs(X), order=1)
def forward_algorithm(transition: Any, emission: Any) -> Any:
    alpha = np.zeros((4, 3))
    alpha[0] = emission[:, 0]
    for t in range(1, 4):
        for j in range(3):
            alpha[t, j] = emission[j, t] * (alpha[t - 1] @ transition[:, j])
    return np.log(alpha[-1].sum())


@of(V)
def horner(c: Any) -> Any:
    y = np.zeros(3)
    for k in c:
        y *= np.array([0.5, -1.0, 2.0])
        y += k
    return y


@of(V, W)
def convolution(x: Any, k: Any) -> Any:
    y = np.zeros(8)
    for i in range(3):
        y[i : i + 6] += k[i] * x
    return y


@of(V, order=1)
def bubble_sort(x: Any) -> Any:
    for n in range(3):
        for i in range(5 - n):
            lo, hi = np.minimum(x[i], x[i + 1]), np.maximum(x[i], x[i + 1])
            x[i], x[i + 1] = lo, hi


@of(V)
def fast_hadamard(x: Any) -> Any:
    y = np.concatenate([x, x[:2]])
    h = 1
    while h < 8:
        for i in range(0, 8, 2 * h):
            a, b = y[i : i + h].copy(), y[i + h : i + 2 * h].copy()
            y[i : i + h], y[i + h : i + 2 * h] = a + b, a - b
        h *= 2
    return y


@of(V)
def haar_wavelet(x: Any) -> Any:
    y = np.concatenate([x, x[:2]])
    n = 8
    while n > 1:
        a, d = (y[:n:2] + y[1:n:2]) / 2, (y[:n:2] - y[1:n:2]) / 2
        y[: n // 2], y[n // 2 : n] = a, d
        n //= 2
    return y


@of(X, order=1)
def enumerated(x: Any) -> Any:
    for (i, j), v in np.ndenumerate(x):
        x[i, j] = v * (i + 1) + j
    return x


@of(X, order=1)
def by_ndindex(x: Any) -> Any:
    y = np.empty(x.shape)
    for i in np.ndindex(*x.shape):
        y[i] = x[i] * sum(i)
    return y


@of(X)
def by_nditer(x: Any) -> Any:
    total = 0.0
    for v in np.nditer(x):
        total = total + v * v
    return total


@of(X)
def by_nditer_readwrite(x: Any) -> Any:
    with np.nditer(x, op_flags=["readwrite"]) as it:
        for v in it:
            v[...] = 2 * v


@of(V)
def by_nditer_of_two(x: Any) -> Any:
    y = np.empty_like(x)
    for a, b in np.nditer([x, y], op_flags=[["readonly"], ["writeonly"]]):
        b[...] = a * a
    return y


@of(V)
def newton(x: Any) -> Any:
    y = np.ones_like(x)
    for _ in range(4):
        y -= (y * y * y - x) / (3 * y * y)
    return y


@of(V, W, order=1)
def adam_steps(p: Any, g: Any) -> Any:
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, 4):
        m *= 0.9
        m += 0.1 * g
        v *= 0.99
        v += 0.01 * g**2
        p -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)


@of(V, I)
def scatter_in_a_loop(x: Any, i: Any) -> Any:
    y = np.zeros(6)
    for k in range(6):
        y[i[k]] += x[k] * (k + 1)
    return y


@of(V)
def power_table(x: Any) -> Any:
    t = np.ones((4, 6))
    for k in range(1, 4):
        t[k] = t[k - 1] * x
    return t


@of(P, order=1)
def binomial_tree(p: Any) -> Any:
    v = np.maximum(p - 1, 0)
    for n in range(5, 0, -1):
        v[:n] = 0.99 * (0.5 * v[1 : n + 1] + 0.5 * v[:n])
    return v[0]


@of(P[:4], order=1)
def verlet(q: Any) -> Any:
    path = np.empty((5, 2, 2))
    path[0, 0], path[0, 1] = q[:2], q[2:]
    for t in range(4):
        p = path[t, 1] - 0.05 * path[t, 0]
        path[t + 1, 0] = path[t, 0] + 0.1 * p
        path[t + 1, 1] = p - 0.05 * path[t + 1, 0]
    return path


@of(A)
def centred(a: Any) -> Any:
    a -= a.mean(axis=0)
    a /= a.std(axis=0)
    a[:, 0] = 1


@of(V)
def conditional_by_number(x: Any) -> Any:
    for i in range(6):
        if i % 2:
            x[i] *= 2
        else:
            x[i] = -x[i]
