"""Splines, interpolation by search, divided differences, quadrature and finite elements in one dimension."""

import numpy as np

from tests.corpus.case import Case


def natural_spline(x, y):
    """Second derivatives of a natural cubic spline, by the tridiagonal sweep of Numerical Recipes."""
    n = len(x)
    y2, u = np.zeros(n), np.zeros(n)
    for i in range(1, n - 1):
        sig = (x[i] - x[i - 1]) / (x[i + 1] - x[i - 1])
        p = sig * y2[i - 1] + 2.0
        y2[i] = (sig - 1.0) / p
        u[i] = (y[i + 1] - y[i]) / (x[i + 1] - x[i]) - (y[i] - y[i - 1]) / (x[i] - x[i - 1])
        u[i] = (6.0 * u[i] / (x[i + 1] - x[i - 1]) - sig * u[i - 1]) / p
    for k in range(n - 2, -1, -1):
        y2[k] = y2[k] * y2[k + 1] + u[k]
    return y2


def spline_value(xa, ya, y2a, x):
    klo, khi = 0, len(xa) - 1
    while khi - klo > 1:
        k = (khi + klo) >> 1
        if xa[k] > x:
            khi = k
        else:
            klo = k
    h = xa[khi] - xa[klo]
    if h == 0:
        raise ValueError("two equal nodes")
    a = (xa[khi] - x) / h
    b = (x - xa[klo]) / h
    return a * ya[klo] + b * ya[khi] + ((a**3 - a) * y2a[klo] + (b**3 - b) * y2a[khi]) * h**2 / 6


def spline_at(x, y, points):
    y2 = natural_spline(x, y)
    return np.array([spline_value(x, y, y2, p) for p in points])


def linear_interpolation(xs, ys, queries, clamp):
    """Piecewise linear, constant or extrapolated outside."""
    result = np.zeros_like(queries)
    n = len(xs)
    for q in range(len(queries)):
        x = queries[q]
        if clamp and x <= xs[0]:
            result[q] = ys[0]
            continue
        if clamp and x >= xs[-1]:
            result[q] = ys[-1]
            continue
        i = 0
        while i < n - 2 and xs[i + 1] < x:
            i += 1
        t = (x - xs[i]) / (xs[i + 1] - xs[i])
        result[q] = ys[i] + t * (ys[i + 1] - ys[i])
    return result


def pchip_slopes(x, y):
    """Monotone slopes of Fritsch and Carlson."""
    h = np.diff(x)
    delta = np.diff(y) / h
    d = np.zeros(len(x))
    for k in range(1, len(x) - 1):
        if delta[k - 1] * delta[k] <= 0:
            d[k] = 0.0
        else:
            w1 = 2 * h[k] + h[k - 1]
            w2 = h[k] + 2 * h[k - 1]
            d[k] = (w1 + w2) / (w1 / delta[k - 1] + w2 / delta[k])
    d[0], d[-1] = delta[0], delta[-1]
    return d


def divided_differences(x, y, z):
    """Newton's interpolating polynomial at z."""
    n = len(x)
    c = y.copy()
    for j in range(1, n):
        for i in range(n - 1, j - 1, -1):
            c[i] = (c[i] - c[i - 1]) / (x[i] - x[i - j])
    p = c[n - 1]
    for i in range(n - 2, -1, -1):
        p = p * (z - x[i]) + c[i]
    return p


def lagrange(x, y, z):
    """The same by Lagrange's form; a node returns its value."""
    total = 0.0
    for i, xi in enumerate(x):
        if z == xi:
            return y[i]
        basis = 1.0
        for j, xj in enumerate(x):
            if i != j:
                basis *= (z - xj) / (xi - xj)
        total += y[i] * basis
    return total


def neville(x, y, z):
    """Value and error estimate by Neville's scheme on a list."""
    p = list(y)
    n = len(p)
    for m in range(1, n):
        for i in range(n - m):
            p[i] = ((z - x[i + m]) * p[i] + (x[i] - z) * p[i + 1]) / (x[i] - x[i + m])
    return p[0], abs(p[0] - p[1])


def de_casteljau(points, t):
    """A point of a Bezier curve."""
    q = points.copy()
    for r in range(1, len(points)):
        for i in range(len(points) - r):
            q[i] = (1 - t) * q[i] + t * q[i + 1]
    return q[0]


def bspline_basis(i, k, t, x):
    """Cox-de Boor, recursive."""
    if k == 0:
        return 1.0 if t[i] <= x < t[i + 1] else 0.0
    left = 0.0
    if t[i + k] != t[i]:
        left = (x - t[i]) / (t[i + k] - t[i]) * bspline_basis(i, k - 1, t, x)
    right = 0.0
    if t[i + k + 1] != t[i + 1]:
        right = (t[i + k + 1] - x) / (t[i + k + 1] - t[i + 1]) * bspline_basis(i + 1, k - 1, t, x)
    return left + right


def bspline(coefficients, x):
    knots = np.array([0.0, 0, 0, 1, 2, 3, 3, 3])
    return sum(coefficients[i] * bspline_basis(i, 2, knots, x) for i in range(len(coefficients)))


def adaptive_simpson(a, b, k, tol):
    """Adaptive quadrature with an explicit stack; the integral and the number of intervals."""
    f = lambda x: np.exp(-k * x) * np.sin(5 * x)

    def simpson(l, r):
        return (r - l) / 6 * (f(l) + 4 * f((l + r) / 2) + f(r))

    stack = [(a, b)]
    total, intervals = 0.0, 0
    while stack:
        l, r = stack.pop()
        mid = (l + r) / 2
        coarse = simpson(l, r)
        fine = simpson(l, mid) + simpson(mid, r)
        if abs(fine - coarse) < 15 * tol or r - l < 1e-3:
            total += fine + (fine - coarse) / 15
            intervals += 1
        else:
            stack.append((l, mid))
            stack.append((mid, r))
    return total, intervals


def romberg(a, b, k, max_level, tol):
    """Romberg's table, row by row, until two diagonal entries agree."""
    f = lambda x: np.exp(-k * x * x)
    R = np.zeros((max_level, max_level))
    h = b - a
    R[0, 0] = h / 2 * (f(a) + f(b))
    for i in range(1, max_level):
        h /= 2
        s = 0.0
        for j in range(1, 2**i, 2):
            s += f(a + j * h)
        R[i, 0] = R[i - 1, 0] / 2 + h * s
        for m in range(1, i + 1):
            R[i, m] = R[i, m - 1] + (R[i, m - 1] - R[i - 1, m - 1]) / (4**m - 1)
        if abs(R[i, i] - R[i - 1, i - 1]) < tol:
            return R[i, i]
    return R[-1, -1]


def cumulative_trapezoid(x, y):
    """Running integral, and where it first exceeds half of the total."""
    total = [0.0]
    for (x0, x1), (y0, y1) in zip(zip(x[:-1], x[1:]), zip(y[:-1], y[1:])):
        total.append(total[-1] + 0.5 * (x1 - x0) * (y0 + y1))
    half = total[-1] / 2
    for i, value in enumerate(total):
        if value > half:
            break
    return np.array(total), i


def fem_bar(E, A, lengths, load):
    """Displacements of a bar of two-node elements, fixed at the left, loaded along it."""
    n_el = len(lengths)
    n = n_el + 1
    K = np.zeros((n, n))
    F = np.zeros(n)
    for e in range(n_el):
        k = E[e] * A / lengths[e]
        ke = k * np.array([[1.0, -1.0], [-1.0, 1.0]])
        dofs = [e, e + 1]
        for a in range(2):
            F[dofs[a]] += load * lengths[e] / 2
            for b in range(2):
                K[dofs[a], dofs[b]] += ke[a, b]
    u = np.zeros(n)
    u[1:] = np.linalg.solve(K[1:, 1:], F[1:])
    return u


def fem_diffusion(nodes, kappa, source, left, right):
    """Diffusion with quadrature in each element, Dirichlet values by modified rows and a Thomas sweep in place."""
    n = len(nodes)
    K = np.zeros((n, n))
    b = np.zeros(n)
    gauss = [(-1 / 3**0.5, 1.0), (1 / 3**0.5, 1.0)]
    for e in range(n - 1):
        i, j = e, e + 1
        h = nodes[j] - nodes[i]
        for xi, w in gauss:
            N = (1 - xi) / 2, (1 + xi) / 2
            x = N[0] * nodes[i] + N[1] * nodes[j]
            k = kappa[0] if x < 0.5 else kappa[1]
            for r, p in enumerate((i, j)):
                b[p] += w * N[r] * source * h / 2
                for s, q in enumerate((i, j)):
                    sign = 1 if r == s else -1
                    K[p, q] += sign * w * k / h / 2
    for node, value in ((0, left), (n - 1, right)):
        K[node, :] = 0.0
        K[node, node] = 1.0
        b[node] = value
    for i in range(1, n):
        m = K[i, i - 1] / K[i - 1, i - 1]
        K[i] -= m * K[i - 1]
        b[i] -= m * b[i - 1]
    for i in range(n - 1, -1, -1):
        if i < n - 1:
            b[i] -= K[i, i + 1] * b[i + 1]
        b[i] /= K[i, i]
    return b


def polygon_area(vertices, point):
    """Area by the shoelace formula, and whether a point is inside by ray casting."""
    inside = False
    area = 0.0
    n = len(vertices)
    j = n - 1
    for i in range(n):
        xi, yi = vertices[i]
        xj, yj = vertices[j]
        area += xj * yi - xi * yj
        if (yi > point[1]) != (yj > point[1]) and point[0] < (xj - xi) * (point[1] - yi) / (yj - yi) + xi:
            inside = not inside
        j = i
    return abs(area) / 2, inside


def nodes(rng, n):
    return np.cumsum(rng.uniform(0.5, 1.5, n)), rng.normal(size=n)


def star(rng, n):
    angles = np.linspace(0, 2 * np.pi, n, endpoint=False)
    return rng.uniform(0.5, 1.5, (n, 1)) * np.column_stack([np.cos(angles), np.sin(angles)]), rng.uniform(-0.9, 0.9, 2)


CASES = [
    Case(function=natural_spline, argnums=(0, 1), size=8, arguments=nodes),
    Case(function=spline_at, argnums=(0, 1, 2), size=6, turns=400,
         arguments=lambda rng, n: (*nodes(rng, n), rng.uniform(1.5, 0.5 * n, 3))),
    Case(function=linear_interpolation, argnums=(0, 1, 2), size=6, turns=400,
         arguments=lambda rng, n: (*nodes(rng, n), rng.uniform(0, 1.2 * n, 5), bool(rng.integers(2)))),
    Case(function=pchip_slopes, argnums=(0, 1), size=8, arguments=nodes),
    Case(function=divided_differences, argnums=(0, 1, 2), size=5, turns=12,
         arguments=lambda rng, n: (*nodes(rng, n), rng.uniform(1, n))),
    Case(function=lagrange, seeds=6, argnums=(1, 2), size=5, turns=20,
         arguments=lambda rng, n: (*nodes(rng, n), rng.uniform(1, n))),
    Case(function=neville, argnums=(0, 1, 2), size=5, turns=20, arguments=lambda rng, n: (*nodes(rng, n), rng.uniform(1, n))),
    Case(function=de_casteljau, argnums=(0, 1), size=5, turns=60, arguments=lambda rng, n: (rng.normal(size=(n, 2)), 0.3)),
    Case(function=bspline, seeds=6, argnums=(0, 1), arguments=lambda rng, n: (rng.normal(size=5), rng.uniform(0.1, 2.9))),
    Case(function=adaptive_simpson, argnums=(0, 1, 2), arguments=lambda rng, n: (0.1, 2.0, rng.uniform(0.5, 2), 1e-5)),
    Case(function=romberg, argnums=(0, 1, 2), size=5, turns=10,
         arguments=lambda rng, n: (0.0, 1.3, rng.uniform(0.2, 2), n, 1e-8)),
    Case(function=cumulative_trapezoid, argnums=(0, 1), size=8,
         arguments=lambda rng, n: (nodes(rng, n)[0], rng.uniform(0.2, 1, n))),
    Case(function=fem_bar, argnums=(0, 1, 2, 3), size=5, turns=300,
         arguments=lambda rng, n: (rng.uniform(1, 2, n), 1.5, rng.uniform(0.5, 1, n), 2.0)),
    Case(function=fem_diffusion, argnums=(1, 2, 3, 4), size=5, turns=100,
         arguments=lambda rng, n: (np.linspace(0, 1, n), rng.uniform(0.5, 2, 2), 1.0, 0.3, -0.2)),
    Case(function=polygon_area, seeds=6, argnums=(0,), size=6, arguments=star),
]  # fmt: skip
