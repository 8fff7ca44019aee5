"""A local linear trend: the Kalman filter's likelihood gives the noise variances."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def filter_loglik(log_var, y):
    """Log-likelihood and filtered states. log_var: of the level, the slope and the observation."""
    q_level, q_slope, r = np.exp(log_var)
    F = np.array([[1.0, 1.0], [0.0, 1.0]])
    H = np.array([[1.0, 0.0]])
    Q = np.diag([q_level, q_slope])
    m = np.array([y[0], 0.0])
    P = 10.0 * np.eye(2)
    ll, states = 0.0, []
    for obs in y:
        m, P = F @ m, F @ P @ F.T + Q
        S = H @ P @ H.T + r
        v = obs - H @ m
        K = P @ H.T @ np.linalg.inv(S)
        m = m + K @ v
        P = (np.eye(2) - K @ H) @ P
        ll -= 0.5 * (np.log(2 * np.pi * S[0, 0]) + v[0] ** 2 / S[0, 0])
        states.append(m)
    return ll, np.array(states)


def objective(log_var, y):
    return -filter_loglik(log_var, y)[0]


def series(n=50, seed=4):
    rng = np.random.default_rng(seed)
    slope = np.cumsum(0.1 * rng.normal(size=n))
    level = np.cumsum(slope + 0.3 * rng.normal(size=n))
    return level + 1.0 * rng.normal(size=n)


def main():
    y = series()
    fit = minimize(pb.value_and_grad(objective), np.zeros(3), args=(y,), jac=True, bounds=[(-12, 5)] * 3)
    print(f"log-likelihood {-fit.fun:.3f} after {fit.nfev} filters")
    for name, sd, true in zip(["level", "slope", "observation"], np.exp(fit.x / 2), [0.3, 0.1, 1.0]):
        print(f"sd of {name:12s} {sd:.3f}  (true {true})")
    states = filter_loglik(fit.x, y)[1]
    print("last level and slope:", states[-1].round(3))


if __name__ == "__main__":
    main()
