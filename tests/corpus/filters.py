"""Recursive filters of time series: EWMA, AR, GARCH with bounds, Kalman, IIR, Holt-Winters, Welford, PID."""

import numpy as np

from tests.corpus.case import Case


def ewma(x, alpha):
    """Exponentially weighted moving average, seeded with the first sample."""
    y = np.zeros_like(x)
    for t in range(len(x)):
        if t == 0:
            y[t] = x[t]
        else:
            y[t] = alpha * x[t] + (1 - alpha) * y[t - 1]
    return y


def ar_filter(x, phi):
    """Residuals of an autoregression of any order."""
    n, p = len(x), len(phi)
    resid = np.zeros(n)
    for t in range(n):
        pred = 0.0
        for j in range(p):
            if t - 1 - j >= 0:
                pred += phi[j] * x[t - 1 - j]
        resid[t] = x[t] - pred
    return resid


def garch_likelihood(params, returns, var_bounds):
    """Negative log likelihood of GARCH(1, 1), with the variance kept within bounds as in the arch package."""
    omega, alpha, beta = params
    nobs = returns.shape[0]
    sigma2 = np.zeros(nobs)
    backcast = np.mean(returns**2)
    llf = 0.0
    for t in range(nobs):
        sigma2[t] = omega
        sigma2[t] += alpha * (returns[t - 1] ** 2 if t > 0 else backcast)
        sigma2[t] += beta * (sigma2[t - 1] if t > 0 else backcast)
        if sigma2[t] < var_bounds[t, 0]:
            sigma2[t] = var_bounds[t, 0]
        elif sigma2[t] > var_bounds[t, 1]:
            sigma2[t] = var_bounds[t, 1] + np.log(sigma2[t] / var_bounds[t, 1])
        llf += 0.5 * (np.log(2 * np.pi) + np.log(sigma2[t]) + returns[t] ** 2 / sigma2[t])
    return llf


def gjr_variance(resids, omega, alpha, gamma, beta):
    """Conditional variance with a leverage term for negative shocks."""
    h = [omega / (1 - alpha - gamma / 2 - beta)]
    for e in resids[:-1]:
        leverage = gamma * e**2 if e < 0 else 0.0
        h.append(omega + alpha * e**2 + leverage + beta * h[-1])
    return np.array(h)


def kalman_local_level(y, q, r):
    """Log likelihood and filtered level; missing samples are coded as values below -1e5."""
    a, P = y[0], 1.0
    loglik = 0.0
    level = np.empty(len(y))
    for t, obs in enumerate(y):
        P = P + q
        if obs < -1e5:
            level[t] = a
            continue
        F = P + r
        v = obs - a
        K = P / F
        a = a + K * v
        P = (1 - K) * P
        loglik -= 0.5 * (np.log(2 * np.pi * F) + v * v / F)
        level[t] = a
    return loglik, level


class KalmanFilter:
    """A linear filter with its state."""

    def __init__(self, F, H, Q, R):
        self.F, self.H, self.Q, self.R = F, H, Q, R
        self.x = np.zeros(F.shape[0])
        self.P = np.eye(F.shape[0])

    def predict(self):
        self.x = self.F @ self.x
        self.P = self.F @ self.P @ self.F.T + self.Q

    def update(self, z):
        y = z - self.H @ self.x
        S = self.H @ self.P @ self.H.T + self.R
        d2 = y @ np.linalg.solve(S, y)
        if d2 > 9.0:
            return False
        K = self.P @ self.H.T @ np.linalg.inv(S)
        self.x = self.x + K @ y
        self.P = (np.eye(len(self.x)) - K @ self.H) @ self.P
        return True


def track(zs, q, dt):
    """Positions of a target of constant velocity; measurements too far away are rejected."""
    F = np.array([[1.0, dt], [0.0, 1.0]])
    H = np.array([[1.0, 0.0]])
    Q = q * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    kf = KalmanFilter(F, H, Q, np.array([[0.1]]))
    kf.x = np.array([zs[0], 0.0])
    states, rejected = [], 0
    for z in zs:
        kf.predict()
        if not kf.update(np.array([z])):
            rejected += 1
        states.append(kf.x)
    return np.array(states), rejected


def rts_smoother(y, phi, q, r):
    """Filter forwards, then Rauch-Tung-Striebel backwards."""
    n = len(y)
    m, P = np.zeros(n), np.zeros(n)
    mp, Pp = np.zeros(n), np.zeros(n)
    mean, var = 0.0, q / (1 - phi**2)
    for k in range(n):
        mp[k] = phi * mean
        Pp[k] = phi**2 * var + q
        gain = Pp[k] / (Pp[k] + r)
        mean = mp[k] + gain * (y[k] - mp[k])
        var = Pp[k] - gain * Pp[k]
        m[k], P[k] = mean, var
    ms, Ps = m.copy(), P.copy()
    for k in range(n - 2, -1, -1):
        G = P[k] * phi / Pp[k + 1]
        ms[k] = m[k] + G * (ms[k + 1] - mp[k + 1])
        Ps[k] = P[k] + G**2 * (Ps[k + 1] - Pp[k + 1])
    return ms, Ps


def biquad(x, b, a):
    """Second-order IIR filter, direct form II transposed."""
    z1 = z2 = 0.0
    y = np.zeros(len(x))
    for i, xi in enumerate(x):
        yi = b[0] * xi + z1
        z1 = b[1] * xi - a[1] * yi + z2
        z2 = b[2] * xi - a[2] * yi
        y[i] = yi
    return y


def lfilter_direct(b, a, x):
    """Any order, by the difference equation."""
    y = np.zeros(len(x))
    for n in range(len(x)):
        for k in range(min(n + 1, len(b))):
            y[n] += b[k] * x[n - k]
        for k in range(1, min(n + 1, len(a))):
            y[n] -= a[k] * y[n - k]
        y[n] /= a[0]
    return y


def holt_winters(series, alpha, beta, gamma, m):
    """Additive triple exponential smoothing; the sum of squared errors and a forecast of one season."""
    level = np.mean(series[:m])
    trend = (np.mean(series[m:2 * m]) - np.mean(series[:m])) / m
    season = [series[i] - level for i in range(m)]
    sse = 0.0
    for t in range(m, len(series)):
        s = season[t % m]
        err = series[t] - (level + trend + s)
        sse += err**2
        last = level
        level = alpha * (series[t] - s) + (1 - alpha) * (level + trend)
        trend = beta * (level - last) + (1 - beta) * trend
        season[t % m] = gamma * (series[t] - level) + (1 - gamma) * s
    return sse, np.array([level + (h + 1) * trend + season[h] for h in range(m)])


def welford(x):
    """Count, mean, variance and skewness in one pass."""
    count, mean, M2, M3 = 0, 0.0, 0.0, 0.0
    for value in x:
        count += 1
        delta = value - mean
        delta_n = delta / count
        term = delta * delta_n * (count - 1)
        mean += delta_n
        M3 += term * delta_n * (count - 2) - 3 * delta_n * M2
        M2 += term
    if count < 2:
        return count, mean, 0.0, 0.0
    return count, mean, M2 / (count - 1), np.sqrt(count) * M3 / M2**1.5


class PID:
    """A controller with a limited output and anti-windup."""

    def __init__(self, kp, ki, kd, lo, hi):
        self.kp, self.ki, self.kd = kp, ki, kd
        self.lo, self.hi = lo, hi
        self.integral = 0.0
        self.previous = None

    def __call__(self, error, dt):
        derivative = 0.0 if self.previous is None else (error - self.previous) / dt
        self.previous = error
        u = self.kp * error + self.ki * self.integral + self.kd * derivative
        if u > self.hi:
            return self.hi
        if u < self.lo:
            return self.lo
        self.integral += error * dt
        return u


def pid_response(setpoints, gains, dt):
    """A first-order plant under a saturated PID controller."""
    kp, ki, kd = gains
    controller = PID(kp, ki, kd, -1.0, 2.0)
    x = 0.0
    history = []
    for sp in setpoints:
        u = controller(sp - x, dt)
        x += dt * (-x + u)
        history.append((x, u))
    return np.array(history)


def alpha_beta_max(x, decay):
    """Peak follower: rises at once, decays exponentially, with a hold of three samples."""
    env, hold = 0.0, 0
    out = np.zeros(x.shape)
    for i in range(x.shape[0]):
        mag = abs(x[i])
        if mag >= env:
            env, hold = mag, 3
        elif hold > 0:
            hold -= 1
        else:
            env *= decay
        out[i] = env
    return out


def missing(rng, n):
    y = np.cumsum(rng.normal(size=n))
    y[rng.integers(1, n, 2)] = -999999.0
    return y


def jumps(rng, n):
    y = np.linspace(0, 3, n) + 0.1 * rng.normal(size=n)
    y[rng.integers(2, n)] += 20
    return y


def var_bounds(rng, n):
    return np.stack([rng.uniform(0.05, 0.3, n), rng.uniform(0.4, 1.5, n)], axis=1)


CASES = [
    Case(function=ewma, arguments=lambda rng, n: (rng.normal(size=n), 0.3), argnums=(0, 1)),
    Case(function=ar_filter, arguments=lambda rng, n: (rng.normal(size=n), np.array([0.5, -0.3, 0.1])), argnums=(0, 1)),
    Case(function=garch_likelihood, argnums=(0, 1),
         arguments=lambda rng, n: (np.array([0.05, 0.2, 0.7]), rng.normal(size=n), var_bounds(rng, n))),
    Case(function=gjr_variance, arguments=lambda rng, n: (rng.normal(size=n), 0.1, 0.05, 0.1, 0.8), argnums=(0, 1, 2, 3, 4)),
    Case(function=kalman_local_level, arguments=lambda rng, n: (missing(rng, n), 0.2, 0.5), argnums=(1, 2)),
    Case(function=track, arguments=lambda rng, n: (jumps(rng, n), 0.3, 0.5), size=6, turns=500, argnums=(0, 1)),
    Case(function=rts_smoother, arguments=lambda rng, n: (rng.normal(size=n), 0.8, 0.3, 0.5), size=8, argnums=(0, 1, 2, 3)),
    Case(function=biquad, argnums=(0, 1, 2),
         arguments=lambda rng, n: (rng.normal(size=n), np.array([0.2, 0.4, 0.2]), np.array([1.0, -0.6, 0.2]))),
    Case(function=lfilter_direct, argnums=(0, 1, 2), size=8,
         arguments=lambda rng, n: (np.array([0.2, 0.4, 0.2]), np.array([2.0, -0.6, 0.2]), rng.normal(size=n))),
    Case(function=holt_winters, argnums=(0, 1, 2, 3), size=16,
         arguments=lambda rng, n: (3 + rng.normal(size=n), 0.4, 0.2, 0.3, 4)),
    Case(function=welford, arguments=lambda rng, n: (rng.normal(size=n),), argnums=(0,)),
    Case(function=pid_response, argnums=(0, 1), size=20, kinks="a saturated sample has no slope by the gains",
         arguments=lambda rng, n: (np.repeat(rng.uniform(0.3, 1.5, 4), n // 4), np.array([3.0, 1.2, 0.1]), 0.1)),
    Case(function=alpha_beta_max, arguments=lambda rng, n: (rng.normal(size=n), 0.9), argnums=(0, 1)),
]  # fmt: skip
