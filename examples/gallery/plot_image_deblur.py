"""
A picture sharpened by gradient descent
=======================================

A blurred picture is explained as the blur of a sharper one. The blur is a convolution written as
shifted copies; its transpose, which the gradient needs, is derived.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb

weights = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
weights /= weights.sum()


def blur(image):
    rows = sum(w * np.roll(image, k - 4, axis=0) for k, w in enumerate(weights))
    return sum(w * np.roll(rows, k - 4, axis=1) for k, w in enumerate(weights))


def loss(vector, blurred):
    image = vector.reshape(blurred.shape)
    roughness = np.sum(np.diff(image, axis=0) ** 2) + np.sum(np.diff(image, axis=1) ** 2)
    return np.sum((blur(image) - blurred) ** 2) + 1e-4 * roughness


rng = np.random.default_rng(7)
y, x = np.mgrid[-1:1:64j, -1:1:64j]
truth = 0.5 + 0.5 * np.sign(np.sin(8 * np.arctan2(y, x))) * (x**2 + y**2 < 0.8)
blurred = blur(truth) + rng.normal(0, 0.003, truth.shape)

result = minimize(
    pb.value_and_grad(loss), blurred.ravel(), args=(blurred,), jac=True, method="L-BFGS-B", options={"maxiter": 100}
)

fig, axes = plt.subplots(1, 3, figsize=(8.4, 3))
images = {"truth": truth, "blurred": blurred, "sharpened": result.x.reshape(truth.shape)}
for ax, (title, image) in zip(axes, images.items(), strict=True):
    ax.imshow(image, cmap="gray", vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
fig.tight_layout()
