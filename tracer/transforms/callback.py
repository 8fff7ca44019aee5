"""Calls of Python functions from inside a program: their arguments and results are containers of NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir import OPS, Loc
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
    """What an array is outside: its dtype and shape; ``scalar`` is the Python type of a number, or "" for NumPy's."""

    type: ArrayType
    scalar: str = ""
    is_cell: bool = False

    @staticmethod
    def of(x: Any) -> Kind:
        """Of a leaf."""
        if isinstance(x, TracedArray):
            return Kind(type=x.type, scalar=x.weak, is_cell=x.is_cell)
        array_type, weak = literal_type(x)
        return Kind(type=array_type, scalar=weak, is_cell=isinstance(x, np.ndarray))

    def given(self, array: Any) -> Any:
        """The array as the function gets it."""
        if self.scalar:
            return array.item()
        return array if array.ndim or self.is_cell else array[()]

    def taken(self, value: Any, what: str) -> Any:
        """A result of the function as an array. Raises TypeError for another type."""
        found = np.asarray(value)
        dtype: Any = self.type.dtype.numpy
        fits = found.dtype == dtype or (type(value) in _WEAK and np.can_cast(np.min_scalar_type(value), dtype))
        if not fits or found.shape != self.type.shape:
            its = f"{found.dtype} of shape {found.shape}"
            raise TypeError(f"{what} is {its}, and {dtype} of shape {self.type.shape} was declared")
        return np.asarray(found, dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Outgoing:
    """A Python function with the structures of its arguments and results.

    ``leaves`` are those of the arguments, in which a ``Kind`` stands for each array that a call brings.
    """

    function: Callable[..., Any]
    tree: TreeDef
    leaves: Sequence[Any]
    results: Sequence[Kind]
    result_tree: TreeDef
    title: str
    loc: Loc

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results as arrays of their types. Raises TypeError, at the line of the call, if they are others."""
        brought = iter(arrays)
        leaves = [x.given(next(brought)) if isinstance(x, Kind) else x for x in self.leaves]
        args, kwargs = unflatten(self.tree, leaves)
        found = copy_context().run(outside_traces, self.function, *args, **kwargs)
        try:
            return self.checked(found)
        except TypeError as error:
            if not self.loc:
                raise
            place = f"  at {shown(self.loc.file)}:{self.loc.line}, in a function that compiled code calls"
            wrong = TypeError(str(error)).with_traceback(traceback_at(self.loc.file, self.loc.line))
            wrong.add_note(place)
            raise wrong from None

    def checked(self, found: Any) -> list[Any]:
        """The leaves of a result. Raises TypeError if they are not what was declared."""
        leaves, tree = flatten(found, key=Identity)
        if str(tree) != str(self.result_tree):
            raise TypeError(f"{self.title} returned {tree}, and {self.result_tree} was declared (* is an array)")
        names = paths(tree, f"the result of {self.title}" if tree is LEAF else "result")
        return [kind.taken(x, name) for kind, x, name in zip(self.results, leaves, names, strict=True)]


def declared(types: Any) -> tuple[list[Kind], TreeDef]:
    """The kinds and the structure of declared results: arrays and numbers as examples, objects with ``shape`` and ``dtype``, and,
    for scalars, dtypes and the types of numbers. Raises TypeError for anything else."""
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


def _declared(given: Any) -> Kind:
    if given in _WEAK:
        return Kind(type=ArrayType(dtype_of(_WEAK[given])), scalar=given.__name__)
    shape = getattr(given, "shape", None)
    if isinstance(given, np.dtype) or (isinstance(given, type) and issubclass(given, np.generic)):
        dtype, shape = np.dtype(given), ()
    elif isinstance(shape, tuple) and hasattr(given, "dtype"):
        dtype = np.dtype(given.dtype)
    else:
        raise TypeError(
            f"result types are given by examples, dtypes and objects with shape and dtype (pb.ShapeDtypeStruct), not by {given!r}"
        )
    refuse_dtype(dtype, "a result")
    return Kind(type=ArrayType(dtype_of(dtype), tuple(int(e) for e in shape)), is_cell=not isinstance(given, type | np.dtype))


def call_outside(
    function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any], *, constant: bool = False
) -> Any:
    """Have the program call a Python function; its results, of the declared types, are traced arrays in their containers.

    Traced arrays among the arguments reach the function as NumPy arrays, everything else as it is now. With ``constant`` the
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
    number = TracedArray(ArrayType(I64), root, root.called(HostFunction(outgoing)))
    params: dict[str, Any] = {
        "shape": tuple(e for k in kinds for e in k.type.shape),
        "ranks": tuple(k.type.rank for k in kinds),
        "dtypes": tuple(k.type.dtype for k in kinds),
        "constant": constant,
        "axes": 0,
    }
    values = [frame.lift(x, loc) for x in (number, *operands)]
    results = frame.builder.at(loc).emit(OPS["callback"], values, params)
    made = [TracedArray(k.type, frame, v, weak=k.scalar, loc=loc) for k, v in zip(kinds, results, strict=True)]
    for kind, x in zip(kinds, made, strict=True):
        x.created = kind.is_cell and not kind.type.shape
    return unflatten(result_tree, made)


def types_found(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a Python function returns for arrays of ones of the types of its traced arguments."""
    names = frame_of().root.names
    leaves, tree = flatten((tuple(args), dict(kwargs)), key=Identity)
    ones = [Kind.of(x).given(np.ones(x.shape, x.dtype)) if isinstance(x, TracedArray) else x for x in leaves]
    positional, keywords = unflatten(outside_tree(tree, names), ones)
    return copy_context().run(outside_traces, outside(function, names), *positional, **keywords)


def checked_call(function: Callable[..., Any], types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a Python function outside of traces; the result has the declared types. Raises TypeError if it has not."""
    kinds, result_tree = declared(types)
    leaves, tree = flatten((tuple(args), dict(kwargs)), key=Identity)
    title = getattr(function, "__name__", type(function).__name__)
    call = Outgoing(
        function=function, tree=tree, leaves=leaves, results=kinds, result_tree=result_tree, title=title, loc=user_loc()
    )
    return unflatten(result_tree, [kind.given(x) for kind, x in zip(kinds, call(), strict=True)])
