"""Gaussian process regression: hyperparameters by maximising the marginal likelihood."""

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize

import pullback as pb


def rbf(a, b, amplitude, length):
    d2 = np.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)
    return amplitude**2 * np.exp(-0.5 * d2 / length**2)


def negative_log_marginal(log_params, X, y):
    amplitude, length, noise = np.exp(log_params)
    K = rbf(X, X, amplitude, length)
    K[np.diag_indices_from(K)] += noise**2 + 1e-8
    L = cholesky(K, lower=True)
    alpha = cho_solve((L, True), y)
    return 0.5 * y @ alpha + np.log(np.diag(L)).sum() + 0.5 * len(y) * np.log(2 * np.pi)


def predict(log_params, X, y, Xs):
    amplitude, length, noise = np.exp(log_params)
    L = cholesky(rbf(X, X, amplitude, length) + (noise**2 + 1e-8) * np.eye(len(X)), lower=True)
    Ks = rbf(Xs, X, amplitude, length)
    mean = Ks @ cho_solve((L, True), y)
    variance = amplitude**2 - np.sum(Ks * cho_solve((L, True), Ks.T).T, axis=1)
    return mean, np.sqrt(variance)


def observations(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 10, (n, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=n)
    return X, y


def main():
    X, y = observations()
    fit = minimize(pb.value_and_grad(negative_log_marginal), np.zeros(3), args=(X, y), jac=True)
    amplitude, length, noise = np.exp(fit.x)
    print(f"amplitude {amplitude:.3f}, length {length:.3f}, noise {noise:.3f} (true 0.1); evidence {-fit.fun:.2f}")
    Xs = np.linspace(0, 10, 5)[:, None]
    for xs, m, s in zip(Xs[:, 0], *predict(fit.x, X, y, Xs)):
        print(f"f({xs:4.1f}) = {m:6.3f} ± {s:.3f}   sin {np.sin(xs):6.3f}")


if __name__ == "__main__":
    main()
