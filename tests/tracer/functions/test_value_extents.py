"""Functions whose results have a length that values decide, and functions of such arrays: values, dtypes, shapes and errors as
NumPy has them, gradients as differences have them, and no compilation for other values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.process import counters
from pullback.tracer import flatten
from tests.support.agreement import gradients_agree, plain

Call = Callable[..., Any]
RNG = np.random.default_rng(35)
NAN = np.nan

VECTORS: list[tuple[Any, ...]] = [
    (np.array([3.0, 1.0, 2.0, 3.0, -1.0, 2.0, 2.0, 0.0, 5.0]),),
    (np.array([0.5, 0.5, 0.5]),),
    (np.array([-1.0, -2.0, -2.0]),),
    (np.array([NAN, 1.0, NAN, 1.0, 0.0]),),
    (np.zeros(0),),
    (np.array([0.6]),),
    (RNG.integers(-3, 4, 33).astype(float),),
]
FILLED = [v for v in VECTORS if v[0].size]
PAIRS: list[tuple[Any, ...]] = [
    *((x, np.array([3.0, 2.0, 2.0, 7.0, -1.0])) for (x,) in VECTORS),
    (np.array([1.0, 2.0]), np.zeros(0)),
    (np.array([NAN, 2.0, NAN]), np.array([NAN, 2.0, NAN])),
]
COUNTED: list[tuple[Any, ...]] = [
    (np.array([3.0, 1.0, 2.0, 3.0, -1.0, 2.0, 2.0, 0.0, 5.0]), 3),
    (np.array([0.5, 0.5, 0.5]), 0),
    (np.array([-1.0, -2.0, -2.0]), 5),
    (np.array([-1.0, -2.0, -2.0]), -2),
    (np.zeros(0), 1),
    (np.array([0.6]), 1),
    (np.arange(12.0), -20),
]
INDEXED: list[tuple[Any, ...]] = [
    (np.arange(6.0), np.array([1, 1, 3])),
    (np.arange(6.0), np.array([-1])),
    (np.arange(6.0), np.zeros(0, int)),
    (np.arange(6.0), np.array([0, -6, 5])),
    (np.arange(6.0), np.array([0, -7, 5])),
    (np.zeros(0), np.zeros(0, int)),
]
MASKED: list[tuple[Any, ...]] = [
    (np.arange(6.0), np.array([1, 1, 0, 0, 1, 0], bool)),
    (np.arange(6.0), np.ones(6, bool)),
    (np.arange(6.0), np.zeros(6, bool)),
    (np.arange(6.0), np.zeros(5, bool)),
    (np.zeros(0), np.zeros(0, bool)),
]
REPEATS: list[tuple[Any, ...]] = [
    *((x, np.abs(np.nan_to_num(x)).astype(int)) for (x,) in VECTORS),
    (np.array([1.0, 2.0, 3.0]), np.array([1, 2])),
    (np.array([1.0, 2.0, 3.0]), np.array([1, -2, 1])),
    (np.array([1.0, 2.0, 3.0]), np.array([2])),
    (np.array([1.0, 2.0, 3.0]), np.array([True, False, True])),
    (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 0.0])),
    (np.array([1.0, 2.0, 3.0]), np.array([1, 2, 0], np.uint64)),
]
INTEGERS: list[tuple[Any, ...]] = [
    (np.array([1, 3, 3, 0]), np.array([1.0, 2.0, 3.0, 4.0])),
    (np.zeros(0, int), np.zeros(0)),
    (np.array([5]), np.array([2.0])),
    (np.array([1, -1]), np.array([2.0, 3.0])),
]
SAMPLES: list[tuple[Any, ...]] = [
    (np.random.default_rng(1).normal(size=100),),
    (np.zeros(0),),
    (np.ones(5),),
    (np.array([1.0]),),
    (np.array([NAN, 2.0]),),
    (np.random.default_rng(1).integers(0, 50, 200),),
    (np.random.default_rng(1).normal(size=100).astype(np.float32),),
]
ROWS: list[tuple[Any, ...]] = [
    (RNG.integers(0, 2, (9, 3)).astype(float),),
    (np.array([[1, NAN], [1, NAN], [0, 2], [NAN, 1], [NAN, 0], [1, 3], [1, 3]]),),
    (np.zeros((3, 0)),),
    (np.zeros((0, 3)),),
    (RNG.integers(0, 2, (4, 3, 2)).astype(bool),),
    (np.array([[1 + 1j, 2], [complex(NAN, 1), 3], [complex(1, NAN), 0], [1, 0], [1, 0]]),),
]


def written_at_tuples(x: Any) -> Any:
    y, i = np.ones((3, len(x))), np.where(x > 0)
    y[1, i] = x[i] * 2
    y[2, i] += 1.0
    return y


def written(x: Any) -> Any:
    y = x[x > 0]
    view, column = y[1:], y.reshape(-1, 1)
    view += 1
    column *= 2
    y[y > 7.5] = -1
    return y, view, column


def sliced_writes(x: Any, n: int) -> Any:
    k = np.sum(x > 0)
    y, z, a = x.copy(), x.copy(), np.zeros((3, x.size))
    y[k:] = 7
    y[:k] += 1
    z[:k][::2] = 5
    z[k::-1] = np.arange(z[k::-1].size)
    a[:, k:] = x[k:]
    a[1:, :k] += np.ones((2, k))
    return y, z, a


def bool_writes(x: Any) -> Any:
    t = np.sum(x) > 2
    y, z, w, u = x.copy(), x.copy(), x.copy(), x.copy()
    y[t], z[True], w[False], u[t, 0] = 0, 1, 1, 9
    y[t] += 2
    return y, z, w, u


def mode(x: Any) -> Any:
    values, counts = np.unique(x, return_counts=True)
    return values[np.argmax(counts)]


PROGRAMS: dict[str, tuple[list[tuple[Any, ...]], Call]] = {
    "unique": (VECTORS, lambda x: np.unique(x)),
    "unique with all results": (VECTORS, lambda x: np.unique(x, True, True, True)),
    "unique without equal NaN": (VECTORS, lambda x: np.unique(x, True, True, True, equal_nan=False)),
    "unique along axes": (ROWS, lambda x: (np.unique(x, axis=0), np.unique(x, True, True, True, axis=-1))),
    "unique of matrices": (ROWS, lambda x: np.unique(x, return_inverse=True)),
    "unique_all": (VECTORS, lambda x: tuple(np.unique_all(x))),
    "unique_counts": (VECTORS, lambda x: np.unique_counts(x).counts),
    "unique_inverse": (VECTORS, lambda x: np.unique_inverse(x).inverse_indices),
    "unique_values": (VECTORS, lambda x: np.sort(np.unique_values(x))),
    "number of values": (VECTORS, lambda x: (len(np.unique(x)), np.sum(np.unique(x)))),
    "mode": (VECTORS, mode),
    "union1d": (PAIRS, lambda x, y: np.union1d(x, y)),
    "intersect1d": (PAIRS, lambda x, y: (np.intersect1d(x, y), np.intersect1d(x, y, return_indices=True))),
    "intersect1d of unique": (PAIRS, lambda x, y: np.intersect1d(np.unique(x), np.unique(y), True, True)),
    "setdiff1d": (PAIRS, lambda x, y: (np.setdiff1d(x, y), np.setdiff1d(x, y, assume_unique=True))),
    "setxor1d": (PAIRS, lambda x, y: (np.setxor1d(x, y), np.setxor1d(np.unique(x), np.unique(y), True))),
    "isin": (PAIRS, lambda x, y: (np.isin(x, y), np.isin(x[x > 0], y[y > 2]), np.isin(x, y[y > 99], invert=True))),
    "trim_zeros": (VECTORS, lambda x: (np.trim_zeros(x), np.trim_zeros(x, "f"), np.trim_zeros(x, "b"))),
    "trim_zeros of matrices": (ROWS, lambda x: (np.trim_zeros(x), np.trim_zeros(x, "b", axis=-1))),
    "repeat": (REPEATS, lambda x, c: (np.repeat(x, c), x.repeat(c) * 2)),
    "repeat by one": (COUNTED, lambda x, n: (np.repeat(x, n), np.repeat(x, np.sum(x > 0)))),
    "repeat along an axis": (REPEATS[:6], lambda x, c: np.repeat(np.stack([x, x]), c, axis=1)),
    "delete": (INDEXED, lambda x, i: np.delete(x, i)),
    "delete by mask": (MASKED, lambda x, m: np.delete(x, m)),
    "delete slices": (
        COUNTED,
        lambda x, n: [
            np.delete(x, s)
            for k in [np.sum(x > 0)]
            for s in (slice(k, None), slice(k, None, 2), slice(None, k, -1), slice(-k, k, 3), slice(k, n, -2))
        ],
    ),
    "delete of chosen": (VECTORS, lambda x: (np.delete(x[x > 0], x[x > 0] > 1), np.delete(x[x > 0], slice(1, None)))),
    "insert": (INDEXED, lambda x, i: (np.insert(x, i, 7.0), np.insert(x, i, -i.astype(float)))),
    "insert by mask": (MASKED, lambda x, m: np.insert(x, m, 7.0)),
    "insert into chosen": (VECTORS, lambda x: (np.insert(x[x > 0], 0, 1.0), np.insert(x[x > 0], [0, 0], [3.0, 4.0]))),
    "append": (VECTORS, lambda x: (np.append(x[x > 0], x), np.append(x[x > 0], [1, 2]))),
    "resize": (VECTORS, lambda x: (np.resize(x, np.sum(x > 0)), np.resize(x, (np.sum(x > 0), 2)), np.resize(x[x > 0], 5))),
    "split": (COUNTED, lambda x, n: (np.split(x, [np.sum(x > 0)]), np.array_split(x, [np.sum(x > 0), -1]))),
    "split chosen": (VECTORS, lambda x: np.array_split(x[x > 0], 3)),
    "split in halves": (VECTORS, lambda x: np.split(x[x > 0], 2)),
    "created": (
        VECTORS,
        lambda x: [
            (np.zeros(k), np.ones((k, 2)), np.full((2, k), 3.5), np.eye(k), np.tri(3, k, -1), np.indices((k, 2)))
            for k in [np.sum(x > 0)]
        ],
    ),
    "created of negative extents": (COUNTED, lambda x, n: np.zeros((2, n + np.sum(x > 100)))),
    "spaced": (
        VECTORS,
        lambda x: [
            (np.linspace(0, 1, k), np.linspace([0, 1], [2, 3], k), np.logspace(0, 2, k), np.geomspace(1, 100, k, endpoint=False))
            for k in [np.sum(x > 0)]
        ],
    ),
    "tuples of positions in keys": (
        VECTORS,
        lambda x: [(y[1, i], y[np.array([0]), i[0]], x[[i[0], i[0]]]) for y, i in [(np.stack([x, x * 2]), np.where(x > 0))]],
    ),
    "writes at tuples of positions": (VECTORS, written_at_tuples),
    "partitions": (
        VECTORS,
        lambda x: [(np.partition(x, k)[k], x[np.argpartition(x, k)[k]]) for k in [np.minimum(np.sum(x > 0), len(x) - 1)]],
    ),
    "windows": (
        VECTORS,
        lambda x: [(np.hanning(k), np.hamming(k), np.blackman(k), np.bartlett(k)) for k in [np.sum(x > 0)]],
    ),
    "frequencies": (
        VECTORS,
        lambda x: [(np.fft.fftfreq(k), np.fft.fftfreq(k, 0.3), np.fft.rfftfreq(k)) for k in [1 + np.sum(x > 0)]],
    ),
    "indices of triangles": (
        VECTORS,
        lambda x: [
            (np.triu_indices(k, 1), np.tril_indices(k), np.triu_indices(k, -1, 4), np.diag_indices(k))
            + (np.triu_indices_from(np.ones((k, k))), np.tril_indices_from(np.ones((k, k)), -1))
            for k in [np.sum(x > 0)]
        ],
    ),
    "arange": (
        COUNTED,
        lambda x, n: [(np.arange(k), np.arange(n), np.arange(k, 0, -1), np.arange(0.0, k * 1.0, 0.5)) for k in [np.sum(x > 0)]],
    ),
    "tile": (VECTORS, lambda x: (np.tile(x, np.sum(x > 0)), np.tile(x[x > 0], (2, 1)), np.broadcast_to(1.0, np.sum(x > 0)))),
    "reshape": (VECTORS, lambda x: [(y.reshape(2, -1), y.reshape(-1, 2)) for y in [np.append(x[x > 0], x[x > 0])]]),
    "slices": (
        COUNTED,
        lambda x, n: [
            (x[k:], x[:-k], x[k::2], x[k::-1], x[:k:-1], x[-k::-2], x[k - 20 : k + 20], x[n:], x[n::-1]) for k in [np.sum(x > 0)]
        ],
    ),
    "slices of matrices": (
        VECTORS,
        lambda x: [
            (a[:, k:], a[1, :k], a[..., k:], a[[0, 1], :k], a[k - 99 :, None, :k])
            for k, a in [(np.sum(x > 0), x + np.zeros((3, 1)))]
        ],
    ),
    "writes through slices": (COUNTED, sliced_writes),
    "writes through views of chosen elements": (VECTORS, written),
    "reductions": (
        VECTORS,
        lambda x: [
            (y.sum(), np.mean(y), np.std(y), np.prod(y), np.any(y > 1), np.linalg.norm(y), np.median(y), np.nanmedian(y))
            for y in [np.append(x[x > 0], [])]
        ],
    ),
    "max": (VECTORS, lambda x: np.max(np.unique(x[x > 0]))),
    "argmax": (VECTORS, lambda x: np.argmax(np.unique(x[x > 0]))),
    "percentile": (VECTORS, lambda x: np.percentile(np.unique(x[x > 0]), [20.0, 50.0])),
    "scans": (VECTORS, lambda x: [(np.cumsum(y), np.diff(y), np.maximum.accumulate(y)) for y in [np.unique(x[x > 0])]]),
    "sorts": (VECTORS, lambda x: [(np.sort(y), np.argsort(y, kind="stable"), np.lexsort((y, -y))) for y in [x[x != 2]]]),
    "partition": (VECTORS, lambda x: np.partition(x[x > 0], 2)[2]),
    "searches": (VECTORS, lambda x: [(np.searchsorted(y, [0.0, 2.0]), np.digitize(x, y)) for y in [np.unique(x[x > 0])]]),
    "convolve": (
        VECTORS,
        lambda x: [np.convolve(np.append(x[x > 0], 1.0), [1.0, 2.0, 3.0], m) for m in ("full", "same", "valid")],
    ),
    "convolve of nothing": (VECTORS, lambda x: np.convolve(np.append(x[x > 0], []), [1.0, 2.0])),
    "interp": (VECTORS, lambda x: np.interp([0.0, 1.0, 2.5], np.unique(x[x > 0]), 2 * np.unique(x[x > 0]))),
    "pad": (
        VECTORS,
        lambda x: [
            np.pad(np.append(x[x > 0], 1.0), 2, mode=m)
            for m in ("constant", "edge", "wrap", "reflect", "symmetric", "linear_ramp", "mean")
        ],
    ),
    "pad by counts": (VECTORS, lambda x: np.pad(x, (np.sum(x > 0), 1), constant_values=3.0)),
    "roll": (VECTORS, lambda x: (np.roll(x[x != 2], 1), np.roll(x[x != 2], -np.sum(x > 0)), np.flip(x[x != 2]))),
    "joined": (
        VECTORS,
        lambda x: [
            (np.stack([y, y]), np.vstack([y, y]), np.hstack([y, x]), np.column_stack([y, y]), np.r_[y, 1.0], np.block([y, y]))
            for y in [x[x != 2]]
        ],
    ),
    "products": (
        VECTORS,
        lambda x: [
            (np.outer(y, z), y @ y, np.outer(z, y) @ y, np.einsum("i,j->ij", y, z), np.kron(y, [1.0, 2.0]), np.diag(y))
            for y, z in [(x[x != 2], x[x > 0])]
        ],
    ),
    "solve": (FILLED, lambda x: [np.linalg.solve(np.outer(y, y) + np.eye(y.size), y) for y in [x[x == x]]]),
    "choices": (
        VECTORS,
        lambda x: [
            (np.where(y > 0, y, -y), np.select([y > 1, y > 0], [y, 2 * y], -1), np.compress(y > 0, y), np.argwhere(y > 1))
            for y in [x[x != 2]]
        ],
    ),
    "elements of nothing": (FILLED, lambda x: x[x > 1e9][0]),
    "comparisons": (VECTORS, lambda x: (np.array_equal(x[x != 2], x[x > 0]), np.array_equal(x[x > 0], x[x > 0]))),
    "ix_": (VECTORS, lambda x: (x + np.zeros((x.size, 1)))[np.ix_(x > 0, x < 1)]),
    "bools": (
        FILLED,
        lambda x: [
            (x[True], x[False], x[None, True], x[True, 0], x[..., True], x[t], x[t, :1], x[..., t], x[t, t], x[:1, t])
            for t in [np.sum(x) > 2]
        ],
    ),
    "writes at bools": (FILLED, bool_writes),
    "two masks": (FILLED, lambda x: (x + np.zeros((x.size, 1)))[x > 0, x > 0]),
    "norms of rows": (FILLED, lambda x: np.linalg.norm((x + np.ones((3, 1))).T[x > 0], axis=1)),
    "products of complex elements": (
        FILLED,
        lambda x: [f((x + 2j)[x > 0], (x - 1j)[x > 0]) for f in (np.vdot, np.dot, np.inner)],
    ),
    "positions of a mask in a longer array": (
        FILLED,
        lambda x: x[np.flatnonzero(x[1:] > x[:-1])] + x[np.flatnonzero(x[1:] > x[:-1]) + 1],
    ),
    "mask beside an index array": (FILLED, lambda x: (x + np.zeros((x.size, 1)))[x > 0, np.flatnonzero(x > 0)]),
    "bincount": (INTEGERS, lambda x, w: (np.bincount(x), np.bincount(x, w), np.bincount(x[x > 0]))),
    "histogram of estimated bins": (
        SAMPLES,
        lambda x: [np.histogram(x, bins=b) for b in ("auto", "fd", "doane", "scott", "rice", "sturges", "sqrt")],
    ),
    "histogram of estimated bins in a range": (SAMPLES, lambda x: np.histogram(x, bins="auto", range=(-1, 1.5))),
    "histogram of counted bins": (VECTORS, lambda x: np.histogram(x[x == x], bins=np.sum(x > 0) + 1)),
    "histogram of no bins": (VECTORS, lambda x: np.histogram(x[x == x], bins=np.sum(x > 0))),
}


def copies(args: tuple[Any, ...]) -> list[Any]:
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_errors_are_numpys(name: str) -> None:
    data, program = PROGRAMS[name]
    compiled = pb.jit(program)
    for args in data:
        try:
            expected = flatten(plain(program, *copies(args)))[0]
        except Exception as error:
            with pytest.raises(type(error)):
                compiled(*copies(args))
            continue
        results = flatten(compiled(*copies(args)))[0]
        assert len(results) == len(expected)
        for e, f in zip(map(np.asarray, expected), map(np.asarray, results), strict=True):
            assert (f.dtype, f.shape) == (e.dtype, e.shape), args
            np.testing.assert_allclose(f, e, rtol=1e-9 if e.dtype.itemsize > 4 else 1e-5, atol=1e-12, err_msg=str(args))


X = np.array([0.3, -1.2, 2.5, 0.9, -0.4, 1.7, 3.1])
Y = np.array([2.2, -0.7, 0.3, 5.0, 1.7])
GRADIENTS: dict[str, tuple[tuple[Any, ...], Call]] = {
    "unique": ((X,), lambda x: np.unique(x * np.array([1, 1, 1, 1, -1, 1, 1]))),
    "unique with counts": ((X,), lambda x: [v * c for v, c in [np.unique(x, return_counts=True)]]),
    "unique rows": ((X,), lambda x: np.unique(np.stack([x, x**2], 1), axis=0)),
    "union1d": ((X, Y), lambda x, y: np.union1d(x, y + 10)),
    "intersect1d": ((X,), lambda x: np.intersect1d(x, x[2:])),
    "setdiff1d": ((X, Y), lambda x, y: np.setdiff1d(x, y + 9)),
    "setxor1d": ((X, Y), lambda x, y: np.setxor1d(x, y + 9)),
    "trim_zeros": ((X,), lambda x: np.trim_zeros(np.where(x > 0.5, x, 0))),
    "repeat": ((X,), lambda x: np.repeat(x, (x > 0) + 1)),
    "delete": ((X,), lambda x: np.delete(x, np.flatnonzero(x < 0)) ** 2),
    "insert": ((X, Y), lambda x, y: np.insert(x, np.flatnonzero(x < 0), y[:2])),
    "append": ((X, Y), lambda x, y: np.append(x[x > 0], y)),
    "resize": ((X,), lambda x: np.resize(x, np.sum(x > 0) * 2)),
    "split": ((X,), lambda x: np.split(x, [np.sum(x > 1)])),
    "slices": ((X,), lambda x: [(x[k:] * 2, x[:k] ** 2, x[k::-1]) for k in [np.sum(x > 1)]]),
    "writes": ((X,), lambda x: sliced_writes(x, 0)),
    "views": ((X,), written),
    "sort and cumsum": ((X,), lambda x: np.cumsum(np.sort(x[x > 0]))),
    "median": ((X,), lambda x: np.median(np.append(x[x > 0], x[:1] * 2))),
    "percentile": ((X,), lambda x: np.percentile(np.unique(x[x > 0]), 30.0)),
    "outer": ((X,), lambda x: np.outer(x[x > 0], x[x < 0]) @ x[x < 0]),
    "convolve": ((X,), lambda x: np.convolve(x[x > 0], x[:3])),
    "pad": ((X,), lambda x: np.pad(x[x > 0], 2, mode="reflect")),
    "roll": ((X,), lambda x: np.roll(x[x > 0], np.sum(x > 1)) * x[x > 0]),
    "bools": ((X,), lambda x: x[np.sum(x) > 0] ** 2),
    "bincount": ((X,), lambda x: np.bincount((x > 0).astype(int), x)),
    "interp": ((X,), lambda x: np.interp([0.5, 1.0], np.unique(x[x > 0]), np.unique(x[x > 0]) ** 2)),
    "linspace": ((X,), lambda x: np.linspace(x[0], x[1], np.sum(x > 0))),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_differences(name: str) -> None:
    args, program = GRADIENTS[name]
    gradients_agree(program, *args)


def test_the_gradient_goes_to_the_first_occurrence() -> None:
    x = np.array([2.0, 1.0, 2.0, 3.0, 1.0])
    gradient = pb.grad(lambda x: np.sum(np.unique(x) * np.array([1.0, 10.0, 100.0])))(x)
    np.testing.assert_array_equal(gradient, [10.0, 1.0, 0.0, 100.0, 0.0])
    first, second = pb.grad(lambda x, y: np.sum(np.union1d(x, y) ** 2), argnums=(0, 1))(x, np.array([3.0, 4.0]))
    np.testing.assert_array_equal(first, [4.0, 2.0, 0.0, 6.0, 0.0])
    np.testing.assert_array_equal(second, [0.0, 8.0])


UNCOMPILED = ("unique with all results", "intersect1d", "slices", "sorts", "products", "writes through views of chosen elements")


@pytest.mark.parametrize("name", UNCOMPILED)
def test_other_values_compile_nothing(name: str) -> None:
    program = PROGRAMS[name][1]
    compiled = pb.jit(program)
    rest = [np.array([2.0, 7.0, 1.0])] if name == "intersect1d" else [2] if name == "slices" else []
    compiled(np.array([1.0, 2.0, -1.0, 4.0, 1.0]), *rest)
    before = counters.snapshot()
    for x in ([1.0, 1.0, 1.0, 1.0, 1.0], [-1.0, -2.0, -1.0, -5.0, -1.0], [5.0, 4.0, 3.0, 2.0, -1.0]):
        compiled(np.array(x), *rest)
    assert (counters.snapshot() - before).compiles == 0


def test_a_size_without_memory_leaves_the_results_alone() -> None:
    with pytest.raises(MemoryError):
        pb.jit(lambda n: np.ones(n) * 2)(np.int64(2**58))
    with pytest.raises(ValueError, match="negative dimensions"):
        pb.jit(lambda n: np.ones((2, n)))(np.int64(-1))
    with pytest.raises(IndexError, match="boolean index"):
        pb.jit(lambda x: x[x > 0][x > 1])(np.array([1.0, -1.0, 3.0]))


DTYPES = "?bQlefdFD"


@pytest.mark.parametrize("kind", DTYPES)
def test_all_dtypes(kind: str) -> None:
    x = np.array([1, 0, 3, 1, 1, 0, 7], kind)
    for y in (np.array([1, 3, 3, 9], kind), np.array([1, 3, 3, 9], "d"), np.zeros(0, kind)):
        for program in (
            lambda x, y: np.unique(x, True, True, True),
            lambda x, y: (np.union1d(x, y), np.intersect1d(x, y), np.setdiff1d(x, y), np.setxor1d(x, y)),
            lambda x, y: (np.trim_zeros(x), np.repeat(x, (x != 0) * 2), np.delete(x, x == 1), np.append(x[x != 1], y)),
        ):
            for e, f in zip(flatten(plain(program, x, y))[0], flatten(pb.jit(program)(x, y))[0], strict=True):
                assert (f.dtype, f.shape) == (e.dtype, e.shape)
                np.testing.assert_array_equal(f, e)


OF_COMPUTED_ELEMENTS: list[Any] = [
    lambda v: v[1], lambda v: v[-1], lambda v: np.sum(np.diff(v) ** 2), lambda v: np.sum(v[1:] * v[:-1]), lambda v: v @ v[::-1],
    lambda v: np.sum(np.sort(v)[1:] ** 3), lambda v: np.sum(v.reshape(-1, 1) * v),
    lambda v: np.sum(np.concatenate([v, v]) ** 2 * v[0]), lambda v: v[v > 0.5][0] ** 2,
]  # fmt: skip


@pytest.mark.parametrize("use", OF_COMPUTED_ELEMENTS)
def test_no_derivative_passes_through_nan_beside_the_chosen_elements(use: Any) -> None:
    def program(x: Any) -> Any:
        v = x[~np.isnan(x)]
        return use((v - np.mean(v) * 0.1) / np.std(v))

    x = np.array([1.0, np.nan, 2.0, 0.25, np.nan, 3.0])
    rng = np.random.default_rng(0)
    slope = pb.jit(pb.grad(program))
    step = 1e-6 * rng.standard_normal(len(x))
    np.testing.assert_allclose(np.sum(slope(x) * step), (program(x + step) - program(x - step)) / 2, rtol=1e-6, atol=1e-13)
    second = pb.grad(lambda x: np.sum(slope(x) * np.arange(6.0)))(x)
    change = np.sum((slope(x + step) - slope(x - step)) * np.arange(6.0)) / 2
    np.testing.assert_allclose(np.sum(second * step), change, rtol=1e-5, atol=1e-11)
    assert list(slope(x)[np.isnan(x)]) == [0.0, 0.0]
