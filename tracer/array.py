"""The traced array, which stands for an IR value while a NumPy function runs, and the helpers NumPy functions are made of.

Broadcasting, promotion and defaults are explicit here: an emitted op has operands of equal types. A Python scalar met in
the trace is a literal and becomes a constant of the dtype it meets (NEP 50); a NumPy array becomes an input.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pullback.ir import OPS, Loc, Op, Value
from pullback.ir.made import Made
from pullback.ir.sizes import as_float, conversion, extent_of, is_size, lifted
from pullback.ir.types import ArrayType, dtype_of
from pullback.tracer import promotion
from pullback.tracer.advice import (
    GUARDS,
    branch,
    instead_of_branch,
    instead_of_integer,
    instead_of_key,
    instead_of_number,
    integer,
    number,
)
from pullback.tracer.errors import NotKnown, TraceError, here, library_call, refusal, user_loc
from pullback.tracer.frame import Frame, current, frame_of
from pullback.tracer.layout import Strides, falls, row_major
from pullback.tracer.promotion import Kind
from pullback.tracer.source import Described, Site, line_text, shown
from pullback.tracer.tables import FUNCTIONS, HOOKS, METHODS
from pullback.tracer.tables import implements as implements
from pullback.tracer.tables import register_method as register_method

Known = tuple[Any, frozenset[Value]]

READONLY = "assignment destination is read-only"
VIEW = "it is a view of another array; write into that array, or into a copy"
CAPTURED = "it comes from outside the function; copy it first, or pass it as an argument and return the new one"

_WEAK: dict[type, tuple[str, ArrayType]] = {
    bool: ("bool", ArrayType(dtype_of("bool"))),
    int: ("int", ArrayType(dtype_of("i64"))),
    float: ("float", ArrayType(dtype_of("f64"))),
    complex: ("complex", ArrayType(dtype_of("c128"))),
}
_WEAK_KIND: dict[str, Kind] = {"int": int, "float": float, "complex": complex}


Operator = Callable[[Any, Any], Any]


def _operators(ufunc: np.ufunc) -> tuple[Operator, Operator, Operator]:
    """The operator of a ufunc, its reflected and its in-place form."""

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


Words = str | Callable[[Site], str]


class Origin(NamedTuple):
    """What a traced array came from, if not from an instruction. ``kind``: "argument", "differentiated" (an argument that a
    gradient is taken by), "row" (of an argument, by a map over an axis) or "outside"; ``label``: its name."""

    kind: str
    label: str


class ComesFirst:
    """What answers for functions of arrays before traced arrays do."""

    __slots__ = ()


class TracedArray(Described):
    """Stands for an array while a function is traced.

    ``weak`` is "bool", "int", "float" or "complex" for a Python scalar, else empty. ``literal`` is the value of a constant scalar
    that no instruction defines yet. ``readonly`` says why the array cannot be written, or is empty. ``known`` is the value of
    a scalar (or small mask or integer array) computed from captured ones alone, with the inputs it came from: it may stand
    where a static value is needed, which turns those inputs into guards. ``argument`` is the number of the call's leaf that an
    array argument is. ``version`` counts the writes. ``is_dense`` says that what is no view lies in row-major order in memory;
    ``lies_as`` is another array that lies as this one does.
    """

    __slots__ = (
        "__weakref__", "_value", "argument", "base", "created", "frame", "is_dense", "known", "lies_as", "literal", "loc",
        "origin", "readonly", "recipe", "seen", "type", "version", "weak",
    )  # fmt: skip
    __array_priority__ = 1000.0

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
        self.known: Known | None = None
        self.base: TracedArray | None = None
        self.created = False
        self.is_dense = len(type.shape) < 2 and argument is None
        self.lies_as: TracedArray | None = None
        self.recipe: Recipe | None = None
        self.seen = self.version = 0
        self.loc = loc
        self.origin: Origin | None = None
        self.argument = argument

    def described(self, name: str, line: tuple[str, int]) -> str:
        text = f"{name} is traced {self._kind}" if self.literal is None else f"{name} is {self!r}"
        if self.origin is not None:
            return f"{text}, {_origin_text(self.origin, name)}"
        if not self.loc or (self.loc.file, self.loc.line) == line:
            return text
        made, place = line_text(self.loc.file, self.loc.line), f"{shown(self.loc.file)}:{self.loc.line}"
        return f"{text}, from {made} at {place}" if made else f"{text}, made at {place}"

    @property
    def static_name(self) -> str:
        origin = self.origin
        if origin is None or origin.kind != "argument" or self.type.shape or not origin.label.isidentifier():
            return ""
        return origin.label

    @property
    def value(self) -> Value:
        """The IR value, in the frame that made it. Raises TraceError for a view whose base has been written since."""
        if self.base is not None:
            _refresh(self)
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

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape  # type: ignore[return-value]

    @shape.setter
    def shape(self, shape: Any) -> NoReturn:
        raise TraceError("setting the .shape of a traced array; write x = x.reshape(shape)")

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> TracedArray:
        return _part(self, "real") if self.type.dtype.is_complex else self

    @real.setter
    def real(self, value: Any) -> None:
        update(self.real, value, "unsafe")

    @property
    def imag(self) -> TracedArray:
        if self.type.dtype.is_complex:
            return _part(self, "imag")
        zeros = fresh(full(self.shape, 0, self.dtype))
        zeros.readonly = "the imaginary part of real numbers is read-only"
        return zeros

    @imag.setter
    def imag(self, value: Any) -> None:
        if not self.type.dtype.is_complex:
            raise TypeError("array does not have imaginary part to set")
        update(self.imag, value, "unsafe")

    @property
    def flat(self) -> Any:
        if not (self.type.shape or self.is_cell):
            return _any_value(self).flat
        return HOOKS["flat"](self)

    @flat.setter
    def flat(self, value: Any) -> None:
        HOOKS["set_flat"](self, value)

    def __getattr__(self, name: str) -> Any:
        method = METHODS.get(name)
        if method is not None:
            return partial(method, self)
        known = known_value(self) if self.weak and not name.startswith("_") else None
        if known is not None and hasattr(known[0], name):
            return getattr(_pinned(self, known), name)
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            return _refused(name) if callable(getattr(np.ndarray, name)) else _refused(name)()
        if name.startswith("__"):
            raise AttributeError(f"a traced array has no attribute {name!r}")
        getattr(_any_value(self), name)
        raise TraceError(
            f"the method or attribute .{name} of a traced scalar is not supported; use operators and NumPy functions"
        )

    def __repr__(self) -> str:
        if self.literal is not None:
            return f"{self._kind} {self.literal}"
        name = "" if self._value is None else self._value.name
        return f"traced {self._kind} {name}" if name else f"traced {self._kind}"

    @property
    def _kind(self) -> str:
        return f"Python {self.weak}" if self.weak else str(self.type)

    def __str__(self) -> str:
        known = known_value(self) if self.weak else None
        return repr(self) if known is None else str(_pinned(self, known))

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        ask: Callable[[Any], str] = lambda value: format(value, spec)  # noqa: E731
        return str(_static(self, ask, "a format of a traced value", "return the value and format it after the call"))

    def __hash__(self) -> int:
        if self.type.shape:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return int(_static(self, hash, "a key of a dict or set from a traced value", instead_of_key))

    # sequence protocol

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of unsized object")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Any]:
        if not self.type.shape:
            iter(_any_value(self))  # raises Python's or NumPy's TypeError
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Any:
        return METHODS["__getitem__"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        METHODS["__setitem__"](self, key, value)

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        _refuse(self, "pickling a traced value", "return it, and pickle the result of the call")

    def __copy__(self) -> TracedArray:
        return copy_of(self)

    def __deepcopy__(self, memo: Any) -> TracedArray:
        return copy_of(self)

    # what would need the value now

    def __bool__(self) -> bool:
        return bool(_static(self, bool, branch, instead_of_branch))

    def __float__(self) -> float:
        return float(_static(self, float, number("float"), instead_of_number))

    def __int__(self) -> int:
        return int(_static(self, int, number("int"), instead_of_number))

    def __complex__(self) -> complex:
        return complex(_static(self, complex, number("complex"), instead_of_number))

    def __index__(self) -> int:
        return int(_static(self, operator.index, integer, instead_of_integer))

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        _refuse(self, "a conversion to a NumPy array of a traced value", _ARRAY)

    # protocols and operators; pullback.tracer.ufuncs supplies what they do

    def __array_namespace__(self, *, api_version: Any = None) -> Any:
        found = frame_of(self).root.names.replacement(np, "numpy")
        np.empty(0).__array_namespace__(api_version=api_version)
        return found

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return METHODS["__array_ufunc__"](ufunc, method, *inputs, **kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(t, ComesFirst) for t in types):
            return NotImplemented
        implementation = FUNCTIONS.get(function)
        if implementation is None:
            raise TraceError(promotion.unsupported(function))
        return implementation(*args, **kwargs)

    __add__, __radd__, __iadd__ = _operators(np.add)
    __sub__, __rsub__, __isub__ = _operators(np.subtract)
    __mul__, __rmul__, __imul__ = _operators(np.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _operators(np.true_divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operators(np.floor_divide)
    __mod__, __rmod__, __imod__ = _operators(np.remainder)
    _power, __rpow__, __ipow__ = _operators(np.power)
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
        is_square = self.type.dtype.is_bool and (self.ndim or self.is_cell) and type(other) is int and other == 2
        is_root = self.type.dtype.is_complex and type(other) is float and other == 0.5
        if is_square or is_root:
            return METHODS["__array_ufunc__"](np.square if is_square else np.sqrt, "__call__", self)
        return self._power(other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __round__(self, ndigits: int | None = None) -> Any:
        return METHODS["round"](self, ndigits or 0)


def _refused(name: str) -> Callable[..., NoReturn]:
    """A method of arrays that traced ones have not: it can be asked for, as by hasattr, but not be called."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        instead = _INSTEAD_OF.get(name, "return the array, and use it after the call")
        raise TraceError(f"the method or attribute .{name} of a traced array is not supported; {instead}")

    return refused


_INSTEAD_OF = {
    "tolist": "index the array, or loop over it: its elements are traced scalars",
    "resize": "write x = np.resize(x, shape)",
    "view": "write .astype(dtype) for another dtype, and .copy() for another array",
    "flags": "write on: arrays made in the function can be written",
}


def _origin_text(origin: Origin, name: str) -> str:
    if origin.kind != "outside":
        return "an argument" if origin.label == name else f"the argument {origin.label}"
    return "from outside the function" if origin.label == name else f"{origin.label} from outside the function"


def _refuse(x: TracedArray, what: Words, instead: Words) -> NoReturn:
    """Raises TraceError."""
    library = library_call()
    if library is not None:
        error = TraceError(promotion.not_supported(promotion.public_name(*library)))
    else:
        error = refusal(what, instead)
    error.origins = error.origins or (x.described("it", (error.file, error.line)),)
    error.wants_traced = True
    raise error


def not_made(what: str, instead: str) -> TraceError:
    """The error for a write into an array that is not traced."""
    error = TraceError(f"{what}; {instead}")
    error.wants_traced = True
    return error


_ARRAY = "use functions of NumPy that take it as it is, or compute this outside the traced function"


def _static(x: TracedArray, ask: Callable[[Any], Any], what: Words, instead: Words) -> Any:
    """What ``ask`` says of a value known in the trace; the captured inputs it came from become guards.

    Of any other value it raises what NumPy raises for every value of its type, else TraceError.
    """
    found = known_value(x)
    if found is not None:
        return ask(_pinned(x, found))
    try:
        ask(_any_value(x))
    except Exception as error:
        if what is branch:
            error.add_note(f"  in a traced function: {instead_of_branch(here()).removesuffix(GUARDS)}")
        raise error.with_traceback(None) from None
    outcomes = frame_of(x).root.outcomes
    if outcomes.follows:
        try:
            return outcomes.settle(x, frame_of(x), ask)
        except NotKnown as reason:
            return _refuse(x, partial(_said, what, f", {reason}", "; "), partial(_said, instead, "", GUARDS))
    return _refuse(x, what, instead)


def _said(words: Words, more: str, less: str, site: Site) -> str:
    """Words on a place, with more at their end and without a part."""
    return (words(site) if callable(words) else words).replace(less, "") + more


def _any_value(x: TracedArray) -> Any:
    """A value of the type and shape that a traced array stands for."""
    if x.weak:
        return {"bool": False, "int": 0, "float": 0.0, "complex": 0j}[x.weak]
    return np.broadcast_to(x.dtype.type(0), x.shape) if x.type.shape else x.dtype.type(0)


def _pinned(x: TracedArray, known: Known) -> Any:
    value, sources = known
    root = frame_of(x).root
    for source in sources:
        root.names.pin(source)
    return value


def static_array(x: Any) -> Any:
    """The NumPy array for one known in the trace, whose captured inputs become guards; any other value as it is."""
    found = known_value(x) if isinstance(x, TracedArray) else None
    return x if found is None else np.asarray(_pinned(x, found))


def static_scalar(x: TracedArray) -> TracedArray:
    """A literal for a Python int or bool known in the trace, whose sources become static; any other value as it is."""
    if x.known is None or x.literal is not None or x.weak not in ("int", "bool"):
        return x
    return literal(_pinned(x, x.known))


def known_value(x: TracedArray) -> Known | None:
    """The value of a scalar known in the trace, and the captured inputs it came from; None if it is not known."""
    if x.literal is None:
        return x.known
    return x.literal if x.weak else lifted(x.dtype.type, x.literal), frozenset()


# making traced arrays


def wrap(value: Value, weak: str = "", readonly: str = "") -> TracedArray:
    """The traced array for a value of the current frame, in row-major order."""
    found = TracedArray(value.type, frame_of(), value, weak=weak, readonly=readonly, loc=user_loc())  # type: ignore[arg-type]
    found.is_dense = True
    return found


def literal(value: Any, dtype: Any = None) -> TracedArray:
    """A constant scalar: weak for a Python scalar, unless ``dtype`` is given. Raises OverflowError as NumPy does."""
    weak = _weak_class(value)
    if dtype is None and weak in _WEAK:
        name, array_type = _WEAK[weak]
        return TracedArray(array_type, weak=name, literal=value, loc=user_loc())
    if is_size(value):
        array_type = ArrayType(_element(value.dtype if dtype is None else dtype))
        return TracedArray(array_type, literal=_sized(value, None, array_type.dtype.numpy), loc=user_loc())
    scalar = np.asarray(value) if dtype is None else np.asarray(value, dtype)
    array_type = ArrayType(_element(scalar.dtype))
    return TracedArray(array_type, literal=_as_python(scalar), loc=user_loc())


def _weak_class(value: Any) -> type:
    """The class of a number, which one that comes from sizes stands for."""
    return value.__class__ if is_size(value) else type(value)


def _as_python(value: Any, dtype: Any = None) -> Any:
    """A scalar, which NumPy has as ``dtype``, as a literal has it."""
    scalar = np.asarray(value, dtype)
    return float(scalar) if scalar.dtype.kind not in "biuc" else scalar.item()


def literal_type(value: Any) -> tuple[ArrayType, str]:
    """The type of a Python scalar, NumPy scalar or array, and its weak kind."""
    if _weak_class(value) in _WEAK:
        weak, array_type = _WEAK[_weak_class(value)]
        return array_type, weak
    return ArrayType(_element(value.dtype), value.shape), ""


def _element(dtype: Any) -> Any:
    """The element type of a NumPy dtype. Raises TraceError for one that cannot be traced."""
    refuse_dtype(np.dtype(dtype), "an array")
    return dtype_of(dtype)


def refuse_dtype(dtype: np.dtype[Any], what: str) -> None:
    """Raises TraceError unless arrays of ``dtype`` can be traced."""
    if dtype.kind in "biufc" and dtype.itemsize <= (16 if dtype.kind == "c" else 8) and dtype.char not in "gG":
        return
    if dtype.kind == "V" and dtype.name == "bfloat16":
        return
    instead = _NUMBERS[dtype.kind] if dtype.kind != "V" or dtype.names else _NO_FIELDS
    raise TraceError(f"{what} of dtype {dtype} cannot be traced; {instead}")


_NO_FIELDS = "use a dtype of numbers, as by .astype(np.float32)"


_NUMBERS = {
    "O": "use arrays of numbers, in a list or dict where their shapes differ",
    "c": "use complex128 (.astype(np.complex128))",
    "f": "use float64 (.astype(np.float64))",
    "U": "pass numbers that stand for the strings, or a tuple of strings",
    "S": "pass numbers that stand for the strings, or a tuple of strings",
    "M": "pass numbers, as by (t - t[0]) / np.timedelta64(1, 's')",
    "m": "pass numbers, as by t / np.timedelta64(1, 's')",
    "V": "pass its fields, as by {name: a[name] for name in a.dtype.names}",
    "T": "pass numbers that stand for the strings, or a tuple of strings",
}


def as_traced(x: Any, dtype: Any = None) -> TracedArray:
    """A traced array for a traced array, scalar, NumPy array, or nested list of those; cast to ``dtype`` if given.

    Python scalars stay weak. Raises TraceError for object, string and datetime values, and NumPy's ValueError for a ragged
    list.
    """
    found = _as_traced(x)
    return found if dtype is None else convert(found, dtype)


def _as_traced(x: Any) -> TracedArray:
    if isinstance(x, TracedArray):
        return x
    if _weak_class(x) in _WEAK:
        return literal(x) if not isinstance(x, int) or not 2**63 <= x < 2**64 else literal(x, np.uint64)
    if isinstance(x, np.generic):
        return literal(x, x.dtype)
    if type(x) is Made:
        return _as_made(x)
    if is_special_array(x):
        raise TraceError(f"a {type(x).__name__} cannot be traced; use a plain array (np.asarray)")
    if isinstance(x, list | tuple) and any(isinstance(e, TracedArray | list | tuple) for e in x) and holds_traced(x):
        return _stacked([_as_traced(e) for e in x])
    if not isinstance(x, np.ndarray):
        x = x.__array__() if hasattr(type(x), "__array__") else np.asarray(x)
        if isinstance(x, TracedArray):
            return x
    refuse_dtype(x.dtype, "an array")
    if not x.ndim:
        return literal(x[()], x.dtype)
    frame = frame_of().root
    array = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    array_type = ArrayType(dtype_of(array.dtype), array.shape)
    found = TracedArray(array_type, frame, frame.constant(array), readonly=CAPTURED, loc=user_loc())
    found.is_dense = array.flags.c_contiguous
    return found


def _as_made(x: Made) -> TracedArray:
    """An array that NumPy made of sizes."""
    if not x.ndim:
        return literal(x[()], x.dtype)
    frame = frame_of().root
    value = frame.constant(x.value, x)
    found = TracedArray(value.type, frame, value, readonly=CAPTURED, loc=user_loc())  # type: ignore[arg-type]
    found.is_dense = bool(lifted(_is_dense, x))
    return found


def _is_dense(x: np.ndarray[Any, Any]) -> bool:
    return bool(x.flags.c_contiguous)


def is_special_array(x: Any) -> bool:
    """Whether an array is of a subclass that computes in its own way (masked, with units, a matrix)."""
    kind: Any = type(x)
    if kind is np.ndarray or kind is Made or not isinstance(x, np.ndarray):
        return False
    own = (kind.__array_ufunc__, kind.__array_function__) != (np.ndarray.__array_ufunc__, np.ndarray.__array_function__)
    return own or isinstance(x, np.ma.MaskedArray | np.matrix)


def holds_traced(x: Any) -> bool:
    """Whether a value is a traced array or a nested list or tuple with one inside."""
    return isinstance(x, TracedArray) or (isinstance(x, list | tuple) and any(map(holds_traced, x)))


def _stacked(parts: Sequence[TracedArray]) -> TracedArray:
    """What np.array makes of a list of arrays of one shape."""
    if any(p.shape != parts[0].shape for p in parts):
        np.array([np.broadcast_to(0.0, p.shape) for p in parts])  # raises NumPy's ValueError
    rows = [expand(p, (0,)) for p in promote(*(cast(p, p.dtype) for p in parts))]
    return emit("concat", *rows, axis=0, starts=tuple(range(len(rows))), shape=(len(rows), *parts[0].shape))


def emit(op: str | Op, *operands: TracedArray, weak: str = "", **params: Any) -> Any:
    """Append an instruction to the current frame; its result, a tuple of results, or None for an op without results."""
    record = OPS[op] if isinstance(op, str) else op
    frame, loc = frame_of(*operands), user_loc()
    if "dtype" in params:
        params["dtype"] = dtype_of(params["dtype"])
    values = [frame.lift(x, loc) for x in operands]
    try:
        results = frame.builder.at(loc).emit(record, values, params)
    except TypeError as error:
        raise TraceError(f"not supported: {error}", loc) from None
    arrays = tuple(TracedArray(v.type, frame, v, weak=weak, loc=loc) for v in results)  # type: ignore[arg-type]
    unknown = [a for a in arrays if not a.is_dense]
    if unknown and record.name != "transpose" and all(map(lies_in_rows, operands)):
        for array in unknown:
            array.is_dense = True
    return arrays[0] if len(arrays) == 1 else arrays or None


def lies_in_rows(x: TracedArray) -> bool:
    """Whether elementwise results of the array are known to be in row-major order."""
    if x.lies_as is not None:
        return lies_in_rows(x.lies_as)
    if x.base is None or x.recipe is None:
        return x.is_dense
    strides = strides_of(x, ask=False)
    return strides is not None and falls(x.shape, strides)


def strides_of(x: TracedArray, ask: bool = True) -> Strides | None:
    """The strides that the array has in NumPy, in elements; None if they are not known.

    ``ask``: the trace may come to depend on the strides of an argument that is not in row-major order.
    """
    recipes = []
    while not x.is_dense:
        if x.base is not None and x.recipe is not None:
            recipes.append(x.recipe)
            x = x.base
        elif x.lies_as is not None:
            x = x.lies_as
        else:
            break
    strides = row_major(x.shape) if x.is_dense else None
    if not x.is_dense and ask and x.base is None and x.argument is not None:
        strides = frame_of().root.strides_of(x.argument)
    for recipe in reversed(recipes):
        strides = None if strides is None else recipe.strides(strides)
    return strides


def full(shape: Sequence[int], value: Any, dtype: Any) -> TracedArray:
    """An array of one constant."""
    scalar = literal(value, dtype)
    return broadcast_to(scalar, shape) if len(shape) else fresh(scalar)


def fresh(x: TracedArray) -> TracedArray:
    """The same value as another object, which can be written without changing ``x``."""
    frame = frame_of(x)
    found = TracedArray(x.type, frame, frame.lift(x), weak=x.weak, loc=user_loc())
    found.known, found.is_dense = known_value(x), lies_in_rows(x)
    return found


copy_of = fresh


def created(x: TracedArray) -> TracedArray:
    """The same value as a new array: one of rank 0 is no scalar."""
    found = fresh(x)
    found.created = True
    return found


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a view comes from its base: ``take(base)`` gives the view, ``put(base, new)`` the base with the view written (None: it
    is read-only), ``strides`` the view's strides for the base's.

    Views of one base with equal ``key`` are the same part of it.
    """

    take: Callable[[TracedArray], TracedArray] = field(compare=False)
    put: Callable[[TracedArray, TracedArray], TracedArray] | None = field(compare=False)
    strides: Callable[[Strides], Strides | None] = field(compare=False, default=lambda strides: None)
    key: Any


def view(x: TracedArray, of: TracedArray, recipe: Recipe | None = None) -> TracedArray:
    """Marks ``x`` as a view of ``of``; of a scalar it is a copy. Without a recipe it cannot be written, nor read after ``of``
    was written."""
    if of.literal is not None or not (of.type.shape or of.is_cell):
        return fresh(x) if x is of else x
    if x is of:
        x = TracedArray(of.type, of.frame, of.value, weak=of.weak, loc=user_loc())
        x.known = of.known
    x.base, x.recipe, x.seen = of, recipe, of.version
    x.is_dense = False
    x.readonly = VIEW if recipe is None else READONLY if recipe.put is None else of.readonly
    return x


def _part(x: TracedArray, name: str) -> TracedArray:
    """The view of the real or the imaginary part of a complex array."""

    def put(base: TracedArray, new: TracedArray) -> TracedArray:
        other: TracedArray = emit("imag" if name == "real" else "real", base)
        found: TracedArray = emit("complex", *((new, other) if name == "real" else (other, new)))
        return found

    if x.literal is not None:
        return literal(getattr(x.literal, name), None if x.weak else x.type.dtype.part.numpy)
    weak = "float" if x.weak else ""
    return view(emit(name, x, weak=weak), x, Recipe(take=lambda base: emit(name, base), put=put, key=name))


def _refresh(x: TracedArray) -> None:
    """Brings a view up to date with its base, which may be a view itself."""
    views = [x]
    while views[-1].base is not None and views[-1].base.base is not None:
        views.append(views[-1].base)
    for found in reversed(views):
        base = found.base
        assert base is not None
        if base.version != found.seen:
            _take_again(found, base)


def _take_again(x: TracedArray, base: TracedArray) -> None:
    if x.recipe is None:
        error = TraceError("a view is read after its array was written; take the view again after the write, or copy it before")
        error.origins = error.origins or (x.described("it", (error.file, error.line)),)
        raise error
    _set(x, x.recipe.take(base))
    x.seen = base.version


def _set(target: TracedArray, new: TracedArray) -> None:
    frame = frame_of(new)
    if target.frame is not frame:
        frame.written[id(target)] = target
    target._value, target.frame, target.literal, target.known = frame.lift(new), frame, None, None
    target.version += 1


def root_of(x: TracedArray) -> TracedArray:
    """The array whose memory a view shows."""
    while x.base is not None:
        x = x.base
    return x


def _refuse_outer(target: TracedArray) -> None:
    """Raises TraceError for a write that cannot leave the current frame."""
    frame, owner = frame_of(), root_of(target).frame
    if frame.sealed and owner is not frame:
        raise TraceError(f"a write into an array from outside {frame.sealed}")


def write_back(target: TracedArray, new: TracedArray) -> None:
    """Gives an array that was written in an inner frame its new value in this one."""
    _refuse_outer(target)
    if target.base is None:
        _set(target, new)
    else:
        update(target, new)


def update(target: TracedArray, value: Any, casting: str = "same_kind") -> None:
    """``target[...] = value``: the object stands for a new value from now on, and so does what it is a view of.

    Raises TraceError if it cannot be written, and NumPy's ValueError for an argument that is read-only.
    """
    if target.readonly is READONLY:
        root = root_of(target)
        if root.readonly is READONLY and root.argument is not None:
            frame_of(root).root.kept_readonly.add(root.argument)
        raise ValueError(READONLY)
    if target.readonly:
        raise TraceError(f"a write into a traced array: {target.readonly}")
    _refuse_outer(target)
    source = as_traced(value)
    if not source.weak and not np.can_cast(source.dtype, target.dtype, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast from {source.dtype!r} to {target.dtype!r} with casting rule {casting!r}")
    if source.weak and not _takes_number(target.dtype.kind, source.weak, casting):
        raise TypeError(f"Cannot cast a Python {source.weak} to {target.dtype!r} according to the rule {casting!r}")
    new = broadcast_to(convert(source, target.dtype), target.shape)
    base, recipe = target.base, target.recipe
    if base is not None and recipe is not None and recipe.put is not None:
        update(base, recipe.put(base, new), casting)
        target.seen = base.version
    _set(target, new)


def _takes_number(kind: str, weak: str, casting: str) -> bool:
    """Whether an array of a kind takes a Python number; unsafely, only a complex one has no place among real ones."""
    if casting == "unsafe":
        return weak != "complex" or kind in "bc"
    return "biufc".index(kind.replace("u", "i")) >= "biufc".index(weak[0].replace("u", "i"))


# explicit casts, broadcasts and promotion


def cast(x: TracedArray, dtype: Any) -> TracedArray:
    """``x`` with another dtype; ``x`` itself if it has it (and is not weak). Raises TraceError for complex as real."""
    element = _element(dtype)
    if x.type.dtype.is_complex and element.kind not in "bc":
        raise TraceError(f"complex numbers where {element.numpy} is meant are not supported; take their .real, .imag or np.abs")
    if x.literal is not None:
        return _cast_literal(x, element.numpy)
    if x.type.dtype is element:
        if not x.weak:
            return x
        strong = TracedArray(x.type, x.frame, x.value, loc=x.loc)
        strong.known = x.known
        return strong
    found: TracedArray = emit("cast", x, dtype=element)
    return found


def convert(x: TracedArray, dtype: Any) -> TracedArray:
    """``x`` with another dtype, as by NumPy's astype: a complex one as a real one is its real part, with NumPy's warning.

    Raises TypeError for a Python complex as a real one.
    """
    element = _element(dtype)
    if x.type.dtype.is_complex and element.kind not in "bc":
        if x.weak:
            kind = "int" if element.is_integer else "float"
            raise TypeError(f"{kind}() argument must be a string or a real number, not 'complex'")
        loc, message = user_loc(), "Casting complex values to real discards the imaginary part"
        warnings.warn_explicit(message, np.exceptions.ComplexWarning, loc.file or "pullback", loc.line)
        x = x.real
    return cast(x, dtype)


def _cast_literal(x: TracedArray, dtype: np.dtype[Any]) -> TracedArray:
    value = x.literal
    if x.weak == "int" and dtype.kind in "iu":
        return literal(value, dtype)
    if x.weak == "int" and dtype.kind == "f":
        value = as_float(value)
    with np.errstate(all="ignore"):
        if is_size(value):
            found = _sized(value, None if x.weak else x.dtype, dtype)
            return TracedArray(ArrayType(_element(dtype)), literal=found, loc=user_loc())
        return literal(np.asarray(value, None if x.weak else x.dtype).astype(dtype), dtype)


def _sized(value: Any, source: Any, target: np.dtype[Any]) -> Any:
    """A number that comes from sizes as a literal of a dtype has it. An integer stays what it is if it fits."""
    if isinstance(value, int) and target.kind in "iu" and promotion.fits(value, target):
        return value
    return lifted(_converted, value, source, target)


@conversion
def _converted(value: Any, source: Any, target: Any) -> Any:
    return _as_python(np.asarray(value, source).astype(target) if source is not None else np.asarray(value, target))


def broadcast_to(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """NumPy's broadcast, explicit: axes that grow from 1 are squeezed away, then broadcast. ``x`` itself if it has the shape."""
    target = tuple(map(extent_of, shape))
    if len(x.shape) == len(target) and x.shape == target:
        return x
    offset = len(target) - x.ndim
    if offset < 0 or any(e != f and e != 1 for e, f in zip(x.shape, target[offset:], strict=True)):
        text = "operands could not be broadcast together with remapped shapes [original->remapped]"
        raise ValueError(f"{text}: {x.shape} and requested shape {target}")
    grown = tuple(k for k, e in enumerate(x.shape) if e != target[offset + k])
    narrow = emit("squeeze", x, axes=grown, weak=x.weak) if grown else x
    found: TracedArray = emit("broadcast", narrow, axes=(*range(offset), *(offset + k for k in grown)), shape=target)
    return found


def broadcast_together(*xs: TracedArray) -> list[TracedArray]:
    """All operands in their common shape. Raises NumPy's ValueError if there is none."""
    shapes = [x.shape for x in xs]
    if all(len(s) == len(shapes[0]) and s == shapes[0] for s in shapes):
        return list(xs)
    shape = common_shape(shapes)
    if shape is None:
        raise ValueError(f"operands could not be broadcast together with shapes {promotion.shapes_text(shapes)} ")
    return [broadcast_to(x, shape) for x in xs]


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's, of shapes that may be sizes. Raises its ValueError."""
    found = common_shape(shapes)
    return tuple(np.broadcast_shapes(*(tuple(s) for s in shapes))) if found is None else found


def common_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The shape that arrays of these shapes have together; None if there is none."""
    found = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for k, n in enumerate(shape, len(found) - len(shape)):
            if type(n) is int and n == 1:
                continue
            if type(found[k]) is int and found[k] == 1:
                found[k] = n
            elif found[k] != n:
                if found[k] == 1:
                    found[k] = n
                elif n != 1:
                    return None
    return tuple(found)


def expand(x: TracedArray, axes: Sequence[int]) -> TracedArray:
    """``x`` with axes of extent 1 at positions ``axes`` (ascending) of the result."""
    if not axes:
        return x
    rest = iter(x.shape)
    shape = tuple(1 if k in axes else next(rest) for k in range(x.ndim + len(axes)))
    found: TracedArray = emit("broadcast", x, axes=tuple(axes), shape=shape)
    return found


def kind_of(x: TracedArray) -> Kind:
    """What stands for ``x`` in a promotion: its dtype, or the type of a weak Python scalar."""
    return _WEAK_KIND.get(x.weak) or x.dtype


def result_type(*xs: TracedArray) -> np.dtype[Any]:
    """NumPy's ``result_type``, weak scalars included."""
    return promotion.common(tuple(kind_of(x) for x in xs))


def promote(*xs: TracedArray) -> list[TracedArray]:
    """All operands cast to their common dtype."""
    dtype = result_type(*xs)
    return [cast(x, dtype) for x in xs]
