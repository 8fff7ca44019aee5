"""Bayesian linear regression: basis functions, and their precisions by maximising the evidence."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def design(x, centres, width):
    phi = np.exp(-((x[:, None] - centres) ** 2) / (2 * width**2))
    return np.hstack([np.ones((len(x), 1)), x[:, None], phi])


def log_evidence(hyper, x, t, centres):
    """Log marginal likelihood of the targets t; hyper: logarithms of prior precision, noise precision, width."""
    alpha, beta, width = np.exp(hyper)
    Phi = design(x, centres, width)
    N, M = Phi.shape
    A = alpha * np.eye(M) + beta * Phi.T @ Phi
    m = beta * np.linalg.solve(A, Phi.T @ t)
    E = 0.5 * beta * np.linalg.norm(t - Phi @ m) ** 2 + 0.5 * alpha * m @ m
    sign, logdet = np.linalg.slogdet(A)
    return 0.5 * M * np.log(alpha) + 0.5 * N * np.log(beta) - E - 0.5 * logdet - 0.5 * N * np.log(2 * np.pi)


def data(n=80, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 5, n)
    return x, np.sin(2 * x) + 0.3 * x + 0.2 * rng.normal(size=n)


def main():
    x, t = data()
    centres = np.linspace(0, 5, 12)
    ascent = pb.value_and_grad(lambda h: -log_evidence(h, x, t, centres))
    fit = minimize(ascent, np.array([0.0, 1.0, 0.0]), jac=True)
    alpha, beta, width = np.exp(fit.x)
    print(f"log evidence {-fit.fun:.3f}: alpha {alpha:.3f}, noise sd {beta**-0.5:.3f} (true 0.2), width {width:.3f}")
    Phi = design(x, centres, width)
    used = M = Phi.shape[1]
    used -= alpha * np.trace(np.linalg.inv(alpha * np.eye(M) + beta * Phi.T @ Phi))
    print(f"effective number of weights {used:.2f} of {M}")


if __name__ == "__main__":
    main()
