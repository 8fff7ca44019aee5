"""Pooling, upsampling and borders: ``examples/layers/pooling.py``."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from layers.pooling import avg_pool2d, crop2d, global_avg_pool2d, max_pool2d, pad2d, upsample2d

import pullback as pb
from tests.acceptance.checks import Program, check, draw, gradients, in_dtypes

Array = Any
Pair = tuple[int, int]


def windows(x: Array, size: Pair, stride: Pair, pad: Pair) -> Any:
    """For each output pixel its place and the real pixels of its window."""
    height, width = x.shape[2:]
    rows, columns = ((n + 2 * a - f) // s + 1 for n, f, s, a in zip((height, width), size, stride, pad, strict=True))
    for p, q in product(range(rows), range(columns)):
        top, left = p * stride[0] - pad[0], q * stride[1] - pad[1]
        across = product(range(top, top + size[0]), range(left, left + size[1]))
        yield (p, q), [(u, v) for u, v in across if 0 <= u < height and 0 <= v < width]


def pooled(x: Array, size: Pair, stride: Pair, pad: Pair, of: Any) -> Array:
    result = {position: [of([x[n, c, u, v] for u, v in inside]) for n, c in np.ndindex(*x.shape[:2])]
             for position, inside in windows(x, size, stride, pad)}  # fmt: skip
    rows, columns = (max(position[k] for position in result) + 1 for k in (0, 1))
    out = np.empty((*x.shape[:2], rows, columns))
    for (p, q), values in result.items():
        out[:, :, p, q] = np.reshape(values, x.shape[:2])
    return out


def loop_max(x: Array, size: Pair, stride: Pair, pad: Pair = (0, 0)) -> Array:
    return pooled(x, size, stride, pad, lambda values: max(values, default=-np.inf))


def loop_avg(x: Array, size: Pair, stride: Pair, pad: Pair = (0, 0)) -> Array:
    return pooled(x, size, stride, pad, lambda values: sum(values) / (size[0] * size[1]))


def max_gradient(G: Array, x: Array, size: Pair, stride: Pair, pad: Pair = (0, 0)) -> Any:
    """Equal shares to all maxima of a window."""
    dx = np.zeros(x.shape)
    for (p, q), inside in windows(x, size, stride, pad):
        for n, c in np.ndindex(*x.shape[:2]):
            largest = max((x[n, c, u, v] for u, v in inside), default=0)
            ties = [(u, v) for u, v in inside if x[n, c, u, v] == largest]
            for u, v in ties:
                dx[n, c, u, v] += G[n, c, p, q] / len(ties)
    return (dx,)


def avg_gradient(G: Array, x: Array, size: Pair, stride: Pair, pad: Pair = (0, 0)) -> Any:
    dx = np.zeros(x.shape)
    for (p, q), inside in windows(x, size, stride, pad):
        for u, v in inside:
            dx[:, :, u, v] += G[:, :, p, q] / (size[0] * size[1])
    return (dx,)


def tiles(x: Array, scale: Pair) -> Array:
    out = np.empty((*x.shape[:2], x.shape[2] * scale[0], x.shape[3] * scale[1]))
    for u, v in np.ndindex(*out.shape[2:]):
        out[:, :, u, v] = x[:, :, u // scale[0], v // scale[1]]
    return out


def sum_of_tiles(G: Array, x: Array, scale: Pair) -> Any:
    out = np.zeros(x.shape)
    for u, v in np.ndindex(*G.shape[2:]):
        out[:, :, u // scale[0], v // scale[1]] += G[:, :, u, v]
    return (out,)


(X,) = draw((2, 3, 7, 6))
TIED = np.round(X)


def maximum(x: Array, smooth: bool = True, **options: Pair) -> Program:
    return Program(f=max_pool2d, args=(x,), oracle=loop_max, formula=max_gradient, options=options, smooth=smooth)


def average(x: Array, **options: Pair) -> Program:
    return Program(f=avg_pool2d, args=(x,), oracle=loop_avg, formula=avg_gradient, options=options)


PROGRAMS = {
    "max_pool2d": maximum(X, size=(2, 2), stride=(2, 2)),
    "max_pool2d, overlapping": maximum(X, size=(3, 2), stride=(1, 1)),
    "max_pool2d with gaps": maximum(X, size=(2, 1), stride=(3, 2)),
    "max_pool2d with ties": maximum(TIED, smooth=False, size=(3, 3), stride=(2, 2), pad=(1, 1)),
    "max_pool2d of equal pixels": maximum(np.full((1, 2, 4, 4), -1.5), smooth=False, size=(3, 2), stride=(1, 2)),
    "avg_pool2d": average(X, size=(2, 2), stride=(2, 2)),
    "avg_pool2d, overlapping and padded": average(X, size=(3, 2), stride=(2, 1), pad=(1, 1)),
    "global_avg_pool2d": Program(
        f=global_avg_pool2d,
        args=(X,),
        oracle=lambda x: loop_avg(x, (7, 6), (1, 1)),
        formula=lambda G, x: avg_gradient(G, x, (7, 6), (1, 1)),
    ),
    **{
        f"upsample2d by {scale}": Program(
            f=upsample2d, args=(X[:1],), oracle=tiles, formula=sum_of_tiles, options={"scale": scale}
        )
        for scale in ((2, 2), (1, 3), (3, 1))
    },
    "pad2d": Program(
        f=pad2d,
        args=(X,),
        oracle=lambda x, pad, value: np.pad(x, ((0, 0), (0, 0), (1, 1), (3, 3)), constant_values=value),
        formula=lambda G, x, pad, value: (G[:, :, 1:-1, 3:-3],),
        options={"pad": (1, 3), "value": 2.0},
    ),
    "crop2d": Program(
        f=crop2d,
        args=(X,),
        oracle=lambda x, pad: x[:, :, 1:-1],
        formula=lambda G, x, pad: (np.pad(G, ((0, 0), (0, 0), (1, 1), (0, 0))),),
        options={"pad": (1, 0)},
    ),
}


@pytest.mark.parametrize(("name", "dtype"), in_dtypes(PROGRAMS))
def test_program(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], dtype)


@pytest.mark.parametrize("pad", product(range(4), range(4)), ids=str)
def test_all_pads(pad: Pair) -> None:
    x = X[:, :2, :5, :5]
    check(maximum(x, size=(2, 2), stride=(2, 2), pad=pad), np.float64)
    check(average(x, size=(2, 2), stride=(2, 2), pad=pad), np.float64)


ORDER = np.arange(1.0, 17.0).reshape(4, 4)
BOTH = np.stack([ORDER, ORDER.T])


@pytest.mark.parametrize(
    "sign, pad, expected",
    [
        (1, 0, "6 8 14 16 6 14 8 16"),
        (1, 1, "1 3 4 9 11 12 13 15 16 1 9 13 3 11 15 4 12 16"),
        (-1, 0, "-1 -3 -9 -11 -1 -9 -3 -11"),
        (-1, 1, "-1 -2 -4 -5 -6 -8 -13 -14 -16 -1 -5 -13 -2 -6 -14 -4 -8 -16"),
    ],
)
def test_max_pool2d_as_published(sign: int, pad: int, expected: str) -> None:
    """Figures of Apache SystemDS's test."""
    x = sign * np.stack([BOTH, BOTH])
    out = pb.jit(lambda x: max_pool2d(x, (2, 2), (2, 2), (pad, pad)))(x)
    np.testing.assert_array_equal(out.reshape(2, -1), [np.array(expected.split(), float)] * 2)


def test_ties_share_equally() -> None:
    """Where scripts of SystemDS give the whole cotangent to each of four equal pixels, and its built-in one to the first."""
    _, (dx,) = gradients(lambda x: max_pool2d(x, (2, 2), (2, 2)), np.full((1, 1, 1, 1), 8.0), np.ones((1, 1, 2, 2)))
    np.testing.assert_array_equal(dx, np.full((1, 1, 2, 2), 2.0))


def test_adjoints() -> None:
    """<pad x, y> = <x, crop y>, and of averages with their gradient."""
    x, y = draw((2, 3, 5, 4), (2, 3, 9, 6))
    np.testing.assert_allclose(np.sum(pad2d(x, (2, 1)) * y), np.sum(x * crop2d(y, (2, 1))), rtol=1e-13)
    _, (back,) = gradients(lambda y: crop2d(y, (2, 1)), x, y)
    np.testing.assert_array_equal(back, pad2d(x, (2, 1)))
    out = avg_pool2d(y, (3, 2), (2, 2), (1, 1))
    (z,) = draw(out.shape)
    _, (back,) = gradients(lambda y: avg_pool2d(y, (3, 2), (2, 2), (1, 1)), z, y)
    np.testing.assert_allclose(np.sum(out * z), np.sum(y * back), rtol=1e-12)
