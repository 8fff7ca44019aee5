"""Jacobians inside a trace: the linear map of a function applied to all vectors of a basis, in one batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir.core.types import I64
from pullback.tracer.arrays.make import as_traced, emit, full
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import flatten, paths, unflatten
from pullback.tracer.trace import parameters_of
from pullback.tracer.transforms.grad import Argnames, Argnums, selected
from pullback.tracer.transforms.linearize import Linear
from pullback.tracer.transforms.region import differentiable, follow, is_differentiable
from pullback.tracer.transforms.vmap import moved_axis, over_axes
from pullback.tracer.user_code.errors import TraceError


class BoundCall:
    """A call as a function of the arguments with respect to which it is differentiated: ``function(*primals)``.

    ``single``: it is one argument, and its derivative is returned without a tuple.
    """

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], argnums: Argnums, argnames: Argnames
    ) -> None:
        parameters = parameters_of(function)
        self._called = follow(function)
        self._args, self._kwargs = args, kwargs
        self._places, self.single = selected(parameters, argnums, argnames, args, kwargs)
        self.primals = [args[k] if isinstance(k, int) else kwargs[k] for k in self._places]
        self.labels = [parameters.name(k) if isinstance(k, int) else k for k in self._places]

    def function(self, *primals: Any) -> Any:
        args, kwargs = list(self._args), dict(self._kwargs)
        for position, primal in zip(self._places, primals, strict=True):
            if isinstance(position, int):
                args[position] = primal
            else:
                kwargs[position] = primal
        return self._called(*args, **kwargs)

    def linear(self, has_aux: bool = False, of: Callable[..., Any] | None = None) -> Linear:
        """Return the linear maps with respect to the chosen arguments, of ``of`` if it is passed, else of the function.

        Raises TraceError unless the arguments are of floats.
        """
        for primal, label in zip(self.primals, self.labels, strict=True):
            leaves, tree = flatten(primal)
            if not leaves:
                raise TraceError(f"argument {label} has no arrays or numbers to differentiate; choose another by argnums")
            for leaf, path in zip(leaves, paths(tree, label), strict=True):
                differentiable(leaf, path)
        return Linear(of or self.function, self.primals, has_aux, self.labels)

    def unpacked(self, derivatives: Sequence[Any]) -> Any:
        """Return the derivatives as a tuple, or the only one by itself if ``single``."""
        return derivatives[0] if self.single else tuple(derivatives)


def jacobian_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, argnums: Argnums = None,
    argnames: Argnames = None, has_aux: bool = False, mode: str = "",
) -> tuple[Any, Any]:  # fmt: skip
    """Return the Jacobian of ``function(*args, **kwargs)`` and the aux output, in the current trace.

    The Jacobian is a tree like the result, in which each array is a tree like the argument (a tuple of trees for several) of
    arrays of the result's shape followed by the argument's. ``mode``: "forward", "reverse", or empty for the mode that needs
    fewer vectors.
    """
    chosen = BoundCall(function, args, kwargs, argnums, argnames)
    linear = chosen.linear(has_aux)
    leaves, _ = flatten(linear.value)
    for leaf in leaves:
        if not is_differentiable(leaf):
            raise TraceError(
                f"the function returned {as_traced(leaf).type}; a Jacobian is of floats: return integers as aux, by has_aux"
            )
    inputs, outputs = linear.sizes
    forward = mode == "forward" or (not mode and inputs < outputs)
    return (_by_columns if forward else _by_rows)(chosen, linear), linear.aux


def _by_rows(chosen: BoundCall, linear: Linear) -> Any:
    leaves, tree = flatten(linear.value)
    rows = []
    for position, leaf in enumerate(leaves):
        y = as_traced(leaf)

        def pull(ct: Any, position: int = position) -> Any:
            cotangents = [ct if k == position else None for k in range(len(leaves))]
            return [flatten(part)[0] for part in linear.pull(unflatten(tree, cotangents))]

        shaped = []
        for primal, pairs in zip(chosen.primals, _on_basis(pull, y), strict=True):
            inner, its_tree = flatten(primal)
            parts = [_combined(y, as_traced(x), pair) for x, pair in zip(inner, pairs, strict=True)]
            shaped.append(unflatten(its_tree, [_reshaped(j, (*y.shape, *as_traced(x).shape)) for x, j in zip(inner, parts)]))
        rows.append(chosen.unpacked(shaped))
    return unflatten(tree, rows)


def _by_columns(chosen: BoundCall, linear: Linear) -> Any:
    """Return the Jacobian by tangents along each basis vector of each array, whose axes come last."""
    flat = [flatten(p) for p in chosen.primals]
    leaves, tree = flatten(linear.value)
    columns: list[list[list[TracedArray]]] = []
    for owner, (inner, its_tree) in enumerate(flat):
        columns.append([])
        for position, leaf in enumerate(inner):
            x = as_traced(leaf)

            def push(
                t: Any, owner: int = owner, position: int = position, its_tree: Any = its_tree, size: int = len(inner)
            ) -> Any:
                tangent = unflatten(its_tree, [t if k == position else None for k in range(size)])
                return [flatten(linear.push([tangent if k == owner else None for k in range(len(flat))]))[0]]

            parts = []
            for y, pair in zip(map(as_traced, leaves), _on_basis(push, x)[0], strict=True):
                derivative = _combined(x, y, pair)
                if x.shape:
                    derivative = _reshaped(moved_axis(derivative, 0, derivative.ndim - 1), (*y.shape, *x.shape))
                parts.append(derivative)
            columns[-1].append(parts)
    results = []
    for k in range(len(leaves)):
        parts_of = [unflatten(t, [column[k] for column in part]) for part, (_, t) in zip(columns, flat, strict=True)]
        results.append(chosen.unpacked(parts_of))
    return unflatten(tree, results)


Pairs = list[list[tuple[Any, Any]]]


def _on_basis(apply: Callable[[Any], list[list[Any]]], x: TracedArray) -> Pairs:
    """Apply a linear map to a basis of arrays like ``x``, and to i times the basis if they are complex (else None)."""
    basis = _basis(x)
    first = over_axes(apply, (basis,), {}) if x.shape else apply(basis)
    if x.type.dtype.kind != "c":
        return [[(part, None) for part in parts] for parts in first]
    imaginary = basis * 1j
    second = over_axes(apply, (imaginary,), {}) if x.shape else apply(imaginary)
    return [list(zip(*pair, strict=True)) for pair in zip(first, second, strict=True)]


def _combined(source: TracedArray, target: TracedArray, pair: tuple[Any, Any]) -> TracedArray:
    """Return the derivatives along a basis, from those along its real and its imaginary vectors.

    For real results of complex arguments: real part minus i times imaginary part. For complex results the real vectors
    suffice, as the map is holomorphic.
    """
    real, imaginary = map(as_traced, pair) if pair[1] is not None else (as_traced(pair[0]), None)
    if imaginary is None or target.type.dtype.kind == "c":
        return real
    joined: TracedArray = real - 1j * imaginary
    return joined


def _basis(x: TracedArray) -> TracedArray:
    """Return the unit arrays like ``x`` stacked along a first axis; for a scalar 1."""
    if not x.shape:
        return full((), 1, x.dtype)
    shape = (x.size, x.size)
    row, column = (emit("iota", axis=k, shape=shape, dtype=I64) for k in (0, 1))
    return _reshaped(emit("cast", emit("eq", row, column), dtype=x.dtype), (x.size, *x.shape))


def _reshaped(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    reshaped: TracedArray = x if x.shape == tuple(shape) else emit("reshape", x, shape=tuple(shape))
    return reshaped
