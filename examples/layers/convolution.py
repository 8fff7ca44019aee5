"""Convolutions: products of filters with the patches of images, and the adjoint of that.

Images are (N, C, H, W). ``stride`` and ``pad`` are pairs: of rows and of columns.
"""

import numpy as np


def im2col(x, size, stride=(1, 1), pad=(0, 0)):
    """The patches of images padded with zeros.

    x: (N, C, H, W), size: (Hf, Wf). Result: (N, C, Hf, Wf, P, Q) with P = (H + 2 pad - Hf) // stride + 1, Q likewise;
    element [n, c, i, j, p, q] is the padded x[n, c, p stride + i, q stride + j].
    """
    (down, right), (above, left) = stride, pad
    x = np.pad(x, ((0, 0), (0, 0), (above, above), (left, left)))
    patches = np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))[:, :, ::down, ::right]
    return np.moveaxis(patches, (4, 5), (2, 3))


def col2im(cols, shape, stride=(1, 1), pad=(0, 0)):
    """The adjoint of ``im2col``: patches are added up where they came from.

    cols: (N, C, Hf, Wf, P, Q), shape: (H, W). Result: (N, C, H, W).
    """
    n, c, hf, wf, p, q = cols.shape
    (height, width), (down, right), (above, left) = shape, stride, pad
    x = np.zeros((n, c, height + 2 * above, width + 2 * left), cols.dtype)
    for i in range(hf):
        for j in range(wf):
            x[:, :, i : i + down * p : down, j : j + right * q : right] += cols[:, :, i, j]
    return x[:, :, above : above + height, left : left + width]


def conv2d(x, w, b, stride=(1, 1), pad=(0, 0)):
    """Each filter's product with each patch (a cross-correlation), plus the filter's bias.

    x: (N, C, H, W), w: (F, C, Hf, Wf), b: (F,). Result: (N, F, P, Q), P = (H + 2 pad - Hf) // stride + 1, Q likewise.
    """
    patches = im2col(x, w.shape[2:], stride, pad)
    return np.einsum("ncijpq,fcij->nfpq", patches, w) + b[:, None, None]


def conv1d(x, w, stride=1, pad=0):
    """A convolution of sequences, without bias.

    x: (N, C, L), w: (F, C, Lf). Result: (N, F, P) with P = (L + 2 pad - Lf) // stride + 1.
    """
    patches = im2col(x[:, :, None], (1, w.shape[2]), (1, stride), (0, pad))
    return np.einsum("ncjq,fcj->nfq", patches[:, :, 0, :, 0], w)


def conv2d_depthwise(x, w, b, stride=(1, 1), pad=(0, 0)):
    """Each channel is convolved with its own M filters.

    x: (N, C, H, W), w: (C, M, Hf, Wf), b: (C M,). Result: (N, C M, P, Q); channel c M + m is of input channel c.
    """
    patches = im2col(x, w.shape[2:], stride, pad)
    out = np.einsum("ncijpq,cmij->ncmpq", patches, w)
    return out.reshape(len(x), -1, *out.shape[3:]) + b[:, None, None]


def conv2d_transpose(x, w, b, stride=(1, 1), pad=(0, 0), out_pad=(0, 0)):
    """The adjoint of ``conv2d`` with filters w (C, F, Hf, Wf), plus a bias.

    x: (N, C, H, W), b: (F,). Result: (N, F, P, Q), P = stride (H - 1) - 2 pad + Hf + out_pad, Q likewise.

    V. Dumoulin, F. Visin, A guide to convolution arithmetic for deep learning, 2016, chapter 4.
    """
    cols = np.einsum("ncpq,cfij->nfijpq", x, w)
    return col2im(cols, _transposed_shape(cols, stride, pad, out_pad), stride, pad) + b[:, None, None]


def conv2d_transpose_depthwise(x, w, b, stride=(1, 1), pad=(0, 0), out_pad=(0, 0)):
    """Each group of M channels becomes one channel, by a transposed convolution of its own.

    x: (N, G M, H, W), w: (G, M, Hf, Wf), b: (G,). Result: (N, G, P, Q), the shape as in ``conv2d_transpose``.
    """
    n, _, height, width = x.shape
    groups = x.reshape(n, *w.shape[:2], height, width)
    cols = np.einsum("ngmpq,gmij->ngijpq", groups, w)
    return col2im(cols, _transposed_shape(cols, stride, pad, out_pad), stride, pad) + b[:, None, None]


def _transposed_shape(cols, stride, pad, out_pad):
    size, counts = cols.shape[2:4], cols.shape[4:]
    return [s * (n - 1) - 2 * a + f + e for n, f, s, a, e in zip(counts, size, stride, pad, out_pad)]
