"""Functions of one number, for arrays of any shape; results have the shape and dtype of x."""

import math

import numpy as np

import pullback as pb


def relu(x):
    """max(x, 0), with derivative 0 at 0."""
    return np.where(x <= 0, 0, x)


def leaky_relu(x, slope=0.01):
    """x for positive x, else slope x."""
    return np.where(x > 0, x, slope * x)


def elu(x, alpha=1.0):
    """x for positive x, else alpha (e^x - 1).

    D.-A. Clevert, T. Unterthiner, S. Hochreiter, Fast and Accurate Deep Network Learning by Exponential Linear Units, 2015.
    """
    return np.where(x > 0, x, alpha * np.expm1(x))


def selu(x):
    """lambda elu(x, alpha), with the constants that keep mean 0 and variance 1.

    G. Klambauer et al., Self-Normalizing Neural Networks, 2017.
    """
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x):
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.

    D. Hendrycks, K. Gimpel, Gaussian Error Linear Units, 2016: the approximation by tanh.
    """
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x):
    """1 / (1 + e^-x), without overflow."""
    return np.exp(-np.logaddexp(0, -x))


def silu(x):
    """x sigmoid(x).

    S. Elfwing, E. Uchibe, K. Doya, Sigmoid-Weighted Linear Units, 2017.
    """
    return x * sigmoid(x)


def softplus(x):
    """log(1 + e^x), without overflow."""
    return np.logaddexp(0, x)


def tanh(x):
    return np.tanh(x)


def dropout(x, key, keep):
    """x / keep where a coin falls on the side kept, which it does with probability ``keep``, else 0.

    ``key``: of pullback's random numbers; the same key keeps the same elements.

    N. Srivastava et al., Dropout, JMLR 2014.
    """
    return np.where(pb.random.bernoulli(key, keep, x.shape), x / keep, 0)
