"""The callable that every transform returns: it traces the first call of each signature and runs compiled code from then on.

Inside a trace, a transformed function becomes part of the program being traced, so that transforms compose in any order.
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

from pullback.compiled.announcement import announced
from pullback.compiled.bound_method import Method
from pullback.compiled.file_descriptors import ReportsExhaustion
from pullback.compiled.function_attributes import OF_TRACE, FunctionLike
from pullback.compiled.function_identity import Owned, owned_by
from pullback.compiled.pickling import module_member
from pullback.compiled.reports import Inspected
from pullback.compiled.transform import Function, Transform
from pullback.fastcall.describe import Callables, NotNative, is_underway, native_path, path_of, record_of
from pullback.ir.passes.tf32 import with_tf32
from pullback.programs.argument_types import arguments_of
from pullback.programs.argument_writes import entry_of
from pullback.programs.branch_paths import Paths, warn_followed
from pullback.programs.cache_info import CacheInfo
from pullback.programs.call import Call
from pullback.programs.compile_record import Recorder
from pullback.programs.donation import Donated, over_of
from pullback.programs.dynamic_shapes import ON_DEVICE, Variants, add_variant, find_variant, reason_of
from pullback.programs.entry import MISS, Entry, GuardFailed
from pullback.programs.out import out_of
from pullback.programs.pipeline import Program, program
from pullback.programs.placement import device_of
from pullback.programs.signatures import Entries
from pullback.runtime.fastcall import abi
from pullback.runtime.process import counters
from pullback.runtime.process.fork import work
from pullback.runtime.process.locks import KeyedLocks
from pullback.runtime.process.stack_room import with_reserved_stack
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
from pullback.tracer.names.call_objects import CURRENT, serving
from pullback.tracer.user_code.tracebacks import keep_users_frames, with_users_frames

MOST_TRACES = 64
"""Largest number of traces for one call; beyond it TraceError is raised, since a value from outside differs at each read."""

LAZY_CALLS: list[Callable[..., Any]] = []
"""The function that serves calls with lazy objects of a library among the arguments: it takes the compiled function and these,
and returns NotImplemented if there are none."""

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R", covariant=True)


class Programs:
    """The compiled programs of one transformed function, shared by every ``Jitted`` of it. It holds no reference to the
    function.

    ``changed`` names the numbers from outside that have had several values: they are inputs in the traces that follow.
    ``counts``: the compile statistics. ``variants``: the traces with symbolic sizes.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.entries = Entries()
        self.variants = Variants()
        self.locks = KeyedLocks()
        self.owned = Owned()
        self.changed: set[str] = set()
        self.counts = counters.Recorder()
        self._typed: dict[str, Any] = {}

    def without_result_type(self, outer: Jitted[..., Any]) -> dict[str, Any]:
        """Return the signature and annotations without the result type, which is not that of the original function."""
        if not self._typed:
            typed: dict[str, Any] = {}
            with contextlib.suppress(TypeError, ValueError):
                typed["__signature__"] = inspect.signature(outer.__wrapped__).replace(return_annotation=inspect.Signature.empty)
            annotations = getattr(outer, "__annotations__", {})
            typed["__annotations__"] = {k: v for k, v in annotations.items() if k != "return"}
            self._typed = typed
        return self._typed


if TYPE_CHECKING:

    class Called:
        pass
else:
    Called = abi.Called


class Jitted(Called, FunctionLike, Inspected[P], Generic[P, R]):
    """A function that is traced and compiled once for each signature of its calls.

    It has the name, the documentation and the signature of the function it was made from, ``__wrapped__``. It may be called
    from any thread. Inside a trace it becomes part of the traced program.
    """

    __slots__ = ("__dict__", "__weakref__", "_held", "_method")

    __name__: str
    __qualname__: str

    is_inherited = False
    """Whether transforms of such a function return a function of the same class."""

    def __init__(
        self, function: Function, transform: Transform, static: frozenset[str], device: str | None, programs: Programs
    ) -> None:
        functools.update_wrapper(self, function)
        self.__dict__.pop(OWNED, None)
        self.__dict__.pop(OF_TRACE, None)
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
        self._is_slow = abi.is_supported()

    def __init_subclass__(cls) -> None:
        EQUAL.add(cls)
        if cls.__call__ is Jitted.__call__:
            abi.enable_vectorcall(cls)
        if cls.__get__ is Jitted.__get__:
            CALLABLES.add(cls)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is not None:
            return self._inlined(args, kwargs)
        before = CURRENT.objects
        try:
            try:
                call = signature(self._parameters, args, kwargs)
                if call.leaves.objects or before:
                    CURRENT.objects = call.leaves.objects
                for entry in self._entries.by_key.get(call.key, ()):
                    result = entry(call.leaves)
                    if result is not MISS:
                        if entry.tries or (self._is_slow and len(self._entries.dispatch)):
                            self._add_native(call, entry.last)
                        return result
                if call.key in self._entries.pins:
                    for entry in self._entries.of(call):
                        result = entry(call.leaves)
                        if result is not MISS:
                            if entry.tries or (self._is_slow and len(self._entries.dispatch)):
                                self._add_native(call, entry.last)
                            return result
                return self._first_call(call, args, kwargs)
            except TraceError as error:
                if not error.is_of_lazy:
                    raise
                return self._lazily(args, kwargs, error)
        except Exception as error:
            keep_users_frames(error)
            raise
        finally:
            CURRENT.objects = before

    def _lazily(self, args: Any, kwargs: Any, refused: TraceError) -> Any:
        """Return the result of a call with lazy objects among the arguments. Raises ``refused`` if there are none."""
        try:
            result = LAZY_CALLS[0](self, args, kwargs) if LAZY_CALLS else NotImplemented
        except Exception as error:
            error.__suppress_context__ = True
            raise
        if result is NotImplemented:
            raise refused
        return result

    def into(self, out: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function and write its result into arrays of the caller.

        The arrays may share memory with arguments, which are read first; then, and if an array is not row-major, the result is
        computed elsewhere and copied. If the call raises, such arrays are unchanged; the contents of the others are undefined.
        Arrays on a device are consumed: the result consists of new arrays in their memory, and hence is on the device.

        Parameters
        ----------
        out : array or container of arrays
            A tree like the result, of arrays with exactly the shapes and dtypes of the result's arrays (of shape () for scalars),
            in which None stands for any part that gets new arrays.
        *args, **kwargs : object
            The arguments of the call.

        Returns
        -------
        array or container of arrays
            The result, whose arrays are those of ``out``.

        Raises
        ------
        TypeError
            For a different structure.
        ValueError
            For arrays that do not fit, are read-only, share memory with each other or, on a device, with any other array, or are
            on another device than the call.
        TraceError
            Within a traced function.

        See Also
        --------
        pullback.jit : Its option ``donate`` reuses the memory of arguments.

        Examples
        --------
        >>> f = pb.jit(lambda x: 2 * x)
        >>> out = np.empty(3)
        >>> f.into(out, np.ones(3)) is out, out
        (True, array([2., 2., 2.]))
        """
        result = self._entries.into(out, *args, **kwargs)
        return self._into(out, args, kwargs) if result is MISS else result

    @with_users_frames
    def _into(self, out: Any, args: Any, kwargs: Any) -> Any:
        if current() is not None:
            raise TraceError(f"{_title(self)}.into is for calls from outside; within a traced function write x[...] = f(x)")
        call = signature(self._parameters, args, kwargs, reads_all=True)
        with serving(call.objects):
            return self._served_into(call, out, args, kwargs)

    def _served_into(self, call: Signature, out: Any, args: Any, kwargs: Any) -> Any:
        def serve(entry: Entry | Paths) -> Any:
            return entry.serve(call.leaves, out_of(entry.trace, out))

        for entry in self._entries.of(call):
            result = serve(entry)
            if result is not MISS:
                if entry.last.tries_into and type(self).__call__ is Jitted.__call__:
                    self._add_native_into(call, entry.last, out)
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
        """The class of copies of the function and of its transforms."""
        return type(self)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Jitted) and other._kind is self._kind and other._programs is self._programs

    def __hash__(self) -> int:
        return hash(self._programs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        how = (self._transform, self._static, self._device, self._kind)
        name = module_member(self)
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
        if name is self._function or module_member(self._function) is self._function:
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
        """Return the counts of what this function's programs cost in this process: kernels, templates, the seconds of each stage.

        Each transform of a function has its own counts.

        Returns
        -------
        CacheInfo
            The counts.

        See Also
        --------
        pullback.cache_info : The counts of the process.

        Examples
        --------
        >>> f = pb.jit(lambda x: x + 1)
        >>> f.cache_info().compiles
        0
        """
        return CacheInfo.of(self._programs.counts.snapshot())

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        call = signature(self._parameters, args, kwargs)
        if call.has_longer_lists and not self._entries.of(call):
            call = signature(self._parameters, args, kwargs, reads_all=True)
        return Call(
            title=self._described(),
            requested_device=self._device,
            parameters=self._parameters,
            signature=call,
            retrace=lambda as_written=False: self._trace(call, args, kwargs, as_written=as_written),
            make=lambda: self(*args, **kwargs),
            entries=self._entries.by_key,
            variants=[e for item in self._entries.of(call) for e in (item.entries if isinstance(item, Paths) else (item,))],
            path=lambda entry: self._path(call, entry),
            donated=self._donated(call),
            kind=self._programs.variants.find(call) if self._transform.dynamic else None,
        )

    def _path(self, call: Signature, entry: Entry) -> str:
        """Return the path that calls like one of an entry's take."""
        return path_of(entry, call)

    def _donated(self, call: Signature) -> Donated:
        """Return the donated arguments of a call."""
        donate = self._transform.donate
        return () if donate is None else donate.of(self._parameters, call)

    def _described(self) -> str:
        """Return the function with its transforms, as in "value_and_grad(loss)"; ``jit`` is left out, since every transform
        compiles."""
        inner = self._function._described() if isinstance(self._function, Jitted) else _title(self._function)
        return inner if self._transform.name == "jit" else f"{self._transform.name}({inner})"

    @property
    def is_plain(self) -> bool:
        """Whether it computes the same as ``__wrapped__``, and not a gradient of it."""
        return self._transform.name == "jit"

    def _is_method_of(self, args: Sequence[Any]) -> bool:
        """Return whether this is a class method and the first argument its class: from Python 3.13 on, such calls bypass
        ``__get__``."""
        if not args or not isinstance(args[0], type):
            return False
        member = inspect.getattr_static(real_class(args[0]), self.__name__, None)
        return isinstance(member, classmethod) and member.__func__ is self

    def _inlined(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._is_method_of(args):
            return self._for_methods()._inlined(args, kwargs)
        return self._transform.apply(self._function, [follow(a) for a in args], {k: follow(v) for k, v in kwargs.items()})

    def _traced(self, *args: Any, **kwargs: Any) -> Any:
        return self._transform.apply(self._function, args, kwargs)

    def _trace(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any], captured: frozenset[str] = frozenset(),
        symbolic: bool = False, as_written: bool = False,
    ) -> Trace:  # fmt: skip
        with counters.timed("trace"):
            traced = trace(
                self._traced, args, kwargs, name=_title(self), parameters=self._parameters, call=call, captured=captured,
                symbolic=symbolic, rolls=self._transform.rolls, follows_choices=self._transform.follows_choices,
                as_written=as_written,
            )  # fmt: skip
            return replace(traced, function=with_tf32(traced.function)) if self._transform.tf32 else traced

    def _first_call(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any],
        serve: Callable[[Entry | Paths], Any] | None = None, out: Any = None,
    ) -> Any:  # fmt: skip
        """Trace, compile and run a call. Threads that call with one signature at the same time compile it once.

        ``serve``: how an entry runs, and ``out`` the arrays for its result, if not by a plain call.
        """
        if self._is_method_of(args):
            return self._for_methods()(*args, **kwargs)
        tried: list[Entry | Paths] | None = None
        changing: list[str] = []
        for _ in range(MOST_TRACES):
            with work.underway(), self._programs.locks.hold(call.key), ReportsExhaustion():
                variants, is_read = self._entries.of(call), False
                try:
                    compiled = functools.partial(self._compile, call, args, kwargs)
                    fresh = with_reserved_stack(compiled) if variants == tried else None
                except Exception:
                    if not call.has_longer_lists:
                        raise
                    call = signature(self._parameters, args, kwargs, reads_all=True)
                    is_read = True
            if is_read:
                return self._first_call_reading(call, args, kwargs, serve, out)
            if fresh is not None:
                variants = [fresh]
            for entry in variants:
                try:
                    result = entry(call.leaves) if serve is None else serve(entry)
                except GuardFailed:
                    assert fresh is not None
                    result = fresh.interpreted(call.leaves, None if serve is None else out_of(fresh.trace, out))
                if result is not MISS:
                    if serve is None and abi.wanted() in abi.NATIVE:
                        self._add_native(call, entry.last)
                    return result
            if tried is not None and variants and (changing := variants[0].unstable()):
                break
            tried = variants
        raise TraceError(
            f"{_title(self)} reads {', '.join(changing) or 'a value'} from outside, which is another object at each read; "
            "bind it to a name once, or pass it as an argument"
        )

    def _first_call_reading(self, call: Signature, args: Any, kwargs: Any, serve: Any, out: Any) -> Any:
        """Make a first call with the contents of lists that were no input, since a trace without them failed. If it succeeds, the
        contents are inputs of all calls."""
        result = self._first_call(call, args, kwargs, serve, out)
        self._parameters.longer.close()
        return result

    def _compile(self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Entry:
        """Return a new program for a call, stored for the following calls."""
        for entry in self._entries.of(call):
            self._programs.changed.update(entry.changed())
        call.undecided = self._entries.undecided(call)
        examined = functools.partial(self.examine, args, kwargs)
        with Recorder(self._programs.counts) as recorder, announced(examined, self._described(), recorder):
            instantiated = self._instantiated(call, args, kwargs) if self._transform.dynamic else None
            if isinstance(instantiated, tuple):
                traced, compiled = instantiated
            else:
                traced = self._trace(call, args, kwargs, frozenset(self._programs.changed))
                device = device_of(self._device, [*call.leaves, *(traced.outside() or ())])
                compiled = program(traced, call.leaves, device, over_of(traced, self._donated(call)))
                if instantiated is not None:
                    self._programs.variants.kind(call).reason = reason_of(instantiated)
        entry = entry_of(traced, compiled, call.leaves, recorder.record(arguments_of(self._parameters, call)))
        self._parameters.longer.note(traced.stores)
        warn_followed(_title(self), traced)
        self._entries.store(call, entry, _title(self))
        return entry

    def _instantiated(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Trace, Program] | Exception | None:
        """Return the trace and program of a call from a trace with symbolic sizes, which is made if none serves the call.

        Returns None if none can serve it, and the exception if making one failed: the call is then traced with concrete sizes
        and raises its own error.
        """
        kind = self._programs.variants.kind(call)
        if not kind.reason and device_of(self._device, call.leaves) != "cpu":
            kind.reason = ON_DEVICE
        match = find_variant(kind, call)
        if match is None and not kind.reason:
            changed = frozenset(self._programs.changed)
            try:
                symbolic = self._trace(call, args, kwargs, changed, symbolic=True)
                add_variant(kind, symbolic, call, lambda: self._trace(call, args, kwargs, changed))
            except Exception as error:
                return error
            match = find_variant(kind, call)
        if match is None:
            return None
        variant, values = match
        traced = variant.at(values)
        return traced, variant.program(traced, values, call.leaves, self._donated(call))

    def _add_native(self, call: Signature, entry: Entry) -> None:
        """Register the call, so that later calls like it are served natively, if they can be."""
        if is_underway():
            return
        native = native_path(CALLABLES)
        if native is None:
            self._is_slow = False
            entry.tries = 0
            return
        if entry.tries:
            entry.tries -= 1
            with contextlib.suppress(NotNative):
                self._entries.serve(record_of(entry, call, native))
        dispatch = self._entries.dispatch
        if self._is_slow and len(dispatch):
            self._is_slow = False
            self._held = dispatch
            abi.set_vectorcall(self, native.address)

    def _add_native_into(self, call: Signature, entry: Entry, out: Any) -> None:
        """Register the call with arrays for its result, so that later calls like it are served natively."""
        if is_underway():
            return
        native = native_path(CALLABLES)
        entry.tries_into = 0 if native is None else entry.tries_into - 1
        if native is None or out is None:
            return
        with contextlib.suppress(NotNative):
            self._entries.serve_into(record_of(entry, call, native, out))
            abi.set_vectorcall(self._entries.into, native.address)

    def _for_methods(self) -> Jitted[..., Any]:
        """Return the same function with ``self`` as first argument, which argnums does not count."""
        if self._after_self is None:
            inner = self._function._for_methods() if isinstance(self._function, Jitted) else self._function
            self._after_self = _transformed(inner, self._transform.after_self(), self._static, self._device, self._kind)
        return self._after_self


def transformed(
    function: Function, transform: Transform, static_argnames: Sequence[str] = (), device: str | None = None,
    kind: type[Jitted[..., Any]] = Jitted,
) -> Any:  # fmt: skip
    """Return a function transformed: an object of class ``kind``; a ``Method`` for a bound method; a class or static method of
    one.

    Compiled programs belong to the function: transforming it again with equal options compiles nothing again.
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
        inner = kind(function, transform, static, device, Programs(transform.parameters(function, static)))
        setattr(inner, OF_TRACE, True)
        return inner
    programs_by_transform = (function._programs.owned if isinstance(function, Jitted) else owned_by(function)).programs
    programs = programs_by_transform.get((transform, static, device))
    if programs is None:
        adopt(function)
        programs = programs_by_transform.setdefault((transform, static, device), Programs(transform.parameters(function, static)))
    return kind(function, transform, static, device, programs)


def _same(function: Jitted[..., Any]) -> Jitted[..., Any]:
    return function


def _blank(kind: type[Jitted[..., Any]]) -> Jitted[..., Any]:
    """Return an empty instance that unpickling fills: the function may refer to its own transforms."""
    return object.__new__(kind)


def _depth(outer: Jitted[..., Any], function: Function) -> int | None:
    """Return the number of transforms around ``function`` in ``outer``; None if it is not inside."""
    function_at_depth: Any = outer
    for depth in itertools.count():
        if function_at_depth is function:
            return depth
        if not isinstance(function_at_depth, Jitted):
            return None
        function_at_depth = function_at_depth._function
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
    """Return the name of a function, of the function in a partial, or of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__
