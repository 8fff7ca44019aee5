"""
Quantiles of a growing spread
=============================

Nine quantiles of a scatter are fitted at once by the pinball loss, a maximum of two lines. Its
derivative at the kink is one of the two slopes, which is all that the optimiser needs.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb

levels = np.linspace(0.1, 0.9, 9)


def curves(w, x):
    """Weights w (4, 9): a cubic for each level."""
    return np.stack([np.ones_like(x), x, x**2, x**3], axis=1) @ w


def loss(w, x, y):
    miss = y[:, None] - curves(w, x)
    return np.mean(np.maximum(levels * miss, (levels - 1) * miss))


rng = np.random.default_rng(4)
x = rng.uniform(-1, 1, 600)
y = np.sin(3 * x) + (0.2 + 0.3 * (x + 1)) * rng.normal(size=x.size)

slope = pb.grad(loss)
best = pb.optimizers.adam(lambda w, i: slope(w, x, y), np.zeros((4, 9)), num_iters=3000, step_size=0.01)

grid = np.linspace(-1, 1, 100)
fig, ax = plt.subplots()
ax.plot(x, y, ".", ms=3, color="0.7")
for level, curve in zip(levels, curves(best, grid).T, strict=True):
    ax.plot(grid, curve, color=plt.cm.viridis(level), lw=1.2)
ax.set(xlabel="x", ylabel="y", title="quantiles from 0.1 to 0.9")
