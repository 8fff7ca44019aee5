"""
Speed by size
=============

Value and gradient of a logistic regression: compiled, and written by hand in NumPy, for 10 to a
million rows. The compiled one has no overhead of Python at small sizes, and no temporaries at large
ones.
"""

import timeit

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def loss(w, x, y):
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z)


def by_hand(w, x, y):
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z), (1 / (1 + np.exp(-z)) - y) @ x / len(y)


compiled = pb.value_and_grad(loss)
rng = np.random.default_rng(0)
sizes = [10, 100, 1_000, 10_000, 100_000, 1_000_000]
times = {"NumPy by hand": [], "pullback": []}
for n in sizes:
    w, x, y = rng.normal(size=8), rng.normal(size=(n, 8)), rng.integers(0, 2, n).astype(float)
    assert np.allclose(compiled(w, x, y)[1], by_hand(w, x, y)[1])
    for name, function in (("NumPy by hand", by_hand), ("pullback", compiled)):
        repeats = max(3, 200_000 // n)
        times[name].append(min(timeit.repeat(lambda f=function, a=(w, x, y): f(*a), number=repeats, repeat=3)) / repeats)

fig, ax = plt.subplots()
for name, seconds in times.items():
    ax.loglog(sizes, np.array(seconds) * 1e6, "o-", label=name)
ax.set(xlabel="rows", ylabel="time of value and gradient, µs")
ax.legend()
