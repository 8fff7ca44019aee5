"""Convolutions: ``examples/layers/convolution.py``."""

from typing import Any

import numpy as np
import pytest
from layers.convolution import (
    col2im,
    conv1d,
    conv2d,
    conv2d_depthwise,
    conv2d_transpose,
    conv2d_transpose_depthwise,
    im2col,
)

import pullback as pb
from tests.acceptance.checks import Program, check, draw, gradients, in_dtypes

Array = Any
Pair = tuple[int, int]


def padded(x: Array, pad: Pair) -> Array:
    return np.pad(x, ((0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1])))


def counts(x: Array, size: Any, stride: Pair, pad: Pair) -> list[int]:
    return [(n + 2 * a - f) // s + 1 for n, f, s, a in zip(x.shape[2:], size, stride, pad, strict=True)]


def loop_conv(x: Array, w: Array, b: Array, stride: Pair = (1, 1), pad: Pair = (0, 0)) -> Array:
    z, (p, q) = padded(x, pad), counts(x, w.shape[2:], stride, pad)
    out = np.zeros((len(x), len(w), p, q))
    for n, f, u, v in np.ndindex(*out.shape):
        patch = z[n, :, u * stride[0] : u * stride[0] + w.shape[2], v * stride[1] : v * stride[1] + w.shape[3]]
        out[n, f, u, v] = b[f] + np.sum(w[f] * patch)
    return out


def conv_gradients(G: Array, x: Array, w: Array, b: Array, stride: Pair = (1, 1), pad: Pair = (0, 0)) -> Any:
    """Return the gradients by the sums of the table, over each offset of the filter and each output pixel."""
    z = padded(x, pad)
    dw, dz = np.zeros(w.shape), np.zeros(z.shape)
    (p, q), (sp, sq) = G.shape[2:], stride
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            for u in range(p):
                for v in range(q):
                    dw[:, :, i, j] += np.einsum("nf,nc->fc", G[:, :, u, v], z[:, :, u * sp + i, v * sq + j])
                    dz[:, :, u * sp + i, v * sq + j] += np.einsum("nf,fc->nc", G[:, :, u, v], w[:, :, i, j])
    height, width = x.shape[2:]
    dx = dz[:, :, pad[0] : pad[0] + height, pad[1] : pad[1] + width]
    return dx, dw, np.sum(G, axis=(0, 2, 3))


def loop_conv1d(x: Array, w: Array, stride: int = 1, pad: int = 0) -> Array:
    return loop_conv(x[:, :, None], w[:, :, None], np.zeros(len(w)), (1, stride), (0, pad))[:, :, 0]


def conv1d_gradients(G: Array, x: Array, w: Array, stride: int = 1, pad: int = 0) -> Any:
    dx, dw, _ = conv_gradients(G[:, :, None], x[:, :, None], w[:, :, None], np.zeros(len(w)), (1, stride), (0, pad))
    return dx[:, :, 0], dw[:, :, 0]


def loop_depthwise(x: Array, w: Array, b: Array, **options: Any) -> Array:
    m = w.shape[1]
    each = [loop_conv(x[:, [c]], w[c][:, None], b[c * m : c * m + m], **options) for c in range(len(w))]
    return np.concatenate(each, axis=1)


def depthwise_gradients(G: Array, x: Array, w: Array, b: Array, **options: Any) -> Any:
    m = w.shape[1]
    each = [
        conv_gradients(G[:, c * m : c * m + m], x[:, [c]], w[c][:, None], b[c * m : c * m + m], **options) for c in range(len(w))
    ]
    dx, dw, db = zip(*each, strict=True)
    return np.concatenate(dx, axis=1), np.stack(dw)[:, :, 0], np.concatenate(db)


Options = dict[str, Pair]


def loop_transpose(x: Array, w: Array, b: Array, **options: Pair) -> Array:
    """Each input pixel adds its filter to the output, which is cut out of the sum."""
    stride, pad, more = (options.get(k, default) for k, default in (("stride", (1, 1)), ("pad", (0, 0)), ("out_pad", (0, 0))))
    sizes = [s * (n - 1) + f for n, f, s in zip(x.shape[2:], w.shape[2:], stride, strict=True)]
    whole = np.zeros((len(x), w.shape[1], *(n + e for n, e in zip(sizes, more, strict=True))))
    for n, c, u, v in np.ndindex(*x.shape):
        whole[n, :, u * stride[0] : u * stride[0] + w.shape[2], v * stride[1] : v * stride[1] + w.shape[3]] += (
            x[n, c, u, v] * w[c]
        )
    height, width = whole.shape[2:]
    return whole[:, :, pad[0] : height - pad[0], pad[1] : width - pad[1]] + b[:, None, None]


def transpose_gradients(G: Array, x: Array, w: Array, b: Array, **options: Pair) -> Any:
    """dX is conv2d of G; dW the filter gradient of conv2d with input and cotangent exchanged."""
    stride, pad = options.get("stride", (1, 1)), options.get("pad", (0, 0))
    none = np.zeros(w.shape[0])
    dx = loop_conv(G, w, none, stride, pad)[:, :, : x.shape[2], : x.shape[3]]
    _, dw, _ = conv_gradients(x, G, w, none, stride, pad)
    return dx, dw, np.sum(G, axis=(0, 2, 3))


def loop_transpose_depthwise(x: Array, w: Array, b: Array, **options: Pair) -> Array:
    m = w.shape[1]
    each = [loop_transpose(x[:, g * m : g * m + m], w[g][:, None], b[[g]], **options) for g in range(len(w))]
    return np.concatenate(each, axis=1)


def transpose_depthwise_gradients(G: Array, x: Array, w: Array, b: Array, **options: Pair) -> Any:
    m = w.shape[1]
    each = [transpose_gradients(G[:, [g]], x[:, g * m : g * m + m], w[g][:, None], b[[g]], **options) for g in range(len(w))]
    dx, dw, db = zip(*each, strict=True)
    return np.concatenate(dx, axis=1), np.stack(dw)[:, :, 0], np.concatenate(db)


def loop_im2col(x: Array, size: Pair, stride: Pair = (1, 1), pad: Pair = (0, 0)) -> Array:
    z, (p, q) = padded(x, pad), counts(x, size, stride, pad)
    out = np.zeros((*x.shape[:2], *size, p, q))
    for i, j, u, v in np.ndindex(*out.shape[2:]):
        out[:, :, i, j, u, v] = z[:, :, u * stride[0] + i, v * stride[1] + j]
    return out


def loop_col2im(cols: Array, shape: Pair, stride: Pair = (1, 1), pad: Pair = (0, 0)) -> Array:
    z = np.zeros((*cols.shape[:2], shape[0] + 2 * pad[0], shape[1] + 2 * pad[1]))
    for i, j, u, v in np.ndindex(*cols.shape[2:]):
        z[:, :, u * stride[0] + i, v * stride[1] + j] += cols[:, :, i, j, u, v]
    return z[:, :, pad[0] : pad[0] + shape[0], pad[1] : pad[1] + shape[1]]


def conv(n: int, c: int, f: int, image: Pair, size: Pair, **options: Pair) -> Program:
    return Program(
        f=conv2d, args=(*draw((n, c, *image), (f, c, *size), (f,)),), oracle=loop_conv, formula=conv_gradients, options=options
    )


def depthwise(n: int, c: int, m: int, image: Pair, size: Pair, **options: Pair) -> Program:
    return Program(
        f=conv2d_depthwise,
        args=(*draw((n, c, *image), (c, m, *size), (c * m,)),),
        oracle=loop_depthwise,
        formula=depthwise_gradients,
        options=options,
    )


def transposed(n: int, c: int, f: int, image: Pair, size: Pair, **options: Pair) -> Program:
    return Program(
        f=conv2d_transpose,
        args=(*draw((n, c, *image), (c, f, *size), (f,)),),
        oracle=loop_transpose,
        formula=transpose_gradients,
        options=options,
    )


def transposed_depthwise(n: int, g: int, m: int, image: Pair, size: Pair, **options: Pair) -> Program:
    return Program(
        f=conv2d_transpose_depthwise,
        args=(*draw((n, g * m, *image), (g, m, *size), (g,)),),
        oracle=loop_transpose_depthwise,
        formula=transpose_depthwise_gradients,
        options=options,
    )


def sequence(n: int, c: int, f: int, length: int, size: int, **options: int) -> Program:
    return Program(
        f=conv1d, args=(*draw((n, c, length), (f, c, size)),), oracle=loop_conv1d, formula=conv1d_gradients, options=options
    )


PROGRAMS = {
    "conv2d": conv(3, 2, 4, (6, 5), (3, 2)),
    "conv2d of one pixel": conv(1, 3, 2, (4, 5), (1, 1)),
    "conv2d of the whole image": conv(2, 2, 3, (4, 5), (4, 5)),
    "conv2d with strides": conv(2, 2, 3, (7, 9), (3, 3), stride=(2, 3)),
    "conv2d with strides that leave a rest": conv(2, 1, 2, (8, 7), (3, 2), stride=(2, 2), pad=(1, 0)),
    "conv2d with a stride beyond the filter": conv(2, 2, 2, (7, 8), (2, 2), stride=(3, 4)),
    "conv2d with padding": conv(2, 3, 2, (5, 4), (3, 3), pad=(1, 1)),
    "conv2d with uneven padding": conv(1, 2, 2, (4, 5), (3, 5), pad=(3, 2), stride=(1, 2)),
    "conv1d": sequence(3, 2, 4, 9, 3),
    "conv1d with stride and padding": sequence(2, 3, 2, 8, 4, stride=2, pad=3),
    "conv2d_depthwise": depthwise(2, 3, 2, (5, 6), (3, 2)),
    "conv2d_depthwise of one filter each": depthwise(1, 4, 1, (5, 5), (3, 3), pad=(1, 1)),
    "conv2d_depthwise with strides": depthwise(2, 2, 3, (6, 7), (2, 3), stride=(2, 2), pad=(0, 1)),
    "conv2d_transpose": transposed(2, 3, 2, (3, 4), (3, 2)),
    "conv2d_transpose with strides": transposed(2, 2, 3, (3, 4), (3, 3), stride=(2, 3)),
    "conv2d_transpose with gaps": transposed(1, 2, 2, (3, 3), (2, 2), stride=(3, 4)),
    "conv2d_transpose with everything": transposed(2, 2, 3, (4, 3), (3, 4), stride=(2, 3), pad=(1, 2), out_pad=(1, 2)),
    "conv2d_transpose_depthwise": transposed_depthwise(2, 2, 3, (3, 4), (3, 2)),
    "conv2d_transpose_depthwise with everything": transposed_depthwise(
        3, 3, 2, (4, 3), (3, 4), stride=(2, 3), pad=(1, 2), out_pad=(1, 2)
    ),
    **{
        f"im2col {options}": Program(
            f=lambda x, **o: im2col(x, (3, 2), **o),
            args=(*draw((2, 2, 5, 6)),),
            oracle=lambda x, **o: loop_im2col(x, (3, 2), **o),
            formula=lambda G, x, **o: (loop_col2im(G, x.shape[2:], **o),),
            options=options,
        )
        for options in ({}, {"stride": (2, 3), "pad": (1, 2)})
    },
    **{
        f"col2im {options}": Program(
            f=lambda cols, **o: col2im(cols, (5, 6), **o),
            args=(loop_im2col(*draw((2, 2, 5, 6)), (3, 2), **options) ** 2,),
            oracle=lambda cols, **o: loop_col2im(cols, (5, 6), **o),
            formula=lambda G, cols, **o: (loop_im2col(G, (3, 2), **o),),
            options=options,
        )
        for options in ({}, {"stride": (2, 3), "pad": (1, 2)})
    },
}


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_program(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], dtype)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batch_sizes(batch: int) -> None:
    check(conv(batch, 2, 3, (5, 4), (3, 3), pad=(1, 0)), np.float64)


STEPS = [{}, {"stride": (2, 1)}, {"stride": (2, 3), "pad": (1, 2)}, {"pad": (2, 0)}]


def inner(x: Array, y: Array) -> float:
    return float(np.sum(x * y))


@pytest.mark.parametrize("options", STEPS, ids=str)
def test_adjoints(options: Any) -> None:
    """<A x, y> = <x, A' y> for patches and their sums, and for the two convolutions."""
    (x,) = draw((2, 3, 7, 8))
    y = cols = pb.jit(lambda x: im2col(x, (3, 2), **options))(x)
    (y,) = draw(cols.shape, seed=1)
    back = pb.jit(lambda y: col2im(y, x.shape[2:], **options))(y)
    np.testing.assert_allclose(inner(cols, y), inner(x, back), rtol=1e-12)
    (w,) = draw((4, 3, 3, 2), seed=2)
    out = pb.jit(lambda x, w: conv2d(x, w, np.zeros(4), **options))(x, w)
    (z,) = draw(out.shape, seed=3)
    stride, pad = options.get("stride", (1, 1)), options.get("pad", (0, 0))
    rest = tuple((n + 2 * a - f) % s for n, f, s, a in zip(x.shape[2:], (3, 2), stride, pad, strict=True))
    back = pb.jit(lambda z, w: conv2d_transpose(z, w, np.zeros(3), out_pad=rest, **options))(z, w)
    assert back.shape == x.shape
    np.testing.assert_allclose(inner(out, z), inner(x, back), rtol=1e-12)


def ramp(*shape: int) -> Array:
    n = np.prod(shape)
    return (2 * np.arange(1, n + 1) / n - 1).reshape(shape)


# Apache SystemDS's tests of these layers: the function, its input and filters, first and last row of all results
PUBLISHED = {
    "conv2d_depthwise": (
        lambda x, w, b: conv2d_depthwise(x, w, b, pad=(1, 1)), ramp(2, 2, 3, 3), ramp(2, 2, 3, 3), np.arange(1, 5) / 16,
        [2.13040123, 3.20447531, 2.16743827], [2.6882716, 3.89197531, 2.65123457],
    ),
    "conv2d_transpose": (
        conv2d_transpose, ramp(2, 3, 2, 2), ramp(3, 2, 3, 3), np.arange(1, 3) / 4,
        [1.21296296, 2.03703704, 1.91666667, 1.02777778], [1.39814815, 2.42592593, 2.56481481, 1.61111111],
    ),
    "conv2d_transpose_depthwise": (
        conv2d_transpose_depthwise, ramp(2, 4, 2, 2), ramp(2, 2, 3, 3), np.arange(1, 3) / 4,
        [1.44097222, 2.45486111, 2.28125, 1.1875], [1.60069444, 2.87152778, 3.05902778, 1.875],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_published(name: str) -> None:
    f, x, w, b, first, last = PUBLISHED[name]
    out, _ = gradients(f, np.ones(f(x, w, b).shape), x, w, b)
    np.testing.assert_allclose(out[0, 0, 0], first, rtol=0, atol=6e-9)
    np.testing.assert_allclose(out[-1, -1, -1], last, rtol=0, atol=6e-9)
