"""Length and damping of a pendulum from a video: RK4 inside the loss, the model in a closure."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb

g = 9.81


def rk4(f, y0, t):
    ys = [y0]
    y = y0
    for h in np.diff(t):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        ys.append(y)
    return np.stack(ys)


def pendulum(length, damping):
    def rhs(y):
        theta, omega = y
        return np.array([omega, -g / length * np.sin(theta) - damping * omega])

    return rhs


def make_loss(t, observed):
    def loss(p):
        length, damping, theta0 = p
        path = rk4(pendulum(length, damping), np.array([theta0, 0.0]), t)
        return np.mean((path[:, 0] - observed) ** 2)

    return loss


def video(seed=0):
    t = np.linspace(0, 3, 41)
    path = rk4(pendulum(0.7, 0.25), np.array([1.2, 0.0]), t)
    return t, path[:, 0] + 0.01 * np.random.default_rng(seed).normal(size=len(t))


def main():
    t, observed = video()
    loss = make_loss(t, observed)
    fit = minimize(pb.value_and_grad(loss), np.array([0.8, 0.1, 1.0]), jac=True, method="BFGS")
    length, damping, theta0 = fit.x
    print(f"length {length:.4f} m (true 0.7), damping {damping:.4f} /s (true 0.25), released at {theta0:.4f} rad (true 1.2)")
    print(f"residual {np.sqrt(fit.fun):.4f} rad, {fit.nfev} simulations")


if __name__ == "__main__":
    main()
