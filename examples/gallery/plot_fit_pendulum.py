"""
A damped pendulum, fitted through its differential equation
===========================================================

The length and the friction of a pendulum are found from a noisy record of its angle. The gradient
goes back through the loops of the solver, which are plain Python.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pullback as pb


def swing(state, length, friction):
    angle, speed = state
    return np.array([speed, -9.81 / length * np.sin(angle) - friction * speed])


def angles(p, t):
    """Angles at the times t, by ten steps of the midpoint rule between two of them."""
    state = np.array([2.5, 0.0])
    result = np.empty(len(t))
    h = (t[1] - t[0]) / 10
    for k in range(len(t)):
        result[k] = state[0]
        for _ in range(10):
            middle = state + 0.5 * h * swing(state, *p)
            state = state + h * swing(middle, *p)
    return result


def loss(p, t, record):
    return np.mean((angles(p, t) - record) ** 2)


rng = np.random.default_rng(3)
t = np.linspace(0, 8, 120)
record = angles(np.array([0.8, 0.25]), t) + rng.normal(0, 0.1, t.size)

path = [np.array([0.7, 0.1])]
best = minimize(pb.value_and_grad(loss), path[0], args=(t, record), jac=True, callback=path.append).x

fig, ax = plt.subplots()
ax.plot(t, record, ".", color="0.6", label="record")
ax.plot(t, angles(path[0], t), "--", lw=1, label="start")
ax.plot(t, angles(best, t), label=f"length {best[0]:.3f} m, friction {best[1]:.3f} /s")
ax.set(xlabel="time, s", ylabel="angle, rad")
ax.legend()
