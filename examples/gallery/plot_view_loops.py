"""
What became of two loops
========================

Two loops, one in the other, over the particles of a chain, and a short one. The page says which loops are
loops of the program, which are unrolled and why, and links each to its line.
"""

import numpy as np

import pullback as pb


def energy(x, charge):
    total = 0.0
    for i in range(len(x)):
        for j in range(i):
            r = np.sqrt((x[i] - x[j]) ** 2 + 0.01)
            total += charge[i] * charge[j] / r
    for power in (2, 4):
        total += 0.01 * np.sum(x**power)
    return total


rng = np.random.default_rng(0)
x, charge = np.sort(rng.normal(size=60)), np.ones(60)

page = pb.value_and_grad(energy).view(x, charge)
print(page)
