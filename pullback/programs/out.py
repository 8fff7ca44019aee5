"""Write results into the caller's arrays: decide which arrays the program may write directly, and copy into the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.shapes.symbolic_arrays import is_masked
from pullback.programs.overlap import Array, overlapping, overlaps_itself, shares_memory
from pullback.programs.pipeline import Outcome
from pullback.runtime.program.plan import Plan
from pullback.tracer import Trace, TraceError
from pullback.tracer.arrays.tree import LEAF, TreeDef, flatten

Out = list[Array | Remote | None]
"""For each leaf of a result the caller's array that receives it, or None for a new array."""


def out_of(trace: Trace, out: Any) -> Out:
    """Return the arrays of ``out``, a tree like the result in which None stands for any part.

    Raises TypeError for another structure or anything that is not an array, ValueError for arrays that do not fit or cannot be
    written, TraceError for a function that changes or returns containers among its arguments.
    """
    if trace.stores is not None:
        raise TraceError("a function that changes or returns a list or dict among its arguments is called without out")
    leaves, tree = flatten(out)
    arrays: Out = []
    _match(trace.out_tree, tree, iter(leaves), "out", arrays)
    labels = _labels(trace.out_tree, "out")
    targets = {k: a for k, a in enumerate(arrays) if a is not None}
    for k, array in targets.items():
        _check(array, labels[k], trace.function.results[k].type)
    for k, other in combinations(sorted(overlapping(targets)), 2):
        if shares_memory(targets[k], targets[other]):
            raise ValueError(f"{labels[k]} shares memory with {labels[other]}")
    return arrays + [None] * trace.writes_count


def _match(expected: TreeDef, tree: TreeDef, leaves: Iterator[Any], label: str, arrays: Out) -> None:
    """Append the arrays of ``tree`` for the leaves of ``expected``. Raises TypeError."""
    if tree.kind == "static" and tree.data is None and expected.count:
        arrays += [None] * expected.count
    elif expected == LEAF and tree == LEAF:
        arrays.append(next(leaves))
    elif expected.key == tree.key and len(expected.children) == len(tree.children):
        for left, right, inside in zip(expected.children, tree.children, _inside(expected, label), strict=True):
            _match(left, right, leaves, inside, arrays)
    elif expected.count or tree.count:
        wanted = "an array" if expected == LEAF else f"{expected!r} with arrays for *"
        raise TypeError(f"{label} is {wanted}, as the result, or None; found {tree!r}")


def _labels(tree: TreeDef, label: str) -> list[str]:
    """Return the name of each leaf."""
    if tree == LEAF:
        return [label]
    return [name for child, inside in zip(tree.children, _inside(tree, label), strict=True) for name in _labels(child, inside)]


def _inside(tree: TreeDef, label: str) -> Iterator[str]:
    step = "{}.{}" if tree.kind in ("namedtuple", "dataclass") else "{}[{!r}]"
    return (step.format(label, key) for key, _ in zip(tree.keys, tree.children))


def _check(array: Any, label: str, t: Type) -> None:
    """Raise TypeError or ValueError if an array cannot receive a result of this type."""
    assert isinstance(t, ArrayType)
    if not isinstance(array, np.ndarray | Remote) or is_masked(array):
        raise TypeError(f"{label} is an array of {t}, or None; found a {type(array).__name__}")
    if array.dtype != t.dtype.numpy or array.shape != t.shape:
        shape = ",".join(map(str, array.shape))
        raise ValueError(f"{label} is an array of {t.dtype.numpy.str}, {t}; found {array.dtype.str}[{shape}]")
    if isinstance(array, Remote):
        refusal = array.refusal()
        if refusal:
            raise ValueError(f"{label} {refusal}")
        return
    if not array.flags.writeable:
        raise ValueError(f"{label} is read-only; pass an array that can be written")
    if not array.flags.forc and overlaps_itself(array):
        raise ValueError(f"the elements of {label} share memory with each other; pass a copy")


def chosen_results(
    out: Out, plan: Plan, outcomes: Sequence[Outcome], arguments: Iterable[Any]
) -> list[Array | None]:  # fmt: skip
    """Return, for each result buffer of a program, the caller's array that can replace it: a contiguous one that shares no
    memory with an argument; None if there is none."""
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    created = {creation.position for creation in plan.created}
    position = {plan.program.results.index(v): k for k, v in enumerate(plan.shown) if k not in created}
    chosen: list[Array | None] = [None] * len(plan.fresh)
    for target, outcome in zip(out, outcomes, strict=True):
        if not isinstance(target, np.ndarray) or outcome.source != "result" or outcome.index not in position:
            continue
        flags = target.flags
        if flags.c_contiguous and flags.aligned and not any(np.may_share_memory(target, a) for a in arrays):
            chosen[position[outcome.index]] = target
    return chosen


def check_device(out: Out, device: str) -> None:
    """Raise ValueError if an array of ``out`` is on another device than the one that computes its contents."""
    for array in out:
        if isinstance(array, Remote) and array.device != device:
            hint = f"the call runs on {device}: jit the function with device={array.device!r}, or pass arrays there"
            raise ValueError(f"an array of out is on {array.device}, and {hint}")


def chosen_on_device(out: Out, outcomes: Sequence[Outcome], count: int, arguments: Sequence[Any]) -> list[Remote | None] | None:
    """Return, for each result of a device program, the array of ``out`` in which it can be computed; None if no array is on a
    device."""
    if not any(isinstance(a, Remote) for a in out):
        return None
    chosen: list[Remote | None] = [None] * count
    for target, outcome in zip(out, outcomes, strict=True):
        if isinstance(target, Remote) and outcome.source == "result" and not any(target is a for a in arguments):
            chosen[outcome.index] = target
    return chosen


def write_results(out: Out, values: Sequence[Any]) -> list[Any]:
    """Write the leaves of a result into the arrays of ``out`` and return the leaves of the final result.

    Values that share memory with such an array are copied before any array is written.
    """
    targets = [a for a in out if a is not None]
    ready = []
    for array, value in zip(out, values, strict=True):
        is_in_place = value is array or (isinstance(value, Remote) and isinstance(array, Remote) and is_in(value, array))
        is_shared = not is_in_place and isinstance(value, np.ndarray | Remote) and any(_may_share(value, a) for a in targets)
        ready.append(value.copy() if is_shared else value)
    return [value if array is None else write_to(array, value) for array, value in zip(out, ready, strict=True)]


def is_in(value: Remote, array: Remote) -> bool:
    """Return whether a result was computed in the memory of an array."""
    return value is not array and value.bounds() == array.bounds()


def _may_share(a: Any, b: Any) -> bool:
    return shares_memory(a, b) if isinstance(a, Remote) or isinstance(b, Remote) else np.may_share_memory(a, b)


def write_to(array: Any, value: Any) -> Any:
    """Write a value into an array of the caller and return the array; a device array is consumed, and the array that has its
    memory is returned."""
    if isinstance(array, Remote):
        return array.given_up(value)
    if value is not array:
        np.copyto(array, value.copy_to_host() if isinstance(value, Remote) else value)
    return array
