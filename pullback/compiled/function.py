"""The callable that every transform makes: traced at the first call of a signature, compiled from then on.

Inside a trace a transformed function is part of the program being traced, so that transforms compose in any order.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from pullback.compiled.bound_method import Method
from pullback.compiled.file_descriptors import NamesExhaustion
from pullback.compiled.function_attributes import FunctionLike
from pullback.compiled.function_identity import Owned, owned_by
from pullback.compiled.pickling import shown
from pullback.compiled.reports import Inspected
from pullback.compiled.transform import Function, Transform
from pullback.fastcall.describe import Callables, NotNative, entrance, is_underway, path_of, record_of
from pullback.ir.passes.tf32 import with_tf32
from pullback.programs.argument_types import arguments_of
from pullback.programs.argument_writes import entry_of
from pullback.programs.branch_paths import Paths
from pullback.programs.cache_info import CacheInfo
from pullback.programs.call import Call
from pullback.programs.compile_record import Recorder
from pullback.programs.donation import Donated, over_of
from pullback.programs.dynamic_shapes import ON_DEVICE, Variants, keep, reason_of, served
from pullback.programs.entry import MISS, Entry, GuardFailed
from pullback.programs.out import out_of
from pullback.programs.pipeline import Program, program
from pullback.programs.placement import device_of
from pullback.programs.signatures import Entries
from pullback.runtime.fastcall import abi
from pullback.runtime.process import counters
from pullback.runtime.process.fork import work
from pullback.runtime.process.locks import KeyedLocks
from pullback.runtime.process.stack_room import with_room
from pullback.tracer import (
    OWNED,
    Parameters,
    Signature,
    Trace,
    TraceError,
    adopt,
    current,
    follow,
    signature,
    trace,
)
from pullback.tracer.arrays.tree import EQUAL, real_class
from pullback.tracer.user_code.tracebacks import keep_users_frames, with_users_frames

MOST_TRACES = 64

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)


class Programs:
    """What was compiled of one transformed function. Every ``Jitted`` of it shares this; nothing in it holds the function.

    ``changed`` names the numbers from outside that were met with several values: they are inputs in the traces that follow.
    ``taken``: what its compiles took. ``variants``: its traces with symbolic sizes.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.entries = Entries()
        self.variants = Variants()
        self.first = KeyedLocks()
        self.owned = Owned()
        self.changed: set[str] = set()
        self.taken = counters.Recorder()
        self._typed: dict[str, Any] = {}

    def without_result_type(self, made: Jitted[..., Any]) -> dict[str, Any]:
        """The signature and the annotations without the type of the result, which is not that of the function."""
        if not self._typed:
            found: dict[str, Any] = {}
            with contextlib.suppress(TypeError, ValueError):
                found["__signature__"] = inspect.signature(made.__wrapped__).replace(return_annotation=inspect.Signature.empty)
            annotations = getattr(made, "__annotations__", {})
            found["__annotations__"] = {k: v for k, v in annotations.items() if k != "return"}
            self._typed = found
        return self._typed


if TYPE_CHECKING:

    class Called:
        pass
else:
    Called = abi.Called


class Jitted(Called, FunctionLike, Inspected[P], Generic[P, R]):
    """A function that is traced and compiled once for each signature of its calls.

    It has the name, the documentation and the signature of the function it was made from, ``__wrapped__``. Calls may come
    from any thread. Inside a trace it becomes part of the traced program.
    """

    __slots__ = ("__dict__", "__weakref__", "_held", "_method")

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    is_inherited = False
    """Whether what a transform makes of such a function is of the same kind."""

    def __init__(
        self, function: Function, transform: Transform, static: frozenset[str], device: str | None, programs: Programs
    ) -> None:
        functools.update_wrapper(self, function)
        self.__dict__.pop(OWNED, None)
        if transform.name != "jit":
            self.__dict__.update(programs.without_result_type(self))
        self._function = function
        self._transform = transform
        self._static = static
        self._device = device
        self._programs = programs
        self._parameters = programs.parameters
        self._entries = programs.entries
        self._method: Jitted[..., Any] | None = None
        self._after_self: Jitted[..., Any] | None = None
        self._is_slow = abi.is_known()

    def __init_subclass__(cls) -> None:
        EQUAL.add(cls)
        if cls.__call__ is Jitted.__call__:
            abi.enable_vectorcall(cls)
        if cls.__get__ is Jitted.__get__:
            CALLABLES.add(cls)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is not None:
            return self._inlined(args, kwargs)
        try:
            call = signature(self._parameters, args, kwargs)
            for entry in self._entries.by_key.get(call.key, ()):
                result = entry(call.leaves)
                if result is not MISS:
                    if entry.tries or (self._is_slow and len(self._entries.dispatch)):
                        self._quicken(call, entry.last)
                    return result
            if call.key in self._entries.pins:
                for entry in self._entries.of(call):
                    result = entry(call.leaves)
                    if result is not MISS:
                        if entry.tries or (self._is_slow and len(self._entries.dispatch)):
                            self._quicken(call, entry.last)
                        return result
            return self._first_call(call, args, kwargs)
        except Exception as error:
            keep_users_frames(error)
            raise

    def into(self, out: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function with its result in arrays of the caller's.

        ``out`` is a tree like the result, of arrays of exactly the shapes and dtypes of its arrays (of rank 0 for scalars), in
        which None stands for any part that gets arrays of its own. Returns the result, whose arrays are those of ``out``. They
        may share memory with arguments, which are read first; then, and where an array is not row-major, the result is computed
        beside and copied. If the call raises, such arrays are as they were; what others hold is undefined. Arrays on a device are
        given up: the result has others in their memory, and with them is on the device.

        Raises TypeError for another structure, ValueError for arrays that do not fit, are read-only, share memory with each other
        or, on a device, with any other array, or are on another device than the call; TraceError within a traced function.
        """
        result = self._entries.into(out, *args, **kwargs)
        return self._into(out, args, kwargs) if result is MISS else result

    @with_users_frames
    def _into(self, out: Any, args: Any, kwargs: Any) -> Any:
        if current() is not None:
            raise TraceError(f"{_title(self)}.into is for calls from outside; within a traced function write x[...] = f(x)")
        call = signature(self._parameters, args, kwargs)

        def serve(entry: Entry | Paths) -> Any:
            return entry.serve(call.leaves, out_of(entry.trace, out))

        for entry in self._entries.of(call):
            result = serve(entry)
            if result is not MISS:
                if entry.last.tries_into and type(self).__call__ is Jitted.__call__:
                    self._quicken_into(call, entry.last, out)
                return result
        if self._is_method_of(args):
            return self._for_methods().into(out, *args, **kwargs)
        return self._first_call(call, args, kwargs, serve, out)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jitted[P, R]: ...
    @overload
    def __get__(self: Jitted[Concatenate[Any, Q], R], instance: object, owner: type | None = None) -> Method[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        method = self._method
        if method is None:
            if not hasattr(self._function, "__get__"):
                return self
            method = self._method = self._for_methods()
        return Method(method, instance)

    def __repr__(self) -> str:
        return f"<pullback.{self._transform.name} of {self._function!r}>"

    @property
    def _kind(self) -> type[Jitted[..., Any]]:
        """The class that transforms of it have, and copies."""
        return type(self)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Jitted) and other._kind is self._kind and other._programs is self._programs

    def __hash__(self) -> int:
        return hash(self._programs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        how = (self._transform, self._static, self._device, self._kind)
        name = shown(self)
        if name is self:
            return self.__qualname__
        if isinstance(name, Jitted):
            if name == self:
                return _same, (name,)
            if name._for_methods() == self:
                return Jitted._for_methods, (name,)
            depth = _depth(name, self._function)
            if depth is not None:
                return _transformed_inside, (name, depth, *how)
        if name is self._function or shown(self._function) is self._function:
            return _transformed, (self._function, *how)
        return _blank, (self._kind,), (self._function, *how)

    def __setstate__(self, how: tuple[Function, Transform, frozenset[str], str | None, type[Jitted[..., Any]]]) -> None:
        self.__init__(*how[:4], _transformed(*how)._programs)  # type: ignore[misc]

    def __copy__(self) -> Jitted[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> Jitted[..., Any]:
        function = copy.deepcopy(self._function, memo)
        return (
            self
            if function is self._function
            else _transformed(function, self._transform, self._static, self._device, self._kind)
        )

    def cache_info(self) -> CacheInfo:
        """The counts of what this function's programs took in this process: kernels, templates, the seconds of each stage.
        A function transformed in another way has its own."""
        return CacheInfo.of(self._programs.taken.snapshot())

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        call = signature(self._parameters, args, kwargs)
        return Call(
            title=self._described(),
            asked=self._device,
            parameters=self._parameters,
            signature=call,
            retrace=lambda: self._trace(call, args, kwargs),
            make=lambda: self(*args, **kwargs),
            entries=self._entries.by_key,
            variants=[e for found in self._entries.of(call) for e in (found.entries if isinstance(found, Paths) else (found,))],
            path=lambda entry: self._path(call, entry),
            donated=self._donated(call),
            kind=self._programs.variants.find(call) if self._transform.dynamic else None,
        )

    def _path(self, call: Signature, entry: Entry) -> str:
        """What calls like one of an entry's take."""
        return path_of(entry, call)

    def _donated(self, call: Signature) -> Donated:
        """The donated arguments of a call."""
        donate = self._transform.donate
        return () if donate is None else donate.of(self._parameters, call)

    def _described(self) -> str:
        """The function with its transforms, as in "value_and_grad(loss)"; that every transform compiles is not said."""
        inner = self._function._described() if isinstance(self._function, Jitted) else _title(self._function)
        return inner if self._transform.name == "jit" else f"{self._transform.name}({inner})"

    @property
    def is_plain(self) -> bool:
        """Whether it computes what ``__wrapped__`` does, and not a gradient of it."""
        return self._transform.name == "jit"

    def _is_method_of(self, args: Sequence[Any]) -> bool:
        """Whether this is a class method and its class the first argument: from Python 3.13 on such calls come past __get__."""
        if not args or not isinstance(args[0], type):
            return False
        found = inspect.getattr_static(real_class(args[0]), self.__name__, None)
        return isinstance(found, classmethod) and found.__func__ is self

    def _inlined(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._is_method_of(args):
            return self._for_methods()._inlined(args, kwargs)
        return self._transform.apply(self._function, [follow(a) for a in args], {k: follow(v) for k, v in kwargs.items()})

    def _traced(self, *args: Any, **kwargs: Any) -> Any:
        return self._transform.apply(self._function, args, kwargs)

    def _trace(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], captured: frozenset[str] = frozenset(),
        symbolic: bool = False,
    ) -> Trace:  # fmt: skip
        with counters.timed("trace"):
            found = trace(
                self._traced, args, kwargs, name=_title(self), parameters=self._parameters, call=call, captured=captured,
                symbolic=symbolic,
            )  # fmt: skip
            return replace(found, function=with_tf32(found.function)) if self._transform.tf32 else found

    def _first_call(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any],
        serve: Callable[[Entry | Paths], Any] | None = None, out: Any = None,
    ) -> Any:  # fmt: skip
        """Trace, compile and run. Threads that ask for one signature at once do it once. ``serve``: how an entry runs, and
        ``out`` where to, if not by a call."""
        if self._is_method_of(args):
            return self._for_methods()(*args, **kwargs)
        tried: list[Entry | Paths] | None = None
        changing: list[str] = []
        for _ in range(MOST_TRACES):
            with work.underway(), self._programs.first.hold(call.key), NamesExhaustion():
                variants = self._entries.of(call)
                made = with_room(functools.partial(self._compile, call, args, kwargs)) if variants == tried else None
            if made is not None:
                variants = [made]
            for entry in variants:
                try:
                    result = entry(call.leaves) if serve is None else serve(entry)
                except GuardFailed:
                    assert made is not None
                    result = made.interpreted(call.leaves, None if serve is None else out_of(made.trace, out))
                if result is not MISS:
                    if serve is None and abi.wanted() in abi.NATIVE:
                        self._quicken(call, entry.last)
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
        for entry in self._entries.of(call):
            self._programs.changed.update(entry.changed())
        with Recorder(self._programs.taken) as recorder:
            found = self._instantiated(call, args, kwargs) if self._transform.dynamic else None
            if isinstance(found, tuple):
                traced, made = found
            else:
                traced = self._trace(call, args, kwargs, frozenset(self._programs.changed))
                device = device_of(self._device, [*call.leaves, *(traced.outside() or ())])
                made = program(traced, call.leaves, device, over_of(traced, self._donated(call)))
                if found is not None:
                    self._programs.variants.kind(call).reason = reason_of(found)
        entry = entry_of(traced, made, call.leaves, recorder.record(arguments_of(self._parameters, call)))
        self._entries.store(call, entry, _title(self))
        return entry

    def _instantiated(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Trace, Program] | Exception | None:
        """The trace and the program of a call from a trace with symbolic sizes, made if none serves it. None if none can, and
        what is raised if none can be made: then the call is traced with numbers, and raises what it does."""
        kind = self._programs.variants.kind(call)
        if not kind.reason and device_of(self._device, call.leaves) != "cpu":
            kind.reason = ON_DEVICE
        found = served(kind, call)
        if found is None and not kind.reason:
            changed = frozenset(self._programs.changed)
            try:
                made = self._trace(call, args, kwargs, changed, symbolic=True)
                keep(kind, made, call, lambda: self._trace(call, args, kwargs, changed))
            except Exception as error:
                return error
            found = served(kind, call)
        if found is None:
            return None
        variant, values = found
        traced = variant.at(values)
        return traced, variant.program(traced, values, call.leaves, self._donated(call))

    def _quicken(self, call: Signature, entry: Entry) -> None:
        """Have the next calls like one of an entry's served natively, if they can be."""
        if is_underway():
            return
        found = entrance(CALLABLES)
        if found is None:
            self._is_slow = False
            entry.tries = 0
            return
        if entry.tries:
            entry.tries -= 1
            with contextlib.suppress(NotNative):
                self._entries.serve(record_of(entry, call, found))
        dispatch = self._entries.dispatch
        if self._is_slow and len(dispatch):
            self._is_slow = False
            self._held = dispatch
            abi.set_vectorcall(self, found.address)

    def _quicken_into(self, call: Signature, entry: Entry, out: Any) -> None:
        """The same for calls with arrays for the result."""
        if is_underway():
            return
        found = entrance(CALLABLES)
        entry.tries_into = 0 if found is None else entry.tries_into - 1
        if found is None or out is None:
            return
        with contextlib.suppress(NotNative):
            self._entries.serve_into(record_of(entry, call, found, out))
            abi.set_vectorcall(self._entries.into, found.address)

    def _for_methods(self) -> Jitted[..., Any]:
        """The same function with ``self`` as first argument, which argnums does not count."""
        if self._after_self is None:
            inner = self._function._for_methods() if isinstance(self._function, Jitted) else self._function
            self._after_self = _transformed(inner, self._transform.after_self(), self._static, self._device, self._kind)
        return self._after_self


def transformed(
    function: Function, transform: Transform, static_argnames: Sequence[str] = (), device: str | None = None,
    kind: type[Jitted[..., Any]] = Jitted,
) -> Any:  # fmt: skip
    """A function transformed: an object of ``kind``; for a bound method a ``Method`` of one, for a class or static method such
    a method.

    What is compiled belongs to the function: transforming it again, with equal options, compiles nothing again.
    """
    if isinstance(function, classmethod | staticmethod):
        return type(function)(transformed(function.__func__, transform, static_argnames, device, kind))
    if not callable(function):
        raise TypeError(f"pb.{transform.name} takes a function, got {type(function).__name__}")
    static = frozenset(static_argnames)
    if isinstance(function, MethodType | Method):
        return Method(_transformed(function.__func__, transform.after_self(), static, device, kind), function.__self__)
    return _transformed(function, transform, static, device, kind)


def _transformed(
    function: Function, transform: Transform, static: frozenset[str], device: str | None, kind: type[Jitted[..., Any]]
) -> Jitted[..., Any]:
    if isinstance(function, Jitted):
        kind = function._kind if function.is_inherited and kind is Jitted else kind
        device = device if transform.name == "jit" else function._device
        static |= function._static
        before = function._transform
        transform = replace(
            transform, dynamic=before.dynamic or transform.dynamic, tf32=before.tf32 or transform.tf32,
            verify=transform.verify or before.verify,
        )  # fmt: skip
    if current() is not None:
        return kind(function, transform, static, device, Programs(transform.parameters(function, static)))
    made = (function._programs.owned if isinstance(function, Jitted) else owned_by(function)).made
    programs = made.get((transform, static, device))
    if programs is None:
        adopt(function)
        programs = made.setdefault((transform, static, device), Programs(transform.parameters(function, static)))
    return kind(function, transform, static, device, programs)


def _same(function: Jitted[..., Any]) -> Jitted[..., Any]:
    return function


def _blank(kind: type[Jitted[..., Any]]) -> Jitted[..., Any]:
    """What a pickle fills: the function may refer to what is made of it."""
    return object.__new__(kind)


def _depth(outer: Jitted[..., Any], function: Function) -> int | None:
    """How many transforms lie around a function in another; None if it is not inside."""
    found: Any = outer
    for depth in itertools.count():
        if found is function:
            return depth
        if not isinstance(found, Jitted):
            return None
        found = found._function
    return None


def _transformed_inside(
    outer: Jitted[..., Any], depth: int, transform: Transform, static: frozenset[str], device: str | None,
    kind: type[Jitted[..., Any]],
) -> Jitted[..., Any]:  # fmt: skip
    function: Any = outer
    for _ in range(depth):
        function = function._function
    return _transformed(function, transform, static, device, kind)


CALLABLES = Callables(plain=Jitted.__call__, get=Jitted.__get__, method=Method)
EQUAL.add(Jitted)
CALLABLES.add(Jitted)
abi.enable_vectorcall(Jitted)


def _title(function: Any) -> str:
    """The name of a function, of what a partial holds, or of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
