"""A hanging net of springs: nodes relax under gravity, the corners held; ends of springs by integer arrays."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb

STIFFNESS, REST, WEIGHT = 40.0, 1.0, 0.4


def grid(rows, columns):
    index = np.arange(rows * columns).reshape(rows, columns)
    across = np.stack([index[:, :-1].ravel(), index[:, 1:].ravel()], axis=1)
    down = np.stack([index[:-1].ravel(), index[1:].ravel()], axis=1)
    y, x = np.divmod(index.ravel(), columns)
    corners = index[[0, 0, -1, -1], [0, -1, 0, -1]]
    return np.vstack([across, down]), np.stack([x, y, 0 * x], axis=1).astype(float), corners


def place(free_xyz, anchors, free, fixed):
    """All nodes: the free ones where they are now, the others at their anchors."""
    xyz = anchors.copy()
    xyz[free] = free_xyz.reshape(-1, 3)
    return xyz


def energy(free_xyz, anchors, springs, free, fixed):
    xyz = place(free_xyz, anchors, free, fixed)
    a, b = springs.T
    length = np.linalg.norm(xyz[a] - xyz[b], axis=-1)
    elastic = 0.5 * STIFFNESS * np.sum((length - REST) ** 2)
    return elastic + WEIGHT * xyz[:, 2].sum()


def main():
    springs, nodes, fixed = grid(6, 7)
    free = np.setdiff1d(np.arange(len(nodes)), fixed)
    rng = np.random.default_rng(0)
    start = (nodes[free] + [0, 0, -0.1] + 0.01 * rng.normal(size=(len(free), 3))).ravel()
    fit = minimize(pb.value_and_grad(energy), start, args=(nodes, springs, free, fixed), jac=True, method="L-BFGS-B")
    print(f"{len(springs)} springs, {len(free)} free nodes, {fit.nit} steps: energy {fit.fun:.4f}")
    z = place(fit.x, nodes, free, fixed)[:, 2].reshape(6, 7)
    for row in z:
        print("  ".join(f"{height:6.2f}" for height in row))


if __name__ == "__main__":
    main()
