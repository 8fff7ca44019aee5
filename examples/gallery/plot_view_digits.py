"""
A page on a training step
=========================

``view`` returns a page: the source on the left, what the compiler makes of it on the right, linked by
lines. Here it shows the time of each line of a digit reader's loss and gradient, forward and backward.
"""

import numpy as np

import pullback as pb


def loss(w1, b1, w2, b2, x, y):
    h = np.maximum(x @ w1 + b1, 0)
    z = h @ w2 + b2
    z = z - z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return -np.mean(np.sum(y * log_p, axis=1))


rng = np.random.default_rng(0)
shapes = ((64, 128), (128,), (128, 10), (10,), (256, 64))
w1, b1, w2, b2, x = (rng.normal(size=shape) * 0.1 for shape in shapes)
y = np.eye(10)[rng.integers(0, 10, 256)]

page = pb.value_and_grad(loss, argnums=(0, 1, 2, 3)).view(w1, b1, w2, b2, x, y)
print(page)  # page.open() shows it in the browser, page.save("loss.html") keeps it
