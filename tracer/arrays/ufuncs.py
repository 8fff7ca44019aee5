"""Calls of ufuncs on traced arrays: NumPy's calling convention, its promotion, and the op or composition that implements each."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir import Op
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.concretize import Known, decides, known_value, not_traced
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.labelled import apply_ufunc, is_labelled, refusal_of
from pullback.tracer.arrays.make import (
    SAMPLES,
    as_traced,
    broadcast_shapes,
    broadcast_to,
    broadcast_together,
    cast,
    convert,
    copy_of,
    emit,
    expand,
    full,
    kind_of,
    literal,
    promote,
    refuse_sequence,
    sample_of,
    static_scalar,
    wrapping,
)
from pullback.tracer.arrays.masked import Selection
from pullback.tracer.arrays.mixed_numbers import Condition, all_python, are_whole, as_numpys, as_python, is_mixed, typed
from pullback.tracer.arrays.promotion import composition_of, name_of, op_of, unsupported
from pullback.tracer.arrays.python_floats import (
    bound_float,
    check_float_operands,
    check_power,
    is_users_operation,
    require,
)
from pullback.tracer.arrays.python_ints import check_divisor, keep_exact
from pullback.tracer.arrays.python_scalars import settled_truth
from pullback.tracer.arrays.tables import FUNCTIONS, HOOKS, METHODS, hook, register_method
from pullback.tracer.arrays.traced import Tagged, TracedArray
from pullback.tracer.arrays.views import update  # fmt: skip
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users_object

_WEAK = {"b": "bool", "i": "int", "f": "float", "c": "complex"}
_COMPARISONS: dict[np.ufunc, np.ufunc] = {
    np.equal: np.equal, np.not_equal: np.not_equal, np.less: np.greater, np.less_equal: np.greater_equal,
    np.greater: np.less, np.greater_equal: np.less_equal,
}  # fmt: skip
_REDUCTIONS: dict[np.ufunc, Any] = {
    np.add: np.sum, np.multiply: np.prod, np.maximum: np.max, np.minimum: np.min, np.logical_and: np.all,
    np.logical_or: np.any,
}  # fmt: skip
_ACCUMULATIONS: dict[np.ufunc, Any] = {np.add: np.cumsum, np.multiply: np.cumprod}
_PYTHON: dict[np.ufunc, Any] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.power: operator.pow, np.negative: operator.neg,
    np.positive: operator.pos, np.absolute: operator.abs, np.left_shift: operator.lshift, np.right_shift: operator.rshift,
}  # fmt: skip


_OPERATORS: dict[np.ufunc, Any] = {
    **_PYTHON, np.bitwise_and: operator.and_, np.bitwise_or: operator.or_, np.bitwise_xor: operator.xor,
    np.invert: operator.invert,
}  # fmt: skip

_OF_COMPLEX = (np.add, np.subtract, np.multiply, np.true_divide, np.power, np.equal, np.not_equal)
"""The operators of Python's complex numbers."""

_ORDER: dict[np.ufunc, Any] = {
    np.less: operator.lt, np.less_equal: operator.le, np.greater: operator.gt, np.greater_equal: operator.ge,
}  # fmt: skip
_RELATIONS: dict[np.ufunc, Any] = {**_ORDER, np.equal: operator.eq, np.not_equal: operator.ne}


@register_method("__array_ufunc__")
def on_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Implement ``__array_ufunc__`` of traced arrays."""
    if any(isinstance(x, Selection | Tagged) for x in inputs) or any(map(overrides_ufuncs, inputs)):
        return NotImplemented
    if any(map(is_labelled, inputs)):
        if method != "__call__" or kwargs:
            raise refusal_of(next(filter(is_labelled, inputs)), f"{name_of(ufunc)} with such arguments of")
        return apply_ufunc(ufunc, inputs, is_operator=False)
    match method:
        case "__call__":
            has_no_op = composition_of(ufunc) is None and op_of(ufunc) is None and ufunc.signature is None
            replacement = HOOKS["twin_of_ufunc"](ufunc) if has_no_op else None
            return call_ufunc(ufunc, *inputs, **kwargs) if replacement is None else replacement(*inputs, **kwargs)
        case "reduce" if ufunc in _REDUCTIONS:
            return _reduce(ufunc, _REDUCTIONS[ufunc], *inputs, **kwargs)
        case "accumulate" if ufunc in _ACCUMULATIONS:
            if not np.ndim(inputs[0]):
                raise TypeError("cannot accumulate on a scalar")
            axis = HOOKS["accumulated_axis"](kwargs.pop("axis", inputs[1] if len(inputs) > 1 else 0), np.ndim(inputs[0]))
            return _reduce(ufunc, _ACCUMULATIONS[ufunc], inputs[0], axis, *inputs[2:], **kwargs)
        case "reduce" | "accumulate" | "reduceat":
            out = kwargs.pop("out", None)
            if out is None or (isinstance(out, tuple) and out[0] is None):
                return HOOKS[method](ufunc, *inputs, **kwargs)
            return HOOKS["store"](HOOKS[method], out, (ufunc, *inputs), kwargs)
        case "at":
            return METHODS["at"](ufunc, *inputs, **kwargs)
        case "outer":
            x, y = (as_traced(i) if ufunc in _COMPARISONS else wrapping(as_traced(i)) for i in inputs)
            return call_ufunc(ufunc, expand(x, range(x.ndim, x.ndim + y.ndim)), y, **kwargs)
    raise TraceError(f"{name_of(ufunc)}.{method} of traced arrays is not supported; write it with slices, reductions and loops")


def _reduce(
    ufunc: np.ufunc, function: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, *more: Any, **kwargs: Any
) -> Any:
    names = ("keepdims", "initial", "where")
    kwargs |= dict(zip(names, more))
    if isinstance(out, tuple):
        (out,) = out
    x = as_traced(array)
    if ufunc in (np.maximum, np.minimum, np.logical_and, np.logical_or):
        if dtype is not None:
            with np.errstate(all="ignore"):
                x = convert(x, ufunc.reduce(np.ones((1,), x.dtype), dtype=np.dtype(dtype)).dtype)
        start = kwargs.pop("initial", np._NoValue) if ufunc in (np.logical_and, np.logical_or) else np._NoValue
        if start is not np._NoValue and start is not None:
            refuse_sequence(start, bool)
            result = call_ufunc(ufunc, as_traced(start), _reduce(ufunc, function, x, axis, None, None, **kwargs))
            return result if out is None else _store_into(ufunc, out, result, True, "unsafe")
    elif dtype is not None:
        kwargs["dtype"] = dtype
    if out is not None:
        kwargs["out"] = out
    passed = {k: v for k, v in kwargs.items() if v is not np._NoValue and not (k == "where" and v is True)}
    return FUNCTIONS[function](x, axis=axis, **passed)


@hook("store")
def store(implementation: Any, out: Any, args: Any, kwargs: Any) -> TracedArray:
    """Call ``implementation``, store its result in ``out``, and return ``out``."""
    name = implementation.__name__
    if isinstance(out, tuple):
        (out,) = out
    if not isinstance(out, TracedArray):
        raise not_traced(f"np.{name} with out= an array that the function did not make", "use its result")
    if not (out.ndim or out.is_cell):
        raise TypeError("return arrays must be of ArrayType")
    casting = kwargs.pop("casting", _CASTING[name]) if name in _CASTING else "unsafe"
    takes_dtype = name in _ACCUMULATE_IN_OUT and kwargs.get("dtype") is None and len(args) < 3
    if takes_dtype and out.dtype.kind == "f" and np.result_type(as_traced(args[0]).dtype, out.dtype) == out.dtype:
        kwargs = {**kwargs, "dtype": out.dtype}
    result = as_traced(implementation(*args, **kwargs))
    if name in _INTO_THEIR_DTYPE and (out.dtype, out.shape) != (result.dtype, result.shape):
        raise _INTO_THEIR_DTYPE[name]
    if out.shape != result.shape and name not in _BROADCASTING:
        raise ValueError(f"output parameter of {name} has the wrong shape: found {out.shape} but expected {result.shape}")
    if name in _SAME_KIND:
        _refuse_cast(_SAME_KIND[name], [full((1,), 1, result.dtype)] * _SAME_KIND[name].nin, out, "same_kind")
    if name in _BROADCASTING:
        _refuse_shapes([result], [out])
    update(out, result, casting)
    return out


_ACCUMULATE_IN_OUT = ("sum", "prod", "mean", "cumsum", "cumprod")
_CASTING = {"concatenate": "same_kind", "einsum": "safe", "transform": "same_kind"}
_BROADCASTING = ("clip", "round", "matmul")
_SAME_KIND = {
    "std": np.sqrt, "var": np.true_divide, "clip": np.maximum, "round": np.rint, "matmul": np.matmul, "ptp": np.subtract,
    "quantile": np.add, "percentile": np.add,
}  # fmt: skip
_NOT_ACCEPTABLE = ValueError(
    "output array is not acceptable (must have the right datatype, number of dimensions, and be a C-Array)"
)
_INTO_THEIR_DTYPE: dict[str, Exception] = {
    "dot": _NOT_ACCEPTABLE,
    "argmax": ValueError("output array does not match result of np.argmax."),
    "argmin": ValueError("output array does not match result of np.argmin."),
}


def _refuse_cast(function: Any, operands: Sequence[TracedArray], out: Any, casting: str) -> None:
    """Raise NumPy's own error if a result cannot be cast into an array."""
    with np.errstate(all="ignore"):
        function(*map(sample_of, operands), out=np.ones((0,), out.dtype), casting=casting)


def _check_cast(ufunc: np.ufunc, xs: Sequence[TracedArray], out: Any, casting: str, dtype: Any = None) -> None:
    """Raise NumPy's own error if a ufunc's result cannot be cast into an array, before shapes are checked."""
    if ufunc.nout == 1 and ufunc.signature is None:
        (dtype_of_result,) = promotion.loop(ufunc, tuple(map(kind_of, xs)), dtype)[1]
        if not np.can_cast(dtype_of_result, out.dtype, casting):  # type: ignore[arg-type]
            _refuse_cast(ufunc, xs, out, casting)


def call_ufunc(
    ufunc: np.ufunc, *inputs: Any, out: Any = None, where: Any = True, dtype: Any = None, casting: str = "same_kind",
    order: str = "K", subok: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """Call a ufunc with at least one traced array. Raises NumPy's errors if there is no loop or no common shape."""
    outs = out if isinstance(out, tuple) else (out,) * ufunc.nout if out is None else (out,)
    inputs, outs = inputs[: ufunc.nin], (*inputs[ufunc.nin :], *outs[len(inputs) - ufunc.nin :])
    frame_of(*(x for x in inputs if isinstance(x, TracedArray) and x.literal is None))
    if ufunc.types and all(set(t) <= set("O->") for t in ufunc.types):
        raise TraceError("a ufunc that np.frompyfunc made of a Python function; call the function on arrays, or by np.vectorize")
    xs = [as_traced(x) for x in inputs]
    if ufunc.signature is not None:
        composition = composition_of(ufunc)
        if composition is None:
            raise TraceError(unsupported(ufunc))
        keywords = kwargs if dtype is None else {**kwargs, "dtype": dtype}
        result = composition(*xs, **keywords)
    else:
        if kwargs:
            raise TraceError(f"{name_of(ufunc)} with {', '.join(kwargs)}= is not supported for traced arrays")
        kind = None if dtype is None else np.dtype(dtype)
        for o in outs:
            if isinstance(o, TracedArray | np.ndarray):
                _check_cast(ufunc, xs, o, casting, kind)
        if casting != "same_kind":
            _refuse_casting(ufunc, xs, kind, casting)
        try:
            result = apply(ufunc, *xs, dtype=kind, casting=casting)
        except ValueError:
            _refuse_shapes(xs, outs, where)
            raise
        _refuse_shapes(xs, outs, where)
    if all(o is None for o in outs):
        if where is not True:
            raise TraceError(
                f"{name_of(ufunc)} with where= but no out= leaves elements undefined; write np.where(condition, result, other)"
            )
        return result
    results = result if isinstance(result, tuple) else (result,)
    stored = [r if o is None else _store_into(ufunc, o, r, where, casting) for o, r in zip(outs, results, strict=True)]
    return tuple(stored) if isinstance(result, tuple) else stored[0]


def _refuse_casting(ufunc: np.ufunc, xs: Sequence[TracedArray], dtype: Any, casting: str) -> None:
    """Raise NumPy's own error if the operands may not be cast to the input dtypes of the loop."""
    with np.errstate(all="ignore"):
        ufunc(*map(sample_of, xs), dtype=dtype, casting=casting)


def _refuse_shapes(xs: Sequence[TracedArray], outs: Sequence[Any], where: Any = True) -> None:
    """Raise NumPy's ValueError for an output array that does not have the operands' common shape. An extent by value is compared
    with the common one where the result is written."""
    for out in outs:
        if not isinstance(out, TracedArray) or all(x.shape == out.shape for x in xs):
            continue
        try:
            shape = broadcast_shapes(*(x.shape for x in xs), out.shape)
        except ValueError:
            masks = [] if where is True else [np.shape(where)]
            text = promotion.shapes_text([*(x.shape for x in (*xs, out)), *masks])
            raise ValueError(f"operands could not be broadcast together with shapes {text} ") from None
        if len(shape) != out.ndim or not all(map(_may_be, out.shape, shape)):
            own, common = (promotion.shapes_text([s]) for s in (out.shape, shape))
            raise ValueError(f"non-broadcastable output operand with shape {own} doesn't match the broadcast shape {common}")


def _may_be(own: Any, common: Any) -> bool:
    """Return whether the extent of an output may be the common one: one by value and a number are compared as they are stored."""
    return bool(own == common or (type(common) is int and is_value_size(own)))


def _store_into(ufunc: np.ufunc, out: Any, result: TracedArray, where: Any, casting: str) -> TracedArray:
    if not isinstance(out, TracedArray):
        raise not_traced(f"{name_of(ufunc)} with out= an array that the function did not make", "use its result")
    if not (out.ndim or out.is_cell):
        raise TypeError("return arrays must be of ArrayType")
    if where is not True:
        mask, new = (broadcast_to(x, out.shape) for x in (cast(as_traced(where), bool), cast(result, out.dtype)))
        result = emit("select", mask, new, out)
    update(out, result, casting)
    return out


def apply(ufunc: np.ufunc, *xs: TracedArray, dtype: np.dtype[Any] | None = None, casting: str = "same_kind") -> Any:
    """Promote and broadcast operands of a plain ufunc and emit it. ``casting`` is "unsafe" or was checked by the caller."""
    if ufunc is np.power and xs[1].weak and xs[0].dtype.kind in "fc":
        xs = (xs[0], static_scalar(xs[1]) if decides(xs[1]) else xs[1])
    is_unsafe = casting == "unsafe" and dtype is not None
    try:
        inner, outer = promotion.loop(ufunc, tuple(kind_of(x) for x in xs), dtype, casting if is_unsafe else None)
    except TypeError:
        _refuse_casting(ufunc, xs, dtype, casting)  # a Python int that is out of bounds is an OverflowError before it
        raise
    if is_unsafe:
        xs = tuple(x if x.weak else convert(x, d) for x, d in zip(xs, inner, strict=True))
    if inner[0].kind == "b":
        for x in xs:
            if x.weak == "int" and x.literal is not None and not is_size(x.literal):
                np.asarray(x.literal, np.int64)  # raises NumPy's OverflowError
    if ufunc in _COMPARISONS:
        compared = _compare_integers(ufunc, inner, *xs)
        if compared is not None:
            return compared
    operands = broadcast_together(*(cast(x, d) for x, d in zip(xs, inner, strict=True)))
    composition = composition_of(ufunc)
    if composition is not None:
        result = _as_numbers(composition(*operands))
    else:
        op = op_of(ufunc)
        if op is None:
            raise TraceError(unsupported(ufunc))
        if ufunc is np.power and inner[0].kind == "i":
            _refuse_negative_power(xs[0], xs[1], operands[1])
        result = emit(op, *operands)
    results = result if isinstance(result, tuple) else (result,)
    cast_results = tuple(cast(r, d) for r, d in zip(results, outer, strict=True))
    _propagate_known(ufunc, xs, cast_results, {} if dtype is None else {"dtype": dtype, "casting": casting})
    return cast_results if isinstance(result, tuple) else cast_results[0]


def _as_numbers(result: Any) -> Any:
    """Return the result, or results, of a ufunc; results of rank 0 are scalars."""
    if isinstance(result, tuple):
        return tuple(map(_as_numbers, result))
    return copy_of(result) if result.is_cell else result


_NEGATIVE_POWER = "Integers to negative integer powers are not allowed."
_BECOMES_FLOAT = Limit("a Python int to a negative power, which Python makes a float; write float(x) ** y")


def _refuse_negative_power(base: TracedArray, power: TracedArray, exponent: TracedArray) -> None:
    message = _BECOMES_FLOAT if base.weak and power.weak else _NEGATIVE_POWER
    if not exponent.size:
        return
    if power.literal is not None:
        if power.literal < 0:
            raise ValueError(message)
        return
    zero = broadcast_to(literal(0, exponent.dtype), exponent.shape)
    emit("check", emit("ge", exponent, zero), error="ValueError", message=message)


def _compare_integers(ufunc: np.ufunc, inner: Any, x: TracedArray, y: TracedArray) -> TracedArray | None:
    """Compare integers that no common dtype can hold: signed with unsigned, and with Python ints out of range; else return
    None."""
    for a, b, d, swapped in ((x, y, inner[1], False), (y, x, inner[0], True)):
        if b.weak == "int" and d.kind in "iu":
            relation = _COMPARISONS[ufunc] if swapped else ufunc
            if b.literal is None and not a.weak and d != np.int64:
                return _compare_traced_int(relation, a, b)
            if b.literal is not None and not promotion.fits(b.literal, d):
                if a.dtype.kind == "b":
                    np.asarray(b.literal, np.int64)  # raises NumPy's OverflowError
                compared = bool(relation(0, b.literal))
                return broadcast_to(literal(np.bool_(compared)), a.shape)
    if {inner[0].kind, inner[1].kind} != {"i", "u"}:
        return None
    if inner[0].kind == "u":
        x, y = broadcast_together(x, y)  # raises with the shapes in the order of the operands
        return _compare_integers(_COMPARISONS[ufunc], (inner[1], inner[0]), y, x)
    signed, unsigned = broadcast_together(cast(x, np.int64), cast(y, np.uint64))
    zero = broadcast_to(literal(0, np.int64), signed.shape)
    op = op_of(ufunc)
    assert op is not None
    if ufunc in (np.equal, np.greater, np.greater_equal):
        compared = emit("bitand", emit("ge", signed, zero), emit(op, cast(signed, np.uint64), unsigned))
    else:
        compared = emit("bitor", emit("lt", signed, zero), emit(op, cast(signed, np.uint64), unsigned))
    assert isinstance(compared, TracedArray)
    return compared


def _compare_traced_int(ufunc: np.ufunc, x: TracedArray, integer: TracedArray) -> TracedArray:
    """Compare an array of integers with a Python int that may be out of bounds; elements are compared in their own dtype."""
    info, exact = np.iinfo(x.dtype), cast(integer, np.int64)
    low, high = literal(int(info.min), np.int64), literal(min(int(info.max), 2**63 - 1), np.int64)
    clamped = emit("minimum", emit("maximum", exact, low), high)
    x, nearest = broadcast_together(x, cast(clamped, x.dtype))
    op = op_of(ufunc)
    assert op is not None
    compared: TracedArray = emit(op, x, nearest)
    # The int is clamped to the bounds of the dtype; the flag corrects comparisons at a bound.
    flag: Any
    if ufunc in (np.equal, np.not_equal):
        flag = emit("eq" if ufunc is np.equal else "ne", exact, clamped)
    elif ufunc in (np.less, np.greater_equal):
        flag = emit("gt" if ufunc is np.less else "le", exact, high)
    else:
        flag = emit("ge" if ufunc is np.less_equal else "lt", exact, low)
    if ufunc in (np.less, np.greater_equal) and info.max >= 2**63 - 1:
        return compared
    joined: TracedArray = emit("bitor" if ufunc in _OR else "bitand", compared, broadcast_to(flag, x.shape))
    return joined


_OR = (np.not_equal, np.less, np.greater)


def _propagate_known(ufunc: np.ufunc, xs: Any, results: tuple[TracedArray, ...], keywords: dict[str, Any]) -> None:
    """Set the results' values if all operands' values are known; ``keywords`` are the keywords of the call."""
    if all(x.known is None for x in xs):
        return
    known = [known_value(x) for x in xs]
    if any(k is None for k in known):
        return
    with np.errstate(all="ignore"):
        values = ufunc(*(k[0] for k in known if k), **keywords)
    sources = frozenset().union(*(k[1] for k in known if k))
    for result, value in zip(results, values if isinstance(values, tuple) else (values,), strict=True):
        result.known = (value, sources)


_SEQUENCES = (list, tuple, str, bytes)


@register_method("operate")
def operate(ufunc: np.ufunc, *operands: Any) -> Any:
    """Apply an operator.

    Between Python scalars it keeps Python's types: the result is weak. Integers repeat sequences.
    """
    if any(isinstance(x, Selection | Tagged) for x in operands):
        return NotImplemented
    if any(map(is_labelled, operands)):
        return apply_ufunc(ufunc, operands, is_operator=True)
    if any(map(overrides_ufuncs, operands)):
        return ufunc(*operands)
    if any(type(x) is not TracedArray and is_users_object(x) and _defers(operands, type(x)) for x in operands):
        return NotImplemented
    if ufunc is np.multiply and any(isinstance(x, _SEQUENCES) for x in operands):
        counts = [x for x in operands if isinstance(x, TracedArray) and not x.ndim and x.dtype.kind in "iu"]
        if counts:
            (sequence,) = (x for x in operands if isinstance(x, _SEQUENCES))
            return sequence * operator.index(counts[0])
    if ufunc is np.matmul and not any(x.ndim or x.is_cell if isinstance(x, TracedArray) else np.ndim(x) for x in operands):
        if all(isinstance(x, TracedArray | bool | int | float | complex | np.generic) for x in operands):
            left, right = (repr(_type_name(x)) for x in operands)
            raise TypeError(f"unsupported operand type(s) for @: {left} and {right}")
        return NotImplemented
    if any(isinstance(x, _SEQUENCES) for x in operands):
        if all(x.weak for x in operands if isinstance(x, TracedArray)):
            return NotImplemented
    if any(isinstance(x, Mapping) for x in operands):
        return NotImplemented
    try:
        xs = [x if isinstance(x, TracedArray) else as_traced(x) for x in operands if not isinstance(x, str | type(None))]
    except TypeError:
        return NotImplemented
    if len(xs) < len(operands):
        is_comparison = ufunc in (np.equal, np.not_equal) and len(xs) == 1 and xs[0].ndim
        return full(xs[0].shape, ufunc is np.not_equal, bool) if is_comparison else NotImplemented
    if _is_complex_with_float64(ufunc, xs):
        xs[1] = copy_of(xs[1])
        xs[1].weak, xs[1].type_tag = "float", None
    if not all(x.weak for x in xs):
        try:
            result = call_ufunc(ufunc, *xs)
        except TypeError:
            _refuse_scalars(ufunc, xs)
            raise
        where = all_python(xs)
        return result if where is False else _as_pythons(ufunc, xs, result, where)
    if ufunc in _ORDER and any(x.weak == "complex" for x in xs):
        _ORDER[ufunc](*(0j if x.weak == "complex" else 0 for x in xs))  # raises Python's TypeError
    if ufunc is np.power and xs[0].weak not in ("float", "complex"):
        xs[1] = static_scalar(xs[1])
        if xs[1].literal is not None and xs[1].literal < 0:
            xs[0] = as_traced(np.true_divide(xs[0], 1))
            xs[0].weak = "float"
            xs[0].known = None if xs[0].known is None else (float(xs[0].known[0]), xs[0].known[1])
    if ufunc in _PYTHON:
        if all(x.literal is not None for x in xs):
            return _literal_or_int(_PYTHON[ufunc](*(x.literal for x in xs)))
        xs = [_as_int(x) if x.weak == "bool" else x for x in xs]
    if any(x.weak == "int" and x.literal is not None and not _is_in_64_bits(x.literal) for x in xs) and ufunc in _PYTHON:
        xs = [static_scalar(x) for x in xs]
        if all(x.literal is not None for x in xs):
            return _literal_or_int(_PYTHON[ufunc](*(x.literal for x in xs)))
    check_divisor(ufunc, xs)
    is_checked = is_users_operation()
    if is_checked:
        check_float_operands(ufunc, xs, True, are_whole(xs))
    result = call_ufunc(ufunc, *xs)
    result.weak = _WEAK[result.dtype.kind]
    if result.weak == "float":
        if ufunc is np.power and is_checked:
            check_power(xs[0], xs[1], result)
        bound_float(ufunc, xs, result)
    if result.known is not None:
        result.known = _python_result(ufunc, xs, result.known)
        if result.known is not None and isinstance(result.known[0], int) and not _is_in_64_bits(result.known[0], ufunc):
            return _PYTHON[ufunc](*(static_scalar(x).literal for x in xs))
    if result.weak == "int":
        keep_exact(ufunc, xs, result, result.known is not None)
    return typed(ufunc, xs, result) if any(map(is_mixed, xs)) else settled_truth(result)


def _as_pythons(ufunc: np.ufunc, xs: Sequence[TracedArray], result: Any, where: Condition) -> Any:
    """Return the result of an operation on numbers that are all Python's where a tag says so, which is Python's there too, after
    the checks of Python's operator. Raises TraceError where Python's result has another type."""
    numbers = list(map(as_python, xs))
    kind = _kind_of_pythons(ufunc, numbers)
    if kind != {"u": "i"}.get(result.dtype.kind, result.dtype.kind):
        raise TraceError(
            "a result whose type depends on whether a number is Python's or NumPy's, as values decide; convert the number before"
        )
    check_divisor(ufunc, numbers, where)
    is_checked = is_users_operation(3)
    if is_checked:
        check_float_operands(ufunc, numbers, where, are_whole(xs))
    result = typed(ufunc, xs, result)
    if result.dtype.kind == "b" and frame_of(result).root.settles_truths:
        return bool(result) if bool(where) else as_numpys(result)
    if kind == "f":
        if ufunc is np.power and is_checked:
            check_power(numbers[0], numbers[1], cast(as_numpys(result), np.float64), where)
        bound_float(ufunc, numbers, result)
    elif kind == "i":
        _keep_int_exact(ufunc, numbers, result, where)
    return result


def _keep_int_exact(ufunc: np.ufunc, xs: Sequence[TracedArray], result: TracedArray, where: Condition) -> None:
    """Set the bounds of the result of an operation on ints that are Python's where a tag says so, and emit the check that its
    dtype holds Python's result."""
    if result.dtype == np.int64:
        keep_exact(ufunc, xs, result, False, where)
        return
    exact: TracedArray = call_ufunc(ufunc, *xs)
    keep_exact(ufunc, xs, exact, False, where)
    message = Limit(f"a Python integer that takes the dtype {result.dtype} of a number on another path exceeds it; use int64")
    require(emit("eq", cast(as_numpys(result), np.int64), exact), "OverflowError", message, where)
    result.bounds = exact.bounds


def _kind_of_pythons(ufunc: np.ufunc, xs: Sequence[TracedArray]) -> str:
    """Return the kind of dtype of the result of an operator on Python numbers; empty if they do not have the operator."""
    try:
        result = (_OPERATORS | _RELATIONS)[ufunc](*(SAMPLES[x.weak] for x in xs))
    except TypeError:
        return ""
    return np.dtype(type(result)).kind


@hook("check_divmod")
def check_divmod(x: Any, y: Any) -> None:
    """Emit the check of ``divmod`` of Python numbers by zero."""
    if isinstance(y, TracedArray | bool | int | float) and isinstance(x, TracedArray | bool | int | float):
        xs = (as_traced(x), as_traced(y))
        where = all_python(xs)
        if where is not False:
            numbers = list(map(as_python, xs))
            check_divisor(np.divmod, numbers, where)
            check_float_operands(np.divmod, numbers, where)


def _is_complex_with_float64(ufunc: np.ufunc, xs: Sequence[TracedArray]) -> bool:
    """Return whether Python's complex operates on a float64 scalar on its right, which is a Python float too."""
    if xs[0].weak != "complex" or len(xs) != 2 or ufunc not in _OF_COMPLEX:
        return False
    right = xs[1]
    return not (right.weak or right.ndim or right.is_cell) and right.dtype == np.float64


def _refuse_scalars(ufunc: np.ufunc, xs: Sequence[TracedArray]) -> None:
    """Raise the error of Python's operator if NumPy's scalars of these types do not have it."""
    if ufunc in _OPERATORS and not any(x.ndim or x.is_cell for x in xs):
        with np.errstate(all="ignore"):
            _OPERATORS[ufunc](*(sample_of(x) if x.weak else sample_of(x)[()] for x in xs))


def _type_name(value: Any) -> str:
    """Return the name of a number's type in Python's errors."""
    if isinstance(value, TracedArray):
        return value.weak or f"numpy.{value.dtype.type.__name__}"
    return f"numpy.{type(value).__name__}" if isinstance(value, np.generic) else type(value).__name__


@hook("operate_in_place")
def operate_in_place(ufunc: np.ufunc, x: TracedArray, other: Any) -> Any:
    """Apply an in-place operator such as ``+=`` to an array."""
    if is_labelled(other):
        raise refusal_of(other, "a change of an array in place by")
    if isinstance(other, TracedArray | np.ndarray | np.generic | bool | int | float | complex):
        operands = (x, as_traced(other))
        _check_cast(ufunc, operands, x, "same_kind")
        if ufunc.signature is None:
            _refuse_shapes(operands, (x,))
    result = operate(ufunc, x, other)
    return result if result is NotImplemented else _store_into(ufunc, x, result, True, "same_kind")


def _literal_or_int(value: Any) -> Any:
    """Return a literal; an int that exceeds 64 bits unchanged."""
    return literal(value) if is_size(value) or type(value) is not int or _is_in_64_bits(value) else value


def _is_in_64_bits(value: int, ufunc: np.ufunc | None = None) -> bool:
    """Return whether 64 bits hold an int, with a margin for products, powers and shifts, which are checked by floats."""
    limit = 2**62 if ufunc in (np.multiply, np.power, np.left_shift) else 2**63
    return -limit <= value < limit


def _python_result(ufunc: np.ufunc, xs: Any, known: Known) -> Known | None:
    """Return Python's result for known Python numbers; None for a complex result of real ones. Raises what Python raises."""
    value, sources = known
    if ufunc not in _PYTHON:
        return value.item(), sources
    exact = _PYTHON[ufunc](*(k[0] for x in xs if (k := known_value(x))))
    became_complex = isinstance(exact, complex) and all(x.weak != "complex" for x in xs)
    return None if became_complex else (exact, sources)


def overrides_ufuncs(x: Any) -> bool:
    """Return whether an object of a user's class overrides ufuncs."""
    kind = type(x)
    if kind is TracedArray or isinstance(x, np.ndarray):
        return False
    return getattr(kind, "__array_ufunc__", None) is not None and is_users_object(x)


def _defers(operands: Any, kind: Any) -> bool:
    """Return whether NumPy defers an operator to an object of this class. A scalar always does."""
    if not any(isinstance(x, TracedArray) and x.ndim for x in operands):
        return not hasattr(kind, "__array__")
    if hasattr(kind, "__array_ufunc__"):
        return kind.__array_ufunc__ is None
    return getattr(kind, "__array_priority__", 0) > 0


def _as_int(x: TracedArray) -> TracedArray:
    if x.literal is not None:
        return literal(int(x.literal))
    result = cast(x, np.int64)
    result.weak, result.known = "int", x.known
    return result


def call_op(op: Op, *inputs: Any, **params: Any) -> Any:
    """Emit an elementwise op called by its own reference: operands are promoted, integers to float64 if it needs floats."""
    assert isinstance(op, Elementwise)
    xs = broadcast_together(*promote(*(as_traced(x) for x in inputs)))
    if xs[0].dtype.kind not in op.kinds and "f" in op.kinds:
        xs = [cast(x, np.float64) for x in xs]
    return emit(op, *xs, **params)
