"""A cart swings up its pole: the forces of a whole trajectory optimised by shooting."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


class CartPole:
    gravity, cart, pole, length, dt = 9.81, 1.0, 0.2, 0.6, 0.05

    def step(self, state, force):
        x, theta, dx, dtheta = state
        s, c = np.sin(theta), np.cos(theta)
        total = self.cart + self.pole * s**2
        ddx = (force + self.pole * s * (self.length * dtheta**2 + self.gravity * c)) / total
        ddtheta = -(force * c + self.pole * self.length * dtheta**2 * c * s + (self.cart + self.pole) * self.gravity * s)
        ddtheta = ddtheta / (self.length * total)
        dx, dtheta = dx + self.dt * ddx, dtheta + self.dt * ddtheta
        return np.array([x + self.dt * dx, theta + self.dt * dtheta, dx, dtheta])

    def rollout(self, start, forces):
        states = np.empty((len(forces) + 1, 4))
        states[0] = start
        for t, force in enumerate(forces):
            states[t + 1] = self.step(states[t], force)
        return states


def cost(forces, model, start, goal, effort=1e-3):
    states = model.rollout(start, forces)
    miss = states[-1] - goal
    return 100 * miss @ miss + effort * np.sum(forces**2) + 0.01 * np.sum(np.diff(forces) ** 2)


def main():
    model = CartPole()
    hanging, upright = np.zeros(4), np.array([0.0, np.pi, 0.0, 0.0])
    forces = 2 * np.sin(np.linspace(0, 3 * np.pi, 40))
    objective = pb.value_and_grad(cost)
    args = (model, hanging, upright)
    fit = minimize(objective, forces, args=args, jac=True, method="L-BFGS-B", options={"maxiter": 400})
    end = model.rollout(hanging, fit.x)[-1]
    print(f"cost {cost(forces, *args):.3f} -> {fit.fun:.4f} in {fit.nit} steps")
    print(f"at the end: cart {end[0]:+.3f} m, pole {np.rad2deg(end[1]):.2f} deg, largest force {np.abs(fit.x).max():.2f} N")


if __name__ == "__main__":
    main()
