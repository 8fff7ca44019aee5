"""Where is the heater? A 2-D heat equation run forward in place, and its source found from a few sensors."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb

N, STEPS, DT = 24, 60, 0.2
SENSORS = (np.array([4, 4, 12, 19, 19]), np.array([5, 18, 12, 6, 19]))


def source(p):
    y, x, power = p
    yy, xx = np.meshgrid(np.arange(N), np.arange(N), indexing="ij")
    return power * np.exp(-((yy - y) ** 2 + (xx - x) ** 2) / 8.0)


def simulate(p, steps=STEPS):
    """Temperatures at the sensors, shape (steps, sensors); the rim is kept at zero."""
    u = np.zeros((N, N))
    q = source(p)
    record = np.zeros((steps, len(SENSORS[0])))
    for k in range(steps):
        lap = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        u[1:-1, 1:-1] += DT * (lap + q[1:-1, 1:-1])
        record[k] = u[SENSORS]
    return record


def misfit(p, data):
    return 0.5 * ((simulate(p) - data) ** 2).sum()


def measured(truth=(7.3, 15.6, 2.0), seed=0):
    data = simulate(np.array(truth))
    return data + 0.01 * np.random.default_rng(seed).normal(size=data.shape)


def main():
    data = measured()
    fit = minimize(pb.value_and_grad(misfit), np.array([12.0, 12.0, 1.0]), args=(data,), jac=True, method="BFGS")
    y, x, power = fit.x
    print(f"heater at ({y:.3f}, {x:.3f}), power {power:.4f}; true (7.3, 15.6), 2.0")
    print(f"rms residual {np.sqrt(2 * fit.fun / data.size):.4f} (noise 0.01), {fit.nfev} simulations")


if __name__ == "__main__":
    main()
