"""Traces with symbolic sizes against traces with constant ones: at each point that the first serves, both are one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.structure import Block, Function, walk
from pullback.ir.passes.editing.dce import dce
from pullback.ir.shapes.instantiate import Fails
from pullback.ir.text import canonical
from pullback.programs.dynamic_shapes import NotSymbolic, Variant, extents_of
from pullback.tracer import Signature, Trace, leaf_key, parameters_of, signature, trace, unflatten
from pullback.tracer.user_code.check_messages import OUT_OF_RANGE

Call = Callable[..., Any]

POINTS: dict[str, Callable[[int, int], int]] = {
    "the same": lambda n, k: n,
    "one more": lambda n, k: n + 1 if n > 1 else n,
    "twice": lambda n, k: 2 * n if n > 1 else n,
    "all different": lambda n, k: n + 3 + k if n > 1 else n,
    "larger": lambda n, k: n + 40 if n > 1 else n,
    "one less": lambda n, k: max(n - 1, 0),
    "ones": lambda n, k: 1,
    "none": lambda n, k: 0,
    "all one more": lambda n, k: n + 1,
    "the first alone": lambda n, k: n + (k == 0),
}
"""The extent number ``k`` of a call, which is ``n`` in the first, at other points."""


def check(function: Call, *arguments: Any) -> int:
    """At how many of the points a symbolic trace of a call serves calls of other sizes; there it is what a trace with numbers is.
    -1 if sizes are numbers in that function. A call that cannot be traced counts as 0."""
    parameters = parameters_of(function)
    call = signature(parameters, arguments, {})
    try:
        trace(function, arguments, call=call, parameters=parameters)
    except Exception:
        return 0
    try:
        variant = Variant(trace(function, arguments, call=call, parameters=parameters, symbolic=True), call)
    except NotSymbolic:
        return -1
    served = 0
    for name, leaves in resized(call):
        args, kwargs = unflatten(call.tree, leaves)
        other = signature(parameters, args, kwargs)
        if [_loose(x) for x in leaves] != [_loose(x) for x in call.leaves]:
            continue
        try:
            values = variant.values(other)
        except Fails:
            continue
        expected = trace(function, args, call=other, parameters=parameters)
        symbolic = variant.at(values)
        assert shown(symbolic) == shown(expected), name
        assert range_checks(symbolic.function) >= range_checks(expected.function), name
        served += extents_of(leaves) != extents_of(call.leaves)
    return served


def resized(call: Signature) -> Iterator[tuple[str, list[Any]]]:
    """The leaves of a call at each point."""
    for name, change in POINTS.items():
        k, leaves = 0, []
        for leaf in call.leaves:
            if isinstance(leaf, np.ndarray) and leaf.ndim:
                shape = tuple(change(n, k + j) for j, n in enumerate(leaf.shape))
                k += leaf.ndim
                filled = np.resize(leaf, shape) if leaf.size else np.zeros(shape, leaf.dtype)
                leaves.append(leaf if shape == leaf.shape else filled)
            else:
                leaves.append(leaf)
        yield name, leaves


def unproved(function: Function) -> Function:
    """A function without the checks that indices are in range, and without the proofs that they are: a trace with symbolic sizes
    has checks where a trace with numbers has proofs."""

    def within(block: Block) -> Block:
        kept = []
        for i in block.instructions:
            if i.op.name == "check" and i.params["message"].startswith(OUT_OF_RANGE):
                continue
            params = {name: value for name, value in i.params.items() if name != "in_range"}
            kept.append(replace(i, params=params, regions=tuple(map(within, i.regions))))
        return replace(block, instructions=tuple(kept))

    return dce(replace(function, body=within(function.body)))


def range_checks(function: Function) -> int:
    """The number of checks that indices are in range."""
    return sum(i.op.name == "check" and i.params["message"].startswith(OUT_OF_RANGE) for i in walk(function.body))


def shown(result: Trace) -> Sequence[Any]:
    """All that a program is made from."""
    pinned = tuple((p.index, repr(p.value)) for p in result.pinned)
    arrays = [arguments.array.tobytes() for arguments in result.inputs if hasattr(arguments, "array")]
    text = canonical(unproved(result.function))
    return text, repr(result.out_tree), result.weak, result.returned, result.writes, pinned, arrays


def _loose(leaf: Any) -> Any:
    key = leaf_key(leaf)
    return (key[0], len(key[1]), key[2]) if isinstance(key, tuple) and len(key) == 3 else key
