"""
Two peaks on a background
=========================

A spectrum of two overlapping lines is fitted by least squares. ``pb.value_and_grad`` returns the
pair that ``scipy.optimize.minimize`` takes with ``jac=True``, and ``pb.hessian`` the errors of the
parameters.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def spectrum(p, x):
    """Parameters p (8,): two heights, centres and widths, then offset and slope of the background."""
    peaks = p[0:2, None] * np.exp(-(((x - p[2:4, None]) / p[4:6, None]) ** 2))
    return np.sum(peaks, axis=0) + p[6] + p[7] * x


def loss(p, x, y, sigma):
    return 0.5 * np.sum(((spectrum(p, x) - y) / sigma) ** 2)


rng = np.random.default_rng(0)
truth = np.array([1.0, 0.6, 4.2, 5.6, 0.5, 0.8, 0.2, 0.03])
x = np.linspace(0, 10, 200)
y = spectrum(truth, x) + rng.normal(0, 0.05, x.size)

start = np.array([1.0, 1.0, 4.0, 6.0, 1.0, 1.0, 0.0, 0.0])
best = minimize(pb.value_and_grad(loss), start, args=(x, y, 0.05), jac=True).x
errors = np.sqrt(np.diag(np.linalg.inv(pb.hessian(loss)(best, x, y, 0.05))))

fig, ax = plt.subplots()
ax.plot(x, y, ".", color="0.6", label="data")
ax.plot(x, spectrum(best, x), label="fit")
for k in (0, 1):
    ax.axvline(best[2 + k], color=f"C{k + 1}", lw=1, label=f"centre {best[2 + k]:.2f} ± {errors[2 + k]:.2f}")
ax.set(xlabel="energy", ylabel="counts")
ax.legend()
