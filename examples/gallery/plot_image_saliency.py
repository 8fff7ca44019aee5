"""
Where a classifier looks
========================

A small network learns to read digits; then the gradient of a score by the *pixels* of an image
shows which of them speak for it (red) and against it (blue).
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb

folder = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "examples/data/digits.npz").exists())
data = np.load(folder / "examples/data/digits.npz")
images = data[data.files[0]].reshape(-1, 64) / 16.0
labels = data[data.files[1]].astype(int).ravel()


def scores(w, x):
    return np.tanh(x @ w["a"] + w["b"]) @ w["c"]


def loss(w, x, y):
    z = scores(w, x)
    z = z - np.max(z, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(z), axis=1)) - np.sum(z * y, axis=1))


rng = np.random.default_rng(0)
w = {"a": rng.normal(0, 0.1, (64, 32)), "b": np.zeros(32), "c": rng.normal(0, 0.1, (32, 10))}
targets = np.eye(10)[labels]
slope = pb.grad(loss)
w = pb.optimizers.adam(lambda w, i: slope(w, images, targets), w, num_iters=300, step_size=0.01)

saliency = pb.vmap(pb.grad(lambda x, k: scores(w, x)[k]), in_axes=(0, 0))
chosen = np.array([np.flatnonzero(labels == k)[3] for k in range(8)])
pictures = saliency(images[chosen], labels[chosen])

fig, axes = plt.subplots(2, 8, figsize=(8.4, 2.4))
for k in range(8):
    axes[0, k].imshow(images[chosen[k]].reshape(8, 8), cmap="gray_r")
    axes[1, k].imshow(pictures[k].reshape(8, 8), cmap="RdBu_r", vmin=-2, vmax=2)
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
fig.tight_layout()
