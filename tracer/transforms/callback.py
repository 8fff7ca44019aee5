"""Calls from a compiled program to Python functions, whose arguments and results are containers of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

import numpy as np

from pullback.ir import OPS, Loc
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, ArrayType, dtype_of
from pullback.ir.ops.control.host import HostFunction
from pullback.tracer.arrays.frame import frame_of, outside_traces
from pullback.tracer.arrays.literals import literal_type, refuse_dtype
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import LEAF, Identity, TreeDef, flatten, holds_labels, paths, unflatten
from pullback.tracer.names.unproxy import outside, outside_tree
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.source import shown
from pullback.tracer.user_code.tracebacks import traceback_at

_WEAK: dict[Any, type] = {bool: np.bool_, int: np.int64, float: np.float64}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The type of an array outside the trace: dtype, shape, and ``scalar``, the name of the Python type of a number (else
    empty)."""

    type: ArrayType
    scalar: str = ""
    is_cell: bool = False

    @staticmethod
    def of(x: Any) -> Kind:
        """Return the kind of a leaf."""
        if isinstance(x, TracedArray):
            return Kind(type=x.type, scalar=x.weak, is_cell=x.is_cell)
        array_type, weak = literal_type(x)
        return Kind(type=array_type, scalar=weak, is_cell=isinstance(x, np.ndarray))

    def to_python(self, array: Any) -> Any:
        """Return the array as it is passed to the function: as a number, scalar or array."""
        if self.scalar:
            return array.item()
        return array if array.ndim or self.is_cell else array[()]

    def from_python(self, value: Any, what: str) -> Any:
        """Return a result of the function as an array. Raises TypeError for another type."""
        array = np.asarray(value)
        dtype: Any = self.type.dtype.numpy
        fits = array.dtype == dtype or (type(value) in _WEAK and np.can_cast(np.min_scalar_type(value), dtype))
        if not fits or array.shape != self.type.shape:
            its = f"{array.dtype} of shape {array.shape}"
            raise TypeError(f"{what} is {its}, and {dtype} of shape {self.type.shape} was declared")
        return np.asarray(array, dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outgoing:
    """A Python function that compiled code calls, with the structures of its arguments and results.

    ``leaves`` are the leaves of the arguments, with a ``Kind`` for each array that is passed at the call.
    """

    function: Callable[..., Any]
    tree: TreeDef
    leaves: Sequence[Any]
    results: Sequence[Kind]
    result_tree: TreeDef
    title: str
    loc: Loc

    def __call__(self, *arrays: Any) -> list[Any]:
        """Call the function and return its results as arrays. Raises TypeError at the user's line if their types are not as
        declared."""
        remaining = iter(arrays)
        leaves = [x.to_python(next(remaining)) if isinstance(x, Kind) else x for x in self.leaves]
        args, kwargs = unflatten(self.tree, leaves)
        result = copy_context().run(outside_traces, self.function, *args, **kwargs)
        if result is None and self.result_tree.kind == "static" and self.result_tree.data is None:
            return []
        try:
            return self.checked(result)
        except TypeError as error:
            if not self.loc:
                raise
            note = f"  at {shown(self.loc.file)}:{self.loc.line}, in a function that compiled code calls"
            wrong = TypeError(str(error)).with_traceback(traceback_at(self.loc.file, self.loc.line))
            wrong.add_note(note)
            raise wrong from None

    def checked(self, result: Any) -> list[Any]:
        """Return the leaves of a result. Raises TypeError if structure or types differ from the declared ones."""
        leaves, tree = flatten(result, key=Identity)
        if str(tree) != str(self.result_tree):
            raise TypeError(f"{self.title} returned {tree}, and {self.result_tree} was declared (* is an array)")
        names = paths(tree, f"the result of {self.title}" if tree is LEAF else "result")
        return [kind.from_python(x, name) for kind, x, name in zip(self.results, leaves, names, strict=True)]


def declared(types: Any) -> tuple[list[Kind], TreeDef]:
    """Return the kinds and the structure of declared results.

    They are declared by examples (arrays and numbers), by objects with ``shape`` and ``dtype``, and, for scalars, by dtypes
    and number types. Raises TypeError for anything else.
    """
    leaves, tree = flatten(types, key=Identity)
    examples = iter(leaves)
    kinds: list[Kind] = []

    def visit(node: TreeDef) -> TreeDef:
        if node.kind == "leaf":
            kinds.append(Kind.of(next(examples)))
            return node
        if node.kind == "static" and node.data is not None:
            kinds.append(_declared(node.data))
            return LEAF
        return TreeDef(node.kind, node.type, node.data, node.key[2], [visit(c) for c in node.children])

    return kinds, visit(tree)


def _declared(item: Any) -> Kind:
    if item in _WEAK:
        return Kind(type=ArrayType(dtype_of(_WEAK[item])), scalar=item.__name__)
    shape = getattr(item, "shape", None)
    if isinstance(item, np.dtype) or (isinstance(item, type) and issubclass(item, np.generic)):
        dtype, shape = np.dtype(item), ()
    elif isinstance(shape, tuple) and hasattr(item, "dtype"):
        dtype = np.dtype(item.dtype)
    else:
        raise TypeError(
            f"result types are given by examples, dtypes and objects with shape and dtype (pb.ShapeDtypeStruct), not by {item!r}"
        )
    refuse_dtype(dtype, "a result")
    return Kind(type=ArrayType(dtype_of(dtype), tuple(int(e) for e in shape)), is_cell=not isinstance(item, type | np.dtype))


def call_outside(
    function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, constant: bool = False
) -> Any:
    """Emit a call of a Python function; its results, of the declared types, are traced arrays in their containers.

    Traced arguments reach the function as NumPy arrays, all others with their current values. With ``constant`` the
    derivatives of the results are zero. Raises TypeError for bad types.
    """
    kinds, result_tree = declared(types)
    frame, loc = frame_of(), user_loc()
    root = frame.root
    leaves, tree = flatten((tuple(args), dict(kwargs)), key=Identity)
    operands = [x for x in leaves if isinstance(x, TracedArray)]
    if holds_labels(tree):
        raise TraceError(
            f"{getattr(function, '__name__', 'a function')} is called back with an object of a library, and would get its array; "
            "write .to_numpy(), or .numpy(), behind it"
        )
    real = outside(function, root.names)
    outgoing = Outgoing(
        function=real,
        tree=outside_tree(tree, root.names),
        leaves=[Kind.of(x) if isinstance(x, TracedArray) else np.copy(x) if isinstance(x, np.ndarray) else x for x in leaves],
        results=kinds,
        result_tree=outside_tree(result_tree, root.names),
        title=getattr(real, "__name__", type(real).__name__),
        loc=loc,
    )
    identifier = TracedArray(ArrayType(I64), root, root.called(HostFunction(outgoing)))
    params: dict[str, Any] = {
        "shape": tuple(e for k in kinds for e in k.type.shape),
        "ranks": tuple(k.type.rank for k in kinds),
        "dtypes": tuple(k.type.dtype for k in kinds),
        "constant": constant,
        "axes": 0,
    }
    values = [frame.lift(x, loc) for x in (identifier, *operands)]
    results = frame.builder.at(loc).emit(OPS["callback"], values, params)
    arrays = [TracedArray(k.type, frame, v, weak=k.scalar, loc=loc) for k, v in zip(kinds, results, strict=True)]
    for kind, x in zip(kinds, arrays, strict=True):
        x.created = kind.is_cell and not kind.type.shape
    return unflatten(result_tree, arrays)


def types_found(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a Python function on arrays of ones of the types of its traced arguments, and return its result."""
    names = frame_of().root.names
    leaves, tree = flatten((tuple(args), dict(kwargs)), key=Identity)
    ones = [Kind.of(x).to_python(np.ones(x.shape, x.dtype)) if isinstance(x, TracedArray) else x for x in leaves]
    positional, keywords = unflatten(outside_tree(tree, names), ones)
    return copy_context().run(outside_traces, outside(function, names), *positional, **keywords)


def checked_call(function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a Python function outside of traces. Raises TypeError if the result has not the declared types."""
    kinds, result_tree = declared(types)
    leaves, tree = flatten((tuple(args), dict(kwargs)), key=Identity)
    title = getattr(function, "__name__", type(function).__name__)
    call = Outgoing(
        function=function, tree=tree, leaves=leaves, results=kinds, result_tree=result_tree, title=title, loc=user_loc()
    )
    return unflatten(result_tree, [kind.to_python(x) for kind, x in zip(kinds, call(), strict=True)])
