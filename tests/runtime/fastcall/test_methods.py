"""Transformed functions as methods: ``self`` is read at each call, and positions are counted after it."""

import dataclasses
from typing import Any

import numpy as np

import pullback as pb
from tests.support.api import Array, X, same, traces


class Regression:
    def __init__(self, weights: Array) -> None:
        self.weights = weights
        self.kind = "square"

    def residual(self, x: Array, y: Array) -> Array:
        return x @ self.weights - y

    @pb.jit
    def predict(self, x: Array) -> Array:
        return x @ self.weights

    @pb.grad
    def slope(self, x: Array, y: Array) -> Array:
        return np.sum(self.residual(x, y) ** 2)

    @pb.jit
    @pb.value_and_grad(argnums=(0, 1))
    def both(self, x: Array, y: Array) -> Array:
        r = self.residual(x, y)
        return np.sum(r**2) if self.kind == "square" else np.sum(np.abs(r))

    @pb.jit
    def nested(self, x: Array, y: Array) -> Array:
        return self.predict(x) + self.slope(x, y).sum()


def test_methods() -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 0.5])
    first, second = Regression(np.array([1.0, 2.0])), Regression(np.array([0.5, 0.0]))
    for model in (first, second, first):
        w = model.weights
        same(model.predict(x), x @ w)
        same(Regression.predict(model, x), x @ w)
        r = x @ w - y
        same(model.slope(x, y), 2 * np.outer(r, w))
        value, (dx, dy) = model.both(x, y)
        same(value, np.sum(r**2))
        same(dx, 2 * np.outer(r, w))
        same(dy, -2 * r)
        same(model.nested(x, y), x @ w + (2 * np.outer(r, w)).sum())
    first.weights = np.array([-1.0, 1.0])
    same(first.predict(x), x @ first.weights)
    first.kind = "absolute"
    same(first.both(x, y)[0], np.sum(np.abs(x @ first.weights - y)))
    assert "predict" in repr(first.predict) and first.predict.__name__ == "predict"
    assert "contract" in first.predict.stages(x)["trace"]


def test_a_method_is_traced_once() -> None:
    class Counter:
        def __init__(self) -> None:
            self.scale = 2.25

        @pb.jit
        def call(self, x: Array) -> Array:
            return self.inner(x) * self.scale

        @pb.jit
        def inner(self, x: Array) -> Array:
            return x + 1

    counter = Counter()
    before = traces()
    for _ in range(3):
        same(counter.call(X), (X + 1) * 2.25)
    counter.scale = 3.5
    same(counter.call(X), (X + 1) * 3.5)
    assert traces() == before + 1


@dataclasses.dataclass
class Spring:
    stiffness: Any
    rest: float = 0.5

    @pb.grad
    def force(self, x: Array) -> Array:
        return 0.5 * self.stiffness * (x - self.rest) ** 2

    @pb.jit
    def total(self, xs: Array) -> Array:
        return sum(self.force(x) for x in xs)


def test_methods_of_dataclasses() -> None:
    for stiffness in (2.0, 3.25):
        spring = Spring(stiffness)
        same(spring.force(1.5), np.float64(stiffness))
        same(spring.total([1.5, 2.5]), np.float64(3 * stiffness))
    assert "%self_stiffness" in Spring(1.0).force.stages(2.0)["trace"]


def test_static_and_class_methods() -> None:
    class Tools:
        scale = 2.5

        @staticmethod
        @pb.jit
        def double(x: Array) -> Array:
            return x * 2

        @classmethod
        @pb.jit
        def scaled(cls, x: Array) -> Array:
            return x * cls.scale

    same(Tools.double(X), X * 2)
    same(Tools().double(X), X * 2)
    same(Tools.scaled(X), X * 2.5)
    same(Tools().scaled(X), X * 2.5)
