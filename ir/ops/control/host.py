"""Host ops: steps of a program that run in Python, once, in program order. ``print`` shows values, ``callback`` calls a
function, ``clock`` reads the time.

As program ops they take dense buffers, the results' buffers last, and have no results.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, NoDerivative, Op, Region, Same, with_leading_axis
from pullback.ir.core.types import ArrayType, RefType, Type, dtype_of, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import factor_names


class Host(Op):
    """A step that runs in Python."""

    def outputs(self, params: Mapping[str, Any]) -> int:
        """Return the number of results."""
        return 0

    def run(self, buffers: Sequence[Any], params: Mapping[str, Any]) -> None:
        """Run the step as a program op: read the first buffers and fill the last ones, the results' buffers."""
        self.evaluate(buffers, params, ())


def sizes_by_value(step: Any) -> list[str]:
    """Return the names of the extents by value in the shapes of the operands of a host call."""
    extents = [e for v in step.operands for e in v.type.shape if isinstance(e, str)]
    return list(dict.fromkeys(name for e in extents for name in factor_names(e) if is_by_value(name)))


class Print(Host):
    """Writes ``text`` to the standard output: a format string whose fields are the operands, by position.

    ``scalars`` names, for each operand, the Python type ("bool", "int", "float") that it is shown as, or is empty.
    """

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if len(params["scalars"]) != len(types):
            raise TypeError(f"{len(params['scalars'])} scalars for {len(types)} operands")
        return ()

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        """Print whole arrays once, rather than once for each index of the batch."""
        scalars = tuple("" if axis else scalar for axis, scalar in zip(batched, params["scalars"], strict=True))
        results: tuple[Value, ...] = b.emit(self, operands, {**params, "scalars": scalars})
        return results


class Callback(Host):
    """The results of a Python function. The first operand is the function's number, an i64 scalar, so that one program serves
    any function; the other operands are its arguments. ``dtypes`` and ``ranks`` give the results' types, ``shape`` all
    their extents in a row. With ``constant`` its derivatives are zero, else taking one is an error. The first ``axes`` axes
    of operands and results are batch axes: the function is called for each index along them."""

    def outputs(self, params: Mapping[str, Any]) -> int:
        return len(params["ranks"])

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        results, extents = [], iter(params["shape"])
        for dtype, rank in zip(params["dtypes"], params["ranks"], strict=True):
            results.append(ArrayType(dtype_of(dtype), tuple(itertools.islice(extents, rank))))
        if next(extents, None) is not None or any(len(t.shape) != r for t, r in zip(results, params["ranks"])):
            raise TypeError(f"{len(params['shape'])} extents for ranks {list(params['ranks'])}")
        if not types or types[0].dtype.name != "i64" or types[0].rank:
            raise TypeError("the first operand must be the number of a function, an i64 scalar")
        if not isinstance(types[0], RefType):
            return tuple(results)
        if [(t.dtype, t.rank) for t in types[len(types) - len(results) :]] != [(t.dtype, t.rank) for t in results]:
            raise TypeError("the last operands must be the results' buffers")
        return ()

    def run(self, buffers: Sequence[Any], params: Mapping[str, Any]) -> None:
        count = len(buffers) - self.outputs(params)
        _call_along(buffers[0], buffers[1:count], buffers[count:], params["axes"])

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        extents = iter(params["shape"])
        shape = [e for rank in params["ranks"] for e in (size, *itertools.islice(extents, rank))]
        ranks = tuple(rank + 1 for rank in params["ranks"])
        arguments = with_leading_axis(b, operands[1:], batched[1:], size)
        changed = {**params, "shape": tuple(shape), "ranks": ranks, "axes": params["axes"] + 1}
        results: tuple[Value, ...] = b.emit(self, (operands[0], *arguments), changed)
        return results


class Clock(Host):
    """The time of a clock of Python's ``time`` module, read after the operands are computed, and the operands, for what is
    computed after it. ``clock`` names the function, whose time is an i64 if the name ends with "_ns", else an f64; ``shape``:
    the extents of a batch, whose rows have one time.

    As a program op it takes the buffer of the time alone: the other results are the operands' buffers."""

    def outputs(self, params: Mapping[str, Any]) -> int:
        return 1

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if not hasattr(time, params["clock"]):
            raise TypeError(f"the time module has no {params['clock']}")
        read = ArrayType(dtype_of(_dtype_of_clock(params["clock"])), params["shape"])
        if not any(isinstance(t, RefType) for t in types):
            return read, *types
        if len(types) != 1 or (types[0].dtype, types[0].shape) != (read.dtype, read.shape):
            raise TypeError("takes the buffer of the time alone")
        return ()

    def run(self, buffers: Sequence[Any], params: Mapping[str, Any]) -> None:
        buffers[0][...] = getattr(time, params["clock"])()

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        arguments = with_leading_axis(b, operands, batched, size)
        results: tuple[Value, ...] = b.emit(self, arguments, {**params, "shape": (size, *params["shape"])})
        return results


def _dtype_of_clock(name: str) -> str:
    return "i64" if name.endswith("_ns") else "f64"


class HostFunction:
    """A Python function that programs call by its ``function_id`` while it is alive; it returns a sequence of arrays."""

    __slots__ = ("__weakref__", "call", "function_id")

    def __init__(self, call: Callable[..., Sequence[Any]]) -> None:
        self.call = call
        self.function_id = next(_numbers)
        _functions[self.function_id] = self


_numbers = itertools.count(1)
_functions: WeakValueDictionary[int, HostFunction] = WeakValueDictionary()


class Shown:
    """A value as a field of a format string; arrays take the format of their elements."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        if spec and isinstance(self.value, np.ndarray) and self.value.ndim:
            return np.array2string(self.value, formatter={"all": lambda element: format(element, spec)})
        return format(self.value, spec)


def show(*values: Any, text: str, scalars: Sequence[str]) -> tuple[()]:
    """Print ``values``: the reference of ``print``."""
    plain = [np.asarray(v).item() if scalar else v[()] for v, scalar in zip(values, scalars, strict=True)]
    print(text.format(*map(Shown, plain)), end="")
    return ()


def call(function_id: Any, *operands: Any, axes: int, shape: Any, ranks: Any, dtypes: Any, constant: bool) -> tuple[Any, ...]:
    """Call a function: the reference of ``callback``. Raises LookupError for a function that is gone, or of another process."""
    if not axes:
        return tuple(_function(function_id)(*operands))
    extents = iter(shape)
    shapes = [tuple(itertools.islice(extents, rank)) for rank in ranks]
    results = tuple(np.empty(s, dtype_of(t).numpy) for s, t in zip(shapes, dtypes, strict=True))
    _call_along(function_id, operands, results, axes)
    return results


def _call_along(function_id: Any, operands: Sequence[Any], results: Sequence[Any], axes: int) -> None:
    """Call a function for each index along the first ``axes`` axes, and write into arrays of results."""
    function = _function(function_id)
    for index in np.ndindex((*operands, *results)[0].shape[:axes] if axes else ()):
        for whole, part in zip(results, function(*(x[(*index, ...)] for x in operands)), strict=True):
            whole[index] = part


def _function(function_id: Any) -> Callable[..., Sequence[Any]]:
    function = _functions.get(int(function_id))
    if function is None:
        raise LookupError(f"no function has number {int(function_id)} in this process")
    return function.call


def read_clock(*values: Any, clock: str, shape: Sequence[int]) -> tuple[Any, ...]:
    """Return the time and the values: the reference of ``clock``."""
    return np.full(tuple(shape), getattr(time, clock)(), dtype_of(_dtype_of_clock(clock)).numpy), *map(np.asarray, values)


def _of_values(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the cotangents of the values that pass a clock, whose time has none."""
    return [ct if wanted else ZERO for ct, wanted in zip(cts[1:], wants, strict=True)]


def _no_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    if not params["constant"]:
        raise NoDerivative(
            "a Python function that is called back has no derivative of its own; give it a rule by pb.custom_vjp "
            "or pb.extend.defvjp"
        )
    return [ZERO] * len(inputs)


_HOST = {"effect": "effect", "vocabularies": frozenset({"func", "program"})}

print_ = Print(name="print", reference=show, nondifferentiable="it has no result", **_HOST)  # type: ignore[arg-type]
callback = Callback(name="callback", reference=call, pullback=_no_rule, extents=("shape",), **_HOST)  # type: ignore[arg-type]
clock = Clock(name="clock", reference=read_clock, pullback=_of_values, extents=("shape",), **_HOST)  # type: ignore[arg-type]
