"""
Magnets that agree
==================

Metropolis' algorithm for the Ising model, as it is written down: three nested Python loops over
sweeps, rows and columns, and an ``if``. Below the critical temperature of 2.27 the spins order.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


@pb.jit
def sweep(spins, key, temperature, sweeps):
    n = len(spins)
    for s in range(sweeps):
        chance = pb.random.uniform(pb.random.fold_in(key, s), (n, n))
        for i in range(n):
            for j in range(n):
                around = spins[i - 1, j] + spins[(i + 1) % n, j] + spins[i, j - 1] + spins[i, (j + 1) % n]
                if chance[i, j] < np.exp(-2 * spins[i, j] * around / temperature):
                    spins[i, j] = -spins[i, j]
    return spins


rng = np.random.default_rng(5)
start = rng.choice([-1.0, 1.0], size=(128, 128))

fig, axes = plt.subplots(1, 3, figsize=(8.4, 3.1))
for ax, temperature in zip(axes, (1.8, 2.27, 3.0), strict=True):
    spins = sweep(start.copy(), pb.random.key(7), temperature, 300)
    ax.imshow(spins, cmap="binary", interpolation="nearest")
    ax.set(title=f"temperature {temperature}", xticks=[], yticks=[])
fig.tight_layout()
