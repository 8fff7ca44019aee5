"""
Four ways into a valley
=======================

Gradient descent with momentum, RMSProp, Adam, and Newton's method with ``pb.hessian``, from the
same start in Rosenbrock's valley.
"""

import matplotlib.pyplot as plt
import numpy as np

import pullback as pb


def valley(z):
    return (1 - z[0]) ** 2 + 20 * (z[1] - z[0] ** 2) ** 2


slope, curvature = pb.grad(valley), pb.hessian(valley)
start = np.array([-1.4, 1.8])


def newton(z, steps):
    path = [z]
    for _ in range(steps):
        path.append(path[-1] - np.linalg.solve(curvature(path[-1]), slope(path[-1])))
    return path


def path_of(optimiser, **options):
    path = []
    optimiser(lambda z, i: slope(z), start, callback=lambda z, i, g: path.append(z.copy()), num_iters=300, **options)
    return path


paths = {
    "momentum": path_of(pb.optimizers.sgd, step_size=0.01, mass=0.9),
    "RMSProp": path_of(pb.optimizers.rmsprop, step_size=0.01),
    "Adam": path_of(pb.optimizers.adam, step_size=0.05),
    "Newton": newton(start, 12),
}

x, y = np.meshgrid(np.linspace(-2, 2, 200), np.linspace(-1, 3, 200))
fig, ax = plt.subplots()
ax.contourf(x, y, np.log(valley(np.stack([x, y])) + 0.1), levels=25, cmap="Greys")
for k, (name, path) in enumerate(paths.items()):
    ax.plot(*np.array(path).T, "o-", ms=2 if name != "Newton" else 4, lw=1, color=f"C{k}", label=name)
ax.plot(1, 1, "k*", ms=10)
ax.set(xlim=(-2, 2), ylim=(-1, 3))
ax.legend()
