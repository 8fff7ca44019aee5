"""
A Poisson regression with its band of confidence
================================================

Counts that grow with a covariate are fitted by maximum likelihood. The Hessian at the optimum gives
the covariance of the weights, and ``pb.jacfwd`` carries it to the curve.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def rate(w, t):
    return np.exp(w[0] + w[1] * t + w[2] * t**2)


def loss(w, t, counts):
    return np.sum(rate(w, t) - counts * np.log(rate(w, t)))


rng = np.random.default_rng(1)
t = np.sort(rng.uniform(-1, 2, 80))
counts = rng.poisson(rate(np.array([0.5, 1.0, -0.2]), t))

best = minimize(pb.value_and_grad(loss), np.zeros(3), args=(t, counts), jac=True).x
covariance = np.linalg.inv(pb.hessian(loss)(best, t, counts))

grid = np.linspace(-1, 2, 100)
curve = rate(best, grid)
slopes = pb.jacfwd(rate)(best, grid)
band = 2 * np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes))

fig, ax = plt.subplots()
ax.plot(t, counts, ".", color="0.5", label="counts")
ax.plot(grid, curve, label="rate")
ax.fill_between(grid, curve - band, curve + band, alpha=0.25, label="two standard errors")
ax.set(xlabel="covariate", ylabel="events")
ax.legend()
