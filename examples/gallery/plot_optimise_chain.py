"""
A chain finds its shape
=======================

Sixty links with springs hang between two nails and over a peg; the shape is the minimum of the
energy. Each line is a state on the way there.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb

ends = np.array([[0.0, 0.0], [3.0, 0.4]])
peg, radius = np.array([1.2, -0.9]), 0.45


def energy(vector):
    points = np.concatenate([ends[:1], vector.reshape(-1, 2), ends[1:]])
    lengths = np.sqrt(np.sum(np.diff(points, axis=0) ** 2, axis=1))
    depth = np.maximum(radius - np.sqrt(np.sum((points - peg) ** 2, axis=1)), 0)
    return np.sum(points[:, 1]) + 2e3 * np.sum((lengths - 0.08) ** 2) + 1e3 * np.sum(depth**2)


line = np.linspace(ends[0], ends[1], 61)[1:-1]
states = [line.ravel()]
options = {"maxiter": 1000, "maxfun": 1500}
minimize(pb.value_and_grad(energy), states[0], jac=True, method="L-BFGS-B", callback=states.append, options=options)

fig, ax = plt.subplots(figsize=(5.6, 4.4))
chosen = [0, 20, 40, 60, 80, 120, 200, len(states) - 1]
for k in (k for k in chosen if k < len(states)):
    points = np.concatenate([ends[:1], states[k].reshape(-1, 2), ends[1:]])
    last = k == len(states) - 1
    ax.plot(*points.T, color="C3" if last else plt.cm.Blues(0.3 + 0.1 * chosen.index(k)), lw=2 if last else 1)
ax.add_patch(plt.Circle(peg, radius, color="0.8"))
ax.plot(*ends.T, "k^")
ax.set(aspect="equal")
