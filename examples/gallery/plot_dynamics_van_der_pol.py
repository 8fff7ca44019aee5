"""
The phase portrait of van der Pol's oscillator
==============================================

Four hundred trajectories are integrated at once: a Python loop of Runge-Kutta steps for one, and
``pb.vmap`` for all. Whatever the start, they end on one cycle.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def flow(z):
    x, v = z
    return np.array([v, 1.5 * (1 - x**2) * v - x])


def trajectory(z):
    path = np.empty((1000, 2))
    for k in range(1000):
        a = flow(z)
        b = flow(z + 0.01 * a)
        c = flow(z + 0.01 * b)
        d = flow(z + 0.02 * c)
        z = z + 0.02 / 6 * (a + 2 * b + 2 * c + d)
        path[k] = z
    return path


starts = np.stack(np.meshgrid(np.linspace(-4, 4, 20), np.linspace(-4, 4, 20)), axis=-1).reshape(-1, 2)
paths = pb.vmap(trajectory)(starts)

fig, ax = plt.subplots(figsize=(5, 4.5))
ax.plot(paths[:, :150, 0].T, paths[:, :150, 1].T, color="C0", lw=0.4, alpha=0.5)
ax.plot(paths[0, 500:, 0], paths[0, 500:, 1], color="C3", lw=2)
ax.set(xlim=(-4, 4), ylim=(-6, 6), xlabel="position", ylabel="velocity")
