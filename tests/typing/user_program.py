"""A user's program, for type checkers alone: what they must infer about transformed functions."""

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

import pullback as pb
from pullback.inspection import Cost, Explanation, Memory, Residuals, Stages

Vector = NDArray[np.float64]


def loss(w: Vector, x: Vector, *, scale: float = 1.0) -> float:
    return float(np.sum(w * x) * scale)


def with_aux(w: Vector) -> tuple[float, dict[str, Vector]]:
    return float(w.sum()), {"w": w}


w, x = np.ones(3), np.ones(3)

fast = pb.jit(loss)
assert_type(fast(w, x), float)
assert_type(fast(w, x, scale=2.0), float)
assert_type(fast.stages(w, x), Stages)
assert_type(fast.explain(w, x), Explanation)
assert_type(fast.residuals(w, x), Residuals)
assert_type(fast.memory(w, x).peak_bytes, int)
assert_type(fast.memory(w, x), Memory)
assert_type(fast.cost(w, x), Cost)
assert_type(fast.__name__, str)

# A bare decorator, and one with options.


@pb.jit
def decorated(a: Vector, n: int) -> Vector:
    return a * n


@pb.jit(static_argnames="n")
def with_options(a: Vector, n: int) -> Vector:
    return a * n


assert_type(decorated(w, 2), Vector)
assert_type(with_options(w, n=2), Vector)

# Gradients: the type of a gradient depends on argnums, which types cannot say.

assert_type(pb.grad(loss)(w, x), Any)
assert_type(pb.grad(loss, argnums=(0, 1))(w, x, scale=3.0), Any)
assert_type(pb.value_and_grad(loss)(w, x), tuple[float, Any])
assert_type(pb.grad(with_aux, has_aux=True)(w), tuple[Any, dict[str, Vector]])
assert_type(pb.value_and_grad(with_aux, has_aux=True)(w), tuple[tuple[float, dict[str, Vector]], Any])
assert_type(pb.jit(pb.value_and_grad(loss))(w, x), tuple[float, Any])


@pb.value_and_grad(argnums=1)
def penalised(w: Vector, x: Vector) -> float:
    return loss(w, x)


assert_type(penalised(w, x), tuple[float, Any])

# Methods keep their signature without self.


class Model:
    rate: float = 0.1

    @pb.jit
    def predict(self, x: Vector, shift: float = 0.0) -> Vector:
        return x * self.rate + shift

    @pb.jit(static_argnames=("n",))
    def repeat(self, x: Vector, n: int) -> Vector:
        return x * n

    @pb.value_and_grad
    def loss(self, w: Vector) -> float:
        return float(np.sum(w * self.rate))


model = Model()
assert_type(model.predict(x), Vector)
assert_type(model.predict(x, shift=1.0), Vector)
assert_type(model.repeat(x, n=3), Vector)
assert_type(model.loss(w), tuple[float, Any])
assert_type(Model.predict(model, x), Vector)
assert_type(model.predict.stages(x), Stages)
assert_type(model.predict.cost(x), Cost)

# A transformed function is a callable like any other.


def minimise(f: Callable[[Vector], tuple[float, Any]], start: Vector) -> Vector:
    value, gradient = f(start)
    return start - gradient if value > 0 else start


minimise(pb.value_and_grad(lambda v: float(np.sum(v))), w)

# Trees

params: dict[str, Vector] = {"w": w, "b": x}
assert_type(pb.tree.map(lambda leaf: 2 * leaf, params), dict[str, Vector])
vector, unravel = pb.tree.ravel(params)
assert_type(unravel(vector), dict[str, Vector])
assert_type(pb.cache_info(), pb.CacheInfo)
assert_type(pb.cache_info().hits, int)

# Debugging

report = pb.find_nan(pb.grad(loss))(w, x, scale=2.0)
assert_type(bool(report), bool)
if report.first is not None:
    assert_type(report.first.line, int)
assert_type(pb.check_grad(loss, order=2)(w, x).is_right, bool)
assert_type(pb.print_grad(params, "w"), dict[str, Vector])
pb.print("w {w:.2f}", w=w)
assert_type(pb.jit(loss, check=True)(w, x), float)


@pb.vmap
def doubled(row: Vector) -> Vector:
    return 2 * row


@pb.vmap(in_axes=(0, None))
def scaled(row: Vector, by: float) -> Vector:
    return row * by


@pb.checkpoint
def block(h: Vector, weight: Vector) -> Vector:
    return np.tanh(h @ weight)


doubled(np.ones((2, 3)))
scaled(np.ones((2, 3)), 2.0)
block(w, np.ones((3, 3)))
y, dy = pb.jvp(lambda x: np.sin(x), (w,), (x,))
y, pull = pb.vjp(np.sin, w)
(dx,) = pull(y)
hessian = pb.hessian(loss, argnums=(0, 1))(w, x)
slope = pb.elementwise_grad(np.tanh)(w)
assert_type(pb.stop_gradient(params), dict[str, Vector])
