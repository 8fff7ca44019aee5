"""Minimisation: gradient descent, line searches, Nelder-Mead, coordinate descent, annealing with given draws, projections."""

import numpy as np

from tests.corpus.case import Case


def rosenbrock(x):
    return 100.0 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2


def rosenbrock_gradient(x):
    return np.array([-400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 200 * (x[1] - x[0] ** 2)])


def backtracking_descent(x0, iterations, beta=0.5, c=1e-4):
    """Steepest descent with Armijo's rule; the history of values."""
    x = x0
    history = [rosenbrock(x)]
    for k in range(iterations):
        g = rosenbrock_gradient(x)
        if np.linalg.norm(g) < 1e-8:
            break
        t = 1.0
        while rosenbrock(x - t * g) > history[-1] - c * t * (g @ g):
            t *= beta
        x = x - t * g
        history.append(rosenbrock(x))
    return x, np.array(history)


def nelder_mead(simplex, iterations):
    """The simplex method of Nelder and Mead in two dimensions."""
    f = lambda p: (p[0] - 1.3) ** 2 + 3.1 * (p[1] + 0.4) ** 2 + 0.5 * p[0] * p[1]
    values = np.array([f(p) for p in simplex])
    for _ in range(iterations):
        order = np.argsort(values)
        simplex, values = simplex[order], values[order]
        if values[-1] - values[0] < 1e-10:
            break
        centroid = np.mean(simplex[:-1], axis=0)
        reflected = centroid + (centroid - simplex[-1])
        fr = f(reflected)
        if values[0] <= fr < values[-2]:
            simplex[-1], values[-1] = reflected, fr
        elif fr < values[0]:
            expanded = centroid + 2 * (centroid - simplex[-1])
            fe = f(expanded)
            if fe < fr:
                simplex[-1], values[-1] = expanded, fe
            else:
                simplex[-1], values[-1] = reflected, fr
        else:
            contracted = centroid + 0.5 * (simplex[-1] - centroid)
            fc = f(contracted)
            if fc < values[-1]:
                simplex[-1], values[-1] = contracted, fc
            else:
                for i in range(1, len(simplex)):
                    simplex[i] = simplex[0] + 0.5 * (simplex[i] - simplex[0])
                    values[i] = f(simplex[i])
    best = np.argmin(values)
    return simplex[best], values[best]


def lasso(X, y, lam, sweeps):
    """Coordinate descent with soft thresholding."""
    n, p = X.shape
    w = np.zeros(p)
    for _ in range(sweeps):
        for j in range(p):
            residual = y - X @ w + X[:, j] * w[j]
            rho = X[:, j] @ residual
            z = X[:, j] @ X[:, j]
            if rho < -lam:
                w[j] = (rho + lam) / z
            elif rho > lam:
                w[j] = (rho - lam) / z
            else:
                w[j] = 0.0
    return w


def adam(theta, data, lr, epochs, patience=5):
    """Adam on a mean squared error, stopped early when the loss does not improve."""
    m = v = np.zeros_like(theta)
    best_loss, best_theta, wait = np.inf, theta, 0
    for t in range(1, epochs + 1):
        err = theta[0] + theta[1] * data[:, 0] - data[:, 1]
        loss = np.mean(err**2)
        if loss < best_loss:
            best_loss, best_theta, wait = loss, theta, 0
        else:
            wait += 1
            if wait >= patience:
                break
        g = np.array([2 * np.mean(err), 2 * np.mean(err * data[:, 0])])
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        theta = theta - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return best_theta, best_loss


def annealing(x0, proposals, uniforms, T0):
    """Simulated annealing with draws passed in; the running best starts as None."""
    def energy(x):
        return x**4 - 3 * x**2 + x

    x, e = x0, energy(x0)
    best = None
    accepted = 0
    for k in range(len(proposals)):
        T = T0 / (1 + k)
        candidate = x + proposals[k]
        ec = energy(candidate)
        if ec < e or uniforms[k] < np.exp(-(ec - e) / T):
            x, e = candidate, ec
            accepted += 1
        if best is None or e < best[1]:
            best = (x, e)
    return best, accepted


def levenberg_marquardt(p, t, y, steps):
    """Fit a exp(-b t) with a damping that grows and shrinks."""
    lam = 1e-2
    cost = np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)
    for _ in range(steps):
        e = np.exp(-p[1] * t)
        J = np.column_stack([e, -p[0] * t * e])
        r = y - p[0] * e
        A = J.T @ J
        step = np.linalg.solve(A + lam * np.diag(np.diag(A)), J.T @ r)
        trial = p + step
        trial_cost = np.sum((y - trial[0] * np.exp(-trial[1] * t)) ** 2)
        if trial_cost < cost:
            p, cost, lam = trial, trial_cost, lam / 10
        else:
            lam *= 10
    return p, cost


def simplex_projection(v, total):
    """Projection onto the simplex by a sort and a search."""
    u = np.sort(v)[::-1]
    cumulative = 0.0
    theta = 0.0
    for i, ui in enumerate(u, start=1):
        cumulative += ui
        t = (cumulative - total) / i
        if ui - t > 0:
            theta = t
        else:
            break
    return np.maximum(v - theta, 0)


def trust_region(x, radius, iterations):
    """Cauchy points with a radius that follows the agreement of model and function."""
    n_shrunk = 0
    for k in range(iterations):
        g = rosenbrock_gradient(x)
        H = np.array([[1200 * x[0] ** 2 - 400 * x[1] + 2, -400 * x[0]], [-400 * x[0], 200.0]])
        gHg = g @ H @ g
        gn = np.linalg.norm(g)
        tau = 1.0 if gHg <= 0 else min(gn**3 / (radius * gHg), 1.0)
        step = -tau * radius / gn * g
        predicted = -(g @ step + 0.5 * step @ H @ step)
        actual = rosenbrock(x) - rosenbrock(x + step)
        rho = actual / predicted
        if rho < 0.25:
            radius *= 0.25
            n_shrunk += 1
        elif rho > 0.75 and tau == 1.0:
            radius = min(2 * radius, 10.0)
        if rho > 0.1:
            x = x + step
    return x, radius, n_shrunk


def grid_search(x, y, slopes, intercepts):
    """Least squares by trying all pairs."""
    best, arg = np.inf, (None, None)
    for i, a in enumerate(slopes):
        for j, b in enumerate(intercepts):
            sse = 0.0
            for xk, yk in zip(x, y):
                sse += (yk - a * xk - b) ** 2
                if sse > best:
                    break
            if sse < best:
                best = sse
                arg = i, j
    return best, arg


def frank_wolfe(Q, c, iterations):
    """A quadratic on the simplex; vertices by argmin; exact line search, clipped."""
    n = len(c)
    x = np.ones(n) / n
    for _ in range(iterations):
        grad = Q @ x + c
        s = np.zeros(n)
        s[np.argmin(grad)] = 1.0
        d = s - x
        denom = d @ Q @ d
        if denom < 1e-14:
            break
        gamma = -(grad @ d) / denom
        gamma = 0.0 if gamma < 0 else (1.0 if gamma > 1 else gamma)
        x = x + gamma * d
    return x, 0.5 * x @ Q @ x + c @ x


def bfgs_step_loop(x, steps):
    """BFGS on Rosenbrock; the update is skipped where the curvature is not positive."""
    H = np.eye(2)
    g = rosenbrock_gradient(x)
    skipped = 0
    for _ in range(steps):
        p = -H @ g
        t, f0 = 1.0, rosenbrock(x)
        tries = 0
        while rosenbrock(x + t * p) > f0 + 1e-4 * t * (g @ p) and tries < 30:
            t, tries = t / 2, tries + 1
        s = t * p
        g_new = rosenbrock_gradient(x + s)
        y = g_new - g
        x, g = x + s, g_new
        sy = s @ y
        if not sy > 1e-12:
            skipped += 1
            continue
        rho = 1 / sy
        V = np.eye(2) - rho * np.outer(s, y)
        H = V @ H @ V.T + rho * np.outer(s, s)
    return x, skipped


def line(rng, n):
    x = rng.uniform(-1, 1, n)
    return np.column_stack([x, 0.5 + 2 * x + 0.1 * rng.normal(size=n)])


def fit(rng, n):
    t = np.linspace(0, 2, 8)
    return np.array([1.0, rng.uniform(0.2, 3.0)]), t, 2 * np.exp(-1.3 * t) + 0.05 * rng.normal(size=8), n


CASES = [
    Case(function=backtracking_descent, argnums=(0,), size=5, turns=500, arguments=lambda rng, n: (rng.uniform(-1, 1, 2), n)),
    Case(function=nelder_mead, argnums=(0,), writes=False, size=8, turns=60,
         arguments=lambda rng, n: (np.array([[0.0, 0], [1, 0], [0, 1]]) + rng.uniform(-0.3, 0.3, (3, 2)), n)),
    Case(function=lasso, argnums=(0, 1, 2), size=4, turns=200,
         arguments=lambda rng, n: (rng.normal(size=(6, 3)), rng.normal(size=6), rng.uniform(0.3, 1.5), n)),
    Case(function=adam, argnums=(0, 1), size=12, turns=500, arguments=lambda rng, n: (rng.normal(size=2), line(rng, 6), 0.3, n)),
    Case(function=annealing, argnums=(0, 1), size=12,
         arguments=lambda rng, n: (rng.normal(), rng.normal(size=n) / 2, rng.uniform(size=n), 2.0)),
    Case(function=levenberg_marquardt, argnums=(0, 2), size=6, turns=100, arguments=fit),
    Case(function=simplex_projection, argnums=(0, 1), size=8, arguments=lambda rng, n: (rng.normal(size=n), 1.0)),
    Case(function=trust_region, argnums=(0, 1), size=6, turns=300, arguments=lambda rng, n: (rng.uniform(-1, 1, 2), 0.5, n)),
    Case(function=grid_search, argnums=(0, 1, 2, 3), size=4, turns=40,
         arguments=lambda rng, n: (np.arange(5.0), rng.normal(size=5), np.linspace(-1, 1, n), np.linspace(-1, 1, 3))),
    Case(function=frank_wolfe, argnums=(0, 1), size=6, turns=300,
         arguments=lambda rng, n: (np.diag(rng.uniform(1, 3, 4)), rng.uniform(-0.3, 0.3, 4), n)),
    Case(function=bfgs_step_loop, argnums=(0,), step=1e-6, size=6, turns=100,
         arguments=lambda rng, n: (rng.uniform(-1, 1, 2), n)),
]  # fmt: skip
