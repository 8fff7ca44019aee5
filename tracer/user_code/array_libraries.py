"""Libraries with array-like objects that compute in their own way: their recognition, the array of an object, and advice.

No library is imported: an object is recognised by the module of its class, and read through its own attributes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.user_code.ownership import is_users_class

OPERATORS: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift, "matmul": np.matmul,
}  # fmt: skip
"""Binary operators that have a reflected and an in-place form."""
COMPARISONS: dict[str, np.ufunc] = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
UNARY: dict[str, np.ufunc] = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
PYTHON: dict[np.ufunc, Callable[..., Any]] = {
    u: getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))
    for name, u in {**OPERATORS, **COMPARISONS, **UNARY}.items()
}
"""The Python operator of each of these ufuncs."""


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand as a rule of a library sees it: ``is_labelled``, ``dtype``, ``shape``, and the Python type of a weak scalar."""

    is_labelled: bool
    dtype: np.dtype[Any]
    shape: tuple[Any, ...]
    weak: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Library:
    """The properties of a library.

    ``classes``: names of its array-like classes; None: all that convert to an array. ``array``: returns the array of an
    object. ``instead``: code that gives an array, written behind the object. ``conversions``: attributes and methods that give
    the array, or the object itself where the value is "self". ``plain``: attributes with the same value for an object and for
    its array. ``axes``: returns the labels of an object along each axis. ``same``: whether two labels of an axis are the same.
    ``oddity``: why an object's arithmetic differs from NumPy's on its array; empty if it does not. ``agrees``: whether a
    ufunc, or an operator, gives NumPy's result for the operands' arrays. ``products``: whether ``@`` is NumPy's. ``masks``:
    whether a mask of one axis selects rows. ``has_rows``: whether a matrix has rows: a mask without labels selects among them,
    and an array may stand for each. ``stand_in``: returns the object that a traced function uses for an outside object: a copy
    where it could be written. ``has_items``: whether items, such as columns, are attributes too. ``refused``: why objects are
    not accepted at all. ``state``: returns the arrays and labels of an object, to detect changes.
    """

    name: str
    classes: frozenset[str] | None
    instead: str
    array: Callable[[Any], Any] = np.asarray
    state: Callable[[Any], Any] | None = None
    stand_in: Callable[[Any], Any] = lambda x: x
    conversions: dict[str, str]
    plain: frozenset[str] = frozenset({"shape"})
    axes: Callable[[Any], tuple[Any, ...]] = lambda x: ()
    same: Callable[[Any, Any], bool] = operator.is_
    oddity: Callable[[Any], str] = lambda x: ""
    agrees: Callable[[np.ufunc, bool, Sequence[Operand]], bool] = lambda ufunc, is_operator, operands: False
    products: bool = False
    masks: bool = False
    has_rows: bool = False
    has_items: bool = False
    refused: str = ""


def library_of(kind: Any) -> Library | None:
    """Return the library of a class whose objects stand for arrays and compute in their own way; None for any other class."""
    library: Library | None = _library_of(kind)
    return library


@functools.lru_cache(maxsize=512)
def _library_of(kind: Any) -> Library | None:
    for base in kind.__mro__[:-1]:
        library = LIBRARIES.get(str(base.__module__).partition(".")[0])
        if library is not None and library.classes is not None and base.__name__ in library.classes:
            return library
    is_other = str(kind.__module__).partition(".")[0] not in _NUMPYS and not issubclass(kind, np.ndarray | np.generic)
    if not is_other or is_users_class(kind) or not _converts(kind):
        return None
    return OTHER if any(getattr(kind, n, None) is not getattr(object, n, None) for n in _ARITHMETIC) else None


_NUMPYS = ("builtins", "numpy", "pullback", "scipy")
_ARITHMETIC = ("__array_ufunc__", "__array_function__", "__add__", "__radd__", "__mul__", "__rmul__", "__neg__")


def _converts(kind: type) -> bool:
    return any(hasattr(kind, n) for n in ("__array__", "__array_interface__", "__dlpack__", "__cuda_array_interface__"))


def class_title(kind: type) -> str:
    """Return the display name of objects of a class, such as "pandas Series"."""
    return f"{str(kind.__module__).partition('.')[0]} {kind.__name__}"


# pandas


def _pandas_axes(x: Any) -> tuple[Any, ...]:
    return tuple(x.axes)


def _equal_indexes(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and a.dtype == b.dtype and bool(a.equals(b)))


def _pandas_oddity(x: Any) -> str:
    dtypes = list(x.dtypes) if x.ndim > 1 else [x.dtype]
    for dtype in dtypes:
        if not isinstance(dtype, np.dtype):
            return f"of dtype {dtype}, which is pandas' own"
    if len(set(dtypes)) > 1:
        return "with columns of several dtypes"
    return "" if all(d.kind in "biufc" for d in dtypes) else f"of dtype {dtypes[0]}"


def _pandas_agrees(ufunc: np.ufunc, is_operator: bool, operands: Sequence[Operand]) -> bool:
    kinds = {x.dtype.kind for x in operands}
    is_matrix = any(x.is_labelled and len(x.shape) > 1 for x in operands)
    if not _promote_alike(operands, is_matrix and ufunc not in PYTHON):
        return False
    if ufunc in _QUOTIENTS:  # for other dtypes pandas returns infinities and NaN for zeros, or another dtype
        return all(x.dtype == np.float64 or x.weak in ("int", "float") for x in operands)
    if ufunc in _SHIFTS or ufunc is np.ldexp:
        return False
    if "b" in kinds:
        return ufunc in _OF_BOOLS and (ufunc not in _BITS or kinds == {"b"})
    return ufunc not in _BITS or len(kinds) == 1


def _promote_alike(operands: Sequence[Operand], takes_arrays: bool) -> bool:
    """Return whether pandas promotes the scalar operands as NumPy does.

    pandas takes NumPy scalars for Python numbers in some operations, and makes arrays of Python numbers in others
    (``takes_arrays``); the result dtype must be the same either way.
    """
    arrays = [x.dtype for x in operands if x.is_labelled or x.shape]
    scalars = [x.dtype for x in operands if not (x.is_labelled or x.shape) and (takes_arrays or not x.weak)]
    return all(np.result_type(*arrays, d) == np.result_type(*arrays, _PYTHON_NUMBERS[d.kind]) for d in scalars)


_PYTHON_NUMBERS: dict[str, Any] = {"b": True, "i": 1, "u": 1, "f": 1.0, "c": 1j}
_QUOTIENTS = (np.floor_divide, np.remainder, np.divmod, np.fmod)
_SHIFTS = (np.left_shift, np.right_shift)
_BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)
_OF_BOOLS = (
    *_BITS, np.invert, np.logical_not, np.logical_and, np.logical_or, np.logical_xor, np.equal, np.not_equal,
)  # fmt: skip


def _pandas_deferring(x: Any) -> Any:
    """Return the object, sharing its memory, with a class whose products defer to traced arrays."""
    kind: Any = type(x)
    if str(kind.__module__).partition(".")[0] != "pandas":
        return x
    copy = x.copy(deep=False)
    copy.__class__ = _deferring_class(kind)
    return copy


@functools.lru_cache(maxsize=16)
def _deferring_class(kind: Any) -> Any:
    def product(self: Any, other: Any) -> Any:
        return NotImplemented if _is_pullbacks(other) else kind.__matmul__(self, other)

    def dot(self: Any, other: Any) -> Any:
        return other.__rmatmul__(self) if _is_pullbacks(other) else kind.dot(self, other)

    def constructor(name: str) -> property:
        return property(lambda self: _deferring_class(getattr(super(deferring, self), name)))

    names = [n for n in ("_constructor_sliced", "_constructor_expanddim") if hasattr(kind, n)]
    members: dict[str, Any] = {n: constructor(n) for n in names} if kind.__name__ in ("Series", "DataFrame") else {}
    if kind.__name__ == "DataFrame":
        members.pop("_constructor_expanddim", None)
    members |= {
        "__matmul__": product, "dot": dot, "__module__": kind.__module__, "__qualname__": kind.__qualname__,
        "__pullback_real__": kind, "_constructor": property(lambda self: deferring),
    }  # fmt: skip
    deferring: Any = type(kind.__name__, (kind,), members)
    return deferring


def _is_pullbacks(x: Any) -> bool:
    return type(x).__module__.startswith("pullback.")


def _pandas_state(x: Any) -> Iterator[Any]:
    """Yield the arrays and labels of a pandas object."""
    yield from x.axes
    dtypes = {x.dtype} if x.ndim == 1 else set(x.dtypes)
    if len(dtypes) == 1 and all(isinstance(d, np.dtype) for d in dtypes):
        yield x.to_numpy()
    else:
        columns = [x] if x.ndim == 1 else [x.iloc[:, k] for k in range(x.shape[1])]
        yield from (c.to_numpy() if isinstance(c.dtype, np.dtype) else c.array for c in columns)
    yield repr(getattr(x, "name", None))


# xarray


def _xarray_axes(x: Any) -> tuple[Any, ...]:
    return tuple((dim, x.indexes.get(dim) if hasattr(x, "indexes") else None) for dim in x.dims)


def _equal_dims(a: Any, b: Any) -> bool:
    (dim, index), (other, its_index) = a, b
    if dim != other or (index is None) != (its_index is None):
        return False
    return index is None or _equal_indexes(index, its_index)


def _xarray_array(x: Any) -> Any:
    data = x.variable._data if hasattr(x, "variable") else x._data
    return data if _is_pullbacks(data) else np.asarray(x)


def _xarray_oddity(x: Any) -> str:
    data = x.variable._data if hasattr(x, "variable") else getattr(x, "_data", None)
    if data is None:
        return "which is no array"
    library = library_of(type(data))
    if library is not None and library.refused:
        return f"over a {class_title(type(data))}"
    return "" if isinstance(x.dtype, np.dtype) and x.dtype.kind in "biufc" else f"of dtype {x.dtype}"


def _xarray_state(x: Any) -> Iterator[Any]:
    variables = x.variables.items() if hasattr(x, "variables") else [("", x)] if not hasattr(x, "coords") else [
        ("", x.variable), *((name, c.variable) for name, c in x.coords.items())
    ]  # fmt: skip
    for name, variable in variables:
        yield repr((name, variable.dims))
        yield variable._data if library_of(type(variable._data)) else variable.values


def _xarray_agrees(ufunc: np.ufunc, is_operator: bool, operands: Sequence[Operand]) -> bool:
    return ufunc not in _SHIFTS


# torch


def _torch_oddity(x: Any) -> str:
    if x.is_sparse or x.is_quantized or x.layout.__str__() != "torch.strided":
        return "that is not dense"
    return ""


def _torch_state(x: Any) -> Iterator[Any]:
    yield repr((x.dtype, x.requires_grad, x.device))
    yield np.asarray(x.detach())


def _torch_agrees(ufunc: np.ufunc, is_operator: bool, operands: Sequence[Operand]) -> bool:
    tensors = {x.dtype for x in operands if x.is_labelled}
    if len(tensors) > 1 or any(d.kind != "f" for d in tensors):
        return False
    if is_operator:
        return ufunc in _OF_TENSORS and all((x.is_labelled and x.shape) or x.weak in ("int", "float") for x in operands)
    return ufunc not in _OF_TRUTH


_OF_TENSORS = (
    np.add, np.subtract, np.multiply, np.true_divide, np.power, np.negative, np.positive, np.absolute, *COMPARISONS.values(),
)  # fmt: skip
_OF_TRUTH = frozenset(u for u in vars(np).values() if isinstance(u, np.ufunc) and {"d->?", "dd->?"}.intersection(u.types))
"""Ufuncs that return bools: NumPy's results converted to tensors would not be bools."""


# polars


def _polars_oddity(x: Any) -> str:
    if hasattr(x, "columns") or x.ndim != 1 if hasattr(x, "ndim") else hasattr(x, "columns"):
        return "which has columns"
    if x.null_count():
        return "with nulls"
    return "" if str(x.dtype) in ("Float64", "Float32", "Boolean") else f"of dtype {x.dtype}"


def _polars_agrees(ufunc: np.ufunc, is_operator: bool, operands: Sequence[Operand]) -> bool:
    kinds = {x.dtype for x in operands if not x.weak}
    if len(kinds) != 1 or any(d.kind != "f" for d in kinds) or any(x.weak not in ("", "int", "float") for x in operands):
        return False
    if any(not x.is_labelled and not x.shape and not x.weak for x in operands):
        return False
    if ufunc is np.subtract and operands[0].weak:
        return False  # 0 - 0.0 is -0.0 in polars
    return ufunc in _OF_SERIES if is_operator else ufunc.nout == 1 and ufunc not in _OF_TRUTH


_OF_SERIES = (np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.positive, np.absolute)
"""The operators of polars that agree with NumPy; others differ for NaN, zeros and infinities."""


def _polars_state(x: Any) -> Iterator[Any]:
    columns = [x] if not hasattr(x, "columns") else list(x)
    for column in columns:
        yield repr((column.name, column.dtype, column.null_count()))
        yield column.to_numpy()


_DASK = "is computed in parts when it is asked for"

LIBRARIES: dict[str, Library] = {
    library.name: library
    for library in (
        Library(
            name="pandas",
            classes=frozenset({"Series", "DataFrame"}),
            instead=".to_numpy()",
            conversions={"to_numpy": "method", "values": "attribute"},
            plain=frozenset({"shape", "ndim", "size", "dtype"}),
            axes=_pandas_axes,
            same=_equal_indexes,
            oddity=_pandas_oddity,
            agrees=_pandas_agrees,
            state=_pandas_state,
            stand_in=_pandas_deferring,
            products=True,
            masks=True,
            has_items=True,
            has_rows=True,
        ),
        Library(
            name="xarray",
            classes=frozenset({"DataArray", "Dataset", "Variable"}),
            instead=".to_numpy()",
            array=_xarray_array,
            conversions={"to_numpy": "method", "values": "attribute", "data": "attribute"},
            plain=frozenset({"shape", "ndim", "size", "dtype"}),
            axes=_xarray_axes,
            same=_equal_dims,
            oddity=_xarray_oddity,
            agrees=_xarray_agrees,
            state=_xarray_state,
            stand_in=lambda x: x.copy(),
            masks=True,
            has_items=True,
        ),
        Library(
            name="torch",
            classes=frozenset({"Tensor"}),
            instead=".numpy()",
            conversions={"numpy": "method", "detach": "self", "cpu": "self"},
            plain=frozenset({"shape", "ndim"}),
            oddity=_torch_oddity,
            agrees=_torch_agrees,
            state=_torch_state,
        ),
        Library(
            name="polars",
            classes=frozenset({"Series", "DataFrame"}),
            instead=".to_numpy()",
            conversions={"to_numpy": "method"},
            oddity=_polars_oddity,
            agrees=_polars_agrees,
            state=_polars_state,
            stand_in=lambda x: x.clone(),
        ),
        Library(
            name="dask",
            classes=frozenset({"Array", "DataFrame", "Series", "Index", "Delayed", "DelayedLeaf", "DelayedAttr"}),
            instead=".compute()",
            conversions={},
            refused=_DASK,
        ),
    )
}
"""The libraries, by the names of their packages."""

LIBRARIES["dask_expr"] = LIBRARIES["dask"]

OTHER = Library(name="", classes=None, instead="", conversions={}, oddity=lambda x: "which computes in its own way")
"""Any other library whose objects have their own operators."""
