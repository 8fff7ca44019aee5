"""Results in arrays of the caller's: which arrays may be written directly, and how the others are filled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.shapes.symbolic_arrays import is_masked
from pullback.programs.overlap import Array, overlapping, overlaps_itself, share
from pullback.programs.pipeline import Outcome
from pullback.runtime.program.plan import Plan
from pullback.tracer import Trace
from pullback.tracer.arrays.tree import LEAF, TreeDef, flatten

Out = list[Array | Remote | None]
"""For each leaf of a result the array that it goes to, or None for an array of its own."""


def out_of(trace: Trace, out: Any) -> Out:
    """The arrays of ``out``, a tree like the result in which None stands for any part. Raises TypeError for another structure or
    anything that is no array, ValueError for arrays that do not fit or cannot be written."""
    leaves, tree = flatten(out)
    found: Out = []
    _match(trace.out_tree, tree, iter(leaves), "out", found)
    labels = _labels(trace.out_tree, "out")
    given = {k: a for k, a in enumerate(found) if a is not None}
    for k, array in given.items():
        _check(array, labels[k], trace.function.results[k].type)
    for k, other in combinations(sorted(overlapping(given)), 2):
        if share(given[k], given[other]):
            raise ValueError(f"{labels[k]} shares memory with {labels[other]}")
    return found + [None] * trace.writes_count


def _match(expected: TreeDef, tree: TreeDef, leaves: Iterator[Any], label: str, found: Out) -> None:
    if tree.kind == "static" and tree.data is None and expected.count:
        found += [None] * expected.count
    elif expected == LEAF and tree == LEAF:
        found.append(next(leaves))
    elif expected.key == tree.key and len(expected.children) == len(tree.children):
        for one, other, inside in zip(expected.children, tree.children, _inside(expected, label), strict=True):
            _match(one, other, leaves, inside, found)
    elif expected.count or tree.count:
        what = "an array" if expected == LEAF else f"{expected!r} with arrays for *"
        raise TypeError(f"{label} is {what}, as the result, or None; found {tree!r}")


def _labels(tree: TreeDef, label: str) -> list[str]:
    """What each leaf is called."""
    if tree == LEAF:
        return [label]
    return [found for child, inside in zip(tree.children, _inside(tree, label), strict=True) for found in _labels(child, inside)]


def _inside(tree: TreeDef, label: str) -> Iterator[str]:
    step = "{}.{}" if tree.kind in ("namedtuple", "dataclass") else "{}[{!r}]"
    return (step.format(label, key) for key, _ in zip(tree.keys, tree.children))


def _check(given: Any, label: str, t: Type) -> None:
    assert isinstance(t, ArrayType)
    if not isinstance(given, np.ndarray | Remote) or is_masked(given):
        raise TypeError(f"{label} is an array of {t}, or None; found a {type(given).__name__}")
    if given.dtype != t.dtype.numpy or given.shape != t.shape:
        shape = ",".join(map(str, given.shape))
        raise ValueError(f"{label} is an array of {t.dtype.numpy.str}, {t}; found {given.dtype.str}[{shape}]")
    if isinstance(given, Remote):
        refusal = given.refusal()
        if refusal:
            raise ValueError(f"{label} {refusal}")
        return
    if not given.flags.writeable:
        raise ValueError(f"{label} is read-only; pass an array that can be written")
    if not given.flags.forc and overlaps_itself(given):
        raise ValueError(f"the elements of {label} share memory with each other; pass a copy")


def chosen_results(
    out: Out, plan: Plan, outcomes: Sequence[Outcome], arguments: Iterable[Any]
) -> list[Array | None]:  # fmt: skip
    """For each buffer that a program makes for its results, the array of the caller that it may be: one that lies in one piece
    and shares no memory with an argument."""
    arrays = [a for a in arguments if isinstance(a, np.ndarray)]
    position = {plan.program.results.index(v): k for k, v in enumerate(plan.shown)}
    found: list[Array | None] = [None] * len(plan.fresh)
    for given, outcome in zip(out, outcomes, strict=True):
        if not isinstance(given, np.ndarray) or outcome.source != "result" or outcome.index not in position:
            continue
        flags = given.flags
        if flags.c_contiguous and flags.aligned and not any(np.may_share_memory(given, a) for a in arrays):
            found[position[outcome.index]] = given
    return found


def check_device(out: Out, device: str) -> None:
    """Raises ValueError where an array of ``out`` is on another device than the one that computes its contents."""
    for array in out:
        if isinstance(array, Remote) and array.device != device:
            what = f'the call runs on {device}: jit the function with device={array.device!r}, or pass arrays there'
            raise ValueError(f"an array of out is on {array.device}, and {what}")


def chosen_there(out: Out, outcomes: Sequence[Outcome], count: int, arguments: Sequence[Any]) -> list[Remote | None] | None:
    """For each result of a program for a device, the array of ``out`` that it may be made in; None if no array is there."""
    if not any(isinstance(a, Remote) for a in out):
        return None
    found: list[Remote | None] = [None] * count
    for given, outcome in zip(out, outcomes, strict=True):
        if isinstance(given, Remote) and outcome.source == "result" and not any(given is a for a in arguments):
            found[outcome.index] = given
    return found


def put(out: Out, values: Sequence[Any]) -> list[Any]:
    """The leaves of a result, with those that go to an array of ``out`` in it. What shares memory with such an array is read
    before any is written."""
    given = [a for a in out if a is not None]
    ready = []
    for array, value in zip(out, values, strict=True):
        is_there = value is array or (isinstance(value, Remote) and isinstance(array, Remote) and is_in(value, array))
        is_shared = not is_there and isinstance(value, np.ndarray | Remote) and any(_may_share(value, a) for a in given)
        ready.append(value.copy() if is_shared else value)
    return [value if array is None else landed(array, value) for array, value in zip(out, ready, strict=True)]


def is_in(value: Remote, array: Remote) -> bool:
    """Whether a result was made in the memory of an array."""
    return value is not array and value.bounds() == array.bounds()


def _may_share(a: Any, b: Any) -> bool:
    return share(a, b) if isinstance(a, Remote) or isinstance(b, Remote) else np.may_share_memory(a, b)


def landed(array: Any, value: Any) -> Any:
    """An array of the caller's, filled, from a device by a copy. One on a device is given up: the array that has its memory."""
    if isinstance(array, Remote):
        return array.given_up(value)
    if value is not array:
        np.copyto(array, value.copy_to_host() if isinstance(value, Remote) else value)
    return array
