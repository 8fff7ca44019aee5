"""The traced array, which stands for an IR value while a NumPy function runs.

Its operations are in the tables: functions of NumPy, methods and hooks.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pullback.ir import Loc, Value
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType
from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.concretize import Known, any_value, known_value, pinned, refuse, refused, static
from pullback.tracer.arrays.descriptions import Description
from pullback.tracer.arrays.frame import Frame, current, frame_of
from pullback.tracer.arrays.strides import Strides
from pullback.tracer.arrays.tables import FUNCTIONS, HOOKS, METHODS
from pullback.tracer.user_code.advice import (
    describe_branch,
    describe_integer,
    describe_number,
    instead_of_branch,
    instead_of_integer,
    instead_of_key,
    instead_of_number,
)
from pullback.tracer.user_code.errors import TraceError, foreign_call
from pullback.tracer.user_code.ownership import is_own_file, is_users, is_users_class
from pullback.tracer.user_code.source import Described, line_text, shown

READONLY = "assignment destination is read-only"
CAPTURED = "it comes from outside the function; copy it first, or pass it as an argument and return the new one"
_ARRAY = "use functions of NumPy that take it as it is, or compute this outside the traced function"


Operator = Callable[[Any, Any], Any]


def _operators(ufunc: np.ufunc) -> tuple[Operator, Operator, Operator]:
    """Return a ufunc's operator and its reflected and in-place forms."""

    def forward(self: TracedArray, other: Any) -> Any:
        return METHODS["operate"](ufunc, self, other)

    def reflected(self: TracedArray, other: Any) -> Any:
        return METHODS["operate"](ufunc, other, self)

    def in_place(self: TracedArray, other: Any) -> Any:
        if self.type.shape or self.is_cell:
            return HOOKS["operate_in_place"](ufunc, self, other)
        return METHODS["operate"](ufunc, self, other)

    return forward, reflected, in_place


def _unary(ufunc: np.ufunc) -> Callable[[Any], Any]:
    return lambda self: METHODS["operate"](ufunc, self)


class Origin(NamedTuple):
    """The origin of a traced array that no instruction defines.

    ``kind``: "argument", "differentiated" (an argument with respect to which a gradient is taken), "row" (of an argument, by a
    map over an axis) or "outside"; ``label``: its name.
    """

    kind: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The relation of a view to its base.

    ``take(base)`` returns the view, ``put(base, new)`` the base with the view written (None: it is read-only), ``strides`` the
    view's strides from the base's. Views of one base with equal ``key`` are the same part of it. ``index``: what the base was
    indexed by.
    """

    take: Callable[[TracedArray], TracedArray] = field(compare=False)
    put: Callable[[TracedArray, TracedArray], TracedArray] | None = field(compare=False)
    strides: Callable[[Strides], Strides | None] = field(compare=False, default=lambda strides: None)
    key: Any
    index: Any = field(compare=False, default=None)


class ComesFirst:
    """Base of classes whose ``__array_function__`` takes precedence over a traced array's."""

    __slots__ = ()


def _seen(x: TracedArray, caller: FrameType) -> Any:
    """Return the shape of an array for the code of a frame."""
    shape = x.type.shape
    if str not in map(type, shape):
        return shape
    assert x.frame is not None
    sizes = x.frame.root.value_sizes
    assert sizes is not None
    extents = (sizes.by_name[e] if type(e) is str else e for e in shape)
    if is_own_file(caller.f_code.co_filename):
        return tuple(extents)
    return tuple(HOOKS["number_of_size"](e) if is_value_size(e) else e for e in extents)


class Tagged(ComesFirst):
    """Base of classes that stand for one of several values, which a tag chooses at run time: one of ``cases``."""

    __slots__ = ("cases", "tag")
    cases: tuple[Any, ...]
    tag: TracedArray

    def item_in(self, mapping: dict[Any, Any]) -> Any:
        """Return the value of a key of a dict."""
        raise NotImplementedError

    def with_cases(self, cases: Sequence[Any]) -> Any:
        """Return a value with the same tag and other cases."""
        raise NotImplementedError

    def proved(self) -> Any:
        """Return the value, if it is known which one it is. Raises TraceError if not."""
        raise NotImplementedError

    def narrowed(self) -> Any:
        """Return the value, if it is known which one it is, else this."""
        raise NotImplementedError


class Gathers(ComesFirst):
    """Base of classes that stand for an array before it exists; ``elements`` returns it."""

    __slots__ = ()

    def elements(self) -> TracedArray:
        """Return the array."""
        raise NotImplementedError


class Listed(list[Any]):
    """Base of the lists that traced functions make, whose elements may be rows of arrays: then ``rows`` is not None.
    ``stands_for``: the class of Python's."""

    __slots__ = ()
    stands_for: type = list
    rows: Any

    def entries(self) -> list[Any]:
        """Return the elements as a plain list. Raises TraceError if values decide their number."""
        raise NotImplementedError

    def contents(self) -> list[Any]:
        """Return what ``entries`` returns. Raises TraceError for what is no list."""
        raise NotImplementedError

    def as_list(self) -> Listed:
        """Return a list, and no deque, of the same elements."""
        raise NotImplementedError

    def array(self) -> TracedArray:
        """Return ``np.array`` of a list with rows."""
        raise NotImplementedError

    def length(self) -> Any:
        """Return the number of elements, an int or a traced one."""
        raise NotImplementedError

    def row(self, k: Any) -> Any:
        """Return the element ``k``, which is in range, of a list with rows."""
        raise NotImplementedError

    def total(self, start: Any) -> Any:
        """Return the sum of the elements of a list with rows, in their order."""
        raise NotImplementedError

    def result(self) -> Any:
        """Return a list with rows as a result of the traced function: a tree, of which a call makes a list."""
        raise NotImplementedError


class Unread:
    """The elements that a list has before a call, of which a trace knows nothing; every use raises TraceError."""

    __slots__ = ()

    def refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError("a list among the arguments is read, of which a trace knows only what calls append")

    _refuse = refuse
    __getattr__ = __call__ = __iter__ = __next__ = __getitem__ = __len__ = __bool__ = __float__ = __contains__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = __add__ = __radd__ = __index__ = __int__ = _refuse
    __array__ = __array_ufunc__ = __array_function__ = __repr__ = __str__ = __format__ = __copy__ = __deepcopy__ = _refuse

    def __hash__(self) -> int:
        return self._refuse()


class Elements:
    """The elements that a list from outside has before the function, of which those that it reads are inputs."""

    __slots__ = ()

    def element(self, index: int) -> Any:
        """Return an element, counted as in Python. Raises TraceError for one that cannot be an input."""
        raise NotImplementedError

    def length(self) -> Any:
        """Return the number of elements, a traced int."""
        raise NotImplementedError

    def is_empty(self) -> bool:
        """Return whether there are none, which is guarded."""
        raise NotImplementedError


class Appended(Listed):
    """A list outside that the function only makes longer: ``UNREAD`` and the list ``new`` of the elements that it appends. It
    reads those that were there from ``before``, if that is not None."""

    __slots__ = ("_before", "new")
    rows = None

    def __init__(self, before: Elements | None = None) -> None:
        super().__init__([UNREAD])
        self.new: list[Any] = []
        self._before = before

    def append(self, element: Any) -> None:
        """Add an element at the end."""
        self.new.append(element)

    def extend(self, elements: Any) -> None:
        """Add elements at the end."""
        self.new.extend(elements)

    def __iadd__(self, elements: Any) -> Any:  # type: ignore[misc]
        self.new.extend(elements)
        return self

    def __getitem__(self, index: Any) -> Any:
        if self._before is None or type(index) is not int or has_rows(self.new):
            return UNREAD._refuse()
        count = list.__len__(self.new)
        if -count <= index < 0:
            return self.new[index]
        return self._before.element(index + count if index < 0 else index)

    def length(self) -> Any:
        if self._before is None or has_rows(self.new):
            return UNREAD._refuse()
        return self._before.length() + list.__len__(self.new)

    def __bool__(self) -> bool:
        if self._before is None or has_rows(self.new):
            return bool(UNREAD._refuse())
        return list.__len__(self.new) > 0 or not self._before.is_empty()

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        return UNREAD._refuse()

    entries = contents = as_list = array = row = total = result = copy = index = count = _refuse
    insert = pop = remove = clear = sort = reverse = __delitem__ = __setitem__ = _refuse
    __iter__ = __len__ = __contains__ = __reversed__ = __add__ = __radd__ = __mul__ = __rmul__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __imul__ = __copy__ = __reduce_ex__ = __repr__ = _refuse
    __hash__ = None  # type: ignore[assignment]


UNREAD = Unread()


def _refuse_unhashable(key: Any) -> None:
    """Raise Python's TypeError for a key without a hash; a traced number's is not needed in the trace."""
    if type(key) is tuple:
        for part in key:
            _refuse_unhashable(part)
    elif not isinstance(key, TracedArray):
        hash(key)
    elif key.shape or key.is_cell:
        raise TypeError("unhashable type: 'numpy.ndarray'")


class Assigned:
    """A dict from outside to which the function only assigns items: the ``pairs`` of keys and values, in order."""

    __slots__ = ("pairs",)
    stands_for = dict

    def __init__(self) -> None:
        self.pairs: list[Any] = []

    def __setitem__(self, key: Any, value: Any) -> None:
        _refuse_unhashable(key)
        self.pairs.append((key, value))

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        return UNREAD._refuse()

    __getattr__ = __getitem__ = __delitem__ = __iter__ = __len__ = __bool__ = __contains__ = __reversed__ = _refuse
    __eq__ = __ne__ = __or__ = __ror__ = __ior__ = __copy__ = __reduce_ex__ = __repr__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def has_rows(x: Any) -> bool:
    """Return whether a value is a list whose elements are rows of arrays."""
    return issubclass(type(x), Listed) and x.rows is not None


class Keyed:
    """Base of the dicts and sets that traced functions make, whose keys values may decide. ``stands_for``: the class of Python's;
    ``entries``: the list of its items."""

    stands_for: type
    entries: Listed

    @property
    def kind(self) -> tuple[Any, ...]:
        """The class that it stands for, and the function of a default value or None."""
        raise NotImplementedError

    def contents(self) -> Any:
        """Return what it stands for. Raises TraceError if values decide the number of items or the keys."""
        raise NotImplementedError

    def sequence(self) -> Listed:
        """Return what a loop goes over: the keys. Raises TraceError for a set whose order values decide."""
        raise NotImplementedError

    def elements_of(self) -> Listed:
        """Return the keys for a use that does not depend on their order."""
        return self.sequence()

    def include(self, element: Any) -> None:
        """Add an element of a comprehension: a pair to a dict."""
        raise NotImplementedError

    def contains(self, key: Any) -> Any:
        """Return whether there is a key, a bool or a traced one."""
        raise NotImplementedError

    def length(self) -> Any:
        """Return the number of items, an int or a traced one."""
        raise NotImplementedError

    def extreme_keys(self, key: Any) -> Listed | None:
        """Return what a function returns of the keys, for ``max`` and ``min``, if no call is needed; else None."""
        return None

    def result(self) -> Any:
        """Return it as a result of the traced function: a tree, of which a call makes a dict or set."""
        raise NotImplementedError


UNKNOWN: Any = object()
"""The value of an array whose contents are not known, since they were written under another name of it (``views.forget``)."""


class TracedArray(Described):
    """A value that stands for an array while a function is traced.

    ``weak`` is "bool", "int", "float" or "complex" for a Python scalar, else empty. ``type_tag``: the type of a
    number, traced, if values decide it (``mixed_numbers``). ``literal`` is the value of a constant scalar for which
    no instruction was emitted yet. ``readonly`` says why the array cannot be written, or is empty. ``known`` is the value of
    a scalar (or small mask or integer array) computed from captured ones alone, with these inputs: it may be used where a
    static value is needed, which turns the inputs into guards. ``argument`` is the index of the call's leaf, for an array
    argument. ``bounds`` of a Python int or float: see ``python_ints``, ``python_floats``. ``version`` counts the writes.
    ``aliases``: arrays that may be this one, as values decide, and ``sources``: the arrays of which it is one; ``chosen``:
    sources, each with the condition under which it is this array, the value of that, and the versions of both then; ``tag``:
    which of the arrays that a loop exchanges it is, an int; ``same_as``: arrays of before a branch or loop, each with the
    condition under which this one is the same object. ``is_dense``: an array that is no view is row-major in memory;
    ``layout_of`` is another array with the same memory layout.
    """

    __slots__ = (
        "__weakref__", "_value", "aliases", "argument", "base", "bounds", "chosen", "created", "frame", "is_dense", "known",
        "layout_of", "literal", "loc", "origin", "readonly", "recipe", "same_as", "seen", "sources", "tag", "type", "type_tag",
        "version", "weak",
    )  # fmt: skip
    __array_priority__ = 1000.0
    __pandas_priority__ = 5000  # above those of pandas' own classes, whose operators then leave a traced operand to it

    def __init__(
        self, type: ArrayType, frame: Frame | None = None, value: Value | None = None, *, weak: str = "", literal: Any = None,
        readonly: str = "", loc: Loc | None = None, argument: int | None = None,
    ) -> None:  # fmt: skip
        self.type = type
        self.frame = frame
        self._value = value
        self.weak = weak
        self.literal = literal
        self.readonly = readonly
        self.type_tag: TracedArray | None = None
        self.known: Known | None = None
        self.bounds: tuple[int, int] | tuple[float, float] | int | None = None
        self.base: TracedArray | None = None
        self.created = False
        self.is_dense = len(type.shape) < 2 and argument is None
        self.layout_of: TracedArray | None = None
        self.recipe: Recipe | None = None
        self.seen = self.version = 0
        self.aliases: tuple[TracedArray, ...] = ()
        self.sources: tuple[TracedArray, ...] = ()
        self.tag: TracedArray | None = None
        self.chosen: tuple[tuple[TracedArray, TracedArray, bool, int, int], ...] = ()
        self.same_as: tuple[tuple[TracedArray, TracedArray], ...] = ()
        self.loc = loc
        self.origin: Origin | None = None
        self.argument = argument

    def described(self, name: str, line: tuple[str, int]) -> str:
        text = f"{name} is traced {self._kind}" if self.literal is None else f"{name} is {self!r}"
        if self.origin is not None:
            return f"{text}, {_origin_text(self.origin, name)}"
        if not self.loc or (self.loc.file, self.loc.line) == line:
            return text
        source, position = line_text(self.loc.file, self.loc.line), f"{shown(self.loc.file)}:{self.loc.line}"
        return f"{text}, from {source} at {position}" if source else f"{text}, made at {position}"

    @property
    def static_name(self) -> str:
        origin = self.origin
        if origin is None or origin.kind != "argument" or self.type.shape or not origin.label.isidentifier():
            return ""
        return origin.label

    @property
    def value(self) -> Value:
        """The IR value, in the frame that defined it. Raises TraceError for a view that cannot follow a write to its base."""
        if self.base is not None:
            HOOKS["refresh"](self)
        if self._value is UNKNOWN:
            raise TraceError(
                "an array that a branch or loop binds to several names is written under one name and used under another; "
                "write into a copy"
            )
        if self._value is None:
            if current() is None and self.literal is not None:
                raise TraceError("no function is being traced here")
            return frame_of(self).lift(self)
        return self._value

    @property
    def is_cell(self) -> bool:
        """Whether it is an array of rank 0, which can be written, and not a scalar: an argument, a view, or created as one."""
        return not self.type.shape and (self.created or self.argument is not None or self.base is not None)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype.numpy

    @dtype.setter
    def dtype(self, dtype: Any) -> NoReturn:
        raise TraceError("setting the .dtype of a traced array; write x = x.view(dtype)")

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents. Extents by value are traced ints, except in this package's own code."""
        return _seen(self, sys._getframe(1))

    @shape.setter
    def shape(self, shape: Any) -> NoReturn:
        raise TraceError("setting the .shape of a traced array; write x = x.reshape(shape)")

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return math.prod(_seen(self, sys._getframe(1)))

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(_seen(self, sys._getframe(1))) * self.dtype.itemsize

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> TracedArray:
        return HOOKS["part"](self, "real") if self.type.dtype.is_complex else self

    @real.setter
    def real(self, value: Any) -> None:
        HOOKS["update"](self.real, value, "unsafe")

    @property
    def imag(self) -> TracedArray:
        if self.type.dtype.is_complex:
            return HOOKS["part"](self, "imag")
        zeros = HOOKS["fresh"](HOOKS["full"](self.shape, 0, np.int64 if self.weak == "bool" else self.dtype))
        zeros.weak = "int" if self.weak == "bool" else self.weak
        zeros.created = self.is_cell
        zeros.readonly = "the imaginary part of real numbers is read-only"
        return zeros

    @imag.setter
    def imag(self, value: Any) -> None:
        if not self.type.dtype.is_complex:
            raise TypeError("array does not have imaginary part to set")
        HOOKS["update"](self.imag, value, "unsafe")

    @property
    def flat(self) -> Any:
        if not (self.type.shape or self.is_cell):
            return any_value(self).flat
        return HOOKS["flat"](self)

    @flat.setter
    def flat(self, value: Any) -> None:
        HOOKS["set_flat"](self, value)

    def __getattr__(self, name: str) -> Any:
        if self.type_tag is not None and not name.startswith("_") and is_users(sys._getframe(1).f_code):
            HOOKS["check_attribute"](self, name)
        method = METHODS.get(name)
        if method is not None:
            return partial(method, self)
        known = known_value(self) if self.weak and not name.startswith("_") else None
        if known is not None and hasattr(known[0], name):
            return getattr(pinned(self, known), name)
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            return refused(name) if callable(getattr(np.ndarray, name)) else refused(name)()
        if name.startswith("__"):
            raise AttributeError(f"a traced array has no attribute {name!r}")
        getattr(any_value(self), name)
        raise TraceError(
            f"the method or attribute .{name} of a traced scalar is not supported; use operators and NumPy functions"
        )

    def __repr__(self) -> str:
        if self.literal is not None:
            return f"{self._kind} {self.literal}"
        name = "" if self._value is None else self._value.name
        text = f"traced {self._kind} {name}" if name else f"traced {self._kind}"
        return Description(text) if is_users(sys._getframe(1).f_code) else text

    @property
    def _kind(self) -> str:
        return f"Python {self.weak}" if self.weak else str(self.type)

    def __str__(self) -> str:
        known = known_value(self) if self.weak else None
        frame = current()
        if frame is not None and frame.root.follows_values and not self.shape:
            return str(static(self, str, "a text of a traced value", "leave the value out of the text"))
        if known is None and frame is not None and frame.is_conditional:
            refuse(self, "a text of a traced value in a branch or loop on values", "leave the value out of the text")
        if known is not None:
            return str(pinned(self, known))
        return Description(repr(self)) if is_users(sys._getframe(1).f_code) else repr(self)

    def __format__(self, spec: str) -> str:
        if not spec:
            return Description(self) if is_users(sys._getframe(1).f_code) else str(self)
        convert: Callable[[Any], str] = lambda value: format(value, spec)  # noqa: E731
        return str(static(self, convert, "a format of a traced value", "return the value and format it after the call"))

    def __hash__(self) -> int:
        if self.type.shape:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        try:
            return int(static(self, hash, "a key of a dict or set from a traced value", instead_of_key))
        except TraceError as error:
            error.wants_keys = True
            raise

    # sequence protocol

    def __len__(self) -> int:
        if not self.type.shape:
            if self.is_cell:
                raise TypeError("len() of unsized object")
            raise TypeError(f"object of type '{self.weak or f'numpy.{self.dtype.type.__name__}'}' has no len()")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self.type.shape:
            iter(any_value(self))  # raises Python's or NumPy's TypeError
        count = self.shape[0]
        loop: Iterator[Any] | None = HOOKS["rows"](self, sys._getframe(1))
        if loop is not None:
            return loop
        count = operator.index(HOOKS["number_of_size"](count)) if is_value_size(count) else count
        return (self[i] for i in range(count))

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, TracedArray | slice | int | np.ndarray):
            key = HOOKS["array_behind"](key)
        return METHODS["__getitem__"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = HOOKS["array_behind"](key), HOOKS["array_behind"](value)
        METHODS["__setitem__"](self, key, value)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse(self, "pickling a traced value", "return it, and pickle the result of the call, or what a pb.callback gets")

    def __copy__(self) -> TracedArray:
        copied: TracedArray = HOOKS["fresh"](self)
        copied.created = self.is_cell
        return copied

    def __deepcopy__(self, memo: Any) -> TracedArray:
        return self.__copy__()

    # what would need the value now

    def __bool__(self) -> bool:
        return bool(static(self, bool, describe_branch, instead_of_branch))

    def __float__(self) -> float:
        return float(static(self, float, describe_number("float"), instead_of_number))

    def __int__(self) -> int:
        return int(static(self, int, describe_number("int"), instead_of_number))

    def __complex__(self) -> complex:
        return complex(static(self, complex, describe_number("complex"), instead_of_number))

    def __index__(self) -> int:
        return int(static(self, operator.index, describe_integer, instead_of_integer))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        known = None if self.type.shape or self.type.dtype.kind not in "biu" else known_value(self)
        if known is None:
            refuse(self, "a conversion to a NumPy array of a traced value", _ARRAY)
        return np.array(pinned(self, known), dtype)

    # protocols and operators; pullback.tracer.arrays.ufuncs supplies what they do

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        namespace = frame_of(self).root.names.replacement(np, "numpy")
        np.empty(0).__array_namespace__(api_version=api_version)
        return namespace

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return METHODS["__array_ufunc__"](ufunc, method, *inputs, **kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(t, ComesFirst) or (not issubclass(t, TracedArray | np.ndarray) and is_users_class(t)) for t in types):
            return NotImplemented
        implementation = FUNCTIONS.get(function)
        if implementation is None:
            raise TraceError(promotion.unsupported(function))
        return implementation(*args, **kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise TraceError(foreign_call("torch", getattr(function, "__name__", "")))

    def __jax_array__(self) -> NoReturn:
        raise TraceError(foreign_call("jax"))

    __add__, __radd__, __iadd__ = _operators(np.add)
    __sub__, __rsub__, __isub__ = _operators(np.subtract)
    __mul__, __rmul__, __imul__ = _operators(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _operators(np.true_divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(np.floor_divide)
    __mod__, __rmod__, __imod__ = _operators(np.remainder)
    _power, __rpow__, _power_in_place = _operators(np.power)
    __matmul__, __rmatmul__, __imatmul__ = _operators(np.matmul)
    __and__, __rand__, __iand__ = _operators(np.bitwise_and)
    __or__, __ror__, __ior__ = _operators(np.bitwise_or)
    __xor__, __rxor__, __ixor__ = _operators(np.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _operators(np.left_shift)
    __rshift__, __rrshift__, __irshift__ = _operators(np.right_shift)
    __lt__, __le__, __gt__, __ge__ = (_operators(u)[0] for u in (np.less, np.less_equal, np.greater, np.greater_equal))
    __eq__, __ne__ = _operators(np.equal)[0], _operators(np.not_equal)[0]
    __neg__, __pos__, __abs__, __invert__ = map(_unary, (np.negative, np.positive, np.absolute, np.invert))

    def __pow__(self, other: Any) -> Any:
        is_square = self._is_square_of_bools(other)
        is_root = self.type.dtype.is_complex and type(other) is float and other == 0.5
        if is_square or is_root:
            return METHODS["__array_ufunc__"](np.square if is_square else np.sqrt, "__call__", self)
        return self._power(other)

    def __ipow__(self, other: Any) -> Any:
        if self._is_square_of_bools(other):
            np.square(np.ones((), bool), out=np.ones((), bool))  # raises NumPy's error
        return self._power_in_place(other)

    def _is_square_of_bools(self, exponent: Any) -> bool:
        """Return whether a power is the square of an array of bools, which is int8; other powers by Python ints are int64."""
        if not (self.type.dtype.is_bool and (self.ndim or self.is_cell)):
            return False
        if isinstance(exponent, TracedArray) and exponent.weak == "int":
            what = "a power of an array of bools, whose dtype depends on the exponent"
            return bool(static(exponent, lambda value: value == 2, what, "cast the array, x.astype(int) ** n"))
        return type(exponent) is int and exponent == 2

    def __divmod__(self, other: Any) -> Any:
        HOOKS["refuse_labelled"](other, "divmod() of")
        HOOKS["check_divmod"](self, other)
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        HOOKS["refuse_labelled"](other, "divmod() of")
        HOOKS["check_divmod"](other, self)
        return other // self, other % self

    def __round__(self, ndigits: int | None = None) -> Any:
        return METHODS["round"](self, ndigits or 0)


def _origin_text(origin: Origin, name: str) -> str:
    if origin.kind != "outside":
        return "an argument" if origin.label == name else f"the argument {origin.label}"
    return "from outside the function" if origin.label == name else f"{origin.label} from outside the function"
