"""Direct methods for dense matrices: elimination, LU, Cholesky, QR, triangular and tridiagonal solves."""

import numpy as np

from tests.corpus.case import Case


def gauss_solve(A, b):
    """Gaussian elimination with partial pivoting, on copies."""
    A = A.astype(float)
    b = b.astype(float)
    n = len(b)
    for k in range(n - 1):
        p = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[p, k]):
                p = i
        if A[p, k] == 0:
            raise ValueError("Matrix is singular.")
        if p != k:
            A[[k, p]] = A[[p, k]]
            b[k], b[p] = b[p], b[k]
        for i in range(k + 1, n):
            m = A[i, k] / A[k, k]
            A[i, k:] -= m * A[k, k:]
            b[i] -= m * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - np.dot(A[i, i + 1:], x[i + 1:])) / A[i, i]
    return x


def lu_doolittle(A):
    """L and U without pivoting, by inner products."""
    n = A.shape[0]
    L = np.eye(n)
    U = np.zeros((n, n))
    for i in range(n):
        for j in range(i, n):
            U[i, j] = A[i, j] - L[i, :i] @ U[:i, j]
        for j in range(i + 1, n):
            L[j, i] = (A[j, i] - L[j, :i] @ U[:i, i]) / U[i, i]
    return L, U


def lu_in_place(A):
    """LU in place with pivoting; returns the permutation, its sign and the logarithm of the determinant."""
    n = A.shape[0]
    perm = np.arange(n)
    sign = 1.0
    for k in range(n):
        p = k + np.argmax(np.abs(A[k:, k]))
        if p != k:
            A[[k, p], :] = A[[p, k], :]
            perm[[k, p]] = perm[[p, k]]
            sign = -sign
        A[k + 1:, k] /= A[k, k]
        A[k + 1:, k + 1:] -= np.outer(A[k + 1:, k], A[k, k + 1:])
    return perm, sign, np.sum(np.log(np.abs(np.diag(A))))


def cholesky(A):
    """Cholesky-Banachiewicz, row by row."""
    n = len(A)
    L = np.zeros_like(A)
    for i in range(n):
        for j in range(i + 1):
            s = np.sum(L[i, :j] * L[j, :j])
            if i == j:
                d = A[i, i] - s
                if d <= 0:
                    raise ValueError("not positive definite")
                L[i, j] = np.sqrt(d)
            else:
                L[i, j] = (A[i, j] - s) / L[j, j]
    return L


def cholesky_triple(A):
    """The same with three loops over numbers."""
    n = A.shape[0]
    L = np.zeros((n, n))
    for j in range(n):
        total = A[j, j]
        for k in range(j):
            total -= L[j, k] ** 2
        L[j, j] = total**0.5
        for i in range(j + 1, n):
            total = A[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = total / L[j, j]
    return L


def ldl(A):
    """Unit lower L and diagonal d, without square roots."""
    n = A.shape[0]
    L, d = np.eye(n), np.zeros(n)
    for j in range(n):
        d[j] = A[j, j] - sum(L[j, k] ** 2 * d[k] for k in range(j))
        for i in range(j + 1, n):
            L[i, j] = (A[i, j] - sum(L[i, k] * L[j, k] * d[k] for k in range(j))) / d[j]
    return L, d


def householder_qr(A):
    """Q and R by reflections."""
    m, n = A.shape
    Q = np.eye(m)
    R = A.copy()
    for k in range(min(m - 1, n)):
        x = R[k:, k]
        alpha = -np.linalg.norm(x) if x[0] > 0 else np.linalg.norm(x)
        u = x.copy()
        u[0] -= alpha
        v = u / np.linalg.norm(u)
        R[k:, k:] -= 2 * np.outer(v, v @ R[k:, k:])
        Q[:, k:] -= 2 * np.outer(Q[:, k:] @ v, v)
    return Q, R


def gram_schmidt(A, tol=1e-10):
    """Modified Gram-Schmidt, with a reorthogonalisation if a vector lost much of its length."""
    m, n = A.shape
    Q = np.zeros((m, n))
    R = np.zeros((n, n))
    for j in range(n):
        v = A[:, j].copy()
        before = np.linalg.norm(v)
        for i in range(j):
            R[i, j] = Q[:, i] @ v
            v -= R[i, j] * Q[:, i]
        if np.linalg.norm(v) < 0.5 * before:
            for i in range(j):
                c = Q[:, i] @ v
                R[i, j] += c
                v -= c * Q[:, i]
        R[j, j] = np.linalg.norm(v)
        if R[j, j] < tol:
            raise ValueError("columns are dependent")
        Q[:, j] = v / R[j, j]
    return Q, R


def givens_hessenberg(H, b):
    """Least squares with an upper Hessenberg matrix by rotations."""
    H, b = H.copy(), b.copy()
    n = H.shape[1]
    for k in range(n):
        a, c = H[k, k], H[k + 1, k]
        if abs(c) > abs(a):
            t = a / c
            sn = 1 / np.sqrt(1 + t * t)
            cs = sn * t
        else:
            t = c / a
            cs = 1 / np.sqrt(1 + t * t)
            sn = cs * t
        for j in range(k, n):
            H[k, j], H[k + 1, j] = cs * H[k, j] + sn * H[k + 1, j], -sn * H[k, j] + cs * H[k + 1, j]
        b[k], b[k + 1] = cs * b[k] + sn * b[k + 1], -sn * b[k] + cs * b[k + 1]
    x = np.zeros(n)
    for i in reversed(range(n)):
        x[i] = (b[i] - H[i, i + 1:] @ x[i + 1:]) / H[i, i]
    return x, abs(b[n])


def forward_substitution(L, b, unit):
    """Lower triangular solve; the diagonal is one if unit."""
    y = np.empty(len(b))
    for i in range(len(b)):
        y[i] = b[i]
        for j in range(i):
            y[i] -= L[i, j] * y[j]
        if not unit:
            y[i] /= L[i, i]
    return y


def thomas(a, b, c, d):
    """Tridiagonal solve."""
    n = len(d)
    cp, dp = np.zeros(n), np.zeros(n)
    cp[0] = c[0] / b[0]
    dp[0] = d[0] / b[0]
    for i in range(1, n):
        m = b[i] - a[i] * cp[i - 1]
        if i < n - 1:
            cp[i] = c[i] / m
        dp[i] = (d[i] - a[i] * dp[i - 1]) / m
    x = np.zeros(n)
    x[-1] = dp[-1]
    for i in range(n - 2, -1, -1):
        x[i] = dp[i] - cp[i] * x[i + 1]
    return x


def thomas_in_place(a, b, c, d):
    """The same, which overwrites b and d."""
    n = len(d)
    for i in range(1, n):
        w = a[i - 1] / b[i - 1]
        b[i] -= w * c[i - 1]
        d[i] -= w * d[i - 1]
    d[n - 1] = d[n - 1] / b[n - 1]
    i = n - 2
    while i >= 0:
        d[i] = (d[i] - c[i] * d[i + 1]) / b[i]
        i -= 1
    return d


def gauss_jordan_inverse(M):
    """Inverse and determinant by Gauss-Jordan with pivoting on an augmented matrix."""
    n = M.shape[0]
    aug = np.hstack([M, np.eye(n)])
    det = 1.0
    for col in range(n):
        pivot = max(range(col, n), key=lambda r: abs(aug[r, col]))
        if pivot != col:
            aug[[col, pivot]] = aug[[pivot, col]]
            det *= -1
        det *= aug[col, col]
        aug[col] /= aug[col, col]
        for r in range(n):
            if r != col:
                aug[r] -= aug[r, col] * aug[col]
    return aug[:, n:], det


def determinant_recursive(M):
    """Laplace's expansion along the first row."""
    n = len(M)
    if n == 1:
        return M[0, 0]
    total = 0.0
    for j in range(n):
        minor = np.delete(M[1:], j, axis=1)
        total += (-1) ** j * M[0, j] * determinant_recursive(minor)
    return total


def positive(rng, n):
    A = rng.normal(size=(n, n))
    return A @ A.T + n * np.eye(n)


def spread(rng, n):
    """A matrix whose pivots are no near-ties."""
    return (rng.permutation(n * n) + 1.0).reshape(n, n) * rng.choice([-1, 1], (n, n))


def tridiagonal(rng, n):
    return rng.uniform(-1, 1, n), rng.uniform(3, 4, n), rng.uniform(-1, 1, n), rng.normal(size=n)


def lower(rng, n):
    return np.tril(rng.uniform(1, 2, (n, n))) / n + np.eye(n), rng.normal(size=n), bool(rng.integers(2))


def hessenberg(rng, n):
    return np.triu(rng.uniform(1, 3, (n + 1, n)) * rng.choice([-1, 1], (n + 1, n)), -1), rng.normal(size=n + 1)


CASES = [
    Case(function=gauss_solve, argnums=(0, 1), size=4, turns=60, arguments=lambda rng, n: (spread(rng, n), rng.normal(size=n)),
         failing=lambda rng: (np.zeros((3, 3)), np.ones(3))),
    Case(function=lu_doolittle, argnums=(0,), size=5, turns=60, arguments=lambda rng, n: (positive(rng, n),)),
    Case(function=lu_in_place, writes=True, argnums=(0,), size=4, turns=200, arguments=lambda rng, n: (spread(rng, n),)),
    Case(function=cholesky, argnums=(0,), size=5, turns=60, arguments=lambda rng, n: (positive(rng, n),),
         failing=lambda rng: (-np.eye(4),)),
    Case(function=cholesky_triple, argnums=(0,), size=5, turns=60, arguments=lambda rng, n: (positive(rng, n),)),
    Case(function=ldl, argnums=(0,), size=4, turns=40, arguments=lambda rng, n: (positive(rng, n),)),
    Case(function=householder_qr, argnums=(0,), size=4, turns=60, arguments=lambda rng, n: (rng.normal(size=(n + 1, n)),)),
    Case(function=gram_schmidt, argnums=(0,), size=4, turns=60, arguments=lambda rng, n: (1 + rng.uniform(0, 1, (n + 2, n)),),
         failing=lambda rng: (np.ones((5, 3)),)),
    Case(function=givens_hessenberg, argnums=(0, 1), size=3, turns=40, arguments=hessenberg),
    Case(function=forward_substitution, argnums=(0, 1), size=6, turns=100,
         arguments=lambda rng, n: lower(rng, n)),
    Case(function=thomas, argnums=(0, 1, 2, 3), size=10, arguments=tridiagonal),
    Case(function=thomas_in_place, writes=True, argnums=(0, 1, 2, 3), size=10,
         arguments=lambda rng, n: (rng.normal(size=n - 1), rng.uniform(6, 7, n), rng.normal(size=n - 1), rng.normal(size=n))),
    Case(function=gauss_jordan_inverse, argnums=(0,), size=3, turns=40, arguments=lambda rng, n: (spread(rng, n),)),
    Case(function=determinant_recursive, argnums=(0,), size=4, turns=6, arguments=lambda rng, n: (rng.normal(size=(n, n)),)),
]  # fmt: skip
