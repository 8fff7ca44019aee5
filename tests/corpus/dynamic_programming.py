"""Tables filled by recurrences, shortest paths and hidden Markov models."""

import numpy as np

from tests.corpus.case import Case


def edit_distance(a, b):
    """Levenshtein distance of two sequences of codes."""
    m, n = len(a), len(b)
    D = np.zeros((m + 1, n + 1), dtype=int)
    for i in range(m + 1):
        D[i, 0] = i
    for j in range(n + 1):
        D[0, j] = j
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            if a[i - 1] == b[j - 1]:
                D[i, j] = D[i - 1, j - 1]
            else:
                D[i, j] = 1 + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return D[m, n]


def edit_distance_rows(a, b):
    """The same with two rows that are swapped."""
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a):
        current = [i + 1]
        for j, y in enumerate(b):
            cost = 0 if x == y else 1
            current.append(min(previous[j + 1] + 1, current[j] + 1, previous[j] + cost))
        previous = current
    return previous[-1]


def knapsack(values, weights, capacity):
    """0/1 knapsack; the best value and the items taken."""
    n = len(values)
    best = np.zeros((n + 1, capacity + 1))
    for i in range(1, n + 1):
        for w in range(capacity + 1):
            best[i, w] = best[i - 1, w]
            if weights[i - 1] <= w:
                candidate = best[i - 1, w - weights[i - 1]] + values[i - 1]
                if candidate > best[i, w]:
                    best[i, w] = candidate
    taken = []
    w = capacity
    for i in range(n, 0, -1):
        if best[i, w] != best[i - 1, w]:
            taken.append(i - 1)
            w -= weights[i - 1]
    return best[n, capacity], taken


def longest_common_subsequence(a, b):
    """Length and one longest common subsequence."""
    L = np.zeros((len(a) + 1, len(b) + 1), int)
    for i in range(len(a) - 1, -1, -1):
        for j in range(len(b) - 1, -1, -1):
            L[i, j] = 1 + L[i + 1, j + 1] if a[i] == b[j] else max(L[i + 1, j], L[i, j + 1])
    i = j = 0
    out = []
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            out.append(a[i])
            i += 1
            j += 1
        elif L[i + 1, j] >= L[i, j + 1]:
            i += 1
        else:
            j += 1
    return L[0, 0], np.array(out)


def dynamic_time_warping(x, y, window):
    """DTW distance within a band."""
    n, m = len(x), len(y)
    w = max(window, abs(n - m))
    D = np.full((n + 1, m + 1), np.inf)
    D[0, 0] = 0.0
    for i in range(1, n + 1):
        for j in range(max(1, i - w), min(m, i + w) + 1):
            cost = (x[i - 1] - y[j - 1]) ** 2
            D[i, j] = cost + min(D[i - 1, j], D[i, j - 1], D[i - 1, j - 1])
    return np.sqrt(D[n, m])


def longest_increasing(x):
    """Length of the longest increasing subsequence and where it ends."""
    n = len(x)
    length = np.ones(n, dtype=int)
    for i in range(n):
        for j in range(i):
            if x[j] < x[i] and length[j] + 1 > length[i]:
                length[i] = length[j] + 1
    end = 0
    for i in range(1, n):
        if length[i] > length[end]:
            end = i
    return length[end], end


def coin_change(coins, amount):
    """Fewest coins for an amount, or -1."""
    INF = 10**9
    dp = [0] + [INF] * amount
    for a in range(1, amount + 1):
        for c in coins:
            if c <= a and dp[a - c] + 1 < dp[a]:
                dp[a] = dp[a - c] + 1
    return dp[amount] if dp[amount] < INF else -1


def maximum_subarray(x):
    """Kadane's algorithm: the largest sum and its range."""
    best = -np.inf
    best_start = best_end = 0
    current, start = 0.0, 0
    for end, value in enumerate(x):
        if current <= 0:
            start, current = end, value
        else:
            current += value
        if current > best:
            best, best_start, best_end = current, start, end + 1
    return best, best_start, best_end


def floyd_warshall(dist):
    """All shortest paths, on a copy."""
    d = np.array(dist)
    n = len(d)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d


def dijkstra(W, source):
    """Shortest distances and predecessors on a dense matrix; -1 means no edge."""
    n = W.shape[0]
    dist = np.full(n, np.inf)
    prev = np.full(n, -1)
    visited = np.zeros(n, dtype=bool)
    dist[source] = 0.0
    for _ in range(n):
        u = -1
        for i in range(n):
            if not visited[i] and (u == -1 or dist[i] < dist[u]):
                u = i
        if dist[u] == np.inf:
            break
        visited[u] = True
        for v in range(n):
            if W[u, v] > 0 and not visited[v]:
                alt = dist[u] + W[u, v]
                if alt < dist[v]:
                    dist[v] = alt
                    prev[v] = u
    return np.where(visited, dist, -1.0), prev


def bellman_ford(edges, weights, n_nodes):
    """Distances from node 0 over a list of edges, with an early end."""
    dist = np.full(n_nodes, 1e9)
    dist[0] = 0.0
    for k in range(n_nodes - 1):
        changed = False
        for (u, v), w in zip(edges, weights):
            if dist[u] + w < dist[v]:
                dist[v] = dist[u] + w
                changed = True
        if not changed:
            break
    for (u, v), w in zip(edges, weights):
        if dist[u] + w < dist[v] - 1e-9:
            raise ValueError("negative cycle")
    return dist


def minimum_spanning_tree(D):
    """Prim's algorithm: the length of the tree and the order of the nodes."""
    n = len(D)
    in_tree = [0]
    total = 0.0
    while len(in_tree) < n:
        shortest, nxt = None, None
        for i in in_tree:
            for j in range(n):
                if j in in_tree:
                    continue
                if shortest is None or D[i, j] < shortest:
                    shortest, nxt = D[i, j], j
        total += shortest
        in_tree.append(nxt)
    return total, in_tree


def hmm_forward(pi, A, B, observations):
    """Log likelihood by the scaled forward algorithm."""
    alpha = pi * B[:, observations[0]]
    c = alpha.sum()
    alpha = alpha / c
    loglik = np.log(c)
    for t in range(1, len(observations)):
        new = np.zeros(len(pi))
        for j in range(len(pi)):
            for i in range(len(pi)):
                new[j] += alpha[i] * A[i, j]
            new[j] *= B[j, observations[t]]
        c = new.sum()
        if c <= 0:
            return -np.inf
        alpha = new / c
        loglik += np.log(c)
    return loglik


def viterbi(log_pi, log_A, log_B, obs):
    """The most probable path and its log probability."""
    S, T = len(log_pi), len(obs)
    delta = np.zeros((T, S))
    psi = np.zeros((T, S), dtype=int)
    delta[0] = log_pi + log_B[:, obs[0]]
    for t in range(1, T):
        for s in range(S):
            scores = delta[t - 1] + log_A[:, s]
            psi[t, s] = np.argmax(scores)
            delta[t, s] = scores[psi[t, s]] + log_B[s, obs[t]]
    path = np.zeros(T, dtype=int)
    path[-1] = np.argmax(delta[-1])
    for t in range(T - 2, -1, -1):
        path[t] = psi[t + 1, path[t + 1]]
    return path, np.max(delta[-1])


def matrix_chain(p):
    """Fewest multiplications for a chain of matrices."""
    n = len(p) - 1
    m = np.zeros((n, n))
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            m[i, j] = np.inf
            for k in range(i, j):
                q = m[i, k] + m[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if q < m[i, j]:
                    m[i, j] = q
    return m[0, n - 1]


def needleman_wunsch(a, b, match, mismatch, gap):
    """Global alignment score."""
    score = np.zeros((len(a) + 1, len(b) + 1))
    score[:, 0] = gap * np.arange(len(a) + 1)
    score[0, :] = gap * np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            diag = score[i - 1, j - 1] + (match if a[i - 1] == b[j - 1] else mismatch)
            up = score[i - 1, j] + gap
            left = score[i, j - 1] + gap
            if diag >= up and diag >= left:
                score[i, j] = diag
            elif up >= left:
                score[i, j] = up
            else:
                score[i, j] = left
    return score[-1, -1]


def probabilities(rng, *shape):
    p = rng.uniform(0.2, 1.0, shape)
    return p / p.sum(axis=-1, keepdims=True)


def hidden(rng, n):
    return probabilities(rng, 3), probabilities(rng, 3, 3), probabilities(rng, 3, 4), rng.integers(0, 4, n)


def graph(rng, n):
    return np.where(rng.uniform(size=(n, n)) < 0.5, rng.uniform(1, 9, (n, n)), -1.0)


def edges(rng, n):
    return rng.integers(0, 4, (n, 2)), rng.uniform(0.5, 2, n), 4


CASES = [
    Case(function=edit_distance, size=5, turns=60, arguments=lambda rng, n: (rng.integers(0, 3, n), rng.integers(0, 3, n + 1))),
    Case(function=edit_distance_rows, size=5, turns=60,
         arguments=lambda rng, n: (rng.integers(0, 3, n), rng.integers(0, 3, n + 1))),
    Case(function=knapsack, argnums=(0,), size=5, turns=60, kinks="taken items change where two sums are equal",
         arguments=lambda rng, n: (rng.uniform(1, 5, n), rng.integers(1, 4, n), 6)),
    Case(function=longest_common_subsequence, size=5, turns=50,
         arguments=lambda rng, n: (rng.integers(0, 3, n), rng.integers(0, 3, n))),
    Case(function=dynamic_time_warping, argnums=(0, 1), size=6, turns=60,
         arguments=lambda rng, n: (rng.normal(size=n), rng.normal(size=n + 1), 2)),
    Case(function=longest_increasing, size=8, turns=80, arguments=lambda rng, n: (rng.normal(size=n),)),
    Case(function=coin_change, size=12, arguments=lambda rng, n: (rng.integers(2, 7, 3), n)),
    Case(function=maximum_subarray, argnums=(0,), arguments=lambda rng, n: (rng.normal(size=n),)),
    Case(function=floyd_warshall, argnums=(0,), size=4, turns=40, arguments=lambda rng, n: (rng.uniform(1, 9, (n, n)),)),
    Case(function=dijkstra, argnums=(0,), size=5, turns=50, arguments=lambda rng, n: (graph(rng, n), 0)),
    Case(function=bellman_ford, argnums=(1,), size=8, turns=400, arguments=edges,
         failing=lambda rng: (np.array([[0, 1], [1, 0]]), np.array([1.0, -2.0]), 2)),
    Case(function=minimum_spanning_tree, argnums=(0,), size=4, turns=30, arguments=lambda rng, n: (rng.uniform(1, 9, (n, n)),)),
    Case(function=hmm_forward, argnums=(0, 1, 2), size=5, turns=400, arguments=hidden),
    Case(function=viterbi, argnums=(0, 1, 2), size=5, turns=400,
         arguments=lambda rng, n: tuple(np.log(p) if p.dtype == float else p for p in hidden(rng, n))),
    Case(function=matrix_chain, size=5, turns=40, argnums=(0,), arguments=lambda rng, n: (rng.uniform(2, 9, n + 1),)),
    Case(function=needleman_wunsch, argnums=(2, 3, 4), size=5, turns=60,
         arguments=lambda rng, n: (rng.integers(0, 3, n), rng.integers(0, 3, n), 1.1, -0.7, -1.3)),
]  # fmt: skip
