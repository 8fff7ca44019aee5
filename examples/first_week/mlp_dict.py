"""A small network with its weights in a dict of lists, trained by Adam written out by hand."""

import numpy as np

import pullback as pb

ACTIVATIONS = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0), "softplus": lambda z: np.logaddexp(z, 0)}


def forward(params, x, activation="tanh"):
    act = ACTIVATIONS[activation]
    *hidden, last = params["layers"]
    for layer in hidden:
        x = act(x @ layer["w"] + layer["b"])
    return (x @ last["w"] + last["b"])[:, 0] * params["scale"]


def mse(params, x, y, activation="tanh"):
    assert x.ndim == 2 and len(x) == len(y), f"{x.shape} inputs, {y.shape} targets"
    return np.mean((forward(params, x, activation) - y) ** 2)


def init(sizes, rng):
    layers = [{"w": rng.normal(0, 1 / np.sqrt(m), (m, n)), "b": np.zeros(n)} for m, n in zip(sizes[:-1], sizes[1:])]
    return {"layers": layers, "scale": 1.0}


def tree_map(f, *trees):
    first = trees[0]
    if isinstance(first, dict):
        return {k: tree_map(f, *[t[k] for t in trees]) for k in first}
    if isinstance(first, list):
        return [tree_map(f, *parts) for parts in zip(*trees)]
    return f(*trees)


def adam(params, grads, m, v, t, lr=0.01, b1=0.9, b2=0.999):
    m = tree_map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = tree_map(lambda v, g: b2 * v + (1 - b2) * g**2, v, grads)
    lr_t = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
    return tree_map(lambda p, m, v: p - lr_t * m / (np.sqrt(v) + 1e-8), params, m, v), m, v


def main():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (256, 2))
    y = np.sin(2 * x[:, 0]) * np.cos(x[:, 1])
    for activation in ACTIVATIONS:
        params = init([2, 24, 24, 1], np.random.default_rng(1))
        m = v = tree_map(np.zeros_like, params)
        objective = pb.value_and_grad(mse)
        for t in range(1, 301):
            value, grads = objective(params, x, y, activation=activation)
            params, m, v = adam(params, grads, m, v, t)
        print(f"{activation:8s} mean square error {value:.5f}, scale {params['scale']:.3f}")


if __name__ == "__main__":
    main()
