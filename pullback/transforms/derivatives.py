"""Derivatives with JAX's names and signatures: ``jvp``, ``vjp``, ``linearize``, Jacobians, Hessians and their products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from pullback import tree
from pullback.compiled.function import transformed
from pullback.compiled.transform import Argnames, Argnums, Derivative, Function, Transform, checked_argnames, checked_argnums
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
    """Return ``(value, tangent)``: a function at ``primals``, and its derivative along ``tangents``, in forward mode.

        y, dy = pb.jvp(f, (x, w), (dx, dw))

    ``tangents`` has one tangent for each primal, with its containers and shapes; None in place of an array is zero, and is
    required for integers. ``tangent`` has the containers, shapes and dtypes of the value, None in place of integers. With
    ``has_aux`` the function returns (value, aux), and the result is (value, tangent, aux).

    Raises TypeError unless both are tuples, TraceError if they do not fit, and what tracing the function raises.
    """
    _taken(function, "jvp")
    vectors = _point("jvp", primals), _point("jvp", tangents, "tangents")
    return transformed(function, AtPoint(name="jvp", words=("primals", "tangents"), has_aux=bool(has_aux)))(*vectors)


@with_users_frames
def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``(value, pull)``: a function at ``primals``, and its derivative in reverse mode as a function.

        y, pull = pb.vjp(f, x, w)
        dx, dw = pull(dy)

    ``pull(ct)`` takes a cotangent with the containers and shapes of the value and returns a tuple of gradients, one for each
    primal: of the sum of the value's elements, each times its element of the cotangent. None in place of an array is zero; the
    gradients of integers are None. With ``has_aux`` the function returns (value, aux), and the result is (value, pull, aux).

    ``pull`` is compiled, and recomputes what it needs of the value; inside a transformed function nothing is computed twice.
    Raises TraceError if the function cannot be traced, and out of ``pull`` for a cotangent that does not fit.
    """
    _taken(function, "vjp")
    return _with_linear_map(function, primals, has_aux, "pull")


@with_users_frames
def linearize(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``(value, push)``: a function at ``primals``, and its derivative in forward mode as a function.

        y, push = pb.linearize(f, x, w)
        dy = push(dx, dw)

    ``push(*tangents)`` takes and returns tangents as ``pb.jvp`` does. With ``has_aux`` the result is (value, push, aux).
    ``push`` recomputes what it needs of the value, as the function of ``pb.vjp`` does. Raises what ``pb.vjp`` raises.
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
    """Return the product of the Hessian of a scalar function at ``primals`` with ``tangents``: forward over reverse, without
    the matrix.

    ``primals`` and ``tangents`` are as in ``pb.jvp``. The result is like the primal, or a tuple for several primals. With
    ``has_aux`` the function returns (value, aux), and the result is (product, aux). Raises what ``pb.jvp`` and ``pb.grad``
    raise.
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
    """Return the Jacobian of a function, in forward mode; also a decorator. Options as in ``pb.grad``.

    All columns are computed at once, in one batch. The Jacobian of an array of shape s by an array of shape r has shape s + r;
    for containers it is a tree like the result, in which each array is a tree like the argument. With ``has_aux``: (jacobian,
    aux).
    """
    return _jacobian("jacfwd", function, argnums, argnames, has_aux)


@with_users_frames
def jacrev(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Jacobian of a function, in reverse mode: as ``pb.jacfwd``, but all rows are computed at once."""
    return _jacobian("jacrev", function, argnums, argnames, has_aux)


@with_users_frames
def jacobian(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Jacobian of a function: ``pb.jacfwd`` if it has fewer input than output elements, otherwise ``pb.jacrev``."""
    return _jacobian("jacobian", function, argnums, argnames, has_aux)


@with_users_frames
def hessian(
    function: Any = None, argnums: Argnums | None = None, *, argnames: Argnames | None = None, has_aux: bool = False
) -> Any:
    """Return the Hessian of a function, of shape r + r for an argument of shape r: ``pb.jacfwd`` of ``pb.jacrev``; also a
    decorator.

    For containers it is a tree like the argument, in which each array is such a tree. Options as in ``pb.grad``.
    """
    return _jacobian("hessian", function, argnums, argnames, has_aux)


def stop_gradient(x: T) -> T:
    """Return ``x`` itself, as a constant to derivatives of any order and mode. ``x`` is an array, a number, or a tree of them."""
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

        block = pb.checkpoint(lambda x, w: np.tanh(np.tanh(x @ w) @ w))

        @pb.checkpoint(policy="contractions")
        def block(x, w): ...

    The gradient recomputes the intermediate values when it needs them: less memory for more time. Values and derivatives are
    the same, at every order; forward mode keeps nothing in any case.

    ``policy``: what is kept in addition to the arguments: "nothing", the results of "contractions" (matrix products),
    "everything" that would be kept without ``pb.checkpoint``, or a function of the name of an op and of its location, such as
    "model.py:12", that returns whether its results are kept. ``budget``: the largest size in bytes, at any time of the
    gradient, of the intermediate values that it holds, kept and recomputed ones together; arguments and cotangents do not
    count. The function is divided into segments, each of which is recomputed when the reverse pass reaches it. If no division
    stays within the budget, a ``pb.CheckpointWarning`` gives the smallest possible size. Raises ValueError for other policies
    and budgets.
    """
    if not (callable(policy) or policy in POLICIES):
        raise ValueError(f"policy={policy!r}: takes {', '.join(map(repr, POLICIES))} or a function of an op's name and its place")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 0):
        raise ValueError(f"budget={budget!r}: takes a number of bytes")
    if function is None:
        return functools.partial(checkpoint, policy=policy, budget=budget)
    return transformed(function, Checkpoint(name="checkpoint", policy=policy, budget=budget))
