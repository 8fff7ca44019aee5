"""
Particles in a landscape
========================

A thousand particles follow the gradient of an energy with three valleys, pushed by noise. Their
cloud settles into the density that the energy implies.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb

CENTRES = np.array([[-1.5, 0.0], [1.5, 0.5], [0.0, -1.5]])


def energy(z):
    return -np.log(np.sum(np.exp(-2 * np.sum((z - CENTRES) ** 2, axis=1))) + 1e-9) + 0.05 * np.sum(z**2)


force = pb.vmap(pb.grad(energy))


@pb.jit
def move(key, z, n):
    for k in range(n):
        noise = pb.random.normal(pb.random.fold_in(key, k), z.shape)
        z = z - 0.01 * force(z) + np.sqrt(0.02) * noise
    return z


key = pb.random.key(0)
start = np.zeros((1000, 2)) + np.array([0.0, 2.5])
axis = np.linspace(-3, 3, 80)
grid = np.stack(np.meshgrid(axis, axis), axis=-1)
heights = pb.vmap(energy)(grid.reshape(-1, 2)).reshape(80, 80)

fig, axes = plt.subplots(1, 3, figsize=(8.4, 3), sharey=True)
for ax, n in zip(axes, (5, 60, 1500), strict=True):
    z = move(key, start, n)
    ax.contourf(axis, axis, heights, levels=20, cmap="Blues_r")
    ax.plot(z[:, 0], z[:, 1], ".", ms=1.5, color="C1")
    ax.set(title=f"{n} steps", xlim=(-3, 3), ylim=(-3, 3))
