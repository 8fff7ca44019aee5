"""Objects of libraries that compute in their own way (pandas, xarray, torch, polars) in a trace.

``Labelled`` stands for such an argument, and for results of elementwise functions on it. It computes where the library's
result is NumPy's on the object's array: elementwise functions of one such object, or of several with the same labels, with
numbers and arrays; products; masks; and functions of NumPy that convert their arguments to arrays. Every other use is a
TraceError that says how to get the array.

An object from outside is used unchanged, and its own library computes with it, until it meets a traced value: then it is a
``Labelled`` of a constant array.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.types import dtype_of
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.literals import weak_class
from pullback.tracer.arrays.masked import Selection, same_mask
from pullback.tracer.arrays.tables import FUNCTIONS, HOOKS, hook
from pullback.tracer.arrays.traced import ComesFirst, Tagged, TracedArray, has_rows
from pullback.tracer.user_code.array_libraries import (
    COMPARISONS,
    OPERATORS,
    OTHER,
    PYTHON,
    UNARY,
    Library,
    Operand,
    class_title,
    library_of,
)
from pullback.tracer.user_code.errors import TraceError, foreign_call


class Labels:
    """The properties of a library's object besides its array: its class, the labels of its axes, and its oddity."""

    __slots__ = ("axes", "is_remote", "kind", "library", "oddity")

    def __init__(self, library: Library, kind: type, axes: tuple[Any, ...], oddity: str = "", is_remote: bool = False) -> None:
        self.library, self.kind, self.axes, self.oddity, self.is_remote = library, kind, axes, oddity, is_remote

    @property
    def class_key(self) -> tuple[Any, ...]:
        """The part on which a program depends if the object meets no other one."""
        return self.kind, self.oddity, len(self.axes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Labels) and self.class_key == other.class_key and all(map(self.same, self.axes, other.axes))

    def __hash__(self) -> int:
        return hash(self.class_key)

    def __reduce__(self) -> tuple[Any, ...]:
        return _labels, (self.library.name, self.kind, self.axes, self.oddity, self.is_remote)

    def same(self, a: Any, b: Any) -> bool:
        """Return whether two labels of an axis are the same."""
        if isinstance(a, _Axis) or isinstance(b, _Axis):
            return isinstance(a, _Axis) and isinstance(b, _Axis) and a.is_same(b, self.same)
        return self.library.same(a, b)

    def of(self, axes: tuple[Any, ...], kind: type | None = None) -> Labels:
        """Return the labels of another object of the library."""
        return Labels(self.library, kind or self.kind, axes, self.oddity, self.is_remote)

    def __str__(self) -> str:
        return class_title(self.kind)


def _labels(name: str, kind: type, axes: tuple[Any, ...], oddity: str, is_remote: bool) -> Labels:
    return Labels(library_of(kind) or OTHER, kind, axes, oddity, is_remote)


class _Axis:
    """Labels that are not the library's own object: a mask's selection of other labels, or the labels of a new axis."""

    def __init__(self, parent: Any = None, mask: Any = None, count: Any = None) -> None:
        self.parent, self.mask, self.count = parent, mask, count

    def is_same(self, other: _Axis, same: Callable[[Any, Any], bool]) -> bool:
        """Return whether these are the same labels; ``same`` compares the library's own."""
        if self.mask is None or other.mask is None:
            return self.mask is None and other.mask is None and self.count is not None and bool(self.count == other.count)
        is_traced = isinstance(self.mask, TracedArray) and isinstance(other.mask, TracedArray)
        alike = self.mask is other.mask or (is_traced and same_mask(self.mask, other.mask))
        return alike and same(self.parent, other.parent)


class Mark:
    """The part of an object in a call on which a program depends: its class, and which earlier objects have its labels."""

    __slots__ = ("_hash", "_owner", "class_key", "groups")

    def __init__(self, x: Any, labels: Labels, before: Sequence[Any]) -> None:
        earlier = [axis for mark in before if type(mark) is Mark for axis in mark._axes()]
        self.class_key = labels.class_key
        self._owner = weakref.ref(x) if type(x).__weakrefoffset__ else lambda: x
        axes = labels.axes
        every = [*earlier, *axes]
        self.groups = tuple(
            next(j for j in range(len(every)) if every[j] is axis or _comparable(labels, every[j], axis)) for axis in axes
        )
        self._hash = hash((self.class_key, self.groups))

    def _axes(self) -> tuple[Any, ...]:
        owner = self._owner()
        labels = None if owner is None else labels_of(owner)
        return () if labels is None else labels.axes

    def __eq__(self, other: object) -> bool:
        return type(other) is Mark and self.class_key == other.class_key and self.groups == other.groups

    def __hash__(self) -> int:
        return self._hash


def _comparable(labels: Labels, a: Any, b: Any) -> bool:
    """Return whether two labels, possibly of two libraries, are the same."""
    return type(a) is type(b) and labels.same(a, b)


def labels_of(x: Any) -> Labels | None:
    """Return the labels of a library's object; None for any other value. Raises TraceError for an object that is refused."""
    kind = type(x)
    library = library_of(kind)
    if library is None:
        return None
    if library.refused:
        error = TraceError(f"a {class_title(kind)} {library.refused}, which a traced function does not do; {instead_of(x)}")
        error.is_of_lazy = True
        raise error
    oddity = library.oddity(x)
    kind = vars(kind).get("__pullback_real__", kind)
    return Labels(library, kind, () if oddity else library.axes(x), oddity)


def instead_of(x: Any) -> str:
    """Return what to write instead of a library's object."""
    library = library_of(type(x)) or OTHER
    return f"pass {f'x{library.instead}' if library.instead else 'np.asarray(x)'}"


def array_of(x: Any) -> Any:
    """Return the array of a library's object. Raises TraceError for one that has none."""
    library = library_of(type(x)) or OTHER
    try:
        array = library.array(x)
    except Exception as error:
        raise TraceError(f"a {class_title(type(x))} has no array ({error}); {instead_of(x)} of its parts") from None
    if isinstance(array, np.ndarray) and not _is_number(array.dtype):
        what = f"a {class_title(type(x))} of {array.dtype} has no array of numbers"
        raise TraceError(f"{what}; pass the numbers, as by x.to_numpy(dtype=float)")
    return array


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a dtype can be compiled."""
    try:
        dtype_of(dtype)
    except TypeError:
        return False
    return True


def is_labelled(x: Any) -> bool:
    """Return whether a value is, or stands for, an object of a library that computes in its own way."""
    kind = type(x)
    return kind not in _NEVER and (kind is Labelled or library_of(kind) is not None)


_NEVER = frozenset({TracedArray, np.ndarray, bool, int, float, complex, str, type(None), slice, tuple, list, dict})


def holds_labelled(x: Any) -> bool:
    """As ``is_labelled``, also for items of nested lists, tuples and dicts."""
    if type(x) is TracedArray:
        return False
    if isinstance(x, list | tuple) and not has_rows(x):
        return any(map(holds_labelled, x))
    return any(map(holds_labelled, x.values())) if isinstance(x, dict) else is_labelled(x)


def rewrapped(labels: Labels, array: Any) -> Any:
    """Return an object with these labels and this array; the array itself if it is not traced or a scalar."""
    if not isinstance(array, TracedArray) or not array.ndim:
        return array
    if len(labels.axes) not in (0, array.ndim):
        labels = labels.of(tuple(_Axis() for _ in array.shape))
    return Labelled(array, labels)


class Labelled(ComesFirst):
    """A library's object in a trace: its array ``values``, which is traced or selected by a mask, and its ``labels``."""

    __slots__ = ("labels", "values")
    __array_priority__ = 3000.0
    __pandas_priority__ = 6000
    values: Any
    labels: Labels

    def __init__(self, values: Any, labels: Labels) -> None:
        for slot, value in zip(_SLOTS, (values, labels)):
            slot.__set__(self, value)

    __class__ = property(lambda self: _get_labels(self).kind)

    def __repr__(self) -> str:
        return f"{_get_labels(self)} of {_get_values(self)!r}"

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            return object.__getattribute__(self, name)
        return _attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise _refusal(self, f"the attribute .{name}, written,", "return the new values")

    def __len__(self) -> int:
        return int(_get_values(self).shape[0])

    def __getitem__(self, key: Any) -> Any:
        return _select_rows(self, key)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise _refusal(self, "a write into", "return the new values")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            how = f"np.{ufunc.__name__}" + (f".{method}" if method != "__call__" else f" with {', '.join(kwargs)}=")
            raise _refusal(self, f"{how} of")
        return apply_ufunc(ufunc, inputs, is_operator=False)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return apply_function(function, FUNCTIONS.get(function), args, kwargs)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        raise TraceError(foreign_call("torch", getattr(function, "__name__", "")))


_SLOTS: tuple[Any, Any] = (vars(Labelled)["values"], vars(Labelled)["labels"])
"""The slots' descriptors; attribute access by these names has the library's meaning."""


def _get_values(x: Labelled) -> Any:
    return _SLOTS[0].__get__(x)


def _get_labels(x: Labelled) -> Labels:
    labels: Labels = _SLOTS[1].__get__(x)
    return labels


def parts_of(x: Any) -> tuple[Any, Labels]:
    """Return the traced array and the labels of what is, or stands for, a library's object."""
    if type(x) is Labelled:
        return _get_values(x), _get_labels(x)
    labels = labels_of(x)
    assert labels is not None
    return HOOKS["as_traced"](array_of(x)), labels


def labels_behind(x: Any) -> Labels:
    """Return the labels of what is, or stands for, a library's object."""
    labels = _get_labels(x) if type(x) is Labelled else labels_of(x)
    assert labels is not None
    return labels


@hook("array_behind")
def array_behind(x: Any) -> Any:
    """Return the array of what stands for a library's object, and the value of several cases of which one is possible, in nested
    lists, tuples and dicts too; other values unchanged."""
    if issubclass(type(x), Tagged):
        return x.narrowed()
    if type(x) is list or type(x) is tuple:
        return type(x)(map(array_behind, x))
    if type(x) is dict:
        return {k: array_behind(v) for k, v in x.items()}
    if type(x) is Labelled:
        return _get_values(x)
    return array_of(x) if library_of(type(x)) is not None else x


def name_of(x: Any) -> str:
    """Return the argument name of an object; empty if it is not an argument."""
    origin = getattr(_get_values(x), "origin", None) if type(x) is Labelled else None
    label = origin.label if origin is not None else ""
    return label if label.replace(".", "_").replace("[", "_").replace("]", "_").replace("'", "_").isidentifier() else ""


def _refusal(x: Any, what: str, instead: str = "", why: str = "does not mean what it means for an array") -> TraceError:
    """Return the error for a use of a library's object whose result is not NumPy's."""
    labels = labels_behind(x)
    name, library = name_of(x), labels.library
    if library.instead:
        array = f"{name}{library.instead}" if name else f"{library.instead} behind it"
    else:
        array = f"np.asarray({name or 'x'})"
    oddity = f" {labels.oddity}" if labels.oddity else ""
    more = f"; {instead}, or" if instead else "; write"
    return TraceError(f"{what} a {labels}{oddity} {why}{more} {array}, for the array of numbers")


@hook("refusal_of")
def refusal_of(x: Any, what: str = "this use of") -> TraceError:
    """Return the error for a library's object where an array is needed."""
    return _refusal(x, what)


@hook("refuse_labelled")
def refuse_labelled(x: Any, what: str) -> None:
    """Raise TraceError for a library's object."""
    if is_labelled(x):
        raise _refusal(x, what)


# attributes, indices


def _attribute(x: Labelled, name: str) -> Any:
    labels, values = _get_labels(x), _get_values(x)
    library = labels.library
    match library.conversions.get(name):
        case "attribute":
            return values
        case "method":
            return lambda *args, **kwargs: _converted(x, name, *args, **kwargs)
        case "self":
            return lambda *args, **kwargs: x
    is_attribute = hasattr(labels.kind, name)
    if name in library.plain and is_attribute and not labels.oddity and not isinstance(values, Selection):
        return getattr(values, name)
    if not is_attribute and not library.has_items:
        raise AttributeError(f"{labels.kind.__name__!r} object has no attribute {name!r}")
    raise _refusal(x, f"the method or attribute .{name} of")


def _converted(x: Labelled, name: str, dtype: Any = None, copy: Any = False, **options: Any) -> Any:
    if any(v is not None for k, v in options.items()) and _get_labels(x).library.name != "torch":
        raise _refusal(x, f".{name} with {', '.join(options)}= of")
    values = _get_values(x)
    if dtype is None:
        return HOOKS["fresh"](values) if copy is True and isinstance(values, TracedArray) else values
    return values.astype(dtype)


def _select_rows(x: Labelled, key: Any) -> Any:
    """Index an object: only by a mask, which selects rows."""
    labels, values = _get_labels(x), _get_values(x)
    mask, its_labels = parts_of(key) if is_labelled(key) else (key, None)
    is_mask = isinstance(mask, TracedArray | np.ndarray) and mask.dtype == np.bool_ and mask.ndim == 1
    if not is_mask or not labels.library.masks or labels.oddity or isinstance(values, Selection):
        raise _refusal(x, "an index into")
    rows = labels.axes[0]
    if not labels.library.has_rows and (values.ndim > 1 or its_labels is None):
        raise _refusal(x, "a mask into")
    if its_labels is not None:
        is_odd = its_labels.oddity or its_labels.library is not labels.library or len(its_labels.axes) != 1
        if is_odd or not labels.same(rows, its_labels.axes[0]):
            raise _refusal(x, "a mask as an index into", why="is aligned by its labels, which differ")
    if mask.shape[0] != values.shape[0]:
        raise _refusal(x, "a mask of another length, into")
    chosen = values[mask]
    return Labelled(chosen, labels.of((_Axis(rows, mask), *labels.axes[1:])))


# functions


def apply_ufunc(ufunc: np.ufunc, operands: Sequence[Any], is_operator: bool) -> Any:
    """Apply a ufunc, or its operator, to operands that include libraries' objects.

    Raises TraceError where the library's result is not NumPy's.
    """
    parts = [parts_of(x) if is_labelled(x) else (x, None) for x in operands]
    first = next(x for x in operands if is_labelled(x))
    name = _SYMBOLS[ufunc] if is_operator else f"np.{ufunc.__name__}"
    members = [(v, labels) for v, labels in parts if labels is not None]
    labels = members[0][1]
    if any(other.oddity for _, other in members):
        odd = next(x for x in operands if is_labelled(x) and parts_of(x)[1].oddity)
        raise _refusal(odd, f"{name} of")
    if ufunc is np.matmul:
        return _product(name, first, parts)
    if any(other.library is not labels.library for _, other in members[1:]):
        raise _refusal(first, f"{name} with an object of another library, of")
    if any(other != labels for _, other in members[1:]):
        raise _refusal(first, f"{name} of", why=_ALIGNED)
    described = [_describe(v, its_labels) for v, its_labels in parts]
    if any(d is None for d in described):
        raise _refusal(first, f"{name} with {_title_of(operands[described.index(None)])}, of")
    shape = next(d.shape for d in described if d is not None and d.is_labelled)
    for d in described:
        is_row = labels.library.has_rows and len(shape) == 2 and d.shape == shape[1:]  # type: ignore[union-attr]
        if d.shape not in ((), shape) and not is_row:  # type: ignore[union-attr]
            raise _refusal(first, f"{name} with an array of shape {d.shape}, of")  # type: ignore[union-attr]
    if ufunc.signature is not None or not labels.library.agrees(ufunc, is_operator, described):  # type: ignore[arg-type]
        dtypes = dict.fromkeys(d.weak or str(d.dtype) for d in described if d is not None)
        raise _refusal(first, f"{name} of", why=f"has other results for {' and '.join(dtypes)} than of arrays")
    arrays = [v for v, _ in parts]
    result = PYTHON[ufunc](*arrays) if is_operator else ufunc(*arrays)
    if isinstance(result, tuple):
        return tuple(Labelled(r, labels) for r in result)
    return Labelled(result, labels)


_ALIGNED = "aligns the labels, which differ"
_SYMBOLS: dict[np.ufunc, str] = {
    np.add: "+", np.subtract: "-", np.multiply: "*", np.true_divide: "/", np.floor_divide: "//", np.remainder: "%",
    np.power: "**", np.bitwise_and: "&",
    np.bitwise_or: "|", np.bitwise_xor: "^", np.left_shift: "<<", np.right_shift: ">>", np.matmul: "@",
    np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">=", np.equal: "==", np.not_equal: "!=",
    np.negative: "-", np.positive: "+", np.absolute: "abs()", np.invert: "~",
}  # fmt: skip


def _title_of(x: Any) -> str:
    return f"a {type(x).__name__}"


def _describe(x: Any, labels: Labels | None) -> Operand | None:
    """Return the description of an operand for a library's rule; None for one that is neither an array nor a number."""
    if isinstance(x, TracedArray | Selection):
        if isinstance(x, Selection) and labels is None:
            return None
        if isinstance(x, Selection):  # an axis with equal labels has this mask, so all have the same length
            return Operand(is_labelled=True, dtype=x.dtype, shape=("chosen",) * x.ndim, weak="")
        weak = x.weak
        return Operand(is_labelled=labels is not None, dtype=x.dtype, shape=tuple(x.shape), weak=weak)
    if type(x) is np.ndarray or isinstance(x, np.generic):
        return Operand(is_labelled=False, dtype=x.dtype, shape=x.shape, weak="")
    if is_size(x):
        return Operand(is_labelled=False, dtype=np.dtype(int), shape=(), weak="int")
    kind = weak_class(x)
    if kind not in (bool, int, float, complex):
        return None
    return Operand(is_labelled=False, dtype=np.dtype(kind), shape=(), weak=kind.__name__)


def _product(name: str, first: Any, operands: Sequence[tuple[Any, Labels | None]]) -> Any:
    """Return ``a @ b``, computed by position if the labels along the reduction axis are the same."""
    (a, left), (b, right) = operands
    labels = left or right
    assert labels is not None
    is_pair = left is not None and right is not None
    if not labels.library.products or (is_pair and left.library is not right.library):  # type: ignore[union-attr]
        raise _refusal(first, f"{name} of")
    shapes = [_describe(v, its) for v, its in operands]
    if None in shapes or any(not d.shape or len(d.shape) > 2 or d.dtype.kind not in "iufc" for d in shapes):  # type: ignore[union-attr]
        raise _refusal(first, f"{name} with such an operand, of")
    if isinstance(a, Selection) or isinstance(b, Selection):
        raise _refusal(first, f"{name} of what a mask chooses of")
    if is_pair and not labels.same(left.axes[-1], right.axes[0]):  # type: ignore[union-attr]
        raise _refusal(first, f"{name} of", why=_ALIGNED)
    result = operator.matmul(a, b)
    if left is None and len(right.axes) == 1:  # type: ignore[union-attr]
        return result  # an array and a Series give an array
    if right is None and len(left.axes) == 1:  # type: ignore[union-attr]
        return result
    axes: list[Any] = []
    if a.ndim == 2:
        axes.append(left.axes[0] if left is not None else _Axis(count=a.shape[0]))
    if b.ndim == 2:
        axes.append(right.axes[1] if right is not None else _Axis(count=b.shape[1]))
    if not axes:
        return result
    matrix = next(its for its in (left, right) if its is not None and len(its.axes) == 2)
    series = next((its for its in (left, right) if its is not None and len(its.axes) == 1), None)
    kind = matrix.kind if len(axes) == 2 else series.kind if series is not None else _column_class(matrix)
    return Labelled(result, matrix.of(tuple(axes), kind))


def _column_class(labels: Labels) -> type:
    """Return the class of a column of a matrix."""
    kind: type = getattr(labels.kind, "_constructor_sliced", labels.kind)
    return kind if isinstance(kind, type) else labels.kind


def apply_function(function: Callable[..., Any], traced: Callable[..., Any] | None, args: Any, kwargs: Any) -> Any:
    """Apply a function of NumPy to arguments with libraries' objects; ``traced`` implements it for traced values."""
    odd = next(labelled_in((args, kwargs)))
    labels = labels_behind(odd)
    converts = function in CONVERTING or labels.is_remote
    if traced is None or not converts or labels.library is OTHER:
        raise _refusal(odd, f"np.{getattr(function, '__name__', function)} of")
    return traced(*array_behind(args), **array_behind(kwargs))


def labelled_in(x: Any) -> Iterator[Any]:
    """Yield the libraries' objects in nested lists, tuples and dicts."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, list | tuple) and not has_rows(x):
        for item in x:
            yield from labelled_in(item)
    elif is_labelled(x):
        yield x


CONVERTING = frozenset(
    getattr(np, name)
    for name in (
        "where", "dot", "vdot", "inner", "outer", "tensordot", "einsum", "kron", "concatenate", "stack", "vstack", "hstack",
        "column_stack", "diff", "interp", "isclose", "trapezoid", "array", "asarray", "asanyarray", "ascontiguousarray",
        "asfortranarray", "asarray_chkfinite",
    )
) | {np.linalg.norm}  # fmt: skip
"""Functions of NumPy that convert their arguments to arrays and return an array."""


# operators


def _binary(ufunc: np.ufunc) -> tuple[Callable[[Any, Any], Any], ...]:
    def forward(self: Labelled, other: Any) -> Any:
        return apply_ufunc(ufunc, (self, other), is_operator=True)

    def reflected(self: Labelled, other: Any) -> Any:
        return apply_ufunc(ufunc, (other, self), is_operator=True)

    def in_place(self: Labelled, other: Any) -> NoReturn:
        raise _refusal(self, "a change in place of", "write x = x + y instead of x += y")

    return forward, reflected, in_place


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Labelled, *args: Any, **kwargs: Any) -> NoReturn:
        raise _refusal(self, f"{name} of")

    return refuse


_REFUSED = {
    "__iter__": "a loop over the elements", "__contains__": "the operator in", "__bool__": "the truth", "__float__": "float()",
    "__int__": "int()", "__complex__": "complex()", "__index__": "an index from", "__round__": "round()",
    "__array__": "a conversion by a library", "__divmod__": "divmod()", "__rdivmod__": "divmod()",
    "__hash__": "a key of a dict or set", "__reduce_ex__": "a pickle", "__copy__": "a copy", "__deepcopy__": "a copy",
    "__delitem__": "a deletion from",
    "__dlpack__": "a conversion by a library",
}  # fmt: skip


def _install() -> None:
    for name, ufunc in OPERATORS.items():
        for prefix, method in zip(("", "r", "i"), _binary(ufunc)):
            setattr(Labelled, f"__{prefix}{name}__", method)
    for name, ufunc in COMPARISONS.items():
        setattr(Labelled, f"__{name}__", _binary(ufunc)[0])
    for name, ufunc in UNARY.items():
        setattr(Labelled, f"__{name}__", lambda self, ufunc=ufunc: apply_ufunc(ufunc, (self,), is_operator=True))
    for name, what in _REFUSED.items():
        setattr(Labelled, name, _refused(what))


_install()


def labelled(x: Any) -> tuple[Any, Labels]:
    """Return the array of a library's object, sharing its memory, and its labels. Raises TraceError for one that has none."""
    labels = labels_of(x)
    assert labels is not None
    array = array_of(x)
    if isinstance(array, Remote):
        labels.is_remote = True
    return array, labels
