"""What input can do to compiled code: programs that together meet every kernel, and arguments with every value, size and layout.

A program takes arrays of n points, or n rows of m elements. Values are chosen so that sums are the same in any order: small
dyadic numbers, some of them replaced by one kind of special value; what else differs from the interpreter is the rounding of
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb

Array = Any
Call = Callable[..., Any]

# programs of vectors x, y


def elements(x: Array, y: Array) -> Any:
    return x * y - np.abs(x), np.maximum(x, y), np.where(x > y, x, -y), np.copysign(x, y), np.sqrt(x) / y, x[::-1] + y


def totals(x: Array, y: Array) -> Any:
    return np.sum(x * y), np.sum(x), np.any(x > y), np.sum(x < y), np.max(x, initial=-np.inf), np.min(y, initial=np.inf)


def places(x: Array, y: Array) -> Any:
    return np.argmax(x), np.argmin(y), np.max(x), np.min(x * y), np.argmax(x > y)


def smooth(x: Array, y: Array) -> Any:
    return np.sum(np.tanh(x) * y + np.exp(-np.abs(y))) + np.sum(np.maximum(x, y))


def scans(x: Array, y: Array) -> Any:
    c = np.cumsum(x * y)
    return c, np.cumsum(y[::-1])[::-1] * x, np.sum(c), np.maximum.accumulate(x)


def weighed_scan(x: Array, y: Array) -> Any:
    return np.sum(y * np.cumsum(x)) + np.sum(np.cumsum(y[::-1]) * x)


def orders(x: Array, y: Array) -> Any:
    return np.sort(x) + 0.0, np.argsort(y), y[np.argsort(x)]


def sorted_sum(x: Array, y: Array) -> Any:
    return np.sum(np.sort(x) * y)


def line(x: Array, y: Array) -> Any:
    v = x.copy()
    v[1:-1] = x[2:] - 2.0 * x[1:-1] + x[:-2]
    v[:-1] += y[1:]
    return v, np.roll(x, 1) + y


def line_energy(x: Array, y: Array) -> Any:
    v, r = line(x, y)
    return np.sum(v * y) + np.sum(r * x)


# of points x, y


def forces(x: Array, y: Array) -> Any:
    d = x[:, None] - x[None, :]
    return -0.5 * np.sum(y[:, None] * y[None, :] / np.sqrt(d * d + 1.0))


def extremes(x: Array, y: Array) -> Any:
    d = x[:, None] - x[None, :]
    return np.max(d, axis=1), np.sum(np.abs(d) < 0.5, axis=1), np.sum(d * d, axis=1), np.sum(d > 1.0)


def two_sets(x: Array, y: Array) -> Any:
    d = x[:, None] - y[None, :]
    return np.sum(np.sum(np.abs(d), axis=0) * y) + np.sum(np.max(d * d, axis=1))


# of rows: matrices x, y; a row k, a column r


def rows(x: Array, y: Array, k: Array, r: Array) -> Any:
    s = np.sum(x, axis=1)
    return x - s[:, None], x * y + k, np.sum(x * y, axis=1), (s + r) * r, np.any(x > y, axis=1)


def columns(x: Array, y: Array, k: Array, r: Array) -> Any:
    return np.sum(x, axis=0), np.sum(x * r[:, None], axis=0) + k, np.sum(x < y, axis=0), x + y * k, np.sum(np.sum(y, axis=1) * r)


def softmax(x: Array, y: Array, k: Array, r: Array) -> Any:
    e = np.exp(x - np.max(x, axis=1, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=1, keepdims=True) * k, np.sum(e, axis=0)


def softmax_loss(x: Array, y: Array, k: Array, r: Array) -> Any:
    p, s = softmax(x, y, k, r)
    return np.sum(p * y) + np.sum(s)


def layer_norm(x: Array, y: Array, k: Array, r: Array) -> Any:
    m = np.mean(x, axis=1, keepdims=True)
    v = np.mean((x - m) ** 2, axis=1, keepdims=True)
    return np.sum(((x - m) / np.sqrt(v + 0.5) * k + y) * r[:, None])


def cross_entropy(x: Array, y: Array, k: Array, r: Array) -> Any:
    labels = np.arange(x.shape[0]) * 5 % max(x.shape[1], 1)
    top = np.max(x, axis=1, initial=-np.inf)
    picked = x[np.arange(x.shape[0]), labels]
    return np.sum((np.log(np.sum(np.exp(x - top[:, None]), axis=1)) + top - picked) * r) + 0.0 * np.sum(k)


def logistic(x: Array, y: Array, k: Array, r: Array) -> Any:
    z = x @ k
    return np.sum(np.logaddexp(0.0, z) - r * z)


def norms(x: Array, y: Array, k: Array, r: Array) -> Any:
    return np.sum(np.sqrt(np.sum(x * x, axis=1)) * r) + np.sum(np.sqrt(np.sum(y * y, axis=0)) * k)


def extremes_of_rows(x: Array, y: Array, k: Array, r: Array) -> Any:
    return np.max(x, axis=1), np.min(y, axis=0), np.argmax(x, axis=1), np.argmin(x, axis=0), np.max(x + k, axis=0)


def extremes_loss(x: Array, y: Array, k: Array, r: Array) -> Any:
    return np.sum(np.max(x, axis=1) * r) + np.sum(np.min(x * y, axis=0) * k) + np.sum(np.where(x > y, x, 0.5 * y))


def grid(x: Array, y: Array, k: Array, r: Array) -> Any:
    v = x.copy()
    v[1:-1, 1:-1] += 0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4.0 * x[1:-1, 1:-1])
    return v, np.pad(y, 1)[2:, 1:-1] - np.roll(x, -1, 1)


def grid_loss(x: Array, y: Array, k: Array, r: Array) -> Any:
    v, p = grid(x, y, k, r)
    return np.sum(v * p)


def lookups(x: Array, y: Array, k: Array, r: Array) -> Any:
    i = np.arange(2 * x.shape[0] + 1) * 7 % max(x.shape[0], 1) - x.shape[0] * (np.arange(2 * x.shape[0] + 1) % 2)
    return np.sum(np.sum(x[i] * k, axis=1)[1:] * r[i[:-1]])


def crossed(x: Array, y: Array, k: Array, r: Array) -> Any:
    return np.sum(x.T, axis=0) + r, x.T * k[:, None], np.cumsum(x, axis=0), np.cumsum(y[:, ::-1], axis=1), np.sum(x.T @ y)


def products(x: Array, y: Array, k: Array, r: Array) -> Any:
    return x @ y.T, x.T @ y, y @ k, r @ x, np.outer(r, k), pb.fori_loop(0, 3, lambda _, v: x.T @ (x @ v), k)


# of integers


def whole_numbers(x: Array, y: Array) -> Any:
    return x * y - x, np.sum(x), np.max(x) + np.min(y), x // y, x % y, np.cumsum(x), np.sort(y), np.argmax(x), x[::-1] ^ y


def truths(x: Array, y: Array) -> Any:
    return x & ~y, np.sum(x), np.any(x), np.all(y), np.argmax(x), np.cumsum(x), np.where(x, 1.5, np.where(y, np.nan, -0.0))


VECTORS = (
    elements, totals, places, smooth, scans, weighed_scan, orders, sorted_sum, line, line_energy, forces, extremes, two_sets,
)  # fmt: skip
MATRICES = (
    rows, columns, softmax, softmax_loss, layer_norm, cross_entropy, logistic, norms, extremes_of_rows, extremes_loss, grid,
    grid_loss, lookups, crossed, products,
)  # fmt: skip
LOSSES = (
    smooth, weighed_scan, sorted_sum, line_energy, forces, two_sets, softmax_loss, layer_norm, cross_entropy, logistic, norms,
    extremes_loss, grid_loss, lookups,
)  # fmt: skip
NOT_EMPTY = (places, orders, sorted_sum, extremes, two_sets, cross_entropy, extremes_of_rows, extremes_loss, lookups)

# values

KINDS = ("plain", "nan", "inf", "-inf", "infinities", "-0.0", "zeros", "tiny", "huge", "mixed")


def values(kind: str, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> Array:
    """Dyadic numbers from -2 to 2, some of them, or all, replaced by special values of a kind; integers of their whole range."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        extreme = rng.choice(np.array([ends.min, ends.max], dtype), shape)
        return np.where(rng.random(shape) < 0.3, extreme, rng.integers(0, 5, shape)).astype(dtype)
    x = (rng.integers(-8, 9, shape) / 4.0).astype(dtype)
    info = np.finfo(dtype)
    chosen = rng.random(shape) < 0.15
    match kind:
        case "nan" | "inf" | "-inf" | "-0.0":
            x[chosen] = float(kind)
        case "infinities":
            x[chosen] = rng.choice([np.inf, -np.inf], chosen.sum())
        case "zeros":
            x = rng.choice([0.0, -0.0], shape).astype(dtype)
        case "tiny":
            x = (rng.integers(-3, 4, shape) * info.smallest_subnormal).astype(dtype)
        case "huge" | "large" if x.size:
            x.flat[rng.integers(x.size)] = info.max if kind == "huge" else info.max / 1024
        case "mixed":
            x[chosen] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, info.smallest_subnormal, info.tiny], chosen.sum())
    return x


# layouts

LAYOUTS = ("dense", "later", "odd", "field", "reversed", "stepped", "crossed", "swapped", "repeated")


def laid_out(x: Array, layout: str) -> Array:
    """The array, with the same elements, somewhere else in memory."""
    match layout:
        case "later":
            return placed(x, np.empty(x.size + 1, x.dtype)[1:].reshape(x.shape))
        case "odd":
            whole = np.empty(x.size * x.itemsize + 1, np.uint8)
            return placed(x, np.frombuffer(whole, x.dtype, x.size, offset=1).reshape(x.shape))
        case "field":
            return placed(x, np.empty(x.shape, [("gap", "u1"), ("value", x.dtype)])["value"])
        case "reversed":
            return x[(slice(None, None, -1),) * x.ndim].copy()[(slice(None, None, -1),) * x.ndim]
        case "stepped":
            return placed(x, np.empty([2 * e for e in x.shape], x.dtype)[(slice(1, None, 2),) * x.ndim])
        case "crossed":
            return np.asfortranarray(x)
        case "swapped":
            return x.astype(x.dtype.newbyteorder())
        case "repeated" if x.ndim and len(x):
            return np.broadcast_to(x[:1], x.shape)
    return x


def placed(x: Array, room: Array) -> Array:
    room[...] = x
    return room


def shapes(function: Call, n: int, m: int) -> list[tuple[int, ...]]:
    return [(n, m), (n, m), (m,), (n,)] if function in MATRICES else [(n,), (n,)]
