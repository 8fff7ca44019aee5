"""Softmax, losses and regularisers. Losses are means over the N rows, numbers; y is data of the shape of q."""

import math

import numpy as np


def softmax(s, axis=-1):
    """e^s / sum e^s along an axis."""
    e = np.exp(s - np.max(s, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def softmax2d(s):
    """The softmax over channels at each pixel.

    s: (N, C, H, W).
    """
    return softmax(s, axis=1)


def logsumexp(s, axis=-1):
    """log sum e^s along an axis, which the result lacks."""
    m = np.max(s, axis=axis, keepdims=True)
    return np.squeeze(m, axis) + np.log(np.sum(np.exp(s - m), axis=axis))


def log_softmax(s, axis=-1):
    """s - logsumexp(s): the logarithm of the softmax."""
    return s - np.expand_dims(logsumexp(s, axis), axis)


def cross_entropy(p, y, eps=1e-10):
    """-1/N sum y log(p + eps).

    p: (N, K), probabilities; y: (N, K).
    """
    return -np.sum(y * np.log(p + eps)) / len(p)


def cross_entropy2d(p, y, eps=1e-10):
    """The cross-entropy of each pixel's probabilities, a mean over examples and pixels.

    p: (N, C, H, W), probabilities along C; y: (N, C, H, W).
    """
    n, _, height, width = p.shape
    return -np.sum(y * np.log(p + eps)) / (n * height * width)


def softmax_cross_entropy(s, y, eps=1e-9):
    """The cross-entropy of softmax(s), -1/N sum y log(softmax(s) + eps).

    s, y: (N, K). The rows of y may have any sum.
    """
    return cross_entropy(softmax(s), y, eps)


def log_loss(q, y):
    """-1/N sum [y log q + (1 - y) log(1 - q)].

    q: (N, 1), probabilities strictly between 0 and 1; of any others ``log_loss_of_scores`` is the loss to take.
    """
    return -np.sum(y * np.log(q) + (1 - y) * np.log(1 - q)) / len(q)


def log_loss_of_scores(x, y):
    """The log-loss of sigmoid(x), for scores of any size.

    x, y: (N, 1).
    """
    return np.sum(np.logaddexp(0, x) - y * x) / len(x)


def l1_loss(q, y):
    """1/N sum |q - y|."""
    return np.sum(np.abs(q - y)) / len(q)


def l2_loss(q, y):
    """1/(2N) sum (q - y)^2."""
    return np.sum((q - y) ** 2) / (2 * len(q))


def logcosh_loss(q, y):
    """1/N sum log cosh(q - y), for differences of any size."""
    d = q - y
    return np.sum(np.logaddexp(d, -d) - math.log(2)) / len(q)


def l1_reg(x, strength):
    """strength sum |x|."""
    return strength * np.sum(np.abs(x))


def l2_reg(x, strength):
    """strength/2 sum x^2."""
    return 0.5 * strength * np.sum(x * x)
