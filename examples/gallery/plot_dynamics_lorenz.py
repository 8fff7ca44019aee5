"""
How fast Lorenz's attractor forgets
===================================

A trajectory of Lorenz's equations, and the length of a small displacement that is carried along it
by forward mode. The slope of its logarithm is the largest Lyapunov exponent.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def step(z):
    """One Euler step of 1 ms."""
    x, y, w = z
    return z + 1e-3 * np.array([10 * (y - x), x * (28 - w) - y, x * y - 8 / 3 * w])


@pb.jit
def run(z, n):
    path = np.empty((n, 3))
    growth = np.empty(n)
    along, total = np.array([1.0, 0.0, 0.0]), 0.0
    for k in range(n):
        z, along = pb.jvp(step, (z,), (along,))
        length = np.sqrt(np.sum(along**2))
        along = along / length
        total = total + np.log(length)
        path[k] = z
        growth[k] = total
    return path, growth


path, growth = run(np.array([1.0, 1.0, 20.0]), 40_000)
t = np.arange(len(growth)) * 1e-3
exponent = np.polyfit(t[5000:], growth[5000:], 1)[0]

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4))
left.plot(path[:, 0], path[:, 2], lw=0.3)
left.set(xlabel="x", ylabel="z")
right.plot(t, growth)
right.set(xlabel="time", ylabel="log of the displacement", title=f"exponent {exponent:.2f}")
fig.tight_layout()
