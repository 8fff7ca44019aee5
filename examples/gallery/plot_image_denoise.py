"""
Noise leaves, edges stay
========================

An image is denoised by the total variation, a sum of norms of differences. At pixels without a
difference the norm has the gradient 0, so nothing needs to be smoothed by hand.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def loss(vector, noisy):
    image = vector.reshape(noisy.shape)
    down = image[1:, :-1] - image[:-1, :-1]
    right = image[:-1, 1:] - image[:-1, :-1]
    return 0.5 * np.sum((image - noisy) ** 2) + 0.25 * np.sum(np.sqrt(down**2 + right**2))


rng = np.random.default_rng(6)
y, x = np.mgrid[-1:1:64j, -1:1:64j]
truth = 0.8 * (x**2 + y**2 < 0.5) + 0.4 * ((np.abs(x - 0.3) < 0.4) & (np.abs(y + 0.2) < 0.3))
noisy = truth + rng.normal(0, 0.2, truth.shape)

result = minimize(
    pb.value_and_grad(loss), noisy.ravel(), args=(noisy,), jac=True, method="L-BFGS-B", options={"maxiter": 100}
)

fig, axes = plt.subplots(1, 3, figsize=(8.4, 3))
images = {"truth": truth, "noisy": noisy, "denoised": result.x.reshape(truth.shape)}
for ax, (title, image) in zip(axes, images.items(), strict=True):
    ax.imshow(image, cmap="gray", vmin=-0.3, vmax=1.5)
    ax.set(title=title, xticks=[], yticks=[])
fig.tight_layout()
