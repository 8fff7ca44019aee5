"""Statistics and learning: k-means, EM, perceptron, trees, nearest neighbours, boosting, small networks."""

import numpy as np

from tests.corpus.case import Case


def kmeans(X, centres, iterations):
    """Lloyd's algorithm; an empty cluster keeps its centre."""
    n, k = len(X), len(centres)
    labels = np.zeros(n, dtype=int)
    for it in range(iterations):
        changed = 0
        for i in range(n):
            best, best_d = 0, np.inf
            for c in range(k):
                d = np.sum((X[i] - centres[c]) ** 2)
                if d < best_d:
                    best, best_d = c, d
            if labels[i] != best:
                labels[i] = best
                changed += 1
        if it > 0 and changed == 0:
            break
        new = np.zeros_like(centres)
        counts = np.zeros(k)
        for i in range(n):
            new[labels[i]] += X[i]
            counts[labels[i]] += 1
        for c in range(k):
            new[c] = new[c] / counts[c] if counts[c] > 0 else centres[c]
        centres = new
    return centres, labels


def em_mixture(x, mu, sigma, weight, iterations, tol):
    """EM for two normal distributions, until the log likelihood stops rising."""
    previous = -np.inf
    for _ in range(iterations):
        resp = np.zeros((len(x), 2))
        loglik = 0.0
        for i, xi in enumerate(x):
            p = weight / sigma * np.exp(-0.5 * ((xi - mu) / sigma) ** 2) / np.sqrt(2 * np.pi)
            s = p.sum()
            resp[i] = p / s
            loglik += np.log(s)
        if loglik - previous < tol:
            break
        previous = loglik
        total = resp.sum(axis=0)
        weight = total / len(x)
        mu = resp.T @ x / total
        sigma = np.sqrt(np.array([np.sum(resp[:, k] * (x - mu[k]) ** 2) / total[k] for k in range(2)]) + 1e-3)
    return mu, sigma, weight, loglik


def perceptron(X, y, epochs, rate):
    """Rosenblatt's rule until an epoch has no errors."""
    w = np.zeros(X.shape[1])
    b = 0.0
    errors = -1
    for epoch in range(epochs):
        errors = 0
        for xi, target in zip(X, y):
            prediction = 1 if np.dot(w, xi) + b >= 0 else -1
            if prediction != target:
                w = w + rate * target * xi
                b += rate * target
                errors += 1
        if not errors:
            break
    return w, b, errors


def hinge_descent(X, y, lam, epochs):
    """Pegasos with a step that shrinks."""
    w = np.zeros(X.shape[1])
    t = 0
    for _ in range(epochs):
        for i in range(len(y)):
            t += 1
            eta = 1 / (lam * (t + 5))
            margin = y[i] * (X[i] @ w)
            w *= 1 - eta * lam
            if margin < 1:
                w += eta * y[i] * X[i]
            norm = np.linalg.norm(w)
            if norm > 1 / np.sqrt(lam):
                w = w / (norm * np.sqrt(lam))
    return w


def nearest_neighbours(X, y, query, k):
    """Mean target of the k nearest points, kept in a sorted list of candidates."""
    best = []
    for xi, yi in zip(X, y):
        d = np.sqrt(np.sum((xi - query) ** 2))
        position = len(best)
        while position > 0 and best[position - 1][0] > d:
            position -= 1
        best.insert(position, (d, yi))
        if len(best) > k:
            best.pop()
    weights = [1 / (1e-3 + d) for d, _ in best]
    return sum(w * t for w, (_, t) in zip(weights, best)) / sum(weights)


def best_split(x, y):
    """The threshold of a regression stump with the smallest squared error."""
    order = np.argsort(x)
    xs, ys = x[order], y[order]
    best = None
    for i in range(1, len(xs)):
        if xs[i] == xs[i - 1]:
            continue
        left, right = ys[:i], ys[i:]
        sse = np.sum((left - left.mean()) ** 2) + np.sum((right - right.mean()) ** 2)
        if best is None or sse < best["sse"]:
            best = {"sse": sse, "threshold": 0.5 * (xs[i] + xs[i - 1]), "values": (left.mean(), right.mean())}
    return best


def predict_tree(features, thresholds, values, samples):
    """Leaf values of a binary tree stored in arrays; a negative feature is a leaf."""
    out = np.zeros(len(samples))
    for s in range(len(samples)):
        node = 0
        while features[node] >= 0:
            if samples[s, features[node]] <= thresholds[node]:
                node = 2 * node + 1
            else:
                node = 2 * node + 2
        out[s] = values[node]
    return out


def logistic_newton(X, y, ridge, max_iter):
    """Iteratively reweighted least squares with a halved step when the loss rises."""
    def loss(w):
        z = X @ w
        return np.sum(np.log1p(np.exp(-np.abs(z))) + np.maximum(z, 0) - y * z) + 0.5 * ridge * w @ w

    w = np.zeros(X.shape[1])
    current = loss(w)
    for i in range(max_iter):
        p = 1 / (1 + np.exp(-X @ w))
        g = X.T @ (p - y) + ridge * w
        if np.max(np.abs(g)) < 1e-12:
            break
        H = (X * (p * (1 - p))[:, None]).T @ X + ridge * np.eye(len(w))
        step = np.linalg.solve(H, g)
        scale = 1.0
        while (new := loss(w - scale * step)) > current + 1e-10 and scale > 1e-4:
            scale /= 2
        w, current = w - scale * step, new
    return w


def rnn_with_stop(tokens, Wx, Wh, stop):
    """A recurrent cell that stops at a token and ignores padding."""
    h = np.zeros(Wh.shape[0])
    used = 0
    for token in tokens:
        if token == stop:
            break
        if token < 0:
            continue
        h = np.tanh(Wx[token] + Wh @ h)
        used += 1
    return h, used


def bandit(rewards, uniforms, epsilon):
    """Epsilon-greedy with given draws; estimates, counts and the sum of rewards."""
    n_arms = rewards.shape[1]
    q = np.zeros(n_arms)
    counts = np.zeros(n_arms, dtype=int)
    total = 0.0
    for t in range(len(rewards)):
        if uniforms[t] < epsilon:
            arm = t % n_arms
        else:
            arm = 0
            for a in range(1, n_arms):
                if q[a] > q[arm]:
                    arm = a
        counts[arm] += 1
        r = rewards[t, arm]
        q[arm] += (r - q[arm]) / counts[arm]
        total += r
    return q, counts, total


def value_iteration(P, R, gamma, sweeps):
    """Values and greedy policy of a small Markov decision process, updated in place."""
    n_actions, n_states = R.shape
    V = np.zeros(n_states)
    policy = np.zeros(n_states, int)
    for _ in range(sweeps):
        delta = 0.0
        for s in range(n_states):
            old = V[s]
            best = -np.inf
            for a in range(n_actions):
                q = R[a, s] + gamma * P[a, s] @ V
                if q > best:
                    best = q
                    policy[s] = a
            V[s] = best
            delta = max(delta, abs(old - best))
        if delta < 1e-12:
            break
    return V, policy


def metropolis(x0, proposals, log_uniforms, scale):
    """Metropolis sampling of a normal mixture with given draws; the mean of the second half."""
    def log_density(x):
        return np.log(np.exp(-0.5 * (x - 1) ** 2) + 0.5 * np.exp(-2 * (x + 1) ** 2))

    chain = np.zeros(len(proposals))
    x, lp = x0, log_density(x0)
    accepted = 0
    for i in range(len(proposals)):
        candidate = x + scale * proposals[i]
        lp_new = log_density(candidate)
        if log_uniforms[i] < lp_new - lp:
            x, lp = candidate, lp_new
            accepted += 1
        chain[i] = x
    return chain[len(chain) // 2:].mean(), accepted / len(proposals)


def blobs(rng, n):
    return rng.normal(size=(n, 2)) + 3 * rng.integers(0, 2, (n, 1))


def labelled(rng, n):
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1, -1)


def tree(rng, n):
    features = np.array([0, 1, 0, -1, -1, -1, -1])
    return features, rng.normal(size=7) / 3, rng.normal(size=7), rng.normal(size=(n, 2))


def process(rng, n):
    P = rng.uniform(size=(2, 3, 3))
    return P / P.sum(axis=2, keepdims=True), rng.normal(size=(2, 3)), 0.5, n


CASES = [
    Case(function=kmeans, argnums=(0, 1), size=4, turns=100,
         arguments=lambda rng, n: (blobs(rng, 6), rng.normal(size=(2, 2)) + 1.5, n)),
    Case(function=em_mixture, argnums=(0, 1, 2, 3), size=4, turns=200,
         arguments=lambda rng, n: (np.append(rng.normal(size=3), 4 + rng.normal(size=3)), np.array([-1.0, 5]), np.array([1.0, 2]),
                                   np.array([0.5, 0.5]), n, 1e-9)),
    Case(function=perceptron, argnums=(0, 3), size=3, turns=50, arguments=lambda rng, n: (*labelled(rng, 8), n, 0.7)),
    Case(function=hinge_descent, argnums=(0, 2), size=2, turns=100,
         arguments=lambda rng, n: (*labelled(rng, 6), 0.3, n)),
    Case(function=nearest_neighbours, argnums=(0, 1, 2), size=7, turns=300,
         arguments=lambda rng, n: (rng.normal(size=(n, 2)), rng.normal(size=n), rng.normal(size=2), 3)),
    Case(function=best_split, argnums=(0, 1), size=7, turns=300,
         arguments=lambda rng, n: (rng.normal(size=n), rng.normal(size=n))),
    Case(function=predict_tree, argnums=(2,), size=5, arguments=tree),
    Case(function=logistic_newton, argnums=(0, 2), size=9, turns=50,
         arguments=lambda rng, n: (rng.normal(size=(9, 3)), rng.integers(0, 2, 9), 0.5, n)),
    Case(function=rnn_with_stop, argnums=(1, 2), size=8,
         arguments=lambda rng, n: (np.append(rng.integers(-1, 4, n), 4), rng.normal(size=(4, 3)), rng.normal(size=(3, 3)), 4)),
    Case(function=bandit, argnums=(0,), size=10, arguments=lambda rng, n: (rng.normal(size=(n, 3)), rng.uniform(size=n), 0.3)),
    Case(function=value_iteration, argnums=(0, 1, 2), size=5, turns=60, arguments=process),
    Case(function=metropolis, argnums=(0, 1, 3), size=12,
         arguments=lambda rng, n: (rng.normal(), rng.normal(size=n), np.log(rng.uniform(size=n)), 0.8)),
]  # fmt: skip
