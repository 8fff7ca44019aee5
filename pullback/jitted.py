"""The callable that every transform makes: traced at the first call of a signature, compiled from then on.

Inside a trace a transformed function is part of the program being traced, so that transforms compose in any order.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from pullback.entries import Entries
from pullback.entry import MISS, Entry
from pullback.identity import Owned, owned_by
from pullback.inspected import Inspected
from pullback.inspection import Call, Recorder, arguments_of
from pullback.pipeline import program
from pullback.runtime import counters
from pullback.runtime.fork import work
from pullback.runtime.locks import KeyedLocks
from pullback.tracer import (
    OWNED,
    Parameters,
    Signature,
    Trace,
    TraceError,
    adopt,
    current,
    follow,
    parameters_of,
    signature,
    trace,
)
from pullback.tracer.tracebacks import keep_users_frames
from pullback.transform import Function, Transform
from pullback.writes import entry_of

MOST_TRACES = 64

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)


class Programs:
    """What was compiled of one transformed function. Every ``Jitted`` of it shares this; nothing in it holds the function."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.entries = Entries()
        self.first = KeyedLocks()
        self.owned = Owned()


class Jitted(Inspected[P], Generic[P, R]):
    """A function that is traced and compiled once for each signature of its calls.

    It has the name, the documentation and the signature of the function it was made from, ``__wrapped__``. Calls may come
    from any thread. Inside a trace it becomes part of the traced program.
    """

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self, function: Function, transform: Transform, static: frozenset[str], device: str, programs: Programs
    ) -> None:
        functools.update_wrapper(self, function)
        self.__dict__.pop(OWNED, None)
        if transform.name != "jit":
            self._forget_result_type()
        self._function = function
        self._transform = transform
        self._static = static
        self._device = device
        self._programs = programs
        self._parameters = programs.parameters
        self._entries = programs.entries
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

    def _trace(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], captured: frozenset[str] = frozenset()
    ) -> Trace:
        with counters.timed("trace"):
            return trace(self._traced, args, kwargs, name=_title(self), parameters=self._parameters, call=call, captured=captured)

    def _first_call(self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Trace, compile and run. Threads that ask for one signature at once do it once."""
        tried: list[Entry] | None = None
        changing: list[str] = []
        for _ in range(MOST_TRACES):
            with work.underway(), self._programs.first.hold(call.key):
                variants = self._entries.of(call)
                if variants == tried:
                    variants = [self._compile(call, args, kwargs)]
            for entry in variants:
                result = entry(call.leaves)
                if result is not MISS:
                    return result
            if tried is not None and variants and (changing := variants[0].unstable()):
                break
            tried = variants
        raise TraceError(
            f"{_title(self)} reads {', '.join(changing) or 'a value'} from outside, which is another object at each read; "
            "bind it to a name once, or pass it as an argument"
        )

    def _compile(self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Entry:
        """A new program for a call, kept for the next ones."""
        recorder = Recorder()
        traced = self._trace(call, args, kwargs)
        made = program(traced, call.leaves, self._device)
        entry = entry_of(traced, made, call.leaves, recorder.record(arguments_of(self._parameters, call)))
        self._entries.store(call, entry, _title(self))
        return entry

    def _for_methods(self) -> Jitted[..., Any]:
        """The same function with ``self`` as first argument, which argnums does not count."""
        if self._method is None:
            inner = self._function._for_methods() if isinstance(self._function, Jitted) else self._function
            self._method = _transformed(inner, self._transform.after_self(), self._static, self._device, type(self))
        return self._method


def transformed(
    function: Function, transform: Transform, static_argnames: Sequence[str] = (), device: str = "cpu",
    kind: type[Jitted[..., Any]] = Jitted,
) -> Any:  # fmt: skip
    """A function transformed: an object of ``kind``, or for a bound method a ``Method`` of one.

    What is compiled belongs to the function: transforming it again, with equal options, compiles nothing again.
    """
    if not callable(function):
        raise TypeError(f"pb.{transform.name} takes a function, got {type(function).__name__}")
    static = frozenset(static_argnames)
    if isinstance(function, MethodType | Method):
        return Method(_transformed(function.__func__, transform.after_self(), static, device, kind), function.__self__)
    return _transformed(function, transform, static, device, kind)


def _transformed(
    function: Function, transform: Transform, static: frozenset[str], device: str, kind: type[Jitted[..., Any]]
) -> Jitted[..., Any]:
    if isinstance(function, Jitted):
        device = device if transform.name == "jit" else function._device
        static |= function._static
    if current() is not None:
        return kind(function, transform, static, device, Programs(parameters_of(function, static)))
    made = (function._programs.owned if isinstance(function, Jitted) else owned_by(function)).made
    programs = made.get((transform, static, device))
    if programs is None:
        adopt(function)
        programs = made.setdefault((transform, static, device), Programs(parameters_of(function, static)))
    return kind(function, transform, static, device, programs)


class Method(Inspected[P], Generic[P, R]):
    """A compiled function bound to an instance of the class that it is a method of."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: Jitted[..., R], instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self.__func__(self.__self__, *args, **kwargs)
        except Exception as error:
            keep_users_frames(error)
            raise

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
