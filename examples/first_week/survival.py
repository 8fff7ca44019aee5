"""Survival of patients: Cox's partial likelihood and a Weibull model with censoring."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def cox_loss(beta, X, time, event):
    """Negative log partial likelihood; subjects in order of decreasing time, so that those at risk come first."""
    assert len(time) == len(event) == len(X), f"{len(X)} subjects, {len(time)} times, {len(event)} events"
    eta = X @ beta
    eta = eta - eta.max()
    log_risk = np.log(np.cumsum(np.exp(eta)))
    return -np.sum(np.where(event, eta - log_risk, 0))


def weibull_loss(p, X, time, event):
    """Accelerated failure times; p: coefficients, intercept, log of the shape."""
    *coefficients, intercept, log_shape = p
    shape = np.exp(log_shape)
    eta = intercept + sum(c * column for c, column in zip(coefficients, X.T))
    z = shape * (np.log(time) - eta)
    log_hazard = log_shape - np.log(time) + z
    return -np.sum(event * log_hazard - np.exp(z))


def cohort(n=300, seed=8):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), rng.integers(0, 2, n)])
    life = np.exp(2.0 - X @ [0.5, -0.4] + np.log(rng.exponential(size=n)) / 1.6)
    censored = rng.uniform(2, 20, n)
    time, event = np.minimum(life, censored), life <= censored
    order = np.argsort(-time)
    return X[order], time[order], event[order]


def main():
    X, time, event = cohort()
    print(f"{len(time)} patients, {event.sum()} deaths")
    cox = minimize(pb.value_and_grad(cox_loss), np.zeros(2), args=(X, time, event), jac=True)
    print(f"Cox      log hazard ratios {cox.x.round(3)}  (true {1.6 * np.array([0.5, -0.4])})")
    aft = minimize(pb.value_and_grad(weibull_loss), np.zeros(4), args=(X, time, event), jac=True)
    print(f"Weibull  effects {-aft.x[:2].round(3)}, intercept {aft.x[2]:.3f}, shape {np.exp(aft.x[3]):.3f} (true 1.6)")


if __name__ == "__main__":
    main()
