"""Poisson regression with an exposure offset: insurance claims by age, power of the car and region."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

import pullback as pb


def log_likelihood(beta, X, y, offset):
    eta = X.dot(beta) + offset
    return (y * eta - np.exp(eta) - gammaln(y + 1)).sum()


def penalised_loss(beta, X, y, offset, ridge=1e-5):
    return -log_likelihood(beta, X, y, offset) / len(y) + ridge * np.dot(beta[1:], beta[1:])


def deviance(beta, X, y, offset):
    mu = np.exp(X @ beta + offset)
    return 2 * np.sum(np.where(y > 0, y * np.log(np.maximum(y, 1) / mu), 0.0) - (y - mu))


def simulate(n=5000, seed=0):
    rng = np.random.default_rng(seed)
    age, power, region = rng.uniform(18, 80, n), rng.gamma(4, 20, n), rng.integers(0, 4, n)
    X = np.column_stack([np.ones(n), (age - 45) / 15, np.log(power / 80), region == 1, region == 2, region == 3])
    offset = np.log(rng.uniform(0.1, 1.0, n))
    beta = np.array([-1.5, -0.3, 0.4, 0.2, -0.1, 0.5])
    y = rng.poisson(np.exp(X @ beta + offset))
    return X, y, offset, beta


def main():
    X, y, offset, true_beta = simulate()
    objective = pb.value_and_grad(penalised_loss)
    fit = minimize(objective, np.zeros(X.shape[1]), args=(X, y, offset), jac=True, method="BFGS")
    names = ["intercept", "age", "log power", "region 1", "region 2", "region 3"]
    for name, estimate, truth in zip(names, fit.x, true_beta):
        print(f"{name:10s} {estimate:8.3f}   (true {truth:5.2f})")
    print(f"deviance {deviance(fit.x, X, y, offset):.1f} on {len(y) - len(fit.x)} degrees of freedom, {fit.nit} steps")


if __name__ == "__main__":
    main()
