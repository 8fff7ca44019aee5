"""Film ratings: matrix factorisation with biases in float32, by stochastic gradient descent."""

from typing import NamedTuple

import numpy as np

import pullback as pb


class Model(NamedTuple):
    users: np.ndarray
    items: np.ndarray
    user_bias: np.ndarray
    item_bias: np.ndarray
    mean: np.float32


def predict(m, u, i):
    return m.mean + m.user_bias[u] + m.item_bias[i] + np.sum(m.users[u] * m.items[i], axis=-1)


def loss(m, u, i, rating, reg=np.float32(0.05)):
    error = predict(m, u, i) - rating
    penalty = np.sum(m.users[u] ** 2) + np.sum(m.items[i] ** 2)
    return np.mean(error * error) + reg * penalty / len(u)


def ratings(n_users=200, n_items=80, n=6000, rank=3, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(n_users, rank)), rng.normal(size=(n_items, rank))
    u, i = rng.integers(0, n_users, n), rng.integers(0, n_items, n)
    r = 3.5 + 0.5 * np.sum(a[u] * b[i], axis=1) + 0.2 * rng.normal(size=n)
    return u, i, r.astype(np.float32)


def initial(n_users=200, n_items=80, rank=4, seed=1):
    rng = np.random.default_rng(seed)
    factors = [0.1 * rng.standard_normal((n, rank), dtype=np.float32) for n in (n_users, n_items)]
    return Model(*factors, np.zeros(n_users, np.float32), np.zeros(n_items, np.float32), np.float32(3.5))


def main():
    u, i, r = ratings()
    train = slice(0, 5000)
    held_out = slice(5000, None)
    model = initial()
    step = pb.value_and_grad(loss)
    rng = np.random.default_rng(2)
    for epoch in range(30):
        for batch in np.split(rng.permutation(5000), 20):
            _, g = step(model, u[train][batch], i[train][batch], r[train][batch])
            model = Model(*[p - np.float32(12.0) * d for p, d in zip(model[:4], g[:4])], model.mean)
        if epoch % 10 == 9:
            rmse = np.sqrt(np.mean((predict(model, u[held_out], i[held_out]) - r[held_out]) ** 2))
            print(f"epoch {epoch + 1}: rmse of unseen ratings {rmse:.3f} (all alike {r.std():.3f})")


if __name__ == "__main__":
    main()
