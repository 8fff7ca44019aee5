"""The callable that every transform makes: traced at the first call of a signature, compiled from then on.

Inside a trace a transformed function is part of the program being traced, so that transforms compose in any order.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from pullback.entries import Entries
from pullback.entry import MISS
from pullback.inspected import Inspected
from pullback.inspection import Call, Recorder, arguments_of
from pullback.pipeline import building, program
from pullback.runtime import counters
from pullback.tracer import Signature, Trace, TraceError, adopt, current, follow, parameters_of, signature, trace
from pullback.tracer.tracebacks import keep_users_frames
from pullback.transform import Function, Transform
from pullback.writes import entry_of

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)


class Jitted(Inspected[P], Generic[P, R]):
    """A function that is traced and compiled once for each signature of its calls.

    It has the name, the documentation and the signature of the function it was made from, ``__wrapped__``. Calls may come
    from any thread. Inside a trace it becomes part of the traced program.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, function: Function, transform: Transform, static_argnames: Sequence[str] = (), device: str = "cpu"
    ) -> None:
        if not callable(function):
            raise TypeError(f"pb.{transform.name} takes a function, got {type(function).__name__}")
        adopt(function)
        functools.update_wrapper(self, function)
        if transform.name != "jit":
            self._forget_result_type()
        self._function = function
        self._transform = transform
        self._device: str = device
        self._static: frozenset[str] = frozenset(static_argnames)
        if isinstance(function, Jitted):
            self._device = device if transform.name == "jit" else function._device
            self._static |= function._static
        self._parameters = parameters_of(function, self._static)
        self._entries = Entries()
        self._method: Jitted[..., Any] | None = None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is not None:
            return self._inlined(args, kwargs)
        try:
            call = signature(self._parameters, args, kwargs)
            for entry in self._entries.by_key.get(call.key, ()):
                result = entry(call.leaves)
                if result is not MISS:
                    return result
            if call.key in self._entries.pins:
                for entry in self._entries.of(call):
                    result = entry(call.leaves)
                    if result is not MISS:
                        return result
            return self._first_call(call, args, kwargs)
        except Exception as error:
            keep_users_frames(error)
            raise

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jitted[P, R]: ...
    @overload
    def __get__(self: Jitted[Concatenate[Any, Q], R], instance: object, owner: type | None = None) -> Method[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None or not hasattr(self._function, "__get__"):
            return self
        return Method(self._for_methods(), instance)

    def __repr__(self) -> str:
        return f"<pullback.{self._transform.name} of {self._function!r}>"

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        call = signature(self._parameters, args, kwargs)
        return Call(
            title=self._described(),
            device=self._device,
            parameters=self._parameters,
            signature=call,
            retrace=lambda: self._trace(call, args, kwargs),
            entries=self._entries.by_key,
            variants=self._entries.of(call),
        )

    def _described(self) -> str:
        """The function with its transforms, as in "value_and_grad(loss)"; that every transform compiles is not said."""
        inner = self._function._described() if isinstance(self._function, Jitted) else _title(self._function)
        return inner if self._transform.name == "jit" else f"{self._transform.name}({inner})"

    def _forget_result_type(self) -> None:
        """Take the type of the result, which is not that of the function, out of the signature and the annotations."""
        with contextlib.suppress(TypeError, ValueError):
            self.__signature__ = inspect.signature(self.__wrapped__).replace(return_annotation=inspect.Signature.empty)
        self.__annotations__ = {k: v for k, v in getattr(self, "__annotations__", {}).items() if k != "return"}

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
            for entry in self._entries.of(call):
                result = entry(call.leaves)
                if result is not MISS:
                    return result
            recorder = Recorder()
            traced = self._trace(call, args, kwargs)
            made = program(traced, call.leaves, self._device)
            entry = entry_of(traced, made, call.leaves, recorder.record(arguments_of(self._parameters, call)))
            self._entries.store(call, entry, _title(self))
        result = entry(call.leaves)
        if result is MISS:
            changed = [g.describe for g in traced.guards if not g.holds()]
            raise TraceError(
                f"{_title(self)} reads {', '.join(changed) or 'a value'} from outside, which is another object at each read; "
                "bind it to a name once, or pass it as an argument"
            )
        return result

    def _for_methods(self) -> Jitted[..., Any]:
        """The same function with ``self`` as first argument, which argnums does not count."""
        if self._method is None:
            inner = self._function._for_methods() if isinstance(self._function, Jitted) else self._function
            self._method = Jitted(inner, self._transform.after_self(), tuple(self._static), self._device)
        return self._method


class Method(Inspected[P], Generic[P, R]):
    """A compiled function bound to an instance of the class that it is a method of."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: Jitted[..., R], instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__func__(self.__self__, *args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Method[P, R]:
        return self

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__func__.__doc__

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":
            whole = inspect.signature(self.__func__)
            return whole.replace(parameters=list(whole.parameters.values())[1:])
        return getattr(self.__func__, name)

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {self.__self__!r}>"

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        return self.__func__.examine((self.__self__, *args), kwargs)


def _title(function: Any) -> str:
    """The name of a function, of what a partial holds, or of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
