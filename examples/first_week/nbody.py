"""Gravitating bodies: forces as the gradient of the energy, leapfrog, and how well energy is kept."""

import numpy as np

import pullback as pb

G = 1.0
softening = 0.05


def potential(x, m):
    i, j = np.triu_indices(len(m), k=1)
    r = np.sqrt(((x[i] - x[j]) ** 2).sum(axis=1) + softening**2)
    return -G * (m[i] * m[j] / r).sum()


def kinetic(v, m):
    return 0.5 * np.sum(m[:, np.newaxis] * v**2)


def leapfrog(force, x, v, m, dt, steps):
    a = -force(x, m) / m[:, None]
    for _ in range(steps):
        v = v + 0.5 * dt * a
        x = x + dt * v
        a = -force(x, m) / m[:, None]
        v = v + 0.5 * dt * a
    return x, v


def cluster(n=24, seed=0):
    rng = np.random.default_rng(seed)
    x, v, m = rng.normal(size=(n, 3)), 0.3 * rng.normal(size=(n, 3)), rng.uniform(0.5, 1.5, n) / n
    v -= (m[:, None] * v).sum(axis=0) / m.sum()
    return x, v, m


def main():
    x, v, m = cluster()
    energy = pb.jit(lambda x, v, m: kinetic(v, m) + potential(x, m))
    force = pb.grad(potential)
    start = energy(x, v, m)
    for k in range(5):
        x, v = leapfrog(force, x, v, m, dt=0.01, steps=100)
        print(f"t={k + 1}: energy {energy(x, v, m):.8f}, drift {energy(x, v, m) / start - 1:+.1e}")
    print("centre of mass", np.abs(np.average(x, axis=0, weights=m) - np.average(cluster()[0], axis=0, weights=m)).max())


if __name__ == "__main__":
    main()
