"""What is measured on a GPU: plain NumPy functions, forward or as value and gradient."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.cases.loops import lstm
from benchmarks.cases.matrices import network
from benchmarks.cases.pairs import bodies, nbody
from benchmarks.cases.rows import layer_norm, layer_norm_loss, xent
from benchmarks.cases.small import rosenbrock

Array = Any
Arguments = tuple[Any, ...]
VECTOR, ROWS, COLUMNS = 1 << 28, 65536, 4096


@dataclass(frozen=True, kw_only=True)
class GpuCase:
    """One thing to measure. With ``wanted`` the function is an objective, measured as value and gradient by these arguments.
    ``make(dtype, **sizes)`` gives the arguments, ``small`` are sizes at which results are compared. ``moved(**sizes)``: how many
    numbers it must read and write at least; ``flops(**sizes)``: of products, two for one multiply-add. ``targets``: the largest
    ratios of its time that are aimed at, to the best other system's ("ad") and to the limit ("limit")."""

    name: str
    function: Callable[..., Any]
    make: Callable[..., Arguments]
    sizes: Mapping[str, int]
    small: Mapping[str, int]
    wanted: tuple[int, ...] = ()
    moved: Callable[..., int] | None = None
    flops: Callable[..., int] | None = None
    dtypes: tuple[str, ...] = ("float32",)
    targets: Mapping[str, float] = field(default_factory=dict)


def mixed(x: Array, y: Array) -> Array:
    return (x * y + 1.0) * np.tanh(x) + np.exp(-y * y)


def mixed_loss(x: Array, y: Array) -> Array:
    return np.sum(mixed(x, y))


def total(x: Array) -> Array:
    return np.sum(x)


def row_sums(x: Array) -> Array:
    return np.sum(x, axis=1)


def softmax(x: Array) -> Array:
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def softmax_loss(x: Array, c: Array) -> Array:
    return np.sum(softmax(x) * c)


def small_network(w1: Array, w2: Array, w3: Array, w4: Array, x: Array) -> Array:
    h = np.tanh(x @ w1)
    h = np.tanh(h @ w2)
    h = np.tanh(h @ w3)
    return np.mean((h @ w4) ** 2)


def twenty_kernels(x: Array) -> Array:
    for _ in range(20):
        x = np.tanh(np.cumsum(x, axis=0))
    return x


def normal(seed: int, dtype: Any, *shape: int) -> Array:
    """Numbers that repeat, since a billion draws take longer than what is measured."""
    drawn = np.random.default_rng(seed).normal(size=min(int(np.prod(shape)), 1 << 20)).astype(dtype)
    return np.resize(drawn, shape)


def one_vector(dtype: Any, n: int) -> Arguments:
    return (normal(1, dtype, n),)


def two_vectors(dtype: Any, n: int) -> Arguments:
    return normal(1, dtype, n), normal(2, dtype, n)


def one_table(dtype: Any, rows: int, columns: int) -> Arguments:
    return (normal(3, dtype, rows, columns),)


def two_tables(dtype: Any, rows: int, columns: int) -> Arguments:
    return normal(3, dtype, rows, columns), normal(4, dtype, rows, columns)


def rows_to_normalise(dtype: Any, rows: int, columns: int) -> Arguments:
    x, c = two_tables(dtype, rows, columns)
    return x, normal(5, dtype, columns), normal(6, dtype, columns), c


def labelled(dtype: Any, rows: int, columns: int) -> Arguments:
    return normal(3, dtype, rows, columns), np.random.default_rng(7).integers(0, columns, rows)


def layers(dtype: Any, batch: int, width: int) -> Arguments:
    scale = dtype((2.0 / width) ** 0.5)
    weights: list[Array] = []
    for k in range(3):
        weights += [scale * normal(10 + k, dtype, width, width), np.zeros(width, dtype)]
    return *weights, normal(20, dtype, batch, width), np.random.default_rng(21).integers(0, width, batch)


def narrow_layers(dtype: Any, batch: int, width: int) -> Arguments:
    scale = dtype(width**-0.5)
    return *[scale * normal(10 + k, dtype, width, width) for k in range(4)], normal(20, dtype, batch, width)


def sequences(dtype: Any, steps: int, batch: int, hidden: int) -> Arguments:
    shapes = ((2 * hidden, 4 * hidden), 0.1), ((4 * hidden,), 0.1), ((steps, batch, hidden), 1.0)
    return tuple(dtype(scale) * normal(30 + k, dtype, *shape) for k, (shape, scale) in enumerate(shapes))


def point(dtype: Any, n: int) -> Arguments:
    return (np.linspace(-1.0, 1.0, n).astype(dtype),)


TABLE = {"sizes": {"rows": ROWS, "columns": COLUMNS}, "small": {"rows": 37, "columns": 300}}
LINE = {"sizes": {"n": VECTOR}, "small": {"n": 5001}}
STREAMING: dict[str, Any] = {"targets": {"limit": 1 / 0.9, "ad": 1.0}}
CASES = [
    GpuCase(name="elementwise", function=mixed, make=two_vectors, moved=lambda n: 3 * n, **LINE, **STREAMING),
    GpuCase(
        name="elementwise_grad", function=mixed_loss, make=two_vectors, wanted=(0, 1), moved=lambda n: 4 * n, **LINE, **STREAMING
    ),
    GpuCase(name="sum", function=total, make=one_vector, moved=lambda n: n, **LINE, **STREAMING),
    GpuCase(name="row_sums", function=row_sums, make=one_table, moved=lambda rows, columns: rows * columns, **TABLE, **STREAMING),
    GpuCase(
        name="softmax", function=softmax, make=one_table, moved=lambda rows, columns: 2 * rows * columns,
        **TABLE, **STREAMING,
    ),
    GpuCase(
        name="softmax_grad", function=softmax_loss, make=two_tables, wanted=(0,),
        moved=lambda rows, columns: 3 * rows * columns, **TABLE, **STREAMING,
    ),
    GpuCase(
        name="layernorm", function=layer_norm, make=rows_to_normalise, moved=lambda rows, columns: 2 * rows * columns,
        **TABLE, **STREAMING,
    ),
    GpuCase(
        name="layernorm_grad", function=layer_norm_loss, make=rows_to_normalise, wanted=(0, 1, 2),
        moved=lambda rows, columns: 3 * rows * columns, **TABLE, **STREAMING,
    ),
    GpuCase(name="xent", function=xent, make=labelled, moved=lambda rows, columns: rows * columns, **TABLE, **STREAMING),
    GpuCase(
        name="xent_grad", function=xent, make=labelled, wanted=(0,), moved=lambda rows, columns: 2 * rows * columns,
        **TABLE, **STREAMING,
    ),
    GpuCase(
        name="mlp_grad", function=network, make=layers, wanted=tuple(range(6)), sizes={"batch": 8192, "width": 4096},
        small={"batch": 33, "width": 40}, flops=lambda batch, width: (3 * 3 - 1) * 2 * batch * width * width, targets={"ad": 1.1},
    ),
    GpuCase(
        name="small_mlp_grad", function=small_network, make=narrow_layers, wanted=(0, 1, 2, 3), sizes={"batch": 64, "width": 256},
        small={"batch": 7, "width": 20}, targets={"ad": 0.5},
    ),
    GpuCase(
        name="lstm_grad", function=lstm, make=sequences, wanted=(0, 1), sizes={"steps": 64, "batch": 64, "hidden": 256},
        small={"steps": 3, "batch": 4, "hidden": 5}, targets={"ad": 0.5},
    ),
    GpuCase(
        name="nbody_grad", function=nbody, make=bodies, wanted=(0,), sizes={"n": 65536}, small={"n": 300}, targets={"ad": 0.2},
    ),
    GpuCase(
        name="twenty_kernels", function=twenty_kernels, make=one_table, sizes={"rows": 128, "columns": 128},
        small={"rows": 9, "columns": 5},
    ),
    GpuCase(name="small_grad", function=rosenbrock, make=point, wanted=(0,), sizes={"n": 2}, small={"n": 5}),
]  # fmt: skip
