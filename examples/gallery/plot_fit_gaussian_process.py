"""
A Gaussian process learns its length scale
==========================================

The marginal likelihood of a Gaussian process is differentiated through the Cholesky factor and the
solves. A quasi-Newton method finds the scales that explain the data.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def kernel(log_scales, a, b):
    height, length, _ = np.exp(log_scales)
    return height**2 * np.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)


def loss(log_scales, x, y):
    """Negative log marginal likelihood; log_scales (3,): height, length, noise."""
    covariance = kernel(log_scales, x, x) + np.exp(2 * log_scales[2]) * np.eye(len(x))
    lower = np.linalg.cholesky(covariance)
    z = np.linalg.solve(lower, y)
    return 0.5 * np.sum(z**2) + np.sum(np.log(np.diag(lower)))


rng = np.random.default_rng(2)
x = np.sort(rng.uniform(0, 10, 40))
y = np.sin(x) * np.exp(-0.1 * x) + rng.normal(0, 0.1, x.size)

result = minimize(pb.value_and_grad(loss), np.zeros(3), args=(x, y), jac=True)
grid = np.linspace(-1, 11, 200)


@pb.jit
def predict(log_scales, x, y, grid):
    covariance = kernel(log_scales, x, x) + np.exp(2 * log_scales[2]) * np.eye(len(x))
    cross = kernel(log_scales, grid, x)
    mean = cross @ np.linalg.solve(covariance, y)
    variance = np.exp(2 * log_scales[0]) - np.sum(cross * np.linalg.solve(covariance, cross.T).T, axis=1)
    return mean, np.sqrt(np.maximum(variance, 0))


fig, (left, right) = plt.subplots(1, 2, sharey=True, figsize=(8, 3.4))
for ax, scales, title in ((left, np.zeros(3), "before"), (right, result.x, "after")):
    mean, deviation = predict(scales, x, y, grid)
    ax.plot(x, y, "k.", ms=4)
    ax.plot(grid, mean)
    ax.fill_between(grid, mean - 2 * deviation, mean + 2 * deviation, alpha=0.25)
    ax.set(title=f"{title}: length {np.exp(scales[1]):.2f}, noise {np.exp(scales[2]):.2f}", xlabel="x")
