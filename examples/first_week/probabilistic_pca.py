"""Probabilistic PCA by gradients, compared with the closed-form answer from the SVD."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def nll(W, log_s2, S, n):
    """Negative log-likelihood of n centred points with sample covariance S under N(0, W W' + s2 I)."""
    d, k = W.shape
    C = W @ W.T + np.exp(log_s2) * np.identity(d)
    return 0.5 * n * (d * np.log(2 * np.pi) + np.linalg.slogdet(C)[1] + np.trace(np.linalg.solve(C, S)))


def objective(flat, S, n, k):
    d = S.shape[0]
    return nll(np.reshape(flat[:-1], (d, k)), flat[-1], S, n) / n


def closed_form(S, k):
    values, vectors = np.linalg.eigh(S)
    s2 = values[:-k].mean()
    return vectors[:, -k:] * np.sqrt(values[-k:] - s2), np.log(s2)


def sample(n=300, d=8, k=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, k)) @ rng.normal(size=(k, d)) + 0.3 * rng.normal(size=(n, d))
    x -= x.mean(axis=0)
    return x.T @ x / n, n


def main():
    S, n = sample()
    k = 2
    rng = np.random.default_rng(1)
    start = np.append(rng.normal(size=len(S) * k), 0.0)
    fit = minimize(pb.value_and_grad(objective), start, args=(S, n, k), jac=True, method="BFGS")
    W, log_s2 = closed_form(S, k)
    exact = nll(W, log_s2, S, n) / n
    print(f"by gradients {fit.fun:.8f}, noise {np.exp(fit.x[-1] / 2):.4f}, {fit.nit} steps")
    print(f"by the SVD   {exact:.8f}, noise {np.exp(log_s2 / 2):.4f}")


if __name__ == "__main__":
    main()
