"""numpy.einsum: parses the subscripts, takes the contraction order from numpy.einsum_path and contracts pair by pair."""

from __future__ import annotations

import operator
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import refuse
from pullback.tracer.arrays.make import cast, fresh, promote
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.views import view
from pullback.tracer.functions.numpy.products import contraction, strong

LETTERS = string.ascii_uppercase + string.ascii_lowercase
"""The letters for the labels 0 to 51 of sublists, in the order of the axes of an implicit result."""


def _from_sublists(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return subscripts and arrays of a call of the form einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    pairs = list(operands)
    out = pairs.pop() if len(pairs) % 2 else None

    def subscripts(entry: Any) -> str:
        labels = [k if k is Ellipsis else operator.index(k) for k in entry]
        if any(k is not Ellipsis and not 0 <= k < len(LETTERS) for k in labels):
            raise ValueError(f"subscript is not within the valid range [0, {len(LETTERS)})")
        return "".join("..." if k is Ellipsis else LETTERS[k] for k in labels)

    spec = ",".join(subscripts(entry) for entry in pairs[1::2])
    return (spec if out is None else f"{spec}->{subscripts(out)}"), pairs[::2]


def parse(spec: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the subscripts of each operand and of the result, one letter per axis, with ellipses and an implicit result
    expanded."""
    spec = spec.replace(" ", "")
    inputs, arrow, out = spec.partition("->")
    words = inputs.split(",")
    if len(words) != len(ranks):
        raise ValueError(
            "fewer operands provided to einstein sum function than specified in the subscripts string"
            if len(words) > len(ranks)
            else "more operands provided to einstein sum function than specified in the subscripts string"
        )
    used = {c for c in spec if c.isalpha()}
    for c in spec:
        if not (c.isascii() and c.isalpha()) and c not in ".,->":
            raise ValueError(f"invalid subscript {c!r} in einstein sum subscripts string, subscripts must be letters")
    free = [c for c in string.ascii_letters if c not in used]
    ellipsis_ranks = [rank - len(word.replace("...", "")) for word, rank in zip(words, ranks, strict=True)]
    most = max((n for word, n in zip(words, ellipsis_ranks, strict=True) if "..." in word), default=0)
    dots = "".join(free[:most])
    full = []
    for k, (word, n) in enumerate(zip(words, ellipsis_ranks, strict=True)):
        if n < 0:
            raise ValueError(f"einstein sum subscripts string contains too many subscripts for operand {k}")
        if n and "..." not in word:
            raise ValueError(
                "operand has more dimensions than subscripts given in einstein sum, but no '...' ellipsis provided to broadcast "
                "the extra dimensions."
            )
        full.append(word.replace("...", dots[len(dots) - n :]))
    if not arrow:
        letters = sorted(c for c in used if sum(word.count(c) for word in full) == 1)
        return full, dots + "".join(letters)
    result = out.replace("...", dots)
    for c in result:
        if result.count(c) > 1:
            raise ValueError(f"einstein sum subscripts string includes output subscript {c!r} multiple times")
    if dots and "..." not in out:
        raise ValueError("output has ellipsis subscripts of its operands missing")
    missing = set(result) - set("".join(full))
    if missing:
        raise ValueError(
            f"einstein sum subscripts string included output subscript {min(missing)!r} which never appeared in an input"
        )
    return full, result


def _order(words: Sequence[str], out: str, arrays: Sequence[TracedArray], optimize: Any) -> list[tuple[int, ...]]:
    """Return which operands each step contracts, numbered as in numpy.einsum_path."""
    if len(arrays) <= 2:
        return [tuple(range(len(arrays)))]
    if isinstance(optimize, list | tuple) and optimize and optimize[0] == "einsum_path":
        return _checked([tuple(step) for step in optimize[1:]], len(arrays))
    stand_ins = [np.broadcast_to(np.zeros((), np.float64), a.shape) for a in arrays]
    strategy = optimize if isinstance(optimize, str) else "greedy"
    path, _ = np.einsum_path(f"{','.join(words)}->{out}", *stand_ins, optimize=strategy)
    return [tuple(step) for step in path[1:]]


def _checked(steps: list[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    """Return a user's contraction path once it is checked.

    Each step must name remaining operands, each once; its result is appended to them. Exactly one must remain at the end.
    """
    left = count
    for step in steps:
        if not step or len(set(step)) < len(step) or not all(0 <= k < left for k in step):
            raise ValueError(f"einsum_path's step {step} must name some of the {left} operands that are left then, each once")
        left -= len(step) - 1
    if left > 1:
        raise RuntimeError(f"Invalid einsum_path is specified: {left - 1} more operands has to be contracted.")
    return steps


@implements(np.einsum)
def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: Any = None,
    casting: Any = None,
) -> TracedArray:
    if casting not in (None, "no", "equiv", "safe", "same_kind", "unsafe"):
        raise ValueError("casting must be one of 'no', 'equiv', 'safe', 'same_kind', 'unsafe'")
    refuse("einsum", order=None if order in (None, "K", "C", "A") else order)
    if isinstance(operands[0], str):
        spec, values = operands[0], list(operands[1:])
    else:
        spec, values = _from_sublists(operands)
    arrays = [strong(v) for v in values]
    for a in arrays if dtype is not None else ():
        if not np.can_cast(a.dtype, dtype, casting or "safe"):
            raise TypeError(f"Iterator operand dtype could not be cast from {a.dtype!r} to {np.dtype(dtype)!r} by {casting!r}")
    arrays = promote(*arrays) if dtype is None else [cast(a, dtype) for a in arrays]
    words, result = parse(spec, [a.ndim for a in arrays])
    _check_extents(words, result, arrays)
    if arrays[0].dtype == np.bool_:
        counted = _steps([cast(a, np.int64) for a in arrays], words, result, optimize)
        return counted != 0
    if arrays[0].dtype.itemsize == 2 and arrays[0].dtype.kind in "fV" and _adds_in_steps(words, result):
        widened = _steps([cast(a, np.float32) for a in arrays], words, result, optimize)
        return cast(widened, arrays[0].dtype)
    value = _steps(arrays, words, result, optimize)
    is_view = len(arrays) == 1 and set(words[0]) == set(result) and arrays[0] is values[0]
    value.is_dense = value.ndim < 2
    return view(value, arrays[0]) if is_view and value.ndim else value


@implements(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """Return numpy.einsum_path of the operands' shapes."""
    stand_ins = [np.broadcast_to(0.0, x.shape) if isinstance(x, TracedArray) else x for x in operands]
    return np.einsum_path(*stand_ins, optimize=optimize)


def _check_extents(words: Sequence[str], out: str, arrays: Sequence[TracedArray]) -> None:
    extents: dict[str, int] = {}
    is_view = len(words) == 1 and set(words[0]) == set(out)
    for k, (word, a) in enumerate(zip(words, arrays, strict=True)):
        own: dict[str, int] = {}
        for letter, n in zip(word, a.shape, strict=True):
            if own.setdefault(letter, n) != n:
                operand = "single operand" if is_view else f"operand {k}"
                raise ValueError(f"dimensions in {operand} for collapsing index {letter!r} don't match ({own[letter]} != {n})")
        for letter, n in own.items():
            if extents.setdefault(letter, n) not in (1, n) and n != 1:
                raise ValueError(_do_not_broadcast(words, out, arrays))
            extents[letter] = n if extents[letter] == 1 else extents[letter]


def _do_not_broadcast(words: Sequence[str], out: str, arrays: Sequence[TracedArray]) -> str:
    """Return NumPy's error message: each operand's shape, remapped to the axes of the result followed by the summed axes."""
    order = out + "".join(sorted(set("".join(words)) - set(out)))
    parts = []
    for word, a in zip(words, arrays, strict=True):
        extents = [str(a.shape[word.index(k)]) if k in word else "newaxis" for k in order]
        while extents[:1] == ["newaxis"]:
            del extents[0]
        shape = str(a.shape).replace(" ", "")
        parts.append(f"{shape}->({','.join(extents)}{',' if len(extents) == 1 else ''})")
    return f"operands could not be broadcast together with remapped shapes [original->remapped]: {' '.join(parts)} "


def _adds_in_steps(words: Sequence[str], out: str) -> bool:
    """Return whether sums occur before the final contraction: with more than two operands, or over an axis that only one
    operand has."""
    return len(words) > 2 or any(set(word) - set(out).union(*words[:k], *words[k + 1 :]) for k, word in enumerate(words))


def _steps(arrays: Sequence[TracedArray], words: Sequence[str], out: str, optimize: Any) -> TracedArray:
    """Contract along the path; a letter is kept while a remaining operand or the result has it."""
    left = list(zip(arrays, words, strict=True))
    for step in _order(words, out, arrays, optimize):
        chosen = [left.pop(k) for k in sorted(step, reverse=True)][::-1]
        while len(chosen) > 1 or (len(chosen) == 1 and len(step) == 1):
            pair, remaining = chosen[:2], chosen[2:]
            elsewhere = out if not left and not remaining else out + "".join(word for _, word in [*left, *remaining])
            seen = dict.fromkeys("".join(word for _, word in pair))
            keep = out if not left and not remaining else "".join(k for k in seen if k in elsewhere)
            joined = (contraction(pair, keep), keep)
            chosen = [joined, *remaining]
            if len(chosen) == 1:
                break
        left.extend(chosen)
    ((value, _),) = left
    return fresh(value)
