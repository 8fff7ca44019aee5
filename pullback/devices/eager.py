"""Implement NumPy's functions, operators and methods on device arrays, outside compiled functions.

Each becomes a compiled function, whose result stays on the device. Where a compiled function supports less than NumPy (a mask
as an index, ``out``, a Python integer that the dtype cannot hold), the case is handled here, so that the result or the error
is NumPy's.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.programs.out import write_to
from pullback.runtime.cuda.arrays.device_array import InPlace
from pullback.tracer import TraceError
from pullback.transforms.api import jit

COPIED = frozenset({
    np.array_repr, np.array_str, np.array2string, np.save, np.savez, np.savez_compressed, np.savetxt,
})  # fmt: skip
"""Functions that copy their array to the host by nature."""
OPERANDS = (np.ndarray, np.generic, Remote, int, float, complex, list, tuple)
"""Types accepted as operands together with a device array."""
COMPARED = frozenset({np.equal, np.not_equal})
"""Comparisons, for which a None operand gets a hint."""


def compute(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a NumPy function, a method by its name or an in-place operator on device arrays.

    Raises TypeError for what only NumPy can do, and the errors that NumPy raises for unsuitable arguments.
    """
    if function in COPIED:
        return function(*map(_on_host, args), **{k: _on_host(v) for k, v in kwargs.items()})
    if function == "__getitem__":
        args = (args[0], without_masks(args[1], args[0].shape))
    if isinstance(function, np.ufunc | InPlace):
        _check_operands(function, args)
    try:
        if kwargs.get("out") is not None:
            return _into(function, args, kwargs)
        return _compiled(function)(*args, **kwargs)
    except TraceError as error:
        name = _name(function)
        met = error.message.partition("; ")[0]
        if met.startswith("a write into"):
            what = "writes into an array on a device, which does not change; write into a copy: np.array(x)"
        else:
            what = f"is not computed on a device ({met}); with np.asarray(x), a copy on the host, NumPy computes it"
        raise TypeError(f"{name} {what}") from None


@functools.lru_cache(maxsize=1024)
def _compiled(function: Any) -> Callable[..., Any]:
    if isinstance(function, InPlace):
        change = getattr(operator, f"__i{function.name}__")

        def call(x: Any, other: Any) -> Any:
            return change(x.copy(), other)
    elif isinstance(function, str):

        def call(x: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            return getattr(x, function)(*args, **kwargs)
    else:

        def call(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = _name(function).rpartition(".")[2]
    return jit(call)


def _name(function: Any) -> str:
    match function:
        case InPlace():
            return f"__i{function.name}__"
        case str():
            return function
    name = getattr(function, "__name__", "a function")
    owner = getattr(function, "__self__", None)
    return f"np.{owner.__name__}.{name}" if isinstance(owner, np.ufunc) else f"np.{name}"


def _on_host(x: Any) -> Any:
    return x.copy_to_host() if isinstance(x, Remote) else x


def _check_operands(function: np.ufunc | InPlace, args: Sequence[Any]) -> None:
    """Check the operands of an operator.

    Raises TypeError for an operand that is neither a number nor an array, and the error that NumPy raises for a Python integer
    that the dtype cannot hold, which compiled functions do not check.
    """
    for x in args:
        if not isinstance(x, OPERANDS) and not hasattr(x, "__array__"):
            hint = "; write x is None" if x is None and function in COMPARED else ""
            raise TypeError(f"{_name(function)} of an array on a device and of type {type(x).__name__}{hint}")
    integers = [x for x in args if type(x) is int]
    if not integers:
        return
    dtypes = [x.dtype for x in args if isinstance(x, np.ndarray | np.generic | Remote)]
    if all(d.kind in "iu" for d in dtypes):
        held = np.iinfo(np.result_type(*dtypes))
        if not all(held.min <= x <= held.max for x in integers):
            plain = getattr(operator, f"__{function.name}__") if isinstance(function, InPlace) else function
            plain(*[np.empty(0, x.dtype) if isinstance(x, np.ndarray | Remote) else x for x in args])


def _into(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call with ``out``: the results are copied into NumPy's arrays at the end, since these may be operands too."""
    out = kwargs["out"]
    outs = out if isinstance(out, tuple) else (out,)
    if any(isinstance(x, Remote) for x in outs):
        raise TypeError(f"an array on a device does not change: write x = {_name(function)}(...), without out")
    copies = tuple(None if x is None else np.array(x) for x in outs)
    returned = _compiled(function)(*args, **{**kwargs, "out": copies if isinstance(out, tuple) else copies[0]})
    for x, copy in zip(outs, copies, strict=True):
        if x is not None:
            write_to(x, copy)
    results = returned if isinstance(returned, tuple) else (returned,)
    outputs = tuple(y if x is None else x for x, y in zip(outs, results, strict=True))
    return outputs if isinstance(returned, tuple) else outputs[0]


def without_masks(index: Any, shape: Sequence[int]) -> Any:
    """Return an index in which each mask is replaced by the positions that it selects. Raises IndexError for a mask that does
    not fit."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(map(_is_mask, items)):
        return index
    taken = sum(np.ndim(x) if _is_mask(x) else 1 for x in items if x is not None and x is not Ellipsis)
    axis, indices = 0, []
    for x in items:
        if x is Ellipsis:
            axis += len(shape) - taken
        elif x is not None and not _is_mask(x):
            axis += 1
        if not _is_mask(x):
            indices.append(x)
            continue
        mask = np.asarray(x)
        for k, size in enumerate(mask.shape, axis):
            if k >= len(shape):
                raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {taken} were indexed")
            if size != shape[k]:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {k}; size of axis is {shape[k]} but size of "
                    f"corresponding boolean axis is {size}"
                )
        axis += mask.ndim
        indices += mask.nonzero()
    return tuple(indices)


def _is_mask(x: Any) -> bool:
    if isinstance(x, np.ndarray | Remote):
        return x.dtype == bool and x.ndim > 0
    return isinstance(x, list) and bool(x) and (isinstance(x[0], bool | np.bool_) or (isinstance(x[0], list) and _is_mask(x[0])))
