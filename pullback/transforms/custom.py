"""Implement ``pb.custom_vjp`` and ``pb.custom_jvp``: functions with user-defined derivative rules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from pullback.compiled.pickling import module_member
from pullback.tracer import TracedArray, TraceError, current, follow, guard_attribute
from pullback.tracer.transforms.custom import Arguments, Rule, Tree, custom_call, order_at, result_of, same_types

P = ParamSpec("P")
R = TypeVar("R")


class Ruled(Generic[P, R]):
    """A function whose derivatives are defined by rules; ``_rules`` is replaced, never mutated."""

    __wrapped__: Callable[..., Any]
    __name__: str

    def __init__(self, function: Callable[P, R]) -> None:
        if not callable(function):
            raise TypeError(f"pb.{type(self).__name__} takes a function, got {type(function).__name__}")
        functools.update_wrapper(self, function)
        self._function = function
        self._rules: tuple[Any, ...] = ()

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is None:
            return self._function(*args, **kwargs)
        guard_attribute(self, "_rules", f"the rules of {self._title}")
        result: R = self._traced(args, kwargs)
        return result

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<pullback.{type(self).__name__} of {self._function!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if module_member(self) is self:
            return self.__qualname__
        return super().__reduce__()

    @property
    def _title(self) -> str:
        return getattr(self, "__name__", type(self._function).__name__)

    def _traced(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class _Custom(Ruled[P, R]):
    """Base class of both kinds of rules: arguments in ``nondiff_argnums`` are passed on unchanged."""

    def __init__(self, function: Callable[P, R], nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(function)
        self._fixed = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        if any(k < 0 for k in self._fixed):
            raise ValueError(f"nondiff_argnums {self._fixed}: positions count from 0")

    def _traced(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        positional = self._positional(args, kwargs)
        free = [k for k in range(len(positional)) if k not in self._fixed]
        arguments = Arguments([positional[k] for k in free])
        if order_at(self) <= 0 or not arguments.arrays:
            return follow(self._function)(*positional)
        if not self._rules:
            name = type(self).__name__
            raise TraceError(f"{self._title} is a pb.{name} without a rule; give it one by .def{name[-3:]}")

        def all_arguments(arrays: Sequence[Any]) -> list[Any]:
            values = list(positional)
            for k, value in zip(free, arguments.filled(arrays), strict=True):
                values[k] = value
            return values

        return self._ruled(arguments, all_arguments, [positional[k] for k in self._fixed if k < len(positional)])

    def _ruled(self, arguments: Arguments, all_arguments: Callable[[Sequence[Any]], list[Any]], fixed: list[Any]) -> Any:
        raise NotImplementedError

    def _along(self, arguments: Arguments, trees: list[Tree], fixed: list[Any], rule: Callable[..., Any]) -> Rule:
        """Return the forward rule that computes the result with its tangent; ``trees`` holds the result once the function has
        been traced."""
        everything = tuple(range(len(arguments.arrays)))

        def push(outputs: Any, residuals: Any, seeds: Sequence[Any], arrays: Sequence[Any]) -> Sequence[Any]:
            primals, tangents = arguments.filled(arrays), arguments.tangents(everything, seeds)
            pair = follow(rule)(*fixed, tuple(primals), tuple(tangents))
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TraceError(f"the rule of {self._title} must return (result, tangent), and returned {_kind(pair)}")
            same_types(Tree(pair[0]), trees[0], f"what the rule of {self._title} returned first", f"the result of {self._title}")
            return trees[0].floats(pair[1], f"the tangent that the rule of {self._title} returned", "the result")

        return Rule(by=everything, apply=push)

    def _positional(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Return all arguments by position, defaults included. Raises TraceError for keyword-only arguments."""
        if not kwargs:
            return list(args)
        bound = inspect.signature(self._function).bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise TraceError(f"{self._title} has rules for its derivative, and keyword-only arguments {list(bound.kwargs)}")
        return list(bound.args)


class custom_vjp(_Custom[P, R]):
    """Give a function a derivative rule of its own in reverse mode; forward mode transposes it.

    Outside a transformed function it is the plain function.

    Parameters
    ----------
    function : callable
        A NumPy function of positional arguments.
    nondiff_argnums : int or sequence of int, optional
        Positions of arguments that are not differentiated; they come first in the arguments of ``bwd``.

    Raises
    ------
    TypeError
        If ``function`` is not callable.
    ValueError
        For negative positions.
    TraceError
        From a call, for a rule whose results do not fit, and for a derivative by a value that the function reads from outside its
        arguments.

    See Also
    --------
    custom_jvp : A rule for forward mode.
    stop_gradient : A value without derivatives.

    Examples
    --------
    The gradient of this function is clipped:

    >>> @pb.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda residuals, ct: (np.clip(ct, -1, 1),))
    >>> pb.grad(lambda x: 10 * clipped(x))(2.0)
    np.float64(1.0)
    """

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the rule for reverse mode, replacing an earlier one.

        Both functions are plain NumPy, traced like the function, and are differentiated in turn for the second derivative.

        Parameters
        ----------
        fwd : callable
            ``fwd(*args)`` returns ``(result, residuals)`` and replaces the function where a derivative is taken.
        bwd : callable
            ``bwd(residuals, ct)`` receives the cotangent of the result, in its containers, and returns a tuple with a cotangent
            for each argument, in its containers, None for zero.

        See Also
        --------
        custom_vjp : The function that has the rule.

        Examples
        --------
        >>> square = pb.custom_vjp(lambda x: x * x)
        >>> square.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))
        >>> pb.grad(square)(3.0)
        np.float64(6.0)
        """
        self._rules = (fwd, bwd, *self._rules[2:])

    def defjvp(self, rule: Callable[..., Any]) -> None:
        """Set a rule for forward mode, after the one for reverse mode.

        Parameters
        ----------
        rule : callable
            ``rule(primals, tangents)`` returns ``(result, tangent)``, as for `custom_jvp`.

        Raises
        ------
        TypeError
            If there is no rule for reverse mode.

        See Also
        --------
        custom_vjp.defvjp : The rule for reverse mode.

        Examples
        --------
        >>> square = pb.custom_vjp(lambda x: x * x)
        >>> square.defvjp(lambda x: (x * x, x), lambda x, ct: (2 * x * ct,))
        >>> square.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
        >>> pb.jvp(square, (3.0,), (1.0,))
        (9.0, np.float64(6.0))
        """
        if not self._rules:
            raise TypeError(f"{self._title} has no rule for reverse mode; call .defvjp first")
        self._rules = (*self._rules[:2], rule)

    def _ruled(self, arguments: Arguments, all_arguments: Callable[[Sequence[Any]], list[Any]], fixed: list[Any]) -> Any:
        fwd, bwd, *push = map(follow, self._rules)
        trees: list[Tree] = []

        def forward(arrays: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            pair = fwd(*all_arguments(arrays))
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise TraceError(f"the rule fwd of {self._title} must return (result, residuals), and returned {_kind(pair)}")
            trees.extend(map(Tree, pair))
            plain = result_of(lambda xs: follow(self._function)(*all_arguments(xs)), arrays)
            if plain is not None:
                same_types(trees[0], plain, f"what the rule fwd of {self._title} returned", f"the result of {self._title}")
            return trees[0].leaves, trees[1].leaves

        def back(outputs: Any, residuals: Sequence[Any], seeds: Any, arrays: Any) -> Sequence[Any]:
            cotangents = bwd(*fixed, trees[1].rebuilt(residuals), trees[0].seeded(seeds))
            count = len(arguments.trees)
            if not isinstance(cotangents, tuple | list) or len(cotangents) != count:
                got = len(cotangents) if isinstance(cotangents, tuple | list) else _kind(cotangents)
                raise TraceError(f"the rule bwd of {self._title} must return a tuple of {count} cotangents, and returned {got}")
            return arguments.cotangents(range(count), cotangents, f"the cotangent that bwd of {self._title} returned")

        everything = tuple(range(len(arguments.arrays)))
        along = self._along(arguments, trees, fixed, push[0]) if push else None
        results = custom_call(self, self._title, arguments.arrays, forward, Rule(by=everything, apply=back), along)
        return trees[0].rebuilt(results)


class custom_jvp(_Custom[P, R]):
    """Give a function a derivative rule of its own in forward mode; reverse mode transposes it.

    Outside a transformed function it is the plain function.

    Parameters
    ----------
    function : callable
        A NumPy function of positional arguments.
    nondiff_argnums : int or sequence of int, optional
        Positions of arguments that are not differentiated; they come first in the arguments of the rule.

    Raises
    ------
    TypeError
        If ``function`` is not callable.
    ValueError
        For negative positions.
    TraceError
        From a call, for a rule whose results do not fit, and for a derivative by a value that the function reads from outside its
        arguments.

    See Also
    --------
    custom_vjp : A rule for reverse mode.
    extend.primitive : Rules for a function that is called, not traced.

    Examples
    --------
    >>> @pb.custom_jvp
    ... def log1pexp(x):
    ...     return np.log1p(np.exp(x))
    >>> log1pexp.defjvp(lambda primals, tangents: (log1pexp(*primals), tangents[0] / (1 + np.exp(-primals[0]))))
    >>> pb.grad(log1pexp)(0.0)
    np.float64(0.5)
    """

    def defjvp(self, rule: Callable[..., Any]) -> None:
        """Set the rule for all arguments together, replacing an earlier one.

        Parameters
        ----------
        rule : callable
            ``rule(primals, tangents)`` returns ``(result, tangent of the result)``, linear in the tangents; the second is used.
            Tangents are in the containers of their arguments, None in place of anything but floats.

        See Also
        --------
        custom_jvp : The function that has the rule.

        Examples
        --------
        >>> cube = pb.custom_jvp(lambda x: x**3)
        >>> cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))
        >>> pb.jvp(cube, (2.0,), (1.0,))
        (8.0, np.float64(12.0))
        """
        self._rules = (rule,)

    def defjvps(self, *rules: Callable[..., Any] | None) -> None:
        """Set one rule for each argument, whose tangents are added up.

        Parameters
        ----------
        *rules : callable or None
            ``rule(tangent, result, *primals)`` returns the contribution of one argument to the tangent of the result; None is
            zero.

        See Also
        --------
        custom_jvp.defjvp : One rule for all arguments.

        Examples
        --------
        >>> product = pb.custom_jvp(lambda x, y: x * y)
        >>> product.defjvps(lambda t, out, x, y: t * y, lambda t, out, x, y: x * t)
        >>> pb.grad(product, argnums=(0, 1))(2.0, 5.0)
        (np.float64(5.0), np.float64(2.0))
        """
        self._rules = ("each", *rules)

    def _ruled(self, arguments: Arguments, all_arguments: Callable[[Sequence[Any]], list[Any]], fixed: list[Any]) -> Any:
        trees: list[Tree] = []

        def forward(arrays: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            trees.append(Tree(self._traced(all_arguments(arrays), {})))
            return trees[0].leaves, ()

        rule = self._each(arguments, trees) if self._rules[0] == "each" else self._along(arguments, trees, fixed, self._rules[0])
        results = custom_call(self, self._title, arguments.arrays, forward, None, rule)
        return trees[0].rebuilt(results)

    def _each(self, arguments: Arguments, trees: list[Tree]) -> Rule:
        """Return the forward rule that has a part for each argument. Raises TraceError for another number of rules than
        arguments."""
        rules = self._rules[1:]
        if len(rules) != len(arguments.trees):
            raise TraceError(f"{self._title} has {len(rules)} rules by defjvps for {len(arguments.trees)} arguments")
        everything = tuple(range(len(arguments.arrays)))

        def push(outputs: Sequence[Any], residuals: Any, seeds: Sequence[Any], arrays: Sequence[Any]) -> Sequence[Any]:
            primals, tangents = arguments.filled(arrays), arguments.tangents(everything, seeds)
            result, description = trees[0].rebuilt(outputs), f"the tangent that a rule of {self._title} returned"
            parts = [follow(r)(t, result, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            return trees[0].added([trees[0].floats(part, description, "the result") for part in parts])

        return Rule(by=everything, apply=push)


def _kind(value: Any) -> str:
    return repr(value) if isinstance(value, TracedArray) else f"a {type(value).__name__}"
