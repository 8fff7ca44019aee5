"""Creation of traced arrays, and helpers for the tracer's NumPy functions.

Broadcasting, promotion and defaults are explicit here: an emitted op has operands of equal types. A Python scalar is a
literal, and becomes a constant of the dtype of the operand that it meets (NEP 50); a NumPy array becomes an input.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir import OPS, Op, Value
from pullback.ir.core.scalars import as_float
from pullback.ir.core.types import ArrayType, dtype_of
from pullback.ir.shapes import symbolic
from pullback.ir.shapes.by_value import holds_value_size, is_value_size, same_extent, same_shape, shapes_differ
from pullback.ir.shapes.symbolic import is_size, lifted
from pullback.ir.shapes.symbolic_arrays import SymbolicArray, is_masked
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.concretize import Known, decides, known_value, pinned, static
from pullback.tracer.arrays.frame import MORE_THAN_64_BITS, Frame, frame_of
from pullback.tracer.arrays.literals import WEAK, WEAK_KIND, as_python, element_of, refuse_dtype, sized, weak_class
from pullback.tracer.arrays.promotion import Kind
from pullback.tracer.arrays.strides import Strides, has_falling_strides, row_major
from pullback.tracer.arrays.tables import HOOKS, hook
from pullback.tracer.arrays.traced import CAPTURED, Tagged, TracedArray, has_rows
from pullback.tracer.syntax.table import PREFIX, operator_called
from pullback.tracer.user_code.array_libraries import library_of
from pullback.tracer.user_code.check_messages import OUT_OF_BOUNDS, Handled, Limit
from pullback.tracer.user_code.clauses import NOT_HANDLED, error_class, is_handled
from pullback.tracer.user_code.errors import TraceError, refusal, user_loc
from pullback.tracer.user_code.source import Site


def static_array(x: Any) -> Any:
    """Return the NumPy array for an array available during tracing, with guards on its captured inputs; other values
    unchanged."""
    known = known_value(x) if isinstance(x, TracedArray) else None
    return x if known is None else np.asarray(pinned(x, known))


def extent_of(x: Any) -> int:
    """Return an integer as an extent, which a traced int defines by value. Raises TypeError."""
    if isinstance(x, TracedArray) and x.dtype.kind in "iu" and HOOKS["is_computed"](x):
        defined: int = HOOKS["value_extent"](x)
        return defined
    return symbolic.extent_of(x)


def static_scalar(x: TracedArray) -> TracedArray:
    """Return a literal for a Python int or bool available during tracing, which becomes static; other values unchanged."""
    if x.known is None or x.literal is not None or x.weak not in ("int", "bool"):
        return x
    return literal(pinned(x, x.known))


def _static_int(x: Any) -> Known | None:
    """Return the known value of an int or bool of rank 0; None for other values."""
    is_int = isinstance(x, TracedArray) and not x.type.shape and x.type.dtype.kind in "biu"
    return known_value(x) if is_int else None


def holds_static_int(x: Any) -> bool:
    """Return whether a value is, or holds in a list, tuple, dict or slice, an int or bool available during tracing."""
    if isinstance(x, slice):
        return holds_static_int((x.start, x.stop, x.step))
    if isinstance(x, dict):
        x = list(x.values())
    return any(map(holds_static_int, x)) if isinstance(x, list | tuple) else _static_int(x) is not None


def static_ints(x: Any) -> Any:
    """Replace ints and bools available during tracing, in lists, tuples, dicts and slices too, by plain values, and make them
    static."""
    if isinstance(x, slice):
        return slice(*map(static_ints, (x.start, x.stop, x.step)))
    if isinstance(x, dict):
        return {key: static_ints(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        items = list(map(static_ints, x))
        return x if all(a is b for a, b in zip(items, x)) else type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    known = _static_int(x)
    return x if known is None else pinned(x, known)


def wrap(value: Value, weak: str = "", readonly: str = "") -> TracedArray:
    """Return a traced array for a value of the current frame, in row-major order."""
    traced = TracedArray(value.type, frame_of(), value, weak=weak, readonly=readonly, loc=user_loc())  # type: ignore[arg-type]
    traced.is_dense = True
    return traced


def literal(value: Any, dtype: Any = None) -> TracedArray:
    """Return a constant scalar: weak for a Python scalar without ``dtype``. Raises OverflowError as NumPy does."""
    if is_value_size(value):
        count: TracedArray = HOOKS["number_of_size"](value)
        return count if dtype is None else cast(count, dtype)
    weak = weak_class(value)
    if dtype is None and weak in WEAK:
        name, array_type = WEAK[weak]
        if name == "int" and 2**63 <= value < 2**64:
            array_type = ArrayType(element_of(np.uint64))  # NumPy's dtype for it where it meets no other dtype
        return TracedArray(array_type, weak=name, literal=value, loc=user_loc())
    if is_size(value):
        array_type = ArrayType(element_of(value.dtype if dtype is None else dtype))
        return TracedArray(array_type, literal=sized(value, None, array_type.dtype.numpy), loc=user_loc())
    scalar = np.asarray(value) if dtype is None else np.asarray(value, dtype)
    array_type = ArrayType(element_of(scalar.dtype))
    return TracedArray(array_type, literal=as_python(scalar), loc=user_loc())


@hook("as_traced")
def as_traced(x: Any, dtype: Any = None) -> TracedArray:
    """Return a traced array for a traced array, scalar, NumPy array, or nested list of these; cast to ``dtype`` if it is
    passed.

    Python scalars stay weak. Raises TraceError for object, string and datetime values, and NumPy's ValueError for a ragged
    list.
    """
    traced = _as_traced(x)
    return traced if dtype is None else convert(traced, dtype)


def _as_traced(x: Any) -> TracedArray:
    if isinstance(x, TracedArray):
        return x
    if isinstance(x, Tagged):
        return _as_traced(x.proved())
    if has_rows(x):
        return x.array()
    if is_value_size(x):
        return HOOKS["number_of_size"](x)
    if weak_class(x) in WEAK:
        return literal(x)
    if isinstance(x, np.generic):
        return literal(x, x.dtype)
    if type(x) is SymbolicArray:
        return _as_symbolic(x)
    if is_special_array(x):
        raise TraceError(f"a {type(x).__name__} cannot be traced; {instead_of_special(x)}")
    if isinstance(x, list | tuple) and any(isinstance(e, TracedArray | list | tuple) for e in x) and holds_traced(x):
        return _stacked([_as_traced(e) for e in x])
    if not isinstance(x, np.ndarray):
        if library_of(type(x)) is not None:
            raise HOOKS["refusal_of"](x)
        x = x.__array__() if hasattr(type(x), "__array__") else np.asarray(x)
        if isinstance(x, TracedArray):
            return x
    refuse_dtype(x.dtype, "an array")
    if not x.ndim:
        return literal(x[()], x.dtype)
    frame = frame_of().root
    array = x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    array_type = ArrayType(dtype_of(array.dtype), array.shape)
    traced = TracedArray(array_type, frame, frame.constant(array), readonly=CAPTURED, loc=user_loc())
    traced.is_dense = array.flags.c_contiguous
    return traced


def _as_symbolic(x: SymbolicArray) -> TracedArray:
    """Return a traced array for an array that NumPy computed from symbolic sizes."""
    if not x.ndim:
        return literal(x[()], x.dtype)
    frame = frame_of().root
    value = frame.constant(x.value, x)
    traced = TracedArray(value.type, frame, value, readonly=CAPTURED, loc=user_loc())  # type: ignore[arg-type]
    traced.is_dense = bool(lifted(_is_dense, x))
    return traced


def _is_dense(x: np.ndarray[Any, Any]) -> bool:
    return bool(x.flags.c_contiguous)


def is_special_array(x: Any) -> bool:
    """Return whether an array is of a subclass that computes in its own way (masked, with units, a matrix)."""
    kind: Any = type(x)
    if kind is np.ndarray or kind is SymbolicArray or not isinstance(x, np.ndarray):
        return False
    return is_masked(x) or isinstance(x, np.matrix) or computes_itself(kind)


def instead_of_special(x: Any) -> str:
    """Return what to write instead of such an array."""
    if is_masked(x):
        return "pass x.filled(value), or its .data and .mask (np.asarray drops the mask)"
    return "pass a plain array (np.asarray)"


@functools.lru_cache(maxsize=256)
def computes_itself(kind: type) -> bool:
    """Return whether a subclass of NumPy's array overrides attributes that define how arrays compute."""
    own = {n for k in kind.__mro__ if issubclass(k, np.ndarray) and not _is_numpys(k) for n in vars(k)}
    return bool(own & _MEANINGS)


def _is_numpys(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] == "numpy"


_MEANINGS = frozenset(vars(np.ndarray)) - {
    "__new__", "__init__", "__doc__", "__array_finalize__", "__array_wrap__", "__array_priority__", "__reduce__", "__reduce_ex__",
    "__setstate__", "__repr__", "__str__", "__format__", "__copy__", "__deepcopy__", "__hash__", "__class_getitem__",
    "__sizeof__",
    "__dlpack__", "__dlpack_device__", "__getattribute__", "__getattr__", "__setattr__", "__dir__", "dump", "dumps", "tofile",
}  # fmt: skip
"""Attributes of arrays that define how they compute."""


def holds_traced(x: Any) -> bool:
    """Return whether a value is a traced array or a nested list or tuple that contains one."""
    if has_rows(x):
        return True
    return isinstance(x, TracedArray | Tagged) or (isinstance(x, list | tuple) and any(map(holds_traced, x)))


INHOMOGENEOUS = "setting an array element with a sequence: the elements of a list have different lengths"
"""The message of the check that arrays in a list have one shape."""


def _stacked(parts: Sequence[TracedArray]) -> TracedArray:
    """Return ``np.array`` of a list of arrays of one shape."""
    if any(shapes_differ(p.shape, parts[0].shape) for p in parts):
        np.array([np.broadcast_to(0.0, p.shape) for p in parts])  # raises NumPy's ValueError
    parts = [conform(p, parts[0].shape, INHOMOGENEOUS) for p in parts]
    rows = [expand(p, (0,)) for p in promote(*(cast(p, p.dtype) for p in parts))]
    return emit("concat", *rows, axis=0, starts=tuple(range(len(rows))), shape=(len(rows), *parts[0].shape))


def emit(op: str | Op, *operands: TracedArray, weak: str = "", **params: Any) -> Any:
    """Append an instruction to the current frame; return its result, a tuple of results, or None for an op without results."""
    record = OPS[op] if isinstance(op, str) else op
    frame, loc = frame_of(*operands), user_loc()
    if record.name == "check":
        if frame.root.has_handlers and _is_handled(**params):
            if frame.root.leaves_handlers:
                operands, params = operands[:1], {"error": NOT_HANDLED, "message": _not_handled(**params)}
            elif _is_decided(operands[0], **params):
                return None
        params["message"] = str(params["message"])
    if "dtype" in params:
        params["dtype"] = dtype_of(params["dtype"])
    values = [frame.lift(x, loc) for x in operands]
    try:
        params = with_named_extents(frame, record, params)
        results = frame.builder.at(loc).emit(record, values, params)
    except TypeError as error:
        raise TraceError(_not_defined(record, operands, str(error))) from None
    arrays = tuple(TracedArray(v.type, frame, v, weak=weak, loc=loc) for v in results)  # type: ignore[arg-type]
    unknown = [a for a in arrays if not a.is_dense]
    if unknown and record.name != "transpose" and all(map(row_major_results, operands)):
        for array in unknown:
            array.is_dense = True
    return arrays[0] if len(arrays) == 1 else arrays or None


def _is_handled(error: str, message: str, **_: Any) -> bool:
    """Return whether an ``except`` clause of the user's handles the error of a check."""
    kind = error_class(error)
    return kind is not None and not isinstance(message, Limit) and is_handled(kind, frame_of().root.ends_act)


def _not_handled(error: str, **_: Any) -> str:
    """Return the message of the check in place of one whose error a clause handles that is not compiled."""
    return f"{error} is raised here, which an except clause handles that is not compiled; {_TEST_BEFORE}"


_TEST_BEFORE = "test the values before, outside the try statement"


def _is_decided(holds: TracedArray, error: str, message: str, **_: Any) -> bool:
    """Return whether a guard decides a check whose error a clause handles, which is not emitted then. The error is raised here if
    the check fails, or on the path of a ``try`` statement on which it does."""
    kind = error_class(error)
    assert kind is not None
    if holds.shape:
        holds = emit("all", holds, axes=tuple(range(len(holds.shape))))
    statements = frame_of().root.try_statements
    if statements and not decides(holds):
        if statements[-1].of(holds):
            return False
        failed: Any = message.error() if isinstance(message, Handled) else kind(message)
        failed.is_by_statement = True
        raise failed
    what = f"an operation may raise {error}, which an except clause handles"
    try:
        is_held = static(holds, bool, what, _TEST_BEFORE)
    except TraceError as refused:
        refused.wants_checks = True
        raise
    if not is_held:
        raise message.error() if isinstance(message, Handled) else kind(message)
    return True


def with_named_extents(frame: Frame, op: Op, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return params in which the extents by value have their names in the IR."""
    sizes, named = frame.root.value_sizes, dict(params)
    if sizes is not None:
        for name in op.extents:
            if name in named:
                named[name] = tuple(sizes.name(e) if is_value_size(e) else e for e in named[name])
    return named


def _not_defined(op: Op, operands: Sequence[TracedArray], reason: str) -> str:
    """Return the error message for an op that is not defined for its operands, in NumPy's terms."""
    name = promotion.name_of(op.function) if isinstance(op.reference, str) else op.name
    kinds = {x.type.dtype for x in operands}
    met = f"{name} of traced {', '.join(str(x.type) for x in operands)} is not supported"
    if any(k.is_complex for k in kinds):
        return f"{met}: it is followed for real numbers alone; write it of .real and .imag, or compute it outside"
    if len(kinds) > 1:
        return f"{met}; bring the operands to one dtype, by .astype(dtype)"
    if not any(k.is_float for k in kinds):
        return f"{met}; write .astype(float)"
    return f"{met} ({reason.rpartition('): ')[2]}); write it in another way, or compute it outside the traced function"


def row_major_results(x: TracedArray) -> bool:
    """Return whether elementwise results of the array are known to be in row-major order."""
    if x.layout_of is not None:
        return row_major_results(x.layout_of)
    if x.base is None or x.recipe is None:
        return x.is_dense
    strides = strides_of(x, may_pin=False)
    return strides is not None and has_falling_strides(x.shape, strides)


def strides_of(x: TracedArray, may_pin: bool = True) -> Strides | None:
    """Return the array's strides in NumPy, in elements; None if they are not known.

    ``may_pin``: the trace may come to depend on the strides of an argument that is not in row-major order.
    """
    recipes = []
    while not x.is_dense:
        if x.base is not None and x.recipe is not None:
            recipes.append(x.recipe)
            x = x.base
        elif x.layout_of is not None:
            x = x.layout_of
        else:
            break
    strides = row_major(x.shape) if x.is_dense else None
    if not x.is_dense and may_pin and x.base is None and x.argument is not None:
        strides = frame_of().root.strides_of(x.argument)
    for recipe in reversed(recipes):
        strides = None if strides is None else recipe.strides(strides)
    return strides


@hook("full")
def full(shape: Sequence[int], value: Any, dtype: Any) -> TracedArray:
    """Return an array of one constant."""
    scalar = literal(value, dtype)
    return broadcast_to(scalar, shape) if len(shape) else fresh(scalar)


@hook("fresh")
def fresh(x: TracedArray) -> TracedArray:
    """Return the same value as another object, which can be written without changing ``x``."""
    frame = frame_of(x)
    copied = TracedArray(x.type, frame, frame.lift(x), weak=x.weak, loc=user_loc())
    copied.known, copied.is_dense, copied.type_tag = known_value(x), row_major_results(x), x.type_tag
    return copied


copy_of = fresh


def created(x: TracedArray) -> TracedArray:
    """Return the same value as a new array: of rank 0, it is not a scalar."""
    array = fresh(x)
    array.created, array.type_tag = True, None
    return array


# explicit casts, broadcasts and promotion


def cast(x: TracedArray, dtype: Any) -> TracedArray:
    """Cast ``x``; return ``x`` itself if it has the dtype and is not weak. Raises TraceError for complex as real."""
    element = element_of(dtype)
    if x.type.dtype.is_complex and element.kind not in "bc":
        raise refusal(functools.partial(_describe_complex, element.numpy), "take their .real, .imag or np.abs")
    if x.literal is not None:
        return _cast_literal(x, element.numpy)
    if x.weak == "int" and element.is_integer:
        check_bounds(x, element.numpy)
    if x.type.dtype is element:
        if not x.weak:
            return x
        strong = TracedArray(x.type, x.frame, x.value, loc=x.loc)
        strong.known = x.known
        return strong
    result: TracedArray = emit("cast", x, dtype=element)
    return result


def check_bounds(x: TracedArray, dtype: np.dtype[Any]) -> None:
    """Emit a check that raises NumPy's OverflowError for a Python int out of bounds for an integer dtype.

    Raises it at once for a value available during tracing.
    """
    if x.known is not None and not promotion.fits(x.known[0], dtype):
        np.asarray(pinned(x, x.known), dtype)  # raises
    own, target = np.iinfo(x.dtype), np.iinfo(dtype)
    sides = [("ge", int(target.min))] if target.min > own.min else []
    sides += [("le", int(target.max))] if target.max < own.max else []
    conditions = [emit(op, x, literal(bound, x.dtype)) for op, bound in sides]
    if conditions:
        inside = conditions[0] if len(conditions) == 1 else emit("bitand", *conditions)
        template = f"Python integer {{}} out of bounds for {dtype}"
        error = lambda: OverflowError(text_of(template, first_failing(x, inside)))  # noqa: E731
        emit("check", inside, error="OverflowError", message=Handled(f"{OUT_OF_BOUNDS} {dtype}", error))


def text_of(template: str, *values: Any) -> Any:
    """Return a text that shows values, made when it is used; the fields of its template are ``{}`` and ``{!r}``."""
    return operator_called(PREFIX + "text of")(template, *values)


def first_failing(x: TracedArray, holds: TracedArray) -> TracedArray:
    """Return the first element of integers for which a condition does not hold, as a Python int."""
    if x.shape:
        position = emit("iota", shape=(x.size,), axis=0, dtype=np.int64)
        x = as_traced(np.sum(np.where(position == np.argmin(np.ravel(holds)), np.ravel(x), 0)))
    return TracedArray(x.type, x.frame, x.value, weak="int", loc=x.loc)


_TOO_LARGE = "Python int too large to convert to C long"


def stored(x: TracedArray, dtype: Any, *, is_item: bool = False) -> TracedArray:
    """Cast ``x`` as NumPy does when creating an array: a Python float among integers is truncated as by ``int``.

    ``is_item``: as one element of an array, where NumPy's scalars among signed integers are truncated too.
    """
    target = np.dtype(dtype)
    is_number = not x.ndim and not x.is_cell
    if is_item and is_number and not x.weak and x.dtype.kind == "c" and target.kind == "i":
        x = convert(x, np.float64)
    is_item = is_item and is_number and not x.weak and x.dtype.kind in "iuf" and not np.can_cast(x.dtype, target)
    is_item = is_item and target.kind == "i"
    if target.kind not in "iu" or not (x.weak == "float" or is_item):
        return convert(x, target)
    known = known_value(x)
    if known is not None:
        element = np.zeros(1, target)
        if not is_size(known[0]):
            element[0] = known[0]  # raises what NumPy raises
    if x.literal is not None:
        return literal(lifted(_element, x.literal, x.dtype, target) if is_item else lifted(np.asarray, x.literal, target), target)
    if x.dtype.kind in "iu":
        if x.dtype == np.uint64:
            emit("check", emit("le", x, literal(2**63 - 1, np.uint64)), error="OverflowError", message=_TOO_LARGE)
        check_bounds(cast(x, np.int64), target)
        return cast(x, target)
    as_float = cast(x, np.float64)
    emit("check", emit("eq", as_float, as_float), error="ValueError", message="cannot convert float NaN to integer")
    finite = emit("lt", emit("abs", as_float), literal(np.inf, np.float64))
    emit("check", finite, error="OverflowError", message="cannot convert float infinity to integer")
    as_float = emit("trunc", as_float)
    is_wide = target in (np.uint32, np.uint64)  # NumPy converts these through C's unsigned long
    least, end = literal(-(2.0**63), np.float64), literal(2.0**64 if is_wide else 2.0**63, np.float64)
    fits = emit("bitand", emit("ge", as_float, least), emit("lt", as_float, end))
    emit("check", fits, error="OverflowError", message=_TOO_LARGE)
    if is_wide:
        inside = emit("ge", as_float, literal(0.0, np.float64))
        if target == np.uint32:
            inside = emit("bitand", inside, emit("lt", as_float, literal(2.0**32, np.float64)))
        emit("check", inside, error="OverflowError", message=f"{OUT_OF_BOUNDS} {target}")
        return cast(as_float, target)
    truncated: TracedArray = cast(as_float, np.int64)
    check_bounds(truncated, target)
    return cast(truncated, target)


def _element(value: Any, source: Any, target: Any) -> Any:
    """Return a NumPy scalar converted as an element of an array."""
    element = np.zeros(1, target)
    element[0] = np.asarray(value, source)[()]
    return element[0]


def as_stored(x: Any, dtype: Any, *, is_item: bool = False) -> TracedArray:
    """Return a traced array of a dtype, converted as NumPy creates an array: elements of lists one by one."""
    if isinstance(x, list | tuple) and not has_rows(x):
        if holds_traced(x):
            return _stacked([as_stored(e, dtype, is_item=True) for e in x])
        if np.dtype(dtype).kind in "iu" and not is_size(x) and not any(map(is_size, x)):
            return as_traced(np.asarray(x, dtype))
    return stored(as_traced(x), dtype, is_item=is_item)


def wrapping(x: TracedArray) -> TracedArray:
    """Return a Python scalar as an array that wraps around when it is cast; other values unchanged."""
    if x.weak == "int" and x.literal is not None:
        if not -(2**63) <= x.literal < 2**64:
            raise TraceError(MORE_THAN_64_BITS)
        return literal(x.literal, x.dtype)
    return cast(x, x.dtype)


def convert(x: TracedArray, dtype: Any) -> TracedArray:
    """Cast ``x`` as NumPy's astype: a complex value as a real one is its real part, with NumPy's warning.

    Raises TypeError for a Python complex as a real one.
    """
    element = element_of(dtype)
    if x.type.dtype.is_complex and element.kind not in "bc":
        if x.weak:
            kind = "int" if element.is_integer else "float"
            expected = "a string, a bytes-like object or a real number" if kind == "int" else "a string or a real number"
            raise TypeError(f"{kind}() argument must be {expected}, not 'complex'")
        loc, message = user_loc(), "Casting complex values to real discards the imaginary part"
        warnings.warn_explicit(message, np.exceptions.ComplexWarning, loc.file or "pullback", loc.line)
        x = x.real
    return cast(x, dtype)


def _describe_complex(dtype: np.dtype[Any], site: Site) -> str:
    """Describe complex numbers that a function, operator or store of real numbers received."""
    match site.node:
        case ast.Call(func=function):
            return f"complex numbers in {ast.unparse(function)}(), which takes {dtype}"
        case ast.Assign() | ast.AugAssign() | ast.Subscript():
            return f"complex numbers stored as {dtype}"
    return f"complex numbers where {dtype} is meant"


def _cast_literal(x: TracedArray, dtype: np.dtype[Any]) -> TracedArray:
    value = x.literal
    if x.weak == "int" and dtype.kind in "iu":
        return literal(value, dtype)
    if x.weak == "int" and dtype.kind == "f":
        value = as_float(value)
    with np.errstate(all="ignore"):
        if is_size(value):
            converted = sized(value, None if x.weak else x.dtype, dtype)
            return TracedArray(ArrayType(element_of(dtype)), literal=converted, loc=user_loc())
        return literal(np.asarray(value, None if x.weak else x.dtype).astype(dtype), dtype)


def broadcast_to(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """Broadcast explicitly: axes that grow from 1 are squeezed, then broadcast. Returns ``x`` itself if it has the shape."""
    target = tuple(map(extent_of, shape))
    if len(x.shape) == len(target) and same_shape(x.shape, target):
        return x
    x = with_extents(x, target)
    offset = len(target) - x.ndim
    if offset < 0 or any(not same_extent(e, f) and not is_one(e) for e, f in zip(x.shape, target[offset:], strict=True)):
        text = "operands could not be broadcast together with remapped shapes [original->remapped]"
        raise ValueError(f"{text}: {x.shape} and requested shape {target}")
    grown = tuple(k for k, e in enumerate(x.shape) if not same_extent(e, target[offset + k]))
    narrow = emit("squeeze", x, axes=grown, weak=x.weak) if grown else x
    result: TracedArray = emit("broadcast", narrow, axes=(*range(offset), *(offset + k for k in grown)), shape=target)
    return result


def is_one(extent: int) -> bool:
    """Return whether an extent is 1; one by value does not broadcast."""
    return not is_value_size(extent) and extent == 1


NOT_TOGETHER = "operands could not be broadcast together: an extent that depends on values differs from its partner"
"""The message of the check that two extents, one of them by value, are equal."""


def with_extents(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """Return an array with the extents of ``shape``, aligned at the last axis, where one of the two is by value. Emits the checks
    that these are equal; other axes, also those of extent 1, are unchanged."""
    offset = len(shape) - x.ndim
    if offset < 0 or not (holds_value_size(x.shape) or holds_value_size(shape)):
        return x
    extents = list(x.shape)
    for k, (own, other) in enumerate(zip(x.shape, shape[offset:], strict=True)):
        if not (is_one(own) or is_one(other)) and (is_value_size(own) or is_value_size(other)) and not same_extent(own, other):
            HOOKS["check_extents"](own, other, NOT_TOGETHER)
            extents[k] = other
    return x if same_shape(extents, x.shape) else emit("reshape", x, shape=tuple(extents), weak=x.weak)


def conform(x: TracedArray, shape: Sequence[int], message: str, error: type[Exception] = ValueError) -> TracedArray:
    """Return an array that must have a shape, with the shape's extents. Raises the error if it is known to have another one, and
    emits the check where one extent of the two is by value."""
    if shapes_differ(x.shape, shape):
        raise error(message)
    if same_shape(x.shape, shape):
        return x
    for own, other in zip(x.shape, shape, strict=True):
        HOOKS["check_extents"](own, other, message, error.__name__)
    return emit("reshape", x, shape=tuple(shape), weak=x.weak)


def number_of_extent(extent: int) -> TracedArray:
    """Return an extent as an int64."""
    return cast(as_traced(extent), np.int64)


def broadcast_into(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """Broadcast a value to the shape of its target; it may have extra leading axes of extent 1. Raises NumPy's ValueError."""
    extra = 0
    while extra < x.ndim - len(shape) and is_one(x.shape[extra]):
        extra += 1
    value = with_extents(emit("squeeze", x, axes=tuple(range(extra))) if extra else x, shape)
    offset = len(shape) - value.ndim
    if offset < 0 or any(not same_extent(e, f) and not is_one(e) for e, f in zip(value.shape, shape[offset:], strict=True)):
        own, wanted = promotion.shapes_text([value.shape]), promotion.shapes_text([tuple(shape)])
        raise ValueError(f"could not broadcast input array from shape {own} into shape {wanted}")
    return broadcast_to(value, shape)


def refuse_sequence(value: Any, dtype: Any) -> None:
    """Raise NumPy's error for an array where a single number of a dtype is needed; an array of one element can be a bool."""
    if np.ndim(value) and not (np.dtype(dtype).kind == "b" and isinstance(value, TracedArray) and value.size == 1):
        if np.dtype(dtype).kind == "c":
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        raise ValueError("setting an array element with a sequence.")


def broadcast_together(*xs: TracedArray) -> list[TracedArray]:
    """Broadcast all operands to their common shape. Raises NumPy's ValueError if there is none."""
    shapes = [x.shape for x in xs]
    if all(same_shape(s, shapes[0]) for s in shapes):
        return list(xs)
    shape = common_shape(shapes)
    if shape is None:
        raise ValueError(f"operands could not be broadcast together with shapes {promotion.shapes_text(shapes)} ")
    return [broadcast_to(x, shape) for x in xs]


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """As ``np.broadcast_shapes``, for shapes that may be symbolic. Raises its ValueError."""
    common = common_shape(shapes)
    return tuple(np.broadcast_shapes(*(tuple(s) for s in shapes))) if common is None else common


def common_shape(shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Return the shape to which arrays of these shapes broadcast; None if there is none."""
    common = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for k, n in enumerate(shape, len(common) - len(shape)):
            if type(n) is int and n == 1:
                continue
            if type(common[k]) is int and common[k] == 1:
                common[k] = n
            elif is_value_size(n) or is_value_size(common[k]):
                common[k] = common[k] if is_value_size(n) else n
            elif common[k] != n:
                if common[k] == 1:
                    common[k] = n
                elif n != 1:
                    return None
    return tuple(common)


def expand(x: TracedArray, axes: Sequence[int]) -> TracedArray:
    """Insert axes of extent 1 at the positions ``axes`` (ascending) of the result."""
    if not axes:
        return x
    extents = iter(x.shape)
    shape = tuple(1 if k in axes else next(extents) for k in range(x.ndim + len(axes)))
    result: TracedArray = emit("broadcast", x, axes=tuple(axes), shape=shape)
    return result


def kind_of(x: TracedArray) -> Kind:
    """Return the representation of ``x`` in a promotion: its dtype, or the type of a weak Python scalar."""
    return WEAK_KIND.get(x.weak) or x.dtype


SAMPLES: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def sample_of(x: TracedArray) -> Any:
    """Return a value that NumPy converts and casts as it does ``x``, to raise its own errors.

    For a Python number it is its value if the trace knows it, else one of its type; for an array, an array without elements.
    """
    if x.weak:
        value = x.literal if x.known is None else x.known[0]
        return SAMPLES[x.weak] if value is None or is_size(value) else value
    return np.ones((0,) * min(x.ndim, 1), x.dtype)


def result_type(*xs: TracedArray) -> np.dtype[Any]:
    """Return NumPy's ``result_type``, with weak scalars."""
    return promotion.common(tuple(kind_of(x) for x in xs))


def promote(*xs: TracedArray) -> list[TracedArray]:
    """Cast all operands to their common dtype."""
    dtype = result_type(*xs)
    return [cast(x, dtype) for x in xs]


def promote_wrapping(*xs: TracedArray) -> list[TracedArray]:
    """As ``promote``, but Python ints out of bounds wrap around."""
    dtype = result_type(*xs)
    return [cast(wrapping(x), dtype) for x in xs]
