"""Blocks of convolutional networks on images (N, C, H, W). ``params`` are dicts; convolutions have no bias where a normalisation
follows, which would take it away."""

import numpy as np
from layers.activations import relu, silu
from layers.convolution import conv2d, conv2d_depthwise, conv2d_transpose
from layers.normalisation import batch_norm2d
from layers.pooling import global_avg_pool2d, max_pool2d, upsample2d


def conv_norm(params, name, x, stride=1, conv=conv2d):
    """A convolution, padded so that stride 1 keeps the size, and the normalisation of its batch.

    params: ``w_name`` (F, C, Hf, Wf) with Hf, Wf odd, ``gamma_name`` and ``beta_name``, of as many channels as come out.
    """
    w, gamma = params[f"w_{name}"], params[f"gamma_{name}"]
    none = np.zeros_like(gamma)
    pad = w.shape[2] // 2, w.shape[3] // 2
    return batch_norm2d(conv(x, w, none, (stride, stride), pad), gamma, params[f"beta_{name}"], none, none)[0]


def mbconv(params, x, stride=1):
    """An inverted residual with squeeze and excitation: wide inside, with a depthwise convolution.

    params: of ``conv_norm``, depthwise (C, 1, Hf, Wf) and project, and expand if the block is wider than x; w_squeeze
    (R, C, 1, 1), w_excite (C, R, 1, 1) and their biases. x is added where it has the shape of the result.

    M. Tan, Q. V. Le, EfficientNet, 2019.
    """
    wide = silu(conv_norm(params, "expand", x)) if "w_expand" in params else x
    deep = silu(conv_norm(params, "depthwise", wide, stride, conv2d_depthwise))
    squeezed = conv2d(global_avg_pool2d(deep), params["w_squeeze"], params["b_squeeze"])
    weights = conv2d(squeezed, params["w_excite"], params["b_excite"])
    out = conv_norm(params, "project", deep * upsample2d(weights, deep.shape[2:]))
    return out + x if out.shape == x.shape else out


def basic_block(params, x, stride=1):
    """Two convolutions around which x goes, too.

    params: of ``conv_norm``, 1 and 2, and shortcut (1 x 1) if the result has another shape than x.

    K. He et al., Deep Residual Learning for Image Recognition, 2015.
    """
    out = relu(conv_norm(params, "1", x, stride))
    return relu(conv_norm(params, "2", out) + _shortcut(params, x, stride))


def bottleneck_block(params, x, stride=1):
    """Three convolutions, of which the second has fewer channels, around which x goes, too.

    params: of ``conv_norm``, 1 and 3 (1 x 1), 2, and shortcut (1 x 1) if the result has another shape than x.

    K. He et al., Deep Residual Learning for Image Recognition, 2015.
    """
    out = relu(conv_norm(params, "1", x))
    out = relu(conv_norm(params, "2", out, stride))
    return relu(conv_norm(params, "3", out) + _shortcut(params, x, stride))


def unet_level(params, x, inner=lambda x: x):
    """One level of a U-Net: a convolution, ``inner`` at half the size, and a last convolution of both, concatenated.

    params: w_down (F, C, Hf, Wf), w_up (G, F, 2, 2) for the G channels of inner's result, w_join (K, 2 F, Hf, Wf), and their
    biases. x: (N, C, H, W), H and W even. Result: (N, K, H, W).

    O. Ronneberger, P. Fischer, T. Brox, U-Net, 2015.
    """
    down = relu(_same(x, params["w_down"], params["b_down"]))
    up = conv2d_transpose(inner(max_pool2d(down, (2, 2), (2, 2))), params["w_up"], params["b_up"], (2, 2))
    return relu(_same(np.concatenate([down, up], axis=1), params["w_join"], params["b_join"]))


def _same(x, w, b):
    return conv2d(x, w, b, pad=(w.shape[2] // 2, w.shape[3] // 2))


def _shortcut(params, x, stride):
    return conv_norm(params, "shortcut", x, stride) if "w_shortcut" in params else x
