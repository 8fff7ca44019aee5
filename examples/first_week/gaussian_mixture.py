"""A mixture of Gaussians by gradient ascent on its likelihood, with full covariances."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

import pullback as pb

K, D = 3, 2


def unpack(theta):
    logits, mu, chol = np.split(theta, [K, K + K * D])
    L = np.zeros((K, D, D))
    rows, cols = np.tril_indices(D)
    L[:, rows, cols] = chol.reshape(K, -1)
    diag = np.arange(D)
    L[:, diag, diag] = np.exp(L[:, diag, diag])
    return logits - logsumexp(logits), mu.reshape(K, D), L


def log_density(theta, x):
    """log p(x, k) for each point and component; L is the Cholesky factor of the precision."""
    log_pi, mu, L = unpack(theta)
    d = x[:, None, :] - mu
    z = np.einsum("nkd,kde->nke", d, L)
    log_det = np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    return log_pi + log_det - 0.5 * np.sum(z**2, axis=2) - 0.5 * D * np.log(2 * np.pi)


def loss(theta, x):
    return -np.mean(logsumexp(log_density(theta, x), axis=1))


def points(n=400, seed=1):
    rng = np.random.default_rng(seed)
    label = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    centre = np.array([[0, 0], [3, 1], [-2, 3]])
    return centre[label] + rng.normal(size=(n, 2)) * np.array([1.0, 0.5, 0.7])[label, None], label


def main():
    x, label = points()
    rng = np.random.default_rng(0)
    theta = np.concatenate([np.zeros(K), x[rng.choice(len(x), K)].ravel(), np.tile([0.0, 0.0, 0.0], K)])
    fit = minimize(pb.value_and_grad(loss), theta, args=(x,), jac=True, method="L-BFGS-B")
    log_pi, mu, _ = unpack(fit.x)
    for k in np.argsort(-log_pi):
        print(f"weight {np.exp(log_pi[k]):.3f}  centre {mu[k].round(2)}")
    print(f"mean log-likelihood {-fit.fun:.4f} after {fit.nit} steps")


if __name__ == "__main__":
    main()
