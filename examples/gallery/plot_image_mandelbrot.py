"""
The distance to the Mandelbrot set
==================================

The derivative of the iteration by the point gives an estimate of the distance to the set, and with
it a line as thin as the pixels. The iteration is a Python ``while`` loop; forward mode carries the
derivative along.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def escaped(x, y):
    """The square of the modulus after the iteration of x + iy has left, or after 200 steps."""
    a, b, steps = x, y, 0
    while steps < 200 and a * a + b * b < 1e6:
        a, b = a * a - b * b + x, 2 * a * b + y
        steps = steps + 1
    return a * a + b * b


def distance(x, y):
    modulus = escaped(x, y)
    dx, dy = pb.grad(escaped, argnums=(0, 1))(x, y)
    return np.where(modulus < 1e6, 0.0, modulus * np.log(modulus) / np.sqrt(dx**2 + dy**2))


x, y = np.meshgrid(np.linspace(-2.2, 0.8, 450), np.linspace(-1.25, 1.25, 375))
image = pb.vmap(distance)(x.ravel(), y.ravel()).reshape(x.shape)

fig, ax = plt.subplots(figsize=(5.4, 4.5))
ax.imshow(np.clip(image, 0, 0.12) ** 0.3, cmap="bone", extent=(-2.2, 0.8, -1.25, 1.25), origin="lower")
ax.set(xticks=[], yticks=[])
