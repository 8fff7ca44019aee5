"""A check of each transform, extension and tool of HIPS autograd (``floor.txt``) by its name there, against formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback import extend, optimizers
from tests.support.api import traces

X = np.array([0.5, -1.2, 2.0])
V = np.array([1.0, 0.5, -0.3])
A = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, -0.2], [0.1, -0.2, 1.0]])
CHECKS: dict[str, Callable[[], None]] = {}


def check(name: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(function: Callable[[], None]) -> Callable[[], None]:
        CHECKS[f"autograd.{name}"] = function
        return function

    return register


def close(result: Any, expected: Any, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol)


def quadratic(x: Any) -> Any:
    return 0.5 * x @ A @ x + np.sum(x**3)


def wave(x: Any) -> Any:
    return np.sin(A @ x)


GRADIENT, HESSIAN = A @ X + 3 * X**2, A + np.diag(6 * X)
JACOBIAN = np.cos(A @ X)[:, None] * A


@check("grad")
def grad() -> None:
    close(pb.grad(quadratic)(X), GRADIENT)


@check("value_and_grad")
def value_and_grad() -> None:
    value, gradient = pb.value_and_grad(quadratic)(X)
    close(value, quadratic(X))
    close(gradient, GRADIENT)


@check("grad_and_aux")
def grad_and_aux() -> None:
    gradient, aux = pb.grad_and_aux(lambda x: (quadratic(x), np.cos(x)))(X)
    close(gradient, GRADIENT)
    close(aux, np.cos(X))


@check("grad_named")
def grad_named() -> None:
    close(pb.grad_named(lambda a, x: a * quadratic(x), "x")(2.0, X), 2 * GRADIENT)


@check("multigrad_dict")
def multigrad_dict() -> None:
    result = pb.multigrad_dict(lambda a, x: a * quadratic(x))(2.0, X)
    assert list(result) == ["a", "x"]
    close(result["a"], quadratic(X))
    close(result["x"], 2 * GRADIENT)


@check("elementwise_grad")
def elementwise_grad() -> None:
    close(pb.elementwise_grad(pb.elementwise_grad(np.sin))(X), -np.sin(X))


@check("deriv")
def deriv() -> None:
    close(pb.deriv(lambda x: np.exp(2 * x))(0.5), 2 * np.exp(1.0))


@check("jacobian")
def jacobian() -> None:
    close(pb.jacobian(wave)(X), JACOBIAN)


@check("hessian")
def hessian() -> None:
    close(pb.hessian(quadratic)(X), HESSIAN)


@check("make_hvp")
def make_hvp() -> None:
    hvp, gradient = pb.make_hvp(quadratic)(X)
    close(hvp(V), HESSIAN @ V)
    close(gradient, GRADIENT)


@check("hessian_tensor_product")
def hessian_tensor_product() -> None:
    close(pb.hessian_tensor_product(quadratic)(X, V), HESSIAN @ V)


@check("hessian_vector_product")
def hessian_vector_product() -> None:
    close(pb.hessian_vector_product(quadratic)(X, V), HESSIAN @ V)


@check("tensor_jacobian_product")
def tensor_jacobian_product() -> None:
    close(pb.tensor_jacobian_product(wave)(X, V), V @ JACOBIAN)


@check("vector_jacobian_product")
def vector_jacobian_product() -> None:
    close(pb.vector_jacobian_product(wave)(X, V), V @ JACOBIAN)


@check("make_jvp")
def make_jvp() -> None:
    value, tangent = pb.make_jvp(wave)(X)(V)
    close(value, wave(X))
    close(tangent, JACOBIAN @ V)


@check("make_vjp")
def make_vjp() -> None:
    vjp, value = pb.make_vjp(wave)(X)
    close(value, wave(X))
    close(vjp(V), V @ JACOBIAN)


@check("make_jvp_reversemode")
def make_jvp_reversemode() -> None:
    close(pb.make_jvp_reversemode(wave)(X)(V), JACOBIAN @ V)


@check("make_ggnvp")
def make_ggnvp() -> None:
    close(pb.make_ggnvp(wave)(X)(V), JACOBIAN.T @ JACOBIAN @ V)
    outer = np.diag(np.exp(wave(X)))
    close(pb.make_ggnvp(wave, lambda y: np.sum(np.exp(y)))(X)(V), JACOBIAN.T @ outer @ JACOBIAN @ V)


@check("holomorphic_grad")
def holomorphic_grad() -> None:
    z = 0.3 + 0.8j
    close(pb.holomorphic_grad(lambda z: np.exp(1j * z) * z)(z), np.exp(1j * z) * (1 + 1j * z))


@check("checkpoint")
def checkpoint() -> None:
    close(pb.grad(lambda x: np.sum(pb.checkpoint(wave)(x) ** 2))(X), 2 * wave(X) @ JACOBIAN)


def opaque() -> Any:
    """The cube of an array, by Python numbers alone."""
    return lambda x: np.array([float(v) ** 3 for v in x])


@check("extend.primitive")
def primitive() -> None:
    cube = extend.primitive(opaque())
    close(pb.jit(lambda x: 2 * cube(x))(X), 2 * X**3)


@check("extend.defvjp")
def defvjp() -> None:
    cube = extend.primitive(opaque())
    extend.defvjp(cube, lambda ans, x: lambda g: 3 * x**2 * g)
    slope = pb.grad(lambda x: np.sum(V * cube(x)))
    close(slope(X), 3 * V * X**2)
    close(pb.grad(lambda x: np.sum(X * slope(x)))(X), 6 * V * X**2)


@check("extend.defjvp")
def defjvp() -> None:
    cube = extend.primitive(opaque())
    extend.defjvp(cube, lambda g, ans, x: 3 * x**2 * g)
    close(pb.jvp(cube, (X,), (V,))[1], 3 * V * X**2)


@check("extend.defvjp_argnums")
def defvjp_argnums() -> None:
    product = extend.primitive(lambda x, y: np.array([float(a) * float(b) for a, b in zip(x, y)]))
    extend.defvjp_argnums(product, lambda argnums, ans, args, kwargs: lambda g: tuple(g * args[1 - k] for k in argnums))
    by_x, by_y = pb.grad(lambda x, y: np.sum(product(x, y)), argnums=(0, 1))(X, V)
    close(by_x, V)
    close(by_y, X)


@check("extend.notrace_primitive")
def notrace_primitive() -> None:
    largest = extend.notrace_primitive(lambda x: float(max(x)))
    close(pb.grad(lambda x: np.sum(x**2) * largest(x))(X), 2 * X * 2.0)


@check("builtins.tuple")
def tuples() -> None:
    result = pb.grad(lambda p: np.sum(p[0] * p[1]) + sum(np.sum(v) for v in (p[0], p[1] ** 2)))((X, V))
    assert isinstance(result, tuple)
    close(result, (V + 1, X + 2 * V))


@check("builtins.list")
def lists() -> None:
    result = pb.grad(lambda p: np.sum(np.prod(np.stack(list(p)), axis=0)))([X, V])
    assert isinstance(result, list)
    close(result, [V, X])


@check("builtins.dict")
def dicts() -> None:
    result = pb.grad(lambda p: np.sum(p["w"] * p["b"]) + sum(np.sum(v**2) for v in p.values()))({"w": X, "b": V})
    close(result["w"], V + 2 * X)
    close(result["b"], X + 2 * V)


@check("misc.flatten.flatten")
def flatten() -> None:
    vector, unflatten = pb.flatten({"w": A, "b": [X, 2.0]})
    assert vector.shape == (13,)
    back = unflatten(vector * 2)
    close(back["w"], 2 * A)
    close(back["b"][1], 4.0)


@check("misc.fixed_points.fixed_point")
def fixed_point() -> None:
    def root(a: Any) -> Any:
        return pb.fixed_point(lambda a: lambda x: 0.5 * (x + a / x), a, 1.0, lambda x, y: np.abs(x - y), 1e-12)

    close(root(2.0), np.sqrt(2.0))
    close(pb.grad(root)(2.0), 0.5 / np.sqrt(2.0))
    close(pb.grad(pb.grad(root))(2.0), -0.25 * 2.0**-1.5, 1e-9)


def descends(optimizer: Any, **options: Any) -> None:
    target = {"w": X, "b": np.array(0.7)}

    def slope(p: Any, step: int) -> Any:
        return pb.grad(lambda p: sum(np.sum((p[k] - target[k]) ** 2) for k in target))(p)

    result = optimizer(slope, {"w": np.zeros(3), "b": np.array(0.0)}, **options)
    for k in target:
        close(result[k], target[k], 1e-2)


@check("misc.optimizers.adam")
def adam() -> None:
    descends(optimizers.adam, num_iters=500, step_size=0.05)


@check("misc.optimizers.rmsprop")
def rmsprop() -> None:
    descends(optimizers.rmsprop, num_iters=500, step_size=0.005)


@check("misc.optimizers.sgd")
def sgd() -> None:
    descends(optimizers.sgd, num_iters=300, step_size=0.1)


@check("test_util.check_grads")
def check_grads() -> None:
    pb.check_grads(quadratic, modes=["fwd", "rev"], order=2)(X)


@check("misc.tracers.const_graph")
def const_graph() -> None:
    graph = pb.const_graph(lambda k, x: k * wave(x), 2.0)
    close(graph(X), 2 * wave(X))
    before = traces()
    close(graph(V), 2 * wave(V))
    assert traces() == before
