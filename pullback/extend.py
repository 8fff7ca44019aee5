"""``pullback.extend``: user-defined primitives, with the names and signatures of HIPS autograd's ``autograd.extend``.

A primitive is any Python function. It is not traced: compiled programs call it, as by ``pb.callback``. Its derivative rules
are NumPy functions, traced like any other.

    @pb.extend.primitive
    def logsumexp(x):
        top = np.max(x)
        return top + np.log(np.sum(np.exp(x - top)))

    pb.extend.defvjp(logsumexp, lambda ans, x: lambda g: g * np.exp(x - ans))
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any, Literal, ParamSpec, TypeVar, overload

from pullback.tracer import call_outside, follow, types_found
from pullback.tracer.transforms.custom import Arguments, Rule, Tree, custom_call, order_at
from pullback.transforms.custom import Ruled

__all__ = [
    "Primitive", "def_linear", "defjvp", "defjvp_argnum", "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums",
    "notrace_primitive", "primitive",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")
Maker = Callable[..., Callable[[Any], Any]] | None
Push = Callable[..., Any] | Literal["same"] | None


class Primitive(Ruled[P, R]):
    """Hold a Python function that compiled programs call; `primitive` and `notrace_primitive` return it.

    See Also
    --------
    primitive : Makes a function a primitive.

    Examples
    --------
    >>> double = pb.extend.primitive(lambda x: 2 * x)
    >>> isinstance(double, pb.extend.Primitive), double(3.0)
    (True, 6.0)
    """

    def __init__(self, function: Callable[P, R], result_types: Any = None, *, constant: bool = False) -> None:
        super().__init__(function)
        self._result_types = result_types
        self._constant = constant
        self._rules: tuple[_Rule | None, _Rule | None] = (None, None)

    def _traced(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        types = self._result_types
        if types is None:
            types = types_found(self._function, args, kwargs)
        return self._called(types, args, kwargs)

    def _called(self, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        arguments = Arguments(args)
        if self._constant or order_at(self) <= 0 or not arguments.arrays:
            return call_outside(self._function, types, args, kwargs, constant=self._constant)
        result_trees: list[Tree] = []

        def forward(arrays: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            result_trees.append(Tree(self._called(types, arguments.filled(arrays), kwargs)))
            return result_trees[0].leaves, ()

        reverse, push = self._rules
        owners = tuple(dict.fromkeys(arguments.owners))
        rules: list[Rule | None] = [None, None]
        if reverse is not None:
            chosen = reverse.covered(owners)

            def pull(outputs: Any, residuals: Any, seeds: Any, arrays: Sequence[Any]) -> Sequence[Any]:
                ans, values = result_trees[0].rebuilt(outputs), arguments.filled(arrays)
                parts = list(reverse.make(chosen, ans, values, kwargs)(result_trees[0].seeded(seeds)))
                return arguments.cotangents(chosen, parts, f"the cotangent that the rule of {self._title} returned")

            rules[0] = Rule(by=arguments.by(chosen), apply=pull)
        if push is not None:
            along = push.covered(owners)
            by = arguments.by(along)

            def apply(outputs: Any, residuals: Any, seeds: Any, arrays: Sequence[Any]) -> Sequence[Any]:
                ans, values = result_trees[0].rebuilt(outputs), arguments.filled(arrays)
                tangents = arguments.tangents(by, seeds)
                description = f"the tangent that the rule of {self._title} returned"
                parts = push.make(along, [tangents[k] for k in along], ans, values, kwargs)
                return result_trees[0].added([result_trees[0].floats(part, description, "the result") for part in parts])

            rules[1] = Rule(by=by, apply=apply)
        results = custom_call(self, self._title, arguments.arrays, forward, *rules)
        return result_trees[0].rebuilt(results)


@overload
def primitive(function: Callable[P, R], *, result_types: Any = None) -> Primitive[P, R]: ...
@overload
def primitive(function: None = None, *, result_types: Any = None) -> Callable[[Callable[P, R]], Primitive[P, R]]: ...
def primitive(function: Any = None, *, result_types: Any = None) -> Any:
    """Make a Python function a primitive: it is called, not traced, in transformed functions; also a decorator.

    Its derivatives are set by `defvjp` and `defjvp`. Outside a transformed function it is the plain function.

    Parameters
    ----------
    function : callable
        Any Python function of arrays and numbers.
    result_types : tree of types, optional
        The types of its results, as in ``pb.callback``; without them the function is called once while the function around it is
        traced, on arrays of ones in place of traced arrays.

    Returns
    -------
    Primitive
        The primitive.

    Raises
    ------
    TypeError
        If ``function`` is not callable.

    See Also
    --------
    defvjp : Its rule for reverse mode.
    defjvp : Its rule for forward mode.
    notrace_primitive : A primitive whose derivatives are zero.

    Examples
    --------
    >>> @pb.extend.primitive
    ... def logsumexp(x):
    ...     top = np.max(x)
    ...     return top + np.log(np.sum(np.exp(x - top)))
    >>> pb.extend.defvjp(logsumexp, lambda ans, x: lambda g: g * np.exp(x - ans))
    >>> pb.grad(logsumexp)(np.zeros(4))
    array([0.25, 0.25, 0.25, 0.25])
    """
    if function is None:
        return lambda function: Primitive(function, result_types)
    return Primitive(function, result_types)


def notrace_primitive(function: Callable[P, R], *, result_types: Any = None) -> Primitive[P, R]:
    """Make a function whose derivatives are zero a primitive.

    Parameters
    ----------
    function : callable
        Any Python function of arrays and numbers.
    result_types : tree of types, optional
        As in `primitive`.

    Returns
    -------
    Primitive
        The primitive.

    Raises
    ------
    TypeError
        If ``function`` is not callable.

    See Also
    --------
    primitive : A primitive with derivatives.

    Examples
    --------
    >>> digits = pb.extend.notrace_primitive(lambda x: float(len(str(x))))
    >>> pb.grad(lambda x: x * digits(12.0))(1.0)
    np.float64(4.0)
    """
    return Primitive(function, result_types, constant=True)


def defvjp(fun: Primitive[..., Any], *vjpmakers: Maker, argnums: Sequence[int] | None = None) -> None:
    """Set the reverse rule of a primitive, by one function for each argument.

    Parameters
    ----------
    fun : Primitive
        The primitive.
    *vjpmakers : callable or None
        For each argument, ``maker(ans, *args, **kwargs)`` returns a function that maps the cotangent of the result to the
        cotangent of the argument; None stands for a derivative of zero.
    argnums : sequence of int, optional
        The positions of the arguments of the makers; by default all from the first on.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive or a maker not callable.

    See Also
    --------
    defvjp_argnums : One function for several arguments.
    defjvp : The rule for forward mode.

    Examples
    --------
    >>> product = pb.extend.primitive(lambda x, y: x * y)
    >>> pb.extend.defvjp(product, lambda ans, x, y: lambda g: g * y, lambda ans, x, y: lambda g: g * x)
    >>> pb.grad(product, argnums=(0, 1))(2.0, 5.0)
    (np.float64(5.0), np.float64(2.0))
    """
    makers = _checked(fun, vjpmakers, argnums)

    def make(chosen: Sequence[int], ans: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[Any], list[Any]]:
        maps = [None if (m := makers[k]) is None else follow(m)(ans, *args, **kwargs) for k in chosen]
        return lambda g: [None if back is None else back(g) for back in maps]

    fun._rules = (_Rule(make, frozenset(makers)), fun._rules[1])


def defvjp_argnum(fun: Primitive[..., Any], vjpmaker: Callable[..., Any]) -> None:
    """Set the reverse rule of a primitive, by one function for any argument.

    Parameters
    ----------
    fun : Primitive
        The primitive.
    vjpmaker : callable
        ``vjpmaker(argnum, ans, args, kwargs)`` returns a function that maps the cotangent of the result to the cotangent of the
        argument at ``argnum``.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive or ``vjpmaker`` not callable.

    See Also
    --------
    defvjp : One function for each argument.

    Examples
    --------
    >>> product = pb.extend.primitive(lambda x, y: x * y)
    >>> pb.extend.defvjp_argnum(product, lambda k, ans, args, kwargs: lambda g: g * args[1 - k])
    >>> pb.grad(product, argnums=(0, 1))(2.0, 5.0)
    (np.float64(5.0), np.float64(2.0))
    """
    _checked(fun, (vjpmaker,))

    def make(chosen: Sequence[int], *arguments: Any) -> Callable[[Any], list[Any]]:
        maps = [follow(vjpmaker)(k, *arguments) for k in chosen]
        return lambda g: [back(g) for back in maps]

    fun._rules = (_Rule(make), fun._rules[1])


def defvjp_argnums(fun: Primitive[..., Any], vjpmaker: Callable[..., Any]) -> None:
    """Set the reverse rule of a primitive, by one function for several arguments at once.

    Parameters
    ----------
    fun : Primitive
        The primitive.
    vjpmaker : callable
        ``vjpmaker(argnums, ans, args, kwargs)`` returns a function that maps the cotangent of the result to a sequence of
        cotangents, one for each argument in ``argnums``.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive or ``vjpmaker`` not callable.

    See Also
    --------
    defvjp : One function for each argument.

    Examples
    --------
    >>> product = pb.extend.primitive(lambda x, y: x * y)
    >>> pb.extend.defvjp_argnums(product, lambda ks, ans, args, kwargs: lambda g: [g * args[1 - k] for k in ks])
    >>> pb.grad(product, argnums=(0, 1))(2.0, 5.0)
    (np.float64(5.0), np.float64(2.0))
    """
    _checked(fun, (vjpmaker,))
    fun._rules = (_Rule(lambda *args: follow(vjpmaker)(*args)), fun._rules[1])


def defjvp(fun: Primitive[..., Any], *jvpfuns: Push, argnums: Sequence[int] | None = None) -> None:
    """Set the forward rule of a primitive, by one function for each argument.

    Parameters
    ----------
    fun : Primitive
        The primitive.
    *jvpfuns : callable, "same" or None
        For each argument, ``rule(g, ans, *args, **kwargs)`` returns the contribution of its tangent ``g`` to the tangent of the
        result; None stands for zero, "same" for a function that is linear in that argument.
    argnums : sequence of int, optional
        The positions of the arguments of the rules; by default all from the first on.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive or a rule not callable.

    See Also
    --------
    def_linear : All arguments are "same".
    defvjp : The rule for reverse mode.

    Examples
    --------
    >>> square = pb.extend.primitive(lambda x: x * x)
    >>> pb.extend.defjvp(square, lambda g, ans, x: 2 * x * g)
    >>> pb.jvp(square, (3.0,), (1.0,))
    (9.0, np.float64(6.0))
    """
    rules = _checked(fun, jvpfuns, argnums)

    def tangent_part(k: int, g: Any, ans: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        rule = rules[k]
        if rule is None:
            return None
        return _along(fun, k, g, args, kwargs) if isinstance(rule, str) else follow(rule)(g, ans, *args, **kwargs)

    def make(chosen: Sequence[int], gs: Sequence[Any], *arguments: Any) -> list[Any]:
        return [tangent_part(k, g, *arguments) for k, g in zip(chosen, gs, strict=True)]

    fun._rules = (fun._rules[0], _Rule(make, frozenset(rules)))


def defjvp_argnum(fun: Primitive[..., Any], jvpmaker: Callable[..., Any]) -> None:
    """Set the forward rule of a primitive, by one function for any argument.

    Parameters
    ----------
    fun : Primitive
        The primitive.
    jvpmaker : callable
        ``jvpmaker(argnum, g, ans, args, kwargs)`` returns the contribution of the tangent ``g`` of the argument at ``argnum``.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive or ``jvpmaker`` not callable.

    See Also
    --------
    defjvp : One function for each argument.

    Examples
    --------
    >>> product = pb.extend.primitive(lambda x, y: x * y)
    >>> pb.extend.defjvp_argnum(product, lambda k, g, ans, args, kwargs: g * args[1 - k])
    >>> pb.jvp(product, (2.0, 5.0), (1.0, 0.0))
    (10.0, np.float64(5.0))
    """
    _checked(fun, (jvpmaker,))

    def make(chosen: Sequence[int], gs: Sequence[Any], *arguments: Any) -> list[Any]:
        return [follow(jvpmaker)(k, g, *arguments) for k, g in zip(chosen, gs, strict=True)]

    fun._rules = (fun._rules[0], _Rule(make))


def defjvp_argnums(fun: Primitive[..., Any], jvpmaker: Callable[..., Any]) -> None:
    """Set the forward rule of a primitive, by one function for several arguments at once.

    Parameters
    ----------
    fun : Primitive
        The primitive.
    jvpmaker : callable
        ``jvpmaker(argnums, gs, ans, args, kwargs)`` returns the tangent of the result.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive or ``jvpmaker`` not callable.

    See Also
    --------
    defjvp : One function for each argument.

    Examples
    --------
    >>> square = pb.extend.primitive(lambda x: x * x)
    >>> pb.extend.defjvp_argnums(square, lambda ks, gs, ans, args, kwargs: 2 * args[0] * gs[0])
    >>> pb.jvp(square, (3.0,), (1.0,))
    (9.0, np.float64(6.0))
    """
    _checked(fun, (jvpmaker,))
    fun._rules = (fun._rules[0], _Rule(lambda *args: [follow(jvpmaker)(*args)]))


def def_linear(fun: Primitive[..., Any]) -> None:
    """Declare a primitive linear in each of its arguments: its forward rule is the primitive itself.

    Parameters
    ----------
    fun : Primitive
        The primitive.

    Raises
    ------
    TypeError
        If ``fun`` is not a primitive.

    See Also
    --------
    defjvp : Rules argument by argument.

    Examples
    --------
    >>> product = pb.extend.primitive(lambda x, y: x * y)
    >>> pb.extend.def_linear(product)
    >>> pb.jvp(product, (2.0, 5.0), (1.0, 0.0))
    (10.0, np.float64(5.0))
    """
    defjvp_argnum(fun, lambda argnum, g, ans, args, kwargs: _along(fun, argnum, g, args, kwargs))


def _along(fun: Primitive[..., Any], argnum: int, g: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call the primitive with ``g`` in place of one of its arguments."""
    return fun(*(g if k == argnum else x for k, x in enumerate(args)), **kwargs)


def _checked(fun: Any, rules: Sequence[Any], argnums: Sequence[int] | None = None) -> dict[int, Any]:
    """Return the rules by position. Raises TypeError if ``fun`` is not a primitive or a rule is invalid."""
    if not isinstance(fun, Primitive):
        raise TypeError(f"rules are set of what pb.extend.primitive returned, not of {fun!r}")
    for rule in rules:
        if rule is not None and not callable(rule) and rule != "same":
            raise TypeError(f"a rule of {fun._title} is a function or None, not {rule!r}")
    return dict(zip(count() if argnums is None else argnums, rules))


class _Rule:
    """A derivative rule. ``make`` has the signature of the rules of ``defvjp_argnums`` and ``defjvp_argnums``, but returns the
    parts of a tangent in a list; ``argnums``: the arguments that it covers, None for all."""

    def __init__(self, make: Callable[..., Any], argnums: Collection[int] | None = None) -> None:
        self.make = make
        self._argnums = argnums

    def covered(self, argnums: Sequence[int]) -> tuple[int, ...]:
        """Return the positions among ``argnums`` that the rule covers."""
        return tuple(k for k in argnums if self._argnums is None or k in self._argnums)
