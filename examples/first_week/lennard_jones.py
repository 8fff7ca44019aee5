"""The ground state of thirteen argon atoms: basin hopping over Lennard-Jones energies."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


class LennardJones:
    """Pair potential in reduced units, shifted to zero at the cutoff."""

    epsilon = 1.0
    sigma = 1.0
    cutoff = 4.0

    def pair(self, r2):
        s6 = (self.sigma**2 / r2) ** 3
        return 4 * self.epsilon * (s6**2 - s6)

    def energy(self, flat):
        x = flat.reshape(-1, 3)
        d = x[:, None] - x
        r2 = np.sum(d * d, axis=2)
        np.fill_diagonal(r2, np.inf)
        e = np.where(r2 < self.cutoff**2, self.pair(r2) - self.pair(self.cutoff**2), 0.0)
        return 0.5 * e.sum()


def main():
    rng = np.random.default_rng(3)
    model = LennardJones()
    objective = pb.value_and_grad(model.energy)
    best, where = np.inf, 1.2 * rng.normal(size=39)
    for hop in range(15):
        trial = minimize(objective, where + 0.35 * rng.normal(size=39), jac=True, method="L-BFGS-B")
        if trial.fun < best:
            best, where = trial.fun, trial.x
            print(f"hop {hop:2d}: energy {best:.5f}")
    x = where.reshape(-1, 3)
    centre = np.linalg.norm(x - x.mean(axis=0), axis=1)
    print(f"shells: {np.sort(centre).round(3)}")


if __name__ == "__main__":
    main()
