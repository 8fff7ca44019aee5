"""Pooling of images (N, C, H, W) over windows, its inverse, and the borders of images. ``stride`` and ``pad`` are pairs."""

import numpy as np


def max_pool2d(x, size, stride, pad=(0, 0)):
    """The largest element of each window; padding outside of the image is never the largest.

    x: (N, C, H, W), size: (Hf, Wf). Result: (N, C, P, Q) with P = (H + 2 pad - Hf) // stride + 1, Q likewise. A window that
    is entirely outside of the image gives -infinity.
    """
    return np.max(_windows(x, size, stride, pad, -np.inf), axis=(4, 5))


def avg_pool2d(x, size, stride, pad=(0, 0)):
    """The mean of each window, in which the padding counts as zeros.

    x: (N, C, H, W), size: (Hf, Wf). Result: (N, C, P, Q), as for ``max_pool2d``.
    """
    return np.mean(_windows(x, size, stride, pad, 0), axis=(4, 5))


def global_avg_pool2d(x):
    """The mean over pixels: (N, C, H, W) to (N, C, 1, 1)."""
    return np.mean(x, axis=(2, 3), keepdims=True)


def upsample2d(x, scale):
    """Each pixel as a tile of scale[0] rows and scale[1] columns."""
    return np.repeat(np.repeat(x, scale[0], axis=2), scale[1], axis=3)


def pad2d(x, pad, value=0):
    """Images with ``pad[0]`` rows above and below and ``pad[1]`` columns left and right, of one value."""
    return np.pad(x, ((0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1])), constant_values=value)


def crop2d(x, pad):
    """Images without their outer rows and columns: the adjoint of ``pad2d``."""
    height, width = x.shape[2:]
    return x[:, :, pad[0] : height - pad[0], pad[1] : width - pad[1]]


def _windows(x, size, stride, pad, outside):
    padded = pad2d(x, pad, outside)
    return np.lib.stride_tricks.sliding_window_view(padded, size, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]
