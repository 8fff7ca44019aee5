"""Optimizers: each a function of one array ``x``, its gradient ``g`` and a state, to the new array and the new state.

``training_step`` puts one and a loss together: forward, backward and update are one compiled program, state in and state out.

    step = training_step(loss, adam, rate=0.001)
    states = initial_states(adam, params)
    for batch in batches:
        value, params, states = step(params, states, *batch)
"""

from functools import partial

import numpy as np

import pullback as pb


def sgd(x, g, state=(), rate=0.01):
    """Steepest descent."""
    return x - rate * g, state


def momentum(x, g, state, rate=0.01, mu=0.9):
    """Polyak's heavy ball (1964)."""
    (v,) = state
    v = mu * v - rate * g
    return x + v, (v,)


def nesterov(x, g, state, rate=0.01, mu=0.9):
    """Nesterov's momentum, of the form of Bengio, Boulanger-Lewandowski and Pascanu (2013)."""
    (v,) = state
    w = mu * v - rate * g
    return x - mu * v + (1 + mu) * w, (w,)


def adagrad(x, g, state, rate=0.01, eps=1e-8):
    """Duchi, Hazan and Singer (2011)."""
    (s,) = state
    s = s + g * g
    return x - rate * g / (np.sqrt(s) + eps), (s,)


def rmsprop(x, g, state, rate=0.01, rho=0.99, eps=1e-8):
    """Tieleman and Hinton (2012)."""
    (s,) = state
    s = rho * s + (1 - rho) * g * g
    return x - rate * g / (np.sqrt(s) + eps), (s,)


def adam(x, g, state, rate=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    """Kingma and Ba (2014), in the form in which eps is not corrected for bias."""
    m, v, t = state
    t = t + 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    x = x - rate * np.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + eps)
    return x, (m, v, t)


def adamw(
    x,
    g,
    state,
    rate=0.001,
    beta1=0.9,
    beta2=0.999,
    eps=1e-8,
    decay=0.01,
):
    """Adam with decoupled weight decay: Loshchilov and Hutter (2017)."""
    m, v, t = state
    t = t + 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    x = x - rate * (m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + eps) + decay * x)
    return x, (m, v, t)


def lars(x, g, state, rate=0.1, mu=0.9, decay=1e-4, trust=0.001):
    """A rate for each layer by the norms of weights and gradient, of vectors the plain one: You, Gitman and Ginsburg (2017)."""
    (v,) = state
    size = np.sqrt(np.sum(x * x))
    local = trust * size / (np.sqrt(np.sum(g * g)) + decay * size + 1e-8)
    scale = np.where(size < 1e-3, 1.0, local) if x.ndim > 1 and min(x.shape) > 1 else 1.0
    v = mu * v - rate * scale * (g + decay * x)
    return x + v, (v,)


def inverse_fourth_root(a):
    """``a ** (-1/4)`` of a symmetric positive definite matrix."""
    values, vectors = np.linalg.eigh(a)
    return (vectors * values**-0.25) @ vectors.T


def shampoo(x, g, state, rate=0.01):
    """Preconditioned by rows and columns: Gupta, Koren and Singer (2018). Of matrices; others are matrices of one row each."""
    left, right = state
    matrix = np.reshape(g, (len(g), -1)) if g.ndim > 1 else np.reshape(g, (1, -1))
    left = left + matrix @ matrix.T
    right = right + matrix.T @ matrix
    step = inverse_fourth_root(left) @ matrix @ inverse_fourth_root(right)
    return x - rate * np.reshape(step, x.shape), (left, right)


def diagonal_shampoo(x, g, state, rate=0.01):
    """Shampoo with the diagonals of its matrices alone: sums of squares of rows and of columns."""
    left, right = state
    matrix = np.reshape(g, (len(g), -1)) if g.ndim > 1 else np.reshape(g, (1, -1))
    left = left + np.sum(matrix * matrix, axis=1, keepdims=True)
    right = right + np.sum(matrix * matrix, axis=0, keepdims=True)
    return x - rate * np.reshape(matrix * left**-0.25 * right**-0.25, x.shape), (left, right)


def nothing(x):
    return ()


def one_like(x):
    return (np.zeros_like(x),)


def two_and_time(x):
    return np.zeros_like(x), np.zeros_like(x), np.zeros((), x.dtype)


def identities(x, eps=1e-3):
    rows, columns = (len(x), x.size // len(x)) if x.ndim > 1 else (1, x.size)
    return eps * np.eye(rows, dtype=x.dtype), eps * np.eye(columns, dtype=x.dtype)


def diagonals(x, eps=1e-3):
    rows, columns = (len(x), x.size // len(x)) if x.ndim > 1 else (1, x.size)
    return np.full((rows, 1), eps, x.dtype), np.full((1, columns), eps, x.dtype)


INITIAL = {
    sgd: nothing,
    momentum: one_like,
    nesterov: one_like,
    adagrad: one_like,
    rmsprop: one_like,
    adam: two_and_time,
    adamw: two_and_time,
    lars: one_like,
    shampoo: identities,
    diagonal_shampoo: diagonals,
}


def initial_states(optimizer, params):
    """The state that an optimizer starts with, for each array."""
    return [INITIAL[optimizer](x) for x in params]


def training_step(loss, optimizer, **options):
    """``step(params, states, *batch)`` gives the loss and the new params and states.

    ``loss(params, *batch)`` is a number; ``params`` a list of arrays. ``options`` go to the optimizer.
    """
    update = partial(optimizer, **options)

    @pb.jit
    def step(params, states, *batch):
        value, gradients = pb.value_and_grad(loss)(params, *batch)
        pairs = [update(x, g, s) for x, g, s in zip(params, gradients, states)]
        return value, [x for x, _ in pairs], [s for _, s in pairs]

    return step
