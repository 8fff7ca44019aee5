"""
What was it before it melted?
=============================

Heat flows for two hundred steps, and only the end is seen. The gradient through the steps finds a
start that leads there.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def flow(u, steps):
    for _ in range(steps):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + 0.2 * (around - 4 * u)
    return u


def loss(vector, seen):
    start = vector.reshape(seen.shape)
    return np.sum((flow(start, 200) - seen) ** 2)


y, x = np.mgrid[-1:1:48j, -1:1:48j]
truth = ((np.hypot(x, y) < 0.75) & (np.hypot(x, y) > 0.45) | (np.hypot(x - 0.2, y) < 0.15)).astype(float)
seen = pb.jit(flow)(truth, 200)

bounds = [(0, 1)] * truth.size
start = np.full(truth.size, 0.5)
result = minimize(pb.value_and_grad(loss), start, args=(seen,), jac=True, bounds=bounds, options={"maxiter": 150})

fig, axes = plt.subplots(1, 3, figsize=(8.4, 3))
images = {"start": truth, "end, as seen": seen, "start, recovered": result.x.reshape(truth.shape)}
for ax, (title, image) in zip(axes, images.items(), strict=True):
    ax.imshow(image, cmap="inferno", vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
fig.tight_layout()
