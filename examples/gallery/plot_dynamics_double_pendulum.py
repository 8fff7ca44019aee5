"""
When a double pendulum flips
============================

For each pair of starting angles, the time until the lower arm turns over: 160 x 160 pendulums, each
a Python ``while`` loop that ends when its value says so.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def acceleration(a, b, va, vb):
    d = a - b
    m = 2 - np.cos(d) ** 2
    fa = (-np.sin(d) * (va**2 * np.cos(d) + vb**2) - 2 * 9.81 * np.sin(a) + 9.81 * np.sin(b) * np.cos(d)) / m
    fb = (np.sin(d) * (2 * va**2 + vb**2 * np.cos(d)) + 2 * 9.81 * (np.sin(a) * np.cos(d) - np.sin(b))) / m
    return fa, fb


def flip_time(a, b):
    va, vb, t = 0.0, 0.0, 0.0
    while t < 10 and abs(b) < np.pi:
        fa, fb = acceleration(a, b, va, vb)
        va, vb = va + 0.01 * fa, vb + 0.01 * fb
        a, b = a + 0.01 * va, b + 0.01 * vb
        t = t + 0.01
    return t


angles = np.linspace(-3, 3, 160)
a, b = np.meshgrid(angles, angles)
times = pb.vmap(flip_time)(a.ravel(), b.ravel()).reshape(a.shape)

fig, ax = plt.subplots(figsize=(5.2, 4.4))
image = ax.imshow(times, extent=(-3, 3, -3, 3), origin="lower", cmap="magma_r")
ax.set(xlabel="upper angle, rad", ylabel="lower angle, rad")
fig.colorbar(image, label="time of the first flip, s (10: none)")
