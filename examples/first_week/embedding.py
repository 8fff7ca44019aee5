"""Points of many dimensions laid out in the plane: t-SNE's divergence and Kruskal's stress."""

import numpy as np

import pullback as pb


def squared_distances(x):
    sq = np.sum(x**2, axis=1)
    return np.maximum(sq[:, None] + sq[None, :] - 2 * x @ x.T, 0)


def affinities(x, perplexity=12.0):
    """Symmetric joint probabilities; each point's width by bisection."""
    d, n = squared_distances(x), len(x)
    np.fill_diagonal(d, np.inf)
    p = np.zeros((n, n))
    for i in range(n):
        low, high = 1e-6, 1e6
        for _ in range(60):
            beta = np.sqrt(low * high)
            row = np.exp(-beta * (d[i] - d[i].min()))
            row /= row.sum()
            entropy = -np.sum(row[row > 0] * np.log(row[row > 0]))
            low, high = (beta, high) if entropy > np.log(perplexity) else (low, beta)
        p[i] = row
    return np.maximum((p + p.T) / (2 * n), 1e-12)


def kl(y, p):
    q = 1 / (1 + squared_distances(y))
    np.fill_diagonal(q, 0)
    q = np.clip(q / q.sum(), 1e-12, None)
    return np.sum(p * np.log(p / q))


def stress(y, distances):
    i, j = np.triu_indices(len(y), 1)
    result = np.linalg.norm(y[i] - y[j], axis=1)
    return np.sqrt(np.sum((result - distances[i, j]) ** 2) / np.sum(distances[i, j] ** 2))


def clusters(n=90, seed=0):
    rng = np.random.default_rng(seed)
    label = np.repeat([0, 1, 2], n // 3)
    return rng.normal(size=(3, 10))[label] * 2 + 0.6 * rng.normal(size=(n, 10)), label


def main():
    x, label = clusters()
    p = affinities(x)
    rng = np.random.default_rng(1)
    y, momentum = 1e-2 * rng.normal(size=(len(x), 2)), 0.0
    divergence = pb.value_and_grad(kl)
    for step in range(400):
        value, g = divergence(y, 4 * p if step < 100 else p)
        momentum = (0.5 if step < 100 else 0.8) * momentum - 20 * g
        y = y + momentum
    nearest = np.argsort(squared_distances(y) + 1e9 * np.eye(len(y)), axis=1)[:, 0]
    print(f"t-SNE: divergence {value:.4f}; nearest neighbour of the same cluster {np.mean(label[nearest] == label):.1%}")
    y, d = rng.normal(size=(len(x), 2)), np.sqrt(squared_distances(x))
    descend = pb.value_and_grad(stress)
    for _ in range(200):
        value, g = descend(y, d)
        y -= 60 * g
    print(f"MDS:   stress {value:.4f}")


if __name__ == "__main__":
    main()
