"""Frames: the functions and regions being traced, with their instructions, inputs, and the outer values that they read.

A root frame becomes a function; a frame inside another becomes a closed region, whose reads of outer values become parameters.
The current frame is a context variable, so that each thread traces by itself; leaving a frame, by an error too, restores the
one before.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from pullback.ir import Builder, Loc, Value
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, ArrayType, dtype_of
from pullback.ir.ops.control.host import HostFunction
from pullback.ir.shapes.by_value import ValueSizes
from pullback.ir.shapes.guards import Sizes
from pullback.ir.shapes.symbolic import Size, lifted, plain
from pullback.ir.shapes.symbolic_arrays import SymbolicArray
from pullback.tracer.arrays.strides import Strides
from pullback.tracer.user_code.errors import TraceError, recording_errors, stop_recording_errors, user_loc, user_site
from pullback.tracer.user_code.ownership import is_users
from pullback.tracer.user_code.source import site_at


class Operand(Protocol):
    """The properties of a traced array that a frame reads: its value, the frame that defines it, and its description in
    errors."""

    @property
    def type(self) -> ArrayType:
        """The type of the value."""

    @property
    def weak(self) -> str:
        """The name of the class of a Python scalar, else empty."""

    @property
    def literal(self) -> Any:
        """The value of a constant for which no instruction was emitted yet, else None."""

    @property
    def frame(self) -> Frame | None:
        """The frame that defines the value; None for a literal."""

    @property
    def value(self) -> Value:
        """The value, in that frame."""

    @property
    def loc(self) -> Loc | None:
        """The location in the user's source where the array was defined."""

    def described(self, name: str, line: tuple[str, int]) -> str:
        """Describe the array called ``name`` and where it was defined, for an error at a line of a file."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An input that is leaf ``index`` of the call's arguments."""

    index: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Captured:
    """An input read at each call: a global or closure variable called ``describe``.

    ``key`` is the type that it must still have (see ``tree.leaf_key``).
    """

    read: Callable[[], Any]
    describe: str
    key: Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Constant:
    """An input that is always ``array``, which the program used during tracing. Its contents are read at each call.

    ``symbolic``: its source, if NumPy computed it from symbolic sizes.
    """

    array: np.ndarray[Any, Any]
    digest: bytes = field(repr=False)
    symbolic: SymbolicArray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Called:
    """An input that is the index of a Python function, which lives as long as the program that calls it."""

    function: HostFunction

    @property
    def array(self) -> np.int64:
        """The index."""
        return np.int64(self.function.function_id)


Input = Argument | Captured | Constant | Called


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """An argument that is static in a trace because its value was needed.

    It is leaf ``index``, called ``describe``; its value was needed at ``loc``.
    """

    index: int
    describe: str
    value: Any
    loc: Loc


NO_THREADS = (
    "compute it in the function itself, which runs on all cores where that is faster, or start threads outside, which call it"
)

Source = tuple[Value, "Frame"] | np.ndarray[Any, Any]
"""The definition of a region's parameter: a value of another frame, or a constant."""

_current: ContextVar[Frame | None] = ContextVar("pullback_frame", default=None)


MORE_THAN_64_BITS = "a Python integer of more than 64 bits where an array is meant; NumPy makes an array of objects of it"


def current() -> Frame | None:
    """Return the frame of the innermost function being traced in this thread, or None."""
    return _current.get()


def variable() -> ContextVar[Frame | None]:
    """Return the context variable that holds the current frame, None where nothing is traced."""
    return _current


def outside_traces(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function as if nothing was traced; must run in a copy of the context."""
    _current.set(None)
    stop_recording_errors()
    return function(*args, **kwargs)


class Frame:
    """A function or region being traced. ``parent`` is the enclosing frame of a region, None for a root.

    ``written`` are the arrays of outer frames that were written here; ``kept_readonly`` the indices of a root's read-only
    arguments that the function tried to write. ``order``: how many derivatives may be taken of what is traced here;
    ``customs``: the functions with their own derivative rules whose rules are being traced. ``strides`` are the strides of a
    root's arguments, ``pinned_strides`` those on which the trace depends, and ``short`` the indices of arguments that are ints
    of at most 32 bits in it. ``unchecked``: parameters of a loop's iteration, Python ints of 64 bits to which little is added
    without a check (``tracer/arrays/python_ints.py``). ``sources`` are the definitions of a region's parameters that are the
    same at each run of it; ``outcomes`` are a root's interpreted values; ``stores``: the copies of the containers of arguments
    (``tracer/stores.py``);
    ``wanted_inputs``: in a root, the names of places to which the function stores, whose numbers must be inputs, and of
    containers that it changes; ``wanted_whole``: of those to which it does not only add, and ``only_added``: of those whose
    contents are not read; ``in_columns``: of lists whose elements are in arrays; ``plain_dicts``: of the dicts and sets from
    outside that are not known to change, and ``plain_lists``: of such lists.
    ``traces_made``: in a root, arrays that functions create from static values are traced too, and ``has_static_arrays``: there
    were such arrays, and they are not; ``follows_syntax``: functions are rewritten, so that values may decide branches and loops
    (False: where that failed; None: it is not demanded), ``is_rewritten``: there was such a function, ``rolls``: those that run
    now are to be compiled so, and ``follows_choices``: choices that values decide are followed by guards, and, with
    ``follows_values``, all uses of values; ``counts_chosen``:
    elements selected by a mask are an array of as many elements as in this call. ``sizes``: the symbolic sizes of a root, or
    None. ``value_sizes``: a root's extents by value; ``value_extents``: the ones that this
    frame defines, by their numbers; ``slices``: the slices with computed bounds, by these; ``selected``: the positions at which
    masks hold, by these masks. ``sealed``: if not empty, arrays of outer frames cannot be written; the text is part of the error
    message. ``takes_stores``: what the function stores to places outside is carried out of this frame
    (``tracer/names/places.py``). ``is_counting``: a statement runs here before it does around it, to find the lengths of lists;
    ``takes_writes``: arrays of outer frames can be written nevertheless,
    and ``overwritten`` has what they were before, by their ids. ``writes``: all arrays that were written here, in order, each
    with what it was before. ``arrays_read``: the ids of the arrays of outer frames that were read here;
    ``followed``: in a root, the views of arrays that branches chose. ``linked``: in a root, the arrays that got other aliases,
    each with those from before. ``facts``: tags of
    values that are one of several, by their ids, each with the cases that are possible in this frame; ``tests``: in a root, what
    a test on tags proves; ``has_choices``: there are such values;
    ``has_handlers``: in a root, functions have ``except`` clauses, of which a guard decides whether they run, unless a call
    ends with TraceError where they would (``leaves_handlers``), and so for ``finally`` clauses and ``with`` statements if one
    has an effect on the outside, or may suppress an exception (``ends_act``); ``unwritten``: the name of a function that runs
    although its tests of identity are no calls of operators, or empty (see ``tracer/statements/choices.py``). ``raised``: in
    a root, the
    exceptions of the user's that checks raise with values, and ``raised_again``: those of bare ``raise`` statements
    (``tracer/statements/raising.py``). ``grows``: in a root, lists may be rows of arrays (see ``tracer/statements/growing.py``;
    None: the trace ends at the first one that has to be), ``has_lists``: rewritten functions made lists; ``nests``: lists of
    lists may be rows of one array, and ``has_nested``: values decide an index of such a list; ``is_keyed``: dicts and sets that
    rewritten functions make may have keys that values decide, and ``has_keys``: they made some; ``keys_of``: the keys
    that are rows of a dict. ``defects``: in a root,
    errors of this package itself that were turned into refusals. ``plain_loops``: in a root, the loops of functions without
    source that unroll, and ``failed_loops``: those whose trace as one body failed (``tracer/statements/iterators.py``).
    ``settles_truths``: in a root, Python bools are True or False, by guards, since a function without source tests which of the
    two a value is (``needs_truths``). ``partly_bound``: in a root, variables that some paths bind, and that are unbound in the
    trace, and ``try_statements``: those that run and are traced for each outcome of their tests for errors
    (``tracer/statements/catching.py``); ``raised_in_loops``: the exceptions by which iterations of loops in them end. ``loops``:
    what the traces of loops noted (see ``tracer/statements/earlier_traces.py``). ``searches``: in a root, how many searches of
    the room for lists and arrays of loops without a bound were traced (``tracer/statements/counting.py``). ``is_straight``: a
    region runs once where it stands, as that of a gradient does, ``is_row``: it runs for each row of a ``vmap``, and
    ``has_effect``: that has an effect on the outside (``tracer/effects/emission.py``). ``has_effects_of_trace``: in a root,
    effects occur once, while the function is traced. ``print_options``:
    in a root, NumPy's options for texts of arrays that a ``with`` block has changed, and ``catches_warnings``: how many blocks of
    ``warnings.catch_warnings`` are running. ``perform``: in a root whose function raised, what makes its host calls before that.
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
        self.searches = 0
        self.statements: list[Any] = []
        self.written: dict[int, Operand] = {}
        self.overwritten: dict[int, tuple[Any, ...]] = {}
        self.writes: list[tuple[Any, tuple[Any, ...]]] = []
        self.takes_writes = self.is_counting = False
        self.takes_stores = parent is None
        self.traces_made = self.has_static_arrays = False
        self.follows_syntax: bool | None = None
        self.is_rewritten = self.rolls = self.follows_choices = self.follows_values = False
        self.thread = threading.get_ident()
        self.counts_chosen = False
        self.sealed = ""
        self.kept_readonly: set[int] = set()
        self.strides: dict[int, Strides | None] = {}
        self.pinned_strides: dict[int, Strides | None] = {}
        self.short: set[int] = set()
        self.value_sizes: ValueSizes | None = None
        self.value_extents: dict[Value, Size] = {}
        self.selected: dict[Value, Operand] = {}
        self.slices: dict[Any, Any] = {}
        self.sources: dict[Value, Source] = {}
        self.unchecked: set[Value] = set()
        self.facts: dict[int, tuple[Any, frozenset[int]]] = {}
        self.tests: dict[int, Any] = {}
        self.has_choices = self.has_handlers = self.leaves_handlers = self.ends_act = self.wants_ends = False
        self.unwritten = ""
        self.raised: list[Any] = []
        self.raised_again: list[BaseException] = []
        self.grows: bool | None = None
        self.has_lists = self.nests = self.has_nested = False
        self.is_keyed = self.has_keys = False
        self.keys_of: dict[int, tuple[Any, ...]] = {}
        self.defects: list[Exception] = []
        self.settles_truths = self.needs_truths = False
        self.plain_loops: frozenset[Any] = frozenset()
        self.failed_loops: list[Any] = []
        self.partly_bound: set[str] = set()
        self.try_statements: list[Any] = []
        self.raised_in_loops: list[Exception] = []
        self.loops: dict[Any, Any] = {}
        self.print_options: dict[str, Any] = {}
        self.catches_warnings = 0
        self.perform: Callable[[], None] = lambda: None
        self.is_straight = self.is_row = self.has_effect = self.has_effects_of_trace = False
        self.outcomes: Any = None
        self.stores: Any = None
        self.wanted_inputs: set[str] = set()
        self.wanted_whole: set[str] = set()
        self.only_added: set[str] = set()
        self.in_columns: set[str] = set()
        self.plain_dicts: set[str] = set()
        self.plain_lists: set[str] = set()
        self.sizes: Sizes | None = None
        self.arrays_read: set[int] = set()
        self.followed: list[Operand] = []
        self.linked: list[tuple[Any, tuple[Any, ...]]] = []
        self._lifted: dict[Value, Value] = {}
        self._read_values: dict[Value, Value] = {}
        self._constants: dict[int, Value] = {}
        self._counting: dict[int, np.ndarray[Any, Any]] = {}

    @property
    def root(self) -> Frame:
        """The outermost enclosing frame."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame

    @property
    def outward(self) -> Iterator[Frame]:
        """This frame and those around it."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.parent

    @property
    def is_conditional(self) -> bool:
        """Whether this is, or is in, a block of the user's statements that values decide."""
        return self.takes_writes or (self.parent is not None and self.parent.is_conditional)

    @contextmanager
    def active(self) -> Iterator[Frame]:
        """Make this the current frame in this context."""
        token = _current.set(self)
        try:
            with recording_errors(self.root.refusals):
                yield self
        finally:
            _current.reset(token)

    @contextmanager
    def alone(self) -> Iterator[Frame]:
        """As ``active``, but errors are not recorded."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    def parameter(self, type: ArrayType, name: str = "") -> Value:
        """Add a parameter; for a root, the caller appends its input to ``inputs``."""
        value = Value(type, name)
        self.parameters.append(value)
        return value

    def lift(self, x: Operand, loc: Loc | None = None) -> Value:
        """Return the value of a traced array in this frame. Reading a value of an outer frame adds a parameter for it."""
        if x.literal is not None:
            if x.weak == "int" and not -(2**63) <= x.literal < 2**64:
                raise TraceError(MORE_THAN_64_BITS)
            return self.builder.at(user_loc() if loc is None else loc).const(x.literal, x.type.dtype)
        value = x.value
        if x.frame is self:
            return value
        self._note_read(x)
        lifted_value = self._lifted.get(value)
        if lifted_value is None:
            if self.parent is None:
                raise used_after_trace(x)
            lifted_value = self._read(value, self.parent.lift(x, loc), self.parent)
        return lifted_value

    def _note_read(self, x: Operand) -> None:
        """Note that an array of an outer frame is read, here and in the frames around this one that are inside that frame."""
        root, frame = x, self
        while (base := getattr(root, "base", None)) is not None:
            root = base
        while frame is not x.frame:
            frame.arrays_read.add(id(root))
            if frame.parent is None:
                break
            frame = frame.parent

    def selected_by(self, mask: Operand) -> Operand | None:
        """Return the positions at which a mask holds, if this frame or one around it has computed them."""
        value, frame = self.lift(mask), self
        while value not in frame.selected:
            source = frame.sources.get(value)
            if not isinstance(source, tuple):
                return None
            value, frame = source
        return frame.selected[value]

    def lift_value(self, value: Value, frame: Frame) -> Value:
        """Return a value of this frame or of an enclosing one as a value of this frame."""
        if frame is self:
            return value
        lifted_value = self._lifted.get(value)
        if lifted_value is None:
            assert self.parent is not None
            lifted_value = self._read(value, self.parent.lift_value(value, frame), self.parent)
        return lifted_value

    def _read(self, value: Value, outer: Value, parent: Frame) -> Value:
        """Return the parameter for a value, which is ``outer`` in the parent frame, as other values may be too."""
        if outer in self._read_values:
            parameter = self._lifted[value] = self._read_values[outer]
            return parameter
        parameter = self._lifted[value] = self.parameter(outer.type, outer.name)  # type: ignore[arg-type]
        self._read_values[outer] = parameter
        self.sources[parameter] = outer, parent
        self.outer.append(outer)
        return parameter

    def is_outside(self, value: Value) -> bool:
        """Return whether a value comes from outside the traced function, and has no derivative."""
        frame = self
        while frame.parent is not None:
            source = frame.sources.get(value)
            if not isinstance(source, tuple) or frame._lifted.get(source[0]) is not value:
                return False
            value, frame = source
        source_input = dict(zip(frame.parameters, frame.inputs)).get(value)
        return isinstance(source_input, Captured | Constant | Called)

    def strides_of(self, argument: int) -> Strides | None:
        """Return the strides of a root's argument, on which the trace depends from now on."""
        self.pinned_strides[argument] = self.strides[argument]
        return self.strides[argument]

    def has_read(self, x: Operand) -> bool:
        """Return whether a value of an outer frame was read here."""
        return x.frame is not self and x.value in self._lifted

    def constant(self, array: np.ndarray[Any, Any], symbolic: SymbolicArray | None = None) -> Value:
        """Return the parameter (of a root frame) for an array used in the trace, which may have been computed from symbolic
        sizes."""
        parameter = self._constants.get(id(array))
        if parameter is None:
            shape = array.shape if symbolic is None else symbolic.shape
            parameter = self.parameter(ArrayType(dtype_of(array.dtype), shape), "const")
            self._constants[id(array)] = parameter
            self.inputs.append(Constant(array=array, digest=digest(array), symbolic=symbolic))
        return parameter

    def counts(self, array: np.ndarray[Any, Any]) -> None:
        """Record (in a root frame) that the trace created an array of consecutive integers, which no other code references."""
        self._counting[id(array)] = array

    def counted_axis(self, array: np.ndarray[Any, Any]) -> int | None:
        """Return the axis along which such an array, or a view of one, is 0, 1, 2, ...; None for other or changed arrays."""
        base_array = plain(array)
        own = base_array if base_array.base is None else base_array.base
        if id(own) not in self._counting or base_array.dtype != np.int64:
            return None
        axis = int(lifted(_counted_axis, array))
        return None if axis < 0 else axis

    def called(self, function: HostFunction) -> Value:
        """Add a parameter (to a root frame) for the index of a Python function."""
        self.inputs.append(Called(function=function))
        return self.parameter(ArrayType(I64), "function")


def _counted_axis(array: np.ndarray[Any, Any]) -> int:
    """Return the axis along which an array is 0, 1, 2, ...; -1 if there is none."""
    for axis, n in enumerate(array.shape):
        line = np.arange(n).reshape([-1 if k == axis else 1 for k in range(array.ndim)])
        if (n > 1 or array.ndim == 1) and np.array_equal(array, np.broadcast_to(line, array.shape)):
            return axis
    return -1


def digest(array: np.ndarray[Any, Any]) -> bytes:
    """Return a hash of an array's contents."""
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=16).digest()


def used_after_trace(x: Operand) -> TraceError:
    site = user_site()
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
    """Return the current frame. Raises TraceError if there is none."""
    frame = _current.get()
    if frame is None:
        if operands:
            raise used_after_trace(operands[0])
        raise TraceError("no function is being traced here")
    return frame
