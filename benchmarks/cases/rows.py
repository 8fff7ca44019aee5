"""Row-wise objectives: softmax cross-entropy with integer labels, and layer norm by its input, gain and bias."""

from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case, Target, Work, both

Array = Any


def xent(z: Array, y: Array) -> Array:
    top = np.max(z, axis=1, keepdims=True)
    total = np.log(np.sum(np.exp(z - top), axis=1)) + top[:, 0]
    return np.mean(total - z[np.arange(z.shape[0]), y])


def xent_by_hand(z: Array, y: Array) -> Any:
    top = np.max(z, axis=1, keepdims=True)
    e = z - top
    np.exp(e, out=e)
    total = np.sum(e, axis=1, keepdims=True)
    rows = np.arange(len(z))
    value = np.mean((np.log(total) + top)[:, 0] - z[rows, y])
    e *= 1.0 / (total * len(z))
    e[rows, y] -= 1.0 / len(z)
    return value, (e,)


def logits(dtype: Any, rows: int, columns: int) -> Arguments:
    rng = np.random.default_rng(2)
    return rng.normal(size=(rows, columns)).astype(dtype), rng.integers(0, columns, rows)


def layer_norm(x: Array, gain: Array, bias: Array, c: Array) -> Array:
    centred = x - np.mean(x, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
    return centred * scale * gain + bias


def layer_norm_loss(x: Array, gain: Array, bias: Array, c: Array) -> Array:
    return np.sum(layer_norm(x, gain, bias, c) * c)


def layer_norm_by_hand(x: Array, gain: Array, bias: Array, c: Array) -> Any:
    centred = x - np.mean(x, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
    normal = centred * scale
    value = np.sum((normal * gain + bias) * c)
    d = c * gain
    dx = scale * (d - np.mean(d, axis=1, keepdims=True) - normal * np.mean(d * normal, axis=1, keepdims=True))
    return value, (dx, np.sum(normal * c, axis=0), np.sum(c, axis=0))


def rows_to_normalise(dtype: Any, rows: int, columns: int) -> Arguments:
    rng = np.random.default_rng(3)
    shapes = (rows, columns), columns, columns, (rows, columns)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)


def xent_case(name: str, writes: int, **rest: Any) -> Case:
    def work(size: int, rows: int, columns: int) -> Work:
        count = rows * columns
        return Work(reads=count * size + 8 * rows, writes=writes * count * size, calls={"exp": count})

    sizes = {"rows": 4096, "columns": 1000}
    small = {"rows": 5, "columns": 21}
    return Case(workload="xent", name=name, function=xent, make=logits, sizes=sizes, small=small, work=work, **rest)


def layer_norm_case(name: str, reads: int, **rest: Any) -> Case:
    def work(size: int, rows: int, columns: int) -> Work:
        return Work(reads=reads * rows * columns * size, writes=rows * columns * size)

    sizes = {"rows": 8192, "columns": 768}
    small = {"rows": 7, "columns": 35}
    return Case(workload="layernorm", name=name, make=rows_to_normalise, sizes=sizes, small=small, work=work, **rest)


CASES = [
    xent_case("fwd-4096x1000", 0, by_hand=xent),
    xent_case("grad-4096x1000", 1, by_hand=xent_by_hand, wanted=(0,), targets=both(0.5, 0.9, 2.0)),
    layer_norm_case("fwd-8192x768", 1, function=layer_norm, by_hand=layer_norm),
    layer_norm_case(
        "grad-8192x768",
        2,
        function=layer_norm_loss,
        by_hand=layer_norm_by_hand,
        wanted=(0, 1, 2),
        sets=("table", "regression"),
        targets={"float64": Target(ad=0.15, hand=0.8, limit=1.9), "float32": Target(ad=0.35, hand=0.8, limit=1.9)},
    ),
]
