"""The transforms of HIPS autograd, with its names and its semantics; ``argnum`` is a position, or a tuple of them."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback import tree
from pullback.compiled.function import transformed
from pullback.compiled.transform import Argnums, Derivative, Function, Transform, checked_argnums
from pullback.tracer import (
    BoundCall,
    Parameters,
    TraceError,
    current,
    follow,
    gradient_call,
    jacobian_call,
    ones_like,
)
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.transforms.api import grad, jit

Maker = Callable[..., Any]


def half_square(x: Any) -> Any:
    """Return half the sum of squares along the last axis: the default outer function of ``make_ggnvp``."""
    return 1.0 / 2 * np.sum(x**2, axis=-1)


@dataclass(frozen=True, kw_only=True)
class Named(Derivative):
    """The derivative named by ``name``."""

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        called = follow(function)
        match self.name:
            case "elementwise_grad" | "deriv":
                chosen = BoundCall(called, args, kwargs, self.argnums, None)
                linear = chosen.linear()
                if self.name == "deriv":
                    return linear.push([ones_like(p) for p in chosen.primals])
                _of_reals(linear.value)
                return chosen.unpacked(linear.pull(ones_like(linear.value)))
            case "hessian_tensor_product":
                *rest, tensor = args
                return _gradient_map(BoundCall(called, rest, kwargs, self.argnums, None), "push")(tensor)
            case "tensor_jacobian_product":
                *rest, tensor = args
                product = functools.wraps(function)(lambda *xs, **options: _dotted(tensor, called(*xs, **options)))
                return jacobian_call(product, rest, kwargs, argnums=self.argnums, mode="reverse")[0]
            case "holomorphic_grad":
                chosen = BoundCall(called, args, kwargs, self.argnums, None)
                for primal, label in zip(chosen.primals, chosen.labels, strict=True):
                    _of_complex(primal, f"argument {label} is")
                real = functools.wraps(function)(lambda *xs, **options: _real_part(called(*xs, **options)))
                return gradient_call(real, args, kwargs, argnums=self.argnums)[2]
            case "multigrad_dict":
                return _by_name(inspect.signature(function), called, args, kwargs)
        raise AssertionError(self.name)


def _of_reals(value: Any) -> None:
    for leaf in tree.leaves(value):
        if as_traced(leaf).dtype.kind == "c":
            raise TypeError("elementwise_grad only applies to functions with real results")


def _of_complex(value: Any, subject: str) -> None:
    for leaf in tree.leaves(value):
        if as_traced(leaf).dtype.kind != "c":
            raise TraceError(f"{subject} of {as_traced(leaf).dtype}: holomorphic_grad is of complex functions; use pb.grad")


def _real_part(value: Any) -> Any:
    _of_complex(value, "the function's result is")
    return np.real(value)


def _dotted(tensor: Any, value: Any) -> Any:
    return np.tensordot(tensor, value, axes=np.ndim(tensor))


def _by_name(signature: inspect.Signature, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()

    def of_dict(arguments: dict[str, Any]) -> Any:
        positional, keywords = [], {}
        for name, parameter in signature.parameters.items():
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    positional.extend(arguments[name])
                case inspect.Parameter.VAR_KEYWORD:
                    keywords.update(arguments[name])
                case inspect.Parameter.KEYWORD_ONLY:
                    keywords[name] = arguments[name]
                case _:
                    positional.append(arguments[name])
        return function(*positional, **keywords)

    return gradient_call(of_dict, (OrderedDict(bound.arguments),))[2]


# functions of a vector at a point


@dataclass(frozen=True, kw_only=True)
class AtCall(Derivative):
    """A linear map of a function at a call: a function of the call's args, its kwargs, and a vector. ``outer``: the outer
    function of "ggnvp"."""

    outer: Function | None = None
    bound: bool = False

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        called = follow(function)
        if self.bound:
            called, args = functools.partial(called, args[0]), args[1:]
        positional, keywords, vector = args
        return self.map(BoundCall(called, positional, keywords, self.argnums, None))(vector)

    def map(self, chosen: BoundCall) -> Callable[[Any], Any]:
        """Return the map, in the current trace."""
        if self.name == "make_hvp":
            return _gradient_map(chosen, "pull")
        linear = chosen.linear()
        match self.name:
            case "make_vjp":
                return lambda ct: chosen.unpacked(linear.pull(ct))
            case "make_jvp":
                return lambda v: (linear.value, linear.push(_vectors(chosen, v)))
            case "make_jvp_reversemode":
                return lambda v: linear.push(_vectors(chosen, v))
        assert self.outer is not None
        curvature = _gradient_map(BoundCall(self.outer, (linear.value,), {}, 0, None), "push")
        return lambda v: chosen.unpacked(linear.pull(curvature(linear.push(_vectors(chosen, v)))))

    def parameters(self, function: Function, static: frozenset[str]) -> Parameters:
        words = ("args", "kwargs", "vector")
        return Parameters(names=("self", *words) if self.bound else words, variadic="x", static=frozenset())

    def after_self(self) -> Transform:
        return replace(self, bound=True)


def _vectors(chosen: BoundCall, vector: Any) -> Sequence[Any]:
    return [vector] if chosen.single else vector


def _gradient_map(chosen: BoundCall, name: str) -> Callable[[Any], Any]:
    """Return the Hessian of a scalar function as a map of vectors."""

    def gradients(*primals: Any) -> Any:
        return chosen.unpacked(gradient_call(chosen.function, primals, argnums=tuple(range(len(primals))))[2])

    linear = chosen.linear(of=gradients)
    if name == "push":
        return lambda v: linear.push(_vectors(chosen, v))
    return lambda ct: chosen.unpacked(linear.pull(ct))


class MapAtCall:
    """A compiled linear map of vectors, of a function at a call."""

    def __init__(self, compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._compiled = compiled
        self._args, self._kwargs = args, kwargs

    @with_users_frames
    def __call__(self, vector: Any) -> Any:
        return self._compiled(self._args, self._kwargs, vector)

    def __repr__(self) -> str:
        return f"<{self._compiled!r} at a call>"


def _maker(name: str, fun: Function, argnum: Argnums, value: Callable[..., Any] | None, outer: Function | None = None) -> Maker:
    """Return a function of a call that returns the map and, if ``value`` is not None, also ``value`` of the call."""
    transform = AtCall(name=name, argnums=checked_argnums(argnum), outer=outer)

    @functools.wraps(fun)
    @with_users_frames
    def build(*args: Any, **kwargs: Any) -> Any:
        linear_map: Any
        if current() is not None:
            chosen = BoundCall(fun, [follow(a) for a in args], {k: follow(v) for k, v in kwargs.items()}, transform.argnums, None)
            linear_map = transform.map(chosen)
        else:
            kept, words = tree.map(lambda x: np.array(x) if isinstance(x, np.ndarray) else x, (args, kwargs))
            linear_map = MapAtCall(transformed(fun, transform), kept, words)
        return linear_map if value is None else (linear_map, value(*args, **kwargs))

    return build


def _taken(fun: Any, name: str) -> None:
    if not callable(fun):
        raise TypeError(f"pb.{name} takes a function, got {type(fun).__name__}")


def make_vjp(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function with ``make_vjp(fun)(*args) == (vjp, value)``: ``vjp(ct)`` is the gradient by one argument of the
    value times ``ct``."""
    _taken(fun, "make_vjp")
    return _maker("make_vjp", fun, argnum, transformed(fun, Transform()))


def make_jvp(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function for which ``make_jvp(fun)(*args)`` is a function of a tangent that returns ``(value, tangent)``."""
    _taken(fun, "make_jvp")
    return _maker("make_jvp", fun, argnum, None)


def make_jvp_reversemode(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function for which ``make_jvp_reversemode(fun)(*args)`` is a function of a tangent that returns a tangent. It
    runs in forward mode."""
    _taken(fun, "make_jvp_reversemode")
    return _maker("make_jvp_reversemode", fun, argnum, None)


def make_hvp(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function with ``make_hvp(fun)(*args) == (hvp, gradient)``: ``hvp(v)`` is the product of the Hessian with ``v``."""
    _taken(fun, "make_hvp")
    return _maker("make_hvp", fun, argnum, grad(fun, argnum))


def make_ggnvp(f: Function, g: Function = half_square, f_argnum: Argnums = 0) -> Maker:
    """Return a function for which ``make_ggnvp(f, g)(*args)`` maps v to its product with the generalised Gauss-Newton matrix
    J^T H J.

    J is the Jacobian of ``f``, H the Hessian of the scalar function ``g`` at its value. N. Schraudolph, "Fast curvature
    matrix-vector products for second-order gradient descent" (2002).
    """
    _taken(f, "make_ggnvp")
    return _maker("make_ggnvp", f, f_argnum, None, g)


# functions of the same arguments


def _named(name: str, fun: Function, argnum: Argnums) -> Any:
    return transformed(fun, Named(name=name, argnums=checked_argnums(argnum)))


@with_users_frames
def elementwise_grad(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the gradient of the sum of all that ``fun`` returns: for an elementwise function its derivative at each element."""
    return _named("elementwise_grad", fun, argnum)


@with_users_frames
def deriv(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the derivative along ones, in forward mode: for a function of one number its derivative."""
    return _named("deriv", fun, argnum)


@with_users_frames
def hessian_tensor_product(fun: Function, argnum: Argnums = 0) -> Any:
    """Return a function of ``(*args, tensor)``: the product of the Hessian by one argument with a tensor of its shape."""
    return _named("hessian_tensor_product", fun, argnum)


@with_users_frames
def tensor_jacobian_product(fun: Function, argnum: Argnums = 0) -> Any:
    """Return a function of ``(*args, tensor)``: the product of a tensor with the Jacobian, over the tensor's axes."""
    return _named("tensor_jacobian_product", fun, argnum)


hessian_vector_product = hessian_tensor_product
vector_jacobian_product = tensor_jacobian_product


@with_users_frames
def holomorphic_grad(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the derivative of a holomorphic function of a complex number: the gradient of its real part."""
    return _named("holomorphic_grad", fun, argnum)


@with_users_frames
def multigrad_dict(fun: Function) -> Any:
    """Return the gradients by all arguments, defaults included, as an OrderedDict by the names of the parameters."""
    return _named("multigrad_dict", fun, 0)


@with_users_frames
def grad_and_aux(fun: Function, argnum: Argnums = 0) -> Any:
    """Return ``(gradient, aux)`` of a function that returns ``(value, aux)``."""
    return grad(fun, argnum, has_aux=True)


@with_users_frames
def grad_named(fun: Function, argname: str) -> Any:
    """Return the gradient by the argument named ``argname``."""
    return grad(fun, argnames=argname)


@with_users_frames
def const_graph(fun: Function, *args: Any, **kwargs: Any) -> Any:
    """Apply ``pb.jit`` to a function with these first arguments and keywords bound: it is traced once, and later runs without
    Python.

    A call of another signature, or after an outside change that the trace depends on, is traced again.
    """
    return jit(functools.partial(fun, *args, **kwargs) if args or kwargs else fun)
