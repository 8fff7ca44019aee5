"""Normalisation by the mean and variance of a batch, of a row, or by neighbouring channels."""

import numpy as np


def batch_norm1d(x, gamma, beta, mean, var, train=True, momentum=0.9, eps=1e-5):
    """(x - mean) / sqrt(var + eps) gamma + beta for each feature, and the averages to take next time.

    x: (N, D); gamma, beta, mean, var: (D,). Result: ``out`` (N, D), ``mean`` and ``var`` (D,).

    In training the mean and variance are those of the examples, and the averages move towards them; else they are the given
    averages.

    S. Ioffe, C. Szegedy, Batch Normalization, 2015.
    """
    return _batch_norm(x, (0,), gamma, beta, mean, var, train, momentum, eps)


def batch_norm2d(x, gamma, beta, mean, var, train=True, momentum=0.9, eps=1e-5):
    """As ``batch_norm1d`` for each channel of images: mean and variance are over examples and pixels.

    x: (N, C, H, W); gamma, beta, mean, var: (C,). Result: ``out`` (N, C, H, W), ``mean`` and ``var`` (C,).
    """
    gamma, beta = gamma[:, None, None], beta[:, None, None]
    return _batch_norm(x, (0, 2, 3), gamma, beta, mean, var, train, momentum, eps)


def _batch_norm(x, axes, gamma, beta, mean, var, train, momentum, eps):
    if train:
        m, v = np.mean(x, axis=axes, keepdims=True), np.var(x, axis=axes, keepdims=True)
        mean = momentum * mean + (1 - momentum) * np.squeeze(m, axes)
        var = momentum * var + (1 - momentum) * np.squeeze(v, axes)
    else:
        m, v = mean.reshape(gamma.shape), var.reshape(gamma.shape)
    return (x - m) / np.sqrt(v + eps) * gamma + beta, mean, var


def layer_norm(x, gamma, beta, eps=1e-5):
    """(x - mean) / sqrt(var + eps) gamma + beta, mean and variance of each row.

    x: (..., D); gamma, beta: (D,). Result: as x.

    J. L. Ba, J. R. Kiros, G. E. Hinton, Layer Normalization, 2016.
    """
    m, v = np.mean(x, axis=-1, keepdims=True), np.var(x, axis=-1, keepdims=True)
    return (x - m) / np.sqrt(v + eps) * gamma + beta


def lrn(x, n=5, alpha=1e-4, beta=0.75, k=2.0):
    """x / (k + alpha sum of x^2 over the channels at most n // 2 away)^beta.

    x: (N, C, H, W). Result: as x.

    A. Krizhevsky, I. Sutskever, G. E. Hinton, ImageNet Classification with Deep Convolutional Neural Networks, 2012, 3.3.
    """
    reach = n // 2
    squares = np.pad(x * x, ((0, 0), (reach, reach), (0, 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(squares, 2 * reach + 1, axis=1)
    return x * (k + alpha * np.sum(windows, axis=-1)) ** -beta
