"""Iterations for linear systems and eigenvalues: CG, Jacobi, Gauss-Seidel, SOR, power iteration, Lanczos, Arnoldi."""

import numpy as np

from tests.corpus.case import Case


def conjugate_gradient(A, b, tol=1e-12, max_iter=None):
    """Solve with the symmetric part of a matrix; returns x and the number of iterations."""
    n = len(b)
    A = (A + A.T) / 2
    if max_iter is None:
        max_iter = 10 * n
    x = np.zeros(n)
    r = b - A @ x
    p = r.copy()
    rs_old = r @ r
    if np.sqrt(rs_old) < tol:
        return x, 0
    for i in range(max_iter):
        Ap = A @ p
        alpha = rs_old / (p @ Ap)
        x = x + alpha * p
        r = r - alpha * Ap
        rs_new = r @ r
        if np.sqrt(rs_new) < tol:
            return x, i + 1
        p = r + (rs_new / rs_old) * p
        rs_old = rs_new
    return x, max_iter


def jacobi(A, b, iterations):
    """Jacobi with a Python loop over the rows."""
    x = np.zeros_like(b)
    for it_count in range(iterations):
        x_new = np.zeros_like(x)
        for i in range(A.shape[0]):
            s1 = np.dot(A[i, :i], x[:i])
            s2 = np.dot(A[i, i + 1:], x[i + 1:])
            x_new[i] = (b[i] - s1 - s2) / A[i, i]
        if np.allclose(x, x_new, rtol=1e-14, atol=1e-14):
            break
        x = x_new
    return x


def gauss_seidel(A, b, x, tol, nmax):
    """Gauss-Seidel in place in x; returns the number of sweeps."""
    n = len(b)
    sweeps = 0
    change = tol + 1.0
    while change > tol and sweeps < nmax:
        change = 0.0
        for i in range(n):
            s = b[i]
            for j in range(n):
                if j != i:
                    s -= A[i, j] * x[j]
            new = s / A[i, i]
            change = max(change, abs(new - x[i]))
            x[i] = new
        sweeps += 1
    return sweeps, np.sum(x)


def sor_poisson(f, omega, h, sweeps):
    """Successive over-relaxation for Poisson's equation on a square with zero borders."""
    n, m = f.shape
    u = np.zeros((n, m))
    for k in range(sweeps):
        largest = 0.0
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                star = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - h * h * f[i, j])
                diff = omega * (star - u[i, j])
                u[i, j] += diff
                if abs(diff) > largest:
                    largest = abs(diff)
        if largest < 1e-13:
            break
    return u


def red_black(u, sweeps):
    """Relaxation of the inner points of a grid in two colours, in place."""
    n, m = u.shape
    for _ in range(sweeps):
        for colour in (0, 1):
            for i in range(1, n - 1):
                for j in range(1 + (i + colour) % 2, m - 1, 2):
                    u[i, j] = (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1]) / 4
    return u


def power_iteration(A, v0, tol=1e-12, maxiter=500):
    """Dominant eigenvalue and vector."""
    v = v0 / np.linalg.norm(v0)
    lam = 0.0
    for k in range(maxiter):
        w = A @ v
        lam_new = v @ w
        v = w / np.linalg.norm(w)
        if k > 0 and abs(lam_new - lam) <= tol * abs(lam_new):
            lam = lam_new
            break
        lam = lam_new
    return lam, v


def pagerank(links, damping, steps):
    """PageRank with dangling pages, until the change is small."""
    n = links.shape[0]
    out = links.sum(axis=1)
    rank = np.ones(n) / n
    for step in range(steps):
        new = np.full(n, (1 - damping) / n)
        for i in range(n):
            if out[i] == 0:
                new += damping * rank[i] / n
                continue
            new += damping * rank[i] * links[i] / out[i]
        delta = np.abs(new - rank).sum()
        rank = new
        if delta < 1e-14:
            break
    return rank


def jacobi_eigenvalues(A, max_sweeps):
    """Eigenvalues of a symmetric matrix by cyclic rotations, sorted."""
    A = A.copy()
    n = A.shape[0]
    for sweep in range(max_sweeps):
        off = 0.0
        for p in range(n - 1):
            for q in range(p + 1, n):
                off += A[p, q] ** 2
        if off < 1e-24:
            break
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(A[p, q]) < 1e-15:
                    continue
                theta = (A[q, q] - A[p, p]) / (2 * A[p, q])
                t = np.sign(theta) / (abs(theta) + np.sqrt(theta**2 + 1))
                c = 1 / np.sqrt(t * t + 1)
                s = t * c
                J = np.eye(n)
                J[p, p] = J[q, q] = c
                J[p, q], J[q, p] = s, -s
                A = J.T @ A @ J
    return np.sort(np.diag(A))


def lanczos(A, v, k):
    """Diagonal and off-diagonal of the tridiagonal form, with full reorthogonalisation."""
    basis = [v / np.linalg.norm(v)]
    alphas, betas = [], []
    for j in range(k):
        w = A @ basis[j]
        alphas.append(np.dot(w, basis[j]))
        w = w - alphas[-1] * basis[j]
        if j > 0:
            w = w - betas[-1] * basis[j - 1]
        for u in basis:
            w = w - np.dot(w, u) * u
        beta = np.linalg.norm(w)
        if beta < 1e-10 or j == k - 1:
            break
        betas.append(beta)
        basis.append(w / beta)
    return np.array(alphas), np.array(betas)


def gmres(A, b, m):
    """GMRES without restarts: Arnoldi, then least squares by the normal equations."""
    n = len(b)
    Q = np.zeros((n, m + 1))
    H = np.zeros((m + 1, m))
    beta = np.linalg.norm(b)
    Q[:, 0] = b / beta
    for k in range(m):
        y = A @ Q[:, k]
        for j in range(k + 1):
            H[j, k] = Q[:, j] @ y
            y = y - H[j, k] * Q[:, j]
        H[k + 1, k] = np.linalg.norm(y)
        if H[k + 1, k] > 1e-12:
            Q[:, k + 1] = y / H[k + 1, k]
    e = np.zeros(m + 1)
    e[0] = beta
    return Q[:, :m] @ np.linalg.solve(H.T @ H, H.T @ e)


def kaczmarz(A, b, sweeps):
    """Projections onto the hyperplanes of the rows, every other sweep backwards."""
    x = np.zeros(A.shape[1])
    order = list(range(len(b)))
    for k in range(sweeps):
        for i in order if k % 2 == 0 else reversed(order):
            row = A[i]
            x = x + (b[i] - row @ x) / (row @ row) * row
    return x


def inverse_iteration(A, shift, x, steps):
    """Rayleigh quotient iteration for the eigenvalue next to a shift."""
    mu = shift
    n_done = 0
    while n_done < steps:
        try_matrix = A - mu * np.eye(len(A))
        y = np.linalg.solve(try_matrix, x)
        x = y / np.sqrt(np.sum(y**2))
        mu_new = x @ A @ x
        n_done += 1
        if abs(mu_new - mu) < 1e-4:
            mu = mu_new
            break
        mu = mu_new
    return mu


def matrix_power(M, exponent):
    """Power by repeated squaring; the exponent is an integer array element."""
    result = np.eye(M.shape[0])
    base = M
    e = exponent
    while e > 0:
        if e % 2 == 1:
            result = result @ base
        base = base @ base
        e //= 2
    return result


def expm_taylor(A, tol):
    """Matrix exponential by scaling, a Taylor series and squaring."""
    norm = np.max(np.sum(np.abs(A), axis=1))
    s = 0
    while norm > 0.5:
        norm /= 2
        s += 1
    B = A / 2.0**s
    term = np.eye(len(A))
    total = np.eye(len(A))
    k = 1
    while np.max(np.abs(term)) > tol:
        term = term @ B / k
        total = total + term
        k += 1
    for _ in range(s):
        total = total @ total
    return total


def positive(rng, n):
    A = rng.normal(size=(n, n))
    return A @ A.T + n * np.eye(n)


def symmetric(rng, n):
    A = rng.uniform(-0.3, 0.3, (n, n))
    return A + A.T


def dominant(rng, n):
    return rng.uniform(-1, 1, (n, n)) + 2 * n * np.eye(n), rng.normal(size=n)


def linked(rng, n):
    links = (rng.uniform(size=(n, n)) < 0.5) * rng.uniform(1, 2, (n, n))
    links[rng.integers(n)] = 0.0
    return links


CASES = [
    Case(function=conjugate_gradient, argnums=(0, 1), size=4, turns=200,
         arguments=lambda rng, n: (positive(rng, n), rng.normal(size=n))),
    Case(function=jacobi, argnums=(0, 1), size=40, arguments=lambda rng, n: (*dominant(rng, 4), n)),
    Case(function=gauss_seidel, argnums=(0, 1), writes=True, size=30,
         arguments=lambda rng, n: (*dominant(rng, 3), np.zeros(3), 1e-13, n)),
    Case(function=sor_poisson, argnums=(0, 1), size=5, turns=100,
         arguments=lambda rng, n: (rng.normal(size=(4, 4)), 1.2, 0.1, n)),
    Case(function=red_black, argnums=(0,), writes=True, size=3, turns=100, arguments=lambda rng, n: (rng.normal(size=(5, 6)), n)),
    Case(function=power_iteration, argnums=(0,), size=60,
         arguments=lambda rng, n: (np.diag([5.0, 1.0, 0.5]) + 0.1 * rng.uniform(size=(3, 3)), rng.uniform(0.5, 1, 3), 1e-13, n)),
    Case(function=pagerank, argnums=(1,), size=10, turns=300, arguments=lambda rng, n: (linked(rng, 5), 0.8, n)),
    Case(function=jacobi_eigenvalues, argnums=(0,), size=6, turns=60,
         arguments=lambda rng, n: (np.diag([1.0, 3, 6]) + symmetric(rng, 3), n)),
    Case(function=lanczos, argnums=(0, 1), size=3, turns=40,
         arguments=lambda rng, n: (positive(rng, n + 2), rng.normal(size=n + 2), n)),
    Case(function=gmres, argnums=(0, 1), size=3, turns=10, arguments=lambda rng, n: (*dominant(rng, n + 3), n)),
    Case(function=kaczmarz, argnums=(0, 1), size=4, turns=300, arguments=lambda rng, n: (*dominant(rng, 4), n)),
    Case(function=inverse_iteration, argnums=(0,), size=10,
         arguments=lambda rng, n: (np.diag([1.0, 3, 6]) + symmetric(rng, 3), 2.6, np.ones(3), n)),
    Case(function=matrix_power, argnums=(0,),
         arguments=lambda rng, n: (rng.uniform(size=(3, 3)) / 3, int(rng.integers(5, n + 5)))),
    Case(function=expm_taylor, argnums=(0,), arguments=lambda rng, n: (rng.uniform(0.5, 2.0) * rng.normal(size=(3, 3)), 1e-16)),
]  # fmt: skip
