"""
Draws from keys
===============

Six of the distributions of ``pb.random``, with the densities of ``scipy.stats``. The numbers depend
on the key alone: on any machine, for any number of threads, inside a compiled function or outside.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import pullback as pb

keys = pb.random.split(pb.random.key(1), 6)
n = 20_000
cases = [
    ("normal", pb.random.normal(keys[0], n), stats.norm()),
    ("gamma(2)", pb.random.gamma(keys[1], 2.0, n), stats.gamma(2)),
    ("beta(2, 5)", pb.random.beta(keys[2], 2.0, 5.0, n), stats.beta(2, 5)),
    ("t(3)", np.clip(pb.random.t(keys[3], 3.0, n), -6, 6), stats.t(3)),
    ("gumbel", pb.random.gumbel(keys[4], n), stats.gumbel_r()),
    ("wald(1)", np.minimum(pb.random.wald(keys[5], 1.0, n), 5), stats.invgauss(1)),
]

fig, axes = plt.subplots(2, 3, figsize=(8.4, 4.4))
for ax, (name, draws, distribution) in zip(axes.flat, cases, strict=True):
    ax.hist(draws, bins=80, density=True, color="0.8")
    grid = np.linspace(draws.min(), draws.max(), 300)
    ax.plot(grid, distribution.pdf(grid))
    ax.set(title=name, yticks=[])
fig.tight_layout()
