"""
Basins of Newton's method
=========================

Newton's method for z³ = 1 in the plane, with the Jacobian from ``pb.jacfwd``. The colour is the
root that is reached, the shade the number of steps that it takes.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def cubic(z):
    """z³ - 1 for z = x + iy, as two real numbers."""
    x, y = z
    return np.array([x**3 - 3 * x * y**2 - 1, 3 * x**2 * y - y**3])


def newton(z):
    steps = 0
    while steps < 40 and np.sum(cubic(z) ** 2) > 1e-12:
        z = z - np.linalg.solve(pb.jacfwd(cubic)(z), cubic(z))
        steps = steps + 1
    return np.arctan2(z[1], z[0]), steps


axis = np.linspace(-1.6, 1.6, 300) + 1e-9
starts = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
angles, steps = pb.vmap(newton)(starts)

fig, ax = plt.subplots(figsize=(4.6, 4.6))
ax.imshow(np.round(angles / (2 * np.pi / 3)).reshape(300, 300), cmap="Set2", extent=(-1.6, 1.6, -1.6, 1.6), origin="lower")
ax.imshow(np.minimum(steps, 15).reshape(300, 300), cmap="Greys", alpha=0.45, extent=(-1.6, 1.6, -1.6, 1.6), origin="lower")
ax.set(xlabel="real part", ylabel="imaginary part")
