"""Derivatives with JAX's names and signatures: ``jvp``, ``vjp``, ``linearize``, Jacobians, Hessians and their products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pullback import tree
from pullback.compiled.function import transformed
from pullback.compiled.transform import Argnames, Argnums, Derivative, Function, Transform, checked_argnames, checked_argnums
from pullback.ir.core.records import dataclass
from pullback.tracer import (
    BoundCall,
    Linear,
    Parameters,
    TracedArray,
    TraceError,
    current,
    emit,
    follow,
    gradient_call,
    jacobian_call,
)
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.transforms.checkpoint import POLICIES, Policy, checkpoint_call
from pullback.tracer.user_code.tracebacks import with_users_frames

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AtPoint(Transform):
    """A use of a function's linear maps: a function of ``words``, the first of which is the point, a tuple of arguments.

    ``name`` is "jvp", "push", "pull" or "hvp". ``bound``: the function is a method, and ``self`` is passed before the words.
    """

    words: tuple[str, ...] = ("primals",)
    bound: bool = False

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        called = follow(function)
        if self.bound:
            called, args = functools.partial(called, args[0]), args[1:]
        point = args[0]
        if self.name == "hvp":
            return _hvp(called, point, args[1], self.has_aux)
        linear = Linear(called, point, self.has_aux)
        if self.name == "pull":
            return linear.pull(args[1])
        tangents = linear.push(args[1])
        if self.name == "push":
            return tangents
        return (linear.value, tangents, linear.aux) if self.has_aux else (linear.value, tangents)

    def parameters(self, function: Function, static: frozenset[str]) -> Parameters:
        words = ("self", *self.words) if self.bound else self.words
        return Parameters(names=words, variadic="x", static=frozenset())

    def after_self(self) -> Transform:
        return replace(self, bound=True)


def _hvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool) -> Any:
    def gradients(*xs: Any) -> Any:
        _, aux, values = gradient_call(function, xs, argnums=tuple(range(len(xs))), has_aux=has_aux)
        return (values, aux) if has_aux else values

    linear = Linear(gradients, primals, has_aux)
    products = linear.push(tangents)
    product = products[0] if len(primals) == 1 else products
    return (product, linear.aux) if has_aux else product


@dataclass(frozen=True, kw_only=True)
class Jacobian(Derivative):
    """The transforms "jacfwd", "jacrev", "jacobian" (the mode that takes fewer products) and "hessian"."""

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.name == "hessian":
            matrix, aux = hessian_call(function, args, kwargs, self.argnums, self.argnames, self.has_aux)
        else:
            mode = {"jacfwd": "forward", "jacrev": "reverse"}.get(self.name, "")
            matrix, aux = jacobian_call(
                function, args, kwargs, argnums=self.argnums, argnames=self.argnames, has_aux=self.has_aux, mode=mode
            )
        return (matrix, aux) if self.has_aux else matrix


def hessian_call(
    function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], argnums: Any, argnames: Any, has_aux: bool = False
) -> tuple[Any, Any]:
    """Return the Hessian, forward over reverse, as the Jacobian of the Jacobian, and the aux output. Raises TraceError for
    complex arguments."""
    called = follow(function)
    for leaf in tree.leaves(BoundCall(called, args, kwargs, argnums, argnames).primals):
        if as_traced(leaf).dtype.kind == "c":
            raise TraceError("a Hessian by complex numbers is not defined; differentiate by their real and imaginary parts")

    def rows(*xs: Any, **options: Any) -> Any:
        return jacobian_call(called, xs, options, argnums=argnums, argnames=argnames, has_aux=has_aux, mode="reverse")

    def inner(*xs: Any, **options: Any) -> Any:
        return rows(*xs, **options)[0]

    names = functools.wraps(function)
    matrix, aux = jacobian_call(
        names(rows if has_aux else inner), args, kwargs, argnums=argnums, argnames=argnames, has_aux=has_aux, mode="forward"
    )
    return matrix, aux


def _point(name: str, primals: Any, what: str = "primals") -> tuple[Any, ...]:
    if not isinstance(primals, tuple | list):
        raise TypeError(
            f"pb.{name} takes a tuple of {what}, one for each argument, not {type(primals).__name__}: write (x,) for x"
        )
    return tuple(primals)


def _taken(function: Any, name: str) -> None:
    if not callable(function):
        raise TypeError(f"pb.{name} takes a function, got {type(function).__name__}")


@with_users_frames
def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """Return a function's value and its derivative along a direction, in forward mode.

    Parameters
    ----------
    function : callable
        A NumPy function.
    primals : tuple
        The arguments.
    tangents : tuple
        One tangent for each primal, with its containers and shapes; None in place of an array is zero, and is required for
        integers.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    value : array, number or container of them
        The result of the function.
    tangent : array, number or container of them
        Its derivative along ``tangents``, with the containers, shapes and dtypes of the value, None in place of integers.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TypeError
        Unless ``primals`` and ``tangents`` are tuples.
    TraceError
        If they do not fit, and for what cannot be traced.

    See Also
    --------
    linearize : The derivative as a function of the tangents.
    vjp : Reverse mode.

    Examples
    --------
    >>> y, dy = pb.jvp(lambda x: x**2, (np.array([1.0, 2.0]),), (np.array([0.0, 1.0]),))
    >>> dy
    array([0., 4.])
    """
    _taken(function, "jvp")
    vectors = _point("jvp", primals), _point("jvp", tangents, "tangents")
    return transformed(function, AtPoint(name="jvp", words=("primals", "tangents"), has_aux=bool(has_aux)))(*vectors)


@with_users_frames
def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return a function's value and its derivative in reverse mode as a function of the cotangent.

    The derivative is compiled, and recomputes what it needs of the value; inside a transformed function nothing is computed
    twice.

    Parameters
    ----------
    function : callable
        A NumPy function.
    *primals : array, number or container of them
        The arguments.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    value : array, number or container of them
        The result of the function.
    pull : callable
        ``pull(ct)`` takes a cotangent with the containers and shapes of the value, None in place of an array for zero, and
        returns a tuple of gradients, one for each primal: of the sum of the value's elements, each times its element of the
        cotangent. The gradients of integers are None.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TraceError
        If the function cannot be traced, and from ``pull`` for a cotangent that does not fit.

    See Also
    --------
    grad : For a scalar result.
    jvp : Forward mode.

    Examples
    --------
    >>> y, pull = pb.vjp(lambda x, w: x @ w, np.eye(2), np.array([1.0, 2.0]))
    >>> dx, dw = pull(np.array([1.0, 10.0]))
    >>> dw
    array([ 1., 10.])
    """
    _taken(function, "vjp")
    return _with_linear_map(function, primals, has_aux, "pull")


@with_users_frames
def linearize(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return a function's value and its derivative in forward mode as a function of the tangents.

    Parameters
    ----------
    function : callable
        A NumPy function.
    *primals : array, number or container of them
        The arguments.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    value : array, number or container of them
        The result of the function.
    push : callable
        ``push(*tangents)`` takes and returns tangents as `jvp` does, and recomputes what it needs of the value.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TraceError
        If the function cannot be traced, and from ``push`` for tangents that do not fit.

    See Also
    --------
    jvp : Value and tangent at once.
    vjp : The transposed function, in reverse mode.

    Examples
    --------
    >>> y, push = pb.linearize(np.sin, 0.0)
    >>> push(1.0), push(2.0)
    (np.float64(1.0), np.float64(2.0))
    """
    _taken(function, "linearize")
    return _with_linear_map(function, primals, has_aux, "push")


def _with_linear_map(function: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, name: str) -> Any:
    if current() is not None:
        linear = Linear(follow(function), [follow(p) for p in primals], has_aux)
        linear_map: Any = linear.pull if name == "pull" else lambda *tangents: linear.push(tangents)
        return (linear.value, linear_map, linear.aux) if has_aux else (linear.value, linear_map)
    kept = tree.map(lambda x: np.array(x) if isinstance(x, np.ndarray) else x, primals)
    value = transformed(function, Transform())(*primals)
    words = ("primals", "cotangents" if name == "pull" else "tangents")
    compiled = transformed(function, AtPoint(name=name, words=words, has_aux=bool(has_aux)))
    linear_map = LinearMap(compiled, kept, is_forward=name == "push")
    if not has_aux:
        return value, linear_map
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(f"has_aux wants a pair (value, aux), and the function returned a {type(value).__name__}")
    return value[0], linear_map, value[1]


class LinearMap:
    """The derivative of a function at a point, as returned by ``pb.vjp`` and ``pb.linearize``."""

    def __init__(self, compiled: Callable[..., Any], primals: tuple[Any, ...], is_forward: bool) -> None:
        self._compiled = compiled
        self._primals = primals
        self._is_forward = is_forward

    @with_users_frames
    def __call__(self, *vectors: Any) -> Any:
        if self._is_forward:
            return self._compiled(self._primals, vectors)
        if len(vectors) != 1:
            raise TypeError(f"takes one cotangent, a tree like the value, got {len(vectors)}")
        return self._compiled(self._primals, vectors[0])

    def __repr__(self) -> str:
        return f"<{self._compiled!r} at {len(self._primals)} primals>"


@with_users_frames
def hvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """Return the product of the Hessian of a scalar function with a vector: forward over reverse, without the matrix.

    Parameters
    ----------
    function : callable
        A NumPy function whose result is a float scalar.
    primals : tuple
        The arguments.
    tangents : tuple
        One tangent for each primal, with its containers and shapes; None in place of an array is zero.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    array or container of arrays
        The product, like the primal, or a tuple for several primals; with ``has_aux`` ``(product, aux)``.

    Raises
    ------
    TypeError
        Unless ``primals`` and ``tangents`` are tuples.
    TraceError
        If they do not fit, and as for `grad`.

    See Also
    --------
    hessian : The matrix itself.
    jvp : First derivatives along a direction.

    Examples
    --------
    >>> pb.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    array([6., 0.])
    """
    _taken(function, "hvp")
    vectors = _point("hvp", primals), _point("hvp", tangents, "tangents")
    return transformed(function, AtPoint(name="hvp", words=("primals", "tangents"), has_aux=bool(has_aux)))(*vectors)


def _jacobian(name: str, function: Any, argnums: Any, argnames: Any, has_aux: bool) -> Any:
    if function is None:
        return functools.partial(_jacobian, name, argnums=argnums, argnames=argnames, has_aux=has_aux)
    transform = Jacobian(name=name, argnums=checked_argnums(argnums), argnames=checked_argnames(argnames), has_aux=bool(has_aux))
    return transformed(function, transform)


@with_users_frames
def jacfwd(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Jacobian of a function, in forward mode; also a decorator.

    All columns are computed at once, in one batch.

    Parameters
    ----------
    function : callable
        A NumPy function of floats.
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default the first.
    argnames : str or tuple of str, optional
        Names of arguments to differentiate by.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    callable
        A compiled function that returns an array of shape ``s + r`` for a result of shape ``s`` and an argument of shape ``r``.
        For containers it returns a tree like the result, in which each array is a tree like the argument. With ``has_aux`` it
        returns ``(jacobian, aux)``.

    Raises
    ------
    TypeError
        For positions and names that are no arguments.
    TraceError
        From a call, for arguments that are not of floats and ops that have no derivative.

    See Also
    --------
    jacrev : The same in reverse mode, for more inputs than outputs.
    jacobian : The mode by the sizes.

    Examples
    --------
    >>> pb.jacfwd(lambda x: np.array([x[0] * x[1], np.sin(x[0]), x[1] ** 2]))(np.array([0.0, 2.0]))
    array([[2., 0.],
           [1., 0.],
           [0., 4.]])
    """
    return _jacobian("jacfwd", function, argnums, argnames, has_aux)


@with_users_frames
def jacrev(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Jacobian of a function, in reverse mode; also a decorator.

    All rows are computed at once, in one batch.

    Parameters
    ----------
    function : callable
        A NumPy function of floats.
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default the first.
    argnames : str or tuple of str, optional
        Names of arguments to differentiate by.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    callable
        A compiled function; its result is as for `jacfwd`.

    Raises
    ------
    TypeError
        For positions and names that are no arguments.
    TraceError
        From a call, for arguments that are not of floats and ops that have no gradient.

    See Also
    --------
    jacfwd : The same in forward mode, for more outputs than inputs.
    jacobian : The mode by the sizes.

    Examples
    --------
    >>> pb.jacrev(lambda x: x[:2] * x[2])(np.array([1.0, 2.0, 3.0]))
    array([[3., 0., 1.],
           [0., 3., 2.]])
    """
    return _jacobian("jacrev", function, argnums, argnames, has_aux)


@with_users_frames
def jacobian(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Jacobian of a function: `jacfwd` if it has fewer input than output elements, otherwise `jacrev`.

    Parameters
    ----------
    function : callable
        A NumPy function of floats.
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default the first.
    argnames : str or tuple of str, optional
        Names of arguments to differentiate by.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    callable
        A compiled function; its result is as for `jacfwd`.

    Raises
    ------
    TypeError
        For positions and names that are no arguments.
    TraceError
        From a call, for arguments that are not of floats and ops that have no derivative.

    See Also
    --------
    jacfwd : Forward mode.
    jacrev : Reverse mode.
    hessian : Second derivatives.

    Examples
    --------
    >>> pb.jacobian(np.cumsum)(np.ones(3))
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """
    return _jacobian("jacobian", function, argnums, argnames, has_aux)


@with_users_frames
def hessian(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Hessian of a function, `jacfwd` of `jacrev`; also a decorator.

    Parameters
    ----------
    function : callable
        A NumPy function of floats.
    argnums : int or tuple of int, optional
        Positions of the arguments to differentiate by; by default the first.
    argnames : str or tuple of str, optional
        Names of arguments to differentiate by.
    has_aux : bool, optional
        The function returns ``(value, aux)``.

    Returns
    -------
    callable
        A compiled function that returns an array of shape ``s + r + r`` for a result of shape ``s`` and an argument of shape
        ``r``. For containers it returns a tree like the argument, in which each array is such a tree. With ``has_aux`` it returns
        ``(hessian, aux)``.

    Raises
    ------
    TraceError
        From a call, as for `jacfwd`.

    See Also
    --------
    hvp : The product with a vector, without the matrix.
    jacfwd : First derivatives.

    Examples
    --------
    >>> pb.hessian(lambda x: x[0] ** 2 * x[1])(np.array([3.0, 2.0]))
    array([[4., 6.],
           [6., 0.]])
    """
    return _jacobian("hessian", function, argnums, argnames, has_aux)


def stop_gradient(x: T) -> T:
    """Return ``x`` itself, as a constant to derivatives of any order and mode.

    Parameters
    ----------
    x : array, number or container of them
        The value.

    Returns
    -------
    array, number or container of them
        The same value.

    See Also
    --------
    custom_vjp : A derivative of your own.

    Examples
    --------
    >>> pb.grad(lambda x: x * pb.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    if current() is None:
        return x
    leaves, structure = tree.flatten(x)
    stopped = [
        emit("stop_gradient", x, weak=x.weak) if isinstance(x, TracedArray) and x.dtype.kind not in "iub" else x for x in leaves
    ]
    result: T = tree.unflatten(structure, stopped)
    return result


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Transform):
    """A function whose derivatives recompute its values, except those that the policy keeps."""

    policy: Policy = "nothing"
    budget: int | None = None

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return checkpoint_call(function, args, kwargs, self.policy, self.budget)


@with_users_frames
def checkpoint(function: Callable[P, Any] | None = None, *, policy: Policy = "nothing", budget: int | None = None) -> Any:
    """Return the same function, of which a gradient keeps the arguments but not the intermediate values; also a decorator.

    The gradient recomputes the intermediate values when it needs them: less memory for more time. Values and derivatives are the
    same, at every order; forward mode keeps nothing in any case.

    Parameters
    ----------
    function : callable
        A NumPy function.
    policy : {"nothing", "contractions", "everything"} or callable, optional
        What is kept in addition to the arguments: "nothing", the results of "contractions" (matrix products), "everything" that
        would be kept without `checkpoint`, or a function of the name of an op and of its location, such as "model.py:12", that
        returns whether its results are kept.
    budget : int, optional
        The largest size in bytes, at any time of the gradient, of the intermediate values that it holds, kept and recomputed ones
        together; arguments and cotangents do not count. The function is divided into segments, each of which is recomputed when
        the reverse pass reaches it. If no division stays within the budget, a `CheckpointWarning` gives the smallest possible
        size.

    Returns
    -------
    callable
        A function of the same arguments and results.

    Raises
    ------
    ValueError
        For other policies and budgets.

    See Also
    --------
    scan : Loops take ``checkpoint=`` for the residuals of their iterations.

    Examples
    --------
    >>> block = pb.checkpoint(lambda x, w: np.tanh(np.tanh(x @ w) @ w))
    >>> x, w = np.ones((1, 2)), np.full((2, 2), 0.5)
    >>> pb.grad(lambda w: np.sum(block(x, w)))(w).round(3)
    array([[0.695, 0.695],
           [0.695, 0.695]])
    """
    if not (callable(policy) or policy in POLICIES):
        raise ValueError(f"policy={policy!r}: takes {', '.join(map(repr, POLICIES))} or a function of an op's name and its place")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 0):
        raise ValueError(f"budget={budget!r}: takes a number of bytes")
    if function is None:
        return functools.partial(checkpoint, policy=policy, budget=budget)
    return transformed(function, Checkpoint(name="checkpoint", policy=policy, budget=budget))
