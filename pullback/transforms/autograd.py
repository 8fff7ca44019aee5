"""The transforms of HIPS autograd, with its names and its semantics; ``argnum`` is a position, or a tuple of them."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback import tree
from pullback.compiled.function import transformed
from pullback.compiled.transform import Argnums, Derivative, Function, Transform, checked_argnums
from pullback.ir.core.records import dataclass
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
    """Return a function of the arguments that returns the derivative in reverse mode and the value.

    Parameters
    ----------
    fun : callable
        A NumPy function of floats.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        ``make_vjp(fun)(*args)`` is ``(vjp, value)``, where ``vjp(ct)`` is the gradient by one argument of the value times ``ct``.

    Raises
    ------
    TraceError
        From a call, for what cannot be compiled, and from ``vjp`` for a cotangent that does not fit.

    See Also
    --------
    vjp : The same, in the order of JAX.

    Examples
    --------
    >>> vjp, value = pb.make_vjp(np.sin)(0.0)
    >>> vjp(2.0)
    np.float64(2.0)
    """
    _taken(fun, "make_vjp")
    return _maker("make_vjp", fun, argnum, transformed(fun, Transform()))


def make_jvp(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function of the arguments that returns the derivative in forward mode as a function of a tangent.

    Parameters
    ----------
    fun : callable
        A NumPy function of floats.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        ``make_jvp(fun)(*args)`` is a function of a tangent that returns ``(value, tangent)``.

    Raises
    ------
    TraceError
        From a call, for what cannot be compiled.

    See Also
    --------
    jvp : Value and tangent at once.

    Examples
    --------
    >>> pb.make_jvp(np.sin)(0.0)(2.0)
    (np.float64(0.0), np.float64(2.0))
    """
    _taken(fun, "make_jvp")
    return _maker("make_jvp", fun, argnum, None)


def make_jvp_reversemode(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function of the arguments that returns a function from a tangent to a tangent.

    It runs in forward mode, whatever its name in autograd says.

    Parameters
    ----------
    fun : callable
        A NumPy function of floats.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        ``make_jvp_reversemode(fun)(*args)`` is a function of a tangent that returns a tangent.

    Raises
    ------
    TraceError
        From a call, for what cannot be compiled.

    See Also
    --------
    make_jvp : The same with the value.

    Examples
    --------
    >>> pb.make_jvp_reversemode(np.sin)(0.0)(2.0)
    np.float64(2.0)
    """
    _taken(fun, "make_jvp_reversemode")
    return _maker("make_jvp_reversemode", fun, argnum, None)


def make_hvp(fun: Function, argnum: Argnums = 0) -> Maker:
    """Return a function of the arguments that returns products with the Hessian, and the gradient.

    Parameters
    ----------
    fun : callable
        A NumPy function whose result is a float scalar.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        ``make_hvp(fun)(*args)`` is ``(hvp, gradient)``, where ``hvp(v)`` is the product of the Hessian with ``v``.

    Raises
    ------
    TraceError
        From a call, as for `grad`.

    See Also
    --------
    hvp : The product alone.

    Examples
    --------
    >>> hvp, gradient = pb.make_hvp(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    >>> hvp(np.array([1.0, 1.0])), gradient
    (array([ 6., 12.]), array([ 3., 12.]))
    """
    _taken(fun, "make_hvp")
    return _maker("make_hvp", fun, argnum, grad(fun, argnum))


def make_ggnvp(f: Function, g: Function = half_square, f_argnum: Argnums = 0) -> Maker:
    """Return a function of the arguments that returns products with the generalised Gauss-Newton matrix ``J.T @ H @ J``.

    J is the Jacobian of ``f``, H the Hessian of ``g`` at its value. See N. Schraudolph, "Fast curvature matrix-vector products
    for second-order gradient descent" (2002).

    Parameters
    ----------
    f : callable
        A NumPy function of floats.
    g : callable, optional
        A scalar function of the value of ``f``; by default half of the sum of its squares, whose Hessian is the identity.
    f_argnum : int or tuple of int, optional
        The position of the argument of ``f`` to differentiate by.

    Returns
    -------
    callable
        ``make_ggnvp(f, g)(*args)`` maps ``v`` to its product with the matrix.

    Raises
    ------
    TraceError
        From a call, for what cannot be compiled.

    See Also
    --------
    hvp : Products with the Hessian itself.

    Examples
    --------
    >>> pb.make_ggnvp(lambda x: np.array([2.0, 3.0]) * x)(np.ones(2))(np.array([1.0, 1.0]))
    array([4., 9.])
    """
    _taken(f, "make_ggnvp")
    return _maker("make_ggnvp", f, f_argnum, None, g)


# functions of the same arguments


def _named(name: str, fun: Function, argnum: Argnums) -> Any:
    return transformed(fun, Named(name=name, argnums=checked_argnums(argnum)))


@with_users_frames
def elementwise_grad(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the gradient of the sum of all that a function returns: for an elementwise function its derivative at each element.

    Parameters
    ----------
    fun : callable
        A NumPy function, usually elementwise.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        A compiled function whose result has the shape of the argument.

    Raises
    ------
    TraceError
        From a call, for an argument that is not of floats.

    See Also
    --------
    grad : The gradient of a scalar.

    Examples
    --------
    >>> pb.elementwise_grad(np.square)(np.array([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    """
    return _named("elementwise_grad", fun, argnum)


@with_users_frames
def deriv(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the derivative along ones, in forward mode: for a function of one number its derivative.

    Parameters
    ----------
    fun : callable
        A NumPy function.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        A compiled function whose result has the shape of the value.

    Raises
    ------
    TraceError
        From a call, for an argument that is not of floats.

    See Also
    --------
    jvp : The derivative along any direction.

    Examples
    --------
    >>> pb.deriv(np.sin)(0.0)
    np.float64(1.0)
    """
    return _named("deriv", fun, argnum)


@with_users_frames
def hessian_tensor_product(fun: Function, argnum: Argnums = 0) -> Any:
    """Return a function of ``(*args, tensor)``: the product of the Hessian by one argument with a tensor of its shape.

    Parameters
    ----------
    fun : callable
        A NumPy function whose result is a float scalar.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        A compiled function that returns an array with the shape of the argument.

    Raises
    ------
    TraceError
        From a call, as for `grad`.

    See Also
    --------
    hvp : The same for a point and a direction.

    Examples
    --------
    >>> pb.hessian_tensor_product(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    array([ 0., 12.])
    """
    return _named("hessian_tensor_product", fun, argnum)


@with_users_frames
def tensor_jacobian_product(fun: Function, argnum: Argnums = 0) -> Any:
    """Return a function of ``(*args, tensor)``: the product of a tensor with the Jacobian, over the tensor's axes.

    Parameters
    ----------
    fun : callable
        A NumPy function of floats.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        A compiled function that returns an array with the shape of the argument.

    Raises
    ------
    TraceError
        From a call, for a tensor that does not fit the value.

    See Also
    --------
    vjp : The same with the value.

    Examples
    --------
    >>> pb.tensor_jacobian_product(np.cumsum)(np.ones(3), np.array([1.0, 0.0, 2.0]))
    array([3., 2., 2.])
    """
    return _named("tensor_jacobian_product", fun, argnum)


hessian_vector_product = hessian_tensor_product
vector_jacobian_product = tensor_jacobian_product


@with_users_frames
def holomorphic_grad(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the derivative of a holomorphic function of a complex number: the gradient of its real part.

    Parameters
    ----------
    fun : callable
        A holomorphic NumPy function of a complex number.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        A compiled function that returns the complex derivative.

    Raises
    ------
    TypeError
        From a call, for an argument that is not complex.

    See Also
    --------
    grad : The gradient of a real function.

    Examples
    --------
    >>> pb.holomorphic_grad(lambda z: z**2)(1.0 + 2.0j)
    np.complex128(2+4j)
    """
    return _named("holomorphic_grad", fun, argnum)


@with_users_frames
def multigrad_dict(fun: Function) -> Any:
    """Return the gradients by all arguments, defaults included, by the names of the parameters.

    Parameters
    ----------
    fun : callable
        A NumPy function whose result is a float scalar.

    Returns
    -------
    callable
        A compiled function that returns an OrderedDict of gradients.

    Raises
    ------
    TraceError
        From a call, as for `grad`.

    See Also
    --------
    grad : Takes ``argnums``.

    Examples
    --------
    >>> dict(pb.multigrad_dict(lambda x, y: x * y)(2.0, 5.0))
    {'x': np.float64(5.0), 'y': np.float64(2.0)}
    """
    return _named("multigrad_dict", fun, 0)


@with_users_frames
def grad_and_aux(fun: Function, argnum: Argnums = 0) -> Any:
    """Return the gradient and the auxiliary result of a function that returns ``(value, aux)``.

    Parameters
    ----------
    fun : callable
        A NumPy function that returns ``(value, aux)``, where ``value`` is a float scalar.
    argnum : int or tuple of int, optional
        The position of the argument to differentiate by.

    Returns
    -------
    callable
        A compiled function that returns ``(gradient, aux)``.

    Raises
    ------
    TraceError
        From a call, as for `grad`.

    See Also
    --------
    grad : Takes ``has_aux=True`` for the same.

    Examples
    --------
    >>> pb.grad_and_aux(lambda x: (x**2, x + 1))(3.0)
    (np.float64(6.0), 4.0)
    """
    return grad(fun, argnum, has_aux=True)


@with_users_frames
def grad_named(fun: Function, argname: str) -> Any:
    """Return the gradient of a function by an argument that is named.

    Parameters
    ----------
    fun : callable
        A NumPy function whose result is a float scalar.
    argname : str
        The name of the argument.

    Returns
    -------
    callable
        A compiled function that returns the gradient.

    Raises
    ------
    TraceError
        From a call, as for `grad`.

    See Also
    --------
    grad : Takes ``argnames`` for the same.

    Examples
    --------
    >>> pb.grad_named(lambda x, scale: scale * x**2, "scale")(3.0, 1.0)
    np.float64(9.0)
    """
    return grad(fun, argnames=argname)


@with_users_frames
def const_graph(fun: Function, *args: Any, **kwargs: Any) -> Any:
    """Bind the first arguments and keywords of a function and compile the rest: it is traced once, and later runs without Python.

    A call of another signature, or after an outside change that the trace depends on, is traced again.

    Parameters
    ----------
    fun : callable
        A NumPy function.
    *args, **kwargs : object
        The arguments to bind.

    Returns
    -------
    callable
        A compiled function of the remaining arguments.

    Raises
    ------
    TraceError
        From a call, for what cannot be compiled.

    See Also
    --------
    jit : Compiles a function of all its arguments.

    Examples
    --------
    >>> f = pb.const_graph(lambda a, x: a * x, 3.0)
    >>> f(2.0)
    6.0
    """
    return jit(functools.partial(fun, *args, **kwargs) if args or kwargs else fun)
