"""
Hamiltonian Monte Carlo on a banana
===================================

Two thousand draws from a curved density. The sampler is one compiled function: leapfrog steps with
the gradient, draws from keys, and a Python ``if`` that accepts or rejects.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def log_density(z):
    x, y = z
    return -0.5 * x**2 - 0.5 * ((y - x**2) / 0.4) ** 2


@pb.jit
def sample(key, z, n):
    draws = np.empty((n, 2))
    accepted = 0
    for k in range(n):
        first, second = pb.random.split(pb.random.fold_in(key, k))
        start = pb.random.normal(first, (2,))
        p, new = start, z
        for _ in range(12):
            p = p + 0.05 * pb.grad(log_density)(new)
            new = new + 0.1 * p
            p = p + 0.05 * pb.grad(log_density)(new)
        change = log_density(new) - log_density(z) + 0.5 * np.sum(start**2) - 0.5 * np.sum(p**2)
        if np.log(pb.random.uniform(second)) < change:
            z = new
            accepted = accepted + 1
        draws[k] = z
    return draws, accepted


draws, accepted = sample(pb.random.key(0), np.zeros(2), 2000)

x, y = np.meshgrid(np.linspace(-3, 3, 150), np.linspace(-2, 8, 150))
fig, ax = plt.subplots()
ax.plot(draws[:, 0], draws[:, 1], ".", ms=2, color="C1", alpha=0.5)
ax.contour(x, y, np.exp(log_density(np.stack([x, y]))), levels=5, colors="C0", linewidths=1)
ax.set(xlabel="x", ylabel="y", title=f"{accepted / 20:.0f} % accepted")
