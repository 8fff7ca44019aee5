"""Control flow inside a trace: branches and loops as instructions whose regions are the user's functions.

Values that a function reads from outside are captures of its region. A branch on a value available during tracing is decided
then, and only the branch taken is traced.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.types import I64, ArrayType, scalar
from pullback.ir.passes.transforms.residuals import residual_bytes
from pullback.ir.shapes.symbolic import extent_of
from pullback.tracer.arrays.make import as_traced, cast, created, emit, fresh
from pullback.tracer.arrays.mixed_numbers import tag_type, tag_value
from pullback.tracer.arrays.python_ints import MAX_TRIP_COUNT, Bounds, bounds_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import TreeDef, bare, flatten, paths
from pullback.tracer.transforms.branches import (
    BRANCH,
    CONDITION,
    LOOP,
    Body,
    Carry,
    common,
    is_static,
    kind_of,
    rows_error,
    running,
    titled,
    watched,
)
from pullback.tracer.transforms.region import emit_regions, follow, rebuild
from pullback.tracer.transforms.vmap import moved_axis
from pullback.tracer.user_code.errors import TraceError

Function = Callable[..., Any]

_ROW = "it is a row of what the loop goes over; write into a copy, and return it"
_LOOKED_AT = "a condition only looks at the carry; write into it in the body"


# branches


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any) -> Any:
    """See ``pullback.cond``."""
    test = _scalar(pred, "the predicate of cond", "biufc", "reduce it, as by np.any or np.all")
    if is_static(pred):
        return _inline_branch(true_fun if pred else false_fun, operands)
    if test.dtype.kind != "b":
        test = as_traced(test != 0)
    index = emit("cast", test, dtype=I64)
    return _emit_switch("cond", index, (true_fun, false_fun), operands, (1, 0))


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    """See ``pullback.switch``."""
    if not branches:
        raise TraceError("switch has no branches; give a list of functions")
    position = _scalar(index, "the index of switch", "iu", "give an integer")
    last = len(branches) - 1
    if is_static(index):
        return _inline_branch(branches[min(max(int(index), 0), last)], operands)
    if not last:
        return _inline_branch(branches[0], operands)
    branch = cast(as_traced(np.clip(position, 0, last)), np.int64)
    return _emit_switch("switch", branch, branches, operands, range(len(branches)))


def _scalar(value: Any, what: str, kinds: str, instead: str) -> TracedArray:
    array = as_traced(value)
    if array.shape:
        raise TraceError(f"{what} is {array.type}, and must be a scalar; {instead}")
    if array.dtype.kind not in kinds:
        raise TraceError(f"{what} is {array.dtype}; {instead}")
    return array


def _inline_branch(function: Function, operands: Sequence[Any]) -> Any:
    """Trace the only branch that runs, on copies of its operands, and return its results."""
    leaves, tree = flatten(tuple(operands))
    copies = [_copied(leaf) for leaf in leaves]
    args = watched(tree, copies, "of a branch")
    with running():
        returned = follow(function)(*args)
    _refuse_lost_writes([x for x in copies if isinstance(x, TracedArray) and x.version], returned, function)
    return returned


def _copied(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    if not isinstance(leaf, TracedArray) or not (leaf.shape or leaf.is_cell):
        return leaf
    return created(leaf) if leaf.is_cell else fresh(leaf)


def _refuse_lost_writes(written: Sequence[TracedArray], returned: Any, function: Function) -> None:
    """Raise TraceError for an operand that a branch writes and does not return: the caller's array stays unchanged."""
    results = flatten(returned)[0]
    for x in written:
        if not any(x is r for r in results):
            raise TraceError(
                f"a branch, {titled(function)}, writes into an operand and does not return it, "
                "which leaves the array outside as it is; return the array"
            )


def _emit_switch(
    name: str, index: TracedArray, functions: Sequence[Function], operands: Sequence[Any], positions: Sequence[int]
) -> Any:
    """Return the results of the branch selected by a traced index, by a ``switch`` instruction."""
    leaves, tree = flatten(tuple(operands))
    traced = [isinstance(x, np.ndarray) or (isinstance(x, TracedArray) and x.known is None and not is_static(x)) for x in leaves]
    traced_branches: list[tuple[Body, list[Any], TreeDef]] = []
    for function in functions:
        body = Body(BRANCH)
        inside = [body.take(as_traced(x)) if enters else x for x, enters in zip(leaves, traced, strict=True)]
        returned = body.call(function, watched(tree, inside, "of a branch"))
        _refuse_lost_writes([x for x in body.inside if x.version], returned, function)
        results, structure = flatten(returned)
        with body.inner.active():
            traced_branches.append((body, [as_traced(x) for x in results], structure))
    structure = traced_branches[0][2]
    if any(other != structure for _, _, other in traced_branches):
        rows = [f"{titled(f)} returns {other!r}" for f, (_, _, other) in zip(functions, traced_branches, strict=True)]
        raise rows_error(f"the branches of {name} return different structures; return the same containers from all", rows)
    columns = list(zip(*(results for _, results, _ in traced_branches), strict=True))
    kinds = [common(column) if all(x.shape == column[0].shape for x in column) else None for column in columns]
    for column, kind, path in zip(columns, kinds, paths(structure, "the result"), strict=True):
        if kind is None or any(not x.weak and x.dtype != kind[0] for x in column):
            rows = [f"{path} is {kind_of(x)} from {titled(f)}" for x, f in zip(column, functions, strict=True)]
            raise rows_error(
                f"the branches of {name} return different types; return one shape and dtype, as by np.broadcast_to and .astype",
                rows,
            )
    numbered = enumerate(zip(columns, kinds, strict=True))
    tag_types = {k: tag_type(column, kind[0]) for k, (column, kind) in numbered if kind}
    tagged = {k: dtype for k, dtype in tag_types.items() if dtype is not None}
    regions = {}
    for (body, results, _), k in zip(traced_branches, positions, strict=True):
        with body.inner.active():
            values = [cast(x, kind[0]) for x, kind in zip(results, kinds, strict=True) if kind is not None]
            regions[k] = body, [*values, *(tag_value(results[m], dtype) for m, dtype in tagged.items())]
    emitted = emit_regions("switch", {}, [index, *traced_branches[0][0].operands], [regions[k] for k in range(len(functions))])
    for x, kind in zip(emitted, kinds, strict=False):
        x.weak = kind[1] if kind is not None else ""
    for k, tag in zip(tagged, emitted[len(kinds) :], strict=True):
        emitted[k].type_tag = tag
    return rebuild(structure, emitted[: len(kinds)])


# loops


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any, checkpoint: Any = None) -> Any:
    """See ``pullback.while_loop``."""
    carry = Carry("while_loop", init_val, "init_val")
    returned = None
    while returned is None:
        body = Body(LOOP)
        body.parameter(scalar(I64))
        returned = carry.returned(body, body_fun, body.call(body_fun, (carry.enter(body),)))
    condition = Body(CONDITION)
    condition.parameter(scalar(I64))
    returned_condition = condition.call(cond_fun, (carry.enter(condition, _LOOKED_AT),))
    with condition.inner.active():
        instead = "return one comparison, such as np.any(x > 0)"
        test = _scalar(_single(returned_condition, cond_fun), "the condition of while_loop", "b", instead)
    regions = [(condition, [cast(test, bool)]), (body, returned)]
    params = {"carried": len(returned), **_checkpoint_param("while_loop", checkpoint, body, len(returned), None)}
    results = emit_regions("while", params, body.operands, regions)
    return carry.rebuilt(results[: len(returned)])


def _single(returned: Any, function: Function) -> Any:
    """Return the single leaf that the condition of a while loop returns."""
    leaves, tree = flatten(returned)
    if tree.kind != "leaf":
        raise TraceError(f"the condition of while_loop, {titled(function)}, returns {tree!r}; return one bool")
    return leaves[0]


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, checkpoint: Any = None) -> Any:
    """See ``pullback.fori_loop``."""
    start, stop = _bound(lower, "lower"), _bound(upper, "upper")
    is_known = isinstance(start, int) and isinstance(stop, int)
    count = max(stop - start, 0) if is_known else as_traced(np.maximum(stop - start, 0))
    bounds = _bounds_from(as_traced(lower))

    def run(body: Body, index: TracedArray, state: Any) -> tuple[Any, Any]:
        with body.inner.active():
            at = index if isinstance(start, int) and not start else as_traced(index + start)
        at.weak, at.bounds = "int", bounds
        return body.call(body_fun, (at, state)), None

    return _counted_loop(Carry("fori_loop", init_val, "init_val", count), body_fun, run, count, checkpoint=checkpoint)[0]


def _bounds_from(lower: TracedArray) -> Bounds | None:
    """Return the bounds of the index of a loop that starts at ``lower``; None if it could exceed 64 bits."""
    first, last = bounds_of(lower) if lower.weak == "int" or lower.literal is not None else (0, 2**63)
    return (first, last + MAX_TRIP_COUNT) if last + MAX_TRIP_COUNT < 2**63 else None


def _bound(x: Any, name: str) -> Any:
    bound = _scalar(x, f"the bound {name} of fori_loop", "iu", "give an integer")
    return extent_of(x) if is_static(x) else cast(bound, np.int64)


def scan(
    f: Function, init: Any, xs: Any = None, length: Any = None, reverse: bool = False, checkpoint: Any = None
) -> tuple[Any, Any]:
    """See ``pullback.scan``."""
    rows, tree, count = _rows("scan", xs, length)

    def run(body: Body, index: TracedArray, state: Any) -> tuple[Any, Any]:
        returned = body.call(f, (state, _row(body, rows, tree)))
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            kind = repr(returned) if isinstance(returned, TracedArray) else f"a {type(returned).__name__}"
            raise TraceError(f"{titled(f)}, which scan runs, returns {kind}; return a pair (carry, y), with None for no y")
        return returned[0], returned[1]

    return _counted_loop(Carry("scan", init, "init", count), f, run, count, reverse, checkpoint)


def map(f: Function, xs: Any) -> Any:
    """See ``pullback.map``."""
    rows, tree, count = _rows("map", xs, None)

    def run(body: Body, index: TracedArray, state: Any) -> tuple[Any, Any]:
        return state, body.call(f, (_row(body, rows, tree),))

    return _counted_loop(Carry("map", (), "init"), f, run, count)[1]


def _rows(loop: str, xs: Any, length: Any) -> tuple[list[TracedArray], TreeDef, int]:
    """Return the arrays over whose first axis a loop iterates, their structure, and the trip count."""
    leaves, tree = flatten(xs)
    arrays, names = [as_traced(x) for x in leaves], paths(tree, "xs")
    for x, name in zip(arrays, names, strict=True):
        if not x.shape:
            raise TraceError(
                f"{loop} goes over the first axis of arrays, and {name} is {kind_of(x)}; give an array, as by np.array"
            )
    count = None if length is None else extent_of(length)
    if count is None and not arrays:
        raise TraceError(f"{loop} has no arrays to go over" + ("; give length" if loop == "scan" else "; give an array"))
    sizes = [x.shape[0] for x in arrays]
    if any(n != sizes[0] for n in sizes):
        rows = [f"{name} is {x.type}, of {x.shape[0]} rows" for x, name in zip(arrays, names, strict=True)]
        raise rows_error(f"{loop} goes over arrays of different lengths; give arrays whose first axes are equally long", rows)
    if count is not None and sizes and sizes[0] != count:
        raise TraceError(f"length is {count}, and {names[0]} is {arrays[0].type}, of {arrays[0].shape[0]} rows; leave length out")
    if count is not None and count < 0:
        raise TraceError(f"length is {count}; give 0 or more")
    return arrays, tree, count if count is not None else sizes[0]


def _row(body: Body, rows: Sequence[TracedArray], tree: TreeDef) -> Any:
    inside = [body.take(x, ArrayType(x.type.dtype, x.type.shape[1:]), _ROW) for x in rows]
    return watched(tree, inside, "of a loop's body")


def _counted_loop(
    carry: Carry,
    function: Function,
    run: Callable[[Body, TracedArray, Any], tuple[Any, Any]],
    count: int | TracedArray,
    reverse: bool = False,
    checkpoint: Any = None,
) -> tuple[Any, Any]:
    """Return the last carry and the stacked rows of a counted loop whose body ``run(body, index, carry)`` returns both."""
    returned = None
    while returned is None:
        body = Body(LOOP)
        index = body.parameter(scalar(I64))
        state, row = run(body, index, carry.enter(body))
        returned = carry.returned(body, function, state)
    leaves, tree = flatten(row)
    tree = bare(tree)
    with body.inner.active():
        arrays = [as_traced(x) for x in leaves]
        rows = [cast(x, x.dtype) for x in arrays]
    size, static = len(returned), isinstance(count, int)
    params = {
        "carried": size,
        "sliced": len(body.operands) - size,
        "length": (count,) if static else (),
        "reverse": bool(reverse),
        **_checkpoint_param(carry.loop, checkpoint, body, size, count if isinstance(count, int) else None),
    }
    operands = body.operands if isinstance(count, int) else [count, *body.operands]
    results = emit_regions("scan", params, operands, [(body, [*returned, *rows])])
    runs = isinstance(count, int) and count > 0
    return carry.rebuilt(results[:size], runs), rebuild(tree, results[size:])


def _checkpoint_param(loop: str, checkpoint: Any, body: Body, carried: int, count: int | None) -> dict[str, str]:
    """Return the param that says which values the gradient of a loop keeps.

    With a budget and a known trip count ``count``, all are kept if they fit the budget.
    """
    if checkpoint is None:
        return {}
    if checkpoint != "sqrt" and (type(checkpoint) is not int or checkpoint < 0):
        raise TraceError(f'checkpoint of {loop} is {checkpoint!r}; give "sqrt", or how many bytes the gradient may keep')
    parameters = body.inner.parameters[1 : 1 + carried]
    if checkpoint != "sqrt" and count is not None:
        if count * residual_bytes(parameters, body.inner.builder.instructions) <= checkpoint:
            return {}
    return {"checkpoint": "sqrt"}


def associative_scan(fn: Function, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """See ``pullback.associative_scan``."""
    leaves, tree = flatten(elems)
    tree = bare(tree)
    if not leaves:
        raise TraceError("associative_scan has no arrays to go over; give an array")
    arrays, names = [as_traced(x) for x in leaves], paths(tree, "elems")
    at = operator.index(axis)
    for x, name in zip(arrays, names, strict=True):
        if not -x.ndim <= at < x.ndim:
            raise TraceError(
                f"associative_scan goes along axis {at}, and {name} is {kind_of(x)}, which has no such axis; give another"
            )
    if any(x.shape[at] != arrays[0].shape[at] for x in arrays):
        rows = [f"{name} is {x.type}, of {x.shape[at]} along axis {at}" for x, name in zip(arrays, names, strict=True)]
        raise rows_error(
            "associative_scan goes over arrays of different lengths; give arrays that are equally long along the axis", rows
        )
    called = follow(fn)

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        returned = called(rebuild(tree, a), rebuild(tree, b))
        returned_leaves, structure = flatten(returned)
        if structure != flatten(rebuild(tree, a))[1]:
            raise TraceError(f"{titled(fn)} returns {structure!r}, and gets {tree!r}; return the containers that came in")
        results = [as_traced(x) for x in returned_leaves]
        if any((x.shape, x.dtype) != (y.shape, y.dtype) for x, y in zip(results, a, strict=True)):
            rows = [f"{n} is {y.type}, {titled(fn)} returns {x.type}" for n, x, y in zip(names, results, a, strict=True)]
            raise rows_error(
                "the function of associative_scan changes the type of what it combines; return the type that came in", rows
            )
        return results

    moved = [moved_axis(x, at % x.ndim, 0) for x in arrays]
    prefixes = _prefixes(combine, [x[::-1] for x in moved] if reverse else moved)
    ordered = [x[::-1] for x in prefixes] if reverse else prefixes
    return rebuild(tree, [moved_axis(x, 0, at % y.ndim) for x, y in zip(ordered, arrays, strict=True)])


def _prefixes(combine: Callable[[list[Any], list[Any]], list[Any]], elems: list[Any]) -> list[Any]:
    """Return all prefixes of an associative product, in logarithmic depth.

    Prefixes of the products of pairs give every other prefix; the others need one more product (Blelloch, "Prefix sums and
    their applications", 1990).
    """
    size = elems[0].shape[0]
    if size < 2:
        return [fresh(x) for x in elems]
    odd = _prefixes(combine, combine([x[0 : size - 1 : 2] for x in elems], [x[1::2] for x in elems]))
    heads = [x[0:1] for x in elems]
    if size == 2:
        return [np.concatenate([a, b]) for a, b in zip(heads, odd, strict=True)]
    even_tail = combine([x[: (size - 1) // 2] for x in odd], [x[2::2] for x in elems])
    even = [np.concatenate([a, b]) for a, b in zip(heads, even_tail, strict=True)]
    return [_interleaved(a, b, size) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: Any, odd: Any, size: int) -> Any:
    pairs = size // 2
    interleaved = np.stack([even[:pairs], odd], axis=1).reshape(2 * pairs, *odd.shape[1:])
    return interleaved if size == 2 * pairs else np.concatenate([interleaved, even[pairs:]])
