"""
A soft landing
==============

The thrust of a lander in forty steps, chosen so that it arrives at rest on its pad with little
fuel. The loss runs the flight; the gradient runs it backwards.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def fly(thrust):
    """Positions (40, 2) of a lander from 40 thrust vectors (40, 2)."""
    position, velocity = np.array([0.0, 60.0]), np.array([3.0, 0.0])
    path = np.empty((40, 2))
    for k in range(40):
        velocity = velocity + 0.25 * (thrust[k] - np.array([0.0, 1.62]))
        position = position + 0.25 * velocity
        path[k] = position
    return path, position, velocity


def loss(vector):
    path, position, velocity = fly(vector.reshape(40, 2))
    landing = np.sum((position - np.array([40.0, 0.0])) ** 2) + 10 * np.sum(velocity**2)
    return landing + 0.2 * np.sum(vector**2) + np.sum(np.maximum(-path[:, 1], 0) ** 2)


bounds = [(-4, 4), (0, 8)] * 40
result = minimize(pb.value_and_grad(loss), np.ones(80), jac=True, bounds=bounds)
thrust = result.x.reshape(40, 2)
path, _, velocity = fly(thrust)

fig, ax = plt.subplots()
ax.plot(*path.T, color="0.6")
ax.quiver(*path.T, *thrust.T, color="C1", width=0.004, scale=100)
ax.plot([37, 43], [0, 0], "k", lw=4)
ax.set(xlabel="distance, m", ylabel="height, m", title=f"touches down at {np.hypot(*velocity):.2f} m/s")
