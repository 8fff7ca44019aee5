"""
What the gradient of an LSTM keeps
==================================

The cell runs in a loop that is compiled as a loop. The page lists what its gradient keeps of each step
for the way back, with the lines that computed it and the bytes.
"""

import numpy as np

import pullback as pb


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def loss(w, u, b, xs, target):
    n = len(b) // 4
    h, c = np.zeros(n), np.zeros(n)
    for x in xs:
        z = w @ x + u @ h + b
        i, f, o = sigmoid(z[:n]), sigmoid(z[n : 2 * n]), sigmoid(z[2 * n : 3 * n])
        c = f * c + i * np.tanh(z[3 * n :])
        h = o * np.tanh(c)
    return np.sum((h - target) ** 2)


rng = np.random.default_rng(0)
n, inputs, steps = 32, 16, 200
w, u = rng.normal(size=(4 * n, inputs)) * 0.2, rng.normal(size=(4 * n, n)) * 0.2
xs = rng.normal(size=(steps, inputs))

page = pb.value_and_grad(loss, argnums=(0, 1, 2)).view(w, u, np.zeros(4 * n), xs, np.ones(n))
print(page)
