"""Bar areas of a truss for the least compliance at a given weight: stiffness assembled bar by bar."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def bridge(bays=4):
    nodes = np.array([[x, y] for x in range(bays + 1) for y in (0, 1)], dtype=float)
    bars = []
    for k in range(bays + 1):
        bars.append((2 * k, 2 * k + 1))
        if k < bays:
            bars += [(2 * k, 2 * k + 2), (2 * k + 1, 2 * k + 3), (2 * k, 2 * k + 3), (2 * k + 1, 2 * k + 2)]
    return nodes, bars


def stiffness(areas, nodes, bars, E=1.0):
    K = np.zeros((nodes.size, nodes.size))
    for area, (i, j) in zip(areas, bars):
        d = nodes[j] - nodes[i]
        length = np.sqrt(d @ d)
        b = np.concatenate([-d, d]) / length
        dofs = [2 * i, 2 * i + 1, 2 * j, 2 * j + 1]
        K[np.ix_(dofs, dofs)] += E * area / length * np.outer(b, b)
    return K


def compliance(areas, nodes, bars, load, free):
    K = stiffness(areas, nodes, bars)[np.ix_(free, free)]
    u = np.linalg.solve(K, load[free])
    return load[free] @ u


def weight(areas, nodes, bars):
    i, j = np.array(bars).T
    return areas @ np.linalg.norm(nodes[i] - nodes[j], axis=1)


def main():
    nodes, bars = bridge()
    load = np.zeros(nodes.size)
    load[2 * 4 + 1] = -1.0
    free = np.setdiff1d(np.arange(nodes.size), [0, 1, 17])
    areas = np.ones(len(bars))
    budget = weight(areas, nodes, bars)
    objective, d_weight = pb.value_and_grad(compliance), pb.grad(weight)
    print(f"all bars alike: compliance {compliance(areas, nodes, bars, load, free):.4f}")
    limit = {
        "type": "ineq",
        "fun": lambda a: budget - weight(a, nodes, bars),
        "jac": lambda a: -d_weight(a, nodes, bars),
    }
    args = (nodes, bars, load, free)
    fit = minimize(objective, areas, args=args, jac=True, bounds=[(0.01, 5)] * len(bars), constraints=[limit], method="SLSQP")
    print(f"optimal areas:  compliance {fit.fun:.4f}, {fit.nit} steps")
    for bar, area in zip(bars, fit.x):
        print(f"  bar {bar[0]}-{bar[1]}  {area:5.2f}  {'#' * int(8 * area)}")


if __name__ == "__main__":
    main()
