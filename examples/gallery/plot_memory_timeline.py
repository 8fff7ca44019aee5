"""
The memory of a gradient over time
==================================

Every temporary of the gradient of a small network as a bar: from the step that writes it to the
last one that reads it, at its position in the block that they share. Values that the gradient keeps
are orange.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def loss(w, x, y):
    h = x
    for matrix in w[:-1]:
        h = np.tanh(h @ matrix)
    return np.mean((h @ w[-1] - y) ** 2)


rng = np.random.default_rng(0)
w = [rng.normal(size=(64, 64)) for _ in range(5)] + [rng.normal(size=(64, 1))]
report = pb.value_and_grad(loss).memory(w, rng.normal(size=(512, 64)), rng.normal(size=(512, 1)))

colours = {"residual": "C1", "cotangent": "C0", "value": "C2", "scratch": "0.8"}
fig, ax = plt.subplots(figsize=(7, 4))
for buffer in report.temporaries:
    if buffer.offset is not None and not buffer.within:
        span = (buffer.first, buffer.last - buffer.first + 1)
        ax.broken_barh([span], (buffer.offset / 1e6, buffer.bytes / 1e6), color=colours[buffer.part], ec="white", lw=0.5)
for part, colour in colours.items():
    ax.bar(0, 0, color=colour, label=part)
title = f"{report.arena_bytes / 1e6:.2f} MB; unshared {report.unshared_bytes / 1e6:.2f} MB"
ax.set(xlabel="launch", ylabel="position in the block, MB", title=title)
ax.legend(fontsize=8)
