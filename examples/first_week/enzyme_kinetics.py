"""Michaelis-Menten kinetics with inhibition; candidate mechanisms are compared by AIC."""

import math

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def competitive(s, i, vmax, km, ki):
    return vmax * s / (km * (1 + i / ki) + s)


def uncompetitive(s, i, vmax, km, ki):
    return vmax * s / (km + s * (1 + i / ki))


def mixed(s, i, vmax, km, ki, alpha):
    return vmax * s / (km * (1 + i / ki) + s * (1 + i / (alpha * ki)))


def aic(log_p, mechanism, runs):
    """Akaike's criterion; runs: tuples (substrate, inhibitor, rate), one for each experiment."""
    p = [math.exp(v) for v in log_p]
    residuals = [rate - mechanism(s, i, *p) for s, i, rate in runs]
    n = len(residuals)
    rss = sum(r * r for r in residuals)
    return n * math.log(rss / n) + 2 * (len(p) + 1)


def experiments(seed=0):
    rng = np.random.default_rng(seed)
    pairs = [(s, i) for i in (0.0, 1.0, 3.0) for s in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)]
    return [(s, i, competitive(s, i, 4.0, 1.2, 0.8) * (1 + 0.02 * rng.normal())) for s, i in pairs]


def main():
    runs = experiments()
    for mechanism, count in (competitive, 3), (uncompetitive, 3), (mixed, 4):
        criterion = pb.value_and_grad(aic)
        fit = minimize(criterion, np.zeros(count), args=(mechanism, runs), jac=True, method="BFGS")
        print(f"{mechanism.__name__:14s} AIC {fit.fun:8.2f}  parameters {np.exp(fit.x).round(3)}")


if __name__ == "__main__":
    main()
