"""The function that is being traced: where instructions go, what its inputs are, which values of outer functions it reads.

A root frame becomes a function; a frame inside another becomes a closed region, whose reads of outer values turn into
parameters. The frame in use is a context variable, so that each thread traces by itself; leaving a frame, by an error
too, restores the one before.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from pullback.ir import Builder, Loc, Value
from pullback.ir.core.types import I64, ArrayType, dtype_of
from pullback.ir.ops.control.host import HostFunction
from pullback.ir.shapes.guards import Sizes
from pullback.ir.shapes.symbolic import lifted, plain
from pullback.ir.shapes.symbolic_arrays import Made
from pullback.tracer.arrays.strides import Strides
from pullback.tracer.user_code.errors import TraceError, here, not_noting, noting, user_loc
from pullback.tracer.user_code.ownership import is_users
from pullback.tracer.user_code.source import site_at


class Operand(Protocol):
    """What a frame reads of a traced array: its value, the frame that defines it, and what errors say of it."""

    @property
    def type(self) -> ArrayType:
        """The type of the value."""

    @property
    def weak(self) -> str:
        """The name of the class of a Python scalar, else empty."""

    @property
    def literal(self) -> Any:
        """The value of a constant that no instruction defines yet, else None."""

    @property
    def frame(self) -> Frame | None:
        """The frame that defines the value; None for a literal."""

    @property
    def value(self) -> Value:
        """The value, in that frame."""

    @property
    def loc(self) -> Loc | None:
        """Where in the user's source the array was made."""

    def described(self, name: str, line: tuple[str, int]) -> str:
        """Return what the array called ``name`` is and where it was made, for an error at a line of a file."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An input that is leaf ``index`` of the call's arguments."""

    index: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Captured:
    """An input read anew at each call: a global or closure variable called ``describe``.

    ``key`` is what its type must still be (see ``tree.leaf_key``).
    """

    read: Callable[[], Any]
    describe: str
    key: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """An input that is always ``array``, which the program met while it was traced. Its contents are read at each call. ``made``:
    what it comes from, if NumPy made it of sizes."""

    array: np.ndarray[Any, Any]
    digest: bytes = field(repr=False)
    made: Made | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Called:
    """An input that is the number of a Python function, which lives as long as the program that calls it."""

    function: HostFunction

    @property
    def array(self) -> np.int64:
        """The number."""
        return np.int64(self.function.number)


Input = Argument | Captured | Constant | Called


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """An argument that is static in a trace, because its value was asked for: leaf ``index``, called ``describe``. ``loc`` is
    where it was asked for."""

    index: int
    describe: str
    value: Any
    loc: Loc


NO_THREADS = (
    "compute it in the function itself, which runs on all cores where that is faster, or start threads outside, which call it"
)

Given = tuple[Value, "Frame"] | np.ndarray[Any, Any]
"""What a parameter of a region stands for: a value of another frame, or a number."""

_current: ContextVar[Frame | None] = ContextVar("pullback_frame", default=None)


MORE_THAN_64_BITS = "a Python integer of more than 64 bits where an array is meant; NumPy makes an array of objects of it"


def current() -> Frame | None:
    """The frame of the innermost function being traced in this thread, or None."""
    return _current.get()


def variable() -> ContextVar[Frame | None]:
    """The context variable that holds it, None where nothing is traced."""
    return _current


def outside_traces(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function as if nothing was traced; to be run in a copy of the context."""
    _current.set(None)
    not_noting()
    return function(*args, **kwargs)


class Frame:
    """A function or region being traced. ``parent`` is the frame around a region, None for a root.

    ``written`` are the arrays of outer frames that were written here; ``kept_readonly`` the numbers of a root's read-only
    arguments that the function tried to write. ``order`` says how many derivatives may be taken of what is traced here,
    ``customs`` which functions with rules of their own have their rules traced for one of them.
    ``strides`` those of a root's arguments, and ``pinned_strides`` those of them that
    the trace depends on, ``short`` the numbers of those that are ints of at most 32 bits in it.
    ``given`` says what a region's parameters stand for, where they are the same at each run of it, and
    ``outcomes`` what a root's values are. ``traces_made``: in a root, arrays that functions make of static values are traced too;
    ``counts_chosen``: what a mask chooses is an array of as many elements as it has in this call.
    ``sizes``: of a root whose extents are symbolic.
    ``sealed``: not empty where arrays of outer frames cannot be written, and what errors say of it.
    """

    def __init__(self, parent: Frame | None = None) -> None:
        self.parent = parent
        self.order: int = 0 if parent is None else parent.order + 1
        self.customs: frozenset[Any] = frozenset() if parent is None else parent.customs
        self.builder = Builder()
        self.parameters: list[Value] = []
        self.inputs: list[Input] = []
        self.outer: list[Value] = []
        self.names: Any = None
        self.refusals: list[TraceError] = []
        self.written: dict[int, Operand] = {}
        self.traces_made = False
        self.thread = threading.get_ident()
        self.counts_chosen = False
        self.sealed = ""
        self.kept_readonly: set[int] = set()
        self.strides: dict[int, Strides | None] = {}
        self.pinned_strides: dict[int, Strides | None] = {}
        self.short: set[int] = set()
        self.given: dict[Value, Given] = {}
        self.outcomes: Any = None
        self.sizes: Sizes | None = None
        self._lifted: dict[Value, Value] = {}
        self._constants: dict[int, Value] = {}
        self._counting: dict[int, np.ndarray[Any, Any]] = {}

    @property
    def root(self) -> Frame:
        """The outermost frame around this one."""
        found = self
        while found.parent is not None:
            found = found.parent
        return found

    @contextmanager
    def active(self) -> Iterator[Frame]:
        """Makes this the current frame."""
        token = _current.set(self)
        try:
            with noting(self.root.refusals):
                yield self
        finally:
            _current.reset(token)

    @contextmanager
    def alone(self) -> Iterator[Frame]:
        """As ``active``, but errors are no one's."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def parameter(self, type: ArrayType, name: str = "") -> Value:
        """A new parameter; of a root, the caller appends what feeds it to ``inputs``."""
        value = Value(type, name)
        self.parameters.append(value)
        return value

    def lift(self, x: Operand, loc: Loc | None = None) -> Value:
        """The value of a traced array in this frame. Reading a value of an outer frame makes a parameter of it."""
        if x.literal is not None:
            if x.weak == "int" and not -(2**63) <= x.literal < 2**64:
                raise TraceError(MORE_THAN_64_BITS)
            return self.builder.at(user_loc() if loc is None else loc).const(x.literal, x.type.dtype)
        value = x.value
        if x.frame is self:
            return value
        found = self._lifted.get(value)
        if found is None:
            if self.parent is None:
                raise used_after_trace(x)
            found = self._read(value, self.parent.lift(x, loc), self.parent)
        return found

    def lift_value(self, value: Value, frame: Frame) -> Value:
        """A value of this frame or of one around it, in this frame."""
        if frame is self:
            return value
        found = self._lifted.get(value)
        if found is None:
            assert self.parent is not None
            found = self._read(value, self.parent.lift_value(value, frame), self.parent)
        return found

    def _read(self, value: Value, outer: Value, parent: Frame) -> Value:
        """A parameter for a value, which is ``outer`` in the frame around."""
        found = self._lifted[value] = self.parameter(outer.type, outer.name)  # type: ignore[arg-type]
        self.given[found] = outer, parent
        self.outer.append(outer)
        return found

    def is_outside(self, value: Value) -> bool:
        """Whether a value comes from outside the traced function: no derivative is taken by it."""
        frame = self
        while frame.parent is not None:
            given = frame.given.get(value)
            if not isinstance(given, tuple) or frame._lifted.get(given[0]) is not value:
                return False
            value, frame = given
        found = dict(zip(frame.parameters, frame.inputs)).get(value)
        return isinstance(found, Captured | Constant | Called)

    def strides_of(self, argument: int) -> Strides | None:
        """The strides of an argument of a root, on which its trace depends from now on."""
        self.pinned_strides[argument] = self.strides[argument]
        return self.strides[argument]

    def has_read(self, x: Operand) -> bool:
        """Whether a value of an outer frame was read here."""
        return x.frame is not self and x.value in self._lifted

    def constant(self, array: np.ndarray[Any, Any], made: Made | None = None) -> Value:
        """The parameter (of a root frame) for an array met in the trace, which may come from sizes."""
        found = self._constants.get(id(array))
        if found is None:
            shape = array.shape if made is None else made.shape
            found = self.parameter(ArrayType(dtype_of(array.dtype), shape), "const")
            self._constants[id(array)] = found
            self.inputs.append(Constant(array=array, digest=digest(array), made=made))
        return found

    def counts(self, array: np.ndarray[Any, Any]) -> None:
        """Note (in a root frame) that the trace has made an array to count with; nobody else knows it."""
        self._counting[id(array)] = array

    def counted_axis(self, array: np.ndarray[Any, Any]) -> int | None:
        """The axis along which such an array, or a view of one, is 0, 1, 2, ...; None if it is another, or is not so now."""
        found = plain(array)
        own = found if found.base is None else found.base
        if id(own) not in self._counting or found.dtype != np.int64:
            return None
        axis = int(lifted(_counted_axis, array))
        return None if axis < 0 else axis

    def called(self, function: HostFunction) -> Value:
        """A parameter (of a root frame) for the number of a Python function."""
        self.inputs.append(Called(function=function))
        return self.parameter(ArrayType(I64), "function")


def _counted_axis(array: np.ndarray[Any, Any]) -> int:
    """The axis along which an array is 0, 1, 2, ...; -1 if there is none."""
    for axis, n in enumerate(array.shape):
        line = np.arange(n).reshape([-1 if k == axis else 1 for k in range(array.ndim)])
        if (n > 1 or array.ndim == 1) and np.array_equal(array, np.broadcast_to(line, array.shape)):
            return axis
    return -1


def digest(array: np.ndarray[Any, Any]) -> bytes:
    """A hash of an array's contents."""
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()


def used_after_trace(x: Operand) -> TraceError:
    site = here()
    if x.loc is not None and (site.frame is None or not is_users(site.frame.f_code)):
        site = site_at(x.loc.file, x.loc.line)
    if x.frame is not None and x.frame.sealed:
        what = f"a value of {x.frame.sealed.partition('; ')[0]} is used outside of it; return it from there instead of keeping it"
    elif x.frame is not None and x.frame.root.thread != threading.get_ident():
        what = f"a traced value in another thread than the one that traces the function; {NO_THREADS}"
    else:
        what = (
            "traced value used after its trace, or in another thread or trace; "
            "return it from the traced function instead of keeping it"
        )
    error = TraceError(what, site=site)
    error.origins = error.origins or (x.described("it", (error.file, error.line)),)
    if x.frame is not None:
        x.frame.root.refusals.append(error)
    return error


def frame_of(*operands: Operand) -> Frame:
    """The current frame. Raises TraceError for traced values without one."""
    frame = _current.get()
    if frame is None:
        if operands:
            raise used_after_trace(operands[0])
        raise TraceError("no function is being traced here")
    return frame
