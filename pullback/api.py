"""The face: ``jit``, ``grad`` and ``value_and_grad``, and the callable they make.

A transformed function is traced at the first call of a signature and runs compiled from then on. Transforms compose in any
order: inside a trace a transformed function is part of the program being traced. Every value a program depends on from
outside is read or checked at each call.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from pullback.ir.interpret import interpret
from pullback.ir.ops.control import CheckFailed
from pullback.ir.passes.grad import grad as expand_gradients
from pullback.pipeline import DEVICES, Program, building, program, stages, template_counts
from pullback.runtime import counters
from pullback.tracer import (
    Signature,
    Trace,
    TraceError,
    adopt,
    current,
    follow,
    gradient_call,
    parameters_of,
    signature,
    trace,
)
from pullback.tracer.tree import filler

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]
Argnames = str | tuple[str, ...]

MOST_SIGNATURES = 4096
MOST_VARIANTS = 8
MISS = object()


@overload
def jit(
    function: None = None, *, static_argnames: str | Iterable[str] = (), device: str = "cpu"
) -> Callable[[Function], Compiled]: ...
@overload
def jit(function: Function, *, static_argnames: str | Iterable[str] = (), device: str = "cpu") -> Compiled: ...
def jit(
    function: Function | None = None, *, static_argnames: str | Iterable[str] = (), device: str = "cpu"
) -> Compiled | Callable[[Function], Compiled]:
    """Compile a NumPy function; also a decorator, with or without arguments.

    Arguments and results: NumPy arrays and scalars, Python numbers, and nested tuples, lists, dicts, namedtuples and
    dataclasses of them; any other argument is static. Results are NumPy's, of NumPy's dtypes. Arguments in
    ``static_argnames`` are static: each value of theirs is traced by itself. ``device``: "cpu" or "cuda".

    Raises TypeError and ValueError for bad options. Calls raise TraceError for what cannot be compiled.
    """
    if function is None:
        return functools.partial(jit, static_argnames=static_argnames, device=device)  # type: ignore[return-value]
    if device not in DEVICES:
        raise ValueError(f"device {device!r}: one of {', '.join(DEVICES)}")
    words = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return Compiled(function, Transform(name="jit"), words, device)


@overload
def grad(
    function: None = None, *, argnums: Argnums | None = None, argnames: Argnames | None = None, has_aux: bool = False
) -> Callable[[Function], Compiled]: ...
@overload
def grad(
    function: Function, *, argnums: Argnums | None = None, argnames: Argnames | None = None, has_aux: bool = False
) -> Compiled: ...
def grad(
    function: Function | None = None, *, argnums: Argnums | None = None, argnames: Argnames | None = None, has_aux: bool = False
) -> Compiled | Callable[[Function], Compiled]:
    """The gradient of a function that returns a float scalar; also a decorator, with or without arguments.

    With respect to the arguments at the positions ``argnums`` and of the names ``argnames``; to the first if neither is
    given. One int or name: one gradient, with the containers, shapes and dtypes of that argument; otherwise a tuple. The
    positions of a method start after ``self``. With ``has_aux`` the function returns (value, aux), and the result is
    (gradient, aux). Reverse mode; any order by repetition.

    Calls raise TraceError, at the user's line, for a result that is not a float scalar, an argument that is not of floats,
    and an op that has no gradient.
    """
    return _differentiated("grad", function, argnums, argnames, has_aux)


@overload
def value_and_grad(
    function: None = None, *, argnums: Argnums | None = None, argnames: Argnames | None = None, has_aux: bool = False
) -> Callable[[Function], Compiled]: ...
@overload
def value_and_grad(
    function: Function, *, argnums: Argnums | None = None, argnames: Argnames | None = None, has_aux: bool = False
) -> Compiled: ...
def value_and_grad(
    function: Function | None = None, *, argnums: Argnums | None = None, argnames: Argnames | None = None, has_aux: bool = False
) -> Compiled | Callable[[Function], Compiled]:
    """A function's value and gradient, (value, gradient), computed together; options and errors as in ``grad``.

    With ``has_aux``: ((value, aux), gradient).
    """
    return _differentiated("value_and_grad", function, argnums, argnames, has_aux)


def _differentiated(name: str, function: Any, argnums: Any, argnames: Any, has_aux: bool) -> Any:
    if function is None:
        return functools.partial(_differentiated, name, argnums=argnums, argnames=argnames, has_aux=has_aux)
    transform = Transform(name=name, argnums=_argnums(argnums), argnames=_argnames(argnames), has_aux=bool(has_aux))
    return Compiled(function, transform)


def _argnums(argnums: Any) -> Argnums | None:
    several = isinstance(argnums, tuple | list)
    for k in argnums if several else [argnums]:
        if (k is not None or several) and (isinstance(k, bool) or not isinstance(k, int | np.integer)):
            raise TypeError(f"argnums is an int or a tuple of ints, not {argnums!r}")
    return tuple(map(int, argnums)) if several else None if argnums is None else int(argnums)


def _argnames(argnames: Any) -> Argnames | None:
    if argnames is None or isinstance(argnames, str):
        return argnames
    words = tuple(argnames) if isinstance(argnames, Iterable) else (None,)
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"argnames is a name or a tuple of names, not {argnames!r}")
    return words


@dataclass(frozen=True, kw_only=True)
class Transform:
    """What is done to a function: "jit" nothing, "grad" and "value_and_grad" its gradient."""

    name: str
    argnums: Argnums | None = None
    argnames: Argnames | None = None
    has_aux: bool = False

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the transformed function in the current trace."""
        if self.name == "jit":
            return follow(function)(*args, **kwargs)
        value, aux, gradients = gradient_call(
            function, args, kwargs, argnums=self.argnums, argnames=self.argnames, has_aux=self.has_aux
        )
        if self.name == "grad":
            return (gradients, aux) if self.has_aux else gradients
        return ((value, aux) if self.has_aux else value), gradients

    def after_self(self) -> Transform:
        """The transform of a function whose first argument is ``self``, which positions do not count."""
        if self.name == "jit":
            return self
        if isinstance(self.argnums, tuple):
            argnums: Argnums | None = tuple(k + (k >= 0) for k in self.argnums)
        elif self.argnums is None:
            argnums = 1 if self.argnames is None else None
        else:
            argnums = self.argnums + (self.argnums >= 0)
        return Transform(name=self.name, argnums=argnums, argnames=self.argnames, has_aux=self.has_aux)


class Compiled:
    """A function that is traced and compiled once for each signature of its calls.

    It has the name, the documentation and the signature of the function it was made from, ``__wrapped__``. Calls may come
    from any thread. Inside a trace it becomes part of the traced program.
    """

    def __init__(
        self, function: Function, transform: Transform, static_argnames: Sequence[str] = (), device: str = "cpu"
    ) -> None:
        if not callable(function):
            raise TypeError(f"pb.{transform.name} takes a function, got {type(function).__name__}")
        adopt(function)
        functools.update_wrapper(self, function)
        self._function = function
        self._transform = transform
        self._device: str = device
        self._static: frozenset[str] = frozenset(static_argnames)
        if isinstance(function, Compiled):
            self._device = device if transform.name == "jit" else function._device
            self._static |= function._static
        self._parameters = parameters_of(function, self._static)
        self._entries: dict[Any, list[Entry]] = {}
        self._method: Compiled | None = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return self._inlined(args, kwargs)
        call = signature(self._parameters, args, kwargs)
        for entry in self._entries.get(call.key, ()):
            result = entry(call.leaves)
            if result is not MISS:
                return result
        return self._first_call(call, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Compiled | Method:
        if instance is None or not hasattr(self._function, "__get__"):
            return self
        return Method(self._for_methods(), instance)

    def __repr__(self) -> str:
        return f"<pullback.{self._transform.name} of {self._function!r}>"

    def stages(self, /, *args: Any, **kwargs: Any) -> dict[str, str]:
        """The text of each stage that a call with these arguments goes through, by the stage's name.

        The stages: trace, grad, simplify, fuse, lower, schedule, llvm, asm. Traces and compiles anew and stores nothing.
        """
        return self.inspect(args, kwargs)[0]

    def inspect(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], *, locations: bool = False
    ) -> tuple[dict[str, str], dict[str, Any]]:
        """The stages, and the values of the program's parameters by name; ``locations``: texts with the user's lines."""
        call = signature(self._parameters, args, kwargs)
        traced = self._trace(call, args, kwargs)
        texts = stages(traced, call.leaves, self._device, locations=locations)
        values = traced.arguments(call.leaves) or []
        named = {p.name: np.asarray(v, p.type.dtype.numpy) for p, v in zip(traced.function.parameters, values)}
        return texts, named

    def _inlined(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return self._transform.apply(self._function, [follow(a) for a in args], {k: follow(v) for k, v in kwargs.items()})

    def _traced(self, *args: Any, **kwargs: Any) -> Any:
        return self._transform.apply(self._function, args, kwargs)

    def _trace(self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trace:
        with counters.timed("trace"):
            return trace(self._traced, args, kwargs, name=_title(self), parameters=self._parameters, call=call)

    def _first_call(self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Trace and compile, unless another thread has done so meanwhile, and run."""
        with building:
            variants = self._entries.get(call.key, [])
            for entry in variants:
                result = entry(call.leaves)
                if result is not MISS:
                    return result
            traced = self._trace(call, args, kwargs)
            entry = Entry(traced, program(traced, call.leaves, self._device), call.leaves)
            while len(self._entries) >= MOST_SIGNATURES:
                del self._entries[next(iter(self._entries))]
            self._entries[call.key] = [entry, *variants[: MOST_VARIANTS - 1]]
        result = entry(call.leaves)
        if result is MISS:
            changed = [g.describe for g in traced.guards if not g.holds()]
            raise TraceError(
                f"{_title(self)} reads {', '.join(changed) or 'a value'} from outside, which is another object at each read; "
                "bind it to a name once, or pass it as an argument"
            )
        return result

    def _for_methods(self) -> Compiled:
        """The same function with ``self`` as first argument, which argnums does not count."""
        if self._method is None:
            inner = self._function._for_methods() if isinstance(self._function, Compiled) else self._function
            self._method = Compiled(inner, self._transform.after_self(), tuple(self._static), self._device)
        return self._method


class Method:
    """A compiled function bound to an instance of the class that it is a method of."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: Compiled, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__func__, name)

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {self.__self__!r}>"

    def stages(self, /, *args: Any, **kwargs: Any) -> dict[str, str]:
        """As ``Compiled.stages``."""
        return self.__func__.stages(self.__self__, *args, **kwargs)


class Entry:
    """A compiled signature: called with the leaves of a call, it returns the result, or MISS where its trace does not hold."""

    __slots__ = ("_are_plain", "_constants", "_fill", "_is_direct", "_is_guarded", "_program", "_reads", "_trace")

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any]) -> None:
        self._trace = trace
        self._program = program
        self._is_guarded = bool(trace.guards)
        self._are_plain = all(map(_is_plain, leaves))
        self._reads = len(trace.inputs) > len(leaves)
        self._constants = list(program.constants)
        self._fill = filler(trace.out_tree)
        is_fresh = program.template is None or not program.template.given
        self._is_direct = is_fresh and all(o.source == "result" for o in program.outcomes)

    def __call__(self, leaves: list[Any]) -> Any:
        if self._is_guarded and not self._trace.holds():
            return MISS
        arguments: list[Any] | None = leaves
        if not self._are_plain:
            arguments = self._trace.arguments(leaves)
        elif self._reads:
            outside = self._trace.outside()
            arguments = None if outside is None else leaves + outside
        if arguments is None:
            return MISS
        program = self._program
        results: Sequence[Any] = ()
        if program.template is not None:
            try:
                results = program.template.executable.run(arguments + self._constants, program.sizes)
            except CheckFailed as failed:
                raise self._error(failed, arguments) from None
        if self._is_direct:
            return self._fill([r if r.ndim else r[()] for r in results])
        return self._fill(self._outcomes(results, leaves, arguments))

    def _outcomes(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The leaves of the result where some are arguments returned whole, or the same value twice."""
        found: list[Any] = []
        for outcome, value in zip(self._program.outcomes, self._trace.function.results, strict=True):
            match outcome.source:
                case "result":
                    made = results[outcome.index]
                    template = self._program.template
                    if template is not None and outcome.index in template.given:
                        made = np.array(made, value.type.dtype.numpy)
                case "repeat":
                    made = np.array(results[outcome.index], value.type.dtype.numpy)
                case "leaf":
                    given = leaves[outcome.index]
                    found.append(given if isinstance(given, np.ndarray | np.generic) else value.type.dtype.numpy.type(given))
                    continue
                case _:
                    made = np.array(arguments[outcome.index], value.type.dtype.numpy)
            found.append(made if made.ndim else made[()])
        return found

    def _error(self, failed: CheckFailed, arguments: Sequence[Any]) -> Exception:
        """The exception that a failed check names, with the user's line in a note."""
        kind = getattr(builtins, failed.error, None) or getattr(np.linalg, failed.error)
        error: Exception = kind(str(failed))
        function = expand_gradients(self._trace.function)
        typed = [np.asarray(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]
        try:
            interpret(function, *typed)
        except CheckFailed as again:
            if again.loc:
                error.add_note(f"at {again.loc.file}:{again.loc.line}, in compiled code")
        return error


def _is_plain(leaf: Any) -> bool:
    """Whether a leaf can be a program's argument as it is."""
    return not isinstance(leaf, np.ndarray) or (leaf.ndim > 0 and leaf.dtype.isnative)


def _title(function: Any) -> str:
    """The name of a function, of what a partial holds, or of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """Counts of this process.

    Every kernel that a program needed is one hit (it was in memory), disk hit (in the cache folder) or compile. A template
    is a program before its shapes: built by running every pass, instantiated by a trace that differs in shapes alone.
    """

    hits: int
    disk_hits: int
    compiles: int
    templates_built: int
    templates_instantiated: int


def cache_info() -> CacheInfo:
    """The counts of kernels and templates so far."""
    kernels, templates = counters.snapshot(), template_counts()
    return CacheInfo(
        hits=kernels.hits,
        disk_hits=kernels.disk_hits,
        compiles=kernels.compiles,
        templates_built=templates.built,
        templates_instantiated=templates.instantiated,
    )
