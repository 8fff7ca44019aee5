"""``pullback.extend``: primitives of your own, with the names and signatures of HIPS autograd's ``autograd.extend``.

A primitive is any Python function, which is not traced: compiled programs call it, as by ``pb.callback``. Its derivative
rules are NumPy, traced like any function.

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
    """A Python function that compiled programs call; made by ``primitive`` and ``notrace_primitive``."""

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
        met: list[Tree] = []

        def forward(arrays: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
            met.append(Tree(self._called(types, arguments.filled(arrays), kwargs)))
            return met[0].leaves, ()

        reverse, push = self._rules
        owners = tuple(dict.fromkeys(arguments.owners))
        rules: list[Rule | None] = [None, None]
        if reverse is not None:
            chosen = reverse.known(owners)

            def pull(outputs: Any, residuals: Any, seeds: Any, arrays: Sequence[Any]) -> Sequence[Any]:
                ans, given = met[0].rebuilt(outputs), arguments.filled(arrays)
                parts = list(reverse.make(chosen, ans, given, kwargs)(met[0].seeded(seeds)))
                return arguments.cotangents(chosen, parts, f"the cotangent that the rule of {self._title} returned")

            rules[0] = Rule(by=arguments.by(chosen), apply=pull)
        if push is not None:
            along = push.known(owners)
            by = arguments.by(along)

            def apply(outputs: Any, residuals: Any, seeds: Any, arrays: Sequence[Any]) -> Sequence[Any]:
                ans, given = met[0].rebuilt(outputs), arguments.filled(arrays)
                tangents = arguments.tangents(by, seeds)
                what = f"the tangent that the rule of {self._title} returned"
                parts = push.make(along, [tangents[k] for k in along], ans, given, kwargs)
                return met[0].added([met[0].floats(part, what, "the result") for part in parts])

            rules[1] = Rule(by=by, apply=apply)
        results = custom_call(self, self._title, arguments.arrays, forward, *rules)
        return met[0].rebuilt(results)


@overload
def primitive(function: Callable[P, R], *, result_types: Any = None) -> Primitive[P, R]: ...
@overload
def primitive(function: None = None, *, result_types: Any = None) -> Callable[[Callable[P, R]], Primitive[P, R]]: ...
def primitive(function: Any = None, *, result_types: Any = None) -> Any:
    """A Python function that is called, not traced, in transformed functions; its derivatives are given by ``defvjp`` and
    ``defjvp``. Also a decorator, with or without arguments.

    The types of its results are ``result_types``, as in ``pb.callback``; without them the function is called once while the
    function around is traced, on arrays of ones in place of those that are not known then. Outside a transformed function it
    is the plain function.
    """
    if function is None:
        return lambda given: Primitive(given, result_types)
    return Primitive(function, result_types)


def notrace_primitive(function: Callable[P, R], *, result_types: Any = None) -> Primitive[P, R]:
    """The same for a function whose derivatives are zero."""
    return Primitive(function, result_types, constant=True)


def defvjp(fun: Primitive[..., Any], *vjpmakers: Maker, argnums: Sequence[int] | None = None) -> None:
    """Set the reverse rule of a primitive: for each argument ``maker(ans, *args, **kwargs)``, which gives the function from the
    cotangent of the result to that of the argument; None for a derivative of zero.

    ``argnums``: the positions of the arguments that the makers are for; all from the first if it is None.
    """
    makers = _checked(fun, vjpmakers, argnums)

    def make(chosen: Sequence[int], ans: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[Any], list[Any]]:
        maps = [None if (m := makers[k]) is None else follow(m)(ans, *args, **kwargs) for k in chosen]
        return lambda g: [None if back is None else back(g) for back in maps]

    fun._rules = (_Rule(make, frozenset(makers)), fun._rules[1])


def defvjp_argnum(fun: Primitive[..., Any], vjpmaker: Callable[..., Any]) -> None:
    """Set the reverse rule of a primitive: ``vjpmaker(argnum, ans, args, kwargs)`` for any argument."""
    _checked(fun, (vjpmaker,))

    def make(chosen: Sequence[int], *given: Any) -> Callable[[Any], list[Any]]:
        maps = [follow(vjpmaker)(k, *given) for k in chosen]
        return lambda g: [back(g) for back in maps]

    fun._rules = (_Rule(make), fun._rules[1])


def defvjp_argnums(fun: Primitive[..., Any], vjpmaker: Callable[..., Any]) -> None:
    """Set the reverse rule of a primitive: ``vjpmaker(argnums, ans, args, kwargs)`` gives the function from the cotangent of the
    result to a sequence with that of each argument in ``argnums``."""
    _checked(fun, (vjpmaker,))
    fun._rules = (_Rule(lambda *given: follow(vjpmaker)(*given)), fun._rules[1])


def defjvp(fun: Primitive[..., Any], *jvpfuns: Push, argnums: Sequence[int] | None = None) -> None:
    """Set the forward rule of a primitive: for each argument ``rule(g, ans, *args, **kwargs)``, what its tangent ``g`` adds
    to that of the result; None for nothing, "same" for a function that is linear in that argument."""
    rules = _checked(fun, jvpfuns, argnums)

    def one(k: int, g: Any, ans: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        rule = rules[k]
        if rule is None:
            return None
        return _along(fun, k, g, args, kwargs) if isinstance(rule, str) else follow(rule)(g, ans, *args, **kwargs)

    def make(chosen: Sequence[int], gs: Sequence[Any], *given: Any) -> list[Any]:
        return [one(k, g, *given) for k, g in zip(chosen, gs, strict=True)]

    fun._rules = (fun._rules[0], _Rule(make, frozenset(rules)))


def defjvp_argnum(fun: Primitive[..., Any], jvpmaker: Callable[..., Any]) -> None:
    """Set the forward rule of a primitive: ``jvpmaker(argnum, g, ans, args, kwargs)`` for any argument."""
    _checked(fun, (jvpmaker,))

    def make(chosen: Sequence[int], gs: Sequence[Any], *given: Any) -> list[Any]:
        return [follow(jvpmaker)(k, g, *given) for k, g in zip(chosen, gs, strict=True)]

    fun._rules = (fun._rules[0], _Rule(make))


def defjvp_argnums(fun: Primitive[..., Any], jvpmaker: Callable[..., Any]) -> None:
    """Set the forward rule of a primitive: ``jvpmaker(argnums, gs, ans, args, kwargs)`` gives the tangent of the result."""
    _checked(fun, (jvpmaker,))
    fun._rules = (fun._rules[0], _Rule(lambda *given: [follow(jvpmaker)(*given)]))


def def_linear(fun: Primitive[..., Any]) -> None:
    """A primitive is linear in each of its arguments: its forward rule is itself."""
    defjvp_argnum(fun, lambda argnum, g, ans, args, kwargs: _along(fun, argnum, g, args, kwargs))


def _along(fun: Primitive[..., Any], argnum: int, g: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The primitive with ``g`` for one of its arguments."""
    return fun(*(g if k == argnum else x for k, x in enumerate(args)), **kwargs)


def _checked(fun: Any, rules: Sequence[Any], argnums: Sequence[int] | None = None) -> dict[int, Any]:
    """The rules by position. Raises TypeError for what is no primitive or no rule."""
    if not isinstance(fun, Primitive):
        raise TypeError(f"rules are set of what pb.extend.primitive returned, not of {fun!r}")
    for rule in rules:
        if rule is not None and not callable(rule) and rule != "same":
            raise TypeError(f"a rule of {fun._title} is a function or None, not {rule!r}")
    return dict(zip(count() if argnums is None else argnums, rules))


class _Rule:
    """``make`` is called as ``defvjp_argnums`` and ``defjvp_argnums`` say, but that it gives the parts of a tangent in a list;
    ``argnums``: the arguments that it is for, None for all."""

    def __init__(self, make: Callable[..., Any], argnums: Collection[int] | None = None) -> None:
        self.make = make
        self._argnums = argnums

    def known(self, argnums: Sequence[int]) -> tuple[int, ...]:
        """Those of some arguments that the rule is for."""
        return tuple(k for k in argnums if self._argnums is None or k in self._argnums)
