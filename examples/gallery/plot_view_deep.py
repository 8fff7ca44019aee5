"""
The kernels of a program of 5,000 operations
============================================

A network of 165 layers whose loop is unrolled. The page shows its kernels in parts, with the bytes that pass
between them and the reason why two of them are not one.
"""

import numpy as np

import pullback as pb


def layer(h, w, b):
    z = h @ w + b
    z = z - np.mean(z, axis=1, keepdims=True)
    z = z / np.sqrt(np.mean(z * z, axis=1, keepdims=True) + 1e-5)
    return h + np.tanh(z) * 0.1


def loss(layers, x):
    h = x
    for w, b in layers:
        h = layer(h, w, b)
    return np.mean(h * h)


rng = np.random.default_rng(0)
layers = [(rng.normal(size=(8, 8)) * 0.1, rng.normal(size=8)) for _ in range(165)]

page = pb.value_and_grad(pb.jit(loss, loops="unroll")).view(layers, rng.normal(size=(16, 8)))
print(page)
